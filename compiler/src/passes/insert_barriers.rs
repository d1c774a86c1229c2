//! Orders what the threads of a block store, and reload or store again.
//!
//! Walks the body with the accesses since the last barrier: those to views that the kernel stores to, and the reads of
//! scratch buffers. An access that meets one of them on bytes that another thread may have touched gets a barrier in
//! front; loops are walked until their back edges bring nothing new. Conversions and reductions through scratch hold a
//! barrier between their stores and loads, which orders everything before them.

use std::{collections::HashSet, ops::Range, sync::Arc};

use cranelift_entity::PrimaryMap;
use tesserine_set::DType;

use super::{access, divisibility::Divisibility};
use crate::{
    diagnostics::Diagnostics,
    ir::{
        OpId, RegionId, ValueDef, ValueId,
        role::{Channel, ChannelId, Kernel, OpKind, RoleBody, Type},
        tile::{self, BinaryOp, Constant, Index},
    },
    layout::Layout,
    span::Span,
    target::Target,
};

pub fn run(kernel: &mut Kernel, _target: Target) -> Result<(), Diagnostics> {
    let offsets = |buffer| {
        let buffer: &crate::ir::role::Buffer = &kernel.buffers[buffer];
        let start = buffer.offset.unwrap_or(0);
        start..start + buffer.bytes
    };
    let mut found = Vec::new();
    for role in &kernel.roles {
        let mut walk = Walk {
            body: &role.body,
            known: Divisibility::of(&kernel.header, &role.body),
            buffers: &offsets,
            channels: &kernel.channels,
            before: HashSet::new(),
        };
        walk.region(role.body.root, Pending::default());
        found.push(walk.before);
    }
    for (role, before) in kernel.roles.iter_mut().zip(found) {
        for region in role.body.regions.keys().collect::<Vec<_>>() {
            insert(&mut role.body, region, &before);
        }
    }
    Ok(())
}

fn insert(body: &mut RoleBody, region: RegionId, before: &HashSet<OpId>) {
    let old = std::mem::take(&mut body.regions[region].ops);
    for id in old {
        if before.contains(&id) {
            let span: Span = body.ops[id].span;
            body.append(
                region,
                OpKind::Barrier,
                Vec::new(),
                Vec::<Type>::new(),
                Vec::new(),
                span,
            );
        }
        body.regions[region].ops.push(id);
    }
}

/// An access to a view that the kernel stores to.
#[derive(Clone, PartialEq)]
struct Touch {
    param: Option<u32>,
    elem: DType,
    stores: bool,
    indices: Vec<Index>,
    operands: Vec<ValueId>,
    layout: Option<Arc<Layout>>,
    /// Made in an earlier pass of the loops with these regions, innermost last: what they vary has changed since.
    earlier: Vec<RegionId>,
}

/// Since the last barrier.
#[derive(Clone, Default, PartialEq)]
struct Pending {
    touches: Vec<Touch>,
    /// Bytes of shared memory that threads may still be reading, or that copies may still fill, and the channel whose
    /// slots they are.
    reads: Vec<(Range<u32>, Option<ChannelId>)>,
}

impl Pending {
    /// Whether a user other than `channel` may still be at these bytes.
    fn is_busy(&self, bytes: &Range<u32>, channel: Option<ChannelId>) -> bool {
        self.reads.iter().any(|(r, own)| {
            let same = channel.is_some() && *own == channel;
            !same && r.start < bytes.end && bytes.start < r.end
        })
    }

    fn merge(&mut self, other: Pending) {
        for touch in other.touches {
            if !self.touches.contains(&touch) {
                self.touches.push(touch);
            }
        }
        for read in other.reads {
            if !self.reads.contains(&read) {
                self.reads.push(read);
            }
        }
    }
}

struct Walk<'a> {
    body: &'a RoleBody,
    known: Divisibility,
    buffers: &'a dyn Fn(crate::ir::role::BufferId) -> Range<u32>,
    channels: &'a PrimaryMap<ChannelId, Channel>,
    /// The operations that get a barrier in front.
    before: HashSet<OpId>,
}

impl Walk<'_> {
    /// What is pending at the end of a region, given what is at its start.
    fn region(&mut self, region: RegionId, mut pending: Pending) -> Pending {
        for &id in &self.body.regions[region].ops {
            pending = self.op(id, pending);
        }
        pending
    }

    fn op(&mut self, id: OpId, mut pending: Pending) -> Pending {
        let op = &self.body.ops[id];
        match &op.kind {
            OpKind::Barrier => return Pending::default(),
            OpKind::Load { indices, .. } => {
                let tile::Type::View(view) = &self.body.ty(op.operands[0]).ty else {
                    return pending;
                };
                if view.access == tesserine_set::Access::Read {
                    return pending;
                }
                let layout = self.body.ty(op.results[0]).layout.clone();
                let touch = self.touch(id, indices, layout, false);
                self.add(id, touch, &mut pending);
            }
            OpKind::Store { indices, .. } => {
                let value = op.operands[op.operands.len() - 1];
                let layout = self.body.ty(value).layout.clone();
                let touch = self.touch(id, indices, layout, true);
                self.add(id, touch, &mut pending);
            }
            OpKind::Atomic {
                indices, scratch, ..
            } => {
                let layout = self.body.ty(op.results[0]).layout.clone();
                let touch = self.touch(id, indices, layout, true);
                self.add(id, touch, &mut pending);
                if let Some(buffer) = scratch {
                    let bytes = (self.buffers)(*buffer);
                    if pending.is_busy(&bytes, None) {
                        self.before.insert(id);
                    }
                    // Its barrier stands between what it does in memory and all that follows.
                    return Pending {
                        touches: Vec::new(),
                        reads: vec![(bytes, None)],
                    };
                }
            }
            OpKind::Convert {
                scratch: Some(buffer),
            }
            | OpKind::Reduce {
                scratch: Some(buffer),
                ..
            }
            | OpKind::Arrive {
                scratch: Some(buffer),
                ..
            }
            | OpKind::Through {
                scratch: Some(buffer),
                ..
            } => {
                let bytes = (self.buffers)(*buffer);
                if pending.is_busy(&bytes, None) {
                    self.before.insert(id);
                }
                // Its own barrier orders all that came before.
                return Pending {
                    touches: Vec::new(),
                    reads: vec![(bytes, None)],
                };
            }
            // What threads do with slots of one channel, `pipeline` has ordered.
            OpKind::CopyAsync { channel, .. }
            | OpKind::Copy { channel, .. }
            | OpKind::WriteShared { channel, .. }
            | OpKind::ReadShared { channel, .. } => {
                let bytes = (self.buffers)(self.channels[*channel].buffer);
                let fills = !matches!(op.kind, OpKind::ReadShared { .. });
                if fills && pending.is_busy(&bytes, Some(*channel)) {
                    self.before.insert(id);
                    pending = Pending::default();
                }
                let read = (bytes, Some(*channel));
                if !pending.reads.contains(&read) {
                    pending.reads.push(read);
                }
            }
            OpKind::Tile(tile::OpKind::If) => {
                let mut merged = Pending::default();
                for &region in &op.regions {
                    merged.merge(self.region(region, pending.clone()));
                }
                return merged;
            }
            OpKind::Tile(tile::OpKind::For { .. } | tile::OpKind::While) => {
                let regions = op.regions.clone();
                let mut entry = pending.clone();
                loop {
                    let mut end = entry.clone();
                    for &region in &regions {
                        end = self.region(region, end);
                        // A loop may end after any of its regions.
                        pending.merge(end.clone());
                    }
                    for touch in &mut end.touches {
                        if !touch.earlier.contains(&regions[0]) {
                            touch.earlier.extend(&regions);
                        }
                    }
                    let before = entry.clone();
                    entry.merge(end);
                    if entry == before {
                        break;
                    }
                }
            }
            _ => {}
        }
        pending
    }

    fn touch(
        &self,
        id: OpId,
        indices: &[Index],
        layout: Option<Arc<Layout>>,
        stores: bool,
    ) -> Touch {
        let operands = &self.body.ops[id].operands;
        Touch {
            param: access::param(self.body, operands[0]),
            elem: self.body.ty(operands[0]).ty.elem(),
            stores,
            indices: indices.to_vec(),
            operands: operands[1..]
                .iter()
                .take(indices.iter().map(|i| i.operands()).sum())
                .copied()
                .collect(),
            layout,
            earlier: Vec::new(),
        }
    }

    fn add(&mut self, id: OpId, touch: Touch, pending: &mut Pending) {
        if pending.touches.iter().any(|p| self.conflict(p, &touch)) {
            self.before.insert(id);
            *pending = Pending::default();
        }
        if !pending.touches.contains(&touch) {
            pending.touches.push(touch);
        }
    }

    /// Whether the two may touch the same bytes from different threads, one of them storing.
    fn conflict(&self, earlier: &Touch, later: &Touch) -> bool {
        if earlier.param != later.param || !(earlier.stores || later.stores) {
            return false;
        }
        if earlier.indices != later.indices || earlier.elem != later.elem {
            return true;
        }
        let mut at = 0;
        let mut varies = false;
        let mut same_places = true;
        for index in &later.indices {
            let operands = at..at + index.operands();
            at = operands.end;
            // Other rows are other elements, and limits only leave some out: only starts matter.
            if let Index::Range { len, .. } = *index {
                let (a, b) = (
                    earlier.operands[operands.start],
                    later.operands[operands.start],
                );
                let moved = earlier.earlier.iter().any(|&r| self.inside(b, r));
                // Starts at multiples of the length: all elements are the same, or none.
                let tiled = |v| len.is_power_of_two() && self.known.twos(v) >= len.trailing_zeros();
                varies |= a == b && moved;
                same_places &= (a == b && !moved) || (tiled(a) && tiled(b));
            }
            if let Index::Gather { .. } = index {
                let (a, b) = (
                    earlier.operands[operands.start],
                    later.operands[operands.start],
                );
                let moved = earlier.earlier.iter().any(|&r| self.inside(b, r));
                same_places &= a == b && !moved;
            }
        }
        if varies && earlier.operands == later.operands && self.disjoint(earlier) {
            return false;
        }
        // The same elements at the same place in the tile belong to the same thread. What has replicas is read by all
        // of them, and stored by the first.
        let in_one_thread = match (&earlier.layout, &later.layout) {
            (Some(a), Some(b)) => {
                let replicas = a.replicated_lanes() != 0 || a.replicated_warps() != 0;
                a == b && (!replicas || (earlier.stores && later.stores))
            }
            (None, None) => earlier.stores && later.stores,
            _ => false,
        };
        !(same_places && in_one_thread)
    }

    /// Whether passes of a loop touch different elements: in one dimension the start is the loop's index times at least
    /// the length, and only that varies.
    fn disjoint(&self, touch: &Touch) -> bool {
        let mut at = 0;
        for index in &touch.indices {
            let start = touch.operands.get(at);
            if start.is_some_and(|&v| touch.earlier.iter().any(|&r| self.inside(v, r))) {
                let length = index.extent().unwrap_or(1);
                let by_index = self
                    .stride(touch.operands[at], &touch.earlier)
                    .is_some_and(|stride| stride.unsigned_abs() >= u64::from(length));
                if by_index {
                    return true;
                }
            }
            at += index.operands();
        }
        false
    }

    /// The constant factor of the index of one of `loops` in `value = index * factor`, if it is that and nothing else,
    /// and only one loop varies.
    fn stride(&self, value: ValueId, loops: &[RegionId]) -> Option<i64> {
        let index_of = |v: ValueId| match self.body.values[v].def {
            ValueDef::Argument { region, index: 0 } => {
                loops.contains(&region) && self.is_for(region) && loops.len() == 1
            }
            _ => false,
        };
        if index_of(value) {
            return Some(1);
        }
        let op = &self.body.ops[self.body.defining_op(value)?];
        match op.kind {
            OpKind::Tile(tile::OpKind::Binary(BinaryOp::Mul)) => {
                let (a, b) = (op.operands[0], op.operands[1]);
                if index_of(a) {
                    self.constant(b)
                } else if index_of(b) {
                    self.constant(a)
                } else {
                    None
                }
            }
            OpKind::Tile(tile::OpKind::Binary(BinaryOp::Add)) => {
                let (a, b) = (op.operands[0], op.operands[1]);
                let fixed = |v| !loops.iter().any(|&r| self.inside(v, r));
                match (fixed(a), fixed(b)) {
                    (false, true) => self.stride(a, loops),
                    (true, false) => self.stride(b, loops),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn constant(&self, value: ValueId) -> Option<i64> {
        match self.body.ops[self.body.defining_op(value)?].kind {
            OpKind::Tile(tile::OpKind::Constant(Constant::Int(value, _))) => Some(value),
            _ => None,
        }
    }

    fn is_for(&self, region: RegionId) -> bool {
        self.body.ops.values().any(|op| {
            op.regions.contains(&region)
                && matches!(op.kind, OpKind::Tile(tile::OpKind::For { .. }))
        })
    }

    /// Whether `value` is defined in `region` or a region within.
    fn inside(&self, value: ValueId, region: RegionId) -> bool {
        let body = self.body;
        match body.values[value].def {
            ValueDef::Argument { region: own, .. } => contains(body, region, own),
            ValueDef::Result { op, .. } => holds(body, region, op),
        }
    }
}

fn contains(body: &RoleBody, outer: RegionId, inner: RegionId) -> bool {
    outer == inner
        || body.regions[outer].ops.iter().any(|&id| {
            body.ops[id]
                .regions
                .iter()
                .any(|&r| contains(body, r, inner))
        })
}

fn holds(body: &RoleBody, region: RegionId, op: OpId) -> bool {
    body.regions[region]
        .ops
        .iter()
        .any(|&id| id == op || body.ops[id].regions.iter().any(|&r| holds(body, r, op)))
}
