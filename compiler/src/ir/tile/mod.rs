//! Tile IR: what a program means.
//!
//! Values are scalars (uniform in the block), tiles (immutable, of static shape) and views (memory). The interpreter
//! executes it as it stands; it is the meaning that every later stage must keep.

mod build;
mod ops;
mod parse;
mod print;
mod roles;
mod types;
mod verify;

pub use build::*;
pub use ops::*;
pub use parse::parse;
pub(in crate::ir) use parse::{
    parse_access_path, parse_atomic, parse_cache, parse_reduce, parse_tile_op,
};
pub(in crate::ir) use print::{access_path, access_rest, reduce_attributes};
pub use types::*;
pub(in crate::ir) use verify::typing;
pub use verify::verify;

use cranelift_entity::PrimaryMap;

use super::{Body, Header};

/// The operations of one kernel body at this level.
pub type TileBody = Body<OpKind, Type>;

/// One body of a kernel instance, for a target's schedule.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub header: Header,
    /// Channels between the roles of `body`; none but at the role level.
    pub channels: PrimaryMap<ChannelId, Channel>,
    pub body: TileBody,
}

/// A kernel with its compile-time arguments, for one target: its bodies in the order in which a launch tries them, the
/// specialised one first, the general one last. All have one signature.
#[derive(Clone, Debug)]
pub struct Instance {
    pub name: String,
    pub bodies: Vec<Kernel>,
    /// What its schedules name for a tuner to try.
    pub tune: Vec<tesserine_set::Tune>,
}
