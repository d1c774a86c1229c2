//! What runs: clusters, their blocks, their warps, and groups of threads in them.

use std::collections::BTreeMap;

use crate::check::{Clocks, Epoch, SharedShadow, SyncTable, Token};
use crate::isa::{async_copy, bulk, matrix::group::Issues, mbarrier};

use super::{Grid, LANES, Registers};

/// What a group of threads waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// It can run.
    None,
    /// The other threads that its instruction needs.
    Together,
    /// A barrier of the block (`bar.sync`), by number.
    Barrier(u32),
    /// The cluster's barrier.
    ClusterBarrier,
    /// A phase of an mbarrier: the block's rank in the cluster, and the address in its shared memory.
    Mbarrier { rank: u32, address: u32 },
    /// What it waited for happened, with a value.
    Done(u64),
}

/// Threads of a warp with one program counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split {
    pub pc: u32,
    pub lanes: u32,
    pub wait: Wait,
    /// It made no progress in this round.
    pub idle: bool,
}

#[derive(Debug)]
pub(crate) struct Warp {
    pub registers: Registers,
    /// No two of them share a lane.
    pub splits: Vec<Split>,
    /// Lanes of the block that have not exited.
    pub live: u32,
    /// Local memory of its lanes, one after another, with a byte of 1 for each that was written; made when used.
    pub local: Vec<u8>,
    pub local_written: Vec<u8>,
    pub instructions: u64,
    /// Registers of a thread, since the warp's first `setmaxnreg`.
    pub register_limit: Option<u32>,
    /// Lanes that arrived at the cluster's barrier and have not waited since, and the phase that each arrived in.
    pub cluster_pending: u32,
    pub cluster_phase: [u64; LANES],
    /// Of each lane, made when used.
    pub bulk_groups: Vec<bulk::Groups>,
    pub copy_groups: Vec<async_copy::Groups>,
}

/// A named barrier of a block (PTX ISA §9.7.13.1).
#[derive(Clone, Debug, Default)]
pub(crate) struct NamedBarrier {
    /// Threads that have arrived, in whole warps, by the ISA's counting.
    pub arrived: u32,
    /// The threads that complete it; all of the block that have not exited if none are given.
    pub expected: Option<u32>,
    /// The lanes that arrived, by warp: those that wait.
    pub waiting: Vec<(u32, u32)>,
    /// Those that arrived and went on.
    pub passed: Vec<(u32, u32)>,
    /// Of `bar.red`: how many predicates held, of how many.
    pub held: u32,
    pub voted: u32,
    /// The instruction that arrived last.
    pub at: u32,
    /// What those who arrived knew.
    pub token: Token,
}

#[derive(Debug)]
pub(crate) struct Block {
    /// x, y, z in the grid.
    pub index: [u32; 3],
    /// Number in the grid, x fastest.
    pub linear: u32,
    pub shared: Vec<u8>,
    pub warps: Vec<Warp>,
    pub barriers: Vec<NamedBarrier>,
    /// What the warps of each warp group issued.
    pub products: Vec<Issues>,
    pub mbarriers: mbarrier::Table,
    /// Of each thread of the cluster, the last access of this block's shared memory from another one, and its instruction; made when used.
    pub visitors: Vec<(Epoch, u32)>,
    /// The same of asynchronous operations of other blocks.
    pub operations: BTreeMap<u64, (Epoch, u32)>,
    /// What its threads knew when they exited.
    pub exits: Token,
}

/// Blocks that run together; a single one without clusters.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub blocks: Vec<Block>,
    /// Of the cluster's barrier: phases completed, threads that arrived in this one.
    pub phase: u64,
    pub arrived: u32,
    /// Barriers that completed: the block's rank (none for all), what is waited for, and the value to go on with. The machine wakes those who wait.
    /// Clocks and shadows are kept.
    pub check_races: bool,
    /// What threads know of each other, by block.
    pub clocks: Vec<Clocks>,
    /// Accesses to shared memory, by block.
    pub shadows: Vec<SharedShadow>,
    /// What was released in shared memory.
    pub sync: SyncTable,
    /// What threads that arrived at the cluster's barrier knew, and what those of the last phase did.
    pub arriving: Token,
    pub arrived_before: Token,
    pub completed: Vec<(Option<u32>, Wait, u64)>,
}

impl Warp {
    fn new(grid: &Grid<'_>, warp: u32) -> Warp {
        let threads = grid.threads() - warp * LANES as u32;
        let live = if threads >= 32 {
            u32::MAX
        } else {
            (1 << threads) - 1
        };
        Warp {
            registers: Registers::new(&grid.program.file),
            splits: vec![Split {
                pc: 0,
                lanes: live,
                wait: Wait::None,
                idle: false,
            }],
            live,
            local: Vec::new(),
            local_written: Vec::new(),
            instructions: 0,
            register_limit: None,
            cluster_pending: 0,
            cluster_phase: [0; LANES],
            bulk_groups: Vec::new(),
            copy_groups: Vec::new(),
        }
    }
}

impl Block {
    /// Whether no thread is left.
    pub(crate) fn has_exited(&self) -> bool {
        self.warps.iter().all(|warp| warp.live == 0)
    }
}

impl Cluster {
    /// Cluster `number` of the grid.
    pub(crate) fn new(grid: &Grid<'_>, number: u64) -> Cluster {
        let clusters = [0, 1, 2].map(|i| grid.grid[i] / grid.cluster[i]);
        let at = Grid::place(number, clusters);
        let size: u32 = grid.cluster.iter().product();
        let block = |rank: u32| {
            let inside = Grid::place(u64::from(rank), grid.cluster);
            let index = [0, 1, 2].map(|i| at[i] * grid.cluster[i] + inside[i]);
            let [x, y, z] = index.map(u64::from);
            let [gx, gy, _] = grid.grid.map(u64::from);
            Block {
                index,
                linear: (x + gx * (y + gy * z)) as u32,
                shared: vec![0; grid.shared_bytes as usize],
                warps: (0..grid.warps())
                    .map(|warp| Warp::new(grid, warp))
                    .collect(),
                barriers: vec![NamedBarrier::default(); 16],
                products: Vec::new(),
                mbarriers: mbarrier::Table::default(),
                visitors: Vec::new(),
                operations: BTreeMap::new(),
                exits: Token::default(),
            }
        };
        let blocks: Vec<Block> = (0..size).map(block).collect();
        let clocks = blocks
            .iter()
            .map(|b| Clocks::new(b.linear, grid.threads()))
            .collect();
        let shadows = blocks
            .iter()
            .map(|_| SharedShadow::new(grid.shared_bytes))
            .collect();
        Cluster {
            blocks,
            phase: 0,
            arrived: 0,
            check_races: grid.options.check_races,
            clocks,
            shadows,
            sync: SyncTable::new(),
            arriving: Token::default(),
            arrived_before: Token::default(),
            completed: Vec::new(),
        }
    }
}
