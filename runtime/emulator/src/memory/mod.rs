//! The state spaces (PTX ISA §5.1): global memory, and accesses of threads to all of them.

mod access;
mod agent;
mod global;

pub(crate) use access::{
    Access, LOCAL_WINDOW, Order, PARAMETER_WINDOW, Region, SHARED_WINDOW, cluster_address,
    space_at, split_cluster_address,
};
pub(crate) use global::Allocation;
pub use global::{Memory, MemoryError};
