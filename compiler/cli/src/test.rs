//! `tess test`: the tests of source files.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tesserine::{Device, KernelSet};
use tesserine_compiler::{
    Module, Session,
    diagnostics::Diagnostics,
    interp,
    target::Target,
    testing::{self, Launch, Options, Outcome, TestInfo, What},
};
use tesserine_set::{Access, ParamKind};

use crate::{
    args::Test,
    compare::{self, Tolerance},
    failure::{Failure, report},
    gpu::{self, Code},
    place::{self, Place},
    source,
    tensor::HostTensor,
    terminal::{self, say},
};

/// The target whose schedule the interpreter takes unless told otherwise.
const DEFAULT_TARGET: &str = "sm_90a";

/// A test and where it stands.
struct Found {
    module: Module,
    /// `norm/rmsnorm.tess::odd_width`.
    name: String,
    info: TestInfo,
}

pub fn run(args: &Test) -> Result<(), Failure> {
    let places = Place::parse_several(&args.device)?;
    let against = match args.against.as_deref().map(Place::parse).transpose()? {
        Some(Place::Interpreter) => {
            return Err(Failure::Usage(
                "--against names a device: every launch is compared with the interpreter anyway"
                    .to_owned(),
            ));
        }
        Some(Place::Device(name)) => Some(name),
        None => None,
    };
    let named = args.target.as_deref().map(source::target).transpose()?;
    if places.contains(&Place::Interpreter) {
        for (given, what) in [
            (args.set.is_some(), "--set holds code for GPUs"),
            (against.is_some(), "--against compares devices"),
        ] {
            if given {
                return Err(Failure::Usage(format!(
                    "{what}, and the interpreter runs the source: name a --device, or leave it out"
                )));
            }
        }
    }
    let mut session = Session::new();
    let loaded = load(&mut session, &args.paths)?;
    let all = loaded.tests.len();
    let tests: Vec<Found> = loaded
        .tests
        .into_iter()
        .filter(|t| args.filter.as_ref().is_none_or(|f| t.name.contains(f)))
        .collect();
    let set = match &args.set {
        Some(path) => Some(KernelSet::open(path).map_err(gpu::failed)?),
        None => None,
    };
    let mut broken = false;
    for place in &places {
        let start = Instant::now();
        let (gpu, target) = match place {
            Place::Interpreter => (None, named),
            Place::Device(name) => {
                let (gpu, target) = Gpu::open(
                    &session,
                    &tests,
                    name,
                    named,
                    set.as_ref(),
                    against.as_deref(),
                )?;
                (Some(gpu), Some(target))
            }
        };
        let target = match target {
            Some(target) => target,
            None => source::target(DEFAULT_TARGET)?,
        };
        let options = Options {
            target,
            device: gpu.as_ref().map(|g| g as &dyn testing::Device),
        };
        let plural = if tests.len() == 1 { "" } else { "s" };
        let on = match place {
            Place::Device(name) if places.len() > 1 => format!(" on {name}"),
            _ => String::new(),
        };
        say!("\nrunning {} test{plural}{on}", tests.len());
        let outcomes = execute(&session, &tests, &options, args.jobs)?;
        if let Some(gpu) = &gpu {
            gpu.tell()?;
        }
        broken |= conclude(
            &session,
            &tests,
            &outcomes,
            all,
            loaded.broken,
            &on,
            start.elapsed(),
        )?;
    }
    if broken {
        Err(Failure::Reported)
    } else {
        Ok(())
    }
}

/// Prints what failed and how many did not; whether anything is wrong.
fn conclude(
    session: &Session,
    tests: &[Found],
    outcomes: &[Outcome],
    all: usize,
    mut broken: bool,
    on: &str,
    time: Duration,
) -> Result<bool, Failure> {
    let mut failed: Vec<(&Found, &Diagnostics)> = Vec::new();
    let mut ignored = 0;
    for (test, outcome) in tests.iter().zip(outcomes) {
        match outcome {
            Outcome::Passed => {}
            Outcome::Ignored(_) => ignored += 1,
            Outcome::Failed(diagnostics) => failed.push((test, diagnostics)),
        }
    }
    if !failed.is_empty() {
        say!("\nfailures:");
        for (test, diagnostics) in &failed {
            say!("\n---- {} ----", test.name);
            for diagnostic in diagnostics.iter() {
                let text = tesserine_compiler::diagnostics::render(
                    diagnostic,
                    session.sources(),
                    terminal::colour(),
                );
                say!("{}", text.trim_end());
            }
        }
        say!("\nfailures:");
        for (test, _) in &failed {
            say!("    {}", test.name);
        }
    }
    broken |= !failed.is_empty();
    let passed = tests.len() - failed.len() - ignored;
    let ignored = match ignored {
        0 => String::new(),
        n => format!("; {n} ignored"),
    };
    say!(
        "\ntest result{on}: {}. {passed} passed; {} failed{ignored}; {} filtered out; finished in {:.2}s",
        if broken { "FAILED" } else { "ok" },
        failed.len(),
        all - tests.len(),
        time.as_secs_f64()
    );
    Ok(broken)
}

/// What was found in files and folders.
struct Loaded {
    tests: Vec<Found>,
    /// Whether a file could not be loaded; that has been reported.
    broken: bool,
}

fn load(session: &mut Session, paths: &[PathBuf]) -> Result<Loaded, Failure> {
    let mut loaded = Loaded {
        tests: Vec::new(),
        broken: false,
    };
    for path in files(paths)? {
        match session.load(&path, Some(Path::new(""))) {
            Ok(module) => loaded
                .tests
                .extend(session.tests(module).into_iter().map(|info| Found {
                    module,
                    name: format!("{}::{}", path.display(), info.name),
                    info,
                })),
            Err(diagnostics) => {
                report(&diagnostics, session.sources());
                loaded.broken = true;
            }
        }
    }
    Ok(loaded)
}

/// The `.tess` files that paths name, in the order of the paths, those of folders by name.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let here = [PathBuf::from(".")];
    let paths = if paths.is_empty() { &here[..] } else { paths };
    let mut out = Vec::new();
    for path in paths {
        if path.is_dir() {
            within(path, &mut out)?;
        } else {
            source::readable(path)?;
            out.push(path.clone());
        }
    }
    Ok(out)
}

fn within(folder: &Path, out: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let entries = fs::read_dir(folder).map_err(|e| Failure::file("read", folder, e))?;
    let mut paths = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| Failure::file("read", folder, e))?;
        paths.push(entry.path());
    }
    paths.sort();
    for path in paths {
        if path.is_dir() {
            let hidden = path
                .file_name()
                .is_some_and(|n| n.to_string_lossy().starts_with('.'));
            if !hidden {
                within(&path, out)?;
            }
        } else if path.extension().is_some_and(|e| e == "tess") {
            // "./x.tess" is "x.tess".
            out.push(path.strip_prefix(".").map_or(path.clone(), Path::to_owned));
        }
    }
    Ok(())
}

/// Runs the tests in parallel and prints a line for each, in order.
fn execute(
    session: &Session,
    tests: &[Found],
    options: &Options<'_>,
    jobs: Option<usize>,
) -> Result<Vec<Outcome>, Failure> {
    let jobs = jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, |n| n.get()));
    let next = AtomicUsize::new(0);
    let done: Mutex<(Vec<Option<Outcome>>, usize, Result<(), Failure>)> =
        Mutex::new((vec![None; tests.len()], 0, Ok(())));
    thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, tests.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(test) = tests.get(i) else { break };
                    let outcome = session.run_test(test.module, &test.info, options);
                    let mut done = match done.lock() {
                        Ok(done) => done,
                        Err(poisoned) => poisoned.into_inner(),
                    };
                    done.0[i] = Some(outcome);
                    // Whatever has all before it done is printed.
                    while let Some(Some(outcome)) = done.0.get(done.1) {
                        let name = &tests[done.1].name;
                        let line = match outcome {
                            Outcome::Passed => format!("test {name} ... ok\n"),
                            Outcome::Failed(_) => format!("test {name} ... FAILED\n"),
                            Outcome::Ignored(why) => format!("test {name} ... ignored, {why}\n"),
                        };
                        done.1 += 1;
                        if done.2.is_ok() {
                            done.2 = terminal::print(format_args!("{line}"));
                        }
                    }
                }
            });
        }
    });
    let (outcomes, _, printed) = match done.into_inner() {
        Ok(done) => done,
        Err(poisoned) => poisoned.into_inner(),
    };
    printed?;
    Ok(outcomes.into_iter().flatten().collect())
}

/// A device that runs a test's launches, and perhaps a second one that it is compared with.
struct Gpu {
    device: Device,
    against: Option<Device>,
    /// On a GPU one launch at a time, so that a fault is known to be this one's.
    turn: Mutex<()>,
    /// `None` if no test launches anything.
    set: Option<KernelSet>,
    target: Option<&'static str>,
    agreement: Mutex<Agreement>,
}

/// How launches on two devices compare.
#[derive(Default)]
struct Agreement {
    equal: usize,
    unordered: usize,
    /// Within the tolerance, by instance: how many launches, and the largest error.
    near: BTreeMap<String, (usize, f64)>,
}

impl Gpu {
    /// With the code of what the tests launch, for `named` or the newest target; which that is.
    fn open(
        session: &Session,
        tests: &[Found],
        name: &str,
        named: Option<Target>,
        set: Option<&KernelSet>,
        against: Option<&str>,
    ) -> Result<(Gpu, Target), Failure> {
        let device = place::open(name)?;
        let against = against.map(place::open).transpose()?;
        let target = match named {
            Some(target) => target,
            None => place::newest(&device)?,
        };
        let set = match set {
            Some(set) => Some(set.clone()),
            None => compiled(session, tests, target, name)?,
        };
        let gpu = Gpu {
            // Both devices run the same code.
            target: named.or(against.as_ref().map(|_| target)).map(Target::name),
            device,
            against,
            turn: Mutex::default(),
            set,
            agreement: Mutex::default(),
        };
        Ok((gpu, target))
    }

    /// Prints how the two devices compared.
    fn tell(&self) -> Result<(), Failure> {
        let Some(against) = &self.against else {
            return Ok(());
        };
        let agreement = self.agreement.lock().unwrap_or_else(|e| e.into_inner());
        let near: usize = agreement.near.values().map(|(count, _)| count).sum();
        say!(
            "\n{} against {against}: {} launches equal to the bit, {near} within the tolerance, {} not compared, since they hang on the order of blocks",
            self.device,
            agreement.equal,
            agreement.unordered
        );
        for (name, (count, error)) in &agreement.near {
            say!("    {name}: {count} within the tolerance, largest error {error:e}");
        }
        Ok(())
    }

    /// Runs the launch on a device; what it wrote, one for each parameter.
    fn launch_on(
        &self,
        device: &Device,
        code: &Code,
        args: &interp::Args,
    ) -> Result<Vec<Option<Vec<u8>>>, tesserine::Error> {
        let _turn = match device {
            Device::Cuda(_) => Some(self.turn.lock().unwrap_or_else(|e| e.into_inner())),
            _ => None,
        };
        let params = &code.signature().params;
        let mut memory = Vec::new();
        for param in params {
            memory.push(match args.get(&param.name) {
                Some(interp::Arg::Tensor(tensor)) => {
                    let shape: Vec<i64> = tensor.shape.iter().map(|&d| d as i64).collect();
                    Some(device.upload(tensor.dtype, &shape, &tensor.data)?)
                }
                _ => None,
            });
        }
        let mut passed = tesserine::Args::new();
        for (param, memory) in params.iter().zip(&memory) {
            passed = match (args.get(&param.name), memory) {
                (Some(interp::Arg::Scalar(value)), _) => passed.scalar(&param.name, *value),
                (_, Some(memory)) => passed.tensor(&param.name, memory.view()),
                _ => passed,
            };
        }
        // An own one, so that launches of other tests run beside it.
        let stream = device.stream()?;
        code.run(device, &stream, &passed, self.target)?;
        let mut written = Vec::new();
        for (param, memory) in params.iter().zip(&memory) {
            let stored =
                matches!(&param.kind, ParamKind::View(view) if view.access != Access::Read);
            written.push(match memory {
                Some(memory) if stored => Some(memory.read()?),
                _ => None,
            });
        }
        Ok(written)
    }

    /// Compares what the second device wrote, in `args`, with the first one's.
    fn compare(
        &self,
        name: &str,
        code: &Code,
        args: &interp::Args,
        found: &[Option<Vec<u8>>],
        other: &[Option<Vec<u8>>],
    ) -> Result<(), String> {
        let lock = || self.agreement.lock().unwrap_or_else(|e| e.into_inner());
        if found == other {
            lock().equal += 1;
            return Ok(());
        }
        if code.is_unordered() {
            lock().unordered += 1;
            return Ok(());
        }
        let params = &code.signature().params;
        let types = params.iter().filter_map(|p| match args.get(&p.name) {
            Some(interp::Arg::Tensor(tensor)) => Some(tensor.dtype),
            _ => None,
        });
        let tolerance = Tolerance::of(types);
        let mut largest = 0f64;
        for ((param, found), other) in params.iter().zip(found).zip(other) {
            let (Some(found), Some(other), Some(interp::Arg::Tensor(tensor))) =
                (found, other, args.get(&param.name))
            else {
                continue;
            };
            let host = |data: &[u8]| HostTensor {
                dtype: tensor.dtype,
                shape: tensor.shape.iter().map(|&d| d as i64).collect(),
                data: data.to_vec(),
            };
            let (found, other) = (host(found), host(other));
            // The error of a sum grows with the root of its summed squares, of which the size of its elements speaks.
            let finite = (0..other.len()).map(|i| other.value(i));
            let finite = finite.filter(|v| v.is_finite());
            let (count, sum) = finite.fold((0usize, 0.0), |(n, s), v| (n + 1, s + v * v));
            let tolerance = Tolerance {
                abs: tolerance.abs * (sum / count.max(1) as f64).sqrt().max(1.0),
                ..tolerance
            };
            let comparison = compare::compare(&found, &other, tolerance);
            largest = largest.max(comparison.max_abs);
            if let Some(worst) = comparison.worst.first().filter(|_| !comparison.passed()) {
                return Err(format!(
                    "the two devices differ in {} of {} elements of `{}`: at {:?} it is {} and {}",
                    comparison.beyond,
                    comparison.elements,
                    param.name,
                    worst.position,
                    worst.found,
                    worst.expected
                ));
            }
        }
        let mut agreement = lock();
        let entry = agreement.near.entry(name.to_owned()).or_default();
        *entry = (entry.0 + 1, entry.1.max(largest));
        Ok(())
    }
}

impl testing::Device for Gpu {
    fn launch(&self, launch: &Launch<'_>, args: &mut interp::Args) -> Result<(), String> {
        let text = |error: tesserine::Error| error.to_string();
        let set = self.set.as_ref().ok_or("there is no code for it")?;
        let code = match launch.what {
            What::Kernel(_) => Code::Kernel(set.kernel(launch.name).map_err(text)?),
            What::Op(_) => Code::Op(set.op(launch.name).map_err(text)?),
        };
        let written = self.launch_on(&self.device, &code, args).map_err(text)?;
        if let Some(against) = &self.against {
            let other = self.launch_on(against, &code, args).map_err(text)?;
            self.compare(launch.name, &code, args, &written, &other)?;
        }
        for (param, written) in code.signature().params.iter().zip(written) {
            if let (Some(data), Some(interp::Arg::Tensor(tensor))) =
                (written, args.get_mut(&param.name))
            {
                tensor.data = data;
            }
        }
        Ok(())
    }
}

#[cfg(not(feature = "llvm"))]
fn compiled(_: &Session, _: &[Found], _: Target, name: &str) -> Result<Option<KernelSet>, Failure> {
    Err(source::no_code(&format!("`tess test --device {name}`")))
}

/// Compiles what the tests launch.
#[cfg(feature = "llvm")]
fn compiled(
    session: &Session,
    tests: &[Found],
    target: Target,
    _: &str,
) -> Result<Option<KernelSet>, Failure> {
    use tesserine_compiler::emit::set;

    let mut fresh = Session::new();
    let Some(set) = launched(session, tests, &[target])? else {
        return Ok(None);
    };
    let built = set::build(&mut fresh, &set, None, &|_, _| ())
        .map_err(|error| crate::build::failed(error, &fresh))?;
    KernelSet::from_bytes(built.bytes)
        .map(Some)
        .map_err(gpu::failed)
}

/// The set of all that the tests of files and folders launch.
#[cfg(feature = "llvm")]
pub fn set_of_tests(
    paths: &[PathBuf],
    targets: &[Target],
) -> Result<tesserine_compiler::emit::set::SetFile, Failure> {
    let mut session = Session::new();
    let loaded = load(&mut session, paths)?;
    if loaded.broken {
        return Err(Failure::Reported);
    }
    launched(&session, &loaded.tests, targets)?
        .ok_or_else(|| Failure::Failed("the tests launch nothing".to_owned()))
}

/// What tests launch, each instance for those targets that have it.
#[cfg(feature = "llvm")]
fn launched(
    session: &Session,
    tests: &[Found],
    targets: &[Target],
) -> Result<Option<tesserine_compiler::emit::set::SetFile>, Failure> {
    use rayon::prelude::*;
    use tesserine_compiler::{
        diagnostics::codes,
        emit::set::{SetFile, SetKernel},
    };

    let mut told = Diagnostics::default();
    let mut wanted: Vec<(&Found, String)> = Vec::new();
    for test in tests {
        match session.launches(test.module, &test.info) {
            Ok(names) => {
                for name in names {
                    let canonical = tesserine_set::canonical_name(&name);
                    let known = wanted
                        .iter()
                        .find(|(_, n)| tesserine_set::canonical_name(n) == canonical);
                    let Some((first, _)) = known else {
                        wanted.push((test, name));
                        continue;
                    };
                    // A set tells kernels apart by their names only.
                    let kernel = name.split('<').next().unwrap_or_default();
                    if session.declaration(first.module, kernel)
                        != session.declaration(test.module, kernel)
                    {
                        return Err(Failure::Failed(format!(
                            "{} and {} launch two kernels called `{name}`, and a set holds one",
                            first.name, test.name
                        )));
                    }
                }
            }
            Err(diagnostics) => told.extend(diagnostics),
        }
    }
    // Some launches are to fail: what cannot be made is not in the set, and the test says whether that is right.
    let made: Vec<(SetKernel, Vec<String>)> = wanted
        .par_iter()
        .map(|(test, name)| {
            let mut served = Vec::new();
            let mut missing = Vec::new();
            for &target in targets {
                let made = if session.is_op(test.module, name) {
                    session
                        .instantiate_op(test.module, name, target)
                        .map(|_| ())
                } else {
                    session.instantiate(test.module, name, target).map(|_| ())
                };
                match made {
                    Ok(()) => served.push(target),
                    Err(why) => missing.extend(
                        why.iter()
                            .find(|d| d.code != codes::E0605)
                            .map(|d| format!("{}: {}: {}", target.name(), d.code, d.title)),
                    ),
                }
            }
            let source = test.name.rsplit_once("::").map_or("", |(file, _)| file);
            let kernel = SetKernel {
                source: source.to_owned(),
                instances: vec![name.clone()],
                targets: served,
                own_targets: true,
            };
            (kernel, missing)
        })
        .collect();
    for (kernel, missing) in &made {
        for why in missing {
            terminal::warn(format_args!(
                "note: `{}` is left out for {why}\n",
                kernel.instances[0]
            ));
        }
    }
    let kernels: Vec<SetKernel> = made.into_iter().map(|(kernel, _)| kernel).collect();
    if told.has_errors() {
        report(&told, session.sources());
        return Err(Failure::Reported);
    }
    if kernels.iter().all(|k| k.targets.is_empty()) {
        return Ok(None);
    }
    Ok(Some(SetFile {
        folder: PathBuf::new(),
        name: "tests".to_owned(),
        kernels,
    }))
}
