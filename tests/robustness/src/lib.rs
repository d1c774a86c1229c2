//! Broken programs against everything that reads text.
//!
//! A [`Target`] takes any bytes and returns, whatever they are: a panic, a hang or an exhausted memory is a bug, and so is what
//! its asserts refuse. The fuzzers of `tests/fuzz`, the tests here and the binary `mutate` share them; [`Mutator`] makes
//! inputs that are almost programs out of the [`Corpus`].

mod corpus;
mod mutator;
mod targets;

pub use corpus::Corpus;
pub use mutator::Mutator;
pub use targets::Target;
