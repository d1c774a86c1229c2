//! Accesses of threads: which space an address means, whether it may be accessed, and what it holds.
//!
//! Invariants: every byte that a kernel reads or writes goes through [`Step::load`], [`Step::store`] or [`Step::update`], which check bounds,
//! alignment, initialisation and order; a fault names the address, the space and the threads.

use crate::{
    check::{self, Agent, Conflict, ConflictKind, Epoch, Token},
    fault::{Fault, FaultKind, Note, Thread},
    machine::{Grid, LANES, SHARED_BASE, Step},
    ptx::Space,
};

/// Generic addresses of the windows (PTX ISA §5.1, "generic addressing"): 32-bit addresses of shared memory follow the first.
pub(crate) const SHARED_WINDOW: u64 = 0x4000_0000_0000;
pub(crate) const LOCAL_WINDOW: u64 = 0x5000_0000_0000;
pub(crate) const PARAMETER_WINDOW: u64 = 0x6000_0000_0000;

/// In the cluster's window, block `rank` begins at `(rank + 1) << CLUSTER_SHIFT`; below that lies the executing block.
const CLUSTER_SHIFT: u32 = 24;

/// What an access orders (PTX ISA §8.4); all but weak ones are strong, and do not race with each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    #[default]
    Weak,
    /// `volatile` too.
    Relaxed,
    Acquire,
    Release,
    AcquireRelease,
}

impl Order {
    fn acquires(self) -> bool {
        matches!(self, Order::Acquire | Order::AcquireRelease)
    }

    fn releases(self) -> bool {
        matches!(self, Order::Release | Order::AcquireRelease)
    }
}

/// What a strong access does to the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strong {
    Load,
    Store,
    Update,
}

/// How memory is accessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    pub order: Order,
    /// Through the non-coherent path (`ld.global.nc`).
    pub non_coherent: bool,
    /// In the scope of the block (`.cta`), if it is strong.
    pub near: bool,
}

/// What an address means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Region {
    /// By the allocation's number in the launch.
    Global {
        allocation: usize,
        offset: u64,
    },
    /// By the block's rank in the cluster; the offset counts from the beginning of its shared memory.
    Shared {
        rank: u32,
        offset: u32,
    },
    Local {
        offset: u32,
    },
    Parameter {
        offset: u32,
    },
}

impl Region {
    /// The place so many bytes further.
    pub(crate) fn after(self, bytes: u64) -> Region {
        let more = bytes as u32;
        match self {
            Region::Global { allocation, offset } => Region::Global {
                allocation,
                offset: offset + bytes,
            },
            Region::Shared { rank, offset } => Region::Shared {
                rank,
                offset: offset + more,
            },
            Region::Local { offset } => Region::Local {
                offset: offset + more,
            },
            Region::Parameter { offset } => Region::Parameter {
                offset: offset + more,
            },
        }
    }
}

/// The cluster address of a shared address of block `rank`.
pub(crate) fn cluster_address(rank: u32, address: u32) -> u32 {
    (rank + 1) << CLUSTER_SHIFT | address & ((1 << CLUSTER_SHIFT) - 1)
}

/// Splits an address of the cluster's window into a rank, none for the executing block, and an address there.
pub(crate) fn split_cluster_address(address: u32) -> (Option<u32>, u32) {
    let rank = (address >> CLUSTER_SHIFT).checked_sub(1);
    (rank, address & ((1 << CLUSTER_SHIFT) - 1))
}

/// The space that a generic address lies in.
pub(crate) fn space_at(address: u64) -> Space {
    const WINDOW: u32 = 32;
    match address >> WINDOW {
        w if w == SHARED_WINDOW >> WINDOW => Space::Shared,
        w if w == LOCAL_WINDOW >> WINDOW => Space::Local,
        w if w == PARAMETER_WINDOW >> WINDOW => Space::Parameter,
        _ => Space::Global,
    }
}

fn name(space: Space) -> &'static str {
    match space {
        Space::Generic => "generic",
        Space::Global => "global",
        Space::Constant => "constant",
        Space::Local => "local",
        Space::Parameter => "parameter",
        Space::Shared => "shared",
        Space::SharedCluster => "the cluster's shared",
    }
}

impl Step<'_> {
    #[cold]
    fn out_of_bounds(
        &self,
        space: Space,
        address: u64,
        bytes: u64,
        lane: usize,
        why: &str,
    ) -> Fault {
        let message = format!(
            "{bytes} bytes at {address:#x} of {} memory are accessed out of bounds: {why}",
            name(space)
        );
        self.fault(FaultKind::OutOfBounds, message, 1 << lane)
    }

    /// What an address of a lane means. The access of `bytes` bytes must be aligned to `align`, and lie in one allocation or window.
    #[inline]
    pub(crate) fn resolve(
        &self,
        space: Space,
        address: u64,
        bytes: u64,
        align: u64,
        lane: usize,
    ) -> Result<Region, Fault> {
        if !address.is_multiple_of(align) {
            let message = format!(
                "{bytes} bytes at {address:#x} of {} memory are accessed misaligned: the address must be a multiple of {align}",
                name(space)
            );
            return Err(self.fault(FaultKind::Misaligned, message, 1 << lane));
        }
        match space {
            Space::Global | Space::Constant => self.resolve_global(space, address, bytes, lane),
            Space::Shared | Space::SharedCluster => {
                self.resolve_shared(space, address, bytes, lane)
            }
            Space::Local => {
                let limit = u64::from(self.grid.program.local_bytes);
                if address.checked_add(bytes).is_none_or(|end| end > limit) {
                    let why = format!("a thread has {limit} bytes of it");
                    return Err(self.out_of_bounds(space, address, bytes, lane, &why));
                }
                Ok(Region::Local {
                    offset: address as u32,
                })
            }
            Space::Parameter => {
                let inside = |(at, size): &(u64, u64)| {
                    let end = address.checked_add(bytes);
                    address >= *at && end.is_some_and(|end| end <= at + size)
                };
                if !self.grid.program.parameters.iter().any(inside) {
                    let limit = self.grid.parameters.len();
                    let why = format!("no parameter holds them; all have {limit} bytes");
                    return Err(self.out_of_bounds(space, address, bytes, lane, &why));
                }
                Ok(Region::Parameter {
                    offset: address as u32,
                })
            }
            Space::Generic => match space_at(address) {
                Space::Shared => {
                    let address = address - SHARED_WINDOW;
                    self.resolve_shared(Space::SharedCluster, address, bytes, lane)
                }
                Space::Local => self.resolve(Space::Local, address - LOCAL_WINDOW, bytes, 1, lane),
                Space::Parameter => {
                    self.resolve(Space::Parameter, address - PARAMETER_WINDOW, bytes, 1, lane)
                }
                _ => self.resolve_global(Space::Global, address, bytes, lane),
            },
        }
    }

    #[inline]
    fn resolve_global(
        &self,
        space: Space,
        address: u64,
        bytes: u64,
        lane: usize,
    ) -> Result<Region, Fault> {
        let all = &self.grid.allocations;
        let after = all.partition_point(|a| a.base <= address);
        let before = after.checked_sub(1).map(|i| (i, &all[i]));
        if let Some((allocation, a)) = before {
            let offset = address - a.base;
            let there = space != Space::Constant || a.read_only;
            if there && offset.checked_add(bytes).is_some_and(|end| end <= a.size) {
                return Ok(Region::Global { allocation, offset });
            }
        }
        Err(self.outside(space, address, bytes, lane))
    }

    #[cold]
    fn outside(&self, space: Space, address: u64, bytes: u64, lane: usize) -> Fault {
        let all = &self.grid.allocations;
        let after = all.partition_point(|a| a.base <= address);
        let nearest_before = after.checked_sub(1).map(|i| &all[i]);
        let constant = |a: &std::sync::Arc<crate::memory::Allocation>| a.read_only;
        if space == Space::Constant && !nearest_before.is_some_and(constant) {
            let why = "no variable of constant memory lies there";
            return self.out_of_bounds(space, address, bytes, lane, why);
        }
        let why = match (nearest_before, all.get(after)) {
            (Some(a), next)
                if next.is_none_or(|n| {
                    (address - a.base).saturating_sub(a.size) <= n.base - address
                }) =>
            {
                let past = (address - a.base).saturating_sub(a.size);
                match past {
                    0 => format!(
                        "they cross the end of an allocation of {} bytes at {:#x}",
                        a.size, a.base
                    ),
                    _ => format!(
                        "{past} bytes past the end of an allocation of {} bytes at {:#x}",
                        a.size, a.base
                    ),
                }
            }
            (_, Some(a)) if a.base - address < 1 << 32 => {
                format!(
                    "{} bytes before an allocation of {} bytes at {:#x}",
                    a.base - address,
                    a.size,
                    a.base
                )
            }
            _ => "no allocation is near".into(),
        };
        self.out_of_bounds(space, address, bytes, lane, &why)
    }

    #[inline]
    fn resolve_shared(
        &self,
        space: Space,
        address: u64,
        bytes: u64,
        lane: usize,
    ) -> Result<Region, Fault> {
        let size = self.grid.shared_bytes;
        let (rank, inside) = match u32::try_from(address) {
            Ok(address) => split_cluster_address(address),
            Err(_) => {
                let why = "the window has 32-bit addresses";
                return Err(self.out_of_bounds(space, address, bytes, lane, why));
            }
        };
        let rank = match (space, rank) {
            (_, None) => self.rank,
            (Space::SharedCluster, Some(rank)) if (rank as usize) < self.cluster.blocks.len() => {
                rank
            }
            (Space::Shared, Some(rank)) if rank == self.rank => rank,
            _ => {
                let why = "it is an address of another block, or of none";
                return Err(self.out_of_bounds(space, address, bytes, lane, why));
            }
        };
        if rank != self.rank && self.cluster.blocks[rank as usize].has_exited() {
            let why = "all threads of that block have exited, and its shared memory is no more";
            return Err(self.out_of_bounds(space, address, bytes, lane, why));
        }
        let there = &self.cluster.blocks[rank as usize];
        if rank != self.rank && there.warps.iter().all(|w| w.live == 0) {
            let index = there.index;
            let why = format!("block {index:?}, whose memory that is, has exited");
            return Err(self.out_of_bounds(space, address, bytes, lane, &why));
        }
        if inside < SHARED_BASE || u64::from(inside - SHARED_BASE) + bytes > u64::from(size) {
            let why = format!(
                "the block's shared memory is {size} bytes at {SHARED_BASE:#x}, {} of them dynamic",
                self.grid.dynamic_shared_bytes
            );
            return Err(self.out_of_bounds(space, address, bytes, lane, &why));
        }
        Ok(Region::Shared {
            rank,
            offset: inside - SHARED_BASE,
        })
    }

    /// As [`Step::load`], of a place that was resolved.
    pub(crate) fn load_part(
        &mut self,
        region: Region,
        into: &mut [u8],
        lane: usize,
        access: Access,
    ) -> Result<(), Fault> {
        let kind = match access {
            Access {
                non_coherent: true, ..
            } => check::Access::ReadOnly,
            Access {
                order: Order::Weak, ..
            } => check::Access::Read,
            _ => check::Access::StrongRead,
        };
        if access.order == Order::Weak {
            return self.load_region(region, into, lane, kind);
        }
        self.in_order(region, lane, access, Strong::Load, |step| {
            step.load_region(region, into, lane, kind)
        })
    }

    /// As [`Step::store`], of a place that was resolved.
    pub(crate) fn store_part(
        &mut self,
        region: Region,
        from: &[u8],
        lane: usize,
        access: Access,
    ) -> Result<(), Fault> {
        if access.order == Order::Weak {
            return self.store_region(region, from, lane, check::Access::Write);
        }
        self.in_order(region, lane, access, Strong::Store, |step| {
            step.store_region(region, from, lane, check::Access::StrongWrite)
        })
    }

    /// Reads bytes for a lane.
    #[inline]
    pub(crate) fn load(
        &mut self,
        space: Space,
        address: u64,
        into: &mut [u8],
        lane: usize,
        access: Access,
    ) -> Result<(), Fault> {
        let bytes = into.len() as u64;
        let region = self.resolve(space, address, bytes, bytes.next_power_of_two(), lane)?;
        self.load_part(region, into, lane, access)
    }

    /// Reads bytes of a region for a lane.
    #[inline]
    pub(crate) fn load_region(
        &mut self,
        region: Region,
        into: &mut [u8],
        lane: usize,
        access: check::Access,
    ) -> Result<(), Fault> {
        match region {
            Region::Global { allocation, offset } => {
                self.check_global(allocation, offset, into.len(), lane, access, None)?;
                self.grid.allocations[allocation].load(offset, into);
            }
            Region::Shared { rank, offset } => {
                self.outside_mbarriers(rank, offset, into.len() as u32, lane)?;
                self.check_shared(rank, offset, into.len(), lane, access, None)?;
                let shared = &self.cluster.blocks[rank as usize].shared;
                into.copy_from_slice(&shared[offset as usize..][..into.len()]);
            }
            Region::Local { offset } => {
                let size = self.grid.program.local_bytes as usize;
                let at = lane * size + offset as usize;
                let warp = &self.cluster.blocks[self.rank as usize].warps[self.warp as usize];
                let written = warp.local_written.get(at..at + into.len());
                if !written.is_some_and(|w| w.iter().all(|w| *w != 0)) {
                    let message = format!(
                        "{} bytes at {offset:#x} of local memory are read, and nothing wrote them",
                        into.len()
                    );
                    return Err(self.fault(FaultKind::UninitializedMemory, message, 1 << lane));
                }
                into.copy_from_slice(&warp.local[at..at + into.len()]);
            }
            Region::Parameter { offset } => {
                into.copy_from_slice(&self.grid.parameters[offset as usize..][..into.len()]);
            }
        }
        Ok(())
    }

    /// Writes bytes for a lane.
    #[inline]
    pub(crate) fn store(
        &mut self,
        space: Space,
        address: u64,
        from: &[u8],
        lane: usize,
        access: Access,
    ) -> Result<(), Fault> {
        let bytes = from.len() as u64;
        let region = self.resolve(space, address, bytes, bytes.next_power_of_two(), lane)?;
        self.store_part(region, from, lane, access)
    }

    /// Writes bytes of a region for a lane.
    #[inline]
    pub(crate) fn store_region(
        &mut self,
        region: Region,
        from: &[u8],
        lane: usize,
        access: check::Access,
    ) -> Result<(), Fault> {
        match region {
            Region::Global { allocation, offset } => {
                self.writable(allocation, lane)?;
                self.check_global(allocation, offset, from.len(), lane, access, None)?;
                self.grid.allocations[allocation].store(offset, from);
            }
            Region::Shared { rank, offset } => {
                self.outside_mbarriers(rank, offset, from.len() as u32, lane)?;
                self.check_shared(rank, offset, from.len(), lane, access, None)?;
                let shared = &mut self.cluster.blocks[rank as usize].shared;
                shared[offset as usize..][..from.len()].copy_from_slice(from);
            }
            Region::Local { offset } => {
                let size = self.grid.program.local_bytes as usize;
                let at = lane * size + offset as usize;
                let warp = &mut self.cluster.blocks[self.rank as usize].warps[self.warp as usize];
                if warp.local.is_empty() {
                    warp.local = vec![0; size * LANES];
                    warp.local_written = vec![0; size * LANES];
                }
                warp.local[at..at + from.len()].copy_from_slice(from);
                warp.local_written[at..at + from.len()].fill(1);
            }
            Region::Parameter { .. } => {
                let message = "parameters are written, which a kernel cannot";
                return Err(self.fault(FaultKind::ReadOnly, message, 1 << lane));
            }
        }
        Ok(())
    }

    pub(crate) fn writable(&self, allocation: usize, lane: usize) -> Result<(), Fault> {
        if self.grid.allocations[allocation].read_only {
            let message = "constant memory is written, which a kernel cannot";
            return Err(self.fault(FaultKind::ReadOnly, message, 1 << lane));
        }
        Ok(())
    }

    /// Replaces up to 8 aligned bytes by what `change` makes of them, at once; gives the old ones. An atomic operation that names no order is
    /// relaxed.
    pub(crate) fn update(
        &mut self,
        space: Space,
        address: u64,
        bytes: u32,
        lane: usize,
        scoped: Access,
        mut change: impl FnMut(u64) -> u64,
    ) -> Result<u64, Fault> {
        let region = self.resolve(space, address, u64::from(bytes), u64::from(bytes), lane)?;
        let access = check::Access::Atomic;
        match region {
            Region::Global { allocation, offset } => {
                self.writable(allocation, lane)?;
                self.in_order(region, lane, scoped, Strong::Update, |step| {
                    step.check_global(allocation, offset, bytes as usize, lane, access, None)?;
                    Ok(step.grid.allocations[allocation].update(offset, bytes, change))
                })
            }
            Region::Shared { rank, offset } => {
                self.in_order(region, lane, scoped, Strong::Update, |step| {
                    step.outside_mbarriers(rank, offset, bytes, lane)?;
                    step.check_shared(rank, offset, bytes as usize, lane, access, None)?;
                    let shared = &mut step.cluster.blocks[rank as usize].shared;
                    let place = &mut shared[offset as usize..][..bytes as usize];
                    let mut old = [0; 8];
                    old[..bytes as usize].copy_from_slice(place);
                    let old = u64::from_le_bytes(old);
                    place.copy_from_slice(&change(old).to_le_bytes()[..bytes as usize]);
                    Ok(old)
                })
            }
            Region::Local { .. } | Region::Parameter { .. } => {
                let message = "an atomic operation works on global and shared memory only";
                Err(self.fault(FaultKind::Operand, message, 1 << lane))
            }
        }
    }

    /// A strong access, and what it acquires and releases (PTX ISA §8.8): with the value that it reads comes what was released with that, at
    /// once or at the next fence, and with the one that it writes goes what the thread did before, or before its last fence.
    fn in_order<R>(
        &mut self,
        region: Region,
        lane: usize,
        Access { order, near, .. }: Access,
        kind: Strong,
        access: impl FnOnce(&mut Self) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        if !self.grid.options.check_races {
            return access(self);
        }
        let grid = self.grid;
        let thread = self.warp * LANES as u32 + lane as u32;
        let rank = self.rank as usize;
        // What was released to all, of global memory, and what was to threads of the block: of shared memory, all.
        let mut in_global = None;
        let key = match region {
            Region::Global { allocation, offset } => {
                let address = grid.allocations[allocation].base + offset;
                in_global = Some(grid.sync.lock(address));
                1 << 63 | (u64::from(self.rank) << 56) ^ address
            }
            Region::Shared { rank, offset } => u64::from(rank) << 32 | u64::from(offset),
            Region::Local { .. } | Region::Parameter { .. } => return access(self),
        };
        let far = in_global.as_ref().and_then(|e| e.token().cloned());
        let here = self.cluster.sync.lock(key).token().cloned();
        self.near = near;
        let result = access(self);
        self.near = false;
        let result = result?;
        let clocks = &mut self.cluster.clocks[rank];
        // A store reads nothing; a read-modify-write and a load do.
        if kind != Strong::Store {
            match (&far, order.acquires()) {
                (Some(far), true) if !near => clocks.acquire(thread, far),
                (Some(far), _) => clocks.saw(thread, far),
                (None, _) => {}
            }
            match (&here, order.acquires()) {
                (Some(here), true) => clocks.acquire(thread, here),
                (Some(here), false) => clocks.saw_near(thread, here),
                (None, _) => {}
            }
        }
        if kind == Strong::Load {
            return Ok(result);
        }
        let (to_all, to_block) = match order.releases() {
            true => {
                let token = clocks.release(thread);
                ((!near).then(|| token.clone()), Some(token))
            }
            false => {
                let far = clocks.fence_token(thread).cloned();
                (far, clocks.fence_token_near(thread).cloned())
            }
        };
        let change = |entry: &mut check::Entry<'_>, token: Option<Token>| match (kind, token) {
            // Whoever reads the new value sees nothing of what was released with the old one.
            (Strong::Store, token) => entry.store(token),
            (_, Some(token)) => entry.update(&token),
            (_, None) => {}
        };
        if let Some(mut entry) = in_global {
            change(&mut entry, to_all);
        }
        change(&mut self.cluster.sync.lock(key), to_block);
        Ok(result)
    }

    /// Refuses an access of global memory that nothing orders after an earlier one, by a lane or by an asynchronous operation of the block.
    #[inline]
    pub(crate) fn check_global(
        &mut self,
        allocation: usize,
        offset: u64,
        bytes: usize,
        lane: usize,
        access: check::Access,
        agent: Option<Agent>,
    ) -> Result<(), Fault> {
        let Some(shadow) = &self.grid.shadow else {
            return Ok(());
        };
        let clocks = &self.cluster.clocks[self.rank as usize];
        let view = match agent {
            Some(agent) => clocks.agent_view(agent),
            None => {
                let thread = self.warp * LANES as u32 + lane as u32;
                clocks.view(thread).scoped(self.near)
            }
        };
        let address = self.grid.allocations[allocation].base + offset;
        let done = shadow.access(address, bytes as u64, &view, access, self.at);
        done.map_err(|conflict| self.conflict("global", conflict, access, agent, lane))
    }

    /// Refuses an access of shared memory that reads what nothing wrote, or that nothing orders after an earlier one.
    #[inline]
    pub(crate) fn check_shared(
        &mut self,
        rank: u32,
        offset: u32,
        bytes: usize,
        lane: usize,
        access: check::Access,
        agent: Option<Agent>,
    ) -> Result<(), Fault> {
        if !self.grid.options.check_races {
            return Ok(());
        }
        let clocks = &self.cluster.clocks[self.rank as usize];
        let view = match agent {
            Some(agent) => clocks.agent_view(agent),
            None => {
                let thread = self.warp * LANES as u32 + lane as u32;
                clocks.view(thread).scoped(self.near)
            }
        };
        if rank != self.rank {
            let epoch = view.epoch();
            let cluster = self.cluster.blocks.len() as u32;
            let there = &mut self.cluster.blocks[rank as usize];
            if self.cluster.phase == 0 && !view.knows_block(there.linear) {
                let index = there.index;
                let message = format!(
                    "shared memory of block {index:?} is accessed, and nothing says that the block has started (a barrier of the cluster does)"
                );
                return Err(self.fault(FaultKind::Race, message, 1 << lane));
            }
            let threads = self.grid.threads();
            if epoch.thread() < threads {
                let all = (cluster * threads) as usize;
                if there.visitors.is_empty() {
                    there.visitors = vec![(Epoch::NEVER, 0); all];
                }
                let thread = self.rank * threads + epoch.thread();
                there.visitors[thread as usize] = (epoch, self.at);
            } else {
                let operation = u64::from(epoch.block()) << 32 | u64::from(epoch.thread());
                there.operations.insert(operation, (epoch, self.at));
            }
        }
        let shadow = &mut self.cluster.shadows[rank as usize];
        let done = shadow.access(offset, bytes as u32, &view, access, self.at);
        done.map_err(|conflict| self.conflict("shared", conflict, access, agent, lane))
    }

    #[cold]
    fn conflict(
        &self,
        space: &str,
        conflict: Conflict,
        access: check::Access,
        agent: Option<Agent>,
        lane: usize,
    ) -> Fault {
        let byte = match space {
            "shared" => conflict.byte + u64::from(SHARED_BASE),
            _ => conflict.byte,
        };
        let name = match space {
            "shared" => self.shared_name(conflict.byte as u32),
            _ => self.allocation_name(byte),
        };
        let place = format!("{byte:#x} of {space} memory{name}");
        let who = if agent.is_some() {
            "an asynchronous operation"
        } else {
            "a thread"
        };
        let verb = match access {
            check::Access::Read | check::Access::StrongRead | check::Access::ReadOnly => "reads",
            check::Access::Atomic => "updates",
            check::Access::Write | check::Access::StrongWrite => "writes",
        };
        let (kind, message, other) = match conflict.kind {
            ConflictKind::Uninitialized => (
                FaultKind::UninitializedMemory,
                format!("{who} {verb} the byte at {place}, and nothing wrote it"),
                None,
            ),
            ConflictKind::MissingProxyFence => (
                FaultKind::MissingProxyFence,
                format!(
                    "{who} {verb} the byte at {place} through the async proxy with no proxy fence (fence.proxy.async) after the write before it"
                ),
                Some("the write"),
            ),
            ConflictKind::ReadOnly => (
                FaultKind::ReadOnly,
                format!(
                    "{who} {verb} the byte at {place}, which the launch both writes and reads as read-only (ld.global.nc)"
                ),
                Some("the other access"),
            ),
            ConflictKind::WriteWrite => (
                FaultKind::Race,
                format!(
                    "a race: {who} {verb} the byte at {place}, which another writes, and nothing orders the two"
                ),
                Some("the other write"),
            ),
            ConflictKind::WriteRead => (
                FaultKind::Race,
                format!(
                    "a race: {who} {verb} the byte at {place}, which another writes, and nothing orders the two"
                ),
                Some("the write"),
            ),
            ConflictKind::ReadWrite => (
                FaultKind::Race,
                format!(
                    "a race: {who} {verb} the byte at {place}, which another reads, and nothing orders the two"
                ),
                Some("the read"),
            ),
        };
        let mut fault = self.fault(kind, message, 1 << lane);
        if let Some(other) = other {
            let (thread, asynchronous) = self.who(conflict.other);
            let suffix = if asynchronous {
                ", by an asynchronous operation that was issued"
            } else {
                ""
            };
            fault.notes.push(Note {
                message: format!("{other}{suffix}"),
                threads: vec![thread],
                place: self.grid.program.place(conflict.place),
            });
        }
        fault
    }

    /// A block's threads have exited: others must have done with its shared memory.
    pub(crate) fn check_visitors(&self, lanes: u32) -> Result<(), Fault> {
        let block = &self.cluster.blocks[self.rank as usize];
        let mut visitors = block.visitors.iter().chain(block.operations.values());
        let late =
            |(epoch, _): &&(Epoch, u32)| *epoch != Epoch::NEVER && !block.exits.covers(*epoch);
        let Some((epoch, at)) = visitors.find(late) else {
            return Ok(());
        };
        let message = format!(
            "block {:?} exits, and nothing orders that after accesses of its shared memory by another block",
            block.index
        );
        let mut fault = self.fault(FaultKind::Race, message, lanes);
        let (thread, _) = self.who(*epoch);
        fault.notes.push(Note {
            message: "an access of its shared memory".into(),
            threads: vec![thread],
            place: self.grid.program.place(*at),
        });
        Err(fault)
    }

    /// The thread of a moment, and whether an asynchronous operation of it did it.
    fn who(&self, epoch: Epoch) -> (Thread, bool) {
        let block = Grid::place(u64::from(epoch.block()), self.grid.grid);
        let here = self
            .cluster
            .blocks
            .iter()
            .position(|b| b.linear == epoch.block());
        let (thread, asynchronous) = match here {
            Some(rank) => self.cluster.clocks[rank].issuer(epoch),
            None => (epoch.thread(), epoch.thread() >= self.grid.threads()),
        };
        (Thread { block, thread }, asynchronous)
    }

    /// " (`tile`, byte 12)" of a variable in shared memory.
    fn shared_name(&self, offset: u32) -> String {
        let names = &self.grid.program.shared_names;
        let found = names
            .iter()
            .find(|(at, size, _)| offset >= *at && offset - at < *size);
        found.map_or(String::new(), |(at, _, name)| {
            format!(" (`{name}`, byte {})", offset - at)
        })
    }

    /// " (byte 12 of an allocation of 64 bytes)".
    fn allocation_name(&self, address: u64) -> String {
        let all = &self.grid.allocations;
        let after = all.partition_point(|a| a.base <= address);
        after.checked_sub(1).map_or(String::new(), |i| {
            let a = &all[i];
            format!(
                " (byte {} of an allocation of {} bytes)",
                address - a.base,
                a.size
            )
        })
    }
}
