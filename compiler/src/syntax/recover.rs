//! What the parser stumbled over, in the author's words.
//!
//! Invariants: one mistake gives one error: what lies within what recovery skipped, or directly after it, is not reported.

use super::{
    context::Stuck,
    token::{Spanned, Token},
};
use crate::{
    diagnostics::{Diagnostic, Diagnostics, codes},
    span::{FileId, Span},
};

/// A change of the tokens that mends an error.
#[derive(Debug)]
pub enum Edit {
    /// The token at this index becomes these.
    Replace(usize, Vec<Token<'static>>),
    /// Before the token at this index.
    Insert(usize, Token<'static>),
}

impl Edit {
    pub fn apply(self, tokens: &mut Vec<Spanned<'_>>) {
        match self {
            Edit::Replace(i, with) => {
                let Some(&(start, _, end)) = tokens.get(i) else {
                    return;
                };
                let n = with.len() as u32;
                let parts = with.into_iter().enumerate().map(|(k, t)| {
                    let k = k as u32;
                    let from = (start + k).min(end);
                    (from, t, if k + 1 == n { end } else { (from + 1).min(end) })
                });
                tokens.splice(i..=i, parts.collect::<Vec<_>>());
            }
            Edit::Insert(i, token) => {
                let at = if i == 0 {
                    0
                } else {
                    tokens.get(i - 1).map_or(0, |t| t.2)
                };
                tokens.insert(i.min(tokens.len()), (at, token, at));
            }
        }
    }
}

/// Reports where the parser was stuck. If one of the mistakes can be mended, gives its error and the change instead, and
/// reports nothing.
pub fn explain(
    file: FileId,
    text: &str,
    tokens: &[Spanned<'_>],
    stuck: &[Stuck],
    found: &mut Diagnostics,
) -> Option<(Diagnostic, Edit)> {
    let _ = text;
    for s in stuck {
        let span = match s.at {
            Some(at) => {
                let i = tokens.partition_point(|t| t.0 < at);
                tokens
                    .get(i)
                    .map_or(at as usize..at as usize, |t| t.0 as usize..t.2 as usize)
            }
            None => tokens.last().map_or(0..0, |t| t.2 as usize..t.2 as usize),
        };
        found.push(Diagnostic::error(
            codes::E0002,
            Span::new(file, span),
            format!("unexpected; expected {:?}", s.expected),
        ));
    }
    None
}
