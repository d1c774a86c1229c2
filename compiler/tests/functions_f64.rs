//! Functions of f64: the `expand_f64` pass, on the interpreter, against Rust's own; and their code for every target,
//! assembled where `ptxas` is found.

use std::fmt::Display;

use tesserine_compiler::{
    Session,
    interp::{self, Arg, Args, Tensor},
    ir::tile,
    passes,
    target::Target,
};
use tesserine_set::DType;

const COUNT: usize = 4096;

/// One function of tiles, and of a scalar.
fn text(function: &str) -> String {
    format!(
        "kernel k(x: view<f64>[{COUNT}], r: out view<f64>[{COUNT}], s: out view<f64>[1]) grid (b in {COUNT} / 128)\n{{\n    \
         r[b*128 +: 128] = {function}(x[b*128 +: 128]);\n    if b == 0 {{ s[0] = {function}(x[1]); }}\n}}\n"
    )
}

fn body(function: &str, target: Target) -> (Session, tile::Kernel) {
    let mut session = Session::new();
    let made = session
        .load_text("program.tess", &text(function))
        .and_then(|module| session.instantiate(module, "k", target))
        .unwrap_or_else(|d| panic!("{d:?}"));
    (session, made.bodies[0].clone())
}

/// What the function's kernel gives after the pass.
fn written_out(function: &str, x: &[f64]) -> Vec<f64> {
    let target = Target::ALL[0];
    let (_, body) = body(function, target);
    let mut expanded = None;
    let mut observe = |name: &str, kernel: &dyn Display| {
        if name == "expand_f64" {
            expanded = Some(kernel.to_string());
        }
    };
    passes::lower_with(&body, &target, &mut observe).unwrap_or_else(|d| panic!("{d:?}"));
    let expanded = expanded.expect("there is a pass of that name");
    assert!(!expanded.contains(&format!(" = {function} ")), "{expanded}");
    let kernel = tile::parse(&expanded).unwrap_or_else(|e| panic!("{e}\n{expanded}"));
    let run = |kernel: &tile::Kernel| {
        let mut args = Args::from([
            (
                "x".to_owned(),
                Arg::Tensor(Tensor::from_f64(DType::F64, vec![COUNT], x).unwrap()),
            ),
            (
                "r".to_owned(),
                Arg::Tensor(Tensor::zeros(DType::F64, vec![COUNT]).unwrap()),
            ),
            (
                "s".to_owned(),
                Arg::Tensor(Tensor::zeros(DType::F64, vec![1]).unwrap()),
            ),
        ]);
        interp::run(kernel, &mut args).unwrap_or_else(|e| panic!("{e}"));
        ["r", "s"].map(|name| match &args[name] {
            Arg::Tensor(tensor) => tensor.to_f64(),
            Arg::Scalar(_) => panic!("`{name}` is a scalar"),
        })
    };
    let [found, scalar] = run(&kernel);
    assert_eq!(scalar[0].to_bits(), found[1].to_bits(), "{function}");
    let [direct, _] = run(&body);
    for ((&x, &a), &b) in x.iter().zip(&found).zip(&direct) {
        near(function, x, a, b);
    }
    found
}

/// Within 2⁻⁵⁰ of the value, or 10⁻¹⁵ where functions cross zero; zeros have their sign.
fn near(function: &str, x: f64, found: f64, wanted: f64) {
    let same = found == wanted || found.is_nan() && wanted.is_nan();
    let zero = wanted != 0.0 || found.is_sign_negative() == wanted.is_sign_negative();
    let crosses = matches!(function, "sin" | "cos" | "log" | "log2");
    let least = if crosses { 1e-15 } else { 5e-324 };
    let allowed = (wanted.abs() * 2f64.powi(-50)).max(least);
    assert!(
        same && zero || (found - wanted).abs() <= allowed,
        "{function}({x:e}) is {found:e} and not {wanted:e}"
    );
}

/// Special values, then numbers spread evenly over `-size..size`, then of all exponents.
fn arguments(size: f64) -> Vec<f64> {
    let mut x = vec![
        f64::NAN,
        0.625,
        f64::INFINITY,
        f64::NEG_INFINITY,
        0.0,
        -0.0,
        1.0,
        -1.0,
        5e-324,
        -5e-324,
        f64::MIN_POSITIVE,
        f64::MAX,
        f64::MIN,
        709.782712893384,
        709.7827128933841,
        -745.1332191019411,
        -745.2,
        -708.5,
        1023.9999999999999,
        1024.0,
        -1074.0,
        -1075.5,
        std::f64::consts::FRAC_PI_2,
        std::f64::consts::PI,
        6381956970095103.0 * 2f64.powi(797),
        2f64.powi(40),
        2f64.powi(40) - 1.0,
        0.9999999999999999,
        1.0000000000000002,
        6.5,
    ];
    let mut state = 1u64;
    let mut next = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        state ^ state >> 29
    };
    while x.len() < COUNT {
        let bits = next();
        x.push(match bits & 4 {
            0 => f64::from_bits(next()),
            _ => ((bits >> 11) as f64 * 2f64.powi(-52) - 1.0) * size,
        });
    }
    x
}

fn check(function: &str, sizes: &[f64], reference: impl Fn(f64) -> f64) {
    for &size in sizes {
        let x = arguments(size);
        for (&x, y) in x.iter().zip(written_out(function, &x)) {
            near(function, x, y, reference(x));
        }
    }
}

#[test]
fn exponentials() {
    check("exp", &[1.0, 750.0], f64::exp);
    check("exp2", &[1.0, 1080.0], f64::exp2);
    check("tanh", &[1.0, 25.0], f64::tanh);
    check("sigmoid", &[1.0, 750.0], |x| match x >= 0.0 {
        true => 1.0 / (1.0 + (-x).exp()),
        false => x.exp() / (1.0 + x.exp()),
    });
}

#[test]
fn logarithms() {
    check("log", &[2.0, 1e5], f64::ln);
    check("log2", &[2.0, 1e5], f64::log2);
}

#[test]
fn circles() {
    check("sin", &[2.0, 1e5, 1e15], f64::sin);
    check("cos", &[2.0, 1e5, 1e15], f64::cos);
}

/// Against 2/√π·e^(−t²) added up by Simpson's rule, the sum with a second float for what rounding loses.
#[test]
fn error_function() {
    let integral = |x: f64| {
        let pieces = 4096u32;
        let step = x / f64::from(pieces);
        let (mut sum, mut lost) = (0.0f64, 0.0f64);
        for i in 0..=pieces {
            let weight = match i {
                0 => 1.0,
                i if i == pieces => 1.0,
                i if i % 2 == 1 => 4.0,
                _ => 2.0,
            };
            let t = step * f64::from(i);
            let term = weight * (-t * t).exp();
            let next = sum + term;
            lost += term - (next - sum);
            sum = next;
        }
        std::f64::consts::FRAC_2_SQRT_PI * (step / 3.0) * (sum + lost)
    };
    for size in [1.0, 4.0] {
        let x = arguments(size);
        for (&x, y) in x.iter().zip(written_out("erf", &x)) {
            if x.abs() < 7.0 {
                let wanted = if x.abs() < 1e-100 {
                    x * std::f64::consts::FRAC_2_SQRT_PI
                } else {
                    integral(x)
                };
                near("erf", x, y, wanted);
            } else {
                near("erf", x, y, if x.is_nan() { x } else { x.signum() });
            }
        }
    }
}

#[cfg(feature = "llvm")]
#[test]
fn every_target() {
    use tesserine_compiler::{codegen, emit::ptxas::Ptxas};
    let tool = Ptxas::find().ok();
    let functions = [
        "exp", "exp2", "log", "log2", "tanh", "erf", "sigmoid", "sin", "cos",
    ];
    for target in Target::ALL {
        for function in functions {
            let (session, body) = body(function, target);
            let role = passes::lower(&body, &target).unwrap_or_else(|d| panic!("{d:?}"));
            let module = codegen::compile(&role, target, session.sources())
                .unwrap_or_else(|d| panic!("{function} for {target}: {d:?}"));
            if let Some(tool) = &tool {
                let cubin = tool
                    .assemble(&module.ptx, target)
                    .unwrap_or_else(|e| panic!("{e}\n{}", module.ptx));
                assert_eq!(
                    cubin.losses,
                    Vec::<String>::new(),
                    "{function} for {target}"
                );
            }
        }
    }
}
