//! Instructions that a program writes itself: one for each element, or what it means where the target lacks it.

use tesserine_set::DType;

use super::{
    builder::{Effect, I16, I32, I64, Ty, Val},
    lower::{Lower, Regs, register_type},
};
use crate::{diagnostics::Diagnostic, target::inline};

impl Lower<'_> {
    /// `operands`: those of the instruction, then its meaning.
    pub(super) fn inline_ptx(
        &mut self,
        text: &str,
        operands: &[(Regs, DType)],
    ) -> Result<Regs, Diagnostic> {
        let Some(((meaning, elem), inputs)) = operands.split_last() else {
            unreachable!("the verifier checked that there is a meaning")
        };
        let Some(version) = inline::version(text, self.target) else {
            return Ok(meaning.clone());
        };
        self.raise(version);
        let mut text = text.trim_end().to_owned();
        if !text.ends_with([';', '}']) {
            text.push(';');
        }
        let (letter, wide) = register(*elem);
        let mut constraints = vec![format!("={letter}")];
        constraints.extend(inputs.iter().map(|(_, t)| register(*t).0.to_owned()));
        let constraints = constraints.join(",");
        let ty = register_type(*elem);
        Ok((0..meaning.len())
            .map(|i| {
                let args: Vec<Val> = inputs
                    .iter()
                    .map(|(regs, t)| self.b.bitcast(regs[i], register(*t).1))
                    .collect();
                let made = self
                    .b
                    .asm(&text, &constraints, &[wide], &args, Effect::Pure)[0];
                self.b.bitcast(made, ty)
            })
            .collect())
    }
}

/// The letter of an element's register, and its type.
fn register(elem: DType) -> (&'static str, Ty) {
    match elem {
        DType::F64 => ("d", super::builder::F64),
        DType::F32 | DType::Tf32 => ("f", super::builder::F32),
        DType::Bool => ("b", super::builder::I1),
        t if t.bits() == 64 => ("l", I64),
        t if t.bits() == 32 => ("r", I32),
        _ => ("h", I16),
    }
}
