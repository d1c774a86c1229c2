//! Number formats, rounding and floating-point arithmetic, bit by bit (PTX ISA §5.2.3, §9.7.3 to §9.7.5, §9.7.9).
//!
//! - `format`: what bits of each format mean, and the one routine that rounds an exact value into any of them.
//! - `arithmetic`: every operation in every format and rounding mode, computed exactly and then rounded; slow, and the reference of the rest.
//! - `single`, `double`, `half`: what the instructions of each width do, with their modifiers; native where the host rounds alike.
//! - `approximate`: the `.approx` functions, whose bits the ISA leaves open: the correctly rounded result, and the tables' special cases.
//! - `convert`: floats to and from floats and integers. `lanes`: hot operations over the 32 lanes of a warp, written to be vectorised.
//!
//! Invariants: values go in and out as bits; no function panics on any bits; NaN results are the ISA's canonical ones (`0x7fffffff`,
//! `0x7fff`) but in `double`, whose payloads go through, quieted (PTX ISA §9.7.3).

pub(crate) mod approximate;
pub(crate) mod arithmetic;
pub(crate) mod convert;
pub(crate) mod double;
pub(crate) mod format;
pub(crate) mod half;
pub(crate) mod lanes;
pub(crate) mod single;

pub(crate) use format::{Exact, Format, Value};

/// Where a value between two neighbours of a format goes (PTX ISA §6.5.2, Rounding Modifiers).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Rounding {
    /// `.rn`, `.rni`: the nearer; of two as near, the one with an even significand.
    #[default]
    NearestEven,
    /// `.rna`: the nearer; of two as near, the larger magnitude.
    NearestAway,
    /// `.rz`, `.rzi`
    Zero,
    /// `.rp`, `.rpi`
    Up,
    /// `.rm`, `.rmi`
    Down,
}

/// What a float instruction does besides its operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Modifiers {
    pub rounding: Rounding,
    /// `.ftz`: subnormal inputs and results become zeros of their signs.
    pub ftz: bool,
    /// `.sat`: the result is clamped to 0.0 to 1.0, and a NaN becomes +0.
    pub saturate: bool,
    /// `.relu`: a negative result becomes +0; a NaN stays the canonical NaN.
    pub relu: bool,
}

/// How `min` and `max` treat their inputs (PTX ISA §9.7.3.11, §9.7.3.12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Selection {
    /// The larger, not the smaller.
    pub largest: bool,
    pub ftz: bool,
    /// `.NaN`: a NaN makes the result the canonical NaN; without it the other input is the result.
    pub propagate: bool,
    /// `.xorsign.abs`: of the magnitudes, with the product's sign.
    pub xorsign: bool,
    /// `.abs` (of three inputs): of the magnitudes.
    pub magnitudes: bool,
}
