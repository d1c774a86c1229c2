//! What synchronisation orders: where accesses of threads meet the clocks of `check`.

use super::{Block, Cluster, LANES, Step, lanes_of};
use crate::{
    fault::{Fault, Thread},
    isa::memory::Order,
    ptx::Space,
};

impl Step<'_> {
    /// Instructions that the warp has executed.
    pub(crate) fn clock(&self) -> u64 {
        self.cluster.blocks[self.rank as usize].warps[self.warp as usize].instructions + self.ticks
    }

    /// An acquiring load happened.
    pub(crate) fn after_load(
        &mut self,
        _space: Space,
        _addresses: &[u64; LANES],
        _order: Order,
    ) -> Result<(), Fault> {
        Ok(())
    }

    /// A releasing store is about to happen.
    pub(crate) fn before_store(
        &mut self,
        _space: Space,
        _addresses: &[u64; LANES],
        _order: Order,
    ) -> Result<(), Fault> {
        Ok(())
    }

    /// `bar.warp.sync` of the lanes that execute.
    pub(crate) fn warp_sync(&mut self) {}

    pub(crate) fn cluster_arrive(&mut self, _release: bool) {}

    pub(crate) fn cluster_wait(&mut self, _acquire: bool) {}

    pub(crate) fn fence(&mut self) {}

    pub(crate) fn proxy_fence(&mut self) {}
}

impl Cluster {
    /// A named barrier completed: all that arrived comes before all that goes on.
    pub(crate) fn order_barrier(
        &mut self,
        _rank: u32,
        _waiting: &[(u32, u32)],
        _passed: &[(u32, u32)],
    ) {
    }

    pub(crate) fn order_cluster_barrier(&mut self) {}

    pub(crate) fn describe_mbarrier(&self, rank: u32, address: u32) -> String {
        format!("waits for a phase of the mbarrier at {address:#x} of block {rank} of the cluster")
    }
}

impl Block {
    /// The threads of lanes of warps.
    pub(crate) fn threads(&self, lanes: &[(u32, u32)]) -> Vec<Thread> {
        let of = |(warp, lanes): &(u32, u32)| {
            let warp = *warp;
            let thread = move |lane| Thread {
                block: self.index,
                thread: warp * LANES as u32 + lane as u32,
            };
            lanes_of(*lanes).map(thread).collect::<Vec<_>>()
        };
        let mut threads: Vec<Thread> = lanes.iter().flat_map(of).collect();
        threads.sort_unstable();
        threads
    }
}
