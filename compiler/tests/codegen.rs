//! Kernels written as tile IR, through all passes and LLVM to PTX, for every target; assembled where `ptxas` is found.
#![cfg(feature = "llvm")]

use tesserine_compiler::{
    Session,
    codegen::{self, Module},
    diagnostics::Diagnostics,
    emit::ptxas::Ptxas,
    ir::tile,
    passes,
    span::SourceMap,
    target::Target,
};
use tesserine_set::{AbiArg, Fact};

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
    on(&Target::ALL, text, true)
}

/// As [`everywhere`], on one target of each kind: without bf16, with it, with fp8, with fp4.
fn on_each_kind(text: &str) -> Vec<Module> {
    on(&kinds(), text, true)
}

/// As [`on_each_kind`], for kernels that hold more than registers can.
fn on_each_kind_with_spills(text: &str) -> Vec<Module> {
    on(&kinds(), text, false)
}

fn kinds() -> Vec<Target> {
    Target::parse_list("sm_75,sm_80,sm_90a,sm_120a").unwrap()
}

fn on(targets: &[Target], text: &str, tidy: bool) -> Vec<Module> {
    let tool = Ptxas::find().ok();
    targets
        .iter()
        .map(|&target| {
            let module = compile(text, target);
            assert!(module.ptx.contains(&format!(".target {target}")));
            assert!(module.ptx.contains(&module.entry));
            if let Some(tool) = &tool {
                let cubin = tool
                    .assemble(&module.ptx, target)
                    .unwrap_or_else(|e| panic!("{e}\n{}", module.ptx));
                if tidy {
                    assert_eq!(cubin.losses, Vec::<String>::new(), "{}", module.entry);
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

/// A kernel that reads a row of `inputs` and stores what `lines` makes of it: `(name, element type, operations)`, in
/// which `$0`, `$1`… are the inputs and the last operation gives the result. Temporaries are `@0`, `@1`….
fn elementwise(name: &str, inputs: &[&str], outputs: &[(String, &str, Vec<String>)]) -> String {
    const B: u32 = 256;
    let mut text = format!("kernel \"{name}\"\n  dims n\n");
    for (i, ty) in inputs.iter().enumerate() {
        text += &format!("  param x{i}: view<{ty}>[n]\n");
    }
    for (name, ty, _) in outputs {
        text += &format!("  param {name}: out view<{ty}>[n]\n");
    }
    text += &format!("  axis i in ceil_div(n, {B})\n{{\n");
    let mut next = 0;
    let mut line = |text: &mut String, what: String| {
        *text += &format!("  %{next} = {what}\n");
        next += 1;
        format!("%{}", next - 1)
    };
    let i = line(&mut text, "grid i : i64".to_owned());
    let b = line(&mut text, format!("constant {B} : i64"));
    let start = line(&mut text, format!("mul {i}, {b} : i64"));
    let mut loaded: Vec<String> = Vec::new();
    for (i, ty) in inputs.iter().enumerate() {
        let view = line(&mut text, format!("param x{i} : view<{ty}>[?]"));
        let zero = match *ty {
            "bool" => "false",
            t if t.starts_with(['i']) || t == "u8" || t == "u16" || t == "u32" || t == "u64" => "0",
            "ue8m0" => "1.0",
            _ => "0.0",
        };
        let pad = line(&mut text, format!("constant {zero} : {ty}"));
        let load = format!("load {view}[{start} +: {B}] pad {pad} : tile<{ty}>[{B}]");
        loaded.push(line(&mut text, load));
    }
    for (name, ty, operations) in outputs {
        let mut made: Vec<String> = Vec::new();
        for operation in operations {
            let mut filled = operation.replace("[B]", &format!("[{B}]"));
            for (i, v) in loaded.iter().enumerate() {
                filled = filled.replace(&format!("${i}"), v);
            }
            for (i, v) in made.iter().enumerate() {
                filled = filled.replace(&format!("@{i}"), v);
            }
            made.push(line(&mut text, filled));
        }
        let view = line(&mut text, format!("param {name} : out view<{ty}>[?]"));
        let last = made.last().expect("an output has operations");
        text += &format!("  store {view}[{start} +: {B}] = {last}\n");
    }
    text + "  return\n}\n"
}

fn single(name: &str, ty: &'static str, operation: String) -> (String, &'static str, Vec<String>) {
    (name.to_owned(), ty, vec![operation])
}

const FLOAT_FUNCTIONS: [&str; 17] = [
    "neg", "abs", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "rcp", "tanh", "erf", "sigmoid",
    "sin", "cos", "floor", "ceil", "round",
];

#[test]
fn functions_of_floats() {
    for ty in ["f32", "f16", "bf16"] {
        let outputs: Vec<_> = FLOAT_FUNCTIONS
            .iter()
            .map(|f| single(&format!("y_{f}"), ty, format!("{f} $0 : tile<{ty}>[B]")))
            .collect();
        on_each_kind(&elementwise(&format!("unary<{ty}>"), &[ty], &outputs));
    }
    let exact = [
        "neg", "abs", "sqrt", "rsqrt", "rcp", "floor", "ceil", "round",
    ];
    let outputs: Vec<_> = exact
        .iter()
        .map(|f| single(&format!("y_{f}"), "f64", format!("{f} $0 : tile<f64>[B]")))
        .collect();
    on_each_kind_with_spills(&elementwise("unary<f64>", &["f64"], &outputs));
}

#[test]
fn arithmetic() {
    for (ty, ops) in [
        (
            "f32",
            &["add", "sub", "mul", "mul_exact", "div", "min", "max"][..],
        ),
        ("bf16", &["add", "sub", "mul", "div", "min", "max"][..]),
        ("f64", &["add", "mul", "div", "min", "max"][..]),
        (
            "i32",
            &[
                "add", "sub", "mul", "mul_hi", "div", "rem", "min", "max", "and", "or", "xor",
                "shl", "shr",
            ][..],
        ),
        ("i64", &["mul_hi", "div", "rem", "min", "shl", "shr"][..]),
        (
            "u8",
            &["add", "mul_hi", "div", "rem", "max", "shl", "shr"][..],
        ),
        ("i16", &["mul", "div", "rem", "min", "shl", "shr"][..]),
        ("u64", &["div", "rem", "shr"][..]),
    ] {
        let mut outputs: Vec<_> = ops
            .iter()
            .map(|op| {
                single(
                    &format!("y_{op}"),
                    leak(ty),
                    format!("{op} $0, $1 : tile<{ty}>[B]"),
                )
            })
            .collect();
        for compare in ["eq", "ne", "lt", "ge"] {
            outputs.push(single(
                &format!("y_{compare}"),
                "bool",
                format!("compare {compare} $0, $1 : tile<bool>[B]"),
            ));
        }
        let text = elementwise(&format!("binary<{ty}>"), &[ty, ty], &outputs);
        // Divisions of 64-bit numbers are calls, around which `ptxas` saves what the caller holds.
        match ty.contains("64") {
            true => on_each_kind_with_spills(&text),
            false => on_each_kind(&text),
        };
    }
}

fn leak(text: &str) -> &'static str {
    text.to_owned().leak()
}

const CAST_TYPES: [&str; 17] = [
    "f64", "f32", "f16", "bf16", "e4m3", "e5m2", "ue8m0", "ue4m3", "i8", "i16", "i32", "i64", "u8",
    "u16", "u32", "u64", "bool",
];

#[test]
fn casts_between_all_types() {
    for from in CAST_TYPES {
        let mut outputs: Vec<_> = CAST_TYPES
            .iter()
            .filter(|to| **to != from)
            .map(|to| single(&format!("y_{to}"), to, format!("cast $0 : tile<{to}>[B]")))
            .collect();
        outputs.push((
            "y_e2m1".to_owned(),
            "f32",
            vec![
                "cast $0 : tile<e2m1>[B]".to_owned(),
                "cast @0 : tile<f32>[B]".to_owned(),
            ],
        ));
        // All at once would be more than registers hold.
        for (part, outputs) in outputs.chunks(9).enumerate() {
            on_each_kind(&elementwise(
                &format!("cast<{from}, {part}>"),
                &[from],
                outputs,
            ));
        }
    }
}

/// Reductions of a tile of `shape`, one block: over each axis, and of everything.
fn reductions(ty: &str, shape: [u32; 2], ops: &[(&str, &'static str, &'static str)]) -> String {
    let [m, n] = shape;
    let mut text = format!("kernel \"reduce<{ty}, {m}, {n}>\"\n  param x: view<{ty}>[{m}, {n}]\n");
    for (op, to, whole) in ops {
        text += &format!("  param {op}_0: out view<{to}>[{n}]\n");
        text += &format!("  param {op}_1: out view<{to}>[{m}]\n");
        text += &format!("  param {op}_all: out view<{whole}>[1]\n");
    }
    text += "  axis i in 1\n{\n";
    let pad = match ty {
        "bool" => "false",
        t if t.starts_with('i') || t.starts_with('u') => "0",
        _ => "0.0",
    };
    text += &format!("  %0 = param x : view<{ty}>[?, ?]\n  %1 = constant {pad} : {ty}\n");
    text += &format!(
        "  %2 = load %0[.. {m}, .. {n}] pad %1 : tile<{ty}>[{m}, {n}]\n  %3 = constant 0 : i64\n"
    );
    let mut next = 4;
    for (op, to, whole) in ops {
        for (axis, len) in [(0, n), (1, m)] {
            text += &format!("  %{next} = reduce {op} axis {axis} %2 : tile<{to}>[{len}]\n");
            text += &format!("  %{} = param {op}_{axis} : out view<{to}>[?]\n", next + 1);
            text += &format!("  store %{}[.. {len}] = %{next}\n", next + 1);
            next += 2;
        }
        text += &format!("  %{next} = reduce {op} %2 : {whole}\n");
        text += &format!("  %{} = param {op}_all : out view<{whole}>[?]\n", next + 1);
        text += &format!("  store %{}[%3] = %{next}\n", next + 1);
        next += 2;
    }
    text + "  return\n}\n"
}

#[test]
fn reductions_of_all_shapes() {
    let floats: [(&str, &'static str, &'static str); 5] = [
        ("sum", "f32", "f32"),
        ("max", "f32", "f32"),
        ("min", "f32", "f32"),
        ("argmax", "i32", "i64"),
        ("argmin", "i32", "i64"),
    ];
    let ints = |ty: &'static str| {
        [
            ("sum", ty, ty),
            ("max", ty, ty),
            ("min", ty, ty),
            ("argmax", "i32", "i64"),
        ]
    };
    for shape in [[7, 80], [64, 64], [1, 1000], [37, 3]] {
        on_each_kind(&reductions("f32", shape, &floats));
    }
    on_each_kind_with_spills(&reductions("f32", [4, 4096], &floats));
    on_each_kind(&reductions("i32", [16, 100], &ints("i32")));
    on_each_kind(&reductions("u8", [16, 100], &ints("u8")));
    on_each_kind(&reductions("i64", [5, 300], &ints("i64")));
    on_each_kind(&reductions("f64", [5, 300], &ints("f64")));
    on_each_kind(&reductions(
        "bool",
        [9, 130],
        &[
            ("any", "bool", "bool"),
            ("all", "bool", "bool"),
            ("sum", "i32", "i64"),
        ],
    ));
}

/// `y[j*N +: N, i*M +: M] = x[i*M +: M, j*N +: N].t`
fn transpose(ty: &str, m: u32, n: u32) -> String {
    format!(
        r#"
kernel "transpose<{ty}, {m}, {n}>"
  dims m, n
  param x: view<{ty}>[m, n]
  param y: out view<{ty}>[n, m]
  axis i in ceil_div(m, {m})
  axis j in ceil_div(n, {n})
{{
  %0 = param x : view<{ty}>[?, ?]
  %1 = param y : out view<{ty}>[?, ?]
  %2 = grid i : i64
  %3 = grid j : i64
  %4 = constant {m} : i64
  %5 = constant {n} : i64
  %6 = mul %2, %4 : i64
  %7 = mul %3, %5 : i64
  %8 = constant 0.0 : {ty}
  %9 = load %0[%6 +: {m}, %7 +: {n}] pad %8 : tile<{ty}>[{m}, {n}]
  %10 = permute [1, 0] %9 : tile<{ty}>[{n}, {m}]
  store %1[%7 +: {n}, %6 +: {m}] = %10
  return
}}
"#
    )
}

#[test]
fn transposes_for_every_target() {
    for (ty, m, n) in [("bf16", 64, 64), ("f32", 32, 80), ("e4m3", 128, 64)] {
        let text = transpose(ty, m, n);
        everywhere(&text);
        let fast = under(
            &text,
            &[
                "m % 16 == 0",
                "n % 16 == 0",
                "aligned(x, 16)",
                "aligned(y, 16)",
            ],
        );
        for module in everywhere(&fast) {
            assert!(module.ptx.contains("v4.b32"), "{}", module.ptx);
            assert!(module.shared_bytes > 0);
        }
    }
}

/// A kernel from source, its general body.
fn from_source(name: &str, source: &str, instance: &str, target: Target) -> Module {
    let mut session = Session::new();
    let told = |d: &Diagnostics| d.iter().map(|d| d.title.clone()).collect::<Vec<_>>();
    let module = session
        .load_text(name, source)
        .unwrap_or_else(|d| panic!("{:?}", told(&d)));
    let made = session
        .instantiate(module, instance, target)
        .unwrap_or_else(|d| panic!("{:?}", told(&d)));
    let body = made.bodies.last().expect("a general body");
    let lowered = passes::lower(body, &target).unwrap_or_else(|d| panic!("{:?}", told(&d)));
    codegen::compile(&lowered, target, session.sources())
        .unwrap_or_else(|d| panic!("{:?}", told(&d)))
}

const SCALE: &str = "\
kernel scale(x: view<f32>[n], y: out view<f32>[n], s: f32) grid (i in ceil_div(n, 256)) {
    let v = x[i*256 +: 256];
    y[i*256 +: 256] = v * s;
}
";

#[test]
fn lines_are_those_of_the_source() {
    let target = Target::parse("sm_90a").unwrap();
    let module = from_source("folder/scale.tess", SCALE, "scale", target);
    let files: Vec<&str> = module.ptx.lines().filter(|l| l.contains(".file")).collect();
    assert_eq!(files, ["\t.file\t1 \"folder/scale.tess\""]);
    for line in [2, 3] {
        assert!(
            module.ptx.contains(&format!("\t.loc\t1 {line} ")),
            "{}",
            module.ptx
        );
    }
    // Profilers want lines; `ptxas` optimises only what does not ask for more.
    assert!(!module.ptx.contains(", debug"));
}

#[test]
fn versions_are_the_lowest_that_serve() {
    let hinted = SCALE.replace(
        "x[i*256 +: 256]",
        "load(x[i*256 +: 256], cache = evict_first)",
    );
    for (target, plain, with_hint) in [
        ("sm_75", (6, 3), (7, 4)),
        ("sm_80", (7, 0), (7, 4)),
        ("sm_89", (7, 8), (7, 8)),
        ("sm_90a", (8, 0), (8, 0)),
        ("sm_110a", (9, 0), (9, 0)),
    ] {
        let target = Target::parse(target).unwrap();
        for (source, version) in [(SCALE, plain), (&hinted, with_hint)] {
            let module = from_source("scale.tess", source, "scale", target);
            assert_eq!(module.ptx_version, version, "{target}");
            let line = format!(".version {}.{}\n", version.0, version.1);
            assert!(module.ptx.starts_with(&line), "{}", module.ptx);
        }
    }
}

#[test]
fn arguments_are_views_then_dimensions_then_scalars() {
    let module = compile(RMSNORM, Target::parse("sm_80").unwrap());
    assert_eq!(
        module.abi,
        [
            AbiArg::Pointer { param: 0 },
            AbiArg::Stride { param: 0, dim: 0 },
            AbiArg::Pointer { param: 1 },
            AbiArg::Pointer { param: 2 },
            AbiArg::Stride { param: 2, dim: 0 },
            AbiArg::Dim { dim: 0 },
            AbiArg::Dim { dim: 1 },
            AbiArg::Scalar { param: 3 },
        ]
    );
    assert_eq!(module.ptx.matches(".param .").count(), 8);
}

#[test]
fn entries_are_named_after_instance_and_facts() {
    let plain = codegen::entry_name("gemm<bf16, BM = 64, E = Bias<bf16>>", &[]);
    assert!(plain.starts_with("gemm_bf16_BM_64_E_Bias_bf16_"), "{plain}");
    let hash = &plain["gemm_bf16_BM_64_E_Bias_bf16_".len()..];
    assert!(hash.len() == 8 && hash.bytes().all(|b| b.is_ascii_hexdigit()));
    let fact = Fact::Aligned {
        param: 0,
        bytes: 16,
    };
    assert_ne!(
        plain,
        codegen::entry_name("gemm<bf16, BM = 64, E = Bias<bf16>>", &[fact])
    );
}

#[test]
fn a_sum_over_warps_waits_once() {
    let target = Target::parse("sm_90a").unwrap();
    let source = "\
kernel sum(x: view<f32>[m, n], y: out view<f32>[m]) grid (i in m) {
    y[i] = x[i, 0 +: 4096].sum();
}
";
    let module = from_source("sum.tess", source, "sum", target);
    assert!(module.threads > 32);
    assert_eq!(module.ptx.matches("bar.sync").count(), 1, "{}", module.ptx);
    // One thread stores.
    assert_eq!(module.ptx.matches("st.global").count(), 1);
}
