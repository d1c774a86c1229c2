//! Tiles that several roles of a block draw together.
//!
//! The first role draws, at the end of each tile of its own, and passes the number on through a ring of two slots in shared
//! memory, behind all else; every warp reads it there. Its barriers are as a channel's: one arrival makes a slot full, one of each
//! warp makes it empty.

use super::InRole;
use crate::{
    codegen::{
        builder::{Effect, I32, I64, Kind, Place, SHARED, Val},
        lower::Lower,
        ptx_table,
    },
    diagnostics::Diagnostic,
    ir::role::Kernel,
    target::legality::Instruction,
};

/// Slots of the ring.
const DEPTH: u32 = 2;

/// Bytes: two barriers and a number for each slot.
const BYTES: u32 = 24 * DEPTH;

/// Whether the kernel's roles draw their tiles.
pub fn draws(kernel: &Kernel) -> bool {
    kernel.header.dynamic && super::is_needed(kernel)
}

/// Shared memory of a kernel whose roles draw.
pub fn shared_bytes(kernel: &Kernel) -> u32 {
    match draws(kernel) {
        true => place(kernel) + BYTES,
        false => 0,
    }
}

fn place(kernel: &Kernel) -> u32 {
    kernel.shared_bytes.next_multiple_of(8)
}

impl Lower<'_> {
    /// Makes the ring's barriers. Whether there are any.
    pub(super) fn make_draw_barriers(&mut self, first: Val) -> Result<bool, Diagnostic> {
        let kernel = self.kernel;
        if !draws(kernel) {
            return Ok(false);
        }
        if kernel.header.cluster() > 1 {
            return Err(self.not_yet("a grid that several roles of a cluster draw from"));
        }
        self.need(Instruction::Mbarrier)?;
        let readers: u32 = kernel.roles.iter().map(|r| r.warps).sum();
        let base = self.shared_address(place(kernel));
        let t = ptx_table::make_barriers(DEPTH, 1, readers);
        let args = [base, first];
        self.b
            .asm(&t.text, &t.constraints, &[], &args, Effect::Convergent);
        Ok(true)
    }

    /// The tile that the block goes on to, the `count`-th that it has drawn. `blocks` and `tiles` as for a block of one role.
    pub(in crate::codegen) fn draw_in_role(
        &mut self,
        count: Val,
        blocks: Val,
        tiles: Val,
    ) -> Result<Val, Diagnostic> {
        let InRole {
            number,
            leader,
            first_lane,
            ..
        } = self.in_role();
        let counter = self.counter();
        let last = {
            let place = self.b.go_to(Place::Prologue);
            let last = self.b.sub(tiles, Val::i32(1));
            self.b.go_to(place);
            last
        };
        let slot = self.b.and(count, Val::i32(DEPTH - 1));
        let phase = self.b.lshr(count, DEPTH.trailing_zeros());
        let phase = self.b.and(phase, Val::i32(1));
        let start = place(self.kernel);
        let distance = self.b.mul(slot, Val::i32(8));
        let base = self.shared_address(start);
        let full = self.b.add(base, distance);
        let empty = self.b.add(full, Val::i32(8 * DEPTH));
        let shared = Val {
            ty: SHARED,
            kind: Kind::SharedBase,
        };
        let wide = self.b.resize(distance, I64, false);
        let at = self.b.offset(shared, Val::i64((start + 16 * DEPTH).into()));
        let at = self.b.offset(at, wide);

        let wait = ptx_table::wait_barrier();
        let arrive = ptx_table::arrive_barrier();
        if number == 1 {
            let before = self.b.xor(phase, Val::i32(1));
            let args = [empty, before];
            self.b.asm(
                &wait.text,
                &wait.constraints,
                &[],
                &args,
                Effect::Convergent,
            );
            let (draw, after) = (self.b.label(), self.b.label());
            self.b.branch(leader, draw, after, false);
            self.b.begin(draw);
            let t = ptx_table::draw();
            let drawn = self
                .b
                .asm(&t.text, &t.constraints, &[I64], &[counter], Effect::Memory)[0];
            let drawn = self.b.resize(drawn, I32, false);
            let done = self.b.icmp("eq", drawn, last);
            let t = ptx_table::reset();
            let args = [counter, done];
            self.b
                .asm(&t.text, &t.constraints, &[], &args, Effect::Memory);
            let next = self.b.add(drawn, blocks);
            self.b.store(next, at, 4);
            let args = [full, Val::bool(true)];
            self.b.asm(
                &arrive.text,
                &arrive.constraints,
                &[],
                &args,
                Effect::Memory,
            );
            self.b.jump(after);
            self.b.begin(after);
            self.meet_in_warp();
        }
        let args = [full, phase];
        self.b.asm(
            &wait.text,
            &wait.constraints,
            &[],
            &args,
            Effect::Convergent,
        );
        let next = self.b.load(at, I32, 4, false);
        self.meet_in_warp();
        let args = [empty, first_lane];
        self.b.asm(
            &arrive.text,
            &arrive.constraints,
            &[],
            &args,
            Effect::Convergent,
        );
        Ok(next)
    }
}
