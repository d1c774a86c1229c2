//! Copies, stores and arrivals between the blocks of a cluster.

use tesserine_emulator::FaultKind;

use crate::kernel::{Kernel, ramp};

#[test]
fn a_multicast_reaches_all_blocks_of_its_mask() {
    // Block 1 loads for both; each waits at its own mbarrier and stores what it has.
    let body = "
  mov.u32 %r8, %cluster_ctarank;
  setp.ne.u32 %p1, %r0, 0;
  @%p1 bra MADE;
  mbarrier.init.shared::cta.b64 [%r1+8192], 1;
  fence.mbarrier_init.release.cluster;
  fence.proxy.async.shared::cta;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+8192], 256;
MADE:
  barrier.cluster.arrive.release;
  barrier.cluster.wait.acquire;
  setp.ne.u32 %p3, %r8, 1;
  or.pred %p4, %p1, %p3;
  @%p4 bra ISSUED;
  mov.b16 %h1, 3;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1], [%rd0], 256, [%r1+8192], %h1;
ISSUED:
  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1+8192], 0;
  @!%p2 bra ISSUED;
  shl.b32 %r2, %r0, 2;
  add.u32 %r3, %r1, %r2;
  ld.shared.b32 %r4, [%r3];
  mad.lo.u32 %r5, %r8, 256, %r2;
  mul.wide.u32 %rd4, %r5, 1;
  add.u64 %rd4, %rd1, %rd4;
  st.global.b32 [%rd4], %r4;
  barrier.cluster.arrive;
  barrier.cluster.wait;
";
    let kernel = Kernel::new(body, 64).cluster(2);
    let from = ramp(64);
    let (a, b) = (kernel.words(&from), kernel.words(&[0; 128]));
    kernel.run([a, b, 0], None);
    assert_eq!(kernel.read(b, 128), [from.clone(), from].concat());
}

#[test]
fn blocks_send_bytes_and_arrivals_to_each_other() {
    // Each block writes its rank and thread, and sends it to the other block.
    let body = "
  mov.u32 %r8, %cluster_ctarank;
  xor.b32 %r9, %r8, 1;
  mapa.shared::cluster.u32 %r10, %r1, %r9;
  setp.ne.u32 %p1, %r0, 0;
  @%p1 bra MADE;
  mbarrier.init.shared::cta.b64 [%r1+8192], 2;
  fence.mbarrier_init.release.cluster;
MADE:
  mad.lo.u32 %r5, %r8, 1000, %r0;
  shl.b32 %r2, %r0, 2;
  add.u32 %r3, %r1, %r2;
  st.shared.b32 [%r3+4096], %r5;
  fence.proxy.async;
  barrier.cluster.arrive;
  barrier.cluster.wait;
  @%p1 bra WAIT;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+8192], 256;
  mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r10+8192];
  cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r10], [%r1+4096], 256, [%r10+8192];
WAIT:
  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r1+8192], 0;
  @!%p2 bra WAIT;
  ld.shared.b32 %r4, [%r3];
  mad.lo.u32 %r5, %r8, 256, %r2;
  mul.wide.u32 %rd4, %r5, 1;
  add.u64 %rd4, %rd1, %rd4;
  st.global.b32 [%rd4], %r4;
  barrier.cluster.arrive;
  barrier.cluster.wait;
";
    let kernel = Kernel::new(body, 64).cluster(2);
    let out = kernel.words(&[0; 128]);
    kernel.run([0, out, 0], None);
    let expected: Vec<u32> = (1000..1064).chain(0..64).collect();
    assert_eq!(kernel.read(out, 128), expected);
}

#[test]
fn stores_to_another_block_complete_bytes() {
    // Each thread of block 0 stores 16 bytes to block 1 and adds its number to a sum there.
    let body = "
  mov.u32 %r8, %cluster_ctarank;
  mov.u32 %r9, 1;
  mapa.shared::cluster.u32 %r10, %r1, %r9;
  setp.ne.u32 %p1, %r0, 0;
  @%p1 bra MADE;
  mov.u32 %r4, 1000;
  st.shared.u32 [%r1+4096], %r4;
  mbarrier.init.shared::cta.b64 [%r1+8192], 1;
  fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+8192], 640;
MADE:
  barrier.cluster.arrive;
  barrier.cluster.wait;
  shl.b32 %r2, %r0, 4;
  setp.ne.u32 %p3, %r8, 0;
  @%p3 bra RECEIVE;
  add.u32 %r11, %r10, %r2;
  mul.lo.u32 %r4, %r0, 3;
  mov.b32 %f1, %r0;
  st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r11], {%r0, %r4, %r8, %r9}, [%r10+8192];
  red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r10+4096], %r0, [%r10+8192];
  bra END;
RECEIVE:
  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r1+8192], 0;
  @!%p2 bra RECEIVE;
  add.u32 %r3, %r1, %r2;
  ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r3];
  ld.shared.b32 %r7, [%r1+4096];
  mul.wide.u32 %rd4, %r2, 1;
  add.u64 %rd4, %rd1, %rd4;
  st.global.v4.b32 [%rd4], {%r4, %r5, %r6, %r7};
END:
  barrier.cluster.arrive;
  barrier.cluster.wait;
  @%p1 bra LAST;
  mbarrier.inval.shared::cta.b64 [%r1+8192];
LAST:
";
    let kernel = Kernel::new(body, 32).cluster(2);
    let out = kernel.words(&[0; 128]);
    kernel.run([0, out, 0], None);
    let expected: Vec<u32> = (0..32)
        .flat_map(|i| [i, 3 * i, 0, 1000 + 31 * 16])
        .collect();
    assert_eq!(kernel.read(out, 128), expected);

    // A wait that acquires nothing orders nothing.
    let relaxed = body.replace("try_wait.parity.acquire", "try_wait.parity.relaxed");
    let kernel = Kernel::new(&relaxed, 32).cluster(2);
    let out = kernel.words(&[0; 128]);
    let (kind, text) = kernel.fault([0, out, 0], None);
    assert_eq!(kind, FaultKind::Race, "{text}");
    assert!(
        text.contains("st.async") || text.contains("red.async"),
        "{text}"
    );
}

#[test]
fn shared_memory_of_a_block_that_has_exited_is_no_more() {
    // Block 1 writes for block 0, which reads only after block 1 may have exited, unless both wait once more.
    let body = "
  mov.u32 %r8, %cluster_ctarank;
  mov.u32 %r9, 1;
  mapa.shared::cluster.u32 %r10, %r1, %r9;
  st.shared.u32 [%r1], %r8;
  barrier.cluster.arrive;
  barrier.cluster.wait;
  setp.eq.u32 %p1, %r8, 1;
  @%p1 bra END;
  mov.u32 %r2, 0;
SPIN:
  add.u32 %r2, %r2, 1;
  setp.lt.u32 %p2, %r2, 10000;
  @%p2 bra SPIN;
  ld.shared::cluster.u32 %r4, [%r10];
  st.global.u32 [%rd1], %r4;
END:
";
    let kernel = Kernel::new(body, 1).cluster(2);
    let out = kernel.words(&[7]);
    let (kind, text) = kernel.fault([0, out, 0], None);
    assert_eq!(kind, FaultKind::OutOfBounds, "{text}");
    assert!(text.contains("have exited"), "{text}");
    let waits = body.to_owned() + "barrier.cluster.arrive; barrier.cluster.wait;";
    let kernel = Kernel::new(&waits, 1).cluster(2);
    let out = kernel.words(&[7]);
    kernel.run([0, out, 0], None);
    assert_eq!(kernel.read(out, 1), [1]);
}
