//! The parser on the sample programs: all of them parse, and the printer gives back the tree that it was given.

use std::path::Path;

use tesserine_compiler::{
    diagnostics::Diagnostics,
    span::SourceMap,
    syntax::{ast, dump, parse, print},
};

fn samples() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/samples");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "tess"))
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

/// A tree as text without its spans (`12..34`): equal for equal trees.
fn shape(tree: &ast::File) -> String {
    let text = format!("{tree:#?}");
    let lines = text.lines().filter(|line| {
        let value = line
            .trim()
            .trim_start_matches("span: ")
            .trim_end_matches(',');
        let span = value
            .split_once("..")
            .is_some_and(|(a, b)| a.parse::<u32>().is_ok() && b.parse::<u32>().is_ok());
        !span
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn printing_gives_the_tree_back() {
    for (name, text) in samples() {
        let (tree, _) = parse_text(&text);
        let printed = print(&tree);
        let (again, diagnostics) = parse_text(&printed);
        assert!(
            diagnostics.is_empty(),
            "{name}: {diagnostics:#?}\n{printed}"
        );
        assert_eq!(shape(&tree), shape(&again), "{name}\n{printed}");
        assert_eq!(print(&again), printed, "{name}");
    }
}

#[test]
fn the_dump_has_every_item_with_its_place() {
    let mut sources = SourceMap::default();
    let file = sources.add("t.tess", "/// Doubles.\nfn f(x) = x * 2;\n");
    let tree = parse(&sources, file, &mut Diagnostics::default());
    let expected = "\
fn f @2:1-2:17
    doc \"Doubles.\"
    param x @2:6-2:7
    body
        binary * @2:11-2:16
            name x @2:11-2:12
            int 2 @2:15-2:16
";
    assert_eq!(dump(&tree, &sources), expected);
}
