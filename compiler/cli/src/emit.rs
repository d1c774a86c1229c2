//! `tess emit`: one stage of one kernel, or of all that an op launches.

use tesserine_compiler::{
    Session,
    diagnostics::Diagnostics,
    emit::{self, stage},
    ir::tile,
    passes::PASSES,
    span::SourceMap,
    syntax,
    target::Target,
};

use crate::{
    args::{Emit, Stage},
    failure::{Failure, report},
    source, terminal,
};

pub fn run(args: &Emit) -> Result<(), Failure> {
    let target = source::target(&args.target)?;
    for pass in &args.dump_after {
        if pass != "all" && !PASSES.iter().any(|p| p.name == *pass) {
            let known: Vec<&str> = PASSES.iter().map(|p| p.name).collect();
            return Err(Failure::Usage(format!(
                "there is no pass `{pass}`; the passes are {}, and `all` means each",
                known.join(", ")
            )));
        }
    }
    let stage = match args.stage {
        Some(stage) => Some(stage),
        None if args.dump_after.is_empty() => Some(Stage::Ptx),
        None => None,
    };
    source::readable(&args.file)?;
    if stage == Some(Stage::Ast) && args.dump_after.is_empty() {
        return ast(args);
    }
    let mut session = Session::new();
    let module = source::load(&mut session, &args.file)?;
    if session.is_op(module, &args.kernel) {
        let op = session.instantiate_op(module, &args.kernel, target);
        let op = source::reported(&session, op)?;
        let text = op.to_string();
        for line in text.trim_end().lines() {
            terminal::print(format_args!("// {line}\n"))?;
        }
        for launched in &op.instances {
            terminal::print(format_args!("\n// {}\n", launched.instance.name))?;
            one(args, &session, &launched.instance, target, stage)?;
        }
        return Ok(());
    }
    let instance = source::instantiate(&session, module, &args.kernel, target)?;
    one(args, &session, &instance, target, stage)
}

/// One kernel.
fn one(
    args: &Emit,
    session: &Session,
    instance: &tile::Instance,
    target: Target,
    stage: Option<Stage>,
) -> Result<(), Failure> {
    let kernel = stage::body(instance, args.general);
    if !args.dump_after.is_empty() {
        let wanted = |name: &str| args.dump_after.iter().any(|p| p == name || p == "all");
        let dumps = source::reported(session, stage::after_passes(kernel, target, wanted))?;
        for (pass, text) in dumps {
            terminal::print(format_args!("// after {pass}\n{}\n\n", text.trim_end()))?;
        }
    }
    let text = match stage {
        None => return Ok(()),
        Some(Stage::Ast) => return ast(args),
        Some(Stage::Ir) => kernel.to_string(),
        Some(Stage::Roles) => source::reported(session, emit::source::print(kernel, target))?,
        Some(Stage::RoleIr) => source::reported(session, stage::roles(kernel, target))?,
        Some(Stage::Layout) => source::reported(session, stage::layout(kernel, target))?,
        Some(stage @ (Stage::Llvm | Stage::Ptx | Stage::Sass)) => {
            code(session, kernel, target, stage)?
        }
    };
    terminal::print(format_args!("{}\n", text.trim_end()))
}

fn ast(args: &Emit) -> Result<(), Failure> {
    let text = std::fs::read_to_string(&args.file)
        .map_err(|error| Failure::file("read", &args.file, error))?;
    let name = args.file.file_name().unwrap_or_default().to_string_lossy();
    let mut sources = SourceMap::default();
    let file = sources.add(name, text);
    let mut diagnostics = Diagnostics::default();
    let tree = syntax::parse(&sources, file, &mut diagnostics);
    report(&diagnostics, &sources);
    let text = syntax::dump(&tree, &sources);
    terminal::print(format_args!("{}\n", text.trim_end()))?;
    if diagnostics.has_errors() {
        Err(Failure::Reported)
    } else {
        Ok(())
    }
}

#[cfg(feature = "llvm")]
fn code(
    session: &Session,
    kernel: &tesserine_compiler::ir::tile::Kernel,
    target: tesserine_compiler::target::Target,
    wanted: Stage,
) -> Result<String, Failure> {
    let module = source::reported(session, stage::compile(kernel, target, session.sources()))?;
    match wanted {
        Stage::Llvm => Ok(module.llvm_ir),
        Stage::Sass => {
            stage::sass(&module, target).map_err(|error| Failure::Failed(error.to_string()))
        }
        _ => Ok(module.ptx),
    }
}

#[cfg(not(feature = "llvm"))]
fn code(
    _: &Session,
    _: &tesserine_compiler::ir::tile::Kernel,
    _: tesserine_compiler::target::Target,
    _: Stage,
) -> Result<String, Failure> {
    Err(source::no_code("this stage"))
}
