//! Where the elements of a tile lie: linear maps from (register, lane, warp) to coordinates.
//!
//! Every basis vector is a coordinate whose entries are XORed together; for the layouts made here their bits are
//! disjoint, so that XOR is also addition. A zero basis vector means that the bit does not matter: the element is
//! replicated. A block of `2^k` elements is repeated in registers along each dimension as often as the shape needs,
//! which need not be a power of two; what lies beyond the shape is padding, never stored and never summed.

pub mod scratch;

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
}
