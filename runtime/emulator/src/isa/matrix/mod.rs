//! Matrices in warps: `ldmatrix`, `stmatrix`, `movmatrix` (PTX ISA §9.7.14.5), `mma.sync` (§9.7.14) and `wgmma` (§9.7.15).
//!
//! `op` decodes and executes, `group` does so for `wgmma`. What they call are pure functions on the registers of warps, register-major:
//! register `r` of lane `l` is `registers[r][l]`. `element` knows the element types, `mma` the fragments of a warp and their product, `rows`
//! the moves between fragments and rows of shared memory, `wgmma` the fragments of a warp group and the descriptors of operands in shared
//! memory.
//!
//! Floating-point sums: the ISA fixes neither the order of the additions nor the precision in between. Here products are exact, sums are
//! made in `f64` in the order of k, starting from the accumulator, and rounded once to the accumulator's type, to nearest even.
//!
//! Not implemented, and refused when a module is loaded: `mma.sp` and `wgmma.mma_async.sp` (sparse), `mma` with `.block_scale`
//! (`.kind::mxf8f6f4`, `.kind::mxf4`, `.kind::mxf4nvf4`), `.kind::f8f6f4` with elements below 8 bits, `mma.m8n8k4` of `.f16`, the 8-bit
//! forms of `ldmatrix` and `stmatrix`, `wmma`, and `tcgen05`.

mod element;
pub(crate) mod group;
mod mma;
mod op;
mod rows;
mod wgmma;

pub(crate) use op::{Op, decode};

#[cfg(test)]
mod tests;
