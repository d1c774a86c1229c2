//! `differential`: runs the snippets on two devices, and says where they differ.

use std::{collections::BTreeSet, fs, path::PathBuf, process::ExitCode, time::Instant};

use clap::Parser;
use tesserine::Device;
use tesserine_differential::{
    assemble::assemble,
    device::run_all,
    families,
    recorded::Record,
    report::{Comparison, table, totals},
    snippet::{Snippet, Target},
};

/// Runs snippets of PTX on two devices and compares their results.
#[derive(Debug, Parser)]
struct Options {
    /// The device that is trusted.
    #[arg(long, default_value = "cuda")]
    device: String,
    /// The device that is compared with it; `reference` for the references that some snippets have, `none` for a run of one device.
    #[arg(long, default_value = "emulator:sm_90a")]
    against: String,
    /// Families to run, by commas; all without it.
    #[arg(long, value_delimiter = ',')]
    family: Vec<String>,
    /// Only snippets whose name holds this.
    #[arg(long)]
    name: Option<String>,
    /// Snippets to leave out, by commas.
    #[arg(long, value_delimiter = ',')]
    skip: Vec<String>,
    /// Targets that the snippets are written for, by commas; `first`: for each snippet, the first that has it.
    #[arg(long, default_value = "sm_90a", value_delimiter = ',')]
    target: Vec<String>,
    /// Seed of the operands.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Snippets of a module.
    #[arg(long, default_value_t = 16)]
    chunk: usize,
    /// Lists the snippets, and runs nothing.
    #[arg(long)]
    list: bool,
    /// Prints the kernels of the snippets, and runs nothing.
    #[arg(long)]
    print: bool,
    /// Writes what was found as JSON.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Writes the results of `--device` for comparisons where there is no such device.
    #[arg(long)]
    record: Option<PathBuf>,
    /// A line about hardware and software for the head of the recorded file.
    #[arg(long, default_value = "")]
    provenance: String,
    /// Only checks that this `ptxas` takes every snippet, for each target.
    #[arg(long)]
    assemble: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Snippets of a family for one target, few enough for a module.
struct Chunk<'a> {
    family: &'static str,
    target: Target,
    snippets: Vec<&'a Snippet>,
}

fn chunks<'a>(options: &Options, all: &'a [Snippet]) -> Result<Vec<Chunk<'a>>, String> {
    let wanted = |s: &&Snippet| {
        (options.family.is_empty() || options.family.iter().any(|f| f == s.family))
            && options.name.as_ref().is_none_or(|n| s.name.contains(n))
            && !options.skip.contains(&s.name)
    };
    let mut pairs: Vec<(Target, &Snippet)> = Vec::new();
    for name in &options.target {
        let chosen = all.iter().filter(wanted);
        if name == "first" {
            pairs.extend(chosen.filter_map(|s| Some((Target::first(s.since)?, s))));
        } else {
            let target = Target::named(name).ok_or(format!("`{name}` is no target"))?;
            pairs.extend(chosen.filter(|s| target.has(s.since)).map(|s| (target, s)));
        }
    }
    let mut chunks: Vec<Chunk<'a>> = Vec::new();
    for (target, snippet) in pairs {
        let fits = |c: &&mut Chunk<'a>| {
            c.family == snippet.family
                && c.target == target
                && c.snippets.len() < options.chunk.max(1)
                // Names of globals are the snippet's own.
                && snippet.globals.is_empty()
                && c.snippets.iter().all(|s| s.globals.is_empty())
                // What needs a newer version may be refused by an older driver.
                && c.snippets.iter().all(|s| target.ptx(s.since) == target.ptx(snippet.since))
        };
        match chunks.iter_mut().rev().find(fits) {
            Some(chunk) => chunk.snippets.push(snippet),
            None => chunks.push(Chunk {
                family: snippet.family,
                target,
                snippets: vec![snippet],
            }),
        }
    }
    Ok(chunks)
}

fn run(options: &Options) -> Result<bool, Box<dyn std::error::Error>> {
    let all = families::all();
    let chunks = chunks(options, &all)?;
    if options.list {
        for chunk in &chunks {
            for s in &chunk.snippets {
                let known = if s.reference.is_some() {
                    ", has a reference"
                } else {
                    ""
                };
                println!(
                    "{:<12} {:<8} {}{known}",
                    s.family,
                    chunk.target.to_string(),
                    s.name
                );
            }
        }
        return Ok(true);
    }
    if options.print {
        for chunk in &chunks {
            print!(
                "{}",
                tesserine_differential::device::module_text(&chunk.snippets, chunk.target)
            );
        }
        return Ok(true);
    }
    if let Some(ptxas) = &options.assemble {
        let mut refused = 0;
        for chunk in &chunks {
            for (name, message) in assemble(ptxas, &chunk.snippets, chunk.target)? {
                let message = message.lines().next().unwrap_or_default();
                println!("{name}, {}: {message}", chunk.target);
                refused += 1;
            }
        }
        let count: usize = chunks.iter().map(|c| c.snippets.len()).sum();
        println!("{count} snippets, {refused} refused");
        return Ok(refused == 0);
    }
    compare(options, &chunks)
}

fn compare(options: &Options, chunks: &[Chunk<'_>]) -> Result<bool, Box<dyn std::error::Error>> {
    let device = Device::named(&options.device)?;
    let against = match options.against.as_str() {
        "reference" | "none" => None,
        name => Some(Device::named(name)?),
    };
    let mut found: Vec<Comparison> = Vec::new();
    let mut records: Vec<Record> = Vec::new();
    let mut failed = BTreeSet::new();
    let start = Instant::now();
    for (number, chunk) in chunks.iter().enumerate() {
        let target = chunk.target.to_string();
        eprintln!(
            "[{:.1} s] {}/{} {} {target}: {}",
            start.elapsed().as_secs_f64(),
            number + 1,
            chunks.len(),
            chunk.family,
            chunk.snippets.first().map_or("", |s| &s.name)
        );
        let left = run_all(&device, &chunk.snippets, chunk.target, options.seed);
        let right = against
            .as_ref()
            .map(|other| run_all(other, &chunk.snippets, chunk.target, options.seed));
        for (index, snippet) in chunk.snippets.iter().enumerate() {
            let cases = snippet.cases(options.seed);
            let left = match &left[index] {
                Ok(left) => left,
                Err(error) => {
                    failed.insert(snippet.name.clone());
                    let error = format!("{}: {error}", options.device);
                    found.push(Comparison::failed(snippet, &target, error));
                    continue;
                }
            };
            records.push(Record::new(snippet, &target, &cases, left));
            let right = match (&right, &snippet.reference) {
                (Some(right), _) => right[index].clone(),
                (None, Some(of)) if options.against == "reference" => Ok(of(&cases.inputs)),
                (None, _) => continue,
            };
            found.push(match right {
                Ok(right) => Comparison::of(snippet, &target, &cases, left, &right),
                Err(error) => {
                    failed.insert(snippet.name.clone());
                    Comparison::failed(snippet, &target, format!("{}: {error}", options.against))
                }
            });
        }
        // A device may be lost on the way: what was found until then stays.
        if let Some(out) = &options.out {
            let all = serde_json::json!({
                "device": options.device,
                "against": options.against,
                "seed": options.seed,
                "families": totals(&found),
                "snippets": found,
            });
            fs::write(out, serde_json::to_vec(&all)?)?;
        }
    }
    if let Some(path) = &options.record {
        let mut text = format!(
            "# Results of {} ({}). {}\n# seed {}\n",
            device.info().name,
            options.device,
            options.provenance,
            options.seed
        );
        for record in &records {
            text += &record.line();
            text.push('\n');
        }
        fs::write(path, text)?;
    }
    for one in found.iter().filter(|c| !c.is_good()) {
        println!(
            "{} {}: {} of {} differ",
            one.snippet, one.target, one.mismatches, one.cases
        );
        if let Some(error) = &one.error {
            println!(
                "  {}",
                error.lines().take(12).collect::<Vec<_>>().join("\n  ")
            );
        }
        for m in one.first.iter().take(3) {
            println!(
                "  output {}, thread {}: ({}) gives {} and {}",
                m.output,
                m.thread,
                m.operands.join(", "),
                m.left,
                m.right
            );
        }
    }
    print!("{}", table(&found));
    println!(
        "{} could not be compared, {:.1} s",
        failed.len(),
        start.elapsed().as_secs_f64()
    );
    Ok(found.iter().all(Comparison::is_good))
}
