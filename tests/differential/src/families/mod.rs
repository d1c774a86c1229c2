//! The snippets, a file a family (PTX ISA §9.7).

mod approximate;
mod compare;
mod convert;
mod float;
mod half;
mod integer;
mod logic;
mod memory;
mod warp;

use crate::snippet::Snippet;

/// All snippets; names are unique.
pub fn all() -> Vec<Snippet> {
    let families = [
        integer::snippets(),
        compare::snippets(),
        logic::snippets(),
        float::snippets(),
        half::snippets(),
        approximate::snippets(),
        convert::snippets(),
        memory::snippets(),
        warp::snippets(),
    ];
    families.into_iter().flatten().collect()
}
