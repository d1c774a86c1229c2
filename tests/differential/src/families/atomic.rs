//! Atomics and reductions (PTX ISA §9.7.13.5 `atom`, §9.7.13.6 `red`): each thread on a place of its own, where the value that comes back is
//! known, and all on a few places, where only what is left at the end is.

use crate::{
    kind::{B16, B32, B64, BF16X2, Bound, F16X2, F32, F64, Operand},
    snippet::{SM_75, SM_90, Since, Snippet},
};

const FAMILY: &str = "atomic";

/// Old and operand to new.
type Change = fn(u64, u64) -> u64;

const OPS: [(&str, Operand, Change); 21] = [
    ("add.u32", B32, |a, b| (a + b) & 0xffff_ffff),
    ("add.s32", B32, |a, b| (a + b) & 0xffff_ffff),
    ("add.u64", B64, u64::wrapping_add),
    ("min.u32", B32, |a, b| a.min(b)),
    ("max.u32", B32, |a, b| a.max(b)),
    ("min.s32", B32, |a, b| {
        (a as i32).min(b as i32) as u32 as u64
    }),
    ("max.s32", B32, |a, b| {
        (a as i32).max(b as i32) as u32 as u64
    }),
    ("min.u64", B64, |a, b| a.min(b)),
    ("max.u64", B64, |a, b| a.max(b)),
    ("min.s64", B64, |a, b| (a as i64).min(b as i64) as u64),
    ("max.s64", B64, |a, b| (a as i64).max(b as i64) as u64),
    ("and.b32", B32, |a, b| a & b),
    ("or.b32", B32, |a, b| a | b),
    ("xor.b32", B32, |a, b| a ^ b),
    ("and.b64", B64, |a, b| a & b),
    ("or.b64", B64, |a, b| a | b),
    ("xor.b64", B64, |a, b| a ^ b),
    ("inc.u32", B32, |a, b| if a >= b { 0 } else { a + 1 }),
    (
        "dec.u32",
        B32,
        |a, b| if a == 0 || a > b { b } else { a - 1 },
    ),
    ("exch.b32", B32, |_, b| b),
    ("exch.b64", B64, |_, b| b),
];

/// A mnemonic with its space and order: `atom.global.relaxed.gpu.add.u32`, `atom.shared.add.u32`.
fn spelled(instruction: &str, op: &str, space: &str, order: &str) -> String {
    match order {
        "" => format!("{instruction}.{space}.{op}"),
        order => format!("{instruction}.{order}.{space}.{op}"),
    }
}

/// The address of a place of one's own, and the bytes of shared memory that it takes.
fn own(space: &str) -> (&'static str, &'static str, u32) {
    match space {
        "shared" => (
            "mov.u32 %r10, shared;\nmad.lo.u32 %r10, %tid_, 8, %r10;",
            "%r10",
            1024,
        ),
        _ => ("mad.wide.u32 %q10, %gid, 8, %extra;", "%q10", 0),
    }
}

pub fn snippets() -> Vec<Snippet> {
    let mut all = Vec::new();
    private(&mut all);
    compared(&mut all);
    contended(&mut all);
    floats(&mut all);
    orders(&mut all);
    all
}

/// Stores an operand in a place of one's own, changes it by another, and gives what came back and what is there.
fn one(space: &str, name: &str, store: &str, change: &str, of: Operand, bound: Bound) -> Snippet {
    let (address, register, shared) = own(space);
    let width = of.width;
    let snippet = Snippet::new(FAMILY, name)
        .takes(&[of, of])
        .gives(of, bound)
        .gives(of, bound)
        .shared(shared)
        .body(format!(
            "{address}\nst.{space}.{store} [{register}], %i0;\n{change}\nld.{space}.b{width} %o1, [{register}];"
        ));
    match space {
        "global" => {
            let words = snippet.threads();
            snippet.extra(B64, Bound::Bits, words, false)
        }
        _ => snippet,
    }
}

fn private(all: &mut Vec<Snippet>) {
    for (op, of, change) in OPS {
        for space in ["global", "shared"] {
            let (_, register, _) = own(space);
            let store = format!("b{}", of.width);
            let atom = spelled("atom", op, space, "");
            let refer = move |x: &[Vec<u64>]| {
                let new = |(a, b): (&u64, &u64)| change(*a, *b);
                vec![
                    x[0].clone(),
                    x[0].iter().zip(&x[1]).map(new).collect::<Vec<u64>>(),
                ]
            };
            let text = format!("{atom} %o0, [{register}], %i1;");
            all.push(one(space, &atom, &store, &text, of, Bound::Bits).refer_all(refer));
            if op.starts_with("exch") {
                continue;
            }
            let red = spelled("red", op, space, "");
            let text = format!("{red} [{register}], %i1;\nmov.b{} %o0, %i0;", of.width);
            all.push(one(space, &red, &store, &text, of, Bound::Bits).refer_all(refer));
        }
    }
}

/// `cas`, which half the threads win.
fn compared(all: &mut Vec<Snippet>) {
    for (width, of, scratch) in [(16, B16, "%h0"), (32, B32, "%r0"), (64, B64, "%q0")] {
        for space in ["global", "shared"] {
            let (_, register, _) = own(space);
            let op = format!("cas.b{width}");
            let atom = spelled("atom", &op, space, "");
            let text = format!(
                "and.b32 %r1, %tid_, 1;\nsetp.eq.u32 %p0, %r1, 0;\nselp.b{width} {scratch}, %i0, 3, %p0;\n{atom} %o0, [{register}], {scratch}, %i1;"
            );
            all.push(
                one(space, &atom, &format!("b{width}"), &text, of, Bound::Bits).refer_all(|x| {
                    let new = |(t, (a, b)): (usize, (&u64, &u64))| {
                        if t % 2 == 0 || *a == 3 { *b } else { *a }
                    };
                    let left = x[0].iter().zip(&x[1]).enumerate().map(new).collect();
                    vec![x[0].clone(), left]
                }),
            );
        }
    }
}

/// How many places all threads share.
const PLACES: usize = 61;

fn contended(all: &mut Vec<Snippet>) {
    for (op, of, change) in OPS {
        // What is left of an exchange hangs on the order; of the counters it does not if all have one limit.
        if op.starts_with("exch") {
            continue;
        }
        let limit = op.starts_with("inc") || op.starts_with("dec");
        let operand = if limit { "23" } else { "%i0" };
        let size = of.width / 8;
        let name = format!("red.global.{op}, on {PLACES} places");
        let step = of.width / 32;
        all.push(
            Snippet::new(FAMILY, name)
                .takes(&[of])
                .extra(B32, Bound::Bits, PLACES * step as usize, false)
                .body(format!(
                    "rem.u32 %r0, %gid, {PLACES};\nmad.wide.u32 %q0, %r0, {size}, %extra;\nred.global.{op} [%q0], {operand};"
                ))
                .refer_all(move |x| {
                    let mut places = [0u64; PLACES];
                    for (g, v) in x[0].iter().enumerate() {
                        let at = &mut places[g % PLACES];
                        *at = change(*at, if limit { 23 } else { *v });
                    }
                    let words = |v: u64| (0..step).map(move |i| v >> (32 * i) & 0xffff_ffff);
                    vec![places.into_iter().flat_map(words).collect()]
                }),
        );
        // In shared memory, then added up by one thread a place.
        if of.width == 32 && !limit {
            all.push(
                Snippet::new(FAMILY, format!("red.shared.{op}, on 16 places"))
                    .takes(&[of])
                    .gives(of, Bound::Bits)
                    .shared(64)
                    .body(format!(
                        "mov.u32 %r9, shared;\nsetp.lt.u32 %p0, %tid_, 16;\nmad.lo.u32 %r1, %tid_, 4, %r9;\n@%p0 st.shared.b32 [%r1], 0;\nbar.sync 0;\n\
                         and.b32 %r0, %tid_, 15;\nmad.lo.u32 %r2, %r0, 4, %r9;\nred.shared.{op} [%r2], %i0;\nbar.sync 0;\nld.shared.b32 %o0, [%r2];"
                    ))
                    .refer_all(move |x| {
                        let block = |values: &[u64]| {
                            let mut places = [0u64; 16];
                            for (t, v) in values.iter().enumerate() {
                                places[t % 16] = change(places[t % 16], *v);
                            }
                            (0..values.len()).map(|t| places[t % 16]).collect::<Vec<u64>>()
                        };
                        vec![x[0].chunks(128).flat_map(block).collect()]
                    }),
            );
        }
    }
    // Every thread gets another ticket.
    all.push(
        Snippet::new(FAMILY, "atom.global.add.u32, tickets")
            .takes(&[B32])
            .extra(B32, Bound::Bits, 1 + 4096, false)
            .body(
                "atom.global.add.u32 %r0, [%extra], 1;\nmad.wide.u32 %q0, %r0, 4, %extra;\nred.global.add.u32 [%q0+4], 1;",
            )
            .refer_all(|x| {
                let count = x[0].len();
                let mut all = vec![count as u64];
                all.extend(vec![1; count]);
                vec![all]
            }),
    );
}

fn floats(all: &mut Vec<Snippet>) {
    let ops: [(&str, Operand, Since); 6] = [
        ("add.f32", F32, SM_75),
        ("add.f64", F64, SM_75),
        ("add.noftz.f16x2", F16X2, SM_75),
        ("add.noftz.bf16x2", BF16X2, SM_90),
        ("add.noftz.f16", crate::kind::F16, SM_75),
        ("add.noftz.bf16", crate::kind::BF16, SM_90),
    ];
    for (op, of, since) in ops {
        for space in ["global", "shared"] {
            let (_, register, _) = own(space);
            for (remark, operand) in [("", of), (", near", of.near())] {
                let atom = spelled("atom", op, space, "");
                let text = format!("{atom} %o0, [{register}], %i1;");
                let name = format!("{atom}{remark}");
                all.push(
                    one(
                        space,
                        &name,
                        &format!("b{}", of.width),
                        &text,
                        operand,
                        Bound::Numbers,
                    )
                    .since(since),
                );
                let red = spelled("red", op, space, "");
                let text = format!("{red} [{register}], %i1;\nmov.b{} %o0, %i0;", of.width);
                let name = format!("{red}{remark}");
                all.push(
                    one(
                        space,
                        &name,
                        &format!("b{}", of.width),
                        &text,
                        operand,
                        Bound::Numbers,
                    )
                    .since(since),
                );
            }
        }
    }
    for (op, of, size) in [("add.f32", F32, 4usize), ("add.f64", F64, 8)] {
        // Sums of small whole numbers are exact in any order.
        all.push(
            Snippet::new(FAMILY, format!("red.global.{op}, on {PLACES} places"))
                .takes(&[of.whole()])
                .extra(of, Bound::Bits, PLACES, false)
                .body(format!(
                    "rem.u32 %r0, %gid, {PLACES};\nmad.wide.u32 %q0, %r0, {size}, %extra;\nred.global.{op} [%q0], %i0;"
                ))
                .refer_all(move |x| {
                    let mut places = [0f64; PLACES];
                    for (g, v) in x[0].iter().enumerate() {
                        places[g % PLACES] += of.element.value(*v);
                    }
                    vec![places.iter().map(|v| of.element.bits_of(*v)).collect()]
                }),
        );
    }
    // Vectors.
    for (vector, op, of, count) in [
        ("v2.f32", "add", F32, 2usize),
        ("v4.f32", "add", F32, 4),
        ("v2.f16x2", "add.noftz", F16X2, 2),
        ("v4.bf16x2", "add.noftz", BF16X2, 4),
        ("v2.f16x2", "min.noftz", F16X2, 2),
        ("v2.bf16x2", "max.noftz", BF16X2, 2),
    ] {
        let list = |letter: &str, from: usize| {
            let all: Vec<String> = (from..from + count)
                .map(|i| format!("%{letter}{i}"))
                .collect();
            format!("{{{}}}", all.join(", "))
        };
        // `atom.global.v2.f32.add`: the vector stands before the operation in the type's place.
        let (v, ty) = vector.split_once('.').unwrap_or((vector, ""));
        for instruction in ["atom", "red"] {
            let result = if instruction == "atom" {
                format!("{}, ", list("o", 0))
            } else {
                String::new()
            };
            let mut snippet = Snippet::new(FAMILY, format!("{instruction}.global.{v}.{ty}.{op}"))
                .since(Since { ptx: (8, 6), ..SM_90 })
                .takes(&vec![of; 2 * count])
                .extra(of, Bound::Numbers, 4096 * count, false)
                .body(format!(
                    "mad.wide.u32 %q10, %gid, {}, %extra;\nst.global.{v}.b32 [%q10], {};\n{instruction}.global.{v}.{ty}.{op} {result}[%q10], {};",
                    4 * count,
                    list("i", 0),
                    list("i", count),
                ));
            if instruction == "atom" {
                for _ in 0..count {
                    snippet = snippet.gives(of, Bound::Numbers);
                }
            }
            all.push(snippet);
        }
    }
}

/// Orders and scopes change nothing that one thread sees.
fn orders(all: &mut Vec<Snippet>) {
    for (order, since) in [
        ("relaxed.cta", SM_75),
        ("relaxed.gpu", SM_75),
        ("relaxed.sys", SM_75),
        ("acquire.gpu", SM_75),
        ("release.gpu", SM_75),
        ("acq_rel.gpu", SM_75),
        ("acq_rel.sys", SM_75),
        ("relaxed.cluster", SM_90),
    ] {
        for (op, of, change) in OPS
            .into_iter()
            .filter(|(op, ..)| ["add.u64", "exch.b32", "max.s32"].contains(op))
        {
            let (_, register, _) = own("global");
            let atom = spelled("atom", op, "global", order);
            let text = format!("{atom} %o0, [{register}], %i1;");
            all.push(
                one(
                    "global",
                    &atom,
                    &format!("b{}", of.width),
                    &text,
                    of,
                    Bound::Bits,
                )
                .since(since)
                .refer_all(move |x| {
                    let new = |(a, b): (&u64, &u64)| change(*a, *b);
                    vec![
                        x[0].clone(),
                        x[0].iter().zip(&x[1]).map(new).collect::<Vec<u64>>(),
                    ]
                }),
            );
        }
        if order.starts_with("relaxed") || order.starts_with("release") {
            let (_, register, _) = own("global");
            let red = spelled("red", "add.u32", "global", order);
            let text = format!("{red} [{register}], %i1;\nmov.b32 %o0, %i0;");
            all.push(one("global", &red, "b32", &text, B32, Bound::Bits).since(since));
        }
    }
}
