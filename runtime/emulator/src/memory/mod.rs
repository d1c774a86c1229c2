//! The state spaces (PTX ISA §5.1).

mod global;

pub use global::{Memory, MemoryError};
