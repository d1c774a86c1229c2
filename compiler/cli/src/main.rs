//! `tess`: the command-line tool.
//!
//! Exit codes: 0 success, 1 the command failed (an error in a source file, a wrong result), 2 the command line is wrong.
//! Results go to stdout, everything else to stderr.

mod args;
mod arguments;
mod build;
mod check;
mod compare;
mod config;
mod emit;
mod explain;
mod failure;
mod fmt;
mod gpu;
mod list_modules;
mod npy;
mod philox;
mod place;
mod run;
mod source;
mod tensor;
mod terminal;
mod test;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come this way too. A closed pipe is no failure.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let result = match &cli.command {
        Command::Check(args) => check::run(args),
        Command::Fmt(args) => fmt::run(args),
        Command::Build(args) => build::run(args),
        Command::Emit(args) => emit::run(args),
        Command::Run(args) => run::run(args),
        Command::Test(args) => test::run(args),
        Command::ShowConfig(args) => config::run(args),
        Command::ListModules(args) => list_modules::run(args),
        Command::Explain(args) => explain::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => ExitCode::from(failure.finish()),
    }
}
