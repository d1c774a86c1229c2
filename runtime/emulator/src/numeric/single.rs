//! What the `.f32` instructions do (PTX ISA §9.7.3): bits in, bits out.

use super::{
    Modifiers, Rounding, Selection, arithmetic,
    format::{F32, Format, WIDE},
};

/// Every NaN that an `.f32` instruction makes (PTX ISA §9.7.3).
pub(crate) const NAN: u32 = 0x7fff_ffff;

/// `.ftz`: a subnormal becomes the zero of its sign.
#[inline]
pub(crate) fn flush(bits: u32) -> u32 {
    if bits & 0x7f80_0000 == 0 {
        bits & 0x8000_0000
    } else {
        bits
    }
}

/// Any NaN as the canonical one.
#[inline]
pub(crate) fn canonical(value: f32) -> u32 {
    if value.is_nan() { NAN } else { value.to_bits() }
}

/// `.sat`: clamped to 0.0 to 1.0, a NaN to +0.
#[inline]
pub(crate) fn saturated(bits: u32) -> u32 {
    let value = f32::from_bits(bits);
    // Comparisons with a NaN are false.
    if value >= 1.0 {
        1.0f32.to_bits()
    } else if value > 0.0 {
        bits
    } else {
        0
    }
}

fn finish(bits: u32, modifiers: Modifiers) -> u32 {
    let bits = if modifiers.ftz { flush(bits) } else { bits };
    let bits = if modifiers.relu && bits >> 31 != 0 {
        0
    } else {
        bits
    };
    if modifiers.saturate {
        saturated(bits)
    } else {
        bits
    }
}

/// The magnitude of the smallest normal number.
pub(crate) const SMALLEST: u32 = 0x0080_0000;

/// A result of `.ftz`: what is below the smallest normal number once it is rounded, but with an exponent without a bound, becomes zero, also
/// where the subnormal numbers are so far apart that rounding brings it up to that number (as an H200 has it; the ISA does not say). `unbounded`
/// computes in [`WIDE`].
fn tiny(bits: u32, modifiers: Modifiers, unbounded: impl FnOnce() -> u64) -> u32 {
    if modifiers.ftz && bits & 0x7fff_ffff == SMALLEST {
        // An f64 has the exponents of the wide format, and more digits behind.
        let value = f64::from_bits(unbounded() << 29);
        if value.abs() < f64::from(f32::MIN_POSITIVE) {
            return bits & 0x8000_0000;
        }
    }
    bits
}

/// The number in [`WIDE`], which holds every f32.
fn widened(bits: u32) -> u64 {
    f64::from(f32::from_bits(bits)).to_bits() >> 29
}

fn flushed(bits: u32, modifiers: Modifiers) -> u32 {
    if modifiers.ftz { flush(bits) } else { bits }
}

fn binary(
    a: u32,
    b: u32,
    modifiers: Modifiers,
    native: impl Fn(f32, f32) -> f32,
    exact: fn(&Format, u64, u64, Rounding) -> u64,
) -> u32 {
    let (a, b) = (flushed(a, modifiers), flushed(b, modifiers));
    let bits = match modifiers.rounding {
        Rounding::NearestEven => canonical(native(f32::from_bits(a), f32::from_bits(b))),
        mode => exact(&F32, a.into(), b.into(), mode) as u32,
    };
    let bits = tiny(bits, modifiers, || {
        exact(&WIDE, widened(a), widened(b), modifiers.rounding)
    });
    finish(bits, modifiers)
}

/// `add.f32` (PTX ISA §9.7.3.3).
pub(crate) fn add(a: u32, b: u32, modifiers: Modifiers) -> u32 {
    binary(a, b, modifiers, |x, y| x + y, arithmetic::add)
}

/// `sub.f32` (PTX ISA §9.7.3.4).
pub(crate) fn sub(a: u32, b: u32, modifiers: Modifiers) -> u32 {
    add(a, b ^ 0x8000_0000, modifiers)
}

/// `mul.f32` (PTX ISA §9.7.3.5).
pub(crate) fn mul(a: u32, b: u32, modifiers: Modifiers) -> u32 {
    binary(a, b, modifiers, |x, y| x * y, arithmetic::mul)
}

/// `fma.f32`, and `mad.f32`, which is the same on every target here (PTX ISA §9.7.3.6, §9.7.3.7).
pub(crate) fn fma(a: u32, b: u32, c: u32, modifiers: Modifiers) -> u32 {
    let [a, b, c] = [a, b, c].map(|x| flushed(x, modifiers));
    let bits = match modifiers.rounding {
        Rounding::NearestEven => {
            let [x, y, z] = [a, b, c].map(f32::from_bits);
            canonical(x.mul_add(y, z))
        }
        mode => arithmetic::fma(&F32, a.into(), b.into(), c.into(), mode) as u32,
    };
    let bits = tiny(bits, modifiers, || {
        let [a, b, c] = [a, b, c].map(widened);
        arithmetic::fma(&WIDE, a, b, c, modifiers.rounding)
    });
    finish(bits, modifiers)
}

/// `div.rnd.f32` (PTX ISA §9.7.3.8).
pub(crate) fn div(a: u32, b: u32, modifiers: Modifiers) -> u32 {
    binary(a, b, modifiers, |x, y| x / y, arithmetic::div)
}

/// `rcp.rnd.f32` (PTX ISA §9.7.3.13).
pub(crate) fn rcp(a: u32, modifiers: Modifiers) -> u32 {
    div(1.0f32.to_bits(), a, modifiers)
}

/// `sqrt.rnd.f32` (PTX ISA §9.7.3.15).
pub(crate) fn sqrt(a: u32, modifiers: Modifiers) -> u32 {
    let a = flushed(a, modifiers);
    let bits = match modifiers.rounding {
        Rounding::NearestEven => canonical(f32::from_bits(a).sqrt()),
        mode => arithmetic::sqrt(&F32, a.into(), mode) as u32,
    };
    finish(bits, modifiers)
}

/// `abs.f32`: the sign cleared. The bits of a NaN's payload are unspecified (PTX ISA §9.7.3.9); here they stay.
#[inline]
pub(crate) fn abs(a: u32, ftz: bool) -> u32 {
    (if ftz { flush(a) } else { a }) & 0x7fff_ffff
}

/// `neg.f32`: the sign turned (PTX ISA §9.7.3.10).
#[inline]
pub(crate) fn neg(a: u32, ftz: bool) -> u32 {
    (if ftz { flush(a) } else { a }) ^ 0x8000_0000
}

/// `copysign.f32`: `b` with the sign of `a` (PTX ISA §9.7.3.2).
#[inline]
pub(crate) fn copysign(a: u32, b: u32) -> u32 {
    (b & 0x7fff_ffff) | (a & 0x8000_0000)
}

/// Order of the numbers with −0 below +0, as integers.
#[inline]
fn rank(bits: u32) -> i32 {
    (bits ^ (((bits as i32 >> 31) as u32) >> 1)) as i32
}

/// The smaller or larger of two values of which none is a NaN, else the other, else the canonical NaN.
#[inline]
pub(crate) fn choose(a: u32, b: u32, largest: bool) -> u32 {
    let take_b = (rank(a) < rank(b)) == largest;
    let chosen = if take_b { b } else { a };
    let nan = |bits: u32| bits & 0x7fff_ffff > 0x7f80_0000;
    let chosen = if nan(a) { b } else { chosen };
    let chosen = if nan(b) { a } else { chosen };
    if nan(chosen) { NAN } else { chosen }
}

/// `min.f32` and `max.f32` (PTX ISA §9.7.3.11, §9.7.3.12).
pub(crate) fn select(a: u32, b: u32, selection: Selection) -> u32 {
    let [mut x, mut y] = [a, b].map(|v| if selection.ftz { flush(v) } else { v });
    let nan = |bits: u32| bits & 0x7fff_ffff > 0x7f80_0000;
    if selection.propagate && (nan(x) || nan(y)) {
        return NAN;
    }
    if selection.xorsign || selection.magnitudes {
        x &= 0x7fff_ffff;
        y &= 0x7fff_ffff;
    }
    let chosen = choose(x, y, selection.largest);
    if selection.xorsign && !nan(chosen) {
        chosen | ((a ^ b) & 0x8000_0000)
    } else {
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Modifiers = Modifiers {
        rounding: Rounding::NearestEven,
        ftz: false,
        saturate: false,
        relu: false,
    };
    const FLUSH: Modifiers = Modifiers { ftz: true, ..PLAIN };
    const SATURATE: Modifiers = Modifiers {
        saturate: true,
        ..PLAIN
    };

    fn bits(x: f32) -> u32 {
        x.to_bits()
    }

    #[test]
    fn flushing_keeps_signs_of_inputs_and_results() {
        let tiny = 0x8000_0001;
        assert_eq!(add(tiny, 0x8000_0000, FLUSH), 0x8000_0000);
        assert_eq!(add(tiny, 0x8000_0000, PLAIN), tiny);
        // The smallest normal, halved, is subnormal.
        assert_eq!(mul(0x8080_0000, bits(0.5), FLUSH), 0x8000_0000);
        assert_eq!(mul(0x8080_0000, bits(0.5), PLAIN), 0x8040_0000);
        assert_eq!(div(bits(1.0), 1, FLUSH), bits(f32::INFINITY));
        assert_eq!(sqrt(0x8000_0001, FLUSH), 0x8000_0000);
        assert_eq!(sqrt(0x8000_0001, PLAIN), NAN);
    }

    #[test]
    fn saturation() {
        assert_eq!(add(bits(2.0), bits(3.0), SATURATE), bits(1.0));
        assert_eq!(add(bits(-2.0), bits(1.0), SATURATE), 0);
        assert_eq!(mul(bits(-0.0), bits(1.0), SATURATE), 0);
        assert_eq!(mul(bits(0.0), bits(f32::INFINITY), SATURATE), 0);
        assert_eq!(fma(bits(0.5), bits(0.5), bits(0.25), SATURATE), bits(0.5));
    }

    #[test]
    fn nans_are_canonical() {
        let odd = 0xffc1_2345;
        assert_eq!(add(odd, bits(1.0), PLAIN), NAN);
        assert_eq!(sub(bits(f32::INFINITY), bits(f32::INFINITY), PLAIN), NAN);
        assert_eq!(fma(bits(0.0), bits(f32::INFINITY), odd, PLAIN), NAN);
        for rounding in [Rounding::Zero, Rounding::Up, Rounding::Down] {
            assert_eq!(mul(odd, 0, Modifiers { rounding, ..PLAIN }), NAN);
        }
    }

    #[test]
    fn choosing() {
        let least = Selection::default();
        let most = Selection {
            largest: true,
            ..least
        };
        let odd = 0x7f80_0001;
        for (a, b) in [(bits(0.0), bits(-0.0)), (bits(-0.0), bits(0.0))] {
            assert_eq!(select(a, b, least), bits(-0.0));
            assert_eq!(select(a, b, most), bits(0.0));
        }
        assert_eq!(select(odd, bits(3.0), least), bits(3.0));
        assert_eq!(select(bits(3.0), odd, most), bits(3.0));
        assert_eq!(select(odd, odd, most), NAN);
        let strict = Selection {
            propagate: true,
            ..most
        };
        assert_eq!(select(odd, bits(3.0), strict), NAN);
        let signed = Selection {
            xorsign: true,
            ..most
        };
        assert_eq!(select(bits(-5.0), bits(3.0), signed), bits(-5.0));
        assert_eq!(select(bits(-5.0), bits(-3.0), signed), bits(5.0));
        let values = [-3.0f32, -0.5, 0.5, 7.0, f32::INFINITY, f32::NEG_INFINITY];
        for x in values {
            for y in values {
                assert_eq!(select(bits(x), bits(y), least), bits(x.min(y)));
                assert_eq!(select(bits(x), bits(y), most), bits(x.max(y)));
            }
        }
    }

    #[test]
    fn signs() {
        assert_eq!(abs(0xffc0_0000, false), 0x7fc0_0000);
        assert_eq!(abs(0x8000_0001, true), 0);
        assert_eq!(neg(0x0000_0001, true), 0x8000_0000);
        assert_eq!(copysign(bits(-1.0), bits(2.0)), bits(-2.0));
        assert_eq!(copysign(bits(1.0), bits(-2.0)), bits(2.0));
    }
}
