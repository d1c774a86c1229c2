//! Text to trees.
//!
//! Invariants: [`parse`] gives a tree for any text and never panics; a tree with anything left out or made up comes with an
//! error; no tree is nested more deeply than [`nesting::MAX_DEPTH`] allows, so that whoever walks one may recurse.

pub mod ast;
mod context;
pub mod dump;
pub mod fmt;
mod format;
pub(crate) mod habits;
pub mod nesting;
mod recover;
pub mod token;

use crate::{
    diagnostics::{Diagnostic, Diagnostics, codes},
    span::{FileId, SourceMap, Span},
};
pub use dump::dump;
pub use fmt::print;
pub use format::format;

use context::{Context, Parsed};
use recover::Recovery;
use token::{Spanned, Token, Tokens, tokenize};

#[allow(clippy::all, unused, rust_2018_idioms)]
mod grammar {
    include!(concat!(env!("OUT_DIR"), "/syntax/grammar.rs"));
}

/// A file is parsed again after each mend: so many at most.
const MAX_MENDS: usize = 20;

/// Parses a file. With errors the tree has what could be made out; what is missing in it is not to be reported again.
pub fn parse(sources: &SourceMap, file: FileId, diagnostics: &mut Diagnostics) -> ast::File {
    parse_with_operators(sources, file, diagnostics).0
}

/// The tree, and where the left sides of operators end.
fn parse_with_operators(
    sources: &SourceMap,
    file: FileId,
    diagnostics: &mut Diagnostics,
) -> (ast::File, Vec<u32>) {
    let mut operators = Vec::new();
    match parse_from(sources, file, Token::StartFile, diagnostics, &mut operators) {
        Some(Parsed::File(file)) => (file, operators),
        _ => (ast::File::default(), operators),
    }
}

/// Parses the name of an instance, `gemm_nt<bf16, E = Bias<bf16>>`: the kernel and its compile-time arguments. `file` is text
/// that a command line or kernel set gave. Here `>>` closes two lists.
pub fn parse_instance(
    sources: &SourceMap,
    file: FileId,
    diagnostics: &mut Diagnostics,
) -> Option<(ast::Path, Vec<ast::CArg>)> {
    let start = Token::StartInstance;
    match parse_from(sources, file, start, diagnostics, &mut Vec::new()) {
        Some(Parsed::Instance(path, cargs)) => Some((path, cargs)),
        _ => None,
    }
}

fn parse_from(
    sources: &SourceMap,
    file: FileId,
    start: Token<'static>,
    diagnostics: &mut Diagnostics,
    operators: &mut Vec<u32>,
) -> Option<Parsed> {
    let text = sources.get(file).map_or("", |f| &f.text);
    if u32::try_from(text.len()).is_err() {
        diagnostics.push(Diagnostic::error(
            codes::E0001,
            Span::new(file, 0..0),
            "a source file may have 4 GiB at most",
        ));
        return None;
    }
    let mut mended = Diagnostics::default();
    let Tokens {
        mut tokens,
        file_doc,
        docs,
    } = tokenize(file, text, &mut mended);
    let holes: Vec<Span> = mended.iter().map(|d| d.primary.0).collect();
    if start == Token::StartInstance {
        tokens = tokens.into_iter().flat_map(split_shr).collect();
    }
    if let Some(d) = nesting::check(file, &tokens) {
        diagnostics.extend(mended);
        diagnostics.push(d);
        return None;
    }

    // An error that has one obvious mend is reported, mended, and the rest is read as if it had not been there.
    let mut tried = Vec::new();
    let (parsed, found) = loop {
        let context = Context::new(file, &docs, &file_doc);
        let first = tokens.first().map_or(0, |t| t.0);
        let input = std::iter::once((first, start, first)).chain(tokens.iter().copied());
        let parsed = grammar::StartParser::new()
            .parse(&context, input)
            .map_err(|e| context.stuck(e, 0))
            .ok();
        let stuck = context.stuck.into_inner();
        *operators = context.operators.into_inner();
        let mut found = context.diagnostics.into_inner();
        let recovery = Recovery {
            file,
            text,
            tokens: &tokens,
            holes: &holes,
        };
        match recovery.explain(
            &stuck,
            |at| tried.len() < MAX_MENDS && !tried.contains(&at),
            &mut found,
        ) {
            Some((at, diagnostic, edit)) => {
                tried.push(at);
                mended.push(diagnostic);
                edit.apply(&mut tokens);
            }
            None => break (parsed, found),
        }
    };
    mended.extend(found);
    let mut all: Vec<Diagnostic> = mended.into_iter().collect();
    all.sort_by_key(|d| d.primary.0.start);
    let failed = !all.is_empty();
    all.into_iter().for_each(|d| diagnostics.push(d));
    parsed.filter(|p| !failed || matches!(p, Parsed::File(_)))
}

/// `>>` as two tokens.
fn split_shr(t: Spanned<'_>) -> impl Iterator<Item = Spanned<'_>> {
    let (start, token, end) = t;
    let parts = match token {
        Token::Shr => vec![
            (start, Token::Greater, start + 1),
            (start + 1, Token::Greater, end),
        ],
        _ => vec![t],
    };
    parts.into_iter()
}
