//! Shapes of the scratch buffers that conversions and reductions over warps use: the allocator takes the sizes from
//! here, codegen the addresses.

use tesserine_set::DType;

use super::{Layout, fragments::is_mma_result};
use crate::ir::tile::ReduceOp;

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
