//! Launches of an op: what is launched, and what its parameters get.

use tesserine_set::{
    Access, DType, Formula, ParamKind, Signature, Step, StepArg, Term, ViewArg, ViewBase,
};

use super::super::{
    Eval, Told,
    access::count,
    call::{Argument, CArgument, list},
    eval::{Evaluator, Frame},
    instance::{CArgs, make_given, named_instance},
    modules::{Def, Module, nearest},
    value::{Host, HostView, Symbol, TypeValue, Value},
};
use super::{
    MAX_NESTING, MAX_STEPS, Walk, make_nested,
    values::{as_view, sized},
};
use crate::{
    diagnostics::{Diagnostic, Diagnostics, codes},
    ir::{
        ValueId,
        op::Launched,
        tile::{Constant, OpKind},
    },
    span::Span,
    syntax::ast,
};

/// What a launch passes for the parameters of its kernel or op, by flattened names.
struct Passed<'a> {
    list: Vec<(String, Value<'a>, Span)>,
}

impl Walk {
    pub(super) fn launch<'a>(
        &mut self,
        ev: &mut Evaluator<'a>,
        path: &'a ast::Path,
        cargs: &'a [ast::CArg],
        args: &'a [ast::Arg],
        span: Span,
    ) -> Eval<()> {
        let program = ev.program;
        let (owner, item) = self.find(ev, path)?;
        let mut values: Vec<CArgument<'a>> = ev.cargs(cargs)?;
        let name = &path.segments.last().expect("a path has a segment").name;
        let (cparams, params) = match item {
            ast::ItemKind::Kernel(kernel) => match &kernel.signature {
                Some(signature) => (&signature.cparams, &signature.params),
                None => return Err(Told),
            },
            ast::ItemKind::Op(op) => (&op.cparams, &op.params),
            _ => return Err(Told),
        };
        let names: Vec<&str> = params.iter().map(|p| p.name.name.as_str()).collect();
        let mut evaluated = Vec::new();
        for arg in args {
            evaluated.push(Argument {
                name: arg.name.as_ref(),
                value: self.value(ev, &arg.value)?,
                span: arg.value.span,
            });
        }
        let placed = ev.place(name, &names, evaluated, span)?;
        let mut passed = Passed { list: Vec::new() };
        for (param, arg) in params.iter().zip(placed) {
            let Some(arg) = arg else { continue };
            // A variant says by its value which it is.
            if let Some(ast::TypeKind::Path { path, .. }) = param.ty.as_ref().map(|t| &t.kind)
                && let Some(place) = cparams
                    .iter()
                    .position(|c| path.as_ident().is_some_and(|n| n.name == c.name.name))
                && let Value::Variant(variant) = &arg.value
                && !values.iter().enumerate().any(|(i, (name, ..))| match name {
                    Some(name) => name.name == cparams[place].name.name,
                    None => i == place,
                })
            {
                let ty = Value::Type(TypeValue::Variant(variant.ty.clone()));
                let default = cparams[place].default.as_ref().and_then(|default| {
                    ev.frames.push(Frame::new(owner));
                    let value = ev.cvalue(default).ok();
                    ev.frames.pop();
                    value
                });
                if default.is_some_and(|default| default.same(&ty)) {
                    passed.flatten(&param.name.name, arg.value, arg.span);
                    continue;
                }
                values.push((Some(&cparams[place].name), ty, arg.span));
            }
            passed.flatten(&param.name.name, arg.value, arg.span);
        }
        let text = named_instance(name, &values);
        if self.left == 0 || self.steps.len() >= MAX_STEPS {
            return ev.error(
                codes::E0305,
                span,
                format!("an `op` has at most {MAX_STEPS} launches"),
            );
        }
        self.left -= 1;
        match item {
            ast::ItemKind::Kernel(kernel) => {
                let known = self
                    .instances
                    .iter()
                    .position(|l| l.instance.name == text && l.module == owner);
                let index = match known {
                    Some(index) => index,
                    None => {
                        let (instance, diagnostics) = make_given(
                            program,
                            owner,
                            kernel,
                            text.clone(),
                            CArgs::Values(&values),
                            self.target,
                        );
                        self.tell(ev, diagnostics, &text, span);
                        let Some(instance) = instance else {
                            return Err(Told);
                        };
                        self.instances.push(Launched {
                            instance,
                            module: owner,
                        });
                        self.instances.len() - 1
                    }
                };
                let header = &self.instances[index].instance.bodies[0].header;
                let signature = header.signature.clone();
                let args = self.arguments(ev, &text, &signature, passed, span)?;
                self.note_uses(index, &args);
                let when = self.guard();
                if let Some(when) = &when {
                    sized(ev, when.clone(), span)?;
                }
                self.steps.push(Step {
                    instance: index as u32,
                    when,
                    args,
                });
                Ok(())
            }
            ast::ItemKind::Op(op) => {
                let key: *const ast::Op = op;
                if self.nesting.contains(&key) || self.nesting.len() >= MAX_NESTING {
                    return ev.fail(
                        Diagnostic::error(codes::E0112, span, format!("`{name}` launches itself"))
                            .label(op.name.span, "defined here"),
                    );
                }
                let (made, diagnostics) = make_nested(
                    program,
                    owner,
                    op,
                    CArgs::Values(&values),
                    Some(text.clone()),
                    self.target,
                    (&self.nesting, &mut self.left),
                );
                self.tell(ev, diagnostics, &text, span);
                let Some(made) = made else {
                    return Err(Told);
                };
                let signature = made.record.signature.clone();
                let args = self.arguments(ev, &text, &signature, passed, span)?;
                self.splice(ev, made, &args, span)
            }
            _ => Err(Told),
        }
    }

    /// Passes on what was said of a kernel that is launched, with the launch that led to it.
    fn tell(&mut self, ev: &Evaluator<'_>, diagnostics: Diagnostics, name: &str, span: Span) {
        for mut diagnostic in diagnostics {
            diagnostic.calls.push((span, name.to_owned()));
            diagnostic.calls.extend(ev.calls.iter().rev().cloned());
            self.told.push(diagnostic);
        }
    }

    fn find<'a>(
        &mut self,
        ev: &mut Evaluator<'a>,
        path: &'a ast::Path,
    ) -> Eval<(Module, &'a ast::ItemKind)> {
        let program = ev.program;
        let found = match &path.segments[..] {
            [name] => program.lookup(ev.module(), &name.name),
            [module, name] => match program.lookup(ev.module(), &module.name) {
                Some(Def::Module(m)) => program.lookup(m, &name.name),
                _ => None,
            },
            _ => None,
        };
        let last = path.segments.last().expect("a path has a segment");
        if let Some(Def::Item(owner, index)) = found {
            let item = &program.item(owner, index).kind;
            match item {
                ast::ItemKind::Kernel(kernel) if kernel.signature.is_some() => {
                    return Ok((owner, item));
                }
                ast::ItemKind::Op(_) => return Ok((owner, item)),
                _ => {
                    return ev.error(
                        codes::E0108,
                        path.span,
                        format!(
                            "`{}` is neither a kernel nor an `op`, and only these are launched",
                            last.name
                        ),
                    );
                }
            }
        }
        let mut diagnostic = Diagnostic::error(
            codes::E0101,
            path.span,
            format!("there is no kernel or `op` named `{}` here", last.name),
        );
        if let Some(near) = nearest(&last.name, program.names(ev.module())) {
            diagnostic = diagnostic.help(format!("did you mean `{near}`?"));
        }
        ev.fail(diagnostic)
    }

    /// What is passed, in the order of the parameters of what is launched.
    fn arguments<'a>(
        &mut self,
        ev: &mut Evaluator<'a>,
        callee: &str,
        signature: &Signature,
        passed: Passed<'a>,
        span: Span,
    ) -> Eval<Vec<Option<StepArg>>> {
        let mut args = Vec::with_capacity(signature.params.len());
        let mut dims: Vec<Option<Formula>> = vec![None; signature.dims.len()];
        let mut views: Vec<(usize, HostView, Span)> = Vec::new();
        for (name, value, at) in &passed.list {
            if signature.param(name).is_none() {
                let what = ev.describe(value);
                return ev.fail(
                    Diagnostic::error(
                        codes::E0506,
                        *at,
                        format!("`{callee}` takes no {what} for `{name}`"),
                    )
                    .note(format!(
                        "it takes {}",
                        list(
                            &signature
                                .params
                                .iter()
                                .map(|p| p.name.as_str())
                                .collect::<Vec<_>>()
                        )
                    )),
                );
            }
        }
        for (index, param) in signature.params.iter().enumerate() {
            let given = passed.list.iter().find(|(name, ..)| *name == param.name);
            let Some((_, value, at)) = given else {
                let default = matches!(
                    param.kind,
                    ParamKind::Scalar {
                        default: Some(_),
                        ..
                    }
                );
                if !param.optional && !default {
                    return ev.error(
                        codes::E0506,
                        span,
                        format!("`{callee}` needs an argument for `{}`", param.name),
                    );
                }
                args.push(None);
                continue;
            };
            match &param.kind {
                ParamKind::View(wanted) => {
                    let Some(view) = as_view(value) else {
                        let what = ev.describe(value);
                        return ev.error(
                            codes::E0506,
                            *at,
                            format!(
                                "`{}` of `{callee}` is a view, and this is {what}",
                                param.name
                            ),
                        );
                    };
                    if view.dtype != wanted.dtype {
                        return ev.fail(
                            Diagnostic::error(
                                codes::E0506,
                                *at,
                                format!(
                                    "`{}` of `{callee}` is a view of `{}`, and `{}` is of `{}`",
                                    param.name, wanted.dtype, view.name, view.dtype
                                ),
                            )
                            .note("a launch converts nothing"),
                        );
                    }
                    if view.extents.len() != wanted.extents.len() {
                        return ev.error(
                            codes::E0506,
                            *at,
                            format!(
                                "`{}` of `{callee}` has {}, and `{}` has {}",
                                param.name,
                                count(wanted.extents.len(), "dimension"),
                                view.name,
                                view.extents.len()
                            ),
                        );
                    }
                    if wanted.access != Access::Read && view.access == Access::Read {
                        return ev.fail(
                            Diagnostic::error(
                                codes::E0506,
                                *at,
                                format!(
                                    "`{callee}` stores to `{}`, and `{}` is read-only",
                                    param.name, view.name
                                ),
                            )
                            .help(format!("declare it as `{}: out view<…>[…]`", view.name)),
                        );
                    }
                    for (extent, formula) in view.extents.iter().zip(&wanted.extents) {
                        if let Some(dim) = formula.as_dim() {
                            dims[dim as usize].get_or_insert_with(|| extent.clone());
                        }
                    }
                    args.push(Some(StepArg::View(view.arg.clone())));
                    views.push((index, view, *at));
                }
                ParamKind::Scalar { dtype, .. } => {
                    let arg = self.scalar_arg(ev, value, *dtype, &param.name, *at)?;
                    args.push(Some(arg));
                }
            }
        }
        self.check_shapes(ev, callee, signature, &views, &dims, &args)?;
        Ok(args)
    }

    /// What the shapes of a launch contradict already.
    fn check_shapes(
        &mut self,
        ev: &mut Evaluator<'_>,
        callee: &str,
        signature: &Signature,
        views: &[(usize, HostView, Span)],
        dims: &[Option<Formula>],
        args: &[Option<StepArg>],
    ) -> Eval<()> {
        for (index, view, at) in views {
            let param = &signature.params[*index];
            let ParamKind::View(wanted) = &param.kind else {
                continue;
            };
            for (dim, (formula, extent)) in wanted.extents.iter().zip(&view.extents).enumerate() {
                let known = formula.substitute(|term| match term {
                    Term::Dim(d) => dims.get(d as usize).cloned().flatten(),
                    Term::Scalar(p) => match args.get(p as usize) {
                        Some(Some(StepArg::Int(formula))) => Some(formula.clone()),
                        _ => None,
                    },
                    _ => None,
                });
                let both = (known.and_then(|k| k.as_int()), extent.as_int());
                if let (Some(wanted), Some(found)) = both
                    && wanted != found
                {
                    return ev.fail(
                        Diagnostic::error(
                            codes::E0506,
                            *at,
                            format!(
                                "dimension {dim} of `{}` has {found} elements, and `{}` of `{callee}` has {wanted}",
                                view.name, param.name
                            ),
                        )
                        .note(format!(
                            "it is declared `{}`",
                            signature.show(formula)
                        )),
                    );
                }
            }
        }
        Ok(())
    }

    fn scalar_arg<'a>(
        &mut self,
        ev: &mut Evaluator<'a>,
        value: &Value<'a>,
        dtype: DType,
        name: &str,
        span: Span,
    ) -> Eval<StepArg> {
        let wrong = |ev: &mut Evaluator<'a>| {
            let what = ev.describe(value);
            ev.fail(
                Diagnostic::error(
                    codes::E0506,
                    span,
                    format!("`{name}` is a scalar of `{dtype}`, and {what} cannot be passed for it"),
                )
                .note("a launch of an `op` passes constants, formulas over dimensions and integer parameters, and parameters as they are"),
            )
        };
        match value {
            Value::Int(v) => match i64::try_from(*v) {
                Ok(v) if dtype.is_float() => Ok(StepArg::Float((v as f64).to_bits())),
                Ok(v) => Ok(StepArg::Int(Formula::int(v))),
                Err(_) => wrong(ev),
            },
            Value::Bool(v) if dtype == DType::Bool => Ok(StepArg::Int(Formula::int((*v).into()))),
            Value::Float(v, _) if dtype.is_float() => Ok(StepArg::Float(v.to_bits())),
            Value::Symbol(Symbol::Param(param)) => Ok(StepArg::Scalar { param: *param }),
            Value::Symbol(Symbol::Dim(dim)) => Ok(StepArg::Int(Formula::dim(*dim))),
            Value::Host(host) => match &**host {
                Host::Formula(formula) => match formula.0[..] {
                    [Term::Scalar(param)] => Ok(StepArg::Scalar { param }),
                    _ => Ok(StepArg::Int(formula.clone())),
                },
                Host::View(_) => wrong(ev),
            },
            Value::Run(id) => match traced(ev, *id) {
                Some(StepArg::Int(formula)) => Ok(StepArg::Int(formula)),
                Some(arg) if dtype.is_float() => Ok(arg),
                _ => wrong(ev),
            },
            _ => wrong(ev),
        }
    }

    /// A workspace is filled once if no launch does more with it than count arrivals.
    pub(super) fn note_uses(&mut self, instance: usize, args: &[Option<StepArg>]) {
        for (param, arg) in args.iter().enumerate() {
            let Some(StepArg::View(ViewArg {
                base: ViewBase::Workspace(workspace),
                ..
            })) = arg
            else {
                continue;
            };
            let bodies = &self.instances[instance].instance.bodies;
            if !bodies
                .iter()
                .all(|body| only_arrives(&body.body, param as u32))
            {
                self.workspaces[*workspace as usize].once = false;
            }
        }
    }
}

impl<'a> Passed<'a> {
    /// A variant's fields go by dotted names.
    fn flatten(&mut self, name: &str, value: Value<'a>, span: Span) {
        match &value {
            Value::Variant(variant) => {
                let fields = variant.ty.item.fields.iter().zip(&variant.fields);
                for (field, value) in fields {
                    self.flatten(&format!("{name}.{}", field.name.name), value.clone(), span);
                }
            }
            Value::Absent(_) => {}
            // A variant without fields needs no value.
            Value::Type(TypeValue::Variant(variant)) if variant.item.fields.is_empty() => {}
            _ => self.list.push((name.to_owned(), value, span)),
        }
    }
}

/// Whether a body does no more with parameter `param` than count arrivals.
fn only_arrives(body: &crate::ir::tile::TileBody, param: u32) -> bool {
    let values: Vec<ValueId> = body
        .ops
        .values()
        .filter(|op| op.kind == OpKind::Param(param))
        .flat_map(|op| op.results.iter().copied())
        .collect();
    body.ops.values().all(|op| {
        is_arrival(&op.kind) || !op.operands.iter().any(|operand| values.contains(operand))
    })
}

/// Whether an operation only counts on its view.
fn is_arrival(kind: &OpKind) -> bool {
    matches!(kind, OpKind::Arrive { .. })
}

/// What a scalar of the walk is, if a launch can be given it: a parameter as it is, a constant, or a formula.
fn traced(ev: &Evaluator<'_>, id: ValueId) -> Option<StepArg> {
    if !ev.is_scalar(id) {
        return None;
    }
    if let Some(formula) = ev.formula_of(id) {
        return Some(match formula.0[..] {
            [Term::Scalar(param)] => StepArg::Scalar { param },
            _ => StepArg::Int(formula),
        });
    }
    let op = &ev.body.ops[ev.body.defining_op(id)?];
    match &op.kind {
        OpKind::Param(param) => Some(StepArg::Scalar { param: *param }),
        OpKind::Constant(Constant::Float(v, _)) => Some(StepArg::Float(v.to_bits())),
        // A parameter is widened at its first use; an integer stays exact as a float where the host converts it.
        OpKind::Cast if ev.body.ty(id).elem().is_float() => {
            let inner = op.operands[0];
            let from = ev.body.ty(inner).elem();
            let defined = &ev.body.ops[ev.body.defining_op(inner)?].kind;
            match (from.is_float(), defined) {
                (true, OpKind::Param(param)) => Some(StepArg::Scalar { param: *param }),
                (false, _) => ev.formula_of(inner).map(StepArg::Int),
                _ => None,
            }
        }
        _ => None,
    }
}
