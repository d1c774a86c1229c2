//! Running sums and maxima: in each thread's run of registers, over lanes by shuffles, over warps through shared memory,
//! and from block to block of the layout.

use std::collections::BTreeMap;

use super::{
    builder::{Effect, F32, I32, I64, Val},
    lower::Lower,
    reduce::{Partial, Scheme},
};
use crate::{
    diagnostics::Diagnostic,
    ir::{
        Op,
        role::OpKind,
        tile::{ReduceOp, ScanOp},
    },
    layout::scratch::ScanBuffer,
    target::legality::Instruction,
};

/// The widest access to shared memory, in bytes.
const WIDEST: u32 = 16;

/// A thread's elements that follow each other, with what comes before them.
struct Run {
    registers: Vec<usize>,
    /// The sum up to and with each.
    sums: Vec<Partial>,
    /// What the lanes before, in this block of the layout, add up to.
    before: Partial,
    /// What all lanes of the warp add up to.
    total: Partial,
}

impl Lower<'_> {
    /// `scratch`: where it begins and how long it is.
    pub(super) fn scan(
        &mut self,
        op: &Op<OpKind>,
        how: ScanOp,
        axis: u32,
        scratch: (u32, u32),
    ) -> Result<(), Diagnostic> {
        let (value, result) = (op.operands[0], op.results[0]);
        let layout = self.result_layout(op);
        let (elem, to) = (self.elem(value), self.elem(result));
        let reduce = match how {
            ScanOp::Sum => ReduceOp::Sum,
            ScanOp::Max => ReduceOp::Max,
        };
        let scheme = Scheme::new(reduce, elem);
        let regs = self.get(value);
        let wide = self.widen(&regs, elem, scheme)?;
        let a = axis as usize;
        let block = layout.block()[a];

        // Runs by line and block, in order.
        let mut places: BTreeMap<(Vec<u32>, u32), BTreeMap<u32, usize>> = BTreeMap::new();
        for register in 0..regs.len() {
            let at = layout.coordinate(register as u32, 0, 0);
            let mut line = at.clone();
            line[a] = 0;
            let run = places.entry((line, at[a] / block)).or_default();
            run.entry(at[a] % block).or_insert(register);
        }
        let mut runs = Vec::new();
        for (_, run) in places.iter() {
            let registers: Vec<usize> = run.values().copied().collect();
            let mut sums: Vec<Partial> = Vec::with_capacity(registers.len());
            for &register in &registers {
                let own = Partial::of(wide[register]);
                let sum = match sums.last() {
                    Some(&last) => self.combine(last, own, scheme),
                    None => own,
                };
                sums.push(sum);
            }
            let last = sums[sums.len() - 1];
            let (before, total) = self.over_lanes(last, layout.lanes_along(a), scheme)?;
            runs.push(Run {
                registers,
                sums,
                before,
                total,
            });
        }
        if let Some(buffer) = ScanBuffer::new(layout, a, to) {
            self.over_scanning_warps(&mut runs, &buffer, layout.lanes_along(a), scratch, scheme)?;
        }

        let mut out = vec![None; regs.len()];
        let mut line: Option<&Vec<u32>> = None;
        let mut carry = scheme.neutral();
        for ((key, _), run) in places.keys().zip(&runs) {
            if line != Some(key) {
                line = Some(key);
                carry = scheme.neutral();
            }
            let first = carry == scheme.neutral();
            let before = if first {
                run.before
            } else {
                self.combine(carry, run.before, scheme)
            };
            for (&register, &sum) in run.registers.iter().zip(&run.sums) {
                let sum = self.combine(before, sum, scheme);
                out[register] = Some(sum);
            }
            carry = if first {
                run.total
            } else {
                self.combine(carry, run.total, scheme)
            };
        }
        // Registers that repeat another's element.
        let mut finished = Vec::with_capacity(out.len());
        for register in 0..out.len() {
            let sum = match out[register] {
                Some(sum) => sum,
                None => {
                    let at = layout.coordinate(register as u32, 0, 0);
                    let first = (0..register).find(|&r| layout.coordinate(r as u32, 0, 0) == at);
                    match first.and_then(|r| out[r]) {
                        Some(sum) => sum,
                        None => unreachable!("each element has a first register"),
                    }
                }
            };
            finished.push(self.finish_partial(sum, elem, to, scheme)?);
        }
        self.set(result, finished);
        Ok(())
    }

    /// What the lanes before this one add up to, and what all do, among the lanes that differ in the bits of `mask`, the
    /// lowest ones.
    fn over_lanes(
        &mut self,
        own: Partial,
        mask: u32,
        scheme: Scheme,
    ) -> Result<(Partial, Partial), Diagnostic> {
        let bits = mask.count_ones();
        if bits == 0 {
            return Ok((scheme.neutral(), own));
        }
        self.need(Instruction::ShuffleUp)?;
        let lane = self.b.and(self.thread, Val::i32(mask));
        let mut sum = own;
        for i in 0..bits {
            let other = Partial::of(self.shuffle_up(sum.value, 1 << i, mask));
            let together = self.combine(other, sum, scheme);
            let has = self.b.icmp("uge", lane, Val::i32(1 << i));
            sum = Partial::of(self.b.select(has, together.value, sum.value));
        }
        let before = self.shuffle_up(sum.value, 1, mask);
        let first = self.b.icmp("eq", lane, Val::i32(0));
        let before = self.b.select(first, scheme.neutral().value, before);
        let last = self.b.or(self.thread, Val::i32(mask));
        let last = self.b.and(last, Val::i32(31));
        let total = self.shuffle_from(sum.value, last);
        Ok((Partial::of(before), Partial::of(total)))
    }

    /// The value of the lane `distance` below, within groups of lanes that differ in `mask`; its own where there is none.
    fn shuffle_up(&mut self, value: Val, distance: u32, mask: u32) -> Val {
        let clamp = (31 - mask) << 8;
        self.shuffled(value, "up", Val::i32(distance), clamp)
    }

    fn shuffle_from(&mut self, value: Val, lane: Val) -> Val {
        self.shuffled(value, "idx", lane, 31)
    }

    fn shuffled(&mut self, value: Val, how: &str, operand: Val, clamp: u32) -> Val {
        if value.ty.bits() == 64 {
            let whole = self.b.bitcast(value, I64);
            let low = self.b.resize(whole, I32, false);
            let high = self.b.lshr(whole, 32);
            let high = self.b.resize(high, I32, false);
            let [low, high] = [low, high].map(|v| {
                let moved = self.shuffled(v, how, operand, clamp);
                self.b.cast("zext", moved, I64)
            });
            let up = self.b.shl(high, 32);
            let whole = self.b.or(up, low);
            return self.b.bitcast(whole, value.ty);
        }
        let ty = if value.ty == F32 { "f32" } else { "i32" };
        let name = format!("llvm.nvvm.shfl.sync.{how}.{ty}");
        let args = [Val::int(-1, I32), value, operand, Val::i32(clamp)];
        self.b
            .call(Some(value.ty), &name, &args, Effect::Convergent)
    }

    /// Adds to each run what the warps before it hold, and makes totals those of all warps along the axis.
    fn over_scanning_warps(
        &mut self,
        runs: &mut [Run],
        buffer: &ScanBuffer,
        lanes: u32,
        (start, bytes): (u32, u32),
        scheme: Scheme,
    ) -> Result<(), Diagnostic> {
        let count = 1u32 << buffer.warp_bits.len();
        let warps = count << buffer.other_warp_bits.len();
        let lane = self.gather_bits(&buffer.lane_bits);
        let in_thread = |bits: &[u32]| bits.iter().map(|b| b + 5).collect::<Vec<_>>();
        let own = self.gather_bits(&in_thread(&buffer.warp_bits));
        let others = self.gather_bits(&in_thread(&buffer.other_warp_bits));
        let first = self.b.mul(others, Val::i32(count));
        let row = self.b.mul(lane, Val::i32(warps));
        let row = self.b.add(row, first);
        let row = self.b.mul(row, Val::i32(buffer.slot));
        let row = self.b.add(row, Val::i32(start));
        let distance = self.b.mul(own, Val::i32(buffer.slot));
        let mine = self.b.add(row, distance);
        let (row, mine) = (self.shared_pointer(row), self.shared_pointer(mine));
        let place = self.b.and(self.thread, Val::i32(lanes));
        let writes = self.b.icmp("eq", place, Val::i32(0));
        self.claim_shared(start, bytes)?;
        for (i, run) in runs.iter().enumerate() {
            let pointer = self
                .b
                .offset(mine, Val::i64(i as i64 * i64::from(buffer.run)));
            let words = self.words_of(run.total.value);
            self.store_shared(pointer, &words, 4 * words.len() as u32, writes);
        }
        self.barrier()?;
        for (i, run) in runs.iter_mut().enumerate() {
            let base = self
                .b
                .offset(row, Val::i64(i as i64 * i64::from(buffer.run)));
            let mut before = scheme.neutral();
            let mut total: Option<Partial> = None;
            // Up to four totals with one access.
            let wide = (WIDEST / buffer.slot).min(count);
            let words: Vec<Val> = (0..count / wide)
                .flat_map(|k| {
                    let at = i64::from(k * wide * buffer.slot);
                    let pointer = self.b.offset(base, Val::i64(at));
                    self.load_shared(pointer, wide * buffer.slot)
                })
                .collect();
            let per = words.len() / count as usize;
            for (k, words) in (0..count).zip(words.chunks(per)) {
                let sum = Partial::of(self.value_of(words, scheme.ty));
                let all = match total {
                    Some(total) => self.combine(total, sum, scheme),
                    None => sum,
                };
                total = Some(all);
                if k + 1 < count {
                    // Of the warps up to k, if they all stand before this one.
                    let has = self.b.icmp("ugt", own, Val::i32(k));
                    before = Partial::of(self.b.select(has, all.value, before.value));
                }
            }
            run.before = self.combine(before, run.before, scheme);
            run.total = total.unwrap_or(run.total);
        }
        self.note_shared_read(start, bytes);
        Ok(())
    }
}
