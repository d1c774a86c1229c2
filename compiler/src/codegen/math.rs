//! The functions of f32, to the accuracy that the language promises: within 2 ulp or 2⁻²¹ absolute (`exp`, `log`, `erf`,
//! `sigmoid`: 2⁻¹⁹), for arguments of any size.

use super::{
    builder::{Effect, F32, I32, I64, Val},
    lower::Lower,
};
use crate::{diagnostics::Diagnostic, ir::tile::UnaryOp, target::legality::Instruction};

/// log₂ e, split so that the sum of both is good to 48 bits.
const LOG2_E: f32 = std::f32::consts::LOG2_E;
const LOG2_E_LOW: f32 = (std::f64::consts::LOG2_E - std::f32::consts::LOG2_E as f64) as f32;

/// 2/π after the point, in words of 32 bits, the first with 32 zeros before it so that every window has a word above.
const TWO_OVER_PI: [u32; 8] = [
    0,
    0xA2F9_836E,
    0x4E44_1529,
    0xFC27_57D1,
    0xF534_DDC0,
    0xDB62_9599,
    0x3C43_9041,
    0xFE51_63AB,
];

impl Lower<'_> {
    pub fn unary_f32(&mut self, op: UnaryOp, x: Val) -> Result<Val, Diagnostic> {
        match op {
            UnaryOp::Exp | UnaryOp::Exp2 | UnaryOp::Tanh | UnaryOp::Erf | UnaryOp::Sigmoid => {
                self.need(Instruction::Exp2)?;
            }
            UnaryOp::Log | UnaryOp::Log2 => self.need(Instruction::Log2)?,
            UnaryOp::Rsqrt => self.need(Instruction::Rsqrt)?,
            _ => {}
        }
        Ok(match op {
            UnaryOp::Neg => self.b.fneg(x),
            UnaryOp::Abs => self.abs(x),
            UnaryOp::Exp => self.exp(x),
            UnaryOp::Exp2 => self.exp2(x),
            UnaryOp::Log => {
                let log = self.log2(x);
                self.fmul(log, Val::f32(std::f32::consts::LN_2))
            }
            UnaryOp::Log2 => self.log2(x),
            UnaryOp::Sqrt => self.b.intrinsic("llvm.sqrt", &[x]),
            UnaryOp::Rsqrt => {
                self.b
                    .call(Some(F32), "llvm.nvvm.rsqrt.approx.f", &[x], Effect::Pure)
            }
            UnaryOp::Rcp => self.rcp(x),
            UnaryOp::Tanh => self.tanh(x),
            UnaryOp::Erf => self.erf(x),
            UnaryOp::Sigmoid => {
                let t = self.fmul(x, Val::f32(-LOG2_E));
                let e = self.exp2(t);
                let sum = self.fadd(e, Val::f32(1.0));
                self.rcp_of_large(sum)
            }
            UnaryOp::Sin => self.sine(x, 0),
            UnaryOp::Cos => self.sine(x, 1),
            UnaryOp::Floor => self.b.intrinsic("llvm.floor", &[x]),
            UnaryOp::Ceil => self.b.intrinsic("llvm.ceil", &[x]),
            UnaryOp::Round => self.b.intrinsic("llvm.rint", &[x]),
            UnaryOp::Not | UnaryOp::Popcount | UnaryOp::Clz => {
                return Err(self.not_yet("this function of a float"));
            }
        })
    }

    fn abs(&mut self, x: Val) -> Val {
        self.b.intrinsic("llvm.fabs", &[x])
    }

    fn fmul(&mut self, a: Val, b: Val) -> Val {
        self.b.binary("fmul", a, b)
    }

    fn fadd(&mut self, a: Val, b: Val) -> Val {
        self.b.binary("fadd", a, b)
    }

    fn ffma(&mut self, a: Val, b: Val, c: Val) -> Val {
        self.b.intrinsic("llvm.fma", &[a, b, c])
    }

    /// A result below 2⁻¹²⁶ becomes 0, which is within the absolute error that the language grants.
    fn exp2(&mut self, x: Val) -> Val {
        self.b
            .call(Some(F32), "llvm.nvvm.ex2.approx.ftz.f", &[x], Effect::Pure)
    }

    /// 1/x for x ≥ 1: a result below 2⁻¹²⁶ becomes 0.
    fn rcp_of_large(&mut self, x: Val) -> Val {
        self.b
            .call(Some(F32), "llvm.nvvm.rcp.approx.ftz.f", &[x], Effect::Pure)
    }

    fn rcp(&mut self, x: Val) -> Val {
        self.b.binary("fdiv afn", Val::f32(1.0), x)
    }

    /// 2^(x·log₂ e), corrected by the first order of what rounding the product lost: that matters from |x| of 4 on.
    fn exp(&mut self, x: Val) -> Val {
        let t = self.fmul(x, Val::f32(LOG2_E));
        let e = self.exp2(t);
        let back = self.b.fneg(t);
        let lost = self.ffma(x, Val::f32(LOG2_E), back);
        let lost = self.ffma(x, Val::f32(LOG2_E_LOW), lost);
        let lost = self.fmul(lost, Val::f32(std::f32::consts::LN_2));
        let corrected = self.ffma(e, lost, e);
        // Infinite results and infinite arguments have no correction.
        let size = self.abs(t);
        let finite = self.b.fcmp("olt", size, Val::f32(128.0));
        self.b.select(finite, corrected, e)
    }

    /// The exponent plus log₂ of a mantissa in √½..√2, by atanh's series in (m−1)/(m+1).
    fn log2(&mut self, x: Val) -> Val {
        // Subnormal numbers are scaled into the normal range first.
        let tiny = self.b.fcmp("olt", x, Val::f32(f32::MIN_POSITIVE));
        let scaled = self.fmul(x, Val::f32(8_388_608.0));
        let y = self.b.select(tiny, scaled, x);
        let bits = self.b.bitcast(y, I32);
        // √½ as bits: the mantissa's range begins there.
        let from = self.b.sub(bits, Val::int(0x3F35_04F3, I32));
        let exponent = self.b.ashr(from, 23);
        let shifted = self.b.shl(exponent, 23);
        let mantissa = self.b.sub(bits, shifted);
        let m = self.b.bitcast(mantissa, F32);
        let exponent = self.b.cast("sitofp", exponent, F32);
        let less = self.fadd(exponent, Val::f32(-23.0));
        let exponent = self.b.select(tiny, less, exponent);

        let below = self.fadd(m, Val::f32(-1.0));
        let above = self.fadd(m, Val::f32(1.0));
        let inverse = self.rcp(above);
        let s = self.fmul(below, inverse);
        let z = self.fmul(s, s);
        // 2/ln 2 · (1 + z/3 + z²/5 + z³/7 + z⁴/9)
        let terms: [f32; 4] = [0.320_599, 0.412_198_58, 0.577_078_02, 0.961_796_7];
        let mut p = Val::f32(terms[0]);
        for t in &terms[1..] {
            p = self.ffma(p, z, Val::f32(*t));
        }
        let p = self.fmul(p, z);
        let p = self.fmul(p, s);
        let low = self.ffma(s, Val::f32(2.885_39), p);
        let log = self.fadd(exponent, low);

        // Zero, infinity, negative numbers and NaN by the instruction, which is right about them.
        let special = self
            .b
            .call(Some(F32), "llvm.nvvm.lg2.approx.f", &[x], Effect::Pure);
        let positive = self.b.fcmp("ogt", x, Val::f32(0.0));
        let finite = self.b.fcmp("olt", x, Val::f32(f32::INFINITY));
        let ordinary = self.b.and(positive, finite);
        self.b.select(ordinary, log, special)
    }

    /// 1 − 2/(e^2|x| + 1) with the sign of x; near zero, where that cancels, an odd polynomial.
    fn tanh(&mut self, x: Val) -> Val {
        let size = self.abs(x);
        let t = self.fmul(size, Val::f32(2.0 * LOG2_E));
        let e = self.exp2(t);
        let sum = self.fadd(e, Val::f32(1.0));
        let inverse = self.rcp_of_large(sum);
        let far = self.ffma(inverse, Val::f32(-2.0), Val::f32(1.0));
        let far = self.b.intrinsic("llvm.copysign", &[far, x]);

        let z = self.fmul(x, x);
        let terms: [f32; 5] = [
            -0.008_863_236,
            0.021_869_488,
            -0.053_968_254,
            0.133_333_33,
            -0.333_333_34,
        ];
        let mut p = Val::f32(terms[0]);
        for t in &terms[1..] {
            p = self.ffma(p, z, Val::f32(*t));
        }
        let p = self.fmul(p, z);
        let near = self.ffma(p, x, x);
        let small = self.b.fcmp("olt", size, Val::f32(0.4));
        self.b.select(small, near, far)
    }

    /// Abramowitz and Stegun 7.1.26 away from zero (1.5·10⁻⁷), the Taylor series near it.
    fn erf(&mut self, x: Val) -> Val {
        let size = self.abs(x);
        let t = self.ffma(size, Val::f32(0.327_591_1), Val::f32(1.0));
        let t = self.rcp_of_large(t);
        let terms: [f32; 5] = [
            1.061_405_4,
            -1.453_152,
            1.421_413_7,
            -0.284_496_74,
            0.254_829_6,
        ];
        let mut p = Val::f32(terms[0]);
        for term in &terms[1..] {
            p = self.ffma(p, t, Val::f32(*term));
        }
        let p = self.fmul(p, t);
        let z = self.fmul(x, x);
        let power = self.fmul(z, Val::f32(-LOG2_E));
        let e = self.exp2(power);
        let back = self.b.fneg(p);
        let far = self.ffma(back, e, Val::f32(1.0));
        let far = self.b.intrinsic("llvm.copysign", &[far, x]);

        // 2/√π · (1 − z/3 + z²/10 − z³/42 + z⁴/216 − z⁵/1320)
        let terms: [f32; 6] = [
            -0.000_854_832_7,
            0.005_223_977_6,
            -0.026_866_17,
            0.112_837_92,
            -0.376_126_4,
            std::f32::consts::FRAC_2_SQRT_PI,
        ];
        let mut p = Val::f32(terms[0]);
        for term in &terms[1..] {
            p = self.ffma(p, z, Val::f32(*term));
        }
        let near = self.fmul(p, x);
        let small = self.b.fcmp("olt", size, Val::f32(0.5));
        self.b.select(small, near, far)
    }

    /// sin(x + quarter·π/2): the argument is reduced by multiples of π/2, with as many bits of 2/π as its size needs.
    fn sine(&mut self, x: Val, quarter: u32) -> Val {
        // |x| = m · 2^(e−23) with an integer m of 24 bits. What the first e−25 bits of 2/π give are multiples of four
        // quarter turns; the 96 bits behind them give the turn with two bits of quadrant and a fraction behind.
        let bits = self.b.bitcast(x, I32);
        let size = self.b.and(bits, Val::int(0x7FFF_FFFF, I32));
        let biased = self.b.lshr(size, 23);
        let m = self.b.and(size, Val::int(0x007F_FFFF, I32));
        let m = self.b.or(m, Val::int(0x0080_0000, I32));
        let skip = self.b.sub(biased, Val::int(127 - 7, I32));
        let skip = self.b.intrinsic("llvm.smax", &[skip, Val::int(0, I32)]);
        let word = self.b.lshr(skip, 5);
        let shift = self.b.and(skip, Val::int(31, I32));
        let digits = |i: usize| Val::int(TWO_OVER_PI[i] as i32 as i64, I32);
        let mut window = [Val::i32(0); 4];
        for (i, out) in window.iter_mut().enumerate() {
            *out = digits(i);
            for at in 1..=4 {
                let here = self.b.icmp("eq", word, Val::i32(at as u32));
                *out = self.b.select(here, digits(i + at), *out);
            }
        }
        let m = self.b.cast("zext", m, I64);
        let mut parts = [m; 3];
        for (i, part) in parts.iter_mut().enumerate() {
            let word = self
                .b
                .intrinsic("llvm.fshl", &[window[i], window[i + 1], shift]);
            let word = self.b.cast("zext", word, I64);
            *part = self.b.mul(word, m);
        }
        let high = self.b.shl(parts[0], 32);
        let low = self.b.lshr(parts[2], 32);
        let turn = self.b.add(high, parts[1]);
        let turn = self.b.add(turn, low);

        // The fraction as −½..½, which belongs to the nearest quadrant.
        let fraction = self.b.shl(turn, 2);
        let quadrant = self.b.lshr(turn, 62);
        let up = self.b.lshr(fraction, 63);
        let quadrant = self.b.add(quadrant, up);
        let quadrant = self.b.resize(quadrant, I32, false);
        let r = self.b.cast("sitofp", fraction, F32);
        let r = self.fmul(r, Val::f32(std::f32::consts::FRAC_PI_2 * 2f32.powi(-64)));
        // The sine is odd: turn the other way for negative arguments.
        let negative = self.b.icmp("slt", bits, Val::int(0, I32));
        let back = self.b.fneg(r);
        let r = self.b.select(negative, back, r);
        let other = self.b.sub(Val::int(0, I32), quadrant);
        let quadrant = self.b.select(negative, other, quadrant);
        // Small arguments need no turning.
        let small = self.b.icmp("ult", size, Val::int(0x3F49_0FDB, I32));
        let r = self.b.select(small, x, r);
        let quadrant = self.b.select(small, Val::i32(0), quadrant);
        let quadrant = self.b.add(quadrant, Val::i32(quarter));

        let z = self.fmul(r, r);
        let mut odd = Val::f32(2.755_731_9e-6);
        for term in [-1.984_127e-4f32, 8.333_333e-3, -0.166_666_67] {
            odd = self.ffma(odd, z, Val::f32(term));
        }
        let odd = self.fmul(odd, z);
        let odd = self.ffma(odd, r, r);
        let mut even = Val::f32(2.480_158_8e-5);
        for term in [-1.388_888_9e-3f32, 4.166_666_8e-2, -0.5, 1.0] {
            even = self.ffma(even, z, Val::f32(term));
        }
        let one = self.b.and(quadrant, Val::i32(1));
        let swaps = self.b.icmp("ne", one, Val::i32(0));
        let y = self.b.select(swaps, even, odd);
        let two = self.b.and(quadrant, Val::i32(2));
        let turns = self.b.icmp("ne", two, Val::i32(0));
        let back = self.b.fneg(y);
        let y = self.b.select(turns, back, y);
        let finite = self.b.icmp("ult", size, Val::int(0x7F80_0000, I32));
        self.b.select(finite, y, Val::float(f64::NAN, F32))
    }
}
