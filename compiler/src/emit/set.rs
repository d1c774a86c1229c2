//! Kernel sets: from a list of kernels to one file.
//!
//! ```toml
//! name = "default"
//! targets = "all"                                  # or "sm_80,sm_90a", or ["sm_80", "sm_90a"]
//! [[kernel]]
//! source = "norm/rmsnorm.tess"                     # relative to this file
//! instances = ["rmsnorm<f16>", "rmsnorm<bf16>"]
//! targets = ["sm_80", "sm_90a"]                    # optional
//! ```
//!
//! An instance may be an `op`: the set then has it and what it launches, once however many ops launch it.
//!
//! Compilation is parallel over instances and targets; what is written is in the order of the list, whoever finished first.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::target::Target;

/// What is wrong with a list of kernels.
#[derive(Debug, thiserror::Error)]
pub enum SetFileError {
    #[error("cannot read {}: {error}", path.display())]
    Read {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("{}: {message}", path.display())]
    Toml { path: PathBuf, message: String },
    #[error("{}: {message}", path.display())]
    Targets { path: PathBuf, message: String },
    #[error("{}: the name `{name}` is no file name: letters, digits, `-`, `_` and `.` are allowed", path.display())]
    Name { path: PathBuf, name: String },
    #[error("{}: the instance `{instance}` is listed twice", path.display())]
    Twice { path: PathBuf, instance: String },
    #[error("{}: the set lists no kernels", path.display())]
    Empty { path: PathBuf },
}

/// A list of kernels, read.
#[derive(Clone, Debug, PartialEq)]
pub struct SetFile {
    /// The file's folder, to which sources are relative.
    pub folder: PathBuf,
    pub name: String,
    pub kernels: Vec<SetKernel>,
}

/// Instances of one source file.
#[derive(Clone, Debug, PartialEq)]
pub struct SetKernel {
    /// As written, relative to the set file's folder.
    pub source: String,
    pub instances: Vec<String>,
    /// In the order of targets.
    pub targets: Vec<Target>,
    /// Whether the kernel names its targets itself: it is compiled for no others.
    pub own_targets: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    name: String,
    targets: TargetsText,
    #[serde(default)]
    kernel: Vec<KernelText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KernelText {
    source: String,
    instances: Vec<String>,
    targets: Option<TargetsText>,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "targets are `\"all\"`, a line as `\"sm_80,sm_90a\"`, or a list of names"
)]
enum TargetsText {
    Line(String),
    List(Vec<String>),
}

impl TargetsText {
    fn parse(&self) -> Result<Vec<Target>, String> {
        let line = match self {
            TargetsText::Line(line) => line.clone(),
            TargetsText::List(list) => list.join(","),
        };
        let mut targets = Target::parse_list(&line).map_err(|e| e.to_string())?;
        targets.sort();
        targets.dedup();
        Ok(targets)
    }
}

impl SetFile {
    /// Reads a list of kernels.
    pub fn read(path: &Path) -> Result<SetFile, SetFileError> {
        let text = fs::read_to_string(path).map_err(|error| SetFileError::Read {
            path: path.to_owned(),
            error,
        })?;
        SetFile::parse(path, &text)
    }

    /// The list in `text`, which came from `path`.
    pub fn parse(path: &Path, text: &str) -> Result<SetFile, SetFileError> {
        let path = || path.to_owned();
        let text: Text = toml::from_str(text).map_err(|error| SetFileError::Toml {
            path: path(),
            message: error.to_string().trim_end().to_owned(),
        })?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if text.name.is_empty() || text.name.starts_with('.') || !text.name.chars().all(plain) {
            return Err(SetFileError::Name {
                path: path(),
                name: text.name,
            });
        }
        let targets = |text: &TargetsText| {
            text.parse().map_err(|message| SetFileError::Targets {
                path: path(),
                message,
            })
        };
        let all = targets(&text.targets)?;
        let mut names: Vec<String> = Vec::new();
        let mut kernels = Vec::new();
        for kernel in text.kernel {
            for instance in &kernel.instances {
                let name = tesserine_set::canonical_name(instance);
                if names.contains(&name) {
                    return Err(SetFileError::Twice {
                        path: path(),
                        instance: instance.clone(),
                    });
                }
                names.push(name);
            }
            kernels.push(SetKernel {
                source: kernel.source,
                instances: kernel.instances,
                own_targets: kernel.targets.is_some(),
                targets: kernel.targets.as_ref().map_or(Ok(all.clone()), targets)?,
            });
        }
        if names.is_empty() {
            return Err(SetFileError::Empty { path: path() });
        }
        let path = path();
        Ok(SetFile {
            folder: path.parent().map(Path::to_owned).unwrap_or_default(),
            name: text.name,
            kernels,
        })
    }

    /// Compiles for `targets` instead of the set's; of the kernels that name targets themselves, for those of them.
    pub fn retarget(&mut self, targets: &[Target]) {
        for kernel in &mut self.kernels {
            if kernel.own_targets {
                kernel.targets.retain(|t| targets.contains(t));
            } else {
                kernel.targets = targets.to_vec();
            }
        }
    }
}

#[cfg(feature = "llvm")]
pub use build::{Body, BuildError, Built, build};

#[cfg(feature = "llvm")]
mod build {
    use std::time::{Duration, Instant};

    use rayon::prelude::*;
    use tesserine_set::{
        BodyRecord, Instance, Manifest, ModuleKind, OpRecord, Persistent, Resources, SetWriter,
        WriteError, canonical_name,
    };

    use super::{SetFile, SetKernel};
    use crate::{
        Module, Session,
        diagnostics::Diagnostics,
        emit::{
            ptxas::{Assembled, Ptxas, PtxasError},
            stage,
        },
        ir::tile,
        target::Target,
    };

    /// Why there is no set.
    #[derive(Debug, thiserror::Error)]
    pub enum BuildError {
        /// The sources have errors. They belong to the session.
        #[error("the sources have errors")]
        Diagnostics(Diagnostics),
        #[error("`{kernel}`: {error}")]
        Ptxas { kernel: String, error: PtxasError },
        #[error(
            "`{kernel}`: its parameters for {target} differ from those for {first}; list it apart for each"
        )]
        Signature {
            kernel: String,
            first: &'static str,
            target: &'static str,
        },
        #[error("no kernel is left: none of the set's kernels is for the targets asked for")]
        Nothing,
        #[error(transparent)]
        Write(#[from] WriteError),
    }

    /// One compiled body, with its figures.
    #[derive(Clone, Debug)]
    pub struct Body {
        /// The instance, as the set file writes it.
        pub kernel: String,
        pub target: Target,
        /// Which body of the instance, in the order in which a launch tries them.
        pub index: usize,
        /// What must hold for it to run, as source; nothing for the general one.
        pub facts: Vec<String>,
        /// Time from source to PTX, parsing apart.
        pub time: Duration,
        pub ptx: String,
        pub cubin: Option<Vec<u8>>,
        /// Where `ptxas` ran; shared memory with the dynamic part.
        pub resources: Option<Resources>,
        /// What `ptxas` says of lost performance.
        pub losses: Vec<String>,
    }

    impl Body {
        /// What tells it from the other bodies of its instance: nothing for the first, `general` for the one without facts, else
        /// its number.
        pub fn label(&self) -> String {
            match (self.index, self.facts.is_empty()) {
                (0, _) => String::new(),
                (_, true) => "general".to_owned(),
                (index, false) => index.to_string(),
            }
        }
    }

    /// A set, not yet on disk.
    #[derive(Clone, Debug)]
    pub struct Built {
        /// The file's bytes.
        pub bytes: Vec<u8>,
        /// In the order of the set file, then of targets.
        pub bodies: Vec<Body>,
    }

    /// One instance for one target.
    struct Part {
        instance: Instance,
        bodies: Vec<Body>,
    }

    /// Compiles `set`, whose sources `session` loads relative to the set's folder. `progress` is called with the name of each
    /// instance and target when it is done. Cubins are made where a `ptxas` is given.
    pub fn build(
        session: &mut Session,
        set: &SetFile,
        ptxas: Option<&Ptxas>,
        progress: &(dyn Fn(&str, Target) + Sync),
    ) -> Result<Built, BuildError> {
        let mut told = Diagnostics::default();
        let mut work: Vec<Work> = Vec::new();
        let mut ops = Vec::new();
        for kernel in &set.kernels {
            if kernel.targets.is_empty() {
                continue;
            }
            match session.load(&set.folder.join(&kernel.source), Some(&set.folder)) {
                Ok(module) => {
                    for instance in &kernel.instances {
                        if session.is_op(module, instance) {
                            ops.push((module, kernel, instance.as_str()));
                            continue;
                        }
                        for &target in &kernel.targets {
                            work.push(Work {
                                module,
                                source: kernel.source.clone(),
                                name: instance.clone(),
                                target,
                                made: None,
                            });
                        }
                    }
                }
                Err(diagnostics) => told.extend(diagnostics),
            }
        }
        if told.has_errors() {
            return Err(BuildError::Diagnostics(told));
        }
        let session: &Session = session;
        let mut records = Vec::new();
        for (module, kernel, name) in ops {
            match expand_op(session, module, kernel, name, &mut work) {
                Ok(part) => records.push(part),
                Err(BuildError::Diagnostics(diagnostics)) => told.extend(diagnostics),
                Err(error) => return Err(error),
            }
        }
        if told.has_errors() {
            return Err(BuildError::Diagnostics(told));
        }
        if work.is_empty() {
            return Err(BuildError::Nothing);
        }
        let parts: Vec<Result<Part, BuildError>> = work
            .par_iter()
            .map(|work| {
                let part = compile(session, work, ptxas);
                progress(&work.name, work.target);
                part
            })
            .collect();
        // All errors of the sources at once; of the rest, the first.
        let mut parts_done = Vec::new();
        let mut failed = None;
        for part in parts {
            match part {
                Ok(part) => parts_done.push(part),
                Err(BuildError::Diagnostics(diagnostics)) => told.extend(diagnostics),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if told.has_errors() {
            return Err(BuildError::Diagnostics(told));
        }
        if let Some(error) = failed {
            return Err(error);
        }
        write(&set.name, parts_done, records)
    }

    /// One instance to compile for one target.
    struct Work {
        module: Module,
        /// As the set writes it.
        source: String,
        name: String,
        target: Target,
        /// If it is made already.
        made: Option<tile::Instance>,
    }

    /// An op of the set, and the names of the instances that its steps index.
    struct OpPart {
        record: OpRecord,
        launched: Vec<String>,
    }

    /// Makes the op `name` for each target, and adds to `work` what it launches and is not there.
    fn expand_op(
        session: &Session,
        module: Module,
        kernel: &SetKernel,
        name: &str,
        work: &mut Vec<Work>,
    ) -> Result<OpPart, BuildError> {
        let mut part: Option<OpPart> = None;
        let mut made = Vec::new();
        for &target in &kernel.targets {
            let op = session
                .instantiate_op(module, name, target)
                .map_err(BuildError::Diagnostics)?;
            let launched: Vec<String> = op
                .instances
                .iter()
                .map(|l| l.instance.name.clone())
                .collect();
            let record = OpRecord {
                name: name.to_owned(),
                source: kernel.source.clone(),
                source_hash: session.source_hash(module),
                ..op.record
            };
            match &part {
                Some(first) if first.record != record || first.launched != launched => {
                    return Err(BuildError::Signature {
                        kernel: name.to_owned(),
                        first: kernel.targets[0].name(),
                        target: target.name(),
                    });
                }
                Some(_) => {}
                None => part = Some(OpPart { record, launched }),
            }
            made.push((target, op.instances));
        }
        let part = part.ok_or(BuildError::Nothing)?;
        for (index, launched) in part.launched.iter().enumerate() {
            for (target, instances) in &mut made {
                let one = &mut instances[index];
                let known = work.iter().any(|w| {
                    w.module == one.module
                        && w.target == *target
                        && canonical_name(&w.name) == canonical_name(launched)
                });
                if known {
                    continue;
                }
                // The targets of an instance follow each other.
                let last = work.iter().rposition(|w| {
                    w.module == one.module && canonical_name(&w.name) == canonical_name(launched)
                });
                let item = Work {
                    module: one.module,
                    source: session.file_name(one.module).to_owned(),
                    name: launched.clone(),
                    target: *target,
                    made: Some(one.instance.clone()),
                };
                work.insert(last.map_or(work.len(), |l| l + 1), item);
            }
        }
        Ok(part)
    }

    fn compile(session: &Session, work: &Work, ptxas: Option<&Ptxas>) -> Result<Part, BuildError> {
        let Work {
            module,
            ref source,
            ref name,
            target,
            ref made,
        } = *work;
        let start = Instant::now();
        let instance = match made {
            Some(instance) => instance.clone(),
            None => session
                .instantiate(module, name, target)
                .map_err(BuildError::Diagnostics)?,
        };
        let shared = start.elapsed() / instance.bodies.len().max(1) as u32;
        let mut bodies = Vec::new();
        let mut records = Vec::new();
        for (index, kernel) in instance.bodies.iter().enumerate() {
            let start = Instant::now();
            let compiled = stage::compile(kernel, target, session.sources())
                .map_err(BuildError::Diagnostics)?;
            let time = start.elapsed() + shared;
            let assembled: Option<Assembled> = ptxas
                .map(|ptxas| ptxas.assemble(&compiled.ptx, target))
                .transpose()
                .map_err(|error| BuildError::Ptxas {
                    kernel: name.to_owned(),
                    error,
                })?;
            let resources = assembled.as_ref().map(|a| Resources {
                shared_bytes: a.resources.shared_bytes + compiled.shared_bytes,
                ..a.resources
            });
            records.push(BodyRecord {
                target: target.name().to_owned(),
                facts: kernel.header.facts.clone(),
                cost: kernel.header.cost.clone(),
                entry: compiled.entry,
                grid: compiled.grid,
                persistent: kernel.header.persistent.then_some(Persistent {
                    blocks_per_sm: kernel.header.schedule.blocks_per_sm,
                    dynamic: kernel.header.dynamic,
                }),
                cluster: kernel.header.cluster(),
                overlap: kernel.header.schedule.overlap,
                threads: compiled.threads,
                shared_bytes: compiled.shared_bytes,
                abi: compiled.abi,
                tensor_maps: compiled.tensor_maps,
                ptx_version: compiled.ptx_version,
                ptx: 0,
                cubin: None,
                resources,
            });
            let (cubin, losses) =
                assembled.map_or((None, Vec::new()), |a| (Some(a.cubin), a.losses));
            bodies.push(Body {
                kernel: name.to_owned(),
                target,
                index,
                facts: kernel
                    .header
                    .facts
                    .iter()
                    .map(|fact| kernel.header.signature.show_fact(fact))
                    .collect(),
                time,
                ptx: compiled.ptx,
                cubin,
                resources,
                losses,
            });
        }
        let header = &stage::body(&instance, true).header;
        Ok(Part {
            instance: Instance {
                name: name.to_owned(),
                source: source.to_owned(),
                source_hash: session.source_hash(module),
                signature: header.signature.clone(),
                requires: header.requires.clone(),
                bodies: records,
                unordered: instance.bodies.iter().any(crate::sema::is_unordered),
                tune: instance.tune.clone(),
            },
            bodies,
        })
    }

    fn write(name: &str, parts: Vec<Part>, ops: Vec<OpPart>) -> Result<Built, BuildError> {
        let mut writer = SetWriter::new(Manifest {
            name: name.to_owned(),
            compiler: env!("CARGO_PKG_VERSION").to_owned(),
            instances: Vec::new(),
            ops: Vec::new(),
        });
        let mut instances: Vec<Instance> = Vec::new();
        let mut bodies = Vec::new();
        for mut part in parts {
            for (record, body) in part.instance.bodies.iter_mut().zip(&part.bodies) {
                record.ptx = writer.add_module(ModuleKind::Ptx, body.ptx.as_bytes());
                record.cubin = body
                    .cubin
                    .as_ref()
                    .map(|cubin| writer.add_module(ModuleKind::Cubin, cubin));
            }
            // The targets of an instance follow each other.
            match instances.last_mut() {
                Some(last) if last.name == part.instance.name => {
                    if last.signature != part.instance.signature
                        || last.requires != part.instance.requires
                    {
                        let first = bodies
                            .iter()
                            .find(|b: &&Body| b.kernel == last.name)
                            .map_or("another target", |b| b.target.name());
                        return Err(BuildError::Signature {
                            kernel: last.name.clone(),
                            first,
                            target: part.bodies[0].target.name(),
                        });
                    }
                    last.bodies.append(&mut part.instance.bodies);
                    for tune in part.instance.tune {
                        if !last.tune.contains(&tune) {
                            last.tune.push(tune);
                        }
                    }
                }
                _ => instances.push(part.instance),
            }
            bodies.append(&mut part.bodies);
        }
        for OpPart {
            mut record,
            launched,
        } in ops
        {
            let place = |name: &String| {
                let wanted = canonical_name(name);
                let mut names = instances.iter().map(|i| canonical_name(&i.name));
                names.position(|n| n == wanted)
            };
            for step in &mut record.steps {
                let index = launched.get(step.instance as usize).and_then(place);
                step.instance = index.map_or(u32::MAX, |i| i as u32);
            }
            writer.manifest.ops.push(record);
        }
        writer.manifest.instances = instances;
        Ok(Built {
            bytes: writer.finish()?,
            bodies,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<SetFile, String> {
        SetFile::parse(Path::new("sets/a.toml"), text).map_err(|e| e.to_string())
    }

    #[test]
    fn a_list_is_read() {
        let mut set = parse(
            "name = \"a\"\ntargets = \"all\"\n\
             [[kernel]]\nsource = \"x.tess\"\ninstances = [\"k<f16>\"]\n\
             [[kernel]]\nsource = \"y.tess\"\ninstances = [\"l\"]\ntargets = [\"sm_90a\", \"sm_80\"]\n",
        )
        .unwrap();
        assert_eq!(set.folder, Path::new("sets"));
        assert_eq!(set.kernels[0].targets, Target::ALL);
        let names: Vec<_> = set.kernels[1].targets.iter().map(|t| t.name()).collect();
        assert_eq!(names, ["sm_80", "sm_90a"]);
        set.retarget(&[Target::parse("sm_75").unwrap()]);
        assert_eq!(set.kernels[0].targets.len(), 1);
        assert!(set.kernels[1].targets.is_empty());
    }

    #[test]
    fn mistakes_are_named() {
        let kernel = "[[kernel]]\nsource = \"x.tess\"\ninstances = [\"k<f16>\"]\n";
        for (text, part) in [
            (String::new(), "name"),
            (
                "name = \"a\"\ntargets = \"all\"\n".to_owned(),
                "lists no kernels",
            ),
            (
                format!("name = \"a/b\"\ntargets = \"all\"\n{kernel}"),
                "`a/b`",
            ),
            (
                format!("name = \"a\"\ntargets = \"sm_10\"\n{kernel}"),
                "sm_10",
            ),
            (
                format!("name = \"a\"\ntargets = \"all\"\n{kernel}{kernel}"),
                "listed twice",
            ),
            (
                format!("name = \"a\"\ntargets = \"all\"\ncolour = 1\n{kernel}"),
                "colour",
            ),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(part) && error.contains("a.toml"), "{error}");
        }
    }
}
