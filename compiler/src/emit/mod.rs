//! What becomes of a compiled kernel: text of each stage, machine code through `ptxas`, kernel sets.
//!
//! Invariants: what is written depends on the sources, the targets and the version of `ptxas` alone, not on time, folder or order
//! of completion; a kernel that spills or that `ptxas` serialises is not passed over in silence.

pub mod ptxas;
pub mod set;
pub mod source;
pub mod stage;
