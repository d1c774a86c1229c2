//! Gated activations: an activation of the first half of each row times the second half. T is f16 or bf16; rows may have any
//! stride.

use super::Operator;
use crate::{KernelSet, TensorRef};

/// out = silu(x[.., ..d]) · x[.., d..]. x: `[m, 2·d]`; out: `[m, d]`.
pub fn silu_and_mul<'a>(
    set: &'a KernelSet,
    x: impl Into<TensorRef<'a>>,
    out: impl Into<TensorRef<'a>>,
) -> Operator<'a> {
    gated(set, "silu_and_mul", x.into(), out.into())
}

/// As [`silu_and_mul`], of gelu in its approximation by tanh.
pub fn gelu_tanh_and_mul<'a>(
    set: &'a KernelSet,
    x: impl Into<TensorRef<'a>>,
    out: impl Into<TensorRef<'a>>,
) -> Operator<'a> {
    gated(set, "gelu_tanh_and_mul", x.into(), out.into())
}

fn gated<'a>(
    set: &'a KernelSet,
    kernel: &'static str,
    x: TensorRef<'a>,
    out: TensorRef<'a>,
) -> Operator<'a> {
    Operator::new(set, kernel)
        .of(x.dtype())
        .tensor("x", x)
        .tensor("out", out)
}
