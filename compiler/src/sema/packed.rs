//! Elements of less than a byte: what may be stored and read at once, as memory has no smaller part than a byte.

use tesserine_set::{Fact, Formula, FormulaOp, Term};

use super::{
    Eval,
    access::{Slice, count},
    eval::Evaluator,
};
use crate::{
    diagnostics::{Diagnostic, codes},
    ir::{
        ValueId,
        tile::{BinaryOp, Constant, Index, OpKind},
    },
};

/// Operations that a proof looks through.
const MAX_DEPTH: u32 = 64;

impl<'a> Evaluator<'a> {
    /// A store of packed elements covers whole bytes.
    pub fn check_bytes(&mut self, slice: &Slice) -> Eval<()> {
        let elem = slice.view.elem;
        if !elem.is_packed() {
            return Ok(());
        }
        let per = i64::from(8 / elem.bits());
        let last = slice.indices.last().copied();
        let why = match last {
            _ if self.scatter => Some("`scatter` stores elements one by one".to_owned()),
            Some(Index::Scalar) | None => Some("this stores one element of each byte".to_owned()),
            Some(Index::Gather { .. }) => Some("this stores elements one by one".to_owned()),
            // What fills up the last byte of a row is nobody's.
            Some(Index::Whole { .. }) => None,
            Some(Index::Range { len, .. }) => {
                let own = last.map_or(0, Index::operands);
                let operands = &slice.operands[slice.operands.len() - own..];
                let unproven = operands.iter().position(|v| !self.is_multiple(*v, per));
                let to_end = self.ends_row(slice, operands[0], len);
                match unproven {
                    _ if i64::from(len) % per != 0 && !to_end => {
                        Some(format!("{len} elements fill no whole number of bytes"))
                    }
                    None => None,
                    Some(0) => Some(format!(
                        "where this begins is not known to be a multiple of {per}"
                    )),
                    Some(_) => Some(format!(
                        "a bound of this is not known to be a multiple of {per}"
                    )),
                }
            }
        };
        let Some(why) = why else { return Ok(()) };
        self.fail(
            Diagnostic::error(
                codes::E0211,
                slice.span,
                format!("a store to `{}` covers whole bytes: {why}", slice.view.name),
            )
            .label(
                slice.view.span,
                format!("`{elem}`: {} in a byte", count(per as usize, "element")),
            )
            .help(format!(
                "begin at a multiple, as in `i*B +: B` with B a multiple of {per}, or state one: `where n % {per} == 0`"
            )),
        )
    }

    /// Elements of four bits are read from an even one on.
    pub fn check_even(&mut self, slice: &Slice) -> Eval<()> {
        let elem = slice.view.elem;
        if elem.bits() != 4 {
            return Ok(());
        }
        let Some(last @ Index::Range { .. }) = slice.indices.last().copied() else {
            return Ok(());
        };
        let start = slice.operands[slice.operands.len() - last.operands()];
        if self.is_multiple(start, 2) {
            return Ok(());
        }
        self.fail(
            Diagnostic::error(
                codes::E0211,
                slice.span,
                format!(
                    "a slice of `{}` begins at an even element: where this begins is not known to be one",
                    slice.view.name
                ),
            )
            .label(slice.view.span, format!("`{elem}`: 2 elements in a byte"))
            .help("begin at a multiple, as in `i*B +: B` with an even B"),
        )
    }

    /// Whether `len` elements from `start` on are the last of their rows.
    fn ends_row(&self, slice: &Slice, start: ValueId, len: u32) -> bool {
        let (root, _) = slice.view.root();
        let extent = root.extents.last().and_then(|e| e.as_int());
        match (self.known(start), extent) {
            (Some(start), Some(extent)) => start + i64::from(len) >= extent,
            _ => false,
        }
    }

    fn known(&self, value: ValueId) -> Option<i64> {
        let op = self.body.defining_op(value)?;
        match self.body.ops[op].kind {
            OpKind::Constant(Constant::Int(v, _)) => Some(v),
            _ => None,
        }
    }

    /// Whether an integer scalar is a multiple of `n`, by what it is made of.
    pub fn is_multiple(&self, value: ValueId, n: i64) -> bool {
        n == 1 || self.multiple(value, n, MAX_DEPTH)
    }

    fn multiple(&self, value: ValueId, n: i64, depth: u32) -> bool {
        let Some(depth) = depth.checked_sub(1) else {
            return false;
        };
        let Some(op) = self.body.defining_op(value) else {
            return self.counts_in(value, n, depth);
        };
        let op = &self.body.ops[op];
        let of = |i: usize| self.multiple(op.operands[i], n, depth);
        match &op.kind {
            OpKind::Constant(Constant::Int(v, _)) => v % n == 0,
            OpKind::Dim(d) => self
                .required
                .iter()
                .any(|fact| states(fact, Term::Dim(*d), n)),
            OpKind::Param(p) => self
                .required
                .iter()
                .any(|fact| states(fact, Term::Scalar(*p), n)),
            OpKind::Cast if self.body.ty(op.operands[0]).elem().is_int() => of(0),
            OpKind::Select => of(1) && of(2),
            OpKind::Binary(binary) => match binary {
                BinaryOp::Mul => {
                    let factor = |i: usize| self.known(op.operands[i]).filter(|k| *k != 0);
                    of(0)
                        || of(1)
                        || [(0, 1), (1, 0)].into_iter().any(|(a, b)| {
                            // Part of n may come from a constant factor.
                            factor(a).is_some_and(|k| {
                                let rest = n / gcd(n, k);
                                self.multiple(op.operands[b], rest, depth)
                            })
                        })
                }
                BinaryOp::Add | BinaryOp::Sub | BinaryOp::Min | BinaryOp::Max => of(0) && of(1),
                BinaryOp::And => {
                    // In two's complement the low bits that one of them clears are cleared.
                    (n & (n - 1)) == 0 && (of(0) || of(1))
                }
                BinaryOp::Shl => self
                    .known(op.operands[1])
                    .is_some_and(|k| (0..32).contains(&k) && (1i64 << k) % n == 0),
                _ => false,
            },
            _ => false,
        }
    }

    /// Whether a loop's index is a multiple of n: its beginning and its step are.
    fn counts_in(&self, value: ValueId, n: i64, depth: u32) -> bool {
        self.counters.get(&value).is_some_and(|&(from, step)| {
            self.multiple(from, n, depth) && self.multiple(step, n, depth)
        })
    }
}

/// Whether a fact says that `term` is a multiple of n: `d % k == 0` with n a divisor of k, or `d == k`.
fn states(fact: &Fact, term: Term, n: i64) -> bool {
    let Fact::Holds(Formula(terms)) = fact else {
        return false;
    };
    match terms[..] {
        [
            t,
            Term::Int(k),
            Term::Op(FormulaOp::Rem),
            Term::Int(0),
            Term::Op(FormulaOp::Eq),
        ] => t == term && k != 0 && k % n == 0,
        [t, Term::Int(k), Term::Op(FormulaOp::Eq)] => t == term && k % n == 0,
        _ => false,
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a as i64
}
