//! What the host evaluates at a launch: extents, grids, facts, as formulas over dimensions and scalar parameters.

use tesserine_set::{Fact, Formula, FormulaOp, ParamKind, Term};

use super::{
    Eval,
    call::bare,
    eval::Evaluator,
    modules::Def,
    value::{Host, Symbol, Value},
};
use crate::{
    diagnostics::{Code, Diagnostic, codes},
    ir::{
        ValueId,
        tile::{BinaryOp, CompareOp, Constant, OpKind, UnaryOp},
    },
    span::Span,
    syntax::ast::{self, ExprKind},
};

/// Terms of a formula that the walk makes: more than any launch should evaluate.
pub(crate) const MAX_TERMS: usize = 2048;

/// Why an expression is no formula: where, and in words. `None`: it has been told.
pub(crate) type NoFormula = Option<(Span, String)>;

impl<'a> Evaluator<'a> {
    /// The formula that an expression is. `declare`: names that mean nothing yet become dimensions.
    pub fn formula(&mut self, expr: &'a ast::Expr, declare: bool) -> Result<Formula, NoFormula> {
        let span = expr.span;
        match &expr.kind {
            ExprKind::Paren(inner) => self.formula(inner, declare),
            ExprKind::Path(path) if path.as_ident().is_some() => {
                let name = path.as_ident().expect("a path of one segment");
                self.name_formula(name, declare)
            }
            ExprKind::Unary { op, value } => {
                let op = match op {
                    ast::UnaryOp::Neg => FormulaOp::Neg,
                    ast::UnaryOp::Not => FormulaOp::Not,
                };
                Ok(Formula::unary(op, self.formula(value, declare)?))
            }
            ExprKind::Binary { op, left, right } => {
                let Some(op) = formula_op(*op) else {
                    return Err(Some((
                        span,
                        "this operation cannot be evaluated at a launch".into(),
                    )));
                };
                let a = self.formula(left, declare)?;
                let b = self.formula(right, declare)?;
                if matches!(op, FormulaOp::Div | FormulaOp::Rem) && b.as_int() == Some(0) {
                    return Err(Some((right.span, "this divides by zero".into())));
                }
                Ok(Formula::binary(op, a, b))
            }
            ExprKind::Call { callee, args } => {
                let op = match bare(callee).map(|n| n.name.as_str()) {
                    Some("ceil_div") => FormulaOp::CeilDiv,
                    Some("round_up") => FormulaOp::RoundUp,
                    Some("min") => FormulaOp::Min,
                    Some("max") => FormulaOp::Max,
                    Some("given") => {
                        if let [ast::Arg { value, .. }] = &args[..]
                            && let Some(name) = bare(value)
                            && let Some(i) = self
                                .signature
                                .params
                                .iter()
                                .position(|p| p.name == name.name)
                            && self.signature.params[i].optional
                        {
                            return Ok(Formula(vec![Term::Given(i as u32)]));
                        }
                        return Err(Some((
                            span,
                            "`given` takes the name of an optional parameter".into(),
                        )));
                    }
                    Some("clamp") if args.len() == 3 => {
                        let x = self.formula(&args[0].value, declare)?;
                        let lo = self.formula(&args[1].value, declare)?;
                        let hi = self.formula(&args[2].value, declare)?;
                        return Ok(Formula::binary(
                            FormulaOp::Min,
                            Formula::binary(FormulaOp::Max, x, lo),
                            hi,
                        ));
                    }
                    _ => return self.constant_formula(expr),
                };
                let [a, b] = &args[..] else {
                    return Err(Some((span, "this takes two arguments".into())));
                };
                let x = self.formula(&a.value, declare)?;
                let y = self.formula(&b.value, declare)?;
                if matches!(op, FormulaOp::CeilDiv | FormulaOp::RoundUp)
                    && y.as_int().is_some_and(|y| y <= 0)
                {
                    return Err(Some((b.value.span, "this divisor is not positive".into())));
                }
                Ok(Formula::binary(op, x, y))
            }
            _ => self.constant_formula(expr),
        }
    }

    /// A formula that is a constant of the language.
    fn constant_formula(&mut self, expr: &'a ast::Expr) -> Result<Formula, NoFormula> {
        match self.expr(expr) {
            Ok(Value::Int(v)) => match i64::try_from(v) {
                Ok(v) => Ok(Formula::int(v)),
                Err(_) => Err(Some((
                    expr.span,
                    "this constant leaves the 64-bit range".into(),
                ))),
            },
            Ok(Value::Bool(v)) => Ok(Formula::int(v.into())),
            Ok(other) => {
                if let Value::Run(id) = other
                    && self.is_scalar(id)
                    && let Some(formula) = self.formula_of(id)
                {
                    return Ok(formula);
                }
                let what = self.describe(&other);
                Err(Some((
                    expr.span,
                    format!("this is {what}, which a launch cannot evaluate"),
                )))
            }
            Err(_) => Err(None),
        }
    }

    fn name_formula(&mut self, name: &'a ast::Ident, declare: bool) -> Result<Formula, NoFormula> {
        let local = self.local(&name.name).map(|b| b.value.clone());
        if let Some(Value::Host(host)) = &local
            && let Host::Formula(formula) = &**host
        {
            return Ok(formula.clone());
        }
        match local {
            Some(Value::Int(v)) => return Ok(Formula::int(i64::try_from(v).unwrap_or(i64::MAX))),
            Some(Value::Bool(v)) => return Ok(Formula::int(v.into())),
            Some(Value::Symbol(Symbol::Dim(i))) => return Ok(Formula::dim(i)),
            Some(Value::Symbol(Symbol::Param(i))) => {
                return match &self.signature.params[i as usize].kind {
                    ParamKind::Scalar { dtype, .. } if !dtype.is_float() => {
                        Ok(Formula(vec![Term::Scalar(i)]))
                    }
                    _ => Err(Some((
                        name.span,
                        format!(
                            "`{}` is a float, and launches are decided by dimensions and integers",
                            name.name
                        ),
                    ))),
                };
            }
            Some(Value::Symbol(Symbol::Grid(_))) => {
                return Err(Some((
                    name.span,
                    format!(
                        "`{}` is an index of the grid, which differs from block to block",
                        name.name
                    ),
                )));
            }
            Some(Value::Error) => return Err(None),
            Some(Value::Run(id)) if self.formula_of(id).is_some() => {
                return self.formula_of(id).ok_or(None);
            }
            Some(other) => {
                let what = self.describe(&other);
                return Err(Some((
                    name.span,
                    format!("`{}` is {what}, which a launch cannot evaluate", name.name),
                )));
            }
            None => {}
        }
        // Functions, kernels and types are no numbers: a dimension may have their name.
        if self.is_constant_item(name) {
            return match self.name(name) {
                Ok(Value::Int(v)) => Ok(Formula::int(i64::try_from(v).unwrap_or(i64::MAX))),
                Ok(Value::Bool(v)) => Ok(Formula::int(v.into())),
                Ok(other) => {
                    let what = self.describe(&other);
                    Err(Some((
                        name.span,
                        format!("`{}` is {what}, which a launch cannot evaluate", name.name),
                    )))
                }
                Err(_) => Err(None),
            };
        }
        if let Some(i) = self.signature.dims.iter().position(|d| *d == name.name) {
            return Ok(Formula::dim(i as u32));
        }
        // A scalar of the kernel, seen from a field of a variant.
        let scalar = self.signature.params.iter().position(|p| {
            p.name == name.name
                && matches!(&p.kind, ParamKind::Scalar { dtype, .. } if dtype.is_int())
        });
        if let Some(i) = scalar {
            return Ok(Formula(vec![Term::Scalar(i as u32)]));
        }
        if declare {
            self.signature.dims.push(name.name.clone());
            return Ok(Formula::dim(self.signature.dims.len() as u32 - 1));
        }
        self.unknown(name);
        Err(None)
    }

    fn is_constant_item(&self, name: &ast::Ident) -> bool {
        match self.program.lookup(self.module(), &name.name) {
            Some(Def::Item(module, index)) => {
                let item = self.program.item(module, index);
                matches!(item.kind, ast::ItemKind::Const(_))
            }
            _ => false,
        }
    }

    /// A formula, or an error with `code` that says what it is for.
    pub fn host(
        &mut self,
        expr: &'a ast::Expr,
        declare: bool,
        code: Code,
        what: &str,
    ) -> Eval<Formula> {
        match self.formula(expr, declare) {
            Ok(formula) => Ok(formula),
            Err(None) => Err(super::Told),
            Err(Some((span, why))) => {
                let diagnostic = Diagnostic::error(code, span, why).note(format!(
                    "{what} is evaluated at the launch, from dimensions and integer parameters"
                ));
                self.fail(if what == "the extent of the grid" {
                    diagnostic.help(
                        "of a number that only the device knows, write `i in most until number`",
                    )
                } else {
                    diagnostic
                })
            }
        }
    }

    /// What holds where a kernel is called: for the launch to check, or else the body.
    pub fn state(&mut self, expr: &'a ast::Expr) -> Eval<Vec<Fact>> {
        let mut facts = Vec::new();
        match &expr.kind {
            ExprKind::Paren(inner) => return self.state(inner),
            ExprKind::Binary {
                op: ast::BinaryOp::AndAlso,
                left,
                right,
            } => {
                facts.extend(self.state(left)?);
                facts.extend(self.state(right)?);
                return Ok(facts);
            }
            ExprKind::Call { callee, .. } if bare(callee).is_some_and(|n| n.name == "aligned") => {
                self.facts(expr, &mut facts)?;
                return Ok(facts);
            }
            _ => {}
        }
        match self.formula(expr, false) {
            Ok(_) => self.facts(expr, &mut facts)?,
            Err(None) => return Err(super::Told),
            Err(Some(_)) => {
                let value = self.expr(expr)?;
                self.bool_scalar((&value, expr.span), "what `where` states")?;
                let id = self.materialise(&value, expr.span)?;
                let text = self.program.sources.text(expr.span).to_owned();
                self.builder(expr.span).assert(id, text);
            }
        }
        Ok(facts)
    }

    /// Whether a part of what an expression states is false whatever a launch gives.
    pub fn never_holds(&mut self, expr: &'a ast::Expr) -> Eval<bool> {
        match &expr.kind {
            ExprKind::Paren(inner) => self.never_holds(inner),
            ExprKind::Binary {
                op: ast::BinaryOp::AndAlso,
                left,
                right,
            } => Ok(self.never_holds(left)? || self.never_holds(right)?),
            _ if !is_condition(expr) => Ok(false),
            _ => {
                let formula = self.host(expr, false, codes::E0504, "a fact")?;
                Ok(formula.as_int() == Some(0))
            }
        }
    }

    /// The facts that an expression states: several if they are joined by `&&`.
    pub fn facts(&mut self, expr: &'a ast::Expr, out: &mut Vec<Fact>) -> Eval<()> {
        match &expr.kind {
            ExprKind::Paren(inner) => return self.facts(inner, out),
            ExprKind::Binary {
                op: ast::BinaryOp::AndAlso,
                left,
                right,
            } => {
                self.facts(left, out)?;
                return self.facts(right, out);
            }
            ExprKind::Call { callee, args }
                if bare(callee).is_some_and(|n| n.name == "aligned") =>
            {
                let [view, bytes] = &args[..] else {
                    return self.error(
                        codes::E0107,
                        expr.span,
                        "`aligned` takes a view and a number of bytes",
                    );
                };
                let at = view.value.span;
                // What a launch leaves out is aligned as one likes.
                if let Some(name) = bare(&view.value)
                    && let Some(Value::Absent(_)) = self.local(&name.name).map(|b| &b.value)
                {
                    return Ok(());
                }
                let value = self.expr(&view.value)?;
                let Value::View(view) = &value else {
                    let what = self.describe(&value);
                    return self.error(
                        codes::E0403,
                        at,
                        format!("`aligned` is about a view, and this is {what}"),
                    );
                };
                let param = view.param();
                let at = bytes.value.span;
                let bytes = self.const_int(&bytes.value, "a number of bytes")?;
                match u32::try_from(bytes) {
                    Ok(bytes) if bytes.is_power_of_two() && bytes <= 1 << 16 => {
                        out.push(Fact::Aligned { param, bytes });
                        return Ok(());
                    }
                    _ => {
                        return self.error(
                            codes::E0403,
                            at,
                            format!(
                                "an alignment is a power of two up to 65536, and this is {bytes}"
                            ),
                        );
                    }
                }
            }
            _ => {}
        }
        if !is_condition(expr) {
            let text = self.quote(expr.span);
            return self.fail(
                Diagnostic::error(
                    codes::E0504,
                    expr.span,
                    format!("a fact is a condition, and {text} is none"),
                )
                .help("write a comparison, as `n % 8 == 0`, or `aligned(view, bytes)`"),
            );
        }
        let formula = self.host(expr, false, codes::E0504, "a fact")?;
        match formula.as_int() {
            Some(0) => self.error(
                codes::E0403,
                expr.span,
                format!("{} never holds", self.quote(expr.span)),
            ),
            Some(_) => Ok(()),
            None => {
                out.push(Fact::Holds(formula));
                Ok(())
            }
        }
    }

    /// The formula that a scalar of the body computes, if the host can.
    pub fn formula_of(&self, id: ValueId) -> Option<Formula> {
        let mut budget = MAX_TERMS;
        self.formula_within(id, &mut budget)
    }

    /// The formula that a scalar computes, in no more than so many terms.
    fn formula_within(&self, id: ValueId, budget: &mut usize) -> Option<Formula> {
        *budget = budget.checked_sub(1)?;
        if let Some(formula) = self.hosts.get(&id) {
            *budget = budget.checked_sub(formula.0.len())?;
            return Some(formula.clone());
        }
        let op = &self.body.ops[self.body.defining_op(id)?];
        let mut operand = |i: usize| self.formula_within(op.operands[i], budget);
        Some(match &op.kind {
            OpKind::Constant(Constant::Int(v, _)) => Formula::int(*v),
            OpKind::Constant(Constant::Bool(v)) => Formula::int((*v).into()),
            OpKind::Dim(i) => Formula::dim(*i),
            OpKind::Param(i) => match &self.signature.params[*i as usize].kind {
                ParamKind::Scalar { dtype, .. } if !dtype.is_float() => {
                    Formula(vec![Term::Scalar(*i)])
                }
                _ => return None,
            },
            OpKind::Cast if self.is_scalar(id) && self.body.ty(op.operands[0]).elem().is_int() => {
                // Parameters are widened; anything else that is cast may wrap.
                let inner = self.body.defining_op(op.operands[0])?;
                match self.body.ops[inner].kind {
                    OpKind::Param(_) => operand(0)?,
                    _ => return None,
                }
            }
            OpKind::Unary(UnaryOp::Not)
                if self.body.ty(id).elem() == tesserine_set::DType::Bool =>
            {
                Formula::unary(FormulaOp::Not, operand(0)?)
            }
            OpKind::Unary(UnaryOp::Neg) => Formula::unary(FormulaOp::Neg, operand(0)?),
            OpKind::Binary(binary) => {
                let truth = self.body.ty(id).elem() == tesserine_set::DType::Bool;
                let op = match binary {
                    BinaryOp::Add => FormulaOp::Add,
                    BinaryOp::Sub => FormulaOp::Sub,
                    BinaryOp::Mul => FormulaOp::Mul,
                    BinaryOp::Div => FormulaOp::Div,
                    BinaryOp::Rem => FormulaOp::Rem,
                    BinaryOp::Min => FormulaOp::Min,
                    BinaryOp::Max => FormulaOp::Max,
                    BinaryOp::And if truth => FormulaOp::And,
                    BinaryOp::Or if truth => FormulaOp::Or,
                    _ => return None,
                };
                Formula::binary(op, operand(0)?, operand(1)?)
            }
            OpKind::Compare(compare) if self.body.ty(op.operands[0]).elem().is_int() => {
                let op = match compare {
                    CompareOp::Eq => FormulaOp::Eq,
                    CompareOp::Ne => FormulaOp::Ne,
                    CompareOp::Lt => FormulaOp::Lt,
                    CompareOp::Le => FormulaOp::Le,
                    CompareOp::Gt => FormulaOp::Gt,
                    CompareOp::Ge => FormulaOp::Ge,
                };
                Formula::binary(op, operand(0)?, operand(1)?)
            }
            _ => return None,
        })
    }
}

fn is_condition(expr: &ast::Expr) -> bool {
    match &expr.kind {
        ExprKind::Paren(inner) => is_condition(inner),
        ExprKind::Bool(_) => true,
        ExprKind::Unary {
            op: ast::UnaryOp::Not,
            ..
        } => true,
        ExprKind::Binary { op, .. } => matches!(
            op,
            ast::BinaryOp::OrElse
                | ast::BinaryOp::AndAlso
                | ast::BinaryOp::Eq
                | ast::BinaryOp::Ne
                | ast::BinaryOp::Lt
                | ast::BinaryOp::Le
                | ast::BinaryOp::Gt
                | ast::BinaryOp::Ge
        ),
        ExprKind::Call { callee, .. } => bare(callee).is_some_and(|n| n.name == "given"),
        // A `bool` compile-time parameter or scalar.
        ExprKind::Path(_) => true,
        _ => false,
    }
}

fn formula_op(op: ast::BinaryOp) -> Option<FormulaOp> {
    Some(match op {
        ast::BinaryOp::OrElse => FormulaOp::Or,
        ast::BinaryOp::AndAlso => FormulaOp::And,
        ast::BinaryOp::Eq => FormulaOp::Eq,
        ast::BinaryOp::Ne => FormulaOp::Ne,
        ast::BinaryOp::Lt => FormulaOp::Lt,
        ast::BinaryOp::Le => FormulaOp::Le,
        ast::BinaryOp::Gt => FormulaOp::Gt,
        ast::BinaryOp::Ge => FormulaOp::Ge,
        ast::BinaryOp::Add => FormulaOp::Add,
        ast::BinaryOp::Sub => FormulaOp::Sub,
        ast::BinaryOp::Mul => FormulaOp::Mul,
        ast::BinaryOp::Div => FormulaOp::Div,
        ast::BinaryOp::Rem => FormulaOp::Rem,
        _ => return None,
    })
}
