//! The Tess compiler: from source to PTX, with every stage visible.
//!
//! A [`Session`] loads files and all that they use. [`Session::instantiate`] gives one kernel with its compile-time
//! arguments, for one target, as tile IR: what the kernel means, which [`interp`] runs. [`passes::lower`] makes role IR of
//! it: how it runs, with layouts, shared memory and barriers. `codegen::compile` (feature `llvm`) makes PTX of that, and
//! [`emit`] machine code and kernel sets.
//!
//! Invariants: no input panics, and what is wrong with one is a [`diagnostics::Diagnostic`]; nothing reads the clock, the
//! environment or a hash map's order on the way to PTX; only [`target`] knows one SM from another.

#[cfg(feature = "llvm")]
pub mod codegen;
pub mod diagnostics;
pub mod emit;
pub mod interp;
pub mod ir;
pub mod layout;
pub mod passes;
pub mod sema;
pub mod span;
pub mod syntax;
pub mod target;
pub mod testing;

use std::path::Path;

use diagnostics::Diagnostics;
use ir::tile;
use span::SourceMap;
use target::Target;

pub use sema::{CParamInfo, KernelInfo, Module};

/// Loaded sources, and what is made from them. Instances may be made from several threads at once.
#[derive(Debug, Default)]
pub struct Session {
    program: sema::Program,
}

impl Session {
    pub fn new() -> Session {
        Session::default()
    }

    /// The files loaded so far, for rendering diagnostics.
    pub fn sources(&self) -> &SourceMap {
        self.program.sources()
    }

    /// Loads `path` and all that it uses. `root`: the folder that names in diagnostics and line information are relative
    /// to; the file's own if none is given. The errors are those of reading, parsing and of `use`.
    pub fn load(&mut self, path: &Path, root: Option<&Path>) -> Result<Module, Diagnostics> {
        self.program.load(path, root)
    }

    /// Takes `text` as a file of this name. It can use `std` only.
    pub fn load_text(&mut self, name: &str, text: &str) -> Result<Module, Diagnostics> {
        self.program.load_text(name, text)
    }

    /// Everything that is wrong with a module: the names of every item, and every kernel for representative arguments
    /// and each group of targets that its schedule tells apart.
    pub fn check(&self, module: Module) -> Diagnostics {
        sema::check(&self.program, module)
    }

    /// The kernels that a module declares, in source order.
    pub fn kernels(&self, module: Module) -> Vec<KernelInfo> {
        sema::kernels(&self.program, module)
    }

    /// The instance named `instance` (`gemm_nt<bf16, BM = 64>`) for `target`: its bodies in the order in which a launch
    /// tries them, specialised before general.
    pub fn instantiate(
        &self,
        module: Module,
        instance: &str,
        target: Target,
    ) -> Result<tile::Instance, Diagnostics> {
        sema::instantiate(&self.program, module, instance, target)
    }

    /// The tests that a module declares, in source order.
    pub fn tests(&self, module: Module) -> Vec<testing::TestInfo> {
        testing::tests(&self.program, module)
    }

    /// Runs one of [`Session::tests`].
    pub fn run_test(
        &self,
        module: Module,
        test: &testing::TestInfo,
        options: &testing::Options<'_>,
    ) -> testing::Outcome {
        testing::run(&self.program, module, test, options)
    }

    /// The instances that a test launches, without running them.
    pub fn launches(
        &self,
        module: Module,
        test: &testing::TestInfo,
    ) -> Result<Vec<String>, Diagnostics> {
        testing::launches(&self.program, module, test)
    }

    /// The ops that a module declares, in source order.
    pub fn ops(&self, module: Module) -> Vec<String> {
        sema::ops(&self.program, module)
    }

    /// Whether `instance` names an op of the module or of one that it uses, and not a kernel.
    pub fn is_op(&self, module: Module, instance: &str) -> bool {
        sema::is_op(&self.program, module, instance)
    }

    /// The op named `instance` for `target`, with the instances that it launches.
    pub fn instantiate_op(
        &self,
        module: Module,
        instance: &str,
        target: Target,
    ) -> Result<ir::op::Op, Diagnostics> {
        sema::instantiate_op(&self.program, module, instance, target)
    }

    /// The name of a module's own file, relative to the root that it was loaded for.
    pub fn file_name(&self, module: Module) -> &str {
        let file = self.program.sources().get(self.program.file(module));
        file.map_or("", |f| f.name.as_str())
    }

    /// Where the item that `name` means in `module` is declared.
    pub fn declaration(&self, module: Module, name: &str) -> Option<span::Span> {
        self.program.declaration(module, name)
    }

    /// SHA-256 over the texts of the module and all that it uses, in hexadecimal.
    pub fn source_hash(&self, module: Module) -> String {
        self.program.source_hash(module)
    }

    /// The syntax tree of a module's own file.
    pub fn ast(&self, module: Module) -> &syntax::ast::File {
        self.program.ast(module)
    }
}
