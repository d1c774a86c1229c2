//! Copies of words: `cp.async`, its groups, and its arrivals at mbarriers.

use tesserine_emulator::FaultKind;

use crate::kernel::{Kernel, ramp};

/// Each thread copies 16 bytes to shared memory, and reads its neighbour's: thread `i` that of thread `63 - i`.
fn copied_words(copy: &str, wait: &str) -> String {
    format!(
        "
  shl.b32 %r2, %r0, 4;
  add.u32 %r3, %r1, %r2;
  mul.wide.u32 %rd4, %r2, 1;
  add.u64 %rd5, %rd0, %rd4;
  add.u64 %rd6, %rd1, %rd4;
  {copy}
  {wait}
  mov.u32 %r4, 63;
  sub.u32 %r4, %r4, %r0;
  shl.b32 %r4, %r4, 4;
  add.u32 %r4, %r1, %r4;
  ld.shared.v4.b32 {{%r10, %r11, %r12, %r13}}, [%r4];
  st.global.v4.b32 [%rd6], {{%r10, %r11, %r12, %r13}};
"
    )
}

const WAITED: &str = "cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;";

fn mirrored(words: &[u32]) -> Vec<u32> {
    let rows: Vec<&[u32]> = words.chunks(4).rev().collect();
    rows.concat()
}

#[test]
fn words_are_copied_asynchronously() {
    let from = ramp(256);
    for copy in [
        "cp.async.cg.shared.global [%r3], [%rd5], 16;",
        "cp.async.ca.shared.global.L2::128B [%r3], [%rd5], 8; cp.async.ca.shared.global [%r3+8], [%rd5+8], 8;",
        "setp.eq.u32 %p1, %r0, 1000; cp.async.cg.shared::cta.global [%r3], [%rd5], 16, %p1;",
    ] {
        let kernel = Kernel::new(&copied_words(copy, WAITED), 64);
        let (a, b) = (kernel.words(&from), kernel.words(&[0; 256]));
        kernel.run([a, b, 0], None);
        assert_eq!(kernel.read(b, 256), mirrored(&from), "{copy}");
    }
}

#[test]
fn bytes_that_a_copy_does_not_read_are_zero() {
    // Thread i reads 4·(i mod 5) bytes, from an array that ends with those of the last thread.
    let copy = "rem.u32 %r5, %r0, 5; shl.b32 %r5, %r5, 2; cp.async.cg.shared.global [%r3], [%rd5], 16, %r5;";
    let kernel = Kernel::new(&copied_words(copy, WAITED), 64);
    let words = ramp(64 * 4 - 1);
    let (a, b) = (kernel.words(&words), kernel.words(&[7; 256]));
    kernel.run([a, b, 0], None);
    let mut expected = Vec::new();
    for i in 0..64 {
        for j in 0..4 {
            expected.push(if j < i % 5 { words[4 * i + j] } else { 0 });
        }
    }
    assert_eq!(kernel.read(b, 256), mirrored(&expected));
}

#[test]
fn groups_are_waited_for_in_order() {
    let body = "
  shl.b32 %r2, %r0, 4;
  add.u32 %r3, %r1, %r2;
  mul.wide.u32 %rd4, %r2, 1;
  add.u64 %rd5, %rd0, %rd4;
  add.u64 %rd6, %rd1, %rd4;
  cp.async.cg.shared.global [%r3], [%rd5], 16;
  cp.async.commit_group;
  cp.async.cg.shared.global [%r3+4096], [%rd5], 16;
  cp.async.commit_group;
  cp.async.wait_group GROUPS;
  ld.shared.v4.b32 {%r10, %r11, %r12, %r13}, [%r3+PLACE];
  st.global.v4.b32 [%rd6], {%r10, %r11, %r12, %r13};
";
    let from = ramp(128);
    for (groups, place, right) in [
        (1, 0, true),
        (0, 4096, true),
        (1, 4096, false),
        (2, 0, false),
    ] {
        let body = body
            .replace("GROUPS", &format!("{groups}"))
            .replace("PLACE", &format!("{place}"));
        let kernel = Kernel::new(&body, 32);
        let (a, b) = (kernel.words(&from), kernel.words(&[0; 128]));
        match right {
            true => {
                kernel.run([a, b, 0], None);
                assert_eq!(kernel.read(b, 128), from);
            }
            false => {
                let (kind, text) = kernel.fault([a, b, 0], None);
                assert!(
                    matches!(kind, FaultKind::Pending | FaultKind::Race),
                    "{text}"
                );
                assert!(text.contains("cp.async.cg"), "{text}");
            }
        }
    }
}

#[test]
fn copies_that_other_threads_do_not_wait_for_race() {
    let copy = "cp.async.cg.shared.global [%r3], [%rd5], 16;";
    let waits = "cp.async.commit_group; cp.async.wait_group 0;";
    let kernel = Kernel::new(&copied_words(copy, waits), 64);
    let (a, b) = (kernel.words(&ramp(256)), kernel.words(&[0; 256]));
    let (kind, text) = kernel.fault([a, b, 0], None);
    assert!(
        matches!(
            kind,
            FaultKind::Race | FaultKind::UninitializedMemory | FaultKind::Pending
        ),
        "{text}"
    );
}

#[test]
fn copies_arrive_at_an_mbarrier() {
    let copy = "
  setp.ne.u32 %p1, %r0, 0;
  @%p1 bra MADE;
  mbarrier.init.shared.b64 [%r1+8192], 64;
MADE:
  bar.sync 0;
  cp.async.cg.shared.global [%r3], [%rd5], 16;
";
    let counted = "
  cp.async.mbarrier.arrive.shared.b64 [%r1+8192];
  mbarrier.arrive.shared.b64 %rd7, [%r1+8192];
AGAIN:
  mbarrier.test_wait.shared.b64 %p2, [%r1+8192], %rd7;
  @!%p2 bra AGAIN;
";
    let uncounted = "
  cp.async.mbarrier.arrive.noinc.shared.b64 [%r1+8192];
AGAIN:
  mbarrier.try_wait.parity.shared.b64 %p2, [%r1+8192], 0;
  @!%p2 bra AGAIN;
";
    let from = ramp(256);
    for wait in [counted, uncounted] {
        let kernel = Kernel::new(&copied_words(copy, wait), 64);
        let (a, b) = (kernel.words(&from), kernel.words(&[0; 256]));
        kernel.run([a, b, 0], None);
        assert_eq!(kernel.read(b, 256), mirrored(&from));
    }
}
