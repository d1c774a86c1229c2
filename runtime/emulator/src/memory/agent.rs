//! Accesses of asynchronous operations: bytes move as for threads, in the order of the operation that moves them.

use super::Region;
use crate::{
    check::{self, Agent, Clocks, Proxy, Token},
    fault::{Fault, FaultKind, Thread},
    isa::{async_copy, bulk},
    machine::{Cluster, Grid, LANES, SHARED_BASE, Step},
};

impl Step<'_> {
    /// Whether the order of accesses is looked at.
    pub(crate) fn checks(&self) -> bool {
        self.grid.options.check_races
    }

    fn clocks(&mut self) -> &mut Clocks {
        &mut self.cluster.clocks[self.rank as usize]
    }

    fn thread(&self, lane: usize) -> u32 {
        self.warp * LANES as u32 + lane as u32
    }

    /// The address in the block's own window of an offset in its shared memory.
    pub(crate) fn shared_address(&self, offset: u32) -> u64 {
        u64::from(SHARED_BASE + offset)
    }

    /// The offset of such an address.
    pub(crate) fn shared_offset(&self, address: u64) -> u32 {
        address as u32 - SHARED_BASE
    }

    /// The groups of a lane's bulk copies.
    pub(crate) fn bulk_groups(&mut self, lane: usize) -> &mut bulk::Groups {
        let warp = &mut self.cluster.blocks[self.rank as usize].warps[self.warp as usize];
        if warp.bulk_groups.is_empty() {
            warp.bulk_groups = vec![bulk::Groups::default(); LANES];
        }
        &mut warp.bulk_groups[lane]
    }

    /// The groups of a lane's copies of words.
    pub(crate) fn copy_groups(&mut self, lane: usize) -> &mut async_copy::Groups {
        let warp = &mut self.cluster.blocks[self.rank as usize].warps[self.warp as usize];
        if warp.copy_groups.is_empty() {
            warp.copy_groups = vec![async_copy::Groups::default(); LANES];
        }
        &mut warp.copy_groups[lane]
    }

    /// A lane issues an operation; none where order is not looked at.
    pub(crate) fn agent_start(&mut self, lane: usize, proxy: Proxy) -> Option<Agent> {
        let thread = self.thread(lane);
        self.checks().then(|| self.clocks().spawn(thread, proxy))
    }

    /// A lane issues more of an operation.
    pub(crate) fn agent_extend(&mut self, agent: Agent, lane: usize) {
        let thread = self.thread(lane);
        self.clocks().extend(agent, thread);
    }

    /// The operation is over: what those that learn of it acquire.
    pub(crate) fn agent_done(&mut self, agent: Agent) -> Token {
        self.clocks().complete(agent)
    }

    /// The operation is over, and the lane that issued it waited for that.
    pub(crate) fn agent_waited(&mut self, agent: Agent, lane: usize) {
        let thread = self.thread(lane);
        self.clocks().complete_for(agent, thread);
    }

    /// What a lane releases, if order is looked at.
    pub(crate) fn release(&mut self, lane: usize) -> Option<Token> {
        let thread = self.thread(lane);
        self.checks().then(|| self.clocks().release(thread))
    }

    /// A lane learns of what was released.
    pub(crate) fn acquire(&mut self, token: &Token, lane: usize) {
        if self.checks() {
            let thread = self.thread(lane);
            self.clocks().acquire(thread, token);
        }
    }

    /// Reads bytes of a region as part of an operation.
    pub(crate) fn agent_load(
        &mut self,
        agent: Option<Agent>,
        region: Region,
        into: &mut [u8],
        lane: usize,
    ) -> Result<(), Fault> {
        match region {
            Region::Global { allocation, offset } => {
                let access = check::Access::Read;
                self.check_global(allocation, offset, into.len(), lane, access, agent)?;
                self.grid.allocations[allocation].load(offset, into);
            }
            Region::Shared { rank, offset } => {
                self.outside_mbarriers(rank, offset, into.len() as u32, lane)?;
                self.check_shared(rank, offset, into.len(), lane, check::Access::Read, agent)?;
                let shared = &self.cluster.blocks[rank as usize].shared;
                into.copy_from_slice(&shared[offset as usize..][..into.len()]);
            }
            Region::Local { .. } | Region::Parameter { .. } => {
                self.load_region(region, into, lane, check::Access::Read)?;
            }
        }
        Ok(())
    }

    /// Writes bytes of a region as part of an operation.
    pub(crate) fn agent_store(
        &mut self,
        agent: Option<Agent>,
        region: Region,
        from: &[u8],
        lane: usize,
    ) -> Result<(), Fault> {
        match region {
            Region::Global { allocation, offset } => {
                self.writable(allocation, lane)?;
                let access = check::Access::Write;
                self.check_global(allocation, offset, from.len(), lane, access, agent)?;
                self.grid.allocations[allocation].store(offset, from);
            }
            Region::Shared { rank, offset } => {
                self.outside_mbarriers(rank, offset, from.len() as u32, lane)?;
                self.check_shared(rank, offset, from.len(), lane, check::Access::Write, agent)?;
                let shared = &mut self.cluster.blocks[rank as usize].shared;
                shared[offset as usize..][..from.len()].copy_from_slice(from);
            }
            Region::Local { .. } | Region::Parameter { .. } => {
                self.store_region(region, from, lane, check::Access::Write)?;
            }
        }
        Ok(())
    }

    /// Replaces up to 8 aligned bytes at once as part of an operation.
    pub(crate) fn agent_update(
        &mut self,
        agent: Option<Agent>,
        region: Region,
        bytes: u32,
        lane: usize,
        change: impl Fn(u64) -> u64,
    ) -> Result<(), Fault> {
        let (access, count) = (check::Access::Atomic, bytes as usize);
        match region {
            Region::Global { allocation, offset } => {
                self.writable(allocation, lane)?;
                self.check_global(allocation, offset, count, lane, access, agent)?;
                self.grid.allocations[allocation].update(offset, bytes, change);
            }
            Region::Shared { rank, offset } => {
                self.outside_mbarriers(rank, offset, bytes, lane)?;
                self.check_shared(rank, offset, count, lane, access, agent)?;
                let shared = &mut self.cluster.blocks[rank as usize].shared;
                let place = &mut shared[offset as usize..][..count];
                let mut old = [0; 8];
                old[..count].copy_from_slice(place);
                let new = change(u64::from_le_bytes(old)).to_le_bytes();
                place.copy_from_slice(&new[..count]);
            }
            Region::Local { .. } | Region::Parameter { .. } => {
                let message = "a reduction works on global and shared memory only";
                return Err(self.fault(FaultKind::Operand, message, 1 << lane));
            }
        }
        Ok(())
    }

    /// Refuses accesses of the bytes of a live mbarrier that are none of its operations.
    #[inline]
    pub(crate) fn outside_mbarriers(
        &self,
        rank: u32,
        offset: u32,
        bytes: u32,
        lane: usize,
    ) -> Result<(), Fault> {
        let table = &self.cluster.blocks[rank as usize].mbarriers;
        let Some(at) = table.overlapping(offset, bytes) else {
            return Ok(());
        };
        let message = format!(
            "{bytes} bytes at {:#x} of shared memory are accessed, which holds an mbarrier at {:#x}",
            offset + SHARED_BASE,
            at + SHARED_BASE
        );
        Err(self.fault(FaultKind::Barrier, message, 1 << lane))
    }
}

impl Cluster {
    /// What asynchronous operations must not leave behind when all threads have exited: copies that may still read the memory of their
    /// block, and mbarriers that nobody waited for.
    pub(crate) fn left_behind(&self, grid: &Grid<'_>) -> Result<(), Fault> {
        let fault = |kind, message, threads, at| Fault {
            kind,
            message,
            threads,
            place: grid.program.place(at),
            notes: Vec::new(),
        };
        for block in &self.blocks {
            for (warp, lanes) in block.warps.iter().enumerate() {
                for (lane, groups) in lanes.bulk_groups.iter().enumerate() {
                    let Some(at) = groups.reading() else {
                        continue;
                    };
                    let message = "a bulk copy was not waited for before its block ended: it may read shared memory that is no more";
                    let thread = Thread {
                        block: block.index,
                        thread: (warp * LANES + lane) as u32,
                    };
                    return Err(fault(FaultKind::Pending, message.into(), vec![thread], at));
                }
            }
            if let Some((offset, made)) = block.mbarriers.forgotten() {
                let message = format!(
                    "the mbarrier at {:#x} of shared memory of block {:?} was neither waited for nor invalidated before the block ended",
                    offset + SHARED_BASE,
                    block.index
                );
                return Err(fault(FaultKind::Barrier, message, Vec::new(), made));
            }
        }
        Ok(())
    }
}
