//! What a kernel's channels become: rings in shared memory, and how bulk copies see the slices that fill or leave them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use cranelift_entity::PrimaryMap;
use tesserine_set::{DType, ParamKind};

use super::{Refused, columns::Columns, not_yet, over::Storage, parts::Parts};
use crate::{
    diagnostics::{Diagnostic, codes},
    ir::{
        OpId, RegionId, ValueDef, ValueId,
        role::{
            self, Buffer, Channel, Fill, MapDim, MapId, RingBarriers, RoleBody, SharedTile,
            TensorMap,
        },
        tile::{
            self, BinaryOp, Cache, ChannelId, Constant, Index, OpKind, PutSource, RoleHead, RoleOp,
            Type,
        },
    },
    layout::swizzle::{CHUNK, SharedLayout},
    passes::{access, divisibility::Divisibility},
    span::Span,
    target::Target,
};

/// Elements of a box along one dimension.
const LONGEST: u32 = 256;

/// Dimensions of a tensor map.
const DEEPEST: usize = 5;

/// Bytes that a view's beginning and its rows are aligned to where bulk copies touch it.
const ALIGNED: u32 = 16;

/// What a role does with a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) puts: bool,
    pub(super) gets: bool,
}

/// Who uses the channels.
pub(super) struct Uses {
    /// By role: what it does with which channel.
    pub(super) of_role: Vec<BTreeMap<ChannelId, Use>>,
    /// Each `put`, with the role.
    pub(super) puts: Vec<(usize, OpId)>,
    /// Warps of each role.
    warps: Vec<u32>,
}

impl Uses {
    pub(super) fn of(kernel: &tile::Kernel, heads: &[RoleHead], regions: &[RegionId]) -> Uses {
        let mut uses = Uses {
            of_role: vec![BTreeMap::new(); heads.len()],
            puts: Vec::new(),
            warps: heads.iter().map(|h| h.warps).collect(),
        };
        for (role, &region) in regions.iter().enumerate() {
            let mut ops = Vec::new();
            inside(&kernel.body, region, &mut ops);
            for id in ops {
                let (channel, puts) = match &kernel.body.ops[id].kind {
                    OpKind::Role(RoleOp::Put { channel, .. }) => {
                        uses.puts.push((role, id));
                        (*channel, true)
                    }
                    OpKind::Role(RoleOp::Get { channel } | RoleOp::Release { channel, .. }) => {
                        (*channel, false)
                    }
                    _ => continue,
                };
                let found = uses.of_role[role].entry(channel).or_default();
                found.puts |= puts;
                found.gets |= !puts;
            }
        }
        uses
    }
}

/// All operations in a region, those of inner ones too.
pub(super) fn inside(body: &tile::TileBody, region: RegionId, found: &mut Vec<OpId>) {
    for &id in &body.regions[region].ops {
        found.push(id);
        for &inner in &body.ops[id].regions {
            inside(body, inner, found);
        }
    }
}

/// The rings, by channel.
pub(super) struct Rings {
    rings: HashMap<ChannelId, role::ChannelId>,
    /// Where slices with limits are put: the ring of the same slots at whose barriers their bytes arrive before what lies beyond is cleared.
    landings: HashMap<ChannelId, role::ChannelId>,
    pub(super) storage: Storage,
    pub(super) parts: Parts,
    /// Columns that a loop puts one after another, with the rings that they are fetched to: by `put` and by tile.
    stages: HashMap<(OpId, u32), (role::ChannelId, Columns)>,
    /// Some of whose tiles bulk copies fill, and others a role's threads.
    both_ways: BTreeSet<ChannelId>,
    channels: PrimaryMap<role::ChannelId, Channel>,
}

impl Rings {
    pub(super) fn make(
        kernel: &tile::Kernel,
        uses: &Uses,
        formed: &mut role::Kernel,
        target: Target,
    ) -> Result<Rings, Refused> {
        let mut landings = HashMap::new();
        let mut both_ways = BTreeSet::new();
        let mut rings: HashMap<ChannelId, role::ChannelId> = HashMap::new();
        let storage = Storage::of(kernel, uses)?;
        let parts = Parts::of(kernel, uses)?;
        for (id, channel) in &kernel.channels {
            let blocks = match channel.across {
                Some(_) => kernel.header.cluster(),
                None => 1,
            };
            let is_whole = |axis: u32| {
                let axis = &kernel.header.axes[axis as usize];
                axis.cluster && axis.extent.as_int() == Some(i64::from(blocks))
            };
            let refused = [
                (
                    channel.across.is_some_and(|axis| !is_whole(axis)),
                    "a channel across a part of a cluster",
                ),
                (channel.tensor_memory, "a channel of tensor memory"),
            ];
            if let Some((_, what)) = refused.iter().find(|(is, _)| *is) {
                return Err(not_yet(channel.span, what));
            }
            let Filling { fill, limited } = fill(kernel, uses, id, &parts)?;
            if fill == Filled::Both {
                both_ways.insert(id);
            }
            let mut offset = 0u32;
            let mut tiles = Vec::new();
            for tile in &channel.tiles {
                let mut tile = shared(&tile.shape, tile.elem).ok_or_else(|| {
                    not_yet(
                        channel.span,
                        format!("a channel of {}", Type::Tile(tile.clone())),
                    )
                })?;
                tile.offset = offset;
                offset = (offset + tile.layout.bytes()).next_multiple_of(SharedLayout::BULK_ALIGN);
                tiles.push(tile);
            }
            let arrivals = |puts: bool| -> u32 {
                let id = if puts { id } else { storage.last(id) };
                let roles = uses.of_role.iter().zip(&uses.warps);
                roles
                    .filter(|(u, _)| {
                        u.get(&id)
                            .is_some_and(|u| if puts { u.puts } else { u.gets })
                    })
                    .map(|(_, warps)| warps)
                    .sum::<u32>()
                    .max(1)
            };
            let barriers = RingBarriers {
                buffer: formed.buffers.push(Buffer {
                    bytes: 16 * channel.depth,
                    align: 16,
                    offset: None,
                }),
                full: match fill {
                    Filled::Bulk => 1,
                    Filled::Registers => arrivals(true),
                    Filled::Both => 1 + arrivals(true),
                },
                empty: arrivals(false) * blocks,
                copied: false,
                blocks,
            };
            let below = storage
                .is_over(id)
                .then(|| &formed.channels[rings[&storage.root(id)]]);
            let buffer = below.map_or(formed.buffers.next_key(), |below| below.buffer);
            let ring = Channel {
                tiles,
                depth: channel.depth,
                fill: match fill {
                    Filled::Registers => Fill::Registers,
                    Filled::Bulk | Filled::Both => Fill::Bulk,
                },
                buffer,
                barriers: Some(barriers),
            };
            match below.map(Channel::slot_bytes) {
                None => {
                    formed.buffers.push(Buffer {
                        bytes: ring.slot_bytes() * ring.depth,
                        align: ring.align(),
                        offset: None,
                    });
                }
                Some(below)
                    if ring.slot_bytes() == below
                        || ring.depth == 1 && ring.slot_bytes() <= below => {}
                Some(below) => {
                    let own = ring.slot_bytes();
                    let what = format!("slots of {own} bytes over slots of {below}");
                    return Err(not_yet(channel.span, what));
                }
            }
            if limited {
                let barriers = RingBarriers {
                    buffer: formed.buffers.push(Buffer {
                        bytes: 16 * channel.depth,
                        align: 16,
                        offset: None,
                    }),
                    full: 1,
                    empty: 1,
                    copied: false,
                    blocks: 1,
                };
                let landing = Channel {
                    barriers: Some(barriers),
                    ..ring.clone()
                };
                rings.insert(id, formed.channels.push(ring));
                landings.insert(id, formed.channels.push(landing));
                continue;
            }
            rings.insert(id, formed.channels.push(ring));
        }
        let stages = stages(kernel, uses, &parts, target, formed);
        Ok(Rings {
            rings,
            landings,
            storage,
            parts,
            stages,
            both_ways,
            channels: formed.channels.clone(),
        })
    }

    pub(super) fn id(&self, channel: ChannelId) -> role::ChannelId {
        self.rings[&channel]
    }

    pub(super) fn landing(&self, channel: ChannelId) -> Option<role::ChannelId> {
        self.landings.get(&channel).copied()
    }

    /// The ring whose slot is free when one of this channel is given back.
    pub(super) fn freed(&self, channel: ChannelId) -> role::ChannelId {
        self.rings[&self.storage.root(channel)]
    }

    pub(super) fn is_filled_both_ways(&self, channel: ChannelId) -> bool {
        self.both_ways.contains(&channel)
    }

    pub(super) fn stage(&self, put: OpId, tile: u32) -> Option<(role::ChannelId, Columns)> {
        self.stages.get(&(put, tile)).copied()
    }

    pub(super) fn ring(&self, channel: ChannelId) -> &Channel {
        &self.channels[self.rings[&channel]]
    }
}

/// A ring for each column that is fetched with those beside it.
fn stages(
    kernel: &tile::Kernel,
    uses: &Uses,
    parts: &Parts,
    target: Target,
    formed: &mut role::Kernel,
) -> HashMap<(OpId, u32), (role::ChannelId, Columns)> {
    let blocks = kernel.header.schedule.blocks_per_sm.unwrap_or(1).max(1);
    let info = target.info();
    let limit = (info.shared_per_sm / blocks)
        .saturating_sub(info.shared_reserved)
        .min(info.shared_per_block);
    let scratch = scratch(kernel);
    let mut stages = HashMap::new();
    for &(_, id) in &uses.puts {
        let op = &kernel.body.ops[id];
        let OpKind::Role(RoleOp::Put {
            channel,
            sources,
            part: false,
            within: false,
        }) = &op.kind
        else {
            continue;
        };
        if parts.has(*channel) {
            continue;
        }
        let mut at = 0;
        for (number, source) in sources.iter().enumerate() {
            let PutSource::Slice { indices, .. } = source else {
                at += 1;
                continue;
            };
            let columns = Columns::of(kernel, id, &op.operands[at..], indices, target);
            at += 1 + indices.iter().map(|i| i.operands()).sum::<usize>();
            let tile = &kernel.channels[*channel].tiles[number];
            let Some(columns) =
                columns.filter(|c| tile.shape[..] == [c.rows] && tile.elem == c.elem)
            else {
                continue;
            };
            let taken: u32 = formed.buffers.values().map(|b| b.bytes).sum();
            let fitting = [4, 2, 1].into_iter().find_map(|pieces| {
                let mut columns = columns;
                columns.pieces = pieces;
                let mut ring = Channel {
                    tiles: vec![columns.stage()],
                    depth: 2,
                    fill: Fill::CpAsync,
                    buffer: formed.buffers.next_key(),
                    barriers: None,
                };
                let bytes = ring.slot_bytes() * ring.depth;
                (taken + scratch + bytes <= limit).then(|| {
                    ring.buffer = formed.buffers.push(Buffer {
                        bytes,
                        align: ring.align(),
                        offset: None,
                    });
                    (formed.channels.push(ring), columns)
                })
            });
            if let Some(fitting) = fitting {
                stages.insert((id, number as u32), fitting);
            }
        }
    }
    stages
}

/// Bytes of shared memory, or so, that values of 16 bits go through on their way to memory, and all else that moves between threads.
fn scratch(kernel: &tile::Kernel) -> u32 {
    const OTHERS: u32 = 2048;
    let body = &kernel.body;
    let stored = body.ops.values().filter_map(|op| {
        let OpKind::Store { .. } = op.kind else {
            return None;
        };
        let value = op.operands[op.operands.len() - 1];
        let from = body.defining_op(value).map(|id| &body.ops[id].kind);
        let is_slot = matches!(from, Some(OpKind::Role(RoleOp::Get { .. })));
        let ty = body.ty(value);
        let bytes = ty.shape().iter().product::<u32>() * ty.elem().bits() / 8;
        (!is_slot && ty.elem().bits() <= 16).then_some(bytes / 8 * 9)
    });
    stored.max().unwrap_or(0) + OTHERS
}

/// How a channel's slots are filled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Filled {
    Bulk,
    Registers,
    /// Some tiles so, others so.
    Both,
}

struct Filling {
    fill: Filled,
    /// Bulk copies of slices that end before the view does.
    limited: bool,
}

/// How a channel's slots are filled: one way for all that is put.
fn fill(
    kernel: &tile::Kernel,
    uses: &Uses,
    channel: ChannelId,
    parts: &Parts,
) -> Result<Filling, Refused> {
    if parts.has(channel) {
        // Who puts them says how.
        let fill = Filled::Registers;
        let limited = false;
        return Ok(Filling { fill, limited });
    }
    let across = kernel.channels[channel].across.is_some();
    let mut found: Option<(usize, Filled)> = None;
    let mut limited = false;
    for &(role, id) in &uses.puts {
        let op = &kernel.body.ops[id];
        let OpKind::Role(RoleOp::Put {
            channel: of,
            sources,
            part,
            ..
        }) = &op.kind
        else {
            continue;
        };
        if *of != channel {
            continue;
        }
        if *part != across {
            let what = "a part of a slot of one block, or a whole one of all of a cluster";
            return Err(not_yet(op.span, what));
        }
        let tiles = &kernel.channels[channel].tiles;
        let mut at = 0;
        let mut by_bulk = Vec::new();
        let mut limits = false;
        for (source, tile) in sources.iter().zip(tiles) {
            match source {
                PutSource::Slice { indices, .. } => {
                    let slice = shared(&tile.shape, tile.elem).and_then(|tile| {
                        let operands = &op.operands[at..];
                        bulk(kernel, operands, indices, &tile, &mut PrimaryMap::new()).ok()
                    });
                    let bulk = slice.is_some();
                    limits |= slice.is_some_and(|s| s.limit.is_some());
                    at += 1 + indices.iter().map(|i| i.operands()).sum::<usize>();
                    by_bulk.push(bulk);
                }
                PutSource::Value => {
                    at += 1;
                    by_bulk.push(false);
                }
            }
        }
        let fill = match by_bulk.iter().filter(|b| **b).count() {
            0 => Filled::Registers,
            n if n == by_bulk.len() => Filled::Bulk,
            _ => Filled::Both,
        };
        // Who clears arrives as a warp, where a bulk copy would have.
        let fill = match limits && (fill != Filled::Bulk || uses.warps[role] != 1) {
            true => Filled::Registers,
            false => fill,
        };
        limited |= limits && fill == Filled::Bulk;
        if across && (fill != Filled::Bulk || limits) {
            let what = "a slot of all of a cluster that bulk copies do not fill";
            return Err(not_yet(op.span, what));
        }
        match found {
            Some(first) if first != (role, fill) => {
                return Err(not_yet(op.span, "a slot that is filled in several ways"));
            }
            _ => found = Some((role, fill)),
        }
    }
    let fill = found.map_or(Filled::Registers, |(_, fill)| fill);
    Ok(Filling { fill, limited })
}

/// As [`slice`], of any view of the kernel: the first of `operands`, which those of the indices follow.
pub(super) fn bulk(
    kernel: &tile::Kernel,
    operands: &[ValueId],
    indices: &[Index],
    tile: &SharedTile,
    maps: &mut PrimaryMap<MapId, TensorMap>,
) -> Result<Slice, String> {
    let view = operands[0];
    let extents: Vec<u32> = indices.iter().filter_map(|i| i.extent()).collect();
    let rows = match extents[..] {
        [rows, columns] if columns == tile.shape[1] => rows,
        [columns] if columns == tile.shape[1] => 1,
        _ => return Err("it is a part of some columns".into()),
    };
    let param = param(&kernel.body, view);
    let elem = kernel.body.ty(view).elem();
    if let Some(Index::Range { .. }) = indices.last() {
        let before: usize = indices[..indices.len() - 1]
            .iter()
            .map(|i| i.operands())
            .sum();
        let known = known_twos(&kernel.body, operands[1 + before], DEEP);
        let begins = (u64::from(elem.bits()) << known.min(31)) / 8;
        if !begins.is_multiple_of(u64::from(ALIGNED)) {
            return Err(format!(
                "its columns are not known to begin at a multiple of {ALIGNED} bytes"
            ));
        }
    }
    slice(&kernel.header, param, elem, indices, tile, rows, maps)
}

/// How many operations deep it is looked for what divides a coordinate.
const DEEP: u32 = 10;

/// The exponent of a power of two that divides an integer scalar.
fn known_twos(body: &tile::TileBody, value: ValueId, deep: u32) -> u32 {
    let Some(deep) = deep.checked_sub(1) else {
        return 0;
    };
    let of = |v: ValueId| known_twos(body, v, deep);
    let id = match body.values[value].def {
        ValueDef::Result { op, .. } => op,
        ValueDef::Argument { region, index: 0 } => {
            let around = body.ops.values().find(|o| o.regions.contains(&region));
            return match around {
                Some(op) if matches!(op.kind, OpKind::For { .. }) => {
                    of(op.operands[0]).min(of(op.operands[2]))
                }
                _ => 0,
            };
        }
        ValueDef::Argument { .. } => return 0,
    };
    let op = &body.ops[id];
    match op.kind {
        OpKind::Constant(Constant::Int(0, _)) => 63,
        OpKind::Constant(Constant::Int(value, _)) => value.trailing_zeros(),
        OpKind::Binary(BinaryOp::Mul) => (of(op.operands[0]) + of(op.operands[1])).min(63),
        OpKind::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Min | BinaryOp::Max) => {
            of(op.operands[0]).min(of(op.operands[1]))
        }
        OpKind::Select => of(op.operands[1]).min(of(op.operands[2])),
        OpKind::Cast if body.ty(op.operands[0]).elem().is_int() => of(op.operands[0]),
        _ => 0,
    }
}

/// Whether threads can copy a slice piece by piece: rows and columns, these neighbours in memory.
pub(super) fn is_matrix(indices: &[Index]) -> bool {
    indices.iter().filter(|i| i.extent().is_some()).count() == 2
        && indices
            .last()
            .is_some_and(|i| i.extent().is_some() && !matches!(i, Index::Gather { .. }))
}

/// How a tile lies in a slot: with the widest swizzle that its rows are whole pieces of.
fn shared(shape: &[u32], elem: DType) -> Option<SharedTile> {
    let (rows, columns) = match *shape {
        [columns] => (1, columns),
        [rows, columns] => (rows, columns),
        _ => return None,
    };
    let row = u64::from(columns) * u64::from(elem.bits());
    let total = row / 8 * u64::from(rows);
    if !row.is_multiple_of(8) || total > 1 << 20 {
        return None;
    }
    let row = row as u32 / 8;
    let swizzle = [128, 64, 32].into_iter().find(|s| row.is_multiple_of(*s));
    let layout = match swizzle {
        Some(swizzle) if rows > 1 => SharedLayout::swizzled(rows, row, 1, swizzle),
        _ => SharedLayout {
            rows,
            pitch: row.next_multiple_of(CHUNK),
            mask: 0,
            shift: 0,
            panels: 1,
        },
    };
    Some(SharedTile {
        elem,
        shape: [rows, columns],
        layout,
        offset: 0,
    })
}

/// A slice of a view as bulk copies move it: boxes of one map.
pub(super) struct Slice {
    pub(super) map: MapId,
    pub(super) boxes: Vec<Piece>,
    /// Rows of the tile that it fills.
    pub(super) rows: u32,
    /// Rows outside these are 0, though the view has some there.
    pub(super) limit: Option<Limit>,
    pub(super) cache: Cache,
}

/// Rows of a view, by the operands of the access: where the slice begins, and what it is limited to.
#[derive(Clone, Copy)]
pub(super) struct Limit {
    pub(super) start: usize,
    pub(super) from: Option<usize>,
    pub(super) until: Option<usize>,
}

/// One box of a slice.
pub(super) struct Piece {
    /// Where it lies in the tile of the slot.
    pub(super) offset: u32,
    /// By dimension of the map: where it begins.
    pub(super) at: Vec<Coordinate>,
}

/// A coordinate of a box: an operand of the access, by number, and a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Coordinate {
    pub(super) operand: Option<usize>,
    /// What the operand is divided by.
    pub(super) per: u32,
    pub(super) plus: u32,
}

/// How the slice `indices` of a parameter is moved to or from the first `rows` rows of `tile` by bulk copies; what is in the way if it is not.
/// Operands are counted from the first one of the indices.
fn slice(
    header: &crate::ir::Header,
    param: Option<u32>,
    elem: DType,
    indices: &[Index],
    tile: &SharedTile,
    rows: u32,
    maps: &mut PrimaryMap<MapId, TensorMap>,
) -> Result<Slice, String> {
    let Some(param) = param else {
        return Err("the view is no parameter".into());
    };
    let name = &header.signature.params[param as usize].name;
    let ParamKind::View(view) = &header.signature.params[param as usize].kind else {
        return Err(format!("`{name}` is no view"));
    };
    if view.strided {
        return Err(format!("`{name}` may have gaps along its last dimension"));
    }
    // Packed elements are moved by bytes.
    let per = (8 / elem.bits()).max(1);
    let whole_bytes =
        |e| Divisibility::of(header, &RoleBody::new()).formula(e) >= per.trailing_zeros();
    if elem.is_packed() && !view.extents.last().is_some_and(whole_bytes) {
        return Err(format!("rows of `{name}` are not known to end with a byte"));
    }
    if view.dtype.bits() != elem.bits() {
        return Err(format!("`{name}` is seen with elements of another width"));
    }
    if 1 << access::alignment(header, param, view).min(31) < ALIGNED {
        return Err(format!("`aligned({name}, {ALIGNED})` is not known"));
    }
    if view.extents.len() != indices.len() || indices.len() > DEEPEST {
        return Err(format!("`{name}` has more than {DEEPEST} dimensions"));
    }
    let columns = tile.shape[1];
    let inner = columns / per / tile.layout.panels;
    let high = rows.min(LONGEST);
    if inner > LONGEST || !rows.is_multiple_of(high) {
        return Err(format!("a tile of {rows} by {columns} elements"));
    }
    // From the view's last dimension on: the number of the extents that follow it.
    let mut dims = Vec::new();
    let mut starts = Vec::new();
    let mut end: usize = indices.iter().map(|i| i.operands()).sum();
    let mut extents = 0;
    let mut limit = None;
    for (dim, index) in indices.iter().enumerate().rev() {
        let operand = end - index.operands();
        end = operand;
        let (operand, extent) = match *index {
            Index::Scalar => (Some(operand), None),
            Index::Range {
                from: false,
                until: false,
                ..
            } => (Some(operand), index.extent()),
            Index::Whole { .. } => (None, index.extent()),
            Index::Range { from, until, .. } if extents == 1 => {
                limit = Some(Limit {
                    start: operand,
                    from: from.then_some(operand + 1),
                    until: until.then_some(operand + 1 + usize::from(from)),
                });
                (Some(operand), index.extent())
            }
            Index::Range { .. } => return Err("columns with a limit".into()),
            Index::Gather { .. } => return Err("indices that are a tile".into()),
        };
        let of_box = match (extent, extents) {
            (None, 0) => return Err("columns that are not neighbours in memory".into()),
            (None, _) => 1,
            (Some(_), 0) => inner,
            (Some(_), _) => high,
        };
        starts.push((operand, extent.map(|_| extents)));
        extents += usize::from(extent.is_some());
        dims.push(MapDim {
            dim: dim as u32,
            step: if dims.is_empty() { per } else { 1 },
            extent: None,
            extent_of_box: of_box,
        });
    }
    let map = TensorMap {
        param,
        elem,
        dims,
        swizzle: match tile.layout.mask {
            0 => 0,
            _ => tile.layout.pitch,
        },
    };
    let mut boxes = Vec::new();
    for panel in 0..tile.layout.panels {
        for part in 0..rows / high {
            let at = starts.iter().map(|&(operand, extent)| Coordinate {
                operand,
                per: if extent == Some(0) { per } else { 1 },
                plus: match extent {
                    Some(0) => panel * inner,
                    Some(_) => part * high,
                    None => 0,
                },
            });
            boxes.push(Piece {
                offset: panel * tile.layout.panel_bytes() + part * high * tile.layout.pitch,
                at: at.collect(),
            });
        }
    }
    let known = maps.iter().find(|(_, m)| **m == map).map(|(id, _)| id);
    Ok(Slice {
        map: known.unwrap_or_else(|| maps.push(map)),
        boxes,
        rows,
        limit,
        cache: Cache::Normal,
    })
}

/// The parameter that a view of tile IR is.
fn param(body: &tile::TileBody, view: ValueId) -> Option<u32> {
    match body.ops[body.defining_op(view)?].kind {
        OpKind::Param(index) => Some(index),
        _ => None,
    }
}

/// An error that names what bulk copies miss where they are required.
pub(super) fn no_bulk(span: Span, missing: &str) -> Refused {
    let text = "this slot cannot be filled by bulk copies, which are required here";
    Box::new(
        Diagnostic::error(codes::E0708, span, text)
            .note(missing)
            .help("state what is missing in `where` or `specialize`"),
    )
}
