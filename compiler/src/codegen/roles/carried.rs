//! Tiles of 16-bit elements that loops of roles carry: two neighbours in a register.
//!
//! A product takes its left operand so. Carried by halves, it would be put together anew in each round, in registers of its own, since the
//! last product still reads the ones before.

use crate::{
    codegen::{
        builder::{I32, Ty, Val},
        lower::{Lower, register_type},
    },
    ir::ValueId,
};

impl Lower<'_> {
    /// Whether a value is carried as words.
    fn is_carried_packed(&self, value: ValueId) -> bool {
        let pairs = self.elem(value).bits() == 16 && self.count(value).is_multiple_of(2);
        self.is_in_role() && pairs
    }

    /// The registers that carry the values.
    pub(in crate::codegen) fn carried_types(&self, values: &[ValueId]) -> Vec<Ty> {
        let of = |&value: &ValueId| {
            let count = self.count(value);
            match self.is_carried_packed(value) {
                true => std::iter::repeat_n(I32, count / 2),
                false => std::iter::repeat_n(register_type(self.elem(value)), count),
            }
        };
        values.iter().flat_map(of).collect()
    }

    /// The registers of `values` as they are carried.
    pub(in crate::codegen) fn pack_carried(
        &mut self,
        values: &[ValueId],
        registers: &[Val],
    ) -> Vec<Val> {
        let mut packed = Vec::with_capacity(registers.len());
        let mut rest = registers;
        for &value in values {
            let (own, others) = rest.split_at(self.count(value));
            match self.is_carried_packed(value) {
                true => packed.append(&mut self.pack(own, self.elem(value))),
                false => packed.extend(own),
            }
            rest = others;
        }
        packed
    }

    /// The opposite of [`pack_carried`](Lower::pack_carried).
    pub(in crate::codegen) fn unpack_carried(
        &mut self,
        values: &[ValueId],
        carried: &[Val],
    ) -> Vec<Val> {
        let mut registers = Vec::with_capacity(carried.len());
        let mut rest = carried;
        for &value in values {
            let count = self.count(value);
            let packed = self.is_carried_packed(value);
            let (own, others) = rest.split_at(if packed { count / 2 } else { count });
            match packed {
                true => registers.append(&mut self.unpack(own, self.elem(value), count as u32)),
                false => registers.extend(own),
            }
            rest = others;
        }
        registers
    }
}
