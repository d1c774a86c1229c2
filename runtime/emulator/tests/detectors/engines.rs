//! Matrix instructions, copies and atomics as parties of what `order` and `spaces` look at.

use super::{
    kernel::{Kernel, one},
    participation::{PRODUCT, PROXY_FENCE, TILES},
};
use tesserine_emulator::FaultKind::{
    Misaligned, MissingProxyFence, OutOfBounds, Race, UninitializedMemory,
};

#[test]
fn a_matrix_of_which_a_row_is_missing() {
    // Each lane writes a row of 16 bytes; lane 17 does not.
    let body = "
        shl.b32 %r10, %r0, 4;
        add.u32 %r10, %r1, %r10;
        setp.ne.u32 %p1, %r0, 17;
        wrong| @%p1 st.shared.v4.b32 [%r10], {%r0, %r0, %r0, %r0};
        right| st.shared.v4.b32 [%r10], {%r0, %r0, %r0, %r0};
        bar.warp.sync 0xffffffff;
        ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r11, %r12, %r13, %r14}, [%r10]; <-
        st.global.b32 [%rd6], %r13;";
    let kernel = Kernel::new(32, body);
    kernel.detects(UninitializedMemory, &[(0, one(17))], &["nothing wrote it"]);
    // Lane 4 i + j has word j of row 16 + i in its third register.
    let rows: Vec<u32> = (0..32).map(|t| 16 + t / 4).collect();
    assert_eq!(kernel.clean()[..32], rows);
}

#[test]
fn matrices_of_other_warps() {
    let body = "
        shl.b32 %r10, %r0, 4;
        add.u32 %r10, %r1, %r10;
        st.shared.v4.b32 [%r10], {%r0, %r0, %r0, %r0}; <~
        right| bar.sync 0;
        xor.b32 %r11, %r10, 512;
        setp.eq.u32 %p1, %r5, 1;
        @!%p1 bra END;
        ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r12, %r13, %r14, %r15}, [%r11]; <-
        END:";
    Kernel::new(64, body).detects_pair(Race, &[(0, one(32))], &[(0, one(0))], &["shared"]);
    let body = "
        shl.b32 %r10, %r0, 4;
        add.u32 %r10, %r1, %r10;
        setp.eq.u32 %p1, %r5, 1;
        @%p1 bra READ;
        stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r10], {%r0, %r0, %r0, %r0}; <~
        READ:
        right| bar.sync 0;
        @!%p1 bra END;
        ld.shared.b32 %r11, [%r1+16]; <-
        END:";
    Kernel::new(64, body).detects_pair(Race, &[(0, one(32))], &[(0, one(1))], &["shared"]);
    let body = "
        shl.b32 %r10, %r0, 4;
        add.u32 %r10, %r1, %r10;
        wrong| add.u32 %r10, %r10, 8;
        stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r10], {%r0, %r0, %r0, %r0}; <-";
    Kernel::new(32, body).detects(Misaligned, &[(0, one(0))], &["16"]);
    let body = "
        shl.b32 %r10, %r0, 4;
        add.u32 %r10, %r1, %r10;
        wrong| add.u32 %r10, %r10, 15888;
        stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r10], {%r0, %r0, %r0, %r0}; <-";
    // 16384 - 15888 = 31 rows.
    Kernel::new(32, body).detects(OutOfBounds, &[(0, one(31))], &["shared"]);
}

#[test]
fn counters_that_nothing_set() {
    let body = "
        setp.eq.u32 %p1, %r0, 0;
        mov.b32 %r10, 0;
        right| @%p1 st.shared.b32 [%r1], %r10;
        bar.sync 0;
        atom.shared.add.u32 %r11, [%r1], 1; <-
        bar.sync 0;
        ld.shared.b32 %r12, [%r1];
        st.global.b32 [%rd6], %r12;";
    let kernel = Kernel::new(64, body);
    kernel.detects(UninitializedMemory, &[(0, one(32))], &["updates"]);
    assert_eq!(kernel.clean()[7], 64);
}

#[test]
fn atomics_and_weak_accesses() {
    let body = "
        setp.eq.u32 %p1, %r0, 0;
        mov.b32 %r10, 0;
        @%p1 st.shared.b32 [%r1], %r10; <~
        right| bar.sync 0;
        atom.shared.add.u32 %r11, [%r1], 1; <-";
    let kernel = Kernel::new(32, body);
    let fault = kernel.fault();
    assert_eq!(fault.kind, Race, "{fault}");
    assert_eq!(fault.threads[0].thread, 1, "{fault}");
    kernel.clean();
}

#[test]
fn exchanges_of_a_warp_order_no_memory() {
    for exchange in [
        "shfl.sync.bfly.b32 %r20, %r0, 1, 31, 0xffffffff;",
        "vote.sync.ballot.b32 %r20, %p5, 0xffffffff;",
        "redux.sync.add.u32 %r20, %r0, 0xffffffff;",
    ] {
        let body = format!(
            "setp.eq.u32 %p5, %r0, 1;
            st.shared.b32 [%r3], %r0; <~
            {exchange}
            right| bar.warp.sync 0xffffffff;
            xor.b32 %r10, %r3, 4;
            ld.shared.b32 %r11, [%r10]; <-"
        );
        Kernel::new(32, body).detects_pair(Race, &[(0, one(0))], &[(0, one(1))], &["reads"]);
    }
}

#[test]
fn volatile_words_order_nothing_else() {
    // They do not race with each other, and what was written before them is not released.
    let body = "
        setp.eq.u32 %p1, %r5, 1;
        setp.eq.u32 %p3, %r0, 0;
        mov.b32 %r10, 0;
        mov.b32 %r12, 1;
        @%p3 st.shared.b32 [%r1+512], %r10;
        bar.sync 0;
        @%p1 bra SEE;
        st.shared.b32 [%r3], %r0; <~
        right| fence.acq_rel.cta;
        right| bar.warp.sync 0xffffffff;
        right| fence.acq_rel.cta;
        @%p3 st.volatile.shared.b32 [%r1+512], %r12;
        bra END;
        SEE:
        ld.volatile.shared.b32 %r11, [%r1+512];
        setp.eq.u32 %p2, %r11, 0;
        @%p2 bra SEE;
        right| fence.acq_rel.cta;
        ld.shared.b32 %r11, [%r3+-128]; <-
        END:";
    Kernel::new(64, body).detects_pair(Race, &[(0, one(32))], &[(0, one(0))], &["shared"]);
}

#[test]
fn a_product_of_what_nothing_wrote() {
    let tiles = TILES.replace("FENCE", PROXY_FENCE).replace(
        "setp.lt.u32 %p9, %r21, 20;",
        "wrong| setp.lt.u32 %p9, %r21, 17;\nright| setp.lt.u32 %p9, %r21, 18;",
    );
    let body = format!(
        "{tiles}
        {PRODUCT}
        wgmma.commit_group.sync.aligned;
        wgmma.wait_group.sync.aligned 0;"
    );
    let kernel = Kernel::new(128, body);
    let fault = kernel.fault();
    assert_eq!(fault.kind, UninitializedMemory, "{fault}");
    let place = fault.place.as_ref().expect("a place");
    assert!(place.instruction.starts_with("wgmma.mma_async"), "{fault}");
    kernel.clean();
}

#[test]
fn operands_that_are_written_under_a_product() {
    let tiles = TILES.replace("FENCE", PROXY_FENCE);
    let body = format!(
        "{tiles}
        {PRODUCT} <~
        wgmma.commit_group.sync.aligned;
        wrong| st.shared.b32 [%r3], %r20;
        wgmma.wait_group.sync.aligned 0;
        right| bar.sync 0;
        st.shared.b32 [%r3], %r20;"
    );
    let kernel = Kernel::new(128, body);
    let fault = kernel.fault();
    assert_eq!(fault.kind, Race, "{fault}");
    assert_eq!(fault.notes.len(), 1, "{fault}");
    kernel.clean();
}

/// Thread 0 copies 256 bytes from `FROM` to shared memory; all wait and read.
const LOAD: &str = "
        setp.ne.u32 %p1, %r0, 0;
        BEFORE
        @%p1 bra MADE;
        mbarrier.init.shared::cta.b64 [%r1+1024], 1;
        fence.mbarrier_init.release.cluster;
        MADE:
        bar.sync 0;
        @%p1 bra WAIT;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+1024], 256;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], 256, [%r1+1024]; <-
        WAIT:
        mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1+1024], 0;
        @!%p2 bra WAIT;
        ld.shared.b32 %r10, [%r3];
        st.global.b32 [%rd6], %r10;";

#[test]
fn a_bulk_copy_over_what_threads_wrote() {
    let body = LOAD.replace(
        "BEFORE",
        "st.shared.b32 [%r3], %r0; <~
        right| fence.proxy.async.shared::cta;",
    );
    let kernel = Kernel::new(64, body);
    kernel.detects_pair(
        MissingProxyFence,
        &[(0, one(0))],
        &[(0, one(0))],
        &["async proxy"],
    );
}

#[test]
fn a_bulk_copy_of_what_threads_wrote() {
    let body = LOAD.replace(
        "BEFORE",
        "st.global.b32 [%rd5], %r0; <~
        right| fence.proxy.async;",
    );
    let kernel = Kernel::new(64, body);
    kernel.detects_pair(
        MissingProxyFence,
        &[(0, one(0))],
        &[(0, one(0))],
        &["global", "async proxy"],
    );
    assert_eq!(kernel.clean()[..64], (0..64).collect::<Vec<u32>>());
}

#[test]
fn a_bulk_store_of_what_nothing_wrote() {
    let body = "
        setp.lt.u32 %p1, %r0, 63;
        wrong| @%p1 st.shared.b32 [%r3], %r0;
        right| st.shared.b32 [%r3], %r0;
        fence.proxy.async.shared::cta;
        bar.sync 0;
        setp.ne.u32 %p1, %r0, 0;
        @%p1 bra END;
        cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 256; <-
        cp.async.bulk.commit_group;
        cp.async.bulk.wait_group 0;
        END:";
    Kernel::new(64, body).detects(
        UninitializedMemory,
        &[(0, one(0))],
        &["asynchronous", "0x4fc"],
    );
}

#[test]
fn what_a_bulk_store_wrote() {
    // To wait until the source was read is enough for the source, and not for the destination.
    let body = "
        st.shared.b32 [%r3], %r0;
        fence.proxy.async.shared::cta;
        bar.sync 0;
        setp.ne.u32 %p1, %r0, 0;
        @%p1 bra END;
        cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 256; <~
        cp.async.bulk.commit_group;
        wrong| cp.async.bulk.wait_group.read 0;
        right| cp.async.bulk.wait_group 0;
        END:
        bar.sync 0;
        ld.global.b32 %r10, [%rd6]; <-";
    let kernel = Kernel::new(64, body);
    let fault = kernel.detects(Race, &[(0, one(0))], &["global"]);
    assert!(fault.notes[0].message.contains("asynchronous"), "{fault}");
}

#[test]
fn copies_of_words_over_what_is_still_read() {
    let body = "
        st.shared.b32 [%r3], %r0;
        bar.sync 0;
        xor.b32 %r10, %r3, 128;
        ld.shared.b32 %r11, [%r10];
        right| bar.sync 0;
        cp.async.ca.shared.global [%r3], [%rd5], 4;
        cp.async.wait_all;
        bar.sync 0;
        ld.shared.b32 %r12, [%r10];
        st.global.b32 [%rd6], %r11;";
    let kernel = Kernel::new(64, body);
    let fault = kernel.fault();
    assert_eq!(fault.kind, Race, "{fault}");
    let flipped: Vec<u32> = (0..64).map(|t| t ^ 32).collect();
    assert_eq!(kernel.clean()[..64], flipped);
}

#[test]
fn copies_of_words_that_reach_too_far() {
    let body = "
        wrong| cp.async.cg.shared.global [%r1+16376], [%rd0], 16; <-
        right| cp.async.cg.shared.global [%r1+16368], [%rd0], 16;
        cp.async.wait_all;";
    let fault = Kernel::new(1, body).fault();
    assert!(matches!(fault.kind, OutOfBounds | Misaligned), "{fault}");
    let body = "
        wrong| cp.async.cg.shared.global [%r1], [%rd0+4096], 16; <-
        right| cp.async.cg.shared.global [%r1], [%rd0+4080], 16;
        cp.async.wait_all;";
    Kernel::new(1, body).detects(OutOfBounds, &[(0, one(0))], &["4096 bytes"]);
}
