//! Sorting rows of `i64`, ascending, by a bitonic network, whose steps compare pairs at one distance.
//!
//! Where the threads are a power of two and none has too many elements, each holds neighbours in registers: it compares what
//! is nearer than that itself, what lies in its warp by shuffles, and only the rest through shared memory. Elsewhere the rows
//! stay in shared memory, and all threads meet after each step. Steps and distances are counted at run time, so that the code
//! does not grow with the tile.

use tesserine_set::DType;

use super::{
    builder::{Effect, I32, I64, Val},
    lower::Lower,
};
use crate::{
    diagnostics::Diagnostic,
    ir::{Op, role::OpKind},
    layout::scratch::flat_strides,
    target::{Target, legality::Instruction},
};

/// The most elements of a thread that are held in registers.
const HELD: u32 = 16;

impl Lower<'_> {
    /// The result's registers; rows lie in shared memory from `start` on, each filled up to a power of two.
    pub(super) fn sort(&mut self, op: &Op<OpKind>, start: u32) -> Result<Vec<Val>, Diagnostic> {
        let value = op.operands[0];
        let mut shape = self.body.ty(value).ty.shape().to_vec();
        let Some(last) = shape.last_mut() else {
            unreachable!("a tile has a dimension");
        };
        let length = *last;
        let row = length.next_power_of_two();
        *last = row;
        let rows: u32 = shape[..shape.len() - 1].iter().product();
        let strides = flat_strides(&shape, DType::I64);
        self.store_flat(value, &strides, start);
        let spare = row - length;
        self.for_each(rows * spare, &mut |this, i| {
            // Behind all keys.
            let line = this.b.binary("udiv", i, Val::i32(spare));
            let before = this.b.mul(line, Val::i32(length));
            let place = this.b.add(i, before);
            let place = this.b.add(place, Val::i32(length));
            let pointer = this.element(place, start);
            this.b.store(Val::i64(i64::MAX), pointer, 8);
            Ok(())
        })?;
        self.barrier()?;
        let count = rows * row;
        let each = count.div_ceil(self.threads);
        let halves = count.is_power_of_two() && self.threads.is_power_of_two();
        if row > 1 && halves && self.threads >= Target::WARP && each <= HELD {
            self.held_network(row, count, each, start)?;
        } else if row > 1 {
            self.network(row, rows * row / 2, start)?;
        }
        let layout = self.result_layout(op);
        Ok(self.load_flat(layout, &strides, start, DType::I64))
    }

    fn element(&mut self, place: Val, start: u32) -> Val {
        let bytes = self.b.mul(place, Val::i32(8));
        let bytes = self.b.add(bytes, Val::i32(start));
        self.shared_pointer(bytes)
    }

    fn network(&mut self, row: u32, pairs: u32, start: u32) -> Result<(), Diagnostic> {
        let (head, after) = (self.b.label(), self.b.label());
        let before = self.b.block();
        self.b.jump(head);
        self.b.begin(head);
        // The length of the runs being merged, and the distance compared at.
        let slot = self.b.phis(&[I32, I32]);
        let [size, distance] = [slot.results()[0], slot.results()[1]];
        let within = self.b.sub(distance, Val::i32(1));
        let outside = self.b.xor(within, Val::int(-1, I32));
        self.for_each(pairs, &mut |this, i| {
            let upper = this.b.and(i, outside);
            let upper = this.b.shl(upper, 1);
            let lower = this.b.and(i, within);
            let first = this.b.or(upper, lower);
            let second = this.b.add(first, distance);
            let (p, q) = (this.element(first, start), this.element(second, start));
            let x = this.b.load(p, I64, 8, false);
            let y = this.b.load(q, I64, 8, false);
            // Runs rise and fall in turn; the last one rises.
            let in_row = this.b.and(first, Val::i32(row - 1));
            let turn = this.b.and(in_row, size);
            let falls = this.b.icmp("ne", turn, Val::i32(0));
            let greater = this.b.icmp("sgt", x, y);
            let swaps = this.b.xor(greater, falls);
            let low = this.b.select(swaps, y, x);
            let high = this.b.select(swaps, x, y);
            this.b.store(low, p, 8);
            this.b.store(high, q, 8);
            Ok(())
        })?;
        self.barrier()?;
        let half = self.b.lshr(distance, 1);
        let merged = self.b.icmp("eq", half, Val::i32(0));
        let double = self.b.shl(size, 1);
        let next_size = self.b.select(merged, double, size);
        let next_distance = self.b.select(merged, size, half);
        let again = self.b.icmp("ule", next_size, Val::i32(row));
        let latch = self.b.block();
        self.b.branch(again, head, after, true);
        self.b.fill(
            slot,
            &[
                (before, vec![Val::i32(2), Val::i32(1)]),
                (latch, vec![next_size, next_distance]),
            ],
        );
        self.b.begin(after);
        Ok(())
    }

    /// Sorts `count` elements, a power of two, in runs of `row`, thread t holding `each` of them from number t·each on. What
    /// threads past the last element hold goes nowhere.
    fn held_network(
        &mut self,
        row: u32,
        count: u32,
        each: u32,
        start: u32,
    ) -> Result<(), Diagnostic> {
        self.need(Instruction::Shuffle)?;
        let first = self.b.mul(self.thread, Val::i32(each));
        let first = self.b.and(first, Val::i32(count - 1));
        let busy = if count < self.threads * each {
            self.b.icmp("ult", self.thread, Val::i32(count / each))
        } else {
            Val::bool(true)
        };
        let own: Vec<Val> = (0..each)
            .map(|r| {
                let place = self.b.add(first, Val::i32(r));
                let pointer = self.element(place, start);
                self.b.load(pointer, I64, 8, false)
            })
            .collect();
        let types: Vec<_> = std::iter::once(I32)
            .chain(own.iter().map(|v| v.ty))
            .collect();
        let carried = |counter: Val, held: &[Val]| {
            let mut all = vec![counter];
            all.extend_from_slice(held);
            all
        };

        // Over the lengths of the runs that are merged.
        let (head, after) = (self.b.label(), self.b.label());
        let before = self.b.block();
        self.b.jump(head);
        self.b.begin(head);
        let sizes = self.b.phis(&types);
        let size = sizes.results()[0];
        let mut held = sizes.results()[1..].to_vec();
        let mut distance = self.b.lshr(size, 1);
        let warp = Target::WARP * each;
        let steps = [
            (row > warp).then_some((warp, true)),
            (row > each).then_some((each, false)),
        ];
        for (least, through) in steps.into_iter().flatten() {
            let (test, work, done) = (self.b.label(), self.b.label(), self.b.label());
            let entry = self.b.block();
            self.b.jump(test);
            self.b.begin(test);
            let slot = self.b.phis(&types);
            let at = slot.results()[0];
            let values = slot.results()[1..].to_vec();
            let goes = self.b.icmp("uge", at, Val::i32(least));
            self.b.branch(goes, work, done, false);
            self.b.begin(work);
            let others = if through {
                self.far_elements(&values, first, at, busy, each, start)?
            } else {
                let lanes = self.b.lshr(at, each.ilog2());
                values.iter().map(|&v| self.of_lane(v, lanes)).collect()
            };
            let mut next = Vec::with_capacity(values.len());
            for (r, (&x, &other)) in values.iter().zip(&others).enumerate() {
                let place = self.b.add(first, Val::i32(r as u32));
                // The lower one of a pair keeps the smaller, the upper one the larger; where runs fall, the other way round.
                let upper = self.differs(place, at);
                let falls = self.falls(place, size, row);
                let larger = self.b.xor(upper, falls);
                let less = self.b.icmp("slt", other, x);
                let takes = self.b.xor(less, larger);
                next.push(self.b.select(takes, other, x));
            }
            let half = self.b.lshr(at, 1);
            let latch = self.b.block();
            self.b.jump_back(test);
            self.b.fill(
                slot,
                &[
                    (entry, carried(distance, &held)),
                    (latch, carried(half, &next)),
                ],
            );
            self.b.begin(done);
            held = values;
            distance = at;
        }
        // Pairs of one thread: those nearer than the run is long.
        let mut near = each / 2;
        while near > 0 {
            let within = self.b.icmp("ult", Val::i32(near), size);
            for r in (0..each).filter(|r| r & near == 0) {
                let (i, j) = (r as usize, (r | near) as usize);
                let place = self.b.add(first, Val::i32(r));
                let falls = self.falls(place, size, row);
                let greater = self.b.icmp("sgt", held[i], held[j]);
                let swaps = self.b.xor(greater, falls);
                let swaps = self.b.and(swaps, within);
                let (x, y) = (held[i], held[j]);
                held[i] = self.b.select(swaps, y, x);
                held[j] = self.b.select(swaps, x, y);
            }
            near /= 2;
        }
        let double = self.b.shl(size, 1);
        let again = self.b.icmp("ule", double, Val::i32(row));
        let latch = self.b.block();
        self.b.branch(again, head, after, true);
        self.b.fill(
            sizes,
            &[
                (before, carried(Val::i32(2), &own)),
                (latch, carried(double, &held)),
            ],
        );
        self.b.begin(after);

        self.barrier()?;
        for (r, &value) in held.iter().enumerate() {
            let place = self.b.add(first, Val::i32(r as u32));
            let pointer = self.element(place, start);
            let words = self.words_of(value);
            self.store_shared(pointer, &words, 8, busy);
        }
        self.barrier()
    }

    /// What the elements at `distance` hold, through shared memory: there those of one register lie side by side.
    fn far_elements(
        &mut self,
        values: &[Val],
        first: Val,
        distance: Val,
        busy: Val,
        each: u32,
        start: u32,
    ) -> Result<Vec<Val>, Diagnostic> {
        let bits = each.ilog2();
        let mine = self.b.lshr(first, bits);
        let threads = self.b.lshr(distance, bits);
        let theirs = self.b.xor(mine, threads);
        // Others may still read what the step before left.
        self.barrier()?;
        let line = self.threads;
        for (r, &value) in values.iter().enumerate() {
            let place = self.b.add(mine, Val::i32(r as u32 * line));
            let pointer = self.element(place, start);
            let words = self.words_of(value);
            self.store_shared(pointer, &words, 8, busy);
        }
        self.barrier()?;
        Ok((0..each)
            .map(|r| {
                let place = self.b.add(theirs, Val::i32(r * line));
                let pointer = self.element(place, start);
                self.b.load(pointer, I64, 8, false)
            })
            .collect())
    }

    /// A number of 64 bits that the lane at distance `lanes` holds.
    fn of_lane(&mut self, value: Val, lanes: Val) -> Val {
        let low = self.b.resize(value, I32, false);
        let high = self.b.lshr(value, 32);
        let high = self.b.resize(high, I32, false);
        let [low, high] = [low, high].map(|word| {
            let name = "llvm.nvvm.shfl.sync.bfly.i32";
            let args = [Val::int(-1, I32), word, lanes, Val::i32(31)];
            let moved = self.b.call(Some(I32), name, &args, Effect::Convergent);
            self.b.cast("zext", moved, I64)
        });
        let up = self.b.shl(high, 32);
        self.b.or(up, low)
    }

    /// Whether the element at `place` lies in a run of `size` that is to fall; the last run of a row rises.
    fn falls(&mut self, place: Val, size: Val, row: u32) -> Val {
        let in_row = self.b.and(place, Val::i32(row - 1));
        self.differs(in_row, size)
    }

    fn differs(&mut self, place: Val, bit: Val) -> Val {
        let set = self.b.and(place, bit);
        self.b.icmp("ne", set, Val::i32(0))
    }
}
