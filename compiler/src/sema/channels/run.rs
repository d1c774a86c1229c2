//! Execution of the roles' skeletons, for one value of each atom.
//!
//! Roles are first executed each by itself, never waiting: that shows how often each puts and gets, what it holds, and
//! what flies. Then together, with slots that are full or free: who waits for ever is in a circle. A kernel is a network
//! whose roles' choices do not depend on timing, so one order of execution stands for all.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
};

use super::{
    skeleton::{Ends, Role, Step},
    terms::{Place, TermId, Terms, Values},
};
use crate::ir::{
    RegionId, ValueId,
    tile::{Channel, ChannelId},
};

use cranelift_entity::PrimaryMap;

/// What a value is: tiles of slots, products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ref {
    Slot(ChannelId, u64),
    Product(u64),
}

/// What is wrong, with the role and the step.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fault {
    /// It gives back a slot, and holds none.
    NotHeld {
        role: usize,
        step: usize,
    },
    /// It reads a slot that it no longer holds.
    Late {
        role: usize,
        step: usize,
        channel: ChannelId,
        given: Option<usize>,
    },
    /// It hands on what it does not hold.
    HandsOn {
        role: usize,
        step: usize,
        channel: ChannelId,
        given: Option<usize>,
    },
    /// It writes in place what a product in flight reads.
    InFlight {
        role: usize,
        step: usize,
        product: usize,
        channel: ChannelId,
    },
    Lag {
        role: usize,
        step: usize,
        counted: u64,
    },
    Unawaited {
        role: usize,
        step: usize,
    },
    Held {
        role: usize,
        step: usize,
        channel: ChannelId,
        count: usize,
    },
}

/// What a role waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Full(ChannelId, u64),
    Free(ChannelId, u64),
    Turn(usize),
}

struct Held {
    slot: u64,
    /// The newest product that reads it.
    read: Option<u64>,
    step: usize,
}

struct Freed {
    channel: ChannelId,
    slot: u64,
    read: u64,
    lag: Option<u32>,
}

/// A role in execution.
pub(super) struct Machine<'r> {
    index: usize,
    role: &'r Role,
    pub pc: usize,
    env: HashMap<ValueId, Vec<Ref>>,
    /// Of each loop: the index, its step, and how many are left.
    loops: Vec<(i64, i64, i64)>,
    begun: u64,
    done: u64,
    /// Products up to this one have been put.
    handed: u64,
    products: Vec<usize>,
    held: BTreeMap<ChannelId, VecDeque<Held>>,
    freed: Vec<Freed>,
    given: HashMap<(ChannelId, u64), usize>,
    pub puts: BTreeMap<ChannelId, u64>,
    pub parts: HashMap<(ChannelId, Vec<i64>), u64>,
    pub gets: BTreeMap<ChannelId, u64>,
    pub visits: BTreeMap<usize, u64>,
    /// Turns that it has taken and not passed on.
    turning: HashSet<usize>,
}

/// Slots of all channels.
pub(super) struct Net<'n> {
    pub channels: &'n PrimaryMap<ChannelId, Channel>,
    pub ends: &'n Ends,
    /// Parts that fill a slot.
    pub parts: &'n HashMap<ChannelId, u32>,
    /// Whether roles wait.
    pub waits: bool,
    filled: HashMap<ChannelId, Vec<u32>>,
    freed: HashMap<ChannelId, Vec<u32>>,
    /// Slots that were handed on: whose they are.
    from: HashMap<(ChannelId, u64), (ChannelId, u64)>,
    /// Whose turn it is, and how often anybody passed.
    turns: HashMap<usize, u32>,
    pub seen: HashSet<u64>,
}

/// Values of received scalars: one after another, all of them.
#[derive(Default)]
pub(super) struct Oracle {
    values: HashMap<(TermId, Vec<(ChannelId, u64)>), i64>,
    /// The choice at each question, and how many there are.
    choices: Vec<(usize, usize)>,
    asked: usize,
    /// Of each term, the same for all roles.
    pub canonical: HashMap<TermId, TermId>,
    pub options: HashMap<TermId, Vec<i64>>,
}

impl Oracle {
    /// Begins again, with the same choices.
    pub fn restart(&mut self) {
        self.values.clear();
        self.asked = 0;
    }

    /// Goes on to the next choices; false if there are none.
    pub fn advance(&mut self) -> bool {
        while let Some((choice, count)) = self.choices.pop() {
            if choice + 1 < count {
                self.choices.push((choice + 1, count));
                return true;
            }
        }
        false
    }

    fn ask(&mut self, term: TermId, slots: Vec<(ChannelId, u64)>) -> i64 {
        let term = self.canonical.get(&term).copied().unwrap_or(term);
        if let Some(&value) = self.values.get(&(term, slots.clone())) {
            return value;
        }
        let options = self.options.get(&term).map_or(&[0, 1][..], |o| &o[..]);
        if self.asked == self.choices.len() {
            self.choices.push((0, options.len()));
        }
        let (choice, _) = self.choices[self.asked];
        self.asked += 1;
        let value = options.get(choice).copied().unwrap_or(0);
        self.values.insert((term, slots), value);
        value
    }
}

struct At<'m, 'r> {
    machine: &'m Machine<'r>,
    terms: &'m Terms<'m>,
    oracle: &'m mut Oracle,
}

impl Place for At<'_, '_> {
    fn index(&self, region: RegionId) -> Option<i64> {
        let loops = &self.machine.role.loops;
        let of = loops.iter().position(|l| l.index == region)?;
        Some(self.machine.loops[of].0)
    }

    fn received(&mut self, term: TermId) -> Option<i64> {
        let mut slots = Vec::new();
        for tile in &self.terms.about(term).got {
            for r in self.machine.env.get(tile).into_iter().flatten() {
                if let Ref::Slot(channel, slot) = r {
                    slots.push((*channel, *slot));
                }
            }
        }
        Some(self.oracle.ask(term, slots))
    }
}

pub(super) struct Given<'g, 'k> {
    pub terms: &'g Terms<'k>,
    pub values: &'g Values,
}

pub(super) enum Progress {
    Went,
    Waits(Wait),
    Ended,
}

impl<'n> Net<'n> {
    pub fn new(
        channels: &'n PrimaryMap<ChannelId, Channel>,
        ends: &'n Ends,
        parts: &'n HashMap<ChannelId, u32>,
        waits: bool,
    ) -> Net<'n> {
        Net {
            channels,
            ends,
            parts,
            waits,
            filled: HashMap::new(),
            freed: HashMap::new(),
            from: HashMap::new(),
            turns: HashMap::new(),
            seen: HashSet::new(),
        }
    }

    fn readers(&self, channel: ChannelId) -> u32 {
        self.ends.gets.get(&channel).map_or(0, |r| r.len() as u32)
    }

    fn count(list: &HashMap<ChannelId, Vec<u32>>, channel: ChannelId, slot: u64) -> u32 {
        let of = list.get(&channel).and_then(|l| l.get(slot as usize));
        of.copied().unwrap_or(0)
    }

    fn bump(list: &mut HashMap<ChannelId, Vec<u32>>, channel: ChannelId, slot: u64) {
        let list = list.entry(channel).or_default();
        if list.len() <= slot as usize {
            list.resize(slot as usize + 1, 0);
        }
        list[slot as usize] += 1;
    }

    /// Whether slot `slot` of all that are ever put can be filled.
    fn is_free(&self, channel: ChannelId, slot: u64) -> bool {
        let depth = u64::from(self.channels[channel].depth);
        slot < depth || Self::count(&self.freed, channel, slot - depth) >= self.readers(channel)
    }

    fn is_full(&self, channel: ChannelId, slot: u64) -> bool {
        let parts = self.parts.get(&channel).copied().unwrap_or(1);
        Self::count(&self.filled, channel, slot) >= parts
    }

    fn free(&mut self, mut channel: ChannelId, mut slot: u64) {
        loop {
            Self::bump(&mut self.freed, channel, slot);
            if Self::count(&self.freed, channel, slot) < self.readers(channel) {
                return;
            }
            match self.from.get(&(channel, slot)) {
                Some(&(of, at)) => (channel, slot) = (of, at),
                None => return,
            }
        }
    }

    /// Who has not yet given back a slot that is waited for.
    pub fn holders(&self, machines: &[Machine<'_>], channel: ChannelId, slot: u64) -> Vec<usize> {
        let depth = u64::from(self.channels[channel].depth);
        let Some(slot) = slot.checked_sub(depth) else {
            return Vec::new();
        };
        let readers = self.ends.gets.get(&channel).into_iter().flatten();
        readers
            .copied()
            .filter(|&r| {
                let m = &machines[r];
                let got = m.gets.get(&channel).copied().unwrap_or(0);
                let held = m
                    .held
                    .get(&channel)
                    .is_some_and(|h| h.iter().any(|h| h.slot == slot));
                let late = m
                    .freed
                    .iter()
                    .any(|f| (f.channel, f.slot) == (channel, slot));
                got <= slot || held || late
            })
            .collect()
    }

    /// Where a slot was handed on to.
    pub fn handed_on(&self, channel: ChannelId, slot: u64) -> Option<(ChannelId, u64)> {
        let found = self.from.iter().find(|(_, of)| **of == (channel, slot));
        found.map(|(to, _)| *to)
    }
}

impl<'r> Machine<'r> {
    pub fn new(index: usize, role: &'r Role) -> Machine<'r> {
        Machine {
            index,
            role,
            pc: 0,
            env: HashMap::new(),
            loops: vec![(0, 1, 0); role.loops.len()],
            begun: 0,
            done: 0,
            handed: 0,
            products: Vec::new(),
            held: BTreeMap::new(),
            freed: Vec::new(),
            given: HashMap::new(),
            puts: BTreeMap::new(),
            parts: HashMap::new(),
            gets: BTreeMap::new(),
            visits: BTreeMap::new(),
            turning: HashSet::new(),
        }
    }

    pub fn ended(&self) -> bool {
        self.pc >= self.role.steps.len()
    }

    fn value(&self, term: TermId, given: &Given<'_, '_>, oracle: &mut Oracle) -> i64 {
        let mut at = At {
            machine: self,
            terms: given.terms,
            oracle,
        };
        given.terms.eval(term, given.values, &mut at).unwrap_or(0)
    }

    fn refs(&self, values: &[ValueId]) -> Vec<Ref> {
        let mut out = Vec::new();
        for v in values {
            for r in self.env.get(v).into_iter().flatten() {
                if !out.contains(r) {
                    out.push(*r);
                }
            }
        }
        out
    }

    fn holds(&mut self, channel: ChannelId, slot: u64) -> Option<&mut Held> {
        let held = self.held.get_mut(&channel)?;
        held.iter_mut().find(|h| h.slot == slot)
    }

    /// Reads the slots among `values`, by a product or at once.
    fn read(&mut self, values: &[ValueId], product: Option<u64>) -> Result<(), Fault> {
        for r in self.refs(values) {
            if let Ref::Slot(channel, slot) = r {
                let (role, step) = (self.index, self.pc);
                let given = self.given.get(&(channel, slot)).copied();
                match self.holds(channel, slot) {
                    Some(held) => held.read = held.read.max(product),
                    None => {
                        return Err(Fault::Late {
                            role,
                            step,
                            channel,
                            given,
                        });
                    }
                }
            }
        }
        Ok(())
    }

    /// Products before `until` are over.
    fn over(&mut self, until: u64, net: &mut Net<'_>) {
        self.done = self.done.max(until);
        let done = self.done;
        let mut left = Vec::new();
        for freed in std::mem::take(&mut self.freed) {
            match freed.read < done {
                true => net.free(freed.channel, freed.slot),
                false => left.push(freed),
            }
        }
        self.freed = left;
    }

    /// Waits as `lag` says.
    fn due(&mut self, net: &mut Net<'_>) {
        let newer = |read: u64| self.begun - 1 - read;
        let due = self
            .freed
            .iter()
            .filter_map(|f| f.lag.map(u64::from).filter(|lag| newer(f.read) >= *lag));
        if let Some(lag) = due.min() {
            self.over(self.begun.saturating_sub(lag), net);
        }
    }

    /// Goes one step.
    pub fn go(
        &mut self,
        net: &mut Net<'_>,
        given: &Given<'_, '_>,
        oracle: &mut Oracle,
    ) -> Result<Progress, Fault> {
        let role = self.role;
        let Some(step) = role.steps.get(self.pc) else {
            return Ok(Progress::Ended);
        };
        let at = (self.index, self.pc);
        match step {
            Step::Put {
                channel,
                sources,
                part,
                within,
            } => {
                let start: Option<Vec<i64>> = part.as_ref().map(|p| {
                    p.start
                        .iter()
                        .map(|t| self.value(*t, given, oracle))
                        .collect()
                });
                let slot = match &start {
                    None => self.puts.get(channel).copied().unwrap_or(0),
                    Some(start) => {
                        let key = (*channel, start.clone());
                        self.parts.get(&key).copied().unwrap_or(0)
                    }
                };
                if net.waits && !net.is_free(*channel, slot) {
                    return Ok(Progress::Waits(Wait::Free(*channel, slot)));
                }
                self.read(sources, None)?;
                for r in self.refs(sources) {
                    if let Ref::Product(product) = r {
                        self.handed = self.handed.max(product + 1);
                    }
                }
                if let Some(within) = within {
                    self.hand_on(*within, (*channel, slot), net)?;
                }
                *self.puts.entry(*channel).or_default() += 1;
                if let Some(start) = start {
                    *self.parts.entry((*channel, start)).or_default() += 1;
                }
                Net::bump(&mut net.filled, *channel, slot);
            }
            Step::Get { channel, results } => {
                let slot = self.gets.get(channel).copied().unwrap_or(0);
                if net.waits && !net.is_full(*channel, slot) {
                    return Ok(Progress::Waits(Wait::Full(*channel, slot)));
                }
                *self.gets.entry(*channel).or_default() += 1;
                for r in results {
                    self.env.insert(*r, vec![Ref::Slot(*channel, slot)]);
                }
                self.held.entry(*channel).or_default().push_back(Held {
                    slot,
                    read: None,
                    step: self.pc,
                });
            }
            Step::Release { channel, lag } => {
                let oldest = self.held.get_mut(channel).and_then(VecDeque::pop_front);
                let Some(held) = oldest else {
                    return Err(Fault::NotHeld {
                        role: at.0,
                        step: at.1,
                    });
                };
                self.given.insert((*channel, held.slot), self.pc);
                match held.read.filter(|read| *read >= self.done) {
                    None => net.free(*channel, held.slot),
                    Some(read) => {
                        self.freed.push(Freed {
                            channel: *channel,
                            slot: held.slot,
                            read,
                            lag: *lag,
                        });
                        self.due(net);
                    }
                }
            }
            Step::Product { reads, result } => {
                let product = self.begun;
                self.begun += 1;
                self.products.push(self.pc);
                self.read(reads, Some(product))?;
                self.env.insert(*result, vec![Ref::Product(product)]);
                self.due(net);
            }
            Step::Await { value, lag } => {
                let products = self.refs(&[*value]);
                let newest = products.iter().filter_map(|r| match r {
                    Ref::Product(product) => Some(*product),
                    Ref::Slot(..) => None,
                });
                if let Some(product) = newest.max() {
                    let counted = self.begun - (product + 1).max(self.done);
                    if lag.is_some_and(|lag| u64::from(lag) != counted) {
                        return Err(Fault::Lag {
                            role: at.0,
                            step: at.1,
                            counted,
                        });
                    }
                    self.over(product + 1, net);
                }
            }
            Step::Read(values) => self.read(values, None)?,
            Step::Move(moves) => {
                let new: Vec<Vec<Ref>> = moves.iter().map(|(from, _)| self.refs(from)).collect();
                for ((_, to), refs) in moves.iter().zip(new) {
                    self.env.insert(*to, refs);
                }
            }
            Step::Branch { cond, otherwise } => {
                if self.value(*cond, given, oracle) == 0 {
                    self.pc = *otherwise;
                    return Ok(Progress::Went);
                }
            }
            Step::Jump(to) => {
                self.pc = *to;
                return Ok(Progress::Went);
            }
            Step::Begin(of) => {
                let l = &role.loops[*of];
                let lo = self.value(l.lo, given, oracle);
                let hi = self.value(l.hi, given, oracle);
                let step = self.value(l.step, given, oracle).max(1);
                let count = match hi > lo {
                    true => (hi - lo - 1) / step + 1,
                    false => 0,
                };
                // The index is stepped before each turn.
                self.loops[*of] = match l.rev {
                    false => (lo - step, step, count),
                    true => (lo + count * step, -step, count),
                };
            }
            Step::Next { of, exit } => {
                let (index, step, left) = self.loops[*of];
                if left == 0 {
                    self.pc = *exit;
                    return Ok(Progress::Went);
                }
                self.loops[*of] = (index + step, step, left - 1);
            }
            Step::Enter { turn, cond } => {
                if self.value(*cond, given, oracle) == 0 {
                    self.visits.entry(*turn).or_default();
                } else {
                    let now = net.turns.get(turn).copied().unwrap_or(0);
                    if net.waits && now != role.head.replica {
                        return Ok(Progress::Waits(Wait::Turn(*turn)));
                    }
                    *self.visits.entry(*turn).or_default() += 1;
                    self.turning.insert(*turn);
                }
            }
            Step::Leave { turn } => {
                if self.turning.remove(turn) {
                    let now = net.turns.entry(*turn).or_default();
                    *now = (role.head.replica + 1) % role.head.replicas.max(1);
                }
            }
        }
        self.pc += 1;
        Ok(Progress::Went)
    }
}

impl Machine<'_> {
    /// Hands on the slot that `value` is, as slot `to`.
    fn hand_on(
        &mut self,
        value: ValueId,
        to: (ChannelId, u64),
        net: &mut Net<'_>,
    ) -> Result<(), Fault> {
        let (role, step) = (self.index, self.pc);
        for r in self.refs(&[value]) {
            let Ref::Slot(channel, slot) = r else {
                continue;
            };
            let given = self.given.get(&(channel, slot)).copied();
            let list = self.held.entry(channel).or_default();
            let Some(place) = list.iter().position(|h| h.slot == slot) else {
                return Err(Fault::HandsOn {
                    role,
                    step,
                    channel,
                    given,
                });
            };
            if let Some(read) = list[place].read.filter(|read| *read >= self.done) {
                return Err(Fault::InFlight {
                    role,
                    step,
                    product: self.products[read as usize],
                    channel,
                });
            }
            list.remove(place);
            self.given.insert((channel, slot), step);
            net.from.insert(to, (channel, slot));
        }
        Ok(())
    }

    /// What is left when the role has ended.
    pub fn end(&mut self, net: &mut Net<'_>) -> Vec<Fault> {
        let role = self.index;
        let mut out = Vec::new();
        let covered = self.done.max(self.handed);
        if self.begun > covered {
            let step = self.products[self.begun as usize - 1];
            out.push(Fault::Unawaited { role, step });
        }
        for (&channel, held) in &self.held {
            if let Some(first) = held.front() {
                out.push(Fault::Held {
                    role,
                    step: first.step,
                    channel,
                    count: held.len(),
                });
            }
        }
        self.over(self.begun, net);
        out
    }

    /// A slot that waits for the end of a product, and where that began.
    pub fn late(&self) -> Option<(ChannelId, usize)> {
        let freed = self.freed.first()?;
        Some((freed.channel, *self.products.get(freed.read as usize)?))
    }

    /// Where the machine is, whatever the indices.
    fn hash(&self, state: &mut DefaultHasher) {
        self.pc.hash(state);
        for (channel, held) in &self.held {
            (channel, held.len()).hash(state);
        }
        (self.begun - self.done, self.freed.len()).hash(state);
    }
}

impl Net<'_> {
    /// Remembers where all are, at the head of a loop.
    pub fn note(&mut self, machines: &[Machine<'_>]) {
        let mut state = DefaultHasher::new();
        for m in machines {
            m.hash(&mut state);
        }
        for (id, _) in self.channels {
            let puts: u64 = machines.iter().filter_map(|m| m.puts.get(&id)).sum();
            for &reader in self.ends.gets.get(&id).into_iter().flatten() {
                let gets = machines[reader].gets.get(&id).copied().unwrap_or(0);
                puts.wrapping_sub(gets).hash(&mut state);
            }
        }
        self.seen.insert(state.finish());
    }
}
