//! The language reference is true: every block of Tess in `docs/language.md` is compiled, and its tests are run.
//!
//! The word behind a block's ``` says what it is. `tess`: a file, checked, with its tests run. `tess,body`: statements in the
//! kernel [`AROUND`]. `tess,test`: statements of a test. `tess,fails(E0102)`: this code is said of it, and no other.

use std::{collections::BTreeSet, fs, path::Path};

use tesserine_compiler::{
    Session,
    diagnostics::{Diagnostics, codes, render},
    target::Target,
    testing::{Options, Outcome},
};

/// Where the statements of a `body` stand.
const AROUND: (&str, &str) = (
    "kernel example<T: dtype = f16, B: int = 64>(
    x: view<f32>[m, n], h: view<T>[m, n], v: view<f32>[n], ids: view<i32>[k], p: view<i32>[b + 1] sorted,
    y: out view<f32>[m, n], z: out view<f32>[n], c: mut view<i32>[n], lse?: out view<f32>[m], s: f32, limit: i32,
) grid (i in ceil_div(m, 16), j in ceil_div(n, 64))
{\n",
    "}\n",
);

struct Block<'p> {
    line: usize,
    words: Vec<&'p str>,
    text: String,
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut out: Vec<Block<'_>> = Vec::new();
    let mut open = false;
    for (number, line) in page.lines().enumerate() {
        match line.strip_prefix("```") {
            Some(_) if open => open = false,
            Some(info) => {
                open = true;
                out.push(Block {
                    line: number + 1,
                    words: info.split(',').map(str::trim).collect(),
                    text: String::new(),
                });
            }
            None => {
                if let (true, Some(block)) = (open, out.last_mut()) {
                    block.text.push_str(line);
                    block.text.push('\n');
                }
            }
        }
    }
    out.retain(|block| block.words[0] == "tess");
    out
}

/// Everything that is said of a block: of the file, then of its tests.
fn said(block: &Block<'_>) -> (BTreeSet<String>, String) {
    let has = |word: &str| block.words.contains(&word);
    let text = if has("body") {
        format!("{}{}{}", AROUND.0, block.text, AROUND.1)
    } else if has("test") {
        format!("test shown {{\n{}}}\n", block.text)
    } else {
        block.text.clone()
    };
    let mut session = Session::new();
    let mut all = Diagnostics::default();
    match session.load_text("language.tess", &text) {
        Err(diagnostics) => all.extend(diagnostics),
        Ok(module) => {
            all.extend(session.check(module));
            let options = Options {
                target: Target::parse("sm_90a").unwrap(),
                device: None,
            };
            for test in session.tests(module) {
                if let Outcome::Failed(diagnostics) = session.run_test(module, &test, &options) {
                    all.extend(diagnostics);
                }
            }
        }
    }
    let codes = all.iter().map(|d| d.code.as_str().to_owned()).collect();
    let text: Vec<String> = all
        .iter()
        .map(|d| render(d, session.sources(), false))
        .collect();
    (codes, text.join("\n"))
}

fn page() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    fs::read_to_string(root.join("docs/language.md")).unwrap()
}

#[test]
fn every_block_is_as_the_page_says() {
    let page = page();
    let blocks = blocks(&page);
    assert!(blocks.len() >= 36, "{} blocks", blocks.len());
    let mut wrong = Vec::new();
    for block in &blocks {
        let expected: BTreeSet<String> = block
            .words
            .iter()
            .filter_map(|w| Some(w.strip_prefix("fails(")?.strip_suffix(')')?.to_owned()))
            .collect();
        let (codes, text) = said(block);
        if codes != expected {
            wrong.push(format!(
                "docs/language.md:{}: {codes:?}, and {expected:?} is expected\n{text}",
                block.line
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn the_page_names_only_codes_that_there_are() {
    let page = page();
    let words = page.split(|c: char| !c.is_ascii_alphanumeric());
    for word in words.filter(|w| w.len() == 5 && w.starts_with('E')) {
        if word[1..].bytes().all(|b| b.is_ascii_digit()) {
            assert!(codes::explain(word).is_some(), "{word} is no code");
        }
    }
}
