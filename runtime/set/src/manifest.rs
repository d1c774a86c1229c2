//! What a kernel set says of itself: instances, their bodies, and how each is launched.

use serde::{Deserialize, Serialize};

use crate::{DType, Fact, Formula, OpRecord, Signature};

/// The whole of a set, modules apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The set's name, from its TOML file.
    pub name: String,
    /// Version of the compiler that wrote it.
    pub compiler: String,
    pub instances: Vec<Instance>,
    /// Sequences of launches of these instances.
    #[serde(default)]
    pub ops: Vec<OpRecord>,
}

/// A kernel with its compile-time arguments, for all targets of the set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Instance {
    /// As written in the set file: `rmsnorm<bf16>`.
    pub name: String,
    /// The source file, relative to the set file's folder.
    pub source: String,
    /// SHA-256 of the source and everything that it uses, in hex.
    pub source_hash: String,
    pub signature: Signature,
    /// `where` facts: each must hold at every launch.
    #[serde(default)]
    pub requires: Vec<Fact>,
    /// In the order in which a launch tries them: those of one target follow each other, the general one last.
    pub bodies: Vec<BodyRecord>,
    /// The result depends on the order in which blocks run (`atomic_*`).
    #[serde(default)]
    pub unordered: bool,
    /// What the schedules name for a tuner to try, in the order in which they stand.
    #[serde(default)]
    pub tune: Vec<Tune>,
}

/// One `tune` of a schedule: combinations of values that a tuner may try, in source spelling.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tune {
    pub choices: Vec<Choice>,
    /// What a combination must satisfy, as written (`BM * BN <= 128 * 256`).
    #[serde(default)]
    pub wheres: Vec<String>,
}

/// A compile-time parameter or key of the schedule, and what may be tried for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// `BM`, `warps`, `p.stages`.
    pub name: String,
    /// As an instance's name spells them.
    pub values: Vec<String>,
}

/// One compiled body of an instance, for one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BodyRecord {
    /// `sm_90a`.
    pub target: String,
    /// What must hold for this body to run; empty for the general one.
    #[serde(default)]
    pub facts: Vec<Fact>,
    /// Bodies with a cost compete: of those whose facts hold, the least one runs, the first of several. It alone may ask for the
    /// device's multiprocessors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Formula>,
    /// The entry's name in its module.
    pub entry: String,
    /// One formula a grid axis, in source order; the last axis is fastest.
    pub grid: Vec<Formula>,
    /// A fixed number of blocks walks the grid.
    #[serde(default)]
    pub persistent: Option<Persistent>,
    /// Blocks of a cluster; 1 is none. The blocks launched are a multiple of it, those of a cluster are neighbours.
    #[serde(default = "one")]
    pub cluster: u32,
    /// The launch may begin before the one before it in its stream has ended: the body waits for that itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overlap: bool,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
    /// The kernel's arguments in order.
    pub abi: Vec<AbiArg>,
    /// The tensor maps among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tensor_maps: Vec<TensorMapRecord>,
    /// The PTX module's `.version`, `(8, 0)`.
    pub ptx_version: (u32, u32),
    /// Index of the PTX module in the set.
    pub ptx: u32,
    /// Index of the cubin, where one was assembled.
    #[serde(default)]
    pub cubin: Option<u32>,
    /// What `ptxas` said, where it ran.
    #[serde(default)]
    pub resources: Option<Resources>,
}

/// A launch of as many blocks as the device runs at once, or of one a point of the grid if those are fewer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Persistent {
    /// Blocks that one multiprocessor runs at once; as many as the driver says fit if it is not given.
    #[serde(default)]
    pub blocks_per_sm: Option<u32>,
    /// Blocks draw their further tiles from a counter ([`AbiArg::Counter`]).
    #[serde(default)]
    pub dynamic: bool,
}

fn one() -> u32 {
    1
}

/// Registers and memory of an assembled kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Registers a thread.
    pub registers: u32,
    pub spill_store_bytes: u32,
    pub spill_load_bytes: u32,
    /// Static and dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
}

/// One argument of the compiled entry. Blocks are numbered along a one-dimensional grid; axes are recovered inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AbiArg {
    /// 64-bit address of view parameter `param`; null if it was not given.
    Pointer { param: u32 },
    /// 64-bit stride, in elements, of dimension `dim` of view parameter `param`.
    Stride { param: u32, dim: u32 },
    /// 64-bit extent of dimension `dim` of the signature.
    Dim { dim: u32 },
    /// The value of scalar parameter `param`, in its own type (`bool` as one byte, integers as 64 bits).
    Scalar { param: u32 },
    /// 64-bit address of an eight-byte word of the runtime's, aligned to its size, that no launch running at the same time uses.
    /// It is 0 before the launch, and the kernel leaves it so.
    Counter,
    /// Map `map` of the body's, encoded: 128 bytes, aligned to 64.
    TensorMap { map: u32 },
}

/// How the bulk copies of a body see a view: what `cuTensorMapEncodeTiled` is given, but for what a launch brings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorMapRecord {
    /// The view parameter.
    pub param: u32,
    /// What its elements are taken for.
    pub elem: DType,
    /// One to five, the innermost first: its elements are neighbours.
    pub dims: Vec<TensorMapDim>,
    /// Bytes of the swizzle: 0, 32, 64 or 128.
    pub swizzle: u32,
}

/// A dimension of a tensor map: all of one of the view's, or one of the parts that it is split into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorMapDim {
    /// Of the view.
    pub dim: u32,
    /// Elements of the view's dimension that one step is.
    pub step: u32,
    /// Steps; as many as cover the view's dimension if it is not given.
    #[serde(default)]
    pub extent: Option<u32>,
    /// Steps that the box has.
    pub extent_of_box: u32,
}
