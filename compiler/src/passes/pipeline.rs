//! Passes what products in loops read through channels that copies fill some iterations ahead.
//!
//! A counted loop is pipelined if an operand of a product directly in it is a slice of a view that the kernel only reads
//! (perhaps transposed and cast on the way), that serves products alone, and whose place follows from the loop's index
//! and from what stands outside of the loop. That place is a backward slice of the loop's dependence graph; it is computed
//! once more for the iteration that is copied. Where the target copies asynchronously and alignment allows it, the
//! channel has as many slots as the schedule has stages (by default up to four, by shared memory):
//!
//! ```text
//! copies of the first depth − 1 iterations, one group each
//! loop: wait for this iteration's group; barrier; begin the copy that is depth − 1 iterations ahead; products
//! ```
//!
//! Elsewhere it has two, filled from registers: loaded before the products of the iteration before, written after them.
//! The barrier at the head of an iteration orders both what it reads and what it overwrites: the slot read in the
//! iteration before. Products whose operands both come from channels are cut along K, and fragments are read one step
//! ahead, so that those of two steps live at a time.
//!
//! With one product in the loop, waiting (or writing) and barrier move in front of the last step's product of the iteration
//! before, and the first step's operands are read there and carried along: on an H200 that brings `gemm_nt` from 0.49 to
//! 0.59 of cuBLAS.
//!
//! An operand that does not come from such a slice is cut along K in registers. Where it is the same in all iterations and
//! takes many registers, it is kept in shared memory from its definition on; and so is, for an iteration, what plain
//! multiplications take, whose threads would each hold all of K.
//!
//! Where a slice lies may be said by index tiles, which are then worked out once more for the iteration that is copied.
//!
//! Invariants: an iteration has one barrier (two if there is one slot only); all copies have arrived behind the loop;
//! what threads still read from the slots is ordered against later users of the same bytes by `insert_barriers`.

use std::collections::{BTreeMap, HashMap, HashSet};

use cranelift_entity::PrimaryMap;
use petgraph::{
    graph::{DiGraph, NodeIndex},
    visit::{Dfs, Reversed},
};
use tesserine_set::{Access, DType};

use super::{access, divisibility::Divisibility};
use crate::{
    diagnostics::Diagnostics,
    ir::{
        Header, OpId, RegionId, ValueDef, ValueId,
        role::{
            Buffer, BufferId, Channel, ChannelId, Fill, Kernel, OpKind, RoleBody, SharedTile,
            Strategy, Type,
        },
        tile::{self, BinaryOp, CompareOp, Constant, Index},
    },
    layout::{
        fragments::{self, Side},
        swizzle::SharedLayout,
    },
    span::Span,
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

pub fn run(kernel: &mut Kernel, target: Target) -> Result<(), Diagnostics> {
    let mut buffers = std::mem::take(&mut kernel.buffers);
    let mut channels = std::mem::take(&mut kernel.channels);
    for role in &mut kernel.roles {
        let plans = Planner::new(&kernel.header, &role.body, role.warps, target).plans();
        if plans.is_empty() {
            continue;
        }
        let mut rewrite = Rewrite {
            from: &role.body,
            plans: &plans,
            ordered: kernel.header.persistent,
            to: RoleBody::new(),
            map: HashMap::new(),
            kept: HashMap::new(),
            buffers: &mut buffers,
            channels: &mut channels,
        };
        rewrite.keep_from_outside();
        let root = rewrite.to.root;
        rewrite.region(role.body.root, root, 0);
        role.body = rewrite.to;
    }
    kernel.buffers = buffers;
    kernel.channels = channels;
    Ok(())
}

/// What becomes of a loop.
struct Plan {
    fill: Fill,
    depth: u32,
    loads: Vec<Load>,
    /// By product: where its operands come from, if from the channel.
    products: HashMap<OpId, [Option<Source>; 2]>,
    /// Operands that are kept in shared memory, by value.
    kept: BTreeMap<ValueId, Kept>,
    /// The results of products leave no registers to read operands ahead into.
    crowded: bool,
    /// Slots filled from registers are filled a few words at a time.
    direct: bool,
    /// Operations of the loop's region that are no longer there.
    dropped: HashSet<OpId>,
}

/// An operand of products in shared memory that is no slice of a view.
#[derive(Clone)]
struct Kept {
    tile: SharedTile,
    /// Made in each iteration; else once, before the loop.
    inside: bool,
}

/// Where an operand lies.
#[derive(Clone, Copy, Debug)]
enum Store {
    /// In the slots that loads fill, as the tile of this number.
    Ring(u32),
    Kept(ValueId),
}

/// A load that goes through the channel, as the tile of its number.
struct Load {
    op: OpId,
    /// Elements that one copy moves.
    width: u32,
    tile: SharedTile,
    /// The operations of the region that its place is computed by, in order.
    address: Vec<OpId>,
}

/// An operand of a product.
#[derive(Clone, Debug)]
struct Source {
    store: Store,
    transposed: bool,
    /// Element types that it is cast to on the way, one after another.
    casts: Vec<DType>,
}

struct Planner<'a> {
    header: &'a Header,
    body: &'a RoleBody,
    warps: u32,
    target: Target,
    known: Divisibility,
    /// The operations that use each value.
    users: HashMap<ValueId, Vec<OpId>>,
}

impl<'a> Planner<'a> {
    fn new(header: &'a Header, body: &'a RoleBody, warps: u32, target: Target) -> Planner<'a> {
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
            target,
            known: Divisibility::of(header, body),
            users,
        }
    }

    fn plans(&self) -> HashMap<OpId, Plan> {
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
        let left = self.target.shared_per_block().saturating_sub(beside);
        let fits = left.saturating_sub(SCRATCH) / slot.max(1);
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

/// Writes the new body.
struct Rewrite<'a> {
    from: &'a RoleBody,
    plans: &'a HashMap<OpId, Plan>,
    /// Whether the whole body is done again and again.
    ordered: bool,
    to: RoleBody,
    map: HashMap<ValueId, ValueId>,
    /// Where values lie that are kept in shared memory.
    kept: HashMap<ValueId, ChannelId>,
    buffers: &'a mut PrimaryMap<BufferId, Buffer>,
    channels: &'a mut PrimaryMap<ChannelId, Channel>,
}

/// A loop that is being written.
struct Loop<'a> {
    plan: &'a Plan,
    channel: ChannelId,
    /// The index that the loop's argument stood for.
    index: ValueId,
}

impl Rewrite<'_> {
    /// A channel of one slot for a tile.
    fn alone(&mut self, tile: SharedTile) -> ChannelId {
        let buffer = self.buffers.next_key();
        let channel = self.channels.push(Channel {
            tiles: vec![tile],
            depth: 1,
            fill: Fill::Registers,
            buffer,
        });
        self.buffers.push(Buffer {
            bytes: self.channels[channel].slot_bytes(),
            align: SharedLayout::ALIGN,
            offset: None,
        });
        channel
    }

    /// Makes channels for what loops find in shared memory: one for each value, with room for all of its uses.
    fn keep_from_outside(&mut self) {
        let mut tiles: BTreeMap<ValueId, SharedTile> = BTreeMap::new();
        for plan in self.plans.values() {
            for (&value, kept) in plan.kept.iter().filter(|(_, k)| !k.inside) {
                let tile = tiles.entry(value).or_insert_with(|| kept.tile.clone());
                let element = tile.elem.bits() / 8;
                let rows = tile.layout.rows.max(kept.tile.layout.rows);
                let columns = tile.layout.pitch.max(kept.tile.layout.pitch) / element;
                tile.layout = SharedLayout::new(rows, columns, element);
            }
        }
        for (value, tile) in tiles {
            let channel = self.alone(tile);
            self.kept.insert(value, channel);
        }
    }

    /// Puts those results of `id` into shared memory that loops want there. `again`: this happens more than once.
    fn keep(&mut self, id: OpId, into: RegionId, again: bool) {
        let op = &self.from.ops[id];
        for &result in &op.results {
            let Some(&channel) = self.kept.get(&result) else {
                continue;
            };
            if again {
                self.effect(into, OpKind::Barrier, Vec::new(), op.span);
            }
            self.write(channel, 0, result, into, op.span);
        }
    }

    /// Writes a value to slot 0 of a channel.
    fn write(&mut self, channel: ChannelId, tile: u32, value: ValueId, into: RegionId, span: Span) {
        let slot = self.int(into, 0);
        let operands = vec![self.map[&value], slot];
        self.effect(into, OpKind::WriteShared { channel, tile }, operands, span);
    }

    fn region(&mut self, region: RegionId, into: RegionId, loops: u32) {
        self.arguments(region, into);
        for &id in &self.from.regions[region].ops {
            self.op(id, into, loops);
        }
    }

    fn arguments(&mut self, region: RegionId, into: RegionId) {
        for &arg in &self.from.regions[region].args {
            let new = self.to.add_argument(into, self.from.ty(arg).clone());
            self.map.insert(arg, new);
        }
    }

    fn op(&mut self, id: OpId, into: RegionId, loops: u32) {
        if let Some(plan) = self.plans.get(&id) {
            self.pipelined(id, plan, into, loops);
            self.keep(id, into, self.ordered || loops > 0);
            return;
        }
        self.made(id, into, loops);
        self.keep(id, into, self.ordered || loops > 0);
    }

    /// `id` in a loop of its own or none, without what becomes of its results.
    fn made(&mut self, id: OpId, into: RegionId, loops: u32) {
        let op = &self.from.ops[id];
        let is_loop = matches!(
            op.kind,
            OpKind::Tile(tile::OpKind::For { .. } | tile::OpKind::While)
        );
        let regions = op
            .regions
            .iter()
            .map(|&inner| {
                let new = self.to.new_region();
                self.region(inner, new, loops + u32::from(is_loop));
                new
            })
            .collect();
        self.copy(id, into, regions);
    }

    /// Appends `id` with the operands as mapped, and maps its results.
    fn copy(&mut self, id: OpId, into: RegionId, regions: Vec<RegionId>) -> OpId {
        self.to
            .append_copy(into, self.from, id, regions, &mut self.map)
    }

    fn effect(&mut self, into: RegionId, kind: OpKind, operands: Vec<ValueId>, span: Span) {
        self.to
            .append(into, kind, operands, Vec::new(), Vec::new(), span);
    }

    fn value(
        &mut self,
        into: RegionId,
        kind: OpKind,
        operands: Vec<ValueId>,
        ty: tile::Type,
        span: Span,
    ) -> ValueId {
        let ty = Type { ty, layout: None };
        let op = self
            .to
            .append(into, kind, operands, vec![ty], Vec::new(), span);
        self.to.ops[op].results[0]
    }

    fn scalar(
        &mut self,
        into: RegionId,
        kind: tile::OpKind,
        operands: Vec<ValueId>,
        elem: DType,
    ) -> ValueId {
        let ty = tile::Type::Scalar(elem);
        self.value(into, OpKind::Tile(kind), operands, ty, Span::NONE)
    }

    fn int(&mut self, into: RegionId, value: i64) -> ValueId {
        let constant = Constant::Int(value, DType::I64);
        self.scalar(
            into,
            tile::OpKind::Constant(constant),
            Vec::new(),
            DType::I64,
        )
    }

    fn binary(&mut self, into: RegionId, op: BinaryOp, a: ValueId, b: ValueId) -> ValueId {
        self.scalar(into, tile::OpKind::Binary(op), vec![a, b], DType::I64)
    }

    /// `a` if `value` is `this`, else `b`.
    fn choose(
        &mut self,
        into: RegionId,
        value: ValueId,
        this: ValueId,
        a: ValueId,
        b: ValueId,
    ) -> ValueId {
        let compare = tile::OpKind::Compare(CompareOp::Eq);
        let same = self.scalar(into, compare, vec![value, this], DType::Bool);
        self.scalar(into, tile::OpKind::Select, vec![same, a, b], DType::I64)
    }

    /// `index + iterations * step`
    fn ahead(&mut self, into: RegionId, index: ValueId, step: ValueId, iterations: u32) -> ValueId {
        if iterations == 0 {
            return index;
        }
        let count = self.int(into, i64::from(iterations));
        let by = self.binary(into, BinaryOp::Mul, count, step);
        self.binary(into, BinaryOp::Add, index, by)
    }

    fn pipelined(&mut self, id: OpId, plan: &Plan, into: RegionId, loops: u32) {
        let op = &self.from.ops[id];
        let region = op.regions[0];
        let span = op.span;
        let [lo, hi, step] = [0, 1, 2].map(|i| self.map[&op.operands[i]]);
        let buffer = self.buffers.next_key();
        let channel = self.channels.push(Channel {
            tiles: plan.loads.iter().map(|l| l.tile.clone()).collect(),
            depth: plan.depth,
            fill: plan.fill,
            buffer,
        });
        self.buffers.push(Buffer {
            bytes: self.channels[channel].slot_bytes() * plan.depth,
            align: SharedLayout::ALIGN,
            offset: None,
        });
        for (&value, kept) in plan.kept.iter().filter(|(_, k)| k.inside) {
            let channel = self.alone(kept.tile.clone());
            self.kept.insert(value, channel);
        }
        let argument = self.from.regions[region].args[0];
        let one_slot = plan.depth == 1;
        let copied = plan.fill == Fill::CpAsync;
        let fill = |index: ValueId| Loop {
            plan,
            channel,
            index,
        };

        // Threads may still read what an outer loop's last iteration left in the slots.
        if (self.ordered || loops > 0) && !one_slot {
            self.effect(into, OpKind::Barrier, Vec::new(), span);
        }
        for iteration in 0..plan.depth - 1 {
            let index = self.ahead(into, lo, step, iteration);
            let slot = self.int(into, i64::from(iteration));
            if copied {
                let less = tile::OpKind::Compare(CompareOp::Lt);
                let live = self.scalar(into, less, vec![index, hi], DType::Bool);
                self.copies(&fill(index), argument, into, slot, live, span);
            } else {
                self.filled(&fill(index), argument, into, slot, span);
            }
        }

        let mut inits: Vec<ValueId> = op.operands[3..].iter().map(|v| self.map[v]).collect();
        inits.push(self.int(into, 0));
        // The first step's operands are carried along where that hides how long they take to read.
        let leads = !one_slot && self.leads(plan);
        let pending = plan.depth.saturating_sub(2);
        if leads {
            if copied {
                self.effect(into, OpKind::WaitCopies { pending }, Vec::new(), span);
            }
            self.effect(into, OpKind::Barrier, Vec::new(), span);
            let slot = self.int(into, 0);
            for (&id, sources) in &plan.products {
                inits.extend(self.operands(&fill(lo), id, sources, 0, into, slot));
            }
        }
        let inner = self.to.new_region();
        self.arguments(region, inner);
        let slot_type = Type {
            ty: tile::Type::Scalar(DType::I64),
            layout: None,
        };
        let slot = self.to.add_argument(inner, slot_type);
        let carried: Vec<ValueId> = inits[op.operands.len() - 2..]
            .iter()
            .map(|&v| {
                let ty = self.to.ty(v).clone();
                self.to.add_argument(inner, ty)
            })
            .collect();
        let carried = <[ValueId; 2]>::try_from(carried).ok();
        let index = self.map[&argument];
        let last = self.int(inner, i64::from(plan.depth) - 1);
        let one = self.int(inner, 1);
        let zero = self.int(inner, 0);

        // The head of an iteration.
        let mut begin = Begin::Nothing;
        if one_slot {
            self.effect(inner, OpKind::Barrier, Vec::new(), span);
            if copied {
                let yes = tile::OpKind::Constant(Constant::Bool(true));
                let live = self.scalar(inner, yes, Vec::new(), DType::Bool);
                self.copies(&fill(index), argument, inner, zero, live, span);
                self.effect(inner, OpKind::WaitCopies { pending: 0 }, Vec::new(), span);
            } else {
                self.filled(&fill(index), argument, inner, zero, span);
            }
            self.effect(inner, OpKind::Barrier, Vec::new(), span);
        } else {
            if copied && !leads {
                self.effect(inner, OpKind::WaitCopies { pending }, Vec::new(), span);
            }
            if !leads {
                self.effect(inner, OpKind::Barrier, Vec::new(), span);
            }
            begin = if copied { Begin::Copies } else { Begin::Loads };
        }
        // The slot of the iteration before is the one to be filled.
        let before = self.binary(inner, BinaryOp::Sub, slot, one);
        let filled = self.choose(inner, slot, zero, last, before);
        let ahead = self.ahead(inner, index, step, plan.depth - 1);
        let less = tile::OpKind::Compare(CompareOp::Lt);
        let live = self.scalar(inner, less, vec![ahead, hi], DType::Bool);
        let after = self.binary(inner, BinaryOp::Add, slot, one);
        let next_slot = self.choose(inner, slot, last, zero, after);

        let mut next_carried = None;
        let mut prefetched = Vec::new();
        for &id in &self.from.regions[region].ops {
            if plan.dropped.contains(&id) {
                continue;
            }
            if let Some(sources) = plan.products.get(&id) {
                let next = std::mem::replace(&mut begin, Begin::Nothing);
                let start = |this: &mut Self| match next {
                    Begin::Copies => {
                        this.copies(&fill(ahead), argument, inner, filled, live, span);
                        Vec::new()
                    }
                    Begin::Loads => this.loaded(&fill(ahead), argument, inner),
                    Begin::Nothing => Vec::new(),
                };
                let finish = |this: &mut Self, tiles: Vec<ValueId>| {
                    if copied {
                        this.effect(inner, OpKind::WaitCopies { pending }, Vec::new(), span);
                    } else {
                        this.writes(&fill(ahead), inner, &tiles, filled);
                    }
                    this.effect(inner, OpKind::Barrier, Vec::new(), span);
                    this.operands(&fill(index), id, sources, 0, inner, next_slot)
                };
                let carried = carried.map(|c| (c, finish));
                let (tiles, next) =
                    self.product(id, &fill(index), sources, inner, slot, start, carried);
                prefetched.extend(tiles);
                next_carried = next;
                if plan.kept.contains_key(&self.from.ops[id].results[0]) {
                    self.keep(id, inner, false);
                    self.effect(inner, OpKind::Barrier, Vec::new(), self.from.ops[id].span);
                }
                continue;
            }
            if matches!(self.from.ops[id].kind, OpKind::Tile(tile::OpKind::Yield)) {
                if !prefetched.is_empty() {
                    let tiles = std::mem::take(&mut prefetched);
                    self.writes(&fill(ahead), inner, &tiles, filled);
                }
                let mut values: Vec<ValueId> = self.from.ops[id]
                    .operands
                    .iter()
                    .map(|v| self.map[v])
                    .collect();
                values.push(next_slot);
                values.extend(next_carried.into_iter().flatten());
                let kind = OpKind::Tile(tile::OpKind::Yield);
                self.effect(inner, kind, values, self.from.ops[id].span);
                continue;
            }
            // What an iteration keeps, threads have read before its head's barrier.
            if self.from.ops[id]
                .results
                .iter()
                .any(|r| plan.kept.contains_key(r))
            {
                self.made(id, inner, loops + 1);
                self.keep(id, inner, false);
                self.effect(inner, OpKind::Barrier, Vec::new(), self.from.ops[id].span);
            } else {
                self.op(id, inner, loops + 1);
            }
        }

        let types = inits.iter().map(|&v| self.to.ty(v).clone()).collect();
        let operands = [vec![lo, hi, step], inits].concat();
        let new = self
            .to
            .append(into, op.kind.clone(), operands, types, vec![inner], span);
        for (&old, &new) in op.results.iter().zip(&self.to.ops[new].results) {
            self.map.insert(old, new);
        }
        if copied && !one_slot {
            self.effect(into, OpKind::WaitCopies { pending: 0 }, Vec::new(), span);
        }
    }

    /// The operands of the load `load`, for iteration `at.index`; maps what they are worked out by, which is not `done` yet.
    fn place(
        &mut self,
        at: &Loop<'_>,
        load: &Load,
        argument: ValueId,
        into: RegionId,
        done: &mut HashSet<OpId>,
    ) -> Vec<ValueId> {
        self.map.insert(argument, at.index);
        for &id in &load.address {
            if done.insert(id) {
                self.copy(id, into, Vec::new());
            }
        }
        let operands = &self.from.ops[load.op].operands;
        operands.iter().map(|v| self.map[v]).collect()
    }

    /// Begins the copies of an iteration.
    fn copies(
        &mut self,
        at: &Loop<'_>,
        argument: ValueId,
        into: RegionId,
        slot: ValueId,
        live: ValueId,
        span: Span,
    ) {
        let saved = self.map.clone();
        let mut done = HashSet::new();
        for (i, load) in at.plan.loads.iter().enumerate() {
            let mut operands = self.place(at, load, argument, into, &mut done);
            operands.pop();
            operands.extend([slot, live]);
            let op = &self.from.ops[load.op];
            let (channel, tile) = (at.channel, i as u32);
            let (indices, width) = (indices(&op.kind), load.width);
            let kind = match at.plan.fill {
                Fill::CpAsync => OpKind::CopyAsync {
                    channel,
                    tile,
                    indices,
                    width,
                },
                Fill::Registers => OpKind::Copy {
                    channel,
                    tile,
                    indices,
                    width,
                },
            };
            self.effect(into, kind, operands, op.span);
        }
        self.map = saved;
        if at.plan.fill == Fill::CpAsync {
            self.effect(into, OpKind::CommitCopies, Vec::new(), span);
        }
    }

    /// Loads the tiles of an iteration into registers, one after another, and gives each to `then`.
    fn loads(
        &mut self,
        at: &Loop<'_>,
        argument: ValueId,
        into: RegionId,
        mut then: impl FnMut(&mut Self, usize, ValueId),
    ) {
        let saved = self.map.clone();
        let mut done = HashSet::new();
        for (i, load) in at.plan.loads.iter().enumerate() {
            let operands = self.place(at, load, argument, into, &mut done);
            let op = &self.from.ops[load.op];
            let ty = self.from.ty(op.results[0]).ty.clone();
            let tile = self.value(into, op.kind.clone(), operands, ty, op.span);
            then(self, i, tile);
        }
        self.map = saved;
    }

    /// Fills a slot with the tiles of an iteration, one after another.
    fn filled(
        &mut self,
        at: &Loop<'_>,
        argument: ValueId,
        into: RegionId,
        slot: ValueId,
        span: Span,
    ) {
        if !at.plan.direct {
            self.loads(at, argument, into, |this, i, tile| {
                this.write_tile(at, into, i, tile, slot);
            });
            return;
        }
        let yes = tile::OpKind::Constant(Constant::Bool(true));
        let live = self.scalar(into, yes, Vec::new(), DType::Bool);
        self.copies(at, argument, into, slot, live, span);
    }

    fn loaded(&mut self, at: &Loop<'_>, argument: ValueId, into: RegionId) -> Vec<ValueId> {
        let mut tiles = Vec::new();
        self.loads(at, argument, into, |_, _, tile| tiles.push(tile));
        tiles
    }

    fn writes(&mut self, at: &Loop<'_>, into: RegionId, tiles: &[ValueId], slot: ValueId) {
        for (i, &tile) in tiles.iter().enumerate() {
            self.write_tile(at, into, i, tile, slot);
        }
    }

    fn write_tile(
        &mut self,
        at: &Loop<'_>,
        into: RegionId,
        i: usize,
        tile: ValueId,
        slot: ValueId,
    ) {
        let kind = OpKind::WriteShared {
            channel: at.channel,
            tile: i as u32,
        };
        let span = self.from.ops[at.plan.loads[i].op].span;
        self.effect(into, kind, vec![tile, slot], span);
    }

    /// Whether the loop has one product, cut into steps that are read ahead.
    fn leads(&self, plan: &Plan) -> bool {
        let mut products = plan.products.iter();
        match (products.next(), products.next()) {
            (Some((&id, sources)), None) => {
                let op = &self.from.ops[id];
                let k = self.from.ty(op.operands[0]).ty.shape()[1];
                matches!(op.kind, OpKind::Dot { strategy } if lead(strategy) > 0
                    && sources.iter().all(|s| matches!(s, Some(s) if matches!(s.store, Store::Ring(_))))
                    && depth(strategy, k) < k)
            }
            _ => false,
        }
    }

    /// A product in steps of K. `start` is done once the first step's operands have been read. Operands of the first
    /// step that came from the iteration before are given with what reads them for the next one, which is done before the
    /// last step's product and takes what `start` loaded. What it has not taken is returned, then the operands.
    #[expect(
        clippy::too_many_arguments,
        reason = "each says one thing of the product"
    )]
    fn product(
        &mut self,
        id: OpId,
        at: &Loop<'_>,
        sources: &[Option<Source>; 2],
        into: RegionId,
        slot: ValueId,
        start: impl FnOnce(&mut Self) -> Vec<ValueId>,
        carried: Option<(
            [ValueId; 2],
            impl FnOnce(&mut Self, Vec<ValueId>) -> [ValueId; 2],
        )>,
    ) -> (Vec<ValueId>, Option<[ValueId; 2]>) {
        let op = &self.from.ops[id];
        let OpKind::Dot { strategy } = op.kind else {
            unreachable!("products are planned for `dot`s only");
        };
        let k = self.from.ty(op.operands[0]).ty.shape()[1];
        let steps = if is_cut(strategy, sources) {
            k / depth(strategy, k)
        } else {
            1
        };
        let lead = if at.plan.crowded { 0 } else { lead(strategy) };
        let (first, mut finish) = carried.unzip();
        let mut read: Vec<[ValueId; 2]> = first.into_iter().collect();
        let mut start = Some(start);
        let mut loaded = Vec::new();
        let mut next = None;
        let mut acc = self.map[&op.operands[2]];
        for i in 0..steps {
            while (read.len() as u32) < steps.min(i + 1 + lead) {
                if read.len() == 1
                    && let Some(start) = start.take()
                {
                    loaded = start(self);
                }
                let step = read.len() as u32;
                read.push(self.operands(at, id, sources, step, into, slot));
            }
            if let Some(start) = start.take() {
                loaded = start(self);
            }
            if i + 1 == steps
                && let Some(finish) = finish.take()
            {
                next = Some(finish(self, std::mem::take(&mut loaded)));
            }
            let [a, b] = read[i as usize];
            let ty = self.to.ty(acc).ty.clone();
            acc = self.value(into, op.kind.clone(), vec![a, b, acc], ty, op.span);
        }
        self.map.insert(op.results[0], acc);
        (loaded, next)
    }

    /// The operands of step `number` of the product `id`; of all of it, where one is not from the channel.
    fn operands(
        &mut self,
        at: &Loop<'_>,
        id: OpId,
        sources: &[Option<Source>; 2],
        number: u32,
        into: RegionId,
        slot: ValueId,
    ) -> [ValueId; 2] {
        let op = &self.from.ops[id];
        let k = self.from.ty(op.operands[0]).ty.shape()[1];
        let step = match op.kind {
            OpKind::Dot { strategy } if is_cut(strategy, sources) => depth(strategy, k),
            _ => k,
        };
        [0, 1].map(|side| match &sources[side] {
            Some(source) => self.operand(at, id, side, source, number * step, step, into, slot),
            None if step < k => {
                let value = self.map[&op.operands[side]];
                let ty = &self.from.ty(op.operands[side]).ty;
                let (mut shape, mut offsets) = (ty.shape().to_vec(), vec![0, 0]);
                shape[1 - side] = step;
                offsets[1 - side] = number * step;
                let ty = tile::Type::tile(ty.elem(), shape);
                let kind = OpKind::Tile(tile::OpKind::Slice(offsets));
                self.value(into, kind, vec![value], ty, op.span)
            }
            None => self.map[&op.operands[side]],
        })
    }

    /// `step` of K from `offset` on of one operand of the product `id`.
    #[expect(
        clippy::too_many_arguments,
        reason = "each says one thing of the piece"
    )]
    fn operand(
        &mut self,
        at: &Loop<'_>,
        id: OpId,
        side: usize,
        source: &Source,
        offset: u32,
        step: u32,
        into: RegionId,
        slot: ValueId,
    ) -> ValueId {
        let op = &self.from.ops[id];
        let (channel, tile, elem, slot) = match source.store {
            Store::Ring(tile) => {
                let elem = at.plan.loads[tile as usize].tile.elem;
                (at.channel, tile, elem, slot)
            }
            Store::Kept(value) => {
                let elem = self.from.ty(value).ty.elem();
                (self.kept[&value], 0, elem, self.int(into, 0))
            }
        };
        let mut shape = self.from.ty(op.operands[side]).ty.shape().to_vec();
        let along_k = 1 - side;
        shape[along_k] = step;
        let mut offsets = [0, 0];
        offsets[if source.transposed { side } else { along_k }] = offset;
        let kind = OpKind::ReadShared {
            channel,
            tile,
            offsets,
            transposed: source.transposed,
        };
        let ty = tile::Type::tile(elem, shape);
        let mut value = self.value(into, kind, vec![slot], ty.clone(), op.span);
        for &elem in &source.casts {
            let kind = OpKind::Tile(tile::OpKind::Cast);
            value = self.value(into, kind, vec![value], ty.with_elem(elem), op.span);
        }
        value
    }
}

/// Whether a product is cut along K.
fn is_cut(strategy: Strategy, sources: &[Option<Source>; 2]) -> bool {
    match strategy {
        Strategy::MmaSync(_) => sources.iter().any(|s| s.is_some()),
        Strategy::Fma => sources.iter().all(|s| s.is_some()),
    }
}

/// What an iteration begins for one ahead.
enum Begin {
    Nothing,
    Copies,
    Loads,
}

fn indices(kind: &OpKind) -> Vec<Index> {
    match kind {
        OpKind::Load { indices, .. } => indices.clone(),
        _ => unreachable!("only loads go through channels"),
    }
}

/// How many steps' operands are read ahead. What plain multiplications need is large: none.
fn lead(strategy: Strategy) -> u32 {
    match strategy {
        Strategy::MmaSync(_) => 1,
        Strategy::Fma => 0,
    }
}

/// How much of K one step takes: a divisor of `k`.
fn depth(strategy: Strategy, k: u32) -> u32 {
    match strategy {
        Strategy::MmaSync(shape) => shape.k,
        Strategy::Fma => 1 << k.trailing_zeros().min(1),
    }
}
