//! Clusters and distributed shared memory (PTX ISA §9.7.13.4 `barrier.cluster`, §9.7.9.23 `mapa`, §9.7.9.24 `getctarank`, `st.async`, `red.async`).

use crate::{
    kind::{B32, B64, Bound},
    snippet::{SM_90, Snippet},
};

const FAMILY: &str = "cluster";

const BLOCK: usize = 128;

fn snippet(name: &str, cluster: u32, body: &str) -> Snippet {
    Snippet::new(FAMILY, name)
        .since(SM_90)
        .cluster(cluster)
        .launch(16, BLOCK as u32)
        .takes(&[B32])
        .gives(B32, Bound::Bits)
        .shared(1024)
        .body(body)
}

/// Every thread gets the operand of the same thread of the next block of its cluster.
fn next(x: &[Vec<u64>], cluster: usize) -> Vec<Vec<u64>> {
    let of = |g: usize| {
        let (block, thread) = (g / BLOCK, g % BLOCK);
        let other = block / cluster * cluster + (block + 1) % cluster;
        x[0][other * BLOCK + thread]
    };
    vec![(0..x[0].len()).map(of).collect()]
}

const STORE: &str = "mov.u32 %r9, shared;\nmad.lo.u32 %r0, %tid_, 4, %r9;\nmov.u32 %r1, %cluster_ctarank;\nmov.u32 %r2, %cluster_nctarank;\nadd.u32 %r3, %r1, 1;\nrem.u32 %r3, %r3, %r2;\n";

const MEET: &str =
    "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n";

pub fn snippets() -> Vec<Snippet> {
    let mut all = Vec::new();
    for cluster in [1u32, 2, 4, 8] {
        all.push(
            snippet(
                &format!("mapa.shared::cluster.u32, ld.shared::cluster, {cluster} blocks"),
                cluster,
                &format!("{STORE}st.shared.b32 [%r0], %i0;\n{MEET}mapa.shared::cluster.u32 %r4, %r0, %r3;\nld.shared::cluster.b32 %o0, [%r4];\n{MEET}"),
            )
            .refer_all(move |x| next(x, cluster as usize)),
        );
    }
    for (name, meet) in [
        (
            "barrier.cluster.arrive, wait",
            "barrier.cluster.arrive;\nbarrier.cluster.wait;\n",
        ),
        (
            "barrier.cluster.arrive.release, wait.acquire",
            "barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;\n",
        ),
        (
            "barrier.cluster.arrive.relaxed behind a fence",
            "fence.acq_rel.cluster;\nbarrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;\nfence.acq_rel.cluster;\n",
        ),
        (
            "barrier.cluster.arrive.aligned, wait.aligned",
            "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n",
        ),
    ] {
        all.push(
            snippet(
                name,
                4,
                &format!("{STORE}st.shared.b32 [%r0], %i0;\n{meet}mapa.shared::cluster.u32 %r4, %r0, %r3;\nld.shared::cluster.u32 %o0, [%r4];\n{meet}"),
            )
            .refer_all(|x| next(x, 4)),
        );
    }
    all.push(
        snippet(
            "mapa.u64, generic loads",
            4,
            &format!("{STORE}st.shared.b32 [%r0], %i0;\n{MEET}cvt.u64.u32 %q0, %r0;\ncvta.shared.u64 %q0, %q0;\nmapa.u64 %q1, %q0, %r3;\nld.b32 %o0, [%q1];\n{MEET}"),
        )
        .refer_all(|x| next(x, 4)),
    );
    all.push(
        snippet(
            "mapa.shared::cluster.u64",
            2,
            &format!("{STORE}st.shared.b32 [%r0], %i0;\n{MEET}cvt.u64.u32 %q0, %r0;\nmapa.shared::cluster.u64 %q1, %q0, %r3;\nld.shared::cluster.b32 %o0, [%q1];\n{MEET}"),
        )
        .refer_all(|x| next(x, 2)),
    );
    // Into the next block, so that each gets what the one before has.
    all.push(
        snippet(
            "st.shared::cluster",
            4,
            &format!("{STORE}{MEET}mapa.shared::cluster.u32 %r4, %r0, %r3;\nst.shared::cluster.b32 [%r4], %i0;\n{MEET}ld.shared.b32 %o0, [%r0];"),
        )
        .refer_all(|x| {
            let of = |g: usize| {
                let block = g / BLOCK;
                x[0][(block / 4 * 4 + (block + 3) % 4) * BLOCK + g % BLOCK]
            };
            vec![(0..x[0].len()).map(of).collect()]
        }),
    );
    all.push(
        snippet(
            "atom.shared::cluster.add, on the first block",
            4,
            &format!(
                "{STORE}setp.eq.u32 %p0, %tid_, 0;\n@%p0 st.shared.b32 [%r9], 0;\n{MEET}mapa.shared::cluster.u32 %r4, %r9, 0;\natom.shared::cluster.add.u32 %r5, [%r4], %i0;\nred.shared::cluster.add.u32 [%r4], 1;\n{MEET}ld.shared::cluster.b32 %o0, [%r4];\n{MEET}"
            ),
        )
        .refer_all(|x| {
            let cluster = |values: &[u64]| {
                let sum = values.iter().fold(values.len() as u64, |s, v| (s + v) & 0xffff_ffff);
                vec![sum; values.len()]
            };
            vec![x[0].chunks(4 * BLOCK).flat_map(cluster).collect()]
        }),
    );
    all.push(
        snippet(
            "getctarank.shared::cluster",
            8,
            &format!("{STORE}{MEET}mapa.shared::cluster.u32 %r4, %r0, %r3;\ngetctarank.shared::cluster.u32 %r5, %r4;\nadd.u32 %o0, %r5, %i0;\n{MEET}"),
        )
        .refer_all(|x| {
            let of = |(g, v): (usize, &u64)| (v + ((g / BLOCK + 1) % 8) as u64) & 0xffff_ffff;
            vec![x[0].iter().enumerate().map(of).collect()]
        }),
    );
    all.push(
        Snippet::new(FAMILY, "special registers of clusters")
            .since(SM_90)
            .cluster(4)
            .launch(16, 32)
            .gives(B32, Bound::Bits)
            .gives(B32, Bound::Bits)
            .gives(B32, Bound::Bits)
            .gives(B32, Bound::Bits)
            .gives(B32, Bound::Bits)
            .body("mov.u32 %o0, %cluster_ctaid.x;\nmov.u32 %o1, %cluster_nctaid.x;\nmov.u32 %o2, %clusterid.x;\nmov.u32 %o3, %nclusterid.x;\nmov.u32 %o4, %cluster_ctarank;")
            .refer_all(|_| {
                let of = |f: fn(u64) -> u64| (0..16 * 32).map(|g| f(g / 32)).collect();
                vec![of(|b| b % 4), of(|_| 4), of(|b| b / 4), of(|_| 4), of(|b| b % 4)]
            }),
    );
    remote_barriers(&mut all);
    all
}

/// A barrier in each block, on which the block before arrives, or to which it sends bytes.
fn remote_barriers(all: &mut Vec<Snippet>) {
    let setup = |count: u32| {
        format!(
            "{STORE}add.u32 %r10, %r9, 896;\nsetp.eq.u32 %p9, %tid_, 0;\n@%p9 mbarrier.init.shared.b64 [%r10], {count};\n@%p9 fence.mbarrier_init.release.cluster;\n{MEET}\
             mapa.shared::cluster.u32 %r4, %r0, %r3;\nmapa.shared::cluster.u32 %r5, %r10, %r3;\n"
        )
    };
    let wait = format!(
        "spin_c:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p0, [%r10], 0;\n@!%p0 bra spin_c;\nld.shared.b32 %o0, [%r0];\n{MEET}@%p9 mbarrier.inval.shared.b64 [%r10];"
    );
    let before = |x: &[Vec<u64>]| {
        let of = |g: usize| {
            let block = g / BLOCK;
            x[0][(block / 4 * 4 + (block + 3) % 4) * BLOCK + g % BLOCK]
        };
        vec![(0..x[0].len()).map(of).collect()]
    };
    all.push(
        snippet(
            "mbarrier.arrive.release.cluster on another block",
            4,
            &format!("{}st.shared::cluster.b32 [%r4], %i0;\nmbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];\n{wait}", setup(128)),
        )
        .refer_all(before),
    );
    let expect = "@%p9 mbarrier.arrive.expect_tx.shared.b64 _, [%r10], 512;\n";
    all.push(
        snippet(
            "st.async.shared::cluster",
            4,
            &format!("{}{expect}st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r4], %i0, [%r5];\n{wait}", setup(1)),
        )
        .refer_all(before),
    );
    all.push(
        snippet(
            "red.async.shared::cluster.add",
            4,
            &format!(
                "{STORE}st.shared.b32 [%r0], 5;\nadd.u32 %r10, %r9, 896;\nsetp.eq.u32 %p9, %tid_, 0;\n@%p9 mbarrier.init.shared.b64 [%r10], 1;\n@%p9 fence.mbarrier_init.release.cluster;\n{MEET}\
                 mapa.shared::cluster.u32 %r4, %r0, %r3;\nmapa.shared::cluster.u32 %r5, %r10, %r3;\n{expect}red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r4], %i0, [%r5];\n{wait}"
            ),
        )
        .refer_all(move |x| {
            let mut all = before(x);
            all[0].iter_mut().for_each(|v| *v = (*v + 5) & 0xffff_ffff);
            all
        }),
    );
    // A bulk copy from shared memory to the next block's.
    all.push(
        snippet(
            "cp.async.bulk.shared::cluster.shared::cta",
            4,
            &format!(
                "{}add.u32 %r6, %r0, 0;\nst.shared.b32 [%r0], %i0;\nmov.u32 %r12, buffer_to;\nfence.proxy.async;\n{MEET}{expect}mapa.shared::cluster.u32 %r13, %r12, %r3;\n\
                 @%p9 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r13], [%r9], 512, [%r5];\n\
                 spin_c:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p0, [%r10], 0;\n@!%p0 bra spin_c;\nmad.lo.u32 %r14, %tid_, 4, %r12;\nld.shared.b32 %o0, [%r14];\n{MEET}@%p9 mbarrier.inval.shared.b64 [%r10];",
                setup(1)
            ),
        )
        .globals(".shared .align 128 .b8 buffer_to[512];")
        .refer_all(before),
    );
    // One block's bytes to all blocks at once.
    all.push(
        Snippet::new(FAMILY, "cp.async.bulk with multicast::cluster")
            .since(crate::snippet::SM_90A)
            .cluster(4)
            .launch(16, BLOCK as u32)
            .raw(B64, 4 * 64)
            .gives(B32, Bound::Bits)
            .shared(1024)
            .body(format!(
                "{STORE}add.u32 %r10, %r9, 896;\nsetp.eq.u32 %p9, %tid_, 0;\n@%p9 mbarrier.init.shared.b64 [%r10], 1;\n@%p9 fence.mbarrier_init.release.cluster;\n@%p9 mbarrier.arrive.expect_tx.shared.b64 _, [%r10], 512;\n{MEET}\
                 mov.u32 %r11, %clusterid.x;\nmad.wide.u32 %q0, %r11, 512, %raw;\nsetp.eq.and.u32 %p1, %r1, 1, %p9;\nmov.b16 %h0, 15;\n\
                 @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r9], [%q0], 512, [%r10], %h0;\n{wait}"
            )),
    );
}
