//! Which instructions exist where, against the "PTX ISA Notes" and "Target ISA Notes" of their sections.

use tesserine_emulator::{
    LoadError, Module,
    target::{TARGETS, Target},
};

type Version = (u32, u32);

const NEWEST: Version = (9, 0);

fn load(
    (major, minor): Version,
    target: &str,
    device: &str,
    body: &str,
) -> Result<Module, LoadError> {
    let text = format!(
        ".version {major}.{minor}\n.target {target}\n.address_size 64\n.visible .entry k(.param .u64 p)\n{{\n\
         .reg .pred %p<9>;\n.reg .b16 %h<9>;\n.reg .b32 %r<20>;\n.reg .b64 %rd<20>;\n.reg .f32 %f<9>;\n.reg .f64 %d<9>;\n\
         {body}\nret;\n}}\n"
    );
    Module::load(&text, Target::named(device).unwrap())
}

/// The reason why it is illegal for the target, if it is.
fn illegal(version: Version, target: &str, body: &str) -> Option<String> {
    match load(version, target, target, body) {
        Err(LoadError::Illegal { reason, .. }) => Some(reason),
        Err(LoadError::Syntax(e)) => panic!("{body}: {e}"),
        Err(LoadError::Unfit { code, device }) => panic!("{code} does not run on {device}"),
        Ok(_) | Err(_) => None,
    }
}

/// The first PTX version of each target (PTX ISA §11.1.2).
fn since(target: Target) -> Version {
    match target.sm {
        75 => (6, 3),
        80 => (7, 0),
        86 => (7, 1),
        89 => (7, 8),
        90 => (8, 0),
        100 => (8, 6),
        120 => (8, 7),
        103 | 121 => (8, 8),
        _ => NEWEST,
    }
}

/// Says that an instruction exists on those targets only, and since that version.
#[track_caller]
fn exists(body: &str, version: Version, on: impl Fn(u32) -> bool) {
    for target in TARGETS {
        let name = target.to_string();
        let found = illegal(NEWEST, &name, body);
        match on(target.sm) {
            true => {
                assert_eq!(found, None, "{body} on {name}");
                let least = version.max(since(target));
                assert_eq!(illegal(least, &name, body), None, "{body} on {name}");
                if since(target) < version {
                    // No version stands between 7.8 and 8.0, nor between 6.5 and 7.0.
                    let before = match version {
                        (8, 0) => (7, 8),
                        (7, 0) => (6, 5),
                        (major, minor) => (major, minor - 1),
                    };
                    let reason = illegal(before, &name, body).unwrap_or_default();
                    let expected = format!("needs PTX {}.{}", version.0, version.1);
                    assert!(reason.ends_with(&expected), "{body} on {name}: {reason}");
                }
            }
            false => {
                let reason = found.unwrap_or_else(|| panic!("{body} passes on {name}"));
                assert!(reason.contains("needs sm_"), "{body} on {name}: {reason}");
            }
        }
    }
}

#[test]
fn instructions_exist_from_an_sm_on() {
    #[rustfmt::skip]
    let cases: &[(&str, Version, u32)] = &[
        ("tanh.approx.f32 %f1, %f2;", (7, 0), 75),
        ("movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r2;", (7, 8), 75),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r5];", (6, 5), 75),
        ("bmsk.clamp.b32 %r1, %r2, %r3;", (7, 6), 75),
        ("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%r1,%r2}, {%r1,%r2}, {%r3}, {%r1,%r2};", (6, 5), 75),
        ("min.f16 %h1, %h2, %h3;", (7, 0), 80),
        ("max.NaN.f32 %f1, %f2, %f3;", (7, 0), 80),
        ("fma.rn.bf16x2 %r1, %r2, %r3, %r4;", (7, 0), 80),
        ("cvt.rn.bf16.f32 %h1, %f1;", (7, 0), 80),
        ("cvt.f32.bf16 %f1, %h1;", (7, 1), 80),
        ("cvt.rn.f16x2.f32 %r1, %f1, %f2;", (7, 0), 80),
        ("cp.async.ca.shared.global [%r1], [%rd1], 4;", (7, 0), 80),
        ("cp.async.commit_group;", (7, 0), 80),
        ("mbarrier.init.shared.b64 [%r1], 1;", (7, 0), 80),
        ("mbarrier.test_wait.parity.shared.b64 %p1, [%r1], 0;", (7, 1), 80),
        ("redux.sync.add.u32 %r1, %r2, -1;", (7, 0), 80),
        ("createpolicy.fractional.L2::evict_last.b64 %rd1, 0f3F800000;", (7, 4), 80),
        ("red.global.add.L2::cache_hint.u32 [%rd1], %r2, %rd2;", (7, 4), 80),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d1,%d2}, {%d3}, {%d4}, {%d1,%d2};", (7, 0), 80),
        ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r1,%r2,%r3,%r4}, {%r5,%r6,%r7,%r8}, {%r7,%r8}, {%r1,%r2,%r3,%r4};", (7, 0), 80),
        ("min.xorsign.abs.f32 %f1, %f2, %f3;", (7, 2), 86),
        ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%f1,%f2,%f3,%f4}, {%r5,%r6,%r7,%r8}, {%r7,%r8}, {%f1,%f2,%f3,%f4};", (8, 4), 89),
        ("add.bf16 %h1, %h2, %h3;", (7, 8), 90),
        ("ex2.approx.ftz.bf16x2 %r1, %r2;", (7, 8), 90),
        ("cvt.rn.f16.bf16 %h2, %h1;", (7, 8), 90),
        ("cvt.rz.relu.tf32.f32 %r1, %f1;", (7, 8), 90),
        ("add.u16x2 %r1, %r2, %r3;", (8, 0), 90),
        ("max.relu.s32 %r1, %r2, %r3;", (8, 0), 90),
        ("mapa.shared::cluster.u32 %r1, %r2, 0;", (7, 8), 90),
        ("ld.shared::cluster.u32 %r1, [%rd1];", (7, 8), 90),
        ("ld.acquire.cluster.global.u32 %r1, [%rd1];", (7, 8), 90),
        ("barrier.cluster.arrive.aligned;", (7, 8), 90),
        ("barrier.cluster.arrive.release.aligned;", (8, 0), 90),
        ("mov.u32 %r1, %cluster_ctarank;", (7, 8), 90),
        ("elect.sync %r1|%p1, -1;", (8, 0), 90),
        ("griddepcontrol.wait;", (7, 8), 90),
        ("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r5], {%r1};", (7, 8), 90),
        ("mbarrier.try_wait.shared.b64 %p1, [%r1], %rd1;", (7, 8), 90),
        ("mbarrier.arrive.expect_tx.shared.b64 %rd1, [%r1], 64;", (8, 0), 90),
        ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 16, [%r2];", (8, 0), 90),
        ("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];", (8, 0), 90),
        ("fence.proxy.async;", (8, 0), 90),
        ("atom.global.add.v2.f32 {%f1,%f2}, [%rd1], {%f3,%f4};", (8, 1), 90),
        ("red.global.add.noftz.bf16x2 [%rd1], %r2;", (7, 8), 90),
        ("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%d1,%d2,%d3,%d4}, {%d1,%d2,%d3,%d4}, {%d1,%d2}, {%d1,%d2,%d3,%d4};", (7, 8), 90),
        ("fma.rn.f32x2 %rd1, %rd2, %rd3, %rd4;", (8, 6), 100),
        ("fma.rn.f32.bf16 %f1, %h2, %h3, %f3;", (8, 6), 100),
        ("min.f32 %f1, %f2, %f3, %f4;", (8, 8), 100),
        ("ld.global.v8.b32 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%rd1];", (8, 8), 100),
        ("ld.global.v4.b64 {%rd1,%rd2,%rd3,%rd4}, [%rd5];", (8, 8), 100),
    ];
    for (body, version, least) in cases {
        exists(body, *version, |sm| sm >= *least);
    }
}

#[test]
fn others_exist_everywhere() {
    for body in [
        "add.s32 %r1, %r2, %r3;",
        "ld.relaxed.gpu.global.u32 %r1, [%rd1];",
        "atom.global.relaxed.gpu.add.f32 %f1, [%rd1], %f2;",
        "min.f32 %f1, %f2, %f3;",
        "ld.global.v4.b32 {%r1,%r2,%r3,%r4}, [%rd5];",
        "cvt.rn.f16.f32 %h1, %f1;",
        "fma.rn.f16x2 %r1, %r2, %r3, %r4;",
        "bar.warp.sync -1;",
    ] {
        exists(body, (6, 3), |_| true);
    }
}

#[test]
fn some_exist_on_targets_of_their_own() {
    exists("wgmma.fence.sync.aligned;", (8, 0), |sm| sm == 90);
    exists("setmaxnreg.inc.sync.aligned.u32 240;", (8, 0), |sm| {
        sm >= 90
    });
    let tensor_memory = |sm| matches!(sm, 100 | 103 | 110);
    exists("tcgen05.wait::ld.sync.aligned;", (8, 6), tensor_memory);
    let wide = "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r1,%r2}, [%r5];";
    exists(wide, (8, 6), |sm| sm >= 100);
    let redux = "redux.sync.min.f32 %f1, %f2, -1;";
    exists(redux, (8, 6), |sm| matches!(sm, 100 | 103));
    let reason = illegal(NEWEST, "sm_90a", wide).unwrap();
    assert_eq!(reason, "needs sm_100a, sm_110a or sm_120a");
    assert_eq!(
        illegal(NEWEST, "sm_100a", "wgmma.fence.sync.aligned;").unwrap(),
        "needs sm_90a"
    );
    // Without the suffix, nothing of the kind.
    let plain = load((8, 0), "sm_90", "sm_90a", "wgmma.fence.sync.aligned;");
    assert!(matches!(plain, Err(LoadError::Illegal { .. })), "{plain:?}");
    let family = load((8, 8), "sm_100f", "sm_103a", wide);
    assert!(
        !matches!(
            family,
            Err(LoadError::Illegal { .. } | LoadError::Unfit { .. })
        ),
        "{family:?}"
    );
}

#[test]
fn small_formats_came_to_newer_targets_first() {
    let body = "cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2;";
    assert_eq!(illegal((8, 0), "sm_89", body).unwrap(), "needs PTX 8.1");
    assert_eq!(illegal((8, 1), "sm_89", body), None);
    assert_eq!(illegal((8, 0), "sm_90a", body), None);
    assert_eq!(illegal(NEWEST, "sm_86", body).unwrap(), "needs sm_89");
}

#[test]
fn errors_name_the_line_the_instruction_and_what_it_needs() {
    let error = load(
        (7, 0),
        "sm_75",
        "sm_80",
        "add.s32 %r1, %r2, %r3;\nredux.sync.add.u32 %r1, %r2, -1;",
    )
    .unwrap_err();
    let expected = LoadError::Illegal {
        line: 13,
        instruction: "redux.sync.add.u32".into(),
        target: "sm_75".into(),
        reason: "needs sm_80".into(),
    };
    assert_eq!(error, expected);
    let register = load((7, 8), "sm_80", "sm_90a", "mov.u32 %r1, %clusterid.x;").unwrap_err();
    assert!(
        register.to_string().contains("%clusterid.x needs sm_90"),
        "{register}"
    );
    let cluster = ".version 7.8\n.target sm_80\n.address_size 64\n.entry k() .reqnctapercluster 2, 1, 1 { ret; }";
    let refused = Module::load(cluster, Target::named("sm_90a").unwrap());
    assert!(
        matches!(refused, Err(LoadError::Illegal { .. })),
        "{refused:?}"
    );
}

#[test]
fn code_runs_on_the_device_that_its_target_allows() {
    let runs = |target: &str, device: &str| match load(NEWEST, target, device, "") {
        Ok(_) => true,
        Err(LoadError::Unfit { code, device: on }) => {
            assert_eq!((&*code, &*on), (target, device));
            false
        }
        Err(e) => panic!("{e}"),
    };
    for device in TARGETS {
        let name = device.to_string();
        for code in [60, 75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121] {
            assert_eq!(
                runs(&format!("sm_{code}"), &name),
                code <= device.sm,
                "{code} {name}"
            );
        }
        for code in [90, 100, 103, 110, 120, 121] {
            assert_eq!(
                runs(&format!("sm_{code}a"), &name),
                code == device.sm,
                "{code}a {name}"
            );
        }
        assert_eq!(runs("sm_100f", &name), [100, 103].contains(&device.sm));
        assert_eq!(runs("sm_103f", &name), device.sm == 103);
        assert_eq!(runs("sm_120f", &name), [120, 121].contains(&device.sm));
        assert!(!runs("sm_85", &name));
        assert!(!runs("compute_75", &name));
    }
    let early = load((7, 8), "sm_90a", "sm_90a", "");
    assert!(early.is_err_and(|e| e.to_string().contains("needs PTX 8.0")));
}
