//! Which loops are pipelined, and what becomes of what is in them.

use std::collections::{BTreeMap, HashMap, HashSet};

use petgraph::{
    graph::{DiGraph, NodeIndex},
    visit::{Dfs, Reversed},
};
use tesserine_set::{Access, DType};

use super::{Kept, Load, Plan, Source, Store};
use crate::{
    ir::{
        Header, OpId, RegionId, ValueDef, ValueId,
        role::{Fill, OpKind, RoleBody, SharedTile, Strategy},
        tile::{self, Constant},
    },
    layout::{
        fragments::{self, Side},
        swizzle::SharedLayout,
    },
    passes::{access, divisibility::Divisibility},
    target::{Feature, Target},
};

/// Slots that no schedule asks for.
const MOST_STAGES: u32 = 4;

/// Bytes of shared memory that are left for scratch.
const SCRATCH: u32 = 4 << 10;

/// Words a thread from which on results of products and operands that stay the same do not all go into registers.
const MANY_WORDS: u32 = 170;

/// Words a thread that may wait in registers for a slot.
const MANY_WAITING: u32 = 48;

/// Words a thread of results of products from which on their operands are read when they are needed.
const CROWDED_WORDS: u32 = 160;

/// Bytes that an asynchronous copy moves at least.
const LEAST_COPY: u32 = 4;

pub(super) struct Planner<'a> {
    header: &'a Header,
    body: &'a RoleBody,
    warps: u32,
    /// Bytes of shared memory that others have.
    taken: u32,
    target: Target,
    known: Divisibility,
    /// The operations that use each value.
    users: HashMap<ValueId, Vec<OpId>>,
}

impl<'a> Planner<'a> {
    pub(super) fn new(
        header: &'a Header,
        body: &'a RoleBody,
        (warps, taken): (u32, u32),
        target: Target,
    ) -> Planner<'a> {
        let mut users: HashMap<ValueId, Vec<OpId>> = HashMap::new();
        for (id, op) in &body.ops {
            for &operand in &op.operands {
                users.entry(operand).or_default().push(id);
            }
        }
        Planner {
            header,
            body,
            warps,
            taken,
            target,
            known: Divisibility::of(header, body),
            users,
        }
    }

    pub(super) fn plans(&self) -> HashMap<OpId, Plan> {
        let mut plans = HashMap::new();
        for (id, op) in &self.body.ops {
            if let OpKind::Tile(tile::OpKind::For { rev: false, label }) = &op.kind
                && let Some(plan) = self.plan(op.regions[0], label.as_deref())
            {
                plans.insert(id, plan);
            }
        }
        plans
    }

    fn plan(&self, region: RegionId, label: Option<&str>) -> Option<Plan> {
        let graph = Dependences::of(self.body, region);
        let mut loads: Vec<Load> = Vec::new();
        let mut products = HashMap::new();
        let mut dropped = HashSet::new();
        for &id in &self.body.regions[region].ops {
            let op = &self.body.ops[id];
            let OpKind::Dot { strategy } = op.kind else {
                continue;
            };
            if self.body.ty(op.results[0]).ty.shape().len() != 2 {
                continue;
            }
            let mut sources = [None, None];
            for (i, source) in sources.iter_mut().enumerate() {
                let Some(chain) = self.chain(region, &graph, op.operands[i]) else {
                    continue;
                };
                let at = match loads.iter().position(|l| l.op == chain.load) {
                    Some(at) => at,
                    None => {
                        loads.push(self.load(chain.load, chain.address)?);
                        loads.len() - 1
                    }
                };
                self.widen(&mut loads[at].tile, strategy, id, i, chain.transposed);
                dropped.insert(chain.load);
                dropped.extend(chain.passed);
                *source = Some(Source {
                    store: Store::Ring(at as u32),
                    transposed: chain.transposed,
                    casts: chain.casts,
                });
            }
            products.insert(id, sources);
        }
        if loads.is_empty() {
            return None;
        }
        let mut slot = 0;
        for load in &mut loads {
            load.tile.offset = slot;
            slot += load
                .tile
                .layout
                .bytes()
                .next_multiple_of(SharedLayout::ALIGN);
        }
        let results: u32 = products.keys().map(|&id| self.words(id, None)).sum();
        let crowded = results > CROWDED_WORDS;
        let kept = self.kept(region, &graph, &mut products);
        let beside: u32 = kept
            .values()
            .map(|k| k.tile.layout.bytes().next_multiple_of(SharedLayout::ALIGN))
            .sum();
        let copied = self.target.has(Feature::CpAsync)
            && loads.iter().all(|l| {
                l.width * l.tile.elem.bits() / 8 >= LEAST_COPY && self.pads_with_zero(l.op)
            });
        let left = self.target.shared_per_block();
        let left = left.saturating_sub(beside + self.taken);
        // One product that is fed by its copies alone leaves nothing to convert or to reduce in the loop.
        let alone = products.len() == 1 && kept.is_empty() && !self.reduces(region);
        let scratch = if alone { 0 } else { SCRATCH };
        let fits = left.saturating_sub(scratch) / slot.max(1);
        let stages = self.header.schedule.stages_of(label);
        if fits == 0 && stages.is_none() {
            return None;
        }
        let mut direct = false;
        let (fill, depth) = if copied {
            let depth = stages.unwrap_or_else(|| MOST_STAGES.min(fits));
            (Fill::CpAsync, depth.max(1))
        } else {
            // What is loaded ahead lies in registers meanwhile, each narrow access in one of its own.
            let waiting: u32 = loads
                .iter()
                .map(|l| {
                    let elements = l.tile.shape[0] * l.tile.shape[1];
                    let word = l.width.min((32 / l.tile.elem.bits()).max(1));
                    elements / word * l.tile.elem.bits().div_ceil(32)
                })
                .sum();
            let many = waiting / (Target::WARP * self.warps) > MANY_WAITING;
            direct = many && loads.iter().all(|l| self.pads_with_zero(l.op));
            let most = if many { 1 } else { 2 };
            let depth = stages.unwrap_or_else(|| 2.min(fits));
            (Fill::Registers, depth.clamp(1, most))
        };
        // What served only the loads that are gone.
        for &id in self.body.regions[region].ops.iter().rev() {
            let op = &self.body.ops[id];
            let idle = op.regions.is_empty()
                && !op.results.is_empty()
                && !matches!(op.kind, OpKind::Dot { .. })
                && op.results.iter().all(|r| {
                    let users = self.users.get(r).map_or(&[][..], |u| u);
                    !users.is_empty() && users.iter().all(|u| dropped.contains(u))
                });
            if idle {
                dropped.insert(id);
            }
        }
        Some(Plan {
            fill,
            depth,
            loads,
            products,
            kept,
            crowded,
            direct,
            dropped,
        })
    }

    /// Words of a thread that the result of the product `id` takes, or an operand.
    fn words(&self, id: OpId, side: Option<Side>) -> u32 {
        let op = &self.body.ops[id];
        let OpKind::Dot { strategy } = op.kind else {
            return 0;
        };
        let ty = |v: ValueId| &self.body.ty(v).ty;
        let shape = ty(op.results[0]).shape();
        let result = fragments::result(strategy, [shape[0], shape[1]], self.warps, true);
        let (layout, value) = match side {
            None => (result, op.results[0]),
            Some(side) => {
                let k = ty(op.operands[0]).shape()[1];
                let value = op.operands[side as usize];
                (fragments::operand(strategy, &result, side, k), value)
            }
        };
        layout.registers() * ty(value).elem().bits().max(16) / 32
    }

    /// Whether something in `region` may go through scratch.
    fn reduces(&self, region: RegionId) -> bool {
        self.body.regions[region].ops.iter().any(|&id| {
            let op = &self.body.ops[id];
            matches!(op.kind, OpKind::Reduce { .. } | OpKind::Through { .. })
                || op.regions.iter().any(|&inner| self.reduces(inner))
        })
    }

    /// The operands of `products` in `region` that come from no copies and had better lie in shared memory; they become
    /// sources.
    fn kept(
        &self,
        region: RegionId,
        graph: &Dependences,
        products: &mut HashMap<OpId, [Option<Source>; 2]>,
    ) -> BTreeMap<ValueId, Kept> {
        let mut kept: BTreeMap<ValueId, Kept> = BTreeMap::new();
        let results: u32 = products.keys().map(|&id| self.words(id, None)).sum();
        for &id in &self.body.regions[region].ops {
            let Some(sources) = products.get_mut(&id) else {
                continue;
            };
            let op = &self.body.ops[id];
            let OpKind::Dot { strategy } = op.kind else {
                continue;
            };
            for (side, source) in sources.iter_mut().enumerate() {
                let value = op.operands[side];
                let Some(def) = self.body.defining_op(value) else {
                    continue;
                };
                let inside = graph.nodes.contains_key(&def);
                let constant = match self.body.ops[def].kind {
                    OpKind::Tile(tile::OpKind::Iota) => true,
                    OpKind::Tile(tile::OpKind::Broadcast) => {
                        let from = self.body.ops[def].operands[0];
                        self.body.ty(from).ty.shape().is_empty()
                    }
                    _ => false,
                };
                let serves = match strategy {
                    Strategy::MmaSync(_) => {
                        let own = self.words(id, Some([Side::Left, Side::Right][side]));
                        !inside && results + own > MANY_WORDS && own > 8
                    }
                    Strategy::Fma => true,
                };
                let elem = self.body.ty(value).ty.elem();
                if source.is_some() || constant || !serves || elem.bits() < 8 {
                    continue;
                }
                let shape = self.body.ty(value).ty.shape();
                let entry = kept.entry(value).or_insert_with(|| Kept {
                    tile: SharedTile {
                        elem,
                        shape: [shape[0], shape[1]],
                        layout: SharedLayout::new(shape[0], shape[1], elem.bits() / 8),
                        offset: 0,
                    },
                    inside,
                });
                self.widen(&mut entry.tile, strategy, id, side, false);
                *source = Some(Source {
                    store: Store::Kept(value),
                    transposed: false,
                    casts: Vec::new(),
                });
            }
        }
        kept
    }

    /// The way from a load in `region` to the operand `value` of a product, if it may go through a channel.
    fn chain(&self, region: RegionId, graph: &Dependences, value: ValueId) -> Option<Chain> {
        let mut transposed = false;
        let mut casts = Vec::new();
        let mut passed = Vec::new();
        let mut at = value;
        loop {
            let id = self.body.defining_op(at)?;
            let op = &self.body.ops[id];
            if !graph.nodes.contains_key(&id) || !self.serves_products(at) {
                return None;
            }
            match &op.kind {
                OpKind::Tile(tile::OpKind::Permute(perm)) if perm[..] == [1, 0] => {
                    transposed = !transposed;
                }
                OpKind::Tile(tile::OpKind::Cast) => casts.push(self.body.ty(at).ty.elem()),
                OpKind::Load { .. } => {
                    let address = self.address(region, graph, id)?;
                    casts.reverse();
                    return Some(Chain {
                        load: id,
                        address,
                        transposed,
                        casts,
                        passed,
                    });
                }
                _ => return None,
            }
            passed.push(id);
            at = op.operands[0];
        }
    }

    /// Whether all that uses `value` in the end are operands of products, in its own region.
    fn serves_products(&self, value: ValueId) -> bool {
        let users = self.users.get(&value).map_or(&[][..], |u| u);
        users.iter().all(|&id| {
            let op = &self.body.ops[id];
            match &op.kind {
                OpKind::Dot { .. } => op.operands[2] != value,
                OpKind::Tile(tile::OpKind::Permute(perm)) if perm[..] == [1, 0] => {
                    self.serves_products(op.results[0])
                }
                OpKind::Tile(tile::OpKind::Cast) => self.serves_products(op.results[0]),
                _ => false,
            }
        }) && self.same_region(value, users)
    }

    fn same_region(&self, value: ValueId, users: &[OpId]) -> bool {
        let Some(def) = self.body.defining_op(value) else {
            return false;
        };
        self.body
            .regions
            .values()
            .find(|r| r.ops.contains(&def))
            .is_some_and(|r| users.iter().all(|u| r.ops.contains(u)))
    }

    /// The operations that compute where the load `id` reads; `None` if they cannot be done for another iteration.
    fn address(&self, region: RegionId, graph: &Dependences, id: OpId) -> Option<Vec<OpId>> {
        let op = &self.body.ops[id];
        let OpKind::Load { indices, .. } = &op.kind else {
            return None;
        };
        let ty = &self.body.ty(op.results[0]).ty;
        let tile::Type::View(view) = &self.body.ty(op.operands[0]).ty else {
            return None;
        };
        let suits = view.access == Access::Read
            && view.elem == ty.elem()
            && ty.elem().bits() >= 8
            && ty.shape().len() == 2
            && indices.iter().filter(|i| i.extent().is_some()).count() == 2;
        if !suits {
            return None;
        }
        let slice = graph.before(id);
        let args = &self.body.regions[region].args;
        let repeats = |&id: &OpId| {
            let op = &self.body.ops[id];
            let of_read_only = matches!(
                op.operands.first().map(|&v| &self.body.ty(v).ty),
                Some(tile::Type::View(v)) if v.access == Access::Read
            );
            let pure = match &op.kind {
                OpKind::Tile(
                    tile::OpKind::If
                    | tile::OpKind::For { .. }
                    | tile::OpKind::While
                    | tile::OpKind::Assert { .. }
                    | tile::OpKind::Debug { .. },
                ) => false,
                OpKind::Tile(_) => true,
                // Numbers in a table, which no one changes.
                OpKind::Load { .. } => of_read_only,
                _ => false,
            };
            pure && !op.operands.iter().any(|v| args[1..].contains(v))
        };
        let carried = op.operands.iter().any(|v| args[1..].contains(v));
        (!carried && slice.iter().all(repeats)).then_some(slice)
    }

    fn load(&self, id: OpId, address: Vec<OpId>) -> Option<Load> {
        let op = &self.body.ops[id];
        let access = access::of(self.header, self.body, &self.known, op)?;
        let ty = &self.body.ty(op.results[0]).ty;
        let &[rows, columns] = ty.shape() else {
            return None;
        };
        let elem = ty.elem();
        let width = if access.contiguous {
            access.width.min(1 << columns.trailing_zeros())
        } else {
            1
        };
        Some(Load {
            op: id,
            width,
            tile: SharedTile {
                elem,
                shape: [rows, columns],
                layout: SharedLayout::new(rows, columns, elem.bits() / 8),
                offset: 0,
            },
            address,
        })
    }

    /// Makes room for the padding that the fragments of operand `side` of the product `id` have.
    fn widen(
        &self,
        tile: &mut SharedTile,
        strategy: Strategy,
        id: OpId,
        side: usize,
        transposed: bool,
    ) {
        let result = self.body.ty(self.body.ops[id].results[0]).ty.shape();
        let shape = [result[0], result[1]];
        let padded = [false, true]
            .map(|chained| fragments::result(strategy, shape, self.warps, chained).padded()[side])
            .into_iter()
            .fold(0, u32::max);
        let element = tile.elem.bits() / 8;
        // The dimension that the result has too: rows of the left operand, columns of the right one.
        if (side == 0) != transposed {
            let rows = tile.layout.rows.max(padded);
            tile.layout = SharedLayout {
                rows,
                ..tile.layout
            };
        } else {
            let columns = padded.max(tile.layout.pitch / element);
            tile.layout = SharedLayout::new(tile.layout.rows, columns, element);
        }
    }

    fn pads_with_zero(&self, id: OpId) -> bool {
        let pad = self.body.ops[id].operands.last();
        let constant = pad
            .and_then(|&v| self.body.defining_op(v))
            .map(|op| &self.body.ops[op].kind);
        match constant {
            Some(OpKind::Tile(tile::OpKind::Constant(Constant::Float(x, _)))) => x.to_bits() == 0,
            Some(OpKind::Tile(tile::OpKind::Constant(Constant::Int(x, _)))) => *x == 0,
            Some(OpKind::Tile(tile::OpKind::Constant(Constant::Any(_)))) => true,
            _ => false,
        }
    }
}

/// From a load to a product.
struct Chain {
    load: OpId,
    address: Vec<OpId>,
    transposed: bool,
    casts: Vec<DType>,
    /// Permutes and casts.
    passed: Vec<OpId>,
}

/// Which operations of a region need which: an edge from what defines a value to what uses it, also deep inside.
struct Dependences {
    graph: DiGraph<OpId, ()>,
    nodes: HashMap<OpId, NodeIndex>,
    order: HashMap<OpId, usize>,
}

impl Dependences {
    fn of(body: &RoleBody, region: RegionId) -> Dependences {
        let mut graph = DiGraph::new();
        let mut nodes = HashMap::new();
        let mut order = HashMap::new();
        for (i, &id) in body.regions[region].ops.iter().enumerate() {
            nodes.insert(id, graph.add_node(id));
            order.insert(id, i);
        }
        for &id in &body.regions[region].ops {
            let mut operands = Vec::new();
            used(body, id, &mut operands);
            for value in operands {
                if let ValueDef::Result { op, .. } = body.values[value].def
                    && let Some(&def) = nodes.get(&op)
                    && op != id
                {
                    graph.update_edge(def, nodes[&id], ());
                }
            }
        }
        Dependences {
            graph,
            nodes,
            order,
        }
    }

    /// All that `id` needs, in textual order.
    fn before(&self, id: OpId) -> Vec<OpId> {
        let Some(&start) = self.nodes.get(&id) else {
            return Vec::new();
        };
        let reversed = Reversed(&self.graph);
        let mut walk = Dfs::new(reversed, start);
        let mut found = Vec::new();
        while let Some(node) = walk.next(reversed) {
            if node != start {
                found.push(self.graph[node]);
            }
        }
        found.sort_by_key(|id| self.order[id]);
        found
    }
}

/// The operands of `id` and of all operations within it.
fn used(body: &RoleBody, id: OpId, out: &mut Vec<ValueId>) {
    let op = &body.ops[id];
    out.extend(&op.operands);
    for &region in &op.regions {
        for &inner in &body.regions[region].ops {
            used(body, inner, out);
        }
    }
}
