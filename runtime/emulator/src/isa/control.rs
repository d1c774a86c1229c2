//! Control flow (PTX ISA §9.7.12): branches, exits, traps.

use super::operands::{Decoder, Refused, Src32, Type};
use crate::{
    fault::{Fault, FaultKind},
    machine::{Flow, Step, lanes_of},
    ptx::Operand,
};

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// `bra` (§9.7.12.3) to an instruction.
    Branch(u32),
    /// `brx.idx` (§9.7.12.4): to the instruction that a register picks.
    Indexed { index: Src32, targets: Box<[u32]> },
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
        "brx" => {
            d.only(&["idx", "uni"])?;
            d.expect_count(2..=2)?;
            let index = d.src32(d.operand(0)?, Type::U32)?;
            let Operand::Vector(labels) = d.operand(1)? else {
                return Err("a list of targets must stand here".into());
            };
            let target = |label: &Operand| match label {
                Operand::Label(at) => Ok(*at),
                _ => Err(Refused("a label must stand here".into())),
            };
            let targets = labels.iter().map(target).collect::<Result<_, _>>()?;
            Ok(Op::Indexed { index, targets })
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
            Op::Indexed { index, targets } => {
                let indices = step.word(*index);
                let of = |lane: usize| targets.get(indices[lane] as usize).copied();
                if let Some(lane) = lanes_of(step.lanes).find(|lane| of(*lane).is_none()) {
                    let message =
                        format!("a branch to target {} of {}", indices[lane], targets.len());
                    return Err(step.fault(FaultKind::Operand, message, 1 << lane));
                }
                let Some(to) = lanes_of(step.lanes).find_map(of) else {
                    return Ok(Flow::Next);
                };
                let there = lanes_of(step.lanes).filter(|lane| of(*lane) == Some(to));
                let lanes = there.fold(0, |mask, lane| mask | 1 << lane);
                Ok(match lanes == step.lanes {
                    true => Flow::Jump(to),
                    false => Flow::JumpSome { to, lanes },
                })
            }
            Op::Exit => Ok(Flow::Exit),
            Op::Breakpoint => Ok(Flow::Next),
            Op::Trap => Err(step.fault(FaultKind::Trap, "the kernel trapped", step.lanes)),
        }
    }
}
