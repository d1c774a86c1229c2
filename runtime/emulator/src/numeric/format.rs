//! The formats as data, their bits as exact values, and exact values rounded to bits.
//!
//! Invariant: [`Exact::round`] is the only place that rounds; a value that is not exact (`sticky`) carries at least two bits more than the
//! format it is rounded to, which every operation here grants by working in 128 bits.

use super::Rounding;

/// A binary floating-point format (PTX ISA §5.2.3, Alternate Floating-Point Data Formats; IEEE 754 for the rest).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    pub exponent: u32,
    pub mantissa: u32,
    pub bias: i32,
    /// Whether the largest exponent stands for infinities and NaNs.
    pub infinity: bool,
    /// The canonical NaN; none where there is no NaN.
    pub nan: Option<u64>,
    /// Bits of the largest finite value.
    pub largest: u64,
}

const fn ieee(exponent: u32, mantissa: u32, nan: u64) -> Format {
    Format {
        exponent,
        mantissa,
        bias: (1 << (exponent - 1)) - 1,
        infinity: true,
        nan: Some(nan),
        largest: (((1 << exponent) - 1) << mantissa) - 1,
    }
}

const fn finite(exponent: u32, mantissa: u32, nan: Option<u64>, largest: u64) -> Format {
    Format {
        exponent,
        mantissa,
        bias: (1 << (exponent - 1)) - 1,
        infinity: false,
        nan,
        largest,
    }
}

pub(crate) const F64: Format = ieee(11, 52, 0x7ff8_0000_0000_0000);
pub(crate) const F32: Format = ieee(8, 23, 0x7fff_ffff);
/// The precision of an f32 with the exponents of an f64.
pub(crate) const WIDE: Format = ieee(11, 23, 0x3_ffff_ffff);
pub(crate) const F16: Format = ieee(5, 10, 0x7fff);
pub(crate) const BF16: Format = ieee(8, 7, 0x7fff);
/// The upper 19 bits of a `.tf32` register.
pub(crate) const TF32: Format = ieee(8, 10, 0x3ffff);
pub(crate) const E5M2: Format = ieee(5, 2, 0x7f);
pub(crate) const E4M3: Format = finite(4, 3, Some(0x7f), 0x7e);
pub(crate) const E2M1: Format = finite(2, 1, None, 0x7);
pub(crate) const E2M3: Format = finite(2, 3, None, 0x1f);
pub(crate) const E3M2: Format = finite(3, 2, None, 0x1f);

/// The finite value ± `significand` · 2^`exponent`, or, if `sticky`, one between this magnitude and that of the next significand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exact {
    pub negative: bool,
    pub significand: u128,
    pub exponent: i32,
    pub sticky: bool,
}

/// What bits stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Nan,
    Infinite { negative: bool },
    Finite(Exact),
}

impl Format {
    /// Bits, the sign included.
    #[cfg(test)]
    pub fn bits(&self) -> u32 {
        1 + self.exponent + self.mantissa
    }

    pub fn sign(&self) -> u64 {
        1 << (self.exponent + self.mantissa)
    }

    fn top_exponent(&self) -> u64 {
        (1 << self.exponent) - 1
    }

    /// Bits of +∞ (of formats that have it).
    pub fn infinite(&self) -> u64 {
        self.top_exponent() << self.mantissa
    }

    /// The canonical NaN; formats without one take the largest finite value (PTX ISA §9.7.9.21, `.satfinite`).
    pub fn canonical_nan(&self) -> u64 {
        self.nan.unwrap_or(self.largest)
    }

    /// Whether the bits are a NaN.
    pub fn is_nan(&self, bits: u64) -> bool {
        let magnitude = bits & (self.sign() - 1);
        match (self.infinity, self.nan) {
            (true, _) => magnitude > self.infinite(),
            (false, Some(nan)) => magnitude == nan,
            (false, None) => false,
        }
    }

    /// Whether the bits are a subnormal number, zeros excluded.
    pub fn is_subnormal(&self, bits: u64) -> bool {
        let magnitude = bits & (self.sign() - 1);
        magnitude != 0 && magnitude >> self.mantissa == 0
    }

    /// `.ftz` of a value: subnormals become zeros of the same sign.
    pub fn flush(&self, bits: u64) -> u64 {
        if self.is_subnormal(bits) {
            bits & self.sign()
        } else {
            bits
        }
    }

    /// What the bits stand for; bits above the format's are ignored.
    pub fn value(&self, bits: u64) -> Value {
        let negative = bits & self.sign() != 0;
        if self.is_nan(bits) {
            return Value::Nan;
        }
        let mantissa = bits & ((1 << self.mantissa) - 1);
        let exponent = (bits >> self.mantissa) & self.top_exponent();
        if self.infinity && exponent == self.top_exponent() {
            return Value::Infinite { negative };
        }
        let lowest = 1 - self.bias - self.mantissa as i32;
        Value::Finite(match exponent {
            0 => Exact::new(negative, u128::from(mantissa), lowest),
            _ => Exact::new(
                negative,
                u128::from(mantissa | 1 << self.mantissa),
                lowest + exponent as i32 - 1,
            ),
        })
    }
}

impl Exact {
    pub fn new(negative: bool, significand: u128, exponent: i32) -> Exact {
        Exact {
            negative,
            significand,
            exponent,
            sticky: false,
        }
    }

    pub fn is_zero(&self) -> bool {
        self.significand == 0 && !self.sticky
    }

    /// The significand in units of 2^`unit`, rounded to a whole number, or none if that is 2^128 or more.
    pub fn whole(&self, unit: i32, rounding: Rounding) -> Option<u128> {
        let shift = i64::from(unit) - i64::from(self.exponent);
        if shift <= 0 {
            if self.significand == 0 {
                return Some(0);
            }
            let left = u32::try_from(-shift).ok()?;
            return (left <= self.significand.leading_zeros()).then(|| self.significand << left);
        }
        let (kept, half, below) = match shift {
            1..=127 => {
                let rest = self.significand & ((1 << shift) - 1);
                let half = 1 << (shift - 1);
                (self.significand >> shift, rest & half != 0, rest & !half)
            }
            128 => (0, self.significand >> 127 != 0, self.significand << 1),
            _ => (0, false, self.significand),
        };
        let below = below != 0 || self.sticky;
        let up = match rounding {
            Rounding::NearestEven => half && (below || kept & 1 != 0),
            Rounding::NearestAway => half,
            Rounding::Zero => false,
            Rounding::Up => !self.negative && (half || below),
            Rounding::Down => self.negative && (half || below),
        };
        kept.checked_add(u128::from(up))
    }

    /// The bits of a format: IEEE 754 rounding, subnormals included. A value beyond the largest becomes an infinity where the rounding goes
    /// that way and the format has one and `satfinite` does not stand; else the largest finite value.
    pub fn round(&self, format: &Format, rounding: Rounding, satfinite: bool) -> u64 {
        let sign = if self.negative { format.sign() } else { 0 };
        if self.is_zero() {
            return sign;
        }
        let mantissa = format.mantissa as i32;
        // A value below any unit still has a place: it is less than one.
        let leading = 127 - self.significand.leading_zeros().min(127) as i32 + self.exponent;
        let lowest = 1 - format.bias;
        let unit = leading.max(lowest) - mantissa;
        let kept = self.whole(unit, rounding).unwrap_or(u128::MAX);
        // The implicit bit of `kept` adds one to the exponent, which is why the field starts one below; a carry adds another.
        let field = i64::from(leading.max(lowest) - lowest);
        let magnitude = (i128::from(field) << format.mantissa).saturating_add(kept as i128);
        if magnitude <= i128::from(format.largest) {
            return sign | magnitude as u64;
        }
        let outward = match rounding {
            Rounding::NearestEven | Rounding::NearestAway => true,
            Rounding::Zero => false,
            Rounding::Up => !self.negative,
            Rounding::Down => self.negative,
        };
        if outward && format.infinity && !satfinite {
            sign | format.infinite()
        } else {
            sign | format.largest
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of bits by the definition, in f64, which holds every value of the narrow formats.
    fn by_definition(format: &Format, bits: u64) -> f64 {
        let fraction =
            (bits & ((1 << format.mantissa) - 1)) as f64 / (1u64 << format.mantissa) as f64;
        let exponent = (bits >> format.mantissa & ((1 << format.exponent) - 1)) as i32;
        let sign = if bits & format.sign() != 0 { -1.0 } else { 1.0 };
        let magnitude = match exponent {
            0 => fraction * 2f64.powi(1 - format.bias),
            _ => (1.0 + fraction) * 2f64.powi(exponent - format.bias),
        };
        sign * magnitude
    }

    fn as_f64(format: &Format, bits: u64) -> f64 {
        match format.value(bits) {
            Value::Nan => f64::NAN,
            Value::Infinite { negative } => {
                if negative {
                    f64::NEG_INFINITY
                } else {
                    f64::INFINITY
                }
            }
            Value::Finite(x) => f64::from_bits(x.round(&F64, Rounding::NearestEven, false)),
        }
    }

    const NARROW: [Format; 8] = [F16, BF16, TF32, E5M2, E4M3, E2M1, E2M3, E3M2];

    #[test]
    fn every_pattern_of_the_narrow_formats_is_its_value_and_rounds_to_itself() {
        for format in NARROW {
            for bits in 0..1u64 << format.bits() {
                let Value::Finite(exact) = format.value(bits) else {
                    continue;
                };
                let expected = by_definition(&format, bits);
                assert_eq!(as_f64(&format, bits).to_bits(), expected.to_bits());
                for rounding in [
                    Rounding::NearestEven,
                    Rounding::Zero,
                    Rounding::Up,
                    Rounding::Down,
                ] {
                    assert_eq!(exact.round(&format, rounding, false), bits, "{format:?}");
                }
            }
        }
    }

    #[test]
    fn the_largest_values_are_those_of_the_tables() {
        let largest = |f: &Format| as_f64(f, f.largest);
        assert_eq!(largest(&F16), 65504.0);
        assert_eq!(largest(&E5M2), 57344.0);
        assert_eq!(largest(&E4M3), 448.0);
        assert_eq!(largest(&E2M1), 6.0);
        assert_eq!(largest(&E2M3), 7.5);
        assert_eq!(largest(&E3M2), 28.0);
        assert_eq!(largest(&F32), f64::from(f32::MAX));
        assert_eq!(largest(&F64), f64::MAX);
    }

    #[test]
    fn between_neighbours_each_mode_goes_its_way() {
        // Quarter points between two positive neighbours of each narrow format, by their values alone.
        for format in NARROW {
            let step = if format.bits() > 12 { 37 } else { 1 };
            for low in (0..format.largest).step_by(step) {
                let (a, b) = (by_definition(&format, low), by_definition(&format, low + 1));
                for (quarter, nearest) in [(1.0, low), (2.0, low + (low & 1)), (3.0, low + 1)] {
                    let x = a + (b - a) * quarter / 4.0;
                    let Value::Finite(exact) = F64.value(x.to_bits()) else {
                        unreachable!("a quarter of finite values")
                    };
                    let go = |rounding, negative| {
                        let exact = Exact { negative, ..exact };
                        exact.round(&format, rounding, false) & (format.sign() - 1)
                    };
                    for negative in [false, true] {
                        assert_eq!(go(Rounding::NearestEven, negative), nearest);
                        assert_eq!(
                            go(Rounding::NearestAway, negative),
                            low + u64::from(quarter > 1.0)
                        );
                        assert_eq!(go(Rounding::Zero, negative), low);
                        assert_eq!(go(Rounding::Up, negative), low + u64::from(!negative));
                        assert_eq!(go(Rounding::Down, negative), low + u64::from(negative));
                    }
                }
            }
        }
    }

    #[test]
    fn beyond_the_largest() {
        let big = Exact::new(true, 1, 2000);
        let tiny = Exact::new(true, 1, -2000);
        assert_eq!(big.round(&F16, Rounding::NearestEven, false), 0xfc00);
        assert_eq!(big.round(&F16, Rounding::NearestEven, true), 0xfbff);
        assert_eq!(big.round(&F16, Rounding::Up, false), 0xfbff);
        assert_eq!(big.round(&F16, Rounding::Down, false), 0xfc00);
        assert_eq!(big.round(&E4M3, Rounding::NearestEven, true), 0xfe);
        assert_eq!(tiny.round(&F16, Rounding::Down, false), 0x8001);
        assert_eq!(tiny.round(&F16, Rounding::NearestEven, false), 0x8000);
        // 65520 is half-way to 65536, which f16 lacks.
        assert_eq!(
            Exact::new(false, 65519, 0).round(&F16, Rounding::NearestEven, false),
            0x7bff
        );
        assert_eq!(
            Exact::new(false, 65520, 0).round(&F16, Rounding::NearestEven, false),
            0x7c00
        );
    }

    #[test]
    fn f64_to_f32_is_the_hosts() {
        let mut state = 1u64;
        for _ in 0..200_000 {
            state = state
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f);
            // Exponents near those of f32, where rounding, overflow and subnormals are.
            let exponent = 1023 - 160 + (state >> 20) % 320;
            let bits = (state & 0x800f_ffff_ffff_ffff) | exponent << 52;
            let Value::Finite(exact) = F64.value(bits) else {
                unreachable!("the exponent is no top one")
            };
            let ours = exact.round(&F32, Rounding::NearestEven, false);
            assert_eq!(ours as u32, (f64::from_bits(bits) as f32).to_bits());
        }
    }
}
