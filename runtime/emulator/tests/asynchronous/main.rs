//! Asynchronous copies, bulk copies, tensor copies and mbarriers, by kernels written by hand: what they compute, and what the emulator finds
//! wrong with those that break one rule.

mod bulk;
mod clusters;
mod kernel;
mod mbarriers;
mod tensors;
mod words;

use kernel::HEAD;
use tesserine_emulator::{Module, target::Target};

#[test]
fn what_is_not_known_or_too_new_is_refused_by_name() {
    let cases = [
        (
            "sm_90a",
            "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r1], [%rd3, {%r1, %r1, %r1}], [%r1], {%h1};",
        ),
        (
            "sm_90a",
            "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes [%r1], [%rd3, {%r1, %r1}], [%r1];",
        ),
        ("sm_90a", "cp.async.cg.shared.global [%r1], [%rd0], 8;"),
        (
            "sm_90a",
            "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f16 [%rd0], [%r1], 16;",
        ),
        ("sm_90a", "mbarrier.arrive.sideways.b64 %rd4, [%r1];"),
        ("sm_80", "mbarrier.try_wait.shared.b64 %p1, [%r1], %rd4;"),
        ("sm_80", "cp.async.bulk.commit_group;"),
        ("sm_75", "cp.async.commit_group;"),
    ];
    for (target, instruction) in cases {
        let text = format!("{HEAD}{instruction}\n  ret;\n}}\n").replace("sm_90a", target);
        let device = Target::named(target).expect("a target");
        let error = Module::load(&text, device)
            .expect_err(instruction)
            .to_string();
        let mnemonic = instruction
            .split_whitespace()
            .next()
            .expect("one")
            .trim_end_matches(';');
        assert!(error.contains(mnemonic), "{error}");
    }
}
