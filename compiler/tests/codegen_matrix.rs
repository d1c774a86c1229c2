//! Matrix products from tile IR to PTX for every target; assembled where `ptxas` is found, and nothing may spill.
#![cfg(feature = "llvm")]

use tesserine_compiler::{
    codegen::{self, Module},
    emit::ptxas::Ptxas,
    ir::tile,
    passes,
    span::SourceMap,
    target::{Feature, Target},
};

/// `c = a · bᵀ` (`a · b` if `row_major`), tile by tile.
#[derive(Clone, Copy)]
struct Gemm {
    elem: &'static str,
    tile: [u32; 3],
    warps: u32,
    aligned: bool,
    row_major: bool,
    /// Lines of the header.
    more: &'static str,
}

const LARGE: Gemm = Gemm {
    elem: "bf16",
    tile: [128, 256, 64],
    warps: 8,
    aligned: true,
    row_major: false,
    more: "  order grouped(8)\n",
};

const MIDDLE: Gemm = Gemm {
    tile: [128, 128, 32],
    warps: 4,
    ..LARGE
};

const GENERAL: Gemm = Gemm {
    tile: [64, 64, 32],
    warps: 4,
    aligned: false,
    ..LARGE
};

impl Gemm {
    fn text(&self) -> String {
        let Gemm {
            elem,
            tile: [bm, bn, bk],
            warps,
            more,
            ..
        } = *self;
        let facts = match self.aligned {
            false => "",
            true => {
                "  fact k % 8 == 0\n  fact n % 8 == 0\n  fact aligned(a, 16)\n  fact aligned(b, 16)\n  fact aligned(c, 16)\n"
            }
        };
        let (extents, load) = match self.row_major {
            true => (
                "k, n",
                format!(
                    "%25 = load %1[%22 +: {bk}, %8 +: {bn}] pad %18 : tile<{elem}>[{bk}, {bn}]"
                ),
            ),
            false => (
                "n, k",
                format!(
                    "%24 = load %1[%8 +: {bn}, %22 +: {bk}] pad %18 : tile<{elem}>[{bn}, {bk}]\n    \
                     %25 = permute [1, 0] %24 : tile<{elem}>[{bk}, {bn}]"
                ),
            ),
        };
        let up = bk - 1;
        format!(
            r#"kernel "gemm<{elem}, {bm}, {bn}, {bk}>"
  dims m, k, n
  param a: view<{elem}>[m, k]
  param b: view<{elem}>[{extents}]
  param c: out view<{elem}>[m, n]
{facts}  axis i in ceil_div(m, {bm})
  axis j in ceil_div(n, {bn})
{more}  warps {warps}
{{
  %0 = param a : view<{elem}>[?, ?]
  %1 = param b : view<{elem}>[?, ?]
  %2 = param c : out view<{elem}>[?, ?]
  %3 = grid i : i64
  %4 = grid j : i64
  %5 = constant {bm} : i64
  %6 = constant {bn} : i64
  %7 = mul %3, %5 : i64
  %8 = mul %4, %6 : i64
  %9 = constant 0.0 : f32
  %10 = broadcast %9 : tile<f32>[{bm}, {bn}]
  %11 = dim k : i64
  %12 = constant {bk} : i64
  %13 = constant {up} : i64
  %14 = add %11, %13 : i64
  %15 = div %14, %12 : i64
  %16 = constant 0 : i64
  %17 = constant 1 : i64
  %18 = constant 0.0 : {elem}
  %19 = for %16, %15, %17, %10 : tile<f32>[{bm}, {bn}] {{ |%20: i64, %21: tile<f32>[{bm}, {bn}]|
    %22 = mul %20, %12 : i64
    %23 = load %0[%7 +: {bm}, %22 +: {bk}] pad %18 : tile<{elem}>[{bm}, {bk}]
    {load}
    %26 = dot %23, %25, %21 : tile<f32>[{bm}, {bn}]
    yield %26
  }}
  %27 = cast %19 : tile<{elem}>[{bm}, {bn}]
  store %2[%7 +: {bm}, %8 +: {bn}] = %27
  return
}}
"#
        )
    }
}

fn compile(text: &str, target: Target) -> Module {
    let kernel = tile::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let lowered = passes::lower(&kernel, &target).unwrap_or_else(|d| panic!("{d:?}"));
    codegen::compile(&lowered, target, &SourceMap::default()).unwrap_or_else(|d| {
        let text = codegen::llvm_text(&lowered, target, &SourceMap::default());
        panic!("{d:?}\n{}", text.unwrap_or_default())
    })
}

/// Compiles and assembles; nothing may spill or be complained about.
fn assembled(gemm: Gemm, target: Target) -> Module {
    let module = compile(&gemm.text(), target);
    if let Ok(tool) = Ptxas::find() {
        let cubin = tool
            .assemble(&module.ptx, target)
            .unwrap_or_else(|e| panic!("{e}\n{}", module.ptx));
        assert_eq!(
            cubin.losses,
            Vec::<String>::new(),
            "{} {target}",
            module.entry
        );
    }
    module
}

/// How often PTX names an instruction.
fn count(module: &Module, text: &str) -> usize {
    module.ptx.matches(text).count()
}

#[test]
fn large_tiles_where_shared_memory_allows() {
    for name in ["sm_90a", "sm_100a", "sm_103a", "sm_110a"] {
        let module = assembled(LARGE, Target::parse(name).unwrap());
        assert_eq!(count(&module, "mma.sync.aligned.m16n8k16"), 4 * 4 * 8);
        // One step in front of the loop, the rest within.
        assert!(count(&module, "ldmatrix.sync.aligned.m8n8.x4") >= 4 * (4 + 4));
        // Three iterations in front of the loop, and one within.
        assert_eq!(count(&module, "cp.async.cg.shared.global"), 4 * (4 + 8));
        assert!(count(&module, "st.global.v4.b32") >= 16);
    }
}

#[test]
fn every_target_has_a_way() {
    for elem in ["f16", "bf16"] {
        for target in Target::ALL {
            // Plain multiplications hold their operands wide beside the sums.
            let plain = elem == "bf16" && !target.has(Feature::DeepMma);
            let warps = if plain { 8 } else { 4 };
            let gemm = Gemm {
                elem,
                warps,
                ..MIDDLE
            };
            let module = assembled(gemm, target);
            let products = count(&module, "mma.sync.aligned.m16n8");
            match (elem, target.has(Feature::DeepMma)) {
                (_, true) => {
                    // Two steps of four by eight pieces.
                    assert_eq!(count(&module, "mma.sync.aligned.m16n8k16"), 2 * 4 * 8);
                    assert!(count(&module, "cp.async.cg") > 0);
                }
                ("f16", false) => {
                    assert_eq!(products % (4 * 4 * 8), 0);
                    assert!(count(&module, "mma.sync.aligned.m16n8k8") > 0);
                }
                _ => {
                    assert_eq!(products, 0);
                    assert!(count(&module, "fma.rn.f32") >= 64 * 32);
                }
            }
            let module = assembled(Gemm { elem, ..GENERAL }, target);
            assert_eq!(count(&module, "cp.async"), 0);
        }
    }
}

#[test]
fn operands_that_lie_the_other_way_are_turned_on_the_way() {
    for name in ["sm_75", "sm_80", "sm_90a"] {
        let gemm = Gemm {
            elem: "f16",
            row_major: true,
            ..MIDDLE
        };
        let module = assembled(gemm, Target::parse(name).unwrap());
        assert!(count(&module, "ldmatrix.sync.aligned.m8n8.x4.trans") > 0);
        assert!(count(&module, "ldmatrix.sync.aligned.m8n8.x4.shared") > 0);
    }
}

#[test]
fn blocks_walk_the_grid() {
    let target = Target::parse("sm_90a").unwrap();
    let gemm = Gemm {
        more: "  order grouped(8)\n  persistent\n",
        ..MIDDLE
    };
    let module = assembled(gemm, target);
    assert!(count(&module, "%nctaid.x") == 1);
    let once = assembled(MIDDLE, target);
    assert!(count(&once, "%nctaid.x") == 0);
}

#[test]
fn tiles_of_any_shape() {
    for target in Target::parse_list("sm_75,sm_90a").unwrap() {
        for tile in [
            [16, 8, 16],
            [48, 40, 48],
            [33, 100, 32],
            [1, 64, 64],
            [128, 8, 16],
        ] {
            for aligned in [false, true] {
                for row_major in [false, true] {
                    let gemm = Gemm {
                        elem: "f16",
                        tile,
                        aligned,
                        row_major,
                        ..MIDDLE
                    };
                    assembled(gemm, target);
                }
            }
        }
    }
}

/// `out = ((x · yᵀ) as T) · z`, of one block: operands that no copy brings, and a product of a product.
fn chained(elem: &str) -> String {
    format!(
        r#"kernel "chained<{elem}>"
  param x: view<{elem}>[48, 32]
  param y: view<{elem}>[64, 32]
  param z: view<{elem}>[64, 40]
  param out: out view<f32>[48, 40]
  axis i in 1
{{
  %0 = param x : view<{elem}>[?, ?]
  %1 = param y : view<{elem}>[?, ?]
  %2 = param z : view<{elem}>[?, ?]
  %3 = param out : out view<f32>[?, ?]
  %4 = constant 0.0 : {elem}
  %5 = constant 0.0 : f32
  %6 = load %0[.. 48, .. 32] pad %4 : tile<{elem}>[48, 32]
  %7 = load %1[.. 64, .. 32] pad %4 : tile<{elem}>[64, 32]
  %8 = load %2[.. 64, .. 40] pad %4 : tile<{elem}>[64, 40]
  %9 = permute [1, 0] %7 : tile<{elem}>[32, 64]
  %10 = broadcast %5 : tile<f32>[48, 64]
  %11 = dot %6, %9, %10 : tile<f32>[48, 64]
  %12 = cast %11 : tile<{elem}>[48, 64]
  %13 = broadcast %5 : tile<f32>[48, 40]
  %14 = dot %12, %8, %13 : tile<f32>[48, 40]
  store %3[.. 48, .. 40] = %14
  return
}}
"#
    )
}

#[test]
fn products_of_what_is_computed() {
    for target in Target::ALL {
        let half = compile(&chained("f16"), target);
        assert!(count(&half, "mma.sync.aligned.m16n8") > 0, "{target}");
        // Products of f32 are multiplications everywhere.
        let single = compile(&chained("f32"), target);
        assert_eq!(count(&single, "mma.sync"), 0, "{target}");
        assert!(count(&single, "fma.rn.f32") > 0, "{target}");
        if let Ok(tool) = Ptxas::find() {
            let losses = |module: &Module| {
                let cubin = tool.assemble(&module.ptx, target);
                cubin
                    .unwrap_or_else(|e| panic!("{e}\n{}", module.ptx))
                    .losses
            };
            assert_eq!(losses(&half), Vec::<String>::new(), "{target}");
            // Each thread holds all of K of what it multiplies, which may be more than it has registers for.
            losses(&single);
        }
    }
}
