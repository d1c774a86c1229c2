//! `tess build`: a kernel set from its list.

#[cfg(not(feature = "llvm"))]
pub fn run(_: &crate::args::Build) -> Result<(), crate::failure::Failure> {
    Err(crate::source::no_code("`tess build`"))
}

#[cfg(feature = "llvm")]
pub use with_llvm::{failed, run};

#[cfg(feature = "llvm")]
mod with_llvm {
    use std::{
        fs,
        path::{Path, PathBuf},
        time::Instant,
    };

    use serde_json::{Value, json};
    use tesserine_compiler::{
        Session,
        emit::{
            ptxas::{Ptxas, PtxasError},
            set::{self, Body, BuildError, Built, SetFile},
        },
        target::Target,
    };

    use crate::{
        args::{Artifact, Build},
        failure::{Failure, report},
        terminal,
    };

    pub fn run(args: &Build) -> Result<(), Failure> {
        let start = Instant::now();
        let targets = match &args.target {
            Some(list) => {
                Some(Target::parse_list(list).map_err(|e| Failure::Usage(e.to_string()))?)
            }
            None => None,
        };
        let set = if args.tests.is_empty() {
            let mut set = SetFile::read(&args.set).map_err(plain)?;
            if let Some(targets) = &targets {
                set.retarget(targets);
            }
            set
        } else {
            crate::test::set_of_tests(&args.tests, targets.as_deref().unwrap_or(&Target::ALL))?
        };
        let ptxas = assembler(&args.emit)?;
        let mut session = Session::new();
        let steps: usize = set
            .kernels
            .iter()
            .map(|kernel| kernel.instances.len() * kernel.targets.len())
            .sum();
        let bar = terminal::progress(steps as u64);
        let built = set::build(&mut session, &set, ptxas.as_ref(), &|kernel, target| {
            bar.set_message(format!("{kernel} {}", target.name()));
            bar.inc(1);
        });
        bar.finish_and_clear();
        let built = built.map_err(|error| failed(error, &session))?;
        let output = args
            .output
            .clone()
            .unwrap_or_else(|| Path::new("target/sets").join(format!("{}.tset", set.name)));
        save(&output, &built.bytes)?;
        if let Some(folder) = &args.out_dir {
            write_parts(folder, &built, &args.emit)?;
        }
        let elapsed = start.elapsed().as_millis() as u64;
        if args.json {
            return terminal::json(&json!({
                "name": set.name,
                "file": output.display().to_string(),
                "bytes": built.bytes.len(),
                "ptxas": ptxas.as_ref().map(|p| p.version()),
                "ms": elapsed,
                "bodies": built.bodies.iter().map(body_json).collect::<Vec<_>>(),
            }));
        }
        let rows: Vec<Vec<String>> = built.bodies.iter().map(row).collect();
        let header = [
            "kernel",
            "target",
            "body",
            "ms",
            "registers",
            "spills",
            "shared",
        ];
        terminal::print(format_args!(
            "{}\n{}: {} bodies, {} bytes, {:.1} s\n",
            terminal::table(&header, &rows, &[3, 4, 5, 6]),
            output.display(),
            built.bodies.len(),
            built.bytes.len(),
            elapsed as f64 / 1e3
        ))?;
        for body in &built.bodies {
            for loss in &body.losses {
                terminal::warn(format_args!(
                    "warning: {} for {}: {loss}\n",
                    body.kernel,
                    body.target.name()
                ));
            }
        }
        if ptxas.is_none() && !args.emit.contains(&Artifact::Ptx) {
            terminal::warn(format_args!(
                "note: no `ptxas` was found, so the set holds PTX only and has no figures; `cargo xtask setup` installs one\n"
            ));
        }
        Ok(())
    }

    /// The assembler, if cubins are wanted; they must be made if they are asked for by name.
    fn assembler(emit: &[Artifact]) -> Result<Option<Ptxas>, Failure> {
        if emit.contains(&Artifact::Cubin) {
            return Ptxas::find().map(Some).map_err(plain);
        }
        if !emit.is_empty() {
            return Ok(None);
        }
        match Ptxas::find() {
            Ok(ptxas) => Ok(Some(ptxas)),
            Err(PtxasError::NotFound(_)) => Ok(None),
            Err(error) => Err(plain(error)),
        }
    }

    /// Why there is no set; errors of the sources, which `session` holds, are reported.
    pub fn failed(error: BuildError, session: &Session) -> Failure {
        match error {
            BuildError::Diagnostics(diagnostics) => {
                report(&diagnostics, session.sources());
                Failure::Reported
            }
            other => plain(other),
        }
    }

    fn plain(error: impl std::fmt::Display) -> Failure {
        Failure::Failed(error.to_string())
    }

    /// Writes the set under another name first, so that a reader never sees half of it.
    fn save(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
        if let Some(folder) = path.parent().filter(|f| !f.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(|e| Failure::file("make", folder, e))?;
        }
        // A device or a pipe is written to, not replaced.
        if fs::metadata(path).is_ok_and(|m| !m.is_file() && !m.is_dir()) {
            return fs::write(path, bytes).map_err(|e| Failure::file("write", path, e));
        }
        let mut partial = path.as_os_str().to_owned();
        partial.push(format!(".{}.partial", std::process::id()));
        let partial = PathBuf::from(partial);
        fs::write(&partial, bytes)
            .and_then(|()| fs::rename(&partial, path))
            .map_err(|e| {
                // What is left of it is of no use; that it cannot be removed adds nothing to the error.
                let _ = fs::remove_file(&partial);
                Failure::file("write", path, e)
            })
    }

    /// Writes each body as KERNEL.TARGET.ptx, and .cubin where there is one.
    fn write_parts(folder: &Path, built: &Built, emit: &[Artifact]) -> Result<(), Failure> {
        fs::create_dir_all(folder).map_err(|e| Failure::file("make", folder, e))?;
        let wanted = |kind: Artifact| emit.is_empty() || emit.contains(&kind);
        for body in &built.bodies {
            let label = match body.label() {
                label if label.is_empty() => label,
                label => format!(".{label}"),
            };
            // The instance's name holds no `/`: compile-time arguments are names and numbers.
            let stem = format!(
                "{}.{}{label}",
                body.kernel.replace(['/', '\\'], "_"),
                body.target.name()
            );
            let write = |extension: &str, bytes: &[u8]| {
                let path = folder.join(format!("{stem}.{extension}"));
                fs::write(&path, bytes).map_err(|e| Failure::file("write", &path, e))
            };
            if wanted(Artifact::Ptx) {
                write("ptx", body.ptx.as_bytes())?;
            }
            if let (true, Some(cubin)) = (wanted(Artifact::Cubin), &body.cubin) {
                write("cubin", cubin)?;
            }
        }
        Ok(())
    }

    fn row(body: &Body) -> Vec<String> {
        let figure = |value: Option<u32>| value.map_or_else(|| "-".to_owned(), |v| v.to_string());
        let resources = body.resources;
        vec![
            body.kernel.clone(),
            body.target.name().to_owned(),
            body.label(),
            format!("{:.1}", body.time.as_secs_f64() * 1e3),
            figure(resources.map(|r| r.registers)),
            figure(resources.map(|r| r.spill_store_bytes + r.spill_load_bytes)),
            figure(resources.map(|r| r.shared_bytes)),
        ]
    }

    fn body_json(body: &Body) -> Value {
        let resources = body.resources;
        json!({
            "kernel": body.kernel,
            "target": body.target.name(),
            "body": body.index,
            "facts": body.facts,
            "ms": (body.time.as_secs_f64() * 1e6).round() / 1e3,
            "registers": resources.map(|r| r.registers),
            "spill_store_bytes": resources.map(|r| r.spill_store_bytes),
            "spill_load_bytes": resources.map(|r| r.spill_load_bytes),
            "shared_bytes": resources.map(|r| r.shared_bytes),
            "losses": body.losses,
        })
    }
}
