//! What happens before what between blocks.
//!
//! Blocks run one after another here, but nothing orders them on a device, except that the last block to arrive at a
//! counter sees what all others did before they arrived. A *stamp* names a block between two of its arrivals; memory
//! keeps stamps, and asks whether what one did is seen by another.
//!
//! Invariants: stamps are not 0; without arrivals a block's stamp is its number + 1.

use std::collections::{BTreeMap, HashMap};

use crate::span::Span;

/// How far each other block's doings are seen: its arrivals before that point.
type Seen = BTreeMap<u32, u32>;

#[derive(Default)]
struct Block {
    stamp: u32,
    arrivals: u32,
    seen: Seen,
}

struct Counter {
    /// The last one has arrived.
    full: bool,
    seen: Seen,
    /// Of the arrival.
    span: Span,
}

/// The order of one launch.
#[derive(Default)]
pub(super) struct Order {
    /// How many blocks have stamps; 0 if nobody arrives anywhere.
    base: u32,
    /// Block and number of arrivals before, of the stamps above `base`.
    stamps: Vec<(u32, u32)>,
    blocks: HashMap<u32, Block>,
    /// By parameter and element.
    counters: BTreeMap<(usize, usize), Counter>,
}

/// Who does something.
#[derive(Clone, Copy)]
pub(super) struct By<'a> {
    pub stamp: u32,
    block: u32,
    order: &'a Order,
}

impl By<'_> {
    /// Whether what `stamp` did is done, as far as this block can tell. Nobody (0) did nothing.
    pub fn sees(&self, stamp: u32) -> bool {
        stamp == 0 || stamp == self.stamp || self.order.sees(self.block, stamp)
    }
}

impl Order {
    /// `arrivals`: whether the kernel has any.
    pub fn new(blocks: u32, arrivals: bool) -> Order {
        Order {
            base: if arrivals { blocks } else { 0 },
            ..Order::default()
        }
    }

    pub fn by(&self, block: u32) -> By<'_> {
        let stamp = self.blocks.get(&block).map_or(block + 1, |b| b.stamp);
        By {
            stamp,
            block,
            order: self,
        }
    }

    fn sees(&self, block: u32, stamp: u32) -> bool {
        let above = stamp.wrapping_sub(self.base + 1) as usize;
        let (other, arrivals) = match self.stamps.get(above) {
            Some(&known) => known,
            None if stamp <= self.base => (stamp - 1, 0),
            None => return false,
        };
        let seen = || self.blocks.get(&block)?.seen.get(&other).copied();
        other == block || seen().is_some_and(|seen| seen > arrivals)
    }

    /// Block `block` arrives at a counter; `last`: so that it is full. `false` if it was full before.
    pub fn arrive(
        &mut self,
        counter: (usize, usize),
        (block, span): (u32, Span),
        last: bool,
    ) -> bool {
        let counter = self.counters.entry(counter).or_insert(Counter {
            full: false,
            seen: Seen::new(),
            span,
        });
        if counter.full {
            return false;
        }
        counter.full = last;
        let own = self.blocks.entry(block).or_default();
        own.arrivals += 1;
        join(&mut counter.seen, &own.seen);
        join(&mut counter.seen, &Seen::from([(block, own.arrivals)]));
        if last {
            join(&mut own.seen, &counter.seen);
        }
        self.stamps.push((block, own.arrivals));
        own.stamp = self.base + self.stamps.len() as u32;
        true
    }

    /// A counter at which blocks arrived, but not the last, and where one did.
    pub fn unfinished(&self) -> Option<((usize, usize), Span)> {
        let mut counters = self.counters.iter();
        counters.find(|(_, c)| !c.full).map(|(&at, c)| (at, c.span))
    }
}

fn join(to: &mut Seen, from: &Seen) {
    for (&block, &arrivals) in from {
        let known = to.entry(block).or_default();
        *known = arrivals.max(*known);
    }
}
