//! The role level in tile IR: text that is read, checked and written again.

use tesserine_compiler::ir::tile;

/// A product whose left and right tiles one role copies and another multiplies.
const PRODUCT: &str = r#"kernel "product<bf16>"
  dims m, n, k
  param a: view<bf16>[m, k]
  param b: view<bf16>[n, k]
  param c: out view<bf16>[m, n]
  axis i in ceil_div(m, 128)
  axis j in ceil_div(n, 256)
channel channel0 "ab" tile<bf16>[128, 64] tile<bf16>[256, 64] depth 4
{
  %0 = param a : view<bf16>[?, ?]
  %1 = param b : view<bf16>[?, ?]
  %2 = param c : out view<bf16>[?, ?]
  %3 = grid i : i64
  %4 = grid j : i64
  %5 = dim k : i64
  %6 = constant 64 : i64
  %7 = div %5, %6 : i64
  %8 = constant 0 : i64
  %9 = constant 1 : i64
  %10 = constant 128 : i64
  %11 = mul %3, %10 : i64
  %12 = constant 256 : i64
  %13 = mul %4, %12 : i64
  roles ("load" warps 1 regs 24, "math" groups 2 split 0 regs 240) {
    for %8, %7, %9 { |%14: i64|
      %15 = mul %14, %6 : i64
      put channel0 = %0[%11 +: 128, %15 +: 64], %1[%13 +: 256, %15 +: 64]
      yield
    }
    yield
  } {
    %16 = constant 0.0 : f32
    %17 = broadcast %16 : tile<f32>[128, 256]
    %18 = cast %17 : pending<f32>[128, 256]
    %19 = for %8, %7, %9, %18 : pending<f32>[128, 256] { |%20: i64, %21: pending<f32>[128, 256]|
      %22, %23 = get channel0 : tile<bf16>[128, 64], tile<bf16>[256, 64]
      %24 = permute [1, 0] %23 : tile<bf16>[64, 256]
      %25 = mma %22, %24, %21 : pending<f32>[128, 256]
      release channel0 lag 1
      yield %25
    }
    %26 = await %19 : tile<f32>[128, 256]
    %27 = cast %26 : tile<bf16>[128, 256]
    store %2[%11 +: 128, %13 +: 256] = %27
    yield
  }
  return
}
"#;

#[test]
fn text_is_read_and_written_the_same() {
    let kernel = tile::parse(PRODUCT).unwrap_or_else(|e| panic!("{e:?}"));
    tile::verify(&kernel).unwrap_or_else(|e| panic!("{e:?}"));
    assert_eq!(kernel.to_string(), PRODUCT);
}

#[test]
fn what_does_not_fit_is_refused() {
    let broken = [
        // A slice of another shape than the channel passes.
        ("%0[%11 +: 128, %15 +: 64]", "%0[%11 +: 64, %15 +: 64]"),
        // A source too few.
        (", %1[%13 +: 256, %15 +: 64]", ""),
        // A pending tile of another shape.
        ("mma %22, %24, %21", "mma %22, %23, %21"),
        // What is awaited changes its type.
        (
            "await %19 : tile<f32>[128, 256]",
            "await %19 : tile<f32>[256, 128]",
        ),
        // No whole warpgroups and no warps.
        ("\"load\" warps 1", "\"load\" warps 0"),
        ("depth 4", "depth 0"),
    ];
    for (from, to) in broken {
        let text = PRODUCT.replacen(from, to, 1);
        assert_ne!(text, PRODUCT);
        let kernel = tile::parse(&text).unwrap_or_else(|e| panic!("{to}: {e:?}"));
        assert!(tile::verify(&kernel).is_err(), "{to}");
    }
}
