//! Bulk copies and bulk tensor copies (PTX ISA §9.7.9.25.4 and §9.7.9.27): decoding.

mod reduce;
mod transfer;

use super::operands::{Addr, Decoder, Refused, Src32, Type};
use crate::{
    ptx::{Operand, Space},
    tensor_map::RANK_LIMIT,
};

pub(crate) use reduce::combine;
pub(crate) use transfer::Groups;

/// Bytes of global memory that an instruction names.
#[derive(Clone, Debug)]
pub(crate) enum Global {
    Linear {
        address: Addr,
        bytes: Src32,
    },
    /// A box of a tensor; the map's address is generic.
    Tensor {
        map: Addr,
        coordinates: Box<[Src32]>,
    },
}

/// What happens at the destination (`.redOp.type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduction {
    Add,
    Min,
    Max,
    Inc,
    Dec,
    And,
    Or,
    Xor,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// `cp.async.bulk.shared::….global`, `cp.async.bulk.tensor.….shared::….global`: completes bytes on an mbarrier in each block that gets
    /// them.
    ToShared {
        /// Of `to` and of the mbarrier.
        space: Space,
        to: Addr,
        from: Global,
        mbarrier: Addr,
        /// The ranks of the blocks.
        multicast: Option<Src32>,
    },
    /// `cp{.reduce}.async.bulk.global.shared::cta`, `cp{.reduce}.async.bulk.tensor.….global.shared::cta`: part of the thread's bulk group.
    ToGlobal {
        to: Global,
        from: Addr,
        reduction: Option<(Reduction, Option<Type>)>,
    },
    /// `cp{.reduce}.async.bulk.shared::cluster.shared::cta`.
    ToCluster {
        to: Addr,
        from: Addr,
        bytes: Src32,
        mbarrier: Addr,
        reduction: Option<(Reduction, Type)>,
    },
    /// `cp.async.bulk.prefetch`, a hint.
    Prefetch(Global),
    /// `cp.async.bulk.commit_group` (§9.7.9.25.4.5).
    Commit,
    /// `cp.async.bulk.wait_group` (§9.7.9.25.4.6): all but so many of the latest groups; with `.read` only until they have read.
    Wait { groups: u32, read: bool },
}

impl Reduction {
    pub(crate) fn named(part: &str) -> Option<Reduction> {
        Some(match part {
            "add" => Reduction::Add,
            "min" => Reduction::Min,
            "max" => Reduction::Max,
            "inc" => Reduction::Inc,
            "dec" => Reduction::Dec,
            "and" => Reduction::And,
            "or" => Reduction::Or,
            "xor" => Reduction::Xor,
            _ => return None,
        })
    }
}

/// The types that a reduction of linear memory takes (the tables of §9.7.9.25.4.2), by whether its destination is shared memory.
fn reduces(op: Reduction, ty: Type, noftz: bool, to_shared: bool) -> bool {
    use Type::*;
    let half = matches!(ty, F16 | Bf16);
    if half && op == Reduction::Add && !noftz || noftz && !(half && op == Reduction::Add) {
        return false;
    }
    match op {
        Reduction::Add if to_shared => matches!(ty, U32 | S32 | U64),
        Reduction::Add => matches!(ty, U32 | S32 | U64 | F32 | F64 | F16 | Bf16),
        Reduction::Min | Reduction::Max if to_shared => matches!(ty, U32 | S32),
        Reduction::Min | Reduction::Max => matches!(ty, U32 | S32 | U64 | S64 | F16 | Bf16),
        Reduction::Inc | Reduction::Dec => ty == U32,
        Reduction::And | Reduction::Or | Reduction::Xor => {
            matches!(ty, B32 | B64) && (!to_shared || ty == B32)
        }
    }
}

/// Reads an instruction's operands one after another.
struct Operands<'d, 'a> {
    d: &'d mut Decoder<'a>,
    next: usize,
}

impl Operands<'_, '_> {
    fn more(&self) -> bool {
        self.next < self.d.count()
    }

    fn address(&mut self) -> Result<Addr, Refused> {
        let operand = self.d.operand(self.next)?;
        self.next += 1;
        match operand {
            Operand::Address(a) if !a.more.is_empty() => {
                Err("an address without coordinates must stand here".into())
            }
            _ => Ok(self.d.address(operand)?.0),
        }
    }

    fn word(&mut self, ty: Type) -> Result<Src32, Refused> {
        let operand = self.d.operand(self.next)?;
        self.next += 1;
        self.d.src32(operand, ty)
    }

    /// `[map, {c0, c1}]`.
    fn tensor(&mut self, rank: usize) -> Result<Global, Refused> {
        let operand = self.d.operand(self.next)?;
        self.next += 1;
        let Operand::Address(address) = operand else {
            return Err("a tensor map with coordinates must stand here".into());
        };
        let [list] = &address.more[..] else {
            return Err("one list of coordinates must follow the tensor map".into());
        };
        let map = self.d.address(operand)?.0;
        let list = self.d.elements(list);
        if list.len() != rank {
            return Err(Refused(format!(
                "{} coordinates for `.{rank}d`",
                list.len()
            )));
        }
        let coordinates = list.iter().map(|c| self.d.src32(c, Type::S32));
        Ok(Global::Tensor {
            map,
            coordinates: coordinates.collect::<Result<_, _>>()?,
        })
    }

    fn linear(&mut self) -> Result<(Addr, Src32), Refused> {
        Ok((self.address()?, self.word(Type::U32)?))
    }

    /// The cache policy, which changes nothing, and the end.
    fn end(&mut self, policy: bool) -> Result<(), Refused> {
        if policy {
            let operand = self.d.operand(self.next)?;
            self.next += 1;
            self.d.src64(operand, Type::B64)?;
        }
        if self.more() {
            return Err(Refused(format!("it has {} operands", self.d.count())));
        }
        Ok(())
    }
}

/// `cp.async.bulk…` and `cp.reduce.async.bulk…`.
pub(super) fn decode(d: &mut Decoder<'_>) -> Result<Op, Refused> {
    let mut parts: Vec<&str> = d.parts().iter().map(|p| &**p).collect();
    let mut take = |part: &str| {
        let at = parts.iter().position(|p| *p == part);
        at.map(|at| parts.remove(at)).is_some()
    };
    if d.target.sm < 90 {
        return Err("bulk copies need sm_90 or later".into());
    }
    let _ = take("cp") && take("async") && take("bulk");
    let reduce = take("reduce");
    if take("commit_group") {
        d.expect_count(0..=0)?;
        return match parts[..] {
            [] if !reduce => Ok(Op::Commit),
            _ => Err("".into()),
        };
    }
    if take("wait_group") {
        let read = take("read");
        d.expect_count(1..=1)?;
        let groups = d.constant(d.operand(0)?)?;
        return match parts[..] {
            [] if !reduce => Ok(Op::Wait {
                groups: groups.min(u64::from(u32::MAX)) as u32,
                read,
            }),
            _ => Err("".into()),
        };
    }
    let policy = take("L2::cache_hint");
    let prefetch = take("prefetch") && take("L2");
    let tensor = take("tensor");
    let mut rank = 0;
    if tensor {
        rank = (1..=RANK_LIMIT)
            .find(|r| take(&format!("{r}d")))
            .ok_or("the rank is missing")?;
        let _ = take("tile");
    }
    let multicast = take("multicast::cluster");
    let bytes_completed = take("mbarrier::complete_tx::bytes");
    let group = take("bulk_group");
    let noftz = take("noftz");
    let mut o = Operands { d, next: 0 };
    let global = |o: &mut Operands<'_, '_>| -> Result<Global, Refused> {
        if tensor {
            return o.tensor(rank);
        }
        let (address, bytes) = o.linear()?;
        Ok(Global::Linear { address, bytes })
    };
    if prefetch {
        if parts != ["global"] || reduce || multicast || bytes_completed || group || noftz {
            return Err("".into());
        }
        let from = global(&mut o)?;
        o.end(policy)?;
        return Ok(Op::Prefetch(from));
    }
    let (spaces, rest) = parts
        .split_at_checked(2)
        .ok_or("the state spaces are missing")?;
    let reduction = match (reduce, rest) {
        (false, []) => None,
        (true, [op, ty @ ..]) => {
            let op =
                Reduction::named(op).ok_or_else(|| Refused(format!("`.{op}` is no reduction")))?;
            let ty = match ty {
                [] if tensor => None,
                [name] if !tensor => Some(
                    Type::named(name).ok_or_else(|| Refused(format!("`.{name}` is no type")))?,
                ),
                _ => return Err(Refused(format!("`.{}` is not known here", ty.join(".")))),
            };
            Some((op, ty))
        }
        (_, rest) => return Err(Refused(format!("`.{}` is not known here", rest.join(".")))),
    };
    let legal = |to_shared| {
        reduction.is_none_or(|(op, ty)| ty.is_none_or(|ty| reduces(op, ty, noftz, to_shared)))
            && (!noftz || reduction.is_some_and(|r| r.1.is_some()))
    };
    match (spaces[0], spaces[1]) {
        ("shared::cluster" | "shared::cta" | "shared", "global")
            if bytes_completed && !group && reduction.is_none() && !noftz =>
        {
            let to = o.address()?;
            let from = global(&mut o)?;
            let mbarrier = o.address()?;
            let mask = if multicast {
                Some(o.word(Type::U16)?)
            } else {
                None
            };
            o.end(policy)?;
            let space = match spaces[0] {
                "shared::cluster" => Space::SharedCluster,
                _ => Space::Shared,
            };
            Ok(Op::ToShared {
                space,
                to,
                from,
                mbarrier,
                multicast: mask,
            })
        }
        ("global", "shared::cta" | "shared") if group && !bytes_completed && !multicast => {
            if !legal(false) {
                return Err("this reduction has no such type".into());
            }
            let (to, from) = if tensor {
                let to = o.tensor(rank)?;
                (to, o.address()?)
            } else {
                let address = o.address()?;
                let from = o.address()?;
                let bytes = o.word(Type::U32)?;
                (Global::Linear { address, bytes }, from)
            };
            o.end(policy)?;
            Ok(Op::ToGlobal {
                to,
                from,
                reduction,
            })
        }
        ("shared::cluster", "shared::cta")
            if bytes_completed && !group && !multicast && !tensor && !policy =>
        {
            if !legal(true) {
                return Err("this reduction has no such type".into());
            }
            let to = o.address()?;
            let (from, bytes) = o.linear()?;
            let mbarrier = o.address()?;
            o.end(false)?;
            let reduction = reduction.and_then(|(op, ty)| Some((op, ty?)));
            Ok(Op::ToCluster {
                to,
                from,
                bytes,
                mbarrier,
                reduction,
            })
        }
        _ => Err("".into()),
    }
}
