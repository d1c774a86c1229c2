//! What a view's declaration promises of its elements, `sorted` and `distinct`, checked on bytes that are here.
//!
//! Invariants: no check needs a device; none reads a byte outside of what it was given; what is reported is the first
//! place at fault, whatever the strides.

use std::collections::HashMap;

use crate::{DType, ViewFacts};

/// A tensor's elements in host memory.
#[derive(Clone, Copy, Debug)]
pub struct HostView<'a> {
    dtype: DType,
    shape: &'a [i64],
    strides: &'a [i64],
    bytes: &'a [u8],
    origin: usize,
}

/// The first place at which elements are not as they were promised to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokenFact {
    #[error("declared `sorted`, but element {index} is {value}, and the one before it is {before}")]
    Sorted {
        index: i64,
        value: i128,
        before: i128,
    },
    #[error("declared `distinct`, but row {index} is equal to row {first}")]
    Distinct { index: i64, first: i64 },
}

/// The bytes that a tensor's elements lie in, from the lowest to past the highest, relative to element 0; (0, 0) for an
/// empty one. `None` if they reach further than an address can.
pub fn byte_span(dtype: DType, shape: &[i64], strides: &[i64]) -> Option<(i64, i64)> {
    if shape.iter().any(|&extent| extent <= 0) {
        return Some((0, 0));
    }
    let bits = i128::from(dtype.bits());
    let (mut low, mut high) = (0i128, bits);
    for (&extent, &stride) in shape.iter().zip(strides) {
        let last = (i128::from(extent) - 1).checked_mul(i128::from(stride))?;
        let span = last.checked_mul(bits)?;
        let end = if span < 0 { &mut low } else { &mut high };
        *end = end.checked_add(span)?;
    }
    let low = i64::try_from(low.div_euclid(8)).ok()?;
    let high = i64::try_from((high + 7).div_euclid(8)).ok()?;
    Some((low, high))
}

impl<'a> HostView<'a> {
    /// `bytes` hold all elements, element 0 at byte `origin`; strides are in elements. `None` if they do not.
    pub fn new(
        dtype: DType,
        shape: &'a [i64],
        strides: &'a [i64],
        bytes: &'a [u8],
        origin: usize,
    ) -> Option<HostView<'a>> {
        let (low, high) = byte_span(dtype, shape, strides)?;
        let start = i64::try_from(origin).ok()?;
        let end = usize::try_from(start.checked_add(high)?).ok()?;
        let fits =
            start.checked_add(low)? >= 0 && end <= bytes.len() && shape.len() == strides.len();
        fits.then_some(HostView {
            dtype,
            shape,
            strides,
            bytes,
            origin,
        })
    }

    /// The integer that lies `offset` elements from element 0. The offset is that of an element.
    fn value(&self, offset: i128) -> i128 {
        let bits = self.dtype.bits();
        let at = self.origin as i128 * 8 + offset * i128::from(bits);
        let (byte, shift) = ((at / 8) as usize, (at % 8) as u32);
        let count = bits.div_ceil(8) as usize;
        let raw = self.bytes[byte..byte + count]
            .iter()
            .rev()
            .fold(0u128, |raw, &b| raw << 8 | u128::from(b));
        // To the top and back: what is left has the type's sign, or none.
        let top = (raw >> shift) << (128 - bits);
        match self.dtype.is_signed() {
            true => (top as i128) >> (128 - bits),
            false => (top >> (128 - bits)) as i128,
        }
    }

    /// The elements of row `index` of the first dimension, in row-major order.
    fn row(&self, index: i64, values: &mut Vec<i128>) {
        values.clear();
        let (shape, strides) = (&self.shape[1..], &self.strides[1..]);
        if shape.iter().any(|&extent| extent <= 0) {
            return;
        }
        let mut at = vec![0i64; shape.len()];
        let mut offset = i128::from(index) * i128::from(self.strides[0]);
        loop {
            values.push(self.value(offset));
            let mut dim = shape.len();
            loop {
                let Some(inner) = dim.checked_sub(1) else {
                    return;
                };
                dim = inner;
                at[dim] += 1;
                offset += i128::from(strides[dim]);
                if at[dim] < shape[dim] {
                    break;
                }
                offset -= i128::from(strides[dim]) * i128::from(shape[dim]);
                at[dim] = 0;
            }
        }
    }
}

impl ViewFacts {
    /// Whether they promise something of the elements, not only of where they lie.
    pub fn of_elements(&self) -> bool {
        self.sorted || self.distinct
    }

    /// The first place where the elements are not as promised: `sorted`, of all elements in row-major order, before `distinct`, of
    /// the rows of the first dimension. Only integers have such facts.
    pub fn broken(&self, view: &HostView<'_>) -> Option<BrokenFact> {
        if !view.dtype.is_int() {
            return None;
        }
        let sorted = self.sorted.then(|| unsorted(view)).flatten();
        sorted.or_else(|| self.distinct.then(|| repeated(view)).flatten())
    }
}

fn unsorted(view: &HostView<'_>) -> Option<BrokenFact> {
    let (&extent, &stride) = (view.shape.first()?, view.strides.first()?);
    // One row seen many times: the third says nothing that the second does not.
    let rows = if stride == 0 { extent.min(2) } else { extent };
    let mut row = Vec::new();
    let (mut last, mut index) = (None, 0i64);
    for number in 0..rows {
        view.row(number, &mut row);
        for &value in &row {
            if let Some(before) = last.filter(|&before| value < before) {
                return Some(BrokenFact::Sorted {
                    index,
                    value,
                    before,
                });
            }
            last = Some(value);
            index += 1;
        }
    }
    None
}

fn repeated(view: &HostView<'_>) -> Option<BrokenFact> {
    let rows = *view.shape.first()?;
    let mut seen: HashMap<Vec<i128>, i64> = HashMap::new();
    let mut row = Vec::new();
    for index in 0..rows {
        view.row(index, &mut row);
        if let Some(&first) = seen.get(&row) {
            return Some(BrokenFact::Distinct { index, first });
        }
        seen.insert(row.clone(), index);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const SORTED: ViewFacts = ViewFacts {
        sorted: true,
        distinct: false,
        align: None,
    };
    const DISTINCT: ViewFacts = ViewFacts {
        sorted: false,
        distinct: true,
        align: None,
    };
    const INTEGERS: [DType; 11] = [
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::U1,
        DType::U4,
        DType::I4,
    ];

    /// Elements one after another, packed ones from the low bit up.
    fn stored(dtype: DType, values: &[i128]) -> Vec<u8> {
        let bits = dtype.bits() as usize;
        let mut bytes = vec![0u8; (values.len() * bits).div_ceil(8)];
        for (i, value) in values.iter().enumerate() {
            for bit in 0..bits {
                let at = i * bits + bit;
                bytes[at / 8] |= ((value >> bit & 1) as u8) << (at % 8);
            }
        }
        bytes
    }

    fn broken(
        facts: ViewFacts,
        dtype: DType,
        shape: &[i64],
        strides: &[i64],
        values: &[i128],
        first: usize,
    ) -> Option<BrokenFact> {
        let bytes = stored(dtype, values);
        let origin = first * dtype.bits() as usize / 8;
        facts.broken(&HostView::new(dtype, shape, strides, &bytes, origin).unwrap())
    }

    /// The least and the greatest value.
    fn limits(dtype: DType) -> (i128, i128) {
        let bits = dtype.bits();
        match dtype.is_signed() {
            true => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
            false => (0, (1 << bits) - 1),
        }
    }

    #[test]
    fn every_integer_type_is_ordered_by_value() {
        let listed = DType::ALL.into_iter().filter(|t| t.is_int());
        assert_eq!(listed.count(), INTEGERS.len());
        for dtype in INTEGERS {
            let (least, most) = limits(dtype);
            let rising = [least, least, most - 1, most, most];
            // One bit has two values.
            let rising = rising.map(|v| v.max(least));
            assert_eq!(broken(SORTED, dtype, &[5], &[1], &rising, 0), None);
            let falling = [least, most, most, most - 1, least];
            let found = broken(SORTED, dtype, &[5], &[1], &falling, 0);
            let wanted = BrokenFact::Sorted {
                index: 3,
                value: most - 1,
                before: most,
            };
            assert_eq!(found, Some(wanted), "{dtype}");
            let found = broken(DISTINCT, dtype, &[3], &[1], &[most, least, most], 0);
            let wanted = BrokenFact::Distinct { index: 2, first: 0 };
            assert_eq!(found, Some(wanted), "{dtype}");
            assert_eq!(broken(DISTINCT, dtype, &[2], &[1], &[most, least], 0), None);
        }
    }

    #[test]
    fn close_numbers_of_64_bits_differ() {
        let values = [(1 << 62) + 1, 1 << 62];
        let found = broken(SORTED, DType::I64, &[2], &[1], &values, 0);
        assert!(found.is_some());
        assert_eq!(broken(DISTINCT, DType::U64, &[2], &[1], &values, 0), None);
    }

    #[test]
    fn what_lies_between_elements_has_no_say() {
        let values = [9, 1, 9, 2, 0, 3, 7];
        let from_one = |strides| broken(SORTED, DType::I32, &[3], strides, &values, 1);
        assert_eq!(from_one(&[2]), None);
        // Backwards: 3, 2, 1.
        let found = broken(SORTED, DType::I32, &[3], &[-2], &values, 5);
        let wanted = BrokenFact::Sorted {
            index: 1,
            value: 2,
            before: 3,
        };
        assert_eq!(found, Some(wanted));
        // One element seen again and again, as often as no loop could.
        let found = broken(SORTED, DType::I32, &[1 << 48], &[0], &[4], 0);
        assert_eq!(found, None);
        let found = broken(DISTINCT, DType::I32, &[1 << 48], &[0], &[4], 0);
        let wanted = BrokenFact::Distinct { index: 1, first: 0 };
        assert_eq!(found, Some(wanted));
    }

    #[test]
    fn more_dimensions_are_sorted_in_row_major_order() {
        let values = [1, 2, 0, 2, 3, 0, 1, 5, 0];
        let rows = |shape: &[i64]| broken(SORTED, DType::I32, shape, &[3, 1], &values, 0);
        assert_eq!(rows(&[2, 2]), None);
        let wanted = BrokenFact::Sorted {
            index: 4,
            value: 1,
            before: 3,
        };
        assert_eq!(rows(&[3, 2]), Some(wanted));
    }

    #[test]
    fn rows_are_compared_whole() {
        // Rows of 3 with a gap of 2: the first and the third agree, but for the gap.
        let values = [1, 2, 3, 0, 0, 1, 2, 4, 0, 0, 1, 2, 3, 8, 9];
        let rows = |shape: &[i64]| broken(DISTINCT, DType::U16, shape, &[5, 1], &values, 0);
        assert_eq!(rows(&[2, 3]), None);
        assert_eq!(
            rows(&[3, 3]),
            Some(BrokenFact::Distinct { index: 2, first: 0 })
        );
        // Rows of a transposed matrix, of three dimensions, and of packed elements.
        let found = broken(
            DISTINCT,
            DType::I8,
            &[3, 2],
            &[1, 3],
            &[1, 2, 1, 5, 6, 5],
            0,
        );
        assert_eq!(found, Some(BrokenFact::Distinct { index: 2, first: 0 }));
        let cube = [0, 1, 2, 3, 0, 1, 2, 4];
        let found = broken(DISTINCT, DType::I64, &[2, 2, 2], &[4, 2, 1], &cube, 0);
        assert_eq!(found, None);
        let found = broken(DISTINCT, DType::U4, &[2, 3], &[4, 1], &cube, 0);
        assert_eq!(found, Some(BrokenFact::Distinct { index: 1, first: 0 }));
    }

    #[test]
    fn nothing_is_sorted_and_distinct() {
        for facts in [SORTED, DISTINCT] {
            assert_eq!(broken(facts, DType::I32, &[0], &[1], &[], 0), None);
            assert_eq!(broken(facts, DType::I32, &[1], &[7], &[3], 0), None);
            assert_eq!(broken(facts, DType::I32, &[0, 4], &[4, 1], &[], 0), None);
            assert_eq!(broken(facts, DType::I32, &[], &[], &[3], 0), None);
        }
        assert_eq!(broken(SORTED, DType::I32, &[5, 0], &[1, 1], &[], 0), None);
        // Rows of nothing are equal.
        let found = broken(DISTINCT, DType::I32, &[2, 0], &[0, 1], &[], 0);
        assert_eq!(found, Some(BrokenFact::Distinct { index: 1, first: 0 }));
    }

    #[test]
    fn elements_outside_the_bytes_are_refused() {
        let view = |shape, strides, origin| {
            HostView::new(DType::I32, shape, strides, &[0; 12], origin).is_some()
        };
        assert!(view(&[3], &[1], 0));
        assert!(!view(&[4], &[1], 0));
        assert!(!view(&[3], &[1], 4));
        assert!(view(&[3], &[-1], 8));
        assert!(!view(&[3], &[-1], 4));
        assert!(!view(&[1], &[1, 1], 0));
        assert!(!view(&[i64::MAX], &[i64::MAX], 0));
        assert_eq!(byte_span(DType::U4, &[3, 5], &[-8, 1]), Some((-8, 3)));
    }
}
