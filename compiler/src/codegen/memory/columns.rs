//! Columns of views: fetched 16 bytes of a row at a time to a stage, and copied from there to slots one by one.
//!
//! Both are divided among the threads alike, by rows, so that each copies what it fetched itself.

use crate::{
    codegen::{
        access::When,
        builder::{Effect, I32, Val},
        lower::{Lower, view_parameter},
        ptx_table,
    },
    diagnostics::Diagnostic,
    ir::{
        Op, ValueId,
        role::{ChannelId, OpKind, warps_of_layouts},
        tile::Index,
    },
    layout::{Layout, copy_layout, swizzle::CHUNK},
    target::{Target, legality::Instruction},
};

impl Lower<'_> {
    /// Which rows are whose, as the columns of one row.
    fn own_rows(&self, rows: u32) -> Layout {
        copy_layout([1, rows], 1, warps_of_layouts(self.threads / Target::WARP))
    }

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
        let layout = self.own_rows(self.kernel.channels[stage].tiles[0].shape[0]);
        let rows = layout.without_axis(0);
        let mut plan = self.plan(*view, indices, starts, Some(&rows), Val::bool(true))?;
        let owner = self.owner(Some(&layout));
        // The view's columns may end within the 16 bytes.
        let element = i64::from(plan.bits / 8);
        let extents = &self.view(view_parameter(self.body, *view)).extents;
        let extent = match extents.last() {
            Some(extent) => self.formula(extent),
            None => unreachable!("the verifier counted the dimensions"),
        };
        let column = self.scalar(starts[starts.len() - 1]);
        let left = self.b.sub(extent, column);
        let left = self.b.mul(left, Val::i64(element));
        let chunk = Val::i64(i64::from(CHUNK));
        let left = self.b.intrinsic("llvm.smin", &[left, chunk]);
        let left = self.b.intrinsic("llvm.smax", &[left, Val::i64(0)]);
        let left = self.b.resize(left, I32, false);
        let base = self.stage_base(stage, *slot);
        let own = self.thread_coordinates(&layout)[1];
        let mut seen = Vec::new();
        for register in 0..layout.registers() {
            let at = layout.coordinate(register, 0, 0);
            if !layout.contains(&at) || seen.contains(&at) {
                continue;
            }
            let inside = self.thread_inside(&layout, &at);
            let executes = self.b.and(inside, owner);
            let size = match self.when(&mut plan, &at[1..]) {
                When::Always => left,
                When::Never => Val::i32(0),
                When::If(condition) => self.b.select(condition, left, Val::i32(0)),
            };
            let (from, from_offset) = self.address(&mut plan, &at[1..]);
            let row = self.b.add(own, Val::i32(at[1]));
            let bytes = self.b.mul(row, Val::i32(CHUNK));
            let bytes = self.b.add(base, bytes);
            let to = self.shared_pointer(bytes);
            let guarded = !executes.is_true();
            let template = ptx_table::copy_async(CHUNK, 0, from_offset, true, guarded);
            let mut args = vec![to, from, size];
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
        let layout = self.own_rows(of.shape[1]);
        let owner = self.owner(Some(&layout));
        let column = self.scalar(column);
        let column = self.b.resize(column, I32, false);
        let column = self.b.mul(column, Val::i32(element));
        let base = self.stage_base(stage, half);
        let base = self.b.add(base, column);
        let own = self.thread_coordinates(&layout)[1];
        let mut shared = self.shared_plan(channel, tile, slot, &layout);
        let mut copied: Vec<(Vec<u32>, Val, Vec<Val>)> = Vec::new();
        for register in 0..layout.registers() {
            let at = layout.coordinate(register, 0, 0);
            if !layout.contains(&at) || copied.iter().any(|(other, ..)| *other == at) {
                continue;
            }
            let inside = self.thread_inside(&layout, &at);
            let executes = self.b.and(inside, owner);
            let row = self.b.add(own, Val::i32(at[1]));
            // Threads that have no such row read one that there is.
            let row = self.b.select(executes, row, Val::i32(0));
            let bytes = self.b.mul(row, Val::i32(CHUNK));
            let bytes = self.b.add(base, bytes);
            let from = self.shared_pointer(bytes);
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
