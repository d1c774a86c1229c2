//! Tensors in host memory, with guard zones.
//!
//! A tensor lies in a buffer of its own, with `GUARD` elements before and after it. Whatever of the buffer is no element
//! of the tensor (guards, and gaps between rows) holds the canary, which is a NaN in every type used here, and must hold
//! it still after a launch.

use half::{bf16, f16};
use tesserine_set::DType;

/// Elements before and after the tensor. A multiple of 16 bytes in every type, so that it leaves alignment alone.
const GUARD: usize = 512;

/// The canary, byte by byte: NaN in f16, bf16 and f32.
const CANARY: [u8; 2] = [0xa5, 0x7f];

/// A tensor of rank 1 or 2 whose last stride is 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub dtype: DType,
    pub shape: Vec<usize>,
    /// In elements.
    pub strides: Vec<usize>,
    /// Elements from the buffer's start to the tensor's first.
    pub offset: usize,
    /// The whole buffer, guards included.
    pub bytes: Vec<u8>,
}

impl Tensor {
    /// All canary. `row` is the stride of dimension 0 of a matrix; `shift` moves the base by that many elements.
    pub fn new(dtype: DType, shape: &[usize], row: usize, shift: usize) -> Tensor {
        let strides = match shape.len() {
            1 => vec![1],
            _ => vec![row, 1],
        };
        let reach = match *shape {
            [n] => n,
            [m, n] => m.saturating_sub(1) * row + n,
            _ => panic!("tensors of a case have rank 1 or 2"),
        };
        let offset = GUARD + shift;
        let elements = offset + reach + GUARD;
        let bytes = elements * size(dtype);
        Tensor {
            dtype,
            shape: shape.to_vec(),
            strides,
            offset,
            bytes: CANARY.repeat(bytes / 2),
        }
    }

    /// Bytes of one element.
    pub fn size(&self) -> usize {
        size(self.dtype)
    }

    /// Rows and columns; a vector is one row.
    pub fn rows(&self) -> (usize, usize) {
        match self.shape[..] {
            [n] => (1, n),
            [m, n] => (m, n),
            _ => unreachable!("rank is 1 or 2"),
        }
    }

    fn row_bytes(&self, row: usize) -> std::ops::Range<usize> {
        let start = (self.offset + row * self.strides[0]) * self.size();
        start..start + self.rows().1 * self.size()
    }

    /// The bytes of one row's elements.
    pub fn row(&self, row: usize) -> &[u8] {
        &self.bytes[self.row_bytes(row)]
    }

    /// Fills every element, row by row, with what `next` gives, rounded to the type.
    pub fn fill(&mut self, mut next: impl FnMut(usize, usize) -> f64) {
        let (rows, cols) = self.rows();
        for i in 0..rows {
            let range = self.row_bytes(i);
            let size = self.size();
            for (j, slot) in self.bytes[range].chunks_exact_mut(size).enumerate() {
                encode(self.dtype, next(i, j), slot);
            }
            debug_assert!(cols * size == self.row(i).len());
        }
    }

    /// Every element's value, row by row.
    pub fn values(&self) -> Vec<f64> {
        let (rows, cols) = self.rows();
        let mut out = Vec::with_capacity(rows * cols);
        for i in 0..rows {
            out.extend(
                self.row(i)
                    .chunks_exact(self.size())
                    .map(|b| decode(self.dtype, b)),
            );
        }
        out
    }

    /// Whether element (i, j) still holds the canary's bits.
    pub fn is_canary(&self, i: usize, j: usize) -> bool {
        let size = self.size();
        let bytes = &self.row(i)[j * size..(j + 1) * size];
        bytes.chunks_exact(2).all(|pair| pair == CANARY)
    }

    /// The first byte that is no element and has changed, as its distance in elements from the tensor's first.
    pub fn stray(&self, before: &Tensor) -> Option<i64> {
        let end = self.bytes.len();
        let rows = (0..self.rows().0).map(|i| self.row_bytes(i));
        let mut at = 0;
        for range in rows.chain(std::iter::once(end..end)) {
            if self.bytes[at..range.start] != before.bytes[at..range.start] {
                let byte = (at..range.start)
                    .find(|&b| self.bytes[b] != before.bytes[b])
                    .unwrap_or(at);
                return Some((byte / self.size()) as i64 - self.offset as i64);
            }
            at = range.end;
        }
        None
    }
}

fn size(dtype: DType) -> usize {
    (dtype.bits() / 8) as usize
}

/// The value of one element.
pub fn decode(dtype: DType, bytes: &[u8]) -> f64 {
    match (dtype, bytes) {
        (DType::F16, &[a, b]) => f16::from_le_bytes([a, b]).to_f64(),
        (DType::Bf16, &[a, b]) => bf16::from_le_bytes([a, b]).to_f64(),
        (DType::F32, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]) as f64,
        _ => panic!("cases use f16, bf16 and f32 only"),
    }
}

/// Writes the element nearest to `value`.
pub fn encode(dtype: DType, value: f64, slot: &mut [u8]) {
    match dtype {
        DType::F16 => slot.copy_from_slice(&f16::from_f64(value).to_le_bytes()),
        DType::Bf16 => slot.copy_from_slice(&bf16::from_f64(value).to_le_bytes()),
        DType::F32 => slot.copy_from_slice(&(value as f32).to_le_bytes()),
        _ => panic!("cases use f16, bf16 and f32 only"),
    }
}

/// `value` rounded to the nearest element.
pub fn round(dtype: DType, value: f64) -> f64 {
    let mut slot = [0; 4];
    let slot = &mut slot[..size(dtype)];
    encode(dtype, value, slot);
    decode(dtype, slot)
}

/// The largest finite element.
pub fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => f16::MAX.to_f64(),
        DType::Bf16 => bf16::MAX.to_f64(),
        _ => f32::MAX as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canaries_are_nan_in_every_type() {
        for dtype in [DType::F16, DType::Bf16, DType::F32] {
            let t = Tensor::new(dtype, &[2, 3], 5, 1);
            assert!(t.values().iter().all(|v| v.is_nan()), "{dtype}");
            assert!(t.is_canary(1, 2));
        }
    }

    #[test]
    fn a_stray_store_is_found_in_gaps_and_guards_only() {
        let before = Tensor::new(DType::Bf16, &[2, 3], 5, 0);
        let mut after = before.clone();
        after.fill(|i, j| (i * 3 + j) as f64);
        assert_eq!(after.stray(&before), None);
        for element in [-1i64, 3, 4, 8, 20] {
            let mut bad = after.clone();
            bad.bytes[(bad.offset as i64 + element) as usize * 2] ^= 1;
            assert_eq!(bad.stray(&before), Some(element));
        }
    }

    #[test]
    fn elements_round_to_nearest_even() {
        assert_eq!(round(DType::Bf16, 1.0 + 1.0 / 256.0), 1.0);
        assert_eq!(round(DType::Bf16, 1.0 + 3.0 / 256.0), 1.0 + 4.0 / 256.0);
        assert_eq!(round(DType::F16, 65520.0), f64::INFINITY);
        assert_eq!(round(DType::F16, 65519.0), 65504.0);
    }
}
