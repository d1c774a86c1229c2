//! Divides a kernel of the tile level into roles, where its schedule asks for them by `consumers` or `producers`.
//!
//! One role copies the slices that products read, and the other does all else; products are begun, and awaited where their values are needed.
//! The places of slices are a backward slice of the program, which the role that copies runs by itself, with the loops and branches around.
//! What follows is a kernel of the role level like any other: it is checked as the author's are, can be printed as source, and is lowered alike.
//!
//! ```text
//! for p { acc = dot(a[p], b[p].t, acc) }  c = acc
//! ──▶ load: for p { put ab { a[p], b[p] } }    math: for p { let (x, y) = get ab; acc = mma(x, y.t, acc); release ab lag 1; }  c = await acc
//! ```
//!
//! Invariants: only what the later passes take is kept; where slices cannot be bulk copies because a body knows too few facts, it keeps
//! one role; what else stands in the way of roles that were asked for is an error that says so. Before it, [`promote`] brings chains of products
//! to f32 as often as the schedule says, on every target.

mod plan;
mod promote;
mod write;

use std::collections::BTreeSet;

use self::plan::{Around, Plan};
use super::lower_roles;
use crate::{
    diagnostics::{Diagnostic, Diagnostics, codes},
    ir::{
        OpId, RegionId,
        tile::{Kernel, OpKind, TileBody},
    },
    sema,
    span::Span,
    target::{Feature, Target},
};

/// Rows of a warpgroup's instruction.
const ROWS: u32 = 64;
/// Threads of a warpgroup.
const GROUP: u32 = 128;
/// Registers of a multiprocessor.
const REGISTERS: u32 = 65_536;
/// Registers of a thread that only copies.
const FEW: u32 = 24;
/// Of one that works out where rows lie, and copies pieces of them.
const SOME: u32 = 40;
/// The most that a thread of a role can use.
const MANY: u32 = 240;
/// Slots that no schedule asks for.
const MOST_STAGES: u32 = 4;

/// Why a kernel has no roles.
pub(super) struct Unfit {
    span: Span,
    what: String,
}

/// What the roles are given.
struct Sizes {
    /// Warps of the role that copies: one for bulk copies.
    copy_warps: u32,
    /// Warpgroups that compute.
    groups: u32,
    /// The axis that they divide.
    split: Option<u32>,
    /// Of the role that copies, and of the other; by the launch, if nothing is to be moved between them.
    registers: Option<[u32; 2]>,
    /// Slots of each channel.
    depths: Vec<u32>,
}

pub(super) fn run(kernel: &mut Kernel, target: Target) -> Result<(), Diagnostics> {
    if lower_roles::roles_of(kernel).is_some() {
        return Ok(());
    }
    if let Some(every) = kernel.header.schedule.promote.take() {
        promote::run(kernel, every).map_err(|unfit| {
            let title = format!(
                "the schedule's `promote: {every}` does not serve: {}",
                unfit.what
            );
            one(Diagnostic::error(codes::E0602, unfit.span, title))
        })?;
    }
    let schedule = &kernel.header.schedule;
    let asked = schedule.consumers.is_some() || schedule.producers.is_some();
    if !asked || schedule.producers == Some(0) || !target.has(Feature::Wgmma) {
        return Ok(());
    }
    let body = kernel.body.clone();
    let around = Around::of(&body);
    let refused = |unfit: Unfit| {
        let title = format!("the schedule asks for roles, and {}", unfit.what);
        one(Diagnostic::error(codes::E0623, unfit.span, title)
            .label(kernel.header.span, "this kernel's")
            .help("leave out `consumers` and `producers`, or write the roles yourself"))
    };
    let plan = around.plan(kernel).map_err(refused)?;
    let mut first = None;
    for sizes in choices(kernel, &plan, target).map_err(refused)? {
        let made = write::write(kernel, &plan, &around, &sizes);
        match serves(&made, target) {
            Ok(()) => {
                *kernel = made;
                return Ok(());
            }
            Err(found) => first = first.or(Some(found)),
        }
    }
    let Some(found) = first else {
        return Ok(());
    };
    // Without facts nothing can be copied in bulk: the body for them has the roles.
    let no_bulk = found.iter().all(|d| d.code == codes::E0708);
    if no_bulk && kernel.header.facts.is_empty() {
        return Ok(());
    }
    let mut told = Diagnostics::default();
    for diagnostic in found.iter() {
        let note = "this stands in one of the roles that the schedule's `consumers` or `producers` asks for";
        told.push(diagnostic.clone().note(note));
    }
    Err(told)
}

fn one(diagnostic: Diagnostic) -> Diagnostics {
    let mut diagnostics = Diagnostics::default();
    diagnostics.push(diagnostic);
    diagnostics
}

/// Whether a kernel with roles is right, and the passes take it.
fn serves(kernel: &Kernel, target: Target) -> Result<(), Diagnostics> {
    let mut found = Diagnostics::default();
    for diagnostic in sema::check_limits(kernel, target)
        .into_iter()
        .chain(sema::check_channels(kernel))
    {
        found.push(diagnostic);
    }
    match found.has_errors() {
        true => Err(found),
        false => super::lower(kernel, &target).map(|_| ()),
    }
}

/// The sizes to try, the best first.
fn choices(kernel: &Kernel, plan: &Plan, target: Target) -> Result<Vec<Sizes>, Unfit> {
    let body = &kernel.body;
    let schedule = &kernel.header.schedule;
    let shapes = plan.products.iter().map(|&id| {
        let shape = body.ty(body.ops[id].results[0]).shape();
        ([shape[0], shape[1]], body.ops[id].span)
    });
    let shapes: Vec<([u32; 2], Span)> = shapes.collect();
    let rows = |groups: u32| shapes.iter().find(|([m, _], _)| m % (ROWS * groups) != 0);
    if let Some(&([m, _], span)) = rows(1) {
        let what = format!("this product has {m} rows, which are no multiple of {ROWS}");
        return Err(Unfit { span, what });
    }
    // A warpgroup with more of a product than this has no registers for anything else.
    let most = shapes.iter().map(|([m, n], _)| m * n / GROUP).max();
    let chosen = match most.unwrap_or(0) > 64 && rows(2).is_none() {
        true => 2,
        false => 1,
    };
    let groups = schedule.consumers.unwrap_or(chosen);
    let columns = |groups: u32| {
        let of =
            |n: u32| n.is_multiple_of(groups) && (n / groups).is_power_of_two() && n / groups >= 8;
        shapes.iter().all(|([_, n], _)| of(*n))
    };
    let split = match groups {
        1 => None,
        _ if rows(groups).is_none() => Some(0),
        _ if columns(groups) => Some(1),
        _ => {
            let ([m, n], span) = shapes[0];
            let what = format!("{groups} warpgroups do not divide this product of {m} by {n}");
            return Err(Unfit { span, what });
        }
    };
    let gathers = plan.groups.iter().flat_map(|g| &g.loads).any(|&load| {
        matches!(&body.ops[load].kind, OpKind::Load { indices, .. } if plan::is_gather(indices))
    });
    let copy_groups = schedule.producers.unwrap_or(1).max(1);
    let (copy_warps, copy_groups, few) = match gathers {
        true => (4 * copy_groups, copy_groups, SOME),
        false => (1, 1, FEW),
    };
    let all = groups + copy_groups;
    let blocks = schedule.blocks_per_sm.unwrap_or(1).max(1);
    let each = (REGISTERS / blocks / (all * GROUP) / 8 * 8).min(256);
    let many = ((each * all - few * copy_groups) / groups / 8 * 8).min(MANY);
    let registers = (many > each && each > few).then_some([few, many]);
    let bytes = |g: &plan::Group| -> u32 {
        let tiles = g.loads.iter().map(|&load| {
            let ty = body.ty(body.ops[load].results[0]);
            let elements: u32 = ty.shape().iter().product();
            (elements * ty.elem().bits() / 8).next_multiple_of(GROUP)
        });
        tiles.sum()
    };
    let stages: Vec<Option<u32>> = plan
        .groups
        .iter()
        .map(|g| {
            let label = match &body.ops[g.around?].kind {
                OpKind::For { label, .. } => label.as_deref(),
                _ => None,
            };
            schedule.stages_of(label)
        })
        .collect();
    let limit = target.shared_per_block() / blocks;
    let mut tried = BTreeSet::new();
    let mut out = Vec::new();
    for most in (1..=MOST_STAGES).rev() {
        let depths: Vec<u32> = plan
            .groups
            .iter()
            .zip(&stages)
            .map(|(g, stages)| match g.around {
                None => 1,
                Some(_) => stages.unwrap_or(most),
            })
            .collect();
        let total: u32 = plan
            .groups
            .iter()
            .zip(&depths)
            .map(|(g, d)| bytes(g) * d)
            .sum();
        // The last is tried in any case, so that what is wrong is said.
        if (total > limit && most > 1) || !tried.insert(depths.clone()) {
            continue;
        }
        out.push(Sizes {
            copy_warps,
            groups,
            split,
            registers,
            depths,
        });
    }
    Ok(out)
}

/// All operations of a region, and of those inside, in the order of the text.
fn inside(body: &TileBody, region: RegionId, out: &mut Vec<OpId>) {
    for &id in &body.regions[region].ops {
        out.push(id);
        for &inner in &body.ops[id].regions {
            inside(body, inner, out);
        }
    }
}
