//! Who accessed each byte of memory, and which accesses are ordered: the data structures of race detection, by vector clocks.
//!
//! - `order`: what is known to have happened: [`Epoch`], [`View`], [`Token`]. `clocks`: [`Clocks`], the threads of one block, and how
//!   barriers, fences and asynchronous operations order them. `shadow`: [`SharedShadow`], the accesses to each byte of a block's shared
//!   memory. `global`: [`GlobalShadow`], the same for global memory, which blocks on several host threads access. `sync`: [`SyncTable`],
//!   what was released at each address of synchronizing loads, stores and atomics.
//!
//! The rules are those of PTX ISA §8 (Memory Consistency Model): two accesses of a byte, one of them a write, race unless causality
//! orders them, or both are strong. An access of the async proxy to what the generic proxy wrote wants a proxy fence between as well.
//!
//! Invariants: what it calls a race is one (where it cannot remember everything, it forgets accesses, never orderings); a shared byte's
//! accesses are remembered exactly; the same sequence of calls gives the same answers.

mod clocks;
mod global;
mod order;
mod shadow;
mod sync;
#[cfg(test)]
mod tests;

#[cfg(test)]
use clocks::cluster_barrier;
pub(crate) use clocks::{Agent, Clocks};
pub(crate) use global::GlobalShadow;
#[cfg(test)]
use order::View;
pub(crate) use order::{Epoch, Proxy, Token};
pub(crate) use shadow::{Access, Conflict, ConflictKind, SharedShadow};
pub(crate) use sync::{Entry, SyncTable};
