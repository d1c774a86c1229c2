//! What a comparison found, snippet by snippet and family by family.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    kind::Outcome,
    recorded::{Record, key},
    snippet::{Cases, Snippet},
};

/// The comparison of a snippet's results from two devices, or from a device and a reference.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub family: String,
    pub snippet: String,
    /// The `.target` that it was written for.
    pub target: String,
    /// Registers compared.
    pub cases: usize,
    pub equal_bits: usize,
    /// Other bits, within the bound that the ISA gives.
    pub within_bound: usize,
    pub mismatches: usize,
    /// The first mismatches.
    pub first: Vec<Mismatch>,
    /// Why it could not be compared: what went wrong on which side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A result that differs.
#[derive(Clone, Debug, Serialize)]
pub struct Mismatch {
    pub output: usize,
    pub thread: usize,
    /// Operands of that thread, in hex.
    pub operands: Vec<String>,
    pub left: String,
    pub right: String,
}

/// How many mismatches are written out.
const SHOWN: usize = 6;

impl Comparison {
    pub fn new(snippet: &Snippet, target: &str) -> Comparison {
        Comparison {
            family: snippet.family.into(),
            snippet: snippet.name.clone(),
            target: target.into(),
            cases: 0,
            equal_bits: 0,
            within_bound: 0,
            mismatches: 0,
            first: Vec::new(),
            error: None,
        }
    }

    /// A snippet that one side could not run.
    pub fn failed(snippet: &Snippet, target: &str, error: String) -> Comparison {
        Comparison {
            error: Some(error),
            ..Comparison::new(snippet, target)
        }
    }

    /// Compares results, output by output. A reference may know the first outputs only.
    pub fn of(
        snippet: &Snippet,
        target: &str,
        cases: &Cases,
        left: &[Vec<u64>],
        right: &[Vec<u64>],
    ) -> Comparison {
        let mut all = Comparison::new(snippet, target);
        let slack = snippet.slack.as_ref().map(|of| of(&cases.inputs));
        for (output, how) in snippet.compared().into_iter().enumerate() {
            let (Some(left), Some(right)) = (left.get(output), right.get(output)) else {
                continue;
            };
            if left.len() != right.len() {
                all.error = Some(format!(
                    "output {output} has {} and {} values",
                    left.len(),
                    right.len()
                ));
            }
            for (thread, (&a, &b)) in left.iter().zip(right).enumerate() {
                all.cases += 1;
                match snippet
                    .bound(output, thread, how, slack.as_ref())
                    .compare(how.of, a, b)
                {
                    Outcome::Equal => all.equal_bits += 1,
                    Outcome::Within => all.within_bound += 1,
                    Outcome::Different => {
                        all.mismatches += 1;
                        if all.first.len() < SHOWN {
                            let hex = |v: &Vec<u64>| v.get(thread).map(|v| format!("{v:#x}"));
                            all.first.push(Mismatch {
                                output,
                                thread,
                                operands: cases.inputs.iter().filter_map(hex).take(12).collect(),
                                left: format!("{a:#x}"),
                                right: format!("{b:#x}"),
                            });
                        }
                    }
                }
            }
        }
        all
    }

    /// Compares a device's results with those that were recorded: outputs count, not registers.
    pub fn with_record(
        snippet: &Snippet,
        cases: &Cases,
        record: &Record,
        results: &[Vec<u64>],
    ) -> Comparison {
        let mut all = Comparison::new(snippet, &record.target);
        if record.key != key(snippet, cases) {
            all.error =
                Some("the snippet or its operands have changed since it was recorded".into());
            return all;
        }
        all.cases = record.outputs.len();
        match record.check(snippet, cases, results) {
            Ok(()) => all.equal_bits = all.cases,
            Err(difference) => {
                all.mismatches = all.cases;
                all.error = Some(format!("not as recorded: {difference}"));
            }
        }
        all
    }

    pub fn is_good(&self) -> bool {
        self.error.is_none() && self.mismatches == 0
    }
}

/// One line of the table of families.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Total {
    pub snippets: usize,
    pub good: usize,
    pub failed: usize,
    pub cases: usize,
    pub equal_bits: usize,
    pub within_bound: usize,
    pub mismatches: usize,
}

/// Sums by family.
pub fn totals(all: &[Comparison]) -> BTreeMap<String, Total> {
    let mut totals: BTreeMap<String, Total> = BTreeMap::new();
    for one in all {
        let total = totals.entry(one.family.clone()).or_default();
        total.snippets += 1;
        total.good += one.is_good() as usize;
        total.failed += one.error.is_some() as usize;
        total.cases += one.cases;
        total.equal_bits += one.equal_bits;
        total.within_bound += one.within_bound;
        total.mismatches += one.mismatches;
    }
    totals
}

/// The table of families as text.
pub fn table(all: &[Comparison]) -> String {
    let mut text = format!(
        "{:<14} {:>8} {:>6} {:>6} {:>9} {:>9} {:>8} {:>10}\n",
        "family", "snippets", "good", "failed", "cases", "equal", "within", "mismatches"
    );
    for (family, t) in totals(all) {
        text += &format!(
            "{family:<14} {:>8} {:>6} {:>6} {:>9} {:>9} {:>8} {:>10}\n",
            t.snippets, t.good, t.failed, t.cases, t.equal_bits, t.within_bound, t.mismatches
        );
    }
    text
}
