//! What the threads of a role copy to slots, and what becomes of packed elements there: from the library's kernels to role IR and PTX.

use std::path::Path;

use tesserine_compiler::{
    Session,
    diagnostics::render,
    ir::role::{self, OpKind},
    passes,
    target::Target,
};

fn target() -> Target {
    Target::parse("sm_90a").expect("a target")
}

/// All bodies of an instance by roles, lowered.
fn bodies(file: &str, instance: &str) -> (Session, Vec<role::Kernel>) {
    let mut session = Session::new();
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../kernels-dsl/gemm")
        .join(file);
    let made = session
        .load(&path, None)
        .and_then(|module| session.instantiate(module, instance, target()));
    let made = made.and_then(|made| {
        let lowered = made.bodies.iter().map(|b| passes::lower(b, &target()));
        lowered.collect::<Result<Vec<_>, _>>()
    });
    let all = made.unwrap_or_else(|list| {
        let text: Vec<String> = list
            .iter()
            .map(|d| render(d, session.sources(), false))
            .collect();
        panic!("{}", text.join("\n"))
    });
    let by_roles = all.into_iter().filter(|k| k.roles.len() > 1).collect();
    (session, by_roles)
}

/// The names of a role's operations, those of interest.
fn steps(kernel: &role::Kernel, role: &str, of_interest: &[&str]) -> Vec<String> {
    let text = kernel.to_string();
    let head = format!("role \"{role}\"");
    let body = text.split("\nrole \"").map(|t| format!("role \"{t}"));
    let body = body
        .into_iter()
        .find(|t| t.starts_with(&head))
        .expect("the role");
    let names = body.lines().filter_map(|line| {
        let line = line.trim();
        let line = line.split_once(" = ").map_or(line, |(_, op)| op);
        line.split(' ').next()
    });
    names
        .filter(|n| of_interest.contains(n))
        .map(str::to_owned)
        .collect()
}

const FILLING: [&str; 7] = [
    "wait_empty",
    "expect_bytes",
    "copy_bulk",
    "copy_async",
    "copy",
    "arrive_copied",
    "arrive_full",
];

/// The threads of a role copy gathered rows, and those of a group, by themselves; nobody else arrives.
#[test]
fn rows_are_copied_asynchronously() {
    let (session, kernels) = bodies("grouped.tess", "grouped_gemm<bf16, E = 8>");
    assert_eq!(kernels.len(), 2, "with an order, and without");
    for kernel in &kernels {
        let gather = ["wait_empty", "copy_async", "arrive_copied"];
        assert_eq!(steps(kernel, "gather", &FILLING), gather);
        let bulk = steps(kernel, "bulk", &FILLING);
        assert_eq!(bulk[..3], ["wait_empty", "expect_bytes", "copy_bulk"]);
        assert!(bulk[3..].iter().all(|s| s == "copy_bulk"), "{bulk:?}");
        let counts: Vec<(bool, u32)> = kernel
            .channels
            .values()
            .filter_map(|c| c.barriers)
            .map(|b| (b.copied, b.full))
            .collect();
        // Each of 96 threads once its copies have ended; the one that expects the bytes.
        assert_eq!(counts, [(true, 96), (false, 1)]);
    }
    compiles(&session, &kernels);
}

/// A role of three warps divides what it copies among two of them, and computes all else in each.
#[test]
fn warps_that_are_no_power_of_two_compute_alone() {
    let (_, kernels) = bodies("grouped.tess", "grouped_gemm<bf16, E = 160>");
    let gather = kernels[0].roles.iter().find(|r| r.name == "gather");
    let gather = gather.expect("the role that gathers");
    assert_eq!(gather.warps, 3);
    let ops = gather.body.ops.values();
    let exchanged = ops.filter(|op| match op.kind {
        OpKind::Reduce { scratch, .. }
        | OpKind::Through { scratch, .. }
        | OpKind::Convert { scratch } => scratch.is_some(),
        _ => false,
    });
    assert_eq!(exchanged.count(), 0);
}

/// Packed weights lie in slots as they do in memory, and are read as what the product multiplies; the next iteration waits for
/// the product before it makes its factor.
#[test]
fn packed_weights_become_left_factors() {
    let (session, kernels) = bodies("w4a16.tess", "gemm_w4a16<bf16>");
    let [kernel] = &kernels[..] else {
        panic!("{} bodies by roles", kernels.len());
    };
    let filled = steps(kernel, "load", &FILLING);
    let expected = [
        "wait_empty",
        "expect_bytes",
        "copy_bulk",
        "copy_bulk",
        "copy_bulk",
        "copy_async",
        "arrive_copied",
    ];
    assert_eq!(filled, expected);
    // Bytes of two elements each.
    let map = kernel.maps.values().next().expect("a map");
    assert_eq!((map.dims[0].step, map.dims[0].extent_of_box), (2, 64));
    let channel = kernel.channels.values().next().expect("a channel");
    assert_eq!(channel.tiles[0].layout.bytes(), 64 * 128 / 2);
    assert_eq!(channel.barriers.map(|b| b.full), Some(1 + 32));
    let math = steps(
        kernel,
        "math",
        &["wait_full", "convert", "product", "wait_products"],
    );
    assert_eq!(math, ["wait_full", "product", "wait_products"]);
    compiles(&session, &kernels);
}

/// A body whose conditions the instance's parameters break is left out, and not an error.
#[test]
fn tiles_that_no_role_multiplies_have_the_general_body() {
    let (_, kernels) = bodies(
        "grouped.tess",
        "grouped_gemm<f16, E = 2, BM = 16, BN = 16, BK = 32>",
    );
    assert_eq!(kernels.len(), 0);
}

/// Nothing spills, and no product waits before its time.
#[cfg(feature = "llvm")]
fn compiles(session: &Session, kernels: &[role::Kernel]) {
    use tesserine_compiler::{codegen, emit::ptxas::Ptxas};
    for kernel in kernels {
        let module = codegen::compile(kernel, target(), session.sources())
            .unwrap_or_else(|d| panic!("{}: {d:?}", kernel.header.name));
        if let Ok(tool) = Ptxas::find() {
            let cubin = tool.assemble(&module.ptx, target());
            let cubin = cubin.unwrap_or_else(|e| panic!("{}: {e}", kernel.header.name));
            assert_eq!(cubin.losses, Vec::<String>::new(), "{}", kernel.header.name);
        }
    }
}

#[cfg(not(feature = "llvm"))]
fn compiles(_: &Session, _: &[role::Kernel]) {}
