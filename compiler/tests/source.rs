//! Kernels as source again: what is printed stands alone, is right, and means the same.

use std::{collections::HashMap, path::Path};

use tesserine_compiler::{
    Session,
    diagnostics::{Diagnostics, render},
    emit::source,
    ir::tile,
    target::Target,
};

fn told(session: &Session, list: &Diagnostics) -> String {
    let texts = list.iter().map(|d| render(d, session.sources(), false));
    texts.collect()
}

fn target() -> Target {
    Target::parse("sm_90a").expect("a target")
}

fn made(file: &str, instance: &str) -> (Session, tile::Instance) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut session = Session::new();
    let made = session
        .load(&root.join(file), None)
        .and_then(|module| session.instantiate(module, instance, target()));
    let made = made.unwrap_or_else(|e| panic!("{instance} of {file}: {}", told(&session, &e)));
    (session, made)
}

/// The body of the kernel of a printed file.
fn read_back(text: &str, name: &str) -> (Session, tile::Kernel) {
    let mut session = Session::new();
    let module = session.load_text("printed.tess", text);
    let module = module.unwrap_or_else(|e| panic!("{}\n{text}", told(&session, &e)));
    let checked = session.check(module);
    assert!(
        !checked.has_errors(),
        "{}\n{text}",
        told(&session, &checked)
    );
    let made = session.instantiate(module, name, target());
    let made = made.unwrap_or_else(|e| panic!("{}\n{text}", told(&session, &e)));
    let body = made.bodies.into_iter().next().expect("a body");
    (session, body)
}

/// Tile IR without what is said of the launch, which `where` says otherwise. Constants and what the launch gives stand where they are used:
/// the order in which they are first met means nothing.
fn operations(kernel: &tile::Kernel) -> String {
    let text = kernel.to_string();
    let said = ["kernel ", "  fact ", "  require ", "  param "];
    let given = ["constant ", "param ", "dim ", "grid "];
    let mut names: HashMap<String, String> = HashMap::new();
    let (mut out, mut count) = (String::new(), 0);
    for line in text
        .lines()
        .filter(|l| !said.iter().any(|s| l.starts_with(s)))
    {
        if let Some((value, what)) = line.trim().split_once(" = ")
            && given.iter().any(|g| what.starts_with(g))
        {
            names.insert(value.to_owned(), format!("<{what}>"));
            continue;
        }
        let mut rest = line;
        while let Some(at) = rest.find('%') {
            out.push_str(&rest[..at]);
            let end = rest[at + 1..].find(|c: char| !c.is_ascii_digit());
            let end = end.map_or(rest.len(), |e| at + 1 + e);
            let next = format!("%{count}");
            let name = names.entry(rest[at..end].to_owned()).or_insert_with(|| {
                count += 1;
                next
            });
            out.push_str(name);
            rest = &rest[end..];
        }
        out.push_str(rest);
        out.push('\n');
    }
    out
}

/// The first lines in which two texts differ.
fn difference(a: &str, b: &str) -> Option<String> {
    let at = a.lines().zip(b.lines()).position(|(x, y)| x != y);
    let at = match at {
        None if a.lines().count() == b.lines().count() => return None,
        None => a.lines().count().min(b.lines().count()),
        Some(at) => at,
    };
    let around = |t: &str| {
        let lines = t.lines().skip(at.saturating_sub(4)).take(9);
        lines.collect::<Vec<_>>().join("\n")
    };
    Some(format!("{}\n--- and\n{}", around(a), around(b)))
}

/// Prints each body of an instance, and reads it.
fn comes_back(file: &str, instance: &str) {
    let (session, made) = made(file, instance);
    for (i, kernel) in made.bodies.iter().enumerate() {
        let text = source::print(kernel, target());
        let text = text.unwrap_or_else(|e| panic!("{instance}: {}", told(&session, &e)));
        let name = instance.split('<').next().expect("a name");
        let (own, back) = read_back(&text, name);
        if let Some(which) = difference(&operations(kernel), &operations(&back)) {
            panic!("body {i} of {instance} comes back otherwise:\n{which}\n\n{text}");
        }
        same_code(&session, kernel, &own, &back, instance);
    }
}

/// PTX without what names the source and the entry.
#[cfg(feature = "llvm")]
fn same_code(
    session: &Session,
    kernel: &tile::Kernel,
    own: &Session,
    back: &tile::Kernel,
    instance: &str,
) {
    use tesserine_compiler::emit::stage;
    let plain = |session: &Session, kernel: &tile::Kernel| {
        let module = stage::compile(kernel, target(), session.sources()).ok()?;
        let entry = module.entry.clone();
        let lines = module.ptx.lines().map(str::trim_end).filter(|l| {
            let t = l.trim_start();
            !(t.starts_with(".loc") || t.starts_with(".file") || t.starts_with("//"))
        });
        let text: Vec<String> = lines
            .map(|l| {
                l.split("//")
                    .next()
                    .unwrap_or(l)
                    .trim_end()
                    .replace(&entry, "entry")
            })
            .collect();
        Some(text.join("\n"))
    };
    let (a, b) = (plain(session, kernel), plain(own, back));
    // What is not compiled yet is neither.
    assert_eq!(a.is_some(), b.is_some(), "{instance}");
    if let (Some(a), Some(b)) = (a, b)
        && let Some(which) = difference(&a, &b)
    {
        panic!("the code of {instance} is another:\n{which}");
    }
}

#[cfg(not(feature = "llvm"))]
fn same_code(_: &Session, _: &tile::Kernel, _: &Session, _: &tile::Kernel, _: &str) {}

#[test]
fn products_come_back() {
    comes_back("tests/samples/gemm.tess", "gemm_nt<bf16>");
    comes_back("tests/samples/gemm.tess", "gemm_nt_pair<f16>");
    comes_back("tests/samples/gemm_fp8_block.tess", "gemm_fp8_block");
    comes_back("tests/samples/gemm_fp4.tess", "gemm_w4a16<bf16>");
}

#[test]
fn groups_come_back() {
    comes_back(
        "tests/samples/grouped_gemm.tess",
        "grouped_gemm<bf16, E = 8>",
    );
}

#[test]
fn attention_comes_back() {
    let file = "tests/samples/attention_prefill.tess";
    comes_back(file, "prefill<bf16, DQ = 64, DV = 64, PP = true>");
    comes_back(
        file,
        "prefill<f16, DQ = 128, DV = 128, G = 4, CAUSAL = false, PP = false>",
    );
    comes_back("tests/samples/mla_decode.tess", "mla_decode<bf16, P = 64>");
}

#[test]
fn kernels_of_the_conformance_tests_come_back() {
    let file = "tests/conformance/tiles/roles.tess";
    for instance in [
        "specialised<f16>",
        "drawn<bf16>",
        "handed_on<f16>",
        "parts_of_slots<bf16>",
    ] {
        comes_back(file, instance);
    }
}
