//! What a role works out of its next tile before it is done with the one at hand.
//!
//! The scalars that roles share often hang on loads one after another: which request a tile belongs to, then where that begins. Begun when
//! the tile begins, they would keep a role waiting that has nothing else to do; begun behind its last loop they arrive under what is left.
//!
//! Invariant: what is taken ahead reads nothing that the kernel may write, and has no effect. Behind the last tile the scalars are those of
//! the grid's last one, and nobody looks at them.

use std::collections::HashSet;

use tesserine_set::Access;

use crate::{
    codegen::lower::Lower,
    ir::{
        OpId, RegionId, ValueId,
        role::{OpKind, RoleBody, Type},
        tile::{self, OpKind as Tile},
    },
};

/// The operations at the root of a role's body that are taken ahead, and where.
pub(in crate::codegen) struct Ahead {
    /// In order.
    pub(in crate::codegen) ops: Vec<OpId>,
    /// Those between, up to the last loop.
    pub(in crate::codegen) until: Vec<OpId>,
    /// Those behind it, the terminator among them.
    pub(in crate::codegen) rest: Vec<OpId>,
    /// What `ops` give to the others.
    pub(in crate::codegen) values: Vec<ValueId>,
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
        let is_load = |&id: &OpId| {
            let mut found = Vec::new();
            inside(body, id, &mut found);
            let loads = |id: &OpId| matches!(body.ops[*id].kind, OpKind::Load { .. });
            found.iter().any(loads)
        };
        let last_loop = others.iter().rposition(|&id| {
            let mut found = Vec::new();
            inside(body, id, &mut found);
            let waits = |id: &OpId| matches!(body.ops[*id].kind, OpKind::WaitFull { .. });
            !body.ops[id].regions.is_empty() && found.iter().any(waits)
        })?;
        if !ops.iter().any(is_load) {
            return None;
        }
        let mut used: HashSet<ValueId> = HashSet::new();
        for &id in &others {
            let mut found = Vec::new();
            inside(body, id, &mut found);
            used.extend(found.iter().flat_map(|&id| &body.ops[id].operands));
        }
        let changes = |id: &&OpId| !matches!(body.ops[**id].kind, OpKind::Tile(Tile::Param(_)));
        let results = ops
            .iter()
            .filter(changes)
            .flat_map(|&id| &body.ops[id].results);
        Some(Ahead {
            values: results.filter(|&v| used.contains(v)).copied().collect(),
            rest: others.split_off(last_loop + 1),
            until: others,
            ops,
        })
    }
}

/// The operation, and all inside it.
fn inside(body: &RoleBody, id: OpId, found: &mut Vec<OpId>) {
    found.push(id);
    for &region in &body.ops[id].regions {
        for &inner in &body.regions[region].ops {
            inside(body, inner, found);
        }
    }
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
