//! Values while a kernel runs, and moving their elements about.

use std::rc::Rc;

use tesserine_set::DType;

use super::floats;

/// The elements of a tile, row-major, or the one element of a scalar. Which variant is said by the element type: floats
/// are held as the `f64` they equal, integers wrapped in their type (`u64` by its bits).
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    Float(Vec<f64>),
    Int(Vec<i64>),
    Bool(Vec<bool>),
}

/// A value of the IR. Tiles are immutable and shared.
#[derive(Clone, Debug, Default)]
pub(super) enum Value {
    /// Not computed yet.
    #[default]
    Unset,
    Data(Rc<Data>),
    /// Parameter of that index.
    View(usize),
}

/// Runs `$body` with `$v` bound to the elements, whatever they are, and wraps the resulting vector likewise.
macro_rules! same_kind {
    ($data:expr, $v:ident => $body:expr) => {
        match $data {
            Data::Float($v) => Data::Float($body),
            Data::Int($v) => Data::Int($body),
            Data::Bool($v) => Data::Bool($body),
        }
    };
}

impl Data {
    pub fn len(&self) -> usize {
        match self {
            Data::Float(v) => v.len(),
            Data::Int(v) => v.len(),
            Data::Bool(v) => v.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What it takes.
    pub(super) fn bytes(&self) -> u64 {
        self.len() as u64 * if let Data::Bool(_) = self { 1 } else { 8 }
    }

    /// `count` copies of the first element.
    pub(super) fn splat(&self, count: usize) -> Data {
        same_kind!(self, v => vec![v[0]; count])
    }

    /// Element `Σ index[d] · strides[d] + base` for every index in `shape`, row-major.
    pub(super) fn gather(&self, base: usize, shape: &[u32], strides: &[usize]) -> Data {
        same_kind!(self, v => gather(v, base, shape, strides))
    }

    /// The elements at these places.
    pub(super) fn pick(&self, places: &[usize]) -> Data {
        same_kind!(self, v => places.iter().map(|&p| v[p]).collect())
    }

    /// Replaces element `index` by the one of `from`, which is of the same kind.
    pub(super) fn set(&mut self, index: usize, from: &Data) {
        match (self, from) {
            (Data::Float(to), Data::Float(from)) => to[index] = from[0],
            (Data::Int(to), Data::Int(from)) => to[index] = from[0],
            (Data::Bool(to), Data::Bool(from)) => to[index] = from[0],
            _ => {}
        }
    }

    /// One element as a code of `ty`.
    pub(super) fn code(&self, index: usize, ty: DType) -> u64 {
        match self {
            Data::Float(v) => floats::encode(ty, v[index]),
            Data::Int(v) => v[index] as u64,
            Data::Bool(v) => u64::from(v[index]),
        }
    }

    /// As nested lists, row-major, of a tile of `shape` of `ty`; a long list only at its ends.
    pub(super) fn show(&self, ty: DType, shape: &[u32]) -> String {
        /// What is written of one list.
        const ENDS: u32 = 8;
        let Some((&count, inner)) = shape.split_first() else {
            return match self {
                Data::Float(v) => format!("{:?}", v[0]),
                Data::Int(v) if ty == DType::U64 => (v[0] as u64).to_string(),
                Data::Int(v) => v[0].to_string(),
                Data::Bool(v) => v[0].to_string(),
            };
        };
        let width = inner.iter().map(|&d| d as usize).product::<usize>();
        let mut parts = Vec::new();
        for i in 0..count {
            if count > 2 * ENDS && i >= ENDS && i < count - ENDS {
                if i == ENDS {
                    parts.push("…".to_owned());
                }
                continue;
            }
            let from = i as usize * width;
            let places: Vec<usize> = (from..from + width).collect();
            parts.push(self.pick(&places).show(ty, inner));
        }
        format!("[{}]", parts.join(", "))
    }

    /// What codes of `ty` mean.
    pub(super) fn from_codes(ty: DType, codes: impl Iterator<Item = u64>) -> Data {
        if ty.is_float() {
            Data::Float(codes.map(|c| floats::decode(ty, c)).collect())
        } else if ty.is_int() {
            Data::Int(codes.map(|c| floats::wrap(ty, c as i64)).collect())
        } else {
            Data::Bool(codes.map(|c| c != 0).collect())
        }
    }
}

fn gather<T: Copy>(from: &[T], base: usize, shape: &[u32], strides: &[usize]) -> Vec<T> {
    let Some((&last, outer)) = shape.split_last() else {
        return vec![from[base]];
    };
    let last = last as usize;
    let stride = strides[outer.len()];
    let rows: usize = outer.iter().map(|&d| d as usize).product();
    let mut out = Vec::with_capacity(rows * last);
    let mut at = vec![0u32; outer.len()];
    let mut offset = base;
    for _ in 0..rows {
        match stride {
            0 => out.extend(std::iter::repeat_n(from[offset], last)),
            1 => out.extend_from_slice(&from[offset..offset + last]),
            _ => out.extend((0..last).map(|i| from[offset + i * stride])),
        }
        for d in (0..outer.len()).rev() {
            at[d] += 1;
            offset += strides[d];
            if at[d] < outer[d] {
                break;
            }
            offset -= strides[d] * at[d] as usize;
            at[d] = 0;
        }
    }
    out
}

/// Row-major strides of `shape`, in elements.
pub(super) fn row_major(shape: &[u32]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d] * shape[d] as usize;
    }
    strides
}
