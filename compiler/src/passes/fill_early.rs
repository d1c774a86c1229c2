//! What a role puts first in a tile is what has room first.
//!
//! A ring of one slot, attention's queries, has room again when the tile before is nearly over; one of several slots, its keys, sooner. A
//! role that waits for the former first lets the latter stand empty, and the next tile then begins with a wait. The first iteration of a
//! loop that fills a deeper ring begins before the puts to rings of one slot:
//!
//! ```text
//! put q; for i in lo..hi { put k; put v }  ──▶  if lo < hi { put k }; put q; if lo < hi { put v }; for i in lo + 1..hi { put k; put v }
//! ```
//!
//! Invariants: each channel gets what it got, in its order. Nothing can come to a stop by it: the slot that the first put of a tile waits for is
//! given back by roles at work on the tile before, whose own slots have all been put by then. Only persistent kernels are touched, where some alignment is
//! stated.

use std::collections::{HashMap, HashSet};

use tesserine_set::{Access, Fact, ParamKind};

use super::lower_roles;
use crate::ir::{
    OpId, RegionId, ValueId,
    tile::{BinaryOp, Builder, ChannelId, CompareOp, Kernel, OpKind, RoleOp, TileBody, Type},
};

pub fn run(kernel: &mut Kernel) {
    let Some(roles) = lower_roles::roles_of(kernel) else {
        return;
    };
    if !kernel.header.persistent || !states_alignment(kernel) {
        return;
    }
    let mut pass = FillEarly {
        kernel,
        from: &kernel.body,
        to: TileBody::new(),
        map: HashMap::new(),
        roles: kernel.body.ops[roles].regions.iter().copied().collect(),
    };
    let root = pass.to.root;
    pass.region(kernel.body.root, root);
    let body = pass.to;
    kernel.body = body;
}

/// Whether slices may be put by bulk copies. Threads that copy through few registers have none left for a second copy of their loop.
fn states_alignment(kernel: &Kernel) -> bool {
    let mut facts = kernel.header.requires.iter().chain(&kernel.header.facts);
    let views = kernel.header.signature.params.iter();
    facts.any(|fact| matches!(fact, Fact::Aligned { .. }))
        || views.into_iter().any(|p| match &p.kind {
            ParamKind::View(view) => view.facts.align.is_some(),
            _ => false,
        })
}

struct FillEarly<'a> {
    kernel: &'a Kernel,
    from: &'a TileBody,
    to: TileBody,
    map: HashMap<ValueId, ValueId>,
    /// The roles' regions.
    roles: HashSet<RegionId>,
}

/// Where in a role's operations the puts to rings of one slot begin, and the loop behind them.
struct Place {
    puts: usize,
    at: usize,
}

impl FillEarly<'_> {
    fn region(&mut self, region: RegionId, into: RegionId) {
        for &arg in &self.from.regions[region].args {
            let new = self.to.add_argument(into, self.from.ty(arg).clone());
            self.map.insert(arg, new);
        }
        let ops = &self.from.regions[region].ops;
        match self.place(region) {
            Some(place) => self.reorder(ops, &place, into),
            None => self.list(ops, into),
        }
    }

    fn list(&mut self, ops: &[OpId], into: RegionId) {
        for &id in ops {
            self.copy(id, into);
        }
    }

    fn copy(&mut self, id: OpId, into: RegionId) {
        let regions = &self.from.ops[id].regions;
        let regions = regions
            .iter()
            .map(|&inner| {
                let new = self.to.new_region();
                self.region(inner, new);
                new
            })
            .collect();
        self.to
            .append_copy(into, self.from, id, regions, &mut self.map);
    }

    fn reorder(&mut self, ops: &[OpId], place: &Place, into: RegionId) {
        let (puts, others): (Vec<OpId>, Vec<OpId>) = ops[place.puts..place.at]
            .iter()
            .partition(|&&id| self.put(id).is_some());
        self.list(&ops[..place.puts], into);
        self.list(&others, into);
        let id = ops[place.at];
        let op = &self.from.ops[id];
        let [lo, hi, step] = [0, 1, 2].map(|i| self.map[&op.operands[i]]);
        let mut b = Builder {
            body: &mut self.to,
            region: into,
            span: op.span,
        };
        let some = b.compare(CompareOp::Lt, lo, hi);
        let second = b.binary(BinaryOp::Add, lo, step);
        let region = op.regions[0];
        let index = self.from.regions[region].args[0];
        let body = &self.from.regions[region].ops;
        let first = body.iter().position(|&id| self.put(id).is_some());
        let first = first.map_or(0, |at| at + 1);
        for part in [&body[..first], &body[..]] {
            let then = self.to.new_region();
            self.map.insert(index, lo);
            let again = part.len() > first;
            for (i, &inner) in part.iter().enumerate() {
                // The second part makes anew what the first one made for both.
                if again && i + 1 == first || matches!(self.from.ops[inner].kind, OpKind::Yield) {
                    continue;
                }
                self.copy(inner, then);
            }
            let otherwise = self.to.new_region();
            for region in [then, otherwise] {
                self.to.append(
                    region,
                    OpKind::Yield,
                    Vec::new(),
                    Vec::new(),
                    Vec::new(),
                    op.span,
                );
            }
            self.to.append(
                into,
                OpKind::If,
                vec![some],
                Vec::new(),
                vec![then, otherwise],
                op.span,
            );
            if !again {
                self.list(&puts, into);
            }
        }
        let inner = self.to.new_region();
        self.region(region, inner);
        let operands = vec![second, hi, step];
        self.to.append(
            into,
            op.kind.clone(),
            operands,
            Vec::new(),
            vec![inner],
            op.span,
        );
        self.list(&ops[place.at + 1..], into);
    }

    /// The channel that an operation puts to, if it does.
    fn put(&self, id: OpId) -> Option<ChannelId> {
        match self.from.ops[id].kind {
            OpKind::Role(RoleOp::Put { channel, .. }) => Some(channel),
            _ => None,
        }
    }

    fn depth(&self, channel: ChannelId) -> u32 {
        self.kernel.channels[channel].depth
    }

    fn place(&self, region: RegionId) -> Option<Place> {
        if !self.roles.contains(&region) {
            return None;
        }
        let ops = &self.from.regions[region].ops;
        let puts = ops.iter().position(|&id| self.put(id).is_some())?;
        let at = puts
            + ops[puts..]
                .iter()
                .position(|&id| matches!(self.from.ops[id].kind, OpKind::For { rev: false, .. }))?;
        let before = &ops[puts..at];
        let shallow = |&id: &OpId| match self.put(id) {
            Some(channel) => self.depth(channel) == 1,
            None => self.is_pure(id),
        };
        let op = &self.from.ops[ops[at]];
        let body = &self.from.regions[op.regions[0]].ops;
        let first = body.iter().position(|&id| self.put(id).is_some())?;
        let deeper = self.put(body[first]).is_some_and(|c| self.depth(c) > 1);
        let plain = |&id: &OpId| {
            self.put(id).is_none_or(|c| {
                let channel = &self.kernel.channels[c];
                channel.over.is_none() && channel.across.is_none()
            })
        };
        let all = ops[..puts].iter().chain(&body[..first]);
        // Nothing that waits stands before, and the loop carries nothing.
        let fits = before.iter().all(shallow)
            && all.into_iter().all(|&id| self.is_pure(id))
            && deeper
            && before.iter().chain(&body[..=first]).all(plain)
            && op.results.is_empty();
        fits.then_some(Place { puts, at })
    }

    /// Whether the operation gives the same wherever it stands, any number of times.
    fn is_pure(&self, id: OpId) -> bool {
        let op = &self.from.ops[id];
        match &op.kind {
            OpKind::Constant(_)
            | OpKind::Param(_)
            | OpKind::Dim(_)
            | OpKind::GridIndex(_)
            | OpKind::Unary(_)
            | OpKind::Binary(_)
            | OpKind::Compare(_)
            | OpKind::Fma
            | OpKind::Select
            | OpKind::Cast
            | OpKind::Bitcast
            | OpKind::Broadcast
            | OpKind::Reshape
            | OpKind::Iota
            | OpKind::Yield
            | OpKind::ViewBitcast => true,
            OpKind::Load { .. } => {
                matches!(self.from.ty(op.operands[0]), Type::View(v) if v.access == Access::Read)
            }
            OpKind::If => op
                .regions
                .iter()
                .all(|&r| self.from.regions[r].ops.iter().all(|&id| self.is_pure(id))),
            _ => false,
        }
    }
}
