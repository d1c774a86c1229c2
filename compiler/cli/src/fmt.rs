//! `tess fmt`: source files in their one form.

use std::{
    fs, io,
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
};

use tesserine_compiler::{span::SourceMap, syntax};

use crate::{
    args::Fmt,
    failure::{Failure, report},
    terminal,
};

pub fn run(args: &Fmt) -> Result<(), Failure> {
    let mut files = Vec::new();
    for path in &args.paths {
        collect(path, true, &mut files)?;
    }
    files.sort();
    files.dedup();
    let (mut broken, mut other) = (false, false);
    for path in &files {
        let from_stdin = path.as_os_str() == "-";
        let text = if from_stdin {
            let mut text = String::new();
            let read = io::stdin().read_to_string(&mut text);
            read.map_err(|error| Failure::file("read", Path::new("stdin"), error))?;
            text
        } else {
            fs::read_to_string(path).map_err(|error| Failure::file("read", path, error))?
        };
        let mut sources = SourceMap::default();
        let file = sources.add(path.display().to_string(), text.as_str());
        let formatted = match syntax::format(&sources, file) {
            Ok(formatted) => formatted,
            Err(diagnostics) => {
                report(&diagnostics, &sources);
                broken = true;
                continue;
            }
        };
        if args.check {
            if formatted != text {
                other = true;
                terminal::print(format_args!(
                    "{}:{} is not formatted\n",
                    path.display(),
                    first_difference(&text, &formatted)
                ))?;
            }
        } else if from_stdin {
            let written = io::stdout().write_all(formatted.as_bytes());
            written.map_err(|error| Failure::file("write", Path::new("stdout"), error))?;
        } else if formatted != text {
            fs::write(path, formatted).map_err(|error| Failure::file("write", path, error))?;
        }
    }
    if broken || other {
        Err(Failure::Reported)
    } else {
        Ok(())
    }
}

/// The source files that `path` names: itself, or those in the folder. `named` on the command line, or found there.
fn collect(path: &Path, named: bool, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    if path.as_os_str() == "-" {
        files.push(path.to_owned());
        return Ok(());
    }
    let kind = fs::symlink_metadata(path).map_err(|error| Failure::file("read", path, error))?;
    let folder = if named { path.is_dir() } else { kind.is_dir() };
    if folder {
        let entries = fs::read_dir(path).map_err(|error| Failure::file("read", path, error))?;
        for entry in entries {
            let entry = entry.map_err(|error| Failure::file("read", path, error))?;
            let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            if !hidden {
                collect(&entry.path(), false, files)?;
            }
        }
    } else if named || (kind.is_file() && path.extension().is_some_and(|e| e == "tess")) {
        files.push(path.to_owned());
    }
    Ok(())
}

/// The number of the first line that differs.
fn first_difference(text: &str, formatted: &str) -> usize {
    let same = text
        .split('\n')
        .zip(formatted.split('\n'))
        .take_while(|(a, b)| a == b);
    same.count() + 1
}
