//! Grids in execution: clusters of blocks of warps, and the order in which they run.
//!
//! A warp holds groups of threads with a program counter each ([`Split`]); the group that stands first in the text runs first, and groups
//! that meet join, which is how structured code reconverges. What a warp waits for is data; a round in which nobody could go on is a
//! deadlock, and the waits say of whom.
//!
//! Invariants: a cluster runs on one thread of the host, in an order that depends on the launch and its options only; clusters run side by
//! side and meet in global memory only.

mod block;
mod order;
mod registers;
mod run;
mod step;

use std::sync::{Arc, atomic::AtomicU64};

pub(crate) use block::{Block, Cluster, Split, Wait};
pub(crate) use registers::{LANES, Registers};
pub(crate) use run::run;
pub(crate) use step::{Step, lanes_of};

use crate::{
    Options,
    check::{GlobalShadow, SyncTable},
    isa::program::Program,
    memory::Allocation,
};

/// Shared memory begins here in its window; the bytes below it belong to the system on real devices, and here catch null addresses.
pub(crate) const SHARED_BASE: u32 = 1024;

/// Parameters begin here in their space.
pub(crate) const PARAMETER_BASE: u64 = 0;

/// What all blocks of a launch share.
pub(crate) struct Grid<'a> {
    pub program: &'a Program,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: [u32; 3],
    /// Static and dynamic.
    pub shared_bytes: u32,
    pub dynamic_shared_bytes: u32,
    /// The parameters, laid out as in their space.
    pub parameters: Vec<u8>,
    /// Addresses of the module's variables.
    pub variables: Vec<u64>,
    /// Live allocations by address.
    pub allocations: Vec<Arc<Allocation>>,
    pub options: Options,
    /// Accesses to global memory, and what was released there; none if races are not looked for.
    pub shadow: Option<GlobalShadow>,
    pub sync: SyncTable,
    pub steps: AtomicU64,
    pub thread_steps: AtomicU64,
}

impl Grid<'_> {
    pub(crate) fn threads(&self) -> u32 {
        self.block.iter().product()
    }

    pub(crate) fn warps(&self) -> u32 {
        self.threads().div_ceil(LANES as u32)
    }

    /// x, y, z of a number, x fastest.
    pub(crate) fn place(number: u64, extents: [u32; 3]) -> [u32; 3] {
        let [x, y, _] = extents.map(u64::from);
        [
            (number % x) as u32,
            (number / x % y) as u32,
            (number / x / y) as u32,
        ]
    }
}

/// What the machine does after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Next,
    /// Its lanes go on at another instruction.
    Jump(u32),
    /// Those of its lanes go on at another instruction, and the others run this one again: a branch to many places.
    JumpSome {
        to: u32,
        lanes: u32,
    },
    /// Its lanes end.
    Exit,
    /// Its lanes stay until something sets [`Wait::Done`]; then the instruction runs again with `Step::resumed`.
    Wait(Wait),
    /// Its lanes stay; the instruction runs again in the next round, and nothing has happened meanwhile.
    Retry(Wait),
    /// As `Next`, but others run first: a spinning program makes no progress by itself.
    Yield,
}
