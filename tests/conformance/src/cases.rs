//! The cases: which instance, which shapes, where in memory, which values; their arguments and what must come out.

use std::{collections::HashSet, fmt};

use tesserine_set::DType;

use crate::{
    gemm::{self, Product},
    reference,
    tensor::{Tensor, encode, largest, round},
    values::Random,
};

/// A kernel of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Axpy,
    Transpose,
    RmsNorm,
    FusedAddRmsNorm,
    LayerNorm,
    Softmax,
    SiluAndMul,
    GeluTanhAndMul,
    Gemm(Product),
}

impl Op {
    /// Those that go by rows; products have a list of their own.
    pub const ALL: [Op; 8] = [
        Op::Axpy,
        Op::Transpose,
        Op::RmsNorm,
        Op::FusedAddRmsNorm,
        Op::LayerNorm,
        Op::Softmax,
        Op::SiluAndMul,
        Op::GeluTanhAndMul,
    ];

    /// The kernel's name in source.
    pub fn name(self) -> &'static str {
        match self {
            Op::Axpy => "axpy",
            Op::Transpose => "transpose",
            Op::RmsNorm => "rmsnorm",
            Op::FusedAddRmsNorm => "fused_add_rmsnorm",
            Op::LayerNorm => "layernorm",
            Op::Softmax => "softmax",
            Op::SiluAndMul => "silu_and_mul",
            Op::GeluTanhAndMul => "gelu_tanh_and_mul",
            Op::Gemm(_) => "gemm_nt",
        }
    }

    /// The source file, relative to `kernels-dsl`.
    pub fn source(self) -> &'static str {
        match self {
            Op::Axpy => "basics/axpy.tess",
            Op::Transpose => "basics/transpose.tess",
            Op::RmsNorm | Op::FusedAddRmsNorm => "norm/rmsnorm.tess",
            Op::LayerNorm => "norm/layernorm.tess",
            Op::Softmax => "norm/softmax.tess",
            Op::SiluAndMul | Op::GeluTanhAndMul => "activation/gated.tess",
            Op::Gemm(_) => "gemm/dense.tess",
        }
    }

    /// Compile-time parameters other than the defaults, for blocks of about `block` columns.
    fn block_args(self, block: u32) -> String {
        match self {
            Op::Transpose => format!(", BM = {block}, BN = {block}"),
            Op::LayerNorm | Op::Softmax => format!(", B = {block}, C = {}", block.div_ceil(2)),
            _ => format!(", B = {block}"),
        }
    }
}

/// Where tensors lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Rows touch; the base is aligned.
    Tight,
    /// Rows are multiples of 16 bytes apart, with a gap.
    Padded,
    /// Rows are an odd number of elements apart.
    Odd,
    /// Rows touch; the base is one element past an aligned address.
    Shifted,
    /// Rows are a little more than 2³⁰ elements apart: offsets pass 2³¹ elements and 2³² bytes.
    Far,
}

impl Layout {
    /// The stride between rows of `cols` elements, and the elements by which the base is shifted.
    fn of(self, cols: usize) -> (usize, usize) {
        match self {
            Layout::Tight => (cols, 0),
            Layout::Padded => (cols.next_multiple_of(8) + 8, 0),
            Layout::Odd => (cols + 2 + cols % 2 + 1, 0),
            Layout::Shifted => (cols, 1),
            Layout::Far => ((1 << 30) + 8, 0),
        }
    }
}

/// What the inputs hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Mean 0, variance 1.
    Normal,
    /// Mean 0, standard deviation 30.
    Wide,
    /// Mean 50, variance 1.
    Lifted,
    Zeros,
    /// Near the type's end, as far as squares still fit f32.
    Large,
    /// Below the type's normal range.
    Tiny,
    /// Infinities and NaN, another mixture in each row.
    Special,
}

/// Where a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Everywhere, also in a quick run.
    Quick,
    /// Everywhere.
    Core,
    /// On GPUs only.
    Device,
    /// On GPUs only, and only where host and device have 8 GiB to spare.
    Huge,
}

/// One launch and what must come of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    pub op: Op,
    pub dtype: DType,
    /// Columns of a block, if not the kernel's default.
    pub block: Option<u32>,
    pub rows: usize,
    /// Of the output (of the input of `transpose`).
    pub cols: usize,
    pub layout: Layout,
    pub values: Values,
    pub tier: Tier,
}

/// An argument of a launch.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    Tensor(Tensor),
    Scalar(f64),
}

/// What an output must hold, element by element.
#[derive(Clone, Debug)]
pub(crate) enum Want {
    /// Within the tolerance.
    Near(Vec<f64>),
    /// Within the tolerance, its absolute part times the second number.
    Sums(Vec<(f64, f64)>),
    /// The nearest element, exactly.
    Exact(Vec<f64>),
}

/// The arguments of a launch, and what its outputs must hold.
#[derive(Clone, Debug)]
pub struct Problem {
    /// By name, in the order of the kernel's parameters.
    pub args: Vec<(&'static str, Arg)>,
    wants: Vec<(&'static str, Want)>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{}x{}{}/{:?}/{:?}",
            self.instance().replace(' ', ""),
            self.rows,
            self.cols,
            self.depth(),
            self.layout,
            self.values
        )
    }
}

impl Case {
    /// The instance, as a kernel set names it.
    pub fn instance(&self) -> String {
        let args = match self.op {
            Op::Gemm(product) => product.instance_args(self.dtype),
            op => self.block.map(|b| op.block_args(b)).unwrap_or_default(),
        };
        format!("{}<{}{args}>", self.op.name(), self.dtype)
    }

    /// The third dimension of a product, as names have it.
    fn depth(&self) -> String {
        match self.op {
            Op::Gemm(product) => product.to_string(),
            _ => String::new(),
        }
    }

    /// The next value of an input, at row `i`.
    fn draw(&self, random: &mut Random, i: usize) -> f64 {
        let x = random.normal();
        match self.values {
            Values::Normal => x,
            Values::Wide => 30.0 * x,
            Values::Lifted => 50.0 + x,
            Values::Zeros => 0.0,
            Values::Large if self.dtype == DType::F16 => {
                x.signum() * (1e4 + 5e4 * random.uniform())
            }
            Values::Large => 1e15 * x,
            Values::Tiny if self.dtype == DType::F16 => 1e-6 * x,
            Values::Tiny => 1e-39 * x,
            Values::Special => match (i % 6, random.bits() % 5) {
                (0, _) | (1, 0) => f64::NEG_INFINITY,
                (2, 0) => f64::NAN,
                (3, 0) => f64::INFINITY,
                (4, 0) => 0.0,
                (4, 1) => -0.0,
                _ => x,
            },
        }
    }

    pub(crate) fn tensor(&self, shape: &[usize]) -> Tensor {
        let cols = shape[shape.len() - 1];
        let (row, shift) = self.layout.of(cols);
        Tensor::new(self.dtype, shape, row, shift)
    }

    pub(crate) fn filled(&self, random: &mut Random, shape: &[usize]) -> Tensor {
        let mut t = self.tensor(shape);
        t.fill(|i, _| self.draw(random, i));
        t
    }

    /// A vector of factors around `middle`, in `dtype`.
    pub(crate) fn factors(
        &self,
        random: &mut Random,
        dtype: DType,
        n: usize,
        middle: f64,
    ) -> Tensor {
        let (row, shift) = self.layout.of(n);
        let mut t = Tensor::new(dtype, &[n], row, shift);
        t.fill(|_, _| middle + 0.25 * random.normal());
        t
    }

    /// Arguments and expected outputs.
    pub fn build(&self) -> Problem {
        let random = &mut Random::named(&self.to_string());
        let (m, n) = (self.rows, self.cols);
        let row = |t: &[f64], i: usize, width: usize| t[i * width..(i + 1) * width].to_vec();
        match self.op {
            Op::Axpy => {
                let n = m * n;
                let s = -0.75;
                let (x, z) = (self.filled(random, &[n]), self.filled(random, &[n]));
                let want = std::iter::zip(x.values(), z.values())
                    .map(|(x, z)| x + s * z)
                    .collect();
                Problem {
                    args: vec![
                        ("x", Arg::Tensor(x)),
                        ("z", Arg::Tensor(z)),
                        ("y", Arg::Tensor(self.tensor(&[n]))),
                        ("s", Arg::Scalar(s)),
                    ],
                    wants: vec![("y", Want::Near(want))],
                }
            }
            Op::Transpose => {
                let x = self.filled(random, &[m, n]);
                let from = x.values();
                let want = (0..n * m).map(|e| from[e % m * n + e / m]).collect();
                Problem {
                    args: vec![
                        ("x", Arg::Tensor(x)),
                        ("y", Arg::Tensor(self.tensor(&[n, m]))),
                    ],
                    wants: vec![("y", Want::Exact(want))],
                }
            }
            Op::RmsNorm => {
                let eps = 1e-6;
                let x = self.filled(random, &[m, n]);
                let weight = self.factors(random, self.dtype, n, 1.0);
                let (from, w) = (x.values(), weight.values());
                let want = (0..m)
                    .flat_map(|i| reference::rmsnorm(&row(&from, i, n), &w, eps))
                    .collect();
                Problem {
                    args: vec![
                        ("x", Arg::Tensor(x)),
                        ("weight", Arg::Tensor(weight)),
                        ("out", Arg::Tensor(self.tensor(&[m, n]))),
                        ("eps", Arg::Scalar(eps)),
                    ],
                    wants: vec![("out", Want::Near(want))],
                }
            }
            Op::FusedAddRmsNorm => {
                let eps = 1e-5;
                let x = self.filled(random, &[m, n]);
                let residual = self.filled(random, &[m, n]);
                let weight = self.factors(random, self.dtype, n, 1.0);
                let w = weight.values();
                let sum: Vec<f64> = std::iter::zip(x.values(), residual.values())
                    .map(|(x, r)| round(self.dtype, (x as f32 + r as f32) as f64))
                    .collect();
                let want = (0..m)
                    .flat_map(|i| reference::rmsnorm(&row(&sum, i, n), &w, eps))
                    .collect();
                Problem {
                    args: vec![
                        ("x", Arg::Tensor(x)),
                        ("residual", Arg::Tensor(residual)),
                        ("weight", Arg::Tensor(weight)),
                        ("eps", Arg::Scalar(eps)),
                    ],
                    wants: vec![("residual", Want::Exact(sum)), ("x", Want::Near(want))],
                }
            }
            Op::LayerNorm => {
                let eps = 1e-5;
                let x = self.filled(random, &[m, n]);
                let gamma = self.factors(random, DType::F32, n, 1.0);
                let beta = self.factors(random, DType::F32, n, 0.0);
                let (from, g, b) = (x.values(), gamma.values(), beta.values());
                let want = (0..m)
                    .flat_map(|i| reference::layernorm(&row(&from, i, n), &g, &b, eps))
                    .collect();
                Problem {
                    args: vec![
                        ("x", Arg::Tensor(x)),
                        ("gamma", Arg::Tensor(gamma)),
                        ("beta", Arg::Tensor(beta)),
                        ("out", Arg::Tensor(self.tensor(&[m, n]))),
                        ("eps", Arg::Scalar(eps)),
                    ],
                    wants: vec![("out", Want::Near(want))],
                }
            }
            Op::Softmax => {
                let x = self.filled(random, &[m, n]);
                let from = x.values();
                let want = (0..m)
                    .flat_map(|i| reference::softmax(&row(&from, i, n)))
                    .collect();
                Problem {
                    args: vec![
                        ("x", Arg::Tensor(x)),
                        ("y", Arg::Tensor(self.tensor(&[m, n]))),
                    ],
                    wants: vec![("y", Want::Near(want))],
                }
            }
            Op::Gemm(product) => gemm::build(self, product, random),
            Op::SiluAndMul | Op::GeluTanhAndMul => {
                let act = match self.op {
                    Op::SiluAndMul => reference::silu,
                    _ => reference::gelu_tanh,
                };
                let x = self.filled(random, &[m, 2 * n]);
                let from = x.values();
                let want = (0..m * n)
                    .map(|e| {
                        let at = e / n * 2 * n + e % n;
                        act(from[at]) * from[at + n]
                    })
                    .collect();
                Problem {
                    args: vec![
                        ("x", Arg::Tensor(x)),
                        ("out", Arg::Tensor(self.tensor(&[m, n]))),
                    ],
                    wants: vec![("out", Want::Near(want))],
                }
            }
        }
    }
}

/// The absolute and relative tolerance of a type.
fn tolerance(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::F16 => (1e-3, 1e-3),
        DType::Bf16 => (2e-3, 1e-2),
        _ => (1e-5, 1e-4),
    }
}

impl Problem {
    pub(crate) fn new(args: Vec<(&'static str, Arg)>, wants: Vec<(&'static str, Want)>) -> Problem {
        Problem { args, wants }
    }

    /// The tensor argument called `name`.
    fn tensor<'a>(args: impl IntoIterator<Item = (&'a str, &'a Arg)>, name: &str) -> &'a Tensor {
        args.into_iter()
            .find_map(|(n, arg)| match arg {
                Arg::Tensor(t) if n == name => Some(t),
                _ => None,
            })
            .unwrap_or_else(|| panic!("case without tensor `{name}`"))
    }

    /// Compares all tensors with what they must hold, `before` being the arguments as they were before the launch. Gives
    /// the largest error as a share of the tolerance, or what is wrong.
    pub fn compare(&self, before: &[Arg]) -> Result<f64, String> {
        let mut worst = 0.0f64;
        for ((name, arg), was) in self.args.iter().zip(before) {
            let (Arg::Tensor(t), Arg::Tensor(was)) = (arg, was) else {
                continue;
            };
            if !self.wants.iter().any(|(n, _)| n == name) {
                if t != was {
                    return Err(format!("`{name}` is only read, but has changed"));
                }
                continue;
            }
            if let Some(at) = t.stray(was) {
                return Err(format!(
                    "`{name}`: a store {at} elements from the base, outside the tensor"
                ));
            }
        }
        for (name, want) in &self.wants {
            let t = Problem::tensor(self.args.iter().map(|(n, a)| (*n, a)), name);
            worst = worst.max(compare(name, t, want)?);
        }
        Ok(worst)
    }
}

/// Every element of `t` against `want`.
fn compare(name: &str, t: &Tensor, want: &Want) -> Result<f64, String> {
    let (_, cols) = t.rows();
    let exact = matches!(want, Want::Exact(_));
    let list: Vec<(f64, f64)> = match want {
        Want::Near(list) | Want::Exact(list) => list.iter().map(|&want| (want, 1.0)).collect(),
        Want::Sums(list) => list.clone(),
    };
    let (abs, rel) = tolerance(t.dtype);
    let top = largest(t.dtype);
    let mut worst = 0.0f64;
    for (e, (got, &(want, scale))) in t.values().into_iter().zip(&list).enumerate() {
        let (i, j) = (e / cols, e % cols);
        let fail = |what: &str| {
            Err(format!(
                "`{name}`[{i}, {j}] is {got:e}, but must be {want:e}{what}"
            ))
        };
        if want.is_nan() {
            if !got.is_nan() || t.is_canary(i, j) {
                return fail("");
            }
            continue;
        }
        if t.is_canary(i, j) {
            return fail(": it was not written");
        }
        if exact {
            let mut bits = [[0; 4]; 2];
            let size = t.size();
            encode(t.dtype, got, &mut bits[0][..size]);
            encode(t.dtype, want, &mut bits[1][..size]);
            if bits[0] != bits[1] {
                return fail(" exactly");
            }
            continue;
        }
        let allowed = abs * scale + rel * want.abs();
        if got == want {
            continue;
        }
        if got.is_infinite() || want.abs() > top {
            // Beyond the type's range: an infinity is right as soon as the tolerance reaches past the largest number.
            let near = want.abs() + allowed > top && got.signum() == want.signum();
            if !near || got.abs() < top.min(want.abs() - allowed) {
                return fail(" in a type that ends there");
            }
            continue;
        }
        let share = (got - want).abs() / allowed;
        if share.is_nan() || share > 1.0 {
            return fail(&format!(" within {allowed:e}"));
        }
        worst = worst.max(share);
    }
    if list.len() != t.shape.iter().product::<usize>() {
        return Err(format!("the case of `{name}` is of another shape"));
    }
    Ok(worst)
}

/// All cases, those of one kernel together.
pub fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    for op in Op::ALL {
        for dtype in [DType::F16, DType::Bf16] {
            let case = Case {
                op,
                dtype,
                block: None,
                rows: 3,
                cols: 64,
                layout: Layout::Tight,
                values: Values::Normal,
                tier: Tier::Core,
            };
            if op == Op::Transpose {
                transposes(case, &mut list);
            } else {
                rows(case, &mut list);
            }
        }
        // f32 is in no default set: it runs where the kernel can be compiled.
        for (cols, layout) in [(37, Layout::Odd), (200, Layout::Tight)] {
            list.push(Case {
                op,
                dtype: DType::F32,
                block: Some(64),
                rows: 5,
                cols,
                layout,
                values: Values::Normal,
                tier: Tier::Core,
            });
        }
    }
    gemm::cases(&mut list);
    let mut seen = HashSet::new();
    list.retain(|case| seen.insert(case.to_string()));
    list
}

/// Kernels that go by rows, and `axpy`, whose vector is all of its rows.
fn rows(case: Case, list: &mut Vec<Case>) {
    let mut add = |case: Case| list.push(case);
    // In small blocks: every remainder, one to several blocks.
    for cols in (1..=18).chain([31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 200, 257]) {
        add(Case {
            block: Some(64),
            cols,
            rows: 2,
            ..case
        });
    }
    for (block, cols, layout) in [
        (64, 192, Layout::Padded),
        (64, 199, Layout::Odd),
        (64, 136, Layout::Shifted),
        (80, 170, Layout::Odd),
        (80, 240, Layout::Tight),
        (7, 40, Layout::Tight),
    ] {
        add(Case {
            block: Some(block),
            cols,
            layout,
            ..case
        });
    }
    for values in [
        Values::Wide,
        Values::Lifted,
        Values::Zeros,
        Values::Large,
        Values::Tiny,
        Values::Special,
    ] {
        for (cols, layout) in [(40, Layout::Odd), (136, Layout::Tight)] {
            add(Case {
                block: Some(64),
                cols,
                layout,
                values,
                rows: 6,
                ..case
            });
        }
    }
    // In the default block, as kernel sets hold it.
    let quick = Case {
        tier: Tier::Quick,
        ..case
    };
    for (rows, cols, layout) in [
        (1, 1, Layout::Tight),
        (3, 7, Layout::Tight),
        (2, 111, Layout::Odd),
        (2, 1024, Layout::Tight),
        (2, 1032, Layout::Padded),
        (1, 8192, Layout::Tight),
        (1, 8193, Layout::Tight),
    ] {
        add(Case {
            rows,
            cols,
            layout,
            ..quick
        });
    }
    for (cols, layout) in [
        (4096, Layout::Shifted),
        (8200, Layout::Tight),
        (16391, Layout::Odd),
        (100_000, Layout::Tight),
    ] {
        add(Case {
            rows: 1,
            cols,
            layout,
            ..case
        });
    }
    // On a device all remainders, layouts and values in the default block.
    let device = Case {
        tier: Tier::Device,
        rows: 5,
        ..case
    };
    for cols in (1..=40).chain([
        63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1000, 1023, 1025, 2047, 2048,
        2049, 4095, 4096, 4097, 5120, 7168, 8184, 8191, 11008, 14336, 16383, 16384, 16385, 24576,
        28672, 65536, 99_999, 131_072,
    ]) {
        add(Case { cols, ..device });
    }
    for layout in [Layout::Padded, Layout::Odd, Layout::Shifted] {
        for cols in [1, 8, 64, 100, 1000, 2050, 8192, 8196, 20_000] {
            add(Case {
                cols,
                layout,
                ..device
            });
        }
    }
    for values in [
        Values::Wide,
        Values::Lifted,
        Values::Zeros,
        Values::Large,
        Values::Tiny,
        Values::Special,
    ] {
        for (cols, layout) in [
            (33, Layout::Tight),
            (2048, Layout::Tight),
            (8192, Layout::Odd),
            (20_000, Layout::Tight),
        ] {
            add(Case {
                cols,
                layout,
                values,
                rows: 6,
                ..device
            });
        }
    }
    for (rows, cols) in [(70_000, 8), (70_000, 3), (1_000_003, 1), (1024, 8192)] {
        add(Case {
            rows,
            cols,
            ..device
        });
    }
    if case.dtype == DType::Bf16 && case.op != Op::Axpy {
        add(Case {
            rows: 3,
            cols: 8200,
            layout: Layout::Far,
            tier: Tier::Huge,
            ..case
        });
    }
}

fn transposes(case: Case, list: &mut Vec<Case>) {
    let mut add = |case: Case| list.push(case);
    for (rows, cols) in [
        (1, 1),
        (1, 17),
        (17, 1),
        (5, 7),
        (16, 16),
        (24, 40),
        (33, 31),
    ] {
        add(Case {
            block: Some(16),
            rows,
            cols,
            ..case
        });
    }
    for layout in [Layout::Padded, Layout::Odd, Layout::Shifted] {
        add(Case {
            block: Some(16),
            rows: 24,
            cols: 40,
            layout,
            ..case
        });
    }
    add(Case {
        block: Some(16),
        rows: 24,
        cols: 40,
        values: Values::Special,
        ..case
    });
    for (rows, cols, layout) in [
        (1, 1, Layout::Tight),
        (3, 100, Layout::Odd),
        (64, 64, Layout::Tight),
        (72, 136, Layout::Padded),
        (65, 129, Layout::Tight),
        (128, 64, Layout::Shifted),
    ] {
        add(Case {
            rows,
            cols,
            layout,
            tier: Tier::Quick,
            ..case
        });
    }
    let device = Case {
        tier: Tier::Device,
        ..case
    };
    for rows in [1, 7, 8, 63, 64, 65, 200] {
        for cols in [1, 8, 9, 64, 65, 1000] {
            for layout in [Layout::Tight, Layout::Padded, Layout::Odd, Layout::Shifted] {
                add(Case {
                    rows,
                    cols,
                    layout,
                    ..device
                });
            }
        }
    }
    for (rows, cols) in [
        (1, 100_000),
        (100_000, 1),
        (2048, 4096),
        (4097, 2047),
        (70_000, 8),
    ] {
        add(Case {
            rows,
            cols,
            ..device
        });
    }
    add(Case {
        rows: 100,
        cols: 200,
        values: Values::Special,
        ..device
    });
}

/// A few small launches of each kernel, both bodies, one block and several: for tools that slow a launch down a
/// hundredfold.
pub fn sanitizer_cases() -> Vec<Case> {
    let mut list = Vec::new();
    for op in Op::ALL {
        for dtype in [DType::F16, DType::Bf16] {
            for (rows, cols, layout) in [
                (3, 64, Layout::Padded),
                (3, 67, Layout::Odd),
                (2, 8200, Layout::Tight),
                (2, 8197, Layout::Shifted),
            ] {
                // A transpose of few rows shows little: a square of as many tiles instead.
                let (rows, cols) = match (op, cols > 1000) {
                    (Op::Transpose, true) => (130 + cols % 8, 136 + cols % 8),
                    _ => (rows, cols),
                };
                list.push(Case {
                    op,
                    dtype,
                    block: None,
                    rows,
                    cols,
                    layout,
                    values: Values::Normal,
                    tier: Tier::Quick,
                });
            }
        }
    }
    gemm::sanitizer_cases(&mut list);
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Problem, Vec<Arg>) {
        let mut problem = Case {
            op: Op::FusedAddRmsNorm,
            dtype: DType::Bf16,
            block: None,
            rows: 2,
            cols: 5,
            layout: Layout::Odd,
            values: Values::Normal,
            tier: Tier::Core,
        }
        .build();
        let before = problem.args.iter().map(|(_, a)| a.clone()).collect();
        let wants = problem.wants.clone();
        for (name, want) in wants {
            let (Want::Near(list) | Want::Exact(list)) = want else {
                panic!("no product");
            };
            let Some((_, Arg::Tensor(t))) = problem.args.iter_mut().find(|(n, _)| *n == name)
            else {
                panic!("no tensor {name}");
            };
            t.fill(|i, j| list[i * 5 + j]);
        }
        (problem, before)
    }

    #[test]
    fn the_right_answer_passes() {
        let (problem, before) = sample();
        assert!(problem.compare(&before).is_ok_and(|worst| worst < 1.0));
    }

    #[test]
    fn each_kind_of_wrong_answer_fails() {
        let break_bytes = |name: &str, at: usize, bytes: [u8; 2]| {
            let (mut problem, before) = sample();
            for (n, arg) in &mut problem.args {
                if let (true, Arg::Tensor(t)) = (*n == name, arg) {
                    let at = (t.offset + at) * 2;
                    t.bytes[at..at + 2].copy_from_slice(&bytes);
                }
            }
            problem.compare(&before).expect_err("must fail")
        };
        assert!(break_bytes("weight", 1, [0, 0]).contains("only read"));
        assert!(break_bytes("x", 5, [0, 0]).contains("outside the tensor"));
        assert!(break_bytes("x", 2, [0, 0x7f]).contains("must be"));
        assert!(break_bytes("x", 2, [0xa5, 0x7f]).contains("not written"));
        assert!(break_bytes("residual", 2, [0, 0]).contains("exactly"));
    }

    #[test]
    fn names_are_unique_and_cases_cover_each_kernel() {
        let list = cases();
        let mut names: Vec<String> = list.iter().map(Case::to_string).collect();
        names.sort();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        for op in Op::ALL {
            for tier in [Tier::Quick, Tier::Core, Tier::Device] {
                assert!(list.iter().any(|c| c.op == op && c.tier == tier));
            }
        }
    }

    #[test]
    fn a_case_is_the_same_each_time() {
        let case = cases()[3];
        assert_eq!(case.build().args, case.build().args);
    }
}
