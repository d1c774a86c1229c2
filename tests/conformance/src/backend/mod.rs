//! What runs an instance.

use crate::Arg;

/// A device that cases run on.
pub trait Backend {
    /// What to call it.
    fn name(&self) -> String;

    /// Runs `instance` of `source` (a path relative to `kernels-dsl`) once on `args`, which are in the order of the
    /// kernel's parameters, and leaves in them what memory then holds.
    fn run(
        &mut self,
        source: &str,
        instance: &str,
        args: &mut [(&'static str, Arg)],
    ) -> Result<(), Refusal>;
}

/// Why an instance did not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// This backend cannot run it, and need not.
    #[error("{0}")]
    Skipped(String),
    #[error("{0}")]
    Failed(String),
}
