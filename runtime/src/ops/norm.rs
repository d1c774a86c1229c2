//! Norms of rows. Their elements are f16 or bf16; rows may have any stride.

use super::{Operator, Value, quant::Quantised};
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

/// What RMSNorm takes beside its tensors.
#[derive(Clone, Copy, Debug)]
pub struct RmsNorm;

impl Operator<'_, RmsNorm> {
    /// What is added to the mean of squares; 10⁻⁶ if it is not said.
    pub fn eps(self, eps: f64) -> Self {
        self.float("eps", eps)
    }

    /// Whether rows are multiplied by weight + 1, as in Gemma.
    pub fn gemma(self, gemma: bool) -> Self {
        self.with("GEMMA", Value::Bool(gemma), Value::Bool(false))
    }
}

const EPS: f64 = 1e-6;

/// out = x / √(mean(x²) + eps) · weight. x, out: `[m, n]`; weight: `[n]`.
pub fn rmsnorm<'a>(
    set: &'a KernelSet,
    x: impl Into<TensorRef<'a>>,
    weight: impl Into<TensorRef<'a>>,
    out: impl Into<TensorRef<'a>>,
) -> Operator<'a, RmsNorm> {
    let x = x.into();
    Operator::new(set, "rmsnorm")
        .of(x.dtype())
        .tensor("x", x)
        .tensor("weight", weight)
        .tensor("out", out)
        .float("eps", EPS)
}

/// [`rmsnorm`] of each head of each token, of any strides. x, out: `[tokens, heads, n]`; weight: `[n]`.
pub fn qk_rmsnorm<'a>(
    set: &'a KernelSet,
    x: impl Into<TensorRef<'a>>,
    weight: impl Into<TensorRef<'a>>,
    out: impl Into<TensorRef<'a>>,
) -> Operator<'a, RmsNorm> {
    let x = x.into();
    Operator::new(set, "qk_rmsnorm")
        .of(x.dtype())
        .tensor("x", x)
        .tensor("weight", weight)
        .tensor("out", out)
        .float("eps", EPS)
}

/// [`qk_rmsnorm`] in place.
pub fn qk_rmsnorm_in_place<'a>(
    set: &'a KernelSet,
    x: impl Into<TensorRef<'a>>,
    weight: impl Into<TensorRef<'a>>,
) -> Operator<'a, RmsNorm> {
    let x = x.into();
    Operator::new(set, "qk_rmsnorm_in_place")
        .of(x.dtype())
        .tensor("x", x)
        .tensor("weight", weight)
        .float("eps", EPS)
}

/// [`rmsnorm`], quantised as it is stored.
pub fn rmsnorm_quant<'a>(
    set: &'a KernelSet,
    x: impl Into<TensorRef<'a>>,
    weight: impl Into<TensorRef<'a>>,
    out: Quantised<'a>,
) -> Operator<'a, RmsNorm> {
    let x = x.into();
    Operator::new(set, "rmsnorm_quant")
        .of(x.dtype())
        .quantised(&out)
        .tensor("x", x)
        .tensor("weight", weight)
        .float("eps", EPS)
}

/// residual += x; x = residual / √(mean(residual²) + eps) · weight. x, residual: `[m, n]`; weight: `[n]`.
pub fn fused_add_rmsnorm<'a>(
    set: &'a KernelSet,
    x: impl Into<TensorRef<'a>>,
    residual: impl Into<TensorRef<'a>>,
    weight: impl Into<TensorRef<'a>>,
) -> Operator<'a, RmsNorm> {
    let x = x.into();
    Operator::new(set, "fused_add_rmsnorm")
        .of(x.dtype())
        .tensor("x", x)
        .tensor("residual", residual)
        .tensor("weight", weight)
        .float("eps", EPS)
}

/// residual += x; out = rmsnorm(residual), quantised as it is stored.
pub fn add_rmsnorm_quant<'a>(
    set: &'a KernelSet,
    x: impl Into<TensorRef<'a>>,
    residual: impl Into<TensorRef<'a>>,
    weight: impl Into<TensorRef<'a>>,
    out: Quantised<'a>,
) -> Operator<'a, RmsNorm> {
    let x = x.into();
    Operator::new(set, "add_rmsnorm_quant")
        .of(x.dtype())
        .quantised(&out)
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

/// [`layernorm`], quantised as it is stored.
pub fn layernorm_quant<'a>(
    set: &'a KernelSet,
    x: impl Into<TensorRef<'a>>,
    gamma: impl Into<TensorRef<'a>>,
    beta: impl Into<TensorRef<'a>>,
    out: Quantised<'a>,
) -> Operator<'a, Norm> {
    let x = x.into();
    Operator::new(set, "layernorm_quant")
        .of(x.dtype())
        .quantised(&out)
        .tensor("x", x)
        .tensor("gamma", gamma)
        .tensor("beta", beta)
        .float("eps", EPS)
}
