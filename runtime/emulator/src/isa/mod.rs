//! What instructions mean: decoding, one file a family, each with what its instructions do to the lanes of a warp.
//!
//! A family has a `decode` that takes the opcodes of its own and an `Op` with `execute`. A modifier or type that a family does not know makes
//! it refuse the instruction; [`decode`] says so with the line. Block-scaled `mma` and `tcgen05` (PTX ISA §9.7.16) are refused so, until the
//! backend emits them; their place is beside `matrix`.

pub(crate) mod async_copy;
pub(crate) mod async_store;
pub(crate) mod atomic;
pub(crate) mod barrier;
pub(crate) mod bulk;
pub(crate) mod control;
pub(crate) mod convert;
pub(crate) mod data;
pub(crate) mod float;
pub(crate) mod integer;
pub(crate) mod legality;
pub(crate) mod matrix;
pub(crate) mod mbarrier;
pub(crate) mod memory;
pub(crate) mod operands;
pub(crate) mod program;
pub(crate) mod select;
pub(crate) mod system;
pub(crate) mod warp;

use crate::{
    fault::Fault,
    machine::{Flow, Step},
};
use operands::{Decoder, Refused};

/// A decoded instruction's own part.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Atomic(atomic::Op),
    AsyncCopy(async_copy::Op),
    AsyncStore(async_store::Op),
    Bulk(bulk::Op),
    Mbarrier(mbarrier::Op),
    Barrier(barrier::Op),
    Control(control::Op),
    Convert(convert::Op),
    Data(data::Op),
    Float(float::Op),
    Integer(integer::Op),
    Matrix(matrix::Op),
    Memory(memory::Op),
    Select(select::Op),
    System(system::Op),
    Warp(warp::Op),
}

/// Who must run an instruction together (the `.sync` and `.aligned` of PTX ISA §9.7.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Together {
    /// Each thread by itself.
    No,
    /// All threads of the warp that have not exited.
    Warp,
    /// Those that the mask in this operand names.
    Masked(operands::Src32),
}

/// Decodes one instruction by the family that its first part names.
pub(crate) fn decode(d: &mut Decoder<'_>) -> Result<(Op, Together), Refused> {
    let parts = d.parts();
    let first = &*parts[0];
    let last = parts.last().map_or("", |p| &**p);
    let float = operands::Type::named(last).is_some_and(|t| t.is_float());
    let alone = |op| (op, Together::No);
    Ok(match first {
        "bra" | "ret" | "exit" | "trap" | "brx" | "brkpt" => {
            alone(Op::Control(control::decode(d)?))
        }
        "mov" | "cvta" | "isspacep" | "mapa" | "getctarank" => alone(Op::Data(data::decode(d)?)),
        "st" | "red" if d.has("async") => alone(Op::AsyncStore(async_store::decode(d)?)),
        "ld" | "ldu" | "st" | "prefetch" | "prefetchu" | "discard" | "applypriority"
        | "createpolicy" => alone(Op::Memory(memory::decode(d)?)),
        "cp" if d.has("bulk") => alone(Op::Bulk(bulk::decode(d)?)),
        "cp" => alone(Op::AsyncCopy(async_copy::decode(d)?)),
        "mbarrier" => alone(Op::Mbarrier(mbarrier::decode(d)?)),
        "bar" | "barrier" | "fence" | "membar" => {
            let (op, together) = barrier::decode(d)?;
            (Op::Barrier(op), together)
        }
        "setmaxnreg" | "griddepcontrol" | "nanosleep" | "pmevent" => {
            let (op, together) = system::decode(d)?;
            (Op::System(op), together)
        }
        "atom" | "red" => alone(Op::Atomic(atomic::decode(d)?)),
        "shfl" | "vote" | "match" | "redux" | "elect" | "activemask" => {
            let (op, together) = warp::decode(d)?;
            (Op::Warp(op), together)
        }
        "ldmatrix" | "stmatrix" | "movmatrix" | "mma" | "wgmma" => {
            let (op, together) = matrix::decode(d)?;
            (Op::Matrix(op), together)
        }
        "setp" | "set" | "selp" | "slct" => alone(Op::Select(select::decode(d)?)),
        "add" | "sub" | "mul" | "mad" | "abs" | "neg" | "min" | "max" | "div" | "rem" if !float => {
            alone(Op::Integer(integer::decode(d)?))
        }
        "and" | "or" | "xor" | "not" | "cnot" | "shl" | "shr" | "shf" | "lop3" | "prmt"
        | "popc" | "clz" | "bfind" | "fns" | "brev" | "bfe" | "bfi" | "szext" | "bmsk" | "dp4a"
        | "dp2a" | "sad" | "mul24" | "mad24" | "addc" | "subc" | "madc" => {
            alone(Op::Integer(integer::decode(d)?))
        }
        "cvt" => alone(Op::Convert(convert::decode(d)?)),
        "add" | "sub" | "mul" | "mad" | "fma" | "abs" | "neg" | "min" | "max" | "div" | "rcp"
        | "sqrt" | "rsqrt" | "sin" | "cos" | "lg2" | "ex2" | "tanh" | "copysign" | "testp" => {
            alone(Op::Float(float::decode(d)?))
        }
        _ => return Err("".into()),
    })
}

impl Op {
    /// Does it for the lanes of `step`.
    #[inline]
    pub(crate) fn execute(&self, step: &mut Step<'_>) -> Result<Flow, Fault> {
        match self {
            Op::Integer(op) => op.execute(step).map(|()| Flow::Next),
            Op::Float(op) => op.execute(step).map(|()| Flow::Next),
            Op::Convert(op) => op.execute(step).map(|()| Flow::Next),
            Op::Matrix(op) => op.execute(step).map(|()| Flow::Next),
            Op::Data(op) => op.execute(step).map(|()| Flow::Next),
            Op::Memory(op) => op.execute(step).map(|()| Flow::Next),
            Op::Select(op) => op.execute(step).map(|()| Flow::Next),
            Op::Control(op) => op.execute(step),
            Op::System(op) => op.execute(step),
            Op::Atomic(op) => op.execute(step).map(|()| Flow::Next),
            Op::Warp(op) => op.execute(step).map(|()| Flow::Next),
            Op::Barrier(op) => op.execute(step),
            Op::AsyncCopy(op) => op.execute(step),
            Op::AsyncStore(op) => op.execute(step).map(|()| Flow::Next),
            Op::Bulk(op) => op.execute(step),
            Op::Mbarrier(op) => op.execute(step),
        }
    }
}
