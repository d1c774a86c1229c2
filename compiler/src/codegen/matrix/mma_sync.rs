//! Products by `mma.sync`, 16 by 8 at a time and as much of K as 16 or 32 bytes hold: 16-bit and 8-bit floats and tf32,
//! added up in f32 (f16 also in f16), and 8-bit integers, in i32.

use tesserine_set::DType;

use super::{Places, coordinates};
use crate::{
    codegen::{
        builder::{Effect, F16, Val},
        lower::{Lower, register_type},
        ptx_table::{self, Template},
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
        let types = [a, b, acc].map(|v| self.elem(v));
        let Some((instruction, spelling)) = instruction(types, shape) else {
            let [a, b, acc] = types;
            return Err(self.not_yet(format_args!(
                "a product of `{a}` and `{b}` added up in `{acc}` with {shape:?}"
            )));
        };
        self.need(instruction)?;
        let [elem, right_elem, sum] = types;

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
            let steps = (0..shape.steps()).map(|s| k + s * 4 * shape.per);
            for &(row, column) in &pieces {
                let mut words = Vec::with_capacity(10);
                for k in steps.clone() {
                    for up in [0, 8] {
                        let part: Vec<Val> = (0..shape.per)
                            .map(|i| left[in_a.at(row + up, k + i)])
                            .collect();
                        words.push(self.operand_word(&part, elem));
                    }
                }
                for k in steps.clone() {
                    let part: Vec<Val> = (0..shape.per)
                        .map(|i| right[in_b.at(k + i, column)])
                        .collect();
                    words.push(self.operand_word(&part, right_elem));
                }
                let at =
                    [(0, 0), (0, 1), (8, 0), (8, 1)].map(|(r, c)| in_acc.at(row + r, column + c));
                let before = at.map(|i| sums[i]);
                let results = self.multiply(&spelling, words, before, sum);
                for (i, result) in at.into_iter().zip(results) {
                    sums[i] = result;
                }
            }
        }
        self.set(op.results[0], sums);
        Ok(())
    }

    /// Neighbours along K as the operand of an instruction wants them.
    fn operand_word(&mut self, part: &[Val], elem: DType) -> Val {
        let word = self.pack(part, elem)[0];
        match elem {
            DType::F16 => self.b.bitcast(word, F16.vector(2)),
            _ => word,
        }
    }

    /// One instruction: what a thread holds of the sums, two neighbours in each of two rows.
    fn multiply(
        &mut self,
        spelling: &Spelling,
        mut words: Vec<Val>,
        sums: [Val; 4],
        elem: DType,
    ) -> Vec<Val> {
        let ty = register_type(elem);
        match spelling {
            Spelling::Intrinsic(name) if elem == DType::F16 => {
                let pair = F16.vector(2);
                for two in sums.chunks(2) {
                    words.push(self.operand_word(two, elem));
                }
                let results = self.b.call_many(&[pair; 2], name, &words, Effect::Together);
                results
                    .into_iter()
                    .flat_map(|two| [0, 1].map(|i| self.b.extract(two, i)))
                    .collect()
            }
            Spelling::Intrinsic(name) => {
                words.extend(sums);
                self.b.call_many(&[ty; 4], name, &words, Effect::Together)
            }
            Spelling::Template(template) => {
                words.extend(sums);
                self.b.asm(
                    &template.text,
                    &template.constraints,
                    &[ty; 4],
                    &words,
                    Effect::Together,
                )
            }
        }
    }
}

/// How an instruction is written.
enum Spelling {
    /// An intrinsic of LLVM.
    Intrinsic(String),
    Template(Template),
}

/// The instruction for operands and sums of these types.
fn instruction(types: [DType; 3], shape: MmaShape) -> Option<(Instruction, Spelling)> {
    let intrinsic = |instruction, name: &str| {
        let name = format!("llvm.nvvm.mma.m16n8k{}.row.col.{name}", shape.k);
        Some((instruction, Spelling::Intrinsic(name)))
    };
    let int = |t| match t {
        DType::I8 => Some("s8"),
        DType::U8 => Some("u8"),
        _ => None,
    };
    let [a, b, sum] = types;
    match (a, b, sum, shape) {
        (DType::F16, DType::F16, DType::F32 | DType::F16, shape) => {
            let instruction = match shape {
                MmaShape::M16N8K8 => Instruction::MmaF16K8,
                MmaShape::M16N8K16 => Instruction::MmaF16K16,
                _ => return None,
            };
            let half = sum == DType::F16;
            intrinsic(instruction, if half { "f16.f16" } else { "f32.f32" })
        }
        (DType::Bf16, DType::Bf16, DType::F32, MmaShape::M16N8K16) => {
            intrinsic(Instruction::MmaBf16K16, "bf16")
        }
        (DType::Tf32, DType::Tf32, DType::F32, MmaShape::M16N8K8_32) => {
            intrinsic(Instruction::MmaTf32K8, "tf32")
        }
        (_, _, DType::I32, MmaShape::M16N8K32) => {
            let (a, b) = (int(a)?, int(b)?);
            let name = if a == b {
                a.to_owned()
            } else {
                format!("{a}.{b}")
            };
            intrinsic(Instruction::MmaInt8K32, &name)
        }
        (DType::E4m3 | DType::E5m2, DType::E4m3 | DType::E5m2, DType::F32, MmaShape::M16N8K32) => {
            let template = ptx_table::mma_fp8(a, b);
            Some((Instruction::MmaFp8K32, Spelling::Template(template)))
        }
        _ => None,
    }
}
