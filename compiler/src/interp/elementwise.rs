//! Arithmetic: what each operation gives, element by element, and reductions.
//!
//! Operations on floats are computed in f64 and rounded: for f32 one rounding of `+ - * / sqrt` in f64 and one to f32
//! give what f32 arithmetic gives, because f64 has more than twice its bits. Narrow types round the f32 result once
//! more, as the language says. Functions like `exp` round once from f64.

use tesserine_set::DType;

use super::{floats, value::Data};
use crate::ir::tile::{BinaryOp, CompareOp, ReduceOp, UnaryOp};

/// An integer was divided by zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DivisionByZero;

/// Rounds results of f32 arithmetic (of f64 arithmetic if `ty` is f64).
fn round_arithmetic(ty: DType, mut values: Vec<f64>) -> Data {
    match ty {
        DType::F64 => {}
        DType::F32 | DType::Tf32 => values.iter_mut().for_each(|v| *v = f64::from(*v as f32)),
        _ => values
            .iter_mut()
            .for_each(|v| *v = floats::round_to(ty, f64::from(*v as f32))),
    }
    Data::Float(values)
}

pub(super) fn round_once(ty: DType, mut values: Vec<f64>) -> Data {
    if ty != DType::F64 {
        values
            .iter_mut()
            .for_each(|v| *v = floats::round_to(ty, *v));
    }
    Data::Float(values)
}

fn map<T: Copy, U>(a: &[T], f: impl Fn(T) -> U) -> Vec<U> {
    a.iter().map(|&x| f(x)).collect()
}

fn zip<T: Copy, U>(a: &[T], b: &[T], f: impl Fn(T, T) -> U) -> Vec<U> {
    a.iter().zip(b).map(|(&x, &y)| f(x, y)).collect()
}

/// For values that the verifier keeps from meeting.
pub(super) fn mismatch() -> ! {
    panic!("an operation met elements of another kind than its types say")
}

pub(super) fn unary(op: UnaryOp, ty: DType, a: &Data) -> Data {
    match a {
        Data::Float(a) => match op {
            UnaryOp::Neg => round_once(ty, map(a, |x| -x)),
            UnaryOp::Abs => round_once(ty, map(a, f64::abs)),
            UnaryOp::Sqrt => round_arithmetic(ty, map(a, f64::sqrt)),
            UnaryOp::Rcp => round_arithmetic(ty, map(a, |x| 1.0 / x)),
            UnaryOp::Floor => round_once(ty, map(a, f64::floor)),
            UnaryOp::Ceil => round_once(ty, map(a, f64::ceil)),
            UnaryOp::Round => round_once(ty, map(a, f64::round_ties_even)),
            UnaryOp::Exp => round_once(ty, map(a, f64::exp)),
            UnaryOp::Exp2 => round_once(ty, map(a, f64::exp2)),
            UnaryOp::Log => round_once(ty, map(a, f64::ln)),
            UnaryOp::Log2 => round_once(ty, map(a, f64::log2)),
            UnaryOp::Rsqrt => round_once(ty, map(a, |x| 1.0 / x.sqrt())),
            UnaryOp::Tanh => round_once(ty, map(a, f64::tanh)),
            UnaryOp::Erf => round_once(ty, map(a, erf)),
            UnaryOp::Sigmoid => round_once(ty, map(a, sigmoid)),
            UnaryOp::Sin => round_once(ty, map(a, f64::sin)),
            UnaryOp::Cos => round_once(ty, map(a, f64::cos)),
            UnaryOp::Not | UnaryOp::Popcount | UnaryOp::Clz => mismatch(),
        },
        Data::Int(a) => {
            let unused = 64 - ty.bits();
            // The bits of the type, without the copies of the sign above them.
            let bits = |x: i64| (x as u64) << unused >> unused;
            let wrap = |x| floats::wrap(ty, x);
            Data::Int(match op {
                UnaryOp::Neg => map(a, |x| wrap(x.wrapping_neg())),
                UnaryOp::Abs if ty.is_signed() => map(a, |x| wrap(x.wrapping_abs())),
                UnaryOp::Abs => a.clone(),
                UnaryOp::Not => map(a, |x| wrap(!x)),
                UnaryOp::Popcount => map(a, |x| wrap(i64::from(bits(x).count_ones()))),
                UnaryOp::Clz => map(a, |x| wrap(i64::from(bits(x).leading_zeros() - unused))),
                _ => mismatch(),
            })
        }
        Data::Bool(a) => match op {
            UnaryOp::Not => Data::Bool(map(a, |x| !x)),
            _ => mismatch(),
        },
    }
}

/// `max`, which prefers the number over a NaN, and +0 over −0.
pub(super) fn max(a: f64, b: f64) -> f64 {
    if a > b || b.is_nan() || a == b && b.is_sign_negative() {
        a
    } else {
        b
    }
}

fn min(a: f64, b: f64) -> f64 {
    -max(-a, -b)
}

/// With the sign of the divisor, as Python's `%`.
pub(crate) fn floored_rem(a: f64, b: f64) -> f64 {
    let r = a % b;
    if r != 0.0 && (r < 0.0) != (b < 0.0) {
        r + b
    } else {
        r
    }
}

fn sigmoid(x: f64) -> f64 {
    if x >= 0.0 {
        1.0 / (1.0 + (-x).exp())
    } else {
        let e = x.exp();
        e / (1.0 + e)
    }
}

/// The error function, within a few units of f64's last place.
fn erf(x: f64) -> f64 {
    use std::f64::consts::FRAC_2_SQRT_PI;
    if x.is_nan() {
        return x;
    }
    let a = x.abs();
    let result = if a < 2.0 {
        // 2/√π · e^(−a²) · Σ 2ⁿ a^(2n+1) / (2n+1)!!, all terms positive.
        let mut term = a;
        let mut sum = a;
        let mut n = 1.0;
        while term > sum * 1e-18 {
            term *= 2.0 * a * a / (2.0 * n + 1.0);
            sum += term;
            n += 1.0;
        }
        FRAC_2_SQRT_PI * (-a * a).exp() * sum
    } else if a < 6.5 {
        // 1 − erfc, by the continued fraction e^(−a²)/√π · 1/(a + ½/(a + 1/(a + 1½/(a + …)))), from its end.
        let mut tail = a;
        for n in (1..=60).rev() {
            tail = a + f64::from(n) / 2.0 / tail;
        }
        1.0 - FRAC_2_SQRT_PI / 2.0 * (-a * a).exp() / tail
    } else {
        1.0
    };
    result.copysign(x)
}

pub(super) fn binary(op: BinaryOp, ty: DType, a: &Data, b: &Data) -> Result<Data, DivisionByZero> {
    Ok(match (a, b) {
        (Data::Float(a), Data::Float(b)) => match op {
            BinaryOp::Add => round_arithmetic(ty, zip(a, b, |x, y| x + y)),
            BinaryOp::Sub => round_arithmetic(ty, zip(a, b, |x, y| x - y)),
            BinaryOp::Mul | BinaryOp::MulExact => round_arithmetic(ty, zip(a, b, |x, y| x * y)),
            BinaryOp::Div => round_arithmetic(ty, zip(a, b, |x, y| x / y)),
            BinaryOp::Rem => round_arithmetic(ty, zip(a, b, floored_rem)),
            BinaryOp::Min => Data::Float(zip(a, b, min)),
            BinaryOp::Max => Data::Float(zip(a, b, max)),
            _ => mismatch(),
        },
        (Data::Int(a), Data::Int(b)) => Data::Int(integers(op, ty, a, b)?),
        (Data::Bool(a), Data::Bool(b)) => Data::Bool(match op {
            BinaryOp::And => zip(a, b, |x, y| x & y),
            BinaryOp::Or => zip(a, b, |x, y| x | y),
            BinaryOp::Xor => zip(a, b, |x, y| x ^ y),
            _ => mismatch(),
        }),
        _ => mismatch(),
    })
}

/// Orders as the type's values are ordered.
pub(super) fn key(ty: DType, value: i64) -> i64 {
    if ty == DType::U64 {
        value ^ i64::MIN
    } else {
        value
    }
}

/// The number that an integer element is.
fn number(ty: DType, value: i64) -> i128 {
    if ty == DType::U64 {
        i128::from(value as u64)
    } else {
        i128::from(value)
    }
}

fn integers(op: BinaryOp, ty: DType, a: &[i64], b: &[i64]) -> Result<Vec<i64>, DivisionByZero> {
    let wrap = |x: i64| floats::wrap(ty, x);
    let number = |x: i64| number(ty, x);
    let shift = |y: i64| (0..i64::from(ty.bits())).contains(&y).then_some(y as u32);
    let divides = matches!(op, BinaryOp::Div | BinaryOp::Rem);
    if divides && b.contains(&0) {
        return Err(DivisionByZero);
    }
    Ok(match op {
        BinaryOp::Add => zip(a, b, |x, y| wrap(x.wrapping_add(y))),
        BinaryOp::Sub => zip(a, b, |x, y| wrap(x.wrapping_sub(y))),
        BinaryOp::Mul | BinaryOp::MulExact => zip(a, b, |x, y| wrap(x.wrapping_mul(y))),
        BinaryOp::MulHi => zip(a, b, |x, y| {
            wrap((number(x).wrapping_mul(number(y)) >> ty.bits()) as i64)
        }),
        BinaryOp::Div => zip(a, b, |x, y| {
            let (x, y) = (number(x), number(y));
            let inexact_negative = x % y != 0 && (x < 0) != (y < 0);
            wrap((x / y - i128::from(inexact_negative)) as i64)
        }),
        BinaryOp::Rem => zip(a, b, |x, y| {
            let (x, y) = (number(x), number(y));
            let r = x % y;
            let other_sign = r != 0 && (r < 0) != (y < 0);
            wrap((if other_sign { r + y } else { r }) as i64)
        }),
        BinaryOp::Min => zip(a, b, |x, y| if key(ty, y) < key(ty, x) { y } else { x }),
        BinaryOp::Max => zip(a, b, |x, y| if key(ty, y) > key(ty, x) { y } else { x }),
        BinaryOp::And => zip(a, b, |x, y| x & y),
        BinaryOp::Or => zip(a, b, |x, y| x | y),
        BinaryOp::Xor => zip(a, b, |x, y| x ^ y),
        BinaryOp::Shl => zip(a, b, |x, y| shift(y).map_or(0, |y| wrap(x << y))),
        BinaryOp::Shr => zip(a, b, |x, y| match shift(y) {
            Some(y) if ty == DType::U64 => (x as u64 >> y) as i64,
            Some(y) => x >> y,
            None if ty.is_signed() && x < 0 => -1,
            None => 0,
        }),
    })
}

pub(super) fn compare(op: CompareOp, ty: DType, a: &Data, b: &Data) -> Data {
    fn all<T: Copy + PartialOrd>(op: CompareOp, a: &[T], b: &[T]) -> Vec<bool> {
        match op {
            CompareOp::Eq => zip(a, b, |x, y| x == y),
            // Of two numbers: a comparison with NaN is false, this one too.
            #[allow(clippy::double_comparisons)]
            CompareOp::Ne => zip(a, b, |x, y| x < y || x > y),
            CompareOp::Lt => zip(a, b, |x, y| x < y),
            CompareOp::Le => zip(a, b, |x, y| x <= y),
            CompareOp::Gt => zip(a, b, |x, y| x > y),
            CompareOp::Ge => zip(a, b, |x, y| x >= y),
        }
    }
    Data::Bool(match (a, b) {
        (Data::Float(a), Data::Float(b)) => all(op, a, b),
        (Data::Int(a), Data::Int(b)) if ty == DType::U64 => {
            let keys = |v: &[i64]| map(v, |x| key(ty, x));
            all(op, &keys(a), &keys(b))
        }
        (Data::Int(a), Data::Int(b)) => all(op, a, b),
        (Data::Bool(a), Data::Bool(b)) => all(op, a, b),
        _ => mismatch(),
    })
}

pub(super) fn fma(ty: DType, a: &Data, b: &Data, c: &Data) -> Data {
    let (Data::Float(a), Data::Float(b), Data::Float(c)) = (a, b, c) else {
        mismatch()
    };
    let terms = a.iter().zip(b).zip(c);
    if ty == DType::F64 {
        return Data::Float(terms.map(|((x, y), z)| x.mul_add(*y, *z)).collect());
    }
    let single =
        |((x, y), z): ((&f64, &f64), &f64)| f64::from((*x as f32).mul_add(*y as f32, *z as f32));
    round_once(ty, terms.map(single).collect())
}

/// `acc` of `ty` plus the products of `a […, M, K]` and `b […, K, N]`, `inner` being `[K, N]`: floats are summed in f64 and
/// rounded once.
pub(super) fn dot(ty: DType, a: &Data, b: &Data, acc: &Data, inner: [usize; 2]) -> Data {
    match (a, b, acc) {
        (Data::Float(a), Data::Float(b), Data::Float(acc)) => {
            round_once(ty, products(a, b, acc, inner, |sum, x, y| sum + x * y))
        }
        (Data::Int(a), Data::Int(b), Data::Int(acc)) => {
            Data::Int(products(a, b, acc, inner, |sum, x, y| {
                floats::wrap(ty, sum.wrapping_add(x * y))
            }))
        }
        _ => mismatch(),
    }
}

fn products<T: Copy>(
    a: &[T],
    b: &[T],
    acc: &[T],
    [k, n]: [usize; 2],
    add: impl Fn(T, T, T) -> T,
) -> Vec<T> {
    let mut sums = acc.to_vec();
    let batches = b.len() / (k * n);
    let matrices = a.chunks(a.len() / batches).zip(b.chunks(k * n));
    for ((a, b), out) in matrices.zip(sums.chunks_mut(acc.len() / batches)) {
        for (row, out) in a.chunks(k).zip(out.chunks_mut(n)) {
            for (&x, terms) in row.iter().zip(b.chunks(n)) {
                out.iter_mut()
                    .zip(terms)
                    .for_each(|(sum, &y)| *sum = add(*sum, x, y));
            }
        }
    }
    sums
}

pub(super) fn select(cond: &Data, a: &Data, b: &Data) -> Data {
    fn pick<T: Copy>(cond: &[bool], a: &[T], b: &[T]) -> Vec<T> {
        let sides = a.iter().zip(b);
        cond.iter()
            .zip(sides)
            .map(|(&c, (&x, &y))| if c { x } else { y })
            .collect()
    }
    let Data::Bool(cond) = cond else { mismatch() };
    match (a, b) {
        (Data::Float(a), Data::Float(b)) => Data::Float(pick(cond, a, b)),
        (Data::Int(a), Data::Int(b)) => Data::Int(pick(cond, a, b)),
        (Data::Bool(a), Data::Bool(b)) => Data::Bool(pick(cond, a, b)),
        _ => mismatch(),
    }
}

pub(super) fn cast(from: DType, to: DType, a: &Data) -> Data {
    if to.is_float() {
        match a {
            Data::Float(a) => round_once(to, a.clone()),
            Data::Int(a) => Data::Float(map(a, |x| floats::from_int(to, number(from, x)))),
            Data::Bool(a) => Data::Float(map(a, |x| floats::from_int(to, x.into()))),
        }
    } else if to.is_int() {
        Data::Int(match a {
            Data::Float(a) => map(a, |x| floats::to_int(to, x)),
            Data::Int(a) => map(a, |x| floats::wrap(to, x)),
            Data::Bool(a) => map(a, |x| x.into()),
        })
    } else {
        Data::Bool(match a {
            Data::Float(a) => map(a, |x| x != 0.0),
            Data::Int(a) => map(a, |x| x != 0),
            Data::Bool(a) => a.clone(),
        })
    }
}

pub(super) fn bitcast(from: DType, to: DType, a: &Data) -> Data {
    Data::from_codes(to, (0..a.len()).map(|i| a.code(i, from)))
}

/// Reduces the middle one of three dimensions `outer × axis × inner`. `result` is the element type of the result.
pub(super) fn reduce(
    op: ReduceOp,
    ty: DType,
    result: DType,
    a: &Data,
    axis: usize,
    inner: usize,
) -> Data {
    match (op, a) {
        (ReduceOp::Any, Data::Bool(a)) => Data::Bool(fold(a, axis, inner, |x, y| x | y)),
        (ReduceOp::All, Data::Bool(a)) => Data::Bool(fold(a, axis, inner, |x, y| x & y)),
        (ReduceOp::Sum, Data::Bool(a)) => {
            let ones = map(a, i64::from);
            Data::Int(fold(&ones, axis, inner, |x, y| x + y))
        }
        (ReduceOp::Sum, Data::Float(a)) => round_once(result, fold(a, axis, inner, |x, y| x + y)),
        (ReduceOp::Sum, Data::Int(a)) => Data::Int(fold(a, axis, inner, |x, y| {
            floats::wrap(ty, x.wrapping_add(y))
        })),
        (ReduceOp::Max, Data::Float(a)) => Data::Float(fold(a, axis, inner, max)),
        (ReduceOp::Min, Data::Float(a)) => Data::Float(fold(a, axis, inner, min)),
        (ReduceOp::Max, Data::Int(a)) => Data::Int(fold(a, axis, inner, |x, y| {
            if key(ty, y) > key(ty, x) { y } else { x }
        })),
        (ReduceOp::Min, Data::Int(a)) => Data::Int(fold(a, axis, inner, |x, y| {
            if key(ty, y) < key(ty, x) { y } else { x }
        })),
        (ReduceOp::ArgMax, Data::Float(a)) => Data::Int(arg(a, axis, inner, |best, x| {
            x > best || best.is_nan() && !x.is_nan()
        })),
        (ReduceOp::ArgMin, Data::Float(a)) => Data::Int(arg(a, axis, inner, |best, x| {
            x < best || best.is_nan() && !x.is_nan()
        })),
        (ReduceOp::ArgMax, Data::Int(a)) => {
            Data::Int(arg(a, axis, inner, |best, x| key(ty, x) > key(ty, best)))
        }
        (ReduceOp::ArgMin, Data::Int(a)) => {
            Data::Int(arg(a, axis, inner, |best, x| key(ty, x) < key(ty, best)))
        }
        _ => mismatch(),
    }
}

/// In order of the axis, starting from its first element.
fn fold<T: Copy>(a: &[T], axis: usize, inner: usize, f: impl Fn(T, T) -> T) -> Vec<T> {
    let mut out = Vec::with_capacity(a.len() / axis);
    for slab in a.chunks_exact(axis * inner) {
        let start = out.len();
        out.extend_from_slice(&slab[..inner]);
        if inner == 1 {
            out[start] = slab[1..].iter().fold(slab[0], |x, &y| f(x, y));
            continue;
        }
        for row in slab[inner..].chunks_exact(inner) {
            for (x, &y) in out[start..].iter_mut().zip(row) {
                *x = f(*x, y);
            }
        }
    }
    out
}

/// The first index along the axis that no later element `beats`.
fn arg<T: Copy>(
    a: &[T],
    axis: usize,
    inner: usize,
    beats: impl Fn(/* best */ T, /* other */ T) -> bool,
) -> Vec<i64> {
    let mut out = Vec::with_capacity(a.len() / axis);
    for slab in a.chunks_exact(axis * inner) {
        for i in 0..inner {
            let mut best = 0;
            for j in 1..axis {
                if beats(slab[best * inner + i], slab[j * inner + i]) {
                    best = j;
                }
            }
            out.push(best as i64);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f64]) -> Data {
        Data::Float(values.to_vec())
    }

    fn ints(values: &[i64]) -> Data {
        Data::Int(values.to_vec())
    }

    #[test]
    fn erf_is_exact_to_f64() {
        // From tables of 20 digits.
        for (x, expected) in [
            (0.0, 0.0),
            (0.1, 0.112_462_916_018_284_9),
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (1.9, 0.992_790_429_235_257_5),
            (2.0, 0.995_322_265_018_952_7),
            (2.5, 0.999_593_047_982_555),
            (3.0, 0.999_977_909_503_001_4),
            (5.0, 0.999_999_999_998_462_5),
            (9.0, 1.0),
        ] {
            assert!((erf(x) - expected).abs() < 4e-16, "erf({x}) = {}", erf(x));
            assert_eq!(erf(-x), -erf(x));
        }
        assert!(erf(f64::NAN).is_nan());
    }

    #[test]
    fn f32_arithmetic_is_that_of_f32() {
        let mut state = 1u64;
        let mut random = || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            f32::from_bits((state >> 32) as u32)
        };
        for _ in 0..20_000 {
            let (x, y) = (random(), random());
            let (a, b) = (floats(&[x.into()]), floats(&[y.into()]));
            for (op, expected) in [
                (BinaryOp::Add, x + y),
                (BinaryOp::Sub, x - y),
                (BinaryOp::Mul, x * y),
                (BinaryOp::Div, x / y),
            ] {
                let Ok(Data::Float(found)) = binary(op, DType::F32, &a, &b) else {
                    panic!("{op:?} of floats gives floats")
                };
                assert!(
                    found[0] == f64::from(expected) || found[0].is_nan() && expected.is_nan(),
                    "{x:e} {op:?} {y:e}"
                );
            }
        }
    }

    #[test]
    fn integers_divide_down_and_wrap() {
        let div = |ty, a, b| binary(BinaryOp::Div, ty, &ints(&[a]), &ints(&[b])).unwrap();
        let rem = |ty, a, b| binary(BinaryOp::Rem, ty, &ints(&[a]), &ints(&[b])).unwrap();
        assert_eq!(div(DType::I32, -7, 2), ints(&[-4]));
        assert_eq!(rem(DType::I32, -7, 2), ints(&[1]));
        assert_eq!(rem(DType::I32, 7, -2), ints(&[-1]));
        assert_eq!(div(DType::I8, -128, -1), ints(&[-128]));
        assert_eq!(div(DType::I64, i64::MIN, -1), ints(&[i64::MIN]));
        assert_eq!(div(DType::U64, -1, 2), ints(&[i64::MAX]));
        assert!(binary(BinaryOp::Div, DType::I32, &ints(&[1]), &ints(&[0])).is_err());
        let add = binary(BinaryOp::Add, DType::U8, &ints(&[250]), &ints(&[10])).unwrap();
        assert_eq!(add, ints(&[4]));
    }

    #[test]
    fn shifts_by_the_width_or_more() {
        let op = |op, ty, a, b| binary(op, ty, &ints(&[a]), &ints(&[b])).unwrap();
        assert_eq!(op(BinaryOp::Shl, DType::I32, 1, 32), ints(&[0]));
        assert_eq!(
            op(BinaryOp::Shl, DType::I32, 1, 31),
            ints(&[i32::MIN.into()])
        );
        assert_eq!(op(BinaryOp::Shr, DType::I32, -5, 40), ints(&[-1]));
        assert_eq!(op(BinaryOp::Shr, DType::U32, 5, 40), ints(&[0]));
        assert_eq!(op(BinaryOp::Shr, DType::U64, -1, 63), ints(&[1]));
        assert_eq!(op(BinaryOp::MulHi, DType::U64, -1, -1), ints(&[-2]));
        assert_eq!(op(BinaryOp::MulHi, DType::I32, -1, 2), ints(&[-1]));
    }

    #[test]
    fn bits_of_narrow_integers() {
        assert_eq!(
            unary(UnaryOp::Popcount, DType::I8, &ints(&[-1])),
            ints(&[8])
        );
        assert_eq!(unary(UnaryOp::Clz, DType::I16, &ints(&[1])), ints(&[15]));
        assert_eq!(unary(UnaryOp::Clz, DType::U64, &ints(&[-1])), ints(&[0]));
        assert_eq!(unary(UnaryOp::Not, DType::U8, &ints(&[0])), ints(&[255]));
        assert_eq!(
            unary(UnaryOp::Abs, DType::I8, &ints(&[-128])),
            ints(&[-128])
        );
    }

    #[test]
    fn nan_in_max_comparisons_and_argmax() {
        let nan = f64::NAN;
        let (a, b) = (floats(&[nan, 1.0, -0.0]), floats(&[2.0, nan, 0.0]));
        assert_eq!(
            binary(BinaryOp::Max, DType::F32, &a, &b),
            Ok(floats(&[2.0, 1.0, 0.0]))
        );
        assert_eq!(
            binary(BinaryOp::Min, DType::F32, &a, &b),
            Ok(floats(&[2.0, 1.0, -0.0]))
        );
        for op in CompareOp::ALL {
            assert_eq!(
                compare(op, DType::F32, &floats(&[nan]), &floats(&[1.0])),
                Data::Bool(vec![false]),
                "{op:?}"
            );
        }
        let x = floats(&[nan, 3.0, 5.0, 5.0]);
        let of = |op| reduce(op, DType::F32, DType::I32, &x, 4, 1);
        assert_eq!(of(ReduceOp::ArgMax), ints(&[2]));
        assert_eq!(of(ReduceOp::ArgMin), ints(&[1]));
    }

    #[test]
    fn sums_are_rounded_once() {
        let mut values = vec![1e-8; 1 << 12];
        values[0] = 1.0;
        let sum = reduce(
            ReduceOp::Sum,
            DType::F32,
            DType::F32,
            &floats(&values),
            1 << 12,
            1,
        );
        assert_eq!(sum, floats(&[f64::from((1.0 + 4095.0 * 1e-8) as f32)]));
        // Over the middle of [2, 3, 2].
        let x = ints(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(
            reduce(ReduceOp::Sum, DType::I32, DType::I32, &x, 3, 2),
            ints(&[9, 12, 27, 30])
        );
    }

    #[test]
    fn products_are_summed_and_rounded_once() {
        // [[1, 2], [3, 4], [5, 6]] times [[1, 0, 2, 1], [0, 1, 3, 1e-9]], onto a constant.
        let a = floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let b = floats(&[1.0, 0.0, 2.0, 1.0, 0.0, 1.0, 3.0, 1e-9]);
        let acc = floats(&[10.0; 12]);
        let rows = [
            [11.0, 12.0, 18.0, 11.0],
            [13.0, 14.0, 28.0, 13.0],
            [15.0, 16.0, 38.0, 15.0],
        ];
        assert_eq!(
            dot(DType::F32, &a, &b, &acc, [2, 4]),
            floats(&rows.concat())
        );
        let tiny = floats(&[2f64.powi(-24), 2f64.powi(-24)]);
        let ones = floats(&[1.0, 1.0]);
        let sum = dot(DType::F32, &tiny, &ones, &floats(&[1.0]), [2, 1]);
        assert_eq!(sum, floats(&[1.0 + 2f64.powi(-23)]));
    }

    #[test]
    fn fma_rounds_once() {
        let (a, b, c) = (1.0 + 2f64.powi(-23), 1.0 - 2f64.powi(-23), -1.0);
        let x = fma(DType::F32, &floats(&[a]), &floats(&[b]), &floats(&[c]));
        assert_eq!(x, floats(&[-(2f64.powi(-46))]));
    }
}
