//! The native half of the Python package `tesserine`: sets, kernels and launches on tensors that Python holds.
//!
//! The other half is `python/tesserine/`: the names that users import, the exceptions and the type stubs. Users see no
//! `_native` but in tracebacks.
//!
//! Invariants: nothing here imports a framework, nor needs one to build; a tensor's memory is never copied, and its
//! contents never read, but for emulated devices; arguments are checked in full before a driver is looked for; every exception about an argument
//! is an `ArgumentError` that names it; the interpreter is released while code is loaded and kernels are queued.

mod argument;
mod device;
mod emulate;
mod error;
mod kernel;
mod op;
mod scalar;
mod set;
mod tensor;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<set::KernelSet>()?;
    module.add_class::<kernel::Kernel>()?;
    module.add_class::<op::Op>()?;
    module.add_class::<op::Workspace>()?;
    module.add_class::<kernel::Parameter>()?;
    module.add_class::<kernel::Launch>()?;
    module.add_class::<device::CudaDevice>()?;
    module.add_function(wrap_pyfunction!(set::find_sets, module)?)?;
    module.add_function(wrap_pyfunction!(device::cuda_devices, module)?)?;
    module.add_function(wrap_pyfunction!(device::driver_version, module)?)?;
    Ok(())
}
