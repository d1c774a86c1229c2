//! What a role works out of its next tile before it is done with the one at hand.
//!
//! The scalars that roles share often hang on loads one after another: which request a tile belongs to, then where that begins. Begun when
//! the tile begins, they would keep a role waiting that has nothing else to do; begun behind its last loop they arrive under what is left.
//!
//! Invariant: what is taken ahead reads nothing that the kernel may write, and has no effect. Behind the last tile the scalars are those of
//! the grid's last one, and nobody looks at them.

use std::collections::{HashMap, HashSet};

use tesserine_set::Access;

use crate::{
    codegen::lower::Lower,
    ir::{
        OpId, RegionId, ValueId,
        role::{OpKind, RoleBody, Type},
        tile::{self, OpKind as Tile},
    },
};

/// Steps in which scalars are taken ahead: the first loads, those that need what these gave, and all else.
pub(in crate::codegen) const STEPS: usize = 3;

/// The operations at the root of a role's body that are taken ahead, and where.
pub(in crate::codegen) struct Ahead {
    /// By step, in order. A warp stands still at the first use of what a load has not yet given, so that steps lie apart.
    pub(in crate::codegen) steps: [Vec<OpId>; STEPS],
    /// The others: up to the last loop, up to the end of the product behind it, and all that follows, the terminator among them. A step
    /// stands behind each, before the terminator.
    pub(in crate::codegen) others: [Vec<OpId>; STEPS],
    /// What is taken ahead and the others use.
    pub(in crate::codegen) values: Vec<ValueId>,
}

impl Ahead {
    /// All that is taken ahead, of the steps up to `step`.
    pub(in crate::codegen) fn made<'a>(
        &'a self,
        body: &'a RoleBody,
        step: usize,
    ) -> impl Iterator<Item = ValueId> + 'a {
        let ops = self.steps[..step].iter().flatten();
        ops.flat_map(|&id| body.ops[id].results.iter().copied())
            .filter(|&v| matches!(body.ty(v).ty, tile::Type::Scalar(_)))
    }
}

impl Lower<'_> {
    /// What of the role's body is worth it: loads before its last loop. The role that draws tiles for all goes through its own as it comes.
    pub(in crate::codegen) fn ahead(&self) -> Option<Ahead> {
        let draws = super::draw::draws(self.kernel);
        if !self.is_in_role() || draws && self.in_role().number == 1 {
            return None;
        }
        let body = self.body;
        let root = &body.regions[body.root].ops;
        let mut known = HashSet::new();
        let (mut ops, mut others) = (Vec::new(), Vec::new());
        for &id in root {
            match is_ahead(body, id, &known) {
                true => {
                    known.extend(&body.ops[id].results);
                    ops.push(id);
                }
                false => others.push(id),
            }
        }
        let last_loop = others.iter().rposition(|&id| {
            let waits = |id: &OpId| matches!(body.ops[*id].kind, OpKind::WaitFull { .. });
            !body.ops[id].regions.is_empty() && inside(body, id).iter().any(waits)
        })?;
        let mut rest = others.split_off(last_loop + 1);
        let waits = |id: &OpId| matches!(body.ops[*id].kind, OpKind::WaitProducts { .. });
        let middle = rest.iter().position(waits).map_or(0, |at| at + 1);
        let end = rest.split_off(middle);

        let steps = steps(body, &ops);
        if steps[0].is_empty() {
            return None;
        }
        let others = [others, rest, end];
        let all = others.iter().flatten().flat_map(|&id| inside(body, id));
        let used: HashSet<ValueId> = all.flat_map(|id| &body.ops[id].operands).copied().collect();
        let changes = |id: &&OpId| !matches!(body.ops[**id].kind, OpKind::Tile(Tile::Param(_)));
        let results = ops
            .iter()
            .filter(changes)
            .flat_map(|&id| &body.ops[id].results);
        Some(Ahead {
            values: results.filter(|&v| used.contains(v)).copied().collect(),
            steps,
            others,
        })
    }
}

/// Parts operations at their loads: what loads and nothing loaded goes into, what a load of that goes into, the rest. Nothing if nothing loads.
fn steps(body: &RoleBody, ops: &[OpId]) -> [Vec<OpId>; STEPS] {
    // How many loads lie behind a value, at most.
    let mut depth: HashMap<ValueId, usize> = HashMap::new();
    let mut steps: [Vec<OpId>; STEPS] = Default::default();
    let mut loads = false;
    for &id in ops {
        let op = &body.ops[id];
        let of = |v: &ValueId| depth.get(v).copied().unwrap_or(0);
        let all = inside(body, id);
        let behind = all.iter().flat_map(|&id| &body.ops[id].operands).map(of);
        let behind = behind.max().unwrap_or(0);
        let is_load = |id: &OpId| matches!(body.ops[*id].kind, OpKind::Load { .. });
        let load = all.iter().any(is_load);
        loads |= load;
        let result = behind + usize::from(load);
        depth.extend(op.results.iter().map(|&r| (r, result)));
        steps[behind.min(STEPS - 1)].push(id);
    }
    match loads {
        true => steps,
        false => Default::default(),
    }
}

/// The operation, and all inside it.
fn inside(body: &RoleBody, id: OpId) -> Vec<OpId> {
    let regions = &body.ops[id].regions;
    let inner = regions.iter().flat_map(|&r| &body.regions[r].ops);
    std::iter::once(id)
        .chain(inner.flat_map(|&id| inside(body, id)))
        .collect()
}

/// Whether the operation makes scalars of the tile's place and what the kernel only reads, given `known` ones.
fn is_ahead(body: &RoleBody, id: OpId, known: &HashSet<ValueId>) -> bool {
    let op = &body.ops[id];
    let operands = op.operands.iter().all(|v| known.contains(v));
    let is_scalar = |ty: &Type| matches!(ty.ty, tile::Type::Scalar(_));
    let results = op.results.iter().all(|&r| is_scalar(body.ty(r)));
    let kind = match &op.kind {
        OpKind::Tile(Tile::Param(_)) => return true,
        OpKind::Tile(
            Tile::Constant(_)
            | Tile::Dim(_)
            | Tile::GridIndex(_)
            | Tile::Unary(_)
            | Tile::Binary(_)
            | Tile::Compare(_)
            | Tile::Fma
            | Tile::Select
            | Tile::Cast
            | Tile::Bitcast,
        ) => true,
        OpKind::Load { .. } => {
            let view = &body.ty(op.operands[0]).ty;
            matches!(view, tile::Type::View(v) if v.access == Access::Read)
        }
        OpKind::Tile(Tile::If) => op.regions.iter().all(|&r| region_is_ahead(body, r, known)),
        _ => false,
    };
    kind && operands && results
}

fn region_is_ahead(body: &RoleBody, region: RegionId, known: &HashSet<ValueId>) -> bool {
    let mut known = known.clone();
    body.regions[region].ops.iter().all(|&id| {
        let op = &body.ops[id];
        let is = matches!(op.kind, OpKind::Tile(Tile::Yield)) || is_ahead(body, id, &known);
        known.extend(&op.results);
        is
    })
}
