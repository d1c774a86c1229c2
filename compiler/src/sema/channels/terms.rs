//! What control around channel operations depends on: scalars as terms over what a launch or a load decides.
//!
//! Terms are interned, so that one computation is one term in every role. Sums are kept in a normal form; what has no form
//! here is an atom. An atom has any value that its place allows: the check tries small ones, and those at which a
//! comparison turns.

use std::collections::{BTreeSet, HashMap};

use tesserine_set::{DType, Fact, FormulaOp, Term as Step};

use crate::{
    ir::{
        RegionId, ValueDef, ValueId,
        tile::{BinaryOp, ChannelId, CompareOp, Constant, Kernel, OpKind, RoleOp, Type, UnaryOp},
    },
    span::Span,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TermId(u32);

/// Truth values are 0 and 1.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Term {
    /// `constant + Σ factor · term`; factors are not 0, terms are no sums, and stand in order. A constant is a sum too.
    Sum(i64, Vec<(TermId, i64)>),
    Min(TermId, TermId),
    Max(TermId, TermId),
    /// Rounded down, by a positive constant.
    Div(TermId, i64),
    Rem(TermId, i64),
    Select(TermId, TermId, TermId),
    /// Of a difference with 0.
    Compare(CompareOp, TermId),
    And(TermId, TermId),
    Or(TermId, TermId),
    Not(TermId),
    Leaf(Leaf),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Leaf {
    Dim(u32),
    Param(u32),
    Grid(u32),
    /// The index of a loop, by its region.
    Index(RegionId),
    /// A tile that `get` gave.
    Got(ValueId),
    /// The same, whoever gets it: a place of a channel's payload.
    Payload(ChannelId, u32),
    /// An operation of others that has no form of its own.
    Opaque(String, Vec<TermId>),
    /// What is computed in a way that is not followed, before the roles.
    Value(ValueId),
}

/// Why nothing may depend on a value, and where it comes from.
#[derive(Clone, Debug)]
pub(super) struct Unfit {
    pub span: Span,
    pub why: &'static str,
}

/// What a term depends on.
#[derive(Clone, Debug, Default)]
pub(super) struct About {
    pub indices: BTreeSet<RegionId>,
    /// Tiles that `get` gave, in order of appearance.
    pub got: Vec<ValueId>,
    /// Axes of the grid, by bit.
    pub axes: u32,
    /// Atoms that are no index and not received.
    pub atoms: BTreeSet<TermId>,
}

pub(super) struct Terms<'k> {
    pub kernel: &'k Kernel,
    list: Vec<Term>,
    about: Vec<About>,
    known: HashMap<Term, TermId>,
    values: HashMap<ValueId, Result<TermId, Unfit>>,
    /// For each value that is defined in a role: it is no shared one.
    inside: Vec<bool>,
}

/// Values of terms: of the atoms, and of what they decide.
#[derive(Default)]
pub(super) struct Values(Vec<Option<i64>>);

impl Values {
    pub fn get(&self, id: TermId) -> Option<i64> {
        self.0.get(id.0 as usize).copied().flatten()
    }
}

/// Where the indices of loops and received scalars have values.
pub(super) trait Place {
    fn index(&self, region: RegionId) -> Option<i64>;
    /// The value of an atom that depends on slots.
    fn received(&mut self, term: TermId) -> Option<i64>;
}

/// Outside of roles.
pub(super) struct Nowhere;

impl Place for Nowhere {
    fn index(&self, _: RegionId) -> Option<i64> {
        None
    }

    fn received(&mut self, _: TermId) -> Option<i64> {
        None
    }
}

impl<'k> Terms<'k> {
    pub fn new(kernel: &'k Kernel, roles: &[RegionId]) -> Terms<'k> {
        let mut terms = Terms {
            kernel,
            list: Vec::new(),
            about: Vec::new(),
            known: HashMap::new(),
            values: HashMap::new(),
            inside: vec![false; kernel.body.values.len()],
        };
        roles.iter().for_each(|&region| terms.mark(region));
        terms
    }

    fn mark(&mut self, region: RegionId) {
        use cranelift_entity::EntityRef;
        let body = &self.kernel.body;
        for v in &body.regions[region].args {
            self.inside[v.index()] = true;
        }
        for &op in &body.regions[region].ops {
            for v in &body.ops[op].results {
                self.inside[v.index()] = true;
            }
            for &inner in &body.ops[op].regions {
                self.mark(inner);
            }
        }
    }

    pub fn term(&self, id: TermId) -> &Term {
        &self.list[id.0 as usize]
    }

    pub fn about(&self, id: TermId) -> &About {
        &self.about[id.0 as usize]
    }

    /// Whether it is given a value, and not computed.
    pub fn is_atom(&self, id: TermId) -> bool {
        match self.term(id) {
            Term::Leaf(Leaf::Index(_)) => false,
            Term::Leaf(_) => true,
            // Of several, a quotient is as free as they are.
            Term::Div(of, _) | Term::Rem(of, _) => {
                let about = self.about(*of);
                let plain = match self.term(*of) {
                    Term::Sum(_, parts) => matches!(parts[..], [(one, _)] if self.is_leaf(one)),
                    _ => self.is_leaf(*of),
                };
                !plain || !about.got.is_empty()
            }
            _ => false,
        }
    }

    fn is_leaf(&self, id: TermId) -> bool {
        matches!(self.term(id), Term::Leaf(leaf) if !matches!(leaf, Leaf::Index(_)))
    }

    fn intern(&mut self, term: Term) -> TermId {
        if let Some(&id) = self.known.get(&term) {
            return id;
        }
        let id = TermId(self.list.len() as u32);
        let mut about = About::default();
        for child in children(&term) {
            let of = &self.about[child.0 as usize];
            about.indices.extend(&of.indices);
            about.axes |= of.axes;
            about.atoms.extend(&of.atoms);
            for v in &of.got {
                if !about.got.contains(v) {
                    about.got.push(*v);
                }
            }
        }
        match &term {
            Term::Leaf(Leaf::Index(region)) => {
                about.indices.insert(*region);
            }
            Term::Leaf(Leaf::Got(v)) => about.got.push(*v),
            Term::Leaf(Leaf::Grid(axis)) => about.axes |= 1 << axis,
            _ => {}
        }
        self.list.push(term.clone());
        self.about.push(about);
        self.known.insert(term, id);
        if self.is_atom(id) {
            let about = &mut self.about[id.0 as usize];
            about.atoms.clear();
            if about.got.is_empty() && about.indices.is_empty() {
                about.atoms.insert(id);
            }
        }
        id
    }

    // Making terms.

    pub fn int(&mut self, value: i64) -> TermId {
        self.intern(Term::Sum(value, Vec::new()))
    }

    pub fn as_int(&self, id: TermId) -> Option<i64> {
        match self.term(id) {
            Term::Sum(value, parts) if parts.is_empty() => Some(*value),
            _ => None,
        }
    }

    /// `constant` and factors of terms.
    fn parts(&self, id: TermId) -> (i64, Vec<(TermId, i64)>) {
        match self.term(id) {
            Term::Sum(constant, parts) => (*constant, parts.clone()),
            _ => (0, vec![(id, 1)]),
        }
    }

    /// `a + factor · b`
    pub fn add(&mut self, a: TermId, b: TermId, factor: i64) -> TermId {
        let (mut constant, parts) = self.parts(a);
        let (other, more) = self.parts(b);
        constant = constant.saturating_add(other.saturating_mul(factor));
        let mut sum: Vec<(TermId, i64)> = parts;
        for (term, by) in more {
            let by = by.saturating_mul(factor);
            match sum.iter_mut().find(|(t, _)| *t == term) {
                Some((_, f)) => *f = f.saturating_add(by),
                None => sum.push((term, by)),
            }
        }
        sum.retain(|(_, f)| *f != 0);
        sum.sort_unstable();
        if let ([(one, 1)], 0) = (&sum[..], constant) {
            return *one;
        }
        self.intern(Term::Sum(constant, sum))
    }

    fn opaque(&mut self, what: String, operands: Vec<TermId>) -> TermId {
        self.intern(Term::Leaf(Leaf::Opaque(what, operands)))
    }

    fn compare(&mut self, op: CompareOp, a: TermId, b: TermId) -> TermId {
        let difference = self.add(a, b, -1);
        match self.as_int(difference) {
            Some(value) => self.int(holds(op, value).into()),
            None => self.intern(Term::Compare(op, difference)),
        }
    }

    fn binary(&mut self, op: BinaryOp, a: TermId, b: TermId, truth: bool) -> TermId {
        let (x, y) = (self.as_int(a), self.as_int(b));
        match (op, x, y) {
            (BinaryOp::Add, ..) => self.add(a, b, 1),
            (BinaryOp::Sub, ..) => self.add(a, b, -1),
            (BinaryOp::Mul, Some(factor), _) => {
                let zero = self.int(0);
                self.add(zero, b, factor)
            }
            (BinaryOp::Mul, _, Some(factor)) => {
                let zero = self.int(0);
                self.add(zero, a, factor)
            }
            (BinaryOp::Div, Some(x), Some(y)) if y > 0 => self.int(x.div_euclid(y)),
            (BinaryOp::Rem, Some(x), Some(y)) if y > 0 => self.int(x.rem_euclid(y)),
            (BinaryOp::Div, _, Some(1)) => a,
            (BinaryOp::Div, _, Some(by)) if by > 0 => self.intern(Term::Div(a, by)),
            (BinaryOp::Rem, _, Some(by)) if by > 0 => self.intern(Term::Rem(a, by)),
            (BinaryOp::Min, Some(x), Some(y)) => self.int(x.min(y)),
            (BinaryOp::Max, Some(x), Some(y)) => self.int(x.max(y)),
            (BinaryOp::Min | BinaryOp::Max, ..) if a == b => a,
            (BinaryOp::Min, ..) => self.intern(Term::Min(a.min(b), a.max(b))),
            (BinaryOp::Max, ..) => self.intern(Term::Max(a.min(b), a.max(b))),
            (BinaryOp::And, Some(value), _) if truth => self.either(value != 0, b, 0),
            (BinaryOp::And, _, Some(value)) if truth => self.either(value != 0, a, 0),
            (BinaryOp::Or, Some(value), _) if truth => self.either(value == 0, b, 1),
            (BinaryOp::Or, _, Some(value)) if truth => self.either(value == 0, a, 1),
            (BinaryOp::And, ..) if truth => self.intern(Term::And(a, b)),
            (BinaryOp::Or, ..) if truth => self.intern(Term::Or(a, b)),
            _ => self.opaque(format!("{op:?}"), vec![a, b]),
        }
    }

    fn either(&mut self, one: bool, term: TermId, other: i64) -> TermId {
        match one {
            true => term,
            false => self.int(other),
        }
    }

    fn not(&mut self, a: TermId) -> TermId {
        match (self.as_int(a), self.term(a).clone()) {
            (Some(value), _) => self.int((value == 0).into()),
            (_, Term::Not(inner)) => inner,
            _ => self.intern(Term::Not(a)),
        }
    }

    /// The term of a value; an error if control may not depend on it.
    pub fn of(&mut self, value: ValueId) -> Result<TermId, Unfit> {
        if let Some(known) = self.values.get(&value) {
            return known.clone();
        }
        let made = self.make(value);
        self.values.insert(value, made.clone());
        made
    }

    fn is_inside(&self, value: ValueId) -> bool {
        use cranelift_entity::EntityRef;
        self.inside[value.index()]
    }

    fn make(&mut self, value: ValueId) -> Result<TermId, Unfit> {
        let kernel = self.kernel;
        let body = &kernel.body;
        let inside = self.is_inside(value);
        let (id, place) = match body.values[value].def {
            ValueDef::Argument { region, index } => {
                let indexes = body.ops.values().find(|op| op.regions.contains(&region));
                let (Some(op), true) = (indexes, inside) else {
                    return Ok(self.intern(Term::Leaf(Leaf::Value(value))));
                };
                return match op.kind {
                    OpKind::For { .. } if index == 0 => {
                        Ok(self.intern(Term::Leaf(Leaf::Index(region))))
                    }
                    _ => Err(Unfit {
                        span: op.span,
                        why: "it is carried by a loop of this role",
                    }),
                };
            }
            ValueDef::Result { op, index } => (op, index),
        };
        let op = &body.ops[id];
        let unfit = |why| {
            let span = op.span;
            Err(Unfit { span, why })
        };
        let ty = body.ty(value).clone();
        match &op.kind {
            OpKind::Constant(Constant::Int(v, _)) => return Ok(self.int(*v)),
            OpKind::Constant(Constant::Bool(v)) => return Ok(self.int((*v).into())),
            OpKind::Dim(i) => return Ok(self.intern(Term::Leaf(Leaf::Dim(*i)))),
            OpKind::Param(i) => return Ok(self.intern(Term::Leaf(Leaf::Param(*i)))),
            OpKind::GridIndex(i) => return Ok(self.intern(Term::Leaf(Leaf::Grid(*i)))),
            OpKind::Role(RoleOp::Get { .. }) => {
                return Ok(self.intern(Term::Leaf(Leaf::Got(value))));
            }
            OpKind::Role(RoleOp::Mma | RoleOp::Await { .. }) => {
                return unfit("it comes from a product");
            }
            OpKind::Role(_) => return unfit("it is computed in this role"),
            OpKind::Load { .. } if inside => return unfit("it is loaded inside of this role"),
            OpKind::Atomic { .. } | OpKind::Arrive { .. } if inside => {
                return unfit("it comes from memory, inside of this role");
            }
            OpKind::For { .. } | OpKind::While if inside => {
                return unfit("it is computed by a loop of this role");
            }
            OpKind::If => {
                let cond = op.operands[0];
                let yields: Vec<Option<ValueId>> = op
                    .regions
                    .iter()
                    .map(|&r| {
                        let last = body.regions[r].ops.last()?;
                        body.ops[*last].operands.get(place as usize).copied()
                    })
                    .collect();
                if let ([Some(a), Some(b)], true) = (&yields[..], matches!(ty, Type::Scalar(_))) {
                    let cond = self.of(cond)?;
                    let (a, b) = (self.of(*a)?, self.of(*b)?);
                    return Ok(match self.as_int(cond) {
                        Some(value) => self.either_term(value != 0, a, b),
                        None if a == b => a,
                        None => self.intern(Term::Select(cond, a, b)),
                    });
                }
                return match inside {
                    true => unfit("it is computed in a branch of this role"),
                    false => Ok(self.intern(Term::Leaf(Leaf::Value(value)))),
                };
            }
            _ => {}
        }
        if !op.regions.is_empty()
            || matches!(
                op.kind,
                OpKind::Atomic { .. } | OpKind::Arrive { .. } | OpKind::ClusterReduce { .. }
            )
        {
            return match inside {
                true => unfit("it is computed in this role"),
                false => Ok(self.intern(Term::Leaf(Leaf::Value(value)))),
            };
        }
        let mut operands = Vec::new();
        for &operand in &op.operands {
            operands.push(self.of(operand)?);
        }
        let integer = |t: &Type| matches!(t, Type::Scalar(e) if !e.is_float());
        let plain = integer(&ty) && op.operands.iter().all(|v| integer(body.ty(*v)));
        let truth = matches!(ty, Type::Scalar(DType::Bool));
        Ok(match (&op.kind, &operands[..]) {
            (OpKind::Binary(kind), &[a, b]) if plain => self.binary(*kind, a, b, truth),
            (OpKind::Compare(kind), &[a, b]) if plain => self.compare(*kind, a, b),
            (OpKind::Unary(UnaryOp::Neg), &[a]) if plain => {
                let zero = self.int(0);
                self.add(zero, a, -1)
            }
            (OpKind::Unary(UnaryOp::Not), &[a]) if plain && truth => self.not(a),
            (OpKind::Select, &[c, a, b]) if plain => match self.as_int(c) {
                Some(value) => self.either_term(value != 0, a, b),
                None => self.intern(Term::Select(c, a, b)),
            },
            (OpKind::Cast, &[a]) if plain && !truth => a,
            (kind, _) => {
                let what = match op.results.len() {
                    1 => format!("{kind:?} {ty:?}"),
                    _ => format!("{kind:?} {ty:?} {place}"),
                };
                self.opaque(what, operands)
            }
        })
    }

    fn either_term(&mut self, one: bool, a: TermId, b: TermId) -> TermId {
        match one {
            true => a,
            false => b,
        }
    }

    /// The same term over places of payloads, whoever got them.
    pub fn canonical(&mut self, id: TermId) -> TermId {
        if self.about(id).got.is_empty() {
            return id;
        }
        match self.term(id).clone() {
            Term::Leaf(Leaf::Got(value)) => {
                let body = &self.kernel.body;
                let ValueDef::Result { op, index } = body.values[value].def else {
                    return id;
                };
                match body.ops[op].kind {
                    OpKind::Role(RoleOp::Get { channel }) => {
                        self.intern(Term::Leaf(Leaf::Payload(channel, index)))
                    }
                    _ => id,
                }
            }
            term => {
                let inner: Vec<TermId> = children(&term)
                    .into_iter()
                    .map(|c| self.canonical(c))
                    .collect();
                let term = with_children(term, &inner);
                self.intern(term)
            }
        }
    }

    /// What a launch may rely on, as a term; nothing if it is not about dimensions and scalars.
    pub fn fact(&mut self, fact: &Fact) -> Option<TermId> {
        let Fact::Holds(formula) = fact else {
            return None;
        };
        let mut stack: Vec<TermId> = Vec::new();
        for step in &formula.0 {
            let term = match *step {
                Step::Int(value) => self.int(value),
                Step::Dim(i) => self.intern(Term::Leaf(Leaf::Dim(i))),
                Step::Scalar(i) => self.intern(Term::Leaf(Leaf::Param(i))),
                Step::Given(_) | Step::Multiprocessors => return None,
                Step::Op(op) if op.arity() == 1 => {
                    let a = stack.pop()?;
                    let zero = self.int(0);
                    match op {
                        FormulaOp::Neg => self.add(zero, a, -1),
                        _ => self.not(a),
                    }
                }
                Step::Op(op) => {
                    let b = stack.pop()?;
                    let a = stack.pop()?;
                    match op {
                        FormulaOp::Add => self.add(a, b, 1),
                        FormulaOp::Sub => self.add(a, b, -1),
                        FormulaOp::Mul => self.binary(BinaryOp::Mul, a, b, false),
                        FormulaOp::Div => self.binary(BinaryOp::Div, a, b, false),
                        FormulaOp::Rem => self.binary(BinaryOp::Rem, a, b, false),
                        FormulaOp::CeilDiv | FormulaOp::RoundUp => {
                            let by = self.as_int(b).filter(|by| *by > 0)?;
                            let most = self.int(by - 1);
                            let sum = self.add(a, most, 1);
                            let quotient = self.binary(BinaryOp::Div, sum, b, false);
                            match op {
                                FormulaOp::CeilDiv => quotient,
                                _ => self.binary(BinaryOp::Mul, quotient, b, false),
                            }
                        }
                        FormulaOp::Min => self.binary(BinaryOp::Min, a, b, false),
                        FormulaOp::Max => self.binary(BinaryOp::Max, a, b, false),
                        FormulaOp::And => self.binary(BinaryOp::And, a, b, true),
                        FormulaOp::Or => self.binary(BinaryOp::Or, a, b, true),
                        FormulaOp::Eq => self.compare(CompareOp::Eq, a, b),
                        FormulaOp::Ne => self.compare(CompareOp::Ne, a, b),
                        FormulaOp::Lt => self.compare(CompareOp::Lt, a, b),
                        FormulaOp::Le => self.compare(CompareOp::Le, a, b),
                        FormulaOp::Gt => self.compare(CompareOp::Gt, a, b),
                        FormulaOp::Ge => self.compare(CompareOp::Ge, a, b),
                        FormulaOp::Neg | FormulaOp::Not => return None,
                    }
                }
            };
            stack.push(term);
        }
        match stack[..] {
            [one] => Some(one),
            _ => None,
        }
    }

    // Values.

    /// The value of a term; `None` if an atom of it has none.
    pub fn eval(&self, id: TermId, values: &Values, place: &mut dyn Place) -> Option<i64> {
        if let Some(value) = values.get(id) {
            return Some(value);
        }
        if self.is_atom(id) {
            return match self.about(id).got.is_empty() {
                true => None,
                false => place.received(id),
            };
        }
        if let Term::Leaf(Leaf::Index(region)) = self.term(id) {
            return place.index(*region);
        }
        self.computed(id, &mut |t| self.eval(t, values, place))
    }

    /// The value of a term that is no leaf, from those that it is made of.
    fn computed(&self, id: TermId, value: &mut dyn FnMut(TermId) -> Option<i64>) -> Option<i64> {
        Some(match self.term(id) {
            Term::Sum(constant, parts) => {
                let mut sum = *constant;
                for (term, factor) in parts {
                    sum = sum.saturating_add(value(*term)?.saturating_mul(*factor));
                }
                sum
            }
            Term::Min(a, b) => value(*a)?.min(value(*b)?),
            Term::Max(a, b) => value(*a)?.max(value(*b)?),
            Term::Div(a, by) => value(*a)?.div_euclid(*by),
            Term::Rem(a, by) => value(*a)?.rem_euclid(*by),
            Term::Select(c, a, b) => match value(*c)? {
                0 => value(*b)?,
                _ => value(*a)?,
            },
            Term::Compare(op, a) => holds(*op, value(*a)?).into(),
            Term::And(a, b) => (value(*a)? != 0 && value(*b)? != 0).into(),
            Term::Or(a, b) => (value(*a)? != 0 || value(*b)? != 0).into(),
            Term::Not(a) => (value(*a)? == 0).into(),
            Term::Leaf(_) => return None,
        })
    }

    /// The values of terms over atoms only, by term, given those of the atoms. `order` has what a term is made of before it.
    pub fn values(&self, order: &[TermId], atoms: &[(TermId, i64)], out: &mut Values) {
        out.0.clear();
        out.0.resize(self.list.len(), None);
        for &(atom, value) in atoms {
            out.0[atom.0 as usize] = Some(value);
        }
        for &id in order {
            let at = id.0 as usize;
            if out.0[at].is_none() {
                out.0[at] = self.computed(id, &mut |t| out.get(t));
            }
        }
    }

    /// Whether the value is never below 0, as far as the form shows.
    pub fn not_negative(&self, id: TermId) -> bool {
        match self.term(id) {
            Term::Sum(constant, parts) => {
                *constant >= 0 && parts.iter().all(|(t, f)| *f > 0 && self.not_negative(*t))
            }
            Term::Min(a, b) => self.not_negative(*a) && self.not_negative(*b),
            Term::Max(a, b) => self.not_negative(*a) || self.not_negative(*b),
            Term::Div(a, _) => self.not_negative(*a),
            Term::Rem(..) => true,
            Term::Select(_, a, b) => self.not_negative(*a) && self.not_negative(*b),
            Term::Compare(..) | Term::And(..) | Term::Or(..) | Term::Not(_) => true,
            Term::Leaf(Leaf::Dim(_) | Leaf::Grid(_)) => true,
            Term::Leaf(_) => self.is_truth(id),
        }
    }

    /// Whether it is 0 or 1.
    pub fn is_truth(&self, id: TermId) -> bool {
        match self.term(id) {
            Term::Leaf(Leaf::Opaque(what, _)) => what.contains("Scalar(Bool)"),
            Term::Leaf(Leaf::Value(v)) => {
                matches!(self.kernel.body.ty(*v), Type::Scalar(DType::Bool))
            }
            Term::Compare(..) | Term::And(..) | Term::Or(..) | Term::Not(_) => true,
            _ => false,
        }
    }

    /// All terms that a term is made of, with it.
    pub fn within(&self, id: TermId, out: &mut BTreeSet<TermId>) {
        if !out.insert(id) || self.is_atom(id) {
            return;
        }
        for child in children(self.term(id)) {
            self.within(child, out);
        }
    }

    // Names.

    /// As an author would write it, where it has a name.
    pub fn show(&self, id: TermId) -> Option<String> {
        let header = &self.kernel.header;
        let show = |id: &TermId| self.show(*id);
        Some(match self.term(id) {
            Term::Sum(constant, parts) => {
                let mut out = String::new();
                for (i, (term, factor)) in parts.iter().enumerate() {
                    let text = show(term)?;
                    let sign = match (i, *factor < 0) {
                        (0, true) => "-",
                        (0, false) => "",
                        (_, true) => " - ",
                        (_, false) => " + ",
                    };
                    out.push_str(sign);
                    if factor.abs() != 1 {
                        out.push_str(&format!("{} * ", factor.abs()));
                    }
                    out.push_str(&text);
                }
                match (out.is_empty(), *constant) {
                    (true, c) => out = c.to_string(),
                    (_, 0) => {}
                    (_, c) if c < 0 => out.push_str(&format!(" - {}", c.unsigned_abs())),
                    (_, c) => out.push_str(&format!(" + {c}")),
                }
                out
            }
            Term::Min(a, b) => format!("min({}, {})", show(a)?, show(b)?),
            Term::Max(a, b) => format!("max({}, {})", show(a)?, show(b)?),
            Term::Div(a, by) => {
                let (constant, parts) = self.parts(*a);
                let single = |parts: &[(TermId, i64)]| matches!(parts, [(_, 1)]);
                if constant == by - 1 {
                    let mut out = String::new();
                    for (i, (term, factor)) in parts.iter().enumerate() {
                        let text = show(term)?;
                        let sign = match (i, *factor < 0) {
                            (0, true) => "-",
                            (0, false) => "",
                            (_, true) => " - ",
                            (_, false) => " + ",
                        };
                        out.push_str(sign);
                        if factor.abs() != 1 {
                            out.push_str(&format!("{} * ", factor.abs()));
                        }
                        out.push_str(&text);
                    }
                    format!("ceil_div({out}, {by})")
                } else if constant == 0 && single(&parts) {
                    format!("{} / {by}", show(a)?)
                } else {
                    format!("({}) / {by}", show(a)?)
                }
            }
            Term::Rem(a, by) => format!("({}) % {by}", show(a)?),
            Term::Leaf(Leaf::Dim(i)) => header.signature.dims.get(*i as usize)?.to_string(),
            Term::Leaf(Leaf::Param(i)) => header.signature.params.get(*i as usize)?.name.clone(),
            Term::Leaf(Leaf::Grid(i)) => header.axes.get(*i as usize)?.name.clone(),
            Term::Leaf(Leaf::Opaque(what, operands)) if what.starts_with("Load") => {
                let indices: Vec<String> = operands
                    .get(1..operands.len().checked_sub(1)?)?
                    .iter()
                    .map(show)
                    .collect::<Option<_>>()?;
                format!("{}[{}]", show(operands.first()?)?, indices.join(", "))
            }
            _ => return None,
        })
    }
}

/// Whether `value op 0`.
pub(super) fn holds(op: CompareOp, value: i64) -> bool {
    match op {
        CompareOp::Eq => value == 0,
        CompareOp::Ne => value != 0,
        CompareOp::Lt => value < 0,
        CompareOp::Le => value <= 0,
        CompareOp::Gt => value > 0,
        CompareOp::Ge => value >= 0,
    }
}

fn children(term: &Term) -> Vec<TermId> {
    match term {
        Term::Sum(_, parts) => parts.iter().map(|(t, _)| *t).collect(),
        Term::Min(a, b) | Term::Max(a, b) | Term::And(a, b) | Term::Or(a, b) => vec![*a, *b],
        Term::Div(a, _) | Term::Rem(a, _) | Term::Compare(_, a) | Term::Not(a) => vec![*a],
        Term::Select(c, a, b) => vec![*c, *a, *b],
        Term::Leaf(Leaf::Opaque(_, operands)) => operands.clone(),
        Term::Leaf(_) => Vec::new(),
    }
}

fn with_children(term: Term, to: &[TermId]) -> Term {
    match (term, to) {
        (Term::Sum(constant, parts), _) => {
            let mut parts: Vec<(TermId, i64)> =
                parts.iter().zip(to).map(|((_, f), t)| (*t, *f)).collect();
            parts.sort_unstable();
            Term::Sum(constant, parts)
        }
        (Term::Min(..), &[a, b]) => Term::Min(a, b),
        (Term::Max(..), &[a, b]) => Term::Max(a, b),
        (Term::And(..), &[a, b]) => Term::And(a, b),
        (Term::Or(..), &[a, b]) => Term::Or(a, b),
        (Term::Div(_, by), &[a]) => Term::Div(a, by),
        (Term::Rem(_, by), &[a]) => Term::Rem(a, by),
        (Term::Compare(op, _), &[a]) => Term::Compare(op, a),
        (Term::Not(_), &[a]) => Term::Not(a),
        (Term::Select(..), &[c, a, b]) => Term::Select(c, a, b),
        (Term::Leaf(Leaf::Opaque(what, _)), _) => Term::Leaf(Leaf::Opaque(what, to.to_vec())),
        (term, _) => term,
    }
}
