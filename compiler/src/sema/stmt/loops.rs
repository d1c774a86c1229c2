//! Loops: written out, by their indices, or as searches that may end early.

use tesserine_set::DType;

use super::{
    super::{
        Eval,
        eval::{Binding, Evaluator, Left, Tail},
        roles::becomes,
        value::Value,
    },
    Arm,
    left::*,
};
use crate::{
    diagnostics::{Diagnostic, codes},
    ir::{
        RegionId, ValueId,
        tile::{BinaryOp, CompareOp, Type, UnaryOp},
    },
    span::Span,
    syntax::ast,
};

/// The variable that holds the index of a loop that can be broken off.
const INDEX: &str = "for";

/// Iterations of a `for const`.
const MAX_UNROLL: i64 = 1 << 16;

/// Iterations of a `for const`, in one piece of it.
#[derive(Clone, Copy)]
pub(super) struct Iterations<'a> {
    pub(super) loop_: &'a ast::For,
    part: usize,
    first: i128,
    step: i128,
    count: i128,
}

impl<'a> Evaluator<'a> {
    pub(super) fn for_loop(&mut self, loop_: &'a ast::For, span: Span) -> Eval<()> {
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
        let (region, result) = loop {
            let flies = self.roles.within.is_some();
            let emitted = flies.then(|| self.emitted());
            let region = self.body.new_region();
            let index = self.body.add_argument(region, Type::Scalar(DType::I64));
            self.counters.insert(index, (operands[0], operands[2]));
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
                this.end_of_loop(&names, result, &inits, &loop_.body, span)
            });
            match (result, emitted) {
                // What is in flight at the end is so at the beginning: once more, now that this is known.
                (Ok(flights), Some(emitted)) if !flights.is_empty() => {
                    self.forget(emitted);
                    for i in flights {
                        inits[i] = self.in_flight(inits[i], span);
                    }
                }
                (result, _) => break (region, result.map(|_| ())),
            }
        };
        self.finish_loop(&names, &before, result, |this| {
            let label = loop_.label.as_ref().map(|l| l.name.clone());
            let op = this
                .builder(span)
                .for_(label, loop_.rev, operands, &inits, region);
            this.body.ops[op].results.clone()
        })
    }

    /// Iterations that are written out, one after the other.
    pub(super) fn iterations(&mut self, all: Iterations<'a>) -> Eval<()> {
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
    pub(super) fn hidden(&mut self, name: &str, value: Value<'a>, span: Span) {
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

    pub(super) fn while_loop(
        &mut self,
        cond: &'a ast::Expr,
        body: &'a ast::Block,
        span: Span,
    ) -> Eval<()> {
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
            let flights = this.end_of_loop(&names, result, &inits, block, span)?;
            if flights.is_empty() {
                return Ok(());
            }
            this.fail(
                Diagnostic::error(
                    codes::E0702,
                    span,
                    "this loop may end early, and carries a product that is in flight",
                )
                .help("a loop with products is a `for` without `break` and `return`"),
            )
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

    /// Ends a loop's region with the values of the carried names. Gives which of them are products in flight, and not so
    /// at the beginning.
    fn end_of_loop(
        &mut self,
        names: &[String],
        result: Eval<Value<'a>>,
        inits: &[ValueId],
        body: &'a ast::Block,
        span: Span,
    ) -> Eval<Vec<usize>> {
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
        let mut flights = Vec::new();
        for (i, (yielded, init)) in yields.iter_mut().zip(inits).enumerate() {
            let (end, begin) = (self.body.ty(*yielded), self.body.ty(*init));
            if becomes(begin, end) {
                flights.push(i);
            } else if becomes(end, begin) {
                *yielded = self.in_flight(*yielded, span);
            }
        }
        self.builder(span).yield_(yields);
        Ok(flights)
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
