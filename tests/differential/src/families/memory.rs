//! Data movement (PTX ISA §9.7.9): `mov`, loads and stores of each width, space and cache hint, `cvta`, constants, and special registers.

use crate::{
    kind::{B16, B32, B64, Bound, Operand, PRED},
    snippet::{SM_75, SM_80, SM_90, SM_100, Since, Snippet},
};

const FAMILY: &str = "memory";

/// Types of loads: name, bits in memory, signed.
const TYPES: [(&str, u32, bool); 14] = [
    ("b8", 8, false),
    ("u8", 8, false),
    ("s8", 8, true),
    ("b16", 16, false),
    ("u16", 16, false),
    ("s16", 16, true),
    ("b32", 32, false),
    ("u32", 32, false),
    ("s32", 32, true),
    ("f32", 32, false),
    ("b64", 64, false),
    ("u64", 64, false),
    ("s64", 64, true),
    ("f64", 64, false),
];

fn extended(bits: u64, width: u32, signed: bool, of: Operand) -> u64 {
    let shift = 64 - width;
    let value = match signed {
        true => ((bits << shift) as i64 >> shift) as u64,
        false => bits << shift >> shift,
    };
    value & of.mask()
}

/// Registers that a load of so many bits may go to.
fn destinations(name: &str, width: u32) -> Vec<Operand> {
    let all = [B16, B32, B64];
    let fits = |o: &Operand| match name.starts_with('f') {
        true => o.width == width,
        false => o.width >= width,
    };
    all.into_iter().filter(fits).collect()
}

/// A place of 32 bytes a thread in a space: what computes its address, the register that holds it, the bytes of shared memory.
fn place(space: &str) -> (&'static str, &'static str, u32) {
    match space {
        "shared" => (
            "mov.u32 %r0, shared;\nmad.lo.u32 %r0, %tid_, 32, %r0;",
            "%r0",
            128 * 32,
        ),
        "local" => (".local .align 32 .b8 own[32];\nmov.u64 %q0, own;", "%q0", 0),
        _ => ("mad.wide.u32 %q0, %gid, 32, %extra;", "%q0", 0),
    }
}

/// A body in a scope of its own, which may declare.
fn scope(body: &str) -> String {
    format!("{{\n{body}\n}}")
}

/// A snippet that uses [`place`]s of global memory has 32 bytes of it a thread.
fn with_place(snippet: Snippet, space: &str) -> Snippet {
    let (_, _, shared) = place(space);
    let snippet = snippet.shared(shared);
    match space {
        "global" => {
            let words = snippet.threads() * 8;
            snippet.extra(B32, Bound::Bits, words, false)
        }
        _ => snippet,
    }
}

pub fn snippets() -> Vec<Snippet> {
    let mut all = Vec::new();
    widths(&mut all);
    vectors(&mut all);
    hints(&mut all);
    generic(&mut all);
    moves(&mut all);
    constants(&mut all);
    special(&mut all);
    all
}

fn widths(all: &mut Vec<Snippet>) {
    for (name, width, signed) in TYPES {
        for of in destinations(name, width) {
            // The operand's slot, of which the load takes the lowest bytes.
            all.push(
                Snippet::new(FAMILY, format!("ld.global.{name}, to {} bits", of.width))
                    .takes(&[B64])
                    .gives(of, Bound::Bits)
                    .body(format!("ld.global.{name} %o0, [%in];"))
                    .refer(move |x| extended(x[0], width, signed, of)),
            );
            for space in ["shared", "local"] {
                let (address, register, shared) = place(space);
                all.push(
                    Snippet::new(FAMILY, format!("ld.{space}.{name}, to {} bits", of.width))
                        .takes(&[B64])
                        .gives(of, Bound::Bits)
                        .shared(shared)
                        .body(scope(&format!(
                            "{address}\nst.{space}.b64 [{register}+8], %i0;\nld.{space}.{name} %o0, [{register}+8];"
                        )))
                        .refer(move |x| extended(x[0], width, signed, of)),
                );
            }
            // A store writes the low bits of its register, and nothing else.
            for space in ["global", "shared", "local"] {
                let (address, register, _) = place(space);
                let snippet = Snippet::new(FAMILY, format!("st.{space}.{name}, from {} bits", of.width))
                    .takes(&[of, B64])
                    .gives(B64, Bound::Bits)
                    .body(scope(&format!(
                        "{address}\nst.{space}.b64 [{register}+16], %i1;\nst.{space}.{name} [{register}+16], %i0;\nld.{space}.b64 %o0, [{register}+16];"
                    )));
                all.push(with_place(snippet, space).refer(move |x| {
                    let mask = u64::MAX >> (64 - width);
                    x[1] & !mask | x[0] & mask
                }));
            }
        }
    }
}

fn vectors(all: &mut Vec<Snippet>) {
    for (name, width, of) in [
        ("b8", 8u32, B16),
        ("u8", 8, B32),
        ("b16", 16, B16),
        ("s16", 16, B32),
        ("b32", 32, B32),
        ("f32", 32, B32),
        ("b64", 64, B64),
        ("f64", 64, B64),
    ] {
        for count in [2usize, 4] {
            if width as usize * count > 128 {
                continue;
            }
            let signed = name == "s16";
            let list = |letter: &str| {
                let registers: Vec<String> = (0..count).map(|i| format!("%{letter}{i}")).collect();
                format!("{{{}}}", registers.join(", "))
            };
            for space in ["global", "shared", "local"] {
                let (address, register, _) = place(space);
                let mut snippet = Snippet::new(FAMILY, format!("ld.{space}.v{count}.{name}"))
                    .takes(&vec![of; count])
                    .body(scope(&format!(
                        "{address}\nst.{space}.v{count}.{name} [{register}+16], {};\nld.{space}.v{count}.{name} {}, [{register}+16];",
                        list("i"),
                        list("o")
                    )));
                for _ in 0..count {
                    snippet = snippet.gives(of, Bound::Bits);
                }
                all.push(with_place(snippet, space).refer_all(move |x| {
                    let load = |v: &u64| extended(*v, width, signed, of);
                    x.iter()
                        .map(|values| values.iter().map(load).collect())
                        .collect()
                }));
            }
        }
    }
    // Wider ones.
    let registers = "{%o0, %o1, %o2, %o3, %o4, %o5, %o6, %o7}";
    let mut wide = Snippet::new(FAMILY, "ld.global.v8.b32")
        .since(Since {
            ptx: (8, 8),
            ..SM_100
        })
        .raw(B32, 32 * 128 * 8)
        .body(format!(
            "mad.wide.u32 %q0, %gid, 32, %raw;\nld.global.v8.b32 {registers}, [%q0];"
        ));
    for _ in 0..8 {
        wide = wide.gives(B32, Bound::Bits);
    }
    all.push(wide);
    all.push(
        Snippet::new(FAMILY, "ld.global.b128")
            .takes(&[B64, B64])
            .gives(B64, Bound::Bits)
            .gives(B64, Bound::Bits)
            .extra(B32, Bound::Bits, 32 * 128 * 4, false)
            .body(scope(
                ".reg .b128 w;\nmad.wide.u32 %q0, %gid, 16, %extra;\nmov.b128 w, {%i0, %i1};\nst.global.b128 [%q0], w;\nld.global.b128 w, [%q0];\nmov.b128 {%o0, %o1}, w;",
            ))
            .refer_all(|x| x.to_vec()),
    );
}

/// Hints change nothing that a thread sees.
fn hints(all: &mut Vec<Snippet>) {
    let policy = "createpolicy.fractional.L2::evict_last.b64 %q9, 1.0;";
    let loads: [(&str, &str, &str, Since); 26] = [
        ("", "ld.global.ca.b32", "", SM_75),
        ("", "ld.global.cg.b32", "", SM_75),
        ("", "ld.global.cs.b32", "", SM_75),
        ("", "ld.global.lu.b32", "", SM_75),
        ("", "ld.global.cv.b32", "", SM_75),
        ("", "ld.global.nc.b32", "", SM_75),
        ("", "ld.global.nc.b64", "", SM_75),
        ("", "ld.global.nc.u8", "", SM_75),
        ("", "ld.global.nc.s16", "", SM_75),
        ("", "ld.global.L1::no_allocate.b32", "", SM_75),
        ("", "ld.global.L1::evict_first.b32", "", SM_75),
        ("", "ld.global.L1::evict_last.b32", "", SM_75),
        ("", "ld.global.L1::evict_unchanged.b32", "", SM_75),
        ("", "ld.global.nc.L1::no_allocate.b32", "", SM_75),
        ("", "ld.global.nc.L1::evict_last.L2::128B.b32", "", SM_80),
        ("", "ld.global.L2::64B.b32", "", SM_75),
        ("", "ld.global.L2::128B.b32", "", SM_75),
        ("", "ld.global.L2::256B.b32", "", SM_80),
        (policy, "ld.global.L2::cache_hint.b32", ", %q9", SM_80),
        (
            policy,
            "ld.global.nc.L1::no_allocate.L2::cache_hint.b32",
            ", %q9",
            SM_80,
        ),
        ("", "ld.volatile.global.b32", "", SM_75),
        ("", "ld.relaxed.cta.global.b32", "", SM_75),
        ("", "ld.relaxed.gpu.global.b32", "", SM_75),
        ("", "ld.relaxed.sys.global.b64", "", SM_75),
        ("", "ld.acquire.gpu.global.b32", "", SM_75),
        ("", "ld.relaxed.cluster.global.b32", "", SM_90),
    ];
    for (before, load, after, since) in loads {
        let name = load.rsplit('.').next().unwrap_or_default();
        let width: u32 = name[1..].parse().unwrap_or(32);
        let signed = name.starts_with('s');
        let of = if width == 64 { B64 } else { B32 };
        all.push(
            Snippet::new(FAMILY, load)
                .since(since)
                .takes(&[B64])
                .gives(of, Bound::Bits)
                .body(format!("{before}\n{load} %o0, [%in]{after};"))
                .refer(move |x| extended(x[0], width, signed, of)),
        );
    }
    let stores: [(&str, &str, &str, Since); 15] = [
        ("", "st.global.wb.b32", "", SM_75),
        ("", "st.global.cg.b32", "", SM_75),
        ("", "st.global.cs.b32", "", SM_75),
        ("", "st.global.wt.b32", "", SM_75),
        ("", "st.global.L1::no_allocate.b32", "", SM_75),
        ("", "st.global.L1::evict_first.b32", "", SM_75),
        ("", "st.global.L1::evict_last.b32", "", SM_75),
        (policy, "st.global.L2::cache_hint.b32", ", %q9", SM_80),
        ("", "st.volatile.global.b32", "", SM_75),
        ("", "st.relaxed.cta.global.b32", "", SM_75),
        ("", "st.relaxed.gpu.global.b32", "", SM_75),
        ("", "st.relaxed.sys.global.b32", "", SM_75),
        ("", "st.release.gpu.global.b32", "", SM_75),
        ("", "st.release.cta.global.b32", "", SM_75),
        ("", "st.relaxed.cluster.global.b32", "", SM_90),
    ];
    for (before, store, after, since) in stores {
        all.push(
            Snippet::new(FAMILY, store)
                .since(since)
                .takes(&[B32])
                .extra(B32, Bound::Bits, 32 * 128, false)
                .body(format!(
                    "{before}\nmad.wide.u32 %q0, %gid, 4, %extra;\n{store} [%q0], %i0{after};"
                ))
                .refer_all(|x| x.to_vec()),
        );
    }
    for (prefetch, since) in [
        ("prefetch.global.L1 [%in];", SM_75),
        ("prefetch.global.L2 [%in];", SM_75),
        ("prefetch.global.L2::evict_last [%in];", SM_80),
        ("applypriority.global.L2::evict_normal [%q1], 128;", SM_80),
    ] {
        all.push(
            Snippet::new(FAMILY, prefetch.trim_end_matches(';'))
                .since(since)
                .takes(&[B32])
                .gives(B32, Bound::Bits)
                .body(format!(
                    "and.b64 %q1, %in, -128;\n{prefetch}\nmov.b32 %o0, %i0;"
                ))
                .refer(|x| x[0]),
        );
    }
    let shared: [&str; 6] = [
        "st.volatile.shared.b32|ld.volatile.shared.b32",
        "st.relaxed.cta.shared.b32|ld.relaxed.cta.shared.b32",
        "st.release.cta.shared.b32|ld.acquire.cta.shared.b32",
        "st.shared::cta.b32|ld.shared::cta.b32",
        "st.relaxed.gpu.shared.u32|ld.relaxed.gpu.shared.u32",
        "st.weak.shared.b32|ld.weak.shared.b32",
    ];
    for pair in shared {
        let (store, load) = pair.split_once('|').unwrap_or((pair, pair));
        let (address, register, bytes) = place("shared");
        all.push(
            Snippet::new(FAMILY, load)
                .takes(&[B32])
                .gives(B32, Bound::Bits)
                .shared(bytes)
                .body(format!(
                    "{address}\n{store} [{register}], %i0;\n{load} %o0, [{register}];"
                ))
                .refer(|x| x[0]),
        );
    }
}

/// Generic addresses: `cvta`, `isspacep`, loads and stores without a space.
fn generic(all: &mut Vec<Snippet>) {
    for (space, number) in [("shared", 0), ("local", 1), ("global", 2)] {
        let (address, register, _) = place(space);
        let wide = match space {
            "shared" => "cvt.u64.u32 %q1, %r0;",
            _ => "mov.u64 %q1, %q0;",
        };
        let snippet = Snippet::new(FAMILY, format!("cvta.{space}"))
            .takes(&[B64])
            .gives(B64, Bound::Bits)
            .gives(B64, Bound::Bits)
            .gives(PRED, Bound::Bits)
            .gives(PRED, Bound::Bits)
            .gives(PRED, Bound::Bits)
            .body(scope(&format!(
                "{address}\n{wide}\ncvta.{space}.u64 %q2, %q1;\nst.b64 [%q2], %i0;\nld.{space}.b64 %o0, [{register}];\n\
                 ld.b64 %q3, [%q2];\ncvta.to.{space}.u64 %q4, %q2;\nsub.s64 %q5, %q4, %q1;\nadd.s64 %o1, %q3, %q5;\n\
                 isspacep.shared %o2, %q2;\nisspacep.local %o3, %q2;\nisspacep.global %o4, %q2;"
            )));
        all.push(with_place(snippet, space).refer_all(move |x| {
            let count = x[0].len();
            let mut all = vec![x[0].clone(), x[0].clone()];
            all.extend((0..3).map(|i| vec![(i == number) as u64; count]));
            all
        }));
    }
    let (address, register, bytes) = place("shared");
    all.push(
        Snippet::new(FAMILY, "atom.add.u32, generic")
            .takes(&[B32, B32])
            .gives(B32, Bound::Bits)
            .gives(B32, Bound::Bits)
            .shared(bytes)
            .body(format!(
                "{address}\nst.shared.b32 [{register}], %i0;\ncvt.u64.u32 %q1, %r0;\ncvta.shared.u64 %q1, %q1;\natom.add.u32 %o0, [%q1], %i1;\nld.shared.b32 %o1, [{register}];"
            ))
            .refer_all(|x| {
                let sum = |(a, b): (&u64, &u64)| (a + b) & 0xffff_ffff;
                vec![x[0].clone(), x[0].iter().zip(&x[1]).map(sum).collect()]
            }),
    );
}

fn moves(all: &mut Vec<Snippet>) {
    let same: [(&str, Operand); 8] = [
        ("mov.b16", B16),
        ("mov.b32", B32),
        ("mov.b64", B64),
        ("mov.u32", B32),
        ("mov.s64", B64),
        ("mov.f32", B32),
        ("mov.f64", B64),
        ("mov.pred", PRED),
    ];
    for (mnemonic, of) in same {
        all.push(Snippet::of(FAMILY, mnemonic, &[of], of, Bound::Bits).refer(|x| x[0]));
    }
    let packs: [(&str, Operand, usize, Operand); 4] = [
        ("mov.b32", B16, 2, B32),
        ("mov.b64", B32, 2, B64),
        ("mov.b64", B16, 4, B64),
        ("mov.b32", B16, 2, B32),
    ];
    for (mnemonic, part, count, whole) in packs.into_iter().take(3) {
        let list = |letter: &str| {
            let all: Vec<String> = (0..count).map(|i| format!("%{letter}{i}")).collect();
            all.join(", ")
        };
        let size = part.width;
        all.push(
            Snippet::new(FAMILY, format!("{mnemonic}, pack of {count}"))
                .takes(&vec![part; count])
                .gives(whole, Bound::Bits)
                .body(format!("{mnemonic} %o0, {{{}}};", list("i")))
                .refer(move |x| {
                    x.iter()
                        .enumerate()
                        .fold(0, |all, (i, v)| all | v << (i as u32 * size))
                }),
        );
        let mut unpack = Snippet::new(FAMILY, format!("{mnemonic}, {count} of"))
            .takes(&[whole])
            .body(format!("{mnemonic} {{{}}}, %i0;", list("o")));
        for _ in 0..count {
            unpack = unpack.gives(part, Bound::Bits);
        }
        all.push(unpack.refer_all(move |x| {
            let of = |i: usize| {
                x[0].iter()
                    .map(|v| v >> (i as u32 * size) & part.mask())
                    .collect()
            };
            (0..count).map(of).collect()
        }));
    }
    all.push(
        Snippet::new(FAMILY, "mov.b64, one half and a sink")
            .takes(&[B64])
            .gives(B32, Bound::Bits)
            .body("mov.b64 {_, %o0}, %i0;")
            .refer(|x| x[0] >> 32),
    );
    for (text, bits) in [
        ("mov.b32 %o0, 0f3FC00000;", 0x3fc0_0000u64),
        ("mov.f32 %o0, 1.5;", 0x3fc0_0000),
        ("mov.b32 %o0, -1;", 0xffff_ffff),
        ("mov.u32 %o0, 0x12 + 3 * 4;", 0x1e),
        ("mov.b32 %o0, 0b1011;", 11),
        ("mov.b32 %o0, 017;", 15),
        ("mov.b32 %o0, 1U << 31;", 1 << 31),
        ("mov.b32 %o0, ~5 & 0xff;", 0xfa),
        ("mov.b32 %o0, (7 > 3) ? 21 : 4;", 21),
    ] {
        all.push(
            Snippet::new(FAMILY, text.trim_end_matches(';').replace(" %o0", ""))
                .launch(1, 32)
                .gives(B32, Bound::Bits)
                .body(text)
                .refer_all(move |_| vec![vec![bits; 32]]),
        );
    }
}

fn constants(all: &mut Vec<Snippet>) {
    let words: Vec<u64> = (0..64u64)
        .map(|i| (i * 0x9e37_79b9 + 17) & 0xffff_ffff)
        .collect();
    let list: Vec<String> = words.iter().map(u64::to_string).collect();
    for space in ["const", "global"] {
        let words = words.clone();
        all.push(
            Snippet::new(FAMILY, format!("ld.{space}.b32, of a table"))
                .globals(format!(".{space} .align 16 .b32 table_{space}[64] = {{{}}};", list.join(", ")))
                .takes(&[B32.below(64)])
                .gives(B32, Bound::Bits)
                .body(format!(
                    "mov.u64 %q0, table_{space};\nmad.wide.u32 %q0, %i0, 4, %q0;\nld.{space}.b32 %o0, [%q0];"
                ))
                .refer(move |x| words[x[0] as usize]),
        );
    }
    all.push(
        Snippet::new(FAMILY, "ld.const.v4.b32, of a table")
            .globals(format!(
                ".const .align 16 .b32 table_v4[64] = {{{}}};",
                list.join(", ")
            ))
            .launch(1, 32)
            .gives(B32, Bound::Bits)
            .gives(B32, Bound::Bits)
            .gives(B32, Bound::Bits)
            .gives(B32, Bound::Bits)
            .body("ld.const.v4.b32 {%o0, %o1, %o2, %o3}, [table_v4+32];")
            .refer_all(move |_| (8..12).map(|i| vec![words[i]; 32]).collect()),
    );
    all.push(
        Snippet::new(FAMILY, "ld.const.f64, of a table")
            .globals(".const .align 8 .f64 table_f64[3] = {1.5, -2.0, 0d3FE0000000000000};")
            .launch(1, 32)
            .gives(B64, Bound::Bits)
            .gives(B64, Bound::Bits)
            .body("ld.const.f64 %o0, [table_f64+8];\nld.const.f64 %o1, [table_f64+16];")
            .refer_all(|_| vec![vec![(-2f64).to_bits(); 32], vec![0.5f64.to_bits(); 32]]),
    );
    all.push(
        Snippet::new(FAMILY, "ld.global.u8, of zeroed and initialised bytes")
            .globals(".global .align 4 .b8 bytes_global[8] = {1, 2, 253};")
            .takes(&[B32.below(8)])
            .gives(B32, Bound::Bits)
            .body("mov.u64 %q0, bytes_global;\ncvt.u64.u32 %q1, %i0;\nadd.s64 %q0, %q0, %q1;\nld.global.u8 %o0, [%q0];")
            .refer(|x| [1, 2, 253, 0, 0, 0, 0, 0][x[0] as usize]),
    );
}

fn special(all: &mut Vec<Snippet>) {
    // Value by block, thread of the block.
    let registers: [(&str, fn(u64, u64) -> u64); 16] = [
        ("%tid.x", |_, t| t),
        ("%tid.y", |_, _| 0),
        ("%ntid.x", |_, _| 96),
        ("%ntid.z", |_, _| 1),
        ("%ctaid.x", |b, _| b),
        ("%ctaid.y", |_, _| 0),
        ("%nctaid.x", |_, _| 5),
        ("%nctaid.y", |_, _| 1),
        ("%laneid", |_, t| t % 32),
        ("%lanemask_eq", |_, t| 1 << (t % 32)),
        ("%lanemask_lt", |_, t| (1 << (t % 32)) - 1),
        ("%lanemask_le", |_, t| (2 << (t % 32)) - 1),
        ("%lanemask_gt", |_, t| 0xffff_ffff & !((2 << (t % 32)) - 1)),
        ("%lanemask_ge", |_, t| 0xffff_ffff & !((1 << (t % 32)) - 1)),
        ("WARP_SZ", |_, _| 32),
        ("%dynamic_smem_size", |_, _| 0),
    ];
    for (register, value) in registers {
        all.push(
            Snippet::new(FAMILY, format!("mov.u32, {register}"))
                .launch(5, 96)
                .gives(B32, Bound::Bits)
                .body(format!("mov.u32 %o0, {register};"))
                .refer_all(move |_| {
                    let thread = |g: u64| value(g / 96, g % 96) & 0xffff_ffff;
                    vec![(0..5 * 96).map(thread).collect()]
                }),
        );
    }
}
