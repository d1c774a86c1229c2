//! `tess run`: a kernel or op on data, on the interpreter, the emulator or a GPU.

use std::{fs, path::Path};

use serde_json::{Value, json};
use tesserine::{Device, KernelSet};
use tesserine_compiler::{
    Module, Session,
    diagnostics::Diagnostics,
    interp::{self, Arg, InterpError, Tensor},
    ir::{op::Op, tile},
    span::Span,
    target::Target,
};
use tesserine_set::{Access, ParamKind, Signature};

use crate::{
    args::Run,
    arguments::{Argument, Given},
    compare::{self, Comparison, Tolerance},
    failure::{Failure, report},
    gpu::{self, CANARIES, Left, Written},
    npy,
    place::{self, Place},
    source,
    tensor::HostTensor,
    terminal::{self, say},
};

/// The target whose schedule the interpreter takes unless told otherwise.
const DEFAULT_TARGET: &str = "sm_90a";

pub fn run(args: &Run) -> Result<(), Failure> {
    let given = Given::parse(args)?;
    let tolerance = match &args.tol {
        Some(text) => {
            Some(Tolerance::parse(text).map_err(|e| Failure::Usage(format!("--tol: {e}")))?)
        }
        None => None,
    };
    let target = args.target.as_deref().map(source::target).transpose()?;
    let place = Place::parse(&args.device)?;
    let (device, left, arguments) = match place {
        Place::Interpreter => {
            if args.set.is_some() {
                return Err(Failure::Usage(
                    "--set holds code for GPUs, and the interpreter runs the source: name a --device, or leave out --set"
                        .to_owned(),
                ));
            }
            let target = match target {
                Some(target) => target,
                None => source::target(DEFAULT_TARGET)?,
            };
            let made = Made::from_source(args, target)?;
            let arguments = given.bind(made.signature(), &args.kernel, CANARIES[0])?;
            let left = made.interpret(&arguments)?;
            ("interp".to_owned(), left, arguments)
        }
        Place::Device(name) => on_device(args, &given, target, &name)?,
    };
    let expected = if args.check {
        // The same schedule as the code that ran.
        let made = Made::from_source(args, source::target(&left.target)?)?;
        Some(made.interpret(&arguments)?)
    } else {
        None
    };
    let tolerance = tolerance
        .unwrap_or_else(|| Tolerance::of(left.outputs.iter().map(|written| written.tensor.dtype)));
    let check: Option<Vec<Comparison>> = expected.map(|expected| {
        left.outputs
            .iter()
            .zip(&expected.outputs)
            .map(|(found, expected)| compare::compare(&found.tensor, &expected.tensor, tolerance))
            .collect()
    });
    let files = match &args.save {
        Some(folder) => save(folder, &left.outputs)?,
        None => vec![None; left.outputs.len()],
    };
    if args.json {
        let value = report_json(args, &device, &left, &files, tolerance, check.as_deref());
        terminal::json(&value)?;
    } else {
        print_report(args, &device, &left, &files, tolerance, check.as_deref())?;
    }
    verdict(&left, check.as_deref())
}

/// An instance made from its source.
struct Made {
    session: Session,
    what: What,
    target: Target,
}

enum What {
    Kernel(tile::Instance),
    Op(Op),
}

impl Made {
    fn from_source(args: &Run, target: Target) -> Result<Made, Failure> {
        let mut session = Session::new();
        let module: Module = source::load(&mut session, &args.file)?;
        let what = if session.is_op(module, &args.kernel) {
            let op = session.instantiate_op(module, &args.kernel, target);
            What::Op(source::reported(&session, op)?)
        } else {
            What::Kernel(source::instantiate(&session, module, &args.kernel, target)?)
        };
        Ok(Made {
            session,
            what,
            target,
        })
    }

    fn signature(&self) -> &Signature {
        match &self.what {
            What::Kernel(instance) => &instance.bodies[0].header.signature,
            What::Op(op) => &op.record.signature,
        }
    }

    /// Where its name stands in the source.
    fn span(&self) -> Span {
        match &self.what {
            What::Kernel(instance) => instance.bodies[0].header.span,
            What::Op(op) => op.span,
        }
    }

    fn interpret(&self, arguments: &[Option<Argument>]) -> Result<Left, Failure> {
        let params = &self.signature().params;
        let mut args = interp::Args::default();
        for (param, argument) in params.iter().zip(arguments) {
            let arg = match argument {
                Some(Argument::Scalar(value)) => Arg::Scalar(*value),
                Some(Argument::Tensor { tensor, .. }) => {
                    let shape = tensor.shape.iter().map(|&dim| dim as usize).collect();
                    let made = Tensor::from_bytes(tensor.dtype, shape, tensor.data.clone());
                    let made = made
                        .map_err(|error| Failure::Failed(format!("`{}`: {error}", param.name)))?;
                    Arg::Tensor(made)
                }
                None => continue,
            };
            args.insert(param.name.clone(), arg);
        }
        let ran = match &self.what {
            What::Kernel(instance) => {
                interp::launch(instance, &mut args).map(|report| report.unwritten)
            }
            What::Op(op) => interp::run_op(op, &mut args).map(|report| report.unwritten),
        };
        let unwritten = ran.map_err(|error| self.fault(&error))?;
        let mut outputs = Vec::new();
        for param in params {
            let ParamKind::View(view) = &param.kind else {
                continue;
            };
            let Some(Arg::Tensor(tensor)) = args.shift_remove(&param.name) else {
                continue;
            };
            if view.access == Access::Read {
                continue;
            }
            outputs.push(Written {
                name: param.name.clone(),
                tensor: HostTensor {
                    dtype: tensor.dtype,
                    shape: tensor.shape.iter().map(|&dim| dim as i64).collect(),
                    data: tensor.data,
                },
                unwritten: unwritten
                    .iter()
                    .find(|u| u.param == param.name)
                    .map_or(0, |u| u.count),
            });
        }
        Ok(Left {
            outputs,
            target: self.target.name().to_owned(),
        })
    }

    /// What the interpreter found: with its source where there is one, else a sentence.
    fn fault(&self, error: &InterpError) -> Failure {
        match error {
            _ if in_source(error) => {
                let mut diagnostics = Diagnostics::default();
                diagnostics.push(error.diagnostic(self.span()));
                report(&diagnostics, self.session.sources());
                Failure::Reported
            }
            _ => Failure::Failed(error.to_string()),
        }
    }
}

/// Whether a fault is of a place in the source.
fn in_source(error: &InterpError) -> bool {
    match error {
        InterpError::Fault { .. } | InterpError::Promise { .. } => true,
        InterpError::Launch { error, .. } => in_source(error),
        _ => false,
    }
}

fn on_device(
    args: &Run,
    given: &Given,
    target: Option<Target>,
    name: &str,
) -> Result<(String, Left, Vec<Option<Argument>>), Failure> {
    let (device, kernel) = match &args.set {
        Some(path) => {
            let set = KernelSet::open(path).map_err(gpu::failed)?;
            (None, gpu::Code::find(&set, &args.kernel)?)
        }
        None => {
            let (device, kernel) = compiled(args, target, name)?;
            (Some(device), kernel)
        }
    };
    let arguments = given.bind(kernel.signature(), &args.kernel, CANARIES[0])?;
    let device = match device {
        Some(device) => device,
        None => place::open(name)?,
    };
    let left = gpu::launch(&device, &kernel, target.map(Target::name), &arguments)?;
    Ok((place::described(&device), left, arguments))
}

#[cfg(not(feature = "llvm"))]
fn compiled(_: &Run, _: Option<Target>, name: &str) -> Result<(Device, gpu::Code), Failure> {
    Err(source::no_code(&format!("`tess run --device {name}`")))
}

/// Compiles the kernel for the device, or for the target that is named.
#[cfg(feature = "llvm")]
fn compiled(
    args: &Run,
    target: Option<Target>,
    name: &str,
) -> Result<(Device, gpu::Code), Failure> {
    use tesserine_compiler::emit::set::{self, BuildError, SetFile, SetKernel};

    source::readable(&args.file)?;
    let device = place::open(name)?;
    let target = match target {
        Some(target) => target,
        None => place::newest(&device)?,
    };
    let set = SetFile {
        folder: args.file.parent().map(Path::to_owned).unwrap_or_default(),
        name: "run".to_owned(),
        kernels: vec![SetKernel {
            source: args
                .file
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            instances: vec![args.kernel.clone()],
            targets: vec![target],
            own_targets: true,
        }],
    };
    let mut session = Session::new();
    let built = set::build(&mut session, &set, None, &|_, _| ()).map_err(|error| match error {
        BuildError::Diagnostics(diagnostics) => {
            report(&diagnostics, session.sources());
            Failure::Reported
        }
        other => Failure::Failed(other.to_string()),
    })?;
    let set = KernelSet::from_bytes(built.bytes).map_err(gpu::failed)?;
    let code = gpu::Code::find(&set, &args.kernel)?;
    Ok((device, code))
}

/// Writes each output as NAME.npy; the files' names.
fn save(folder: &Path, outputs: &[Written]) -> Result<Vec<Option<String>>, Failure> {
    fs::create_dir_all(folder).map_err(|e| Failure::file("make", folder, e))?;
    outputs
        .iter()
        .map(|written| {
            let path = folder.join(format!("{}.npy", written.name));
            npy::write(&path, &written.tensor)?;
            Ok(Some(path.display().to_string()))
        })
        .collect()
}

fn print_report(
    args: &Run,
    device: &str,
    left: &Left,
    files: &[Option<String>],
    tolerance: Tolerance,
    check: Option<&[Comparison]>,
) -> Result<(), Failure> {
    say!("{} on {device}, code for {}", args.kernel, left.target);
    for (written, file) in left.outputs.iter().zip(files) {
        let summary = compare::summarise(&written.tensor);
        let mut line = if written.tensor.len() == 0 {
            format!("{}: no elements", described(written))
        } else {
            format!(
                "{}: min {}, max {}, mean {}",
                described(written),
                short(summary.min),
                short(summary.max),
                short(summary.mean)
            )
        };
        for (count, what) in [(summary.nan, "NaN"), (summary.infinite, "infinite")] {
            if count > 0 {
                line.push_str(&format!(", {count} {what}"));
            }
        }
        if let Some(file) = file {
            line.push_str(&format!(" -> {file}"));
        }
        say!("{line}");
    }
    for (written, comparison) in left.outputs.iter().zip(check.unwrap_or_default()) {
        say!(
            "check {}: {} of {} elements beyond {} + {}·|expected|; largest error {} ({} relative)",
            written.name,
            comparison.beyond,
            comparison.elements,
            short(tolerance.abs),
            short(tolerance.rel),
            short(comparison.max_abs),
            short(comparison.max_rel)
        );
        for worst in &comparison.worst {
            say!(
                "    {}{:?}: {} where the interpreter has {}, off by {}",
                written.name,
                worst.position,
                worst.found,
                worst.expected,
                short(worst.error)
            );
        }
    }
    Ok(())
}

fn report_json(
    args: &Run,
    device: &str,
    left: &Left,
    files: &[Option<String>],
    tolerance: Tolerance,
    check: Option<&[Comparison]>,
) -> Value {
    let outputs: Vec<Value> = left
        .outputs
        .iter()
        .zip(files)
        .map(|(written, file)| {
            let summary = compare::summarise(&written.tensor);
            let finite = |value: f64| {
                if value.is_nan() {
                    Value::Null
                } else {
                    json!(value)
                }
            };
            json!({
                "name": written.name,
                "dtype": written.tensor.dtype.name(),
                "shape": written.tensor.shape,
                "min": finite(summary.min),
                "max": finite(summary.max),
                "mean": finite(summary.mean),
                "nan": summary.nan,
                "infinite": summary.infinite,
                "unwritten": written.unwritten,
                "file": file,
            })
        })
        .collect();
    let check = check.map(|comparisons| {
        let outputs: Vec<Value> = left
            .outputs
            .iter()
            .zip(comparisons)
            .map(|(written, comparison)| {
                let worst: Vec<Value> = comparison
                    .worst
                    .iter()
                    .map(|worst| {
                        json!({
                            "position": worst.position,
                            "found": number(worst.found),
                            "expected": number(worst.expected),
                            "error": number(worst.error),
                        })
                    })
                    .collect();
                json!({
                    "name": written.name,
                    "elements": comparison.elements,
                    "beyond": comparison.beyond,
                    "max_abs": number(comparison.max_abs),
                    "max_rel": number(comparison.max_rel),
                    "worst": worst,
                })
            })
            .collect();
        json!({
            "passed": comparisons.iter().all(Comparison::passed),
            "abs": tolerance.abs,
            "rel": tolerance.rel,
            "outputs": outputs,
        })
    });
    json!({
        "kernel": args.kernel,
        "device": device,
        "target": left.target,
        "outputs": outputs,
        "check": check,
    })
}

/// The failures that a run which came to its end may still have.
fn verdict(left: &Left, check: Option<&[Comparison]>) -> Result<(), Failure> {
    let mut reasons: Vec<String> = left
        .outputs
        .iter()
        .filter(|written| written.unwritten > 0)
        .map(|written| {
            format!(
                "the kernel left {} of {} elements of `{}` unwritten",
                written.unwritten,
                written.tensor.len(),
                written.name
            )
        })
        .collect();
    for (written, comparison) in left.outputs.iter().zip(check.unwrap_or_default()) {
        if !comparison.passed() {
            reasons.push(format!(
                "{} of {} elements of `{}` are beyond the tolerance",
                comparison.beyond, comparison.elements, written.name
            ));
        }
    }
    if reasons.is_empty() {
        Ok(())
    } else {
        Err(Failure::Failed(reasons.join("\nerror: ")))
    }
}

fn described(written: &Written) -> String {
    let dims: Vec<String> = written.tensor.shape.iter().map(i64::to_string).collect();
    format!(
        "{}: {}[{}]",
        written.name,
        written.tensor.dtype,
        dims.join(",")
    )
}

/// A number for people: four digits after the first.
fn short(value: f64) -> String {
    let magnitude = value.abs();
    if value == 0.0 || !value.is_finite() || (1e-3..1e5).contains(&magnitude) {
        let text = format!("{value:.5}");
        match text.contains('.') {
            true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
            false => text,
        }
    } else {
        format!("{value:.4e}")
    }
}

/// A number for JSON, which has no infinities.
fn number(value: f64) -> Value {
    if value.is_finite() {
        json!(value)
    } else if value.is_nan() {
        json!("nan")
    } else if value > 0.0 {
        json!("inf")
    } else {
        json!("-inf")
    }
}
