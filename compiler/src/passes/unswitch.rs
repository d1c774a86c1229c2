//! A loop in which something is chosen that no iteration changes is written once for each choice.
//!
//! The maximum of scores that are multiplied by the launch's scale is the largest or the smallest of them, as the scale's sign says. A branch
//! for that in the loop parts its code in two, and what lies on one side cannot be ordered among what lies on the other: the exponentials of a
//! row wait for the maxima of all rows.
//!
//! ```text
//! for { a  if c { x } else { y }  b }  ──▶  if c { for { a x b } } else { for { a y b } }
//! ```
//!
//! Invariants: the same operations run in the same order. Only kernels of the role level are touched; only choices between an operation or
//! two are taken out, once a loop, since the price is the loop's code; and only loops of which no product in flight and no slot is carried,
//! since these cannot come out of a branch.

use std::collections::{HashMap, HashSet};

use super::lower_roles;
use crate::ir::{
    OpId, RegionId, ValueId,
    tile::{Kernel, OpKind, TileBody, Type},
};

/// Operations of an arm beside its `yield`.
const SMALL: usize = 2;

pub fn run(kernel: &mut Kernel) {
    if lower_roles::roles_of(kernel).is_none() {
        return;
    }
    let mut unswitch = Unswitch {
        from: &kernel.body,
        to: TileBody::new(),
        map: HashMap::new(),
        taken: None,
    };
    let root = unswitch.to.root;
    unswitch.region(kernel.body.root, root);
    kernel.body = unswitch.to;
}

struct Unswitch<'a> {
    from: &'a TileBody,
    to: TileBody,
    /// From values of `from` to those of `to`, as of the copy that is being written.
    map: HashMap<ValueId, ValueId>,
    /// The choice that is out of the loop being written, and the arm it is written for.
    taken: Option<(OpId, usize)>,
}

impl Unswitch<'_> {
    fn region(&mut self, region: RegionId, into: RegionId) {
        for &arg in &self.from.regions[region].args {
            let new = self.to.add_argument(into, self.from.ty(arg).clone());
            self.map.insert(arg, new);
        }
        for &id in &self.from.regions[region].ops {
            self.operation(id, into);
        }
    }

    fn operation(&mut self, id: OpId, into: RegionId) {
        if let Some((choice, arm)) = self.taken
            && choice == id
        {
            let ops = &self.from.regions[self.from.ops[id].regions[arm]].ops;
            let Some((end, ops)) = ops.split_last() else {
                unreachable!("a region ends with `yield`");
            };
            for &op in ops {
                self.operation(op, into);
            }
            let chosen = &self.from.ops[*end].operands;
            for (&result, value) in self.from.ops[id].results.iter().zip(chosen) {
                self.map.insert(result, self.map[value]);
            }
        } else if let Some(choice) = self.choice_of(id) {
            self.by_choice(id, choice, into);
        } else {
            self.copy(id, into);
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

    /// The loop, written for each arm of the choice in it.
    fn by_choice(&mut self, id: OpId, choice: OpId, into: RegionId) {
        let op = &self.from.ops[id];
        let condition = self.from.ops[choice].operands[0];
        for op in self.made_for(condition, op.regions[0]) {
            self.copy(op, into);
        }
        let condition = self.map[&condition];
        let outer = self.taken;
        let mut arms = Vec::new();
        for arm in 0..2 {
            let region = self.to.new_region();
            self.taken = Some((choice, arm));
            self.copy(id, region);
            let results = op.results.iter().map(|r| self.map[r]).collect();
            self.to.append(
                region,
                OpKind::Yield,
                results,
                Vec::new(),
                Vec::new(),
                op.span,
            );
            arms.push(region);
        }
        self.taken = outer;
        let types = op
            .results
            .iter()
            .map(|&r| self.from.ty(r).clone())
            .collect();
        let chosen = self
            .to
            .append(into, OpKind::If, vec![condition], types, arms, op.span);
        let chosen = &self.to.ops[chosen].results;
        self.map
            .extend(op.results.iter().copied().zip(chosen.iter().copied()));
    }

    /// The choice to be taken out of a loop: none of an operation that is no such loop, or is being written for a choice.
    fn choice_of(&self, id: OpId) -> Option<OpId> {
        let op = &self.from.ops[id];
        if !matches!(op.kind, OpKind::For { .. }) || self.taken.is_some() {
            return None;
        }
        let stays = |v: &ValueId| matches!(self.from.ty(*v), Type::Scalar(_) | Type::Tile(_));
        if !op.results.iter().all(stays) {
            return None;
        }
        let body = &self.from.regions[op.regions[0]].ops;
        body.iter().copied().find(|&inner| {
            let choice = &self.from.ops[inner];
            let small = |&r: &RegionId| self.from.regions[r].ops.len() <= SMALL + 1;
            matches!(choice.kind, OpKind::If)
                && choice.regions.len() == 2
                && choice.regions.iter().all(small)
                && self.is_invariant(choice.operands[0], op.regions[0])
        })
    }

    /// Whether no iteration of the loop with that body changes the scalar.
    fn is_invariant(&self, value: ValueId, body: RegionId) -> bool {
        let Some(id) = self.from.defining_op(value) else {
            return !self.from.regions[body].args.contains(&value);
        };
        if !self.from.regions[body].ops.contains(&id) {
            // Of an outer region: no operation of an inner one is in sight of a choice that stands in the body itself.
            return true;
        }
        let op = &self.from.ops[id];
        is_pure(&op.kind)
            && matches!(self.from.ty(value), Type::Scalar(_))
            && op.operands.iter().all(|&v| self.is_invariant(v, body))
    }

    /// What of the loop's body makes the invariant scalar, in order.
    fn made_for(&self, value: ValueId, body: RegionId) -> Vec<OpId> {
        let mut needed = HashSet::new();
        let mut next = vec![value];
        while let Some(value) = next.pop() {
            if let Some(id) = self.from.defining_op(value)
                && needed.insert(id)
            {
                next.extend(&self.from.ops[id].operands);
            }
        }
        let ops = self.from.regions[body].ops.iter().copied();
        ops.filter(|id| needed.contains(id)).collect()
    }
}

/// Whether the operation gives the same wherever it stands.
fn is_pure(kind: &OpKind) -> bool {
    matches!(
        kind,
        OpKind::Constant(_)
            | OpKind::Param(_)
            | OpKind::Dim(_)
            | OpKind::Unary(_)
            | OpKind::Binary(_)
            | OpKind::Compare(_)
            | OpKind::Select
            | OpKind::Cast
    )
}
