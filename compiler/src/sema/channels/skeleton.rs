//! What a role does with channels, products and turns, and the control around it: a list of steps that can be executed
//! and suspended. All else is dropped.

use std::collections::{BTreeSet, HashMap};

use super::terms::{Leaf, Term, TermId, Terms, Unfit};
use crate::{
    ir::{
        OpId, RegionId, ValueId,
        tile::{ChannelId, Kernel, OpKind, PutSource, RoleHead, RoleOp, TileBody, Type},
    },
    span::Span,
};

/// One step of a role. Targets are indices of steps.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Put {
        channel: ChannelId,
        /// Tiles that are read.
        sources: Vec<ValueId>,
        part: Option<Part>,
        /// The slot that is handed on.
        within: Option<ValueId>,
    },
    Get {
        channel: ChannelId,
        results: Vec<ValueId>,
    },
    Release {
        channel: ChannelId,
        lag: Option<u32>,
    },
    Product {
        reads: Vec<ValueId>,
        result: ValueId,
    },
    Await {
        value: ValueId,
        lag: Option<u32>,
    },
    /// Reads tiles of slots.
    Read(Vec<ValueId>),
    /// Each value is what the others are, at once.
    Move(Vec<(Vec<ValueId>, ValueId)>),
    Branch {
        cond: TermId,
        otherwise: usize,
    },
    Jump(usize),
    Begin(LoopId),
    /// Goes on with the next index, or past the loop.
    Next {
        of: LoopId,
        exit: usize,
    },
    /// Waits for its turn, where the condition holds.
    Enter {
        turn: usize,
        cond: TermId,
    },
    Leave {
        turn: usize,
    },
}

pub(super) type LoopId = usize;

/// A part of a slot.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub start: Vec<TermId>,
    pub shape: Vec<u32>,
}

#[derive(Clone, Debug)]
pub(super) struct Loop {
    pub index: RegionId,
    pub lo: TermId,
    pub hi: TermId,
    pub step: TermId,
    pub rev: bool,
    pub span: Span,
}

pub(super) struct Role {
    pub head: RoleHead,
    pub steps: Vec<Step>,
    pub spans: Vec<Span>,
    pub loops: Vec<Loop>,
    /// Around each step: the loops and conditions, outermost first.
    pub around: Vec<Vec<Around>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Around {
    Loop(LoopId),
    Condition,
}

/// Control that roles cannot share: the operation that it is around, and what it depends on.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    /// The control.
    pub span: Span,
    pub what: &'static str,
    pub role: String,
    /// What stands in it.
    pub around: Span,
    pub around_what: String,
    pub why: Why,
}

#[derive(Clone, Debug)]
pub(super) enum Why {
    Unfit(Unfit),
    /// A loop's index is compared with another thing than the ends.
    Index,
    While,
    /// It differs in the blocks of a cluster, which share a channel.
    Cluster(String),
}

pub(super) struct Skeleton {
    pub roles: Vec<Role>,
    /// Turns: the role's name, and the place in its first replica. Those of all replicas are the same in the order in which they are written,
    /// for replicas may be written apart (`if const`).
    pub turns: Vec<(String, Span)>,
    pub refused: Vec<Refused>,
}

/// Follows tiles of slots and products through a role.
struct Maker<'t, 'k> {
    kernel: &'k Kernel,
    terms: &'t mut Terms<'k>,
    role: Role,
    around: Vec<Around>,
    /// Values that may be tiles of slots, or products.
    held: BTreeSet<ValueId>,
    turns: &'t mut Vec<(String, Span)>,
    /// How many turns this role has taken so far.
    taken: usize,
    refused: &'t mut Vec<Refused>,
    /// Loops' ends, for conditions on their indices.
    conditions: Vec<(Span, TermId, Span, String)>,
}

pub(super) fn extract<'k>(
    kernel: &'k Kernel,
    heads: &[RoleHead],
    regions: &[RegionId],
    terms: &mut Terms<'k>,
) -> Skeleton {
    let (mut roles, mut turns, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    let mut conditions = Vec::new();
    for (head, &region) in heads.iter().zip(regions) {
        let mut maker = Maker {
            kernel,
            terms,
            role: Role {
                head: head.clone(),
                steps: Vec::new(),
                spans: Vec::new(),
                loops: Vec::new(),
                around: Vec::new(),
            },
            around: Vec::new(),
            held: BTreeSet::new(),
            turns: &mut turns,
            taken: 0,
            refused: &mut refused,
            conditions: Vec::new(),
        };
        maker.follow(region);
        maker.region(region);
        let made = std::mem::take(&mut maker.conditions);
        let role = maker.role;
        conditions.extend(made.into_iter().map(|c| (role.head.label(), c)));
        roles.push(role);
    }
    let mut ends = BTreeSet::new();
    for role in &roles {
        ends.extend(role.loops.iter().flat_map(|l| [l.lo, l.hi]));
    }
    for (label, (span, cond, around, around_what)) in conditions {
        if !ends_only(terms, cond, &ends) {
            refused.push(Refused {
                span,
                what: "a condition",
                role: label,
                around,
                around_what,
                why: Why::Index,
            });
        }
    }
    let across = kernel.channels.values().any(|c| c.across.is_some());
    if across {
        in_clusters(kernel, terms, &roles, &mut refused);
    }
    Skeleton {
        roles,
        turns,
        refused,
    }
}

/// Whether the indices of loops stand in `cond` only where they are compared with the end of a loop, ± a constant.
fn ends_only(terms: &mut Terms<'_>, cond: TermId, ends: &BTreeSet<TermId>) -> bool {
    if terms.about(cond).indices.is_empty() {
        return true;
    }
    match terms.term(cond).clone() {
        Term::And(a, b) | Term::Or(a, b) => ends_only(terms, a, ends) && ends_only(terms, b, ends),
        Term::Not(a) => ends_only(terms, a, ends),
        Term::Compare(_, difference) => {
            let Term::Sum(_, parts) = terms.term(difference).clone() else {
                // The index itself, compared with 0.
                return matches!(terms.term(difference), Term::Leaf(Leaf::Index(_)))
                    && ends.iter().any(|&e| terms.as_int(e).is_some());
            };
            let mut indices = parts
                .iter()
                .filter(|(t, _)| matches!(terms.term(*t), Term::Leaf(Leaf::Index(_))));
            let (Some(&(index, factor)), None) = (indices.next(), indices.next()) else {
                return false;
            };
            if factor.abs() != 1 {
                return false;
            }
            let rest = terms.add(difference, index, -factor);
            // factor · index + rest, where rest = −factor · end + constant.
            terms.about(rest).indices.is_empty()
                && ends.iter().any(|&end| {
                    let left = terms.add(rest, end, factor);
                    terms.as_int(left).is_some()
                })
        }
        _ => false,
    }
}

/// Control that differs between the blocks of a cluster, where slots are in all of them.
fn in_clusters(kernel: &Kernel, terms: &Terms<'_>, roles: &[Role], refused: &mut Vec<Refused>) {
    let axes = kernel.header.axes.iter().enumerate();
    let cluster = axes
        .filter(|(_, a)| a.cluster && a.extent.as_int() != Some(1))
        .fold(0u32, |all, (i, _)| all | 1 << i);
    for role in roles {
        for (step, span) in role.steps.iter().zip(&role.spans) {
            let (what, of) = match step {
                Step::Branch { cond, .. } => ("a condition", vec![*cond]),
                Step::Begin(l) => {
                    let l = &role.loops[*l];
                    ("a loop", vec![l.lo, l.hi, l.step])
                }
                _ => continue,
            };
            let varies = of.iter().fold(0, |all, t| all | terms.about(*t).axes) & cluster;
            if varies != 0 {
                let axis = &kernel.header.axes[varies.trailing_zeros() as usize];
                refused.push(Refused {
                    span: *span,
                    what,
                    role: role.head.label(),
                    around: *span,
                    around_what: String::new(),
                    why: Why::Cluster(axis.name.clone()),
                });
            }
        }
    }
}

/// What the check follows, somewhere in a region: a word for it, and where.
fn tracked(body: &TileBody, channels: &Kernel, region: RegionId) -> Option<(String, Span)> {
    for &id in &body.regions[region].ops {
        let op = &body.ops[id];
        let name = |c: ChannelId| &channels.channels[c].name;
        match &op.kind {
            OpKind::Role(RoleOp::Put { channel, .. }) => {
                return Some((format!("`put {}`", name(*channel)), op.span));
            }
            OpKind::Role(RoleOp::Get { channel }) => {
                return Some((format!("`get {}`", name(*channel)), op.span));
            }
            OpKind::Role(RoleOp::Release { channel, .. }) => {
                return Some((format!("`release {}`", name(*channel)), op.span));
            }
            OpKind::Role(RoleOp::Mma) => return Some(("this product".into(), op.span)),
            OpKind::Role(RoleOp::Await { .. }) => return Some(("this `await`".into(), op.span)),
            OpKind::Role(RoleOp::Pingpong) => return Some(("this `pingpong`".into(), op.span)),
            _ => {}
        }
        for &inner in &op.regions {
            if let Some(found) = tracked(body, channels, inner) {
                return Some(found);
            }
        }
    }
    None
}

/// The operands of a region's terminator.
fn yields(body: &TileBody, region: RegionId) -> &[ValueId] {
    let last = body.regions[region].ops.last();
    last.map_or(&[], |&op| &body.ops[op].operands)
}

/// Whether an operation gives other names to the memory of its operand.
fn renames(kind: &OpKind) -> bool {
    matches!(
        kind,
        OpKind::Permute(_) | OpKind::Slice(_) | OpKind::Reshape | OpKind::Broadcast
    )
}

impl<'k> Maker<'_, 'k> {
    /// Finds the values that may be tiles of slots or products.
    fn follow(&mut self, region: RegionId) {
        loop {
            let before = self.held.len();
            self.follow_once(region);
            if self.held.len() == before {
                return;
            }
        }
    }

    fn pass(&mut self, from: &[ValueId], to: &[ValueId]) {
        for (f, t) in from.iter().zip(to) {
            if self.held.contains(f) {
                self.held.insert(*t);
            }
        }
    }

    fn follow_once(&mut self, region: RegionId) {
        let body = &self.kernel.body;
        for &id in &body.regions[region].ops {
            let op = &body.ops[id];
            match &op.kind {
                OpKind::Role(RoleOp::Get { .. } | RoleOp::Mma) => self.held.extend(&op.results),
                kind if renames(kind) => self.pass(&op.operands, &op.results),
                OpKind::If | OpKind::Role(RoleOp::Pingpong) => {
                    for &arm in &op.regions {
                        self.follow_once(arm);
                        self.pass(yields(body, arm), &op.results);
                    }
                }
                OpKind::For { .. } => {
                    let inner = op.regions[0];
                    let args = &body.regions[inner].args[1..];
                    self.pass(&op.operands[3..], args);
                    self.follow_once(inner);
                    self.pass(yields(body, inner), args);
                    self.pass(&op.operands[3..], &op.results);
                    self.pass(yields(body, inner), &op.results);
                }
                OpKind::While => {
                    for &inner in &op.regions {
                        self.pass(&op.operands, &body.regions[inner].args);
                        self.follow_once(inner);
                    }
                    if let &[_, inner] = &op.regions[..] {
                        let from = yields(body, inner);
                        self.pass(from, &op.results);
                        for &r in &op.regions {
                            self.pass(from, &body.regions[r].args);
                        }
                    }
                    self.pass(&op.operands, &op.results);
                }
                _ => {}
            }
        }
    }

    fn step(&mut self, step: Step, span: Span) -> usize {
        self.role.steps.push(step);
        self.role.spans.push(span);
        self.role.around.push(self.around.clone());
        self.role.steps.len() - 1
    }

    /// Those of the values that are followed.
    fn of(&self, values: &[ValueId]) -> Vec<ValueId> {
        values
            .iter()
            .copied()
            .filter(|v| self.held.contains(v))
            .collect()
    }

    fn moves(&mut self, pairs: impl Iterator<Item = (Vec<ValueId>, ValueId)>, span: Span) {
        let mut moves = Vec::new();
        for (from, to) in pairs {
            if self.held.contains(&to) {
                moves.push((self.of(&from), to));
            }
        }
        if !moves.is_empty() {
            self.step(Step::Move(moves), span);
        }
    }

    fn move_all(&mut self, from: &[ValueId], to: &[ValueId], span: Span) {
        let pairs = from.iter().zip(to).map(|(f, t)| (vec![*f], *t));
        self.moves(pairs, span);
    }

    fn refuse(&mut self, span: Span, what: &'static str, around: (String, Span), why: Why) {
        self.refused.push(Refused {
            span,
            what,
            role: self.role.head.label(),
            around: around.1,
            around_what: around.0,
            why,
        });
    }

    /// The term of a condition or bound.
    fn control(
        &mut self,
        value: ValueId,
        span: Span,
        what: &'static str,
        around: &(String, Span),
    ) -> Option<TermId> {
        match self.terms.of(value) {
            Err(unfit) => {
                self.refuse(span, what, around.clone(), Why::Unfit(unfit));
                None
            }
            Ok(term) => {
                let mut parts = BTreeSet::new();
                self.terms.within(term, &mut parts);
                let terms = &self.terms;
                let indexed = |t: &TermId| terms.is_atom(*t) && !terms.about(*t).indices.is_empty();
                if parts.iter().any(indexed) {
                    self.refuse(span, what, around.clone(), Why::Index);
                    return None;
                }
                Some(term)
            }
        }
    }

    fn region(&mut self, region: RegionId) {
        let body = &self.kernel.body;
        for &id in &body.regions[region].ops {
            self.op(id);
        }
    }

    fn op(&mut self, id: OpId) {
        let kernel = self.kernel;
        let body = &kernel.body;
        let op = &body.ops[id];
        let span = op.span;
        match &op.kind {
            OpKind::Role(RoleOp::Put {
                channel,
                sources,
                part,
                within,
            }) => {
                let within = op.operands.last().copied().filter(|_| *within);
                let mut at = 0;
                let mut shape = Vec::new();
                for source in sources {
                    match source {
                        PutSource::Slice { indices, .. } => {
                            at += 1 + indices.iter().map(|i| i.operands()).sum::<usize>();
                            shape = indices.iter().filter_map(|i| i.extent()).collect();
                        }
                        PutSource::Value => {
                            shape = op
                                .operands
                                .get(at)
                                .map_or(shape, |v| body.ty(*v).shape().to_vec());
                            at += 1;
                        }
                    }
                }
                let rank = shape.len();
                let mut start = Vec::new();
                if *part {
                    let around = (String::new(), span);
                    for &v in op.operands.get(at..at + rank).unwrap_or_default() {
                        match self.control(v, span, "where a part begins", &around) {
                            Some(term) => start.push(term),
                            None => return,
                        }
                    }
                }
                let part = part.then_some(Part { start, shape });
                let sources = self.of(&op.operands[..at]);
                let channel = *channel;
                self.step(
                    Step::Put {
                        channel,
                        sources,
                        part,
                        within,
                    },
                    span,
                );
            }
            OpKind::Role(RoleOp::Get { channel }) => {
                let (channel, results) = (*channel, op.results.clone());
                self.step(Step::Get { channel, results }, span);
            }
            OpKind::Role(RoleOp::Release { channel, lag }) => {
                let (channel, lag) = (*channel, *lag);
                self.step(Step::Release { channel, lag }, span);
            }
            OpKind::Role(RoleOp::Mma) => {
                let (reads, result) = (self.of(&op.operands), op.results[0]);
                self.step(Step::Product { reads, result }, span);
            }
            OpKind::Role(RoleOp::Await { lag }) => {
                let (value, lag) = (op.operands[0], *lag);
                self.step(Step::Await { value, lag }, span);
            }
            OpKind::Role(RoleOp::Pingpong) => {
                let around = ("this `pingpong`".to_owned(), span);
                let what = "the condition of a `pingpong`";
                let Some(cond) = self.control(op.operands[0], span, what, &around) else {
                    return;
                };
                self.conditions.push((span, cond, around.1, around.0));
                let name = &self.role.head.name;
                let named = self
                    .turns
                    .iter()
                    .enumerate()
                    .filter(|(_, (n, _))| n == name);
                let known = named.map(|(turn, _)| turn).nth(self.taken);
                self.taken += 1;
                let turn = known.unwrap_or_else(|| {
                    self.turns.push((name.clone(), span));
                    self.turns.len() - 1
                });
                self.step(Step::Enter { turn, cond }, span);
                self.region(op.regions[0]);
                self.move_all(yields(body, op.regions[0]), &op.results, span);
                self.step(Step::Leave { turn }, span);
            }
            OpKind::Role(RoleOp::Require(_) | RoleOp::Roles(_)) => {}
            OpKind::If => self.branch(id),
            OpKind::For { .. } => self.loop_(id),
            OpKind::While => {
                if let Some(around) = tracked(body, kernel, op.regions[0])
                    .or_else(|| tracked(body, kernel, op.regions[1]))
                {
                    self.refuse(span, "a `while`", around, Why::While);
                    return;
                }
                let inner = op.regions[1];
                let both = |to: &[ValueId]| -> Vec<(Vec<ValueId>, ValueId)> {
                    let from = op.operands.iter().zip(yields(body, inner));
                    from.zip(to).map(|((a, b), t)| (vec![*a, *b], *t)).collect()
                };
                for &r in &op.regions {
                    self.moves(both(&body.regions[r].args).into_iter(), span);
                    self.region(r);
                }
                self.moves(both(&op.results).into_iter(), span);
            }
            OpKind::Yield | OpKind::Return => {}
            kind if renames(kind) => {
                self.move_all(&op.operands, &op.results, span);
            }
            // A finished product is none.
            OpKind::Cast if matches!(body.ty(op.results[0]), Type::Pending(_)) => {
                let reads = self.of(&op.operands);
                if !reads.is_empty() {
                    self.step(Step::Read(reads), span);
                }
            }
            _ => {
                let reads = self.of(&op.operands);
                if !reads.is_empty() {
                    self.step(Step::Read(reads), span);
                }
            }
        }
    }

    fn branch(&mut self, id: OpId) {
        let kernel = self.kernel;
        let body = &kernel.body;
        let op = &body.ops[id];
        let (span, arms) = (op.span, (op.regions[0], op.regions[1]));
        let around = tracked(body, kernel, arms.0).or_else(|| tracked(body, kernel, arms.1));
        let Some(around) = around else {
            // It chooses values, not operations: both arms read what they read.
            self.region(arms.0);
            self.region(arms.1);
            let pairs = yields(body, arms.0).iter().zip(yields(body, arms.1));
            let pairs = pairs.zip(&op.results).map(|((a, b), t)| (vec![*a, *b], *t));
            self.moves(pairs.collect::<Vec<_>>().into_iter(), span);
            return;
        };
        let Some(cond) = self.control(op.operands[0], span, "a condition", &around) else {
            return;
        };
        self.conditions.push((span, cond, around.1, around.0));
        let branch = self.step(Step::Branch { cond, otherwise: 0 }, span);
        self.around.push(Around::Condition);
        self.region(arms.0);
        self.move_all(yields(body, arms.0), &op.results, span);
        let jump = self.step(Step::Jump(0), span);
        let second = self.role.steps.len();
        self.region(arms.1);
        self.move_all(yields(body, arms.1), &op.results, span);
        self.around.pop();
        let end = self.role.steps.len();
        self.role.steps[branch] = Step::Branch {
            cond,
            otherwise: second,
        };
        self.role.steps[jump] = Step::Jump(end);
    }

    fn loop_(&mut self, id: OpId) {
        let kernel = self.kernel;
        let body = &kernel.body;
        let op = &body.ops[id];
        let (span, inner) = (op.span, op.regions[0]);
        let args = &body.regions[inner].args;
        let Some(around) = tracked(body, kernel, inner) else {
            let from = op.operands[3..].iter().zip(yields(body, inner));
            let both: Vec<Vec<ValueId>> = from.map(|(a, b)| vec![*a, *b]).collect();
            let pairs = both.iter().cloned().zip(args[1..].iter().copied());
            self.moves(pairs, span);
            self.region(inner);
            self.moves(both.into_iter().zip(op.results.iter().copied()), span);
            return;
        };
        let mut bounds = Vec::new();
        for (at, what) in [
            "the first index of a loop",
            "the end of a loop",
            "the step of a loop",
        ]
        .into_iter()
        .enumerate()
        {
            match self.control(op.operands[at], span, what, &around) {
                Some(term) => bounds.push(term),
                None => return,
            }
        }
        let of = self.role.loops.len();
        self.role.loops.push(Loop {
            index: inner,
            lo: bounds[0],
            hi: bounds[1],
            step: bounds[2],
            rev: matches!(op.kind, OpKind::For { rev: true, .. }),
            span,
        });
        self.move_all(&op.operands[3..], &args[1..], span);
        self.step(Step::Begin(of), span);
        self.around.push(Around::Loop(of));
        let head = self.step(Step::Next { of, exit: 0 }, span);
        self.region(inner);
        self.move_all(yields(body, inner), &args[1..], span);
        self.step(Step::Jump(head), span);
        self.around.pop();
        let exit = self.role.steps.len();
        self.role.steps[head] = Step::Next { of, exit };
        self.move_all(&args[1..], &op.results, span);
    }
}

impl Role {
    /// How often a step is done, as the author would write it; `None` where conditions are around it, or a bound has no name.
    pub fn times(&self, step: usize, terms: &mut Terms<'_>) -> Option<String> {
        let mut factors = Vec::new();
        for around in &self.around[step] {
            let Around::Loop(of) = around else {
                return None;
            };
            let l = &self.loops[*of];
            if terms.as_int(l.step) != Some(1) {
                return None;
            }
            let count = terms.add(l.hi, l.lo, -1);
            let shown = terms.show(count)?;
            factors.push(match terms.not_negative(count) {
                true => shown,
                false => format!("max({shown}, 0)"),
            });
        }
        Some(match &factors[..] {
            [] => "1".to_owned(),
            all => all.join(" * "),
        })
    }
}

/// How many places a role's parts of a channel's slots begin at.
pub(super) fn starts(role: &Role, of: ChannelId) -> usize {
    let starts = role.steps.iter().filter_map(|s| match s {
        Step::Put {
            channel,
            part: Some(part),
            ..
        } if *channel == of => Some(&part.start),
        _ => None,
    });
    starts.collect::<BTreeSet<_>>().len()
}

/// Which role puts, which gets.
pub(super) struct Ends {
    pub puts: HashMap<ChannelId, Vec<usize>>,
    pub gets: HashMap<ChannelId, Vec<usize>>,
}

impl Ends {
    pub fn of(roles: &[Role]) -> Ends {
        let (mut puts, mut gets) = (HashMap::new(), HashMap::new());
        for (i, role) in roles.iter().enumerate() {
            for step in &role.steps {
                let (map, channel): (&mut HashMap<ChannelId, Vec<usize>>, _) = match step {
                    Step::Put { channel, .. } => (&mut puts, channel),
                    Step::Get { channel, .. } => (&mut gets, channel),
                    _ => continue,
                };
                let list = map.entry(*channel).or_default();
                if !list.contains(&i) {
                    list.push(i);
                }
            }
        }
        Ends { puts, gets }
    }
}
