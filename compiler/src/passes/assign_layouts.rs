//! Gives every tile a layout, every access its width, and inserts the conversions that this needs.
//!
//! Tiles that elementwise operations, loops and branches tie together form a group and share one layout, so that nothing
//! is converted within a group. Groups are taken by weight (elements that go to and from memory, times loop depth); each
//! gets the cheapest of some blocked layouts and of those that its neighbours over permutes, reshapes, slices,
//! broadcasts and reductions hand on, by what its accesses and reductions cost, and by the conversions to neighbours
//! that have a layout already. Results of products have the fragment layout of their strategy, and what they multiply
//! goes by that; such groups come first. Conversions stand right behind the definition of what they convert, and so outside of
//! the loops of its uses. Broadcasts of scalars and `iota` belong to no group: each use gets its own.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use cranelift_entity::PrimaryMap;
use tesserine_set::DType;

use super::{
    access::{self, Access},
    divisibility::Divisibility,
};
use crate::{
    diagnostics::{Diagnostic, Diagnostics, codes},
    ir::{
        Op, OpId, RegionId, ValueId,
        role::{
            Buffer, BufferId, Channel, ChannelId, Kernel, OpKind, ProductOperand, Role, RoleBody,
            Strategy, Type, index_tiles, warps_of_layouts,
        },
        tile,
    },
    layout::{
        Layout, blocked_by, convert_sources,
        fragments::{self, Side, is_mma_result},
        ordered, result_layout,
        scratch::{ConvertBuffer, ReduceBuffer, through_bytes},
    },
    target::Target,
};

/// What a loop's body costs more than what stands around it.
const LOOP: f64 = 4.0;

/// How much dearer a store from a fragment must be than one of whole rows, so that it is worth a conversion.
const DEAR: f64 = 1.5;

pub fn run(kernel: &mut Kernel, target: Target) -> Result<(), Diagnostics> {
    let mut buffers = std::mem::take(&mut kernel.buffers);
    let room = room_beside_rings(kernel, &buffers, target);
    for role in &mut kernel.roles {
        let plan = Plan::of(
            &kernel.header,
            &role.body,
            &kernel.channels,
            role.warps,
            match role.warps.is_power_of_two() {
                true => room * role.warps,
                false => 0,
            },
            target,
        )?;
        let mut emit = Emit {
            from: &role.body,
            plan: &plan,
            to: RoleBody::new(),
            map: HashMap::new(),
            buffers: &mut buffers,
        };
        let root = emit.to.root;
        emit.region(role.body.root, root);
        role.body = emit.to;
        if !role.warps.is_power_of_two() {
            without_scratch(role)?;
        }
    }
    kernel.buffers = buffers;
    Ok(())
}

/// What goes through shared memory is divided among a power of two of warps.
fn without_scratch(role: &Role) -> Result<(), Diagnostics> {
    let mut diagnostics = Diagnostics::default();
    for (id, _) in ops_in_order(&role.body) {
        let op = &role.body.ops[id];
        let through = match &op.kind {
            OpKind::Convert { scratch }
            | OpKind::Reduce { scratch, .. }
            | OpKind::Atomic { scratch, .. }
            | OpKind::Arrive { scratch, .. }
            | OpKind::Through { scratch, .. } => scratch.is_some(),
            _ => false,
        };
        if through {
            let text = format!(
                "tiles that move between the threads of a role of {} warps: this is not yet compiled",
                role.warps
            );
            diagnostics.push(
                Diagnostic::error(codes::E0010, op.span, text)
                    .help("the warps of such a role are a power of two"),
            );
        }
    }
    match diagnostics.is_empty() {
        true => Ok(()),
        false => Err(diagnostics),
    }
}

/// Shared memory that the rings of a kernel of several roles leave, by warp of the roles that could use it: those of whole warpgroups.
fn room_beside_rings(
    kernel: &Kernel,
    buffers: &PrimaryMap<BufferId, Buffer>,
    target: Target,
) -> u32 {
    /// For what else lies there: numbers of tiles that roles draw, and what alignment takes.
    const OTHER: u32 = 1024;
    let taken: u32 = buffers.values().map(|b| b.bytes).sum();
    let warps = kernel.roles.iter().map(|r| r.warps);
    let warps: u32 = warps.filter(|w| w.is_multiple_of(4)).sum();
    target.shared_per_block().saturating_sub(taken + OTHER) / warps.max(1)
}

/// What was decided, in terms of the old body.
struct Plan {
    /// The layout that each tile is defined with.
    defined: HashMap<ValueId, Arc<Layout>>,
    /// The layout in which each operation wants each of its tile operands.
    wanted: HashMap<(OpId, usize), Arc<Layout>>,
    /// The layouts other than its own in which a tile is wanted, in order of first use.
    demands: BTreeMap<ValueId, Vec<Arc<Layout>>>,
    /// The width of loads and stores.
    widths: HashMap<OpId, u32>,
    /// Changes of shape that go through scratch, since layouts do not allow less.
    through: HashSet<OpId>,
}

/// Whether the value is made again for each use.
fn is_cheap(body: &RoleBody, value: ValueId) -> bool {
    let Some(id) = body.defining_op(value) else {
        return false;
    };
    match &body.ops[id].kind {
        OpKind::Tile(tile::OpKind::Iota) => true,
        OpKind::Tile(tile::OpKind::Broadcast) => {
            body.ty(body.ops[id].operands[0]).ty.shape().is_empty()
        }
        _ => false,
    }
}

fn is_tile(body: &RoleBody, value: ValueId) -> bool {
    matches!(body.ty(value).ty, tile::Type::Tile(_))
}

/// The index tile of a gather or scatter that takes all of its elements from one line of places: the two lie alike, for no
/// order of the threads is better than that of the places, and a conversion would cost more than both.
fn line_of_places(body: &RoleBody, op: &Op<OpKind>, indices: &[tile::Index]) -> Option<ValueId> {
    let [(place, _)] = index_tiles(indices)[..] else {
        return None;
    };
    let places = *op.operands.get(place)?;
    let whole = |v: ValueId| body.ty(v).ty.shape();
    let value = op.results.first().or(op.operands.last())?;
    (whole(places).len() == 1 && whole(places) == whole(*value)).then_some(places)
}

/// Tiles that share a layout.
struct Group {
    shape: Vec<u32>,
    values: u32,
    /// Bits of the widest element.
    bits: u32,
    anchors: Vec<(Access, f64)>,
    /// Reduced axes, `None` for all.
    reduces: Vec<(Option<u32>, f64)>,
    edges: Vec<usize>,
    /// How the products are computed whose results and accumulators are here: by `mma.sync` if any is.
    product: Option<Strategy>,
    /// Results of products of a warpgroup's kind are here, which have one layout only.
    by_warpgroups: bool,
    /// And divide their columns.
    by_columns: bool,
    /// What it lies in as the left factor of a product of warpgroups, which takes it so and no other way.
    left_factor: Option<Layout>,
    /// The products whose operands are here.
    operands: Vec<Operand>,
    /// The products whose operands are slices along K of what is here, with the K of all of it.
    cut: Vec<Operand>,
    /// Layouts that operations ask for, whatever else is here: scans, and asynchronous copies for their index tiles.
    wishes: Vec<(Layout, f64)>,
    layout: Option<Layout>,
}

/// That a tile is an operand of a product.
#[derive(Clone)]
struct Operand {
    strategy: Strategy,
    side: Side,
    /// The product's K.
    k: u32,
    /// The group of the product's result.
    result: usize,
    depth: f64,
}

/// An operation between two groups.
struct Edge {
    op: OpId,
    kind: OpKind,
    operand: usize,
    result: usize,
    /// Of an index tile: the dimension of the accessed tile that it indexes.
    dim: usize,
    depth: f64,
}

impl Edge {
    /// The layout that the operation gives its result; `None` if its operand cannot be used in this one.
    fn forward(&self, operand: &Layout, shape: &[u32]) -> Option<Layout> {
        match &self.kind {
            OpKind::Reduce {
                axis: Some(axis), ..
            } => Some(operand.without_axis(*axis as usize)),
            OpKind::Tile(kind) => result_layout(kind, operand, shape),
            _ => None,
        }
    }

    /// The layout that the operation wants its operand in to give `result`.
    fn backward(&self, result: &Layout, shape: &[u32]) -> Option<Layout> {
        match &self.kind {
            OpKind::Tile(tile::OpKind::Broadcast) => Some(result.broadcast_operand(shape)),
            OpKind::Load { .. } | OpKind::Store { .. } | OpKind::Atomic { .. } => {
                Some(result.projected(self.dim))
            }
            OpKind::Tile(tile::OpKind::Permute(perm)) => {
                let mut inverse = vec![0; perm.len()];
                for (i, &p) in perm.iter().enumerate() {
                    inverse[p as usize] = i as u32;
                }
                Some(result.permuted(&inverse))
            }
            OpKind::Tile(tile::OpKind::Reshape) => {
                let operand = result.reshaped(shape)?;
                let back = operand.reshaped(&result.shape)?;
                is_free(&back, result).then_some(operand)
            }
            _ => None,
        }
    }

    /// Whether layouts of both sides fit without a conversion between threads.
    fn fits(&self, operand: &Layout, result: &Layout) -> bool {
        match &self.kind {
            OpKind::Tile(tile::OpKind::Broadcast) => {
                is_free(operand, &result.broadcast_operand(&operand.shape))
            }
            OpKind::Load { .. } | OpKind::Store { .. } | OpKind::Atomic { .. } => {
                is_free(operand, &result.projected(self.dim))
            }
            _ => self
                .forward(operand, &result.shape)
                .is_some_and(|l| is_free(&l, result)),
        }
    }
}

/// Whether a conversion moves only registers.
fn is_free(from: &Layout, to: &Layout) -> bool {
    from == to || convert_sources(from, to).is_some()
}

/// The groups of one body, by union and find.
struct Groups {
    parent: HashMap<ValueId, ValueId>,
}

impl Groups {
    fn find(&self, value: ValueId) -> ValueId {
        let mut at = value;
        while let Some(&up) = self.parent.get(&at) {
            at = up;
        }
        at
    }

    fn join(&mut self, a: ValueId, b: ValueId) {
        let (a, b) = (self.find(a), self.find(b));
        if a != b {
            // The earlier one stays, so that the outcome does not depend on the order of joining.
            self.parent.insert(a.max(b), a.min(b));
        }
    }
}

struct Planner<'a> {
    body: &'a RoleBody,
    channels: &'a PrimaryMap<ChannelId, Channel>,
    /// Warps that layouts divide tiles among.
    warps: u32,
    /// Those that tiles are divided among which no copy wants otherwise.
    dividing: u32,
    /// Shared memory that it may use beside rings.
    room: u32,
    target: Target,
    groups: Vec<Group>,
    edges: Vec<Edge>,
    /// The group of each tile.
    of: HashMap<ValueId, usize>,
}

impl Plan {
    fn of(
        header: &crate::ir::Header,
        body: &RoleBody,
        channels: &PrimaryMap<ChannelId, Channel>,
        warps: u32,
        room: u32,
        target: Target,
    ) -> Result<Plan, Diagnostics> {
        let known = Divisibility::of(header, body);
        let order = ops_in_order(body);
        let mut accesses = HashMap::new();
        for &(id, _) in &order {
            if let Some(access) = access::of(header, body, &known, &body.ops[id]) {
                accesses.insert(id, access);
            }
        }
        let mut planner = Planner::new(body, channels, (warps, room), target, &order, &accesses);
        planner.choose();
        planner.plan(&order, &accesses)
    }

    fn defined(&self, value: ValueId) -> Option<&Arc<Layout>> {
        self.defined.get(&value)
    }
}

/// Every operation with the number of loops around it, in textual order.
fn ops_in_order(body: &RoleBody) -> Vec<(OpId, i32)> {
    fn visit(body: &RoleBody, region: RegionId, depth: i32, order: &mut Vec<(OpId, i32)>) {
        for &id in &body.regions[region].ops {
            order.push((id, depth));
            let op = &body.ops[id];
            let is_loop = matches!(
                op.kind,
                OpKind::Tile(tile::OpKind::For { .. } | tile::OpKind::While)
            );
            for &inner in &op.regions {
                visit(body, inner, depth + is_loop as i32, order);
            }
        }
    }
    let mut order = Vec::new();
    visit(body, body.root, 0, &mut order);
    order
}

/// What a control operation carries: for each result, the values that become it.
fn carried(body: &RoleBody, id: OpId) -> Vec<(ValueId, Vec<ValueId>)> {
    let op = &body.ops[id];
    let yielded = |region: usize, i: usize| {
        let last = body.regions[op.regions[region]].ops.last();
        last.and_then(|&id| body.ops[id].operands.get(i)).copied()
    };
    let arg = |region: usize, i: usize| body.regions[op.regions[region]].args.get(i).copied();
    op.results
        .iter()
        .enumerate()
        .map(|(i, &result)| {
            let values = match &op.kind {
                OpKind::Tile(tile::OpKind::If) => vec![yielded(0, i), yielded(1, i)],
                OpKind::Tile(tile::OpKind::For { .. }) => {
                    vec![
                        op.operands.get(3 + i).copied(),
                        arg(0, i + 1),
                        yielded(0, i),
                    ]
                }
                OpKind::Tile(tile::OpKind::While) => vec![
                    op.operands.get(i).copied(),
                    arg(0, i),
                    arg(1, i),
                    yielded(1, i),
                ],
                _ => Vec::new(),
            };
            (result, values.into_iter().flatten().collect())
        })
        .collect()
}

impl<'a> Planner<'a> {
    fn new(
        body: &'a RoleBody,
        channels: &'a PrimaryMap<ChannelId, Channel>,
        (warps, room): (u32, u32),
        target: Target,
        order: &[(OpId, i32)],
        accesses: &HashMap<OpId, Access>,
    ) -> Planner<'a> {
        let mut union = Groups {
            parent: HashMap::new(),
        };
        for &(id, _) in order {
            let op = &body.ops[id];
            let tied: Vec<(ValueId, Vec<ValueId>)> = match &op.kind {
                OpKind::Tile(kind) if kind.is_elementwise() => {
                    vec![(op.results[0], op.operands.clone())]
                }
                OpKind::Dot { .. } | OpKind::Product { .. } => {
                    vec![(op.results[0], vec![op.operands[2]])]
                }
                OpKind::WaitProducts { .. } => {
                    let pairs = op.results.iter().zip(&op.operands);
                    pairs.map(|(&r, &o)| (r, vec![o])).collect()
                }
                OpKind::Load { indices, .. } => line_of_places(body, op, indices)
                    .map(|places| (op.results[0], vec![places]))
                    .into_iter()
                    .collect(),
                OpKind::Store { indices, .. } => line_of_places(body, op, indices)
                    .zip(op.operands.last())
                    .map(|(places, &value)| (value, vec![places]))
                    .filter(|(value, _)| !is_cheap(body, *value))
                    .into_iter()
                    .collect(),
                OpKind::Atomic { indices, .. } => {
                    let first = 1 + indices.iter().map(|i| i.operands()).sum::<usize>();
                    vec![(op.results[0], op.operands[first..].to_vec())]
                }
                OpKind::Through { op: through, .. } => match through {
                    tile::OpKind::ClusterReduce { .. } => {
                        vec![(op.results[0], vec![op.operands[0]])]
                    }
                    tile::OpKind::Take { .. } => vec![(op.results[0], vec![op.operands[1]])],
                    _ => Vec::new(),
                },
                _ => carried(body, id),
            };
            for (result, values) in tied {
                for value in values {
                    if is_tile(body, result) && is_tile(body, value) && !is_cheap(body, value) {
                        union.join(result, value);
                    }
                }
            }
        }
        let mut planner = Planner {
            body,
            channels,
            warps: warps_of_layouts(warps),
            dividing: if warps.is_power_of_two() { warps } else { 1 },
            room,
            target,
            groups: Vec::new(),
            edges: Vec::new(),
            of: HashMap::new(),
        };
        let mut index: HashMap<ValueId, usize> = HashMap::new();
        let mut tiles: Vec<ValueId> = body
            .values
            .keys()
            .filter(|&v| is_tile(body, v) && !is_cheap(body, v))
            .collect();
        tiles.sort_unstable();
        for value in tiles {
            let root = union.find(value);
            let ty = &body.ty(value).ty;
            let group = *index.entry(root).or_insert_with(|| {
                planner.groups.push(Group {
                    shape: ty.shape().to_vec(),
                    values: 0,
                    bits: 8,
                    anchors: Vec::new(),
                    reduces: Vec::new(),
                    edges: Vec::new(),
                    product: None,
                    by_warpgroups: false,
                    by_columns: false,
                    left_factor: None,
                    operands: Vec::new(),
                    cut: Vec::new(),
                    wishes: Vec::new(),
                    layout: None,
                });
                planner.groups.len() - 1
            });
            planner.groups[group].values += 1;
            planner.groups[group].bits = planner.groups[group].bits.max(ty.elem().bits());
            planner.of.insert(value, group);
        }
        for &(id, depth) in order {
            planner.gather(id, LOOP.powi(depth), accesses);
        }
        for &(id, _) in order {
            planner.gather_cut(id);
        }
        planner
    }

    /// Notes that slices of a tile are operands of products.
    fn gather_cut(&mut self, id: OpId) {
        let op = &self.body.ops[id];
        let OpKind::Tile(tile::OpKind::Slice(_)) = op.kind else {
            return;
        };
        let (Some(&from), Some(&to)) = (self.of.get(&op.operands[0]), self.of.get(&op.results[0]))
        else {
            return;
        };
        let shape = self.body.ty(op.operands[0]).ty.shape();
        let part = self.body.ty(op.results[0]).ty.shape();
        // What is cut along the other dimension lies otherwise than the product takes it.
        let along_k = |o: &&Operand| match o.side {
            Side::Left => shape[0] == part[0],
            Side::Right => shape[1] == part[1],
        };
        let whole: Vec<Operand> = self.groups[to]
            .operands
            .iter()
            .filter(along_k)
            .map(|o| Operand {
                k: match o.side {
                    Side::Left => shape[1],
                    Side::Right => shape[0],
                },
                ..o.clone()
            })
            .collect();
        self.groups[from].cut.extend(whole);
    }

    /// Notes what the operation asks of the groups that it touches.
    fn gather(&mut self, id: OpId, depth: f64, accesses: &HashMap<OpId, Access>) {
        let op = &self.body.ops[id];
        let group = |v: Option<&ValueId>| v.and_then(|v| self.of.get(v)).copied();
        match &op.kind {
            OpKind::Load { indices, .. }
            | OpKind::Store { indices, .. }
            | OpKind::Atomic { indices, .. } => {
                let value = op.results.first().or(op.operands.last());
                let accessed = group(value);
                if let (Some(g), Some(access)) = (accessed, accesses.get(&id)) {
                    self.groups[g].anchors.push((access.clone(), depth));
                }
                let Some(result) = accessed else { return };
                let tiles: Vec<(usize, usize)> = index_tiles(indices)
                    .into_iter()
                    .filter_map(|(i, dim)| Some((group(op.operands.get(i))?, dim)))
                    .collect();
                for (operand, dim) in tiles {
                    self.connect(Edge {
                        op: id,
                        kind: op.kind.clone(),
                        operand,
                        result,
                        dim,
                        depth,
                    });
                }
            }
            OpKind::CopyAsync {
                channel,
                tile,
                indices,
                width,
            }
            | OpKind::Copy {
                channel,
                tile,
                indices,
                width,
            } => {
                let layout = self.copied(*channel, *tile, *width, &op.kind);
                let wishes: Vec<(usize, Layout)> = index_tiles(indices)
                    .into_iter()
                    .filter_map(|(i, dim)| {
                        Some((group(op.operands.get(i))?, layout.projected(dim)))
                    })
                    .collect();
                for (g, wish) in wishes {
                    self.groups[g].wishes.push((wish, depth));
                }
            }
            OpKind::Dot { strategy } => {
                let Some(result) = group(op.results.first()) else {
                    return;
                };
                let product = &mut self.groups[result].product;
                if !matches!(product, Some(Strategy::MmaSync(_))) {
                    *product = Some(*strategy);
                }
                let k = self.body.ty(op.operands[0]).ty.shape()[1];
                for (side, value) in [Side::Left, Side::Right].into_iter().zip(&op.operands) {
                    if let Some(g) = group(Some(value)) {
                        self.groups[g].operands.push(Operand {
                            strategy: *strategy,
                            side,
                            k,
                            result,
                            depth,
                        });
                    }
                }
            }
            OpKind::WriteShared { channel, .. }
                if self.channels[*channel].barriers.is_some() && self.warps.is_multiple_of(4) =>
            {
                // Parts of products' results are written by rows of eight, as they lie in their fragments.
                let shape = self.body.ty(op.operands[0]).ty.shape();
                if let (&[m, n], Some(g)) = (shape, group(op.operands.first()))
                    && m.is_multiple_of(16 * self.warps)
                {
                    let wish = fragments::warpgroup_result([m, n], self.warps);
                    self.groups[g].wishes.push((wish, depth));
                }
            }
            OpKind::Product { a, columns, .. } => {
                if let Some(result) = group(op.results.first()) {
                    self.groups[result].by_warpgroups = true;
                    self.groups[result].by_columns |= columns;
                }
                let (left, result) = (op.operands[0], op.results[0]);
                if let (ProductOperand::Registers, Some(g)) = (a, group(Some(&left))) {
                    let wish = self.left_factor(left, result);
                    self.groups[g].left_factor = Some(wish);
                }
            }
            OpKind::Through {
                op: tile::OpKind::Scan { axis, .. },
                ..
            } => {
                let shape = self.body.ty(op.results[0]).ty.shape();
                let layout = self.in_order(shape, *axis as usize);
                for value in [op.operands[0], op.results[0]] {
                    if let Some(g) = group(Some(&value)) {
                        self.groups[g].wishes.push((layout.clone(), depth));
                    }
                }
            }
            OpKind::Reduce { .. }
            | OpKind::Tile(
                tile::OpKind::Permute(_)
                | tile::OpKind::Slice(_)
                | tile::OpKind::Reshape
                | tile::OpKind::Broadcast,
            ) => {
                let operand = group(op.operands.first());
                if let (OpKind::Reduce { axis, .. }, Some(g)) = (&op.kind, operand) {
                    self.groups[g].reduces.push((*axis, depth));
                }
                if let (Some(operand), Some(result)) = (operand, group(op.results.first())) {
                    self.connect(Edge {
                        op: id,
                        kind: op.kind.clone(),
                        operand,
                        result,
                        dim: 0,
                        depth,
                    });
                }
            }
            _ => {}
        }
    }

    fn connect(&mut self, edge: Edge) {
        let number = self.edges.len();
        self.groups[edge.operand].edges.push(number);
        self.groups[edge.result].edges.push(number);
        self.edges.push(edge);
    }

    /// Gives every group its layout.
    fn choose(&mut self) {
        let weight = |g: &Group| {
            let elements: f64 = g.shape.iter().map(|&d| f64::from(d)).product();
            let anchored: f64 = g.anchors.iter().map(|(_, depth)| depth * 4.0).sum();
            elements * (1.0 + anchored)
        };
        let mut order: Vec<usize> = (0..self.groups.len()).collect();
        order.sort_by(|&a, &b| weight(&self.groups[b]).total_cmp(&weight(&self.groups[a])));
        let is_result = |g: &Group| g.product.is_some() || g.by_warpgroups;
        order.sort_by_key(|&g| {
            let group = &self.groups[g];
            (!is_result(group), group.left_factor.is_none())
        });
        // Groups of products that an operand of another one is made of, and those of these others.
        let mut chained = vec![false; self.groups.len()];
        for (g, group) in self.groups.iter().enumerate() {
            if group.product.is_some() {
                let mut others = group.operands.iter().chain(&group.cut);
                if let Some(o) = others.find(|o| o.side == Side::Left) {
                    chained[g] = true;
                    chained[o.result] = true;
                }
            }
        }
        while !order.is_empty() {
            let g = order.remove(self.next_of(&order));
            if self.groups[g].by_warpgroups {
                let shape = &self.groups[g].shape;
                let shape = [shape[0], shape[1]];
                let columns = fragments::warpgroup_columns(shape, self.warps);
                let layout = columns.filter(|_| self.groups[g].by_columns);
                let rows = || fragments::warpgroup_result(shape, self.warps);
                let layout = layout.unwrap_or_else(rows);
                self.groups[g].layout = Some(layout);
                continue;
            }
            if let Some(strategy) = self.groups[g].product {
                let shape = &self.groups[g].shape;
                let layout =
                    fragments::result(strategy, [shape[0], shape[1]], self.warps, chained[g]);
                self.groups[g].layout = Some(layout);
                continue;
            }
            if self.groups[g].layout.is_some() {
                continue;
            }
            if let Some(layout) = self.groups[g].left_factor.clone() {
                self.groups[g].layout = Some(layout);
                self.lead_to(g);
                continue;
            }
            let mut best: Option<(f64, Layout)> = None;
            for candidate in self.candidates(g) {
                let cost = self.cost(g, &candidate);
                if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                    best = Some((cost, candidate));
                }
            }
            self.groups[g].layout = best.map(|(_, layout)| layout);
        }
    }

    /// Which of the groups that are left is next. What nothing but its neighbours asks anything of waits for the halves of a tile that it is
    /// made of, and so goes by the tile. Between roles it waits for any neighbour: a conversion through scratch would hold up all warps of
    /// the role.
    fn next_of(&self, order: &[usize]) -> usize {
        if !self.by_barriers() {
            let is_next = |&g: &usize| self.asks(g) || !self.is_made_of_open_parts(g);
            return order.iter().position(is_next).unwrap_or(0);
        }
        let is_next = |g: &usize| {
            let group = &self.groups[*g];
            self.asks(*g)
                || group.edges.iter().any(|&e| {
                    let edge = &self.edges[e];
                    let other = if edge.result == *g {
                        edge.operand
                    } else {
                        edge.result
                    };
                    self.groups[other].layout.is_some()
                })
        };
        order.iter().position(is_next).unwrap_or(0)
    }

    /// Whether anything but its neighbours asks something of a group.
    fn asks(&self, g: usize) -> bool {
        let group = &self.groups[g];
        group.by_warpgroups
            || group.left_factor.is_some()
            || group.product.is_some()
            || !group.anchors.is_empty()
            || !group.reduces.is_empty()
            || !group.operands.is_empty()
            || !group.cut.is_empty()
            || !group.wishes.is_empty()
    }

    /// Whether a group is reshaped from slices that have no layout yet.
    fn is_made_of_open_parts(&self, g: usize) -> bool {
        let into = |g: usize| {
            let edges = self.groups[g].edges.iter().map(|&e| &self.edges[e]);
            edges.filter(move |e| e.result == g)
        };
        let is = |edge: &&Edge, wanted: fn(&tile::OpKind) -> bool| matches!(&edge.kind, OpKind::Tile(kind) if wanted(kind));
        into(g)
            .filter(|e| is(e, |k| matches!(k, tile::OpKind::Reshape)))
            .filter(|e| self.groups[e.operand].layout.is_none())
            .any(|e| into(e.operand).any(|e| is(&e, |k| matches!(k, tile::OpKind::Slice(_)))))
    }

    /// What a left factor is reshaped or broadcast from lies as it does: to move it in between would cost more than anything else.
    fn lead_to(&mut self, g: usize) {
        let mut led = vec![g];
        while let Some(g) = led.pop() {
            for e in self.groups[g].edges.clone() {
                let edge = &self.edges[e];
                let from = edge.operand;
                let moves_nothing = matches!(
                    edge.kind,
                    OpKind::Tile(tile::OpKind::Reshape | tile::OpKind::Broadcast)
                );
                let (shape, free) = (&self.groups[from].shape, self.groups[from].layout.is_none());
                if edge.result != g || !moves_nothing || !free || self.groups[from].by_warpgroups {
                    continue;
                }
                let layout = self.groups[g].layout.as_ref();
                if let Some(layout) = layout.and_then(|l| edge.backward(l, shape)) {
                    self.groups[from].layout = Some(layout);
                    led.push(from);
                }
            }
        }
    }

    fn candidates(&self, g: usize) -> Vec<Layout> {
        let group = &self.groups[g];
        let mut candidates = Vec::new();
        for &e in &group.edges {
            let edge = &self.edges[e];
            let derived = if edge.result == g {
                self.groups[edge.operand]
                    .layout
                    .as_ref()
                    .and_then(|l| edge.forward(l, &group.shape))
            } else {
                self.groups[edge.result]
                    .layout
                    .as_ref()
                    .and_then(|l| edge.backward(l, &group.shape))
            };
            candidates.extend(derived);
        }
        let operands = group.operands.iter().chain(&group.cut);
        candidates.extend(operands.filter_map(|o| self.fragment(o)));
        candidates.extend(group.wishes.iter().map(|(layout, _)| layout.clone()));
        let widest = group
            .anchors
            .iter()
            .map(|(access, _)| access.width)
            .max()
            .unwrap_or(1);
        let rank = group.shape.len();
        for inner in (0..rank).rev() {
            if group.shape[inner] == 1 && inner + 1 != rank {
                continue;
            }
            let mut lanes = vec![inner];
            lanes.extend((0..rank).rev().filter(|&d| d != inner));
            let outermost: Vec<usize> = lanes.iter().rev().copied().collect();
            let mut vec = if inner + 1 == rank { widest } else { 1 };
            loop {
                candidates.push(self.blocked(&group.shape, &lanes, &lanes, vec));
                if rank > 1 {
                    candidates.push(self.blocked(&group.shape, &lanes, &outermost, vec));
                }
                if vec == 1 {
                    break;
                }
                vec /= 2;
            }
        }
        candidates
    }

    /// The layout that a product takes the operand in, once its result has one.
    fn fragment(&self, operand: &Operand) -> Option<Layout> {
        let result = self.groups[operand.result].layout.as_ref()?;
        Some(fragments::operand(
            operand.strategy,
            result,
            operand.side,
            operand.k,
        ))
    }

    /// Cycles or so that a warp spends on the group's accesses, reductions and conversions if it has this layout.
    fn cost(&self, g: usize, layout: &Layout) -> f64 {
        let group = &self.groups[g];
        let registers = f64::from(layout.registers());
        let accesses: f64 = group
            .anchors
            .iter()
            .map(|(access, depth)| access.cost(layout) * depth)
            .sum();
        let reduces: f64 = group
            .reduces
            .iter()
            .map(|&(axis, depth)| reduce_cost(layout, axis) * depth)
            .sum();
        let conversions: f64 = group
            .edges
            .iter()
            .map(|&e| {
                let edge = &self.edges[e];
                let (from, to) = if edge.result == g {
                    (self.groups[edge.operand].layout.as_ref(), Some(layout))
                } else {
                    (Some(layout), self.groups[edge.result].layout.as_ref())
                };
                match (from, to) {
                    (Some(from), Some(to)) if !edge.fits(from, to) => {
                        let moved = from.registers().min(to.registers());
                        (20.0 + 2.0 * f64::from(moved)) * edge.depth
                    }
                    _ => 0.0,
                }
            })
            .sum();
        let products: f64 = group
            .operands
            .iter()
            .chain(group.cut.first())
            .filter_map(|o| Some((o, self.fragment(o)?)))
            .filter(|(_, fragment)| !is_free(layout, fragment))
            .map(|(o, fragment)| {
                let moved = layout.registers() + fragment.registers();
                (20.0 + f64::from(moved)) * o.depth
            })
            .sum();
        let wishes: f64 = group
            .wishes
            .iter()
            .filter(|(wish, _)| !is_free(layout, wish))
            .map(|(wish, depth)| (20.0 + 2.0 * f64::from(wish.registers())) * depth)
            .sum();
        accesses
            + reduces
            + conversions
            + products
            + wishes
            + 0.1 * registers * f64::from(group.values)
    }

    /// Every value's and every use's layout.
    fn plan(
        &self,
        order: &[(OpId, i32)],
        accesses: &HashMap<OpId, Access>,
    ) -> Result<Plan, Diagnostics> {
        let mut diagnostics = Diagnostics::default();
        let mut plan = Plan {
            defined: HashMap::new(),
            wanted: HashMap::new(),
            demands: BTreeMap::new(),
            widths: HashMap::new(),
            through: HashSet::new(),
        };
        let layouts: Vec<Arc<Layout>> = self
            .groups
            .iter()
            .map(|g| match &g.layout {
                Some(layout) => Arc::new(layout.clone()),
                None => unreachable!("every group has candidates"),
            })
            .collect();
        for (&value, &g) in &self.of {
            plan.defined.insert(value, layouts[g].clone());
        }
        let edge_of: HashMap<OpId, &Edge> = self.edges.iter().map(|e| (e.op, e)).collect();
        for &(id, _) in order {
            let op = &self.body.ops[id];
            let mut wanted = Vec::new();
            let of = |v: ValueId| self.of.get(&v).map(|&g| layouts[g].clone());
            // What is cheap has no layout of its own: whatever suits.
            let shape = |v: ValueId| self.body.ty(v).ty.shape();
            let mut want = |i: usize, layout: Arc<Layout>| wanted.push(((id, i), layout));
            match &op.kind {
                OpKind::Tile(kind) if kind.is_elementwise() => {
                    if let Some(layout) = of(op.results[0]) {
                        (0..op.operands.len())
                            .filter(|&i| is_tile(self.body, op.operands[i]))
                            .for_each(|i| want(i, layout.clone()));
                    }
                }
                OpKind::Load { indices, .. } => {
                    if let (Some(layout), Some(access)) = (of(op.results[0]), accesses.get(&id)) {
                        plan.widths.insert(id, access.width_in(&layout));
                        for (i, dim) in index_tiles(indices) {
                            want(i, Arc::new(layout.projected(dim)));
                        }
                    }
                }
                OpKind::Atomic { indices, .. } => {
                    if let Some(layout) = of(op.results[0]) {
                        let first = 1 + indices.iter().map(|i| i.operands()).sum::<usize>();
                        (first..op.operands.len()).for_each(|i| want(i, layout.clone()));
                        for (i, dim) in index_tiles(indices) {
                            want(i, Arc::new(layout.projected(dim)));
                        }
                    }
                }
                OpKind::CopyAsync {
                    channel,
                    tile,
                    indices,
                    width,
                }
                | OpKind::Copy {
                    channel,
                    tile,
                    indices,
                    width,
                } => {
                    let layout = self.copied(*channel, *tile, *width, &op.kind);
                    for (i, dim) in index_tiles(indices) {
                        want(i, Arc::new(layout.projected(dim)));
                    }
                }
                OpKind::Store { indices, .. } => {
                    let last = op.operands.len() - 1;
                    let value = op.operands[last];
                    if let (true, Some(access)) = (is_tile(self.body, value), accesses.get(&id)) {
                        let elem = self.body.ty(value).ty.elem();
                        let layout = of(value)
                            .or_else(|| of(line_of_places(self.body, op, indices)?))
                            .filter(|own| !self.is_dear(own, access, elem))
                            .filter(|own| access.bits * access.width_in(own) >= 8)
                            .unwrap_or_else(|| Arc::new(self.for_store(shape(value), access)));
                        let width = access.width_in(&layout);
                        for (i, dim) in index_tiles(indices) {
                            want(i, Arc::new(layout.projected(dim)));
                        }
                        want(last, layout);
                        plan.widths.insert(id, width);
                    }
                    if let Some(access) = accesses.get(&id)
                        && access.bits * plan.widths.get(&id).copied().unwrap_or(1) < 8
                    {
                        diagnostics.push(unproven_bytes(op.span));
                    }
                }
                OpKind::Dot { strategy } => {
                    let Some(result) = of(op.results[0]) else {
                        continue;
                    };
                    let k = shape(op.operands[0])[1];
                    for (i, side) in [Side::Left, Side::Right].into_iter().enumerate() {
                        want(i, Arc::new(fragments::operand(*strategy, &result, side, k)));
                    }
                    want(2, result);
                }
                OpKind::Product { a, .. } => {
                    let Some(result) = of(op.results[0]) else {
                        continue;
                    };
                    if *a == ProductOperand::Registers {
                        let left = &self.body.ty(op.operands[0]).ty;
                        let per = 32 / left.elem().bits();
                        let k = left.shape()[1];
                        want(0, Arc::new(fragments::warpgroup_left(&result, k, per)));
                    }
                    want(2, result);
                }
                OpKind::WaitProducts { .. } => {
                    for (i, &result) in op.results.iter().enumerate() {
                        if let Some(layout) = of(result) {
                            want(i, layout);
                        }
                    }
                }
                OpKind::Through { op: through, .. } => match through {
                    tile::OpKind::Scan { axis, .. } => {
                        let result = op.results[0];
                        let layout = self.in_order(shape(result), *axis as usize);
                        let layout = Arc::new(layout);
                        plan.defined.insert(result, layout.clone());
                        want(0, layout);
                    }
                    tile::OpKind::ClusterReduce { .. } => {
                        if let Some(layout) = of(op.results[0]) {
                            want(0, layout);
                        }
                    }
                    _ => {
                        for (i, &value) in op.operands.iter().enumerate() {
                            let lies_as_result =
                                matches!(through, tile::OpKind::Take { .. }) && i == 1;
                            let own = of(if lies_as_result { op.results[0] } else { value });
                            want(i, own.unwrap_or_else(|| Arc::new(self.any(shape(value)))));
                        }
                    }
                },
                OpKind::WriteShared { .. } => {
                    let value = op.operands[0];
                    want(
                        0,
                        of(value).unwrap_or_else(|| Arc::new(self.any(shape(value)))),
                    );
                }
                OpKind::Reduce { axis, .. } => {
                    let operand = op.operands[0];
                    let layout = of(operand).unwrap_or_else(|| Arc::new(self.any(shape(operand))));
                    if let (Some(axis), true) = (axis, is_tile(self.body, op.results[0])) {
                        let natural = Arc::new(layout.without_axis(*axis as usize));
                        plan.defined.insert(op.results[0], natural);
                    }
                    want(0, layout);
                }
                OpKind::Tile(tile::OpKind::Broadcast) if is_tile(self.body, op.operands[0]) => {
                    if let Some(result) = of(op.results[0]) {
                        want(0, Arc::new(result.broadcast_operand(shape(op.operands[0]))));
                    }
                }
                OpKind::Tile(tile::OpKind::Reshape) if !is_tile(self.body, op.results[0]) => {
                    // One element: it must be known to all.
                    want(0, Arc::new(self.any(shape(op.operands[0]))));
                }
                OpKind::Tile(
                    kind @ (tile::OpKind::Permute(_)
                    | tile::OpKind::Slice(_)
                    | tile::OpKind::Reshape),
                ) => {
                    let (operand, result) = (op.operands[0], op.results[0]);
                    let natural = |from: &Layout| result_layout(kind, from, shape(result));
                    let own = of(operand);
                    // What a product cuts along K is converted whole.
                    let whole = self
                        .of
                        .get(&operand)
                        .and_then(|&g| self.fragment(self.groups[g].cut.first()?));
                    let suits = |l: &Layout| whole.as_ref().is_none_or(|w| is_free(l, w));
                    let chosen = own
                        .clone()
                        .filter(|l| suits(l))
                        .and_then(|l| natural(&l).map(|n| (l, n)))
                        .or_else(|| {
                            let from = whole.clone()?;
                            natural(&from).map(|n| (Arc::new(from), n))
                        })
                        .or_else(|| {
                            let own = own.clone()?;
                            natural(&own).map(|n| (own, n))
                        })
                        .or_else(|| {
                            let edge = edge_of.get(&id)?;
                            let from = edge.backward(&*of(result)?, shape(operand))?;
                            natural(&from).map(|n| (Arc::new(from), n))
                        })
                        .or_else(|| {
                            let from = self.any(shape(operand));
                            natural(&from).map(|n| (Arc::new(from), n))
                        });
                    match chosen {
                        Some((from, natural)) => {
                            want(0, from);
                            plan.defined.insert(result, Arc::new(natural));
                        }
                        None => {
                            want(0, own.unwrap_or_else(|| Arc::new(self.any(shape(operand)))));
                            plan.through.insert(id);
                        }
                    }
                }
                OpKind::Tile(tile::OpKind::If | tile::OpKind::For { .. } | tile::OpKind::While) => {
                    let first = match &op.kind {
                        OpKind::Tile(tile::OpKind::For { .. }) => 3,
                        _ => 0,
                    };
                    let mut ends = Vec::new();
                    for (i, &result) in op.results.iter().enumerate() {
                        let Some(layout) = of(result) else { continue };
                        if !matches!(op.kind, OpKind::Tile(tile::OpKind::If)) {
                            want(first + i, layout.clone());
                        }
                        for (r, &region) in op.regions.iter().enumerate() {
                            let is_condition =
                                r == 0 && matches!(op.kind, OpKind::Tile(tile::OpKind::While));
                            if let (false, Some(&last)) =
                                (is_condition, self.body.regions[region].ops.last())
                            {
                                ends.push(((last, i), layout.clone()));
                            }
                        }
                    }
                    wanted.extend(ends);
                }
                _ => {}
            }
            plan.wanted.extend(wanted);
        }
        // In order, so that conversions are.
        for &(id, _) in order {
            for (i, &value) in self.body.ops[id].operands.iter().enumerate() {
                if let Some(layout) = plan.wanted.get(&(id, i))
                    && plan.defined.get(&value) != Some(layout)
                {
                    let demands = plan.demands.entry(value).or_default();
                    if !demands.contains(layout) {
                        demands.push(layout.clone());
                    }
                }
            }
        }
        if diagnostics.has_errors() {
            Err(diagnostics)
        } else {
            Ok(plan)
        }
    }

    /// How threads divide a tile that is copied to a channel.
    fn copied(&self, channel: ChannelId, tile: u32, width: u32, kind: &OpKind) -> Layout {
        let channel = &self.channels[channel];
        match kind {
            OpKind::Copy { indices, .. } => channel.passed(tile, width, self.warps, indices).0,
            _ => channel.copied(tile, width, self.warps),
        }
    }

    /// How a product of warpgroups takes its left factor from registers.
    fn left_factor(&self, left: ValueId, result: ValueId) -> Layout {
        let shape = self.body.ty(result).ty.shape();
        let of_result = fragments::warpgroup_result([shape[0], shape[1]], self.warps);
        let left = &self.body.ty(left).ty;
        fragments::warpgroup_left(&of_result, left.shape()[1], 32 / left.elem().bits())
    }

    /// As [`blocked_by`], for the role's warps: where they are no power of two, each holds all by itself.
    fn blocked(&self, shape: &[u32], lanes: &[usize], warps: &[usize], vec: u32) -> Layout {
        self.of_all(blocked_by(shape, lanes, warps, vec, self.dividing))
    }

    /// As [`ordered`], in the same way.
    fn in_order(&self, shape: &[u32], axis: usize) -> Layout {
        self.of_all(ordered(shape, axis, self.dividing))
    }

    /// With the warps that hold replicas.
    fn of_all(&self, mut layout: Layout) -> Layout {
        let bits = self.warps.trailing_zeros() as usize;
        layout.warp.resize(bits, vec![0; layout.shape.len()]);
        layout
    }

    /// A layout without any wish.
    fn any(&self, shape: &[u32]) -> Layout {
        let order: Vec<usize> = (0..shape.len()).rev().collect();
        self.blocked(shape, &order, &order, 1)
    }

    /// Whether roles pass each other tiles.
    fn by_barriers(&self) -> bool {
        self.channels.values().any(|c| c.barriers.is_some())
    }

    /// Whether a fragment had better be converted to be stored: rows of it lie in pieces of a few bytes.
    fn is_dear(&self, own: &Layout, access: &Access, elem: DType) -> bool {
        if !is_mma_result(own) {
            return false;
        }
        let rows = self.for_store(&own.shape, access);
        let scratch = ConvertBuffer::new(own, &rows, elem).bytes;
        // Where rings feed the products, their slots come first.
        let room = match self.by_barriers() {
            true => self.room,
            false => self.target.shared_per_block(),
        };
        scratch <= room && access.cost(own) > DEAR * access.cost(&rows)
    }

    /// The cheapest layout for a store of something that is made on the spot.
    fn for_store(&self, shape: &[u32], access: &Access) -> Layout {
        let order: Vec<usize> = (0..shape.len()).rev().collect();
        let mut best: Option<(f64, Layout)> = None;
        let mut vec = access.width;
        let least = 8u32.div_ceil(access.bits).min(vec);
        while vec >= least {
            let layout = self.blocked(shape, &order, &order, vec);
            let cost = access.cost(&layout);
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, layout));
            }
            vec /= 2;
        }
        best.map_or_else(|| self.any(shape), |(_, layout)| layout)
    }
}

fn reduce_cost(layout: &Layout, axis: Option<u32>) -> f64 {
    let (lanes, warps, results) = match axis {
        Some(axis) => (
            layout.lanes_along(axis as usize),
            layout.warps_along(axis as usize),
            layout.without_axis(axis as usize).registers(),
        ),
        None => {
            let warps = layout.warps() - 1;
            (
                31 & !layout.replicated_lanes(),
                warps & !layout.replicated_warps(),
                1,
            )
        }
    };
    let shuffles = 2.0 * f64::from(lanes.count_ones() * results);
    let exchange = if warps == 0 {
        0.0
    } else {
        30.0 + 2.0 * f64::from(results << warps.count_ones())
    };
    shuffles + exchange
}

fn unproven_bytes(span: crate::span::Span) -> Diagnostic {
    Diagnostic::error(
        codes::E0211,
        span,
        "a store of packed elements that is not known to cover whole bytes",
    )
    .help("state that the view is aligned, and of what number its last dimension is a multiple")
}

/// Writes the new body.
struct Emit<'a> {
    from: &'a RoleBody,
    plan: &'a Plan,
    to: RoleBody,
    /// The value in the layout that it is defined with.
    map: HashMap<ValueId, Versions>,
    buffers: &'a mut cranelift_entity::PrimaryMap<crate::ir::role::BufferId, Buffer>,
}

/// A value of the old body in the new one.
struct Versions {
    /// As defined; `None` for what is only made for its uses.
    own: Option<ValueId>,
    converted: Vec<(Arc<Layout>, ValueId)>,
}

impl Emit<'_> {
    fn region(&mut self, region: RegionId, into: RegionId) {
        let args = self.from.regions[region].args.clone();
        for &arg in &args {
            let ty = self.typed(arg);
            let new = self.to.add_argument(into, ty);
            self.map.insert(
                arg,
                Versions {
                    own: Some(new),
                    converted: Vec::new(),
                },
            );
        }
        for &arg in &args {
            self.convert(arg, into, crate::span::Span::NONE);
        }
        for id in self.from.regions[region].ops.clone() {
            self.op(id, into);
        }
    }

    fn typed(&self, value: ValueId) -> Type {
        Type {
            ty: self.from.ty(value).ty.clone(),
            layout: self.plan.defined(value).cloned(),
        }
    }

    fn op(&mut self, id: OpId, into: RegionId) {
        let op = &self.from.ops[id];
        let operands: Vec<ValueId> = (0..op.operands.len())
            .map(|i| self.operand(id, i))
            .collect();
        if let Some(&result) = op.results.first()
            && is_cheap(self.from, result)
        {
            let mut converted = Vec::new();
            for layout in self.plan.demands.get(&result).into_iter().flatten() {
                let ty = Type {
                    ty: self.from.ty(result).ty.clone(),
                    layout: Some(layout.clone()),
                };
                let new = self.to.append(
                    into,
                    op.kind.clone(),
                    operands.clone(),
                    vec![ty],
                    Vec::new(),
                    op.span,
                );
                converted.push((layout.clone(), self.to.ops[new].results[0]));
            }
            self.map.insert(
                result,
                Versions {
                    own: None,
                    converted,
                },
            );
            return;
        }
        let kind = self.kind(id, &operands);
        let regions = op
            .regions
            .iter()
            .map(|&inner| {
                let new = self.to.new_region();
                self.region(inner, new);
                new
            })
            .collect();
        let types = op.results.iter().map(|&r| self.typed(r)).collect();
        let new = self
            .to
            .append(into, kind, operands, types, regions, op.span);
        for (&old, new) in op.results.iter().zip(self.to.ops[new].results.clone()) {
            self.map.insert(
                old,
                Versions {
                    own: Some(new),
                    converted: Vec::new(),
                },
            );
        }
        for &result in &op.results {
            self.convert(result, into, op.span);
        }
    }

    /// `operands`: those of the new operation.
    fn kind(&mut self, id: OpId, operands: &[ValueId]) -> OpKind {
        let op = &self.from.ops[id];
        let mut kind = match &op.kind {
            OpKind::Tile(kind) if self.plan.through.contains(&id) => OpKind::Through {
                op: kind.clone(),
                scratch: None,
            },
            kind => kind.clone(),
        };
        match &mut kind {
            OpKind::Through {
                op: through,
                scratch,
            } => {
                let (operand, result) = (self.to.ty(operands[0]), self.from.ty(op.results[0]));
                let layout = operand.layout.as_deref();
                let bytes = through_bytes(through, &operand.ty, &result.ty, layout);
                if bytes > 0 {
                    *scratch = Some(self.buffers.push(Buffer {
                        bytes,
                        align: 16,
                        offset: None,
                    }));
                }
            }
            OpKind::Load { width, .. } | OpKind::Store { width, .. } => {
                *width = self.plan.widths.get(&id).copied().unwrap_or(1);
            }
            OpKind::Atomic { scratch, .. } => {
                let result = op.results[0];
                let used = self.from.ops.values().any(|o| o.operands.contains(&result));
                let ty = &self.from.ty(result).ty;
                let bytes = match self.plan.defined(result) {
                    Some(l) if l.replicated_lanes() == 0 && l.replicated_warps() == 0 => 0,
                    Some(layout) => ConvertBuffer::new(layout, layout, ty.elem()).bytes,
                    None => 16,
                };
                if used && bytes > 0 {
                    *scratch = Some(self.buffers.push(Buffer {
                        bytes,
                        align: 16,
                        offset: None,
                    }));
                }
            }
            OpKind::Arrive { scratch, .. } => {
                *scratch = Some(self.buffers.push(Buffer {
                    bytes: 16,
                    align: 16,
                    offset: None,
                }));
            }
            OpKind::Reduce {
                op: how,
                axis,
                scratch,
            } => {
                let elem = self.from.ty(op.operands[0]).ty.elem();
                if let Some(operand) = self.plan.wanted.get(&(id, 0))
                    && let Some(buffer) = ReduceBuffer::new(operand, *axis, *how, elem)
                {
                    *scratch = Some(self.buffers.push(Buffer {
                        bytes: buffer.bytes,
                        align: 16,
                        offset: None,
                    }));
                }
            }
            _ => {}
        }
        kind
    }

    /// Makes the versions of `value` that uses want besides its own.
    fn convert(&mut self, value: ValueId, into: RegionId, span: crate::span::Span) {
        let (Some(wanted), Some(from)) = (self.plan.demands.get(&value), self.plan.defined(value))
        else {
            return;
        };
        let ty = self.from.ty(value).ty.clone();
        for layout in wanted {
            let scratch = (!is_free(from, layout)).then(|| {
                self.buffers.push(Buffer {
                    bytes: ConvertBuffer::new(from, layout, ty.elem()).bytes,
                    align: 16,
                    offset: None,
                })
            });
            let Some(own) = self.map.get(&value).and_then(|v| v.own) else {
                unreachable!("a value is converted before it is defined");
            };
            let result = Type {
                ty: ty.clone(),
                layout: Some(layout.clone()),
            };
            let new = self.to.append(
                into,
                OpKind::Convert { scratch },
                vec![own],
                vec![result],
                Vec::new(),
                span,
            );
            let converted = self.to.ops[new].results[0];
            if let Some(versions) = self.map.get_mut(&value) {
                versions.converted.push((layout.clone(), converted));
            }
        }
    }

    fn operand(&self, id: OpId, index: usize) -> ValueId {
        let value = self.from.ops[id].operands[index];
        let versions = &self.map[&value];
        let wanted = self.plan.wanted.get(&(id, index));
        wanted
            .and_then(|layout| {
                versions
                    .converted
                    .iter()
                    .find(|(l, _)| l == layout)
                    .map(|&(_, v)| v)
            })
            .or(versions.own)
            .unwrap_or_else(|| {
                unreachable!("no version of an operand in the layout that is wanted")
            })
    }
}
