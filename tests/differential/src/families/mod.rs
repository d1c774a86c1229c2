//! The snippets, a file a family (PTX ISA §9.7).

mod approximate;
mod atomic;
mod barrier;
mod cluster;
mod compare;
mod convert;
mod copy;
mod float;
mod half;
mod integer;
mod logic;
mod matrix;
mod memory;
mod tensor;
mod warp;
mod wgmma;

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
        atomic::snippets(),
        barrier::snippets(),
        matrix::snippets(),
        copy::snippets(),
        cluster::snippets(),
        tensor::snippets(),
        wgmma::snippets(),
    ];
    families.into_iter().flatten().collect()
}
