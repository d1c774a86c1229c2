//! The interpreter against plain Rust, on kernels written as IR text.

use tesserine_compiler::{
    interp::{self, Arg, Args, FaultKind, InterpError, Tensor},
    ir::tile::{self, Instance, Kernel},
};
use tesserine_set::DType;

fn kernel(text: &str) -> Kernel {
    let kernel = tile::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    if let Err(errors) = tile::verify(&kernel) {
        let texts: Vec<String> = errors.iter().map(|e| e.to_string()).collect();
        panic!("{}", texts.join("\n"));
    }
    kernel
}

fn args<const N: usize>(list: [(&str, Arg); N]) -> Args {
    list.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()
}

fn tensor(dtype: DType, shape: &[usize], values: impl Fn(usize) -> f64) -> Arg {
    let count = shape.iter().product();
    let values: Vec<f64> = (0..count).map(values).collect();
    Arg::Tensor(Tensor::from_f64(dtype, shape.to_vec(), &values).unwrap())
}

fn values(args: &Args, name: &str) -> Vec<f64> {
    match &args[name] {
        Arg::Tensor(tensor) => tensor.to_f64(),
        Arg::Scalar(_) => panic!("{name} is a scalar"),
    }
}

/// Cheap reproducible numbers in −1..1.
fn noise(i: usize) -> f64 {
    let x = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x >> 40) as f64 / f64::from(1 << 23) - 1.0
}

const AXPY: &str = r#"
kernel "axpy<f32>"
  dims n
  param x: view<f32>[n]
  param z: view<f32>[n]
  param y: out view<f32>[n]
  param s: f32 = 1.0
  axis i in ceil_div(n, 64)
{
  %0 = param x : view<f32>[?]
  %1 = param z : view<f32>[?]
  %2 = param y : out view<f32>[?]
  %3 = param s : f32
  %4 = grid i : i64
  %5 = constant 64 : i64
  %6 = mul %4, %5 : i64
  %7 = constant 0.0 : f32
  %8 = load %0[%6 +: 64] pad %7 : tile<f32>[64]
  %9 = load %1[%6 +: 64] pad %7 : tile<f32>[64]
  %10 = broadcast %3 : tile<f32>[64]
  %11 = mul %10, %8 : tile<f32>[64]
  %12 = add %11, %9 : tile<f32>[64]
  store %2[%6 +: 64] = %12
  return
}
"#;

#[test]
fn axpy_is_that_of_rust() {
    let kernel = kernel(AXPY);
    let n = 1000;
    let mut args = args([
        ("x", tensor(DType::F32, &[n], noise)),
        ("z", tensor(DType::F32, &[n], |i| noise(i + n))),
        ("y", tensor(DType::F32, &[n], |_| 7.0)),
        ("s", Arg::from(0.3)),
    ]);
    let report = interp::run(&kernel, &mut args).unwrap();
    assert_eq!(report.blocks, 16);
    assert_eq!(report.unwritten, []);
    let y = values(&args, "y");
    for (i, y) in y.iter().enumerate() {
        let expected = 0.3f32 * noise(i) as f32 + noise(i + n) as f32;
        assert_eq!(*y, f64::from(expected), "element {i}");
    }
}

#[test]
fn what_is_left_unwritten_is_counted_exactly() {
    // A grid without the last, partial block.
    let kernel = kernel(&AXPY.replace("ceil_div(n, 64)", "n / 64"));
    let n = 200;
    let mut args = args([
        ("x", tensor(DType::F32, &[n], noise)),
        ("z", tensor(DType::F32, &[n], noise)),
        ("y", tensor(DType::F32, &[n], |_| 7.0)),
    ]);
    let report = interp::run(&kernel, &mut args).unwrap();
    let [unwritten] = &report.unwritten[..] else {
        panic!("{report:?}")
    };
    assert_eq!(
        unwritten.to_string(),
        "8 of 200 elements of `y` were not written, the first at [192]"
    );
    assert_eq!(values(&args, "y")[192..], [7.0; 8]);
    // The default of `s` is 1.
    assert_eq!(
        values(&args, "y")[3],
        f64::from(noise(3) as f32 + noise(3) as f32)
    );
}

const RMSNORM: &str = r#"
kernel "rmsnorm<bf16>"
  dims m, n
  param x: view<bf16>[m, n]
  param weight: view<bf16>[n]
  param out: out view<bf16>[m, n]
  param eps: f32 = 1e-6
  axis i in m
{
  %0 = param x : view<bf16>[?, ?]
  %1 = param weight : view<bf16>[?]
  %2 = param out : out view<bf16>[?, ?]
  %3 = param eps : f32
  %4 = grid i : i64
  %5 = dim n : i64
  %6 = constant 0 : i64
  %7 = constant 256 : i64
  %8 = constant 0.0 : bf16
  %9 = constant 0.0 : f32
  %10 = broadcast %9 : tile<f32>[256]
  %11 = for "sum" %6, %5, %7, %10 : tile<f32>[256] { |%12: i64, %13: tile<f32>[256]|
    %14 = load %0[%4, %12 +: 256] pad %8 : tile<bf16>[256]
    %15 = cast %14 : tile<f32>[256]
    %16 = mul %15, %15 : tile<f32>[256]
    %17 = add %13, %16 : tile<f32>[256]
    yield %17
  }
  %18 = reduce sum axis 0 %11 : f32
  %19 = cast %5 : f32
  %20 = div %18, %19 : f32
  %21 = add %20, %3 : f32
  %22 = rsqrt %21 : f32
  %23 = broadcast %22 : tile<f32>[256]
  for rev %6, %5, %7 { |%24: i64|
    %25 = load %0[%4, %24 +: 256] pad %8 : tile<bf16>[256]
    %26 = cast %25 : tile<f32>[256]
    %27 = load %1[%24 +: 256] pad %8 : tile<bf16>[256]
    %28 = cast %27 : tile<f32>[256]
    %29 = mul %26, %23 : tile<f32>[256]
    %30 = mul %29, %28 : tile<f32>[256]
    %31 = cast %30 : tile<bf16>[256]
    store %2[%4, %24 +: 256] = %31
    yield
  }
  return
}
"#;

#[test]
fn rmsnorm_is_that_of_rust() {
    let kernel = kernel(RMSNORM);
    let bf16 = |x: f64| half::bf16::from_f64(x).to_f64();
    for (m, n) in [(1, 1), (3, 256), (5, 700)] {
        let mut args = args([
            ("x", tensor(DType::Bf16, &[m, n], noise)),
            ("weight", tensor(DType::Bf16, &[n], |i| noise(i + 9))),
            ("out", tensor(DType::Bf16, &[m, n], |_| f64::NAN)),
        ]);
        let report = interp::run(&kernel, &mut args).unwrap();
        assert_eq!(report.unwritten, []);
        let out = values(&args, "out");
        for row in 0..m {
            let x = |j: usize| bf16(noise(row * n + j));
            let squares: f64 = (0..n).map(|j| x(j) * x(j)).sum();
            let scale = 1.0 / (squares / n as f64 + 1e-6).sqrt();
            for j in 0..n {
                let expected = x(j) * scale * bf16(noise(j + 9));
                let found = out[row * n + j];
                assert!(
                    (found - expected).abs() <= expected.abs() / 200.0 + 1e-30,
                    "[{row}, {j}] of [{m}, {n}]: {found} for {expected}"
                );
                assert_eq!(found, bf16(found));
            }
        }
    }
}

/// A kernel of one block without axes, over `x: [6]` and `y: out [8]` of the given types.
fn small(x: DType, y: DType, lines: &str) -> Kernel {
    kernel(&format!(
        r#"kernel "k"
  dims n
  param x: mut view<{x}>[6]
  param y: out view<{y}>[8]
  param z: view<i32>[n, n]
  param k: i64 = 0
{{
  %0 = param x : mut view<{x}>[?]
  %1 = param y : out view<{y}>[?]
  %2 = param z : view<i32>[?, ?]
  %3 = param k : i64
  %4 = constant 0 : i64
  {lines}
  return
}}
"#
    ))
}

fn run_small(kernel: &Kernel, x: &[f64], k: i64) -> Result<Vec<f64>, InterpError> {
    let types: Vec<DType> = kernel.header.signature.params[..2]
        .iter()
        .map(|p| match &p.kind {
            tesserine_set::ParamKind::View(view) => view.dtype,
            tesserine_set::ParamKind::Scalar { .. } => panic!("x and y are views"),
        })
        .collect();
    let mut args = args([
        (
            "x",
            tensor(types[0], &[6], |i| x.get(i).copied().unwrap_or(0.0)),
        ),
        ("y", tensor(types[1], &[8], |_| 1.0)),
        ("z", tensor(DType::I32, &[3, 3], |i| i as f64)),
        ("k", Arg::from(k)),
    ]);
    interp::run(kernel, &mut args)?;
    Ok(values(&args, "y"))
}

#[test]
fn reads_outside_give_the_pad_and_stores_outside_nothing() {
    let k = small(
        DType::I32,
        DType::I32,
        "%5 = constant -9 : i32
  %6 = load %0[%3 +: 8] pad %5 : tile<i32>[8]
  store %1[%4 +: 8] = %6",
    );
    let x = [10.0, 11.0, 12.0, 13.0, 14.0, 15.0];
    let p = -9.0;
    let y = |start| run_small(&k, &x, start).unwrap();
    assert_eq!(y(0), [10.0, 11.0, 12.0, 13.0, 14.0, 15.0, p, p]);
    assert_eq!(y(-2), [p, p, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0]);
    assert_eq!(y(4), [14.0, 15.0, p, p, p, p, p, p]);
    for far in [6, -8, i64::MAX, i64::MIN] {
        assert_eq!(y(far), [p; 8], "{far}");
    }
    let k = small(
        DType::I32,
        DType::I32,
        "%5 = constant 5 : i32
  %6 = broadcast %5 : tile<i32>[4]
  %7 = constant 2 : i64
  store %1[%3 +: 4 until %7] = %6
  store %1[%3] = %5",
    );
    let y = |start| run_small(&k, &x, start).unwrap();
    assert_eq!(y(0), [5.0, 5.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
    assert_eq!(y(-3), [5.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
    assert_eq!(y(1), [1.0, 5.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
    assert_eq!(y(7), [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 5.0]);
    for far in [9, i64::MAX, i64::MIN] {
        assert_eq!(y(far), [1.0; 8], "{far}");
    }
}

#[test]
fn packed_types_read_and_write_within_bytes() {
    for (dtype, values) in [
        (DType::U4, [0.0, 15.0, 7.0, 8.0, 1.0, 2.0]),
        (DType::I4, [0.0, -8.0, 7.0, -1.0, 1.0, 2.0]),
        (DType::E2m1, [0.0, -6.0, 0.5, 1.5, -1.0, 4.0]),
        (DType::U1, [0.0, 1.0, 1.0, 0.0, 1.0, 1.0]),
    ] {
        let elem = tile::loaded(dtype);
        let zero = match elem {
            DType::Bool => "false",
            DType::E2m1 => "0.0",
            _ => "0",
        };
        let k = small(
            dtype,
            dtype,
            &format!(
                "%5 = constant {zero} : {elem}
  %6 = load %0[%3 +: 5] pad %5 : tile<{elem}>[5]
  %7 = constant 3 : i64
  store %1[%7 +: 5] = %6"
            ),
        );
        let y = run_small(&k, &values, 1).unwrap();
        assert_eq!(y[3..], values[1..], "{dtype}");
        assert_eq!(y[..3], [1.0; 3], "{dtype}");
    }
}

#[test]
fn tiles_move_as_in_numpy() {
    // z is [[0, 1, 2], [3, 4, 5], [6, 7, 8]].
    let k = small(
        DType::I32,
        DType::I32,
        "%5 = constant -1 : i32
  %6 = load %2[%4 +: 2, %3 +: 3] pad %5 : tile<i32>[2, 3]
  %7 = permute [1, 0] %6 : tile<i32>[3, 2]
  %8 = slice [1, 0] %7 : tile<i32>[2, 2]
  %9 = reshape %8 : tile<i32>[4]
  store %1[%4 +: 4] = %9
  %10 = load %2[%4 +: 2, %4] pad %5 : tile<i32>[2]
  %11 = reshape %10 : tile<i32>[2, 1]
  %12 = broadcast %11 : tile<i32>[2, 2]
  %13 = reshape %12 : tile<i32>[4]
  %14 = constant 4 : i64
  store %1[%14 +: 4] = %13",
    );
    let y = run_small(&k, &[], 0).unwrap();
    assert_eq!(y, [1.0, 4.0, 2.0, 5.0, 0.0, 0.0, 3.0, 3.0]);
    let y = run_small(&k, &[], 1).unwrap();
    assert_eq!(y[..4], [2.0, 5.0, -1.0, -1.0]);
}

#[test]
fn loops_carry_values() {
    // Fibonacci by `for`, and the number of halvings to 1 by `while`.
    let k = small(
        DType::I32,
        DType::I64,
        "%5 = constant 1 : i64
  %6, %7 = for %4, %3, %5, %4, %5 : i64, i64 { |%8: i64, %9: i64, %10: i64|
    %11 = add %9, %10 : i64
    yield %10, %11
  }
  store %1[%4] = %6
  %12 = constant 2 : i64
  %13, %14 = while %3, %4 : i64, i64 { |%15: i64, %16: i64|
    %17 = compare gt %15, %5 : bool
    yield %17
  } { |%18: i64, %19: i64|
    %20 = div %18, %12 : i64
    %21 = add %19, %5 : i64
    yield %20, %21
  }
  store %1[%5] = %14
  %22 = compare gt %3, %12 : bool
  %23 = if %22 : i64 { yield %13 } { yield %3 }
  store %1[%12] = %23
  %24 = constant 3 : i64
  %25 = for rev %5, %3, %24, %4 : i64 { |%26: i64, %27: i64|
    %28 = constant 10 : i64
    %29 = mul %27, %28 : i64
    %30 = add %29, %26 : i64
    yield %30
  }
  store %1[%24] = %25",
    );
    let y = run_small(&k, &[], 10).unwrap();
    assert_eq!(y[..4], [55.0, 3.0, 1.0, 741.0]);
    let y = run_small(&k, &[], 2).unwrap();
    assert_eq!(y[..4], [1.0, 1.0, 2.0, 1.0]);
    let y = run_small(&k, &[], -5).unwrap();
    assert_eq!(y[..4], [0.0, 0.0, -5.0, 0.0]);
}

#[test]
fn faults_name_the_block() {
    let fault = |lines: &str, k: i64| match run_small(&small(DType::I32, DType::I32, lines), &[], k)
    {
        Err(InterpError::Fault { kind, .. }) => Some(kind),
        Ok(_) => None,
        Err(other) => panic!("{other}"),
    };
    let div = "%5 = div %4, %3 : i64";
    assert_eq!(fault(div, 0), Some(FaultKind::DivisionByZero));
    assert_eq!(fault(div, 1), None);
    let assert = "%5 = compare ne %3, %4 : bool\n  assert \"k is 0\" %5";
    assert_eq!(
        fault(assert, 0),
        Some(FaultKind::Assertion("k is 0".into()))
    );
    assert_eq!(fault(assert, 4), None);
    let step = "for %4, %3, %4 { |%5: i64| yield }";
    assert_eq!(fault(step, 4), Some(FaultKind::Step(0)));

    let kernel = kernel(&AXPY.replace("%6 = mul %4, %5 : i64", "%6 = div %5, %4 : i64"));
    let n = 100;
    let zeros = || tensor(DType::F32, &[n], |_| 0.0);
    let mut args = args([("x", zeros()), ("z", zeros()), ("y", zeros())]);
    let error = interp::run(&kernel, &mut args).unwrap_err();
    assert_eq!(
        error.to_string(),
        "an integer is divided by zero, in block (i = 0)"
    );
    assert_eq!(values(&args, "y").len(), n, "the tensors come back");
}

#[test]
fn blocks_that_race_are_found() {
    // Slices of 64 every 63 elements: an element of each belongs to the next block too.
    let overlap = kernel(&AXPY.replace("%5 = constant 64", "%5 = constant 63"));
    let n = 100;
    let zeros = || tensor(DType::F32, &[n], |_| 0.0);
    let mut stores = args([("x", zeros()), ("z", zeros()), ("y", zeros())]);
    let error = interp::run(&overlap, &mut stores).unwrap_err();
    assert_eq!(
        error.to_string(),
        "two blocks use element [63] of `y`, and at least one stores to it, in block (i = 1)"
    );

    let in_place = |read: &str| {
        kernel(&format!(
            r#"kernel "k"
  dims n
  param x: mut view<f32>[n, n]
  axis i in n
{{
  %0 = param x : mut view<f32>[?, ?]
  %1 = grid i : i64
  %2 = constant 1 : i64
  %3 = {read} %1, %2 : i64
  %4 = constant 0.0 : f32
  %5 = load %0[%3, %2] pad %4 : f32
  store %0[%1, %2] = %5
  return
}}
"#
        ))
    };
    for (read, races) in [("mul", false), ("sub", true), ("add", true)] {
        let mut args = args([("x", tensor(DType::F32, &[4, 4], noise))]);
        let result = interp::run(&in_place(read), &mut args);
        assert_eq!(result.is_err(), races, "{read}: {result:?}");
    }
}

#[test]
fn strided_tensors_are_read_and_written_in_place() {
    let text = AXPY
        .replace("x: view<f32>[n]", "x: view<f32>[n] strided")
        .replace("y: out view<f32>[n]", "y: out view<f32>[n] strided");
    let kernel = kernel(&text);
    let n = 70;
    let mut x = Tensor::from_f64(DType::F32, vec![3 * n], &vec![5.0; 3 * n]).unwrap();
    (x.shape, x.strides) = (vec![n], vec![3]);
    let mut y = Tensor::from_f64(DType::F32, vec![2 * n], &vec![9.0; 2 * n]).unwrap();
    (y.shape, y.strides) = (vec![n], vec![2]);
    let mut args = args([
        ("x", Arg::Tensor(x)),
        ("z", tensor(DType::F32, &[n], |i| i as f64)),
        ("y", Arg::Tensor(y)),
    ]);
    assert_eq!(interp::run(&kernel, &mut args).unwrap().unwritten, []);
    let Arg::Tensor(y) = &mut args["y"] else {
        panic!("y is a tensor")
    };
    (y.shape, y.strides) = (vec![2 * n], vec![1]);
    for (i, y) in y.to_f64().into_iter().enumerate() {
        let expected = if i % 2 == 0 {
            5.0 + (i / 2) as f64
        } else {
            9.0
        };
        assert_eq!(y, expected, "element {i}");
    }
}

#[test]
fn a_launch_takes_the_first_body_whose_facts_hold() {
    let general = kernel(AXPY);
    let special = kernel(&AXPY.replace(
        "  axis",
        "  require n < 1000\n  fact n % 8 == 0\n  fact aligned(x, 16)\n  axis",
    ));
    let general = Kernel {
        header: tesserine_compiler::ir::Header {
            facts: vec![],
            ..special.header.clone()
        },
        channels: general.channels,
        body: general.body,
    };
    let instance = Instance {
        tune: Vec::new(),
        name: "axpy<f32>".into(),
        bodies: vec![special, general],
    };
    let launch = |n: usize| {
        let zeros = || tensor(DType::F32, &[n], |_| 0.0);
        let mut args = args([("x", zeros()), ("z", zeros()), ("y", zeros())]);
        interp::launch(&instance, &mut args)
    };
    assert_eq!(launch(64).unwrap().body, 0);
    assert_eq!(launch(65).unwrap().body, 1);
    let error = launch(1000).unwrap_err().to_string();
    assert!(error.contains("n < 1000"), "{error}");
    let instance = Instance {
        tune: Vec::new(),
        name: "axpy<f32>".into(),
        bodies: instance.bodies[..1].to_vec(),
    };
    let zeros = || tensor(DType::F32, &[65], |_| 0.0);
    let mut odd = args([("x", zeros()), ("z", zeros()), ("y", zeros())]);
    let error = interp::launch(&instance, &mut odd).unwrap_err().to_string();
    assert!(error.contains("n % 8 == 0"), "{error}");
}

#[test]
fn arguments_are_checked_by_name() {
    let kernel = kernel(AXPY);
    let zeros = |n: usize| tensor(DType::F32, &[n], |_| 0.0);
    let error = |list: Vec<(&str, Arg)>| {
        let mut args: Args = list.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
        let before = args.clone();
        let error = interp::run(&kernel, &mut args).unwrap_err().to_string();
        assert_eq!(args, before, "arguments come back as they were");
        error
    };
    assert!(error(vec![("x", zeros(4)), ("y", zeros(4))]).contains("`z`"));
    let wrong = vec![("x", zeros(4)), ("z", zeros(5)), ("y", zeros(4))];
    assert!(error(wrong).contains("`z`"));
    let unknown = vec![("x", zeros(4)), ("w", zeros(4))];
    assert_eq!(error(unknown), "the kernel has no parameter `w`");
    let half = tensor(DType::F16, &[4], |_| 0.0);
    let wrong = vec![("x", half), ("z", zeros(4)), ("y", zeros(4))];
    assert!(error(wrong).contains("`x`"));
}

#[test]
fn promises_about_data_are_checked() {
    let text = |fact: &str| {
        format!(
            "kernel \"k\"\n  dims n, m\n  param rows: view<i32>[n, m] {fact}\n{{\n  return\n}}\n"
        )
    };
    let run = |fact: &str, shape: &[usize], rows: &[f64]| {
        let mut args = args([("rows", tensor(DType::I32, shape, |i| rows[i]))]);
        interp::run(&kernel(&text(fact)), &mut args).map_err(|e| e.to_string())
    };
    assert!(run("distinct", &[3, 2], &[1.0, 2.0, 1.0, 3.0, 2.0, 2.0]).is_ok());
    assert_eq!(
        run("distinct", &[3, 2], &[1.0, 2.0, 1.0, 3.0, 1.0, 2.0]),
        Err("`rows` is declared `distinct`, but rows 0 and 2 are not so".into())
    );
    assert!(run("sorted", &[4, 1], &[1.0, 1.0, 5.0, 9.0]).is_ok());
    assert_eq!(
        run("sorted", &[4, 1], &[1.0, 5.0, 4.0, 9.0]),
        Err("`rows` is declared `sorted`, but rows 1 and 2 are not so".into())
    );
}

#[test]
fn tensors_that_do_not_fit_are_refused() {
    let bytes = |n| vec![0u8; n];
    assert!(Tensor::from_bytes(DType::F32, vec![2, 3], bytes(24)).is_ok());
    assert!(Tensor::from_bytes(DType::F32, vec![2, 3], bytes(23)).is_err());
    assert!(Tensor::from_bytes(DType::U4, vec![3], bytes(2)).is_ok());
    assert!(Tensor::from_bytes(DType::U4, vec![3], bytes(1)).is_err());
    assert!(Tensor::from_bytes(DType::F64, vec![usize::MAX, 2], bytes(8)).is_err());
    assert!(Tensor::from_bytes(DType::F64, vec![0, usize::MAX], bytes(0)).is_err());
    let strided =
        |strides: Vec<usize>, n| Tensor::strided(DType::U8, vec![2, 3], strides, bytes(n));
    assert!(strided(vec![10, 1], 13).is_ok());
    assert!(strided(vec![10, 1], 12).is_err());
    assert!(strided(vec![usize::MAX, 1], 12).is_err());
    assert!(strided(vec![1], 12).is_err());
}

#[test]
fn an_empty_launch_does_nothing() {
    let kernel = kernel(AXPY);
    let empty = || tensor(DType::F32, &[0], |_| 0.0);
    let mut args = args([("x", empty()), ("z", empty()), ("y", empty())]);
    let report = interp::run(&kernel, &mut args).unwrap();
    assert_eq!((report.blocks, report.unwritten), (0, vec![]));
}

#[test]
fn casts_follow_the_language() {
    let cast = |from: DType, to: DType, x: f64| {
        let zero = |ty: DType| match ty {
            DType::Bool => "false",
            ty if ty.is_float() => "0.5",
            _ => "0",
        };
        let zero = zero(from);
        let k = small(
            from,
            to,
            &format!(
                "%5 = constant {zero} : {from}
  %6 = load %0[%4] pad %5 : {from}
  %7 = cast %6 : {to}
  store %1[%4] = %7"
            ),
        );
        run_small(&k, &[x], 0).unwrap()[0]
    };
    let nan = f64::NAN;
    let inf = f64::INFINITY;
    use DType::*;
    for (from, to, x, expected) in [
        // Float to integer: towards zero, saturating, NaN is 0.
        (F32, I32, -1.9, -1.0),
        (F32, I32, 3e10, 2147483647.0),
        (F32, U8, -5.0, 0.0),
        (F32, U8, 255.9, 255.0),
        (F32, I8, nan, 0.0),
        (F64, I64, -inf, -(2f64.powi(63))),
        (F64, U64, inf, 2f64.powi(64)),
        // Integer to integer wraps; to bool and back.
        (I32, I8, 200.0, -56.0),
        (I32, U16, -1.0, 65535.0),
        (U8, I8, 255.0, -1.0),
        (I32, Bool, 256.0, 1.0),
        (Bool, F16, 1.0, 1.0),
        (Bool, I64, 1.0, 1.0),
        (F32, Bool, 0.25, 1.0),
        // Integer to float rounds once.
        (I32, F16, 2049.0, 2048.0),
        (I32, F32, 16777217.0, 16777216.0),
        (I32, Bf16, 257.0, 256.0),
        (I32, Bf16, 259.0, 260.0),
        // Float to float: ties to even, overflow to infinity or saturating.
        (F32, Bf16, 1.0 + 2f64.powi(-8), 1.0),
        (F32, Bf16, 1.0 + 3.0 * 2f64.powi(-8), 1.0 + 2f64.powi(-6)),
        (F32, F16, 65520.0, inf),
        (F32, F16, 65519.0, 65504.0),
        (F32, E4m3, 1e9, 448.0),
        (F32, E4m3, -inf, -448.0),
        (F32, E5m2, 1e9, 57344.0),
        (F32, E2m1, 2.5, 2.0),
        (F32, E2m1, nan, 6.0),
        (F32, Ue4m3, -3.0, 0.0),
        (F32, Ue8m0, 5.0, 8.0),
        (F32, Ue8m0, 4.0, 4.0),
        (F64, F32, 1e300, inf),
    ] {
        assert_eq!(cast(from, to, x), expected, "{x} from {from} to {to}");
    }
    for to in [F64, F16, Bf16, E4m3, E5m2, Ue8m0, Ue4m3] {
        assert!(cast(F32, to, nan).is_nan(), "{to}");
    }
}

#[test]
fn reductions_of_a_tile() {
    let k = |op: &str, result: &str| {
        small(
            DType::I32,
            DType::I64,
            &format!(
                "%5 = constant -9 : i32
  %6 = load %2[%4 +: 3, %4 +: 3] pad %5 : tile<i32>[3, 3]
  %7 = constant 4 : i32
  %8 = broadcast %7 : tile<i32>[3, 3]
  %9 = compare lt %6, %8 : tile<bool>[3, 3]
  %10 = sub %6, %8 : tile<i32>[3, 3]
  %11 = mul %10, %10 : tile<i32>[3, 3]
  {op}
  store %1[%4 +: 3] = {result}"
            ),
        )
    };
    let rows = |op: &str, from: &str, ty: &str| {
        let op = format!(
            "%12 = reduce {op} axis 1 {from} : tile<{ty}>[3]\n  %13 = cast %12 : tile<i64>[3]"
        );
        run_small(&k(&op, "%13"), &[], 0).unwrap()[..3].to_vec()
    };
    // %6 is [[0, 1, 2], [3, 4, 5], [6, 7, 8]], %11 [[16, 9, 4], [1, 0, 1], [4, 9, 16]].
    assert_eq!(rows("sum", "%6", "i32"), [3.0, 12.0, 21.0]);
    assert_eq!(rows("max", "%11", "i32"), [16.0, 1.0, 16.0]);
    assert_eq!(rows("min", "%11", "i32"), [4.0, 0.0, 4.0]);
    assert_eq!(rows("argmax", "%11", "i32"), [0.0, 0.0, 2.0]);
    assert_eq!(rows("argmin", "%11", "i32"), [2.0, 1.0, 0.0]);
    assert_eq!(rows("sum", "%9", "i32"), [3.0, 1.0, 0.0]);
    assert_eq!(rows("any", "%9", "bool"), [1.0, 1.0, 0.0]);
    assert_eq!(rows("all", "%9", "bool"), [1.0, 0.0, 0.0]);
    let whole = |op: &str, from: &str, ty: &str| {
        let op = format!(
            "%12 = reduce {op} {from} : {ty}\n  %13 = cast %12 : i64\n  %14 = broadcast %13 : tile<i64>[3]"
        );
        run_small(&k(&op, "%14"), &[], 0).unwrap()[0]
    };
    assert_eq!(whole("sum", "%6", "i32"), 36.0);
    assert_eq!(whole("argmax", "%11", "i64"), 0.0);
    assert_eq!(whole("argmin", "%11", "i64"), 4.0);
    assert_eq!(whole("all", "%9", "bool"), 0.0);
}

#[test]
fn an_optional_scalar_may_be_left_out_if_it_is_not_used() {
    let text = |lines: &str| {
        format!(
            "kernel \"k\"\n  param s?: f32\n{{\n  %0 = param s : f32\n  {lines}\n  return\n}}\n"
        )
    };
    let run = |lines: &str| interp::run(&kernel(&text(lines)), &mut Args::new());
    assert!(run("").is_ok());
    let error = run("%1 = neg %0 : f32").unwrap_err().to_string();
    assert_eq!(error, "`s` was not given, and is used");
}
