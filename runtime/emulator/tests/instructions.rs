//! Random instructions on random operands: whatever they are given, there is a fault or a result, and no panic (of an overflow, an index, a
//! shift); and the same launch gives the same twice.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tesserine_emulator::{Launch, Memory, Module, Options, target::Target};

/// SplitMix64: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count.max(1) as u64) as usize
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// Instructions. `h`, `r`, `d`, `f`, `g` and `p` behind a `$` are registers (of 16, 32, 64 bits, f32, f64, predicates), `i` an integer, `n` a
/// small one, `G` and `S` addresses in global and shared memory; `a/b/c` in brackets `<>` is one of these.
const TEMPLATES: &[&str] = &[
    "add.<s32/u32> $r, $r, $r;",
    "add.<s64/u64> $d, $d, $d;",
    "add.<s16/u16> $h, $h, $h;",
    "add.sat.s32 $r, $r, $i;",
    "sub.<s32/u32> $r, $i, $r;",
    "sub.sat.s32 $r, $r, $r;",
    "sub.s64 $d, $d, $d;",
    "mul.<lo/hi/wide>.s16 $W, $h, $h;",
    "mul.<lo/hi>.<s32/u32> $r, $r, $r;",
    "mul.wide.<s32/u32> $d, $r, $r;",
    "mul.<lo/hi>.<s64/u64> $d, $d, $d;",
    "mul24.<lo/hi>.<s32/u32> $r, $r, $r;",
    "mad.<lo/hi>.<s32/u32> $r, $r, $r, $r;",
    "mad.wide.<s32/u32> $d, $r, $r, $d;",
    "mad.hi.sat.s32 $r, $r, $r, $r;",
    "mad24.<lo/hi>.<s32/u32> $r, $r, $r, $r;",
    "<div/rem>.<s32/u32> $r, $r, $r;",
    "<div/rem>.<s64/u64> $d, $d, $d;",
    "<div/rem>.<s16/u16> $h, $h, $h;",
    "<abs/neg>.s32 $r, $r;",
    "<abs/neg>.s64 $d, $d;",
    "<min/max>.<s32/u32> $r, $r, $r;",
    "<min/max>.<s64/u64> $d, $d, $d;",
    "<min/max>.<s16x2/u16x2> $r, $r, $r;",
    "<and/or/xor>.b32 $r, $r, $r;",
    "<and/or/xor>.b64 $d, $d, $d;",
    "<and/or/xor>.pred $p, $p, $p;",
    "<not/cnot>.b32 $r, $r;",
    "not.b64 $d, $d;",
    "shl.b32 $r, $r, $r;",
    "shl.b64 $d, $d, $r;",
    "shl.b16 $h, $h, $r;",
    "shr.<s32/u32/b32> $r, $r, $r;",
    "shr.<s64/u64> $d, $d, $r;",
    "shr.<s16/u16> $h, $h, $r;",
    "shf.<l/r>.<wrap/clamp>.b32 $r, $r, $r, $r;",
    "<popc/clz>.b32 $r, $r;",
    "<popc/clz>.b64 $r, $d;",
    "bfind.<s32/u32> $r, $r;",
    "bfind.shiftamt.<s64/u64> $r, $d;",
    "brev.b32 $r, $r;",
    "brev.b64 $d, $d;",
    "bfe.<s32/u32> $r, $r, $r, $r;",
    "bfe.<s64/u64> $d, $d, $r, $r;",
    "bfi.b32 $r, $r, $r, $r, $r;",
    "bfi.b64 $d, $d, $d, $r, $r;",
    "fns.b32 $r, $r, $r, $r;",
    "szext.<clamp/wrap>.<s32/u32> $r, $r, $r;",
    "bmsk.<clamp/wrap>.b32 $r, $r, $r;",
    "sad.<s32/u32> $r, $r, $r, $r;",
    "sad.<s64/u64> $d, $d, $d, $d;",
    "dp4a.<s32/u32>.<s32/u32> $r, $r, $r, $r;",
    "dp2a.<lo/hi>.<s32/u32>.<s32/u32> $r, $r, $r, $r;",
    "lop3.b32 $r, $r, $r, $r, $n;",
    "prmt.b32 $r, $r, $r, $r;",
    "prmt.b32.<f4e/b4e/rc8/ecl/ecr/rc16> $r, $r, $r, $r;",
    "<add.cc/addc/addc.cc/sub.cc/subc/subc.cc>.<s32/u32> $r, $r, $r;",
    "<add.cc/addc/sub.cc/subc>.<s64/u64> $d, $d, $d;",
    "<mad.lo.cc/madc.lo/madc.hi/madc.hi.cc>.<s32/u32> $r, $r, $r, $r;",
    "<add/sub/mul>.<rn/rz/rm/rp>.ftz.f32 $f, $f, $f;",
    "<add/sub/mul>.<rn/rz/rm/rp>.f64 $g, $g, $g;",
    "<add/mul>.sat.f32 $f, $f, $f;",
    "fma.<rn/rz/rm/rp>.<ftz.f32/f32/sat.f32> $f, $f, $f, $f;",
    "fma.<rn/rz/rm/rp>.f64 $g, $g, $g, $g;",
    "div.<rn/rz/rm/rp/approx/full>.f32 $f, $f, $f;",
    "div.<rn/rz/rm/rp>.f64 $g, $g, $g;",
    "rcp.<rn/rz/rm/rp/approx.ftz>.f32 $f, $f;",
    "rcp.<rn/rz/rm/rp>.f64 $g, $g;",
    "rcp.approx.ftz.f64 $g, $g;",
    "sqrt.<rn/rz/rm/rp/approx.ftz>.f32 $f, $f;",
    "sqrt.<rn/rz/rm/rp>.f64 $g, $g;",
    "<rsqrt/sin/cos/lg2/ex2>.approx.ftz.f32 $f, $f;",
    "<rsqrt/sin/cos/lg2/ex2>.approx.f32 $f, $f;",
    "tanh.approx.f32 $f, $f;",
    "<abs/neg>.ftz.f32 $f, $f;",
    "<abs/neg>.f64 $g, $g;",
    "<min/max>.<f32/ftz.f32/NaN.f32/ftz.NaN.f32> $f, $f, $f;",
    "<min/max>.xorsign.abs.f32 $f, $f, $f;",
    "<min/max>.f64 $g, $g, $g;",
    "copysign.f32 $f, $f, $f;",
    "testp.<finite/infinite/number/notanumber/normal/subnormal>.f32 $p, $f;",
    "<add/sub/mul>.rn.<f16/bf16> $h, $h, $h;",
    "<add/sub/mul>.rn.<f16x2/bf16x2> $r, $r, $r;",
    "fma.rn.<f16/bf16/relu.f16/sat.f16/ftz.f16> $h, $h, $h, $h;",
    "fma.rn.<f16x2/bf16x2/relu.bf16x2> $r, $r, $r, $r;",
    "<min/max>.<f16/NaN.f16/bf16/NaN.bf16> $h, $h, $h;",
    "<min/max>.<f16x2/bf16x2/NaN.f16x2> $r, $r, $r;",
    "<abs/neg>.<f16/bf16> $h, $h;",
    "<abs/neg>.<f16x2/bf16x2> $r, $r;",
    "ex2.approx.<f16/ftz.bf16> $h, $h;",
    "tanh.approx.<f16/bf16> $h, $h;",
    "cvt.<rni/rzi/rmi/rpi>.<s32/u32>.f32 $r, $f;",
    "cvt.<rni/rzi/rmi/rpi>.<s64/u64>.f32 $d, $f;",
    "cvt.<rni/rzi/rmi/rpi>.<s32/u32>.f64 $r, $g;",
    "cvt.<rni/rzi/rmi/rpi>.<s16/u16>.f16 $h, $h;",
    "cvt.<rn/rz/rm/rp>.f32.<s32/u32> $f, $r;",
    "cvt.<rn/rz/rm/rp>.f32.<s64/u64> $f, $d;",
    "cvt.<rn/rz/rm/rp>.f64.<s64/u64> $g, $d;",
    "cvt.<rn/rz>.f16.<s32/u32> $h, $r;",
    "cvt.<rn/rz/rm/rp>.f32.f64 $f, $g;",
    "cvt.f64.f32 $g, $f;",
    "cvt.f32.<f16/bf16> $f, $h;",
    "cvt.<rn/rz>.<f16/bf16>.f32 $h, $f;",
    "cvt.<rni/rzi/rmi/rpi>.f32.f32 $f, $f;",
    "cvt.<rni/rzi/rmi/rpi>.f64.f64 $g, $g;",
    "cvt.sat.f32.f32 $f, $f;",
    "cvt.<s16/u16/s8/u8>.<s32/u32> $r, $r;",
    "cvt.<s64/u64>.<s32/u32> $d, $r;",
    "cvt.sat.<s16/u16/s8/u8>.<s32/u32> $r, $r;",
    "cvt.sat.<s32/u32>.<s64/u64> $r, $d;",
    "cvt.<rn/rz>.<f16x2/bf16x2/relu.f16x2>.f32 $r, $f, $f;",
    "cvt.rn.satfinite.<e4m3x2/e5m2x2/relu.e4m3x2>.f32 $h, $f, $f;",
    "cvt.rn.satfinite.<e4m3x2/e5m2x2>.f16x2 $h, $r;",
    "cvt.rn.<f16x2/relu.f16x2>.<e4m3x2/e5m2x2> $r, $h;",
    "cvt.<rna/rn/rz>.tf32.f32 $r, $f;",
    "setp.<eq/ne/lt/le/gt/ge>.<s32/u32> $p|$p, $r, $r;",
    "setp.<lt/ge>.<and/or/xor>.<s64/u64> $p, $d, $d, $p;",
    "setp.<eq/ne/ltu/leu/gtu/geu/num/nan>.<f32/ftz.f32> $p, $f, $f;",
    "setp.<eq/equ/neu>.f64 $p, $g, $g;",
    "setp.<lt/nan>.<f16/bf16> $p, $h, $h;",
    "setp.<lt/gtu>.<f16x2/bf16x2> $p|$p, $r, $r;",
    "set.<eq/lt>.<u32.s32/f32.s32> $r, $r, $r;",
    "set.<lt/nan>.<u32.f32/f32.f32> $r, $f, $f;",
    "set.<lt/nan>.f16x2.f16x2 $r, $r, $r;",
    "selp.<b32/s32> $r, $r, $i, $p;",
    "selp.<b64/f64> $d, $d, $d, $p;",
    "selp.b16 $h, $h, $h, $p;",
    "slct.<s32/u32>.<s32/f32> $r, $r, $r, $r;",
    "mov.b32 $r, {$h, $h};",
    "mov.b64 $d, {$r, $r};",
    "mov.b32 {$h, $h}, $r;",
    "mov.b64 {$r, _}, $d;",
    "mov.u32 $r, <%laneid/%lanemask_lt/%clock/%smid/%nwarpid/%cluster_ctarank/%dynamic_smem_size>;",
    "mov.u64 $d, <%clock64/%globaltimer>;",
    "shfl.sync.<up/down/bfly/idx>.b32 $r|$p, $r, $r, $r, -1;",
    "vote.sync.<all/any/uni>.pred $p, $p, -1;",
    "vote.sync.ballot.b32 $r, !$p, -1;",
    "match.<any>.sync.<b32> $r, $r, -1;",
    "match.any.sync.b64 $r, $d, -1;",
    "match.all.sync.b32 $r|$p, $r, -1;",
    "redux.sync.<add/min/max>.<s32/u32> $r, $r, -1;",
    "redux.sync.<and/or/xor>.b32 $r, $r, -1;",
    "elect.sync $r|$p, -1;",
    "activemask.b32 $r;",
    "ld.global.<s8/u8/b32> $r, [$G];",
    "ld.global.<v2.b32> {$r, $r}, [$G];",
    "ld.global.v4.f32 {$f, $f, $f, $f}, [$G];",
    "ld.<relaxed.gpu/acquire.gpu/acquire.cta/volatile>.global.b32 $r, [$G];",
    "ld.b64 $d, [$d];",
    "ld.shared.<s16/b32> $r, [$r];",
    "st.global.<b8/b16> [$G], $h;",
    "st.<relaxed.gpu/release.gpu/release.cta>.global.b64 [$G], $d;",
    "st.shared.v2.b64 [$S], {$d, $d};",
    "st.shared.b32 [$r+$i], $r;",
    "ld.local.b32 $r, [frame+8];",
    "st.local.v2.b32 [frame+8], {$r, $r};",
    "atom.<global/relaxed.gpu.global>.<add.u32/add.s32/min.s32/max.u32/inc.u32/dec.u32/and.b32/xor.b32/exch.b32> $r, [$G], $r;",
    "atom.<global/acq_rel.gpu.global>.<add.u64/min.s64/max.u64/exch.b64> $d, [$G], $d;",
    "atom.global.cas.b32 $r, [$G], $r, $r;",
    "atom.shared.cas.b64 $d, [$S], $d, $d;",
    "atom.<global/shared>.add.f32 $f, [$d], $f;",
    "atom.global.add.f64 $g, [$G], $g;",
    "atom.global.add.noftz.f16x2 $r, [$G], $r;",
    "red.global.<add.u32/min.s32/or.b32/inc.u32> [$G], $r;",
    "red.shared.<add.u32/max.s32> [$S], $r;",
    "bar.sync <0/1/15>;",
    "bar.sync $r, $r;",
    "bar.arrive <1/2>, <32/64/96>;",
    "bar.red.<popc.u32> $r, 0, $p;",
    "bar.red.<and/or>.pred $p, 0, $p;",
    "bar.warp.sync <-1/$r>;",
    "barrier.cluster.<arrive/wait/arrive.relaxed/arrive.aligned/wait.aligned>;",
    "fence.<acq_rel.gpu/sc.sys/acq_rel.cta/proxy.async/proxy.async.shared::cta/mbarrier_init.release.cluster>;",
    "membar.<cta/gl/sys>;",
    "ldmatrix.sync.aligned.m8n8.x4.<shared/trans.shared>.b16 {$r, $r, $r, $r}, [$M];",
    "stmatrix.sync.aligned.m8n8.x2.<shared/trans.shared>.b16 [$M], {$r, $r};",
    "movmatrix.sync.aligned.m8n8.trans.b16 $r, $r;",
    "mma.sync.aligned.m16n8k16.row.col.f32.<f16.f16/bf16.bf16>.f32 {$f, $f, $f, $f}, {$r, $r, $r, $r}, {$r, $r}, {$f, $f, $f, $f};",
    "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {$r, $r}, {$r, $r, $r, $r}, {$r, $r}, {$r, $r};",
    "mma.sync.aligned.m16n8k32.row.col.<s32.s8.s8/s32.u8.s8/satfinite.s32.s8.s8>.s32 {$r, $r, $r, $r}, {$r, $r, $r, $r}, {$r, $r}, {$r, $r, $r, $r};",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {$f, $f, $f, $f}, {$r, $r, $r, $r}, {$r, $r}, {$f, $f, $f, $f};",
    "mma.sync.aligned.m16n8k32.row.col.f32.<e4m3.e4m3/e5m2.e4m3>.f32 {$f, $f, $f, $f}, {$r, $r, $r, $r}, {$r, $r}, {$f, $f, $f, $f};",
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {$g, $g}, {$g}, {$g}, {$g, $g};",
    "cp.async.ca.shared.global [$S], [$G], <4/8/16>;",
    "cp.async.cg.shared.global [$M], [$G], 16, $r;",
    "cp.async.commit_group;",
    "cp.async.wait_group <0/1/7>;",
    "cp.async.wait_all;",
    "cp.async.mbarrier.arrive.<noinc.shared/shared>.b64 [$S];",
    "mbarrier.init.shared.b64 [$S], <1/32/64/$r>;",
    "mbarrier.inval.shared.b64 [$S];",
    "mbarrier.arrive.shared.b64 $d, [$S];",
    "mbarrier.arrive.expect_tx.shared.b64 $d, [$S], <16/256/$r>;",
    "mbarrier.arrive.shared::cluster.b64 _, [$r], $r;",
    "mbarrier.arrive_drop.shared.b64 $d, [$S];",
    "mbarrier.expect_tx.relaxed.cta.shared.b64 [$S], $r;",
    "mbarrier.complete_tx.relaxed.cta.shared.b64 [$S], $r;",
    "mbarrier.<test_wait/try_wait>.shared.b64 $p, [$S], $d;",
    "mbarrier.<test_wait/try_wait>.parity.shared.b64 $p, [$S], $r;",
    "mbarrier.pending_count.b64 $r, $d;",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$S], [$G], <16/256/$r>, [$S];",
    "cp.async.bulk.global.shared::cta.bulk_group [$G], [$S], <16/256/$r>;",
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.<add.f32/min.s32/add.u64/xor.b32> [$G], [$S], <16/$r>;",
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [$S], [$d, {$r, $r}], [$S];",
    "cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [$d, {$r}], [$S];",
    "cp.async.bulk.commit_group;",
    "cp.async.bulk.wait_group <0/1>;",
    "cp.async.bulk.wait_group.read <0/1>;",
    "wgmma.fence.sync.aligned;",
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {$f, $f, $f, $f}, $d, $d, $p, 1, -1, 0, 1;",
    "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {$f, $f, $f, $f}, {$r, $r, $r, $r}, $d, 1, 1, 1;",
    "wgmma.commit_group.sync.aligned;",
    "wgmma.wait_group.sync.aligned <0/1>;",
    "setmaxnreg.<inc/dec>.sync.aligned.u32 <24/64/232>;",
    "griddepcontrol.<wait/launch_dependents>;",
    "nanosleep.u32 $r;",
    "mapa.shared::cluster.u32 $r, $r, $n;",
    "mapa.u64 $d, $d, $r;",
    "getctarank.shared::cluster.u32 $r, $r;",
    "isspacep.<global/shared/local/shared::cluster> $p, $d;",
    "cvta.<global/shared/local>.u64 $d, $d;",
    "cvta.to.<global/shared/local>.u64 $d, $d;",
    "prefetch.global.<L1/L2> [$d];",
    "exit;",
];

/// Fills a template.
fn fill(template: &str, random: &mut Random) -> String {
    let mut chosen = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('<') {
        let (options, after) = after.split_once('>').expect("a bracket that closes");
        let options: Vec<&str> = options.split('/').collect();
        chosen += before;
        chosen += random.of(&options);
        rest = after;
    }
    chosen += rest;
    let wide = chosen.contains(".wide");
    let mut text = String::new();
    let mut letters = chosen.chars();
    while let Some(letter) = letters.next() {
        if letter != '$' {
            text.push(letter);
            continue;
        }
        let register = random.below(6);
        text += &match letters.next() {
            Some('h') => format!("%h{register}"),
            Some('r') => format!("%r{register}"),
            Some('W') if wide => format!("%r{register}"),
            Some('W') => format!("%h{register}"),
            Some('d') => format!("%d{register}"),
            Some('f') => format!("%f{register}"),
            Some('g') => format!("%g{register}"),
            Some('p') => format!("%p{register}"),
            Some('i') => format!("{}", VALUES[random.below(VALUES.len())] as u32 as i32),
            Some('n') => format!("{}", random.below(300)),
            Some('G') => format!("%global+{}", 16 * random.below(64)),
            Some('S') => format!("%shared+{}", 16 * random.below(64)),
            Some('M') => format!("%row+{}", 16 * random.below(8)),
            other => panic!("no such placeholder: {other:?}"),
        };
    }
    text
}

/// Values at the edges of all types.
const VALUES: [u64; 24] = [
    0,
    1,
    2,
    5,
    16,
    31,
    32,
    33,
    63,
    64,
    0x7f,
    0xff,
    0x8000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x3f80_0000,
    0x7f80_0000,
    0xff80_0001,
    0x0000_0001_0000_0001,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_ffff,
    0x7ff0_0000_0000_0001,
];

/// Registers with values of all kinds, shared memory that is written, and instructions.
fn program(instructions: &[String], random: &mut Random) -> String {
    let mut text = String::from(
        ".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 p0)\n{\n\
         .reg .pred %p<6>;\n.reg .b16 %h<6>;\n.reg .b32 %r<8>;\n.reg .f32 %f<6>;\n.reg .b64 %d<6>;\n.reg .f64 %g<6>;\n\
         .reg .b32 %shared, %row, %lane;\n.reg .b64 %global, %wide;\n.reg .pred %more;\n\
         .shared .align 1024 .b8 tile[8192];\n.local .align 16 .b8 frame[64];\n\
         ld.param.u64 %global, [p0];\nmov.u32 %shared, tile;\nmov.u32 %r6, %tid.x;\nand.b32 %lane, %r6, 31;\n\
         shl.b32 %row, %lane, 4;\nadd.u32 %row, %row, %shared;\nmul.wide.u32 %wide, %lane, 0x10001;\n\
         shl.b32 %r7, %r6, 2;\nadd.u32 %r7, %r7, %shared;\nmov.b32 %r0, 0;\n\
         $FILL: st.shared.b32 [%r7], %r6;\nadd.u32 %r0, %r0, 1;\nadd.u32 %r7, %r7, 256;\nsetp.lt.u32 %more, %r0, 32;\n@%more bra $FILL;\n\
         st.local.v4.b32 [frame], {%r6, %r6, %r6, %r6};\nbar.sync 0;\n",
    );
    for register in 0..6 {
        let mut value = || match random.below(3) {
            0 => random.next(),
            _ => random.of(&VALUES),
        };
        let (a, b, c, d, e) = (value(), value(), value(), value(), value());
        text += &format!(
            "mov.b32 %r{register}, {};\nmov.b32 %f{register}, 0f{:08X};\nmov.b64 %d{register}, {};\nmov.b64 %g{register}, 0d{e:016X};\n\
             mov.b16 %h{register}, {};\nsetp.lt.u32 %p{register}, %lane, {};\n",
            a as u32,
            b as u32,
            c,
            d as u16,
            d % 40,
        );
        // Values that differ by lane.
        match random.below(4) {
            0 => text += &format!("add.u32 %r{register}, %r{register}, %lane;\n"),
            1 => text += &format!("xor.b64 %d{register}, %d{register}, %wide;\n"),
            2 => text += &format!("mov.b64 %d{register}, %global;\n"),
            _ => text += &format!("mov.b32 %r{register}, %shared;\n"),
        }
    }
    for instruction in instructions {
        if random.below(6) == 0 {
            text += &format!("@%p{} ", random.below(6));
        }
        text += instruction;
        text += "\n";
    }
    text += "st.global.v4.b32 [%global+2048], {%r0, %r1, %r2, %r3};\nret;\n}\n";
    text
}

/// What a launch leaves: its fault, or its memory.
fn run(text: &str, cluster: u32, check_races: bool) -> Result<Vec<u8>, String> {
    let module = Module::load(text, Target::named("sm_90a").expect("a target"));
    let module = module.map_err(|e| e.to_string())?;
    let memory = Memory::new();
    let buffer = memory.allocate(4096).expect("memory");
    memory.write(buffer, &[0; 4096]).expect("memory");
    let launch = Launch {
        entry: "k",
        grid: [cluster, 1, 1],
        block: [64, 1, 1],
        cluster: [cluster, 1, 1],
        shared_bytes: 0,
        arguments: &[&buffer.to_le_bytes()],
    };
    let options = Options {
        step_limit: 20_000,
        check_races,
        workers: 1,
        seed: 0,
    };
    let done = module.launch(&memory, &launch, &options);
    done.map_err(|fault| fault.to_string())?;
    let mut bytes = vec![0; 4096];
    memory.read(buffer, &mut bytes).expect("memory");
    Ok(bytes)
}

/// Runs programs of random instructions; how many ran to their end.
fn attack(seeds: std::ops::Range<u64>) -> usize {
    let mut ended = 0;
    for seed in seeds {
        let mut random = Random(seed);
        let count = 1 + random.below(12);
        let instructions: Vec<String> = (0..count)
            .map(|_| {
                let template = random.of(TEMPLATES);
                fill(template, &mut random)
            })
            .collect();
        let text = program(&instructions, &mut random);
        let (cluster, check_races) = (random.of(&[1, 1, 2]), random.below(2) == 0);
        let twice = || [(); 2].map(|()| run(&text, cluster, check_races));
        let Ok([first, second]) = catch_unwind(AssertUnwindSafe(twice)) else {
            panic!("seed {seed} panics:\n{text}");
        };
        assert!(first == second, "seed {seed} gives two results:\n{text}");
        ended += usize::from(first.is_ok());
    }
    ended
}

#[test]
fn templates_are_instructions() {
    // Each loads by itself, in each of some fillings.
    let mut refused = Vec::new();
    for (template, seed) in TEMPLATES.iter().zip(0..) {
        for more in 0..4 {
            let mut random = Random(seed * 100 + more);
            let instruction = fill(template, &mut random);
            let text = program(std::slice::from_ref(&instruction), &mut random);
            let module = Module::load(&text, Target::named("sm_90a").expect("a target"));
            if let Err(error) = module {
                refused.push(format!("{instruction} {error}"));
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn random_instructions() {
    let ended = attack(0..800);
    // Most faults are of the addresses, the barriers and the races that come of it; enough run through.
    assert!(ended > 200, "{ended}");
}

#[test]
#[ignore = "minutes; EMULATOR_SEEDS says how many"]
fn many_random_instructions() {
    let seeds = std::env::var("EMULATOR_SEEDS").ok();
    let seeds = seeds.and_then(|s| s.parse().ok()).unwrap_or(50_000);
    println!("{}", attack(10_000..10_000 + seeds));
}
