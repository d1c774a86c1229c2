//! What the grammar's actions share: spans, documentation, literals, and the errors met so far.
//!
//! Invariants: actions never fail on account of what was written: they report, and stand in a value of the right kind. The
//! exception is the number of errors: beyond [`MAX_ERRORS`] the parse ends.

use std::{cell::RefCell, collections::BTreeMap};

use lalrpop_util::{ErrorRecovery, ParseError};

use super::{ast::*, recover::generic_call, token::Token};
use crate::{
    diagnostics::{Diagnostic, Diagnostics, codes},
    span::{FileId, Span},
};

/// So many errors are reported of one file at most: the rest would follow from these.
pub const MAX_ERRORS: usize = 100;

/// Ends the parse.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TooManyErrors;

/// What the grammar gives, by the token that stands first.
#[derive(Debug)]
pub enum Parsed {
    File(File),
    Instance(Path, Vec<CArg>),
}

/// A place where the parser could not go on.
#[derive(Debug)]
pub struct Stuck {
    /// Where the token lies that did not fit; the end of the file if `None`.
    pub at: Option<(u32, u32)>,
    /// The tokens that would have, by their names in the grammar.
    pub expected: Vec<String>,
    /// From which byte on it went on: what lies before was skipped.
    pub resumed: u32,
}

pub struct Context<'s> {
    file: FileId,
    docs: &'s BTreeMap<u32, String>,
    file_doc: &'s Option<String>,
    pub diagnostics: RefCell<Diagnostics>,
    pub stuck: RefCell<Vec<Stuck>>,
    /// Where the left side of each operator with two sides ends: the operator is the next token.
    pub operators: RefCell<Vec<u32>>,
}

impl<'s> Context<'s> {
    pub fn new(
        file: FileId,
        docs: &'s BTreeMap<u32, String>,
        file_doc: &'s Option<String>,
    ) -> Context<'s> {
        Context {
            file,
            docs,
            file_doc,
            diagnostics: RefCell::default(),
            stuck: RefCell::default(),
            operators: RefCell::default(),
        }
    }

    pub fn report(&self, diagnostic: Diagnostic) {
        self.diagnostics.borrow_mut().push(diagnostic);
    }

    pub fn recover(
        &self,
        e: ErrorRecovery<u32, Token<'s>, TooManyErrors>,
    ) -> Result<(), ParseError<u32, Token<'s>, TooManyErrors>> {
        let resumed = e.dropped_tokens.last().map_or(0, |t| t.2);
        self.stuck(e.error, resumed);
        if self.stuck.borrow().len() > MAX_ERRORS {
            return Err(ParseError::User {
                error: TooManyErrors,
            });
        }
        Ok(())
    }

    pub fn stuck(&self, error: ParseError<u32, Token<'s>, TooManyErrors>, resumed: u32) {
        let (at, expected) = match error {
            ParseError::UnrecognizedToken { token, expected } => {
                (Some((token.0, token.2)), expected)
            }
            ParseError::UnrecognizedEof { expected, .. } => (None, expected),
            ParseError::ExtraToken { token } => (Some((token.0, token.2)), Vec::new()),
            ParseError::InvalidToken { location } => (Some((location, location)), Vec::new()),
            ParseError::User {
                error: TooManyErrors,
            } => return,
        };
        let resumed = resumed.max(at.map_or(u32::MAX, |at| at.0));
        self.stuck.borrow_mut().push(Stuck {
            at,
            expected,
            resumed,
        });
    }

    pub fn span(&self, l: u32, r: u32) -> Span {
        Span {
            file: self.file,
            start: l,
            end: r.max(l),
        }
    }

    pub fn doc(&self, l: u32) -> Option<String> {
        self.docs.get(&l).cloned()
    }

    pub fn file(&self, items: Vec<Item>) -> File {
        File {
            doc: self.file_doc.clone(),
            items,
        }
    }

    pub fn item(&self, l: u32, kind: ItemKind, r: u32) -> Item {
        Item {
            kind,
            doc: self.doc(l),
            span: self.span(l, r),
        }
    }

    pub fn ident(&self, l: u32, name: &str, r: u32) -> Ident {
        Ident {
            name: name.to_owned(),
            span: self.span(l, r),
        }
    }

    pub fn expr(&self, l: u32, kind: ExprKind, r: u32) -> Expr {
        Expr {
            kind,
            span: self.span(l, r),
        }
    }

    pub fn binary(&self, left: Expr, op: BinaryOp, right: Expr) -> Expr {
        let span = left.span.to(right.span);
        self.operators.borrow_mut().push(left.span.end);
        Expr {
            kind: ExprKind::Binary {
                op,
                left: Box::new(left),
                right: Box::new(right),
            },
            span,
        }
    }

    /// Comparisons do not chain: of `a < b < c` the tree keeps `a < b`, and `f<T>(x)` becomes the call that was meant.
    pub fn comparison(&self, left: Expr, op: BinaryOp, right: Expr) -> Expr {
        let ExprKind::Binary {
            op: first,
            right: middle,
            left: outer,
        } = &left.kind
        else {
            return self.binary(left, op, right);
        };
        if !first.is_comparison() {
            return self.binary(left, op, right);
        }
        let whole = left.span.to(right.span);
        if let (
            ExprKind::Path(path),
            BinaryOp::Lt,
            BinaryOp::Gt,
            ExprKind::Paren(_) | ExprKind::Tuple(_),
        ) = (&outer.kind, first, op, &right.kind)
        {
            let name = path.segments.last().map_or("", |s| &s.name);
            self.report(generic_call(outer.span.to(middle.span), name));
            let carg = CArg {
                name: None,
                span: middle.span,
                value: CValue::Expr((**middle).clone()),
            };
            let callee = Expr {
                kind: ExprKind::Applied {
                    path: path.clone(),
                    cargs: vec![carg],
                },
                span: outer.span.to(middle.span),
            };
            let args = match right.kind {
                ExprKind::Paren(value) => vec![*value],
                ExprKind::Tuple(values) => values,
                other => vec![Expr {
                    kind: other,
                    span: right.span,
                }],
            };
            let args = args
                .into_iter()
                .map(|value| Arg { name: None, value })
                .collect();
            return Expr {
                kind: ExprKind::Call {
                    callee: Box::new(callee),
                    args,
                },
                span: whole,
            };
        }
        self.report(
            Diagnostic::error(codes::E0002, right.span, "comparisons do not chain")
                .at("a second comparison")
                .label(left.span, "this is already a comparison")
                .help(format!(
                    "compare twice: `a {first} b && b {op} c`, or put one comparison in parentheses"
                )),
        );
        left
    }

    pub fn index(&self, l: u32, kind: IndexKind, r: u32) -> Index {
        let span = self.span(l, r);
        if let IndexKind::Expr(Expr {
            kind: ExprKind::Path(path),
            ..
        }) = &kind
            && path.as_ident().is_some_and(|i| i.name == "None")
        {
            self.report(
                Diagnostic::error(codes::E0002, span, "a new axis is written `_`")
                    .help("write `x[.., _]` for `x[:, None]`"),
            );
            return Index {
                kind: IndexKind::NewAxis,
                span,
            };
        }
        Index { kind, span }
    }

    /// `base.0.1`, of which `0.1` is one token.
    pub fn elements(&self, base: Expr, l: u32, number: &str, r: u32) -> Expr {
        let Some((first, second)) = number
            .split_once('.')
            .filter(|(_, second)| !second.contains(['e', 'E']))
        else {
            self.report(Diagnostic::error(
                codes::E0002,
                self.span(l, r),
                format!("expected a name or a position, found `{number}`"),
            ));
            return base;
        };
        let dot = l + first.len() as u32;
        let start = base.span.start;
        let index = self.count(l, first, dot);
        let inner = self.expr(
            start,
            ExprKind::Element {
                base: Box::new(base),
                index,
            },
            dot,
        );
        let index = self.count(dot + 1, second, r);
        self.expr(
            start,
            ExprKind::Element {
                base: Box::new(inner),
                index,
            },
            r,
        )
    }

    pub fn count(&self, l: u32, text: &str, r: u32) -> u64 {
        match self.int(l, text, r) {
            ExprKind::Int(n) => n,
            _ => 0,
        }
    }

    pub fn int(&self, l: u32, text: &str, r: u32) -> ExprKind {
        let digits = text.replace('_', "");
        let value = match digits.strip_prefix("0x") {
            Some("") => {
                self.report(Diagnostic::error(
                    codes::E0001,
                    self.span(l, r),
                    format!("`{text}` is no number"),
                ));
                return ExprKind::Int(0);
            }
            Some(hex) => u64::from_str_radix(hex, 16),
            None => digits.parse(),
        };
        ExprKind::Int(value.unwrap_or_else(|_| {
            let d = Diagnostic::error(
                codes::E0004,
                self.span(l, r),
                format!("the number `{text}` is too large"),
            );
            self.report(
                d.note("integers have 64 bits: the largest literal is 0xffff_ffff_ffff_ffff"),
            );
            0
        }))
    }

    pub fn float(&self, l: u32, text: &str, r: u32) -> ExprKind {
        let value = text.replace('_', "").parse().unwrap_or(f64::INFINITY);
        if value.is_finite() {
            return ExprKind::Float(value);
        }
        let d = Diagnostic::error(
            codes::E0004,
            self.span(l, r),
            format!("the number `{text}` is too large"),
        );
        self.report(
            d.note("the largest finite f64 is about 1.8e308")
                .help("infinity is written `inf`"),
        );
        ExprKind::Float(0.0)
    }

    pub fn string(&self, l: u32, text: &str, r: u32) -> ExprKind {
        let inside = text.get(1..text.len().saturating_sub(1)).unwrap_or("");
        let mut value = String::with_capacity(inside.len());
        let mut chars = inside.chars();
        while let Some(c) = chars.next() {
            if c != '\\' {
                value.push(c);
                continue;
            }
            match chars.next() {
                Some('n') => value.push('\n'),
                Some('t') => value.push('\t'),
                Some('r') => value.push('\r'),
                Some(c @ ('\\' | '"')) => value.push(c),
                other => {
                    let found = other.map(String::from).unwrap_or_default();
                    self.report(
                        Diagnostic::error(
                            codes::E0001,
                            self.span(l, r),
                            format!("`\\{found}` means nothing in a string"),
                        )
                        .help("the escapes are `\\n`, `\\t`, `\\r`, `\\\\` and `\\\"`"),
                    );
                }
            }
        }
        ExprKind::Str(value)
    }
}
