//! A slot is given back right behind the last operation that reads it, however late its author writes `release`.
//!
//! Who fills it may then go on while the role still works with what it has made of it: the next tile's queries arrive under the last product
//! and the stores of this one.
//!
//! Invariants: nothing that reads a slot of the channel, and nothing else that is done with the channel, is passed; a `release` with a `lag`
//! stays, since that counts the products around it. Roles cannot tell: a slot that is free sooner only ends a wait sooner.

use std::collections::HashSet;

use super::lower_roles;
use crate::ir::{
    OpId, RegionId, ValueId,
    tile::{ChannelId, Kernel, OpKind, RoleOp, TileBody},
};

pub fn run(kernel: &mut Kernel) {
    if lower_roles::roles_of(kernel).is_none() {
        return;
    }
    let regions: Vec<RegionId> = kernel.body.regions.keys().collect();
    for region in regions {
        for at in 0..kernel.body.regions[region].ops.len() {
            let id = kernel.body.regions[region].ops[at];
            let OpKind::Role(RoleOp::Release { channel, lag: None }) = kernel.body.ops[id].kind
            else {
                continue;
            };
            let before = &kernel.body.regions[region].ops[..at];
            let passed = before
                .iter()
                .rev()
                .take_while(|&&op| !concerns(&kernel.body, op, channel))
                .count();
            kernel.body.regions[region].ops[at - passed..=at].rotate_right(1);
        }
    }
}

/// Whether the operation, or one inside it, does something with the channel or reads a slot of it.
fn concerns(body: &TileBody, id: OpId, channel: ChannelId) -> bool {
    let op = &body.ops[id];
    let own = match &op.kind {
        OpKind::Role(
            RoleOp::Put { channel: of, .. }
            | RoleOp::Get { channel: of }
            | RoleOp::Release { channel: of, .. },
        ) => *of == channel,
        _ => false,
    };
    let inside = op.regions.iter().flat_map(|&r| &body.regions[r].ops);
    own || op
        .operands
        .iter()
        .any(|&v| lies_in(body, v, channel, &mut HashSet::new()))
        || inside.copied().any(|id| concerns(body, id, channel))
}

/// Whether the value may be a tile of a slot of the channel, read in place.
fn lies_in(
    body: &TileBody,
    value: ValueId,
    channel: ChannelId,
    seen: &mut HashSet<ValueId>,
) -> bool {
    if !seen.insert(value) {
        return false;
    }
    let Some(id) = body.defining_op(value) else {
        // A loop's or a branch's: only what `get` gives is read in place, and that is not carried.
        return false;
    };
    let op = &body.ops[id];
    match &op.kind {
        OpKind::Role(RoleOp::Get { channel: of }) => *of == channel,
        OpKind::Permute(_) | OpKind::Reshape | OpKind::Slice(_) => {
            op.operands.iter().any(|&v| lies_in(body, v, channel, seen))
        }
        _ => false,
    }
}
