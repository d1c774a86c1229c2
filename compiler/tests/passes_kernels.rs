//! The kernels of the default set, lowered for every target: whole vectors in the specialised bodies, nothing converted
//! but in the transpose, shared memory for the exchange between warps only.

use std::path::Path;

use tesserine_compiler::{
    Session,
    ir::role::{self, OpKind},
    passes,
    target::Target,
};

fn bits_of_accesses(kernel: &role::Kernel) -> Vec<u32> {
    let body = &kernel.roles[0].body;
    body.ops
        .values()
        .filter_map(|op| match op.kind {
            OpKind::Load { width, .. } | OpKind::Store { width, .. } => {
                Some(width * body.ty(op.operands[0]).ty.elem().bits())
            }
            _ => None,
        })
        .collect()
}

use tesserine_set::Fact;

fn count(kernel: &role::Kernel, wanted: impl Fn(&OpKind) -> bool) -> usize {
    let body = &kernel.roles[0].body;
    body.ops.values().filter(|op| wanted(&op.kind)).count()
}

fn lowered(file: &str, name: &str, check: impl Fn(&role::Kernel, bool)) {
    let mut session = Session::new();
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../kernels-dsl")
        .join(file);
    let module = session
        .load(&path, None)
        .unwrap_or_else(|d| panic!("{d:?}"));
    for target in Target::ALL {
        let instance = session
            .instantiate(module, name, target)
            .unwrap_or_else(|d| panic!("{name}: {d:?}"));
        for body in &instance.bodies {
            let kernel = passes::lower(body, &target).unwrap_or_else(|d| panic!("{name}: {d:?}"));
            // A body may be for small sizes only, and know nothing of alignment.
            let mut facts = kernel.header.facts.iter();
            let aligned = facts.any(|f| matches!(f, Fact::Aligned { .. }));
            check(&kernel, aligned);
        }
    }
}

#[test]
fn row_kernels_move_whole_vectors_and_convert_nothing() {
    for (file, names) in [
        ("basics/axpy.tess", &["axpy<bf16>"][..]),
        (
            "norm/rmsnorm.tess",
            &["rmsnorm<f16>", "fused_add_rmsnorm<bf16>"],
        ),
        ("norm/layernorm.tess", &["layernorm<bf16>"]),
        ("norm/softmax.tess", &["softmax<f16>"]),
        (
            "activation/gated.tess",
            &["silu_and_mul<bf16>", "gelu_tanh_and_mul<f16>"],
        ),
    ] {
        for name in names {
            lowered(file, name, |kernel, specialised| {
                // Without alignment a block of several rows may read the weights, one by one, by other threads than those that use them.
                if specialised {
                    let converts = count(kernel, |k| matches!(k, OpKind::Convert { .. }));
                    assert_eq!(converts, 0, "{kernel}");
                    assert!(kernel.shared_bytes <= 1024, "{kernel}");
                }
                for bits in bits_of_accesses(kernel) {
                    // Half a vector, where `f32` parameters lie along with narrower rows.
                    let expected = if specialised {
                        matches!(bits, 64 | 128)
                    } else {
                        bits <= 32
                    };
                    assert!(expected, "{bits} bits an access\n{kernel}");
                }
            });
        }
    }
}

#[test]
fn the_transpose_sees_whole_lines_on_both_sides() {
    lowered(
        "basics/transpose.tess",
        "transpose<f16>",
        |kernel, specialised| {
            let converts = count(kernel, |k| {
                matches!(k, OpKind::Convert { scratch: Some(_) })
            });
            assert_eq!(converts, 1, "{kernel}");
            let bits = if specialised { 128 } else { 16 };
            assert_eq!(bits_of_accesses(kernel), [bits, bits], "{kernel}");
        },
    );
}

/// Pairs side by side are turned in the thread that loads them: only what all heads share, cosines and sines, moves.
#[test]
fn turned_pairs_stay_in_their_threads() {
    let name = "rope_append<bf16, NEOX = false>";
    lowered("rope/append.tess", name, |kernel, specialised| {
        if specialised {
            let converts = count(kernel, |k| {
                matches!(k, OpKind::Convert { scratch: Some(_) })
            });
            assert_eq!(converts, 4, "two for queries, two for keys\n{kernel}");
        }
    });
}
