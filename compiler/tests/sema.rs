//! Sema from the outside: programs in, tile IR or diagnostics out.

use std::path::{Path, PathBuf};

use tesserine_compiler::{Session, diagnostics::render, ir::tile, target::Target};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the crate lies in the workspace")
        .to_owned()
}

#[test]
fn the_kernel_library_instantiates() {
    for (file, instances) in [
        ("basics/axpy.tess", &["axpy<f16>", "axpy<bf16>"][..]),
        ("basics/transpose.tess", &["transpose<f16>"]),
        (
            "norm/rmsnorm.tess",
            &[
                "rmsnorm<bf16>",
                "fused_add_rmsnorm<f16>",
                "rmsnorm<f32, B = 1024>",
            ],
        ),
        ("norm/layernorm.tess", &["layernorm<bf16>"]),
        ("norm/softmax.tess", &["softmax<bf16>"]),
        (
            "activation/gated.tess",
            &["silu_and_mul<bf16>", "gelu_tanh_and_mul<f16>"],
        ),
    ] {
        let path = repository().join("kernels-dsl").join(file);
        let mut session = Session::new();
        let module = session
            .load(&path, None)
            .unwrap_or_else(|d| panic!("{file}: {d:#?}"));
        for instance in instances {
            for target in [Target::ALL[0], Target::ALL[4]] {
                match session.instantiate(module, instance, target) {
                    Ok(made) => {
                        assert_eq!(made.bodies.len(), 2, "{instance}: specialised and general");
                        assert!(!made.bodies[0].header.facts.is_empty());
                        assert!(made.bodies[1].header.facts.is_empty());
                        for body in &made.bodies {
                            assert_eq!(tile::verify(body), Ok(()), "{instance}");
                        }
                    }
                    Err(diagnostics) => {
                        for d in diagnostics.iter() {
                            println!("{}", render(d, session.sources(), false));
                        }
                        panic!("{instance} for {}", target.name());
                    }
                }
            }
        }
    }
}
