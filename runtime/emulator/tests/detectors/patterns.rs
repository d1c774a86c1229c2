//! Ways to synchronise that are right, and what is left of them without one of their fences.

use super::kernel::Kernel;
use tesserine_emulator::FaultKind::Race;

/// Four warps; warp 3 produces eight rounds into two slots of 128 words, the others consume them. Full slots are told by mbarriers at
/// 2048 and 2056 that the producer's lanes arrive at, empty ones by mbarriers at 2064 and 2072 with an arrival a consumer; consumers meet
/// at a named barrier of their own in each round.
const PIPELINE: &str = "
        setp.ne.u32 %p1, %r0, 0;
        @%p1 bra MADE;
        mbarrier.init.shared::cta.b64 [%r1+2048], 32;
        mbarrier.init.shared::cta.b64 [%r1+2056], 32;
        mbarrier.init.shared::cta.b64 [%r1+2064], 96;
        mbarrier.init.shared::cta.b64 [%r1+2072], 96;
        MADE:
        bar.sync 0;
        mov.b32 %r10, 0;
        mov.b32 %r11, 0;
        setp.eq.u32 %p2, %r5, 3;
        @!%p2 bra CONSUME;
        PRODUCE:
        and.b32 %r12, %r10, 1;
        shl.b32 %r13, %r12, 3;
        add.u32 %r13, %r13, %r1;
        shr.u32 %r14, %r10, 1;
        and.b32 %r14, %r14, 1;
        xor.b32 %r15, %r14, 1;
        EMPTY:
        mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r13+2064], %r15;
        @!%p3 bra EMPTY;
        mad.lo.u32 %r16, %r12, 512, %r1;
        mad.lo.u32 %r16, %r4, 4, %r16;
        mad.lo.u32 %r17, %r10, 100, %r4;
        st.shared.b32 [%r16], %r17;
        st.shared.b32 [%r16+128], %r17;
        st.shared.b32 [%r16+256], %r17;
        mbarrier.arrive.shared::cta.b64 _, [%r13+2048];
        add.u32 %r10, %r10, 1;
        setp.lt.u32 %p4, %r10, 8;
        @%p4 bra PRODUCE;
        bra END;
        CONSUME:
        and.b32 %r12, %r10, 1;
        shl.b32 %r13, %r12, 3;
        add.u32 %r13, %r13, %r1;
        shr.u32 %r14, %r10, 1;
        and.b32 %r14, %r14, 1;
        FULL:
        mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r13+2048], %r14;
        @!%p3 bra FULL;
        mad.lo.u32 %r16, %r12, 512, %r3;
        ld.shared.b32 %r17, [%r16];
        add.u32 %r11, %r11, %r17;
        wrong| @%p1 mbarrier.arrive.shared::cta.b64 _, [%r13+2064];
        wrong| @!%p1 mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%r13+2064];
        right| mbarrier.arrive.shared::cta.b64 _, [%r13+2064];
        bar.sync 1, 96;
        add.u32 %r10, %r10, 1;
        setp.lt.u32 %p4, %r10, 8;
        @%p4 bra CONSUME;
        st.global.b32 [%rd6], %r11;
        END:";

#[test]
fn a_pipeline_of_two_slots() {
    let kernel = Kernel::new(128, PIPELINE);
    let out = kernel.clean();
    let expected: Vec<u32> = (0..96)
        .map(|t| (0..8).map(|r| r * 100 + t % 32).sum())
        .collect();
    assert_eq!(out[..96], expected);
    // Thread 0's arrival releases nothing: the producer writes over what it may still read.
    let fault = kernel.fault();
    assert_eq!(fault.kind, Race, "{fault}");
    assert_eq!(fault.notes[0].message, "the read", "{fault}");
    assert_eq!(fault.notes[0].threads[0].thread, 0, "{fault}");
}

/// Each of four blocks writes its part and counts; the one that counts last adds the parts up (split-K).
const LAST_BLOCK: &str = "
        mad.lo.u32 %r10, %r2, 32, %r0;
        mul.wide.u32 %rd10, %r10, 4;
        add.u64 %rd10, %rd0, %rd10;
        add.u32 %r11, %r10, 1;
        st.global.b32 [%rd10], %r11;
        BEFORE
        bar.sync 0;
        setp.ne.u32 %p1, %r0, 0;
        @%p1 bra COUNTED;
        COUNT
        st.shared.b32 [%r1], %r12;
        COUNTED:
        bar.sync 0;
        ld.shared.b32 %r12, [%r1];
        setp.ne.u32 %p2, %r12, 3;
        @%p2 bra END;
        AFTER
        mov.b32 %r13, 0;
        ld.global.b32 %r14, [%rd5];
        add.u32 %r13, %r13, %r14;
        ld.global.b32 %r14, [%rd5+128];
        add.u32 %r13, %r13, %r14;
        ld.global.b32 %r14, [%rd5+256];
        add.u32 %r13, %r13, %r14;
        ld.global.b32 %r14, [%rd5+384];
        add.u32 %r13, %r13, %r14;
        st.global.b32 [%rd6], %r13;
        END:";

#[test]
fn the_last_block_adds_up() {
    let of = |before: &str, count: &str, after: &str| {
        let body = LAST_BLOCK
            .replace("BEFORE", before)
            .replace("COUNT\n", &format!("{count}\n"))
            .replace("AFTER", after);
        Kernel::new(32, body).grid(4)
    };
    let relaxed = "atom.relaxed.gpu.global.add.u32 %r12, [%rd0+1024], 1;";
    let ordered = "atom.acq_rel.gpu.global.add.u32 %r12, [%rd0+1024], 1;";
    let plain = "atom.global.add.u32 %r12, [%rd0+1024], 1;";
    let fence = "fence.acq_rel.gpu;";
    let around = format!("{fence}\n{relaxed}\n{fence}");
    let around_all = format!("membar.gl;\n{plain}\nmembar.gl;");
    let twice = format!("{fence}\n{ordered}");
    let expected: Vec<u32> = (0..32).map(|t| 4 * (t + 1) + 32 * 6).collect();
    for (before, count, after) in [
        ("", ordered, ""),
        ("", &*around, ""),
        ("", &*around_all, ""),
        ("", &*twice, ""),
    ] {
        assert_eq!(
            of(before, count, after).clean()[..32],
            expected,
            "{before} {count} {after}"
        );
    }
    for (before, count, after) in [
        ("", relaxed, ""),
        ("", plain, ""),
        // It releases, and does not acquire.
        (
            "",
            "atom.release.gpu.global.add.u32 %r12, [%rd0+1024], 1;",
            "",
        ),
        (
            "",
            "atom.acquire.gpu.global.add.u32 %r12, [%rd0+1024], 1;",
            "",
        ),
        (fence, relaxed, ""),
    ] {
        let fault = of(before, count, after).fault();
        assert_eq!(fault.kind, Race, "{before} {count} {after}: {fault}");
        assert_eq!(fault.threads[0].block, [3, 0, 0], "{fault}");
        assert_ne!(fault.notes[0].threads[0].block, [3, 0, 0], "{fault}");
    }
}

/// Every thread adds 1 to a word under a lock.
const LOCK: &str = "
        setp.ne.u32 %p1, %r0, 0;
        mov.b32 %r10, 0;
        @%p1 bra READY;
        st.shared.b32 [%r1], %r10;
        st.shared.b32 [%r1+4], %r10;
        READY:
        bar.sync 0;
        SPIN:
        ACQUIRE
        setp.ne.u32 %p2, %r11, 0;
        @%p2 bra SPIN;
        ld.shared.b32 %r12, [%r1+4];
        add.u32 %r12, %r12, 1;
        st.shared.b32 [%r1+4], %r12;
        RELEASE
        bar.sync 0;
        @%p1 bra END;
        ld.shared.b32 %r12, [%r1+4];
        st.global.b32 [%rd1], %r12;
        END:";

#[test]
fn a_spin_lock() {
    let of = |acquire: &str, release: &str| {
        Kernel::new(
            40,
            LOCK.replace("ACQUIRE", acquire).replace("RELEASE", release),
        )
    };
    let take = "atom.acquire.cta.shared.cas.b32 %r11, [%r1], 0, 1;";
    let give = "st.release.cta.shared.b32 [%r1], %r10;";
    let weak_take = "atom.relaxed.cta.shared.cas.b32 %r11, [%r1], 0, 1;";
    let weak_give = "st.relaxed.cta.shared.b32 [%r1], %r10;";
    let swap = "atom.release.cta.shared.exch.b32 %r11, [%r1], 0;";
    for (take, give) in [(take, give), (take, swap)] {
        assert_eq!(of(take, give).clean()[0], 40);
    }
    let fenced = of(
        &format!("{weak_take}\nmembar.cta;"),
        &format!("membar.cta;\n{weak_give}"),
    );
    assert_eq!(fenced.clean()[0], 40);
    for (take, give) in [(take, weak_give), (weak_take, give), (weak_take, weak_give)] {
        let fault = of(take, give).fault();
        assert_eq!(fault.kind, Race, "{take} {give}: {fault}");
    }
}

#[test]
fn halves_of_a_warp_that_work_for_each_other() {
    // The low half spins on an mbarrier that the high half arrives at, and the other way round: neither may starve.
    let body = "
        setp.ne.u32 %p1, %r0, 0;
        @%p1 bra MADE;
        mbarrier.init.shared::cta.b64 [%r1+1024], 16;
        mbarrier.init.shared::cta.b64 [%r1+1032], 16;
        MADE:
        bar.warp.sync 0xffffffff;
        setp.lt.u32 %p2, %r4, 16;
        @%p2 bra LOW;
        st.shared.b32 [%r3], %r0;
        mbarrier.arrive.shared::cta.b64 _, [%r1+1024];
        HIGH_WAIT:
        mbarrier.test_wait.parity.shared::cta.b64 %p3, [%r1+1032], 0;
        @!%p3 bra HIGH_WAIT;
        ld.shared.b32 %r10, [%r3+-64];
        bra END;
        LOW:
        mbarrier.test_wait.parity.shared::cta.b64 %p3, [%r1+1024], 0;
        @!%p3 bra LOW;
        ld.shared.b32 %r10, [%r3+64];
        add.u32 %r11, %r10, 100;
        st.shared.b32 [%r3], %r11;
        mbarrier.arrive.shared::cta.b64 _, [%r1+1032];
        END:
        st.global.b32 [%rd6], %r10;";
    let out = Kernel::new(32, body).clean();
    let expected: Vec<u32> = (0..32)
        .map(|t| if t < 16 { t + 16 } else { t + 100 })
        .collect();
    assert_eq!(out[..32], expected);
}

#[test]
fn spinning_threads_do_not_starve_those_between() {
    // Of three groups of a warp, the first in the text and the last spin until the one in the middle raises the flag.
    let body = "
        mov.b32 %r10, 0;
        setp.ne.u32 %p1, %r0, 0;
        @%p1 bra READY;
        st.shared.b32 [%r1], %r10;
        READY:
        bar.warp.sync 0xffffffff;
        mov.b32 %r12, 1;
        setp.lt.u32 %p2, %r4, 8;
        @%p2 bra FIRST;
        setp.lt.u32 %p2, %r4, 16;
        @%p2 bra MIDDLE;
        bra LAST;
        FIRST:
        ld.acquire.cta.shared.b32 %r11, [%r1];
        setp.eq.u32 %p3, %r11, 0;
        @%p3 bra FIRST;
        bra END;
        MIDDLE:
        add.u32 %r10, %r10, 1;
        setp.lt.u32 %p4, %r10, 5;
        @%p4 bra MIDDLE;
        st.release.cta.shared.b32 [%r1], %r12;
        bra END;
        LAST:
        ld.acquire.cta.shared.b32 %r11, [%r1];
        setp.eq.u32 %p3, %r11, 0;
        @%p3 bra LAST;
        END:
        st.global.b32 [%rd6], %r12;";
    assert_eq!(Kernel::new(32, body).step_limit(1 << 17).clean()[31], 1);
}

#[test]
fn an_arrival_that_does_not_wait_lets_others_go_on_at_once() {
    // Warp 0 completes the barrier, and then spins on what warp 1 writes after it.
    let body = "
        mov.b32 %r10, 0;
        mov.b32 %r12, 1;
        setp.ne.u32 %p1, %r0, 0;
        @%p1 bra READY;
        st.shared.b32 [%r1], %r10;
        READY:
        bar.sync 0;
        setp.eq.u32 %p2, %r5, 1;
        @%p2 bra WAITS;
        nanosleep.u32 100;
        bar.arrive 1, 64;
        SPIN:
        ld.acquire.cta.shared.b32 %r11, [%r1];
        setp.eq.u32 %p3, %r11, 0;
        @%p3 bra SPIN;
        bra END;
        WAITS:
        bar.sync 1, 64;
        st.release.cta.shared.b32 [%r1], %r12;
        END:
        st.global.b32 [%rd6], %r12;";
    let body = body.replace("st.release", "setp.eq.u32 %p4, %r4, 0;\n@%p4 st.release");
    assert_eq!(Kernel::new(64, body).step_limit(1 << 16).clean()[63], 1);
}

#[test]
fn a_cluster_that_meets_after_a_fence() {
    // A relaxed arrival releases what the fence did: mbarriers may be used from other blocks.
    let body = "
        setp.ne.u32 %p1, %r0, 0;
        @%p1 bra MADE;
        mbarrier.init.shared::cta.b64 [%r1], 32;
        right| fence.mbarrier_init.release.cluster;
        MADE:
        barrier.cluster.arrive.relaxed;
        barrier.cluster.wait.acquire;
        xor.b32 %r10, %r2, 1;
        mapa.shared::cluster.u32 %r11, %r1, %r10;
        mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r11];
        WAIT:
        mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r1], 0;
        @!%p2 bra WAIT;
        barrier.cluster.arrive;
        barrier.cluster.wait;";
    let kernel = Kernel::new(32, body).cluster(2);
    let fault = kernel.fault();
    assert_eq!(fault.kind, Race, "{fault}");
    kernel.clean();
}
