//! Which bytes of global and shared memory a tiled bulk tensor copy pairs (PTX ISA §5.5.3, Tiled Mode).

use super::{DataType, OobFill, RANK_LIMIT, TensorMap, swizzle};

/// A run of bytes of a box that lie together in both memories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Address in shared memory, swizzled.
    pub shared: u64,
    /// Address in global memory; none where the tensor has no such elements: loads fill the bytes, stores and reductions drop them.
    pub global: Option<u64>,
    pub bytes: u32,
}

/// Coordinates that the map cannot take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CoordinateError {
    #[error("{given} coordinates for a tensor map of {rank} dimensions")]
    Rank { given: usize, rank: usize },
    #[error("coordinate {0} of the innermost dimension starts within a byte")]
    Packed(i32),
}

impl TensorMap {
    /// Calls `visit` for each piece of the box whose first element has these coordinates (innermost first, negative ones too), with its bytes
    /// from `shared` on: rows in order, and bytes of a row in order before the swizzle.
    ///
    /// Rows follow each other without gaps where there is no swizzle; else each takes the whole span of the swizzle (CUDA C++ Programming
    /// Guide, "TMA Swizzle": shared memory is allocated for the full swizzle width), on an H200 too.
    pub fn pieces<E: From<CoordinateError>>(
        &self,
        coordinates: &[i32],
        shared: u64,
        mut visit: impl FnMut(Piece) -> Result<(), E>,
    ) -> Result<(), E> {
        if coordinates.len() != self.rank {
            let (given, rank) = (coordinates.len(), self.rank);
            return Err(CoordinateError::Rank { given, rank }.into());
        }
        let bits = i64::from(self.data_type.bits());
        let first_bit = i64::from(coordinates[0]) * bits;
        if first_bit % 8 != 0 {
            return Err(CoordinateError::Packed(coordinates[0]).into());
        }
        let row_bytes = self.row_bytes();
        // The part of each row that the tensor has, in bytes from the row's first.
        let first = first_bit / 8;
        let inner_bytes = (self.global_dim[0] as i64) * bits / 8;
        let clamp = |at: i64| at.clamp(0, i64::from(row_bytes)) as u32;
        let (from, to) = (clamp(-first), clamp(inner_bytes - first));

        let mut index = [0_u32; RANK_LIMIT];
        let mut row_at = shared;
        for _ in 0..self.rows() {
            let mut row_global = Some(self.global_address);
            for d in 1..self.rank {
                let at = i64::from(coordinates[d])
                    + i64::from(index[d]) * i64::from(self.element_strides[d]);
                let inside = u64::try_from(at).ok().filter(|&at| at < self.global_dim[d]);
                row_global = row_global
                    .zip(inside)
                    .map(|(base, at)| base + at * self.global_strides[d - 1]);
            }
            let parts = match row_global {
                Some(_) if from < to => {
                    [(0, from, false), (from, to, true), (to, row_bytes, false)]
                }
                _ => [(0, row_bytes, false), (0, 0, false), (0, 0, false)],
            };
            for (start, end, inside) in parts {
                let global = row_global.filter(|_| inside);
                let mut at = start;
                while at < end {
                    let address = row_at + u64::from(at);
                    let bytes = match self.swizzle.unit() {
                        None => end - at,
                        Some(unit) => (unit - (address % u64::from(unit)) as u32).min(end - at),
                    };
                    visit(Piece {
                        shared: swizzle(self.swizzle, address),
                        global: global.map(|g| g.wrapping_add_signed(first + i64::from(at))),
                        bytes,
                    })?;
                    at += bytes;
                }
            }
            row_at += u64::from(self.swizzle.span().unwrap_or(row_bytes));
            for (d, count) in index.iter_mut().enumerate().take(self.rank).skip(1) {
                *count += 1;
                if *count < self.elements(d) {
                    break;
                }
                *count = 0;
            }
        }
        Ok(())
    }

    /// The map as copies to global memory see it: an H200 drops what lies outside the innermost dimension in pieces of 16 bytes, so that up to 15
    /// bytes behind a row are written. No document says so; who stores a part of a wider row needs extents that are multiples of 16 bytes.
    pub fn as_stored(&self) -> TensorMap {
        let elements = u64::from(128 / self.data_type.bits());
        let mut map = *self;
        map.global_dim[0] = map.global_dim[0].next_multiple_of(elements);
        map
    }

    /// Bytes of shared memory from the first of a box to behind its last.
    pub fn shared_bytes(&self) -> u32 {
        let pitch = self.swizzle.span().unwrap_or(self.row_bytes());
        pitch * self.rows()
    }

    /// What a load writes into bytes of the box that the tensor has not, which start at a multiple of the element.
    ///
    /// With NaNs: 0x7ff7 in each 16 bits whatever the type, as an H200 has it; no document says which.
    pub fn fill(&self, bytes: &mut [u8]) {
        if self.oob_fill == OobFill::Zero {
            bytes.fill(0);
            return;
        }
        for (to, from) in bytes.iter_mut().zip([0xf7, 0x7f].into_iter().cycle()) {
            *to = from;
        }
    }

    /// What a load makes of elements that the tensor has, which start at a multiple of the element.
    ///
    /// Of `Tfloat32` the 13 lowest bits are rounded away, to nearest even, and a NaN becomes 0x7fffe000; subnormal numbers stay, with
    /// `Tfloat32Ftz` and `Float32Ftz` too. So an H200 does it. Stores and reductions take the bits as they are.
    pub fn convert(&self, bytes: &mut [u8]) {
        if !matches!(self.data_type, DataType::Tfloat32 | DataType::Tfloat32Ftz) {
            return;
        }
        let (words, _) = bytes.as_chunks_mut::<4>();
        for word in words {
            let bits = u32::from_le_bytes(*word);
            let nan = bits & 0x7fff_ffff > 0x7f80_0000;
            let rounded = bits.wrapping_add(0xfff + (bits >> 13 & 1)) & !0x1fff;
            *word = if nan { 0x7fff_e000 } else { rounded }.to_le_bytes();
        }
    }
}
