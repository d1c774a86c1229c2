//! Bulk copies in execution.
//!
//! A copy is done when it is issued, which is one of the times that the ISA allows; that nobody relies on when is for the checks to find:
//! its accesses are those of an asynchronous operation of its own, which only those know of that waited for it.

use std::collections::VecDeque;

use super::{Global, Op, Reduction, reduce::combine};
use crate::{
    check::{self, Agent, Proxy},
    fault::{Fault, FaultKind},
    isa::{
        mbarrier::Spot,
        operands::{Addr, Src32, Type},
    },
    machine::{Flow, Step, lanes_of},
    memory::Region,
    ptx::Space,
    tensor_map::{CoordinateError, DataType, MAP_BYTES, Piece, TensorMap},
};

/// A copy out of shared memory; the operations that read and write for it, where order is checked.
#[derive(Clone, Copy, Debug)]
struct Store {
    reader: Option<Agent>,
    writer: Option<Agent>,
    /// Somebody waited for the read.
    read: bool,
    /// The instruction that issued it.
    issued: u32,
}

/// The bulk groups of a thread (PTX ISA §9.7.9.25.1.2, Bulk async-group).
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    open: Vec<Store>,
    committed: VecDeque<Vec<Store>>,
}

impl Groups {
    /// The instruction of a copy that may still read shared memory.
    pub(crate) fn reading(&self) -> Option<u32> {
        let mut all = self.open.iter().chain(self.committed.iter().flatten());
        all.find(|store| !store.read).map(|store| store.issued)
    }
}

/// What a copy reads or writes in global memory.
enum Side {
    Linear {
        address: u64,
        bytes: u32,
    },
    Tensor {
        map: Box<TensorMap>,
        coordinates: Vec<i32>,
    },
}

enum Problem {
    Fault(Fault),
    Coordinates(CoordinateError),
}

impl From<CoordinateError> for Problem {
    fn from(error: CoordinateError) -> Problem {
        Problem::Coordinates(error)
    }
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Problem {
        Problem::Fault(fault)
    }
}

impl Side {
    fn bytes(&self) -> u32 {
        match self {
            Side::Linear { bytes, .. } => *bytes,
            Side::Tensor { map, .. } => map.box_bytes(),
        }
    }

    /// What its address in shared memory is a multiple of.
    fn align(&self) -> u64 {
        match self {
            Side::Linear { .. } => 16,
            Side::Tensor { .. } => 128,
        }
    }

    /// Bytes of shared memory from its first on.
    fn extent(&self) -> u32 {
        match self {
            Side::Linear { bytes, .. } => *bytes,
            Side::Tensor { map, .. } => map.shared_bytes(),
        }
    }

    fn pieces(
        &self,
        shared: u64,
        mut visit: impl FnMut(Piece) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        match self {
            Side::Linear { bytes: 0, .. } => Ok(()),
            Side::Linear { address, bytes } => visit(Piece {
                shared,
                global: Some(*address),
                bytes: *bytes,
            }),
            Side::Tensor { map, coordinates } => map.pieces(coordinates, shared, visit),
        }
    }
}

impl Global {
    fn side(&self, step: &mut Step<'_>, lane: usize) -> Result<Side, Fault> {
        match self {
            Global::Linear { address, bytes } => {
                let address = step.addresses(*address)[lane];
                let bytes = linear_bytes(step, *bytes, lane)?;
                Ok(Side::Linear { address, bytes })
            }
            Global::Tensor { map, coordinates } => {
                let address = step.addresses(*map)[lane];
                let map = Box::new(tensor_map(step, address, lane)?);
                let coordinates = coordinates.iter().map(|c| step.word(*c)[lane] as i32);
                let coordinates: Vec<i32> = coordinates.collect();
                // An H200 calls anything else an illegal instruction; the document does not say so.
                let innermost = coordinates.first().copied().unwrap_or(0);
                let bits = i64::from(innermost) * i64::from(map.data_type().bits());
                if bits % 128 != 0 {
                    let message = format!(
                        "the innermost coordinate of a bulk tensor copy is {innermost}: it must be a multiple of 16 bytes, {} elements",
                        128 / map.data_type().bits()
                    );
                    return Err(step.fault(FaultKind::Misaligned, message, 1 << lane));
                }
                Ok(Side::Tensor { map, coordinates })
            }
        }
    }
}

/// The bytes of a linear copy.
fn linear_bytes(step: &Step<'_>, bytes: Src32, lane: usize) -> Result<u32, Fault> {
    let bytes = step.word(bytes)[lane];
    if bytes.is_multiple_of(16) {
        return Ok(bytes);
    }
    let message = format!("a bulk copy of {bytes} bytes: they must be a multiple of 16");
    Err(step.fault(FaultKind::Operand, message, 1 << lane))
}

fn tensor_map(step: &mut Step<'_>, address: u64, lane: usize) -> Result<TensorMap, Fault> {
    let region = step.resolve(Space::Generic, address, MAP_BYTES as u64, 64, lane)?;
    let mut bytes = [0; MAP_BYTES];
    step.load_region(region, &mut bytes, lane, check::Access::Read)?;
    TensorMap::from_bytes(&bytes).map_err(|error| {
        let message = format!("the tensor map at {address:#x}: {error}");
        step.fault(FaultKind::Operand, message, 1 << lane)
    })
}

fn element(data: DataType) -> Type {
    use DataType as D;
    match data {
        D::Uint8 => Type::U8,
        D::Uint16 => Type::U16,
        D::Uint32 => Type::U32,
        D::Int32 => Type::S32,
        D::Uint64 => Type::U64,
        D::Int64 => Type::S64,
        D::Float16 => Type::F16,
        D::Bfloat16 => Type::Bf16,
        D::Float32 | D::Float32Ftz | D::Tfloat32 | D::Tfloat32Ftz => Type::F32,
        D::Float64 => Type::F64,
        D::Packed4Align8 | D::Packed4Align16 | D::Packed6Align16 => Type::B8,
    }
}

/// Whether tensors of a type can be reduced so (§9.7.9.27.1.3).
fn reduces(op: Reduction, ty: Type) -> bool {
    use Type::*;
    match op {
        Reduction::Add => matches!(ty, U32 | S32 | U64 | F32 | F64 | F16 | Bf16),
        Reduction::Min | Reduction::Max => matches!(ty, U32 | S32 | U64 | S64 | F16 | Bf16),
        Reduction::Inc | Reduction::Dec => ty == U32,
        Reduction::And | Reduction::Or | Reduction::Xor => matches!(ty, U32 | S32 | U64 | S64),
    }
}

impl Step<'_> {
    pub(crate) fn shared_spot(
        &self,
        space: Space,
        address: u64,
        bytes: u32,
        align: u64,
        lane: usize,
    ) -> Result<Spot, Fault> {
        match self.resolve(space, address, u64::from(bytes), align, lane)? {
            Region::Shared { rank, offset } => Ok((rank, offset)),
            _ => {
                let message = format!("{address:#x} is no address of shared memory");
                Err(self.fault(FaultKind::Operand, message, 1 << lane))
            }
        }
    }

    fn problem(&self, problem: Problem, lane: usize) -> Fault {
        match problem {
            Problem::Fault(fault) => fault,
            Problem::Coordinates(error) => {
                self.fault(FaultKind::Operand, error.to_string(), 1 << lane)
            }
        }
    }
}

impl Op {
    pub(in crate::isa) fn execute(&self, step: &mut Step<'_>) -> Result<Flow, Fault> {
        for lane in lanes_of(step.lanes) {
            match self {
                Op::ToShared {
                    space,
                    to,
                    from,
                    mbarrier,
                    multicast,
                } => {
                    let from = from.side(step, lane)?;
                    let mask = multicast.map(|m| step.word(m)[lane] as u16);
                    to_shared(step, lane, *space, (*to, *mbarrier), &from, mask)?;
                }
                Op::ToGlobal {
                    to,
                    from,
                    reduction,
                } => {
                    let to = match to.side(step, lane)? {
                        Side::Tensor { map, coordinates } => Side::Tensor {
                            map: Box::new(map.as_stored()),
                            coordinates,
                        },
                        linear => linear,
                    };
                    // Loads take them; of a store an H200 says that it is an illegal instruction. The document does not.
                    if let Side::Tensor { coordinates, .. } = &to
                        && let Some(negative) = coordinates.iter().find(|c| **c < 0)
                    {
                        let message = format!(
                            "a bulk tensor copy to global memory begins at coordinate {negative}: none may be negative"
                        );
                        return Err(step.fault(FaultKind::Operand, message, 1 << lane));
                    }
                    to_global(step, lane, &to, *from, *reduction)?;
                }
                Op::ToCluster {
                    to,
                    from,
                    bytes,
                    mbarrier,
                    reduction,
                } => {
                    let bytes = linear_bytes(step, *bytes, lane)?;
                    to_cluster(step, lane, *to, *from, bytes, *mbarrier, *reduction)?;
                }
                // A hint, but of a tensor that must be one.
                Op::Prefetch(from) => {
                    from.side(step, lane)?;
                }
                Op::Commit => {
                    let groups = step.bulk_groups(lane);
                    let open = std::mem::take(&mut groups.open);
                    groups.committed.push_back(open);
                }
                Op::Wait { groups, read } => wait(step, lane, *groups as usize, *read),
            }
        }
        Ok(Flow::Next)
    }
}

fn wait(step: &mut Step<'_>, lane: usize, keep: usize, read_only: bool) {
    let groups = step.bulk_groups(lane);
    let count = groups.committed.len().saturating_sub(keep);
    let mut agents = Vec::new();
    for group in groups.committed.iter_mut().take(count) {
        for store in group {
            agents.extend(store.reader.take());
            store.read = true;
            if !read_only {
                agents.extend(store.writer.take());
            }
        }
    }
    if !read_only {
        groups.committed.drain(..count);
    }
    for agent in agents {
        step.agent_waited(agent, lane);
    }
}

/// Global to shared memory, of one block or of those in the mask.
fn to_shared(
    step: &mut Step<'_>,
    lane: usize,
    space: Space,
    (to, mbarrier): (Addr, Addr),
    from: &Side,
    mask: Option<u16>,
) -> Result<(), Fault> {
    let to = step.addresses(to)[lane];
    let (rank, offset) = step.shared_spot(space, to, from.extent(), from.align(), lane)?;
    let mbarrier = step.addresses(mbarrier)[lane];
    let (its_rank, its_offset) = step.mbarrier_spot(space, mbarrier, lane)?;
    let blocks = step.cluster.blocks.len() as u32;
    let ranks: Vec<u32> = match mask {
        None => vec![rank],
        Some(mask) => (0..16).filter(|r| mask >> r & 1 != 0).collect(),
    };
    if mask.is_none() && its_rank != rank {
        let message =
            "the mbarrier of a bulk copy lies in another block than the bytes it waits for";
        return Err(step.fault(FaultKind::Operand, message, 1 << lane));
    }
    if let Some(absent) = ranks.iter().find(|r| **r >= blocks) {
        let message =
            format!("the mask of a multicast names block {absent} of a cluster of {blocks}");
        return Err(step.fault(FaultKind::Operand, message, 1 << lane));
    }
    if let Side::Linear { address, .. } = from {
        step.resolve(Space::Global, *address, 0, 16, lane)?;
    }
    let agent = step.agent_start(lane, Proxy::Async);
    let mut buffer = Vec::new();
    // Swizzles hang on addresses in the block's own window, which begin where its shared memory does.
    let base = step.shared_address(offset);
    let done = from.pieces(base, |piece| {
        buffer.clear();
        buffer.resize(piece.bytes as usize, 0);
        match piece.global {
            Some(address) => {
                let bytes = u64::from(piece.bytes);
                let region = step.resolve(Space::Global, address, bytes, 1, lane)?;
                step.agent_load(agent, region, &mut buffer, lane)?;
                if let Side::Tensor { map, .. } = from {
                    map.convert(&mut buffer);
                }
            }
            None => {
                if let Side::Tensor { map, .. } = from {
                    map.fill(&mut buffer);
                }
            }
        }
        let offset = step.shared_offset(piece.shared);
        for &rank in &ranks {
            step.agent_store(agent, Region::Shared { rank, offset }, &buffer, lane)?;
        }
        Ok(())
    });
    done.map_err(|p| step.problem(p, lane))?;
    step.complete_bytes(agent, &ranks, its_offset, from.bytes(), lane)
}

/// Shared to global memory.
fn to_global(
    step: &mut Step<'_>,
    lane: usize,
    to: &Side,
    from: Addr,
    reduction: Option<(Reduction, Option<Type>)>,
) -> Result<(), Fault> {
    let from = step.addresses(from)[lane];
    let (rank, offset) = step.shared_spot(Space::Shared, from, to.extent(), to.align(), lane)?;
    if let Side::Linear { address, .. } = to {
        step.resolve(Space::Global, *address, 0, 16, lane)?;
    }
    let reduction = match (reduction, to) {
        (None, _) => None,
        (Some((op, Some(ty))), _) => Some((op, ty)),
        (Some((op, None)), Side::Tensor { map, .. }) => {
            let ty = element(map.data_type());
            if !reduces(op, ty) {
                let message = format!(
                    "tensors of {:?} have no reduction `{op:?}`",
                    map.data_type()
                );
                return Err(step.fault(FaultKind::Operand, message, 1 << lane));
            }
            Some((op, ty))
        }
        (Some((_, None)), Side::Linear { .. }) => None,
    };
    let reader = step.agent_start(lane, Proxy::Async);
    let writer = step.agent_start(lane, Proxy::Async);
    let mut buffer = Vec::new();
    let base = step.shared_address(offset);
    let done = to.pieces(base, |piece| {
        buffer.clear();
        buffer.resize(piece.bytes as usize, 0);
        let offset = step.shared_offset(piece.shared);
        step.agent_load(reader, Region::Shared { rank, offset }, &mut buffer, lane)?;
        let Some(address) = piece.global else {
            return Ok(());
        };
        let region = step.resolve(Space::Global, address, u64::from(piece.bytes), 1, lane)?;
        match reduction {
            None => step.agent_store(writer, region, &buffer, lane)?,
            Some((op, ty)) => step.agent_reduce(writer, region, &buffer, op, ty, lane)?,
        }
        Ok(())
    });
    done.map_err(|p| step.problem(p, lane))?;
    let issued = step.at;
    step.bulk_groups(lane).open.push(Store {
        reader,
        writer,
        read: false,
        issued,
    });
    Ok(())
}

/// A block's shared memory to that of another block (or its own).
fn to_cluster(
    step: &mut Step<'_>,
    lane: usize,
    to: Addr,
    from: Addr,
    bytes: u32,
    mbarrier: Addr,
    reduction: Option<(Reduction, Type)>,
) -> Result<(), Fault> {
    let to = step.addresses(to)[lane];
    let (rank, offset) = step.shared_spot(Space::SharedCluster, to, bytes, 16, lane)?;
    let from = step.addresses(from)[lane];
    let (own, source) = step.shared_spot(Space::Shared, from, bytes, 16, lane)?;
    let mbarrier = step.addresses(mbarrier)[lane];
    let spot = step.mbarrier_spot(Space::SharedCluster, mbarrier, lane)?;
    if spot.0 != rank {
        let message =
            "the mbarrier of a bulk copy lies in another block than the bytes it waits for";
        return Err(step.fault(FaultKind::Operand, message, 1 << lane));
    }
    let agent = step.agent_start(lane, Proxy::Async);
    let mut buffer = vec![0; bytes as usize];
    if bytes > 0 {
        step.agent_load(
            agent,
            Region::Shared {
                rank: own,
                offset: source,
            },
            &mut buffer,
            lane,
        )?;
        let region = Region::Shared { rank, offset };
        match reduction {
            None => step.agent_store(agent, region, &buffer, lane)?,
            Some((op, ty)) => step.agent_reduce(agent, region, &buffer, op, ty, lane)?,
        }
    }
    step.complete_bytes(agent, &[rank], spot.1, bytes, lane)
}

impl Step<'_> {
    /// An operation is over: completes its bytes on the mbarrier at that offset of each block.
    pub(crate) fn complete_bytes(
        &mut self,
        agent: Option<Agent>,
        ranks: &[u32],
        offset: u32,
        bytes: u32,
        lane: usize,
    ) -> Result<(), Fault> {
        let token = agent.map(|agent| self.agent_done(agent));
        for &rank in ranks {
            self.check_mbarrier((rank, offset), lane)?;
            self.with_mbarrier((rank, offset), lane, |m| {
                if let Some(token) = &token {
                    m.gather(token);
                }
                m.complete(bytes)
            })?;
        }
        Ok(())
    }

    /// Combines elements with what memory holds, each at once.
    fn agent_reduce(
        &mut self,
        agent: Option<Agent>,
        region: Region,
        from: &[u8],
        op: Reduction,
        ty: Type,
        lane: usize,
    ) -> Result<(), Fault> {
        let size = ty.bits() / 8;
        for (i, element) in from.chunks_exact(size as usize).enumerate() {
            let at = i as u32 * size;
            let mut value = [0; 8];
            value[..element.len()].copy_from_slice(element);
            let value = u64::from_le_bytes(value);
            let place = match region {
                Region::Global { allocation, offset } => Region::Global {
                    allocation,
                    offset: offset + u64::from(at),
                },
                Region::Shared { rank, offset } => Region::Shared {
                    rank,
                    offset: offset + at,
                },
                other => other,
            };
            self.agent_update(agent, place, size, lane, |old| combine(op, ty, old, value))?;
        }
        Ok(())
    }
}
