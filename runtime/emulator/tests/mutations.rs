//! Kernels that were broken at random: whatever they do, the emulator gives a result or a fault, and comes to an end.

use std::panic;

use tesserine_emulator::{
    Launch, Memory, Module, Options,
    target::Target,
    tensor_map::{DataType, Interleave, L2Promotion, OobFill, Parameters, Swizzle, TensorMap},
};

/// A small generator of random numbers (xorshift*).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit.max(1)
    }
}

const HEAD: &str = "
.version 8.6
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 shared[];
.global .align 4 .u32 counter;
.const .align 4 .b32 table[4] = {1, 2, 3, 4};
.visible .entry kernel(.param .u64 p0, .param .u64 p1, .param .u32 p2, .param .align 64 .b8 map[128])
{
  .reg .pred %p<8>;
  .reg .b16 %h<8>;
  .reg .b32 %r<32>;
  .reg .f32 %f<16>;
  .reg .f64 %d<4>;
  .reg .b64 %rd<16>;
  .local .align 16 .b8 stack[64];
  ld.param.u64 %rd0, [p0];
  ld.param.u64 %rd1, [p1];
  ld.param.u32 %r2, [p2];
  mov.b64 %rd3, map;
  cvta.param.u64 %rd3, %rd3;
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, shared;
  shl.b32 %r3, %r0, 4;
  add.u32 %r4, %r1, %r3;
  mov.u32 %r29, %ctaid.x;
  mad.lo.u32 %r30, %r29, 2048, %r3;
  mul.wide.u32 %rd4, %r30, 1;
  add.u64 %rd5, %rd0, %rd4;
  add.u64 %rd6, %rd1, %rd4;
";

/// One a family, more or less.
const BODIES: [&str; 8] = [
    // Integers, floats, conversions, local and constant memory.
    "
  ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd5];
  mad.lo.s32 %r9, %r5, %r6, %r7;
  mul.hi.u32 %r10, %r9, %r8;
  shf.l.wrap.b32 %r11, %r9, %r10, 7;
  bfe.u32 %r12, %r11, 3, 9;
  prmt.b32 %r13, %r12, %r11, 0x5410;
  div.s32 %r14, %r13, %r2;
  rem.u32 %r15, %r13, %r2;
  cvt.rn.f32.s32 %f0, %r14;
  cvt.rn.f16.f32 %h0, %f0;
  cvt.f32.f16 %f1, %h0;
  fma.rn.f32 %f2, %f0, %f1, 0f3F800000;
  cvt.rzi.s32.f32 %r16, %f2;
  cvt.f64.f32 %d0, %f2;
  add.rn.f64 %d1, %d0, 0d3FF0000000000000;
  st.local.f64 [stack+8], %d1;
  ld.local.u32 %r17, [stack+12];
  ld.const.b32 %r18, [table+8];
  st.global.v4.u32 [%rd6], {%r15, %r16, %r17, %r18};
",
    // Divergence, exchanges, votes.
    "
  setp.lt.u32 %p0, %r0, 13;
  @%p0 bra LOW;
  mov.u32 %r5, 5;
LOOP:
  sub.u32 %r5, %r5, 1;
  setp.ne.u32 %p1, %r5, 0;
  @%p1 bra LOOP;
  bra JOIN;
LOW:
  mov.u32 %r5, %laneid;
JOIN:
  bar.warp.sync 0xffffffff;
  shfl.sync.bfly.b32 %r6|%p2, %r5, 1, 0x1f, 0xffffffff;
  vote.sync.ballot.b32 %r7, %p0, 0xffffffff;
  match.any.sync.b32 %r8, %r5, 0xffffffff;
  redux.sync.add.u32 %r9, %r5, 0xffffffff;
  elect.sync %r10|%p3, 0xffffffff;
  @%p3 st.global.u32 [%rd6], %r10;
",
    // Shared memory, barriers, atomics.
    "
  st.shared.v4.u32 [%r4], {%r0, %r3, %r2, %r1};
  st.shared.u32 [%r4+4096], %r0;
  bar.sync 0;
  xor.b32 %r5, %r3, 16;
  add.u32 %r5, %r5, %r1;
  ld.shared.v4.u32 {%r6, %r7, %r8, %r9}, [%r5];
  atom.shared.add.u32 %r10, [%r1+4096], 1;
  atom.global.add.u32 %r10, [counter], %r6;
  red.global.max.u32 [%rd1], %r7;
  setp.lt.u32 %p0, %r0, 50;
  bar.red.popc.u32 %r11, 1, 128, %p0;
  bar.sync 2, 128;
  membar.gl;
  ld.volatile.global.u32 %r12, [%rd1];
  atom.global.acq_rel.gpu.cas.b32 %r13, [%rd1+4], %r12, %r11;
  barrier.cluster.arrive;
  barrier.cluster.wait;
",
    // Matrices.
    "
  st.shared.v4.u32 [%r4], {%r0, %r3, %r2, %r1};
  bar.sync 0;
  and.b32 %r5, %r0, 31;
  shl.b32 %r5, %r5, 4;
  add.u32 %r5, %r5, %r1;
  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r6, %r7, %r8, %r9}, [%r5];
  ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r10, %r11}, [%r5];
  mov.f32 %f0, 0f00000000;
  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r6, %r7, %r8, %r9}, {%r10, %r11}, {%f0, %f0, %f0, %f0};
  st.global.v4.f32 [%rd6], {%f1, %f2, %f3, %f4};
  stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r4+2048], {%r6};
",
    // Copies of words.
    "
  cp.async.cg.shared.global [%r4], [%rd5], 16;
  cp.async.ca.shared.global [%r4+2048], [%rd5], 4, %r2;
  cp.async.commit_group;
  cp.async.wait_group 0;
  bar.sync 0;
  ld.shared.v4.u32 {%r6, %r7, %r8, %r9}, [%r4];
  st.global.v4.u32 [%rd6], {%r6, %r7, %r8, %r9};
",
    // mbarriers and bulk copies.
    "
  setp.ne.u32 %p1, %r0, 0;
  @%p1 bra MADE;
  mbarrier.init.shared::cta.b64 [%r1+4096], 1;
  fence.proxy.async.shared::cta;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+4096], 2048;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], 2048, [%r1+4096];
MADE:
  bar.sync 0;
AGAIN:
  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1+4096], 0;
  @!%p2 bra AGAIN;
  ld.shared.u32 %r5, [%r4];
  add.u32 %r5, %r5, 1;
  st.shared.u32 [%r4], %r5;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  @%p1 bra DONE;
  cp.async.bulk.global.shared::cta.bulk_group [%rd6], [%r1], 2048;
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
  mbarrier.inval.shared::cta.b64 [%r1+4096];
DONE:
",
    // Tensors.
    "
  setp.ne.u32 %p1, %r0, 0;
  @%p1 bra MADE;
  mbarrier.init.shared::cta.b64 [%r1+4096], 1;
  fence.proxy.async.shared::cta;
  mbarrier.arrive.expect_tx.shared::cta.b64 %rd7, [%r1+4096], 1024;
  mov.u32 %r6, 8;
  mov.u32 %r7, 0;
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd3, {%r6, %r7}], [%r1+4096];
MADE:
  bar.sync 0;
AGAIN:
  mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r1+4096], 0;
  @!%p2 bra AGAIN;
  @%p1 bra DONE;
  mad.lo.u32 %r8, %r29, 8, 8;
  cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%rd3, {%r7, %r8}], [%r1];
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group.read 0;
DONE:
",
    // Warp groups and clusters.
    "
  mapa.shared::cluster.u32 %r5, %r1, 1;
  st.shared.v4.u32 [%r4], {%r0, %r0, %r0, %r0};
  fence.proxy.async;
  barrier.cluster.arrive.release;
  barrier.cluster.wait.acquire;
  ld.shared::cluster.u32 %r6, [%r5+16];
  mov.u64 %rd8, 0x4000000000010040;
  mov.f32 %f0, 0f00000000;
  mov.f32 %f1, %f0;
  mov.f32 %f2, %f0;
  mov.f32 %f3, %f0;
  wgmma.fence.sync.aligned;
  wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd8, %rd8, 1, 1, 1, 0, 0;
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0;
  st.global.v4.f32 [%rd6], {%f0, %f1, %f2, %f3};
  setmaxnreg.dec.sync.aligned.u32 40;
  barrier.cluster.arrive;
  barrier.cluster.wait;
",
];

fn kernel(body: &str) -> String {
    format!("{HEAD}{body}\n  ret;\n}}\n")
}

/// Other operands for one that was taken out.
const OTHERS: [&str; 24] = [
    "0",
    "1",
    "-1",
    "31",
    "32",
    "4",
    "8",
    "64",
    "128",
    "4096",
    "0x7fffffff",
    "0xffffffff",
    "%r0",
    "%r1",
    "%r2",
    "%r5",
    "%r30",
    "%p0",
    "%p2",
    "%rd0",
    "%rd3",
    "%rd12",
    "%f0",
    "%h3",
];

/// One to three changes of lines and operands.
fn broken(body: &str, random: &mut Random) -> String {
    let mut lines: Vec<String> = body.lines().map(str::to_owned).collect();
    for _ in 0..1 + random.below(3) {
        let at = random.below(lines.len());
        match random.below(7) {
            0 => {
                lines.remove(at);
            }
            1 => {
                let line = lines[at].clone();
                lines.insert(random.below(lines.len()), line);
            }
            2 => {
                let other = random.below(lines.len());
                lines.swap(at, other);
            }
            3 => lines[at] = lines[at].replacen('@', "@!", 1).replacen("!!", "", 1),
            4 if lines[at].ends_with(';') => lines[at].insert_str(0, "@%p0 "),
            _ => {
                // A number or register becomes another.
                let is_part = |c: char| c.is_ascii_alphanumeric() || c == '%' || c == '_';
                let line = &lines[at];
                let mut starts: Vec<(usize, usize)> = Vec::new();
                let mut from = None;
                for (i, c) in line.char_indices() {
                    match (is_part(c), from) {
                        (true, None) => from = Some(i),
                        (false, Some(start)) => {
                            starts.push((start, i));
                            from = None;
                        }
                        _ => {}
                    }
                }
                let opcode = line.find(' ').map_or(0, |_| {
                    line.trim_start()
                        .find(' ')
                        .map_or(0, |i| i + line.len() - line.trim_start().len())
                });
                starts.retain(|(start, _)| *start > opcode);
                if !starts.is_empty() {
                    let (start, end) = starts[random.below(starts.len())];
                    let other = OTHERS[random.below(OTHERS.len())];
                    lines[at].replace_range(start..end, other);
                }
            }
        }
        if lines.is_empty() {
            break;
        }
    }
    lines.join("\n")
}

/// Loads and runs it; whether it was loaded, and whether it ran to its end.
fn run(text: &str, seed: u64) -> (bool, bool) {
    let device = Target::named("sm_90a").expect("a target");
    let Ok(module) = Module::load(text, device) else {
        return (false, false);
    };
    let memory = Memory::new();
    let words: Vec<u8> = (0..4096_u32)
        .flat_map(|i| (i % 512).to_le_bytes())
        .collect();
    let [a, b] = [(); 2].map(|()| {
        let at = memory.allocate(words.len()).expect("memory");
        memory.write(at, &words).expect("memory");
        at
    });
    let map = TensorMap::encode(&Parameters {
        data_type: DataType::Float32,
        rank: 2,
        global_address: b,
        global_dim: &[32, 20],
        global_strides: &[128],
        box_dim: &[32, 8],
        element_strides: &[1, 1],
        interleave: Interleave::None,
        swizzle: Swizzle::B128,
        l2_promotion: L2Promotion::None,
        oob_fill: OobFill::Zero,
    })
    .expect("a legal map");
    let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
    let launch = Launch {
        entry: "kernel",
        grid: [2, 1, 1],
        block: [128, 1, 1],
        cluster: [2, 1, 1],
        shared_bytes: 8192,
        arguments: &[&a, &b, &3_u32.to_le_bytes(), &map.to_bytes()],
    };
    let options = Options {
        step_limit: 20_000,
        check_races: !seed.is_multiple_of(4),
        seed,
        ..Options::default()
    };
    (true, module.launch(&memory, &launch, &options).is_ok())
}

#[test]
fn broken_kernels_neither_panic_nor_run_for_ever() {
    for body in BODIES {
        assert_eq!(run(&kernel(body), 1), (true, true), "{body}");
    }
    let rounds = std::env::var("MUTATIONS").map_or(40, |n| n.parse().unwrap_or(40));
    let mut random = Random(3);
    let (mut loaded, mut ended) = (0, 0);
    for round in 0..rounds {
        for body in BODIES {
            let text = kernel(&broken(body, &mut random));
            let Ok(done) = panic::catch_unwind(|| run(&text, round)) else {
                panic!("this kernel made it panic:\n{text}");
            };
            loaded += u32::from(done.0);
            ended += u32::from(done.1);
        }
    }
    // Most are still kernels, and some do no harm.
    let all = rounds as u32 * BODIES.len() as u32;
    assert!(
        loaded > all / 3 && ended > all / 10,
        "{loaded} loaded, {ended} ended of {all}"
    );
}
