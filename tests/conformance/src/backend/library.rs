//! The kernels' sources, as they were when this program was built.

use tesserine_compiler::{
    diagnostics::{Diagnostics, render},
    span::SourceMap,
};

use super::Refusal;

const SOURCES: [(&str, &str); 7] = [
    (
        "basics/axpy.tess",
        include_str!("../../../../kernels-dsl/basics/axpy.tess"),
    ),
    (
        "basics/transpose.tess",
        include_str!("../../../../kernels-dsl/basics/transpose.tess"),
    ),
    (
        "norm/rmsnorm.tess",
        include_str!("../../../../kernels-dsl/norm/rmsnorm.tess"),
    ),
    (
        "norm/layernorm.tess",
        include_str!("../../../../kernels-dsl/norm/layernorm.tess"),
    ),
    (
        "norm/softmax.tess",
        include_str!("../../../../kernels-dsl/norm/softmax.tess"),
    ),
    (
        "activation/gated.tess",
        include_str!("../../../../kernels-dsl/activation/gated.tess"),
    ),
    (
        "gemm/dense.tess",
        include_str!("../../../../kernels-dsl/gemm/dense.tess"),
    ),
];

/// The text of a source, by its path relative to `kernels-dsl`.
pub fn source(path: &str) -> Result<&'static str, Refusal> {
    let found = SOURCES.iter().find(|(name, _)| *name == path);
    match found {
        Some((_, text)) => Ok(text),
        None => Err(Refusal::Failed(format!(
            "{path} is no source of the library"
        ))),
    }
}

/// All diagnostics as text.
pub fn show(sources: &SourceMap, diagnostics: &Diagnostics) -> String {
    let list = diagnostics.iter();
    list.map(|d| render(d, sources, false)).collect()
}
