//! Elements of matrix operands: from the bits that registers and shared memory hold to numbers, and from sums back to bits.
//!
//! Every number of the formats here but `.f64` has at most 11 bits of significand, so that a product of two is exact in `f64`.

/// The type of an operand's elements (PTX ISA §9.7.14.1, "Matrix Shape", and §5.2, "Types").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    F16,
    Bf16,
    /// The upper 19 bits of a 32-bit register; hardware ignores the others.
    Tf32,
    E4m3,
    E5m2,
    S8,
    U8,
    S4,
    U4,
    /// A single bit, multiplied by `xor` or `and` and summed by `popc`.
    B1,
    F64,
}

impl Element {
    /// By its name in an opcode.
    pub fn named(name: &str) -> Option<Element> {
        Some(match name {
            "f16" => Element::F16,
            "bf16" => Element::Bf16,
            "tf32" => Element::Tf32,
            "e4m3" => Element::E4m3,
            "e5m2" => Element::E5m2,
            "s8" => Element::S8,
            "u8" => Element::U8,
            "s4" => Element::S4,
            "u4" => Element::U4,
            "b1" => Element::B1,
            "f64" => Element::F64,
            _ => return None,
        })
    }

    /// Bits that an element takes in a register.
    pub fn bits(self) -> usize {
        match self {
            Element::F64 => 64,
            Element::Tf32 => 32,
            Element::F16 | Element::Bf16 => 16,
            Element::E4m3 | Element::E5m2 | Element::S8 | Element::U8 => 8,
            Element::S4 | Element::U4 => 4,
            Element::B1 => 1,
        }
    }

    /// Of those multiplied as integers, by [`Element::integers`].
    pub fn is_integer(self) -> bool {
        matches!(
            self,
            Element::S8 | Element::U8 | Element::S4 | Element::U4 | Element::B1
        )
    }

    /// The numbers of a 32-bit word, lowest bits first; `out` is as long as the word holds elements. For floating-point types up to 32 bits.
    #[inline(always)]
    pub fn floats(self, word: u32, out: &mut [f64]) {
        match self {
            Element::F16 => {
                out[0] = half(word as u16);
                out[1] = half((word >> 16) as u16);
            }
            Element::Bf16 => {
                out[0] = f64::from(f32::from_bits(word << 16));
                out[1] = f64::from(f32::from_bits(word & 0xffff_0000));
            }
            Element::Tf32 => out[0] = f64::from(f32::from_bits(word & 0xffff_e000)),
            Element::E4m3 => {
                for (to, byte) in out.iter_mut().zip(word.to_le_bytes()) {
                    *to = f64::from(E4M3[usize::from(byte)]);
                }
            }
            Element::E5m2 => {
                for (to, byte) in out.iter_mut().zip(word.to_le_bytes()) {
                    *to = half(u16::from(byte) << 8);
                }
            }
            _ => {}
        }
    }

    /// The integers of a 32-bit word, lowest bits first; `out` is as long as the word holds elements. For integer types but `.b1`.
    #[inline]
    pub fn integers(self, word: u32, out: &mut [i32]) {
        match self {
            Element::S8 => {
                for (to, byte) in out.iter_mut().zip(word.to_le_bytes()) {
                    *to = i32::from(byte as i8);
                }
            }
            Element::U8 => {
                for (to, byte) in out.iter_mut().zip(word.to_le_bytes()) {
                    *to = i32::from(byte);
                }
            }
            Element::S4 => {
                for (i, to) in out.iter_mut().enumerate().take(8) {
                    *to = (word << (28 - 4 * i)) as i32 >> 28;
                }
            }
            Element::U4 => {
                for (i, to) in out.iter_mut().enumerate().take(8) {
                    *to = (word >> (4 * i) & 15) as i32;
                }
            }
            _ => {}
        }
    }
}

/// The number that an `.f16` encodes. `.e5m2` is its upper byte.
#[inline(always)]
fn half(bits: u16) -> f64 {
    // As if its exponent had the bias of `f32`; a product with 2^112 puts that right, for subnormal numbers too.
    let shifted = u32::from(bits & 0x7fff) << 13;
    let magnitude = if shifted >= 0x0f80_0000 {
        f32::from_bits(shifted | 0x7f80_0000)
    } else {
        f32::from_bits(shifted) * f32::from_bits(0x7780_0000)
    };
    f64::from(if bits & 0x8000 != 0 {
        -magnitude
    } else {
        magnitude
    })
}

/// The numbers that `.e4m3` encodes: no infinities, and NaN only where all bits but the sign are set.
const E4M3: [f32; 256] = {
    let mut table = [0.0; 256];
    let mut i = 0;
    while i < 256 {
        let (exponent, fraction) = ((i >> 3) & 15, i & 7);
        let magnitude = if exponent == 15 && fraction == 7 {
            f32::NAN
        } else if exponent == 0 {
            fraction as f32 / 512.0
        } else {
            (8 + fraction) as f32 * (1_u32 << exponent) as f32 / 1024.0
        };
        table[i] = if i & 128 != 0 { -magnitude } else { magnitude };
        i += 1;
    }
    table
};

/// The canonical NaN of `.f32` results.
const NAN_F32: u32 = 0x7fff_ffff;

/// An accumulator's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Accumulator {
    F16,
    F32,
    S32,
    F64,
}

impl Accumulator {
    /// By its name in an opcode.
    pub fn named(name: &str) -> Option<Accumulator> {
        Some(match name {
            "f16" => Accumulator::F16,
            "f32" => Accumulator::F32,
            "s32" => Accumulator::S32,
            "f64" => Accumulator::F64,
            _ => return None,
        })
    }

    /// Elements that a register holds.
    pub fn per_register(self) -> usize {
        if self == Accumulator::F16 { 2 } else { 1 }
    }

    /// The numbers of a register of type `.f16` (two) or `.f32` (one).
    #[inline]
    pub fn floats(self, word: u32, out: &mut [f64]) {
        match self {
            Accumulator::F16 => Element::F16.floats(word, out),
            _ => out[0] = f64::from(f32::from_bits(word)),
        }
    }

    /// The register of those sums, each rounded once, to nearest even.
    #[inline]
    pub fn encode(self, sums: &[f64]) -> u32 {
        match self {
            Accumulator::F16 => {
                u32::from(round_half(sums[0])) | u32::from(round_half(sums[1])) << 16
            }
            _ if sums[0].is_nan() => NAN_F32,
            _ => (sums[0] as f32).to_bits(),
        }
    }
}

/// An `f64` to `.f16`, to nearest even; NaN becomes the canonical one.
fn round_half(x: f64) -> u16 {
    let sign = if x.is_sign_negative() { 0x8000 } else { 0 };
    let magnitude = x.abs();
    if magnitude.is_nan() {
        return 0x7fff;
    }
    // Half an ulp beyond the largest finite number, which is odd: that one rounds away.
    if magnitude >= 65520.0 {
        return sign | 0x7c00;
    }
    // Units of the last place that the number has in `.f16`.
    let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(-14);
    let ulps = magnitude * f64::from_bits(((1023 + 10 - exponent) as u64) << 52);
    let ulps = ulps.round_ties_even() as u16;
    // A carry out of the fraction moves on to the exponent as it must.
    sign | (ulps + (((exponent + 14) as u16) << 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number of the format by its definition, in powers of two.
    fn defined(bits: u32, exponent_bits: u32, fraction_bits: u32) -> f64 {
        let bias = (1 << (exponent_bits - 1)) - 1;
        let exponent = (bits >> fraction_bits & ((1 << exponent_bits) - 1)) as i32;
        let fraction =
            f64::from(bits & ((1 << fraction_bits) - 1)) / f64::from(1_u32 << fraction_bits);
        let sign = if bits >> (exponent_bits + fraction_bits) & 1 == 1 {
            -1.0
        } else {
            1.0
        };
        sign * if exponent == 0 {
            fraction * 2_f64.powi(1 - bias)
        } else {
            (1.0 + fraction) * 2_f64.powi(exponent - bias)
        }
    }

    #[test]
    fn every_half_has_its_value_and_comes_back() {
        for bits in 0..=u16::MAX {
            let got = half(bits);
            if bits & 0x7c00 == 0x7c00 {
                let infinite = bits & 0x3ff == 0;
                assert_eq!(got.is_infinite(), infinite, "{bits:x}");
                assert_eq!(got.is_nan(), !infinite, "{bits:x}");
            } else {
                assert_eq!(got, defined(u32::from(bits), 5, 10), "{bits:x}");
            }
            if !got.is_nan() {
                assert_eq!(round_half(got), bits);
            }
        }
    }

    #[test]
    fn halves_round_to_the_nearest_even() {
        for bits in 0..0x7bff_u16 {
            let (low, high) = (half(bits), half(bits + 1));
            let middle = (low + high) / 2.0;
            let even = if bits % 2 == 0 { bits } else { bits + 1 };
            assert_eq!(round_half(middle), even);
            assert_eq!(round_half(middle.next_down()), bits);
            assert_eq!(round_half(-middle.next_up()), (bits + 1) | 0x8000);
        }
        assert_eq!(round_half(65519.999), 0x7bff);
        assert_eq!(round_half(65520.0), 0x7c00);
        assert_eq!(round_half(f64::NAN), 0x7fff);
    }

    #[test]
    fn every_byte_has_its_value() {
        for bits in 0..256_u32 {
            let mut got = [0.0; 4];
            Element::E4m3.floats(bits, &mut got);
            if bits & 0x7f == 0x7f {
                assert!(got[0].is_nan());
            } else {
                assert_eq!(got[0], defined(bits, 4, 3), "{bits:x}");
            }
            Element::E5m2.floats(bits << 24, &mut got);
            if bits & 0x7c == 0x7c {
                assert_eq!(got[3].is_nan(), bits & 3 != 0);
            } else {
                assert_eq!(got[3], defined(bits, 5, 2), "{bits:x}");
            }
        }
    }

    #[test]
    fn nibbles_have_their_values() {
        let mut got = [0; 8];
        Element::S4.integers(0xfedc_ba98, &mut got);
        assert_eq!(got, [-8, -7, -6, -5, -4, -3, -2, -1]);
        Element::U4.integers(0xfedc_ba98, &mut got);
        assert_eq!(got, [8, 9, 10, 11, 12, 13, 14, 15]);
    }
}
