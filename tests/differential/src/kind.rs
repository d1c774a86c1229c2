//! What operands and results are made of: formats of numbers, how values of them are drawn, and how two results compare.
//!
//! Invariant: the same operand, place and name give the same values on every machine.

use half::{bf16, f16};

/// What the bits of one element mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// Integers and untyped bits, as wide as the register.
    Bits,
    F64,
    F32,
    /// An f32 of which instructions read the upper 19 bits.
    Tf32,
    F16,
    Bf16,
    E4m3,
    E5m2,
}

impl Element {
    /// Bits of an element in a register of `width` bits.
    pub fn bits(self, width: u32) -> u32 {
        match self {
            Element::Bits => width,
            Element::F64 => 64,
            Element::F32 | Element::Tf32 => 32,
            Element::F16 | Element::Bf16 => 16,
            Element::E4m3 | Element::E5m2 => 8,
        }
    }

    /// The value of an element's bits.
    pub fn value(self, bits: u64) -> f64 {
        match self {
            Element::Bits => bits as f64,
            Element::F64 => f64::from_bits(bits),
            Element::F32 | Element::Tf32 => f32::from_bits(bits as u32) as f64,
            Element::F16 => f16::from_bits(bits as u16).to_f64(),
            Element::Bf16 => bf16::from_bits(bits as u16).to_f64(),
            Element::E4m3 => match bits & 0x7f {
                0x7f => f64::NAN,
                _ => small_float(bits, 4, 3),
            },
            Element::E5m2 => f16::from_bits((bits as u16) << 8).to_f64(),
        }
    }

    /// The bits of a value that is representable.
    pub fn bits_of(self, value: f64) -> u64 {
        match self {
            Element::Bits => value as i64 as u64,
            Element::F64 => value.to_bits(),
            Element::F32 => (value as f32).to_bits() as u64,
            Element::Tf32 => ((value as f32).to_bits() & 0xffff_e000) as u64,
            Element::F16 => f16::from_f64(value).to_bits() as u64,
            Element::Bf16 => bf16::from_f64(value).to_bits() as u64,
            Element::E5m2 => (f16::from_f64(value).to_bits() >> 8) as u64,
            Element::E4m3 => {
                let sign = if value.is_sign_negative() { 0x80 } else { 0 };
                let codes = 0..0x7fu64;
                let near = |c: &u64| (small_float(*c, 4, 3) - value.abs()).abs();
                let best = codes.min_by(|a, b| near(a).total_cmp(&near(b)));
                best.unwrap_or(0) | sign
            }
        }
    }

    fn is_float(self) -> bool {
        self != Element::Bits
    }
}

/// The value of a float of `exponent` and `mantissa` bits behind a sign, infinities and NaNs apart.
fn small_float(bits: u64, exponent: u32, mantissa: u32) -> f64 {
    let fraction = (bits & ((1 << mantissa) - 1)) as f64 / (1u64 << mantissa) as f64;
    let power = (bits >> mantissa & ((1 << exponent) - 1)) as i32;
    let bias = (1 << (exponent - 1)) - 1;
    let size = match power {
        0 => fraction * 2f64.powi(1 - bias),
        _ => (1.0 + fraction) * 2f64.powi(power - bias),
    };
    if bits >> (exponent + mantissa) & 1 == 1 {
        -size
    } else {
        size
    }
}

/// Where values come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Draw {
    /// Special values first, then random bits.
    Any,
    /// Floats of ordinary size: 2⁻⁶ to 4, both signs.
    Near,
    /// Whole numbers from -4 to 4, whose sums of products are exact.
    Whole,
    /// Unsigned integers below a bound.
    Below(u64),
    /// Floats around the range of an integer type, and halfway cases.
    Integral,
}

/// A register of a snippet: bits, what they mean, and what is drawn for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operand {
    /// Bits: 1 for predicates, 16, 32 or 64.
    pub width: u32,
    pub element: Element,
    pub draw: Draw,
}

const fn operand(width: u32, element: Element) -> Operand {
    Operand {
        width,
        element,
        draw: Draw::Any,
    }
}

pub const PRED: Operand = operand(1, Element::Bits);
pub const B16: Operand = operand(16, Element::Bits);
pub const B32: Operand = operand(32, Element::Bits);
pub const B64: Operand = operand(64, Element::Bits);
pub const F16: Operand = operand(16, Element::F16);
pub const BF16: Operand = operand(16, Element::Bf16);
pub const F16X2: Operand = operand(32, Element::F16);
pub const BF16X2: Operand = operand(32, Element::Bf16);
pub const F32: Operand = operand(32, Element::F32);
pub const TF32: Operand = operand(32, Element::Tf32);
pub const F32X2: Operand = operand(64, Element::F32);
pub const F64: Operand = operand(64, Element::F64);
pub const E4M3X2: Operand = operand(16, Element::E4m3);
pub const E5M2X2: Operand = operand(16, Element::E5m2);
pub const E4M3X4: Operand = operand(32, Element::E4m3);
pub const E5M2X4: Operand = operand(32, Element::E5m2);

impl Operand {
    pub const fn near(self) -> Operand {
        self.draws(Draw::Near)
    }

    pub const fn whole(self) -> Operand {
        self.draws(Draw::Whole)
    }

    pub const fn integral(self) -> Operand {
        self.draws(Draw::Integral)
    }

    pub const fn below(self, bound: u64) -> Operand {
        self.draws(Draw::Below(bound))
    }

    const fn draws(self, draw: Draw) -> Operand {
        Operand { draw, ..self }
    }

    pub fn mask(self) -> u64 {
        match self.width {
            64 => u64::MAX,
            width => (1 << width) - 1,
        }
    }

    /// Elements of a register, from the low bits up.
    pub fn elements(self, bits: u64) -> impl Iterator<Item = u64> {
        let size = self.element.bits(self.width);
        let mask = u64::MAX >> (64 - size);
        (0..self.width / size).map(move |i| bits >> (i * size) & mask)
    }

    /// Values that must be among the cases, of a whole register.
    pub fn specials(self) -> Vec<u64> {
        let size = self.element.bits(self.width);
        let of: Vec<u64> = match (self.draw, self.element) {
            (Draw::Any, Element::Bits) => integer_specials(self.width),
            (Draw::Any, Element::F64) => float_specials(11, 52),
            (Draw::Any, Element::F32 | Element::Tf32) => float_specials(8, 23),
            (Draw::Any, Element::F16) => float_specials(5, 10),
            (Draw::Any, Element::Bf16) => float_specials(8, 7),
            (Draw::Any, Element::E4m3 | Element::E5m2) => (0..256).collect(),
            (Draw::Below(n), _) => vec![0, n / 2, n - 1],
            (Draw::Integral, e) => integral_specials().map(|v| e.bits_of(v)).collect(),
            (Draw::Near | Draw::Whole, _) => Vec::new(),
        };
        // Neighbours in a packed register differ.
        let count = of.len();
        let spread = |i: usize| {
            let lanes = self.width / size;
            (0..lanes).fold(0u64, |all, lane| {
                let at = (i + lane as usize * (count / 3 + 1)) % count;
                all | of[at] << (lane * size)
            })
        };
        (0..count).map(spread).collect()
    }

    /// A random value of a whole register.
    pub fn draw(self, random: &mut Random) -> u64 {
        let size = self.element.bits(self.width);
        (0..self.width / size).fold(0u64, |all, lane| {
            all | self.draw_element(random) << (lane * size)
        }) & self.mask()
    }

    fn draw_element(self, random: &mut Random) -> u64 {
        let size = self.element.bits(self.width);
        match self.draw {
            Draw::Any if self.element.is_float() => {
                // Half are of ordinary size, so that pairs do not all differ by hundreds of binades.
                if random.bits() & 1 == 0 {
                    self.near().draw_element(random)
                } else {
                    random.bits() & (u64::MAX >> (64 - size))
                }
            }
            Draw::Any => {
                // Small magnitudes as often as large ones.
                let bits = random.bits();
                let cut = random.bits() % size as u64;
                let value = match random.bits() % 3 {
                    0 => bits,
                    1 => bits >> (64 - size) as u64 >> cut,
                    _ => ((bits as i64) >> (64 - size) >> cut) as u64,
                };
                value & (u64::MAX >> (64 - size))
            }
            Draw::Near => {
                // From bits: functions of the host's library differ between builds.
                let bits = random.bits();
                let exponent = 1023 - 6 + (bits >> 52) % 8;
                let size = f64::from_bits(exponent << 52 | bits & ((1 << 52) - 1));
                let sign = if random.bits() & 1 == 0 { 1.0 } else { -1.0 };
                self.element.bits_of(sign * size)
            }
            Draw::Whole => {
                let value = (random.bits() % 9) as f64 - 4.0;
                self.element.bits_of(value) & (u64::MAX >> (64 - size))
            }
            Draw::Below(n) => random.bits() % n,
            Draw::Integral => {
                let power = (random.bits() % 68) as i32;
                let size = (random.bits() >> 11) as f64 / 2f64.powi(53) * 2f64.powi(power);
                let size = match random.bits() % 3 {
                    0 => size.trunc() + 0.5,
                    _ => size,
                };
                let sign = if random.bits() & 1 == 0 { 1.0 } else { -1.0 };
                self.element.bits_of(sign * size)
            }
        }
    }
}

fn integer_specials(width: u32) -> Vec<u64> {
    if width == 1 {
        return vec![0, 1];
    }
    let mask = u64::MAX >> (64 - width);
    let top = 1u64 << (width - 1);
    let half = 1u64 << (width / 2);
    let values = [
        0,
        1,
        2,
        3,
        5,
        7,
        31,
        32,
        33,
        half - 1,
        half,
        half + 1,
        top - 1,
        top,
        top + 1,
        mask,
        mask - 1,
        mask - 6,
        0x5555_5555_5555_5555 & mask,
        0x8000_7fff_80ff_7f01 & mask,
    ];
    values.to_vec()
}

/// Zeros, infinities, NaNs, subnormals, the ends of the range, and values near one and near halfway, of both signs.
fn float_specials(exponent: u32, mantissa: u32) -> Vec<u64> {
    let one = ((1u64 << (exponent - 1)) - 1) << mantissa;
    let infinity = ((1u64 << exponent) - 1) << mantissa;
    let step = 1u64 << mantissa;
    let half = step >> 1;
    let values = [
        0,
        infinity,
        infinity | half,
        infinity | 1,
        1,
        half,
        step - 1,
        step,
        infinity - 1,
        one,
        one + 1,
        one - 1,
        one + half,
        one + step,
        one - step,
        one + step + half,
        one.saturating_add(step * mantissa as u64).min(infinity - 1),
        one.saturating_sub(step * mantissa as u64),
    ];
    let sign = 1u64 << (exponent + mantissa);
    let mut all: Vec<u64> = values.into_iter().flat_map(|v| [v, v | sign]).collect();
    all.dedup();
    all
}

/// Values at which conversions to integers change their mind.
fn integral_specials() -> impl Iterator<Item = f64> {
    let ends = [7, 8, 15, 16, 23, 24, 31, 32, 52, 53, 63, 64];
    let at = |power: i32| {
        let p = 2f64.powi(power);
        [p - 1.0, p - 0.5, p, p * (1.0 - 2f64.powi(-24)), p + 1.0]
    };
    let small = [
        0.0,
        0.25,
        0.5,
        0.75,
        1.0,
        1.5,
        2.5,
        3.5,
        f64::INFINITY,
        f64::NAN,
        1e-40,
        1e300,
    ];
    let all = ends.into_iter().flat_map(at).chain(small);
    all.flat_map(|v| [v, -v])
}

/// How far two results may differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// The same bits.
    Bits,
    /// The same bits, or both NaN: where the ISA does not fix the payload.
    Numbers,
    /// Numbers that differ by at most `abs`, or `rel` of the larger one.
    Within { abs: f64, rel: f64 },
}

/// How a pair of results compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    Equal,
    /// Other bits, within the bound.
    Within,
    Different,
}

impl Bound {
    /// Compares registers.
    pub fn compare(self, of: Operand, a: u64, b: u64) -> Outcome {
        let (a, b) = (a & of.mask(), b & of.mask());
        if a == b {
            return Outcome::Equal;
        }
        let near = of.elements(a).zip(of.elements(b)).all(|(a, b)| {
            if a == b {
                return true;
            }
            let (x, y) = (of.element.value(a), of.element.value(b));
            match self {
                _ if !of.element.is_float() => false,
                Bound::Bits => false,
                _ if x.is_nan() && y.is_nan() => true,
                Bound::Numbers => false,
                // Open: an intermediate overflow, say.
                Bound::Within { abs, .. } if abs == f64::INFINITY => true,
                Bound::Within { abs, rel } => {
                    let largest = x.abs().max(y.abs());
                    largest.is_finite() && (x - y).abs() <= abs.max(rel * largest)
                }
            }
        });
        match near {
            true => Outcome::Within,
            false => Outcome::Different,
        }
    }

    /// The bound with more room for a case: `slack` on either side.
    pub fn with_slack(self, slack: f64) -> Bound {
        match self {
            Bound::Within { abs, rel } => Bound::Within {
                abs: abs.max(slack),
                rel,
            },
            other => other,
        }
    }

    /// The register with what the bound ignores taken out, for hashes.
    pub fn canonical(self, of: Operand, bits: u64) -> u64 {
        if self == Bound::Bits || !of.element.is_float() {
            return bits & of.mask();
        }
        let size = of.element.bits(of.width);
        let nan = u64::MAX >> (64 - size);
        of.elements(bits).enumerate().fold(0, |all, (lane, e)| {
            let e = if of.element.value(e).is_nan() { nan } else { e };
            all | e << (lane as u32 * size)
        })
    }
}

/// A small generator of random bits (SplitMix64): the same numbers everywhere.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Seeded by a number and a name.
    pub fn new(seed: u64, name: &str) -> Random {
        // FNV-1a.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| {
            (h ^ b as u64).wrapping_mul(0x100_0000_01b3)
        });
        Random(hash ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
