//! Accesses of threads: which space an address means, whether it may be accessed, and what it holds.
//!
//! Invariants: every byte that a kernel reads or writes goes through [`Step::load`], [`Step::store`] or [`Step::update`], which check bounds,
//! alignment, initialisation and order; a fault names the address, the space and the threads.

use crate::{
    fault::{Fault, FaultKind},
    machine::{LANES, SHARED_BASE, Step},
    ptx::Space,
};

/// Generic addresses of the windows (PTX ISA §5.1, "generic addressing"): 32-bit addresses of shared memory follow the first.
pub(crate) const SHARED_WINDOW: u64 = 0x4000_0000_0000;
pub(crate) const LOCAL_WINDOW: u64 = 0x5000_0000_0000;
pub(crate) const PARAMETER_WINDOW: u64 = 0x6000_0000_0000;

/// In the cluster's window, block `rank` begins at `(rank + 1) << CLUSTER_SHIFT`; below that lies the executing block.
const CLUSTER_SHIFT: u32 = 24;

/// How memory is accessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    /// Morally strong (`relaxed`, `acquire`, `release`, `volatile`, atomics): such accesses do not race with each other.
    pub strong: bool,
    /// Through the non-coherent path (`ld.global.nc`).
    pub non_coherent: bool,
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
        if address % align != 0 {
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
                let limit = self.grid.parameters.len() as u64;
                if address.checked_add(bytes).is_none_or(|end| end > limit) {
                    let why = format!("the parameters have {limit} bytes");
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
            if offset.checked_add(bytes).is_some_and(|end| end <= a.size) {
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
        let why = match (nearest_before, all.get(after)) {
            (Some(a), next)
                if next.is_none_or(|n| address - a.base - a.size <= n.base - address) =>
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
        self.load_region(region, into, lane, access)
    }

    /// Reads bytes of a region for a lane.
    #[inline]
    pub(crate) fn load_region(
        &mut self,
        region: Region,
        into: &mut [u8],
        lane: usize,
        access: Access,
    ) -> Result<(), Fault> {
        match region {
            Region::Global { allocation, offset } => {
                self.check_global(allocation, offset, into.len(), lane, access, false)?;
                self.grid.allocations[allocation].load(offset, into);
            }
            Region::Shared { rank, offset } => {
                self.check_shared(rank, offset, into.len(), lane, access, false)?;
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
        self.store_region(region, from, lane, access)
    }

    /// Writes bytes of a region for a lane.
    #[inline]
    pub(crate) fn store_region(
        &mut self,
        region: Region,
        from: &[u8],
        lane: usize,
        access: Access,
    ) -> Result<(), Fault> {
        match region {
            Region::Global { allocation, offset } => {
                self.writable(allocation, lane)?;
                self.check_global(allocation, offset, from.len(), lane, access, true)?;
                self.grid.allocations[allocation].store(offset, from);
            }
            Region::Shared { rank, offset } => {
                self.check_shared(rank, offset, from.len(), lane, access, true)?;
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

    fn writable(&self, allocation: usize, lane: usize) -> Result<(), Fault> {
        if self.grid.allocations[allocation].read_only {
            let message = "constant memory is written, which a kernel cannot";
            return Err(self.fault(FaultKind::ReadOnly, message, 1 << lane));
        }
        Ok(())
    }

    /// Replaces up to 8 aligned bytes by what `change` makes of them, at once; gives the old ones.
    pub(crate) fn update(
        &mut self,
        space: Space,
        address: u64,
        bytes: u32,
        lane: usize,
        mut change: impl FnMut(u64) -> u64,
    ) -> Result<u64, Fault> {
        let region = self.resolve(space, address, u64::from(bytes), u64::from(bytes), lane)?;
        let access = Access {
            strong: true,
            non_coherent: false,
        };
        match region {
            Region::Global { allocation, offset } => {
                self.writable(allocation, lane)?;
                self.check_global(allocation, offset, bytes as usize, lane, access, true)?;
                Ok(self.grid.allocations[allocation].update(offset, bytes, change))
            }
            Region::Shared { .. } => {
                let mut old = [0; 8];
                self.load_region(region, &mut old[..bytes as usize], lane, access)?;
                let old = u64::from_le_bytes(old);
                let new = change(old).to_le_bytes();
                self.store_region(region, &new[..bytes as usize], lane, access)?;
                Ok(old)
            }
            Region::Local { .. } | Region::Parameter { .. } => {
                let message = "an atomic operation works on global and shared memory only";
                Err(self.fault(FaultKind::Operand, message, 1 << lane))
            }
        }
    }

    /// Whether nothing unordered touched those bytes of global memory.
    #[inline]
    fn check_global(
        &mut self,
        _allocation: usize,
        _offset: u64,
        _bytes: usize,
        _lane: usize,
        _access: Access,
        _write: bool,
    ) -> Result<(), Fault> {
        Ok(())
    }

    /// Whether those bytes of shared memory were written before they are read, and nothing unordered touched them.
    #[inline]
    fn check_shared(
        &mut self,
        _rank: u32,
        _offset: u32,
        _bytes: usize,
        _lane: usize,
        _access: Access,
        _write: bool,
    ) -> Result<(), Fault> {
        Ok(())
    }
}
