//! What the parser stumbled over, in the author's words.
//!
//! Invariants: one mistake gives one error: what follows directly from an earlier one, or from text that was no token, is not
//! reported. A mistake whose mend leaves no doubt is mended in the tokens, so that the rest is read as it was meant.

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
    /// The token at this index becomes these; they share its text.
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
                let last = with.len().saturating_sub(1) as u32;
                let parts: Vec<_> = (0..)
                    .zip(with)
                    .map(|(k, t)| {
                        (
                            (start + k).min(end),
                            t,
                            if k == last {
                                end
                            } else {
                                (start + k + 1).min(end)
                            },
                        )
                    })
                    .collect();
                tokens.splice(i..=i, parts);
            }
            Edit::Insert(i, token) => {
                let i = i.min(tokens.len());
                let at = if i == 0 { 0 } else { tokens[i - 1].2 };
                tokens.insert(i, (at, token, at));
            }
        }
    }
}

/// One text and its tokens.
pub struct Recovery<'a, 's> {
    pub file: FileId,
    pub text: &'s str,
    pub tokens: &'a [Spanned<'s>],
    /// Where text was no token.
    pub holes: &'a [Span],
}

impl Recovery<'_, '_> {
    /// Reports where the parser was stuck. If one of the mistakes can be mended and `mend` allows it there, gives its error and
    /// the change instead; the caller parses again.
    pub fn explain(
        &self,
        stuck: &[Stuck],
        mend: impl Fn(u32) -> bool,
        found: &mut Diagnostics,
    ) -> Option<(u32, Diagnostic, Edit)> {
        // Actions run when their rule is complete: an outer error is recorded after the inner ones.
        let mut stuck: Vec<&Stuck> = stuck.iter().collect();
        stuck.sort_by_key(|s| s.at.map_or(u32::MAX, |at| at.0));
        let mut last: Option<usize> = None;
        for s in stuck {
            let i = match s.at {
                Some((start, end)) => self
                    .tokens
                    .iter()
                    .position(|t| (t.0, t.2) == (start, end))
                    .unwrap_or(self.tokens.len()),
                None => self.tokens.len(),
            };
            let resumed = self.tokens.partition_point(|t| t.2 <= s.resumed).max(i + 1);
            let follows = last.is_some_and(|last| {
                let same_statement = || {
                    !self.tokens[last.min(i)..i]
                        .iter()
                        .any(|t| t.1 == Token::Semicolon)
                };
                i < last + 2
                    || (s.expects("interface") && self.closes(i))
                    || (matches!(self.token(i), Some(Token::Else | Token::Semicolon))
                        && same_statement())
            });
            last = Some(last.map_or(resumed, |last| last.max(resumed)));
            if follows || self.beside_hole(i) {
                continue;
            }
            let place = self.place(i);
            match self.mend(i, s) {
                Some((diagnostic, edit)) if mend(place.start) => {
                    return Some((place.start, diagnostic, edit));
                }
                Some((diagnostic, _)) => found.push(diagnostic),
                None => found.push(self.describe(i, s)),
            }
        }
        None
    }

    pub(super) fn token(&self, i: usize) -> Option<Token<'_>> {
        self.tokens.get(i).map(|t| t.1)
    }

    pub(super) fn before(&self, i: usize) -> Option<Token<'_>> {
        self.token(i.checked_sub(1)?)
    }

    /// Where the token stands; the end of the text for the one after the last.
    pub(super) fn place(&self, i: usize) -> Span {
        let end = self.tokens.last().map_or(0, |t| t.2);
        let (start, end) = self.tokens.get(i).map_or((end, end), |t| (t.0, t.2));
        Span {
            file: self.file,
            start,
            end,
        }
    }

    /// The point behind the token before.
    pub(super) fn gap(&self, i: usize) -> Span {
        let at = if i == 0 { 0 } else { self.place(i - 1).end };
        Span {
            file: self.file,
            start: at,
            end: at,
        }
    }

    fn closes(&self, i: usize) -> bool {
        matches!(
            self.token(i),
            None | Some(
                Token::ParenClose | Token::BracketClose | Token::BraceClose | Token::Greater
            )
        )
    }

    fn beside_hole(&self, i: usize) -> bool {
        let (from, to) = (
            self.gap(i).start,
            self.place(i).start.max(self.gap(i).start),
        );
        let to = if i == self.tokens.len() { u32::MAX } else { to };
        self.holes
            .iter()
            .any(|h| (h.start >= from && h.end <= to) || (i > 0 && *h == self.place(i - 1)))
    }

    fn new_line(&self, i: usize) -> bool {
        self.text
            .get(self.gap(i).start as usize..self.place(i).start as usize)
            .is_some_and(|between| between.contains('\n'))
    }

    /// Whether a comment behind the token before `i` looks as if it were to be computed.
    fn commented_out(&self, i: usize) -> bool {
        self.text
            .get(self.gap(i).start as usize..)
            .and_then(|rest| rest.lines().next()?.trim_start().strip_prefix("//"))
            .is_some_and(|comment| comment.trim_end().ends_with(';'))
    }

    /// The innermost bracket open before token `i`.
    pub(super) fn open(&self, i: usize) -> Option<usize> {
        let mut open = Vec::new();
        for (k, (_, token, _)) in self.tokens[..i.min(self.tokens.len())].iter().enumerate() {
            match token {
                Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => open.push(k),
                Token::ParenClose | Token::BracketClose | Token::BraceClose => {
                    if let Some(at) = open
                        .iter()
                        .rposition(|&o| closer(self.tokens[o].1) == Some(*token))
                    {
                        open.truncate(at);
                    }
                }
                _ => {}
            }
        }
        open.pop()
    }

    pub(super) fn error(&self, span: Span, title: impl Into<String>) -> Diagnostic {
        Diagnostic::error(codes::E0002, span, title)
    }

    /// Mistakes that have one obvious mend.
    fn mend(&self, i: usize, s: &Stuck) -> Option<(Diagnostic, Edit)> {
        let place = self.place(i);
        let token = self.token(i);
        let replace = |with: &[Token<'static>]| Edit::Replace(i, with.to_vec());
        if let Some(found) = self.mended_habit(i, s) {
            return Some(found);
        }
        let in_index = || {
            self.open(i)
                .is_some_and(|o| self.tokens[o].1 == Token::BracketOpen)
        };
        match token {
            Some(Token::Colon) if s.expects("..") && in_index() => {
                let alone = matches!(self.before(i), Some(Token::BracketOpen | Token::Comma))
                    && matches!(self.token(i + 1), Some(Token::BracketClose | Token::Comma));
                let d = if alone {
                    self.error(place, "a whole axis is written `..`")
                        .help("write `x[.., i]` for `x[:, i]`; a new axis is `_`")
                } else {
                    self.error(place, "a slice is written with `..` or `+:`")
                        .help("write `a[i..j]` for constant bounds, `a[i +: N]` for N elements from any i, or `view a[i .. j]`")
                };
                return Some((d, replace(&[Token::DotDot])));
            }
            Some(Token::Colon) if s.expects("..") && !self.new_line(i + 1) => {
                let d = self.error(place, "a range is written `a..b`");
                return Some((d, replace(&[Token::DotDot])));
            }
            Some(Token::DotDotEq) if s.expects("..") => {
                let d = self
                    .error(place, "ranges do not contain their end")
                    .help("write `a..b + 1` for `a..=b`");
                return Some((d, replace(&[Token::DotDot])));
            }
            Some(Token::Shr) if s.expects(">") => {
                let d = self
                    .error(place, "two closing `>` need a space between them")
                    .help("write `> >`");
                return Some((d, replace(&[Token::Greater, Token::Greater])));
            }
            Some(Token::Set) if s.expects("||") && !s.expects("=") => {
                if let Some(found) = self.generic_call(i) {
                    return Some(found);
                }
                let d = self
                    .error(place, "equality is written `==`")
                    .note("`=` gives a value to a name or a place");
                return Some((d, replace(&[Token::EqEq])));
            }
            Some(Token::Comma | Token::Greater) => {
                if let Some(found) = self.generic_call(i) {
                    return Some(found);
                }
            }
            Some(Token::Semicolon) if s.expects("let") || s.expects("interface") => {
                let d = self
                    .error(place, "there is nothing before this `;`")
                    .help("no `;` stands after a `}`");
                return Some((d, replace(&[])));
            }
            _ => {}
        }
        if s.expects(";") && begins(token, self.new_line(i)) {
            let mut d = self
                .error(self.gap(i), "a `;` is missing")
                .at("expected `;`");
            if self.commented_out(i) {
                d = d
                    .help("`//` begins a comment; a quotient is `a / b`, of integers rounded down");
            }
            return Some((d, Edit::Insert(i, Token::Semicolon)));
        }
        if s.expects(",") && !s.expects(";") && self.new_line(i) && begins_element(token) {
            return Some((
                self.error(self.gap(i), "a `,` is missing")
                    .at("expected `,`"),
                Edit::Insert(i, Token::Comma),
            ));
        }
        None
    }

    /// `f<A, B>(x)`, of which the parser takes `<` for a comparison and is stuck at token `i`.
    fn generic_call(&self, i: usize) -> Option<(Diagnostic, Edit)> {
        let plain = |t: Token<'_>| {
            matches!(
                t,
                Token::Name(_)
                    | Token::Int(_)
                    | Token::PathSep
                    | Token::Comma
                    | Token::Set
                    | Token::True
                    | Token::False
            ) || t.is_word()
        };
        let open = (i.saturating_sub(32)..i)
            .rev()
            .find(|&k| !plain(self.tokens[k].1))?;
        let close = (i..(i + 32).min(self.tokens.len())).find(|&k| !plain(self.tokens[k].1))?;
        let (Token::Less, Token::Greater, Some(Token::Name(name)), Some(Token::ParenOpen)) = (
            self.tokens[open].1,
            self.tokens[close].1,
            self.before(open),
            self.token(close + 1),
        ) else {
            return None;
        };
        let span = self.place(open - 1).to(self.place(close));
        Some((generic_call(span, name), Edit::Insert(open, Token::PathSep)))
    }

    /// The error for a token that fits nowhere.
    fn describe(&self, i: usize, s: &Stuck) -> Diagnostic {
        let place = self.place(i);
        let token = self.token(i);
        let found = match token {
            None => "the end of the file".to_owned(),
            Some(Token::Str(_)) => "a string".to_owned(),
            Some(token) => format!("`{}`", token.text()),
        };
        let expression = s.expects("zeros");
        if let Some(d) = self.habit(i, s) {
            return d;
        }
        match token {
            Some(Token::ParenOpen) if s.expects(">") && self.before(i) == Some(Token::Greater) => {
                return self
                    .error(place, "between `<` and `>` a comparison needs parentheses")
                    .at("the list of compile-time arguments is not closed before this")
                    .note("`a<b>` is read as `a` with the compile-time argument `b`")
                    .help("write `f::<(i < n)>(x)`");
            }
            Some(t) if s.expects(">") && s.expects(",") && is_comparison(t) => {
                return self
                    .error(place, "between `<` and `>` a comparison needs parentheses")
                    .help("write `f::<(i < n)>(x)`");
            }
            Some(Token::BraceOpen) if s.expects("..") && !in_brackets(self, i) => {
                return self
                    .error(place, "a `for` goes over a range")
                    .at("expected `..`")
                    .help("write `for i in 0..n`");
            }
            Some(Token::BraceOpen) if s.expects("grid") => {
                return self
                    .error(place, "this kernel has no `grid`")
                    .at("expected `grid (…)`")
                    .help("say which blocks run: `grid (i in ceil_div(n, B))`, or `grid (one in 1)` for a single one");
            }
            Some(Token::PathSep) if s.expects("..") => {
                return self
                    .error(place, "a slice has no step")
                    .help("a whole axis is `..`; to skip elements, reshape and index");
            }
            _ => {}
        }
        let mut d = self.error(place, format!("expected {}, found {found}", s.wanted()));
        if let Some(open) = self.open(i) {
            let sign = self.tokens[open].1;
            // A lone closer inside braces is more likely one too many.
            let unclosed = match token {
                None => true,
                Some(Token::ParenClose | Token::BracketClose | Token::BraceClose) => {
                    sign != Token::BraceOpen && closer(sign) != token
                }
                _ => s.expects("let") && begins_item(token),
            };
            if unclosed {
                d = d.label(
                    self.place(open),
                    format!("this `{}` is not closed", sign.text()),
                );
            }
        }
        match token {
            Some(Token::Question) => {
                d.help("write `if c { a } else { b }`, or `select(c, a, b)` for tiles")
            }
            Some(Token::If | Token::Pingpong) if expression => d.help(format!(
                "inside an expression, put {found} … in parentheses"
            )),
            Some(Token::Slash)
                if self
                    .text
                    .get(place.end as usize..)
                    .is_some_and(|rest| rest.starts_with('*')) =>
            {
                d.help("comments begin with `//` and reach to the end of the line")
            }
            Some(Token::Plus) if expression => d.help("there is no `++`: write `x += 1`"),
            Some(t)
                if t.is_word()
                    && !matches!(t, Token::True | Token::False)
                    && s.expects("NAME")
                    && !s.expects("let")
                    && !s.expects("interface") =>
            {
                d.note(format!(
                    "{found} is a word of the language and cannot be a name here"
                ))
            }
            _ => d,
        }
    }
}

impl Stuck {
    pub(super) fn expects(&self, name: &str) -> bool {
        self.expected.iter().any(|e| e.trim_matches('"') == name)
    }

    /// What could have stood there.
    fn wanted(&self) -> String {
        let either = |first: &str, others: &[&str]| {
            let others: Vec<String> = others
                .iter()
                .filter(|o| self.expects(o))
                .map(|o| format!("`{o}`"))
                .collect();
            join(std::iter::once(first.to_owned()).chain(others).collect())
        };
        if self.expects("interface") {
            return "an item (`kernel`, `fn`, `use`, …)".into();
        }
        if self.expects("let") {
            return either("a statement", &["}"]);
        }
        if self.expects("zeros") {
            return either(
                if self.expects("_") {
                    "an index"
                } else {
                    "an expression"
                },
                &[";", ")", "]", "}", ">"],
            );
        }
        if self.expects("tile") {
            return either("a type", &[")"]);
        }
        if self.expects("_") {
            return either("a name", &["_", "(", ")"]);
        }
        if self.expects("NAME") {
            return either("a name", &["{", ")", "]", "}", ">", "fn", "(", ";"]);
        }
        const OPERATORS: &[&str] = &[
            "||", "&&", "==", "!=", "<", "<=", ">=", "|", "^", "&", "<<", ">>", "+", "-", "*", "/",
            "%", "as", "[", "(", ".", "::", "lag", "+=", "-=", "*=", "|=", "&=",
        ];
        // What ends a thing is named first, then what continues it.
        const FIRST: &[&str] = &[";", ",", ":", ")", "]", "}", ">", "{"];
        let all: Vec<&str> = self.expected.iter().map(|e| e.trim_matches('"')).collect();
        // In a comparison `>` is an operator, elsewhere it closes.
        let operator = |e: &&str| OPERATORS.contains(e) || (*e == ">" && all.contains(&"<"));
        let mut names: Vec<&str> = all.iter().copied().filter(|e| !operator(e)).collect();
        if names.iter().any(|e| matches!(*e, ";" | "," | ")")) {
            names.retain(|e| !matches!(*e, "=" | "?"));
        }
        if names.is_empty() {
            names = if all.len() <= 3 {
                all
            } else {
                return "an operator".into();
            };
        }
        names.sort_by_key(|e| FIRST.iter().position(|f| f == e).unwrap_or(FIRST.len()));
        names.truncate(5);
        let names: Vec<String> = names
            .into_iter()
            .map(|name| match name {
                "INT" => "a whole number".into(),
                "FLOAT" | "HEX" => "a number".into(),
                "STR" => "a string".into(),
                _ => format!("`{name}`"),
            })
            .collect();
        if names.is_empty() {
            "the end of the file".into()
        } else {
            join(names)
        }
    }
}

/// The error for compile-time arguments without `::`, at `f<A>`.
pub fn generic_call(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error(
        codes::E0002,
        span,
        "in an expression, compile-time arguments follow a `::`",
    )
    .at(format!("`<` compares `{name}` here"))
    .help(format!("write `{name}::<…>(…)`"))
}

fn in_brackets(r: &Recovery<'_, '_>, i: usize) -> bool {
    r.open(i)
        .is_some_and(|o| r.tokens[o].1 == Token::BracketOpen)
}

fn closer(open: Token<'_>) -> Option<Token<'static>> {
    match open {
        Token::ParenOpen => Some(Token::ParenClose),
        Token::BracketOpen => Some(Token::BracketClose),
        Token::BraceOpen => Some(Token::BraceClose),
        _ => None,
    }
}

fn is_comparison(t: Token<'_>) -> bool {
    matches!(
        t,
        Token::Less
            | Token::LessEq
            | Token::GreaterEq
            | Token::EqEq
            | Token::NotEq
            | Token::AndAnd
            | Token::OrOr
            | Token::Shl
            | Token::And
            | Token::Or
    )
}

fn begins_item(t: Option<Token<'_>>) -> bool {
    matches!(
        t,
        Some(
            Token::Use
                | Token::Struct
                | Token::Interface
                | Token::Variant
                | Token::Fn
                | Token::Kernel
                | Token::Schedule
        )
    )
}

/// Whether a statement, or what comes after a block's last, begins with this token: anywhere, or only on a new line.
fn begins(t: Option<Token<'_>>, new_line: bool) -> bool {
    match t {
        None | Some(Token::BraceClose) => true,
        Some(
            Token::Let
            | Token::For
            | Token::While
            | Token::Break
            | Token::Continue
            | Token::Return
            | Token::Scatter
            | Token::Launch
            | Token::Call
            | Token::Channel
            | Token::Release
            | Token::Put
            | Token::Roles
            | Token::Workspace
            | Token::Assert
            | Token::Const,
        ) => true,
        Some(Token::If | Token::Pingpong | Token::Require | Token::Name(_)) => new_line,
        t if begins_item(t) => true,
        Some(t) => {
            new_line
                && t.is_word()
                && !matches!(
                    t,
                    Token::As | Token::Else | Token::In | Token::From | Token::Until | Token::Where
                )
        }
    }
}

fn begins_element(t: Option<Token<'_>>) -> bool {
    matches!(
        t,
        Some(Token::Name(_) | Token::Int(_) | Token::Float(_) | Token::Str(_) | Token::BracketOpen)
    )
}

/// `a, b or c`
fn join(mut names: Vec<String>) -> String {
    match names.pop() {
        Some(last) if !names.is_empty() => format!("{} or {last}", names.join(", ")),
        last => last.unwrap_or_default(),
    }
}
