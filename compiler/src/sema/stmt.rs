//! Statements and control flow: what a block does to the values of its names.

use std::rc::Rc;

use tesserine_set::DType;

use super::{
    Eval, Told,
    access::Slice,
    eval::{Binding, Evaluator, Left, Shape, Tail, cast_help, describe_type},
    value::{StructValue, Value, VariantValue},
};
use crate::{
    diagnostics::{Diagnostic, codes},
    ir::{
        RegionId, ValueId,
        tile::{BinaryOp, Cache, CompareOp, Constant, Type, UnaryOp},
    },
    span::Span,
    syntax::ast::{self, ExprKind, StmtKind},
};

// Variables that no program can name: what was left early. They are constants wherever that is known.
/// Whether the loop was broken off.
const BREAK: &str = "break";
/// Whether the iteration was left.
const SKIP: &str = "continue";
/// Whether the function has returned.
const RETURN: &str = "return";
/// What it has returned.
const RESULT: &str = "return value";
/// The variable that holds the index of a loop that can be broken off.
const INDEX: &str = "for";

/// Iterations of a `for const`.
const MAX_UNROLL: i64 = 1 << 16;

/// What an arm of an `if` walks.
#[derive(Clone, Copy)]
enum Arm<'a> {
    Empty,
    Block(&'a ast::Block),
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

/// Iterations of a `for const`, in one piece of it.
#[derive(Clone, Copy)]
struct Iterations<'a> {
    loop_: &'a ast::For,
    part: usize,
    first: i128,
    step: i128,
    count: i128,
}

/// Whether what follows a statement is reached.
enum Reached<'a> {
    Always,
    Never,
    /// If this is false at run time.
    Unless(Value<'a>),
}

impl<'a> Evaluator<'a> {
    /// A block in a scope of its own; its value is [`Value::Unit`] if it has none.
    pub fn block(&mut self, block: &'a ast::Block) -> Eval<Value<'a>> {
        self.nested(block.span, |this| {
            this.scoped(|this| this.statements(&block.stmts, block.value.as_deref()))
        })
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
        self.returning(&kernel.body);
        self.tail = Tail::Function;
        match inside {
            Value::Bool(true) => {}
            Value::Bool(false) => return Ok(Value::Unit),
            _ => {
                let span = kernel.grid.span;
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
    fn returning(&mut self, block: &'a ast::Block) {
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
                _ => self.nested(stmt.span, |this| this.statement(stmt, tail)),
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

    fn value_of(&self, name: &str) -> Value<'a> {
        self.local(name).map_or(Value::Unit, |b| b.value.clone())
    }

    /// Whether what comes next is reached, as far as `break`, `continue` and `return` say.
    fn reached(&mut self, span: Span) -> Eval<Reached<'a>> {
        let mut away = Value::Bool(false);
        for name in [RETURN, BREAK, SKIP] {
            let flag = match self.local(name) {
                Some(flag) => flag.value.clone(),
                None => continue,
            };
            away = match (&away, flag) {
                (_, Value::Bool(false)) => continue,
                (_, Value::Bool(true)) => return Ok(Reached::Never),
                (_, Value::Error) => return Err(Told),
                (Value::Bool(_), flag) => flag,
                (_, flag) => self.arithmetic(BinaryOp::Or, (&away, span), (&flag, span), span)?,
            };
        }
        Ok(match away {
            Value::Bool(_) => Reached::Always,
            away => Reached::Unless(away),
        })
    }

    /// At a place that is reached, nothing was left.
    fn here(&mut self) -> Vec<(&'static str, Value<'a>)> {
        let mut before = Vec::new();
        for name in [RETURN, BREAK, SKIP] {
            if let Some(flag) = self.local_mut(name) {
                let value = std::mem::replace(&mut flag.value, Value::Bool(false));
                before.push((name, value));
            }
        }
        before
    }

    /// Notes that a function, loop or iteration is left.
    fn note(&mut self, name: &str, value: Value<'a>) {
        if let Some(flag) = self.local_mut(name) {
            flag.value = value;
        }
    }

    /// `tail` is what the block ends in which the statement stands.
    fn statement(&mut self, stmt: &'a ast::Stmt, tail: Tail) -> Eval<()> {
        let span = stmt.span;
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
                        .help("name it with `let`, or `let _ = …` to drop it"),
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
            StmtKind::Require(_) => self.not_yet(span, "`require`"),
            StmtKind::Workspace { .. } => self.not_yet(span, "`workspace`"),
            StmtKind::Launch { .. } => self.not_yet(span, "`launch`"),
            StmtKind::Call { .. } => self.not_yet(span, "`call`"),
            StmtKind::Channel { .. } => self.not_yet(span, "a channel"),
            StmtKind::Release { .. } => self.not_yet(span, "`release`"),
            StmtKind::Pingpong(_) => self.not_yet(span, "`pingpong`"),
            StmtKind::Put { .. } => self.not_yet(span, "`put`"),
            StmtKind::Roles(_) => self.not_yet(span, "roles"),
            StmtKind::Error => Err(Told),
        }
    }

    /// `break` or `continue`.
    fn leave(&mut self, left: Left, tail: Tail, span: Span) -> Eval<()> {
        if self.loops.is_empty() {
            let word = if left == Left::Break {
                "break"
            } else {
                "continue"
            };
            return self.error(codes::E0108, span, format!("`{word}` stands in no loop"));
        }
        match left {
            Left::Break => self.note(BREAK, Value::Bool(true)),
            // The end of the block is the iteration's.
            Left::Continue if tail == Tail::Loop => {}
            Left::Continue => self.note(SKIP, Value::Bool(true)),
        }
        self.left = Some(left);
        Ok(())
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
    fn assigned(&self, names: Vec<String>) -> Vec<String> {
        let mut out: Vec<String> = Vec::new();
        for name in names {
            if !out.contains(&name) && self.local(&name).is_some_and(|b| b.mutable) {
                out.push(name);
            }
        }
        out
    }

    fn values(&self, names: &[String]) -> Vec<Value<'a>> {
        names
            .iter()
            .map(|n| self.local(n).map_or(Value::Error, |b| b.value.clone()))
            .collect()
    }

    fn set(&mut self, names: &[String], values: Vec<Value<'a>>) {
        for (name, value) in names.iter().zip(values) {
            if let Some(slot) = self.local_mut(name) {
                slot.value = value;
            }
        }
    }

    /// The scalars and tiles of a value, in order.
    fn leaves(&mut self, value: &Value<'a>, span: Span, out: &mut Vec<ValueId>) -> Eval<()> {
        match value {
            Value::Run(_)
            | Value::Int(_)
            | Value::Float(..)
            | Value::Bool(_)
            | Value::Symbol(_) => {
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
    fn with_leaves(
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
    fn in_region<T>(&mut self, region: RegionId, f: impl FnOnce(&mut Self) -> T) -> T {
        let outer = std::mem::replace(&mut self.region, region);
        let result = f(self);
        self.region = outer;
        result
    }

    // `if`.

    pub fn if_expr(&mut self, branch: &'a ast::If) -> Eval<Value<'a>> {
        let value = self.branch(branch, true)?;
        if matches!(value, Value::Unit) {
            return self.error(codes::E0108, branch.span, "this `if` has no value");
        }
        Ok(value)
    }

    /// `if … { …; return …; }`, or `break` or `continue` so, and what follows it.
    fn early_exit(&mut self, branch: &'a ast::If, rest: Arm<'a>) -> Eval<Value<'a>> {
        let tail = std::mem::replace(&mut self.tail, Tail::Nothing);
        let cond = self.expr(&branch.cond)?;
        self.bool_scalar((&cond, branch.cond.span), "the condition of an `if`")?;
        self.tail = tail;
        let then = Arm::Block(&branch.then);
        let value = match cond {
            Value::Bool(true) => return self.arm(then),
            Value::Bool(false) => return self.arm_inline(rest),
            _ => self.run_if(&cond, then, rest, true, branch.span)?,
        };
        Ok(value)
    }

    fn branch(&mut self, branch: &'a ast::If, valued: bool) -> Eval<Value<'a>> {
        let tail = std::mem::replace(&mut self.tail, Tail::Nothing);
        let cond = self.expr(&branch.cond)?;
        let at = branch.cond.span;
        self.bool_scalar((&cond, at), "the condition of an `if`")?;
        self.tail = tail;
        let otherwise = match branch.els.as_deref() {
            None => Arm::Empty,
            Some(ast::Else::Block(block)) => Arm::Block(block),
            Some(ast::Else::If(inner)) => Arm::If(inner),
        };
        match cond {
            Value::Bool(true) => self.arm(Arm::Block(&branch.then)),
            Value::Bool(false) => self.arm(otherwise),
            _ if branch.constant => {
                let mut diagnostic = Diagnostic::error(
                    codes::E0301,
                    at,
                    format!(
                        "`if const` takes what is known at compile time, and {} is not",
                        self.quote(at)
                    ),
                );
                diagnostic = diagnostic.help("write `if` without `const` to decide at run time");
                self.fail(diagnostic)
            }
            _ => self.run_if(
                &cond,
                Arm::Block(&branch.then),
                otherwise,
                valued,
                branch.span,
            ),
        }
    }

    fn arm(&mut self, arm: Arm<'a>) -> Eval<Value<'a>> {
        match arm {
            Arm::Empty => Ok(Value::Unit),
            Arm::Block(block) => self.block(block),
            Arm::If(inner) => self.nested(inner.span, |this| this.branch(inner, true)),
            Arm::Rest(..) | Arm::Guarded(..) => self.scoped(|this| this.arm_inline(arm)),
            Arm::Returned => Ok(self.value_of(RESULT)),
            Arm::Iterations(iterations) => self.iterations(iterations).map(|()| Value::Unit),
        }
    }

    /// The rest of a block, in the block's own scope.
    fn arm_inline(&mut self, arm: Arm<'a>) -> Eval<Value<'a>> {
        match arm {
            Arm::Rest(stmts, value) | Arm::Guarded(stmts, value) => self.statements(stmts, value),
            other => self.arm(other),
        }
    }

    /// An `if` that is decided at run time. Where it ends its function, `return` in an arm gives the arm's value.
    fn run_if(
        &mut self,
        cond: &Value<'a>,
        then: Arm<'a>,
        otherwise: Arm<'a>,
        valued: bool,
        span: Span,
    ) -> Eval<Value<'a>> {
        let tail = std::mem::replace(&mut self.tail, Tail::Nothing);
        let cond = self.materialise(cond, span)?;
        let mut names = Vec::new();
        scan_arm(then, &mut names);
        scan_arm(otherwise, &mut names);
        let names = self.assigned(names);
        let before = self.values(&names);
        let regions = [self.body.new_region(), self.body.new_region()];
        let mut ends: Vec<Eval<End<'a>>> = Vec::new();
        for (arm, region) in [(then, regions[0]), (otherwise, regions[1])] {
            self.set(&names, before.clone());
            let flags = match arm {
                Arm::Guarded(..) | Arm::Iterations(_) => self.here(),
                _ => Vec::new(),
            };
            self.tail = tail;
            let result = self.in_region(region, |this| this.arm(arm));
            let unknown = |this: &Self| is_nothing_yet(&this.value_of(RESULT));
            let mut gone =
                self.left.take().is_some() || matches!(arm, Arm::Returned) && unknown(self);
            let result = match self.returned.take() {
                Some(value) if tail == Tail::Function => result.map(|_| value),
                Some(_) => {
                    gone = true;
                    result
                }
                None => result,
            };
            let after = self.values(&names);
            for (name, value) in flags {
                self.note(name, value);
            }
            ends.push(result.map(|value| End { after, value, gone }));
        }
        self.tail = Tail::Nothing;
        let mut ends = ends.into_iter();
        let (Some(a), Some(b)) = (ends.next(), ends.next()) else {
            return Err(Told);
        };
        let (mut a, mut b) = match (a, b) {
            (Ok(a), Ok(b)) => (a, b),
            (Err(told), _) | (_, Err(told)) => {
                // What the arms assign is unknown now; what else they did has been checked.
                let errors = vec![Value::Error; names.len()];
                self.set(&names, errors);
                return Err(told);
            }
        };
        if !valued {
            (a.value, b.value) = (Value::Unit, Value::Unit);
        }
        // What an arm gives that is left is not looked at.
        if a.gone && !b.gone {
            a.value = self.anything_like(&b.value, regions[0], span)?;
        } else if b.gone && !a.gone {
            b.value = self.anything_like(&a.value, regions[1], span)?;
        }
        if let Some(at) = names.iter().position(|n| n == RESULT) {
            let [x, y] = [&mut a, &mut b].map(|end| &mut end.after[at]);
            match (&x, &y) {
                (v, _) if is_nothing_yet(v) => *x = self.anything_like(y, regions[0], span)?,
                (_, v) if is_nothing_yet(v) => *y = self.anything_like(x, regions[1], span)?,
                _ => {}
            }
        }
        if let (Value::Unit, x) | (x, Value::Unit) = (&a.value, &b.value)
            && !matches!(x, Value::Unit)
        {
            let what = self.describe(x);
            return self.error(
                codes::E0108,
                span,
                format!("one arm of this `if` gives {what}, and the other nothing"),
            );
        }
        a.after.push(a.value);
        b.after.push(b.value);
        let mut joined = Vec::new();
        let mut yields: [Vec<ValueId>; 2] = [Vec::new(), Vec::new()];
        for (x, y) in a.after.iter().zip(&b.after) {
            joined.push(self.join(x, y, regions, &mut yields, span)?);
        }
        let types: Vec<Type> = yields[0].iter().map(|v| self.body.ty(*v).clone()).collect();
        for (region, values) in regions.into_iter().zip(&yields) {
            let values = values.clone();
            self.in_region(region, |this| this.builder(span).yield_(values));
        }
        // Scalars that both arms only name are selected: there is nothing to branch over.
        let only_names = regions.iter().all(|r| self.body.regions[*r].ops.len() == 1)
            && types.iter().all(|t| matches!(t, Type::Scalar(_)));
        let results: Vec<ValueId> = if only_names {
            let pairs = yields[0].iter().zip(&yields[1]);
            pairs
                .map(|(x, y)| self.builder(span).select(cond, *x, *y))
                .collect()
        } else {
            let op = self.builder(span).if_(cond, types, regions[0], regions[1]);
            self.body.ops[op].results.clone()
        };
        let mut results = results.into_iter();
        let mut values: Vec<Value<'a>> = Vec::new();
        for shape in joined {
            values.push(match shape {
                Joined::Same(value) => value,
                Joined::Leaves(like) => self.with_leaves(&like, &mut results),
            });
        }
        let value = values.pop().unwrap_or(Value::Unit);
        self.set(&names, values);
        Ok(value)
    }

    /// Some value of the form and types of `value`, which nothing looks at.
    fn anything_like(
        &mut self,
        value: &Value<'a>,
        region: RegionId,
        span: Span,
    ) -> Eval<Value<'a>> {
        let mut leaves = Vec::new();
        self.leaves(value, span, &mut leaves)?;
        let types: Vec<Type> = leaves.iter().map(|v| self.body.ty(*v).clone()).collect();
        Ok(self.in_region(region, |this| this.anything(value, &types, span)))
    }

    fn anything(&mut self, form: &Value<'a>, types: &[Type], span: Span) -> Value<'a> {
        let mut zeros = Vec::new();
        for ty in types {
            let zero = self.constant(match ty.elem() {
                DType::Bool | DType::U1 => Constant::Bool(false),
                t if t.is_float() => Constant::Float(0.0, t),
                t => Constant::Int(0, t),
            });
            zeros.push(match ty {
                Type::Tile(tile) => self.builder(span).broadcast(zero, &tile.shape),
                _ => zero,
            });
        }
        self.with_leaves(form, &mut zeros.into_iter())
    }

    /// What two arms give, as one value: the same in both, or of the same type.
    fn join(
        &mut self,
        x: &Value<'a>,
        y: &Value<'a>,
        regions: [RegionId; 2],
        yields: &mut [Vec<ValueId>; 2],
        span: Span,
    ) -> Eval<Joined<'a>> {
        if x.same(y) {
            return Ok(Joined::Same(x.clone()));
        }
        let mut leaves: [Vec<ValueId>; 2] = [Vec::new(), Vec::new()];
        // A literal takes the type of what the other arm gives.
        let (x2, y2) = (
            self.like(x, y, regions[0], span)?,
            self.like(y, x, regions[1], span)?,
        );
        self.leaves(&x2, span, &mut leaves[0])?;
        self.leaves(&y2, span, &mut leaves[1])?;
        let types = |this: &Self, v: &[ValueId]| {
            v.iter()
                .map(|v| this.body.ty(*v).clone())
                .collect::<Vec<_>>()
        };
        let (s, t) = (types(self, &leaves[0]), types(self, &leaves[1]));
        if s != t || !same_form(&x2, &y2) {
            let (a, b) = match (&s[..], &t[..]) {
                ([s], [t]) => (describe_type(s), describe_type(t)),
                _ => (self.describe(x), self.describe(y)),
            };
            return self.error(
                codes::E0102,
                span,
                format!("one arm of this `if` gives {a}, and the other {b}"),
            );
        }
        for (all, new) in yields.iter_mut().zip(leaves) {
            all.extend(new);
        }
        Ok(Joined::Leaves(x2))
    }

    /// `value`, with literals brought to the types of `other`.
    fn like(
        &mut self,
        value: &Value<'a>,
        other: &Value<'a>,
        region: RegionId,
        span: Span,
    ) -> Eval<Value<'a>> {
        match (value, other) {
            (Value::Int(_) | Value::Float(_, None), Value::Run(id)) => {
                if let Type::Scalar(t) = *self.body.ty(*id)
                    && (t.is_float() || matches!(value, Value::Int(_)) && t.is_int())
                {
                    let id = self.in_region(region, |this| this.typed_constant(value, t, span))?;
                    return Ok(Value::Run(id));
                }
                Ok(value.clone())
            }
            (Value::Int(v), Value::Float(_, t)) => Ok(Value::Float(*v as f64, *t)),
            (Value::Float(v, None), Value::Float(_, t)) => Ok(Value::Float(*v, *t)),
            (Value::Tuple(a), Value::Tuple(b)) if a.len() == b.len() => {
                let mut out = Vec::new();
                for (a, b) in a.iter().zip(b.iter()) {
                    out.push(self.like(a, b, region, span)?);
                }
                Ok(Value::Tuple(out.into()))
            }
            (Value::Struct(a), Value::Struct(b)) if std::ptr::eq(a.item, b.item) => {
                let mut fields = Vec::new();
                for (a, b) in a.fields.iter().zip(&b.fields) {
                    fields.push(self.like(a, b, region, span)?);
                }
                Ok(Value::Struct(Rc::new(StructValue {
                    item: a.item,
                    fields,
                })))
            }
            _ => Ok(value.clone()),
        }
    }

    // Loops.

    fn for_loop(&mut self, loop_: &'a ast::For, span: Span) -> Eval<()> {
        let step = match &loop_.step {
            None => 1,
            Some(step) => {
                let value = self.const_int(step, "a step")?;
                if value < 1 {
                    return self.fail(
                        Diagnostic::error(
                            codes::E0306,
                            step.span,
                            format!("a step is at least 1, and this is {value}"),
                        )
                        .help("to go downwards, write `rev`"),
                    );
                }
                value
            }
        };
        let mut bounds = Vec::new();
        for bound in &loop_.bounds {
            let value = self.expr(bound)?;
            if !matches!(value, Value::Int(_)) {
                self.int_scalar((&value, bound.span), "a bound of a loop")?;
            }
            bounds.push(value);
        }
        if bounds.len() > 2 && loop_.part.is_none() {
            return self.fail(
                Diagnostic::error(
                    codes::E0107,
                    span,
                    "a loop with inner points names its parts",
                )
                .help(format!("write `for ({}, part) in …`", loop_.index.name)),
            );
        }
        if let Some(part) = &loop_.part
            && bounds.len() == 2
        {
            return self.error(
                codes::E0107,
                part.span,
                "this loop has no inner points, so it has one part only",
            );
        }
        // The points are clamped into order.
        let at = |i: usize| loop_.bounds[i].span;
        let (first, last) = (0, bounds.len() - 1);
        let mut points = vec![bounds[first].clone()];
        for i in 1..last {
            let low = points[i - 1].clone();
            let up =
                self.arithmetic(BinaryOp::Max, (&bounds[i], at(i)), (&low, at(i - 1)), at(i))?;
            // The end may lie before the start: then nothing runs, and the point is the start.
            let end = self.arithmetic(
                BinaryOp::Max,
                (&bounds[last], at(last)),
                (&low, at(i - 1)),
                at(i),
            )?;
            points.push(self.arithmetic(BinaryOp::Min, (&up, at(i)), (&end, at(last)), at(i))?);
        }
        points.push(bounds[last].clone());
        let mut pieces: Vec<(usize, Value<'a>, Value<'a>)> = Vec::new();
        for (i, w) in points.windows(2).enumerate() {
            let mut low = w[0].clone();
            if i > 0 && step != 1 {
                // The first index from the point on that the steps from the start reach.
                let number = Value::Int(step.into());
                let start = (&points[0], at(0));
                let way = self.arithmetic(BinaryOp::Sub, (&low, at(i)), start, span)?;
                let more = Value::Int(i128::from(step) - 1);
                let sum = self.arithmetic(BinaryOp::Add, (&way, span), (&more, span), span)?;
                let steps = self.arithmetic(BinaryOp::Div, (&sum, span), (&number, span), span)?;
                let way = self.arithmetic(BinaryOp::Mul, (&steps, span), (&number, span), span)?;
                low = self.arithmetic(BinaryOp::Add, start, (&way, span), span)?;
            }
            pieces.push((i, low, w[1].clone()));
        }
        if loop_.rev {
            pieces.reverse();
        }
        let run = |this: &mut Self| {
            for (part, lo, hi) in pieces {
                this.piece(loop_, part, (&lo, &hi, step), span)?;
            }
            Ok(())
        };
        if breaks(&loop_.body) {
            self.scoped(|this| {
                this.hidden(BREAK, Value::Bool(false), span);
                run(this)
            })
        } else {
            run(self)
        }
    }

    /// One piece of a loop, in which the part is constant.
    fn piece(
        &mut self,
        loop_: &'a ast::For,
        part: usize,
        (lo, hi, step): (&Value<'a>, &Value<'a>, i64),
        span: Span,
    ) -> Eval<()> {
        if matches!(self.reached(span)?, Reached::Never) {
            return Ok(());
        }
        if loop_.constant {
            let (Value::Int(lo), Value::Int(hi)) = (lo, hi) else {
                return self.fail(
                    Diagnostic::error(codes::E0301, span, "`for const` runs over constants, and these bounds are known at run time only")
                        .help("write `for` without `const`"),
                );
            };
            let step = i128::from(step);
            let count = ((hi - lo).max(0) + step - 1) / step;
            if count > i128::from(MAX_UNROLL) {
                return self.error(
                    codes::E0305,
                    span,
                    format!("`for const` is written out, and {count} iterations are too many"),
                );
            }
            let (first, step) = match loop_.rev {
                true => (lo + (count - 1).max(0) * step, -step),
                false => (*lo, step),
            };
            let iterations = Iterations {
                loop_,
                part,
                first,
                step,
                count,
            };
            return match self.reached(span)? {
                Reached::Unless(away) => {
                    let rest = Arm::Iterations(iterations);
                    self.run_if(&away, Arm::Empty, rest, false, span)?;
                    Ok(())
                }
                _ => self.iterations(iterations),
            };
        }
        if let (Value::Int(lo), Value::Int(hi)) = (lo, hi)
            && lo >= hi
        {
            return Ok(());
        }
        if ends_early(&loop_.body) {
            return self.breaking_piece(loop_, part, (lo, hi, step), span);
        }
        let mut names = Vec::new();
        scan_block(&loop_.body, &mut names);
        names.retain(|n| n != SKIP);
        let names = self.assigned(names);
        let before = self.values(&names);
        let operands = [
            self.materialise(lo, span)?,
            self.materialise(hi, span)?,
            self.int(step),
        ];
        let mut inits = Vec::new();
        for value in &before {
            self.leaves(value, span, &mut inits)?;
        }
        let region = self.body.new_region();
        let index = self.body.add_argument(region, Type::Scalar(DType::I64));
        let arguments = self.arguments(region, &inits);
        let mut arguments = arguments.into_iter();
        let carried: Vec<Value<'a>> = before
            .iter()
            .map(|v| self.with_leaves(v, &mut arguments))
            .collect();
        self.set(&names, carried);
        let result = self.in_region(region, |this| {
            let result = this.iteration(&loop_.body, |this| {
                this.bind_index(loop_, part, Value::Run(index));
                this.block_tail(&loop_.body)
            });
            this.end_of_loop(&names, result, &loop_.body, span)
        });
        self.finish_loop(&names, &before, result, |this| {
            let label = loop_.label.as_ref().map(|l| l.name.clone());
            let op = this
                .builder(span)
                .for_(label, loop_.rev, operands, &inits, region);
            this.body.ops[op].results.clone()
        })
    }

    /// Iterations that are written out, one after the other.
    fn iterations(&mut self, all: Iterations<'a>) -> Eval<()> {
        let Iterations { loop_, part, .. } = all;
        let span = loop_.body.span;
        for done in 0..all.count {
            self.loops.push(true);
            let result = self.scoped(|this| {
                if names_in(&loop_.body).iter().any(|n| n == SKIP) {
                    this.hidden(SKIP, Value::Bool(false), span);
                }
                let index = all.first + done * all.step;
                this.bind_index(loop_, part, Value::Int(index));
                this.block(&loop_.body)
            });
            self.loops.pop();
            let left = self.left.take();
            result?;
            if self.returned.is_some() || left == Some(Left::Break) {
                break;
            }
            match self.reached(span)? {
                Reached::Always => {}
                Reached::Never => break,
                Reached::Unless(away) => {
                    let rest = Iterations {
                        first: all.first + (done + 1) * all.step,
                        count: all.count - done - 1,
                        ..all
                    };
                    if rest.count > 0 {
                        self.nested(span, |this| {
                            this.run_if(&away, Arm::Empty, Arm::Iterations(rest), false, span)
                        })?;
                    }
                    break;
                }
            }
        }
        Ok(())
    }

    /// Binds the index and the part of a loop.
    fn bind_index(&mut self, loop_: &'a ast::For, part: usize, index: Value<'a>) {
        self.bind(&loop_.index, index, false);
        if let Some(name) = &loop_.part {
            self.bind(name, Value::Int(part as i128), false);
        }
    }

    /// A variable that no program can name.
    fn hidden(&mut self, name: &str, value: Value<'a>, span: Span) {
        let binding = Binding {
            value,
            mutable: true,
            span,
        };
        let scopes = &mut self.frame().scopes;
        let scope = scopes.last_mut().expect("a frame has a scope");
        scope.insert(name.to_owned(), binding);
    }

    /// One iteration of a loop that runs.
    fn iteration(
        &mut self,
        body: &'a ast::Block,
        f: impl FnOnce(&mut Self) -> Eval<Value<'a>>,
    ) -> Eval<Value<'a>> {
        self.loops.push(false);
        let result = self.scoped(|this| {
            if names_in(body).iter().any(|n| n == SKIP) {
                this.hidden(SKIP, Value::Bool(false), body.span);
            }
            f(this)
        });
        self.loops.pop();
        self.left = None;
        self.tail = Tail::Nothing;
        result
    }

    /// The body of a loop.
    fn block_tail(&mut self, block: &'a ast::Block) -> Eval<Value<'a>> {
        self.tail = Tail::Loop;
        self.block(block)
    }

    /// A piece of a loop that `break` may end: a search, so it runs as a `while`.
    fn breaking_piece(
        &mut self,
        loop_: &'a ast::For,
        part: usize,
        (lo, hi, step): (&Value<'a>, &Value<'a>, i64),
        span: Span,
    ) -> Eval<()> {
        let number = Value::Int(step.into());
        let first = if loop_.rev {
            // The last index that the steps from `lo` reach.
            let one = Value::Int(1);
            let last = self.arithmetic(BinaryOp::Sub, (hi, span), (&one, span), span)?;
            let room = self.arithmetic(BinaryOp::Sub, (&last, span), (lo, span), span)?;
            let steps = self.arithmetic(BinaryOp::Div, (&room, span), (&number, span), span)?;
            let way = self.arithmetic(BinaryOp::Mul, (&steps, span), (&number, span), span)?;
            self.arithmetic(BinaryOp::Add, (lo, span), (&way, span), span)?
        } else {
            lo.clone()
        };
        self.scoped(|this| {
            this.hidden(INDEX, first, span);
            let mut names = vec![INDEX.to_owned()];
            scan_block(&loop_.body, &mut names);
            names.retain(|n| n != SKIP);
            let test = |this: &mut Self| {
                let at = this.local(INDEX).map_or(Value::Error, |b| b.value.clone());
                let inside = if loop_.rev {
                    this.compare(CompareOp::Ge, (&at, span), (lo, span), span)?
                } else {
                    this.compare(CompareOp::Lt, (&at, span), (hi, span), span)?
                };
                this.unbroken(&inside, span)
            };
            let body = |this: &mut Self| {
                let at = this.local(INDEX).map_or(Value::Error, |b| b.value.clone());
                let value = this.iteration(&loop_.body, |this| {
                    this.bind_index(loop_, part, at.clone());
                    this.block_tail(&loop_.body)
                })?;
                let op = if loop_.rev {
                    BinaryOp::Sub
                } else {
                    BinaryOp::Add
                };
                let next = this.arithmetic(op, (&at, span), (&number, span), span)?;
                this.set(&[INDEX.to_owned()], vec![next]);
                Ok(value)
            };
            this.emit_while(names, test, body, &loop_.body, span)
        })
    }

    /// `cond`, as long as neither loop nor function was left.
    fn unbroken(&mut self, cond: &Value<'a>, span: Span) -> Eval<Value<'a>> {
        match (self.reached(span)?, cond) {
            (Reached::Always, _) => Ok(cond.clone()),
            (Reached::Never, _) => Ok(Value::Bool(false)),
            (Reached::Unless(away), cond) => {
                let on = self.unary(UnaryOp::Not, (&away, span), span)?;
                match cond {
                    Value::Bool(true) => Ok(on),
                    _ => self.arithmetic(BinaryOp::And, (&on, span), (cond, span), span),
                }
            }
        }
    }

    fn while_loop(&mut self, cond: &'a ast::Expr, body: &'a ast::Block, span: Span) -> Eval<()> {
        self.scoped(|this| {
            if breaks(body) {
                this.hidden(BREAK, Value::Bool(false), span);
            }
            let mut names = names_in(body);
            names.retain(|n| n != SKIP);
            let early = ends_early(body);
            let test = |this: &mut Self| {
                let value = this.expr(cond)?;
                this.bool_scalar((&value, cond.span), "the condition of a `while`")?;
                if early {
                    this.unbroken(&value, span)
                } else {
                    Ok(value)
                }
            };
            let walk = |this: &mut Self| this.iteration(body, |this| this.block_tail(body));
            this.emit_while(names, test, walk, body, span)
        })
    }

    /// A `while` over what `names` say that its body assigns.
    fn emit_while(
        &mut self,
        names: Vec<String>,
        test: impl FnOnce(&mut Self) -> Eval<Value<'a>>,
        body: impl Fn(&mut Self) -> Eval<Value<'a>>,
        block: &'a ast::Block,
        span: Span,
    ) -> Eval<()> {
        let names = self.assigned(names);
        let mut before = self.values(&names);
        if let Some(at) = names.iter().position(|n| n == RESULT)
            && is_nothing_yet(&before[at])
        {
            // What the loop carries has a type from the start on.
            let (form, types) = self.attempt(|this| this.result_of(&names, &body, span))?;
            before[at] = self.anything(&form, &types, span);
            self.set(&names, before.clone());
        }
        let mut inits = Vec::new();
        for value in &before {
            self.leaves(value, span, &mut inits)?;
        }
        let regions = [self.body.new_region(), self.body.new_region()];
        let arguments = self.arguments(regions[0], &inits);
        let mut arguments = arguments.into_iter();
        let carried: Vec<Value<'a>> = before
            .iter()
            .map(|v| self.with_leaves(v, &mut arguments))
            .collect();
        self.set(&names, carried);
        let tested = self.in_region(regions[0], |this| {
            let value = test(this)?;
            let id = this.materialise(&value, span)?;
            this.builder(span).yield_(vec![id]);
            Ok(())
        });
        let arguments = self.arguments(regions[1], &inits);
        let mut arguments = arguments.into_iter();
        let carried: Vec<Value<'a>> = before
            .iter()
            .map(|v| self.with_leaves(v, &mut arguments))
            .collect();
        self.set(&names, carried);
        // An iteration begins only where nothing was left.
        for name in [BREAK, RETURN] {
            if names.iter().any(|n| n == name) {
                self.note(name, Value::Bool(false));
            }
        }
        let result = self.in_region(regions[1], |this| {
            let result = body(this);
            this.end_of_loop(&names, result, block, span)
        });
        self.finish_loop(&names, &before, tested.and(result), |this| {
            let op = this.builder(span).while_(&inits, regions[0], regions[1]);
            this.body.ops[op].results.clone()
        })
    }

    /// What the function has returned after one iteration, and the types of its scalars and tiles.
    fn result_of(
        &mut self,
        names: &[String],
        body: &impl Fn(&mut Self) -> Eval<Value<'a>>,
        span: Span,
    ) -> Eval<(Value<'a>, Vec<Type>)> {
        let before = self.values(names);
        let mut inits = Vec::new();
        for value in &before {
            self.leaves(value, span, &mut inits)?;
        }
        let region = self.region;
        let mut arguments = self.arguments(region, &inits).into_iter();
        let carried = before
            .iter()
            .map(|v| self.with_leaves(v, &mut arguments))
            .collect();
        self.set(names, carried);
        self.here();
        let result = body(self);
        self.returned = None;
        let form = self.value_of(RESULT);
        let mut leaves = Vec::new();
        let listed = self.leaves(&form, span, &mut leaves);
        let types = leaves.iter().map(|v| self.body.ty(*v).clone()).collect();
        self.set(names, before);
        result.and(listed)?;
        Ok((form, types))
    }

    fn arguments(&mut self, region: RegionId, inits: &[ValueId]) -> Vec<ValueId> {
        inits
            .iter()
            .map(|v| {
                let ty = self.body.ty(*v).clone();
                self.body.add_argument(region, ty)
            })
            .collect()
    }

    /// Ends a loop's region with the values of the carried names.
    fn end_of_loop(
        &mut self,
        names: &[String],
        result: Eval<Value<'a>>,
        body: &'a ast::Block,
        span: Span,
    ) -> Eval<()> {
        self.returned = None;
        let value = result?;
        if !matches!(value, Value::Unit) {
            let at = body.value.as_ref().map_or(body.span, |v| v.span);
            let what = self.describe(&value);
            return self.error(
                codes::E0108,
                at,
                format!("this gives {what}, which nothing uses"),
            );
        }
        let mut yields = Vec::new();
        for value in self.values(names) {
            self.leaves(&value, span, &mut yields)?;
        }
        self.builder(span).yield_(yields);
        Ok(())
    }

    fn finish_loop(
        &mut self,
        names: &[String],
        before: &[Value<'a>],
        result: Eval<()>,
        emit: impl FnOnce(&mut Self) -> Vec<ValueId>,
    ) -> Eval<()> {
        if let Err(told) = result {
            let errors = vec![Value::Error; names.len()];
            self.set(names, errors);
            return Err(told);
        }
        let results = emit(self);
        let mut results = results.into_iter();
        let after: Vec<Value<'a>> = before
            .iter()
            .map(|v| self.with_leaves(v, &mut results))
            .collect();
        self.set(names, after);
        Ok(())
    }
}

/// The value of [`RESULT`] where no `return` was met.
fn nothing_yet<'a>() -> Value<'a> {
    Value::Absent(Rc::from(RESULT))
}

fn is_nothing_yet(value: &Value<'_>) -> bool {
    matches!(value, Value::Absent(name) if **name == *RESULT)
}

/// How an arm of an `if` ends.
struct End<'a> {
    /// The names that one of the arms assigns.
    after: Vec<Value<'a>>,
    value: Value<'a>,
    /// The function, loop or iteration was left.
    gone: bool,
}

/// What two arms of an `if` have in common.
enum Joined<'a> {
    /// The same value: nothing is yielded.
    Same(Value<'a>),
    /// Yielded, leaf by leaf, in the form of this value.
    Leaves(Value<'a>),
}

/// Whether two values consist of the same parts, whatever their scalars and tiles are.
fn same_form(x: &Value<'_>, y: &Value<'_>) -> bool {
    let leaf = |v: &Value<'_>| {
        matches!(
            v,
            Value::Run(_) | Value::Int(_) | Value::Float(..) | Value::Bool(_) | Value::Symbol(_)
        )
    };
    match (x, y) {
        (Value::Tuple(a), Value::Tuple(b)) | (Value::List(a), Value::List(b)) => {
            a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| same_form(a, b))
        }
        (Value::Struct(a), Value::Struct(b)) => {
            std::ptr::eq(a.item, b.item)
                && a.fields.iter().zip(&b.fields).all(|(a, b)| same_form(a, b))
        }
        (Value::Variant(a), Value::Variant(b)) => {
            std::ptr::eq(a.ty.item, b.ty.item)
                && a.fields.iter().zip(&b.fields).all(|(a, b)| same_form(a, b))
        }
        _ => leaf(x) && leaf(y) || x.same(y),
    }
}

/// Whether a block's last statement leaves what the block ends early.
fn leaves(block: &ast::Block, tail: Tail) -> bool {
    let last = block.stmts.last().map(|s| &s.kind);
    block.value.is_none()
        && match tail {
            Tail::Nothing => false,
            Tail::Function => matches!(last, Some(StmtKind::Return(_))),
            Tail::Loop => matches!(
                last,
                Some(StmtKind::Break | StmtKind::Continue | StmtKind::Return(_))
            ),
        }
}

/// Whether a `break` in `block` ends the loop whose body it is.
fn breaks(block: &ast::Block) -> bool {
    names_in(block).iter().any(|n| n == BREAK)
}

/// Whether the loop whose body `block` is may end before its indices do.
fn ends_early(block: &ast::Block) -> bool {
    names_in(block).iter().any(|n| n == BREAK || n == RETURN)
}

fn names_in(block: &ast::Block) -> Vec<String> {
    let mut names = Vec::new();
    scan_block(block, &mut names);
    names
}

/// Names that a block assigns, whether they are its own or not.
fn scan_block(block: &ast::Block, names: &mut Vec<String>) {
    scan_stmts(&block.stmts, block.value.as_deref(), names);
}

fn scan_stmts(stmts: &[ast::Stmt], value: Option<&ast::Expr>, names: &mut Vec<String>) {
    for stmt in stmts {
        match &stmt.kind {
            StmtKind::Assign { target, value, .. } => {
                if let ExprKind::Path(path) = &target.kind
                    && let Some(name) = path.as_ident()
                {
                    names.push(name.name.clone());
                }
                scan_expr(value, names);
            }
            StmtKind::If(branch) => scan_if(branch, names),
            StmtKind::For(ast::For { body, .. }) | StmtKind::While { body, .. } => {
                let mut inner = Vec::new();
                scan_block(body, &mut inner);
                let own = |n: &String| n == BREAK || n == SKIP;
                names.extend(inner.into_iter().filter(|n| !own(n)));
            }
            StmtKind::Break => names.push(BREAK.to_owned()),
            StmtKind::Continue => names.push(SKIP.to_owned()),
            StmtKind::Return(_) => names.extend([RETURN.to_owned(), RESULT.to_owned()]),
            StmtKind::Let { value, .. } => scan_expr(value, names),
            StmtKind::Pingpong(p) => scan_block(&p.body, names),
            _ => {}
        }
    }
    if let Some(value) = value {
        scan_expr(value, names);
    }
}

/// Blocks that stand in expressions: the arms of a valued `if`.
fn scan_expr(expr: &ast::Expr, names: &mut Vec<String>) {
    match &expr.kind {
        ExprKind::If(branch) => scan_if(branch, names),
        ExprKind::Paren(inner) => scan_expr(inner, names),
        ExprKind::Tuple(items) | ExprKind::List(items) => {
            items.iter().for_each(|i| scan_expr(i, names))
        }
        ExprKind::Call { args, .. } => args.iter().for_each(|a| scan_expr(&a.value, names)),
        ExprKind::Pingpong(p) => scan_block(&p.body, names),
        ExprKind::Index { base, indices } => {
            scan_expr(base, names);
            for index in indices {
                if let ast::IndexKind::Expr(e) = &index.kind {
                    scan_expr(e, names);
                }
            }
        }
        _ => {}
    }
}

fn scan_if(branch: &ast::If, names: &mut Vec<String>) {
    scan_expr(&branch.cond, names);
    scan_block(&branch.then, names);
    match branch.els.as_deref() {
        Some(ast::Else::Block(block)) => scan_block(block, names),
        Some(ast::Else::If(inner)) => scan_if(inner, names),
        None => {}
    }
}

fn scan_arm(arm: Arm<'_>, names: &mut Vec<String>) {
    match arm {
        Arm::Empty => {}
        Arm::Block(block) => scan_block(block, names),
        Arm::If(inner) => scan_if(inner, names),
        Arm::Rest(stmts, value) | Arm::Guarded(stmts, value) => scan_stmts(stmts, value, names),
        Arm::Returned => {}
        Arm::Iterations(all) => {
            let inner = names_in(&all.loop_.body);
            names.extend(inner.into_iter().filter(|n| n != SKIP));
        }
    }
}
