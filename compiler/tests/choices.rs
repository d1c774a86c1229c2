//! Listed values of schedules: which bodies there are, under which facts, and what each says that it costs.

use tesserine_compiler::{Session, diagnostics::render, ir::tile, target::Target};
use tesserine_set::{Env, Formula};

const TEXT: &str = "kernel k<A: int = 1, B: int = 64>(x: view<f32>[n], y: out view<f32>[n]) grid (i in ceil_div(n, A * B)) {
    y[i*A*B +: A*B] = x[i*A*B +: A*B];
}
kernel k for sm_90a where n % 4 == 0 grid (i in ceil_div(n, A * B)) { y[i*A*B +: A*B] = x[i*A*B +: A*B]; }
fn rounds(n, B, multiprocessors) = ceil_div(ceil_div(n, B), multiprocessors) * B;
schedule k {
    sm_80          { A: [2, 1], B: [128, 64, 32], cost: rounds(n, A * B, multiprocessors) }
    sm_90a         { A: [2, 1], B: [128, 64, 32], cost: rounds(n, A * B, multiprocessors) where A * B != 64 }
    specialize     { n % 4 == 0 }
}
schedule k for A = 1, B = 32 { sm_90a { warps: 1 } }";

fn bodies(name: &str, target: &str) -> Vec<tile::Kernel> {
    let mut session = Session::new();
    let module = session.load_text("program.tess", TEXT);
    let target = Target::parse(target).expect("a target");
    let made = module.and_then(|module| session.instantiate(module, name, target));
    let made = made.unwrap_or_else(|all| {
        let shown = all.iter().map(|d| render(d, session.sources(), false));
        panic!("{}", shown.collect::<String>())
    });
    for body in &made.bodies {
        assert_eq!(tile::verify(body), Ok(()), "{body}");
        let text = body.to_string();
        assert_eq!(tile::parse(&text).map(|b| b.to_string()), Ok(text));
    }
    made.bodies
}

/// Its value for 1000 elements on 4 multiprocessors.
fn value(formula: &Formula) -> i64 {
    let env = Env {
        dims: &[1000],
        scalars: &[],
        given: &[],
        multiprocessors: 4,
    };
    formula.eval(&env).expect("a value")
}

/// Of each body: elements a block, by the grid; its cost; how many facts it has.
fn seen(name: &str, target: &str) -> Vec<(i64, Option<i64>, usize)> {
    let bodies = bodies(name, target);
    let each = bodies.iter().map(|body| {
        let header = &body.header;
        let elements = (1..=1000).find(|b| {
            let axis = value(&header.axes[0].extent);
            (1000 + b - 1) / b == axis && [32, 64, 128, 256].contains(b)
        });
        (
            elements.expect("a power of two"),
            header.cost.as_ref().map(value),
            header.facts.len(),
        )
    });
    each.collect()
}

#[test]
fn each_admitted_combination_of_a_targets_own_body_is_one() {
    // Of 2 · 128, 2 · 64, 1 · 128 and 1 · 32, in rounds of 4 blocks. The general body has the first values.
    assert_eq!(
        seen("k", "sm_90a"),
        [
            (256, Some(256), 1),
            (128, Some(2 * 128), 1),
            (128, Some(2 * 128), 1),
            (32, Some(8 * 32), 1),
            (256, None, 0)
        ]
    );
}

#[test]
fn without_a_body_of_its_own_the_specialised_one_has_them() {
    let all = seen("k", "sm_80");
    let elements: Vec<i64> = all.iter().map(|b| b.0).collect();
    assert_eq!(elements, [256, 128, 64, 128, 64, 32, 256]);
    assert!(all[..6].iter().all(|b| b.1.is_some() && b.2 == 1));
    assert_eq!(all[6], (256, None, 0));
}

#[test]
fn what_a_name_says_is_not_chosen() {
    // No `where` speaks of it, and there is nothing to compare.
    assert_eq!(
        seen("k<A = 2, B = 32>", "sm_90a"),
        [(64, None, 1), (64, None, 0)]
    );
    let bodies = bodies("k<A = 1>", "sm_90a");
    let warps: Vec<Option<u32>> = bodies.iter().map(|b| b.header.schedule.warps).collect();
    // 1 · 64 is excluded; the schedule for 32 serves the body that has it.
    assert_eq!(warps, [None, Some(1), None]);
}

#[test]
fn a_target_without_lists_has_one_body_under_the_facts() {
    assert_eq!(seen("k", "sm_75"), [(64, None, 1), (64, None, 0)]);
}
