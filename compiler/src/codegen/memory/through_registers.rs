//! Copies from views to the slots of channels through registers: where nothing is known of how a slice is aligned, or the target
//! copies in no other way.
//!
//! A thread loads a piece of a row element by element and stores it at once. Where all its rows or pieces would need more registers
//! than there are, a loop goes over them instead, with as many pieces in flight as fit.

use tesserine_set::DType;

use crate::{
    codegen::{
        access::Along,
        builder::{I32, Val},
        lower::Lower,
    },
    diagnostics::Diagnostic,
    ir::{
        Op,
        role::{ChannelId, OpKind, warps_of_layouts},
        tile::Index,
    },
    layout::Layout,
    target::Target,
};

/// Registers that a thread needs beside a copy: where it is, and what it works addresses out with.
const BESIDE: u32 = 16;

/// Registers for the address of a row and whether it lies inside.
const OF_ROW: u32 = 3;

/// What is copied, and how.
struct Copy<'o> {
    op: &'o Op<OpKind>,
    channel: ChannelId,
    tile: u32,
    indices: &'o [Index],
    /// Elements that are loaded at once.
    width: u32,
    /// Elements that are stored at once.
    piece: u32,
    layout: Layout,
}

impl Lower<'_> {
    /// Copies a slice of a view through registers, a piece of a row at a time, so that few wait for their loads.
    pub fn copy(
        &mut self,
        op: &Op<OpKind>,
        channel: ChannelId,
        tile: u32,
        indices: &[Index],
        width: u32,
    ) -> Result<(), Diagnostic> {
        let warps = warps_of_layouts(self.threads / Target::WARP);
        let (layout, piece) = self.kernel.channels[channel].passed(tile, width, warps, indices);
        let copy = Copy {
            op,
            channel,
            tile,
            indices,
            width,
            piece,
            layout,
        };
        let Some((dim, together)) = self.pass(&copy) else {
            return self.copy_pieces(&copy, None);
        };
        let (steps, step) = (copy.layout.repeat[dim], copy.layout.block()[dim]);
        let head = self.b.label();
        let before = self.b.block();
        self.b.jump(head);
        self.b.begin(head);
        let slot = self.b.phis(&[I32]);
        let by = slot.results()[0];
        let along = Along {
            dim,
            by,
            step,
            steps,
            together,
        };
        self.copy_pieces(&copy, Some(along))?;
        let next = self.b.add(by, Val::i32(step * together));
        let again = self.b.icmp("ult", next, Val::i32(step * steps));
        let latch = self.b.block();
        let after = self.b.label();
        self.b.branch(again, head, after, true);
        let (first, further) = (vec![Val::i32(0)], vec![next]);
        self.b.fill(slot, &[(before, first), (latch, further)]);
        self.b.begin(after);
        Ok(())
    }

    /// Along which dimension a loop goes, and how many steps a pass takes, if one is needed: down the rows where their addresses are too many,
    /// else along them where the pieces are.
    fn pass(&self, copy: &Copy<'_>) -> Option<(usize, u32)> {
        let mut left = self.role_at_hand()?.registers?.saturating_sub(BESIDE);
        // Index tiles stay where they are.
        for &operand in &copy.op.operands {
            if let Some(layout) = self.layout(operand) {
                let words = self.elem(operand).bits().div_ceil(32);
                left = left.saturating_sub(layout.registers() * words);
            }
        }
        // A piece's elements on their way, and the words that they become.
        let of_piece = copy.piece / copy.width * 2;
        let pieces = copy.layout.registers() / copy.piece;
        let [rows, columns] = [copy.layout.repeat[0], copy.layout.repeat[1]];
        let (dim, steps, of_step) = if rows * OF_ROW + of_piece > left {
            (0, rows, OF_ROW + of_piece * (pieces / rows))
        } else if rows * OF_ROW + of_piece * pieces > left && columns > 1 {
            (1, columns, of_piece * (pieces / columns))
        } else {
            return None;
        };
        let fits = |&n: &u32| steps.is_multiple_of(n) && n * of_step <= left;
        Some((dim, (1..steps).rev().find(fits).unwrap_or(1)))
    }

    /// Copies the pieces of the thread, or those that a pass of a loop takes.
    fn copy_pieces(&mut self, copy: &Copy<'_>, along: Option<Along>) -> Result<(), Diagnostic> {
        let [view, starts @ .., slot, live] = &copy.op.operands[..] else {
            unreachable!("the verifier counted the operands")
        };
        let (channel, tile, layout) = (copy.channel, copy.tile, &copy.layout);
        let elem = self.kernel.channels[channel].tiles[tile as usize].elem;
        let live = self.scalar(*live);
        let mut plan = self.plan_along(*view, copy.indices, starts, Some(layout), live, along)?;
        let mut shared = self.shared_plan_along(channel, tile, *slot, layout, along);
        let owner = self.owner(Some(layout));
        // Of packed elements, whole bytes are moved.
        let (moved, per) = match elem.is_packed() {
            true => (DType::U8, 8 / elem.bits()),
            false => (elem, 1),
        };
        let (width, piece) = (copy.width, copy.piece);
        if !width.is_multiple_of(per) {
            return Err(self.not_yet("a slice of packed elements that may begin within a byte"));
        }
        let pad = self.zero(moved);
        let mut seen = Vec::new();
        for first in (0..layout.registers()).step_by(piece as usize) {
            let at = layout.coordinate(first, 0, 0);
            let of_pass = along.is_none_or(|a| at[a.dim] < a.step * a.together);
            if !layout.contains(&at) || seen.contains(&at) || !of_pass {
                continue;
            }
            let mut regs = Vec::with_capacity(piece as usize);
            for part in (first..first + piece).step_by(width as usize) {
                let at = layout.coordinate(part, 0, 0);
                let when = self.when(&mut plan, &at);
                let (pointer, offset) = self.address(&mut plan, &at);
                let loaded = self.load_in_order(pointer, offset, moved, width / per, when, pad);
                regs.extend(loaded);
            }
            let mut condition = self.thread_inside(layout, &at);
            if let Some(along) = along
                && layout.padded()[along.dim] > layout.shape[along.dim]
            {
                let dim = along.dim;
                let there = self.coordinates_along(layout, Some(along))[dim];
                let there = self.b.add(there, Val::i32(at[dim]));
                let inside = self.b.icmp("ult", there, Val::i32(layout.shape[dim]));
                condition = self.b.and(condition, inside);
            }
            let condition = self.b.and(condition, owner);
            let (pointer, constant) = self.shared_place(&mut shared, [at[0], at[1]]);
            let pointer = self.b.offset(pointer, Val::i64(i64::from(constant)));
            let words = self.pack(&regs, moved);
            self.store_shared(pointer, &words, shared.bytes(piece), condition);
            seen.push(at);
        }
        Ok(())
    }
}
