//! mbarrier objects (PTX ISA §9.7.13.15).

pub(crate) mod object;

use std::collections::BTreeMap;

use super::operands::{Addr, Decoder, Double, Predicate, Refused, Src32, Src64, Type, Word};
use crate::{
    check::{self, Token},
    fault::{Fault, FaultKind},
    machine::{Flow, LANES, SHARED_BASE, Step, Wait, lanes_of},
    memory::Region,
    ptx::{Operand, Space},
};
use object::{Broken, Object, State};

/// An address and the state space that the instruction names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub address: Addr,
    pub space: Space,
}

/// What a wait waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// The phase of a state.
    State(Src64),
    /// The latest phase of that parity.
    Parity(Src32),
}

/// How many arrive, or how many bytes are expected.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arrival {
    /// So many.
    Count(Src32),
    /// One, after announcing so many bytes (`.expect_tx`).
    Expect(Src32),
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// `mbarrier.init` (§9.7.13.15.9).
    Init { at: At, count: Src32 },
    /// `mbarrier.inval` (§9.7.13.15.10).
    Invalidate { at: At },
    /// `mbarrier.expect_tx` (§9.7.13.15.11).
    Expect { at: At, bytes: Src32 },
    /// `mbarrier.complete_tx` (§9.7.13.15.12).
    Complete { at: At, bytes: Src32 },
    /// `mbarrier.arrive` and `mbarrier.arrive_drop` (§9.7.13.15.13 and .14).
    Arrive {
        at: At,
        arrival: Arrival,
        drop: bool,
        /// It must not end the phase (`.noComplete`).
        open: bool,
        /// Earlier writes are seen by those that wait; not with `.relaxed`.
        release: bool,
        state: Option<Double>,
    },
    /// `mbarrier.test_wait` and `mbarrier.try_wait` (§9.7.13.15.16).
    Wait {
        at: At,
        until: Until,
        /// It may wait for a while (`try_wait`).
        suspends: bool,
        acquire: bool,
        over: Option<Predicate>,
    },
    /// `mbarrier.pending_count` (§9.7.13.15.17).
    PendingCount { to: Word, state: Src64 },
}

/// The modifiers of an instruction, taken one by one.
struct Modifiers<'a>(Vec<&'a str>);

impl Modifiers<'_> {
    fn take(&mut self, part: &str) -> bool {
        let at = self.0.iter().position(|p| *p == part);
        at.map(|at| self.0.remove(at)).is_some()
    }

    /// Takes `.sem`, `.scope`, the type and the space; whether `.relaxed` stood there.
    fn order(&mut self, sem: &str) -> (bool, Space) {
        let relaxed = self.take("relaxed");
        let _ = self.take(sem);
        let _ = self.take("cta") || self.take("cluster");
        let space = if self.take("shared") || self.take("shared::cta") {
            Space::Shared
        } else if self.take("shared::cluster") {
            Space::SharedCluster
        } else {
            Space::Generic
        };
        let _ = self.take("b64");
        (relaxed, space)
    }

    fn end(&self) -> Result<(), Refused> {
        match self.0.first() {
            None => Ok(()),
            Some(part) => Err(Refused(format!("`.{part}` is not known here"))),
        }
    }
}

/// `mbarrier.…`.
pub(super) fn decode(d: &mut Decoder<'_>) -> Result<Op, Refused> {
    let sm = d.target.sm;
    if sm < 80 {
        return Err("mbarriers need sm_80 or later".into());
    }
    let mut m = Modifiers(d.parts()[1..].iter().map(|p| &**p).collect());
    let what = if m.0.is_empty() { "" } else { m.0.remove(0) };
    if !m.0.contains(&"b64") {
        return Err("`.b64` must stand there".into());
    }
    let hopper = |thing: &str| match sm {
        90.. => Ok(()),
        _ => Err(Refused(format!("{thing} needs sm_90 or later"))),
    };
    match what {
        "init" => {
            let (_, space) = m.order("");
            m.end()?;
            d.expect_count(2..=2)?;
            let at = At {
                address: d.address(d.operand(0)?)?.0,
                space,
            };
            Ok(Op::Init {
                at,
                count: d.src32(d.operand(1)?, Type::U32)?,
            })
        }
        "inval" => {
            let (_, space) = m.order("");
            m.end()?;
            d.expect_count(1..=1)?;
            let at = At {
                address: d.address(d.operand(0)?)?.0,
                space,
            };
            Ok(Op::Invalidate { at })
        }
        "expect_tx" | "complete_tx" => {
            hopper(what)?;
            let (_, space) = m.order("");
            m.end()?;
            d.expect_count(2..=2)?;
            let at = At {
                address: d.address(d.operand(0)?)?.0,
                space,
            };
            let bytes = d.src32(d.operand(1)?, Type::U32)?;
            Ok(match what {
                "expect_tx" => Op::Expect { at, bytes },
                _ => Op::Complete { at, bytes },
            })
        }
        "arrive" | "arrive_drop" => {
            let drop = what == "arrive_drop";
            let expect = m.take("expect_tx");
            let open = m.take("noComplete");
            let (relaxed, space) = m.order("release");
            m.end()?;
            if expect && open {
                return Err("".into());
            }
            // Without a state: `mbarrier.arrive.b64 _, [a]`, and older writings that leave it out.
            let stateless = matches!(d.operand(0)?, Operand::Address(_));
            let first = usize::from(!stateless);
            let state = match d.operand(0)? {
                Operand::Address(_) | Operand::Sink => None,
                operand => Some(d.dst64(operand)?),
            };
            let at = At {
                address: d.address(d.operand(first)?)?.0,
                space,
            };
            let counted = d.count() > first + 1;
            if (expect || open) && !counted {
                return Err("a count must stand there".into());
            }
            d.expect_count(first + 1..=first + 2)?;
            let count = match counted {
                true => d.src32(d.operand(first + 1)?, Type::U32)?,
                false => Src32::Imm(1),
            };
            // A sink for the state needs no more than the instruction itself.
            if expect || counted && !open {
                hopper("this form")?;
            }
            let arrival = if expect {
                Arrival::Expect(count)
            } else {
                Arrival::Count(count)
            };
            Ok(Op::Arrive {
                at,
                arrival,
                drop,
                open,
                release: !relaxed,
                state,
            })
        }
        "test_wait" | "try_wait" => {
            let suspends = what == "try_wait";
            if suspends {
                hopper(what)?;
            }
            let parity = m.take("parity");
            let (relaxed, space) = m.order("acquire");
            m.end()?;
            if space == Space::SharedCluster {
                return Err("only mbarriers of the own block can be waited for".into());
            }
            d.expect_count(3..=3 + usize::from(suspends))?;
            let over = d.dst_predicate(d.operand(0)?)?;
            let at = At {
                address: d.address(d.operand(1)?)?.0,
                space,
            };
            let operand = d.operand(2)?;
            let until = match parity {
                true => Until::Parity(d.src32(operand, Type::U32)?),
                false => Until::State(d.src64(operand, Type::B64)?),
            };
            if d.count() > 3 {
                d.src32(d.operand(3)?, Type::U32)?;
            }
            Ok(Op::Wait {
                at,
                until,
                suspends,
                acquire: !relaxed,
                over,
            })
        }
        "pending_count" => {
            let _ = m.take("b64");
            m.end()?;
            d.expect_count(2..=2)?;
            let to = d.dst32(d.operand(0)?)?;
            Ok(Op::PendingCount {
                to,
                state: d.src64(d.operand(1)?, Type::B64)?,
            })
        }
        _ => Err("".into()),
    }
}

/// An mbarrier of a block.
#[derive(Debug)]
pub(crate) struct Entry {
    pub object: Object,
    /// What the arrivals of this phase released.
    gathering: Token,
    /// What those that wait for the last phase acquire.
    over: Token,
    /// Asynchronous operations complete it.
    asynchronous: bool,
    /// Somebody saw a phase end.
    waited: bool,
    /// Tests in vain since it last changed.
    tests: u32,
    /// The instruction that made it.
    made: u32,
}

impl Entry {
    fn new(object: Object, made: u32) -> Entry {
        Entry {
            object,
            gathering: Token::default(),
            over: Token::default(),
            asynchronous: false,
            waited: false,
            tests: 0,
            made,
        }
    }

    /// What an arrival or completed bytes release.
    pub(crate) fn gather(&mut self, token: &Token) {
        self.gathering.merge(token);
    }

    /// What asynchronous copies of words release.
    pub(crate) fn gather_asynchronous(&mut self, token: &Token) {
        self.asynchronous = true;
        self.gather(token);
    }

    /// Somebody sees that the last phase is over: what it acquires.
    fn see(&mut self, acquire: bool) -> Option<Token> {
        self.waited = true;
        (acquire && !self.over.is_empty()).then(|| self.over.clone())
    }

    /// A phase is over.
    fn turn(&mut self) {
        self.over = std::mem::take(&mut self.gathering);
        self.over.seal();
    }

    /// Bytes that came (`complete-tx`).
    pub(crate) fn complete(&mut self, bytes: u32) -> Result<(), Broken> {
        self.tests = 0;
        self.asynchronous = true;
        if self.object.complete(bytes)? {
            self.turn();
        }
        Ok(())
    }

    fn expect(&mut self, bytes: u32) -> Result<(), Broken> {
        self.tests = 0;
        self.asynchronous = true;
        if self.object.expect(bytes)? {
            self.turn();
        }
        Ok(())
    }

    /// Arrivals, and whether they ended the phase.
    pub(crate) fn arrive(&mut self, count: u32, drop: bool) -> Result<(State, bool), Broken> {
        self.tests = 0;
        let done = match drop {
            true => self.object.drop(count)?,
            false => self.object.arrive(count)?,
        };
        if done.1 {
            self.turn();
        }
        Ok(done)
    }
}

/// So many tests in vain, between which all other warps run, and nothing arrives: nothing will.
const TESTS_IN_VAIN: u32 = 1 << 16;

/// The live mbarriers of a block, by offset in its shared memory.
#[derive(Debug, Default)]
pub(crate) struct Table {
    live: BTreeMap<u32, Entry>,
}

impl Table {
    /// The first one that shares a byte with a range.
    #[inline]
    pub(crate) fn overlapping(&self, offset: u32, bytes: u32) -> Option<u32> {
        if self.live.is_empty() {
            return None;
        }
        let from = offset.saturating_sub(7);
        let to = offset.saturating_add(bytes);
        if from >= to {
            return None;
        }
        self.live.range(from..to).next().map(|(at, _)| *at)
    }

    pub(crate) fn get(&mut self, offset: u32) -> Option<&mut Entry> {
        self.live.get_mut(&offset)
    }

    /// One that asynchronous operations completed, or were to, and nobody waited for or invalidated: its offset, and what made it. Those that
    /// threads alone arrive at may be left so, as the last ones of a pipeline are.
    pub(crate) fn forgotten(&self) -> Option<(u32, u32)> {
        let mut live = self.live.iter();
        let found = live.find(|(_, entry)| entry.asynchronous && !entry.waited);
        found.map(|(at, entry)| (*at, entry.made))
    }

    /// How an mbarrier stands, for messages about those that wait for it.
    pub(crate) fn describe(&self, offset: u32) -> Option<String> {
        let object = &self.live.get(&offset)?.object;
        let bytes = match object.transactions {
            0 => String::new(),
            bytes => format!(" and {bytes} bytes"),
        };
        Some(format!(
            "the mbarrier at {:#x}, whose phase {} waits for {} of {} arrivals{bytes}",
            offset + SHARED_BASE,
            object.phase,
            object.pending,
            object.expected
        ))
    }
}

/// A place in a block's shared memory: the rank, and the offset.
pub(crate) type Spot = (u32, u32);

impl Step<'_> {
    /// Where an mbarrier lies that an address of a lane means.
    pub(crate) fn mbarrier_spot(
        &self,
        space: Space,
        address: u64,
        lane: usize,
    ) -> Result<Spot, Fault> {
        match self.resolve(space, address, 8, 8, lane)? {
            Region::Shared { rank, offset } => Ok((rank, offset)),
            _ => {
                let message =
                    format!("{address:#x} is no address of shared memory, where mbarriers lie");
                Err(self.fault(FaultKind::Operand, message, 1 << lane))
            }
        }
    }

    #[cold]
    fn mbarrier_fault(&self, spot: Spot, message: &str, lane: usize) -> Fault {
        let message = format!(
            "the mbarrier at {:#x} of shared memory {message}",
            spot.1 + SHARED_BASE
        );
        self.fault(FaultKind::Barrier, message, 1 << lane)
    }

    /// Does something with a live mbarrier.
    pub(crate) fn with_mbarrier<T>(
        &mut self,
        spot: Spot,
        lane: usize,
        then: impl FnOnce(&mut Entry) -> Result<T, Broken>,
    ) -> Result<T, Fault> {
        let entry = self.cluster.blocks[spot.0 as usize].mbarriers.get(spot.1);
        let Some(entry) = entry else {
            let message = format!(
                "no mbarrier was initialised at {:#x} of shared memory, or it was invalidated",
                spot.1 + SHARED_BASE
            );
            return Err(self.fault(FaultKind::Barrier, message, 1 << lane));
        };
        then(entry).map_err(|broken| self.mbarrier_fault(spot, &broken.0, lane))
    }

    /// Whether there is an mbarrier, and its initialisation comes before this operation of a lane, or the one that it issues.
    pub(crate) fn check_mbarrier(&mut self, spot: Spot, lane: usize) -> Result<(), Fault> {
        self.with_mbarrier(spot, lane, |_| Ok(()))?;
        self.check_shared(spot.0, spot.1, 8, lane, check::Access::StrongRead, None)
    }
}

impl Step<'_> {
    /// A warp looked whether a phase is over, and goes on: to look again, if it spins.
    fn tested_in_vain(&mut self, (rank, offset): Spot) -> Result<(), Fault> {
        let table = &mut self.cluster.blocks[rank as usize].mbarriers;
        let Some(entry) = table.get(offset) else {
            return Ok(());
        };
        entry.tests += 1;
        if entry.tests < TESTS_IN_VAIN {
            return Ok(());
        }
        let what = table.describe(offset).unwrap_or_default();
        let message = format!(
            "deadlock: {what}, was tested {TESTS_IN_VAIN} times, and nothing happened to it"
        );
        Err(self.fault(FaultKind::Deadlock, message, self.lanes))
    }
}

impl Op {
    pub(super) fn execute(&self, step: &mut Step<'_>) -> Result<Flow, Fault> {
        let lanes = step.lanes;
        let at = match self {
            Op::PendingCount { to, state } => {
                let states = step.double(*state);
                let mut counts = [0; LANES];
                for lane in lanes_of(lanes) {
                    counts[lane] = known_state(step, states[lane], lane)?.pending;
                }
                step.set_word(*to, &counts);
                return Ok(Flow::Next);
            }
            Op::Init { at, .. }
            | Op::Invalidate { at }
            | Op::Expect { at, .. }
            | Op::Complete { at, .. }
            | Op::Arrive { at, .. }
            | Op::Wait { at, .. } => *at,
        };
        let addresses = step.addresses(at.address);
        let mut states = [0; LANES];
        let (mut over, mut one) = (0, (0, 0));
        for lane in lanes_of(lanes) {
            let spot = step.mbarrier_spot(at.space, addresses[lane], lane)?;
            one = spot;
            match self {
                Op::Init { count, .. } => {
                    let count = step.word(*count)[lane];
                    step.init_mbarrier(spot, count, lane)?;
                }
                Op::Invalidate { .. } => {
                    step.with_mbarrier(spot, lane, |_| Ok(()))?;
                    step.check_shared(spot.0, spot.1, 8, lane, check::Access::Write, None)?;
                    step.cluster.blocks[spot.0 as usize]
                        .mbarriers
                        .live
                        .remove(&spot.1);
                }
                Op::Expect { bytes, .. } => {
                    let bytes = step.word(*bytes)[lane];
                    step.check_mbarrier(spot, lane)?;
                    step.with_mbarrier(spot, lane, |m| m.expect(bytes))?;
                }
                Op::Complete { bytes, .. } => {
                    let bytes = step.word(*bytes)[lane];
                    step.check_mbarrier(spot, lane)?;
                    step.with_mbarrier(spot, lane, |m| m.complete(bytes))?;
                }
                Op::Arrive {
                    arrival,
                    drop,
                    open,
                    release,
                    ..
                } => {
                    step.check_mbarrier(spot, lane)?;
                    let token = if *release { step.release(lane) } else { None };
                    let (count, bytes) = match *arrival {
                        Arrival::Count(count) => (step.word(count)[lane], None),
                        Arrival::Expect(bytes) => (1, Some(step.word(bytes)[lane])),
                    };
                    let (state, ended) = step.with_mbarrier(spot, lane, |m| {
                        if let Some(token) = &token {
                            m.gather(token);
                        }
                        if let Some(bytes) = bytes {
                            m.expect(bytes)?;
                        }
                        m.arrive(count, *drop)
                    })?;
                    if ended && *open {
                        let message = "ended its phase, which `.noComplete` must not";
                        return Err(step.mbarrier_fault(spot, message, lane));
                    }
                    states[lane] = state.to_bits();
                }
                Op::Wait { until, acquire, .. } => {
                    step.check_mbarrier(spot, lane)?;
                    let done = match *until {
                        Until::Parity(parity) => {
                            let parity = step.word(parity)[lane];
                            if parity > 1 {
                                let message =
                                    format!("the parity of a phase is 0 or 1, not {parity}");
                                return Err(step.fault(FaultKind::Operand, message, 1 << lane));
                            }
                            let odd = parity == 1;
                            step.with_mbarrier(spot, lane, |m| Ok(m.object.parity_is_over(odd)))?
                        }
                        Until::State(state) => {
                            let bits = step.double(state)[lane];
                            let state = known_state(step, bits, lane)?;
                            step.with_mbarrier(spot, lane, |m| m.object.is_over(state))?
                        }
                    };
                    if done {
                        over |= 1 << lane;
                        let token = step.with_mbarrier(spot, lane, |m| Ok(m.see(*acquire)))?;
                        if let Some(token) = token {
                            step.acquire(&token, lane);
                        }
                    }
                }
                Op::PendingCount { .. } => {}
            }
        }
        match self {
            Op::Arrive {
                state: Some(to), ..
            } => step.set_double(*to, &states),
            Op::Wait {
                over: to, suspends, ..
            } => {
                if *suspends && over == 0 {
                    let (rank, offset) = one;
                    let address = offset + SHARED_BASE;
                    return Ok(Flow::Retry(Wait::Mbarrier { rank, address }));
                }
                if let Some(to) = to {
                    step.set_predicate(*to, over);
                }
                if over == 0 {
                    step.tested_in_vain(one)?;
                }
                if over != lanes {
                    return Ok(Flow::Yield);
                }
            }
            _ => {}
        }
        Ok(Flow::Next)
    }
}

fn known_state(step: &Step<'_>, bits: u64, lane: usize) -> Result<State, Fault> {
    State::from_bits(bits).ok_or_else(|| {
        let message = format!("{bits:#x} is no state of an mbarrier: arriving at one gives it");
        step.fault(FaultKind::Operand, message, 1 << lane)
    })
}

impl Step<'_> {
    fn init_mbarrier(&mut self, spot: Spot, count: u32, lane: usize) -> Result<(), Fault> {
        let (rank, offset) = spot;
        if rank != self.rank {
            let message = "is another block's, which cannot be initialised";
            return Err(self.mbarrier_fault(spot, message, lane));
        }
        let made = self.at;
        let before = self.cluster.blocks[rank as usize]
            .mbarriers
            .overlapping(offset, 8);
        if before.is_some() {
            let message = "is initialised again, before it was invalidated";
            return Err(self.mbarrier_fault(spot, message, lane));
        }
        let object = Object::new(count).map_err(|b| self.mbarrier_fault(spot, &b.0, lane))?;
        self.check_shared(rank, offset, 8, lane, check::Access::Write, None)?;
        let table = &mut self.cluster.blocks[rank as usize].mbarriers;
        table.live.insert(offset, Entry::new(object, made));
        Ok(())
    }
}
