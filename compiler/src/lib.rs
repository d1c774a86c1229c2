//! The Tess compiler.

pub mod diagnostics;
pub mod span;
pub mod syntax;
