//! Blocked layouts: vectors in registers, lanes and warps side by side, the rest repeated.

use tesserine_set::DType;

use super::{Layout, swizzle::CHUNK};

/// A layout of `shape` in which each thread holds `vec` neighbours along `order[0]`, lanes then warps fill the
/// dimensions in `order` (the fastest first), and registers repeat the block over what is left. `vec` and `warps` are
/// powers of two. What a small tile leaves over of lanes and warps are replicas.
pub fn blocked(shape: &[u32], order: &[usize], vec: u32, warps: u32) -> Layout {
    blocked_by(shape, order, order, vec, warps)
}

/// How threads divide a tile of `shape` that is copied `width` neighbours at a time: neighbouring lanes copy neighbouring
/// pieces of a row.
pub fn copy_layout(shape: [u32; 2], width: u32, warps: u32) -> Layout {
    blocked(&shape, &[1, 0], width, warps)
}

/// As [`copy_layout`], where a piece is a swizzle's chunk and a role does nothing but copy: four lanes copy half of a panel's row, so that
/// each has fewer rows to know the addresses of. The rows of eight lanes lie so that their chunks meet no bank twice.
pub fn put_layout(shape: [u32; 2], width: u32, warps: u32) -> Layout {
    let bits = warps.trailing_zeros();
    let rows = 8 * warps;
    if !shape[1].is_multiple_of(8 * width) || !shape[0].is_multiple_of(rows) {
        return copy_layout(shape, width, warps);
    }
    let mut register: Vec<Vec<u32>> = (0..width.trailing_zeros())
        .map(|b| vec![0, 1 << b])
        .collect();
    register.push(vec![0, 4 * width]);
    Layout {
        shape: shape.to_vec(),
        register,
        lane: vec![
            vec![0, width],
            vec![0, 2 * width],
            vec![4, 0],
            vec![1, 0],
            vec![2, 0],
        ],
        warp: (0..bits).map(|b| vec![8 << b, 0]).collect(),
        repeat: vec![shape[0] / rows, shape[1] / (8 * width)],
    }
}

/// How many neighbours a thread writes to shared memory at once of a tile of `shape` that it copies through registers.
pub fn copy_piece(shape: [u32; 2], elem: DType) -> u32 {
    let most = CHUNK * 8 / elem.bits();
    most.min(1 << shape[1].trailing_zeros())
}

/// As [`blocked`], with an order of their own for the warps.
pub fn blocked_by(
    shape: &[u32],
    lane_order: &[usize],
    warp_order: &[usize],
    vec: u32,
    warps: u32,
) -> Layout {
    assert!(vec.is_power_of_two() && warps.is_power_of_two());
    let rank = shape.len();
    let mut fill = Fill {
        extent: vec![1; rank],
        left: shape.to_vec(),
    };
    let register = match lane_order.first() {
        Some(&inner) => {
            let vec = vec.min(shape[inner].next_power_of_two());
            fill.take(inner, vec.trailing_zeros())
        }
        None => Vec::new(),
    };
    let lane = fill.spread(lane_order, 5);
    let warp = fill.spread(warp_order, warps.trailing_zeros());
    Layout {
        shape: shape.to_vec(),
        register,
        lane,
        warp,
        repeat: fill.left,
    }
}

/// Takes a tile apart into bits, as [`blocked`] does, in an order of the caller's.
pub(super) struct WarpLayoutBits(Fill);

impl WarpLayoutBits {
    pub fn new(shape: &[u32]) -> WarpLayoutBits {
        WarpLayoutBits(Fill {
            extent: vec![1; shape.len()],
            left: shape.to_vec(),
        })
    }

    /// The next bases along `dim`, at most `bits`, as many as leave no padding but of a last odd block.
    pub fn up_to(&mut self, dim: usize, bits: u32) -> Vec<Vec<u32>> {
        let most = self.0.left[dim].next_power_of_two().trailing_zeros();
        self.0.take(dim, bits.min(most))
    }

    /// How many blocks are left along each dimension.
    pub fn left(self) -> Vec<u32> {
        self.0.left
    }
}

/// The state of filling a block.
struct Fill {
    /// Of the block so far: powers of two.
    extent: Vec<u32>,
    /// How many blocks of that extent the shape still needs along each dimension.
    left: Vec<u32>,
}

impl Fill {
    /// Doubles the block `bits` times along `dim`.
    fn take(&mut self, dim: usize, bits: u32) -> Vec<Vec<u32>> {
        (0..bits)
            .map(|_| {
                let mut basis = vec![0; self.extent.len()];
                basis[dim] = self.extent[dim];
                self.extent[dim] *= 2;
                self.left[dim] = self.left[dim].div_ceil(2);
                basis
            })
            .collect()
    }

    /// Exactly `bits` bases along the dimensions in `order`: first where little is padding, then wherever elements are
    /// left, then replicas.
    fn spread(&mut self, order: &[usize], bits: u32) -> Vec<Vec<u32>> {
        let mut bases = Vec::new();
        for frugal in [true, false] {
            for &dim in order {
                let spare = bits - bases.len() as u32;
                let left = self.left[dim];
                let most = spare.min(left.next_power_of_two().trailing_zeros());
                // At most a quarter of padding, unless that would leave less than four side by side.
                let count = (0..=most)
                    .rev()
                    .find(|&b| {
                        let padded = left.div_ceil(1 << b) << b;
                        !frugal || padded * 4 <= left * 5
                    })
                    .unwrap_or(0);
                bases.extend(self.take(dim, count));
            }
        }
        bases.resize(bits as usize, vec![0; self.extent.len()]);
        bases
    }
}
