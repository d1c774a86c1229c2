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
    E0101: "a name that means nothing here",
    E0102: "a value of another type",
    E0103: "a name defined twice",
    E0104: "a `use` that names nothing",
    E0105: "modules that use each other in a circle",
    E0106: "a field or file that is not there",
    E0107: "arguments that do not fit",
    E0108: "a thing of another kind",
    E0109: "a condition that is no truth value",
    E0110: "`&&` or `||` on tiles",
    E0111: "something that cannot be assigned to",
    E0112: "recursion",
    E0113: "a variable that would change its type",
    E0114: "a variant that does not fit its interface",
    E0115: "thread-level words",
    E0116: "an optional parameter that may be missing",
    E0117: "a store to a read-only view",
    E0118: "a read of an `out view`",
    E0201: "shapes that do not fit together",
    E0202: "a wrong number of indices",
    E0203: "a tile that does not fill its slice",
    E0204: "a reshape to another number of elements",
    E0205: "an extent that no tile can have",
    E0206: "an axis that is not there",
    E0207: "an index outside a tile",
    E0208: "a dimension that no argument binds",
    E0209: "a slice without a constant shape",
    E0210: "a view that cannot be seen so",
    E0211: "packed elements that do not begin at whole bytes",
    E0212: "a layout that gives two elements one place",
    E0301: "something that must be a constant",
    E0302: "constant arithmetic without a value",
    E0303: "an `assert const` that fails",
    E0304: "compile-time arguments that do not fit",
    E0305: "a kernel that grows too large",
    E0306: "a constant that does not fit its type",
    E0401: "a store that could race",
    E0402: "a read that could race",
    E0403: "a fact that cannot be stated",
    E0410: "an exchange within a cluster that a block may miss",
    E0501: "a name that is no instance",
    E0502: "a kernel that is not there",
    E0503: "a parameter that a kernel cannot take",
    E0504: "a fact that a launch cannot evaluate",
    E0505: "a grid that a launch cannot evaluate",
    E0506: "an argument that a launch cannot take",
    E0507: "a workspace that cannot be",
    E0508: "what an `op` cannot do",
    E0601: "a schedule key that is not there",
    E0602: "a schedule value that does not serve",
    E0603: "a target that is not there",
    E0604: "a schedule or body without its kernel",
    E0605: "a kernel without a body for the target",
    E0606: "a cluster that the target does not have",
    E0610: "the target has no instruction for this",
    E0620: "a number of warps that a block cannot have",
    E0621: "more shared memory than the target gives a block",
    E0622: "a tile that is too large for a block",
    E0623: "roles that a schedule asks for and a kernel cannot have",
    E0690: "code generation failed",
    E0701: "a word of the role level out of its place",
    E0702: "a product that is used before it is awaited",
    E0703: "a product that nobody awaits",
    E0704: "a channel that cannot be",
    E0705: "a `put`, `get` or `release` that does not fit its channel",
    E0706: "a view that two roles touch",
    E0707: "roles that do not fit a block",
    E0708: "a requirement that is not met",
    E0720: "control around a channel operation that roles cannot share",
    E0721: "roles that wait for each other for ever",
    E0722: "puts and gets that differ in number",
    E0723: "a slot that is held at the end of a role",
    E0724: "a slot that is used without being held",
    E0725: "parts that do not fill a slot",
    E0726: "a replica that misses a turn",
    E0727: "a `lag` that is not the number of products in flight",
    E0728: "a channel that two roles put into",
    E0729: "a slot handed on that others use",
    E0730: "channels that are too much to check",
    E0801: "an assertion does not hold",
    E0802: "a division by zero, or a loop without a positive step",
    E0803: "data that is not as its view promises",
    E0804: "an output of which not all was written",
    E0805: "two blocks use one element, and one stores to it",
    E0806: "a launch that does not fit its kernel",
    E0807: "an element that one access stores to twice",
    E0808: "a counter at which more or fewer blocks arrive than it says",
    E0810: "an expectation that does not hold",
    E0811: "an expected error that did not come",
    E0812: "a device that does not agree with the interpreter",
    E0813: "a tensor or argument that a test cannot make",
    E0814: "something that runs too long",
}

/// The page of `code`, if there is such a code.
pub fn explain(code: &str) -> Option<&'static str> {
    ALL.iter()
        .find(|(c, ..)| c.0.eq_ignore_ascii_case(code))
        .map(|(_, _, page)| *page)
}
