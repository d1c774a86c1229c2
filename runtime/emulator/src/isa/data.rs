//! Moves, addresses and special registers (PTX ISA §9.7.9.1 `mov`, §9.7.9.2 `mov` pack and unpack, §9.7.9.19 `isspacep`, §9.7.9.20 `cvta`,
//! §9.7.9.22 `mapa`, §9.7.9.23 `getctarank`, §10 special registers).

use super::operands::{Base, Decoder, Dst, Predicate, Refused, Src, SrcP, Type};
use crate::{
    fault::{Fault, FaultKind},
    machine::{Grid, LANES, Step, lanes_of},
    memory::{
        LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW, cluster_address, space_at,
        split_cluster_address,
    },
    ptx::{Operand, Space},
};

/// Special registers (PTX ISA §10). Those of three dimensions carry the axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    Tid(usize),
    Ntid(usize),
    Ctaid(usize),
    Nctaid(usize),
    LaneId,
    WarpId,
    NWarpId,
    LaneMask(LaneMask),
    Clusterid(usize),
    Nclusterid(usize),
    ClusterCtaid(usize),
    ClusterNctaid(usize),
    ClusterCtarank,
    ClusterNctarank,
    IsExplicitCluster,
    /// Counts instructions of the warp.
    Clock,
    ClockHigh,
    GlobalTimer,
    Smid,
    Nsmid,
    Gridid,
    DynamicSharedSize,
    TotalSharedSize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneMask {
    Equal,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Move {
        to: Dst,
        from: Src,
    },
    MovePredicate {
        to: Predicate,
        from: SrcP,
    },
    Special {
        to: Dst,
        what: Special,
    },
    /// The address of a module's variable.
    Variable {
        to: Dst,
        number: u32,
        offset: i64,
    },
    /// `{a, b}` into one register; elements of that many bits.
    Pack {
        to: Dst,
        from: Vec<Src>,
        bits: u32,
    },
    Unpack {
        to: Vec<Dst>,
        from: Src,
        bits: u32,
    },
    /// `cvta.space`: to generic.
    ToGeneric {
        to: Dst,
        from: Src,
        space: Space,
    },
    /// `cvta.to.space`.
    FromGeneric {
        to: Dst,
        from: Src,
        space: Space,
    },
    IsSpace {
        to: Predicate,
        from: Src,
        space: Space,
    },
    Mapa {
        to: Dst,
        from: Src,
        rank: Src,
        generic: bool,
    },
    Rank {
        to: Dst,
        from: Src,
    },
}

fn special(name: &str) -> Option<Special> {
    let (base, axis) = match name.rsplit_once('.') {
        Some((base, "x")) => (base, 0),
        Some((base, "y")) => (base, 1),
        Some((base, "z")) => (base, 2),
        Some(_) => return None,
        None => (name, 3),
    };
    let of_axis = match base {
        "%tid" => Some(Special::Tid(axis)),
        "%ntid" => Some(Special::Ntid(axis)),
        "%ctaid" => Some(Special::Ctaid(axis)),
        "%nctaid" => Some(Special::Nctaid(axis)),
        "%clusterid" => Some(Special::Clusterid(axis)),
        "%nclusterid" => Some(Special::Nclusterid(axis)),
        "%cluster_ctaid" => Some(Special::ClusterCtaid(axis)),
        "%cluster_nctaid" => Some(Special::ClusterNctaid(axis)),
        _ => None,
    };
    if of_axis.is_some() {
        return of_axis.filter(|_| axis < 3);
    }
    Some(match name {
        "%laneid" => Special::LaneId,
        "%warpid" => Special::WarpId,
        "%nwarpid" => Special::NWarpId,
        "%lanemask_eq" => Special::LaneMask(LaneMask::Equal),
        "%lanemask_lt" => Special::LaneMask(LaneMask::Less),
        "%lanemask_le" => Special::LaneMask(LaneMask::LessEqual),
        "%lanemask_gt" => Special::LaneMask(LaneMask::Greater),
        "%lanemask_ge" => Special::LaneMask(LaneMask::GreaterEqual),
        "%cluster_ctarank" => Special::ClusterCtarank,
        "%cluster_nctarank" => Special::ClusterNctarank,
        "%is_explicit_cluster" => Special::IsExplicitCluster,
        "%clock" | "%clock_lo" | "%clock64" => Special::Clock,
        "%clock_hi" => Special::ClockHigh,
        "%globaltimer" | "%globaltimer_lo" => Special::GlobalTimer,
        "%globaltimer_hi" => Special::ClockHigh,
        "%smid" => Special::Smid,
        "%nsmid" => Special::Nsmid,
        "%gridid" => Special::Gridid,
        "%dynamic_smem_size" => Special::DynamicSharedSize,
        "%total_smem_size" => Special::TotalSharedSize,
        _ => return None,
    })
}

fn space_of(d: &Decoder<'_>) -> Result<Space, Refused> {
    for part in &d.parts()[1..] {
        return Ok(match &**part {
            "to" => continue,
            "global" => Space::Global,
            "shared" | "shared::cta" => Space::Shared,
            "shared::cluster" => Space::SharedCluster,
            "local" => Space::Local,
            "const" => Space::Constant,
            "param" | "param::entry" => Space::Parameter,
            other => return Err(Refused(format!("`.{other}` is not known here"))),
        });
    }
    Err("a state space must be named".into())
}

pub(super) fn decode(d: &mut Decoder<'_>) -> Result<Op, Refused> {
    match &*d.parts()[0] {
        "mov" => decode_mov(d),
        "cvta" => {
            d.expect_count(2..=2)?;
            let space = space_of(d)?;
            let to = d.dst(d.operand(0)?)?;
            let ty = d.last_type()?;
            if let Operand::Symbol(name, offset) = d.operand(1)? {
                let placed = d.placed(name)?;
                if matches!(placed.space, Space::Global | Space::Constant) {
                    return Ok(Op::Variable {
                        to,
                        number: placed.address as u32,
                        offset: *offset,
                    });
                }
                let from = Src::Large(super::operands::Src64::Imm(
                    placed.address.wrapping_add(*offset as u64),
                ));
                return Ok(Op::ToGeneric { to, from, space });
            }
            let from = d.src(d.operand(1)?, ty)?;
            Ok(match d.has("to") {
                true => Op::FromGeneric { to, from, space },
                false => Op::ToGeneric { to, from, space },
            })
        }
        "isspacep" => {
            d.expect_count(2..=2)?;
            let space = space_of(d)?;
            let to = d
                .dst_predicate(d.operand(0)?)?
                .ok_or("a predicate must stand here")?;
            let from = d.src(d.operand(1)?, Type::B64)?;
            Ok(Op::IsSpace { to, from, space })
        }
        "mapa" => {
            d.only(&["shared::cluster", "u32", "u64"])?;
            d.expect_count(3..=3)?;
            let ty = d.last_type()?;
            let to = d.dst(d.operand(0)?)?;
            let from = address_value(d, 1, ty)?;
            let rank = d.src(d.operand(2)?, Type::U32)?;
            Ok(Op::Mapa {
                to,
                from,
                rank,
                generic: !d.has("shared::cluster"),
            })
        }
        _ => {
            d.only(&["shared::cluster", "u32", "u64"])?;
            d.expect_count(2..=2)?;
            let ty = d.last_type()?;
            let to = d.dst(d.operand(0)?)?;
            let from = address_value(d, 1, ty)?;
            Ok(Op::Rank { to, from })
        }
    }
}

/// A register or constant with an address, or a shared variable's.
fn address_value(d: &mut Decoder<'_>, index: usize, ty: Type) -> Result<Src, Refused> {
    if let Operand::Symbol(name, offset) = d.operand(index)? {
        let address = d.placed(name)?.address.wrapping_add(*offset as u64);
        return Ok(Src::Large(super::operands::Src64::Imm(address)));
    }
    d.src(d.operand(index)?, ty)
}

fn decode_mov(d: &mut Decoder<'_>) -> Result<Op, Refused> {
    d.expect_count(2..=2)?;
    let ty = d.last_type()?;
    if d.parts().len() != 2 {
        return Err("mov has a type only".into());
    }
    let (to, from) = (d.operand(0)?, d.operand(1)?);
    match (to, from) {
        (Operand::Vector(to), Operand::Vector(from)) if to.len() == from.len() => {
            Err("moves between vectors are not known".into())
        }
        (Operand::Vector(elements), from) => {
            let bits = ty.bits() / elements.len().max(1) as u32;
            let from = d.src(from, ty)?;
            let to = elements
                .iter()
                .map(|e| d.dst(e))
                .collect::<Result<Vec<_>, _>>()?;
            if bits * to.len() as u32 != ty.bits() || bits < 8 {
                return Err("the elements do not fill the type".into());
            }
            Ok(Op::Unpack { to, from, bits })
        }
        (to, Operand::Vector(elements)) => {
            let bits = ty.bits() / elements.len().max(1) as u32;
            let element = match bits {
                8 => Type::B8,
                16 => Type::B16,
                32 => Type::B32,
                64 => Type::B64,
                _ => return Err("the elements do not fill the type".into()),
            };
            let from = elements
                .iter()
                .map(|e| d.src_part(e, element))
                .collect::<Result<Vec<_>, _>>()?;
            Ok(Op::Pack {
                to: d.dst(to)?,
                from,
                bits,
            })
        }
        _ if ty == Type::Pred => {
            let from = d.src_predicate(from)?;
            let to = d.dst_predicate(to)?.ok_or("a predicate must stand here")?;
            Ok(Op::MovePredicate { to, from })
        }
        (to, Operand::Special(name)) => {
            let what = special(name).ok_or_else(|| Refused(format!("{name} is not known")))?;
            Ok(Op::Special {
                to: d.dst(to)?,
                what,
            })
        }
        (to, Operand::Symbol(name, offset)) => {
            let placed = d.placed(name)?;
            let to = d.dst(to)?;
            match placed.space {
                Space::Global | Space::Constant => Ok(Op::Variable {
                    to,
                    number: placed.address as u32,
                    offset: *offset,
                }),
                _ => {
                    let address = placed.address.wrapping_add(*offset as u64);
                    let from = Src::Large(super::operands::Src64::Imm(address));
                    Ok(Op::Move { to, from })
                }
            }
        }
        (to, from) => {
            let from = d.src(from, ty)?;
            Ok(Op::Move {
                to: d.dst(to)?,
                from,
            })
        }
    }
}

impl Special {
    fn value(self, step: &Step<'_>) -> [u64; LANES] {
        let grid: &Grid<'_> = step.grid;
        let block = step.cluster.blocks[step.rank as usize].index;
        let same = |value: u32| [u64::from(value); LANES];
        let clusters = [0, 1, 2].map(|i| grid.grid[i] / grid.cluster[i]);
        match self {
            Special::Tid(axis) => std::array::from_fn(|lane| {
                let thread = u64::from(step.warp) * LANES as u64 + lane as u64;
                u64::from(Grid::place(thread, grid.block)[axis])
            }),
            Special::Ntid(axis) => same(grid.block[axis]),
            Special::Ctaid(axis) => same(block[axis]),
            Special::Nctaid(axis) => same(grid.grid[axis]),
            Special::LaneId => std::array::from_fn(|lane| lane as u64),
            Special::WarpId => same(step.warp),
            Special::NWarpId => same(grid.warps()),
            Special::LaneMask(which) => std::array::from_fn(|lane| {
                let equal = 1u64 << lane;
                let below = equal - 1;
                match which {
                    LaneMask::Equal => equal,
                    LaneMask::Less => below,
                    LaneMask::LessEqual => below | equal,
                    LaneMask::Greater => 0xffff_ffff & !(below | equal),
                    LaneMask::GreaterEqual => 0xffff_ffff & !below,
                }
            }),
            Special::Clusterid(axis) => same(block[axis] / grid.cluster[axis]),
            Special::Nclusterid(axis) => same(clusters[axis]),
            Special::ClusterCtaid(axis) => same(block[axis] % grid.cluster[axis]),
            Special::ClusterNctaid(axis) => same(grid.cluster[axis]),
            Special::ClusterCtarank => same(step.rank),
            Special::ClusterNctarank => same(grid.cluster.iter().product()),
            Special::IsExplicitCluster => same(u32::from(grid.cluster != [1, 1, 1])),
            Special::Clock | Special::GlobalTimer => [step.clock(); LANES],
            Special::ClockHigh => [step.clock() >> 32; LANES],
            Special::Smid => same(0),
            Special::Nsmid => same(1),
            Special::Gridid => same(1),
            Special::DynamicSharedSize => same(grid.dynamic_shared_bytes),
            Special::TotalSharedSize => same(grid.shared_bytes),
        }
    }
}

/// The generic address of an address in a space.
fn to_generic(space: Space, address: u64) -> u64 {
    match space {
        Space::Shared | Space::SharedCluster => SHARED_WINDOW | address & 0xffff_ffff,
        Space::Local => LOCAL_WINDOW | address & 0xffff_ffff,
        Space::Parameter => PARAMETER_WINDOW | address & 0xffff_ffff,
        Space::Global | Space::Constant | Space::Generic => address,
    }
}

impl Op {
    #[inline]
    pub(super) fn execute(&self, step: &mut Step<'_>) -> Result<(), Fault> {
        match self {
            Op::Move { to, from } => match (to, from) {
                (Dst::Word(to), Src::Small(from)) => {
                    let value = step.word(*from);
                    step.set_word(*to, &value);
                }
                (Dst::Quad(to), Src::Quad(from)) => {
                    for half in 0..2 {
                        let value = step.registers.doubles[(from.0 + half) as usize];
                        step.set_double(super::operands::Double(to.0 + half), &value);
                    }
                }
                _ => {
                    let value = step.any(*from);
                    step.set_any(*to, &value);
                }
            },
            Op::MovePredicate { to, from } => {
                let value = step.predicate(*from);
                step.set_predicate(*to, value);
            }
            Op::Special { to, what } => {
                let value = what.value(step);
                step.set_any(*to, &value);
            }
            Op::Variable { to, number, offset } => {
                let addr = super::operands::Addr {
                    base: Base::Variable(*number),
                    offset: *offset,
                };
                let value = step.addresses(addr);
                step.set_any(*to, &value);
            }
            Op::Pack { to, from, bits } => {
                // Of a vector of which some is undefined, the rest is as it is.
                let mut defined = 0;
                for from in from {
                    defined |= step.defined(*from)?;
                }
                let undefined = step.lanes & !defined;
                if undefined != 0 {
                    let message = "registers are packed, and nothing wrote any of them";
                    return Err(step.fault(FaultKind::UninitializedRegister, message, undefined));
                }
                let parts: Vec<_> = from.iter().map(|f| step.any(*f)).collect();
                if let Dst::Quad(place) = to {
                    let per = parts.len() / 2;
                    for half in 0..2usize {
                        let value = pack(&parts[half * per..][..per], *bits);
                        step.set_double(super::operands::Double(place.0 + half as u32), &value);
                    }
                } else {
                    step.set_any(*to, &pack(&parts, *bits));
                }
            }
            Op::Unpack { to, from, bits } => {
                let halves = match from {
                    Src::Quad(place) => vec![
                        step.registers.doubles[place.0 as usize],
                        step.registers.doubles[place.0 as usize + 1],
                    ],
                    from => vec![step.any(*from)],
                };
                let mask = if *bits >= 64 {
                    u64::MAX
                } else {
                    (1 << bits) - 1
                };
                for (i, to) in to.iter().enumerate() {
                    let bit = i as u32 * bits;
                    let half = halves[(bit / 64) as usize];
                    let value = half.map(|v| v >> (bit % 64) & mask);
                    step.set_any(*to, &value);
                }
            }
            Op::ToGeneric { to, from, space } => {
                let value = step.any(*from).map(|v| to_generic(*space, v));
                step.set_any(*to, &value);
            }
            Op::FromGeneric { to, from, space } => {
                let value = step.any(*from);
                let narrow = matches!(
                    space,
                    Space::Shared | Space::SharedCluster | Space::Local | Space::Parameter
                );
                step.set_any(
                    *to,
                    &value.map(|v| if narrow { v & 0xffff_ffff } else { v }),
                );
            }
            Op::IsSpace { to, from, space } => {
                let addresses = step.any(*from);
                let rank = step.rank;
                let holds = |address: u64| match (space, space_at(address)) {
                    (Space::SharedCluster, Space::Shared) => true,
                    (Space::Shared, Space::Shared) => split_cluster_address(address as u32)
                        .0
                        .is_none_or(|r| r == rank),
                    (space, at) => *space == at,
                };
                let value = (0..LANES).fold(0, |m, l| m | u32::from(holds(addresses[l])) << l);
                step.set_predicate(*to, value);
            }
            Op::Mapa {
                to,
                from,
                rank,
                generic,
            } => {
                let (addresses, ranks) = (step.any(*from), step.any(*rank));
                let blocks = step.cluster.blocks.len() as u64;
                if let Some(lane) = lanes_of(step.lanes).find(|l| ranks[*l] >= blocks) {
                    let message = format!(
                        "block {} of a cluster of {blocks} is asked for",
                        ranks[lane]
                    );
                    return Err(step.fault(FaultKind::Operand, message, 1 << lane));
                }
                let value = std::array::from_fn(|lane| {
                    let mapped =
                        u64::from(cluster_address(ranks[lane] as u32, addresses[lane] as u32));
                    if *generic {
                        SHARED_WINDOW | mapped
                    } else {
                        mapped
                    }
                });
                step.set_any(*to, &value);
            }
            Op::Rank { to, from } => {
                let rank = step.rank;
                let value = step.any(*from).map(|address| {
                    u64::from(split_cluster_address(address as u32).0.unwrap_or(rank))
                });
                step.set_any(*to, &value);
            }
        }
        Ok(())
    }
}

fn pack(parts: &[[u64; LANES]], bits: u32) -> [u64; LANES] {
    let mask = if bits >= 64 {
        u64::MAX
    } else {
        (1 << bits) - 1
    };
    let mut value = [0; LANES];
    for (i, part) in parts.iter().enumerate() {
        let shift = i as u32 * bits;
        for lane in 0..LANES {
            value[lane] |= (part[lane] & mask) << shift;
        }
    }
    value
}
