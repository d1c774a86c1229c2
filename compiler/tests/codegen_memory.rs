//! Accesses by index tiles, packed elements, atomic operations and arrivals, as tile IR, through all passes and LLVM to PTX,
//! assembled where `ptxas` is found.
#![cfg(feature = "llvm")]

use tesserine_compiler::{
    codegen::{self, Module},
    emit::ptxas::Ptxas,
    ir::tile,
    passes,
    span::SourceMap,
    target::Target,
};

/// Compiles for all targets and assembles; nothing may spill or be complained about.
fn everywhere(text: &str) -> Vec<Module> {
    let kernel = tile::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    tile::verify(&kernel).unwrap_or_else(|e| panic!("{}", e[0]));
    let tool = Ptxas::find().ok();
    Target::ALL
        .into_iter()
        .map(|target| {
            let lowered = passes::lower(&kernel, &target).unwrap_or_else(|d| panic!("{d:?}"));
            let module =
                codegen::compile(&lowered, target, &SourceMap::default()).unwrap_or_else(|d| {
                    let text = codegen::llvm_text(&lowered, target, &SourceMap::default());
                    panic!("{d:?}\n{}", text.unwrap_or_default())
                });
            if let Some(tool) = &tool {
                let cubin = tool
                    .assemble(&module.ptx, target)
                    .unwrap_or_else(|e| panic!("{e}\n{}", module.ptx));
                assert_eq!(cubin.losses, Vec::<String>::new(), "{}", module.entry);
            }
            module
        })
        .collect()
}

#[test]
fn gathered_rows_move_in_wide_pieces() {
    let modules = everywhere(
        r#"
kernel "rows"
  dims m, n, t
  param x: view<f16>[m, n]
  param ids: view<i32>[t]
  param y: out view<f16>[t, n]
  fact aligned(x, 16)
  fact aligned(y, 16)
  fact n % 8 == 0
  axis i in ceil_div(t, 64)
{
  %0 = param x : view<f16>[?, ?]
  %1 = param ids : view<i32>[?]
  %2 = param y : out view<f16>[?, ?]
  %3 = grid i : i64
  %4 = constant 64 : i64
  %5 = mul %3, %4 : i64
  %6 = constant -1 : i32
  %7 = load %1[%5 +: 64] pad %6 : tile<i32>[64]
  %8 = constant 0 : i64
  %9 = constant 0.0 : f16
  %10 = load %0[at %7 +: 64, %8 +: 64] pad %9 : tile<f16>[64, 64]
  store %2[%5 +: 64, %8 +: 64] = %10
  return
}
"#,
    );
    for module in modules {
        assert!(module.ptx.contains("ld.global.nc.v4.b32"), "{}", module.ptx);
        assert!(!module.ptx.contains("ld.global.nc.b16"), "{}", module.ptx);
    }
}

#[test]
fn index_tiles_run_along_together_and_scatter() {
    everywhere(
        r#"
kernel "elements"
  dims m, n, t
  param x: view<f32>[m, n]
  param i: view<i32>[t]
  param j: view<i64>[t]
  param y: out view<f32>[n]
  axis b in ceil_div(t, 200)
{
  %0 = param x : view<f32>[?, ?]
  %1 = param i : view<i32>[?]
  %2 = param j : view<i64>[?]
  %3 = param y : out view<f32>[?]
  %4 = grid b : i64
  %5 = constant 200 : i64
  %6 = mul %4, %5 : i64
  %7 = constant -1 : i32
  %8 = constant -1 : i64
  %9 = load %1[%6 +: 200] pad %7 : tile<i32>[200]
  %10 = load %2[%6 +: 200] pad %8 : tile<i64>[200]
  %11 = constant 0.0 : f32
  %12 = load %0[at %9 +: 200, with %10 +: 200] pad %11 : tile<f32>[200]
  scatter %3[at %10 +: 200] = %12
  return
}
"#,
    );
}

#[test]
fn packed_elements_are_read_and_stored() {
    let modules = everywhere(
        r#"
kernel "bits"
  dims n
  param x: view<u1>[n]
  param y: out view<u1>[n]
  param z: view<i4>[n]
  param w: out view<u4>[n]
  axis b in ceil_div(n, 1024)
{
  %0 = param x : view<u1>[?]
  %1 = param y : out view<u1>[?]
  %2 = param z : view<i4>[?]
  %3 = param w : out view<u4>[?]
  %4 = grid b : i64
  %5 = constant 1024 : i64
  %6 = mul %4, %5 : i64
  %7 = constant false : bool
  %8 = load %0[%6 +: 1024] pad %7 : tile<bool>[1024]
  %9 = not %8 : tile<bool>[1024]
  store %1[%6 +: 1024] = %9
  %10 = constant 0 : i8
  %11 = load %2[%6 +: 1024] pad %10 : tile<i8>[1024]
  %12 = add %11, %11 : tile<i8>[1024]
  %13 = cast %12 : tile<u8>[1024]
  store %3[%6 +: 1024] = %13
  %14 = load %0[%6] pad %7 : bool
  assert "the first bit is set" %14
  return
}
"#,
    );
    for module in modules {
        assert!(module.ptx.contains("st.global.b8"), "{}", module.ptx);
    }
}

#[test]
fn aligned_packed_elements_move_in_words() {
    let modules = everywhere(
        r#"
kernel "nibbles"
  dims m, n
  param x: view<e2m1>[m, n]
  param y: out view<u4>[m, n]
  fact aligned(x, 16)
  fact aligned(y, 16)
  fact n % 32 == 0
  axis b in m
{
  %0 = param x : view<e2m1>[?, ?]
  %1 = param y : out view<u4>[?, ?]
  %2 = grid b : i64
  %3 = constant 0 : i64
  %4 = constant 0.0 : e2m1
  %5 = load %0[%2, %3 +: 8192] pad %4 : tile<e2m1>[8192]
  %6 = cast %5 : tile<f32>[8192]
  %7 = cast %6 : tile<u8>[8192]
  store %1[%2, %3 +: 8192] = %7
  return
}
"#,
    );
    for module in modules {
        assert!(module.ptx.contains("ld.global.nc.v4.b32"), "{}", module.ptx);
        assert!(module.ptx.contains("st.global.v4.b32"), "{}", module.ptx);
    }
}

#[test]
fn memory_is_seen_with_other_elements() {
    let modules = everywhere(
        r#"
kernel "seen"
  dims m, n
  param x: view<f32>[m, n]
  param y: out view<u8>[m, 4 * n]
  fact aligned(x, 16)
  fact aligned(y, 16)
  fact n % 4 == 0
  axis b in m
{
  %0 = param x : view<f32>[?, ?]
  %1 = param y : out view<u8>[?, ?]
  %2 = grid b : i64
  %3 = constant 0 : i64
  %4 = view_bitcast %0 : view<u8>[?, ?]
  %5 = constant 0 : u8
  %6 = load %4[%2, %3 +: 4096] pad %5 : tile<u8>[4096]
  store %1[%2, %3 +: 4096] = %6
  return
}
"#,
    );
    for module in modules {
        assert!(module.ptx.contains("ld.global.nc.v4.b32"), "{}", module.ptx);
    }
}

#[test]
fn atomics_of_tiles_and_scalars() {
    let modules = everywhere(
        r#"
kernel "atomics"
  dims n, t
  param c: mut view<i32>[n]
  param f: mut view<f32>[n]
  param d: mut view<f64>[n]
  param u: mut view<u64>[n]
  param ids: view<i32>[t]
  param y: out view<i32>[t]
  param z: out view<f32>[t]
  axis b in ceil_div(t, 70)
{
  %0 = param c : mut view<i32>[?]
  %1 = param f : mut view<f32>[?]
  %2 = param d : mut view<f64>[?]
  %3 = param u : mut view<u64>[?]
  %4 = param ids : view<i32>[?]
  %5 = param y : out view<i32>[?]
  %6 = param z : out view<f32>[?]
  %7 = grid b : i64
  %8 = constant 70 : i64
  %9 = mul %7, %8 : i64
  %10 = constant -1 : i32
  %11 = load %4[%9 +: 70] pad %10 : tile<i32>[70]
  %12 = constant 1 : i32
  %13 = broadcast %12 : tile<i32>[70]
  %14 = atomic add %0[at %11 +: 70] = %13 : tile<i32>[70]
  store %5[%9 +: 70] = %14
  %15 = constant 2.0 : f32
  %16 = broadcast %15 : tile<f32>[70]
  %17 = atomic max %1[at %11 +: 70] = %16 : tile<f32>[70]
  %18 = atomic add %1[at %11 +: 70] = %16 : tile<f32>[70]
  store %6[%9 +: 70] = %18
  %19 = constant 0 : i64
  %20 = constant 1.0 : f64
  %21 = atomic add %2[%19] = %20 : f64
  %22 = constant 7 : u64
  %23 = atomic cas %3[%7] = %22, %22 : u64
  %24 = cast %23 : i64
  %25 = atomic min %0[%24] = %12 : i32
  %26 = broadcast %25 : tile<i32>[32]
  %27 = atomic xor %0[%24 +: 32] = %26 : tile<i32>[32]
  return
}
"#,
    );
    for module in modules {
        for name in [
            "add.u32", "cas.b32", "add.f32", "add.f64", "cas.b64", "xor.b32",
        ] {
            assert!(
                module.ptx.contains(&format!("gpu.{name}")),
                "{name}\n{}",
                module.ptx
            );
        }
    }
}

#[test]
fn the_last_block_to_arrive_goes_on() {
    let modules = everywhere(
        r#"
kernel "arrive"
  dims n, b
  param part: mut view<f32>[b, 128]
  param count: mut view<i32>[1]
  param y: out view<f32>[128]
  axis i in b
{
  %0 = param part : mut view<f32>[?, ?]
  %1 = param count : mut view<i32>[?]
  %2 = param y : out view<f32>[?]
  %3 = grid i : i64
  %4 = dim b : i64
  %5 = constant 0 : i64
  %6 = constant 1.0 : f32
  %7 = broadcast %6 : tile<f32>[128]
  store %0[%3, ..128] = %7
  %8 = arrive %1[%5] of %4 : bool
  if %8 {
    %9 = constant 1 : i64
    %10 = constant 0.0 : f32
    %11 = broadcast %10 : tile<f32>[128]
    %12 = for %5, %4, %9, %11 : tile<f32>[128] { |%13 : i64, %14 : tile<f32>[128]|
      %15 = load %0[%13, ..128] pad %10 : tile<f32>[128]
      %16 = add %14, %15 : tile<f32>[128]
      yield %16
    }
    store %2[..128] = %12
    yield
  } { yield }
  return
}
"#,
    );
    for module in modules {
        assert!(module.ptx.contains("fence.acq_rel.gpu"));
        assert!(!module.ptx.contains("ld.global.nc"), "{}", module.ptx);
    }
}

/// A product whose left operand's rows an index tile chooses, and one whose right operand lies in pages that a table names.
const GATHERED: &str = r#"
kernel "gathered"
  dims tokens, k, rows, n, pages, count
  param a: view<f16>[tokens, k]
  param order: view<i32>[rows]
  param b: view<f16>[pages, 16, 64]
  param ids: view<i32>[count]
  param c: out view<f32>[rows, n]
  fact aligned(a, 16)
  fact aligned(b, 16)
  fact aligned(c, 16)
  fact k % 8 == 0
  fact n % 8 == 0
  axis i in ceil_div(rows, 64)
  warps 4
{
  %0 = param a : view<f16>[?, ?]
  %1 = param order : view<i32>[?]
  %2 = param b : view<f16>[?, ?, ?]
  %3 = param ids : view<i32>[?]
  %4 = param c : out view<f32>[?, ?]
  %5 = grid i : i64
  %6 = constant 64 : i64
  %7 = mul %5, %6 : i64
  %8 = constant -1 : i32
  %9 = load %1[%7 +: 64] pad %8 : tile<i32>[64]
  %10 = constant 0 : i64
  %11 = constant 1 : i64
  %12 = constant 0.0 : f32
  %13 = constant 0.0 : f16
  %14 = broadcast %12 : tile<f32>[64, 64]
  %15 = dim k : i64
  %16 = for %10, %15, %6, %14 : tile<f32>[64, 64] { |%17: i64, %18: tile<f32>[64, 64]|
    %19 = load %0[at %9 +: 64, %17 +: 64] pad %13 : tile<f16>[64, 64]
    %20 = iota : tile<i32>[64]
    %21 = cast %17 : i32
    %22 = broadcast %21 : tile<i32>[64]
    %23 = add %20, %22 : tile<i32>[64]
    %24 = constant 16 : i32
    %25 = broadcast %24 : tile<i32>[64]
    %26 = div %23, %25 : tile<i32>[64]
    %27 = rem %23, %25 : tile<i32>[64]
    %28 = load %3[at %26 +: 64] pad %8 : tile<i32>[64]
    %29 = load %2[at %28 +: 64, with %27 +: 64, ..64] pad %13 : tile<f16>[64, 64]
    %30 = dot %19, %29, %18 : tile<f32>[64, 64]
    yield %30
  }
  store %4[%7 +: 64, %10 +: 64] = %16
  return
}
"#;

#[test]
fn rows_that_tables_name_are_copied_ahead() {
    for module in everywhere(GATHERED) {
        let copies = module.ptx.contains("cp.async.cg.shared.global");
        assert_eq!(
            copies,
            !module.ptx.contains(".target sm_75"),
            "{}",
            module.ptx
        );
    }
}
