//! Products by multiplications and additions in f32 (or f64): what targets without a fitting instruction do.

use tesserine_set::DType;

use super::{Places, coordinates};
use crate::{
    codegen::lower::Lower,
    diagnostics::Diagnostic,
    ir::{Op, role::OpKind},
};

impl Lower<'_> {
    pub(super) fn dot_fma(&mut self, op: &Op<OpKind>) -> Result<(), Diagnostic> {
        let [a, b, acc] = [0, 1, 2].map(|i| op.operands[i]);
        let sum = self.elem(acc);
        if !matches!(sum, DType::F32 | DType::F64) {
            return Err(self.not_yet(format_args!("a product accumulated in `{sum}`")));
        }
        let layouts = [a, b, acc].map(|v| self.layout(v).expect("tiles have layouts"));
        let [in_a, in_b] = [layouts[0], layouts[1]].map(Places::of);
        let mut operands = Vec::new();
        for value in [a, b] {
            let regs = self.get(value);
            let elem = self.elem(value);
            operands.push(self.cast_all(&regs, elem, sum)?);
        }
        let mut sums = self.get(acc).to_vec();
        let depth = layouts[0].shape[1];
        let results = coordinates(layouts[2]);
        for k in 0..depth {
            for (i, &(row, column)) in results.iter().enumerate() {
                let left = operands[0][in_a.at(row, k)];
                let right = operands[1][in_b.at(k, column)];
                sums[i] = self.fma(left, right, sums[i], sum)?;
            }
        }
        self.set(op.results[0], sums);
        Ok(())
    }
}
