//! Sums of rows that a loop carries are kept in parts, which are added up behind it.
//!
//! The lanes of a warp that share a row of a product's result would add up what they have in each iteration, though nothing needs the sum
//! before the last one: the sum of a row is carried as one for each place that a lane has, every fourth pair of columns.
//!
//! ```text
//! for { l = l * r + sum(p) }  ──▶  parts = l, 0, 0, 0; for { parts = parts * r + sums(p) }; l = sum(parts)
//! ```
//!
//! Invariants: only the order of floating sums changes, which the language leaves open. Only kernels of the role level are touched, whose
//! rows lie so.

use std::collections::HashMap;

use tesserine_set::DType;

use super::lower_roles;
use crate::{
    ir::{
        OpId, RegionId, ValueId,
        tile::{BinaryOp, Builder, CompareOp, Constant, Kernel, OpKind, ReduceOp, TileBody, Type},
    },
    span::Span,
};

/// Lanes that share a row, and neighbouring columns that a lane has of it.
const LANES: u32 = 4;
const COLUMNS: u32 = 2;

pub fn run(kernel: &mut Kernel) {
    if lower_roles::roles_of(kernel).is_none() {
        return;
    }
    let mut pass = SumsApart {
        from: &kernel.body,
        uses: uses(&kernel.body),
        to: TileBody::new(),
        map: HashMap::new(),
    };
    let root = pass.to.root;
    pass.region(kernel.body.root, root);
    kernel.body = pass.to;
}

fn uses(body: &TileBody) -> HashMap<ValueId, Vec<OpId>> {
    let mut uses: HashMap<ValueId, Vec<OpId>> = HashMap::new();
    for (id, op) in body.ops.iter() {
        for &operand in &op.operands {
            uses.entry(operand).or_default().push(id);
        }
    }
    uses
}

struct SumsApart<'a> {
    from: &'a TileBody,
    uses: HashMap<ValueId, Vec<OpId>>,
    to: TileBody,
    map: HashMap<ValueId, ValueId>,
}

/// A sum of rows that a loop carries.
struct Sum {
    /// Its place among what the loop carries.
    at: usize,
    /// What adds a row to it, and what that row is the sum of.
    add: OpId,
    of: ValueId,
    reduce: OpId,
    /// What it is multiplied by before, and where.
    factor: Option<(OpId, ValueId)>,
}

impl SumsApart<'_> {
    fn region(&mut self, region: RegionId, into: RegionId) {
        for &arg in &self.from.regions[region].args {
            let new = self.to.add_argument(into, self.from.ty(arg).clone());
            self.map.insert(arg, new);
        }
        for &id in &self.from.regions[region].ops {
            let sums = self.sums(id);
            match sums.is_empty() {
                true => self.copy(id, into),
                false => self.apart(id, &sums, into),
            }
        }
    }

    fn copy(&mut self, id: OpId, into: RegionId) {
        let regions = &self.from.ops[id].regions;
        let regions = regions
            .iter()
            .map(|&inner| {
                let new = self.to.new_region();
                self.region(inner, new);
                new
            })
            .collect();
        self.to
            .append_copy(into, self.from, id, regions, &mut self.map);
    }

    /// The loop, its sums carried in parts.
    fn apart(&mut self, id: OpId, sums: &[Sum], into: RegionId) {
        let op = &self.from.ops[id];
        let mut operands: Vec<ValueId> = op.operands.iter().map(|v| self.map[v]).collect();
        for sum in sums {
            let whole = operands[3 + sum.at];
            operands[3 + sum.at] = parts(&mut self.to, into, whole, op.span);
        }
        let region = self.to.new_region();
        let args = &self.from.regions[op.regions[0]].args;
        for (i, &arg) in args.iter().enumerate() {
            let carried = sums.iter().find(|s| s.at + 1 == i);
            let ty = self.from.ty(arg).clone();
            let ty = carried.map_or(ty.clone(), |_| of_parts(&ty));
            let new = self.to.add_argument(region, ty);
            self.map.insert(arg, new);
        }
        for &inner in &self.from.regions[op.regions[0]].ops {
            let is = |s: &&Sum| s.reduce == inner || s.factor.is_some_and(|(mul, _)| mul == inner);
            if sums.iter().any(|s| is(&s)) {
                continue;
            }
            match sums.iter().find(|s| s.add == inner) {
                Some(sum) => self.add(sum, args[sum.at + 1], region),
                None => {
                    let nested = self.sums(inner);
                    match nested.is_empty() {
                        true => self.copy(inner, region),
                        false => self.apart(inner, &nested, region),
                    }
                }
            }
        }
        let types = operands[3..]
            .iter()
            .map(|&v| self.to.ty(v).clone())
            .collect();
        let new = self.to.append(
            into,
            op.kind.clone(),
            operands,
            types,
            vec![region],
            op.span,
        );
        let results = self.to.ops[new].results.clone();
        self.map.extend(op.results.iter().copied().zip(results));
        for sum in sums {
            let result = op.results[sum.at];
            let apart = self.map[&result];
            let mut b = builder(&mut self.to, into, op.span);
            let whole = b.reduce(ReduceOp::Sum, apart, Some(1));
            self.map.insert(result, whole);
        }
    }

    /// The parts of one more row are added to those that are carried.
    fn add(&mut self, sum: &Sum, carried: ValueId, into: RegionId) {
        let span = self.from.ops[sum.add].span;
        let [m, n] = self.from.ty(sum.of).shape()[..] else {
            unreachable!("`sums` takes matrices");
        };
        let (mut carried, of) = (self.map[&carried], self.map[&sum.of]);
        let factor = sum.factor.map(|(_, factor)| self.map[&factor]);
        let mut b = builder(&mut self.to, into, span);
        if let Some(factor) = factor {
            let factor = b.reshape(factor, &[m, 1]);
            let factor = b.broadcast(factor, &[m, LANES]);
            carried = b.binary(BinaryOp::Mul, carried, factor);
        }
        let pairs = b.reshape(of, &[m, n / (LANES * COLUMNS), LANES, COLUMNS]);
        let row = b.reduce(ReduceOp::Sum, pairs, Some(3));
        let row = b.reduce(ReduceOp::Sum, row, Some(1));
        let new = b.binary(BinaryOp::Add, carried, row);
        self.map.insert(self.from.ops[sum.add].results[0], new);
    }

    /// The sums of rows that a loop carries and nothing in it looks at.
    fn sums(&self, id: OpId) -> Vec<Sum> {
        let op = &self.from.ops[id];
        if !matches!(op.kind, OpKind::For { .. }) {
            return Vec::new();
        }
        let region = &self.from.regions[op.regions[0]];
        let Some(&end) = region.ops.last() else {
            return Vec::new();
        };
        let carried = region.args[1..].iter().zip(&self.from.ops[end].operands);
        let sum = |(at, (&arg, &end)): (usize, (&ValueId, &ValueId))| {
            let is_row = |v| matches!(self.from.ty(v), Type::Tile(t) if t.shape.len() == 1 && t.elem == DType::F32);
            let add = self.single(end, region.ops.as_slice())?;
            let (OpKind::Binary(BinaryOp::Add), &[a, b]) = self.def(add) else {
                return None;
            };
            if !is_row(arg) {
                return None;
            }
            [(a, b), (b, a)].into_iter().find_map(|(old, row)| {
                let reduce = self.single(row, region.ops.as_slice())?;
                let (
                    OpKind::Reduce {
                        op: ReduceOp::Sum,
                        axis: Some(1),
                    },
                    &[of],
                ) = self.def(reduce)
                else {
                    return None;
                };
                let fits = matches!(self.from.ty(of), Type::Tile(t) if t.elem == DType::F32
                    && t.shape.len() == 2 && t.shape[1].is_multiple_of(LANES * COLUMNS));
                let factor = match old == arg {
                    true => None,
                    false => {
                        let mul = self.single(old, region.ops.as_slice())?;
                        let (OpKind::Binary(BinaryOp::Mul), &[x, y]) = self.def(mul) else {
                            return None;
                        };
                        let factor = [(x, y), (y, x)].into_iter().find(|(x, _)| *x == arg);
                        Some((mul, factor?.1))
                    }
                };
                let own = self.uses.get(&arg).map_or(0, Vec::len) == 1;
                (fits && own).then_some(Sum {
                    at,
                    add,
                    of,
                    reduce,
                    factor,
                })
            })
        };
        carried.enumerate().filter_map(sum).collect()
    }

    fn def(&self, id: OpId) -> (&OpKind, &[ValueId]) {
        let op = &self.from.ops[id];
        (&op.kind, &op.operands)
    }

    /// The operation among `ops` whose result the value is, if it is used but once.
    fn single(&self, value: ValueId, ops: &[OpId]) -> Option<OpId> {
        let id = self.from.defining_op(value)?;
        let once = self.uses.get(&value).map_or(0, Vec::len) == 1;
        (once && ops.contains(&id)).then_some(id)
    }
}

fn builder(body: &mut TileBody, region: RegionId, span: Span) -> Builder<'_> {
    Builder { body, region, span }
}

fn of_parts(ty: &Type) -> Type {
    let mut ty = ty.clone();
    if let Type::Tile(tile) = &mut ty {
        tile.shape.push(LANES);
    }
    ty
}

/// A row sum as parts: the first is all of it.
fn parts(body: &mut TileBody, into: RegionId, whole: ValueId, span: Span) -> ValueId {
    let m = body.ty(whole).shape()[0];
    let mut b = builder(body, into, span);
    let whole = b.reshape(whole, &[m, 1]);
    let whole = b.broadcast(whole, &[m, LANES]);
    let at = b.iota(DType::I32, &[1, LANES]);
    let at = b.broadcast(at, &[m, LANES]);
    let zero = b.constant(Constant::Int(0, DType::I32));
    let zero = b.broadcast(zero, &[m, LANES]);
    let first = b.compare(CompareOp::Eq, at, zero);
    let none = b.float(0.0, DType::F32);
    let none = b.broadcast(none, &[m, LANES]);
    b.select(first, whole, none)
}
