//! The kernel-set format: what a compiler writes and a runtime loads, and the only thing that the two share.

mod bind;
mod container;
mod dtype;
mod facts;
mod formula;
mod manifest;
mod op;
mod reader;
mod signature;
mod validate;
mod writer;

pub use bind::{ArgShape, BindError, Binding, MAX_EXTENT, ScalarValue, Short};
pub use container::{FORMAT_VERSION, MAGIC, ModuleEntry, ModuleKind};
pub use dtype::{DType, UnknownDType};
pub use facts::{BrokenFact, HostView, byte_span};
pub use formula::{Env, Formula, FormulaError, FormulaOp, Term};
pub use manifest::{
    AbiArg, BodyRecord, Choice, Instance, Manifest, Persistent, Resources, TensorMapDim,
    TensorMapRecord, Tune,
};
pub use op::{
    OpError, OpRecord, OwnedArg, Place, PlacedView, STATE_WORD, Step, StepArg, ViewArg, ViewBase,
    ViewStep, WORKSPACE_ALIGN, WorkspaceLayout, WorkspaceRecord, has_state,
};
pub use reader::{KernelSet, SetError, SetFault};
pub use signature::{Access, Fact, Param, ParamKind, Signature, ViewFacts, ViewParam};
pub use validate::{InstanceProblem, MAX_ARGS, MAX_RANK, ManifestError, OpProblem, canonical_name};
pub use writer::{SetWriter, WriteError};
