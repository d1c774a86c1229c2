//! Conversions (PTX ISA §9.7.9.21, `cvt`, and §9.7.9.22, `cvt.pack`).

use crate::{
    exact::{Rounding, bf16_of, f16_of, f32_of, flush32, integer, to_bf16, to_f16, to_f32},
    kind::{
        B16, B32, B64, BF16, BF16X2, Bound, E4M3X2, E5M2X2, F16, F16X2, F32, F64, Operand, TF32,
    },
    snippet::{BLACKWELL_A, SM_75, SM_80, SM_89, SM_90, Since, Snippet},
};

const FAMILY: &str = "convert";

/// Integer types: name, bits, signed.
const INTEGERS: [(&str, u32, bool); 8] = [
    ("u8", 8, false),
    ("s8", 8, true),
    ("u16", 16, false),
    ("s16", 16, true),
    ("u32", 32, false),
    ("s32", 32, true),
    ("u64", 64, false),
    ("s64", 64, true),
];

/// The register that holds an integer of so many bits.
fn register(width: u32) -> Operand {
    match width {
        16 => B16,
        64 => B64,
        _ => B32,
    }
}

fn read(bits: u64, width: u32, signed: bool) -> i128 {
    let shift = 64 - width;
    match signed {
        true => ((bits << shift) as i64 >> shift) as i128,
        false => (bits << shift >> shift) as i128,
    }
}

fn range(width: u32, signed: bool) -> (i128, i128) {
    match signed {
        true => (-(1 << (width - 1)), (1 << (width - 1)) - 1),
        false => (0, (1 << width) - 1),
    }
}

/// An integer in its register: a narrower one is extended by its sign, or zeros.
fn extended(value: i128, width: u32, signed: bool) -> u64 {
    let of = register(width);
    read(value as u64, width, signed) as u64 & of.mask()
}

pub fn snippets() -> Vec<Snippet> {
    let mut all = Vec::new();
    integers(&mut all);
    from_integers(&mut all);
    to_integers(&mut all);
    between_floats(&mut all);
    packed(&mut all);
    small(&mut all);
    packs(&mut all);
    all
}

fn integers(all: &mut Vec<Snippet>) {
    for (to, to_width, to_signed) in INTEGERS {
        for (from, width, signed) in INTEGERS {
            let (low, high) = range(to_width, to_signed);
            let (from_low, from_high) = range(width, signed);
            for sat in ["", ".sat"] {
                // Saturation that can do nothing is refused.
                if !sat.is_empty() && from_low >= low && from_high <= high {
                    continue;
                }
                let mnemonic = format!("cvt{sat}.{to}.{from}");
                all.push(
                    Snippet::of(
                        FAMILY,
                        &mnemonic,
                        &[register(width)],
                        register(to_width),
                        Bound::Bits,
                    )
                    .refer(move |x| {
                        let value = read(x[0], width, signed);
                        let value = if sat.is_empty() {
                            value
                        } else {
                            value.clamp(low, high)
                        };
                        extended(value, to_width, to_signed)
                    }),
                );
            }
        }
    }
}

fn from_integers(all: &mut Vec<Snippet>) {
    let formats: [(&str, Operand, Since, fn(f64, Rounding) -> u64); 4] = [
        ("f32", F32, SM_75, to_f32),
        ("f16", F16, SM_75, to_f16),
        ("bf16", BF16, SM_90, to_bf16),
        // An integer of at most 32 bits is exact; of others only the nearest one has a reference here.
        ("f64", F64, SM_75, |v, _| v.to_bits()),
    ];
    for (to, of, since, round) in formats {
        for (from, width, signed) in INTEGERS {
            // Registers of bytes are another matter with bf16.
            if to == "bf16" && width == 8 {
                continue;
            }
            for (r, rounding) in Rounding::ALL {
                let mnemonic = format!("cvt.{r}.{to}.{from}");
                let snippet = Snippet::of(FAMILY, &mnemonic, &[register(width)], of, Bound::Bits)
                    .since(since);
                all.push(match to == "f64" && width == 64 {
                    true if rounding == Rounding::Nearest => {
                        snippet.refer(move |x| (read(x[0], width, signed) as f64).to_bits())
                    }
                    true => snippet,
                    false => {
                        snippet.refer(move |x| round(integer(read(x[0], width, signed)), rounding))
                    }
                });
            }
        }
    }
    all.push(
        Snippet::of(FAMILY, "cvt.rn.sat.f32.s32", &[B32], F32, Bound::Bits)
            .refer(|x| if x[0] as i32 > 0 { 0x3f80_0000 } else { 0 }),
    );
}

/// Rounding to whole numbers, by modifier.
const WHOLE: [(&str, fn(f64) -> f64); 4] = [
    ("rni", f64::round_ties_even),
    ("rzi", f64::trunc),
    ("rmi", f64::floor),
    ("rpi", f64::ceil),
];

/// What the formats of floats are called, with their registers and values.
fn floats() -> [(&'static str, Operand, Since, fn(u64) -> f64); 4] {
    [
        ("f32", F32, SM_75, f32_of),
        ("f64", F64, SM_75, f64::from_bits),
        ("f16", F16, SM_75, f16_of),
        ("bf16", BF16, SM_90, bf16_of),
    ]
}

fn to_integers(all: &mut Vec<Snippet>) {
    for (from, of, since, value) in floats() {
        for (to, width, signed) in INTEGERS {
            let (low, high) = range(width, signed);
            if from == "bf16" && width == 8 {
                continue;
            }
            for (r, whole) in WHOLE {
                let flushes: &[&str] = if from == "f32" { &["", ".ftz"] } else { &[""] };
                for f in flushes {
                    let ftz = !f.is_empty();
                    let convert = move |x: &[u64]| {
                        let bits = if ftz { flush32(x[0]) } else { x[0] };
                        let v = whole(value(bits));
                        if v.is_nan() {
                            // Zero, or the bit above the largest signed value where one side has 64 bits.
                            let wide = from == "f64" || width == 64;
                            return if wide {
                                extended(1 << (width - 1), width, signed)
                            } else {
                                0
                            };
                        }
                        let clamped = if v <= low as f64 {
                            low
                        } else if v >= high as f64 {
                            high
                        } else {
                            v as i128
                        };
                        extended(clamped, width, signed)
                    };
                    let mnemonic = format!("cvt.{r}{f}.{to}.{from}");
                    for (remark, operand) in [("", of.integral()), (", any", of)] {
                        // Half the combinations are enough of the plain operands.
                        if !remark.is_empty() && (ftz || r == "rmi" || r == "rpi") {
                            continue;
                        }
                        all.push(
                            Snippet::of(
                                FAMILY,
                                &format!("{mnemonic}{remark}"),
                                &[operand],
                                register(width),
                                Bound::Bits,
                            )
                            .since(since)
                            .refer(convert),
                        );
                    }
                }
            }
        }
    }
}

fn between_floats(all: &mut Vec<Snippet>) {
    let numbers = Bound::Numbers;
    // To a wider one: exact.
    let wide: [(&str, Operand, Operand, Since, fn(u64) -> u64); 5] = [
        ("cvt.f32.f16", F16, F32, SM_75, |v| {
            to_f32(f16_of(v), Rounding::Nearest)
        }),
        ("cvt.f64.f16", F16, F64, SM_75, |v| f16_of(v).to_bits()),
        ("cvt.f64.f32", F32, F64, SM_75, |v| f32_of(v).to_bits()),
        ("cvt.f32.bf16", BF16, F32, SM_90, |v| {
            to_f32(bf16_of(v), Rounding::Nearest)
        }),
        ("cvt.f64.bf16", BF16, F64, SM_90, |v| bf16_of(v).to_bits()),
    ];
    for (mnemonic, from, to, since, value) in wide {
        all.push(
            Snippet::of(FAMILY, mnemonic, &[from], to, numbers)
                .since(since)
                .refer(move |x| value(x[0])),
        );
    }
    all.push(
        Snippet::of(FAMILY, "cvt.ftz.f32.f16", &[F16], F32, numbers)
            .refer(|x| to_f32(f16_of(x[0]), Rounding::Nearest)),
    );
    all.push(
        Snippet::of(FAMILY, "cvt.ftz.f64.f32", &[F32], F64, numbers)
            .refer(|x| f32_of(flush32(x[0])).to_bits()),
    );
    all.push(Snippet::of(FAMILY, "cvt.sat.f32.f16", &[F16], F32, numbers));
    all.push(Snippet::of(FAMILY, "cvt.sat.f32.f32", &[F32], F32, numbers));
    all.push(Snippet::of(FAMILY, "cvt.ftz.f32.f32", &[F32], F32, numbers).refer(|x| flush32(x[0])));
    all.push(Snippet::of(FAMILY, "cvt.sat.f64.f64", &[F64], F64, numbers));
    // To a narrower one.
    for (r, rounding) in Rounding::ALL {
        let narrow: [(
            &str,
            Operand,
            Operand,
            Since,
            fn(u64) -> f64,
            fn(f64, Rounding) -> u64,
        ); 6] = [
            ("f16.f32", F32, F16, SM_75, f32_of, to_f16),
            ("f16.f64", F64, F16, SM_75, f64::from_bits, to_f16),
            ("f32.f64", F64, F32, SM_75, f64::from_bits, to_f32),
            ("bf16.f64", F64, BF16, SM_90, f64::from_bits, to_bf16),
            ("bf16.f16", F16, BF16, SM_90, f16_of, to_bf16),
            ("f16.bf16", BF16, F16, SM_90, bf16_of, to_f16),
        ];
        for (types, from, to, since, value, round) in narrow {
            all.push(
                Snippet::of(FAMILY, &format!("cvt.{r}.{types}"), &[from], to, numbers)
                    .since(since)
                    .refer(move |x| round(value(x[0]), rounding)),
            );
            all.push(
                Snippet::of(
                    FAMILY,
                    &format!("cvt.{r}.{types}, near"),
                    &[from.near()],
                    to,
                    numbers,
                )
                .since(since)
                .refer(move |x| round(value(x[0]), rounding)),
            );
        }
        all.push(
            Snippet::of(
                FAMILY,
                &format!("cvt.{r}.ftz.f32.f64"),
                &[F64],
                F32,
                numbers,
            )
            .refer(move |x| flush32(to_f32(f64::from_bits(x[0]), rounding))),
        );
        all.push(
            Snippet::of(
                FAMILY,
                &format!("cvt.{r}.ftz.f16.f32"),
                &[F32],
                F16,
                numbers,
            )
            // An H200 flushes nothing here.
            .refer(move |x| to_f16(f32_of(x[0]), rounding)),
        );
        all.push(Snippet::of(
            FAMILY,
            &format!("cvt.{r}.sat.f32.f64"),
            &[F64],
            F32,
            numbers,
        ));
        all.push(Snippet::of(
            FAMILY,
            &format!("cvt.{r}.sat.f16.f32"),
            &[F32],
            F16,
            numbers,
        ));
    }
    // To whole numbers of the same format.
    for (r, whole) in WHOLE {
        for (remark, f32, f64, f16) in [
            ("", F32.integral(), F64.integral(), F16.integral()),
            (", any", F32, F64, F16),
        ] {
            all.push(
                Snippet::of(
                    FAMILY,
                    &format!("cvt.{r}.f32.f32{remark}"),
                    &[f32],
                    F32,
                    numbers,
                )
                .refer(move |x| to_f32(whole(f32_of(x[0])), Rounding::Nearest)),
            );
            all.push(
                Snippet::of(
                    FAMILY,
                    &format!("cvt.{r}.ftz.f32.f32{remark}"),
                    &[f32],
                    F32,
                    numbers,
                )
                .refer(move |x| to_f32(whole(f32_of(flush32(x[0]))), Rounding::Nearest)),
            );
            all.push(
                Snippet::of(
                    FAMILY,
                    &format!("cvt.{r}.f64.f64{remark}"),
                    &[f64],
                    F64,
                    numbers,
                )
                .refer(move |x| whole(f64::from_bits(x[0])).to_bits()),
            );
            all.push(
                Snippet::of(
                    FAMILY,
                    &format!("cvt.{r}.f16.f16{remark}"),
                    &[f16],
                    F16,
                    numbers,
                )
                .refer(move |x| to_f16(whole(f16_of(x[0])), Rounding::Nearest)),
            );
            all.push(Snippet::of(
                FAMILY,
                &format!("cvt.{r}.sat.f32.f32{remark}"),
                &[f32],
                F32,
                numbers,
            ));
        }
    }
}

/// A value with `.relu` and `.satfinite` applied before it is rounded.
fn limited(v: f64, relu: bool, limit: Option<f64>) -> f64 {
    let v = if relu && v <= 0.0 { 0.0 } else { v };
    match limit {
        Some(limit) if v.abs() > limit => limit.copysign(v),
        _ => v,
    }
}

/// Two f32 to a pair, one to a 16-bit float, and tf32.
fn packed(all: &mut Vec<Snippet>) {
    let formats: [(&str, Operand, Operand, fn(f64, Rounding) -> u64, f64); 2] = [
        ("f16", F16, F16X2, to_f16, 65504.0),
        ("bf16", BF16, BF16X2, to_bf16, 3.3895313892515355e38),
    ];
    for (name, scalar, pair, round, largest) in formats {
        for (r, rounding) in [("rn", Rounding::Nearest), ("rz", Rounding::Zero)] {
            for (relu, limit) in [
                ("", ""),
                (".relu", ""),
                ("", ".satfinite"),
                (".relu", ".satfinite"),
            ] {
                let (is_relu, limited_to) =
                    (!relu.is_empty(), (!limit.is_empty()).then_some(largest));
                let convert =
                    move |v: u64| round(limited(f32_of(v), is_relu, limited_to), rounding);
                for (remark, operand) in [("", F32), (", near", F32.near())] {
                    let single = format!("cvt.{r}{relu}{limit}.{name}.f32{remark}");
                    // The plain form to f16 is among those between floats.
                    if !(name == "f16" && relu.is_empty() && limit.is_empty()) {
                        all.push(
                            Snippet::of(FAMILY, &single, &[operand], scalar, Bound::Numbers)
                                .since(SM_80)
                                .refer(move |x| convert(x[0])),
                        );
                    }
                    // The first operand goes to the upper half.
                    all.push(
                        Snippet::of(
                            FAMILY,
                            &format!("cvt.{r}{relu}{limit}.{name}x2.f32{remark}"),
                            &[operand, operand],
                            pair,
                            Bound::Numbers,
                        )
                        .since(SM_80)
                        .refer(move |x| convert(x[0]) << 16 | convert(x[1])),
                    );
                }
            }
        }
    }
    for (op, since) in [
        ("rna", SM_80),
        ("rna.satfinite", SM_80),
        ("rn", SM_90),
        ("rz", SM_90),
        ("rn.relu", SM_90),
        ("rz.relu", SM_90),
    ] {
        for (remark, operand) in [("", F32), (", near", F32.near())] {
            all.push(
                Snippet::of(
                    FAMILY,
                    &format!("cvt.{op}.tf32.f32{remark}"),
                    &[operand],
                    TF32,
                    Bound::Numbers,
                )
                .since(since),
            );
        }
    }
}

/// The nearest code of a format, given all values of its codes without sign.
fn nearest_code(v: f64, values: &[f64]) -> u64 {
    let largest = values.last().copied().unwrap_or(0.0);
    let size = v.abs().min(largest);
    let mut best = 0;
    for (code, value) in values.iter().enumerate() {
        let (new, old) = ((value - size).abs(), (values[best] - size).abs());
        // Ties go to the even code.
        if new < old || new == old && code % 2 == 0 {
            best = code;
        }
    }
    best as u64
}

fn fp8(v: f64, relu: bool, e4m3: bool) -> u64 {
    if v.is_nan() {
        return 0x7f;
    }
    if relu && v <= 0.0 {
        return 0;
    }
    let (last, element) = match e4m3 {
        true => (0x7e, crate::kind::Element::E4m3),
        false => (0x7b, crate::kind::Element::E5m2),
    };
    let values: Vec<f64> = (0..=last).map(|c| element.value(c)).collect();
    let sign = if v.is_sign_negative() { 0x80 } else { 0 };
    nearest_code(v, &values) | sign
}

/// Formats of 8, 6 and 4 bits.
fn small(all: &mut Vec<Snippet>) {
    for (name, of, e4m3) in [("e4m3x2", E4M3X2, true), ("e5m2x2", E5M2X2, false)] {
        for relu in ["", ".relu"] {
            let is_relu = !relu.is_empty();
            for (remark, operand) in [("", F32), (", near", F32.near())] {
                all.push(
                    Snippet::of(
                        FAMILY,
                        &format!("cvt.rn.satfinite{relu}.{name}.f32{remark}"),
                        &[operand, operand],
                        of,
                        Bound::Bits,
                    )
                    .since(SM_89)
                    .refer(move |x| {
                        fp8(f32_of(x[0]), is_relu, e4m3) << 8 | fp8(f32_of(x[1]), is_relu, e4m3)
                    }),
                );
            }
            all.push(
                Snippet::of(
                    FAMILY,
                    &format!("cvt.rn.satfinite{relu}.{name}.f16x2"),
                    &[F16X2],
                    of,
                    Bound::Bits,
                )
                .since(SM_89)
                .refer(move |x| {
                    let lane = |shift: u32| fp8(f16_of(x[0] >> shift & 0xffff), is_relu, e4m3);
                    lane(16) << 8 | lane(0)
                }),
            );
            all.push(
                Snippet::of(
                    FAMILY,
                    &format!("cvt.rn{relu}.f16x2.{name}"),
                    &[of],
                    F16X2,
                    Bound::Numbers,
                )
                .since(SM_89)
                .refer(move |x| {
                    let lane = |shift: u32| {
                        let v = of.element.value(x[0] >> shift & 0xff);
                        to_f16(limited(v, is_relu, None), Rounding::Nearest)
                    };
                    lane(8) << 16 | lane(0)
                }),
            );
        }
    }
    for relu in ["", ".relu"] {
        for (name, byte) in [("e2m1x2", true), ("e2m3x2", false), ("e3m2x2", false)] {
            let to = match byte {
                true => format!(
                    "{{\n.reg .b8 x;\ncvt.rn.satfinite{relu}.{name}.f32 x, %i0, %i1;\nmov.b16 %o0, {{x, x}};\n}}"
                ),
                false => format!("cvt.rn.satfinite{relu}.{name}.f32 %o0, %i0, %i1;"),
            };
            for (remark, operand) in [("", F32), (", near", F32.near())] {
                all.push(
                    Snippet::new(FAMILY, format!("cvt.rn.satfinite{relu}.{name}.f32{remark}"))
                        .since(BLACKWELL_A)
                        .takes(&[operand, operand])
                        .gives(B16, Bound::Bits)
                        .body(to.clone()),
                );
            }
            let from = match byte {
                true => format!(
                    "{{\n.reg .b8 x, y;\nmov.b16 {{x, y}}, %i0;\ncvt.rn{relu}.f16x2.{name} %o0, x;\n}}"
                ),
                false => format!("and.b16 %h0, %i0, 0x3f3f;\ncvt.rn{relu}.f16x2.{name} %o0, %h0;"),
            };
            all.push(
                Snippet::new(FAMILY, format!("cvt.rn{relu}.f16x2.{name}"))
                    .since(BLACKWELL_A)
                    .takes(&[B16])
                    .gives(F16X2, Bound::Numbers)
                    .body(from),
            );
        }
    }
    for r in ["rz", "rp"] {
        for limit in ["", ".satfinite"] {
            for (from, inputs) in [("f32", vec![F32, F32]), ("bf16x2", vec![BF16X2])] {
                all.push(
                    Snippet::of(
                        FAMILY,
                        &format!("cvt.{r}{limit}.ue8m0x2.{from}"),
                        &inputs,
                        B16,
                        Bound::Bits,
                    )
                    .since(BLACKWELL_A),
                );
            }
        }
    }
    all.push(
        Snippet::of(
            FAMILY,
            "cvt.rn.bf16x2.ue8m0x2",
            &[B16],
            BF16X2,
            Bound::Numbers,
        )
        .since(BLACKWELL_A),
    );
}

/// Two integers to narrow ones, with a third operand's bits above them.
fn packs(all: &mut Vec<Snippet>) {
    for (to, width, signed) in [
        ("s8", 8u32, true),
        ("u8", 8, false),
        ("s16", 16, true),
        ("u16", 16, false),
    ] {
        let (low, high) = range(width, signed);
        let lane =
            move |v: u64| (v as i32 as i128).clamp(low, high) as u64 & (u64::MAX >> (64 - width));
        let count = if width == 8 { 3 } else { 2 };
        let tail = if width == 8 { ".b32" } else { "" };
        all.push(
            Snippet::of(
                FAMILY,
                &format!("cvt.pack.sat.{to}.s32{tail}"),
                &vec![B32; count],
                B32,
                Bound::Bits,
            )
            .refer(move |x| {
                let both = lane(x[0]) << width | lane(x[1]);
                match width {
                    8 => both | (x[2] & 0xffff) << 16,
                    _ => both,
                }
            }),
        );
    }
}
