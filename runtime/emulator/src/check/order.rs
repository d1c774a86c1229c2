//! What is known to have happened: epochs, and sets of them closed under causality (PTX ISA §8.9.5, Causality order).
//!
//! Invariants: a [`Base`] never changes once it is shared; the epoch of a thread stands for all its earlier ones too; in each [`Token`] and
//! [`View`], what is fenced is known as well.

use std::{collections::BTreeMap, sync::Arc};

/// A moment of a thread: its block (linear in the grid), its number in the block and its clock. Zero is "never".
///
/// Numbers from the block's count of threads on are asynchronous operations ([`super::Agent`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Epoch(pub(super) u64);

const CLOCK_BITS: u32 = 20;
const THREAD_BITS: u32 = 12;
/// A clock that got here stays: its thread's later accesses look ordered with all that knows this clock.
pub(super) const CLOCK_MAX: u32 = (1 << CLOCK_BITS) - 1;
/// How many numbers a block has for threads and asynchronous operations.
pub(super) const NUMBERS: u32 = 1 << THREAD_BITS;

impl Epoch {
    pub(crate) const NEVER: Epoch = Epoch(0);

    pub(crate) fn new(block: u32, thread: u32, clock: u32) -> Epoch {
        debug_assert!(thread < NUMBERS && (1..=CLOCK_MAX).contains(&clock));
        Epoch(
            (block as u64) << 32
                | ((thread & (NUMBERS - 1)) as u64) << CLOCK_BITS
                | (clock & CLOCK_MAX) as u64,
        )
    }

    pub(crate) fn block(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(crate) fn thread(self) -> u32 {
        (self.0 >> CLOCK_BITS) as u32 & (NUMBERS - 1)
    }

    pub(crate) fn clock(self) -> u32 {
        self.0 as u32 & CLOCK_MAX
    }

    /// Whether both are moments of one thread.
    pub(super) fn same_thread(self, other: Epoch) -> bool {
        (self.0 ^ other.0) >> CLOCK_BITS == 0
    }

    /// The moment of thread 0 of its warp at that clock: equal for the lanes of a warp that keep step.
    pub(super) fn of_warp(self) -> u64 {
        self.0 & !(31 << CLOCK_BITS)
    }

    /// Its bit in the mask of its warp.
    pub(super) fn lane_bit(self) -> u32 {
        1 << (self.thread() & 31)
    }

    /// The lane's moment, of a key that [`Epoch::of_warp`] made.
    pub(super) fn lane_of(warp: u64, lane: u32) -> Epoch {
        Epoch(warp | (lane as u64) << CLOCK_BITS)
    }
}

/// The lanes of a mask, ascending.
#[inline]
pub(super) fn lanes(mut mask: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let lane = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (lane < 32).then_some(lane)
    })
}

/// The state of other blocks' clocks.
type Foreign = BTreeMap<u32, Arc<Vec<u32>>>;

/// For each thread of each block, the last clock that is known. Threads that know the same share one.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) block: u32,
    /// By thread; absent ones are 0.
    pub(super) clocks: Arc<Vec<u32>>,
    pub(super) foreign: Option<Arc<Foreign>>,
}

impl Base {
    pub(super) fn empty(block: u32) -> Arc<Base> {
        Arc::new(Base {
            block,
            clocks: Arc::new(Vec::new()),
            foreign: None,
        })
    }

    #[inline]
    pub(super) fn covers(&self, epoch: Epoch) -> bool {
        let at = epoch.thread() as usize;
        if epoch.block() == self.block {
            return self.clocks.get(at).is_some_and(|c| *c >= epoch.clock());
        }
        let known = self.foreign.as_ref().and_then(|f| f.get(&epoch.block()));
        known.is_some_and(|clocks| clocks.get(at).is_some_and(|c| *c >= epoch.clock()))
    }

    /// All clocks of a block.
    fn clocks_of(&self, block: u32) -> Option<&Arc<Vec<u32>>> {
        if block == self.block {
            return Some(&self.clocks);
        }
        self.foreign.as_ref().and_then(|f| f.get(&block))
    }
}

/// The larger of each pair; one of the two themselves if it holds the other.
fn join_clocks(a: &Arc<Vec<u32>>, b: &Arc<Vec<u32>>) -> Arc<Vec<u32>> {
    if Arc::ptr_eq(a, b) {
        return a.clone();
    }
    let common = a.len().min(b.len());
    let (mut a_less, mut b_less) = (false, false);
    for (x, y) in a[..common].iter().zip(&b[..common]) {
        a_less |= x < y;
        b_less |= y < x;
    }
    a_less |= b[common..].iter().any(|c| *c > 0);
    b_less |= a[common..].iter().any(|c| *c > 0);
    match (a_less, b_less) {
        (false, _) => a.clone(),
        (true, false) => b.clone(),
        (true, true) => {
            let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
            let mut joined = long.to_vec();
            for (x, y) in joined.iter_mut().zip(short.iter()) {
                *x = (*x).max(*y);
            }
            Arc::new(joined)
        }
    }
}

/// All that either knows, seen from the block of `a`.
pub(super) fn join(a: &Arc<Base>, b: &Arc<Base>) -> Arc<Base> {
    if Arc::ptr_eq(a, b) {
        return a.clone();
    }
    let clocks = match b.clocks_of(a.block) {
        Some(theirs) => join_clocks(&a.clocks, theirs),
        None => a.clocks.clone(),
    };
    let foreign = join_foreign(a, b);
    let same = |x: &Option<Arc<Foreign>>, y: &Option<Arc<Foreign>>| match (x, y) {
        (None, None) => true,
        (Some(x), Some(y)) => Arc::ptr_eq(x, y),
        _ => false,
    };
    for one in [a, b] {
        if one.block == a.block && Arc::ptr_eq(&one.clocks, &clocks) && same(&one.foreign, &foreign)
        {
            return one.clone();
        }
    }
    Arc::new(Base {
        block: a.block,
        clocks,
        foreign,
    })
}

fn join_foreign(a: &Base, b: &Base) -> Option<Arc<Foreign>> {
    if a.block == b.block {
        match (&a.foreign, &b.foreign) {
            (x, None) => return x.clone(),
            (None, y) => return y.clone(),
            (Some(x), Some(y)) if Arc::ptr_eq(x, y) => return Some(x.clone()),
            _ => {}
        }
    }
    let mut joined: Option<Foreign> = None;
    let mut add = |block: u32, theirs: &Arc<Vec<u32>>| {
        if block == a.block || theirs.is_empty() {
            return;
        }
        let now = match &joined {
            Some(joined) => joined.get(&block),
            None => a.foreign.as_ref().and_then(|f| f.get(&block)),
        };
        let next = match now {
            Some(ours) => {
                let next = join_clocks(ours, theirs);
                if Arc::ptr_eq(&next, ours) {
                    return;
                }
                next
            }
            None => theirs.clone(),
        };
        let joined = joined.get_or_insert_with(|| match &a.foreign {
            Some(foreign) => Foreign::clone(foreign),
            None => Foreign::new(),
        });
        joined.insert(block, next);
    };
    add(b.block, &b.clocks);
    for (block, clocks) in b.foreign.iter().flat_map(|f| f.iter()) {
        add(*block, clocks);
    }
    match joined {
        Some(joined) => Some(Arc::new(joined)),
        None => a.foreign.clone(),
    }
}

/// A set of moments: a base, and some more.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) base: Arc<Base>,
    pub(super) extra: Vec<Epoch>,
}

impl Known {
    pub(super) fn nothing(block: u32) -> Known {
        Known {
            base: Base::empty(block),
            extra: Vec::new(),
        }
    }

    /// Adds one moment, cheaply.
    pub(super) fn push(&mut self, epoch: Epoch) {
        if self.base.covers(epoch) {
            return;
        }
        if let Some(old) = self.extra.iter_mut().find(|e| e.same_thread(epoch)) {
            *old = (*old).max(epoch);
            return;
        }
        self.extra.push(epoch);
        if self.extra.len() > 16 {
            let mut sum = Sum::default();
            sum.add(self, None);
            if let Some(base) = sum.seal() {
                self.base = join(&self.base, base);
                self.extra.clear();
            }
        }
    }
}

/// What several threads knew, summed up.
#[derive(Clone, Debug, Default)]
pub(super) struct Sum {
    parts: Vec<Arc<Base>>,
    epochs: Vec<Epoch>,
}

impl Sum {
    fn add_base(&mut self, base: &Arc<Base>) {
        let known = self.parts.iter().rev().any(|p| Arc::ptr_eq(p, base));
        if !(known || base.clocks.is_empty() && base.foreign.is_none()) {
            self.parts.push(base.clone());
        }
    }

    pub(super) fn add(&mut self, known: &Known, own: Option<Epoch>) {
        self.add_base(&known.base);
        self.epochs.extend(&known.extra);
        self.epochs.extend(own);
    }

    fn merge(&mut self, other: &Sum) {
        for base in &other.parts {
            self.add_base(base);
        }
        self.epochs.extend(&other.epochs);
        if self.epochs.len() > 512 || self.parts.len() > 64 {
            self.seal();
        }
    }

    /// Makes one base of it all, unless it is empty.
    pub(super) fn seal(&mut self) -> Option<&Arc<Base>> {
        if self.epochs.is_empty() && self.parts.len() <= 1 {
            return self.parts.first();
        }
        let block = match self.parts.first() {
            Some(base) => base.block,
            None => self.epochs[0].block(),
        };
        let mut parts = std::mem::take(&mut self.parts).into_iter();
        let mut base = parts.next().unwrap_or_else(|| Base::empty(block));
        for part in parts {
            base = join(&base, &part);
        }
        let mut epochs = std::mem::take(&mut self.epochs);
        epochs.retain(|e| !base.covers(*e));
        epochs.sort_unstable();
        for of_block in epochs.chunk_by(|a, b| a.block() == b.block()) {
            let block = of_block[0].block();
            let mut clocks = base.clocks_of(block).map_or(Vec::new(), |c| c.to_vec());
            // Ascending: the last number is the largest.
            let last = of_block[of_block.len() - 1].thread() as usize;
            if clocks.len() <= last {
                clocks.resize(last + 1, 0);
            }
            for epoch in of_block {
                let clock = &mut clocks[epoch.thread() as usize];
                *clock = (*clock).max(epoch.clock());
            }
            let more = Arc::new(Base {
                block,
                clocks: Arc::new(clocks),
                foreign: None,
            });
            base = join(&base, &more);
        }
        self.parts = vec![base];
        self.parts.first()
    }

    /// Its base, if that is all of it.
    pub(super) fn sealed(&self) -> Option<&Arc<Base>> {
        match (&self.parts[..], &self.epochs[..]) {
            ([base], []) => Some(base),
            _ => None,
        }
    }

    fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.epochs.is_empty()
    }
}

/// What releases gave: that of one thread, or of several, merged. An acquire takes all of it.
///
/// A phase of an mbarrier has one, to which each arrival is merged; so has a barrier that threads arrive at, and each address that
/// releases were made to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Token {
    pub(super) view: Sum,
    /// What the async proxy may see of it.
    pub(super) fenced: Sum,
}

impl Token {
    pub(crate) fn is_empty(&self) -> bool {
        self.view.is_empty() && self.fenced.is_empty()
    }

    /// Adds what another one holds.
    pub(crate) fn merge(&mut self, other: &Token) {
        self.view.merge(&other.view);
        self.fenced.merge(&other.fenced);
    }

    /// Whether what happened then is part of it. Seal it before.
    pub(crate) fn covers(&self, epoch: Epoch) -> bool {
        self.view.sealed().is_some_and(|base| base.covers(epoch))
    }

    /// Makes acquiring it fast; for tokens that many will acquire, once they are whole.
    pub(crate) fn seal(&mut self) {
        self.view.seal();
        self.fenced.seal();
    }
}

/// The path that an access takes (PTX ISA §8.6, Proxies).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Proxy {
    /// Loads, stores, atomics, `cp.async`.
    Generic,
    /// Bulk copies, tensor copies, `wgmma`.
    Async,
}

/// What a thread, or an asynchronous operation, knows at the moment of an access, and when that moment is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(super) epoch: Epoch,
    pub(super) known: &'a Known,
    pub(super) fenced: &'a Known,
    pub(super) proxy: Proxy,
    /// A strong access whose scope is the block (`.cta`), which other blocks' accesses race with.
    pub(super) near: bool,
}

impl View<'_> {
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// For an access of the block's scope.
    pub(crate) fn scoped(self, near: bool) -> Self {
        View { near, ..self }
    }

    /// Whether what happened then precedes this.
    #[inline]
    pub(crate) fn covers(&self, epoch: Epoch) -> bool {
        epoch == Epoch::NEVER
            || epoch.same_thread(self.epoch)
            || self.known.base.covers(epoch)
            || among(&self.known.extra, epoch)
    }

    /// Whether anything that a block did precedes this.
    pub(crate) fn knows_block(&self, block: u32) -> bool {
        let clocks = self.known.base.clocks_of(block);
        let started = clocks.is_some_and(|c| c.iter().any(|clock| *clock > 0));
        started || self.known.extra.iter().any(|e| e.block() == block)
    }

    /// Whether a proxy fence stands between what happened then and this.
    #[inline]
    pub(super) fn covers_fenced(&self, epoch: Epoch) -> bool {
        epoch == Epoch::NEVER || self.fenced.base.covers(epoch) || among(&self.fenced.extra, epoch)
    }
}

#[inline]
fn among(extra: &[Epoch], epoch: Epoch) -> bool {
    let mut extra = extra.iter();
    extra.any(|e| e.same_thread(epoch) && e.clock() >= epoch.clock())
}
