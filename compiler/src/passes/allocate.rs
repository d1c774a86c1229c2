//! Places buffers in shared memory and checks the target's limit.
//!
//! A buffer is used by one operation while that runs. Operations that follow each other get different bytes in turn, so
//! that the second need not wait for the first one's readers; beyond two, bytes are used again.

use crate::{
    diagnostics::{Diagnostic, Diagnostics, codes},
    ir::{
        RegionId,
        role::{BufferId, Kernel, OpKind, RoleBody},
    },
    span::Span,
    target::Target,
};

pub fn run(kernel: &mut Kernel, target: Target) -> Result<(), Diagnostics> {
    let mut users: Vec<(BufferId, Span)> = Vec::new();
    for role in &kernel.roles {
        visit(&role.body, role.body.root, &mut users);
    }
    // Two halves, each as large as its largest buffer. If that is too much, one for all.
    let place = |halves: usize, kernel: &Kernel| -> Vec<u32> {
        let mut sizes = vec![0u32; halves];
        for (turn, (buffer, _)) in users.iter().enumerate() {
            let bytes = kernel.buffers[*buffer].bytes.next_multiple_of(16);
            let size = &mut sizes[turn % halves];
            *size = bytes.max(*size);
        }
        sizes
    };
    let limit = target.shared_per_block();
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
    for (turn, (buffer, _)) in users.iter().enumerate() {
        kernel.buffers[*buffer].offset = Some(offsets[turn % offsets.len()]);
    }
    kernel.shared_bytes = sizes.iter().sum();
    if kernel.shared_bytes <= limit {
        return Ok(());
    }
    let mut diagnostics = Diagnostics::default();
    let largest = users
        .iter()
        .max_by_key(|(buffer, _)| kernel.buffers[*buffer].bytes);
    let span = match largest {
        Some((_, span)) if span.is_some() => *span,
        _ => kernel.header.span,
    };
    diagnostics.push(
        Diagnostic::error(
            codes::E0621,
            span,
            format!(
                "`{}` needs {} bytes of shared memory on {target}, where a block may have {limit}",
                kernel.header.name, kernel.shared_bytes
            ),
        )
        .at("for passing this tile between threads")
        .help("make the tile smaller"),
    );
    Err(diagnostics)
}

/// The buffers with the operations that use them, in textual order.
fn visit(body: &RoleBody, region: RegionId, users: &mut Vec<(BufferId, Span)>) {
    for &id in &body.regions[region].ops {
        let op = &body.ops[id];
        match op.kind {
            OpKind::Convert {
                scratch: Some(buffer),
            }
            | OpKind::Reduce {
                scratch: Some(buffer),
                ..
            } => users.push((buffer, op.span)),
            _ => {}
        }
        op.regions.iter().for_each(|&r| visit(body, r, users));
    }
}
