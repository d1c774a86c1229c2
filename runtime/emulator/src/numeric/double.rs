//! What the `.f64` instructions do (PTX ISA §9.7.3): bits in, bits out.
//!
//! NaN payloads go through double-precision instructions (PTX ISA §9.7.3): the result is the first NaN operand, quieted; an operation
//! without a value gives [`NAN`]. Which operand wins is not in the document.

use super::{
    Rounding, Selection, arithmetic,
    format::{F64, Format},
};

/// The NaN of operations without a value.
pub(crate) const NAN: u64 = 0xfff8_0000_0000_0000;

const QUIET: u64 = 0x0008_0000_0000_0000;
const SIGN: u64 = 1 << 63;

fn nan(bits: u64) -> bool {
    bits & !SIGN > 0x7ff0_0000_0000_0000
}

/// The first NaN of the operands, quieted, or the result with its NaN as the instruction makes it.
fn propagate(operands: &[u64], result: impl FnOnce() -> u64) -> u64 {
    if let Some(found) = operands.iter().find(|x| nan(**x)) {
        return found | QUIET;
    }
    let bits = result();
    if nan(bits) { NAN } else { bits }
}

fn binary(
    a: u64,
    b: u64,
    rounding: Rounding,
    native: impl Fn(f64, f64) -> f64,
    exact: fn(&Format, u64, u64, Rounding) -> u64,
) -> u64 {
    propagate(&[a, b], || match rounding {
        Rounding::NearestEven => native(f64::from_bits(a), f64::from_bits(b)).to_bits(),
        mode => exact(&F64, a, b, mode),
    })
}

/// `add.f64` (PTX ISA §9.7.3.3).
pub(crate) fn add(a: u64, b: u64, rounding: Rounding) -> u64 {
    binary(a, b, rounding, |x, y| x + y, arithmetic::add)
}

/// `atom.add.f64` and `red.add.f64` on global memory (PTX ISA §9.7.13.5): the sum, but as an H200 has it a NaN is kept as it is, the operand's
/// if both are one.
pub(crate) fn add_in_global(memory: u64, operand: u64) -> u64 {
    match [operand, memory].into_iter().find(|x| nan(*x)) {
        Some(found) => found,
        None => add(memory, operand, Rounding::NearestEven),
    }
}

/// `sub.f64` (PTX ISA §9.7.3.4).
pub(crate) fn sub(a: u64, b: u64, rounding: Rounding) -> u64 {
    let turned = if nan(b) { b } else { b ^ SIGN };
    add(a, turned, rounding)
}

/// `mul.f64` (PTX ISA §9.7.3.5).
pub(crate) fn mul(a: u64, b: u64, rounding: Rounding) -> u64 {
    binary(a, b, rounding, |x, y| x * y, arithmetic::mul)
}

/// `fma.f64` and `mad.f64` (PTX ISA §9.7.3.6, §9.7.3.7).
pub(crate) fn fma(a: u64, b: u64, c: u64, rounding: Rounding) -> u64 {
    propagate(&[a, b, c], || match rounding {
        Rounding::NearestEven => {
            let [x, y, z] = [a, b, c].map(f64::from_bits);
            x.mul_add(y, z).to_bits()
        }
        mode => arithmetic::fma(&F64, a, b, c, mode),
    })
}

/// `div.rnd.f64` (PTX ISA §9.7.3.8).
pub(crate) fn div(a: u64, b: u64, rounding: Rounding) -> u64 {
    binary(a, b, rounding, |x, y| x / y, arithmetic::div)
}

/// `rcp.rnd.f64` (PTX ISA §9.7.3.13).
pub(crate) fn rcp(a: u64, rounding: Rounding) -> u64 {
    div(1.0f64.to_bits(), a, rounding)
}

/// `sqrt.rnd.f64` (PTX ISA §9.7.3.15).
pub(crate) fn sqrt(a: u64, rounding: Rounding) -> u64 {
    propagate(&[a], || match rounding {
        Rounding::NearestEven => f64::from_bits(a).sqrt().to_bits(),
        mode => arithmetic::sqrt(&F64, a, mode),
    })
}

/// `rsqrt.approx.f64` (PTX ISA §9.7.3.16): of ±0 ±∞; its bits are the hardware's own.
pub(crate) fn rsqrt(a: u64) -> u64 {
    let x = f64::from_bits(a);
    propagate(&[a], || {
        let root = if x == 0.0 { x } else { x.sqrt() };
        (1.0 / root).to_bits()
    })
}

/// `abs.f64` (PTX ISA §9.7.3.9).
pub(crate) fn abs(a: u64) -> u64 {
    a & !SIGN
}

/// `neg.f64` (PTX ISA §9.7.3.10).
pub(crate) fn neg(a: u64) -> u64 {
    a ^ SIGN
}

/// `copysign.f64`: `b` with the sign of `a` (PTX ISA §9.7.3.2).
pub(crate) fn copysign(a: u64, b: u64) -> u64 {
    (b & !SIGN) | (a & SIGN)
}

fn rank(bits: u64) -> i64 {
    (bits ^ (((bits as i64 >> 63) as u64) >> 1)) as i64
}

/// `min.f64` and `max.f64`, which have no modifiers (PTX ISA §9.7.3.11, §9.7.3.12).
pub(crate) fn select(a: u64, b: u64, selection: Selection) -> u64 {
    match (nan(a), nan(b)) {
        (true, true) => a | QUIET,
        (true, false) => b,
        (false, true) => a,
        (false, false) if (rank(a) < rank(b)) == selection.largest => b,
        (false, false) => a,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEAREST: Rounding = Rounding::NearestEven;

    #[test]
    fn payloads_go_through() {
        let signalling = 0xfff0_0000_0000_1234;
        let one = 1.0f64.to_bits();
        assert_eq!(add(signalling, one, NEAREST), 0xfff8_0000_0000_1234);
        assert_eq!(sub(one, signalling, Rounding::Up), 0xfff8_0000_0000_1234);
        assert_eq!(fma(one, one, signalling, NEAREST), 0xfff8_0000_0000_1234);
        let infinity = f64::INFINITY.to_bits();
        assert_eq!(sub(infinity, infinity, NEAREST), NAN);
        assert_eq!(mul(0, infinity, Rounding::Zero), NAN);
        assert_eq!(sqrt((-1.0f64).to_bits(), NEAREST), NAN);
    }

    #[test]
    fn sums_in_global_memory_keep_nans_as_they_are() {
        // What an H200 left of a signalling NaN and 0, and which of two it took.
        let (one, signalling) = (1.0f64.to_bits(), 0x7ff0_0000_0000_0001);
        let quiet = 0xfff8_0000_0000_0000;
        assert_eq!(add_in_global(signalling, 0), signalling);
        assert_eq!(add_in_global(one, signalling), signalling);
        assert_eq!(add_in_global(signalling, quiet), quiet);
        assert_eq!(add_in_global(quiet, signalling), signalling);
        assert_eq!(add_in_global(one, one), 2.0f64.to_bits());
    }

    #[test]
    fn directed_bounds_enclose_a_third() {
        let (one, three) = (1.0f64.to_bits(), 3.0f64.to_bits());
        let low = f64::from_bits(div(one, three, Rounding::Down));
        let high = f64::from_bits(div(one, three, Rounding::Up));
        assert_eq!(high.to_bits(), low.to_bits() + 1);
        // The residual of a bound is exact in an fma.
        assert!(low.mul_add(3.0, -1.0) < 0.0 && high.mul_add(3.0, -1.0) > 0.0);
        assert_eq!(div(one, three, Rounding::Zero), low.to_bits());
        assert_eq!(rcp(three, Rounding::Up), high.to_bits());
    }

    #[test]
    fn choosing() {
        let least = Selection::default();
        let most = Selection {
            largest: true,
            ..least
        };
        assert_eq!(select(0, SIGN, least), SIGN);
        assert_eq!(select(SIGN, 0, most), 0);
        assert_eq!(select(0x7ff8_0000_0000_0001, 5, least), 5);
        for x in [-2.0f64, 0.5, 3.0] {
            for y in [-7.0f64, 0.25, 9.0] {
                assert_eq!(select(x.to_bits(), y.to_bits(), most), x.max(y).to_bits());
                assert_eq!(select(x.to_bits(), y.to_bits(), least), x.min(y).to_bits());
            }
        }
        assert_eq!(copysign(SIGN, 5), SIGN | 5);
        assert_eq!((abs(SIGN | 1), neg(1)), (1, SIGN | 1));
    }
}
