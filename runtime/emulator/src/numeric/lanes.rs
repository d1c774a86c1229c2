//! The hot operations over the 32 lanes of a warp, as loops that the compiler vectorises; each lane as in `single` and `convert`.
//!
//! On x86-64 the loops exist twice, for the base set and for AVX2 with FMA, and the host is asked which it has; a fused multiply-add
//! without FMA is a library call, and the same bits.

use super::{
    Modifiers, Rounding, approximate, convert,
    single::{self, canonical, choose, flush},
};

/// A 32-bit register of a warp.
pub(crate) type Lanes = [u32; 32];

#[inline(always)]
fn zip<const FTZ: bool>(a: &Lanes, b: &Lanes, of: impl Fn(f32, f32) -> f32) -> Lanes {
    let mut out = [0; 32];
    for lane in 0..32 {
        let x = input::<FTZ>(a[lane]);
        let y = input::<FTZ>(b[lane]);
        out[lane] = output::<FTZ>(of(x, y));
    }
    out
}

/// `.rn.ftz`.
const FLUSHED: Modifiers = Modifiers {
    rounding: Rounding::NearestEven,
    ftz: true,
    saturate: false,
    relu: false,
};

#[inline(always)]
fn input<const FTZ: bool>(bits: u32) -> f32 {
    f32::from_bits(if FTZ { flush(bits) } else { bits })
}

#[inline(always)]
fn output<const FTZ: bool>(value: f32) -> u32 {
    let bits = canonical(value);
    if FTZ { flush(bits) } else { bits }
}

/// Defines a function that runs `$body` as compiled for the host at hand.
macro_rules! wide {
    ($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) -> $result:ty $body:block) => {
        $(#[$doc])*
        pub(crate) fn $name($($arg: $type),*) -> $result {
            #[inline(always)]
            fn plain($($arg: $type),*) -> $result $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                fn fast($($arg: $type),*) -> $result {
                    plain($($arg),*)
                }
                if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                    // SAFETY: the host was just found to have what the function is compiled for.
                    return unsafe { fast($($arg),*) };
                }
            }
            plain($($arg),*)
        }
    };
}

wide! {
    /// `add.rn.f32` (PTX ISA §9.7.3.3).
    add(a: &Lanes, b: &Lanes, ftz: bool) -> Lanes {
        if ftz { zip::<true>(a, b, |x, y| x + y) } else { zip::<false>(a, b, |x, y| x + y) }
    }
}

wide! {
    /// `sub.rn.f32` (PTX ISA §9.7.3.4).
    sub(a: &Lanes, b: &Lanes, ftz: bool) -> Lanes {
        if ftz { zip::<true>(a, b, |x, y| x - y) } else { zip::<false>(a, b, |x, y| x - y) }
    }
}

wide! {
    /// `mul.rn.f32` (PTX ISA §9.7.3.5).
    mul(a: &Lanes, b: &Lanes, ftz: bool) -> Lanes {
        if !ftz {
            return zip::<false>(a, b, |x, y| x * y);
        }
        let mut out = zip::<true>(a, b, |x, y| x * y);
        for lane in 0..32 {
            // Where rounding may have hidden that the exact product is tiny.
            if out[lane] & 0x7fff_ffff == single::SMALLEST {
                out[lane] = single::mul(a[lane], b[lane], FLUSHED);
            }
        }
        out
    }
}

#[inline(always)]
fn zip3<const FTZ: bool>(a: &Lanes, b: &Lanes, c: &Lanes) -> Lanes {
    let mut out = [0; 32];
    for lane in 0..32 {
        let x = input::<FTZ>(a[lane]);
        let y = input::<FTZ>(b[lane]);
        let z = input::<FTZ>(c[lane]);
        out[lane] = output::<FTZ>(x.mul_add(y, z));
    }
    out
}

wide! {
    /// `fma.rn.f32` (PTX ISA §9.7.3.6).
    fma(a: &Lanes, b: &Lanes, c: &Lanes, ftz: bool) -> Lanes {
        if !ftz {
            return zip3::<false>(a, b, c);
        }
        let mut out = zip3::<true>(a, b, c);
        for lane in 0..32 {
            if out[lane] & 0x7fff_ffff == single::SMALLEST {
                out[lane] = single::fma(a[lane], b[lane], c[lane], FLUSHED);
            }
        }
        out
    }
}

wide! {
    /// `min.f32` and `max.f32` without modifiers (PTX ISA §9.7.3.11, §9.7.3.12).
    select(a: &Lanes, b: &Lanes, largest: bool) -> Lanes {
        let mut out = [0; 32];
        if largest {
            for lane in 0..32 {
                out[lane] = choose(a[lane], b[lane], true);
            }
        } else {
            for lane in 0..32 {
                out[lane] = choose(a[lane], b[lane], false);
            }
        }
        out
    }
}

wide! {
    /// `ex2.approx.ftz.f32` (PTX ISA §9.7.3.21).
    ex2_ftz(a: &Lanes) -> Lanes {
        let mut out = [0; 32];
        for lane in 0..32 {
            out[lane] = approximate::ex2(a[lane], true);
        }
        out
    }
}

wide! {
    /// `cvt.f32.f16` of the lower half of each lane (PTX ISA §9.7.9.21).
    widen_f16(a: &Lanes) -> Lanes {
        let mut out = [0; 32];
        for lane in 0..32 {
            out[lane] = convert::f16_to_f32(a[lane] as u16).to_bits();
        }
        out
    }
}

wide! {
    /// `cvt.rn.f16.f32` (PTX ISA §9.7.9.21).
    narrow_f16(a: &Lanes) -> Lanes {
        let mut out = [0; 32];
        for lane in 0..32 {
            out[lane] = convert::f32_to_f16(f32::from_bits(a[lane])).into();
        }
        out
    }
}

wide! {
    /// `cvt.rn.bf16.f32` (PTX ISA §9.7.9.21).
    narrow_bf16(a: &Lanes) -> Lanes {
        let mut out = [0; 32];
        for lane in 0..32 {
            out[lane] = convert::f32_to_bf16(f32::from_bits(a[lane])).into();
        }
        out
    }
}

wide! {
    /// `cvt.rn.f16x2.f32`: `a` in the upper half (PTX ISA §9.7.9.21).
    pack_f16(a: &Lanes, b: &Lanes) -> Lanes {
        let mut out = [0; 32];
        for lane in 0..32 {
            let high = convert::f32_to_f16(f32::from_bits(a[lane]));
            let low = convert::f32_to_f16(f32::from_bits(b[lane]));
            out[lane] = u32::from(high) << 16 | u32::from(low);
        }
        out
    }
}

wide! {
    /// `cvt.rn.bf16x2.f32`: `a` in the upper half (PTX ISA §9.7.9.21).
    pack_bf16(a: &Lanes, b: &Lanes) -> Lanes {
        let mut out = [0; 32];
        for lane in 0..32 {
            let high = convert::f32_to_bf16(f32::from_bits(a[lane]));
            let low = convert::f32_to_bf16(f32::from_bits(b[lane]));
            out[lane] = u32::from(high) << 16 | u32::from(low);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Modifiers, Selection, single};
    use super::*;

    fn random(state: &mut u64) -> Lanes {
        std::array::from_fn(|lane| {
            *state = state
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x9e37);
            let raw = (*state >> 32) as u32;
            match lane % 8 {
                0 => raw & 0x807f_ffff,
                1 => (raw & 0x8000_000f) | 0x7f80_0000,
                2 | 3 => (raw & 0x83ff_ffff) | 0x3c00_0000,
                _ => raw,
            }
        })
    }

    #[test]
    fn each_lane_is_the_single_operation() {
        let mut state = 77;
        for _ in 0..2000 {
            let (a, b, c) = (random(&mut state), random(&mut state), random(&mut state));
            for ftz in [false, true] {
                let modifiers = Modifiers {
                    ftz,
                    ..Modifiers::default()
                };
                let sums = (add(&a, &b, ftz), sub(&a, &b, ftz));
                let products = (mul(&a, &b, ftz), fma(&a, &b, &c, ftz));
                for lane in 0..32 {
                    let (x, y, z) = (a[lane], b[lane], c[lane]);
                    assert_eq!(sums.0[lane], single::add(x, y, modifiers));
                    assert_eq!(sums.1[lane], single::sub(x, y, modifiers));
                    assert_eq!(products.0[lane], single::mul(x, y, modifiers));
                    assert_eq!(products.1[lane], single::fma(x, y, z, modifiers));
                }
            }
            for largest in [false, true] {
                let chosen = select(&a, &b, largest);
                let selection = Selection {
                    largest,
                    ..Selection::default()
                };
                for lane in 0..32 {
                    assert_eq!(chosen[lane], single::select(a[lane], b[lane], selection));
                }
            }
            let (powers, wide) = (ex2_ftz(&a), widen_f16(&a));
            let (halves, brains) = (narrow_f16(&a), narrow_bf16(&a));
            let (half_pairs, brain_pairs) = (pack_f16(&a, &b), pack_bf16(&a, &b));
            for lane in 0..32 {
                let value = f32::from_bits(a[lane]);
                assert_eq!(powers[lane], approximate::ex2(a[lane], true));
                assert_eq!(wide[lane], convert::f16_to_f32(a[lane] as u16).to_bits());
                assert_eq!(halves[lane], u32::from(convert::f32_to_f16(value)));
                assert_eq!(brains[lane], u32::from(convert::f32_to_bf16(value)));
                let other = f32::from_bits(b[lane]);
                assert_eq!(half_pairs[lane] >> 16, halves[lane]);
                assert_eq!(half_pairs[lane] as u16, convert::f32_to_f16(other));
                assert_eq!(brain_pairs[lane] >> 16, brains[lane]);
                assert_eq!(brain_pairs[lane] as u16, convert::f32_to_bf16(other));
            }
        }
    }
}
