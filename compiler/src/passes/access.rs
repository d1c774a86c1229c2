//! How wide one access of a load or store may be, and what an access costs under a layout.

use tesserine_set::{Fact, ParamKind, ViewParam};

use super::divisibility::Divisibility;
use crate::{
    ir::{
        Header, Op, ValueId,
        role::{OpKind, RoleBody},
        tile::{self, Index},
    },
    layout::Layout,
};

/// Bytes that one access may move.
const WIDEST: u32 = 16;

/// Bytes of the unit in which memory is read and written.
const SECTOR: u32 = 32;

/// A load or store of a tile.
#[derive(Clone, Debug)]
pub struct Access {
    /// Elements along the last dimension that one access may move: proven to be aligned, and to lie inside the bounds
    /// together or outside.
    pub width: u32,
    /// Bits of an element in memory.
    pub bits: u32,
    /// Whether neighbours along the tile's last dimension are neighbours in memory.
    pub contiguous: bool,
}

/// The view parameter that a load or store goes to, by number, with whatever elements it is seen.
pub fn param(body: &RoleBody, mut view: ValueId) -> Option<u32> {
    loop {
        let op = &body.ops[body.defining_op(view)?];
        match op.kind {
            OpKind::Tile(tile::OpKind::Param(index)) => return Some(index),
            OpKind::Tile(tile::OpKind::ViewBitcast) => view = op.operands[0],
            _ => return None,
        }
    }
}

/// What is proven of a load or store; `None` for other operations.
pub fn of(
    header: &Header,
    body: &RoleBody,
    known: &Divisibility,
    op: &Op<OpKind>,
) -> Option<Access> {
    let (indices, stores) = match &op.kind {
        OpKind::Load { indices, .. } => (indices, false),
        OpKind::Store { indices, .. } | OpKind::Atomic { indices, .. } => (indices, true),
        _ => return None,
    };
    let bits = body.ty(op.operands[0]).ty.elem().bits();
    let narrow = Access {
        width: 1,
        bits,
        contiguous: false,
    };
    let Some(index) = param(body, op.operands[0]) else {
        return Some(narrow);
    };
    let ParamKind::View(view) = &header.signature.params[index as usize].kind else {
        return Some(narrow);
    };
    let last = match indices.last() {
        Some(Index::Gather { .. }) | None => return Some(narrow),
        Some(last) if last.extent().is_some() && !view.strided => *last,
        _ => return Some(narrow),
    };
    if let OpKind::Atomic { .. } = op.kind {
        return Some(Access {
            contiguous: true,
            ..narrow
        });
    }
    let aligned = alignment(header, index, view);
    // Of elements that the view is seen with.
    let rescale = |twos: u32| match twos {
        0 => 0,
        _ => (twos + view.dtype.bits().trailing_zeros()).saturating_sub(bits.trailing_zeros()),
    };
    let extent = view
        .extents
        .last()
        .map_or(0, |e| rescale(known.formula(e)).min(31));
    // The operands of the last index are the last before the pad or the value.
    let operands = &op.operands[1..op.operands.len() - 1];
    let inside = match last {
        Index::Range { len, .. } => operands[operands.len() - last.operands()..]
            .iter()
            .map(|&v| known.twos(v))
            .fold(len.trailing_zeros(), u32::min),
        Index::Whole { len } => len.trailing_zeros(),
        Index::Scalar | Index::Gather { .. } => 0,
    };
    let mut bounds = match last {
        Index::Range { .. } => extent.min(inside),
        _ => inside,
    };
    // Rows of packed elements begin at bytes, and what fills up a row's last one is nobody's.
    let byte = 8u32.div_ceil(bits).trailing_zeros();
    if stores && inside >= byte {
        bounds = bounds.max(byte);
    }
    let bytes = WIDEST.min(1 << aligned.min(31));
    let by_alignment = (bytes * 8 / bits).max(1);
    Some(Access {
        width: by_alignment.min(1 << bounds.min(31)),
        bits,
        contiguous: true,
    })
}

/// The exponent of a power of two of bytes that divides the base and all strides but the last.
pub fn alignment(header: &Header, param: u32, view: &ViewParam) -> u32 {
    header
        .requires
        .iter()
        .chain(&header.facts)
        .filter_map(|fact| match fact {
            Fact::Aligned { param: p, bytes } if *p == param => Some(*bytes),
            _ => None,
        })
        .chain(view.facts.align)
        .map(|bytes| bytes.trailing_zeros())
        .max()
        .unwrap_or(0)
}

impl Access {
    /// The width under `layout`: neighbours must also lie in consecutive registers. Packed elements that do not fill a byte
    /// are fetched one by one.
    pub fn width_in(&self, layout: &Layout) -> u32 {
        match layout.shape.len().checked_sub(1) {
            Some(last) => {
                let width = self.width.min(layout.contiguous(last));
                if width * self.bits < 8 { 1 } else { width }
            }
            None => 1,
        }
    }

    /// Cycles or so that a warp spends: instructions, and sectors touched.
    pub fn cost(&self, layout: &Layout) -> f64 {
        let last = layout.shape.len() - 1;
        let registers = layout.registers();
        let run = if self.contiguous {
            layout.contiguous(last)
        } else {
            1
        };
        let groups = registers / run;
        let sampled = groups.min(4);
        let mut touched = 0;
        for group in 0..sampled {
            let mut sectors: Vec<Vec<u32>> = Vec::with_capacity(32);
            for lane in 0..32 {
                let mut at = layout.coordinate(group * run, lane, 0);
                if layout.contains(&at) {
                    if self.contiguous {
                        let first = at[last] * self.bits / 8 / SECTOR;
                        let end = ((at[last] + run) * self.bits).div_ceil(8).div_ceil(SECTOR);
                        for sector in first..end.max(first + 1) {
                            at[last] = sector;
                            sectors.push(at.clone());
                        }
                    } else {
                        sectors.push(at);
                    }
                }
            }
            sectors.sort_unstable();
            sectors.dedup();
            touched += sectors.len() as u32;
        }
        let sectors = f64::from(touched) * f64::from(groups) / f64::from(sampled.max(1));
        let instructions = f64::from(registers / self.width_in(layout));
        instructions + sectors
    }
}
