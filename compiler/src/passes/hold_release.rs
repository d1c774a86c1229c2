//! A slot that is given back between two waits for products is given back behind the maxima that stand there.
//!
//! `ptxas` moves a wait for a product up to the operation that it may not pass, the release of a slot, past arithmetic that could run under that
//! product. Attention's second wait of a block then stands before the maxima of the scores, and warps stand still in which there is
//! work: 3 to 4 % of the kernel. The release takes the last maximum as an operand; for the one who waits for the slot, a block of keys ahead, that is
//! soon enough. Behind the exponentials it would be too late.
//!
//! Invariants: the release stays between the two waits, and nothing that it could be waited for by is between its old place and its new one.

use crate::{
    diagnostics::Diagnostics,
    ir::{
        OpId, RegionId, ValueId,
        role::{Kernel, OpKind, RoleBody},
        tile::{OpKind as Tile, ReduceOp},
    },
    target::Target,
};
use tesserine_set::DType;

pub fn run(kernel: &mut Kernel, _: Target) -> Result<(), Diagnostics> {
    for role in &mut kernel.roles {
        let body = &mut role.body;
        let regions: Vec<RegionId> = body.regions.keys().collect();
        for region in regions {
            hold(body, region);
        }
    }
    Ok(())
}

fn hold(body: &mut RoleBody, region: RegionId) {
    let ops = body.regions[region].ops.clone();
    let waits = |id: OpId| match body.ops[id].kind {
        OpKind::WaitProducts { pending } => Some(pending),
        _ => None,
    };
    let places: Vec<usize> = (0..ops.len())
        .filter(|&at| waits(ops[at]).is_some())
        .collect();
    let mut moves = Vec::new();
    for pair in places.windows(2) {
        let between = &ops[pair[0] + 1..pair[1]];
        if waits(ops[pair[0]]) == Some(0) {
            continue;
        }
        let release = between.iter().position(|&id| is_release(body, id));
        let last = between.iter().rposition(|&id| maximum(body, id).is_some());
        let (Some(release), Some(last)) = (release, last) else {
            continue;
        };
        let passed = &between[release.min(last)..last];
        let first = passed.first().copied();
        let others = passed.iter().filter(|&&id| Some(id) != first);
        if release < last && others.into_iter().all(|&id| has_no_effect(body, id)) {
            let from = pair[0] + 1 + release;
            moves.push((from, pair[0] + 1 + last));
        }
    }
    for (from, to) in moves.into_iter().rev() {
        let Some(after) = maximum(body, ops[to]) else {
            continue;
        };
        body.ops[ops[from]].operands.push(after);
        body.regions[region].ops[from..=to].rotate_left(1);
    }
}

fn is_release(body: &RoleBody, id: OpId) -> bool {
    let op = &body.ops[id];
    matches!(op.kind, OpKind::ArriveEmpty { .. }) && op.operands.len() == 1
}

/// The result of a maximum over lanes.
fn maximum(body: &RoleBody, id: OpId) -> Option<ValueId> {
    let op = &body.ops[id];
    let is = match &op.kind {
        OpKind::Reduce {
            op, axis: Some(_), ..
        } => matches!(op, ReduceOp::Max | ReduceOp::Min),
        _ => false,
    };
    let result = *op.results.first()?;
    let f32 = body.ty(result).ty.elem() == DType::F32;
    (is && f32 && !body.ty(result).ty.shape().is_empty()).then_some(result)
}

/// Whether a release may as well stand behind the operation.
fn has_no_effect(body: &RoleBody, id: OpId) -> bool {
    let op = &body.ops[id];
    let inside = op.regions.iter().flat_map(|&r| &body.regions[r].ops);
    let own = match &op.kind {
        OpKind::Tile(kind) => !matches!(
            kind,
            Tile::Store { .. } | Tile::Atomic { .. } | Tile::Arrive { .. }
        ),
        OpKind::Reduce { scratch, .. } | OpKind::Convert { scratch } => scratch.is_none(),
        _ => false,
    };
    own && inside.copied().all(|id| has_no_effect(body, id))
}
