//! Each stage of one instance of each kernel, and its PTX for each target.

use tesserine_compiler::{
    Session,
    diagnostics::{self, Diagnostics},
    emit::stage,
    ir::tile,
    span::SourceMap,
    syntax,
    target::Target,
};
use tesserine_snapshots::{chosen, default_set, kernel_name, root, snapshot, target};

fn told<T>(result: Result<T, Diagnostics>, sources: &SourceMap) -> T {
    result.unwrap_or_else(|diagnostics| {
        let text: Vec<String> = diagnostics
            .iter()
            .map(|d| diagnostics::render(d, sources, false))
            .collect();
        panic!("{}", text.join("\n"))
    })
}

/// Calls `each` with every chosen instance for each of `targets`.
fn instances(targets: &[Target], each: impl Fn(&Session, &str, Target, &tile::Instance)) {
    let set = default_set();
    let mut session = Session::new();
    for (kernel, instance) in chosen(&set) {
        let loaded = session.load(&set.folder.join(&kernel.source), Some(&set.folder));
        let module = told(loaded, session.sources());
        // What an op launches stands in the list of figures.
        if session.is_op(module, instance) {
            continue;
        }
        for &target in targets {
            let made = told(
                session.instantiate(module, instance, target),
                session.sources(),
            );
            each(&session, kernel_name(instance), target, &made);
        }
    }
}

#[test]
fn trees() {
    let set = default_set();
    for kernel in &set.kernels {
        let text =
            std::fs::read_to_string(root().join("kernels-dsl").join(&kernel.source)).unwrap();
        let mut sources = SourceMap::default();
        let file = sources.add(kernel.source.as_str(), text);
        let mut diagnostics = Diagnostics::default();
        let tree = syntax::parse(&sources, file, &mut diagnostics);
        assert!(diagnostics.is_empty(), "{}", kernel.source);
        let name = kernel.source.replace(".tess", "").replace('/', "_");
        snapshot(
            "stages",
            &format!("{name}.ast"),
            &syntax::dump(&tree, &sources),
        );
    }
}

#[test]
fn tile_ir() {
    instances(&[target()], |_, name, _, made| {
        let text = stage::body(made, false).to_string();
        snapshot("stages", &format!("{name}.ir"), &text);
    });
}

#[test]
fn role_ir() {
    instances(&[target()], |session, name, target, made| {
        let text = told(
            stage::roles(stage::body(made, false), target),
            session.sources(),
        );
        snapshot("stages", &format!("{name}.roles"), &text);
    });
}

#[test]
fn layouts() {
    instances(&[target()], |session, name, target, made| {
        let text = told(
            stage::layout(stage::body(made, false), target),
            session.sources(),
        );
        snapshot("stages", &format!("{name}.layout"), &text);
    });
}

#[test]
fn llvm_ir() {
    instances(&[target()], |session, name, target, made| {
        let compiled = stage::compile(stage::body(made, false), target, session.sources());
        let text = told(compiled, session.sources()).llvm_ir;
        snapshot("stages", &format!("{name}.llvm"), &text);
    });
}

#[test]
fn ptx_for_each_target() {
    instances(&Target::ALL, |session, name, target, made| {
        let compiled = stage::compile(stage::body(made, false), target, session.sources());
        let text = told(compiled, session.sources()).ptx;
        let line = format!(".target {}", target.name());
        assert!(text.contains(&line), "{name}: no `{line}`");
        snapshot("ptx", &format!("{name}.{}", target.name()), &text);
    });
}
