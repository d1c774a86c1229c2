//! Role IR: how a kernel runs.
//!
//! A kernel is a list of roles, each a body executed by its own warps; values that are tiles have a [`Layout`], scalars
//! are uniform over the role. Shared memory is a list of buffers with offsets once the allocation pass has run.
//! A kernel of the tile level has one role, of all warps; one of the role level has those of its author. Tiles that products read pass
//! through channels: rings of slots in shared memory. Which slot an operation means is a scalar that the body carries along. Where one role
//! waits for another, a slot has a full and an empty barrier (an mbarrier each), and each role carries a slot and a phase for a channel: the
//! phase is 0 in the first round over the ring and changes with each round.
//!
//! Invariants (checked by the verifier): elementwise operations have one layout for all tiles; `permute`, `broadcast`,
//! `reshape` and `slice` move nothing between threads; only `convert`, `reduce`, loads and stores may.

mod ops;
mod parse;
mod print;
mod verify;

pub use ops::*;
pub use parse::parse;
pub use verify::verify;

use std::{collections::BTreeMap, sync::Arc};

use cranelift_entity::{PrimaryMap, entity_impl};

use super::{Body, Header, tile};
use tesserine_set::DType;

use crate::layout::{
    self, Layout,
    swizzle::{CHUNK, SharedLayout},
};

/// A shared-memory buffer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId(u32);
entity_impl!(BufferId, "shared");

/// A channel of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(u32);
entity_impl!(ChannelId, "channel");

/// A tensor map of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MapId(u32);
entity_impl!(MapId, "map");

/// The operations of one role.
pub type RoleBody = Body<OpKind, Type>;

/// The type of a value at this level.
#[derive(Clone, Debug, PartialEq)]
pub struct Type {
    pub ty: tile::Type,
    /// Where each element lies; `None` for scalars and views, and for tiles before layouts are assigned.
    pub layout: Option<Arc<Layout>>,
}

/// A kernel at this level.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub header: Header,
    pub roles: Vec<Role>,
    pub buffers: PrimaryMap<BufferId, Buffer>,
    pub channels: PrimaryMap<ChannelId, Channel>,
    /// What bulk copies know of the views; the launch encodes and passes them, in this order.
    pub maps: PrimaryMap<MapId, TensorMap>,
    /// Bytes of dynamic shared memory, once buffers have offsets.
    pub shared_bytes: u32,
}

/// Warps that execute one body.
#[derive(Clone, Debug)]
pub struct Role {
    pub name: String,
    /// The first of its warps in the block. Whole warpgroups begin at a multiple of 4.
    pub first_warp: u32,
    pub warps: u32,
    /// Registers of a thread, which it asks for at its beginning (`setmaxnreg`, by whole warpgroups).
    pub registers: Option<u32>,
    /// The root region's arguments are the role's state, `i32` scalars that are 0 at first; `return` gives the state with which the next tile
    /// of a persistent kernel begins.
    pub body: RoleBody,
    /// Its warps execute another role's body.
    pub like: Option<Like>,
}

/// Whose body a role executes. Its own says the same, and is not compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Like {
    /// The number of the role, whose body knows by [`OpKind::Replica`] who executes it.
    pub role: u32,
    /// Of that body's buffers, those in whose place this role has its own.
    pub buffers: BTreeMap<BufferId, BufferId>,
}

/// How a bulk copy sees a view: as the driver's `cuTensorMapEncodeTiled` wants it, the innermost dimension first.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorMap {
    /// The view parameter, by its number in the signature.
    pub param: u32,
    pub elem: DType,
    pub dims: Vec<MapDim>,
    /// Bytes of the swizzle: 0, 32, 64 or 128.
    pub swizzle: u32,
}

/// A dimension of a tensor map: all of a dimension of the view, or one of the two that it is split into.
#[derive(Clone, Debug, PartialEq)]
pub struct MapDim {
    /// Of the view.
    pub dim: u32,
    /// Elements of the view's dimension that one step is: 1, or the extent of the part inside.
    pub step: u32,
    /// Where the view's dimension is split: the extent of this part; the outermost part has the rest.
    pub extent: Option<u32>,
    /// Elements of the box.
    pub extent_of_box: u32,
}

/// A ring of slots in shared memory, each with room for one of each tile.
#[derive(Clone, Debug, PartialEq)]
pub struct Channel {
    pub tiles: Vec<SharedTile>,
    /// Slots.
    pub depth: u32,
    pub fill: Fill,
    /// Where the slots lie, one after another, [`slot_bytes`](Channel::slot_bytes) apart.
    pub buffer: BufferId,
    /// Where roles wait for each other by it.
    pub barriers: Option<RingBarriers>,
}

/// The barriers of a channel's slots: `depth` full ones, then `depth` empty ones, eight bytes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingBarriers {
    pub buffer: BufferId,
    /// Arrivals that make a slot full; bulk copies add their bytes.
    pub full: u32,
    /// Arrivals that make it empty: a warp's is one; of all blocks of the cluster that read it.
    pub empty: u32,
    /// Threads fill slots by asynchronous copies, perhaps beside other ways.
    pub copied: bool,
    /// Blocks of the cluster that a slot is empty for when all have read it; 1 where each has its own ring.
    pub blocks: u32,
}

/// How the slots of a channel are filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fill {
    /// By asynchronous copies from memory.
    CpAsync,
    /// By bulk copies through tensor maps.
    Bulk,
    /// From registers.
    Registers,
}

/// One tile of a slot, as it lies in memory: its columns are neighbours.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedTile {
    pub elem: DType,
    /// Rows and columns that are filled.
    pub shape: [u32; 2],
    pub layout: SharedLayout,
    /// Bytes from the start of the slot.
    pub offset: u32,
}

impl Channel {
    /// Bytes from one slot to the next.
    pub fn slot_bytes(&self) -> u32 {
        self.tiles
            .iter()
            .map(|t| t.offset + t.layout.bytes())
            .max()
            .unwrap_or(0)
            .next_multiple_of(self.align())
    }

    /// How `warps` divide tile `tile` where they copy it asynchronously, `width` neighbours at a time.
    pub fn copied(&self, tile: u32, width: u32, warps: u32) -> Layout {
        let tile = &self.tiles[tile as usize];
        let piece = width * tile.elem.bits() / 8;
        match self.barriers {
            Some(_) if piece == CHUNK => layout::put_layout(tile.shape, width, warps),
            _ => layout::copy_layout(tile.shape, width, warps),
        }
    }

    /// How `warps` divide tile `tile` where they copy it through registers, `width` neighbours of `indices` at a time; and how many
    /// neighbours a thread stores at once. Of rows that an index tile chooses, each thread has few.
    pub fn passed(
        &self,
        tile: u32,
        width: u32,
        warps: u32,
        indices: &[tile::Index],
    ) -> (Layout, u32) {
        let tile = &self.tiles[tile as usize];
        let piece = layout::copy_piece(tile.shape, tile.elem).max(width);
        let rows = indices.iter().find(|i| i.extent().is_some());
        let chosen = matches!(rows, Some(tile::Index::Gather { .. }));
        let layout = match self.barriers {
            Some(_) if chosen && piece * tile.elem.bits() / 8 == CHUNK => {
                layout::put_layout(tile.shape, piece, warps)
            }
            _ => layout::copy_layout(tile.shape, piece, warps),
        };
        (layout, piece)
    }

    /// What its slots are aligned to.
    pub fn align(&self) -> u32 {
        match self.barriers {
            Some(_) => SharedLayout::BULK_ALIGN,
            None => SharedLayout::ALIGN,
        }
    }
}

/// How many of a role's warps a tile is divided among: a power of two. Those beyond hold what the first ones do.
pub fn warps_of_layouts(warps: u32) -> u32 {
    match warps.checked_ilog2() {
        Some(bits) => 1 << bits,
        None => 1,
    }
}

impl TensorMap {
    /// Bits of what it counts along its innermost dimension: an element, or of packed ones a byte, as its step there says.
    pub fn unit_bits(&self) -> u32 {
        match self.elem.is_packed() {
            true => self.dims.first().map_or(1, |d| d.step) * self.elem.bits(),
            false => self.elem.bits(),
        }
    }

    /// Bytes of one box.
    pub fn box_bytes(&self) -> u32 {
        let elements: u32 = self.dims.iter().map(|d| d.extent_of_box).product();
        elements * self.unit_bits() / 8
    }
}

/// Shared memory that some operation owns while it runs. Buffers whose operations cannot run at once share bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    pub bytes: u32,
    pub align: u32,
    /// From the start of the block's dynamic shared memory.
    pub offset: Option<u32>,
}

/// The index tiles among the operands of an access, each with the dimension of the accessed tile that it indexes.
pub fn index_tiles(indices: &[tile::Index]) -> Vec<(usize, usize)> {
    let (mut operand, mut next, mut gathered) = (1, 0, 0);
    let mut found = Vec::new();
    for index in indices {
        if let tile::Index::Gather { joined, .. } = *index {
            if !joined {
                gathered = next;
            }
            found.push((operand, gathered));
        }
        operand += index.operands();
        next += usize::from(index.extent().is_some());
    }
    found
}
