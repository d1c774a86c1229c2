//! The Tess compiler.

#[cfg(feature = "llvm")]
pub mod codegen;
pub mod diagnostics;
pub mod emit;
pub mod interp;
pub mod ir;
pub mod layout;
pub mod passes;
pub mod span;
pub mod syntax;
pub mod target;
