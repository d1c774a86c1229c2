//! Arithmetic for references: exact values as pairs of f64, and their rounding to narrower formats.
//!
//! Invariant: a value that was "rounded to odd" keeps in its last bit whether anything lay below it, so that it rounds to any format of at
//! most 24 bits as the exact value does.

use half::{bf16, f16};

/// How a result is rounded (PTX ISA §9.7.3, rounding modifiers).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    Nearest,
    Zero,
    Down,
    Up,
}

impl Rounding {
    /// The modifiers of floating-point arithmetic.
    pub const ALL: [(&str, Rounding); 4] = [
        ("rn", Rounding::Nearest),
        ("rz", Rounding::Zero),
        ("rm", Rounding::Down),
        ("rp", Rounding::Up),
    ];
}

/// `high + low`, where `low` is below half a unit of `high`, rounded to odd.
fn odd(high: f64, low: f64) -> f64 {
    if low == 0.0 || !high.is_finite() || low.is_nan() {
        return high;
    }
    if high == 0.0 {
        return low;
    }
    let toward_zero = match (low > 0.0) == (high > 0.0) {
        true => high,
        false => f64::from_bits(high.to_bits() - 1),
    };
    f64::from_bits(toward_zero.to_bits() | 1)
}

/// The exact sum, rounded to odd. Operands are not so large that it overflows.
pub fn sum(a: f64, b: f64) -> f64 {
    let high = a + b;
    let part = high - a;
    odd(high, (a - (high - part)) + (b - part))
}

/// The exact quotient, rounded to odd, of operands of at most 24 bits.
pub fn quotient(a: f64, b: f64) -> f64 {
    let high = a / b;
    let rest = (-high).mul_add(b, a);
    match b.is_infinite() || high == 0.0 {
        true => high,
        false => odd(
            high,
            if b < 0.0 { -rest } else { rest }.signum()
                * f64::from(rest != 0.0)
                * f64::MIN_POSITIVE,
        ),
    }
}

/// The exact root, rounded to odd, of an operand of at most 24 bits.
pub fn root(a: f64) -> f64 {
    let high = a.sqrt();
    let rest = (-high).mul_add(high, a);
    match high == 0.0 {
        true => high,
        false => odd(
            high,
            rest.signum() * f64::from(rest != 0.0) * f64::MIN_POSITIVE,
        ),
    }
}

/// An integer, rounded to odd.
pub fn integer(v: i128) -> f64 {
    let high = v as f64;
    odd(high, (v - high as i128) as f64)
}

/// A number rounded to a format of so many exponent and mantissa bits, as f64; `sign_of_zero` is for results that are zero exactly.
pub fn round(v: f64, exponent: u32, mantissa: u32, rounding: Rounding) -> f64 {
    if !v.is_finite() || v == 0.0 {
        return v;
    }
    let bias = (1i32 << (exponent - 1)) - 1;
    let power = |p: i32| 2f64.powi(p);
    let size = v.abs();
    // Of a subnormal f64 the exponent does not matter: it lies below all others.
    let own = ((size.to_bits() >> 52) as i32 - 1023).max(1 - bias);
    let quantum = own - mantissa as i32;
    // In two steps: the scale itself can be out of range.
    let scaled = size * power(-quantum / 2) * power(-quantum - (-quantum / 2));
    let whole = scaled.floor();
    let up = match rounding {
        Rounding::Nearest => {
            let rest = scaled - whole;
            rest > 0.5 || rest == 0.5 && whole % 2.0 == 1.0
        }
        Rounding::Zero => false,
        Rounding::Down => v < 0.0 && scaled != whole,
        Rounding::Up => v > 0.0 && scaled != whole,
    };
    let rounded = (whole + f64::from(up)) * power(quantum);
    let largest = power(bias) * (2.0 - power(-(mantissa as i32)));
    let limited = if rounded > largest {
        match (rounding, v > 0.0) {
            (Rounding::Nearest, _) | (Rounding::Down, false) | (Rounding::Up, true) => {
                f64::INFINITY
            }
            _ => largest,
        }
    } else {
        rounded
    };
    limited.copysign(v)
}

/// Rounded to f32: the bits; NaN is the canonical one.
pub fn to_f32(v: f64, rounding: Rounding) -> u64 {
    match v.is_nan() {
        true => 0x7fff_ffff,
        false => (round(v, 8, 23, rounding) as f32).to_bits() as u64,
    }
}

pub fn to_f16(v: f64, rounding: Rounding) -> u64 {
    match v.is_nan() {
        true => 0x7fff,
        false => f16::from_f64(round(v, 5, 10, rounding)).to_bits() as u64,
    }
}

pub fn to_bf16(v: f64, rounding: Rounding) -> u64 {
    match v.is_nan() {
        true => 0x7fff,
        false => bf16::from_f64(round(v, 8, 7, rounding)).to_bits() as u64,
    }
}

pub fn f32_of(bits: u64) -> f64 {
    f32::from_bits(bits as u32) as f64
}

pub fn f16_of(bits: u64) -> f64 {
    f16::from_bits(bits as u16).to_f64()
}

pub fn bf16_of(bits: u64) -> f64 {
    bf16::from_bits(bits as u16).to_f64()
}

/// An f32's bits with a subnormal number replaced by a zero of its sign.
pub fn flush32(bits: u64) -> u64 {
    match bits & 0x7f80_0000 {
        0 => bits & 0x8000_0000,
        _ => bits,
    }
}

/// An f16's bits with a subnormal number replaced by a zero of its sign.
pub fn flush16(bits: u64) -> u64 {
    match bits & 0x7c00 {
        0 => bits & 0x8000,
        _ => bits,
    }
}

/// The product and the sum exactly, for operands of at most 24 bits; a zero has the sign that the mode gives it.
pub fn fused(a: f64, b: f64, c: f64, rounding: Rounding) -> f64 {
    zero_sign(a * b, c, sum(a * b, c), rounding)
}

/// `sum` of `a` and `b`, where a zero that comes of opposite numbers gets the sign that the mode gives it.
pub fn zero_sign(a: f64, b: f64, sum: f64, rounding: Rounding) -> f64 {
    match sum == 0.0 && a.is_sign_negative() != b.is_sign_negative() {
        true if rounding == Rounding::Down => -0.0,
        true => 0.0,
        false => sum,
    }
}
