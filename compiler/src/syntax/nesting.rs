//! How deeply a program is nested, found out before it is parsed.
//!
//! Invariant: the depth counted is no less than the depth of the tree, also of what recovery makes of broken text: whatever
//! opens or lengthens something counts until its own closer (no other), or a separator, ends it.

use super::token::{Spanned, Token};
use crate::{
    diagnostics::{Diagnostic, codes},
    span::{FileId, Span},
};

/// Levels of brackets, operators that wait for each other, members of `else if` and call chains: all together.
pub const MAX_DEPTH: u32 = 200;

/// What is open inside one pair of brackets.
#[derive(Default)]
struct Level<'s> {
    opener: Option<Token<'s>>,
    /// Operators and calls since the last separator.
    links: u32,
    /// `<` that no `>` has closed: perhaps compile-time arguments, which a comma does not end.
    angles: u32,
}

/// An error if the tokens are nested more deeply than [`MAX_DEPTH`].
pub fn check(file: FileId, tokens: &[Spanned<'_>]) -> Option<Diagnostic> {
    let mut levels = vec![Level::default()];
    // The sum over all levels but the last.
    let mut outer = 0;
    for (i, &(start, token, end)) in tokens.iter().enumerate() {
        let level = levels.last_mut()?;
        match token {
            Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => {
                level.links += 1;
                outer += level.links + level.angles;
                levels.push(Level {
                    opener: Some(token),
                    ..Level::default()
                });
            }
            Token::ParenClose | Token::BracketClose | Token::BraceClose => {
                let opener = match token {
                    Token::ParenClose => Token::ParenOpen,
                    Token::BracketClose => Token::BracketOpen,
                    _ => Token::BraceOpen,
                };
                if level.opener == Some(opener) {
                    levels.pop();
                    let level = levels.last_mut()?;
                    outer -= level.links + level.angles;
                    if token == Token::BraceClose
                        && !matches!(tokens.get(i + 1), Some((_, Token::Else, _)))
                    {
                        (level.links, level.angles) = (0, 0);
                    }
                }
            }
            Token::Comma => level.links = 0,
            Token::Semicolon => (level.links, level.angles) = (0, 0),
            Token::Less => level.angles += 1,
            Token::Greater => {
                level.angles = level.angles.saturating_sub(1);
                level.links += 1;
            }
            Token::Dot
            | Token::As
            | Token::Else
            | Token::View
            | Token::Get
            | Token::Await
            | Token::Ptx => level.links += 1,
            Token::OrOr
            | Token::AndAnd
            | Token::EqEq
            | Token::NotEq
            | Token::LessEq
            | Token::GreaterEq
            | Token::Or
            | Token::Xor
            | Token::And
            | Token::Shl
            | Token::Shr
            | Token::Plus
            | Token::Minus
            | Token::Star
            | Token::Slash
            | Token::Percent
            | Token::Not => level.links += 1,
            _ => {}
        }
        let depth = outer + levels.last().map_or(0, |l| l.links + l.angles);
        if depth > MAX_DEPTH {
            return Some(
                Diagnostic::error(
                    codes::E0003,
                    Span::new(file, start as usize..end as usize),
                    "this is nested too deeply",
                )
                .at(format!(
                    "more than {MAX_DEPTH} brackets, operators and calls are open here"
                ))
                .help("give parts of it names with `let`, or make functions of them"),
            );
        }
    }
    None
}
