//! Channels: what fills the slots of shared memory, and what reads them.

mod bulk;
mod columns;
mod cp_async;
mod shared;
mod through_registers;
mod widen;
