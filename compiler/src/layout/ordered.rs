//! Layouts in which elements follow each other along one axis: first in a thread's registers, then from lane to lane,
//! then from warp to warp, then block by block.

use super::{Layout, WarpLayoutBits};

/// Registers in a row along the axis, at most, before a block is repeated.
const RUN: u32 = 16;

/// Such a layout for `shape`, in order along `axis`. Lanes lie along the axis first, warps along the others.
pub fn ordered(shape: &[u32], axis: usize, warps: u32) -> Layout {
    let mut take = WarpLayoutBits::new(shape);
    let others = (0..shape.len()).rev().filter(|&d| d != axis);
    let lines: u64 = others.clone().map(|d| u64::from(shape[d])).product();
    // Elements of a line for each thread, if the threads are divided among the lines.
    let threads = u64::from(32 * warps);
    let along = (threads / lines.next_power_of_two()).clamp(32, threads);
    let run = u64::from(shape[axis])
        .div_ceil(along)
        .next_power_of_two()
        .min(u64::from(RUN));
    let register = take.up_to(axis, run.trailing_zeros());
    let mut lane = take.up_to(axis, 5);
    for d in others.clone() {
        let missing = 5 - lane.len() as u32;
        lane.extend(take.up_to(d, missing));
    }
    lane.resize(5, vec![0; shape.len()]);
    let bits = warps.trailing_zeros();
    let mut warp = Vec::new();
    for d in others.chain([axis]) {
        let missing = bits - warp.len() as u32;
        warp.extend(take.up_to(d, missing));
    }
    warp.resize(bits as usize, vec![0; shape.len()]);
    Layout {
        shape: shape.to_vec(),
        register,
        lane,
        warp,
        repeat: take.left(),
    }
}

/// Whether elements lie in order along `axis`, as [`ordered`] says: the bits along it are powers of two, rising from
/// registers over lanes to warps, alone in their vectors, and those of the lanes are the lowest.
pub fn is_in_order(layout: &Layout, axis: usize) -> bool {
    let mut next = 1;
    for basis in [&layout.register, &layout.lane, &layout.warp] {
        for vector in basis {
            if vector[axis] == 0 {
                continue;
            }
            if vector[axis] != next || vector.iter().filter(|&&v| v != 0).count() != 1 {
                return false;
            }
            next *= 2;
        }
    }
    let lanes = layout.lanes_along(axis);
    lanes & (lanes + 1) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_follow_each_other() {
        for (shape, axis) in [
            (vec![1], 0),
            (vec![7], 0),
            (vec![80], 0),
            (vec![4096], 0),
            (vec![7, 80], 1),
            (vec![7, 80], 0),
            (vec![64, 64], 0),
            (vec![3, 176, 5], 1),
        ] {
            for warps in [1, 4, 16] {
                let layout = ordered(&shape, axis, warps);
                assert!(is_in_order(&layout, axis), "{layout:?}");
                assert!(layout.padded().iter().zip(&shape).all(|(p, s)| p >= s));
                let mut last = None;
                let steps = layout.block()[axis] * layout.repeat[axis];
                for i in 0..steps {
                    let mut wanted = vec![0; shape.len()];
                    wanted[axis] = i;
                    let (register, lane, warp) = layout.holder(&wanted).expect("within the blocks");
                    let place = Some((register >> layout.register.len(), warp, lane, register));
                    assert!(last < place, "{layout:?}: {last:?} before {place:?}");
                    last = place;
                }
            }
        }
    }
}
