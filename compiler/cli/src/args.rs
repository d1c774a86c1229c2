//! The command line, as clap reads it.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

/// Compiles Tess, a tile language for GPU kernels: check, build, look into, run.
#[derive(Debug, Parser)]
#[command(
    name = "tess",
    version,
    about,
    disable_help_subcommand = true,
    arg_required_else_help = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Report every diagnostic of source files; exit 1 if any is an error
    Check(Check),
    /// Write source files in their one form
    Fmt(Fmt),
    /// Compile a kernel set into one file
    Build(Build),
    /// Print one stage of one kernel's compilation
    Emit(Emit),
    /// Run a kernel on data and report what it wrote
    Run(Run),
    /// Run the tests of source files; exit 1 if any fails
    Test(Test),
    /// Show versions, LLVM, ptxas, driver, devices, folders and kernel sets
    ShowConfig(ShowConfig),
    /// List the kernels of kernel sets
    ListModules(ListModules),
    /// Explain an error code
    Explain(Explain),
}

#[derive(Debug, Args)]
pub struct Check {
    /// Source files
    #[arg(required = true, value_name = "FILES")]
    pub files: Vec<PathBuf>,
    /// Print the diagnostics as JSON on stdout
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Fmt {
    /// Source files, folders of them, or `-` for stdin to stdout
    #[arg(required = true, value_name = "PATHS")]
    pub paths: Vec<PathBuf>,
    /// Write nothing; list what is not formatted, and exit 1 if anything is
    #[arg(long)]
    pub check: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Artifact {
    Ptx,
    Cubin,
}

#[derive(Debug, Args)]
pub struct Build {
    /// The set's list of kernels
    #[arg(value_name = "SET.toml", default_value = "kernels-dsl/default.toml")]
    pub set: PathBuf,
    /// A set of all that the tests of these files and folders launch, instead of a list
    #[arg(long, value_name = "PATHS", num_args = 1.., conflicts_with = "set")]
    pub tests: Vec<PathBuf>,
    /// Targets instead of those that the set names: `sm_90a,sm_80` or `all`
    #[arg(long, value_name = "TARGETS")]
    pub target: Option<String>,
    /// What to put into the set; without it PTX, and cubins where `ptxas` is found
    #[arg(long, value_enum, value_delimiter = ',', value_name = "KINDS")]
    pub emit: Vec<Artifact>,
    /// The file to write [default: target/sets/NAME.tset]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// A folder that also gets each KERNEL.TARGET.ptx, and .cubin
    #[arg(long, value_name = "DIR")]
    pub out_dir: Option<PathBuf>,
    /// Print the table as JSON on stdout
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stage {
    /// The syntax tree of the file
    Ast,
    /// The kernel in tile IR
    Ir,
    /// The kernel as source that stands alone: who does what, where it has roles
    Roles,
    /// What the passes make of it first: role IR
    RoleIr,
    /// Role IR with layouts, buffers and barriers
    Layout,
    /// LLVM IR
    Llvm,
    Ptx,
    /// Machine code, through ptxas and nvdisasm
    Sass,
}

#[derive(Debug, Args)]
pub struct Emit {
    /// Source file
    pub file: PathBuf,
    /// The kernel and its compile-time arguments: `rmsnorm<bf16>`
    #[arg(value_name = "KERNEL<ARGS>")]
    pub kernel: String,
    /// The target to compile for
    #[arg(long, default_value = "sm_90a")]
    pub target: String,
    /// The stage to print [default: ptx]
    #[arg(long, value_enum)]
    pub stage: Option<Stage>,
    /// The general body instead of the one under all facts
    #[arg(long)]
    pub general: bool,
    /// Print what this pass left (may be given several times); the stage only if it is named too
    #[arg(long, value_name = "PASS", action = ArgAction::Append)]
    pub dump_after: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Run {
    /// Source file
    pub file: PathBuf,
    /// The kernel and its compile-time arguments: `rmsnorm<bf16>`
    #[arg(value_name = "KERNEL<ARGS>")]
    pub kernel: String,
    /// NAME=VALUE: a number, `randn|uniform|zeros|arange:DTYPE[DIMS]` with `@SEED` if wanted, or `@file.npy`
    #[arg(long = "arg", value_name = "NAME=VALUE", action = ArgAction::Append)]
    pub args: Vec<String>,
    /// NAME=DTYPE[DIMS]: a tensor that the kernel writes
    #[arg(long = "out", value_name = "NAME=DTYPE[DIMS]", action = ArgAction::Append)]
    pub outs: Vec<String>,
    /// `interp`, `cuda`, `cuda:1`, or `emulator:TARGET`, which executes the PTX on the CPU
    #[arg(long, default_value = "interp")]
    pub device: String,
    /// Whose code runs; a GPU takes the PTX of older targets too
    #[arg(long)]
    pub target: Option<String>,
    /// Take the kernel from this kernel set; nothing is compiled
    #[arg(long, value_name = "FILE")]
    pub set: Option<PathBuf>,
    /// Also run the interpreter, print the largest errors, and exit 1 beyond the tolerance
    #[arg(long)]
    pub check: bool,
    /// Tolerance of --check: |difference| ≤ ABS + REL·|expected|
    #[arg(long, value_name = "ABS,REL", requires = "check")]
    pub tol: Option<String>,
    /// Write what the kernel wrote as DIR/NAME.npy
    #[arg(long, value_name = "DIR")]
    pub save: Option<PathBuf>,
    /// Print the report as JSON on stdout
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Test {
    /// Source files, and folders whose `.tess` files are taken [default: the current folder]
    #[arg(value_name = "PATHS")]
    pub paths: Vec<PathBuf>,
    /// `interp`; or `cuda`, `cuda:1`, `emulator:TARGET`, where each launch is also compared with the interpreter; or `all`, the
    /// emulators of every target in turn
    #[arg(long, default_value = "interp")]
    pub device: String,
    /// Another device that each launch runs on too; what both wrote is compared bit for bit
    #[arg(long, value_name = "DEVICE")]
    pub against: Option<String>,
    /// Whose code runs [default: sm_90a on the interpreter, else the newest that the device runs]
    #[arg(long)]
    pub target: Option<String>,
    /// Only tests whose name (FILE::TEST) contains this
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
    /// Take the kernels from this set, made by `tess build --tests`; nothing is compiled
    #[arg(long, value_name = "FILE")]
    pub set: Option<PathBuf>,
    /// How many tests run at once [default: one a core]
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
}

#[derive(Debug, Args)]
pub struct ShowConfig {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ListModules {
    /// A kernel set; without it all that are found
    #[arg(value_name = "SET")]
    pub set: Option<PathBuf>,
    /// Every body: facts, grid, threads, registers, spills, shared memory
    #[arg(long)]
    pub detailed: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Explain {
    /// The code, as `E0102`; without it a list of all
    pub code: Option<String>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
