//! Role IR: how a kernel runs.
//!
//! A kernel is a list of roles, each a body executed by its own warps; values that are tiles have a [`Layout`], scalars
//! are uniform over the role. Shared memory is a list of buffers with offsets once the allocation pass has run.
//! Today there is one role, of all warps. Tiles that products read pass through channels: rings of slots in shared memory
//! that copies fill some iterations ahead. Which slot an operation means is a scalar that the body carries along.
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

use std::sync::Arc;

use cranelift_entity::{PrimaryMap, entity_impl};

use super::{Body, Header, tile};
use tesserine_set::DType;

use crate::layout::{Layout, swizzle::SharedLayout};

/// A shared-memory buffer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId(u32);
entity_impl!(BufferId, "shared");

/// A channel of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(u32);
entity_impl!(ChannelId, "channel");

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
    /// Bytes of dynamic shared memory, once buffers have offsets.
    pub shared_bytes: u32,
}

/// Warps that execute one body.
#[derive(Clone, Debug)]
pub struct Role {
    pub name: String,
    pub warps: u32,
    pub body: RoleBody,
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
}

/// How the slots of a channel are filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fill {
    /// By asynchronous copies from memory.
    CpAsync,
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
            .next_multiple_of(SharedLayout::ALIGN)
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
