//! The verifier of role IR.
//!
//! All that tile IR asks of an operation holds of its counterpart here; accesses and reductions are checked as those of
//! tile IR. Beside that:
//! - roles have different names, at least one warp each, and there is at least one;
//! - a layout stands only on a tile, is of its shape, has five lane bits, as many warp bits as the role has warps (a
//!   power of two), one entry a dimension in every basis vector and repetition, and covers the shape;
//! - in one kernel either all tiles have a layout or none has;
//! - elementwise operations (unary, binary, compare, fma, select, cast, bitcast) have one layout on all tiles, and so
//!   have what `yield` passes on, carried values and results;
//! - `convert` keeps the type and changes at most the layout; all buffers named exist;
//! - `width` is a power of two, at most 16 bytes, of a multiple of 8 bits, and the tile's last dimension is the view's;
//! - a buffer's alignment is a power of two; with an offset it is aligned and ends within `shared_bytes`;
//! - `barrier` has no operands and no results.

use cranelift_entity::EntityRef;

use super::{BufferId, Kernel, OpKind, Role, Type};
use crate::{
    ir::{
        Op,
        tile::{self, Index, typing},
        verify::{Checker, Finding, Verifiable, VerifyError, ensure},
    },
    layout::Layout,
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
    let mut with_layout = None;
    for role in &kernel.roles {
        let mut checker = Checker::new(&kernel.header, &role.body);
        checker.header();
        if checker.structure() {
            typing(&mut checker);
            for (id, op) in &role.body.ops {
                if let Err(message) = check(kernel, role, op, &mut with_layout) {
                    checker.report(id, message);
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
            },
            OpKind::Reduce { op, axis, .. } => tile::OpKind::Reduce {
                op: *op,
                axis: *axis,
            },
            OpKind::Convert { .. } | OpKind::Barrier => return None,
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
        OpKind::Tile(kind) => match kind {
            tile::OpKind::Load { .. }
            | tile::OpKind::Store { .. }
            | tile::OpKind::Reduce { .. } => {
                return Err("has a form of its own at this level".into());
            }
            tile::OpKind::Unary(_)
            | tile::OpKind::Binary(_)
            | tile::OpKind::Compare(_)
            | tile::OpKind::Fma
            | tile::OpKind::Select
            | tile::OpKind::Cast
            | tile::OpKind::Bitcast => {
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
        }
        OpKind::Store { indices, width, .. } => {
            let view = &body.ty(op.operands[0]).ty;
            access_width(view, indices, *width)?;
        }
        OpKind::Reduce { scratch, .. } => buffer(*scratch)?,
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
        OpKind::Barrier => ensure!(
            op.operands.is_empty() && op.results.is_empty() && op.regions.is_empty(),
            "`barrier` has no operands and no results"
        ),
    }
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
        warps.is_power_of_two() && layout.warp.len() == warps.trailing_zeros() as usize,
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
