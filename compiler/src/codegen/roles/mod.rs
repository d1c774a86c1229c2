//! Kernels whose warps run different bodies, or whose slots have barriers.
//!
//! The block begins together: one thread sets up the barriers of all slots, then all go to their roles, warpgroup by
//! warpgroup, each of which first asks for its registers. A role is compiled as a kernel of its own: its threads are numbered
//! from 0, what is worked out once stands at its head, and its `barrier` is a named one. Which role a warp has, and all that
//! follows from it, is read from lane 0, so that `ptxas` sees that it is the same in a warp.
//!
//! Invariants: all warps of a warpgroup ask for the same registers; where blocks of a cluster reach each other's barriers, none
//! leaves before the others are done.

pub mod ahead;
mod carried;
pub mod draw;
mod ring;
mod turns;

use super::{
    builder::{Effect, I1, I32, I64, Place, Val},
    lower::Lower,
    ptx_table,
};
use crate::{
    diagnostics::Diagnostic,
    ir::role::{BufferId, Kernel, Role},
    target::{Target, legality::Instruction},
};

/// Warps of a warpgroup.
const GROUP: u32 = 4;

/// What a role's operations know of the thread.
#[derive(Clone, Copy)]
pub struct InRole {
    /// The role's number, from 1 on.
    pub number: u32,
    /// The number of its barrier; `None` where all of the block's threads meet.
    pub barrier: Option<Val>,
    /// Where another role executes the same body: which of the two the thread belongs to, 0 or 1, and the other's place among the roles.
    pub replica: Option<(Val, usize)>,
    /// The warpgroup's number in the role: the same in a warp.
    pub group: Val,
    /// What the role asks for, if it does.
    pub registers: Option<u32>,
    /// Whether the thread is the first lane of its warp.
    pub first_lane: Val,
    /// Whether the thread is the one of the role that begins bulk copies.
    pub leader: Val,
}

/// Whether the kernel needs what is here.
pub fn is_needed(kernel: &Kernel) -> bool {
    kernel.roles.len() > 1
        || kernel
            .roles
            .iter()
            .any(|r| r.first_warp != 0 || r.registers.is_some())
        || kernel.channels.values().any(|c| c.barriers.is_some())
}

/// Warps of a block: whole warpgroups where registers are asked for.
pub fn warps(kernel: &Kernel) -> u32 {
    let ends = kernel.roles.iter().map(|r| r.first_warp + r.warps);
    let warps = ends.max().unwrap_or(0);
    match kernel.roles.iter().any(|r| r.registers.is_some()) {
        true => warps.next_multiple_of(GROUP),
        false => warps,
    }
}

/// The place of the role that executes the body of the `number`-th.
fn twin_of(kernel: &Kernel, number: u32) -> Option<usize> {
    let is = |role: &Role| role.like.as_ref().is_some_and(|l| l.role + 1 == number);
    kernel.roles.iter().position(is)
}

impl<'a> Lower<'a> {
    /// 0 in the role whose body this is, 1 in the other that executes it.
    pub(super) fn replica(&mut self) -> Val {
        match self.in_role().replica {
            Some((which, _)) => self.b.resize(which, I64, false),
            None => Val::i64(0),
        }
    }

    /// How far the bytes that a role's buffer begins at lie before those of the thread's own replica.
    pub(in crate::codegen) fn replica_shift(&mut self, own: BufferId) -> Option<Val> {
        let (which, twin) = self.role_at_hand()?.replica?;
        let like = self.kernel.roles[twin].like.as_ref()?;
        let [own, other] =
            [own, *like.buffers.get(&own)?].map(|id| self.kernel.buffers[id].offset.unwrap_or(0));
        Some(self.b.mul(which, Val::i32(other.wrapping_sub(own))))
    }

    /// The kernel's roles, each by its warps.
    pub(super) fn roles(&mut self) -> Result<(), Diagnostic> {
        let kernel = self.kernel;
        let (block, cluster) = (self.thread, kernel.header.cluster());
        self.prefetch_maps();
        self.begin_together(cluster)?;
        self.wait_for_the_grid_before()?;

        let warp = {
            let place = self.b.go_to(Place::Prologue);
            let warp = self.b.lshr(block, 5);
            let warp = self.uniform(warp)?;
            self.b.go_to(place);
            warp
        };
        let exit = self.b.label();
        let all = warps(kernel);
        let mut classes: Vec<(Option<u32>, Vec<u32>)> = Vec::new();
        for group in 0..all.div_ceil(GROUP) {
            let registers = registers_of(kernel, group);
            match classes.iter_mut().find(|(r, _)| *r == registers) {
                Some((_, groups)) => groups.push(group),
                None => classes.push((registers, vec![group])),
            }
        }
        let last = classes.len();
        for (i, (registers, groups)) in classes.into_iter().enumerate() {
            let next = self.b.label();
            if i + 1 < last {
                let mut inside = Val::bool(false);
                for &group in &groups {
                    let own = self.is_within(warp, group * GROUP, GROUP);
                    inside = self.b.or(inside, own);
                }
                let here = self.b.label();
                self.b.branch(inside, here, next, false);
                self.b.begin(here);
            }
            self.ask_for_registers(registers, all)?;
            for (number, role) in (1..).zip(&kernel.roles) {
                if !groups.contains(&(role.first_warp / GROUP)) {
                    continue;
                }
                if role.like.is_some() {
                    continue;
                }
                let (here, other) = (self.b.label(), self.b.label());
                let mut inside = self.is_within(warp, role.first_warp, role.warps);
                if let Some(twin) = twin_of(kernel, number) {
                    let twin = &kernel.roles[twin];
                    let also = self.is_within(warp, twin.first_warp, twin.warps);
                    inside = self.b.or(inside, also);
                }
                self.b.branch(inside, here, other, false);
                self.b.begin(here);
                self.role(role, number, block, warp)?;
                self.b.jump(exit);
                self.b.begin(other);
            }
            self.b.jump(exit);
            if i + 1 < last {
                self.b.begin(next);
            }
        }
        self.b.begin(exit);
        if cluster > 1 {
            self.meet(cluster)?;
        }
        Ok(())
    }

    /// One role, at the label where its warps have come to.
    fn role(
        &mut self,
        role: &'a Role,
        number: u32,
        block: Val,
        warp: Val,
    ) -> Result<(), Diagnostic> {
        let section = self.b.open_prologue();
        let place = self.b.go_to(Place::Prologue);
        let first = role.first_warp;
        let mut warp = self.b.sub(warp, Val::i32(first));
        let mut barrier = Val::i32(number);
        let mut replica = None;
        if let Some(twin) = twin_of(self.kernel, number) {
            // The twin's warps follow the role's.
            let distance = self.kernel.roles[twin].first_warp - first;
            let second = self.b.icmp("uge", warp, Val::i32(distance));
            let which = self.b.cast("zext", second, I32);
            let before = self.b.mul(which, Val::i32(distance));
            warp = self.b.sub(warp, before);
            let more = self.b.mul(which, Val::i32(twin as u32 + 1 - number));
            barrier = self.b.add(barrier, more);
            replica = Some((which, twin));
        }
        let lane = self.b.and(block, Val::i32(Target::WARP - 1));
        let inside = self.b.shl(warp, 5);
        let thread = match first {
            0 if replica.is_none() => block,
            _ => self.b.or(inside, lane),
        };
        let first_lane = self.b.icmp("eq", lane, Val::i32(0));
        let elected = self.elect()?;
        let first_warp = self.b.icmp("eq", warp, Val::i32(0));
        let leader = self.b.and(first_warp, elected);
        let group = self.b.lshr(warp, 2);
        self.b.go_to(place);
        let alone = self.kernel.roles.len() == 1 && warps(self.kernel) == role.warps;
        let saved = self.enter_role(
            role,
            thread,
            InRole {
                number,
                barrier: (!alone).then_some(barrier),
                replica,
                group,
                registers: role.registers,
                first_lane,
                leader,
            },
        );
        let opened = self.open_turns(role);
        let result = opened.and_then(|()| self.blocks());
        let result = result.and_then(|()| self.close_turns());
        self.leave_role(saved);
        self.b.close_prologue(section);
        result
    }

    /// The slots' barriers are made, by one thread, before any other comes to them.
    fn begin_together(&mut self, cluster: u32) -> Result<(), Diagnostic> {
        let kernel = self.kernel;
        let first = self.b.icmp("eq", self.thread, Val::i32(0));
        let mut some = self.make_draw_barriers(first)?;
        for channel in kernel.channels.values() {
            let Some(barriers) = channel.barriers else {
                continue;
            };
            self.need(Instruction::Mbarrier)?;
            some = true;
            let at = kernel.buffers[barriers.buffer].offset.unwrap_or(0);
            let base = self.shared_address(at);
            let t = ptx_table::make_barriers(channel.depth, barriers.full, barriers.empty);
            self.b.asm(
                &t.text,
                &t.constraints,
                &[],
                &[base, first],
                Effect::Convergent,
            );
        }
        if some {
            let t = ptx_table::fence_barriers();
            self.b
                .asm(&t.text, &t.constraints, &[], &[], Effect::Convergent);
            self.meet(cluster)?;
        }
        Ok(())
    }

    /// Tensor maps come into the cache while the block prepares the rest.
    fn prefetch_maps(&mut self) {
        let first = self.b.icmp("eq", self.thread, Val::i32(0));
        for map in self.maps.clone() {
            let t = ptx_table::prefetch_map();
            self.b.asm(
                &t.text,
                &t.constraints,
                &[],
                &[map, first],
                Effect::Convergent,
            );
        }
    }

    /// Where launches overlap: what is above runs while the grid before this one ends; what it wrote is read below only.
    pub(super) fn wait_for_the_grid_before(&mut self) -> Result<(), Diagnostic> {
        if !self.kernel.header.schedule.overlap {
            return Ok(());
        }
        self.need(Instruction::DependentGrids)?;
        let t = ptx_table::overlap();
        self.b
            .asm(&t.text, &t.constraints, &[], &[], Effect::Convergent);
        Ok(())
    }

    fn ask_for_registers(&mut self, registers: Option<u32>, warps: u32) -> Result<(), Diagnostic> {
        let Some(registers) = registers else {
            return Ok(());
        };
        self.need(Instruction::SetMaxRegisters)?;
        let blocks = self.kernel.header.schedule.blocks_per_sm.unwrap_or(1);
        // What `ptxas` gives each thread at the start: all that so many threads may have.
        let given = self.target.info().registers_per_sm / (warps * Target::WARP * blocks.max(1));
        let given = (given / 8 * 8).min(Target::MAX_REGISTERS);
        let name = match registers.cmp(&given) {
            std::cmp::Ordering::Less => "llvm.nvvm.setmaxnreg.dec.sync.aligned.u32",
            std::cmp::Ordering::Equal => return Ok(()),
            std::cmp::Ordering::Greater => "llvm.nvvm.setmaxnreg.inc.sync.aligned.u32",
        };
        self.b
            .call(None, name, &[Val::i32(registers)], Effect::Convergent);
        Ok(())
    }

    /// Whether `warp` is one of `count` from `first` on.
    fn is_within(&mut self, warp: Val, first: u32, count: u32) -> Val {
        let from = self.b.sub(warp, Val::i32(first));
        self.b.icmp("ult", from, Val::i32(count))
    }

    /// A value of lane 0, for all lanes.
    fn uniform(&mut self, value: Val) -> Result<Val, Diagnostic> {
        self.need(Instruction::Shuffle)?;
        let args = [
            Val::int(-1, I32),
            value,
            Val::i32(0),
            Val::i32(Target::WARP - 1),
        ];
        let name = "llvm.nvvm.shfl.sync.idx.i32";
        Ok(self.b.call(Some(I32), name, &args, Effect::Convergent))
    }

    /// True in one lane of the warp.
    fn elect(&mut self) -> Result<Val, Diagnostic> {
        self.need(Instruction::Elect)?;
        let name = "llvm.nvvm.elect.sync";
        let all = [Val::int(-1, I32)];
        Ok(self.b.call_many(&[I32, I1], name, &all, Effect::Convergent)[1])
    }

    /// Where a byte of the block's dynamic shared memory is, as 32 bits.
    pub(super) fn shared_address(&mut self, at: u32) -> Val {
        let base = Val {
            ty: super::builder::SHARED,
            kind: super::builder::Kind::SharedBase,
        };
        let base = self.b.cast("ptrtoint", base, I32);
        self.b.add(base, Val::i32(at))
    }

    /// The lanes of a warp have all come here, and see each other's stores.
    pub(super) fn meet_in_warp(&mut self) {
        self.b.call(
            None,
            "llvm.nvvm.bar.warp.sync",
            &[Val::int(-1, I32)],
            Effect::Convergent,
        );
    }
}

/// The registers that the roles of a warpgroup ask for.
fn registers_of(kernel: &Kernel, group: u32) -> Option<u32> {
    let warps = group * GROUP..(group + 1) * GROUP;
    let mut roles = kernel
        .roles
        .iter()
        .filter(|r| r.first_warp < warps.end && warps.start < r.first_warp + r.warps);
    roles.find_map(|r| r.registers)
}
