//! Expressions.

use std::rc::Rc;

use tesserine_set::DType;

use super::{
    Eval, Told,
    eval::{Evaluator, Shape, cast_help, fit_int, show_shape, wrap_int},
    value::{TypeValue, Value},
};
use crate::{
    diagnostics::{Diagnostic, codes},
    interp::floats::{from_int, round_to},
    ir::tile::{BinaryOp, CompareOp, Constant, Type, UnaryOp},
    span::Span,
    syntax::ast::{self, ExprKind},
};

impl<'a> Evaluator<'a> {
    pub fn expr(&mut self, expr: &'a ast::Expr) -> Eval<Value<'a>> {
        self.nested(expr.span, |this| this.expr_inner(expr))
    }

    fn expr_inner(&mut self, expr: &'a ast::Expr) -> Eval<Value<'a>> {
        let span = expr.span;
        match &expr.kind {
            ExprKind::Int(v) => Ok(Value::Int((*v).into())),
            ExprKind::Float(v) => Ok(Value::Float(*v, None)),
            ExprKind::Bool(v) => Ok(Value::Bool(*v)),
            ExprKind::Str(v) => Ok(Value::Str(Rc::from(v.as_str()))),
            ExprKind::Inf => Ok(Value::Float(f64::INFINITY, None)),
            ExprKind::Nan => Ok(Value::Float(f64::NAN, None)),
            ExprKind::Path(path) => self.path(path),
            ExprKind::Applied { path, cargs } => self.applied(path, cargs, span),
            ExprKind::Tuple(items) => Ok(Value::Tuple(self.exprs(items)?.into())),
            ExprKind::List(items) => Ok(Value::List(self.exprs(items)?.into())),
            ExprKind::Paren(inner) => self.expr(inner),
            ExprKind::Zeros { elem, dims } => {
                let elem = self.value_type(elem)?;
                let shape = self.dims(dims, span)?;
                let zero = if elem == DType::Bool {
                    Value::Bool(false)
                } else {
                    Value::Int(0)
                };
                Ok(Value::Run(self.coerce(&zero, elem, &shape, span)?))
            }
            ExprKind::Full { elem, dims, value } => {
                let at = value.span;
                let elem = self.value_type(elem)?;
                let shape = self.dims(dims, span)?;
                let value = self.expr(value)?;
                let (found, s) = self.unify(&[(&value, at)], at)?;
                if !s.is_empty() {
                    let what = self.describe(&value);
                    return self.error(
                        codes::E0201,
                        at,
                        format!("`full` repeats a scalar, and this is {what}"),
                    );
                }
                if let Some(found) = found
                    && found != elem
                    && !(found == DType::I64 && elem.is_int())
                {
                    let what = self.describe(&value);
                    let text = self.quote(at);
                    let diagnostic = Diagnostic::error(
                        codes::E0102,
                        at,
                        format!("{text} is {what}, and the tile is of `{elem}`"),
                    )
                    .help(cast_help(&text, elem));
                    return self.fail(diagnostic);
                }
                Ok(Value::Run(self.coerce(&value, elem, &shape, at)?))
            }
            ExprKind::Iota { elem, dims } => {
                let at = elem.span;
                let elem = self.value_type(elem)?;
                let shape = self.dims(dims, span)?;
                if !elem.is_int() {
                    return self.fail(
                        Diagnostic::error(
                            codes::E0102,
                            at,
                            format!("`iota` counts in an integer type, and `{elem}` is none"),
                        )
                        .help(format!("write `iota<i32>[…] as {elem}`")),
                    );
                }
                Ok(Value::Run(self.builder(span).iota(elem, &shape)))
            }
            ExprKind::Bitcast { elem, value } => {
                let at = value.span;
                let elem = self.value_type(elem)?;
                let value = self.expr(value)?;
                if let Value::View(view) = &value {
                    let view = self.view_bitcast(view, elem, span)?;
                    return Ok(Value::View(view));
                }
                let id = self.materialise(&value, at)?;
                let from = self.body.ty(id).elem();
                if from.bits() != elem.bits() || from == DType::Bool || elem == DType::Bool {
                    return self.error(
                        codes::E0102,
                        span,
                        format!(
                            "`bitcast` keeps the width, and `{from}` has {} bits, `{elem}` {}",
                            from.bits(),
                            elem.bits()
                        ),
                    );
                }
                Ok(Value::Run(self.builder(span).bitcast(id, elem)))
            }
            ExprKind::Ptx {
                args,
                ty,
                otherwise,
            } => self.ptx(args, ty, otherwise, span),
            ExprKind::Unary { op, value } => {
                let x = self.expr(value)?;
                let op = match op {
                    ast::UnaryOp::Neg => UnaryOp::Neg,
                    ast::UnaryOp::Not => UnaryOp::Not,
                };
                self.unary(op, (&x, value.span), span)
            }
            ExprKind::Binary { op, left, right } => self.binary(*op, left, right, span),
            ExprKind::Cast { value, ty } => {
                let x = self.expr(value)?;
                let elem = self.value_type(ty)?;
                self.cast((&x, value.span), elem, span)
            }
            ExprKind::Await { value, lag } => self.await_(value, *lag, span),
            ExprKind::Get(channel) => self.get(channel, span),
            ExprKind::View(inner) => self.view_expr(inner),
            ExprKind::Index { base, indices } => {
                let value = self.expr(base)?;
                self.index((value, base.span), indices, span)
            }
            ExprKind::Field { base, name } => {
                let value = self.expr(base)?;
                self.field((value, base.span), name, span)
            }
            ExprKind::Element { base, index } => {
                let value = self.expr(base)?;
                let (Value::Tuple(items) | Value::List(items)) = &value else {
                    let what = self.describe(&value);
                    return self.error(codes::E0106, span, format!("{what} has no numbered parts"));
                };
                match items.get(*index as usize) {
                    Some(item) => Ok(item.clone()),
                    None => self.error(
                        codes::E0106,
                        span,
                        format!(
                            "a tuple of {} has no part {index}; they count from 0",
                            items.len()
                        ),
                    ),
                }
            }
            ExprKind::Call { callee, args } => self.call(callee, args, span),
            ExprKind::If(branch) => self.if_expr(branch),
            ExprKind::Pingpong(pingpong) => self.pingpong(pingpong, span),
            ExprKind::Error => Err(Told),
        }
    }

    fn exprs(&mut self, items: &'a [ast::Expr]) -> Eval<Vec<Value<'a>>> {
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            values.push(self.expr(item)?);
        }
        Ok(values)
    }

    /// An element type that values may have.
    pub fn value_type(&mut self, path: &'a ast::Path) -> Eval<DType> {
        let elem = self.elem_type(path)?;
        if matches!(elem, DType::U1 | DType::U4 | DType::I4) {
            let wide = if elem == DType::U1 {
                "bool"
            } else if elem == DType::U4 {
                "u8"
            } else {
                "i8"
            };
            return self.fail(
                Diagnostic::error(
                    codes::E0102,
                    path.span,
                    format!("`{elem}` exists in memory only"),
                )
                .help(format!("a value read from such a view is of `{wide}`")),
            );
        }
        Ok(elem)
    }

    fn binary(
        &mut self,
        op: ast::BinaryOp,
        left: &'a ast::Expr,
        right: &'a ast::Expr,
        span: Span,
    ) -> Eval<Value<'a>> {
        // Both sides are walked, so that both are checked.
        let a = self.expr(left);
        let b = self.expr(right);
        let (a, b) = (a?, b?);
        let (x, y) = ((&a, left.span), (&b, right.span));
        let binary = match op {
            ast::BinaryOp::OrElse | ast::BinaryOp::AndAlso => return self.logical(op, x, y, span),
            ast::BinaryOp::Eq => return self.compare(CompareOp::Eq, x, y, span),
            ast::BinaryOp::Ne => return self.compare(CompareOp::Ne, x, y, span),
            ast::BinaryOp::Lt => return self.compare(CompareOp::Lt, x, y, span),
            ast::BinaryOp::Le => return self.compare(CompareOp::Le, x, y, span),
            ast::BinaryOp::Gt => return self.compare(CompareOp::Gt, x, y, span),
            ast::BinaryOp::Ge => return self.compare(CompareOp::Ge, x, y, span),
            ast::BinaryOp::BitOr => BinaryOp::Or,
            ast::BinaryOp::BitXor => BinaryOp::Xor,
            ast::BinaryOp::BitAnd => BinaryOp::And,
            ast::BinaryOp::Shl => BinaryOp::Shl,
            ast::BinaryOp::Shr => BinaryOp::Shr,
            ast::BinaryOp::Add => BinaryOp::Add,
            ast::BinaryOp::Sub => BinaryOp::Sub,
            ast::BinaryOp::Mul => BinaryOp::Mul,
            ast::BinaryOp::Div => BinaryOp::Div,
            ast::BinaryOp::Rem => BinaryOp::Rem,
        };
        self.arithmetic(binary, x, y, span)
    }

    fn logical(
        &mut self,
        op: ast::BinaryOp,
        a: (&Value<'a>, Span),
        b: (&Value<'a>, Span),
        span: Span,
    ) -> Eval<Value<'a>> {
        let (spelled, bits, ir) = match op {
            ast::BinaryOp::AndAlso => ("&&", "&", BinaryOp::And),
            _ => ("||", "|", BinaryOp::Or),
        };
        for side in [a, b] {
            if let Some(Shape::Tile(..)) = self.shape_of(side.0) {
                let what = self.describe(side.0);
                return self.fail(
                    Diagnostic::error(codes::E0110, span, format!("`{spelled}` takes scalars"))
                        .label(side.1, what)
                        .help(format!("on tiles, write `{bits}`")),
                );
            }
            self.bool_scalar(side, &format!("a side of `{spelled}`"))?;
        }
        match (a.0, b.0, ir) {
            (Value::Bool(x), Value::Bool(y), BinaryOp::And) => Ok(Value::Bool(*x && *y)),
            (Value::Bool(x), Value::Bool(y), _) => Ok(Value::Bool(*x || *y)),
            (Value::Bool(true), other, BinaryOp::And)
            | (other, Value::Bool(true), BinaryOp::And) => Ok(other.clone()),
            (Value::Bool(false), _, BinaryOp::And) | (_, Value::Bool(false), BinaryOp::And) => {
                Ok(Value::Bool(false))
            }
            (Value::Bool(false), other, _) | (other, Value::Bool(false), _) => Ok(other.clone()),
            (Value::Bool(true), _, _) | (_, Value::Bool(true), _) => Ok(Value::Bool(true)),
            _ => self.arithmetic(ir, a, b, span),
        }
    }

    /// Checks that a value is a scalar truth value.
    pub fn bool_scalar(&mut self, value: (&Value<'a>, Span), what: &str) -> Eval<()> {
        match self.shape_of(value.0) {
            Some(Shape::Constant) if matches!(value.0, Value::Bool(_)) => Ok(()),
            Some(Shape::Scalar(DType::Bool)) => Ok(()),
            _ => {
                let got = self.describe(value.0);
                let mut diagnostic = Diagnostic::error(
                    codes::E0109,
                    value.1,
                    format!("{what} must be a `bool` scalar, and this is {got}"),
                );
                match self.shape_of(value.0) {
                    Some(Shape::Tile(DType::Bool, _)) => {
                        diagnostic = diagnostic
                            .note("control is uniform: a block takes one branch")
                            .help("to choose for each element, write `select(c, a, b)`; to ask about all of them, `c.any()` or `c.all()`");
                    }
                    Some(Shape::Scalar(t)) if t.is_int() => {
                        diagnostic = diagnostic.help(format!(
                            "write `{} != 0`",
                            self.quote(value.1).trim_matches('`')
                        ));
                    }
                    _ if matches!(value.0, Value::Int(_)) => {
                        diagnostic = diagnostic.help(format!(
                            "write `{} != 0`",
                            self.quote(value.1).trim_matches('`')
                        ));
                    }
                    _ => {}
                }
                self.fail(diagnostic)
            }
        }
    }

    pub fn compare(
        &mut self,
        op: CompareOp,
        a: (&Value<'a>, Span),
        b: (&Value<'a>, Span),
        span: Span,
    ) -> Eval<Value<'a>> {
        let equality = matches!(op, CompareOp::Eq | CompareOp::Ne);
        match (a.0, b.0) {
            (Value::Int(x), Value::Int(y)) => {
                return Ok(Value::Bool(compare_ordering(op, Some(x.cmp(y)))));
            }
            (Value::Int(_) | Value::Float(..), Value::Int(_) | Value::Float(..)) => {
                let float = |v: &Value<'a>| match v {
                    Value::Int(v) => *v as f64,
                    Value::Float(v, _) => *v,
                    _ => f64::NAN,
                };
                return Ok(Value::Bool(compare_ordering(
                    op,
                    float(a.0).partial_cmp(&float(b.0)),
                )));
            }
            // Types, functions, texts: compile-time values that can only be equal or not.
            (x, y) if equality && is_compile_time(x) && is_compile_time(y) => {
                return Ok(Value::Bool(x.same(y) == (op == CompareOp::Eq)));
            }
            _ => {}
        }
        let (elem, shape) = self.unify(&[a, b], span)?;
        let elem = elem.unwrap_or(DType::F32);
        if elem == DType::Bool && !equality {
            return self.error(
                codes::E0102,
                span,
                "truth values are equal or not; they have no order",
            );
        }
        let x = self.coerce(a.0, elem, &shape, a.1)?;
        let y = self.coerce(b.0, elem, &shape, b.1)?;
        Ok(Value::Run(self.builder(span).compare(op, x, y)))
    }

    /// `x as T`.
    pub fn cast(&mut self, x: (&Value<'a>, Span), elem: DType, span: Span) -> Eval<Value<'a>> {
        match x.0 {
            Value::Int(v) if elem.is_int() => return Ok(Value::Int(wrap_int(*v, elem))),
            Value::Int(v) if elem.is_float() => {
                return Ok(Value::Float(from_int(elem, *v), Some(elem)));
            }
            Value::Float(v, _) if elem.is_int() => {
                let truncated = if v.is_nan() { 0 } else { *v as i128 };
                let bits = elem.bits();
                let (lo, hi) = if elem.is_signed() {
                    (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
                } else {
                    (0, (1i128 << bits) - 1)
                };
                return Ok(Value::Int(truncated.clamp(lo, hi)));
            }
            Value::Float(v, _) if elem.is_float() => {
                return Ok(Value::Float(round_to(elem, *v), Some(elem)));
            }
            Value::Bool(v) if elem.is_int() => return Ok(Value::Int((*v).into())),
            Value::View(view) => {
                let slices = vec![".."; view.extents.len()].join(", ");
                let diagnostic = Diagnostic::error(
                    codes::E0108,
                    x.1,
                    format!(
                        "a cast takes a scalar or tile, and `{}` is a view",
                        view.name
                    ),
                )
                .help(format!("read a slice of it, as `{}[{slices}]`", view.name));
                return self.fail(diagnostic);
            }
            _ => {}
        }
        let id = self.materialise(x.0, x.1)?;
        let from = self.body.ty(id).elem();
        if elem == DType::Bool && from != DType::Bool {
            let text = self.quote(x.1);
            return self.fail(
                Diagnostic::error(
                    codes::E0102,
                    span,
                    format!("{text} is {}: no number is a `bool`", self.describe(x.0)),
                )
                .help(format!("write `{} != 0`", text.trim_matches('`'))),
            );
        }
        let scalar = matches!(self.body.ty(id), Type::Scalar(_));
        let mut builder = self.builder(span);
        let mut id = builder.cast(id, elem);
        if scalar && elem.is_int() {
            // An integer scalar is 64 bits wide, whatever it has been wrapped to.
            id = builder.cast(id, DType::I64);
        }
        Ok(Value::Run(id))
    }

    /// `x.name` that is not called.
    fn field(
        &mut self,
        base: (Value<'a>, Span),
        name: &'a ast::Ident,
        span: Span,
    ) -> Eval<Value<'a>> {
        if let Some(value) = base.0.field(&name.name) {
            return self.use_value(value, span);
        }
        match (name.name.as_str(), &base.0) {
            ("dtype", Value::View(view)) => return Ok(Value::DType(view.elem)),
            ("dtype", value) => match self.shape_of(value) {
                Some(Shape::Scalar(t) | Shape::Tile(t, _)) => return Ok(Value::DType(t)),
                Some(Shape::Constant) => {
                    return self.error(
                        codes::E0106,
                        span,
                        "a literal has no type of its own: it takes that of what it meets",
                    );
                }
                None => {}
            },
            ("t", Value::View(view)) => return Ok(Value::View(self.transposed(view, span)?)),
            ("t", value) => match self.shape_of(value) {
                Some(Shape::Tile(_, shape)) if shape.len() >= 2 => {
                    let mut perm: Vec<u32> = (0..shape.len() as u32).collect();
                    perm.swap(shape.len() - 2, shape.len() - 1);
                    let id = self.materialise(value, base.1)?;
                    return Ok(Value::Run(self.builder(span).permute(id, perm)));
                }
                Some(Shape::Tile(_, shape)) => {
                    return self.error(
                        codes::E0206,
                        span,
                        format!(
                            "`.t` swaps the last two axes, and {} has one",
                            show_shape(&shape)
                        ),
                    );
                }
                _ => {}
            },
            _ => {}
        }
        let names: Vec<String> = match &base.0 {
            Value::Struct(v) => v.item.fields.iter().map(|f| f.name.name.clone()).collect(),
            Value::Variant(v) => {
                v.ty.item
                    .fields
                    .iter()
                    .map(|f| f.name.name.clone())
                    .collect()
            }
            _ => vec!["dtype".into(), "t".into()],
        };
        let what = self.describe(&base.0);
        let mut diagnostic = Diagnostic::error(
            codes::E0106,
            name.span,
            format!("{what} has no field `{}`", name.name),
        );
        if super::builtins::METHODS.contains(&name.name.as_str()) {
            diagnostic = diagnostic.help(format!("call it: `.{}(…)`", name.name));
        } else if let Some(near) =
            super::modules::nearest(&name.name, names.iter().map(String::as_str))
        {
            diagnostic = diagnostic.help(format!("did you mean `{near}`?"));
        } else if name.name == "T" {
            diagnostic = diagnostic.help("write `x.t`");
        } else if matches!(base.0, Value::Struct(_) | Value::Variant(_)) && !names.is_empty() {
            let names: Vec<String> = names.iter().map(|n| format!("`{n}`")).collect();
            diagnostic = diagnostic.note(format!("it has {}", names.join(", ")));
        } else if let Some(help) = crate::syntax::habits::name(&name.name) {
            diagnostic = diagnostic.help(help);
        }
        self.fail(diagnostic)
    }

    /// A value as its annotation says.
    pub fn annotated(
        &mut self,
        value: Value<'a>,
        ty: Option<&'a ast::Type>,
        span: Span,
    ) -> Eval<Value<'a>> {
        let Some(ty) = ty else { return Ok(value) };
        match &ty.kind {
            ast::TypeKind::Path { path, .. } => {
                let known = path.as_ident().map(|i| i.name.as_str());
                let named = match known {
                    Some("int") if self.local("int").is_none() => None,
                    _ => Some(self.path(path)?),
                };
                match (&named, &value) {
                    (None, Value::Int(_)) => Ok(value),
                    (None, Value::Run(id)) if *self.body.ty(*id) == Type::Scalar(DType::I64) => {
                        Ok(value)
                    }
                    (Some(Value::DType(t)), v) => self.scalar_as(v.clone(), *t, span),
                    (Some(Value::Type(TypeValue::Struct(s))), Value::Struct(v))
                        if std::ptr::eq(*s, v.item) =>
                    {
                        Ok(value)
                    }
                    (Some(Value::Type(TypeValue::Variant(s))), Value::Variant(v))
                        if std::ptr::eq(s.item, v.ty.item) =>
                    {
                        Ok(value)
                    }
                    (Some(Value::Type(TypeValue::VariantItem(_, s))), Value::Variant(v))
                        if std::ptr::eq(*s, v.ty.item) =>
                    {
                        Ok(value)
                    }
                    (Some(Value::Type(TypeValue::Interface(s))), Value::Variant(v)) => {
                        let implemented = self
                            .interface_of(&v.ty)
                            .is_some_and(|(_, i)| std::ptr::eq(*s, i));
                        if implemented {
                            Ok(value)
                        } else {
                            self.not_of(&value, ty.span, span)
                        }
                    }
                    _ => self.not_of(&value, ty.span, span),
                }
            }
            ast::TypeKind::Tile { elem, dims } => {
                let elem = self.value_type(elem)?;
                let shape = self.dims(dims, ty.span)?;
                match self.shape_of(&value) {
                    Some(Shape::Tile(t, s)) if t == elem && s == shape => Ok(value),
                    _ => self.not_of(&value, ty.span, span),
                }
            }
            ast::TypeKind::Tuple(types) => match &value {
                Value::Tuple(items) if items.len() == types.len() => {
                    let mut out = Vec::new();
                    for (item, ty) in items.iter().zip(types) {
                        out.push(self.annotated(item.clone(), Some(ty), span)?);
                    }
                    Ok(Value::Tuple(out.into()))
                }
                _ => self.not_of(&value, ty.span, span),
            },
            ast::TypeKind::View { .. } => match &value {
                Value::View(_) => Ok(value),
                _ => self.not_of(&value, ty.span, span),
            },
            ast::TypeKind::Accum { .. } => self.fail(
                Diagnostic::error(
                    codes::E0704,
                    ty.span,
                    "`accum` is what a channel passes, and no type of values",
                )
                .help("a value is a tile: write `tile<…>[…]`"),
            ),
        }
    }

    fn not_of(&mut self, value: &Value<'a>, ty: Span, span: Span) -> Eval<Value<'a>> {
        let what = self.describe(value);
        let wanted = self.quote(ty);
        self.fail(
            Diagnostic::error(
                codes::E0102,
                span,
                format!("{wanted} is wanted here, and this is {what}"),
            )
            .label(ty, "because of this type"),
        )
    }

    /// A scalar of the type that an annotation names. Integers stay 64 bits wide.
    pub fn scalar_as(&mut self, value: Value<'a>, elem: DType, span: Span) -> Eval<Value<'a>> {
        match &value {
            Value::Int(v) if elem.is_int() => match fit_int(*v, elem) {
                Some(_) => Ok(value),
                None => self.error(codes::E0306, span, format!("{v} does not fit in `{elem}`")),
            },
            Value::Int(v) if elem.is_float() => Ok(Value::Float(from_int(elem, *v), Some(elem))),
            Value::Float(v, None) if elem.is_float() => {
                Ok(Value::Float(round_to(elem, *v), Some(elem)))
            }
            Value::Float(_, Some(t)) if *t == elem => Ok(value),
            Value::Bool(_) if elem == DType::Bool => Ok(value),
            Value::Run(id) => match self.body.ty(*id) {
                Type::Scalar(t) if *t == elem || *t == DType::I64 && elem.is_int() => Ok(value),
                _ => {
                    let what = self.describe(&value);
                    let text = self.quote(span);
                    self.fail(
                        Diagnostic::error(
                            codes::E0102,
                            span,
                            format!("an `{elem}` scalar is wanted here, and this is {what}"),
                        )
                        .help(cast_help(&text, elem)),
                    )
                }
            },
            Value::Error => Err(Told),
            _ => {
                let what = self.describe(&value);
                self.error(
                    codes::E0102,
                    span,
                    format!("an `{elem}` scalar is wanted here, and this is {what}"),
                )
            }
        }
    }

    /// A zero of `elem`.
    pub fn zero(&mut self, elem: DType, span: Span) -> Eval<crate::ir::ValueId> {
        if elem == DType::Bool {
            return Ok(self.constant(Constant::Bool(false)));
        }
        self.typed_constant(&Value::Int(0), elem, span)
    }
}

fn is_compile_time(value: &Value<'_>) -> bool {
    matches!(
        value,
        Value::DType(_)
            | Value::Type(_)
            | Value::Fn(_)
            | Value::Builtin(_)
            | Value::Str(_)
            | Value::Bool(_)
    )
}

fn compare_ordering(op: CompareOp, ordering: Option<std::cmp::Ordering>) -> bool {
    use std::cmp::Ordering::*;
    match op {
        CompareOp::Eq => ordering == Some(Equal),
        CompareOp::Ne => matches!(ordering, Some(Less | Greater)),
        CompareOp::Lt => ordering == Some(Less),
        CompareOp::Le => matches!(ordering, Some(Less | Equal)),
        CompareOp::Gt => ordering == Some(Greater),
        CompareOp::Ge => matches!(ordering, Some(Greater | Equal)),
    }
}
