//! Atomic operations: what lies in memory afterwards and what threads get back, against sums and folds in the lanes' order.

use tesserine_emulator::{
    Fault, FaultKind, Launch, LoadError, Memory, Module, Options, target::Target,
};

const DEVICE: &str = "sm_90a";

fn load(body: &str) -> Result<Module, LoadError> {
    let text = format!(
        ".version 8.6\n.target {DEVICE}\n.address_size 64\n\
         .visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1)\n{{\n\
         .reg .pred %p<8>;\n.reg .b16 %rs<16>;\n.reg .b32 %r<16>;\n.reg .f32 %f<16>;\n.reg .b64 %rd<16>;\n\
         .shared .align 16 .b8 cell[64];\n\
         ld.param.u64 %rd1, [k_param_0];\nld.param.u64 %rd2, [k_param_1];\nmov.u32 %r1, %tid.x;\n\
         mul.wide.u32 %rd3, %r1, 16;\nadd.s64 %rd3, %rd2, %rd3;\n{body}\nret;\n}}\n"
    );
    Module::load(&text, Target::named(DEVICE).unwrap())
}

/// Runs a block; `%rd1` is the address of a cell of 16 bytes that begins as `cell`, `%rd3` of the thread's own 16 bytes of results.
/// Gives the cell and the results.
fn run(body: &str, threads: u32, cell: [u32; 4]) -> Result<([u32; 4], Vec<[u32; 4]>), Fault> {
    let module = load(body).unwrap_or_else(|e| panic!("{e}"));
    let memory = Memory::new();
    let at = memory.allocate(16).unwrap();
    let results = memory.allocate(16 * threads as usize).unwrap();
    let bytes: Vec<u8> = cell.iter().flat_map(|w| w.to_le_bytes()).collect();
    memory.write(at, &bytes).unwrap();
    memory
        .write(results, &vec![0; 16 * threads as usize])
        .unwrap();
    let arguments = [at.to_le_bytes(), results.to_le_bytes()];
    let launch = Launch {
        entry: "k",
        grid: [1, 1, 1],
        block: [threads, 1, 1],
        cluster: [1, 1, 1],
        shared_bytes: 0,
        arguments: &[&arguments[0], &arguments[1]],
    };
    module.launch(&memory, &launch, &Options::default())?;
    let words = |address: u64, count: usize| {
        let mut bytes = vec![0; 16 * count];
        memory.read(address, &mut bytes).unwrap();
        let word = |b: &[u8; 4]| u32::from_le_bytes(*b);
        let words: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(word).collect();
        words.as_chunks::<4>().0.to_vec()
    };
    Ok((words(at, 1)[0], words(results, threads as usize)))
}

/// An operation of 32 bits on the first word of the cell, with the thread's value `(tid * 37) ^ 0x80000010`; gives what all threads
/// left there, and what each got.
fn fold(opcode: &str, start: u32) -> (u32, Vec<u32>) {
    let body = format!(
        "mul.lo.s32 %r2, %r1, 37;\nxor.b32 %r2, %r2, 0x80000010;\n{opcode} %r3, [%rd1], %r2;\nst.global.b32 [%rd3], %r3;"
    );
    let (cell, results) = run(&body, 32, [start, 0, 0, 0]).unwrap();
    (cell[0], results.iter().map(|r| r[0]).collect())
}

fn expected(start: u32, operation: impl Fn(u32, u32) -> u32) -> (u32, Vec<u32>) {
    let mut now = start;
    let mut got = Vec::new();
    for lane in 0..32u32 {
        got.push(now);
        now = operation(now, (lane * 37) ^ 0x8000_0010);
    }
    (now, got)
}

/// An operation and what it makes of the old value and its own.
type Case = (&'static str, fn(u32, u32) -> u32);

#[test]
fn integer_operations_give_the_old_value_and_leave_the_new() {
    let signed = |f: fn(i32, i32) -> i32, a: u32, b: u32| f(a as i32, b as i32) as u32;
    let cases: [Case; 11] = [
        ("atom.global.add.u32", |a, b| a.wrapping_add(b)),
        ("atom.global.add.s32", |a, b| a.wrapping_add(b)),
        ("atom.relaxed.gpu.global.min.u32", |a, b| a.min(b)),
        ("atom.global.relaxed.sys.max.u32", |a, b| a.max(b)),
        ("atom.and.b32", |a, b| a & b),
        ("atom.acquire.cta.or.b32", |a, b| a | b),
        ("atom.acq_rel.gpu.xor.b32", |a, b| a ^ b),
        ("atom.release.cluster.global.exch.b32", |_, b| b),
        ("atom.global.inc.u32", |a, b| if a >= b { 0 } else { a + 1 }),
        ("atom.global.dec.u32", |a, b| {
            if a == 0 || a > b { b } else { a - 1 }
        }),
        ("atom.global.min.s32", |a, b| {
            (a as i32).min(b as i32) as u32
        }),
    ];
    for (opcode, operation) in cases {
        for start in [0, 5, 0x8000_0100, u32::MAX] {
            assert_eq!(
                fold(opcode, start),
                expected(start, operation),
                "{opcode} {start:#x}"
            );
        }
    }
    let largest = expected(7, |a, b| signed(i32::max, a, b));
    assert_eq!(fold("atom.global.max.s32", 7), largest);
}

#[test]
fn operations_of_64_bits_are_whole() {
    let body = "mov.b32 %r15, 0;\nmov.b64 %rd4, {%r1, %r15};\nadd.s64 %rd4, %rd4, 0xffffffff;\natom.global.add.u64 %rd5, [%rd1], %rd4;\n\
                atom.global.max.s64 %rd6, [%rd1+8], %rd4;\nst.global.b64 [%rd3], %rd5;\nst.global.b64 [%rd3+8], %rd6;";
    let (cell, results) = run(body, 20, [1, 0, 0, u32::MAX]).unwrap();
    let sum: u64 = 1 + (0..20u64).map(|t| t + 0xffff_ffff).sum::<u64>();
    let largest = 19u64 + 0xffff_ffff;
    assert_eq!(u64::from(cell[0]) | u64::from(cell[1]) << 32, sum);
    assert_eq!(u64::from(cell[2]) | u64::from(cell[3]) << 32, largest);
    // The first found a negative number, each later one its predecessor's.
    assert_eq!(results[0][2..], [0, u32::MAX]);
    // 6 + 0xffffffff is 2^32 + 5.
    assert_eq!(results[7][2..], [5, 1]);
}

#[test]
fn compare_and_swap_lets_one_thread_win() {
    let body = "atom.global.cas.b32 %r3, [%rd1], 9, %r1;\nst.global.b32 [%rd3], %r3;\n\
                mov.b32 {%rs1, %rs4}, %r1;\nmov.b16 %rs2, 7;\natom.global.cas.b16 %rs3, [%rd1+6], %rs2, %rs1;\n\
                mov.b32 %r4, {%rs3, %rs4};\nst.global.b32 [%rd3+4], %r4;";
    let (cell, results) = run(body, 32, [9, 0x0007_1234, 0, 0]).unwrap();
    assert_eq!(cell[..2], [0, 0x0000_1234]);
    assert_eq!(results[0][..2], [9, 7]);
    assert!(results[1..].iter().all(|r| r[..2] == [0, 0]));
}

#[test]
fn a_counter_hands_out_each_number_once_across_warps() {
    let body = "atom.global.add.u32 %r3, [%rd1], 1;\nst.global.b32 [%rd3], %r3;\nred.global.add.u32 [%rd1+4], 2;";
    let (cell, results) = run(body, 256, [0; 4]).unwrap();
    assert_eq!(cell[..2], [256, 512]);
    let mut numbers: Vec<u32> = results.iter().map(|r| r[0]).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..256).collect::<Vec<u32>>());
}

#[test]
fn float_sums_flush_subnormals_in_global_memory_only() {
    // 3 threads add 2^-140, which is subnormal; a fourth operand of 1.5 is not.
    let subnormal = 1u32 << 9;
    let body = format!(
        "mov.b32 %r5, {subnormal};\nmov.b32 %r6, 0;\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 st.shared.b32 [cell], %r6;\nbar.warp.sync -1;\n\
         atom.shared.add.f32 %r7, [cell], %r5;\nred.global.add.f32 [%rd1], %r5;\n\
         mov.b32 %r8, 0x3fc00000;\nred.global.add.f32 [%rd1+4], %r8;\nbar.warp.sync -1;\n\
         ld.shared.b32 %r9, [cell];\nst.global.b32 [%rd3], %r9;"
    );
    let (cell, results) = run(&body, 3, [0, 0.25f32.to_bits(), 0, 0]).unwrap();
    assert_eq!(cell[..2], [0, 4.75f32.to_bits()]);
    // Sums of equal subnormals are exact.
    assert_eq!(results[2][0], 3 * subnormal);
}

#[test]
fn double_and_half_sums_are_rounded_once_a_step() {
    let body = "mov.b64 %rd4, 0d3FD5555555555555;\nred.global.add.f64 [%rd1], %rd4;\nmov.b16 %rs1, 0x3c01;\n\
                atom.global.add.noftz.f16 %rs2, [%rd1+8], %rs1;\nmov.b32 %r5, 0x3f80bf80;\n\
                red.global.add.noftz.bf16x2 [%rd1+12], %r5;";
    let (cell, _) = run(body, 5, [0, 0, 0xabcd_0001, 0x4000_4000]).unwrap();
    let third = f64::from_bits(0x3fd5_5555_5555_5555);
    let sum = (0..5).fold(0.0, |s, _| s + third);
    assert_eq!(u64::from(cell[0]) | u64::from(cell[1]) << 32, sum.to_bits());
    // 2^-24 + 1.0009765625 lies just above it and is lost; doubling is exact; then steps of 2^-9 and 2^-8 round to even:
    // 1 + 1/1024, 2 + 2/1024, 3 + 3/1024 (a tie, to 3 + 4/1024), 4 + 5/1024 (nearer to 4 + 4/1024), 5 + 5/1024 (to 5 + 4/1024).
    assert_eq!(cell[2], 0xabcd_0000 | (0x4400 | 1 << 8 | 1));
    // bfloat16: 2 + 5 above, 2 - 5 below.
    assert_eq!(
        cell[3],
        (7.0f32.to_bits() >> 16 << 16) | (-3.0f32).to_bits() >> 16
    );
}

#[test]
fn vectors_are_added_element_by_element() {
    let body = "mov.b32 %r4, 0x3f800000;\nmov.b32 %r5, 0x40000000;\nmov.b32 %r6, 0x40400000;\nmov.b32 %r7, 0x40800000;\n\
                atom.global.v4.f32.add {%r8, %r9, %r10, %r11}, [%rd1], {%r4, %r5, %r6, %r7};";
    let body = body.to_owned()
        + "\nst.global.v4.b32 [%rd3], {%r8, %r9, %r10, %r11};\nred.global.add.noftz.v2.f16x2 [%rd1], {0, 0};";
    let (cell, results) = run(&body, 3, [0; 4]).unwrap();
    let floats = |values: [f32; 4]| values.map(f32::to_bits);
    assert_eq!(cell, floats([3.0, 6.0, 9.0, 12.0]));
    assert_eq!(results[2], floats([2.0, 4.0, 6.0, 8.0]));
    let off = "mov.b32 %r4, 0;\nred.global.add.v2.f32 [%rd1+4], {%r4, %r4};";
    assert_eq!(run(off, 1, [0; 4]).unwrap_err().kind, FaultKind::Misaligned);
}

#[test]
fn shared_cells_are_reached_by_generic_and_cluster_addresses() {
    let body = "mov.b32 %r4, 0;\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 st.shared.v4.b32 [cell], {%r4, %r4, %r4, %r4};\nbar.sync 0;\nmov.u64 %rd4, cell;\n\
                cvta.shared.u64 %rd5, %rd4;\natom.add.u32 %r5, [%rd5], 1;\nmov.u32 %r6, cell;\nmapa.shared::cluster.u32 %r7, %r6, 0;\n\
                red.shared::cluster.add.u32 [%r7+4], 2;\nred.shared::cta.or.b32 [%r6+8], 4;\nbar.sync 0;\n\
                ld.shared.v4.b32 {%r8, %r9, %r10, %r11}, [cell];\nst.global.v4.b32 [%rd3], {%r8, %r9, %r10, %r11};";
    let (_, results) = run(body, 64, [0; 4]).unwrap();
    assert!(results.iter().all(|r| *r == [64, 128, 4, 0]));
}

#[test]
fn a_sink_takes_the_old_value() {
    let body = "atom.global.add.u32 _, [%rd1], 3;\ncreatepolicy.fractional.L2::evict_last.b64 %rd7, 0f3F800000;\n\
                atom.global.add.L2::cache_hint.u32 %r4, [%rd1], 1, %rd7;";
    assert_eq!(run(body, 4, [0; 4]).unwrap().0[0], 16);
}

#[test]
fn what_is_no_atomic_operation_is_refused() {
    for bad in [
        "atom.global.sub.u32 %r3, [%rd1], 1;",
        "atom.global.add.min.u32 %r3, [%rd1], 1;",
        "atom.global.and.u32 %r3, [%rd1], 1;",
        "atom.global.inc.s32 %r3, [%rd1], 1;",
        "atom.global.add.f16 %rs3, [%rd1], %rs1;",
        "atom.global.add.noftz.f32 %f1, [%rd1], %f1;",
        "atom.local.add.u32 %r3, [%rd1], 1;",
        "atom.global.add.u64 %r3, [%rd1], %rd2;",
        "atom.global.cas.b32 %r3, [%rd1], 1;",
        "atom.global.min.v2.f32 {%r3, %r4}, [%rd1], {%r3, %r4};",
        "atom.global.add.v8.f32 _, [%rd1], {%r3, %r3, %r3, %r3, %r3, %r3, %r3, %r3};",
        "atom.shared.add.v2.f32 {%r3, %r4}, [%r1], {%r3, %r4};",
        "red.global.exch.b32 [%rd1], 1;",
        "red.acquire.gpu.global.add.u32 [%rd1], 1;",
        "red.volatile.global.add.u32 [%rd1], 1;",
    ] {
        assert!(load(bad).is_err(), "{bad}");
    }
}

#[test]
fn addresses_outside_memory_are_faults() {
    let out = run("red.global.add.u32 [%rd1+16], 1;", 1, [0; 4]).unwrap_err();
    assert_eq!(out.kind, FaultKind::OutOfBounds);
    let off = run("atom.global.add.u64 %rd4, [%rd1+4], 1;", 1, [0; 4]).unwrap_err();
    assert_eq!(off.kind, FaultKind::Misaligned);
}
