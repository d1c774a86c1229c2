//! Instructions that manage how a kernel runs, and branches to many places.

use tesserine_emulator::{Fault, FaultKind, Launch, Memory, Module, Options, target::Target};

fn load(head: &str, body: &str) -> Result<Module, String> {
    let text = format!(
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 k_param_0)\n{head}\n{{\n\
         .reg .pred %p<8>;\n.reg .b32 %r<16>;\n.reg .b64 %rd<8>;\n.shared .align 4 .b8 buffer[16];\n\
         ld.param.u64 %rd1, [k_param_0];\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd2, %rd1, %rd2;\n\
         {body}\nret;\n}}\n"
    );
    Module::load(&text, Target::named("sm_90a").unwrap()).map_err(|e| e.to_string())
}

/// Runs a block; `%rd2` is the address of the thread's own word. Gives the words.
fn run(head: &str, body: &str, threads: u32) -> Result<Vec<u32>, Fault> {
    let module = load(head, body).unwrap_or_else(|e| panic!("{e}"));
    let memory = Memory::new();
    let address = memory.allocate(4 * threads as usize).unwrap();
    memory
        .write(address, &vec![0; 4 * threads as usize])
        .unwrap();
    let launch = Launch {
        entry: "k",
        grid: [1, 1, 1],
        block: [threads, 1, 1],
        cluster: [1, 1, 1],
        shared_bytes: 0,
        arguments: &[&address.to_le_bytes()],
    };
    module.launch(&memory, &launch, &Options::default())?;
    let mut bytes = vec![0; 4 * threads as usize];
    memory.read(address, &mut bytes).unwrap();
    let word = |b: &[u8; 4]| u32::from_le_bytes(*b);
    Ok(bytes.as_chunks::<4>().0.iter().map(word).collect())
}

#[test]
fn lanes_branch_each_to_the_place_that_it_picks() {
    let body = "and.b32 %r2, %r1, 3;\nsetp.ne.u32 %p1, %r1, 9;\nmov.b32 %r3, 99;\n\
                table: .branchtargets $a, $b, $c, $b;\n@%p1 brx.idx %r2, table;\nbra $end;\n\
                $a: mov.b32 %r3, 10;\nbra $end;\n$b: mov.b32 %r3, 11;\nbra $end;\n$c: mov.b32 %r3, 12;\n\
                $end: st.global.b32 [%rd2], %r3;";
    let expected: Vec<u32> = (0..40)
        .map(|t| if t == 9 { 99 } else { [10, 11, 12, 11][t % 4] })
        .collect();
    assert_eq!(run("", body, 40).unwrap(), expected);
    let outside = "table: .branchtargets $a, $b;\nbrx.idx %r1, table;\n$a: ret;\n$b:";
    let fault = run("", outside, 3).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Operand);
    assert_eq!(fault.threads.len(), 1);
    assert_eq!(fault.threads[0].thread, 2);
}

#[test]
fn a_sleeping_thread_lets_others_run() {
    // The second warp waits for a flag that the first sets.
    let body = "setp.lt.u32 %p1, %r1, 32;\nsetp.eq.u32 %p2, %r1, 0;\nmov.b32 %r4, 0;\n@%p2 st.shared.b32 [buffer], %r4;\nbar.sync 0;\n\
                @%p1 bra $set;\n$wait: nanosleep.u32 100;\nld.acquire.cta.shared.b32 %r3, [buffer];\nsetp.eq.u32 %p3, %r3, 0;\n\
                @%p3 bra $wait;\nbra $end;\n\
                $set: mov.b32 %r3, 7;\nmov.b32 %r5, 1;\n@%p2 st.release.cta.shared.b32 [buffer], %r5;\n$end: st.global.b32 [%rd2], %r3;";
    let expected: Vec<u32> = (0..64).map(|t| if t < 32 { 7 } else { 1 }).collect();
    assert_eq!(run("", body, 64).unwrap(), expected);
}

#[test]
fn dependent_launches_and_events_change_nothing() {
    let body = "griddepcontrol.wait;\npmevent 3;\npmevent.mask 0x8001;\ngriddepcontrol.launch_dependents;\nst.global.b32 [%rd2], %r1;";
    assert_eq!(run("", body, 32).unwrap(), (0..32).collect::<Vec<u32>>());
}

#[test]
fn registers_move_between_warps_within_the_pool() {
    // Three groups of four warps with 168 registers: one gives, two take; 24 + 2 * 240 is 3 * 168.
    let body = "setp.ge.u32 %p1, %r1, 256;\n@%p1 bra $give;\nsetmaxnreg.inc.sync.aligned.u32 240;\nbra $end;\n\
                $give: setmaxnreg.dec.sync.aligned.u32 24;\n$end: st.global.b32 [%rd2], %r1;";
    let all: Vec<u32> = (0..384).collect();
    assert_eq!(run(".maxnreg 168", body, 384).unwrap(), all);
    assert_eq!(run("", body, 384).unwrap(), all);
    for (head, wrong) in [
        // More than the pool.
        (".maxnreg 160", body.to_owned()),
        ("", body.replace("240", "248")),
        (
            ".maxnreg 168",
            body.replace("dec.sync.aligned.u32 24", "dec.sync.aligned.u32 40"),
        ),
        // Down from less, up from more.
        (
            ".maxnreg 168",
            body.replace("dec.sync.aligned.u32 24", "dec.sync.aligned.u32 176"),
        ),
        (".maxnreg 168", body.replace("240", "160")),
    ] {
        let fault = run(head, &wrong, 384).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Operand, "{head} {wrong}");
    }
    // All of a warp run it together.
    let split = "setp.lt.u32 %p1, %r1, 5;\n@%p1 setmaxnreg.dec.sync.aligned.u32 24;\n@%p1 ret;\nbar.warp.sync -1;";
    assert_eq!(
        run("", split, 32).unwrap_err().kind,
        FaultKind::Participation
    );
}

#[test]
fn counts_and_forms_that_do_not_exist_are_refused() {
    for bad in [
        "setmaxnreg.inc.sync.aligned.u32 20;",
        "setmaxnreg.inc.sync.aligned.u32 264;",
        "setmaxnreg.dec.sync.aligned.u32 %r1;",
        "setmaxnreg.sync.aligned.u32 40;",
        "griddepcontrol;",
        "pmevent 16;",
        "nanosleep.u64 %rd1;",
    ] {
        assert!(load("", bad).is_err(), "{bad}");
    }
}
