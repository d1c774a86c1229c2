//! Control flow (PTX ISA §9.7.12): branches, exits, traps.

use super::operands::{Decoder, Refused};
use crate::{
    fault::{Fault, FaultKind},
    machine::{Flow, Step},
    ptx::Operand,
};

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// `bra` (§9.7.12.3) to an instruction.
    Branch(u32),
    /// `exit` (§9.7.12.8), and `ret` (§9.7.12.7) of an entry.
    Exit,
    /// `trap` (§9.7.19.4).
    Trap,
    /// `brkpt` (§9.7.19.1): nobody listens.
    Breakpoint,
}

pub(super) fn decode(d: &mut Decoder<'_>) -> Result<Op, Refused> {
    match &*d.parts()[0] {
        "bra" => {
            d.only(&["uni"])?;
            match d.operand(0)? {
                Operand::Label(at) => Ok(Op::Branch(*at)),
                _ => Err("a label must stand here".into()),
            }
        }
        "ret" | "exit" => {
            d.only(&["uni"])?;
            Ok(Op::Exit)
        }
        "trap" => Ok(Op::Trap),
        "brkpt" => Ok(Op::Breakpoint),
        _ => Err("".into()),
    }
}

impl Op {
    #[inline]
    pub(super) fn execute(&self, step: &mut Step<'_>) -> Result<Flow, Fault> {
        match self {
            Op::Branch(to) => Ok(Flow::Jump(*to)),
            Op::Exit => Ok(Flow::Exit),
            Op::Breakpoint => Ok(Flow::Next),
            Op::Trap => Err(step.fault(FaultKind::Trap, "the kernel trapped", step.lanes)),
        }
    }
}
