//! `gpu-bundle/`: one folder that tests a GPU machine with neither Rust nor LLVM.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    setup,
    steps::{Failure, Runner},
};

const README: &str = "\
Tests Tesserine on a machine with an NVIDIA driver; nothing else is needed.

  ./tess show-config                                what is here
  TESS_DEVICE=cuda TESS_SET=default.tset ./conformance
                                                    every kernel against a reference in f64
  ./bench --set default.tset                        bandwidth of every kernel, against a copy
  ./tess run kernels-dsl/norm/rmsnorm.tess 'rmsnorm<bf16>' --set default.tset --device cuda --check \\
      --arg x=randn:bf16[256,1024] --arg weight=randn:bf16[1024] --arg eps=1e-6 --out out=bf16[256,1024]
";

/// Builds and packs the bundle, with `set` if it is at hand; returns its folder.
pub fn pack(runner: &mut Runner, set: Option<&Path>) -> Result<PathBuf, Failure> {
    let folder = runner.root().join("gpu-bundle");
    let fail = |what: &Path, error: std::io::Error| Failure(format!("{}: {error}", what.display()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|e| fail(&folder, e))?;
    let packed = folder.join("default.tset");
    // The set is compiled by a `tess` with LLVM …
    match set {
        Some(set) => {
            fs::copy(set, &packed).map_err(|e| fail(set, e))?;
        }
        None => build_set(runner, &packed)?,
    }
    // … and everything that travels is built without.
    let command = without_llvm(
        runner,
        &[
            "build",
            "--release",
            "--locked",
            "--bins",
            "--package",
            "tess",
            "--package",
            "tesserine-conformance",
            "--no-default-features",
        ],
    );
    runner.step("build without LLVM", command)?;
    for name in ["tess", "conformance", "bench"] {
        let from = runner.root().join("target/bundle/release").join(name);
        fs::copy(&from, folder.join(name)).map_err(|e| fail(&from, e))?;
    }
    for name in ["kernels-dsl", "stdlib"] {
        let from = runner.root().join(name);
        if from.is_dir() {
            copy_folder(&from, &folder.join(name)).map_err(|e| fail(&from, e))?;
        }
    }
    let readme = folder.join("README.txt");
    fs::write(&readme, README).map_err(|e| fail(&readme, e))?;
    println!("packed gpu-bundle/");
    Ok(folder)
}

/// Compiles the default set to `path`.
fn build_set(runner: &mut Runner, path: &Path) -> Result<(), Failure> {
    setup::install(runner, &setup::WANTED[..1])?;
    let command = runner.cargo(&["build", "--release", "--locked", "--package", "tess"]);
    runner.step("build tess", command)?;
    let mut command = runner.command(runner.root().join("target/release/tess"));
    command
        .args(["build", "--target", "all", "--emit", "ptx,cubin", "-o"])
        .arg(path)
        .env("TESS_PTXAS", setup::ptxas(runner.root(), setup::PINNED));
    runner.step("build the default set", command)
}

/// Cargo with its own target directory and with this machine's paths left out of what it builds.
fn without_llvm(runner: &Runner, args: &[&str]) -> Command {
    let mut command = runner.cargo(args);
    let mut flags = vec![format!(
        "--remap-path-prefix={}=tesserine",
        runner.root().display()
    )];
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    if let Some(home) = home {
        flags.push(format!("--remap-path-prefix={}=cargo", home.display()));
    }
    command
        .env("CARGO_TARGET_DIR", runner.root().join("target/bundle"))
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .env_remove("RUSTFLAGS");
    command
}

/// Copies a folder and all that is in it.
pub fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Starts the bundle's programs with an empty environment, from a folder of its own, and looks for LLVM and for this machine's
/// paths in them.
pub fn start(runner: &mut Runner, folder: &Path) -> Result<(), Failure> {
    for name in ["tess", "conformance", "bench"] {
        let path = folder.join(name);
        let root = runner.root().display().to_string();
        runner.check(&format!("look into {name}"), || {
            let bytes = fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            let holds = |needle: &str| {
                bytes
                    .windows(needle.len())
                    .any(|window| window == needle.as_bytes())
            };
            if holds("libLLVM") {
                return Err(format!("{name} of the bundle needs LLVM"));
            }
            if holds(&format!("{root}/")) {
                return Err(format!("{name} of the bundle holds this machine's paths"));
            }
            Ok(())
        })?;
    }
    let bare = |program: &str, args: &[&str]| {
        let mut command = Command::new(folder.join(program));
        command.current_dir(folder).env_clear().args(args);
        command
    };
    let rmsnorm = ["kernels-dsl/norm/rmsnorm.tess", "rmsnorm<bf16>"];
    let arguments = [
        "--arg",
        "x=randn:bf16[4,64]",
        "--arg",
        "weight=randn:bf16[64]",
        "--arg",
        "eps=1e-6",
        "--out",
        "out=bf16[4,64]",
    ];
    for (name, command) in [
        ("bundle: show-config", bare("tess", &["show-config"])),
        (
            "bundle: list-modules",
            bare("tess", &["list-modules", "default.tset"]),
        ),
        ("bundle: run", {
            let mut command = bare("tess", &["run"]);
            command.args(rmsnorm).args(arguments);
            command
        }),
        ("bundle: conformance", bare("conformance", &["--list"])),
    ] {
        runner.output(name, command)?.success(name)?;
    }
    // Without the feature `llvm` nothing can be compiled: a sentence, not a crash.
    let name = "bundle: emit";
    let mut command = bare("tess", &["emit"]);
    command
        .args(rmsnorm)
        .args(["--target", "sm_90a", "--stage", "ptx"]);
    let output = runner.output(name, command)?;
    if output.code != Some(1) || !output.stderr.contains("built without") {
        return Err(Failure(format!(
            "`{name}` did not say that this `tess` cannot generate code: {:?}\n{}",
            output.code, output.stderr
        )));
    }
    Ok(())
}
