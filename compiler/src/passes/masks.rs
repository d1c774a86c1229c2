//! Choices by the places of rows and columns, as attention masks its scores: what is decided for a whole tile is decided once.
//!
//! ```text
//! select(m & (u | w), x, y)        ──▶  if u { select(m, x, y) } else { select(m & w, x, y) }      u a scalar
//! select(c < s & c <= r, x, y)     ──▶  if all { x } else { select(c < b, x, y) }                  b = r >= s ? s : r + 1
//! ```
//!
//! `all` says that the last column lies before the first bound. It is worked out from the scalars that rows and columns begin at, in 64 bits, and
//! is true only where none of the 32-bit sums in the tile wraps.
//!
//! Invariants: the same elements are chosen, whatever the values. Only kernels of the role level are touched: their authors count what stands
//! between two products, and a branch for all threads costs next to nothing there.

use std::collections::HashMap;

use tesserine_set::DType;

use super::{lower_roles, simplify};
use crate::{
    ir::{
        OpId, RegionId, ValueId,
        tile::{BinaryOp, Builder, CompareOp, Constant, Kernel, OpKind, TileBody, Type},
    },
    span::Span,
};

pub fn run(kernel: &mut Kernel) {
    if lower_roles::roles_of(kernel).is_none() {
        return;
    }
    let mut masks = Masks {
        from: &kernel.body,
        to: TileBody::new(),
        map: HashMap::new(),
    };
    let root = masks.to.root;
    masks.region(kernel.body.root, root);
    kernel.body = masks.to;
    simplify::run(kernel);
}

struct Masks<'a> {
    from: &'a TileBody,
    to: TileBody,
    map: HashMap<ValueId, ValueId>,
}

/// A condition for each element, by values of the body that is written: `a < b` or `a <= b`.
#[derive(Clone, Copy)]
struct Bound {
    strict: bool,
    a: ValueId,
    b: ValueId,
}

/// What a condition is made of.
#[derive(Clone, Copy)]
enum Condition {
    Bound(Bound),
    Other(ValueId),
}

/// The choice at hand.
struct Choice {
    operands: [ValueId; 2],
    ty: Type,
    span: Span,
}

impl Masks<'_> {
    fn region(&mut self, region: RegionId, into: RegionId) {
        for &arg in &self.from.regions[region].args {
            let new = self.to.add_argument(into, self.from.ty(arg).clone());
            self.map.insert(arg, new);
        }
        for &id in &self.from.regions[region].ops {
            self.operation(id, into);
        }
    }

    fn operation(&mut self, id: OpId, into: RegionId) {
        let op = &self.from.ops[id];
        if let (OpKind::Select, &[condition, x, y]) = (&op.kind, &op.operands[..])
            && self.from.ty(condition).shape().len() == 2
        {
            let choice = Choice {
                operands: [self.map[&x], self.map[&y]],
                ty: self.from.ty(op.results[0]).clone(),
                span: op.span,
            };
            let condition = self.map[&condition];
            let chosen = self.choose(condition, &choice, into);
            self.map.insert(op.results[0], chosen);
            return;
        }
        let regions = op.regions.iter().map(|&inner| {
            let new = self.to.new_region();
            self.region(inner, new);
            new
        });
        let regions = regions.collect();
        self.to
            .append_copy(into, self.from, id, regions, &mut self.map);
    }

    fn def(&self, value: ValueId) -> Option<(&OpKind, &[ValueId])> {
        let op = &self.to.ops[self.to.defining_op(value)?];
        Some((&op.kind, &op.operands))
    }

    /// What must hold all at once.
    fn conditions(&self, all: ValueId) -> Vec<ValueId> {
        let mut conditions = Vec::new();
        let mut next = vec![all];
        while let Some(value) = next.pop() {
            match self.def(value) {
                Some((OpKind::Binary(BinaryOp::And), &[a, b])) => next.extend([b, a]),
                _ => conditions.push(value),
            }
        }
        conditions
    }

    /// The scalar that a tile is everywhere.
    fn scalar(&self, value: ValueId) -> Option<ValueId> {
        match self.def(value)? {
            (OpKind::Broadcast, &[of]) if self.to.ty(of).shape().is_empty() => Some(of),
            _ => None,
        }
    }

    fn choose(&mut self, condition: ValueId, choice: &Choice, into: RegionId) -> ValueId {
        let mut conditions = self.conditions(condition);
        let known = conditions.iter().enumerate().find_map(|(i, &value)| {
            let (OpKind::Binary(BinaryOp::Or), &[a, b]) = self.def(value)? else {
                return None;
            };
            match (self.scalar(a), self.scalar(b)) {
                (Some(known), None) => Some((i, known, b)),
                (None, Some(known)) => Some((i, known, a)),
                _ => None,
            }
        });
        let Some((i, known, mask)) = known else {
            let conditions: Vec<Condition> =
                conditions.into_iter().map(|v| self.condition(v)).collect();
            return self.choose_by(&conditions, choice, into);
        };
        conditions.remove(i);
        let rest: Vec<Condition> = conditions.into_iter().map(|v| self.condition(v)).collect();
        let mut more = rest.clone();
        more.push(self.condition(mask));
        self.branch(known, choice, into, |masks, first, region| {
            masks.choose_by(if first { &rest } else { &more }, choice, region)
        })
    }

    fn branch(
        &mut self,
        condition: ValueId,
        choice: &Choice,
        into: RegionId,
        mut arm: impl FnMut(&mut Self, bool, RegionId) -> ValueId,
    ) -> ValueId {
        let mut regions = Vec::new();
        for first in [true, false] {
            let region = self.to.new_region();
            let chosen = arm(self, first, region);
            self.to.append(
                region,
                OpKind::Yield,
                vec![chosen],
                Vec::new(),
                Vec::new(),
                choice.span,
            );
            regions.push(region);
        }
        let types = vec![choice.ty.clone()];
        let chosen = self.to.append(
            into,
            OpKind::If,
            vec![condition],
            types,
            regions,
            choice.span,
        );
        self.to.ops[chosen].results[0]
    }

    /// The condition as a bound, if it compares 32-bit places.
    fn condition(&self, value: ValueId) -> Condition {
        let mut inner = value;
        while let Some((OpKind::Broadcast, &[of])) = self.def(inner) {
            inner = of;
        }
        let Some((&OpKind::Compare(op), &[a, b])) = self.def(inner) else {
            return Condition::Other(value);
        };
        if self.to.ty(a).elem() != DType::I32 {
            return Condition::Other(value);
        }
        let (strict, a, b) = match op {
            CompareOp::Lt => (true, a, b),
            CompareOp::Le => (false, a, b),
            CompareOp::Gt => (true, b, a),
            CompareOp::Ge => (false, b, a),
            CompareOp::Eq | CompareOp::Ne => return Condition::Other(value),
        };
        Condition::Bound(Bound { strict, a, b })
    }

    /// The choice by all of the conditions.
    fn choose_by(&mut self, conditions: &[Condition], choice: &Choice, into: RegionId) -> ValueId {
        match self.holds_everywhere(conditions, choice.span, into) {
            Some(all) => self.branch(all, choice, into, |masks, first, region| match first {
                true => choice.operands[0],
                false => masks.select(conditions, choice, region),
            }),
            None => self.select(conditions, choice, into),
        }
    }

    fn select(&mut self, conditions: &[Condition], choice: &Choice, into: RegionId) -> ValueId {
        let mut conditions = conditions.to_vec();
        while let Some([i, j]) = self.mergeable(&conditions) {
            let (Condition::Bound(strict), Condition::Bound(other)) =
                (conditions[i], conditions[j])
            else {
                unreachable!("bounds are merged");
            };
            conditions[i] = Condition::Bound(self.merged(strict, other, choice.span, into));
            conditions.remove(j);
        }
        let shape = choice.ty.shape().to_vec();
        let all = conditions.iter().map(|&condition| match condition {
            Condition::Bound(Bound { strict, a, b }) => {
                let op = if strict { CompareOp::Lt } else { CompareOp::Le };
                let mut builder = builder(&mut self.to, into, choice.span);
                let [a, b] = [a, b].map(|v| builder.broadcast(v, &shape));
                builder.compare(op, a, b)
            }
            Condition::Other(value) => value,
        });
        let all: Vec<ValueId> = all.collect();
        let mut b = builder(&mut self.to, into, choice.span);
        let all = all.into_iter().reduce(|x, y| b.binary(BinaryOp::And, x, y));
        match all {
            Some(all) => b.select(all, choice.operands[0], choice.operands[1]),
            None => choice.operands[0],
        }
    }

    /// What is broadcast, without its broadcasts.
    fn inner(&self, value: ValueId) -> ValueId {
        match self.def(value) {
            Some((OpKind::Broadcast, &[of])) if !self.to.ty(of).shape().is_empty() => {
                self.inner(of)
            }
            _ => value,
        }
    }

    /// Two bounds of the same columns: a strict one by a scalar, and another by rows.
    fn mergeable(&self, conditions: &[Condition]) -> Option<[usize; 2]> {
        let bounds: Vec<(usize, Bound)> = conditions
            .iter()
            .enumerate()
            .filter_map(|(i, c)| match c {
                Condition::Bound(bound) => Some((i, *bound)),
                Condition::Other(_) => None,
            })
            .collect();
        let strict = bounds
            .iter()
            .filter(|(_, b)| b.strict && self.scalar(b.b).is_some());
        strict.into_iter().find_map(|&(i, first)| {
            let same = |(j, b): &(usize, Bound)| {
                let rows = self.to.ty(self.inner(b.b)).shape();
                *j != i
                    && self.inner(b.a) == self.inner(first.a)
                    && matches!(rows, [_, 1])
                    && self.scalar(b.b).is_none()
            };
            bounds.iter().find(|b| same(b)).map(|&(j, _)| [i, j])
        })
    }

    /// One bound for both: `a < b` and `a < r` or `a <= r`.
    fn merged(&mut self, first: Bound, second: Bound, span: Span, into: RegionId) -> Bound {
        let rows = self.inner(second.b);
        let shape = self.to.ty(rows).shape().to_vec();
        let Some(scalar) = self.scalar(first.b) else {
            unreachable!("`mergeable` has looked");
        };
        let a = self.inner(first.a);
        let mut b = builder(&mut self.to, into, span);
        let limit = b.broadcast(scalar, &shape);
        let own = match second.strict {
            true => rows,
            false => {
                // Where this wraps, the other one is taken.
                let one = b.constant(Constant::Int(1, DType::I32));
                let one = b.broadcast(one, &shape);
                b.binary(BinaryOp::Add, rows, one)
            }
        };
        let further = b.compare(CompareOp::Ge, rows, limit);
        let bound = b.select(further, limit, own);
        Bound {
            strict: true,
            a,
            b: bound,
        }
    }

    /// Whether all of the conditions hold for all elements, as a scalar; `None` if that cannot be said of some.
    fn holds_everywhere(
        &mut self,
        conditions: &[Condition],
        span: Span,
        into: RegionId,
    ) -> Option<ValueId> {
        let mut bounds = Vec::new();
        for condition in conditions {
            match condition {
                Condition::Bound(b) if self.counts(b.a) && self.counts(b.b) => bounds.push(*b),
                _ => return None,
            }
        }
        let mut holds = Vec::new();
        for bound in bounds {
            let [_, last] = self.ends(bound.a, &mut holds, span, into);
            let [first, _] = self.ends(bound.b, &mut holds, span, into);
            let op = if bound.strict {
                CompareOp::Lt
            } else {
                CompareOp::Le
            };
            let mut b = builder(&mut self.to, into, span);
            holds.push(b.compare(op, last, first));
        }
        let mut b = builder(&mut self.to, into, span);
        holds
            .into_iter()
            .reduce(|x, y| b.binary(BinaryOp::And, x, y))
    }

    /// Whether the tile counts rows or columns from scalars on.
    fn counts(&self, value: ValueId) -> bool {
        self.to.ty(value).shape().is_empty()
            || match self.def(value) {
                Some((OpKind::Iota, _)) => true,
                Some((OpKind::Broadcast | OpKind::Reshape, &[of])) => self.counts(of),
                Some((
                    OpKind::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Min | BinaryOp::Max),
                    &[a, b],
                )) => self.counts(a) && self.counts(b),
                _ => false,
            }
    }

    /// The least and the largest element of such a tile, or numbers beyond them, in 64 bits. `holds` gets what must hold for that: no 32-bit
    /// sum on the way wraps.
    fn ends(
        &mut self,
        value: ValueId,
        holds: &mut Vec<ValueId>,
        span: Span,
        into: RegionId,
    ) -> [ValueId; 2] {
        let shape = self.to.ty(value).shape().to_vec();
        let def = self
            .def(value)
            .map(|(kind, of)| (kind.clone(), of.to_vec()));
        let op = match def {
            _ if shape.is_empty() => {
                let wide = builder(&mut self.to, into, span).cast(value, DType::I64);
                return [wide, wide];
            }
            Some((OpKind::Iota, _)) => {
                let count: i64 = shape.iter().map(|&d| i64::from(d)).product();
                let mut b = builder(&mut self.to, into, span);
                return [b.int(0), b.int(count - 1)];
            }
            Some((OpKind::Binary(op), of)) => Some((op, of[0], of[1])),
            Some((_, of)) => return self.ends(of[0], holds, span, into),
            None => None,
        };
        let Some((op, a, b)) = op else {
            unreachable!("`counts` has looked");
        };
        let x = self.ends(a, holds, span, into);
        let mut y = self.ends(b, holds, span, into);
        if op == BinaryOp::Sub {
            y.reverse();
        }
        let mut b = builder(&mut self.to, into, span);
        let ends = [0, 1].map(|end| b.binary(op, x[end], y[end]));
        if matches!(op, BinaryOp::Add | BinaryOp::Sub) {
            let [low, high] = [i32::MIN, i32::MAX].map(|end| b.int(end.into()));
            holds.push(b.compare(CompareOp::Ge, ends[0], low));
            holds.push(b.compare(CompareOp::Le, ends[1], high));
        }
        ends
    }
}

fn builder(body: &mut TileBody, region: RegionId, span: Span) -> Builder<'_> {
    Builder { body, region, span }
}
