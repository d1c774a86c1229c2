//! Accesses that nothing orders: races in each space and between all kinds of parties, missing proxy fences, operations that were not
//! waited for.

use super::{
    kernel::{Kernel, one},
    participation::{PRODUCT, PROXY_FENCE, TILES},
};
use tesserine_emulator::FaultKind::{
    MissingProxyFence, OutOfBounds, Pending, Race, UninitializedMemory,
};

#[test]
fn shared_memory_without_a_barrier() {
    // Warp 0 reads in the next round what warp 1 writes in this one.
    let body = "
        st.shared.b32 [%r3], %r0;
        bar.sync 0;
        st.shared.b32 [%r3], %r0; <~
        right| bar.sync 0;
        xor.b32 %r10, %r3, 128;
        ld.shared.b32 %r11, [%r10]; <-
        st.global.b32 [%rd6], %r11;";
    let kernel = Kernel::new(64, body);
    // Warp 0 has read when warp 1 writes.
    let fault = kernel.fault();
    assert_eq!(fault.kind, Race, "{fault}");
    let flipped: Vec<u32> = (0..64).map(|t| t ^ 32).collect();
    assert_eq!(kernel.clean()[..64], flipped);
    // With the reads in one warp alone, the order is plain.
    let body = "
        setp.eq.u32 %p1, %r5, 0;
        @%p1 st.shared.b32 [%r1+256], %r0;
        bar.sync 0;
        @%p1 bra READ;
        st.shared.b32 [%r1+256], %r0;
        READ:";
    let body = body.replace("[%r1+256]", "[%r3+256]");
    Kernel::new(64, body).clean();
}

#[test]
fn a_read_after_a_write_of_another_warp() {
    let body = "
        st.shared.b32 [%r3], %r0; <~
        right| bar.sync 0;
        setp.eq.u32 %p1, %r5, 1;
        @%p1 ld.shared.b32 %r11, [%r1+20]; <-";
    Kernel::new(64, body).detects_pair(Race, &[(0, one(32))], &[(0, one(5))], &["shared", "reads"]);
}

#[test]
fn a_read_after_a_write_of_another_lane() {
    // Lanes of a warp are ordered by nothing but what synchronises them.
    let body = "
        st.shared.b32 [%r3], %r0; <~
        right| bar.warp.sync 0xffffffff;
        xor.b32 %r10, %r3, 4;
        ld.shared.b32 %r11, [%r10]; <-
        st.global.b32 [%rd6], %r11;";
    Kernel::new(32, body).detects_pair(Race, &[(0, one(0))], &[(0, one(1))], &["reads"]);
}

#[test]
fn a_write_after_a_read_of_another_warp() {
    // The slot is written again before all have read it.
    let body = "
        st.shared.b32 [%r3], %r0;
        bar.sync 0;
        ld.shared.b32 %r11, [%r1]; <~
        right| bar.sync 0;
        setp.eq.u32 %p1, %r0, 0;
        @%p1 st.shared.b32 [%r1], %r11; <-";
    let kernel = Kernel::new(64, body);
    let fault = kernel.detects(Race, &[(0, one(0))], &["writes", "another reads"]);
    assert_eq!(fault.notes[0].message, "the read", "{fault}");
}

#[test]
fn two_writes() {
    let body = "
        wrong| st.shared.b32 [%r1+4], %r0; <-
        right| st.shared.b32 [%r3+4], %r0;";
    let fault = Kernel::new(32, body).detects(Race, &[(0, one(1))], &["writes"]);
    assert_eq!(fault.notes[0].threads[0].thread, 0, "{fault}");
    // A byte in a word of others.
    let body = "
        mov.b16 %h1, 1;
        add.u32 %r10, %r1, %r0;
        wrong| and.b32 %r10, %r10, 0xfffffffe;
        st.shared.b8 [%r10], %h1; <-";
    Kernel::new(32, body).detects(Race, &[(0, one(1))], &["writes"]);
}

#[test]
fn global_memory_within_a_block() {
    let body = "
        st.global.b32 [%rd5], %r0; <~
        right| bar.sync 0;
        setp.eq.u32 %p1, %r5, 1;
        @%p1 ld.global.b32 %r11, [%rd0+40]; <-";
    Kernel::new(64, body).detects_pair(
        Race,
        &[(0, one(32))],
        &[(0, one(10))],
        &["global", "byte 40 of an allocation of 4096 bytes"],
    );
}

#[test]
fn global_memory_between_blocks() {
    let body = "
        setp.eq.u32 %p1, %r0, 3;
        mul.wide.u32 %rd10, %r2, 4;
        add.u64 %rd10, %rd1, %rd10;
        wrong| @%p1 st.global.b32 [%rd1], %r2; <-
        right| @%p1 st.global.b32 [%rd10], %r2;";
    let kernel = Kernel::new(32, body).grid(3);
    let fault = kernel.detects(Race, &[(1, one(3))], &["global", "writes"]);
    assert_eq!(fault.notes[0].threads[0].block, [0, 0, 0], "{fault}");
    assert_eq!(fault.notes[0].threads[0].thread, 3, "{fault}");
    // Atomics do not race with each other, but with weak accesses.
    let body = "
        red.global.add.u32 [%rd1], 1; <~
        wrong| ld.global.b32 %r10, [%rd1]; <-
        right| ld.relaxed.gpu.global.b32 %r10, [%rd1];";
    Kernel::new(2, body).detects_pair(Race, &[(0, one(0))], &[(0, one(1))], &["reads"]);
}

#[test]
fn memory_of_another_block_of_the_cluster() {
    let body = "
        st.shared.b32 [%r3], %r2; <~
        wrong| barrier.cluster.arrive.relaxed;
        right| barrier.cluster.arrive.release;
        barrier.cluster.wait.acquire;
        xor.b32 %r10, %r2, 1;
        mapa.shared::cluster.u32 %r11, %r3, %r10;
        ld.shared::cluster.b32 %r12, [%r11]; <-
        barrier.cluster.arrive;
        barrier.cluster.wait;";
    Kernel::new(32, body).cluster(2).detects_pair(
        Race,
        &[(1, one(0))],
        &[(0, one(0))],
        &["shared"],
    );
}

#[test]
fn a_block_of_the_cluster_that_may_not_have_started() {
    let body = "
        right| barrier.cluster.arrive;
        right| barrier.cluster.wait;
        xor.b32 %r10, %r2, 1;
        mapa.shared::cluster.u32 %r11, %r3, %r10;
        st.shared::cluster.b32 [%r11], %r0; <-
        barrier.cluster.arrive;
        barrier.cluster.wait;";
    Kernel::new(32, body)
        .cluster(2)
        .detects(Race, &[(0, one(0))], &["has started"]);
}

#[test]
fn a_block_of_the_cluster_that_exits_early() {
    // Block 1 writes to block 0, which does not wait for that.
    let body = "
        barrier.cluster.arrive;
        barrier.cluster.wait;
        mov.b32 %r10, 0;
        mapa.shared::cluster.u32 %r11, %r3, %r10;
        setp.eq.u32 %p1, %r2, 1;
        @%p1 st.shared::cluster.b32 [%r11], %r0; <~
        right| barrier.cluster.arrive;
        right| barrier.cluster.wait;";
    let kernel = Kernel::new(32, body).cluster(2);
    // In this order block 1 is the one that goes on first, and has written when block 0 exits.
    let fault = kernel.fault();
    assert_eq!(fault.kind, Race, "{fault}");
    assert!(fault.message.contains("exits"), "{fault}");
    assert_eq!(fault.threads[0].block, [0, 0, 0], "{fault}");
    assert_eq!(fault.notes[0].threads[0].block, [1, 0, 0], "{fault}");
    kernel.clean();
    // In another, block 0 is gone.
    let body = "
        barrier.cluster.arrive;
        barrier.cluster.wait;
        mov.b32 %r10, 1;
        mapa.shared::cluster.u32 %r11, %r3, %r10;
        setp.eq.u32 %p1, %r2, 0;
        @%p1 ld.shared::cluster.b32 %r12, [%r11];
        right| barrier.cluster.arrive;
        right| barrier.cluster.wait;"
        .replace("mov.b32 %r10, 1;", "st.shared.b32 [%r3], %r0;\nbarrier.cluster.arrive;\nbarrier.cluster.wait;\nmov.b32 %r10, 1;");
    let kernel = Kernel::new(32, body).cluster(2);
    let fault = kernel.fault();
    assert!(matches!(fault.kind, OutOfBounds | Race), "{fault}");
    assert!(fault.message.contains("exit"), "{fault}");
    kernel.clean();
}

#[test]
fn named_barriers_order_their_own_threads_alone() {
    // Warps 0 and 1 meet at barrier 1, warps 2 and 3 at barrier 2; each reads a word of its partner's, or of the other pair's.
    let body = "
        st.shared.b32 [%r3], %r0; <~
        shr.u32 %r10, %r5, 1;
        add.u32 %r10, %r10, 1;
        barrier.sync %r10, 64;
        wrong| xor.b32 %r11, %r3, 256;
        right| xor.b32 %r11, %r3, 128;
        setp.ge.u32 %p1, %r5, 2;
        @%p1 ld.shared.b32 %r12, [%r11]; <-";
    // The last of a pair to arrive goes on first.
    Kernel::new(128, body).detects_pair(Race, &[(0, one(96))], &[(0, one(32))], &["reads"]);
}

#[test]
fn arrivals_learn_nothing() {
    // Warp 0 arrives and goes on; only those that wait may read.
    let body = "
        setp.ge.u32 %p1, %r5, 1;
        st.shared.b32 [%r3], %r0;
        @%p1 bra LATER;
        wrong| bar.arrive 1, 64;
        right| bar.sync 1, 64;
        ld.shared.b32 %r11, [%r3+128];
        bra END;
        LATER:
        bar.sync 1, 64;
        END:";
    let kernel = Kernel::new(64, body);
    let fault = kernel.fault();
    assert!(matches!(fault.kind, Race | UninitializedMemory), "{fault}");
    kernel.clean();
}

/// Warp 1 produces a word a lane in each of two rounds, warp 0 consumes it; mbarriers of 32 arrivals at 1024 (full) and 1032 (empty).
const PIPE: &str = "
        setp.ne.u32 %p1, %r0, 0;
        @%p1 bra MADE;
        mbarrier.init.shared::cta.b64 [%r1+1024], 32;
        mbarrier.init.shared::cta.b64 [%r1+1032], 32;
        MADE:
        bar.sync 0;
        shl.b32 %r10, %r4, 2;
        add.u32 %r10, %r1, %r10;
        mov.b32 %r11, 0;
        mov.b32 %r12, 0;
        setp.eq.u32 %p2, %r5, 0;
        @%p2 bra CONSUME;
        PRODUCE:
        xor.b32 %r13, %r11, 1;
        EMPTY:
        LOOK_EMPTY mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r1+1032], %r13;
        RETRY_EMPTY
        add.u32 %r14, %r11, %r4;
        st.shared.b32 [%r10], %r14; WRITE
        mbarrier.arrive.shared::cta.b64 _, [%r1+1024];
        add.u32 %r11, %r11, 1;
        setp.lt.u32 %p4, %r11, 2;
        @%p4 bra PRODUCE;
        bra END;
        CONSUME:
        FULL:
        LOOK_FULL mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r1+1024], %r11;
        RETRY_FULL
        ld.shared.b32 %r14, [%r10]; READ
        add.u32 %r12, %r12, %r14;
        ARRIVE
        add.u32 %r11, %r11, 1;
        setp.lt.u32 %p4, %r11, 2;
        @%p4 bra CONSUME;
        st.global.b32 [%rd6], %r12;
        END:
        bar.sync 0;";

fn pipe(changes: &[(&str, &str)]) -> String {
    let mut body = PIPE.to_owned();
    for (name, line) in changes {
        body = body.replace(name, line);
    }
    let rest = [
        ("RETRY_EMPTY", "@!%p3 bra EMPTY;"),
        ("LOOK_EMPTY", ""),
        ("LOOK_FULL", ""),
        ("RETRY_FULL", "@!%p3 bra FULL;"),
        ("ARRIVE", "mbarrier.arrive.shared::cta.b64 _, [%r1+1032];"),
        ("WRITE", ""),
        ("READ", ""),
    ];
    for (name, line) in rest {
        body = body.replace(name, line);
    }
    body
}

#[test]
fn a_slot_that_is_written_before_it_was_read() {
    let body = pipe(&[
        ("LOOK_EMPTY", "wrong| nanosleep.u32 20;\nright| "),
        ("RETRY_EMPTY", "right| @!%p3 bra EMPTY;"),
        ("WRITE", "<-"),
        ("READ", "<~"),
    ]);
    let kernel = Kernel::new(64, body);
    let fault = kernel.fault();
    assert_eq!(fault.kind, Race, "{fault}");
    let sums: Vec<u32> = (0..32).map(|t| 2 * t + 1).collect();
    assert_eq!(kernel.clean()[..32], sums);
}

#[test]
fn a_slot_that_is_read_before_it_was_written() {
    let kernel = Kernel::new(
        64,
        pipe(&[
            ("LOOK_FULL", "right|"),
            ("RETRY_FULL", "right| @!%p3 bra FULL;"),
        ]),
    );
    let fault = kernel.fault();
    assert!(matches!(fault.kind, Race | UninitializedMemory), "{fault}");
    kernel.clean();
}

#[test]
fn copies_of_words_that_are_not_waited_for() {
    let body = "
        cp.async.ca.shared.global [%r3], [%rd5], 4; <~
        cp.async.commit_group;
        wrong| cp.async.wait_group 1;
        right| cp.async.wait_group 0;
        ld.shared.b32 %r10, [%r3]; <-
        st.global.b32 [%rd6], %r10;";
    Kernel::new(32, body).detects_pair(Race, &[(0, one(0))], &[(0, one(0))], &["asynchronous"]);
    // The thread's own wait is no other's.
    let body = "
        cp.async.ca.shared.global [%r3], [%rd5], 4; <~
        cp.async.wait_all;
        right| bar.sync 0;
        setp.eq.u32 %p1, %r5, 1;
        @%p1 ld.shared.b32 %r10, [%r1]; <-";
    Kernel::new(64, body).detects_pair(Race, &[(0, one(32))], &[(0, one(0))], &["asynchronous"]);
}

/// Thread 0 copies 128 bytes to shared memory, and each thread reads its word after `WAIT`.
const BULK: &str = "
        setp.ne.u32 %p1, %r0, 0;
        @%p1 bra MADE;
        mbarrier.init.shared::cta.b64 [%r1+1024], 1;
        fence.proxy.async.shared::cta;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+1024], 128;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], 128, [%r1+1024]; <~
        MADE:
        bar.sync 0;
        AGAIN:
        mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1+1024], 0;
        RETRY
        ld.shared.b32 %r10, [%r3]; <-
        st.global.b32 [%rd6], %r10;";

#[test]
fn a_bulk_copy_that_is_not_waited_for() {
    let body = BULK
        .replace("AGAIN:", "right| AGAIN:")
        .replace("mbarrier.try_wait", "right| mbarrier.try_wait")
        .replace("RETRY", "right| @!%p2 bra AGAIN;");
    let kernel = Kernel::new(32, body);
    kernel.detects_pair(
        Race,
        &[(0, one(0))],
        &[(0, one(0))],
        &["asynchronous operation"],
    );
}

#[test]
fn a_bulk_copy_over_what_is_still_read() {
    let body = "
        st.shared.b32 [%r3], %r0;
        setp.ne.u32 %p1, %r0, 0;
        @!%p1 mbarrier.init.shared::cta.b64 [%r1+1024], 1;
        fence.proxy.async;
        bar.sync 0;
        ld.shared.b32 %r10, [%r1]; <~
        right| bar.sync 0;
        @%p1 bra WAIT;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+1024], 128;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], 128, [%r1+1024]; <-
        WAIT:
        mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1+1024], 0;
        @!%p2 bra WAIT;";
    let kernel = Kernel::new(64, body);
    let fault = kernel.detects(Race, &[(0, one(0))], &["asynchronous", "another reads"]);
    assert_eq!(fault.notes[0].message, "the read", "{fault}");
}

const OUT: &str = "
        st.shared.b32 [%r3], %r0; <~
        FENCE
        bar.sync 0;
        setp.ne.u32 %p1, %r0, 0;
        @%p1 bra END;
        cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 256; <-
        cp.async.bulk.commit_group;
        WAIT
        END:";

#[test]
fn a_bulk_store_without_a_proxy_fence() {
    let body = OUT
        .replace("FENCE", "right| fence.proxy.async.shared::cta;")
        .replace("WAIT", "cp.async.bulk.wait_group.read 0;");
    let kernel = Kernel::new(64, body);
    kernel.detects_pair(
        MissingProxyFence,
        &[(0, one(0))],
        &[(0, one(0))],
        &["fence.proxy.async"],
    );
    assert_eq!(kernel.clean()[..64], (0..64).collect::<Vec<u32>>());
    // A fence of the thread that issues is none of those that wrote, if it comes before their writes are known.
    let body = "
        st.shared.b32 [%r3], %r0; <~
        wrong| fence.proxy.async.shared::cta;
        bar.sync 0;
        right| fence.proxy.async.shared::cta;
        setp.ne.u32 %p1, %r0, 0;
        @%p1 bra END;
        cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 256; <-
        cp.async.bulk.commit_group;
        cp.async.bulk.wait_group 0;
        END:"
        .replace("wrong| fence", "wrong| @%p2 fence")
        .replace("st.shared", "setp.eq.u32 %p2, %r0, 0;\nst.shared");
    Kernel::new(64, body).detects_pair(
        MissingProxyFence,
        &[(0, one(0))],
        &[(0, one(1))],
        &["fence.proxy.async"],
    );
}

#[test]
fn a_bulk_store_that_is_not_waited_for() {
    let body = OUT
        .replace("FENCE", "fence.proxy.async.shared::cta;")
        .replace("WAIT", "right| cp.async.bulk.wait_group.read 0;")
        .replace("<~", "");
    Kernel::new(64, body).detects(Pending, &[(0, one(0))], &["not waited for"]);
    // The source is written again.
    let body = OUT
        .replace("256; <-", "256; <~")
        .replace("%r0; <~", "%r0;")
        .replace("FENCE", "fence.proxy.async.shared::cta;")
        .replace(
            "WAIT",
            "wrong| st.shared.b32 [%r3], %r0; <-
            cp.async.bulk.wait_group.read 0;
            right| st.shared.b32 [%r3], %r0;",
        );
    Kernel::new(64, body).detects_pair(Race, &[(0, one(0))], &[(0, one(0))], &["asynchronous"]);
}

#[test]
fn a_product_without_a_proxy_fence() {
    let tiles = TILES
        .replace("FENCE", &format!("right| {PROXY_FENCE}"))
        .replace("[%r22], %r20;", "[%r22], %r20; <~");
    let body = format!(
        "{tiles}
        {PRODUCT} <-
        wgmma.commit_group.sync.aligned;
        wgmma.wait_group.sync.aligned 0;"
    );
    let kernel = Kernel::new(128, body);
    let fault = kernel.fault();
    assert_eq!(fault.kind, MissingProxyFence, "{fault}");
    assert_eq!(fault.notes.len(), 1, "{fault}");
    kernel.clean();
}

#[test]
fn an_accumulator_before_its_product_was_waited_for() {
    let tiles = TILES.replace("FENCE", PROXY_FENCE);
    for touch in [
        "st.global.f32 [%rd6], %f1;",
        "mov.f32 %f1, 0f00000000;",
        "add.f32 %f5, %f1, %f1;",
    ] {
        let body = format!(
            "{tiles}
            {PRODUCT}
            wgmma.commit_group.sync.aligned;
            wrong| wgmma.wait_group.sync.aligned 1;
            right| wgmma.wait_group.sync.aligned 0;
            {touch} <-
            wgmma.wait_group.sync.aligned 0;"
        );
        let kernel = Kernel::new(128, body);
        // The last warp to come makes the product.
        let fault = kernel.detects(Pending, &[(0, 96..=127)], &["wgmma.wait_group"]);
        let named = fault.message.contains("%f1") || touch.starts_with("st");
        assert!(named, "{fault}");
    }
}

/// Block 0 writes a word and raises a flag; block 1 sees the flag and reads the word.
const FLAG: &str = "
        setp.eq.u32 %p1, %r2, 1;
        @%p1 bra SEE;
        st.global.b32 [%rd1+64], 7;
        RAISE
        bra END;
        SEE:
        LOOK
        setp.ne.u32 %p2, %r10, 0;
        @!%p2 bra SEE;
        ld.global.b32 %r11, [%rd1+64];
        st.global.b32 [%rd1+128], %r11;
        END:";

#[test]
fn flags_between_blocks() {
    let raise = "st.release.gpu.global.b32 [%rd1], 1;";
    let look = "ld.acquire.gpu.global.b32 %r10, [%rd1];";
    let fenced_raise = "fence.acq_rel.gpu;\nst.relaxed.gpu.global.b32 [%rd1], 1;";
    let fenced_look = "ld.relaxed.gpu.global.b32 %r10, [%rd1];\nfence.acq_rel.gpu;";
    let atomic_raise = "fence.acq_rel.gpu;\nred.relaxed.gpu.global.add.u32 [%rd1], 1;";
    let of = |raise: &str, look: &str| {
        let body = FLAG.replace("RAISE", raise).replace("LOOK", look);
        Kernel::new(
            1,
            body.replace(
                "st.global.b32 [%rd1+64], 7",
                "mov.b32 %r11, 7;\nst.global.b32 [%rd1+64], %r11",
            ),
        )
        .grid(2)
    };
    for raise in [raise, fenced_raise, atomic_raise] {
        for look in [look, fenced_look] {
            assert_eq!(of(raise, look).clean()[32], 7);
        }
    }
    for (raise, look) in [
        ("st.relaxed.gpu.global.b32 [%rd1], 1;", look),
        (raise, "ld.relaxed.gpu.global.b32 %r10, [%rd1];"),
        ("red.relaxed.gpu.global.add.u32 [%rd1], 1;", fenced_look),
        // A store that releases nothing takes the place of one that did.
        (
            "st.release.gpu.global.b32 [%rd1], 0;\nst.relaxed.gpu.global.b32 [%rd1], 1;",
            look,
        ),
    ] {
        let fault = of(raise, look).fault();
        assert_eq!(fault.kind, Race, "{raise} {look}: {fault}");
        assert_eq!(fault.threads[0].block, [1, 0, 0], "{fault}");
    }
}

#[test]
fn scopes_that_leave_the_other_block_out() {
    let of = |raise: &str, look: &str| {
        let body = FLAG.replace("RAISE", raise).replace("LOOK", look);
        let value = "mov.b32 %r11, 7;\nst.global.b32 [%rd1+64], %r11";
        Kernel::new(1, body.replace("st.global.b32 [%rd1+64], 7", value)).grid(2)
    };
    let wide = "ld.acquire.gpu.global.b32 %r10, [%rd1];";
    for (raise, look) in [
        ("st.release.cta.global.b32 [%rd1], 1;", wide),
        (
            "st.release.gpu.global.b32 [%rd1], 1;",
            "ld.acquire.cta.global.b32 %r10, [%rd1];",
        ),
        ("red.release.cta.global.add.u32 [%rd1], 1;", wide),
        // The flags do not race, but what the fence orders is for the block alone.
        (
            "fence.acq_rel.cta;\nst.relaxed.gpu.global.b32 [%rd1], 1;",
            wide,
        ),
        (
            "membar.cta;\nred.relaxed.gpu.global.add.u32 [%rd1], 1;",
            wide,
        ),
        (
            "st.release.gpu.global.b32 [%rd1], 1;",
            "ld.relaxed.gpu.global.b32 %r10, [%rd1];\nfence.acq_rel.cta;",
        ),
    ] {
        let fault = of(raise, look).fault();
        assert_eq!(fault.kind, Race, "{raise} {look}: {fault}");
        assert_eq!(fault.threads[0].block, [1, 0, 0], "{fault}");
        assert_eq!(fault.notes[0].threads[0].block, [0, 0, 0], "{fault}");
    }
    // Within a block they are enough.
    let body = "
        setp.eq.u32 %p1, %r5, 1;
        mov.b32 %r12, 1;
        setp.eq.u32 %p3, %r4, 0;
        @%p1 bra SEE;
        st.global.b32 [%rd5], %r0;
        bar.warp.sync 0xffffffff;
        RAISE
        bra END;
        SEE:
        LOOK
        setp.ne.u32 %p2, %r10, 0;
        @!%p2 bra SEE;
        ld.global.b32 %r11, [%rd5+-128];
        st.global.b32 [%rd6], %r11;
        END:";
    for raise in [
        "@%p3 st.release.cta.global.b32 [%rd0+2048], %r12;",
        "fence.acq_rel.cta;\n@%p3 st.relaxed.cta.global.b32 [%rd0+2048], %r12;",
        "membar.cta;\n@%p3 red.relaxed.gpu.global.add.u32 [%rd0+2048], 1;",
        "@%p3 st.release.gpu.global.b32 [%rd0+2048], %r12;",
    ] {
        for look in [
            "ld.acquire.cta.global.b32 %r10, [%rd0+2048];",
            "ld.relaxed.cta.global.b32 %r10, [%rd0+2048];\nfence.acq_rel.cta;",
            "ld.acquire.gpu.global.b32 %r10, [%rd0+2048];",
            "ld.relaxed.gpu.global.b32 %r10, [%rd0+2048];\nfence.acq_rel.gpu;",
        ] {
            let body = body.replace("RAISE", raise).replace("LOOK", look);
            let out = Kernel::new(64, body).clean();
            assert_eq!(out[32..64], (0..32).collect::<Vec<u32>>(), "{raise} {look}");
        }
    }
}
