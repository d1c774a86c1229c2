//! Kernels written as tile IR, through all passes and LLVM to PTX, for every target; assembled where `ptxas` is found.
#![cfg(feature = "llvm")]

use tesserine_compiler::{
    codegen::{self, Module},
    emit::ptxas::Ptxas,
    ir::tile,
    passes,
    span::SourceMap,
    target::Target,
};

fn compile(text: &str, target: Target) -> Module {
    let kernel = tile::parse(text).unwrap_or_else(|e| panic!("{e}"));
    let lowered = passes::lower(&kernel, &target).unwrap_or_else(|d| panic!("{d:?}"));
    codegen::compile(&lowered, target, &SourceMap::default()).unwrap_or_else(|d| {
        let text = codegen::llvm_text(&lowered, target, &SourceMap::default());
        panic!("{d:?}\n{}", text.unwrap_or_default())
    })
}

/// Compiles for all targets and assembles; nothing may spill or be complained about.
fn everywhere(text: &str) -> Vec<Module> {
    let tool = Ptxas::find().ok();
    Target::ALL
        .into_iter()
        .map(|target| {
            let module = compile(text, target);
            assert!(module.ptx.contains(&format!(".target {target}")));
            assert!(module.ptx.contains(&module.entry));
            if let Ok(dir) = std::env::var("TESS_DUMP") {
                std::fs::write(format!("{dir}/{}.{target}.ptx", module.entry), &module.ptx)
                    .unwrap();
                std::fs::write(
                    format!("{dir}/{}.{target}.ll", module.entry),
                    &module.llvm_ir,
                )
                .unwrap();
            }
            if let Some(tool) = &tool {
                let cubin = tool
                    .assemble(&module.ptx, target)
                    .unwrap_or_else(|e| panic!("{e}\n{}", module.ptx));
                assert_eq!(cubin.losses, Vec::<String>::new(), "{}", module.entry);
                if std::env::var("TESS_DUMP").is_ok() {
                    println!("{} {target}: {:?}", module.entry, cubin.resources);
                }
            }
            module
        })
        .collect()
}

const AXPY: &str = r#"
kernel "axpy<f32>"
  dims n
  param x: view<f32>[n]
  param z: view<f32>[n]
  param y: out view<f32>[n]
  param s: f32 = 1.0
  axis i in ceil_div(n, 1024)
{
  %0 = param x : view<f32>[?]
  %1 = param z : view<f32>[?]
  %2 = param y : out view<f32>[?]
  %3 = param s : f32
  %4 = grid i : i64
  %5 = constant 1024 : i64
  %6 = mul %4, %5 : i64
  %7 = constant 0.0 : f32
  %8 = load %0[%6 +: 1024] pad %7 : tile<f32>[1024]
  %9 = load %1[%6 +: 1024] pad %7 : tile<f32>[1024]
  %10 = broadcast %3 : tile<f32>[1024]
  %11 = mul %10, %8 : tile<f32>[1024]
  %12 = add %11, %9 : tile<f32>[1024]
  store %2[%6 +: 1024] = %12
  return
}
"#;

/// `text` with `facts` after its first `axis` line's header.
fn under(text: &str, facts: &[&str]) -> String {
    let lines: String = facts.iter().map(|f| format!("  fact {f}\n")).collect();
    text.replacen("  axis", &format!("{lines}  axis"), 1)
}

#[test]
fn axpy_for_every_target() {
    everywhere(AXPY);
    let fast = under(
        AXPY,
        &[
            "n % 4 == 0",
            "aligned(x, 16)",
            "aligned(z, 16)",
            "aligned(y, 16)",
        ],
    );
    for module in everywhere(&fast) {
        assert_eq!(
            module.ptx.matches("ld.global.nc.v4.b32").count(),
            2 * 1024 / 4 / module.threads as usize,
            "{}",
            module.ptx
        );
        assert!(module.ptx.contains("st.global.v4.b32"));
    }
}

const RMSNORM: &str = r#"
kernel "rmsnorm<bf16>"
  dims m, n
  param x: view<bf16>[m, n]
  param weight: view<bf16>[n]
  param out: out view<bf16>[m, n]
  param eps: f32 = 0.000001
  axis i in m
{
  %0 = param x : view<bf16>[?, ?]
  %1 = param weight : view<bf16>[?]
  %2 = param out : out view<bf16>[?, ?]
  %3 = param eps : f32
  %4 = grid i : i64
  %5 = constant 0 : i64
  %6 = constant 0.0 : bf16
  %7 = load %0[%4, %5 +: 8192] pad %6 : tile<bf16>[8192]
  %8 = cast %7 : tile<f32>[8192]
  %9 = mul %8, %8 : tile<f32>[8192]
  %10 = reduce sum %9 : f32
  %11 = dim n : i64
  %12 = constant 1 : i64
  %13 = constant 8192 : i64
  %14 = constant 8191 : i64
  %15 = add %11, %14 : i64
  %16 = div %15, %13 : i64
  %17 = for %12, %16, %12, %10 : f32 { |%18 : i64, %19 : f32|
    %20 = mul %18, %13 : i64
    %21 = load %0[%4, %20 +: 8192] pad %6 : tile<bf16>[8192]
    %22 = cast %21 : tile<f32>[8192]
    %23 = mul %22, %22 : tile<f32>[8192]
    %24 = reduce sum %23 : f32
    %25 = add %19, %24 : f32
    yield %25
  }
  %26 = cast %11 : f32
  %27 = div %17, %26 : f32
  %28 = add %27, %3 : f32
  %29 = rsqrt %28 : f32
  %30 = broadcast %29 : tile<f32>[8192]
  %31 = mul %8, %30 : tile<f32>[8192]
  %32 = load %1[%5 +: 8192] pad %6 : tile<bf16>[8192]
  %33 = cast %32 : tile<f32>[8192]
  %34 = mul %31, %33 : tile<f32>[8192]
  %35 = cast %34 : tile<bf16>[8192]
  store %2[%4, %5 +: 8192] = %35
  for %12, %16, %12 { |%36 : i64|
    %37 = mul %36, %13 : i64
    %38 = load %0[%4, %37 +: 8192] pad %6 : tile<bf16>[8192]
    %39 = cast %38 : tile<f32>[8192]
    %40 = mul %39, %30 : tile<f32>[8192]
    %41 = load %1[%37 +: 8192] pad %6 : tile<bf16>[8192]
    %42 = cast %41 : tile<f32>[8192]
    %43 = mul %40, %42 : tile<f32>[8192]
    %44 = cast %43 : tile<bf16>[8192]
    store %2[%4, %37 +: 8192] = %44
    yield
  }
  return
}
"#;

#[test]
fn a_row_kernel_for_every_target() {
    everywhere(RMSNORM);
    let fast = under(
        RMSNORM,
        &[
            "n % 8 == 0",
            "aligned(x, 16)",
            "aligned(weight, 16)",
            "aligned(out, 16)",
        ],
    );
    for module in everywhere(&fast) {
        assert!(module.ptx.contains("ld.global.nc.v4.b32"));
        assert!(module.ptx.contains("st.global.v4.b32"));
        assert!(module.ptx.contains("shfl.sync.bfly.b32"));
        assert!(module.shared_bytes > 0);
    }
}

#[test]
fn the_text_is_the_same_each_time() {
    let target = Target::parse("sm_90a").unwrap();
    assert_eq!(compile(RMSNORM, target), compile(RMSNORM, target));
}
