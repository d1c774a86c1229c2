//! Role IR to PTX. The only place that names LLVM.
//!
//! A kernel becomes one LLVM function: uniform scalars are scalars, a tile is one LLVM value for each register of its
//! layout, coordinates are worked out once per layout from the thread's number. What LLVM cannot say is inline PTX from
//! `ptx_table`; what a target lacks is asked of [`crate::target::legality`] before anything is emitted.
//!
//! Invariants: the same kernel and target give the same text, whatever else the process does; a kernel's `.version` is
//! the lowest that serves its target and the instructions used.

mod access;
mod atomic;
mod builder;
mod convert;
mod elementwise;
mod float;
mod grid;
mod inline;
mod llvm;
mod lower;
mod math;
mod matrix;
mod memory;
mod ptx_table;
mod reduce;
mod roles;
mod scan;
mod sort;
mod through;

pub use llvm::version as llvm_version;

use sha2::{Digest, Sha256};
use tesserine_set::{AbiArg, Fact, Formula, ParamKind, TensorMapDim, TensorMapRecord};

use crate::{
    diagnostics::{Diagnostic, Diagnostics, codes},
    ir::role,
    span::SourceMap,
    target::{PtxVersion, Target},
};

/// A compiled kernel body: what a kernel set records of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Module {
    /// The LLVM module after optimisation.
    pub llvm_ir: String,
    pub ptx: String,
    /// The entry's name in the PTX.
    pub entry: String,
    pub abi: Vec<AbiArg>,
    /// The tensor maps among the arguments.
    pub tensor_maps: Vec<TensorMapRecord>,
    /// One formula a grid axis, in source order.
    pub grid: Vec<Formula>,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
    pub ptx_version: PtxVersion,
}

/// Compiles `kernel` for `target`. Errors name what the target lacks, or what is not compiled yet.
pub fn compile(
    kernel: &role::Kernel,
    target: Target,
    sources: &SourceMap,
) -> Result<Module, Diagnostics> {
    let entry = entry_name(&kernel.header.name, &kernel.header.facts);
    let lowered = lower::lower(kernel, target, sources, &entry).map_err(one)?;
    let (llvm_ir, ptx) =
        llvm::assemble(&lowered.text, target, lowered.ptx_version).map_err(|e| {
            one(
                Diagnostic::error(codes::E0690, kernel.header.span, e.to_string()).help(
                    "this is a bug of the compiler: please report it with the kernel's source",
                ),
            )
        })?;
    Ok(Module {
        llvm_ir,
        ptx,
        entry,
        abi: abi(kernel),
        tensor_maps: kernel.maps.values().map(tensor_map).collect(),
        grid: kernel
            .header
            .axes
            .iter()
            .map(|a| a.extent.clone())
            .collect(),
        threads: lowered.threads,
        shared_bytes: shared_bytes(kernel),
        ptx_version: lowered.ptx_version,
    })
}

/// The LLVM module of `kernel` before optimisation.
pub fn llvm_text(
    kernel: &role::Kernel,
    target: Target,
    sources: &SourceMap,
) -> Result<String, Diagnostics> {
    let entry = entry_name(&kernel.header.name, &kernel.header.facts);
    lower::lower(kernel, target, sources, &entry)
        .map(|l| l.text)
        .map_err(one)
}

fn one(diagnostic: Diagnostic) -> Diagnostics {
    let mut diagnostics = Diagnostics::default();
    diagnostics.push(diagnostic);
    diagnostics
}

/// The instance's name made an identifier, plus eight hex digits that tell bodies and spellings apart:
/// `rmsnorm_bf16_1a2b3c4d`.
pub fn entry_name(name: &str, facts: &[Fact]) -> String {
    let mut entry = String::new();
    for c in name.chars() {
        if c.is_ascii_alphanumeric() {
            entry.push(c);
        } else if !entry.is_empty() && !entry.ends_with('_') {
            entry.push('_');
        }
    }
    let entry = entry.trim_end_matches('_');
    let mut hash = Sha256::new();
    hash.update(name.as_bytes());
    let facts = serde_json::to_string(facts).expect("facts are plain data");
    hash.update(facts.as_bytes());
    let digest = hash.finalize();
    let hex: String = digest[..4].iter().map(|b| format!("{b:02x}")).collect();
    format!("{entry}_{hex}")
}

/// Bytes of dynamic shared memory of a block.
fn shared_bytes(kernel: &role::Kernel) -> u32 {
    let least = if kernel.header.dynamic {
        grid::DRAWN
    } else {
        0
    };
    kernel
        .shared_bytes
        .max(least)
        .max(roles::draw::shared_bytes(kernel))
}

/// The arguments of an entry: pointers with their strides by view, then all dimensions, then all scalars, then the counter
/// that tiles are drawn from, then the tensor maps.
pub fn abi(kernel: &role::Kernel) -> Vec<AbiArg> {
    let header = &kernel.header;
    let signature = &header.signature;
    let mut abi = Vec::new();
    for (param, p) in (0..).zip(&signature.params) {
        if let ParamKind::View(view) = &p.kind {
            abi.push(AbiArg::Pointer { param });
            let rank = view.extents.len() as u32;
            let strides = if view.strided {
                rank
            } else {
                rank.saturating_sub(1)
            };
            abi.extend((0..strides).map(|dim| AbiArg::Stride { param, dim }));
        }
    }
    abi.extend((0..signature.dims.len() as u32).map(|dim| AbiArg::Dim { dim }));
    for (param, p) in (0..).zip(&signature.params) {
        if matches!(p.kind, ParamKind::Scalar { .. }) {
            abi.push(AbiArg::Scalar { param });
        }
    }
    if header.dynamic {
        abi.push(AbiArg::Counter);
    }
    abi.extend((0..kernel.maps.len() as u32).map(|map| AbiArg::TensorMap { map }));
    abi
}

/// What a launch must know of a tensor map.
fn tensor_map(map: &role::TensorMap) -> TensorMapRecord {
    TensorMapRecord {
        param: map.param,
        elem: map.elem,
        dims: map
            .dims
            .iter()
            .map(|d| TensorMapDim {
                dim: d.dim,
                step: d.step,
                extent: d.extent,
                extent_of_box: d.extent_of_box,
            })
            .collect(),
        swizzle: map.swizzle,
    }
}
