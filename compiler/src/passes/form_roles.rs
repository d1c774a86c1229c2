//! Says which warps execute what, and by which instructions products are computed. Today one role of all warps executes
//! everything.
//!
//! How many warps: what the schedule says, else by the largest tile, so that a thread holds some 16 elements of it with
//! up to eight warps, and 32 with up to 32.

use std::collections::HashMap;

use cranelift_entity::PrimaryMap;

use crate::{
    diagnostics::{Diagnostic, Diagnostics, codes},
    ir::{RegionId, ValueId, role, tile},
    target::Target,
};

/// Elements a thread up to eight warps, and beyond.
const FEW: u64 = 16;
const MANY: u64 = 32;

pub fn run(kernel: &tile::Kernel, target: Target) -> Result<role::Kernel, Diagnostics> {
    let warps = match kernel.header.schedule.warps {
        Some(warps) => checked(kernel, warps)?,
        None => chosen(kernel),
    };
    too_large(kernel, warps)?;
    let mut body = role::RoleBody::new();
    let root = body.root;
    copy(
        &kernel.body,
        kernel.body.root,
        &mut body,
        root,
        target,
        &mut HashMap::new(),
    );
    Ok(role::Kernel {
        header: kernel.header.clone(),
        roles: vec![role::Role {
            name: "all".to_owned(),
            warps,
            body,
        }],
        buffers: PrimaryMap::new(),
        channels: PrimaryMap::new(),
        shared_bytes: 0,
    })
}

fn checked(kernel: &tile::Kernel, warps: u32) -> Result<u32, Diagnostics> {
    let most = Target::MAX_THREADS / Target::WARP;
    if warps.is_power_of_two() && warps <= most {
        return Ok(warps);
    }
    let mut diagnostics = Diagnostics::default();
    diagnostics.push(
        Diagnostic::error(
            codes::E0620,
            kernel.header.span,
            format!(
                "a block of `{}` cannot have {warps} warps",
                kernel.header.name
            ),
        )
        .help(format!("`warps` is a power of two from 1 to {most}")),
    );
    Err(diagnostics)
}

/// Elements of one tile that a thread may hold. It has 255 registers of 4 bytes; what is far beyond them would be computed
/// in memory, if `ptxas` ever ended.
const MOST: u64 = 1024;

fn too_large(kernel: &tile::Kernel, warps: u32) -> Result<(), Diagnostics> {
    let body = &kernel.body;
    let threads = u64::from(warps * Target::WARP);
    let elements = |ty: &tile::Type| ty.shape().iter().map(|&d| u64::from(d)).product::<u64>();
    let found = body.ops.values().find_map(|op| {
        let ty = op.results.iter().map(|&r| body.ty(r));
        let tile = ty.filter(|ty| !matches!(ty, tile::Type::View(_)));
        let large = tile.map(elements).find(|&n| n > MOST * threads)?;
        Some((large, op.span))
    });
    let Some((large, span)) = found else {
        return Ok(());
    };
    let mut diagnostics = Diagnostics::default();
    diagnostics.push(
        Diagnostic::error(
            codes::E0622,
            span,
            format!(
                "this tile has {large} elements, {} for each of the block's {threads} threads, and {MOST} are the most",
                large.div_ceil(threads)
            ),
        )
        .note("a thread has 255 registers of 4 bytes for all that is held at once")
        .help("make the tile smaller, and the grid larger; or go over it in a loop"),
    );
    Err(diagnostics)
}

fn chosen(kernel: &tile::Kernel) -> u32 {
    let most = kernel
        .body
        .values
        .values()
        .map(|v| v.ty.shape().iter().map(|&d| u64::from(d)).product::<u64>())
        .max()
        .unwrap_or(1);
    let warp = u64::from(Target::WARP);
    let few = most.div_ceil(warp * FEW).next_power_of_two();
    let many = most.div_ceil(warp * MANY).next_power_of_two();
    few.min(8).max(many.min(32)) as u32
}

fn copy(
    from: &tile::TileBody,
    region: RegionId,
    to: &mut role::RoleBody,
    into: RegionId,
    target: Target,
    map: &mut HashMap<ValueId, ValueId>,
) {
    let typed = |ty: &tile::Type| role::Type {
        ty: ty.clone(),
        layout: None,
    };
    for &arg in &from.regions[region].args {
        map.insert(arg, to.add_argument(into, typed(from.ty(arg))));
    }
    for &id in &from.regions[region].ops {
        let op = &from.ops[id];
        let regions = op
            .regions
            .iter()
            .map(|&inner| {
                let new = to.new_region();
                copy(from, inner, to, new, target, map);
                new
            })
            .collect();
        let kind = match op.kind.clone() {
            tile::OpKind::Load { indices, cache } => role::OpKind::Load {
                indices,
                cache,
                width: 1,
            },
            tile::OpKind::Store { indices, cache, .. } => role::OpKind::Store {
                indices,
                cache,
                width: 1,
            },
            tile::OpKind::Atomic { op, indices } => role::OpKind::Atomic {
                op,
                indices,
                scratch: None,
            },
            tile::OpKind::Arrive { indices } => role::OpKind::Arrive {
                indices,
                scratch: None,
            },
            tile::OpKind::Reduce { op, axis } => role::OpKind::Reduce {
                op,
                axis,
                scratch: None,
            },
            tile::OpKind::Dot => role::OpKind::Dot {
                strategy: strategy(from.ty(op.operands[0]), target),
            },
            kind if role::goes_through(&kind) => role::OpKind::Through {
                op: kind,
                scratch: None,
            },
            kind => role::OpKind::Tile(kind),
        };
        let operands = op.operands.iter().map(|v| map[v]).collect();
        let results = op.results.iter().map(|&r| typed(from.ty(r))).collect();
        let new = to.append(into, kind, operands, results, regions, op.span);
        for (&old, &new) in op.results.iter().zip(&to.ops[new].results) {
            map.insert(old, new);
        }
    }
}

/// How a product with this left operand is computed.
fn strategy(left: &tile::Type, target: Target) -> role::Strategy {
    match target.mma_sync(left.elem()) {
        Some(shape) if left.shape()[1].is_multiple_of(shape.k) => role::Strategy::MmaSync(shape),
        _ => role::Strategy::Fma,
    }
}
