//! Kernel sets, as Python sees them.

use std::{collections::HashMap, path::PathBuf, sync::Mutex};

use pyo3::{
    prelude::*,
    types::{PyDict, PyIterator, PyList},
};

use crate::{
    error,
    kernel::{Kernel, Launch},
    op::Op,
};

/// A file of compiled kernels.
///
/// Holds code for the GPU: open only what you trust, as with a shared library.
#[pyclass(frozen, module = "tesserine")]
pub struct KernelSet {
    set: tesserine::KernelSet,
    /// Kernels by the names under which they were asked for, so that each loads its code once.
    kernels: Mutex<HashMap<String, Py<Kernel>>>,
}

impl From<tesserine::KernelSet> for KernelSet {
    fn from(set: tesserine::KernelSet) -> KernelSet {
        KernelSet {
            set,
            kernels: Mutex::default(),
        }
    }
}

#[pymethods]
impl KernelSet {
    /// Opens the kernel set at `path`. Raises SetError if it cannot be used.
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<KernelSet> {
        match py.detach(|| tesserine::KernelSet::open(path)) {
            Ok(set) => Ok(KernelSet::from(set)),
            Err(error) => Err(error::convert(py, &error)),
        }
    }

    /// Reads a kernel set that is in memory. Raises SetError if it cannot be used.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, data: Vec<u8>) -> PyResult<KernelSet> {
        match py.detach(|| tesserine::KernelSet::from_bytes(data)) {
            Ok(set) => Ok(KernelSet::from(set)),
            Err(error) => Err(error::convert(py, &error)),
        }
    }

    /// The set's name.
    #[getter]
    fn name(&self) -> &str {
        &self.set.manifest().name
    }

    /// The file that it was opened from, or None.
    #[getter]
    fn path(&self) -> Option<PathBuf> {
        self.set.file().path().map(PathBuf::from)
    }

    /// The version of the compiler that wrote it.
    #[getter]
    fn compiler(&self) -> &str {
        &self.set.manifest().compiler
    }

    /// The names of all kernels, in the set's order.
    #[getter]
    fn kernels(&self) -> Vec<&str> {
        let instances = &self.set.manifest().instances;
        instances.iter().map(|i| i.name.as_str()).collect()
    }

    /// The names of all ops, in the set's order.
    #[getter]
    fn ops(&self) -> Vec<&str> {
        let ops = &self.set.manifest().ops;
        ops.iter().map(|op| op.name.as_str()).collect()
    }

    /// The op of that name, `gemm_nt_splitk<bf16>`; spaces do not count. Raises NoKernelError if there is none.
    fn op(&self, py: Python<'_>, name: &str) -> PyResult<Op> {
        let op = self.set.op(name).map_err(|e| error::convert(py, &e))?;
        Ok(Op(op))
    }

    /// The kernel of that name, `rmsnorm<bf16>`; spaces do not count. Raises NoKernelError if there is none.
    fn kernel(&self, py: Python<'_>, name: &str) -> PyResult<Py<Kernel>> {
        {
            let kernels = self.kernels.lock().unwrap_or_else(|e| e.into_inner());
            if let Some(kernel) = kernels.get(name) {
                return Ok(kernel.clone_ref(py));
            }
        }
        let kernel = self.set.kernel(name).map_err(|e| error::convert(py, &e))?;
        // Spellings of one name share the kernel.
        let canonical = kernel.name().to_owned();
        let made = Py::new(py, Kernel(kernel))?;
        let mut kernels = self.kernels.lock().unwrap_or_else(|e| e.into_inner());
        let shared = kernels.entry(canonical).or_insert(made).clone_ref(py);
        kernels.insert(name.to_owned(), shared.clone_ref(py));
        Ok(shared)
    }

    /// Launches the kernel of that name: `set.launch(name, x=x, ...)` is `set.kernel(name)(x=x, ...)`.
    #[pyo3(signature = (name, arguments=None, /, *, stream=None, target=None, **named))]
    fn launch(
        &self,
        py: Python<'_>,
        name: &str,
        arguments: Option<&Bound<'_, PyDict>>,
        stream: Option<&Bound<'_, PyAny>>,
        target: Option<&str>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Launch> {
        let kernel = self.kernel(py, name)?;
        kernel.get().launch(py, arguments, stream, target, named)
    }

    fn __getitem__(&self, py: Python<'_>, name: &str) -> PyResult<Py<Kernel>> {
        self.kernel(py, name)
    }

    fn __contains__(&self, name: &str) -> bool {
        self.set.kernel(name).is_ok()
    }

    fn __len__(&self) -> usize {
        self.set.manifest().instances.len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyList::new(py, self.kernels())?.try_iter()
    }

    fn __repr__(&self) -> String {
        let count = self.__len__();
        format!("<KernelSet {}: {count} kernels>", self.name())
    }
}

/// The files of the kernel sets that are found in `$TESSERINE_SETS`, `target/sets` and the user's data folder, and
/// that open.
#[pyfunction]
pub fn find_sets(py: Python<'_>) -> Vec<PathBuf> {
    py.detach(|| {
        let found = tesserine::find_sets().into_iter();
        found.filter(|f| f.set.is_ok()).map(|f| f.path).collect()
    })
}
