//! Comparison and selection (PTX ISA §9.7.6 and §9.7.7: `set`, `setp`, `selp`, `slct`).

use crate::{
    exact::{bf16_of, f16_of, f32_of, flush16, flush32},
    kind::{B16, B32, B64, BF16, BF16X2, Bound, F16, F16X2, F32, F64, Operand, PRED},
    snippet::{SM_75, SM_90, Since, Snippet},
};

const FAMILY: &str = "compare";

/// `lt`, `ltu`, `num`, … of two floats.
fn float_holds(op: &str, a: f64, b: f64) -> bool {
    let unordered = a.is_nan() || b.is_nan();
    match op {
        "eq" => a == b,
        "ne" => !unordered && a != b,
        "lt" => a < b,
        "le" => a <= b,
        "gt" => a > b,
        "ge" => a >= b,
        "equ" => unordered || a == b,
        "neu" => a != b,
        "ltu" => unordered || a < b,
        "leu" => unordered || a <= b,
        "gtu" => unordered || a > b,
        "geu" => unordered || a >= b,
        "num" => !unordered,
        _ => unordered,
    }
}

fn int_holds(op: &str, a: i128, b: i128) -> bool {
    match op {
        "eq" => a == b,
        "ne" => a != b,
        "lt" | "lo" => a < b,
        "le" | "ls" => a <= b,
        "gt" | "hi" => a > b,
        _ => a >= b,
    }
}

const FLOAT_OPS: [&str; 14] = [
    "eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
];

fn read(bits: u64, width: u32, signed: bool) -> i128 {
    let shift = 64 - width;
    match signed {
        true => ((bits << shift) as i64 >> shift) as i128,
        false => (bits << shift >> shift) as i128,
    }
}

pub fn snippets() -> Vec<Snippet> {
    let mut all = Vec::new();
    integers(&mut all);
    floats(&mut all);
    combined(&mut all);
    selection(&mut all);
    all
}

fn integers(all: &mut Vec<Snippet>) {
    let types = [
        ("b16", B16),
        ("u16", B16),
        ("s16", B16),
        ("b32", B32),
        ("u32", B32),
        ("s32", B32),
        ("b64", B64),
        ("u64", B64),
        ("s64", B64),
    ];
    for (name, of) in types {
        let ops: &[&str] = match name.as_bytes()[0] {
            b'b' => &["eq", "ne"],
            b's' => &["eq", "ne", "lt", "le", "gt", "ge"],
            _ => &["eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs"],
        };
        let (width, signed) = (of.width, name.starts_with('s'));
        for &op in ops {
            let holds = move |x: &[u64]| {
                int_holds(op, read(x[0], width, signed), read(x[1], width, signed))
            };
            all.push(
                Snippet::of(
                    FAMILY,
                    &format!("setp.{op}.{name}"),
                    &[of, of],
                    PRED,
                    Bound::Bits,
                )
                .refer(move |x| holds(x) as u64),
            );
            all.push(
                Snippet::of(
                    FAMILY,
                    &format!("set.{op}.u32.{name}"),
                    &[of, of],
                    B32,
                    Bound::Bits,
                )
                .refer(move |x| if holds(x) { 0xffff_ffff } else { 0 }),
            );
            all.push(
                Snippet::of(
                    FAMILY,
                    &format!("set.{op}.f32.{name}"),
                    &[of, of],
                    B32,
                    Bound::Bits,
                )
                .refer(move |x| if holds(x) { 0x3f80_0000 } else { 0 }),
            );
        }
    }
}

fn floats(all: &mut Vec<Snippet>) {
    let plain: fn(u64) -> u64 = |v| v;
    let formats: [(&str, &str, Operand, fn(u64) -> u64, fn(u64) -> f64, Since); 7] = [
        ("", "f32", F32, plain, f32_of, SM_75),
        (".ftz", "f32", F32, flush32, f32_of, SM_75),
        ("", "f64", F64, plain, f64::from_bits, SM_75),
        ("", "f16", F16, plain, f16_of, SM_75),
        (".ftz", "f16", F16, flush16, f16_of, SM_75),
        ("", "bf16", BF16, plain, bf16_of, SM_90),
        ("", "f16x2", F16X2, plain, f16_of, SM_75),
    ];
    for (ftz, name, of, flush, value, since) in formats {
        for op in FLOAT_OPS {
            let at = move |a: u64, b: u64| float_holds(op, value(flush(a)), value(flush(b)));
            if name == "f16x2" {
                for (name, of, value, since) in [
                    ("f16x2", F16X2, f16_of as fn(u64) -> f64, SM_75),
                    ("bf16x2", BF16X2, bf16_of, SM_90),
                ] {
                    let at =
                        move |a: u64, b: u64| float_holds(op, value(a & 0xffff), value(b & 0xffff));
                    all.push(
                        Snippet::new(FAMILY, format!("setp.{op}.{name}"))
                            .since(since)
                            .takes(&[of, of])
                            .gives(PRED, Bound::Bits)
                            .gives(PRED, Bound::Bits)
                            .body(format!("setp.{op}.{name} %o0|%o1, %i0, %i1;"))
                            .refer_all(move |x| {
                                let lane = |shift: u32| {
                                    let pairs = x[0].iter().zip(&x[1]);
                                    pairs
                                        .map(|(a, b)| at(a >> shift, b >> shift) as u64)
                                        .collect()
                                };
                                vec![lane(0), lane(16)]
                            }),
                    );
                    all.push(
                        Snippet::of(
                            FAMILY,
                            &format!("set.{op}.{name}.{name}"),
                            &[of, of],
                            B32,
                            Bound::Bits,
                        )
                        .since(since)
                        .refer(move |x| {
                            let one = if value(0x3f80) == 1.0 { 0x3f80 } else { 0x3c00 };
                            let lane = |s: u32| if at(x[0] >> s, x[1] >> s) { one } else { 0 };
                            lane(0) | lane(16) << 16
                        }),
                    );
                }
                continue;
            }
            all.push(
                Snippet::of(
                    FAMILY,
                    &format!("setp.{op}{ftz}.{name}"),
                    &[of, of],
                    PRED,
                    Bound::Bits,
                )
                .since(since)
                .refer(move |x| at(x[0], x[1]) as u64),
            );
            all.push(
                Snippet::of(
                    FAMILY,
                    &format!("set.{op}{ftz}.u32.{name}"),
                    &[of, of],
                    B32,
                    Bound::Bits,
                )
                .since(since)
                .refer(move |x| if at(x[0], x[1]) { 0xffff_ffff } else { 0 }),
            );
        }
    }
}

/// `setp` with a boolean operator and both results.
fn combined(all: &mut Vec<Snippet>) {
    for (op, of) in [("and", 0), ("or", 1), ("xor", 2)] {
        for negated in [false, true] {
            let not = if negated { "!" } else { "" };
            all.push(
                Snippet::new(FAMILY, format!("setp.lt.{op}.s32, {not}p"))
                    .takes(&[B32, B32, PRED])
                    .gives(PRED, Bound::Bits)
                    .gives(PRED, Bound::Bits)
                    .body(format!("setp.lt.{op}.s32 %o0|%o1, %i0, %i1, {not}%i2;"))
                    .refer_all(move |x| {
                        let combine = |a: bool, b: bool| match of {
                            0 => a && b,
                            1 => a || b,
                            _ => a != b,
                        };
                        let result = |t: usize, wanted: bool| {
                            let less = (x[0][t] as i32) < x[1][t] as i32;
                            combine(less == wanted, (x[2][t] != 0) != negated) as u64
                        };
                        let threads = 0..x[0].len();
                        vec![
                            threads.clone().map(|t| result(t, true)).collect(),
                            threads.map(|t| result(t, false)).collect(),
                        ]
                    }),
            );
        }
    }
}

fn selection(all: &mut Vec<Snippet>) {
    for (name, of) in [
        ("b16", B16),
        ("b32", B32),
        ("b64", B64),
        ("u16", B16),
        ("s32", B32),
        ("f32", F32),
        ("f64", F64),
    ] {
        all.push(
            Snippet::of(
                FAMILY,
                &format!("selp.{name}"),
                &[of, of, PRED],
                of,
                Bound::Bits,
            )
            .refer(|x| if x[2] != 0 { x[0] } else { x[1] }),
        );
        all.push(
            Snippet::of(
                FAMILY,
                &format!("slct.{name}.s32"),
                &[of, of, B32],
                of,
                Bound::Bits,
            )
            .refer(|x| if x[2] as i32 >= 0 { x[0] } else { x[1] }),
        );
        for ftz in ["", ".ftz"] {
            all.push(
                Snippet::of(
                    FAMILY,
                    &format!("slct{ftz}.{name}.f32"),
                    &[of, of, F32],
                    of,
                    Bound::Bits,
                )
                .refer(move |x| {
                    let c = if ftz.is_empty() { x[2] } else { flush32(x[2]) };
                    if f32_of(c) >= 0.0 { x[0] } else { x[1] }
                }),
            );
        }
    }
}
