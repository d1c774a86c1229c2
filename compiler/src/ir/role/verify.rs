//! The verifier of role IR.
//!
//! All that tile IR asks of an operation holds of its counterpart here; accesses and reductions are checked as those of
//! tile IR. Beside that:
//! - roles have different names, at least one warp each, and there is at least one;
//! - a layout stands only on a tile, is of its shape, has five lane bits, as many warp bits as divide a tile among the role's warps (a
//!   power of two), one entry a dimension in every basis vector and repetition, and covers the shape;
//! - in one kernel either all tiles have a layout or none has;
//! - elementwise operations (unary, binary, compare, fma, select, cast, bitcast) have one layout on all tiles, and so
//!   have what `yield` passes on, carried values and results;
//! - `through` is of operations that may go through scratch; a scan's operand lies as its result does, in order along the
//!   axis; so do the indices of `take` and what a cluster reduces; `sort` is of one tile of `i64`;
//! - `convert` keeps the type and changes at most the layout; all buffers named exist;
//! - `width` is a power of two, at most 16 bytes, of a multiple of 8 bits, and the tile's last dimension is the view's;
//! - a buffer's alignment is a power of two; with an offset it is aligned and ends within `shared_bytes`;
//! - a channel's tiles lie one behind another in its slots, aligned, and its slots fit its buffer, aligned too;
//! - index tiles lie as the tile that is accessed does along the dimension that they index;
//! - operations on channels name one and a tile of it, whose shape theirs fits; slots are `i64`, `live` is `bool`; what
//!   is copied asynchronously comes from a view's slice of two extents with its last dimension, 4, 8 or 16 bytes at once,
//!   to a channel filled so; what is written, to one filled from registers;
//! - `dot` has one layout on accumulator and result; with `mma.sync` the instruction exists for its operands and K is a
//!   multiple of the instruction's, and the layouts of the operands are the fragments that go with the result's;
//! - `barrier`, `commit_copies`, `wait_copies` and `wait_stores` have no operands and no results;
//! - the warps of roles are apart, within a block's threads; registers are a multiple of 8 from 24 to 240, the same for all roles of
//!   a warpgroup;
//! - what waits for a channel's barriers, or arrives at them, names one that has them, of a buffer that holds them;
//! - a bulk copy's box lies in its tile of the slot, of one element width, swizzled alike, with a coordinate (`i32`) a dimension;
//! - `product` is of a role of whole warpgroups; its accumulator and result lie as the instruction gives them, the left operand in
//!   registers as it takes it, and slots are swizzled, their tiles of the result's rows, columns and one K;
//! - `wait_products` gives what it takes; `return` gives the role's state.

use cranelift_entity::EntityRef;

use tesserine_set::{DType, ParamKind};

use super::{
    BufferId, Channel, ChannelId, Fill, Kernel, OpKind, ProductOperand, RingBarriers, Role,
    RoleBody, SharedTile, SlotPart, Strategy, TensorMap, Type, goes_through, index_tiles,
};
use crate::{
    ir::{
        Op, ValueId,
        tile::{self, Index, typing},
        verify::{Checker, Finding, Verifiable, VerifyError, ensure},
    },
    layout::{
        Layout,
        fragments::{
            MmaShape, Side, is_mma_result, is_warpgroup_result, operand, warpgroup_columns,
            warpgroup_left,
        },
        is_in_order,
        swizzle::{CHUNK, SharedLayout},
    },
    span::Span,
};

/// Checks every rule above; all errors found, role by role.
pub fn verify(kernel: &Kernel) -> Result<(), Vec<VerifyError>> {
    let mut errors = Vec::new();
    let mut note = |finding: Finding| {
        if let Err(message) = finding {
            errors.push(VerifyError {
                message,
                op: String::new(),
                span: Span::NONE,
            });
        }
    };
    note(roles(&kernel.roles));
    for (id, buffer) in &kernel.buffers {
        let align = buffer.align;
        if !align.is_power_of_two() {
            note(Err(format!("{id} is aligned to {align} bytes")));
        } else if let Some(offset) = buffer.offset {
            let end = u64::from(offset) + u64::from(buffer.bytes);
            if offset % align != 0 || end > u64::from(kernel.shared_bytes) {
                note(Err(format!(
                    "{id} lies at {offset}..{end}, aligned to {align}, in {} bytes",
                    kernel.shared_bytes
                )));
            }
        }
    }
    for (id, map) in &kernel.maps {
        note(tensor_map(kernel, map).map_err(|message| format!("{id}: {message}")));
    }
    for (id, channel) in &kernel.channels {
        note(ring(kernel, channel).map_err(|message| format!("{id}: {message}")));
    }
    // What is asked of operations has sound channels and maps for granted.
    if !errors.is_empty() {
        return Err(errors);
    }
    let mut with_layout = None;
    for role in &kernel.roles {
        let mut checker = Checker::new(&kernel.header, &role.body);
        checker.header();
        if checker.structure() {
            typing(&mut checker);
            // What is asked here has operands, results and axes of the right number for granted.
            if checker.errors.is_empty() {
                for (id, op) in &role.body.ops {
                    if let Err(message) = check(kernel, role, op, &mut with_layout) {
                        checker.report(id, message);
                    }
                }
            }
        }
        errors.extend(checker.errors);
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(errors)
    }
}

fn roles(roles: &[Role]) -> Finding {
    ensure!(!roles.is_empty(), "a kernel needs a role");
    for (i, role) in roles.iter().enumerate() {
        ensure!(role.warps > 0, "role `{}` has no warps", role.name);
        ensure!(
            roles[..i].iter().all(|r| r.name != role.name),
            "two roles are called `{}`",
            role.name
        );
        let end = u64::from(role.first_warp) + u64::from(role.warps);
        ensure!(
            end <= 32,
            "role `{}` has warps up to {end} of a block's 32",
            role.name
        );
        for other in &roles[..i] {
            let apart = |a: &Role, b: &Role| a.first_warp + a.warps <= b.first_warp;
            ensure!(
                apart(role, other) || apart(other, role),
                "roles `{}` and `{}` have warps in common",
                other.name,
                role.name
            );
            let groups = |r: &Role| r.first_warp / 4..=(r.first_warp + r.warps - 1) / 4;
            let meet = groups(role).any(|g| groups(other).contains(&g));
            ensure!(
                !meet || role.registers == other.registers,
                "roles `{}` and `{}` share a warpgroup, and have different registers",
                other.name,
                role.name
            );
        }
        if let Some(registers) = role.registers {
            ensure!(
                registers.is_multiple_of(8) && (24..=240).contains(&registers),
                "a thread cannot ask for {registers} registers"
            );
        }
    }
    Ok(())
}

impl Verifiable for OpKind {
    fn as_tile(&self) -> Option<tile::OpKind> {
        Some(match self {
            OpKind::Tile(kind) => kind.clone(),
            OpKind::Load { indices, cache, .. } => tile::OpKind::Load {
                indices: indices.clone(),
                cache: *cache,
            },
            OpKind::Store { indices, cache, .. } => tile::OpKind::Store {
                indices: indices.clone(),
                cache: *cache,
                scatter: false,
            },
            OpKind::Atomic { op, indices, .. } => tile::OpKind::Atomic {
                op: *op,
                indices: indices.clone(),
            },
            OpKind::Arrive { indices, .. } => tile::OpKind::Arrive {
                indices: indices.clone(),
            },
            OpKind::Reduce { op, axis, .. } => tile::OpKind::Reduce {
                op: *op,
                axis: *axis,
            },
            OpKind::Dot { .. } => tile::OpKind::Dot,
            OpKind::Through { op, .. } => op.clone(),
            OpKind::Convert { .. }
            | OpKind::CopyAsync { .. }
            | OpKind::Copy { .. }
            | OpKind::FetchColumns { .. }
            | OpKind::CopyColumn { .. }
            | OpKind::CommitCopies
            | OpKind::WaitCopies { .. }
            | OpKind::WriteShared { .. }
            | OpKind::ReadShared { .. }
            | OpKind::Barrier
            | OpKind::Replica
            | OpKind::WaitFull { .. }
            | OpKind::WaitEmpty { .. }
            | OpKind::ExpectBytes { .. }
            | OpKind::CopyBulk { .. }
            | OpKind::TakeTurn { .. }
            | OpKind::PassTurn { .. }
            | OpKind::ClearRows { .. }
            | OpKind::ArriveFull { .. }
            | OpKind::ArriveCopied { .. }
            | OpKind::ArriveEmpty { .. }
            | OpKind::Product { .. }
            | OpKind::WaitProducts { .. }
            | OpKind::StoreBulk { .. }
            | OpKind::WaitStores { .. } => return None,
        })
    }

    fn tile_type(ty: &Type) -> &tile::Type {
        &ty.ty
    }
}

fn check(kernel: &Kernel, role: &Role, op: &Op<OpKind>, with_layout: &mut Option<bool>) -> Finding {
    let body = &role.body;
    let arguments = op.regions.iter().flat_map(|&r| &body.regions[r].args);
    for &value in op.results.iter().chain(arguments) {
        let ty = body.ty(value);
        if let tile::Type::Tile(_) = ty.ty {
            let has = ty.layout.is_some();
            ensure!(
                *with_layout.get_or_insert(has) == has,
                "some tiles have a layout and some have none"
            );
        }
        if let Some(layout) = &ty.layout {
            ensure!(
                matches!(ty.ty, tile::Type::Tile(_)),
                "{} has a layout and is no tile",
                ty.ty
            );
            layout_fits(layout, ty.ty.shape(), role.warps)?;
        }
    }
    let buffer = |scratch: Option<BufferId>| {
        ensure!(
            scratch.is_none_or(|b| b.index() < kernel.buffers.len()),
            "names a buffer that is not there"
        );
        Ok(())
    };
    match &op.kind {
        OpKind::WaitFull { channel } | OpKind::WaitEmpty { channel } => {
            with_barriers(kernel, *channel)?;
            is_i32s(body, op, 2)?;
        }
        OpKind::TakeTurn { warps } => {
            is_i32s(body, op, 0)?;
            ensure!(
                *warps > role.warps && turns_fit(kernel),
                "{warps} warps, or so many roles, cannot take turns"
            );
        }
        OpKind::PassTurn { to, warps } => {
            is_i32s(body, op, 0)?;
            let next = kernel.roles.get(*to as usize);
            ensure!(
                next.is_some_and(|r| *warps == r.warps + role.warps) && turns_fit(kernel),
                "{warps} warps, or so many roles, cannot take turns"
            );
        }
        OpKind::ClearRows { channel, tile } => {
            of_channel(kernel, *channel, *tile)?;
            is_i32s(body, op, 3)?;
        }
        OpKind::ArriveFull { channel } => {
            with_barriers(kernel, *channel)?;
            is_i32s(body, op, 1)?;
        }
        OpKind::ArriveEmpty { channel } => {
            with_barriers(kernel, *channel)?;
            if let [slot, after] = op.operands[..] {
                ensure!(
                    body.ty(slot).ty == tile::Type::Scalar(DType::I32)
                        && matches!(&body.ty(after).ty, tile::Type::Tile(t) if t.elem == DType::F32),
                    "what a slot is given back behind is a tile of f32"
                );
            } else {
                is_i32s(body, op, 1)?;
            }
        }
        OpKind::ArriveCopied { channel } => {
            let barriers = with_barriers(kernel, *channel)?;
            ensure!(
                barriers.copied,
                "this channel is not filled by copies of threads"
            );
            is_i32s(body, op, 1)?;
        }
        OpKind::ExpectBytes { channel, bytes } => {
            with_barriers(kernel, *channel)?;
            ensure!(*bytes < 1 << 20, "an mbarrier counts no {bytes} bytes");
            is_i32s(body, op, 1)?;
        }
        OpKind::CopyBulk {
            channel,
            tile,
            map,
            offset,
            ..
        }
        | OpKind::StoreBulk {
            channel,
            tile,
            map,
            offset,
        } => {
            let fills = matches!(op.kind, OpKind::CopyBulk { .. });
            let (channel, tile) = of_channel(kernel, *channel, *tile)?;
            ensure!(
                !fills || channel.fill == Fill::Bulk && channel.barriers.is_some(),
                "this channel is not filled by bulk copies"
            );
            let Some(map) = kernel.maps.get(*map) else {
                return Err(format!("there is no {map}"));
            };
            let layout = tile.layout;
            let alike = match map.swizzle {
                0 => layout.mask == 0,
                swizzle => layout.is_swizzled() && layout.pitch == swizzle,
            };
            ensure!(
                alike && map.elem.bits() == tile.elem.bits(),
                "the tile does not lie as the map says"
            );
            ensure!(
                offset.is_multiple_of(128)
                    && u64::from(*offset) + u64::from(map.box_bytes()) <= u64::from(layout.bytes()),
                "a box of {} bytes at {offset} does not lie in its tile",
                map.box_bytes()
            );
            is_i32s(body, op, 1 + map.dims.len())?;
        }
        OpKind::Product { a, b, columns } => {
            warpgroup_product(kernel, role, op, *a, *b, *columns)?;
        }
        OpKind::WaitProducts { .. } => {
            let types = |values: &[ValueId]| -> Vec<Type> {
                values.iter().map(|&v| body.ty(v).clone()).collect()
            };
            ensure!(
                op.regions.is_empty() && types(&op.operands) == types(&op.results),
                "`wait_products` gives what it takes"
            );
            ensure!(
                role.warps.is_multiple_of(4) && role.first_warp.is_multiple_of(4),
                "products are of whole warpgroups"
            );
        }
        OpKind::Tile(kind) => match kind {
            tile::OpKind::Load { .. }
            | tile::OpKind::Store { .. }
            | tile::OpKind::Atomic { .. }
            | tile::OpKind::Arrive { .. }
            | tile::OpKind::Dot
            | tile::OpKind::Reduce { .. } => {
                return Err("has a form of its own at this level".into());
            }
            kind if goes_through(kind) => {
                return Err("has a form of its own at this level".into());
            }
            kind if kind.is_elementwise() => {
                let result = &body.ty(op.results[0]).layout;
                for &operand in &op.operands {
                    ensure!(
                        body.ty(operand).layout == *result,
                        "operands and result of an elementwise operation differ in layout"
                    );
                }
            }
            tile::OpKind::If | tile::OpKind::For { .. } | tile::OpKind::While => {
                let layouts = |values: &[crate::ir::ValueId]| {
                    values
                        .iter()
                        .map(|&v| body.ty(v).layout.clone())
                        .collect::<Vec<_>>()
                };
                let results = layouts(&op.results);
                let carried = match kind {
                    tile::OpKind::For { .. } => layouts(&op.operands[3..]),
                    tile::OpKind::While => layouts(&op.operands),
                    _ => results.clone(),
                };
                ensure!(carried == results, "carried values change their layout");
                for (i, &region) in op.regions.iter().enumerate() {
                    let region = &body.regions[region];
                    let skip = usize::from(matches!(kind, tile::OpKind::For { .. }));
                    if !matches!(kind, tile::OpKind::If) {
                        ensure!(
                            layouts(&region.args[skip..]) == results,
                            "a region's arguments change their layout"
                        );
                    }
                    let yields = region.ops.last().map(|&o| layouts(&body.ops[o].operands));
                    let condition = matches!(kind, tile::OpKind::While) && i == 0;
                    ensure!(
                        condition || yields.as_ref() == Some(&results),
                        "what a region yields differs in layout from the results"
                    );
                }
            }
            _ => {}
        },
        OpKind::Load { indices, width, .. } => {
            let view = &body.ty(op.operands[0]).ty;
            access_width(view, indices, *width)?;
            let layout = body.ty(op.results[0]).layout.as_deref();
            index_layouts(body, op, indices, layout)?;
        }
        OpKind::Store { indices, width, .. } => {
            let view = &body.ty(op.operands[0]).ty;
            access_width(view, indices, *width)?;
            let value = op.operands[op.operands.len() - 1];
            index_layouts(body, op, indices, body.ty(value).layout.as_deref())?;
        }
        OpKind::Atomic {
            indices, scratch, ..
        } => {
            buffer(*scratch)?;
            let layout = body.ty(op.results[0]).layout.as_deref();
            let first = 1 + indices.iter().map(|i| i.operands()).sum::<usize>();
            ensure!(
                op.operands[first..]
                    .iter()
                    .all(|&v| body.ty(v).layout.as_deref() == layout),
                "operands and result of `atomic` differ in layout"
            );
            index_layouts(body, op, indices, layout)?;
        }
        OpKind::Arrive { scratch, .. } => buffer(*scratch)?,
        OpKind::Reduce { scratch, .. } => buffer(*scratch)?,
        OpKind::Through {
            op: through,
            scratch,
        } => {
            buffer(*scratch)?;
            ensure!(
                goes_through(through)
                    || matches!(through, tile::OpKind::Slice(_) | tile::OpKind::Reshape),
                "does not go through scratch"
            );
            let layout = |v: ValueId| body.ty(v).layout.as_ref();
            let of_result = match through {
                tile::OpKind::Scan { .. } | tile::OpKind::ClusterReduce { .. } => Some(0),
                tile::OpKind::Take { .. } => Some(1),
                _ => None,
            };
            ensure!(
                of_result.is_none_or(|i| layout(op.operands[i]) == layout(op.results[0])),
                "an operand that lies as the result does has another layout"
            );
            if let (tile::OpKind::Scan { axis, .. }, Some(layout)) =
                (through, layout(op.results[0]))
            {
                ensure!(
                    is_in_order(layout, *axis as usize),
                    "a scan's elements do not lie in order along its axis"
                );
            }
            if let tile::OpKind::Sort { .. } = through {
                ensure!(
                    op.operands.len() == 1 && body.ty(op.operands[0]).ty.elem() == DType::I64,
                    "what is sorted at this level is one tile of i64"
                );
            }
        }
        OpKind::Convert { scratch } => {
            buffer(*scratch)?;
            ensure!(
                op.operands.len() == 1 && op.results.len() == 1 && op.regions.is_empty(),
                "`convert` has one operand and one result"
            );
            let (from, to) = (body.ty(op.operands[0]), body.ty(op.results[0]));
            ensure!(
                from.ty == to.ty && matches!(to.ty, tile::Type::Tile(_)),
                "`convert` of {} to {}",
                from.ty,
                to.ty
            );
        }
        OpKind::Dot { strategy } => {
            let layout = |v: ValueId| body.ty(v).layout.as_deref();
            let [a, b, acc] = [0, 1, 2].map(|i| op.operands[i]);
            ensure!(
                layout(acc) == layout(op.results[0]),
                "accumulator and result of `dot` differ in layout"
            );
            product(
                *strategy,
                &body.ty(a).ty,
                [layout(a), layout(b), layout(acc)],
            )?;
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
            let (channel, tile) = of_channel(kernel, *channel, *tile)?;
            let own = match op.kind {
                OpKind::Copy { .. } => Fill::Registers,
                _ => Fill::CpAsync,
            };
            ensure!(
                match channel.barriers {
                    Some(barriers) => own == Fill::Registers || barriers.copied,
                    None => channel.fill == own,
                },
                "this channel is not filled by such copies"
            );
            let starts: usize = indices.iter().map(|i| i.operands()).sum();
            ensure!(
                op.operands.len() == starts + 3 && op.results.is_empty() && op.regions.is_empty(),
                "`copy_async` takes a view, its indices, a slot and a condition"
            );
            let view = &body.ty(op.operands[0]).ty;
            let tile::Type::View(ty) = view else {
                return Err(format!("copies {view}, which is no view"));
            };
            let extents: Vec<u32> = indices.iter().filter_map(|i| i.extent()).collect();
            let bytes = u64::from(*width) * u64::from(ty.elem.bits()) / 8;
            let along_last = indices.last().is_some_and(|i| i.extent().is_some());
            // A row: neighbours in it are neighbours in memory, or each is copied by itself.
            let is_row = matches!(op.kind, OpKind::CopyAsync { .. })
                && tile.shape[0] == 1
                && extents == tile.shape[1..]
                && (along_last || *width == 1);
            ensure!(
                ty.rank as usize == indices.len()
                    && ty.elem == tile.elem
                    && (extents == tile.shape && along_last || is_row),
                "what is copied from {view} does not fit its place in the channel"
            );
            ensure!(
                width.is_power_of_two()
                    && (matches!(bytes, 4 | 8 | 16) || own == Fill::Registers && bytes <= 16)
                    && tile.shape[1].is_multiple_of(*width),
                "a copy of {bytes} bytes at once"
            );
            let mut at = 1;
            for index in indices {
                for &value in &op.operands[at..at + index.operands()] {
                    match index {
                        Index::Gather { .. } => ensure!(
                            body.ty(value).ty.shape().len() == 1
                                && matches!(body.ty(value).ty.elem(), DType::I32 | DType::I64),
                            "{} is no index tile",
                            body.ty(value).ty
                        ),
                        _ => is_scalar(&body.ty(value).ty, DType::I64)?,
                    }
                }
                at += index.operands();
            }
            is_slot(&body.ty(op.operands[starts + 1]).ty)?;
            is_scalar(&body.ty(op.operands[starts + 2]).ty, DType::Bool)?;
        }
        OpKind::FetchColumns { channel, indices } => {
            let stage = stage_of(kernel, *channel)?;
            let starts: usize = indices.iter().map(|i| i.operands()).sum();
            ensure!(
                op.operands.len() == starts + 2 && op.results.is_empty() && op.regions.is_empty(),
                "`fetch_columns` takes a view, its indices and a slot"
            );
            let view = &body.ty(op.operands[0]).ty;
            let tile::Type::View(ty) = view else {
                return Err(format!("fetches {view}, which is no view"));
            };
            let extents: Vec<u32> = indices.iter().filter_map(|i| i.extent()).collect();
            ensure!(
                ty.rank as usize == indices.len()
                    && ty.elem == stage.elem
                    && extents == stage.shape[..1]
                    && indices.last() == Some(&Index::Scalar)
                    && indices
                        .iter()
                        .all(|i| { i.operands() == 1 && !matches!(i, Index::Gather { .. }) }),
                "what is fetched from {view} does not fit its stage"
            );
            for &value in &op.operands[1..=starts] {
                is_scalar(&body.ty(value).ty, DType::I64)?;
            }
            is_slot(&body.ty(op.operands[starts + 1]).ty)?;
        }
        OpKind::CopyColumn {
            channel,
            tile,
            stage,
        } => {
            let (channel, tile) = of_channel(kernel, *channel, *tile)?;
            let stage = stage_of(kernel, *stage)?;
            ensure!(
                channel.barriers.is_some(),
                "this channel is not filled from registers"
            );
            ensure!(
                tile.elem == stage.elem && tile.shape == [1, stage.shape[0]],
                "a column of the stage does not fit its place in the channel"
            );
            ensure!(
                op.operands.len() == 3 && op.results.is_empty() && op.regions.is_empty(),
                "`copy_column` takes two slots and a column"
            );
            is_slot(&body.ty(op.operands[0]).ty)?;
            is_slot(&body.ty(op.operands[1]).ty)?;
            is_scalar(&body.ty(op.operands[2]).ty, DType::I64)?;
        }
        OpKind::WriteShared {
            channel,
            tile,
            offsets,
        } => {
            let (channel, tile) = of_channel(kernel, *channel, *tile)?;
            ensure!(
                channel.fill == Fill::Registers || channel.barriers.is_some(),
                "this channel is not filled from registers"
            );
            ensure!(
                op.operands.len() == 2 && op.results.is_empty() && op.regions.is_empty(),
                "`write_shared` takes a tile and a slot"
            );
            let value = &body.ty(op.operands[0]).ty;
            let shape = value.shape();
            ensure!(
                value.elem() == tile.elem
                    && shape.len() == 2
                    && (0..2).all(|d| {
                        u64::from(offsets[d]) + u64::from(shape[d]) <= u64::from(tile.shape[d])
                    }),
                "{value} at {offsets:?} does not fit its place in the channel"
            );
            is_slot(&body.ty(op.operands[1]).ty)?;
        }
        OpKind::ReadShared {
            channel,
            tile,
            offsets,
            transposed,
        } => {
            let (_, tile) = of_channel(kernel, *channel, *tile)?;
            ensure!(
                op.operands.len() == 1 && op.results.len() == 1 && op.regions.is_empty(),
                "`read_shared` takes a slot and gives a tile"
            );
            is_slot(&body.ty(op.operands[0]).ty)?;
            let result = &body.ty(op.results[0]).ty;
            let mut shape = result.shape().to_vec();
            if *transposed {
                shape.reverse();
            }
            ensure!(
                (result.elem() == tile.elem
                    || is_widened(tile, result.elem(), offsets, *transposed))
                    && shape.len() == 2
                    && (0..2).all(|d| {
                        u64::from(offsets[d]) + u64::from(shape[d]) <= u64::from(tile.shape[d])
                    }),
                "{result} at {offsets:?} does not lie in its tile of the channel"
            );
        }
        OpKind::Replica => {
            let found = op.results.iter().map(|&r| &body.ty(r).ty);
            let wide = tile::Type::Scalar(DType::I64);
            ensure!(
                op.operands.is_empty() && found.eq([&wide]) && op.regions.is_empty(),
                "has no operands and an `i64`"
            )
        }
        OpKind::Barrier
        | OpKind::CommitCopies
        | OpKind::WaitCopies { .. }
        | OpKind::WaitStores { .. } => ensure!(
            op.operands.is_empty() && op.results.is_empty() && op.regions.is_empty(),
            "has no operands and no results"
        ),
    }
    Ok(())
}

fn is_scalar(ty: &tile::Type, elem: DType) -> Finding {
    ensure!(
        *ty == tile::Type::Scalar(elem),
        "expected {elem}, found {ty}"
    );
    Ok(())
}

fn is_slot(ty: &tile::Type) -> Finding {
    ensure!(
        matches!(ty, tile::Type::Scalar(DType::I64 | DType::I32)),
        "expected a slot, found {ty}"
    );
    Ok(())
}

/// So many `i32` operands, and nothing else.
fn is_i32s(body: &RoleBody, op: &Op<OpKind>, count: usize) -> Finding {
    ensure!(
        op.operands.len() == count && op.results.is_empty() && op.regions.is_empty(),
        "takes {count} operands and gives none"
    );
    let mut operands = op.operands.iter();
    operands.try_for_each(|&v| is_scalar(&body.ty(v).ty, DType::I32))
}

/// Whether there are barriers enough for each role and its turn, besides the one of the block.
fn turns_fit(kernel: &Kernel) -> bool {
    2 * kernel.roles.len() < 16
}

fn with_barriers(kernel: &Kernel, channel: ChannelId) -> Result<RingBarriers, String> {
    let found = kernel.channels.get(channel).and_then(|c| c.barriers);
    found.ok_or_else(|| format!("{channel} has no barriers"))
}

fn tensor_map(kernel: &Kernel, map: &TensorMap) -> Finding {
    let params = &kernel.header.signature.params;
    let Some(ParamKind::View(view)) = params.get(map.param as usize).map(|p| &p.kind) else {
        return Err("is of no view".into());
    };
    ensure!(
        view.dtype.bits() == map.elem.bits(),
        "sees {} as {}",
        view.dtype,
        map.elem
    );
    ensure!(
        (1..=5).contains(&map.dims.len()),
        "has {} dimensions",
        map.dims.len()
    );
    for dim in &map.dims {
        ensure!(
            (dim.dim as usize) < view.extents.len() && dim.step > 0 && dim.extent != Some(0),
            "has a dimension that the view lacks"
        );
        ensure!(
            (1..=256).contains(&dim.extent_of_box),
            "has a box of {} elements",
            dim.extent_of_box
        );
    }
    let bytes = map.dims.iter().fold(1, |bytes: u64, dim| {
        bytes.saturating_mul(u64::from(dim.extent_of_box))
    });
    ensure!(bytes <= 1 << 18, "has a box of {bytes} elements");
    ensure!(map.unit_bits() >= 8, "counts parts of bytes");
    let inner = map.dims[0].extent_of_box * map.unit_bits() / 8;
    ensure!(
        inner.is_multiple_of(CHUNK)
            && matches!(map.swizzle, 0 | 32 | 64 | 128)
            && (map.swizzle == 0 || inner <= map.swizzle),
        "has rows of {inner} bytes in a swizzle of {}",
        map.swizzle
    );
    Ok(())
}

/// What a warpgroup's product takes and gives; its extent along K.
fn warpgroup_product(
    kernel: &Kernel,
    role: &Role,
    op: &Op<OpKind>,
    a: ProductOperand,
    b: ProductOperand,
    by_columns: bool,
) -> Finding {
    let body = &role.body;
    ensure!(
        op.operands.len() == 4 && op.results.len() == 1 && op.regions.is_empty(),
        "`product` takes two factors, an accumulator and a condition, and gives a tile"
    );
    ensure!(
        role.warps.is_multiple_of(4) && role.first_warp.is_multiple_of(4),
        "products are of whole warpgroups"
    );
    let [left, right, acc, accumulate] = [0, 1, 2, 3].map(|i| body.ty(op.operands[i]));
    let result = body.ty(op.results[0]);
    ensure!(acc == result, "accumulator and result of `product` differ");
    is_scalar(&accumulate.ty, DType::Bool)?;
    let &[m, n] = result.ty.shape() else {
        return Err(format!("a product gives no {}", result.ty));
    };
    let fits = match by_columns {
        true => warpgroup_columns([m, n], role.warps).is_some(),
        false => m.is_multiple_of(16 * role.warps) && n.is_multiple_of(8) && n <= 256,
    };
    ensure!(
        fits,
        "there is no product of {m} by {n} of {} warps",
        role.warps
    );
    let layout = result.layout.as_deref();
    ensure!(
        layout.is_none_or(|layout| match by_columns {
            true => warpgroup_columns([m, n], role.warps).as_ref() == Some(layout),
            false => is_warpgroup_result(layout),
        }),
        "the result of `product` does not lie as warpgroups give it"
    );
    // The element, and the extents along what the result has too and along K.
    let slot = |operand, ty: &Type, side: usize| -> Result<(DType, u32, u32), String> {
        let ProductOperand::Slot {
            channel,
            tile,
            part,
            transposed,
        } = operand
        else {
            let tile::Type::Tile(_) = ty.ty else {
                return Err(format!("{} is no tile", ty.ty));
            };
            let &[m, k] = ty.ty.shape() else {
                return Err(format!("{} is no factor of a product", ty.ty));
            };
            return Ok((ty.ty.elem(), m, k));
        };
        is_scalar(&ty.ty, DType::I32)?;
        let (_, tile) = of_channel(kernel, channel, tile)?;
        ensure!(
            tile.layout.is_swizzled() && tile.offset.is_multiple_of(SharedLayout::BULK_ALIGN),
            "a factor of a product is not swizzled"
        );
        let part = SlotPart::of(part, tile, transposed != (side == 1));
        let Some((_, [rows, columns])) = part else {
            return Err("a factor of a product does not begin where products can".into());
        };
        // In memory K is along the columns of a left factor, and along the rows of a right one.
        let (kept, k) = if transposed == (side == 1) {
            (rows, columns)
        } else {
            (columns, rows)
        };
        ensure!(
            transposed == (side == 1) || tile.elem.bits() == 16,
            "a product of {} has K along the rows",
            tile.elem
        );
        // Products read f32 as tf32.
        let elem = match tile.elem {
            DType::F32 => DType::Tf32,
            elem => elem,
        };
        Ok((elem, kept, k))
    };
    ensure!(
        b != ProductOperand::Registers,
        "the right factor of a product lies in a slot"
    );
    let (left_elem, rows, k) = slot(a, left, 0)?;
    let (right_elem, columns, right_k) = slot(b, right, 1)?;
    ensure!(
        rows == m && columns == n && k == right_k,
        "a product of [{rows}, {k}] and [{right_k}, {columns}] gives no {}",
        result.ty
    );
    let sum = result.ty.elem();
    let eight = |t| matches!(t, DType::E4m3 | DType::E5m2);
    let integer = |t| matches!(t, DType::I8 | DType::U8);
    let fits = match (left_elem, right_elem) {
        (DType::F16, DType::F16) | (DType::Bf16, DType::Bf16) | (DType::Tf32, DType::Tf32) => {
            sum == DType::F32
        }
        (a, b) if eight(a) && eight(b) => sum == DType::F32,
        (a, b) if integer(a) && integer(b) => sum == DType::I32,
        _ => false,
    };
    ensure!(
        fits && (k * left_elem.bits()).is_multiple_of(256),
        "there is no product of {left_elem} and {right_elem} along {k} in {sum}"
    );
    if let (ProductOperand::Registers, Some(layout), Some(result)) =
        (a, left.layout.as_deref(), layout)
    {
        ensure!(
            *layout == warpgroup_left(result, k, 32 / left_elem.bits()),
            "the left factor does not lie as the product takes it"
        );
    }
    Ok(())
}

/// Whether a tile of a slot is read whole, as one of wider elements.
fn is_widened(tile: &SharedTile, elem: DType, offsets: &[u32; 2], transposed: bool) -> bool {
    tile.elem == DType::E2m1
        && matches!(elem, DType::F16 | DType::Bf16)
        && *offsets == [0, 0]
        && !transposed
}

fn of_channel(
    kernel: &Kernel,
    channel: ChannelId,
    tile: u32,
) -> Result<(&Channel, &SharedTile), String> {
    let found = kernel
        .channels
        .get(channel)
        .and_then(|c| Some((c, c.tiles.get(tile as usize)?)));
    found.ok_or_else(|| format!("{channel} has no tile {tile}"))
}

/// The tile of a ring that columns are fetched to.
fn stage_of(kernel: &Kernel, channel: ChannelId) -> Result<&SharedTile, String> {
    let (ring, tile) = of_channel(kernel, channel, 0)?;
    ensure!(
        ring.barriers.is_none()
            && ring.fill == Fill::CpAsync
            && ring.tiles.len() == 1
            && tile.layout.pitch.is_multiple_of(CHUNK)
            && tile.layout.mask == 0
            && tile.layout.panels == 1
            && (tile.shape[1] * tile.elem.bits()).is_multiple_of(8 * CHUNK)
            && tile.shape[1] * tile.elem.bits() <= 8 * tile.layout.pitch,
        "{channel} is no stage of columns"
    );
    Ok(tile)
}

fn ring(kernel: &Kernel, channel: &Channel) -> Finding {
    let align = channel.align();
    ensure!(channel.depth > 0, "has no slots");
    let mut end = 0u64;
    for tile in &channel.tiles {
        let SharedTile { layout, shape, .. } = tile;
        let row = (u64::from(shape[1]) * u64::from(tile.elem.bits())).div_ceil(8);
        ensure!(
            (!tile.elem.is_packed() || channel.barriers.is_some())
                && shape[0] <= layout.rows
                && row <= u64::from(layout.pitch) * u64::from(layout.panels)
                && (1..=1 << 12).contains(&layout.panels)
                && (layout.panels == 1 || layout.pitch.is_power_of_two())
                && layout.pitch.is_multiple_of(CHUNK)
                && matches!(layout.mask, 0 | 1 | 3 | 7)
                && (layout.pitch / CHUNK).is_multiple_of(layout.mask + 1)
                && layout.shift < 32,
            "a tile of {} {shape:?} does not lie well in {layout:?}",
            tile.elem
        );
        ensure!(
            tile.offset.is_multiple_of(align) && u64::from(tile.offset) >= end,
            "a tile lies at {} in its slot",
            tile.offset
        );
        let panel = u64::from(layout.rows) * u64::from(layout.pitch);
        end = u64::from(tile.offset) + panel.saturating_mul(u64::from(layout.panels));
    }
    ensure!(end <= 1 << 24, "has slots of {end} bytes");
    if let Some(barriers) = channel.barriers {
        let held = kernel.buffers.get(barriers.buffer);
        let bytes = 16 * u64::from(channel.depth);
        ensure!(
            held.is_some_and(|b| u64::from(b.bytes) >= bytes && b.align.is_multiple_of(8)),
            "its barriers of {bytes} bytes do not fit {}",
            barriers.buffer
        );
        let counts = [barriers.full, barriers.empty];
        ensure!(
            counts.iter().all(|c| (1..1 << 20).contains(c)),
            "its barriers count {counts:?} arrivals"
        );
        ensure!(
            barriers.blocks == 1 || barriers.blocks == kernel.header.cluster(),
            "it lies across {} blocks, and not all of a cluster",
            barriers.blocks
        );
    }
    let slots = end
        .next_multiple_of(u64::from(align))
        .saturating_mul(u64::from(channel.depth));
    let buffer = kernel.buffers.get(channel.buffer);
    ensure!(
        buffer.is_some_and(|b| u64::from(b.bytes) >= slots && b.align.is_multiple_of(align)),
        "its {slots} bytes do not fit {}",
        channel.buffer
    );
    Ok(())
}

/// The layouts of a product's operands follow from that of its accumulator. The shapes have been checked.
fn product(strategy: Strategy, left: &tile::Type, layouts: [Option<&Layout>; 3]) -> Finding {
    let k = left.shape()[1];
    if let Strategy::MmaSync(shape) = strategy {
        let fits = match left.elem() {
            DType::F16 | DType::Bf16 => [MmaShape::M16N8K8, MmaShape::M16N8K16].contains(&shape),
            DType::Tf32 => shape == MmaShape::M16N8K8_32,
            t => t.bits() == 8 && shape == MmaShape::M16N8K32,
        };
        ensure!(
            fits && k.is_multiple_of(shape.k),
            "there is no `mma.sync` of {shape:?} for {left}"
        );
    }
    let [Some(a), Some(b), Some(acc)] = layouts else {
        return Ok(());
    };
    if let Strategy::MmaSync(_) = strategy {
        ensure!(
            is_mma_result(acc),
            "the result of `dot` does not lie as `mma.sync` gives it"
        );
    }
    let expected = |side| operand(strategy, acc, side, k);
    ensure!(
        *a == expected(Side::Left) && *b == expected(Side::Right),
        "the operands of `dot` do not lie as its result asks"
    );
    Ok(())
}

fn access_width(view: &tile::Type, indices: &[Index], width: u32) -> Finding {
    if width == 1 {
        return Ok(());
    }
    let bits = u64::from(width) * u64::from(view.elem().bits());
    ensure!(
        width.is_power_of_two() && bits <= 128 && bits % 8 == 0,
        "an access of {width} elements of {bits} bits together"
    );
    ensure!(
        indices.last().is_some_and(|i| i.extent().is_some()),
        "a wide access along a dimension that is indexed by a scalar"
    );
    Ok(())
}

fn layout_fits(layout: &Layout, shape: &[u32], warps: u32) -> Finding {
    let rank = shape.len();
    ensure!(
        layout.shape == shape,
        "a layout of shape {:?} on a tile of shape {shape:?}",
        layout.shape
    );
    let mut vectors = layout
        .register
        .iter()
        .chain(&layout.lane)
        .chain(&layout.warp);
    ensure!(
        layout.repeat.len() == rank && vectors.all(|v| v.len() == rank),
        "a layout's vectors do not have one entry a dimension"
    );
    ensure!(
        layout.register.len() < 20 && layout.lane.len() == 5,
        "a layout has {} register bits and {} lane bits",
        layout.register.len(),
        layout.lane.len()
    );
    ensure!(
        1 << layout.warp.len() == super::warps_of_layouts(warps),
        "a layout has {} warp bits in a role of {warps} warps",
        layout.warp.len()
    );
    let block = layout.block();
    for d in 0..rank {
        ensure!(
            u64::from(block[d]) * u64::from(layout.repeat[d]) >= u64::from(shape[d]),
            "a layout's blocks of {block:?}, repeated {:?}, do not cover {shape:?}",
            layout.repeat
        );
    }
    Ok(())
}

/// Whether the index tiles of an access lie as the tile that it moves does along their dimension.
fn index_layouts(
    body: &RoleBody,
    op: &Op<OpKind>,
    indices: &[Index],
    layout: Option<&Layout>,
) -> Finding {
    let Some(layout) = layout else { return Ok(()) };
    for (operand, dim) in index_tiles(indices) {
        ensure!(
            body.ty(op.operands[operand]).layout.as_deref() == Some(&layout.projected(dim)),
            "an index tile does not lie as what it indexes"
        );
    }
    Ok(())
}
