//! The race check.

use crate::{diagnostics::Diagnostic, ir::tile};

/// Every store and load of a stored view that is not proven apart from those of other blocks.
pub(crate) fn check(kernel: &tile::Kernel) -> Vec<Diagnostic> {
    let _ = kernel;
    Vec::new()
}
