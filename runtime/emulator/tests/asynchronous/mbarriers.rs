//! mbarriers between threads.

use tesserine_emulator::FaultKind;

use crate::kernel::Kernel;

/// Warp 0 writes a value to shared memory in each of `rounds` rounds, and warp 1 adds them up; two mbarriers tell of full and empty.
const ROUNDS: &str = "
  setp.ne.u32 %p1, %r0, 0;
  @%p1 bra MADE;
  mbarrier.init.shared::cta.b64 [%r1], 32;
  mbarrier.init.shared::cta.b64 [%r1+8], 32;
MADE:
  bar.sync 0;
  and.b32 %r2, %r0, 31;
  shl.b32 %r3, %r2, 2;
  add.u32 %r3, %r1, %r3;
  mov.u32 %r4, 0;
  mov.u32 %r5, 0;
  setp.ge.u32 %p2, %r0, 32;
  @%p2 bra CONSUME;
PRODUCE:
  and.b32 %r6, %r4, 1;
  xor.b32 %r6, %r6, 1;
EMPTY:
  mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r1+8], %r6;
  @!%p3 bra EMPTY;
  mad.lo.u32 %r7, %r4, 100, %r2;
  st.shared.b32 [%r3+128], %r7;
  mbarrier.arrive.shared::cta.b64 %rd4, [%r1];
  add.u32 %r4, %r4, 1;
  setp.lt.u32 %p4, %r4, 5;
  @%p4 bra PRODUCE;
  bra END;
CONSUME:
  and.b32 %r6, %r4, 1;
FULL:
  mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p3, [%r1], %r6;
  @!%p3 bra FULL;
  ld.shared.b32 %r7, [%r3+128];
  add.u32 %r5, %r5, %r7;
  ARRIVE
  add.u32 %r4, %r4, 1;
  setp.lt.u32 %p4, %r4, 5;
  @%p4 bra CONSUME;
  mul.wide.u32 %rd5, %r2, 1;
  shl.b64 %rd5, %rd5, 2;
  add.u64 %rd5, %rd1, %rd5;
  st.global.b32 [%rd5], %r5;
END:
";

#[test]
fn producers_and_consumers_meet_at_mbarriers() {
    let body = ROUNDS.replace("ARRIVE", "mbarrier.arrive.shared::cta.b64 _, [%r1+8];");
    let kernel = Kernel::new(&body, 64);
    let out = kernel.words(&[0; 32]);
    kernel.run([0, out, 0], None);
    let expected: Vec<u32> = (0..32).map(|i| (0..5).map(|r| r * 100 + i).sum()).collect();
    assert_eq!(kernel.read(out, 32), expected);
}

#[test]
fn a_missing_arrival_is_a_deadlock_that_names_the_mbarrier() {
    let body = ROUNDS.replace(
        "ARRIVE",
        "setp.eq.u32 %p5, %r2, 7; @!%p5 mbarrier.arrive.shared::cta.b64 _, [%r1+8];",
    );
    let deadlock = |body: &str| {
        let kernel = Kernel::new(body, 64);
        let out = kernel.words(&[0; 32]);
        let (kind, text) = kernel.fault([0, out, 0], None);
        assert_eq!(kind, FaultKind::Deadlock, "{text}");
        text
    };
    let text = deadlock(&body);
    assert!(text.contains("mbarrier at 0x408"), "{text}");
    assert!(text.contains("1 of 32 arrivals"), "{text}");
    // Who spins by tests is not told from who has other work to do, but for a while only.
    let text = deadlock(&body.replace("try_wait", "test_wait"));
    assert!(text.contains("mbarrier at 0x40"), "{text}");
}

#[test]
fn arrivals_without_release_order_nothing() {
    let body = ROUNDS
        .replace("ARRIVE", "mbarrier.arrive.shared::cta.b64 _, [%r1+8];")
        .replace(
            "mbarrier.arrive.shared::cta.b64 %rd4, [%r1];",
            "mbarrier.arrive.relaxed.cta.shared::cta.b64 %rd4, [%r1];",
        );
    let kernel = Kernel::new(&body, 64);
    let out = kernel.words(&[0; 32]);
    let (kind, text) = kernel.fault([0, out, 0], None);
    assert_eq!(kind, FaultKind::Race, "{text}");
}

/// One thread alone.
fn alone(body: &str) -> (FaultKind, String) {
    Kernel::new(body, 1).fault([0, 0, 0], None)
}

#[test]
fn rules_of_mbarriers() {
    let init = "mbarrier.init.shared.b64 [%r1], 2;";
    let arrive = "mbarrier.arrive.shared.b64 %rd4, [%r1];";
    let wait = "mbarrier.test_wait.shared.b64 %p1, [%r1], %rd4;";
    let cases: &[(&str, String, FaultKind)] = &[
        (
            "no mbarrier was initialised",
            arrive.into(),
            FaultKind::Barrier,
        ),
        (
            "0 arrivals",
            "mbarrier.init.shared.b64 [%r1], 0;".into(),
            FaultKind::Barrier,
        ),
        (
            "initialised again",
            format!("{init}{init}"),
            FaultKind::Barrier,
        ),
        (
            "multiple of 8",
            "mbarrier.init.shared.b64 [%r1+4], 1;".into(),
            FaultKind::Misaligned,
        ),
        (
            "got 3 arrivals",
            format!("{init} mbarrier.arrive.shared.b64 %rd4, [%r1], 3;"),
            FaultKind::Barrier,
        ),
        (
            "noComplete",
            format!("{init} mbarrier.arrive.noComplete.release.cta.shared.b64 %rd4, [%r1], 2;"),
            FaultKind::Barrier,
        ),
        (
            "neither waited for nor invalidated",
            format!("{init} mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 16;"),
            FaultKind::Barrier,
        ),
        (
            "cannot be tested any more",
            format!(
                "{init}{arrive} mbarrier.arrive.shared.b64 %rd5, [%r1], 1; mbarrier.arrive.shared.b64 %rd5, [%r1], 2;{wait}"
            ),
            FaultKind::Barrier,
        ),
        (
            "no state of an mbarrier",
            format!("{init} mov.b64 %rd4, 5; {wait}"),
            FaultKind::Operand,
        ),
        (
            "no mbarrier was initialised",
            format!("{init} mbarrier.inval.shared.b64 [%r1]; {arrive}"),
            FaultKind::Barrier,
        ),
        (
            "holds an mbarrier",
            format!("{init} st.shared.b32 [%r1+4], %r0;"),
            FaultKind::Barrier,
        ),
        (
            "out of bounds",
            "mbarrier.init.shared.b64 [%r1+16384], 1;".into(),
            FaultKind::OutOfBounds,
        ),
    ];
    for (part, body, kind) in cases {
        let (found, text) = alone(body);
        assert!(
            found == *kind && text.contains(part),
            "{body}\n{found:?}: {text}"
        );
    }
    // What keeps the rules.
    let body = format!(
        "{init}{arrive} mbarrier.pending_count.b64 %r2, %rd4;
  mbarrier.arrive_drop.shared.b64 %rd5, [%r1]; {wait}
  selp.u32 %r3, 1, 0, %p1;
  mbarrier.arrive.shared.b64 %rd5, [%r1];
  mbarrier.test_wait.parity.shared.b64 %p2, [%r1], 1;
  selp.u32 %r4, 1, 0, %p2;
  mbarrier.inval.shared.b64 [%r1]; {init} mbarrier.inval.shared.b64 [%r1];
  st.global.v4.b32 [%rd1], {{%r2, %r3, %r4, %r4}};"
    );
    let kernel = Kernel::new(&body, 1);
    let out = kernel.words(&[9; 4]);
    kernel.run([0, out, 0], None);
    assert_eq!(kernel.read(out, 4), [2, 1, 1, 1]);
}
