//! Columns that a loop puts one after another: which are fetched with those beside them, and what the operations that do so are checked for.

use tesserine_compiler::{
    Session,
    diagnostics::render,
    ir::role::{self, OpKind},
    passes,
    target::Target,
};

fn lowered(facts: &str, head: &str, slice: &str) -> role::Kernel {
    let text = format!(
        "kernel k(x: view<f32>[m, n], y: out view<f32>[n, m], from: i64) for sm_90a {facts}
        grid (i in ceil_div(m, 64)) {{
            channel c: tile<f32>[64] depth 2;
            roles {{
                copy: 1 warp {{ for p in {head} {{ put c {{ x[{slice}] }} }} }}
                move: 1 warp {{ for p in {head} {{ y[p, i*64 +: 64] = get c; release c; }} }}
            }}
        }}"
    );
    of_text(&text)
}

fn of_text(text: &str) -> role::Kernel {
    let mut session = Session::new();
    let target = Target::parse("sm_90a").expect("a target");
    let made = session
        .load_text("k.tess", text)
        .and_then(|module| session.instantiate(module, "k", target))
        .and_then(|made| passes::lower(&made.bodies[0], &target));
    made.unwrap_or_else(|list| {
        let text: Vec<String> = list
            .iter()
            .map(|d| render(d, session.sources(), false))
            .collect();
        panic!("{}", text.join("\n"))
    })
}

fn is_fetched(kernel: &role::Kernel) -> bool {
    let mut all = kernel.roles.iter().flat_map(|r| r.body.ops.values());
    all.any(|op| matches!(op.kind, OpKind::FetchColumns { .. }))
}

const ALIGNED: &str = "where aligned(x, 16)";

#[test]
fn columns_in_order_are_fetched_together() {
    for (facts, head, slice) in [
        (ALIGNED, "0..n", "i*64 +: 64, p"),
        (ALIGNED, "from..n", "i*64 +: 64, p"),
        // Nothing is stated: the body under the facts that this needs.
        ("", "0..n", "i*64 +: 64, p"),
    ] {
        let kernel = lowered(facts, head, slice);
        assert!(is_fetched(&kernel), "{facts} {head} {slice}: {kernel}");
        let text = kernel.to_string();
        // One slot is read while the other is filled; what threads write arrives once a warp.
        assert!(text.contains("depth 2 fill cp_async"), "{text}");
        let ring = kernel.channels.values().find(|c| c.barriers.is_some());
        let barriers = ring.and_then(|r| r.barriers).expect("a ring");
        assert_eq!((barriers.full, barriers.copied), (1, false));
        let again = role::parse(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
        assert_eq!(again.to_string(), text);
    }
}

#[test]
fn other_columns_are_copied_by_themselves() {
    for (facts, head, slice) in [
        // Rows may begin anywhere.
        ("where aligned(x, 4)", "0..n", "i*64 +: 64, p"),
        // The next column is not the next in the loop.
        (ALIGNED, "0..n step 2", "i*64 +: 64, p"),
        (ALIGNED, "0..n", "i*64 +: 64, p + 1"),
        (ALIGNED, "0..n", "i*64 +: 64, from"),
        // Its rows are others each time.
        (ALIGNED, "0..n", "p*64 +: 64, p"),
        // Neighbours in memory already.
        (ALIGNED, "0..n", "p, i*64 +: 64"),
    ] {
        let kernel = lowered(facts, head, slice);
        assert!(!is_fetched(&kernel), "{facts} {head} {slice}: {kernel}");
    }
}

/// What the verifier says of the same kernel with one thing wrong.
#[test]
fn operations_on_columns_are_verified() {
    let kernel = lowered(ALIGNED, "0..n", "i*64 +: 64, p");
    let text = kernel.to_string();
    for (right, wrong, what) in [
        (
            "tile f32 [64, 16] at 0",
            "tile f32 [64, 2] at 0",
            "no stage",
        ),
        (
            "tile f32 [64, 16] at 0",
            "tile f32 [32, 16] at 0",
            "does not fit",
        ),
        (
            "tile f32 [1, 64] at 0",
            "tile f32 [1, 32] at 0",
            "does not fit",
        ),
        (
            "fetch_columns channel1",
            "fetch_columns channel0",
            "no stage",
        ),
    ] {
        assert!(text.contains(right), "{right}: {text}");
        let wrong = text.replace(right, wrong);
        let kernel = role::parse(&wrong).unwrap_or_else(|e| panic!("{e:?}\n{wrong}"));
        let found = format!("{:?}", role::verify(&kernel));
        assert!(found.contains(what), "{what}: {found}");
    }
}

/// A warp of its own fetches columns beside bulk copies, if the block has one.
#[test]
fn another_warp_fetches_beside_bulk_copies() {
    for (warps, roles) in [
        ("1 warp, regs 40", ["a", "load", "load copies"].as_slice()),
        ("1 warp", &["a", "load"]),
    ] {
        let text = format!(
            "kernel k(x: view<f32>[m, n], w: view<f32>[m, n], y: out view<f32>[m, n]) for sm_90a
            where aligned(x, 16), aligned(w, 16) grid (i in ceil_div(m, 64)) {{
                channel c: (tile<f32>[64, 32], tile<f32>[64]) depth 2;
                roles {{
                    load: {warps} {{ for p in 0..n {{ put c {{ w[i*64 +: 64, p*32 +: 32], x[i*64 +: 64, p] }} }} }}
                    a: 1 warpgroup {{ for p in 0..n {{ let (t, s) = get c; y[i*64 +: 64, p*32 +: 32] = t * s[.., _]; release c; }} }}
                }}
            }}"
        );
        let kernel = of_text(&text);
        let mut found: Vec<&str> = kernel.roles.iter().map(|r| r.name.as_str()).collect();
        found.sort_unstable();
        assert_eq!(found, roles, "{kernel}");
        let barriers = kernel.channels.values().find_map(|c| c.barriers);
        assert_eq!(
            barriers.map(|b| b.full),
            Some(2),
            "one expects bytes, one arrives"
        );
        let Some(copies) = kernel.roles.iter().find(|r| r.name == "load copies") else {
            continue;
        };
        let load = kernel
            .roles
            .iter()
            .find(|r| r.name == "load")
            .expect("a role");
        let has = |role: &role::Role, is: fn(&OpKind) -> bool| {
            role.body.ops.values().any(|o| is(&o.kind))
        };
        let bulk =
            |kind: &OpKind| matches!(kind, OpKind::CopyBulk { .. } | OpKind::ExpectBytes { .. });
        let own =
            |kind: &OpKind| matches!(kind, OpKind::CopyColumn { .. } | OpKind::ArriveFull { .. });
        assert!(has(load, bulk) && !has(load, own), "{kernel}");
        assert!(!has(copies, bulk) && has(copies, own), "{kernel}");
    }
}
