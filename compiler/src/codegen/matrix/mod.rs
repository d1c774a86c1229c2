//! Matrix products of tiles, one file for each family of instructions.
//!
//! Operands and accumulator are registers in the fragment layouts of [`crate::layout::fragments`]. Which register holds
//! which element is read off the layouts, so that the families know nothing of warps and repetitions: what a thread
//! holds of the result, it finds the operands of among its own registers.

mod fma;
mod mma_sync;
mod wgmma;

pub(super) use wgmma::FactorsInFlight;

use std::collections::HashMap;

use super::lower::Lower;
use crate::{
    diagnostics::Diagnostic,
    ir::{
        Op,
        role::{OpKind, Strategy},
    },
    layout::Layout,
};

impl Lower<'_> {
    pub fn dot(&mut self, op: &Op<OpKind>, strategy: Strategy) -> Result<(), Diagnostic> {
        match strategy {
            Strategy::MmaSync(shape) => self.dot_mma_sync(op, shape),
            Strategy::Fma => self.dot_fma(op),
        }
    }
}

/// The registers of one thread by the coordinate that they hold for lane 0 of warp 0: of replicas, the first.
struct Places {
    registers: HashMap<(u32, u32), usize>,
}

impl Places {
    fn of(layout: &Layout) -> Places {
        let mut registers = HashMap::new();
        for register in 0..layout.registers() {
            let at = layout.coordinate(register, 0, 0);
            registers.entry((at[0], at[1])).or_insert(register as usize);
        }
        Places { registers }
    }

    fn at(&self, row: u32, column: u32) -> usize {
        match self.registers.get(&(row, column)) {
            Some(&register) => register,
            None => unreachable!("the verifier checked the layouts of the product"),
        }
    }
}

/// The coordinates of a layout's registers for lane 0 of warp 0, in the order of the registers.
fn coordinates(layout: &Layout) -> Vec<(u32, u32)> {
    (0..layout.registers())
        .map(|register| {
            let at = layout.coordinate(register, 0, 0);
            (at[0], at[1])
        })
        .collect()
}
