//! Writes one role's body.

use std::collections::{BTreeSet, HashMap, HashSet};

use cranelift_entity::PrimaryMap;
use tesserine_set::DType;

use super::{
    LowerRole, Refused, copies,
    flight::{Flying, Freed, Held, Place, Ring, State},
    forms::{Form, Lies},
    not_yet,
    rings::{self, Piece, Rings, Slice, Uses},
    shares::Share,
};
use crate::{
    ir::{
        OpId, RegionId, ValueId,
        role::{self, MapId, ProductOperand, RoleBody, SlotPart, TensorMap},
        tile::{
            self, BinaryOp, ChannelId, CompareOp, Constant, Index, OpKind, PutSource, RoleOp, Type,
        },
    },
    layout::{fragments, swizzle::SharedLayout},
    passes::form_roles,
    span::Span,
    target::Feature,
};

/// What a value of tile IR is in the role's body.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bound {
    Value(ValueId),
    /// A tile of a slot, which is read in place.
    Slot(SlotTile),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct SlotTile {
    channel: ChannelId,
    tile: u32,
    slot: ValueId,
    /// `None`: all of the tile.
    part: Option<SlotPart>,
    transposed: bool,
}

/// Writes a role's body.
pub(super) struct Lower<'a> {
    pub(super) role: LowerRole<'a>,
    pub(super) from: &'a tile::TileBody,
    pub(super) uses: &'a Uses,
    pub(super) rings: &'a Rings,
    maps: &'a mut PrimaryMap<MapId, TensorMap>,
    pub(super) to: RoleBody,
    pub(super) bound: HashMap<ValueId, Bound>,
    pub(super) state: State,
    /// The values that products are by now, by their keys.
    pub(super) latest: HashMap<u32, ValueId>,
    next_key: u32,
    /// Products are computed by each warp's own instructions (`mma.sync`), as is required for the rest of this block.
    pub(super) by_warps: bool,
    /// What is put must be by bulk copies.
    pub(super) bulk_required: bool,
    /// Of channels that are filled in parts: whether by bulk copies.
    pub(super) parts_by_bulk: HashMap<ChannelId, bool>,
    /// Where operations go.
    pub(super) into: RegionId,
    pub(super) span: Span,
}

impl<'a> Lower<'a> {
    pub(super) fn role(
        role: LowerRole<'a>,
        uses: &'a Uses,
        rings: &'a Rings,
        maps: &'a mut PrimaryMap<MapId, TensorMap>,
    ) -> Result<RoleBody, Refused> {
        let to = RoleBody::new();
        let into = to.root;
        let mut lower = Lower {
            role,
            from: &role.kernel.body,
            uses,
            rings,
            maps,
            to,
            bound: HashMap::new(),
            state: State::default(),
            latest: HashMap::new(),
            next_key: 0,
            by_warps: false,
            bulk_required: false,
            parts_by_bulk: HashMap::new(),
            into,
            span: role.kernel.header.span,
        };
        lower.whole()?;
        Ok(lower.to)
    }

    fn whole(&mut self) -> Result<(), Refused> {
        for (&channel, used) in &self.uses.of_role[self.role.number] {
            let mut place = |is: bool| {
                is.then(|| {
                    let [slot, phase] = [(); 2].map(|()| {
                        self.to
                            .add_argument(self.into, typed(Type::Scalar(DType::I32)))
                    });
                    Place { slot, phase }
                })
            };
            let ring = Ring {
                put: place(used.puts && !self.rings.storage.is_over(channel)),
                get: place(used.gets),
                held: Vec::new(),
                parts: BTreeSet::new(),
            };
            self.state.channels.insert(channel, ring);
        }
        self.shared()?;
        self.ops(self.role.region)?;
        self.settle(0);
        if let Some(ring) = self.state.channels.values().find(|r| !r.held.is_empty()) {
            let held = ring.held.len();
            return Err(not_yet(self.span, format!("{held} slots held at the end")));
        }
        if self.state.channels.values().any(|r| !r.parts.is_empty()) {
            let what = "a slot some of whose parts are missing at the end";
            return Err(not_yet(self.span, what));
        }
        let state = self.places();
        let kind = role::OpKind::Tile(OpKind::Return);
        self.effect(kind, state);
        Ok(())
    }

    /// The scalars that roles share and that this one needs. What else stands there is the first role's.
    fn shared(&mut self) -> Result<(), Refused> {
        let root = &self.from.regions[self.from.root].ops;
        let mut needed: HashSet<ValueId> = HashSet::new();
        let mut ops = Vec::new();
        rings::inside(self.from, self.role.region, &mut ops);
        needed.extend(ops.iter().flat_map(|&id| &self.from.ops[id].operands));
        let mut taken: BTreeSet<OpId> = BTreeSet::new();
        for &id in root.iter().rev() {
            let op = &self.from.ops[id];
            let effect = matches!(
                op.kind,
                OpKind::Store { .. }
                    | OpKind::Atomic { .. }
                    | OpKind::Assert { .. }
                    | OpKind::Debug { .. }
            );
            let last = matches!(op.kind, OpKind::Return | OpKind::Role(_));
            let first = self.role.number == 0 && self.role.share != Share::Threads;
            if !last && (effect && first || op.results.iter().any(|r| needed.contains(r))) {
                taken.insert(id);
                let mut inner = vec![id];
                for &region in &op.regions {
                    rings::inside(self.from, region, &mut inner);
                }
                needed.extend(inner.iter().flat_map(|&id| &self.from.ops[id].operands));
            }
        }
        for &id in root {
            if taken.contains(&id) {
                self.op(id)?;
            }
        }
        Ok(())
    }

    /// All operations of a region but its terminator.
    pub(super) fn ops(&mut self, region: RegionId) -> Result<(), Refused> {
        let around = self.by_warps;
        for &id in &self.from.regions[region].ops {
            if !matches!(self.from.ops[id].kind, OpKind::Yield | OpKind::Return) {
                self.op(id)?;
            }
        }
        self.by_warps = around;
        Ok(())
    }

    pub(super) fn op(&mut self, id: OpId) -> Result<(), Refused> {
        let op = &self.from.ops[id];
        let around = std::mem::replace(&mut self.span, op.span);
        let done = self.one(id);
        self.span = around;
        done
    }

    fn one(&mut self, id: OpId) -> Result<(), Refused> {
        let op = &self.from.ops[id];
        match &op.kind {
            OpKind::Role(kind) => self.role_op(id, kind),
            OpKind::For { .. } | OpKind::If | OpKind::While => self.control(id),
            OpKind::Permute(perm) if perm[..] == [1, 0] => {
                let Bound::Slot(tile) = self.bound[&op.operands[0]] else {
                    return self.plain(id);
                };
                let turned = SlotTile {
                    transposed: !tile.transposed,
                    ..tile
                };
                self.bound.insert(op.results[0], Bound::Slot(turned));
                Ok(())
            }
            // Packed elements are widened as they are read.
            OpKind::Cast if self.is_packed_slot(op.operands[0]) => {
                let Bound::Slot(tile) = self.bound[&op.operands[0]] else {
                    unreachable!("it is a slot's tile");
                };
                let ty = self.from.ty(op.results[0]).clone();
                if tile.transposed || !matches!(ty.elem(), DType::F16 | DType::Bf16) {
                    return Err(packed(self.span));
                }
                let kind = role::OpKind::ReadShared {
                    channel: self.rings.id(tile.channel),
                    tile: tile.tile,
                    offsets: [0, 0],
                    transposed: false,
                };
                let value = self.made(kind, vec![tile.slot], typed(ty));
                self.bound.insert(op.results[0], Bound::Value(value));
                Ok(())
            }
            _ if op.operands.iter().any(|&v| self.is_packed_slot(v)) => Err(packed(self.span)),
            OpKind::Slice(offsets) => {
                let Bound::Slot(tile) = self.bound[&op.operands[0]] else {
                    return self.plain(id);
                };
                let shape = self.from.ty(op.results[0]).shape();
                let cut = self.cut(tile, offsets, shape);
                self.bound.insert(op.results[0], Bound::Slot(cut));
                Ok(())
            }
            // Products read f32 in a slot as tf32.
            OpKind::Cast
                if self.from.ty(op.results[0]).elem() == DType::Tf32
                    && self.from.ty(op.operands[0]).elem() == DType::F32
                    && matches!(self.bound[&op.operands[0]], Bound::Slot(_)) =>
            {
                let tile = self.bound[&op.operands[0]];
                self.bound.insert(op.results[0], tile);
                Ok(())
            }
            // A product that is over.
            OpKind::Cast if matches!(self.from.ty(op.results[0]), Type::Pending(_)) => {
                let value = self.value(op.operands[0]);
                self.bound.insert(op.results[0], Bound::Value(value));
                Ok(())
            }
            OpKind::Store { indices, .. } => {
                let value = op.operands[op.operands.len() - 1];
                if let Bound::Slot(tile) = self.bound[&value]
                    && self.stored_bulk(id, indices, tile)
                {
                    return Ok(());
                }
                self.plain(id)
            }
            OpKind::Dot => self.product_by_warps(id),
            _ => self.plain(id),
        }
    }

    /// Whether the value is a tile of a slot whose elements share bytes.
    fn is_packed_slot(&self, value: ValueId) -> bool {
        let Some(Bound::Slot(tile)) = self.bound.get(&value) else {
            return false;
        };
        self.rings.ring(tile.channel).tiles[tile.tile as usize]
            .elem
            .is_packed()
    }

    /// An operation that is the same in role IR.
    fn plain(&mut self, id: OpId) -> Result<(), Refused> {
        let op = &self.from.ops[id];
        let operands = op.operands.iter().map(|&v| self.value(v)).collect();
        let kind = form_roles::plain(op.kind.clone());
        let types = op.results.iter().map(|&r| typed(as_tile(self.from.ty(r))));
        let new = self.to.append(
            self.into,
            kind,
            operands,
            types.collect(),
            Vec::new(),
            op.span,
        );
        for (&old, &new) in op.results.iter().zip(&self.to.ops[new].results) {
            self.bound.insert(old, Bound::Value(new));
        }
        Ok(())
    }

    fn role_op(&mut self, id: OpId, kind: &RoleOp) -> Result<(), Refused> {
        let op = &self.from.ops[id];
        match kind {
            RoleOp::Put {
                channel,
                sources,
                part,
                within,
            } => match within {
                true => self.handed_on(id, *channel, sources.len()),
                false if self.rings.parts.has(*channel) => self.put_part(id, *channel, &sources[0]),
                false => self.put(id, *channel, sources, *part),
            },
            RoleOp::Get { channel } => {
                let Some(place) = self.ring(*channel).get else {
                    unreachable!("a role that gets has a place");
                };
                self.effect(
                    role::OpKind::WaitFull {
                        channel: self.rings.id(*channel),
                    },
                    vec![place.slot, place.phase],
                );
                for (tile, &result) in op.results.iter().enumerate() {
                    let tile = SlotTile {
                        channel: *channel,
                        tile: tile as u32,
                        slot: place.slot,
                        part: None,
                        transposed: false,
                    };
                    self.bound.insert(result, Bound::Slot(tile));
                }
                let next = self.advanced(*channel, place);
                let ring = self.ring(*channel);
                ring.get = Some(next);
                ring.held.push(Held {
                    slot: place.slot,
                    read: None,
                });
                Ok(())
            }
            RoleOp::Release { channel, lag } => self.release(*channel, *lag),
            RoleOp::Mma => self.mma(id),
            RoleOp::Await { .. } => {
                let of = self.value(op.operands[0]);
                let flying = self.state.flying.iter().find(|f| f.value == of);
                if let Some(age) = flying.map(|f| f.age) {
                    self.settle(age);
                }
                let value = self.value(op.operands[0]);
                self.bound.insert(op.results[0], Bound::Value(value));
                Ok(())
            }
            RoleOp::Require(feature) => {
                self.bulk_required |= *feature == tile::Feature::Bulk;
                self.by_warps |= *feature == tile::Feature::MmaSync;
                self.by_warps &= *feature != tile::Feature::Wgmma;
                Ok(())
            }
            RoleOp::Pingpong => self.in_turn(id),
            RoleOp::Roles(_) => Err(not_yet(op.span, "roles within roles")),
        }
    }

    fn put(
        &mut self,
        id: OpId,
        channel: ChannelId,
        sources: &[PutSource],
        part: bool,
    ) -> Result<(), Refused> {
        let op = &self.from.ops[id];
        let ring = self.rings.id(channel);
        let Some(place) = self.ring(channel).put else {
            unreachable!("a role that puts has a place");
        };
        let mut at = 0;
        let mut slices = Vec::new();
        let mut staged = Vec::new();
        let mut copied = Vec::new();
        let mut values = Vec::new();
        let mut limits = Vec::new();
        for (number, source) in sources.iter().enumerate() {
            let tile = number as u32;
            match source {
                PutSource::Slice { indices, cache } => {
                    let used = indices.iter().map(|i| i.operands()).sum::<usize>();
                    let starts = &op.operands[at + 1..at + 1 + used];
                    let bulk = self.slice(&op.operands[at..], indices, channel, tile);
                    let landing = self.rings.landing(channel).is_some();
                    match bulk.and_then(|s| match s.limit.is_some() && !landing {
                        true => Err(
                            "a slice with a limit, and not of one warp that puts nothing else"
                                .into(),
                        ),
                        false => Ok(s),
                    }) {
                        Ok(_) if self.role.share == Share::Threads => {}
                        Ok(mut slice) => {
                            slice.cache = *cache;
                            let starts: Vec<ValueId> =
                                starts.iter().map(|&v| self.value(v)).collect();
                            let boxes = self.coordinates(&slice, &starts);
                            limits.extend(slice.limit.map(|l| (tile, slice.rows, l.of(&starts))));
                            slices.push((tile, slice, boxes));
                        }
                        Err(missing) if self.bulk_required || part => {
                            return Err(rings::no_bulk(op.span, &missing));
                        }
                        Err(_) if self.role.share == Share::Bulk => {}
                        Err(_) if let Some((stage, columns)) = self.rings.stage(id, tile) => {
                            let mut operands = vec![self.value(op.operands[at])];
                            operands.extend(starts.iter().map(|&v| self.value(v)));
                            staged.push((tile, stage, columns, indices, operands));
                        }
                        Err(_)
                            if rings::is_matrix(indices) || self.is_row(indices, channel, tile) =>
                        {
                            let mut operands = vec![self.value(op.operands[at])];
                            for &start in starts {
                                operands.push(self.value(start));
                            }
                            copied.push((tile, indices.clone(), operands));
                        }
                        Err(_) => {
                            let value = self.loaded(op.operands[at], indices, starts);
                            values.push((tile, self.as_matrix(value, channel, tile)));
                        }
                    }
                    at += 1 + used;
                }
                PutSource::Value => {
                    let of = self.value(op.operands[at]);
                    let flying = self.state.flying.iter().find(|f| f.value == of);
                    if let Some(age) = flying.map(|f| f.age) {
                        self.settle(age);
                    }
                    let value = self.value(op.operands[at]);
                    values.push((tile, self.as_matrix(value, channel, tile)));
                    at += 1;
                }
            }
        }
        let own = [slices.len(), staged.len(), copied.len(), values.len()];
        if self.role.share != Share::All && own.iter().all(|&count| count == 0) {
            // The other warp fills all of it.
            let next = self.advanced(channel, place);
            self.ring(channel).put = Some(next);
            return Ok(());
        }
        self.effect(
            role::OpKind::WaitEmpty { channel: ring },
            vec![place.slot, place.phase],
        );
        if let Some(landing) = self.rings.landing(channel) {
            self.put_limited(channel, landing, place, &slices, &limits);
            slices.clear();
        }
        if !slices.is_empty() {
            let tiles = &self.rings.ring(channel).tiles;
            // All parts of a slot arrive here, whoever puts them.
            let of_tile = |tile: u32| {
                let tile = &tiles[tile as usize];
                tile.shape[0] * tile.shape[1] * tile.elem.bits() / 8
            };
            let bytes = slices.iter().map(|(tile, ..)| of_tile(*tile)).sum();
            let kind = role::OpKind::ExpectBytes {
                channel: ring,
                bytes,
            };
            self.effect(kind, vec![place.slot]);
        }
        for (tile, slice, boxes) in slices {
            if !part {
                let to = self.rings.id(channel);
                self.copies(to, tile, place.slot, &slice, &boxes, None);
                continue;
            }
            let of = &self.rings.ring(channel).tiles[tile as usize];
            let (rows, pitch) = (of.shape[0], of.layout.pitch);
            let height = slice.rows;
            if !rows.is_multiple_of(height)
                || !(height * pitch).is_multiple_of(SharedLayout::BULK_ALIGN)
            {
                let what = format!("a part of {height} of {rows} rows");
                return Err(not_yet(op.span, what));
            }
            let row = self.value(op.operands[at]);
            for number in 0..rows / height {
                let first = Constant::Int(i64::from(number * height), DType::I64);
                let first = self.scalar(OpKind::Constant(first), Vec::new(), DType::I64);
                let compare = OpKind::Compare(CompareOp::Eq);
                let here = self.scalar(compare, vec![row, first], DType::Bool);
                self.only_if(here, |this| {
                    let offset = Some(number * height * pitch);
                    let to = this.rings.id(channel);
                    this.copies(to, tile, place.slot, &slice, &boxes, offset);
                });
            }
        }
        if !values.is_empty() || !copied.is_empty() || !staged.is_empty() {
            for (tile, stage, columns, indices, operands) in staged {
                self.put_column((ring, tile, place.slot), stage, columns, indices, &operands);
            }
            for (tile, indices, mut operands) in copied {
                operands.push(place.slot);
                operands.push(self.bool(true));
                self.effect(copies::begun(ring, tile, indices), operands);
            }
            for (tile, value) in values {
                let kind = role::OpKind::WriteShared {
                    channel: ring,
                    tile,
                    offsets: [0, 0],
                };
                self.effect(kind, vec![value, place.slot]);
            }
            self.effect(role::OpKind::ArriveFull { channel: ring }, vec![place.slot]);
        }
        let next = self.advanced(channel, place);
        self.ring(channel).put = Some(next);
        Ok(())
    }

    /// A part of a tile in a slot.
    fn cut(&self, tile: SlotTile, offsets: &[u32], shape: &[u32]) -> SlotTile {
        let pair = |of: &[u32], first| match *of {
            [a, b] if tile.transposed => [b, a],
            [a, b] => [a, b],
            [a] => [first, a],
            _ => [first, first],
        };
        let mut offsets = pair(offsets, 0);
        if let Some(around) = tile.part {
            offsets = [0, 1].map(|d| offsets[d] + around.offsets[d]);
        }
        let shape = pair(shape, 1);
        SlotTile {
            part: Some(SlotPart { offsets, shape }),
            ..tile
        }
    }

    /// Writes values in place into the slot that the last operand is of, and hands it on through `channel`.
    fn handed_on(&mut self, id: OpId, channel: ChannelId, count: usize) -> Result<(), Refused> {
        let op = &self.from.ops[id];
        let Bound::Slot(held) = self.bound[&op.operands[op.operands.len() - 1]] else {
            return Err(not_yet(op.span, "a slot that is handed on from registers"));
        };
        let of = &mut self.ring(held.channel).held;
        if of.first().is_none_or(|first| first.slot != held.slot) {
            let what = "a slot that is handed on before an older one";
            return Err(not_yet(op.span, what));
        }
        let read = of.remove(0).read;
        let ring = self.rings.id(channel);
        let mut values = Vec::new();
        for (number, &of) in op.operands[..count].iter().enumerate() {
            let number = number as u32;
            if let Bound::Slot(tile) = self.bound[&of]
                && tile.part.is_none()
                && !tile.transposed
                && tile.slot == held.slot
                && tile.channel == held.channel
            {
                let own = &self.rings.ring(channel).tiles[number as usize];
                if *own == self.rings.ring(held.channel).tiles[tile.tile as usize] {
                    continue;
                }
            }
            let value = self.value(of);
            let flying = self.state.flying.iter().find(|f| f.value == value);
            if let Some(age) = flying.map(|f| f.age) {
                self.settle(age);
            }
            let value = self.value(of);
            values.push((number, self.as_matrix(value, channel, number)));
        }
        if !values.is_empty() {
            if let Some(age) = read {
                self.settle(age);
            }
            // Other warps may still read what this one is about to write over.
            self.effect(role::OpKind::Barrier, Vec::new());
            for (tile, value) in values {
                let channel = ring;
                let kind = role::OpKind::WriteShared {
                    channel,
                    tile,
                    offsets: [0, 0],
                };
                self.effect(kind, vec![value, held.slot]);
            }
        }
        self.effect(role::OpKind::ArriveFull { channel: ring }, vec![held.slot]);
        Ok(())
    }

    /// Begins the bulk copies of a slice; those of a part that begins at byte `part` of the tile, in all blocks of the cluster.
    pub(super) fn copies(
        &mut self,
        to: role::ChannelId,
        tile: u32,
        slot: ValueId,
        slice: &Slice,
        boxes: &[Vec<ValueId>],
        part: Option<u32>,
    ) {
        for (piece, at) in slice.boxes.iter().zip(boxes) {
            let kind = role::OpKind::CopyBulk {
                channel: to,
                tile,
                map: slice.map,
                offset: piece.offset + part.unwrap_or(0),
                multicast: part.is_some(),
                cache: slice.cache,
            };
            let operands = std::iter::once(slot).chain(at.iter().copied()).collect();
            self.effect(kind, operands);
        }
    }

    /// A slice of a view in registers, 0 outside.
    pub(super) fn loaded(
        &mut self,
        view: ValueId,
        indices: &[Index],
        starts: &[ValueId],
    ) -> ValueId {
        let elem = self.from.ty(view).elem();
        let zero = match elem.is_float() {
            true => Constant::Float(0.0, elem),
            false => Constant::Int(0, elem),
        };
        let mut operands = vec![self.value(view)];
        for &start in starts {
            operands.push(self.value(start));
        }
        operands.push(self.scalar(OpKind::Constant(zero), Vec::new(), elem));
        let shape: Vec<u32> = indices.iter().filter_map(|i| i.extent()).collect();
        let kind = role::OpKind::Load {
            indices: indices.to_vec(),
            cache: tile::Cache::Normal,
            width: 1,
        };
        self.made(kind, operands, typed(Type::tile(elem, shape)))
    }

    /// What `then` writes, only where `condition` holds.
    pub(super) fn only_if(&mut self, condition: ValueId, then: impl FnOnce(&mut Self)) {
        self.either(condition, then, |_| {});
    }

    /// What `then` writes where `condition` holds, and what `other` writes elsewhere.
    pub(super) fn either(
        &mut self,
        condition: ValueId,
        then: impl FnOnce(&mut Self),
        other: impl FnOnce(&mut Self),
    ) {
        let around = self.into;
        let regions = [(); 2].map(|()| self.to.new_region());
        self.into = regions[0];
        then(self);
        self.effect(role::OpKind::Tile(OpKind::Yield), Vec::new());
        self.into = regions[1];
        other(self);
        self.effect(role::OpKind::Tile(OpKind::Yield), Vec::new());
        self.into = around;
        let kind = role::OpKind::Tile(OpKind::If);
        self.to.append(
            self.into,
            kind,
            vec![condition],
            Vec::new(),
            regions.to_vec(),
            self.span,
        );
    }

    /// `operands` begin with those of the access.
    pub(super) fn slice(
        &mut self,
        operands: &[ValueId],
        indices: &[Index],
        channel: ChannelId,
        tile: u32,
    ) -> Result<Slice, String> {
        if !self.role.target.has(Feature::Bulk) {
            return Err(format!("{} has none", self.role.target));
        }
        let of = &self.rings.ring(channel).tiles[tile as usize];
        rings::bulk(self.role.kernel, operands, indices, of, self.maps)
    }

    /// Where each box of a slice begins, as operands; `starts` are those of the indices.
    pub(super) fn coordinates(&mut self, slice: &Slice, starts: &[ValueId]) -> Vec<Vec<ValueId>> {
        let starts: Vec<ValueId> = starts
            .iter()
            .map(|&v| self.scalar(OpKind::Cast, vec![v], DType::I32))
            .collect();
        let mut made = HashMap::new();
        let boxes: &[Piece] = &slice.boxes;
        boxes
            .iter()
            .map(|piece| {
                let at = piece.at.iter();
                at.map(|c| {
                    let key = (c.operand, c.per, c.plus);
                    if let Some(&value) = made.get(&key) {
                        return value;
                    }
                    let start = c.operand.map(|operand| match c.per {
                        1 => starts[operand],
                        per => {
                            let per = self.int(per);
                            self.binary(BinaryOp::Div, starts[operand], per)
                        }
                    });
                    let value = match (start, c.plus) {
                        (Some(start), 0) => start,
                        (None, plus) => self.int(plus),
                        (Some(start), plus) => {
                            let plus = self.int(plus);
                            self.binary(BinaryOp::Add, start, plus)
                        }
                    };
                    made.insert(key, value);
                    value
                })
                .collect()
            })
            .collect()
    }

    /// Stores a slot's tile by bulk copies, if that is possible.
    fn stored_bulk(&mut self, id: OpId, indices: &[Index], tile: SlotTile) -> bool {
        let op = &self.from.ops[id];
        if tile.transposed || tile.part.is_some() {
            return false;
        }
        let Ok(slice) = self.slice(&op.operands, indices, tile.channel, tile.tile) else {
            return false;
        };
        if slice.limit.is_some() {
            return false;
        }
        let used = indices.iter().map(|i| i.operands()).sum::<usize>();
        let starts: Vec<ValueId> = op.operands[1..1 + used]
            .iter()
            .map(|&v| self.value(v))
            .collect();
        let boxes = self.coordinates(&slice, &starts);
        for (piece, at) in slice.boxes.iter().zip(boxes) {
            let kind = role::OpKind::StoreBulk {
                channel: self.rings.id(tile.channel),
                tile: tile.tile,
                map: slice.map,
                offset: piece.offset,
            };
            let operands = std::iter::once(tile.slot).chain(at).collect();
            self.effect(kind, operands);
        }
        self.state.storing = true;
        true
    }

    fn release(&mut self, channel: ChannelId, lag: Option<u32>) -> Result<(), Refused> {
        let span = self.span;
        let ring = self.ring(channel);
        if ring.held.is_empty() {
            return Err(not_yet(span, "a slot that is not held here is given back"));
        }
        let held = ring.held.remove(0);
        let freed = Freed {
            channel,
            slot: held.slot,
            age: held.read.unwrap_or(0),
            lag,
            valid: None,
        };
        if held.read.is_none() {
            self.arrive(freed);
            return Ok(());
        }
        self.state.freed.push(freed);
        self.give_back_due();
        Ok(())
    }

    /// Gives back what must be by now.
    fn give_back_due(&mut self) {
        if let Some(pending) = self.state.due() {
            self.settle(pending);
        }
    }

    /// Says that a slot is read.
    fn arrive(&mut self, freed: Freed) {
        if std::mem::take(&mut self.state.storing) {
            let kind = role::OpKind::WaitStores {
                pending: 0,
                read: true,
            };
            self.effect(kind, Vec::new());
        }
        let kind = role::OpKind::ArriveEmpty {
            channel: self.rings.freed(freed.channel),
        };
        let Some(valid) = freed.valid else {
            return self.effect(kind, vec![freed.slot]);
        };
        self.only_if(valid, |this| this.effect(kind, vec![freed.slot]));
    }

    /// Waits until at most `pending` products are in flight, and gives back what is free by that.
    pub(super) fn settle(&mut self, pending: u32) {
        let mut ages = self.state.flying.iter().map(|f| f.age);
        let reads = self.state.from_registers.iter().any(|&age| age >= pending);
        if ages.any(|age| age >= pending) || reads || !self.state.freed.is_empty() {
            let values: Vec<ValueId> = self.state.flying.iter().map(|f| f.value).collect();
            let types = values.iter().map(|&v| self.to.ty(v).clone()).collect();
            let kind = role::OpKind::WaitProducts { pending };
            let new = self
                .to
                .append(self.into, kind, values, types, Vec::new(), self.span);
            let results = self.to.ops[new].results.clone();
            for (i, result) in results.into_iter().enumerate() {
                let flying = &mut self.state.flying[i];
                let old = std::mem::replace(&mut flying.value, result);
                self.latest.insert(flying.key, result);
                self.rebind(old, result);
            }
        }
        for freed in self.state.waited(pending) {
            self.arrive(freed);
        }
    }

    /// What was bound to `old` is bound to `new`.
    pub(super) fn rebind(&mut self, old: ValueId, new: ValueId) {
        for bound in self.bound.values_mut() {
            if let Bound::Value(value) = bound
                && *value == old
            {
                *value = new;
            }
        }
    }

    /// A product by each warp's own instructions: it is over where it begins.
    fn product_by_warps(&mut self, id: OpId) -> Result<(), Refused> {
        let op = &self.from.ops[id];
        let warps = self.role.head.warps;
        if !warps.is_power_of_two() {
            let what =
                format!("a product by `mma_sync` of {warps} warps, which are no power of two");
            return Err(not_yet(op.span, what));
        }
        let result = self.from.ty(op.results[0]);
        let mut operands = vec![self.value(op.operands[0]), self.value(op.operands[1])];
        let ty = typed(as_tile(result));
        let acc = match op.operands.get(2) {
            Some(&acc) => {
                let flying = self.value(acc);
                let flying = self.state.flying.iter().find(|f| f.value == flying);
                if let Some(age) = flying.map(|f| f.age) {
                    self.settle(age);
                }
                self.value(acc)
            }
            None => {
                let zero = match result.elem().is_float() {
                    true => Constant::Float(0.0, result.elem()),
                    false => Constant::Int(0, result.elem()),
                };
                let zero = self.scalar(OpKind::Constant(zero), Vec::new(), result.elem());
                let kind = role::OpKind::Tile(OpKind::Broadcast);
                self.made(kind, vec![zero], ty.clone())
            }
        };
        operands.push(acc);
        let target = self.role.target;
        let value = form_roles::product(&mut self.to, self.into, operands, ty, op.span, target);
        self.bound.insert(op.results[0], Bound::Value(value));
        Ok(())
    }

    fn mma(&mut self, id: OpId) -> Result<(), Refused> {
        let op = &self.from.ops[id];
        let result = self.from.ty(op.results[0]);
        let (m, n) = (result.shape()[0], result.shape()[1]);
        let warps = self.role.head.warps;
        if self.by_warps {
            return self.product_by_warps(id);
        }
        let by_columns = self.role.head.split == Some(1) && warps > 4;
        let fits = !by_columns || fragments::warpgroup_columns([m, n], warps).is_some();
        if !self.role.target.has(Feature::Wgmma) || !self.role.head.groups || !fits {
            let what = format!(
                "a product of [{m}, {n}] by {warps} warps on {}",
                self.role.target
            );
            return Err(not_yet(op.span, what));
        }
        let groups = warps / super::GROUP;
        let own_columns = if by_columns { n / groups } else { n };
        let form = Form {
            left: self.lies(op.operands[0], 0),
            right: self.lies(op.operands[1], 1),
            sum: result.elem(),
            shape: [m, own_columns, self.from.ty(op.operands[0]).shape()[1]],
            groups: if by_columns { 1 } else { groups },
        };
        if let Some(missing) = form.missing() {
            let refused = *not_yet(op.span, form);
            return Err(Box::new(refused.note(missing)));
        }
        let (a, left) = self.factor(op.operands[0], 0)?;
        let (b, right) = self.factor(op.operands[1], 1)?;
        if let (true, Bound::Slot(tile)) = (by_columns, self.bound[&op.operands[1]]) {
            let of = &self.rings.ring(tile.channel).tiles[tile.tile as usize];
            let own = own_columns * of.elem.bits() / 8;
            if !tile.transposed && !own.is_multiple_of(of.layout.pitch) {
                let what = format!("warpgroups that share panels of {} bytes", of.layout.pitch);
                return Err(not_yet(op.span, what));
            }
        }
        let ty = typed(as_tile(result));
        let (acc, accumulate) = match op.operands.get(2) {
            Some(&acc) => {
                let acc = self.value(acc);
                self.state.flying.retain(|f| f.value != acc);
                (acc, true)
            }
            None => {
                let zero = match result.elem().is_float() {
                    true => Constant::Float(0.0, result.elem()),
                    false => Constant::Int(0, result.elem()),
                };
                let zero = self.scalar(OpKind::Constant(zero), Vec::new(), result.elem());
                let kind = role::OpKind::Tile(OpKind::Broadcast);
                (self.made(kind, vec![zero], ty.clone()), false)
            }
        };
        let yes = OpKind::Constant(Constant::Bool(accumulate));
        let accumulate = self.scalar(yes, Vec::new(), DType::Bool);
        let columns = by_columns;
        let kind = role::OpKind::Product { a, b, columns };
        let value = self.made(kind, vec![left, right, acc, accumulate], ty);
        self.state.begun();
        if a == ProductOperand::Registers && !self.is_of_products(op.operands[0]) {
            self.state.from_registers.push(0);
        }
        for &operand in &op.operands[..2] {
            if let Bound::Slot(tile) = self.bound[&operand] {
                self.state.reads(tile.channel, tile.slot);
            }
        }
        let key = self.new_key();
        self.latest.insert(key, value);
        self.state.flying.push(Flying { key, value, age: 0 });
        self.bound.insert(op.results[0], Bound::Value(value));
        self.give_back_due();
        Ok(())
    }

    pub(super) fn new_key(&mut self) -> u32 {
        self.next_key += 1;
        self.next_key
    }

    /// Of what a factor is, and where it lies; `side` is 1 of the right one.
    fn lies(&self, value: ValueId, side: u32) -> (DType, Lies) {
        let lies = match self.bound[&value] {
            Bound::Value(_) => Lies::Registers,
            Bound::Slot(tile) => Lies::Slot {
                along_k: tile.transposed == (side == 1),
            },
        };
        (self.from.ty(value).elem(), lies)
    }

    fn factor(&mut self, value: ValueId, side: u32) -> Result<(ProductOperand, ValueId), Refused> {
        Ok(match self.bound[&value] {
            Bound::Value(value) => (ProductOperand::Registers, value),
            Bound::Slot(tile) => {
                let of = &self.rings.ring(tile.channel).tiles[tile.tile as usize];
                if !of.layout.is_swizzled() {
                    return Err(not_yet(self.span, "a factor of rows of a few bytes"));
                }
                if SlotPart::of(tile.part, of, tile.transposed != (side == 1)).is_none() {
                    let what = "a factor that begins in the middle of what a product reads at once";
                    return Err(not_yet(self.span, what));
                }
                let operand = ProductOperand::Slot {
                    channel: self.rings.id(tile.channel),
                    tile: tile.tile,
                    part: tile.part,
                    transposed: tile.transposed,
                };
                (operand, tile.slot)
            }
        })
    }

    /// A tile in registers, of whatever rank, as one of the rows and columns that a slot has.
    fn as_matrix(&mut self, value: ValueId, channel: ChannelId, tile: u32) -> ValueId {
        let of = &self.rings.ring(channel).tiles[tile as usize];
        let ty = Type::tile(of.elem, of.shape);
        if self.to.ty(value).ty == ty {
            return value;
        }
        self.made(role::OpKind::Tile(OpKind::Reshape), vec![value], typed(ty))
    }

    /// A value of tile IR in registers.
    pub(super) fn value(&mut self, value: ValueId) -> ValueId {
        let tile = match self.bound[&value] {
            Bound::Value(value) => return value,
            Bound::Slot(tile) => tile,
        };
        let of = &self.rings.ring(tile.channel).tiles[tile.tile as usize];
        let SlotPart {
            offsets,
            shape: [rows, columns],
        } = tile.part.unwrap_or(SlotPart {
            offsets: [0, 0],
            shape: of.shape,
        });
        let shape = match tile.transposed {
            true => [columns, rows],
            false => [rows, columns],
        };
        let kind = role::OpKind::ReadShared {
            channel: self.rings.id(tile.channel),
            tile: tile.tile,
            offsets,
            transposed: tile.transposed,
        };
        let mut ty = Type::tile(of.elem, shape);
        let mut read = self.made(kind, vec![tile.slot], typed(ty.clone()));
        let wanted = self.from.ty(value);
        if wanted.elem() != ty.elem() {
            ty = ty.with_elem(wanted.elem());
            let kind = role::OpKind::Tile(OpKind::Cast);
            read = self.made(kind, vec![read], typed(ty.clone()));
        }
        if *wanted == ty {
            return read;
        }
        let kind = role::OpKind::Tile(OpKind::Reshape);
        self.made(kind, vec![read], typed(wanted.clone()))
    }

    /// The place after this one.
    pub(super) fn advanced(&mut self, channel: ChannelId, place: Place) -> Place {
        let depth = self.rings.ring(channel).depth;
        let one = self.int(1);
        if depth == 1 {
            let phase = self.binary(BinaryOp::Xor, place.phase, one);
            return Place { phase, ..place };
        }
        let next = self.binary(BinaryOp::Add, place.slot, one);
        let last = self.int(depth);
        let compare = OpKind::Compare(CompareOp::Eq);
        let wraps = self.scalar(compare, vec![next, last], DType::Bool);
        let zero = self.int(0);
        let slot = self.scalar(OpKind::Select, vec![wraps, zero, next], DType::I32);
        let other = self.binary(BinaryOp::Xor, place.phase, one);
        let phase = self.scalar(OpKind::Select, vec![wraps, other, place.phase], DType::I32);
        Place { slot, phase }
    }

    pub(super) fn ring(&mut self, channel: ChannelId) -> &mut Ring {
        self.state.channels.entry(channel).or_default()
    }

    /// The places in all rings, in order.
    fn places(&self) -> Vec<ValueId> {
        let rings = self.state.channels.values();
        rings
            .flat_map(|r| r.put.into_iter().chain(r.get))
            .flat_map(|p| [p.slot, p.phase])
            .collect()
    }

    pub(super) fn effect(&mut self, kind: role::OpKind, operands: Vec<ValueId>) {
        self.to
            .append(self.into, kind, operands, Vec::new(), Vec::new(), self.span);
    }

    pub(super) fn made(
        &mut self,
        kind: role::OpKind,
        operands: Vec<ValueId>,
        ty: role::Type,
    ) -> ValueId {
        let op = self
            .to
            .append(self.into, kind, operands, vec![ty], Vec::new(), self.span);
        self.to.ops[op].results[0]
    }

    pub(super) fn scalar(&mut self, kind: OpKind, operands: Vec<ValueId>, elem: DType) -> ValueId {
        let ty = typed(Type::Scalar(elem));
        self.made(role::OpKind::Tile(kind), operands, ty)
    }

    pub(super) fn int(&mut self, value: u32) -> ValueId {
        let constant = Constant::Int(i64::from(value), DType::I32);
        self.scalar(OpKind::Constant(constant), Vec::new(), DType::I32)
    }

    pub(super) fn bool(&mut self, value: bool) -> ValueId {
        let constant = OpKind::Constant(Constant::Bool(value));
        self.scalar(constant, Vec::new(), DType::Bool)
    }

    pub(super) fn binary(&mut self, op: BinaryOp, a: ValueId, b: ValueId) -> ValueId {
        self.scalar(OpKind::Binary(op), vec![a, b], DType::I32)
    }
}

fn packed(span: Span) -> Refused {
    not_yet(span, "a packed tile of a slot that is not cast to 16 bits")
}

/// Without a layout.
pub(super) fn typed(ty: Type) -> role::Type {
    role::Type { ty, layout: None }
}

/// What a value is in role IR: a pending tile is a tile.
pub(super) fn as_tile(ty: &Type) -> Type {
    match ty {
        Type::Pending(tile) => Type::Tile(tile.clone()),
        ty => ty.clone(),
    }
}
