//! What is done with an input.
//!
//! Invariants: the same input gives the same calls; everything that may run long has a limit.

use tesserine_compiler::{
    Session,
    diagnostics::{self, Diagnostics},
    interp::{self, Arg, Args, Limits, Tensor},
    ir::{role, tile},
    passes, sema,
    span::SourceMap,
    syntax, target,
};
use tesserine_set::{Env, ParamKind, ScalarValue};

/// A part of the compiler that reads text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Tokens, trees, the two printers, the formatter.
    Syntax,
    /// Names, types, instances, and the passes on what is sound.
    Check,
    /// Both levels of the IR as text: parser, verifier, printer.
    Ir,
    /// Kernels, from source or IR, on the interpreter.
    Interpret,
}

/// No extent of an argument is larger, nor has a tensor more elements.
const MAX_ELEMENTS: i64 = 1 << 12;

const LIMITS: Limits = Limits {
    steps: 1 << 16,
    elements: 1 << 20,
    bytes: 256 << 20,
    seed: 0,
};

impl Target {
    pub const ALL: [Target; 4] = [Target::Syntax, Target::Check, Target::Ir, Target::Interpret];

    pub fn name(self) -> &'static str {
        match self {
            Target::Syntax => "syntax",
            Target::Check => "check",
            Target::Ir => "ir",
            Target::Interpret => "interpret",
        }
    }

    /// Feeds `bytes` to it.
    pub fn run(self, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        match self {
            Target::Syntax => syntax(&text),
            Target::Check => check(&text),
            Target::Ir => ir(&text),
            Target::Interpret if text.starts_with("kernel \"") => interpret_ir(&text),
            Target::Interpret => interpret(&text),
        }
    }
}

/// All that is said of errors, which must be possible to say.
fn rendered(list: &Diagnostics, sources: &SourceMap) {
    for diagnostic in list.iter() {
        assert!(!diagnostics::render(diagnostic, sources, false).is_empty());
        diagnostics::to_json(diagnostic, sources);
    }
}

fn syntax(text: &str) {
    let mut sources = SourceMap::default();
    let file = sources.add("input.tess", text);
    let mut list = Diagnostics::default();
    let tree = syntax::parse(&sources, file, &mut list);
    rendered(&list, &sources);
    assert!(!syntax::dump(&tree, &sources).is_empty() || tree.items.is_empty());
    syntax::parse_instance(&sources, file, &mut Diagnostics::default());
    if list.has_errors() {
        return;
    }
    let printed = syntax::print(&tree);
    let mut again = SourceMap::default();
    let file = again.add("printed.tess", printed.as_str());
    let mut list = Diagnostics::default();
    let tree = syntax::parse(&again, file, &mut list);
    assert!(
        !list.has_errors(),
        "what was printed does not parse\n{printed}"
    );
    assert_eq!(syntax::print(&tree), printed, "printed twice");

    let file = sources.add("input.tess", text);
    let formatted = syntax::format(&sources, file).expect("what parses is formatted");
    let file = sources.add("formatted.tess", formatted.as_str());
    let twice = syntax::format(&sources, file).expect("what was formatted parses");
    assert_eq!(formatted, twice, "formatted twice");
}

fn check(text: &str) {
    let mut session = Session::new();
    let module = match session.load_text("input.tess", text) {
        Ok(module) => module,
        Err(list) => return rendered(&list, session.sources()),
    };
    let list = session.check(module);
    rendered(&list, session.sources());
    if list.has_errors() {
        return;
    }
    for name in instances(&session, module) {
        let target = target::Target::ALL[text.len() % target::Target::ALL.len()];
        match session.instantiate(module, &name, target) {
            Err(list) => rendered(&list, session.sources()),
            Ok(instance) => {
                for body in &instance.bodies {
                    if let Err(list) = passes::lower(body, &target) {
                        rendered(&list, session.sources());
                    }
                }
            }
        }
    }
}

fn ir(text: &str) {
    if let Ok(kernel) = tile::parse(text) {
        let printed = kernel.to_string();
        let again = tile::parse(&printed).expect("printed tile IR parses");
        assert_eq!(again.to_string(), printed);
        let _ = tile::verify(&kernel);
    }
    if let Ok(kernel) = role::parse(text) {
        let printed = kernel.to_string();
        let again = role::parse(&printed).expect("printed role IR parses");
        assert_eq!(again.to_string(), printed);
        let _ = role::verify(&kernel);
    }
}

fn interpret_ir(text: &str) {
    let Ok(kernel) = tile::parse(text) else {
        return;
    };
    if tile::verify(&kernel).is_ok() {
        let name = kernel.header.name.clone();
        launch(&tile::Instance {
            tune: Vec::new(),
            name,
            bodies: vec![kernel],
        });
    }
}

fn interpret(text: &str) {
    let mut session = Session::new();
    let Ok(module) = session.load_text("input.tess", text) else {
        return;
    };
    for name in instances(&session, module) {
        if let Ok(instance) = session.instantiate(module, &name, target::Target::ALL[4]) {
            launch(&instance);
        }
    }
}

/// An instance of each kernel whose parameters can be guessed.
fn instances(session: &Session, module: sema::Module) -> Vec<String> {
    let mut out = Vec::new();
    'kernels: for kernel in session.kernels(module) {
        let mut cargs = Vec::new();
        for cparam in &kernel.cparams {
            if cparam.default.is_some() {
                continue;
            }
            let value = match (cparam.kind.as_str(), &cparam.allowed) {
                (_, Some(allowed)) if !allowed.is_empty() => allowed[0].clone(),
                ("dtype", _) => "f32".into(),
                ("int", _) => "8".into(),
                ("bool", _) => "true".into(),
                _ => continue 'kernels,
            };
            cargs.push(format!("{} = {value}", cparam.name));
        }
        out.push(match cargs.is_empty() {
            true => kernel.name,
            false => format!("{}<{}>", kernel.name, cargs.join(", ")),
        });
    }
    out
}

/// Runs an instance on zeros, every dimension and scalar 3.
fn launch(instance: &tile::Instance) {
    let Some(body) = instance.bodies.first() else {
        return;
    };
    let signature = &body.header.signature;
    let dims = vec![3; signature.dims.len()];
    let scalars = vec![3; signature.params.len()];
    let given = vec![true; signature.params.len()];
    let env = Env {
        dims: &dims,
        scalars: &scalars,
        given: &given,
        multiprocessors: 1,
    };
    let mut args = Args::default();
    for param in &signature.params {
        let arg = match &param.kind {
            ParamKind::View(view) => {
                let mut shape = Vec::new();
                for extent in &view.extents {
                    match extent.eval(&env) {
                        Ok(n) if (0..=MAX_ELEMENTS).contains(&n) => shape.push(n as usize),
                        _ => return,
                    }
                }
                if shape.iter().product::<usize>() > MAX_ELEMENTS as usize {
                    return;
                }
                match Tensor::zeros(view.dtype, shape) {
                    Ok(tensor) => Arg::Tensor(tensor),
                    Err(_) => return,
                }
            }
            ParamKind::Scalar { .. } => Arg::Scalar(ScalarValue::Int(3)),
        };
        args.insert(param.name.clone(), arg);
    }
    match interp::launch_within(instance, &mut args, LIMITS) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(report) => {
            for unwritten in report.unwritten {
                assert!(unwritten.count > 0);
            }
        }
    }
}
