//! All cases on the device that the environment names: the interpreter, unless `$TESS_DEVICE` says otherwise.

use tesserine_conformance::{Case, Op, Tier, Verdict, backend, cases, check};

/// Runs the cases of `op` and lists all that fail.
fn run(op: Op) {
    run_where(|case| case.op == op);
}

fn run_where(chosen: impl Fn(&Case) -> bool) {
    let choice = backend::choice_from_env().unwrap();
    let last = if choice.is_device() {
        Tier::Device
    } else {
        Tier::Core
    };
    let mut device = choice.open().unwrap();
    let list: Vec<Case> = cases()
        .into_iter()
        .filter(|case| chosen(case) && case.tier <= last)
        .collect();
    let mut passed = 0;
    let mut failures = Vec::new();
    for case in list {
        match check(&case, device.as_mut()) {
            Verdict::Passed(_) => passed += 1,
            Verdict::Skipped(_) => {}
            Verdict::Failed(why) => failures.push(format!("{case}: {why}")),
        }
    }
    assert!(
        failures.is_empty(),
        "{} failed, {passed} passed:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(passed > 0, "every case was skipped");
}

#[test]
fn axpy() {
    run(Op::Axpy);
}

#[test]
fn transpose() {
    run(Op::Transpose);
}

#[test]
fn rmsnorm() {
    run(Op::RmsNorm);
}

#[test]
fn fused_add_rmsnorm() {
    run(Op::FusedAddRmsNorm);
}

#[test]
fn layernorm() {
    run(Op::LayerNorm);
}

#[test]
fn softmax() {
    run(Op::Softmax);
}

#[test]
fn silu_and_mul() {
    run(Op::SiluAndMul);
}

#[test]
fn gelu_tanh_and_mul() {
    run(Op::GeluTanhAndMul);
}

#[test]
fn gemm_nt() {
    run_where(|case| matches!(case.op, Op::Gemm(_)));
}
