//! Where the elements of a tile lie: linear maps from (register, lane, warp) to coordinates.
//!
//! Every basis vector is a coordinate whose entries are XORed together; for the layouts made here their bits are
//! disjoint, so that XOR is also addition. A zero basis vector means that the bit does not matter: the element is
//! replicated. A block of `2^k` elements is repeated in registers along each dimension as often as the shape needs,
//! which need not be a power of two; what lies beyond the shape is padding, never stored and never summed.

mod blocked;
pub mod fragments;
mod linear;
mod ordered;
pub mod scratch;
pub mod swizzle;
mod transform;

use blocked::WarpLayoutBits;
pub use blocked::{blocked, blocked_by, copy_layout, copy_piece, put_layout};
pub use linear::LinearMap;
pub use ordered::{is_in_order, ordered};
pub use transform::{convert_sources, reduce_targets, register_sources, result_layout};

/// A distributed tile's layout. Coordinates have one entry a dimension of `shape`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    pub shape: Vec<u32>,
    /// Basis of the low register bits, within a block.
    pub register: Vec<Vec<u32>>,
    /// Basis of the lane bits: always five.
    pub lane: Vec<Vec<u32>>,
    /// Basis of the warp bits.
    pub warp: Vec<Vec<u32>>,
    /// How many blocks lie along each dimension, all of them in registers.
    pub repeat: Vec<u32>,
}

impl Layout {
    /// The extents of one block: powers of two.
    pub fn block(&self) -> Vec<u32> {
        let mut block = vec![1u32; self.shape.len()];
        for basis in self.register.iter().chain(&self.lane).chain(&self.warp) {
            for (extent, &bit) in block.iter_mut().zip(basis) {
                while *extent <= bit {
                    *extent *= 2;
                }
            }
        }
        block
    }

    /// Whether its numbers are those that some tile could need: what is asked of a bounded layout does not overflow.
    pub fn is_bounded(&self) -> bool {
        const MOST: u64 = 1 << 24;
        let bases = || self.register.iter().chain(&self.lane).chain(&self.warp);
        let ranks = self.repeat.len() == self.shape.len()
            && bases().all(|basis| basis.len() == self.shape.len());
        let bits = self.register.len() <= 24 && self.lane.len() <= 5 && self.warp.len() <= 5;
        if !ranks || !bits || bases().flatten().any(|&v| u64::from(v) > MOST) {
            return false;
        }
        let small = |list: Vec<u64>| {
            let product = list.into_iter().fold(1u64, u64::saturating_mul);
            product <= MOST
        };
        let repeat = || self.repeat.iter().map(|&r| u64::from(r));
        let registers = 1u64 << self.register.len();
        small(self.shape.iter().map(|&d| d.into()).collect())
            && small(repeat().chain([registers]).collect())
            && small(
                repeat()
                    .zip(self.block())
                    .map(|(r, b)| r * u64::from(b))
                    .collect(),
            )
    }

    /// Registers (elements a thread holds), padding and replicas included. The low bits count within a block, then
    /// blocks follow in row-major order.
    pub fn registers(&self) -> u32 {
        (1u32 << self.register.len()) * self.repeat.iter().product::<u32>()
    }

    /// The part of a coordinate that `bits` of a basis give.
    pub fn apply(basis: &[Vec<u32>], bits: u32, rank: usize) -> Vec<u32> {
        let mut at = vec![0; rank];
        for (i, vector) in basis.iter().enumerate().filter(|(i, _)| bits >> i & 1 == 1) {
            debug_assert!(i < 32);
            at.iter_mut().zip(vector).for_each(|(a, v)| *a ^= v);
        }
        at
    }

    /// The coordinate that register `register` of lane `lane` of warp `warp` holds; it may lie in the padding.
    pub fn coordinate(&self, register: u32, lane: u32, warp: u32) -> Vec<u32> {
        let rank = self.shape.len();
        let within = register & ((1 << self.register.len()) - 1);
        let mut at = Layout::apply(&self.register, within, rank);
        for (basis, bits) in [(&self.lane, lane), (&self.warp, warp)] {
            for (a, v) in at.iter_mut().zip(Layout::apply(basis, bits, rank)) {
                *a ^= v;
            }
        }
        let mut block_index = register >> self.register.len();
        for (d, extent) in self.block().into_iter().enumerate().rev() {
            at[d] += block_index % self.repeat[d] * extent;
            block_index /= self.repeat[d];
        }
        at
    }

    /// Whether `at` lies in the shape, not in the padding.
    pub fn contains(&self, at: &[u32]) -> bool {
        at.iter().zip(&self.shape).all(|(a, s)| a < s)
    }

    /// How many warps it is made for.
    pub fn warps(&self) -> u32 {
        1 << self.warp.len()
    }

    /// How many consecutive registers hold neighbours along `dim`: groups of registers `k * n .. (k + 1) * n`, each from
    /// a multiple of `n` on. A power of two.
    pub fn contiguous(&self, dim: usize) -> u32 {
        let mut run = 1;
        for basis in &self.register {
            let expected = (0..basis.len()).map(|d| if d == dim { run } else { 0 });
            if !basis.iter().copied().eq(expected) {
                break;
            }
            run *= 2;
        }
        run
    }

    /// The lane bits that do not matter: threads that differ only in these hold the same elements.
    pub fn replicated_lanes(&self) -> u32 {
        zero_bits(&self.lane)
    }

    /// The warp bits that do not matter.
    pub fn replicated_warps(&self) -> u32 {
        zero_bits(&self.warp)
    }

    /// The lane bits that move along `axis`.
    pub fn lanes_along(&self, axis: usize) -> u32 {
        bits_along(&self.lane, axis)
    }

    /// The warp bits that move along `axis`.
    pub fn warps_along(&self, axis: usize) -> u32 {
        bits_along(&self.warp, axis)
    }

    /// The register, lane and warp that hold the element at `at`: of several, those whose replica bits are zero. `None`
    /// beyond the blocks.
    pub fn holder(&self, at: &[u32]) -> Option<(u32, u32, u32)> {
        let block = self.block();
        let mut within = Vec::with_capacity(at.len());
        let mut block_index = 0;
        for (d, &a) in at.iter().enumerate() {
            let (outer, inner) = (a / block[d], a % block[d]);
            if outer >= self.repeat[d] {
                return None;
            }
            block_index = block_index * self.repeat[d] + outer;
            within.push(inner);
        }
        let bits = self.map().solve(pack(&within, &block))?;
        let (registers, lanes) = (self.register.len(), self.lane.len());
        let register = bits as u32 & ((1 << registers) - 1);
        let lane = (bits >> registers) as u32 & ((1 << lanes) - 1);
        let warp = (bits >> (registers + lanes)) as u32;
        Some((block_index << registers | register, lane, warp))
    }

    /// The register that holds the element at `at` in lane 0 of warp 0; `None` if that thread does not hold it.
    pub fn register_at(&self, at: &[u32]) -> Option<u32> {
        match self.holder(at)? {
            (register, 0, 0) => Some(register),
            _ => None,
        }
    }

    /// The map from (register, lane, warp) bits, in this order from the low end, to the coordinates within a block,
    /// one after another from dimension 0 on.
    pub fn map(&self) -> LinearMap {
        let block = self.block();
        LinearMap::new(
            self.register
                .iter()
                .chain(&self.lane)
                .chain(&self.warp)
                .map(|basis| pack(basis, &block))
                .collect(),
        )
    }

    /// Whether both put the same elements into the same threads, in whatever registers.
    pub fn same_threads(&self, other: &Layout) -> bool {
        convert_sources(self, other).is_some() && convert_sources(other, self).is_some()
    }
}

fn zero_bits(basis: &[Vec<u32>]) -> u32 {
    basis
        .iter()
        .enumerate()
        .filter(|(_, v)| v.iter().all(|&x| x == 0))
        .fold(0, |mask, (i, _)| mask | 1 << i)
}

fn bits_along(basis: &[Vec<u32>], axis: usize) -> u32 {
    basis
        .iter()
        .enumerate()
        .filter(|(_, v)| v[axis] != 0)
        .fold(0, |mask, (i, _)| mask | 1 << i)
}

/// The coordinates within a block of these extents, as one number.
fn pack(at: &[u32], block: &[u32]) -> u64 {
    let mut bits = 0;
    let mut shift = 0;
    for (&a, &extent) in at.iter().zip(block) {
        bits |= u64::from(a) << shift;
        shift += extent.trailing_zeros();
    }
    bits
}
