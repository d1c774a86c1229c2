//! Barriers of a block and fences (PTX ISA §9.7.13.1 to §9.7.13.4), `mbarrier` (§9.7.13.15), and what a thread sees of time (§10).

use crate::{
    kind::{B32, Bound, PRED},
    snippet::{SM_75, SM_80, SM_90, Since, Snippet},
};

const FAMILY: &str = "barrier";
const MBARRIER: &str = "mbarrier";
const MISC: &str = "misc";

const BLOCK: usize = 128;

/// Stores the operand, waits, and loads another thread's.
fn exchange(wait: &str) -> String {
    format!(
        "mov.u32 %r9, shared;\nmad.lo.u32 %r1, %tid_, 4, %r9;\nst.shared.b32 [%r1], %i0;\n{wait}\n\
         xor.b32 %r2, %tid_, 37;\nmad.lo.u32 %r2, %r2, 4, %r9;\nld.shared.b32 %o0, [%r2];"
    )
}

fn exchanged(x: &[Vec<u64>], distance: usize) -> Vec<Vec<u64>> {
    let block = |values: &[u64]| {
        (0..values.len())
            .map(|t| values[t ^ distance])
            .collect::<Vec<u64>>()
    };
    vec![x[0].chunks(BLOCK).flat_map(block).collect()]
}

pub fn snippets() -> Vec<Snippet> {
    let mut all = Vec::new();
    blocks(&mut all);
    reductions(&mut all);
    fences(&mut all);
    mbarriers(&mut all);
    misc(&mut all);
    all
}

fn blocks(all: &mut Vec<Snippet>) {
    let waits: [(&str, Since); 9] = [
        ("bar.sync 0;", SM_75),
        ("bar.sync 15;", SM_75),
        ("bar.sync 3, 128;", SM_75),
        ("barrier.sync 0;", SM_75),
        ("barrier.sync 1, 128;", SM_75),
        ("barrier.sync.aligned 2;", SM_75),
        ("bar.cta.sync 0;", SM_75),
        ("barrier.cta.sync.aligned 4, 128;", SM_75),
        (
            "mov.u32 %r20, 5;\nmov.u32 %r21, 128;\nbar.sync %r20, %r21;",
            SM_75,
        ),
    ];
    for (wait, since) in waits {
        let name = wait
            .trim_end_matches(';')
            .rsplit('\n')
            .next()
            .unwrap_or_default();
        all.push(
            Snippet::new(FAMILY, format!("{name}, exchange"))
                .since(since)
                .takes(&[B32])
                .gives(B32, Bound::Bits)
                .shared(512)
                .body(exchange(wait))
                .refer_all(|x| exchanged(x, 37)),
        );
    }
    // Two pairs of warps, each with a barrier of its own.
    all.push(
        Snippet::new(FAMILY, "bar.sync of 64 threads, two at once")
            .takes(&[B32])
            .gives(B32, Bound::Bits)
            .shared(512)
            .body(exchange(
                "shr.u32 %r3, %tid_, 6;\nadd.u32 %r3, %r3, 1;\nbar.sync %r3, 64;",
            ))
            .refer_all(|x| exchanged(x, 37)),
    );
    // The upper half hands values to the lower one, which hands others back.
    all.push(
        Snippet::new(FAMILY, "bar.arrive and bar.sync")
            .takes(&[B32])
            .gives(B32, Bound::Bits)
            .shared(512)
            .body(
                "mov.u32 %r9, shared;\nmad.lo.u32 %r1, %tid_, 4, %r9;\nxor.b32 %r2, %tid_, 64;\nmad.lo.u32 %r2, %r2, 4, %r9;\n\
                 setp.ge.u32 %p0, %tid_, 64;\n@%p0 bra upper_b;\nbar.sync 1, 128;\nld.shared.b32 %o0, [%r2];\nst.shared.b32 [%r1], %i0;\nbar.arrive 2, 128;\nbra end_b;\n\
                 upper_b:\nst.shared.b32 [%r1], %i0;\nbar.arrive 1, 128;\nbar.sync 2, 128;\nld.shared.b32 %o0, [%r2];\nend_b:",
            )
            .refer_all(|x| exchanged(x, 64)),
    );
    // Many phases of one barrier: a sum along the block.
    all.push(
        Snippet::new(FAMILY, "bar.sync in a loop")
            .takes(&[B32])
            .gives(B32, Bound::Bits)
            .shared(512)
            .body(
                "mov.u32 %r9, shared;\nmad.lo.u32 %r1, %tid_, 4, %r9;\nmov.b32 %o0, %i0;\nmov.u32 %r5, 1;\nloop_b:\nst.shared.b32 [%r1], %o0;\nbar.sync 0;\n\
                 sub.u32 %r2, %tid_, %r5;\nmad.lo.u32 %r3, %r2, 4, %r9;\nsetp.ge.u32 %p0, %tid_, %r5;\nmov.b32 %r4, 0;\n@%p0 ld.shared.b32 %r4, [%r3];\nadd.u32 %o0, %o0, %r4;\n\
                 bar.sync 0;\nshl.b32 %r5, %r5, 1;\nsetp.lt.u32 %p1, %r5, 128;\n@%p1 bra loop_b;",
            )
            .refer_all(|x| {
                let block = |values: &[u64]| {
                    let sums = values.iter().scan(0u64, |sum, v| {
                        *sum = (*sum + v) & 0xffff_ffff;
                        Some(*sum)
                    });
                    sums.collect::<Vec<u64>>()
                };
                vec![x[0].chunks(BLOCK).flat_map(block).collect()]
            }),
    );
    // A block whose last warp is not full.
    all.push(
        Snippet::new(FAMILY, "bar.sync of 80 threads")
            .launch(16, 80)
            .takes(&[B32])
            .gives(B32, Bound::Bits)
            .shared(512)
            .body(
                "mov.u32 %r9, shared;\nmad.lo.u32 %r1, %tid_, 4, %r9;\nst.shared.b32 [%r1], %i0;\nbar.sync 0;\nsub.u32 %r2, 79, %tid_;\nmad.lo.u32 %r2, %r2, 4, %r9;\nld.shared.b32 %o0, [%r2];",
            )
            .refer_all(|x| {
                let block = |values: &[u64]| values.iter().rev().copied().collect::<Vec<u64>>();
                vec![x[0].chunks(80).flat_map(block).collect()]
            }),
    );
    // A warp that has left does not count.
    all.push(
        Snippet::new(FAMILY, "bar.sync after a warp has left")
            .takes(&[B32])
            .extra(B32, Bound::Bits, 4096, false)
            .shared(512)
            .body(
                "setp.ge.u32 %p0, %tid_, 96;\n@%p0 ret;\nmov.u32 %r9, shared;\nmad.lo.u32 %r1, %tid_, 4, %r9;\nst.shared.b32 [%r1], %i0;\nbar.sync 0;\n\
                 sub.u32 %r2, 95, %tid_;\nmad.lo.u32 %r2, %r2, 4, %r9;\nld.shared.b32 %r3, [%r2];\nmad.wide.u32 %q0, %gid, 4, %extra;\nst.global.b32 [%q0], %r3;",
            )
            .refer_all(|x| {
                let block = |values: &[u64]| {
                    let of = |t: usize| if t < 96 { values[95 - t] } else { 0 };
                    (0..values.len()).map(of).collect::<Vec<u64>>()
                };
                vec![x[0].chunks(BLOCK).flat_map(block).collect()]
            }),
    );
}

fn reductions(all: &mut Vec<Snippet>) {
    // A count that the threads' numbers decide, so that all and none occur.
    let predicate = |x: &[Vec<u64>]| -> Vec<u64> {
        let of = |(g, v): (usize, &u64)| match (g / BLOCK) % 4 {
            0 => 1,
            1 => 0,
            _ => *v,
        };
        x[0].iter().enumerate().map(of).collect()
    };
    let setup = "mov.u32 %r0, %ctaid.x;\nand.b32 %r0, %r0, 3;\nsetp.eq.u32 %p0, %r0, 0;\nsetp.ge.u32 %p1, %r0, 2;\nand.pred %p1, %p1, %i0;\nor.pred %p0, %p0, %p1;";
    for (barrier, popc) in [
        ("bar.red.popc.u32 %o0, 0, %p0;", true),
        ("bar.red.popc.u32 %o0, 1, 128, !%p0;", true),
        ("barrier.red.popc.u32 %o0, 0, %p0;", true),
        ("bar.red.and.pred %o0, 0, %p0;", false),
        ("bar.red.or.pred %o0, 0, %p0;", false),
        ("bar.red.and.pred %o0, 2, 128, !%p0;", false),
        ("barrier.cta.red.or.pred %o0, 0, !%p0;", false),
    ] {
        let of = if popc { B32 } else { PRED };
        let (negated, and) = (barrier.contains('!'), barrier.contains(".and."));
        all.push(
            Snippet::new(FAMILY, barrier.trim_end_matches(';').replace("%o0, ", ""))
                .takes(&[PRED])
                .gives(of, Bound::Bits)
                .body(format!("{setup}\n{barrier}"))
                .refer_all(move |x| {
                    let values = predicate(x);
                    let block = |values: &[u64]| {
                        let set = values.iter().filter(|v| (**v != 0) != negated).count();
                        let result = match (popc, and) {
                            (true, _) => set,
                            (false, true) => (set == values.len()) as usize,
                            (false, false) => (set > 0) as usize,
                        };
                        vec![result as u64; values.len()]
                    };
                    vec![values.chunks(BLOCK).flat_map(block).collect()]
                }),
        );
    }
}

fn fences(all: &mut Vec<Snippet>) {
    for (fence, since) in [
        ("membar.cta;", SM_75),
        ("membar.gl;", SM_75),
        ("membar.sys;", SM_75),
        ("fence.acq_rel.cta;", SM_75),
        ("fence.acq_rel.gpu;", SM_75),
        ("fence.acq_rel.sys;", SM_75),
        ("fence.sc.cta;", SM_75),
        ("fence.sc.gpu;", SM_75),
        ("fence.sc.cluster;", SM_90),
        ("fence.acq_rel.cluster;", SM_90),
        ("fence.proxy.alias;", SM_75),
        ("fence.proxy.async;", SM_90),
        ("fence.proxy.async.global;", SM_90),
        ("fence.proxy.async.shared::cta;", SM_90),
        ("fence.mbarrier_init.release.cluster;", SM_90),
    ] {
        all.push(
            Snippet::new(FAMILY, format!("{}, exchange", fence.trim_end_matches(';')))
                .since(since)
                .takes(&[B32])
                .gives(B32, Bound::Bits)
                .shared(512)
                .body(exchange(&format!("{fence}\nbar.sync 0;\n{fence}")))
                .refer_all(|x| exchanged(x, 37)),
        );
    }
    // A value and a flag, from one block to another through global memory.
    all.push(
        Snippet::new(FAMILY, "release and acquire between blocks")
            .launch(2, 32)
            .takes(&[B32])
            .gives(B32, Bound::Bits)
            .extra(B32, Bound::Bits, 64, false)
            .body(
                "mov.u32 %r0, %ctaid.x;\nmad.wide.u32 %q0, %lane_, 4, %extra;\nsetp.ne.u32 %p0, %r0, 0;\nmov.b32 %o0, %i0;\n@%p0 bra reader;\n\
                 st.global.b32 [%q0], %i0;\nbar.warp.sync -1;\nsetp.eq.u32 %p1, %lane_, 0;\n@%p1 st.release.gpu.global.u32 [%extra+128], 1;\nbra end_r;\n\
                 reader:\nld.acquire.gpu.global.u32 %r1, [%extra+128];\nsetp.eq.u32 %p2, %r1, 0;\n@%p2 bra reader;\nld.global.b32 %o0, [%q0];\nend_r:",
            )
            .refer_all(|x| {
                let first = x[0][..32].to_vec();
                vec![[first.clone(), first].concat()]
            }),
    );
}

/// Sets up a barrier in shared memory for so many arrivals: its address is in `%r10`, exchanged words lie from `%r9` on.
fn barrier(count: u32) -> String {
    format!(
        "mov.u32 %r10, shared;\nadd.u32 %r9, %r10, 64;\nsetp.eq.u32 %p9, %tid_, 0;\n@%p9 mbarrier.init.shared.b64 [%r10], {count};\nbar.sync 0;\n\
         mad.lo.u32 %r1, %tid_, 4, %r9;\nxor.b32 %r2, %tid_, 37;\nmad.lo.u32 %r2, %r2, 4, %r9;\n"
    )
}

const END: &str = "\nbar.sync 0;\n@%p9 mbarrier.inval.shared.b64 [%r10];";

fn mbarriers(all: &mut Vec<Snippet>) {
    let ways: [(&str, u32, &str, Since); 8] = [
        (
            "arrive and test_wait",
            128,
            "mbarrier.arrive.shared.b64 %q0, [%r10];\nwait_m:\nmbarrier.test_wait.shared.b64 %p0, [%r10], %q0;\n@!%p0 bra wait_m;",
            SM_80,
        ),
        (
            "arrive and test_wait.parity",
            128,
            "mbarrier.arrive.shared.b64 _, [%r10];\nwait_m:\nmbarrier.test_wait.parity.shared.b64 %p0, [%r10], 0;\n@!%p0 bra wait_m;",
            SM_80,
        ),
        (
            "arrive with a count",
            256,
            "mbarrier.arrive.shared.b64 %q0, [%r10], 2;\nwait_m:\nmbarrier.test_wait.shared.b64 %p0, [%r10], %q0;\n@!%p0 bra wait_m;",
            SM_90,
        ),
        (
            "arrive.noComplete and arrive",
            256,
            "mbarrier.arrive.noComplete.shared.b64 %q1, [%r10], 1;\nmbarrier.arrive.shared.b64 %q0, [%r10];\nwait_m:\nmbarrier.test_wait.shared.b64 %p0, [%r10], %q0;\n@!%p0 bra wait_m;",
            SM_80,
        ),
        (
            "try_wait.parity",
            128,
            "mbarrier.arrive.shared::cta.b64 _, [%r10];\nwait_m:\nmbarrier.try_wait.parity.shared::cta.b64 %p0, [%r10], 0;\n@!%p0 bra wait_m;",
            SM_90,
        ),
        (
            "try_wait with a time",
            128,
            "mbarrier.arrive.release.cta.shared::cta.b64 %q0, [%r10];\nwait_m:\nmbarrier.try_wait.acquire.cta.shared::cta.b64 %p0, [%r10], %q0, 1000;\n@!%p0 bra wait_m;",
            SM_90,
        ),
        (
            "arrive_drop and a second phase",
            128,
            "setp.ge.u32 %p1, %tid_, 64;\n@%p1 mbarrier.arrive_drop.shared.b64 %q0, [%r10];\n@!%p1 mbarrier.arrive.shared.b64 %q0, [%r10];\nwait_m:\nmbarrier.test_wait.shared.b64 %p0, [%r10], %q0;\n@!%p0 bra wait_m;\n\
             @%p1 bra skip_m;\nmbarrier.arrive.shared.b64 %q0, [%r10];\nwait_n:\nmbarrier.test_wait.shared.b64 %p0, [%r10], %q0;\n@!%p0 bra wait_n;\nskip_m:\nbar.sync 0;",
            SM_80,
        ),
        (
            "expect_tx and complete_tx",
            128,
            "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r10], 16;\nmbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r10], 16;\nmbarrier.arrive.shared::cta.b64 _, [%r10];\nwait_m:\nmbarrier.try_wait.parity.shared::cta.b64 %p0, [%r10], 0;\n@!%p0 bra wait_m;",
            SM_90,
        ),
    ];
    for (name, count, wait, since) in ways {
        all.push(
            Snippet::new(MBARRIER, format!("mbarrier: {name}"))
                .since(since)
                .takes(&[B32])
                .gives(B32, Bound::Bits)
                .shared(1024)
                .body(format!(
                    "{}st.shared.b32 [%r1], %i0;\n{wait}\nld.shared.b32 %o0, [%r2];{END}",
                    barrier(count)
                ))
                .refer_all(|x| exchanged(x, 37)),
        );
    }
    // What the state says: pending and expected arrivals of a phase.
    all.push(
        Snippet::new(MBARRIER, "mbarrier.pending_count")
            .since(SM_80)
            .launch(4, 32)
            .gives(B32, Bound::Bits)
            .gives(B32, Bound::Bits)
            .shared(64)
            .body(
                "mov.u32 %r10, shared;\nmov.b32 %o0, 0;\nmov.b32 %o1, 0;\nsetp.ne.u32 %p0, %tid_, 0;\n@%p0 bra skip_m;\nmbarrier.init.shared.b64 [%r10], 5;\n\
                 mbarrier.arrive.shared.b64 %q0, [%r10];\nmbarrier.pending_count.b64 %o0, %q0;\nmbarrier.arrive.noComplete.shared.b64 %q0, [%r10], 2;\nmbarrier.pending_count.b64 %o1, %q0;\n\
                 mbarrier.inval.shared.b64 [%r10];\nskip_m:",
            )
            .refer_all(|_| {
                let of = |first: u64| (0..128).map(|g| if g % 32 == 0 { first } else { 0 }).collect();
                vec![of(5), of(4)]
            }),
    );
    // Several phases: parity turns, and one phase's waiters do not pass the next.
    all.push(
        Snippet::new(MBARRIER, "mbarrier: seven phases")
            .since(SM_80)
            .takes(&[B32])
            .gives(B32, Bound::Bits)
            .shared(1024)
            .body(format!(
                "{}mov.b32 %o0, %i0;\nmov.u32 %r5, 0;\nloop_m:\nst.shared.b32 [%r1], %o0;\nand.b32 %r6, %r5, 1;\nmbarrier.arrive.shared.b64 _, [%r10];\nwait_m:\n\
                 mbarrier.test_wait.parity.shared.b64 %p0, [%r10], %r6;\n@!%p0 bra wait_m;\nld.shared.b32 %r7, [%r2];\nadd.u32 %o0, %o0, %r7;\nbar.sync 0;\nadd.u32 %r5, %r5, 1;\nsetp.lt.u32 %p1, %r5, 7;\n@%p1 bra loop_m;{END}",
                barrier(128)
            ))
            .refer_all(|x| {
                let block = |values: &[u64]| {
                    let mut values = values.to_vec();
                    for _ in 0..7 {
                        let next = |t: usize| (values[t] + values[t ^ 37]) & 0xffff_ffff;
                        values = (0..values.len()).map(next).collect();
                    }
                    values
                };
                vec![x[0].chunks(BLOCK).flat_map(block).collect()]
            }),
    );
}

fn misc(all: &mut Vec<Snippet>) {
    for (name, body, since) in [
        (
            "clock, monotone",
            "mov.u32 %r0, %clock;\nmov.u32 %r1, %clock;\nsub.u32 %r2, %r1, %r0;\nsetp.lt.u32 %o0, %r2, 0x10000000;",
            SM_75,
        ),
        (
            "clock64, monotone",
            "mov.u64 %q0, %clock64;\nmov.u64 %q1, %clock64;\nsetp.ge.u64 %o0, %q1, %q0;",
            SM_75,
        ),
        (
            "globaltimer, monotone",
            "mov.u64 %q0, %globaltimer;\nnanosleep.u32 100;\nmov.u64 %q1, %globaltimer;\nsetp.ge.u64 %o0, %q1, %q0;",
            SM_75,
        ),
        (
            "nanosleep",
            "nanosleep.u32 %tid_;\nnanosleep.u32 20;\nsetp.eq.u32 %o0, 0, 0;",
            SM_75,
        ),
        (
            "griddepcontrol",
            "griddepcontrol.wait;\ngriddepcontrol.launch_dependents;\nsetp.eq.u32 %o0, 0, 0;",
            SM_90,
        ),
        (
            "smid and warpid, in range",
            "mov.u32 %r0, %smid;\nmov.u32 %r1, %nsmid;\nsetp.lt.u32 %p0, %r0, %r1;\nmov.u32 %r2, %warpid;\nmov.u32 %r3, %nwarpid;\nsetp.lt.and.u32 %o0, %r2, %r3, %p0;",
            SM_75,
        ),
    ] {
        all.push(
            Snippet::new(MISC, name)
                .since(since)
                .launch(4, 64)
                .gives(PRED, Bound::Bits)
                .body(body)
                .refer_all(|_| vec![vec![1; 256]]),
        );
    }
    all.push(
        Snippet::new(MISC, "alloca-like local arrays, indexed")
            .takes(&[B32, B32.below(8)])
            .gives(B32, Bound::Bits)
            .body(
                "{\n.local .align 4 .b8 many[32];\nmov.u64 %q0, many;\nmov.u32 %r0, 0;\nfill_l:\nmad.wide.u32 %q1, %r0, 4, %q0;\nadd.u32 %r1, %i0, %r0;\nst.local.b32 [%q1], %r1;\n\
                 add.u32 %r0, %r0, 1;\nsetp.lt.u32 %p0, %r0, 8;\n@%p0 bra fill_l;\nmad.wide.u32 %q1, %i1, 4, %q0;\nld.local.b32 %o0, [%q1];\n}",
            )
            .refer(|x| (x[0] + x[1]) & 0xffff_ffff),
    );
}
