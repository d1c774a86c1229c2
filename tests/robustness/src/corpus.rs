//! What inputs are made from.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tesserine_compiler::{Session, passes, target};

use crate::Target;

/// Texts of both kinds, in a fixed order.
#[derive(Debug)]
pub struct Corpus {
    /// Whole files of Tess.
    files: Vec<String>,
    /// Their items, each with the `use` lines of its file: small enough to reach deep parts quickly.
    items: Vec<String>,
    /// Kernels in tile IR and role IR.
    ir: Vec<String>,
}

const FOLDERS: &[&str] = &[
    "kernels-dsl",
    "stdlib",
    "examples",
    "tests/samples",
    "tests/diagnostics",
];

impl Corpus {
    /// Reads the corpus of the project in `root`.
    pub fn read(root: &Path) -> Corpus {
        let mut paths = Vec::new();
        for folder in FOLDERS {
            collect(&root.join(folder), &mut paths);
        }
        let mut corpus = Corpus {
            files: Vec::new(),
            items: Vec::new(),
            ir: Vec::new(),
        };
        for path in paths {
            let Ok(bytes) = fs::read(&path) else { continue };
            let text = String::from_utf8_lossy(&bytes).into_owned();
            corpus.take_items(&text);
            corpus.take_ir(&text);
            corpus.files.push(text);
        }
        corpus
    }

    fn take_items(&mut self, text: &str) {
        let mut session = Session::new();
        let Ok(module) = session.load_text("corpus.tess", text) else {
            return;
        };
        let items = &session.ast(module).items;
        let of = |item: &tesserine_compiler::syntax::ast::Item| {
            &text[item.span.start as usize..item.span.end as usize]
        };
        let uses: Vec<&str> = items
            .iter()
            .map(of)
            .filter(|t| t.starts_with("use "))
            .collect();
        for item in items {
            let own = of(item);
            if !own.starts_with("use ") {
                self.items.push(format!("{}\n{own}\n", uses.join("\n")));
            }
        }
    }

    fn take_ir(&mut self, text: &str) {
        let mut session = Session::new();
        let Ok(module) = session.load_text("corpus.tess", text) else {
            return;
        };
        let target = target::Target::ALL[4];
        for kernel in session.kernels(module) {
            for name in [kernel.name.clone(), format!("{}<bf16>", kernel.name)] {
                let Ok(instance) = session.instantiate(module, &name, target) else {
                    continue;
                };
                if let Some(body) = instance.bodies.last() {
                    self.ir.push(body.to_string());
                    if let Ok(lowered) = passes::lower(body, &target) {
                        self.ir.push(lowered.to_string());
                    }
                }
            }
        }
    }

    /// What inputs for `target` are made from.
    pub fn seeds(&self, target: Target) -> Vec<&str> {
        let lists: &[&[String]] = match target {
            Target::Syntax => &[&self.files, &self.items],
            Target::Check => &[&self.items, &self.items, &self.items, &self.files],
            Target::Ir => &[&self.ir],
            Target::Interpret => &[&self.items, &self.ir],
        };
        lists
            .iter()
            .flat_map(|list| list.iter())
            .map(String::as_str)
            .collect()
    }
}

/// The `.tess` files below `folder`, in order of their names; none if it is not there.
fn collect(folder: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, out);
        } else if path.extension().is_some_and(|e| e == "tess") {
            out.push(path);
        }
    }
}
