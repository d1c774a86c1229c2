//! What moves elements: changes of shape, which only choose registers, and conversions between layouts, which go through
//! shared memory where other threads hold what a thread needs.

use tesserine_set::DType;

use super::{
    builder::{I8, I16, I32, I64, Kind, SHARED, Ty, Val},
    lower::Lower,
    ptx_table,
};
use crate::{
    diagnostics::Diagnostic,
    ir::{
        Op,
        role::{BufferId, OpKind},
        tile::OpKind as Tile,
    },
    layout::{Layout, convert_sources, register_sources, scratch::ConvertBuffer},
};

impl Lower<'_> {
    /// `broadcast`, `reshape`, `permute` and `slice`.
    pub fn rearrange(&mut self, op: &Op<OpKind>, kind: &Tile) -> Result<Vec<Val>, Diagnostic> {
        let operand = self.get(op.operands[0]);
        let (from, to) = (self.layout(op.operands[0]), self.layout(op.results[0]));
        let (from, to) = match (from, to) {
            (_, None) => return Ok(vec![operand[0]]),
            (None, Some(to)) => return Ok(vec![operand[0]; to.registers() as usize]),
            (Some(from), Some(to)) => (from, to),
        };
        let sources = register_sources(kind, from, to).unwrap_or_else(|| {
            unreachable!("layouts of a change of shape agree: {from:?} and {to:?}")
        });
        debug_assert!(sources.iter().all(|&r| (r as usize) < operand.len()));
        Ok(sources.iter().map(|&r| operand[r as usize]).collect())
    }

    pub fn convert(
        &mut self,
        op: &Op<OpKind>,
        scratch: Option<BufferId>,
    ) -> Result<(), Diagnostic> {
        let (value, result) = (op.operands[0], op.results[0]);
        let operand = self.get(value);
        let elem = self.elem(value);
        let (Some(from), Some(to)) = (self.layout(value), self.layout(result)) else {
            self.set(result, operand);
            return Ok(());
        };
        let Some(scratch) = scratch else {
            let sources = convert_sources(from, to).unwrap_or_else(|| {
                unreachable!("a conversion without scratch moves registers only")
            });
            let regs: Vec<Val> = sources.iter().map(|&r| operand[r as usize]).collect();
            self.set(result, regs);
            return Ok(());
        };
        let buffer = ConvertBuffer::new(from, to, elem);
        let start = self.kernel.buffers[scratch].offset.unwrap_or(0);
        let shift = self.replica_shift(scratch);
        let regs = self.pass_tile(&operand, [from, to], &buffer, (start, shift), elem)?;
        self.set(result, regs);
        Ok(())
    }

    /// Registers of a tile in the second layout, from those in the first, of replicas the first thread's.
    pub fn pass_tile(
        &mut self,
        regs: &[Val],
        [from, to]: [&Layout; 2],
        buffer: &ConvertBuffer,
        (start, shift): (u32, Option<Val>),
        elem: DType,
    ) -> Result<Vec<Val>, Diagnostic> {
        self.claim_shared(start, buffer.bytes)?;
        let begin = match shift {
            Some(shift) => self.b.add(Val::i32(start), shift),
            None => Val::i32(start),
        };
        self.write_tile(regs, from, buffer, begin, elem);
        self.barrier()?;
        let regs = self.read_tile([from, to], buffer, begin, elem);
        self.note_shared_read(start, buffer.bytes);
        Ok(regs)
    }

    /// Bytes from one element to the next along each dimension.
    fn byte_strides(buffer: &ConvertBuffer) -> Vec<u32> {
        let rank = buffer.extents.len();
        let mut strides = vec![buffer.element; rank];
        let mut stride = buffer.pitch;
        for d in (0..rank - 1).rev() {
            strides[d] = stride;
            stride *= buffer.extents[d];
        }
        strides
    }

    /// The byte at which the thread's elements begin in shared memory.
    fn thread_bytes(&mut self, layout: &Layout, strides: &[u32], start: Val) -> Val {
        let coordinates = self.thread_coordinates(layout);
        let mut bytes = start;
        for (&c, &stride) in coordinates.iter().zip(strides) {
            let part = self.b.mul(c, Val::i32(stride));
            bytes = self.b.add(bytes, part);
        }
        bytes
    }

    /// The address `bytes` into the block's shared memory.
    pub fn shared_pointer(&mut self, bytes: Val) -> Val {
        let base = Val {
            ty: SHARED,
            kind: Kind::SharedBase,
        };
        let bytes = self.b.resize(bytes, I64, false);
        self.b.offset(base, bytes)
    }

    /// How many consecutive registers one access takes.
    fn access_width(layout: &Layout, buffer: &ConvertBuffer) -> u32 {
        let most = (buffer.access / buffer.element).max(1);
        layout.neighbours().min(most)
    }

    fn write_tile(
        &mut self,
        regs: &[Val],
        layout: &Layout,
        buffer: &ConvertBuffer,
        start: Val,
        elem: DType,
    ) {
        let strides = Self::byte_strides(buffer);
        let base = self.thread_bytes(layout, &strides, start);
        let base = self.shared_pointer(base);
        let owner = self.owner(Some(layout));
        let width = Self::access_width(layout, buffer);
        let mut seen = Vec::new();
        for first in (0..regs.len()).step_by(width as usize) {
            let at = layout.coordinate(first as u32, 0, 0);
            if seen.contains(&at) {
                continue;
            }
            let bytes: u32 = at.iter().zip(&strides).map(|(c, s)| c * s).sum();
            let words = self.pack(&regs[first..first + width as usize], elem);
            let pointer = self.b.offset(base, Val::i64(bytes as i64));
            self.store_shared(pointer, &words, width * buffer.element, owner);
            seen.push(at);
        }
    }

    /// Stores `bytes` bytes of `words` where `owner` holds.
    pub fn store_shared(&mut self, pointer: Val, words: &[Val], bytes: u32, owner: Val) {
        if !owner.is_true() {
            let template = ptx_table::store_shared(ptx_table::words(bytes));
            let mut args = vec![pointer];
            args.extend_from_slice(words);
            args.push(owner);
            self.b.asm(
                &template.text,
                &template.constraints,
                &[],
                &args,
                super::builder::Effect::Memory,
            );
            return;
        }
        let value = match bytes {
            1 => self.b.resize(words[0], I8, false),
            2 => self.b.resize(words[0], I16, false),
            _ => self.b.vector(words),
        };
        self.b.store(value, pointer, bytes);
    }

    /// Loads `bytes` bytes as 32-bit words.
    pub fn load_shared(&mut self, pointer: Val, bytes: u32) -> Vec<Val> {
        let count = ptx_table::words(bytes).count;
        let ty = match bytes {
            1 => I8,
            2 => I16,
            4 => I32,
            _ => Ty::vector(I32, count),
        };
        let all = self.b.load(pointer, ty, bytes, false);
        match bytes {
            1 | 2 => vec![self.b.resize(all, I32, false)],
            _ => (0..count).map(|i| self.b.extract(all, i)).collect(),
        }
    }

    /// Reads a tile in the second layout that was written in the first. What the first has no place for, not even in its padding, is
    /// nothing that anyone wrote, and reads the beginning.
    fn read_tile(
        &mut self,
        [from, layout]: [&Layout; 2],
        buffer: &ConvertBuffer,
        start: Val,
        elem: DType,
    ) -> Vec<Val> {
        let strides = Self::byte_strides(buffer);
        let base = self.thread_bytes(layout, &strides, start);
        let pointer = self.shared_pointer(base);
        let written = from.padded();
        let width = Self::access_width(layout, buffer);
        let mut regs = Vec::with_capacity(layout.registers() as usize);
        for first in (0..layout.registers()).step_by(width as usize) {
            let at = layout.coordinate(first, 0, 0);
            let bytes: u32 = at.iter().zip(&strides).map(|(c, s)| c * s).sum();
            let inside = self.thread_below(layout, &at, &written);
            let place = if inside.is_true() {
                self.b.offset(pointer, Val::i64(bytes.into()))
            } else {
                let there = self.b.add(base, Val::i32(bytes));
                let there = self.b.select(inside, there, start);
                self.shared_pointer(there)
            };
            let words = self.load_shared(place, width * buffer.element);
            regs.extend(self.unpack(&words, elem, width));
        }
        regs
    }
}
