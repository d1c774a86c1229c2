//! Running commands as named, timed steps.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// Why a command of `xtask` ended early, as a sentence.
#[derive(Debug)]
pub struct Failure(pub String);

/// Runs steps from the workspace's root and remembers how long each took.
pub struct Runner {
    root: PathBuf,
    done: Vec<(String, Duration)>,
}

impl Runner {
    pub fn new(root: PathBuf) -> Runner {
        Runner {
            root,
            done: Vec::new(),
        }
    }

    /// The workspace's folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A command that starts in the workspace's folder.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        command
    }

    /// The cargo that runs this, with `args`.
    pub fn cargo(&self, args: &[&str]) -> Command {
        let mut command =
            self.starts_cargo(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(args);
        command
    }

    /// A command that starts cargo itself, without what cargo told xtask.
    pub fn starts_cargo(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.command(program);
        // Cargo's variables for xtask itself would make build scripts of the same packages run again.
        for name in [
            "CARGO_MANIFEST_DIR",
            "CARGO_MANIFEST_PATH",
            "CARGO_PKG_NAME",
        ] {
            command.env_remove(name);
        }
        command
    }

    /// Runs `command`, whose output goes to the terminal.
    pub fn step(&mut self, name: &str, mut command: Command) -> Result<(), Failure> {
        println!("\n== {name}: {}", display(&command));
        let start = Instant::now();
        let status = command.status();
        self.finish(name, start);
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Failure(format!("`{name}` failed ({status})"))),
            Err(error) => Err(Failure(format!(
                "`{name}`: cannot run {}: {error}",
                command.get_program().display()
            ))),
        }
    }

    /// Runs `command` and returns its exit code and what it wrote to stdout and stderr.
    pub fn output(&mut self, name: &str, mut command: Command) -> Result<Output, Failure> {
        println!("\n== {name}: {}", display(&command));
        let start = Instant::now();
        let output = command.stdin(Stdio::null()).output();
        self.finish(name, start);
        let output = output.map_err(|error| {
            Failure(format!(
                "`{name}`: cannot run {}: {error}",
                command.get_program().display()
            ))
        })?;
        Ok(Output {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Runs `work` as a step.
    pub fn check<T>(
        &mut self,
        name: &str,
        work: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, Failure> {
        println!("\n== {name}");
        let start = Instant::now();
        let result = work();
        self.finish(name, start);
        result.map_err(|message| Failure(format!("`{name}`: {message}")))
    }

    fn finish(&mut self, name: &str, start: Instant) {
        self.done.push((name.to_owned(), start.elapsed()));
    }

    /// Prints the steps that ran and their times.
    pub fn summary(&self) {
        println!("\nsteps:");
        for (name, time) in &self.done {
            println!("{:>8.1} s  {name}", time.as_secs_f64());
        }
    }
}

/// What a command left.
pub struct Output {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    /// This output, if the command succeeded.
    pub fn success(self, name: &str) -> Result<Output, Failure> {
        if self.code == Some(0) {
            return Ok(self);
        }
        Err(Failure(format!(
            "`{name}` failed (exit code {:?})\n{}{}",
            self.code, self.stdout, self.stderr
        )))
    }
}

fn display(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}
