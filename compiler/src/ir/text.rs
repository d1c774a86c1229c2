//! The textual form of both levels: what printer and parser share.
//!
//! ```text
//! kernel "axpy<f32>"
//!   dims n
//!   param x: view<f32>[n]
//!   param y: out view<f32>[n]
//!   axis i in ceil_div(n, 256)
//! {
//!   %0 = param x : view<f32>[?]
//!   %1 = grid i : i64
//!   …
//!   store %5[%4 +: 256] = %9
//!   return
//! }
//! ```
//!
//! An operation is `results = name attributes operands : result types { |arguments| operations } …`. How a kind writes
//! its attributes and operands is the business of its [`Dialect`]; all else is here. Values are numbered in the order of
//! the text, so that printing does not depend on how a body came about, and printing what was parsed gives the same
//! text. Spans are not printed.

mod parse;
mod print;

pub use parse::{ParseError, Parser};
pub use print::Printer;
pub(in crate::ir) use print::access;

use super::{Op, ValueId};

/// A level of the IR, implemented by its operation kinds.
pub trait Dialect: Sized {
    type Type: Clone;

    /// Writes name, attributes and operands of `op`.
    fn print_op(op: &Op<Self>, out: &mut Printer<'_>);

    fn print_type(ty: &Self::Type, out: &mut Printer<'_>);

    /// Reads what [`print_op`](Dialect::print_op) writes: the kind and the operands.
    fn parse_op(p: &mut Parser<'_>) -> Result<(Self, Vec<ValueId>), ParseError>;

    fn parse_type(p: &mut Parser<'_>) -> Result<Self::Type, ParseError>;
}
