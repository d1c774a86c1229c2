//! Products by multiplications and additions in f32 (f64, i32): what targets without a fitting instruction do.

use std::collections::HashMap;

use tesserine_set::DType;

use super::{Places, coordinates};
use crate::{
    codegen::{builder::Val, lower::Lower},
    diagnostics::Diagnostic,
    ir::{Op, role::OpKind},
};

impl Lower<'_> {
    pub(super) fn dot_fma(&mut self, op: &Op<OpKind>) -> Result<(), Diagnostic> {
        let [a, b, acc] = [0, 1, 2].map(|i| op.operands[i]);
        let total = self.elem(acc);
        // What is narrower is rounded when all is added up.
        let sum = if total == DType::F16 {
            DType::F32
        } else {
            total
        };
        let layouts = [a, b, acc].map(|v| self.layout(v).expect("tiles have layouts"));
        let [in_a, in_b] = [layouts[0], layouts[1]].map(Places::of);
        let operands = [a, b].map(|v| (self.get(v), self.elem(v)));
        let before = self.get(acc);
        let mut sums = self.cast_all(&before, total, sum)?;
        let depth = layouts[0].shape[1];
        let results = coordinates(layouts[2]);
        for k in 0..depth {
            // Widened for one step of K only, since the wide values take twice the registers.
            let mut wide: [HashMap<usize, Val>; 2] = [HashMap::new(), HashMap::new()];
            for (i, &(row, column)) in results.iter().enumerate() {
                let places = [in_a.at(row, k), in_b.at(k, column)];
                let mut factors = [sums[i]; 2];
                for side in 0..2 {
                    let (regs, elem) = &operands[side];
                    factors[side] = match wide[side].get(&places[side]) {
                        Some(&value) => value,
                        None => {
                            let narrow = regs[places[side]];
                            let value = self.cast_all(&[narrow], *elem, sum)?[0];
                            wide[side].insert(places[side], value);
                            value
                        }
                    };
                }
                sums[i] = self.fma(factors[0], factors[1], sums[i], sum)?;
            }
        }
        let sums = self.cast_all(&sums, sum, total)?;
        self.set(op.results[0], sums);
        Ok(())
    }
}
