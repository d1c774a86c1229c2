//! Bulk copies of linear memory, and reductions.

use tesserine_emulator::FaultKind;

use crate::kernel::{Kernel, ramp};

/// Thread 0 makes an mbarrier at 8192 that expects one arrival, and issues what `copy` says; all wait, and then each reads its word.
pub fn bulk(copy: &str, wait: &str) -> String {
    format!(
        "
  setp.ne.u32 %p1, %r0, 0;
  @%p1 bra MADE;
  mbarrier.init.shared::cta.b64 [%r1+8192], 1;
  fence.proxy.async.shared::cta;
  {copy}
MADE:
  bar.sync 0;
  {wait}
  shl.b32 %r2, %r0, 2;
  add.u32 %r3, %r1, %r2;
  ld.shared.b32 %r4, [%r3];
  mul.wide.u32 %rd4, %r2, 1;
  add.u64 %rd4, %rd1, %rd4;
  st.global.b32 [%rd4], %r4;
"
    )
}

pub const WAIT: &str = "
AGAIN:
  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1+8192], 0;
  @!%p2 bra AGAIN;
";

#[test]
fn bulk_copies_complete_an_mbarrier() {
    let copy = "
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+8192], 512;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], 256, [%r1+8192];
  cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1+256], [%rd0+256], 256, [%r1+8192];
";
    let from = ramp(128);
    let kernel = Kernel::new(&bulk(copy, WAIT), 128);
    let (a, b) = (kernel.words(&from), kernel.words(&[0; 128]));
    kernel.run([a, b, 0], None);
    assert_eq!(kernel.read(b, 128), from);

    // Nobody waits: the barrier of the block orders the issue, not the copy.
    let unwaited =
        "@%p1 bra DONE; mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1+8192], 0; DONE:";
    let kernel = Kernel::new(&bulk(copy, unwaited), 128);
    let (a, b) = (kernel.words(&from), kernel.words(&[0; 128]));
    let (kind, text) = kernel.fault([a, b, 0], None);
    assert!(
        matches!(kind, FaultKind::Pending | FaultKind::Race),
        "{text}"
    );
    assert!(text.contains("cp.async.bulk"), "{text}");

    // Bytes that are expected and do not come.
    let short = copy.replace("8192], 512", "8192], 1024");
    let kernel = Kernel::new(&bulk(&short, WAIT), 128);
    let (a, b) = (kernel.words(&from), kernel.words(&[0; 128]));
    let (kind, text) = kernel.fault([a, b, 0], None);
    assert_eq!(kind, FaultKind::Deadlock, "{text}");
    assert!(text.contains("512 bytes"), "{text}");
}

#[test]
fn operands_of_bulk_copies() {
    let of = |operands: &str| {
        format!("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes {operands};")
    };
    let cases = [
        (
            of("[%r1], [%rd0], 24, [%r1+8192]"),
            "multiple of 16",
            FaultKind::Operand,
        ),
        (
            of("[%r1+8], [%rd0], 32, [%r1+8192]"),
            "multiple of 16",
            FaultKind::Misaligned,
        ),
        (
            of("[%r1], [%rd0+8], 32, [%r1+8192]"),
            "multiple of 16",
            FaultKind::Misaligned,
        ),
        (
            of("[%r1], [%rd0], 1024, [%r1+8192]"),
            "out of bounds",
            FaultKind::OutOfBounds,
        ),
        (
            of("[%r1+16368], [%rd0], 32, [%r1+8192]"),
            "out of bounds",
            FaultKind::OutOfBounds,
        ),
        (
            of("[%r1], [%rd0], 32, [%r1+8200]"),
            "no mbarrier",
            FaultKind::Barrier,
        ),
    ];
    for (copy, part, kind) in cases {
        let kernel = Kernel::new(&bulk(&copy, ""), 32);
        let (a, b) = (kernel.words(&ramp(128)), kernel.words(&[0; 128]));
        let (found, text) = kernel.fault([a, b, 0], None);
        assert!(
            found == kind && text.contains(part),
            "{copy}\n{found:?}: {text}"
        );
    }
}

/// All threads write a word to shared memory; thread 0 copies them out.
pub fn bulk_store(fence: &str, copy: &str, after: &str) -> String {
    format!(
        "
  shl.b32 %r2, %r0, 2;
  add.u32 %r3, %r1, %r2;
  mad.lo.u32 %r4, %r0, 7, 3;
  cvt.rn.f32.u32 %f1, %r4;
  st.shared.f32 [%r3], %f1;
  {fence}
  bar.sync 0;
  setp.ne.u32 %p1, %r0, 0;
  @%p1 bra DONE;
  {copy}
  cp.async.bulk.commit_group;
  {after}
DONE:
"
    )
}

pub const FENCE: &str = "fence.proxy.async.shared::cta;";
const STORE: &str = "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 512;";

fn stored() -> Vec<f32> {
    (0..128).map(|i| (i * 7 + 3) as f32).collect()
}

#[test]
fn bulk_copies_go_out_of_shared_memory() {
    let kernel = Kernel::new(
        &bulk_store(FENCE, STORE, "cp.async.bulk.wait_group 0;"),
        128,
    );
    let out = kernel.words(&[0; 128]);
    kernel.run([0, out, 0], None);
    let found: Vec<f32> = kernel
        .read(out, 128)
        .into_iter()
        .map(f32::from_bits)
        .collect();
    assert_eq!(found, stored());

    let unfenced = Kernel::new(&bulk_store("", STORE, "cp.async.bulk.wait_group 0;"), 128);
    let out = unfenced.words(&[0; 128]);
    let (kind, text) = unfenced.fault([0, out, 0], None);
    assert_eq!(kind, FaultKind::MissingProxyFence, "{text}");

    // The source is written again.
    let again = |wait: &str| format!("{wait} st.shared.f32 [%r3], %f1;");
    let kernel = Kernel::new(
        &bulk_store(FENCE, STORE, &again("cp.async.bulk.wait_group.read 0;")),
        128,
    );
    let out = kernel.words(&[0; 128]);
    kernel.run([0, out, 0], None);
    let kernel = Kernel::new(
        &bulk_store(FENCE, STORE, &again("cp.async.bulk.wait_group 1;")),
        128,
    );
    let out = kernel.words(&[0; 128]);
    let (kind, text) = kernel.fault([0, out, 0], None);
    assert!(
        matches!(kind, FaultKind::Pending | FaultKind::Race),
        "{text}"
    );

    // The destination is read, but only the read of the source was waited for.
    let reads = "cp.async.bulk.wait_group.read 0; ld.global.b32 %r9, [%rd1];";
    let kernel = Kernel::new(&bulk_store(FENCE, STORE, reads), 128);
    let out = kernel.words(&[0; 128]);
    let (kind, text) = kernel.fault([0, out, 0], None);
    assert!(
        matches!(kind, FaultKind::Pending | FaultKind::Race),
        "{text}"
    );

    // The block ends before its shared memory was read.
    let kernel = Kernel::new(&bulk_store(FENCE, STORE, ""), 128);
    let out = kernel.words(&[0; 128]);
    let (kind, text) = kernel.fault([0, out, 0], None);
    assert_eq!(kind, FaultKind::Pending, "{text}");
}

#[test]
fn bulk_reductions_add_blocks_up() {
    let copy = "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd1], [%r1], 512;";
    let kernel =
        Kernel::new(&bulk_store(FENCE, copy, "cp.async.bulk.wait_group 0;"), 128).blocks(5);
    let start: Vec<u32> = (0..128).map(|i| (i as f32 / 2.0).to_bits()).collect();
    let out = kernel.words(&start);
    kernel.run([0, out, 0], None);
    let found: Vec<f32> = kernel
        .read(out, 128)
        .into_iter()
        .map(f32::from_bits)
        .collect();
    // All sums are exact.
    let expected: Vec<f32> = stored()
        .iter()
        .zip(0..)
        .map(|(v, i)| 5.0 * v + i as f32 / 2.0)
        .collect();
    assert_eq!(found, expected);
}
