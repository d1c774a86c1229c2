//! Gated activations: an activation of the first half of each row times the second half. Their elements are f16 or bf16; rows may
//! have any stride.

use super::{Operator, Value, quant::Quantised};
use crate::{KernelSet, TensorRef};

/// What gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// x · σ(x).
    Silu,
    /// x · Φ(x).
    Gelu,
    /// Gelu in its usual approximation by tanh.
    GeluTanh,
}

/// out = silu(x[.., ..d]) · x[.., d..]. x: `[m, 2·d]`; out: `[m, d]`.
pub fn silu_and_mul<'a>(
    set: &'a KernelSet,
    x: impl Into<TensorRef<'a>>,
    out: impl Into<TensorRef<'a>>,
) -> Operator<'a> {
    act_and_mul(set, Activation::Silu, x, out)
}

/// As [`silu_and_mul`], of gelu.
pub fn gelu_and_mul<'a>(
    set: &'a KernelSet,
    x: impl Into<TensorRef<'a>>,
    out: impl Into<TensorRef<'a>>,
) -> Operator<'a> {
    act_and_mul(set, Activation::Gelu, x, out)
}

/// As [`silu_and_mul`], of gelu in its approximation by tanh.
pub fn gelu_tanh_and_mul<'a>(
    set: &'a KernelSet,
    x: impl Into<TensorRef<'a>>,
    out: impl Into<TensorRef<'a>>,
) -> Operator<'a> {
    act_and_mul(set, Activation::GeluTanh, x, out)
}

/// As [`silu_and_mul`], of any activation.
pub fn act_and_mul<'a>(
    set: &'a KernelSet,
    activation: Activation,
    x: impl Into<TensorRef<'a>>,
    out: impl Into<TensorRef<'a>>,
) -> Operator<'a> {
    let x = x.into();
    let kernel = match activation {
        Activation::Silu => "silu_and_mul",
        Activation::Gelu => "gelu_and_mul",
        Activation::GeluTanh => "gelu_tanh_and_mul",
    };
    Operator::new(set, kernel)
        .of(x.dtype())
        .tensor("x", x)
        .tensor("out", out)
}

/// [`act_and_mul`], quantised as it is stored, but not with a scale for each row.
pub fn act_and_mul_quant<'a>(
    set: &'a KernelSet,
    activation: Activation,
    x: impl Into<TensorRef<'a>>,
    out: Quantised<'a>,
) -> Operator<'a> {
    let x = x.into();
    let function = match activation {
        Activation::Silu => "silu",
        Activation::Gelu => "gelu",
        Activation::GeluTanh => "gelu_tanh",
    };
    Operator::new(set, "act_and_mul_quant")
        .of(x.dtype())
        .with("A", Value::Name(function), Value::Name(""))
        .quantised(&out)
        .tensor("x", x)
}
