//! `--check`: what a device wrote against what the interpreter wrote.
//!
//! Tolerance of floats: |difference| ≤ abs + rel·|expected|, by the widest-stepped 16- or 32-bit type among the outputs: f32
//! (1e-5, 1e-4), f16 (1e-3, 1e-3), bf16 (2e-3, 1e-2). Outputs of fewer bits may differ by one step of their type. Integers and
//! bools are equal. NaN equals NaN, and an infinity only itself.

use tesserine_compiler::interp::floats;
use tesserine_set::DType;

use crate::tensor::HostTensor;

/// `|difference| ≤ abs + rel·|expected|`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    pub abs: f64,
    pub rel: f64,
}

impl Tolerance {
    /// Reads `ABS,REL`.
    pub fn parse(text: &str) -> Result<Tolerance, String> {
        let number = |part: &str| {
            part.trim()
                .parse()
                .ok()
                .filter(|value: &f64| *value >= 0.0 && value.is_finite())
        };
        text.split_once(',')
            .and_then(|(abs, rel)| {
                Some(Tolerance {
                    abs: number(abs)?,
                    rel: number(rel)?,
                })
            })
            .ok_or_else(|| {
                format!("`{text}` is not of the form ABS,REL: two numbers, as in `1e-3,1e-3`")
            })
    }

    /// What the outputs' types allow.
    pub fn of(outputs: impl IntoIterator<Item = DType>) -> Tolerance {
        let rank = |dtype: &DType| match dtype {
            DType::Bf16 => 3,
            DType::F16 => 2,
            _ => 1,
        };
        match outputs.into_iter().max_by_key(rank) {
            Some(DType::Bf16) => Tolerance {
                abs: 2e-3,
                rel: 1e-2,
            },
            Some(DType::F16) => Tolerance {
                abs: 1e-3,
                rel: 1e-3,
            },
            _ => Tolerance {
                abs: 1e-5,
                rel: 1e-4,
            },
        }
    }
}

/// An element that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Worst {
    pub position: Vec<i64>,
    pub found: f64,
    pub expected: f64,
    pub error: f64,
}

/// How one output compares.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    pub elements: usize,
    /// Elements beyond the tolerance.
    pub beyond: usize,
    /// The largest absolute error; infinite where one side is NaN or another infinity.
    pub max_abs: f64,
    /// The largest error relative to the expected value, over elements whose expected value is not 0.
    pub max_rel: f64,
    /// Elements with the largest errors relative to what is allowed, largest first; none where all are equal.
    pub worst: Vec<Worst>,
}

impl Comparison {
    pub fn passed(&self) -> bool {
        self.beyond == 0
    }
}

/// How many of the worst elements are kept.
const KEPT: usize = 5;

/// Compares `found` with `expected`, of one type and shape.
pub fn compare(found: &HostTensor, expected: &HostTensor, tolerance: Tolerance) -> Comparison {
    let dtype = found.dtype;
    let mut comparison = Comparison {
        elements: found.len(),
        beyond: 0,
        max_abs: 0.0,
        max_rel: 0.0,
        worst: Vec::new(),
    };
    // (error in units of what is allowed, index, error)
    let mut worst: Vec<(f64, usize, f64)> = Vec::new();
    for index in 0..found.len() {
        let (a, b) = (found.bits(index), expected.bits(index));
        if a == b {
            continue;
        }
        let (x, y) = (found.value(index), expected.value(index));
        let error = difference(x, y);
        let ratio = if error == 0.0 && dtype.is_float() {
            0.0 // −0 and 0, or two NaNs
        } else if !dtype.is_float() {
            f64::INFINITY
        } else if dtype.bits() <= 8 {
            steps(dtype, a, b)
        } else if error == f64::INFINITY {
            f64::INFINITY
        } else {
            error / (tolerance.abs + tolerance.rel * y.abs())
        };
        if ratio > 1.0 {
            comparison.beyond += 1;
        }
        if error == 0.0 && dtype.is_float() {
            continue;
        }
        comparison.max_abs = comparison.max_abs.max(error);
        if y != 0.0 {
            comparison.max_rel = comparison.max_rel.max(error / y.abs());
        }
        if worst.len() < KEPT || worst.last().is_some_and(|last| ratio > last.0) {
            let at = worst.partition_point(|kept| kept.0 >= ratio);
            worst.insert(at, (ratio, index, error));
            worst.truncate(KEPT);
        }
    }
    comparison.worst = worst
        .into_iter()
        .map(|(_, index, error)| Worst {
            position: found.position(index),
            found: found.value(index),
            expected: expected.value(index),
            error,
        })
        .collect();
    comparison
}

fn difference(found: f64, expected: f64) -> f64 {
    if found == expected || (found.is_nan() && expected.is_nan()) {
        0.0
    } else if found.is_finite() && expected.is_finite() {
        (found - expected).abs()
    } else {
        f64::INFINITY
    }
}

/// How many values of the type lie between two codes, both ends counted once; infinite if one alone is NaN.
fn steps(dtype: DType, a: u64, b: u64) -> f64 {
    let (x, y) = (floats::decode(dtype, a), floats::decode(dtype, b));
    if x.is_nan() || y.is_nan() {
        return f64::INFINITY;
    }
    let (low, high) = if x < y { (x, y) } else { (y, x) };
    let codes = 1u64 << dtype.bits();
    let mut values: Vec<f64> = (0..codes)
        .map(|code| floats::decode(dtype, code))
        .filter(|value| *value > low && *value <= high)
        .collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values.len() as f64
}

/// Figures about what a tensor holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Of the finite elements; NaN if there are none.
    pub min: f64,
    pub max: f64,
    pub mean: f64,
    pub nan: usize,
    pub infinite: usize,
}

/// Summarises `tensor`.
pub fn summarise(tensor: &HostTensor) -> Summary {
    let mut summary = Summary {
        min: f64::NAN,
        max: f64::NAN,
        mean: f64::NAN,
        nan: 0,
        infinite: 0,
    };
    let (mut sum, mut finite) = (0.0, 0usize);
    for index in 0..tensor.len() {
        let value = tensor.value(index);
        if value.is_nan() {
            summary.nan += 1;
        } else if value.is_infinite() {
            summary.infinite += 1;
        } else {
            // `min` and `max` of f64 prefer the number over the NaN.
            summary.min = summary.min.min(value);
            summary.max = summary.max.max(value);
            sum += value;
            finite += 1;
        }
    }
    if finite > 0 {
        summary.mean = sum / finite as f64;
    }
    summary
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(dtype: DType, values: &[f64]) -> HostTensor {
        let mut tensor = HostTensor::filled(dtype, &[values.len() as i64], 0).unwrap();
        let size = dtype.bits() as usize / 8;
        for (chunk, value) in tensor.data.chunks_exact_mut(size).zip(values) {
            let bits = if dtype.is_float() {
                floats::encode(dtype, *value)
            } else {
                *value as i64 as u64
            };
            chunk.copy_from_slice(&bits.to_le_bytes()[..size]);
        }
        tensor
    }

    fn beyond(dtype: DType, found: &[f64], expected: &[f64]) -> usize {
        compare(
            &tensor(dtype, found),
            &tensor(dtype, expected),
            Tolerance::of([dtype]),
        )
        .beyond
    }

    #[test]
    fn tolerances_follow_the_type() {
        assert_eq!(beyond(DType::F32, &[1.0, 2.0], &[1.0001, 2.0]), 0);
        assert_eq!(beyond(DType::F32, &[1.0, 2.0], &[1.001, 2.0]), 1);
        assert_eq!(beyond(DType::F16, &[1.0], &[1.0015]), 0);
        assert_eq!(beyond(DType::F16, &[1.0], &[1.003]), 1);
        assert_eq!(beyond(DType::Bf16, &[1.0], &[1.0079]), 0);
        assert_eq!(beyond(DType::Bf16, &[1.0], &[1.02]), 1);
        assert_eq!(beyond(DType::I32, &[3.0], &[3.0]), 0);
        assert_eq!(beyond(DType::I32, &[3.0], &[4.0]), 1);
        // 1, 1.125 and 1.25 are neighbours in e4m3.
        assert_eq!(beyond(DType::E4m3, &[1.0], &[1.125]), 0);
        assert_eq!(beyond(DType::E4m3, &[1.0], &[1.25]), 1);
        assert_eq!(
            Tolerance::of([DType::F32, DType::Bf16, DType::F16]),
            Tolerance {
                abs: 2e-3,
                rel: 1e-2
            }
        );
    }

    #[test]
    fn nan_and_infinities_equal_only_themselves() {
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        assert_eq!(beyond(DType::F32, &[nan, inf, 0.0], &[nan, inf, -0.0]), 0);
        assert_eq!(beyond(DType::F32, &[nan, inf, 1.0], &[1.0, -inf, inf]), 3);
    }

    #[test]
    fn the_worst_come_first() {
        let found = tensor(DType::F32, &[1.0, 2.0, 3.0, 4.0]);
        let expected = tensor(DType::F32, &[1.0, 2.5, 3.0, 5.0]);
        let comparison = compare(&found, &expected, Tolerance::of([DType::F32]));
        assert_eq!(comparison.beyond, 2);
        assert_eq!(comparison.max_abs, 1.0);
        let positions: Vec<_> = comparison.worst.iter().map(|w| w.position[0]).collect();
        assert_eq!(positions, [3, 1]);
    }

    #[test]
    fn tolerances_are_read() {
        assert_eq!(
            Tolerance::parse("1e-3, 0"),
            Ok(Tolerance {
                abs: 1e-3,
                rel: 0.0
            })
        );
        for text in ["1", "1,x", "-1,0", "inf,0", ""] {
            assert!(Tolerance::parse(text).is_err(), "{text}");
        }
    }
}
