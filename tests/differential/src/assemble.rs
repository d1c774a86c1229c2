//! `ptxas` as a judge of the snippets' texts.

use std::{fs, io, path::Path, process::Command};

use crate::{
    device::module_text,
    snippet::{Snippet, Target},
};

/// Assembles snippets together; if that fails, one by one. Gives the names and messages of those that are refused.
pub fn assemble(
    ptxas: &Path,
    snippets: &[&Snippet],
    target: Target,
) -> io::Result<Vec<(String, String)>> {
    if refused(ptxas, snippets, target)?.is_none() {
        return Ok(Vec::new());
    }
    let mut all = Vec::new();
    for snippet in snippets {
        if let Some(message) = refused(ptxas, &[snippet], target)? {
            all.push((snippet.name.clone(), message));
        }
    }
    Ok(all)
}

fn refused(ptxas: &Path, snippets: &[&Snippet], target: Target) -> io::Result<Option<String>> {
    let folder = tempfile::tempdir()?;
    let source = folder.path().join("snippets.ptx");
    fs::write(&source, module_text(snippets, target))?;
    let output = Command::new(ptxas)
        .arg(format!("-arch={target}"))
        .arg("-O1")
        .arg("-o")
        .arg(folder.path().join("snippets.cubin"))
        .arg(&source)
        .output()?;
    match output.status.success() {
        true => Ok(None),
        false => Ok(Some(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}
