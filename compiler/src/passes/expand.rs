//! Writes operations that no target has as such in terms of others.
//!
//! - `sort` of anything becomes a `sort` of `i64` alone, in which the key stands above the element's place, so that all keys
//!   differ and equal ones keep their order; keys and payloads are then taken from their places. Keys of 64 bits are
//!   sorted twice, by their lower halves first.
//! - `topk` of few takes the largest again and again; of many, it sorts.
//! - `occurrence` sorts, numbers the elements of each run of equal ones, and sorts back.
//! - `dot` with leading dimensions becomes one product for each of their indices.
//!
//! The meaning is the same to the last bit: values are taken, never made from keys.

use std::collections::HashMap;

use tesserine_set::DType;

use crate::ir::{
    OpId, RegionId, ValueId,
    tile::{
        BinaryOp, Builder, CompareOp, Constant, Kernel, OpKind, ReduceOp, ScanOp, TileBody, Type,
        UnaryOp,
    },
};

/// How many of `topk` are found one after another; more are sorted out.
const FEW: u32 = 32;

/// From how many on these steps are a loop at run time.
const LOOPED: u32 = 4;

pub fn run(kernel: &mut Kernel) {
    let touches = |op: &crate::ir::Op<OpKind>, body: &TileBody| match op.kind {
        OpKind::TopK { .. } | OpKind::Occurrence => true,
        OpKind::Sort { descending } => !is_plain(body, &op.operands, descending),
        OpKind::Dot => body.ty(op.operands[0]).shape().len() > 2,
        _ => false,
    };
    if !kernel.body.ops.values().any(|op| touches(op, &kernel.body)) {
        return;
    }
    let mut expand = Expand {
        from: &kernel.body,
        to: TileBody::new(),
        map: HashMap::new(),
    };
    let root = expand.to.root;
    expand.region(kernel.body.root, root);
    kernel.body = expand.to;
}

/// Whether a sort is the one that targets have.
fn is_plain(body: &TileBody, operands: &[ValueId], descending: bool) -> bool {
    operands.len() == 1 && !descending && body.ty(operands[0]).elem() == DType::I64
}

struct Expand<'a> {
    from: &'a TileBody,
    to: TileBody,
    map: HashMap<ValueId, ValueId>,
}

impl Expand<'_> {
    fn region(&mut self, region: RegionId, into: RegionId) {
        for &arg in &self.from.regions[region].args {
            let new = self.to.add_argument(into, self.from.ty(arg).clone());
            self.map.insert(arg, new);
        }
        for &id in &self.from.regions[region].ops {
            self.op(id, into);
        }
    }

    fn op(&mut self, id: OpId, into: RegionId) {
        let op = &self.from.ops[id];
        let operands: Vec<ValueId> = op.operands.iter().map(|v| self.map[v]).collect();
        let mut b = Builder {
            body: &mut self.to,
            region: into,
            span: op.span,
        };
        let results = match op.kind {
            OpKind::Sort { descending } if !is_plain(self.from, &op.operands, descending) => {
                let places = sorted_places(&mut b, operands[0], descending);
                operands
                    .iter()
                    .map(|&v| take_last(&mut b, v, places))
                    .collect()
            }
            OpKind::TopK { k } => topk(&mut b, operands[0], k),
            OpKind::Occurrence => vec![occurrence(&mut b, operands[0])],
            OpKind::Dot if b.ty(operands[0]).shape().len() > 2 => {
                vec![batched(&mut b, operands[0], operands[1], operands[2])]
            }
            _ => {
                let regions = op
                    .regions
                    .iter()
                    .map(|&inner| {
                        let new = self.to.new_region();
                        self.region(inner, new);
                        new
                    })
                    .collect();
                let types = op
                    .results
                    .iter()
                    .map(|&r| self.from.ty(r).clone())
                    .collect();
                let kind = op.kind.clone();
                let new = self
                    .to
                    .append(into, kind, operands, types, regions, op.span);
                self.to.ops[new].results.clone()
            }
        };
        for (&old, new) in op.results.iter().zip(results) {
            self.map.insert(old, new);
        }
    }
}

/// A tile of one value.
fn full(b: &mut Builder<'_>, value: i64, elem: DType, shape: &[u32]) -> ValueId {
    let scalar = b.constant(Constant::Int(value, elem));
    b.broadcast(scalar, shape)
}

fn with(b: &mut Builder<'_>, op: BinaryOp, x: ValueId, value: i64) -> ValueId {
    let (elem, shape) = (b.ty(x).elem(), b.ty(x).shape().to_vec());
    let other = full(b, value, elem, &shape);
    b.binary(op, x, other)
}

/// The place of each element along the last axis, as `elem`.
fn places(b: &mut Builder<'_>, elem: DType, shape: &[u32]) -> ValueId {
    let count = shape[shape.len() - 1];
    let line = b.iota(elem, &[count]);
    b.broadcast(line, shape)
}

fn take_last(b: &mut Builder<'_>, x: ValueId, index: ValueId) -> ValueId {
    let axis = b.ty(x).shape().len() as u32 - 1;
    b.take(x, index, axis)
}

/// The elements as integers that are ordered as they are, equal where they are equal: `i32`, or `i64` for types of 64
/// bits. NaN comes behind all numbers, whether they rise or fall.
fn ordered(b: &mut Builder<'_>, x: ValueId, descending: bool) -> ValueId {
    let elem = b.ty(x).elem();
    let shape = b.ty(x).shape().to_vec();
    let wide = elem.bits() == 64;
    let (int, min, max) = match wide {
        true => (DType::I64, i64::MIN, i64::MAX),
        false => (DType::I32, i32::MIN.into(), i32::MAX.into()),
    };
    if elem.is_int() {
        let key = match elem {
            DType::U64 | DType::U32 => {
                let bits = b.bitcast(x, int);
                with(b, BinaryOp::Xor, bits, min)
            }
            _ => b.cast(x, int),
        };
        return if descending {
            b.unary(UnaryOp::Not, key)
        } else {
            key
        };
    }
    let float = if wide { DType::F64 } else { DType::F32 };
    let x = b.cast(x, float);
    let zero = b.float(0.0, float);
    let zero = b.broadcast(zero, &shape);
    // −0 is 0.
    let is_zero = b.compare(CompareOp::Eq, x, zero);
    let x = b.select(is_zero, zero, x);
    let bits = b.bitcast(x, int);
    let sign = with(b, BinaryOp::Shr, bits, i64::from(float.bits()) - 1);
    let flip = with(b, BinaryOp::And, sign, max);
    let mut key = b.binary(BinaryOp::Xor, bits, flip);
    if descending {
        key = b.unary(UnaryOp::Not, key);
    }
    let number = b.compare(CompareOp::Eq, x, x);
    let last = full(b, max, int, &shape);
    b.select(number, key, last)
}

/// `key`, of `i32`, above the place of each element.
fn keyed(b: &mut Builder<'_>, key: ValueId) -> ValueId {
    let shape = b.ty(key).shape().to_vec();
    let wide = b.cast(key, DType::I64);
    let high = with(b, BinaryOp::Shl, wide, 32);
    let place = places(b, DType::I64, &shape);
    b.binary(BinaryOp::Or, high, place)
}

/// The low half of each element.
fn low(b: &mut Builder<'_>, keys: ValueId) -> ValueId {
    b.cast(keys, DType::I32)
}

/// Where the elements of each sorted row come from: `i32`, stable.
fn sorted_places(b: &mut Builder<'_>, x: ValueId, descending: bool) -> ValueId {
    let key = ordered(b, x, descending);
    places_by(b, key)
}

/// Where the elements come from that are sorted by integers that [`ordered`] gives.
fn places_by(b: &mut Builder<'_>, key: ValueId) -> ValueId {
    if b.ty(key).elem() == DType::I32 {
        let keys = keyed(b, key);
        let sorted = b.sort(vec![keys], false)[0];
        return low(b, sorted);
    }
    // By the lower halves, then, without disturbing that order, by the upper ones.
    let lower = b.cast(key, DType::I32);
    let lower = with(b, BinaryOp::Xor, lower, i32::MIN.into());
    let first = places_by(b, lower);
    let upper = with(b, BinaryOp::Shr, key, 32);
    let upper = b.cast(upper, DType::I32);
    let upper = take_last(b, upper, first);
    let second = places_by(b, upper);
    take_last(b, first, second)
}

fn topk(b: &mut Builder<'_>, x: ValueId, k: u32) -> Vec<ValueId> {
    let shape = b.ty(x).shape().to_vec();
    let key = ordered(b, x, true);
    let mut narrow = shape.clone();
    narrow[shape.len() - 1] = k;
    let places = if k > FEW || b.ty(key).elem() == DType::I64 {
        let all = places_by(b, key);
        b.slice(all, vec![0; shape.len()], &narrow)
    } else {
        least(b, key, k, &narrow)
    };
    vec![take_last(b, x, places), places]
}

/// The places of the `k` least keys, of `i32`, one after another.
fn least(b: &mut Builder<'_>, key: ValueId, k: u32, narrow: &[u32]) -> ValueId {
    let keys = keyed(b, key);
    let start = full(b, 0, DType::I32, narrow);
    if k < LOOPED {
        let mut found = start;
        let mut keys = keys;
        for i in 0..k {
            let i = b.constant(Constant::Int(i.into(), DType::I32));
            (keys, found) = next_least(b, keys, found, i);
        }
        return found;
    }
    let bounds = [0, k.into(), 1].map(|v| b.int(v));
    let region = b.body.new_region();
    let index = b.body.add_argument(region, Type::Scalar(DType::I64));
    let carried = [keys, start].map(|v| {
        let ty = b.ty(v).clone();
        b.body.add_argument(region, ty)
    });
    let mut inner = b.at(region);
    let i = inner.cast(index, DType::I32);
    let (keys_after, found) = next_least(&mut inner, carried[0], carried[1], i);
    inner.yield_(vec![keys_after, found]);
    let op = b.for_(None, false, bounds, &[keys, start], region);
    b.body.ops[op].results[1]
}

/// Puts the place of the least of `keys` at number `i` of what is found, and takes it out of the keys.
fn next_least(
    b: &mut Builder<'_>,
    keys: ValueId,
    found: ValueId,
    i: ValueId,
) -> (ValueId, ValueId) {
    let shape = b.ty(keys).shape().to_vec();
    let narrow = b.ty(found).shape().to_vec();
    let axis = shape.len() - 1;
    let least = b.reduce(
        ReduceOp::Min,
        keys,
        if axis == 0 { None } else { Some(axis as u32) },
    );
    let mut column = shape.clone();
    column[axis] = 1;
    let (everywhere, place) = if axis == 0 {
        (b.broadcast(least, &shape), low(b, least))
    } else {
        let least = b.reshape(least, &column);
        (b.broadcast(least, &shape), low(b, least))
    };
    let place = b.broadcast(place, &narrow);
    let line = b.iota(DType::I32, &narrow[axis..]);
    let i = b.broadcast(i, &narrow[axis..]);
    let here = b.compare(CompareOp::Eq, line, i);
    let here = b.broadcast(here, &narrow);
    let found = b.select(here, place, found);
    let taken = b.compare(CompareOp::Eq, keys, everywhere);
    let none = full(b, i64::MAX, DType::I64, &shape);
    (b.select(taken, none, keys), found)
}

fn occurrence(b: &mut Builder<'_>, x: ValueId) -> ValueId {
    let shape = b.ty(x).shape().to_vec();
    let count: u32 = shape.iter().product();
    let line = [count];
    let x = b.reshape(x, &line);
    let key = ordered(b, x, false);
    let order = places_by(b, key);
    let sorted = b.take(key, order, 0);
    let place = b.iota(DType::I32, &line);
    let before = with(b, BinaryOp::Sub, place, 1);
    let left = b.take(sorted, before, 0);
    let differs = b.compare(CompareOp::Ne, sorted, left);
    let zero = full(b, 0, DType::I32, &line);
    let first = b.compare(CompareOp::Eq, place, zero);
    let starts = b.binary(BinaryOp::Or, differs, first);
    let start = b.select(starts, place, zero);
    let start = b.scan(ScanOp::Max, start, 0);
    let number = b.binary(BinaryOp::Sub, place, start);
    // Back to where they came from.
    let origin = b.cast(order, DType::I64);
    let high = with(b, BinaryOp::Shl, origin, 32);
    let number = b.cast(number, DType::I64);
    let keys = b.binary(BinaryOp::Or, high, number);
    let back = b.sort(vec![keys], false)[0];
    let number = low(b, back);
    b.reshape(number, &shape)
}

/// One product for each index of the leading dimensions.
fn batched(b: &mut Builder<'_>, x: ValueId, y: ValueId, acc: ValueId) -> ValueId {
    let shape = b.ty(acc).shape().to_vec();
    let rank = shape.len();
    let batches: u32 = shape[..rank - 2].iter().product();
    let flat = |b: &mut Builder<'_>, v: ValueId| {
        let own = b.ty(v).shape().to_vec();
        b.reshape(v, &[batches, own[rank - 2], own[rank - 1]])
    };
    let all = [x, y, acc].map(|v| flat(b, v));
    let (m, n) = (shape[rank - 2], shape[rank - 1]);
    let mut joined: Option<ValueId> = None;
    for batch in 0..batches {
        let [x, y, acc] = all.map(|v| {
            let own = b.ty(v).shape().to_vec();
            let part = b.slice(v, vec![batch, 0, 0], &[1, own[1], own[2]]);
            b.reshape(part, &own[1..])
        });
        let product = b.dot(x, y, acc);
        let product = b.reshape(product, &[1, m, n]);
        joined = Some(match joined {
            None => product,
            Some(before) => b.concat(before, product, 0),
        });
    }
    match joined {
        Some(joined) => b.reshape(joined, &shape),
        None => acc,
    }
}
