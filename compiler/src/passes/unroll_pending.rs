//! Loops that hand a product in flight to their next iteration run two iterations at a time.
//!
//! A product in flight owns its accumulators: they cannot be moved before it is over. Where a loop begins a fresh product and carries it
//! while the one carried so far is awaited, two sets of accumulators take turns, and the value at the loop's head would change its registers
//! each time. With two iterations written out each set keeps its place. An odd iteration at the end leaves the product in the other set, and
//! a loop without iterations in that of its beginning, so what follows until all such products are over is written for each case.
//!
//! ```text
//! for { body }  rest    ──▶    if some { for { body body }  if odd { body rest } else { rest } }
//!                              else {                       if odd { body rest } else { rest } }
//! ```
//!
//! Invariants: the same operations run in the same order; only values that are over meet behind the `if`s. A loop for which that cannot be
//! said (its product leaves the region, or the slot of a later `get` does) stays as it is. Only kernels of the role level have products in
//! flight; others are not touched.

use std::collections::{HashMap, HashSet};

use tesserine_set::DType;

use super::lower_roles;
use crate::ir::{
    OpId, RegionId, ValueId,
    tile::{
        BinaryOp, Builder, CompareOp, Constant, Kernel, OpKind, RoleOp, TileBody, Type, ViewType,
    },
};
use crate::span::Span;

pub fn run(kernel: &mut Kernel) {
    if lower_roles::roles_of(kernel).is_none() {
        return;
    }
    let mut unroll = Unroll {
        from: &kernel.body,
        to: TileBody::new(),
        map: HashMap::new(),
    };
    let root = unroll.to.root;
    unroll.region(kernel.body.root, root);
    kernel.body = unroll.to;
}

struct Unroll<'a> {
    from: &'a TileBody,
    to: TileBody,
    /// From values of `from` to those of `to`, as of the copy that is being written.
    map: HashMap<ValueId, ValueId>,
}

impl Unroll<'_> {
    fn region(&mut self, region: RegionId, into: RegionId) {
        for &arg in &self.from.regions[region].args {
            let new = self.to.add_argument(into, self.from.ty(arg).clone());
            self.map.insert(arg, new);
        }
        self.list(&self.from.regions[region].ops, into);
    }

    fn list(&mut self, ops: &[OpId], into: RegionId) {
        let mut ops = ops;
        while let Some((&id, after)) = ops.split_first() {
            ops = after;
            match self.in_flight_until(id, after) {
                Some(count) => {
                    let (rest, later) = after.split_at(count);
                    self.by_twos(id, rest, later, into);
                    ops = later;
                }
                None => self.copy(id, into),
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

    /// Of a loop whose carried products take turns with fresh ones: how many of the operations that follow it there are until those it
    /// leaves are over. `None` for all else.
    fn in_flight_until(&self, id: OpId, after: &[OpId]) -> Option<usize> {
        let op = &self.from.ops[id];
        if !matches!(op.kind, OpKind::For { .. }) {
            return None;
        }
        let region = &self.from.regions[op.regions[0]];
        let yielded = &self.from.ops[*region.ops.last()?].operands;
        let carried = region.args[1..].iter().zip(yielded).zip(&op.results);
        let mut flying: HashSet<ValueId> = carried
            .filter(|((arg, end), _)| self.takes_turns(**arg, **end))
            .map(|(_, &result)| result)
            .collect();
        if flying.is_empty() {
            return None;
        }
        let mut count = 0;
        for (i, &id) in after.iter().enumerate() {
            if !self.uses(id, &flying) {
                continue;
            }
            let op = &self.from.ops[id];
            if matches!(op.kind, OpKind::Yield | OpKind::Return) {
                return None;
            }
            let results = op.results.iter().copied();
            flying.extend(results.filter(|&r| self.is_pending(r)));
            count = i + 1;
        }
        // Further, to where the fewest registers meet.
        let size = |v: &ValueId| match self.from.ty(*v) {
            Type::Tile(tile) => tile.shape.iter().map(|&d| u64::from(d)).product(),
            _ => 1u64,
        };
        let count = (count..after.len()).min_by_key(|&count| {
            let (rest, later) = after.split_at(count);
            self.live(id, rest, later).iter().map(size).sum::<u64>()
        })?;
        let (rest, later) = after.split_at(count);
        let is_slot = |&v: &ValueId| {
            let from = self.from.defining_op(v).map(|op| &self.from.ops[op].kind);
            matches!(
                from,
                Some(OpKind::Role(RoleOp::Get { .. }) | OpKind::Permute(_))
            ) || matches!(
                self.from.ty(v),
                Type::View(ViewType { .. }) | Type::Pending(_)
            )
        };
        match self.live(id, rest, later).iter().any(is_slot) {
            true => None,
            false => Some(count),
        }
    }

    fn is_pending(&self, value: ValueId) -> bool {
        matches!(self.from.ty(value), Type::Pending(_))
    }

    /// Whether the loop ends an iteration with a product of its own that does not add to the one it began with.
    fn takes_turns(&self, arg: ValueId, end: ValueId) -> bool {
        if !self.is_pending(arg) {
            return false;
        }
        let mut value = end;
        while let Some(id) = self.from.defining_op(value) {
            let op = &self.from.ops[id];
            match (&op.kind, op.operands.get(2)) {
                (OpKind::Role(RoleOp::Mma), Some(&acc)) if self.is_pending(acc) => value = acc,
                (OpKind::Role(RoleOp::Mma), _) => return true,
                _ => return false,
            }
        }
        false
    }

    /// Whether an operation, or one inside it, uses one of `values`.
    fn uses(&self, id: OpId, values: &HashSet<ValueId>) -> bool {
        let op = &self.from.ops[id];
        op.operands.iter().any(|v| values.contains(v))
            || op.regions.iter().any(|&region| {
                let inner = &self.from.regions[region].ops;
                inner.iter().any(|&id| self.uses(id, values))
            })
    }

    /// What the loop and the operations `rest` define that `later` ones use.
    fn live(&self, id: OpId, rest: &[OpId], later: &[OpId]) -> Vec<ValueId> {
        let made = std::iter::once(&id).chain(rest);
        made.flat_map(|&id| &self.from.ops[id].results)
            .copied()
            .filter(|&v| later.iter().any(|&id| self.uses(id, &HashSet::from([v]))))
            .collect()
    }

    /// An iteration, but for its terminator: what it yields.
    fn iteration(
        &mut self,
        region: RegionId,
        index: ValueId,
        carried: &[ValueId],
        into: RegionId,
    ) -> Vec<ValueId> {
        let region = &self.from.regions[region];
        let values = std::iter::once(&index).chain(carried);
        self.map
            .extend(region.args.iter().copied().zip(values.copied()));
        let Some((&last, ops)) = region.ops.split_last() else {
            return Vec::new();
        };
        self.list(ops, into);
        let yielded = &self.from.ops[last].operands;
        yielded.iter().map(|v| self.map[v]).collect()
    }

    fn by_twos(&mut self, id: OpId, rest: &[OpId], later: &[OpId], into: RegionId) {
        let op = &self.from.ops[id];
        let span = op.span;
        let operands: Vec<ValueId> = op.operands.iter().map(|v| self.map[v]).collect();
        let rev = matches!(op.kind, OpKind::For { rev: true, .. });
        let count = Counted::new(&mut self.to, into, &operands, rev, span);
        let left = Left {
            id,
            rest,
            live: self.live(id, rest, later),
            count,
        };
        let [some, none] = [(); 2].map(|()| self.to.new_region());
        let finals = self.pairs(&left, &operands[3..], some);
        for (side, finals) in [(some, &finals[..]), (none, &operands[3..])] {
            let met = self.last(&left, finals, side);
            builder(&mut self.to, side, span).yield_(met);
        }
        let met = self.either(&left, left.count.enters, [some, none], into);
        self.map.extend(left.live.iter().copied().zip(met));
    }

    /// The loop over pairs of iterations: what it carries at its end.
    fn pairs(&mut self, left: &Left<'_>, inits: &[ValueId], into: RegionId) -> Vec<ValueId> {
        let op = &self.from.ops[left.id];
        let OpKind::For { label, .. } = &op.kind else {
            unreachable!("only loops are unrolled");
        };
        let (body, span, count) = (op.regions[0], op.span, &left.count);
        let pair = self.to.new_region();
        let index = self.to.add_argument(pair, Type::Scalar(count.elem));
        let carried: Vec<ValueId> = inits
            .iter()
            .map(|&v| {
                let ty = self.to.ty(v).clone();
                self.to.add_argument(pair, ty)
            })
            .collect();
        let first = count.nth(&mut self.to, pair, index, span);
        let values = self.iteration(body, first, &carried, pair);
        let next = count.after(&mut self.to, pair, index, span);
        let second = count.nth(&mut self.to, pair, next, span);
        let values = self.iteration(body, second, &values, pair);
        builder(&mut self.to, pair, span).yield_(values);
        let mut b = builder(&mut self.to, into, span);
        let twos = b.for_(label.clone(), false, count.pairs, inits, pair);
        self.to.ops[twos].results.clone()
    }

    /// The iteration that is left over, if there is one, and what follows.
    fn last(&mut self, left: &Left<'_>, finals: &[ValueId], into: RegionId) -> Vec<ValueId> {
        let op = &self.from.ops[left.id];
        let sides = [true, false].map(|odd| {
            let side = self.to.new_region();
            let values = match odd {
                true => {
                    let last = left.count.last(&mut self.to, side, op.span);
                    self.iteration(op.regions[0], last, finals, side)
                }
                false => finals.to_vec(),
            };
            self.map.extend(op.results.iter().copied().zip(values));
            self.list(left.rest, side);
            let values = left.live.iter().map(|v| self.map[v]).collect();
            builder(&mut self.to, side, op.span).yield_(values);
            side
        });
        self.either(left, left.count.odd, sides, into)
    }

    /// What is live behind two cases.
    fn either(
        &mut self,
        left: &Left<'_>,
        cond: ValueId,
        [then, otherwise]: [RegionId; 2],
        into: RegionId,
    ) -> Vec<ValueId> {
        let types = left.live.iter().map(|&v| self.from.ty(v).clone()).collect();
        let mut b = builder(&mut self.to, into, self.from.ops[left.id].span);
        let met = b.if_(cond, types, then, otherwise);
        self.to.ops[met].results.clone()
    }
}

/// A loop that is unrolled, and what is written for each of its ends.
struct Left<'a> {
    id: OpId,
    /// The operations behind it until its products are over.
    rest: &'a [OpId],
    /// What these and the loop define, and others use.
    live: Vec<ValueId>,
    count: Counted,
}

fn builder(body: &mut TileBody, region: RegionId, span: Span) -> Builder<'_> {
    Builder { body, region, span }
}

/// How a loop's iterations are counted by twos.
struct Counted {
    elem: DType,
    rev: bool,
    lo: ValueId,
    step: ValueId,
    /// Iterations of the loop, at least 0.
    trips: ValueId,
    /// Whether there is a pair of them.
    enters: ValueId,
    /// Whether one is left over.
    odd: ValueId,
    /// Bounds of the loop over pairs. It counts the loop's own indices, or where that runs backwards its iterations.
    pairs: [ValueId; 3],
}

impl Counted {
    fn new(
        body: &mut TileBody,
        into: RegionId,
        bounds: &[ValueId],
        rev: bool,
        span: Span,
    ) -> Counted {
        let mut b = builder(body, into, span);
        let [lo, hi, step] = [bounds[0], bounds[1], bounds[2]];
        let elem = b.ty(lo).elem();
        let [zero, one, two] = [0, 1, 2].map(|n| b.constant(Constant::Int(n, elem)));
        let distance = b.binary(BinaryOp::Sub, hi, lo);
        let distance = b.binary(BinaryOp::Max, distance, zero);
        let up = b.binary(BinaryOp::Sub, step, one);
        let up = b.binary(BinaryOp::Add, distance, up);
        let trips = b.binary(BinaryOp::Div, up, step);
        let odd = b.binary(BinaryOp::Rem, trips, two);
        let odd = b.compare(CompareOp::Eq, odd, one);
        let pairs = match rev {
            false => {
                let end = b.binary(BinaryOp::Sub, hi, step);
                [lo, end, b.binary(BinaryOp::Mul, step, two)]
            }
            true => [zero, b.binary(BinaryOp::Sub, trips, one), two],
        };
        let enters = b.compare(CompareOp::Lt, pairs[0], pairs[1]);
        Counted {
            elem,
            rev,
            lo,
            step,
            trips,
            enters,
            odd,
            pairs,
        }
    }

    /// The loop's index where that over pairs stands at `at`.
    fn nth(&self, body: &mut TileBody, into: RegionId, at: ValueId, span: Span) -> ValueId {
        if !self.rev {
            return at;
        }
        let mut b = builder(body, into, span);
        let one = b.constant(Constant::Int(1, self.elem));
        let last = b.binary(BinaryOp::Sub, self.trips, one);
        let left = b.binary(BinaryOp::Sub, last, at);
        let distance = b.binary(BinaryOp::Mul, left, self.step);
        b.binary(BinaryOp::Add, self.lo, distance)
    }

    /// The second of a pair whose first is `at`.
    fn after(&self, body: &mut TileBody, into: RegionId, at: ValueId, span: Span) -> ValueId {
        let mut b = builder(body, into, span);
        let distance = match self.rev {
            false => self.step,
            true => b.constant(Constant::Int(1, self.elem)),
        };
        b.binary(BinaryOp::Add, at, distance)
    }

    /// The index of the last iteration.
    fn last(&self, body: &mut TileBody, into: RegionId, span: Span) -> ValueId {
        if self.rev {
            return self.lo;
        }
        let mut b = builder(body, into, span);
        let one = b.constant(Constant::Int(1, self.elem));
        let before = b.binary(BinaryOp::Sub, self.trips, one);
        let distance = b.binary(BinaryOp::Mul, before, self.step);
        b.binary(BinaryOp::Add, self.lo, distance)
    }
}
