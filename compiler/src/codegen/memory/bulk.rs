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
        tile::Cache,
    },
    layout::swizzle::CHUNK,
    target::legality::Instruction,
};

impl Lower<'_> {
    pub(in crate::codegen) fn copy_bulk(
        &mut self,
        op: &Op<OpKind>,
        (channel, tile, offset): (ChannelId, u32, u32),
        map: MapId,
        multicast: bool,
        cache: Cache,
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
        let t = ptx_table::copy_bulk(dims, multicast, cache);
        self.b
            .asm(&t.text, &t.constraints, &[], &args, Effect::Convergent);
        Ok(())
    }

    /// Each row of each panel is whole pieces of 16 bytes, in whatever order the swizzle puts them: a warp's lanes take one piece each, and go on
    /// by as many rows as the role has pieces for.
    pub(in crate::codegen) fn clear_rows(
        &mut self,
        op: &Op<OpKind>,
        channel: ChannelId,
        tile: u32,
    ) -> Result<(), Diagnostic> {
        let layout = self.kernel.channels[channel].tiles[tile as usize].layout;
        let base = self.slot_address(channel, tile, op.operands[0], 0);
        let [begin, end] = [1, 2].map(|i| self.scalar(op.operands[i]));
        let pieces = layout.pitch / CHUNK;
        let of_rows = match pieces.is_power_of_two() {
            true => pieces.min(self.threads),
            false => 1,
        };
        let rows = self.threads / of_rows;
        let thread = self.thread;
        let first = self.b.lshr(thread, of_rows.trailing_zeros());
        let row = self.b.add(begin, first);
        let piece = self.b.and(thread, Val::i32(of_rows - 1));
        let down = self.b.mul(row, Val::i32(layout.pitch));
        let along = self.b.mul(piece, Val::i32(CHUNK));
        let at = self.b.add(base, down);
        let at = self.b.add(at, along);
        for number in 0..pieces / of_rows {
            let at = self.b.add(at, Val::i32(number * of_rows * CHUNK));
            let t = ptx_table::clear_rows(layout.panels, layout.panel_bytes());
            let steps = [rows, rows * layout.pitch].map(Val::i32);
            let args = [at, row, end, steps[0], steps[1]];
            self.b
                .asm(&t.text, &t.constraints, &[], &args, Effect::Memory);
        }
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
