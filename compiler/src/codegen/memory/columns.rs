//! Columns of views: fetched in pieces of 16 bytes of their rows to a stage, and copied from there to slots one by one.

use crate::{
    codegen::{
        builder::{Effect, I32, I64, Val},
        lower::{Lower, view_parameter},
        ptx_table,
    },
    diagnostics::Diagnostic,
    ir::{
        Op, ValueId,
        role::{ChannelId, OpKind, warps_of_layouts},
        tile::Index,
    },
    layout::{copy_layout, swizzle::CHUNK},
    target::{Target, legality::Instruction},
};

impl Lower<'_> {
    pub(in crate::codegen) fn fetch_columns(
        &mut self,
        op: &Op<OpKind>,
        stage: ChannelId,
        indices: &[Index],
    ) -> Result<(), Diagnostic> {
        self.need(Instruction::CpAsync)?;
        let [view, starts @ .., slot] = &op.operands[..] else {
            unreachable!("the verifier counted the operands")
        };
        let tile = &self.kernel.channels[stage].tiles[0];
        let (rows, pitch) = (tile.shape[0], tile.layout.pitch);
        let pieces = tile.shape[1] * tile.elem.bits() / (8 * CHUNK);
        let element = i64::from(tile.elem.bits() / 8);
        let param = view_parameter(self.body, *view);
        let extents = &self.view(param).extents;
        let mut starts = starts.iter();
        let (mut from, mut exists) = (Val::i64(0), Val::bool(true));
        let (mut start, mut stride, mut end) = (Val::i64(0), Val::i64(0), Val::i64(0));
        let mut left = Val::i64(0);
        for (dim, (index, extent)) in indices.iter().zip(extents).enumerate() {
            let at = match starts.next() {
                Some(&at) if index.operands() == 1 => self.scalar(at),
                _ => unreachable!("the verifier looked at the indices"),
            };
            let extent = self.formula(extent);
            let step = self.stride(param, dim as u32);
            let part = self.b.mul(at, step);
            from = self.b.add(from, part);
            if index.extent().is_some() {
                (start, stride, end) = (at, step, extent);
                continue;
            }
            let inside = self.b.icmp("ult", at, extent);
            exists = self.b.and(exists, inside);
            left = self.b.sub(extent, at);
        }
        // Neighbouring threads fetch the pieces of one row.
        let (row, piece) = match pieces.trailing_zeros() {
            0 => (self.thread, Val::i32(0)),
            bits => (
                self.b.lshr(self.thread, bits),
                self.b.and(self.thread, Val::i32(pieces - 1)),
            ),
        };
        let within = self.b.mul(piece, Val::i32(CHUNK));
        // The view's columns may end within a piece.
        let left = self.b.mul(left, Val::i64(element));
        let most = Val::i64(i64::from(CHUNK * pieces));
        let left = self.b.intrinsic("llvm.smin", &[left, most]);
        let left = self.b.resize(left, I32, true);
        let left = self.b.sub(left, within);
        let left = self.b.intrinsic("llvm.smin", &[left, Val::i32(CHUNK)]);
        let left = self.b.intrinsic("llvm.smax", &[left, Val::i32(0)]);
        let size = self.b.select(exists, left, Val::i32(0));
        let wide_row = self.b.cast("zext", row, I64);
        let part = self.b.mul(wide_row, stride);
        from = self.b.add(from, part);
        let bytes = self.b.mul(from, Val::i64(element));
        let wide = self.b.cast("zext", within, I64);
        let bytes = self.b.add(bytes, wide);
        let start_of_view = self.pointer(param);
        let from = self.b.offset(start_of_view, bytes);
        let at = self.b.add(start, wide_row);
        let base = self.stage_base(stage, *slot);
        let part = self.b.mul(row, Val::i32(pitch));
        let to = self.b.add(base, part);
        let to = self.b.add(to, within);
        let start_of_block = self.shared_address(0);
        let to = self.b.add(start_of_block, to);
        let step = self.threads / pieces;
        let stride = self.b.mul(stride, Val::i64(i64::from(step) * element));
        let template = ptx_table::fetch_rows(rows, step, step * pitch);
        self.b.asm(
            &template.text,
            &template.constraints,
            &[],
            &[to, from, row, at, end, size, stride],
            Effect::Memory,
        );
        Ok(())
    }

    pub(in crate::codegen) fn copy_column(
        &mut self,
        op: &Op<OpKind>,
        (channel, tile): (ChannelId, u32),
        stage: ChannelId,
    ) -> Result<(), Diagnostic> {
        let [slot, half, column] = op.operands[..] else {
            unreachable!("the verifier counted the operands")
        };
        let of = &self.kernel.channels[channel].tiles[tile as usize];
        let element = of.elem.bits() / 8;
        let pitch = self.kernel.channels[stage].tiles[0].layout.pitch;
        let warps = warps_of_layouts(self.threads / Target::WARP);
        let layout = copy_layout([1, of.shape[1]], 1, warps);
        let owner = self.owner(Some(&layout));
        let column = self.scalar(column);
        let column = self.b.resize(column, I32, false);
        let column = self.b.mul(column, Val::i32(element));
        let base = self.stage_base(stage, half);
        let base = self.b.add(base, column);
        let own = self.thread_coordinates(&layout)[1];
        let mut shared = self.shared_plan(channel, tile, slot, &layout);
        let first = self.b.mul(own, Val::i32(pitch));
        let first = self.b.add(base, first);
        let [first, base] = [first, base].map(|bytes| self.shared_pointer(bytes));
        let mut copied: Vec<(Vec<u32>, Val, Vec<Val>)> = Vec::new();
        for register in 0..layout.registers() {
            let at = layout.coordinate(register, 0, 0);
            if !layout.contains(&at) || copied.iter().any(|(other, ..)| *other == at) {
                continue;
            }
            let inside = self.thread_inside(&layout, &at);
            let executes = self.b.and(inside, owner);
            let from = self.b.offset(first, Val::i64(i64::from(at[1] * pitch)));
            // Threads that have no such row read one that there is.
            let from = self.b.select(executes, from, base);
            copied.push((at, executes, self.load_shared(from, element)));
        }
        for (at, executes, words) in copied {
            let (to, constant) = self.shared_place(&mut shared, [at[0], at[1]]);
            let to = self.b.offset(to, Val::i64(i64::from(constant)));
            self.store_shared(to, &words, element, executes);
        }
        Ok(())
    }

    /// Where a slot of the stage begins, in the block's shared memory.
    fn stage_base(&mut self, stage: ChannelId, slot: ValueId) -> Val {
        let ring = &self.kernel.channels[stage];
        let (at, buffer, bytes) = (
            self.kernel.buffers[ring.buffer].offset.unwrap_or(0),
            ring.buffer,
            ring.slot_bytes(),
        );
        let slot = self.scalar(slot);
        let slot = self.b.resize(slot, I32, false);
        let distance = self.b.mul(slot, Val::i32(bytes));
        let mut base = self.b.add(distance, Val::i32(at));
        if let Some(shift) = self.replica_shift(buffer) {
            base = self.b.add(base, shift);
        }
        base
    }
}
