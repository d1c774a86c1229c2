//! The statements of a test.

use std::{collections::HashMap, rc::Rc};

use tesserine_set::DType;

use super::{
    Options, Outcome,
    compare::{Difference, Tolerance, compare},
    tensors::Tensors,
};
use crate::{
    diagnostics::{Code, Diagnostic, Diagnostics, codes},
    interp::{Data, Immediate, InterpError},
    ir::{
        ValueId,
        tile::{OpKind, Type},
    },
    sema::{
        Eval, Module, Program, Told,
        call::{Argument, bare},
        eval::{Evaluator, show_shape},
        value::{StructValue, Value, VariantValue},
    },
    span::Span,
    syntax::ast::{self, ExprKind, StmtKind},
};

/// Whether launches and expectations are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Run,
    Walk,
}

/// Where control goes after a statement.
enum Flow {
    Next,
    Break,
    Continue,
    Return,
}

/// An error that the next launch is to give.
pub(super) struct Expected {
    pub code: String,
    pub text: Option<Rc<str>>,
    pub span: Span,
}

/// One test while it runs.
pub(super) struct Runner<'a, 'o> {
    pub ev: Evaluator<'a>,
    pub now: Immediate,
    pub module: Module,
    pub options: &'o Options<'o>,
    pub mode: Mode,
    /// Values that have a name: what a launch stores to one shows under no other.
    named: Vec<ValueId>,
    /// Of tensors that began empty: what has been stored.
    pub written: HashMap<ValueId, Vec<bool>>,
    pub expected: Option<Expected>,
    /// The instances launched, each once.
    pub launched: Vec<String>,
    /// Why the test is not for this target.
    pub ignored: Option<String>,
}

impl<'a, 'o> Runner<'a, 'o> {
    pub fn new(
        program: &'a Program,
        module: Module,
        options: &'o Options<'o>,
        mode: Mode,
    ) -> Runner<'a, 'o> {
        let mut ev = Evaluator::new(program, options.target, module);
        ev.tensors = Some(Tensors::default());
        Runner {
            ev,
            now: Immediate::default(),
            module,
            options,
            mode,
            named: Vec::new(),
            written: HashMap::new(),
            expected: None,
            launched: Vec::new(),
            ignored: None,
        }
    }

    pub fn test(mut self, test: &'a ast::Test) -> Outcome {
        let result = self.whole(test);
        if let Some(why) = self.ignored {
            return Outcome::Ignored(why);
        }
        let diagnostics = self.ev.diagnostics;
        match result {
            Ok(()) if !diagnostics.has_errors() => Outcome::Passed,
            _ => Outcome::Failed(diagnostics),
        }
    }

    pub fn walk(&mut self, test: &'a ast::Test) -> Result<(), Diagnostics> {
        let result = self.whole(test);
        let diagnostics = std::mem::take(&mut self.ev.diagnostics);
        match result {
            Ok(()) if !diagnostics.has_errors() => Ok(()),
            _ => Err(diagnostics),
        }
    }

    fn whole(&mut self, test: &'a ast::Test) -> Eval<()> {
        self.block(&test.body)?;
        if self.mode == Mode::Run {
            self.settle()?;
        }
        self.no_longer_expected()
    }

    fn no_longer_expected(&mut self) -> Eval<()> {
        match self.expected.take() {
            Some(expected) => self.ev.fail(
                Diagnostic::error(
                    codes::E0811,
                    expected.span,
                    format!("no launch follows that could give {}", expected.code),
                )
                .help("`expect_error` stands before the launch that is to fail"),
            ),
            None => Ok(()),
        }
    }

    // Values.

    /// Runs what has been evaluated so far.
    pub fn settle(&mut self) -> Eval<()> {
        if let Some(tensors) = &mut self.ev.tensors {
            for (value, data) in tensors.made.drain(..) {
                self.now.set(&self.ev.body, value, data.make());
            }
        }
        let body = &self.ev.body;
        // A tensor without elements can be passed, and nothing else.
        let hollow = body.regions[body.root].ops.iter().find(|op| {
            let op = &body.ops[**op];
            !matches!(op.kind, OpKind::Param(_))
                && op.results.iter().any(|r| body.ty(*r).shape().contains(&0))
        });
        if let Some(op) = hollow {
            let span = body.ops[*op].span;
            return self.ev.error(
                codes::E0813,
                span,
                "a tensor without elements can be passed to a launch, and not be computed with",
            );
        }
        match self.now.run(&self.ev.body) {
            Ok(()) => Ok(()),
            Err((kind, span)) => {
                let error = InterpError::Fault {
                    kind,
                    block: Vec::new(),
                    span,
                };
                let diagnostic = error.diagnostic(span);
                self.ev.fail(diagnostic)
            }
        }
    }

    /// A value as what follows sees it: scalars are constants, since a test knows them.
    pub fn known(&mut self, value: Value<'a>) -> Eval<Value<'a>> {
        Ok(match value {
            Value::Symbol(_) | Value::Run(_) => {
                let Value::Run(id) = value else {
                    return Ok(value);
                };
                let Type::Scalar(elem) = *self.ev.body.ty(id) else {
                    return Ok(value);
                };
                self.settle()?;
                match self.now.get(id).as_deref() {
                    Some(Data::Int(v)) => Value::Int(v[0].into()),
                    Some(Data::Float(v)) => Value::Float(v[0], Some(elem)),
                    Some(Data::Bool(v)) => Value::Bool(v[0]),
                    None => value,
                }
            }
            Value::Tuple(items) => {
                let mut out = Vec::new();
                for item in items.iter() {
                    out.push(self.known(item.clone())?);
                }
                Value::Tuple(out.into())
            }
            Value::Struct(v) => {
                let mut fields = Vec::new();
                for field in &v.fields {
                    fields.push(self.known(field.clone())?);
                }
                Value::Struct(Rc::new(StructValue {
                    item: v.item,
                    fields,
                }))
            }
            Value::Variant(v) => {
                let mut fields = Vec::new();
                for field in &v.fields {
                    fields.push(self.known(field.clone())?);
                }
                Value::Variant(Rc::new(VariantValue {
                    ty: v.ty.clone(),
                    fields,
                }))
            }
            value => value,
        })
    }

    /// A value that is to have a name: a copy if its tensor has one already.
    fn own(&mut self, value: Value<'a>, span: Span) -> Value<'a> {
        match value {
            Value::Run(id) if matches!(self.ev.body.ty(id), Type::Tile(_)) => {
                let id = if self.named.contains(&id) {
                    let ty = self.ev.body.ty(id).clone();
                    let mut builder = self.ev.builder(span);
                    let op = builder.op(OpKind::Reshape, vec![id], vec![ty]);
                    self.ev.body.ops[op].results[0]
                } else {
                    id
                };
                self.named.push(id);
                Value::Run(id)
            }
            Value::Tuple(items) => {
                let items: Vec<Value<'a>> =
                    items.iter().map(|i| self.own(i.clone(), span)).collect();
                Value::Tuple(items.into())
            }
            value => value,
        }
    }

    // Statements.

    fn block(&mut self, block: &'a ast::Block) -> Eval<Flow> {
        self.ev.step(block.span)?;
        self.ev.frame().scopes.push(Default::default());
        let mut flow = Ok(Flow::Next);
        for stmt in &block.stmts {
            flow = self.statement(stmt);
            if !matches!(flow, Ok(Flow::Next)) {
                break;
            }
        }
        if matches!(flow, Ok(Flow::Next))
            && let Some(value) = &block.value
        {
            flow = self.expression(value).map(|()| Flow::Next);
        }
        self.ev.frame().scopes.pop();
        flow
    }

    fn statement(&mut self, stmt: &'a ast::Stmt) -> Eval<Flow> {
        let span = stmt.span;
        self.ev.step(span)?;
        match &stmt.kind {
            StmtKind::Let { pat, ty, value } => {
                let v = self.ev.expr(value)?;
                let v = self.ev.annotated(v, ty.as_ref(), value.span)?;
                if matches!(v, Value::Unit) {
                    return self.ev.error(codes::E0108, value.span, "this has no value");
                }
                let v = self.known(v)?;
                let v = self.own(v, value.span);
                self.ev.pattern(pat, v)?;
            }
            StmtKind::Expr(expr) => self.expression(expr)?,
            StmtKind::Assign { target, .. } => {
                self.ev.statement(stmt)?;
                if let Some(name) = bare(target)
                    && let Some(binding) = self.ev.local(&name.name)
                {
                    let value = binding.value.clone();
                    let value = self.known(value)?;
                    let value = self.own(value, span);
                    if let Some(binding) = self.ev.local_mut(&name.name) {
                        binding.value = value;
                    }
                }
            }
            StmtKind::If(branch) => return self.branch(branch),
            StmtKind::For(loop_) => return self.for_loop(loop_),
            StmtKind::While { cond, body } => {
                while self.condition(cond)? {
                    match self.block(body)? {
                        Flow::Next | Flow::Continue => {}
                        Flow::Break => break,
                        Flow::Return => return Ok(Flow::Return),
                    }
                }
            }
            StmtKind::Break => return Ok(Flow::Break),
            StmtKind::Continue => return Ok(Flow::Continue),
            StmtKind::Return(None) => return Ok(Flow::Return),
            StmtKind::Return(Some(value)) => {
                return self
                    .ev
                    .error(codes::E0108, value.span, "a test has no value");
            }
            // What is asserted of what has not been launched means nothing.
            StmtKind::Assert {
                constant: false,
                args,
            } if self.mode == Mode::Walk => {
                let args = self.ev.arguments_of(args)?;
                if let Some(cond) = args.first() {
                    self.ev
                        .bool_scalar((&cond.value, cond.span), "a condition")?;
                }
            }
            StmtKind::Assert { .. } => {
                self.ev.statement(stmt)?;
                if self.mode == Mode::Run {
                    self.settle()?;
                }
            }
            StmtKind::Launch {
                kernel,
                cargs,
                args,
            } => self.launch(kernel, cargs, args, span)?,
            StmtKind::Error => return Err(Told),
            StmtKind::Workspace { .. } => {
                return self.ev.fail(
                    Diagnostic::error(codes::E0108, span, "a test has tensors, and no workspace")
                        .help("write `let w = empty(T, […]);`"),
                );
            }
            _ => {
                return self.ev.fail(
                    Diagnostic::error(codes::E0108, span, "this belongs in a kernel")
                        .note("a test makes tensors, launches kernels and says what is expected"),
                );
            }
        }
        Ok(Flow::Next)
    }

    fn condition(&mut self, cond: &'a ast::Expr) -> Eval<bool> {
        let value = self.ev.expr(cond)?;
        self.ev.bool_scalar((&value, cond.span), "a condition")?;
        match self.known(value)? {
            Value::Bool(v) => Ok(v),
            _ => Err(Told),
        }
    }

    fn branch(&mut self, branch: &'a ast::If) -> Eval<Flow> {
        if self.condition(&branch.cond)? {
            return self.block(&branch.then);
        }
        match branch.els.as_deref() {
            None => Ok(Flow::Next),
            Some(ast::Else::Block(block)) => self.block(block),
            Some(ast::Else::If(inner)) => self.branch(inner),
        }
    }

    fn for_loop(&mut self, loop_: &'a ast::For) -> Eval<Flow> {
        let mut bounds = Vec::new();
        for bound in loop_.bounds.iter().chain(&loop_.step) {
            let value = self.ev.expr(bound)?;
            let value = self.known(value)?;
            bounds.push(
                self.ev
                    .as_const_int(&value, bound.span, "a bound of a loop")?,
            );
        }
        let step = match &loop_.step {
            Some(step) => match bounds.pop() {
                Some(value) if value >= 1 => value,
                value => {
                    return self.ev.error(
                        codes::E0306,
                        step.span,
                        format!("a step is at least 1, and this is {}", value.unwrap_or(0)),
                    );
                }
            },
            None => 1,
        };
        let (lo, hi) = (bounds[0], bounds[bounds.len() - 1]);
        let inner = &bounds[1..bounds.len() - 1];
        let count = (i128::from(hi) - i128::from(lo) + i128::from(step) - 1) / i128::from(step);
        for trip in 0..count.max(0) {
            let trip = if loop_.rev { count - 1 - trip } else { trip };
            let index = i128::from(lo) + trip * i128::from(step);
            self.ev.frame().scopes.push(Default::default());
            self.ev.bind(&loop_.index, Value::Int(index), false);
            if let Some(part) = &loop_.part {
                let at = inner.iter().filter(|p| index >= i128::from(**p)).count();
                self.ev.bind(part, Value::Int(at as i128), false);
            }
            let flow = self.block(&loop_.body);
            self.ev.frame().scopes.pop();
            match flow? {
                Flow::Next | Flow::Continue => {}
                Flow::Break => break,
                Flow::Return => return Ok(Flow::Return),
            }
        }
        Ok(Flow::Next)
    }

    /// An expression that stands as a statement.
    fn expression(&mut self, expr: &'a ast::Expr) -> Eval<()> {
        if let ExprKind::Call { callee, args } = &expr.kind
            && let Some(name) = bare(callee)
            && self.ev.local(&name.name).is_none()
        {
            match name.name.as_str() {
                "expect" => return self.expect(args, expr.span),
                "expect_error" => return self.expect_error(args, expr.span),
                _ => {}
            }
        }
        let value = self.ev.expr(expr)?;
        if !matches!(value, Value::Unit) {
            let what = self.ev.describe(&value);
            return self.ev.fail(
                Diagnostic::error(
                    codes::E0108,
                    expr.span,
                    format!("this gives {what}, which nothing uses"),
                )
                .help("name it with `let`, or say what is expected of it with `expect`"),
            );
        }
        Ok(())
    }

    // Expectations.

    /// `expect_error("E0412")`, `expect_error("E0803", "sorted")`.
    fn expect_error(&mut self, args: &'a [ast::Arg], span: Span) -> Eval<()> {
        self.no_longer_expected()?;
        let args = self.ev.arguments_of(args)?;
        let texts: Option<Vec<Rc<str>>> = args
            .iter()
            .map(|a| match &a.value {
                Value::Str(text) => Some(text.clone()),
                _ => None,
            })
            .collect();
        let (code, text) = match texts.as_deref() {
            Some([code]) => (code.to_string(), None),
            Some([code, text]) => (code.to_string(), Some(text.clone())),
            _ => {
                return self.ev.error(
                    codes::E0107,
                    span,
                    "`expect_error` takes a code, as `\"E0803\"`, and perhaps a part of the message",
                );
            }
        };
        if codes::explain(&code).is_none() {
            return self.ev.error(
                codes::E0811,
                args[0].span,
                format!("there is no error `{code}`"),
            );
        }
        self.expected = Some(Expected { code, text, span });
        Ok(())
    }

    /// `expect(x, near = y, abs = a, rel = r)`, `expect(x, equal = y)`.
    fn expect(&mut self, args: &'a [ast::Arg], span: Span) -> Eval<()> {
        let args = self.ev.arguments_of(args)?;
        let placed = self
            .ev
            .place("expect", &["x", "near", "equal", "abs", "rel"], args, span)?;
        let mut placed = placed.into_iter();
        let mut next = || placed.next().flatten();
        let (x, near, equal, abs, rel) = (next(), next(), next(), next(), next());
        let Some(x) = x else {
            return self.ev.error(
                codes::E0107,
                span,
                "`expect` takes a value, and what it is to be: `near = …` or `equal = …`",
            );
        };
        let (y, exact) = match (near, equal) {
            (Some(y), None) => (y, false),
            (None, Some(y)) => (y, true),
            _ => {
                return self.ev.error(
                    codes::E0107,
                    span,
                    "`expect` takes either `near = …` or `equal = …`",
                );
            }
        };
        if let (true, Some(extra)) = (exact, abs.as_ref().or(rel.as_ref())) {
            return self.ev.error(
                codes::E0107,
                extra.span,
                "what is to be equal has no tolerance",
            );
        }
        let mut sides = Vec::new();
        for side in [&x, &y] {
            sides.push(self.ev.materialise(&side.value, side.span)?);
        }
        let (a, b) = (sides[0], sides[1]);
        let (s, t) = (
            self.ev.body.ty(a).shape().to_vec(),
            self.ev.body.ty(b).shape().to_vec(),
        );
        let elem = self.ev.body.ty(a).elem();
        let expected = if s == t {
            b
        } else if t.is_empty() {
            self.ev.builder(y.span).broadcast(b, &s)
        } else {
            let diagnostic = Diagnostic::error(
                codes::E0201,
                span,
                format!(
                    "{} and {} do not have one shape",
                    shape_or_scalar(&s),
                    shape_or_scalar(&t)
                ),
            )
            .label(x.span, self.ev.describe(&x.value))
            .label(y.span, self.ev.describe(&y.value));
            return self.ev.fail(diagnostic);
        };
        let mut tolerance = Tolerance::of([elem]);
        // Naming one of the two makes the other 0.
        if abs.is_some() || rel.is_some() {
            tolerance = Tolerance { abs: 0.0, rel: 0.0 };
        }
        for (given, slot) in [(abs, &mut tolerance.abs), (rel, &mut tolerance.rel)] {
            let Some(given) = given else { continue };
            *slot = match self.known(given.value)? {
                Value::Int(v) if v >= 0 => v as f64,
                Value::Float(v, _) if v >= 0.0 => v,
                other => {
                    let what = self.ev.describe(&other);
                    return self.ev.error(
                        codes::E0102,
                        given.span,
                        format!("a tolerance is a number from 0 up, and this is {what}"),
                    );
                }
            };
        }
        if self.mode == Mode::Walk {
            return Ok(());
        }
        self.settle()?;
        let (Some(found), Some(wanted)) = (self.now.get(a), self.now.get(expected)) else {
            return Err(Told);
        };
        let near = |a: f64, b: f64| {
            !exact
                && elem != DType::Bool
                && (a - b).abs() <= tolerance.abs + tolerance.rel * b.abs()
        };
        let Some(difference) = compare(&found, &wanted, near) else {
            return Ok(());
        };
        let mut diagnostic = differing(
            codes::E0810,
            x.span,
            (&self.ev.quote(x.span), &s),
            &difference,
            "",
        );
        if !exact {
            diagnostic = diagnostic.note(format!(
                "allowed are {} + {} · |expected|",
                plain(tolerance.abs),
                plain(tolerance.rel)
            ));
        }
        let unwritten = self
            .written
            .get(&a)
            .map_or(0, |w| w.iter().filter(|w| !**w).count());
        if unwritten > 0 {
            diagnostic = diagnostic.note(format!(
                "{unwritten} of its elements have not been stored by any launch"
            ));
        }
        self.ev.fail(diagnostic)
    }

    /// An argument of a launch or expectation, settled.
    pub fn known_argument(&mut self, arg: Argument<'a>) -> Eval<Argument<'a>> {
        Ok(Argument {
            value: self.known(arg.value)?,
            ..arg
        })
    }
}

fn shape_or_scalar(shape: &[u32]) -> String {
    if shape.is_empty() {
        "a scalar".into()
    } else {
        show_shape(shape)
    }
}

/// A number as a sentence has it.
pub(super) fn plain(x: f64) -> String {
    if x != 0.0 && !(1e-3..1e6).contains(&x.abs()) {
        format!("{x:e}")
    } else {
        format!("{x}")
    }
}

/// The error for an array that is not as it should be: `name` with its shape; `by` says who expects it.
pub(super) fn differing(
    code: Code,
    span: Span,
    (name, shape): (&str, &[u32]),
    difference: &Difference,
    by: &str,
) -> Diagnostic {
    let (first, got, wanted) = &difference.first;
    let place = |i: usize| {
        let mut rest = i;
        let mut index = vec![0; shape.len()];
        for (at, &extent) in index.iter_mut().zip(shape).rev() {
            *at = rest % extent.max(1) as usize;
            rest /= extent.max(1) as usize;
        }
        let parts: Vec<String> = index.iter().map(usize::to_string).collect();
        format!("[{}]", parts.join(", "))
    };
    let title = if shape.is_empty() {
        format!("{name} is {got}, and {wanted} is expected{by}")
    } else {
        format!(
            "element {} of {name} is {got}, and {wanted} is expected{by}",
            place(*first)
        )
    };
    let mut diagnostic = Diagnostic::error(code, span, title);
    if !shape.is_empty() {
        let (error, at) = difference.largest;
        let largest = if error.is_finite() {
            format!("the largest error is {} at {}", plain(error), place(at))
        } else {
            format!("at {} one of the two is no finite number", place(at))
        };
        diagnostic = diagnostic.note(format!(
            "{} of {} elements differ; {largest}",
            difference.wrong, difference.of
        ));
    }
    diagnostic
}
