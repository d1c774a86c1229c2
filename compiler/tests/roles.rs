//! The role level from source to tile IR.

use std::path::Path;

use tesserine_compiler::{
    Session,
    diagnostics::render,
    ir::tile::{self, OpKind, RoleOp, Type},
    target::Target,
    testing::{Options, Outcome},
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

/// The body of the one kernel `k` of `text`, as it is written.
fn body_of(text: &str) -> String {
    let mut session = Session::new();
    let target = Target::parse("sm_90a").expect("a target");
    let made = session
        .load_text("k.tess", text)
        .and_then(|module| session.instantiate(module, "k", target));
    let made = made.unwrap_or_else(|list| {
        let all: String = list
            .iter()
            .map(|d| render(d, session.sources(), false))
            .collect();
        panic!("{all}")
    });
    let kernel = &made.bodies[0];
    tile::verify(kernel).unwrap_or_else(|e| panic!("{e:?}\n{kernel}"));
    kernel.to_string()
}

/// How often a line of `text` contains `word`.
fn lines(text: &str, word: &str) -> usize {
    text.lines().filter(|l| l.contains(word)).count()
}

#[test]
fn what_holds_for_a_point_of_the_grid_each_role_asks() {
    let text = body_of(
        "kernel k(x: view<f32>[n], count: view<i32>[1], y: out view<f32>[n]) for sm_90a
        grid persistent (i in ceil_div(n, 64) until count[0]) {
            channel c: tile<f32>[64] depth 2;
            roles {
                load: 1 warp { put c { x[i*64 +: 64] } }
                store: 1 warpgroup { y[i*64 +: 64] = get c; release c; }
            }
        }",
    );
    let (shared, roles) = text.split_once("roles (").expect("roles");
    assert_eq!(lines(shared, " = load "), 1, "{text}");
    assert_eq!(lines(roles, "if %"), 2, "{text}");
}

#[test]
fn roles_do_not_see_what_others_change() {
    let text = body_of(
        "kernel k(x: view<f32>[n], y: out view<f32>[n], z: out view<f32>[n]) for sm_90a grid (i in ceil_div(n, 64)) {
            let mut scale = 1.5;
            roles {
                one: 1 warpgroup { scale = 2.5; y[i*64 +: 64] = full<f32>[64](scale); }
                other: 1 warpgroup { z[i*64 +: 64] = full<f32>[64](scale); }
            }
        }",
    );
    assert_eq!(lines(&text, "constant 1.5"), 1, "{text}");
    assert_eq!(lines(&text, "constant 2.5"), 1, "{text}");
}

#[test]
fn a_product_in_flight_in_one_arm_is_over_in_the_other() {
    let text = body_of(
        "kernel k(x: view<f16>[n, 64], y: out view<f32>[n, 64]) for sm_90a grid (i in ceil_div(n, 64)) {
            channel c: tile<f16>[64, 64] depth 2;
            roles {
                load: 1 warp { put c { x[i*64 +: 64, ..] } }
                math: 1 warpgroup {
                    let a = get c;
                    let mut s = zeros<f32>[64, 64];
                    if i > 3 { s = mma(a, a.t); }
                    y[i*64 +: 64, ..] = await s;
                    release c;
                }
            }
        }",
    );
    assert_eq!(lines(&text, "= cast %"), 1, "{text}");
    assert_eq!(lines(&text, "= if %"), 1, "{text}");
    assert_eq!(lines(&text, "await"), 1, "{text}");
}

/// The value of a `pingpong`, and what it assigns, come out of it; where the condition is false, there is none.
#[test]
fn turns_have_values() {
    let with = |on: bool| {
        body_of(&format!(
            "kernel k(x: view<f16>[n, 64], y: out view<f32>[n, 64]) for sm_90a grid (i in ceil_div(n, 128)) {{
                channel c[2]: tile<f16>[64, 64] depth 2;
                roles {{
                    load: 1 warp {{ for const r in 0..2 {{ put c[r] {{ x[i*128 + r*64 +: 64, ..] }} }} }}
                    math: 1 warpgroup, replicate r in 2 {{
                        let a = get c[r];
                        let mut scale = 1.0;
                        let (s, t) = pingpong if {on} {{ scale = x[0, 0] as f32; (mma(a, a.t), mma(a, a)) }};
                        y[i*128 + r*64 +: 64, ..] = (await s + await t) * scale;
                        release c[r];
                    }}
                }}
            }}"
        ))
    };
    let (on, off) = (with(true), with(false));
    assert_eq!(lines(&on, "= pingpong %"), 2, "{on}");
    let results = on.lines().find(|l| l.contains("= pingpong")).expect("one");
    let (results, _) = results.split_once('=').expect("results");
    assert_eq!(results.split(',').count(), 3, "{on}");
    assert_eq!(lines(&off, "pingpong"), 0, "{off}");
}

/// What `require` asks for ends with its block.
#[test]
fn requirements_end_with_their_block() {
    let text = body_of(
        "kernel k(x: view<f16>[n, 64], y: out view<f32>[n, 64]) for sm_90a grid (i in ceil_div(n, 64)) {
            channel c: tile<f16>[64, 64] depth 2;
            roles {
                load: 1 warp { put c { x[i*64 +: 64, ..] } }
                math: 1 warp {
                    let a = get c;
                    if const true { require(wgmma); }
                    y[i*64 +: 64, ..] = dot(a, a.t);
                    release c;
                }
            }
        }",
    );
    assert_eq!(lines(&text, "require wgmma"), 1, "{text}");
    assert_eq!(lines(&text, "mma %"), 1, "{text}");
}

/// A slice as it lies in memory is copied; one with other axes, or other elements, goes through registers.
#[test]
fn slices_are_put_as_they_lie() {
    let text = body_of(
        "kernel k(x: view<f16>[n, 64], y: out view<f16>[n, 64]) for sm_90a grid (i in ceil_div(n, 64)) {
            channel c: tile<f16>[64, 64] depth 2;
            roles {
                load: 1 warp {
                    put c { x[i*64 +: 64, ..] }
                    put c { load(x[i*64 +: 64, ..], cache = evict_first) }
                    put c { load(x[i*64 +: 64, ..], pad = 1.0) }
                    put c { x.t[.., i*64 +: 64] }
                    put c { x[i*64 +: 64, ..] * 2.0 }
                }
                store: 1 warpgroup { for const p in 0..5 { y[i*64 +: 64, ..] = get c; release c; } }
            }
        }",
    );
    let puts: Vec<bool> = text
        .lines()
        .filter(|l| l.contains("put channel0"))
        .map(|l| l.contains('['))
        .collect();
    assert_eq!(puts, [true, true, false, false, false], "{text}");
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

/// The product with its epilogue becomes role IR.
#[test]
fn the_product_is_lowered() {
    let made = made("gemm.tess", "gemm_nt<bf16>");
    let target = Target::parse("sm_90a").expect("a target");
    let role = tesserine_compiler::passes::lower(&made.bodies[0], &target);
    let role = role.unwrap_or_else(|e| panic!("{e:?}"));
    let text = role.to_string();
    for word in ["copy_bulk", "product", "wait_products", "store_bulk"] {
        assert!(lines(&text, word) > 0, "no {word}:\n{text}");
    }
}

/// Runs the tests of a file for sm_90a in the interpreter.
fn run_tests(session: &mut Session, module: tesserine_compiler::Module, wanted: &str) {
    let options = Options {
        target: Target::parse("sm_90a").expect("a target"),
        device: None,
    };
    let mut ran = 0;
    for test in session.tests(module) {
        if !test.name.starts_with(wanted) {
            continue;
        }
        if let Outcome::Failed(list) = session.run_test(module, &test, &options) {
            let all: String = list
                .iter()
                .map(|d| render(d, session.sources(), false))
                .collect();
            panic!("{}: {all}", test.name);
        }
        ran += 1;
    }
    assert!(ran > 0, "no test {wanted}");
}

/// Two replicas, pending products that a loop carries, requests of their own lengths.
#[test]
fn attention_of_two_requests_runs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut session = Session::new();
    let path = root.join("tests/samples/attention_prefill.tess");
    let module = session.load(&path, None).expect("the sample is read");
    run_tests(&mut session, module, "prefill_two_requests");
}

/// A role is written before the one that fills its channel, slots are put in parts, tiles of the grid follow each other.
#[test]
fn roles_run_in_the_interpreter() {
    let mut session = Session::new();
    let text = "
        kernel product(a: view<f16>[m, k], b: view<f16>[n, k], c: out view<f32>[m, n]) for sm_90a
        grid persistent (i in ceil_div(m, 32), j in ceil_div(n, 64)) {
            channel ab: (tile<f16>[32, 16], tile<f16>[64, 16]) depth 2;
            channel cs: tile<f32>[32, 64] depth 1;
            roles {
                store: 1 warp { c[i*32 +: 32, j*64 +: 64] = get cs; release cs; }
                math: 1 warpgroup {
                    let mut acc = zeros<f32>[32, 64];
                    for p in 0..ceil_div(k, 16) {
                        let (x, y) = get ab;
                        acc = mma(x, y.t, acc);
                        release ab lag 1;
                    }
                    let sum = await acc;
                    put cs at [16, 0] { sum[16..32, ..] }
                    put cs at [0, 0] { sum[0..16, ..] }
                }
                load: 1 warp {
                    for p in 0..ceil_div(k, 16) { put ab { a[i*32 +: 32, p*16 +: 16], b[j*64 +: 64, p*16 +: 16] } }
                }
            }
        }
        test odd {
            let a = randn(f16, [70, 37], seed = 1);
            let b = randn(f16, [130, 37], seed = 2);
            let c = empty(f32, [70, 130]);
            launch product(a, b, c);
            expect(c, near = dot(a as f64, (b as f64).t), abs = 1e-4, rel = 1e-4);
        }";
    let module = session.load_text("k.tess", text).expect("it is read");
    run_tests(&mut session, module, "odd");
}
