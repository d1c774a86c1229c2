//! Passes what products in loops read through channels that copies fill some iterations ahead.
//!
//! A counted loop is pipelined if an operand of a product directly in it is a slice of a view that the kernel only reads
//! (perhaps transposed and cast on the way), that serves products alone, and whose place follows from the loop's index
//! and from what stands outside of the loop. That place is a backward slice of the loop's dependence graph; it is computed
//! once more for the iteration that is copied. Where the target copies asynchronously and alignment allows it, the
//! channel has as many slots as the schedule has stages (by default up to four, by shared memory):
//!
//! ```text
//! copies of the first depth − 1 iterations, one group each
//! loop: wait for this iteration's group; barrier; begin the copy that is depth − 1 iterations ahead; products
//! ```
//!
//! Elsewhere it has two, filled from registers: loaded before the products of the iteration before, written after them.
//! The barrier at the head of an iteration orders both what it reads and what it overwrites: the slot read in the
//! iteration before. Products whose operands both come from channels are cut along K, and fragments are read one step
//! ahead, so that those of two steps live at a time.
//!
//! With one product in the loop, waiting (or writing) and barrier move in front of the last step's product of the iteration
//! before, and the first step's operands are read there and carried along: on an H200 that brings `gemm_nt` from 0.49 to
//! 0.59 of cuBLAS.
//!
//! An operand that does not come from such a slice is cut along K in registers. Where it is the same in all iterations and
//! takes many registers, it is kept in shared memory from its definition on; and so is, for an iteration, what plain
//! multiplications take, whose threads would each hold all of K.
//!
//! Where a slice lies may be said by index tiles, which are then worked out once more for the iteration that is copied.
//!
//! Invariants: an iteration has one barrier (two if there is one slot only); all copies have arrived behind the loop;
//! what threads still read from the slots is ordered against later users of the same bytes by `insert_barriers`.

mod plan;
mod rewrite;

use std::collections::{BTreeMap, HashMap, HashSet};

use tesserine_set::DType;

use self::{plan::Planner, rewrite::Rewrite};
use crate::{
    diagnostics::Diagnostics,
    ir::{
        OpId, ValueId,
        role::{Fill, Kernel, RoleBody, SharedTile, Strategy},
    },
    target::Target,
};

pub fn run(kernel: &mut Kernel, target: Target) -> Result<(), Diagnostics> {
    let mut buffers = std::mem::take(&mut kernel.buffers);
    // The rings between roles.
    let taken = buffers.values().map(|b| b.bytes).sum();
    let mut channels = std::mem::take(&mut kernel.channels);
    for role in &mut kernel.roles {
        let plans = Planner::new(&kernel.header, &role.body, (role.warps, taken), target).plans();
        if plans.is_empty() {
            continue;
        }
        let mut rewrite = Rewrite {
            from: &role.body,
            plans: &plans,
            ordered: kernel.header.persistent,
            to: RoleBody::new(),
            map: HashMap::new(),
            kept: HashMap::new(),
            buffers: &mut buffers,
            channels: &mut channels,
        };
        rewrite.keep_from_outside();
        let root = rewrite.to.root;
        rewrite.region(role.body.root, root, 0);
        role.body = rewrite.to;
    }
    kernel.buffers = buffers;
    kernel.channels = channels;
    Ok(())
}
/// What becomes of a loop.
struct Plan {
    fill: Fill,
    depth: u32,
    loads: Vec<Load>,
    /// By product: where its operands come from, if from the channel.
    products: HashMap<OpId, [Option<Source>; 2]>,
    /// Operands that are kept in shared memory, by value.
    kept: BTreeMap<ValueId, Kept>,
    /// The results of products leave no registers to read operands ahead into.
    crowded: bool,
    /// Slots filled from registers are filled a few words at a time.
    direct: bool,
    /// Operations of the loop's region that are no longer there.
    dropped: HashSet<OpId>,
}

/// An operand of products in shared memory that is no slice of a view.
#[derive(Clone)]
struct Kept {
    tile: SharedTile,
    /// Made in each iteration; else once, before the loop.
    inside: bool,
}

/// Where an operand lies.
#[derive(Clone, Copy, Debug)]
enum Store {
    /// In the slots that loads fill, as the tile of this number.
    Ring(u32),
    Kept(ValueId),
}

/// A load that goes through the channel, as the tile of its number.
struct Load {
    op: OpId,
    /// Elements that one copy moves.
    width: u32,
    tile: SharedTile,
    /// The operations of the region that its place is computed by, in order.
    address: Vec<OpId>,
}

/// An operand of a product.
#[derive(Clone, Debug)]
struct Source {
    store: Store,
    transposed: bool,
    /// Element types that it is cast to on the way, one after another.
    casts: Vec<DType>,
}

/// Whether a product is cut along K.
fn is_cut(strategy: Strategy, sources: &[Option<Source>; 2]) -> bool {
    match strategy {
        Strategy::MmaSync(_) => sources.iter().any(|s| s.is_some()),
        Strategy::Fma => sources.iter().all(|s| s.is_some()),
    }
}

/// How much of K one step takes: a divisor of `k`.
fn depth(strategy: Strategy, k: u32) -> u32 {
    match strategy {
        Strategy::MmaSync(shape) => shape.k,
        Strategy::Fma => 1 << k.trailing_zeros().min(1),
    }
}
