//! Snippets of PTX for each family of instructions, run on two devices and compared.
//!
//! The emulator takes the meaning of instructions from NVIDIA's document. This crate asks hardware whether that reading is right: a snippet
//! is an instruction or a few with operands drawn at random and from special values, and becomes a kernel that runs on an emulated device and
//! on a real one. Results are compared bit for bit where the ISA fixes the bits, and within its bound elsewhere.
//!
//! - `kind`: formats of numbers, values drawn for them, and how results compare. `snippet`: what a snippet is, and its kernel.
//! - `families`: the snippets, a file a family; simple ones with a reference of their own, so that they are checked with no GPU too.
//! - `device`: snippets as kernel sets in memory. `report`: what was found. `recorded`: results of hardware, kept in a file.
//! - `assemble`: whether `ptxas` takes every snippet.

pub mod assemble;
pub mod device;
pub mod exact;
pub mod families;
pub mod kind;
mod map;
pub mod recorded;
pub mod report;
pub mod snippet;
