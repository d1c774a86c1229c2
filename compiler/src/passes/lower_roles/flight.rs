//! What a role holds and what flies at a point of its body: slots, slots to be given back, products.
//!
//! Products of a role end in the order in which they begin. So a product is known by its age: how many have begun since, at least. Waiting
//! until no more than `n` are in flight ends all of age `n` or more.

use std::collections::{BTreeMap, BTreeSet};

use crate::ir::{ValueId, tile::ChannelId};

/// What is known at a point of a role's body; values are those of the new one.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) channels: BTreeMap<ChannelId, Ring>,
    /// Products that may be in flight.
    pub(super) flying: Vec<Flying>,
    /// The age of each product that may still read its left factor from registers.
    pub(super) from_registers: Vec<u32>,
    /// Slots that are given back once the products that read them are over, the oldest first.
    pub(super) freed: Vec<Freed>,
    /// Bulk copies may still read slots that they store.
    pub(super) storing: bool,
}

/// Where a role stands in a ring.
#[derive(Clone, Debug, Default)]
pub(super) struct Ring {
    pub(super) put: Option<Place>,
    pub(super) get: Option<Place>,
    /// Slots that are held, the oldest first.
    pub(super) held: Vec<Held>,
    /// Where the parts begin that it has put of the slot that it fills in parts.
    pub(super) parts: BTreeSet<[u32; 2]>,
}

/// The next slot and the phase that it is waited for in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) slot: ValueId,
    pub(super) phase: ValueId,
}

/// A slot that `get` gave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) slot: ValueId,
    /// The age of the newest product that reads it, if one may be in flight.
    pub(super) read: Option<u32>,
}

/// The result of a product.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flying {
    /// What it is known by, whatever value it is.
    pub(super) key: u32,
    pub(super) value: ValueId,
    pub(super) age: u32,
}

/// A slot that is to be given back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Freed {
    pub(super) channel: ChannelId,
    pub(super) slot: ValueId,
    /// Of the newest product that reads it.
    pub(super) age: u32,
    /// How many newer products may be in flight when it must be given back.
    pub(super) lag: Option<u32>,
    /// Whether it is one at all; `None` if it is in any case.
    pub(super) valid: Option<ValueId>,
}

impl State {
    /// A product begins: all others are older by one.
    pub(super) fn begun(&mut self) {
        let ages = self.flying.iter_mut().map(|f| &mut f.age);
        let freed = self.freed.iter_mut().map(|f| &mut f.age);
        let held = self.channels.values_mut().flat_map(|c| &mut c.held);
        let held = held.filter_map(|h| h.read.as_mut());
        ages.chain(freed)
            .chain(held)
            .chain(&mut self.from_registers)
            .for_each(|age| *age = age.saturating_add(1));
    }

    /// The product reads this slot. One that is not found may be any that is held.
    pub(super) fn reads(&mut self, channel: ChannelId, slot: ValueId) {
        let Some(ring) = self.channels.get_mut(&channel) else {
            return;
        };
        let known = ring.held.iter().any(|h| h.slot == slot);
        for held in &mut ring.held {
            if !known || held.slot == slot {
                held.read = Some(0);
            }
        }
    }

    /// At most `pending` products are in flight from here on. Gives the slots that are free by that.
    pub(super) fn waited(&mut self, pending: u32) -> Vec<Freed> {
        self.flying.retain(|f| f.age < pending);
        self.from_registers.retain(|&age| age < pending);
        for held in self.channels.values_mut().flat_map(|c| &mut c.held) {
            held.read = held.read.filter(|&age| age < pending);
        }
        let (over, left) = self.freed.iter().partition(|f| f.age >= pending);
        self.freed = left;
        over
    }

    /// How many products may be in flight at most, so that each slot that must be given back now is free.
    pub(super) fn due(&self) -> Option<u32> {
        let due = self
            .freed
            .iter()
            .filter(|f| f.lag.is_some_and(|lag| f.age >= lag));
        due.filter_map(|f| f.lag).min()
    }
}
