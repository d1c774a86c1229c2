//! Every kernel of the default set, through both levels: verified, printed and read back.

use std::path::Path;

use tesserine_compiler::{
    Session,
    ir::{VerifyError, role, tile},
    passes,
    target::Target,
};

const KERNELS: [(&str, &[&str]); 7] = [
    ("basics/axpy.tess", &["axpy"]),
    ("basics/transpose.tess", &["transpose"]),
    ("norm/rmsnorm.tess", &["rmsnorm", "fused_add_rmsnorm"]),
    ("norm/layernorm.tess", &["layernorm"]),
    ("norm/softmax.tess", &["softmax"]),
    (
        "activation/gated.tess",
        &["silu_and_mul", "gelu_tanh_and_mul"],
    ),
    ("gemm/dense.tess", &["gemm_nt"]),
];

fn expect_ok(what: &str, text: &str, result: Result<(), Vec<VerifyError>>) {
    if let Err(errors) = result {
        let errors: Vec<String> = errors.iter().map(|e| e.to_string()).collect();
        panic!("{what}: {}\n{text}", errors.join("\n"));
    }
}

#[test]
fn the_kernels_are_sound_and_read_back() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels-dsl");
    for (file, names) in KERNELS {
        let mut session = Session::new();
        let module = match session.load(&root.join(file), Some(&root)) {
            Ok(module) => module,
            Err(diagnostics) => panic!("{file}: {diagnostics:?}"),
        };
        for name in names {
            let name = format!("{name}<bf16>");
            for target in [Target::ALL[0], Target::ALL[4], Target::ALL[9]] {
                let instance = match session.instantiate(module, &name, target) {
                    Ok(instance) => instance,
                    Err(diagnostics) => panic!("{name}: {diagnostics:?}"),
                };
                let bodies = instance.bodies.len();
                assert!(bodies >= 2, "{name} has specialised and general bodies");
                for kernel in &instance.bodies {
                    let text = kernel.to_string();
                    expect_ok(&name, &text, tile::verify(kernel));
                    let again =
                        tile::parse(&text).unwrap_or_else(|e| panic!("{name}: {e}\n{text}"));
                    assert_eq!(again.to_string(), text);
                    let lowered = match passes::lower(kernel, &target) {
                        Ok(lowered) => lowered,
                        Err(diagnostics) => panic!("{name}: {diagnostics:?}"),
                    };
                    let text = lowered.to_string();
                    expect_ok(&name, &text, role::verify(&lowered));
                    let again =
                        role::parse(&text).unwrap_or_else(|e| panic!("{name}: {e}\n{text}"));
                    assert_eq!(again.to_string(), text);
                }
            }
        }
    }
}
