//! PTX text to tokens (PTX ISA §4).
//!
//! Invariants: a token never spans lines but for strings and comments; `.shared::cta` is one token, as modifiers are named whole; numbers keep
//! their text only where its digits matter (`.version 8.10`).

use super::ParseError;

/// A token. Names and strings are slices of the text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'a> {
    /// `add`, `%r1`, `$L__BB0_1`, `_`.
    Name(&'a str),
    /// `.global`, without the dot.
    Dot(&'a str),
    /// An integer, and whether it is unsigned (a `U` suffix, or more than 63 bits).
    Integer(u64, bool),
    /// `0f3F800000`.
    Float(u32),
    /// `0d3FF0000000000000`.
    Double(u64),
    /// `8.0`, `1e3`, as written.
    Decimal(&'a str),
    /// Without the quotes, escapes as written.
    Text(&'a str),
    Mark(u8),
    End,
}

impl Token<'_> {
    /// The token as messages name it.
    pub(super) fn describe(&self) -> String {
        match self {
            Token::Name(name) => format!("`{name}`"),
            Token::Dot(name) => format!("`.{name}`"),
            Token::Integer(value, _) => format!("`{value}`"),
            Token::Float(bits) => format!("`0f{bits:08X}`"),
            Token::Double(bits) => format!("`0d{bits:016X}`"),
            Token::Decimal(text) => format!("`{text}`"),
            Token::Text(text) => format!("\"{text}\""),
            Token::Mark(mark) => format!("`{}`", char::from(*mark)),
            Token::End => "the end of the text".into(),
        }
    }
}

/// A token and its line, from 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed<'a> {
    pub(super) token: Token<'a>,
    pub(super) line: u32,
}

fn begins_name(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$' | b'%')
}

fn continues_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$')
}

struct Lexer<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    line: u32,
}

/// Cuts a text; the last token is [`Token::End`].
pub(super) fn lex(text: &str) -> Result<Vec<Placed<'_>>, ParseError> {
    let mut lexer = Lexer {
        text,
        bytes: text.as_bytes(),
        at: 0,
        line: 1,
    };
    let mut tokens = Vec::with_capacity(text.len() / 4);
    loop {
        lexer.skip_blank()?;
        let line = lexer.line;
        let token = lexer.token()?;
        tokens.push(Placed { token, line });
        if token == Token::End {
            return Ok(tokens);
        }
    }
}

impl<'a> Lexer<'a> {
    fn error<T>(&self, message: impl Into<String>) -> Result<T, ParseError> {
        Err(ParseError {
            line: self.line,
            message: message.into(),
        })
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    /// Skips blanks, comments, and lines of a preprocessor.
    fn skip_blank(&mut self) -> Result<(), ParseError> {
        while let Some(&byte) = self.bytes.get(self.at) {
            match byte {
                b'\n' => {
                    self.line += 1;
                    self.at += 1;
                }
                b' ' | b'\t' | b'\r' | b'\x0b' | b'\x0c' => self.at += 1,
                b'#' => self.skip_line(),
                b'/' if self.peek(1) == b'/' => self.skip_line(),
                b'/' if self.peek(1) == b'*' => {
                    let Some(length) = self.text[self.at + 2..].find("*/") else {
                        return self.error("a comment that does not end");
                    };
                    let end = self.at + 2 + length + 2;
                    self.count_lines(end);
                    self.at = end;
                }
                _ => break,
            }
        }
        Ok(())
    }

    fn count_lines(&mut self, end: usize) {
        let lines = self.bytes[self.at..end].iter().filter(|b| **b == b'\n');
        self.line += lines.count() as u32;
    }

    fn skip_line(&mut self) {
        while !matches!(self.bytes.get(self.at), None | Some(b'\n')) {
            self.at += 1;
        }
    }

    /// Takes bytes while they are so.
    fn take(&mut self, so: impl Fn(u8) -> bool) -> &'a str {
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(|b| so(*b)) {
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    fn token(&mut self) -> Result<Token<'a>, ParseError> {
        let Some(&byte) = self.bytes.get(self.at) else {
            return Ok(Token::End);
        };
        match byte {
            // A `%` is the remainder's where no name can follow.
            b'%' if !continues_name(self.peek(1)) => {
                self.at += 1;
                Ok(Token::Mark(b'%'))
            }
            _ if begins_name(byte) => {
                let start = self.at;
                self.at += 1;
                self.take(continues_name);
                Ok(Token::Name(&self.text[start..self.at]))
            }
            b'0'..=b'9' => self.number(),
            b'.' if continues_name(self.peek(1)) => {
                self.at += 1;
                let start = self.at;
                self.take(continues_name);
                while self.peek(0) == b':'
                    && self.peek(1) == b':'
                    && self.peek(2).is_ascii_alphanumeric()
                {
                    self.at += 2;
                    self.take(continues_name);
                }
                Ok(Token::Dot(&self.text[start..self.at]))
            }
            b'"' => {
                let start = self.at + 1;
                let mut end = start;
                loop {
                    match self.bytes.get(end) {
                        None => return self.error("a string that does not end"),
                        Some(b'"') => break,
                        Some(b'\\') => end += 2,
                        Some(_) => end += 1,
                    }
                }
                self.count_lines(end);
                self.at = end + 1;
                Ok(Token::Text(&self.text[start..end]))
            }
            b'(' | b')' | b'[' | b']' | b'{' | b'}' | b',' | b';' | b':' | b'@' | b'!' | b'|'
            | b'+' | b'-' | b'*' | b'/' | b'&' | b'^' | b'~' | b'<' | b'>' | b'=' | b'?' => {
                self.at += 1;
                Ok(Token::Mark(byte))
            }
            _ => {
                let character = self.text[self.at..].chars().next().unwrap_or('?');
                self.error(format!("the character {character:?} has no place in PTX"))
            }
        }
    }

    /// Numbers (PTX ISA §4.5).
    fn number(&mut self) -> Result<Token<'a>, ParseError> {
        let start = self.at;
        let word = self.take(|b| b.is_ascii_alphanumeric() || b == b'_');
        let prefix = word.get(..2).unwrap_or("");
        let digits = word.get(2..).unwrap_or("");
        match prefix {
            "0f" | "0F" => {
                return match exact_hex(digits, 8) {
                    Some(bits) => Ok(Token::Float(bits as u32)),
                    None => self.error(format!("`{word}` needs 8 hexadecimal digits")),
                };
            }
            "0d" | "0D" => {
                return match exact_hex(digits, 16) {
                    Some(bits) => Ok(Token::Double(bits)),
                    None => self.error(format!("`{word}` needs 16 hexadecimal digits")),
                };
            }
            _ => {}
        }
        let whole = word.bytes().all(|b| b.is_ascii_digit());
        let exponent = word.split_once(['e', 'E']).is_some_and(|(mantissa, _)| {
            !mantissa.is_empty() && mantissa.bytes().all(|b| b.is_ascii_digit())
        });
        if exponent || whole && self.peek(0) == b'.' {
            self.at = start;
            return self.decimal();
        }
        let (body, suffixed) = match word.strip_suffix(['U', 'u']) {
            Some(body) => (body, true),
            None => (word, false),
        };
        let parsed = match prefix {
            "0x" | "0X" => radix(body.get(2..).unwrap_or(""), 16),
            "0b" | "0B" => radix(body.get(2..).unwrap_or(""), 2),
            _ if body.len() > 1 && body.starts_with('0') => radix(&body[1..], 8),
            _ => radix(body, 10),
        };
        match parsed {
            Some(value) => Ok(Token::Integer(value, suffixed || value >> 63 != 0)),
            None => self.error(format!("`{word}` is not a number of 64 bits")),
        }
    }

    /// `1.5`, `1.`, `2e-3`.
    fn decimal(&mut self) -> Result<Token<'a>, ParseError> {
        let start = self.at;
        self.take(|b| b.is_ascii_digit());
        if self.peek(0) == b'.' {
            self.at += 1;
            self.take(|b| b.is_ascii_digit());
        }
        if matches!(self.peek(0), b'e' | b'E') {
            self.at += 1;
            if matches!(self.peek(0), b'+' | b'-') {
                self.at += 1;
            }
            self.take(|b| b.is_ascii_digit());
        }
        let glued = self.take(continues_name);
        let word = &self.text[start..self.at];
        match word.parse::<f64>() {
            Ok(_) if glued.is_empty() => Ok(Token::Decimal(word)),
            _ => self.error(format!("`{word}` is not a number")),
        }
    }
}

fn exact_hex(digits: &str, count: usize) -> Option<u64> {
    (digits.len() == count).then(|| radix(digits, 16)).flatten()
}

/// `from_str_radix`, without its signs.
fn radix(digits: &str, radix: u32) -> Option<u64> {
    if digits.starts_with(['+', '-']) {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}
