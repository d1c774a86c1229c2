//! `mutate`: so many mutated inputs against every target, in processes that are watched.
//!
//! `mutate [--count N] [--jobs N] [--first N] [--target NAME] [--root DIR]` prints a table of counts, of the slowest input and of
//! the largest memory, and each input that panicked, took longer than 5 s or ended its process, and exits 1 if there is one.
//! `mutate --show TARGET NUMBER [DIR]` prints an input, `mutate --only TARGET NUMBER [DIR]` runs it; DIR is the project's folder
//! as it was, since inputs are made from its programs.

use std::{
    io::{BufRead, BufReader, Write},
    panic,
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use tesserine_robustness::{Corpus, Mutator, Target};

/// An input that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(5);
/// A process that takes more is too large, in KiB.
const MOST_KIB: u64 = 1 << 20;
/// A worker starts anew after so many inputs, so that its memory is that of its inputs.
const BATCH: u64 = 5_000;

struct Options {
    count: u64,
    jobs: usize,
    first: u64,
    targets: Vec<Target>,
    root: PathBuf,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("--worker") => return worker(&args[1..]),
        Some(mode @ ("--show" | "--only")) => return one(mode, &args[1..]),
        _ => {}
    }
    match options(&args) {
        Ok(options) => all(&options),
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

fn default_root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn target(name: &str) -> Option<Target> {
    Target::ALL.into_iter().find(|t| t.name() == name)
}

fn options(args: &[String]) -> Result<Options, String> {
    let mut options = Options {
        count: 1_000_000,
        jobs: std::thread::available_parallelism().map_or(1, |n| n.get()),
        first: 0,
        targets: Target::ALL.to_vec(),
        root: default_root(),
    };
    let mut args = args.iter();
    while let Some(name) = args.next() {
        let value = args.next().ok_or(format!("{name} needs a value"))?;
        let number = || {
            value
                .parse::<u64>()
                .map_err(|_| format!("{value} is no number"))
        };
        match name.as_str() {
            "--count" => options.count = number()?,
            "--jobs" => options.jobs = number()?.max(1) as usize,
            "--first" => options.first = number()?,
            "--target" => {
                options.targets = vec![target(value).ok_or(format!("no target {value}"))?]
            }
            "--root" => options.root = PathBuf::from(value),
            _ => return Err(format!("there is no {name}")),
        }
    }
    Ok(options)
}

fn one(mode: &str, args: &[String]) -> ExitCode {
    let (Some(target), Some(Ok(number))) = (
        args.first().and_then(|name| target(name)),
        args.get(1).map(|n| n.parse::<u64>()),
    ) else {
        eprintln!("{mode} TARGET NUMBER");
        return ExitCode::from(2);
    };
    let root = args.get(2).map_or_else(default_root, PathBuf::from);
    let corpus = Corpus::read(&root);
    let input = Mutator::new(corpus.seeds(target)).input(number);
    if mode == "--show" {
        let written = std::io::stdout().write_all(&input);
        return ExitCode::from(u8::from(written.is_err()));
    }
    target.run(&input);
    ExitCode::SUCCESS
}

/// Runs inputs `first..first + count` of one target. Says `. MICROSECONDS KIB` after each, `! MESSAGE` where one panics.
fn worker(args: &[String]) -> ExitCode {
    let [name, first, count, root] = args else {
        return ExitCode::from(2);
    };
    let (Some(target), Ok(first), Ok(count)) =
        (target(name), first.parse::<u64>(), count.parse::<u64>())
    else {
        return ExitCode::from(2);
    };
    let place = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
    let seen = place.clone();
    panic::set_hook(Box::new(move |info| {
        if let (Some(location), Ok(mut seen)) = (info.location(), seen.lock()) {
            *seen = format!("{}:{}", location.file(), location.line());
        }
    }));
    let corpus = Corpus::read(&PathBuf::from(root));
    let mut mutator = Mutator::new(corpus.seeds(target));
    let mut out = std::io::stdout().lock();
    for number in first..first + count {
        let input = mutator.input(number);
        let start = Instant::now();
        let result = panic::catch_unwind(|| target.run(&input));
        let line = match result {
            Ok(()) => format!(". {} {}", start.elapsed().as_micros(), peak_kib()),
            Err(payload) => {
                let text = payload
                    .downcast_ref::<String>()
                    .map(String::as_str)
                    .or(payload.downcast_ref::<&str>().copied())
                    .unwrap_or("a panic");
                let place = place.lock().map(|p| p.clone()).unwrap_or_default();
                format!("! {place}: {}", text.lines().next().unwrap_or(""))
            }
        };
        if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
            break;
        }
    }
    ExitCode::SUCCESS
}

/// The most memory that this process has had, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or(0)
}

#[derive(Default)]
struct Tally {
    inputs: u64,
    slowest: (u64, u64),
    peak_kib: u64,
    spent: Duration,
    bad: Vec<String>,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.inputs += other.inputs;
        self.slowest = self.slowest.max(other.slowest);
        self.peak_kib = self.peak_kib.max(other.peak_kib);
        self.spent += other.spent;
        self.bad.extend(other.bad);
    }
}

fn all(options: &Options) -> ExitCode {
    let each = options.count / options.targets.len() as u64;
    println!("target     inputs     failed  slowest ms  (input)    peak MiB  inputs/s");
    let mut failed = false;
    for &target in &options.targets {
        let end = options.first + each;
        let next = std::sync::atomic::AtomicU64::new(options.first);
        let mut tally = Tally::default();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..options.jobs)
                .map(|_| {
                    scope.spawn(|| {
                        let mut tally = Tally::default();
                        loop {
                            let first = next.fetch_add(BATCH, std::sync::atomic::Ordering::Relaxed);
                            if first >= end {
                                return tally;
                            }
                            batch(options, target, first, BATCH.min(end - first), &mut tally);
                        }
                    })
                })
                .collect();
            for thread in threads {
                tally.add(thread.join().expect("the watcher does not panic"));
            }
        });
        failed |= !tally.bad.is_empty();
        let rate = tally.inputs as f64 / tally.spent.as_secs_f64().max(1e-9);
        println!(
            "{:<10} {:<10} {:<7} {:<11.1} {:<10} {:<9} {rate:.0}",
            target.name(),
            tally.inputs,
            tally.bad.len(),
            tally.slowest.0 as f64 / 1e3,
            tally.slowest.1,
            tally.peak_kib >> 10,
        );
        for bad in &tally.bad {
            println!("  {bad}");
        }
    }
    ExitCode::from(u8::from(failed))
}

/// Inputs `first..first + count`, in as many processes as it takes.
fn batch(options: &Options, target: Target, first: u64, count: u64, tally: &mut Tally) {
    let end = first + count;
    let mut at = first;
    let started = Instant::now();
    while at < end {
        let mut child = Command::new(std::env::current_exe().expect("this program has a path"))
            .args([
                "--worker",
                target.name(),
                &at.to_string(),
                &(end - at).to_string(),
            ])
            .arg(&options.root)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a worker starts");
        let stdout = child.stdout.take().expect("stdout is piped");
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        // The first line waits for the corpus too.
        let mut patience = PATIENCE + Duration::from_secs(60);
        while at < end {
            match lines.recv_timeout(patience) {
                Ok(line) => {
                    patience = PATIENCE;
                    if let Some(message) = line.strip_prefix("! ") {
                        tally.bad.push(format!("{} {at}: {message}", target.name()));
                    } else {
                        let mut numbers = line.split(' ').skip(1).map(|n| n.parse().unwrap_or(0));
                        let (micros, kib) =
                            (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
                        tally.slowest = tally.slowest.max((micros, at));
                        if kib > MOST_KIB && tally.peak_kib <= MOST_KIB {
                            tally
                                .bad
                                .push(format!("{} {at}: {} MiB", target.name(), kib >> 10));
                        }
                        tally.peak_kib = tally.peak_kib.max(kib);
                    }
                    tally.inputs += 1;
                    at += 1;
                }
                Err(error) => {
                    let what = match error {
                        mpsc::RecvTimeoutError::Timeout => "took longer than 5 s",
                        mpsc::RecvTimeoutError::Disconnected => "ended the process",
                    };
                    tally.bad.push(format!("{} {at}: {what}", target.name()));
                    tally.inputs += 1;
                    at += 1;
                    break;
                }
            }
        }
        // It has ended, or is to end: what comes of that is of no interest.
        let _ = child.kill();
        let _ = child.wait();
    }
    tally.spent += started.elapsed();
}
