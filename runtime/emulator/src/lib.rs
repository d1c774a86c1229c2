//! Executes PTX on the CPU: a GPU of any target for machines that have none, and one that says what is wrong with a kernel.
//!
//! A [`Module`] is PTX text, parsed and decoded; [`Module::launch`] runs a grid of one of its entries on a [`Memory`], and gives the
//! first [`Fault`] that it finds. What instructions mean is taken from NVIDIA's PTX ISA document, whose sections the families of
//! instructions in `isa` name, and from nothing else: neither tile IR nor the interpreter of the language is known here.
//!
//! - `ptx`: text to syntax. `isa`: syntax to decoded instructions, one file a family, each with what they do to a warp.
//! - `machine`: registers, warps with a program counter a thread, blocks, clusters, and the order in which they run.
//! - `memory`: the state spaces. `check`: who wrote and read each byte, and which accesses are ordered (vector clocks).
//! - `numeric`: the number formats, and rounding, bit by bit. `tensor_map`: the descriptors of bulk tensor copies.
//!
//! Invariants: no text, argument or kernel makes it panic or run for ever; an instruction that it does not know is refused when the module
//! is loaded, never guessed; the same launch gives the same bits each time, but for kernels whose result hangs on the order of blocks.

mod check;
mod fault;
mod isa;
mod launch;
mod machine;
mod memory;
mod numeric;
pub mod ptx;
pub mod target;
pub mod tensor_map;

pub use fault::{Fault, FaultKind, Place, Thread};
pub use launch::{Entry, Launch, LoadError, Module, Options, Report};
pub use memory::{Memory, MemoryError};
