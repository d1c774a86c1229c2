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

#[cfg(feature = "llvm")]
mod compiled {
    use half::bf16;
    use tesserine_compiler::{
        codegen::{self, Module},
        emit::ptxas::Ptxas,
        ir::{role, tile},
        passes,
        span::SourceMap,
        target::Target,
    };
    use tesserine_emulator::{
        Launch, Memory, Module as Loaded, Options,
        target::Target as EmulatedTarget,
        tensor_map::{
            DataType, Interleave, L2Promotion, MAP_BYTES, OobFill, Parameters, Swizzle, TensorMap,
        },
    };

    /// The kernel that the text is, as role IR.
    fn read(text: &str) -> role::Kernel {
        let kernel = role::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        role::verify(&kernel).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
        kernel
    }

    /// The kernel that tile IR is lowered to.
    fn lowered(text: &str) -> role::Kernel {
        let kernel = tile::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        tile::verify(&kernel).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
        let target = Target::parse("sm_90a").expect("a target");
        passes::lower(&kernel, &target).unwrap_or_else(|e| panic!("{e:?}\n{text}"))
    }

    /// What `ptxas` complains of, where it is found.
    fn losses(module: &Module) -> Vec<String> {
        let target = Target::parse("sm_90a").expect("a target");
        let Ok(tool) = Ptxas::find() else {
            return Vec::new();
        };
        tool.assemble(&module.ptx, target)
            .unwrap_or_else(|e| panic!("{e}\n{}", module.ptx))
            .losses
    }

    fn compile(kernel: &role::Kernel) -> Module {
        let target = Target::parse("sm_90a").expect("a target");
        let sources = SourceMap::default();
        let module = codegen::compile(kernel, target, &sources).unwrap_or_else(|d| {
            let text = codegen::llvm_text(kernel, target, &sources);
            panic!("{d:?}\n{}", text.unwrap_or_default())
        });
        // Whatever few registers lead to, products stay in flight.
        let losses = losses(&module);
        assert!(!losses.iter().any(|l| l.contains("(C7")), "{losses:?}");
        module
    }

    #[test]
    fn products_are_in_flight_and_nothing_spills() {
        for (bm, bn, depth) in [(128, 256, 4), (64, 128, 3), (128, 192, 2)] {
            let module = compile(&read(&super::gemm(bm, bn, depth)));
            assert!(module.ptx.contains("wgmma.mma_async"));
            assert_eq!(losses(&module), Vec::<String>::new());
        }
    }

    /// A matrix of bf16 in the emulator's memory.
    struct Matrix {
        rows: usize,
        columns: usize,
        address: u64,
    }

    impl Matrix {
        fn new(memory: &Memory, rows: usize, columns: usize, values: &[bf16]) -> Matrix {
            let address = memory.allocate(2 * rows * columns).expect("memory");
            let bytes: Vec<u8> = values
                .iter()
                .flat_map(|v| v.to_bits().to_le_bytes())
                .collect();
            memory.write(address, &bytes).expect("memory");
            Matrix {
                rows,
                columns,
                address,
            }
        }

        fn values(&self, memory: &Memory) -> Vec<f32> {
            let mut bytes = vec![0; 2 * self.rows * self.columns];
            memory.read(self.address, &mut bytes).expect("memory");
            let words = bytes.as_chunks::<2>().0.iter();
            words.map(|w| bf16::from_le_bytes(*w).to_f32()).collect()
        }

        /// What the launch encodes of a map of it.
        fn map(&self, map: &role::TensorMap) -> [u8; MAP_BYTES] {
            let extents = [self.rows as u64, self.columns as u64];
            let strides = [2 * self.columns as u64, 2];
            let dims = map.dims.iter();
            let global_dim: Vec<u64> = dims
                .clone()
                .map(|d| match d.extent {
                    Some(extent) => u64::from(extent),
                    None => extents[d.dim as usize].div_ceil(u64::from(d.step)),
                })
                .collect();
            let global_strides: Vec<u64> = dims
                .clone()
                .skip(1)
                .map(|d| strides[d.dim as usize] * u64::from(d.step))
                .collect();
            let box_dim: Vec<u32> = dims.map(|d| d.extent_of_box).collect();
            let parameters = Parameters {
                data_type: DataType::Bfloat16,
                rank: box_dim.len() as u32,
                global_address: self.address,
                global_dim: &global_dim,
                global_strides: &global_strides,
                box_dim: &box_dim,
                element_strides: &[1; 5],
                interleave: Interleave::None,
                swizzle: Swizzle::B128,
                l2_promotion: L2Promotion::B256,
                oob_fill: OobFill::Zero,
            };
            TensorMap::encode(&parameters).expect("a map").to_bytes()
        }
    }

    /// Runs a product of `m` by `n` by `k` on so many blocks.
    fn check(kernel: &role::Kernel, [m, n, k]: [usize; 3], blocks: u32) {
        let module = compile(kernel);
        let device = EmulatedTarget::named("sm_90a").expect("a target");
        let loaded = Loaded::load(&module.ptx, device).unwrap_or_else(|e| panic!("{e}"));
        let memory = Memory::new();
        let mut state = 1u32;
        let mut small = |count: usize| -> Vec<bf16> {
            let mut next = || {
                state = state.wrapping_mul(1664525).wrapping_add(1013904223);
                bf16::from_f32((state >> 24) as f32 % 7.0 - 3.0)
            };
            (0..count).map(|_| next()).collect()
        };
        let (left_values, right_values) = (small(m * k), small(n * k));
        let a = Matrix::new(&memory, m, k, &left_values);
        let b = Matrix::new(&memory, n, k, &right_values);
        let c = Matrix::new(&memory, m, n, &vec![bf16::NAN; m * n]);
        let mut arguments: Vec<Vec<u8>> = Vec::new();
        for matrix in [&a, &b, &c] {
            arguments.push(matrix.address.to_le_bytes().to_vec());
            arguments.push((matrix.columns as u64).to_le_bytes().to_vec());
        }
        arguments.extend([m, n, k].map(|d| (d as u64).to_le_bytes().to_vec()));
        let counter = memory.allocate(8).expect("memory");
        memory.write(counter, &[0; 8]).expect("memory");
        if kernel.header.dynamic {
            arguments.push(counter.to_le_bytes().to_vec());
        }
        let maps = kernel.maps.values();
        arguments.extend(maps.map(|map| {
            let of = [&a, &b, &c][map.param as usize];
            of.map(map).to_vec()
        }));
        let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
        let launch = Launch {
            entry: &module.entry,
            grid: [blocks, 1, 1],
            block: [module.threads, 1, 1],
            cluster: [kernel.header.cluster(), 1, 1],
            shared_bytes: module.shared_bytes,
            arguments: &arguments,
        };
        loaded
            .launch(&memory, &launch, &Options::default())
            .unwrap_or_else(|e| panic!("{e}"));
        let mut left = [1; 8];
        memory.read(counter, &mut left).expect("memory");
        assert_eq!(left, [0; 8], "the counter is as it was");
        let found = c.values(&memory);
        for row in 0..m {
            for column in 0..n {
                // Whole numbers, exact in any order.
                let sum: f64 = (0..k)
                    .map(|i| {
                        left_values[row * k + i].to_f64() * right_values[column * k + i].to_f64()
                    })
                    .sum();
                let expected = bf16::from_f64(sum).to_f32();
                assert_eq!(found[row * n + column], expected, "at {row}, {column}");
            }
        }
    }

    #[test]
    fn tiles_of_a_persistent_grid_are_right() {
        check(&read(&super::gemm(128, 256, 4)), [136, 264, 200], 2);
    }

    #[test]
    fn tiles_that_roles_draw_are_right() {
        let text = super::gemm(64, 64, 3).replace("  persistent\n", "  persistent dynamic\n");
        check(&read(&text), [200, 136, 136], 3);
    }

    #[test]
    fn lowered_kernels_are_right() {
        for text in [
            include_str!("data/roles_product.tir"),
            include_str!("data/roles_epilogue.tir"),
        ] {
            let kernel = lowered(text);
            let blocks = if kernel.header.persistent { 2 } else { 6 };
            // They take whole steps of K only.
            check(&kernel, [136, 264, 192], blocks);
        }
    }

    /// Two blocks fetch half of the right tile each, and both receive all of it.
    #[test]
    fn slots_of_all_blocks_of_a_cluster_are_right() {
        check(
            &lowered(include_str!("data/roles_pair.tir")),
            [400, 264, 192],
            4,
        );
    }

    /// Where nothing is known of a view, threads copy.
    #[test]
    fn slots_that_threads_fill_are_right() {
        let text = include_str!("data/roles_product.tir");
        for missing in ["  fact aligned(a, 16)\n", "  fact aligned(b, 16)\n"] {
            let text = text.replacen(missing, "", 1);
            check(&lowered(&text), [136, 264, 192], 2);
        }
    }
}
