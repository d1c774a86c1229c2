//! What CI runs. Plain cargo, no GPU, two cores.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::{
    bundle, setup,
    steps::{Failure, Runner},
    wheel,
};

/// Packages that build without LLVM.
const WITHOUT_LLVM: &[&str] = &[
    "tess",
    "tesserine",
    "tesserine-compiler",
    "tesserine-conformance",
    "tesserine-set",
];

/// Where our own Tess lies. Wrong programs (`tests/diagnostics`) stay as they are written.
const SOURCES: &[&str] = &[
    "kernels-dsl",
    "stdlib",
    "examples",
    "tests/conformance",
    "tests/samples",
    "tests/samples.tess",
];

/// The tests of the samples' role-level bodies.
const SAMPLES: &[&str] = &["tests/samples.tess", "tests/samples/attention_prefill.tess"];

/// A part of CI.
struct Part {
    name: &'static str,
    run: fn(&mut Runner) -> Result<(), Failure>,
}

/// All parts in order; each can be begun at.
const PARTS: &[Part] = &[
    Part {
        name: "lints",
        run: lints,
    },
    Part {
        name: "tests",
        run: tests,
    },
    Part {
        name: "wheel",
        run: |runner| wheel::build_and_test(runner, wheel::Profile::Dev),
    },
    Part {
        name: "no-llvm",
        run: without_llvm,
    },
    Part {
        name: "sets",
        run: default_set,
    },
    Part {
        name: "bundle",
        run: bundle,
    },
];

/// Runs all parts, or those from the one named `from` on.
pub fn run(runner: &mut Runner, from: Option<&str>) -> Result<(), Failure> {
    let first = match from {
        None => 0,
        Some(name) => PARTS.iter().position(|p| p.name == name).ok_or_else(|| {
            let names: Vec<&str> = PARTS.iter().map(|p| p.name).collect();
            Failure(format!(
                "there is no part `{name}`; the parts are {}",
                names.join(", ")
            ))
        })?,
    };
    setup::install(runner, setup::WANTED)?;
    for part in &PARTS[first..] {
        (part.run)(runner)?;
    }
    println!("\nci: every step passed");
    Ok(())
}

fn lints(runner: &mut Runner) -> Result<(), Failure> {
    let command = runner.cargo(&["fmt", "--all", "--check"]);
    runner.step("formatting", command)?;
    let command = runner.cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "-D",
        "warnings",
    ]);
    runner.step("lints", command)?;
    let mut command = runner.cargo(&["run", "--quiet", "--locked", "--package", "tess", "--"]);
    command.args(["fmt", "--check"]).args(SOURCES);
    runner.step("formatting of Tess", command)
}

fn tests(runner: &mut Runner) -> Result<(), Failure> {
    let mut command = runner.cargo(&["test", "--workspace", "--locked"]);
    command
        .env("INSTA_UPDATE", "no")
        .env("TESS_PTXAS", setup::ptxas(runner.root(), setup::PINNED));
    runner.step("tests", command)
}

/// Packs the bundle with the set that [`default_set`] built, and starts it.
fn bundle(runner: &mut Runner) -> Result<(), Failure> {
    let set = built_by(runner, setup::PINNED).join("default.tset");
    let folder = bundle::pack(runner, Some(&set))?;
    bundle::start(runner, &folder)
}

/// Where [`default_set`] puts what `ptxas` of `version` assembled.
fn built_by(runner: &Runner, version: &str) -> PathBuf {
    runner.root().join("target/ci").join(version)
}

/// Everything but code generation builds, lints and passes its tests without the feature `llvm`.
fn without_llvm(runner: &mut Runner) -> Result<(), Failure> {
    let packages = WITHOUT_LLVM.iter().flat_map(|name| ["--package", name]);
    let shared = [
        "--locked",
        "--no-default-features",
        "--target-dir",
        "target/no-llvm",
    ];
    let mut command = runner.cargo(&["clippy", "--all-targets"]);
    command
        .args(packages.clone())
        .args(shared)
        .args(["--", "-D", "warnings"]);
    runner.step("lints without LLVM", command)?;
    let mut command = runner.cargo(&["test"]);
    command
        .args(["--package", "tess", "--package", "tesserine-compiler"])
        .args(shared);
    runner.step("tests without LLVM", command)
}

/// The default set for every target: assembled by both versions of `ptxas` with no spill, the same bytes from run to run and in
/// any folder, by a `tess` that starts directly.
fn default_set(runner: &mut Runner) -> Result<(), Failure> {
    let command = runner.cargo(&["build", "--release", "--locked", "--package", "tess"]);
    runner.step("build tess", command)?;
    let tess = runner.root().join("target/release/tess");
    let mut command = runner.command(&tess);
    command.env_clear().arg("show-config");
    let name = "tess starts with an empty environment";
    runner.output(name, command)?.success(name)?;
    let mut command = runner.command(&tess);
    command.args(["test", "kernels-dsl", "examples", "tests/conformance/tiles"]);
    command.args(SAMPLES);
    runner.step("tests of the kernels and examples", command)?;
    let mut command = runner.command(&tess);
    command.args(["test", "--device", "all"]);
    command.args(["kernels-dsl", "examples", "tests/conformance/tiles"]);
    runner.step("the same on the emulator, for every target", command)?;
    let mut command = runner.command(&tess);
    command
        .args(["test", "--device", "emulator:sm_90a"])
        .args(SAMPLES);
    runner.step("samples of the role level on the emulator", command)?;

    let ci = runner.root().join("target/ci");
    let _ = fs::remove_dir_all(&ci);
    let elsewhere = ci.join("some/other folder");
    bundle::copy_folder(&runner.root().join("kernels-dsl"), &elsewhere)
        .map_err(|error| Failure(format!("cannot copy kernels-dsl: {error}")))?;
    let mut folders = Vec::new();
    for (version, set) in [
        (
            setup::PINNED,
            runner.root().join("kernels-dsl/default.toml"),
        ),
        (setup::NEWER, elsewhere.join("default.toml")),
    ] {
        let out = built_by(runner, version);
        let name = format!("default set with ptxas {version}");
        let mut command = runner.command(&tess);
        command
            .arg("build")
            .arg(&set)
            .args(["--target", "all", "--emit", "ptx,cubin", "--json", "-o"])
            .arg(out.join("default.tset"))
            .arg("--out-dir")
            .arg(&out)
            .env("TESS_PTXAS", setup::ptxas(runner.root(), version));
        let output = runner.output(&name, command)?.success(&name)?;
        runner.check(&format!("no spills with ptxas {version}"), || {
            no_spills(&output.stdout)
        })?;
        folders.push(out);
    }
    runner.check("PTX is the same in every folder", || {
        let (a, b) = (ptx_hashes(&folders[0])?, ptx_hashes(&folders[1])?);
        if a.is_empty() {
            return Err("`tess build --out-dir` wrote no .ptx file".to_owned());
        }
        match a.iter().find(|(name, hash)| b.get(*name) != Some(hash)) {
            Some((name, _)) => Err(format!("{name} differs")),
            None => Ok(()),
        }
    })
}

/// Fails if a body has no resources, or spills, in the output of `tess build --json`.
fn no_spills(json: &str) -> Result<(), String> {
    let value: serde_json::Value =
        serde_json::from_str(json).map_err(|e| format!("`tess build --json`: {e}"))?;
    let bodies = value["bodies"]
        .as_array()
        .ok_or("`tess build --json` has no `bodies`")?;
    if bodies.is_empty() {
        return Err("the default set has no kernels".to_owned());
    }
    for body in bodies {
        let name = format!("{} for {}", body["kernel"], body["target"]);
        for field in ["spill_store_bytes", "spill_load_bytes"] {
            match body[field].as_u64() {
                Some(0) => {}
                Some(bytes) => return Err(format!("{name}: {field} is {bytes}")),
                None => return Err(format!("{name} was not assembled")),
            }
        }
    }
    println!("{} bodies, none spills", bodies.len());
    Ok(())
}

fn ptx_hashes(folder: &Path) -> Result<BTreeMap<String, String>, String> {
    let mut hashes = BTreeMap::new();
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for entry in entries {
        let path = entry.map_err(|e| e.to_string())?.path();
        if path.extension().is_some_and(|e| e == "ptx") {
            let bytes = fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let hash = Sha256::digest(&bytes);
            hashes.insert(
                name.into_owned(),
                hash.iter().map(|byte| format!("{byte:02x}")).collect(),
            );
        }
    }
    Ok(hashes)
}
