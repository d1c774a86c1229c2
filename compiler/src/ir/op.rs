//! An `op` with its compile-time arguments: what its launches are, and the instances that they launch.

use tesserine_set::OpRecord;

use super::tile;
use crate::span::Span;

/// A sequence of launches, for one target.
#[derive(Clone, Debug)]
pub struct Op {
    /// As a set holds it; steps index `instances`. Without file and hash.
    pub record: OpRecord,
    /// What it launches, each once, with the index of the file that declares it.
    pub instances: Vec<Launched>,
    /// The op's name in its source.
    pub span: Span,
}

/// A kernel that an op launches.
#[derive(Clone, Debug)]
pub struct Launched {
    pub instance: tile::Instance,
    /// The module that declares the kernel.
    pub module: crate::Module,
}
