//! `tess list-modules`: the kernels of kernel sets.

use std::path::Path;

use serde_json::{Value, json};
use tesserine::KernelSet;
use tesserine_set::{Access, BodyRecord, Instance, OpRecord, ParamKind, Signature};

use crate::{
    args::ListModules,
    failure::Failure,
    terminal::{self, say, table},
};

pub fn run(args: &ListModules) -> Result<(), Failure> {
    let mut sets = Vec::new();
    let mut broken = false;
    match &args.set {
        Some(path) => {
            let set = KernelSet::open(path).map_err(|e| Failure::Failed(e.to_string()))?;
            sets.push((path.clone(), set));
        }
        None => {
            for found in tesserine::find_sets() {
                match found.set {
                    Ok(set) => sets.push((found.path, set)),
                    Err(error) => {
                        broken = true;
                        terminal::warn(format_args!("error: {error}\n"));
                    }
                }
            }
        }
    }
    if args.json {
        let list = sets
            .iter()
            .map(|(path, set)| set_json(path, set, args.detailed))
            .collect::<Result<Vec<_>, _>>()?;
        terminal::json(&json!({ "sets": list }))?;
    } else if sets.is_empty() {
        say!(
            "no kernel sets found; `tess build` makes one, and TESSERINE_SETS names files or folders to look in"
        );
    } else {
        for (path, set) in &sets {
            print_set(path, set, args.detailed)?;
        }
    }
    if broken {
        Err(Failure::Reported)
    } else {
        Ok(())
    }
}

fn print_set(path: &Path, set: &KernelSet, detailed: bool) -> Result<(), Failure> {
    let manifest = set.manifest();
    say!(
        "set {}: {}, {} bytes, compiler {}",
        manifest.name,
        path.display(),
        set.file().file_size(),
        manifest.compiler
    );
    for instance in &manifest.instances {
        say!(
            "\n  {}{}",
            instance.name,
            signature_text(&instance.signature)
        );
        say!("    targets {}", targets(instance).join(", "));
        let (ptx, cubin) = sizes(set, instance);
        match cubin {
            0 => say!("    PTX {ptx} bytes"),
            _ => say!("    PTX {ptx} bytes, cubins {cubin} bytes"),
        }
        if !detailed {
            continue;
        }
        say!(
            "    source {} ({})",
            instance.source,
            short(&instance.source_hash)
        );
        for fact in &instance.requires {
            say!("    where {}", instance.signature.show_fact(fact));
        }
        let rows: Vec<Vec<String>> = instance
            .bodies
            .iter()
            .map(|body| body_row(&instance.signature, body))
            .collect();
        let header = [
            "target",
            "facts",
            "grid",
            "threads",
            "shared",
            "registers",
            "spills",
            "PTX",
            "cubin",
            "entry",
        ];
        for line in table(&header, &rows, &[3, 4, 5, 6]).lines() {
            say!("    {line}");
        }
    }
    for op in &manifest.ops {
        say!("\n  op {}{}", op.name, signature_text(&op.signature));
        let launches = op_launches(set, op);
        say!("    launches {}", launches.join(", "));
        if !detailed {
            continue;
        }
        say!("    source {} ({})", op.source, short(&op.source_hash));
        for fact in &op.requires {
            say!("    where {}", op.signature.show_fact(fact));
        }
        for text in op_workspaces(op) {
            say!("    workspace {text}");
        }
    }
    say!("");
    Ok(())
}

/// What an op launches, with the conditions.
fn op_launches(set: &KernelSet, op: &OpRecord) -> Vec<String> {
    let instances = &set.manifest().instances;
    op.steps
        .iter()
        .map(|step| {
            let name = instances
                .get(step.instance as usize)
                .map_or("?", |i| i.name.as_str());
            match &step.when {
                Some(when) => format!("{name} if {}", op.signature.show(when)),
                None => name.to_owned(),
            }
        })
        .collect()
}

/// `part: view<f32>[slabs, n] = 0`.
fn op_workspaces(op: &OpRecord) -> Vec<String> {
    op.workspaces
        .iter()
        .map(|workspace| {
            let extents: Vec<String> = workspace
                .extents
                .iter()
                .map(|e| op.signature.show(e))
                .collect();
            let mut text = format!(
                "{}: view<{}>[{}]",
                workspace.name,
                workspace.dtype,
                extents.join(", ")
            );
            if let Some(fill) = workspace.fill {
                text.push_str(&format!(", filled with bits {fill:#x}"));
                if workspace.once {
                    text.push_str(" once");
                }
            }
            if let Some(when) = &workspace.when {
                text.push_str(&format!(", if {}", op.signature.show(when)));
            }
            text
        })
        .collect()
}

fn body_row(signature: &Signature, body: &BodyRecord) -> Vec<String> {
    let facts: Vec<String> = body.facts.iter().map(|f| signature.show_fact(f)).collect();
    let grid: Vec<String> = body.grid.iter().map(|f| signature.show(f)).collect();
    let resource = |f: &dyn Fn(&tesserine_set::Resources) -> u32| {
        body.resources
            .as_ref()
            .map_or_else(|| "-".to_owned(), |r| f(r).to_string())
    };
    vec![
        body.target.clone(),
        if facts.is_empty() {
            "general".to_owned()
        } else {
            facts.join(", ")
        },
        format!(
            "{}({}){}",
            match body.persistent {
                None => "",
                Some(persistent) if persistent.dynamic => "persistent dynamic ",
                Some(_) => "persistent ",
            },
            grid.join(", "),
            match body.cluster {
                1 => String::new(),
                blocks => format!(" in clusters of {blocks}"),
            }
        ),
        body.threads.to_string(),
        body.resources
            .as_ref()
            .map_or(body.shared_bytes, |r| r.shared_bytes.max(body.shared_bytes))
            .to_string(),
        resource(&|r| r.registers),
        resource(&|r| r.spill_store_bytes + r.spill_load_bytes),
        format!("{}.{}", body.ptx_version.0, body.ptx_version.1),
        if body.cubin.is_some() { "yes" } else { "no" }.to_owned(),
        body.entry.clone(),
    ]
}

fn set_json(path: &Path, set: &KernelSet, detailed: bool) -> Result<Value, Failure> {
    let manifest = set.manifest();
    let kernels: Vec<Value> = manifest
        .instances
        .iter()
        .map(|instance| {
            let (ptx, cubin) = sizes(set, instance);
            let mut value = json!({
                "name": instance.name,
                "signature": signature_text(&instance.signature),
                "parameters": parameters(&instance.signature),
                "targets": targets(instance),
                "ptx_bytes": ptx,
                "cubin_bytes": cubin,
            });
            if detailed {
                let signature = &instance.signature;
                value["source"] = json!(instance.source);
                value["source_hash"] = json!(instance.source_hash);
                value["requires"] = instance
                    .requires
                    .iter()
                    .map(|f| signature.show_fact(f))
                    .collect();
                value["bodies"] = instance
                    .bodies
                    .iter()
                    .map(|b| body_json(signature, b))
                    .collect();
            }
            value
        })
        .collect();
    let ops: Vec<Value> = manifest
        .ops
        .iter()
        .map(|op| {
            json!({
                "name": op.name,
                "signature": signature_text(&op.signature),
                "parameters": parameters(&op.signature),
                "launches": op_launches(set, op),
                "workspaces": op_workspaces(op),
            })
        })
        .collect();
    Ok(json!({
        "ops": ops,
        "path": path.display().to_string(),
        "name": manifest.name,
        "compiler": manifest.compiler,
        "bytes": set.file().file_size(),
        "kernels": kernels,
    }))
}

fn body_json(signature: &Signature, body: &BodyRecord) -> Value {
    json!({
        "target": body.target,
        "facts": body.facts.iter().map(|f| signature.show_fact(f)).collect::<Vec<_>>(),
        "grid": body.grid.iter().map(|f| signature.show(f)).collect::<Vec<_>>(),
        "persistent": body.persistent.is_some(),
        "dynamic": body.persistent.is_some_and(|p| p.dynamic),
        "cluster": body.cluster,
        "threads": body.threads,
        "shared_bytes": body.shared_bytes,
        "entry": body.entry,
        "ptx_version": format!("{}.{}", body.ptx_version.0, body.ptx_version.1),
        "cubin": body.cubin.is_some(),
        "registers": body.resources.map(|r| r.registers),
        "spill_store_bytes": body.resources.map(|r| r.spill_store_bytes),
        "spill_load_bytes": body.resources.map(|r| r.spill_load_bytes),
    })
}

fn parameters(signature: &Signature) -> Vec<Value> {
    signature
        .params
        .iter()
        .map(|param| match &param.kind {
            ParamKind::View(view) => json!({
                "name": param.name,
                "kind": access(view.access),
                "dtype": view.dtype.name(),
                "shape": view.extents.iter().map(|e| signature.show(e)).collect::<Vec<_>>(),
                "optional": param.optional,
            }),
            ParamKind::Scalar { dtype, default } => json!({
                "name": param.name,
                "kind": "scalar",
                "dtype": dtype.name(),
                "default": default,
                "optional": param.optional,
            }),
        })
        .collect()
}

fn access(access: Access) -> &'static str {
    match access {
        Access::Read => "view",
        Access::Write => "out view",
        Access::ReadWrite => "mut view",
    }
}

/// The parameters as source declares them.
pub fn signature_text(signature: &Signature) -> String {
    let params: Vec<String> = signature
        .params
        .iter()
        .map(|param| {
            let optional = if param.optional { "?" } else { "" };
            let kind = match &param.kind {
                ParamKind::View(view) => {
                    let extents: Vec<String> =
                        view.extents.iter().map(|e| signature.show(e)).collect();
                    let strided = if view.strided { " strided" } else { "" };
                    let mut text = format!(
                        "{}<{}>[{}{strided}]",
                        access(view.access),
                        view.dtype,
                        extents.join(", ")
                    );
                    if view.facts.sorted {
                        text.push_str(" sorted");
                    }
                    if view.facts.distinct {
                        text.push_str(" distinct");
                    }
                    if let Some(bytes) = view.facts.align {
                        text.push_str(&format!(" align {bytes}"));
                    }
                    text
                }
                ParamKind::Scalar {
                    dtype,
                    default: None,
                } => dtype.name().to_owned(),
                ParamKind::Scalar {
                    dtype,
                    default: Some(value),
                } => format!("{dtype} = {value}"),
            };
            format!("{}{optional}: {kind}", param.name)
        })
        .collect();
    format!("({})", params.join(", "))
}

/// Targets in the order of the bodies.
fn targets(instance: &Instance) -> Vec<&str> {
    let mut list: Vec<&str> = Vec::new();
    for body in &instance.bodies {
        if !list.contains(&body.target.as_str()) {
            list.push(&body.target);
        }
    }
    list
}

/// Bytes of all PTX modules and of all cubins of an instance.
fn sizes(set: &KernelSet, instance: &Instance) -> (u64, u64) {
    let length = |index: u32| {
        set.file()
            .modules()
            .get(index as usize)
            .map_or(0, |m| m.length)
    };
    let ptx = instance.bodies.iter().map(|b| length(b.ptx)).sum();
    let cubin = instance
        .bodies
        .iter()
        .filter_map(|b| b.cubin)
        .map(length)
        .sum();
    (ptx, cubin)
}

fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}
