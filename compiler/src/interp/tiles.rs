//! Operations on whole tiles: scans, sorting, counting, and gathering within a tile.
//!
//! Everything is exact: sums are of f64 and rounded once for each element, equal keys keep their order, and what is taken
//! from outside is zero.

use std::cmp::Ordering;
use std::collections::HashMap;

use tesserine_set::DType;

use super::{
    elementwise::{key, max, mismatch, round_once},
    floats,
    value::{Data, row_major},
};
use crate::ir::tile::ScanOp;

/// Running sums or maxima along the middle one of three dimensions `outer × axis × inner`. `result` is the element type
/// of the result.
pub(super) fn scan(
    op: ScanOp,
    ty: DType,
    result: DType,
    a: &Data,
    axis: usize,
    inner: usize,
) -> Data {
    match (op, a) {
        (ScanOp::Sum, Data::Float(a)) => round_once(result, running(a, axis, inner, |x, y| x + y)),
        (ScanOp::Sum, Data::Int(a)) => Data::Int(running(a, axis, inner, |x, y| {
            floats::wrap(ty, x.wrapping_add(y))
        })),
        (ScanOp::Sum, Data::Bool(a)) => {
            let ones: Vec<i64> = a.iter().map(|&x| x.into()).collect();
            Data::Int(running(&ones, axis, inner, |x, y| x + y))
        }
        (ScanOp::Max, Data::Float(a)) => Data::Float(running(a, axis, inner, max)),
        (ScanOp::Max, Data::Int(a)) => Data::Int(running(a, axis, inner, |x, y| {
            if key(ty, y) > key(ty, x) { y } else { x }
        })),
        (ScanOp::Max, Data::Bool(_)) => mismatch(),
    }
}

fn running<T: Copy>(a: &[T], axis: usize, inner: usize, f: impl Fn(T, T) -> T) -> Vec<T> {
    let mut out = a.to_vec();
    for slab in out.chunks_exact_mut(axis * inner) {
        for i in inner..slab.len() {
            slab[i] = f(slab[i - inner], slab[i]);
        }
    }
    out
}

/// How two keys of a sort stand to each other, NaN behind all numbers whichever way.
fn order(ty: DType, keys: &Data, i: usize, j: usize, descending: bool) -> Ordering {
    let turn = |o: Ordering| if descending { o.reverse() } else { o };
    match keys {
        Data::Float(v) => match (v[i].is_nan(), v[j].is_nan()) {
            (false, false) => turn(v[i].partial_cmp(&v[j]).unwrap_or(Ordering::Equal)),
            (a, b) => a.cmp(&b),
        },
        Data::Int(v) => turn(key(ty, v[i]).cmp(&key(ty, v[j]))),
        Data::Bool(_) => mismatch(),
    }
}

/// Where each element of the sorted rows of `n` stands in `keys`.
pub(super) fn sorted_places(ty: DType, keys: &Data, n: usize, descending: bool) -> Vec<usize> {
    let mut places: Vec<usize> = (0..keys.len()).collect();
    for row in places.chunks_exact_mut(n) {
        row.sort_by(|&i, &j| order(ty, keys, i, j, descending));
    }
    places
}

/// The `k` largest of each row of `n`: values, and their places in the row.
pub(super) fn topk(ty: DType, a: &Data, n: usize, k: usize) -> (Data, Data) {
    let all = sorted_places(ty, a, n, true);
    let places: Vec<usize> = all
        .chunks_exact(n)
        .flat_map(|row| &row[..k])
        .copied()
        .collect();
    let numbers = places.iter().map(|&p| (p % n) as i64).collect();
    (a.pick(&places), Data::Int(numbers))
}

/// How many elements are each of 0..n.
pub(super) fn histogram(ty: DType, a: &Data, n: usize) -> Data {
    let Data::Int(a) = a else { mismatch() };
    let mut counts = vec![0i64; n];
    for &x in a {
        // As a number, `u64` above its half is far outside.
        if (ty.is_signed() || x >= 0) && (0..n as i64).contains(&x) {
            counts[x as usize] += 1;
        }
    }
    Data::Int(counts)
}

/// How many equal elements stand before each one.
pub(super) fn occurrence(a: &Data) -> Data {
    let Data::Int(a) = a else { mismatch() };
    let mut seen: HashMap<i64, i64> = HashMap::new();
    let count = |x: &i64| {
        let n = seen.entry(*x).or_insert(0);
        *n += 1;
        *n - 1
    };
    Data::Int(a.iter().map(count).collect())
}

/// Element `[…, index[…, j, …], …]` of `x`, whose axis is `extent` long.
pub(super) fn take(x: &Data, index: &Data, shape: &[u32], axis: usize, extent: u32) -> Data {
    let Data::Int(index) = index else { mismatch() };
    let inner: usize = shape[axis + 1..].iter().map(|&d| d as usize).product();
    let (length, extent) = (shape[axis] as usize, extent as usize);
    let places = index.iter().enumerate().map(|(at, &i)| {
        let (row, column) = (at / inner, at % inner);
        let i = usize::try_from(i).ok().filter(|&i| i < extent)?;
        Some((row / length * extent + i) * inner + column)
    });
    match x {
        Data::Float(v) => Data::Float(places.map(|p| p.map_or(0.0, |p| v[p])).collect()),
        Data::Int(v) => Data::Int(places.map(|p| p.map_or(0, |p| v[p])).collect()),
        Data::Bool(v) => Data::Bool(places.map(|p| p.is_some_and(|p| v[p])).collect()),
    }
}

/// `b` behind `a` along `axis`.
pub(super) fn concat(a: &Data, b: &Data, shapes: [&[u32]; 2], axis: usize) -> Data {
    fn rows<T: Copy>(a: &[T], b: &[T], lengths: [usize; 2]) -> Vec<T> {
        let pairs = a.chunks_exact(lengths[0]).zip(b.chunks_exact(lengths[1]));
        pairs
            .flat_map(|(x, y)| x.iter().chain(y))
            .copied()
            .collect()
    }
    let lengths = shapes.map(|s| s[axis] as usize * row_major(s)[axis]);
    match (a, b) {
        (Data::Float(a), Data::Float(b)) => Data::Float(rows(a, b, lengths)),
        (Data::Int(a), Data::Int(b)) => Data::Int(rows(a, b, lengths)),
        (Data::Bool(a), Data::Bool(b)) => Data::Bool(rows(a, b, lengths)),
        _ => mismatch(),
    }
}
