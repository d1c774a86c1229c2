//! The clocks of one block's threads and asynchronous operations, and what orders them.
//!
//! A release takes down what a thread knows and advances its clock, so that what it does later is not part of it. Whatever a thread
//! acquires joins what it knows. Barriers are both, for all their threads.
//!
//! Invariants: a thread's clock is above all that others know of it; what is fenced for a thread is known to it.

use std::{collections::VecDeque, sync::Arc};

use super::order::{Base, CLOCK_MAX, Epoch, Known, NUMBERS, Proxy, Sum, Token, View, join, lanes};

/// An asynchronous operation that was issued: it accesses memory as a thread of its own would, which knows what its issuer knew.
///
/// One agent may stand for several operations that are waited for together (the copies of a `cp.async` group).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Agent(u16);

#[derive(Debug)]
struct AgentState {
    clock: u32,
    issuer: u32,
    known: Known,
    fenced: Known,
    proxy: Proxy,
    /// Spawns that were not completed; more than one only where numbers ran out.
    users: u32,
    /// Whether it knows what its issuer did, and no more.
    alone: bool,
}

/// What fences have to do with relaxed accesses (PTX ISA §8.8, Release and Acquire Patterns).
#[derive(Clone, Debug, Default)]
struct Fences {
    /// What relaxed reads saw, acquired by the next fence.
    pending: Token,
    /// Of that, what a fence of the block's scope acquires.
    pending_near: Token,
    /// What the last fence released, given to relaxed writes that follow.
    released: Option<Token>,
    /// What the last one did, if that is another, of the block's scope.
    released_near: Option<Token>,
}

/// The threads of a block: what each knows of the order of accesses.
///
/// Threads are numbered as in the block, x fastest; lane `i` of warp `w` is thread `32 w + i`, masks have bit `i` for it.
#[derive(Debug)]
pub(crate) struct Clocks {
    block: u32,
    threads: u32,
    clock: Vec<u32>,
    known: Vec<Known>,
    fenced: Vec<Known>,
    agents: Vec<AgentState>,
    /// Those completed, the earliest first.
    idle: VecDeque<u16>,
    /// By thread; empty until a fence is met.
    fences: Vec<Fences>,
    /// The last join of what is known and of what is fenced: threads of a barrier repeat it.
    joins: [Option<(Arc<Base>, Arc<Base>, Arc<Base>)>; 2],
}

/// Joins a sum to what a thread knows.
fn acquire_sum(
    known: &mut Known,
    sum: &Sum,
    cache: &mut Option<(Arc<Base>, Arc<Base>, Arc<Base>)>,
) {
    let sealed;
    let theirs = match sum.sealed() {
        Some(theirs) => theirs,
        None => {
            let mut copy = sum.clone();
            match copy.seal() {
                Some(base) => sealed = base.clone(),
                None => return,
            }
            &sealed
        }
    };
    if Arc::ptr_eq(&known.base, theirs) {
        return;
    }
    match cache {
        Some((a, b, joined)) if Arc::ptr_eq(a, &known.base) && Arc::ptr_eq(b, theirs) => {
            known.base = joined.clone();
        }
        _ => {
            let joined = join(&known.base, theirs);
            *cache = Some((known.base.clone(), theirs.clone(), joined.clone()));
            known.base = joined;
        }
    }
    let base = &known.base;
    known.extra.retain(|e| !base.covers(*e));
}

impl Clocks {
    /// The threads of a warp's mask; lanes that the block does not have are left out.
    fn of_mask(&self, warp: u32, mask: u32) -> impl Iterator<Item = u32> + use<> {
        let first = warp.saturating_mul(32);
        let count = self.threads.saturating_sub(first);
        let mask = if count < 32 {
            mask & ((1 << count) - 1)
        } else {
            mask
        };
        lanes(mask).map(move |lane| first + lane)
    }

    /// A block at its start, at which no thread knows another.
    pub(crate) fn new(block: u32, threads: u32) -> Clocks {
        let threads = threads.min(NUMBERS - 1);
        let count = threads as usize;
        Clocks {
            block,
            threads,
            clock: vec![1; count],
            known: vec![Known::nothing(block); count],
            fenced: vec![Known::nothing(block); count],
            agents: Vec::new(),
            idle: VecDeque::new(),
            fences: Vec::new(),
            joins: [None, None],
        }
    }

    /// What a thread knows as it accesses memory by the generic proxy.
    #[inline]
    pub(crate) fn view(&self, thread: u32) -> View<'_> {
        View {
            epoch: self.epoch(thread),
            known: &self.known[thread as usize],
            fenced: &self.fenced[thread as usize],
            proxy: Proxy::Generic,
            near: false,
        }
    }

    /// What an asynchronous operation knows.
    #[inline]
    pub(crate) fn agent_view(&self, agent: Agent) -> View<'_> {
        let state = &self.agents[agent.0 as usize];
        View {
            epoch: self.agent_epoch(agent),
            known: &state.known,
            fenced: &state.fenced,
            proxy: state.proxy,
            near: false,
        }
    }

    #[inline]
    pub(crate) fn epoch(&self, thread: u32) -> Epoch {
        Epoch::new(self.block, thread, self.clock[thread as usize])
    }

    fn agent_epoch(&self, agent: Agent) -> Epoch {
        let clock = self.agents[agent.0 as usize].clock;
        Epoch::new(self.block, self.threads + agent.0 as u32, clock)
    }

    /// The thread of this block that did it or, where an asynchronous operation did, issued it (and whether one did).
    pub(crate) fn issuer(&self, epoch: Epoch) -> (u32, bool) {
        match epoch.thread().checked_sub(self.threads) {
            None => (epoch.thread(), false),
            Some(agent) => {
                let agent = self.agents.get(agent as usize);
                (agent.map_or(0, |a| a.issuer), true)
            }
        }
    }

    fn tick(&mut self, thread: u32) {
        let clock = &mut self.clock[thread as usize];
        *clock = (*clock + 1).min(CLOCK_MAX);
    }

    /// What a thread has done and knows, for others to acquire: `mbarrier.arrive`, `st.release`, `red.release`.
    pub(crate) fn release(&mut self, thread: u32) -> Token {
        let mut token = Token::default();
        self.release_thread(thread, &mut token);
        token
    }

    fn release_thread(&mut self, thread: u32, token: &mut Token) {
        let at = thread as usize;
        token.view.add(&self.known[at], Some(self.epoch(thread)));
        token.fenced.add(&self.fenced[at], None);
        self.tick(thread);
    }

    /// The same for lanes of a warp, merged to a token: arrivals at an mbarrier or a named barrier.
    pub(crate) fn release_into(&mut self, warp: u32, mask: u32, token: &mut Token) {
        for thread in self.of_mask(warp, mask) {
            self.release_thread(thread, token);
        }
    }

    /// A thread learns what was released: a successful `mbarrier.test_wait`, `ld.acquire`.
    pub(crate) fn acquire(&mut self, thread: u32, token: &Token) {
        let at = thread as usize;
        let [view, fenced] = &mut self.joins;
        acquire_sum(&mut self.known[at], &token.view, view);
        acquire_sum(&mut self.fenced[at], &token.fenced, fenced);
    }

    /// The same for lanes of a warp. Seal the token before.
    pub(crate) fn acquire_lanes(&mut self, warp: u32, mask: u32, token: &Token) {
        for thread in self.of_mask(warp, mask) {
            self.acquire(thread, token);
        }
    }

    /// All of these threads wait for each other: `barrier.sync`, given a mask a warp. Where some only arrive, use
    /// [`Clocks::release_into`] at their arrival, and [`Clocks::acquire_lanes`] for those that wait.
    pub(crate) fn barrier(&mut self, masks: &[u32]) {
        if self.barrier_of_equals(masks) {
            return;
        }
        let mut token = Token::default();
        for (warp, mask) in (0..).zip(masks) {
            self.release_into(warp, *mask, &mut token);
        }
        token.seal();
        for (warp, mask) in (0..).zip(masks) {
            self.acquire_lanes(warp, *mask, &token);
        }
    }

    /// A barrier whose threads know the same of others and nothing else, as after a barrier of all: one pass. False for other ones.
    fn barrier_of_equals(&mut self, masks: &[u32]) -> bool {
        let members: Vec<usize> = (0..)
            .zip(masks)
            .flat_map(|(warp, mask)| self.of_mask(warp, *mask))
            .map(|thread| thread as usize)
            .collect();
        let Some(&first) = members.first() else {
            return true;
        };
        let (known, fenced) = (&self.known, &self.fenced);
        let (base, base_fenced) = (&known[first].base, &fenced[first].base);
        let equal = |thread: usize| {
            Arc::ptr_eq(&known[thread].base, base)
                && Arc::ptr_eq(&fenced[thread].base, base_fenced)
                && known[thread].extra.is_empty()
                && fenced[thread].extra.is_empty()
        };
        if !members.iter().all(|thread| equal(*thread)) {
            return false;
        }
        let mut clocks = base.clocks.to_vec();
        if clocks.len() < self.threads as usize {
            clocks.resize(self.threads as usize, 0);
        }
        let foreign = base.foreign.clone();
        for &thread in &members {
            clocks[thread] = self.clock[thread];
            self.tick(thread as u32);
        }
        let joined = Arc::new(Base {
            block: self.block,
            clocks: Arc::new(clocks),
            foreign,
        });
        for &thread in &members {
            self.known[thread].base = joined.clone();
        }
        true
    }

    /// `bar.warp.sync` (PTX ISA §9.7.13.2): lanes of a warp wait for each other.
    pub(crate) fn warp_sync(&mut self, warp: u32, mask: u32) {
        if mask.count_ones() < 2 {
            return;
        }
        let mut token = Token::default();
        self.release_into(warp, mask, &mut token);
        token.seal();
        self.acquire_lanes(warp, mask, &token);
    }

    /// `fence.proxy.async`: all that the lanes know may be seen by the async proxy.
    pub(crate) fn proxy_fence(&mut self, warp: u32, mask: u32) {
        for thread in self.of_mask(warp, mask) {
            let at = thread as usize;
            let own = self.epoch(thread);
            let (known, fenced) = (&self.known[at], &mut self.fenced[at]);
            fenced.clone_from(known);
            fenced.push(own);
            self.tick(thread);
        }
    }

    /// A number for another operation: one whose last operation the issuer knows of, or a new one. As a last resort, one that is in
    /// use, and then `false`.
    fn number(&mut self, known: &Known) -> (usize, bool) {
        for _ in 0..self.idle.len().min(4) {
            let Some(at) = self.idle.pop_front() else {
                break;
            };
            let last = self.agent_epoch(Agent(at));
            let mut extra = known.extra.iter();
            if known.base.covers(last) || extra.any(|e| e.same_thread(last) && *e >= last) {
                return (at as usize, true);
            }
            self.idle.push_back(at);
        }
        let fresh = self.agents.len();
        if self.threads as usize + fresh < NUMBERS as usize {
            self.agents.push(AgentState {
                clock: 0,
                issuer: 0,
                known: Known::nothing(self.block),
                fenced: Known::nothing(self.block),
                proxy: Proxy::Generic,
                users: 0,
                alone: true,
            });
            return (fresh, true);
        }
        match self.idle.pop_front() {
            Some(at) => (at as usize, true),
            None => (fresh.saturating_sub(1), false),
        }
    }

    fn start(
        &mut self,
        issuer: u32,
        alone: bool,
        (known, fenced): (Known, Known),
        proxy: Proxy,
    ) -> Agent {
        let (at, unused) = self.number(&known);
        let agent = &mut self.agents[at];
        agent.alone = alone && unused;
        if unused {
            agent.clock = (agent.clock + 1).min(CLOCK_MAX);
            (agent.known, agent.fenced) = (known, fenced);
            (agent.issuer, agent.proxy) = (issuer, proxy);
        } else {
            let mut more = Token::default();
            more.view.add(&known, None);
            more.fenced.add(&fenced, None);
            acquire_sum(&mut agent.known, &more.view, &mut None);
            acquire_sum(&mut agent.fenced, &more.fenced, &mut None);
        }
        agent.users += 1;
        Agent(at as u16)
    }

    /// A thread issues an asynchronous operation: a bulk or tensor copy of the async proxy, or a `cp.async` of the generic one.
    ///
    /// Its reads and writes take [`Clocks::agent_view`]. An operation whose reads are over before its writes (what
    /// `cp.async.bulk.wait_group.read` tells apart) takes two agents.
    pub(crate) fn spawn(&mut self, thread: u32, proxy: Proxy) -> Agent {
        let mut known = self.known[thread as usize].clone();
        known.push(self.epoch(thread));
        let fenced = self.fenced[thread as usize].clone();
        self.tick(thread);
        self.start(thread, true, (known, fenced), proxy)
    }

    /// Lanes of a warp issue one together: `wgmma`.
    pub(crate) fn spawn_joint(&mut self, warp: u32, mask: u32, proxy: Proxy) -> Agent {
        let mut token = Token::default();
        self.release_into(warp, mask, &mut token);
        let mut known = Known::nothing(self.block);
        let mut fenced = Known::nothing(self.block);
        acquire_sum(&mut known, &token.view, &mut None);
        acquire_sum(&mut fenced, &token.fenced, &mut None);
        let issuer = warp * 32 + mask.trailing_zeros().min(31);
        self.start(issuer, false, (known, fenced), proxy)
    }

    /// The thread that issued an operation issues another that is waited for with it: another `cp.async` of a group.
    pub(crate) fn extend(&mut self, agent: Agent, thread: u32) {
        let own = self.epoch(thread);
        let at = thread as usize;
        let state = &mut self.agents[agent.0 as usize];
        if state.alone && state.issuer == thread {
            state.known.clone_from(&self.known[at]);
            state.known.push(own);
            state.fenced.clone_from(&self.fenced[at]);
            self.tick(thread);
            return;
        }
        let token = self.release(thread);
        let agent = &mut self.agents[agent.0 as usize];
        agent.alone = false;
        let [view, fenced] = &mut self.joins;
        acquire_sum(&mut agent.known, &token.view, view);
        acquire_sum(&mut agent.fenced, &token.fenced, fenced);
    }

    /// An operation is over: what those that wait for it acquire (a phase of an mbarrier, threads at `wgmma.wait_group`). To be called
    /// once an operation, after which the agent may stand for another.
    pub(crate) fn complete(&mut self, agent: Agent) -> Token {
        let epoch = self.agent_epoch(agent);
        let state = &mut self.agents[agent.0 as usize];
        let mut token = Token::default();
        token.view.add(&state.known, Some(epoch));
        token.fenced.add(&state.fenced, None);
        state.users = state.users.saturating_sub(1);
        if state.users == 0 {
            self.idle.push_back(agent.0);
        }
        token
    }

    /// The same where only the thread that issued it waits (`cp.async.wait_group`, `cp.async.bulk.wait_group`): no token, and fast.
    pub(crate) fn complete_for(&mut self, agent: Agent, issuer: u32) {
        let epoch = self.agent_epoch(agent);
        let state = &mut self.agents[agent.0 as usize];
        state.users = state.users.saturating_sub(1);
        if state.users == 0 {
            self.idle.push_back(agent.0);
        }
        self.known[issuer as usize].push(epoch);
    }

    fn fences(&mut self, thread: u32) -> &mut Fences {
        if self.fences.is_empty() {
            self.fences.resize(self.threads as usize, Fences::default());
        }
        &mut self.fences[thread as usize]
    }

    /// `fence.acq_rel`, `fence.sc`, `membar`: acquires what relaxed reads before it saw, and releases to relaxed writes after it.
    pub(crate) fn fence(&mut self, warp: u32, mask: u32) {
        for thread in self.of_mask(warp, mask) {
            let near = std::mem::take(&mut self.fences(thread).pending_near);
            let mut pending = std::mem::take(&mut self.fences(thread).pending);
            pending.merge(&near);
            if !pending.is_empty() {
                self.acquire(thread, &pending);
            }
            let released = self.release(thread);
            let fences = self.fences(thread);
            fences.released = Some(released);
            fences.released_near = None;
        }
    }

    /// The same in the scope of the block (`.cta`): between its own threads.
    pub(crate) fn fence_near(&mut self, warp: u32, mask: u32) {
        for thread in self.of_mask(warp, mask) {
            let near = std::mem::take(&mut self.fences(thread).pending_near);
            if !near.is_empty() {
                self.acquire(thread, &near);
            }
            let released = self.release(thread);
            self.fences(thread).released_near = Some(released);
        }
    }

    /// A relaxed read saw a value to which this was released; a fence after it acquires that.
    pub(crate) fn saw(&mut self, thread: u32, token: &Token) {
        if !token.is_empty() {
            self.fences(thread).pending.merge(token);
        }
    }

    /// The same of what a thread of the block released.
    pub(crate) fn saw_near(&mut self, thread: u32, token: &Token) {
        if !token.is_empty() {
            self.fences(thread).pending_near.merge(token);
        }
    }

    /// What a relaxed write releases to threads of the block.
    pub(crate) fn fence_token_near(&self, thread: u32) -> Option<&Token> {
        let fences = self.fences.get(thread as usize)?;
        fences.released_near.as_ref().or(fences.released.as_ref())
    }

    /// What a relaxed write releases: what the thread's last fence did.
    pub(crate) fn fence_token(&self, thread: u32) -> Option<&Token> {
        let fences = self.fences.get(thread as usize)?;
        fences.released.as_ref()
    }
}

/// All threads of several blocks wait for each other: `barrier.cluster` (PTX ISA §9.7.13.4). Where arrival and wait are apart, use
/// [`Clocks::release_into`] and [`Clocks::acquire_lanes`] with one token.
#[cfg(test)]
pub(crate) fn cluster_barrier(blocks: &mut [&mut Clocks]) {
    let mut token = Token::default();
    for clocks in blocks.iter_mut() {
        for thread in 0..clocks.threads {
            clocks.release_thread(thread, &mut token);
        }
    }
    token.seal();
    for clocks in blocks.iter_mut() {
        for thread in 0..clocks.threads {
            clocks.acquire(thread, &token);
        }
    }
}
