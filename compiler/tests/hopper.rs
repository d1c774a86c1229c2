//! Kernels of several roles written as role IR: rings with barriers, bulk copies, and the products of warpgroups.

use std::fmt::Write;

use tesserine_compiler::{
    ir::role,
    layout::{Layout, fragments},
};

fn layout_text(layout: &Layout) -> String {
    format!(
        "layout {:?} register {:?} lane {:?} warp {:?} repeat {:?}",
        layout.shape, layout.register, layout.lane, layout.warp, layout.repeat
    )
}

/// The slot that follows `slot` in a ring of `%depth` slots, and the phase there. Takes values from `first` on.
fn advance(
    out: &mut String,
    first: usize,
    slot: usize,
    phase: usize,
    depth: u32,
) -> (usize, usize) {
    let v = |i: usize| first + i;
    for (i, line) in [
        "constant 1 : i32".to_owned(),
        format!("constant {depth} : i32"),
        "constant 0 : i32".to_owned(),
        format!("add %{slot}, %{} : i32", v(0)),
        format!("compare eq %{}, %{} : bool", v(3), v(1)),
        format!("xor %{phase}, %{} : i32", v(0)),
        format!("select %{}, %{}, %{} : i32", v(4), v(2), v(3)),
        format!("select %{}, %{}, %{phase} : i32", v(4), v(5)),
    ]
    .into_iter()
    .enumerate()
    {
        let _ = writeln!(out, "      %{} = {line}", v(i));
    }
    (v(6), v(7))
}

/// C = A · Bᵀ of bf16, in tiles of `bm` by `bn`, 64 of K at a time in a ring of `depth` slots: one warp copies, `bm / 64`
/// warpgroups multiply and store from registers.
fn gemm(bm: u32, bn: u32, depth: u32) -> String {
    let warps = bm / 16;
    let layout = layout_text(&fragments::warpgroup_result([bm, bn], warps));
    let b_at = bm * 128;
    let slot_bytes = b_at + bn * 128;
    let ring = slot_bytes * depth;
    let bytes = slot_bytes;
    let mut copied = String::new();
    let (ls, lp) = advance(&mut copied, 30, 15, 16, depth);
    let mut multiplied = String::new();
    let (ms, mp) = advance(&mut multiplied, 40, 15, 16, depth);
    let barriers = 16 * depth;
    let total = ring + barriers;
    let pairs = bn / 2;
    let _ = pairs;
    format!(
        r#"#l0 = {layout}
kernel "gemm<bf16>"
  dims m, n, k
  param a: view<bf16>[m, k]
  param b: view<bf16>[n, k]
  param c: out view<bf16>[m, n]
  require aligned(c, 16)
  require n % 8 == 0
  axis i in ceil_div(m, {bm})
  axis j in ceil_div(n, {bn})
  order grouped(16)
  persistent
  buffer shared0: {ring} align 1024 at 0
  buffer shared1: {barriers} align 8 at {ring}
  channel channel0: depth {depth} fill bulk in shared0 barriers shared1 full 1 empty {warps}
    tile bf16 [{bm}, 64] at 0 rows {bm} pitch 128 mask 7 shift 0
    tile bf16 [{bn}, 64] at {b_at} rows {bn} pitch 128 mask 7 shift 0
  map map0: a bf16 swizzle 128
    dim 1 step 1 box 64
    dim 0 step 1 box {bm}
  map map1: b bf16 swizzle 128
    dim 1 step 1 box 64
    dim 0 step 1 box {bn}
  shared {total}
role "load" warps 1 from {warps} registers 24 {{ |%0: i32, %1: i32|
  %2 = grid i : i64
  %3 = grid j : i64
  %4 = constant {bm} : i64
  %5 = constant {bn} : i64
  %6 = mul %2, %4 : i64
  %7 = mul %3, %5 : i64
  %8 = cast %6 : i32
  %9 = cast %7 : i32
  %10 = dim k : i64
  %11 = constant 64 : i64
  %12 = constant 0 : i64
  %13 = constant 1 : i64
  %17 = add %10, %11 : i64
  %18 = sub %17, %13 : i64
  %19 = div %18, %11 : i64
  %20, %21 = for %12, %19, %13, %0, %1 : i32, i32 {{ |%14: i64, %15: i32, %16: i32|
      %22 = mul %14, %11 : i64
      %23 = cast %22 : i32
      wait_empty channel0 %15, %16
      expect_bytes channel0 {bytes} %15
      copy_bulk channel0 tile 0 at 0 map0 %15, %23, %8
      copy_bulk channel0 tile 1 at 0 map1 %15, %23, %9
{copied}      yield %{ls}, %{lp}
  }}
  return %20, %21
}}
role "math" warps {warps} registers 240 {{ |%0: i32, %1: i32|
  %2 = grid i : i64
  %3 = grid j : i64
  %4 = constant {bm} : i64
  %5 = constant {bn} : i64
  %6 = mul %2, %4 : i64
  %7 = mul %3, %5 : i64
  %8 = param c : out view<bf16>[?, ?]
  %10 = dim k : i64
  %11 = constant 64 : i64
  %12 = constant 0 : i64
  %13 = constant 1 : i64
  %17 = add %10, %11 : i64
  %18 = sub %17, %13 : i64
  %19 = div %18, %11 : i64
  %20 = constant 0.0 : f32
  %21 = broadcast %20 : tile<f32>[{bm}, {bn}] #l0
  %22, %23, %24, %25 = for %12, %19, %13, %0, %1, %0, %21 : i32, i32, i32, tile<f32>[{bm}, {bn}] #l0 {{ |%14: i64, %15: i32, %16: i32, %26: i32, %27: tile<f32>[{bm}, {bn}] #l0|
      wait_full channel0 %15, %16
      %28 = compare ne %14, %12 : bool
      %29 = product channel0 tile 0 by channel0 tile 1 transposed %15, %15, %27, %28 : tile<f32>[{bm}, {bn}] #l0
      %30 = wait_products 1 %29 : tile<f32>[{bm}, {bn}] #l0
      if %28 {{
        arrive_empty channel0 %26
        yield
      }} {{
        yield
      }}
{multiplied}      yield %{ms}, %{mp}, %15, %30
  }}
  %60 = wait_products 0 %25 : tile<f32>[{bm}, {bn}] #l0
  arrive_empty channel0 %24
  %61 = cast %60 : tile<bf16>[{bm}, {bn}] #l0
  store %8[%6 +: {bm}, %7 +: {bn}] = %61 width 2
  return %22, %23
}}
"#
    )
}

#[test]
fn text_is_read_and_written_the_same() {
    let kernel = role::parse(&gemm(128, 256, 4)).unwrap_or_else(|e| panic!("{e}"));
    role::verify(&kernel).unwrap_or_else(|e| panic!("{e:?}"));
    let text = kernel.to_string();
    let again = role::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(again.to_string(), text);
}

#[test]
fn what_does_not_fit_is_refused() {
    let text = gemm(128, 256, 4);
    let broken = [
        // Roles on the same warps, and of different registers in one warpgroup.
        ("warps 1 from 8", "warps 1 from 7"),
        // A box beyond its tile.
        ("dim 0 step 1 box 128", "dim 0 step 1 box 256"),
        // No barriers.
        (" barriers shared1 full 1 empty 8", ""),
        // Another swizzle than the map's.
        ("a bf16 swizzle 128", "a bf16 swizzle 64"),
        // The right factor the other way round.
        ("tile 1 transposed", "tile 1"),
        // A tile that no role gives back.
        ("wait_products 1 %29", "wait_products 1 %29, %27"),
        // A state that is not given back.
        ("return %20, %21", "return %20"),
        ("registers 24", "registers 20"),
        ("map1 %15, %23, %9", "map1 %15, %23"),
    ];
    for (from, to) in broken {
        let text = text.replacen(from, to, 1);
        let kernel = match role::parse(&text) {
            Ok(kernel) => kernel,
            Err(e) => panic!("{to}: {e}"),
        };
        assert!(role::verify(&kernel).is_err(), "{to}");
    }
}
