//! Integer arithmetic, logic, shifts and bit fields (PTX ISA §9.7.1 integer arithmetic, §9.7.2 extended precision, §9.7.8 logic and shift,
//! §9.7.9.7 `prmt`).

mod decode;

pub(super) use decode::decode;

use super::operands::{Dst, Predicate, Src, SrcP, Type};
use crate::{
    fault::Fault,
    machine::{LANES, Step},
};

/// Operations on one type, element by element. `T` is the type of the operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Basic {
    Add,
    /// `.sat` of s32.
    AddSaturating,
    Sub,
    SubSaturating,
    MulLow,
    MulHigh,
    /// Twice as wide as its operands.
    MulWide,
    /// `mul24`: low or high 32 bits of the product of 24-bit operands.
    Mul24Low,
    Mul24High,
    Div,
    Rem,
    Abs,
    Neg,
    Min,
    Max,
    /// `.relu`: at least 0.
    MinRelu,
    MaxRelu,
    And,
    Or,
    Xor,
    Not,
    /// 1 where it is 0 (§9.7.8.5).
    ConditionalNot,
    Shl,
    Shr,
    PopulationCount,
    LeadingZeros,
    /// `bfind`: the highest bit that differs from the sign.
    FindBit,
    /// `bfind.shiftamt`.
    FindShift,
    Reverse,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Up to two operands.
    Basic {
        what: Basic,
        ty: Type,
        to: Dst,
        a: Src,
        b: Src,
    },
    /// `mad`, `mad24`: a product, and a sum with c.
    Mad {
        product: Basic,
        ty: Type,
        saturating: bool,
        to: Dst,
        a: Src,
        b: Src,
        c: Src,
    },
    /// With the carry flag: in, out.
    Carry {
        what: CarryOp,
        ty: Type,
        carry_in: bool,
        carry_out: bool,
        to: Dst,
        a: Src,
        b: Src,
        c: Option<Src>,
    },
    /// `sad`: c + |a − b|.
    Sad {
        ty: Type,
        to: Dst,
        a: Src,
        b: Src,
        c: Src,
    },
    Lop3 {
        table: u32,
        to: Dst,
        a: Src,
        b: Src,
        c: Src,
        or: Option<(Predicate, SrcP, bool)>,
    },
    Logic {
        what: Basic,
        to: Predicate,
        a: SrcP,
        b: SrcP,
    },
    Funnel {
        left: bool,
        clamp: bool,
        to: Dst,
        a: Src,
        b: Src,
        c: Src,
    },
    Permute {
        mode: PermuteMode,
        to: Dst,
        a: Src,
        b: Src,
        c: Src,
    },
    Extract {
        ty: Type,
        to: Dst,
        a: Src,
        position: Src,
        length: Src,
    },
    Insert {
        ty: Type,
        to: Dst,
        a: Src,
        b: Src,
        position: Src,
        length: Src,
    },
    /// `fns`: the n-th set bit.
    FindNth {
        to: Dst,
        mask: Src,
        base: Src,
        offset: Src,
    },
    SignExtend {
        signed: bool,
        clamp: bool,
        to: Dst,
        a: Src,
        bits: Src,
    },
    BitMask {
        clamp: bool,
        to: Dst,
        a: Src,
        b: Src,
    },
    Dot {
        bytes_of_b: bool,
        signed: [bool; 2],
        high: bool,
        to: Dst,
        a: Src,
        b: Src,
        c: Src,
    },
    /// `u16x2`, `s16x2`.
    Packed {
        what: Basic,
        signed: bool,
        to: Dst,
        a: Src,
        b: Src,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CarryOp {
    Add,
    Sub,
    MadLow,
    MadHigh,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PermuteMode {
    Index,
    Forward4,
    Backward4,
    Replicate8,
    EdgeLeft,
    EdgeRight,
    Replicate16,
}

fn wider(ty: Type) -> Type {
    match ty {
        Type::U16 => Type::U32,
        Type::S16 => Type::S32,
        Type::U32 => Type::U64,
        Type::S32 => Type::S64,
        other => other,
    }
}

/// The value of a type's bits, sign- or zero-extended.
#[inline]
fn value(ty: Type, bits: u64) -> i128 {
    match ty {
        Type::S8 => i128::from(bits as i8),
        Type::S16 => i128::from(bits as i16),
        Type::S32 => i128::from(bits as i32),
        Type::S64 => i128::from(bits as i64),
        _ => i128::from(bits & mask_of(ty)),
    }
}

fn mask_of(ty: Type) -> u64 {
    match ty.bits() {
        bits if bits >= 64 => u64::MAX,
        bits => (1 << bits) - 1,
    }
}

/// Operations of 32-bit types, which are the most and the fastest.
#[inline]
fn words(what: Basic, signed: bool, a: &[u32; LANES], b: &[u32; LANES]) -> Option<[u32; LANES]> {
    #[inline]
    fn each(
        a: &[u32; LANES],
        b: &[u32; LANES],
        f: impl Fn(u32, u32) -> u32,
    ) -> Option<[u32; LANES]> {
        Some(std::array::from_fn(|l| f(a[l], b[l])))
    }
    match what {
        Basic::Add => each(a, b, u32::wrapping_add),
        Basic::Sub => each(a, b, u32::wrapping_sub),
        Basic::MulLow => each(a, b, u32::wrapping_mul),
        Basic::And => each(a, b, |a, b| a & b),
        Basic::Or => each(a, b, |a, b| a | b),
        Basic::Xor => each(a, b, |a, b| a ^ b),
        Basic::Not => each(a, b, |a, _| !a),
        Basic::Neg => each(a, b, |a, _| a.wrapping_neg()),
        Basic::Min if signed => each(a, b, |a, b| (a as i32).min(b as i32) as u32),
        Basic::Max if signed => each(a, b, |a, b| (a as i32).max(b as i32) as u32),
        Basic::Min => each(a, b, u32::min),
        Basic::Max => each(a, b, u32::max),
        Basic::Shl => each(a, b, |a, b| if b > 31 { 0 } else { a << b }),
        Basic::Shr if signed => each(a, b, |a, b| (a as i32 >> b.min(31)) as u32),
        Basic::Shr => each(a, b, |a, b| if b > 31 { 0 } else { a >> b }),
        _ => None,
    }
}

/// One element, of any type.
fn element(what: Basic, ty: Type, a: u64, b: u64) -> u64 {
    let bits = ty.bits();
    let (x, y) = (value(ty, a), value(ty, b));
    let unsigned = a & mask_of(ty);
    let result = match what {
        Basic::Add => x + y,
        Basic::Sub => x - y,
        Basic::AddSaturating => (x + y).clamp(i128::from(i32::MIN), i128::from(i32::MAX)),
        Basic::SubSaturating => (x - y).clamp(i128::from(i32::MIN), i128::from(i32::MAX)),
        Basic::MulLow | Basic::MulWide => x.wrapping_mul(y),
        Basic::MulHigh if !ty.is_signed() => ((x as u128).wrapping_mul(y as u128) >> bits) as i128,
        Basic::MulHigh => x.wrapping_mul(y) >> bits,
        Basic::Mul24Low | Basic::Mul24High => {
            let low24 = |v: u64| match ty.is_signed() {
                true => i64::from((v as i32) << 8 >> 8),
                false => (v & 0xff_ffff) as i64,
            };
            let product = low24(a) * low24(b);
            i128::from(if what == Basic::Mul24Low {
                product
            } else {
                product >> 16
            })
        }
        // Division by zero gives an unspecified value (§9.7.1.8); hardware gives all ones, and the dividend as the remainder.
        Basic::Div if y == 0 => -1,
        Basic::Div => x / y,
        Basic::Rem if y == 0 => x,
        Basic::Rem => x % y,
        Basic::Abs => x.abs(),
        Basic::Neg => -x,
        Basic::Min => x.min(y),
        Basic::Max => x.max(y),
        Basic::MinRelu => x.min(y).max(0),
        Basic::MaxRelu => x.max(y).max(0),
        Basic::And => x & y,
        Basic::Or => x | y,
        Basic::Xor => x ^ y,
        Basic::Not => !x,
        Basic::ConditionalNot => i128::from(unsigned == 0),
        Basic::Shl => {
            let count = b & 0xffff_ffff;
            if count >= u64::from(bits) {
                0
            } else {
                x << count
            }
        }
        Basic::Shr => {
            let count = (b & 0xffff_ffff).min(u64::from(bits));
            x >> count.min(100)
        }
        Basic::PopulationCount => i128::from(unsigned.count_ones()),
        Basic::LeadingZeros => i128::from(unsigned.leading_zeros() - (64 - bits)),
        Basic::FindBit | Basic::FindShift => {
            let differing = if x < 0 {
                !unsigned & mask_of(ty)
            } else {
                unsigned
            };
            match differing {
                0 => 0xffff_ffff,
                v => {
                    let bit = 63 - v.leading_zeros();
                    i128::from(if what == Basic::FindShift {
                        bits - 1 - bit
                    } else {
                        bit
                    })
                }
            }
        }
        Basic::Reverse => i128::from(unsigned.reverse_bits() >> (64 - bits)),
    };
    let width = match what {
        Basic::MulWide => 2 * bits,
        Basic::PopulationCount | Basic::LeadingZeros | Basic::FindBit | Basic::FindShift => 32,
        _ => bits,
    };
    match width {
        64.. => result as u64,
        width => result as u64 & ((1 << width) - 1),
    }
}

fn lanes3(step: &Step<'_>, sources: [Src; 3], f: impl Fn(u64, u64, u64) -> u64) -> [u64; LANES] {
    let [a, b, c] = sources.map(|s| step.any(s));
    std::array::from_fn(|l| f(a[l], b[l], c[l]))
}

impl Op {
    #[inline]
    pub(super) fn execute(&self, step: &mut Step<'_>) -> Result<(), Fault> {
        match self {
            Op::Basic { what, ty, to, a, b } => {
                if let (Dst::Word(to), Src::Small(a), Src::Small(b), 32) = (to, a, b, ty.bits())
                    && let Some(result) =
                        words(*what, ty.is_signed(), &step.word(*a), &step.word(*b))
                {
                    step.set_word(*to, &result);
                    return Ok(());
                }
                let (x, y) = (step.any(*a), step.any(*b));
                let result: [u64; LANES] = match (what, ty.bits(), ty.is_signed()) {
                    (Basic::Add, 64, _) => std::array::from_fn(|l| x[l].wrapping_add(y[l])),
                    (Basic::Sub, 64, _) => std::array::from_fn(|l| x[l].wrapping_sub(y[l])),
                    (Basic::MulLow, 64, _) => std::array::from_fn(|l| x[l].wrapping_mul(y[l])),
                    (Basic::MulWide, 32, false) => {
                        std::array::from_fn(|l| (x[l] & 0xffff_ffff) * (y[l] & 0xffff_ffff))
                    }
                    (Basic::MulWide, 32, true) => std::array::from_fn(|l| {
                        (i64::from(x[l] as i32) * i64::from(y[l] as i32)) as u64
                    }),
                    (Basic::And, ..) => std::array::from_fn(|l| x[l] & y[l]),
                    (Basic::Or, ..) => std::array::from_fn(|l| x[l] | y[l]),
                    (Basic::Xor, ..) => std::array::from_fn(|l| x[l] ^ y[l]),
                    (Basic::Shl, 64, _) => std::array::from_fn(|l| {
                        let count = y[l] as u32;
                        if count > 63 { 0 } else { x[l] << count }
                    }),
                    (Basic::Shr, 64, true) => {
                        std::array::from_fn(|l| (x[l] as i64 >> (y[l] as u32).min(63)) as u64)
                    }
                    (Basic::Shr, 64, false) => std::array::from_fn(|l| {
                        let count = y[l] as u32;
                        if count > 63 { 0 } else { x[l] >> count }
                    }),
                    (Basic::MulHigh, 64, false) => std::array::from_fn(|l| {
                        ((u128::from(x[l]) * u128::from(y[l])) >> 64) as u64
                    }),
                    (Basic::Min, 64, false) => std::array::from_fn(|l| x[l].min(y[l])),
                    (Basic::Max, 64, false) => std::array::from_fn(|l| x[l].max(y[l])),
                    (Basic::Min, 64, true) => {
                        std::array::from_fn(|l| (x[l] as i64).min(y[l] as i64) as u64)
                    }
                    (Basic::Max, 64, true) => {
                        std::array::from_fn(|l| (x[l] as i64).max(y[l] as i64) as u64)
                    }
                    _ => std::array::from_fn(|l| element(*what, *ty, x[l], y[l])),
                };
                step.set_any(*to, &result);
            }
            Op::Mad {
                product,
                ty,
                saturating,
                to,
                a,
                b,
                c,
            } => {
                let wide = if *product == Basic::MulWide {
                    wider(*ty)
                } else {
                    *ty
                };
                let value = lanes3(step, [*a, *b, *c], |a, b, c| {
                    let product = element(*product, *ty, a, b);
                    let what = if *saturating {
                        Basic::AddSaturating
                    } else {
                        Basic::Add
                    };
                    element(what, wide, product, c)
                });
                step.set_any(*to, &value);
            }
            Op::Carry {
                what,
                ty,
                carry_in,
                carry_out,
                to,
                a,
                b,
                c,
            } => {
                let (x, y) = (step.any(*a), step.any(*b));
                let z = c.map(|c| step.any(c));
                let flags = step.registers.carry;
                let mask = u128::from(mask_of(*ty));
                let mut out = 0;
                let result = std::array::from_fn(|l| {
                    let carry = u128::from(*carry_in && flags >> l & 1 != 0);
                    let (x, y) = (u128::from(x[l]) & mask, u128::from(y[l]) & mask);
                    let z = z.map_or(0, |z| u128::from(z[l]) & mask);
                    let sum = match what {
                        CarryOp::Add => x + y + carry,
                        // The borrow is the carry flag as it is (§9.7.2.3).
                        CarryOp::Sub => x.wrapping_sub(y).wrapping_sub(carry),
                        CarryOp::MadLow => {
                            u128::from(element(Basic::MulLow, *ty, x as u64, y as u64)) + z + carry
                        }
                        CarryOp::MadHigh => {
                            u128::from(element(Basic::MulHigh, *ty, x as u64, y as u64)) + z + carry
                        }
                    };
                    out |= u32::from(sum & !mask != 0) << l;
                    (sum & mask) as u64
                });
                step.set_any(*to, &result);
                if *carry_out {
                    let lanes = step.lanes;
                    step.registers.carry = flags & !lanes | out & lanes;
                }
            }
            Op::Sad { ty, to, a, b, c } => {
                let result = lanes3(step, [*a, *b, *c], |a, b, c| {
                    let difference = (value(*ty, a) - value(*ty, b)).unsigned_abs() as u64;
                    c.wrapping_add(difference) & mask_of(*ty)
                });
                step.set_any(*to, &result);
            }
            Op::Lop3 {
                table,
                to,
                a,
                b,
                c,
                or,
            } => {
                let result = lanes3(step, [*a, *b, *c], |a, b, c| {
                    let (a, b, c) = (a as u32, b as u32, c as u32);
                    let mut result = 0;
                    for row in 0..8 {
                        if table >> row & 1 != 0 {
                            let pick = |v: u32, bit: u32| if row >> bit & 1 != 0 { v } else { !v };
                            result |= pick(a, 2) & pick(b, 1) & pick(c, 0);
                        }
                    }
                    u64::from(result)
                });
                step.set_any(*to, &result);
                if let Some((p, q, or)) = or {
                    let set = (0..LANES).fold(0, |m, l| m | u32::from(result[l] != 0) << l);
                    let q = step.predicate(*q);
                    step.set_predicate(*p, if *or { set | q } else { set & q });
                }
            }
            Op::Logic { what, to, a, b } => {
                let (a, b) = (step.predicate(*a), step.predicate(*b));
                let result = match what {
                    Basic::And => a & b,
                    Basic::Or => a | b,
                    Basic::Xor => a ^ b,
                    _ => !a,
                };
                step.set_predicate(*to, result);
            }
            Op::Funnel {
                left,
                clamp,
                to,
                a,
                b,
                c,
            } => {
                let result = lanes3(step, [*a, *b, *c], |a, b, c| {
                    let both = (b & 0xffff_ffff) << 32 | a & 0xffff_ffff;
                    let count = if *clamp {
                        (c & 0xffff_ffff).min(32)
                    } else {
                        c & 31
                    };
                    match left {
                        true => (u128::from(both) << count >> 32) as u64 & 0xffff_ffff,
                        false => both >> count & 0xffff_ffff,
                    }
                });
                step.set_any(*to, &result);
            }
            Op::Permute { mode, to, a, b, c } => {
                let result = lanes3(step, [*a, *b, *c], |a, b, c| permute(*mode, a, b, c));
                step.set_any(*to, &result);
            }
            Op::Extract {
                ty,
                to,
                a,
                position,
                length,
            } => {
                let most = u64::from(ty.bits()) - 1;
                let result = lanes3(step, [*a, *position, *length], |a, position, length| {
                    let (position, length) = (position & 0xff, length & 0xff);
                    let bit = |i: u64| a >> i & 1;
                    let sign = match ty.is_signed() && length > 0 {
                        true => bit((position + length - 1).min(most)),
                        false => 0,
                    };
                    let mut result = 0;
                    for i in 0..=most {
                        let inside = i < length && position + i <= most;
                        result |= if inside { bit(position + i) } else { sign } << i;
                    }
                    result
                });
                step.set_any(*to, &result);
            }
            Op::Insert {
                ty,
                to,
                a,
                b,
                position,
                length,
            } => {
                let most = u64::from(ty.bits());
                let positions = step.any(*position);
                let lengths = step.any(*length);
                let (a, b) = (step.any(*a), step.any(*b));
                let result = std::array::from_fn(|l| {
                    let (position, length) = (positions[l] & 0xff, lengths[l] & 0xff);
                    let mut result = b[l];
                    for i in (0..length).take_while(|i| position + i < most) {
                        let bit = 1 << (position + i);
                        result = result & !bit | (a[l] >> i & 1) << (position + i);
                    }
                    result & mask_of(*ty)
                });
                step.set_any(*to, &result);
            }
            Op::FindNth {
                to,
                mask,
                base,
                offset,
            } => {
                let result = lanes3(step, [*mask, *base, *offset], |mask, base, offset| {
                    u64::from(find_nth(mask as u32, base as u32, offset as i32))
                });
                step.set_any(*to, &result);
            }
            Op::SignExtend {
                signed,
                clamp,
                to,
                a,
                bits,
            } => {
                let result = lanes3(step, [*a, *bits, *bits], |a, bits, _| {
                    let bits = bits & 0xffff_ffff;
                    let bits = if *clamp { bits.min(32) } else { bits & 31 };
                    match (bits, signed) {
                        (0, _) => 0,
                        (32.., _) => a & 0xffff_ffff,
                        (n, true) => ((a as i32) << (32 - n) >> (32 - n)) as u32 as u64,
                        (n, false) => a & ((1 << n) - 1),
                    }
                });
                step.set_any(*to, &result);
            }
            Op::BitMask { clamp, to, a, b } => {
                let result = lanes3(step, [*a, *b, *b], |a, b, _| {
                    let (a, b) = (a & 0xffff_ffff, b & 0xffff_ffff);
                    let (first, count) = match clamp {
                        true => (a.min(32), b.min(32)),
                        false => (a & 31, b & 31),
                    };
                    ((1u64 << count) - 1) << first & 0xffff_ffff
                });
                step.set_any(*to, &result);
            }
            Op::Dot {
                bytes_of_b,
                signed,
                high,
                to,
                a,
                b,
                c,
            } => {
                let [sa, sb] = *signed;
                let byte = |v: u64, i: u32, signed: bool| {
                    let byte = (v >> (8 * i)) as u8;
                    if signed {
                        i64::from(byte as i8)
                    } else {
                        i64::from(byte)
                    }
                };
                let half = |v: u64, i: u32, signed: bool| {
                    let half = (v >> (16 * i)) as u16;
                    if signed {
                        i64::from(half as i16)
                    } else {
                        i64::from(half)
                    }
                };
                let result = lanes3(step, [*a, *b, *c], |a, b, c| {
                    let sum: i64 = match bytes_of_b {
                        true => (0..4).map(|i| byte(a, i, sa) * byte(b, i, sb)).sum(),
                        false => {
                            let first = if *high { 2 } else { 0 };
                            (0..2)
                                .map(|i| half(a, i, sa) * byte(b, first + i, sb))
                                .sum()
                        }
                    };
                    (c as i64).wrapping_add(sum) as u64 & 0xffff_ffff
                });
                step.set_any(*to, &result);
            }
            Op::Packed {
                what,
                signed,
                to,
                a,
                b,
            } => {
                let ty = if *signed { Type::S16 } else { Type::U16 };
                let result = lanes3(step, [*a, *b, *b], |a, b, _| {
                    element(*what, ty, a, b) | element(*what, ty, a >> 16, b >> 16) << 16
                });
                step.set_any(*to, &result);
            }
        }
        Ok(())
    }
}

/// `prmt` (§9.7.9.7): bytes of b:a by selectors.
fn permute(mode: PermuteMode, a: u64, b: u64, c: u64) -> u64 {
    let both = (b & 0xffff_ffff) << 32 | a & 0xffff_ffff;
    let n = (c & 3) as u32;
    let byte = |i: u32| both >> (8 * (i & 7)) & 0xff;
    let indices: [u32; 4] = match mode {
        PermuteMode::Index => {
            let mut result = 0;
            for i in 0..4 {
                let selector = (c >> (4 * i)) as u32 & 0xf;
                let value = byte(selector & 7);
                // The selector's high bit replicates the byte's sign.
                let value = match selector & 8 {
                    0 => value,
                    _ => {
                        if value & 0x80 != 0 {
                            0xff
                        } else {
                            0
                        }
                    }
                };
                result |= value << (8 * i);
            }
            return result;
        }
        PermuteMode::Forward4 => [n, n + 1, n + 2, n + 3],
        PermuteMode::Backward4 => [n, n.wrapping_sub(1), n.wrapping_sub(2), n.wrapping_sub(3)],
        PermuteMode::Replicate8 => [n; 4],
        PermuteMode::EdgeLeft => [n, n.max(1), n.max(2), 3],
        PermuteMode::EdgeRight => [0, n.min(1), n.min(2), n.min(3)],
        PermuteMode::Replicate16 => {
            let first = 2 * (n & 1);
            [first, first + 1, first, first + 1]
        }
    };
    (0..4).fold(0, |r, i| r | byte(indices[i]) << (8 * i))
}

/// `fns` (§9.7.1.16).
fn find_nth(mask: u32, base: u32, offset: i32) -> u32 {
    let base = base.min(31);
    if offset == 0 {
        return if mask >> base & 1 != 0 {
            base
        } else {
            u32::MAX
        };
    }
    let mut left = offset.unsigned_abs();
    let mut position = base as i32;
    while (0..32).contains(&position) {
        if mask >> position & 1 != 0 {
            left -= 1;
            if left == 0 {
                return position as u32;
            }
        }
        position += offset.signum();
    }
    u32::MAX
}
