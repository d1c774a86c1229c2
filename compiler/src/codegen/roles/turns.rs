//! Roles that take turns: a named barrier for each, behind those of the roles' own threads.
//!
//! Who waits for its turn meets there with the one that passes it on, who does not wait.

use crate::{
    codegen::{
        builder::{Effect, Val},
        lower::Lower,
    },
    diagnostics::Diagnostic,
    ir::role::{OpKind, Role},
    target::{Target, legality::Instruction},
};

impl Lower<'_> {
    /// The first of all has its turn at once: the last one passes it on before it does anything else.
    pub(super) fn open_turns(&mut self, role: &Role) -> Result<(), Diagnostic> {
        let own = self.in_role().number - 1;
        let passes = |kind: &OpKind| match *kind {
            OpKind::PassTurn { to, warps } if to <= own => Some((to, warps)),
            _ => None,
        };
        match role.body.ops.values().find_map(|op| passes(&op.kind)) {
            Some((to, warps)) => self.pass_turn(to, warps),
            None => Ok(()),
        }
    }

    /// The turn that the last one passes on at its end is taken by the first: no barrier is left half full.
    pub(super) fn close_turns(&mut self) -> Result<(), Diagnostic> {
        let own = self.in_role().number - 1;
        let passes = |kind: &OpKind| match *kind {
            OpKind::PassTurn { to, warps } if to == own => Some(warps),
            _ => None,
        };
        let from_own_on = &self.kernel.roles[own as usize..];
        let mut ops = from_own_on.iter().flat_map(|r| r.body.ops.values());
        match ops.find_map(|op| passes(&op.kind)) {
            Some(warps) => self.take_turn(warps),
            None => Ok(()),
        }
    }

    pub(in crate::codegen) fn take_turn(&mut self, warps: u32) -> Result<(), Diagnostic> {
        let own = self.in_role().number - 1;
        self.meet_at("llvm.nvvm.barrier.cta.sync.aligned.count", own, warps)
    }

    pub(in crate::codegen) fn pass_turn(&mut self, to: u32, warps: u32) -> Result<(), Diagnostic> {
        self.meet_at("llvm.nvvm.barrier.cta.arrive.aligned.count", to, warps)
    }

    fn meet_at(&mut self, how: &'static str, role: u32, warps: u32) -> Result<(), Diagnostic> {
        self.need(Instruction::Barrier)?;
        let barrier = 1 + self.kernel.roles.len() as u32 + role;
        let args = [Val::i32(barrier), Val::i32(warps * Target::WARP)];
        self.b.call(None, how, &args, Effect::Convergent);
        Ok(())
    }
}
