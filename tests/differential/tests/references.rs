//! The snippets themselves: their names, their operands, and what the emulator makes of them.

use std::collections::BTreeSet;

use tesserine_differential::{
    families,
    kind::{Bound, F32, Outcome},
    recorded::{Kept, Record},
    snippet::Target,
};

const SEED: u64 = 1;

#[test]
fn names_are_unique() {
    let mut names = BTreeSet::new();
    for snippet in families::all() {
        assert!(
            names.insert(snippet.name.clone()),
            "{} stands twice",
            snippet.name
        );
        assert!(
            Target::first(snippet.since).is_some(),
            "no target has {}",
            snippet.name
        );
    }
}

#[test]
fn operands_are_the_same_each_time_and_hold_special_values() {
    let all = families::all();
    let find = |name: &str| all.iter().find(|s| s.name == name).expect(name);
    let add = find("add.rn.f32");
    let cases = add.cases(SEED);
    assert_eq!(cases, add.cases(SEED));
    assert_ne!(cases, add.cases(SEED + 1));
    // Infinity plus each of the special values, and a NaN.
    let pairs: BTreeSet<(u64, u64)> = cases.inputs[0]
        .iter()
        .copied()
        .zip(cases.inputs[1].iter().copied())
        .collect();
    assert!(pairs.contains(&(0x7f80_0000, 0xff80_0000)));
    assert!(
        cases.inputs[0]
            .iter()
            .any(|v| f32::from_bits(*v as u32).is_nan())
    );
}

#[test]
fn references_give_as_many_results_as_the_snippets_say() {
    for snippet in families::all() {
        let Some(reference) = &snippet.reference else {
            continue;
        };
        let results = reference(&snippet.cases(SEED).inputs);
        assert!(
            results.len() <= snippet.compared().len(),
            "{}",
            snippet.name
        );
        let extra = snippet.extra.map(|(_, count, _)| count);
        let lengths = vec![snippet.threads(); snippet.outputs.len()];
        let lengths = lengths.into_iter().chain(extra);
        for ((result, output), length) in results.iter().zip(snippet.compared()).zip(lengths) {
            assert_eq!(result.len(), length, "{}", snippet.name);
            let outside = result.iter().find(|v| **v & !output.of.mask() != 0);
            assert_eq!(outside, None, "{} is wider than its register", snippet.name);
        }
    }
}

#[test]
fn bounds_tell_near_from_far() {
    let bits = |v: f32| v.to_bits() as u64;
    let within = Bound::Within {
        abs: 0.0,
        rel: 1e-6,
    };
    assert_eq!(within.compare(F32, bits(1.0), bits(1.0)), Outcome::Equal);
    assert_eq!(
        within.compare(F32, bits(1.0), bits(1.0000005)),
        Outcome::Within
    );
    assert_eq!(
        within.compare(F32, bits(1.0), bits(1.00001)),
        Outcome::Different
    );
    assert_eq!(
        within.compare(F32, bits(f32::INFINITY), bits(f32::MAX)),
        Outcome::Different
    );
    assert_eq!(
        Bound::Numbers.compare(F32, 0x7fff_ffff, 0x7fc0_0000),
        Outcome::Within
    );
    assert_eq!(
        Bound::Bits.compare(F32, 0x7fff_ffff, 0x7fc0_0000),
        Outcome::Different
    );
    assert_eq!(
        Bound::Numbers.compare(F32, bits(0.0), bits(-0.0)),
        Outcome::Different
    );
}

#[test]
fn records_survive_their_file() {
    let all = families::all();
    let exact = all.iter().find(|s| s.name == "add.s32").expect("add.s32");
    let near = all
        .iter()
        .find(|s| s.name == "ex2.approx.f32")
        .expect("ex2");
    for snippet in [exact, near] {
        let cases = snippet.cases(SEED);
        let results = vec![cases.inputs[0].clone()];
        let record = Record::new(snippet, "sm_80", &cases, &results);
        let read = Record::read(&format!("# head\n{}\n", record.line())).expect("a record");
        assert_eq!(read, std::slice::from_ref(&record));
        assert_eq!(record.check(snippet, &cases, &results), Ok(()));
        let mut other = results.clone();
        other[0][0] ^= 0x4000_0000;
        assert!(
            record.check(snippet, &cases, &other).is_err(),
            "{}",
            snippet.name
        );
        assert_eq!(
            matches!(record.outputs[0], Kept::Hash(_)),
            snippet.name == "add.s32"
        );
    }
    assert!(Record::read("add.s32 sm_80").is_err());
    assert!(Record::read("\"add.s32\" sm_80 12 x").is_err());
}
