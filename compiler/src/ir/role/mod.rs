//! Role IR: how a kernel runs.
//!
//! A kernel is a list of roles, each a body executed by its own warps; values that are tiles have a [`Layout`], scalars
//! are uniform over the role. Shared memory is a list of buffers with offsets once the allocation pass has run.
//! Today there is one role, of all warps; channels, pending products and asynchronous copies will join it here.
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
use crate::layout::Layout;

/// A shared-memory buffer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId(u32);
entity_impl!(BufferId, "shared");

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

/// Shared memory that some operation owns while it runs. Buffers whose operations cannot run at once share bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    pub bytes: u32,
    pub align: u32,
    /// From the start of the block's dynamic shared memory.
    pub offset: Option<u32>,
}
