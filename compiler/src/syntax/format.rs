//! Source text in its one form, as `tess fmt` writes it.
//!
//! The author decides where lines end, and whether `i*BM` or `i * BM` is easier to read; everything else has one form: the
//! spaces between tokens, the indentation, blank lines, the columns of comments behind code and of a schedule's braces.
//!
//! Invariants: the tokens and comments of the result are those of the text, in their order, so the tree is the same; what was
//! formatted once is not changed by formatting it again.

use logos::Logos;

use super::{parse_with_operators, token::Token};
use crate::{
    diagnostics::Diagnostics,
    span::{FileId, SourceMap},
};

const INDENT: usize = 4;
/// A comment behind code is moved to the right of its neighbours' up to this column, no further.
const COMMENT_COLUMN: usize = 120;

/// The text of `file`, formatted; errors if it does not parse.
pub fn format(sources: &SourceMap, file: FileId) -> Result<String, Diagnostics> {
    let mut diagnostics = Diagnostics::default();
    let (_, operators) = parse_with_operators(sources, file, &mut diagnostics);
    if diagnostics.has_errors() {
        return Err(diagnostics);
    }
    let text = sources.get(file).map_or("", |f| &f.text);
    let pieces = pieces(text, operators);
    let mut lines = lines(&pieces);
    align_schedules(&mut lines);
    align_comments(&mut lines);
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    for line in &lines {
        if line.blank_before && !out.is_empty() {
            out.push('\n');
        }
        let start = out.len();
        out.extend(std::iter::repeat_n(' ', line.indent));
        out.push_str(&line.code);
        if let Some(comment) = line.comment {
            let written = out[start..].chars().count();
            let column = if line.code.is_empty() {
                written
            } else {
                line.column
            };
            out.extend(std::iter::repeat_n(' ', column.saturating_sub(written)));
            out.push_str(comment);
        }
        out.push('\n');
    }
    Ok(out)
}

/// What a `<` or `>`, a brace, a word or a sign is at its place.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    /// Opens or closes compile-time arguments.
    Angle,
    /// An operator between two sides.
    Operator,
    /// The braces of a list of names or values: no spaces inside.
    Set,
    /// A word that means something there, which in other places could be a name.
    Keyword,
    Plain,
}

/// A token or comment.
struct Piece<'s> {
    token: Token<'s>,
    text: &'s str,
    role: Role,
    /// Line ends between it and the piece before.
    newlines: usize,
    /// Whether anything stood between it and the piece before.
    spaced: bool,
}

impl Piece<'_> {
    fn is_comment(&self) -> bool {
        matches!(self.token, Token::Comment(_))
    }
}

/// Splits a text that parses. `operators`: where left sides end.
fn pieces(text: &str, mut operators: Vec<u32>) -> Vec<Piece<'_>> {
    operators.sort_unstable();
    let mut operators = operators.into_iter().peekable();
    let mut out: Vec<Piece<'_>> = Vec::new();
    let mut closers: Vec<Role> = Vec::new();
    let mut last = 0;
    // The last token that is no comment.
    let mut before: Option<(Token<'_>, Role)> = None;
    for (token, range) in Token::lexer(text).spanned() {
        // What is no token has been reported, except a byte order mark, which is left out.
        let Ok(token) = token else {
            last = range.end;
            continue;
        };
        let gap = &text[last..range.start];
        let mut role = Role::Plain;
        if !matches!(token, Token::Comment(_)) {
            if operators
                .peek()
                .is_some_and(|&end| end as usize <= range.start)
            {
                role = Role::Operator;
                while operators
                    .next_if(|&end| end as usize <= range.start)
                    .is_some()
                {}
            }
            match token {
                Token::Less | Token::Greater if role != Role::Operator => role = Role::Angle,
                Token::BraceOpen => {
                    if matches!(before, Some((Token::PathSep | Token::In, _))) {
                        role = Role::Set;
                    }
                    closers.push(role);
                }
                Token::BraceClose => role = closers.pop().unwrap_or(Role::Plain),
                // `order rev(i)`: what stands behind `order` is written as a call.
                Token::Rev if before.is_some_and(|(t, _)| t == Token::Order) => {}
                _ if is_soft(token)
                    && before.is_some_and(|(t, r)| {
                        ends_operand(t, r) || r == Role::Keyword || t == Token::Grid
                    }) =>
                {
                    role = Role::Keyword;
                }
                _ => {}
            }
            before = Some((token, role));
        }
        out.push(Piece {
            token,
            text: token.text().trim_end(),
            role,
            newlines: gap.matches('\n').count(),
            spaced: !gap.is_empty(),
        });
        last = range.end;
    }
    out
}

/// Words that may also be names.
fn is_soft(token: Token<'_>) -> bool {
    matches!(
        token,
        Token::Order
            | Token::Depth
            | Token::Lag
            | Token::From
            | Token::Regs
            | Token::Warp
            | Token::Warps
            | Token::Warpgroup
            | Token::Warpgroups
            | Token::Replicate
            | Token::Split
            | Token::Across
            | Token::Over
            | Token::Cluster
            | Token::Dynamic
            | Token::Persistent
            | Token::At
            | Token::Sorted
            | Token::Distinct
            | Token::Strided
            | Token::Align
            | Token::Size
            | Token::Of
            | Token::Tune
            | Token::Specialize
            | Token::Test
            | Token::Op
            | Token::Layout
            | Token::Step
            | Token::Rev
            | Token::Out
    )
}

/// Whether an operand may end with it.
fn ends_operand(token: Token<'_>, role: Role) -> bool {
    match token {
        Token::Name(_)
        | Token::Int(_)
        | Token::Hex(_)
        | Token::Float(_)
        | Token::Str(_)
        | Token::True
        | Token::False
        | Token::Inf
        | Token::Nan
        | Token::Underscore
        | Token::ParenClose
        | Token::BracketClose => true,
        Token::Greater => role == Role::Angle,
        _ => is_soft(token) && role != Role::Keyword,
    }
}

/// Whether a space stands before token `i` of a line.
fn space(line: &[Piece<'_>], i: usize) -> bool {
    use Token::*;
    let (left, right) = (&line[i - 1], &line[i]);
    // `a*b` and `a..b` have spaces on both sides or on neither, as the author likes; at the end of a line always.
    let as_written = |sign: usize| match line.get(sign + 1) {
        Some(next) if sign > 0 && !next.is_comment() => line[sign].spaced || next.spaced,
        _ => true,
    };
    for sign in [i, i - 1] {
        let piece = &line[sign];
        if piece.role == Role::Operator {
            return !matches!(piece.token, Star | Slash | Percent) || as_written(sign);
        }
        let operand = |p: &Piece<'_>| ends_operand(p.token, p.role);
        if piece.token == DotDot && sign > 0 && operand(&line[sign - 1]) {
            let end = line.get(sign + 1).map(|p| p.token);
            return !matches!(end, Some(BracketClose | Comma)) && as_written(sign);
        }
    }
    match (left.token, right.token) {
        (BraceOpen, BraceClose) => return false,
        (BraceOpen, _) if left.role == Role::Set => return false,
        (_, BraceClose) if right.role == Role::Set => return false,
        (BraceClose, Greater) if left.role == Role::Set && right.role == Role::Angle => {
            return false;
        }
        (PathSep, _) | (_, PathSep) => return false,
        (_, Comma | Semicolon) | (ParenOpen | BracketOpen, _) | (_, ParenClose | BracketClose) => {
            return false;
        }
        (_, BraceOpen | BraceClose) | (BraceOpen | BraceClose, _) => return true,
        // Two closers would read as one sign.
        (Greater, Greater) => return true,
        (_, Colon | Question) => return false,
        (Comma | Semicolon | Colon, _) => return true,
        // `1.0` would be a number.
        (Int(_) | Float(_), Dot) => return right.spaced,
        (Dot, _) | (_, Dot) => return false,
        _ => {}
    }
    if right.role == Role::Angle || (left.role == Role::Angle && left.token == Less) {
        return false;
    }
    match (left.token, right.token) {
        (DotDot, _) => false,
        (Minus | Not, _) => false,
        (_, ParenOpen) => {
            let asserts = left.token == Const && i > 1 && line[i - 2].token == Assert;
            !(asserts
                || ends_operand(left.token, left.role)
                || matches!(left.token, Assert | Require | Ptx))
        }
        (_, BracketOpen) => !ends_operand(left.token, left.role),
        _ => true,
    }
}

#[derive(Debug)]
struct Line<'s> {
    blank_before: bool,
    /// Columns.
    indent: usize,
    /// Without comment and indentation.
    code: String,
    comment: Option<&'s str>,
    /// The comment's column, where there is code.
    column: usize,
    /// In a schedule's list of entries: where the brace of this line lies in `code`, if it opens and closes there.
    brace: Option<usize>,
}

struct Open {
    /// The indentation of the line that it stands in.
    indent: usize,
    schedule: bool,
}

fn lines<'s>(pieces: &[Piece<'s>]) -> Vec<Line<'s>> {
    let mut out: Vec<Line<'s>> = Vec::new();
    let mut open: Vec<Open> = Vec::new();
    // The last token that is no comment.
    let mut previous: Option<usize> = None;
    let mut schedule = false;
    let mut at = 0;
    while at < pieces.len() {
        let end = (at + 1..pieces.len())
            .find(|&i| pieces[i].newlines > 0)
            .unwrap_or(pieces.len());
        let line = &pieces[at..end];
        let first = pieces[at..].iter().find(|p| !p.is_comment());
        let indent = indent(
            &open,
            previous.map(|i| &pieces[i]),
            first,
            line[0].is_comment(),
        );
        let opens = |p: Option<usize>| {
            p.is_none_or(|i| {
                matches!(
                    pieces[i].token,
                    Token::BraceOpen | Token::ParenOpen | Token::BracketOpen
                )
            })
        };
        let after_opener = opens(previous) && pieces[..at].last().is_none_or(|p| !p.is_comment());
        let mut made = Line {
            blank_before: line[0].newlines > 1
                && !(after_opener && previous.is_some())
                && !closes(line[0].token),
            indent,
            code: String::new(),
            comment: None,
            column: 0,
            brace: None,
        };
        let in_schedule = open.last().is_some_and(|o| o.schedule);
        let mut braces = 0;
        for (i, piece) in line.iter().enumerate() {
            if piece.is_comment() {
                made.comment = Some(piece.text);
                continue;
            }
            if i > 0 && space(line, i) {
                made.code.push(' ');
            }
            match piece.token {
                Token::Schedule if open.is_empty() => schedule = true,
                Token::BraceOpen | Token::ParenOpen | Token::BracketOpen => {
                    if in_schedule && piece.token == Token::BraceOpen && braces == 0 {
                        made.brace = Some(made.code.len());
                    }
                    braces += 1;
                    open.push(Open {
                        indent,
                        schedule: schedule && open.is_empty() && piece.token == Token::BraceOpen,
                    });
                }
                Token::BraceClose | Token::ParenClose | Token::BracketClose => {
                    open.pop();
                    braces -= 1;
                    schedule &= !open.is_empty();
                }
                _ => {}
            }
            made.code.push_str(piece.text);
            previous = Some(at + i);
        }
        if braces != 0 {
            made.brace = None;
        }
        out.push(made);
        at = end;
    }
    out
}

fn closes(token: Token<'_>) -> bool {
    matches!(
        token,
        Token::BraceClose | Token::ParenClose | Token::BracketClose
    )
}

/// The indentation of a line whose first token is `first`, after the token `previous`.
fn indent(
    open: &[Open],
    previous: Option<&Piece<'_>>,
    first: Option<&Piece<'_>>,
    comment: bool,
) -> usize {
    let Some(first) = first else {
        return open.last().map_or(0, |o| o.indent + INDENT);
    };
    if closes(first.token) && !comment {
        return open.last().map_or(0, |o| o.indent);
    }
    let inside = open.last().map_or(0, |o| o.indent + INDENT);
    let Some(previous) = previous else {
        return inside;
    };
    let begins = match previous.token {
        Token::Semicolon
        | Token::BraceOpen
        | Token::BraceClose
        | Token::ParenOpen
        | Token::BracketOpen => true,
        // A list without brackets goes on.
        Token::Comma => !open.is_empty(),
        _ => {
            closes(first.token)
                || first.token == Token::Fn
                || (open.is_empty()
                    && matches!(
                        first.token,
                        Token::Grid | Token::Where | Token::For | Token::Order | Token::BraceOpen
                    ))
        }
    };
    if begins { inside } else { inside + INDENT }
}

/// The braces of entries that follow one another stand under one another.
fn align_schedules(lines: &mut [Line<'_>]) {
    runs(
        lines,
        |line| line.brace.is_some(),
        |run| {
            let width = |line: &Line<'_>| line.code[..line.brace.unwrap_or(0)].chars().count();
            let widest = run.iter().map(width).max().unwrap_or(0);
            for line in run {
                let fill = widest - width(line);
                if let Some(at) = line.brace {
                    line.code.insert_str(at, &" ".repeat(fill));
                }
            }
        },
    );
}

/// Comments behind code that follow one another stand under one another.
fn align_comments(lines: &mut [Line<'_>]) {
    runs(
        lines,
        |line| line.comment.is_some() && !line.code.is_empty(),
        |run| {
            let width = |line: &Line<'_>| line.indent + line.code.chars().count() + 2;
            let widest = run.iter().map(width).filter(|&w| w <= COMMENT_COLUMN).max();
            for line in run {
                line.column = width(line).max(widest.unwrap_or(0));
            }
        },
    );
}

/// Calls `act` for each longest run of neighbouring lines that are `member`s.
fn runs<'s>(
    lines: &mut [Line<'s>],
    member: impl Fn(&Line<'s>) -> bool,
    mut act: impl FnMut(&mut [Line<'s>]),
) {
    let mut at = 0;
    while at < lines.len() {
        let start = at;
        while at < lines.len() && member(&lines[at]) && (at == start || !lines[at].blank_before) {
            at += 1;
        }
        if at > start {
            act(&mut lines[start..at]);
        } else {
            at += 1;
        }
    }
}
