//! The accesses to global memory in one launch.
//!
//! Blocks on several host threads access it at once. Pages are made when they are first touched, and each has a lock: of two accesses that
//! race, the later one to take the lock sees the other, whichever that is.
//!
//! Invariants: as those of `shadow` with a limit: of each byte only so many accesses since the last weak write are remembered, those of
//! different blocks rather than those of one. Per byte of a touched page that takes 8 bytes, more where parts of words are accessed.

use std::sync::{Mutex, OnceLock, PoisonError};

use super::{
    order::View,
    shadow::{Access, Conflict, Shadow},
};

/// Bytes of a page.
const PAGE: u64 = 2048;
/// Accesses of a byte that are remembered, besides two.
const LIMIT: usize = 4;

#[derive(Debug)]
struct Range {
    start: u64,
    bytes: u64,
    pages: Vec<OnceLock<Box<Mutex<Shadow>>>>,
}

/// The accesses to all allocations in one launch.
#[derive(Debug)]
pub(crate) struct GlobalShadow {
    /// Ascending, and disjoint.
    ranges: Vec<Range>,
}

impl GlobalShadow {
    /// Of allocations: their addresses (multiples of 4) and bytes.
    pub(crate) fn new(allocations: impl IntoIterator<Item = (u64, u64)>) -> GlobalShadow {
        let of = |(start, bytes): (u64, u64)| Range {
            start,
            bytes,
            pages: std::iter::repeat_with(OnceLock::new)
                .take(bytes.div_ceil(PAGE) as usize)
                .collect(),
        };
        let mut ranges: Vec<Range> = allocations.into_iter().map(of).collect();
        ranges.sort_by_key(|r| r.start);
        GlobalShadow { ranges }
    }

    /// Checks an access by a thread or agent with that view, at the instruction number `place` (below 2^28), and records it. What lies
    /// outside the allocations is left out.
    pub(crate) fn access(
        &self,
        address: u64,
        bytes: u64,
        view: &View<'_>,
        access: Access,
        place: u32,
    ) -> Result<(), Conflict> {
        let next = self.ranges.partition_point(|r| r.start <= address);
        let Some(range) = next.checked_sub(1).map(|at| &self.ranges[at]) else {
            return Ok(());
        };
        let mut from = address - range.start;
        let end = from.saturating_add(bytes).min(range.bytes);
        while from < end {
            let page = from / PAGE;
            let to = (page * PAGE + PAGE).min(end);
            let lock = range.pages[page as usize]
                .get_or_init(|| Box::new(Mutex::new(Shadow::new(PAGE as usize, LIMIT, true))));
            let mut shadow = lock.lock().unwrap_or_else(PoisonError::into_inner);
            let at = (from - page * PAGE) as usize;
            let done = shadow.access(at, (to - from) as usize, view, access, place);
            done.map_err(|conflict| Conflict {
                byte: range.start + page * PAGE + conflict.byte,
                ..conflict
            })?;
            from = to;
        }
        Ok(())
    }
}
