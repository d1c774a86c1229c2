//! What the snapshot tests share: where things lie, and how a snapshot is named.
//!
//! `stages/` holds each stage of one instance of each kernel, `ptx/` its PTX for each target, `figures/` a table a kernel of
//! registers, spills, shared memory and a hash of the PTX of all instances, and `diagnostics/` each wrong program with what is said
//! of it. `cargo xtask bless` rewrites all of them.

use std::path::{Path, PathBuf};

use tesserine_compiler::{
    emit::set::{SetFile, SetKernel},
    target::Target,
};

/// The project's folder.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The default kernel set's list.
pub fn default_set() -> SetFile {
    let path = root().join("kernels-dsl/default.toml");
    SetFile::read(&path).unwrap_or_else(|error| panic!("{error}"))
}

/// The instance of each kernel whose stages are kept, with its list: the first for bf16.
pub fn chosen(set: &SetFile) -> Vec<(&SetKernel, &str)> {
    let mut list: Vec<(&SetKernel, &str)> = Vec::new();
    for kernel in &set.kernels {
        for instance in kernel.instances.iter().filter(|name| name.contains("bf16")) {
            let name = kernel_name(instance);
            if !list.iter().any(|(_, other)| kernel_name(other) == name) {
                list.push((kernel, instance));
            }
        }
    }
    list
}

/// The kernel's name in an instance's.
pub fn kernel_name(instance: &str) -> &str {
    instance.split('<').next().unwrap_or(instance)
}

/// The target of stages that are kept for one only.
pub fn target() -> Target {
    Target::parse("sm_90a").unwrap_or_else(|error| panic!("{error}"))
}

/// Compares `text` with the snapshot `folder/name.snap`.
pub fn snapshot(folder: &str, name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}
