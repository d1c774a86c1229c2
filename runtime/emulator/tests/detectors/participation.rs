//! Threads that an instruction needs and that do not take part; traps.

use super::kernel::{Kernel, one};
use tesserine_emulator::FaultKind::{Operand, Participation, Trap};

#[test]
fn a_shuffle_of_half_a_warp_with_a_full_mask() {
    // The other half exchanges values elsewhere, so neither gets what it needs.
    let body = "
        mov.b32 %r10, 0;
        setp.lt.u32 %p1, %r4, 16;
        @%p1 bra LOW;
        wrong| shfl.sync.bfly.b32 %r10, %r0, 1, 31, 0xffffffff; <~
        right| shfl.sync.bfly.b32 %r10, %r0, 1, 31, 0xffff0000;
        bra END;
        LOW:
        wrong| shfl.sync.bfly.b32 %r10, %r0, 1, 31, 0xffffffff;
        right| shfl.sync.bfly.b32 %r10, %r0, 1, 31, 0x0000ffff;
        END:
        st.global.b32 [%rd6], %r10;";
    let kernel = Kernel::new(32, body);
    let fault = kernel.detects(Participation, &[(0, 16..=31)], &["not reached by all"]);
    assert_eq!(fault.notes.len(), 1, "{fault}");
    assert_eq!(fault.notes[0].threads.len(), 16, "{fault}");
    let exchanged: Vec<u32> = (0..32).map(|t| t ^ 1).collect();
    assert_eq!(kernel.clean()[..32], exchanged);
}

#[test]
fn a_mask_without_oneself() {
    let body = "
        wrong| mov.b32 %r10, 0xfffffff7;
        right| mov.b32 %r10, 0xffffffff;
        shfl.sync.idx.b32 %r11, %r0, 0, 31, %r10; <-
        st.global.b32 [%rd6], %r11;";
    Kernel::new(64, body).detects(Participation, &[(0, one(3))], &["0xfffffff7", "leaves out"]);
    for instruction in [
        "vote.sync.ballot.b32 %r11, %p1, %r10;",
        "match.any.sync.b32 %r11, %r0, %r10;",
        "redux.sync.add.u32 %r11, %r0, %r10;",
        "bar.warp.sync %r10;",
    ] {
        let body = format!(
            "setp.eq.u32 %p1, %r0, 1;
            wrong| mov.b32 %r10, 0xffff0000;
            right| mov.b32 %r10, 0xffffffff;
            {instruction} <-"
        );
        Kernel::new(32, body).detects(Participation, &[(0, one(0))], &["0xffff0000"]);
    }
}

#[test]
fn masks_that_differ() {
    // Lanes 0 to 15 name themselves; the others name all.
    let body = "
        setp.lt.u32 %p1, %r4, 16;
        wrong| selp.b32 %r10, 0x0000ffff, 0xffffffff, %p1;
        right| selp.b32 %r10, 0x0000ffff, 0xffff0000, %p1;
        shfl.sync.bfly.b32 %r11, %r0, 1, 31, %r10; <-
        st.global.b32 [%rd6], %r11;";
    Kernel::new(32, body).detects(Participation, &[(0, 16..=31)], &["mask"]);
}

#[test]
fn a_barrier_of_the_block_in_one_branch_of_a_warp() {
    let body = "
        setp.lt.u32 %p1, %r4, 8;
        wrong| @%p1 bra LOW;
        right| bra LOW;
        bar.sync 1; <-
        bra END;
        LOW:
        bar.sync 0;
        END:";
    let fault = Kernel::new(32, body).detects(Participation, &[(0, 8..=31)], &["not reached"]);
    assert_eq!(fault.notes[0].threads.len(), 8, "{fault}");
}

#[test]
fn a_vote_that_one_thread_skips() {
    // The one waits at a barrier of the whole warp.
    let body = "
        setp.eq.u32 %p1, %r4, 9;
        wrong| @%p1 bra SKIP;
        vote.sync.any.pred %p2, %p1, 0xffffffff; <-
        SKIP:
        bar.sync 0;";
    let fault = Kernel::new(32, body).detects(
        Participation,
        &[(0, 0..=8), (0, 10..=31)],
        &["vote.sync.any.pred"],
    );
    assert_eq!(fault.notes[0].threads[0].thread, 9, "{fault}");
}

#[test]
fn a_named_barrier_that_threads_of_a_warp_disagree_on() {
    let body = "
        wrong| mov.b32 %r10, %r4;
        right| mov.b32 %r10, 3;
        and.b32 %r10, %r10, 7;
        bar.sync %r10; <-";
    Kernel::new(32, body).detects(Participation, &[(0, 0..=31)], &["different barriers"]);
    let body = "
        wrong| mov.b32 %r10, 16;
        right| mov.b32 %r10, 15;
        bar.sync %r10; <-";
    Kernel::new(32, body).detects(Operand, &[(0, 0..=31)], &["barrier 16"]);
    let body = "
        wrong| mov.b32 %r10, 48;
        right| mov.b32 %r10, 64;
        bar.sync 1, %r10; <-";
    Kernel::new(64, body).detects(Operand, &[(0, 0..=31)], &["multiple of 32"]);
}

/// Descriptors of operands at the beginning of shared memory, filled with zeros; a product of two tiles to `%f0` to `%f3`.
pub const TILES: &str = "
        mov.b32 %r20, 0;
        mov.b32 %r21, 0;
        FILL:
        mad.lo.u32 %r22, %r21, 512, %r3;
        st.shared.b32 [%r22], %r20;
        add.u32 %r21, %r21, 1;
        setp.lt.u32 %p9, %r21, 20;
        @%p9 bra FILL;
        FENCE
        bar.sync 0;
        shr.u32 %r23, %r1, 4;
        mov.b32 %r24, 0x40000040;
        mov.b64 %rd20, {%r23, %r24};
        add.s64 %rd21, %rd20, 512;
        wgmma.fence.sync.aligned;";

pub const PRODUCT: &str = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %rd20, %rd21, 0, 1, 1, 0, 0;";

pub const PROXY_FENCE: &str = "fence.proxy.async.shared::cta;";

#[test]
fn a_product_of_three_warps() {
    let tiles = TILES.replace("FENCE", PROXY_FENCE);
    let body = format!(
        "{tiles}
        wrong| setp.lt.u32 %p1, %r5, 3;
        right| setp.lt.u32 %p1, %r5, 4;
        @!%p1 bra END;
        {PRODUCT} <-
        wgmma.commit_group.sync.aligned;
        wgmma.wait_group.sync.aligned 0;
        END:"
    );
    let kernel = Kernel::new(128, body);
    let fault = kernel.fault();
    assert_eq!(fault.kind, Participation, "{fault}");
    kernel.clean();
}

#[test]
fn a_trap() {
    let body = "
        setp.eq.u32 %p1, %r0, 40;
        wrong| @%p1 trap; <-";
    Kernel::new(64, body).detects(Trap, &[(0, one(40))], &["trap"]);
}
