//! Tests of Tess programs: what passes, what fails, and what a failure says.

use tesserine_compiler::{
    Session,
    diagnostics::{Diagnostics, render},
    target::Target,
    testing::{Device, Launch, Options, Outcome, What},
};

const KERNELS: &str = "
interface Epilogue { fn apply(self, x) = x; }
variant Identity: Epilogue { }
variant Scaled: Epilogue { by: f32, add: view<f32>[n]  fn apply(self, x) = x * self.by + self.add[0 +: 16]; }
kernel half<T: dtype = f32, E: Epilogue = Identity>(x: view<T>[n], y: out view<T>[n], e: E, f: f32 = 0.5)
grid (i in ceil_div(n, 16)) {
    y[i*16 +: 16] = e.apply((x[i*16 +: 16] as f32) * f) as T;
}
kernel first_rows(p: view<i32>[n] sorted, y: out view<i32>[n]) grid (i in n) { y[i] = p[i]; }
kernel newer(x: view<f32>[n], y: out view<f32>[n]) for sm_90a grid (i in n) { y[i] = x[i]; }
op quarter(x: view<f32>[n], y: out view<f32>[n], again: int = 1) {
    workspace w: view<f32>[n];
    launch half(x, w);
    if again > 0 { launch half(w, y); } else { launch half(x, y, f = 0.25); }
}
kernel endless(y: out view<i32>[n]) grid (i in n) {
    let mut k = 0;
    while k < 10 { k = k * 2; }
    y[i] = k;
}
";

fn all(tests: &str, options: &Options<'_>) -> Vec<(String, Outcome, String)> {
    let mut session = Session::new();
    let text = format!("{KERNELS}{tests}");
    let module = match session.load_text("program.tess", &text) {
        Ok(module) => module,
        Err(diagnostics) => panic!("{}", shown(&session, &diagnostics)),
    };
    let found = session.tests(module);
    found
        .iter()
        .map(|info| {
            let outcome = session.run_test(module, info, options);
            let said = match &outcome {
                Outcome::Failed(diagnostics) => shown(&session, diagnostics),
                _ => String::new(),
            };
            (info.name.clone(), outcome, said)
        })
        .collect()
}

fn shown(session: &Session, diagnostics: &Diagnostics) -> String {
    diagnostics
        .iter()
        .map(|d| render(d, session.sources(), false))
        .collect()
}

fn interp() -> Options<'static> {
    Options {
        target: Target::parse("sm_90a").unwrap(),
        device: None,
    }
}

/// One test with this body.
fn body(body: &str) -> (Outcome, String) {
    let mut all = all(&format!("test t {{ {body} }}"), &interp());
    let (_, outcome, said) = all.remove(0);
    (outcome, said)
}

#[track_caller]
fn passes(text: &str) {
    let (outcome, said) = body(text);
    assert_eq!(outcome, Outcome::Passed, "{said}");
}

#[track_caller]
fn fails(text: &str, parts: &[&str]) {
    let (outcome, said) = body(text);
    assert!(matches!(outcome, Outcome::Failed(_)), "{text} passes");
    for part in parts {
        assert!(said.contains(part), "`{part}` is not said:\n{said}");
    }
}

#[test]
fn a_kernel_is_compared_with_a_reference_in_tess() {
    passes(
        "let x = randn(f32, [37], seed = 1);
         let y = empty(f32, [37]);
         launch half(x, y);
         expect(y, near = x as f64 * 0.5);
         expect(y, equal = x * 0.5);
         launch half<f32>(x, y, f = 2.0);
         expect(y, near = (x + x) as f64, abs = 0.0, rel = 1e-7);",
    );
    // The data are numbers about 0: without them the expectations above would say little.
    passes(
        "let x = randn(f32, [1000], seed = 1);
         let m = x.sum() / 1000.0;
         assert(m > -0.1 && m < 0.1, \"mean\");
         assert((x * x).sum() > 900.0 && (x * x).sum() < 1100.0, \"variance\");
         expect(x, equal = randn(f32, [1000], seed = 1));
         expect((x == randn(f32, [1000], seed = 2)).any(), equal = false);",
    );
}

#[test]
fn fields_of_variants_are_arguments() {
    passes(
        "let x = randn(f32, [16], seed = 1);
         let y = empty(f32, [16]);
         let b = iota<i32>[16] as f32;
         launch half<f32, E = Scaled>(x, y, e = Scaled(by = 3.0, add = b));
         expect(y, near = x * 0.5 * 3.0 + b);",
    );
}

#[test]
fn ops_are_launched() {
    passes(
        "let x = randn(f32, [37], seed = 1);
         let y = empty(f32, [37]);
         launch quarter(x, y);
         expect(y, equal = x * 0.25);
         launch quarter(x + 1.0, y, again = 0);
         expect(y, equal = (x + 1.0) * 0.25);
         expect_error(\"E0806\");
         launch quarter(x, empty(f32, [38]));",
    );
}

#[test]
fn control_flow_is_decided_at_once() {
    passes(
        "let mut runs = 0;
         for const n in 15..18 {
             let x = randn(f16, [n], seed = n);
             let y = empty(f16, [n]);
             launch half<f16>(x, y);
             expect(y, near = x * 0.5);
             if n == 16 { continue; }
             if y.dim(0) != n || x.shape(0) != n { expect(1, equal = 2); }
             runs = runs + 1;
         }
         expect(runs, equal = 2);
         let mut k = 1;
         while k < 100 { k = k * 3; if k == 27 { break; } }
         expect(k, equal = 27);
         for (i, part) in 0..2..5 { expect(part, equal = if i < 2 { 0 } else { 1 }); }
         for i in 0..10 rev step 4 { expect(i % 4, equal = 0); if i == 0 { return; } }
         expect(1, equal = 2);",
    );
}

#[test]
fn a_name_keeps_its_tensor() {
    // What a launch stores to `y` shows under no other name, and under `y` everywhere.
    passes(
        "let x = full<f32>[20](4.0);
         let y = zeros<f32>[20];
         let before = y;
         let later = y + 1.0;
         launch half(x, y);
         expect(before, equal = 0.0);
         expect(later, equal = 1.0);
         expect(y, equal = 2.0);",
    );
}

#[test]
fn tensors_are_listed() {
    passes(
        "let t = tensor(i32, [[1, 2, -3], [4, 5, 6]]);
         expect(t.sum(0), equal = tensor(i32, [5, 7, 3]));
         expect(t.shape(1), equal = 3);
         expect(tensor(bf16, [0.5, 1, inf])[1], equal = 1.0);
         expect(tensor(bool, [true, false]), equal = tensor(u1, [1, 0]));
         let i = uniform_ints(u8, [3, 200], 10, 14, seed = 2);
         assert((i >= 10).all() && (i < 14).all() && (i == 13).any() && (i == 10).any());",
    );
    fails(
        "let t = tensor(i32, [[1, 2], [3]]);",
        &["E0813", "equally long"],
    );
    fails("let t = tensor(u4, [16]);", &["E0306", "16"]);
    fails("let t = randn(i32, [3]);", &["E0102", "uniform_ints"]);
    fails("let t = uniform_ints(u8, [3], 0, 300);", &["E0306", "299"]);
}

#[test]
fn tensors_without_elements_are_passed() {
    passes(
        "let x = empty(f32, [0]);
         let y = empty(f32, [0]);
         launch half(x, y);",
    );
    fails("let x = empty(f32, [0, 3]) * 2.0;", &["E0813"]);
}

#[test]
fn a_wrong_element_is_named() {
    fails(
        "let x = tensor(f32, [[1, 2, 3], [4, 5, 6]]);
         expect(x, near = tensor(f32, [[1, 2, 3], [4, 5.5, 8]]), abs = 0.25);",
        &[
            "E0810",
            "element [1, 1] of `x` is 5, and 5.5 is expected",
            "2 of 6 elements differ",
            "the largest error is 2 at [1, 2]",
            "0.25 + 0",
        ],
    );
    fails(
        "let y = empty(i32, [3]);
         launch first_rows(tensor(i32, [1, 2, 3]), y);
         expect(y, equal = tensor(i32, [1, 2, 4]));",
        &["element [2] of `y` is 3, and 4 is expected"],
    );
    fails(
        "expect(2 + 2, equal = 5);",
        &["E0810", "is 4, and 5 is expected"],
    );
    // What nobody stores to is no number.
    fails(
        "expect(empty(f16, [3]), near = 0.0, abs = 1e9);",
        &["E0810", "NaN"],
    );
}

#[test]
fn tolerances_are_those_of_the_type() {
    passes("expect(full<bf16>[2](1.0), near = 1.011);");
    fails("expect(full<bf16>[2](1.0), near = 1.013);", &["E0810"]);
    passes("expect(full<f32>[2](1.0), near = 1.0001);");
    fails("expect(full<f32>[2](1.0), near = 1.0002);", &["E0810"]);
    fails(
        "expect(full<f32>[2](1.0), near = 1.1, rel = 1e-2);",
        &["E0810"],
    );
    fails("expect(1.0, equal = 1.0, abs = 0.1);", &["E0107"]);
    fails("expect(zeros<f32>[3], equal = zeros<f32>[4]);", &["E0201"]);
}

#[test]
fn errors_can_be_expected() {
    passes(
        "let y = empty(i32, [3]);
         expect_error(\"E0803\");
         launch first_rows(tensor(i32, [1, 0, 2]), y);
         expect_error(\"E0803\", \"sorted\");
         launch first_rows(tensor(i32, [1, 0, 2]), y);
         expect_error(\"E0304\");
         launch half<3>(zeros<f32>[4], y);",
    );
    fails(
        "let y = empty(i32, [3]); expect_error(\"E0803\"); launch first_rows(tensor(i32, [1, 2, 2]), y);",
        &["E0811", "succeeds"],
    );
    fails(
        "let y = empty(i32, [4]); expect_error(\"E0803\"); launch first_rows(tensor(i32, [1, 2, 2]), y);",
        &["E0811", "otherwise", "E0806"],
    );
    fails("expect_error(\"E0803\");", &["E0811", "no launch"]);
    fails("expect_error(\"E9999\");", &["E0811", "no error `E9999`"]);
}

#[test]
fn what_a_launch_cannot_take_is_told() {
    fails("launch hlf(1);", &["E0502", "did you mean `half`"]);
    fails(
        "let x = randn(f32, [9]); launch half(x, x);",
        &["E0813", "the same tensor"],
    );
    fails("launch half(1.0, zeros<f32>[3]);", &["E0806"]);
    fails(
        "launch half(randn(f16, [9]), empty(f32, [9]));",
        &["E0806", "in this launch"],
    );
}

#[test]
fn nothing_runs_without_end() {
    fails(
        "let mut i = 1; while i > 0 { i = i; }",
        &["E0814", "this test"],
    );
}

#[test]
fn what_a_target_lacks_is_left_out() {
    let tests = "test t { let y = empty(f32, [3]); launch newer(zeros<f32>[3], y); expect(y, equal = 0.0); }";
    assert_eq!(all(tests, &interp())[0].1, Outcome::Passed);
    let older = Options {
        target: Target::parse("sm_80").unwrap(),
        device: None,
    };
    assert_eq!(
        all(tests, &older)[0].1,
        Outcome::Ignored("`newer` is not for sm_80".into())
    );
}

/// Computes what the interpreter computes, but for one element.
struct Wrong;

impl Device for Wrong {
    fn launch(
        &self,
        launch: &Launch<'_>,
        args: &mut tesserine_compiler::interp::Args,
    ) -> Result<(), String> {
        use tesserine_compiler::interp::{self, Arg};
        match launch.what {
            What::Kernel(instance) => interp::launch(instance, args).map(|_| ()),
            What::Op(op) => interp::run_op(op, args).map(|_| ()),
        }
        .map_err(|e| e.to_string())?;
        if let Some(Arg::Tensor(y)) = args.get_mut("y")
            && y.shape[0] == 5
        {
            y.data[3 * 4..4 * 4].copy_from_slice(&7f32.to_le_bytes());
        }
        Ok(())
    }
}

#[test]
fn a_device_is_compared_with_the_interpreter() {
    let options = Options {
        device: Some(&Wrong),
        ..interp()
    };
    let tests = "
        test right { let y = empty(f32, [4]); launch half(zeros<f32>[4], y); expect(y, equal = 0.0); }
        test wrong { let y = empty(f32, [5]); launch half(zeros<f32>[5], y); }";
    let all = all(tests, &options);
    assert_eq!(all[0].1, Outcome::Passed, "{}", all[0].2);
    assert!(matches!(all[1].1, Outcome::Failed(_)));
    for part in [
        "E0812",
        "element [3] of `y` is 7, and 0 is expected by the interpreter",
    ] {
        assert!(all[1].2.contains(part), "{}", all[1].2);
    }
}

#[test]
fn launches_are_listed_without_running() {
    let mut session = Session::new();
    let text = format!(
        "{KERNELS}
        const N = 8;
        test t {{
            let y = empty(i32, [3]);
            launch endless(y);
            for const k in 1..3 {{ launch half<f16, E = Scaled>(zeros<f16>[k], empty(f16, [k]), f = 1.0); }}
            launch half<T = f32>(zeros<f32>[N], empty(f32, [N]));
            expect(y, equal = 3);
            assert(y.sum() == 9);
        }}"
    );
    let module = session.load_text("program.tess", &text).unwrap();
    let test = &session.tests(module)[0];
    assert_eq!(
        session.launches(module, test).unwrap(),
        ["endless", "half<f16, E = Scaled>", "half<T = f32>"]
    );
    assert!(session.check(module).is_empty());
}

/// Every file of the library and of the examples has tests, and launches each of its kernels and ops in one.
#[test]
fn the_library_and_the_examples_have_tests() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders = vec![root.join("kernels-dsl"), root.join("examples")];
    let (mut files, mut count) = (0, 0);
    let mut missing = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if path.extension().is_none_or(|e| e != "tess") {
                continue;
            }
            files += 1;
            let mut session = Session::new();
            let module = match session.load(&path, None) {
                Ok(module) => module,
                Err(diagnostics) => panic!("{}", shown(&session, &diagnostics)),
            };
            let tests = session.tests(module);
            count += tests.len();
            let mut launched: Vec<String> = Vec::new();
            for test in &tests {
                let names = session
                    .launches(module, test)
                    .unwrap_or_else(|d| panic!("{}", shown(&session, &d)));
                for name in names {
                    if session.is_op(module, &name) {
                        let target = Target::parse("sm_90a").unwrap();
                        let op = session
                            .instantiate_op(module, &name, target)
                            .unwrap_or_else(|d| panic!("{}", shown(&session, &d)));
                        let steps = op.instances.iter().map(|l| l.instance.name.clone());
                        launched.extend(steps);
                    }
                    launched.push(name);
                }
            }
            let declared = session.kernels(module).into_iter().map(|k| k.name);
            for name in declared.chain(session.ops(module)) {
                let found = launched
                    .iter()
                    .any(|l| l.split('<').next() == Some(name.as_str()));
                if !found {
                    missing.push(format!("{}: no test launches `{name}`", path.display()));
                }
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(files >= 25, "{files} files");
    assert!(count >= 60, "{count} tests");
}
