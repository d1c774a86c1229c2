//! Kernels that do not end, and barriers that are left behind.

use super::kernel::{Kernel, one};
use tesserine_emulator::{
    Fault,
    FaultKind::{Barrier, Deadlock, StepLimit},
    Thread,
};

fn threads_of(fault: &Fault, word: &str) -> Vec<Thread> {
    let notes = fault.notes.iter().filter(|n| n.message.contains(word));
    notes.flat_map(|n| n.threads.clone()).collect()
}

fn numbers(fault: &Fault, word: &str) -> Vec<u32> {
    threads_of(fault, word).iter().map(|t| t.thread).collect()
}

#[test]
fn half_a_block_at_a_barrier() {
    // Three warps are to come; one leaves.
    let body = "
        setp.eq.u32 %p1, %r5, 2;
        wrong| @%p1 ret;
        bar.sync 3, 96;";
    let fault = Kernel::new(96, body).detects(Deadlock, &[], &["barrier 3", "64 of 96"]);
    let waiting: Vec<u32> = (0..64).collect();
    assert_eq!(numbers(&fault, "barrier 3"), waiting, "{fault}");
    assert!(fault.notes.iter().all(|n| n.place.is_some()), "{fault}");
    // A barrier of all does not wait for those that have left.
    let body = "
        setp.eq.u32 %p1, %r5, 2;
        @%p1 ret;
        bar.sync 3;";
    Kernel::new(96, body).clean();
}

#[test]
fn two_barriers_in_a_circle() {
    let body = "
        setp.eq.u32 %p1, %r5, 1;
        @%p1 bra OTHER;
        bar.sync 1, 64;
        bar.sync 2, 64;
        bra END;
        OTHER:
        wrong| bar.sync 2, 64;
        right| bar.sync 1, 64;
        wrong| bar.sync 1, 64;
        right| bar.sync 2, 64;
        END:";
    let fault = Kernel::new(64, body).detects(Deadlock, &[], &["32 of 64"]);
    assert_eq!(
        numbers(&fault, "barrier 1"),
        (0..32).collect::<Vec<u32>>(),
        "{fault}"
    );
    assert_eq!(
        numbers(&fault, "barrier 2"),
        (32..64).collect::<Vec<u32>>(),
        "{fault}"
    );
}

#[test]
fn an_mbarrier_that_nobody_arrives_at() {
    let body = "
        setp.ne.u32 %p1, %r0, 0;
        @%p1 bra MADE;
        wrong| mbarrier.init.shared::cta.b64 [%r1+64], 33;
        right| mbarrier.init.shared::cta.b64 [%r1+64], 32;
        MADE:
        bar.sync 0;
        setp.eq.u32 %p2, %r5, 0;
        @%p2 mbarrier.arrive.shared::cta.b64 _, [%r1+64];
        WAIT:
        mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r1+64], 0;
        @!%p3 bra WAIT;";
    let fault = Kernel::new(64, body).detects(Deadlock, &[], &["mbarrier at 0x440"]);
    assert_eq!(
        numbers(&fault, "mbarrier"),
        (0..64).collect::<Vec<u32>>(),
        "{fault}"
    );
}

#[test]
fn blocks_of_a_cluster_that_wait_for_each_other() {
    let body = "
        setp.eq.u32 %p1, %r2, 1;
        @%p1 bra OTHER;
        barrier.cluster.arrive;
        barrier.cluster.wait;
        ret;
        OTHER:
        mbarrier.init.shared::cta.b64 [%r1], 1;
        right| mbarrier.arrive.shared::cta.b64 _, [%r1];
        WAIT:
        mbarrier.test_wait.parity.shared::cta.b64 %p3, [%r1], 0;
        @!%p3 bra WAIT;
        barrier.cluster.arrive;
        barrier.cluster.wait;";
    let fault =
        Kernel::new(1, body)
            .cluster(2)
            .detects(Deadlock, &[(1, one(0))], &["cluster's barrier"]);
    assert_eq!(
        threads_of(&fault, "cluster's barrier")[0].block,
        [0, 0, 0],
        "{fault}"
    );
    assert!(fault.message.contains("the mbarrier at 0x400"), "{fault}");
    // Threads that have exited count as arrived.
    let body = "
        setp.eq.u32 %p1, %r2, 1;
        @%p1 ret;
        barrier.cluster.arrive;
        barrier.cluster.wait;";
    Kernel::new(40, body).cluster(2).clean();
}

#[test]
fn the_cluster_barrier_is_used_in_turn() {
    let body = "
        wrong| barrier.cluster.wait; <-
        barrier.cluster.arrive;
        barrier.cluster.wait;";
    Kernel::new(1, body)
        .cluster(2)
        .detects(Barrier, &[(0, one(0))], &["has not arrived"]);
    let body = "
        barrier.cluster.arrive;
        wrong| barrier.cluster.arrive; <-
        barrier.cluster.wait;";
    Kernel::new(1, body)
        .cluster(2)
        .detects(Barrier, &[(0, one(0))], &["arrives"]);
}

#[test]
fn an_mbarrier_that_is_left_behind() {
    let body = "
        mbarrier.init.shared::cta.b64 [%r1+8], 1; <-
        fence.proxy.async.shared::cta;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+8], 16;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+16], [%rd0], 16, [%r1+8];
        right| AGAIN:
        right| mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1+8], 0;
        right| @!%p2 bra AGAIN;
        right| mbarrier.inval.shared::cta.b64 [%r1+8];";
    let fault = Kernel::new(1, body).detects(Barrier, &[], &["0x408", "neither waited for"]);
    assert!(fault.message.contains("nor invalidated"), "{fault}");
    // The memory is used for something else.
    let body = "
        mbarrier.init.shared::cta.b64 [%r1+8], 1;
        right| mbarrier.inval.shared::cta.b64 [%r1+8];
        st.shared.b32 [%r1+12], %r0; <-";
    Kernel::new(1, body).detects(Barrier, &[(0, one(0))], &["holds an mbarrier at 0x408"]);
}

#[test]
fn a_barrier_that_is_never_completed() {
    let body = "
        setp.eq.u32 %p1, %r5, 0;
        @%p1 bra FIRST;
        right| bar.sync 4, 64;
        bra END;
        FIRST:
        bar.arrive 4, 64; <-
        END:";
    Kernel::new(64, body).detects(Barrier, &[(0, 0..=31)], &["barrier 4", "32 of 64"]);
}

#[test]
fn more_arrivals_than_a_barrier_has() {
    let body = "
        setp.eq.u32 %p1, %r5, 0;
        wrong| bar.sync 1, 32;
        wrong| @%p1 bra END;
        bar.sync 1, 64;
        END:";
    let kernel = Kernel::new(96, body.replace("bar.sync 1, 64", "bar.sync 1, 96"));
    let fault = kernel.fault();
    assert!(matches!(fault.kind, Barrier | Deadlock), "{fault}");
    kernel.clean();
    // Counts that differ.
    let body = "
        setp.eq.u32 %p1, %r5, 0;
        setp.eq.u32 %p2, %r5, 2;
        @%p2 bra END;
        @%p1 bra FIRST;
        bar.sync 1, 64; <-
        bra END;
        FIRST:
        wrong| bar.sync 1, 96;
        right| bar.sync 1, 64;
        END:";
    let kernel = Kernel::new(96, body);
    let fault = kernel.fault();
    assert_eq!(fault.kind, Barrier, "{fault}");
    let kernel = Kernel::new(
        64,
        "
        setp.eq.u32 %p1, %r5, 0;
        @%p1 bra FIRST;
        bar.sync 1, 64;
        bra END;
        FIRST:
        bar.sync 1;
        END:",
    );
    kernel.clean();
}

#[test]
fn an_endless_loop() {
    let body = "
        mov.b32 %r10, 0;
        AGAIN:
        add.u32 %r10, %r10, 1;
        wrong| setp.ge.u32 %p1, %r10, 0;
        right| setp.lt.u32 %p1, %r10, 100;
        @%p1 bra AGAIN;";
    let kernel = Kernel::new(32, body).step_limit(20_000);
    let fault = kernel.detects(StepLimit, &[(0, 0..=31)], &["20000"]);
    let place = fault.place.as_ref().expect("a place");
    let line = place.source.as_ref().expect("a source").1;
    // The loop's lines.
    assert!((102..=106).contains(&line), "{fault}");
}

#[test]
fn a_flag_that_nobody_raises() {
    // Thread 40 alone raises the flag that all spin on.
    let body = "
        setp.eq.u32 %p1, %r0, 40;
        right| @%p1 st.relaxed.cta.shared.b32 [%r1], %r0;
        wrong| @%p1 st.relaxed.cta.shared.b32 [%r1], 0;
        SPIN:
        ld.relaxed.cta.shared.b32 %r10, [%r1];
        setp.eq.u32 %p2, %r10, 40;
        @!%p2 bra SPIN;";
    let body = body.replace("setp.eq.u32 %p1", "@!%p5 mov.b32 %r11, 0;\nsetp.eq.u32 %p1");
    let body = body.replace("@!%p5", "");
    let body = body.replace("[%r1], 0", "[%r1], %r11");
    let body = format!(
        "
        setp.eq.u32 %p6, %r0, 0;
        mov.b32 %r12, 0;
        @%p6 st.shared.b32 [%r1], %r12;
        bar.sync 0;
        {body}"
    );
    let kernel = Kernel::new(64, body).step_limit(50_000);
    let fault = kernel.fault();
    assert_eq!(fault.kind, StepLimit, "{fault}");
    assert!(
        fault.place.is_some() && !fault.threads.is_empty(),
        "{fault}"
    );
    kernel.clean();
}
