//! The role level from source to tile IR.

use std::path::Path;

use tesserine_compiler::{
    Session,
    diagnostics::render,
    ir::tile::{self, OpKind, RoleOp, Type},
    target::Target,
};

fn made(file: &str, instance: &str) -> tile::Instance {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut session = Session::new();
    let path = root.join("tests/samples").join(file);
    let target = Target::parse("sm_90a").expect("a target");
    let made = session
        .load(&path, None)
        .and_then(|module| session.instantiate(module, instance, target));
    made.unwrap_or_else(|list| {
        let all: String = list
            .iter()
            .map(|d| render(d, session.sources(), false))
            .collect();
        panic!("{instance} of {file}: {all}")
    })
}

/// The role-level bodies of the samples, with the roles that they declare.
const SAMPLES: &[(&str, &str, &[&str])] = &[
    ("gemm.tess", "gemm_nt<bf16>", &["load", "math", "store"]),
    ("gemm.tess", "gemm_nt_pair<f16>", &["load", "math"]),
    ("gemm_fp8_block.tess", "gemm_fp8_block", &["load", "math"]),
    ("gemm_fp4.tess", "gemm_w4a16<bf16>", &["load", "math"]),
    (
        "grouped_gemm.tess",
        "grouped_gemm<bf16, E = 8>",
        &["gather", "bulk", "math"],
    ),
    (
        "attention_prefill.tess",
        "prefill<bf16, DQ = 128, DV = 128, PP = true>",
        &["load", "math[0]", "math[1]"],
    ),
    (
        "mla_decode.tess",
        "mla_decode<bf16, P = 64>",
        &["load", "math[0]", "math[1]"],
    ),
];

/// They become tile IR that is valid and reads back the same, and every operation on a channel is there.
#[test]
fn samples_become_tile_ir() {
    for (file, instance, names) in SAMPLES {
        let made = made(file, instance);
        let kernel = &made.bodies[0];
        tile::verify(kernel).unwrap_or_else(|e| panic!("{instance}: {e:?}\n{kernel}"));
        let text = kernel.to_string();
        let back = tile::parse(&text).unwrap_or_else(|e| panic!("{instance}: {e:?}\n{text}"));
        assert_eq!(back.to_string(), text, "{instance}");
        let body = &kernel.body;
        let root = &body.regions[body.root].ops;
        let heads = root.iter().find_map(|&op| match &body.ops[op].kind {
            OpKind::Role(RoleOp::Roles(heads)) => Some(heads),
            _ => None,
        });
        let labels: Vec<String> = heads
            .unwrap_or_else(|| panic!("{instance} has no roles"))
            .iter()
            .map(|h| h.label())
            .collect();
        assert_eq!(labels, *names, "{instance}");
        for (id, channel) in &kernel.channels {
            for word in ["put", "get", "release"] {
                // A slot that is handed on is released as the other channel's.
                let handed_on = kernel.channels.values().any(|c| c.over == Some(id));
                if word == "release" && handed_on {
                    continue;
                }
                let op = format!("{word} {id}");
                let there = text.lines().any(|l| {
                    l.trim()
                        .split_once(&op)
                        .is_some_and(|(_, rest)| !rest.starts_with(|c: char| c.is_ascii_digit()))
                });
                assert!(there, "{instance}: nobody does `{word} {}`", channel.name);
            }
        }
    }
}

/// An accumulator that a loop carries is in flight around it: it begins as a product that is over, and is awaited behind.
#[test]
fn a_carried_product_is_in_flight() {
    let made = made("gemm.tess", "gemm_nt<bf16>");
    let body = &made.bodies[0].body;
    let mut carried = 0;
    for op in body.ops.values() {
        if !matches!(op.kind, OpKind::For { .. }) || op.results.is_empty() {
            continue;
        }
        let flight = Type::Pending(match Type::tile(tesserine_set::DType::F32, [128, 256]) {
            Type::Tile(tile) => tile,
            _ => unreachable!("a tile"),
        });
        assert_eq!(*body.ty(op.results[0]), flight);
        let init = body.defining_op(op.operands[3]).expect("an operation");
        assert_eq!(body.ops[init].kind, OpKind::Cast);
        carried += 1;
    }
    assert_eq!(carried, 1);
}
