//! Rotary embedding of queries and keys `[tokens, heads, dim]`, of any strides of tokens and heads. Their elements are f16 or
//! bf16.
//!
//! The turned columns and the others of a row are tensors of their own, slices of one: what is absent has no columns. Pair c of
//! 2·half turned columns is c and c + half, or neighbours ([`Operator::interleave`]).

use tesserine_set::DType;

use super::{Operator, Value};
use crate::{KernelSet, TensorRef};

/// Where tokens stand in their requests.
#[derive(Clone, Copy, Debug)]
pub enum Positions<'a> {
    /// Each token's: `[tokens]` in i32 or i64.
    Given(TensorRef<'a>),
    /// Request r has tokens indptr[r] .. indptr[r + 1], the first at offsets[r]. `[requests + 1]` and `[requests]` in i32.
    Ragged {
        indptr: TensorRef<'a>,
        offsets: TensorRef<'a>,
    },
}

/// By how much pairs turn at each position.
#[derive(Clone, Copy, Debug)]
pub enum Angles<'a> {
    /// Row p has the cosines of position p, and behind them the sines: `[positions, 2 · half]` in f32.
    Table(TensorRef<'a>),
    /// Pair c by theta^(−c / half) / scale.
    Theta { theta: f64, scale: f64 },
    /// As `Theta`, where only pairs that turn slowly are scaled, as in Llama 3.1.
    Llama31 {
        theta: f64,
        scale: f64,
        low_freq_factor: f64,
        high_freq_factor: f64,
        old_context_len: f64,
    },
}

/// What rotary embedding takes beside its tensors.
#[derive(Clone, Copy, Debug)]
pub struct Rope;

impl Operator<'_, Rope> {
    /// Whether pairs are neighbours.
    pub fn interleave(self, interleave: bool) -> Self {
        self.with("NEOX", Value::Bool(!interleave), Value::Bool(true))
    }

    /// What stored queries and keys are multiplied by; of [`rope`] and [`rope_quantize_append`], 1 if it is not said.
    pub fn scales(self, q: f64, k: f64) -> Self {
        self.float("q_scale", q).float("k_scale", k)
    }

    /// What stored values are multiplied by, of [`rope_quantize_append`]; 1 if it is not said.
    pub fn v_scale(self, v: f64) -> Self {
        self.float("v_scale", v)
    }
}

impl<'a> Operator<'a, Rope> {
    fn positions(self, positions: Positions<'a>) -> Self {
        match positions {
            Positions::Given(ids) => {
                let variant = match ids.dtype() {
                    DType::I64 => "Given<i64>",
                    _ => "Given",
                };
                self.with("P", Value::Name(variant), Value::Name("Given"))
                    .tensor("pos.ids", ids)
            }
            Positions::Ragged { indptr, offsets } => self
                .with("P", Value::Name("Ragged"), Value::Name("Given"))
                .tensor("pos.indptr", indptr)
                .tensor("pos.offsets", offsets),
        }
    }

    fn angles(self, angles: Angles<'a>) -> Self {
        let (theta, scale, low, high, old_len) = match angles {
            Angles::Table(rows) => return self.tensor("angles.rows", rows),
            Angles::Theta { theta, scale } => (theta, scale, 1.0, 4.0, 0.0),
            Angles::Llama31 {
                theta,
                scale,
                low_freq_factor,
                high_freq_factor,
                old_context_len,
            } => (
                theta,
                scale,
                low_freq_factor,
                high_freq_factor,
                old_context_len,
            ),
        };
        self.with("A", Value::Name("Theta"), Value::Name("Table"))
            .float("angles.log2_theta", theta.log2())
            .float("angles.factor", scale)
            .float("angles.low", low)
            .float("angles.high", high)
            .float("angles.old_len", old_len)
    }
}

/// Queries and keys: the turned columns, `[tokens, heads, 2 · half]`, and the others, `[tokens, heads, rest]`.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    pub q: TensorRef<'a>,
    pub q_rest: TensorRef<'a>,
    pub k: TensorRef<'a>,
    pub k_rest: TensorRef<'a>,
}

/// Where tokens go in a paged cache: token i to position at[i] of request[i], whose pages are page_ids[page_indptr[request]..].
/// One of request −1 goes nowhere. All in i32.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    pub request: TensorRef<'a>,
    pub at: TensorRef<'a>,
    pub page_indptr: TensorRef<'a>,
    pub page_ids: TensorRef<'a>,
}

impl<'a, Settings> Operator<'a, Settings> {
    pub(super) fn places(self, places: &Places<'a>) -> Self {
        self.tensor("request", places.request)
            .tensor("at", places.at)
            .tensor("page_indptr", places.page_indptr)
            .tensor("page_ids", places.page_ids)
    }
}

/// Turns q and k, `[tokens, heads, 2 · half]`, in place.
pub fn rope_inplace<'a>(
    set: &'a KernelSet,
    q: impl Into<TensorRef<'a>>,
    k: impl Into<TensorRef<'a>>,
    positions: Positions<'a>,
    angles: Angles<'a>,
) -> Operator<'a, Rope> {
    let q = q.into();
    Operator::new(set, "rope_inplace")
        .of(q.dtype())
        .tensor("q", q)
        .tensor("k", k)
        .positions(positions)
        .angles(angles)
}

/// Stores the turned columns of `from`, and the others, to `out`, times scales: in the type of `out`, f16, bf16, e4m3 or e5m2.
pub fn rope<'a>(
    set: &'a KernelSet,
    from: Rows<'a>,
    positions: Positions<'a>,
    angles: Angles<'a>,
    out: Rows<'a>,
) -> Operator<'a, Rope> {
    Operator::new(set, "rope")
        .of(from.q.dtype())
        .of(out.q.dtype())
        .tensor("q", from.q)
        .tensor("k", from.k)
        .tensor("q_rest", from.q_rest)
        .tensor("k_rest", from.k_rest)
        .positions(positions)
        .angles(angles)
        .tensor("q_out", out.q)
        .tensor("k_out", out.k)
        .tensor("q_rest_out", out.q_rest)
        .tensor("k_rest_out", out.k_rest)
}

/// Turns q in place, and appends the turned k, and v, to caches `[pages, page, heads, dim]` of any strides.
pub fn rope_append<'a>(
    set: &'a KernelSet,
    q: impl Into<TensorRef<'a>>,
    k: impl Into<TensorRef<'a>>,
    v: impl Into<TensorRef<'a>>,
    positions: Positions<'a>,
    angles: Angles<'a>,
    caches: (TensorRef<'a>, TensorRef<'a>),
    places: &Places<'a>,
) -> Operator<'a, Rope> {
    let q = q.into();
    Operator::new(set, "rope_append")
        .of(q.dtype())
        .tensor("q", q)
        .tensor("k", k)
        .tensor("v", v)
        .positions(positions)
        .angles(angles)
        .tensor("k_cache", caches.0)
        .tensor("v_cache", caches.1)
        .places(places)
}

/// As [`rope`] for queries, of which `out` are the turned columns and the others; keys, and v, go to caches in the same type: of
/// turned columns, of the others, and of values. All `[pages, page, heads, dim]`, of any strides. Latent attention has one head of
/// keys and a v without heads.
pub fn rope_quantize_append<'a>(
    set: &'a KernelSet,
    from: Rows<'a>,
    v: impl Into<TensorRef<'a>>,
    positions: Positions<'a>,
    angles: Angles<'a>,
    out: (TensorRef<'a>, TensorRef<'a>),
    caches: [TensorRef<'a>; 3],
    places: &Places<'a>,
) -> Operator<'a, Rope> {
    Operator::new(set, "rope_quantize_append")
        .of(from.q.dtype())
        .of(out.0.dtype())
        .tensor("q", from.q)
        .tensor("k", from.k)
        .tensor("q_rest", from.q_rest)
        .tensor("k_rest", from.k_rest)
        .tensor("v", v)
        .positions(positions)
        .angles(angles)
        .tensor("q_out", out.0)
        .tensor("q_rest_out", out.1)
        .tensor("k_cache", caches[0])
        .tensor("k_rest_cache", caches[1])
        .tensor("v_cache", caches[2])
        .places(places)
}
