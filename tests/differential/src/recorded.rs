//! Results of hardware, kept so that they can be compared with where there is none.
//!
//! A file is text. Lines that begin with `#` say where the results come from. Every other line is a snippet: its name in quotes, the target that
//! it was written for, and for each output either `h` and 16 hex digits, a hash of all results where the ISA fixes them, or `s` and a sample:
//! up to [`SAMPLE`] results at even distances, in hex, where it only bounds them. A snippet's operands are drawn from its name and the seed
//! that the file names, so the results stand for those operands only: a changed snippet has to be recorded anew.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::{
    kind::{Bound, Outcome},
    snippet::{Cases, Snippet, words},
};

/// How many results of an output are kept where only a bound is known.
pub const SAMPLE: usize = 12;

/// A snippet's line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub name: String,
    pub target: String,
    pub outputs: Vec<Kept>,
    /// Of kernel and operands: what the results belong to.
    pub key: u64,
}

/// What is kept of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    Hash(u64),
    Sample(Vec<u64>),
}

/// A line that is none.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct RecordError {
    pub line: usize,
    pub message: &'static str,
}

fn short(hash: Sha256) -> u64 {
    let bytes = hash.finalize();
    bytes.iter().take(8).fold(0, |all, b| all << 8 | *b as u64)
}

/// A hash of what a snippet executes on what.
pub fn key(snippet: &Snippet, cases: &Cases) -> u64 {
    let mut hash = Sha256::new();
    hash.update(snippet.entry("k"));
    hash.update(snippet.input_bytes(cases));
    hash.update(snippet.output_bytes(cases));
    if let Some(tensor) = &snippet.tensor {
        hash.update(format!("{tensor:?}"));
        hash.update(words(&cases.tensor));
    }
    short(hash)
}

impl Record {
    pub fn new(snippet: &Snippet, target: &str, cases: &Cases, results: &[Vec<u64>]) -> Record {
        let keep = |(how, values): (crate::snippet::Output, &Vec<u64>)| match how.bound {
            Bound::Within { .. } => Kept::Sample(sampled(values).map(|(_, v)| v).collect()),
            bound => {
                let mut hash = Sha256::new();
                for value in values {
                    hash.update(bound.canonical(how.of, *value).to_le_bytes());
                }
                Kept::Hash(short(hash))
            }
        };
        Record {
            name: snippet.name.clone(),
            target: target.into(),
            outputs: snippet
                .compared()
                .into_iter()
                .zip(results)
                .map(keep)
                .collect(),
            key: key(snippet, cases),
        }
    }

    /// Whether a device's results are those that were recorded; else, what differs.
    pub fn check(
        &self,
        snippet: &Snippet,
        cases: &Cases,
        results: &[Vec<u64>],
    ) -> Result<(), String> {
        let slack = snippet.slack.as_ref().map(|of| of(&cases.inputs));
        for (index, (how, (values, kept))) in snippet
            .compared()
            .into_iter()
            .zip(results.iter().zip(&self.outputs))
            .enumerate()
        {
            match kept {
                Kept::Hash(hash) => {
                    let mut own = Sha256::new();
                    for value in values {
                        own.update(how.bound.canonical(how.of, *value).to_le_bytes());
                    }
                    if short(own) != *hash {
                        return Err(format!("output {index} has other bits"));
                    }
                }
                Kept::Sample(sample) => {
                    let differs = |((thread, a), b): ((usize, u64), &u64)| {
                        let bound = snippet.bound(index, thread, how, slack.as_ref());
                        bound.compare(how.of, a, *b) == Outcome::Different
                    };
                    if let Some(at) = sampled(values).zip(sample).position(differs) {
                        return Err(format!("sample {at} of output {index} is out of bounds"));
                    }
                }
            }
        }
        match results.len() == self.outputs.len() {
            true => Ok(()),
            false => Err("another number of outputs".into()),
        }
    }

    pub fn line(&self) -> String {
        let mut text = format!("\"{}\" {} {:016x}", self.name, self.target, self.key);
        for output in &self.outputs {
            // Writing to a string cannot fail.
            let _ = match output {
                Kept::Hash(hash) => write!(text, " h{hash:016x}"),
                Kept::Sample(values) => {
                    let hex: Vec<String> = values.iter().map(|v| format!("{v:x}")).collect();
                    write!(text, " s{}", hex.join(","))
                }
            };
        }
        text
    }

    /// Reads a file's lines.
    pub fn read(text: &str) -> Result<Vec<Record>, RecordError> {
        let lines = text.lines().enumerate();
        let lines = lines.filter(|(_, l)| !l.starts_with('#') && !l.trim().is_empty());
        lines
            .map(|(index, line)| {
                let fault = |message| RecordError {
                    line: index + 1,
                    message,
                };
                let rest = line.strip_prefix('"').ok_or(fault("no name in quotes"))?;
                let (name, rest) = rest.split_once("\" ").ok_or(fault("no end of the name"))?;
                let mut parts = rest.split(' ');
                let target = parts.next().ok_or(fault("no target"))?.to_owned();
                let hex = |text: &str| u64::from_str_radix(text, 16);
                let key = parts
                    .next()
                    .and_then(|p| hex(p).ok())
                    .ok_or(fault("no key"))?;
                let output = |part: &str| {
                    let (kind, rest) = part.split_at_checked(1).ok_or(fault("an empty output"))?;
                    match kind {
                        "h" => hex(rest).map(Kept::Hash).map_err(|_| fault("no hash")),
                        "s" => {
                            let values: Result<Vec<u64>, _> = rest.split(',').map(hex).collect();
                            values.map(Kept::Sample).map_err(|_| fault("no sample"))
                        }
                        _ => Err(fault("an output of unknown kind")),
                    }
                };
                Ok(Record {
                    name: name.to_owned(),
                    target,
                    outputs: parts.map(output).collect::<Result<_, _>>()?,
                    key,
                })
            })
            .collect()
    }
}

/// The results that a sample keeps, with their threads.
fn sampled(values: &[u64]) -> impl Iterator<Item = (usize, u64)> {
    let step = values.len().div_ceil(SAMPLE).max(1);
    values.iter().copied().enumerate().step_by(step)
}
