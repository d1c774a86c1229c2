//! Ops: what they become, and what they compute on the interpreter.

use tesserine_compiler::{
    Session,
    interp::{self, Arg, Tensor},
    ir::op::Op,
    target::Target,
};
use tesserine_set::{DType, StepArg, ViewBase, ViewStep};

fn made(text: &str, instance: &str) -> Result<Op, String> {
    let mut session = Session::new();
    let module = session.load_text("ops.tess", text).map_err(|d| {
        let lines = d.iter().map(|d| d.title.clone());
        lines.collect::<Vec<_>>().join("; ")
    })?;
    let target = Target::parse("sm_90a").unwrap();
    assert!(session.is_op(module, instance));
    session
        .instantiate_op(module, instance, target)
        .map_err(|d| {
            let lines = d.iter().map(|d| format!("{} {}", d.code, d.title));
            lines.collect::<Vec<_>>().join("; ")
        })
}

fn floats(shape: &[usize], f: impl Fn(usize) -> f64) -> Tensor {
    let count = shape.iter().product();
    let values: Vec<f64> = (0..count).map(f).collect();
    Tensor::from_f64(DType::F32, shape.to_vec(), &values).unwrap()
}

fn tensor(args: &interp::Args, name: &str) -> Vec<f64> {
    match &args[name] {
        Arg::Tensor(tensor) => tensor.to_f64(),
        Arg::Scalar(_) => panic!("`{name}` is a scalar"),
    }
}

const COLUMN_SUMS: &str = "
/// Sums of every slabs-th row, by columns.
kernel col_partial<B: int = 64>(x: view<f32>[m, n], part: out view<f32>[slabs, n])
grid (s in slabs, j in ceil_div(n, B))
{
    let mut acc = zeros<f32>[B];
    for r in 0..ceil_div(m, slabs) { acc += x[r * slabs + s, j*B +: B]; }
    part[s, j*B +: B] = acc;
}
kernel col_total<B: int = 64>(part: view<f32>[slabs, n], y: out view<f32>[n], scale: f32) grid (j in ceil_div(n, B))
{
    let mut acc = zeros<f32>[B];
    for s in 0..slabs { acc += part[s, j*B +: B]; }
    y[j*B +: B] = acc * scale;
}
op col_sum(x: view<f32>[m, n], y: out view<f32>[n], scale: f32 = 1.0)
{
    let slabs = clamp(m / 4, 1, 8);
    workspace part: view<f32>[slabs, n];
    launch col_partial(x, part);
    launch col_total(part, y, scale = scale);
}
op twice(x: view<f32>[m, n], y: out view<f32>[2, n], tall: int)
{
    for const i in 0..2 {
        if m >= tall && i == 0 { launch col_sum(x, view y[i, ..], 2.0); }
        else { launch col_sum(x, view y[i, ..]); }
    }
}
op of_all(x: view<f32>[a, b, n], y: out view<f32>[n]) where a * b < 1000
{
    launch col_sum(x.merge(0, 1), y);
}
";

#[test]
fn two_launches_share_a_workspace() {
    let op = made(COLUMN_SUMS, "col_sum").unwrap();
    let signature = &op.record.signature;
    assert_eq!(op.record.steps.len(), 2);
    assert_eq!(op.record.workspaces.len(), 1);
    let extents: Vec<String> = op.record.workspaces[0]
        .extents
        .iter()
        .map(|e| signature.show(e))
        .collect();
    assert_eq!(extents, ["min(max(m / 4, 1), 8)", "n"]);
    assert_eq!(
        op.record.steps[1].args[2],
        Some(StepArg::Scalar { param: 2 })
    );

    for (m, n) in [(1, 1), (5, 70), (33, 130)] {
        let x = |i: usize| (i % 11) as f64 - 3.0;
        let mut args = interp::Args::default();
        args.insert("x".into(), floats(&[m, n], x).into());
        args.insert("y".into(), floats(&[n], |_| f64::NAN).into());
        let report = interp::run_op(&op, &mut args).unwrap();
        let names: Vec<&str> = report.launches.iter().map(|(n, _)| n.as_str()).collect();
        assert_eq!(names, ["col_partial", "col_total"]);
        assert_eq!(report.unwritten, []);
        let slabs = (m / 4).clamp(1, 8);
        let exact = (slabs * n * 4).next_multiple_of(256) as u64;
        assert_eq!(report.workspace, exact);
        let wanted: Vec<f64> = (0..n).map(|j| (0..m).map(|i| x(i * n + j)).sum()).collect();
        assert_eq!(tensor(&args, "y"), wanted);
    }
}

#[test]
fn ops_launch_ops_under_conditions_and_into_parts() {
    let op = made(COLUMN_SUMS, "twice").unwrap();
    // `i == 0` is known: the second round has one branch.
    assert_eq!(op.record.steps.len(), 6);
    assert_eq!(op.instances.len(), 2);
    for tall in [3, 100] {
        let mut args = interp::Args::default();
        args.insert("x".into(), floats(&[9, 5], |i| i as f64).into());
        args.insert("y".into(), floats(&[2, 5], |_| f64::NAN).into());
        args.insert("tall".into(), Arg::from(tall));
        let report = interp::run_op(&op, &mut args).unwrap();
        assert_eq!(report.launches.len(), 4);
        assert_eq!(report.unwritten, []);
        let sums: Vec<f64> = (0..5)
            .map(|j| (0..9).map(|i| (i * 5 + j) as f64).sum())
            .collect();
        let times = if tall <= 9 { 2.0 } else { 1.0 };
        let wanted: Vec<f64> = sums.iter().map(|s| s * times).chain(sums.clone()).collect();
        assert_eq!(tensor(&args, "y"), wanted);
    }
}

#[test]
fn merged_dimensions_and_facts() {
    let op = made(COLUMN_SUMS, "of_all").unwrap();
    match &op.record.steps[0].args[0] {
        Some(StepArg::View(view)) => {
            assert_eq!(view.base, ViewBase::Param(0));
            assert_eq!(view.steps, [ViewStep::Merge { dim: 0 }]);
        }
        other => panic!("{other:?}"),
    }
    let run = |a: usize| {
        let mut args = interp::Args::default();
        args.insert("x".into(), floats(&[a, 3, 4], |i| i as f64).into());
        args.insert("y".into(), floats(&[4], |_| f64::NAN).into());
        interp::run_op(&op, &mut args).map(|_| tensor(&args, "y"))
    };
    let wanted: Vec<f64> = (0..4)
        .map(|j| (0..6).map(|i| (i * 4 + j) as f64).sum())
        .collect();
    assert_eq!(run(2).unwrap(), wanted);
    let refused = run(400).unwrap_err().to_string();
    assert!(refused.contains("a * b < 1000"), "{refused}");
}

#[test]
fn a_launch_that_does_not_fit_runs_nothing() {
    let text = "
kernel copy(x: view<f32>[n], y: out view<f32>[n]) grid (i in ceil_div(n, 64)) { y[i*64 +: 64] = x[i*64 +: 64]; }
op both(x: view<f32>[n], y: out view<f32>[n], z: out view<f32>[k]) { launch copy(x, y); launch copy(x, z); }
";
    let op = made(text, "both").unwrap();
    let mut args = interp::Args::default();
    args.insert("x".into(), floats(&[5], |i| i as f64).into());
    args.insert("y".into(), floats(&[5], |_| 7.0).into());
    args.insert("z".into(), floats(&[6], |_| 7.0).into());
    let error = interp::run_op(&op, &mut args).unwrap_err().to_string();
    assert!(
        error.contains("`copy`") && error.contains("6 elements"),
        "{error}"
    );
    assert_eq!(tensor(&args, "y"), [7.0; 5]);
}

#[test]
fn mistakes_have_their_codes() {
    let kernel = "
kernel copy(x: view<f32>[n], y: out view<f32>[n]) grid (i in ceil_div(n, 64)) { y[i*64 +: 64] = x[i*64 +: 64]; }
";
    for (body, wanted) in [
        (
            "launch copy(x, x);",
            "E0506 `copy` stores to `y`, and `x` is read-only",
        ),
        ("launch copy(x);", "E0506 `copy` needs an argument for `y`"),
        (
            "launch copi(x, y);",
            "E0101 there is no kernel or `op` named `copi` here",
        ),
        (
            "launch copy(x, h);",
            "E0506 `y` of `copy` is a view of `f32`, and `h` is of `f16`",
        ),
        (
            "launch copy(x, 1.0);",
            "E0506 `y` of `copy` is a view, and this is the number 1.0",
        ),
        (
            "workspace w: f32; launch copy(x, w);",
            "E0507 a workspace is a view",
        ),
        (
            "workspace w: view<f32>[4, n]; launch copy(x, w);",
            "E0506 `y` of `copy` has 1 dimension, and `w` has 2",
        ),
        (
            "workspace w: view<i8>[4] = 300; launch copy(x, y);",
            "E0306 300 does not fit in `i8`",
        ),
        (
            "for i in 0..n { launch copy(x, y); }",
            "E0508 an `op` is a list of launches, so its loops have constant bounds",
        ),
        (
            "x[0] = 1.0; launch copy(x, y);",
            "E0508 an `op` stores nothing itself: it launches kernels that do",
        ),
        (
            "if s > 0.0 { launch copy(x, y); }",
            "E0508 `s` is a float, and launches are decided by dimensions and integers",
        ),
        ("let k = n;", "E0508 `wrong` launches nothing"),
        ("launch wrong(x, y, h, s);", "E0112 `wrong` launches itself"),
        (
            "workspace w: view<f32>[3]; workspace v: view<f32>[4]; launch copy(w, v);",
            "E0506 dimension 0 of `v` has 4 elements, and `y` of `copy` has 3",
        ),
    ] {
        let text = format!(
            "{kernel}op wrong(x: view<f32>[n], y: out view<f32>[n], h: out view<f16>[n], s: f32) {{ {body} }}"
        );
        assert_eq!(made(&text, "wrong").unwrap_err(), wanted, "{body}");
    }
}

#[test]
fn values_are_chosen_by_conditions() {
    let text = "
kernel fill(y: out view<i32>[n], v: i32) grid (i in ceil_div(n, 64)) { y[i*64 +: 64] = full<i32>[64](0) + (v as i32); }
op pick(y: out view<i32>[n], k: int) {
    let mut v = if n > 4 { let twice = k * 2; twice } else { k };
    if k == 3 { v += 10; }
    if k == 5 { launch fill(y, -1); return; }
    launch fill(view y[0 .. min(n, 6)], v);
    launch fill(view y[min(n, 6) .. n], v + n);
}
";
    let op = made(text, "pick").unwrap();
    for (n, k) in [(3usize, 2i64), (8, 3), (7, 5)] {
        let mut args = interp::Args::default();
        let y = Tensor::from_f64(DType::I32, vec![n], &vec![99.0; n]).unwrap();
        args.insert("y".into(), y.into());
        args.insert("k".into(), Arg::from(k));
        let report = interp::run_op(&op, &mut args).unwrap();
        assert_eq!(report.unwritten, []);
        let mut v = if n > 4 { k * 2 } else { k };
        if k == 3 {
            v += 10;
        }
        let wanted: Vec<f64> = (0..n)
            .map(|i| match (k, i < 6) {
                (5, _) => -1.0,
                (_, true) => v as f64,
                (_, false) => (v + n as i64) as f64,
            })
            .collect();
        assert_eq!(tensor(&args, "y"), wanted);
    }
}

#[test]
fn what_grows_without_end_is_refused() {
    let kernel = "
kernel copy(x: view<f32>[n], y: out view<f32>[n]) grid (i in ceil_div(n, 64)) { y[i*64 +: 64] = x[i*64 +: 64]; }
fn doubled(x) { let a = x + x; let b = a + a; let c = b + b; c + c }
";
    let lets: String = (0..60)
        .map(|i| format!("let v{} = v{i} + v{i}; ", i + 1))
        .collect();
    let calls = "doubled(".repeat(20) + "n" + &")".repeat(20);
    let parts = "view (".repeat(20) + "x" + &")[1 .. n - 1]".repeat(20);
    let mut nested = String::new();
    for depth in 0..14 {
        let inner = match depth {
            0 => "copy".to_owned(),
            depth => format!("o{}", depth - 1),
        };
        let launches = format!("launch {inner}(x, y); ").repeat(8);
        nested += &format!("op o{depth}(x: view<f32>[n], y: out view<f32>[n]) {{ {launches} }}\n");
    }
    let op =
        |body: &str| format!("{kernel}op wide(x: view<f32>[n], y: out view<f32>[n]) {{ {body} }}");
    for (text, name) in [
        (
            op(&format!(
                "let v0 = n; {lets} if v60 > 3 {{ launch copy(x, y); }}"
            )),
            "wide",
        ),
        (
            op(&format!("if {calls} > 3 {{ launch copy(x, y); }}")),
            "wide",
        ),
        (op(&format!("launch copy({parts}, y);")), "wide"),
        (
            op("for const i in 0..1000000000 { launch copy(x, y); }"),
            "wide",
        ),
        (op("for const i in 0..1025 { launch copy(x, y); }"), "wide"),
        (format!("{kernel}{nested}"), "o13"),
    ] {
        let start = std::time::Instant::now();
        let error = made(&text, name).unwrap_err();
        assert!(
            error.contains("E0305") || error.contains("E0508"),
            "{error}"
        );
        assert!(start.elapsed().as_secs() < 20, "{error}");
    }
    // A step that leaves the range ends the loop.
    let text =
        op("for const i in 1..9223372036854775807 step 9223372036854775807 { launch copy(x, y); }");
    assert_eq!(made(&text, "wide").unwrap().record.steps.len(), 1);
}

#[test]
fn optional_tensors_are_passed_on_or_left_out() {
    let text = "
interface Act { fn apply(self, x) = x; }
variant Plain: Act { }
variant Shift: Act { by: view<f32>[n]  fn apply(self, x) = x + self.by[0 +: 8]; }
kernel added<A: Act = Plain>(x: view<f32>[n], bias?: view<f32>[n], y: out view<f32>[n], act: A, s: f32 = 1.0) grid (i in ceil_div(n, 8)) {
    let mut v = x[i*8 +: 8] * s;
    if const given(bias) { v = v + bias[i*8 +: 8]; }
    y[i*8 +: 8] = act.apply(v);
}
op inner<A: Act = Plain>(x: view<f32>[n], bias?: view<f32>[n], y: out view<f32>[n], act: A, s: f32 = 3.0) {
    launch added<A>(x, bias, y, act, s);
}
op outer(x: view<f32>[n], bias?: view<f32>[n], by: view<f32>[n], y: out view<f32>[n], z: out view<f32>[n]) {
    launch inner(x, bias = bias, y = y, s = 2.0);
    if const given(bias) { launch inner(y, y = z, act = Shift(by = by)); } else { launch inner(x, y = z, s = 0.5); }
}
";
    let op = made(text, "outer").unwrap();
    let names: Vec<&str> = op
        .instances
        .iter()
        .map(|l| l.instance.name.as_str())
        .collect();
    assert_eq!(names, ["added<Plain>", "added<Shift>"]);
    for given in [false, true] {
        let mut args = interp::Args::default();
        let f = |k: f64| floats(&[5], move |i| i as f64 * k);
        args.insert("x".into(), f(1.0).into());
        if given {
            args.insert("bias".into(), f(10.0).into());
        }
        args.insert("by".into(), f(100.0).into());
        args.insert("y".into(), f(0.0).into());
        args.insert("z".into(), f(0.0).into());
        let report = interp::run_op(&op, &mut args).unwrap();
        assert_eq!(report.launches.len(), 2);
        let (y, z) = if given { (12.0, 136.0) } else { (2.0, 0.5) };
        let times = |k: f64| (0..5).map(|i| f64::from(i) * k).collect::<Vec<_>>();
        assert_eq!(tensor(&args, "y"), times(y));
        assert_eq!(tensor(&args, "z"), times(z));
    }
}
