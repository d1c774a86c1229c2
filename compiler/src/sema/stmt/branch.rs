//! `if`: one arm where its condition is known, else two regions whose values are joined.

use std::rc::Rc;

use tesserine_set::DType;

use super::{
    super::{
        Eval, Told,
        eval::{Evaluator, Tail, describe_type},
        roles::becomes,
        value::{StructValue, Value},
    },
    Arm,
    left::*,
};
use crate::{
    diagnostics::{Diagnostic, codes},
    ir::{
        RegionId, ValueId,
        tile::{Constant, Type},
    },
    span::Span,
    syntax::ast,
};

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

impl<'a> Evaluator<'a> {
    pub fn if_expr(&mut self, branch: &'a ast::If) -> Eval<Value<'a>> {
        let value = self.branch(branch, true)?;
        if matches!(value, Value::Unit) {
            return self.error(codes::E0108, branch.span, "this `if` has no value");
        }
        Ok(value)
    }

    /// `if … { …; return …; }`, or `break` or `continue` so, and what follows it.
    pub(super) fn early_exit(&mut self, branch: &'a ast::If, rest: Arm<'a>) -> Eval<Value<'a>> {
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

    pub(super) fn branch(&mut self, branch: &'a ast::If, valued: bool) -> Eval<Value<'a>> {
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

    pub(super) fn arm(&mut self, arm: Arm<'a>) -> Eval<Value<'a>> {
        match arm {
            Arm::Empty => Ok(Value::Unit),
            Arm::Block(block) => self.block(block),
            Arm::Spine(block) => {
                self.spine = self.region;
                self.block(block)
            }
            Arm::If(inner) => self.nested(inner.span, |this| this.branch(inner, true)),
            Arm::Rest(..) | Arm::Guarded(..) => self.scoped(|this| this.arm_inline(arm)),
            Arm::Returned => Ok(self.value_of(RESULT)),
            Arm::Iterations(iterations) => self.iterations(iterations).map(|()| Value::Unit),
        }
    }

    /// The rest of a block, in the block's own scope.
    pub(super) fn arm_inline(&mut self, arm: Arm<'a>) -> Eval<Value<'a>> {
        match arm {
            Arm::Rest(stmts, value) | Arm::Guarded(stmts, value) => self.statements(stmts, value),
            other => self.arm(other),
        }
    }

    /// An `if` that is decided at run time. Where it ends its function, `return` in an arm gives the arm's value.
    pub(super) fn run_if(
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

    pub(super) fn anything(&mut self, form: &Value<'a>, types: &[Type], span: Span) -> Value<'a> {
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
        // A product in flight in one arm only is over in the other.
        let [ours, theirs] = &mut leaves;
        for (x, y) in ours.iter_mut().zip(theirs) {
            if becomes(self.body.ty(*x), self.body.ty(*y)) {
                *x = self.in_region(regions[0], |this| this.in_flight(*x, span));
            } else if becomes(self.body.ty(*y), self.body.ty(*x)) {
                *y = self.in_region(regions[1], |this| this.in_flight(*y, span));
            }
        }
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
