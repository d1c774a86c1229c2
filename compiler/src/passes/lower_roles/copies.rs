//! Which slices threads copy asynchronously, and what a slot's full barrier counts by that.
//!
//! Slices that no bulk copy moves are written as copies through registers at first. Where all of a role's to a channel move 4, 8 or 16
//! aligned bytes at a time, they become asynchronous ones, whose ends arrive at the full barrier by themselves: the role waits for none, and
//! holds nothing of them in registers. The role does not know when they end, so who waits for the slot fences instead.

use std::collections::{BTreeMap, BTreeSet};

use super::body::Lower;
use crate::{
    ir::{
        RegionId,
        role::{self, ChannelId, Fill, OpKind, RoleBody},
        tile::{self, Index},
    },
    passes::{access, divisibility::Divisibility},
    target::{Feature, Target},
};

/// Bytes of an asynchronous copy.
const LEAST: u32 = 4;

/// How a role fills the slots of a channel.
#[derive(Clone, Copy, Default)]
struct Put {
    bulk: bool,
    /// Through registers.
    values: bool,
    /// By copies of single elements that are asynchronous in any case.
    rows: bool,
    /// By copies of threads, each of so many bytes at least.
    copies: Option<u32>,
}

impl Lower<'_> {
    /// Whether threads can copy a slice one by one to a tile of one row: along one dimension, whatever its stride.
    pub(super) fn is_row(&self, indices: &[Index], channel: tile::ChannelId, tile: u32) -> bool {
        let of = &self.rings.ring(channel).tiles[tile as usize];
        let extents: Vec<u32> = indices.iter().filter_map(|i| i.extent()).collect();
        let gathers = indices.iter().any(|i| matches!(i, Index::Gather { .. }));
        self.role.target.has(Feature::CpAsync)
            && !gathers
            && of.shape[0] == 1
            && extents == of.shape[1..]
            && matches!(of.elem.bits() / 8, 4 | 8 | 16)
    }
}

/// How a slice is copied as long as nothing is known of what lies beside what: rows by their elements.
pub(super) fn begun(channel: ChannelId, tile: u32, indices: Vec<Index>) -> OpKind {
    let width = 1;
    match indices.iter().filter(|i| i.extent().is_some()).count() {
        1 => OpKind::CopyAsync {
            channel,
            tile,
            indices,
            width,
        },
        _ => OpKind::Copy {
            channel,
            tile,
            indices,
            width,
        },
    }
}

/// Settles how threads copy in all roles, and what that makes of the barriers' counts.
/// `parts`: how many parts of a slot each role puts, of channels that are filled so.
pub(super) fn settle(
    kernel: &mut role::Kernel,
    parts: &BTreeMap<ChannelId, Vec<u32>>,
    target: Target,
) {
    let header = kernel.header.clone();
    let mut settled = BTreeSet::new();
    for role in &mut kernel.roles {
        widen(&header, &mut role.body);
    }
    let all = kernel.roles.iter().flat_map(|r| r.body.ops.values());
    let by_threads: BTreeSet<ChannelId> = all.filter_map(|op| by_threads(&op.kind)).collect();
    for (number, role) in kernel.roles.iter_mut().enumerate() {
        let body = &mut role.body;
        let mut puts: BTreeMap<ChannelId, Put> = BTreeMap::new();
        for op in body.ops.values() {
            match op.kind {
                OpKind::Copy { channel, width, .. } => {
                    let bytes = width * body.ty(op.operands[0]).ty.elem().bits() / 8;
                    let put = puts.entry(channel).or_default();
                    put.copies = Some(put.copies.map_or(bytes, |b| b.min(bytes)));
                }
                OpKind::CopyAsync { channel, .. } => {
                    puts.entry(channel).or_default().rows = true;
                }
                OpKind::WriteShared { channel, .. } | OpKind::CopyColumn { channel, .. } => {
                    puts.entry(channel).or_default().values = true;
                }
                OpKind::ExpectBytes { channel, .. } => {
                    puts.entry(channel).or_default().bulk = true;
                }
                _ => {}
            }
        }
        puts.retain(|channel, _| by_threads.contains(channel) || parts.contains_key(channel));
        for (channel, put) in puts {
            let own = parts.get(&channel).and_then(|of| of.get(number));
            let times = own.copied().unwrap_or(1);
            let warps = times * role.warps;
            let ring = &mut kernel.channels[channel];
            let Some(barriers) = &mut ring.barriers else {
                continue;
            };
            if settled.insert(channel) {
                barriers.full = 0;
            }
            if put.bulk {
                ring.fill = Fill::Bulk;
                barriers.full += times;
            }
            let wide = target.has(Feature::CpAsync) && put.copies >= Some(LEAST);
            let narrow = put.copies.is_some() && !wide;
            let values = put.values || narrow;
            if narrow {
                // Each thread says that its own are there.
                barriers.full += Target::WARP * warps;
            } else if values {
                barriers.full += warps;
            }
            if !wide && !put.rows {
                continue;
            }
            barriers.copied = true;
            barriers.full += Target::WARP * warps;
            let root = body.root;
            begin(body, root, channel, wide, values);
        }
    }
}

/// The channel that an operation of a role's threads fills.
fn by_threads(kind: &OpKind) -> Option<ChannelId> {
    match *kind {
        OpKind::Copy { channel, .. }
        | OpKind::CopyAsync { channel, .. }
        | OpKind::CopyColumn { channel, .. }
        | OpKind::WriteShared { channel, .. } => Some(channel),
        _ => None,
    }
}

/// Makes the copies to `channel` asynchronous if they are `wide`, and lets them arrive; who also writes from registers says so beside.
fn begin(body: &mut RoleBody, region: RegionId, channel: ChannelId, wide: bool, values: bool) {
    let ids = std::mem::take(&mut body.regions[region].ops);
    for &id in &ids {
        for inner in body.ops[id].regions.clone() {
            begin(body, inner, channel, wide, values);
        }
        match body.ops[id].kind.clone() {
            OpKind::Copy {
                channel: of,
                tile,
                indices,
                width,
            } if wide && of == channel => {
                body.ops[id].kind = OpKind::CopyAsync {
                    channel,
                    tile,
                    indices,
                    width,
                };
            }
            OpKind::ArriveFull { channel: of } if of == channel => {
                let kind = OpKind::ArriveCopied { channel };
                if !values {
                    body.ops[id].kind = kind;
                } else {
                    let (operands, span) = (body.ops[id].operands.clone(), body.ops[id].span);
                    body.append(region, kind, operands, Vec::new(), Vec::new(), span);
                }
            }
            _ => {}
        }
        body.regions[region].ops.push(id);
    }
}

/// Says how many neighbours copies move at once.
fn widen(header: &crate::ir::Header, body: &mut RoleBody) {
    let known = Divisibility::of(header, body);
    let mut widths = Vec::new();
    for (id, op) in &body.ops {
        let OpKind::Copy { indices, .. } = &op.kind else {
            continue;
        };
        let mut load = op.clone();
        load.kind = OpKind::Load {
            indices: indices.clone(),
            cache: tile::Cache::Normal,
            width: 1,
        };
        // A pad stands where the slot does.
        load.operands.pop();
        if let Some(access) = access::of(header, body, &known, &load) {
            widths.push((id, access.width));
        }
    }
    for (id, found) in widths {
        if let OpKind::Copy { width, .. } = &mut body.ops[id].kind {
            *width = found;
        }
    }
}
