//! What of a kernel is copied by one role for the other.

use std::collections::{HashMap, HashSet};

use tesserine_set::{Access, DType};

use super::{Unfit, inside};
use crate::ir::{
    OpId, RegionId, ValueDef, ValueId,
    tile::{Constant, Index, Kernel, OpKind, TileBody, Type},
};

/// Slices that pass through one channel: the tiles of its slots.
pub(super) struct Group {
    /// In the order of the tiles.
    pub loads: Vec<OpId>,
    /// Where they stand.
    pub region: RegionId,
    /// The places in `region` of the first operation that reads them, and of the last.
    pub first: usize,
    pub last: usize,
    /// The place in `region` of the last load.
    pub put: usize,
    /// Products that add to what a loop carries read it, so many an iteration, and nothing else does.
    pub chained: Option<u32>,
    /// The innermost loop around.
    pub around: Option<OpId>,
}

pub(super) struct Plan {
    pub groups: Vec<Group>,
    /// The products.
    pub products: Vec<OpId>,
    /// Products that add to what their loop carries, and the number of that among what is carried.
    pub chained: HashMap<OpId, usize>,
    /// Operations of the root region that both roles share.
    pub shared: HashSet<OpId>,
    /// What else the places of slices are computed by.
    pub needed: HashSet<OpId>,
}

impl Plan {
    /// The numbers of what a loop carries in flight.
    pub fn in_flight(&self, body: &TileBody, looped: OpId) -> HashSet<usize> {
        let region = body.ops[looped].regions[0];
        let ops = body.regions[region].ops.iter();
        ops.filter_map(|op| self.chained.get(op).copied()).collect()
    }
}

/// What is known of a body.
pub(super) struct Around<'a> {
    body: &'a TileBody,
    users: HashMap<ValueId, Vec<OpId>>,
    /// Where an operation stands.
    region: HashMap<OpId, RegionId>,
    /// Whose region it is.
    owner: HashMap<RegionId, OpId>,
}

impl<'a> Around<'a> {
    pub fn of(body: &'a TileBody) -> Around<'a> {
        let mut users: HashMap<ValueId, Vec<OpId>> = HashMap::new();
        let (mut region, mut owner) = (HashMap::new(), HashMap::new());
        for (place, all) in &body.regions {
            for &id in &all.ops {
                region.insert(id, place);
                let op = &body.ops[id];
                op.regions.iter().for_each(|&r| {
                    owner.insert(r, id);
                });
                for &operand in &op.operands {
                    users.entry(operand).or_default().push(id);
                }
            }
        }
        Around {
            body,
            users,
            region,
            owner,
        }
    }

    fn users(&self, value: ValueId) -> &[OpId] {
        self.users.get(&value).map_or(&[], |u| u)
    }

    /// The operations around `id`, the innermost first.
    fn enclosing(&self, id: OpId) -> Vec<OpId> {
        let mut out = Vec::new();
        let mut at = id;
        while let Some(&owner) = self.region.get(&at).and_then(|r| self.owner.get(r)) {
            out.push(owner);
            at = owner;
        }
        out
    }

    /// All operations, in the order of the text.
    fn all(&self) -> Vec<OpId> {
        let mut all = Vec::new();
        inside(self.body, self.body.root, &mut all);
        all
    }

    /// The number of what its loop carries that the product adds to, if that serves nothing else.
    pub fn chained(&self, id: OpId) -> Option<usize> {
        let op = &self.body.ops[id];
        let ValueDef::Argument { region, index } = self.body.values[op.operands[2]].def else {
            return None;
        };
        let place = (index as usize).checked_sub(1)?;
        let owner = &self.body.ops[*self.owner.get(&region)?];
        let alone = self.users(op.operands[2]) == [id] && self.region[&id] == region;
        let &[end] = self.users(op.results[0]) else {
            return None;
        };
        let yields = &self.body.ops[end].operands;
        let goes_round = self.region[&end] == region
            && self.body.ops[end].kind == OpKind::Yield
            && yields.get(place) == Some(&op.results[0])
            && yields.iter().filter(|v| **v == op.results[0]).count() == 1;
        let counted = matches!(owner.kind, OpKind::For { .. });
        (counted && alone && goes_round).then_some(place)
    }

    /// The load that an operand of a product is, perhaps transposed, cut, or taken as tf32.
    fn source(&self, value: ValueId) -> Option<OpId> {
        let id = self.body.defining_op(value)?;
        let op = &self.body.ops[id];
        match &op.kind {
            kind if self.is_passing(kind, id) => self.source(op.operands[0]),
            OpKind::Load { indices, .. } => {
                let ty = self.body.ty(value);
                let Type::View(view) = self.body.ty(op.operands[0]) else {
                    return None;
                };
                let kept = indices.iter().filter(|i| i.extent().is_some()).count();
                let suits = view.access == Access::Read
                    && view.elem == ty.elem()
                    && ty.shape().len() == 2
                    && kept == 2
                    && self.pads_with_zero(op.operands[op.operands.len() - 1])
                    && self.serves_products(value);
                suits.then_some(id)
            }
            _ => None,
        }
    }

    fn is_passing(&self, kind: &OpKind, id: OpId) -> bool {
        let op = &self.body.ops[id];
        match kind {
            OpKind::Permute(perm) => perm[..] == [1, 0],
            OpKind::Slice(_) => true,
            OpKind::Cast => {
                let elem = |v: ValueId| self.body.ty(v).elem();
                elem(op.results[0]) == DType::Tf32 && elem(op.operands[0]) == DType::F32
            }
            _ => false,
        }
    }

    /// Whether only products read `value`, as factors.
    fn serves_products(&self, value: ValueId) -> bool {
        self.users(value).iter().all(|&id| {
            let op = &self.body.ops[id];
            match &op.kind {
                OpKind::Dot => op.operands[2] != value,
                kind => self.is_passing(kind, id) && self.serves_products(op.results[0]),
            }
        })
    }

    pub fn is_zero(&self, value: ValueId) -> bool {
        let Some(id) = self.body.defining_op(value) else {
            return false;
        };
        let op = &self.body.ops[id];
        match &op.kind {
            OpKind::Broadcast => self.is_zero(op.operands[0]),
            OpKind::Constant(Constant::Float(x, _)) => x.to_bits() == 0,
            OpKind::Constant(Constant::Int(x, _)) => *x == 0,
            _ => false,
        }
    }

    fn pads_with_zero(&self, pad: ValueId) -> bool {
        let of = self.body.defining_op(pad).map(|op| &self.body.ops[op].kind);
        matches!(of, Some(OpKind::Constant(Constant::Any(_)))) || self.is_zero(pad)
    }

    /// The values that `value` is read through: itself, and its parts and transposes.
    fn seen_as(&self, value: ValueId, out: &mut HashSet<ValueId>) {
        out.insert(value);
        for &id in self.users(value) {
            let op = &self.body.ops[id];
            if self.is_passing(&op.kind, id) {
                self.seen_as(op.results[0], out);
            }
        }
    }

    /// Whether the operation, or one inside it, takes one of `values`.
    fn takes(&self, id: OpId, values: &HashSet<ValueId>) -> bool {
        let op = &self.body.ops[id];
        op.operands.iter().any(|v| values.contains(v))
            || op.regions.iter().any(|&r| {
                let mut ops = self.body.regions[r].ops.iter();
                ops.any(|&inner| self.takes(inner, values))
            })
    }

    /// What a kernel does that roles cannot.
    fn refused(&self) -> Option<Unfit> {
        self.all().into_iter().find_map(|id| {
            let op = &self.body.ops[id];
            let of_read_only = || {
                let ty = self.body.ty(op.operands[0]);
                matches!(ty, Type::View(v) if v.access == Access::Read)
            };
            let what = match &op.kind {
                OpKind::Load { .. } if !of_read_only() => {
                    "it reads a view that it may store to, and roles go on at their own pace"
                }
                OpKind::Atomic { .. } => "it has atomic operations",
                OpKind::Arrive { .. } => "blocks count each other by `arrive`",
                OpKind::ClusterReduce { .. } => "blocks of a cluster exchange values",
                _ => return None,
            };
            Some(Unfit {
                span: op.span,
                what: what.into(),
            })
        })
    }

    /// Operations of the root region that compute scalars and views from others of their kind: both roles share them.
    fn shared(&self) -> HashSet<OpId> {
        let mut shared: HashSet<OpId> = HashSet::new();
        for &id in &self.body.regions[self.body.root].ops {
            let mut whole = vec![id];
            for &region in &self.body.ops[id].regions {
                inside(self.body, region, &mut whole);
            }
            let all = whole.iter().all(|&inner| {
                let op = &self.body.ops[inner];
                let pure = !matches!(
                    op.kind,
                    OpKind::Store { .. }
                        | OpKind::Assert { .. }
                        | OpKind::Debug { .. }
                        | OpKind::Return
                        | OpKind::Role(_)
                );
                let scalar = |v: &ValueId| !matches!(self.body.ty(*v), Type::Tile(_));
                let known = |v: &ValueId| match self.body.values[*v].def {
                    ValueDef::Result { op, .. } => {
                        shared.contains(&op) || op != id && whole.contains(&op)
                    }
                    ValueDef::Argument { .. } => true,
                };
                pure && op.results.iter().all(scalar) && op.operands.iter().all(known)
            });
            if all {
                shared.insert(id);
            }
        }
        shared
    }

    pub fn plan(&self, kernel: &Kernel) -> Result<Plan, Unfit> {
        let unfit = |span, what: &str| Unfit {
            span,
            what: what.to_owned(),
        };
        if let Some(found) = self.refused() {
            return Err(found);
        }
        let all = self.all();
        let is_product = |id: &OpId| self.body.ops[*id].kind == OpKind::Dot;
        let products: Vec<OpId> = all.iter().copied().filter(is_product).collect();
        let Some(&first) = products.first() else {
            return Err(unfit(kernel.header.span, "it has no product (`dot`)"));
        };
        let mut chained = HashMap::new();
        let mut sets: Vec<(Vec<OpId>, bool)> = Vec::new();
        for &id in &products {
            let op = &self.body.ops[id];
            if self.body.ty(op.results[0]).shape().len() != 2 {
                return Err(unfit(op.span, "a product has more than two axes"));
            }
            let place = self.chained(id);
            chained.extend(place.map(|place| (id, place)));
            let sources = [0, 1].map(|i| self.source(op.operands[i]));
            if sources[1].is_none() {
                return Err(unfit(
                    op.span,
                    "the right factor of a product is no slice of a view that is only read, or serves other ends too",
                ));
            }
            for load in sources.into_iter().flatten() {
                if sets.iter().any(|(loads, _)| loads.contains(&load)) {
                    continue;
                }
                let region = self.region[&load];
                let own = |(loads, chain): &&mut (Vec<OpId>, bool)| {
                    let together = *chain == place.is_some();
                    let of_product = sources.iter().flatten().any(|s| loads.contains(s));
                    self.region[&loads[0]] == region && together && (*chain || of_product)
                };
                match sets.iter_mut().find(own) {
                    Some((loads, _)) => loads.push(load),
                    None => sets.push((vec![load], place.is_some())),
                }
            }
        }
        let looped = |id: OpId| {
            let mut around = self.enclosing(id).into_iter();
            around.find(|&op| matches!(self.body.ops[op].kind, OpKind::For { .. } | OpKind::While))
        };
        if looped(first).is_none() && products.iter().all(|&id| looped(id).is_none()) {
            return Err(unfit(
                self.body.ops[first].span,
                "no product stands in a loop, so nothing is copied ahead",
            ));
        }
        let mut groups = Vec::new();
        for (loads, _) in sets {
            groups.push(self.group(loads, &chained, looped));
        }
        let shared = self.shared();
        let needed = self.needed(&groups, &shared)?;
        Ok(Plan {
            groups,
            products,
            chained,
            shared,
            needed,
        })
    }

    fn group(
        &self,
        loads: Vec<OpId>,
        chained: &HashMap<OpId, usize>,
        looped: impl Fn(OpId) -> Option<OpId>,
    ) -> Group {
        let region = self.region[&loads[0]];
        let mut values = HashSet::new();
        for &load in &loads {
            self.seen_as(self.body.ops[load].results[0], &mut values);
        }
        let ops = &self.body.regions[region].ops;
        let takers: Vec<usize> = (0..ops.len())
            .filter(|&i| self.takes(ops[i], &values))
            .collect();
        let put = ops.iter().rposition(|op| loads.contains(op)).unwrap_or(0);
        let readers: HashSet<OpId> = values
            .iter()
            .flat_map(|v| self.users(*v))
            .copied()
            .filter(|&id| self.body.ops[id].kind == OpKind::Dot)
            .collect();
        let own = |id: &OpId| chained.contains_key(id) && self.region[id] == region;
        let count = readers.len() as u32;
        let around = looped(loads[0]);
        Group {
            chained: readers.iter().all(own).then_some(count),
            first: takers.first().copied().unwrap_or(put),
            last: takers.last().copied().unwrap_or(put),
            loads,
            region,
            put,
            around,
        }
    }

    /// What the places of the slices follow from, beside what is shared: operations that the role which copies runs too.
    fn needed(&self, groups: &[Group], shared: &HashSet<OpId>) -> Result<HashSet<OpId>, Unfit> {
        let mut needed = HashSet::new();
        let mut skeleton: HashSet<OpId> = HashSet::new();
        let mut next: Vec<(ValueId, OpId)> = Vec::new();
        for &load in groups.iter().flat_map(|g| &g.loads) {
            let op = &self.body.ops[load];
            next.extend(
                op.operands[..op.operands.len() - 1]
                    .iter()
                    .map(|&v| (v, load)),
            );
            for around in self.enclosing(load) {
                let op = &self.body.ops[around];
                let control = match op.kind {
                    OpKind::For { .. } => &op.operands[..3],
                    OpKind::If => &op.operands[..1],
                    _ => {
                        return Err(Unfit {
                            span: op.span,
                            what: "a product stands in a `while`".into(),
                        });
                    }
                };
                skeleton.insert(around);
                next.extend(control.iter().map(|&v| (v, load)));
            }
        }
        while let Some((value, load)) = next.pop() {
            let id = match self.body.values[value].def {
                ValueDef::Result { op, .. } => op,
                ValueDef::Argument { region, index } => {
                    let owner = self.owner[&region];
                    if index == 0 && skeleton.contains(&owner) || needed.contains(&owner) {
                        continue;
                    }
                    // What a loop carries belongs to who computes it.
                    if skeleton.contains(&owner) {
                        return Err(self.depends(load));
                    }
                    owner
                }
            };
            if shared.contains(&id) || needed.contains(&id) {
                continue;
            }
            if skeleton.contains(&id) {
                return Err(self.depends(load));
            }
            needed.insert(id);
            let mut whole = vec![id];
            for &region in &self.body.ops[id].regions {
                inside(self.body, region, &mut whole);
            }
            for inner in whole {
                let op = &self.body.ops[inner];
                let effect = matches!(
                    op.kind,
                    OpKind::Dot
                        | OpKind::Store { .. }
                        | OpKind::Assert { .. }
                        | OpKind::Debug { .. }
                );
                if effect {
                    return Err(self.depends(load));
                }
                next.extend(op.operands.iter().map(|&v| (v, load)));
            }
        }
        Ok(needed)
    }

    fn depends(&self, load: OpId) -> Unfit {
        Unfit {
            span: self.body.ops[load].span,
            what: "where this slice lies depends on what is computed from others".into(),
        }
    }
}

/// Whether a slice has rows that an index tile chooses.
pub(super) fn is_gather(indices: &[Index]) -> bool {
    indices.iter().any(|i| matches!(i, Index::Gather { .. }))
}
