//! Code of grids: counters that tiles are drawn from, clusters, and orders, for every target.
#![cfg(feature = "llvm")]

use tesserine_compiler::{
    Session, codegen,
    diagnostics::render,
    emit::{ptxas::Ptxas, stage},
    ir::tile,
    target::Target,
};
use tesserine_set::AbiArg;

fn instance(text: &str, name: &str, target: Target) -> (Session, tile::Instance) {
    let mut session = Session::new();
    let made = session
        .load_text("program.tess", text)
        .and_then(|module| session.instantiate(module, name, target));
    match made {
        Ok(made) => (session, made),
        Err(all) => {
            let text: String = all
                .iter()
                .map(|d| render(d, session.sources(), false))
                .collect();
            panic!("{target}: {text}");
        }
    }
}

/// The kernel for `target`, which `ptxas` accepts where it is there.
fn compile(text: &str, name: &str, target: Target) -> codegen::Module {
    let (session, made) = instance(text, name, target);
    let module = stage::compile(&made.bodies[0], target, session.sources()).expect("code");
    if let Ok(tool) = Ptxas::find() {
        let assembled = tool.assemble(&module.ptx, target);
        let assembled = assembled.unwrap_or_else(|e| panic!("{target}: {e}\n{}", module.ptx));
        assert_eq!(assembled.resources.spill_store_bytes, 0, "{target}");
    }
    module
}

const DRAWN: &str = "
kernel drawn<S: int = 1>(x: view<f32>[m, n], ends: view<i32>[1], y: mut view<f32>[m, n])
grid persistent dynamic (i in m until ends[0], s in S cluster, j in ceil_div(n, 256 * S)) order rev(i), grouped(4)
{
    let row = x[i, (j*S + s)*256 +: 256];
    y[i, (j*S + s)*256 +: 256] = row * row.sum().cluster_sum(s);
}";

#[test]
fn tiles_are_drawn_from_a_counter_that_is_left_at_zero() {
    for target in Target::ALL {
        let module = compile(DRAWN, "drawn", target);
        assert_eq!(module.abi.last(), Some(&AbiArg::Counter), "{target}");
        assert_eq!(module.ptx.matches("atom.global").count(), 1, "{target}");
        let reset = "st.global.relaxed.gpu.u64";
        assert_eq!(module.ptx.matches(reset).count(), 1, "{target}");
        // The number that was drawn goes through shared memory.
        assert!(module.shared_bytes >= 16, "{target}");
        assert!(!module.ptx.contains("cluster"), "{target}");
        let plain = DRAWN.replace("persistent dynamic", "persistent");
        let module = compile(&plain, "drawn", target);
        assert!(!module.abi.contains(&AbiArg::Counter), "{target}");
        assert!(!module.ptx.contains("atom."), "{target}");
    }
}

#[test]
fn the_blocks_of_a_cluster_draw_together() {
    for target in Target::ALL.into_iter().filter(|t| t.max_cluster() > 1) {
        for size in [2, 4, 16] {
            let module = compile(DRAWN, &format!("drawn<{size}>"), target);
            let dims = format!(".reqnctapercluster {size}, 1, 1");
            assert!(module.ptx.contains(&dims), "{target}");
            assert_eq!(module.ptx.matches("atom.global").count(), 1, "{target}");
            let arrives = module.ptx.matches("barrier.cluster.arrive").count();
            let waits = module.ptx.matches("barrier.cluster.wait").count();
            // Two around the exchange, three around the draw; a compiler may join two.
            assert!(
                arrives >= 4 && arrives == waits,
                "{target}: {arrives}, {waits}"
            );
        }
    }
}

/// A search with every way out, and a loop in parts with a step.
const SEARCH: &str = "
fn find(x, i, limit, n) {
    for j in 0..ceil_div(n, 32) {
        let part = load(x[i, j*32 +: 32], pad = -inf);
        if part.max() <= limit { continue; }
        for k in 0..32 {
            if part[k] > limit { return j*32 + k; }
        }
        if j > 1000 { break; }
    }
    return n;
}
kernel search(x: view<f32>[m, n], limit: f32, at: out view<i32>[m], y: out view<f32>[m]) grid (i in m)
{
    let found = find(x, i, limit, n);
    at[i] = found as i32;
    let mut sum = 0.0;
    for (j, part) in 0..found - 8..n step 2 {
        if const part == 0 { sum += x[i, j]; } else { sum -= x[i, j]; }
    }
    y[i] = sum;
}";

#[test]
fn searches_assemble_everywhere() {
    for target in Target::ALL {
        compile(SEARCH, "search", target);
    }
}

const OVERLAPPING: &str = "
schedule drawn { sm_90a ..= sm_121a { overlap: true } }
schedule product { sm_90a { overlap: true } }
kernel product<BN: int = 128>(a: view<bf16>[m, k], b: view<bf16>[n, k], c: out view<bf16>[m, n])
for sm_90a where k % 8 == 0, n % 8 == 0, aligned(a, 16), aligned(b, 16), aligned(c, 16)
grid persistent (i in ceil_div(m, 128), j in ceil_div(n, BN))
{
    channel ab: (tile<bf16>[128, 64], tile<bf16>[BN, 64]) depth 4;
    roles {
        load: 1 warp, regs 24 {
            for p in 0..ceil_div(k, 64) { put ab { a[i*128 +: 128, p*64 +: 64], b[j*BN +: BN, p*64 +: 64] } }
        }
        math: 2 warpgroups, split 0, regs 240 {
            let mut acc = zeros<f32>[128, BN];
            for p in 0..ceil_div(k, 64) {
                let (x, y) = get ab;
                acc = mma(x, y.t, acc);
                release ab lag 1;
            }
            c[i*128 +: 128, j*BN +: BN] = (await acc) as bf16;
        }
    }
}";

#[test]
fn a_launch_that_overlaps_touches_memory_once_the_one_before_has_ended() {
    let accesses = ["ld.global", "st.global", "atom.", "red.", "cp.async"];
    let begins = "griddepcontrol.launch_dependents;";
    let wait = "griddepcontrol.wait;";
    let text = format!("{DRAWN}{OVERLAPPING}");
    for target in Target::ALL {
        for name in ["drawn", "product"] {
            if name == "product" && target.name() != "sm_90a" {
                continue;
            }
            let module = compile(&text, name, target);
            let ptx = &module.ptx;
            if !target.has(tesserine_compiler::target::Feature::Bulk) {
                assert!(!ptx.contains("griddepcontrol"), "{target}");
                continue;
            }
            let at = ptx.find(wait).unwrap_or_else(|| panic!("{target}: {ptx}"));
            assert!(ptx.find(begins).is_some_and(|b| b < at), "{target}");
            assert_eq!(ptx.matches(wait).count(), 1, "{target}");
            for access in accesses {
                assert!(!ptx[..at].contains(access), "{target} {name}: {access}");
            }
            // A constant load could be moved in front of it.
            assert!(!ptx.contains("ld.global.nc"), "{target}");
            // What needs no memory of others comes first: barriers that slots wait by.
            if name == "product" {
                assert!(ptx[..at].contains("mbarrier.init"), "{target}");
            }
        }
    }
    let old = text.replace("sm_90a ..= sm_121a", "sm_80 ..= sm_121a");
    let mut session = Session::new();
    let target = Target::parse("sm_80").unwrap();
    let made = session
        .load_text("program.tess", &old)
        .and_then(|module| session.instantiate(module, "drawn", target));
    let refused = made.expect_err("sm_80 has no such launches");
    let message = &refused.iter().next().expect("a diagnostic").title;
    let words = "sm_80 has no launches that overlap";
    assert!(message.contains(words), "{message}");
}
