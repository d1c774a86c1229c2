//! Cases of matrix products: every remainder of each dimension, operands anywhere in memory, each epilogue.

use std::fmt;

use tesserine_set::DType;

use crate::{
    cases::{Arg, Case, Layout, Op, Problem, Tier, Values, Want},
    reference,
    tensor::Tensor,
    values::Random,
};

/// What becomes of the sums before they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epilogue {
    Identity,
    Bias,
    Silu,
    Gelu,
    GeluTanh,
}

impl Epilogue {
    pub const ALL: [Epilogue; 5] = [
        Epilogue::Identity,
        Epilogue::Bias,
        Epilogue::Silu,
        Epilogue::Gelu,
        Epilogue::GeluTanh,
    ];
}

/// A product besides its rows and columns, which the case has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    pub epilogue: Epilogue,
    /// How many products each element adds up.
    pub k: usize,
    /// BM, BN and BK, if not the schedule's.
    pub tile: Option<[u32; 3]>,
}

impl Product {
    /// The compile-time arguments after the element type, as a kernel set writes them.
    pub fn instance_args(self, dtype: DType) -> String {
        let tile = match self.tile {
            Some([m, n, k]) => format!(", BM = {m}, BN = {n}, BK = {k}"),
            None => String::new(),
        };
        match self.epilogue {
            Epilogue::Identity => tile,
            Epilogue::Bias => format!("{tile}, E = Bias<{dtype}>"),
            other => format!("{tile}, E = {other:?}"),
        }
    }
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "x{}", self.k)
    }
}

/// Σ x·y, and √(Σ x²·y²), by which errors of the sum grow. Summed in eight parts, so that a machine can overlap them.
fn sums(x: &[f64], y: &[f64]) -> (f64, f64) {
    let (mut sum, mut squares) = ([0.0; 8], [0.0; 8]);
    for (x, y) in x.chunks(8).zip(y.chunks(8)) {
        for (at, (x, y)) in x.iter().zip(y).enumerate() {
            let product = x * y;
            sum[at] += product;
            squares[at] += product * product;
        }
    }
    (sum.iter().sum(), squares.iter().sum::<f64>().sqrt())
}

/// Arguments and expected outputs.
pub(crate) fn build(case: &Case, product: Product, random: &mut Random) -> Problem {
    let (m, n, k) = (case.rows, case.cols, product.k);
    // Far apart are only the rows of `a`: one such tensor is large enough.
    let near = Case {
        layout: match case.layout {
            Layout::Far => Layout::Padded,
            other => other,
        },
        ..*case
    };
    let a = case.filled(random, &[m, k]);
    // The other operand is tame, lest every sum be an infinity or a NaN.
    let b = Case {
        values: match case.values {
            Values::Special | Values::Large => Values::Normal,
            other => other,
        },
        ..near
    }
    .filled(random, &[n, k]);
    let bias = near.factors(random, case.dtype, n, 0.0);
    let (x, y, z) = (a.values(), b.values(), bias.values());
    let apply = |sum: f64, col: usize| match product.epilogue {
        Epilogue::Identity => sum,
        Epilogue::Bias => sum + z[col],
        Epilogue::Silu => reference::silu(sum),
        Epilogue::Gelu => reference::gelu(sum),
        Epilogue::GeluTanh => reference::gelu_tanh(sum),
    };
    let mut want = Vec::with_capacity(m * n);
    for i in 0..m {
        for j in 0..n {
            let (sum, spread) = sums(&x[i * k..][..k], &y[j * k..][..k]);
            want.push((apply(sum, j), spread.max(1.0)));
        }
    }
    let c: Tensor = near.tensor(&[m, n]);
    let mut args = vec![
        ("a", Arg::Tensor(a)),
        ("b", Arg::Tensor(b)),
        ("c", Arg::Tensor(c)),
    ];
    if product.epilogue == Epilogue::Bias {
        args.push(("epi.bias", Arg::Tensor(bias)));
    }
    Problem::new(args, vec![("c", Want::Sums(want))])
}

/// Collects cases of one element type.
struct List<'a> {
    dtype: DType,
    tier: Tier,
    list: &'a mut Vec<Case>,
}

impl List<'_> {
    fn add(
        &mut self,
        (rows, cols, k): (usize, usize, usize),
        epilogue: Epilogue,
        tile: Option<[u32; 3]>,
        layout: Layout,
        values: Values,
    ) {
        self.list.push(Case {
            op: Op::Gemm(Product { epilogue, k, tile }),
            dtype: self.dtype,
            block: None,
            rows,
            cols,
            layout,
            values,
            tier: self.tier,
        });
    }

    /// In the default tile, tight, of normal values.
    fn plain(&mut self, shape: (usize, usize, usize)) {
        self.add(
            shape,
            Epilogue::Identity,
            None,
            Layout::Tight,
            Values::Normal,
        );
    }
}

pub(crate) fn cases(list: &mut Vec<Case>) {
    for dtype in [DType::F16, DType::Bf16] {
        interpreted(&mut List {
            dtype,
            tier: Tier::Core,
            list,
        });
        quick(&mut List {
            dtype,
            tier: Tier::Quick,
            list,
        });
        on_devices(&mut List {
            dtype,
            tier: Tier::Device,
            list,
        });
    }
    List {
        dtype: DType::Bf16,
        tier: Tier::Huge,
        list,
    }
    .add(
        (3, 200, 136),
        Epilogue::Identity,
        None,
        Layout::Far,
        Values::Normal,
    );
}

/// Small tiles: every remainder in each dimension, one tile to several.
fn interpreted(list: &mut List<'_>) {
    let tile = Some([16, 32, 16]);
    let mut shapes = Vec::new();
    for r in (1..=18).chain([31, 32, 33, 47, 64, 65]) {
        shapes.extend([(r, 40, 24), (20, r, 17), (19, 33, r), (r, r, r)]);
    }
    for shape in shapes {
        list.add(
            shape,
            Epilogue::Identity,
            tile,
            Layout::Tight,
            Values::Normal,
        );
    }
    for epilogue in Epilogue::ALL {
        for (shape, layout) in [
            ((33, 40, 48), Layout::Padded),
            ((17, 71, 35), Layout::Odd),
            ((33, 40, 24), Layout::Shifted),
            ((5, 3, 0), Layout::Tight),
        ] {
            list.add(shape, epilogue, tile, layout, Values::Normal);
        }
        list.add((40, 48, 40), epilogue, tile, Layout::Tight, Values::Wide);
    }
    for values in [
        Values::Lifted,
        Values::Zeros,
        Values::Large,
        Values::Tiny,
        Values::Special,
    ] {
        for (shape, layout) in [((18, 33, 35), Layout::Odd), ((24, 40, 32), Layout::Padded)] {
            list.add(shape, Epilogue::Identity, tile, layout, values);
        }
    }
}

/// In the default tiles, a few of each body.
fn quick(list: &mut List<'_>) {
    for shape in [(1, 1, 1), (131, 77, 50), (136, 264, 72)] {
        list.plain(shape);
    }
    for epilogue in Epilogue::ALL {
        list.add((65, 72, 40), epilogue, None, Layout::Padded, Values::Normal);
        list.add((9, 67, 33), epilogue, None, Layout::Odd, Values::Normal);
    }
}

fn on_devices(list: &mut List<'_>) {
    // Every remainder of each dimension, by itself and with others.
    for r in 1..=72 {
        for shape in [(r, 136, 72), (130, r, 70), (66, 136, r)] {
            list.plain(shape);
        }
        // The specialised body: all that its facts leave free.
        list.plain((r, 8 * r, 264));
        list.plain((133, 72, 8 * r));
        list.plain((r, (r * 7) % 67 + 1, (r * 5) % 71 + 1));
    }
    for r in [
        95, 96, 97, 127, 128, 129, 159, 160, 191, 192, 193, 255, 256, 257, 383, 384, 385, 511, 512,
        513, 1000,
    ] {
        for shape in [
            (r, 200, 100),
            (100, r, 200),
            (129, 264, r),
            (r, 264, 128),
            (r, r, r),
        ] {
            list.plain(shape);
        }
    }
    for shape in [
        (1, 8, 4096),
        (1, 4096, 4096),
        (4096, 1, 4096),
        (16, 512, 16384),
        (3, 5, 100_000),
        (100_000, 8, 8),
        (8, 100_000, 16),
        (70_001, 3, 5),
        (1024, 1024, 1024),
        (1025, 1023, 515),
        (2048, 1544, 264),
    ] {
        list.plain(shape);
    }
    for layout in [Layout::Padded, Layout::Odd, Layout::Shifted] {
        for shape in [
            (1, 1, 1),
            (8, 8, 8),
            (64, 64, 32),
            (128, 256, 64),
            (129, 257, 65),
            (200, 264, 136),
            (256, 512, 512),
            (500, 300, 700),
        ] {
            list.add(shape, Epilogue::Identity, None, layout, Values::Normal);
        }
    }
    for epilogue in Epilogue::ALL {
        for (shape, layout) in [
            ((1, 8, 8), Layout::Tight),
            ((128, 256, 64), Layout::Tight),
            ((300, 520, 264), Layout::Padded),
            ((301, 521, 265), Layout::Tight),
            ((300, 520, 264), Layout::Odd),
            ((65, 136, 128), Layout::Shifted),
            ((5, 3, 0), Layout::Tight),
            ((130, 264, 0), Layout::Tight),
        ] {
            list.add(shape, epilogue, None, layout, Values::Normal);
        }
        list.add((140, 264, 200), epilogue, None, Layout::Tight, Values::Wide);
    }
    for values in [
        Values::Lifted,
        Values::Zeros,
        Values::Large,
        Values::Tiny,
        Values::Special,
    ] {
        for (shape, layout) in [
            ((70, 130, 75), Layout::Tight),
            ((140, 264, 136), Layout::Tight),
            ((140, 264, 136), Layout::Odd),
        ] {
            list.add(shape, Epilogue::Identity, None, layout, values);
        }
    }
}

/// Both bodies, one block and several, a step and several.
pub(crate) fn sanitizer_cases(list: &mut Vec<Case>) {
    for dtype in [DType::F16, DType::Bf16] {
        let mut list = List {
            dtype,
            tier: Tier::Quick,
            list,
        };
        for epilogue in [Epilogue::Identity, Epilogue::Bias] {
            for (shape, layout) in [
                ((9, 40, 24), Layout::Padded),
                ((140, 264, 328), Layout::Tight),
                ((67, 70, 99), Layout::Odd),
                ((67, 72, 64), Layout::Shifted),
            ] {
                list.add(shape, epilogue, None, layout, Values::Normal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_definition() {
        let x: Vec<f64> = (1..=11).map(f64::from).collect();
        let y: Vec<f64> = (1..=11).map(|v| f64::from(12 - v)).collect();
        let (sum, spread) = sums(&x, &y);
        assert_eq!(sum, 286.0);
        assert_eq!(
            spread,
            x.iter()
                .zip(&y)
                .map(|(x, y)| x * x * y * y)
                .sum::<f64>()
                .sqrt()
        );
    }

    #[test]
    fn instances_are_named_as_in_sets() {
        let product = |epilogue, tile| Product {
            epilogue,
            k: 1,
            tile,
        };
        let name = |p: Product| p.instance_args(DType::Bf16);
        assert_eq!(name(product(Epilogue::Identity, None)), "");
        assert_eq!(name(product(Epilogue::Bias, None)), ", E = Bias<bf16>");
        assert_eq!(
            name(product(Epilogue::GeluTanh, Some([16, 32, 64]))),
            ", BM = 16, BN = 32, BK = 64, E = GeluTanh"
        );
    }

    #[test]
    fn every_remainder_of_each_dimension_is_there() {
        let mut list = Vec::new();
        cases(&mut list);
        for dtype in [DType::F16, DType::Bf16] {
            let shapes: Vec<[usize; 3]> = list
                .iter()
                .filter(|case| case.dtype == dtype && case.tier == Tier::Device)
                .map(|case| match case.op {
                    Op::Gemm(product) => [case.rows, case.cols, product.k],
                    other => panic!("{other:?} is no product"),
                })
                .collect();
            for r in 0..64 {
                for axis in 0..3 {
                    assert!(
                        shapes.iter().any(|s| s[axis] > 0 && s[axis] % 64 == r),
                        "{axis}: {r}"
                    );
                }
            }
        }
    }
}
