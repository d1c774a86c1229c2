//! `differential`: runs the snippets on two devices, and says where they differ.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use clap::Parser;
use tesserine::{Device, Error};
use tesserine_differential::{
    assemble::assemble,
    device::{refused, run_all},
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
    /// The device that is compared with it; `reference` for the references that some snippets have, `recorded:FILE` for results that were
    /// recorded, `none` for a run of one device.
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
    /// Snippets that an emulated device runs side by side; 0 is one a core.
    #[arg(long, default_value_t = 0)]
    jobs: usize,
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
    /// Only loads the snippets of each target on its emulated device.
    #[arg(long)]
    load: bool,
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
        let mut count = 0;
        for chunk in &chunks {
            for (name, message) in assemble(ptxas, &chunk.snippets, chunk.target)? {
                let message = message.lines().next().unwrap_or_default();
                println!("{name}, {}: {message}", chunk.target);
                count += 1;
            }
        }
        let snippets: usize = chunks.iter().map(|c| c.snippets.len()).sum();
        println!("{snippets} snippets, {count} refused");
        return Ok(count == 0);
    }
    if options.load {
        let mut count = 0;
        for chunk in &chunks {
            let device = Device::named(&format!("emulator:{}", chunk.target))?;
            for (name, message) in refused(&device, &chunk.snippets, chunk.target) {
                println!("{name}, {}: {message}", chunk.target);
                count += 1;
            }
        }
        println!("{count} refused");
        return Ok(count == 0);
    }
    compare(options, &chunks)
}

/// What a chunk's snippets gave on a device.
type Results = Vec<Result<Vec<Vec<u64>>, String>>;

/// Runs all chunks on a device. An emulated one is as many devices as there are cores; a real one is used by this thread alone.
fn run_on(name: &str, options: &Options, chunks: &[Chunk<'_>]) -> Result<Vec<Results>, Error> {
    let start = Instant::now();
    let run = |device: &Device, number: usize| {
        let chunk = &chunks[number];
        eprintln!(
            "[{:.1} s] {name}: {}/{} {} {}: {}",
            start.elapsed().as_secs_f64(),
            number + 1,
            chunks.len(),
            chunk.family,
            chunk.target,
            chunk.snippets.first().map_or("", |s| &s.name)
        );
        run_all(device, &chunk.snippets, chunk.target, options.seed)
    };
    let first = Device::named(name)?;
    if !name.starts_with("emulator") {
        return Ok((0..chunks.len()).map(|n| run(&first, n)).collect());
    }
    let jobs = match options.jobs {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        jobs => jobs,
    };
    let next = AtomicUsize::new(0);
    let done = Mutex::new(vec![Results::new(); chunks.len()]);
    std::thread::scope(|scope| {
        let work = || -> Result<(), Error> {
            let device = Device::named(name)?;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= chunks.len() {
                    return Ok(());
                }
                let results = run(&device, number);
                done.lock().unwrap_or_else(PoisonError::into_inner)[number] = results;
            }
        };
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        let ends = workers.into_iter().map(|w| w.join());
        // A panic is passed on.
        ends.map(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect::<Result<Vec<()>, Error>>()
    })?;
    Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn record(
    options: &Options,
    chunks: &[Chunk<'_>],
    results: &[Results],
    path: &Path,
) -> Result<(), std::io::Error> {
    let device = Device::named(&options.device);
    let name = device.map_or(String::new(), |d| d.info().name.clone());
    let mut text = format!(
        "# Results of {name} ({}). {}\n# seed {}\n",
        options.device, options.provenance, options.seed
    );
    for (chunk, results) in chunks.iter().zip(results) {
        for (snippet, result) in chunk.snippets.iter().zip(results) {
            if let Ok(result) = result {
                let cases = snippet.cases(options.seed);
                text += &Record::new(snippet, &chunk.target.to_string(), &cases, result).line();
                text.push('\n');
            }
        }
    }
    fs::write(path, text)
}

/// What the other side is.
enum Against {
    Device(Vec<Results>),
    References,
    Records(Vec<Record>),
    Nothing,
}

fn compare(options: &Options, chunks: &[Chunk<'_>]) -> Result<bool, Box<dyn std::error::Error>> {
    let start = Instant::now();
    let left = run_on(&options.device, options, chunks)?;
    if let Some(path) = &options.record {
        record(options, chunks, &left, path)?;
    }
    let against = match options.against.as_str() {
        "reference" => Against::References,
        "none" => Against::Nothing,
        name => match name.strip_prefix("recorded:") {
            Some(path) => Against::Records(Record::read(&fs::read_to_string(path)?)?),
            None => Against::Device(run_on(name, options, chunks)?),
        },
    };
    let mut found: Vec<Comparison> = Vec::new();
    for (number, chunk) in chunks.iter().enumerate() {
        let target = chunk.target.to_string();
        for (index, snippet) in chunk.snippets.iter().enumerate() {
            let cases = snippet.cases(options.seed);
            let failed = |side: &str, error: &str| {
                Comparison::failed(snippet, &target, format!("{side}: {error}"))
            };
            let left = match &left[number][index] {
                Ok(left) => left,
                Err(error) => {
                    found.push(failed(&options.device, error));
                    continue;
                }
            };
            let of = |right: &[Vec<u64>]| Comparison::of(snippet, &target, &cases, left, right);
            match &against {
                Against::Nothing => {}
                Against::References => {
                    found.extend(
                        snippet
                            .reference
                            .iter()
                            .map(|refer| of(&refer(&cases.inputs))),
                    );
                }
                Against::Device(right) => found.push(match &right[number][index] {
                    Ok(right) => of(right),
                    Err(error) => failed(&options.against, error),
                }),
                Against::Records(records) => {
                    let wanted = records
                        .iter()
                        .find(|r| r.name == snippet.name && r.target == target);
                    found.extend(wanted.map(|r| Comparison::with_record(snippet, &cases, r, left)));
                }
            }
        }
    }
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
        "{} snippets compared, {} not good, {:.1} s",
        found.len(),
        found.iter().filter(|c| !c.is_good()).count(),
        start.elapsed().as_secs_f64()
    );
    Ok(found.iter().all(Comparison::is_good))
}
