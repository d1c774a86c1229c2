//! What blocks do to memory that they share: `arrive` and `atomic_*`.
//!
//! Both take an element or a slice of a `mut view` in place, as `load` does, so that its indices are never read.

use tesserine_set::{Access as Mode, DType};

use super::{
    Eval,
    access::Slice,
    eval::{Evaluator, cast_help, show_shape},
    value::Value,
};
use crate::{
    diagnostics::{Diagnostic, codes},
    ir::tile::{AtomicOp, Index},
    span::Span,
    syntax::ast,
};

/// The atomic operation of that name.
fn atomic_op(name: &str) -> Option<AtomicOp> {
    Some(match name {
        "atomic_add" => AtomicOp::Add,
        "atomic_max" => AtomicOp::Max,
        "atomic_min" => AtomicOp::Min,
        "atomic_and" => AtomicOp::And,
        "atomic_or" => AtomicOp::Or,
        "atomic_xor" => AtomicOp::Xor,
        "atomic_cas" => AtomicOp::Cas,
        _ => return None,
    })
}

/// Whether `name` is called with a slice of a view in place.
pub(crate) fn takes_slice(name: &str) -> bool {
    name == "arrive" || atomic_op(name).is_some()
}

/// Whether `expr` calls an atomic operation, whose value need not be used.
pub(crate) fn is_atomic(expr: &ast::Expr) -> bool {
    match &expr.kind {
        ast::ExprKind::Call { callee, .. } => {
            super::call::bare(callee).is_some_and(|name| atomic_op(&name.name).is_some())
        }
        _ => false,
    }
}

impl<'a> Evaluator<'a> {
    /// `arrive(count[i, …], n)`, `atomic_…(a[…], x)`.
    pub fn synchronised(
        &mut self,
        name: &str,
        args: &'a [ast::Arg],
        span: Span,
    ) -> Eval<Value<'a>> {
        let (slice, rest) = self.slice_argument(name, args, span)?;
        if slice.view.access != Mode::ReadWrite {
            let view = slice.view.clone();
            return self.fail(
                Diagnostic::error(
                    codes::E0117,
                    slice.span,
                    format!(
                        "`{name}` reads and stores, and `{}` is no `mut view`",
                        view.name
                    ),
                )
                .label(view.span, "declared here")
                .help(format!("declare it `{}: mut view<…>[…]`", view.name)),
            );
        }
        if let Some(named) = rest.iter().find_map(|arg| arg.name.as_ref()) {
            return self.error(
                codes::E0107,
                named.span,
                format!("`{name}` has no parameter `{}`", named.name),
            );
        }
        match atomic_op(name) {
            None => self.arrive(&slice, rest, span),
            Some(op) => self.atomic(name, op, &slice, rest, span),
        }
    }

    fn arrive(&mut self, slice: &Slice, rest: &'a [ast::Arg], span: Span) -> Eval<Value<'a>> {
        let [n] = rest else {
            return self.error(
                codes::E0107,
                span,
                "`arrive` takes a counter and how many blocks arrive at it",
            );
        };
        let view = slice.view.clone();
        if view.elem != DType::I32 {
            return self.fail(
                Diagnostic::error(
                    codes::E0102,
                    slice.span,
                    format!(
                        "a counter is of `i32`, and `{}` is of `{}`",
                        view.name, view.elem
                    ),
                )
                .label(view.span, "declared here"),
            );
        }
        if slice.indices.iter().any(|i| *i != Index::Scalar) {
            return self.fail(
                Diagnostic::error(
                    codes::E0202,
                    slice.span,
                    "`arrive` counts in one element, and this is a slice",
                )
                .help("give one index a dimension: `arrive(count[i], n)`"),
            );
        }
        let value = self.expr(&n.value)?;
        let n = self.int_scalar((&value, n.value.span), "how many blocks arrive")?;
        let id = self.view_id(&view);
        let last = self.builder(span).arrive(id, slice.operands.clone(), n);
        self.note_logical(self.body.defining_op(last), slice);
        Ok(Value::Run(last))
    }

    fn atomic(
        &mut self,
        name: &str,
        op: AtomicOp,
        slice: &Slice,
        rest: &'a [ast::Arg],
        span: Span,
    ) -> Eval<Value<'a>> {
        let takes = if op == AtomicOp::Cas { 2 } else { 1 };
        if rest.len() != takes {
            let what = match op {
                AtomicOp::Cas => "a slice, what is expected there and what replaces it",
                _ => "a slice and a value",
            };
            return self.error(codes::E0107, span, format!("`{name}` takes {what}"));
        }
        let ty = slice.ty();
        let elem = ty.elem();
        let view = slice.view.clone();
        let bits = matches!(op, AtomicOp::And | AtomicOp::Or | AtomicOp::Xor);
        let fits = match op {
            AtomicOp::Add => elem != DType::Tf32,
            _ => elem.is_int(),
        };
        if !fits || !matches!(elem.bits(), 32 | 64) || elem == DType::Bool {
            let takes = if op == AtomicOp::Add {
                "integers and floats of 32 or 64 bits"
            } else {
                "integers of 32 or 64 bits"
            };
            let mut diagnostic = Diagnostic::error(
                codes::E0102,
                slice.span,
                format!(
                    "`{name}` is on {takes}, and `{}` is of `{}`",
                    view.name, view.elem
                ),
            )
            .label(view.span, "declared here");
            if elem.is_float() && !bits && op != AtomicOp::Add {
                diagnostic = diagnostic.help(
                    "map the floats to integers of the same order, as sorting by bits does, and keep those",
                );
            }
            return self.fail(diagnostic);
        }
        let mut values = Vec::new();
        for arg in rest {
            let value = self.expr(&arg.value)?;
            let at = arg.value.span;
            let (found, have) = self.unify(&[(&value, at)], at)?;
            if !have.is_empty() && have != ty.shape() {
                let what = self.describe(&value);
                return self.fail(
                    Diagnostic::error(
                        codes::E0203,
                        slice.span,
                        format!(
                            "`{name}` combines a tile {} with a slice {}",
                            show_shape(&have),
                            show_shape(ty.shape())
                        ),
                    )
                    .label(at, what),
                );
            }
            if let Some(found) = found
                && found != elem
                && !(found == DType::I64 && elem.is_int() && have.is_empty())
            {
                let (what, text) = (self.describe(&value), self.quote(at));
                return self.fail(
                    Diagnostic::error(
                        codes::E0102,
                        at,
                        format!("`{}` is of `{elem}`, and this is {what}", view.name),
                    )
                    .label(view.span, "declared here")
                    .help(cast_help(&text, elem)),
                );
            }
            let x = self.coerce(&value, elem, ty.shape(), at)?;
            values.push(self.memory_order(x, &slice.order, at));
        }
        let id = self.view_id(&view);
        let old = self.builder(span).atomic(
            op,
            id,
            slice.indices.clone(),
            slice.operands.clone(),
            values,
        );
        self.note_logical(self.body.defining_op(old), slice);
        let old = self.author_order(old, &slice.order, span);
        Ok(Value::Run(self.scalar_width(old, span)))
    }
}
