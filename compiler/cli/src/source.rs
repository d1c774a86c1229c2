//! Source files: loading them, and telling what is wrong with them.

use std::{fs, path::Path};

use tesserine_compiler::{Module, Session, ir::tile, target::Target};

use crate::failure::{Failure, report};

/// Reads a file and all that it uses. A file that cannot be read is a plain sentence; errors in it are reported.
pub fn load(session: &mut Session, path: &Path) -> Result<Module, Failure> {
    readable(path)?;
    session.load(path, None).map_err(|diagnostics| {
        report(&diagnostics, session.sources());
        Failure::Reported
    })
}

/// Whether `path` is a file that can be read.
pub fn readable(path: &Path) -> Result<(), Failure> {
    let file = fs::File::open(path).and_then(|file| file.metadata());
    match file {
        Ok(metadata) if metadata.is_dir() => Err(Failure::Failed(format!(
            "{} is a folder, not a source file",
            path.display()
        ))),
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::file("read", path, error)),
    }
}

/// Makes an instance; errors are reported.
pub fn instantiate(
    session: &Session,
    module: Module,
    kernel: &str,
    target: Target,
) -> Result<tile::Instance, Failure> {
    session
        .instantiate(module, kernel, target)
        .map_err(|diagnostics| {
            report(&diagnostics, session.sources());
            Failure::Reported
        })
}

/// The target of that name.
pub fn target(name: &str) -> Result<Target, Failure> {
    Target::parse(name).map_err(|error| Failure::Usage(error.to_string()))
}

/// Errors of a stage after instantiation.
pub fn reported<T>(
    session: &Session,
    result: Result<T, tesserine_compiler::diagnostics::Diagnostics>,
) -> Result<T, Failure> {
    result.map_err(|diagnostics| {
        report(&diagnostics, session.sources());
        Failure::Reported
    })
}

/// Says that this `tess` cannot generate code.
#[cfg(not(feature = "llvm"))]
pub fn no_code(what: &str) -> Failure {
    Failure::Failed(format!(
        "{what} needs code generation, and this `tess` was built without the feature `llvm`; \
         build it with `cargo build --release -p tess`{}",
        if what.contains("--device") {
            ", or take the kernel from a kernel set with --set"
        } else {
            ""
        }
    ))
}
