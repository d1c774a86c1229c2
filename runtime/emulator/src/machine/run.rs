//! Runs clusters: rounds over their warps until all have exited, somebody is at fault, or nobody can go on.

use std::sync::atomic::Ordering;

use rayon::prelude::*;

use super::{Cluster, Flow, Grid, LANES, Registers, Split, Step, Wait, lanes_of};
use crate::{
    Report,
    fault::{Fault, FaultKind, Note, Thread},
    isa::{
        Together,
        operands::{Src32, SrcP},
    },
};

/// Instructions of a warp before others of its cluster run: long enough to be cheap, short enough that who waits sees news soon.
const QUANTUM: u32 = 2048;

/// Jumps back in a turn, by groups of a warp that has several, after which the others of them run.
const LOOPS: u32 = 64;

/// Rounds in which warps only looked whether something had happened, after which nothing will.
const IDLE_ROUNDS: u32 = 1000;

/// Runs all clusters of a grid.
pub(crate) fn run(grid: &Grid<'_>) -> Result<Report, Fault> {
    let per_axis = [0, 1, 2].map(|i| u64::from(grid.grid[i] / grid.cluster[i]));
    let clusters: u64 = per_axis.iter().product();
    let one = |number: u64| run_cluster(grid, Cluster::new(grid, number)).err();
    // The first cluster's fault is the one to tell, whoever found one first.
    let side_by_side = || (0..clusters).into_par_iter().find_map_first(one);
    let fault = match grid.options.workers {
        _ if clusters == 1 => one(0),
        1 => (0..clusters).find_map(one),
        0 => side_by_side(),
        workers => {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(workers).build();
            match pool {
                Ok(pool) => pool.install(side_by_side),
                Err(_) => side_by_side(),
            }
        }
    };
    match fault {
        Some(fault) => Err(fault),
        None => Ok(Report {
            warp_instructions: grid.steps.load(Ordering::Relaxed),
            thread_instructions: grid.thread_steps.load(Ordering::Relaxed),
        }),
    }
}

fn run_cluster(grid: &Grid<'_>, mut cluster: Cluster) -> Result<(), Fault> {
    let warps = grid.warps();
    let blocks = cluster.blocks.len() as u32;
    let total = warps * blocks;
    let mut idle_rounds = 0;
    loop {
        let (mut progress, mut alive, mut looked) = (false, false, false);
        // Another seed, another warp that comes first.
        let first = (grid.options.seed % u64::from(total)) as u32;
        for number in 0..total {
            let number = (number + first) % total;
            let (rank, warp) = (number / warps, number % warps);
            let here = &cluster.blocks[rank as usize].warps[warp as usize];
            if here.live == 0 {
                continue;
            }
            alive = true;
            if here.splits.iter().all(|s| waits(s.wait)) {
                continue;
            }
            let ran = run_warp(grid, &mut cluster, rank, warp)?;
            progress |= ran.progress;
            looked |= ran.looked;
        }
        if !alive {
            break;
        }
        if progress {
            idle_rounds = 0;
            continue;
        }
        idle_rounds += 1;
        if !looked || idle_rounds > IDLE_ROUNDS {
            return Err(deadlock(grid, &cluster));
        }
    }
    cluster.at_exit(grid)
}

/// Whether only others can end this.
fn waits(wait: Wait) -> bool {
    matches!(
        wait,
        Wait::Barrier(_) | Wait::ClusterBarrier | Wait::Together
    )
}

/// What a warp did in its turn.
#[derive(Default)]
struct Ran {
    /// Something happened that may matter to others.
    progress: bool,
    /// It looked, in vain, whether something had happened.
    looked: bool,
    steps: u64,
    threads: u64,
}

fn run_warp(grid: &Grid<'_>, cluster: &mut Cluster, rank: u32, warp: u32) -> Result<Ran, Fault> {
    let here = &mut cluster.blocks[rank as usize].warps[warp as usize];
    let mut turn = Turn {
        grid,
        rank,
        warp,
        registers: std::mem::take(&mut here.registers),
        splits: std::mem::take(&mut here.splits),
        cluster,
        ran: Ran::default(),
        loops: 0,
    };
    let done = turn.run();
    let Turn {
        registers,
        splits,
        ran,
        ..
    } = turn;
    let here = &mut cluster.blocks[rank as usize].warps[warp as usize];
    here.registers = registers;
    here.splits = splits;
    here.instructions += ran.steps;
    if let Err(mut fault) = done {
        if fault.kind == FaultKind::Deadlock && fault.notes.is_empty() {
            fault.notes = who_waits(grid, cluster);
        }
        return Err(fault);
    }
    grid.thread_steps.fetch_add(ran.threads, Ordering::Relaxed);
    let before = grid.steps.fetch_add(ran.steps, Ordering::Relaxed);
    if before + ran.steps > grid.options.step_limit {
        return Err(endless(grid, cluster, rank, warp));
    }
    Ok(ran)
}

/// More instructions than the options allow: where the warp stands that had the last turn.
fn endless(grid: &Grid<'_>, cluster: &Cluster, rank: u32, warp: u32) -> Fault {
    let block = &cluster.blocks[rank as usize];
    let splits = &block.warps[warp as usize].splits;
    let threads = |split: &Split| block.threads(&[(warp, split.lanes)]);
    let first = splits.first();
    let notes = splits.iter().skip(1).map(|split| Note {
        message: "others of its warp stand here".into(),
        threads: threads(split),
        place: grid.program.place(split.pc),
    });
    let limit = grid.options.step_limit;
    Fault {
        kind: FaultKind::StepLimit,
        message: format!("the launch ran more than {limit} instructions of warps"),
        threads: first.map(threads).unwrap_or_default(),
        place: first.and_then(|s| grid.program.place(s.pc)),
        notes: notes.collect(),
    }
}

/// A warp's turn. Its registers and groups are out of the cluster meanwhile, so that both can be changed.
struct Turn<'a> {
    grid: &'a Grid<'a>,
    cluster: &'a mut Cluster,
    rank: u32,
    warp: u32,
    registers: Registers,
    splits: Vec<Split>,
    ran: Ran,
    /// Jumps back by groups of a warp that has several.
    loops: u32,
}

impl Turn<'_> {
    /// The group that runs next: the one that stands first in the text.
    fn choose(&self) -> Option<usize> {
        let splits = self.splits.iter().enumerate();
        let ready = splits.filter(|(_, s)| !waits(s.wait) && !s.idle);
        ready.min_by_key(|(_, s)| s.pc).map(|(index, _)| index)
    }

    /// A group jumped back while others could run. One that spins may wait for those, so it lets them run now and then.
    fn looped(&mut self, at: usize) {
        self.loops += 1;
        if self.loops.is_multiple_of(LOOPS) {
            self.splits[at].idle = true;
        }
    }

    /// Those lanes of a group become a group of their own.
    fn split_off(&mut self, from: usize, lanes: u32, pc: u32) {
        self.splits[from].lanes &= !lanes;
        if lanes != 0 {
            self.splits.push(Split {
                pc,
                lanes,
                wait: Wait::None,
                idle: false,
            });
        }
    }

    /// Joins a group with those that stand where it does.
    fn join(&mut self, mut current: usize) {
        let Split { pc, wait, .. } = self.splits[current];
        if wait != Wait::None {
            return;
        }
        let mut index = 0;
        while index < self.splits.len() {
            let other = self.splits[index];
            if index != current && other.pc == pc && other.wait == Wait::None {
                self.splits[current].lanes |= other.lanes;
                self.splits[current].idle &= other.idle;
                self.splits.swap_remove(index);
                if current == self.splits.len() {
                    current = index;
                }
            } else {
                index += 1;
            }
        }
    }

    /// Lanes of a group end, at that instruction.
    fn end(&mut self, current: usize, lanes: u32, at: u32) -> Result<(), Fault> {
        self.splits[current].lanes &= !lanes;
        if self.splits[current].lanes == 0 {
            self.splits.swap_remove(current);
        }
        let here = &mut self.cluster.blocks[self.rank as usize].warps[self.warp as usize];
        here.live &= !lanes;
        let over = self.cluster.blocks[self.rank as usize]
            .warps
            .iter()
            .all(|w| w.live == 0);
        // Fewer threads are needed now.
        for split in &mut self.splits {
            if split.wait == Wait::Together {
                split.wait = Wait::None;
            }
        }
        if self.grid.options.check_races && self.cluster.blocks.len() > 1 {
            let exits = &mut self.cluster.blocks[self.rank as usize].exits;
            self.cluster.clocks[self.rank as usize].release_into(self.warp, lanes, exits);
            if over {
                exits.seal();
                self.step(lanes, at).check_visitors(lanes)?;
            }
        }
        self.cluster.after_exit(self.rank);
        self.wake();
        self.ran.progress = true;
        Ok(())
    }

    /// Lets those go on whose barriers completed.
    fn wake(&mut self) {
        for (rank, wait, value) in std::mem::take(&mut self.cluster.completed) {
            let done = |splits: &mut Vec<Split>| {
                for split in splits.iter_mut().filter(|s| s.wait == wait) {
                    split.wait = Wait::Done(value);
                }
            };
            let blocks = self.cluster.blocks.iter_mut().enumerate();
            for (_, block) in blocks.filter(|(r, _)| rank.is_none_or(|rank| rank as usize == *r)) {
                for warp in &mut block.warps {
                    done(&mut warp.splits);
                }
            }
            if rank.is_none_or(|rank| rank == self.rank) {
                done(&mut self.splits);
            }
        }
    }

    fn step(&mut self, lanes: u32, at: u32) -> Step<'_> {
        Step {
            grid: self.grid,
            cluster: self.cluster,
            registers: &mut self.registers,
            rank: self.rank,
            warp: self.warp,
            lanes,
            at,
            resumed: None,
            ticks: self.ran.steps,
            near: false,
        }
    }

    fn run(&mut self) -> Result<(), Fault> {
        for split in &mut self.splits {
            split.idle = false;
        }
        let program = self.grid.program;
        let mut current = None;
        for _ in 0..QUANTUM {
            let at = match current {
                Some(_) if self.splits.len() == 1 => 0,
                _ => match self.choose() {
                    Some(index) => index,
                    None => break,
                },
            };
            current = Some(at);
            let split = self.splits[at];
            let Some(inst) = program.insts.get(split.pc as usize) else {
                // Falling off the end is an exit.
                self.ran.steps += 1;
                self.end(at, split.lanes, split.pc)?;
                current = None;
                continue;
            };
            let mut lanes = split.lanes;
            if let Some(guard) = inst.guard {
                if let SrcP::Reg { predicate, .. } = guard {
                    let track = program.file.track_predicate(predicate);
                    self.defined(track, split)?;
                }
                lanes &= self.registers.predicate(guard);
                if lanes == 0 {
                    self.splits[at].pc += 1;
                    if self.splits.len() > 1 {
                        self.join(at);
                    }
                    continue;
                }
            }
            let resumed = match split.wait {
                Wait::Done(value) => Some(value),
                _ => None,
            };
            if inst.together != Together::No && resumed.is_none() {
                let needed = self.needed(inst.together, lanes, split.pc)?;
                if needed & !lanes != 0 || lanes & !needed != 0 {
                    // Those whose guard does not hold go on, those with other masks are another party, and the rest waits for the others.
                    self.split_off(at, split.lanes & !lanes, split.pc + 1);
                    self.split_off(at, lanes & !needed, split.pc);
                    if needed & !lanes != 0 {
                        self.meet(at);
                    }
                    current = None;
                    continue;
                }
            }
            for &read in &inst.reads {
                if lanes & !self.registers.defined[read as usize] != 0 {
                    self.defined(read, Split { lanes, ..split })?;
                }
            }
            if let Some(register) = self.registers.products.first_pending(&inst.writes) {
                self.defined(register, Split { lanes, ..split })?;
            }
            self.ran.steps += 1;
            self.ran.threads += u64::from(lanes.count_ones());
            let mut step = self.step(lanes, split.pc);
            step.resumed = resumed;
            let flow = inst.op.execute(&mut step)?;
            self.registers.products.wrote(&inst.writes);
            let split = &mut self.splits[at];
            if resumed.is_some() {
                split.wait = Wait::None;
            }
            match flow {
                Flow::Next => {
                    split.pc += 1;
                    self.ran.progress = true;
                }
                Flow::Yield => {
                    split.pc += 1;
                    split.idle = true;
                    self.ran.looked = true;
                    current = None;
                }
                Flow::Jump(to) => {
                    self.ran.progress = true;
                    let back = to <= split.pc;
                    if lanes == split.lanes {
                        split.pc = to;
                        if back && self.splits.len() > 1 {
                            self.looped(at);
                            current = None;
                        }
                    } else {
                        split.pc += 1;
                        self.split_off(at, lanes, to);
                        let pushed = self.splits.len() - 1;
                        if back {
                            self.looped(pushed);
                        }
                        self.join(pushed);
                        current = None;
                        continue;
                    }
                }
                Flow::JumpSome { to, lanes } => {
                    self.ran.progress = true;
                    self.split_off(at, lanes, to);
                    let pushed = self.splits.len() - 1;
                    self.join(pushed);
                    current = None;
                    continue;
                }
                Flow::Exit => {
                    let pc = split.pc;
                    split.pc += 1;
                    self.end(at, lanes, pc)?;
                    current = None;
                    continue;
                }
                Flow::Wait(wait) | Flow::Retry(wait) => {
                    let (others, pc) = (split.lanes & !lanes, split.pc + 1);
                    split.wait = wait;
                    if let Flow::Retry(_) = flow {
                        split.idle = true;
                        self.ran.looked = true;
                    } else {
                        self.ran.progress = true;
                    }
                    self.split_off(at, others, pc);
                    // This very arrival may have been the last.
                    self.wake();
                    current = None;
                    continue;
                }
            }
            if self.splits.len() > 1 {
                self.join(at);
            }
        }
        // An arrival that did not wait may have been the last that others waited for.
        self.wake();
        if !self.splits.is_empty() && self.splits.iter().all(|s| s.wait == Wait::Together) {
            return Err(self.absent());
        }
        Ok(())
    }

    /// The lanes that must run this instruction together with the first of `lanes`.
    fn needed(&mut self, together: Together, lanes: u32, at: u32) -> Result<u32, Fault> {
        let live = self.cluster.blocks[self.rank as usize].warps[self.warp as usize].live;
        let Together::Masked(mask) = together else {
            return Ok(live);
        };
        if let Src32::Reg(word) = mask {
            let track = self.grid.program.file.track_word(word);
            self.defined(
                track,
                Split {
                    pc: at,
                    lanes,
                    wait: Wait::None,
                    idle: false,
                },
            )?;
        }
        let masks = self.registers.word(mask);
        if let Some(lane) = lanes_of(lanes).find(|l| masks[*l] >> l & 1 == 0) {
            let message = format!(
                "the mask of threads is {:#010x}, which leaves out a thread that runs the instruction",
                masks[lane]
            );
            return Err(self
                .step(lanes, at)
                .fault(FaultKind::Participation, message, 1 << lane));
        }
        let first = masks[lanes.trailing_zeros() as usize];
        let differs = |lane: &usize| masks[*lane] != first && masks[*lane] & first & live != 0;
        let others: u32 = lanes_of(lanes).filter(differs).fold(0, |m, l| m | 1 << l);
        if others != 0 {
            let message = format!(
                "threads that name each other give different masks: {first:#010x} and {:#010x}",
                masks[others.trailing_zeros() as usize]
            );
            let step = self.step(lanes, at);
            return Err(step.fault(FaultKind::Participation, message, others));
        }
        Ok(first & live)
    }

    /// A group waits for those that its instruction needs, and meets those that wait there already.
    fn meet(&mut self, at: usize) {
        let pc = self.splits[at].pc;
        let there = |s: &Split| s.pc == pc && s.wait == Wait::Together;
        match self.splits.iter().position(there) {
            Some(other) => {
                let lanes = self.splits[at].lanes;
                self.splits[other].lanes |= lanes;
                self.splits[other].wait = Wait::None;
                self.splits.swap_remove(at);
            }
            None => self.splits[at].wait = Wait::Together,
        }
    }

    /// Refuses a read of a register that nothing wrote, or whose value is still to come.
    fn defined(&mut self, register: u32, split: Split) -> Result<(), Fault> {
        let missing = split.lanes & !self.registers.defined[register as usize];
        if missing == 0 {
            return Ok(());
        }
        let name = self.grid.program.names.get(register as usize).cloned();
        let name = name.unwrap_or_else(|| "?".into());
        let (kind, message) = if self.registers.products.is_pending(register) {
            let message = format!(
                "{name} is touched before the asynchronous product that it belongs to was waited for (wgmma.wait_group)"
            );
            (FaultKind::Pending, message)
        } else {
            (
                FaultKind::UninitializedRegister,
                format!("{name} is read, and nothing wrote it"),
            )
        };
        Err(self
            .step(split.lanes, split.pc)
            .fault(kind, message, missing))
    }

    /// All groups wait for each other.
    fn absent(&mut self) -> Fault {
        let mut groups = self.splits.clone();
        groups.sort_by_key(|s| s.pc);
        let first = groups[0];
        let message =
            "an instruction that threads run together is not reached by all that it needs";
        let mut fault =
            self.step(first.lanes, first.pc)
                .fault(FaultKind::Participation, message, first.lanes);
        for other in &groups[1..] {
            let step = self.step(other.lanes, other.pc);
            fault.notes.push(Note {
                message: "others wait here instead".into(),
                threads: step.threads(other.lanes),
                place: step.grid.program.place(other.pc),
            });
        }
        fault
    }
}

/// Nobody can go on.
fn deadlock(grid: &Grid<'_>, cluster: &Cluster) -> Fault {
    Fault {
        kind: FaultKind::Deadlock,
        message: "deadlock: no thread can go on".into(),
        threads: Vec::new(),
        place: None,
        notes: who_waits(grid, cluster),
    }
}

/// Who waits for what.
fn who_waits(grid: &Grid<'_>, cluster: &Cluster) -> Vec<Note> {
    let mut notes: Vec<Note> = Vec::new();
    for block in &cluster.blocks {
        for (number, warp) in block.warps.iter().enumerate() {
            for split in &warp.splits {
                let what = match split.wait {
                    Wait::Barrier(id) => {
                        let barrier = &block.barriers[id as usize];
                        let expected = match barrier.expected {
                            Some(threads) => format!("{threads}"),
                            None => "all".into(),
                        };
                        format!(
                            "waits at barrier {id} of the block, where {} of {expected} threads have arrived",
                            barrier.arrived
                        )
                    }
                    Wait::ClusterBarrier => "waits at the cluster's barrier".into(),
                    Wait::Together => "waits for the other threads of its warp".into(),
                    Wait::Mbarrier { rank, address } => cluster.describe_mbarrier(rank, address),
                    Wait::None | Wait::Done(_) => "waits for something in memory".into(),
                };
                let thread = |lane| Thread {
                    block: block.index,
                    thread: number as u32 * LANES as u32 + lane as u32,
                };
                let threads: Vec<Thread> = lanes_of(split.lanes).map(thread).collect();
                let place = grid.program.place(split.pc);
                let same = notes
                    .last_mut()
                    .filter(|n| n.message == what && n.place == place);
                match same {
                    Some(note) => note.threads.extend(threads),
                    None => notes.push(Note {
                        message: what,
                        threads,
                        place,
                    }),
                }
            }
        }
    }
    notes
}
