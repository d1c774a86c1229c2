//! Modules as programs load them, and launches of their entries.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::{
    Fault, FaultKind, Memory,
    check::{GlobalShadow, SyncTable},
    isa::program::Program,
    machine::{self, Grid},
    ptx::{self, Space},
    target::Target,
};

/// PTX that was parsed and decoded. Clones are the same module.
#[derive(Clone, Debug)]
pub struct Module {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Tells modules apart.
    number: u64,
    syntax: ptx::Module,
    programs: Vec<Program>,
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
    /// Look for races, missing fences, and reads of shared memory that nothing wrote.
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
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let syntax = ptx::parse(text)?;
        if !device.runs(&syntax.target) {
            return Err(LoadError::Unfit {
                code: syntax.target.to_string(),
                device: device.to_string(),
            });
        }
        let entries = syntax.functions.iter().filter(|f| f.entry);
        let programs = entries
            .map(|function| Program::decode(&syntax, function, device))
            .collect::<Result<_, _>>()?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Ok(Module {
            inner: Arc::new(Inner {
                number,
                syntax,
                programs,
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
        let wrong = |message: String| Fault {
            kind: FaultKind::Operand,
            message,
            threads: Vec::new(),
            place: None,
            notes: Vec::new(),
        };
        let program = self.inner.programs.iter().find(|p| p.name == launch.entry);
        let program =
            program.ok_or_else(|| wrong(format!("the module has no entry `{}`", launch.entry)))?;
        let target = self.inner.target;
        let shared_bytes = check(program, target, launch).map_err(wrong)?;
        let mut parameters = vec![0; program.parameter_bytes as usize];
        for ((offset, size), argument) in program.parameters.iter().zip(launch.arguments) {
            parameters[*offset as usize..][..*size as usize].copy_from_slice(argument);
        }
        let of_module = self.inner.syntax.variables.iter();
        let globals = of_module.filter(|v| matches!(v.space, Space::Global | Space::Constant));
        let make: Vec<_> = globals
            .map(|v| (v.size, v.initial.as_deref(), v.space == Space::Constant))
            .collect();
        let variables = memory
            .variables(self.inner.number, &make)
            .map_err(|e| wrong(e.0))?;
        let allocations = memory.allocations();
        let ranges = allocations.iter().map(|a| (a.base, a.size));
        let shadow = options.check_races.then(|| GlobalShadow::new(ranges));
        let grid = Grid {
            program,
            grid: launch.grid,
            block: launch.block,
            cluster: launch.cluster,
            shared_bytes,
            dynamic_shared_bytes: launch.shared_bytes,
            parameters,
            variables,
            allocations,
            options: *options,
            shadow,
            sync: SyncTable::new(),
            steps: AtomicU64::new(0),
            thread_steps: AtomicU64::new(0),
        };
        if launch.grid.contains(&0) {
            return Ok(Report::default());
        }
        machine::run(&grid)
    }
}

/// Whether the target can run such a launch; gives the shared memory of a block, in bytes.
fn check(program: &Program, target: Target, launch: &Launch<'_>) -> Result<u32, String> {
    let product = |extents: [u32; 3]| {
        extents
            .iter()
            .fold(1, |n: u64, d| n.saturating_mul(u64::from(*d)))
    };
    let threads = product(launch.block);
    if threads == 0 || threads > 1024 {
        return Err(format!("a block of {threads} threads: it has 1 to 1024"));
    }
    if let Some(required) = program.required_block
        && required != launch.block
    {
        return Err(format!(
            "a block of {:?} threads: the kernel needs {required:?}",
            launch.block
        ));
    }
    if let Some([x, y, z]) = program.largest_block
        && threads > product([x, y, z])
    {
        return Err(format!(
            "a block of {threads} threads: the kernel takes at most {}",
            product([x, y, z])
        ));
    }
    let blocks = product(launch.cluster);
    // Twice as many as portable ones may be asked for on request.
    if blocks == 0
        || blocks > u64::from(target.cluster_limit) * 2
        || (blocks > 1 && target.cluster_limit == 1)
    {
        return Err(format!(
            "a cluster of {blocks} blocks: {target} has at most {}",
            target.cluster_limit
        ));
    }
    if let Some(required) = program.required_cluster
        && required != launch.cluster
    {
        return Err(format!(
            "a cluster of {:?}: the kernel needs {required:?}",
            launch.cluster
        ));
    }
    for axis in 0..3 {
        if !launch.grid[axis].is_multiple_of(launch.cluster[axis]) {
            return Err(format!(
                "a grid of {:?} blocks is not made of clusters of {:?}",
                launch.grid, launch.cluster
            ));
        }
    }
    if launch.grid[1] > 65535 || launch.grid[2] > 65535 || launch.grid[0] > i32::MAX as u32 {
        return Err(format!("a grid of {:?} blocks is too large", launch.grid));
    }
    let shared = u64::from(program.shared_bytes) + u64::from(launch.shared_bytes);
    if shared > u64::from(target.shared_limit) {
        return Err(format!(
            "a block with {shared} bytes of shared memory: {target} has {}",
            target.shared_limit
        ));
    }
    if launch.arguments.len() != program.parameters.len() {
        return Err(format!(
            "{} arguments: the kernel takes {}",
            launch.arguments.len(),
            program.parameters.len()
        ));
    }
    for (i, (argument, (_, size))) in launch.arguments.iter().zip(&program.parameters).enumerate() {
        if argument.len() as u64 != *size {
            return Err(format!(
                "argument {i} has {} bytes: the kernel takes {size}",
                argument.len()
            ));
        }
    }
    Ok(shared as u32)
}
