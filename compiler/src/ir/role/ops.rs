//! The operations of role IR: those of tile IR, some of them with what the target needs to know.

use super::BufferId;
use crate::ir::tile;

/// What an operation does, with its attributes. Operands and results are as in tile IR where nothing is said.
#[derive(Clone, Debug, PartialEq)]
pub enum OpKind {
    /// All of tile IR but `load`, `store` and `reduce`.
    Tile(tile::OpKind),
    /// As in tile IR. `width` neighbouring elements along the last dimension are fetched by one access: they lie in
    /// `width` consecutive registers, and alignment is proven.
    Load {
        indices: Vec<tile::Index>,
        cache: tile::Cache,
        width: u32,
    },
    /// As in tile IR, with `width` as above.
    Store {
        indices: Vec<tile::Index>,
        cache: tile::Cache,
        width: u32,
    },
    /// As in tile IR: within threads, then by shuffles over lanes, then through `scratch` over warps. It owns the
    /// barriers that `scratch` needs, before and after its use.
    Reduce {
        op: tile::ReduceOp,
        axis: Option<u32>,
        scratch: Option<BufferId>,
    },
    /// `t -> t` of another layout: through `scratch`, with the barriers that it needs before and after, or by moving
    /// registers if there is none.
    Convert { scratch: Option<BufferId> },
    /// All threads of the role arrive and see each other's stores.
    Barrier,
}
