//! Passes on roles: that they do what they are for, and that roles mean the same behind them.

use std::{
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
};

use tesserine_compiler::{
    Session,
    diagnostics::render,
    interp::{self, Arg, Args, InterpError},
    ir::tile,
    passes,
    target::Target,
    testing::{Device, Launch, Options, Outcome, What},
};

fn target() -> Target {
    Target::parse("sm_90a").expect("a target")
}

/// An instance's first body after a pass, as text.
fn after(file: &str, instance: &str, pass: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    let mut session = Session::new();
    let made = session
        .load(&path, None)
        .and_then(|module| session.instantiate(module, instance, target()))
        .unwrap_or_else(|list| {
            let texts = list.iter().map(|d| render(d, session.sources(), false));
            panic!("{}", texts.collect::<String>())
        });
    let mut text = None;
    passes::lower_with(&made.bodies[0], &target(), &mut |name, kernel| {
        if name == pass {
            text = Some(kernel.to_string());
        }
    })
    .unwrap_or_else(|e| panic!("{instance}: {e:?}"));
    text.unwrap_or_else(|| panic!("no pass {pass}"))
}

const ATTENTION: &str = "tests/samples/attention_prefill.tess";
const PREFILL: &str = "prefill<bf16, DQ = 128, DV = 128, G = 4>";

/// The text of the role with that name.
fn role<'a>(text: &'a str, name: &str) -> &'a str {
    let head = format!("role \"{name}\"");
    let at = text.find(&head).unwrap_or_else(|| panic!("no role {name}"));
    let end = text[at + 1..]
        .find("\nrole ")
        .map_or(text.len(), |e| at + 1 + e);
    &text[at..end]
}

/// A loop that chooses by the sign of the scale is two, neither of which chooses.
#[test]
fn a_choice_that_no_iteration_changes_stands_around_the_loop() {
    let [before, behind] = ["masks", "unswitch"].map(|pass| after(ATTENTION, PREFILL, pass));
    let loops = |text: &str| text.matches(" = for ").count();
    // One more in each of the two replicas.
    assert_eq!(loops(&behind), loops(&before) + 2, "{behind}");
    let smallest = |text: &str| text.matches("reduce min axis 1").count();
    assert_eq!(smallest(&behind), smallest(&before));
    for (at, _) in behind.match_indices("reduce min axis 1") {
        // Between a loop's head and its minimum there is no other branch.
        let head = behind[..at].rfind(" = for ").expect("a loop");
        assert!(
            !behind[head..at].contains(" = if "),
            "{}",
            &behind[head..at]
        );
    }
}

/// The sums of rows are carried in parts.
#[test]
fn sums_of_rows_are_added_up_behind_the_loop() {
    let [before, behind] = ["unswitch", "sums_apart"].map(|pass| after(ATTENTION, PREFILL, pass));
    let carried = |text: &str| {
        let heads = text.lines().filter(|l| l.contains(" = for "));
        heads.filter(|l| l.contains("tile<f32>[64, 4]")).count()
    };
    assert_eq!(carried(&before), 0);
    // The loops at the edges and both in the middle, of each replica.
    assert_eq!(carried(&behind), 8, "{behind}");
}

/// The first keys are put before the queries, whose one slot has room last.
#[test]
fn what_has_room_first_is_put_first() {
    let puts = |text: &str| -> Vec<String> {
        let lines = text.lines().map(str::trim);
        let puts = lines.filter(|l| l.starts_with("put "));
        let channel = |l: &str| l.split(' ').nth(1).unwrap_or("").to_owned();
        puts.map(channel).collect()
    };
    let [before, behind] =
        ["sums_apart", "fill_early"].map(|pass| puts(&after(ATTENTION, PREFILL, pass)));
    let [q0, q1, k, v] = &before[..] else {
        panic!("{before:?}");
    };
    let wanted = [k, q0, q1, v, k, v].map(String::clone);
    assert_eq!(behind, wanted);
}

/// Between the two waits of a block, the slot of its keys is given back behind the maxima of its scores.
#[test]
fn a_release_between_waits_is_held_behind_the_maxima() {
    let text = after(ATTENTION, PREFILL, "hold_release");
    let math = role(&text, "math[0]");
    let held: Vec<(usize, &str)> = math
        .match_indices("arrive_empty channel4 ")
        .map(|(at, _)| (at, math[at..].lines().next().unwrap_or("")))
        .filter(|(_, line)| line.contains(','))
        .collect();
    assert_eq!(held.len(), 4, "{math}");
    for (at, line) in held {
        let after = line.rsplit(' ').next().expect("an operand");
        let made = math[..at].lines().last().unwrap_or("");
        let made = if made.trim().is_empty() {
            math[..at].lines().rev().nth(1).unwrap_or("")
        } else {
            made
        };
        assert!(
            made.trim_start()
                .starts_with(&format!("{after} = reduce m")),
            "{line} behind {made}"
        );
    }
}

/// A mask that all of a block's elements pass is not looked at one by one.
#[test]
fn masks_are_decided_for_whole_tiles() {
    let [before, behind] = ["simplify", "masks"].map(|pass| after(ATTENTION, PREFILL, pass));
    let masks = |text: &str| text.matches("= select").count();
    assert!(masks(&before) > 0);
    // Each `select` of a mask stands in an arm: the line before it opens one, or makes what it compares.
    for (at, line) in behind.match_indices(" = select") {
        let rest = &behind[at..];
        if !rest.lines().next().unwrap_or(line).contains("[64, 128]") {
            continue;
        }
        let next = rest.lines().nth(1).unwrap_or("");
        assert!(next.trim().starts_with("yield"), "{next}");
    }
}

/// The interpreter, of what the passes on tile IR make of a kernel.
struct Passed<'a> {
    ran: &'a AtomicUsize,
}

impl Device for Passed<'_> {
    fn launch(&self, launch: &Launch<'_>, args: &mut Args) -> Result<(), String> {
        let What::Kernel(instance) = launch.what else {
            return Err("an op".into());
        };
        for body in &instance.bodies {
            let mut made = None;
            let lowered = passes::lower_with(body, &target(), &mut |name, kernel| {
                if name == "unroll_pending" {
                    made = Some(kernel.to_string());
                }
            });
            lowered.map_err(|e| format!("{e:?}"))?;
            let text = made.ok_or("no such pass")?;
            let kernel = tile::parse(&text).map_err(|e| format!("{e:?}"))?;
            let mut own = args.clone();
            match interp::run(&kernel, &mut own) {
                Err(InterpError::Requirement(_)) => continue,
                Err(e) => return Err(e.to_string()),
                Ok(_) => {}
            }
            self.ran.fetch_add(1, Ordering::Relaxed);
            let mut meant = args.clone();
            interp::launch(instance, &mut meant).map_err(|e| e.to_string())?;
            near(&own, &meant)?;
            *args = own;
            return Ok(());
        }
        Err("no body serves".into())
    }
}

/// Sums are taken in another order: results differ by little, and integers not at all.
fn near(own: &Args, meant: &Args) -> Result<(), String> {
    for (name, arg) in meant.iter() {
        let (Some(Arg::Tensor(a)), Arg::Tensor(b)) = (own.get(name), arg) else {
            continue;
        };
        for (x, y) in a.to_f64().iter().zip(b.to_f64()) {
            let close =
                x == &y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= 2e-3 + 1e-2 * y.abs();
            if !close {
                return Err(format!("{name}: {x} is not {y}"));
            }
        }
    }
    Ok(())
}

fn means_the_same(file: &str, wanted: &str) {
    let mut session = Session::new();
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests")
        .join(file);
    let module = session.load(&path, None);
    let module = module.unwrap_or_else(|e| panic!("{file}: {e:?}"));
    let ran = AtomicUsize::new(0);
    let device = Passed { ran: &ran };
    let options = Options {
        target: target(),
        device: Some(&device),
    };
    for test in session.tests(module) {
        if !test.name.contains(wanted) {
            continue;
        }
        if let Outcome::Failed(list) = session.run_test(module, &test, &options) {
            let texts = list.iter().map(|d| render(d, session.sources(), false));
            panic!("{}: {}", test.name, texts.collect::<String>());
        }
    }
    assert!(
        ran.load(Ordering::Relaxed) > 0,
        "no test {wanted} in {file}"
    );
}

#[test]
fn attention_means_the_same_behind_the_passes() {
    means_the_same("samples.tess", "attention");
    means_the_same("samples.tess", "latent");
}

#[test]
fn masks_mean_the_same_behind_the_passes() {
    means_the_same("conformance/tiles/masks_sm90.tess", "");
}

#[test]
fn products_mean_the_same_behind_the_passes() {
    means_the_same("samples.tess", "gemm");
    means_the_same("samples.tess", "groups");
}
