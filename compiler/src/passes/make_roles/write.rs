//! Writes a kernel's body with two roles: one that copies, and one that does all else.

use std::collections::{HashMap, HashSet};

use cranelift_entity::PrimaryMap;

use super::{
    Sizes,
    plan::{Around, Plan},
};
use crate::{
    ir::{
        OpId, RegionId, ValueId,
        tile::{
            Channel, ChannelId, Feature, Kernel, OpKind, PutSource, RoleHead, RoleOp, TileBody,
            TileType, Type,
        },
    },
    span::Span,
};

/// Names of roles.
const COPIES: &str = "load";
const COMPUTES: &str = "math";

type Map = HashMap<ValueId, ValueId>;

pub(super) struct Write<'a> {
    plan: &'a Plan,
    around: &'a Around<'a>,
    from: &'a TileBody,
    to: TileBody,
    channels: Vec<ChannelId>,
    depths: &'a [u32],
}

/// The kernel with roles.
pub(super) fn write(kernel: &Kernel, plan: &Plan, around: &Around<'_>, sizes: &Sizes) -> Kernel {
    let from = &kernel.body;
    let mut channels = PrimaryMap::new();
    let mut ids = Vec::new();
    for (i, group) in plan.groups.iter().enumerate() {
        let tiles = group.loads.iter().map(|&load| TileType {
            elem: from.ty(from.ops[load].results[0]).elem(),
            shape: from.ty(from.ops[load].results[0]).shape().to_vec(),
        });
        ids.push(channels.push(Channel {
            name: match plan.groups.len() {
                1 => name(kernel, "tiles"),
                _ => name(kernel, &format!("tiles{i}")),
            },
            tiles: tiles.collect(),
            depth: sizes.depths[i],
            over: None,
            across: None,
            tensor_memory: false,
            span: from.ops[group.loads[0]].span,
        }));
    }
    let mut writer = Write {
        plan,
        around,
        from,
        to: TileBody::new(),
        channels: ids,
        depths: &sizes.depths,
    };
    writer.whole(sizes);
    writer.prune();
    let mut header = kernel.header.clone();
    // What these say is said by the roles.
    let schedule = &mut header.schedule;
    schedule.consumers = None;
    schedule.producers = None;
    schedule.warps = None;
    schedule.stages = None;
    schedule.loops.clear();
    Kernel {
        header,
        channels,
        body: writer.to,
    }
}

/// `wanted`, or the like, which nothing else is called.
fn name(kernel: &Kernel, wanted: &str) -> String {
    let signature = &kernel.header.signature;
    let mut name = wanted.to_owned();
    let taken = |name: &String| {
        signature.dims.contains(name)
            || signature.params.iter().any(|p| p.name == *name)
            || kernel.header.axes.iter().any(|a| a.name == *name)
    };
    while taken(&name) {
        name.push('_');
    }
    name
}

impl Write<'_> {
    fn whole(&mut self, sizes: &Sizes) {
        let root = self.from.root;
        let into = self.to.root;
        let mut map = Map::new();
        for &id in &self.from.regions[root].ops {
            if self.plan.shared.contains(&id) {
                self.copy(id, into, &mut map);
            }
        }
        let copies = self.to.new_region();
        self.produce(root, copies, &mut map.clone());
        if sizes.copy_warps == 1 {
            // Before what it asks for.
            self.role_op(RoleOp::Require(Feature::Bulk), copies);
            self.to.regions[copies].ops.rotate_right(1);
        }
        self.end(copies);
        let computes = self.to.new_region();
        self.consume(root, computes, &mut map);
        self.end(computes);
        let head = |name: &str, warps, groups, split, registers| RoleHead {
            name: name.to_owned(),
            replica: 0,
            replicas: 1,
            warps,
            groups,
            split,
            registers,
        };
        let [few, many] = match sizes.registers {
            Some([few, many]) => [Some(few), Some(many)],
            None => [None, None],
        };
        let heads = vec![
            head(COPIES, sizes.copy_warps, sizes.copy_warps >= 4, None, few),
            head(COMPUTES, 4 * sizes.groups, true, sizes.split, many),
        ];
        let span = self.from.ops[self.plan.products[0]].span;
        let kind = OpKind::Role(RoleOp::Roles(heads));
        let regions = vec![copies, computes];
        self.to
            .append(into, kind, Vec::new(), Vec::new(), regions, span);
        self.effect(OpKind::Return, Vec::new(), into, span);
    }

    /// Removes what served only what the other role does.
    fn prune(&mut self) {
        let regions: Vec<RegionId> = self.to.regions.keys().collect();
        loop {
            let mut used: HashSet<ValueId> = HashSet::new();
            for region in self.to.regions.values() {
                let operands = region.ops.iter().flat_map(|&op| &self.to.ops[op].operands);
                used.extend(operands);
            }
            let mut changed = false;
            for &region in &regions {
                let ops = std::mem::take(&mut self.to.regions[region].ops);
                let count = ops.len();
                let kept: Vec<OpId> = ops
                    .into_iter()
                    .filter(|&id| {
                        let op = &self.to.ops[id];
                        let effect = op.results.is_empty()
                            || !op.regions.is_empty()
                            || matches!(op.kind, OpKind::Role(_));
                        effect || op.results.iter().any(|r| used.contains(r))
                    })
                    .collect();
                changed |= kept.len() != count;
                self.to.regions[region].ops = kept;
            }
            if !changed {
                return;
            }
        }
    }

    fn effect(&mut self, kind: OpKind, operands: Vec<ValueId>, into: RegionId, span: Span) -> OpId {
        self.to
            .append(into, kind, operands, Vec::new(), Vec::new(), span)
    }

    fn role_op(&mut self, kind: RoleOp, into: RegionId) {
        let span = self.from.ops[self.plan.products[0]].span;
        self.effect(OpKind::Role(kind), Vec::new(), into, span);
    }

    fn end(&mut self, into: RegionId) {
        let span = self.from.ops[self.plan.products[0]].span;
        self.effect(OpKind::Yield, Vec::new(), into, span);
    }

    /// An operation with all that is inside of it.
    fn copy(&mut self, id: OpId, into: RegionId, map: &mut Map) {
        let from = self.from;
        let mut regions = Vec::new();
        for &region in &from.ops[id].regions {
            let new = self.to.new_region();
            self.arguments(region, new, map);
            for &inner in &from.regions[region].ops {
                self.copy(inner, new, map);
            }
            regions.push(new);
        }
        self.to.append_copy(into, from, id, regions, map);
    }

    fn arguments(&mut self, region: RegionId, new: RegionId, map: &mut Map) {
        for &arg in &self.from.regions[region].args {
            let ty = self.from.ty(arg).clone();
            map.insert(arg, self.to.add_argument(new, ty));
        }
    }

    /// Whether slices that pass through channels are read within an operation.
    fn fills(&self, id: OpId) -> bool {
        let regions = &self.from.ops[id].regions;
        regions.iter().any(|&region| {
            let here = self.plan.groups.iter().any(|g| g.region == region);
            here || self.from.regions[region]
                .ops
                .iter()
                .any(|&op| self.fills(op))
        })
    }

    // The role that copies.

    fn produce(&mut self, region: RegionId, into: RegionId, map: &mut Map) {
        let (from, plan) = (self.from, self.plan);
        for (at, &id) in from.regions[region].ops.iter().enumerate() {
            if plan.needed.contains(&id) {
                self.copy(id, into, map);
            } else if self.fills(id) {
                self.skeleton(id, into, map);
            }
            for (i, group) in plan.groups.iter().enumerate() {
                if group.region == region && group.put == at {
                    self.put(i, into, map);
                }
            }
        }
    }

    fn skeleton(&mut self, id: OpId, into: RegionId, map: &mut Map) {
        let from = self.from;
        let op = &from.ops[id];
        let counted = matches!(op.kind, OpKind::For { .. });
        let mut regions = Vec::new();
        for &region in &op.regions {
            let new = self.to.new_region();
            if counted {
                let index = from.regions[region].args[0];
                let ty = from.ty(index).clone();
                map.insert(index, self.to.add_argument(new, ty));
            }
            self.produce(region, new, map);
            self.effect(OpKind::Yield, Vec::new(), new, op.span);
            regions.push(new);
        }
        let control = if counted { 3 } else { 1 };
        let operands = op.operands[..control].iter().map(|v| map[v]).collect();
        self.to.append(
            into,
            op.kind.clone(),
            operands,
            Vec::new(),
            regions,
            op.span,
        );
    }

    fn put(&mut self, group: usize, into: RegionId, map: &Map) {
        let mut operands = Vec::new();
        let mut sources = Vec::new();
        let mut span = Span::NONE;
        for &load in &self.plan.groups[group].loads {
            let op = &self.from.ops[load];
            let OpKind::Load { indices, cache } = &op.kind else {
                unreachable!("a group is of loads");
            };
            sources.push(PutSource::Slice {
                indices: indices.clone(),
                cache: *cache,
            });
            operands.extend(op.operands[..op.operands.len() - 1].iter().map(|v| map[v]));
            span = op.span;
        }
        let kind = RoleOp::Put {
            channel: self.channels[group],
            sources,
            part: false,
            within: false,
        };
        self.effect(OpKind::Role(kind), operands, into, span);
    }

    // The role that computes.

    fn consume(&mut self, region: RegionId, into: RegionId, map: &mut Map) {
        let (from, plan) = (self.from, self.plan);
        let own = |at: usize, of: fn(&super::plan::Group) -> usize| -> Vec<usize> {
            let groups = plan.groups.iter().enumerate();
            let here = groups.filter(|(_, g)| g.region == region && of(g) == at);
            here.map(|(i, _)| i).collect()
        };
        for (at, &id) in from.regions[region].ops.iter().enumerate() {
            for group in own(at, |g| g.first) {
                self.get(group, into, map);
            }
            let op = &from.ops[id];
            let shared = region == from.root && plan.shared.contains(&id);
            let passed = plan.groups.iter().any(|g| g.loads.contains(&id));
            match op.kind {
                _ if shared || passed => {}
                OpKind::Return => {}
                OpKind::Dot => self.product(id, into, map),
                _ if op.regions.is_empty() => {
                    self.to.append_copy(into, from, id, Vec::new(), map);
                }
                _ => self.control(id, into, map),
            }
            for group in own(at, |g| g.last) {
                self.release(group, into);
            }
        }
    }

    fn get(&mut self, group: usize, into: RegionId, map: &mut Map) {
        let loads = &self.plan.groups[group].loads;
        let results: Vec<ValueId> = loads.iter().map(|&l| self.from.ops[l].results[0]).collect();
        let types = results.iter().map(|&r| self.from.ty(r).clone()).collect();
        let kind = OpKind::Role(RoleOp::Get {
            channel: self.channels[group],
        });
        let span = self.from.ops[loads[0]].span;
        let op = self
            .to
            .append(into, kind, Vec::new(), types, Vec::new(), span);
        let new = self.to.ops[op].results.iter().copied();
        map.extend(results.into_iter().zip(new));
    }

    fn release(&mut self, group: usize, into: RegionId) {
        // With one slot, the next cannot be filled under a product that reads this one.
        let lag = self.plan.groups[group].chained;
        let lag = lag.filter(|_| self.depths[group] > 1);
        let kind = RoleOp::Release {
            channel: self.channels[group],
            lag,
        };
        self.role_op(kind, into);
    }

    fn product(&mut self, id: OpId, into: RegionId, map: &mut Map) {
        let op = &self.from.ops[id];
        let chained = self.plan.chained.contains_key(&id);
        let operands = match !chained && self.around.is_zero(op.operands[2]) {
            true => &op.operands[..2],
            false => &op.operands[..],
        };
        let operands = operands.iter().map(|v| map[v]).collect();
        let Type::Tile(tile) = self.from.ty(op.results[0]).clone() else {
            unreachable!("a product is a tile");
        };
        let kind = OpKind::Role(RoleOp::Mma);
        let types = vec![Type::Pending(tile)];
        let new = self
            .to
            .append(into, kind, operands, types, Vec::new(), op.span);
        let begun = self.to.ops[new].results[0];
        let value = match chained {
            true => begun,
            false => self.awaited(begun, into, op.span),
        };
        map.insert(op.results[0], value);
    }

    fn awaited(&mut self, value: ValueId, into: RegionId, span: Span) -> ValueId {
        let Type::Pending(tile) = self.to.ty(value).clone() else {
            return value;
        };
        let kind = OpKind::Role(RoleOp::Await { lag: None });
        let types = vec![Type::Tile(tile)];
        let op = self
            .to
            .append(into, kind, vec![value], types, Vec::new(), span);
        self.to.ops[op].results[0]
    }

    fn control(&mut self, id: OpId, into: RegionId, map: &mut Map) {
        let from = self.from;
        let op = &from.ops[id];
        let counted = matches!(op.kind, OpKind::For { .. });
        let in_flight = match counted {
            true => self.plan.in_flight(from, id),
            false => Default::default(),
        };
        let flying = |ty: &Type| match ty {
            Type::Tile(tile) => Type::Pending(tile.clone()),
            ty => ty.clone(),
        };
        let mut operands: Vec<ValueId> = op.operands.iter().map(|v| map[v]).collect();
        for &place in &in_flight {
            let init = operands[3 + place];
            let ty = flying(self.to.ty(init));
            let cast = self.to.append(
                into,
                OpKind::Cast,
                vec![init],
                vec![ty],
                Vec::new(),
                op.span,
            );
            operands[3 + place] = self.to.ops[cast].results[0];
        }
        let mut regions = Vec::new();
        for &region in &op.regions {
            let new = self.to.new_region();
            for (i, &arg) in from.regions[region].args.iter().enumerate() {
                let ty = from.ty(arg);
                let pending = counted && i > 0 && in_flight.contains(&(i - 1));
                let ty = if pending { flying(ty) } else { ty.clone() };
                map.insert(arg, self.to.add_argument(new, ty));
            }
            self.consume(region, new, map);
            regions.push(new);
        }
        let types = op.results.iter().enumerate().map(|(i, &r)| {
            let ty = from.ty(r);
            match in_flight.contains(&i) {
                true => flying(ty),
                false => ty.clone(),
            }
        });
        let types = types.collect();
        let new = self
            .to
            .append(into, op.kind.clone(), operands, types, regions, op.span);
        let results = self.to.ops[new].results.clone();
        for (&old, value) in op.results.iter().zip(results) {
            let value = self.awaited(value, into, op.span);
            map.insert(old, value);
        }
    }
}
