//! Every wrong program of `tests/diagnostics` with what is said of it, and what no message may say.
//!
//! Lines of comments at a program's head say what to do with it: `// instance: k<f16>` makes an instance, for the target of
//! `// target: sm_75` if that matters; `// run: k<f16>` runs one on the interpreter, every dimension 5, every element and scalar 0; `// test` runs the
//! file's tests; otherwise the file is checked as `tess check` does. `// expect: E0101, E0203` lists the codes that must be said.

use std::{collections::BTreeSet, fs, path::PathBuf};

use tesserine_compiler::{
    Module, Session,
    diagnostics::{self, Diagnostic, Diagnostics, codes},
    interp::{self, Arg, Limits, Tensor},
    ir::tile,
    passes,
    target::Target,
    testing::{Options, Outcome},
};
use tesserine_set::{Env, ParamKind, ScalarValue};
use tesserine_snapshots::{root, snapshot, target};

/// Names of the compiler's own parts and of the libraries that it is made of.
const FORBIDDEN: &[&str] = &[
    "ValueId",
    "OpId",
    "OpKind",
    "RegionId",
    "Region",
    "FileId",
    "DType",
    "Formula",
    "TileType",
    "Told",
    "lalrpop",
    "logos",
    "LLVM",
    "llvm",
    "inkwell",
    "cranelift",
    "petgraph",
    "Some(",
    "Ok(",
    "Err(",
    "unwrap",
    "panicked",
    "sema",
    "AST",
    "SSA",
    "todo",
    "tesserine",
    "rustc",
    "Rust",
    "IR",
    "usize",
    "Vec",
];

struct Wrong {
    name: String,
    text: String,
    list: Vec<Diagnostic>,
    rendered: String,
}

fn programs() -> Vec<Wrong> {
    let folder = root().join("tests/diagnostics");
    let mut paths: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "tess"))
        .collect();
    paths.sort();
    paths.into_iter().map(wrong).collect()
}

fn wrong(path: PathBuf) -> Wrong {
    let bytes = fs::read(&path).unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let mut session = Session::new();
    let loaded = session.load(&path, None);
    let list = diagnose(&session, loaded, &text);
    let rendered: Vec<String> = list
        .iter()
        .map(|d| diagnostics::render(d, session.sources(), false))
        .collect();
    Wrong {
        name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
        text,
        list: list.into_iter().collect(),
        rendered: rendered.join("\n\n"),
    }
}

/// What follows `// key: ` in the comments at a program's head.
fn header<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines()
        .map_while(|line| line.strip_prefix("// "))
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(": "))
        .map(str::trim)
}

fn diagnose(session: &Session, loaded: Result<Module, Diagnostics>, text: &str) -> Diagnostics {
    let module = match loaded {
        Ok(module) => module,
        Err(list) => return list,
    };
    if let Some(instance) = header(text, "run") {
        return match session.instantiate(module, instance, target()) {
            Err(list) => list,
            Ok(made) => run(&made),
        };
    }
    if text.starts_with("// test\n") {
        let options = Options {
            target: target(),
            device: None,
        };
        let mut list = Diagnostics::default();
        for test in session.tests(module) {
            if let Outcome::Failed(diagnostics) = session.run_test(module, &test, &options) {
                list.extend(diagnostics);
            }
        }
        return list;
    }
    let Some(instance) = header(text, "instance") else {
        return session.check(module);
    };
    let target = header(text, "target").map_or_else(target, |name| Target::parse(name).unwrap());
    match session.instantiate(module, instance, target) {
        Err(list) => list,
        // What only a target's limits refuse is found while lowering.
        Ok(made) => made
            .bodies
            .iter()
            .find_map(|body| passes::lower(body, &target).err())
            .unwrap_or_default(),
    }
}

/// Runs an instance on tensors of zeros.
fn run(instance: &tile::Instance) -> Diagnostics {
    let header = &instance.bodies[0].header;
    let signature = &header.signature;
    let dims = vec![5; signature.dims.len()];
    let zeros = vec![0; signature.params.len()];
    let given = vec![true; signature.params.len()];
    let env = Env {
        dims: &dims,
        scalars: &zeros,
        given: &given,
        multiprocessors: 1,
    };
    let mut args = interp::Args::default();
    for param in &signature.params {
        let arg = match &param.kind {
            ParamKind::View(view) => {
                let shape = view.extents.iter().map(|e| e.eval(&env).unwrap() as usize);
                Arg::Tensor(Tensor::zeros(view.dtype, shape.collect()).unwrap())
            }
            ParamKind::Scalar { .. } => Arg::Scalar(ScalarValue::Int(0)),
        };
        args.insert(param.name.clone(), arg);
    }
    let mut list = Diagnostics::default();
    let limits = Limits {
        steps: 1 << 20,
        ..Limits::default()
    };
    match interp::launch_within(instance, &mut args, limits) {
        Err(error) => list.push(error.diagnostic(header.span)),
        Ok(report) => {
            for unwritten in report.unwritten {
                list.push(unwritten.diagnostic(header.span));
            }
        }
    }
    list
}

#[test]
fn every_wrong_program_is_told_what_is_wrong() {
    for wrong in programs() {
        assert!(
            !wrong.list.is_empty(),
            "{}: nothing is wrong with it",
            wrong.name
        );
        for code in header(&wrong.text, "expect")
            .iter()
            .flat_map(|codes| codes.split(','))
        {
            assert!(
                wrong.list.iter().any(|d| d.code.as_str() == code.trim()),
                "{}: {code} is not said",
                wrong.name
            );
        }
        let text = format!("{}\n----\n{}\n", wrong.text.trim_end(), wrong.rendered);
        snapshot("diagnostics", &wrong.name, &text);
    }
}

#[test]
fn messages_speak_the_language_of_the_author() {
    for wrong in programs() {
        for d in &wrong.list {
            let said = [&d.title, &d.primary.1]
                .into_iter()
                .chain(d.labels.iter().map(|(_, text)| text))
                .chain(&d.notes)
                .chain(&d.help);
            for text in said {
                let words: Vec<&str> = text
                    .split(|c: char| !(c.is_alphanumeric() || c == '_'))
                    .collect();
                for name in FORBIDDEN {
                    let found = if name.ends_with('(') {
                        text.contains(name)
                    } else {
                        words.contains(name)
                    };
                    assert!(!found, "{}: `{name}` in `{text}`", wrong.name);
                }
                let value = text
                    .split('%')
                    .skip(1)
                    .any(|after| after.starts_with(|c: char| c.is_ascii_digit()));
                assert!(!value, "{}: a value's number in `{text}`", wrong.name);
                let lower = text.to_lowercase();
                assert!(
                    !lower.starts_with("error") && !lower.contains("error: "),
                    "{}: the prefix is said twice: {text}",
                    wrong.name
                );
            }
            assert!(
                !d.title.ends_with('.') && !d.title.is_empty(),
                "{}: a title is a sentence without a full stop: {}",
                wrong.name,
                d.title
            );
        }
    }
}

#[test]
fn every_code_has_a_page_and_a_program() {
    let said: BTreeSet<&str> = programs()
        .iter()
        .flat_map(|wrong| wrong.list.iter().map(|d| d.code.as_str()))
        .collect();
    let mut missing = Vec::new();
    for (code, summary, page) in codes::ALL {
        let code = code.as_str();
        assert!(!summary.is_empty(), "{code} has no summary");
        assert!(
            page.lines().next().is_some_and(|line| line.contains(code))
                && page.lines().count() >= 5,
            "docs/errors/{code}.md is no page: what it means, a wrong example, the fix"
        );
        if !said.contains(code) && !UNREACHABLE.contains(&code) {
            missing.push(code);
        }
    }
    assert!(
        missing.is_empty(),
        "no program in tests/diagnostics provokes {missing:?}"
    );
    // And no page without a code.
    for entry in fs::read_dir(root().join("docs/errors")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let code = name.trim_end_matches(".md");
        assert!(
            codes::explain(code).is_some() || code == "README",
            "docs/errors/{name} explains no code"
        );
    }
}

/// Where the statements of a page's example stand.
const AROUND: (&str, &str) = (
    "kernel example<T: dtype = f16, B: int = 64>(
    x: view<f32>[m, n], h: view<T>[m, n], v: view<f32>[n], ids: view<i32>[k], p: view<i32>[b + 1] sorted,
    y: out view<f32>[m, n], z: out view<f32>[n], c: mut view<i32>[n], lse?: out view<f32>[m], s: f32, limit: i32,
) grid (i in ceil_div(m, 16), j in ceil_div(n, 64))
{\n",
    "}\n",
);

/// Pages whose example is no program, or a program only with others.
const NO_EXAMPLE: &[&str] = &[
    "E0003", "E0105", "E0501", "E0502", "E0610", "E0690", "E0805", "E0806", "E0812",
];

#[test]
fn the_example_of_every_page_is_wrong_as_it_says() {
    let mut wrong = Vec::new();
    for (code, _, page) in codes::ALL {
        if NO_EXAMPLE.contains(&code.as_str()) {
            continue;
        }
        let example = page
            .split_once("```tess\n")
            .and_then(|(_, rest)| rest.split_once("```"))
            .map(|(example, _)| example);
        let Some(example) = example else {
            wrong.push(format!("{code}: no example"));
            continue;
        };
        let item = [
            "//",
            "kernel ",
            "fn ",
            "op ",
            "test ",
            "const ",
            "use ",
            "interface ",
            "variant ",
            "struct ",
            "layout ",
            "schedule ",
        ];
        let text = if item.iter().any(|word| example.starts_with(word)) {
            example.to_owned()
        } else {
            format!("{}{example}{}", AROUND.0, AROUND.1)
        };
        let text = match text.contains("test ") {
            true => format!("// test\n{text}"),
            false => text,
        };
        let mut session = Session::new();
        let loaded = session.load_text("example.tess", &text);
        let list = diagnose(&session, loaded, &text);
        let codes: BTreeSet<&str> = list.iter().map(|d| d.code.as_str()).collect();
        if codes != BTreeSet::from([code.as_str()]) {
            wrong.push(format!("{code}: {codes:?}\n{text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Codes that no program is known to provoke: instructions that the language reaches only by operations not compiled yet, code
/// generation that fails, blocks that race though the race check let the kernel pass.
const UNREACHABLE: &[&str] = &["E0610", "E0690", "E0805", "E0812"];
