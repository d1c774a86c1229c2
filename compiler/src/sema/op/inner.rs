//! An op that launches an op: the inner one's launches take the place of its launch, over the outer one's names.

use tesserine_set::{
    Fact, Formula, FormulaOp, ParamKind, Signature, Step, StepArg, Term, ViewArg, ViewBase,
    ViewStep, WorkspaceRecord,
};

use super::super::{Eval, Told, eval::Evaluator, host::MAX_TERMS};
use super::{MAX_STEPS, Walk};
use crate::{diagnostics::codes, ir::op::Op, span::Span};

impl Walk {
    /// Puts the launches of an inner op in the place of its launch.
    pub(super) fn splice(
        &mut self,
        ev: &mut Evaluator<'_>,
        inner: Op,
        args: &[Option<StepArg>],
        span: Span,
    ) -> Eval<()> {
        let record = inner.record;
        let views: Vec<Option<&ViewArg>> = args
            .iter()
            .map(|arg| match arg {
                Some(StepArg::View(view)) => Some(view),
                _ => None,
            })
            .collect();
        let dims = match self.inner_dims(ev, &record.signature, &views) {
            Some(dims) => dims,
            None => {
                return ev.error(
                    codes::E0508,
                    span,
                    format!(
                        "the dimensions of `{}` do not follow from what is passed",
                        record.name
                    ),
                );
            }
        };
        let term = |term: Term| match term {
            Term::Dim(d) => dims.get(d as usize).cloned(),
            Term::Scalar(p) => match args.get(p as usize)? {
                Some(StepArg::Int(formula)) => Some(formula.clone()),
                Some(StepArg::Scalar { param }) => Some(Formula(vec![Term::Scalar(*param)])),
                Some(_) => None,
                None => match record.signature.params.get(p as usize)?.kind {
                    ParamKind::Scalar {
                        default: Some(v), ..
                    } => Some(Formula::int(v as i64)),
                    // As a run has it: what was left out is 0.
                    _ => Some(Formula::int(0)),
                },
            },
            Term::Given(p) => Some(match args.get(p as usize)? {
                None => Formula::int(0),
                Some(StepArg::Scalar { param })
                | Some(StepArg::View(ViewArg {
                    base: ViewBase::Param(param),
                    ..
                })) if ev.signature.params[*param as usize].optional => {
                    Formula(vec![Term::Given(*param)])
                }
                Some(_) => Formula::int(1),
            }),
            other => Some(Formula(vec![other])),
        };
        let grown = std::cell::Cell::new(false);
        let formula = |f: &Formula| {
            let made = f.substitute(term).ok_or(Told)?;
            grown.set(grown.get() || made.0.len() > MAX_TERMS);
            Ok::<Formula, Told>(made)
        };
        let guard = self.guard();
        let under = |when: &Option<Formula>| -> Eval<Option<Formula>> {
            let inner = when.as_ref().map(formula).transpose()?;
            Ok(Formula::both(guard.clone(), inner))
        };
        for fact in &record.requires {
            match fact {
                Fact::Holds(f) => self.require(Fact::Holds(formula(f)?), guard.as_ref()),
                Fact::Aligned { param, bytes } => {
                    // Of what is made on the way, the kernels' own facts speak.
                    if let Some(Some(ViewArg {
                        base: ViewBase::Param(param),
                        steps,
                    })) = views.get(*param as usize)
                        && steps.is_empty()
                        && guard.is_none()
                    {
                        self.requires.push(Fact::Aligned {
                            param: *param,
                            bytes: *bytes,
                        });
                    }
                }
            }
        }
        let first = self.workspaces.len() as u32;
        for workspace in &record.workspaces {
            self.workspaces.push(WorkspaceRecord {
                name: format!("{}.{}", first, workspace.name),
                dtype: workspace.dtype,
                extents: workspace
                    .extents
                    .iter()
                    .map(formula)
                    .collect::<Eval<Vec<_>>>()?,
                when: under(&workspace.when)?,
                fill: workspace.fill,
                once: workspace.once,
            });
        }
        let mut places = Vec::new();
        for launched in inner.instances {
            let known = self.instances.iter().position(|l| {
                l.instance.name == launched.instance.name && l.module == launched.module
            });
            places.push(known.unwrap_or(self.instances.len()));
            if known.is_none() {
                self.instances.push(launched);
            }
        }
        if self.steps.len() + record.steps.len() > MAX_STEPS {
            return ev.error(
                codes::E0305,
                span,
                format!("an `op` has at most {MAX_STEPS} launches"),
            );
        }
        for step in &record.steps {
            let mut list = Vec::new();
            for arg in &step.args {
                list.push(match arg {
                    None => None,
                    Some(StepArg::Float(bits)) => Some(StepArg::Float(*bits)),
                    Some(StepArg::Int(f)) => Some(StepArg::Int(formula(f)?)),
                    Some(StepArg::Scalar { param }) => {
                        let default = match record.signature.params[*param as usize].kind {
                            ParamKind::Scalar {
                                dtype,
                                default: Some(v),
                            } => Some(match dtype.is_float() {
                                true => StepArg::Float(v.to_bits()),
                                false => StepArg::Int(Formula::int(v as i64)),
                            }),
                            _ => None,
                        };
                        args[*param as usize].clone().or(default)
                    }
                    Some(StepArg::View(view)) => {
                        let (base, mut steps) = match view.base {
                            ViewBase::Workspace(i) => (ViewBase::Workspace(first + i), Vec::new()),
                            ViewBase::Param(i) => match views[i as usize] {
                                Some(outer) => (outer.base, outer.steps.clone()),
                                None => {
                                    list.push(None);
                                    continue;
                                }
                            },
                        };
                        for step in &view.steps {
                            steps.push(match step {
                                ViewStep::Slice { dim, from, to } => ViewStep::Slice {
                                    dim: *dim,
                                    from: formula(from)?,
                                    to: formula(to)?,
                                },
                                ViewStep::Select { dim, index } => ViewStep::Select {
                                    dim: *dim,
                                    index: formula(index)?,
                                },
                                ViewStep::Split { dim, by } => ViewStep::Split {
                                    dim: *dim,
                                    by: formula(by)?,
                                },
                                other => other.clone(),
                            });
                        }
                        Some(StepArg::View(ViewArg { base, steps }))
                    }
                });
            }
            let index = places[step.instance as usize];
            self.note_uses(index, &list);
            self.steps.push(Step {
                instance: index as u32,
                when: under(&step.when)?,
                args: list,
            });
        }
        if grown.get() {
            return ev.error(
                codes::E0305,
                span,
                "this grows too large when it is written out over dimensions and parameters",
            );
        }
        Ok(())
    }

    /// The dimensions of an inner op as formulas of this one.
    fn inner_dims(
        &self,
        ev: &Evaluator<'_>,
        signature: &Signature,
        views: &[Option<&ViewArg>],
    ) -> Option<Vec<Formula>> {
        let mut dims: Vec<Option<Formula>> = vec![None; signature.dims.len()];
        let mut later = Vec::new();
        for (param, view) in signature.params.iter().zip(views) {
            let (ParamKind::View(wanted), Some(view)) = (&param.kind, view) else {
                continue;
            };
            let extents = self.extents(ev, view)?;
            for (formula, extent) in wanted.extents.iter().zip(extents) {
                match formula.0[..] {
                    [Term::Dim(d)] => {
                        dims[d as usize].get_or_insert(extent);
                    }
                    _ => later.push((formula.clone(), extent)),
                }
            }
        }
        for (formula, extent) in later {
            let (d, op, c) = match formula.0[..] {
                [Term::Dim(d), Term::Int(c), Term::Op(FormulaOp::Add)]
                | [Term::Int(c), Term::Dim(d), Term::Op(FormulaOp::Add)] => (d, FormulaOp::Sub, c),
                [Term::Dim(d), Term::Int(c), Term::Op(FormulaOp::Sub)] => (d, FormulaOp::Add, c),
                [Term::Dim(d), Term::Int(c), Term::Op(FormulaOp::Mul)]
                | [Term::Int(c), Term::Dim(d), Term::Op(FormulaOp::Mul)]
                    if c != 0 =>
                {
                    (d, FormulaOp::Div, c)
                }
                _ => continue,
            };
            dims[d as usize].get_or_insert_with(|| Formula::binary(op, extent, Formula::int(c)));
        }
        // What only tensors mention that are left out is 0.
        Some(
            dims.into_iter()
                .map(|d| d.unwrap_or(Formula::int(0)))
                .collect(),
        )
    }

    /// The extents of a view.
    fn extents(&self, ev: &Evaluator<'_>, view: &ViewArg) -> Option<Vec<Formula>> {
        let mut extents = match view.base {
            ViewBase::Workspace(i) => self.workspaces.get(i as usize)?.extents.clone(),
            ViewBase::Param(i) => match &ev.signature.params.get(i as usize)?.kind {
                ParamKind::View(view) => view.extents.clone(),
                ParamKind::Scalar { .. } => return None,
            },
        };
        let mut bits = match view.base {
            ViewBase::Workspace(i) => self.workspaces[i as usize].dtype.bits(),
            ViewBase::Param(i) => match &ev.signature.params[i as usize].kind {
                ParamKind::View(view) => view.dtype.bits(),
                ParamKind::Scalar { .. } => return None,
            },
        };
        for step in &view.steps {
            match step {
                ViewStep::Slice { dim, from, to } => {
                    let extent = extents.get(*dim as usize)?.clone();
                    let clamp = |x: &Formula, lo: Formula| {
                        let above = Formula::binary(FormulaOp::Max, x.clone(), lo);
                        Formula::binary(FormulaOp::Min, above, extent.clone())
                    };
                    let low = clamp(from, Formula::int(0));
                    let high = clamp(to, low.clone());
                    extents[*dim as usize] = Formula::binary(FormulaOp::Sub, high, low);
                }
                ViewStep::Select { dim, .. } => {
                    extents.remove(*dim as usize);
                }
                ViewStep::Permute(perm) => {
                    extents = perm.iter().map(|p| extents[*p as usize].clone()).collect();
                }
                ViewStep::Split { dim, by } => {
                    let dim = *dim as usize;
                    let outer =
                        Formula::binary(FormulaOp::Div, extents.get(dim)?.clone(), by.clone());
                    extents.splice(dim..=dim, [outer, by.clone()]);
                }
                ViewStep::Merge { dim } => {
                    let dim = *dim as usize;
                    let second = extents.remove(dim + 1);
                    extents[dim] = Formula::binary(FormulaOp::Mul, extents[dim].clone(), second);
                }
                ViewStep::Bitcast(dtype) => {
                    let last = extents.last_mut()?;
                    let all = Formula::binary(
                        FormulaOp::Mul,
                        last.clone(),
                        Formula::int(i64::from(bits)),
                    );
                    bits = dtype.bits();
                    *last = Formula::binary(FormulaOp::Div, all, Formula::int(i64::from(bits)));
                }
            }
        }
        Some(extents)
    }
}
