//! From trees to tile IR: names, types, shapes, compile-time evaluation, instantiation, the race check and the check of channels.
//!
//! One kernel with its compile-time arguments, for one target, is an *instance*. It is made by walking the kernel's body
//! once, as an interpreter would, over values of which some are known (constants, types, functions) and some are names of
//! values in the tile IR that the walk emits. Functions are inlined by walking their bodies; `if const` and `for const`
//! choose and unroll. What is generic is therefore checked where it is used, and every error shows the calls that led to it.
//!
//! Invariants: what is emitted passes the verifier of tile IR; after an error the walk goes on at the next statement, and a
//! value that could not be made is `Value::Error`, of which nothing more is said; no input makes it panic or run
//! without end (steps, depth and unrolling are limited).

pub(crate) mod access;
mod atomics;
mod builtins;
pub(crate) mod call;
mod channels;
mod check;
pub(crate) mod eval;
mod expr;
mod fused;
mod host;
pub(crate) mod instance;
pub(crate) mod modules;
pub(crate) mod op;
mod packed;
mod races;
mod roles;
mod stmt;
mod tile_ops;
mod uniform;
pub(crate) mod value;
mod views;

pub(crate) use channels::check as check_channels;
pub use check::check;
pub use instance::{CParamInfo, KernelInfo, instantiate, kernels};
pub use modules::{Module, Program};
pub use op::{instantiate_op, is_op, ops};
pub(crate) use races::is_unordered;
pub(crate) use roles::check_limits;

/// An error that has already been reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told;

pub(crate) type Eval<T> = Result<T, Told>;
