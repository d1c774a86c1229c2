//! From a kernel of the role level in tile IR to role IR: a body for each role, and the rings that its channels become.
//!
//! Each role gets what it needs of the scalars that all share, and goes over the grid by itself. `put` and `get` become waits at a ring's
//! barriers; a role carries the slot and the phase that it has come to, through loops and from tile to tile. Slices are put by bulk copies,
//! whose tensor maps follow from the indices ([`rings`]). Products are begun, and waited for where the author awaits them or where a slot
//! that they read is given back ([`flight`] knows what flies).
//!
//! Invariants: what is refused here is parsed and checked, and not yet compiled (`E0010`); a role's body arrives as often at a slot's barrier
//! as the ring counts on; nothing is in flight and no slot is to be given back at the end of a tile.

mod body;
mod columns;
mod control;
mod copies;
mod factors;
mod flight;
mod forms;
mod limits;
mod over;
mod parts;
mod rings;
mod shares;
mod turns;

use cranelift_entity::PrimaryMap;

use self::{body::Lower, rings::Rings, shares::Share};
use crate::{
    diagnostics::{Diagnostic, Diagnostics, codes},
    ir::{
        OpId, RegionId,
        role::{self, Role},
        tile::{self, OpKind, RoleHead, RoleOp},
    },
    span::Span,
    target::Target,
};

/// Warps of a warpgroup.
const GROUP: u32 = 4;

/// The operation that holds the roles, if the kernel is one of the role level.
pub(super) fn roles_of(kernel: &tile::Kernel) -> Option<OpId> {
    let body = &kernel.body;
    let ops = body.regions[body.root].ops.iter().copied();
    ops.into_iter()
        .find(|&id| matches!(body.ops[id].kind, OpKind::Role(RoleOp::Roles(_))))
}

/// Lowers a kernel whose roles stand in `roles`.
pub(super) fn run(
    kernel: &tile::Kernel,
    roles: OpId,
    target: Target,
) -> Result<role::Kernel, Diagnostics> {
    lower(kernel, roles, target).map_err(|diagnostic| {
        let mut diagnostics = Diagnostics::default();
        diagnostics.push(*diagnostic);
        diagnostics
    })
}

/// Why something is not compiled.
type Refused = Box<Diagnostic>;

fn not_yet(span: Span, what: impl std::fmt::Display) -> Refused {
    let text = format!("{what}: this is not yet compiled");
    Box::new(Diagnostic::error(codes::E0010, span, text))
}

fn lower(kernel: &tile::Kernel, roles: OpId, target: Target) -> Result<role::Kernel, Refused> {
    let OpKind::Role(RoleOp::Roles(heads)) = &kernel.body.ops[roles].kind else {
        unreachable!("`roles_of` finds roles");
    };
    let regions = &kernel.body.ops[roles].regions;
    let mut formed = role::Kernel {
        header: kernel.header.clone(),
        roles: Vec::new(),
        buffers: PrimaryMap::new(),
        channels: PrimaryMap::new(),
        maps: PrimaryMap::new(),
        shared_bytes: 0,
    };
    let uses = rings::Uses::of(kernel, heads, regions);
    let rings = Rings::make(kernel, &uses, &mut formed, target)?;
    let mut bodies: Vec<(RoleHead, usize, Share)> = Vec::new();
    for (number, (head, &region)) in heads.iter().zip(regions).enumerate() {
        let share = match shares::divides(kernel, head, region, &rings) {
            true => Share::Bulk,
            false => Share::All,
        };
        bodies.push((head.clone(), number, share));
    }
    // Behind all others, whose numbers stay; only warps that the block has anyway.
    let has = warps(heads);
    for number in 0..heads.len() {
        if bodies[number].2 == Share::All {
            continue;
        }
        let mut head = heads[number].clone();
        head.name += " copies";
        bodies.push((head, number, Share::Threads));
        let all: Vec<RoleHead> = bodies.iter().map(|(head, ..)| head.clone()).collect();
        if warps(&all) > has {
            bodies.pop();
            bodies[number].2 = Share::All;
        }
    }
    let all: Vec<RoleHead> = bodies.iter().map(|(head, ..)| head.clone()).collect();
    let places = places(&all);
    for ((head, number, share), (first_warp, registers)) in bodies.into_iter().zip(places) {
        let of = LowerRole {
            kernel,
            number,
            head: &heads[number],
            heads,
            region: regions[number],
            target,
            share,
        };
        let body = Lower::role(of, &uses, &rings, &mut formed.maps)?;
        formed.roles.push(Role {
            name: name(&head),
            first_warp,
            warps: head.warps,
            registers,
            body,
            like: None,
        });
    }
    let channels = kernel.channels.keys();
    let parts = channels.filter_map(|id| Some((rings.id(id), rings.parts.counts(id)?)));
    copies::settle(&mut formed, &parts.collect(), target);
    Ok(formed)
}

/// One role that is lowered.
#[derive(Clone, Copy)]
struct LowerRole<'a> {
    kernel: &'a tile::Kernel,
    /// Among all, in the order written.
    number: usize,
    head: &'a RoleHead,
    heads: &'a [RoleHead],
    region: RegionId,
    target: Target,
    share: Share,
}

fn name(head: &RoleHead) -> String {
    match head.replicas {
        1 => head.name.clone(),
        _ => format!("{}[{}]", head.name, head.replica),
    }
}

/// Warps of a block with these roles: whole warpgroups where one asks for registers.
fn warps(heads: &[RoleHead]) -> u32 {
    let ends = heads
        .iter()
        .zip(places(heads))
        .map(|(h, (first, _))| first + h.warps);
    let warps = ends.max().unwrap_or(0);
    match heads.iter().any(|h| h.registers.is_some()) {
        true => warps.next_multiple_of(GROUP),
        false => warps,
    }
}

/// The first warp and the registers of each role. Roles of whole warpgroups stand first; narrower ones follow, as many in a warpgroup as fit,
/// which asks for the registers of the largest.
fn places(heads: &[RoleHead]) -> Vec<(u32, Option<u32>)> {
    let mut places = vec![(0, None); heads.len()];
    let whole = |head: &RoleHead| head.warps.is_multiple_of(GROUP);
    let mut next = 0;
    for (place, head) in places.iter_mut().zip(heads).filter(|(_, h)| whole(h)) {
        *place = (next, head.registers);
        next += head.warps;
    }
    let mut group: Vec<usize> = Vec::new();
    let mut used = 0;
    let close = |group: &mut Vec<usize>, places: &mut Vec<(u32, Option<u32>)>| {
        let registers = group.iter().filter_map(|&i| heads[i].registers).max();
        for i in group.drain(..) {
            places[i].1 = registers;
        }
    };
    for (i, head) in heads.iter().enumerate().filter(|(_, h)| !whole(h)) {
        if used > 0 && used + head.warps > GROUP {
            close(&mut group, &mut places);
            next = (next + used).next_multiple_of(GROUP);
            used = 0;
        }
        places[i].0 = next + used;
        used += head.warps;
        group.push(i);
    }
    close(&mut group, &mut places);
    places
}
