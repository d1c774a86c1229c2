//! Operations on bits of any format and rounding mode: exact, then rounded once (IEEE 754; PTX ISA §9.7.3).
//!
//! Invariant: a NaN among the inputs, and an operation without a value (∞ − ∞, 0 · ∞, 0 / 0, the root of a negative), give the format's
//! canonical NaN.

use super::{Exact, Format, Rounding, Value};

/// Significands are shifted to end here before a sum, so that one carry fits and 20 bits or more lie below any product's last bit.
const TOP: u32 = 126;

impl Exact {
    /// The exact product; both factors must be of at most 64 bits.
    pub fn times(self, other: Exact) -> Exact {
        Exact {
            negative: self.negative != other.negative,
            significand: self.significand * other.significand,
            exponent: self.exponent + other.exponent,
            sticky: self.sticky || other.sticky,
        }
    }

    fn normalized(self) -> Exact {
        let shift = (self.significand.leading_zeros() as i32) - (127 - TOP as i32);
        Exact {
            significand: self.significand << shift.max(0),
            exponent: self.exponent - shift.max(0),
            ..self
        }
    }

    /// The sum of two values of at most 107 bits each, exact or `sticky` far below the leading bit. A zero from opposite signs is
    /// negative only in [`Rounding::Down`].
    pub fn plus(self, other: Exact, rounding: Rounding) -> Exact {
        if self.is_zero() && other.is_zero() {
            let negative = match rounding {
                Rounding::Down => self.negative || other.negative,
                _ => self.negative && other.negative,
            };
            return Exact { negative, ..self };
        }
        if self.is_zero() {
            return other;
        }
        if other.is_zero() {
            return self;
        }
        let (a, b) = (self.normalized(), other.normalized());
        let (a, b) = if (a.exponent, a.significand) >= (b.exponent, b.significand) {
            (a, b)
        } else {
            (b, a)
        };
        let distance = (i64::from(a.exponent) - i64::from(b.exponent)).min(127) as u32;
        // What falls off is kept as a set last bit: it lies below every bit that decides a rounding.
        let lost = b.significand & ((1 << distance) - 1) != 0;
        let aligned = b.significand >> distance | u128::from(lost);
        if a.negative == b.negative {
            return Exact {
                significand: a.significand + aligned,
                ..a
            };
        }
        let significand = a.significand - aligned;
        Exact {
            significand,
            negative: match significand {
                0 => rounding == Rounding::Down,
                _ => a.negative,
            },
            ..a
        }
    }
}

fn infinite(format: &Format, negative: bool) -> u64 {
    format.infinite() | if negative { format.sign() } else { 0 }
}

/// `a + b`
pub(crate) fn add(format: &Format, a: u64, b: u64, rounding: Rounding) -> u64 {
    match (format.value(a), format.value(b)) {
        (Value::Nan, _) | (_, Value::Nan) => format.canonical_nan(),
        (Value::Infinite { negative: x }, Value::Infinite { negative: y }) if x != y => {
            format.canonical_nan()
        }
        (Value::Infinite { negative }, _) | (_, Value::Infinite { negative }) => {
            infinite(format, negative)
        }
        (Value::Finite(x), Value::Finite(y)) => x.plus(y, rounding).round(format, rounding, false),
    }
}

/// `a · b`
pub(crate) fn mul(format: &Format, a: u64, b: u64, rounding: Rounding) -> u64 {
    match product(format.value(a), format.value(b)) {
        Value::Nan => format.canonical_nan(),
        Value::Infinite { negative } => infinite(format, negative),
        Value::Finite(x) => x.round(format, rounding, false),
    }
}

fn product(a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::Nan, _) | (_, Value::Nan) => Value::Nan,
        (Value::Infinite { negative }, Value::Finite(x))
        | (Value::Finite(x), Value::Infinite { negative }) => {
            if x.is_zero() {
                Value::Nan
            } else {
                Value::Infinite {
                    negative: negative != x.negative,
                }
            }
        }
        (Value::Infinite { negative: x }, Value::Infinite { negative: y }) => {
            Value::Infinite { negative: x != y }
        }
        (Value::Finite(x), Value::Finite(y)) => Value::Finite(x.times(y)),
    }
}

/// `a · b + c`, rounded once (PTX ISA §9.7.3.6).
pub(crate) fn fma(format: &Format, a: u64, b: u64, c: u64, rounding: Rounding) -> u64 {
    match (product(format.value(a), format.value(b)), format.value(c)) {
        (Value::Nan, _) | (_, Value::Nan) => format.canonical_nan(),
        (Value::Infinite { negative: x }, Value::Infinite { negative: y }) if x != y => {
            format.canonical_nan()
        }
        (Value::Infinite { negative }, _) | (_, Value::Infinite { negative }) => {
            infinite(format, negative)
        }
        (Value::Finite(x), Value::Finite(y)) => x.plus(y, rounding).round(format, rounding, false),
    }
}

/// `a / b` (PTX ISA §9.7.3.8, `.rnd` forms).
pub(crate) fn div(format: &Format, a: u64, b: u64, rounding: Rounding) -> u64 {
    match (format.value(a), format.value(b)) {
        (Value::Nan, _) | (_, Value::Nan) => format.canonical_nan(),
        (Value::Infinite { .. }, Value::Infinite { .. }) => format.canonical_nan(),
        (Value::Infinite { negative }, Value::Finite(y)) => {
            infinite(format, negative != y.negative)
        }
        (Value::Finite(x), Value::Infinite { negative }) => {
            Exact::new(x.negative != negative, 0, 0).round(format, rounding, false)
        }
        (Value::Finite(x), Value::Finite(y)) => {
            let negative = x.negative != y.negative;
            if y.is_zero() {
                return if x.is_zero() {
                    format.canonical_nan()
                } else {
                    infinite(format, negative)
                };
            }
            if x.is_zero() {
                return Exact::new(negative, 0, 0).round(format, rounding, false);
            }
            let x = x.normalized();
            // A divisor of at most 53 bits under a dividend of 127 leaves 74 or more.
            Exact {
                negative,
                significand: x.significand / y.significand,
                exponent: x.exponent - y.exponent,
                sticky: x.significand % y.significand != 0,
            }
            .round(format, rounding, false)
        }
    }
}

/// The square root (PTX ISA §9.7.3.15, `.rnd` forms); of −0 it is −0.
pub(crate) fn sqrt(format: &Format, a: u64, rounding: Rounding) -> u64 {
    match format.value(a) {
        Value::Nan | Value::Infinite { negative: true } => format.canonical_nan(),
        Value::Infinite { negative: false } => format.infinite(),
        Value::Finite(x) if x.is_zero() => x.round(format, rounding, false),
        Value::Finite(x) if x.negative => format.canonical_nan(),
        Value::Finite(x) => {
            let mut x = x.normalized();
            if x.exponent % 2 != 0 {
                x.significand >>= 1;
                x.exponent += 1;
            }
            let significand = x.significand.isqrt();
            Exact {
                negative: false,
                significand,
                exponent: x.exponent / 2,
                sticky: significand * significand != x.significand,
            }
            .round(format, rounding, false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::{BF16, F16, F32, F64};
    use super::*;

    const DIRECTED: [Rounding; 3] = [Rounding::Zero, Rounding::Up, Rounding::Down];

    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0
        }

        /// Bits whose exponents often meet those of others, and often special values.
        fn of(&mut self, format: &Format) -> u64 {
            let raw = self.next() & (format.sign() | (format.sign() - 1));
            match self.next() % 8 {
                0 => raw & (format.sign() | 0xf),
                1 => (raw & format.sign()) | format.infinite() | (raw & 1),
                2 => (raw & format.sign()) | (format.largest - (raw & 3)),
                3..=5 => {
                    let near = (format.bias as u64 + self.next() % 8 - 4) << format.mantissa;
                    (raw & (format.sign() | ((1 << format.mantissa) - 1))) | near
                }
                _ => raw,
            }
        }
    }

    fn same64(ours: u64, host: f64) -> bool {
        (f64::from_bits(ours).is_nan() && host.is_nan()) || ours == host.to_bits()
    }

    fn same32(ours: u64, host: f32) -> bool {
        (f32::from_bits(ours as u32).is_nan() && host.is_nan()) || ours == u64::from(host.to_bits())
    }

    #[test]
    fn nearest_even_is_the_hosts_in_both_widths() {
        let mut random = Random(99);
        let mode = Rounding::NearestEven;
        for _ in 0..60_000 {
            let (a, b, c) = (random.of(&F64), random.of(&F64), random.of(&F64));
            let (x, y, z) = (f64::from_bits(a), f64::from_bits(b), f64::from_bits(c));
            assert!(same64(add(&F64, a, b, mode), x + y), "{x:e} + {y:e}");
            assert!(same64(mul(&F64, a, b, mode), x * y), "{x:e} * {y:e}");
            assert!(same64(div(&F64, a, b, mode), x / y), "{x:e} / {y:e}");
            assert!(same64(sqrt(&F64, a, mode), x.sqrt()), "sqrt {x:e}");
            assert!(
                same64(fma(&F64, a, b, c, mode), x.mul_add(y, z)),
                "{x:e} {y:e} {z:e}"
            );
            let (a, b, c) = (random.of(&F32), random.of(&F32), random.of(&F32));
            let float = |bits: u64| f32::from_bits(bits as u32);
            let (x, y, z) = (float(a), float(b), float(c));
            assert!(same32(add(&F32, a, b, mode), x + y), "{x:e} + {y:e}");
            assert!(same32(mul(&F32, a, b, mode), x * y), "{x:e} * {y:e}");
            assert!(same32(div(&F32, a, b, mode), x / y), "{x:e} / {y:e}");
            assert!(same32(sqrt(&F32, a, mode), x.sqrt()), "sqrt {x:e}");
            assert!(
                same32(fma(&F32, a, b, c, mode), x.mul_add(y, z)),
                "{x:e} {y:e} {z:e}"
            );
        }
    }

    /// Checks a directed result of finite f32 inputs against an error bound that has the true residual's sign, computed in f64.
    #[test]
    fn directed_modes_are_the_neighbours_on_the_right_side() {
        let mut random = Random(7);
        for _ in 0..100_000 {
            let (a, b) = (random.of(&F16), random.of(&F16));
            let float = |bits: u64| half::f16::from_bits(bits as u16).to_f64();
            let (x, y) = (float(a), float(b));
            // Sums and products of two halves are exact in f64.
            for (exact, of) in [
                (x + y, add as fn(&Format, u64, u64, Rounding) -> u64),
                (x * y, mul),
            ] {
                for mode in DIRECTED {
                    let bits = of(&F16, a, b, mode);
                    let ours = float(bits);
                    if exact.is_nan() {
                        assert_eq!(bits, 0x7fff);
                        continue;
                    }
                    if exact.is_infinite() {
                        assert_eq!(ours, exact);
                        continue;
                    }
                    let up = mode == Rounding::Up || (mode == Rounding::Zero && exact < 0.0);
                    assert!(
                        if up { ours >= exact } else { ours <= exact },
                        "{x} {y} {mode:?}"
                    );
                    // The next value towards the exact one is past it, or this is exact.
                    if ours != exact {
                        let toward = if up {
                            next_below(bits)
                        } else {
                            next_above(bits)
                        };
                        let toward = float(toward);
                        assert!(
                            if up { toward < exact } else { toward > exact },
                            "{x} {y} {mode:?}"
                        );
                    }
                }
            }
        }
    }

    fn next_above(bits: u64) -> u64 {
        match bits {
            0x8000 => 1,
            b if b & 0x8000 != 0 => b - 1,
            b => b + 1,
        }
    }

    fn next_below(bits: u64) -> u64 {
        next_above(bits ^ 0x8000) ^ 0x8000
    }

    #[test]
    fn fused_halves_round_once() {
        // In f64 the product of two halves is exact, and the sum is once its error is known to be zero (Knuth's two-sum).
        let mut random = Random(3);
        let mut checked = 0;
        for _ in 0..100_000 {
            for format in [F16, BF16] {
                let (a, b, c) = (random.of(&format), random.of(&format), random.of(&format));
                let float = |bits: u64| match format.mantissa {
                    10 => half::f16::from_bits(bits as u16).to_f64(),
                    _ => half::bf16::from_bits(bits as u16).to_f64(),
                };
                let (product, z) = (float(a) * float(b), float(c));
                let sum = product + z;
                let rest = sum - product;
                if (product - (sum - rest)) + (z - rest) != 0.0 || sum.is_nan() {
                    continue;
                }
                checked += 1;
                let ours = fma(&format, a, b, c, Rounding::NearestEven);
                // The crate narrows f64s by way of f32; to an odd one, the two roundings are as good as one.
                let mut single = sum as f32;
                if f64::from(single) != sum && single.to_bits() & 1 == 0 && single.is_finite() {
                    single = if sum > f64::from(single) {
                        single.next_up()
                    } else {
                        single.next_down()
                    };
                }
                let expected = match format.mantissa {
                    10 => half::f16::from_f32(single).to_bits(),
                    _ => half::bf16::from_f32(single).to_bits(),
                };
                assert_eq!(ours, u64::from(expected), "{a:#x} {b:#x} {c:#x}");
            }
        }
        assert!(checked > 50_000);
    }

    #[test]
    fn zeros_of_sums_take_the_modes_sign() {
        let one = 0x3c00;
        for (mode, zero) in [
            (Rounding::NearestEven, 0),
            (Rounding::Up, 0),
            (Rounding::Down, 0x8000),
        ] {
            assert_eq!(add(&F16, one, one | 0x8000, mode), zero);
            assert_eq!(fma(&F16, one, one, one | 0x8000, mode), zero);
            assert_eq!(add(&F16, 0, 0x8000, mode), zero);
            assert_eq!(add(&F16, 0x8000, 0x8000, mode), 0x8000);
            assert_eq!(add(&F16, 0, 0, mode), 0);
        }
    }
}
