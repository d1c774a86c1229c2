//! One stage of one kernel's compilation, as text: what `tess emit` prints and snapshots keep.

use std::fmt::Display;

use crate::{
    diagnostics::Diagnostics,
    ir::{role, tile},
    passes,
    target::Target,
};

#[cfg(feature = "llvm")]
use super::ptxas::{self, Ptxas, PtxasError};
#[cfg(feature = "llvm")]
use crate::span::SourceMap;

/// The name of the pass after which role IR is first there.
const FORM_ROLES: &str = "form_roles";

/// The body that `tess emit` prints: the one under all facts, or the general one.
pub fn body(instance: &tile::Instance, general: bool) -> &tile::Kernel {
    let body = if general {
        instance.bodies.last()
    } else {
        instance.bodies.first()
    };
    body.expect("an instance has a body")
}

/// Role IR as the pass that forms it leaves it.
pub fn roles(kernel: &tile::Kernel, target: Target) -> Result<String, Diagnostics> {
    let mut text = String::new();
    lowered(kernel, target, &mut |pass, state| {
        if pass == FORM_ROLES {
            text = state.to_string();
        }
    })?;
    Ok(text)
}

/// Role IR after all passes: layouts, buffers, barriers.
pub fn layout(kernel: &tile::Kernel, target: Target) -> Result<String, Diagnostics> {
    Ok(lowered(kernel, target, &mut |_, _| ())?.to_string())
}

/// What each pass that `wanted` names left, in the order of the passes.
pub fn after_passes(
    kernel: &tile::Kernel,
    target: Target,
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<(String, String)>, Diagnostics> {
    let mut dumps = Vec::new();
    lowered(kernel, target, &mut |pass, state| {
        if wanted(pass) {
            dumps.push((pass.to_owned(), state.to_string()));
        }
    })?;
    Ok(dumps)
}

fn lowered(
    kernel: &tile::Kernel,
    target: Target,
    observe: &mut dyn FnMut(&str, &dyn Display),
) -> Result<role::Kernel, Diagnostics> {
    passes::lower_with(kernel, &target, observe)
}

/// Compiles one body.
#[cfg(feature = "llvm")]
pub fn compile(
    kernel: &tile::Kernel,
    target: Target,
    sources: &SourceMap,
) -> Result<crate::codegen::Module, Diagnostics> {
    crate::codegen::compile(&passes::lower(kernel, &target)?, target, sources)
}

/// The machine code of a module.
#[cfg(feature = "llvm")]
pub fn sass(module: &crate::codegen::Module, target: Target) -> Result<String, PtxasError> {
    let assembled = Ptxas::find()?.assemble(&module.ptx, target)?;
    ptxas::disassemble(&assembled.cubin)
}
