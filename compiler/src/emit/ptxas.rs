//! `ptxas` and `nvdisasm`: found, run, and their words understood.
//!
//! Neither is needed to compile to PTX. A tool is looked for in its own variable (`$TESS_PTXAS`, `$TESS_NVDISASM`), on
//! `$PATH`, in `$CUDA_HOME/bin`, then under `target/tools` above the executable and above the current folder.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use tesserine_set::Resources;

use crate::target::Target;

/// A program that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    pub path: PathBuf,
}

/// What `ptxas` made of a module.
#[derive(Clone, Debug, PartialEq)]
pub struct Cubin {
    pub bytes: Vec<u8>,
    /// Of the module's kernel.
    pub resources: Resources,
    /// Lines that speak of lost performance: those of the family `C75xx`, and spills.
    pub complaints: Vec<String>,
    /// All that it said.
    pub log: String,
}

/// Why there is no cubin or listing.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error("{tool} cannot be run: {error}")]
    Run { tool: PathBuf, error: io::Error },
    #[error("a file for {tool} cannot be written or read: {error}")]
    File { tool: PathBuf, error: io::Error },
    #[error("{tool} refused the module for {target}: {log}")]
    Refused {
        tool: PathBuf,
        target: Target,
        log: String,
    },
}

/// `ptxas`, if there is one.
pub fn find() -> Option<Tool> {
    find_tool("ptxas", "TESS_PTXAS")
}

/// `nvdisasm`, if there is one.
pub fn find_disassembler() -> Option<Tool> {
    find_tool("nvdisasm", "TESS_NVDISASM")
}

fn find_tool(name: &str, variable: &str) -> Option<Tool> {
    let is_program = |path: &PathBuf| path.is_file();
    let named = env::var_os(variable).map(PathBuf::from);
    if let Some(path) = named.filter(is_program) {
        return Some(Tool { path });
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&path).collect();
    if let Some(home) = env::var_os("CUDA_HOME") {
        folders.push(Path::new(&home).join("bin"));
    }
    let direct = folders.iter().map(|f| f.join(name)).find(is_program);
    let found = direct.or_else(|| {
        let starts = [env::current_exe().ok(), env::current_dir().ok()];
        starts
            .iter()
            .flatten()
            .flat_map(|start| start.ancestors())
            .map(|folder| folder.join("target").join("tools"))
            .filter(|tools| tools.is_dir())
            .find_map(|tools| search(&tools, name, 6))
    });
    found.map(|path| Tool { path })
}

/// The file `name` below `folder`; of several, the last by name of the folders on the way, so that a newer version
/// goes first.
fn search(folder: &Path, name: &str, depth: u32) -> Option<PathBuf> {
    let direct = folder.join(name);
    if direct.is_file() {
        return Some(direct);
    }
    if depth == 0 {
        return None;
    }
    let mut folders: Vec<PathBuf> = fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    folders
        .iter()
        .rev()
        .find_map(|inner| search(inner, name, depth - 1))
}

impl Tool {
    /// The release that it says it is, `13.0.88`.
    pub fn version(&self) -> Option<String> {
        let out = Command::new(&self.path).arg("--version").output().ok()?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let version = text
            .split([' ', '\n', ','])
            .find_map(|word| word.strip_prefix('V'))?;
        Some(version.to_owned())
    }

    fn run(&self, command: &mut Command) -> Result<(bool, String, Vec<u8>), ToolError> {
        let out = command
            .stdin(Stdio::null())
            .output()
            .map_err(|error| ToolError::Run {
                tool: self.path.clone(),
                error,
            })?;
        let mut log = String::from_utf8_lossy(&out.stderr).into_owned();
        if !out.status.success() {
            log.push_str(&String::from_utf8_lossy(&out.stdout));
        }
        Ok((out.status.success(), log, out.stdout))
    }

    /// Assembles `ptx` for `target`.
    pub fn assemble(&self, ptx: &str, target: Target) -> Result<Cubin, ToolError> {
        let folder = Folder::new().map_err(|error| self.file_error(error))?;
        let (source, cubin) = (folder.0.join("kernel.ptx"), folder.0.join("kernel.cubin"));
        fs::write(&source, ptx).map_err(|error| self.file_error(error))?;
        let (ok, log, _) = self.run(
            Command::new(&self.path)
                .arg("-v")
                .arg(format!("-arch={}", target.name()))
                .arg("-o")
                .arg(&cubin)
                .arg(&source),
        )?;
        let shown = folder.0.to_string_lossy().into_owned();
        let log = log.replace(&format!("{shown}/"), "");
        if !ok {
            return Err(ToolError::Refused {
                tool: self.path.clone(),
                target,
                log: log.trim().to_owned(),
            });
        }
        let bytes = fs::read(&cubin).map_err(|error| self.file_error(error))?;
        let resources = parse_resources(&log);
        Ok(Cubin {
            bytes,
            resources,
            complaints: complaints(&log, resources),
            log,
        })
    }

    /// The listing of a cubin, with the source lines that it knows. The tool is `nvdisasm`.
    pub fn disassemble(&self, cubin: &[u8], target: Target) -> Result<String, ToolError> {
        let folder = Folder::new().map_err(|error| self.file_error(error))?;
        let file = folder.0.join("kernel.cubin");
        fs::write(&file, cubin).map_err(|error| self.file_error(error))?;
        let (ok, log, out) = self.run(
            Command::new(&self.path)
                .args(["--print-code", "--print-line-info"])
                .arg(&file),
        )?;
        if !ok {
            return Err(ToolError::Refused {
                tool: self.path.clone(),
                target,
                log: log.trim().to_owned(),
            });
        }
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    fn file_error(&self, error: io::Error) -> ToolError {
        ToolError::File {
            tool: self.path.clone(),
            error,
        }
    }
}

/// A folder of this call's own, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Folder> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = env::temp_dir().join(format!("tess-{}-{n}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Folder(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Nothing depends on whether it goes.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The number before `what` in a line of `ptxas -v`.
fn number_before(log: &str, what: &str) -> Option<u32> {
    let at = log.find(what)?;
    let head = log[..at].trim_end();
    let start = head
        .rfind(|c: char| !c.is_ascii_digit())
        .map_or(0, |i| i + 1);
    head[start..].parse().ok()
}

fn parse_resources(log: &str) -> Resources {
    Resources {
        registers: log
            .find("Used ")
            .and_then(|at| number_before(&log[at..], "registers"))
            .unwrap_or(0),
        spill_store_bytes: number_before(log, "bytes spill stores").unwrap_or(0),
        spill_load_bytes: number_before(log, "bytes spill loads").unwrap_or(0),
        shared_bytes: number_before(log, "bytes smem").unwrap_or(0),
    }
}

fn complaints(log: &str, resources: Resources) -> Vec<String> {
    let mut found: Vec<String> = log
        .lines()
        .filter(|line| line.contains("C75") || line.contains("warning"))
        .map(|line| line.trim().to_owned())
        .collect();
    if resources.spill_store_bytes + resources.spill_load_bytes > 0 {
        found.push(format!(
            "registers are spilled: {} bytes stored, {} loaded",
            resources.spill_store_bytes, resources.spill_load_bytes
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k_1a2b3c4d' for 'sm_90a'
ptxas info    : Function properties for k_1a2b3c4d
    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 43 registers, used 1 barriers, 32 bytes smem, 400 bytes cmem[0]
ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored
";

    #[test]
    fn the_log_is_understood() {
        let resources = parse_resources(LOG);
        assert_eq!(
            resources,
            Resources {
                registers: 43,
                spill_store_bytes: 12,
                spill_load_bytes: 8,
                shared_bytes: 32
            }
        );
        let complaints = complaints(LOG, resources);
        assert_eq!(complaints.len(), 2);
        assert!(complaints[0].contains("C7508"));
        assert!(complaints[1].contains("12 bytes"));
        assert_eq!(parse_resources("").registers, 0);
    }
}
