//! What runs an instance: the interpreter, or a GPU with kernels from a set.

mod cuda;
mod interp;
mod library;

use std::env;

use tesserine::{Device, KernelSet};

pub use cuda::Cuda;
pub use interp::Interpreter;

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

/// Where a GPU's kernels come from.
pub enum Kernels {
    /// A set that was built before; what is not in it is skipped.
    Set(KernelSet),
}

impl Kernels {
    /// A set that has `instance`.
    fn with(&mut self, _source: &str, instance: &str) -> Result<KernelSet, Refusal> {
        match self {
            Kernels::Set(set) => match set.kernel(instance) {
                Ok(_) => Ok(set.clone()),
                Err(_) => Err(Refusal::Skipped("not in the kernel set".to_owned())),
            },
        }
    }
}

/// What the environment asks for.
pub enum Choice {
    /// `$TESS_DEVICE` is `interp` or not set.
    Interpreter,
    /// `$TESS_DEVICE` names a GPU; with `$TESS_SET`, if given.
    Gpu { device: String, set: Option<String> },
}

/// Reads `$TESS_DEVICE` and `$TESS_SET`.
pub fn choice_from_env() -> Result<Choice, String> {
    let read = |name: &str| match env::var(name) {
        Ok(value) => Ok(Some(value).filter(|v| !v.is_empty())),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => Err(format!("`${name}` is not UTF-8")),
    };
    match read("TESS_DEVICE")? {
        None => Ok(Choice::Interpreter),
        Some(device) if device == "interp" => Ok(Choice::Interpreter),
        Some(device) => Ok(Choice::Gpu {
            device,
            set: read("TESS_SET")?,
        }),
    }
}

impl Choice {
    /// Whether it is hardware.
    pub fn is_device(&self) -> bool {
        matches!(self, Choice::Gpu { .. })
    }

    /// Opens the device.
    pub fn open(&self) -> Result<Box<dyn Backend>, String> {
        match self {
            Choice::Interpreter => Ok(Box::new(Interpreter::new()?)),
            Choice::Gpu { device, set } => {
                let device = Device::named(device).map_err(|e| e.to_string())?;
                let path = set
                    .as_ref()
                    .ok_or("nothing can be compiled here: name a kernel set in `$TESS_SET`")?;
                let set = KernelSet::open(path).map_err(|e| e.to_string())?;
                Ok(Box::new(Cuda::new(device, Kernels::Set(set))?))
            }
        }
    }
}
