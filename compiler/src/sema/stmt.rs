//! Statements and control flow: what a block does to the values of its names.

mod branch;
mod left;
mod loops;

use std::rc::Rc;

use tesserine_set::DType;

use super::{
    Eval, Told,
    access::Slice,
    eval::{Evaluator, Left, Shape, Tail, cast_help},
    fused::Call,
    roles::becomes,
    value::{StructValue, Value, VariantValue},
};
use crate::{
    diagnostics::{Diagnostic, codes},
    ir::{
        RegionId, ValueId,
        tile::{BinaryOp, Cache, CompareOp, Type},
    },
    span::Span,
    syntax::ast::{self, ExprKind, StmtKind},
};

use left::*;
use loops::Iterations;

/// What an arm of an `if` walks.
#[derive(Clone, Copy)]
enum Arm<'a> {
    Empty,
    Block(&'a ast::Block),
    /// The kernel's own body.
    Spine(&'a ast::Block),
    If(&'a ast::If),
    /// What follows an `if` whose arm returns.
    Rest(&'a [ast::Stmt], Option<&'a ast::Expr>),
    /// The same, where it is skipped if something was left before it.
    Guarded(&'a [ast::Stmt], Option<&'a ast::Expr>),
    /// What the function has returned.
    Returned,
    /// Iterations of a loop that is written out.
    Iterations(Iterations<'a>),
}

impl<'a> Evaluator<'a> {
    /// A block in a scope of its own; its value is [`Value::Unit`] if it has none.
    pub fn block(&mut self, block: &'a ast::Block) -> Eval<Value<'a>> {
        let required = self.roles.required.len();
        let result = self.nested(block.span, |this| {
            this.scoped(|this| this.statements(&block.stmts, block.value.as_deref()))
        });
        self.roles.required.truncate(required);
        result
    }

    /// The body of a kernel, for the points of the grid before the axes' `until`.
    pub fn kernel_body(&mut self, kernel: &'a ast::Kernel) -> Eval<Value<'a>> {
        let mut inside = Value::Bool(true);
        for axis in &kernel.grid.axes {
            let Some(until) = &axis.until else { continue };
            let end = self.expr(until)?;
            self.int_scalar((&end, until.span), "the end of an axis")?;
            let index = self.name(&axis.name)?;
            let before = self.compare(
                CompareOp::Lt,
                (&index, axis.span),
                (&end, until.span),
                until.span,
            )?;
            inside = match &inside {
                Value::Bool(true) => before,
                _ => {
                    let span = until.span;
                    self.arithmetic(BinaryOp::And, (&inside, span), (&before, span), span)?
                }
            };
        }
        let body = Arm::Block(&kernel.body);
        let is_roles = |s: &ast::Stmt| matches!(s.kind, StmtKind::Roles(_));
        if kernel.body.stmts.iter().any(is_roles) && !matches!(inside, Value::Bool(_)) {
            // What is shared is computed in any case; each role asks for itself.
            self.roles.inside = Some(std::mem::replace(&mut inside, Value::Bool(true)));
        }
        self.returning(&kernel.body);
        self.tail = Tail::Function;
        match inside {
            Value::Bool(true) => {}
            Value::Bool(false) => return Ok(Value::Unit),
            _ => {
                let span = kernel.grid.span;
                let body = match self.region == self.spine {
                    true => Arm::Spine(&kernel.body),
                    false => body,
                };
                return self.run_if(&inside, body, Arm::Empty, true, span);
            }
        }
        let value = self.arm(body)?;
        Ok(self.returned.take().unwrap_or(value))
    }

    /// The body of a function, in its frame.
    pub fn function_block(&mut self, block: &'a ast::Block) -> Eval<Value<'a>> {
        self.returning(block);
        self.tail = Tail::Function;
        let value = self.block(block)?;
        Ok(self.returned.take().unwrap_or(value))
    }

    /// Declares what a `return` in `block` needs, at the beginning of its function.
    pub(super) fn returning(&mut self, block: &'a ast::Block) {
        let mut names = Vec::new();
        scan_block(block, &mut names);
        if names.iter().any(|n| n == RETURN) {
            self.hidden(RETURN, Value::Bool(false), block.span);
            self.hidden(RESULT, nothing_yet(), block.span);
        }
    }

    /// Statements and the value behind them. An error in one statement does not keep the next from being walked.
    fn statements(
        &mut self,
        stmts: &'a [ast::Stmt],
        value: Option<&'a ast::Expr>,
    ) -> Eval<Value<'a>> {
        // What ends with its function or iteration can end it early without a word to others.
        let tail = std::mem::replace(&mut self.tail, Tail::Nothing);
        let mut told = None;
        for (i, stmt) in stmts.iter().enumerate() {
            let last = i + 1 == stmts.len() && value.is_none();
            let result = match &stmt.kind {
                StmtKind::If(branch)
                    if !branch.constant && branch.els.is_none() && leaves(&branch.then, tail) =>
                {
                    self.tail = tail;
                    let rest = Arm::Rest(&stmts[i + 1..], value);
                    let result = self.early_exit(branch, rest);
                    return match told {
                        Some(told) => Err(told),
                        None => result,
                    };
                }
                StmtKind::If(branch) if last => {
                    self.tail = tail;
                    let result = self.nested(stmt.span, |this| this.branch(branch, true));
                    return match (told, result) {
                        (Some(told), _) => Err(told),
                        (None, result) => result,
                    };
                }
                _ => self.nested(stmt.span, |this| this.statement_in(stmt, tail)),
            };
            if let Err(t) = result {
                told = Some(t);
            }
            if self.returned.is_some() || self.left.is_some() {
                return told.map_or(Ok(Value::Unit), Err);
            }
            let ends = i + 1 == stmts.len() && value.is_none();
            match self.reached(stmt.span)? {
                Reached::Always => {}
                Reached::Never => {
                    let value = match tail {
                        Tail::Function => self.value_of(RESULT),
                        _ => Value::Unit,
                    };
                    return told.map_or(Ok(value), Err);
                }
                Reached::Unless(_) if ends && tail != Tail::Function => {}
                Reached::Unless(away) => {
                    let gone = match tail {
                        Tail::Function => Arm::Returned,
                        _ => Arm::Empty,
                    };
                    let rest = Arm::Guarded(&stmts[i + 1..], value);
                    self.tail = tail;
                    let result = self.run_if(&away, gone, rest, true, stmt.span);
                    return told.map_or(result, Err);
                }
            }
        }
        let value = match value {
            Some(value) => self.expr(value),
            None => Ok(Value::Unit),
        };
        match told {
            Some(told) => Err(told),
            None => value,
        }
    }

    /// One statement by itself.
    pub fn statement(&mut self, stmt: &'a ast::Stmt) -> Eval<()> {
        self.statement_in(stmt, Tail::Nothing)
    }

    /// `tail` is what the block ends in which the statement stands.
    fn statement_in(&mut self, stmt: &'a ast::Stmt, tail: Tail) -> Eval<()> {
        let span = stmt.span;
        self.after_roles(span)?;
        match &stmt.kind {
            StmtKind::Let { pat, ty, value } => {
                let result = self
                    .expr(value)
                    .and_then(|v| self.annotated(v, ty.as_ref(), value.span))
                    .and_then(|v| {
                        if matches!(v, Value::Unit) {
                            return self.error(codes::E0108, value.span, "this has no value");
                        }
                        Ok(v)
                    });
                match result {
                    Ok(v) => self.pattern(pat, v),
                    Err(told) => {
                        self.pattern_error(pat);
                        Err(told)
                    }
                }
            }
            StmtKind::Expr(expr) => {
                let value = self.expr(expr)?;
                if !matches!(value, Value::Unit) && !super::atomics::is_atomic(expr) {
                    let what = self.describe(&value);
                    return self.fail(
                        Diagnostic::error(
                            codes::E0108,
                            expr.span,
                            format!("this gives {what}, which nothing uses"),
                        )
                        .help("name it with `let`, or `let _ = …` to drop it; without the `;`, the last is the value of the block"),
                    );
                }
                Ok(())
            }
            StmtKind::Assign {
                target,
                op,
                value,
                scatter,
            } => self.assign(target, *op, value, *scatter, span),
            StmtKind::If(branch) => self.branch(branch, false).map(|_| ()),
            StmtKind::For(loop_) => self.for_loop(loop_, span),
            StmtKind::While { cond, body } => self.while_loop(cond, body, span),
            StmtKind::Break => self.leave(Left::Break, tail, span),
            StmtKind::Continue => self.leave(Left::Continue, tail, span),
            StmtKind::Return(value) => {
                let value = match value {
                    Some(value) => self.expr(value)?,
                    None => Value::Unit,
                };
                if tail != Tail::Function {
                    self.note(RETURN, Value::Bool(true));
                    self.note(RESULT, value.clone());
                }
                self.returned = Some(value);
                Ok(())
            }
            StmtKind::Assert { constant, args } => self.assert(*constant, args, span),
            StmtKind::Require(features) => self.require(features, span),
            StmtKind::Workspace { .. } => self.fail(
                Diagnostic::error(codes::E0508, span, "a workspace belongs to an `op`")
                    .help("a kernel takes memory as a parameter: `part: mut view<f32>[n]`"),
            ),
            StmtKind::Launch { .. } => self.fail(
                Diagnostic::error(
                    codes::E0508,
                    span,
                    "an `op` or a test launches kernels, and this is neither",
                )
                .help("to run another kernel's body here, write `call kernel(…) at (…);`"),
            ),
            StmtKind::Call {
                scatter,
                kernel,
                cargs,
                args,
                at,
            } => {
                let call = Call {
                    kernel,
                    cargs,
                    args,
                    at,
                    scatter: *scatter,
                };
                self.call_kernel(call, span)
            }
            StmtKind::Channel {
                name,
                count,
                payload,
                depth,
                over,
                across,
            } => self.channel(
                name,
                count.as_ref(),
                payload,
                depth,
                over.as_ref(),
                across.as_ref(),
                span,
            ),
            StmtKind::Release { channel, lag } => self.release(channel, *lag, span),
            StmtKind::Pingpong(pingpong) => {
                let value = self.pingpong(pingpong, span)?;
                if matches!(value, Value::Unit) {
                    return Ok(());
                }
                let what = self.describe(&value);
                let title = format!("this `pingpong` gives {what}, which nothing uses");
                self.fail(Diagnostic::error(codes::E0108, span, title).help("name it with `let`"))
            }
            StmtKind::Put {
                channel,
                slot,
                at,
                values,
            } => self.put(channel, slot.as_ref(), at.as_deref(), values, span),
            StmtKind::Roles(roles) => self.roles_statement(roles, span),
            StmtKind::Error => Err(Told),
        }
    }

    pub(super) fn assert(&mut self, constant: bool, args: &'a [ast::Arg], span: Span) -> Eval<()> {
        let message = match args {
            [_] => None,
            [_, text] => match self.expr(&text.value)? {
                Value::Str(text) => Some(text.to_string()),
                _ => {
                    return self.error(
                        codes::E0107,
                        text.value.span,
                        "the second argument of `assert` is a text",
                    );
                }
            },
            _ => {
                return self.error(
                    codes::E0107,
                    span,
                    "`assert` takes a condition and perhaps a text",
                );
            }
        };
        let cond = self.expr(&args[0].value)?;
        let at = args[0].value.span;
        self.bool_scalar((&cond, at), "a condition")?;
        match (&cond, constant) {
            (Value::Bool(true), _) => Ok(()),
            (Value::Bool(false), _) => {
                let text = message.unwrap_or_else(|| format!("{} does not hold", self.quote(at)));
                self.error(codes::E0303, at, text)
            }
            (_, true) => self.error(
                codes::E0301,
                at,
                format!(
                    "`assert const` takes what is known at compile time, and {} is not",
                    self.quote(at)
                ),
            ),
            _ => {
                let id = self.materialise(&cond, at)?;
                let text = message.unwrap_or_else(|| self.program.sources.text(at).to_owned());
                self.builder(span).assert(id, text);
                Ok(())
            }
        }
    }

    // Names.

    pub fn pattern(&mut self, pat: &'a ast::Pat, value: Value<'a>) -> Eval<()> {
        match &pat.kind {
            ast::PatKind::Wild => Ok(()),
            ast::PatKind::Bind { mutable, name } => {
                let value = if *mutable {
                    self.variable(value)?
                } else {
                    value
                };
                self.bind(name, value, *mutable);
                Ok(())
            }
            ast::PatKind::Tuple(pats) => match &value {
                Value::Tuple(items) if items.len() == pats.len() => {
                    for (pat, item) in pats.iter().zip(items.iter()) {
                        self.pattern(pat, item.clone())?;
                    }
                    Ok(())
                }
                _ => {
                    let what = self.describe(&value);
                    self.pattern_error(pat);
                    self.error(
                        codes::E0102,
                        pat.span,
                        format!(
                            "a tuple of {} is taken apart here, and this is {what}",
                            pats.len()
                        ),
                    )
                }
            },
        }
    }

    fn pattern_error(&mut self, pat: &'a ast::Pat) {
        match &pat.kind {
            ast::PatKind::Wild => {}
            ast::PatKind::Bind { mutable, name } => self.bind(name, Value::Error, *mutable),
            ast::PatKind::Tuple(pats) => pats.iter().for_each(|p| self.pattern_error(p)),
        }
    }

    /// A value as a `let mut` holds it: literals take their default type, so that it has one.
    fn variable(&mut self, value: Value<'a>) -> Eval<Value<'a>> {
        Ok(match value {
            Value::Float(v, None) => Value::Float(f64::from(v as f32), Some(DType::F32)),
            Value::Tuple(items) => {
                let mut out = Vec::new();
                for item in items.iter() {
                    out.push(self.variable(item.clone())?);
                }
                Value::Tuple(out.into())
            }
            Value::Struct(value) => {
                let mut fields = Vec::new();
                for field in &value.fields {
                    fields.push(self.variable(field.clone())?);
                }
                Value::Struct(Rc::new(StructValue {
                    item: value.item,
                    fields,
                }))
            }
            value => value,
        })
    }

    pub fn assign(
        &mut self,
        target: &'a ast::Expr,
        op: ast::AssignOp,
        value: &'a ast::Expr,
        scatter: bool,
        span: Span,
    ) -> Eval<()> {
        if scatter && (op != ast::AssignOp::Set || !matches!(target.kind, ExprKind::Index { .. })) {
            return self.fail(
                Diagnostic::error(
                    codes::E0108,
                    target.span,
                    "`scatter` stores to a slice of a view",
                )
                .help("write `scatter v[…] = …`"),
            );
        }
        let binary = match op {
            ast::AssignOp::Set => None,
            ast::AssignOp::Add => Some(BinaryOp::Add),
            ast::AssignOp::Sub => Some(BinaryOp::Sub),
            ast::AssignOp::Mul => Some(BinaryOp::Mul),
            ast::AssignOp::Or => Some(BinaryOp::Or),
            ast::AssignOp::And => Some(BinaryOp::And),
        };
        match &target.kind {
            ExprKind::Path(path) if path.as_ident().is_some() => {
                let name = path.as_ident().expect("a path of one segment");
                let new = self.expr(value);
                let Some(binding) = self.local(&name.name).cloned() else {
                    new?;
                    return match self.name(name) {
                        Ok(_) => self.error(
                            codes::E0111,
                            target.span,
                            format!("`{}` is not a variable", name.name),
                        ),
                        Err(told) => Err(told),
                    };
                };
                if !binding.mutable {
                    new?;
                    let declared = binding.span;
                    if let Value::View(view) = &binding.value {
                        let slices = vec!["…"; view.extents.len()].join(", ");
                        return self.fail(
                            Diagnostic::error(
                                codes::E0111,
                                target.span,
                                format!(
                                    "`{}` is a view: its elements are stored to, not the view",
                                    name.name
                                ),
                            )
                            .label(declared, "declared here")
                            .help(format!("name the slice: `{}[{slices}] = …`", name.name)),
                        );
                    }
                    return self.fail(
                        Diagnostic::error(
                            codes::E0111,
                            target.span,
                            format!("`{}` does not change", name.name),
                        )
                        .label(declared, "defined here")
                        .help(format!(
                            "declare it `let mut {0}`, or shadow it: `let {0} = …`",
                            name.name
                        )),
                    );
                }
                if matches!(binding.value, Value::Error) {
                    return Err(Told);
                }
                let mut new = new?;
                if let Some(binary) = binary {
                    new = self.arithmetic(
                        binary,
                        (&binding.value, target.span),
                        (&new, value.span),
                        span,
                    )?;
                }
                let new =
                    self.as_variable(&binding.value, new, (&name.name, binding.span), value.span)?;
                if let Some(slot) = self.local_mut(&name.name) {
                    slot.value = new;
                }
                Ok(())
            }
            ExprKind::Index { base, indices } => {
                let on = self.expr(base)?;
                let Value::View(view) = on else {
                    let _ = self.expr(value);
                    let what = self.describe(&on);
                    let mut diagnostic = Diagnostic::error(
                        codes::E0111,
                        target.span,
                        format!(
                            "only slices of views are stored to, and {} is {what}",
                            self.quote(base.span)
                        ),
                    );
                    if let Some(Shape::Tile(..)) = self.shape_of(&on) {
                        diagnostic = diagnostic
                            .note("tiles are values: they are made, not changed")
                            .help("to change some elements, write `x = select(mask, new, x)`");
                    }
                    return self.fail(diagnostic);
                };
                let slice = self.slice(view, indices, target.span);
                let new = self.expr(value);
                let (slice, new) = (slice?, new?);
                let new = match binary {
                    None => new,
                    Some(binary) => {
                        self.check_storable(&slice)?;
                        let old = self.load(&slice, None, Cache::Normal)?;
                        let sum =
                            self.arithmetic(binary, (&old, target.span), (&new, value.span), span)?;
                        self.narrow_scalar(&slice, sum, span)?
                    }
                };
                let outer = self.scatter;
                self.scatter |= scatter;
                let done = self.store(&slice, (&new, value.span), Cache::Normal);
                self.scatter = outer;
                done
            }
            ExprKind::Call { callee, .. } => {
                let _ = callee;
                self.error(
                    codes::E0111,
                    target.span,
                    "the result of a call cannot be assigned to",
                )
            }
            ExprKind::Field { .. } | ExprKind::Element { .. } => self.fail(
                Diagnostic::error(
                    codes::E0111,
                    target.span,
                    "a field does not change by itself",
                )
                .help("make the whole value anew"),
            ),
            _ => self.error(
                codes::E0111,
                target.span,
                "only a variable, or a slice of a view, can be assigned to",
            ),
        }
    }

    /// A scalar that was read wide goes back as narrow as the view is.
    fn narrow_scalar(&mut self, slice: &Slice, value: Value<'a>, span: Span) -> Eval<Value<'a>> {
        match slice.ty() {
            Type::Scalar(elem) if elem.is_float() => self.cast((&value, span), elem, span),
            _ => Ok(value),
        }
    }

    /// `new` as a value of the variable that holds `old`: of its type.
    fn as_variable(
        &mut self,
        old: &Value<'a>,
        new: Value<'a>,
        variable: (&str, Span),
        span: Span,
    ) -> Eval<Value<'a>> {
        let same = match (old, &new) {
            (_, Value::Error) | (Value::Error, _) => return Err(Told),
            (Value::Tuple(a), Value::Tuple(b)) if a.len() == b.len() => {
                let mut out = Vec::new();
                for (a, b) in a.iter().zip(b.iter()) {
                    out.push(self.as_variable(a, b.clone(), variable, span)?);
                }
                return Ok(Value::Tuple(out.into()));
            }
            (Value::Struct(a), Value::Struct(b)) if std::ptr::eq(a.item, b.item) => {
                let mut fields = Vec::new();
                for (a, b) in a.fields.iter().zip(&b.fields) {
                    fields.push(self.as_variable(a, b.clone(), variable, span)?);
                }
                return Ok(Value::Struct(Rc::new(StructValue {
                    item: a.item,
                    fields,
                })));
            }
            (Value::Variant(a), Value::Variant(b)) if std::ptr::eq(a.ty.item, b.ty.item) => {
                let mut fields = Vec::new();
                for (a, b) in a.fields.iter().zip(&b.fields) {
                    fields.push(self.as_variable(a, b.clone(), variable, span)?);
                }
                return Ok(Value::Variant(Rc::new(VariantValue {
                    ty: a.ty.clone(),
                    fields,
                })));
            }
            _ => match (self.run_type(old), self.run_type(&new)) {
                (Some(a), Some(b)) if a == b => true,
                // A product in flight, and what it gives.
                (Some(a), Some(b)) if becomes(&a, &b) || becomes(&b, &a) => true,
                // A literal takes the variable's type.
                (Some(Type::Scalar(t)), Some(_))
                    if matches!(new, Value::Float(_, None) | Value::Int(_)) && t.is_float() =>
                {
                    let v = match new {
                        Value::Int(v) => v as f64,
                        Value::Float(v, _) => v,
                        _ => 0.0,
                    };
                    return self.scalar_as(Value::Float(v, None), t, span);
                }
                (None, None) => old.same(&new),
                _ => false,
            },
        };
        if same {
            return Ok(new);
        }
        let (was, is) = (self.describe(old), self.describe(&new));
        let mut diagnostic = Diagnostic::error(
            codes::E0113,
            span,
            format!("`{}` holds {was}, and {is} is assigned to it", variable.0),
        )
        .label(variable.1, "defined here");
        if let (Some(a), Some(b)) = (self.run_type(old), self.run_type(&new)) {
            if a.shape() == b.shape() {
                diagnostic = diagnostic.help(cast_help(&self.quote(span), a.elem()));
            } else if a.shape().is_empty() {
                diagnostic = diagnostic.help(format!(
                    "begin with a tile: `let mut {} = zeros<{}>{}`",
                    variable.0,
                    b.elem(),
                    {
                        let s: Vec<String> = b.shape().iter().map(u32::to_string).collect();
                        format!("[{}]", s.join(", "))
                    }
                ));
            }
        }
        self.fail(diagnostic)
    }

    /// The type that a value has, or would have, in the body.
    fn run_type(&self, value: &Value<'a>) -> Option<Type> {
        Some(match value {
            Value::Run(id) => self.body.ty(*id).clone(),
            Value::Int(_) => Type::Scalar(DType::I64),
            Value::Float(_, t) => Type::Scalar(t.unwrap_or(DType::F32)),
            Value::Bool(_) => Type::Scalar(DType::Bool),
            _ => return None,
        })
    }

    // Values across regions.

    /// Names of the current frame that `scan` assigns and that may change.
    /// Names of the current frame that a block assigns and that may change.
    pub(super) fn assigned_in(&self, block: &ast::Block) -> Vec<String> {
        self.assigned(names_in(block))
    }

    fn assigned(&self, names: Vec<String>) -> Vec<String> {
        let mut out: Vec<String> = Vec::new();
        for name in names {
            if !out.contains(&name) && self.local(&name).is_some_and(|b| b.mutable) {
                out.push(name);
            }
        }
        out
    }

    pub(super) fn values(&self, names: &[String]) -> Vec<Value<'a>> {
        names
            .iter()
            .map(|n| self.local(n).map_or(Value::Error, |b| b.value.clone()))
            .collect()
    }

    pub(super) fn set(&mut self, names: &[String], values: Vec<Value<'a>>) {
        for (name, value) in names.iter().zip(values) {
            if let Some(slot) = self.local_mut(name) {
                slot.value = value;
            }
        }
    }

    /// The scalars and tiles of a value, in order.
    pub(super) fn leaves(
        &mut self,
        value: &Value<'a>,
        span: Span,
        out: &mut Vec<ValueId>,
    ) -> Eval<()> {
        match value {
            // Perhaps a product in flight.
            Value::Run(id) => out.push(*id),
            Value::Int(_) | Value::Float(..) | Value::Bool(_) | Value::Symbol(_) => {
                out.push(self.materialise(value, span)?);
            }
            Value::Tuple(items) | Value::List(items) => {
                for item in items.iter() {
                    self.leaves(item, span, out)?;
                }
            }
            Value::Struct(value) => {
                for field in &value.fields {
                    self.leaves(field, span, out)?;
                }
            }
            Value::Variant(value) => {
                for field in &value.fields {
                    self.leaves(field, span, out)?;
                }
            }
            Value::Error => return Err(Told),
            _ => {}
        }
        Ok(())
    }

    /// The same value with other scalars and tiles.
    pub(super) fn with_leaves(
        &self,
        value: &Value<'a>,
        leaves: &mut impl Iterator<Item = ValueId>,
    ) -> Value<'a> {
        let mut next = || leaves.next().map_or(Value::Error, Value::Run);
        match value {
            Value::Run(_)
            | Value::Int(_)
            | Value::Float(..)
            | Value::Bool(_)
            | Value::Symbol(_) => next(),
            Value::Tuple(items) => Value::Tuple(
                items
                    .iter()
                    .map(|i| self.with_leaves(i, leaves))
                    .collect::<Vec<_>>()
                    .into(),
            ),
            Value::List(items) => Value::List(
                items
                    .iter()
                    .map(|i| self.with_leaves(i, leaves))
                    .collect::<Vec<_>>()
                    .into(),
            ),
            Value::Struct(v) => Value::Struct(Rc::new(StructValue {
                item: v.item,
                fields: v
                    .fields
                    .iter()
                    .map(|f| self.with_leaves(f, leaves))
                    .collect(),
            })),
            Value::Variant(v) => Value::Variant(Rc::new(VariantValue {
                ty: v.ty.clone(),
                fields: v
                    .fields
                    .iter()
                    .map(|f| self.with_leaves(f, leaves))
                    .collect(),
            })),
            other => other.clone(),
        }
    }

    /// Runs `f` with a new region as the place for operations.
    pub(super) fn in_region<T>(&mut self, region: RegionId, f: impl FnOnce(&mut Self) -> T) -> T {
        let outer = std::mem::replace(&mut self.region, region);
        let result = f(self);
        self.region = outer;
        result
    }
}
