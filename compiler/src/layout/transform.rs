//! Layouts of what moves nothing: permutes, slices, reshapes, broadcasts, and the results of reductions.
//!
//! For each such operation, either the result's layout follows from the operand's or (broadcast) the operand's from the
//! result's, so that every thread finds all elements of its result among its own registers, at the same numbers in every
//! thread. [`register_sources`] gives these numbers.

use super::Layout;
use crate::ir::tile::OpKind;

impl Layout {
    /// Of the operand with dimension `i` of the result being dimension `perm[i]` of it.
    pub fn permuted(&self, perm: &[u32]) -> Layout {
        let pick = |v: &Vec<u32>| perm.iter().map(|&p| v[p as usize]).collect::<Vec<u32>>();
        let all = |basis: &[Vec<u32>]| basis.iter().map(pick).collect();
        Layout {
            shape: pick(&self.shape),
            register: all(&self.register),
            lane: all(&self.lane),
            warp: all(&self.warp),
            repeat: pick(&self.repeat),
        }
    }

    /// Of `shape[i]` elements from `offsets[i]` on; `None` if what is taken is neither a part of a block that only
    /// registers divide, nor begins at a multiple of its block.
    pub fn sliced(&self, offsets: &[u32], shape: &[u32]) -> Option<Layout> {
        let block = self.block();
        let mut result = self.clone();
        result.shape = shape.to_vec();
        for (d, (&offset, &len)) in offsets.iter().zip(shape).enumerate() {
            // A part that only registers divide keeps none of those that are past its end, wherever it begins: halves of
            // a block are laid out alike.
            let part = len.is_power_of_two() && len < block[d] && offset % len == 0;
            let mut threads = self.lane.iter().chain(&self.warp);
            let apart =
                |v: &Vec<u32>| v[d] < len || v.iter().enumerate().all(|(e, &x)| e == d || x == 0);
            if !part || threads.any(|v| v[d] >= len) || !self.register.iter().all(apart) {
                if offset % block[d] != 0 {
                    return None;
                }
                result.repeat[d] = len.div_ceil(block[d]);
                continue;
            }
            result.register.retain(|v| v[d] < len);
            result.repeat[d] = 1;
        }
        Some(result)
    }

    /// Of the result of a reduction over `axis`: what moved along it holds replicas.
    pub fn without_axis(&self, axis: usize) -> Layout {
        let drop = |v: &Vec<u32>| {
            let mut v = v.clone();
            v.remove(axis);
            v
        };
        Layout {
            shape: drop(&self.shape),
            register: nonzero(self.register.iter().map(drop)),
            lane: self.lane.iter().map(drop).collect(),
            warp: self.warp.iter().map(drop).collect(),
            repeat: drop(&self.repeat),
        }
    }

    /// Of a tile of rank 1 that lies as this one does along `dim`.
    pub fn projected(&self, dim: usize) -> Layout {
        let keep = |v: &Vec<u32>| vec![v[dim]];
        Layout {
            shape: vec![self.shape[dim]],
            register: nonzero(self.register.iter().map(keep)),
            lane: self.lane.iter().map(keep).collect(),
            warp: self.warp.iter().map(keep).collect(),
            repeat: vec![self.repeat[dim]],
        }
    }

    /// Of an operand of `shape` whose broadcast has this layout.
    pub fn broadcast_operand(&self, shape: &[u32]) -> Layout {
        let lead = self.shape.len() - shape.len();
        let stretched = |d: usize| shape[d] == 1 && self.shape[d + lead] != 1;
        let keep = |v: &Vec<u32>, stretched_to: u32| -> Vec<u32> {
            (0..shape.len())
                .map(|d| {
                    if stretched(d) {
                        stretched_to
                    } else {
                        v[d + lead]
                    }
                })
                .collect()
        };
        let all = |basis: &[Vec<u32>]| basis.iter().map(|v| keep(v, 0)).collect();
        Layout {
            shape: shape.to_vec(),
            register: nonzero(self.register.iter().map(|v| keep(v, 0))),
            lane: all(&self.lane),
            warp: all(&self.warp),
            repeat: keep(&self.repeat, 1),
        }
    }

    /// Of the same elements in row-major order as `shape`; `None` where bits do not allow it.
    pub fn reshaped(&self, shape: &[u32]) -> Option<Layout> {
        // What lies past an extent of 1 (a slice leaves it there) would be taken for elements of the next dimension.
        let padded = self.padded();
        if (0..self.shape.len()).any(|d| self.shape[d] == 1 && padded[d] > 1) {
            return None;
        }
        let mut from = self.clone();
        let groups = groups(&self.shape, shape)?;
        // Inner dimensions must be whole powers of two, all of them in bits.
        for (old, new) in &groups {
            let inner_new: u32 = inner(shape, new)?;
            if real(shape, new).count() <= 1 && real(&self.shape, old).count() <= 1 {
                continue;
            }
            let mut dims = real(&self.shape, old);
            let outer = dims.next();
            let mut flat_block = 1;
            for d in dims {
                let blocks = from.repeat[d];
                if !self.shape[d].is_power_of_two() || from.block()[d] * blocks != self.shape[d] {
                    return None;
                }
                from.absorb(d, blocks.trailing_zeros());
                flat_block *= self.shape[d];
            }
            if let Some(d) = outer {
                let missing = |from: &Layout| inner_new > flat_block * from.block()[d];
                while missing(&from) {
                    if !from.repeat[d].is_multiple_of(2) {
                        return None;
                    }
                    from.absorb(d, 1);
                }
            }
        }
        let map = |v: &Vec<u32>| -> Vec<u32> {
            let mut out = vec![0; shape.len()];
            for (old, new) in &groups {
                let mut flat = 0;
                for d in old.clone() {
                    flat = flat * self.shape[d] + v[d];
                }
                for d in new.clone().rev() {
                    if Some(d) == real(shape, new).next() {
                        out[d] = flat;
                        break;
                    }
                    out[d] = flat % shape[d];
                    flat /= shape[d];
                }
            }
            out
        };
        let all = |basis: &[Vec<u32>]| basis.iter().map(map).collect();
        let mut repeat = vec![1; shape.len()];
        for (old, new) in &groups {
            if let (Some(o), Some(n)) = (real(&self.shape, old).next(), real(shape, new).next()) {
                repeat[n] = from.repeat[o];
            }
        }
        let result = Layout {
            shape: shape.to_vec(),
            register: all(&from.register),
            lane: all(&from.lane),
            warp: all(&from.warp),
            repeat,
        };
        let covers = result.padded().iter().zip(shape).all(|(p, s)| p >= s);
        covers.then_some(result)
    }

    /// Turns the `2^bits` fastest of the blocks along `dim` into register bits.
    fn absorb(&mut self, dim: usize, bits: u32) {
        let extent = self.block()[dim];
        for i in 0..bits {
            let mut basis = vec![0; self.shape.len()];
            basis[dim] = extent << i;
            self.register.push(basis);
        }
        self.repeat[dim] >>= bits;
    }
}

fn nonzero(bases: impl Iterator<Item = Vec<u32>>) -> Vec<Vec<u32>> {
    bases.filter(|v| v.iter().any(|&x| x != 0)).collect()
}

type Dims = std::ops::Range<usize>;

/// The dimensions of a group that are not 1.
fn real<'a>(shape: &'a [u32], dims: &Dims) -> impl Iterator<Item = usize> + use<'a> {
    dims.clone().filter(|&d| shape[d] != 1)
}

/// The product of a group's dimensions but the outermost that is not 1; `None` unless all these are powers of two.
fn inner(shape: &[u32], dims: &Dims) -> Option<u32> {
    real(shape, dims)
        .skip(1)
        .try_fold(1, |p, d| shape[d].is_power_of_two().then(|| p * shape[d]))
}

/// The shortest runs of dimensions of two shapes that have the same products. `None` if the shapes differ in size.
fn groups(from: &[u32], to: &[u32]) -> Option<Vec<(Dims, Dims)>> {
    let mut groups = Vec::new();
    let (mut i, mut j) = (0, 0);
    while i < from.len() || j < to.len() {
        let start = (i, j);
        let (mut a, mut b) = (1u64, 1u64);
        loop {
            if a <= b && i < from.len() && (a < b || i == start.0) {
                a *= u64::from(from[i]);
                i += 1;
            } else if j < to.len() && (b < a || j == start.1) {
                b *= u64::from(to[j]);
                j += 1;
            } else {
                break;
            }
        }
        // Ones belong to the group before them.
        while i < from.len() && from[i] == 1 {
            i += 1;
        }
        while j < to.len() && to[j] == 1 {
            j += 1;
        }
        if a != b {
            return None;
        }
        groups.push((start.0..i, start.1..j));
    }
    Some(groups)
}

/// The layout of the result of `kind` (permute, slice, reshape) on an operand of this layout; `None` if there is none
/// that moves nothing, and for other operations.
pub fn result_layout(kind: &OpKind, operand: &Layout, shape: &[u32]) -> Option<Layout> {
    match kind {
        OpKind::Permute(perm) => Some(operand.permuted(perm)),
        OpKind::Slice(offsets) => operand.sliced(offsets, shape),
        OpKind::Reshape => operand.reshaped(shape),
        _ => None,
    }
}

/// For each register of the result of `kind` (permute, slice, reshape to a tile, broadcast of a tile), the operand's
/// register that it is a copy of, the same in every thread. Registers that are padding in every thread get 0. `None` if
/// the layouts do not fit each other without moving data, and for other operations.
pub fn register_sources(kind: &OpKind, operand: &Layout, result: &Layout) -> Option<Vec<u32>> {
    let source = |at: &[u32]| -> Vec<u32> {
        match kind {
            OpKind::Permute(perm) => {
                let mut from = vec![0; at.len()];
                for (&p, &a) in perm.iter().zip(at) {
                    from[p as usize] = a;
                }
                from
            }
            OpKind::Slice(offsets) => at.iter().zip(offsets).map(|(a, o)| a + o).collect(),
            OpKind::Broadcast => {
                let lead = at.len() - operand.shape.len();
                operand
                    .shape
                    .iter()
                    .zip(&at[lead..])
                    .map(|(&s, &a)| if s == 1 { 0 } else { a })
                    .collect()
            }
            _ => {
                let mut flat = 0u64;
                for (&a, &s) in at.iter().zip(&result.shape) {
                    flat = flat * u64::from(s) + u64::from(a);
                }
                let mut from = vec![0; operand.shape.len()];
                for (f, &s) in from.iter_mut().zip(&operand.shape).rev() {
                    *f = (flat % u64::from(s)) as u32;
                    flat /= u64::from(s);
                }
                from
            }
        }
    };
    let movable = matches!(
        kind,
        OpKind::Permute(_) | OpKind::Slice(_) | OpKind::Broadcast | OpKind::Reshape
    );
    let expected = match kind {
        OpKind::Broadcast => result.broadcast_operand(&operand.shape),
        _ => result_layout(kind, operand, &result.shape)?,
    };
    let fits = match kind {
        OpKind::Broadcast => same_bases(&expected, operand),
        _ => same_bases(&expected, result),
    };
    if !movable || !fits {
        return None;
    }
    sources_by(operand, result, source)
}

/// For each register of `to`, the register of `from` with the same element in the same thread, whatever the thread;
/// registers that are padding in every thread get 0. `None` if elements must move between threads.
pub fn convert_sources(from: &Layout, to: &Layout) -> Option<Vec<u32>> {
    (from.shape == to.shape && same_bases(from, to))
        .then(|| sources_by(from, to, <[u32]>::to_vec))
        .flatten()
}

/// For each register of the operand of a reduction over `axis`, the register of the result that it is part of.
pub fn reduce_targets(operand: &Layout, axis: usize, result: &Layout) -> Option<Vec<u32>> {
    (0..operand.registers())
        .map(|register| {
            let mut at = operand.coordinate(register, 0, 0);
            at.remove(axis);
            result.register_at(&at)
        })
        .collect()
}

fn same_bases(a: &Layout, b: &Layout) -> bool {
    a.lane == b.lane && a.warp == b.warp
}

/// With the thread's part of every coordinate the same on both sides, lane 0 of warp 0 speaks for all: its coordinates
/// are the least, so that what is padding there is padding everywhere.
fn sources_by(from: &Layout, to: &Layout, source: impl Fn(&[u32]) -> Vec<u32>) -> Option<Vec<u32>> {
    (0..to.registers())
        .map(|register| {
            let at = to.coordinate(register, 0, 0);
            if to.contains(&at) {
                from.register_at(&source(&at))
            } else {
                Some(0)
            }
        })
        .collect()
}
