//! Each detector, with a kernel that is wrong in just that way: the fault must name the threads, the line of the PTX and of the source, and
//! the other party; and the same kernel with the one line mended must run clean, whichever warp comes first.

mod engines;
mod kernel;
mod liveness;
mod order;
mod participation;
mod patterns;
mod spaces;
