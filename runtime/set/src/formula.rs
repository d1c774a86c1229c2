//! Formulas over a launch's dimensions and integer scalars: grids, equations, facts, workspace sizes.
//!
//! A formula is a list of terms in postfix order, so that reading, checking and evaluating one needs no recursion,
//! whatever a hostile file holds. Arithmetic is on checked 64-bit integers; `/` and `%` round down, as in the language;
//! comparisons give 0 or 1.

use std::fmt;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// A step of a formula's evaluation on a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Term {
    /// Pushes a constant.
    Int(i64),
    /// Pushes the extent of dimension `signature.dims[i]`.
    Dim(u32),
    /// Pushes the value of the integer scalar parameter `signature.params[i]`.
    Scalar(u32),
    /// Pushes 1 if optional parameter `signature.params[i]` was given, else 0.
    Given(u32),
    /// Pushes how many multiprocessors the device has; in a body's cost only.
    Multiprocessors,
    /// Replaces the topmost one or two values by the result.
    Op(FormulaOp),
}

/// An operation of a formula. All but `Neg` and `Not` take two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FormulaOp {
    Neg,
    Not,
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    CeilDiv,
    RoundUp,
    Min,
    Max,
    And,
    Or,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl FormulaOp {
    /// How many operands it takes.
    pub fn arity(self) -> usize {
        match self {
            FormulaOp::Neg | FormulaOp::Not => 1,
            _ => 2,
        }
    }

    /// The result, or `None` on overflow or division by zero. Unary operations ignore `b`.
    pub fn apply(self, a: i64, b: i64) -> Option<i64> {
        Some(match self {
            FormulaOp::Neg => a.checked_neg()?,
            FormulaOp::Not => (a == 0) as i64,
            FormulaOp::Add => a.checked_add(b)?,
            FormulaOp::Sub => a.checked_sub(b)?,
            FormulaOp::Mul => a.checked_mul(b)?,
            FormulaOp::Div => floor_div(a, b)?,
            FormulaOp::Rem => a.checked_sub(floor_div(a, b)?.checked_mul(b)?)?,
            FormulaOp::CeilDiv => floor_div(a, b)?.checked_add((a % b != 0) as i64)?,
            FormulaOp::RoundUp => floor_div(a, b)?
                .checked_add((a % b != 0) as i64)?
                .checked_mul(b)?,
            FormulaOp::Min => a.min(b),
            FormulaOp::Max => a.max(b),
            FormulaOp::And => (a != 0 && b != 0) as i64,
            FormulaOp::Or => (a != 0 || b != 0) as i64,
            FormulaOp::Eq => (a == b) as i64,
            FormulaOp::Ne => (a != b) as i64,
            FormulaOp::Lt => (a < b) as i64,
            FormulaOp::Le => (a <= b) as i64,
            FormulaOp::Gt => (a > b) as i64,
            FormulaOp::Ge => (a >= b) as i64,
        })
    }

    /// The comparison that holds where this one does not.
    fn opposite(self) -> Option<FormulaOp> {
        Some(match self {
            FormulaOp::Eq => FormulaOp::Ne,
            FormulaOp::Ne => FormulaOp::Eq,
            FormulaOp::Lt => FormulaOp::Ge,
            FormulaOp::Ge => FormulaOp::Lt,
            FormulaOp::Gt => FormulaOp::Le,
            FormulaOp::Le => FormulaOp::Gt,
            _ => return None,
        })
    }

    /// The spelling in source: an infix operator, or a function's name for the last column.
    fn spelling(self) -> (&'static str, u8) {
        match self {
            FormulaOp::Neg => ("-", 9),
            FormulaOp::Not => ("!", 9),
            FormulaOp::Mul => ("*", 8),
            FormulaOp::Div => ("/", 8),
            FormulaOp::Rem => ("%", 8),
            FormulaOp::Add => ("+", 7),
            FormulaOp::Sub => ("-", 7),
            FormulaOp::Eq => ("==", 5),
            FormulaOp::Ne => ("!=", 5),
            FormulaOp::Lt => ("<", 5),
            FormulaOp::Le => ("<=", 5),
            FormulaOp::Gt => (">", 5),
            FormulaOp::Ge => (">=", 5),
            FormulaOp::And => ("&&", 3),
            FormulaOp::Or => ("||", 2),
            FormulaOp::CeilDiv => ("ceil_div", 0),
            FormulaOp::RoundUp => ("round_up", 0),
            FormulaOp::Min => ("min", 0),
            FormulaOp::Max => ("max", 0),
        }
    }
}

fn floor_div(a: i64, b: i64) -> Option<i64> {
    let q = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) {
        q - 1
    } else {
        q
    })
}

/// A formula, in postfix order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Formula(pub Vec<Term>);

/// Why a formula gave no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormulaError {
    /// The terms do not reduce to one value, or name a dimension or parameter that is not there.
    #[error("the formula is malformed")]
    Malformed,
    /// A result left the 64-bit range, or a divisor was zero.
    #[error("the formula overflows 64 bits or divides by zero")]
    Arithmetic,
}

/// What a formula is evaluated over: one entry a dimension, one a parameter of the signature.
#[derive(Clone, Copy, Debug)]
pub struct Env<'a> {
    /// Extents, as `Signature::dims` lists the names.
    pub dims: &'a [i64],
    /// Integer scalars, as `Signature::params` lists the parameters; 0 for all others.
    pub scalars: &'a [i64],
    /// Whether each parameter was given.
    pub given: &'a [bool],
    /// How many multiprocessors the device has; 1 where none is known.
    pub multiprocessors: u32,
}

impl Formula {
    /// The constant `value`.
    pub fn int(value: i64) -> Formula {
        Formula(vec![Term::Int(value)])
    }

    /// The extent of dimension `index`.
    pub fn dim(index: u32) -> Formula {
        Formula(vec![Term::Dim(index)])
    }

    /// `op a`.
    pub fn unary(op: FormulaOp, mut a: Formula) -> Formula {
        if op == FormulaOp::Not
            && let Some(Term::Op(last)) = a.0.last_mut()
            && let Some(opposite) = last.opposite()
        {
            *last = opposite;
            return a;
        }
        a.0.push(Term::Op(op));
        a.folded()
    }

    /// `a op b`.
    pub fn binary(op: FormulaOp, mut a: Formula, b: Formula) -> Formula {
        let truth = |f: &Formula| f.as_int().map(|v| v != 0);
        match (op, truth(&a), truth(&b)) {
            (FormulaOp::And, Some(false), _) | (FormulaOp::And, _, Some(false)) => {
                return Formula::int(0);
            }
            (FormulaOp::Or, Some(true), _) | (FormulaOp::Or, _, Some(true)) => {
                return Formula::int(1);
            }
            (FormulaOp::And, Some(true), _) | (FormulaOp::Or, Some(false), _)
                if b.is_condition() =>
            {
                return b;
            }
            (FormulaOp::And, _, Some(true)) | (FormulaOp::Or, _, Some(false))
                if a.is_condition() =>
            {
                return a;
            }
            _ => {}
        }
        a.0.extend(b.0);
        a.0.push(Term::Op(op));
        a.folded()
    }

    /// Whether it gives 0 or 1 for what it says of others.
    pub fn is_condition(&self) -> bool {
        matches!(
            self.0.last(),
            Some(
                Term::Given(_)
                    | Term::Op(
                        FormulaOp::Not
                            | FormulaOp::And
                            | FormulaOp::Or
                            | FormulaOp::Eq
                            | FormulaOp::Ne
                            | FormulaOp::Lt
                            | FormulaOp::Le
                            | FormulaOp::Gt
                            | FormulaOp::Ge
                    )
            )
        )
    }

    /// The constant that the formula is, if it mentions nothing else.
    pub fn as_int(&self) -> Option<i64> {
        match self.0[..] {
            [Term::Int(value)] => Some(value),
            _ => None,
        }
    }

    /// The dimension that the formula is, if it stands bare.
    pub fn as_dim(&self) -> Option<u32> {
        match self.0[..] {
            [Term::Dim(dim)] => Some(dim),
            _ => None,
        }
    }

    /// `yes` where `condition` is not 0, else `no`. Both are evaluated.
    pub fn select(condition: Formula, yes: Formula, no: Formula) -> Formula {
        if let Some(value) = condition.as_int() {
            return if value != 0 { yes } else { no };
        }
        if yes == no {
            return yes;
        }
        let truth = Formula::binary(FormulaOp::Ne, condition.clone(), Formula::int(0));
        let other = Formula::binary(FormulaOp::Eq, condition, Formula::int(0));
        Formula::binary(
            FormulaOp::Add,
            Formula::binary(FormulaOp::Mul, truth, yes),
            Formula::binary(FormulaOp::Mul, other, no),
        )
    }

    /// Both hold; a condition that is always true is left out.
    pub fn both(a: Option<Formula>, b: Option<Formula>) -> Option<Formula> {
        let open = |f: &Formula| f.as_int().is_none_or(|v| v == 0);
        match (a.filter(open), b.filter(open)) {
            (Some(a), Some(b)) => Some(Formula::binary(FormulaOp::And, a, b)),
            (a, b) => a.or(b),
        }
    }

    /// The formula with each term replaced by what `term` gives for it; `None` if it gives nothing for one.
    pub fn substitute(&self, term: impl Fn(Term) -> Option<Formula>) -> Option<Formula> {
        let mut stack: Vec<Formula> = Vec::new();
        for t in &self.0 {
            let value = match *t {
                Term::Int(v) => Formula::int(v),
                Term::Op(op) if op.arity() == 2 => {
                    let b = stack.pop()?;
                    Formula::binary(op, stack.pop()?, b)
                }
                Term::Op(op) => Formula::unary(op, stack.pop()?),
                t => term(t)?,
            };
            stack.push(value);
        }
        match stack.len() {
            1 => stack.pop(),
            _ => None,
        }
    }

    fn folded(self) -> Formula {
        let constant = self
            .0
            .iter()
            .all(|t| matches!(t, Term::Int(_) | Term::Op(_)));
        match constant.then(|| {
            self.eval(&Env {
                dims: &[],
                scalars: &[],
                given: &[],
                multiprocessors: 1,
            })
        }) {
            Some(Ok(value)) => Formula::int(value),
            _ => self,
        }
    }

    /// The value under `env`.
    pub fn eval(&self, env: &Env<'_>) -> Result<i64, FormulaError> {
        let at =
            |list: &[i64], i: u32| list.get(i as usize).copied().ok_or(FormulaError::Malformed);
        // Most extents are a name or a number; launches evaluate many of them.
        match self.0[..] {
            [Term::Dim(i)] => return at(env.dims, i),
            [Term::Int(value)] => return Ok(value),
            _ => {}
        }
        let mut stack: SmallVec<[i64; 8]> = SmallVec::new();
        for term in &self.0 {
            let value = match *term {
                Term::Int(value) => value,
                Term::Dim(i) => at(env.dims, i)?,
                Term::Scalar(i) => at(env.scalars, i)?,
                Term::Given(i) => *env.given.get(i as usize).ok_or(FormulaError::Malformed)? as i64,
                Term::Multiprocessors => i64::from(env.multiprocessors),
                Term::Op(op) => {
                    let b = if op.arity() == 2 {
                        stack.pop().ok_or(FormulaError::Malformed)?
                    } else {
                        0
                    };
                    let a = stack.pop().ok_or(FormulaError::Malformed)?;
                    op.apply(a, b).ok_or(FormulaError::Arithmetic)?
                }
            };
            stack.push(value);
        }
        match stack[..] {
            [value] => Ok(value),
            _ => Err(FormulaError::Malformed),
        }
    }

    /// The formula as source, with the names of `dims` and `params`.
    pub fn display<'a>(
        &'a self,
        dims: &'a [String],
        params: &'a [&'a str],
    ) -> impl fmt::Display + 'a {
        let name = |list: &[String], i: u32| {
            list.get(i as usize)
                .cloned()
                .unwrap_or_else(|| format!("?{i}"))
        };
        let mut stack: Vec<(String, u8)> = Vec::new();
        for term in &self.0 {
            let item = match *term {
                Term::Int(value) => (value.to_string(), 10),
                Term::Dim(i) => (name(dims, i), 10),
                Term::Scalar(i) => (params.get(i as usize).unwrap_or(&"?").to_string(), 10),
                Term::Given(i) => (
                    format!("given({})", params.get(i as usize).unwrap_or(&"?")),
                    10,
                ),
                Term::Multiprocessors => ("multiprocessors".to_owned(), 10),
                Term::Op(op) => {
                    let (text, level) = op.spelling();
                    let b = if op.arity() == 2 { stack.pop() } else { None };
                    let a = stack.pop().unwrap_or(("?".into(), 10));
                    let group =
                        |(s, l): (String, u8), min: u8| if l < min { format!("({s})") } else { s };
                    match (b, level) {
                        (None, _) => (format!("{text}{}", group(a, level)), level),
                        (Some(b), 0) => (format!("{text}({}, {})", a.0, b.0), 10),
                        // Comparisons do not chain: both sides bind tighter.
                        (Some(b), 5) => (format!("{} {text} {}", group(a, 6), group(b, 6)), level),
                        (Some(b), _) => (
                            format!("{} {text} {}", group(a, level), group(b, level + 1)),
                            level,
                        ),
                    }
                }
            };
            stack.push(item);
        }
        stack.pop().map_or_else(|| "?".to_owned(), |(s, _)| s)
    }
}
