//! Sums of products of 8-bit floats, brought to f32 every so many k.
//!
//! The instructions add such products up a little shorter than f32's own; a chain of them is ended every so often and added to the rest in f32.
//! A loop whose products make up less than that becomes two, and a product that makes up more is cut along K:
//!
//! ```text
//! for p in 0..n { acc = dot(a[p], b[p], acc) }
//! ──▶ for q in 0..ceil_div(n, 4) { let part = for p in 4*q..min(4*q + 4, n) from 0 { dot(a[p], b[p], part) }; acc = acc + part }
//! ```
//!
//! Invariant: the same products are added up, the parts in their order.

use std::collections::HashMap;

use tesserine_set::DType;

use super::{Unfit, inside, plan::Around};
use crate::ir::{
    OpId, RegionId, ValueId,
    tile::{BinaryOp, Builder, Constant, Kernel, OpKind, TileBody, Type},
};

pub(super) fn run(kernel: &mut Kernel, every: u32) -> Result<(), Unfit> {
    let body = &kernel.body;
    let around = Around::of(body);
    let mut all = Vec::new();
    inside(body, body.root, &mut all);
    let narrow = |v: ValueId| matches!(body.ty(v).elem(), DType::E4m3 | DType::E5m2);
    let mut chains: HashMap<OpId, Vec<OpId>> = HashMap::new();
    let (mut places, mut steps) = (HashMap::new(), HashMap::new());
    let mut step = None;
    for &id in &all {
        let op = &body.ops[id];
        if op.kind != OpKind::Dot || !narrow(op.operands[0]) {
            continue;
        }
        let Some(place) = around.chained(id) else {
            continue;
        };
        let k = body.ty(op.operands[0]).shape()[1];
        let whole = every.is_multiple_of(k);
        let cut = k.is_multiple_of(every) && every.is_multiple_of(32);
        if !whole && !cut {
            return Err(Unfit {
                span: op.span,
                what: format!(
                    "this product takes {k} of K at a time, and {every} is neither a multiple of it nor a multiple of 32 that divides it"
                ),
            });
        }
        let owner = all.iter().find(|&&o| {
            body.ops[o]
                .regions
                .iter()
                .any(|&r| body.regions[r].ops.contains(&id))
        });
        let Some(&owner) = owner else { continue };
        let Some(by) = constant(body, body.ops[owner].operands[2]) else {
            return Err(Unfit {
                span: body.ops[owner].span,
                what: "the step of this loop is not known".into(),
            });
        };
        steps.insert(owner, by);
        if step.replace(k).is_some_and(|other| other != k) {
            return Err(Unfit {
                span: op.span,
                what: "products of one kernel take different amounts of K".into(),
            });
        }
        chains.entry(owner).or_default().push(id);
        places.insert(id, place);
    }
    let Some(step) = step else {
        return Err(Unfit {
            span: kernel.header.span,
            what: "no loop adds up products of 8-bit floats".into(),
        });
    };
    let mut write = Write {
        from: body,
        to: TileBody::new(),
        chains,
        places,
        steps,
        turns: every / step,
        part: every,
        map: HashMap::new(),
    };
    let root = write.to.root;
    write.region(body.root, root);
    kernel.body = write.to;
    Ok(())
}

fn constant(body: &TileBody, value: ValueId) -> Option<i64> {
    match body.ops[body.defining_op(value)?].kind {
        OpKind::Constant(Constant::Int(value, _)) => Some(value),
        _ => None,
    }
}

struct Write<'a> {
    from: &'a TileBody,
    to: TileBody,
    /// By loop, its products.
    chains: HashMap<OpId, Vec<OpId>>,
    /// By product, the number of what it adds to among what its loop carries.
    places: HashMap<OpId, usize>,
    /// By loop, its step.
    steps: HashMap<OpId, i64>,
    /// Iterations whose products make up a part; at most 1 if one product is a part, or more.
    turns: u32,
    /// The part of K.
    part: u32,
    map: HashMap<ValueId, ValueId>,
}

impl Write<'_> {
    fn region(&mut self, region: RegionId, into: RegionId) {
        let from = self.from;
        for &arg in &from.regions[region].args {
            let new = self.to.add_argument(into, from.ty(arg).clone());
            self.map.insert(arg, new);
        }
        self.list(region, into);
    }

    fn list(&mut self, region: RegionId, into: RegionId) {
        let from = self.from;
        for &id in &from.regions[region].ops {
            if self.turns > 1 && self.chains.contains_key(&id) {
                self.tiled(id, into);
            } else if self.turns <= 1 && self.places.contains_key(&id) {
                self.apart(id, into);
            } else {
                let mut regions = Vec::new();
                for &inner in &from.ops[id].regions {
                    let new = self.to.new_region();
                    self.region(inner, new);
                    regions.push(new);
                }
                self.to.append_copy(into, from, id, regions, &mut self.map);
            }
        }
    }

    fn zeros(builder: &mut Builder<'_>, ty: &Type) -> ValueId {
        let zero = builder.constant(Constant::Float(0.0, ty.elem()));
        builder.broadcast(zero, ty.shape())
    }

    /// A product that is a part, or more: each part is added by itself.
    fn apart(&mut self, id: OpId, into: RegionId) {
        let op = &self.from.ops[id];
        let [a, b, mut acc] = [0, 1, 2].map(|i| self.map[&op.operands[i]]);
        let mut builder = Builder::new(&mut self.to);
        builder.region = into;
        builder.span = op.span;
        let ty = builder.ty(acc).clone();
        let [m, k] = [0, 1].map(|i| builder.ty(a).shape()[i]);
        let n = ty.shape()[1];
        let size = self.part.min(k);
        for at in (0..k).step_by(size as usize) {
            let (left, right) = match size == k {
                true => (a, b),
                false => (
                    builder.slice(a, vec![0, at], &[m, size]),
                    builder.slice(b, vec![at, 0], &[size, n]),
                ),
            };
            let zeros = Self::zeros(&mut builder, &ty);
            let part = builder.dot(left, right, zeros);
            acc = builder.binary(BinaryOp::Add, acc, part);
        }
        self.map.insert(op.results[0], acc);
    }

    /// A loop as one over parts, and one within each.
    fn tiled(&mut self, id: OpId, into: RegionId) {
        let op = &self.from.ops[id];
        let (OpKind::For { label, rev }, inner) = (op.kind.clone(), op.regions[0]) else {
            return;
        };
        let parts: Vec<usize> = self.chains[&id].iter().map(|p| self.places[p]).collect();
        let operands: Vec<ValueId> = op.operands.iter().map(|v| self.map[v]).collect();
        let (outer, region) = (self.to.new_region(), self.to.new_region());
        let mut builder = Builder::new(&mut self.to);
        builder.span = op.span;
        builder.region = into;
        let (lo, hi, step) = (operands[0], operands[1], operands[2]);
        let stride = builder.int(self.steps[&id] * i64::from(self.turns));
        let index = builder.ty(lo).clone();
        // The outer index is where a part begins.
        let begin = builder.body.add_argument(outer, index.clone());
        let carried: Vec<ValueId> = operands[3..]
            .iter()
            .map(|&v| {
                let ty = builder.ty(v).clone();
                builder.body.add_argument(outer, ty)
            })
            .collect();
        builder.region = outer;
        let end = builder.binary(BinaryOp::Add, begin, stride);
        let end = builder.binary(BinaryOp::Min, end, hi);
        let inits: Vec<ValueId> = carried
            .iter()
            .enumerate()
            .map(|(i, &v)| match parts.contains(&i) {
                true => {
                    let ty = builder.ty(v).clone();
                    Self::zeros(&mut builder, &ty)
                }
                false => v,
            })
            .collect();
        self.region(inner, region);
        let mut builder = Builder::new(&mut self.to);
        builder.span = op.span;
        builder.region = outer;
        let turned = builder.for_(label.clone(), rev, [begin, end, step], &inits, region);
        let results = builder.body.ops[turned].results.clone();
        let sums = results
            .iter()
            .enumerate()
            .map(|(i, &v)| match parts.contains(&i) {
                true => builder.binary(BinaryOp::Add, carried[i], v),
                false => v,
            })
            .collect();
        builder.yield_(sums);
        builder.region = into;
        let whole = builder.for_(None, rev, [lo, hi, stride], &operands[3..], outer);
        let new = builder.body.ops[whole].results.clone();
        self.map.extend(op.results.iter().copied().zip(new));
    }
}
