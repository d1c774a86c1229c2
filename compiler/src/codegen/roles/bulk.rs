//! Bulk copies through tensor maps, between views and slots: one thread of a role begins them.

use crate::{
    codegen::{
        builder::{Effect, I16, Val},
        lower::Lower,
        ptx_table,
    },
    diagnostics::Diagnostic,
    ir::{
        Op,
        role::{ChannelId, MapId, OpKind},
    },
    target::legality::Instruction,
};

impl Lower<'_> {
    pub(in crate::codegen) fn copy_bulk(
        &mut self,
        op: &Op<OpKind>,
        (channel, tile, offset): (ChannelId, u32, u32),
        map: MapId,
        multicast: bool,
    ) -> Result<(), Diagnostic> {
        self.need(Instruction::BulkTensor)?;
        let slot = op.operands[0];
        let to = self.slot_address(channel, tile, slot, offset);
        let barrier = self.ring_barrier(channel, slot, false);
        let mut args = vec![to, self.tensor_map(map)];
        args.extend(op.operands[1..].iter().map(|&v| self.scalar(v)));
        args.push(barrier);
        args.push(self.in_role().leader);
        let dims = op.operands.len() - 1;
        let cluster = self.kernel.header.cluster();
        let multicast = multicast && cluster > 1;
        if multicast {
            args.push(Val::int((1 << cluster) - 1, I16));
        }
        let t = ptx_table::copy_bulk(dims, multicast);
        self.b
            .asm(&t.text, &t.constraints, &[], &args, Effect::Convergent);
        Ok(())
    }

    pub(in crate::codegen) fn store_bulk(
        &mut self,
        op: &Op<OpKind>,
        (channel, tile, offset): (ChannelId, u32, u32),
        map: MapId,
    ) -> Result<(), Diagnostic> {
        self.need(Instruction::BulkTensor)?;
        let from = self.slot_address(channel, tile, op.operands[0], offset);
        let mut args = vec![self.tensor_map(map)];
        args.extend(op.operands[1..].iter().map(|&v| self.scalar(v)));
        args.push(from);
        args.push(self.in_role().leader);
        let t = ptx_table::store_bulk(op.operands.len() - 1);
        self.b
            .asm(&t.text, &t.constraints, &[], &args, Effect::Convergent);
        Ok(())
    }

    pub(in crate::codegen) fn wait_stores(
        &mut self,
        pending: u32,
        read: bool,
    ) -> Result<(), Diagnostic> {
        self.need(Instruction::BulkTensor)?;
        let t = ptx_table::wait_stores(pending, read);
        self.b
            .asm(&t.text, &t.constraints, &[], &[], Effect::Convergent);
        Ok(())
    }
}
