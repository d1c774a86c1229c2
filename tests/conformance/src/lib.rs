//! Conformance: every kernel against a plain reference in f64, on any device.
//!
//! A [`Case`] names an instance, shapes, memory layout and values; [`Case::build`] makes its arguments and, by code that
//! shares nothing with the compiler, what each output must hold. A [`Backend`] runs the instance: the interpreter, or a
//! GPU through a kernel set. [`check`] then compares every element, and every byte around them.
//!
//! Invariants: a reference starts from the same narrow inputs as the kernel; outputs start as canaries and gaps hold NaN,
//! so that what is unwritten, and what is read out of place, shows; a case is the same bits on every machine.

pub mod backend;
mod cases;
mod gemm;
mod reference;
mod tensor;
mod values;

pub use backend::{Backend, Refusal};
pub use cases::{Arg, Case, Layout, Op, Problem, Tier, Values, cases, sanitizer_cases};
pub use gemm::{Epilogue, Product};
pub use tensor::Tensor;

/// What became of a case.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Every output is within the tolerance; the largest error as a share of what is allowed.
    Passed(f64),
    /// It cannot run on this backend, and why.
    Skipped(String),
    Failed(String),
}

/// Runs `case` on `backend` and compares all outputs.
pub fn check(case: &Case, backend: &mut dyn Backend) -> Verdict {
    let mut problem = case.build();
    let before: Vec<Arg> = problem.args.iter().map(|(_, arg)| arg.clone()).collect();
    match backend.run(case.op.source(), &case.instance(), &mut problem.args) {
        Ok(()) => {}
        Err(Refusal::Skipped(why)) => return Verdict::Skipped(why),
        Err(Refusal::Failed(why)) => return Verdict::Failed(why),
    }
    match problem.compare(&before) {
        Ok(worst) => Verdict::Passed(worst),
        Err(why) => Verdict::Failed(why),
    }
}
