//! The emulator against the snippets' own references, and against what hardware gave.

use std::{fs, path::Path};

use tesserine::Device;
use tesserine_differential::{
    device::{refused, run_all},
    families,
    recorded::Record,
    report::Comparison,
    snippet::{Snippet, Target},
};

const SEED: u64 = 1;

/// What the emulator does not know yet, and refuses.
const REFUSED: [&str; 3] = [
    "atom.global.exch.b128",
    "atom.global.cas.b128",
    "mov.b32, (7 > 3) ? 21 : 4",
];

/// Runs snippets on the emulated device of a target, those of a module together, and compares each.
fn check(
    target: Target,
    snippets: &[&Snippet],
    compare: impl Fn(&Snippet, &[Vec<u64>]) -> Option<Comparison>,
) -> Vec<String> {
    let device = Device::named(&format!("emulator:{target}")).expect("an emulated device");
    let mut wrong = Vec::new();
    for chunk in snippets.chunks(16) {
        let results = run_all(&device, chunk, target, SEED);
        for (snippet, result) in chunk.iter().zip(results) {
            match result {
                Err(error) if REFUSED.contains(&snippet.name.as_str()) => {
                    let refused =
                        error.contains("is not implemented") || error.contains("has no place");
                    assert!(refused, "{error}");
                }
                Err(error) => wrong.push(format!("{}: {error}", snippet.name)),
                Ok(values) => {
                    if let Some(found) = compare(snippet, &values).filter(|c| !c.is_good()) {
                        wrong.push(format!("{found:?}"));
                    }
                }
            }
        }
    }
    wrong
}

fn with_references(family: fn(&str) -> bool, target: &str) {
    let target = Target::named(target).expect("a target");
    let all: Vec<Snippet> = families::all()
        .into_iter()
        .filter(|s| s.reference.is_some() && family(s.family) && target.has(s.since))
        // Globals of one name would meet in a module.
        .filter(|s| s.globals.is_empty())
        .map(Snippet::smaller)
        .collect();
    assert!(all.len() > 10, "{} snippets", all.len());
    let chosen: Vec<&Snippet> = all.iter().collect();
    let wrong = check(target, &chosen, |snippet, values| {
        let cases = snippet.cases(SEED);
        let reference = snippet.reference.as_ref()?;
        Some(Comparison::of(
            snippet,
            "",
            &cases,
            values,
            &reference(&cases.inputs),
        ))
    });
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn integers_and_logic() {
    with_references(|f| ["integer", "extended", "logic"].contains(&f), "sm_90a");
}

#[test]
fn comparisons() {
    with_references(|f| f == "compare", "sm_90a");
}

#[test]
fn floats() {
    with_references(|f| ["float", "half", "approximate"].contains(&f), "sm_90a");
}

#[test]
fn mixed_floats_of_blackwell() {
    with_references(|f| f == "mixed", "sm_100a");
}

#[test]
fn conversions() {
    with_references(|f| f == "convert", "sm_90a");
}

#[test]
fn data_movement() {
    with_references(|f| f == "memory", "sm_90a");
}

#[test]
fn warps_and_blocks() {
    with_references(
        |f| {
            [
                "warp",
                "divergence",
                "barrier",
                "mbarrier",
                "misc",
                "cluster",
            ]
            .contains(&f)
        },
        "sm_90a",
    );
}

#[test]
fn atomics_and_copies() {
    with_references(|f| ["atomic", "copy", "tensor"].contains(&f), "sm_90a");
}

#[test]
fn matrices() {
    with_references(|f| ["matrix", "mma"].contains(&f), "sm_90a");
}

#[test]
fn older_targets() {
    with_references(
        |f| ["integer", "logic", "warp", "divergence", "matrix"].contains(&f),
        "sm_75",
    );
}

/// `ptxas` takes all snippets for all targets that have them.
#[test]
fn targets_take_what_they_have() {
    let all = families::all();
    for name in ["sm_75", "sm_80", "sm_89", "sm_100a", "sm_120a"] {
        let target = Target::named(name).expect("a target");
        let device = Device::named(&format!("emulator:{name}")).expect("an emulated device");
        let chosen: Vec<&Snippet> = all
            .iter()
            .filter(|s| target.has(s.since) && s.globals.is_empty())
            .filter(|s| !REFUSED.contains(&s.name.as_str()))
            .collect();
        let wrong: Vec<(String, String)> = chosen
            .chunks(16)
            .flat_map(|chunk| refused(&device, chunk, target))
            .collect();
        assert!(wrong.is_empty(), "{name} refuses {wrong:#?}");
    }
}

/// The results of hardware that were kept, where a debug build is quick enough: every eighth snippet. All of them are compared by
/// `differential --against recorded:FILE`.
#[test]
fn recorded_results() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("recorded");
    let all = families::all();
    for file in fs::read_dir(folder).into_iter().flatten().flatten() {
        let text = fs::read_to_string(file.path()).expect("a file of records");
        let records = Record::read(&text).expect("records");
        assert!(!records.is_empty());
        for target in Target::all() {
            let pairs: Vec<(&Snippet, &Record)> = records
                .iter()
                .filter(|r| r.target == target.to_string())
                .step_by(8)
                .map(|r| {
                    let found = all.iter().find(|s| s.name == r.name);
                    (
                        found.unwrap_or_else(|| panic!("no snippet is called {}", r.name)),
                        r,
                    )
                })
                .filter(|(s, _)| s.globals.is_empty())
                .collect();
            let chosen: Vec<&Snippet> = pairs.iter().map(|(s, _)| *s).collect();
            let wrong = check(target, &chosen, |snippet, values| {
                let (_, record) = pairs.iter().find(|(s, _)| s.name == snippet.name)?;
                Some(Comparison::with_record(
                    snippet,
                    &snippet.cases(SEED),
                    record,
                    values,
                ))
            });
            assert!(
                wrong.is_empty(),
                "{} differ:\n{}",
                wrong.len(),
                wrong.join("\n")
            );
        }
    }
}
