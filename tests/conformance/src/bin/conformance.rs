//! Runs the conformance cases and prints them as `cargo test` would. See `--help`.

use std::{
    env,
    io::{self, Write},
    process::ExitCode,
    time::Instant,
};

use tesserine_conformance::{Case, Tier, Verdict, backend, cases, check, sanitizer_cases};

const HELP: &str = "\
Runs every kernel of the library against a reference in f64.

  conformance [--list] [--quick] [--huge] [--sanitize] [--filter TEXT]...

  --list         print the names of the cases
  --quick        a few cases of each kernel
  --huge         also tensors that span more than 2^32 bytes (8 GiB on the device and on the host)
  --sanitize     a few small launches of each body of each kernel, for compute-sanitizer
  --filter TEXT  only cases whose name contains TEXT; may be repeated: any of them

  TESS_DEVICE    interp (the default), cuda, cuda:N or emulator:TARGET
  TESS_SET       a kernel set to take the kernels from; nothing is compiled
";

#[derive(Default)]
struct Options {
    list: bool,
    quick: bool,
    huge: bool,
    sanitize: bool,
    filters: Vec<String>,
}

fn parse(args: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options::default();
    let mut args = args;
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--list" => options.list = true,
            "--quick" => options.quick = true,
            "--huge" => options.huge = true,
            "--sanitize" => options.sanitize = true,
            "--filter" => {
                let text = args.next().ok_or("`--filter` needs a text")?;
                options.filters.push(text);
            }
            "--help" | "-h" => return Ok(None),
            other => return Err(format!("`{other}` is no option; see --help")),
        }
    }
    Ok(Some(options))
}

fn chosen(options: &Options, on_device: bool) -> Vec<Case> {
    let last = match (options.quick, options.huge, on_device) {
        (true, _, _) => Tier::Quick,
        (_, _, false) => Tier::Core,
        (_, false, true) => Tier::Device,
        (_, true, true) => Tier::Huge,
    };
    let mut list = if options.sanitize {
        sanitizer_cases()
    } else {
        cases()
    };
    list.retain(|case| {
        let name = case.to_string();
        case.tier <= last
            && (options.filters.is_empty() || options.filters.iter().any(|f| name.contains(f)))
    });
    list
}

/// Runs all that was asked for; true if nothing failed.
fn run(options: &Options) -> Result<bool, String> {
    let choice = backend::choice_from_env()?;
    let list = chosen(options, choice.is_device());
    let mut out = io::stdout().lock();
    let broken = |e: io::Error| format!("cannot print: {e}");
    if options.list {
        for case in &list {
            writeln!(out, "{case}: test").map_err(broken)?;
        }
        writeln!(out, "\n{} tests", list.len()).map_err(broken)?;
        return Ok(true);
    }
    let mut device = choice.open()?;
    let start = Instant::now();
    writeln!(out, "\nrunning {} tests on {}", list.len(), device.name()).map_err(broken)?;
    let mut failures = Vec::new();
    let mut skipped = 0;
    let mut worst = (0.0, String::new());
    for case in &list {
        // The name first: a launch that hangs is then known.
        write!(out, "test {case} ... ").map_err(broken)?;
        out.flush().map_err(broken)?;
        let word = match check(case, device.as_mut()) {
            Verdict::Passed(share) => {
                if share > worst.0 {
                    worst = (share, case.to_string());
                }
                "ok".to_owned()
            }
            Verdict::Skipped(why) => {
                skipped += 1;
                format!("ignored, {why}")
            }
            Verdict::Failed(why) => {
                failures.push((case.to_string(), why));
                "FAILED".to_owned()
            }
        };
        writeln!(out, "{word}").map_err(broken)?;
    }
    if !failures.is_empty() {
        writeln!(out, "\nfailures:\n").map_err(broken)?;
        for (name, why) in &failures {
            writeln!(out, "---- {name} ----\n{why}\n").map_err(broken)?;
        }
    }
    if worst.0 > 0.0 {
        writeln!(
            out,
            "\nlargest error: {:.1} % of the tolerance, in {}",
            100.0 * worst.0,
            worst.1
        )
        .map_err(broken)?;
    }
    writeln!(
        out,
        "\ntest result: {}. {} passed; {} failed; {skipped} ignored; 0 measured; 0 filtered out; finished in {:.2}s",
        if failures.is_empty() { "ok" } else { "FAILED" },
        list.len() - failures.len() - skipped,
        failures.len(),
        start.elapsed().as_secs_f64()
    )
    .map_err(broken)?;
    Ok(failures.is_empty())
}

fn main() -> ExitCode {
    let done = match parse(env::args().skip(1)) {
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Ok(Some(options)) => run(&options),
        Err(why) => Err(why),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(why) => {
            eprintln!("conformance: {why}");
            ExitCode::from(2)
        }
    }
}
