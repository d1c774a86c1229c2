//! What is right in another language, and how it is written here.
//!
//! Invariant: an answer names the spelling of this language; it is given only where the text can hardly mean anything else.

use super::{
    context::Stuck,
    recover::{Edit, Recovery},
    token::Token,
};
use crate::diagnostics::Diagnostic;

/// What to write instead of a name that means nothing here but something elsewhere.
pub fn name(name: &str) -> Option<&'static str> {
    Some(match name {
        "True" => "write `true`",
        "False" => "write `false`",
        "None" | "null" | "nullptr" | "NULL" => {
            "there is no such value: an optional argument is asked for by `given(x)`, and a new axis is `_`"
        }
        "float" | "float32" => "the type is `f32`",
        "double" | "float64" => "the type is `f64`",
        "half" | "float16" => "the type is `f16`",
        "bfloat16" => "the type is `bf16`",
        "int32" | "int32_t" => "the type is `i32`",
        "int64" | "int64_t" | "size_t" | "long" => "the type is `i64`",
        "uint32" | "uint32_t" | "unsigned" => "the type is `u32`",
        "uint8" | "uint8_t" | "char" => "the type is `u8` or `i8`",
        "fp8" | "float8_e4m3fn" => "the types of 8 bits are `e4m3` and `e5m2`",
        "arange" | "linspace" => "write `iota<i32>[N]` for 0 to N - 1",
        "range" => "a loop goes over `a..b`: `for i in 0..n`",
        "len" => {
            "the extent of a view is its dimension's name, or `x.dim(0)`; that of a tile `x.shape(0)`"
        }
        "print" | "printf" | "println" => "write `debug(x)`: the interpreter prints it",
        "not" => "write `!x`",
        "auto" | "var" | "val" => "write `let x = …`, and `let mut x = …` if it changes",
        "np" | "tl" | "torch" | "jnp" | "ct" | "cute" | "math" | "T" => {
            "operations stand alone or behind a value: `exp(x)`, `x.sum(0)`"
        }
        "mean" => "a mean is a sum over a number: `x.sum(i) / (n as f32)`",
        "softmax" => "write `exp(x - x.max(1)[.., _])`, divided by its sum",
        "concatenate" | "cat" => "write `concat(a, b, axis)`",
        "transpose" => "write `x.t`, or `x.permute([1, 0])`",
        "matmul" | "mma" => "write `dot(a, b, acc)`",
        "pow" => "write `x * x`, or `exp2(y * log2(x))`",
        "cdiv" | "div_ceil" => "write `ceil_div(a, b)`",
        "maximum" | "fmaxf" => "write `max(a, b)`",
        "minimum" | "fminf" => "write `min(a, b)`",
        "expf" => "write `exp(x)`",
        "sqrtf" => "write `sqrt(x)`",
        "zeros_like" => "write `zeros<f32>[N]`",
        "atomicAdd" => "write `atomic_add(view[i], x)`",
        _ => return None,
    })
}

impl Recovery<'_, '_> {
    /// The mistake at token `i`, if it is a habit that can be mended.
    pub(super) fn mended_habit(&self, i: usize, s: &Stuck) -> Option<(Diagnostic, Edit)> {
        let place = self.place(i);
        match self.token(i)? {
            Token::Name(word @ ("and" | "or")) if s.expects("&&") => {
                let (sign, text) = match word {
                    "and" => (Token::AndAnd, "&&"),
                    _ => (Token::OrOr, "||"),
                };
                let d = self
                    .error(place, format!("`{word}` is written `{text}`"))
                    .help("on tiles `&` and `|`");
                Some((d, Edit::Replace(i, vec![sign])))
            }
            Token::Dot if self.before(i) == Some(Token::DotDot) => {
                let d = self.error(place, "a whole axis is written `..`");
                Some((d, Edit::Replace(i, Vec::new())))
            }
            _ => None,
        }
    }

    /// The mistake at token `i`, if it is a habit.
    pub(super) fn habit(&self, i: usize, s: &Stuck) -> Option<Diagnostic> {
        let place = self.place(i);
        let token = self.token(i);
        let before = self.before(i);
        let earlier = |back: usize| self.token(i.checked_sub(back)?);
        let begins = |t: Option<Token<'_>>| {
            matches!(
                t,
                None | Some(Token::Semicolon | Token::BraceOpen | Token::BraceClose)
            )
        };
        if s.expects("interface") {
            return self.item(i);
        }
        match (before, token) {
            (Some(Token::For), _) => None,
            (Some(Token::Star), Some(Token::Star)) => Some(
                self.error(place, "there is no `**`")
                    .help("write `x * x`; other powers are `exp2(y * log2(x))`"),
            ),
            (_, Some(Token::Where)) if self.token(i + 1) == Some(Token::ParenOpen) => Some(
                self.error(place, "a choice for each element is written `select`")
                    .help("write `select(c, a, b)`"),
            ),
            (Some(Token::Name(_)), Some(Token::Name(_)))
                if earlier(2) == Some(Token::ParenOpen) && earlier(3) == Some(Token::For) =>
            {
                Some(
                    self.error(place, "a `for` goes over a range")
                        .help("write `for i in 0..n { … }`"),
                )
            }
            (Some(Token::Name(_)), Some(Token::Name(name)))
                if begins(earlier(2)) && s.expects(";") =>
            {
                // `unsigned int a`: the name is the last.
                let mut name = name;
                let mut at = i;
                while let Some(Token::Name(next)) = self.token(at + 1) {
                    (name, at) = (next, at + 1);
                }
                let place = self.place(at);
                Some(
                    self.error(self.place(i - 1).to(place), "a name is given by `let`")
                        .help(format!(
                            "write `let {name} = …`, and `let mut {name} = …` if it changes"
                        )),
                )
            }
            (Some(Token::Name(word)), Some(Token::Name(name)))
                if s.expects(":") && s.expects(")") =>
            {
                Some(
                    self.error(
                        self.place(i - 1).to(place),
                        "a parameter's type stands behind its name",
                    )
                    .help(format!("write `{name}: {}`", typed(word))),
                )
            }
            (Some(Token::Name(_)), Some(Token::Star)) if s.expects(",") && s.expects(")") => Some(
                self.error(place, "there are no pointers")
                    .help("memory is reached through views: `x: view<f32>[n]`"),
            ),
            (Some(Token::ParenClose), Some(Token::Name(_) | Token::Int(_) | Token::Float(_)))
                if matches!(earlier(2), Some(Token::Name(_)))
                    && earlier(3) == Some(Token::ParenOpen)
                    && s.expects("as") =>
            {
                let Some(Token::Name(word)) = earlier(2) else {
                    return None;
                };
                Some(
                    self.error(
                        self.place(i - 3).to(place),
                        "a conversion stands behind its value",
                    )
                    .help(format!("write `x as {}`", typed(word))),
                )
            }
            (Some(Token::Greater), Some(Token::ParenOpen)) if s.expects("[") => Some(
                self.error(place, "a shape stands in brackets")
                    .help("write `tile<f32>[64]`, `zeros<f32>[64]`"),
            ),
            (Some(Token::Greater), _) if s.expects("[") && s.expected.len() <= 2 => Some(
                self.error(
                    place,
                    "a view or tile has its dimensions behind its element type",
                )
                .at("expected `[`")
                .help("write `view<f32>[m, n]`: the names are bound by the argument's shape"),
            ),
            (Some(shaped), Some(Token::ParenOpen | Token::BracketOpen))
                if s.expects("<") && s.expected.len() <= 2 =>
            {
                let word = shaped.text();
                Some(
                    self.error(place, format!("`{word}` has an element type"))
                        .at("expected `<`")
                        .help(format!(
                            "write `{word}<{}>[64]`",
                            if word == "iota" { "i32" } else { "f32" }
                        )),
                )
            }
            (Some(Token::BracketClose), _) if s.expects("(") && s.expected.len() <= 2 => Some(
                self.error(self.gap(i), "`full` takes the value of its elements")
                    .at("expected `(`")
                    .help("write `full<f32>[64](1.0)`"),
            ),
            (_, Some(Token::ParenClose | Token::Comma))
                if s.expects("in") && self.opened_by(i, Token::Grid) =>
            {
                Some(
                    self.error(place, "an axis of the grid has a name and an extent")
                        .help("write `grid (i in n)`"),
                )
            }
            (_, Some(Token::Fn)) if s.expects("let") && self.indented(i) => Some(
                self.error(place, "a function stands outside of others")
                    .help("declare it before the kernel; it is inlined where it is called"),
            ),
            (_, Some(found)) if s.expects("{") && found != Token::BraceOpen => {
                let word = self.controls(i)?;
                Some(
                    self.error(
                        place,
                        format!(
                            "what a{} `{word}` does stands in braces",
                            if word == "if" { "n" } else { "" }
                        ),
                    )
                    .at("expected `{`")
                    .help(match word {
                        "for" => "write `for i in 0..n { … }`".to_owned(),
                        word => format!("write `{word} c {{ … }}`"),
                    }),
                )
            }
            _ => None,
        }
    }

    fn item(&self, i: usize) -> Option<Diagnostic> {
        let place = self.place(i);
        let Token::Name(word) = self.token(i)? else {
            return match self.token(i)? {
                Token::Let => Some(
                    self.error(place, "outside of functions, a value is a `const`")
                        .help("write `const N = 64;`"),
                ),
                _ => None,
            };
        };
        let help = match word {
            "def" | "func" | "function" | "device" | "__device__" => {
                "a function is declared by `fn`, a kernel by `kernel`"
            }
            "import" | "from" | "include" | "using" | "mod" => {
                "write `use std::activation::{silu};`, or `use file::name;` for a file beside this one"
            }
            "__global__" | "global" | "void" => {
                "a kernel is declared by `kernel name(…) grid (…) { … }`"
            }
            "pub" | "public" | "static" | "export" | "extern" => {
                "every item can be used by other files: it needs no word before it"
            }
            "enum" | "class" | "trait" | "impl" => {
                "there are `struct`, `interface`, and `variant` of an interface"
            }
            "type" | "typedef" => {
                "types have no other names; compile-time parameters may be of `dtype`"
            }
            _ => return None,
        };
        Some(
            self.error(place, format!("no item begins with `{word}`"))
                .help(help),
        )
    }

    /// Whether the bracket that is open at `i` stands behind `word`.
    fn opened_by(&self, i: usize, word: Token<'_>) -> bool {
        self.open(i).is_some_and(|o| self.before(o) == Some(word))
    }

    /// Whether spaces stand before the token on its line.
    fn indented(&self, i: usize) -> bool {
        let start = self.place(i).start as usize;
        self.text
            .get(..start)
            .and_then(|before| before.rsplit('\n').next())
            .is_some_and(|line| !line.is_empty() && line.trim().is_empty())
    }

    /// The `if`, `while` or `for` whose body is awaited at `i`.
    fn controls(&self, i: usize) -> Option<&'static str> {
        for k in (0..i).rev() {
            match self.token(k)? {
                Token::If => return Some("if"),
                Token::While => return Some("while"),
                Token::For if self.token(k + 1) != Some(Token::ParenOpen) => return Some("for"),
                Token::Semicolon | Token::BraceOpen | Token::BraceClose => return None,
                _ => {}
            }
        }
        None
    }
}

/// The type that a word of C names.
fn typed(word: &str) -> &str {
    match word {
        "float" => "f32",
        "double" => "f64",
        "half" => "f16",
        "int" | "unsigned" => "i32",
        "long" => "i64",
        "char" => "u8",
        other => other,
    }
}
