//! Rows to 8 and 4 bits with the scales that belong to them, and back; packed bits.
//!
//! A scale is what stored values are multiplied by to get the results back. Scales of groups lie row by row, or, `tiled`, in
//! tiles of 128 rows by 4 columns, as products of Blackwell take them: then they are one row of memory, of whole tiles.

use tesserine_set::DType;

use super::{Operator, Value};
use crate::{KernelSet, TensorRef};

/// Rows of fewer bits, and their scales: where results go, or where they come from. y: `[m, n]`.
#[derive(Clone, Copy, Debug)]
pub enum Quantised<'a> {
    /// e4m3 or e5m2 with one scale, which is given. scale: `[1]` in f32.
    PerTensor {
        y: TensorRef<'a>,
        scale: TensorRef<'a>,
    },
    /// e4m3 or e5m2 with a scale for each row. scales: `[m]` in f32.
    PerToken {
        y: TensorRef<'a>,
        scales: TensorRef<'a>,
    },
    /// e4m3 or e5m2 with a scale for each 128 columns. scales: `[m, ⌈n / 128⌉]` in f32, of any strides.
    PerGroup {
        y: TensorRef<'a>,
        scales: TensorRef<'a>,
    },
    /// mxfp8 (e4m3, e5m2) or mxfp4 (e2m1): a power of two for each 32 columns. scales: `[m, n / 32]` in ue8m0; tiled,
    /// `[⌈m / 128⌉ · 128 · ⌈n / 128⌉ · 4]`.
    Mx {
        y: TensorRef<'a>,
        scales: TensorRef<'a>,
        tiled: bool,
    },
    /// e2m1 with a scale for each 16 columns; a value stands for y · scale / global. scales: `[m, n / 16]` in e4m3; tiled,
    /// `[⌈m / 128⌉ · 128 · ⌈n / 64⌉ · 4]`. global: `[1]` in f32, given.
    Nvfp4 {
        y: TensorRef<'a>,
        scales: TensorRef<'a>,
        global: TensorRef<'a>,
        tiled: bool,
    },
}

impl Quantised<'_> {
    /// The variant of `std::output`, and that of `dequantise`.
    fn variants(&self) -> (&'static str, &'static str) {
        let of = |y: &TensorRef<'_>, e4m3, e5m2| match y.dtype() {
            DType::E5m2 => e5m2,
            _ => e4m3,
        };
        match self {
            Quantised::PerTensor { y, .. } => of(
                y,
                ("PerTensor", "OfTensor"),
                ("PerTensor<e5m2>", "OfTensor<e5m2>"),
            ),
            Quantised::PerToken { y, .. } => of(
                y,
                ("PerToken", "OfTokens"),
                ("PerToken<e5m2>", "OfTokens<e5m2>"),
            ),
            Quantised::PerGroup { y, .. } => of(
                y,
                ("PerGroup", "OfGroups"),
                ("PerGroup<e5m2>", "OfGroups<e5m2>"),
            ),
            Quantised::Mx { y, tiled, .. } => match (y.dtype(), tiled) {
                (DType::E2m1, false) => ("Mx<e2m1>", "OfMx<e2m1>"),
                (DType::E2m1, true) => ("MxTiled<e2m1>", "OfMxTiled<e2m1>"),
                (DType::E5m2, false) => ("Mx<e5m2>", "OfMx<e5m2>"),
                (DType::E5m2, true) => ("MxTiled<e5m2>", "OfMxTiled<e5m2>"),
                (_, false) => ("Mx", "OfMx"),
                (_, true) => ("MxTiled", "OfMxTiled"),
            },
            Quantised::Nvfp4 { tiled: false, .. } => ("Nvfp4", "OfNvfp4"),
            Quantised::Nvfp4 { tiled: true, .. } => ("Nvfp4Tiled", "OfNvfp4Tiled"),
        }
    }
}

impl<'a, Settings> Operator<'a, Settings> {
    /// Results go there: the kernel's parameter `Q`, and its argument `out`.
    pub(super) fn quantised(self, out: &Quantised<'a>) -> Self {
        let named = self.with("Q", Value::Name(out.variants().0), Value::Name(""));
        match *out {
            Quantised::PerTensor { y, scale } => {
                named.tensor("out.y", y).tensor("out.scale", scale)
            }
            Quantised::PerToken { y, scales }
            | Quantised::PerGroup { y, scales }
            | Quantised::Mx { y, scales, .. } => {
                named.tensor("out.y", y).tensor("out.scales", scales)
            }
            Quantised::Nvfp4 {
                y, scales, global, ..
            } => named
                .tensor("out.y", y)
                .tensor("out.scales", scales)
                .tensor("out.global", global),
        }
    }
}

/// x as `out` stores it. x: `[m, n]`, of any row stride; n is a multiple of the group of mxfp and nvfp4.
pub fn quantise<'a>(
    set: &'a KernelSet,
    x: impl Into<TensorRef<'a>>,
    out: Quantised<'a>,
) -> Operator<'a> {
    let x = x.into();
    Operator::new(set, "quantise")
        .of(x.dtype())
        .quantised(&out)
        .tensor("x", x)
}

/// x with one scale that is found first, its largest magnitude over the largest value of y's type. x, y: `[m, n]`;
/// scale: `[1]`, written. Two launches: see [`Operator::launch_with`].
pub fn quantise_per_tensor<'a>(
    set: &'a KernelSet,
    x: impl Into<TensorRef<'a>>,
    y: impl Into<TensorRef<'a>>,
    scale: impl Into<TensorRef<'a>>,
) -> Operator<'a> {
    let (x, y) = (x.into(), y.into());
    let operator = Operator::new(set, "quantise_per_tensor").of(x.dtype());
    let operator = match y.dtype() {
        DType::E4m3 => operator,
        other => operator.of(other),
    };
    operator
        .tensor("x", x)
        .tensor("y", y)
        .tensor("scale", scale)
}

/// What `from` stands for. y: `[m, n]`.
pub fn dequantise<'a>(
    set: &'a KernelSet,
    from: Quantised<'a>,
    y: impl Into<TensorRef<'a>>,
) -> Operator<'a> {
    let y = y.into();
    let operator = Operator::new(set, "dequantise").of(y.dtype());
    let named = operator.with("S", Value::Name(from.variants().1), Value::Name(""));
    let from = match from {
        Quantised::PerTensor { y, scale } => named.tensor("from.x", y).tensor("from.scale", scale),
        Quantised::PerToken { y, scales }
        | Quantised::PerGroup { y, scales }
        | Quantised::Mx { y, scales, .. } => {
            named.tensor("from.x", y).tensor("from.scales", scales)
        }
        Quantised::Nvfp4 {
            y, scales, global, ..
        } => named
            .tensor("from.x", y)
            .tensor("from.scales", scales)
            .tensor("from.global", global),
    };
    from.tensor("y", y)
}

/// What packed bits take beside their tensors.
#[derive(Clone, Copy, Debug)]
pub struct Bits;

impl Operator<'_, Bits> {
    /// Whether a byte's first bit is its lowest; the highest if it is not said.
    pub fn little(self, little: bool) -> Self {
        self.with("LITTLE", Value::Bool(little), Value::Bool(false))
    }
}

/// The bits x ≠ 0, eight to a byte. x: `[n]` in u8; y: `[⌈n / 8⌉]` in u8.
pub fn packbits<'a>(
    set: &'a KernelSet,
    x: impl Into<TensorRef<'a>>,
    y: impl Into<TensorRef<'a>>,
) -> Operator<'a, Bits> {
    Operator::new(set, "packbits").tensor("x", x).tensor("y", y)
}

/// [`packbits`] of segments: segment s is x_indptr[s] .. x_indptr[s + 1] of x, and goes to the bytes of y from y_indptr[s] on.
pub fn segment_packbits<'a>(
    set: &'a KernelSet,
    x: impl Into<TensorRef<'a>>,
    x_indptr: impl Into<TensorRef<'a>>,
    y_indptr: impl Into<TensorRef<'a>>,
    y: impl Into<TensorRef<'a>>,
) -> Operator<'a, Bits> {
    Operator::new(set, "segment_packbits")
        .tensor("x", x)
        .tensor("x_indptr", x_indptr)
        .tensor("y_indptr", y_indptr)
        .tensor("y", y)
}
