//! Passes: from tile IR to role IR that code can be generated from.
//!
//! ```text
//! tile IR ──make_roles──▶ ──expand──▶ ──expand_f64──▶ ──simplify──▶ ──masks──▶ ──unswitch──▶ ──sums_apart──▶ ──fill_early──▶ ──release_early──▶
//!     ──unroll_pending──▶ tile IR ──form_roles──▶ role IR ──pipeline──▶ ──assign_layouts──▶ ──allocate──▶ ──insert_barriers──▶
//!     ──hold_release──▶ ──share_replicas──▶ role IR
//! ```
//!
//! One file a pass. [`PASSES`] is the one list that says their order, their names for `--dump-after`, and what they do.
//! Invariants: a pass leaves valid IR (debug builds verify after each); it is deterministic; it keeps the meaning that the
//! interpreter gives, up to the order of floating sums. After `form_roles` all roles are known, after `assign_layouts`
//! every tile has a layout and every conversion is an operation, after `allocate` every buffer has an offset, after
//! `insert_barriers` no two threads touch the same bytes unordered.

mod access;
mod allocate;
mod assign_layouts;
mod divisibility;
mod expand;
mod expand_f64;
mod fill_early;
mod form_roles;
mod hold_release;
mod insert_barriers;
mod lower_roles;
mod make_roles;
mod masks;
mod pipeline;
mod release_early;
mod share_replicas;
mod simplify;
mod sums_apart;
mod unroll_pending;
mod unswitch;

use std::fmt::Display;

use crate::{
    diagnostics::Diagnostics,
    ir::{role, tile},
    target::Target,
};

pub use divisibility::Divisibility;

/// What `--dump-after` and the documentation say of a pass.
#[derive(Clone, Copy, Debug)]
pub struct PassInfo {
    pub name: &'static str,
    pub what: &'static str,
    run: Run,
}

/// A pass changes one level, or goes from tile IR to role IR.
#[derive(Clone, Copy, Debug)]
enum Run {
    Tile(fn(&mut tile::Kernel)),
    Divide(fn(&mut tile::Kernel, Target) -> Result<(), Diagnostics>),
    Form(fn(&tile::Kernel, Target) -> Result<role::Kernel, Diagnostics>),
    Role(fn(&mut role::Kernel, Target) -> Result<(), Diagnostics>),
}

/// All passes in order.
pub const PASSES: &[PassInfo] = &[
    PassInfo {
        name: "make_roles",
        what: "divides kernels of the tile level into roles, where the schedule asks for them",
        run: Run::Divide(make_roles::run),
    },
    PassInfo {
        name: "expand",
        what: "writes sorting, the largest, occurrences and batched products in terms of other operations",
        run: Run::Tile(expand::run),
    },
    PassInfo {
        name: "expand_f64",
        what: "writes functions of f64 in terms of arithmetic",
        run: Run::Tile(expand_f64::run),
    },
    PassInfo {
        name: "simplify",
        what: "folds constants, merges equal operations, removes what has no effect",
        run: Run::Tile(simplify::run),
    },
    PassInfo {
        name: "masks",
        what: "decides once what a choice by rows and columns decides for a whole tile of a role",
        run: Run::Tile(masks::run),
    },
    PassInfo {
        name: "unswitch",
        what: "writes a loop of roles for each arm of a choice that no iteration changes",
        run: Run::Tile(unswitch::run),
    },
    PassInfo {
        name: "sums_apart",
        what: "carries sums of rows in parts, as the lanes of a warp have them, and adds these up behind the loop",
        run: Run::Tile(sums_apart::run),
    },
    PassInfo {
        name: "fill_early",
        what: "puts first in a tile what has room first",
        run: Run::Tile(fill_early::run),
    },
    PassInfo {
        name: "release_early",
        what: "gives slots back right behind the last operation that reads them",
        run: Run::Tile(release_early::run),
    },
    PassInfo {
        name: "unroll_pending",
        what: "writes out two iterations of loops that carry a product in flight, so that no accumulator moves",
        run: Run::Tile(unroll_pending::run),
    },
    PassInfo {
        name: "form_roles",
        what: "says which warps execute what: the roles of the source, or one of all warps",
        run: Run::Form(form_roles::run),
    },
    PassInfo {
        name: "pipeline",
        what: "passes what products in loops read through channels, filled some iterations ahead",
        run: Run::Role(pipeline::run),
    },
    PassInfo {
        name: "assign_layouts",
        what: "gives every tile a layout, every access its width, and inserts conversions",
        run: Run::Role(assign_layouts::run),
    },
    PassInfo {
        name: "allocate",
        what: "places buffers in shared memory and checks the target's limit",
        run: Run::Role(allocate::run),
    },
    PassInfo {
        name: "insert_barriers",
        what: "orders what the threads of a block store, and reload or store again",
        run: Run::Role(insert_barriers::run),
    },
    PassInfo {
        name: "hold_release",
        what: "gives a slot back behind the maxima between two waits for products, so that the second is not moved before them",
        run: Run::Role(hold_release::run),
    },
    PassInfo {
        name: "share_replicas",
        what: "lets two replicas of a role run one body, where theirs are alike",
        run: Run::Role(share_replicas::run),
    },
];

/// Lowers one body of an instance for `target`.
pub fn lower(kernel: &tile::Kernel, target: &Target) -> Result<role::Kernel, Diagnostics> {
    lower_with(kernel, target, &mut |_, _| ())
}

/// The kernel with the roles that its schedule asks for, as tile IR that can be printed as source.
pub fn with_roles(kernel: &tile::Kernel, target: Target) -> Result<tile::Kernel, Diagnostics> {
    let mut kernel = kernel.clone();
    make_roles::run(&mut kernel, target)?;
    Ok(kernel)
}

/// As [`lower`]; `observe` sees the name of each pass and the kernel after it.
pub fn lower_with(
    kernel: &tile::Kernel,
    target: &Target,
    observe: &mut dyn FnMut(&str, &dyn Display),
) -> Result<role::Kernel, Diagnostics> {
    let mut tile = kernel.clone();
    let mut role = None;
    for pass in PASSES {
        match (pass.run, &mut role) {
            (Run::Tile(run), None) => {
                run(&mut tile);
                verified(pass, &tile, tile::verify);
                observe(pass.name, &tile);
            }
            (Run::Divide(run), None) => {
                run(&mut tile, *target)?;
                verified(pass, &tile, tile::verify);
                observe(pass.name, &tile);
            }
            (Run::Form(run), None) => {
                let formed = run(&tile, *target)?;
                verified(pass, &formed, role::verify);
                observe(pass.name, &formed);
                role = Some(formed);
            }
            (Run::Role(run), Some(role)) => {
                run(role, *target)?;
                verified(pass, role, role::verify);
                observe(pass.name, role);
            }
            (Run::Tile(_) | Run::Divide(_) | Run::Form(_), Some(_)) | (Run::Role(_), None) => {
                unreachable!("`{}` stands on the wrong side of `form_roles`", pass.name)
            }
        }
    }
    match role {
        Some(role) => Ok(role),
        None => unreachable!("`form_roles` is in the list"),
    }
}

/// In debug builds, panics with the kernel if a pass broke it.
fn verified<K: Display, E: Display>(
    pass: &PassInfo,
    kernel: &K,
    verify: impl Fn(&K) -> Result<(), Vec<E>>,
) {
    if cfg!(debug_assertions)
        && let Err(errors) = verify(kernel)
    {
        let errors: Vec<String> = errors.iter().map(E::to_string).collect();
        panic!(
            "`{}` left an invalid kernel:\n{}\n{kernel}",
            pass.name,
            errors.join("\n")
        );
    }
}
