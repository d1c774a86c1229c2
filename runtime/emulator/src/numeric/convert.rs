//! Conversions (PTX ISA §9.7.9.21, `cvt`; §5.2.3 for the packed formats' bits).

use super::{
    Exact, Format, Modifiers, Rounding, Value,
    format::{F16, F32, F64, TF32},
    single,
};

/// A float of one format as one of another. `ftz` and the rest apply where the type is `.f32`, or as the modifier says.
///
/// A NaN becomes the destination's canonical one, or its largest value where it has none (`.satfinite` to `.e2m1`, `.e2m3`, `.e3m2`); only
/// an f64 made of an f32 keeps the payload.
pub(crate) fn float(
    bits: u64,
    from: &Format,
    to: &Format,
    modifiers: Modifiers,
    satfinite: bool,
) -> u64 {
    // An H200 flushes no operand of `cvt.ftz.f16.f32`, which the directed roundings show.
    let bits = if modifiers.ftz && *from == F32 && *to != F16 {
        from.flush(bits)
    } else {
        bits
    };
    let result = match from.value(bits) {
        // An H200 cuts the payload of a NaN (and may leave an infinity) where it rounds away from zero.
        Value::Nan if *to == TF32 && modifiers.rounding == Rounding::NearestAway => {
            let cut = bits >> 13;
            return match satfinite && !to.is_nan(cut) {
                true => to.largest | cut & to.sign(),
                false => cut,
            };
        }
        Value::Nan if modifiers.saturate => 0,
        Value::Nan if *from == F32 && *to == F64 => {
            (bits >> 31 << 63) | 0x7ff8_0000_0000_0000 | (bits & 0x7f_ffff) << 29
        }
        Value::Nan => return to.canonical_nan(),
        Value::Infinite { negative } => {
            let magnitude = if to.infinity && !satfinite {
                to.infinite()
            } else {
                to.largest
            };
            magnitude | if negative { to.sign() } else { 0 }
        }
        Value::Finite(exact) => exact.round(to, modifiers.rounding, satfinite),
    };
    finish(result, to, modifiers)
}

/// Modifiers of a result that is no NaN.
fn finish(bits: u64, to: &Format, modifiers: Modifiers) -> u64 {
    let bits = if modifiers.ftz && *to == F32 {
        to.flush(bits)
    } else {
        bits
    };
    if (modifiers.relu || modifiers.saturate) && bits & to.sign() != 0 && !to.is_nan(bits) {
        return 0;
    }
    if modifiers.saturate && !to.is_nan(bits) {
        return bits.min((to.bias as u64) << to.mantissa);
    }
    bits
}

/// A float rounded to a whole number of the same format (`cvt.rni.f32.f32`). The sign stays, of zeros too.
pub(crate) fn whole(bits: u64, format: &Format, modifiers: Modifiers) -> u64 {
    let flushed = modifiers.ftz && *format == F32;
    let bits = if flushed { format.flush(bits) } else { bits };
    let result = match format.value(bits) {
        Value::Nan if modifiers.saturate => 0,
        Value::Nan if *format == F64 => return bits | 0x0008_0000_0000_0000,
        Value::Nan => return format.canonical_nan(),
        Value::Infinite { .. } => bits,
        // No fraction from here on; and a whole number below that fits the significand.
        Value::Finite(exact) if exact.exponent >= 0 => bits,
        Value::Finite(exact) => match exact.whole(0, modifiers.rounding) {
            Some(number) => {
                Exact::new(exact.negative, number, 0).round(format, Rounding::Zero, true)
            }
            None => bits,
        },
    };
    finish(result, format, modifiers)
}

/// A float as an integer of `width` bits, clamped to its range; the bits above are zero.
///
/// A NaN gives 0 from a source that is no f64 to a destination that has no 64 bits, and else the destination's top bit alone (PTX ISA
/// §9.7.9.21).
pub(crate) fn integer(
    bits: u64,
    from: &Format,
    width: u32,
    signed: bool,
    rounding: Rounding,
    ftz: bool,
) -> u64 {
    let bits = if ftz && *from == F32 {
        from.flush(bits)
    } else {
        bits
    };
    let top = 1u64 << (width - 1);
    let mask = top | (top - 1);
    let (least, most) = if signed { (top, top - 1) } else { (0, mask) };
    match from.value(bits) {
        Value::Nan if *from != F64 && width < 64 => 0,
        Value::Nan => top,
        Value::Infinite { negative } => {
            if negative {
                least
            } else {
                most
            }
        }
        Value::Finite(exact) => {
            let number = exact.whole(0, rounding).unwrap_or(u128::MAX);
            match (exact.negative, signed) {
                (false, _) => number.min(most.into()) as u64,
                (true, false) => 0,
                (true, true) => (number.min(top.into()) as u64).wrapping_neg() & mask,
            }
        }
    }
}

/// An integer as a float.
pub(crate) fn from_integer(number: i128, to: &Format, modifiers: Modifiers) -> u64 {
    let exact = Exact::new(number < 0, number.unsigned_abs(), 0);
    let bits = exact.round(to, modifiers.rounding, false);
    finish(bits, to, modifiers)
}

/// An f64 rounded to nearest, ties to even, into any format.
pub(crate) fn from_f64(value: f64, to: &Format) -> u64 {
    float(value.to_bits(), &F64, to, Modifiers::default(), false)
}

/// Bits of a narrow format as f32, which holds all their values.
pub(crate) fn to_f32(bits: u64, from: &Format) -> f32 {
    f32::from_bits(float(bits, from, &F32, Modifiers::default(), false) as u32)
}

/// `.f16` to f32, without a branch; a NaN becomes the canonical one.
#[inline(always)]
pub(crate) fn f16_to_f32(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let magnitude = u32::from(bits & 0x7fff);
    // As an f32 pattern its exponent is 112 too low, for subnormals too; the product is exact.
    let scaled = (f32::from_bits(magnitude << 13) * f32::from_bits(0x7780_0000)).to_bits();
    let scaled = if magnitude >= 0x7c00 {
        0x7f80_0000
    } else {
        scaled
    };
    let whole = scaled | sign;
    f32::from_bits(if magnitude > 0x7c00 {
        single::NAN
    } else {
        whole
    })
}

/// `.bf16` to f32: its upper bits, of NaNs too.
#[inline(always)]
pub(crate) fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// f32 to `.f16`, to the nearest, ties to even.
#[inline(always)]
pub(crate) fn f32_to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16) & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    // Normal results: the exponent made the format's, 13 bits rounded away; a carry runs into the exponent, and at the end to infinity.
    let odd = (magnitude >> 13) & 1;
    let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + odd) >> 13;
    // Subnormal ones: the sum with 1/2 has its unit at 2^-24, and is rounded there.
    let subnormal = (f32::from_bits(magnitude) + 0.5)
        .to_bits()
        .wrapping_sub(0x3f00_0000);
    let finite = if magnitude < 113 << 23 {
        subnormal
    } else {
        normal
    };
    let finite = if magnitude >= 0x477f_f000 {
        0x7c00
    } else {
        finite
    };
    (if magnitude > 0x7f80_0000 {
        0x7fff
    } else {
        finite | sign
    }) as u16
}

/// f32 to `.bf16`, to the nearest, ties to even.
#[inline(always)]
pub(crate) fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    (if bits & 0x7fff_ffff > 0x7f80_0000 {
        0x7fff
    } else {
        rounded
    }) as u16
}

/// A magnitude as `.ue8m0`, the power of two below (`.rz`) or above (`.rp`): its exponent biased by 127, clamped below. 0xff is NaN, and
/// what is too large without `.satfinite`; with it 0xfe.
pub(crate) fn to_ue8m0(bits: u64, from: &Format, up: bool, satfinite: bool) -> u8 {
    match from.value(bits) {
        Value::Nan => 0xff,
        Value::Infinite { .. } => {
            if satfinite {
                0xfe
            } else {
                0xff
            }
        }
        Value::Finite(exact) if exact.is_zero() => 0,
        Value::Finite(exact) => {
            let floor = 127 - exact.significand.leading_zeros() as i32 + exact.exponent;
            let power = floor + i32::from(up && !exact.significand.is_power_of_two());
            match power + 127 {
                255.. if satfinite => 0xfe,
                255.. => 0xff,
                biased => biased.max(0) as u8,
            }
        }
    }
}

/// `.ue8m0` as a power of two.
pub(crate) fn from_ue8m0(bits: u8) -> f32 {
    match bits {
        0xff => f32::from_bits(single::NAN),
        // 2^-127 is subnormal.
        0 => f32::from_bits(0x0040_0000),
        _ => f32::from_bits(u32::from(bits) << 23),
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::{BF16, E2M1, E4M3, E5M2, F16};
    use super::*;

    const PLAIN: Modifiers = Modifiers {
        rounding: Rounding::NearestEven,
        ftz: false,
        saturate: false,
        relu: false,
    };

    #[test]
    fn every_half_widens_and_comes_back() {
        for bits in 0..=u16::MAX {
            let f16 = half::f16::from_bits(bits);
            let bf16 = half::bf16::from_bits(bits);
            if f16.is_nan() {
                assert_eq!(f16_to_f32(bits).to_bits(), single::NAN);
                assert_eq!(f32_to_f16(f16.to_f32()), 0x7fff);
            } else {
                assert_eq!(f16_to_f32(bits).to_bits(), f16.to_f32().to_bits());
                assert_eq!(f32_to_f16(f16.to_f32()), bits);
            }
            assert_eq!(bf16_to_f32(bits).to_bits(), u32::from(bits) << 16);
            if bf16.is_nan() {
                assert_eq!(f32_to_bf16(bf16.to_f32()), 0x7fff);
            } else {
                assert_eq!(f32_to_bf16(bf16.to_f32()), bits);
            }
        }
    }

    #[test]
    fn narrowing_is_the_exact_routines() {
        let check = |bits: u32| {
            let value = f32::from_bits(bits);
            let exact = |to: &Format| float(bits.into(), &F32, to, PLAIN, false) as u16;
            assert_eq!(f32_to_f16(value), exact(&F16), "{value:e}");
            assert_eq!(f32_to_bf16(value), exact(&BF16), "{value:e}");
            if !value.is_nan() {
                assert_eq!(f32_to_f16(value), half::f16::from_f32(value).to_bits());
                assert_eq!(f32_to_bf16(value), half::bf16::from_f32(value).to_bits());
            }
        };
        // Every exponent with significands around the ties of both formats.
        for high in 0..=0x1ffu32 {
            for middle in (0..1u32 << 11).step_by(61) {
                for low in [0, 1, 0xfff, 0x1000, 0x1001, 0x1fff, 0x7fff, 0x8000, 0x8001] {
                    check(high << 23 | (middle << 12 ^ low));
                }
            }
        }
    }

    #[test]
    fn fp8_by_the_nearest_of_all_values() {
        // The reference: look at every value of the format, and take the nearest, the even one of two.
        for format in [E4M3, E5M2, E2M1] {
            let all: Vec<(u64, f64)> = (0..=format.largest)
                .map(|bits| (bits, f64::from(to_f32(bits, &format))))
                .collect();
            for step in 0..40_000u32 {
                let value = f32::from_bits(0x3000_0000 + step * 0x2a7b);
                let wide = f64::from(value);
                let nearest = all
                    .iter()
                    .min_by(|(i, x), (j, y)| {
                        let order = (x - wide).abs().total_cmp(&(y - wide).abs());
                        order.then((i & 1).cmp(&(j & 1)))
                    })
                    .map(|(bits, _)| *bits);
                let ours = float(value.to_bits().into(), &F32, &format, PLAIN, true);
                assert_eq!(Some(ours), nearest, "{value} {format:?}");
                let negative = float((-value).to_bits().into(), &F32, &format, PLAIN, true);
                assert_eq!(negative, ours | format.sign());
            }
        }
    }

    #[test]
    fn special_values_of_narrow_formats() {
        let to =
            |value: f32, format: &Format| float(value.to_bits().into(), &F32, format, PLAIN, true);
        assert_eq!(to(f32::INFINITY, &E4M3), 0x7e);
        assert_eq!(to(f32::NEG_INFINITY, &E5M2), 0xfb);
        assert_eq!(to(-f32::NAN, &E4M3), 0x7f);
        // What an H200 made of them, without the 13 bits that a register has below.
        let away = Modifiers {
            rounding: Rounding::NearestAway,
            ..PLAIN
        };
        let to_tf32 = |bits, finite| float(bits, &F32, &TF32, away, finite) << 13;
        assert_eq!(to_tf32(0x7f80_0001, false), 0x7f80_0000);
        assert_eq!(to_tf32(0xff80_0001, false), 0xff80_0000);
        assert_eq!(to_tf32(0x7f80_0001, true), 0x7f7f_e000);
        assert_eq!(to_tf32(0xff80_0001, true), 0xff7f_e000);
        assert_eq!(to(f32::NAN, &E5M2), 0x7f);
        assert_eq!(to(-f32::NAN, &E2M1), 0x7);
        assert_eq!(to(f32::INFINITY, &F16), 0x7bff);
        let relu = Modifiers {
            relu: true,
            ..PLAIN
        };
        let relu_to = |value: f32| float(value.to_bits().into(), &F32, &E4M3, relu, true);
        assert_eq!(
            (relu_to(-3.0), relu_to(1.0), relu_to(f32::NAN)),
            (0, 0x38, 0x7f)
        );
        assert_eq!(
            float(0x7f80_0001, &F32, &F64, PLAIN, false),
            0x7ff8_0000_2000_0000
        );
        assert_eq!(
            float(f64::NAN.to_bits(), &F64, &F32, PLAIN, false),
            u64::from(single::NAN)
        );
    }

    #[test]
    fn floats_to_integers_are_the_hosts() {
        let values = [
            0.0f64,
            -0.0,
            0.5,
            -0.5,
            1.5,
            2.5,
            -1.5,
            -2.5,
            0.999,
            127.5,
            128.0,
            -128.5,
            255.5,
            2147483647.0,
            2147483648.0,
            -2147483649.0,
            4294967295.5,
            9.3e18,
            1.9e19,
            -9.3e18,
            1e300,
            -1e300,
            1e-310,
        ];
        for x in values {
            let rounded = [
                (Rounding::NearestEven, x.round_ties_even()),
                (Rounding::NearestAway, x.round()),
                (Rounding::Zero, x.trunc()),
                (Rounding::Up, x.ceil()),
                (Rounding::Down, x.floor()),
            ];
            for (mode, y) in rounded {
                // Rust's `as` clamps.
                let go = |width, signed| integer(x.to_bits(), &F64, width, signed, mode, false);
                assert_eq!(go(64, true), y as i64 as u64, "{x} {mode:?}");
                assert_eq!(go(64, false), y as u64);
                assert_eq!(go(32, true), u64::from(y as i32 as u32));
                assert_eq!(go(32, false), u64::from(y as u32));
                assert_eq!(go(16, true), u64::from(y as i16 as u16));
                assert_eq!(go(8, true), u64::from(y as i8 as u8));
                assert_eq!(go(8, false), u64::from(y as u8));
                let whole = whole(
                    x.to_bits(),
                    &F64,
                    Modifiers {
                        rounding: mode,
                        ..PLAIN
                    },
                );
                assert_eq!(whole, y.to_bits(), "{x} {mode:?}");
            }
        }
        let nan =
            |from: &Format, bits, width| integer(bits, from, width, true, Rounding::Zero, false);
        assert_eq!(nan(&F32, 0x7fc0_0000, 32), 0);
        assert_eq!(nan(&F32, 0x7fc0_0000, 64), 1 << 63);
        assert_eq!(nan(&F64, f64::NAN.to_bits(), 32), 1 << 31);
    }

    #[test]
    fn integers_to_floats() {
        let mut state = 5u64;
        for shift in 0..64 {
            for _ in 0..500 {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                let number = (state >> shift) as i64;
                let go = |to: &Format, n: i128| from_integer(n, to, PLAIN);
                assert_eq!(
                    go(&F32, number.into()),
                    u64::from((number as f32).to_bits())
                );
                assert_eq!(go(&F64, number.into()), (number as f64).to_bits());
                let unsigned = number as u64;
                assert_eq!(
                    go(&F32, unsigned.into()),
                    u64::from((unsigned as f32).to_bits())
                );
                let up = Modifiers {
                    rounding: Rounding::Up,
                    ..PLAIN
                };
                let above = f32::from_bits(from_integer(number.into(), &F32, up) as u32);
                assert!(above as i128 >= i128::from(number));
            }
        }
        let saturate = Modifiers {
            saturate: true,
            ..PLAIN
        };
        assert_eq!(from_integer(7, &F32, saturate), u64::from(1.0f32.to_bits()));
        assert_eq!(from_integer(-7, &F32, saturate), 0);
        assert_eq!(from_integer(100_000, &F16, PLAIN), 0x7c00);
    }

    #[test]
    fn powers_of_two() {
        for code in 0..=0xffu8 {
            let value = from_ue8m0(code);
            for up in [false, true] {
                assert_eq!(to_ue8m0(value.to_bits().into(), &F32, up, false), code);
            }
            if code < 0xfe {
                let bits = u64::from(value.to_bits());
                assert_eq!(to_ue8m0(bits + 1, &F32, false, false), code);
                assert_eq!(to_ue8m0(bits + 1, &F32, true, false), code + 1);
            }
        }
        let most = u64::from(f32::MAX.to_bits());
        assert_eq!(to_ue8m0(most, &F32, true, false), 0xff);
        assert_eq!(to_ue8m0(most, &F32, true, true), 0xfe);
        assert_eq!(to_ue8m0(0, &F32, true, true), 0);
        assert_eq!(to_ue8m0(0x3fc0, &BF16, true, true), 128);
    }
}
