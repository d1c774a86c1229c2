//! What an op says between its launches: host scalars as formulas, views as transformations of tensors.

use std::rc::Rc;

use tesserine_set::{Formula, FormulaOp, ViewArg, ViewBase, ViewStep};

use super::super::{
    Eval, Told,
    access::count,
    call::bare,
    eval::Evaluator,
    host::MAX_TERMS,
    value::{Extent, Host, HostView, Value},
};
use super::Walk;
use crate::{
    diagnostics::{Diagnostic, codes},
    span::Span,
    syntax::ast::{self, ExprKind, StmtKind},
};

impl Walk {
    /// What a `let` names or a launch gets: a view, a host scalar, a constant, or what is made of them.
    pub(super) fn value<'a>(
        &mut self,
        ev: &mut Evaluator<'a>,
        expr: &'a ast::Expr,
    ) -> Eval<Value<'a>> {
        if let Some(view) = self.view(ev, expr)? {
            return Ok(Value::Host(Rc::new(Host::View(view))));
        }
        if is_if(expr) {
            return Ok(host(self.scalar(ev, expr)?));
        }
        let value = ev.expr(expr)?;
        match &value {
            Value::Run(id) if ev.is_scalar(*id) && !ev.body.ty(*id).elem().is_float() => {
                Ok(host(self.scalar(ev, expr)?))
            }
            _ => Ok(value),
        }
    }

    /// An integer or condition as a formula.
    pub(super) fn scalar<'a>(
        &mut self,
        ev: &mut Evaluator<'a>,
        expr: &'a ast::Expr,
    ) -> Eval<Formula> {
        match &expr.kind {
            ExprKind::Paren(inner) if is_if(inner) => self.scalar(ev, inner),
            ExprKind::If(branch) => self.choice(ev, branch, expr.span),
            _ => match ev.formula(expr, false) {
                Ok(formula) => sized(ev, formula, expr.span),
                Err(None) => Err(Told),
                Err(Some((span, why))) => ev.fail(Diagnostic::error(codes::E0508, span, why).note(
                    "an `op` decides by dimensions and integer parameters, before anything has run",
                )),
            },
        }
    }

    /// `if c { a } else { b }` of scalars.
    fn choice<'a>(
        &mut self,
        ev: &mut Evaluator<'a>,
        branch: &'a ast::If,
        span: Span,
    ) -> Eval<Formula> {
        let condition = self.scalar(ev, &branch.cond)?;
        let yes = self.arm(ev, &branch.then)?;
        let no = match branch.els.as_deref() {
            Some(ast::Else::If(inner)) => self.choice(ev, inner, span)?,
            Some(ast::Else::Block(block)) => self.arm(ev, block)?,
            None => {
                return ev.error(
                    codes::E0508,
                    span,
                    "this `if` has no value without an `else`",
                );
            }
        };
        sized(ev, Formula::select(condition, yes, no), span)
    }

    fn arm<'a>(&mut self, ev: &mut Evaluator<'a>, block: &'a ast::Block) -> Eval<Formula> {
        ev.frame().scopes.push(indexmap::IndexMap::new());
        let mut result = Ok(());
        for stmt in &block.stmts {
            result = match &stmt.kind {
                StmtKind::Let { .. } => self.stmt(ev, stmt),
                _ => ev.error(
                    codes::E0508,
                    stmt.span,
                    "only `let` may stand before the value of this `if`",
                ),
            };
            if result.is_err() {
                break;
            }
        }
        let value = match (&block.value, result) {
            (_, Err(told)) => Err(told),
            (Some(value), Ok(())) => self.scalar(ev, value),
            (None, Ok(())) => ev.error(codes::E0508, block.span, "this arm has no value"),
        };
        ev.frame().scopes.pop();
        value
    }

    /// The view that an expression is; `None` if it is none.
    fn view<'a>(&mut self, ev: &mut Evaluator<'a>, expr: &'a ast::Expr) -> Eval<Option<HostView>> {
        match &expr.kind {
            ExprKind::Paren(inner) => self.view(ev, inner),
            ExprKind::Path(path) => {
                let Some(name) = path.as_ident() else {
                    return Ok(None);
                };
                Ok(ev.local(&name.name).and_then(|b| as_view(&b.value)))
            }
            ExprKind::View(inner) => {
                let ExprKind::Index { base, indices } = &inner.kind else {
                    return self.view(ev, inner);
                };
                let Some(view) = self.view(ev, base)? else {
                    return Ok(None);
                };
                self.sub_view(ev, view, indices, inner.span).map(Some)
            }
            ExprKind::Field { base, name } => match self.view(ev, base)? {
                Some(view) if name.name == "t" => transposed(ev, view, expr.span).map(Some),
                Some(_) => Ok(None),
                None => {
                    let Some(owner) = bare(base) else {
                        return Ok(None);
                    };
                    let field = ev
                        .local(&owner.name)
                        .and_then(|b| b.value.field(&name.name));
                    Ok(field.as_ref().and_then(as_view))
                }
            },
            ExprKind::Bitcast { elem, value } => {
                let Some(mut view) = self.view(ev, value)? else {
                    return Ok(None);
                };
                let dtype = ev.elem_type(elem)?;
                let (old, new) = (i64::from(view.dtype.bits()), i64::from(dtype.bits()));
                if let Some(last) = view.extents.last_mut().filter(|_| old != new) {
                    let bits = Formula::binary(FormulaOp::Mul, last.clone(), Formula::int(old));
                    *last = match last.as_int() {
                        Some(n) if i128::from(n) * i128::from(old) % i128::from(new) != 0 => {
                            return ev.error(
                                codes::E0507,
                                expr.span,
                                format!(
                                    "{n} elements of `{}` are no number of `{dtype}`",
                                    view.dtype
                                ),
                            );
                        }
                        _ => Formula::binary(FormulaOp::Div, bits, Formula::int(new)),
                    };
                }
                view.dtype = dtype;
                view.arg.steps.push(ViewStep::Bitcast(dtype));
                Ok(Some(view))
            }
            ExprKind::Call { callee, args } => {
                let ExprKind::Field { base, name } = &callee.kind else {
                    return Ok(None);
                };
                if !matches!(name.name.as_str(), "permute" | "split" | "merge") {
                    return Ok(None);
                }
                let Some(view) = self.view(ev, base)? else {
                    return Ok(None);
                };
                self.method(ev, view, name, args, expr.span).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn method<'a>(
        &mut self,
        ev: &mut Evaluator<'a>,
        mut view: HostView,
        name: &'a ast::Ident,
        args: &'a [ast::Arg],
        span: Span,
    ) -> Eval<HostView> {
        let rank = view.extents.len();
        let wrong = |ev: &mut Evaluator<'a>, how: &str| {
            ev.fail(
                Diagnostic::error(
                    codes::E0107,
                    span,
                    format!("`{}` does not fit a view of {rank} dimensions", name.name),
                )
                .help(format!("write `{how}`")),
            )
        };
        let mut dims = Vec::new();
        match (name.name.as_str(), args) {
            ("permute", [ast::Arg { value, .. }]) => {
                let ExprKind::List(items) = &value.kind else {
                    return wrong(ev, "view.permute([1, 0])");
                };
                for item in items {
                    dims.push(ev.const_int(item, "a dimension")?);
                }
                let mut sorted = dims.clone();
                sorted.sort_unstable();
                if sorted != (0..rank as i64).collect::<Vec<_>>() {
                    return wrong(ev, "view.permute([1, 0])");
                }
                view.extents = dims
                    .iter()
                    .map(|d| view.extents[*d as usize].clone())
                    .collect();
                let perm = dims.iter().map(|d| *d as u32).collect();
                view.arg.steps.push(ViewStep::Permute(perm));
            }
            ("merge", [i, j]) => {
                let i = ev.const_int(&i.value, "a dimension")?;
                let j = ev.const_int(&j.value, "a dimension")?;
                if i < 0 || j != i + 1 || j >= rank as i64 {
                    return wrong(ev, "view.merge(0, 1)");
                }
                let i = i as usize;
                let second = view.extents.remove(i + 1);
                let first = view.extents[i].clone();
                view.extents[i] = Formula::binary(FormulaOp::Mul, first, second);
                view.arg.steps.push(ViewStep::Merge { dim: i as u32 });
            }
            ("split", [i, by]) => {
                let i = ev.const_int(&i.value, "a dimension")?;
                let by = self.scalar(ev, &by.value)?;
                if !(0..rank as i64).contains(&i) || by.as_int().is_some_and(|b| b < 1) {
                    return wrong(ev, "view.split(0, 16)");
                }
                let i = i as usize;
                let outer = Formula::binary(FormulaOp::Div, view.extents[i].clone(), by.clone());
                view.extents.splice(i..=i, [outer, by.clone()]);
                view.arg.steps.push(ViewStep::Split { dim: i as u32, by });
            }
            ("permute", _) => return wrong(ev, "view.permute([1, 0])"),
            ("merge", _) => return wrong(ev, "view.merge(0, 1)"),
            _ => return wrong(ev, "view.split(0, 16)"),
        }
        Ok(view)
    }

    fn sub_view<'a>(
        &mut self,
        ev: &mut Evaluator<'a>,
        mut view: HostView,
        indices: &'a [ast::Index],
        span: Span,
    ) -> Eval<HostView> {
        if indices.len() > view.extents.len() {
            return ev.error(
                codes::E0202,
                span,
                format!(
                    "`{}` has {}, and {} are indexed",
                    view.name,
                    count(view.extents.len(), "dimension"),
                    indices.len()
                ),
            );
        }
        let mut dim = 0;
        for index in indices {
            let extent = view.extents[dim].clone();
            match &index.kind {
                ast::IndexKind::Range {
                    start: None,
                    end: None,
                } => dim += 1,
                ast::IndexKind::Range { start, end } => {
                    let from = match start {
                        Some(start) => self.scalar(ev, start)?,
                        None => Formula::int(0),
                    };
                    let to = match end {
                        Some(end) => self.scalar(ev, end)?,
                        None => extent.clone(),
                    };
                    let clamp = |x: Formula, lo: Formula| {
                        let above = Formula::binary(FormulaOp::Max, x, lo);
                        Formula::binary(FormulaOp::Min, above, extent.clone())
                    };
                    let low = clamp(from.clone(), Formula::int(0));
                    let high = clamp(to.clone(), low.clone());
                    view.extents[dim] =
                        sized(ev, Formula::binary(FormulaOp::Sub, high, low), index.span)?;
                    view.arg.steps.push(ViewStep::Slice {
                        dim: dim as u32,
                        from,
                        to,
                    });
                    dim += 1;
                }
                ast::IndexKind::Expr(expr) => {
                    let index = self.scalar(ev, expr)?;
                    view.extents.remove(dim);
                    view.arg.steps.push(ViewStep::Select {
                        dim: dim as u32,
                        index,
                    });
                }
                ast::IndexKind::NewAxis | ast::IndexKind::Slice { .. } => {
                    return ev.fail(
                        Diagnostic::error(
                            codes::E0508,
                            index.span,
                            "a sub-view takes whole axes, ranges `a .. b` and single indices",
                        )
                        .help("write `view x[a .. b, ..]`"),
                    );
                }
            }
        }
        Ok(view)
    }
}

pub(super) fn host<'a>(formula: Formula) -> Value<'a> {
    match formula.as_int() {
        Some(v) => Value::Int(v.into()),
        None => Value::Host(Rc::new(Host::Formula(formula))),
    }
}

/// A condition as 0 or 1 is one already; another number is compared with 0.
pub(super) fn truth(formula: Formula) -> Formula {
    match formula.is_condition() || formula.as_int().is_some() {
        true => formula,
        false => Formula::binary(FormulaOp::Ne, formula, Formula::int(0)),
    }
}

/// A formula, unless it has grown too large for a launch to evaluate.
pub(super) fn sized(ev: &mut Evaluator<'_>, formula: Formula, span: Span) -> Eval<Formula> {
    if formula.0.len() <= MAX_TERMS {
        return Ok(formula);
    }
    ev.fail(
        Diagnostic::error(
            codes::E0305,
            span,
            "this grows too large when it is written out over dimensions and parameters",
        )
        .help("pass it as a parameter"),
    )
}

fn is_if(expr: &ast::Expr) -> bool {
    match &expr.kind {
        ExprKind::If(_) => true,
        ExprKind::Paren(inner) => is_if(inner),
        _ => false,
    }
}

pub(super) fn as_view(value: &Value<'_>) -> Option<HostView> {
    match value {
        Value::View(view) => {
            // In an `op` nothing is derived but by the runtime, and what lies in a layout is passed on as it lies.
            let (root, param) = view.root();
            let extents = root.extents.iter().map(|extent| match extent {
                Extent::Launch(formula) => Some(formula.clone()),
                _ => None,
            });
            Some(HostView {
                name: view.name.clone(),
                arg: ViewArg {
                    base: ViewBase::Param(param),
                    steps: Vec::new(),
                },
                dtype: view.elem,
                access: view.access,
                extents: extents.collect::<Option<_>>()?,
            })
        }
        Value::Host(host) => match &**host {
            Host::View(view) => Some(view.clone()),
            Host::Formula(_) => None,
        },
        _ => None,
    }
}

fn transposed(ev: &mut Evaluator<'_>, mut view: HostView, span: Span) -> Eval<HostView> {
    let rank = view.extents.len() as u32;
    if rank < 2 {
        return ev.error(
            codes::E0202,
            span,
            format!(
                "`{}` has one dimension, and `.t` swaps the last two",
                view.name
            ),
        );
    }
    let mut perm: Vec<u32> = (0..rank).collect();
    perm.swap(rank as usize - 2, rank as usize - 1);
    view.extents.swap(rank as usize - 2, rank as usize - 1);
    view.arg.steps.push(ViewStep::Permute(perm));
    Ok(view)
}
