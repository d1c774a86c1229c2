//! The kernel-set format: what a compiler writes and a runtime loads, and the only thing that the two share.

mod dtype;
mod formula;
mod manifest;
mod signature;

pub use dtype::{DType, UnknownDType};
pub use formula::{Env, Formula, FormulaError, FormulaOp, Term};
pub use manifest::{AbiArg, BodyRecord, Instance, Manifest, Resources};
pub use signature::{Access, Fact, Param, ParamKind, Signature, ViewFacts, ViewParam};
