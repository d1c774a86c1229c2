//! Products by `mma.sync`: 16-bit operands, accumulated in f32, 16 by 8 by 8 or 16 at a time.

use tesserine_set::DType;

use super::{Places, coordinates};
use crate::{
    codegen::{
        builder::{Effect, F16, F32, Val},
        lower::Lower,
    },
    diagnostics::Diagnostic,
    ir::{Op, role::OpKind},
    layout::fragments::MmaShape,
    target::legality::Instruction,
};

impl Lower<'_> {
    pub(super) fn dot_mma_sync(
        &mut self,
        op: &Op<OpKind>,
        shape: MmaShape,
    ) -> Result<(), Diagnostic> {
        let [a, b, acc] = [0, 1, 2].map(|i| op.operands[i]);
        let (elem, sum) = (self.elem(a), self.elem(acc));
        if sum != DType::F32 {
            return Err(self.not_yet(format_args!("a product accumulated in `{sum}`")));
        }
        let deep = shape.k == 16;
        let (instruction, name) = match (elem, deep) {
            (DType::F16, false) => (
                Instruction::MmaF16K8,
                "llvm.nvvm.mma.m16n8k8.row.col.f32.f32",
            ),
            (DType::F16, true) => (
                Instruction::MmaF16K16,
                "llvm.nvvm.mma.m16n8k16.row.col.f32.f32",
            ),
            (DType::Bf16, true) => (
                Instruction::MmaBf16K16,
                "llvm.nvvm.mma.m16n8k16.row.col.bf16",
            ),
            _ => return Err(self.not_yet(format_args!("`mma.sync` of `{elem}` with {shape:?}"))),
        };
        self.need(instruction)?;

        let layouts = [a, b, acc].map(|v| self.layout(v).expect("tiles have layouts"));
        let [in_a, in_b, in_acc] = layouts.map(Places::of);
        let (left, right) = (self.get(a), self.get(b));
        let mut sums = self.get(acc).to_vec();
        let depth = layouts[0].shape[1];
        // Where the thread's pieces of the result begin. Those of one column of pieces follow each other, so that the
        // right operand is used again at once.
        let mut pieces: Vec<(u32, u32)> = coordinates(layouts[2])
            .into_iter()
            .filter(|(row, column)| row % 16 == 0 && column % 8 == 0)
            .collect();
        pieces.sort_by_key(|&(row, column)| (column, row));
        pieces.dedup();
        for k in (0..depth).step_by(shape.k as usize) {
            let steps: &[u32] = if deep { &[0, 8] } else { &[0] };
            for &(row, column) in &pieces {
                let mut words = Vec::with_capacity(6);
                for &step in steps {
                    for up in [0, 8] {
                        let first = in_a.at(row + up, k + step);
                        let second = in_a.at(row + up, k + step + 1);
                        words.push(self.pair(left[first], left[second], elem));
                    }
                }
                for &step in steps {
                    let first = in_b.at(k + step, column);
                    let second = in_b.at(k + step + 1, column);
                    words.push(self.pair(right[first], right[second], elem));
                }
                let at =
                    [(0, 0), (0, 1), (8, 0), (8, 1)].map(|(r, c)| in_acc.at(row + r, column + c));
                words.extend(at.map(|i| sums[i]));
                let results = self.b.call_many(&[F32; 4], name, &words, Effect::Together);
                for (i, result) in at.into_iter().zip(results) {
                    sums[i] = result;
                }
            }
        }
        self.set(op.results[0], sums);
        Ok(())
    }

    /// Two neighbours as the operand of an instruction wants them.
    fn pair(&mut self, first: Val, second: Val, elem: DType) -> Val {
        let word = self.pack(&[first, second], elem)[0];
        match elem {
            DType::F16 => self.b.bitcast(word, F16.vector(2)),
            _ => word,
        }
    }
}
