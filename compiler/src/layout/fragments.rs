//! Fragments: the layouts that matrix products take their operands in and give their results in.
//!
//! A product of `[M, K]` and `[K, N]` is divided among warps by a [`WarpGrid`]; each warp owns a rectangle of the result
//! and holds, of the operands, the rows and the columns that this needs, whole along K. The layouts of the operands
//! follow from that of the result: what moves along N in the result does not matter to the left operand, and what moves
//! along M does not to the right one. Within a warp and a step of K, `mma.sync` says which lane holds what; in products
//! of plain multiplications a thread holds all of K.

use super::{Layout, WarpLayoutBits};
use crate::ir::role::Strategy;

/// How warps divide the result: `m * n` of them own parts, the rest repeat the work of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WarpGrid {
    /// Warps along M: a power of two.
    pub m: u32,
    /// Warps along N: a power of two.
    pub n: u32,
    /// Warps of the role: a power of two.
    pub warps: u32,
}

/// The shape of one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MmaShape {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    /// Elements of an operand in one 32-bit register: neighbours along K.
    pub per: u32,
}

impl MmaShape {
    /// Of 16-bit elements, in two registers of the left operand.
    pub const M16N8K8: MmaShape = MmaShape::of(8, 2);
    /// Of 16-bit elements.
    pub const M16N8K16: MmaShape = MmaShape::of(16, 2);
    /// Of 32-bit elements.
    pub const M16N8K8_32: MmaShape = MmaShape::of(8, 1);
    /// Of 8-bit elements.
    pub const M16N8K32: MmaShape = MmaShape::of(32, 4);

    const fn of(k: u32, per: u32) -> MmaShape {
        MmaShape {
            m: 16,
            n: 8,
            k,
            per,
        }
    }

    /// Registers of the left operand along K: each lane of four holds one in each.
    pub fn steps(self) -> u32 {
        self.k / (4 * self.per)
    }
}

impl WarpGrid {
    /// The grid for a result of `m` by `n` made of pieces of `piece`: as few padded pieces a warp as possible, and of
    /// these the grid whose warps read the least of the operands.
    pub fn choose(m: u32, n: u32, warps: u32, piece: (u32, u32)) -> WarpGrid {
        WarpGrid::choose_for(m, n, warps, piece, false)
    }

    /// As [`choose`](WarpGrid::choose). `chained`: the result is an operand of another product, or has one for an operand:
    /// each warp gets whole rows where there are enough, so that they stay with it.
    pub fn choose_for(m: u32, n: u32, warps: u32, piece: (u32, u32), chained: bool) -> WarpGrid {
        let (rows, columns) = (m.div_ceil(piece.0), n.div_ceil(piece.1));
        if chained && rows >= warps {
            return WarpGrid {
                m: warps,
                n: 1,
                warps,
            };
        }
        let mut best = None;
        let mut along_m = 1;
        while along_m <= warps {
            let mut along_n = 1;
            while along_m * along_n <= warps {
                let (r, c) = (rows.div_ceil(along_m), columns.div_ceil(along_n));
                let cost = (r * c, r * piece.0 + c * piece.1, along_m * along_n);
                if best.is_none_or(|(least, _, _)| cost < least) {
                    best = Some((cost, along_m, along_n));
                }
                along_n *= 2;
            }
            along_m *= 2;
        }
        let (_, m, n) = best.unwrap_or(((0, 0, 0), 1, 1));
        WarpGrid { m, n, warps }
    }
}

/// The layout of the result of `mma.sync` (all shapes of 16 by 8 have one) and of its accumulator: `shape` is `[M, N]`.
pub fn mma_result(shape: [u32; 2], grid: WarpGrid) -> Layout {
    let (m, n) = (pieces(shape[0], 16, grid.m), pieces(shape[1], 8, grid.n));
    let mut register = vec![vec![0, 1], vec![8, 0]];
    register.extend(doubling(8, n.bits).map(|x| vec![0, x]));
    register.extend(doubling(16, m.bits).map(|x| vec![x, 0]));
    let mut warp: Vec<Vec<u32>> = doubling(8 << n.bits, grid.n.trailing_zeros())
        .map(|x| vec![0, x])
        .collect();
    warp.extend(doubling(16 << m.bits, grid.m.trailing_zeros()).map(|x| vec![x, 0]));
    warp.resize(grid.warps.trailing_zeros() as usize, vec![0, 0]);
    Layout {
        shape: shape.to_vec(),
        register,
        lane: [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]]
            .map(|v| v.to_vec())
            .to_vec(),
        warp,
        repeat: vec![m.repeat, n.repeat],
    }
}

/// The layout of the result of a warpgroup's product and of its accumulator, `shape` being `[M, N]`: each warpgroup owns 64
/// neighbouring rows, and rows beyond those of all warpgroups are further blocks. A thread's registers are in the order of the
/// instruction's. `warps` is a multiple of 4 and a power of two, M one of 16 times the warps.
pub fn warpgroup_result(shape: [u32; 2], warps: u32) -> Layout {
    let grid = WarpGrid {
        m: warps,
        n: 1,
        warps,
    };
    let one = mma_result([16 * warps, shape[1]], grid);
    Layout {
        repeat: vec![shape[0].div_ceil(16 * warps), one.repeat[1]],
        shape: shape.to_vec(),
        ..one
    }
}

/// As [`warpgroup_result`], of warpgroups that divide the columns: each has all rows, 64 at a time, and so many neighbouring columns. `None`
/// where there is none: the columns of one are a power of two, 8 to 256.
pub fn warpgroup_columns([m, n]: [u32; 2], warps: u32) -> Option<Layout> {
    let groups = warps / 4;
    let own = n.checked_div(groups)?;
    let fits = groups.is_power_of_two()
        && warps.is_multiple_of(4)
        && m > 0
        && m.is_multiple_of(64)
        && n.is_multiple_of(groups)
        && own.is_power_of_two()
        && (8..=256).contains(&own);
    let one = warpgroup_result([64, own], 4);
    fits.then(|| Layout {
        shape: vec![m, n],
        warp: one
            .warp
            .iter()
            .cloned()
            .chain(doubling(own, groups.trailing_zeros()).map(|x| vec![0, x]))
            .collect(),
        repeat: vec![m / 64, 1],
        ..one
    })
}

/// The layout of the left operand of a warpgroup's product in registers, `[M, k]`, for a result of layout `result`; `per`
/// elements of it are in one 32-bit register.
pub fn warpgroup_left(result: &Layout, k: u32, per: u32) -> Layout {
    let shape = MmaShape {
        m: 16,
        n: 8,
        k: 8 * per,
        per,
    };
    mma_operand(result, Side::Left, k, shape)
}

/// Whether `layout` is one that [`warpgroup_result`] gives.
pub fn is_warpgroup_result(layout: &Layout) -> bool {
    let &[m, n] = &layout.shape[..] else {
        return false;
    };
    let warps = layout.warp.len();
    (2..6).contains(&warps)
        && m > 0
        && n > 0
        && m.is_multiple_of(16 << warps)
        && *layout == warpgroup_result([m, n], 1 << warps)
}

/// Whether `layout` is one that [`mma_result`] gives.
pub fn is_mma_result(layout: &Layout) -> bool {
    let &[m, n] = &layout.shape[..] else {
        return false;
    };
    let along = |d: usize| layout.warp.iter().filter(|v| v.get(d) != Some(&0)).count();
    let (rows, columns) = (along(0), along(1));
    let all = layout.warp.len();
    m > 0
        && n > 0
        && rows + columns <= all
        && all < 16
        && *layout
            == mma_result(
                [m, n],
                WarpGrid {
                    m: 1 << rows,
                    n: 1 << columns,
                    warps: 1 << all,
                },
            )
}

/// The layout of the result of multiplications and additions thread by thread: `shape` is `[M, N]`. A warp owns 4 rows
/// of threads by 8 columns of them, each with runs of four neighbours.
pub fn fma_result(shape: [u32; 2], warps: u32) -> Layout {
    let mut take = WarpLayoutBits::new(&shape);
    let register = [take.up_to(1, 2), take.up_to(0, 1)].concat();
    let mut lane = [take.up_to(1, 3), take.up_to(0, 2)].concat();
    // A narrow tile has more threads along the other side.
    for dim in [0, 1] {
        let missing = 5 - lane.len() as u32;
        lane.extend(take.up_to(dim, missing));
    }
    lane.resize(5, vec![0, 0]);
    let bits = warps.trailing_zeros();
    let mut warp = take.up_to(1, bits / 2);
    for dim in [0, 1] {
        let missing = bits - warp.len() as u32;
        warp.extend(take.up_to(dim, missing));
    }
    warp.resize(bits as usize, vec![0, 0]);
    Layout {
        shape: shape.to_vec(),
        register,
        lane,
        warp,
        repeat: take.left(),
    }
}

/// The layout that the result of a product has by itself: `shape` is `[M, N]`. `chained` as for [`WarpGrid::choose_for`].
pub fn result(strategy: Strategy, shape: [u32; 2], warps: u32, chained: bool) -> Layout {
    match strategy {
        Strategy::MmaSync(mma) => {
            let [m, n] = shape;
            let grid = WarpGrid::choose_for(m, n, warps, (mma.m, mma.n), chained);
            mma_result(shape, grid)
        }
        Strategy::Fma => fma_result(shape, warps),
    }
}

/// The layout of an operand of a product whose result has layout `result`, of `mma.sync` one that [`mma_result`] gives.
pub fn operand(strategy: Strategy, result: &Layout, side: Side, k: u32) -> Layout {
    match strategy {
        Strategy::MmaSync(mma) => mma_operand(result, side, k, mma),
        Strategy::Fma => fma_operand(result, side, k),
    }
}

/// Which operand of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// `[M, K]`
    Left,
    /// `[K, N]`
    Right,
}

/// The layout of the operand of `mma.sync` with instructions of shape `mma`, for a result of layout `result`. `k` must be a
/// multiple of the instruction's.
pub fn mma_operand(result: &Layout, side: Side, k: u32, mma: MmaShape) -> Layout {
    let MmaShape { k: step, per, .. } = mma;
    debug_assert!(k.is_multiple_of(step) && matches!(mma.steps(), 1 | 2));
    let depth = pieces(k, step, 1);
    let outer = |basis: &[Vec<u32>]| -> Vec<Vec<u32>> {
        basis
            .iter()
            .map(|v| side.along(v[side.kept()], 0))
            .collect()
    };
    // Within an instruction.
    let mut register: Vec<Vec<u32>> = doubling(1, per.trailing_zeros())
        .map(|x| side.along(0, x))
        .collect();
    let mut lane: Vec<Vec<u32>> = doubling(per, 2).map(|x| side.along(0, x)).collect();
    lane.extend(doubling(1, 3).map(|x| side.along(x, 0)));
    if side == Side::Left {
        register.push(vec![8, 0]);
    }
    register.extend(doubling(4 * per, mma.steps().trailing_zeros()).map(|x| side.along(0, x)));
    // Other steps of K, then other pieces of the result.
    register.extend(doubling(step, depth.bits).map(|x| side.along(0, x)));
    let pieces = result.register[2..]
        .iter()
        .filter(|v| v[side.kept()] != 0)
        .map(|v| side.along(v[side.kept()], 0));
    register.extend(pieces);
    side.layout(result, k, register, lane, outer(&result.warp), depth.repeat)
}

/// The layout of an operand of a product by multiplications and additions, for a result of layout `result`: each thread
/// holds all of K.
pub fn fma_operand(result: &Layout, side: Side, k: u32) -> Layout {
    let depth = pieces(k, 1, 1);
    let keep = |v: &Vec<u32>| side.along(v[side.kept()], 0);
    let mut register: Vec<Vec<u32>> = doubling(1, depth.bits).map(|x| side.along(0, x)).collect();
    register.extend(
        result
            .register
            .iter()
            .filter(|v| v[side.kept()] != 0)
            .map(keep),
    );
    side.layout(
        result,
        k,
        register,
        result.lane.iter().map(keep).collect(),
        result.warp.iter().map(keep).collect(),
        depth.repeat,
    )
}

impl Side {
    /// The dimension of the result that the operand has too.
    fn kept(self) -> usize {
        match self {
            Side::Left => 0,
            Side::Right => 1,
        }
    }

    /// A coordinate of the operand.
    fn along(self, kept: u32, k: u32) -> Vec<u32> {
        match self {
            Side::Left => vec![kept, k],
            Side::Right => vec![k, kept],
        }
    }

    fn layout(
        self,
        result: &Layout,
        k: u32,
        register: Vec<Vec<u32>>,
        lane: Vec<Vec<u32>>,
        warp: Vec<Vec<u32>>,
        repeat: u32,
    ) -> Layout {
        Layout {
            shape: self.along(result.shape[self.kept()], k),
            register,
            lane,
            warp,
            repeat: self.along(result.repeat[self.kept()], repeat),
        }
    }
}

/// How one dimension is covered by pieces.
struct Pieces {
    /// Register bits.
    bits: u32,
    /// Repetitions of the block that registers and warps make.
    repeat: u32,
}

/// `extent` covered by pieces of `piece`, divided among `warps`.
fn pieces(extent: u32, piece: u32, warps: u32) -> Pieces {
    let own = extent.div_ceil(piece).div_ceil(warps);
    let bits = own.trailing_zeros();
    Pieces {
        bits,
        repeat: own >> bits,
    }
}

fn doubling(from: u32, count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(move |i| from << i)
}
