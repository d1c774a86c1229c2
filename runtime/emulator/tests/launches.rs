//! Small kernels, run whole: what they compute, in blocks and clusters, with branches and barriers.

use tesserine_emulator::{Launch, Memory, Module, Options, target::Target};

/// Runs an entry `k` whose only parameter is the address of `words` 32-bit words; gives them.
fn run(body: &str, grid: u32, block: u32, words: usize) -> Vec<u32> {
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 k_param_0)\n{{\n\
         .reg .pred %p<8>;\n.reg .b32 %r<16>;\n.reg .b64 %rd<8>;\n.shared .align 4 .b8 buffer[4096];\n\
         ld.param.u64 %rd1, [k_param_0];\n{body}\nret;\n}}\n"
    );
    let module =
        Module::load(&text, Target::named("sm_80").unwrap()).unwrap_or_else(|e| panic!("{e}"));
    let memory = Memory::new();
    let address = memory.allocate(4 * words).unwrap();
    let argument = address.to_le_bytes();
    let launch = Launch {
        entry: "k",
        grid: [grid, 1, 1],
        block: [block, 1, 1],
        cluster: [1, 1, 1],
        shared_bytes: 0,
        arguments: &[&argument],
    };
    module
        .launch(&memory, &launch, &Options::default())
        .unwrap_or_else(|e| panic!("{e}"));
    let mut bytes = vec![0; 4 * words];
    memory.read(address, &mut bytes).unwrap();
    bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|w| u32::from_le_bytes(*w))
        .collect()
}

/// Stores `%r0` at the thread's place in the grid.
const STORE: &str = "mov.u32 %r10, %ctaid.x;\nmov.u32 %r11, %ntid.x;\nmov.u32 %r12, %tid.x;\nmad.lo.s32 %r13, %r10, %r11, %r12;\n\
                     mul.wide.u32 %rd2, %r13, 4;\nadd.s64 %rd3, %rd1, %rd2;\nst.global.b32 [%rd3], %r0;";

#[test]
fn every_thread_stores_its_number() {
    let body = format!(
        "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\nmov.u32 %r3, %tid.x;\nmad.lo.s32 %r0, %r1, %r2, %r3;\n{STORE}"
    );
    // A last warp that is not whole, and blocks side by side.
    assert_eq!(run(&body, 5, 80, 400), (0..400).collect::<Vec<u32>>());
}

#[test]
fn threads_loop_each_as_often_as_they_need() {
    // The sum of 0..=lane, by a loop that each lane leaves by itself.
    let body = format!(
        "mov.u32 %r3, %tid.x;\nmov.b32 %r0, 0;\nmov.b32 %r4, 0;\n\
         $loop: add.s32 %r0, %r0, %r4;\nadd.s32 %r4, %r4, 1;\nsetp.le.u32 %p1, %r4, %r3;\n@%p1 bra $loop;\n{STORE}"
    );
    let expected: Vec<u32> = (0..64).map(|t| t * (t + 1) / 2).collect();
    assert_eq!(run(&body, 1, 64, 64), expected);
}

#[test]
fn values_cross_a_block_through_shared_memory() {
    let body = format!(
        "mov.u32 %r3, %tid.x;\nshl.b32 %r4, %r3, 2;\nmov.b32 %r5, buffer;\nadd.s32 %r6, %r5, %r4;\n\
         st.shared.b32 [%r6], %r3;\nbar.sync 0;\nmov.u32 %r7, %ntid.x;\nsub.s32 %r7, %r7, %r3;\nsub.s32 %r7, %r7, 1;\n\
         shl.b32 %r7, %r7, 2;\nadd.s32 %r7, %r7, %r5;\nld.shared.b32 %r0, [%r7];\n{STORE}"
    );
    let expected: Vec<u32> = (0..96).rev().collect();
    assert_eq!(run(&body, 1, 96, 96), expected);
}

#[test]
fn lanes_exchange_values() {
    let body = format!("mov.u32 %r3, %tid.x;\nshfl.sync.bfly.b32 %r0, %r3, 5, 31, -1;\n{STORE}");
    let expected: Vec<u32> = (0..32).map(|t| t ^ 5).collect();
    assert_eq!(run(&body, 1, 32, 32), expected);
}
