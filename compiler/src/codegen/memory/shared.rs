//! Tiles in the slots of channels: addresses, stores from registers, and reads into fragments.
//!
//! The byte at which an element lies is linear over bits in its row and column, so it is a part that the thread gives,
//! worked out once for each constant that swizzling XORs into it, plus a constant, plus where the slot begins. Fragments
//! of 16-bit elements are read by `ldmatrix`, four matrices of 8 by 8 at a time where the layout has as many.

use std::{collections::HashMap, rc::Rc};

use tesserine_set::DType;

use crate::{
    codegen::{
        access::Along,
        builder::{Effect, I32, I64, Place, Val},
        lower::Lower,
        ptx_table,
    },
    diagnostics::Diagnostic,
    ir::{
        Op, ValueId,
        role::{ChannelId, OpKind, SharedTile},
    },
    layout::{Layout, scratch::shared_element, swizzle::CHUNK},
    target::legality::Instruction,
};

/// Where one thread's elements of a tile lie in a slot.
pub struct SharedPlan<'k> {
    pub tile: &'k SharedTile,
    /// Where the tile lies in slot 0.
    start: u32,
    /// Bytes from there to the slot.
    slot: Val,
    /// The row and the column that the thread gives.
    thread: Rc<[Val]>,
    /// Which of their bits are ever set.
    reach: [u32; 2],
    /// Bytes of an element; of packed ones, see [`bytes`](SharedPlan::bytes).
    element: u32,
    pointers: HashMap<u32, Val>,
    /// The thread's place changes from pass to pass of a loop: nothing is worked out before it.
    in_loop: bool,
}

impl<'a> Lower<'a> {
    /// Plans accesses to tile `tile` of the slot that `slot` says, of threads that lie as in `threads`, whose
    /// coordinates are rows and columns in shared memory.
    pub fn shared_plan(
        &mut self,
        channel: ChannelId,
        tile: u32,
        slot: ValueId,
        threads: &Layout,
    ) -> SharedPlan<'a> {
        self.shared_plan_along(channel, tile, slot, threads, None)
    }

    /// As [`shared_plan`](Self::shared_plan), in a loop along a dimension of the tile.
    pub(super) fn shared_plan_along(
        &mut self,
        channel: ChannelId,
        tile: u32,
        slot: ValueId,
        threads: &Layout,
        along: Option<Along>,
    ) -> SharedPlan<'a> {
        let channel = &self.kernel.channels[channel];
        let tile = &channel.tiles[tile as usize];
        let slot = self.scalar(slot);
        let slot = self.b.resize(slot, I32, true);
        let mut slot = self.b.mul(slot, Val::i32(channel.slot_bytes()));
        if let Some(shift) = self.replica_shift(channel.buffer) {
            slot = self.b.add(slot, shift);
        }
        let slot = self.b.resize(slot, I64, true);
        let start = self.kernel.buffers[channel.buffer].offset.unwrap_or(0) + tile.offset;
        SharedPlan {
            tile,
            start,
            slot,
            thread: self.coordinates_along(threads, along),
            reach: [0, 1].map(|d| Lower::thread_reach(threads, d)),
            element: shared_element(tile.elem),
            pointers: HashMap::new(),
            in_loop: along.is_some(),
        }
    }

    /// The pointer and the constant distance from it, in bytes, of the element at the thread's coordinate plus `at`.
    pub fn shared_place(&mut self, plan: &mut SharedPlan<'_>, at: [u32; 2]) -> (Val, u32) {
        let layout = plan.tile.layout;
        let [row, column] = at;
        let swizzled = layout.mask * CHUNK;
        if plan.in_loop || row & plan.reach[0] != 0 || column & plan.reach[1] != 0 {
            // The bits of both parts meet, or a loop moves the thread: nothing is known before the sum.
            let row = self.b.add(plan.thread[0], Val::i32(row));
            let column = self.b.add(plan.thread[1], Val::i32(column));
            let bytes = self.shared_byte(plan, row, column);
            let pointer = self.shared_pointer(bytes);
            return (self.b.offset(pointer, plan.slot), plan.start);
        }
        let bytes = plan.bytes(column);
        let turned = bytes ^ (layout.turn(row) * CHUNK);
        let (turned, constant) = (turned & swizzled, bytes & !swizzled);
        let pointer = match plan.pointers.get(&turned) {
            Some(&pointer) => pointer,
            None => {
                let place = self.b.go_to(Place::Prologue);
                let bytes = self.shared_byte(plan, plan.thread[0], plan.thread[1]);
                let bytes = self.b.xor(bytes, Val::i32(turned));
                let pointer = self.shared_pointer(bytes);
                self.b.go_to(place);
                let pointer = self.b.offset(pointer, plan.slot);
                plan.pointers.insert(turned, pointer);
                pointer
            }
        };
        let constant = match layout.panels {
            1 => constant,
            _ => constant / layout.pitch * layout.panel_bytes() + constant % layout.pitch,
        };
        (pointer, constant + row * layout.pitch + plan.start)
    }

    /// As [`shared_place`](Self::shared_place), of `width` neighbours in a row that are read. Beyond the rows and columns that
    /// are filled lies padding, which nothing wrote: threads there read the last that is filled, and what they get is
    /// never stored nor summed.
    fn shared_source(&mut self, plan: &mut SharedPlan<'_>, at: [u32; 2], width: u32) -> (Val, u32) {
        let [rows, columns] = plan.tile.shape;
        let last = [rows - 1, columns - width];
        if (0..2).all(|d| at[d] + plan.reach[d] <= last[d]) {
            return self.shared_place(plan, at);
        }
        let place = self.b.go_to(Place::Prologue);
        let [row, column] = [0, 1].map(|d| {
            let there = self.b.add(plan.thread[d], Val::i32(at[d]));
            if at[d] + plan.reach[d] <= last[d] {
                return there;
            }
            let filled = self.b.icmp("ule", there, Val::i32(last[d]));
            self.b.select(filled, there, Val::i32(last[d]))
        });
        let bytes = self.shared_byte(plan, row, column);
        let pointer = self.shared_pointer(bytes);
        self.b.go_to(place);
        (self.b.offset(pointer, plan.slot), plan.start)
    }

    /// Where an element lies in its tile. Tiles begin at multiples of what is permuted, so that this is the same in all that
    /// have one layout, and loops that follow each other share it.
    fn shared_byte(&mut self, plan: &SharedPlan<'_>, row: Val, column: Val) -> Val {
        let layout = plan.tile.layout;
        let turn = self.b.lshr(row, layout.shift);
        let turn = self.b.and(turn, Val::i32(layout.mask));
        let turn = self.b.mul(turn, Val::i32(CHUNK));
        let mut bytes = match plan.tile.elem.bits() {
            bits @ ..8 => self.b.lshr(column, (8 / bits).trailing_zeros()),
            _ => self.b.mul(column, Val::i32(plan.element)),
        };
        let mut above = self.b.mul(row, Val::i32(layout.pitch));
        if layout.panels > 1 {
            let panel = self.b.lshr(bytes, layout.pitch.trailing_zeros());
            let panel = self.b.mul(panel, Val::i32(layout.panel_bytes()));
            above = self.b.add(above, panel);
            bytes = self.b.and(bytes, Val::i32(layout.pitch - 1));
        }
        let bytes = self.b.xor(bytes, turn);
        self.b.add(above, bytes)
    }

    pub fn write_shared(
        &mut self,
        op: &Op<OpKind>,
        channel: ChannelId,
        tile: u32,
        offsets: [u32; 2],
    ) -> Result<(), Diagnostic> {
        let [value, slot] = [op.operands[0], op.operands[1]];
        let layout = self.layout(value).expect("tiles have layouts");
        let elem = self.elem(value);
        let regs = self.get(value);
        let read = Read {
            layout,
            offsets,
            transposed: false,
        };
        let by_bulk = self.kernel.channels[channel].barriers.is_some();
        let matrices = Matrices::of(&read, elem).filter(|m| !m.turned && m.count == 4);
        if let Some(matrices) = matrices
            && by_bulk
            && layout.replicated_lanes() == 0
            && layout.replicated_warps() == 0
            && layout.padded() == layout.shape
            && self.may_use(Instruction::StMatrix)
        {
            self.write_matrices(channel, tile, slot, &regs, &matrices, &read);
            return Ok(());
        }
        let mut plan = self.shared_plan(channel, tile, slot, layout);
        let owner = self.owner(Some(layout));
        let width = layout.neighbours().min(CHUNK / plan.element);
        let mut seen = Vec::new();
        for first in (0..layout.registers()).step_by(width as usize) {
            let at = layout.coordinate(first, 0, 0);
            if !layout.contains(&at) || seen.contains(&at) {
                continue;
            }
            let inside = self.thread_inside(layout, &at);
            let condition = self.b.and(inside, owner);
            let (pointer, constant) =
                self.shared_place(&mut plan, [offsets[0] + at[0], offsets[1] + at[1]]);
            let pointer = self.b.offset(pointer, Val::i64(constant as i64));
            let words = self.pack(&regs[first as usize..(first + width) as usize], elem);
            self.store_shared(pointer, &words, width * plan.element, condition);
            seen.push(at);
        }
        Ok(())
    }

    /// Stores a fragment of 8 by 8 matrices, four at once.
    fn write_matrices(
        &mut self,
        channel: ChannelId,
        tile: u32,
        slot: ValueId,
        regs: &[Val],
        matrices: &Matrices,
        read: &Read<'_>,
    ) {
        let elem = self.kernel.channels[channel].tiles[tile as usize].elem;
        let mut plan = self.shared_plan(channel, tile, slot, &matrices.threads);
        let name = "llvm.nvvm.stmatrix.sync.aligned.m8n8.x4.b16.p3";
        for first in (0..read.layout.registers()).step_by(8) {
            let (pointer, constant) = self.shared_place(&mut plan, read.at(first));
            let pointer = self.b.offset(pointer, Val::i64(i64::from(constant)));
            let words = self.pack(&regs[first as usize..first as usize + 8], elem);
            let args = [&[pointer], &words[..]].concat();
            self.b.call(None, name, &args, Effect::Convergent);
        }
    }

    /// Whether the thread's coordinate plus `at` lies in the shape, not in the padding.
    pub fn thread_inside(&mut self, layout: &Layout, at: &[u32]) -> Val {
        self.thread_below(layout, at, &layout.shape)
    }

    /// Whether the thread's element at `at`, of the first thread, lies below these extents.
    pub fn thread_below(&mut self, layout: &Layout, at: &[u32], extents: &[u32]) -> Val {
        let mut inside = Val::bool(true);
        for (d, &c) in at.iter().enumerate() {
            let (extent, reach) = (extents[d], Lower::thread_reach(layout, d));
            if c + reach >= extent {
                let base = self.thread_coordinates(layout)[d];
                let below = self.b.icmp("ult", base, Val::i32(extent.saturating_sub(c)));
                inside = self.b.and(inside, below);
            }
        }
        inside
    }

    pub fn read_shared(
        &mut self,
        op: &Op<OpKind>,
        channel: ChannelId,
        tile: u32,
        offsets: [u32; 2],
        transposed: bool,
    ) -> Result<(), Diagnostic> {
        let result = op.results[0];
        let elem = self.elem(result);
        let layout = self.layout(result).expect("tiles have layouts");
        let read = Read {
            layout,
            offsets,
            transposed,
        };
        let of = &self.kernel.channels[channel].tiles[tile as usize];
        let columns = of.shape[1];
        let regs = match Matrices::of(&read, elem) {
            _ if of.elem.is_packed() => self.read_widened(op, channel, tile, layout)?,
            // Chunks are read whole.
            Some(matrices) if columns.is_multiple_of(8) => {
                self.read_matrices(op, channel, tile, &read, &matrices)?
            }
            _ => self.read_elements(op, channel, tile, &read),
        };
        let ring = &self.kernel.channels[channel];
        if ring.barriers.is_none() {
            let buffer = &self.kernel.buffers[ring.buffer];
            self.note_shared_read(buffer.offset.unwrap_or(0), buffer.bytes);
        }
        self.set(result, regs);
        Ok(())
    }

    fn read_matrices(
        &mut self,
        op: &Op<OpKind>,
        channel: ChannelId,
        tile: u32,
        read: &Read<'_>,
        matrices: &Matrices,
    ) -> Result<Vec<Val>, Diagnostic> {
        self.need(Instruction::LdMatrix)?;
        let elem = self.elem(op.results[0]);
        let mut plan = self.shared_plan(channel, tile, op.operands[0], &matrices.threads);
        let count = matrices.count;
        let name = format!(
            "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}{}.b16.p3",
            if matrices.turned { ".trans" } else { "" }
        );
        let mut regs = Vec::with_capacity(read.layout.registers() as usize);
        for first in (0..read.layout.registers()).step_by(2 * count) {
            let at = read.at(first);
            let words = if plan.outside(at) {
                vec![Val::i32(0); count]
            } else {
                let (pointer, constant) = self.shared_source(&mut plan, at, 8);
                let pointer = self.b.offset(pointer, Val::i64(constant as i64));
                self.b
                    .call_many(&vec![I32; count], &name, &[pointer], Effect::Convergent)
            };
            regs.extend(self.unpack(&words, elem, 2 * count as u32));
        }
        Ok(regs)
    }

    fn read_elements(
        &mut self,
        op: &Op<OpKind>,
        channel: ChannelId,
        tile: u32,
        read: &Read<'_>,
    ) -> Vec<Val> {
        let elem = self.elem(op.results[0]);
        let layout = read.layout;
        let threads = Layout {
            lane: layout.lane.iter().map(|v| read.in_memory(v)).collect(),
            warp: layout.warp.iter().map(|v| read.in_memory(v)).collect(),
            ..layout.clone()
        };
        let mut plan = self.shared_plan(channel, tile, op.operands[0], &threads);
        let neighbours = layout.contiguous(if read.transposed { 0 } else { 1 });
        let aligned = 1 << read.offsets[1].trailing_zeros().min(4);
        let filled = 1 << plan.tile.shape[1].trailing_zeros();
        let width = neighbours.min(CHUNK / plan.element).min(aligned);
        let end = |first| read.at(first)[1] + plan.reach[1] + width;
        let mut firsts = (0..layout.registers()).step_by(width as usize);
        let width = if firsts.any(|first| end(first) > plan.tile.shape[1]) {
            width.min(filled)
        } else {
            width
        };
        let mut regs: Vec<Val> = Vec::with_capacity(layout.registers() as usize);
        let mut seen: HashMap<[u32; 2], usize> = HashMap::new();
        for first in (0..layout.registers()).step_by(width as usize) {
            let at = read.at(first);
            if let Some(&same) = seen.get(&at) {
                regs.extend_from_within(same..same + width as usize);
                continue;
            }
            seen.insert(at, regs.len());
            let bytes = width * plan.element;
            let words = if plan.outside(at) {
                vec![Val::i32(0); bytes.div_ceil(4) as usize]
            } else {
                // In PTX, since LLVM would join loads of several steps of K, and hold all that they bring.
                let (pointer, constant) = self.shared_source(&mut plan, at, width);
                let words = ptx_table::words(bytes);
                let template = ptx_table::load_shared(words, constant as i64);
                self.b.asm(
                    &template.text,
                    &template.constraints,
                    &vec![I32; words.count],
                    &[pointer],
                    Effect::Memory,
                )
            };
            regs.extend(self.unpack(&words, elem, width));
        }
        regs
    }
}

impl SharedPlan<'_> {
    /// Bytes of so many elements of a row.
    pub(super) fn bytes(&self, columns: u32) -> u32 {
        columns * self.tile.elem.bits() / 8
    }

    /// Whether even the first thread is beyond what is filled: what it would read is padding.
    fn outside(&self, at: [u32; 2]) -> bool {
        (0..2).any(|d| at[d] >= self.tile.shape[d])
    }
}

/// Which part of a tile is read, and how it lies among the threads.
struct Read<'l> {
    layout: &'l Layout,
    offsets: [u32; 2],
    transposed: bool,
}

impl Read<'_> {
    /// A coordinate or basis vector of the result as row and column in memory.
    fn in_memory(&self, v: &[u32]) -> Vec<u32> {
        match self.transposed {
            true => vec![v[1], v[0]],
            false => v.to_vec(),
        }
    }

    /// Row and column in memory of what the register holds for lane 0 of warp 0.
    fn at(&self, register: u32) -> [u32; 2] {
        let at = self.in_memory(&self.layout.coordinate(register, 0, 0));
        [self.offsets[0] + at[0], self.offsets[1] + at[1]]
    }
}

/// How `ldmatrix` reads a fragment.
struct Matrices {
    /// Matrices at once: 1, 2 or 4.
    count: usize,
    /// Each lane gets elements of a column, not of a row.
    turned: bool,
    /// Which row of which matrix each lane points to.
    threads: Layout,
}

impl Matrices {
    /// `None` if the layout is no fragment of 8 by 8 matrices whose rows are chunks.
    fn of(read: &Read<'_>, elem: DType) -> Option<Matrices> {
        let layout = read.layout;
        if elem.bits() != 16 || layout.shape.len() != 2 || !read.offsets[1].is_multiple_of(8) {
            return None;
        }
        let turn = |basis: &[Vec<u32>]| -> Vec<Vec<u32>> {
            basis.iter().map(|v| read.in_memory(v)).collect()
        };
        let (register, lane, warp) = (
            turn(&layout.register),
            turn(&layout.lane),
            turn(&layout.warp),
        );
        let (pair, outer) = register.split_first()?;
        let within = std::iter::once(pair).chain(&lane);
        let turned = if within
            .clone()
            .eq(&[[0, 1], [0, 2], [0, 4], [1, 0], [2, 0], [4, 0]])
        {
            false
        } else if within.eq(&[[1, 0], [2, 0], [4, 0], [0, 1], [0, 2], [0, 4]]) {
            true
        } else {
            return None;
        };
        let mut others = outer.iter().chain(&warp).flatten();
        if !others.all(|c| c.is_multiple_of(8)) {
            return None;
        }
        let bits = outer.len().min(2);
        let mut lane = vec![vec![1, 0], vec![2, 0], vec![4, 0]];
        lane.extend_from_slice(&outer[..bits]);
        lane.resize(5, vec![0, 0]);
        Some(Matrices {
            count: 1 << bits,
            turned,
            threads: Layout {
                shape: layout.shape.clone(),
                register: Vec::new(),
                lane,
                warp,
                repeat: vec![1, 1],
            },
        })
    }
}
