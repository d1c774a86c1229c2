//! Tests of Tess programs: `test` items.
//!
//! A test is run statement by statement. Its tensors are tiles whose shape is known; expressions over them are evaluated by
//! the interpreter at once, so that the reference that a kernel is compared with is Tess too. A `launch` runs a kernel on the
//! interpreter, and then, if there is a [`Device`], on that, and compares what both wrote.
//!
//! Invariants: a test is the same on every machine; a failure is a diagnostic at the test's own line; no test runs without
//! end.

mod compare;
mod launch;
mod random;
mod run;
mod tensors;

use tesserine_set::Signature;

use crate::{
    diagnostics::Diagnostics,
    interp,
    ir::{op::Op, tile},
    sema::{Module, Program, instance::with_stack},
    span::Span,
    syntax::ast,
    target::Target,
};

pub use compare::{Difference, Tolerance, compare};
pub(crate) use tensors::Tensors;

/// A test as it is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestInfo {
    pub name: String,
    pub span: Span,
    /// Which item of its module it is.
    item: usize,
}

/// What a test's launches run on.
pub struct Options<'d> {
    /// Whose schedules and bodies are taken.
    pub target: Target,
    /// Runs each launch after the interpreter has.
    pub device: Option<&'d dyn Device>,
}

/// How a test ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Passed,
    Failed(Diagnostics),
    /// It launches what is not for this target: the sentence says what.
    Ignored(String),
}

/// One launch of a test.
pub struct Launch<'a> {
    pub module: Module,
    /// The instance as it is written outside of source files: `gemm_nt<bf16, BM = 64>`.
    pub name: &'a str,
    pub what: What<'a>,
    pub target: Target,
}

/// A kernel, or an op with all that it launches.
#[derive(Clone, Copy)]
pub enum What<'a> {
    Kernel(&'a tile::Instance),
    Op(&'a Op),
}

impl What<'_> {
    pub fn signature(&self) -> &Signature {
        match self {
            What::Kernel(instance) => &instance.bodies[0].header.signature,
            What::Op(op) => &op.record.signature,
        }
    }

    /// Every body that a launch may run.
    fn bodies(&self) -> impl Iterator<Item = &tile::Kernel> {
        let (one, many) = match self {
            What::Kernel(instance) => (Some(*instance), &[][..]),
            What::Op(op) => (None, &op.instances[..]),
        };
        one.into_iter()
            .chain(many.iter().map(|l| &l.instance))
            .flat_map(|instance| &instance.bodies)
    }
}

/// Something other than the interpreter that launches kernels.
pub trait Device: Sync {
    /// Runs the launch; tensors that it writes change in place. The error is a sentence.
    fn launch(&self, launch: &Launch<'_>, args: &mut interp::Args) -> Result<(), String>;
}

/// The tests of a module, in source order.
pub fn tests(program: &Program, module: Module) -> Vec<TestInfo> {
    let items = program.ast(module).items.iter().enumerate();
    items
        .filter_map(|(item, i)| match &i.kind {
            ast::ItemKind::Test(test) => Some(TestInfo {
                name: test.name.name.clone(),
                span: test.name.span,
                item,
            }),
            _ => None,
        })
        .collect()
}

fn find<'p>(program: &'p Program, module: Module, test: &TestInfo) -> Option<&'p ast::Test> {
    match &program.ast(module).items.get(test.item)?.kind {
        ast::ItemKind::Test(item) => Some(item),
        _ => None,
    }
}

/// Runs a test of `module`.
pub fn run(program: &Program, module: Module, test: &TestInfo, options: &Options<'_>) -> Outcome {
    with_stack(|| match find(program, module, test) {
        Some(item) => run::Runner::new(program, module, options, run::Mode::Run).test(item),
        None => Outcome::Passed,
    })
}

/// The instances that a test launches, each once. Nothing is launched.
pub fn launches(
    program: &Program,
    module: Module,
    test: &TestInfo,
) -> Result<Vec<String>, Diagnostics> {
    with_stack(|| {
        let Some(item) = find(program, module, test) else {
            return Ok(Vec::new());
        };
        walk(program, module, item)
    })
}

/// Walks a test without running anything: its launches, or what is wrong with it.
pub(crate) fn walk(
    program: &Program,
    module: Module,
    test: &ast::Test,
) -> Result<Vec<String>, Diagnostics> {
    let options = Options {
        target: Target::ALL[0],
        device: None,
    };
    let mut runner = run::Runner::new(program, module, &options, run::Mode::Walk);
    match runner.walk(test) {
        Ok(()) => Ok(runner.launched),
        Err(diagnostics) => Err(diagnostics),
    }
}
