//! What a kernel takes: parameters, the names of their dimensions, and how a launch binds them.

use serde::{Deserialize, Serialize};

use crate::{DType, Formula};

/// The parameters of a kernel and the dimensions that they share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Signature {
    /// The names of the symbolic dimensions, in order of first mention. Formulas name them by index.
    pub dims: Vec<String>,
    /// The parameters in source order, fields of variants flattened in place under dotted names (`epi.bias`).
    pub params: Vec<Param>,
}

/// One parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Param {
    pub name: String,
    /// Declared `name?`: a launch may leave it out.
    #[serde(default)]
    pub optional: bool,
    pub kind: ParamKind,
}

/// What is passed for a parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParamKind {
    View(ViewParam),
    Scalar {
        dtype: DType,
        /// The value if none is passed. Integers and bools are exact up to 2⁵³.
        #[serde(default)]
        default: Option<f64>,
    },
}

/// A tensor parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ViewParam {
    pub dtype: DType,
    pub access: Access,
    /// One formula a dimension. A bare `Dim` binds it; what does not bind is checked.
    pub extents: Vec<Formula>,
    /// Whether the last dimension may have a stride other than 1. All others always may.
    #[serde(default)]
    pub strided: bool,
    #[serde(default)]
    pub facts: ViewFacts,
}

/// What the kernel does with a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// `view`: read only.
    Read,
    /// `out view`: stored only.
    Write,
    /// `mut view`: both.
    ReadWrite,
}

/// Promises about a tensor, from its declaration. What they say of its elements a launch trusts, unless it is told to check
/// them ([`ViewFacts::broken`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewFacts {
    #[serde(default)]
    pub sorted: bool,
    #[serde(default)]
    pub distinct: bool,
    /// The base and every stride but the last are multiples of this many bytes.
    #[serde(default)]
    pub align: Option<u32>,
}

/// A condition under which a body may run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    /// A formula that is not zero.
    Holds(Formula),
    /// The base and every stride but the last of view parameter `param` are multiples of `bytes`.
    Aligned { param: u32, bytes: u32 },
}
