//! An `op` with its compile-time arguments: what its launches are, and the instances that they launch.

use std::fmt;

use tesserine_set::{Formula, OpRecord, StepArg, ViewArg, ViewBase, ViewStep};

use super::tile;
use crate::span::Span;

/// A sequence of launches, for one target.
#[derive(Clone, Debug)]
pub struct Op {
    /// As a set holds it; steps index `instances`. Without file and hash.
    pub record: OpRecord,
    /// What it launches, each once, with the index of the file that declares it.
    pub instances: Vec<Launched>,
    /// The op's name in its source.
    pub span: Span,
}

/// A kernel that an op launches.
#[derive(Clone, Debug)]
pub struct Launched {
    pub instance: tile::Instance,
    /// The module that declares the kernel.
    pub module: crate::Module,
}

/// The workspaces and launches, in the words of the source as far as it has them.
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let record = &self.record;
        let signature = &record.signature;
        let params: Vec<&str> = signature.params.iter().map(|p| p.name.as_str()).collect();
        writeln!(f, "op {}({})", record.name, params.join(", "))?;
        for fact in &record.requires {
            writeln!(f, "    where {}", signature.show_fact(fact))?;
        }
        let condition = |when: &Option<Formula>| match when {
            Some(when) => format!(" if {}", signature.show(when)),
            None => String::new(),
        };
        for workspace in &record.workspaces {
            let extents: Vec<String> = workspace
                .extents
                .iter()
                .map(|e| signature.show(e))
                .collect();
            write!(
                f,
                "    workspace {}: view<{}>[{}]",
                workspace.name,
                workspace.dtype,
                extents.join(", ")
            )?;
            match (workspace.fill, workspace.once) {
                (Some(bits), true) => write!(f, ", filled once with bits {bits:#x}")?,
                (Some(bits), false) => write!(f, ", filled with bits {bits:#x}")?,
                (None, _) => {}
            }
            writeln!(f, "{}", condition(&workspace.when))?;
        }
        for step in &record.steps {
            let instance = self.instances.get(step.instance as usize);
            let name = instance.map_or("?", |l| l.instance.name.as_str());
            let args: Vec<String> = step
                .args
                .iter()
                .map(|arg| match arg {
                    None => "-".to_owned(),
                    Some(StepArg::Int(formula)) => signature.show(formula),
                    Some(StepArg::Float(bits)) => format!("{:?}", f64::from_bits(*bits)),
                    Some(StepArg::Scalar { param }) => name_of(&params, *param),
                    Some(StepArg::View(view)) => self.view(view, &params),
                })
                .collect();
            let when = condition(&step.when);
            writeln!(f, "    launch {name}({}){when}", args.join(", "))?;
        }
        Ok(())
    }
}

fn name_of(params: &[&str], param: u32) -> String {
    (*params.get(param as usize).unwrap_or(&"?")).to_owned()
}

impl Op {
    fn view(&self, view: &ViewArg, params: &[&str]) -> String {
        let mut text = match view.base {
            ViewBase::Param(param) => name_of(params, param),
            ViewBase::Workspace(index) => {
                let workspace = self.record.workspaces.get(index as usize);
                workspace.map_or("?", |w| w.name.as_str()).to_owned()
            }
        };
        let show = |formula: &Formula| self.record.signature.show(formula);
        for step in &view.steps {
            text.push_str(&match step {
                ViewStep::Slice { dim, from, to } => {
                    format!(".slice({dim}, {} .. {})", show(from), show(to))
                }
                ViewStep::Select { dim, index } => format!(".select({dim}, {})", show(index)),
                ViewStep::Permute(perm) => format!(".permute({perm:?})"),
                ViewStep::Split { dim, by } => format!(".split({dim}, {})", show(by)),
                ViewStep::Merge { dim } => format!(".merge({dim}, {})", dim + 1),
                ViewStep::Bitcast(dtype) => format!(".bitcast({dtype})"),
            });
        }
        text
    }
}
