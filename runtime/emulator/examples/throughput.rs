//! How many instructions a second the emulator executes: `cargo run --release -p tesserine-emulator --example throughput`.
//!
//! Each row is a loop of one kind of instruction, run by blocks of 256 threads on all cores, with the checks for races and without.

use std::time::Instant;

use tesserine_emulator::{Launch, Memory, Module, Options, target::Target};

/// A kernel that repeats `body` `count` times. It may use `%r0` to `%r19` (`%r0`: the thread), `%f0` to `%f9`, `%rd0` to `%rd3` (`%rd0`: 1 MiB
/// of global memory, at the thread's own 16 bytes) and the address `buffer` of 8 KiB of shared memory, `%r10` being the thread's 16 bytes there.
fn kernel(body: &str, count: u32) -> String {
    let init: String = (1..10)
        .map(|i| format!("mov.b32 %r{i}, {i};\nmov.f32 %f{i}, 0f3F800000;\n"))
        .collect();
    format!(
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 p)\n{{\n.reg .pred %p<2>;\n.reg .b32 %r<20>;\n\
         .reg .f32 %f<10>;\n.reg .b64 %rd<4>;\n.shared .align 16 .b8 buffer[8192];\nld.param.u64 %rd0, [p];\nmov.u32 %r0, %tid.x;\n\
         mov.u32 %r1, %ctaid.x;\nmad.lo.u32 %r2, %r1, 256, %r0;\nmul.wide.u32 %rd1, %r2, 16;\nadd.s64 %rd0, %rd0, %rd1;\n\
         mov.b32 %r10, buffer;\nmad.lo.u32 %r10, %r0, 16, %r10;\nmov.f32 %f0, 0f3F800000;\n{init}\
         st.shared.v4.b32 [%r10], {{%r1, %r2, %r3, %r4}};\nmov.b32 %r11, 0;\n\
         $again:\n{body}\nadd.s32 %r11, %r11, 1;\nsetp.lt.s32 %p1, %r11, {count};\n@%p1 bra $again;\n\
         st.global.v4.b32 [%rd0], {{%r1, %r2, %r3, %r4}};\nret;\n}}\n"
    )
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let target = Target::named("sm_90a").ok_or("no such target")?;
    let rows = [
        (
            "integer",
            "add.s32 %r1, %r1, %r2;\nxor.b32 %r2, %r2, %r1;\nmad.lo.s32 %r3, %r1, %r2, %r3;\nshl.b32 %r4, %r1, 3;",
        ),
        (
            "float",
            "fma.rn.f32 %f1, %f1, %f2, %f3;\nadd.f32 %f2, %f2, %f3;\nmul.f32 %f3, %f3, %f4;\nmax.f32 %f5, %f1, %f2;",
        ),
        (
            "ex2.approx",
            "ex2.approx.ftz.f32 %f1, %f2;\nex2.approx.ftz.f32 %f3, %f4;\nex2.approx.ftz.f32 %f5, %f6;\nex2.approx.ftz.f32 %f7, %f8;",
        ),
        (
            "shfl",
            "shfl.sync.bfly.b32 %r1, %r1, 1, 31, -1;\nshfl.sync.bfly.b32 %r2, %r2, 2, 31, -1;\nshfl.sync.bfly.b32 %r3, %r3, 4, 31, -1;\nshfl.sync.bfly.b32 %r4, %r4, 8, 31, -1;",
        ),
        (
            "ld.shared",
            "ld.shared.v4.b32 {%r1, %r2, %r3, %r4}, [%r10];\nld.shared.b32 %r5, [%r10];\nld.shared.b32 %r6, [%r10+4];\nld.shared.b32 %r7, [%r10+8];",
        ),
        (
            "ld.global",
            "ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd0];\nld.global.b32 %r5, [%rd0];\nld.global.b32 %r6, [%rd0+4];\nld.global.b32 %r7, [%rd0+8];",
        ),
        (
            "bar.sync",
            "bar.sync 0;\nbar.sync 0;\nbar.sync 0;\nbar.sync 0;",
        ),
        (
            "mma m16n8k16",
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f1, %f2, %f3, %f4};",
        ),
    ];
    println!("{:14} {:>22} {:>22}", "", "checked", "unchecked");
    println!(
        "{:14} {:>10} {:>11} {:>10} {:>11}",
        "loop of", "warp M/s", "thread M/s", "warp M/s", "thread M/s"
    );
    for (name, body) in rows {
        let text = kernel(body, 2000);
        let module = Module::load(&text, target)?;
        let mut cells = String::new();
        for check_races in [true, false] {
            let memory = Memory::new();
            let address = memory.allocate(1 << 20)?;
            let argument = address.to_le_bytes();
            let launch = Launch {
                entry: "k",
                grid: [16, 1, 1],
                block: [256, 1, 1],
                cluster: [1, 1, 1],
                shared_bytes: 0,
                arguments: &[&argument],
            };
            let options = Options {
                check_races,
                ..Options::default()
            };
            let begun = Instant::now();
            let report = module.launch(&memory, &launch, &options)?;
            let seconds = begun.elapsed().as_secs_f64();
            let rate = |count: u64| count as f64 / seconds / 1e6;
            cells += &format!(
                " {:10.1} {:11.0}",
                rate(report.warp_instructions),
                rate(report.thread_instructions)
            );
        }
        println!("{name:14}{cells}");
    }
    Ok(())
}
