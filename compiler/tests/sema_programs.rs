//! What programs mean after sema: small kernels, run by the interpreter.

use tesserine_compiler::{
    Session,
    diagnostics::render,
    interp::{self, Arg, Args, Tensor},
    ir::tile,
    target::Target,
};
use tesserine_set::{DType, Fact, Formula, FormulaOp, Term};

fn make(text: &str, instance: &str) -> tile::Instance {
    make_for(text, instance, Target::ALL[4])
}

fn make_for(text: &str, instance: &str, target: Target) -> tile::Instance {
    let mut session = Session::new();
    let made = session
        .load_text("program.tess", text)
        .and_then(|module| session.instantiate(module, instance, target));
    match made {
        Ok(made) => {
            for body in &made.bodies {
                assert_eq!(tile::verify(body), Ok(()), "{body}");
            }
            made
        }
        Err(diagnostics) => {
            let all: String = diagnostics
                .iter()
                .map(|d| render(d, session.sources(), false))
                .collect();
            panic!("{all}");
        }
    }
}

fn tensor(dtype: DType, shape: &[usize], values: &[f64]) -> Arg {
    Tensor::from_f64(dtype, shape.to_vec(), values)
        .expect("a tensor")
        .into()
}

fn zeros(dtype: DType, shape: &[usize]) -> Arg {
    Tensor::zeros(dtype, shape.to_vec())
        .expect("a tensor")
        .into()
}

/// Runs an instance and gives the values of `out`, all of which must be written.
fn run(instance: &tile::Instance, args: Vec<(&str, Arg)>, out: &str) -> Vec<f64> {
    let mut args: Args = args.into_iter().map(|(n, a)| (n.to_owned(), a)).collect();
    let report = interp::launch(instance, &mut args).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(report.unwritten, Vec::new());
    match &args[out] {
        Arg::Tensor(tensor) => tensor.to_f64(),
        Arg::Scalar(_) => panic!("`{out}` is a scalar"),
    }
}

/// A kernel of one block over `x: view<f32>[8]` and `y: out view<f32>[8]`, from the statements of its body.
fn eight(body: &str, x: [f64; 8]) -> Vec<f64> {
    eight_with("", body, x)
}

fn eight_with(items: &str, body: &str, x: [f64; 8]) -> Vec<f64> {
    let text = format!(
        "{items}\nkernel k(x: view<f32>[8], y: out view<f32>[8]) grid (i in 1) {{ {body} }}"
    );
    let instance = make(&text, "k");
    run(
        &instance,
        vec![
            ("x", tensor(DType::F32, &[8], &x)),
            ("y", zeros(DType::F32, &[8])),
        ],
        "y",
    )
}

const RAMP: [f64; 8] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];

#[test]
fn functions_structs_and_tuples() {
    let items = "struct At { scale, shift }
        fn both(v, at) { let w = v * at.scale; (w, w + at.shift) }
        fn generic<T: dtype, N: int>(v: tile<T>[N]) = v.sum() / (N as f32);";
    let body = "let (a, b) = both(x[..], At(scale = 2.0, shift = 1.0));
        let mean = generic(a);
        y[..] = b - mean;";
    let expected: Vec<f64> = RAMP.iter().map(|v| 2.0 * v + 1.0 - 7.0).collect();
    assert_eq!(eight_with(items, body, RAMP), expected);
}

#[test]
fn loops_carry_what_they_assign() {
    let body = "let mut s = 0.0;
        let mut n = 0;
        let mut last = x[..];
        for j in 0..3 { s += x[j]; n = n + j; last = last * 2.0; }
        for j in 1..8 rev step 3 { s = s * 10.0 + (j as f32); }
        y[..] = last + s + (n as f32);";
    // 3, then 7, 4, 1 in this order: 3741.
    let expected: Vec<f64> = RAMP.iter().map(|v| v * 8.0 + 3741.0 + 3.0).collect();
    assert_eq!(eight(body, RAMP), expected);
}

#[test]
fn parts_of_a_loop_are_constants() {
    let body = "let mut s = 0.0;
        let lo = x[1] as i32;
        for (j, part) in lo..3..lo + 5..7 {
            let w = if const part == 0 { 1.0 } else { if const part == 1 { 100.0 } else { 10000.0 } };
            s += w;
        }
        y[..] = zeros<f32>[8] + s;";
    // 1..3, 3..6, 6..7.
    assert_eq!(eight(body, RAMP), vec![2.0 + 300.0 + 10000.0; 8]);
    // Points outside are clamped into order: 5..5, 5..7 and 7..7.
    let mut late = RAMP;
    late[1] = 5.0;
    assert_eq!(eight(body, late), vec![200.0; 8]);
    let mut beyond = RAMP;
    beyond[1] = 9.0;
    assert_eq!(eight(body, beyond), vec![0.0; 8]);
}

#[test]
fn branches_have_values_and_assign() {
    let body = "let mut a = 1.0;
        let v = if x[3] > 2.0 { a = 5.0; x[..] } else { zeros<f32>[8] };
        let (p, q) = if x[3] > 3.0 { (1, 2.0) } else { (4, x[1]) };
        if x[2] == 2.0 && x[1] == 1.0 { a += 1.0; } else if x[1] > 0.0 { a = 0.0; }
        y[..] = v * a + (p as f32) + q;";
    let expected: Vec<f64> = RAMP.iter().map(|v| v * 6.0 + 4.0 + 1.0).collect();
    assert_eq!(eight(body, RAMP), expected);
}

#[test]
fn a_while_searches() {
    let body = "let mut j = 0;
        while j < 8 && x[j] < 4.5 { j += 1; }
        y[..] = zeros<f32>[8] + (j as f32);";
    assert_eq!(eight(body, RAMP), vec![5.0; 8]);
}

#[test]
fn constant_loops_and_branches_unroll() {
    let items = "const N: int = 3;
        fn power<K: int>(v) { let mut r = full<f32>[8](1.0); for const j in 0..K { r = r * v; } r }";
    let body = "assert const(N * 2 == 6);
        let mut r = power::<N>(x[..]);
        if const N > 5 { r = undefined_shape(r); }
        y[..] = r;";
    let expected: Vec<f64> = RAMP.iter().map(|v| v * v * v).collect();
    let items = format!("{items} fn undefined_shape(v) = v + zeros<f32>[3];");
    assert_eq!(eight_with(&items, body, RAMP), expected);
}

#[test]
fn early_returns_end_functions_and_kernels() {
    let items = "fn sign(v) { if v < 0.0 { return -1.0; } if v > 0.0 { return 1.0; } 0.0 }";
    let body = "y[..] = zeros<f32>[8] + sign(x[0]) * 100.0 + sign(x[1]) * 10.0 + sign(-x[2]);
        if x[3] > 100.0 { return; }
        y[..] = zeros<f32>[8] + sign(x[0]) * 100.0 + sign(x[1]) * 10.0 + sign(-x[2]) + 0.5;";
    assert_eq!(eight_with(items, body, RAMP), vec![9.5; 8]);
    let mut stop = RAMP;
    stop[3] = 200.0;
    assert_eq!(eight_with(items, body, stop), vec![9.0; 8]);
}

#[test]
fn tiles_are_indexed() {
    let body = "let t = x[..].reshape([2, 4]);
        let (even, odd) = split(x[..].reshape([4, 2]));
        let j = x[2] as i32;
        let row = t[1, ..];
        let col = t[.., j];
        let one = t[0, j + 1];
        let fixed = t[1, 1];
        let wide = (row[_, ..] + col[.., _]).reshape([8]);
        let back = join(even, odd).reshape([8]) - x[..];
        let turned = t.t.permute([1, 0]).reshape([8]) - x[..];
        y[..] = wide + one * 100.0 + fixed * 1000.0 + back + turned + t[0..1, 2..4].sum() * 10000.0;";
    let expected: Vec<f64> = (0..8)
        .map(|e| {
            let (r, c) = (e / 4, e % 4);
            RAMP[4 + c] + RAMP[r * 4 + 2] + 300.0 + 5000.0 + 50000.0
        })
        .collect();
    assert_eq!(eight(body, RAMP), expected);
}

#[test]
fn integers_round_down_and_wrap() {
    let body = "let a = -(x[7] as i32);
        let b = x[2] as i32;
        let c = (x[5] as i32) * 60;
        let t = (iota<i8>[8] + 120) / 2;
        y[0] = (a / b) as f32;
        y[1] = (a % b) as f32;
        y[2] = ceil_div(a, b) as f32;
        y[3] = round_up(x[5] as i32, b) as f32;
        y[4] = (c as u8) as f32;
        y[5] = (t[7] as f32);
        y[6] = ((t[7] as i32) >> 1) as f32;
        y[7] = (t.max() as f32) + (ceil_div(-7, 2) as f32);";
    // 120 + 7 is 127: halved, 63. 300 wraps to 44 in u8.
    assert_eq!(
        eight(body, RAMP),
        vec![-4.0, 1.0, -3.0, 6.0, 44.0, 63.0, 31.0, 63.0 - 3.0]
    );
}

#[test]
fn dimensions_are_scalars_and_slices_are_clipped() {
    let text = "kernel k<B: int = 4>(x: view<f16>[m, 2 * n], y: out view<f16>[n, m]) grid (i in m, j in ceil_div(n, B)) {
        let v = load(x[i, n + j*B +: B], pad = 9.0);
        y[j*B +: B, i] = ((v as f32) + (m as f32) + (n as f32) * 10.0) as f16;
    }";
    let instance = make(text, "k");
    let x: Vec<f64> = (0..12).map(f64::from).collect();
    let y = run(
        &instance,
        vec![
            ("x", tensor(DType::F16, &[2, 6], &x)),
            ("y", zeros(DType::F16, &[3, 2])),
        ],
        "y",
    );
    // Columns 3..6 of both rows, transposed, plus m + 10 n = 32.
    assert_eq!(y, vec![35.0, 41.0, 36.0, 42.0, 37.0, 43.0]);
}

#[test]
fn variants_bring_functions_and_fields() {
    let text = "use std::epilogue::{Epilogue, Identity, Bias};
        use std::activation;
        variant Both<A: Epilogue, B: Epilogue>: Epilogue {
            a: A, b: B
            fn apply(self, x, row, col) = self.b.apply(self.a.apply(x, row, col), row, col);
        }
        variant Scale: Epilogue { by: f32  fn apply(self, x, row, col) = activation::relu(x) * self.by; }
        kernel k<E: Epilogue = Identity>(x: view<f32>[m, n], y: out view<f32>[m, n], epi: E) grid (i in m, j in ceil_div(n, 4)) {
            y[i +: 1, j*4 +: 4] = epi.apply(x[i +: 1, j*4 +: 4], i, j*4);
        }";
    let x = [1.0, -2.0, 3.0, 4.0, -5.0, 6.0];
    let args = || {
        vec![
            ("x", tensor(DType::F32, &[2, 3], &x)),
            ("y", zeros(DType::F32, &[2, 3])),
        ]
    };
    assert_eq!(run(&make(text, "k"), args(), "y"), x);
    let instance = make(text, "k<E = Both<Scale, Bias<bf16>>>");
    assert_eq!(instance.name, "k<E = Both<Scale, Bias<bf16>>>");
    let names: Vec<&str> = instance.bodies[0]
        .header
        .signature
        .params
        .iter()
        .map(|p| p.name.as_str())
        .collect();
    assert_eq!(names, ["x", "y", "epi.a.by", "epi.b.bias"]);
    let mut all = args();
    all.push(("epi.a.by", 2.0.into()));
    all.push(("epi.b.bias", tensor(DType::Bf16, &[3], &[10.0, 20.0, 30.0])));
    assert_eq!(
        run(&instance, all, "y"),
        vec![12.0, 20.0, 36.0, 18.0, 20.0, 42.0]
    );
}

#[test]
fn optional_parameters_make_bodies() {
    let text = "kernel k(x: view<f32>[m, 4], y: out view<f32>[m, 4], top?: out view<f32>[m], s: f32 = 2.0) grid (i in m) {
        y[i, ..] = x[i, ..] * s;
        if const given(top) { top[i] = x[i, ..].max(); }
    }";
    let instance = make(text, "k");
    let facts: Vec<&[Fact]> = instance
        .bodies
        .iter()
        .map(|b| &b.header.facts[..])
        .collect();
    let given = Formula(vec![Term::Given(2)]);
    assert_eq!(
        facts,
        [
            &[Fact::Holds(given.clone())][..],
            &[Fact::Holds(Formula::unary(FormulaOp::Not, given))]
        ]
    );
    let args = || {
        vec![
            ("x", tensor(DType::F32, &[2, 4], &RAMP)),
            ("y", zeros(DType::F32, &[2, 4])),
        ]
    };
    let doubled: Vec<f64> = RAMP.iter().map(|v| v * 2.0).collect();
    assert_eq!(run(&instance, args(), "y"), doubled);
    let mut all = args();
    all.push(("top", zeros(DType::F32, &[2])));
    all.push(("s", 3.0.into()));
    assert_eq!(run(&instance, all, "top"), vec![3.0, 7.0]);
}

#[test]
fn facts_and_schedules_come_from_target_and_arguments() {
    let text = "kernel k<T: dtype, B: int = 8, C: int = B * 2>(x: view<T>[n], y: out view<T>[n]) where n <= 100 && n > 0 grid (i in ceil_div(n, C)) {
            assume(n % 2 == 0);
            y[i*C +: C] = x[i*C +: C];
        }
        schedule k { sm_75 ..= sm_89 { B: 16, warps: 2 }  sm_90a { B: 32, warps: 8, stages: 3 }  specialize { n % C == 0, aligned(x, 16) } }
        schedule k for f32 { sm_90a { max_regs: 64 } }";
    let extent = |instance: &str, target: &str| {
        let made = make_for(text, instance, Target::parse(target).expect("a target"));
        let header = &made.bodies[0].header;
        let divisor = match header.axes[0].extent.0[..] {
            [Term::Dim(0), Term::Int(c), Term::Op(FormulaOp::CeilDiv)] => c,
            _ => panic!("{:?}", header.axes[0].extent),
        };
        (divisor, header.schedule.clone())
    };
    let (c, schedule) = extent("k<f16>", "sm_80");
    assert_eq!((c, schedule.warps, schedule.stages), (32, Some(2), None));
    let (c, schedule) = extent("k<f16>", "sm_90a");
    assert_eq!(
        (c, schedule.warps, schedule.stages, schedule.max_regs),
        (64, Some(8), Some(3), None)
    );
    let (c, schedule) = extent("k<f32>", "sm_90a");
    assert_eq!((c, schedule.max_regs), (64, Some(64)));
    let (c, schedule) = extent("k<f16, C = 4>", "sm_120a");
    assert_eq!((c, schedule.warps), (4, None));
    let made = make(text, "k<f16>");
    assert_eq!(made.bodies.len(), 2);
    assert_eq!(
        made.bodies[0].header.requires.len(),
        3,
        "two of `where`, one of `assume`"
    );
    assert_eq!(made.bodies[0].header.facts.len(), 2);
    assert!(made.bodies[1].header.facts.is_empty());
}

#[test]
fn in_place_kernels_read_what_they_store() {
    let text = "kernel k(x: mut view<f32>[m, n]) grid (i in m) {
        for c in 0..ceil_div(n, 4) { x[i, c*4 +: 4] += 1.0; }
        x[i, 0] *= 2.0;
    }";
    let x = tensor(
        DType::F32,
        &[2, 5],
        &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
    );
    assert_eq!(
        run(&make(text, "k"), vec![("x", x)], "x"),
        vec![2.0, 2.0, 3.0, 4.0, 5.0, 12.0, 7.0, 8.0, 9.0, 10.0]
    );
}

#[test]
fn races_are_told_from_what_is_apart() {
    let kernel = |signature: &str, grid: &str, body: &str| {
        let mut session = Session::new();
        let text = format!("kernel k({signature}) grid ({grid}) {{ {body} }}");
        let module = session.load_text("program.tess", &text).expect("it parses");
        match session.instantiate(module, "k", Target::ALL[4]) {
            Ok(_) => String::new(),
            Err(d) => d
                .iter()
                .map(|d| d.code.as_str())
                .collect::<Vec<_>>()
                .join(" "),
        }
    };
    let y = "y: out view<f32>[n], x: view<i32>[n]";
    // Apart.
    for (signature, grid, body) in [
        (y, "i in n", "y[i] = 0.0;"),
        (y, "i in ceil_div(n, 8)", "y[i*8 + 3 +: 5] = 0.0;"),
        (
            y,
            "i in ceil_div(n, 8)",
            "y[i*8 +: 4] = 0.0; y[i*8 + 4 +: 4] = 1.0;",
        ),
        (y, "i in n", "y[n - 1 - i] = 0.0;"),
        (y, "i in n, j in 4", "y[i*4 + j] = 0.0;"),
        (y, "j in 4, i in n", "y[(i*4 + j)*8 +: 8] = 0.0;"),
        (y, "i in 1", "y[0] = 0.0; for c in 0..4 { y[c] = 1.0; }"),
        (y, "i in n", "if i == 0 { y[0] = 0.0; }"),
        (y, "i in n, j in n", "if j == 2 { y[i] = 0.0; }"),
        (
            "y: out view<f32>[n, m]",
            "i in n, j in ceil_div(m, 8)",
            "y[i, i + j*8 +: 8] = 0.0;",
        ),
        (
            "y: out view<f32>[n, 8]",
            "i in n * 8",
            "y[i / 8, i % 8] = 0.0;",
        ),
        (
            "y: out view<f32>[n, m], x: view<i32>[1]",
            "i in n",
            "let c = x[0]; y[i / c, i % c] = 0.0;",
        ),
        (
            "y: mut view<f32>[n, m]",
            "i in n, j in m",
            "y[i, j + iota<i32>[4].sum()] = y[i, j + iota<i32>[4].sum()];",
        ),
        (
            "y: out view<f32>[n], x: view<i32>[n] distinct",
            "i in n",
            "y[x[i]] = 0.0;",
        ),
        (
            "y: mut view<f32>[n]",
            "i in ceil_div(n, 8)",
            "y[i*8 +: 8] = y[i*8 +: 8] + y[i*8 + 2];",
        ),
    ] {
        assert_eq!(kernel(signature, grid, body), "", "{body}");
    }
    // Not apart, or not proven so.
    for (signature, grid, body, codes) in [
        (y, "i in n", "y[0] = 0.0;", "E0401"),
        (y, "i in n", "y[i / 2] = 0.0;", "E0401"),
        (y, "i in n", "y[i % 8] = 0.0;", "E0401"),
        (y, "i in n, j in n", "y[i*4 + j] = 0.0;", "E0401"),
        (y, "i in n, j in 8", "y[i*4 + j] = 0.0;", "E0401"),
        (y, "i in n", "y[x[i]] = 0.0;", "E0401"),
        (y, "i in n", "y[min(i, 8)] = 0.0;", "E0401"),
        (y, "i in n", "y[i * n] = 0.0;", "E0401"),
        // Multiples that wrap around 64 bits meet again.
        (y, "i in n", "y[i * 4611686018427387904] = 0.0;", "E0401"),
        // Outside of a view everything reads as the pad, distinct or not.
        (
            "y: out view<f32>[n], x: view<i32>[n] distinct",
            "i in n",
            "y[x[i + 5]] = 0.0;",
            "E0401",
        ),
        (
            "y: out view<f32>[m], x: view<i32>[n] distinct",
            "i in m",
            "y[x[i]] = 0.0;",
            "E0401",
        ),
        (y, "i in n, j in n", "if i == j { y[0] = 0.0; }", "E0401"),
        (
            y,
            "i in n",
            "if i == 0 { y[0] = 0.0; } else { y[1] = 0.0; }",
            "E0401",
        ),
        (
            y,
            "i in n",
            "if i == 0 { y[0] = 0.0; } y[i] = 1.0;",
            "E0401",
        ),
        (
            y,
            "i in ceil_div(n, 8)",
            "y[i*8 +: 8] = 0.0; y[i*16 +: 8] = 0.0;",
            "E0401",
        ),
        // Another divisor in each block: quotient and remainder may agree.
        (
            "y: out view<f32>[n, m], x: view<i32>[n]",
            "i in n",
            "y[i / x[i], i % x[i]] = 0.0;",
            "E0401",
        ),
        // Sums of one form over tiles of two shapes: 6 and 28.
        (
            "y: mut view<f32>[n, m]",
            "i in n, j in m",
            "y[i, j + iota<i32>[4].sum()] = y[i, j + iota<i32>[8].sum()];",
            "E0402",
        ),
        ("y: mut view<f32>[n]", "i in n", "y[i] = y[0];", "E0402"),
        ("y: mut view<f32>[n]", "i in n", "y[i] = y[i + 1];", "E0402"),
        ("y: mut view<i32>[n]", "i in n", "y[i + y[i]] = 0;", "E0401"),
        (
            "y: out view<f32>[n, m]",
            "i in n",
            "for c in 0..4 { y[i + c, 0] = 0.0; }",
            "E0401",
        ),
    ] {
        assert_eq!(kernel(signature, grid, body), codes, "{body}");
    }
}

#[test]
fn instances_are_named_in_one_way() {
    let text = "use std::epilogue::{Epilogue, Bias};
        kernel k<T: dtype, N: int = 4, F: bool = true, E: Epilogue = Bias<T> >(x: out view<T>[n], e: E) grid (i in 1) { x[0] = 0.0; }";
    for (written, name) in [
        ("k<bf16>", "k<bf16>"),
        (" k < bf16 , 8 > ", "k<bf16, 8>"),
        ("k<bf16,F=false,N=0x10>", "k<bf16, F = false, N = 16>"),
        ("k<bf16,E=Bias<f16>>", "k<bf16, E = Bias<f16>>"),
        ("k<bf16, N = -4,>", "k<bf16, N = -4>"),
    ] {
        assert_eq!(make(text, written).name, name);
    }
    let mut session = Session::new();
    let module = session.load_text("program.tess", text).expect("it parses");
    for wrong in [
        "",
        "k<",
        "k<>x",
        "k<bf16",
        "k bf16",
        "1",
        "k<bf16, =>",
        "k<-x>",
        "k<bf16, N = 99999999999999999999>",
        "k<\u{e9}>",
    ] {
        let failed = session
            .instantiate(module, wrong, Target::ALL[0])
            .expect_err(wrong);
        assert!(failed.has_errors(), "{wrong}");
    }
    let info = session.kernels(module);
    assert_eq!(info.len(), 1);
    assert_eq!(info[0].cparams[3].kind, "Epilogue");
    assert_eq!(info[0].cparams[3].default.as_deref(), Some("Bias<T>"));
}

#[test]
fn sessions_serve_several_threads() {
    let mut session = Session::new();
    let text = "kernel k<T: dtype>(x: view<T>[n], y: out view<T>[n]) grid (i in ceil_div(n, 64)) { y[i*64 +: 64] = x[i*64 +: 64]; }";
    let module = session.load_text("program.tess", text).expect("it parses");
    let session = &session;
    let texts: Vec<String> = std::thread::scope(|scope| {
        let handles: Vec<_> = Target::ALL
            .into_iter()
            .map(|target| {
                scope.spawn(move || {
                    let made = session
                        .instantiate(module, "k<f16>", target)
                        .expect("it instantiates");
                    made.bodies[0].to_string()
                })
            })
            .collect();
        handles
            .into_iter()
            .map(|h| h.join().expect("no panic"))
            .collect()
    });
    assert!(texts.iter().all(|t| *t == texts[0]));
}

#[test]
fn loops_are_left_early() {
    // The first element above 2.5, and where it is.
    let body = "let mut at = -1;
        let mut seen = 0;
        for j in 0..8 {
            seen += 1;
            if x[j] > 2.5 { at = j; break; }
            seen += 10;
        }
        y[..] = zeros<f32>[8] + ((at * 100 + seen) as f32);";
    assert_eq!(eight(body, RAMP), vec![334.0; 8]);
    // None is.
    assert_eq!(eight(body, [0.0; 8]), vec![-100.0 + 88.0; 8]);
    // From the end, in steps; and only some are counted.
    let body = "let mut sum = 0;
        for j in 0..8 rev step 3 { if x[j] < 1.0 { break; } sum = sum * 10 + j; }
        for j in 0..8 {
            if j % 2 == 1 { continue; }
            if x[j] > 5.5 { break; }
            sum = sum * 10 + j;
        }
        let mut n = 0;
        while true { if n * n > 30 { break; } n += 1; }
        for const c in 0..8 { if const c == 2 { continue; } if const c == 4 { break; } sum = sum * 10 + c; }
        y[..] = zeros<f32>[8] + (sum as f32) + (n as f32) * 0.125;";
    assert_eq!(eight(body, RAMP), vec![63_024_012.0; 8]);
    // A break leaves the parts that follow, and the innermost loop only.
    let body = "let mut s = 0;
        for (j, part) in 0..3..6..8 {
            for k in 0..4 { if k == 2 { break; } s += 1; }
            if part == 1 && x[j] > 3.5 { s += 1000; break; }
            s += 100;
        }
        y[..] = zeros<f32>[8] + (s as f32);";
    assert_eq!(eight(body, RAMP), vec![5.0 * 2.0 + 4.0 * 100.0 + 1000.0; 8]);
}

#[test]
fn a_dimension_may_have_the_name_of_a_function() {
    let text = "
        fn rows(x) = x * 2.0;
        kernel twice(x: view<f32>[rows], y: out view<f32>[rows]) grid (i in ceil_div(rows, 4)) { y[i*4 +: 4] = x[i*4 +: 4] * 2.0; }";
    let made = make(text, "twice");
    let x = tensor(DType::F32, &[3], &[1.0, 2.0, 3.0]);
    let y = run(&made, vec![("x", x), ("y", zeros(DType::F32, &[3]))], "y");
    assert_eq!(y, [2.0, 4.0, 6.0]);
}
