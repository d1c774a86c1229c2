//! Arithmetic in f16 and bf16, scalar and in pairs (PTX ISA §9.7.4).

use crate::{
    exact::{Rounding, bf16_of, f16_of, flush16, fused, sum, to_bf16, to_f16, zero_sign},
    kind::{BF16, BF16X2, Bound, F16, F16X2, Operand},
    snippet::{SM_75, SM_80, SM_86, SM_90, Since, Snippet},
};

const FAMILY: &str = "half";

/// What an instruction does beside its arithmetic.
#[derive(Clone, Copy, Debug, Default)]
struct Manner {
    ftz: bool,
    sat: bool,
    relu: bool,
}

/// A 16-bit format.
#[derive(Clone, Copy)]
struct Format {
    name: &'static str,
    scalar: Operand,
    pair: Operand,
    value: fn(u64) -> f64,
    round: fn(f64, Rounding) -> u64,
}

const FORMATS: [Format; 2] = [
    Format {
        name: "f16",
        scalar: F16,
        pair: F16X2,
        value: f16_of,
        round: to_f16,
    },
    Format {
        name: "bf16",
        scalar: BF16,
        pair: BF16X2,
        value: bf16_of,
        round: to_bf16,
    },
];

fn apply(format: Format, manner: Manner, x: &[u64], value: fn(&[f64]) -> f64) -> u64 {
    let flush = |v: u64| if manner.ftz { flush16(v) } else { v };
    let values: Vec<f64> = x
        .iter()
        .map(|v| (format.value)(flush(*v & 0xffff)))
        .collect();
    let exact = value(&values);
    // What is tiny when it is rounded as if the exponent had no bound is flushed, as an H200 does; the ISA does not say.
    let far = 1024.0;
    let unbounded = (format.value)((format.round)(exact * far, Rounding::Nearest)).abs() / far;
    let tiny = manner.ftz && exact.abs() < 2f64.powi(-13) && unbounded < 2f64.powi(-14);
    let exact = if tiny { 0f64.copysign(exact) } else { exact };
    let bits = flush((format.round)(exact, Rounding::Nearest));
    let number = (format.value)(bits);
    match manner {
        Manner { sat: true, .. } if number.is_nan() || number <= 0.0 => 0,
        Manner { sat: true, .. } => (format.round)(number.min(1.0), Rounding::Nearest),
        Manner { relu: true, .. } if number < 0.0 || bits == 0x8000 => 0,
        _ => bits,
    }
}

/// The scalar and the packed form.
fn both(
    all: &mut Vec<Snippet>,
    mnemonic: &str,
    format: Format,
    count: usize,
    manner: Manner,
    since: Since,
    value: fn(&[f64]) -> f64,
) {
    let scalar = Snippet::of(
        FAMILY,
        &format!("{mnemonic}.{}", format.name),
        &vec![format.scalar; count],
        format.scalar,
        Bound::Numbers,
    );
    all.push(
        scalar
            .since(since)
            .refer(move |x| apply(format, manner, x, value)),
    );
    let pair = Snippet::of(
        FAMILY,
        &format!("{mnemonic}.{}x2", format.name),
        &vec![format.pair; count],
        format.pair,
        Bound::Numbers,
    );
    all.push(pair.since(since).refer(move |x| {
        let high: Vec<u64> = x.iter().map(|v| v >> 16).collect();
        apply(format, manner, x, value) | apply(format, manner, &high, value) << 16
    }));
}

fn add(x: &[f64]) -> f64 {
    zero_sign(x[0], x[1], sum(x[0], x[1]), Rounding::Nearest)
}

fn sub(x: &[f64]) -> f64 {
    add(&[x[0], -x[1]])
}

fn mul(x: &[f64]) -> f64 {
    x[0] * x[1]
}

fn fma(x: &[f64]) -> f64 {
    fused(x[0], x[1], x[2], Rounding::Nearest)
}

fn extreme(x: &[f64], max: bool, nan: bool) -> f64 {
    match (x[0].is_nan(), x[1].is_nan()) {
        (true, true) => f64::NAN,
        (true, false) | (false, true) if nan => f64::NAN,
        (true, false) => x[1],
        (false, true) => x[0],
        _ if x[0].total_cmp(&x[1]).is_gt() == max => x[0],
        _ => x[1],
    }
}

fn signed_extreme(x: &[f64], max: bool, nan: bool) -> f64 {
    let size = extreme(&[x[0].abs(), x[1].abs()], max, nan);
    match x[0].is_sign_negative() != x[1].is_sign_negative() {
        true => -size,
        false => size,
    }
}

pub fn snippets() -> Vec<Snippet> {
    let mut all = Vec::new();
    for format in FORMATS {
        let f16 = format.name == "f16";
        let plain = Manner::default();
        let ops: [(&str, usize, fn(&[f64]) -> f64); 4] = [
            ("add", 2, add),
            ("sub", 2, sub),
            ("mul", 2, mul),
            ("fma", 3, fma),
        ];
        for (op, count, value) in ops {
            if !f16 {
                let since = if op == "fma" { SM_80 } else { SM_90 };
                both(
                    &mut all,
                    &format!("{op}.rn"),
                    format,
                    count,
                    plain,
                    since,
                    value,
                );
                continue;
            }
            for ftz in [false, true] {
                for sat in [false, true] {
                    let manner = Manner { ftz, sat, ..plain };
                    let f = if ftz { ".ftz" } else { "" };
                    let s = if sat { ".sat" } else { "" };
                    both(
                        &mut all,
                        &format!("{op}.rn{f}{s}"),
                        format,
                        count,
                        manner,
                        SM_75,
                        value,
                    );
                    if op != "fma" {
                        both(
                            &mut all,
                            &format!("{op}{f}{s}"),
                            format,
                            count,
                            manner,
                            SM_75,
                            value,
                        );
                    }
                }
            }
        }
        let relu = Manner {
            relu: true,
            ..plain
        };
        both(&mut all, "fma.rn.relu", format, 3, relu, SM_80, fma);
        if f16 {
            let both_manners = Manner { ftz: true, ..relu };
            both(
                &mut all,
                "fma.rn.ftz.relu",
                format,
                3,
                both_manners,
                SM_80,
                fma,
            );
        }
        signs(&mut all, format);
        for ftz in [false, true] {
            if ftz && !f16 {
                continue;
            }
            let manner = Manner { ftz, ..plain };
            let f = if ftz { ".ftz" } else { "" };
            let ops: [(&str, fn(&[f64]) -> f64, fn(&[f64]) -> f64); 4] = [
                (
                    "min",
                    |x| extreme(x, false, false),
                    |x| signed_extreme(x, false, false),
                ),
                (
                    "max",
                    |x| extreme(x, true, false),
                    |x| signed_extreme(x, true, false),
                ),
                (
                    "min.NaN",
                    |x| extreme(x, false, true),
                    |x| signed_extreme(x, false, true),
                ),
                (
                    "max.NaN",
                    |x| extreme(x, true, true),
                    |x| signed_extreme(x, true, true),
                ),
            ];
            for (op, value, signed) in ops {
                let (op, nan) = op
                    .split_once('.')
                    .map_or((op, String::new()), |(op, n)| (op, format!(".{n}")));
                both(
                    &mut all,
                    &format!("{op}{f}{nan}"),
                    format,
                    2,
                    manner,
                    SM_80,
                    value,
                );
                both(
                    &mut all,
                    &format!("{op}{f}{nan}.xorsign.abs"),
                    format,
                    2,
                    manner,
                    SM_86,
                    signed,
                );
            }
        }
    }
    all
}

fn signs(all: &mut Vec<Snippet>, format: Format) {
    let since = if format.name == "f16" { SM_75 } else { SM_80 };
    let flushes: &[&str] = if format.name == "f16" {
        &["", ".ftz"]
    } else {
        &[""]
    };
    for f in flushes {
        let ftz = !f.is_empty();
        let flush = move |v: u64| if ftz { flush16(v) } else { v };
        for (suffix, of) in [("", format.scalar), ("x2", format.pair)] {
            let name = format.name;
            let lanes = move |x: u64, op: fn(u64) -> u64| {
                let high = match suffix {
                    "" => 0,
                    _ => op(flush(x >> 16)) << 16,
                };
                op(flush(x & 0xffff)) | high
            };
            all.push(
                Snippet::of(
                    FAMILY,
                    &format!("neg{f}.{name}{suffix}"),
                    &[of],
                    of,
                    Bound::Numbers,
                )
                .since(since)
                .refer(move |x| lanes(x[0], |v| v ^ 0x8000)),
            );
            all.push(
                Snippet::of(
                    FAMILY,
                    &format!("abs{f}.{name}{suffix}"),
                    &[of],
                    of,
                    Bound::Numbers,
                )
                .since(since)
                .refer(move |x| lanes(x[0], |v| v & 0x7fff)),
            );
        }
    }
}
