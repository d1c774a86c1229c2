//! Matrix products at the role level: fragments, swizzled tiles, the text of channels, and the pipelined loop.

use std::collections::HashSet;

use proptest::prelude::*;
use tesserine_compiler::{
    ir::{
        RegionId,
        role::{self, Fill, OpKind},
        tile,
    },
    layout::{
        Layout,
        fragments::{
            MmaShape, Side, WarpGrid, fma_operand, fma_result, is_mma_result, mma_operand,
            mma_result,
        },
        swizzle::{CHUNK, SharedLayout},
    },
    passes,
    target::{Feature, Target},
};

/// Shared memory has 32 banks of four bytes: a quarter of a warp reads 16 bytes a lane at once.
fn in_all_banks(offsets: impl Iterator<Item = u32>) -> bool {
    let banks: HashSet<u32> = offsets.map(|o| o / CHUNK % 8).collect();
    banks.len() == 8
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn shared_places_are_distinct(rows in 1u32..80, columns in 1u32..200, wide in 0u32..3) {
        let element = 1 << wide;
        let layout = SharedLayout::new(rows, columns, element);
        let mut seen = HashSet::new();
        for row in 0..rows {
            for column in 0..columns {
                let at = layout.offset(row, column * element);
                prop_assert!(at + element <= layout.bytes());
                prop_assert_eq!(at % element, 0);
                prop_assert!(seen.insert(at));
                // Chunks stay whole.
                prop_assert_eq!(at % CHUNK, column * element % CHUNK);
            }
        }
    }

    #[test]
    fn columns_and_rows_of_chunks_are_free_of_conflicts(
        row in 0u32..8, chunks in 1u32..40, pick in any::<prop::sample::Index>(),
    ) {
        let layout = SharedLayout::new(64, chunks * 8, 2);
        // Eight rows of one chunk's column, as `ldmatrix` reads them.
        let column = pick.index(chunks as usize) as u32 * CHUNK;
        prop_assert!(in_all_banks((0..8).map(|r| layout.offset(row * 8 + r, column))));
        // Eight chunks one after another, as copies write them.
        if chunks.is_power_of_two() {
            let first = row * 8;
            let chunk = |i: u32| layout.offset(i / chunks, i % chunks * CHUNK);
            prop_assert!(in_all_banks((first..first + 8).filter(|i| i / chunks < 64).map(chunk)));
        }
    }

    /// What the definition of `mma.sync` says of each lane's registers, for tiles and grids of all kinds.
    #[test]
    fn mma_fragments_are_those_of_the_instruction(
        m in 1u32..70, n in 1u32..70, steps in 1u32..5, deep in any::<bool>(), warps in 0u32..4,
    ) {
        let step = if deep { 16 } else { 8 };
        let mma = if deep { MmaShape::M16N8K16 } else { MmaShape::M16N8K8 };
        let grid = WarpGrid::choose(m, n, 1 << warps, (16, 8));
        prop_assert!(grid.m * grid.n <= grid.warps);
        let result = mma_result([m, n], grid);
        prop_assert!(is_mma_result(&result));
        let left = mma_operand(&result, Side::Left, steps * step, mma);
        let right = mma_operand(&result, Side::Right, steps * step, mma);
        covers(&result)?;
        covers(&left)?;
        covers(&right)?;
        for lane in 0..32 {
            let (group, inner) = (lane / 4, lane % 4);
            for r in 0..4 {
                let at = [group + 8 * (r / 2), 2 * inner + r % 2];
                prop_assert_eq!(&result.coordinate(r, lane, 0), &at);
            }
            for r in 0..step / 2 {
                let at = [group + 8 * (r / 2 % 2), 2 * inner + r % 2 + 8 * (r / 4)];
                prop_assert_eq!(&left.coordinate(r, lane, 0), &at);
            }
            for r in 0..step / 4 {
                let at = [2 * inner + r % 2 + 8 * (r / 2), group];
                prop_assert_eq!(&right.coordinate(r, lane, 0), &at);
            }
        }
        holds_what_it_needs(&result, &left, &right)?;
    }

    #[test]
    fn threads_hold_what_they_multiply(m in 1u32..70, n in 1u32..70, k in 1u32..9, warps in 0u32..4) {
        let result = fma_result([m, n], 1 << warps);
        let left = fma_operand(&result, Side::Left, k);
        let right = fma_operand(&result, Side::Right, k);
        covers(&result)?;
        covers(&left)?;
        covers(&right)?;
        for (lane, warp) in [(0, 0), (13, 0), (31, (1 << warps) - 1)] {
            let coordinates = |l: &Layout| -> HashSet<Vec<u32>> {
                (0..l.registers()).map(|r| l.coordinate(r, lane, warp)).collect()
            };
            let (a, b) = (coordinates(&left), coordinates(&right));
            for at in coordinates(&result) {
                for p in 0..k {
                    prop_assert!(a.contains(&vec![at[0], p]) && b.contains(&vec![p, at[1]]));
                }
            }
        }
    }
}

/// Every element has a holder, and every padding lies where the extents say.
fn covers(layout: &Layout) -> Result<(), TestCaseError> {
    for row in 0..layout.shape[0] {
        for column in 0..layout.shape[1] {
            let (register, lane, warp) = layout.holder(&[row, column]).expect("covered");
            prop_assert_eq!(
                layout.coordinate(register, lane, warp),
                vec![row, column],
                "{:?}",
                layout
            );
        }
    }
    Ok(())
}

/// A warp holds whole rows and columns of K for all that it has of the result.
fn holds_what_it_needs(
    result: &Layout,
    left: &Layout,
    right: &Layout,
) -> Result<(), TestCaseError> {
    for warp in 0..result.warps() {
        let of = |layout: &Layout, dim: usize| -> HashSet<u32> {
            (0..32)
                .flat_map(|lane| (0..layout.registers()).map(move |r| (r, lane)))
                .map(|(r, lane)| layout.coordinate(r, lane, warp)[dim])
                .collect()
        };
        prop_assert_eq!(of(result, 0), of(left, 0));
        prop_assert_eq!(of(result, 1), of(right, 1));
    }
    Ok(())
}

#[test]
fn grids_follow_the_tile() {
    let grid = |m, n, warps| {
        let grid = WarpGrid::choose(m, n, warps, (16, 8));
        (grid.m, grid.n)
    };
    assert_eq!(grid(128, 256, 8), (2, 4));
    assert_eq!(grid(128, 128, 4), (2, 2));
    assert_eq!(grid(64, 64, 4), (2, 2));
    assert_eq!(grid(16, 128, 4), (1, 4));
    assert_eq!(grid(16, 8, 4), (1, 1));
    let large = mma_result([128, 256], WarpGrid::choose(128, 256, 8, (16, 8)));
    assert_eq!(large.registers(), 128);
    assert_eq!(
        mma_operand(&large, Side::Left, 16, MmaShape::M16N8K16).registers(),
        32
    );
    assert_eq!(
        mma_operand(&large, Side::Right, 16, MmaShape::M16N8K16).registers(),
        32
    );
    assert_eq!(fma_result([128, 128], 4).registers(), 128);
}

/// A loop of two tiles a slot, as the passes write it.
const LOOP: &str = r#"#l0 = layout [32, 16] register [[0, 1], [8, 0]] lane [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]] warp [[0, 8], [16, 0]] repeat [1, 1]
#l1 = layout [32, 16] register [[0, 1], [8, 0], [0, 8]] lane [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]] warp [[0, 0], [16, 0]] repeat [1, 1]
#l2 = layout [16, 16] register [[1, 0], [8, 0]] lane [[2, 0], [4, 0], [0, 1], [0, 2], [0, 4]] warp [[0, 8], [0, 0]] repeat [1, 1]
kernel "product"
  dims m, k, n
  param a: view<bf16>[m, k]
  param b: view<bf16>[n, k]
  param c: out view<f32>[m, n]
  axis i in ceil_div(m, 32)
  buffer shared0: 9216 align 128 at 0
  channel channel0: depth 3 fill cp_async in shared0
    tile bf16 [32, 32] at 0 rows 32 pitch 64 mask 3 shift 1
    tile bf16 [16, 32] at 2048 rows 16 pitch 64 mask 3 shift 1
  shared 9216
role "all" warps 4 {
  %0 = param a : view<bf16>[?, ?]
  %1 = param b : view<bf16>[?, ?]
  %2 = constant 0 : i64
  %3 = constant true : bool
  copy_async channel0 tile 0 %0[%2 +: 32, %2 +: 32] slot %2, %3 width 8
  copy_async channel0 tile 1 %1[%2 +: 16, %2 +: 32] slot %2, %3 width 8
  commit_copies
  wait_copies 0
  barrier
  %4 = constant 0.0 : f32
  %5 = broadcast %4 : tile<f32>[32, 16] #l0
  %6 = read_shared channel0 tile 0 at [0, 16] %2 : tile<bf16>[32, 16] #l1
  %7 = read_shared channel0 tile 1 at [0, 16] transposed %2 : tile<bf16>[16, 16] #l2
  %8 = dot mma_sync [16, 8, 16] %6, %7, %5 : tile<f32>[32, 16] #l0
  return
}
"#;

fn errors(text: &str) -> Vec<String> {
    let kernel = role::parse(text).expect("reads");
    match role::verify(&kernel) {
        Ok(()) => Vec::new(),
        Err(errors) => errors.into_iter().map(|e| e.message).collect(),
    }
}

#[test]
fn channels_read_back() {
    let kernel = role::parse(LOOP).expect("reads");
    assert_eq!(errors(LOOP), Vec::<String>::new());
    assert_eq!(kernel.to_string(), LOOP);
    assert_eq!(
        kernel.channels.values().next().map(|c| c.slot_bytes()),
        Some(3072)
    );
}

#[test]
fn what_does_not_fit_a_channel_is_refused() {
    for (from, to, message) in [
        ("depth 3", "depth 4", "do not fit shared0"),
        (
            "fill cp_async",
            "fill registers",
            "not filled by such copies",
        ),
        ("width 8\n", "width 16\n", "a copy of 32 bytes at once"),
        (
            "copy_async channel0 tile 0",
            "copy_async channel0 tile 2",
            "has no tile 2",
        ),
        ("at [0, 16] %2", "at [0, 17] %2", "does not lie in its tile"),
        (
            "mma_sync [16, 8, 16]",
            "fma",
            "do not lie as its result asks",
        ),
        (
            "mask 3 shift 1\n    tile",
            "mask 7 shift 1\n    tile",
            "does not lie well",
        ),
        (
            "slot %2, %3 width 8\n  copy",
            "slot %3, %3 width 8\n  copy",
            "expected a slot",
        ),
    ] {
        let text = LOOP.replacen(from, to, 1);
        assert_ne!(text, LOOP, "{from}");
        let found = errors(&text);
        assert!(found.iter().any(|e| e.contains(message)), "{to}: {found:?}");
    }
}

/// `c = (a · bᵀ) as bf16`, tile by tile.
fn gemm(elem: &str, [bm, bn, bk]: [u32; 3], facts: &str, schedule: &str) -> String {
    format!(
        r#"kernel "gemm"
  dims m, k, n
  param a: view<{elem}>[m, k]
  param b: view<{elem}>[n, k]
  param c: out view<{elem}>[m, n]
{facts}  axis i in ceil_div(m, {bm})
  axis j in ceil_div(n, {bn})
{schedule}{{
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
    %24 = load %1[%8 +: {bn}, %22 +: {bk}] pad %18 : tile<{elem}>[{bn}, {bk}]
    %25 = permute [1, 0] %24 : tile<{elem}>[{bk}, {bn}]
    %26 = dot %23, %25, %21 : tile<f32>[{bm}, {bn}]
    yield %26
  }}
  %27 = cast %19 : tile<{elem}>[{bm}, {bn}]
  store %2[%7 +: {bm}, %8 +: {bn}] = %27
  return
}}
"#,
        up = bk - 1
    )
}

const ALIGNED: &str = "  fact k % 8 == 0\n  fact n % 8 == 0\n  fact aligned(a, 16)\n  fact aligned(b, 16)\n  fact aligned(c, 16)\n";

fn lower(text: &str, target: &str) -> role::Kernel {
    let kernel = tile::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    tile::verify(&kernel).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let target = Target::parse(target).expect("a target");
    passes::lower(&kernel, &target).unwrap_or_else(|e| panic!("{e:?}"))
}

fn ops(kernel: &role::Kernel) -> Vec<OpKind> {
    fn visit(body: &role::RoleBody, region: RegionId, out: &mut Vec<OpKind>) {
        for &id in &body.regions[region].ops {
            out.push(body.ops[id].kind.clone());
            for &inner in &body.ops[id].regions {
                visit(body, inner, out);
            }
        }
    }
    let mut out = Vec::new();
    let body = &kernel.roles[0].body;
    visit(body, body.root, &mut out);
    out
}

fn count(kernel: &role::Kernel, wanted: impl Fn(&OpKind) -> bool) -> usize {
    ops(kernel).iter().filter(|k| wanted(k)).count()
}

#[test]
fn aligned_products_are_copied_ahead_where_the_target_can() {
    for target in Target::ALL {
        let text = gemm("f16", [128, 128, 32], ALIGNED, "  warps 4\n");
        let kernel = lower(&text, target.name());
        let (_, channel) = kernel.channels.iter().next().expect("one channel");
        assert_eq!(kernel.channels.len(), 1);
        let products = count(&kernel, |k| matches!(k, OpKind::Dot { .. }));
        let copies = count(&kernel, |k| matches!(k, OpKind::CopyAsync { width: 8, .. }));
        let loads = count(&kernel, |k| matches!(k, OpKind::Load { width: 8, .. }));
        if target.has(Feature::CpAsync) {
            assert_eq!((channel.fill, channel.depth), (Fill::CpAsync, 4));
            // Three iterations ahead of the loop, and one in it, of two tiles.
            assert_eq!((products, copies, loads), (2, 8, 0), "{kernel}");
        } else {
            assert_eq!((channel.fill, channel.depth), (Fill::Registers, 2));
            assert_eq!((products, copies, loads), (4, 0, 4), "{kernel}");
        }
        // One in the loop, one before the result passes through the same bytes, and one before the loop where the first
        // step is read there.
        assert_eq!(count(&kernel, |k| matches!(k, OpKind::Barrier)), 3);
        assert_eq!(
            count(&kernel, |k| matches!(k, OpKind::Store { width: 8, .. })),
            1
        );
        let slots = channel.slot_bytes() * channel.depth;
        let scratch = 128 * (128 + 8) * 2;
        assert_eq!(kernel.shared_bytes, slots.max(scratch));
    }
}

#[test]
fn stages_follow_the_schedule_and_the_memory() {
    let depth = |tile, schedule: &str, target| {
        let kernel = lower(&gemm("bf16", tile, ALIGNED, schedule), target);
        kernel.channels.values().next().map(|c| c.depth)
    };
    assert_eq!(depth([128, 256, 64], "  warps 8\n", "sm_90a"), Some(4));
    assert_eq!(depth([128, 256, 64], "  warps 8\n", "sm_80"), Some(3));
    assert_eq!(depth([128, 256, 64], "  warps 8\n", "sm_86"), Some(2));
    assert_eq!(
        depth([128, 128, 64], "  warps 8\n  stages 1\n", "sm_90a"),
        Some(1)
    );
    assert_eq!(
        depth([128, 128, 64], "  warps 8\n  stages 5\n", "sm_90a"),
        Some(5)
    );
    let text = gemm("bf16", [128, 256, 64], ALIGNED, "  warps 8\n  stages 5\n");
    let kernel = tile::parse(&text).expect("reads");
    let errors = passes::lower(&kernel, &Target::parse("sm_90a").expect("a target"));
    let error = format!("{:?}", errors.expect_err("too much"));
    assert!(
        error.contains("E0621") && error.contains("stages"),
        "{error}"
    );
}

#[test]
fn what_cannot_be_copied_passes_through_registers() {
    // Two bytes at once are too few, and `bf16` has no product before sm_80.
    let kernel = lower(&gemm("bf16", [64, 64, 32], "", "  warps 4\n"), "sm_80");
    assert_eq!(
        kernel.channels.values().next().map(|c| c.fill),
        Some(Fill::Registers)
    );
    let kernel = lower(&gemm("bf16", [64, 64, 32], ALIGNED, "  warps 4\n"), "sm_75");
    let fma = |k: &OpKind| {
        matches!(
            k,
            OpKind::Dot {
                strategy: role::Strategy::Fma
            }
        )
    };
    assert_eq!(count(&kernel, fma), 16);
}

#[test]
fn tiles_of_any_shape_are_lowered() {
    for tile in [
        [1, 1, 16],
        [16, 8, 16],
        [17, 33, 48],
        [100, 72, 40],
        [8, 256, 20],
        [48, 96, 7],
    ] {
        for (facts, schedule) in [
            (ALIGNED, ""),
            ("", "  warps 4\n"),
            (ALIGNED, "  warps 8\n  persistent\n"),
        ] {
            for target in ["sm_75", "sm_80", "sm_90a"] {
                for elem in ["f16", "bf16", "f32"] {
                    lower(&gemm(elem, tile, facts, schedule), target);
                }
            }
        }
    }
}
