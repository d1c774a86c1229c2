//! Roles in the interpreter: in any order, with rings as deep as they are.

use std::path::Path;

use tesserine_compiler::{
    Module, Session,
    diagnostics::render,
    interp::{self, Args, Limits},
    target::Target,
    testing::{Device, Launch, Options, Outcome, What},
};

/// The interpreter once more, with the roles of each block in many orders.
struct Orders(u64);

impl Device for Orders {
    fn launch(&self, launch: &Launch<'_>, args: &mut Args) -> Result<(), String> {
        let What::Kernel(instance) = launch.what else {
            return Err("an op".into());
        };
        let before = args.clone();
        for seed in 0..=self.0 {
            let mut own = before.clone();
            let limits = Limits {
                seed,
                ..Limits::default()
            };
            interp::launch_within(instance, &mut own, limits).map_err(|e| e.to_string())?;
            if seed == 0 {
                *args = own;
            } else if own != *args {
                return Err(format!("with seed {seed} it gives something else"));
            }
        }
        Ok(())
    }
}

/// Runs the tests of a module whose names contain `wanted`; what failed, as it is printed.
fn run(session: &Session, module: Module, wanted: &str, seeds: u64) -> (usize, String) {
    let orders = Orders(seeds);
    let options = Options {
        target: Target::parse("sm_90a").expect("a target"),
        device: Some(&orders),
    };
    let (mut ran, mut failed) = (0, String::new());
    for test in session.tests(module) {
        if !test.name.contains(wanted) {
            continue;
        }
        if let Outcome::Failed(list) = session.run_test(module, &test, &options) {
            let texts = list.iter().map(|d| render(d, session.sources(), false));
            failed.extend(texts);
        }
        ran += 1;
    }
    (ran, failed)
}

fn passes_in_any_order(file: &str, wanted: &str, seeds: u64) {
    let mut session = Session::new();
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests")
        .join(file);
    let module = session.load(&path, None);
    let module = module.unwrap_or_else(|e| panic!("{file}: {e:?}"));
    let (ran, failed) = run(&session, module, wanted, seeds);
    assert!(ran > 0, "no test {wanted} in {file}");
    assert!(failed.is_empty(), "{failed}");
}

#[test]
fn products_do_not_depend_on_the_order() {
    passes_in_any_order("samples.tess", "gemm", 2);
    passes_in_any_order("samples.tess", "fp8", 4);
}

#[test]
fn groups_and_narrow_weights_do_not_depend_on_the_order() {
    passes_in_any_order("samples.tess", "groups", 4);
    passes_in_any_order("samples.tess", "weights", 4);
}

/// Replicas that exchange rows both ways, and slots that are handed on.
#[test]
fn an_exchange_does_not_depend_on_the_order() {
    passes_in_any_order("samples.tess", "latent", 3);
}

#[test]
fn attention_does_not_depend_on_the_order() {
    passes_in_any_order("samples/attention_prefill.tess", "two_requests", 4);
}

#[test]
fn conformance_does_not_depend_on_the_order() {
    passes_in_any_order("conformance/tiles/roles.tess", "", 3);
}

/// What the test `t` of a kernel with these channels and roles gives.
fn outcome(roles: &str) -> String {
    let text = format!(
        "kernel k(x: view<f32>[n], y: out view<f32>[n], z: out view<f32>[n]) for sm_90a grid (i in ceil_div(n, 64)) {{
            {roles}
        }}
        test t {{
            let x = randn(f32, [100], seed = 1);
            let y = empty(f32, [100]);
            let z = empty(f32, [100]);
            launch k(x, y, z);
            expect(y, equal = x);
            expect(z, equal = x);
        }}"
    );
    let mut session = Session::new();
    let module = session.load_text("k.tess", &text).unwrap_or_else(|list| {
        let all: String = list
            .iter()
            .map(|d| render(d, session.sources(), false))
            .collect();
        panic!("{all}")
    });
    run(&session, module, "t", 10).1
}

/// Two replicas that wait for a slot of the other before they put theirs never go on; the other way about they do.
#[test]
fn who_waits_for_whom_is_said() {
    let exchange = |first: &str, second: &str| {
        outcome(&format!(
            "channel c[2]: tile<f32>[64] depth 1;
            roles {{
                swap: 1 warpgroup, replicate r in 2 {{
                    let own = x[i*64 +: 64];
                    {first}
                    {second}
                    if const r == 0 {{ y[i*64 +: 64] = other; }} else {{ z[i*64 +: 64] = other; }}
                    release c[1 - r];
                }}
            }}"
        ))
    };
    let (put, get) = ("put c[r] { own }", "let other = get c[1 - r];");
    assert_eq!(exchange(put, get), "");
    let stuck = exchange(get, put);
    for word in [
        "E0721",
        "`swap[0]` waits for slot 1 of `c[1]`",
        "`swap[1]` waits for slot 1 of `c[0]`",
    ] {
        assert!(stuck.contains(word), "no {word}: {stuck}");
    }
}

/// A role that holds two slots needs a ring of two.
#[test]
fn rings_have_their_depth() {
    let deep = |depth: u32| {
        outcome(&format!(
            "channel c: tile<f32>[64] depth {depth};
            roles {{
                load: 1 warpgroup {{ put c {{ x[i*64 +: 64] }} put c {{ x[i*64 +: 64] }} }}
                store: 1 warpgroup {{
                    let a = get c;
                    let b = get c;
                    y[i*64 +: 64] = a;
                    z[i*64 +: 64] = b;
                    release c;
                    release c;
                }}
            }}"
        ))
    };
    assert_eq!(deep(2), "");
    let stuck = deep(1);
    assert!(
        stuck.contains("`load` waits for a free slot of `c`"),
        "{stuck}"
    );
    assert!(stuck.contains("`store` waits for slot 2 of `c`"), "{stuck}");
}

/// A slot that nobody reads, or that one of its readers keeps, is left at the end.
#[test]
fn no_slot_is_left() {
    let kept = outcome(
        "channel c: tile<f32>[64] depth 2;
        roles {
            load: 1 warpgroup { put c { x[i*64 +: 64] } }
            one: 1 warpgroup { y[i*64 +: 64] = get c; release c; }
            other: 1 warpgroup { z[i*64 +: 64] = get c; }
        }",
    );
    assert!(
        kept.contains("`other` still holds a slot of `c` when it ends"),
        "{kept}"
    );
}

/// Replicas take turns, the first of them first; one that comes less often leaves the others waiting.
#[test]
fn turns_are_taken_one_after_the_other() {
    let turns = |trips: &str| {
        outcome(&format!(
            "channel c[2]: tile<f32>[64] depth 1;
            roles {{
                load: 1 warpgroup {{ for const r in 0..2 {{ put c[r] {{ x[i*64 +: 64] }} }} }}
                store: 1 warpgroup, replicate r in 2 {{
                    let t = get c[r];
                    for p in 0..{trips} {{
                        let u = pingpong if true {{ t }};
                        if const r == 0 {{ y[i*64 +: 64] = u; }} else {{ z[i*64 +: 64] = u; }}
                    }}
                    release c[r];
                }}
            }}"
        ))
    };
    assert_eq!(turns("3"), "");
    let stuck = turns("1 + 2*r");
    assert!(
        stuck.contains("`store[0]` comes to this `pingpong` once, and `store[1]` 3 times"),
        "{stuck}"
    );
}
