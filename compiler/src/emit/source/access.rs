//! Loads, stores and what else reaches memory.

use tesserine_set::{Access, DType};

use super::{Said, Unsaid, Writer, bare, literal};
use crate::{
    ir::{
        Op, ValueId,
        tile::{AtomicOp, Cache, Constant, Index, OpKind, Type},
    },
    span::Span,
};

impl Writer<'_> {
    /// `x[i, j +: 64 until n, ..]`, and how many operands that took.
    pub(super) fn slice(
        &self,
        operands: &[ValueId],
        indices: &[Index],
        span: Span,
    ) -> Said<(String, usize)> {
        let mut next = 0;
        let mut operand = || {
            next += 1;
            let name = self.name(operands[next - 1], span)?;
            Ok(bare(&name).to_owned())
        };
        let view = operand()?;
        let mut parts = Vec::new();
        for index in indices {
            parts.push(match index {
                Index::Scalar | Index::Gather { .. } => operand()?,
                Index::Whole { .. } => "..".to_owned(),
                Index::Range { len, from, until } => {
                    let mut text = format!("{} +: {len}", operand()?);
                    if *from {
                        text.push_str(&format!(" from {}", operand()?));
                    }
                    if *until {
                        text.push_str(&format!(" until {}", operand()?));
                    }
                    text
                }
            });
        }
        Ok((format!("{view}[{}]", parts.join(", ")), next))
    }

    pub(super) fn load(&mut self, op: &Op<OpKind>, indices: &[Index], cache: Cache) -> Said<()> {
        // A view seen in another way is indexed by tiles here, and what is known of that view is not known of them.
        let stored = matches!(self.ty(op.operands[0]), Type::View(v) if v.access != Access::Read);
        let joined = indices
            .iter()
            .any(|i| matches!(i, Index::Gather { joined: true, .. }));
        if stored && joined {
            return Err(Unsaid {
                what: "a read of a view that is stored to, by several tiles of indices".into(),
                span: op.span,
            });
        }
        let (slice, used) = self.slice(&op.operands, indices, op.span)?;
        let pad = op.operands[used];
        let mut rest = String::new();
        let constant = self.source_of(pad).map(|op| &op.kind);
        match constant {
            Some(OpKind::Constant(c)) if is_zero(*c) => {}
            Some(OpKind::Constant(c)) => rest = format!(", pad = {}", literal(*c)),
            _ => rest = format!(", pad = {}", self.name(pad, op.span)?),
        }
        rest.push_str(&cached(cache));
        let text = match rest.is_empty() {
            true => slice,
            false => format!("load({slice}{rest})"),
        };
        self.bind(op.results[0], &text);
        Ok(())
    }

    pub(super) fn store(
        &mut self,
        op: &Op<OpKind>,
        indices: &[Index],
        cache: Cache,
        scatter: bool,
    ) -> Said<()> {
        let (slice, used) = self.slice(&op.operands, indices, op.span)?;
        let value = self.name(op.operands[used], op.span)?;
        let value = bare(&value);
        let cached = cached(cache);
        // What tells apart the places of an index tile may be gone with the layout of a view: it has been proven.
        let scatter = scatter || indices.iter().any(|i| matches!(i, Index::Gather { .. }));
        self.line(&match (scatter, cached.is_empty()) {
            (true, _) => format!("scatter {slice} = {value};"),
            (false, true) => format!("{slice} = {value};"),
            (false, false) => format!("store({slice}, {value}{cached});"),
        });
        Ok(())
    }

    pub(super) fn atomic(
        &mut self,
        op: &Op<OpKind>,
        atomic: AtomicOp,
        indices: &[Index],
    ) -> Said<()> {
        let (slice, used) = self.slice(&op.operands, indices, op.span)?;
        let values = self.all_names(&op.operands[used..], op.span)?.join(", ");
        let text = format!("atomic_{}({slice}, {values})", atomic.name());
        self.bind(op.results[0], &text);
        Ok(())
    }

    pub(super) fn arrive(&mut self, op: &Op<OpKind>, indices: &[Index]) -> Said<()> {
        let (slice, used) = self.slice(&op.operands, indices, op.span)?;
        let count = self.name(op.operands[used], op.span)?;
        self.bind(op.results[0], &format!("arrive({slice}, {count})"));
        Ok(())
    }

    /// Scalars of other types than those of the language are only on their way somewhere.
    pub(super) fn check_scalars(&self, op: &Op<OpKind>) -> Said<()> {
        let passes = matches!(
            op.kind,
            OpKind::Constant(_)
                | OpKind::Param(_)
                | OpKind::Cast
                | OpKind::Broadcast
                | OpKind::Reduce { .. }
                | OpKind::Load { .. }
                | OpKind::Store { .. }
                | OpKind::Atomic { .. }
                | OpKind::Reshape
                | OpKind::Debug { .. }
        );
        let mut values = op.operands.iter().chain(&op.results);
        let Some(&narrow) = values.find(|v| !passes && self.is_narrow(**v)) else {
            return Ok(());
        };
        Err(Unsaid {
            what: format!("arithmetic on a scalar of `{}`", self.ty(narrow).elem()),
            span: op.span,
        })
    }

    /// Scalars are i64, f32, f64 or bool where they are not on their way from memory, or to it or a tile.
    pub(super) fn is_narrow(&self, value: ValueId) -> bool {
        match self.ty(value) {
            Type::Scalar(elem) => {
                !matches!(elem, DType::I64 | DType::F32 | DType::F64 | DType::Bool)
            }
            _ => false,
        }
    }
}

fn is_zero(constant: Constant) -> bool {
    match constant {
        Constant::Int(value, _) => value == 0,
        Constant::Float(value, _) => value.to_bits() == 0,
        Constant::Bool(value) => !value,
        Constant::Any(_) => false,
    }
}

/// `, cache = evict_first`, or nothing.
pub(super) fn cached(cache: Cache) -> String {
    match cache {
        Cache::Normal => String::new(),
        cache => format!(", cache = {}", cache.name()),
    }
}
