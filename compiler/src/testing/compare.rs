//! What is near enough.

use tesserine_set::DType;

use crate::interp::{Data, floats};

/// `|difference| ≤ abs + rel · |expected|`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    pub abs: f64,
    pub rel: f64,
}

impl Tolerance {
    /// What the library allows: by the narrowest of the 16- and 32-bit types; sums of products of eight-bit floats are shorter than f32.
    pub fn of(types: impl IntoIterator<Item = DType>) -> Tolerance {
        let rank = |t: DType| match t {
            DType::Bf16 | DType::E4m3 | DType::E5m2 => 2,
            DType::F16 => 1,
            _ => 0,
        };
        let (abs, rel) = match types.into_iter().map(rank).max() {
            Some(2) => (2e-3, 1e-2),
            Some(1) => (1e-3, 1e-3),
            _ => (1e-5, 1e-4),
        };
        Tolerance { abs, rel }
    }
}

/// How two arrays of one length differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Elements that are not near enough, and all of them.
    pub wrong: usize,
    pub of: usize,
    /// The first that is not: its number, what it is and what it should be.
    pub first: (usize, String, String),
    /// The largest error and where it is; infinite where one side is NaN or another infinity.
    pub largest: (f64, usize),
}

#[derive(Clone, Copy)]
enum Number {
    Int(i64),
    Float(f64),
}

impl Number {
    fn at(data: &Data, i: usize) -> Number {
        match data {
            Data::Int(v) => Number::Int(v[i]),
            Data::Float(v) => Number::Float(v[i]),
            Data::Bool(v) => Number::Int(v[i].into()),
        }
    }

    fn float(self) -> f64 {
        match self {
            Number::Int(v) => v as f64,
            Number::Float(v) => v,
        }
    }

    fn equal(self, other: Number) -> bool {
        match (self, other) {
            (Number::Int(a), Number::Int(b)) => a == b,
            _ => {
                let (a, b) = (self.float(), other.float());
                a == b || a.is_nan() && b.is_nan()
            }
        }
    }
}

fn shown(data: &Data, i: usize) -> String {
    match data {
        Data::Int(v) => v[i].to_string(),
        Data::Bool(v) => v[i].to_string(),
        Data::Float(v) => match v[i] {
            x if x != 0.0 && x.is_finite() && !(1e-4..1e6).contains(&x.abs()) => format!("{x:e}"),
            x => format!("{x}"),
        },
    }
}

/// Compares `found` with `expected`, element by element; `None` if all are near enough. NaN equals NaN.
pub fn compare(
    found: &Data,
    expected: &Data,
    near: impl Fn(f64, f64) -> bool,
) -> Option<Difference> {
    let mut difference: Option<Difference> = None;
    let of = found.len().min(expected.len());
    for i in 0..of {
        let (a, b) = (Number::at(found, i), Number::at(expected, i));
        if a.equal(b) {
            continue;
        }
        let (x, y) = (a.float(), b.float());
        let comparable = !x.is_nan() && !y.is_nan() && x.is_finite() && y.is_finite();
        let error = if comparable {
            (x - y).abs()
        } else {
            f64::INFINITY
        };
        if comparable && near(x, y) {
            continue;
        }
        let entry = difference.get_or_insert_with(|| Difference {
            wrong: 0,
            of,
            first: (i, shown(found, i), shown(expected, i)),
            largest: (error, i),
        });
        entry.wrong += 1;
        if error > entry.largest.0 {
            entry.largest = (error, i);
        }
    }
    difference
}

/// Whether two values of a type narrower than 16 bits are equal or neighbours in it.
pub fn neighbours(elem: DType, a: f64, b: f64) -> bool {
    let place = |x: f64| {
        let code = floats::encode(elem, x.abs()) as i64;
        if x < 0.0 { -code } else { code }
    };
    (place(a) - place(b)).abs() <= 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_wrong_element_and_the_largest_error_are_named() {
        let found = Data::Float(vec![1.0, 2.5, 3.0, 9.0]);
        let expected = Data::Float(vec![1.0, 2.0, 3.0, 4.0]);
        let difference = compare(&found, &expected, |a, b| (a - b).abs() <= 0.1).unwrap();
        assert_eq!((difference.wrong, difference.of), (2, 4));
        assert_eq!(difference.first, (1, "2.5".into(), "2".into()));
        assert_eq!(difference.largest, (5.0, 3));
        assert_eq!(
            compare(&found, &expected, |a, b| (a - b).abs() <= 5.0),
            None
        );
    }

    #[test]
    fn nan_and_infinities_are_near_only_themselves() {
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        let values = Data::Float(vec![nan, inf, -inf]);
        assert_eq!(compare(&values, &values, |_, _| false), None);
        let others = Data::Float(vec![0.0, -inf, nan]);
        assert_eq!(compare(&values, &others, |_, _| true).unwrap().wrong, 3);
    }

    #[test]
    fn integers_beyond_the_floats_are_told_apart() {
        let found = Data::Int(vec![i64::MAX]);
        let expected = Data::Int(vec![i64::MAX - 1]);
        assert!(compare(&found, &expected, |_, _| false).is_some());
    }

    #[test]
    fn narrow_values_may_be_one_step_apart() {
        // 1, 1.125 and 1.25 follow each other in e4m3.
        assert!(neighbours(DType::E4m3, 1.0, 1.125));
        assert!(!neighbours(DType::E4m3, 1.0, 1.25));
    }
}
