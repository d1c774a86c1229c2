//! Exchange between the threads of a warp (PTX ISA §9.7.9.6 `shfl.sync`, §9.7.13.9 `vote.sync`, §9.7.13.10 `match.sync`, §9.7.13.11
//! `activemask`, §9.7.13.12 `redux.sync`, §9.7.13.14 `elect.sync`).

use super::{
    Together,
    operands::{Decoder, Dst, Predicate, Refused, Src, Src32, SrcP, Type, Word},
};
use crate::{
    fault::{Fault, FaultKind},
    machine::{LANES, Step, lanes_of},
    ptx::Operand,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduce {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Shuffle {
        mode: Shuffle,
        to: Dst,
        valid: Option<Predicate>,
        from: Src32,
        lane: Src32,
        clamp: Src32,
    },
    All {
        to: Predicate,
        from: SrcP,
    },
    Any {
        to: Predicate,
        from: SrcP,
    },
    Uniform {
        to: Predicate,
        from: SrcP,
    },
    Ballot {
        to: Word,
        from: SrcP,
    },
    MatchAny {
        to: Word,
        from: Src,
    },
    MatchAll {
        to: Dst,
        holds: Option<Predicate>,
        from: Src,
    },
    Reduce {
        operation: Reduce,
        signed: bool,
        to: Word,
        from: Src32,
    },
    /// `redux.sync.{min,max}.f32` (sm_100a): with `.abs` and `.NaN`.
    ReduceFloat {
        largest: bool,
        absolute: bool,
        nan: bool,
        to: Word,
        from: Src32,
    },
    Elect {
        to: Dst,
        leader: Option<Predicate>,
    },
    ActiveMask {
        to: Word,
    },
}

fn pair(operand: &Operand) -> (&Operand, Option<&Operand>) {
    match operand {
        Operand::Pair(pair) => (&pair.0, Some(&pair.1)),
        one => (one, None),
    }
}

pub(super) fn decode(d: &mut Decoder<'_>) -> Result<(Op, Together), Refused> {
    let first = &*d.parts()[0];
    if first == "activemask" {
        d.expect_count(1..=1)?;
        let to = d.dst32(d.operand(0)?)?;
        return Ok((Op::ActiveMask { to }, Together::No));
    }
    if !d.has("sync") {
        return Err("forms without `.sync` are gone from all targets here".into());
    }
    let mask = d.src32(d.operand(d.count().max(1) - 1)?, Type::B32)?;
    let together = Together::Masked(mask);
    let op = match first {
        "shfl" => {
            d.only(&["sync", "up", "down", "bfly", "idx", "b32"])?;
            d.expect_count(5..=5)?;
            let mode = match &*d.parts()[2] {
                "up" => Shuffle::Up,
                "down" => Shuffle::Down,
                "bfly" => Shuffle::Butterfly,
                "idx" => Shuffle::Index,
                _ => return Err("the mode is not known".into()),
            };
            let (to, valid) = pair(d.operand(0)?);
            let from = d.src32(d.operand(1)?, Type::B32)?;
            let lane = d.src32(d.operand(2)?, Type::B32)?;
            let clamp = d.src32(d.operand(3)?, Type::B32)?;
            let valid = match valid {
                Some(valid) => d.dst_predicate(valid)?,
                None => None,
            };
            Op::Shuffle {
                mode,
                to: d.dst(to)?,
                valid,
                from,
                lane,
                clamp,
            }
        }
        "vote" => {
            d.only(&["sync", "all", "any", "uni", "ballot", "pred", "b32"])?;
            d.expect_count(3..=3)?;
            let from = d.src_predicate(d.operand(1)?)?;
            let to = d.operand(0)?;
            if d.has("ballot") {
                Op::Ballot {
                    to: d.dst32(to)?,
                    from,
                }
            } else {
                let to = d.dst_predicate(to)?.ok_or("a predicate must stand here")?;
                match &*d.parts()[2] {
                    "all" => Op::All { to, from },
                    "any" => Op::Any { to, from },
                    "uni" => Op::Uniform { to, from },
                    _ => return Err("the mode is not known".into()),
                }
            }
        }
        "match" => {
            d.only(&["sync", "any", "all", "b32", "b64"])?;
            d.expect_count(3..=3)?;
            let ty = d.last_type()?;
            let from = d.src(d.operand(1)?, ty)?;
            if d.has("any") {
                Op::MatchAny {
                    to: d.dst32(d.operand(0)?)?,
                    from,
                }
            } else {
                let (to, holds) = pair(d.operand(0)?);
                let holds = match holds {
                    Some(holds) => d.dst_predicate(holds)?,
                    None => None,
                };
                Op::MatchAll {
                    to: d.dst(to)?,
                    holds,
                    from,
                }
            }
        }
        "redux" => {
            d.only(&[
                "sync", "add", "min", "max", "and", "or", "xor", "u32", "s32", "b32", "f32", "abs",
                "NaN",
            ])?;
            d.expect_count(3..=3)?;
            let ty = d.last_type()?;
            let from = d.src32(d.operand(1)?, ty)?;
            let to = d.dst32(d.operand(0)?)?;
            let operation = match &*d.parts()[2] {
                "add" => Reduce::Add,
                "min" => Reduce::Min,
                "max" => Reduce::Max,
                "and" => Reduce::And,
                "or" => Reduce::Or,
                "xor" => Reduce::Xor,
                _ => return Err("the operation is not known".into()),
            };
            match ty {
                Type::F32 if matches!(operation, Reduce::Min | Reduce::Max) => Op::ReduceFloat {
                    largest: operation == Reduce::Max,
                    absolute: d.has("abs"),
                    nan: d.has("NaN"),
                    to,
                    from,
                },
                Type::F32 => return Err("floats have min and max only".into()),
                _ => Op::Reduce {
                    operation,
                    signed: ty.is_signed(),
                    to,
                    from,
                },
            }
        }
        "elect" => {
            d.only(&["sync"])?;
            d.expect_count(2..=2)?;
            let (to, leader) = pair(d.operand(0)?);
            let leader = match leader {
                Some(leader) => d.dst_predicate(leader)?,
                None => None,
            };
            Op::Elect {
                to: d.dst(to)?,
                leader,
            }
        }
        _ => return Err("".into()),
    };
    Ok((op, together))
}

impl Op {
    #[inline]
    pub(super) fn execute(&self, step: &mut Step<'_>) -> Result<(), Fault> {
        let lanes = step.lanes;
        let all = |holds: bool| if holds { u32::MAX } else { 0 };
        match self {
            Op::Shuffle {
                mode,
                to,
                valid,
                from,
                lane,
                clamp,
            } => {
                let (values, b, c) = (step.word(*from), step.word(*lane), step.word(*clamp));
                let mut result = [0u32; LANES];
                let mut inside = 0u32;
                let mut absent = None;
                for lane in lanes_of(lanes) {
                    let (offset, bound) = (b[lane] & 0x1f, c[lane] & 0x1f);
                    let segment = c[lane] >> 8 & 0x1f;
                    let me = lane as u32;
                    let most = (me & segment) | (bound & !segment);
                    let least = me & segment;
                    let (source, valid) = match mode {
                        Shuffle::Up => {
                            let source = me.wrapping_sub(offset);
                            (source, source as i32 >= most as i32)
                        }
                        Shuffle::Down => (me + offset, me + offset <= most),
                        Shuffle::Butterfly => (me ^ offset, me ^ offset <= most),
                        Shuffle::Index => {
                            let source = least | (offset & !segment);
                            (source, source <= most)
                        }
                    };
                    let source = if valid { source & 31 } else { me };
                    inside |= u32::from(valid) << lane;
                    if lanes >> source & 1 == 0 && absent.is_none() {
                        absent = Some((lane, source));
                    }
                    result[lane] = values[source as usize];
                }
                if let (Some((lane, source)), true) = (absent, *to != Dst::Sink) {
                    let message = format!(
                        "a thread takes the value of lane {source}, which does not take part in the exchange"
                    );
                    return Err(step.fault(FaultKind::Participation, message, 1 << lane));
                }
                if let Dst::Word(to) = to {
                    step.set_word(*to, &result);
                }
                if let Some(valid) = valid {
                    step.set_predicate(*valid, inside);
                }
            }
            Op::All { to, from } => {
                let holds = lanes & !step.predicate(*from) == 0;
                step.set_predicate(*to, all(holds));
            }
            Op::Any { to, from } => {
                let holds = lanes & step.predicate(*from) != 0;
                step.set_predicate(*to, all(holds));
            }
            Op::Uniform { to, from } => {
                let held = lanes & step.predicate(*from);
                step.set_predicate(*to, all(held == 0 || held == lanes));
            }
            Op::Ballot { to, from } => {
                let held = lanes & step.predicate(*from);
                step.set_word(*to, &[held; LANES]);
            }
            Op::MatchAny { to, from } => {
                let values = step.any(*from);
                let mut result = [0u32; LANES];
                for lane in lanes_of(lanes) {
                    let same = lanes_of(lanes).filter(|l| values[*l] == values[lane]);
                    result[lane] = same.fold(0, |m, l| m | 1 << l);
                }
                step.set_word(*to, &result);
            }
            Op::MatchAll { to, holds, from } => {
                let values = step.any(*from);
                let first = values[lanes.trailing_zeros() as usize & 31];
                let same = lanes_of(lanes).all(|l| values[l] == first);
                step.set_any(*to, &[if same { u64::from(lanes) } else { 0 }; LANES]);
                if let Some(holds) = holds {
                    step.set_predicate(*holds, all(same));
                }
            }
            Op::Reduce {
                operation,
                signed,
                to,
                from,
            } => {
                let values = step.word(*from);
                let combine = |a: u32, b: u32| match (operation, signed) {
                    (Reduce::Add, _) => a.wrapping_add(b),
                    (Reduce::Min, true) => (a as i32).min(b as i32) as u32,
                    (Reduce::Max, true) => (a as i32).max(b as i32) as u32,
                    (Reduce::Min, false) => a.min(b),
                    (Reduce::Max, false) => a.max(b),
                    (Reduce::And, _) => a & b,
                    (Reduce::Or, _) => a | b,
                    (Reduce::Xor, _) => a ^ b,
                };
                let result = lanes_of(lanes)
                    .map(|l| values[l])
                    .reduce(combine)
                    .unwrap_or(0);
                step.set_word(*to, &[result; LANES]);
            }
            Op::ReduceFloat {
                largest,
                absolute,
                nan,
                to,
                from,
            } => {
                let values = step.word(*from).map(|v| {
                    let value = f32::from_bits(v);
                    if *absolute { value.abs() } else { value }
                });
                let mut result: Option<f32> = None;
                for value in lanes_of(lanes).map(|l| values[l]) {
                    result = Some(match result {
                        None => value,
                        Some(r) if r.is_nan() => {
                            if *nan {
                                r
                            } else {
                                value
                            }
                        }
                        Some(r) if value.is_nan() => {
                            if *nan {
                                value
                            } else {
                                r
                            }
                        }
                        // -0 is below +0.
                        Some(r) => match r.total_cmp(&value).is_lt() == *largest {
                            true => value,
                            false => r,
                        },
                    });
                }
                let result = result.unwrap_or(0.0);
                let bits = if result.is_nan() {
                    0x7fff_ffff
                } else {
                    result.to_bits()
                };
                step.set_word(*to, &[bits; LANES]);
            }
            Op::Elect { to, leader } => {
                let first = lanes.trailing_zeros();
                step.set_any(*to, &[u64::from(first); LANES]);
                if let Some(leader) = leader {
                    step.set_predicate(*leader, 1 << (first & 31));
                }
            }
            Op::ActiveMask { to } => step.set_word(*to, &[lanes; LANES]),
        }
        Ok(())
    }
}
