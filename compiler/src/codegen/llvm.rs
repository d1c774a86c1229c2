//! From LLVM IR text to PTX, inside this process.
//!
//! LLVM contexts are not shared: each call makes its own, so that any number of threads may compile at once.

use std::sync::Once;

use inkwell::{
    OptimizationLevel,
    context::Context,
    memory_buffer::MemoryBuffer,
    passes::PassBuilderOptions,
    targets::{
        CodeModel, FileType, InitializationConfig, RelocMode, Target as LlvmTarget, TargetTriple,
    },
};

use crate::target::{PtxVersion, Target};

/// LLVM refused what codegen made: a bug of the compiler.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("LLVM refused the module: {0}")]
pub struct LlvmError(pub String);

/// The version of the LLVM that is linked: `22.1.2`.
pub fn version() -> String {
    let (major, minor, patch) = inkwell::support::get_llvm_version();
    format!("{major}.{minor}.{patch}")
}

/// The optimised module's text, and its PTX.
pub fn assemble(
    text: &str,
    target: Target,
    version: PtxVersion,
) -> Result<(String, String), LlvmError> {
    static INITIALIZE: Once = Once::new();
    INITIALIZE.call_once(|| LlvmTarget::initialize_nvptx(&InitializationConfig::default()));

    let fail = |e: inkwell::support::LLVMString| LlvmError(e.to_string_lossy().trim().to_owned());
    let triple = TargetTriple::create("nvptx64-nvidia-cuda");
    let machine = LlvmTarget::from_triple(&triple)
        .map_err(fail)?
        .create_target_machine(
            &triple,
            target.name(),
            &format!("+ptx{}{}", version.0, version.1),
            OptimizationLevel::Aggressive,
            RelocMode::Default,
            CodeModel::Default,
        )
        .ok_or_else(|| LlvmError(format!("there is no machine for {target}")))?;
    machine.set_asm_verbosity(false);

    let context = Context::create();
    let buffer = MemoryBuffer::create_from_memory_range_copy(text.as_bytes(), "kernel");
    let module = context.create_module_from_ir(buffer).map_err(fail)?;
    module.set_data_layout(&machine.get_target_data().get_data_layout());
    module.verify().map_err(fail)?;

    let options = PassBuilderOptions::create();
    options.set_loop_unrolling(false);
    options.set_loop_vectorization(false);
    options.set_loop_slp_vectorization(false);
    module
        .run_passes("default<O2>", &machine, options)
        .map_err(fail)?;
    let ir = module.print_to_string().to_string();
    let out = machine
        .write_to_memory_buffer(&module, FileType::Assembly)
        .map_err(fail)?;
    let ptx = String::from_utf8_lossy(out.as_slice());
    let ptx = ptx.trim_end_matches('\0');
    Ok((ir, without_comments(ptx)))
}

/// PTX without LLVM's comments: the one at its head names LLVM's version, those around inline PTX say nothing.
fn without_comments(ptx: &str) -> String {
    let mut out: String = ptx
        .lines()
        .skip_while(|line| line.starts_with("//") || line.trim().is_empty())
        .filter(|line| !line.trim_start().starts_with("// "))
        .map(|line| format!("{line}\n"))
        .collect();
    while out.ends_with("\n\n") {
        out.pop();
    }
    out
}
