//! The role level from source to tile IR.

use std::path::Path;

use tesserine_compiler::{Session, diagnostics::render, ir::tile, target::Target};

fn made(file: &str, instance: &str) -> tile::Instance {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut session = Session::new();
    let path = root.join("tests/samples").join(file);
    let module = match session.load(&path, None) {
        Ok(module) => module,
        Err(list) => {
            let all: String = list.iter().map(|d| render(d, session.sources(), false)).collect();
            panic!("{file}: {all}")
        }
    };
    let target = Target::parse("sm_90a").expect("a target");
    match session.instantiate(module, instance, target) {
        Ok(made) => made,
        Err(list) => {
            let all: String = list.iter().map(|d| render(d, session.sources(), false)).collect();
            panic!("{instance}: {all}")
        }
    }
}

#[test]
fn show() {
    for (file, instance) in [
        ("gemm.tess", "gemm_nt<bf16>"),
        ("gemm.tess", "gemm_nt_pair<bf16>"),
        ("gemm_fp8_block.tess", "gemm_fp8_block"),
        ("gemm_fp4.tess", "gemm_w4a16<bf16>"),
        ("grouped_gemm.tess", "grouped_gemm<bf16, E = 8>"),
        ("attention_prefill.tess", "prefill<bf16, DQ = 128, DV = 128>"),
        ("attention_prefill.tess", "prefill<bf16, DQ = 128, DV = 128, PP = true>"),
        ("mla_decode.tess", "mla_decode<bf16, P = 64>"),
    ] {
        let made = std::panic::catch_unwind(|| made(file, instance));
        match made {
            Err(_) => println!("FAILED {instance}"),
            Ok(made) => {
                let kernel = &made.bodies[0];
                println!("{kernel}");
                println!("{:?}", tile::verify(kernel).err());
            }
        }
    }
}
