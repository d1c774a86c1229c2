//! Sorting rows of `i64` in shared memory, ascending, by a bitonic network: each step compares pairs at one distance, and
//! all threads meet after it. Steps and distances are counted at run time, so that the code does not grow with the tile.

use tesserine_set::DType;

use super::{
    builder::{I32, I64, Val},
    lower::Lower,
};
use crate::{
    diagnostics::Diagnostic,
    ir::{Op, role::OpKind},
    layout::scratch::flat_strides,
};

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
        if row > 1 {
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
}
