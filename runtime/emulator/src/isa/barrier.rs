//! Barriers of a block, a warp and a cluster, and fences (PTX ISA §9.7.13.1 `bar`, `barrier`; §9.7.13.2 `bar.warp.sync`; §9.7.13.3
//! `barrier.cluster`; §9.7.13.4 `membar`, `fence`).

use super::{
    Together,
    matrix::group::Issues,
    operands::{Decoder, Predicate, Refused, Src32, SrcP, Type, Word},
};
use crate::{
    fault::{Fault, FaultKind},
    machine::{Cluster, Flow, Grid, Step, Wait, lanes_of},
};

/// What `bar.red` gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduction {
    And(Predicate),
    Or(Predicate),
    Count(Word),
}

/// Which memory a proxy fence orders (§9.7.13.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proxy {
    Alias,
    /// Generic and async proxies.
    Async,
    /// Of tensor maps.
    TensorMap,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Sync {
        barrier: Src32,
        threads: Option<Src32>,
        reduce: Option<(Reduction, SrcP)>,
    },
    Arrive {
        barrier: Src32,
        threads: Src32,
    },
    WarpSync,
    ClusterArrive {
        release: bool,
    },
    ClusterWait {
        acquire: bool,
    },
    /// In the scope of the block, or in a wider one.
    Fence {
        near: bool,
    },
    ProxyFence(Proxy),
}

pub(super) fn decode(d: &mut Decoder<'_>) -> Result<(Op, Together), Refused> {
    let first = &*d.parts()[0];
    match first {
        "membar" | "fence" => decode_fence(d).map(|op| (op, Together::No)),
        _ if d.has("cluster") => {
            d.only(&[
                "cluster", "arrive", "wait", "release", "relaxed", "acquire", "aligned",
            ])?;
            d.expect_count(0..=0)?;
            let together = if d.has("aligned") {
                Together::Warp
            } else {
                Together::No
            };
            Ok(match (d.has("arrive"), d.has("wait")) {
                (true, false) => (
                    Op::ClusterArrive {
                        release: !d.has("relaxed"),
                    },
                    together,
                ),
                (false, true) => (Op::ClusterWait { acquire: true }, together),
                _ => return Err("it must arrive or wait".into()),
            })
        }
        _ if d.has("warp") => {
            d.only(&["warp", "sync"])?;
            d.expect_count(1..=1)?;
            let mask = d.src32(d.operand(0)?, Type::B32)?;
            Ok((Op::WarpSync, Together::Masked(mask)))
        }
        _ => {
            d.only(&[
                "cta", "sync", "arrive", "red", "aligned", "and", "or", "popc", "pred", "u32",
            ])?;
            // `bar` is `barrier.cta` with `.aligned`.
            let together = match first == "bar" || d.has("aligned") {
                true => Together::Warp,
                false => Together::No,
            };
            if d.has("arrive") {
                d.expect_count(2..=2)?;
                let barrier = d.src32(d.operand(0)?, Type::U32)?;
                let threads = d.src32(d.operand(1)?, Type::U32)?;
                return Ok((Op::Arrive { barrier, threads }, together));
            }
            if d.has("red") {
                d.expect_count(3..=4)?;
                let to = d.operand(0)?;
                let reduction = match () {
                    () if d.has("and") => {
                        Reduction::And(d.dst_predicate(to)?.ok_or("a predicate must stand here")?)
                    }
                    () if d.has("or") => {
                        Reduction::Or(d.dst_predicate(to)?.ok_or("a predicate must stand here")?)
                    }
                    () if d.has("popc") => Reduction::Count(d.dst32(to)?),
                    () => return Err("it must name an operation".into()),
                };
                let barrier = d.src32(d.operand(1)?, Type::U32)?;
                let threads = match d.count() {
                    4 => Some(d.src32(d.operand(2)?, Type::U32)?),
                    _ => None,
                };
                let from = d.src_predicate(d.operand(d.count() - 1)?)?;
                return Ok((
                    Op::Sync {
                        barrier,
                        threads,
                        reduce: Some((reduction, from)),
                    },
                    together,
                ));
            }
            if !d.has("sync") {
                return Err("it must synchronise, arrive or reduce".into());
            }
            d.expect_count(1..=2)?;
            let barrier = d.src32(d.operand(0)?, Type::U32)?;
            let threads = match d.count() {
                2 => Some(d.src32(d.operand(1)?, Type::U32)?),
                _ => None,
            };
            Ok((
                Op::Sync {
                    barrier,
                    threads,
                    reduce: None,
                },
                together,
            ))
        }
    }
}

fn decode_fence(d: &Decoder<'_>) -> Result<Op, Refused> {
    if d.has("proxy") {
        let kind = d.parts().iter().map(|p| &**p).find_map(|part| match part {
            "alias" => Some(Proxy::Alias),
            p if p.starts_with("async") => Some(Proxy::Async),
            p if p.starts_with("tensormap") => Some(Proxy::TensorMap),
            _ => None,
        });
        return kind
            .map(Op::ProxyFence)
            .ok_or_else(|| Refused::from("the proxy is not known"));
    }
    let known = [
        "cta",
        "gl",
        "gpu",
        "sys",
        "cluster",
        "sc",
        "acq_rel",
        "acquire",
        "release",
        "mbarrier_init",
        "sync_restrict::shared::cta",
        "sync_restrict::shared::cluster",
    ];
    d.only(&known)?;
    d.expect_count(0..=0)?;
    Ok(Op::Fence { near: d.has("cta") })
}

impl Op {
    pub(super) fn execute(&self, step: &mut Step<'_>) -> Result<Flow, Fault> {
        match self {
            Op::Sync {
                barrier,
                threads,
                reduce,
            } => {
                if let Some(value) = step.resumed {
                    if let Some((reduction, _)) = reduce {
                        let (held, voted) = ((value >> 32) as u32, value as u32);
                        match reduction {
                            Reduction::And(to) => step.set_predicate(*to, mask(held == voted)),
                            Reduction::Or(to) => step.set_predicate(*to, mask(held > 0)),
                            Reduction::Count(to) => step.set_word(*to, &[held; 32]),
                        }
                    }
                    return Ok(Flow::Next);
                }
                let vote = reduce.map(|(_, from)| step.predicate(from) & step.lanes);
                let id = arrive(step, *barrier, *threads, vote, true)?;
                Ok(Flow::Wait(Wait::Barrier(id)))
            }
            Op::Arrive { barrier, threads } => {
                arrive(step, *barrier, Some(*threads), None, false)?;
                Ok(Flow::Next)
            }
            Op::WarpSync => {
                step.warp_sync();
                Ok(Flow::Next)
            }
            Op::ClusterArrive { release } => {
                let (rank, warp, lanes) = (step.rank as usize, step.warp as usize, step.lanes);
                let pending = step.cluster.blocks[rank].warps[warp].cluster_pending;
                if pending & lanes != 0 {
                    let message = "a thread arrives at the cluster's barrier again, and has not waited for its last arrival";
                    return Err(step.fault(FaultKind::Barrier, message, pending & lanes));
                }
                step.cluster_arrive(*release);
                let phase = step.cluster.phase;
                let here = &mut step.cluster.blocks[rank].warps[warp];
                here.cluster_pending |= lanes;
                for lane in lanes_of(lanes) {
                    here.cluster_phase[lane] = phase;
                }
                step.cluster.arrived += lanes.count_ones();
                step.cluster.complete_cluster_barrier();
                Ok(Flow::Next)
            }
            Op::ClusterWait { acquire } => {
                let (rank, warp, lanes) = (step.rank as usize, step.warp as usize, step.lanes);
                let here = &step.cluster.blocks[rank].warps[warp];
                let absent = lanes & !here.cluster_pending;
                if absent != 0 {
                    let message =
                        "a thread waits at the cluster's barrier, and has not arrived there";
                    return Err(step.fault(FaultKind::Barrier, message, absent));
                }
                let phase = step.cluster.phase;
                if lanes_of(lanes).any(|lane| here.cluster_phase[lane] == phase) {
                    return Ok(Flow::Wait(Wait::ClusterBarrier));
                }
                step.cluster.blocks[rank].warps[warp].cluster_pending &= !lanes;
                step.cluster_wait(*acquire);
                Ok(Flow::Next)
            }
            Op::Fence { near } => {
                step.fence(*near);
                Ok(Flow::Next)
            }
            Op::ProxyFence(proxy) => {
                if *proxy == Proxy::Async {
                    step.proxy_fence();
                }
                Ok(Flow::Next)
            }
        }
    }
}

fn mask(holds: bool) -> u32 {
    if holds { u32::MAX } else { 0 }
}

/// The same value in all lanes that execute, as an operand that the ISA wants uniform.
fn uniform(step: &Step<'_>, source: Src32, what: &str) -> Result<u32, Fault> {
    let values = step.word(source);
    let first = values[step.lanes.trailing_zeros() as usize];
    match lanes_of(step.lanes).find(|l| values[*l] != first) {
        None => Ok(first),
        Some(lane) => {
            let message = format!(
                "threads of a warp name different {what}: {first} and {}",
                values[lane]
            );
            Err(step.fault(FaultKind::Participation, message, step.lanes))
        }
    }
}

/// Arrives at a named barrier; gives its number.
fn arrive(
    step: &mut Step<'_>,
    barrier: Src32,
    threads: Option<Src32>,
    vote: Option<u32>,
    waits: bool,
) -> Result<u32, Fault> {
    let id = uniform(step, barrier, "barriers")?;
    if id >= 16 {
        let message = format!("barrier {id} does not exist: a block has 16");
        return Err(step.fault(FaultKind::Operand, message, step.lanes));
    }
    let expected = threads
        .map(|t| uniform(step, t, "counts of threads"))
        .transpose()?;
    let all = 32 * step.grid.warps();
    if let Some(threads) = expected
        && (threads == 0 || threads % 32 != 0 || threads > all)
    {
        let message = format!(
            "barrier {id} is to have {threads} threads: that must be a multiple of 32, and at most the block's {all}"
        );
        return Err(step.fault(FaultKind::Operand, message, step.lanes));
    }
    let (rank, warp, lanes) = (step.rank as usize, step.warp, step.lanes);
    let live = step.cluster.blocks[rank].warps[warp as usize].live;
    let state = &mut step.cluster.blocks[rank].barriers[id as usize];
    let begun = state.arrived > 0;
    if begun && state.expected.unwrap_or(all) != expected.unwrap_or(all) {
        let word = |e: Option<u32>| e.map_or("all".to_owned(), |e| e.to_string());
        let message = format!(
            "barrier {id} has {} threads for those who came before, and {} for these",
            word(state.expected),
            word(expected)
        );
        return Err(step.fault(FaultKind::Barrier, message, lanes));
    }
    if !begun {
        state.expected = expected;
    }
    state.at = step.at;
    // Whole warps count as 32 threads, also a last one that has fewer.
    state.arrived += if lanes == live {
        32
    } else {
        lanes.count_ones()
    };
    let list = if waits {
        &mut state.waiting
    } else {
        &mut state.passed
    };
    list.push((warp, lanes));
    if let Some(vote) = vote {
        state.held += vote.count_ones();
        state.voted += lanes.count_ones();
    }
    if let Some(expected) = state.expected
        && state.arrived > expected
    {
        let message = format!(
            "barrier {id} has {expected} threads, and {} arrived",
            state.arrived
        );
        return Err(step.fault(FaultKind::Barrier, message, lanes));
    }
    if !waits {
        step.barrier_arrive(id);
    }
    step.cluster.complete_barrier(step.rank, id);
    Ok(id)
}

impl Cluster {
    /// Completes a named barrier if all have arrived: their accesses are ordered, and those that wait go on.
    fn complete_barrier(&mut self, rank: u32, id: u32) {
        let block = &mut self.blocks[rank as usize];
        let state = &block.barriers[id as usize];
        let complete = match state.expected {
            Some(threads) => state.arrived >= threads,
            None => {
                let here = |warp: u32| {
                    let all = state.waiting.iter().chain(&state.passed);
                    all.filter(|(w, _)| *w == warp)
                        .fold(0, |m, (_, lanes)| m | lanes)
                };
                let warps = block.warps.iter().enumerate();
                state.arrived > 0
                    && warps
                        .into_iter()
                        .all(|(w, warp)| warp.live & !here(w as u32) == 0)
            }
        };
        if !complete {
            return;
        }
        let state = std::mem::take(&mut block.barriers[id as usize]);
        self.order_barrier(rank, state.token, &state.waiting);
        let value = u64::from(state.held) << 32 | u64::from(state.voted);
        self.completed.push((Some(rank), Wait::Barrier(id), value));
    }

    fn complete_cluster_barrier(&mut self) {
        let warps = self.blocks.iter().flat_map(|b| &b.warps);
        let live: u32 = warps.clone().map(|w| w.live.count_ones()).sum();
        if self.arrived < live {
            return;
        }
        // Threads that have exited count as arrived.
        let complete = warps.into_iter().all(|w| {
            let waits =
                lanes_of(w.live & w.cluster_pending).filter(|l| w.cluster_phase[*l] == self.phase);
            waits.count() as u32 == w.live.count_ones()
        });
        if !complete || self.arrived == 0 {
            return;
        }
        self.phase += 1;
        self.arrived = 0;
        self.order_cluster_barrier();
        self.completed.push((None, Wait::ClusterBarrier, 0));
    }

    /// Threads of a block exited: barriers of all threads may be complete now.
    pub(crate) fn after_exit(&mut self, rank: u32) {
        for id in 0..16 {
            let state = &self.blocks[rank as usize].barriers[id as usize];
            if state.arrived > 0 && state.expected.is_none() {
                self.complete_barrier(rank, id);
            }
        }
        if self.arrived > 0 {
            self.complete_cluster_barrier();
        }
    }

    /// What must hold when all threads have exited.
    pub(crate) fn at_exit(&mut self, grid: &Grid<'_>) -> Result<(), Fault> {
        for block in &self.blocks {
            for (id, barrier) in block.barriers.iter().enumerate() {
                if barrier.arrived > 0 {
                    let expected = barrier.expected.map_or("all".to_owned(), |e| e.to_string());
                    return Err(Fault {
                        kind: FaultKind::Barrier,
                        message: format!(
                            "barrier {id} of the block was never completed: {} of {expected} threads arrived before all exited",
                            barrier.arrived
                        ),
                        threads: block.threads(&barrier.passed),
                        place: grid.program.place(barrier.at),
                        notes: Vec::new(),
                    });
                }
            }
            if let Some(at) = block.products.iter().find_map(Issues::unfinished) {
                return Err(Fault {
                    kind: FaultKind::Participation,
                    message: "warps of a warp group exited, and never issued a product that others of the group did".into(),
                    threads: Vec::new(),
                    place: grid.program.place(at),
                    notes: Vec::new(),
                });
            }
        }
        self.left_behind(grid)
    }
}
