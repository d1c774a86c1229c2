//! Roles of called kernels: a block whose `if`s end in bodies with roles of their own becomes one kernel with roles.
//!
//! Roles of like size in different arms are the same warps, each with the `if` around what it does in either arm; others stand beside them
//! and have nothing to do where the block takes another arm. An arm without roles is done by the largest role. What an arm computes before its
//! roles is shared as ever: scalars stand before all roles, and are computed where the block takes that arm.
//!
//! ```text
//! if c { n = …; roles { load: A(n) math: B(n) } } else { roles { load: C math: D } }
//! ──▶ n = if c { … } else { 0 };  roles { load: if c { A(n) } else { C }   math: if c { B(n) } else { D } }
//! ```

use std::collections::{HashMap, HashSet};

use tesserine_set::DType;

use crate::{
    diagnostics::{Diagnostic, codes},
    ir::{
        OpId, RegionId, ValueId,
        tile::{
            BinaryOp, Builder, Constant, Feature, Kernel, OpKind, RoleHead, RoleOp, TileBody, Type,
            UnaryOp,
        },
    },
    span::Span,
};

type Map = HashMap<ValueId, ValueId>;

/// How the work of a block ends.
struct Tree {
    /// What stands before.
    before: Vec<OpId>,
    end: End,
}

enum End {
    /// An `if`, and its arms.
    If(OpId, Box<[Tree; 2]>),
    /// Roles, and which of all these ends it is.
    Roles(OpId, usize),
    /// A body without roles.
    Plain(Vec<OpId>),
}

/// Roles that are the same warps in all arms.
struct Place {
    head: RoleHead,
    /// By end that has such a role: the place of its first replica there.
    of: HashMap<usize, usize>,
}

/// Makes the roles of called kernels those of this one.
pub(crate) fn fuse(kernel: &mut Kernel) -> Result<(), Diagnostic> {
    let body = &kernel.body;
    let root = body.root;
    let is_roles = |op: &OpId| matches!(body.ops[*op].kind, OpKind::Role(RoleOp::Roles(_)));
    if body.regions[root].ops.iter().any(is_roles) {
        return Ok(());
    }
    let mut ops = body.regions[root].ops.iter();
    if !ops.any(|&op| holds_roles(body, op)) {
        return Ok(());
    }
    let mut ends = 0;
    let tree = tree(body, root, &mut ends)?;
    let mut places = Vec::new();
    place(body, &tree, &mut places);
    let largest = (0..places.len()).max_by_key(|&i: &usize| {
        let place: &Place = &places[i];
        (place.head.warps, std::cmp::Reverse(i))
    });
    let mut fuse = Fuse {
        from: body,
        to: TileBody::new(),
        largest: largest.unwrap_or(0),
        places,
        late: HashSet::new(),
    };
    fuse.whole(&tree);
    kernel.body = fuse.to;
    Ok(())
}

fn holds_roles(body: &TileBody, id: OpId) -> bool {
    let op = &body.ops[id];
    let mut inner = op.regions.iter().flat_map(|&r| &body.regions[r].ops);
    matches!(op.kind, OpKind::Role(RoleOp::Roles(_))) || inner.any(|&op| holds_roles(body, op))
}

fn has_effect(body: &TileBody, id: OpId) -> bool {
    let op = &body.ops[id];
    let own = matches!(
        op.kind,
        OpKind::Store { .. } | OpKind::Atomic { .. } | OpKind::Arrive { .. } | OpKind::Role(_)
    );
    let mut inner = op.regions.iter().flat_map(|&r| &body.regions[r].ops);
    own || inner.any(|&op| has_effect(body, op))
}

/// Whether an operation says something, and does nothing.
fn is_said(body: &TileBody, id: OpId) -> bool {
    let op = &body.ops[id];
    let own = matches!(op.kind, OpKind::Assert { .. } | OpKind::Debug { .. });
    let mut inner = op.regions.iter().flat_map(|&r| &body.regions[r].ops);
    own || inner.any(|&op| is_said(body, op))
}

fn tree(body: &TileBody, region: RegionId, ends: &mut usize) -> Result<Tree, Diagnostic> {
    let ops = &body.regions[region].ops;
    let ops = &ops[..ops.len().saturating_sub(1)];
    let number = *ends;
    let Some(at) = ops.iter().position(|&op| holds_roles(body, op)) else {
        return Ok(Tree {
            before: Vec::new(),
            end: End::Plain(ops.to_vec()),
        });
    };
    let id = ops[at];
    let op = &body.ops[id];
    let refused = |span: Span, title: &str| {
        Err(Diagnostic::error(codes::E0701, span, title).note(
            "a kernel with roles is called where the block's work ends: by itself, or in a branch of an `if` that ends it",
        ))
    };
    if let Some(&after) = ops[at + 1..].iter().find(|&&op| has_effect(body, op)) {
        return refused(
            body.ops[after].span,
            "this follows the call of a kernel with roles, and nothing follows roles",
        );
    }
    if let Some(&early) = ops[..at].iter().find(|&&op| has_effect(body, op)) {
        return refused(
            body.ops[early].span,
            "what stands before roles each role does, so nothing is stored there",
        );
    }
    let end = match &op.kind {
        OpKind::Role(_) => {
            *ends += 1;
            End::Roles(id, number)
        }
        OpKind::If => {
            let [then, otherwise] = [0, 1].map(|i| op.regions[i]);
            let arms = [tree(body, then, ends)?, tree(body, otherwise, ends)?];
            End::If(id, Box::new(arms))
        }
        _ => return refused(op.span, "a kernel with roles is called in a loop"),
    };
    Ok(Tree {
        before: ops[..at].to_vec(),
        end,
    })
}

/// Gives the roles of all ends their places.
fn place(body: &TileBody, tree: &Tree, places: &mut Vec<Place>) {
    match &tree.end {
        End::Plain(_) => {}
        End::If(_, arms) => arms.iter().for_each(|arm| place(body, arm, places)),
        End::Roles(id, end) => {
            let OpKind::Role(RoleOp::Roles(heads)) = &body.ops[*id].kind else {
                return;
            };
            let mut at = 0;
            while let Some(head) = heads.get(at) {
                let like = |p: &&mut Place| {
                    let h = &p.head;
                    (h.warps, h.groups, h.split, h.replicas)
                        == (head.warps, head.groups, head.split, head.replicas)
                        && !p.of.contains_key(end)
                };
                match places.iter_mut().find(like) {
                    Some(place) => {
                        place.of.insert(*end, at);
                        place.head.registers = place.head.registers.max(head.registers);
                    }
                    None => {
                        let mut name = head.name.clone();
                        while places.iter().any(|p| p.head.name == name) {
                            name.push('_');
                        }
                        places.push(Place {
                            head: RoleHead {
                                name,
                                ..head.clone()
                            },
                            of: HashMap::from([(*end, at)]),
                        });
                    }
                }
                at += head.replicas as usize;
            }
        }
    }
}

struct Fuse<'a> {
    from: &'a TileBody,
    to: TileBody,
    places: Vec<Place>,
    /// The place whose role does what has no roles.
    largest: usize,
    /// What stands before roles in an arm, and each of them does for itself.
    late: HashSet<OpId>,
}

impl Fuse<'_> {
    fn whole(&mut self, tree: &Tree) {
        let from = self.from;
        let root = self.to.root;
        let span = tree.end.span(from);
        let mut map = Map::new();
        for &id in &tree.before {
            self.copy(id, root, &mut map);
        }
        if let End::If(id, arms) = &tree.end {
            self.share(*id, arms, None, &mut map);
        }
        let (mut heads, mut regions) = (Vec::new(), Vec::new());
        for at in 0..self.places.len() {
            let head = self.places[at].head.clone();
            for replica in 0..head.replicas {
                let region = self.to.new_region();
                let first = heads.is_empty();
                self.role(tree, true, (at, replica, first), region, &mut map.clone());
                self.end(region, span);
                heads.push(RoleHead {
                    replica,
                    ..head.clone()
                });
                regions.push(region);
            }
        }
        let kind = OpKind::Role(RoleOp::Roles(heads));
        self.to
            .append(root, kind, Vec::new(), Vec::new(), regions, span);
        let kind = OpKind::Return;
        self.to
            .append(root, kind, Vec::new(), Vec::new(), Vec::new(), span);
    }

    fn end(&mut self, region: RegionId, span: Span) {
        let kind = OpKind::Yield;
        self.to
            .append(region, kind, Vec::new(), Vec::new(), Vec::new(), span);
    }

    /// Computes the scalars of both arms, each where the block takes it: `around` holds there, and the `if`'s condition or its opposite.
    fn share(&mut self, id: OpId, arms: &[Tree; 2], around: Option<ValueId>, map: &mut Map) {
        let root = self.to.root;
        let span = self.from.ops[id].span;
        let condition = map[&self.from.ops[id].operands[0]];
        for (arm, holds) in arms.iter().zip([true, false]) {
            let mut builder = Builder::new(&mut self.to);
            (builder.region, builder.span) = (root, span);
            let own = match holds {
                true => condition,
                false => builder.unary(UnaryOp::Not, condition),
            };
            let taken = match around {
                None => own,
                Some(around) => builder.binary(BinaryOp::And, around, own),
            };
            self.before(&arm.before, taken, span, map);
            if let End::If(inner, arms) = &arm.end {
                self.share(*inner, arms, Some(taken), map);
            }
        }
    }

    fn before(&mut self, before: &[OpId], taken: ValueId, span: Span, map: &mut Map) {
        let (from, root) = (self.from, self.to.root);
        let mut scalars: Vec<OpId> = Vec::new();
        for &id in before {
            let op = &from.ops[id];
            let is_late =
                |v: &ValueId| from.defining_op(*v).is_some_and(|d| self.late.contains(&d));
            let mut inner = vec![id];
            inside(from, id, &mut inner);
            let late = is_said(from, id)
                || inner.iter().any(|&i| from.ops[i].kind == OpKind::Dot)
                || op
                    .results
                    .iter()
                    .any(|&r| matches!(from.ty(r), Type::Tile(_)))
                || inner
                    .iter()
                    .any(|&i| from.ops[i].operands.iter().any(is_late));
            if late {
                self.late.insert(id);
            } else if op
                .results
                .iter()
                .all(|&r| matches!(from.ty(r), Type::View(_)))
            {
                self.copy(id, root, map);
            } else {
                scalars.push(id);
            }
        }
        // Only what others use.
        let mut own: HashSet<OpId> = HashSet::new();
        for &id in &scalars {
            let mut all = vec![id];
            inside(from, id, &mut all);
            own.extend(all);
        }
        let others = from.ops.iter().filter(|(id, _)| !own.contains(id));
        let used: HashSet<ValueId> = others.flat_map(|(_, op)| &op.operands).copied().collect();
        let results: Vec<ValueId> = scalars
            .iter()
            .flat_map(|&id| from.ops[id].results.iter().copied())
            .filter(|r| used.contains(r))
            .collect();
        if results.is_empty() {
            return;
        }
        let regions = [self.to.new_region(), self.to.new_region()];
        let mut inner = map.clone();
        for &id in &scalars {
            self.copy(id, regions[0], &mut inner);
        }
        let values: Vec<ValueId> = results.iter().map(|r| inner[r]).collect();
        let types: Vec<Type> = results.iter().map(|&r| from.ty(r).clone()).collect();
        let mut builder = Builder::new(&mut self.to);
        (builder.region, builder.span) = (regions[0], span);
        builder.yield_(values);
        builder.region = regions[1];
        let nothing = types
            .iter()
            .map(|ty| {
                builder.constant(match ty.elem() {
                    DType::Bool => Constant::Bool(false),
                    ty if ty.is_float() => Constant::Float(0.0, ty),
                    ty => Constant::Int(0, ty),
                })
            })
            .collect();
        builder.yield_(nothing);
        builder.region = root;
        let made = builder.if_(taken, types, regions[0], regions[1]);
        let new = self.to.ops[made].results.iter().copied();
        map.extend(results.into_iter().zip(new));
    }

    /// What the role at a place does: its number, its replica, and whether it is the first of all.
    fn role(
        &mut self,
        tree: &Tree,
        outermost: bool,
        (at, replica, first): (usize, u32, bool),
        into: RegionId,
        map: &mut Map,
    ) {
        let from = self.from;
        if !outermost {
            for &id in &tree.before {
                if self.late.contains(&id) && (first || !is_said(from, id)) {
                    self.copy(id, into, map);
                }
            }
        }
        match &tree.end {
            End::Roles(id, end) => {
                let Some(&start) = self.places[at].of.get(end) else {
                    return;
                };
                let region = from.ops[*id].regions[start + replica as usize];
                let ops = &from.regions[region].ops;
                for &op in &ops[..ops.len() - 1] {
                    self.copy(op, into, map);
                }
            }
            End::Plain(ops) => {
                if at == self.largest && replica == 0 {
                    let mut all = ops.clone();
                    ops.iter().for_each(|&op| inside(from, op, &mut all));
                    // As source they are products of a role.
                    if all.iter().any(|&op| from.ops[op].kind == OpKind::Dot) {
                        let kind = OpKind::Role(RoleOp::Require(Feature::MmaSync));
                        let span = tree.end.span(from);
                        self.to
                            .append(into, kind, Vec::new(), Vec::new(), Vec::new(), span);
                    }
                    for &op in ops {
                        self.copy(op, into, map);
                    }
                }
            }
            End::If(id, arms) => {
                let op = &from.ops[*id];
                let condition = map[&op.operands[0]];
                let regions = arms.each_ref().map(|arm| {
                    let region = self.to.new_region();
                    self.role(arm, false, (at, replica, first), region, &mut map.clone());
                    self.end(region, op.span);
                    region
                });
                let kind = OpKind::If;
                let regions = regions.to_vec();
                self.to
                    .append(into, kind, vec![condition], Vec::new(), regions, op.span);
            }
        }
    }

    /// An operation with all that is inside of it. A `dot` of a body without roles stays one: it is over where it stands, and nothing waits for it.
    fn copy(&mut self, id: OpId, into: RegionId, map: &mut Map) {
        let from = self.from;
        let op = &from.ops[id];
        let mut regions = Vec::new();
        for &region in &op.regions {
            let new = self.to.new_region();
            for &arg in &from.regions[region].args {
                let ty = from.ty(arg).clone();
                map.insert(arg, self.to.add_argument(new, ty));
            }
            for &inner in &from.regions[region].ops {
                self.copy(inner, new, map);
            }
            regions.push(new);
        }
        self.to.append_copy(into, from, id, regions, map);
    }
}

impl End {
    fn span(&self, body: &TileBody) -> Span {
        match self {
            End::If(id, _) | End::Roles(id, _) => body.ops[*id].span,
            End::Plain(ops) => ops.first().map_or(Span::NONE, |&op| body.ops[op].span),
        }
    }
}

fn inside(body: &TileBody, id: OpId, out: &mut Vec<OpId>) {
    for &region in &body.ops[id].regions {
        for &inner in &body.regions[region].ops {
            out.push(inner);
            inside(body, inner, out);
        }
    }
}
