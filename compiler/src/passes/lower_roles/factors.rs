//! Left factors in registers, which a product reads while it flies: whether the next iteration of a loop would write them meanwhile.

use super::{
    body::{Bound, Lower},
    rings,
};
use crate::ir::{
    RegionId, ValueId,
    tile::{OpKind, RoleOp},
};

impl Lower<'_> {
    /// Whether a product in the region has a left factor in registers that the next iteration makes anew without waiting for a product first.
    pub(super) fn makes_factors(&self, region: RegionId) -> bool {
        let mut ops = Vec::new();
        rings::inside(self.from, region, &mut ops);
        let made = |value: ValueId| {
            self.from
                .defining_op(value)
                .is_some_and(|id| ops.contains(&id))
        };
        ops.iter().any(|&id| {
            let op = &self.from.ops[id];
            let in_registers = |v: &ValueId| !matches!(self.bound.get(v), Some(Bound::Slot(_)));
            matches!(op.kind, OpKind::Role(RoleOp::Mma))
                && op.operands.first().is_some_and(|left| {
                    in_registers(left) && made(*left) && !self.is_of_products(*left)
                })
        })
    }

    /// Whether a value comes from a product's result: then the product before it has been waited for as well.
    fn is_of_products(&self, value: ValueId) -> bool {
        let mut seen = Vec::new();
        let mut next = vec![value];
        while let Some(value) = next.pop() {
            let Some(id) = self.from.defining_op(value) else {
                continue;
            };
            if seen.contains(&id) {
                continue;
            }
            seen.push(id);
            let op = &self.from.ops[id];
            if matches!(op.kind, OpKind::Role(RoleOp::Await { .. } | RoleOp::Mma)) {
                return true;
            }
            next.extend(&op.operands);
        }
        false
    }
}
