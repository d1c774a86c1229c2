//! Ids drawn from rows of probabilities or logits, `[rows, v]` in f32 with rows of any stride, and the rows that filters leave.
//!
//! A draw follows from the row, a seed and an offset alone, on every target and in any batch; a row that nothing can be drawn from
//! gives −1. Parameters are one for all rows, or `…_of` each request: `[batch]`. All but `softmax` and `chain_speculative` need a
//! workspace ([`Operator::launch_with`]).

use tesserine_set::DType;

use super::{Operator, Value, none};
use crate::{KernelSet, TensorRef};

/// What draws take beside their tensors.
#[derive(Clone, Copy, Debug)]
pub struct Draw;

impl<'a> Operator<'a, Draw> {
    /// x are logits, not probabilities.
    pub fn logits(self) -> Self {
        self.with("LOGITS", Value::Bool(true), Value::Bool(false))
    }

    /// The k largest stay.
    pub fn top_k(self, k: i64) -> Self {
        self.int("k_all", k)
    }

    /// In i32.
    pub fn top_k_of(self, k: impl Into<TensorRef<'a>>) -> Self {
        self.replaced("k", k)
    }

    /// The fewest largest stay that reach p of the mass that top-k leaves.
    pub fn top_p(self, p: f64) -> Self {
        self.float("p_all", p)
    }

    /// In f32.
    pub fn top_p_of(self, p: impl Into<TensorRef<'a>>) -> Self {
        self.replaced("p", p)
    }

    /// Top-p counts the row's whole mass.
    pub fn joint(self) -> Self {
        self.int("joint", 1)
    }

    /// What is at least min_p times the largest stays.
    pub fn min_p(self, min_p: f64) -> Self {
        self.float("min_p_all", min_p)
    }

    /// In f32.
    pub fn min_p_of(self, min_p: impl Into<TensorRef<'a>>) -> Self {
        self.replaced("min_p", min_p)
    }
}

impl<'a, Settings> Operator<'a, Settings> {
    /// Seeds and offsets that nobody has set.
    fn unseeded(self) -> Self {
        self.tensor("seed", none(DType::I64))
            .tensor("offset", none(DType::I64))
    }
}

/// A setter a kind of operator.
macro_rules! seeded {
    ($settings:ty) => {
        impl<'a> Operator<'a, $settings> {
            /// Row i draws with seed + i; 0 if it is not said.
            pub fn seed(self, seed: i64) -> Self {
                self.int("seed_all", seed)
            }

            /// In i64.
            pub fn seed_of(self, seed: impl Into<TensorRef<'a>>) -> Self {
                self.replaced("seed", seed)
            }

            /// The next draw with a seed takes another offset; 0 if it is not said.
            pub fn offset(self, offset: i64) -> Self {
                self.int("offset_all", offset)
            }

            /// In i64.
            pub fn offset_of(self, offset: impl Into<TensorRef<'a>>) -> Self {
                self.replaced("offset", offset)
            }
        }
    };
}

/// What divides logits.
macro_rules! heated {
    ($settings:ty) => {
        impl<'a> Operator<'a, $settings> {
            /// Of 0 the largest logit has all; 1 if it is not said.
            pub fn temperature(self, temperature: f64) -> Self {
                self.float("temperature_all", temperature)
            }

            /// In f32.
            pub fn temperature_of(self, temperature: impl Into<TensorRef<'a>>) -> Self {
                self.replaced("temperature", temperature)
            }
        }
    };
}

/// Which row a request draws from.
macro_rules! indirect {
    ($settings:ty) => {
        impl<'a> Operator<'a, $settings> {
            /// Request i draws from row `rows[i]`, in i32; from row i if it is not said.
            pub fn rows(self, rows: impl Into<TensorRef<'a>>) -> Self {
                self.replaced("row_of", rows)
            }
        }
    };
}

/// What draws without filters take beside their tensors.
#[derive(Clone, Copy, Debug)]
pub struct DrawAll;

impl Operator<'_, DrawAll> {
    /// x are logits, not probabilities.
    pub fn logits(self) -> Self {
        self.with("LOGITS", Value::Bool(true), Value::Bool(false))
    }
}

/// What softmax takes beside its tensors.
#[derive(Clone, Copy, Debug)]
pub struct Softmax;

/// What speculative sampling takes beside its tensors.
#[derive(Clone, Copy, Debug)]
pub struct Speculative;

seeded!(Draw);
seeded!(DrawAll);
seeded!(Speculative);
heated!(Draw);
heated!(DrawAll);
heated!(Softmax);
indirect!(Draw);
indirect!(DrawAll);

/// A draw a row from what filters leave: top-k, then top-p, then min-p. ids: `[batch, 1]` in i32, or `[batch, 2]` for i64.
pub fn sample<'a>(
    set: &'a KernelSet,
    x: impl Into<TensorRef<'a>>,
    ids: impl Into<TensorRef<'a>>,
) -> Operator<'a, Draw> {
    Operator::new(set, "sample")
        .tensor("x", x)
        .tensor("ids", ids)
        .tensor("row_of", none(DType::I32))
        .tensor("temperature", none(DType::F32))
        .tensor("k", none(DType::I32))
        .tensor("p", none(DType::F32))
        .tensor("min_p", none(DType::F32))
        .unseeded()
}

/// A draw a row with nothing left out. ids as in [`sample`].
pub fn sample_all<'a>(
    set: &'a KernelSet,
    x: impl Into<TensorRef<'a>>,
    ids: impl Into<TensorRef<'a>>,
) -> Operator<'a, DrawAll> {
    Operator::new(set, "sample_all")
        .tensor("x", x)
        .tensor("ids", ids)
        .tensor("row_of", none(DType::I32))
        .tensor("temperature", none(DType::F32))
        .unseeded()
}

/// y = softmax(x / temperature) in f32, row by row. x: `[rows, v]` in f32, f16 or bf16.
pub fn softmax<'a>(
    set: &'a KernelSet,
    x: impl Into<TensorRef<'a>>,
    y: impl Into<TensorRef<'a>>,
) -> Operator<'a, Softmax> {
    let x = x.into();
    Operator::new(set, "softmax_temperature")
        .of(x.dtype())
        .tensor("x", x)
        .tensor("temperature", none(DType::F32))
        .tensor("y", y)
}

/// What top-k filters of rows take.
#[derive(Clone, Copy, Debug)]
pub struct FilterK;

impl<'a> Operator<'a, FilterK> {
    pub fn top_k(self, k: i64) -> Self {
        self.int("k_all", k)
    }

    /// In i32.
    pub fn top_k_of(self, k: impl Into<TensorRef<'a>>) -> Self {
        self.replaced("k", k)
    }
}

/// What top-p filters of rows take.
#[derive(Clone, Copy, Debug)]
pub struct FilterP;

impl<'a> Operator<'a, FilterP> {
    pub fn top_p(self, p: f64) -> Self {
        self.float("p_all", p)
    }

    /// In f32.
    pub fn top_p_of(self, p: impl Into<TensorRef<'a>>) -> Self {
        self.replaced("p", p)
    }
}

/// The fewest largest probabilities that reach p of the mass, divided by their sum; 0 elsewhere.
pub fn top_p_renorm<'a>(
    set: &'a KernelSet,
    probs: impl Into<TensorRef<'a>>,
    y: impl Into<TensorRef<'a>>,
) -> Operator<'a, FilterP> {
    Operator::new(set, "top_p_renorm")
        .tensor("x", probs)
        .tensor("p", none(DType::F32))
        .tensor("y", y)
}

/// The k largest probabilities, divided by their sum; 0 elsewhere.
pub fn top_k_renorm<'a>(
    set: &'a KernelSet,
    probs: impl Into<TensorRef<'a>>,
    y: impl Into<TensorRef<'a>>,
) -> Operator<'a, FilterK> {
    Operator::new(set, "top_k_renorm")
        .tensor("x", probs)
        .tensor("k", none(DType::I32))
        .tensor("y", y)
}

/// The k largest logits; −∞ elsewhere.
pub fn top_k_mask<'a>(
    set: &'a KernelSet,
    logits: impl Into<TensorRef<'a>>,
    y: impl Into<TensorRef<'a>>,
) -> Operator<'a, FilterK> {
    Operator::new(set, "top_k_mask")
        .tensor("x", logits)
        .tensor("k", none(DType::I32))
        .tensor("y", y)
}

/// Drafted tokens as far as they are accepted, one more, and −1. draft: `[b, n, v]`, target: `[b, n + 1, v]`, probabilities; drafts:
/// `[b, n]`, ids: `[b, n + 1]`, in i32 or i64; to accepted and emitted, `[b]` in i32, it is added how many would be accepted alone,
/// and how many are emitted.
pub fn chain_speculative<'a>(
    set: &'a KernelSet,
    draft: impl Into<TensorRef<'a>>,
    drafts: impl Into<TensorRef<'a>>,
    target: impl Into<TensorRef<'a>>,
    ids: impl Into<TensorRef<'a>>,
    accepted: impl Into<TensorRef<'a>>,
    emitted: impl Into<TensorRef<'a>>,
) -> Operator<'a, Speculative> {
    let drafts = drafts.into();
    Operator::new(set, "chain_speculative")
        .of(drafts.dtype())
        .tensor("draft", draft)
        .tensor("drafts", drafts)
        .tensor("target", target)
        .tensor("ids", ids)
        .tensor("accepted", accepted)
        .tensor("emitted", emitted)
        .unseeded()
}
