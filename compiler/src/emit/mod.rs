//! What becomes of a compiled kernel: machine code through `ptxas`, and files.
//!
//! Invariants: what is written depends on the sources, the targets and the version of `ptxas` alone, not on time, folder or order
//! of completion; a kernel that spills or that `ptxas` serialises is not passed over in silence.

pub mod ptxas;
