//! The approximations (PTX ISA §9.7.3.8, §9.7.3.13 to §9.7.3.22; §9.7.4.9, §9.7.4.10).
//!
//! The document bounds their errors and fixes special values in tables; between these the bits are the hardware's own. Here they are
//! computed in f64 and rounded, which is within every bound.

use super::{
    convert,
    format::Format,
    single::{NAN, canonical, flush},
};

const INFINITY: u32 = 0x7f80_0000;

/// A function of an f32 in f64, with `.ftz` before and after.
#[inline]
fn unary(bits: u32, ftz: bool, of: impl Fn(f64) -> f64) -> u32 {
    let bits = if ftz { flush(bits) } else { bits };
    let result = canonical(of(f64::from(f32::from_bits(bits))) as f32);
    if ftz { flush(result) } else { result }
}

/// 2^`x` to 40 bits and more, by a series around whole numbers, the same on every host. `x` is clamped to where f32 ends.
#[inline]
pub(crate) fn exp2(x: f64) -> f64 {
    const TERMS: [f64; 12] = {
        let mut terms = [1.0; 12];
        let mut k = 1;
        while k < 12 {
            terms[k] = terms[k - 1] * std::f64::consts::LN_2 / k as f64;
            k += 1;
        }
        terms
    };
    // The comparisons keep a NaN.
    let clamped = if x > 1000.0 { 1000.0 } else { x };
    let clamped = if clamped < -1000.0 { -1000.0 } else { clamped };
    // Adding and taking away 1.5 * 2^52 rounds to a whole number, whose low bits are then in the sum's.
    let magic = 6_755_399_441_055_744.0;
    let shifted = clamped + magic;
    let rest = clamped - (shifted - magic);
    let mut sum = TERMS[11];
    let mut k = 11;
    while k > 0 {
        k -= 1;
        sum = sum * rest + TERMS[k];
    }
    let scale = (shifted.to_bits().wrapping_add(1023)) << 52;
    sum * f64::from_bits(scale)
}

/// `ex2.approx.f32` (PTX ISA §9.7.3.21).
#[inline]
pub(crate) fn ex2(bits: u32, ftz: bool) -> u32 {
    unary(bits, ftz, exp2)
}

/// `lg2.approx.f32` (PTX ISA §9.7.3.20): of a zero −∞, of a negative NaN.
pub(crate) fn lg2(bits: u32, ftz: bool) -> u32 {
    unary(bits, ftz, f64::log2)
}

/// `sin.approx.f32` (PTX ISA §9.7.3.18).
pub(crate) fn sin(bits: u32, ftz: bool) -> u32 {
    unary(bits, ftz, f64::sin)
}

/// `cos.approx.f32` (PTX ISA §9.7.3.19).
pub(crate) fn cos(bits: u32, ftz: bool) -> u32 {
    unary(bits, ftz, f64::cos)
}

/// `tanh.approx.f32` (PTX ISA §9.7.3.22).
pub(crate) fn tanh(bits: u32) -> u32 {
    unary(bits, false, f64::tanh)
}

/// `rcp.approx.f32` (PTX ISA §9.7.3.13).
#[inline]
pub(crate) fn rcp(bits: u32, ftz: bool) -> u32 {
    unary(bits, ftz, |x| 1.0 / x)
}

/// `rsqrt.approx.f32` (PTX ISA §9.7.3.16): of ±0 ±∞.
pub(crate) fn rsqrt(bits: u32, ftz: bool) -> u32 {
    unary(
        bits,
        ftz,
        |x| if x == 0.0 { 1.0 / x } else { 1.0 / x.sqrt() },
    )
}

/// `sqrt.approx.f32` (PTX ISA §9.7.3.15).
pub(crate) fn sqrt(bits: u32, ftz: bool) -> u32 {
    unary(bits, ftz, f64::sqrt)
}

/// `div.full.f32` (PTX ISA §9.7.3.8): over the whole range.
pub(crate) fn div_full(a: u32, b: u32, ftz: bool) -> u32 {
    let [a, b] = [a, b].map(|x| if ftz { flush(x) } else { x });
    let wide = |bits| f64::from(f32::from_bits(bits));
    let result = canonical((wide(a) / wide(b)) as f32);
    if ftz { flush(result) } else { result }
}

/// `div.approx.f32` (PTX ISA §9.7.3.8): `a · (1/b)`, where a divisor between 2^126 and 2^128 gives a zero, or NaN under an infinity.
pub(crate) fn div(a: u32, b: u32, ftz: bool) -> u32 {
    let magnitude = b & 0x7fff_ffff;
    if magnitude > 0x7e80_0000 && magnitude < INFINITY {
        let dividend = a & 0x7fff_ffff;
        return if dividend >= INFINITY {
            NAN
        } else {
            (a ^ b) & 0x8000_0000
        };
    }
    div_full(a, b, ftz)
}

/// The upper 32 bits of an f64, subnormals flushed: what the gross approximations look at.
fn upper(bits: u64) -> f64 {
    let bits = bits & 0xffff_ffff_0000_0000;
    f64::from_bits(if bits & 0x7ff0_0000_0000_0000 == 0 {
        bits & 1 << 63
    } else {
        bits
    })
}

/// A result rounded to 20 bits of significand, the lower 32 bits zero, a subnormal flushed.
fn gross(value: f64) -> u64 {
    if value.is_nan() {
        return 0x7fff_ffff_0000_0000;
    }
    let bits = value.to_bits();
    if value.is_infinite() {
        return bits;
    }
    upper(bits.wrapping_add(0x8000_0000)).to_bits()
}

/// `rcp.approx.ftz.f64` (PTX ISA §9.7.3.14).
pub(crate) fn rcp_double(bits: u64) -> u64 {
    gross(1.0 / upper(bits))
}

/// `rsqrt.approx.ftz.f64` (PTX ISA §9.7.3.17).
pub(crate) fn rsqrt_double(bits: u64) -> u64 {
    let x = upper(bits);
    gross(if x == 0.0 { 1.0 / x } else { 1.0 / x.sqrt() })
}

fn narrow(bits: u16, format: &Format, ftz: bool, of: impl Fn(f64) -> f64) -> u16 {
    let flushed = |bits: u64| if ftz { format.flush(bits) } else { bits };
    let value = f64::from(convert::to_f32(flushed(bits.into()), format));
    flushed(convert::from_f64(of(value), format)) as u16
}

/// `ex2.approx.f16` and `ex2.approx.ftz.bf16` (PTX ISA §9.7.4.10).
pub(crate) fn ex2_half(bits: u16, format: &Format, ftz: bool) -> u16 {
    narrow(bits, format, ftz, exp2)
}

/// `tanh.approx.f16` and `.bf16` (PTX ISA §9.7.4.9).
pub(crate) fn tanh_half(bits: u16, format: &Format) -> u16 {
    narrow(bits, format, false, f64::tanh)
}

#[cfg(test)]
mod tests {
    use super::super::format::{BF16, F16};
    use super::*;

    fn bits(x: f32) -> u32 {
        x.to_bits()
    }

    const TINY: u32 = 1;
    const MINUS: u32 = 0x8000_0000;

    #[test]
    fn powers_are_those_of_the_host_to_40_bits() {
        for step in -160_000..=140_000 {
            let x = f64::from(step) / 1000.0;
            let error = exp2(x) / x.exp2() - 1.0;
            assert!(error.abs() < 1e-12, "{x}: {error}");
        }
        assert_eq!(ex2(bits(f32::NEG_INFINITY), false), 0);
        assert_eq!(ex2(bits(f32::INFINITY), true), INFINITY);
        assert_eq!(ex2(bits(128.0), true), INFINITY);
        assert_eq!(ex2(bits(-0.0), true), bits(1.0));
        assert_eq!(ex2(MINUS | TINY, true), bits(1.0));
        assert_eq!(ex2(bits(-149.0), false), TINY);
        assert_eq!(ex2(bits(-127.0), true), 0);
        assert_eq!(ex2(bits(-126.0), true), 0x0080_0000);
        assert_eq!(ex2(bits(-f32::NAN), true), NAN);
        for power in -126..128 {
            assert_eq!(ex2(bits(power as f32), true), ((power + 127) as u32) << 23);
        }
    }

    #[test]
    fn tables_of_special_values() {
        let infinity = bits(f32::INFINITY);
        let minus_infinity = infinity | MINUS;
        assert_eq!(lg2(0, false), minus_infinity);
        assert_eq!(lg2(MINUS, false), minus_infinity);
        assert_eq!(lg2(TINY, true), minus_infinity);
        assert_eq!(lg2(TINY, false), bits(-149.0));
        assert_eq!(lg2(MINUS | TINY, true), minus_infinity);
        assert_eq!(lg2(bits(-1.0), true), NAN);
        assert_eq!(lg2(infinity, true), infinity);
        assert_eq!(sin(infinity, false), NAN);
        assert_eq!(sin(MINUS, false), MINUS);
        assert_eq!(sin(TINY, false), TINY);
        assert_eq!(sin(MINUS | TINY, true), MINUS);
        assert_eq!(cos(MINUS, false), bits(1.0));
        assert_eq!(cos(minus_infinity, true), NAN);
        assert_eq!(tanh(minus_infinity), bits(-1.0));
        assert_eq!(tanh(MINUS), MINUS);
        assert_eq!(rcp(MINUS, false), minus_infinity);
        assert_eq!(rcp(MINUS | TINY, true), minus_infinity);
        assert_eq!(rcp(minus_infinity, false), MINUS);
        assert_eq!(rcp(bits(f32::MAX), true), 0);
        assert_eq!(rsqrt(MINUS, true), minus_infinity);
        assert_eq!(rsqrt(MINUS | TINY, true), minus_infinity);
        assert_eq!(rsqrt(MINUS | TINY, false), NAN);
        assert_eq!(rsqrt(infinity, true), 0);
        assert_eq!(rsqrt(bits(4.0), true), bits(0.5));
        assert_eq!(sqrt(MINUS, false), MINUS);
        assert_eq!(sqrt(bits(-1.0), false), NAN);
        assert_eq!(sqrt(bits(2.25), false), bits(1.5));
        assert_eq!(div(bits(6.0), bits(-3.0), false), bits(-2.0));
        assert_eq!(div(bits(6.0), bits(-2.0e38), false), MINUS);
        assert_eq!(div(infinity, bits(2.0e38), false), NAN);
        assert_eq!(div_full(bits(2.0e38), bits(-2.0e38), true), bits(-1.0));
    }

    #[test]
    fn gross_approximations_of_doubles() {
        for x in [3.0f64, -0.7, 1e300, 1e-300, 12345.678] {
            let ours = rcp_double(x.to_bits());
            assert_eq!(ours as u32, 0);
            assert!((f64::from_bits(ours) * x - 1.0).abs() < 2e-6);
            let root = f64::from_bits(rsqrt_double(x.abs().to_bits()));
            assert!((root * root * x.abs() - 1.0).abs() < 4e-6);
        }
        assert_eq!(rcp_double(0), f64::INFINITY.to_bits());
        assert_eq!(rcp_double(1 << 63 | 5), f64::NEG_INFINITY.to_bits());
        assert_eq!(rsqrt_double(f64::INFINITY.to_bits()), 0);
    }

    #[test]
    fn halves() {
        for pattern in 0..=u16::MAX {
            let x = half::f16::from_bits(pattern);
            let (power, slope) = (ex2_half(pattern, &F16, false), tanh_half(pattern, &F16));
            if x.is_nan() {
                assert_eq!((power, slope), (0x7fff, 0x7fff));
                continue;
            }
            let within = |ours: u16, exact: f64| {
                let ours = half::f16::from_bits(ours).to_f64();
                ours == exact
                    || (ours - exact).abs() <= exact.abs() * 2f64.powf(-9.9) + 2f64.powi(-24)
            };
            let overflows = x.to_f64().exp2() > 65519.0;
            assert!(
                within(power, x.to_f64().exp2()) || (overflows && power == 0x7c00),
                "{x}"
            );
            assert!(within(slope, x.to_f64().tanh()), "{x}");
        }
        assert_eq!(ex2_half(0x0001, &BF16, true), 0x3f80);
        assert_eq!(ex2_half(0xc2fe, &BF16, true), 0);
    }
}
