//! NVIDIA's assembler `ptxas`, and `nvdisasm`: where they are, and what they say.
//!
//! They are looked for in `$TESS_PTXAS` (`$TESS_NVDISASM`, then the folder of `$TESS_PTXAS`), `$PATH`, `$CUDA_HOME/bin`, then in `target/tools` above the
//! executable and above the current folder, where the project's set-up puts the wheels of PyPI.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
};

use tesserine_set::Resources;

use crate::target::Target;

/// Why there is no machine code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PtxasError {
    #[error(
        "`{0}` was not found in $TESS_PTXAS, $PATH, $CUDA_HOME/bin or target/tools; `cargo xtask setup` installs it"
    )]
    NotFound(&'static str),
    #[error("{}: {reason}", path.display())]
    Unusable { path: PathBuf, reason: String },
    #[error("{} refuses the code for {target}:\n{log}", path.display())]
    Refused {
        path: PathBuf,
        target: &'static str,
        log: String,
    },
    #[error("{} says nothing of registers for {target}:\n{log}", path.display())]
    NoFigures {
        path: PathBuf,
        target: &'static str,
        log: String,
    },
}

/// An assembler that starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ptxas {
    path: PathBuf,
    version: String,
}

/// Machine code and its figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assembled {
    pub cubin: Vec<u8>,
    /// Of the one entry; shared memory without the dynamic part.
    pub resources: Resources,
    /// What the assembler says of lost performance: serialised products and ignored register counts (`C75xx`), warnings, spills.
    pub losses: Vec<String>,
}

impl Ptxas {
    /// The first in the order of the module's documentation. `$TESS_PTXAS` must be usable if it is set.
    pub fn find() -> Result<Ptxas, PtxasError> {
        if let Some(path) = env::var_os("TESS_PTXAS").filter(|p| !p.is_empty()) {
            return Ptxas::at(PathBuf::from(path));
        }
        let path = search("ptxas").ok_or(PtxasError::NotFound("ptxas"))?;
        Ptxas::at(path)
    }

    /// The assembler at `path`.
    pub fn at(path: PathBuf) -> Result<Ptxas, PtxasError> {
        let unusable = |reason: String| PtxasError::Unusable {
            path: path.clone(),
            reason,
        };
        let output = Command::new(&path)
            .arg("--version")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| unusable(format!("cannot be run: {error}")))?;
        let text = String::from_utf8_lossy(&output.stdout);
        // "Cuda compilation tools, release 13.0, V13.0.88"
        let version = text
            .lines()
            .filter(|line| line.contains("release"))
            .find_map(|line| line.rsplit_once(" V"))
            .map(|(_, version)| version.trim().to_owned());
        match version {
            Some(version) => Ok(Ptxas { path, version }),
            None => Err(unusable("is no ptxas: it tells no version".to_owned())),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `13.0.88`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Assembles a module with one entry.
    pub fn assemble(&self, ptx: &str, target: Target) -> Result<Assembled, PtxasError> {
        let scratch = Scratch::new().map_err(|reason| PtxasError::Unusable {
            path: self.path.clone(),
            reason,
        })?;
        let (source, cubin) = (scratch.0.join("kernel.ptx"), scratch.0.join("kernel.cubin"));
        let unusable = |reason: std::io::Error| PtxasError::Unusable {
            path: self.path.clone(),
            reason: reason.to_string(),
        };
        fs::write(&source, ptx).map_err(unusable)?;
        let output = Command::new(&self.path)
            .args(["-v", "-O3", "--gpu-name", target.name(), "--output-file"])
            .arg(&cubin)
            .arg(&source)
            .stdin(Stdio::null())
            .output()
            .map_err(unusable)?;
        let log = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        let folder = format!("{}/", scratch.0.display());
        let log = log.replace(&folder, "");
        if !output.status.success() {
            return Err(PtxasError::Refused {
                path: self.path.clone(),
                target: target.name(),
                log: log.trim_end().to_owned(),
            });
        }
        let resources = figures(&log).ok_or_else(|| PtxasError::NoFigures {
            path: self.path.clone(),
            target: target.name(),
            log: log.trim_end().to_owned(),
        })?;
        Ok(Assembled {
            cubin: fs::read(&cubin).map_err(unusable)?,
            resources,
            losses: losses(&log, resources),
        })
    }
}

/// The text of a cubin's machine code, through `nvdisasm`.
pub fn disassemble(cubin: &[u8]) -> Result<String, PtxasError> {
    let named = |name: &str| {
        env::var_os(name)
            .filter(|p| !p.is_empty())
            .map(PathBuf::from)
    };
    let beside = || Some(named("TESS_PTXAS")?.parent()?.join("nvdisasm")).filter(|p| p.is_file());
    let path = named("TESS_NVDISASM")
        .or_else(beside)
        .or_else(|| search("nvdisasm"))
        .ok_or(PtxasError::NotFound("nvdisasm"))?;
    let unusable = |reason: String| PtxasError::Unusable {
        path: path.clone(),
        reason,
    };
    let scratch = Scratch::new().map_err(unusable)?;
    let file = scratch.0.join("kernel.cubin");
    fs::write(&file, cubin).map_err(|e| unusable(e.to_string()))?;
    let output = Command::new(&path)
        .args(["--print-code", "--print-line-info"])
        .arg(&file)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| unusable(e.to_string()))?;
    if !output.status.success() {
        return Err(unusable(
            String::from_utf8_lossy(&output.stderr)
                .trim_end()
                .to_owned(),
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn losses(log: &str, resources: Resources) -> Vec<String> {
    let mut losses: Vec<String> = log
        .lines()
        .filter(|line| line.contains("C75") || line.contains("warning"))
        .map(|line| line.trim().to_owned())
        .collect();
    let (stores, loads) = (resources.spill_store_bytes, resources.spill_load_bytes);
    if stores + loads > 0 {
        losses.push(format!(
            "registers are spilled: {stores} bytes stored, {loads} loaded"
        ));
    }
    losses
}

/// Reads what `-v` says of the entry.
fn figures(log: &str) -> Option<Resources> {
    let mut resources = Resources::default();
    let mut found = false;
    for line in log.lines() {
        if line.contains("bytes spill stores") {
            resources.spill_store_bytes = before(line, " bytes spill stores")?;
            resources.spill_load_bytes = before(line, " bytes spill loads")?;
        }
        if line.contains(" registers") && line.contains("Used ") {
            resources.registers = before(line, " registers")?;
            resources.shared_bytes = before(line, " bytes smem").unwrap_or(0);
            found = true;
        }
    }
    found.then_some(resources)
}

/// The number that stands before `what`.
fn before(line: &str, what: &str) -> Option<u32> {
    let text = &line[..line.find(what)?];
    let digits = text.len() - text.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    text[text.len() - digits..].parse().ok()
}

/// `program` in `$PATH`, `$CUDA_HOME/bin`, and `target/tools`.
fn search(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH");
    let mut folders: Vec<PathBuf> = path.iter().flat_map(env::split_paths).collect();
    folders.retain(|folder| !folder.as_os_str().is_empty());
    folders.extend(
        env::var_os("CUDA_HOME")
            .filter(|p| !p.is_empty())
            .map(|p| Path::new(&p).join("bin")),
    );
    let direct = folders
        .into_iter()
        .map(|folder| folder.join(program))
        .find(|path| path.is_file());
    direct.or_else(|| {
        [env::current_exe().ok(), env::current_dir().ok()]
            .into_iter()
            .flatten()
            .flat_map(|start| start.ancestors().map(Path::to_owned).collect::<Vec<_>>())
            .find_map(|folder| in_tools(&folder.join("target/tools"), program))
    })
}

/// `PROGRAM-VERSION/nvidia/cuN/bin/PROGRAM` under `tools`; of several versions the one whose name comes first.
fn in_tools(tools: &Path, program: &str) -> Option<PathBuf> {
    let sorted = |folder: &Path| -> Vec<PathBuf> {
        let mut list: Vec<PathBuf> = folder
            .read_dir()
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        list.sort();
        list
    };
    let prefix = format!("{program}-");
    sorted(tools)
        .into_iter()
        .filter(|path| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| name.starts_with(&prefix) && !name.ends_with(".partial"))
        })
        .flat_map(|version| sorted(&version.join("nvidia")))
        .map(|cuda| cuda.join("bin").join(program))
        .find(|path| path.is_file())
}

/// A folder for one run, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch, String> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        loop {
            let path = env::temp_dir().join(format!(
                "tess-{}-{}",
                std::process::id(),
                COUNT.fetch_add(1, Ordering::Relaxed)
            ));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Scratch(path)),
                // Left by a process of the same number that was killed.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(format!("cannot make {}: {error}", path.display())),
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is the system's temporary folder to clear.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read() {
        let log = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 128 registers, used 1 barriers, 16 bytes cumulative stack size, 1024 bytes smem
ptxas info    : Compile time = 3.192 ms
";
        let expected = Resources {
            registers: 128,
            spill_store_bytes: 8,
            spill_load_bytes: 12,
            shared_bytes: 1024,
        };
        assert_eq!(figures(log), Some(expected));
        let log = format!(
            "{log}ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored\n"
        );
        let losses = losses(&log, expected);
        assert_eq!(losses.len(), 2);
        assert!(losses[0].contains("C7508") && losses[1].contains("8 bytes stored, 12 loaded"));
        assert_eq!(figures("ptxas info    : 0 bytes gmem\n"), None);
        assert_eq!(figures("Used x registers"), None);
    }

    #[test]
    fn what_is_no_ptxas_is_told() {
        let missing = Ptxas::at("/nowhere/ptxas".into()).unwrap_err();
        assert!(
            missing
                .to_string()
                .starts_with("/nowhere/ptxas: cannot be run")
        );
        let other = Ptxas::at("/bin/true".into()).unwrap_err();
        assert_eq!(
            other.to_string(),
            "/bin/true: is no ptxas: it tells no version"
        );
    }

    #[test]
    fn the_first_version_of_the_tools_is_taken() {
        let scratch = Scratch::new().unwrap();
        for version in [
            "ptxas-13.5.37",
            "ptxas-13.0.88",
            "ptxas-13.0.1.partial",
            "venv",
        ] {
            let folder = scratch.0.join(version).join("nvidia/cu13/bin");
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("ptxas"), "").unwrap();
        }
        assert_eq!(
            in_tools(&scratch.0, "ptxas"),
            Some(scratch.0.join("ptxas-13.0.88/nvidia/cu13/bin/ptxas"))
        );
        assert_eq!(in_tools(&scratch.0, "nvdisasm"), None);
    }

    #[test]
    fn a_module_is_assembled() {
        let ptxas = match Ptxas::find() {
            Ok(ptxas) => ptxas,
            Err(PtxasError::NotFound(_)) => return,
            Err(error) => panic!("{error}"),
        };
        let target = Target::parse("sm_90a").unwrap();
        let ptx = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k() { ret; }\n";
        let assembled = ptxas.assemble(ptx, target).unwrap();
        assert!(assembled.cubin.starts_with(b"\x7fELF"));
        assert_eq!(assembled.resources.spill_store_bytes, 0);
        assert_eq!(assembled.losses, Vec::<String>::new());
        let error = ptxas.assemble("nonsense", target).unwrap_err();
        assert!(matches!(error, PtxasError::Refused { .. }), "{error}");
    }
}
