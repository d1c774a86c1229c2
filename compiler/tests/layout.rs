//! Properties of layouts: every element has a place, replicas are exactly the zero bits, nothing moves in what claims to
//! move nothing, and a conversion through shared memory gives every thread what its layout says.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use tesserine_compiler::ir::tile::{OpKind, ReduceOp};
use tesserine_compiler::layout::scratch::{ConvertBuffer, ReduceBuffer};
use tesserine_compiler::layout::*;
use tesserine_set::DType;

fn shapes(rank: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(
        prop_oneof![
            Just(1u32),
            Just(2),
            Just(7),
            Just(16),
            Just(48),
            Just(64),
            Just(80),
            1u32..100
        ],
        rank,
    )
    .prop_filter("small enough to enumerate", |s| {
        s.iter().product::<u32>() <= 8192
    })
}

fn layouts(rank: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = Layout> {
    (shapes(rank), any::<prop::sample::Index>(), 0u32..5, 0u32..4).prop_map(
        |(shape, rotation, vec, warps)| {
            let rank = shape.len();
            let by = rotation.index(rank);
            let order: Vec<usize> = (0..rank).rev().map(|d| (d + by) % rank).collect();
            let reversed: Vec<usize> = order.iter().rev().copied().collect();
            blocked_by(
                &shape,
                &order,
                if vec % 2 == 0 { &order } else { &reversed },
                1 << vec,
                1 << warps,
            )
        },
    )
}

fn every(shape: &[u32]) -> Vec<Vec<u32>> {
    shape.iter().fold(vec![vec![]], |all, &extent| {
        all.iter()
            .flat_map(|at| {
                (0..extent).map(move |i| {
                    let mut at = at.clone();
                    at.push(i);
                    at
                })
            })
            .collect()
    })
}

fn threads(layout: &Layout) -> impl Iterator<Item = (u32, u32)> + use<> {
    (0..layout.warps()).flat_map(|warp| (0..32).map(move |lane| (lane, warp)))
}

/// What each thread holds under `layout`, if the tile's elements are numbered in row-major order; `None` is padding.
fn distribute(layout: &Layout) -> HashMap<(u32, u32), Vec<Option<u64>>> {
    threads(layout)
        .map(|(lane, warp)| {
            let held = (0..layout.registers())
                .map(|r| {
                    let at = layout.coordinate(r, lane, warp);
                    layout.contains(&at).then(|| flat(&at, &layout.shape))
                })
                .collect();
            ((lane, warp), held)
        })
        .collect()
}

fn flat(at: &[u32], shape: &[u32]) -> u64 {
    at.iter()
        .zip(shape)
        .fold(0, |f, (&a, &s)| f * u64::from(s) + u64::from(a))
}

/// `sources` gives `to` out of `from` without looking at the thread, where `number` says which element of the operand
/// an element of the result is.
fn assert_moves(
    from: &Layout,
    to: &Layout,
    sources: &[u32],
    number: impl Fn(&[u32]) -> u64,
) -> Result<(), TestCaseError> {
    prop_assert_eq!(sources.len() as u32, to.registers());
    let held = distribute(from);
    for (lane, warp) in threads(to) {
        for (r, &source) in sources.iter().enumerate() {
            let at = to.coordinate(r as u32, lane, warp);
            if to.contains(&at) {
                let found = held[&(lane, warp)][source as usize];
                prop_assert_eq!(found, Some(number(&at)), "{:?} of lane {}", at, lane);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_element_has_a_holder_and_only_replicas_share(layout in layouts(1..=3)) {
        let mut holders: HashMap<Vec<u32>, HashSet<(u32, u32)>> = HashMap::new();
        for (lane, warp) in threads(&layout) {
            let mut own = HashSet::new();
            for r in 0..layout.registers() {
                let at = layout.coordinate(r, lane, warp);
                prop_assert!(own.insert(at.clone()), "a thread holds {at:?} twice");
                holders.entry(at).or_default().insert((lane, warp));
            }
        }
        let replicas = layout.replicated_lanes().count_ones() + layout.replicated_warps().count_ones();
        for at in every(&layout.shape) {
            let who = holders.get(&at).map_or(0, HashSet::len);
            prop_assert_eq!(who, 1 << replicas, "{:?}", at);
            let (r, lane, warp) = layout.holder(&at).expect("in shape");
            prop_assert_eq!(layout.coordinate(r, lane, warp), at);
            prop_assert_eq!(lane & layout.replicated_lanes(), 0);
            prop_assert_eq!(warp & layout.replicated_warps(), 0);
        }
    }

    #[test]
    fn vectors_are_neighbours(layout in layouts(1..=3)) {
        for dim in 0..layout.shape.len() {
            let n = layout.contiguous(dim);
            for (lane, warp) in threads(&layout).step_by(7) {
                for first in (0..layout.registers()).step_by(n as usize) {
                    let start = layout.coordinate(first, lane, warp);
                    prop_assert_eq!(start[dim] % n, 0);
                    for i in 1..n {
                        let mut expected = start.clone();
                        expected[dim] += i;
                        prop_assert_eq!(layout.coordinate(first + i, lane, warp), expected);
                    }
                }
            }
        }
    }

    #[test]
    fn permutes_and_slices_move_nothing(layout in layouts(2..=3), turn in 0usize..3, blocks in 0u32..3) {
        let rank = layout.shape.len();
        let perm: Vec<u32> = (0..rank).map(|d| ((d + turn) % rank) as u32).collect();
        let permuted = layout.permuted(&perm);
        let sources = register_sources(&OpKind::Permute(perm.clone()), &layout, &permuted).expect("fits");
        assert_moves(&layout, &permuted, &sources, |at| {
            let mut from = vec![0; rank];
            perm.iter().zip(at).for_each(|(&p, &a)| from[p as usize] = a);
            flat(&from, &layout.shape)
        })?;

        let block = layout.block();
        let offsets: Vec<u32> = (0..rank).map(|d| (blocks % layout.repeat[d]) * block[d]).collect();
        let shape: Vec<u32> = (0..rank).map(|d| (layout.shape[d] - offsets[d]).div_ceil(2).max(1)).collect();
        let sliced = layout.sliced(&offsets, &shape).expect("aligned to blocks");
        let sources = register_sources(&OpKind::Slice(offsets.clone()), &layout, &sliced).expect("fits");
        assert_moves(&layout, &sliced, &sources, |at| {
            let from: Vec<u32> = at.iter().zip(&offsets).map(|(a, o)| a + o).collect();
            flat(&from, &layout.shape)
        })?;
    }

    #[test]
    fn broadcasts_and_reductions_move_nothing(layout in layouts(1..=3), pick in any::<prop::sample::Index>()) {
        let rank = layout.shape.len();
        let axis = pick.index(rank);
        let mut shape = layout.shape.clone();
        shape[axis] = 1;
        let operand = layout.broadcast_operand(&shape);
        let sources = register_sources(&OpKind::Broadcast, &operand, &layout).expect("fits");
        assert_moves(&operand, &layout, &sources, |at| {
            let mut from = at.to_vec();
            from[axis] = 0;
            flat(&from, &shape)
        })?;
        if rank > 1 {
            // What a reduction leaves is what a broadcast back needs.
            let reduced = layout.without_axis(axis);
            let unit = reduced.reshaped(&shape).expect("a unit dimension moves nothing");
            prop_assert_eq!(&unit, &operand);
            let targets = reduce_targets(&layout, axis, &reduced).expect("the parts lie in the thread");
            for (lane, warp) in threads(&layout).step_by(5) {
                for (r, &target) in targets.iter().enumerate() {
                    let mut at = layout.coordinate(r as u32, lane, warp);
                    at.remove(axis);
                    prop_assert_eq!(reduced.coordinate(target, lane, warp), at);
                }
            }
        }
    }

    #[test]
    fn reshapes_that_have_a_layout_move_nothing(
        layout in layouts(1..=3),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0u32..6), 0..3),
    ) {
        let size: u32 = layout.shape.iter().product();
        // Split the size into factors: whatever powers of two it has, in any places.
        let mut shape = vec![size];
        for (at, bits) in cuts {
            let i = at.index(shape.len());
            let factor = 1 << bits.min(shape[i].trailing_zeros());
            shape[i] /= factor;
            shape.insert(i + 1, factor);
        }
        if let Some(to) = layout.reshaped(&shape) {
            let sources = register_sources(&OpKind::Reshape, &layout, &to).expect("fits");
            assert_moves(&layout, &to, &sources, |at| flat(at, &shape))?;
        }
    }

    #[test]
    fn conversions_through_memory_are_right(
        from in layouts(1..=3),
        vec in 0u32..4,
        elem in prop_oneof![Just(DType::Bf16), Just(DType::F32), Just(DType::F64), Just(DType::Bool), Just(DType::E2m1)],
    ) {
        let order: Vec<usize> = (0..from.shape.len()).collect();
        let to = blocked(&from.shape, &order, 1 << vec, from.warps());
        let buffer = ConvertBuffer::new(&from, &to, elem);
        prop_assert!(buffer.access >= buffer.element && buffer.pitch.is_multiple_of(buffer.access));
        let offset = |at: &[u32]| {
            let (last, rows) = at.split_last().expect("of a rank");
            let row = rows.iter().zip(&buffer.extents).fold(0, |r, (a, e)| r * e + a);
            row * buffer.pitch + last * buffer.element
        };
        let mut memory = HashMap::new();
        for (lane, warp) in threads(&from) {
            if lane & from.replicated_lanes() == 0 && warp & from.replicated_warps() == 0 {
                for r in 0..from.registers() {
                    let at = from.coordinate(r, lane, warp);
                    prop_assert!(offset(&at) + buffer.element <= buffer.bytes);
                    let before = memory.insert(offset(&at), at.clone());
                    prop_assert!(before.is_none(), "{:?} is stored twice", at);
                }
            }
        }
        for (lane, warp) in threads(&to) {
            for r in 0..to.registers() {
                let at = to.coordinate(r, lane, warp);
                prop_assert!(offset(&at) + buffer.element <= buffer.bytes);
                if to.contains(&at) {
                    prop_assert_eq!(memory.get(&offset(&at)), Some(&at));
                }
            }
        }
        if let Some(sources) = convert_sources(&from, &to) {
            assert_moves(&from, &to, &sources, |at| flat(at, &from.shape))?;
        }
    }

    #[test]
    fn maps_invert(columns in prop::collection::vec(0u64..256, 8)) {
        let map = LinearMap::new(columns);
        match map.invert() {
            Some(inverse) => {
                prop_assert_eq!(map.rank(), 8);
                for x in 0..256 {
                    prop_assert_eq!(inverse.apply(map.apply(x)), x);
                }
                let identity = LinearMap::new((0..8).map(|i| 1 << i).collect());
                prop_assert_eq!(map.compose(&inverse), identity);
            }
            None => prop_assert!(map.rank() < 8),
        }
        for x in 0..256 {
            let y = map.apply(x);
            prop_assert_eq!(map.solve(y).map(|s| map.apply(s)), Some(y));
        }
    }
}

#[test]
fn a_row_of_half_words_lies_in_whole_vectors() {
    let layout = blocked(&[8192], &[0], 8, 8);
    assert_eq!(layout.repeat, [4]);
    assert_eq!(layout.registers(), 32);
    assert_eq!(layout.contiguous(0), 8);
    assert_eq!(layout.coordinate(9, 1, 1), [2048 + 256 + 8 + 1]);
}

#[test]
fn small_and_odd_tiles_waste_little() {
    // 176 columns as 22 vectors: eight lanes a row, three times.
    let layout = blocked(&[64, 176], &[1, 0], 8, 4);
    assert_eq!(layout.padded(), [64, 192]);
    // Ten vectors do not fill a warp: the other lanes are replicas, and nothing is repeated.
    let layout = blocked(&[80], &[0], 8, 1);
    assert_eq!(
        (layout.registers(), layout.replicated_lanes()),
        (8, 0b10000)
    );
}

#[test]
fn a_transpose_moves_between_threads() {
    let from = blocked(&[64, 64], &[1, 0], 8, 4);
    let to = blocked(&[64, 64], &[0, 1], 8, 4);
    assert_eq!(convert_sources(&from, &to), None);
}

#[test]
fn warps_share_what_lies_along_them() {
    let layout = blocked(&[4, 1024], &[1, 0], 4, 4);
    let buffer = ReduceBuffer::new(&layout, Some(1), ReduceOp::Sum, DType::F32);
    assert_eq!(buffer.map(|b| (b.slot, b.warp_bits)), Some((4, vec![0, 1])));
    let rows = blocked_by(&[64, 64], &[1, 0], &[0, 1], 2, 4);
    assert_eq!(
        ReduceBuffer::new(&rows, Some(1), ReduceOp::Sum, DType::F32),
        None
    );
}

/// A slice leaves elements of its neighbours in place, past its own extents: a reshape must not take them in.
#[test]
fn slices_reshape_to_their_own_elements() {
    let pairs = Layout {
        shape: vec![4, 8, 2],
        register: vec![],
        lane: vec![
            vec![0, 0, 1],
            vec![0, 1, 0],
            vec![0, 2, 0],
            vec![0, 4, 0],
            vec![1, 0, 0],
        ],
        warp: vec![],
        repeat: vec![2, 1, 1],
    };
    let first = pairs
        .sliced(&[0, 0, 0], &[4, 8, 1])
        .expect("nothing moves: the others are padding");
    for shape in [&[4, 8][..], &[32], &[4, 1, 8]] {
        if let Some(to) = first.reshaped(shape) {
            let sources = register_sources(&OpKind::Reshape, &first, &to).expect("fits");
            assert_moves(&first, &to, &sources, |at| flat(at, shape)).expect("nothing moves");
        }
    }
}

/// What only registers divide is cut alike wherever the part begins, so that halves meet without moving.
#[test]
fn halves_of_a_block_lie_alike() {
    let pairs = Layout {
        shape: vec![4, 32, 2],
        register: vec![vec![0, 0, 1], vec![0, 1, 0]],
        lane: vec![
            vec![0, 2, 0],
            vec![0, 4, 0],
            vec![0, 8, 0],
            vec![0, 16, 0],
            vec![1, 0, 0],
        ],
        warp: vec![],
        repeat: vec![2, 1, 1],
    };
    let first = pairs.sliced(&[0, 0, 0], &[4, 32, 1]).expect("a part");
    let second = pairs.sliced(&[0, 0, 1], &[4, 32, 1]).expect("a part");
    assert_eq!(first, second);
    let rows = first.reshaped(&[4, 32]).expect("nothing past its extents");
    let sources = register_sources(&OpKind::Reshape, &first, &rows).expect("fits");
    assert_moves(&first, &rows, &sources, |at| flat(at, &[4, 32])).expect("nothing moves");
}
