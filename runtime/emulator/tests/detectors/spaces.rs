//! Accesses out of bounds, misaligned, of what nothing wrote, and of what may not be written.

use super::kernel::{Kernel, one};
use tesserine_emulator::FaultKind::{
    Misaligned, Operand, OutOfBounds, ReadOnly, UninitializedMemory, UninitializedRegister,
};

#[test]
fn global_memory_after_an_allocation() {
    // Thread 24 is the first beyond: 4000 + 4 · 24 = 4096.
    let body = "
        wrong| ld.global.b32 %r10, [%rd5+4000]; <-
        right| ld.global.b32 %r10, [%rd5+3968];
        st.global.b32 [%rd6], %r10;";
    Kernel::new(32, body).detects(OutOfBounds, &[(0, one(24))], &["4096 bytes"]);
    let body = "
        wrong| st.global.v2.b32 [%rd0+4096], {%r0, %r0}; <-
        right| st.global.v2.b32 [%rd0+4088], {%r0, %r0};";
    Kernel::new(1, body).detects(OutOfBounds, &[(0, one(0))], &["4096 bytes"]);
}

#[test]
fn global_memory_before_an_allocation() {
    let body = "
        setp.eq.u32 %p1, %r0, 5;
        wrong| @%p1 ld.global.b32 %r10, [%rd0+-4]; <-
        right| @%p1 ld.global.b32 %r10, [%rd0];";
    Kernel::new(32, body).detects(OutOfBounds, &[(0, one(5))], &["4 bytes before"]);
}

#[test]
fn global_memory_across_an_end() {
    let body = "
        wrong| ld.global.b32 %r10, [%rd2+8]; <-
        right| ld.global.b16 %r10, [%rd2+8];";
    let body = body.replace("b16 %r10", "b16 %h1");
    Kernel::new(1, body).detects(OutOfBounds, &[(0, one(0))], &["cross the end", "10 bytes"]);
}

#[test]
fn freed_memory() {
    for instruction in [
        "ld.global.b32 %r10, [AT];",
        "st.global.b32 [AT], %r0;",
        "atom.global.add.u32 %r10, [AT], 1;",
        "red.global.add.u32 [AT], 1;",
        "ld.b32 %r10, [AT];",
        "st.b32 [AT], %r0;",
        "cp.async.ca.shared.global [%r1], [AT], 4;",
    ] {
        let body = format!(
            "wrong| {} <-\nright| {}\ncp.async.wait_all;",
            instruction.replace("AT", "%rd3"),
            instruction.replace("AT", "%rd1")
        );
        Kernel::new(1, body).detects(OutOfBounds, &[(0, one(0))], &["out of bounds"]);
    }
}

#[test]
fn null_and_wild_addresses() {
    for address in [
        "0",
        "16",
        "0xffffffffffffffe0",
        "0x400000000000",
        "0x700000000000",
    ] {
        let body = format!(
            "mov.b64 %rd10, {address};
            wrong| ld.b32 %r10, [%rd10]; <-
            right| ld.b32 %r10, [%rd5];"
        );
        Kernel::new(1, body).detects(OutOfBounds, &[(0, one(0))], &[]);
    }
}

#[test]
fn misaligned_global_memory() {
    let cases = [
        ("ld.global.b16 %h1, [%rd0+", 1, 2, "multiple of 2"),
        ("ld.global.b32 %r10, [%rd0+", 2, 4, "multiple of 4"),
        ("ld.global.b64 %rd10, [%rd0+", 4, 8, "multiple of 8"),
        (
            "ld.global.v2.b32 {%r10, %r11}, [%rd0+",
            4,
            8,
            "multiple of 8",
        ),
        (
            "ld.global.v4.b32 {%r10, %r11, %r12, %r13}, [%rd0+",
            8,
            16,
            "multiple of 16",
        ),
        (
            "ld.global.nc.v2.b64 {%rd10, %rd11}, [%rd0+",
            8,
            16,
            "multiple of 16",
        ),
        ("atom.global.add.u64 %rd10, [%rd0+", 4, 8, "multiple of 8"),
    ];
    for (instruction, wrong, right, word) in cases {
        let rest = match instruction.starts_with("atom") {
            true => "], 1;",
            false => "];",
        };
        let body =
            format!("wrong| {instruction}{wrong}{rest} <-\nright| {instruction}{right}{rest}");
        Kernel::new(1, body).detects(Misaligned, &[(0, one(0))], &[word]);
    }
}

#[test]
fn shared_memory() {
    // The last word belongs to thread 31 if each has 512 bytes.
    let body = "
        shl.b32 %r10, %r0, 9;
        add.u32 %r10, %r1, %r10;
        wrong| st.shared.b32 [%r10+512], %r0; <-
        right| st.shared.b32 [%r10+508], %r0;";
    Kernel::new(32, body).detects(OutOfBounds, &[(0, one(31))], &["16384 bytes"]);
    let body = "
        wrong| st.shared.b32 [%r1+-4], %r0; <-
        right| st.shared.b32 [%r1], %r0;";
    Kernel::new(1, body).detects(OutOfBounds, &[(0, one(0))], &["shared"]);
    let body = "
        wrong| st.shared.v2.b32 [%r1+4], {%r0, %r0}; <-
        right| st.shared.v2.b32 [%r1+8], {%r0, %r0};";
    Kernel::new(1, body).detects(Misaligned, &[(0, one(0))], &["multiple of 8"]);
    // By a generic address.
    let body = "
        mov.b64 %rd10, shared;
        cvta.shared.u64 %rd10, %rd10;
        wrong| st.b32 [%rd10+16384], %r0; <-
        right| st.b32 [%rd10+16380], %r0;";
    Kernel::new(1, body).detects(OutOfBounds, &[(0, one(0))], &["shared"]);
}

#[test]
fn shared_memory_of_a_block_that_is_not_there() {
    let body = "
        wrong| mov.b32 %r10, 2;
        right| mov.b32 %r10, 1;
        barrier.cluster.arrive;
        barrier.cluster.wait;
        mapa.shared::cluster.u32 %r11, %r1, %r10; <-
        st.shared::cluster.b32 [%r11], %r0;
        barrier.cluster.arrive;
        barrier.cluster.wait;";
    let body = body.replace("st.", "setp.ne.u32 %p1, %r2, 0;\n@%p1 st.");
    Kernel::new(1, body).cluster(2).detects(
        Operand,
        &[(1, one(0))],
        &["block 2 of a cluster of 2"],
    );
    let body = "
        mov.b32 %r10, 1;
        barrier.cluster.arrive;
        barrier.cluster.wait;
        mapa.shared::cluster.u32 %r11, %r1, %r10;
        setp.eq.u32 %p1, %r2, 1;
        wrong| add.u32 %r11, %r11, 0x40000000;
        @%p1 st.shared::cluster.b32 [%r11+8], %r0; <-
        barrier.cluster.arrive;
        barrier.cluster.wait;";
    Kernel::new(1, body)
        .cluster(2)
        .detects(OutOfBounds, &[(1, one(0))], &["another block"]);
    // An address of another block is none of this one's.
    let body = "
        wrong| mov.b32 %r10, 1;
        right| mov.b32 %r10, 0;
        mapa.shared::cluster.u32 %r11, %r1, %r10;
        setp.eq.u32 %p1, %r2, 0;
        @%p1 st.shared::cta.b32 [%r11], %r0; <-
        barrier.cluster.arrive;
        barrier.cluster.wait;";
    Kernel::new(1, body)
        .cluster(2)
        .detects(OutOfBounds, &[(0, one(0))], &["another block"]);
}

#[test]
fn local_memory() {
    let body = "
        mov.b64 %rd10, frame;
        wrong| st.local.b32 [%rd10+16], %r0; <-
        right| st.local.b32 [%rd10+12], %r0;";
    Kernel::new(32, body).detects(OutOfBounds, &[(0, one(0))], &["local", "16 bytes"]);
    let body = "
        wrong| st.local.b32 [frame+2], %r0; <-
        right| st.local.b32 [frame+4], %r0;";
    Kernel::new(1, body).detects(Misaligned, &[(0, one(0))], &["local"]);
    // Thread 3 leaves its own unwritten.
    let body = "
        setp.ne.u32 %p1, %r0, 3;
        wrong| @%p1 st.local.b32 [frame+8], %r0;
        right| st.local.b32 [frame+8], %r0;
        ld.local.b32 %r10, [frame+8]; <-
        st.global.b32 [%rd6], %r10;";
    Kernel::new(32, body).detects(UninitializedMemory, &[(0, one(3))], &["local"]);
}

#[test]
fn parameters() {
    let body = "
        wrong| ld.param.b32 %r10, [p3+8]; <-
        right| ld.param.b32 %r10, [p3+4];";
    Kernel::new(1, body).detects(OutOfBounds, &[(0, one(0))], &["no parameter holds them"]);
    let body = "
        wrong| ld.param.b32 %r10, [p1+2]; <-
        right| ld.param.b32 %r10, [p1+4];";
    Kernel::new(1, body).detects(Misaligned, &[(0, one(0))], &["parameter"]);
    let body = "
        mov.b64 %rd10, p1;
        cvta.param.u64 %rd10, %rd10;
        wrong| st.b32 [%rd10], %r0; <-
        right| ld.b32 %r10, [%rd10];";
    Kernel::new(2, body).detects(ReadOnly, &[(0, one(0))], &["parameters"]);
}

#[test]
fn constant_memory() {
    let body = "
        wrong| ld.const.b32 %r10, [table+8]; <-
        right| ld.const.b32 %r10, [table+4];
        st.global.b32 [%rd6], %r10;";
    let kernel = Kernel::new(1, body);
    kernel.detects(OutOfBounds, &[(0, one(0))], &["constant"]);
    assert_eq!(kernel.clean()[0], 2);
    let body = "
        wrong| ld.const.b64 %rd10, [table+4]; <-
        right| ld.const.b64 %rd10, [table];";
    Kernel::new(1, body).detects(Misaligned, &[(0, one(0))], &["constant"]);
    // Global memory is none.
    let body = "
        mov.b64 %rd10, table;
        wrong| ld.const.b32 %r10, [%rd0]; <-
        right| ld.const.b32 %r10, [%rd10];";
    Kernel::new(1, body).detects(OutOfBounds, &[(0, one(0))], &["constant"]);
    for instruction in [
        "st.b32 [AT], %r0;",
        "red.add.u32 [AT], 1;",
        "st.global.b32 [AT], %r0;",
    ] {
        let body = format!(
            "mov.b64 %rd10, table;
            cvta.const.u64 %rd10, %rd10;
            wrong| {} <-
            right| {}",
            instruction.replace("AT", "%rd10"),
            instruction.replace("AT", "%rd1")
        );
        Kernel::new(1, body).detects(ReadOnly, &[(0, one(0))], &["constant"]);
    }
}

#[test]
fn memory_that_is_read_only_for_the_launch() {
    let body = "
        ld.global.nc.b32 %r10, [%rd5]; <~
        wrong| st.global.b32 [%rd5], %r10; <-
        right| st.global.b32 [%rd6], %r10;";
    Kernel::new(1, body).detects_pair(ReadOnly, &[(0, one(0))], &[(0, one(0))], &["ld.global.nc"]);
    // The other way round, and even if a barrier orders the two.
    let body = "
        st.global.b32 [%rd5], %r0; <~
        bar.sync 0;
        wrong| ld.global.nc.b32 %r10, [%rd0]; <-
        right| ld.global.b32 %r10, [%rd0];";
    Kernel::new(32, body).detects_pair(ReadOnly, &[(0, one(0))], &[(0, one(0))], &["ld.global.nc"]);
}

#[test]
fn shared_memory_that_nothing_wrote() {
    // Threads 60 to 63 write nothing; warp 0 reads the words in reverse.
    let body = "
        setp.lt.u32 %p1, %r0, 60;
        wrong| @%p1 st.shared.b32 [%r3], %r0;
        right| st.shared.b32 [%r3], %r0;
        bar.sync 0;
        mov.b32 %r10, 63;
        sub.u32 %r10, %r10, %r0;
        shl.b32 %r10, %r10, 2;
        add.u32 %r10, %r1, %r10;
        ld.shared.b32 %r11, [%r10]; <-
        st.global.b32 [%rd6], %r11;";
    let kernel = Kernel::new(64, body);
    kernel.detects(UninitializedMemory, &[(0, one(0))], &["nothing wrote it"]);
    assert_eq!(kernel.clean()[..3], [63, 62, 61]);
}

#[test]
fn registers_that_nothing_wrote() {
    let body = "
        setp.lt.u32 %p1, %r4, 20;
        wrong| @%p1 mov.b32 %r10, 7;
        right| mov.b32 %r10, 7;
        add.u32 %r11, %r10, 1; <-
        st.global.b32 [%rd6], %r11;";
    let kernel = Kernel::new(64, body);
    kernel.detects(UninitializedRegister, &[(0, 20..=31)], &["%r10"]);
    assert_eq!(kernel.clean()[63], 8);
    // A predicate, and one branch of two.
    let body = "
        setp.ge.u32 %p1, %r4, 16;
        @%p1 bra OVER;
        setp.eq.u32 %p2, %r4, 3;
        OVER:
        right| @%p1 setp.eq.u32 %p2, %r4, 3;
        @%p2 st.global.b32 [%rd6], %r0; <-";
    Kernel::new(32, body).detects(UninitializedRegister, &[(0, 16..=31)], &["%p2"]);
    let body = "
        wrong| st.global.v2.b32 [%rd1], {%r10, %r11}; <-
        right| st.global.v2.b32 [%rd1], {%r0, %r2};";
    Kernel::new(1, body).detects(UninitializedRegister, &[(0, one(0))], &["nothing wrote"]);
}
