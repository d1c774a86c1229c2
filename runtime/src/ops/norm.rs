//! Norms of rows. T is f16 or bf16; rows may have any stride.

use super::Operator;
use crate::{KernelSet, TensorRef};

/// What norms take beside their tensors.
#[derive(Clone, Copy, Debug)]
pub struct Norm;

impl Operator<'_, Norm> {
    /// What is added to the mean of squares, or the variance; 10⁻⁶ if it is not said.
    pub fn eps(self, eps: f64) -> Self {
        self.float("eps", eps)
    }
}

const EPS: f64 = 1e-6;

/// out = x / √(mean(x²) + eps) · weight. x, out: `[m, n]`; weight: `[n]`.
pub fn rmsnorm<'a>(
    set: &'a KernelSet,
    x: impl Into<TensorRef<'a>>,
    weight: impl Into<TensorRef<'a>>,
    out: impl Into<TensorRef<'a>>,
) -> Operator<'a, Norm> {
    let x = x.into();
    Operator::new(set, "rmsnorm")
        .of(x.dtype())
        .tensor("x", x)
        .tensor("weight", weight)
        .tensor("out", out)
        .float("eps", EPS)
}

/// residual += x; x = residual / √(mean(residual²) + eps) · weight. x, residual: `[m, n]`; weight: `[n]`.
pub fn fused_add_rmsnorm<'a>(
    set: &'a KernelSet,
    x: impl Into<TensorRef<'a>>,
    residual: impl Into<TensorRef<'a>>,
    weight: impl Into<TensorRef<'a>>,
) -> Operator<'a, Norm> {
    let x = x.into();
    Operator::new(set, "fused_add_rmsnorm")
        .of(x.dtype())
        .tensor("x", x)
        .tensor("residual", residual)
        .tensor("weight", weight)
        .float("eps", EPS)
}

/// out = (x − mean(x)) / √(var(x) + eps) · gamma + beta. x, out: `[m, n]`; gamma, beta: `[n]` in f32.
pub fn layernorm<'a>(
    set: &'a KernelSet,
    x: impl Into<TensorRef<'a>>,
    gamma: impl Into<TensorRef<'a>>,
    beta: impl Into<TensorRef<'a>>,
    out: impl Into<TensorRef<'a>>,
) -> Operator<'a, Norm> {
    let x = x.into();
    Operator::new(set, "layernorm")
        .of(x.dtype())
        .tensor("x", x)
        .tensor("gamma", gamma)
        .tensor("beta", beta)
        .tensor("out", out)
        .float("eps", EPS)
}
