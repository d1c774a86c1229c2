//! Asynchronous copies (PTX ISA §9.7.9.25): `cp.async` and its groups, `cp.async.bulk`, `cp.reduce.async.bulk`.

use crate::{
    kind::{B32, B64, BF16X2, Bound, F16X2, F32, Operand},
    snippet::{SM_80, SM_90, Since, Snippet},
};

const FAMILY: &str = "copy";

pub fn snippets() -> Vec<Snippet> {
    let mut all = Vec::new();
    pieces(&mut all);
    groups(&mut all);
    bulk_loads(&mut all);
    bulk_stores(&mut all);
    all
}

/// Where a thread's 16 bytes of shared memory lie (`%r0`), filled with ones, and its operands in global memory (`%q0`).
const PLACE: &str = "mov.u32 %r9, shared;\nmad.lo.u32 %r0, %tid_, 16, %r9;\nst.shared.v4.b32 [%r0], {-1, -1, -1, -1};\nmad.wide.u32 %q0, %gid, 16, %extra;\nst.global.v2.b64 [%q0], {%i0, %i1};";

/// What lies in the 16 bytes after so many were copied and so many more set to zero.
fn copied(a: u64, b: u64, copied: u32, zeroed: u32) -> [u64; 2] {
    let whole = (b as u128) << 64 | a as u128;
    let byte = |i: u32| match i {
        i if i < copied => whole >> (8 * i) & 0xff,
        i if i < copied + zeroed => 0,
        _ => 0xff,
    };
    let all = (0..16).fold(0u128, |all, i| all | byte(i) << (8 * i));
    [all as u64, (all >> 64) as u64]
}

fn pieces(all: &mut Vec<Snippet>) {
    for (level, size) in [("ca", 4u32), ("ca", 8), ("ca", 16), ("cg", 16)] {
        for hint in ["", ".L2::128B", ".L2::256B", ".L2::cache_hint"] {
            for short in [false, true] {
                let (policy, after) = match hint {
                    ".L2::cache_hint" => (
                        "createpolicy.fractional.L2::evict_first.b64 %q9, 1.0;\n",
                        ", %q9",
                    ),
                    _ => ("", ""),
                };
                let count = if short { ", %r5" } else { "" };
                let mnemonic = format!("cp.async.{level}.shared.global{hint}");
                let name = format!(
                    "{mnemonic}, {size} bytes{}",
                    if short { " or fewer" } else { "" }
                );
                all.push(
                    Snippet::new(FAMILY, name)
                        .since(SM_80)
                        .takes(&[B64, B64, B32.below(size as u64 + 1)])
                        .gives(B64, Bound::Bits)
                        .gives(B64, Bound::Bits)
                        .extra(B64, Bound::Bits, 2 * 4096, false)
                        .shared(2048)
                        .body(format!(
                            "{PLACE}\n{policy}mov.b32 %r5, %i2;\n{mnemonic} [%r0], [%q0], {size}{count}{after};\ncp.async.wait_all;\nld.shared.v2.b64 {{%o0, %o1}}, [%r0];"
                        ))
                        .refer_all(move |x| {
                            let of = |t: usize| {
                                let n = if short { x[2][t] as u32 } else { size };
                                copied(x[0][t], x[1][t], n, size - n)
                            };
                            let results: Vec<[u64; 2]> = (0..x[0].len()).map(of).collect();
                            // The copied words stay where they were.
                            let words = x[0].iter().zip(&x[1]).flat_map(|(a, b)| [*a, *b]).collect();
                            vec![results.iter().map(|r| r[0]).collect(), results.iter().map(|r| r[1]).collect(), words]
                        }),
                );
            }
        }
    }
    all.push(
        Snippet::new(FAMILY, "cp.async.ca.shared.global, 8 bytes, ignored")
            .since(Since { ptx: (8, 6), ..SM_80 })
            .takes(&[B64, B64, crate::kind::PRED])
            .gives(B64, Bound::Bits)
            .gives(B64, Bound::Bits)
            .extra(B64, Bound::Bits, 2 * 4096, false)
            .shared(2048)
            .body(format!(
                "{PLACE}\ncp.async.ca.shared.global [%r0], [%q0], 8, %i2;\ncp.async.wait_all;\nld.shared.v2.b64 {{%o0, %o1}}, [%r0];"
            ))
            .refer_all(|x| {
                let first = |t: usize| if x[2][t] != 0 { 0 } else { x[0][t] };
                vec![(0..x[0].len()).map(first).collect(), vec![u64::MAX; x[0].len()]]
            }),
    );
}

fn groups(all: &mut Vec<Snippet>) {
    all.push(
        Snippet::new(FAMILY, "cp.async.commit_group, wait_group")
            .since(SM_80)
            .takes(&[B64, B64])
            .gives(B64, Bound::Bits)
            .gives(B64, Bound::Bits)
            .extra(B64, Bound::Bits, 2 * 4096, false)
            .shared(2048)
            .body(format!(
                "{PLACE}\ncp.async.ca.shared.global [%r0], [%q0], 8;\ncp.async.commit_group;\ncp.async.ca.shared.global [%r0+8], [%q0+8], 8;\ncp.async.commit_group;\n\
                 cp.async.wait_group 1;\nld.shared.b64 %o0, [%r0];\ncp.async.wait_group 0;\nld.shared.b64 %o1, [%r0+8];"
            ))
            .refer_all(|x| x.to_vec()),
    );
    for (name, arrive, count) in [
        (
            "cp.async.mbarrier.arrive",
            "cp.async.mbarrier.arrive.shared.b64 [%r10];\nmbarrier.arrive.shared.b64 _, [%r10];",
            128,
        ),
        (
            "cp.async.mbarrier.arrive.noinc",
            "cp.async.mbarrier.arrive.noinc.shared.b64 [%r10];",
            128,
        ),
    ] {
        all.push(
            Snippet::new(FAMILY, name)
                .since(SM_80)
                .takes(&[B64, B64])
                .gives(B64, Bound::Bits)
                .gives(B64, Bound::Bits)
                .extra(B64, Bound::Bits, 2 * 4096, false)
                .shared(2048 + 64)
                .body(format!(
                    "{PLACE}\nadd.u32 %r10, %r9, 2048;\nsetp.eq.u32 %p9, %tid_, 0;\n@%p9 mbarrier.init.shared.b64 [%r10], {count};\nbar.sync 0;\n\
                     cp.async.cg.shared.global [%r0], [%q0], 16;\n{arrive}\nwait_c:\nmbarrier.test_wait.parity.shared.b64 %p0, [%r10], 0;\n@!%p0 bra wait_c;\n\
                     xor.b32 %r1, %tid_, 37;\nmad.lo.u32 %r1, %r1, 16, %r9;\nld.shared.v2.b64 {{%o0, %o1}}, [%r1];\nbar.sync 0;\n@%p9 mbarrier.inval.shared.b64 [%r10];"
                ))
                .refer_all(|x| {
                    let other = |of: &Vec<u64>| (0..of.len()).map(|g| of[g / 128 * 128 + ((g % 128) ^ 37)]).collect();
                    vec![other(&x[0]), other(&x[1])]
                }),
        );
    }
}

/// A block's 2 KiB of global memory to shared memory, in one copy or several.
fn bulk_loads(all: &mut Vec<Snippet>) {
    let hint = "createpolicy.fractional.L2::evict_last.b64 %q9, 1.0;\n";
    for (destination, remark, before, after) in [
        ("shared::cluster", "", "", ""),
        ("shared::cta", "", "", ""),
        ("shared::cluster", ", with a hint", hint, ", %q9"),
    ] {
        for parts in [1u32, 4] {
            let bytes = 2048 / parts;
            let level = if after.is_empty() {
                ""
            } else {
                ".L2::cache_hint"
            };
            let mnemonic =
                format!("cp.async.bulk.{destination}.global.mbarrier::complete_tx::bytes{level}");
            let copies: String = (0..parts)
                .map(|i| {
                    format!(
                        "{mnemonic} [%r9+{}], [%q1+{}], {bytes}, [%r10]{after};\n",
                        i * bytes,
                        i * bytes
                    )
                })
                .collect();
            all.push(
                Snippet::new(FAMILY, format!("{mnemonic}, {parts} of {bytes} bytes{remark}"))
                    .since(SM_90)
                    .raw(B64, 32 * 256)
                    .gives(B64, Bound::Bits)
                    .gives(B64, Bound::Bits)
                    .shared(2048 + 64)
                    .body(format!(
                        "mov.u32 %r9, shared;\nadd.u32 %r10, %r9, 2048;\nmov.u32 %r1, %ctaid.x;\nmad.wide.u32 %q1, %r1, 2048, %raw;\nsetp.ne.u32 %p9, %tid_, 0;\n@%p9 bra wait_b;\n\
                         mbarrier.init.shared.b64 [%r10], 1;\nfence.mbarrier_init.release.cluster;\nfence.proxy.async;\n{before}mbarrier.arrive.expect_tx.shared.b64 _, [%r10], 2048;\n{copies}\
                         wait_b:\nbar.sync 0;\nspin_b:\nmbarrier.try_wait.parity.shared.b64 %p0, [%r10], 0;\n@!%p0 bra spin_b;\n\
                         mad.lo.u32 %r1, %tid_, 16, %r9;\nld.shared.v2.b64 {{%o0, %o1}}, [%r1];\nbar.sync 0;\n@!%p9 mbarrier.inval.shared.b64 [%r10];"
                    )),
            );
        }
    }
    all.push(
        Snippet::new(FAMILY, "cp.async.bulk.prefetch.L2.global")
            .since(SM_90)
            .takes(&[B32])
            .gives(B32, Bound::Bits)
            .raw(B64, 64)
            .body("cp.async.bulk.prefetch.L2.global [%raw], 256;\nmov.b32 %o0, %i0;")
            .refer(|x| x[0]),
    );
}

/// Operands through shared memory to a block's part of global memory: copied, or combined with what lies there.
fn bulk_stores(all: &mut Vec<Snippet>) {
    let body = |store: &str, wait: &str| {
        format!(
            "mov.u32 %r9, shared;\nmad.lo.u32 %r0, %tid_, 16, %r9;\nst.shared.v4.b32 [%r0], {{%i0, %i1, %i2, %i3}};\nfence.proxy.async.shared::cta;\nbar.sync 0;\n\
             mov.u32 %r1, %ctaid.x;\nmad.wide.u32 %q1, %r1, 2048, %extra;\nsetp.ne.u32 %p9, %tid_, 0;\n@%p9 bra end_s;\n{store} [%q1], [%r9], 2048;\ncp.async.bulk.commit_group;\n{wait}\nend_s:"
        )
    };
    for wait in [
        "cp.async.bulk.wait_group 0;",
        "cp.async.bulk.wait_group.read 0;",
    ] {
        all.push(
            Snippet::new(
                FAMILY,
                format!(
                    "cp.async.bulk.global.shared::cta.bulk_group, {}",
                    wait.trim_end_matches(';')
                ),
            )
            .since(SM_90)
            .takes(&[B32; 4])
            .extra(B32, Bound::Bits, 4096 * 4, true)
            .shared(2048)
            .body(body("cp.async.bulk.global.shared::cta.bulk_group", wait))
            .refer_all(|x| {
                let of = |g: usize| x.iter().map(move |o| o[g]);
                vec![(0..x[0].len()).flat_map(of).collect()]
            }),
        );
    }
    let ops: [(&str, Operand); 15] = [
        ("add.u32", B32),
        ("add.s32", B32),
        ("add.u64", B32),
        ("min.u32", B32),
        ("max.s32", B32),
        ("min.s64", B32),
        ("inc.u32", B32),
        ("dec.u32", B32),
        ("and.b32", B32),
        ("or.b32", B32),
        ("xor.b64", B32),
        ("add.noftz.f16", F16X2),
        ("add.noftz.bf16", BF16X2),
        ("min.f16", F16X2),
        ("max.bf16", BF16X2),
    ];
    for (op, of) in ops.into_iter().chain([("add.f32", F32)]) {
        let mnemonic = format!("cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}");
        all.push(
            Snippet::new(FAMILY, &mnemonic)
                .since(SM_90)
                .takes(&[of; 4])
                .extra(of, Bound::Numbers, 4096 * 4, true)
                .shared(2048)
                .body(body(&mnemonic, "cp.async.bulk.wait_group 0;")),
        );
    }
}
