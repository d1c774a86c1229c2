//! Places buffers in shared memory and checks the target's limit.
//!
//! A channel lives from its first operation to its last, and through the loops that it passes tiles from one iteration to
//! the next of. A scratch buffer is used by one operation while that runs. Channels that live at once have bytes of their
//! own, and so has scratch against the channels that live around it; all else shares bytes. Without channels, operations
//! that follow each other get different scratch in turn, so that the second need not wait for the first one's readers;
//! beyond two, bytes are used again.

use std::{collections::BTreeSet, ops::Range};

use cranelift_entity::SecondaryMap;

use crate::{
    diagnostics::{Diagnostic, Diagnostics, codes},
    ir::{
        RegionId,
        role::{BufferId, Channel, ChannelId, Kernel, OpKind, RoleBody},
        tile,
    },
    span::Span,
    target::Target,
};

pub fn run(kernel: &mut Kernel, target: Target) -> Result<(), Diagnostics> {
    let mut uses = Uses::default();
    for (number, role) in kernel.roles.iter().enumerate() {
        uses.role = number;
        uses.visit(&role.body, role.body.root);
    }
    uses.keep_rings(kernel);
    let limit = target.shared_per_block();
    let end = uses.place_channels(kernel);
    if end == 0 && kernel.roles.len() == 1 {
        place_scratch_in_turn(kernel, &uses, limit);
    } else {
        uses.place_scratch(kernel, end);
    }
    // Roles that draw their tiles have the numbers behind all else.
    let numbers = if kernel.header.dynamic && kernel.roles.len() > 1 {
        64
    } else {
        0
    };
    if kernel.shared_bytes + numbers <= limit {
        return Ok(());
    }
    let mut diagnostics = Diagnostics::default();
    let (span, what, help) = uses.largest(kernel);
    diagnostics.push(
        Diagnostic::error(
            codes::E0621,
            span,
            format!(
                "`{}` needs {} bytes of shared memory on {target}, where a block may have {limit}",
                kernel.header.name, kernel.shared_bytes
            ),
        )
        .at(what)
        .help(help),
    );
    Err(diagnostics)
}

/// Two halves, each as large as its largest buffer. If that is too much, one for all.
fn place_scratch_in_turn(kernel: &mut Kernel, uses: &Uses, limit: u32) {
    let place = |halves: usize, kernel: &Kernel| -> Vec<u32> {
        let mut sizes = vec![0u32; halves];
        for (turn, user) in uses.scratch.iter().enumerate() {
            let bytes = kernel.buffers[user.buffer].bytes.next_multiple_of(16);
            let size = &mut sizes[turn % halves];
            *size = bytes.max(*size);
        }
        sizes
    };
    let mut sizes = place(2, kernel);
    // Two large ones would keep other blocks off the SM.
    if sizes.iter().map(|&s| u64::from(s)).sum::<u64>() > u64::from(limit / 8) {
        sizes = place(1, kernel);
    }
    let offsets: Vec<u32> = sizes
        .iter()
        .scan(0u32, |end, size| {
            let start = *end;
            *end += size;
            Some(start)
        })
        .collect();
    for (turn, user) in uses.scratch.iter().enumerate() {
        kernel.buffers[user.buffer].offset = Some(offsets[turn % offsets.len()]);
    }
    kernel.shared_bytes = sizes.iter().sum();
}

/// An operation that uses scratch.
struct User {
    buffer: BufferId,
    span: Span,
    /// Its number in the text.
    at: u32,
    /// The number of its role.
    role: usize,
}

/// Who uses what when, in numbers of operations in textual order.
#[derive(Default)]
struct Uses {
    next: u32,
    /// The number of the role that is visited.
    role: usize,
    scratch: Vec<User>,
    /// By channel: from its first operation to its last.
    channels: SecondaryMap<ChannelId, Range<u32>>,
    spans: SecondaryMap<ChannelId, Option<Span>>,
    /// Where columns are fetched to.
    stages: BTreeSet<ChannelId>,
}

impl Uses {
    fn visit(&mut self, body: &RoleBody, region: RegionId) {
        for &id in &body.regions[region].ops {
            let op = &body.ops[id];
            let at = self.next;
            self.next += 1;
            match op.kind {
                OpKind::Convert {
                    scratch: Some(buffer),
                }
                | OpKind::Reduce {
                    scratch: Some(buffer),
                    ..
                }
                | OpKind::Atomic {
                    scratch: Some(buffer),
                    ..
                }
                | OpKind::Arrive {
                    scratch: Some(buffer),
                    ..
                }
                | OpKind::Through {
                    scratch: Some(buffer),
                    ..
                } => self.scratch.push(User {
                    buffer,
                    span: op.span,
                    at,
                    role: self.role,
                }),
                // A stage is found again by the next iteration, and by the next tile.
                OpKind::FetchColumns { channel, .. } => {
                    self.stages.insert(channel);
                    self.spans[channel].get_or_insert(op.span);
                }
                OpKind::CopyAsync { channel, .. }
                | OpKind::Copy { channel, .. }
                | OpKind::WriteShared { channel, .. }
                | OpKind::ReadShared { channel, .. }
                | OpKind::CopyBulk { channel, .. } => {
                    let life = &mut self.channels[channel];
                    if life.start >= life.end {
                        *life = at..at + 1;
                    }
                    life.end = at + 1;
                    self.spans[channel].get_or_insert(op.span);
                }
                _ => {}
            }
            op.regions.iter().for_each(|&r| self.visit(body, r));
            if let OpKind::Tile(tile::OpKind::For { .. } | tile::OpKind::While) = op.kind {
                let end = self.next;
                for life in self.channels.values_mut() {
                    // Begun before the loop and used in it: what one iteration leaves, the next one finds.
                    if life.start < at && life.end > at {
                        life.end = end;
                    }
                }
            }
        }
    }

    /// Rings that roles wait for each other by live as long as the block.
    fn keep_rings(&mut self, kernel: &Kernel) {
        let keeps =
            |(id, c): &(ChannelId, &Channel)| c.barriers.is_some() || self.stages.contains(id);
        let kept: Vec<ChannelId> = kernel
            .channels
            .iter()
            .filter(keeps)
            .map(|(id, _)| id)
            .collect();
        for id in kept {
            self.channels[id] = 0..self.next;
        }
    }

    /// Places the channels one by one, each at the lowest place free while it lives. Where the last one ends.
    fn place_channels(&self, kernel: &mut Kernel) -> u32 {
        let mut placed: Vec<(Range<u32>, Range<u32>)> = Vec::new();
        for (id, channel) in &kernel.channels {
            let life = self.channels[id].clone();
            let buffer = &mut kernel.buffers[channel.buffer];
            // Two rings may have one set of slots.
            let with_another = kernel.channels.iter().take_while(|(other, _)| *other != id);
            if with_another
                .into_iter()
                .any(|(_, c)| c.buffer == channel.buffer)
            {
                continue;
            }
            let start = first_free(&placed, &life, buffer.bytes, buffer.align);
            buffer.offset = Some(start);
            placed.push((life, start..start + buffer.bytes));
        }
        for barriers in kernel.channels.values().filter_map(|c| c.barriers) {
            let buffer = &mut kernel.buffers[barriers.buffer];
            let life = 0..self.next;
            let start = first_free(&placed, &life, buffer.bytes, buffer.align);
            buffer.offset = Some(start);
            placed.push((life, start..start + buffer.bytes));
        }
        placed.iter().map(|(_, bytes)| bytes.end).max().unwrap_or(0)
    }

    /// Places each scratch buffer at the lowest place that no channel has while it is used.
    fn place_scratch(&self, kernel: &mut Kernel, channels_end: u32) {
        let placed: Vec<(Range<u32>, Range<u32>)> = kernel
            .channels
            .iter()
            .map(|(id, channel)| {
                let buffer = &kernel.buffers[channel.buffer];
                let start = buffer.offset.unwrap_or(0);
                (self.channels[id].clone(), start..start + buffer.bytes)
            })
            .collect();
        let mut end = channels_end;
        // Roles run at once: each has scratch of its own, behind that of those before.
        let alone = kernel.roles.len() == 1;
        let (mut role, mut from) = (0, channels_end);
        for user in &self.scratch {
            if user.role != role {
                (role, from) = (user.role, end);
            }
            let buffer = &mut kernel.buffers[user.buffer];
            let life = user.at..user.at + 1;
            let start = match alone {
                true => first_free(&placed, &life, buffer.bytes, buffer.align),
                false => from.next_multiple_of(buffer.align),
            };
            buffer.offset = Some(start);
            end = end.max(start + buffer.bytes);
        }
        kernel.shared_bytes = end.next_multiple_of(16);
    }

    /// The largest buffer: where, what for, and what would help.
    fn largest(&self, kernel: &Kernel) -> (Span, &'static str, &'static str) {
        let bytes = |buffer: BufferId| kernel.buffers[buffer].bytes;
        let scratch = self.scratch.iter().max_by_key(|u| bytes(u.buffer));
        let channel = kernel
            .channels
            .iter()
            .max_by_key(|(_, c)| bytes(c.buffer))
            .map(|(id, c)| (self.spans[id].unwrap_or(Span::NONE), bytes(c.buffer)));
        let least = scratch.map_or(0, |u| bytes(u.buffer));
        let (span, what, help) = match (channel, scratch) {
            (Some((span, size)), _) if size >= least => (
                span,
                "for the copies of this tile that are made ahead",
                "make the tile smaller, or lower `stages` in the schedule",
            ),
            (_, user) => (
                user.map_or(Span::NONE, |u| u.span),
                "for passing this tile between threads",
                "make the tile smaller",
            ),
        };
        let span = if span.is_some() {
            span
        } else {
            kernel.header.span
        };
        (span, what, help)
    }
}

/// The lowest multiple of `align` from which `bytes` bytes are free of what is placed and lives at the same time.
fn first_free(
    placed: &[(Range<u32>, Range<u32>)],
    life: &Range<u32>,
    bytes: u32,
    align: u32,
) -> u32 {
    let meets = |a: &Range<u32>, b: &Range<u32>| a.start < b.end && b.start < a.end;
    let mut start = 0u32;
    while let Some((_, taken)) = placed
        .iter()
        .find(|(other, taken)| meets(other, life) && meets(taken, &(start..start + bytes)))
    {
        start = taken.end.next_multiple_of(align);
    }
    start
}
