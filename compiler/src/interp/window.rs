//! Which elements of a tensor a slice of a view reaches, and where they lie.
//!
//! Invariants: what a window names lies within the tensor, whatever the indices are; it names an element of the tile at most
//! once.

use tesserine_set::DType;

use super::memory::Tensor;
use crate::ir::tile::Index;

/// What one index of an access is: a scalar, or the elements of an index tile.
pub(super) enum Start<'a> {
    At(i64),
    Tile(&'a [i64]),
}

/// The memory of a tensor, seen with elements of some type: only the last dimension changes.
struct Seen {
    shape: Vec<usize>,
    /// In elements.
    strides: Vec<usize>,
    /// To number the elements of the tensor, row-major.
    logical: Vec<usize>,
    /// Elements of the tensor that one element covers.
    span: usize,
    /// Elements that share one element of the tensor.
    share: usize,
}

/// The last dimension's elements do not lie side by side, or a row does not hold a whole number of those seen.
pub(super) struct Misfit;

impl Seen {
    fn new(tensor: &Tensor, dtype: DType) -> Result<Seen, Misfit> {
        let mut logical = vec![1; tensor.shape.len()];
        for d in (1..logical.len()).rev() {
            logical[d - 1] = logical[d] * tensor.shape[d];
        }
        let mut seen = Seen {
            shape: tensor.shape.clone(),
            strides: tensor.strides.clone(),
            logical,
            span: 1,
            share: 1,
        };
        let (from, to) = (tensor.dtype.bits() as usize, dtype.bits() as usize);
        let Some(last) = seen.shape.len().checked_sub(1) else {
            return Ok(seen);
        };
        if from == to {
            return Ok(seen);
        }
        if seen.shape[last] > 1 && seen.strides[last] != 1 {
            return Err(Misfit);
        }
        seen.strides[last] = 1;
        seen.shape[last] = seen.shape[last] * from / to;
        for d in 0..last {
            let bits = seen.strides[d] * from;
            if seen.shape[d] > 1 && !bits.is_multiple_of(to) {
                return Err(Misfit);
            }
            seen.strides[d] = bits / to;
        }
        if from > to {
            seen.share = from / to;
            seen.logical[..last]
                .iter_mut()
                .for_each(|l| *l *= from / to);
        } else {
            seen.span = to / from;
            seen.logical[last] = to / from;
        }
        Ok(seen)
    }
}

/// One axis of the tile.
#[derive(Debug)]
enum Axis {
    /// Element `k` of `lo..hi` is `k - lo` strides behind the first.
    Line {
        len: usize,
        lo: usize,
        hi: usize,
        stride: usize,
        logical: usize,
    },
    /// Of each element how far it is in memory and in number, if it exists.
    Table(Vec<Option<(usize, usize)>>),
}

impl Axis {
    fn len(&self) -> usize {
        match self {
            Axis::Line { len, .. } => *len,
            Axis::Table(places) => places.len(),
        }
    }

    /// Of each element that exists: its place along the axis, in memory and in number.
    fn places(&self) -> Vec<[usize; 3]> {
        match self {
            Axis::Line {
                lo,
                hi,
                stride,
                logical,
                ..
            } => (*lo..*hi)
                .map(|k| [k, (k - lo) * stride, (k - lo) * logical])
                .collect(),
            Axis::Table(places) => places
                .iter()
                .enumerate()
                .filter_map(|(k, place)| place.map(|(at, number)| [k, at, number]))
                .collect(),
        }
    }
}

/// Elements along the last axis that lie at equal distances.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// The first one's place in the tile.
    pub tile: usize,
    /// The first one's place in memory, in elements as the window sees them.
    pub at: usize,
    pub stride: usize,
    pub count: usize,
    number: usize,
    logical: usize,
}

/// A slice of a view: which elements of it exist, and where.
#[derive(Debug)]
pub(super) struct Window {
    /// The elements that it sees.
    pub dtype: DType,
    axes: Vec<Axis>,
    base: usize,
    base_number: usize,
    span: usize,
    share: usize,
    /// Nothing of the slice exists.
    empty: bool,
}

impl Window {
    /// `operands`: those of `indices`.
    pub fn new<'o>(
        tensor: &Tensor,
        dtype: DType,
        indices: &[Index],
        operands: impl IntoIterator<Item = Start<'o>>,
    ) -> Result<Window, Misfit> {
        let seen = Seen::new(tensor, dtype)?;
        let mut operands = operands.into_iter();
        let mut window = Window {
            dtype,
            axes: Vec::new(),
            base: 0,
            base_number: 0,
            span: seen.span,
            share: seen.share,
            empty: false,
        };
        // Where the table is to which joined index tiles add.
        let mut table = 0;
        for (d, &index) in indices.iter().enumerate() {
            let mut next = || match operands.next() {
                Some(Start::At(value)) => i128::from(value),
                _ => 0,
            };
            let (stride, logical) = (seen.strides[d], seen.logical[d]);
            let extent = seen.shape[d] as i128;
            let mut lowest = 0;
            let (start, len, limit) = match index {
                Index::Scalar => (next(), 1, extent),
                Index::Whole { len } => (0, len, extent),
                Index::Range { len, from, until } => {
                    let start = next();
                    if from {
                        lowest = lowest.max(next());
                    }
                    let limit = if until { extent.min(next()) } else { extent };
                    (start, len, limit)
                }
                Index::Gather { len, joined } => {
                    let Some(Start::Tile(elements)) = operands.next() else {
                        window.empty = true;
                        continue;
                    };
                    let place = |&i: &i64| {
                        usize::try_from(i)
                            .ok()
                            .filter(|&i| i < seen.shape[d])
                            .map(|i| (i * stride, i * logical))
                    };
                    if joined && let Some(Axis::Table(places)) = window.axes.get_mut(table) {
                        for (known, i) in places.iter_mut().zip(elements) {
                            *known = known.zip(place(i)).map(|((a, m), (b, n))| (a + b, m + n));
                        }
                    } else {
                        table = window.axes.len();
                        let places = elements.iter().take(len as usize).map(place).collect();
                        window.axes.push(Axis::Table(places));
                    }
                    continue;
                }
            };
            let len = i128::from(len);
            let lo = (lowest - start).clamp(0, len);
            let hi = (limit - start).clamp(lo, len);
            if lo == hi {
                window.empty = true;
            } else {
                let first = (start + lo) as usize;
                window.base += first * stride;
                window.base_number += first * logical;
            }
            if index.extent().is_some() {
                window.axes.push(Axis::Line {
                    len: len as usize,
                    lo: lo as usize,
                    hi: hi as usize,
                    stride,
                    logical,
                });
            }
        }
        Ok(window)
    }

    /// Elements of the tile.
    pub fn elements(&self) -> usize {
        self.axes.iter().map(Axis::len).product()
    }

    /// Calls `f` for each run of elements that exist.
    pub fn runs(&self, mut f: impl FnMut(Run)) {
        if self.empty {
            return;
        }
        let scalar = Axis::Line {
            len: 1,
            lo: 0,
            hi: 1,
            stride: 1,
            logical: 1,
        };
        let (last, outer) = self.axes.split_last().unwrap_or((&scalar, &[]));
        let mut step = last.len();
        let mut places: Vec<Vec<[usize; 3]>> = Vec::with_capacity(outer.len());
        for axis in outer.iter().rev() {
            let mut own = axis.places();
            own.iter_mut().for_each(|place| place[0] *= step);
            step *= axis.len();
            places.push(own);
        }
        // The fastest axis stands first.
        let rows: usize = places.iter().map(Vec::len).product();
        let last = match last {
            Axis::Line {
                lo,
                hi,
                stride,
                logical,
                ..
            } => vec![([*lo, 0, 0], *stride, *logical, hi - lo)],
            table => {
                let places = table.places();
                places.into_iter().map(|p| (p, 1, 1, 1)).collect()
            }
        };
        let mut counters = vec![0usize; places.len()];
        for _ in 0..rows {
            let mut first = [0, self.base, self.base_number];
            for (axis, &k) in places.iter().zip(&counters) {
                (0..3).for_each(|i| first[i] += axis[k][i]);
            }
            for &(place, stride, logical, count) in &last {
                f(Run {
                    tile: first[0] + place[0],
                    at: first[1] + place[1],
                    number: first[2] + place[2],
                    stride,
                    logical,
                    count,
                });
            }
            for (counter, axis) in counters.iter_mut().zip(&places) {
                *counter += 1;
                if *counter < axis.len() {
                    break;
                }
                *counter = 0;
            }
        }
    }

    /// The numbers in the parameter, row-major, of the elements of a run.
    pub fn elements_of(&self, run: Run, mut f: impl FnMut(usize)) {
        let numbers = (0..run.count).map(|i| run.number + i * run.logical);
        match (self.span, self.share) {
            (1, 1) => numbers.for_each(f),
            (span, 1) => numbers.for_each(|n| (n..n + span).for_each(&mut f)),
            (_, share) => numbers.for_each(|n| f(n / share)),
        }
    }

    /// An element of the parameter that the window names twice. Only index tiles can.
    pub fn twice(&self) -> Option<usize> {
        if !self.axes.iter().any(|a| matches!(a, Axis::Table(_))) {
            return None;
        }
        let mut numbers = Vec::with_capacity(self.elements());
        self.runs(|run| {
            numbers.extend((0..run.count).map(|i| run.number + i * run.logical));
        });
        numbers.sort_unstable();
        let pair = numbers.windows(2).find(|w| w[0] == w[1])?;
        Some(pair[0] / self.share)
    }
}
