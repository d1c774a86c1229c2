//! What a reduction makes of an element in memory (PTX ISA §9.7.9.25.4.2, §9.7.9.27.1.3).

use super::Reduction;
use crate::{
    isa::operands::Type,
    numeric::{Modifiers, Rounding, Selection, double, half::Half, single},
};

fn signed(value: u64, bits: u32) -> i64 {
    let shift = 64 - bits;
    (value << shift) as i64 >> shift
}

/// `old op new` in the low bits. Combinations that no instruction has give `new`.
///
/// `.add.f32` keeps subnormal numbers, operands and sums, as `.noftz` has it of `f16` and `bf16`: so does an H200, though `red` on global memory
/// flushes them there, and though §9.7.9.25.4.2 says the same of this instruction.
pub(crate) fn combine(op: Reduction, ty: Type, old: u64, new: u64) -> u64 {
    let bits = ty.bits();
    let mask = if bits >= 64 {
        u64::MAX
    } else {
        (1 << bits) - 1
    };
    let picks_new = |new_is_less: bool| new_is_less == (op == Reduction::Min);
    let result = match (op, ty) {
        (Reduction::And, _) => old & new,
        (Reduction::Or, _) => old | new,
        (Reduction::Xor, _) => old ^ new,
        (Reduction::Inc, _) => {
            if old >= new {
                0
            } else {
                old + 1
            }
        }
        (Reduction::Dec, _) => {
            if old == 0 || old > new {
                new
            } else {
                old - 1
            }
        }
        (_, Type::F16 | Type::Bf16) => {
            let half = if ty == Type::F16 {
                Half::F16
            } else {
                Half::Bf16
            };
            let (old, new) = (old as u16, new as u16);
            u64::from(match op {
                Reduction::Add => half.add(old, new, Modifiers::default()),
                _ => {
                    let largest = op == Reduction::Max;
                    half.select(
                        old,
                        new,
                        Selection {
                            largest,
                            ..Selection::default()
                        },
                    )
                }
            })
        }
        (Reduction::Add, Type::F32) => {
            u64::from(single::add(old as u32, new as u32, Modifiers::default()))
        }
        (Reduction::Add, Type::F64) => double::add(old, new, Rounding::NearestEven),
        (Reduction::Add, _) => old.wrapping_add(new),
        (Reduction::Min | Reduction::Max, _) if ty.is_signed() => {
            let less = signed(new, bits) < signed(old, bits);
            if picks_new(less) { new } else { old }
        }
        (Reduction::Min | Reduction::Max, _) => {
            if picks_new(new < old) {
                new
            } else {
                old
            }
        }
    };
    result & mask
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_combine_as_the_tables_say() {
        let minus = |v: i64| v as u64;
        let cases = [
            (Reduction::Add, Type::U32, 0xffff_ffff, 3, 2),
            (Reduction::Add, Type::U64, u64::MAX, 3, 2),
            (Reduction::Min, Type::U32, 0xffff_ffff, 1, 1),
            (Reduction::Min, Type::S32, 0xffff_ffff, 1, 0xffff_ffff),
            (Reduction::Max, Type::S64, minus(-5), minus(-7), minus(-5)),
            (Reduction::Max, Type::U64, minus(-5), 7, minus(-5)),
            // Up to the operand, then from 0 on; down from the operand.
            (Reduction::Inc, Type::U32, 3, 4, 4),
            (Reduction::Inc, Type::U32, 4, 4, 0),
            (Reduction::Dec, Type::U32, 3, 4, 2),
            (Reduction::Dec, Type::U32, 0, 4, 4),
            (Reduction::Dec, Type::U32, 9, 4, 4),
            (Reduction::And, Type::B32, 0b1100, 0b1010, 0b1000),
            (Reduction::Or, Type::B32, 0b1100, 0b1010, 0b1110),
            (Reduction::Xor, Type::B64, 0b1100, 0b1010, 0b0110),
            // 1.5 + 2.25 in each format.
            (Reduction::Add, Type::F16, 0x3e00, 0x4080, 0x4380),
            (Reduction::Add, Type::Bf16, 0x3fc0, 0x4010, 0x4070),
            (
                Reduction::Add,
                Type::F32,
                0x3fc0_0000,
                0x4010_0000,
                0x4070_0000,
            ),
            // Subnormal numbers are kept; the last two are of an H200.
            (Reduction::Add, Type::F16, 1, 1, 2),
            (Reduction::Add, Type::F32, 1, 1, 2),
            (
                Reduction::Add,
                Type::F32,
                0x805f_2503,
                0x807f_ffff,
                0x80df_2502,
            ),
            (
                Reduction::Add,
                Type::F32,
                0x014f_3ceb,
                0x007f_ffff,
                0x0187_9e75,
            ),
            (Reduction::Min, Type::F16, 0x3c00, 0xbc00, 0xbc00),
            (Reduction::Max, Type::Bf16, 0x3f80, 0xbf80, 0x3f80),
        ];
        for (op, ty, old, new, expected) in cases {
            assert_eq!(
                combine(op, ty, old, new),
                expected,
                "{op:?} {ty:?} {old:#x} {new:#x}"
            );
        }
        let sum = combine(
            Reduction::Add,
            Type::F64,
            1.5_f64.to_bits(),
            0.25_f64.to_bits(),
        );
        assert_eq!(f64::from_bits(sum), 1.75);
    }
}
