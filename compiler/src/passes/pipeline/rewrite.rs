//! Writes loops that are pipelined: what fills the slots ahead, the head of an iteration, and products in steps of K.

use std::collections::{BTreeMap, HashMap, HashSet};

use cranelift_entity::PrimaryMap;
use tesserine_set::DType;

use super::{Load, Plan, Source, Store, depth, is_cut};
use crate::{
    ir::{
        OpId, RegionId, ValueId,
        role::{
            Buffer, BufferId, Channel, ChannelId, Fill, OpKind, RoleBody, SharedTile, Strategy,
            Type,
        },
        tile::{self, BinaryOp, CompareOp, Constant, Index},
    },
    layout::swizzle::SharedLayout,
    span::Span,
};

/// Writes the new body.
pub(super) struct Rewrite<'a> {
    pub(super) from: &'a RoleBody,
    pub(super) plans: &'a HashMap<OpId, Plan>,
    /// Whether the whole body is done again and again.
    pub(super) ordered: bool,
    pub(super) to: RoleBody,
    pub(super) map: HashMap<ValueId, ValueId>,
    /// Where values lie that are kept in shared memory.
    pub(super) kept: HashMap<ValueId, ChannelId>,
    pub(super) buffers: &'a mut PrimaryMap<BufferId, Buffer>,
    pub(super) channels: &'a mut PrimaryMap<ChannelId, Channel>,
}

/// A loop that is being written.
struct Loop<'a> {
    pub(super) plan: &'a Plan,
    pub(super) channel: ChannelId,
    /// The index that the loop's argument stood for.
    pub(super) index: ValueId,
}

impl Rewrite<'_> {
    /// A channel of one slot for a tile.
    fn alone(&mut self, tile: SharedTile) -> ChannelId {
        let buffer = self.buffers.next_key();
        let channel = self.channels.push(Channel {
            tiles: vec![tile],
            depth: 1,
            fill: Fill::Registers,
            barriers: None,
            buffer,
        });
        self.buffers.push(Buffer {
            bytes: self.channels[channel].slot_bytes(),
            align: SharedLayout::ALIGN,
            offset: None,
        });
        channel
    }

    /// Makes channels for what loops find in shared memory: one for each value, with room for all of its uses.
    pub(super) fn keep_from_outside(&mut self) {
        let mut tiles: BTreeMap<ValueId, SharedTile> = BTreeMap::new();
        for plan in self.plans.values() {
            for (&value, kept) in plan.kept.iter().filter(|(_, k)| !k.inside) {
                let tile = tiles.entry(value).or_insert_with(|| kept.tile.clone());
                let element = tile.elem.bits() / 8;
                let rows = tile.layout.rows.max(kept.tile.layout.rows);
                let columns = tile.layout.pitch.max(kept.tile.layout.pitch) / element;
                tile.layout = SharedLayout::new(rows, columns, element);
            }
        }
        for (value, tile) in tiles {
            let channel = self.alone(tile);
            self.kept.insert(value, channel);
        }
    }

    /// Puts those results of `id` into shared memory that loops want there. `again`: this happens more than once.
    fn keep(&mut self, id: OpId, into: RegionId, again: bool) {
        let op = &self.from.ops[id];
        for &result in &op.results {
            let Some(&channel) = self.kept.get(&result) else {
                continue;
            };
            if again {
                self.effect(into, OpKind::Barrier, Vec::new(), op.span);
            }
            self.write(channel, 0, result, into, op.span);
        }
    }

    /// Writes a value to slot 0 of a channel.
    fn write(&mut self, channel: ChannelId, tile: u32, value: ValueId, into: RegionId, span: Span) {
        let slot = self.int(into, 0);
        let operands = vec![self.map[&value], slot];
        self.effect(
            into,
            OpKind::WriteShared {
                channel,
                tile,
                offsets: [0, 0],
            },
            operands,
            span,
        );
    }

    pub(super) fn region(&mut self, region: RegionId, into: RegionId, loops: u32) {
        self.arguments(region, into);
        for &id in &self.from.regions[region].ops {
            self.op(id, into, loops);
        }
    }

    fn arguments(&mut self, region: RegionId, into: RegionId) {
        for &arg in &self.from.regions[region].args {
            let new = self.to.add_argument(into, self.from.ty(arg).clone());
            self.map.insert(arg, new);
        }
    }

    fn op(&mut self, id: OpId, into: RegionId, loops: u32) {
        if let Some(plan) = self.plans.get(&id) {
            self.pipelined(id, plan, into, loops);
            self.keep(id, into, self.ordered || loops > 0);
            return;
        }
        self.made(id, into, loops);
        self.keep(id, into, self.ordered || loops > 0);
    }

    /// `id` in a loop of its own or none, without what becomes of its results.
    fn made(&mut self, id: OpId, into: RegionId, loops: u32) {
        let op = &self.from.ops[id];
        let is_loop = matches!(
            op.kind,
            OpKind::Tile(tile::OpKind::For { .. } | tile::OpKind::While)
        );
        let regions = op
            .regions
            .iter()
            .map(|&inner| {
                let new = self.to.new_region();
                self.region(inner, new, loops + u32::from(is_loop));
                new
            })
            .collect();
        self.copy(id, into, regions);
    }

    /// Appends `id` with the operands as mapped, and maps its results.
    fn copy(&mut self, id: OpId, into: RegionId, regions: Vec<RegionId>) -> OpId {
        self.to
            .append_copy(into, self.from, id, regions, &mut self.map)
    }

    fn effect(&mut self, into: RegionId, kind: OpKind, operands: Vec<ValueId>, span: Span) {
        self.to
            .append(into, kind, operands, Vec::new(), Vec::new(), span);
    }

    fn value(
        &mut self,
        into: RegionId,
        kind: OpKind,
        operands: Vec<ValueId>,
        ty: tile::Type,
        span: Span,
    ) -> ValueId {
        let ty = Type { ty, layout: None };
        let op = self
            .to
            .append(into, kind, operands, vec![ty], Vec::new(), span);
        self.to.ops[op].results[0]
    }

    fn scalar(
        &mut self,
        into: RegionId,
        kind: tile::OpKind,
        operands: Vec<ValueId>,
        elem: DType,
    ) -> ValueId {
        let ty = tile::Type::Scalar(elem);
        self.value(into, OpKind::Tile(kind), operands, ty, Span::NONE)
    }

    fn int(&mut self, into: RegionId, value: i64) -> ValueId {
        let constant = Constant::Int(value, DType::I64);
        self.scalar(
            into,
            tile::OpKind::Constant(constant),
            Vec::new(),
            DType::I64,
        )
    }

    fn binary(&mut self, into: RegionId, op: BinaryOp, a: ValueId, b: ValueId) -> ValueId {
        self.scalar(into, tile::OpKind::Binary(op), vec![a, b], DType::I64)
    }

    /// `a` if `value` is `this`, else `b`.
    fn choose(
        &mut self,
        into: RegionId,
        value: ValueId,
        this: ValueId,
        a: ValueId,
        b: ValueId,
    ) -> ValueId {
        let compare = tile::OpKind::Compare(CompareOp::Eq);
        let same = self.scalar(into, compare, vec![value, this], DType::Bool);
        self.scalar(into, tile::OpKind::Select, vec![same, a, b], DType::I64)
    }

    /// `index + iterations * step`
    fn ahead(&mut self, into: RegionId, index: ValueId, step: ValueId, iterations: u32) -> ValueId {
        if iterations == 0 {
            return index;
        }
        let count = self.int(into, i64::from(iterations));
        let by = self.binary(into, BinaryOp::Mul, count, step);
        self.binary(into, BinaryOp::Add, index, by)
    }

    fn pipelined(&mut self, id: OpId, plan: &Plan, into: RegionId, loops: u32) {
        let op = &self.from.ops[id];
        let region = op.regions[0];
        let span = op.span;
        let [lo, hi, step] = [0, 1, 2].map(|i| self.map[&op.operands[i]]);
        let buffer = self.buffers.next_key();
        let channel = self.channels.push(Channel {
            tiles: plan.loads.iter().map(|l| l.tile.clone()).collect(),
            depth: plan.depth,
            fill: plan.fill,
            barriers: None,
            buffer,
        });
        self.buffers.push(Buffer {
            bytes: self.channels[channel].slot_bytes() * plan.depth,
            align: SharedLayout::ALIGN,
            offset: None,
        });
        for (&value, kept) in plan.kept.iter().filter(|(_, k)| k.inside) {
            let channel = self.alone(kept.tile.clone());
            self.kept.insert(value, channel);
        }
        let argument = self.from.regions[region].args[0];
        let one_slot = plan.depth == 1;
        let copied = plan.fill == Fill::CpAsync;
        let fill = |index: ValueId| Loop {
            plan,
            channel,
            index,
        };

        // Threads may still read what an outer loop's last iteration left in the slots.
        if (self.ordered || loops > 0) && !one_slot {
            self.effect(into, OpKind::Barrier, Vec::new(), span);
        }
        for iteration in 0..plan.depth - 1 {
            let index = self.ahead(into, lo, step, iteration);
            let slot = self.int(into, i64::from(iteration));
            if copied {
                let less = tile::OpKind::Compare(CompareOp::Lt);
                let live = self.scalar(into, less, vec![index, hi], DType::Bool);
                self.copies(&fill(index), argument, into, slot, live, span);
            } else {
                self.filled(&fill(index), argument, into, slot, span);
            }
        }

        let mut inits: Vec<ValueId> = op.operands[3..].iter().map(|v| self.map[v]).collect();
        inits.push(self.int(into, 0));
        // The first step's operands are carried along where that hides how long they take to read.
        let leads = !one_slot && self.leads(plan);
        let pending = plan.depth.saturating_sub(2);
        if leads {
            if copied {
                self.effect(into, OpKind::WaitCopies { pending }, Vec::new(), span);
            }
            self.effect(into, OpKind::Barrier, Vec::new(), span);
            let slot = self.int(into, 0);
            for (&id, sources) in &plan.products {
                inits.extend(self.operands(&fill(lo), id, sources, 0, into, slot));
            }
        }
        let inner = self.to.new_region();
        self.arguments(region, inner);
        let slot_type = Type {
            ty: tile::Type::Scalar(DType::I64),
            layout: None,
        };
        let slot = self.to.add_argument(inner, slot_type);
        let carried: Vec<ValueId> = inits[op.operands.len() - 2..]
            .iter()
            .map(|&v| {
                let ty = self.to.ty(v).clone();
                self.to.add_argument(inner, ty)
            })
            .collect();
        let carried = <[ValueId; 2]>::try_from(carried).ok();
        let index = self.map[&argument];
        let last = self.int(inner, i64::from(plan.depth) - 1);
        let one = self.int(inner, 1);
        let zero = self.int(inner, 0);

        // The head of an iteration.
        let mut begin = Begin::Nothing;
        if one_slot {
            self.effect(inner, OpKind::Barrier, Vec::new(), span);
            if copied {
                let yes = tile::OpKind::Constant(Constant::Bool(true));
                let live = self.scalar(inner, yes, Vec::new(), DType::Bool);
                self.copies(&fill(index), argument, inner, zero, live, span);
                self.effect(inner, OpKind::WaitCopies { pending: 0 }, Vec::new(), span);
            } else {
                self.filled(&fill(index), argument, inner, zero, span);
            }
            self.effect(inner, OpKind::Barrier, Vec::new(), span);
        } else {
            if copied && !leads {
                self.effect(inner, OpKind::WaitCopies { pending }, Vec::new(), span);
            }
            if !leads {
                self.effect(inner, OpKind::Barrier, Vec::new(), span);
            }
            begin = if copied { Begin::Copies } else { Begin::Loads };
        }
        // The slot of the iteration before is the one to be filled.
        let before = self.binary(inner, BinaryOp::Sub, slot, one);
        let filled = self.choose(inner, slot, zero, last, before);
        let ahead = self.ahead(inner, index, step, plan.depth - 1);
        let less = tile::OpKind::Compare(CompareOp::Lt);
        let live = self.scalar(inner, less, vec![ahead, hi], DType::Bool);
        let after = self.binary(inner, BinaryOp::Add, slot, one);
        let next_slot = self.choose(inner, slot, last, zero, after);

        let mut next_carried = None;
        let mut prefetched = Vec::new();
        for &id in &self.from.regions[region].ops {
            if plan.dropped.contains(&id) {
                continue;
            }
            if let Some(sources) = plan.products.get(&id) {
                let next = std::mem::replace(&mut begin, Begin::Nothing);
                let start = |this: &mut Self| match next {
                    Begin::Copies => {
                        this.copies(&fill(ahead), argument, inner, filled, live, span);
                        Vec::new()
                    }
                    Begin::Loads => this.loaded(&fill(ahead), argument, inner),
                    Begin::Nothing => Vec::new(),
                };
                let finish = |this: &mut Self, tiles: Vec<ValueId>| {
                    if copied {
                        this.effect(inner, OpKind::WaitCopies { pending }, Vec::new(), span);
                    } else {
                        this.writes(&fill(ahead), inner, &tiles, filled);
                    }
                    this.effect(inner, OpKind::Barrier, Vec::new(), span);
                    this.operands(&fill(index), id, sources, 0, inner, next_slot)
                };
                let carried = carried.map(|c| (c, finish));
                let (tiles, next) =
                    self.product(id, &fill(index), sources, inner, slot, start, carried);
                prefetched.extend(tiles);
                next_carried = next;
                if plan.kept.contains_key(&self.from.ops[id].results[0]) {
                    self.keep(id, inner, false);
                    self.effect(inner, OpKind::Barrier, Vec::new(), self.from.ops[id].span);
                }
                continue;
            }
            if matches!(self.from.ops[id].kind, OpKind::Tile(tile::OpKind::Yield)) {
                if !prefetched.is_empty() {
                    let tiles = std::mem::take(&mut prefetched);
                    self.writes(&fill(ahead), inner, &tiles, filled);
                }
                let mut values: Vec<ValueId> = self.from.ops[id]
                    .operands
                    .iter()
                    .map(|v| self.map[v])
                    .collect();
                values.push(next_slot);
                values.extend(next_carried.into_iter().flatten());
                let kind = OpKind::Tile(tile::OpKind::Yield);
                self.effect(inner, kind, values, self.from.ops[id].span);
                continue;
            }
            // What an iteration keeps, threads have read before its head's barrier.
            if self.from.ops[id]
                .results
                .iter()
                .any(|r| plan.kept.contains_key(r))
            {
                self.made(id, inner, loops + 1);
                self.keep(id, inner, false);
                self.effect(inner, OpKind::Barrier, Vec::new(), self.from.ops[id].span);
            } else {
                self.op(id, inner, loops + 1);
            }
        }

        let types = inits.iter().map(|&v| self.to.ty(v).clone()).collect();
        let operands = [vec![lo, hi, step], inits].concat();
        let new = self
            .to
            .append(into, op.kind.clone(), operands, types, vec![inner], span);
        for (&old, &new) in op.results.iter().zip(&self.to.ops[new].results) {
            self.map.insert(old, new);
        }
        if copied && !one_slot {
            self.effect(into, OpKind::WaitCopies { pending: 0 }, Vec::new(), span);
        }
    }

    /// The operands of the load `load`, for iteration `at.index`; maps what they are worked out by, which is not `done` yet.
    fn place(
        &mut self,
        at: &Loop<'_>,
        load: &Load,
        argument: ValueId,
        into: RegionId,
        done: &mut HashSet<OpId>,
    ) -> Vec<ValueId> {
        self.map.insert(argument, at.index);
        for &id in &load.address {
            if done.insert(id) {
                self.copy(id, into, Vec::new());
            }
        }
        let operands = &self.from.ops[load.op].operands;
        operands.iter().map(|v| self.map[v]).collect()
    }

    /// Begins the copies of an iteration.
    fn copies(
        &mut self,
        at: &Loop<'_>,
        argument: ValueId,
        into: RegionId,
        slot: ValueId,
        live: ValueId,
        span: Span,
    ) {
        let saved = self.map.clone();
        let mut done = HashSet::new();
        for (i, load) in at.plan.loads.iter().enumerate() {
            let mut operands = self.place(at, load, argument, into, &mut done);
            operands.pop();
            operands.extend([slot, live]);
            let op = &self.from.ops[load.op];
            let (channel, tile) = (at.channel, i as u32);
            let (indices, width) = (indices(&op.kind), load.width);
            let kind = match at.plan.fill {
                Fill::CpAsync => OpKind::CopyAsync {
                    channel,
                    tile,
                    indices,
                    width,
                },
                // Loops of one role copy by their own threads.
                Fill::Registers | Fill::Bulk => OpKind::Copy {
                    channel,
                    tile,
                    indices,
                    width,
                },
            };
            self.effect(into, kind, operands, op.span);
        }
        self.map = saved;
        if at.plan.fill == Fill::CpAsync {
            self.effect(into, OpKind::CommitCopies, Vec::new(), span);
        }
    }

    /// Loads the tiles of an iteration into registers, one after another, and gives each to `then`.
    fn loads(
        &mut self,
        at: &Loop<'_>,
        argument: ValueId,
        into: RegionId,
        mut then: impl FnMut(&mut Self, usize, ValueId),
    ) {
        let saved = self.map.clone();
        let mut done = HashSet::new();
        for (i, load) in at.plan.loads.iter().enumerate() {
            let operands = self.place(at, load, argument, into, &mut done);
            let op = &self.from.ops[load.op];
            let ty = self.from.ty(op.results[0]).ty.clone();
            let tile = self.value(into, op.kind.clone(), operands, ty, op.span);
            then(self, i, tile);
        }
        self.map = saved;
    }

    /// Fills a slot with the tiles of an iteration, one after another.
    fn filled(
        &mut self,
        at: &Loop<'_>,
        argument: ValueId,
        into: RegionId,
        slot: ValueId,
        span: Span,
    ) {
        if !at.plan.direct {
            self.loads(at, argument, into, |this, i, tile| {
                this.write_tile(at, into, i, tile, slot);
            });
            return;
        }
        let yes = tile::OpKind::Constant(Constant::Bool(true));
        let live = self.scalar(into, yes, Vec::new(), DType::Bool);
        self.copies(at, argument, into, slot, live, span);
    }

    fn loaded(&mut self, at: &Loop<'_>, argument: ValueId, into: RegionId) -> Vec<ValueId> {
        let mut tiles = Vec::new();
        self.loads(at, argument, into, |_, _, tile| tiles.push(tile));
        tiles
    }

    fn writes(&mut self, at: &Loop<'_>, into: RegionId, tiles: &[ValueId], slot: ValueId) {
        for (i, &tile) in tiles.iter().enumerate() {
            self.write_tile(at, into, i, tile, slot);
        }
    }

    fn write_tile(
        &mut self,
        at: &Loop<'_>,
        into: RegionId,
        i: usize,
        tile: ValueId,
        slot: ValueId,
    ) {
        let kind = OpKind::WriteShared {
            channel: at.channel,
            tile: i as u32,
            offsets: [0, 0],
        };
        let span = self.from.ops[at.plan.loads[i].op].span;
        self.effect(into, kind, vec![tile, slot], span);
    }

    /// Whether the loop has one product, cut into steps that are read ahead.
    fn leads(&self, plan: &Plan) -> bool {
        let mut products = plan.products.iter();
        match (products.next(), products.next()) {
            (Some((&id, sources)), None) => {
                let op = &self.from.ops[id];
                let k = self.from.ty(op.operands[0]).ty.shape()[1];
                matches!(op.kind, OpKind::Dot { strategy } if lead(strategy) > 0
                    && sources.iter().all(|s| matches!(s, Some(s) if matches!(s.store, Store::Ring(_))))
                    && depth(strategy, k) < k)
            }
            _ => false,
        }
    }

    /// A product in steps of K. `start` is done once the first step's operands have been read. Operands of the first
    /// step that came from the iteration before are given with what reads them for the next one, which is done before the
    /// last step's product and takes what `start` loaded. What it has not taken is returned, then the operands.
    #[expect(
        clippy::too_many_arguments,
        reason = "each says one thing of the product"
    )]
    fn product(
        &mut self,
        id: OpId,
        at: &Loop<'_>,
        sources: &[Option<Source>; 2],
        into: RegionId,
        slot: ValueId,
        start: impl FnOnce(&mut Self) -> Vec<ValueId>,
        carried: Option<(
            [ValueId; 2],
            impl FnOnce(&mut Self, Vec<ValueId>) -> [ValueId; 2],
        )>,
    ) -> (Vec<ValueId>, Option<[ValueId; 2]>) {
        let op = &self.from.ops[id];
        let OpKind::Dot { strategy } = op.kind else {
            unreachable!("products are planned for `dot`s only");
        };
        let k = self.from.ty(op.operands[0]).ty.shape()[1];
        let steps = if is_cut(strategy, sources) {
            k / depth(strategy, k)
        } else {
            1
        };
        let lead = if at.plan.crowded { 0 } else { lead(strategy) };
        let (first, mut finish) = carried.unzip();
        let mut read: Vec<[ValueId; 2]> = first.into_iter().collect();
        let mut start = Some(start);
        let mut loaded = Vec::new();
        let mut next = None;
        let mut acc = self.map[&op.operands[2]];
        for i in 0..steps {
            while (read.len() as u32) < steps.min(i + 1 + lead) {
                if read.len() == 1
                    && let Some(start) = start.take()
                {
                    loaded = start(self);
                }
                let step = read.len() as u32;
                read.push(self.operands(at, id, sources, step, into, slot));
            }
            if let Some(start) = start.take() {
                loaded = start(self);
            }
            if i + 1 == steps
                && let Some(finish) = finish.take()
            {
                next = Some(finish(self, std::mem::take(&mut loaded)));
            }
            let [a, b] = read[i as usize];
            let ty = self.to.ty(acc).ty.clone();
            acc = self.value(into, op.kind.clone(), vec![a, b, acc], ty, op.span);
        }
        self.map.insert(op.results[0], acc);
        (loaded, next)
    }

    /// The operands of step `number` of the product `id`; of all of it, where one is not from the channel.
    fn operands(
        &mut self,
        at: &Loop<'_>,
        id: OpId,
        sources: &[Option<Source>; 2],
        number: u32,
        into: RegionId,
        slot: ValueId,
    ) -> [ValueId; 2] {
        let op = &self.from.ops[id];
        let k = self.from.ty(op.operands[0]).ty.shape()[1];
        let step = match op.kind {
            OpKind::Dot { strategy } if is_cut(strategy, sources) => depth(strategy, k),
            _ => k,
        };
        [0, 1].map(|side| match &sources[side] {
            Some(source) => self.operand(at, id, side, source, number * step, step, into, slot),
            None if step < k => {
                let value = self.map[&op.operands[side]];
                let ty = &self.from.ty(op.operands[side]).ty;
                let (mut shape, mut offsets) = (ty.shape().to_vec(), vec![0, 0]);
                shape[1 - side] = step;
                offsets[1 - side] = number * step;
                let ty = tile::Type::tile(ty.elem(), shape);
                let kind = OpKind::Tile(tile::OpKind::Slice(offsets));
                self.value(into, kind, vec![value], ty, op.span)
            }
            None => self.map[&op.operands[side]],
        })
    }

    /// `step` of K from `offset` on of one operand of the product `id`.
    #[expect(
        clippy::too_many_arguments,
        reason = "each says one thing of the piece"
    )]
    fn operand(
        &mut self,
        at: &Loop<'_>,
        id: OpId,
        side: usize,
        source: &Source,
        offset: u32,
        step: u32,
        into: RegionId,
        slot: ValueId,
    ) -> ValueId {
        let op = &self.from.ops[id];
        let (channel, tile, elem, slot) = match source.store {
            Store::Ring(tile) => {
                let elem = at.plan.loads[tile as usize].tile.elem;
                (at.channel, tile, elem, slot)
            }
            Store::Kept(value) => {
                let elem = self.from.ty(value).ty.elem();
                (self.kept[&value], 0, elem, self.int(into, 0))
            }
        };
        let mut shape = self.from.ty(op.operands[side]).ty.shape().to_vec();
        let along_k = 1 - side;
        shape[along_k] = step;
        let mut offsets = [0, 0];
        offsets[if source.transposed { side } else { along_k }] = offset;
        let kind = OpKind::ReadShared {
            channel,
            tile,
            offsets,
            transposed: source.transposed,
        };
        let ty = tile::Type::tile(elem, shape);
        let mut value = self.value(into, kind, vec![slot], ty.clone(), op.span);
        for &elem in &source.casts {
            let kind = OpKind::Tile(tile::OpKind::Cast);
            value = self.value(into, kind, vec![value], ty.with_elem(elem), op.span);
        }
        value
    }
}

/// What an iteration begins for one ahead.
enum Begin {
    Nothing,
    Copies,
    Loads,
}

fn indices(kind: &OpKind) -> Vec<Index> {
    match kind {
        OpKind::Load { indices, .. } => indices.clone(),
        _ => unreachable!("only loads go through channels"),
    }
}

/// How many steps' operands are read ahead. What plain multiplications need is large: none.
fn lead(strategy: Strategy) -> u32 {
    match strategy {
        Strategy::MmaSync(_) => 1,
        Strategy::Fma => 0,
    }
}
