//! An oracle without clocks: each thread's knowledge is the set of all accesses that precede it, and each access is compared with all
//! earlier ones. Random programs ask both.

use std::collections::BTreeSet;

use super::{
    super::{Agent, View},
    *,
};

type Known = BTreeSet<usize>;

/// What a thread, an operation or a token knows.
#[derive(Clone, Default)]
struct Sets {
    view: Known,
    fenced: Known,
}

impl Sets {
    fn join(&mut self, other: &Sets) {
        self.view.extend(&other.view);
        self.fenced.extend(&other.fenced);
    }
}

struct Event {
    bytes: std::ops::Range<u32>,
    access: Access,
    generic: bool,
}

fn strong(access: Access) -> bool {
    matches!(
        access,
        Access::StrongRead | Access::StrongWrite | Access::Atomic
    )
}

fn writes(access: Access) -> bool {
    matches!(access, Access::Write | Access::StrongWrite | Access::Atomic)
}

/// All accesses so far to one stretch of memory.
#[derive(Default)]
struct History {
    events: Vec<Event>,
}

impl History {
    /// What is wrong with an access at a byte: kinds, with the other access.
    fn wrong(
        &self,
        byte: u32,
        access: Access,
        by: &Sets,
        is_async: bool,
        initialised: bool,
    ) -> Vec<(ConflictKind, Option<usize>)> {
        let mut wrong = Vec::new();
        let mut written = initialised;
        for (at, event) in self.events.iter().enumerate() {
            if !event.bytes.contains(&byte) {
                continue;
            }
            let (earlier, later) = (writes(event.access), writes(access));
            written |= earlier;
            if !earlier && !later {
                continue;
            }
            if event.access == Access::ReadOnly || access == Access::ReadOnly {
                wrong.push((ConflictKind::ReadOnly, Some(at)));
                continue;
            }
            let ordered = by.view.contains(&at);
            if strong(event.access) && strong(access) {
                continue;
            }
            if !ordered {
                let kind = match (earlier, later) {
                    (true, true) => ConflictKind::WriteWrite,
                    (true, false) => ConflictKind::WriteRead,
                    _ => ConflictKind::ReadWrite,
                };
                wrong.push((kind, Some(at)));
            } else if earlier && is_async && event.generic && !by.fenced.contains(&at) {
                wrong.push((ConflictKind::MissingProxyFence, Some(at)));
            }
        }
        if !written && !matches!(access, Access::Write | Access::StrongWrite) {
            wrong.push((ConflictKind::Uninitialized, None));
        }
        wrong
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ z >> 31) % bound as u64) as usize
    }

    fn mask(&mut self, width: u32) -> u32 {
        let full = if width == 32 { ALL } else { (1 << width) - 1 };
        let any = self.below(1 << 32) as u32;
        match self.below(3) {
            0 => full,
            1 => any & full,
            _ => any & full & self.below(1 << 32) as u32,
        }
    }
}

const BLOCKS: usize = 2;
const THREADS: usize = 40;
const BYTES: u32 = 48;

/// A program as both see it.
struct Program {
    random: Random,
    clocks: Vec<Clocks>,
    shared: SharedShadow,
    global: Option<GlobalShadow>,
    history: History,
    threads: Vec<Vec<Sets>>,
    agents: Vec<(usize, usize, Agent, Sets, Proxy)>,
    /// Accesses of each agent, to be known by those that wait for it.
    tokens: Vec<(Token, Sets)>,
    pending: Vec<Vec<Sets>>,
    released: Vec<Vec<Option<Sets>>>,
}

impl Program {
    fn new(seed: u64, global: bool) -> Program {
        Program {
            random: Random(seed),
            clocks: (0..BLOCKS)
                .map(|b| Clocks::new(b as u32 * 5, THREADS as u32))
                .collect(),
            shared: SharedShadow::new(BYTES),
            global: global.then(|| GlobalShadow::new([(0, BYTES as u64)])),
            history: History::default(),
            threads: vec![vec![Sets::default(); THREADS]; BLOCKS],
            agents: Vec::new(),
            tokens: Vec::new(),
            pending: vec![vec![Sets::default(); THREADS]; BLOCKS],
            released: vec![vec![None; THREADS]; BLOCKS],
        }
    }

    fn thread(&mut self) -> (usize, usize) {
        (self.random.below(BLOCKS), self.random.below(THREADS))
    }

    fn random_access(&mut self) -> (u32, u32, Access) {
        let bytes = 1 << self.random.below(5);
        let at = self.random.below((BYTES / bytes) as usize) as u32 * bytes;
        let kinds = [
            Access::Read,
            Access::Read,
            Access::Write,
            Access::StrongRead,
            Access::StrongWrite,
            Access::Atomic,
            Access::ReadOnly,
        ];
        let count = kinds.len() - self.global.is_none() as usize;
        (at, bytes, kinds[self.random.below(count)])
    }

    /// An access by a thread or an agent. False at a conflict.
    fn access(&mut self) -> bool {
        let (block, thread) = self.thread();
        let agent = match self.agents.len() {
            0 => None,
            count => (self.random.below(3) == 0).then(|| self.random.below(count)),
        };
        let is_async = agent.is_some_and(|a| self.agents[a].4 == Proxy::Async);
        let initialised = self.global.is_some();
        // Mostly such that nothing is wrong, or no program would get far.
        let tries = if self.random.below(40) == 0 { 1 } else { 30 };
        for attempt in 0..tries {
            let (at, bytes, access) = self.random_access();
            let by = match agent {
                Some(agent) => &self.agents[agent].3,
                None => &self.threads[block][thread],
            };
            let wrong = (at..at + bytes).map(|byte| {
                let wrong = self.history.wrong(byte, access, by, is_async, initialised);
                (byte, wrong)
            });
            let first = wrong.into_iter().find(|(_, wrong)| !wrong.is_empty());
            if first.is_some() && tries > 1 {
                if attempt + 1 == tries {
                    return true;
                }
                continue;
            }
            let place = self.history.events.len();
            let view: View<'_> = match agent {
                Some(agent) => {
                    let (block, _, agent, ..) = self.agents[agent];
                    self.clocks[block].agent_view(agent)
                }
                None => self.clocks[block].view(thread as u32),
            };
            let done = match &self.global {
                Some(global) => global.access(at as u64, bytes as u64, &view, access, place as u32),
                None => self.shared.access(at, bytes, &view, access, place as u32),
            };
            match (&done, &first) {
                (Ok(()), None) => {}
                (Ok(()), Some(_)) if self.global.is_some() => return false,
                (Ok(()), Some((byte, wrong))) => {
                    panic!("byte {byte} of {access:?} by {view:?}: {wrong:?} was missed")
                }
                (Err(found), Some((byte, wrong))) => {
                    if self.global.is_none() {
                        assert_eq!(found.byte, *byte as u64, "{found:?}, {wrong:?}");
                    }
                    let by = match agent {
                        Some(agent) => &self.agents[agent].3,
                        None => &self.threads[block][thread],
                    };
                    let byte = found.byte as u32;
                    let wrong = self.history.wrong(byte, access, by, is_async, initialised);
                    let is = |(kind, other): &(ConflictKind, Option<usize>)| {
                        let other = other.map(|o| o as u32);
                        *kind == found.kind && other.is_none_or(|o| o == found.place)
                    };
                    assert!(wrong.iter().any(is), "{found:?} is none of {wrong:?}");
                    return false;
                }
                (Err(found), None) => panic!("{found:?} of {access:?} by {view:?} is none"),
            }
            self.history.events.push(Event {
                bytes: at..at + bytes,
                access,
                generic: !is_async,
            });
            let by = match agent {
                Some(agent) => &mut self.agents[agent].3,
                None => &mut self.threads[block][thread],
            };
            by.view.insert(place);
            return true;
        }
        true
    }

    fn gather(&self, block: usize, masks: &[u32; 2]) -> Sets {
        let mut all = Sets::default();
        for thread in members(masks) {
            all.join(&self.threads[block][thread]);
        }
        all
    }

    fn spread(&mut self, block: usize, masks: &[u32; 2], all: &Sets) {
        for thread in members(masks) {
            self.threads[block][thread].join(all);
        }
    }

    /// Something that orders.
    fn order(&mut self) {
        let (block, thread) = self.thread();
        let lane = (thread as u32 / 32, 1u32 << (thread % 32));
        let masks = [self.random.mask(32), self.random.mask(8)];
        match self.random.below(16) {
            0 => {
                self.clocks[block].barrier(&masks);
                let all = self.gather(block, &masks);
                self.spread(block, &masks, &all);
            }
            1 => {
                let warp = self.random.below(2);
                let mut only = [0; 2];
                only[warp] = masks[warp];
                self.clocks[block].warp_sync(warp as u32, masks[warp]);
                let all = self.gather(block, &only);
                self.spread(block, &only, &all);
            }
            2 => {
                for (warp, mask) in (0..).zip(masks) {
                    self.clocks[block].proxy_fence(warp, mask);
                }
                for thread in members(&masks) {
                    let sets = &mut self.threads[block][thread];
                    sets.fenced = sets.view.clone();
                }
            }
            3 => {
                let mut token = Token::default();
                for (warp, mask) in (0..).zip(masks) {
                    self.clocks[block].release_into(warp, mask, &mut token);
                }
                let sets = self.gather(block, &masks);
                self.tokens.push((token, sets));
            }
            4 => {
                let token = self.clocks[block].release(thread as u32);
                let sets = self.threads[block][thread].clone();
                match self.tokens.last_mut() {
                    Some((old, known)) if self.random.below(2) == 0 => {
                        old.merge(&token);
                        known.join(&sets);
                    }
                    _ => self.tokens.push((token, sets)),
                }
            }
            5..=7 if !self.tokens.is_empty() => {
                let at = self.random.below(self.tokens.len());
                if self.random.below(2) == 0 {
                    self.tokens[at].0.seal();
                }
                let (token, sets) = self.tokens[at].clone();
                for (warp, mask) in (0..).zip(masks) {
                    self.clocks[block].acquire_lanes(warp, mask, &token);
                }
                self.spread(block, &masks, &sets);
            }
            8 | 9 => {
                let proxy = [Proxy::Generic, Proxy::Async][self.random.below(2)];
                let agent = self.clocks[block].spawn(thread as u32, proxy);
                let sets = self.threads[block][thread].clone();
                self.agents.push((block, thread, agent, sets, proxy));
            }
            10 => {
                let mask = masks[0] | 1;
                let proxy = [Proxy::Generic, Proxy::Async][self.random.below(2)];
                let agent = self.clocks[block].spawn_joint(0, mask, proxy);
                let sets = self.gather(block, &[mask, 0]);
                self.agents.push((block, 0, agent, sets, proxy));
            }
            11 if !self.agents.is_empty() => {
                let at = self.random.below(self.agents.len());
                let (block, issuer, agent, ..) = self.agents[at];
                self.clocks[block].extend(agent, issuer as u32);
                let more = self.threads[block][issuer].clone();
                self.agents[at].3.join(&more);
            }
            12 if !self.agents.is_empty() => {
                let at = self.random.below(self.agents.len());
                let (block, _, agent, sets, _) = self.agents.swap_remove(at);
                let token = self.clocks[block].complete(agent);
                self.tokens.push((token, sets));
            }
            13 if !self.agents.is_empty() => {
                let at = self.random.below(self.agents.len());
                let (block, issuer, agent, sets, _) = self.agents.swap_remove(at);
                // Joint ones have other issuers, too, whose knowledge it holds.
                let token = self.clocks[block].complete(agent);
                self.clocks[block].acquire(issuer as u32, &token);
                self.threads[block][issuer].join(&sets);
            }
            14 => {
                self.clocks[block].fence(lane.0, lane.1);
                let pending = std::mem::take(&mut self.pending[block][thread]);
                let sets = &mut self.threads[block][thread];
                sets.join(&pending);
                self.released[block][thread] = Some(sets.clone());
            }
            15 => {
                let token = self.clocks[block].fence_token(thread as u32);
                assert_eq!(token.is_some(), self.released[block][thread].is_some());
                if let (Some(token), Some(sets)) = (token, &self.released[block][thread]) {
                    self.tokens.push((token.clone(), sets.clone()));
                }
                if let Some((token, sets)) = self.tokens.last().cloned() {
                    let (block, thread) = self.thread();
                    self.clocks[block].saw(thread as u32, &token);
                    self.pending[block][thread].join(&sets);
                }
            }
            _ => {
                if self.random.below(8) == 0 {
                    let mut clocks = self.clocks.iter_mut();
                    if let (Some(a), Some(b)) = (clocks.next(), clocks.next()) {
                        cluster_barrier(&mut [a, b]);
                    }
                    let mut all = Sets::default();
                    for sets in self.threads.iter().flatten() {
                        all.join(sets);
                    }
                    for sets in self.threads.iter_mut().flatten() {
                        sets.join(&all);
                    }
                }
            }
        }
    }
}

/// Threads of two masks.
fn members(masks: &[u32; 2]) -> impl Iterator<Item = usize> {
    let masks = *masks;
    (0..64).filter(move |t| masks[t / 32] >> (t % 32) & 1 != 0)
}

/// Runs programs; gives how many accesses were made and how many programs ended with a conflict.
fn programs(seeds: std::ops::Range<u64>, global: bool) -> (usize, usize) {
    let (mut accesses, mut conflicts) = (0, 0);
    for seed in seeds {
        let mut program = Program::new(seed * 77_777, global);
        for _ in 0..250 {
            if program.random.below(3) == 0 {
                program.order();
            } else if !program.access() {
                conflicts += 1;
                break;
            }
        }
        accesses += program.history.events.len();
    }
    (accesses, conflicts)
}

#[test]
fn shared_memory_agrees_with_an_oracle() {
    let (accesses, conflicts) = programs(0..150, false);
    assert!(accesses > 2_000 && conflicts > 50, "{accesses} {conflicts}");
}

#[test]
fn global_memory_calls_nothing_a_race_that_is_none() {
    let (accesses, conflicts) = programs(1000..1150, true);
    assert!(accesses > 2_000 && conflicts > 50, "{accesses} {conflicts}");
}
