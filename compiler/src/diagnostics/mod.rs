//! What the compiler tells the author: one type for every error and warning.
//!
//! Invariants: every diagnostic has a code that `tess explain` knows (see [`codes`]); its title is a sentence in the
//! author's own terms, names nothing internal to the compiler, and does not repeat "error".

pub mod codes;
mod render;

use crate::span::Span;

pub use codes::Code;
pub use render::{render, to_json};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    Error,
    Warning,
}

/// One error or warning.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnostic {
    pub code: Code,
    pub severity: Severity,
    /// One sentence, lower case, without a full stop: "`x` is not defined here".
    pub title: String,
    /// Where it is. The label may be empty.
    pub primary: (Span, String),
    /// What else to look at.
    pub labels: Vec<(Span, String)>,
    /// Facts that explain: types, sizes, rules.
    pub notes: Vec<String>,
    /// What to do about it.
    pub help: Vec<String>,
    /// The calls of inlined functions that led here, innermost first: the call's span and the function's name.
    pub calls: Vec<(Span, String)>,
}

impl Diagnostic {
    pub fn error(code: Code, span: Span, title: impl Into<String>) -> Diagnostic {
        Diagnostic {
            code,
            severity: Severity::Error,
            title: title.into(),
            primary: (span, String::new()),
            labels: Vec::new(),
            notes: Vec::new(),
            help: Vec::new(),
            calls: Vec::new(),
        }
    }

    pub fn warning(code: Code, span: Span, title: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Warning,
            ..Diagnostic::error(code, span, title)
        }
    }

    /// Text at the primary span.
    pub fn at(mut self, label: impl Into<String>) -> Diagnostic {
        self.primary.1 = label.into();
        self
    }

    pub fn label(mut self, span: Span, label: impl Into<String>) -> Diagnostic {
        self.labels.push((span, label.into()));
        self
    }

    pub fn note(mut self, note: impl Into<String>) -> Diagnostic {
        self.notes.push(note.into());
        self
    }

    pub fn help(mut self, help: impl Into<String>) -> Diagnostic {
        self.help.push(help.into());
        self
    }
}

/// Collects diagnostics; the order of reporting is the order of printing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    pub fn push(&mut self, diagnostic: Diagnostic) {
        // An error inside a function that is instantiated twice is told once.
        if !self.0.contains(&diagnostic) {
            self.0.push(diagnostic);
        }
    }

    pub fn extend(&mut self, other: Diagnostics) {
        other.0.into_iter().for_each(|d| self.push(d));
    }

    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|d| d.severity == Severity::Error)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.0.iter()
    }
}

impl IntoIterator for Diagnostics {
    type Item = Diagnostic;
    type IntoIter = std::vec::IntoIter<Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
