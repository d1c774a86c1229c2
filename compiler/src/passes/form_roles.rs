//! Says which warps execute what, and by which instructions products are computed. Kernels of the role level have their author's roles
//! ([`lower_roles`]); in others one role of all warps executes everything.
//!
//! How many warps: what the schedule says, else by the largest tile, so that a thread holds some 16 elements of it with
//! up to eight warps, and 32 with up to 32; where there are products, by the largest of their results, since these want
//! registers more than threads.

use std::collections::HashMap;

use cranelift_entity::PrimaryMap;
use tesserine_set::DType;

use super::lower_roles;
use crate::{
    diagnostics::{Diagnostic, Diagnostics, codes},
    ir::{RegionId, ValueId, role, tile},
    span::Span,
    target::Target,
};

/// Elements a thread up to eight warps, and beyond.
const FEW: u64 = 16;
const MANY: u64 = 32;

/// Elements a thread of a product's result, with four to eight warps.
const OF_PRODUCT: u64 = 64;

pub fn run(kernel: &tile::Kernel, target: Target) -> Result<role::Kernel, Diagnostics> {
    if let Some(roles) = lower_roles::roles_of(kernel) {
        return lower_roles::run(kernel, roles, target);
    }
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
            first_warp: 0,
            warps,
            registers: None,
            body,
            like: None,
        }],
        buffers: PrimaryMap::new(),
        channels: PrimaryMap::new(),
        maps: PrimaryMap::new(),
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
    let warp = u64::from(Target::WARP);
    let product = kernel
        .body
        .ops
        .values()
        .filter(|op| op.kind == tile::OpKind::Dot)
        .map(|op| elements(kernel.body.ty(op.results[0])))
        .max();
    if let Some(elements) = product {
        let warps = elements.div_ceil(warp * OF_PRODUCT).next_power_of_two();
        return warps.clamp(4, 8) as u32;
    }
    let most = kernel
        .body
        .values
        .values()
        .map(|v| elements(&v.ty))
        .max()
        .unwrap_or(1);
    let few = most.div_ceil(warp * FEW).next_power_of_two();
    let many = most.div_ceil(warp * MANY).next_power_of_two();
    few.min(8).max(many.min(32)) as u32
}

fn elements(ty: &tile::Type) -> u64 {
    ty.shape().iter().map(|&d| u64::from(d)).product()
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
        let mut operands: Vec<ValueId> = op.operands.iter().map(|v| map[v]).collect();
        let kind = match op.kind.clone() {
            tile::OpKind::Dot => {
                let mut product = Product {
                    to,
                    into,
                    span: op.span,
                };
                let strategy = product.fit(&mut operands, target);
                role::OpKind::Dot { strategy }
            }
            kind => plain(kind),
        };
        let results = op.results.iter().map(|&r| typed(from.ty(r))).collect();
        let new = to.append(into, kind, operands, results, regions, op.span);
        for (&old, &new) in op.results.iter().zip(&to.ops[new].results) {
            map.insert(old, new);
        }
    }
}

/// What an operation is in role IR before layouts are assigned, of all but products.
pub(super) fn plain(kind: tile::OpKind) -> role::OpKind {
    match kind {
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
        kind if role::goes_through(&kind) => role::OpKind::Through {
            op: kind,
            scratch: None,
        },
        kind => role::OpKind::Tile(kind),
    }
}

/// A product of `operands` by the warps' own instructions, begun and over at once.
pub(super) fn product(
    to: &mut role::RoleBody,
    into: RegionId,
    mut operands: Vec<ValueId>,
    ty: role::Type,
    span: Span,
    target: Target,
) -> ValueId {
    let mut product = Product { to, into, span };
    let strategy = product.fit(&mut operands, target);
    let kind = role::OpKind::Dot { strategy };
    let op = to.append(into, kind, operands, vec![ty], Vec::new(), span);
    to.ops[op].results[0]
}

/// Less of K than this part of an instruction's is not worth the instruction.
const LEAST_PART: u32 = 4;

/// Where operations go that make operands fit for a product.
struct Product<'a> {
    to: &'a mut role::RoleBody,
    into: RegionId,
    span: Span,
}

impl Product<'_> {
    fn value(
        &mut self,
        kind: role::OpKind,
        operands: Vec<ValueId>,
        elem: DType,
        shape: Vec<u32>,
    ) -> ValueId {
        let ty = role::Type {
            ty: tile::tile_or_scalar(elem, shape),
            layout: None,
        };
        let op = self
            .to
            .append(self.into, kind, operands, vec![ty], Vec::new(), self.span);
        self.to.ops[op].results[0]
    }

    fn elem(&self, value: ValueId) -> DType {
        self.to.ty(value).ty.elem()
    }

    fn cast(&mut self, value: ValueId, elem: DType) -> ValueId {
        let shape = self.to.ty(value).ty.shape().to_vec();
        let kind = role::OpKind::Tile(tile::OpKind::Cast);
        self.value(kind, vec![value], elem, shape)
    }

    /// How a product of these operands is computed, which may become others of the same values: 8-bit floats become `f16`
    /// where no instruction takes them, and K is filled up with zeros to a multiple of the instruction's.
    fn fit(&mut self, operands: &mut [ValueId], target: Target) -> role::Strategy {
        let elem = self.elem(operands[0]);
        let fp8 = matches!(elem, DType::E4m3 | DType::E5m2);
        if fp8 && target.mma_sync(elem).is_none() {
            for value in &mut operands[..2] {
                *value = self.cast(*value, DType::F16);
            }
        }
        let Some(mma) = target.mma_sync(self.elem(operands[0])) else {
            return role::Strategy::Fma;
        };
        let k = self.to.ty(operands[0]).ty.shape()[1];
        let missing = k.next_multiple_of(mma.k) - k;
        if missing == 0 {
            return role::Strategy::MmaSync(mma);
        }
        if k < mma.k / LEAST_PART {
            return role::Strategy::Fma;
        }
        for (axis, value) in [1, 0].into_iter().zip(operands) {
            let elem = self.elem(*value);
            let mut shape = self.to.ty(*value).ty.shape().to_vec();
            let zero = match elem.is_float() {
                true => tile::Constant::Float(0.0, elem),
                false => tile::Constant::Int(0, elem),
            };
            let kind = role::OpKind::Tile(tile::OpKind::Constant(zero));
            let zero = self.value(kind, Vec::new(), elem, Vec::new());
            shape[axis] = missing;
            let kind = role::OpKind::Tile(tile::OpKind::Broadcast);
            let zeros = self.value(kind, vec![zero], elem, shape.clone());
            shape[axis] = k + missing;
            let op = tile::OpKind::Concat { axis: axis as u32 };
            let kind = role::OpKind::Through { op, scratch: None };
            *value = self.value(kind, vec![*value, zeros], elem, shape);
        }
        role::Strategy::MmaSync(mma)
    }
}
