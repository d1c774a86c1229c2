//! What each SM target can do, as data; the only place that knows one SM from another.
//!
//! Invariants: [`Target::ALL`] is in the order that `..=` in schedules uses; everything that differs between targets is
//! a column of the table here or a row of [`legality`], so that no other module compares SM numbers.

pub mod inline;
pub mod legality;

use std::fmt;

use tesserine_set::DType;

use crate::layout::fragments::MmaShape;

/// A PTX version, `(8, 0)`.
pub type PtxVersion = (u32, u32);

/// One of the targets that code is generated for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target(u8);

/// The facts of one target.
#[derive(Clone, Copy, Debug)]
pub struct TargetInfo {
    /// `sm_90a`.
    pub name: &'static str,
    /// Compute capability times ten: 90.
    pub capability: u32,
    /// PTX made for it runs on this exact SM only (`a` targets).
    pub exact: bool,
    /// The lowest `.version` that knows the target.
    pub ptx: PtxVersion,
    /// Shared memory that one block may have, opted in, in bytes.
    pub shared_per_block: u32,
    /// Shared memory of an SM, in bytes; each block also takes `shared_reserved`.
    pub shared_per_sm: u32,
    /// What the system takes of each block's shared memory, in bytes.
    pub shared_reserved: u32,
    /// 32-bit registers of an SM.
    pub registers_per_sm: u32,
    pub threads_per_sm: u32,
    pub blocks_per_sm: u32,
    pub features: &'static [Feature],
}

/// What some targets have and others lack, as far as passes choose by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feature {
    /// Asynchronous copies of up to 16 bytes a thread.
    CpAsync,
    /// Bulk copies, tensor maps and their barriers.
    Bulk,
    /// Clusters of more than one block.
    Cluster,
    /// Warpgroup matrix products.
    Wgmma,
    /// Matrix products in tensor memory.
    TensorMemory,
    /// `bf16` arithmetic and packed conversions.
    Bf16,
    /// `mma.sync` of depth 16, and of `bf16`, `tf32` and 8-bit integers; without it of depth 8, of `f16`.
    DeepMma,
    /// Conversions to and from the eight-bit floats, and products of them.
    Fp8,
    /// Conversions to and from the four-bit floats and `ue8m0`.
    Fp4,
    /// Single accesses of 32 bytes a thread.
    Access32,
}

const KIB: u32 = 1024;

use Feature::*;

const fn info(
    name: &'static str,
    capability: u32,
    exact: bool,
    ptx: PtxVersion,
    shared_kib: (u32, u32),
    threads_per_sm: u32,
    blocks_per_sm: u32,
    features: &'static [Feature],
) -> TargetInfo {
    TargetInfo {
        name,
        capability,
        exact,
        ptx,
        shared_per_block: shared_kib.0 * KIB,
        shared_per_sm: shared_kib.1 * KIB,
        shared_reserved: (shared_kib.1 - shared_kib.0) * KIB,
        registers_per_sm: 64 * KIB,
        threads_per_sm,
        blocks_per_sm,
        features,
    }
}

#[rustfmt::skip]
static TABLE: [TargetInfo; 10] = [
    info("sm_75",  75,  false, (6, 3), (64, 64),   1024, 16, &[]),
    info("sm_80",  80,  false, (7, 0), (163, 164), 2048, 32, &[CpAsync, Bf16, DeepMma]),
    info("sm_86",  86,  false, (7, 1), (99, 100),  1536, 16, &[CpAsync, Bf16, DeepMma]),
    info("sm_89",  89,  false, (7, 8), (99, 100),  1536, 24, &[CpAsync, Bf16, DeepMma, Fp8]),
    info("sm_90a", 90,  true,  (8, 0), (227, 228), 2048, 32, &[CpAsync, Bf16, DeepMma, Fp8, Bulk, Cluster, Wgmma]),
    info("sm_100a", 100, true, (8, 6), (227, 228), 2048, 32, &[CpAsync, Bf16, DeepMma, Fp8, Fp4, Bulk, Cluster, TensorMemory, Access32]),
    info("sm_103a", 103, true, (8, 8), (227, 228), 2048, 32, &[CpAsync, Bf16, DeepMma, Fp8, Fp4, Bulk, Cluster, TensorMemory, Access32]),
    info("sm_110a", 110, true, (9, 0), (227, 228), 1536, 24, &[CpAsync, Bf16, DeepMma, Fp8, Fp4, Bulk, Cluster, TensorMemory, Access32]),
    info("sm_120a", 120, true, (8, 7), (99, 100),  1536, 24, &[CpAsync, Bf16, DeepMma, Fp8, Fp4, Bulk, Access32]),
    info("sm_121a", 121, true, (8, 8), (99, 100),  1536, 24, &[CpAsync, Bf16, DeepMma, Fp8, Fp4, Bulk, Access32]),
];

/// A text that names no target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error("`{0}` is no target; there are {known}", known = known())]
    Unknown(String),
    #[error("no target is named: write `all`, or a list as `sm_80,sm_90a`")]
    Empty,
    #[error("`{0}..={1}` is empty: its first target stands behind its last")]
    EmptyRange(Target, Target),
}

fn known() -> String {
    Target::ALL.map(Target::name).join(", ")
}

impl Target {
    /// All targets, in order.
    pub const ALL: [Target; 10] = {
        let mut all = [Target(0); 10];
        let mut i = 0;
        while i < all.len() {
            all[i] = Target(i as u8);
            i += 1;
        }
        all
    };

    /// Lanes of a warp, everywhere.
    pub const WARP: u32 = 32;

    /// Registers that a thread may have, everywhere.
    pub const MAX_REGISTERS: u32 = 255;

    /// Threads that a block may have, everywhere.
    pub const MAX_THREADS: u32 = 1024;

    /// The target named `sm_90a`.
    pub fn parse(text: &str) -> Result<Target, TargetError> {
        Target::ALL
            .into_iter()
            .find(|t| t.name() == text)
            .ok_or_else(|| TargetError::Unknown(text.to_owned()))
    }

    /// `all`, or a comma-separated list of targets and ranges `sm_80..=sm_89`. In table order, each once.
    pub fn parse_list(text: &str) -> Result<Vec<Target>, TargetError> {
        let mut wanted = [false; Target::ALL.len()];
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            if part == "all" {
                wanted = [true; Target::ALL.len()];
            } else if let Some((first, last)) = part.split_once("..=") {
                let (first, last) = (Target::parse(first.trim())?, Target::parse(last.trim())?);
                for target in Target::range(first, last)? {
                    wanted[target.index()] = true;
                }
            } else {
                wanted[Target::parse(part)?.index()] = true;
            }
        }
        let list: Vec<Target> = Target::ALL
            .into_iter()
            .filter(|t| wanted[t.index()])
            .collect();
        if list.is_empty() {
            return Err(TargetError::Empty);
        }
        Ok(list)
    }

    /// The targets from `first` to `last`, both included.
    pub fn range(first: Target, last: Target) -> Result<Vec<Target>, TargetError> {
        if first > last {
            return Err(TargetError::EmptyRange(first, last));
        }
        Ok(Target::ALL
            .into_iter()
            .filter(|t| (first..=last).contains(t))
            .collect())
    }

    /// Its place in [`Target::ALL`].
    pub fn index(self) -> usize {
        self.0 as usize
    }

    pub fn info(self) -> &'static TargetInfo {
        &TABLE[self.index()]
    }

    /// `sm_90a`: also the name that LLVM and `ptxas` know.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// Shared memory that one block may have, in bytes.
    pub fn shared_per_block(self) -> u32 {
        self.info().shared_per_block
    }

    /// The deepest `mma.sync` of operands of `elem`, if there is one: floats onto `f32` (`f16` also onto `f16`), integers
    /// onto `i32`.
    pub fn mma_sync(self, elem: DType) -> Option<MmaShape> {
        let deep = self.has(Feature::DeepMma);
        match elem {
            DType::F16 | DType::Bf16 if deep => Some(MmaShape::M16N8K16),
            DType::F16 => Some(MmaShape::M16N8K8),
            DType::Tf32 if deep => Some(MmaShape::M16N8K8_32),
            DType::I8 | DType::U8 if deep => Some(MmaShape::M16N8K32),
            DType::E4m3 | DType::E5m2 if self.has(Feature::Fp8) => Some(MmaShape::M16N8K32),
            _ => None,
        }
    }

    /// Blocks that a cluster may have, where the device grants so many; 1 where there are no clusters. Up to 8 every device
    /// of the target grants.
    pub fn max_cluster(self) -> u32 {
        if self.has(Feature::Cluster) { 16 } else { 1 }
    }

    pub fn has(self, feature: Feature) -> bool {
        self.info().features.contains(&feature)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for target in Target::ALL {
            assert_eq!(Target::parse(target.name()), Ok(target));
        }
        assert!(Target::parse("sm_90").is_err());
        assert!(
            Target::parse("sm_70")
                .unwrap_err()
                .to_string()
                .contains("sm_75, sm_80")
        );
    }

    #[test]
    fn lists_are_in_table_order() {
        let names = |text: &str| {
            Target::parse_list(text).map(|l| l.iter().map(|t| t.name()).collect::<Vec<_>>())
        };
        assert_eq!(names("sm_90a, sm_80,sm_90a"), Ok(vec!["sm_80", "sm_90a"]));
        assert_eq!(names("sm_80..=sm_89"), Ok(vec!["sm_80", "sm_86", "sm_89"]));
        assert_eq!(names("all").map(|l| l.len()), Ok(10));
        assert_eq!(names(" ,"), Err(TargetError::Empty));
        assert!(names("sm_89..=sm_80").is_err());
    }
}
