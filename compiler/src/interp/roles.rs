//! Roles as coroutines: each runs until it waits at a channel or for its turn, and another one goes on.
//!
//! Rings have the depth that the channels say, so that a kernel that would not end on a device does not end well here: when nobody can go on,
//! that is a fault that says who waits for what. Products are over at once. Rings are empty again when a tile of the grid ends.
//!
//! Invariants: what a coroutine does when depends on the seed alone; a channel operation that has to wait has had no effect.

use std::{collections::VecDeque, rc::Rc};

use cranelift_entity::{EntitySet, PrimaryMap, SecondaryMap};
use tesserine_set::DType;

use super::{
    Fault, elementwise,
    tile::{Inner, Machine, Stop},
    value::{Data, Value, row_major},
};
use crate::ir::{
    Op, OpId, RegionId, ValueId,
    tile::{Channel, ChannelId, OpKind, PutSource, RoleHead, RoleOp, TileBody, Type, loaded},
};

/// What is between the roles of the blocks that run.
#[derive(Default)]
pub(super) struct Rings<'k> {
    channels: Option<&'k PrimaryMap<ChannelId, Channel>>,
    /// Operations on channels, and those with some in their regions.
    waiting: EntitySet<OpId>,
    /// Said in the order in which coroutines go on. With 0, each goes on as far as it can.
    pub seed: u64,
    /// By block of the cluster.
    blocks: Vec<BlockRings>,
}

impl<'k> Rings<'k> {
    pub fn of(channels: &'k PrimaryMap<ChannelId, Channel>, body: &TileBody) -> Rings<'k> {
        let mut waiting = EntitySet::new();
        find_waiting(body, body.root, &mut waiting);
        Rings {
            channels: Some(channels),
            waiting,
            ..Rings::default()
        }
    }
}

/// The channels in one block.
#[derive(Default)]
struct BlockRings {
    rings: SecondaryMap<ChannelId, Ring>,
    /// By axis of the grid, the blocks that differ in it alone, this one too.
    rows: Vec<Vec<usize>>,
    /// By the first replica of some role, which one's turn it is, and whether it is inside.
    turns: Vec<(u32, bool)>,
}

#[derive(Clone, Default)]
struct Ring {
    /// How many slots have become free, which are those before the first of `slots`.
    freed: usize,
    slots: VecDeque<Slot>,
    /// By role: how many slots it has got, and how many of those it has given back.
    got: Vec<(usize, usize)>,
    /// How many roles get slots.
    readers: usize,
}

#[derive(Clone, Default)]
struct Slot {
    tiles: Vec<Rc<Data>>,
    /// Of a slot that is put in parts, which elements are there.
    filled: Vec<bool>,
    /// How many readers have given it back.
    released: usize,
    /// It is also a slot of this channel, the so-manieth.
    handed: Option<(ChannelId, usize)>,
}

impl Slot {
    fn full(&self) -> bool {
        self.filled.iter().all(|f| *f)
    }
}

/// One role in one block.
struct Coroutine<'k> {
    block: usize,
    role: usize,
    stack: Vec<Frame<'k>>,
    waits: Option<Waits>,
}

/// What a role waits for.
#[derive(Clone, Copy)]
enum Waits {
    Slot(ChannelId),
    Room(ChannelId),
    Turn,
}

/// A region that is being run.
struct Frame<'k> {
    ops: &'k [OpId],
    next: usize,
    then: Then<'k>,
}

/// What comes behind a region.
enum Then<'k> {
    End,
    If(&'k Op<OpKind>, RegionId),
    For(&'k Op<OpKind>, Trips),
    /// It said whether there is another trip.
    Condition(&'k Op<OpKind>),
    Trip(&'k Op<OpKind>),
    Turn(&'k Op<OpKind>, bool),
}

#[derive(Clone, Copy)]
struct Trips {
    lo: i128,
    step: i128,
    count: i128,
    /// The next one.
    at: i128,
    rev: bool,
}

enum Went {
    /// It did something on a channel, and may go on.
    On,
    Waits,
    Ended,
}

fn find_waiting(body: &TileBody, region: RegionId, found: &mut EntitySet<OpId>) -> bool {
    let mut any = false;
    for &id in &body.regions[region].ops {
        let op = &body.ops[id];
        let mut inside = matches!(
            op.kind,
            OpKind::Role(
                RoleOp::Put { .. } | RoleOp::Get { .. } | RoleOp::Release { .. } | RoleOp::Pingpong
            )
        );
        for &nested in &op.regions {
            inside |= find_waiting(body, nested, found);
        }
        if inside {
            found.insert(id);
        }
        any |= inside;
    }
    any
}

/// Notes which channels a region's operations get from.
fn readers(body: &TileBody, region: RegionId, gets: &mut EntitySet<ChannelId>) {
    for &op in &body.regions[region].ops {
        let op = &body.ops[op];
        if let OpKind::Role(RoleOp::Get { channel }) = op.kind {
            gets.insert(channel);
        }
        for &nested in &op.regions {
            readers(body, nested, gets);
        }
    }
}

/// Numbers that look random, from a seed (splitmix).
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

impl<'k> Machine<'k> {
    /// What of the role level waits for nobody.
    pub(super) fn role_op(&mut self, op: &'k Op<OpKind>, kind: &'k RoleOp) -> Result<(), Inner> {
        let body = self.body;
        let operands = &op.operands;
        match kind {
            RoleOp::Roles(heads) => Ok(self.roles(op, heads)?),
            RoleOp::Require(_) => Ok(()),
            RoleOp::Mma => {
                let ty = body.ty(op.results[0]);
                let count = ty.shape().iter().map(|&d| d as usize).product();
                let zero = zeros(ty.elem(), count);
                let acc = operands.get(2).map_or(&zero, |acc| &**self.data(*acc));
                let inner = body.ty(operands[1]).shape();
                let inner = [inner[0] as usize, inner[1] as usize];
                let (a, b) = (self.data(operands[0]), self.data(operands[1]));
                let product = elementwise::dot(ty.elem(), a, b, acc, inner);
                self.set(op.results[0], product);
                Ok(())
            }
            RoleOp::Await { .. } => {
                self.pass(&operands[..1], &op.results);
                Ok(())
            }
            RoleOp::Put { .. } | RoleOp::Get { .. } | RoleOp::Release { .. } | RoleOp::Pingpong => {
                unreachable!("stands in a role, whose coroutine runs it")
            }
        }
    }

    /// Runs the roles of all blocks at hand to their ends.
    pub(super) fn roles(&mut self, op: &'k Op<OpKind>, heads: &[RoleHead]) -> Result<(), Stop> {
        let body = self.body;
        let Some(channels) = self.rings.channels else {
            return Ok(());
        };
        let blocks = self.residents.len().max(1);
        let mut gets = Vec::new();
        for &region in &op.regions {
            let mut found = EntitySet::new();
            readers(body, region, &mut found);
            gets.push(found);
        }
        self.rings.blocks = (0..blocks)
            .map(|block| {
                let mut own = BlockRings {
                    rows: self.rows(block),
                    turns: vec![(0, false); heads.len()],
                    ..BlockRings::default()
                };
                for channel in channels.keys() {
                    own.rings[channel] = Ring {
                        got: vec![(0, 0); heads.len()],
                        readers: gets.iter().filter(|g| g.contains(channel)).count(),
                        ..Ring::default()
                    };
                }
                own
            })
            .collect();
        let mut live: Vec<Coroutine<'k>> = Vec::new();
        for (role, &region) in op.regions.iter().enumerate() {
            live.extend((0..blocks).map(|block| Coroutine {
                block,
                role,
                stack: vec![Frame {
                    ops: &body.regions[region].ops,
                    next: 0,
                    then: Then::End,
                }],
                waits: None,
            }));
        }
        let seed = self.rings.seed;
        let mut dice = Dice(seed ^ u64::from(self.block) << 32);
        // Where each one waits that has been tried since one last went on.
        let mut tried = vec![false; live.len()];
        let mut turn = 0;
        while !live.is_empty() {
            let open: Vec<usize> = (0..live.len()).filter(|&i| !tried[i]).collect();
            if open.is_empty() {
                let first = live[0].stack.last().map(|f| body.ops[f.ops[f.next]].span);
                let all: Vec<String> = live.iter().map(|c| self.waits(c, heads)).collect();
                return Err((Fault::Stuck(all.join(", ")), first.unwrap_or(op.span)));
            }
            let at = match seed {
                0 => *open.iter().find(|&&i| i >= turn).unwrap_or(&open[0]),
                _ => open[dice.below(open.len())],
            };
            let coroutine = &mut live[at];
            let several = blocks > 1;
            if several {
                self.swap(coroutine.block);
            }
            let mut on = false;
            let went = loop {
                match self.go_on(coroutine, heads)? {
                    Went::On if seed == 0 || dice.below(4) > 0 => on = true,
                    went => break went,
                }
            };
            if several {
                self.swap(coroutine.block);
            }
            on |= !matches!(went, Went::Waits);
            if on {
                tried.fill(false);
            }
            match went {
                Went::On => turn = at,
                Went::Waits => {
                    tried[at] = true;
                    turn = at + 1;
                }
                Went::Ended => {
                    live.remove(at);
                    tried.remove(at);
                    turn = at;
                }
            }
        }
        for rings in std::mem::take(&mut self.rings.blocks) {
            let mut left = channels
                .iter()
                .filter(|(c, _)| !rings.rings[*c].slots.is_empty());
            if let Some((channel, declared)) = left.next() {
                return Err((Fault::Left(channel), declared.span));
            }
        }
        Ok(())
    }

    /// By axis of the grid, the blocks of the cluster that differ from `block` in it alone.
    fn rows(&self, block: usize) -> Vec<Vec<usize>> {
        let Some(own) = self.residents.get(block) else {
            return vec![vec![0]; self.indices.len()];
        };
        let same = |axis: usize, other: &[i64]| {
            let mut pairs = own.indices.iter().zip(other).enumerate();
            pairs.all(|(d, (a, b))| d == axis || a == b)
        };
        (0..own.indices.len())
            .map(|axis| {
                let others = self.residents.iter().enumerate();
                let others = others.filter(|(_, other)| same(axis, &other.indices));
                others.map(|(i, _)| i).collect()
            })
            .collect()
    }

    /// Who waits for what.
    fn waits(&self, coroutine: &Coroutine<'_>, heads: &[RoleHead]) -> String {
        let name = |c: ChannelId| self.rings.channels.map_or("", |all| &all[c].name);
        let who = heads[coroutine.role].label();
        let of = match self.residents.len() {
            0 | 1 => String::new(),
            _ => format!(" of block {}", coroutine.block),
        };
        match coroutine.waits {
            Some(Waits::Slot(c)) => format!("`{who}`{of} waits for a slot of `{}`", name(c)),
            Some(Waits::Room(c)) => {
                format!("`{who}`{of} waits until a slot of `{}` is free", name(c))
            }
            Some(Waits::Turn) => format!("`{who}`{of} waits for its turn at `pingpong`"),
            None => format!("`{who}`{of} has not begun"),
        }
    }

    /// Goes on to behind the next channel operation.
    fn go_on(&mut self, co: &mut Coroutine<'k>, heads: &[RoleHead]) -> Result<Went, Stop> {
        let body = self.body;
        loop {
            let Some(frame) = co.stack.last_mut() else {
                return Ok(Went::Ended);
            };
            let Some(id) = frame.ops.get(frame.next) else {
                if self.end_of_region(co, heads) {
                    return Ok(Went::On);
                }
                continue;
            };
            let op = &body.ops[*id];
            if !self.rings.waiting.contains(*id) {
                frame.next += 1;
                self.run(std::slice::from_ref(id))?;
                continue;
            }
            let went = self
                .wait_op(op, co, heads)
                .map_err(|fault| (fault, op.span))?;
            match went {
                Some(Went::Waits) => return Ok(Went::Waits),
                Some(went) => {
                    co.waits = None;
                    return Ok(went);
                }
                None => {}
            }
        }
    }

    fn push(&self, co: &mut Coroutine<'k>, region: RegionId, then: Then<'k>) {
        co.stack.push(Frame {
            ops: &self.body.regions[region].ops,
            next: 0,
            then,
        });
    }

    /// What comes behind the innermost region. Whether that gives others a turn.
    fn end_of_region(&mut self, co: &mut Coroutine<'k>, heads: &[RoleHead]) -> bool {
        let body = self.body;
        let Some(frame) = co.stack.pop() else {
            return false;
        };
        match frame.then {
            Then::End => {}
            Then::If(op, region) => self.pass(self.yields(region), &op.results),
            Then::For(op, trips) => {
                let args = &body.regions[op.regions[0]].args;
                self.pass(self.yields(op.regions[0]), &args[1..]);
                self.trip(co, op, trips);
            }
            Then::Condition(op) => {
                let [cond, step] = [op.regions[0], op.regions[1]];
                let args = &body.regions[cond].args;
                if self.bool(self.yields(cond)[0]) {
                    self.pass(args, &body.regions[step].args);
                    self.push(co, step, Then::Trip(op));
                } else {
                    self.pass(args, &op.results);
                }
            }
            Then::Trip(op) => {
                let [cond, step] = [op.regions[0], op.regions[1]];
                self.pass(self.yields(step), &body.regions[cond].args);
                self.push(co, cond, Then::Condition(op));
            }
            Then::Turn(op, turn) => {
                self.pass(self.yields(op.regions[0]), &op.results);
                if turn {
                    let head = &heads[co.role];
                    let group = co.role - head.replica as usize;
                    self.rings.blocks[co.block].turns[group] =
                        ((head.replica + 1) % head.replicas, false);
                }
                return turn;
            }
        }
        false
    }

    /// Begins the next trip of a loop, if there is one.
    fn trip(&mut self, co: &mut Coroutine<'k>, op: &'k Op<OpKind>, mut trips: Trips) {
        let region = op.regions[0];
        let args = &self.body.regions[region].args;
        if trips.at == trips.count {
            self.pass(&args[1..], &op.results);
            return;
        }
        let at = match trips.rev {
            true => trips.count - 1 - trips.at,
            false => trips.at,
        };
        trips.at += 1;
        self.set(
            args[0],
            Data::Int(vec![(trips.lo + at * trips.step) as i64]),
        );
        self.push(co, region, Then::For(op, trips));
    }

    /// An operation that may wait, or has such ones in its regions. `None`: go on.
    fn wait_op(
        &mut self,
        op: &'k Op<OpKind>,
        co: &mut Coroutine<'k>,
        heads: &[RoleHead],
    ) -> Result<Option<Went>, Fault> {
        let (block, role) = (co.block, co.role);
        // Where it waits, the work is not counted.
        let waits = match &op.kind {
            OpKind::Role(RoleOp::Put { channel, .. }) => {
                (!self.room(op, block)?).then_some(Waits::Room(*channel))
            }
            OpKind::Role(RoleOp::Get { channel }) => {
                let ring = &self.rings.blocks[block].rings[*channel];
                let at = ring.got[role].0 - ring.freed;
                let full = ring.slots.get(at).is_some_and(Slot::full);
                (!full).then_some(Waits::Slot(*channel))
            }
            OpKind::Role(RoleOp::Pingpong) if self.bool(op.operands[0]) => {
                let head = &heads[role];
                let turns = &self.rings.blocks[block].turns;
                let turn = turns[role - head.replica as usize];
                (turn != (head.replica, false)).then_some(Waits::Turn)
            }
            _ => None,
        };
        if waits.is_some() {
            co.waits = waits;
            return Ok(Some(Went::Waits));
        }
        self.take(op)?;
        if let Some(param) = self.absent(&op.operands) {
            return Err(Fault::Absent(param));
        }
        if let Some(frame) = co.stack.last_mut() {
            frame.next += 1;
        }
        let body = self.body;
        match &op.kind {
            OpKind::Role(RoleOp::Put { .. }) => self.fill(op, block, role)?,
            OpKind::Role(RoleOp::Get { channel }) => {
                let ring = &mut self.rings.blocks[block].rings[*channel];
                let tiles = ring.slots[ring.got[role].0 - ring.freed].tiles.clone();
                ring.got[role].0 += 1;
                for (&result, tile) in op.results.iter().zip(tiles) {
                    self.put(result, Value::Data(tile));
                }
            }
            OpKind::Role(RoleOp::Release { channel, .. }) => {
                let ring = &mut self.rings.blocks[block].rings[*channel];
                let (got, back) = ring.got[role];
                if back == got {
                    return Err(Fault::Slot(*channel));
                }
                self.give_slot_back(block, role, *channel);
            }
            OpKind::Role(RoleOp::Pingpong) => {
                let turn = self.bool(op.operands[0]);
                if turn {
                    let head = &heads[role];
                    let group = role - head.replica as usize;
                    self.rings.blocks[block].turns[group].1 = true;
                }
                self.push(co, op.regions[0], Then::Turn(op, turn));
                return Ok(None);
            }
            OpKind::If => {
                let taken = op.regions[usize::from(!self.bool(op.operands[0]))];
                self.push(co, taken, Then::If(op, taken));
                return Ok(None);
            }
            OpKind::For { rev, .. } => {
                let [lo, hi, step] = [0, 1, 2].map(|i| i128::from(self.int(op.operands[i])));
                if step <= 0 {
                    return Err(Fault::Step(step as i64));
                }
                let args = &body.regions[op.regions[0]].args;
                self.pass(&op.operands[3..], &args[1..]);
                let count = ((hi - lo + step - 1) / step).max(0);
                let (at, rev) = (0, *rev);
                self.trip(
                    co,
                    op,
                    Trips {
                        lo,
                        step,
                        count,
                        at,
                        rev,
                    },
                );
                return Ok(None);
            }
            OpKind::While => {
                let cond = op.regions[0];
                self.pass(&op.operands, &body.regions[cond].args);
                self.push(co, cond, Then::Condition(op));
                return Ok(None);
            }
            _ => unreachable!("nothing else has regions with channel operations"),
        }
        Ok(Some(Went::On))
    }

    /// The role gives back the oldest slot that it holds.
    fn give_slot_back(&mut self, block: usize, role: usize, channel: ChannelId) {
        let ring = &mut self.rings.blocks[block].rings[channel];
        let at = ring.got[role].1 - ring.freed;
        ring.got[role].1 += 1;
        ring.slots[at].released += 1;
        self.free_slots(block, channel);
    }

    /// Takes out the slots that all have given back, the oldest first.
    fn free_slots(&mut self, block: usize, channel: ChannelId) {
        let rings = &mut self.rings.blocks[block].rings;
        let readers = rings[channel].readers;
        while let Some(slot) = rings[channel].slots.front() {
            let handed = slot.handed.is_some_and(|(to, at)| rings[to].freed <= at);
            if slot.released < readers || !slot.full() || handed {
                break;
            }
            rings[channel].slots.pop_front();
            rings[channel].freed += 1;
        }
        // What lies over this one may have kept its slots.
        let channels = self.rings.channels.into_iter().flat_map(|all| all.iter());
        let below: Vec<ChannelId> = channels
            .filter(|(c, _)| {
                let ring = &self.rings.blocks[block].rings[*c];
                let front = ring.slots.front().and_then(|slot| slot.handed);
                front.is_some_and(|(to, at)| {
                    to == channel && at < self.rings.blocks[block].rings[to].freed
                })
            })
            .map(|(c, _)| c)
            .collect();
        for channel in below {
            self.free_slots(block, channel);
        }
    }

    /// The blocks in which a put by `block` arrives.
    fn arrives_in(&self, channel: ChannelId, block: usize) -> Vec<usize> {
        let across = self.rings.channels.and_then(|all| all[channel].across);
        let row = across.and_then(|axis| self.rings.blocks[block].rows.get(axis as usize));
        row.cloned().unwrap_or_else(|| vec![block])
    }

    /// Which elements of the slot's tile a put of a part fills.
    fn places(&self, op: &Op<OpKind>) -> Result<Option<Vec<usize>>, Fault> {
        let OpKind::Role(RoleOp::Put {
            channel,
            sources,
            part: true,
            ..
        }) = &op.kind
        else {
            return Ok(None);
        };
        let whole = self.rings.channels.and_then(|c| c[*channel].tiles.first());
        let (Some(whole), Some(source)) = (whole, sources.first()) else {
            return Ok(None);
        };
        let (shape, used): (Vec<u32>, usize) = match source {
            PutSource::Slice { indices, .. } => (
                indices.iter().filter_map(|i| i.extent()).collect(),
                source_operands(source),
            ),
            PutSource::Value => (self.body.ty(op.operands[0]).shape().to_vec(), 1),
        };
        let start = &op.operands[used..used + shape.len()];
        let start: Vec<i64> = start.iter().map(|v| self.int(*v)).collect();
        let inside = start.iter().zip(&shape).zip(&whole.shape);
        let mut inside =
            inside.map(|((s, n), all)| *s >= 0 && s + i64::from(*n) <= i64::from(*all));
        if !inside.all(|inside| inside) {
            return Err(Fault::Slot(*channel));
        }
        let (strides, own) = (row_major(&whole.shape), row_major(&shape));
        let count = shape.iter().map(|&d| d as usize).product::<usize>();
        let place = |i: usize| {
            let coordinate = |d: usize| start[d] as usize + i / own[d] % shape[d] as usize;
            (0..shape.len()).map(|d| coordinate(d) * strides[d]).sum()
        };
        Ok(Some((0..count).map(place).collect()))
    }

    /// Whether there is a free slot to put, or a part of one, in all blocks.
    fn room(&self, op: &Op<OpKind>, block: usize) -> Result<bool, Fault> {
        let OpKind::Role(RoleOp::Put { channel, .. }) = &op.kind else {
            return Ok(true);
        };
        let depth = self
            .rings
            .channels
            .map_or(0, |all| all[*channel].depth as usize);
        let first = self.places(op)?.map_or(0, |p| p[0]);
        let room = |block: usize| {
            let slots = &self.rings.blocks[block].rings[*channel].slots;
            slots.len() < depth || slots.iter().any(|s| lacks(s, first))
        };
        Ok(self.arrives_in(*channel, block).into_iter().all(room))
    }

    fn fill(&mut self, op: &'k Op<OpKind>, block: usize, role: usize) -> Result<(), Fault> {
        let OpKind::Role(RoleOp::Put {
            channel,
            sources,
            within,
            ..
        }) = &op.kind
        else {
            return Ok(());
        };
        let channel = *channel;
        let Some(declared) = self.rings.channels.map(|all| &all[channel]) else {
            return Ok(());
        };
        let mut at = 0;
        let mut tiles = Vec::new();
        for source in sources {
            let (tile, used) = self.source(&op.operands[at..], source)?;
            tiles.push(tile);
            at += used;
        }
        let places = self.places(op)?;
        let count = |ty: &crate::ir::tile::TileType| ty.shape.iter().map(|&d| d as usize).product();
        for to in self.arrives_in(channel, block) {
            let slots = &mut self.rings.blocks[to].rings[channel].slots;
            let Some(places) = &places else {
                slots.push_back(Slot {
                    tiles: tiles.clone(),
                    ..Slot::default()
                });
                continue;
            };
            // The first slot in which this part is still missing.
            let open = slots.iter().position(|s| lacks(s, places[0]));
            let open = open.unwrap_or_else(|| {
                let whole = &declared.tiles[0];
                let all = count(whole);
                slots.push_back(Slot {
                    tiles: vec![Rc::new(zeros(whole.elem, all))],
                    filled: vec![false; all],
                    ..Slot::default()
                });
                slots.len() - 1
            });
            let slot = &mut slots[open];
            if places.iter().any(|&p| slot.filled[p]) {
                return Err(Fault::Slot(channel));
            }
            places.iter().for_each(|&p| slot.filled[p] = true);
            match (Rc::make_mut(&mut slot.tiles[0]), &*tiles[0]) {
                (Data::Float(to), Data::Float(from)) => scatter(to, from, places),
                (Data::Int(to), Data::Int(from)) => scatter(to, from, places),
                (Data::Bool(to), Data::Bool(from)) => scatter(to, from, places),
                _ => {}
            }
        }
        if *within && let Some(&held) = op.operands.last() {
            self.hand_on(block, role, channel, held)?;
        }
        Ok(())
    }

    /// The slot in which the tile `held` lies becomes the last one of `channel`, and the role gives it back with that.
    fn hand_on(
        &mut self,
        block: usize,
        role: usize,
        channel: ChannelId,
        held: ValueId,
    ) -> Result<(), Fault> {
        let Some(channels) = self.rings.channels else {
            return Ok(());
        };
        let storage = |mut c: ChannelId| {
            while let Some(below) = channels[c].over {
                c = below;
            }
            c
        };
        let held = self.data(held).clone();
        let rings = &mut self.rings.blocks[block].rings;
        let to = (
            channel,
            rings[channel].freed + rings[channel].slots.len() - 1,
        );
        let same = |c: &ChannelId| *c != channel && storage(*c) == storage(channel);
        let found = channels.keys().filter(same).find_map(|c| {
            let ring = &rings[c];
            let (got, back) = ring.got[role];
            let at = (back..got).find(|at| {
                let slot = &ring.slots[at - ring.freed];
                slot.handed.is_none() && slot.tiles.iter().any(|t| Rc::ptr_eq(t, &held))
            })?;
            // Slots are given back in the order in which they were got.
            (at == back).then_some((c, at))
        });
        let Some((from, at)) = found else {
            return Err(Fault::Slot(channel));
        };
        let at = at - rings[from].freed;
        rings[from].slots[at].handed = Some(to);
        self.give_slot_back(block, role, from);
        Ok(())
    }

    /// What a source gives, and how many operands it takes.
    fn source(
        &mut self,
        operands: &[ValueId],
        source: &PutSource,
    ) -> Result<(Rc<Data>, usize), Fault> {
        match source {
            PutSource::Value => Ok((self.data(operands[0]).clone(), 1)),
            PutSource::Slice { indices, .. } => {
                let used = source_operands(source);
                let (param, window) = self.window(&operands[..used], indices, 0)?;
                let Type::View(view) = self.body.ty(operands[0]) else {
                    return Err(Fault::Absent(param));
                };
                let pad = zeros(loaded(view.elem), 1);
                let by = self.order.by(self.block);
                let memory = self.memories[param].as_mut().ok_or(Fault::Absent(param))?;
                let data = memory
                    .load(&window, &pad, by)
                    .map_err(|c| Fault::of_conflict(param, c))?;
                Ok((Rc::new(data), used))
            }
        }
    }
}

fn source_operands(source: &PutSource) -> usize {
    match source {
        PutSource::Value => 1,
        PutSource::Slice { indices, .. } => 1 + indices.iter().map(|i| i.operands()).sum::<usize>(),
    }
}

/// Whether a slot has been put in part, and not there.
fn lacks(slot: &Slot, place: usize) -> bool {
    slot.filled.get(place).is_some_and(|there| !there)
}

fn scatter<T: Copy>(to: &mut [T], from: &[T], places: &[usize]) {
    for (&place, &value) in places.iter().zip(from) {
        to[place] = value;
    }
}

fn zeros(elem: DType, count: usize) -> Data {
    if elem == DType::Bool {
        Data::Bool(vec![false; count])
    } else if elem.is_float() {
        Data::Float(vec![0.0; count])
    } else {
        Data::Int(vec![0; count])
    }
}
