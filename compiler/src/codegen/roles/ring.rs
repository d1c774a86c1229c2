//! Rings with barriers: waiting for a slot, and saying that it is full or empty.
//!
//! A full barrier completes a phase when its fillers have arrived and the bytes they expect are there; an empty one when all
//! readers have. Who fills waits for the phase before its own to have been emptied, which the first round finds done.

use crate::{
    codegen::{
        builder::{Effect, I32, Val},
        lower::Lower,
        ptx_table,
    },
    diagnostics::Diagnostic,
    ir::{
        Op, ValueId,
        role::{ChannelId, OpKind, ProductOperand},
    },
    target::legality::Instruction,
};

impl Lower<'_> {
    /// Where the full barrier of the slot is, or the empty one.
    pub(in crate::codegen) fn ring_barrier(
        &mut self,
        channel: ChannelId,
        slot: ValueId,
        empty: bool,
    ) -> Val {
        let channel = &self.kernel.channels[channel];
        let barriers = channel
            .barriers
            .unwrap_or_else(|| unreachable!("the verifier checked that there are barriers"));
        let at = self.kernel.buffers[barriers.buffer].offset.unwrap_or(0);
        let first = at + if empty { 8 * channel.depth } else { 0 };
        let slot = self.scalar(slot);
        let slot = self.b.resize(slot, I32, true);
        let distance = self.b.mul(slot, Val::i32(8));
        let mut base = self.shared_address(first);
        if let Some(shift) = self.replica_shift(barriers.buffer) {
            base = self.b.add(base, shift);
        }
        self.b.add(base, distance)
    }

    /// Where tile `tile` of the slot is, `offset` bytes into it.
    pub(in crate::codegen) fn slot_address(
        &mut self,
        channel: ChannelId,
        tile: u32,
        slot: ValueId,
        offset: u32,
    ) -> Val {
        let channel = &self.kernel.channels[channel];
        let at = self.kernel.buffers[channel.buffer].offset.unwrap_or(0);
        let first = at + channel.tiles[tile as usize].offset + offset;
        let slot = self.scalar(slot);
        let slot = self.b.resize(slot, I32, true);
        let distance = self.b.mul(slot, Val::i32(channel.slot_bytes()));
        let mut base = self.shared_address(first);
        if let Some(shift) = self.replica_shift(channel.buffer) {
            base = self.b.add(base, shift);
        }
        self.b.add(base, distance)
    }

    pub(in crate::codegen) fn wait_slot(
        &mut self,
        op: &Op<OpKind>,
        channel: ChannelId,
        empty: bool,
    ) -> Result<(), Diagnostic> {
        self.need(Instruction::Mbarrier)?;
        let barrier = self.ring_barrier(channel, op.operands[0], empty);
        let mut phase = self.scalar(op.operands[1]);
        if empty {
            phase = self.b.xor(phase, Val::i32(1));
        }
        let t = ptx_table::wait_barrier();
        self.b.asm(
            &t.text,
            &t.constraints,
            &[],
            &[barrier, phase],
            Effect::Convergent,
        );
        if !empty && self.reads_copies_in_place(channel) {
            // What threads copied, they did not fence: they do not know when their copies end.
            self.need(Instruction::FenceAsync)?;
            let t = ptx_table::fence_async();
            self.b
                .asm(&t.text, &t.constraints, &[], &[], Effect::Convergent);
        }
        Ok(())
    }

    /// Whether products or bulk copies of this role read in place what threads have copied asynchronously to the channel's slots, perhaps
    /// handed on through another channel.
    fn reads_copies_in_place(&self, channel: ChannelId) -> bool {
        let channels = &self.kernel.channels;
        if channels[channel].barriers.is_none_or(|b| !b.copied) {
            return false;
        }
        let same = |other: ChannelId| channels[other].buffer == channels[channel].buffer;
        let all = self.kernel.roles.iter().flat_map(|r| r.body.ops.values());
        let copied: Vec<u32> = all
            .filter_map(|op| match op.kind {
                OpKind::CopyAsync { channel, tile, .. } if same(channel) => Some(tile),
                _ => None,
            })
            .collect();
        let is_copied = |operand: ProductOperand| match operand {
            ProductOperand::Slot { channel, tile, .. } => same(channel) && copied.contains(&tile),
            ProductOperand::Registers => false,
        };
        self.body.ops.values().any(|op| match op.kind {
            OpKind::Product { a, b, .. } => is_copied(a) || is_copied(b),
            OpKind::StoreBulk { channel, tile, .. } => same(channel) && copied.contains(&tile),
            _ => false,
        })
    }

    /// Whether all that this role's threads write to the channel's slots are columns that no product or bulk copy reads in place.
    fn writes_columns_only(&self, channel: ChannelId) -> bool {
        let channels = &self.kernel.channels;
        let same = |other: ChannelId| channels[other].buffer == channels[channel].buffer;
        let mut columns = Vec::new();
        for op in self.body.ops.values() {
            match op.kind {
                OpKind::CopyColumn { channel, tile, .. } if same(channel) => columns.push(tile),
                OpKind::WriteShared { channel, .. }
                | OpKind::Copy { channel, .. }
                | OpKind::CopyAsync { channel, .. }
                | OpKind::ClearRows { channel, .. }
                    if same(channel) =>
                {
                    return false;
                }
                _ => {}
            }
        }
        let is_column = |operand: ProductOperand| match operand {
            ProductOperand::Slot { channel, tile, .. } => same(channel) && columns.contains(&tile),
            ProductOperand::Registers => false,
        };
        let mut all = self.kernel.roles.iter().flat_map(|r| r.body.ops.values());
        !columns.is_empty()
            && !all.any(|op| match op.kind {
                OpKind::Product { a, b, .. } => is_column(a) || is_column(b),
                OpKind::StoreBulk { channel, tile, .. } => same(channel) && columns.contains(&tile),
                _ => false,
            })
    }

    /// Each thread's copies so far arrive when they have ended.
    pub(in crate::codegen) fn arrive_copied(
        &mut self,
        op: &Op<OpKind>,
        channel: ChannelId,
    ) -> Result<(), Diagnostic> {
        self.need(Instruction::Mbarrier)?;
        self.need(Instruction::CpAsync)?;
        let barrier = self.ring_barrier(channel, op.operands[0], false);
        let t = ptx_table::arrive_copied();
        self.b
            .asm(&t.text, &t.constraints, &[], &[barrier], Effect::Convergent);
        Ok(())
    }

    pub(in crate::codegen) fn expect_bytes(
        &mut self,
        op: &Op<OpKind>,
        channel: ChannelId,
        bytes: u32,
    ) -> Result<(), Diagnostic> {
        self.need(Instruction::Mbarrier)?;
        let barrier = self.ring_barrier(channel, op.operands[0], false);
        let leader = self.in_role().leader;
        let t = ptx_table::expect_bytes();
        self.b.asm(
            &t.text,
            &t.constraints,
            &[],
            &[barrier, Val::i32(bytes), leader],
            Effect::Convergent,
        );
        Ok(())
    }

    /// One arrival a warp, after all of its lanes have done what they did to the slot. Where threads copy to it through registers, each arrives for
    /// itself: they do little else, and the order of their stores is then plain to see for tools that look for races.
    pub(in crate::codegen) fn arrive_slot(
        &mut self,
        op: &Op<OpKind>,
        channel: ChannelId,
        empty: bool,
    ) -> Result<(), Diagnostic> {
        self.need(Instruction::Mbarrier)?;
        let barrier = self.ring_barrier(channel, op.operands[0], empty);
        if !empty && !self.writes_columns_only(channel) {
            self.need(Instruction::FenceAsync)?;
            let t = ptx_table::fence_async();
            self.b
                .asm(&t.text, &t.constraints, &[], &[], Effect::Convergent);
        }
        self.meet_in_warp();
        let barriers = self.kernel.channels[channel].barriers;
        let blocks = barriers.map_or(1, |b| b.blocks);
        if empty && blocks > 1 {
            self.need(Instruction::Cluster)?;
            let lane = self.b.and(self.thread, Val::i32(31));
            let one_each = self.b.icmp("ult", lane, Val::i32(blocks));
            let t = ptx_table::arrive_in_cluster();
            self.b.asm(
                &t.text,
                &t.constraints,
                &[],
                &[barrier, lane, one_each],
                Effect::Convergent,
            );
            return Ok(());
        }
        let copies =
            |op: &Op<OpKind>| matches!(op.kind, OpKind::Copy { channel: to, .. } if to == channel);
        let mut arrives = match !empty && self.body.ops.values().any(copies) {
            true => Val::bool(true),
            false => self.in_role().first_lane,
        };
        if let Some(&after) = op.operands.get(1) {
            // No bits are below the number of the first lane, 0, but no compiler knows that this is what is read here: the arrival needs the value.
            if let Some(last) = self.get(after).to_vec().pop() {
                let bits = self.b.cast("bitcast", last, I32);
                let t = ptx_table::lane();
                let lane = self
                    .b
                    .asm(&t.text, &t.constraints, &[I32], &[], Effect::Pure)[0];
                let there = self.b.icmp("uge", bits, lane);
                arrives = self.b.and(arrives, there);
            }
        }
        let t = ptx_table::arrive_barrier();
        self.b.asm(
            &t.text,
            &t.constraints,
            &[],
            &[barrier, arrives],
            Effect::Convergent,
        );
        Ok(())
    }
}
