//! Kernels of the role level: what their role IR waits for, and when.

use std::path::Path;

use tesserine_compiler::{
    Session,
    diagnostics::{codes, render},
    ir::{role, tile},
    passes,
    target::Target,
};

const PRODUCT: &str = include_str!("data/roles_product.tir");

/// The same, whose result a third role stores.
const EPILOGUE: &str = include_str!("data/roles_epilogue.tir");

/// Two blocks of a cluster that share the columns.
const PAIR: &str = include_str!("data/roles_pair.tir");

fn kernel(text: &str) -> tile::Kernel {
    let kernel = tile::parse(text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    tile::verify(&kernel).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    kernel
}

fn lowered(text: &str) -> role::Kernel {
    let target = Target::parse("sm_90a").expect("a target");
    passes::lower(&kernel(text), &target).unwrap_or_else(|e| panic!("{e:?}"))
}

/// The text with one thing changed.
fn changed(from: &str, to: &str) -> String {
    let text = PRODUCT.replace(from, to);
    assert_ne!(text, PRODUCT, "{from}");
    text
}

/// The lines of a role's body that begin with one of `words`, without what they give and take.
fn steps(kernel: &role::Kernel, role: &str, words: &[&str]) -> Vec<String> {
    let text = kernel.to_string();
    let head = format!("role \"{role}\"");
    let body = text.split("\nrole ").find_map(|part| {
        let part = format!("role {part}");
        part.starts_with(&head).then_some(part)
    });
    let body = body.unwrap_or_else(|| panic!("no role {role}:\n{text}"));
    body.lines()
        .map(str::trim)
        .map(|line| line.split_once(" = ").map_or(line, |(_, line)| line))
        .filter(|line| words.iter().any(|w| line.split(' ').next() == Some(w)))
        .map(|line| line.split(" %").next().unwrap_or(line).to_owned())
        .collect()
}

const WAITS: &[&str] = &[
    "for",
    "wait_full",
    "wait_empty",
    "expect_bytes",
    "copy_bulk",
    "product",
    "wait_products",
    "if",
    "arrive_empty",
    "arrive_full",
    "write_shared",
    "store_bulk",
    "wait_stores",
];

#[test]
fn slices_are_put_by_bulk_copies() {
    let kernel = lowered(PRODUCT);
    assert_eq!(
        steps(&kernel, "load", WAITS),
        [
            "for",
            "wait_empty channel0",
            "expect_bytes channel0 49152",
            "copy_bulk channel0 tile 0 at 0 map0",
            "copy_bulk channel0 tile 1 at 0 map1",
        ]
    );
    let boxes = |map: &role::TensorMap| -> Vec<(u32, u32)> {
        map.dims.iter().map(|d| (d.dim, d.extent_of_box)).collect()
    };
    let maps: Vec<_> = kernel.maps.values().map(boxes).collect();
    assert_eq!(maps, [[(1, 64), (0, 128)], [(1, 64), (0, 256)]]);
    let channel = kernel.channels.values().next().expect("a channel");
    let barriers = channel.barriers.expect("barriers");
    // One thread expects the bytes; the eight warps of `math` read.
    assert_eq!((barriers.full, barriers.empty), (1, 8));
}

/// With `lag 1` the slot of the product before is free once a newer one is all that flies; in the first iteration there is none.
#[test]
fn slots_are_given_back_as_their_lag_says() {
    let kernel = lowered(PRODUCT);
    assert_eq!(
        steps(&kernel, "math", WAITS),
        [
            "for",
            "wait_full channel0",
            "product channel0 tile 0 by channel0 tile 1 transposed",
            "wait_products 1",
            "if",
            "arrive_empty channel0",
            "wait_products 0",
            "if",
            "arrive_empty channel0",
        ]
    );
    let at_once = lowered(&changed("release channel0 lag 1", "release channel0 lag 0"));
    assert_eq!(
        steps(&at_once, "math", WAITS),
        [
            "for",
            "wait_full channel0",
            "product channel0 tile 0 by channel0 tile 1 transposed",
            "wait_products 0",
            "arrive_empty channel0",
        ]
    );
}

#[test]
fn results_leave_by_bulk_copies() {
    let kernel = lowered(EPILOGUE);
    let math = steps(&kernel, "math", WAITS);
    let put = [
        "wait_empty channel1",
        "write_shared channel1 tile 0",
        "arrive_full channel1",
    ];
    assert_eq!(math[9..], put.repeat(4));
    let store = [
        "wait_full channel1",
        "store_bulk channel1 tile 0 at 0 map2",
        "wait_stores 0 read",
        "arrive_empty channel1",
    ];
    assert_eq!(steps(&kernel, "store", WAITS), store.repeat(4));
    // The narrow roles share a warpgroup behind that of `math`.
    let warps: Vec<(u32, u32)> = kernel
        .roles
        .iter()
        .map(|r| (r.first_warp, r.warps))
        .collect();
    assert_eq!(warps, [(8, 1), (0, 8), (9, 1)]);
}

#[test]
fn parts_of_a_slot_go_to_all_blocks_of_the_cluster() {
    let kernel = lowered(PAIR);
    assert_eq!(
        steps(&kernel, "load", WAITS),
        [
            "for",
            "wait_empty channel0",
            "expect_bytes channel0 16384",
            "copy_bulk channel0 tile 0 at 0 map0",
            "wait_empty channel1",
            "expect_bytes channel1 32768",
            "if",
            "copy_bulk channel1 tile 0 at 0 map1 multicast",
            "if",
            "copy_bulk channel1 tile 0 at 16384 map1 multicast",
        ]
    );
    let arrivals: Vec<(u32, u32)> = kernel
        .channels
        .values()
        .filter_map(|c| c.barriers)
        .map(|b| (b.full, b.empty))
        .collect();
    assert_eq!(arrivals, [(1, 8), (1, 16)]);
    // One wait frees the slots of both.
    let math = steps(&kernel, "math", WAITS);
    assert_eq!(
        math.iter()
            .filter(|s| s.starts_with("wait_products"))
            .count(),
        2
    );
    assert_eq!(
        math.iter()
            .filter(|s| s.starts_with("arrive_empty"))
            .count(),
        4
    );
}

/// Without the facts that bulk copies need, threads copy, piece by piece.
#[test]
fn slices_are_copied_by_threads_elsewhere() {
    let text = changed("  fact aligned(a, 16)\n", "");
    let kernel = lowered(&text);
    assert_eq!(
        steps(
            &kernel,
            "load",
            &[
                "wait_empty",
                "expect_bytes",
                "copy_bulk",
                "copy",
                "arrive_full"
            ]
        ),
        [
            "wait_empty channel0",
            "expect_bytes channel0 32768",
            "copy_bulk channel0 tile 1 at 0 map0",
            "copy channel0 tile 0",
            "arrive_full channel0",
        ]
    );
    let channel = kernel.channels.values().next().expect("a channel");
    // The one that expects the bytes, and each thread that copies.
    assert_eq!(channel.barriers.expect("barriers").full, 1 + 32);
    // Columns that may begin anywhere: a bulk copy's begin at multiples of 16 bytes.
    let anywhere = lowered(&changed("%15 = mul %14, %6", "%15 = mul %14, %9"));
    assert_eq!(
        steps(&anywhere, "load", &["copy_bulk", "copy"]).join(", "),
        "copy channel0 tile 0, copy channel0 tile 1"
    );
}

#[test]
fn what_is_not_compiled_says_so() {
    let target = Target::parse("sm_90a").expect("a target");
    let other = Target::parse("sm_120a").expect("a target");
    let required = changed("  fact aligned(a, 16)\n", "").replace(
        "warps 1 regs 24, \"math\" groups 2 split 0 regs 240) {\n",
        "warps 1 regs 24, \"math\" groups 2 split 0 regs 240) {\n    require bulk\n",
    );
    let cases = [
        (required, target, "aligned(a, 16)", codes::E0708),
        (PRODUCT.to_owned(), other, "sm_120a", codes::E0010),
    ];
    for (text, target, named, code) in cases {
        let Err(found) = passes::lower(&kernel(&text), &target) else {
            panic!("{named}: is compiled");
        };
        let all = format!("{found:?}");
        assert!(all.contains(named) && all.contains(code.as_str()), "{all}");
    }
}

/// The samples' bodies of the role level, from source to role IR.
#[test]
fn samples_are_lowered() {
    let samples = [
        ("gemm.tess", "gemm_nt<bf16>"),
        ("gemm.tess", "gemm_nt<f16, BM = 64, BN = 192, ST = 3>"),
        ("gemm_fp8_block.tess", "gemm_fp8_block"),
        (
            "attention_prefill.tess",
            "prefill<bf16, DQ = 128, DV = 128, PP = false>",
        ),
        (
            "attention_prefill.tess",
            "prefill<bf16, DQ = 64, DV = 64, G = 2, PP = true>",
        ),
        ("mla_decode.tess", "mla_decode<bf16, P = 64>"),
        ("mla_decode.tess", "mla_decode<f16, P = 8>"),
        ("grouped_gemm.tess", "grouped_gemm<bf16, E = 3>"),
        ("gemm_fp4.tess", "gemm_w4a16<f16>"),
    ];
    let target = Target::parse("sm_90a").expect("a target");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut refused = String::new();
    for (file, instance) in samples {
        let mut session = Session::new();
        let path = root.join("tests/samples").join(file);
        let made = session
            .load(&path, None)
            .and_then(|module| session.instantiate(module, instance, target));
        let lowered = made.and_then(|made| {
            let bodies = made.bodies.iter().map(|b| passes::lower(b, &target));
            bodies.collect::<Result<Vec<_>, _>>()
        });
        match lowered {
            Ok(kernels) => {
                assert!(kernels[0].roles.len() > 1, "{instance}");
                #[cfg(feature = "llvm")]
                for kernel in &kernels {
                    compiles(instance, kernel, target, &session);
                }
            }
            Err(list) => {
                for d in list.iter() {
                    refused += &format!("{instance}: {}", render(d, session.sources(), false));
                }
            }
        }
    }
    assert!(refused.is_empty(), "{refused}");
}

/// Nothing of it spills, and products are not waited for before their time.
#[cfg(feature = "llvm")]
fn compiles(instance: &str, kernel: &role::Kernel, target: Target, session: &Session) {
    use tesserine_compiler::{codegen, emit::ptxas::Ptxas};
    use tesserine_set::Fact;
    let module = codegen::compile(kernel, target, session.sources())
        .unwrap_or_else(|d| panic!("{instance}: {d:?}"));
    if let Ok(tool) = Ptxas::find() {
        let cubin = tool.assemble(&module.ptx, target);
        let cubin = cubin.unwrap_or_else(|e| panic!("{instance}: {e}"));
        let facts = &kernel.header.facts;
        // Without facts, a warp of 24 registers copies queries, keys and values by itself: with the scores of 128 columns on top of it,
        // `ptxas` spills some words in one body of this instance.
        let aligned = |f: &Fact| matches!(f, Fact::Aligned { .. });
        let spills = instance.starts_with("prefill<bf16, DQ = 128") && !facts.iter().any(aligned);
        let lost = cubin.losses.iter();
        let lost = lost.filter(|l| !(spills && l.starts_with("registers are spilled")));
        assert_eq!(lost.count(), 0, "{instance} {facts:?}: {:?}", cubin.losses);
    }
}

/// A product that flies around a loop: two iterations are written out, so that the values that a loop carries are those that it began with,
/// and an odd one behind it.
#[test]
fn a_product_carried_in_flight_keeps_its_registers() {
    let target = Target::parse("sm_90a").expect("a target");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let path = root.join("tests/samples/gemm_fp8_block.tess");
    let mut session = Session::new();
    let made = session
        .load(&path, None)
        .and_then(|module| session.instantiate(module, "gemm_fp8_block", target))
        .expect("the sample is right");
    let mut unrolled = None;
    passes::lower_with(&made.bodies[0], &target, &mut |pass, kernel| {
        if pass == "unroll_pending" {
            unrolled = Some(kernel.to_string());
        }
    })
    .expect("the sample compiles");
    let text = unrolled.expect("the pass runs");
    let kernel = tile::parse(&text).expect("tile IR");
    tile::verify(&kernel).expect("valid tile IR");
    let count = |word: &str| text.matches(word).count();
    // One before the loop, two in it, and one for each way in which the last iteration may be left over.
    assert_eq!(count(" = mma "), 5, "{text}");
    assert_eq!(count(" = get "), 5, "{text}");
    // Each is awaited once on each way: in the loop, where one is left over, and at the end of all four ways.
    assert_eq!(count(" = await lag 1"), 4, "{text}");
    assert_eq!(count(" = await %"), 4, "{text}");
    // The loop over pairs of steps carries the product that its second half begins.
    let loops = kernel.body.ops.values().filter(|op| {
        matches!(op.kind, tile::OpKind::For { .. })
            && op
                .results
                .iter()
                .any(|&r| matches!(kernel.body.ty(r), tile::Type::Pending(_)))
    });
    for op in loops {
        let region = &kernel.body.regions[op.regions[0]];
        let last = region.ops.last().expect("a loop yields");
        let products: Vec<_> = region
            .ops
            .iter()
            .filter(|&&id| {
                matches!(
                    kernel.body.ops[id].kind,
                    tile::OpKind::Role(tile::RoleOp::Mma)
                )
            })
            .map(|&id| kernel.body.ops[id].results[0])
            .collect();
        assert_eq!(products.len(), 2, "{text}");
        assert!(
            kernel.body.ops[*last].operands.contains(&products[1]),
            "{text}"
        );
        assert!(
            !kernel.body.ops[*last].operands.contains(&products[0]),
            "{text}"
        );
    }
}

/// A body of the sample in `file`, in role IR.
fn of_sample(file: &str, instance: &str) -> (tile::Kernel, role::Kernel) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut session = Session::new();
    let path = root.join("tests/samples").join(file);
    let target = Target::parse("sm_90a").expect("a target");
    let mut made = session
        .load(&path, None)
        .and_then(|module| session.instantiate(module, instance, target))
        .unwrap_or_else(|e| panic!("{e:?}"));
    let kernel = made.bodies.swap_remove(0);
    let role = passes::lower(&kernel, &target).unwrap_or_else(|e| panic!("{e:?}"));
    (kernel, role)
}

/// Two replicas that do the same to their own rings share one body, which knows who executes it; where they take turns they keep their own.
#[test]
fn replicas_share_a_body_where_theirs_are_alike() {
    let shares = |role: &role::Kernel| role.roles.iter().filter(|r| r.like.is_some()).count();
    let instance = "prefill<bf16, DQ = 64, DV = 64>";
    let (_, role) = of_sample("attention_prefill.tess", instance);
    assert_eq!(shares(&role), 1);
    assert!(!steps(&role, "math[0]", &["replica"]).is_empty());
    let text = role.to_string();
    let parsed = role::parse(&text).unwrap_or_else(|e| panic!("{e:?}"));
    assert_eq!(parsed.to_string(), text);

    let instance = "prefill<bf16, DQ = 64, DV = 64, PP = true>";
    assert_eq!(shares(&of_sample("attention_prefill.tess", instance).1), 0);
    // They read each other's rings.
    let instance = "mla_decode<bf16, P = 64>";
    assert_eq!(shares(&of_sample("mla_decode.tess", instance).1), 0);
}

/// Attention gives its queries back before its last product, though it says so behind all else: they arrive under the end of the tile.
#[test]
fn a_slot_is_given_back_behind_its_last_reader() {
    let instance = "prefill<bf16, DQ = 64, DV = 64>";
    let (kernel, role) = of_sample("attention_prefill.tess", instance);
    let number = kernel
        .channels
        .iter()
        .position(|(_, channel)| channel.name == "qc[0]")
        .expect("a channel of queries");
    let found = steps(&role, "math[0]", &["arrive_empty", "product"]);
    let release = format!("arrive_empty channel{number}");
    let at = found.iter().position(|line| *line == release);
    let at = at.unwrap_or_else(|| panic!("no {release}: {found:?}"));
    let behind: Vec<&str> = found[at + 1..]
        .iter()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert!(behind.starts_with(&["product"]), "{behind:?}");
}
