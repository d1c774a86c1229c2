//! The tools that cargo does not bring: `ptxas` and `nvdisasm`, as wheels from PyPI, under `target/tools`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::steps::{Failure, Runner};

/// A program inside a wheel.
pub struct Tool {
    pub package: &'static str,
    pub version: &'static str,
    /// Folder under `target/tools`, without the version.
    pub folder: &'static str,
    pub program: &'static str,
}

/// What CUDA 13.0 machines have; the figures in the snapshots are this version's.
pub const PINNED: &str = "13.0.88";
/// CI assembles everything with this one as well.
pub const NEWER: &str = "13.5.37";

/// All that CI uses, the pinned `ptxas` first.
pub const WANTED: &[Tool] = &[
    Tool {
        package: "nvidia-cuda-nvcc",
        version: PINNED,
        folder: "ptxas",
        program: "ptxas",
    },
    Tool {
        package: "nvidia-cuda-nvcc",
        version: NEWER,
        folder: "ptxas",
        program: "ptxas",
    },
    Tool {
        package: "nvidia-cuda-nvdisasm",
        version: "13.2.51",
        folder: "nvdisasm",
        program: "nvdisasm",
    },
];

impl Tool {
    fn folder(&self, root: &Path) -> PathBuf {
        root.join("target/tools")
            .join(format!("{}-{}", self.folder, self.version))
    }

    fn path(&self, root: &Path) -> PathBuf {
        self.folder(root).join("nvidia/cu13/bin").join(self.program)
    }
}

/// Where `install` puts `ptxas` of `version`.
pub fn ptxas(root: &Path, version: &str) -> PathBuf {
    root.join(format!(
        "target/tools/ptxas-{version}/nvidia/cu13/bin/ptxas"
    ))
}

/// Installs what of `tools` is missing.
pub fn install(runner: &mut Runner, tools: &[Tool]) -> Result<(), Failure> {
    let missing: Vec<&Tool> = tools
        .iter()
        .filter(|tool| !tool.path(runner.root()).is_file())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let python = venv(runner)?;
    for tool in missing {
        let wanted = format!("{}=={}", tool.package, tool.version);
        let folder = tool.folder(runner.root());
        // Beside the final place first, so that an interrupted download leaves nothing that looks installed.
        let partial = PathBuf::from(format!("{}.partial", folder.display()));
        let _ = fs::remove_dir_all(&partial);
        let _ = fs::remove_dir_all(&folder);
        let mut pip = runner.command(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"])
            .arg(&partial)
            .arg(&wanted);
        runner.step(&format!("install {wanted}"), pip).map_err(|Failure(message)| {
            Failure(format!(
                "{message}: pip could not install {wanted} into target/tools. It needs PyPI (or an index set in pip's configuration); \
                 without it, set TESS_PTXAS to a `ptxas` of CUDA {}",
                tool.version
            ))
        })?;
        fs::rename(&partial, &folder)
            .map_err(|error| Failure(format!("cannot move {}: {error}", partial.display())))?;
        let program = tool.path(runner.root());
        if !program.is_file() {
            return Err(Failure(format!(
                "the wheel {wanted} has no {}: the layout of the wheel has changed",
                program.display()
            )));
        }
        make_executable(&program)
            .map_err(|error| Failure(format!("{}: {error}", program.display())))?;
    }
    Ok(())
}

fn make_executable(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mut permissions = fs::metadata(path)?.permissions();
    permissions.set_mode(permissions.mode() | 0o755);
    fs::set_permissions(path, permissions)
}

/// The interpreter of a virtual environment with pip, made if need be.
pub fn venv(runner: &mut Runner) -> Result<PathBuf, Failure> {
    let folder = runner.root().join("target/tools/venv");
    let python = folder.join("bin/python");
    let has_pip = |python: &Path| {
        std::process::Command::new(python)
            .args(["-m", "pip", "--version"])
            .output()
            .is_ok_and(|output| output.status.success())
    };
    if has_pip(&python) {
        return Ok(python);
    }
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(runner.root().join("target/tools"))
        .map_err(|error| Failure(format!("cannot make target/tools: {error}")))?;
    let mut command = runner.command("python3");
    command.args(["-m", "venv"]).arg(&folder);
    let output = runner.output("make a Python environment", command).map_err(|_| {
        Failure(
            "`python3` was not found; the set-up needs Python 3 with venv and pip to fetch `ptxas` from PyPI. \
             Without Python, set TESS_PTXAS to the `ptxas` of a CUDA toolkit"
                .to_owned(),
        )
    })?;
    if output.code != Some(0) || !has_pip(&python) {
        let _ = fs::remove_dir_all(&folder);
        return Err(Failure(format!(
            "`python3 -m venv` failed; install Python's venv and pip (on Debian and Ubuntu: the package python3-venv)\n{}{}",
            output.stdout, output.stderr
        )));
    }
    Ok(python)
}
