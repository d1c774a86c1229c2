//! The list of codes, and the page that `tess explain` prints for each: `docs/errors/CODE.md`, embedded.
//!
//! Families: E00 text, E01 names and types, E02 shapes and dimensions, E03 constants, E04 races and facts,
//! E05 launch and `op`, E06 schedules and target limits, E07 roles, channels and pending products, E08 tests.

use std::fmt;

/// A diagnostic's code. Only this module makes them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(&'static str);

impl Code {
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

macro_rules! codes {
    ($($name:ident: $summary:literal,)*) => {
        $(#[doc = $summary] pub const $name: Code = Code(stringify!($name));)*

        /// Every code with its one-line summary and its page.
        pub const ALL: &[(Code, &str, &str)] = &[
            $(($name, $summary, include_str!(concat!("../../../docs/errors/", stringify!($name), ".md"))),)*
        ];
    };
}

codes! {
    E0001: "text that is no token",
    E0002: "a token where the grammar allows others",
    E0003: "nested too deeply",
    E0004: "a number that is too large",
    E0010: "parsed, but not yet compiled",
    E0610: "the target has no instruction for this",
    E0620: "a number of warps that a block cannot have",
    E0621: "more shared memory than the target gives a block",
    E0690: "code generation failed",
    E0801: "an assertion does not hold",
    E0802: "a division by zero, or a loop without a positive step",
    E0803: "data that is not as its view promises",
    E0804: "an output of which not all was written",
    E0805: "two blocks use one element, and one stores to it",
    E0806: "a launch that does not fit its kernel",
}

/// The page of `code`, if there is such a code.
pub fn explain(code: &str) -> Option<&'static str> {
    ALL.iter()
        .find(|(c, ..)| c.0.eq_ignore_ascii_case(code))
        .map(|(_, _, page)| *page)
}
