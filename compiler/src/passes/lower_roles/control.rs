//! Loops and branches of a role: what it carries besides the author's values.
//!
//! Through a loop that waits at rings go its places in them, the slots that are held, those still to be given back, and products in flight.
//! How many slots are to be given back at the head of a loop follows from what its end leaves: the body is written again until both agree.
//! In the first iteration there may be none yet, which a `bool` says.

use std::collections::BTreeSet;

use super::{
    Refused,
    body::{Bound, Lower, as_tile, typed},
    flight::{Flying, Freed, Place, State},
    not_yet, rings,
};
use crate::ir::{
    OpId, RegionId, ValueId, role,
    tile::{ChannelId, OpKind, RoleOp, Type},
};

/// How often a loop's body is written at most until its head and its end agree.
const ATTEMPTS: u32 = 8;

/// What is known where control meets, without values.
#[derive(Clone, PartialEq)]
struct Meeting {
    /// By pending value of the author's: its age, if it may be in flight.
    pending: Vec<Option<u32>>,
    /// Others that were in flight before, by key.
    others: Vec<(u32, Option<u32>)>,
    freed: Vec<FreedShape>,
    /// By slot that is held, in all channels: the age of what reads it.
    reads: Vec<Option<u32>>,
    storing: bool,
}

#[derive(Clone, Copy, PartialEq)]
struct FreedShape {
    channel: ChannelId,
    age: u32,
    lag: Option<u32>,
    /// There may be none.
    maybe: bool,
}

/// The lower of two ages; what is not in flight is older than all.
fn lower(a: Option<u32>, b: Option<u32>) -> Option<u32> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

impl Meeting {
    /// What is known of `state`, with `pending` the author's values.
    fn of(state: &State, pending: &[ValueId], others: &[u32]) -> Meeting {
        let age = |value: &ValueId| {
            state
                .flying
                .iter()
                .find(|f| f.value == *value)
                .map(|f| f.age)
        };
        let by_key = |key: u32| state.flying.iter().find(|f| f.key == key).map(|f| f.age);
        let held = state.channels.values().flat_map(|c| &c.held);
        Meeting {
            pending: pending.iter().map(age).collect(),
            others: others.iter().map(|&key| (key, by_key(key))).collect(),
            freed: state
                .freed
                .iter()
                .map(|f| FreedShape {
                    channel: f.channel,
                    age: f.age,
                    lag: f.lag,
                    maybe: f.valid.is_some(),
                })
                .collect(),
            reads: held.map(|h| h.read).collect(),
            storing: state.storing,
        }
    }

    /// What holds if either does.
    fn with(&self, other: &Meeting) -> Option<Meeting> {
        let same = |a: &[FreedShape], b: &[FreedShape]| {
            a.len() == b.len()
                && a.iter()
                    .zip(b)
                    .all(|(a, b)| (a.channel, a.lag) == (b.channel, b.lag))
        };
        let freed = if same(&self.freed, &other.freed) {
            let pairs = self.freed.iter().zip(&other.freed);
            pairs
                .map(|(a, b)| FreedShape {
                    age: a.age.min(b.age),
                    maybe: a.maybe || b.maybe,
                    ..*a
                })
                .collect()
        } else {
            let some = match (self.freed.is_empty(), other.freed.is_empty()) {
                (true, false) => &other.freed,
                (false, true) => &self.freed,
                _ => return None,
            };
            let shapes = some.iter();
            shapes.map(|f| FreedShape { maybe: true, ..*f }).collect()
        };
        if self.reads.len() != other.reads.len() {
            return None;
        }
        Some(Meeting {
            pending: (self.pending.iter().zip(&other.pending))
                .map(|(&a, &b)| lower(a, b))
                .collect(),
            others: (self.others.iter().zip(&other.others))
                .map(|(a, b)| (a.0, lower(a.1, b.1)))
                .collect(),
            freed,
            reads: (self.reads.iter().zip(&other.reads))
                .map(|(&a, &b)| lower(a, b))
                .collect(),
            storing: self.storing || other.storing,
        })
    }
}

impl Lower<'_> {
    pub(super) fn control(&mut self, id: OpId) -> Result<(), Refused> {
        let op = &self.from.ops[id];
        let mut ops = Vec::new();
        for &region in &op.regions {
            rings::inside(self.from, region, &mut ops);
        }
        let by_roles = |id: &OpId| {
            let kind = &self.from.ops[*id].kind;
            matches!(kind, OpKind::Role(kind) if !matches!(kind, RoleOp::Require(_)))
        };
        let pending = |v: &ValueId| matches!(self.from.ty(*v), Type::Pending(_));
        let stores = ops
            .iter()
            .any(|&id| matches!(self.from.ops[id].kind, OpKind::Store { .. }));
        if !ops.iter().any(by_roles) && !op.results.iter().any(pending) {
            return self.simple(id);
        }
        let touched: BTreeSet<ChannelId> = ops
            .iter()
            .filter_map(|&id| match self.from.ops[id].kind {
                OpKind::Role(
                    RoleOp::Put { channel, .. }
                    | RoleOp::Get { channel }
                    | RoleOp::Release { channel, .. },
                ) => Some(channel),
                _ => None,
            })
            .collect();
        match op.kind {
            OpKind::For { .. } => self.counted(id, &touched, stores),
            OpKind::If => self.branch(id, &touched),
            _ => Err(not_yet(op.span, "a channel or a product in a `while`")),
        }
    }

    /// Control that nothing waits in.
    fn simple(&mut self, id: OpId) -> Result<(), Refused> {
        let op = &self.from.ops[id];
        let operands = op.operands.iter().map(|&v| self.value(v)).collect();
        let around = self.into;
        let mut regions = Vec::new();
        for &region in &op.regions {
            self.into = self.to.new_region();
            for &arg in &self.from.regions[region].args {
                let ty = typed(as_tile(self.from.ty(arg)));
                let new = self.to.add_argument(self.into, ty);
                self.bound.insert(arg, Bound::Value(new));
            }
            self.ops(region)?;
            let values = self.yielded(region);
            self.effect(role::OpKind::Tile(OpKind::Yield), values);
            regions.push(self.into);
        }
        self.into = around;
        let types = op.results.iter().map(|&r| typed(as_tile(self.from.ty(r))));
        let types = types.collect();
        let kind = role::OpKind::Tile(op.kind.clone());
        let new = self
            .to
            .append(around, kind, operands, types, regions, op.span);
        for (&old, &new) in op.results.iter().zip(&self.to.ops[new].results) {
            self.bound.insert(old, Bound::Value(new));
        }
        Ok(())
    }

    /// What a region yields, in registers.
    fn yielded(&mut self, region: RegionId) -> Vec<ValueId> {
        let last = self.from.regions[region].ops.last();
        let operands = last.map_or(&[][..], |&id| &self.from.ops[id].operands);
        operands.iter().map(|&v| self.value(v)).collect()
    }

    /// The values of a state that go along where control meets.
    fn pack(
        &mut self,
        state: &State,
        touched: &BTreeSet<ChannelId>,
        meeting: &Meeting,
    ) -> Vec<ValueId> {
        let mut values = Vec::new();
        for channel in touched {
            let Some(ring) = state.channels.get(channel) else {
                continue;
            };
            let places = ring.put.into_iter().chain(ring.get);
            values.extend(places.flat_map(|p| [p.slot, p.phase]));
            values.extend(ring.held.iter().map(|h| h.slot));
        }
        for (i, shape) in meeting.freed.iter().enumerate() {
            let found = state.freed.get(i).copied();
            values.push(match found {
                Some(freed) => freed.slot,
                None => self.int(0),
            });
            if shape.maybe {
                values.push(match found {
                    Some(freed) => match freed.valid {
                        Some(valid) => valid,
                        None => self.bool(true),
                    },
                    None => self.bool(false),
                });
            }
        }
        values.extend(meeting.others.iter().map(|(key, _)| self.latest[key]));
        values
    }

    /// The state that `values`, packed as [`pack`](Lower::pack) does, are; `pending` are the author's, with their keys.
    fn unpack(
        &mut self,
        before: &State,
        touched: &BTreeSet<ChannelId>,
        meeting: &Meeting,
        pending: &[(u32, ValueId)],
        values: &[ValueId],
    ) -> State {
        let mut state = before.clone();
        let mut values = values.iter().copied();
        let mut next = || match values.next() {
            Some(value) => value,
            None => unreachable!("as many values are packed as unpacked"),
        };
        for channel in touched {
            let Some(ring) = state.channels.get_mut(channel) else {
                continue;
            };
            for place in ring.put.iter_mut().chain(&mut ring.get) {
                *place = Place {
                    slot: next(),
                    phase: next(),
                };
            }
            ring.held.iter_mut().for_each(|h| h.slot = next());
        }
        let held = state.channels.values_mut().flat_map(|c| &mut c.held);
        for (held, &read) in held.zip(&meeting.reads) {
            held.read = read;
        }
        let freed = meeting.freed.iter().map(|shape| Freed {
            channel: shape.channel,
            slot: next(),
            age: shape.age,
            lag: shape.lag,
            valid: shape.maybe.then(&mut next),
        });
        state.freed = freed.collect();
        state.flying = Vec::new();
        for (&(key, value), &age) in pending.iter().zip(&meeting.pending) {
            self.latest.insert(key, value);
            if let Some(age) = age {
                state.flying.push(Flying { key, value, age });
            }
        }
        for &(key, age) in &meeting.others {
            let value = next();
            self.latest.insert(key, value);
            if let Some(age) = age {
                state.flying.push(Flying { key, value, age });
            }
        }
        // The oldest first.
        state.flying.sort_by_key(|f| std::cmp::Reverse(f.age));
        state.storing = meeting.storing;
        state
    }

    fn counted(
        &mut self,
        id: OpId,
        touched: &BTreeSet<ChannelId>,
        stores: bool,
    ) -> Result<(), Refused> {
        let op = &self.from.ops[id];
        let region = op.regions[0];
        let arguments = &self.from.regions[region].args;
        let around = self.into;
        self.finish_factors();
        let operands: Vec<ValueId> = op.operands.iter().map(|&v| self.value(v)).collect();
        let (bounds, inits) = operands.split_at(3);
        let is_pending: Vec<bool> = op
            .results
            .iter()
            .map(|&r| matches!(self.from.ty(r), Type::Pending(_)))
            .collect();
        let only_pending = |values: &[ValueId]| -> Vec<ValueId> {
            let pairs = values.iter().zip(&is_pending);
            pairs.filter(|(_, is)| **is).map(|(&v, _)| v).collect()
        };
        let entry = self.state.clone();
        let starts = only_pending(inits);
        let keys: Vec<u32> = starts
            .iter()
            .map(|v| match entry.flying.iter().find(|f| f.value == *v) {
                Some(flying) => flying.key,
                None => self.new_key(),
            })
            .collect();
        let outside: Vec<(u32, ValueId)> = entry
            .flying
            .iter()
            .filter(|f| !starts.contains(&f.value))
            .map(|f| (f.key, f.value))
            .collect();
        let others: Vec<u32> = outside.iter().map(|&(key, _)| key).collect();
        let mut head = Meeting::of(&entry, &starts, &others);
        head.storing |= stores;
        let before = (self.to.clone(), self.bound.clone(), self.latest.clone());
        let mut done = None;
        for _ in 0..ATTEMPTS {
            (self.to, self.bound, self.latest) = before.clone();
            let mut carried = inits.to_vec();
            self.into = around;
            carried.extend(self.pack(&entry, touched, &head));
            // The body.
            let inner = self.to.new_region();
            self.into = inner;
            let index = self
                .to
                .add_argument(inner, typed(as_tile(self.from.ty(arguments[0]))));
            self.bound.insert(arguments[0], Bound::Value(index));
            let args: Vec<ValueId> = carried
                .iter()
                .map(|&v| {
                    let ty = self.to.ty(v).clone();
                    self.to.add_argument(inner, ty)
                })
                .collect();
            let (own, packed) = args.split_at(inits.len());
            let first_other = args.len() - outside.len();
            for (&(_, old), &new) in outside.iter().zip(&args[first_other..]) {
                self.rebind(old, new);
            }
            for (&arg, &new) in arguments[1..].iter().zip(own) {
                self.bound.insert(arg, Bound::Value(new));
            }
            let pending: Vec<(u32, ValueId)> =
                keys.iter().copied().zip(only_pending(own)).collect();
            self.state = self.unpack(&entry, touched, &head, &pending, packed);
            self.ops(region)?;
            self.finish_factors();
            let mut values = self.yielded(region);
            let end = self.state.clone();
            let ends = only_pending(&values);
            self.all_kept(&end, &ends, &others)?;
            let back = Meeting::of(&end, &ends, &others);
            let Some(met) = head.with(&back).filter(|_| same_held(&entry, &end)) else {
                let what = "a loop that holds more slots at its end than at its beginning";
                return Err(not_yet(op.span, what));
            };
            if met == head {
                values.extend(self.pack(&end, touched, &head));
                self.effect(role::OpKind::Tile(OpKind::Yield), values);
                done = Some((carried, inner));
                break;
            }
            head = met;
        }
        self.into = around;
        let Some((carried, inner)) = done else {
            return Err(not_yet(op.span, "a loop that never finds its balance"));
        };
        let types = carried.iter().map(|&v| self.to.ty(v).clone()).collect();
        let operands = bounds.iter().copied().chain(carried).collect();
        let kind = role::OpKind::Tile(op.kind.clone());
        let new = self
            .to
            .append(around, kind, operands, types, vec![inner], op.span);
        let results = self.to.ops[new].results.clone();
        (self.bound, self.latest) = (before.1, before.2);
        self.met(id, &entry, touched, &head, &keys, &outside, &results);
        Ok(())
    }

    fn branch(&mut self, id: OpId, touched: &BTreeSet<ChannelId>) -> Result<(), Refused> {
        let op = &self.from.ops[id];
        let around = self.into;
        let condition = self.value(op.operands[0]);
        let entry = self.state.clone();
        let outside: Vec<(u32, ValueId)> = entry.flying.iter().map(|f| (f.key, f.value)).collect();
        let others: Vec<u32> = outside.iter().map(|&(key, _)| key).collect();
        let is_pending = |i: usize| matches!(self.from.ty(op.results[i]), Type::Pending(_));
        let pending: Vec<usize> = (0..op.results.len()).filter(|&i| is_pending(i)).collect();
        let before = (self.bound.clone(), self.latest.clone());
        let mut sides = Vec::new();
        for &region in &op.regions {
            (self.bound, self.latest) = before.clone();
            self.state = entry.clone();
            self.into = self.to.new_region();
            self.ops(region)?;
            self.finish_factors();
            let values = self.yielded(region);
            let end = self.state.clone();
            let ends: Vec<ValueId> = pending.iter().map(|&i| values[i]).collect();
            self.all_kept(&end, &ends, &others)?;
            let meeting = Meeting::of(&end, &ends, &others);
            sides.push((self.into, values, end, meeting, self.latest.clone()));
        }
        let same = same_held(&sides[0].2, &sides[1].2);
        let Some(meeting) = sides[0].3.with(&sides[1].3).filter(|_| same) else {
            let what = "branches that leave other slots held";
            return Err(not_yet(op.span, what));
        };
        let mut regions = Vec::new();
        let mut types = Vec::new();
        let held = sides[0].2.clone();
        for (region, mut values, end, _, latest) in sides {
            self.into = region;
            self.latest = latest;
            values.extend(self.pack(&end, touched, &meeting));
            types = values.iter().map(|&v| self.to.ty(v).clone()).collect();
            self.effect(role::OpKind::Tile(OpKind::Yield), values);
            regions.push(region);
        }
        self.into = around;
        let kind = role::OpKind::Tile(OpKind::If);
        let new = self
            .to
            .append(around, kind, vec![condition], types, regions, op.span);
        let results = self.to.ops[new].results.clone();
        (self.bound, self.latest) = before;
        let keys: Vec<u32> = pending.iter().map(|_| self.new_key()).collect();
        self.met(id, &held, touched, &meeting, &keys, &outside, &results);
        Ok(())
    }

    /// Binds the results of control that has met, and takes its state.
    #[expect(
        clippy::too_many_arguments,
        reason = "what the two kinds of control have in common"
    )]
    fn met(
        &mut self,
        id: OpId,
        held: &State,
        touched: &BTreeSet<ChannelId>,
        meeting: &Meeting,
        keys: &[u32],
        outside: &[(u32, ValueId)],
        results: &[ValueId],
    ) {
        let op = &self.from.ops[id];
        let (own, packed) = results.split_at(op.results.len());
        let first_other = packed.len() - outside.len();
        for (&(_, old), &new) in outside.iter().zip(&packed[first_other..]) {
            self.rebind(old, new);
        }
        let mut pending = Vec::new();
        for (&old, &new) in op.results.iter().zip(own) {
            self.bound.insert(old, Bound::Value(new));
            if matches!(self.from.ty(old), Type::Pending(_)) {
                pending.push(new);
            }
        }
        let pending: Vec<(u32, ValueId)> = keys.iter().copied().zip(pending).collect();
        self.state = self.unpack(held, touched, meeting, &pending, packed);
    }

    /// Whether all that flies is handed on.
    fn all_kept(&self, end: &State, ends: &[ValueId], others: &[u32]) -> Result<(), Refused> {
        let kept = |f: &Flying| ends.contains(&f.value) || others.contains(&f.key);
        match end.flying.iter().all(kept) {
            true => Ok(()),
            false => Err(not_yet(self.span, "a product that is not awaited here")),
        }
    }
}

/// Whether the same numbers of slots are held.
fn same_held(a: &State, b: &State) -> bool {
    let count = |s: &State| -> Vec<_> {
        let rings = s.channels.values();
        rings.map(|c| (c.held.len(), c.parts.clone())).collect()
    };
    count(a) == count(b)
}
