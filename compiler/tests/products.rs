//! Matrix products from source to meaning: `dot` and its errors, the order of the grid, bodies with values of their own,
//! epilogues as arguments; and what the interpreter computes, against plain sums in f64.

use tesserine_compiler::{
    Module, Session,
    diagnostics::{Diagnostics, render},
    interp::{self, Arg, Args, Tensor},
    ir::{
        Order,
        tile::{self, Instance, OpKind},
    },
    target::Target,
};
use tesserine_set::{DType, ParamKind};

const GEMM: &str = r#"
use std::epilogue::{Epilogue, Identity};

kernel gemm_nt<T: dtype in {f16, bf16}, BM: int = 128, BN: int = 256, BK: int = 64, E: Epilogue = Identity>(
    a: view<T>[m, k], b: view<T>[n, k], c: out view<T>[m, n], epi: E,
) grid (i in ceil_div(m, BM), j in ceil_div(n, BN)) order grouped(8)
{
    let mut acc = zeros<f32>[BM, BN];
    for p in 0..ceil_div(k, BK) {
        acc = dot(a[i*BM +: BM, p*BK +: BK], b[j*BN +: BN, p*BK +: BK].t, acc);
    }
    c[i*BM +: BM, j*BN +: BN] = epi.apply(acc, i*BM, j*BN) as T;
}

schedule gemm_nt {
    sm_75           { BM: 128, BN: 128, BK: 32, warps: 4, stages: 2 }
    sm_80 ..= sm_89 { BM: 128, BN: 128, BK: 32, warps: 4, stages: 4 }
    sm_90a          { warps: 8, stages: 4, persistent: true }
    general         { BM: 64, BN: 64, BK: 32, warps: 4, persistent: false }
    specialize      { k % 8 == 0, n % 8 == 0, aligned(a, 16), aligned(b, 16), aligned(c, 16) }
    tune            { BM: [64, 128], BN: [64, 128, 192, 256] where BM * BN <= 128 * 256 }
}
"#;

fn target(name: &str) -> Target {
    Target::parse(name).expect("a target of the list")
}

fn shown(session: &Session, diagnostics: &Diagnostics) -> String {
    let texts = diagnostics
        .iter()
        .map(|d| render(d, session.sources(), false));
    texts.collect::<Vec<_>>().join("\n")
}

fn load(text: &str) -> (Session, Module) {
    let mut session = Session::new();
    match session.load_text("gemm.tess", text) {
        Ok(module) => (session, module),
        Err(d) => panic!("{}", shown(&session, &d)),
    }
}

fn instance(text: &str, name: &str, on: &str) -> Instance {
    let (session, module) = load(text);
    match session.instantiate(module, name, target(on)) {
        Ok(instance) => {
            for body in &instance.bodies {
                assert_eq!(tile::verify(body), Ok(()), "{name} for {on}");
            }
            instance
        }
        Err(d) => panic!("{}", shown(&session, &d)),
    }
}

/// What is said of the kernel `k` with this body, on views `a: [m, 32]`, `b: [n, 32]`, `v: [m]`, `c: [m, n]` of f16.
fn refused(body: &str) -> String {
    let text = format!(
        "kernel k(a: view<f16>[m, 32], b: view<f16>[n, 32], h: view<bf16>[n, 32], q: view<e4m3>[n, 32], v: view<f16>[m], c: out view<f32>[m, n])
         grid (i in ceil_div(m, 16)) {{
             let x = a[i*16 +: 16, ..];
             let y = b[0 +: 8, ..];
             {body}
         }}"
    );
    let (session, module) = load(&text);
    match session.instantiate(module, "k", target("sm_80")) {
        Ok(_) => panic!("accepted: {body}"),
        Err(d) => shown(&session, &d),
    }
}

#[test]
fn a_product_is_one_operation_in_a_loop() {
    let made = instance(GEMM, "gemm_nt<bf16>", "sm_80");
    for body in &made.bodies {
        let dots: Vec<_> = body
            .body
            .ops
            .values()
            .filter(|op| op.kind == OpKind::Dot)
            .collect();
        assert_eq!(dots.len(), 1);
        let shape = |i: usize| body.body.ty(dots[0].operands[i]).shape().to_vec();
        let [[m, k], [inner, n]] = [0, 1].map(|i| [shape(i)[0], shape(i)[1]]);
        assert_eq!((k, shape(2)), (inner, vec![m, n]));
        let text = body.to_string();
        assert_eq!(tile::parse(&text).unwrap().to_string(), text);
        assert!(text.contains("permute [1, 0]"), "{text}");
    }
}

#[test]
fn the_general_body_has_values_of_its_own() {
    let tile = |made: &Instance, body: usize| {
        let body = &made.bodies[body].body;
        let dot = body.ops.values().find(|op| op.kind == OpKind::Dot).unwrap();
        body.ty(dot.results[0]).shape().to_vec()
    };
    let made = instance(GEMM, "gemm_nt<f16>", "sm_75");
    assert_eq!(made.bodies.len(), 2);
    assert_eq!(
        (tile(&made, 0), tile(&made, 1)),
        (vec![128, 128], vec![64, 64])
    );
    let [special, general] = [0, 1].map(|i| &made.bodies[i].header);
    assert_eq!(special.facts.len(), 5);
    assert_eq!(general.facts, []);
    // A key that `general` does not give is the target's.
    assert_eq!(
        [special, general].map(|h| (h.schedule.warps, h.schedule.stages)),
        [(Some(4), Some(2)), (Some(4), Some(2))]
    );
    for header in [special, general] {
        assert_eq!(header.order, Order::Grouped { group: 8 });
    }
    let made = instance(GEMM, "gemm_nt<f16>", "sm_90a");
    assert_eq!(
        (tile(&made, 0), tile(&made, 1)),
        (vec![128, 256], vec![64, 64])
    );
    assert_eq!(
        [0, 1].map(|i| made.bodies[i].header.persistent),
        [true, false]
    );
    // What the instance says holds for both.
    let made = instance(GEMM, "gemm_nt<f16, BM = 32>", "sm_75");
    assert_eq!(
        (tile(&made, 0), tile(&made, 1)),
        (vec![32, 128], vec![32, 64])
    );
}

#[test]
fn a_schedule_for_certain_arguments_comes_before_one_for_all() {
    let own = format!("{GEMM}schedule gemm_nt for bf16 {{ sm_75 {{ BM: 64, stages: 1 }} }}");
    let sizes = |name: &str, on: &str| {
        let made = instance(&own, name, on);
        let each = made.bodies.iter().map(|kernel| {
            let mut ops = kernel.body.ops.values();
            let dot = ops.find(|op| op.kind == OpKind::Dot).unwrap();
            let shape = kernel.body.ty(dot.results[0]).shape().to_vec();
            (shape, kernel.header.schedule.stages)
        });
        each.collect::<Vec<_>>()
    };
    assert_eq!(
        sizes("gemm_nt<bf16>", "sm_75"),
        [(vec![64, 128], Some(1)), (vec![64, 64], Some(1))]
    );
    assert_eq!(
        sizes("gemm_nt<f16>", "sm_75"),
        [(vec![128, 128], Some(2)), (vec![64, 64], Some(2))]
    );
    assert_eq!(sizes("gemm_nt<bf16>", "sm_80")[0].1, Some(4));
}

#[test]
fn a_general_entry_needs_a_specialised_body() {
    let (session, module) = load(&GEMM.replace("    specialize ", "    // "));
    let found = session
        .instantiate(module, "gemm_nt<f16>", target("sm_80"))
        .map(|i| i.name)
        .map_err(|d| shown(&session, &d))
        .unwrap_err();
    assert!(
        found.contains("E0602") && found.contains("beside the specialised"),
        "{found}"
    );
    // What every launch must satisfy cannot differ between bodies.
    let (session, module) =
        load(&GEMM.replace("epi: E,\n) grid", "epi: E,\n) where m % BM == 0 grid"));
    let found = session
        .instantiate(module, "gemm_nt<f16>", target("sm_80"))
        .map(|i| i.name)
        .map_err(|d| shown(&session, &d))
        .unwrap_err();
    assert!(
        found.contains("E0602") && found.contains("one for all bodies"),
        "{found}"
    );
}

#[test]
fn the_whole_module_passes_the_check() {
    let (session, module) = load(GEMM);
    let found = session.check(module);
    assert!(!found.has_errors(), "{}", shown(&session, &found));
    // `general` stands alone.
    let (session, module) = load(&GEMM.replace("    general ", "    sm_80, general "));
    let found = shown(&session, &session.check(module));
    assert!(
        found.contains("E0603") && found.contains("general"),
        "{found}"
    );
}

#[test]
fn grids_say_their_order() {
    let with = |order: &str| {
        let (session, module) = load(&GEMM.replace("grouped(8)", order));
        session
            .instantiate(module, "gemm_nt<f16>", target("sm_80"))
            .map(|i| i.bodies[0].header.order)
            .map_err(|d| shown(&session, &d))
    };
    assert_eq!(with("grouped(BM / 8)"), Ok(Order::Grouped { group: 16 }));
    assert_eq!(with("rev(j), grouped(4)"), Ok(Order::Grouped { group: 4 }));
    for (order, code, words) in [
        ("grouped(0)", "E0505", "from 1 to 65536"),
        ("grouped(m)", "E0301", "constant"),
        ("grouped", "E0505", "no order"),
        ("grouped(8), grouped(4)", "E0505", "grouped twice"),
        ("columns(8)", "E0505", "no order"),
        ("rev(k)", "E0505", "no cluster"),
        ("rev(i), rev(i)", "E0505", "twice"),
    ] {
        let found = with(order).unwrap_err();
        assert!(found.contains(code) && found.contains(words), "{found}");
    }
    let persistent = GEMM.replace("grid (i", "grid persistent (i");
    let made = instance(&persistent, "gemm_nt<f16>", "sm_80");
    assert_eq!(
        [0, 1].map(|i| made.bodies[i].header.persistent),
        [true, false]
    );
    let (session, module) = load(&GEMM.replace("persistent: true", "persistent: 1"));
    let found = session.instantiate(module, "gemm_nt<f16>", target("sm_90a"));
    assert!(shown(&session, &found.unwrap_err()).contains("`true` or `false`"));
}

#[test]
fn products_that_do_not_fit_are_refused() {
    for (body, code, words) in [
        ("let z = dot(x, y);", "E0201", "did you mean `y.t`?"),
        (
            "let z = dot(x, y.t, zeros<f32>[16, 16]);",
            "E0201",
            "is `[16, 8]`, and it is added to `[16, 16]`",
        ),
        (
            "let z = dot(x, y.t, zeros<bf16>[16, 8]);",
            "E0102",
            "adds up in `f32`",
        ),
        (
            "let z = dot(q[0 +: 8, ..], q[0 +: 8, ..].t, zeros<f16>[8, 8]);",
            "E0102",
            "adds up in `f32`",
        ),
        (
            "let z = dot(x, h[0 +: 8, ..].t);",
            "E0102",
            "one element type",
        ),
        (
            "let z = dot(x, q[0 +: 8, ..].t);",
            "E0102",
            "one element type",
        ),
        ("let z = dot(v[0 +: 16], x);", "E0201", "takes matrices"),
        ("let z = dot(a, y.t);", "E0102", "takes tiles"),
        ("let z = dot(x);", "E0107", "two tiles"),
        (
            "let z = dot(x[_, .., ..], y.t);",
            "E0201",
            "before the last two differ",
        ),
        (
            "let z = dot(x > 0.0, (y > 0.0).t);",
            "E0102",
            "multiplies floats",
        ),
    ] {
        let found = refused(body);
        assert!(
            found.contains(code) && found.contains(words),
            "{body}\n{found}"
        );
    }
}

/// Cheap reproducible numbers in −1..1.
fn noise(i: usize) -> f64 {
    let x = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x >> 40) as f64 / f64::from(1 << 23) - 1.0
}

fn tensor(dtype: DType, shape: &[usize], seed: usize) -> Tensor {
    let count = shape.iter().product();
    let values: Vec<f64> = (0..count).map(|i| noise(i + seed)).collect();
    Tensor::from_f64(dtype, shape.to_vec(), &values).unwrap()
}

/// The error function by its series, which serves where |x| is small.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..100 {
        term *= -x * x / n as f64;
        sum += term / (2 * n + 1) as f64;
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

type Epilogue = (&'static str, fn(f64, f64) -> f64);

const EPILOGUES: [Epilogue; 5] = [
    ("Identity", |x, _| x),
    ("Bias<{T}>", |x, bias| x + bias),
    ("Silu", |x, _| x / (1.0 + (-x).exp())),
    ("Gelu", |x, _| 0.5 * x * (1.0 + erf(x / 2f64.sqrt()))),
    ("GeluTanh", |x, _| {
        let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
        0.5 * x * (1.0 + u.tanh())
    }),
];

/// Runs `made` on `a: [m, k]` and `b: [n, k]` and compares; gives the index of the body that ran.
fn compare(
    made: &Instance,
    dtype: DType,
    (m, n, k): (usize, usize, usize),
    epilogue: Epilogue,
) -> usize {
    let a = tensor(dtype, &[m, k], 1);
    let b = tensor(dtype, &[n, k], 1000);
    let bias = tensor(dtype, &[n], 5000);
    let (x, y, z) = (a.to_f64(), b.to_f64(), bias.to_f64());
    let c = Tensor::from_f64(dtype, vec![m, n], &vec![0.0; m * n]).unwrap();
    let mut args: Args = [("a", a), ("b", b), ("c", c)]
        .into_iter()
        .map(|(name, t)| (name.to_owned(), Arg::Tensor(t)))
        .collect();
    if epilogue.0.starts_with("Bias") {
        args.insert("epi.bias".to_owned(), Arg::Tensor(bias));
    }
    let report = interp::launch(made, &mut args).unwrap();
    assert_eq!(report.unwritten, []);
    let Arg::Tensor(c) = &args["c"] else {
        panic!("`c` is a tensor")
    };
    let unit = if dtype == DType::F16 {
        2f64.powi(-11)
    } else {
        2f64.powi(-8)
    };
    for (at, &found) in c.to_f64().iter().enumerate() {
        let (row, col) = (at / n, at % n);
        let sum: f64 = (0..k).map(|p| x[row * k + p] * y[col * k + p]).sum();
        let expected = epilogue.1(sum, z[col]);
        // One rounding to the narrow type; f32 before that.
        let allowed = expected.abs() * unit + 1e-5 * (1.0 + k as f64).sqrt() * (1.0 + sum.abs());
        assert!(
            (found - expected).abs() <= allowed,
            "{}: [{row}, {col}] of [{m}, {n}] over {k}: {found} for {expected}",
            epilogue.0
        );
    }
    report.body
}

#[test]
fn epilogues_are_arguments_and_mean_what_they_say() {
    for dtype in [DType::F16, DType::Bf16] {
        for epilogue in EPILOGUES {
            let e = epilogue.0.replace("{T}", dtype.name());
            let name = format!("gemm_nt<{dtype}, BM = 16, BN = 32, BK = 16, E = {e}>");
            let made = instance(GEMM, &name, "sm_89");
            let params = &made.bodies[0].header.signature.params;
            let names: Vec<&str> = params.iter().map(|p| p.name.as_str()).collect();
            if e.starts_with("Bias") {
                assert_eq!(names, ["a", "b", "c", "epi.bias"]);
                assert!(
                    matches!(&params[3].kind, ParamKind::View(v) if v.dtype == dtype && v.extents.len() == 1)
                );
            } else {
                // A variant without fields asks for nothing.
                assert_eq!(names, ["a", "b", "c"]);
            }
            assert_eq!(compare(&made, dtype, (33, 40, 48), epilogue), 0);
            for shape in [(1, 1, 1), (17, 31, 23), (16, 32, 16), (5, 70, 3)] {
                compare(&made, dtype, shape, epilogue);
            }
        }
    }
}

#[test]
fn both_bodies_compute_products() {
    let made = instance(GEMM, "gemm_nt<bf16>", "sm_90a");
    assert_eq!(compare(&made, DType::Bf16, (130, 72, 72), EPILOGUES[0]), 0);
    assert_eq!(compare(&made, DType::Bf16, (70, 65, 33), EPILOGUES[0]), 1);
}

#[test]
fn products_without_a_start_begin_at_zero() {
    let text = "
        kernel k(a: view<f32>[m, 24], b: view<f32>[24, n], c: out view<f32>[m, n]) grid (i in ceil_div(m, 8), j in ceil_div(n, 8)) {
            c[i*8 +: 8, j*8 +: 8] = dot(a[i*8 +: 8, ..], b[.., j*8 +: 8]);
        }";
    let made = instance(text, "k", "sm_75");
    let (m, n) = (11, 9);
    let a = tensor(DType::F32, &[m, 24], 3);
    let b = tensor(DType::F32, &[24, n], 7000);
    let (x, y) = (a.to_f64(), b.to_f64());
    let c = Tensor::from_f64(DType::F32, vec![m, n], &vec![0.0; m * n]).unwrap();
    let mut args: Args = [("a", a), ("b", b), ("c", c)]
        .into_iter()
        .map(|(name, t)| (name.to_owned(), Arg::Tensor(t)))
        .collect();
    interp::launch(&made, &mut args).unwrap();
    let Arg::Tensor(c) = &args["c"] else {
        panic!("`c` is a tensor")
    };
    for (at, &found) in c.to_f64().iter().enumerate() {
        let (row, col) = (at / n, at % n);
        let sum: f64 = (0..24).map(|p| x[row * 24 + p] * y[p * n + col]).sum();
        assert_eq!(found, f64::from(sum as f32), "[{row}, {col}]");
    }
}
