//! Roles that only fill slots, some tiles by bulk copies and others with columns that they fetch, and two warps for them.
//!
//! One warp for both would begin the next slot's bulk copies only when it is done with this one's columns, and a group of them takes longer than
//! a product: an H200 then multiplied by 8 % less. So a second warp, one that the role's warpgroup has anyway, walks the same loops and fills
//! what bulk copies do not. Both wait for the slots and arrive at them, each with slots and phases of its own.
//!
//! Invariant: what both do beside has no effect.

use super::rings::{self, Rings};
use crate::ir::{
    RegionId,
    tile::{self, OpKind, PutSource, RoleHead, RoleOp},
};

/// What of the slots a role fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    All,
    /// What bulk copies fill.
    Bulk,
    /// What its threads fill.
    Threads,
}

/// Whether a role's work is divided: columns are what it is worth it for, if there is a warp for it.
pub(super) fn divides(
    kernel: &tile::Kernel,
    head: &RoleHead,
    region: RegionId,
    rings: &Rings,
) -> bool {
    if head.warps != 1 || head.replicas != 1 {
        return false;
    }
    let mut ops = Vec::new();
    rings::inside(&kernel.body, region, &mut ops);
    let mut both = false;
    let allowed = ops.iter().all(|&id| match &kernel.body.ops[id].kind {
        OpKind::Role(RoleOp::Put {
            channel,
            sources,
            part: false,
            within: false,
        }) => {
            let fetches = (0..sources.len() as u32).any(|t| rings.stage(id, t).is_some());
            both |= fetches && rings.is_filled_both_ways(*channel);
            let slices = |s: &PutSource| matches!(s, PutSource::Slice { .. });
            !rings.parts.has(*channel) && sources.iter().all(slices)
        }
        OpKind::Constant(_)
        | OpKind::Param(_)
        | OpKind::Dim(_)
        | OpKind::GridIndex(_)
        | OpKind::Unary(_)
        | OpKind::Binary(_)
        | OpKind::Compare(_)
        | OpKind::Fma
        | OpKind::Select
        | OpKind::Cast
        | OpKind::Bitcast
        | OpKind::Load { .. }
        | OpKind::For { .. }
        | OpKind::If
        | OpKind::Yield => true,
        _ => false,
    });
    allowed && both
}
