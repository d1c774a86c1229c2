//! Boxes of tensors.

use tesserine_emulator::{
    FaultKind,
    tensor_map::{
        DataType, Interleave, L2Promotion, OobFill, Parameters, Swizzle, TensorMap, swizzle,
    },
};

use crate::{
    bulk::{FENCE, WAIT, bulk, bulk_store},
    kernel::Kernel,
};

/// A tensor of 20 rows of 40 f32 (with 48 to a row), boxes of 8 rows of 32.
fn tensor(base: u64, mode: Swizzle) -> TensorMap {
    TensorMap::encode(&Parameters {
        data_type: DataType::Float32,
        rank: 2,
        global_address: base,
        global_dim: &[40, 20],
        global_strides: &[48 * 4],
        box_dim: &[32, 8],
        element_strides: &[1, 1],
        interleave: Interleave::None,
        swizzle: mode,
        l2_promotion: L2Promotion::None,
        oob_fill: OobFill::Zero,
    })
    .expect("a legal map")
}

/// The tensor's words; those that pad its rows have values too.
fn matrix() -> Vec<u32> {
    (0..20 * 48).map(|i| (i as f32 + 1.0).to_bits()).collect()
}

fn element(row: i32, column: i32) -> Option<usize> {
    let inside = (0..20).contains(&row) && (0..40).contains(&column);
    inside.then(|| (row * 48 + column) as usize)
}

#[test]
fn boxes_of_tensors_are_loaded() {
    let copy = "
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+8192], 1024;
  mov.b64 {%r5, %r20}, %rd2;
  mov.b32 %r6, ROW;
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd3, {%r5, %r6}], [%r1+8192];
";
    let words = matrix();
    for mode in [Swizzle::None, Swizzle::B128] {
        for (row, column) in [(0, 0), (16, 16), (-3, -8), (5, 36), (20, 0)] {
            let copy = copy.replace("ROW", &format!("{row}"));
            let kernel = Kernel::new(&bulk(&copy, WAIT), 256);
            let (a, b) = (kernel.words(&words), kernel.words(&[0; 256]));
            let map = tensor(a, mode);
            kernel.run([0, b, column as u32 as u64], Some(&map));
            let found = kernel.read(b, 256);
            for r in 0..8 {
                for c in 0..32 {
                    let at = swizzle(mode, (r * 128 + c * 4) as u64) as usize / 4;
                    let expected = element(row + r, column + c).map_or(0, |e| words[e]);
                    assert_eq!(found[at], expected, "{mode:?} ({row}, {column}): {r}, {c}");
                }
            }
        }
    }
}

#[test]
fn boxes_of_tensors_are_stored_and_added() {
    for (copy, adds) in [
        (
            "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd3, {%r5, %r6}], [%r1];",
            false,
        ),
        (
            "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%rd3, {%r5, %r6}], [%r1];",
            true,
        ),
    ] {
        let copy = format!("mov.b64 {{%r5, %r20}}, %rd2; mov.b32 %r6, 15; {copy}");
        let kernel = Kernel::new(
            &bulk_store(FENCE, &copy, "cp.async.bulk.wait_group 0;"),
            256,
        );
        let words = matrix();
        let a = kernel.words(&words);
        let column = 24;
        let map = tensor(a, Swizzle::B128);
        kernel.run([0, 0, column], Some(&map));
        let mut expected: Vec<f32> = words.iter().map(|w| f32::from_bits(*w)).collect();
        for r in 0..8 {
            for c in 0..32 {
                let at = swizzle(Swizzle::B128, (r * 128 + c * 4) as u64) / 4;
                let value = (at * 7 + 3) as f32;
                if let Some(e) = element(15 + r, column as i32 + c) {
                    expected[e] = if adds { expected[e] + value } else { value };
                }
            }
        }
        let found: Vec<f32> = kernel
            .read(a, words.len())
            .into_iter()
            .map(f32::from_bits)
            .collect();
        assert_eq!(found, expected, "{copy}");
    }
}

#[test]
fn what_is_no_tensor_map_is_told() {
    let copy = "
  mov.b32 %r6, 0;
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd3, {%r6, %r6}], [%r1+8192];
";
    let kernel = Kernel::new(&bulk(copy, ""), 32);
    let (kind, text) = kernel.fault([0, 0, 0], None);
    assert!(
        kind == FaultKind::Operand && text.contains("no tensor map"),
        "{text}"
    );
    let a = kernel.words(&matrix());
    let (kind, text) = Kernel::new(&bulk(&copy.replace("[%r1],", "[%r1+64],"), ""), 32)
        .fault([0, 0, 0], Some(&tensor(a, Swizzle::None)));
    assert!(
        kind == FaultKind::Misaligned && text.contains("multiple of 128"),
        "{text}"
    );
    let (kind, text) = Kernel::new(
        &bulk(&copy.replace("2d", "1d").replace("{%r6, %r6}", "{%r6}"), ""),
        32,
    )
    .fault([0, 0, 0], Some(&tensor(a, Swizzle::None)));
    assert!(
        kind == FaultKind::Operand && text.contains("1 coordinates"),
        "{text}"
    );
}
