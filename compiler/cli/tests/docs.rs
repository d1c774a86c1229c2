//! What the documentation says is so: the README's commands work, and the files that pages name are there.

use std::{fs, path::Path, process::Command};

/// The fenced blocks of a page, with their languages.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    page.split("```")
        .skip(1)
        .step_by(2)
        .filter_map(|block| block.split_once('\n'))
        .collect()
}

/// Splits a command as a shell does, single quotes understood.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn the_commands_of_the_readme_work() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("README.md")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut ran = 0;
    let mut source = String::new();
    for (language, text) in blocks(&page) {
        match language.trim() {
            // All of it stands in one file.
            "tess" => {
                source.push_str(text);
                fs::write(folder.path().join("scale.tess"), &source).unwrap();
            }
            "toml" => fs::write(folder.path().join("mine.toml"), text).unwrap(),
            _ => {
                for line in text.lines().filter(|line| line.starts_with("tess ")) {
                    let words = words(line);
                    let code = words[1] == "build"
                        || words.iter().any(|w| w == "ptx" || w == "all")
                        || line.contains("emulator:");
                    if line.contains("cuda") || (code && !cfg!(feature = "llvm")) {
                        continue;
                    }
                    let output = Command::new(env!("CARGO_BIN_EXE_tess"))
                        .current_dir(folder.path())
                        .env_remove("TESSERINE_SETS")
                        .args(&words[1..])
                        .output()
                        .unwrap();
                    assert!(
                        output.status.success(),
                        "{line}\n{}{}",
                        String::from_utf8_lossy(&output.stdout),
                        String::from_utf8_lossy(&output.stderr)
                    );
                    ran += 1;
                }
            }
        }
    }
    let expected = if cfg!(feature = "llvm") { 8 } else { 4 };
    assert_eq!(ran, expected, "commands of the README");
}

#[test]
fn the_files_that_pages_name_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = [
        "compiler/",
        "runtime/",
        "kernels-dsl/",
        "stdlib/",
        "tests/",
        "docs/",
    ];
    let mut found = 0;
    for page in [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "docs/cli.md",
        "docs/performance.md",
    ] {
        let text = fs::read_to_string(root.join(page)).unwrap();
        // Between backticks, or the target of a link.
        let names = text.split(['`', '(', ')']).map(str::trim);
        for name in names.filter(|name| folders.iter().any(|f| name.starts_with(f))) {
            // Placeholders stand in capitals, and patterns have stars.
            if name.contains(['*', ' ']) || name.contains("CODE") {
                continue;
            }
            found += 1;
            assert!(root.join(name).exists(), "{page} names `{name}`");
        }
    }
    assert!(found > 30, "only {found} files are named");
}
