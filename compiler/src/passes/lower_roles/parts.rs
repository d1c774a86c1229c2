//! Slots that are filled in parts, by one role or by several.
//!
//! Each part arrives at the slot's full barrier by itself. A role that puts several parts waits for the slot at its first one and goes on to
//! the next slot behind its last one, whatever their order. Invariants: parts have constant coordinates and make up the tile; a role fills
//! all of its parts in one way.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    LowerRole, Refused,
    body::{Lower, typed},
    not_yet,
    rings::{self, Uses},
};
use crate::{
    diagnostics::{Diagnostic, codes},
    ir::{
        OpId, ValueId, role,
        tile::{self, BinaryOp, ChannelId, Constant, OpKind, PutSource, RoleOp, Type},
    },
    layout::swizzle::SharedLayout,
};

/// Where a part begins in its tile's rows and columns, and how many it has.
type Place = ([u32; 2], [u32; 2]);

/// The parts of each channel that is filled so, in one block, by role.
#[derive(Default)]
pub(super) struct Parts {
    of: BTreeMap<ChannelId, Vec<BTreeSet<Place>>>,
}

impl Parts {
    pub(super) fn of(kernel: &tile::Kernel, uses: &Uses) -> Result<Parts, Refused> {
        let mut parts = Parts::default();
        for &(role, id) in &uses.puts {
            let op = &kernel.body.ops[id];
            let OpKind::Role(RoleOp::Put {
                channel,
                part: true,
                ..
            }) = op.kind
            else {
                continue;
            };
            if kernel.channels[channel].across.is_some() {
                continue;
            }
            let place = place(kernel, id)?;
            let roles = uses.of_role.len();
            let all = parts
                .of
                .entry(channel)
                .or_insert_with(|| vec![BTreeSet::new(); roles]);
            all[role].insert(place);
        }
        for (&channel, by_role) in &parts.of {
            let declared = &kernel.channels[channel];
            let [rows, columns] = matrix(&declared.tiles[0].shape);
            let all: Vec<&Place> = by_role.iter().flatten().collect();
            let area = |(_, shape): &Place| u64::from(shape[0]) * u64::from(shape[1]);
            let meet = |a: &Place, b: &Place| {
                (0..2).all(|d| a.0[d] < b.0[d] + b.1[d] && b.0[d] < a.0[d] + a.1[d])
            };
            let twice = (1..all.len()).any(|i| all[..i].iter().any(|p| meet(p, all[i])));
            let filled: u64 = all.iter().map(|p| area(p)).sum();
            if twice || filled != u64::from(rows) * u64::from(columns) {
                let name = &declared.name;
                let text = match twice {
                    true => format!("parts that are put into a slot of `{name}` overlap"),
                    false => format!("a slot of `{name}` is never filled"),
                };
                let listed: Vec<String> = all
                    .iter()
                    .map(|(at, shape)| format!("{shape:?} at {at:?}"))
                    .collect();
                let found = Diagnostic::error(codes::E0705, declared.span, text);
                let note = format!("its tile has {rows} by {columns}: {}", listed.join(", "));
                return Err(Box::new(found.note(note)));
            }
        }
        Ok(parts)
    }

    pub(super) fn has(&self, channel: ChannelId) -> bool {
        self.of.contains_key(&channel)
    }

    /// How many of them each role puts.
    pub(super) fn counts(&self, channel: ChannelId) -> Option<Vec<u32>> {
        let of = self.of.get(&channel)?;
        Some(of.iter().map(|parts| parts.len() as u32).collect())
    }
}

/// Rows and columns of a tile of a slot.
fn matrix(shape: &[u32]) -> [u32; 2] {
    match *shape {
        [rows, columns] => [rows, columns],
        [columns] => [1, columns],
        _ => [1, 1],
    }
}

/// The place of what is put by a `put` of a part.
fn place(kernel: &tile::Kernel, id: OpId) -> Result<Place, Refused> {
    let op = &kernel.body.ops[id];
    let OpKind::Role(RoleOp::Put {
        channel, sources, ..
    }) = &op.kind
    else {
        unreachable!("asked for a `put`");
    };
    let rank = kernel.channels[*channel].tiles[0].shape.len();
    let starts = &op.operands[op.operands.len() - rank..];
    let at: Option<Vec<u32>> = starts
        .iter()
        .map(|&v| u32::try_from(constant(&kernel.body, v, 20)?).ok())
        .collect();
    let Some(at) = at else {
        let what = "a part of a slot of one block that does not begin at constants";
        return Err(not_yet(op.span, what));
    };
    let shape: Vec<u32> = match &sources[0] {
        PutSource::Slice { indices, .. } => indices.iter().filter_map(|i| i.extent()).collect(),
        PutSource::Value => kernel.body.ty(op.operands[0]).shape().to_vec(),
    };
    let at = match at[..] {
        [row, column] => [row, column],
        [column] => [0, column],
        _ => [0, 0],
    };
    // A slice of one row fills one.
    Ok((at, matrix(&shape)))
}

/// The value of an integer that only constants make.
fn constant(body: &tile::TileBody, value: ValueId, deep: u32) -> Option<i64> {
    let deep = deep.checked_sub(1)?;
    let op = &body.ops[body.defining_op(value)?];
    let of = |i: usize| constant(body, op.operands[i], deep);
    match op.kind {
        OpKind::Constant(Constant::Int(value, _)) => Some(value),
        OpKind::Cast if body.ty(op.operands[0]).elem().is_int() => of(0),
        OpKind::Binary(BinaryOp::Add) => of(0)?.checked_add(of(1)?),
        OpKind::Binary(BinaryOp::Sub) => of(0)?.checked_sub(of(1)?),
        OpKind::Binary(BinaryOp::Mul) => of(0)?.checked_mul(of(1)?),
        _ => None,
    }
}

impl Lower<'_> {
    /// Fills a part of a slot of this block.
    pub(super) fn put_part(
        &mut self,
        id: OpId,
        channel: ChannelId,
        source: &PutSource,
    ) -> Result<(), Refused> {
        let LowerRole { kernel, number, .. } = self.role;
        let op = &self.from.ops[id];
        let (at, shape) = place(kernel, id)?;
        let ring = self.rings.id(channel);
        let tile_of = self.rings.ring(channel).tiles[0].clone();
        let bulk = match source {
            PutSource::Value => None,
            PutSource::Slice { indices, .. } => {
                let whole_rows = (at[0] * tile_of.layout.pitch)
                    .is_multiple_of(SharedLayout::BULK_ALIGN)
                    && shape[1] == tile_of.shape[1];
                match self.slice(&op.operands, indices, channel, 0) {
                    Ok(slice) if whole_rows && slice.limit.is_none() => Some(slice),
                    Err(missing) if self.bulk_required => {
                        return Err(rings::no_bulk(op.span, &missing));
                    }
                    _ if self.bulk_required => {
                        let missing = "the part does not begin where bulk copies write";
                        return Err(rings::no_bulk(op.span, missing));
                    }
                    _ => None,
                }
            }
        };
        let by_bulk = bulk.is_some();
        let before = *self.parts_by_bulk.entry(channel).or_insert(by_bulk);
        if before != by_bulk {
            let what = "parts of a slot that one role fills in several ways";
            return Err(not_yet(op.span, what));
        }
        let value = match (&bulk, source) {
            (Some(_), _) => None,
            (None, PutSource::Slice { indices, .. }) => {
                let used = indices.iter().map(|i| i.operands()).sum::<usize>();
                let starts = &op.operands[1..1 + used];
                Some(self.loaded(op.operands[0], indices, starts))
            }
            (None, PutSource::Value) => {
                let of = self.value(op.operands[0]);
                let flying = self.state.flying.iter().find(|f| f.value == of);
                if let Some(age) = flying.map(|f| f.age) {
                    self.settle(age);
                }
                Some(self.value(op.operands[0]))
            }
        };
        let Some(place) = self.ring(channel).put else {
            unreachable!("a role that puts has a place");
        };
        if self.ring(channel).parts.is_empty() {
            let kind = role::OpKind::WaitEmpty { channel: ring };
            self.effect(kind, vec![place.slot, place.phase]);
        }
        if !self.ring(channel).parts.insert(at) {
            let what = "a part of a slot that is put again before the others are";
            return Err(not_yet(op.span, what));
        }
        if let (Some(mut slice), PutSource::Slice { indices, cache }) = (bulk, source) {
            slice.cache = *cache;
            let used = indices.iter().map(|i| i.operands()).sum::<usize>();
            let starts: Vec<ValueId> = op.operands[1..1 + used]
                .iter()
                .map(|&v| self.value(v))
                .collect();
            let boxes = self.coordinates(&slice, &starts);
            let bytes = shape[0] * shape[1] * tile_of.elem.bits() / 8;
            let kind = role::OpKind::ExpectBytes {
                channel: ring,
                bytes,
            };
            self.effect(kind, vec![place.slot]);
            for piece in &mut slice.boxes {
                piece.offset += at[0] * tile_of.layout.pitch;
            }
            self.copies(ring, 0, place.slot, &slice, &boxes, None);
        }
        if let Some(mut value) = value {
            let ty = Type::tile(tile_of.elem, shape);
            if self.to.ty(value).ty != ty {
                let kind = role::OpKind::Tile(OpKind::Reshape);
                value = self.made(kind, vec![value], typed(ty));
            }
            let kind = role::OpKind::WriteShared {
                channel: ring,
                tile: 0,
                offsets: at,
            };
            self.effect(kind, vec![value, place.slot]);
            self.effect(role::OpKind::ArriveFull { channel: ring }, vec![place.slot]);
        }
        let all = self.rings.parts.counts(channel);
        let own = all.map_or(1, |counts| counts[number]);
        if self.ring(channel).parts.len() as u32 == own {
            let next = self.advanced(channel, place);
            let ring = self.ring(channel);
            ring.parts.clear();
            ring.put = Some(next);
        }
        Ok(())
    }
}
