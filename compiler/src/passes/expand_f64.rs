//! Writes the functions of f64 that no target computes in terms of arithmetic: `exp exp2 log log2 tanh erf sigmoid sin cos`.
//!
//! All results are within a few units of the last place, or 10⁻¹⁵ where they cross zero, for arguments of any size, NaN,
//! infinities and zeros included. Everything is elementwise and without branches, so that layouts don't change. What
//! must round by itself is `fma` or `mul_exact`; the rest may be contracted.

use std::collections::HashMap;

use tesserine_set::DType;

use crate::ir::{
    OpId, RegionId, ValueId,
    tile::{BinaryOp, Builder, CompareOp, Constant, Kernel, OpKind, TileBody, UnaryOp},
};

pub fn run(kernel: &mut Kernel) {
    if !kernel.body.ops.values().any(|op| {
        matches!(op.kind, OpKind::Unary(f) if is_function(f))
            && kernel.body.ty(op.operands[0]).elem() == DType::F64
    }) {
        return;
    }
    let mut write = Write {
        from: &kernel.body,
        to: TileBody::new(),
        map: HashMap::new(),
    };
    let root = write.to.root;
    write.region(kernel.body.root, root);
    kernel.body = write.to;
}

fn is_function(op: UnaryOp) -> bool {
    use UnaryOp::{Cos, Erf, Exp, Exp2, Log, Log2, Sigmoid, Sin, Tanh};
    matches!(
        op,
        Exp | Exp2 | Log | Log2 | Tanh | Erf | Sigmoid | Sin | Cos
    )
}

struct Write<'a> {
    from: &'a TileBody,
    to: TileBody,
    map: HashMap<ValueId, ValueId>,
}

impl Write<'_> {
    fn region(&mut self, region: RegionId, into: RegionId) {
        for &arg in &self.from.regions[region].args {
            let new = self.to.add_argument(into, self.from.ty(arg).clone());
            self.map.insert(arg, new);
        }
        for &id in &self.from.regions[region].ops {
            self.op(id, into);
        }
    }

    fn op(&mut self, id: OpId, into: RegionId) {
        let op = &self.from.ops[id];
        if let OpKind::Unary(function) = op.kind
            && is_function(function)
            && self.from.ty(op.operands[0]).elem() == DType::F64
        {
            let x = self.map[&op.operands[0]];
            let shape = self.to.ty(x).shape().to_vec();
            let b = Builder {
                body: &mut self.to,
                region: into,
                span: op.span,
            };
            let value = F64 { b, shape }.function(function, x);
            self.map.insert(op.results[0], value);
            return;
        }
        let regions = op
            .regions
            .iter()
            .map(|&inner| {
                let new = self.to.new_region();
                self.region(inner, new);
                new
            })
            .collect();
        self.to
            .append_copy(into, self.from, id, regions, &mut self.map);
    }
}

const LOG2_E: f64 = std::f64::consts::LOG2_E;
/// What [`LOG2_E`] lacks.
const LOG2_E_LOW: f64 = 2.0355273740931033e-17;
const LN_2: f64 = std::f64::consts::LN_2;
const LN_2_LOW: f64 = 2.3190468138462996e-17;
/// ln 2 in 32 bits, whose product with an exponent is exact, and the rest.
const LN_2_SHORT: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000);
const LN_2_REST: f64 = (LN_2 - LN_2_SHORT) + LN_2_LOW;
/// π/2 in three parts.
const HALF_PI: [f64; 3] = [
    std::f64::consts::FRAC_PI_2,
    6.123233995736766e-17,
    -1.4973849048591698e-33,
];
/// 2⁻⁶², of which a fraction of a quarter turn is counted in.
const FRACTION: f64 = f64::from_bits((1023 - 62) << 52);
/// From here on quarter turns are taken off in integers.
const LARGE: f64 = (1u64 << 40) as f64;

/// 2/π after 64 bits of zeros, as one long fraction.
const TWO_OVER_PI: [u64; 19] = [
    0,
    0xa2f9_836e_4e44_1529,
    0xfc27_57d1_f534_ddc0,
    0xdb62_9599_3c43_9041,
    0xfe51_63ab_debb_c561,
    0xb724_6e3a_424d_d2e0,
    0x0649_2eea_09d1_921c,
    0xfe1d_eb1c_b129_a73e,
    0xe882_35f5_2ebb_4484,
    0xe99c_7026_b45f_7e41,
    0x3991_d639_8353_39f4,
    0x9c84_5f8b_bdf9_283b,
    0x1ff8_97ff_de05_980f,
    0xef2f_118b_5a0a_6d1f,
    0x6d36_7ecf_27cb_09b7,
    0x4f46_3f66_9e5f_ea2d,
    0x7527_bac7_ebe5_f17b,
    0x3d07_39f7_8a52_92ea,
    0x6bfb_5fb1_1f8d_5d08,
];

/// From where on erf is 1 in f64.
const ERF_END: f64 = 6.5;

/// e^(a²)·erfc(a) for a in 1..[`ERF_END`], as a polynomial in (a − 2½)/(a + 2½): interpolated at Chebyshev's points, within
/// 2·10⁻¹⁷.
const ERFC: [f64; 17] = [
    0.2108063640611436,
    -0.3717367339489734,
    0.2517131932174492,
    -0.1250330523788229,
    0.039922539075592935,
    -0.00399370116634132,
    -0.002642365964661061,
    0.000875915466481227,
    0.00022838038674781854,
    -0.0001288774652982355,
    -3.4182328765654605e-05,
    1.8617462520749844e-05,
    7.553167573592852e-06,
    -2.3156411316757164e-06,
    -1.803867112778446e-06,
    1.3211581289577262e-07,
    3.466140984732219e-07,
];

fn factorial(n: u32) -> f64 {
    (1..=n).map(f64::from).product()
}

/// Makes elementwise operations on values of one shape.
struct F64<'a> {
    b: Builder<'a>,
    shape: Vec<u32>,
}

impl F64<'_> {
    fn function(&mut self, function: UnaryOp, x: ValueId) -> ValueId {
        match function {
            UnaryOp::Exp => self.exp(x),
            UnaryOp::Exp2 => self.exp2(x),
            UnaryOp::Log => self.log(x, false),
            UnaryOp::Log2 => self.log(x, true),
            UnaryOp::Tanh => self.tanh(x),
            UnaryOp::Erf => self.erf(x),
            UnaryOp::Sigmoid => self.sigmoid(x),
            UnaryOp::Sin => self.sine(x, 0),
            _ => self.sine(x, 1),
        }
    }

    fn of(&mut self, constant: Constant) -> ValueId {
        let scalar = self.b.constant(constant);
        if self.shape.is_empty() {
            return scalar;
        }
        self.b.broadcast(scalar, &self.shape)
    }

    fn f(&mut self, value: f64) -> ValueId {
        self.of(Constant::Float(value, DType::F64))
    }

    fn i(&mut self, value: i64) -> ValueId {
        self.of(Constant::Int(value, DType::I64))
    }

    fn u(&mut self, value: u64) -> ValueId {
        self.of(Constant::Int(value as i64, DType::U64))
    }

    fn add(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.b.binary(BinaryOp::Add, a, b)
    }

    fn sub(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.b.binary(BinaryOp::Sub, a, b)
    }

    /// A product that is rounded by itself; of integers, wrapping.
    fn mul(&mut self, a: ValueId, b: ValueId) -> ValueId {
        let op = match self.b.ty(a).elem() {
            DType::F64 => BinaryOp::MulExact,
            _ => BinaryOp::Mul,
        };
        self.b.binary(op, a, b)
    }

    fn div(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.b.binary(BinaryOp::Div, a, b)
    }

    fn fma(&mut self, a: ValueId, b: ValueId, c: ValueId) -> ValueId {
        self.b.fma(a, b, c)
    }

    fn neg(&mut self, x: ValueId) -> ValueId {
        self.b.unary(UnaryOp::Neg, x)
    }

    fn abs(&mut self, x: ValueId) -> ValueId {
        self.b.unary(UnaryOp::Abs, x)
    }

    fn shl(&mut self, x: ValueId, bits: i64) -> ValueId {
        self.shift(BinaryOp::Shl, x, bits)
    }

    fn shr(&mut self, x: ValueId, bits: i64) -> ValueId {
        self.shift(BinaryOp::Shr, x, bits)
    }

    fn shift(&mut self, op: BinaryOp, x: ValueId, bits: i64) -> ValueId {
        let elem = self.b.ty(x).elem();
        let bits = self.of(Constant::Int(bits, elem));
        self.b.binary(op, x, bits)
    }

    fn and(&mut self, x: ValueId, mask: u64) -> ValueId {
        let elem = self.b.ty(x).elem();
        let mask = self.of(Constant::Int(mask as i64, elem));
        self.b.binary(BinaryOp::And, x, mask)
    }

    fn less(&mut self, x: ValueId, limit: f64) -> ValueId {
        let limit = self.f(limit);
        self.b.compare(CompareOp::Lt, x, limit)
    }

    fn clamp(&mut self, x: ValueId, size: f64) -> ValueId {
        let (low, high) = (self.f(-size), self.f(size));
        let x = self.b.binary(BinaryOp::Max, x, low);
        self.b.binary(BinaryOp::Min, x, high)
    }

    /// c₀ + c₁x + c₂x² + …
    fn polynomial(&mut self, x: ValueId, coefficients: &[f64]) -> ValueId {
        let mut sum = None;
        for &c in coefficients.iter().rev() {
            let c = self.f(c);
            sum = Some(match sum {
                None => c,
                Some(sum) => self.fma(sum, x, c),
            });
        }
        match sum {
            Some(sum) => sum,
            None => self.f(0.0),
        }
    }

    /// `value`, or `x` where that is NaN.
    fn or_nan(&mut self, x: ValueId, value: ValueId) -> ValueId {
        let number = self.b.compare(CompareOp::Eq, x, x);
        self.b.select(number, value, x)
    }

    /// `value`, of |x|, with the sign of `x`; and `x` scaled where that is so small that the function is linear.
    fn odd(&mut self, x: ValueId, value: ValueId, slope: ValueId) -> ValueId {
        let negative = self.less(x, 0.0);
        let minus = self.neg(value);
        let value = self.b.select(negative, minus, value);
        let size = self.abs(x);
        let small = self.less(size, 1e-9);
        let line = self.mul(x, slope);
        let value = self.b.select(small, line, value);
        self.or_nan(x, value)
    }

    /// 2ⁿ for whole n in −1022..=1023.
    fn power(&mut self, n: ValueId) -> ValueId {
        let bias = self.i(1023);
        let biased = self.add(n, bias);
        let bits = self.shl(biased, 52);
        self.b.bitcast(bits, DType::F64)
    }

    /// x·log₂ e as a whole number, and e^rest − 1, where |rest| ≤ ½·ln 2; for |x| below 2000.
    fn split_exp(&mut self, x: ValueId) -> (ValueId, ValueId) {
        let scale = self.f(LOG2_E);
        let turns = self.mul(x, scale);
        let n = self.b.unary(UnaryOp::Round, turns);
        let back = self.neg(n);
        let (high, low) = (self.f(LN_2), self.f(LN_2_LOW));
        let high = self.fma(back, high, x);
        let low = self.mul(back, low);
        let rest = self.less_one(high, low);
        (self.b.cast(n, DType::I64), rest)
    }

    /// e^(high + low) − 1, by the exponential series.
    fn less_one(&mut self, high: ValueId, low: ValueId) -> ValueId {
        let series: Vec<f64> = (2..=14).map(|k| 1.0 / factorial(k)).collect();
        let r = self.add(high, low);
        let rounded = self.sub(high, r);
        let low = self.add(rounded, low);
        let tail = self.polynomial(r, &series);
        let square = self.mul(r, r);
        let tail = self.fma(square, tail, low);
        self.add(r, tail)
    }

    /// 2ⁿ·(1 + rest), in two steps, so that results below the normal range and beyond the largest come right.
    fn scaled(&mut self, n: ValueId, rest: ValueId) -> ValueId {
        let one = self.f(1.0);
        let value = self.add(one, rest);
        let half = self.shr(n, 1);
        let other = self.sub(n, half);
        let (half, other) = (self.power(half), self.power(other));
        let value = self.mul(value, half);
        self.mul(value, other)
    }

    fn exp(&mut self, x: ValueId) -> ValueId {
        let bounded = self.clamp(x, 800.0);
        let (n, rest) = self.split_exp(bounded);
        let value = self.scaled(n, rest);
        self.or_nan(x, value)
    }

    fn exp2(&mut self, x: ValueId) -> ValueId {
        let bounded = self.clamp(x, 1200.0);
        let n = self.b.unary(UnaryOp::Round, bounded);
        let fraction = self.sub(bounded, n);
        let (ln2, ln2_low) = (self.f(LN_2), self.f(LN_2_LOW));
        let high = self.mul(fraction, ln2);
        let back = self.neg(high);
        let low = self.fma(fraction, ln2, back);
        let low = self.fma(fraction, ln2_low, low);
        let rest = self.less_one(high, low);
        let n = self.b.cast(n, DType::I64);
        let value = self.scaled(n, rest);
        self.or_nan(x, value)
    }

    /// The exponent, and the logarithm of a mantissa m in √½..√2: with f = m − 1 and s = f/(2 + f), that is
    /// f − f²/2 + s·(f²/2 + 2·(s²/3 + s⁴/5 + …)).
    fn log(&mut self, x: ValueId, binary: bool) -> ValueId {
        let tiny = self.less(x, f64::MIN_POSITIVE);
        let up = self.f((1u64 << 54) as f64);
        let larger = self.mul(x, up);
        let y = self.b.select(tiny, larger, x);
        let bits = self.b.bitcast(y, DType::I64);
        let start = self.i(std::f64::consts::FRAC_1_SQRT_2.to_bits() as i64);
        let from = self.sub(bits, start);
        let exponent = self.shr(from, 52);
        let shifted = self.shl(exponent, 52);
        let mantissa = self.sub(bits, shifted);
        let m = self.b.bitcast(mantissa, DType::F64);
        let (raised, zero) = (self.i(54), self.i(0));
        let raised = self.b.select(tiny, raised, zero);
        let exponent = self.sub(exponent, raised);
        let e = self.b.cast(exponent, DType::F64);

        let (one, two) = (self.f(1.0), self.f(2.0));
        let f = self.sub(m, one);
        let above = self.add(f, two);
        let s = self.div(f, above);
        let z = self.mul(s, s);
        let series: Vec<f64> = (1..=12).map(|k| 2.0 / f64::from(2 * k + 1)).collect();
        let series = self.polynomial(z, &series);
        let series = self.mul(series, z);
        let half = self.f(0.5);
        let square = self.mul(f, f);
        let square = self.mul(square, half);
        let sum = self.add(square, series);
        let correction = self.mul(s, sum);
        let value = if binary {
            let rest = self.sub(square, correction);
            let value = self.sub(f, rest);
            let (scale, scale_low) = (self.f(LOG2_E), self.f(LOG2_E_LOW));
            let low = self.mul(value, scale_low);
            let high = self.mul(value, scale);
            let back = self.neg(high);
            let lost = self.fma(value, scale, back);
            let low = self.add(low, lost);
            let sum = self.add(e, high);
            let rounded = self.sub(e, sum);
            let rounded = self.add(rounded, high);
            let low = self.add(low, rounded);
            self.add(sum, low)
        } else {
            let (short, rest) = (self.f(LN_2_SHORT), self.f(LN_2_REST));
            let low = self.mul(e, rest);
            let correction = self.add(correction, low);
            let rest = self.sub(square, correction);
            let rest = self.sub(rest, f);
            let high = self.mul(e, short);
            self.sub(high, rest)
        };

        // Infinity and NaN are their own logarithm; of 0 it is −∞; of what is below there is none.
        let finite = self.less(x, f64::INFINITY);
        let value = self.b.select(finite, value, x);
        let zero = self.f(0.0);
        let is_zero = self.b.compare(CompareOp::Eq, x, zero);
        let least = self.f(f64::NEG_INFINITY);
        let value = self.b.select(is_zero, least, value);
        let negative = self.less(x, 0.0);
        let nan = self.f(f64::NAN);
        self.b.select(negative, nan, value)
    }

    /// t/(t + 2), where t = e^(2|x|) − 1.
    fn tanh(&mut self, x: ValueId) -> ValueId {
        let size = self.abs(x);
        let twice = self.add(size, size);
        let bounded = self.clamp(twice, 44.0);
        let (n, rest) = self.split_exp(bounded);
        let power = self.power(n);
        let (one, two) = (self.f(1.0), self.f(2.0));
        let whole = self.sub(power, one);
        let t = self.fma(power, rest, whole);
        let above = self.add(t, two);
        let value = self.div(t, above);
        self.odd(x, value, one)
    }

    /// 1/(1 + e) or e/(1 + e), where e = e^−|x|.
    fn sigmoid(&mut self, x: ValueId) -> ValueId {
        let size = self.abs(x);
        let down = self.neg(size);
        let e = self.exp(down);
        let one = self.f(1.0);
        let below = self.add(one, e);
        let negative = self.less(x, 0.0);
        let above = self.b.select(negative, e, one);
        self.div(above, below)
    }

    fn erf(&mut self, x: ValueId) -> ValueId {
        let size = self.abs(x);
        let a = self.clamp(size, ERF_END);
        let square = self.mul(a, a);
        // Up to 1: 2/√π · Σ (−1)ᵏ a^(2k+1) / (k!·(2k+1)).
        let slope = std::f64::consts::FRAC_2_SQRT_PI;
        let series: Vec<f64> = (1..=20)
            .map(|k| {
                let sign = if k % 2 == 0 { slope } else { -slope };
                sign / (factorial(k) * f64::from(2 * k + 1))
            })
            .collect();
        let near = self.polynomial(square, &series);
        let near = self.mul(near, square);
        let slope = self.f(slope);
        let near = self.add(slope, near);
        let near = self.mul(near, a);
        // Beyond: 1 − erfc.
        let middle = self.f(2.5);
        let (below, above) = (self.sub(a, middle), self.add(a, middle));
        let u = self.div(below, above);
        let tail = self.polynomial(u, &ERFC);
        let down = self.neg(square);
        let e = self.exp(down);
        let tail = self.mul(tail, e);
        let one = self.f(1.0);
        let far = self.sub(one, tail);
        let is_near = self.less(a, 1.0);
        let value = self.b.select(is_near, near, far);
        self.odd(x, value, slope)
    }

    /// sin of x and `more` quarter turns.
    fn sine(&mut self, x: ValueId, more: i64) -> ValueId {
        let size = self.abs(x);
        let (n, high, low) = self.quarters(size);
        let (n_far, high_far, low_far) = self.far_quarters(size);
        let near = self.less(size, LARGE);
        let n = self.b.select(near, n, n_far);
        let r = self.b.select(near, high, high_far);
        let low = self.b.select(near, low, low_far);

        let one = self.f(1.0);
        let half = self.f(0.5);
        let z = self.mul(r, r);
        let half_z = self.mul(z, half);
        let alternating = |k: u32, first: u32| {
            let sign = if ((k - first) / 2).is_multiple_of(2) {
                1.0
            } else {
                -1.0
            };
            sign / factorial(k)
        };
        // r − r³/6 + r⁵/120 …, and the low part's share, low·cos r.
        let series: Vec<f64> = (3..=19).step_by(2).map(|k| -alternating(k, 3)).collect();
        let sine = self.polynomial(z, &series);
        let cube = self.mul(z, r);
        let share = self.neg(half_z);
        let share = self.fma(share, low, low);
        let sine = self.fma(cube, sine, share);
        let sine = self.add(r, sine);
        // 1 − r²/2 + r⁴/24 …, less low·sin r.
        let series: Vec<f64> = (4..=18).step_by(2).map(|k| alternating(k, 4)).collect();
        let cosine = self.polynomial(z, &series);
        let fourth = self.mul(z, z);
        let share = self.mul(r, low);
        let share = self.neg(share);
        let cosine = self.fma(fourth, cosine, share);
        let whole = self.sub(one, half_z);
        let lost = self.sub(one, whole);
        let lost = self.sub(lost, half_z);
        let cosine = self.add(lost, cosine);
        let cosine = self.add(whole, cosine);

        let turned = self.i(more);
        let n = self.add(n, turned);
        let zero = self.i(0);
        let odd = self.and(n, 1);
        let even = self.b.compare(CompareOp::Eq, odd, zero);
        let value = self.b.select(even, sine, cosine);
        let second = self.and(n, 2);
        let upper = self.b.compare(CompareOp::Eq, second, zero);
        let minus = self.neg(value);
        let value = self.b.select(upper, value, minus);
        let finite = self.less(size, f64::INFINITY);
        let nan = self.f(f64::NAN);
        let value = self.b.select(finite, value, nan);
        if more == 0 {
            self.odd(x, value, one)
        } else {
            value
        }
    }

    /// `x`, from 0 to [`LARGE`], as quarter turns and a rest of high and low part. The first product and difference are
    /// exact in one `fma`.
    fn quarters(&mut self, x: ValueId) -> (ValueId, ValueId, ValueId) {
        let bounded = self.clamp(x, LARGE);
        let scale = self.f(std::f64::consts::FRAC_2_PI);
        let turns = self.mul(bounded, scale);
        let n = self.b.unary(UnaryOp::Round, turns);
        let back = self.neg(n);
        let [first, second, third] = HALF_PI.map(|part| self.f(part));
        let rest = self.fma(back, first, bounded);
        let high = self.fma(back, second, rest);
        let taken = self.sub(rest, high);
        let low = self.fma(back, second, taken);
        let low = self.fma(back, third, low);
        (self.b.cast(n, DType::I64), high, low)
    }

    /// The same for `x` from [`LARGE`] on. x is a whole number of 53 bits times 2ᵏ; of 2/π·2ᵏ only the 128 bits below 4
    /// matter, whole multiples of 4 being whole turns.
    fn far_quarters(&mut self, x: ValueId) -> (ValueId, ValueId, ValueId) {
        let bits = self.b.bitcast(x, DType::U64);
        let exponent = self.shr(bits, 52);
        let m = self.and(bits, (1 << 52) - 1);
        let hidden = self.u(1 << 52);
        let m = self.b.binary(BinaryOp::Or, m, hidden);
        // Where the 128 bits begin; 64 zeros stand in front. k = exponent − 1075.
        let from = self.u(1075 - 62);
        let least = self.u(LARGE.to_bits() >> 52);
        let most = self.u(2046);
        let exponent = self.b.binary(BinaryOp::Max, exponent, least);
        let exponent = self.b.binary(BinaryOp::Min, exponent, most);
        let start = self.sub(exponent, from);
        let mut words: Vec<ValueId> = TWO_OVER_PI.iter().map(|&w| self.u(w)).collect();
        let zero = self.u(0);
        // The word number is start/64, from 0 to 16: its bits halve what is left to choose from.
        for (step, left) in [(16, 18), (8, 10), (4, 6), (2, 4), (1, 3)] {
            let bit = self.and(start, 64 * step as u64);
            let stay = self.b.compare(CompareOp::Eq, bit, zero);
            words = (0..left.min(words.len()))
                .map(|i| match words.get(i + step) {
                    Some(&later) => self.b.select(stay, words[i], later),
                    None => words[i],
                })
                .collect();
        }
        let shift = self.and(start, 63);
        let all = self.u(63);
        let counter = self.sub(all, shift);
        let window = |this: &mut Self, i: usize| {
            let upper = this.b.binary(BinaryOp::Shl, words[i], shift);
            let lower = this.shr(words[i + 1], 1);
            let lower = this.b.binary(BinaryOp::Shr, lower, counter);
            this.b.binary(BinaryOp::Or, upper, lower)
        };
        let (upper, lower) = (window(self, 0), window(self, 1));
        let product = self.mul(m, upper);
        let carried = self.b.binary(BinaryOp::MulHi, m, lower);
        // Two bits of quarter turns, and 62 of their fraction.
        let product = self.add(product, carried);
        let round = self.u(1 << 61);
        let n = self.add(product, round);
        let n = self.shr(n, 62);
        let n = self.b.bitcast(n, DType::I64);
        let product = self.b.bitcast(product, DType::I64);
        let fraction = self.shl(product, 2);
        let fraction = self.shr(fraction, 2);
        let value = self.b.cast(fraction, DType::F64);
        let back = self.b.cast(value, DType::I64);
        let lost = self.sub(fraction, back);
        let lost = self.b.cast(lost, DType::F64);
        let unit = self.f(HALF_PI[0] * FRACTION);
        let unit_low = self.f(HALF_PI[1] * FRACTION);
        let high = self.mul(value, unit);
        let minus = self.neg(high);
        let low = self.fma(value, unit, minus);
        let low = self.fma(value, unit_low, low);
        let low = self.fma(lost, unit, low);
        (n, high, low)
    }
}
