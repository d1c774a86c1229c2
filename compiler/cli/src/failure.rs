//! How a command ends when it does not succeed.

use std::{io, path::Path};

use tesserine_compiler::{
    diagnostics::{Diagnostics, Severity},
    span::SourceMap,
};

use crate::terminal;

/// Why a command stopped.
#[derive(Debug)]
pub enum Failure {
    /// The command line asks for something that is not there: exit code 2.
    Usage(String),
    /// The command ran and failed: exit code 1.
    Failed(String),
    /// The same; everything has been said already.
    Reported,
    /// Nobody reads the output any more: exit code 0, in silence.
    ClosedPipe,
}

impl Failure {
    /// Writing to stdout failed.
    pub fn output(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ClosedPipe,
            _ => Failure::Failed(format!("cannot write the output: {error}")),
        }
    }

    /// A file could not be read or written.
    pub fn file(what: &str, path: &Path, error: io::Error) -> Failure {
        Failure::Failed(format!("cannot {what} {}: {error}", path.display()))
    }

    /// Prints what is to be said and gives the exit code.
    pub fn finish(self) -> u8 {
        match self {
            Failure::Usage(message) => {
                terminal::warn(format_args!("{}: {message}\n", label()));
                2
            }
            Failure::Failed(message) => {
                terminal::warn(format_args!("{}: {message}\n", label()));
                1
            }
            Failure::Reported => 1,
            Failure::ClosedPipe => 0,
        }
    }
}

fn label() -> &'static str {
    if terminal::colour() {
        "\u{1b}[1;31merror\u{1b}[0m"
    } else {
        "error"
    }
}

/// Prints diagnostics to stderr, with a line that counts them.
pub fn report(diagnostics: &Diagnostics, sources: &SourceMap) {
    let colour = terminal::colour();
    for diagnostic in diagnostics.iter() {
        let text = tesserine_compiler::diagnostics::render(diagnostic, sources, colour);
        terminal::warn(format_args!("{}\n\n", text.trim_end()));
    }
    let count = |severity: Severity| {
        diagnostics
            .iter()
            .filter(|d| d.severity == severity)
            .count()
    };
    let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    match (count(Severity::Error), count(Severity::Warning)) {
        (0, 0) => {}
        (0, warnings) => terminal::warn(format_args!("{}\n", plural(warnings, "warning"))),
        (errors, 0) => terminal::warn(format_args!("{}\n", plural(errors, "error"))),
        (errors, warnings) => terminal::warn(format_args!(
            "{}, {}\n",
            plural(errors, "error"),
            plural(warnings, "warning")
        )),
    }
}
