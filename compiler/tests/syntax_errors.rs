//! What the parser says about broken programs, and that nothing breaks it.

use proptest::prelude::*;
use tesserine_compiler::{
    diagnostics::{Diagnostics, render, to_json},
    span::SourceMap,
    syntax::{ast, dump, nesting::MAX_DEPTH, parse, parse_instance, print},
};

/// Parses, and does with the result whatever may be done: none of it panics.
fn check(text: &str) -> (ast::File, Diagnostics, Vec<String>) {
    let mut sources = SourceMap::default();
    let file = sources.add("t.tess", text);
    let mut diagnostics = Diagnostics::default();
    let tree = parse(&sources, file, &mut diagnostics);
    let shown: Vec<String> = diagnostics
        .iter()
        .map(|d| render(d, &sources, false))
        .collect();
    diagnostics
        .iter()
        .for_each(|d| assert!(to_json(d, &sources)["line"].is_u64(), "{d:?}"));
    dump(&tree, &sources);
    print(&tree);
    parse_instance(&sources, file, &mut Diagnostics::default());
    (tree, diagnostics, shown)
}

fn titles(text: &str) -> Vec<String> {
    check(text)
        .1
        .iter()
        .map(|d| format!("{} {}", d.code, d.title))
        .collect()
}

/// Errors of statements in a function; another function follows, which is read in any case.
#[track_caller]
fn expect(statements: &str, errors: &[&str]) {
    let text = format!("fn f(a, b, n) {{\n    {statements}\n}}\nfn last(x) = x;\n");
    assert_eq!(titles(&text), errors, "{statements}");
    let tree = check(&text).0;
    assert!(
        matches!(&tree.items.last().unwrap().kind, ast::ItemKind::Fn(f) if f.name.name == "last"),
        "{statements}"
    );
}

#[test]
fn slices_of_other_languages() {
    expect(
        "let x = a[i:j];",
        &["E0002 a slice is written with `..` or `+:`"],
    );
    expect("let x = a[:, j];", &["E0002 a whole axis is written `..`"]);
    expect(
        "let x = a[:, None];",
        &[
            "E0002 a whole axis is written `..`",
            "E0002 a new axis is written `_`",
        ],
    );
    expect("let x = a[::2];", &["E0002 a slice has no step"]);
    expect(
        "let x = a[0..=3];",
        &["E0002 ranges do not contain their end"],
    );
    expect("for i in 0:n { }", &["E0002 a range is written `a..b`"]);
    expect(
        "for i in range(n) { }",
        &["E0002 a `for` goes over a range"],
    );
}

#[test]
fn compile_time_arguments() {
    let missing = &["E0002 in an expression, compile-time arguments follow a `::`"];
    expect("let x = h<f32>(a);", missing);
    expect("let x = h<f32>(a, b);", missing);
    expect("let x = h<f32, 3>(a, b) + 1;", missing);
    expect("let x = h<f32, N = 3>(a);", missing);
    let parentheses = &["E0002 between `<` and `>` a comparison needs parentheses"];
    expect("let x = h::<i<n>(a);", parentheses);
    expect("let x = h::<i <= n>(a);", parentheses);
    expect(
        "let x = h::<A<B<n>>>(a);",
        &["E0002 two closing `>` need a space between them"],
    );
    expect("let x = h::<A<B<n> > >(a); let y = h::<(i < n)>(a);", &[]);
}

#[test]
fn operators() {
    expect("if 0 < a < n { b }", &["E0002 comparisons do not chain"]);
    expect(
        "if a = b { x } else { y }",
        &["E0002 equality is written `==`"],
    );
    expect("let x = a ? b : 1;", &["E0002 expected `;`, found `?`"]);
    expect(
        "let x = 1 + if a { 2 } else { 3 };",
        &["E0002 expected an expression, found `if`"],
    );
    expect("i++;", &["E0002 expected an expression, found `+`"]);
}

#[test]
fn separators() {
    expect(
        "let x = a + 1\n    let y = 2\n    h(y)\n    y",
        &["E0002 a `;` is missing"; 3],
    );
    expect("if a { b };", &["E0002 there is nothing before this `;`"]);
    expect(
        "h(a b, c d, e);",
        &[
            "E0002 expected `,` or `)`, found `b`",
            "E0002 expected `,` or `)`, found `d`",
        ],
    );
    expect("put c { a b }", &["E0002 expected `,` or `}`, found `b`"]);
    expect(
        "let x = (a + b;\n    let y = 3;",
        &["E0002 expected `,` or `)`, found `;`"],
    );
}

#[test]
fn several_errors_in_one_run() {
    expect(
        "let x = a + ;\n    let y = * 2;\n    y",
        &[
            "E0002 expected an expression, found `;`",
            "E0002 expected an expression, found `*`",
        ],
    );
    expect(
        "for x y { let z = ) 1; h(z); }\n    let tile = @ 4;",
        &[
            "E0002 expected `in`, found `y`",
            "E0002 expected an expression, found `)`",
            "E0002 expected a name, `_` or `(`, found `tile`",
            "E0001 `@` cannot stand in a program",
        ],
    );
    let kernels = "\
kernel k(x: view<f32>[n], y view<f32>[n]) grid (i in n) { y[i] = x[i] }
kernel l(x: f32) { }
kernel m(x: view<f32>[n]) grid (i in n) { x[i] = 1;
schedule k { sm_80 { warps 4 } }
fn";
    let expected = [
        "E0002 expected `,`, `:` or `)`, found `view`",
        "E0002 a `;` is missing",
        "E0002 this kernel has no `grid`",
        "E0002 expected a statement or `}`, found `schedule`",
        "E0002 expected `:`, found `4`",
        "E0002 expected a name, found the end of the file",
    ];
    assert_eq!(titles(kernels), expected);
}

#[test]
fn text_that_is_no_token() {
    expect("let x = \"abc;", &["E0001 this string has no closing `\"`"]);
    expect("let x = a ~ b;", &["E0001 `~` cannot stand in a program"]);
    expect("let x = 12abc;", &["E0001 `12abc` is no number"]);
    expect("let x = 0xfg;", &["E0001 `0xfg` is no number"]);
    expect(
        "let x = \"\\q\";",
        &["E0001 `\\q` means nothing in a string"],
    );
    expect(
        "let x = 99999999999999999999;",
        &["E0004 the number `99999999999999999999` is too large"],
    );
    expect("let x = 1e999;", &["E0004 the number `1e999` is too large"]);
    assert_eq!(titles("\u{feff}fn f(x) = x;\r\n"), [] as [&str; 0]);
    assert_eq!(
        titles("fn größe(x) = x;"),
        ["E0001 `öß` cannot stand in a program"]
    );
}

#[test]
fn an_error_shows_its_place() {
    let shown = check("fn f(a) {\n    let x = a[0:4];\n}\n").2.join("\n");
    let expected = "\
error[E0002]: a slice is written with `..` or `+:`
 --> t.tess:2:16
  |
2 |     let x = a[0:4];
  |                ^
  |
  = help: write `a[i..j]` for constant bounds, `a[i +: N]` for N elements from any i, or `view a[i .. j]`";
    assert_eq!(shown, expected, "\n{shown}");
}

#[test]
fn numbers_and_positions() {
    let (tree, diagnostics, _) = check(
        "fn f(x) = x.0.1 + x.10 + 0xff_ff + 1_000 + 1.5e-3 + 2e4;\nfn g(x) { for i in 0..3 { x[1..2]; } }",
    );
    assert!(diagnostics.is_empty(), "{diagnostics:?}");
    let printed = print(&tree);
    assert!(
        printed.contains("x.0.1 + x.10 + 65535 + 1000 + 0.0015 + 20000.0;"),
        "{printed}"
    );
}

#[test]
fn documentation_survives() {
    let text = "//! The file.\n//!\n//! More.\n\n/// One.\n/// Two.\nfn f(x) = x;\n\n// no documentation\n//// neither\ninterface I {\n    /// Three.\n    fn g(x);\n}\n";
    let (tree, diagnostics, _) = check(text);
    assert!(diagnostics.is_empty());
    assert_eq!(tree.doc.as_deref(), Some("The file.\n\nMore."));
    assert_eq!(tree.items[0].doc.as_deref(), Some("One.\nTwo."));
    assert_eq!(tree.items[1].doc, None);
    assert!(print(&tree).contains("    /// Three.\n    fn g(x);"));
}

#[test]
fn instances() {
    let read = |text: &str| {
        let mut sources = SourceMap::default();
        let file = sources.add("instance", text);
        let mut diagnostics = Diagnostics::default();
        let instance = parse_instance(&sources, file, &mut diagnostics);
        assert_eq!(
            instance.is_none(),
            diagnostics.has_errors(),
            "{text}: {diagnostics:?}"
        );
        instance.map(|(path, cargs)| (path.segments.last().unwrap().name.clone(), cargs.len()))
    };
    assert_eq!(
        read("gemm_nt<bf16, BM = 64, E = Bias<bf16>>"),
        Some(("gemm_nt".into(), 3))
    );
    assert_eq!(read("axpy"), Some(("axpy".into(), 0)));
    for broken in [
        "",
        "axpy<",
        "axpy<bf16> x",
        "axpy<bf16",
        "3",
        "axpy<bf16,, 3>",
        "axpy\"",
        "kernel",
    ] {
        assert_eq!(read(broken), None, "{broken}");
    }
}

#[test]
fn deep_nesting_is_an_error() {
    let n = 100_000;
    let wrap = |inside: String| format!("fn f(x) {{ {inside} }}");
    let deep = [
        "(".repeat(n),
        wrap("(".repeat(n)),
        wrap(format!("{}x{}", "(".repeat(n), ")".repeat(n))),
        wrap(format!("let y = {}x;", "-".repeat(n))),
        wrap(format!("let y = {}x;", "!".repeat(n))),
        wrap(format!("let y = x{};", " + x".repeat(n))),
        wrap(format!("let y = x{};", " < x".repeat(n))),
        wrap(format!("let y = x{};", " as f32".repeat(n))),
        wrap(format!("let y = x{};", ".a(0)[1]".repeat(n))),
        wrap(format!("let y = x{};", ".0".repeat(n))),
        wrap("if x { ".repeat(n)),
        wrap(format!("if x {{ }} {}", "else if x { } ".repeat(n))),
        wrap(format!("let y = {} x;", "ptx() -> f32 else ".repeat(n))),
        wrap(format!("let y: {};", "A<".repeat(n))),
        wrap(format!("let y: {};", "A<B, ".repeat(n))),
        wrap(format!("let y: {};", "(f32, ".repeat(n))),
        wrap(format!("h({});", "g(}, ".repeat(n))),
        wrap(format!("h({});", "[a b, ".repeat(n))),
        wrap("put c { a(, ".repeat(n)),
    ];
    for text in &deep {
        let found = titles(text);
        assert_eq!(
            found,
            ["E0003 this is nested too deeply"],
            "{}",
            &text[..60]
        );
    }
    // What is broken but not deep, however long.
    for text in [
        "if ".repeat(n),
        "} ".repeat(n),
        "let = ; ".repeat(n),
        wrap("let = ; ".repeat(n)),
        wrap("a b ".repeat(n)),
        "fn ".repeat(n),
        "@ ".repeat(1000),
        "\"".repeat(n + 1),
    ] {
        let found = check(&text).1;
        assert!(found.has_errors() && found.iter().count() <= 1001);
    }
    let most = MAX_DEPTH as usize - 10;
    let (tree, diagnostics, _) = check(&wrap(format!("{}x{}", "(".repeat(most), ")".repeat(most))));
    assert!(diagnostics.is_empty() && tree.items.len() == 1);
}

fn samples() -> Vec<String> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/samples");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    files.sort();
    files
        .iter()
        .map(|p| std::fs::read_to_string(p).unwrap())
        .collect()
}

/// Pieces of programs, for soups of them.
const WORDS: &[&str] = &[
    "use",
    "const",
    "struct",
    "interface",
    "variant",
    "layout",
    "fn",
    "kernel",
    "schedule",
    "op",
    "test",
    "grid",
    "for",
    "where",
    "in",
    "until",
    "order",
    "let",
    "mut",
    "scatter",
    "if",
    "else",
    "while",
    "return",
    "assert",
    "launch",
    "call",
    "at",
    "channel",
    "depth",
    "release",
    "lag",
    "pingpong",
    "put",
    "roles",
    "warp",
    "regs",
    "view",
    "out",
    "tile",
    "as",
    "get",
    "await",
    "zeros",
    "full",
    "ptx",
    "inf",
    "_",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ";",
    ":",
    "::",
    ".",
    "..",
    "..=",
    "+:",
    "->",
    "?",
    "=",
    "+=",
    "||",
    "==",
    "<",
    ">",
    ">>",
    "+",
    "-",
    "*",
    "!",
    "x",
    "y",
    "f32",
    "1",
    "0.5",
    "0x1",
    "\"s\"",
    "\"",
    "@",
    "/// d\n",
    "// c\n",
    "\n",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        check(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn any_tokens(words in proptest::collection::vec(proptest::sample::select(WORDS), 0..200)) {
        check(&words.join(" "));
    }

    /// A sample with a few tokens removed, doubled or replaced.
    #[test]
    fn any_mutation(sample in 0usize..17, cuts in proptest::collection::vec((any::<proptest::sample::Index>(), 0usize..12, proptest::sample::select(WORDS)), 1..5)) {
        let mut text = samples().swap_remove(sample);
        for (at, len, word) in cuts {
            let start = text.floor_char_boundary(at.index(text.len()));
            let end = text.ceil_char_boundary((start + len).min(text.len()));
            text.replace_range(start..end, word);
        }
        let (tree, diagnostics, _) = check(&text);
        // What has no errors is a program: it prints, and reads back, as itself.
        if diagnostics.is_empty() {
            let printed = print(&tree);
            let (again, errors, _) = check(&printed);
            prop_assert!(errors.is_empty(), "{errors:?}\n{printed}");
            prop_assert_eq!(print(&again), printed);
        }
    }
}
