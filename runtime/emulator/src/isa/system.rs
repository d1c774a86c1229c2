//! Instructions that manage how a kernel runs: `setmaxnreg` (PTX ISA §9.7.19.5), `griddepcontrol` (§9.7.13.13), `nanosleep` (§9.7.19.2),
//! `pmevent` (§9.7.19.3). None of them changes a value.
//!
//! Launches run one after another, so `griddepcontrol.wait` finds that all grids before it have ended, and `.launch_dependents` has nobody
//! to let go early.

use super::{
    Together,
    operands::{Decoder, Refused, Type},
};
use crate::{
    fault::{Fault, FaultKind},
    machine::{Flow, Step},
};

/// Registers of a multiprocessor, a lane's share of each warp: 65536 over 32 lanes (CUDA C++ Programming Guide, "Technical Specifications
/// per Compute Capability").
const REGISTERS: u32 = 65536 / 32;

/// The fewest registers that `setmaxnreg` leaves to a thread.
const FEWEST: u32 = 24;

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// `setmaxnreg`, to so many registers a thread.
    Registers {
        count: u32,
        more: bool,
    },
    Sleep,
    Nothing,
}

pub(super) fn decode(d: &mut Decoder<'_>) -> Result<(Op, Together), Refused> {
    match &*d.parts()[0] {
        "setmaxnreg" => {
            d.only(&["inc", "dec", "sync", "aligned", "u32"])?;
            d.expect_count(1..=1)?;
            if d.has("inc") == d.has("dec") || !d.has("sync") || !d.has("aligned") {
                return Err("it is `.inc` or `.dec`, then `.sync.aligned.u32`".into());
            }
            let count = d.constant(d.operand(0)?)?;
            if !(u64::from(FEWEST)..=256).contains(&count) || count % 8 != 0 {
                return Err("a count is a multiple of 8 from 24 to 256".into());
            }
            let op = Op::Registers {
                count: count as u32,
                more: d.has("inc"),
            };
            Ok((op, Together::Warp))
        }
        "griddepcontrol" => {
            d.only(&["wait", "launch_dependents"])?;
            d.expect_count(0..=0)?;
            match d.parts().len() {
                2 => Ok((Op::Nothing, Together::No)),
                _ => Err("it is `.wait` or `.launch_dependents`".into()),
            }
        }
        "nanosleep" => {
            d.only(&["u32"])?;
            d.expect_count(1..=1)?;
            d.src32(d.operand(0)?, Type::U32)?;
            Ok((Op::Sleep, Together::No))
        }
        "pmevent" => {
            d.only(&["mask"])?;
            d.expect_count(1..=1)?;
            let limit = if d.has("mask") { 1 << 16 } else { 16 };
            if d.constant(d.operand(0)?)? >= limit {
                return Err("there are 16 performance monitor events".into());
            }
            Ok((Op::Nothing, Together::No))
        }
        _ => Err("".into()),
    }
}

impl Op {
    pub(super) fn execute(&self, step: &mut Step<'_>) -> Result<Flow, Fault> {
        match *self {
            Op::Nothing => Ok(Flow::Next),
            Op::Sleep => Ok(Flow::Yield),
            Op::Registers { count, more } => set_registers(step, count, more),
        }
    }
}

/// The block's pool holds what its warps were launched with: `.maxnreg` each, or at most the whole file where the kernel does not say. A
/// warp that has yet to run its first `setmaxnreg` may give back all but [`FEWEST`]; what would not fit even then never comes, and the
/// device would wait for ever.
fn set_registers(step: &mut Step<'_>, count: u32, more: bool) -> Result<Flow, Fault> {
    let at_launch = step.grid.program.largest_registers;
    let block = &step.cluster.blocks[step.rank as usize];
    let here = step.warp as usize;
    let now = block.warps[here].register_limit.or(at_launch);
    if let Some(now) = now
        && (if more { count < now } else { count > now })
    {
        let to = if more { "raised" } else { "lowered" };
        let message = format!("the registers of a thread are {to} to {count}, and it has {now}");
        return Err(step.fault(FaultKind::Operand, message, step.lanes));
    }
    let others = block.warps.iter().enumerate().filter(|(i, _)| *i != here);
    let held: u32 = others
        .map(|(_, w)| w.register_limit.unwrap_or(FEWEST))
        .sum();
    let pool = match at_launch {
        Some(each) => (each.next_multiple_of(8) * block.warps.len() as u32).min(REGISTERS),
        None => REGISTERS,
    };
    if held + count > pool {
        let message = format!(
            "{count} registers a thread do not fit: the block's warps share {pool}, and the others keep {held}"
        );
        return Err(step.fault(FaultKind::Operand, message, step.lanes));
    }
    let block = &mut step.cluster.blocks[step.rank as usize];
    block.warps[here].register_limit = Some(count);
    Ok(Flow::Next)
}
