//! Kernels whose roles all ask the same first: what a block does is one of several things, and each can be checked by itself.
//!
//! Sound, since a block that ends leaves no slot held. Of other scalars it is not known what the condition says of them, but where they are
//! chosen by it; so this is for kernels that are too much to check as a whole.

use std::collections::{HashMap, HashSet};

use cranelift_entity::PrimaryMap;

use crate::{
    ir::{
        OpId, RegionId, ValueId,
        tile::{Channel, ChannelId, Constant, Kernel, OpKind, RoleOp, TileBody},
    },
    span::Span,
};

/// A kernel for each branch of the condition that all roles ask first, if there is one.
pub(super) fn split(kernel: &Kernel, regions: &[RegionId]) -> Option<[Kernel; 2]> {
    let body = &kernel.body;
    let mut condition: Option<ValueId> = None;
    // By role, the place of its `if`.
    let mut places: Vec<Option<usize>> = Vec::new();
    for &region in regions {
        let ops = &body.regions[region].ops;
        let mut acting = (0..ops.len()).filter(|&i| acts(body, ops[i]));
        let (first, second) = (acting.next(), acting.next());
        places.push(first);
        let Some(first) = first else { continue };
        let op = &body.ops[ops[first]];
        let asked = op.operands.first().copied();
        let before = asked.and_then(|v| body.defining_op(v));
        let shared = before.is_some_and(|d| body.regions[body.root].ops.contains(&d));
        let same = condition.is_none() || condition == asked;
        if op.kind != OpKind::If || second.is_some() || !shared || !same {
            return None;
        }
        condition = asked;
    }
    let condition = condition?;
    Some([0, 1].map(|arm| {
        let mut part = kernel.clone();
        for (&region, place) in regions.iter().zip(&places) {
            let Some(place) = *place else { continue };
            let ops = &body.regions[region].ops;
            let inner = body.ops[ops[place]].regions[arm];
            let mut new = ops[..place].to_vec();
            let arm = &body.regions[inner].ops;
            new.extend(&arm[..arm.len() - 1]);
            new.extend(&ops[place + 1..]);
            part.body.regions[region].ops = new;
        }
        known(&mut part.body, condition, arm == 0);
        only_used(&mut part);
        part
    }))
}

/// Says that `condition` is `holds`.
fn known(body: &mut TileBody, condition: ValueId, holds: bool) {
    let span = body
        .defining_op(condition)
        .map_or(Span::NONE, |op| body.ops[op].span);
    let (root, ty) = (body.root, body.ty(condition).clone());
    let kind = OpKind::Constant(Constant::Bool(holds));
    let op = body.append(root, kind, Vec::new(), vec![ty], Vec::new(), span);
    let value = body.ops[op].results[0];
    body.regions[root].ops.rotate_right(1);
    for op in body.ops.values_mut() {
        let uses = op.operands.iter_mut().filter(|v| **v == condition);
        uses.for_each(|v| *v = value);
    }
}

/// Whether an operation, or one inside it, does something with channels, products or turns.
fn acts(body: &TileBody, id: OpId) -> bool {
    let op = &body.ops[id];
    let own = matches!(&op.kind, OpKind::Role(kind) if !matches!(kind, RoleOp::Require(_)));
    let mut inner = op.regions.iter().flat_map(|&r| &body.regions[r].ops);
    own || inner.any(|&op| acts(body, op))
}

fn all(body: &TileBody, region: RegionId, out: &mut Vec<OpId>) {
    for &id in &body.regions[region].ops {
        out.push(id);
        for &inner in &body.ops[id].regions {
            all(body, inner, out);
        }
    }
}

/// Leaves out the channels that nobody uses.
fn only_used(kernel: &mut Kernel) {
    let mut ops = Vec::new();
    all(&kernel.body, kernel.body.root, &mut ops);
    let mut used: HashSet<ChannelId> = HashSet::new();
    for &id in &ops {
        if let OpKind::Role(
            RoleOp::Put { channel, .. } | RoleOp::Get { channel } | RoleOp::Release { channel, .. },
        ) = &kernel.body.ops[id].kind
        {
            used.insert(*channel);
        }
    }
    let mut numbers: HashMap<ChannelId, ChannelId> = HashMap::new();
    let mut channels = PrimaryMap::new();
    for (id, channel) in kernel.channels.iter().filter(|(id, _)| used.contains(id)) {
        let new = Channel {
            over: channel.over.and_then(|over| numbers.get(&over).copied()),
            ..channel.clone()
        };
        numbers.insert(id, channels.push(new));
    }
    kernel.channels = channels;
    for id in ops {
        if let OpKind::Role(
            RoleOp::Put { channel, .. } | RoleOp::Get { channel } | RoleOp::Release { channel, .. },
        ) = &mut kernel.body.ops[id].kind
        {
            *channel = numbers[channel];
        }
    }
}
