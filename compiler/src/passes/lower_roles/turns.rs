//! `pingpong`: replicas pass one at a time.
//!
//! What stands inside is the role's as if nothing stood around it. Before it the replica waits for its turn, behind it it passes the turn on to
//! the next one; the last passes it to the first, whose turn it is at the beginning.

use super::{Refused, body::Lower, not_yet};
use crate::ir::{
    OpId, role,
    tile::{Constant, OpKind},
};

/// Named barriers of a block.
const BARRIERS: usize = 16;

impl Lower<'_> {
    pub(super) fn in_turn(&mut self, id: OpId) -> Result<(), Refused> {
        let op = &self.from.ops[id];
        let heads = self.role.heads;
        if 2 * heads.len() >= BARRIERS {
            return Err(not_yet(op.span, "turns of so many roles"));
        }
        let own = self.role.head;
        let first = self.role.number - own.replica as usize;
        let replica = |number: u32| first + number as usize;
        let next = replica((own.replica + 1) % own.replicas);
        let before = replica((own.replica + own.replicas - 1) % own.replicas);
        let take = role::OpKind::TakeTurn {
            warps: own.warps + heads[before].warps,
        };
        let pass = role::OpKind::PassTurn {
            to: next as u32,
            warps: own.warps + heads[next].warps,
        };
        let condition = op.operands[0];
        let always = self.from.defining_op(condition).is_some_and(|op| {
            let kind = &self.from.ops[op].kind;
            matches!(kind, OpKind::Constant(Constant::Bool(true)))
        });
        let condition = self.value(condition);
        let where_it_holds = |this: &mut Self, kind: role::OpKind| match always {
            true => this.effect(kind, Vec::new()),
            false => this.only_if(condition, |this| this.effect(kind, Vec::new())),
        };
        where_it_holds(self, take);
        let region = op.regions[0];
        self.ops(region)?;
        let last = self.from.regions[region].ops.last();
        let yielded = last.map_or(&[][..], |&id| &self.from.ops[id].operands);
        for (&result, value) in op.results.iter().zip(yielded) {
            let bound = self.bound[value];
            self.bound.insert(result, bound);
        }
        where_it_holds(self, pass);
        Ok(())
    }
}
