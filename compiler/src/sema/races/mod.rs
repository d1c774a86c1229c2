//! The race check: blocks run in any order, so what one stores no other may touch in the same launch.
//!
//! It works on emitted tile IR, where functions are inlined and names gone. [`forms`] makes scalars sums of grid indices
//! and opaque terms; [`proof`] shows of two accesses that they touch nothing in common when two blocks do them. What is
//! not proven by its steps is an error; there is no search beyond them. Loops are no obstacle: an equation holds between
//! the values that terms have when the two accesses run, in whichever iterations.

mod forms;
mod proof;
mod roles;
mod words;

use std::collections::{BTreeSet, HashMap};

use tesserine_set::ParamKind;

use crate::{
    diagnostics::Diagnostic,
    ir::{
        OpId, RegionId, ValueId,
        tile::{
            AtomicOp, BinaryOp, CompareOp, Index, Kernel, OpKind, PutSource, RoleHead, RoleOp,
            Type, UnaryOp,
        },
    },
    sema::{
        value::Num,
        views::{Ix, Logical},
    },
    span::Span,
};
use forms::{Form, Forms, Inside};
use proof::Facts;

/// Every store, and every load of a stored view, that is not proven apart from those of other blocks.
/// `logical`: of accesses by index tiles, which elements of what view they are.
pub(crate) fn check(kernel: &Kernel, logical: &HashMap<OpId, Logical>) -> Vec<Diagnostic> {
    let mut checker = Checker {
        logical,
        forms: Forms::new(kernel),
        accesses: Vec::new(),
        role: None,
        heads: Vec::new(),
    };
    checker.region(None, kernel.body.root, &Context::default());
    let header = &kernel.header;
    let forms = &mut checker.forms;
    let axes = (0..header.axes.len())
        .map(|i| {
            let extent = &header.axes[i].extent;
            (forms.grid(i as u32), forms.formula(extent))
        })
        .collect();
    let extents = header.signature.params.iter().map(|p| match &p.kind {
        ParamKind::View(view) => view.extents.iter().map(|e| forms.formula(e)).collect(),
        ParamKind::Scalar { .. } => Vec::new(),
    });
    let facts = Facts {
        axes,
        extents: extents.collect(),
    };
    match checker.heads.is_empty() {
        true => checker.judge(&facts),
        // Reads of stored views are an error whatever they are apart from.
        false => {
            let mut out = checker.judge_roles();
            if out.is_empty() {
                out = checker.judge(&facts);
            }
            out
        }
    }
}

/// Whether results depend on the order of blocks: a float is added up, or an old value used, by an atomic operation.
pub(crate) fn is_unordered(kernel: &Kernel) -> bool {
    let body = &kernel.body;
    let users = |value: ValueId| {
        body.ops
            .values()
            .filter(move |op| op.operands.contains(&value))
    };
    // A scalar is widened whether or not it is used.
    let is_used = |value: ValueId| {
        users(value).any(|op| op.kind != OpKind::Cast || users(op.results[0]).next().is_some())
    };
    body.ops.values().any(|op| match op.kind {
        OpKind::Atomic { op: atomic, .. } => {
            let float = body.ty(op.results[0]).elem().is_float();
            float || atomic == AtomicOp::Cas || is_used(op.results[0])
        }
        _ => false,
    })
}

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Load,
    Store,
    /// A store that its author promises to be apart from all others.
    Scatter,
    Atomic,
    Arrive,
}

/// One dimension of an access.
#[derive(Clone, Debug)]
struct Dim {
    /// Where it starts; `None`: wherever an index tile says.
    start: Option<Form>,
    /// How many elements from there.
    extent: i64,
    /// Nothing below is touched.
    from: Option<Form>,
    /// Nothing from here on is touched.
    until: Option<Form>,
}

impl Dim {
    /// In bits, where elements have `bits` of them.
    fn in_bits(&self, bits: u32) -> Option<Dim> {
        let times = |form: &Form| Form::default().plus(form, i64::from(bits));
        Some(Dim {
            start: Some(times(self.start.as_ref()?)?),
            extent: self.extent.checked_mul(i64::from(bits))?,
            from: None,
            until: None,
        })
    }
}

/// The `true` side of an `arrive`.
#[derive(Clone, Debug)]
struct Arrival {
    op: OpId,
    /// Its place in the order of the program.
    place: usize,
    indices: Vec<Form>,
}

/// What holds at a place.
#[derive(Clone, Default)]
struct Context {
    /// Sums that are 0.
    guards: Vec<Form>,
    arrivals: Vec<Arrival>,
}

#[derive(Clone)]
struct Access {
    param: u32,
    kind: Kind,
    op: OpId,
    span: Span,
    /// The role that does it, by its place.
    role: Option<usize>,
    /// In the order of the program.
    place: usize,
    /// Of an element, as it is accessed.
    bits: u32,
    dims: Vec<Dim>,
    /// The same in a view of the parameter, in which elements with different indices are different ones.
    logical: Option<(String, Vec<Dim>)>,
    guards: Vec<Form>,
    arrivals: Vec<Arrival>,
}

impl Access {
    /// Widens `self` so that it covers `other` too, which differs in constants only; `false` if that leaves 64 bits.
    fn cover(&mut self, other: &Access) -> bool {
        let mut dims = self.dims.clone();
        for (dim, with) in dims.iter_mut().zip(&other.dims) {
            let (Some(start), Some(with_start)) = (&mut dim.start, &with.start) else {
                continue;
            };
            let ends = (
                start.constant.checked_add(dim.extent),
                with_start.constant.checked_add(with.extent),
            );
            let (Some(x), Some(y)) = ends else {
                return false;
            };
            start.constant = start.constant.min(with_start.constant);
            match x.max(y).checked_sub(start.constant) {
                Some(extent) => dim.extent = extent,
                None => return false,
            }
        }
        self.dims = dims;
        self.place = self.place.max(other.place);
        true
    }

    /// What covers `self` and `other`, whatever they are.
    fn or(mut self, other: &Access) -> Access {
        let alike = |a: &Dim, b: &Dim| {
            let terms = |d: &Dim| d.start.as_ref().map(|s| s.terms.clone());
            terms(a) == terms(b) && a.from == b.from && a.until == b.until
        };
        let pairs = || self.dims.iter().zip(&other.dims);
        let alike: Vec<bool> = pairs().map(|(a, b)| alike(a, b)).collect();
        let same_memory = self.bits == other.bits && self.cover(other);
        for (dim, alike) in self.dims.iter_mut().zip(alike) {
            if !alike || !same_memory {
                *dim = Dim {
                    start: None,
                    extent: 1,
                    from: None,
                    until: None,
                };
            }
        }
        if format!("{:?}", self.logical) != format!("{:?}", other.logical) {
            self.logical = None;
        }
        self.guards.retain(|g| other.guards.contains(g));
        self.arrivals
            .retain(|a| other.arrivals.iter().any(|b| a.op == b.op));
        self
    }

    /// Whether an index tile may name an element twice.
    fn may_repeat(&self) -> bool {
        let by_tile = |dims: &[Dim]| dims.iter().any(|d| d.start.is_none());
        by_tile(&self.dims) && self.logical.as_ref().is_none_or(|(_, dims)| by_tile(dims))
    }

    /// Whether two blocks may do one and the other on one element, so that it must be shown that they do not.
    fn conflicts(&self, other: &Access) -> bool {
        match (self.kind, other.kind) {
            (Kind::Load, Kind::Load) | (Kind::Atomic, Kind::Atomic) => false,
            (Kind::Arrive, Kind::Arrive) => false,
            // The author's promise.
            (Kind::Scatter, Kind::Scatter | Kind::Store) | (Kind::Store, Kind::Scatter) => false,
            (Kind::Load, _) => !self.sees(other),
            (_, Kind::Load) => !other.sees(self),
            _ => true,
        }
    }

    /// Whether `self` stands inside an `arrive` that `other` comes before: the last block to arrive sees what the others
    /// did before they arrived.
    fn sees(&self, other: &Access) -> bool {
        self.arrivals.iter().any(|a| other.place < a.place)
    }
}

struct Checker<'k> {
    logical: &'k HashMap<OpId, Logical>,
    forms: Forms<'k>,
    accesses: Vec<Access>,
    /// The role that is being walked.
    role: Option<usize>,
    /// The roles that have been met, each with the operation that holds them.
    heads: Vec<(RoleHead, OpId)>,
}

impl Checker<'_> {
    fn region(&mut self, owner: Option<OpId>, region: RegionId, context: &Context) {
        let body = &self.forms.kernel.body;
        self.forms.enter(owner, region);
        for &op in &body.regions[region].ops {
            let data = &body.ops[op];
            match &data.kind {
                OpKind::Load { indices, .. } if self.forms.is_stored(data.operands[0]) => {
                    self.access(op, indices, Kind::Load, context)
                }
                OpKind::Store {
                    indices, scatter, ..
                } => {
                    let kind = if *scatter { Kind::Scatter } else { Kind::Store };
                    self.access(op, indices, kind, context);
                }
                OpKind::Atomic { indices, .. } => self.access(op, indices, Kind::Atomic, context),
                OpKind::Arrive { indices } => self.access(op, indices, Kind::Arrive, context),
                OpKind::If => {
                    let (mut yes, mut no) = (context.clone(), context.clone());
                    self.condition(data.operands[0], true, &mut yes);
                    self.condition(data.operands[0], false, &mut no);
                    self.region(Some(op), data.regions[0], &yes);
                    self.region(Some(op), data.regions[1], &no);
                }
                OpKind::Role(RoleOp::Roles(heads)) => {
                    let first = self.heads.len();
                    self.heads
                        .extend(heads.iter().map(|head| (head.clone(), op)));
                    for (i, &inner) in data.regions.iter().enumerate() {
                        self.role = Some(first + i);
                        self.region(Some(op), inner, context);
                    }
                    self.role = None;
                }
                OpKind::Role(RoleOp::Put { sources, .. }) => {
                    let mut at = 0;
                    for source in sources {
                        let used = match source {
                            PutSource::Value => 0,
                            PutSource::Slice { indices, .. } => {
                                if self.forms.is_stored(data.operands[at]) {
                                    self.access_at(op, (at, indices), Kind::Load, context);
                                }
                                indices.iter().map(|i| i.operands()).sum()
                            }
                        };
                        at += 1 + used;
                    }
                }
                OpKind::For { .. } | OpKind::While | OpKind::Role(RoleOp::Pingpong) => {
                    for &inner in &data.regions {
                        self.region(Some(op), inner, context);
                    }
                }
                _ => {}
            }
            self.forms.define(op);
        }
    }

    /// What is known where `cond` is `truth`.
    fn condition(&mut self, cond: ValueId, truth: bool, out: &mut Context) {
        let body = &self.forms.kernel.body;
        let Some(op) = body.defining_op(cond) else {
            return;
        };
        let data = &body.ops[op];
        match (&data.kind, truth) {
            (OpKind::Binary(BinaryOp::And), true) | (OpKind::Binary(BinaryOp::Or), false) => {
                self.condition(data.operands[0], truth, out);
                self.condition(data.operands[1], truth, out);
            }
            (OpKind::Unary(UnaryOp::Not), _) => self.condition(data.operands[0], !truth, out),
            (OpKind::Compare(CompareOp::Eq), true) | (OpKind::Compare(CompareOp::Ne), false) => {
                let [a, b] = [data.operands[0], data.operands[1]];
                if matches!(body.ty(a), Type::Scalar(t) if t.is_int()) {
                    let (a, b) = (self.forms.form(a), self.forms.form(b));
                    out.guards.extend(a.plus(&b, -1));
                }
            }
            (OpKind::Arrive { .. }, true) => {
                let place = self.accesses.iter().find(|a| a.op == op);
                let indices = &data.operands[1..data.operands.len() - 1];
                out.arrivals.push(Arrival {
                    op,
                    place: place.map_or(0, |a| a.place),
                    indices: indices.iter().map(|v| self.forms.form(*v)).collect(),
                });
            }
            _ => {}
        }
    }

    fn access(&mut self, op: OpId, indices: &[Index], kind: Kind, context: &Context) {
        self.access_at(op, (0, indices), kind, context);
    }

    /// The access whose view is that operand of `op`.
    fn access_at(
        &mut self,
        op: OpId,
        (at, indices): (usize, &[Index]),
        kind: Kind,
        context: &Context,
    ) {
        let body = &self.forms.kernel.body;
        let data = &body.ops[op];
        let view = data.operands[at];
        let Some(param) = self.forms.param_of(view) else {
            return;
        };
        let mut operands = data.operands[at + 1..].iter();
        let mut dims = Vec::new();
        for &index in indices {
            let mut next = || operands.next().map(|v| self.forms.form(*v));
            let (start, from, until) = match index {
                Index::Whole { .. } => (Some(Form::constant(0)), None, None),
                Index::Scalar => (next(), None, None),
                Index::Gather { .. } => {
                    next();
                    (None, None, None)
                }
                Index::Range { from, until, .. } => {
                    let start = next();
                    let low = if from { next() } else { None };
                    (start, low, if until { next() } else { None })
                }
            };
            let dim = Dim {
                start,
                extent: index.extent().map_or(1, i64::from),
                from,
                until,
            };
            dims.push(match index {
                Index::Scalar => self.chosen(dim),
                _ => dim,
            });
        }
        let logical = self.logical.get(&op).map(|logical| {
            let dims = logical.indices.iter().map(|ix| self.logical_dim(ix));
            (logical.space.clone(), dims.collect())
        });
        self.accesses.push(Access {
            param,
            kind,
            op,
            span: data.span,
            role: self.role,
            place: self.accesses.len(),
            bits: body.ty(view).elem().bits(),
            dims,
            logical,
            guards: context.guards.clone(),
            arrivals: context.arrivals.clone(),
        });
    }

    fn logical_dim(&mut self, ix: &Ix) -> Dim {
        let mut form = |num: Num| match num {
            Num::Int(v) => Form::constant(v),
            Num::Run(id) => self.forms.form(id),
        };
        let dim = |start, extent| Dim {
            start,
            extent,
            from: None,
            until: None,
        };
        match ix {
            Ix::At(num) => {
                let start = form(*num);
                self.chosen(dim(Some(start), 1))
            }
            Ix::Range {
                start,
                len,
                from,
                until,
                ..
            } => Dim {
                from: from.map(&mut form),
                until: until.map(&mut form),
                ..dim(Some(form(*start)), i64::from(*len))
            },
            Ix::Whole { len, .. } => dim(Some(Form::constant(0)), i64::from(*len)),
            Ix::Tile { .. } => dim(None, 1),
        }
    }

    /// An index that may be a negative constant instead, which touches nothing: without that choice, within the limits of
    /// what it goes by. `index = lo + e` where `e >= 0` is not below `lo`; if it wraps around, it is negative.
    fn chosen(&mut self, dim: Dim) -> Dim {
        let Some(start) = &dim.start else {
            return dim;
        };
        let negative = |form: &Form| form.as_constant().is_some_and(|c| c < 0);
        let Some(term) = start.as_term() else {
            return dim;
        };
        let index = match self.forms.inside(term) {
            Inside::Select(x, y) if negative(y) => x.clone(),
            Inside::Select(x, y) if negative(x) => {
                let start = Some(y.clone());
                return self.chosen(Dim { start, ..dim });
            }
            _ => return dim,
        };
        let (mut from, mut until) = (dim.from.clone(), dim.until.clone());
        for (op, x, y) in self.forms.conditions(term) {
            match op {
                CompareOp::Ge if y.as_constant() == Some(0) && from.is_none() => {
                    from = index.plus(&x, -1);
                }
                CompareOp::Lt if x == index && until.is_none() => until = Some(y),
                _ => {}
            }
        }
        self.chosen(Dim {
            start: Some(index),
            from,
            until,
            ..dim
        })
    }

    fn judge(&self, facts: &Facts) -> Vec<Diagnostic> {
        let mut out: Vec<Diagnostic> = Vec::new();
        let params = &self.forms.kernel.header.signature.params;
        for (param, _) in params.iter().enumerate() {
            let accesses = self.accesses.iter().filter(|a| a.param == param as u32);
            let bunches = bunches(accesses);
            let before = out.len();
            for bunch in &bunches {
                if bunch.hull.kind == Kind::Store && bunch.hull.may_repeat() {
                    out.push(self.gathered(bunch.members[0]));
                } else if bunch.hull.conflicts(&bunch.hull)
                    && proof::apart(&self.forms, facts, &bunch.hull, &bunch.hull).is_err()
                {
                    for access in &bunch.members {
                        if let Err(open) = proof::apart(&self.forms, facts, access, access) {
                            out.push(self.not_apart(access, &open));
                        }
                    }
                }
            }
            if out.len() == before {
                self.pairs(facts, &bunches, &mut out);
            }
        }
        out
    }

    /// Each access for itself is apart, or needs not be: are they together?
    fn pairs(&self, facts: &Facts, bunches: &[Bunch<'_>], out: &mut Vec<Diagnostic>) {
        // Mostly there is one way for all, and no need to look at pairs.
        let mut hulls = bunches.iter().map(|b| &b.hull);
        if let Some(first) = hulls.next() {
            let all = hulls.fold(first.clone(), |all, next| all.or(next));
            if bunches.len() > 2 && proof::apart(&self.forms, facts, &all, &all).is_ok() {
                return;
            }
        }
        let mut told: BTreeSet<usize> = BTreeSet::new();
        for (i, one) in bunches.iter().enumerate() {
            for other in &bunches[i..] {
                let (x, y) = (&one.hull, &other.hull);
                if !x.conflicts(y) || proof::apart(&self.forms, facts, x, y).is_ok() {
                    continue;
                }
                for a in &one.members {
                    for b in other
                        .members
                        .iter()
                        .filter(|b| b.place > a.place || !std::ptr::eq(one, other))
                    {
                        let (at, from) = match (a.kind, b.kind) {
                            // A read is what the author can move.
                            (Kind::Load, _) => (a, b),
                            (_, Kind::Load) => (b, a),
                            _ if a.place > b.place => (a, b),
                            _ => (b, a),
                        };
                        if told.contains(&at.place)
                            || !a.conflicts(b)
                            || proof::apart(&self.forms, facts, a, b).is_ok()
                        {
                            continue;
                        }
                        told.insert(at.place);
                        let shared = matches!(from.kind, Kind::Atomic | Kind::Arrive);
                        let alone = match at.kind {
                            Kind::Load if !shared && at.arrivals.is_empty() => {
                                proof::apart(&self.forms, facts, at, at)
                            }
                            _ => Ok(()),
                        };
                        out.push(match alone {
                            Err(open) => self.not_apart(at, &open),
                            Ok(()) => self.not_alike(at, from),
                        });
                    }
                }
            }
        }
    }
}

/// Accesses that differ in constants only, and one that covers them all: what is apart from it is apart from each.
struct Bunch<'a> {
    hull: Access,
    members: Vec<&'a Access>,
}

fn bunches<'a>(accesses: impl Iterator<Item = &'a Access>) -> Vec<Bunch<'a>> {
    let mut out: Vec<Bunch<'a>> = Vec::new();
    let mut by_key: HashMap<String, usize> = HashMap::new();
    for access in accesses {
        let arrivals: Vec<OpId> = access.arrivals.iter().map(|a| a.op).collect();
        let dims: Vec<_> = access
            .dims
            .iter()
            .map(|d| (d.start.as_ref().map(|s| &s.terms), &d.from, &d.until))
            .collect();
        let key = format!(
            "{:?} {} {dims:?} {:?} {:?} {arrivals:?}",
            access.kind, access.bits, access.logical, access.guards
        );
        match by_key.get(&key) {
            Some(&at) if out[at].hull.cover(access) => out[at].members.push(access),
            _ => {
                by_key.insert(key, out.len());
                out.push(Bunch {
                    hull: access.clone(),
                    members: vec![access],
                });
            }
        }
    }
    out
}
