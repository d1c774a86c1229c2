//! Asynchronous copies, bulk copies, tensor copies and mbarriers, by kernels written by hand: what they compute, and what the emulator finds
//! wrong with those that break one rule.

use tesserine_emulator::{
    FaultKind, Launch, Memory, Module, Options,
    target::Target,
    tensor_map::{
        DataType, Interleave, L2Promotion, OobFill, Parameters, Swizzle, TensorMap, swizzle,
    },
};

/// A kernel with up to four parameters of 64 bits, and a tensor map.
struct Kernel {
    module: Module,
    memory: Memory,
    block: u32,
    grid: u32,
    cluster: u32,
    shared: u32,
}

const HEAD: &str = "
.version 8.6
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 shared[];
.visible .entry kernel(
  .param .u64 p0, .param .u64 p1, .param .u64 p2, .param .align 64 .b8 map[128])
{
  .reg .pred %p<8>;
  .reg .b16 %h<8>;
  .reg .b32 %r<32>;
  .reg .f32 %f<8>;
  .reg .b64 %rd<32>;
  ld.param.u64 %rd0, [p0];
  ld.param.u64 %rd1, [p1];
  ld.param.u64 %rd2, [p2];
  mov.b64 %rd3, map;
  cvta.param.u64 %rd3, %rd3;
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, shared;
";

impl Kernel {
    /// A body: `%rd0` to `%rd2` are the parameters, `%rd3` the map's address, `%r0` the thread, `%r1` shared memory.
    fn new(body: &str, block: u32) -> Kernel {
        let text = format!("{HEAD}{body}\n  ret;\n}}\n");
        let device = Target::named("sm_90a").expect("a target");
        let module = Module::load(&text, device).unwrap_or_else(|e| panic!("{e}\n{text}"));
        Kernel {
            module,
            memory: Memory::new(),
            block,
            grid: 1,
            cluster: 1,
            shared: 16 << 10,
        }
    }

    fn cluster(mut self, blocks: u32) -> Kernel {
        (self.grid, self.cluster) = (blocks, blocks);
        self
    }

    fn blocks(mut self, blocks: u32) -> Kernel {
        self.grid = blocks;
        self
    }

    fn bytes(&self, bytes: &[u8]) -> u64 {
        let at = self.memory.allocate(bytes.len()).expect("memory");
        self.memory.write(at, bytes).expect("memory");
        at
    }

    fn words(&self, words: &[u32]) -> u64 {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.bytes(&bytes)
    }

    fn read(&self, at: u64, words: usize) -> Vec<u32> {
        let mut bytes = vec![0; words * 4];
        self.memory.read(at, &mut bytes).expect("memory");
        let word = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        bytes.chunks(4).map(word).collect()
    }

    fn try_run(
        &self,
        parameters: [u64; 3],
        map: Option<&TensorMap>,
    ) -> Result<(), tesserine_emulator::Fault> {
        let [a, b, c] = parameters.map(u64::to_le_bytes);
        let map = map.map_or([0; 128], TensorMap::to_bytes);
        let launch = Launch {
            entry: "kernel",
            grid: [self.grid, 1, 1],
            block: [self.block, 1, 1],
            cluster: [self.cluster, 1, 1],
            shared_bytes: self.shared,
            arguments: &[&a, &b, &c, &map],
        };
        let options = Options {
            step_limit: 1 << 20,
            ..Options::default()
        };
        self.module
            .launch(&self.memory, &launch, &options)
            .map(|_| ())
    }

    fn run(&self, parameters: [u64; 3], map: Option<&TensorMap>) {
        if let Err(fault) = self.try_run(parameters, map) {
            panic!("{fault}");
        }
    }

    /// The kind and the text of the fault that there must be.
    fn fault(&self, parameters: [u64; 3], map: Option<&TensorMap>) -> (FaultKind, String) {
        match self.try_run(parameters, map) {
            Ok(()) => panic!("the kernel runs to its end"),
            Err(fault) => (fault.kind, fault.to_string()),
        }
    }
}

fn ramp(count: u32) -> Vec<u32> {
    (0..count)
        .map(|i| i.wrapping_mul(2_654_435_761) ^ 0x5a)
        .collect()
}

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

/// Thread 0 makes an mbarrier at 8192 that expects one arrival, and issues what `copy` says; all wait, and then each reads its word.
fn bulk(copy: &str, wait: &str) -> String {
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

const WAIT: &str = "
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
fn bulk_store(fence: &str, copy: &str, after: &str) -> String {
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

const FENCE: &str = "fence.proxy.async.shared::cta;";
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

/// A tensor of 20 rows of 40 f32 (with 48 to a row), boxes of 8 rows of 32.
fn tensor(base: u64, mode: Swizzle) -> TensorMap {
    TensorMap::encode(&Parameters {
        data_type: DataType::Float32,
        rank: 2,
        global_address: base,
        global_dim: &[40, 20],
        global_strides: &[48 * 4],
        box_dim: &[32, 8],
        element_strides: &[1, 1],
        interleave: Interleave::None,
        swizzle: mode,
        l2_promotion: L2Promotion::None,
        oob_fill: OobFill::Zero,
    })
    .expect("a legal map")
}

/// The tensor's words; those that pad its rows have values too.
fn matrix() -> Vec<u32> {
    (0..20 * 48).map(|i| (i as f32 + 1.0).to_bits()).collect()
}

fn element(row: i32, column: i32) -> Option<usize> {
    let inside = (0..20).contains(&row) && (0..40).contains(&column);
    inside.then(|| (row * 48 + column) as usize)
}

#[test]
fn boxes_of_tensors_are_loaded() {
    let copy = "
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+8192], 1024;
  mov.b64 {%r5, %r20}, %rd2;
  mov.b32 %r6, ROW;
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd3, {%r5, %r6}], [%r1+8192];
";
    let words = matrix();
    for mode in [Swizzle::None, Swizzle::B128] {
        for (row, column) in [(0, 0), (16, 16), (-3, -5), (5, 39), (20, 0)] {
            let copy = copy.replace("ROW", &format!("{row}"));
            let kernel = Kernel::new(&bulk(&copy, WAIT), 256);
            let (a, b) = (kernel.words(&words), kernel.words(&[0; 256]));
            let map = tensor(a, mode);
            kernel.run([0, b, column as u32 as u64], Some(&map));
            let found = kernel.read(b, 256);
            for r in 0..8 {
                for c in 0..32 {
                    let at = swizzle(mode, (r * 128 + c * 4) as u64) as usize / 4;
                    let expected = element(row + r, column + c).map_or(0, |e| words[e]);
                    assert_eq!(found[at], expected, "{mode:?} ({row}, {column}): {r}, {c}");
                }
            }
        }
    }
}

#[test]
fn boxes_of_tensors_are_stored_and_added() {
    for (copy, adds) in [
        (
            "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd3, {%r5, %r6}], [%r1];",
            false,
        ),
        (
            "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%rd3, {%r5, %r6}], [%r1];",
            true,
        ),
    ] {
        let copy = format!("mov.b64 {{%r5, %r20}}, %rd2; mov.b32 %r6, 15; {copy}");
        let kernel = Kernel::new(
            &bulk_store(FENCE, &copy, "cp.async.bulk.wait_group 0;"),
            256,
        );
        let words = matrix();
        let a = kernel.words(&words);
        let column = 24;
        let map = tensor(a, Swizzle::B128);
        kernel.run([0, 0, column], Some(&map));
        let mut expected: Vec<f32> = words.iter().map(|w| f32::from_bits(*w)).collect();
        for r in 0..8 {
            for c in 0..32 {
                let at = swizzle(Swizzle::B128, (r * 128 + c * 4) as u64) / 4;
                let value = (at * 7 + 3) as f32;
                if let Some(e) = element(15 + r, column as i32 + c) {
                    expected[e] = if adds { expected[e] + value } else { value };
                }
            }
        }
        let found: Vec<f32> = kernel
            .read(a, words.len())
            .into_iter()
            .map(f32::from_bits)
            .collect();
        assert_eq!(found, expected, "{copy}");
    }
}

#[test]
fn what_is_no_tensor_map_is_told() {
    let copy = "
  mov.b32 %r6, 0;
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd3, {%r6, %r6}], [%r1+8192];
";
    let kernel = Kernel::new(&bulk(copy, ""), 32);
    let (kind, text) = kernel.fault([0, 0, 0], None);
    assert!(
        kind == FaultKind::Operand && text.contains("no tensor map"),
        "{text}"
    );
    let a = kernel.words(&matrix());
    let (kind, text) = Kernel::new(&bulk(&copy.replace("[%r1],", "[%r1+64],"), ""), 32)
        .fault([0, 0, 0], Some(&tensor(a, Swizzle::None)));
    assert!(
        kind == FaultKind::Misaligned && text.contains("multiple of 128"),
        "{text}"
    );
    let (kind, text) = Kernel::new(
        &bulk(&copy.replace("2d", "1d").replace("{%r6, %r6}", "{%r6}"), ""),
        32,
    )
    .fault([0, 0, 0], Some(&tensor(a, Swizzle::None)));
    assert!(
        kind == FaultKind::Operand && text.contains("1 coordinates"),
        "{text}"
    );
}

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

#[test]
fn what_is_not_known_or_too_new_is_refused_by_name() {
    let cases = [
        (
            "sm_90a",
            "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r1], [%rd3, {%r1, %r1, %r1}], [%r1], {%h1};",
        ),
        (
            "sm_90a",
            "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes [%r1], [%rd3, {%r1, %r1}], [%r1];",
        ),
        ("sm_90a", "cp.async.cg.shared.global [%r1], [%rd0], 8;"),
        (
            "sm_90a",
            "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f16 [%rd0], [%r1], 16;",
        ),
        ("sm_90a", "mbarrier.arrive.sideways.b64 %rd4, [%r1];"),
        ("sm_80", "mbarrier.try_wait.shared.b64 %p1, [%r1], %rd4;"),
        ("sm_80", "cp.async.bulk.commit_group;"),
        ("sm_75", "cp.async.commit_group;"),
    ];
    for (target, instruction) in cases {
        let text = format!("{HEAD}{instruction}\n  ret;\n}}\n").replace("sm_90a", target);
        let device = Target::named(target).expect("a target");
        let error = Module::load(&text, device)
            .expect_err(instruction)
            .to_string();
        let mnemonic = instruction
            .split_whitespace()
            .next()
            .expect("one")
            .trim_end_matches(';');
        assert!(error.contains(mnemonic), "{error}");
    }
}
