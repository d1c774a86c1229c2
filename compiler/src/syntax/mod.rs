//! Text to trees.

pub mod ast;
