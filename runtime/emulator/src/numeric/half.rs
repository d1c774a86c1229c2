//! What the `.f16` and `.bf16` instructions do, one number of 16 bits at a time (PTX ISA §9.7.4).
//!
//! Sums and products go by way of f32, whose 24 bits are twice those of either format and two more: rounding again is harmless then.

use super::{
    Modifiers, Rounding, Selection, arithmetic, convert,
    format::{BF16, F16, Format, TF32},
};

/// Both formats' canonical NaN.
pub(crate) const NAN: u16 = 0x7fff;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Half {
    F16,
    Bf16,
}

impl Half {
    pub fn format(self) -> &'static Format {
        match self {
            Half::F16 => &F16,
            Half::Bf16 => &BF16,
        }
    }

    #[inline]
    pub fn widen(self, bits: u16) -> f32 {
        match self {
            Half::F16 => convert::f16_to_f32(bits),
            Half::Bf16 => convert::bf16_to_f32(bits),
        }
    }

    /// To the nearest, ties to even; a NaN becomes the canonical one.
    #[inline]
    pub fn narrow(self, value: f32) -> u16 {
        match self {
            Half::F16 => convert::f32_to_f16(value),
            Half::Bf16 => convert::f32_to_bf16(value),
        }
    }

    fn infinite(self) -> u16 {
        self.format().infinite() as u16
    }

    fn one(self) -> u16 {
        match self {
            Half::F16 => 0x3c00,
            Half::Bf16 => 0x3f80,
        }
    }

    fn nan(self, bits: u16) -> bool {
        bits & 0x7fff > self.infinite()
    }

    /// `.ftz`
    pub fn flush(self, bits: u16) -> u16 {
        self.format().flush(bits.into()) as u16
    }

    fn prepare(self, bits: u16, modifiers: Modifiers) -> u16 {
        if modifiers.ftz {
            self.flush(bits)
        } else {
            bits
        }
    }

    /// A result of `.ftz`: what is tiny once it is rounded as if the exponent had no bound is zero, as for `.f32` ones. `unbounded` computes
    /// in the format of tf32, which has the digits of an f16 and the exponents of an f32.
    fn tiny(self, bits: u16, modifiers: Modifiers, unbounded: impl FnOnce() -> u64) -> u16 {
        if modifiers.ftz && self.smallest(bits) {
            let value = f32::from_bits((unbounded() << 13) as u32);
            if value.abs() < self.widen(bits & 0x7fff) {
                return bits & 0x8000;
            }
        }
        bits
    }

    fn wide(self, bits: u64) -> u64 {
        u64::from(self.widen(bits as u16).to_bits() >> 13)
    }

    /// Whether it is the smallest normal number, of either sign.
    fn smallest(self, bits: u16) -> bool {
        let magnitude = u64::from(bits & 0x7fff);
        magnitude == 1 << self.format().mantissa
    }

    pub(crate) fn finish(self, bits: u16, modifiers: Modifiers) -> u16 {
        let mut bits = self.prepare(bits, modifiers);
        if self.nan(bits) {
            return if modifiers.saturate { 0 } else { NAN };
        }
        if (modifiers.relu || modifiers.saturate) && bits >> 15 != 0 {
            bits = 0;
        }
        if modifiers.saturate {
            bits = bits.min(self.one());
        }
        bits
    }

    /// `add.f16`, `add.bf16` (PTX ISA §9.7.4.1).
    pub fn add(self, a: u16, b: u16, modifiers: Modifiers) -> u16 {
        let [x, y] = [a, b].map(|v| self.widen(self.prepare(v, modifiers)));
        self.finish(self.narrow(x + y), modifiers)
    }

    /// `sub.f16`, `sub.bf16` (PTX ISA §9.7.4.2).
    pub fn sub(self, a: u16, b: u16, modifiers: Modifiers) -> u16 {
        self.add(a, b ^ 0x8000, modifiers)
    }

    /// `mul.f16`, `mul.bf16` (PTX ISA §9.7.4.3).
    pub fn mul(self, a: u16, b: u16, modifiers: Modifiers) -> u16 {
        let [x, y] = [a, b].map(|v| self.widen(self.prepare(v, modifiers)));
        let [a, b] = [a, b].map(|v| u64::from(self.prepare(v, modifiers)));
        let bits = self.tiny(self.narrow(x * y), modifiers, || {
            arithmetic::mul(&TF32, self.wide(a), self.wide(b), modifiers.rounding)
        });
        self.finish(bits, modifiers)
    }

    /// `fma.rn.f16`, `fma.rn.bf16` (PTX ISA §9.7.4.4): rounded once.
    pub fn fma(self, a: u16, b: u16, c: u16, modifiers: Modifiers) -> u16 {
        let [a, b, c] = [a, b, c].map(|v| u64::from(self.prepare(v, modifiers)));
        let bits = arithmetic::fma(self.format(), a, b, c, Rounding::NearestEven);
        let bits = self.tiny(bits as u16, modifiers, || {
            let [a, b, c] = [a, b, c].map(|v| self.wide(v));
            arithmetic::fma(&TF32, a, b, c, modifiers.rounding)
        });
        self.finish(bits, modifiers)
    }

    /// `neg` (PTX ISA §9.7.4.5).
    pub fn neg(self, a: u16, ftz: bool) -> u16 {
        (if ftz { self.flush(a) } else { a }) ^ 0x8000
    }

    /// `abs` (PTX ISA §9.7.4.6).
    pub fn abs(self, a: u16, ftz: bool) -> u16 {
        (if ftz { self.flush(a) } else { a }) & 0x7fff
    }

    /// `min` and `max` (PTX ISA §9.7.4.7, §9.7.4.8).
    pub fn select(self, a: u16, b: u16, selection: Selection) -> u16 {
        let [mut x, mut y] = [a, b].map(|v| if selection.ftz { self.flush(v) } else { v });
        if selection.propagate && (self.nan(x) || self.nan(y)) {
            return NAN;
        }
        if selection.xorsign || selection.magnitudes {
            x &= 0x7fff;
            y &= 0x7fff;
        }
        let rank = |bits: u16| (bits ^ (((bits as i16 >> 15) as u16) >> 1)) as i16;
        let chosen = match (self.nan(x), self.nan(y)) {
            (true, true) => return NAN,
            (true, false) => y,
            (false, true) => x,
            (false, false) if (rank(x) < rank(y)) == selection.largest => y,
            (false, false) => x,
        };
        if selection.xorsign {
            chosen | ((a ^ b) & 0x8000)
        } else {
            chosen
        }
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

    #[test]
    fn sums_and_products_by_way_of_f32_are_rounded_as_if_once() {
        let mut state = 12345u64;
        for _ in 0..400_000 {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let (a, b) = ((state >> 20) as u16, (state >> 44) as u16);
            // Near exponents half of the time.
            let b = if state >> 63 == 0 {
                b
            } else {
                (a & 0xfc00) ^ (b & 0x87ff)
            };
            for half in [Half::F16, Half::Bf16] {
                let exact = |f: fn(&Format, u64, u64, Rounding) -> u64| {
                    f(half.format(), a.into(), b.into(), Rounding::NearestEven) as u16
                };
                assert_eq!(
                    half.add(a, b, PLAIN),
                    exact(arithmetic::add),
                    "{half:?} {a:#x} {b:#x}"
                );
                assert_eq!(
                    half.mul(a, b, PLAIN),
                    exact(arithmetic::mul),
                    "{half:?} {a:#x} {b:#x}"
                );
            }
        }
    }

    #[test]
    fn modifiers() {
        let relu = Modifiers {
            relu: true,
            ..PLAIN
        };
        let saturate = Modifiers {
            saturate: true,
            ..PLAIN
        };
        let flush = Modifiers { ftz: true, ..PLAIN };
        let (one, two, minus) = (0x3c00, 0x4000, 0xbc00);
        assert_eq!(Half::F16.fma(one, minus, 0, relu), 0);
        assert_eq!(Half::F16.fma(one, 0x7e01, 0, relu), NAN);
        assert_eq!(Half::F16.fma(one, one, one, relu), two);
        assert_eq!(Half::F16.add(one, one, saturate), one);
        assert_eq!(Half::F16.add(0x7e01, one, saturate), 0);
        assert_eq!(Half::F16.add(minus, 0, saturate), 0);
        assert_eq!(Half::F16.add(0x8001, 0x8000, flush), 0x8000);
        assert_eq!(Half::F16.add(0x8001, 0x8000, PLAIN), 0x8001);
        assert_eq!(Half::Bf16.fma(0x3f80, 0x3f80, 0x3f80, PLAIN), 0x4000);
    }

    #[test]
    fn choosing_follows_the_values_of_every_pattern() {
        let least = Selection::default();
        let most = Selection {
            largest: true,
            ..least
        };
        for a in 0..=u16::MAX {
            for b in [
                0u16, 0x8000, 0x3c00, 0xbc01, 0x7c00, 0xfc00, 0x7e00, 1, 0x8001,
            ] {
                let (x, y) = (half::f16::from_bits(a), half::f16::from_bits(b));
                let (low, high) = (Half::F16.select(a, b, least), Half::F16.select(a, b, most));
                match (x.is_nan(), y.is_nan()) {
                    (true, true) => assert_eq!((low, high), (NAN, NAN)),
                    (true, false) => assert_eq!((low, high), (b, b)),
                    (false, true) => assert_eq!((low, high), (a, a)),
                    (false, false) => {
                        let order = x.total_cmp(&y);
                        let (less, more) = if order.is_le() { (a, b) } else { (b, a) };
                        assert_eq!((low, high), (less, more));
                    }
                }
            }
        }
        let strict = Selection {
            propagate: true,
            ..most
        };
        assert_eq!(Half::Bf16.select(0x7f81, 0, strict), NAN);
        let signed = Selection {
            xorsign: true,
            ..least
        };
        assert_eq!(Half::F16.select(0xc000, 0x3c00, signed), 0xbc00);
    }
}
