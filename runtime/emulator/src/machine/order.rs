//! What synchronisation orders: where accesses of threads meet the clocks of `check`.

use super::{Block, Cluster, LANES, SHARED_BASE, Step, lanes_of};
use crate::{check::Token, fault::Thread};

impl Step<'_> {
    /// Instructions that the warp has executed.
    pub(crate) fn clock(&self) -> u64 {
        self.cluster.blocks[self.rank as usize].warps[self.warp as usize].instructions + self.ticks
    }

    /// `bar.warp.sync` of the lanes that execute.
    pub(crate) fn warp_sync(&mut self) {
        if self.grid.options.check_races {
            self.cluster.clocks[self.rank as usize].warp_sync(self.warp, self.lanes);
        }
    }

    /// Lanes arrive at a named barrier and go on.
    pub(crate) fn barrier_arrive(&mut self, id: u32) {
        if self.grid.options.check_races {
            let token = &mut self.cluster.blocks[self.rank as usize].barriers[id as usize].token;
            self.cluster.clocks[self.rank as usize].release_into(self.warp, self.lanes, token);
        }
    }

    /// Lanes arrive at the cluster's barrier; without a release, what their last fence released goes along.
    pub(crate) fn cluster_arrive(&mut self, release: bool) {
        if !self.grid.options.check_races {
            return;
        }
        let token = &mut self.cluster.arriving;
        let clocks = &mut self.cluster.clocks[self.rank as usize];
        if release {
            clocks.release_into(self.warp, self.lanes, token);
            return;
        }
        for lane in lanes_of(self.lanes) {
            if let Some(fenced) = clocks.fence_token(self.warp * LANES as u32 + lane as u32) {
                token.merge(fenced);
            }
        }
    }

    /// Lanes go on after the cluster's barrier.
    pub(crate) fn cluster_wait(&mut self, acquire: bool) {
        if acquire && self.grid.options.check_races {
            let token = &self.cluster.arrived_before;
            self.cluster.clocks[self.rank as usize].acquire_lanes(self.warp, self.lanes, token);
        }
    }

    /// `fence`, `membar`; `near` in the scope of the block.
    pub(crate) fn fence(&mut self, near: bool) {
        if self.grid.options.check_races {
            let clocks = &mut self.cluster.clocks[self.rank as usize];
            match near {
                true => clocks.fence_near(self.warp, self.lanes),
                false => clocks.fence(self.warp, self.lanes),
            }
        }
    }

    /// `fence.proxy.async`.
    pub(crate) fn proxy_fence(&mut self) {
        if self.grid.options.check_races {
            self.cluster.clocks[self.rank as usize].proxy_fence(self.warp, self.lanes);
        }
    }
}

impl Cluster {
    /// A named barrier completed: all that was done before an arrival comes before all that is done after a wait. `token` is of those who went on
    /// after their arrival; those who wait have done nothing since theirs.
    pub(crate) fn order_barrier(&mut self, rank: u32, mut token: Token, waiting: &[(u32, u32)]) {
        if !self.check_races {
            return;
        }
        let clocks = &mut self.clocks[rank as usize];
        if token.is_empty() {
            let mut masks = vec![0; self.blocks[rank as usize].warps.len()];
            for (warp, lanes) in waiting {
                masks[*warp as usize] |= lanes;
            }
            clocks.barrier(&masks);
            return;
        }
        for (warp, lanes) in waiting {
            clocks.release_into(*warp, *lanes, &mut token);
        }
        token.seal();
        for (warp, lanes) in waiting {
            clocks.acquire_lanes(*warp, *lanes, &token);
        }
    }

    /// The cluster's barrier completed.
    pub(crate) fn order_cluster_barrier(&mut self) {
        self.arrived_before = std::mem::take(&mut self.arriving);
        self.arrived_before.seal();
    }

    pub(crate) fn describe_mbarrier(&self, rank: u32, address: u32) -> String {
        let table = &self.blocks[rank as usize].mbarriers;
        match table.describe(address - SHARED_BASE) {
            Some(what) => format!("waits for {what}"),
            None => format!("waits for an mbarrier at {address:#x} that is no more"),
        }
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
