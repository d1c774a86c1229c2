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
