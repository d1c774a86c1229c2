//! Paged caches of keys and values: `[pages, page, heads, columns]` of any strides. Heads before rows, and keys and values in one
//! tensor, are views of it.

use super::{Operator, rope::Places};
use crate::{KernelSet, TensorRef};

/// Stores k and v, `[tokens, heads, columns]`, to their places. f16, bf16, or bytes of any kind as u8; k and v may differ in heads
/// and columns, as in the caches of latent attention.
pub fn append<'a>(
    set: &'a KernelSet,
    k: impl Into<TensorRef<'a>>,
    v: impl Into<TensorRef<'a>>,
    caches: (TensorRef<'a>, TensorRef<'a>),
    places: &Places<'a>,
) -> Operator<'a> {
    let k = k.into();
    Operator::new(set, "append")
        .of(k.dtype())
        .tensor("k", k)
        .tensor("v", v)
        .tensor("k_cache", caches.0)
        .tensor("v_cache", caches.1)
        .places(places)
}

/// What [`append_quantized`] takes beside its tensors.
#[derive(Clone, Copy, Debug)]
pub struct Scaled;

impl Operator<'_, Scaled> {
    /// What stored keys and values are multiplied by, or, of nvfp4, what codes are; 1 if it is not said.
    pub fn scales(self, k: f64, v: f64) -> Self {
        self.float("k_scale", k).float("v_scale", v)
    }
}

/// [`append`] of f16 or bf16 to caches of e4m3 or e5m2, times scales.
pub fn append_quantized<'a>(
    set: &'a KernelSet,
    k: impl Into<TensorRef<'a>>,
    v: impl Into<TensorRef<'a>>,
    caches: (TensorRef<'a>, TensorRef<'a>),
    places: &Places<'a>,
) -> Operator<'a, Scaled> {
    let k = k.into();
    Operator::new(set, "append_quantized")
        .of(k.dtype())
        .of(caches.0.dtype())
        .tensor("k", k)
        .tensor("v", v)
        .tensor("k_cache", caches.0)
        .tensor("v_cache", caches.1)
        .places(places)
}

/// [`append`] of f16 or bf16 to caches of e2m1, two columns a byte of u8, with scales of e4m3 for each 16 columns beside them,
/// `[pages, page, heads, columns / 16]`: a number is code times scale times what [`Operator::scales`] says, 1 if it is not said.
pub fn append_nvfp4<'a>(
    set: &'a KernelSet,
    k: impl Into<TensorRef<'a>>,
    v: impl Into<TensorRef<'a>>,
    caches: (TensorRef<'a>, TensorRef<'a>),
    scales: (TensorRef<'a>, TensorRef<'a>),
    places: &Places<'a>,
) -> Operator<'a, Scaled> {
    let k = k.into();
    Operator::new(set, "append_nvfp4")
        .of(k.dtype())
        .tensor("k", k)
        .tensor("v", v)
        .tensor("k_cache", caches.0)
        .tensor("v_cache", caches.1)
        .tensor("k_scales", scales.0)
        .tensor("v_scales", scales.1)
        .places(places)
}

/// Which request each appended token belongs to, and where it stands in it: tokens indptr[r] .. indptr[r + 1] are the last of the
/// seq_lens[r] of request r. Tokens past them get −1 and 0. indptr: `[requests + 1]`; seq_lens: `[requests]`; request, at:
/// `[tokens]`, written; all in i32.
pub fn batch_positions<'a>(
    set: &'a KernelSet,
    indptr: impl Into<TensorRef<'a>>,
    seq_lens: impl Into<TensorRef<'a>>,
    request: impl Into<TensorRef<'a>>,
    at: impl Into<TensorRef<'a>>,
) -> Operator<'a> {
    Operator::new(set, "batch_positions")
        .tensor("indptr", indptr)
        .tensor("seq_lens", seq_lens)
        .tensor("request", request)
        .tensor("at", at)
}

/// The tokens of each request: its pages of `page` rows are full but for the last. page_indptr: `[requests + 1]`; last_page_len,
/// seq_lens: `[requests]`; all in i32.
pub fn seq_lens<'a>(
    set: &'a KernelSet,
    page_indptr: impl Into<TensorRef<'a>>,
    last_page_len: impl Into<TensorRef<'a>>,
    page: i64,
    seq_lens: impl Into<TensorRef<'a>>,
) -> Operator<'a> {
    Operator::new(set, "seq_lens_of_pages")
        .tensor("page_indptr", page_indptr)
        .tensor("last_page_len", last_page_len)
        .tensor("seq_lens", seq_lens)
        .int("page", page)
}
