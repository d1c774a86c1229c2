//! Which power of two is known to divide each integer scalar.
//!
//! Only powers of two: they survive wrapping arithmetic and casts to narrower types, and accesses need no others. Known
//! are constants, what facts say of dimensions (`n % 8 == 0`, `2 * n % 16 == 0`, `n == 128`), and what arithmetic makes
//! of these; loop indices and carried values by iteration down to a fixed point.

use std::collections::HashMap;

use tesserine_set::{Fact, Formula, FormulaOp, Term};

use crate::ir::{
    Header, RegionId, ValueId,
    role::{OpKind, RoleBody},
    tile::{self, BinaryOp, Constant},
};

/// Zero: every power of two divides it.
const ANY: u32 = 63;

/// For each integer scalar of a body the exponent of a power of two that divides it.
#[derive(Clone, Debug)]
pub struct Divisibility {
    dims: Vec<u32>,
    values: HashMap<ValueId, u32>,
}

impl Divisibility {
    pub fn of(header: &Header, body: &RoleBody) -> Divisibility {
        let mut known = Divisibility {
            dims: dims(header),
            values: HashMap::new(),
        };
        known.region(body, body.root);
        known
    }

    /// The exponent for a value of the body; 0 if nothing is known.
    pub fn twos(&self, value: ValueId) -> u32 {
        self.values.get(&value).copied().unwrap_or(0)
    }

    /// The exponent for a formula over the signature's dimensions.
    pub fn formula(&self, formula: &Formula) -> u32 {
        let mut stack: Vec<(u32, Option<i64>)> = Vec::new();
        for term in &formula.0 {
            let item = match *term {
                Term::Int(value) => (of_int(value), Some(value)),
                Term::Dim(i) => (self.dims.get(i as usize).copied().unwrap_or(0), None),
                Term::Scalar(_) | Term::Given(_) | Term::Multiprocessors => (0, None),
                Term::Op(op) => {
                    let b = if op.arity() == 2 {
                        stack.pop().unwrap_or((0, None))
                    } else {
                        (ANY, None)
                    };
                    let a = stack.pop().unwrap_or((0, None));
                    let twos = match op {
                        FormulaOp::Neg => a.0,
                        FormulaOp::Add | FormulaOp::Sub | FormulaOp::Min | FormulaOp::Max => {
                            a.0.min(b.0)
                        }
                        FormulaOp::Rem => a.0.min(b.0),
                        FormulaOp::Mul => product(a.0, b.0),
                        FormulaOp::Div | FormulaOp::CeilDiv => quotient(a.0, b.1),
                        FormulaOp::RoundUp => b.0,
                        _ => 0,
                    };
                    (twos, None)
                }
            };
            stack.push(item);
        }
        stack.pop().map_or(0, |(twos, _)| twos)
    }

    fn region(&mut self, body: &RoleBody, region: RegionId) {
        for &id in &body.regions[region].ops {
            let op = &body.ops[id];
            match &op.kind {
                OpKind::Tile(tile::OpKind::If) => {
                    op.regions.iter().for_each(|&r| self.region(body, r));
                    for (i, &result) in op.results.iter().enumerate() {
                        let twos = op
                            .regions
                            .iter()
                            .map(|&r| self.yielded(body, r, i))
                            .min()
                            .unwrap_or(0);
                        self.values.insert(result, twos);
                    }
                }
                OpKind::Tile(tile::OpKind::For { .. }) => {
                    let [lo, _, step] = [0, 1, 2].map(|i| self.twos(op.operands[i]));
                    let inner = op.regions[0];
                    let args = body.regions[inner].args.clone();
                    self.values.insert(args[0], lo.min(step));
                    let inits: Vec<u32> = op.operands[3..].iter().map(|&v| self.twos(v)).collect();
                    self.carried(body, inner, &args[1..], inits);
                    for (&result, &arg) in op.results.iter().zip(&args[1..]) {
                        self.values.insert(result, self.twos(arg));
                    }
                }
                OpKind::Tile(tile::OpKind::While) => {
                    let args = body.regions[op.regions[1]].args.clone();
                    let inits: Vec<u32> = op.operands.iter().map(|&v| self.twos(v)).collect();
                    self.carried(body, op.regions[1], &args, inits);
                    let first = body.regions[op.regions[0]].args.clone();
                    for ((&result, &arg), &head) in op.results.iter().zip(&args).zip(&first) {
                        let twos = self.twos(arg);
                        self.values.insert(result, twos);
                        self.values.insert(head, twos);
                    }
                    self.region(body, op.regions[0]);
                }
                OpKind::Tile(kind) => {
                    if let Some(&result) = op.results.first() {
                        let twos = self.simple(body, kind, &op.operands);
                        self.values.insert(result, twos);
                    }
                }
                _ => {}
            }
        }
    }

    /// Iterates a loop's region until its carried values stand.
    fn carried(&mut self, body: &RoleBody, region: RegionId, args: &[ValueId], mut now: Vec<u32>) {
        loop {
            for (&arg, &twos) in args.iter().zip(&now) {
                self.values.insert(arg, twos);
            }
            self.region(body, region);
            let next: Vec<u32> = (0..now.len())
                .map(|i| now[i].min(self.yielded(body, region, i)))
                .collect();
            if next == now {
                break;
            }
            now = next;
        }
    }

    fn yielded(&self, body: &RoleBody, region: RegionId, index: usize) -> u32 {
        body.regions[region]
            .ops
            .last()
            .and_then(|&id| body.ops[id].operands.get(index))
            .map_or(0, |&v| self.twos(v))
    }

    fn simple(&self, body: &RoleBody, kind: &tile::OpKind, operands: &[ValueId]) -> u32 {
        let of = |i: usize| self.twos(operands[i]);
        let constant = |i: usize| match body.defining_op(operands[i]).map(|id| &body.ops[id].kind) {
            Some(&OpKind::Tile(tile::OpKind::Constant(Constant::Int(value, _)))) => Some(value),
            _ => None,
        };
        match kind {
            tile::OpKind::Constant(Constant::Int(value, _)) => of_int(*value),
            tile::OpKind::Dim(i) => self.dims.get(*i as usize).copied().unwrap_or(0),
            tile::OpKind::Unary(tile::UnaryOp::Neg) | tile::OpKind::Cast => of(0),
            tile::OpKind::Select => of(1).min(of(2)),
            tile::OpKind::Binary(op) => match op {
                BinaryOp::Add | BinaryOp::Sub | BinaryOp::Min | BinaryOp::Max | BinaryOp::Rem => {
                    of(0).min(of(1))
                }
                BinaryOp::Mul => product(of(0), of(1)),
                BinaryOp::And => of(0).max(of(1)),
                BinaryOp::Or | BinaryOp::Xor => of(0).min(of(1)),
                BinaryOp::Div => quotient(of(0), constant(1)),
                BinaryOp::Shl => match constant(1) {
                    Some(by @ 0..=62) => (of(0) + by as u32).min(ANY),
                    _ => of(0),
                },
                _ => 0,
            },
            _ => 0,
        }
    }
}

fn of_int(value: i64) -> u32 {
    value.trailing_zeros().min(ANY)
}

fn product(a: u32, b: u32) -> u32 {
    (a + b).min(ANY)
}

/// Of a quotient by a constant: exact only if it is a power of two that divides.
fn quotient(a: u32, divisor: Option<i64>) -> u32 {
    match divisor {
        Some(d) if d > 0 && (d as u64).is_power_of_two() => a.saturating_sub(d.trailing_zeros()),
        _ => 0,
    }
}

/// What the facts that hold for a body say of the dimensions.
fn dims(header: &Header) -> Vec<u32> {
    let mut dims = vec![0; header.signature.dims.len()];
    for fact in header.requires.iter().chain(&header.facts) {
        if let Fact::Holds(formula) = fact {
            for (dim, twos) in conjuncts(formula) {
                if let Some(known) = dims.get_mut(dim as usize) {
                    *known = twos.max(*known);
                }
            }
        }
    }
    dims
}

/// A step of reading a fact: what is on the stack.
#[derive(Clone)]
enum Part {
    Int(i64),
    /// A factor times a dimension.
    Scaled(i64, u32),
    /// A factor times a dimension, modulo a number.
    Remainder(i64, u32, i64),
    /// What is known if it holds.
    Known(Vec<(u32, u32)>),
}

fn conjuncts(formula: &Formula) -> Vec<(u32, u32)> {
    let mut stack: Vec<Part> = Vec::new();
    let nothing = || Part::Known(Vec::new());
    for term in &formula.0 {
        let part = match *term {
            Term::Int(value) => Part::Int(value),
            Term::Dim(i) => Part::Scaled(1, i),
            Term::Scalar(_) | Term::Given(_) | Term::Multiprocessors => nothing(),
            Term::Op(op) if op.arity() == 2 => {
                let b = stack.pop().unwrap_or_else(nothing);
                let a = stack.pop().unwrap_or_else(nothing);
                match (op, a, b) {
                    (FormulaOp::Mul, Part::Int(c), Part::Scaled(f, d))
                    | (FormulaOp::Mul, Part::Scaled(f, d), Part::Int(c)) => c
                        .checked_mul(f)
                        .map_or_else(nothing, |f| Part::Scaled(f, d)),
                    (FormulaOp::Rem, Part::Scaled(f, d), Part::Int(m)) => Part::Remainder(f, d, m),
                    (FormulaOp::Eq, Part::Remainder(f, d, m), Part::Int(0))
                    | (FormulaOp::Eq, Part::Int(0), Part::Remainder(f, d, m))
                        if f != 0 && m != 0 =>
                    {
                        let twos = of_int(m).saturating_sub(of_int(f));
                        Part::Known(vec![(d, twos)])
                    }
                    (FormulaOp::Eq, Part::Scaled(1, d), Part::Int(c))
                    | (FormulaOp::Eq, Part::Int(c), Part::Scaled(1, d)) => {
                        Part::Known(vec![(d, of_int(c))])
                    }
                    (FormulaOp::And, Part::Known(mut a), Part::Known(b)) => {
                        a.extend(b);
                        Part::Known(a)
                    }
                    _ => nothing(),
                }
            }
            Term::Op(_) => {
                stack.pop();
                nothing()
            }
        };
        stack.push(part);
    }
    match stack.pop() {
        Some(Part::Known(known)) => known,
        _ => Vec::new(),
    }
}
