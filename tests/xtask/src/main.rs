//! `cargo xtask`: what CI runs, and the project's other chores, in plain cargo and nothing to install.
//!
//! Invariants: every step prints what it runs; the first failure ends the run with exit code 1 and names the step; nothing is
//! written outside `target/`, `gpu-bundle/` and (for `bless`) the snapshots.

mod bundle;
mod ci;
mod setup;
mod steps;
mod wheel;

use std::{path::PathBuf, process::ExitCode};

use steps::{Failure, Runner};

const HELP: &str = "\
cargo xtask COMMAND

  build        set up the tools, build `tess` (release) and compile the default kernel set for every target
  ci           everything that CI runs: formatting, lints, tests with and without LLVM, the Python wheel, the default set through two versions of ptxas;
               `ci PART` begins at lints, tests, wheel, no-llvm, sets or bundle
  setup        install ptxas (from PyPI) under target/tools
  gpu-bundle   pack gpu-bundle/: tess, the default set, conformance and bench, to test a GPU machine that has neither Rust nor LLVM
  wheel        build the Python package into target/wheels and run its tests on the installed wheel
  bless        rewrite the snapshots under tests/snapshots
";

fn main() -> ExitCode {
    let command = std::env::args().nth(1).unwrap_or_default();
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("xtask lies two folders below the root")
        .to_path_buf();
    let mut runner = Runner::new(root);
    let result = match command.as_str() {
        "ci" => ci::run(&mut runner, std::env::args().nth(2).as_deref()),
        "build" => build(&mut runner),
        "setup" => setup::install(&mut runner, setup::WANTED),
        "gpu-bundle" => bundle::pack(&mut runner, None).map(|_| ()),
        "wheel" => wheel::build_and_test(&mut runner, wheel::Profile::Release),
        "bless" => bless(&mut runner),
        "" | "help" | "-h" | "--help" => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        other => {
            eprint!("xtask: there is no command `{other}`\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => {
            runner.summary();
            ExitCode::SUCCESS
        }
        Err(Failure(message)) => {
            runner.summary();
            eprintln!("\nxtask {command}: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The project's main job: the default kernel set, for every target.
fn build(runner: &mut Runner) -> Result<(), Failure> {
    setup::install(runner, &setup::WANTED[..1])?;
    let command = runner.cargo(&["build", "--release", "--locked", "--package", "tess"]);
    runner.step("build tess", command)?;
    let mut tess = runner.command(runner.root().join("target/release/tess"));
    tess.arg("build")
        .env("TESS_PTXAS", setup::ptxas(runner.root(), setup::PINNED));
    runner.step("build the default set", tess)
}

/// Rewrites the snapshots.
fn bless(runner: &mut Runner) -> Result<(), Failure> {
    setup::install(runner, &setup::WANTED[..1])?;
    let mut command = runner.cargo(&[
        "test",
        "--locked",
        "--no-fail-fast",
        "--package",
        "tesserine-snapshots",
    ]);
    command
        .env("INSTA_UPDATE", "always")
        .env("INSTA_FORCE_PASS", "1")
        .env("TESS_BLESS", "1");
    runner.step("bless", command)
}
