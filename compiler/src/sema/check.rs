//! Everything that is wrong with a module.

use super::modules::{Module, Program};
use crate::diagnostics::Diagnostics;

/// Checks every item of `module`.
pub fn check(program: &Program, module: Module) -> Diagnostics {
    let _ = (program, module);
    Diagnostics::default()
}
