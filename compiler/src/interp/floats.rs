//! Floating and integer element types, bit by bit: what their codes mean and how values round to them.
//!
//! A float value is held as the `f64` that it equals; every value of every type is one. Invariants: `decode(encode(x))`
//! is `round_to(x)`; `round_to` is the identity on values of the type, but for the infinities of e5m2, which a memory may
//! hold and no cast gives; rounding goes from the `f64` to the type in one step, never by way of another type.
//!
//! Casts to `e4m3 e5m2 e2m1 ue4m3` saturate, infinities too; NaN stays NaN, and becomes 6 in e2m1. `ue4m3` takes what is
//! below 0 as 0. `ue8m0` rounds up to a power of two within 2⁻¹²⁷..2¹²⁷, and so takes 0 and what is below it as 2⁻¹²⁷.
//! `tf32` keeps all bits of an f32: only products see fewer.

use tesserine_set::DType;

/// A binary format with subnormals, as IEEE has them.
#[derive(Clone, Copy)]
struct Format {
    exponent_bits: u32,
    mantissa_bits: u32,
    bias: i32,
    signed: bool,
    /// The largest finite value.
    max: f64,
    /// The code of positive infinity, if there is one that rounding may give.
    infinity: Option<u64>,
    /// The code that NaN gets; without one it becomes the largest value.
    nan: Option<u64>,
}

const F16: Format = Format {
    exponent_bits: 5,
    mantissa_bits: 10,
    bias: 15,
    signed: true,
    max: 65504.0,
    infinity: Some(0x7c00),
    nan: Some(0x7e00),
};
const BF16: Format = Format {
    exponent_bits: 8,
    mantissa_bits: 7,
    bias: 127,
    signed: true,
    max: 3.389_531_389_251_535_5e38,
    infinity: Some(0x7f80),
    nan: Some(0x7fc0),
};
const E4M3: Format = Format {
    exponent_bits: 4,
    mantissa_bits: 3,
    bias: 7,
    signed: true,
    max: 448.0,
    infinity: None,
    nan: Some(0x7f),
};
const E5M2: Format = Format {
    exponent_bits: 5,
    mantissa_bits: 2,
    bias: 15,
    signed: true,
    max: 57344.0,
    infinity: None,
    nan: Some(0x7f),
};
const E2M1: Format = Format {
    exponent_bits: 2,
    mantissa_bits: 1,
    bias: 1,
    signed: true,
    max: 6.0,
    infinity: None,
    nan: None,
};
const UE4M3: Format = Format {
    signed: false,
    ..E4M3
};

fn format(ty: DType) -> Option<Format> {
    Some(match ty {
        DType::F16 => F16,
        DType::Bf16 => BF16,
        DType::E4m3 => E4M3,
        DType::E5m2 => E5M2,
        DType::E2m1 => E2M1,
        DType::Ue4m3 => UE4M3,
        _ => return None,
    })
}

impl Format {
    fn round(self, value: f64) -> f64 {
        if value.is_nan() {
            return if self.nan.is_some() { value } else { self.max };
        }
        if !self.signed && value <= 0.0 {
            return 0.0;
        }
        let magnitude = value.abs();
        if magnitude == 0.0 {
            return value;
        }
        let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(1 - self.bias);
        // Scaling by a power of two is exact here: nothing that matters is near the ends of f64's range.
        let quantum = power_of_two(exponent - self.mantissa_bits as i32);
        let mut rounded = (magnitude / quantum).round_ties_even() * quantum;
        if rounded > self.max {
            rounded = if self.infinity.is_some() {
                f64::INFINITY
            } else {
                self.max
            };
        }
        rounded.copysign(value)
    }

    /// The code of `value`, which is one of the format.
    fn encode_exact(self, value: f64) -> u64 {
        let width = self.exponent_bits + self.mantissa_bits;
        let sign = u64::from(self.signed && value.is_sign_negative()) << width;
        if value.is_nan() {
            return self.nan.unwrap_or(0);
        }
        let magnitude = value.abs();
        if magnitude.is_infinite() {
            return sign | self.infinity.unwrap_or(0);
        }
        let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(1 - self.bias);
        let units = (magnitude / power_of_two(exponent - self.mantissa_bits as i32)) as u64;
        // A subnormal has fewer units than the hidden bit is worth, and the exponent field 0.
        let field = (exponent + self.bias - 1) as u64;
        sign | ((field << self.mantissa_bits) + units)
    }

    fn decode(self, code: u64) -> f64 {
        let width = self.exponent_bits + self.mantissa_bits;
        let sign = if self.signed && code >> width & 1 == 1 {
            -1.0
        } else {
            1.0
        };
        let mantissa = (code & ((1 << self.mantissa_bits) - 1)) as f64;
        let field = (code >> self.mantissa_bits & ((1 << self.exponent_bits) - 1)) as i32;
        let scale = power_of_two(field.max(1) - self.bias - self.mantissa_bits as i32);
        let hidden = if field == 0 {
            0.0
        } else {
            power_of_two(self.mantissa_bits as i32)
        };
        sign * (hidden + mantissa) * scale
    }
}

/// 2^`exponent`, which is in the range of normal numbers.
fn power_of_two(exponent: i32) -> f64 {
    debug_assert!((-1022..=1023).contains(&exponent));
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// The value of the low bits of `code` in floating type `ty`.
pub fn decode(ty: DType, code: u64) -> f64 {
    match ty {
        DType::F64 => f64::from_bits(code),
        DType::F32 | DType::Tf32 => f64::from(f32::from_bits(code as u32)),
        DType::F16 => f64::from(half::f16::from_bits(code as u16)),
        DType::Bf16 => f64::from(f32::from_bits((code as u32) << 16)),
        DType::E4m3 | DType::Ue4m3 if code & 0x7f == 0x7f => f64::NAN,
        // The sign bit of an unsigned scale means nothing.
        DType::Ue4m3 => UE4M3.decode(code & 0x7f),
        DType::E4m3 => E4M3.decode(code),
        DType::E5m2 if code & 0x7c == 0x7c => {
            let magnitude = if code & 3 == 0 {
                f64::INFINITY
            } else {
                f64::NAN
            };
            magnitude.copysign(if code & 0x80 == 0 { 1.0 } else { -1.0 })
        }
        DType::E5m2 => E5M2.decode(code),
        DType::E2m1 => E2M1.decode(code & 0xf),
        DType::Ue8m0 if code & 0xff == 0xff => f64::NAN,
        DType::Ue8m0 => power_of_two((code & 0xff) as i32 - 127),
        _ => f64::NAN,
    }
}

/// `value` rounded to floating type `ty`: to the nearest, ties to even, but as the module says for scales and overflow.
#[inline]
pub fn round_to(ty: DType, value: f64) -> f64 {
    match ty {
        DType::F64 => value,
        DType::F32 | DType::Tf32 => f64::from(value as f32),
        DType::Bf16 => round_normal::<45>(value, -126, 127).unwrap_or_else(|| BF16.round(value)),
        DType::F16 => round_normal::<42>(value, -14, 15).unwrap_or_else(|| F16.round(value)),
        DType::Ue8m0 => {
            if value.is_nan() {
                return f64::NAN;
            }
            let value = value.max(power_of_two(-127));
            let bits = value.to_bits();
            let floor = (bits >> 52) as i32 - 1023;
            let up = i32::from(bits & ((1 << 52) - 1) != 0);
            power_of_two((floor + up).min(127))
        }
        _ => match format(ty) {
            Some(format) => format.round(value),
            None => value,
        },
    }
}

/// Rounds away the last `DROP` mantissa bits if the exponent is well inside `low..high`.
#[inline]
fn round_normal<const DROP: u32>(value: f64, low: i32, high: i32) -> Option<f64> {
    let bits = value.to_bits();
    let exponent = (bits >> 52 & 0x7ff) as i32 - 1023;
    if exponent < low || exponent >= high {
        return None;
    }
    let odd = bits >> DROP & 1;
    let rounded = bits + ((1 << (DROP - 1)) - 1) + odd;
    Some(f64::from_bits(rounded >> DROP << DROP))
}

/// The code of `value` rounded to floating type `ty`. An infinity in e5m2 is one of its values and keeps its code.
pub fn encode(ty: DType, value: f64) -> u64 {
    match ty {
        DType::E5m2 if value.is_infinite() => 0x7c | u64::from(value < 0.0) << 7,
        DType::F64 => value.to_bits(),
        DType::F32 | DType::Tf32 if value.is_nan() => 0x7fc0_0000,
        DType::F32 | DType::Tf32 => u64::from((value as f32).to_bits()),
        DType::Ue8m0 if value.is_nan() => 0xff,
        DType::Ue8m0 => ((round_to(ty, value).to_bits() >> 52) as i32 - 1023 + 127) as u64,
        _ => match format(ty) {
            Some(format) => format.encode_exact(round_to(ty, value)),
            None => 0,
        },
    }
}

/// Whether `value` is one of floating type `ty`. Which NaN does not matter.
pub fn is_value(ty: DType, value: f64) -> bool {
    let infinite_e5m2 = ty == DType::E5m2 && value.is_infinite();
    infinite_e5m2 || {
        let rounded = round_to(ty, value);
        rounded.to_bits() == value.to_bits() || rounded.is_nan() && value.is_nan()
    }
}

/// The value of integer type `ty` that equals `value` modulo 2^bits. A `u64` is held by its bits; `bool` is no integer.
#[inline]
pub fn wrap(ty: DType, value: i64) -> i64 {
    match ty {
        DType::I8 => i64::from(value as i8),
        DType::I16 => i64::from(value as i16),
        DType::I32 => i64::from(value as i32),
        DType::U8 => i64::from(value as u8),
        DType::U16 => i64::from(value as u16),
        DType::U32 => i64::from(value as u32),
        DType::U4 => value & 0xf,
        DType::I4 => value << 60 >> 60,
        DType::U1 => value & 1,
        _ => value,
    }
}

/// An integer as a value of floating type `ty`, rounded once.
pub fn from_int(ty: DType, value: i128) -> f64 {
    match ty {
        DType::F64 => value as f64,
        DType::F32 | DType::Tf32 => f64::from(value as f32),
        _ => {
            // Of 65 bits, keep those that fit f64 exactly, and whether anything was lost, in the last: the narrower
            // type then rounds as if it had seen all.
            let magnitude = value.unsigned_abs();
            let excess = (128 - magnitude.leading_zeros()).saturating_sub(53);
            let kept = magnitude >> excess;
            let lost = u128::from(kept << excess != magnitude);
            let exact = (kept | lost) as f64 * power_of_two(excess as i32);
            round_to(ty, if value < 0 { -exact } else { exact })
        }
    }
}

/// A float as an integer of type `ty`: towards zero, saturating, NaN as 0.
pub fn to_int(ty: DType, value: f64) -> i64 {
    match ty {
        DType::I8 => i64::from(value as i8),
        DType::I16 => i64::from(value as i16),
        DType::I32 => i64::from(value as i32),
        DType::U8 => i64::from(value as u8),
        DType::U16 => i64::from(value as u16),
        DType::U32 => i64::from(value as u32),
        DType::U64 => value as u64 as i64,
        _ => value as i64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NARROW: [DType; 7] = [
        DType::F16,
        DType::Bf16,
        DType::E4m3,
        DType::E5m2,
        DType::E2m1,
        DType::Ue8m0,
        DType::Ue4m3,
    ];

    fn codes(ty: DType) -> impl Iterator<Item = u64> {
        0..1 << ty.bits()
    }

    /// The value of a code by the definition of its format, in another way than `decode` goes.
    fn by_definition(ty: DType, code: u64) -> f64 {
        let (e, m, bias) = match ty {
            DType::F16 => (5, 10, 15),
            DType::Bf16 => (8, 7, 127),
            DType::E4m3 | DType::Ue4m3 => (4, 3, 7),
            DType::E5m2 => (5, 2, 15),
            DType::E2m1 => (2, 1, 1),
            _ => {
                return if code == 255 {
                    f64::NAN
                } else {
                    2f64.powi(code as i32 - 127)
                };
            }
        };
        let field = (code >> m) % (1 << e);
        let fraction = (code % (1 << m)) as f64 / f64::from(1 << m);
        let negative = ty != DType::Ue4m3 && code >> (e + m) == 1;
        let ieee = matches!(ty, DType::F16 | DType::Bf16 | DType::E5m2);
        let e4m3_nan = matches!(ty, DType::E4m3 | DType::Ue4m3) && code & 0x7f == 0x7f;
        let magnitude = if ieee && field == (1 << e) - 1 {
            if fraction == 0.0 {
                f64::INFINITY
            } else {
                f64::NAN
            }
        } else if e4m3_nan {
            f64::NAN
        } else if field == 0 {
            fraction * 2f64.powi(1 - bias)
        } else {
            (1.0 + fraction) * 2f64.powi(field as i32 - bias)
        };
        if negative { -magnitude } else { magnitude }
    }

    #[test]
    fn every_code_decodes_by_its_definition_and_encodes_back() {
        for ty in NARROW {
            for code in codes(ty) {
                let value = decode(ty, code);
                let expected = by_definition(ty, code);
                if expected.is_nan() {
                    assert!(value.is_nan(), "{ty} {code:#x}");
                    assert!(decode(ty, encode(ty, value)).is_nan(), "{ty} {code:#x}");
                    continue;
                }
                assert_eq!(value.to_bits(), expected.to_bits(), "{ty} {code:#x}");
                if ty == DType::E5m2 && value.is_infinite() {
                    assert_eq!(round_to(ty, value), 57344f64.copysign(value));
                    assert_eq!(encode(ty, value), code);
                    continue;
                }
                // The sign bit of ue4m3 means nothing and is not written.
                let canonical = if ty == DType::Ue4m3 {
                    code & 0x7f
                } else {
                    code
                };
                assert_eq!(encode(ty, value), canonical, "{ty} {code:#x}");
                assert_eq!(
                    round_to(ty, value).to_bits(),
                    value.to_bits(),
                    "{ty} {code:#x}"
                );
                assert!(is_value(ty, value));
            }
        }
    }

    #[test]
    fn the_libraries_agree_on_halves() {
        for code in 0..=u16::MAX {
            let (f, b) = (half::f16::from_bits(code), half::bf16::from_bits(code));
            if !f.is_nan() {
                assert_eq!(decode(DType::F16, code.into()), f.to_f64());
            }
            if !b.is_nan() {
                assert_eq!(decode(DType::Bf16, code.into()), b.to_f64());
            }
        }
    }

    /// All finite non-negative values with their codes, ascending.
    fn ladder(ty: DType) -> Vec<(f64, u64)> {
        let mut all: Vec<(f64, u64)> = codes(ty)
            .map(|c| (by_definition(ty, c), c))
            .filter(|(v, c)| v.is_finite() && v.is_sign_positive() && encode(ty, *v) == *c)
            .collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        all
    }

    /// Nearest, ties to the even code, by looking at all neighbours.
    fn slow_round(ty: DType, ladder: &[(f64, u64)], value: f64) -> f64 {
        let i = ladder.partition_point(|(v, _)| *v <= value);
        if i == 0 {
            return ladder[0].0;
        }
        let below = ladder[i - 1];
        let Some(&above) = ladder.get(i) else {
            if matches!(ty, DType::F16 | DType::Bf16) {
                // The step beyond the largest finite value decides between it and infinity.
                let step = below.0 - ladder[i - 2].0;
                let half_way = below.0 + step / 2.0;
                return if value >= half_way {
                    f64::INFINITY
                } else {
                    below.0
                };
            }
            return below.0;
        };
        if ty == DType::Ue8m0 {
            return if value > below.0 { above.0 } else { below.0 };
        }
        let (down, up) = (value - below.0, above.0 - value);
        if down < up || down == up && below.1.is_multiple_of(2) {
            below.0
        } else {
            above.0
        }
    }

    #[test]
    fn rounding_agrees_with_a_search_over_all_codes() {
        for ty in NARROW {
            let ladder = ladder(ty);
            let mut probes = vec![f64::MIN_POSITIVE, 5e-324, 1e300, f64::MAX];
            for pair in ladder.windows(2) {
                let middle = (pair[0].0 + pair[1].0) / 2.0;
                probes.extend([
                    pair[0].0,
                    middle,
                    middle.next_up(),
                    middle.next_down(),
                    pair[0].0.next_up(),
                    pair[1].0.next_down(),
                ]);
            }
            let (last, before) = (ladder[ladder.len() - 1].0, ladder[ladder.len() - 2].0);
            let edge = last + (last - before) / 2.0;
            probes.extend([
                last,
                last.next_up(),
                edge,
                edge.next_down(),
                edge.next_up(),
                2.0 * last,
            ]);
            for value in probes {
                if value <= 0.0 {
                    continue;
                }
                let expected = slow_round(ty, &ladder, value);
                assert_eq!(round_to(ty, value), expected, "{ty} {value:e}");
                assert_eq!(decode(ty, encode(ty, value)), expected, "{ty} {value:e}");
                match ty {
                    DType::Ue4m3 => assert_eq!(round_to(ty, -value), 0.0),
                    DType::Ue8m0 => assert_eq!(round_to(ty, -value), 2f64.powi(-127)),
                    _ => assert_eq!(round_to(ty, -value), -expected, "{ty} -{value:e}"),
                }
            }
        }
    }

    #[test]
    fn rounding_does_not_pass_through_f32() {
        // Just above the middle of two bf16 values, by less than f32 can tell.
        let middle = 1.0 + 2f64.powi(-8);
        assert_eq!(round_to(DType::Bf16, middle), 1.0);
        assert_eq!(
            round_to(DType::Bf16, middle + 2f64.powi(-40)),
            1.0 + 2f64.powi(-7)
        );
    }

    #[test]
    fn special_values() {
        let inf = f64::INFINITY;
        assert_eq!(round_to(DType::F16, inf), inf);
        assert_eq!(round_to(DType::Bf16, -inf), -inf);
        assert_eq!(round_to(DType::E4m3, inf), 448.0);
        assert_eq!(round_to(DType::E5m2, -inf), -57344.0);
        assert_eq!(round_to(DType::E2m1, inf), 6.0);
        assert_eq!(round_to(DType::E2m1, f64::NAN), 6.0);
        assert_eq!(round_to(DType::Ue4m3, -inf), 0.0);
        assert_eq!(round_to(DType::Ue8m0, inf), 2f64.powi(127));
        assert_eq!(round_to(DType::Ue8m0, 0.0), 2f64.powi(-127));
        assert_eq!(round_to(DType::Ue8m0, 1.0), 1.0);
        assert_eq!(round_to(DType::Ue8m0, 1.1), 2.0);
        for ty in [
            DType::F32,
            DType::F16,
            DType::Bf16,
            DType::E4m3,
            DType::E5m2,
            DType::Ue4m3,
            DType::Ue8m0,
        ] {
            assert!(round_to(ty, f64::NAN).is_nan(), "{ty}");
            assert!(decode(ty, encode(ty, f64::NAN)).is_nan(), "{ty}");
        }
        assert!(round_to(DType::Bf16, -0.0).is_sign_negative());
        assert_eq!(encode(DType::E4m3, -0.0), 0x80);
    }

    #[test]
    fn integers() {
        assert_eq!(wrap(DType::I8, 130), -126);
        assert_eq!(wrap(DType::U4, -1), 15);
        assert_eq!(wrap(DType::I4, 9), -7);
        assert_eq!(to_int(DType::U8, 300.7), 255);
        assert_eq!(to_int(DType::I32, f64::NAN), 0);
        assert_eq!(to_int(DType::I8, -1.9), -1);
        assert_eq!(to_int(DType::U64, 1e30), -1);
        assert_eq!(from_int(DType::F16, 2049), 2048.0);
        assert_eq!(from_int(DType::F16, 1 << 40), f64::INFINITY);
        // Beyond f64's precision and just above the middle of two bf16 values.
        let value = (1i128 << 62) + (1 << 54) + 1;
        assert_eq!(
            from_int(DType::Bf16, value),
            2f64.powi(62) * (1.0 + 2f64.powi(-7))
        );
        assert_eq!(from_int(DType::Bf16, value - 1), 2f64.powi(62));
    }
}
