//! Roles: what each gives does not depend on when the others run, so they run one after another, each behind those whose
//! slots it reads.
//!
//! Slots are kept until the tile ends, however deep a ring is. Roles that wait for each other in turn, and slots that lie
//! in all blocks of a cluster, are refused (E0010).

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use cranelift_entity::{PrimaryMap, SecondaryMap};
use tesserine_set::DType;

use super::{
    Fault, elementwise,
    tile::{Inner, Machine},
    value::{Data, Value, row_major},
};
use crate::ir::{
    Op, RegionId, ValueId,
    tile::{Channel, ChannelId, OpKind, PutSource, RoleOp, TileBody, Type, loaded},
};

/// What went through the channels in the tile of the grid that runs.
#[derive(Default)]
pub(super) struct Rings<'k> {
    channels: Option<&'k PrimaryMap<ChannelId, Channel>>,
    slots: SecondaryMap<ChannelId, Vec<Slot>>,
    /// The role that runs, and how many slots of each channel it has got.
    role: usize,
    got: BTreeMap<(usize, ChannelId), usize>,
}

impl<'k> Rings<'k> {
    pub fn of(channels: &'k PrimaryMap<ChannelId, Channel>) -> Rings<'k> {
        Rings {
            channels: Some(channels),
            ..Rings::default()
        }
    }
}

#[derive(Clone, Default)]
struct Slot {
    tiles: Vec<Rc<Data>>,
    /// Of a slot that is put in parts, which elements are there.
    filled: Vec<bool>,
}

/// The channels that a region's operations name, of those that put or of those that get.
fn named(body: &TileBody, region: RegionId, puts: bool, out: &mut BTreeSet<ChannelId>) {
    for &op in &body.regions[region].ops {
        let op = &body.ops[op];
        match op.kind {
            OpKind::Role(RoleOp::Put { channel, .. }) if puts => {
                out.insert(channel);
            }
            OpKind::Role(RoleOp::Get { channel }) if !puts => {
                out.insert(channel);
            }
            _ => {}
        }
        for &inner in &op.regions {
            named(body, inner, puts, out);
        }
    }
}

impl<'k> Machine<'k> {
    pub(super) fn role_op(&mut self, op: &'k Op<OpKind>, kind: &'k RoleOp) -> Result<(), Inner> {
        let body = self.body;
        let operands = &op.operands;
        match kind {
            RoleOp::Roles(_) => self.roles(&op.regions),
            RoleOp::Put {
                channel,
                sources,
                part,
                ..
            } => {
                let mut at = 0;
                let mut tiles = Vec::new();
                for source in sources {
                    let (tile, used) = self.source(&operands[at..], source)?;
                    tiles.push(tile);
                    at += used;
                }
                if !*part {
                    let filled = Vec::new();
                    self.rings.slots[*channel].push(Slot { tiles, filled });
                    return Ok(());
                }
                let shape = match sources.first() {
                    Some(PutSource::Slice { indices, .. }) => {
                        indices.iter().filter_map(|i| i.extent()).collect()
                    }
                    _ => body.ty(operands[0]).shape().to_vec(),
                };
                let Some(whole) = self.rings.channels.and_then(|c| c[*channel].tiles.first())
                else {
                    return Ok(());
                };
                let start: Vec<i64> = operands[at..at + shape.len()]
                    .iter()
                    .map(|v| self.int(*v))
                    .collect();
                let inside = start.iter().zip(&shape).zip(&whole.shape);
                let mut inside =
                    inside.map(|((s, n), all)| *s >= 0 && s + i64::from(*n) <= i64::from(*all));
                if !inside.all(|inside| inside) {
                    return Err(Fault::Slot(*channel).into());
                }
                let strides = row_major(&whole.shape);
                let own = row_major(&shape);
                let count = shape.iter().map(|&d| d as usize).product::<usize>();
                let places: Vec<usize> = (0..count)
                    .map(|i| {
                        let coordinate = |d: usize| i / own[d] % shape[d] as usize;
                        (0..shape.len())
                            .map(|d| (start[d] as usize + coordinate(d)) * strides[d])
                            .sum()
                    })
                    .collect();
                let all = whole.shape.iter().map(|&d| d as usize).product::<usize>();
                let slots = &mut self.rings.slots[*channel];
                // The first slot in which this part is still missing.
                let free = slots.iter().position(|s| !s.filled[places[0]]);
                let free = free.unwrap_or_else(|| {
                    slots.push(Slot {
                        tiles: vec![Rc::new(zeros(whole.elem, all))],
                        filled: vec![false; all],
                    });
                    slots.len() - 1
                });
                let slot = &mut slots[free];
                if places.iter().any(|&p| slot.filled[p]) {
                    return Err(Fault::Slot(*channel).into());
                }
                places.iter().for_each(|&p| slot.filled[p] = true);
                let to = Rc::make_mut(&mut slot.tiles[0]);
                match (to, &*tiles[0]) {
                    (Data::Float(to), Data::Float(from)) => scatter(to, from, &places),
                    (Data::Int(to), Data::Int(from)) => scatter(to, from, &places),
                    (Data::Bool(to), Data::Bool(from)) => scatter(to, from, &places),
                    _ => {}
                }
                Ok(())
            }
            RoleOp::Get { channel } => {
                let role = self.rings.role;
                let next = self.rings.got.entry((role, *channel)).or_default();
                let slot = self.rings.slots[*channel].get(*next).cloned();
                *next += 1;
                let slot = slot.filter(|s| s.filled.iter().all(|f| *f));
                let Some(slot) = slot else {
                    return Err(Fault::Slot(*channel).into());
                };
                for (&result, tile) in op.results.iter().zip(slot.tiles) {
                    self.put(result, Value::Data(tile));
                }
                Ok(())
            }
            RoleOp::Release { .. } | RoleOp::Require(_) => Ok(()),
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
            RoleOp::Pingpong => {
                self.region(op.regions[0])?;
                self.pass(self.yields(op.regions[0]), &op.results);
                Ok(())
            }
        }
    }

    /// Each role when what it gets has been put.
    fn roles(&mut self, regions: &[RegionId]) -> Result<(), Inner> {
        let body = self.body;
        let channels = self.rings.channels.into_iter().flat_map(|c| c.iter());
        for (id, channel) in channels {
            if channel.across.is_some() {
                return Err(Fault::Together(id).into());
            }
        }
        self.rings.slots.clear();
        self.rings.got.clear();
        let names = |puts: bool| -> Vec<BTreeSet<ChannelId>> {
            let of = |&region: &RegionId| {
                let mut out = BTreeSet::new();
                named(body, region, puts, &mut out);
                out
            };
            regions.iter().map(of).collect()
        };
        let (puts, gets) = (names(true), names(false));
        let mut left: Vec<usize> = (0..regions.len()).collect();
        while !left.is_empty() {
            // Nobody who has yet to run puts what it gets.
            let missing = |role: usize, by: &[usize]| {
                let others = by.iter().filter(|&&other| other != role);
                let mut late = others.flat_map(|&other| &puts[other]);
                late.find(|c| gets[role].contains(c)).copied()
            };
            let next = left.iter().position(|&role| missing(role, &left).is_none());
            let Some(next) = next else {
                let waits = missing(left[0], &left);
                return Err(Fault::Together(waits.unwrap_or(ChannelId::from_u32(0))).into());
            };
            let role = left.remove(next);
            self.rings.role = role;
            self.region(regions[role])?;
        }
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
                let used = 1 + indices.iter().map(|i| i.operands()).sum::<usize>();
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
