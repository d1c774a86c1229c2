//! Floating-point arithmetic in f32 and f64 (PTX ISA §9.7.3), and mixed precision (§9.7.5).

use crate::{
    exact::{Rounding, f32_of, flush32, fused, quotient, root, sum, to_f32, zero_sign},
    kind::{BF16, Bound, F16, F32, F32X2, F64, Operand, PRED},
    snippet::{SM_75, SM_80, SM_86, SM_100, Since, Snippet},
};

const FAMILY: &str = "float";
const MIXED: &str = "mixed";

const NUMBERS: Bound = Bound::Numbers;
const NEAREST: Rounding = Rounding::Nearest;

/// Flushes operands and result if `ftz`, and clamps the result to 0 to 1 if `sat`.
fn finish(bits: u64, ftz: bool, sat: bool) -> u64 {
    let bits = if ftz { flush32(bits) } else { bits };
    match sat {
        false => bits,
        true if f32_of(bits).is_nan() || f32_of(bits) <= 0.0 => 0,
        true => to_f32(f32_of(bits).min(1.0), Rounding::Zero),
    }
}

/// An exact result, rounded. What is tiny when it is rounded as if the exponent had no bound is flushed, as an H200 does; the ISA does not say.
fn rounded(exact: f64, rounding: Rounding, ftz: bool) -> u64 {
    const FAR: f64 = 18446744073709551616.0;
    // Far from the subnormal numbers its digits are all there.
    let near = exact.abs() < 2.0 * f64::from(f32::MIN_POSITIVE);
    let unbounded = f32_of(to_f32(exact * FAR, rounding)).abs() / FAR;
    match ftz && near && unbounded < f64::from(f32::MIN_POSITIVE) {
        true => to_f32(0f64.copysign(exact), rounding),
        false => to_f32(exact, rounding),
    }
}

/// An f32 instruction with a reference in exact arithmetic.
fn single(
    mnemonic: String,
    count: usize,
    (ftz, sat): (bool, bool),
    rounding: Rounding,
    value: impl Fn(&[f64]) -> f64 + Send + Sync + 'static,
) -> Snippet {
    Snippet::of(FAMILY, &mnemonic, &vec![F32; count], F32, NUMBERS).refer(move |x| {
        let flush = |v: &u64| f32_of(if ftz { flush32(*v) } else { *v });
        let values: Vec<f64> = x.iter().map(flush).collect();
        finish(rounded(value(&values), rounding, ftz), ftz, sat)
    })
}

pub fn snippets() -> Vec<Snippet> {
    let mut all = Vec::new();
    single_arithmetic(&mut all);
    double_arithmetic(&mut all);
    signs(&mut all);
    extremes(&mut all);
    mixed(&mut all);
    all
}

fn single_arithmetic(all: &mut Vec<Snippet>) {
    let roundings = Rounding::ALL
        .into_iter()
        .map(|(name, r)| (format!(".{name}"), r));
    let with_default: Vec<(String, Rounding)> = roundings
        .clone()
        .chain([(String::new(), Rounding::Nearest)])
        .collect();
    for ftz in [false, true] {
        let f = if ftz { ".ftz" } else { "" };
        for sat in [false, true] {
            let s = if sat { ".sat" } else { "" };
            for (r, rounding) in with_default.clone() {
                let how = (ftz, sat);
                all.push(single(
                    format!("add{r}{f}{s}.f32"),
                    2,
                    how,
                    rounding,
                    move |x| zero_sign(x[0], x[1], sum(x[0], x[1]), rounding),
                ));
                all.push(single(
                    format!("sub{r}{f}{s}.f32"),
                    2,
                    how,
                    rounding,
                    move |x| zero_sign(x[0], -x[1], sum(x[0], -x[1]), rounding),
                ));
                all.push(single(
                    format!("mul{r}{f}{s}.f32"),
                    2,
                    how,
                    rounding,
                    move |x| x[0] * x[1],
                ));
                // `mad` and `fma` are one instruction; both must name a rounding.
                if r.is_empty() {
                    continue;
                }
                for op in ["fma", "mad"] {
                    all.push(single(
                        format!("{op}{r}{f}{s}.f32"),
                        3,
                        how,
                        rounding,
                        move |x| fused(x[0], x[1], x[2], rounding),
                    ));
                }
            }
        }
        for (r, rounding) in roundings.clone() {
            let how = (ftz, false);
            all.push(single(
                format!("div{r}{f}.f32"),
                2,
                how,
                rounding,
                move |x| quotient(x[0], x[1]),
            ));
            all.push(single(
                format!("rcp{r}{f}.f32"),
                1,
                how,
                rounding,
                move |x| quotient(1.0, x[0]),
            ));
            all.push(single(
                format!("sqrt{r}{f}.f32"),
                1,
                how,
                rounding,
                move |x| root(x[0]),
            ));
        }
    }
    // Operands of one size, whose results need all of their bits.
    for (op, count) in [
        ("add.rn", 2),
        ("mul.rn", 2),
        ("fma.rn", 3),
        ("div.rn", 2),
        ("sqrt.rn", 1),
    ] {
        let operands = vec![F32.near(); count];
        all.push(
            Snippet::of(FAMILY, &format!("{op}.f32, near"), &operands, F32, NUMBERS).refer(
                move |x| {
                    let v: Vec<f64> = x.iter().map(|v| f32_of(*v)).collect();
                    let exact = match op {
                        "add.rn" => zero_sign(v[0], v[1], sum(v[0], v[1]), Rounding::Nearest),
                        "mul.rn" => v[0] * v[1],
                        "fma.rn" => fused(v[0], v[1], v[2], Rounding::Nearest),
                        "div.rn" => quotient(v[0], v[1]),
                        _ => root(v[0]),
                    };
                    to_f32(exact, Rounding::Nearest)
                },
            ),
        );
    }
}

fn double_arithmetic(all: &mut Vec<Snippet>) {
    let number = |v: f64| {
        if v.is_nan() {
            0x7fff_ffff_ffff_ffff
        } else {
            v.to_bits()
        }
    };
    let ops: [(&str, usize, fn(&[f64]) -> f64); 7] = [
        ("add", 2, |x| x[0] + x[1]),
        ("sub", 2, |x| x[0] - x[1]),
        ("mul", 2, |x| x[0] * x[1]),
        ("fma", 3, |x| x[0].mul_add(x[1], x[2])),
        ("div", 2, |x| x[0] / x[1]),
        ("rcp", 1, |x| 1.0 / x[0]),
        ("sqrt", 1, |x| x[0].sqrt()),
    ];
    for (op, count, value) in ops {
        for (r, rounding) in Rounding::ALL {
            for (remark, operand) in [("", F64), (", near", F64.near())] {
                let mnemonic = format!("{op}.{r}.f64{remark}");
                let snippet = Snippet::of(FAMILY, &mnemonic, &vec![operand; count], F64, NUMBERS);
                all.push(match rounding {
                    Rounding::Nearest => snippet.refer(move |x| {
                        let v: Vec<f64> = x.iter().map(|v| f64::from_bits(*v)).collect();
                        number(value(&v))
                    }),
                    _ => snippet,
                });
            }
        }
    }
    for op in ["add", "sub", "mul"] {
        all.push(Snippet::of(
            FAMILY,
            &format!("{op}.f64"),
            &[F64, F64],
            F64,
            NUMBERS,
        ));
    }
    all.push(Snippet::of(FAMILY, "mad.rn.f64", &[F64; 3], F64, NUMBERS));
}

fn signs(all: &mut Vec<Snippet>) {
    for f in ["", ".ftz"] {
        let flush = move |v: u64| if f.is_empty() { v } else { flush32(v) };
        all.push(
            Snippet::of(FAMILY, &format!("neg{f}.f32"), &[F32], F32, NUMBERS)
                .refer(move |x| flush(x[0]) ^ 1 << 31),
        );
        all.push(
            Snippet::of(FAMILY, &format!("abs{f}.f32"), &[F32], F32, NUMBERS)
                .refer(move |x| flush(x[0]) & !(1 << 31)),
        );
    }
    all.push(Snippet::of(FAMILY, "neg.f64", &[F64], F64, NUMBERS).refer(|x| x[0] ^ 1 << 63));
    all.push(Snippet::of(FAMILY, "abs.f64", &[F64], F64, NUMBERS).refer(|x| x[0] & !(1 << 63)));
    // The sign of the first, the rest of the second operand.
    all.push(
        Snippet::of(FAMILY, "copysign.f32", &[F32, F32], F32, NUMBERS)
            .refer(|x| x[1] & !(1 << 31) | x[0] & 1 << 31),
    );
    all.push(
        Snippet::of(FAMILY, "copysign.f64", &[F64, F64], F64, NUMBERS)
            .refer(|x| x[1] & !(1 << 63) | x[0] & 1 << 63),
    );
    let tests: [(&str, fn(f64, bool) -> bool); 6] = [
        ("finite", |v, _| v.is_finite()),
        ("infinite", |v, _| v.is_infinite()),
        ("number", |v, _| !v.is_nan()),
        ("notanumber", |v, _| v.is_nan()),
        // Zeros count as normal.
        ("normal", |v, small| v.is_finite() && (v == 0.0 || !small)),
        ("subnormal", |v, small| v != 0.0 && small),
    ];
    for (name, holds) in tests {
        all.push(
            Snippet::of(
                FAMILY,
                &format!("testp.{name}.f32"),
                &[F32],
                PRED,
                Bound::Bits,
            )
            .refer(move |x| holds(f32_of(x[0]), x[0] & 0x7f80_0000 == 0) as u64),
        );
        all.push(
            Snippet::of(
                FAMILY,
                &format!("testp.{name}.f64"),
                &[F64],
                PRED,
                Bound::Bits,
            )
            .refer(move |x| holds(f64::from_bits(x[0]), x[0] << 1 >> 53 == 0) as u64),
        );
    }
}

/// `min` or `max` of two numbers: -0 is below +0, and a NaN gives way unless it must stay.
fn extreme(max: bool, nan: bool, a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        return match () {
            _ if nan || a.is_nan() && b.is_nan() => f64::NAN,
            _ if a.is_nan() => b,
            _ => a,
        };
    }
    match (a.total_cmp(&b).is_gt()) == max {
        true => a,
        false => b,
    }
}

fn extremes(all: &mut Vec<Snippet>) {
    for (op, max) in [("min", false), ("max", true)] {
        for ftz in [false, true] {
            let f = if ftz { ".ftz" } else { "" };
            for (n, nan) in [("", false), (".NaN", true)] {
                let since = if nan { SM_80 } else { SM_75 };
                all.push(
                    single(
                        format!("{op}{f}{n}.f32"),
                        2,
                        (ftz, false),
                        NEAREST,
                        move |x| extreme(max, nan, x[0], x[1]),
                    )
                    .since(since),
                );
                all.push(
                    single(
                        format!("{op}{f}{n}.xorsign.abs.f32"),
                        2,
                        (ftz, false),
                        NEAREST,
                        move |x| {
                            let size = extreme(max, nan, x[0].abs(), x[1].abs());
                            let negative = x[0].is_sign_negative() != x[1].is_sign_negative();
                            if negative { -size } else { size }
                        },
                    )
                    .since(SM_86),
                );
                all.push(
                    single(
                        format!("{op}{f}{n}.f32, three"),
                        3,
                        (ftz, false),
                        NEAREST,
                        move |x| {
                            let first = extreme(max, nan, x[0], x[1]);
                            extreme(max, nan, first, x[2])
                        },
                    )
                    .since(Since {
                        ptx: (8, 8),
                        ..SM_100
                    }),
                );
            }
        }
        all.push(
            Snippet::of(FAMILY, &format!("{op}.f64"), &[F64, F64], F64, NUMBERS).refer(move |x| {
                let v = extreme(max, false, f64::from_bits(x[0]), f64::from_bits(x[1]));
                if v.is_nan() {
                    0x7fff_ffff_ffff_ffff
                } else {
                    v.to_bits()
                }
            }),
        );
    }
}

/// Of Blackwell: f32 with 16-bit operands, and two f32 in a 64-bit register.
fn mixed(all: &mut Vec<Snippet>) {
    for (name, narrow) in [("f16", F16), ("bf16", BF16)] {
        let widen = move |v: u64| match name {
            "f16" => crate::exact::f16_of(v),
            _ => crate::exact::bf16_of(v),
        };
        for (r, rounding) in Rounding::ALL {
            for (s, sat) in [("", false), (".sat", true)] {
                let of = |op: &str, inputs: &[Operand]| {
                    Snippet::of(
                        MIXED,
                        &format!("{op}.{r}{s}.f32.{name}"),
                        inputs,
                        F32,
                        NUMBERS,
                    )
                    .since(SM_100)
                };
                all.push(of("add", &[narrow, F32]).refer(move |x| {
                    let (a, b) = (widen(x[0]), f32_of(x[1]));
                    finish(
                        to_f32(zero_sign(a, b, sum(a, b), rounding), rounding),
                        false,
                        sat,
                    )
                }));
                all.push(of("sub", &[narrow, F32]).refer(move |x| {
                    let (a, b) = (widen(x[0]), -f32_of(x[1]));
                    finish(
                        to_f32(zero_sign(a, b, sum(a, b), rounding), rounding),
                        false,
                        sat,
                    )
                }));
                all.push(of("fma", &[narrow, narrow, F32]).refer(move |x| {
                    let exact = fused(widen(x[0]), widen(x[1]), f32_of(x[2]), rounding);
                    finish(to_f32(exact, rounding), false, sat)
                }));
            }
        }
    }
    for ftz in [false, true] {
        let f = if ftz { ".ftz" } else { "" };
        for (r, rounding) in Rounding::ALL {
            for (op, count) in [("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)] {
                let snippet = Snippet::of(
                    MIXED,
                    &format!("{op}.{r}{f}.f32x2"),
                    &vec![F32X2; count],
                    F32X2,
                    NUMBERS,
                );
                all.push(snippet.since(SM_100).refer(move |x| {
                    let lane = |shift: u32| {
                        let flush = |v: &u64| {
                            let bits = v >> shift & 0xffff_ffff;
                            f32_of(if ftz { flush32(bits) } else { bits })
                        };
                        let v: Vec<f64> = x.iter().map(flush).collect();
                        let exact = match op {
                            "add" => zero_sign(v[0], v[1], sum(v[0], v[1]), rounding),
                            "sub" => zero_sign(v[0], -v[1], sum(v[0], -v[1]), rounding),
                            "mul" => v[0] * v[1],
                            _ => fused(v[0], v[1], v[2], rounding),
                        };
                        finish(rounded(exact, rounding, ftz), ftz, false)
                    };
                    lane(0) | lane(32) << 32
                }));
            }
        }
    }
}
