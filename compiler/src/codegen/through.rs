//! Operations that move elements between threads in ways that no layout follows: through a tile in shared memory.
//!
//! The tile lies there row-major without gaps. Threads store what they own, all meet, and each loads what it needs. Padding
//! of layouts is neither stored nor loaded.

use tesserine_set::DType;

use super::{
    builder::{Effect, I32, I64, Val},
    lower::{Lower, Regs},
    ptx_table,
};
use crate::{
    diagnostics::Diagnostic,
    ir::{
        Op, ValueId,
        role::{BufferId, OpKind},
        tile::{BinaryOp, ClusterOp, OpKind as Tile},
    },
    layout::{
        Layout,
        scratch::{flat_strides, shared_element},
    },
    target::legality::Instruction,
};

/// The widest access to shared memory, in bytes.
const WIDEST: u32 = 16;

impl<'a> Lower<'a> {
    pub(super) fn through(
        &mut self,
        op: &Op<OpKind>,
        kind: &Tile,
        scratch: Option<BufferId>,
    ) -> Result<(), Diagnostic> {
        let (start, bytes) = match scratch {
            Some(buffer) => {
                let buffer = &self.kernel.buffers[buffer];
                (buffer.offset.unwrap_or(0), buffer.bytes)
            }
            None => (0, 0),
        };
        match kind {
            Tile::Scan { op: how, axis } => return self.scan(op, *how, *axis, (start, bytes)),
            Tile::ClusterReduce { op: how, axis } => {
                return self.cluster_reduce(op, *how, *axis, (start, bytes));
            }
            _ => {}
        }
        self.claim_shared(start, bytes)?;
        let result = op.results[0];
        let elem = self.elem(result);
        let regs = match kind {
            Tile::Sort { .. } => self.sort(op, start)?,
            Tile::Histogram { n } => {
                self.tally(op.operands[0], *n, start)?;
                let layout = self.result_layout(op);
                self.load_flat(layout, &flat_strides(&layout.shape, elem), start, elem)
            }
            Tile::Take { axis } => self.take(op, *axis as usize, start)?,
            Tile::Concat { axis } => {
                let layout = self.result_layout(op);
                let strides = flat_strides(&layout.shape, elem);
                let mut at = start;
                for &value in &op.operands {
                    self.store_flat(value, &strides, at);
                    let shape = self.body.ty(value).ty.shape();
                    at += shape[*axis as usize] * strides[*axis as usize];
                }
                self.barrier()?;
                self.load_flat(layout, &strides, start, elem)
            }
            Tile::Slice(offsets) => {
                let value = op.operands[0];
                let strides = flat_strides(self.body.ty(value).ty.shape(), elem);
                self.store_flat(value, &strides, start);
                self.barrier()?;
                let first: u32 = offsets.iter().zip(&strides).map(|(o, s)| o * s).sum();
                self.load_flat(self.result_layout(op), &strides, start + first, elem)
            }
            _ => {
                // The order of the elements stays: only what the dimensions are changes.
                let value = op.operands[0];
                let strides = flat_strides(self.body.ty(value).ty.shape(), elem);
                self.store_flat(value, &strides, start);
                self.barrier()?;
                let layout = self.result_layout(op);
                self.load_flat(layout, &flat_strides(&layout.shape, elem), start, elem)
            }
        };
        self.note_shared_read(start, bytes);
        self.set(result, regs);
        Ok(())
    }

    pub(super) fn result_layout(&self, op: &Op<OpKind>) -> &'a Layout {
        self.layout(op.results[0]).expect("tiles have layouts")
    }

    /// How many neighbours one access takes: they lie in consecutive registers, and aligned in memory.
    fn flat_width(layout: &Layout, strides: &[u32], start: u32, element: u32) -> u32 {
        let last = layout.shape.len() - 1;
        if strides[last] != element {
            return 1;
        }
        let mut width = layout.neighbours().min(WIDEST / element);
        let aligned = |width: u32| {
            let bytes = width * element;
            let outer = strides[..last].iter().all(|s| s.is_multiple_of(bytes));
            start.is_multiple_of(bytes) && outer && layout.shape[last].is_multiple_of(width)
        };
        while width > 1 && !aligned(width) {
            width /= 2;
        }
        width
    }

    /// The byte at which the thread's elements begin, the coordinates of its registers apart.
    fn flat_thread(&mut self, layout: &Layout, strides: &[u32], start: u32) -> Val {
        let coordinates = self.thread_coordinates(layout);
        let mut bytes = Val::i32(start);
        for (&c, &stride) in coordinates.iter().zip(strides) {
            let part = self.b.mul(c, Val::i32(stride));
            bytes = self.b.add(bytes, part);
        }
        bytes
    }

    /// Stores a tile, its dimensions `strides` bytes apart.
    pub(super) fn store_flat(&mut self, value: ValueId, strides: &[u32], start: u32) {
        let regs = self.get(value);
        let layout = self.layout(value).expect("tiles have layouts");
        let elem = self.elem(value);
        self.store_regs(&regs, layout, strides, start, elem);
    }

    pub(super) fn store_regs(
        &mut self,
        regs: &[Val],
        layout: &Layout,
        strides: &[u32],
        start: u32,
        elem: DType,
    ) {
        let element = shared_element(elem);
        let owner = self.owner(Some(layout));
        let base = self.flat_thread(layout, strides, start);
        let base = self.shared_pointer(base);
        let width = Self::flat_width(layout, strides, start, element);
        let mut seen = Vec::new();
        for first in (0..layout.registers()).step_by(width as usize) {
            let at = layout.coordinate(first, 0, 0);
            if !layout.contains(&at) || seen.contains(&at) {
                continue;
            }
            let inside = self.thread_inside(layout, &at);
            let condition = self.b.and(inside, owner);
            let bytes: u32 = at.iter().zip(strides).map(|(c, s)| c * s).sum();
            let pointer = self.b.offset(base, Val::i64(bytes.into()));
            let words = self.pack(&regs[first as usize..(first + width) as usize], elem);
            self.store_shared(pointer, &words, width * element, condition);
            seen.push(at);
        }
    }

    /// Loads a tile in `layout`, its dimensions `strides` bytes apart; padding holds anything, and zeros where it takes whole
    /// registers, which products read too.
    pub(super) fn load_flat(
        &mut self,
        layout: &Layout,
        strides: &[u32],
        start: u32,
        elem: DType,
    ) -> Vec<Val> {
        let element = shared_element(elem);
        let base = self.flat_thread(layout, strides, start);
        let pointer = self.shared_pointer(base);
        let width = Self::flat_width(layout, strides, start, element);
        let mut regs = Vec::with_capacity(layout.registers() as usize);
        for first in (0..layout.registers()).step_by(width as usize) {
            let at = layout.coordinate(first, 0, 0);
            if !layout.contains(&at) {
                let nothing = self.zero(elem);
                regs.extend(vec![nothing; width as usize]);
                continue;
            }
            let bytes: u32 = at.iter().zip(strides).map(|(c, s)| c * s).sum();
            let inside = self.thread_inside(layout, &at);
            let place = if inside.is_true() {
                self.b.offset(pointer, Val::i64(bytes.into()))
            } else {
                // What lies in the padding reads the beginning.
                let there = self.b.add(base, Val::i32(bytes));
                let there = self.b.select(inside, there, Val::i32(start));
                self.shared_pointer(there)
            };
            let words = self.load_shared(place, width * element);
            regs.extend(self.unpack(&words, elem, width));
        }
        regs
    }

    fn take(&mut self, op: &Op<OpKind>, axis: usize, start: u32) -> Result<Vec<Val>, Diagnostic> {
        let (x, index) = (op.operands[0], op.operands[1]);
        let elem = self.elem(x);
        let shape = self.body.ty(x).ty.shape();
        let strides = flat_strides(shape, elem);
        self.store_flat(x, &strides, start);
        self.barrier()?;
        let layout = self.result_layout(op);
        let places = self.get(index);
        // The bytes that the other coordinates give.
        let mut others = strides.clone();
        others[axis] = 0;
        let base = self.flat_thread(layout, &others, start);
        let mut regs = Vec::with_capacity(places.len());
        for (register, &place) in places.iter().enumerate() {
            let at = layout.coordinate(register as u32, 0, 0);
            let zero = self.zero_of(elem);
            if !layout.contains(&at) {
                regs.push(zero);
                continue;
            }
            let extent = Val::int(shape[axis].into(), place.ty);
            let there = self.b.icmp("ult", place, extent);
            let inside = self.thread_inside(layout, &at);
            let inside = self.b.and(there, inside);
            let place = self.b.resize(place, I32, false);
            let bytes = self.b.mul(place, Val::i32(strides[axis]));
            let bytes = self.b.add(base, bytes);
            let constant: u32 = at.iter().zip(&others).map(|(c, s)| c * s).sum();
            let bytes = self.b.add(bytes, Val::i32(constant));
            let bytes = self.b.select(inside, bytes, Val::i32(start));
            let pointer = self.shared_pointer(bytes);
            let words = self.load_shared(pointer, strides[strides.len() - 1]);
            let value = self.unpack(&words, elem, 1)[0];
            regs.push(self.b.select(inside, value, zero));
        }
        Ok(regs)
    }

    fn zero_of(&mut self, elem: DType) -> Val {
        let ty = super::lower::register_type(elem);
        if ty.is_int() {
            Val::int(0, ty)
        } else {
            Val::float(0.0, ty)
        }
    }

    /// Counts in shared memory how many elements are each of 0..n.
    fn tally(&mut self, value: ValueId, n: u32, start: u32) -> Result<(), Diagnostic> {
        self.need(Instruction::SharedAtomic)?;
        self.for_each(n, &mut |this, i| {
            let bytes = this.b.mul(i, Val::i32(4));
            let bytes = this.b.add(bytes, Val::i32(start));
            let pointer = this.shared_pointer(bytes);
            this.b.store(Val::i32(0), pointer, 4);
            Ok(())
        })?;
        self.barrier()?;
        let regs: Regs = self.get(value);
        let layout = self.layout(value).expect("tiles have layouts");
        let owner = self.owner(Some(layout));
        let template = ptx_table::count_shared();
        let mut seen = Vec::new();
        for (register, &x) in regs.iter().enumerate() {
            let at = layout.coordinate(register as u32, 0, 0);
            if !layout.contains(&at) || seen.contains(&at) {
                continue;
            }
            let inside = self.thread_inside(layout, &at);
            let bits = x.ty.bits();
            // All values of a narrow type may be counted.
            let counted = if bits < 32 && n >= 1 << bits {
                match self.elem(value).is_signed() {
                    true => self.b.icmp("sge", x, Val::int(0, x.ty)),
                    false => Val::bool(true),
                }
            } else {
                self.b.icmp("ult", x, Val::int(n.into(), x.ty))
            };
            let condition = self.b.and(inside, owner);
            let condition = self.b.and(condition, counted);
            let place = self.b.resize(x, I32, false);
            let place = self.b.select(condition, place, Val::i32(0));
            let bytes = self.b.mul(place, Val::i32(4));
            let bytes = self.b.add(bytes, Val::i32(start));
            let pointer = self.shared_pointer(bytes);
            self.b.asm(
                &template.text,
                &template.constraints,
                &[],
                &[pointer, condition],
                Effect::Memory,
            );
            seen.push(at);
        }
        self.barrier()
    }

    /// Runs `body` for the numbers of 0..count, divided among the threads: in a loop, but for few.
    pub(super) fn for_each(
        &mut self,
        count: u32,
        body: &mut dyn FnMut(&mut Self, Val) -> Result<(), Diagnostic>,
    ) -> Result<(), Diagnostic> {
        let threads = self.threads;
        if count == 0 {
            return Ok(());
        }
        let (head, work, after) = (self.b.label(), self.b.label(), self.b.label());
        if count <= threads {
            let inside = self.b.icmp("ult", self.thread, Val::i32(count));
            if count == threads {
                return body(self, self.thread);
            }
            self.b.branch(inside, work, after, false);
            self.b.begin(work);
            body(self, self.thread)?;
            self.b.jump(after);
            self.b.begin(after);
            return Ok(());
        }
        let before = self.b.block();
        self.b.jump(head);
        self.b.begin(head);
        let slot = self.b.phis(&[I32]);
        let i = slot.results()[0];
        body(self, i)?;
        let next = self.b.add(i, Val::i32(threads));
        let again = self.b.icmp("ult", next, Val::i32(count));
        let latch = self.b.block();
        self.b.branch(again, head, after, true);
        let first = self.thread;
        self.b
            .fill(slot, &[(before, vec![first]), (latch, vec![next])]);
        self.b.begin(after);
        Ok(())
    }

    /// Over the blocks of the cluster that differ on one axis: each reads all of their tiles, in order of their ranks, so
    /// that all end with the same bits.
    fn cluster_reduce(
        &mut self,
        op: &Op<OpKind>,
        how: ClusterOp,
        axis: u32,
        (start, bytes): (u32, u32),
    ) -> Result<(), Diagnostic> {
        self.need(Instruction::Cluster)?;
        let (value, result) = (op.operands[0], op.results[0]);
        let elem = self.elem(value);
        let element = shared_element(elem);
        let regs = self.get(value);
        let scalar = self.layout(value).is_none();
        let header = &self.kernel.header;
        let count = header.axes[axis as usize].extent.as_int().unwrap_or(1) as u32;
        let inner: i64 = header.axes[axis as usize + 1..]
            .iter()
            .filter(|a| a.cluster)
            .filter_map(|a| a.extent.as_int())
            .product();

        // Registers of one number lie side by side, thread after thread: the layouts are the same in all blocks.
        let (step, mine, writer) = if scalar {
            let first = self.b.icmp("eq", self.thread, Val::i32(0));
            (element, Val::i32(start), first)
        } else {
            let distance = self.b.mul(self.thread, Val::i32(element));
            let mine = self.b.add(distance, Val::i32(start));
            (element * self.threads, mine, Val::bool(true))
        };
        self.claim_shared(start, bytes)?;
        let pointer = self.shared_pointer(mine);
        for (i, &value) in regs.iter().enumerate() {
            let words = self.pack(&[value], elem);
            let place = self.b.offset(pointer, Val::i64(i64::from(step) * i as i64));
            self.store_shared(place, &words, element, writer);
        }
        let cluster = self.kernel.header.cluster();
        self.meet(cluster)?;
        let own = self.axes[axis as usize];
        let own = self.b.resize(own, I32, false);
        let rank = self.cluster_rank();
        let back = self.b.mul(own, Val::i32(inner as u32));
        let base = self.b.sub(rank, back);
        let mut sums: Vec<Option<Val>> = vec![None; regs.len()];
        for peer in 0..count {
            let number = self.b.add(base, Val::i32(peer * inner as u32));
            let map = ptx_table::map_shared();
            let place = self.b.asm(
                &map.text,
                &map.constraints,
                &[I64],
                &[pointer, number],
                Effect::Pure,
            )[0];
            let counts = self.b.icmp("ult", Val::i32(peer), own);
            for (i, sum) in sums.iter_mut().enumerate() {
                let load = ptx_table::load_cluster(ptx_table::words(element), step as usize * i);
                let types = vec![I32; ptx_table::words(element).count];
                let words = self.b.asm(
                    &load.text,
                    &load.constraints,
                    &types,
                    &[place],
                    Effect::Memory,
                );
                let mut found = self.unpack(&words, elem, 1)[0];
                if how == ClusterOp::Before {
                    let zero = self.zero_of(elem);
                    found = self.b.select(counts, found, zero);
                }
                *sum = Some(match *sum {
                    None => found,
                    Some(sum) => {
                        let binary = match how {
                            ClusterOp::Sum | ClusterOp::Before => BinaryOp::Add,
                            ClusterOp::Max => BinaryOp::Max,
                            ClusterOp::Min => BinaryOp::Min,
                        };
                        self.binary(binary, sum, found, elem, false)?
                    }
                });
            }
        }
        // Nobody writes there again before all have read.
        self.meet(cluster)?;
        let sums: Vec<Val> = sums.into_iter().flatten().collect();
        self.set(result, sums);
        Ok(())
    }
}
