//! Atomic operations on memory, and the arrival of blocks at a counter.
//!
//! One thread does what concerns an element; old values that are used pass through shared memory to the threads that hold
//! replicas. Counting is ordered with the block's stores by fences of the counting thread on both sides, and by barriers
//! between it and the other threads.

use std::collections::HashMap;

use tesserine_set::DType;

use super::{
    access::When,
    builder::{Effect, I1, I32, I64, Ty, Val},
    lower::{Lower, register_type},
    ptx_table::{self, words},
};
use crate::{
    diagnostics::Diagnostic,
    ir::{
        Op,
        role::{BufferId, OpKind},
        tile::{AtomicOp, Index},
    },
    layout::scratch::ConvertBuffer,
    target::legality::Instruction,
};

impl Lower<'_> {
    pub fn atomic(
        &mut self,
        op: &Op<OpKind>,
        kind: AtomicOp,
        indices: &[Index],
        scratch: Option<BufferId>,
    ) -> Result<(), Diagnostic> {
        self.need(Instruction::Atomic)?;
        let result = op.results[0];
        let layout = self.layout(result);
        let first = 1 + indices.iter().map(|i| i.operands()).sum::<usize>();
        let (places, values) = op.operands.split_at(first);
        let mut plan = self.plan(places[0], indices, &places[1..], layout, Val::bool(true))?;
        let elem = self.elem(result);
        let owner = self.owner(layout);
        let values: Vec<_> = values.iter().map(|&v| self.get(v)).collect();
        let count = layout.map_or(1, |l| l.registers() as usize);
        let mut olds: Vec<Val> = Vec::with_capacity(count);
        let mut seen: HashMap<Vec<u32>, usize> = HashMap::new();
        for register in 0..count {
            let at = layout.map_or(Vec::new(), |l| l.coordinate(register as u32, 0, 0));
            if let Some(&same) = seen.get(&at) {
                olds.push(olds[same]);
                continue;
            }
            let condition = match self.when(&mut plan, &at) {
                When::Always => owner,
                When::Never => Val::bool(false),
                When::If(inside) => self.b.and(inside, owner),
            };
            let operands: Vec<Val> = values.iter().map(|v| v[register]).collect();
            let old = if condition.is_false() {
                self.zero(elem)
            } else {
                let (pointer, offset) = self.address(&mut plan, &at);
                let pointer = self.b.offset(pointer, Val::i64(offset));
                self.exchange(kind, pointer, &operands, elem, condition)
            };
            seen.insert(at, register);
            olds.push(old);
        }
        let Some(scratch) = scratch else {
            self.set(result, olds);
            return Ok(());
        };
        let start = self.kernel.buffers[scratch].offset.unwrap_or(0);
        match layout {
            Some(layout) => {
                let buffer = ConvertBuffer::new(layout, layout, elem);
                let regs = self.pass_tile(&olds, [layout, layout], &buffer, (start, None), elem)?;
                self.set(result, regs);
            }
            None => {
                let bytes = elem.bits() / 8;
                let parts = self.pack(&olds, elem);
                let words = self.pass_words(&parts, owner, start, bytes)?;
                let value = self.unpack(&words, elem, 1);
                self.set(result, value);
            }
        }
        Ok(())
    }

    /// Passes what one thread holds, `bytes` bytes, to all others.
    fn pass_words(
        &mut self,
        parts: &[Val],
        holder: Val,
        start: u32,
        bytes: u32,
    ) -> Result<Vec<Val>, Diagnostic> {
        self.claim_shared(start, bytes)?;
        let pointer = self.shared_pointer(Val::i32(start));
        self.store_shared(pointer, parts, bytes, holder);
        self.barrier()?;
        let words = self.load_shared(pointer, bytes);
        self.note_shared_read(start, bytes);
        Ok(words)
    }

    /// What was at the pointer; 0 where `condition` does not hold, and then nothing happens.
    fn exchange(
        &mut self,
        kind: AtomicOp,
        pointer: Val,
        operands: &[Val],
        elem: DType,
        condition: Val,
    ) -> Val {
        let ty = register_type(elem);
        let wide = elem.bits() == 64;
        let word = if wide { I64 } else { I32 };
        let template = ptx_table::atomic(kind, elem, condition.is_true());
        let bits: Vec<Val> = operands.iter().map(|&v| self.b.bitcast(v, word)).collect();
        let mut args = vec![pointer];
        args.extend(bits);
        if !condition.is_true() {
            args.push(condition);
            args.push(Val::int(0, word));
        }
        let result: [Ty; 1] = [word];
        let old = self.b.asm(
            &template.text,
            &template.constraints,
            &result,
            &args,
            Effect::Memory,
        )[0];
        self.b.bitcast(old, ty)
    }

    pub fn arrive(
        &mut self,
        op: &Op<OpKind>,
        indices: &[Index],
        scratch: Option<BufferId>,
    ) -> Result<(), Diagnostic> {
        self.need(Instruction::Atomic)?;
        let (&total, places) = op.operands.split_last().expect("the verifier counted");
        let mut plan = self.plan(places[0], indices, &places[1..], None, Val::bool(true))?;
        let condition = match self.when(&mut plan, &[]) {
            When::Always => Val::bool(true),
            When::Never => Val::bool(false),
            When::If(inside) => inside,
        };
        let first = self.owner(None);
        let counts = self.b.and(first, condition);
        let (pointer, offset) = self.address(&mut plan, &[]);
        let pointer = self.b.offset(pointer, Val::i64(offset));
        let total = self.scalar(total);
        let last = self.b.sub(total, Val::i64(1));
        let last = self.b.resize(last, I32, true);
        // What all threads stored happens before the first one counts.
        self.barrier()?;
        let template = ptx_table::arrive();
        let counted = self.b.asm(
            &template.text,
            &template.constraints,
            &[I32],
            &[pointer, last, counts],
            Effect::Memory,
        );
        let start = scratch
            .and_then(|b| self.kernel.buffers[b].offset)
            .unwrap_or(0);
        debug_assert_eq!(words(4).count, counted.len());
        let all = self.pass_words(&counted, first, start, 4)?;
        let is_last = self.b.icmp("ne", all[0], Val::i32(0));
        debug_assert_eq!(is_last.ty, I1);
        self.set(op.results[0], vec![is_last]);
        Ok(())
    }
}
