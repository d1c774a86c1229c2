//! What is wrong with a kernel, where, and which threads did it.

use std::{fmt, sync::Arc};

/// A thread of a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Thread {
    /// The block's place in the grid: x, y, z.
    pub block: [u32; 3],
    /// The thread's place in the block, x fastest: from 0.
    pub thread: u32,
}

/// An instruction, in the text and in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The instruction as `ld.global.b32`.
    pub instruction: Arc<str>,
    /// Line of the PTX, from 1.
    pub ptx_line: u32,
    /// File, line and column of the source, where the module has debug lines.
    pub source: Option<(Arc<str>, u32, u32)>,
}

/// Kinds of faults; the detectors, each with a kernel in the tests that is wrong in just that way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FaultKind {
    /// An access outside any allocation, variable or window.
    OutOfBounds,
    /// An address that is not a multiple of what the access needs.
    Misaligned,
    /// A read of shared or local memory that nothing wrote.
    UninitializedMemory,
    /// A read of a register that nothing wrote.
    UninitializedRegister,
    /// Two accesses of one byte, one of them a write, that nothing orders.
    Race,
    /// A write to what `ld.global.nc` reads, or to constant memory or parameters.
    ReadOnly,
    /// An access of the async proxy to what the generic proxy wrote, with no proxy fence in between.
    MissingProxyFence,
    /// An asynchronous operation's registers or memory were touched before it was waited for.
    Pending,
    /// Nobody can go on.
    Deadlock,
    /// Threads that an instruction needs did not take part in it.
    Participation,
    /// A barrier was used before it was made, made twice, made wrongly, or never waited for or invalidated.
    Barrier,
    /// An instruction's operands break its rules (a descriptor, a tensor map, a count).
    Operand,
    /// A `trap`, or an assertion of the source.
    Trap,
    /// More instructions than the options allow.
    StepLimit,
}

/// The first thing found wrong with a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub kind: FaultKind,
    /// One sentence that names addresses, bytes and variables.
    pub message: String,
    /// Those at fault, ascending; at most a warp of them.
    pub threads: Vec<Thread>,
    pub place: Option<Place>,
    /// The other access of a race, the earlier write, who waits for what: with the threads and place of each.
    pub notes: Vec<Note>,
}

/// Something else that one must know to understand a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub message: String,
    pub threads: Vec<Thread>,
    pub place: Option<Place>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((file, line, column)) = &self.source {
            write!(f, "{file}:{line}:{column}, ")?;
        }
        write!(f, "PTX line {}: {}", self.ptx_line, self.instruction)
    }
}

/// "threads 0 to 3 and 7 of block 2, 0, 0".
fn write_threads(f: &mut fmt::Formatter<'_>, threads: &[Thread]) -> fmt::Result {
    let mut rest = threads;
    let mut first_block = true;
    while let Some(first) = rest.first() {
        let count = rest.iter().take_while(|t| t.block == first.block).count();
        let (here, later) = rest.split_at(count);
        if !first_block {
            f.write_str("; ")?;
        }
        first_block = false;
        f.write_str(if here.len() == 1 {
            "thread "
        } else {
            "threads "
        })?;
        let mut at = 0;
        while at < here.len() {
            let mut end = at;
            while end + 1 < here.len() && here[end + 1].thread == here[end].thread + 1 {
                end += 1;
            }
            if at > 0 {
                f.write_str(", ")?;
            }
            match end - at {
                0 => write!(f, "{}", here[at].thread)?,
                _ => write!(f, "{} to {}", here[at].thread, here[end].thread)?,
            }
            at = end + 1;
        }
        let [x, y, z] = first.block;
        match (y, z) {
            (0, 0) => write!(f, " of block {x}")?,
            _ => write!(f, " of block ({x}, {y}, {z})")?,
        }
        rest = later;
    }
    Ok(())
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if !self.threads.is_empty() {
            f.write_str("\n  by ")?;
            write_threads(f, &self.threads)?;
        }
        if let Some(place) = &self.place {
            write!(f, "\n  at {place}")?;
        }
        for note in &self.notes {
            write!(f, "\n  {}", note.message)?;
            if !note.threads.is_empty() {
                f.write_str("\n    by ")?;
                write_threads(f, &note.threads)?;
            }
            if let Some(place) = &note.place {
                write!(f, "\n    at {place}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}
