//! Text to tokens.
//!
//! Invariants: tokens lie in the order of the text and do not overlap; whatever is no token is reported once (E0001) and
//! left out, so that the parser always gets a stream of whole tokens. Comments are skipped; documentation comments are
//! kept apart, under the position of the token that they stand before.

use std::{collections::BTreeMap, ops::Range};

use logos::{Lexer, Logos};

use crate::{
    diagnostics::{Diagnostic, Diagnostics, codes},
    span::{FileId, Span},
};

/// Why text is no token.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum LexError {
    /// A character that no token begins with.
    #[default]
    Character,
    /// A string without its closing quote.
    Unclosed,
}

fn unclosed<'s>(_: &mut Lexer<'s, Token<'s>>) -> Result<&'s str, LexError> {
    Err(LexError::Unclosed)
}

macro_rules! tokens {
    ($($name:ident $text:tt,)*) => {
        /// A token. Those with text borrow it from the source.
        #[derive(Logos, Clone, Copy, Debug, PartialEq)]
        #[logos(error = LexError)]
        #[logos(skip(r"[ \t\r\n\x0c]+"))]
        pub enum Token<'s> {
            $(#[doc = $text] #[token($text, priority = 20)] $name,)*
            #[regex(r"[A-Za-z_][A-Za-z0-9_]*")]
            Name(&'s str),
            #[regex(r"[0-9][0-9_]*")]
            Int(&'s str),
            #[regex(r"0x[0-9a-fA-F_]+", priority = 10)]
            Hex(&'s str),
            #[regex(r"[0-9][0-9_]*\.[0-9][0-9_]*([eE][+-]?[0-9]+)?")]
            #[regex(r"[0-9][0-9_]*[eE][+-]?[0-9]+")]
            Float(&'s str),
            /// With its quotes.
            #[regex(r#""([^"\\]|\\[^\n])*""#)]
            #[regex(r#""([^"\\]|\\[^\n])*\\?"#, unclosed)]
            Str(&'s str),
            /// `//…`, `///…`, `//!…`: never reaches the parser.
            #[regex(r"//[^\n]*", priority = 30, allow_greedy = true)]
            Comment(&'s str),
            /// Stands before a file, so that one grammar serves files and instance names.
            StartFile,
            /// Stands before the name of an instance.
            StartInstance,
        }

        impl<'s> Token<'s> {
            /// As it is written.
            pub fn text(self) -> &'s str {
                match self {
                    $(Token::$name => $text,)*
                    Token::Name(text) | Token::Int(text) | Token::Hex(text) | Token::Float(text) | Token::Str(text) | Token::Comment(text) => text,
                    Token::StartFile | Token::StartInstance => "",
                }
            }
        }
    };
}

tokens! {
    Use "use", Const "const", Struct "struct", Interface "interface", Variant "variant", Layout "layout", Fn "fn", Kernel "kernel",
    Schedule "schedule", Op "op", Test "test",
    Grid "grid", For "for", Where "where", In "in", Until "until", From "from", Order "order", Persistent "persistent", Dynamic "dynamic",
    Cluster "cluster", Tune "tune", Specialize "specialize", Of "of", Size "size",
    Let "let", Mut "mut", Scatter "scatter", If "if", Else "else", Rev "rev", Step "step", While "while", Break "break",
    Continue "continue", Return "return", Assert "assert", Require "require", Workspace "workspace", Launch "launch", Call "call", At "at",
    Channel "channel", Depth "depth", Over "over", Across "across", Release "release", Lag "lag", Pingpong "pingpong", Put "put",
    Roles "roles", Warp "warp", Warps "warps", Warpgroup "warpgroup", Warpgroups "warpgroups", Regs "regs", Split "split",
    Replicate "replicate",
    View "view", Out "out", Tile "tile", Accum "accum", Sorted "sorted", Distinct "distinct", Align "align", Strided "strided",
    As "as", Get "get", Await "await", Zeros "zeros", Iota "iota", Full "full", Bitcast "bitcast", Ptx "ptx",
    True "true", False "false", Inf "inf", Nan "nan", Underscore "_",
    ParenOpen "(", ParenClose ")", BracketOpen "[", BracketClose "]", BraceOpen "{", BraceClose "}",
    Comma ",", Semicolon ";", Colon ":", PathSep "::", Dot ".", DotDot "..", DotDotEq "..=", PlusColon "+:", Arrow "->", Question "?",
    Set "=", AddSet "+=", SubSet "-=", MulSet "*=", OrSet "|=", AndSet "&=",
    OrOr "||", AndAnd "&&", EqEq "==", NotEq "!=", Less "<", LessEq "<=", Greater ">", GreaterEq ">=",
    Or "|", Xor "^", And "&", Shl "<<", Shr ">>", Plus "+", Minus "-", Star "*", Slash "/", Percent "%", Not "!",
}

impl Token<'_> {
    /// Whether it is a word of the language, usable as a name or not.
    pub fn is_word(self) -> bool {
        !matches!(
            self,
            Token::Name(_) | Token::Str(_) | Token::Comment(_) | Token::Underscore
        ) && self.text().starts_with(|c: char| c.is_ascii_alphabetic())
    }
}

/// A token and the range of bytes that it covers.
pub type Spanned<'s> = (u32, Token<'s>, u32);

/// The tokens of a text, and its documentation.
#[derive(Debug, Default)]
pub struct Tokens<'s> {
    pub tokens: Vec<Spanned<'s>>,
    /// The `//!` lines before the first token, joined.
    pub file_doc: Option<String>,
    /// `///` lines, joined, by where the token after them starts.
    pub docs: BTreeMap<u32, String>,
}

/// Splits `text` into tokens; what is no token is reported and skipped.
pub fn tokenize<'s>(file: FileId, text: &'s str, diagnostics: &mut Diagnostics) -> Tokens<'s> {
    let mut out = Tokens::default();
    // A byte order mark is not part of the program.
    let skipped = if text.starts_with('\u{feff}') {
        '\u{feff}'.len_utf8()
    } else {
        0
    };
    let mut lexer = Token::lexer(text);
    lexer.bump(skipped);
    let mut doc: Vec<&str> = Vec::new();
    let mut file_doc: Vec<&str> = Vec::new();
    let mut bad: Option<Range<usize>> = None;
    let mut unclosed = 0;
    while let Some(token) = lexer.next() {
        let range = lexer.span();
        if let Some(b) = &bad
            && (token != Err(LexError::Character) || b.end != range.start)
        {
            report_characters(file, text, bad.take().unwrap_or_default(), diagnostics);
        }
        match token {
            Ok(Token::Comment(comment)) => {
                if let Some(line) = comment.strip_prefix("//!") {
                    if out.tokens.is_empty() && doc.is_empty() {
                        file_doc.push(line);
                    }
                } else if let Some(line) = comment.strip_prefix("///")
                    && !line.starts_with('/')
                {
                    doc.push(line);
                }
            }
            Ok(token) => {
                let (start, end) = (range.start as u32, range.end as u32);
                if !doc.is_empty() {
                    out.docs.insert(start, join(&std::mem::take(&mut doc)));
                }
                if let Some(&(at, number @ (Token::Int(_) | Token::Hex(_) | Token::Float(_)), stop)) =
                    out.tokens.last()
                    && stop == start
                    && !matches!(token, Token::Str(_))
                    && token
                        .text()
                        .starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
                {
                    let whole = &text[at as usize..range.end];
                    let mut d = Diagnostic::error(
                        codes::E0001,
                        Span::new(file, at as usize..range.end),
                        format!("`{whole}` is no number"),
                    );
                    d = match number {
                        Token::Hex(_) => d.help("the digits of a number after `0x` are 0 to 9 and a to f"),
                        _ => d.help("numbers are written like `1_000`, `0xff`, `1.5` or `1e-5`, without a suffix"),
                    };
                    diagnostics.push(d);
                    if let Some(last) = out.tokens.last_mut() {
                        last.2 = end;
                    }
                    continue;
                }
                out.tokens.push((start, token, end));
            }
            Err(LexError::Character) => match &mut bad {
                Some(bad) => bad.end = range.end,
                None => bad = Some(range),
            },
            Err(LexError::Unclosed) => {
                // What was matched reaches to the end of the file: shown is one line.
                let line = text[range.clone()].lines().next().map_or(0, str::len);
                let start = range.start as u32;
                let end = start + line.max(1) as u32;
                diagnostics.push(
                    Diagnostic::error(
                        codes::E0001,
                        Span::new(file, start as usize..end as usize),
                        "this string has no closing `\"`",
                    )
                    .at("it begins here"),
                );
                out.tokens.push((start, Token::Str("\"\""), end));
                // It was meant to end on its line; not for ever, as each look for its end reads the whole text.
                if unclosed < 10 {
                    unclosed += 1;
                    lexer = Token::lexer(text);
                    lexer.bump(end as usize);
                }
            }
        }
    }
    if let Some(bad) = bad {
        report_characters(file, text, bad, diagnostics);
    }
    if !file_doc.is_empty() {
        out.file_doc = Some(join(&file_doc));
    }
    out
}

fn report_characters(file: FileId, text: &str, range: Range<usize>, diagnostics: &mut Diagnostics) {
    let found: String = text[range.clone()]
        .chars()
        .take(20)
        .flat_map(char::escape_debug)
        .collect();
    let d = Diagnostic::error(
        codes::E0001,
        Span::new(file, range.clone()),
        format!("`{found}` cannot stand in a program"),
    );
    diagnostics.push(match text[range].chars().next() {
        Some('@') => d.help("a product of matrices is `dot(a, b)`"),
        Some('#') => d.help("comments begin with `//`"),
        Some('~') => d.help("the complement of an integer is `!x`"),
        Some('\'' | '‘' | '’' | '“' | '”') => d.help("strings stand between `\"` and `\"`"),
        Some(c) if c.is_alphabetic() => {
            d.help("names are made of the letters a to z and A to Z, digits and `_`")
        }
        _ => d,
    });
}

/// Comment lines without the space after their slashes.
fn join(lines: &[&str]) -> String {
    let lines: Vec<&str> = lines
        .iter()
        .map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end())
        .collect();
    lines.join("\n")
}
