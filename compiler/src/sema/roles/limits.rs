//! What roles take of a block: threads, registers, shared memory.

use crate::{
    diagnostics::{Diagnostic, codes},
    ir::tile::{Kernel, OpKind, RoleHead, RoleOp, TileType},
    target::Target,
};

/// Registers of a multiprocessor.
const REGISTERS: u32 = 65_536;
/// What a thread can have.
const MOST: u32 = 256;
/// Threads of a block.
const THREADS: u32 = 1024;
/// Threads of a warpgroup.
const GROUP: u32 = 128;
/// Where a tile in shared memory begins, at least.
const ALIGN: u64 = 128;

/// Bytes of a tile in memory.
pub(super) fn bytes(tile: &TileType) -> u64 {
    let elements: u64 = tile.shape.iter().map(|d| u64::from(*d)).product();
    (elements * u64::from(tile.elem.bits())).div_ceil(8)
}

/// A warpgroup of the block: who is in it.
struct Group<'h> {
    warps: u32,
    heads: Vec<&'h RoleHead>,
}

/// Roles narrower than a warpgroup share one in the order written; the others have their own.
fn groups(heads: &[RoleHead]) -> Vec<Group<'_>> {
    let mut out: Vec<Group<'_>> = Vec::new();
    let mut shared: Option<usize> = None;
    for head in heads {
        if head.warps >= 4 {
            for _ in 0..head.warps / 4 {
                let heads = vec![head];
                out.push(Group { warps: 4, heads });
            }
            continue;
        }
        match shared {
            Some(at) if out[at].warps + head.warps <= 4 => {
                out[at].warps += head.warps;
                out[at].heads.push(head);
            }
            _ => {
                shared = Some(out.len());
                let heads = vec![head];
                out.push(Group {
                    warps: head.warps,
                    heads,
                });
            }
        }
    }
    out
}

/// What does not fit `target`.
pub(crate) fn check(kernel: &Kernel, target: Target) -> Vec<Diagnostic> {
    let body = &kernel.body;
    let mut out = Vec::new();
    let root = &body.regions[body.root].ops;
    let roles = root.iter().find_map(|&op| match &body.ops[op].kind {
        OpKind::Role(RoleOp::Roles(heads)) => Some((heads, body.ops[op].span)),
        _ => None,
    });
    let Some((heads, span)) = roles else {
        let first = kernel.channels.values().next();
        return first
            .map(|channel| {
                let title = "a channel is between roles, and this kernel has none";
                Diagnostic::error(codes::E0701, channel.span, title)
                    .help("say who puts and who gets: `roles { … }`")
            })
            .into_iter()
            .collect();
    };
    let groups = groups(heads);
    let threads = groups.len() as u32 * GROUP;
    if threads > THREADS {
        out.push(
            Diagnostic::error(
                codes::E0707,
                span,
                format!(
                    "these roles are {} warpgroups, {threads} threads, and a block has at most {THREADS}",
                    groups.len()
                ),
            )
            .note("roles narrower than a warpgroup share one, as far as it reaches"),
        );
        return out;
    }
    if heads.iter().any(|h| h.registers.is_some()) {
        let blocks = kernel.header.schedule.blocks_per_sm.unwrap_or(1).max(1);
        let each = (REGISTERS / blocks / threads / 8 * 8).min(MOST);
        let granted = each * threads;
        let mut sum = 0;
        let mut terms: Vec<String> = Vec::new();
        for group in &groups {
            let named = group.heads.iter().filter_map(|h| h.registers).max();
            let own = named.unwrap_or(each);
            sum += own * GROUP;
            terms.push(own.to_string());
        }
        if sum > granted {
            out.push(
                Diagnostic::error(
                    codes::E0707,
                    span,
                    format!(
                        "the roles take ({}) · {GROUP} = {sum} registers, and a launch of {threads} threads grants {granted}",
                        terms.join(" + ")
                    ),
                )
                .note(format!("each warpgroup begins with {each} a thread, and what one gives up another can take"))
                .help("give the roles that only copy fewer: `regs 24`"),
            );
        }
    }
    let rings = kernel.channels.values().filter(|c| c.over.is_none());
    let mut total = 0u64;
    let mut parts: Vec<String> = Vec::new();
    let mut last = span;
    for channel in rings {
        let slot: u64 = channel
            .tiles
            .iter()
            .map(|t| bytes(t).next_multiple_of(ALIGN))
            .sum();
        let all = slot * u64::from(channel.depth);
        total += all;
        parts.push(format!("`{}` {} · {slot}", channel.name, channel.depth));
        last = channel.span;
    }
    let limit = u64::from(target.shared_per_block());
    if total > limit {
        out.push(
            Diagnostic::error(
                codes::E0621,
                last,
                format!(
                    "the channels take {total} bytes of shared memory, and {} gives a block {limit}",
                    target.name()
                ),
            )
            .note(parts.join(", "))
            .help("lower a `depth`, or make the tiles smaller"),
        );
    }
    out
}
