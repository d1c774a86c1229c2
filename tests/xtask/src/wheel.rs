//! The Python package: its kernels, its wheel, and its tests and examples on the installed wheel.

use std::{fs, path::PathBuf};

use crate::{
    setup,
    steps::{Failure, Runner},
};

/// What builds wheels, from PyPI.
const MATURIN: &str = "maturin==1.16.0";
/// What the tests import beside the package. The package itself needs nothing.
const TEST_PACKAGES: &[&str] = &["numpy>=2,<3"];

/// The set that the package's operators launch from, and where the package has it.
const KERNELS: &str = "kernels-dsl/ops.toml";
const PACKAGED: &str = "runtime/python/python/tesserine/ops.tset";
/// What a wheel for users has code for: one of these runs on every GPU from Turing on. All ten targets would be twice as large.
const TARGETS: &str = "sm_75,sm_80,sm_90a,sm_100a,sm_120a";

/// How a wheel is built.
#[derive(Clone, Copy)]
pub enum Profile {
    /// For users, into `target/wheels`, with kernels for `TARGETS`.
    Release,
    /// For its tests only, into `target/ci/wheels`: of what the workspace's tests have built already, with kernels for the
    /// emulator.
    Dev,
}

/// Builds the wheel, installs it into an environment of its own, and runs `runtime/python/tests` there.
pub fn build_and_test(runner: &mut Runner, profile: Profile) -> Result<(), Failure> {
    let (name, folder) = match profile {
        Profile::Release => ("release", "target/wheels"),
        Profile::Dev => ("dev", "target/ci/wheels"),
    };
    let tools = setup::venv(runner)?;
    let mut pip = runner.command(&tools);
    pip.args(["-m", "pip", "install", "--quiet", MATURIN]);
    runner.step(&format!("install {MATURIN}"), pip)?;

    let mut tess = runner.cargo(&["run", "--quiet", "--locked", "--package", "tess"]);
    if let Profile::Release = profile {
        tess.arg("--release");
    }
    let targets = match profile {
        Profile::Release => TARGETS,
        Profile::Dev => "sm_90a",
    };
    tess.args(["--", "build", KERNELS, "--emit", "ptx"]);
    tess.args(["--target", targets, "-o", PACKAGED]);
    runner.step("build the package's kernels", tess)?;

    let wheels = runner.root().join(folder);
    // So that the wheel found below is the one that was built.
    let _ = fs::remove_dir_all(&wheels);
    let mut maturin = runner.starts_cargo(&tools);
    maturin.args(["-m", "maturin", "build", "--profile", name, "--locked"]);
    maturin.args(["--manifest-path", "runtime/python/Cargo.toml"]);
    maturin.arg("--interpreter").arg(&tools);
    maturin.arg("--out").arg(&wheels);
    runner.step("build the wheel", maturin)?;
    let wheel = runner.check("find the wheel", || only_wheel(&wheels))?;

    let folder = runner.root().join("target/tools/python-tests");
    let python = folder.join("bin/python");
    let mut command = runner.command(&tools);
    command.args(["-m", "venv"]).arg(&folder);
    runner.step("make an environment for the wheel", command)?;
    let mut pip = runner.command(&python);
    pip.args(["-m", "pip", "install", "--quiet"])
        .args(TEST_PACKAGES);
    runner.step("install what the wheel's tests import", pip)?;
    let mut pip = runner.command(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]);
    pip.arg("--force-reinstall").arg(&wheel);
    runner.step("install the wheel", pip)?;

    let mut tests = runner.command(&python);
    // The package is the installed one: the tests' folder is not the package's.
    tests.args(["-B", "-m", "unittest", "discover", "--start-directory"]);
    tests.arg("runtime/python/tests");
    tests.env("TESSERINE_KERNELS_DEMANDED", "1");
    runner.step("tests of the wheel", tests)?;
    let mut example = runner.command(&python);
    example.args(["-B", "runtime/python/examples/operators.py"]);
    example.env("TESS_DEVICE", "emulator:sm_90a");
    runner.step("the package's example", example)?;
    let mut example = runner.cargo(&["run", "--quiet", "--locked", "--package", "tesserine"]);
    example.args(["--example", "operators", "--", PACKAGED]);
    example.env("TESS_DEVICE", "emulator:sm_90a");
    runner.step("the crate's example on the same kernels", example)
}

/// The one wheel in `folder`.
fn only_wheel(folder: &std::path::Path) -> Result<PathBuf, String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut wheels: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    wheels.retain(|path| path.extension().is_some_and(|e| e == "whl"));
    match &mut wheels[..] {
        [wheel] => {
            println!("{}", wheel.display());
            Ok(std::mem::take(wheel))
        }
        wheels => Err(format!(
            "{} wheels in {}, and one was expected",
            wheels.len(),
            folder.display()
        )),
    }
}
