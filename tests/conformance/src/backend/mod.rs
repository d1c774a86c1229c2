//! What runs an instance: the interpreter, or a GPU with kernels from a set.

mod cuda;
mod interp;
mod library;

#[cfg(feature = "llvm")]
mod source;

use std::env;

use tesserine::{Device, KernelSet};

pub use cuda::Cuda;
pub use interp::Interpreter;
#[cfg(feature = "llvm")]
pub use source::Source;

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
    /// The library's source, compiled as cases ask for it.
    #[cfg(feature = "llvm")]
    Source(Source),
}

impl Kernels {
    /// A set that has `instance`.
    fn with(
        &mut self,
        #[cfg_attr(not(feature = "llvm"), expect(unused_variables))] source: &str,
        instance: &str,
    ) -> Result<KernelSet, Refusal> {
        match self {
            Kernels::Set(set) => match set.kernel(instance) {
                Ok(_) => Ok(set.clone()),
                Err(_) => Err(Refusal::Skipped("not in the kernel set".to_owned())),
            },
            #[cfg(feature = "llvm")]
            Kernels::Source(compiler) => compiler.compile(source, instance),
        }
    }
}

/// What the environment asks for.
pub enum Choice {
    /// `$TESS_DEVICE` is `interp` or not set.
    Interpreter,
    /// `$TESS_DEVICE` names a GPU, or the emulator of a target; with `$TESS_SET`, if given.
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
    /// Whether it is hardware, which is fast.
    pub fn is_device(&self) -> bool {
        matches!(self, Choice::Gpu { device, .. } if !device.starts_with("emulator"))
    }

    /// Opens the device.
    pub fn open(&self) -> Result<Box<dyn Backend>, String> {
        match self {
            Choice::Interpreter => Ok(Box::new(Interpreter::new()?)),
            Choice::Gpu { device, set } => {
                let device = Device::named(device).map_err(|e| e.to_string())?;
                let kernels = match set {
                    Some(path) => Kernels::Set(KernelSet::open(path).map_err(|e| e.to_string())?),
                    None => from_source(&device)?,
                };
                Ok(Box::new(Cuda::new(device, kernels)?))
            }
        }
    }
}

#[cfg(feature = "llvm")]
fn from_source(device: &Device) -> Result<Kernels, String> {
    Source::new(device).map(Kernels::Source)
}

#[cfg(not(feature = "llvm"))]
fn from_source(_: &Device) -> Result<Kernels, String> {
    Err("nothing can be compiled here: name a kernel set in `$TESS_SET`".to_owned())
}
