//! Generates the parser from `src/syntax/grammar.lalrpop`, and links LLVM where the feature `llvm` is on.

use std::{env, process::exit};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    grammar();
    if env::var_os("CARGO_FEATURE_LLVM").is_some() {
        llvm::link();
    }
}

/// The parser, as `syntax/grammar.rs` in the output folder.
fn grammar() {
    let out = env::var_os("OUT_DIR").unwrap_or_default();
    let made = lalrpop::Configuration::new()
        .emit_rerun_directives(true)
        .set_in_dir("src")
        .set_out_dir(out)
        .process();
    if let Err(e) = made {
        eprintln!("src/syntax/grammar.lalrpop: {e}");
        exit(1);
    }
}

/// The link to LLVM 22.1: rustup's own library, or the one of the installation that `LLVM_SYS_221_PREFIX` names.
mod llvm {
    use std::{
        env, fs,
        path::{Path, PathBuf},
        process::{Command, exit},
    };

    const PREFIX: &str = "LLVM_SYS_221_PREFIX";

    pub fn link() {
        println!("cargo::rerun-if-env-changed={PREFIX}");
        println!("cargo::rerun-if-env-changed=RUSTC");
        let (dir, file) = match env::var_os(PREFIX) {
            Some(prefix) => system(Path::new(&prefix)),
            None => toolchain(),
        };
        println!("cargo::rustc-link-search=native={}", dir.display());
        println!("cargo::rustc-link-lib=dylib:+verbatim={file}");
        println!("cargo::rustc-link-arg=-Wl,-rpath,{}", dir.display());
        // Dependents with binaries of their own pass it on to their linker: a search path reaches no further than here.
        println!("cargo::metadata=libdir={}", dir.display());
    }

    fn system(prefix: &Path) -> (PathBuf, String) {
        let config = prefix.join("bin/llvm-config");
        let version = output(Command::new(&config).arg("--version"));
        if !version.starts_with("22.1.") {
            refuse(&format!(
                "{PREFIX} points at LLVM {version}, but Tesserine needs LLVM 22.1: name the prefix of an LLVM 22.1 \
                 installation, or unset it to use the LLVM that comes with the Rust toolchain"
            ));
        }
        let dir = output(Command::new(&config).arg("--libdir"));
        let names = output(Command::new(&config).args(["--libnames", "--link-shared"]));
        match names.split_whitespace().next() {
            Some(file) => (dir.into(), file.to_owned()),
            None => refuse(&format!(
                "the LLVM at {} has no shared library: install one that was built with it, or unset {PREFIX}",
                prefix.display()
            )),
        }
    }

    fn toolchain() -> (PathBuf, String) {
        let rustc = env::var_os("RUSTC").expect("cargo sets RUSTC for build scripts");
        let about = output(Command::new(&rustc).arg("-vV"));
        let version = about
            .lines()
            .find_map(|l| l.strip_prefix("LLVM version: "))
            .unwrap_or("of an unknown version");
        if version.split('.').next() != Some("22") {
            refuse(&format!(
                "this rustc carries LLVM {version}, but Tesserine needs LLVM 22.1: use the toolchain that \
                 rust-toolchain.toml names, or set {PREFIX} to the prefix of an LLVM 22.1 installation"
            ));
        }
        let dir =
            PathBuf::from(output(Command::new(&rustc).args(["--print", "sysroot"]))).join("lib");
        let mut found: Vec<String> = fs::read_dir(&dir)
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name.starts_with("libLLVM.so.22."))
            .collect();
        found.sort();
        match found.pop() {
            Some(file) => (dir, file),
            None => refuse(&format!(
                "there is no libLLVM.so.22 in {}, so this rustc was not installed by rustup: use rustup's toolchain, \
                 or set {PREFIX} to the prefix of an LLVM 22.1 installation",
                dir.display()
            )),
        }
    }

    fn output(command: &mut Command) -> String {
        match command.output() {
            Ok(out) if out.status.success() => {
                String::from_utf8_lossy(&out.stdout).trim().to_owned()
            }
            Ok(out) => refuse(&format!(
                "`{command:?}` failed: {}",
                String::from_utf8_lossy(&out.stderr).trim()
            )),
            Err(error) => refuse(&format!(
                "`{command:?}` cannot be run ({error}): {PREFIX} must be the prefix of an LLVM 22.1 installation"
            )),
        }
    }

    fn refuse(why: &str) -> ! {
        println!("cargo::error={why}");
        exit(1)
    }
}
