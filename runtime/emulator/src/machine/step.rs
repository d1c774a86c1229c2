//! One instruction of one group of threads: what a family's `execute` works on.

use super::{Cluster, Grid, LANES, Registers};
use crate::{
    fault::{Fault, FaultKind, Note, Thread},
    isa::operands::{Addr, Base, Double, Dst, Predicate, Src, Src32, Src64, SrcP, Word},
};

pub(crate) struct Step<'a> {
    pub grid: &'a Grid<'a>,
    pub cluster: &'a mut Cluster,
    pub registers: &'a mut Registers,
    /// The block's rank in its cluster.
    pub rank: u32,
    /// In the block.
    pub warp: u32,
    /// Those that execute: of the group, where the guard holds.
    pub lanes: u32,
    /// The instruction's index.
    pub at: u32,
    /// Set when it runs again after a [`Flow::Wait`](super::Flow::Wait).
    pub resumed: Option<u64>,
    /// Instructions of the warp in this turn.
    pub ticks: u64,
    /// The access that is checked has the scope of the block.
    pub near: bool,
}

/// The lanes of a mask, ascending.
pub(crate) fn lanes_of(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (lane < 32).then_some(lane as usize)
    })
}

impl<'a> Step<'a> {
    #[inline]
    pub(crate) fn word(&self, source: Src32) -> [u32; LANES] {
        self.registers.word(source)
    }

    #[inline]
    pub(crate) fn double(&self, source: Src64) -> [u64; LANES] {
        self.registers.double(source)
    }

    #[inline]
    pub(crate) fn any(&self, source: Src) -> [u64; LANES] {
        self.registers.any(source)
    }

    /// The lanes of a source that hold a value, for instructions that may pass on undefined ones; a value that is still to come is no such
    /// thing, but a fault.
    pub(crate) fn defined(&self, source: Src) -> Result<u32, Fault> {
        let words = self.registers.words.len();
        let at = match source {
            Src::Small(Src32::Reg(word)) => word.0 as usize,
            Src::Large(Src64::Reg(double)) | Src::Quad(double) => words + double.0 as usize,
            Src::Small(Src32::Imm(_)) | Src::Large(Src64::Imm(_)) => return Ok(u32::MAX),
        };
        let defined = self.registers.defined[at];
        let missing = self.lanes & !defined;
        if missing != 0 && self.registers.products.is_pending(at as u32) {
            let message = "a register is touched before the asynchronous product that it belongs to was waited for (wgmma.wait_group)";
            return Err(self.fault(FaultKind::Pending, message, missing));
        }
        Ok(defined)
    }

    /// Lanes of a register hold nothing.
    pub(crate) fn undefine(&mut self, to: Dst, lanes: u32) {
        let words = self.registers.words.len();
        let (at, count) = match to {
            Dst::Word(word) => (word.0 as usize, 1),
            Dst::Double(double) => (words + double.0 as usize, 1),
            Dst::Quad(double) => (words + double.0 as usize, 2),
            Dst::Sink => return,
        };
        for defined in &mut self.registers.defined[at..at + count] {
            *defined &= !lanes;
        }
    }

    #[inline]
    pub(crate) fn predicate(&self, source: SrcP) -> u32 {
        self.registers.predicate(source)
    }

    #[inline]
    pub(crate) fn set_word(&mut self, to: Word, values: &[u32; LANES]) {
        self.registers.set_word(to, self.lanes, values);
    }

    #[inline]
    pub(crate) fn set_double(&mut self, to: Double, values: &[u64; LANES]) {
        self.registers.set_double(to, self.lanes, values);
    }

    #[inline]
    pub(crate) fn set_predicate(&mut self, to: Predicate, values: u32) {
        self.registers.set_predicate(to, self.lanes, values);
    }

    pub(crate) fn set_any(&mut self, to: Dst, values: &[u64; LANES]) {
        self.registers.set_any(to, self.lanes, values);
    }

    /// The address of each lane; meaningless in lanes that do not execute.
    pub(crate) fn addresses(&self, address: Addr) -> [u64; LANES] {
        let offset = address.offset as u64;
        match address.base {
            // 32-bit addresses wrap as 32-bit sums do.
            Base::Word(word) => self.registers.words[word.0 as usize]
                .map(|v| u64::from(v.wrapping_add(offset as u32))),
            Base::Double(double) => {
                self.registers.doubles[double.0 as usize].map(|v| v.wrapping_add(offset))
            }
            Base::Fixed => [offset; LANES],
            Base::Variable(number) => {
                let base = self
                    .grid
                    .variables
                    .get(number as usize)
                    .copied()
                    .unwrap_or(0);
                [base.wrapping_add(offset); LANES]
            }
        }
    }

    /// The threads of those lanes.
    pub(crate) fn threads(&self, lanes: u32) -> Vec<Thread> {
        let block = self.cluster.blocks[self.rank as usize].index;
        let thread = |lane| Thread {
            block,
            thread: self.warp * LANES as u32 + lane as u32,
        };
        lanes_of(lanes).map(thread).collect()
    }

    /// A fault of those lanes at this instruction.
    #[cold]
    pub(crate) fn fault(&self, kind: FaultKind, message: impl Into<String>, lanes: u32) -> Fault {
        Fault {
            kind,
            message: message.into(),
            threads: self.threads(lanes),
            place: self.grid.program.place(self.at),
            notes: Vec::<Note>::new(),
        }
    }
}
