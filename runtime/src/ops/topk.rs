//! The k largest of each row, ties by the lower id: ops, which need a workspace ([`Operator::launch_with`]). Elements are f32, f16 or
//! bf16; rows may have any stride. k is how many columns the outputs have.

use tesserine_set::DType;

use super::{Operator, Value, none};
use crate::{KernelSet, TensorRef};

/// What top-k takes beside its tensors.
#[derive(Clone, Copy, Debug)]
pub struct TopK;

impl<'a> Operator<'a, TopK> {
    /// How many elements of each row count: `[rows]` in i32; all if it is not said.
    pub fn lengths(self, lengths: impl Into<TensorRef<'a>>) -> Self {
        self.replaced("len", lengths)
    }

    /// In descending order, instead of the order of the columns: the k that the outputs have, at most 2048.
    pub fn sorted(self, k: i64) -> Self {
        // The sizes that there are kernels for.
        let size = if k <= 256 { 256 } else { 2048 };
        self.with("S", Value::Int(size), Value::Int(0))
    }
}

/// What the transforms take beside their tensors.
#[derive(Clone, Copy, Debug)]
pub struct Transform;

impl<'a> Operator<'a, Transform> {
    /// The column at which each row begins, `[rows]` in i32; ids count from there.
    pub fn starts(self, starts: impl Into<TensorRef<'a>>) -> Self {
        self.with("STARTS", Value::Bool(true), Value::Bool(false))
            .replaced("start", starts)
    }
}

/// What the transform through page tables takes beside its tensors.
#[derive(Clone, Copy, Debug)]
pub struct PageTable;

impl<'a> Operator<'a, PageTable> {
    /// The column at which each row begins, `[rows]` in i32; ids count from there.
    pub fn starts(self, starts: impl Into<TensorRef<'a>>) -> Self {
        self.with("STARTS", Value::Bool(true), Value::Bool(false))
            .replaced("start", starts)
    }

    /// The entry at which each row's table begins, `[rows]` in i32.
    pub fn table_starts(self, starts: impl Into<TensorRef<'a>>) -> Self {
        self.replaced("pages.first", starts)
    }

    /// Whose table each row has, `[rows]` in i32; its own if it is not said.
    pub fn table_of(self, row_of: impl Into<TensorRef<'a>>) -> Self {
        self.replaced("pages.request", row_of)
    }

    /// How many ids an entry is for; 1 if it is not said.
    pub fn page_size(self, size: i64) -> Self {
        self.int("pages.page", size)
    }
}

/// vals and ids of the k largest. x: `[rows, n]`; vals: `[rows, k]`; ids: `[rows, k]` in i32 or i64. What a row lacks is −∞ and −1.
pub fn top_k<'a>(
    set: &'a KernelSet,
    x: impl Into<TensorRef<'a>>,
    vals: impl Into<TensorRef<'a>>,
    ids: impl Into<TensorRef<'a>>,
) -> Operator<'a, TopK> {
    let (x, vals, ids) = (x.into(), vals.into(), ids.into());
    let id = match ids.dtype() {
        DType::I64 => "i64",
        _ => "i32",
    };
    Operator::new(set, "top_k")
        .of(x.dtype())
        .with("I", Value::Name(id), Value::Name("i32"))
        .tensor("x", x)
        .tensor("len", none(DType::I32))
        .tensor("vals", vals)
        .tensor("ids", ids)
}

/// Ids of the k largest of the first `lengths[i]` of row i, each as what the row's page table says of it; −1 behind. x: `[rows, n]`;
/// table: `[tables, entries]`, lengths: `[rows]`, ids: `[rows, k]`, all in i32. The ids themselves go to raw, `[rows, k]`, or
/// nowhere, `[0, k]`.
pub fn top_k_page_table<'a>(
    set: &'a KernelSet,
    x: impl Into<TensorRef<'a>>,
    lengths: impl Into<TensorRef<'a>>,
    table: impl Into<TensorRef<'a>>,
    ids: impl Into<TensorRef<'a>>,
    raw: impl Into<TensorRef<'a>>,
) -> Operator<'a, PageTable> {
    let x = x.into();
    Operator::new(set, "top_k_page_table")
        .of(x.dtype())
        .tensor("x", x)
        .tensor("start", none(DType::I32))
        .tensor("len", lengths)
        .tensor("pages.table", table)
        .tensor("pages.request", none(DType::I32))
        .tensor("pages.first", none(DType::I32))
        .tensor("ids", ids)
        .tensor("raw", raw)
        .int("pages.page", 1)
}

/// Ids of the k largest of the first `lengths[i]` of row i, plus `offsets[i]`; −1 behind. x: `[rows, n]`; lengths, offsets: `[rows]`,
/// ids: `[rows, k]`, all in i32.
pub fn top_k_ragged<'a>(
    set: &'a KernelSet,
    x: impl Into<TensorRef<'a>>,
    lengths: impl Into<TensorRef<'a>>,
    offsets: impl Into<TensorRef<'a>>,
    ids: impl Into<TensorRef<'a>>,
) -> Operator<'a, Transform> {
    let x = x.into();
    Operator::new(set, "top_k_ragged")
        .of(x.dtype())
        .tensor("x", x)
        .tensor("start", none(DType::I32))
        .tensor("len", lengths)
        .tensor("offset", offsets)
        .tensor("ids", ids)
}
