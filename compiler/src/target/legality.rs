//! Which instruction exists where, and from which PTX version on.
//!
//! LLVM ends the process when it meets an intrinsic that the SM or the PTX version lacks, and inline PTX reaches
//! `ptxas` unseen. So codegen asks here before it emits anything that is not in the common core of all targets, and a
//! kernel's `.version` is the highest that its target and its rows name.

use super::{PtxVersion, Target};
use crate::{
    diagnostics::{Diagnostic, codes},
    span::Span,
};

/// An instruction that is more than plain arithmetic, control and memory access, which all targets have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Instruction {
    /// All threads of a block meet.
    Barrier,
    /// Lanes of a warp exchange registers.
    Shuffle,
    /// Lanes of a warp read the registers of lanes below them, or of one that they name.
    ShuffleUp,
    /// A sum in shared memory, whoever adds to it at once.
    SharedAtomic,
    /// `2^x`, approximately.
    Exp2,
    /// The logarithm to base 2, approximately.
    Log2,
    /// `1/√x`, approximately.
    Rsqrt,
    /// f64 to f32 towards zero.
    CvtTowardsZero,
    /// Two f32 to two bf16 or f16 in one conversion.
    CvtPacked16,
    /// One f32 to one bf16.
    CvtBf16,
    /// f32 pairs to e4m3 or e5m2 pairs, and those to f16 pairs.
    CvtFp8,
    /// f32 pairs to e2m1 pairs.
    CvtFp4,
    /// Matrices of 8 by 8 from shared memory.
    LdMatrix,
    /// Products of 16 by 8 by 8, of f16.
    MmaF16K8,
    /// Products of 16 by 8 by 16, of f16.
    MmaF16K16,
    /// Products of 16 by 8 by 16, of bf16.
    MmaBf16K16,
    /// Products of 16 by 8 by 8, of tf32.
    MmaTf32K8,
    /// Products of 16 by 8 by 32, of 8-bit integers.
    MmaInt8K32,
    /// Products of 16 by 8 by 32, of 8-bit floats.
    MmaFp8K32,
    /// Asynchronous copies of 4, 8 or 16 bytes, with the size of what the second-level cache fetches.
    CpAsync,
    /// Eviction priorities of the first-level cache on loads and stores.
    EvictionPriority,
    /// Atomic operations of the device's scope, and its fences.
    Atomic,
    /// Blocks of a cluster meet, and read each other's shared memory.
    Cluster,
    /// Barriers in shared memory that count arrivals and bytes, and are waited for.
    Mbarrier,
    /// Bulk copies through tensor maps.
    BulkTensor,
    /// What threads stored is seen by bulk copies and products.
    FenceAsync,
    /// Products of warpgroups.
    Wgmma,
    /// Products of warpgroups whose bytes are signed on one side only.
    WgmmaMixedBytes,
    /// A warpgroup asks for registers, or gives some back.
    SetMaxRegisters,
    /// One lane of a warp is chosen.
    Elect,
    /// A grid lets the next one begin, and waits for the one before it.
    DependentGrids,
    /// Matrices of 8 by 8 to shared memory.
    StMatrix,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub instruction: Instruction,
    /// As PTX spells it, for messages.
    pub spelling: &'static str,
    /// One letter a target, in the order of [`Target::ALL`]: `Y` where it exists.
    pub targets: &'static str,
    pub ptx: PtxVersion,
}

#[rustfmt::skip]
static TABLE: &[Row] = &[
    //                                                                                      75 80 86 89|90a|100a 103a 110a|120a 121a
    Row { instruction: Instruction::Barrier,          spelling: "barrier.sync.aligned",          targets: "YYYYYYYYYY", ptx: (6, 0) },
    Row { instruction: Instruction::Shuffle,          spelling: "shfl.sync.bfly",                targets: "YYYYYYYYYY", ptx: (6, 0) },
    Row { instruction: Instruction::Atomic,           spelling: "atom.relaxed.gpu",              targets: "YYYYYYYYYY", ptx: (6, 0) },
    Row { instruction: Instruction::ShuffleUp,        spelling: "shfl.sync.up",                  targets: "YYYYYYYYYY", ptx: (6, 0) },
    Row { instruction: Instruction::SharedAtomic,     spelling: "red.shared.add.u32",            targets: "YYYYYYYYYY", ptx: (1, 2) },
    Row { instruction: Instruction::Exp2,             spelling: "ex2.approx.f32",                targets: "YYYYYYYYYY", ptx: (1, 4) },
    Row { instruction: Instruction::Log2,             spelling: "lg2.approx.f32",                targets: "YYYYYYYYYY", ptx: (1, 4) },
    Row { instruction: Instruction::Rsqrt,            spelling: "rsqrt.approx.f32",              targets: "YYYYYYYYYY", ptx: (1, 4) },
    Row { instruction: Instruction::CvtTowardsZero,   spelling: "cvt.rz.f32.f64",                targets: "YYYYYYYYYY", ptx: (1, 4) },
    Row { instruction: Instruction::CvtPacked16,      spelling: "cvt.rn.bf16x2.f32",             targets: "nYYYYYYYYY", ptx: (7, 0) },
    Row { instruction: Instruction::CvtBf16,          spelling: "cvt.rn.bf16.f32",               targets: "nYYYYYYYYY", ptx: (7, 0) },
    Row { instruction: Instruction::CvtFp8,           spelling: "cvt.rn.satfinite.e4m3x2.f32",   targets: "nnnYYYYYYY", ptx: (8, 1) },
    Row { instruction: Instruction::CvtFp4,           spelling: "cvt.rn.satfinite.e2m1x2.f32",   targets: "nnnnnYYYYY", ptx: (8, 6) },
    Row { instruction: Instruction::EvictionPriority, spelling: "ld.global.L1::evict_first",     targets: "YYYYYYYYYY", ptx: (7, 4) },
    Row { instruction: Instruction::LdMatrix,         spelling: "ldmatrix.sync.aligned.m8n8.x4.b16", targets: "YYYYYYYYYY", ptx: (6, 5) },
    Row { instruction: Instruction::MmaF16K8,         spelling: "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", targets: "YYYYYYYYYY", ptx: (6, 5) },
    Row { instruction: Instruction::MmaF16K16,        spelling: "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", targets: "nYYYYYYYYY", ptx: (7, 0) },
    Row { instruction: Instruction::MmaBf16K16,       spelling: "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", targets: "nYYYYYYYYY", ptx: (7, 0) },
    Row { instruction: Instruction::MmaTf32K8,        spelling: "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", targets: "nYYYYYYYYY", ptx: (7, 0) },
    Row { instruction: Instruction::MmaInt8K32,       spelling: "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", targets: "nYYYYYYYYY", ptx: (7, 0) },
    Row { instruction: Instruction::MmaFp8K32,        spelling: "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", targets: "nnnYYYYYYY", ptx: (8, 4) },
    Row { instruction: Instruction::Cluster,          spelling: "barrier.cluster.arrive",        targets: "nnnnYYYYnn", ptx: (7, 8) },
    Row { instruction: Instruction::Mbarrier,         spelling: "mbarrier.try_wait.parity",      targets: "nnnnYYYYYY", ptx: (8, 0) },
    Row { instruction: Instruction::BulkTensor,       spelling: "cp.async.bulk.tensor",          targets: "nnnnYYYYYY", ptx: (8, 0) },
    Row { instruction: Instruction::FenceAsync,       spelling: "fence.proxy.async",             targets: "nnnnYYYYYY", ptx: (8, 0) },
    Row { instruction: Instruction::Wgmma,            spelling: "wgmma.mma_async.sync.aligned",  targets: "nnnnYnnnnn", ptx: (8, 0) },
    Row { instruction: Instruction::WgmmaMixedBytes,  spelling: "wgmma.mma_async.sync.aligned.m64n8k32.s32.u8.s8", targets: "nnnnYnnnnn", ptx: (8, 4) },
    Row { instruction: Instruction::SetMaxRegisters,  spelling: "setmaxnreg.sync.aligned",       targets: "nnnnYYYYYY", ptx: (8, 0) },
    Row { instruction: Instruction::Elect,            spelling: "elect.sync",                    targets: "nnnnYYYYYY", ptx: (8, 0) },
    Row { instruction: Instruction::StMatrix,         spelling: "stmatrix.sync.aligned.m8n8.x4.shared.b16", targets: "nnnnYYYYYY", ptx: (7, 8) },
    Row { instruction: Instruction::DependentGrids,   spelling: "griddepcontrol.wait",           targets: "nnnnYYYYYY", ptx: (7, 8) },
    Row { instruction: Instruction::CpAsync,          spelling: "cp.async.cg.shared.global.L2::128B", targets: "nYYYYYYYYY", ptx: (7, 4) },
];

/// The newest `.version` that a kernel may name, its target's own minimum apart.
pub const NEWEST: PtxVersion = (8, 8);

/// The row of `instruction`.
pub fn row(instruction: Instruction) -> &'static Row {
    TABLE
        .iter()
        .find(|r| r.instruction == instruction)
        .expect("every instruction has a row")
}

/// Whether `target` has `instruction`.
pub fn has(instruction: Instruction, target: Target) -> bool {
    let row = row(instruction);
    row.targets.as_bytes()[target.index()] == b'Y'
        && (row.ptx <= NEWEST || row.ptx <= target.info().ptx)
}

/// The PTX version that `instruction` needs on `target`, or E0610 at `span`.
pub fn require(
    instruction: Instruction,
    target: Target,
    span: Span,
) -> Result<PtxVersion, Diagnostic> {
    let row = row(instruction);
    if has(instruction, target) {
        return Ok(row.ptx.max(target.info().ptx));
    }
    let having: Vec<&str> = Target::ALL
        .into_iter()
        .filter(|&t| has(instruction, t))
        .map(Target::name)
        .collect();
    Err(Diagnostic::error(
        codes::E0610,
        span,
        format!("{target} has no instruction for this (`{}`)", row.spelling),
    )
    .note(format!("it exists on {}", having.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_target_and_instruction() {
        let old = Target::parse("sm_80").unwrap();
        let error = require(Instruction::CvtFp8, old, Span::NONE).unwrap_err();
        assert_eq!(error.code, codes::E0610);
        assert!(error.title.contains("sm_80") && error.title.contains("e4m3x2"));
        assert!(error.notes[0].contains("sm_89"));
    }

    #[test]
    fn versions_are_at_least_the_targets() {
        let (turing, hopper) = (
            Target::parse("sm_75").unwrap(),
            Target::parse("sm_90a").unwrap(),
        );
        assert_eq!(
            require(Instruction::Shuffle, turing, Span::NONE),
            Ok((6, 3))
        );
        assert_eq!(
            require(Instruction::EvictionPriority, turing, Span::NONE),
            Ok((7, 4))
        );
        assert_eq!(
            require(Instruction::CvtBf16, hopper, Span::NONE),
            Ok((8, 0))
        );
        for r in TABLE {
            assert_eq!(r.targets.len(), Target::ALL.len());
            assert!(Target::ALL.into_iter().any(|t| has(r.instruction, t)));
        }
    }
}
