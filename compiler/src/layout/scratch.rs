//! Shapes of the scratch buffers that conversions, reductions and scans over warps, and operations on whole tiles use: the allocator takes the sizes from
//! here, codegen the addresses.

use tesserine_set::DType;

use super::{Layout, fragments::is_mma_result};
use crate::ir::tile::{OpKind, ReduceOp, Type};

/// How a conversion's tile lies in shared memory: row-major, rows `pitch` bytes apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvertBuffer {
    /// Extents that cover the padding of both layouts.
    pub extents: Vec<u32>,
    /// Bytes of one element.
    pub element: u32,
    /// Bytes from one row (last dimension) to the next.
    pub pitch: u32,
    /// The widest aligned access that the pitch allows, in bytes.
    pub access: u32,
    pub bytes: u32,
}

/// Bytes of one element in shared memory.
pub fn shared_element(elem: DType) -> u32 {
    elem.bits().max(8) / 8
}

impl ConvertBuffer {
    pub fn new(from: &Layout, to: &Layout, elem: DType) -> ConvertBuffer {
        let element = shared_element(elem);
        let extents: Vec<u32> = from
            .padded()
            .into_iter()
            .zip(to.padded())
            .map(|(a, b)| a.max(b))
            .collect();
        let (&columns, outer) = extents.split_last().expect("tiles have a dimension");
        let rows: u32 = outer.iter().product();
        // Fragments are written in words whose rows lie in banks of their own also if these are 16 bytes apart.
        let neighbours = if is_mma_result(from) {
            to.neighbours()
        } else {
            from.neighbours().min(to.neighbours())
        };
        let wide = neighbours * element >= 16;
        // A row is shifted against the next by one access, so that a column lies in all banks.
        let access = if wide { 16 } else { element.max(4) };
        let mut pitch = (columns * element).next_multiple_of(access);
        if rows > 1 {
            pitch += access;
        }
        ConvertBuffer {
            extents,
            element,
            pitch,
            access,
            bytes: pitch * rows,
        }
    }
}

impl Layout {
    /// Extents with padding.
    pub fn padded(&self) -> Vec<u32> {
        self.block()
            .into_iter()
            .zip(&self.repeat)
            .map(|(b, &r)| b * r)
            .collect()
    }

    /// How many neighbours along the last dimension lie in consecutive registers.
    pub fn neighbours(&self) -> u32 {
        self.contiguous(self.shape.len() - 1)
    }
}

/// Bytes between neighbours along each dimension of a tile of `shape` that lies row-major without gaps.
pub fn flat_strides(shape: &[u32], elem: DType) -> Vec<u32> {
    let mut strides = vec![shared_element(elem); shape.len()];
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d] * shape[d];
    }
    strides
}

/// Bytes of a tile that lies without gaps; `None` beyond 2³¹.
fn flat_bytes(shape: &[u32], elem: DType) -> Option<u32> {
    let element = u64::from(shared_element(elem));
    let bytes = shape
        .iter()
        .try_fold(element, |n, &d| n.checked_mul(d.into()))?;
    u32::try_from(bytes).ok().filter(|&b| b < 1 << 31)
}

/// Bytes of scratch that an operation needs that goes through it: `operand` and `result` are the types of the first of
/// each, `layout` that of the first operand, if it is a tile. 0 if it needs none.
pub fn through_bytes(op: &OpKind, operand: &Type, result: &Type, layout: Option<&Layout>) -> u32 {
    let bytes = match op {
        OpKind::Scan { axis, .. } => layout
            .and_then(|l| ScanBuffer::new(l, *axis as usize, result.elem()))
            .map_or(Some(0), |b| Some(b.bytes)),
        OpKind::Sort { .. } => {
            let mut shape = operand.shape().to_vec();
            if let Some(last) = shape.last_mut() {
                *last = last.checked_next_power_of_two().unwrap_or(u32::MAX);
            }
            flat_bytes(&shape, DType::I64)
        }
        OpKind::Histogram { .. } | OpKind::Concat { .. } => {
            flat_bytes(result.shape(), result.elem())
        }
        OpKind::ClusterReduce { .. } => {
            let registers = layout.map_or(1, |l| l.registers() * 32 * l.warps());
            flat_bytes(&[registers], operand.elem())
        }
        _ => flat_bytes(operand.shape(), operand.elem()),
    };
    bytes.unwrap_or(u32::MAX / 2)
}

/// How the totals of a scan pass from warp to warp: those of one line in one block of it are neighbours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanBuffer {
    /// Bytes of one total.
    pub slot: u32,
    /// Lane bits that tell lines apart, or replicas of them.
    pub lane_bits: Vec<u32>,
    /// Warp bits along the axis.
    pub warp_bits: Vec<u32>,
    /// Warp bits that are not.
    pub other_warp_bits: Vec<u32>,
    /// Bytes from one run of registers to the next.
    pub run: u32,
    pub bytes: u32,
}

impl ScanBuffer {
    /// `None` if no warp bit lies along the axis. `elem` is the result's.
    pub fn new(layout: &Layout, axis: usize, elem: DType) -> Option<ScanBuffer> {
        let select = |basis: &[Vec<u32>], along: bool| -> Vec<u32> {
            (0..basis.len() as u32)
                .filter(|&i| (basis[i as usize][axis] != 0) == along)
                .collect()
        };
        let warp_bits = select(&layout.warp, true);
        if warp_bits.is_empty() {
            return None;
        }
        let (lane_bits, other_warp_bits) =
            (select(&layout.lane, false), select(&layout.warp, false));
        let slot = if elem.bits() == 64 { 8 } else { 4 };
        let slots = lane_bits.len() + layout.warp.len();
        let run = slot << slots;
        let in_run = layout.register.iter().filter(|v| v[axis] != 0).count();
        Some(ScanBuffer {
            slot,
            lane_bits,
            warp_bits,
            other_warp_bits,
            run,
            bytes: run * (layout.registers() >> in_run),
        })
    }
}

/// Which positions of a reduction's operand go through shared memory, and how they are numbered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReduceBuffer {
    /// Bytes of one partial result.
    pub slot: u32,
    /// Lane bits that tell results apart, or replicas of them.
    pub lane_bits: Vec<u32>,
    /// Warp bits that are summed over.
    pub warp_bits: Vec<u32>,
    /// Warp bits that are not.
    pub other_warp_bits: Vec<u32>,
    /// Results a thread holds: distinct register coordinates outside the axis.
    pub results: u32,
    pub bytes: u32,
}

impl ReduceBuffer {
    /// `None` if no warp bit lies on the axis (on any axis, if it is `None`).
    pub fn new(
        operand: &Layout,
        axis: Option<u32>,
        op: ReduceOp,
        elem: DType,
    ) -> Option<ReduceBuffer> {
        let on_axis = |vector: &Vec<u32>| match axis {
            Some(a) => vector[a as usize] != 0,
            None => vector.iter().any(|&v| v != 0),
        };
        let select = |basis: &[Vec<u32>], wanted: bool| -> Vec<u32> {
            (0..basis.len() as u32)
                .filter(|&i| on_axis(&basis[i as usize]) == wanted)
                .collect()
        };
        let warp_bits = select(&operand.warp, true);
        if warp_bits.is_empty() {
            return None;
        }
        // Replicas of a warp need no slots of their own where there is one result, but they may write them.
        let other_warp_bits = select(&operand.warp, false);
        let lane_bits = match axis {
            Some(_) => select(&operand.lane, false),
            None => Vec::new(),
        };
        let results = match axis {
            Some(a) => {
                let mut seen: Vec<Vec<u32>> = Vec::new();
                for register in 0..operand.registers() {
                    let mut at = operand.coordinate(register, 0, 0);
                    at[a as usize] = 0;
                    if !seen.contains(&at) {
                        seen.push(at);
                    }
                }
                seen.len() as u32
            }
            None => 1,
        };
        let slot = match op {
            ReduceOp::ArgMax | ReduceOp::ArgMin => 16,
            _ if elem.bits() == 64 => 8,
            // A count of a whole tile is 64 bits wide.
            ReduceOp::Sum if elem == DType::Bool => 8,
            _ => 4,
        };
        let bytes = slot
            * results
            * (1 << lane_bits.len())
            * (1 << (warp_bits.len() + other_warp_bits.len()));
        Some(ReduceBuffer {
            slot,
            lane_bits,
            warp_bits,
            other_warp_bits,
            results,
            bytes,
        })
    }
}
