//! Asynchronous copies from views to the slots of channels.
//!
//! Neighbouring lanes copy neighbouring chunks of a row, as [`Channel::copied`](crate::ir::role::Channel::copied) lays them out. What lies outside the view is
//! filled with zeros by copying no bytes of it.

use crate::{
    codegen::{
        access::When,
        builder::{Effect, Val},
        lower::Lower,
        ptx_table,
    },
    diagnostics::Diagnostic,
    ir::{
        Op,
        role::{ChannelId, OpKind, warps_of_layouts},
        tile::Index,
    },
    target::{Target, legality::Instruction},
};

impl Lower<'_> {
    pub fn copy_async(
        &mut self,
        op: &Op<OpKind>,
        channel: ChannelId,
        tile: u32,
        indices: &[Index],
        width: u32,
    ) -> Result<(), Diagnostic> {
        self.need(Instruction::CpAsync)?;
        let [view, starts @ .., slot, live] = &op.operands[..] else {
            unreachable!("the verifier counted the operands")
        };
        let ring = &self.kernel.channels[channel];
        let warps = warps_of_layouts(self.threads / Target::WARP);
        let layout = ring.copied(tile, width, warps);
        let live = self.scalar(*live);
        // Of a row, the view's access has one dimension only.
        let is_row = indices.iter().filter(|i| i.extent().is_some()).count() == 1;
        let row = layout.without_axis(0);
        let seen_as = if is_row { &row } else { &layout };
        let mut plan = self.plan(*view, indices, starts, Some(seen_as), live)?;
        let mut shared = self.shared_plan(channel, tile, *slot, &layout);
        let bytes = width * plan.bits / 8;
        let owner = self.owner(Some(&layout));
        let mut seen = Vec::new();
        for first in (0..layout.registers()).step_by(width as usize) {
            let at = layout.coordinate(first, 0, 0);
            if !layout.contains(&at) || seen.contains(&at) {
                continue;
            }
            let inside = self.thread_inside(&layout, &at);
            let executes = self.b.and(inside, owner);
            let (to, to_offset) = self.shared_place(&mut shared, [at[0], at[1]]);
            let in_view = if is_row { &at[1..] } else { &at[..] };
            let (from, from_offset) = self.address(&mut plan, in_view);
            let size = match self.when(&mut plan, in_view) {
                When::Always => None,
                When::Never => Some(Val::i32(0)),
                When::If(condition) => {
                    let (all, none) = (Val::i32(bytes), Val::i32(0));
                    Some(self.b.select(condition, all, none))
                }
            };
            let guarded = !executes.is_true();
            let template = ptx_table::copy_async(
                bytes,
                to_offset as i64,
                from_offset,
                size.is_some(),
                guarded,
            );
            let mut args = vec![to, from];
            args.extend(size);
            if guarded {
                args.push(executes);
            }
            self.b.asm(
                &template.text,
                &template.constraints,
                &[],
                &args,
                Effect::Memory,
            );
            seen.push(at);
        }
        Ok(())
    }

    pub fn commit_copies(&mut self) -> Result<(), Diagnostic> {
        self.need(Instruction::CpAsync)?;
        self.b
            .call(None, "llvm.nvvm.cp.async.commit.group", &[], Effect::Memory);
        Ok(())
    }

    pub fn wait_copies(&mut self, pending: u32) -> Result<(), Diagnostic> {
        self.need(Instruction::CpAsync)?;
        self.b.call(
            None,
            "llvm.nvvm.cp.async.wait.group",
            &[Val::i32(pending)],
            Effect::Memory,
        );
        Ok(())
    }
}
