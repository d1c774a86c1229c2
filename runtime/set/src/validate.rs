//! What a manifest must satisfy before anything trusts it. The writer refuses to write, and the reader to open, a set
//! whose manifest breaks one of these rules:
//!
//! - names of instances, of an instance's dimensions and of its parameters are not empty and occur once;
//! - every formula reduces to one value, is of bounded length, and names dimensions and parameters that exist: scalars
//!   only where a parameter is an integer or bool;
//! - facts name views, alignments are powers of two, defaults are values of their type;
//! - names of ops are no other's; their workspaces, launches and arguments refer to what is there;
//! - every body names modules of the right kind, a target, an entry, and threads and arguments that a launch can have.

use std::collections::BTreeSet;

use crate::{
    AbiArg, BodyRecord, Fact, Formula, FormulaOp, Instance, Manifest, ModuleKind, OpRecord, Param,
    ParamKind, Persistent, Signature, StepArg, Term, ViewBase, ViewStep,
    bind::{ScalarValue, scalar_fits},
};

/// A rule that a manifest breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    #[error("the manifest has two instances `{0}`")]
    RepeatedInstance(String),
    #[error("op `{op}`: {problem}")]
    Op { op: String, problem: OpProblem },
    #[error("instance `{instance}`: {problem}")]
    Instance {
        instance: String,
        problem: InstanceProblem,
    },
}

/// What is wrong with one instance.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstanceProblem {
    #[error("its name is empty or too long")]
    Name,
    #[error("the name `{0}` is empty, too long, or given twice")]
    RepeatedName(String),
    #[error("`{param}` has a default that is no {dtype}")]
    Default { param: String, dtype: crate::DType },
    #[error("`{param}` has an alignment of {bytes} bytes, which is no power of two")]
    Alignment { param: String, bytes: u32 },
    #[error("`{param}` has {rank} dimensions, more than {MAX_RANK}")]
    Rank { param: String, rank: usize },
    #[error("{place} is malformed")]
    Formula { place: String },
    #[error("{place} is about a parameter that is no tensor")]
    FactParam { place: String },
    #[error("it has no body")]
    NoBody,
    #[error("body {body}: `{target}` is no target")]
    Target { body: usize, target: String },
    #[error("body {body}: its entry has no usable name")]
    Entry { body: usize },
    #[error("body {body}: {threads} threads are not from 1 to 1024")]
    Threads { body: usize, threads: u32 },
    #[error("body {body}: it wants {bytes} bytes of shared memory, more than any target has")]
    SharedMemory { body: usize, bytes: u32 },
    #[error("body {body}: its grid has {axes} axes, more than {MAX_RANK}")]
    GridRank { body: usize, axes: usize },
    #[error("body {body}: {blocks} blocks of a cluster are not from 1 to 16")]
    Cluster { body: usize, blocks: u32 },
    #[error("body {body}: {blocks} blocks a multiprocessor are not from 1 to 32")]
    BlocksPerSm { body: usize, blocks: u32 },
    #[error("body {body}: it refers to {kind} module {index}, which the set does not have")]
    Module {
        body: usize,
        kind: ModuleKind,
        index: u32,
    },
    #[error("body {body}: argument {arg} refers to a parameter or dimension that does not fit it")]
    Argument { body: usize, arg: usize },
    #[error("body {body}: tensor map {map} is of no view, or has no such shape")]
    TensorMap { body: usize, map: usize },
    #[error("body {body}: {count} arguments are more than {MAX_ARGS}")]
    Arguments { body: usize, count: usize },
}

/// What is wrong with one op.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpProblem {
    #[error(transparent)]
    Shared(#[from] InstanceProblem),
    #[error("it launches nothing")]
    NoStep,
    #[error("it has {count} {what}, more than {MAX_STEPS}")]
    TooMany { what: &'static str, count: usize },
    #[error("launch {step}: the set has no instance {instance}")]
    NoInstance { step: usize, instance: u32 },
    #[error("launch {step}: {given} arguments for {expected} parameters")]
    Count {
        step: usize,
        given: usize,
        expected: usize,
    },
    #[error("launch {step}: argument {arg} does not fit its parameter")]
    Argument { step: usize, arg: usize },
}

/// Launches, workspaces, or transformations of a view that an op can have.
const MAX_STEPS: usize = 1024;
/// Dimensions that a view or a grid can have.
pub const MAX_RANK: usize = 32;
/// Arguments that an entry can have: 4 KiB of eight bytes.
pub const MAX_ARGS: usize = 512;
/// Terms that a formula can have.
const MAX_TERMS: usize = 4096;
/// Bytes that a name can have.
const MAX_NAME: usize = 4096;
/// Bytes of shared memory that no block exceeds: 228 KiB is what the largest SM has in all.
const MAX_SHARED: u32 = 228 << 10;

impl Manifest {
    /// Checks the manifest of a set whose modules are of these kinds.
    pub fn validate(&self, modules: &[ModuleKind]) -> Result<(), ManifestError> {
        let mut names = BTreeSet::new();
        for instance in &self.instances {
            if !names.insert(canonical_name(&instance.name)) {
                return Err(ManifestError::RepeatedInstance(instance.name.clone()));
            }
            check_instance(instance, modules).map_err(|problem| ManifestError::Instance {
                instance: instance.name.chars().take(200).collect(),
                problem,
            })?;
        }
        for op in &self.ops {
            if !names.insert(canonical_name(&op.name)) {
                return Err(ManifestError::RepeatedInstance(op.name.clone()));
            }
            check_op(op, &self.instances).map_err(|problem| ManifestError::Op {
                op: op.name.chars().take(200).collect(),
                problem,
            })?;
        }
        Ok(())
    }
}

fn check_op(op: &OpRecord, instances: &[Instance]) -> Result<(), OpProblem> {
    let signature = &op.signature;
    check_head(&op.name, signature, &op.requires)?;
    let counts = [
        ("launches", op.steps.len()),
        ("workspaces", op.workspaces.len()),
    ];
    if op.steps.is_empty() {
        return Err(OpProblem::NoStep);
    }
    if let Some((what, count)) = counts.into_iter().find(|(_, count)| *count > MAX_STEPS) {
        return Err(OpProblem::TooMany { what, count });
    }
    unique(op.workspaces.iter().map(|w| &w.name))?;
    for workspace in &op.workspaces {
        if workspace.extents.len() > MAX_RANK {
            return Err(OpProblem::Shared(InstanceProblem::Rank {
                param: workspace.name.clone(),
                rank: workspace.extents.len(),
            }));
        }
        for formula in workspace.extents.iter().chain(&workspace.when) {
            check_formula(signature, formula, || {
                format!("the size of workspace `{}`", workspace.name)
            })?;
        }
    }
    for (index, step) in op.steps.iter().enumerate() {
        let instance = instances.get(step.instance as usize);
        let instance = instance.ok_or(OpProblem::NoInstance {
            step: index,
            instance: step.instance,
        })?;
        if let Some(when) = &step.when {
            check_formula(signature, when, || {
                format!("the condition of launch {index}")
            })?;
        }
        let params = &instance.signature.params;
        if step.args.len() != params.len() {
            return Err(OpProblem::Count {
                step: index,
                given: step.args.len(),
                expected: params.len(),
            });
        }
        for (place, (arg, param)) in step.args.iter().zip(params).enumerate() {
            let unfit = OpProblem::Argument {
                step: index,
                arg: place,
            };
            let scalar = match param.kind {
                ParamKind::Scalar { dtype, .. } => Some(dtype),
                ParamKind::View(_) => None,
            };
            match arg {
                None => {}
                Some(StepArg::Int(formula)) if scalar.is_some() => {
                    check_formula(signature, formula, || {
                        format!("argument {place} of launch {index}")
                    })?;
                }
                Some(StepArg::Float(_)) if scalar.is_some_and(|t| t.is_float()) => {}
                Some(StepArg::Scalar { param }) if scalar.is_some() => {
                    let of = signature.params.get(*param as usize);
                    if !of.is_some_and(|p| matches!(p.kind, ParamKind::Scalar { .. })) {
                        return Err(unfit);
                    }
                }
                Some(StepArg::View(view)) if scalar.is_none() => {
                    let there = match view.base {
                        ViewBase::Param(i) => {
                            let of = signature.params.get(i as usize);
                            of.is_some_and(|p| matches!(p.kind, ParamKind::View(_)))
                        }
                        ViewBase::Workspace(i) => (i as usize) < op.workspaces.len(),
                    };
                    if !there || view.steps.len() > MAX_STEPS {
                        return Err(unfit);
                    }
                    for step in &view.steps {
                        let formulas: &[&Formula] = match step {
                            ViewStep::Slice { from, to, .. } => &[from, to],
                            ViewStep::Select { index, .. } => &[index],
                            ViewStep::Split { by, .. } => &[by],
                            ViewStep::Permute(_)
                            | ViewStep::Merge { .. }
                            | ViewStep::Bitcast(_) => &[],
                        };
                        for formula in formulas {
                            check_formula(signature, formula, || {
                                format!("argument {place} of launch {index}")
                            })?;
                        }
                    }
                }
                Some(_) => return Err(unfit),
            }
        }
    }
    Ok(())
}

/// An instance's name without spaces: what two spellings of one instance share.
pub fn canonical_name(name: &str) -> String {
    name.chars().filter(|c| !c.is_whitespace()).collect()
}

/// Whether `target` reads `sm_` and digits, with or without a letter `a`.
fn is_target(target: &str) -> bool {
    let digits = target
        .strip_prefix("sm_")
        .map(|t| t.strip_suffix('a').unwrap_or(t));
    digits.is_some_and(|d| (2..=4).contains(&d.len()) && d.bytes().all(|b| b.is_ascii_digit()))
}

fn is_entry(entry: &str) -> bool {
    let name = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'$';
    !entry.is_empty() && entry.len() <= MAX_NAME && entry.bytes().all(name)
}

/// What an instance and an op have alike.
fn check_head(name: &str, signature: &Signature, requires: &[Fact]) -> Result<(), InstanceProblem> {
    let name = canonical_name(name);
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(InstanceProblem::Name);
    }
    unique(signature.dims.iter())?;
    unique(signature.params.iter().map(|p| &p.name))?;
    for param in &signature.params {
        check_param(signature, param)?;
    }
    for (i, fact) in requires.iter().enumerate() {
        check_fact(signature, fact, || format!("required fact {i}"))?;
    }
    Ok(())
}

fn check_instance(instance: &Instance, modules: &[ModuleKind]) -> Result<(), InstanceProblem> {
    let signature = &instance.signature;
    check_head(&instance.name, signature, &instance.requires)?;
    if instance.bodies.is_empty() {
        return Err(InstanceProblem::NoBody);
    }
    for (i, body) in instance.bodies.iter().enumerate() {
        check_body(signature, i, body, modules)?;
    }
    Ok(())
}

fn unique<'a>(names: impl Iterator<Item = &'a String>) -> Result<(), InstanceProblem> {
    let mut seen = BTreeSet::new();
    for name in names {
        if name.is_empty() || name.len() > MAX_NAME || !seen.insert(name) {
            let short = name.chars().take(200).collect();
            return Err(InstanceProblem::RepeatedName(short));
        }
    }
    Ok(())
}

fn check_param(signature: &Signature, param: &Param) -> Result<(), InstanceProblem> {
    match &param.kind {
        ParamKind::View(view) => {
            if view.extents.len() > MAX_RANK {
                return Err(InstanceProblem::Rank {
                    param: param.name.clone(),
                    rank: view.extents.len(),
                });
            }
            for (dim, extent) in view.extents.iter().enumerate() {
                check_formula(signature, extent, || {
                    format!("the extent of dimension {dim} of `{}`", param.name)
                })?;
            }
            if let Some(bytes) = view.facts.align.filter(|b| !b.is_power_of_two()) {
                return Err(InstanceProblem::Alignment {
                    param: param.name.clone(),
                    bytes,
                });
            }
        }
        ParamKind::Scalar {
            dtype,
            default: Some(value),
        } => {
            let as_int = || ScalarValue::Int(*value as i64);
            let fits = match dtype.is_float() {
                // JSON has no NaN and no infinity.
                true => value.is_finite(),
                false => {
                    value.fract() == 0.0
                        && value.abs() <= 2f64.powi(53)
                        && scalar_fits(*dtype, as_int())
                }
            };
            if !fits {
                return Err(InstanceProblem::Default {
                    param: param.name.clone(),
                    dtype: *dtype,
                });
            }
        }
        ParamKind::Scalar { default: None, .. } => {}
    }
    Ok(())
}

fn check_fact(
    signature: &Signature,
    fact: &Fact,
    place: impl Fn() -> String,
) -> Result<(), InstanceProblem> {
    match fact {
        Fact::Holds(formula) => check_formula(signature, formula, place),
        Fact::Aligned { param, bytes } => {
            let param = signature.params.get(*param as usize);
            let view = param.filter(|p| matches!(p.kind, ParamKind::View(_)));
            let view = view.ok_or_else(|| InstanceProblem::FactParam { place: place() })?;
            match bytes.is_power_of_two() {
                true => Ok(()),
                false => Err(InstanceProblem::Alignment {
                    param: view.name.clone(),
                    bytes: *bytes,
                }),
            }
        }
    }
}

fn check_formula(
    signature: &Signature,
    formula: &Formula,
    place: impl Fn() -> String,
) -> Result<(), InstanceProblem> {
    check_terms(signature, formula, false, place)
}

/// `costs`: it may ask for the device's multiprocessors.
fn check_terms(
    signature: &Signature,
    formula: &Formula,
    costs: bool,
    place: impl Fn() -> String,
) -> Result<(), InstanceProblem> {
    let mut depth = 0usize;
    let mut sound = formula.0.len() <= MAX_TERMS;
    for term in &formula.0 {
        sound &= match *term {
            Term::Int(_) => true,
            Term::Dim(dim) => (dim as usize) < signature.dims.len(),
            Term::Scalar(param) => signature.params.get(param as usize).is_some_and(
                |p| matches!(p.kind, ParamKind::Scalar { dtype, .. } if !dtype.is_float()),
            ),
            Term::Given(param) => (param as usize) < signature.params.len(),
            Term::Multiprocessors => costs,
            Term::Op(op) => depth >= FormulaOp::arity(op),
        };
        if !sound {
            break;
        }
        depth += 1;
        if let Term::Op(op) = term {
            depth -= op.arity();
        }
    }
    if sound && depth == 1 {
        Ok(())
    } else {
        Err(InstanceProblem::Formula { place: place() })
    }
}

fn check_body(
    signature: &Signature,
    index: usize,
    body: &BodyRecord,
    modules: &[ModuleKind],
) -> Result<(), InstanceProblem> {
    if !is_target(&body.target) {
        return Err(InstanceProblem::Target {
            body: index,
            target: body.target.chars().take(200).collect(),
        });
    }
    if !is_entry(&body.entry) {
        return Err(InstanceProblem::Entry { body: index });
    }
    if !(1..=1024).contains(&body.threads) {
        return Err(InstanceProblem::Threads {
            body: index,
            threads: body.threads,
        });
    }
    if body.shared_bytes > MAX_SHARED {
        return Err(InstanceProblem::SharedMemory {
            body: index,
            bytes: body.shared_bytes,
        });
    }
    if body.grid.len() > MAX_RANK {
        return Err(InstanceProblem::GridRank {
            body: index,
            axes: body.grid.len(),
        });
    }
    if let Some(Persistent {
        blocks_per_sm: Some(blocks),
        ..
    }) = body.persistent
        && !(1..=32).contains(&blocks)
    {
        return Err(InstanceProblem::BlocksPerSm {
            body: index,
            blocks,
        });
    }
    if !(1..=16).contains(&body.cluster) {
        return Err(InstanceProblem::Cluster {
            body: index,
            blocks: body.cluster,
        });
    }
    for (axis, extent) in body.grid.iter().enumerate() {
        check_formula(signature, extent, || {
            format!("grid axis {axis} of body {index}")
        })?;
    }
    for (i, fact) in body.facts.iter().enumerate() {
        check_fact(signature, fact, || format!("fact {i} of body {index}"))?;
    }
    if let Some(cost) = &body.cost {
        check_terms(signature, cost, true, || {
            format!("the cost of body {index}")
        })?;
    }
    let named = [
        (ModuleKind::Ptx, Some(body.ptx)),
        (ModuleKind::Cubin, body.cubin),
    ];
    for (kind, module) in named {
        if let Some(module) = module
            && modules.get(module as usize) != Some(&kind)
        {
            return Err(InstanceProblem::Module {
                body: index,
                kind,
                index: module,
            });
        }
    }
    if body.abi.len() > MAX_ARGS {
        return Err(InstanceProblem::Arguments {
            body: index,
            count: body.abi.len(),
        });
    }
    for (i, map) in body.tensor_maps.iter().enumerate() {
        let view = match signature.params.get(map.param as usize).map(|p| &p.kind) {
            Some(ParamKind::View(view)) => Some(view),
            _ => None,
        };
        let within = |view: &crate::ViewParam| {
            let mut dims = map.dims.iter();
            dims.all(|d| (d.dim as usize) < view.extents.len() && d.step > 0)
        };
        if !(1..=5).contains(&map.dims.len())
            || !map
                .dims
                .iter()
                .all(|d| (1..=256).contains(&d.extent_of_box))
            || !matches!(map.swizzle, 0 | 32 | 64 | 128)
            || !view.is_some_and(within)
        {
            return Err(InstanceProblem::TensorMap {
                body: index,
                map: i,
            });
        }
    }
    for (i, arg) in body.abi.iter().enumerate() {
        let view = |param: u32| match signature.params.get(param as usize).map(|p| &p.kind) {
            Some(ParamKind::View(view)) => Some(view),
            _ => None,
        };
        let fits = match *arg {
            AbiArg::Pointer { param } => view(param).is_some(),
            AbiArg::Stride { param, dim } => {
                view(param).is_some_and(|v| (dim as usize) < v.extents.len())
            }
            AbiArg::Dim { dim } => (dim as usize) < signature.dims.len(),
            AbiArg::Counter => true,
            AbiArg::TensorMap { map } => (map as usize) < body.tensor_maps.len(),
            AbiArg::Scalar { param } => signature
                .params
                .get(param as usize)
                .is_some_and(|p| matches!(p.kind, ParamKind::Scalar { .. })),
        };
        if !fits {
            return Err(InstanceProblem::Argument {
                body: index,
                arg: i,
            });
        }
    }
    Ok(())
}
