//! Left factors in registers, which a product reads while it flies: others may come to lie there where control meets.

use super::body::Lower;
use crate::ir::{
    ValueId,
    tile::{OpKind, RoleOp},
};

impl Lower<'_> {
    /// Waits for products that read a factor from registers which the next iteration, or another branch, may write.
    pub(super) fn finish_factors(&mut self) {
        if let Some(&youngest) = self.state.from_registers.iter().min() {
            self.settle(youngest);
        }
    }

    /// Whether a value comes from a product's result: then the product before it has been waited for as well.
    pub(super) fn is_of_products(&self, value: ValueId) -> bool {
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
