//! Ops and their workspaces, as Python sees them.

use pyo3::{
    prelude::*,
    types::{PyDict, PyInt},
};

use crate::{
    argument::{Arguments, Places},
    device, emulate, error,
    kernel::{Launch, Parameter, bound, launched, parameter, target_known},
    tensor::{Place, Tensor},
};

/// One op of a set: several launches with the workspace between them. Called with its arguments by name, it is run.
#[pyclass(frozen, module = "tesserine")]
pub struct Op(pub tesserine::Op);

/// The memory that runs of an op use between their launches: one run at a time, so one for each stream.
#[pyclass(frozen, module = "tesserine")]
pub struct Workspace {
    workspace: tesserine::Workspace,
    /// Keeps the memory alive, if it is Python's.
    _owner: Option<Py<PyAny>>,
}

#[pymethods]
impl Workspace {
    /// So many bytes of CUDA device `device`, or a tensor of bytes there. Raises DeviceError, ArgumentError.
    #[new]
    #[pyo3(signature = (memory, device=0))]
    fn new(py: Python<'_>, memory: &Bound<'_, PyAny>, device: usize) -> PyResult<Workspace> {
        let raise = |error: tesserine::Error| error::convert(py, &error);
        if memory.is_instance_of::<PyInt>() {
            let bytes: u64 = memory.extract()?;
            let device = device::open(py, device)?;
            let made = py.detach(|| tesserine::Workspace::new(&device, bytes));
            return Ok(Workspace {
                workspace: made.map_err(raise)?,
                _owner: None,
            });
        }
        let unfit = |reason: &str| {
            let message = format!("the memory of a workspace {reason}");
            error::argument(py, "Workspace", Some("memory"), message)
        };
        let tensor = Tensor::read(memory).map_err(|reason| unfit(&reason))?;
        if !matches!(tensor.place, Place::Cuda(_)) {
            return Err(unfit("lies on a CUDA device"));
        }
        let mut bytes = i64::from(tensor.dtype.bits() / 8);
        for (extent, stride) in tensor.shape.iter().zip(&tensor.strides).rev() {
            if *extent > 1 && stride * i64::from(tensor.dtype.bits() / 8) != bytes {
                return Err(unfit("has no gaps"));
            }
            bytes *= extent;
        }
        // SAFETY: the tensor is kept alive with the workspace; that nobody else uses it is asked of the caller.
        let made = unsafe { tesserine::Workspace::from_raw(tensor.pointer, bytes.max(0) as u64) };
        Ok(Workspace {
            workspace: made.map_err(raise)?,
            _owner: Some(memory.clone().unbind()),
        })
    }

    /// Bytes.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.workspace.byte_size()
    }

    fn __repr__(&self) -> String {
        format!("<Workspace of {} bytes>", self.workspace.byte_size())
    }
}

impl Op {
    fn fault(&self, py: Python<'_>, argument: &str, reason: &str) -> PyErr {
        let message = format!("`{}`: `{argument}` {reason}", self.0.name());
        error::argument(py, self.0.name(), Some(argument), message)
    }

    fn read(
        &self,
        py: Python<'_>,
        arguments: Option<&Bound<'_, PyDict>>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Arguments> {
        let signature = &self.0.record().signature;
        Arguments::read(py, self.0.name(), signature, arguments, named)
    }
}

#[pymethods]
impl Op {
    /// The op's name: `gemm_nt_splitk<bf16>`.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// The file that it was compiled from, relative to the set's own source.
    #[getter]
    fn source(&self) -> &str {
        &self.0.record().source
    }

    /// What it takes, in order.
    #[getter]
    fn parameters(&self) -> Vec<Parameter> {
        let signature = &self.0.record().signature;
        let params = signature.params.iter();
        params.map(|p| parameter(signature, p)).collect()
    }

    /// The names of the kernels that it launches, in order.
    #[getter]
    fn launches(&self) -> Vec<&str> {
        self.0.kernels().iter().map(|k| k.name()).collect()
    }

    /// Bytes of workspace that a run needs, exactly, from the dimensions and integer numbers that it depends on. Raises
    /// ArgumentError.
    #[pyo3(signature = (dims=None, /, **named))]
    fn workspace_size(
        &self,
        py: Python<'_>,
        dims: Option<&Bound<'_, PyDict>>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<u64> {
        let mut values: Vec<(String, i64)> = Vec::new();
        for (name, value) in [dims, named].into_iter().flatten().flatten() {
            values.push((name.extract()?, value.extract()?));
        }
        let listed: Vec<(&str, i64)> = values.iter().map(|(n, v)| (n.as_str(), *v)).collect();
        self.0
            .workspace_size(&listed)
            .map_err(|e| error::convert(py, &e))
    }

    /// Bytes of workspace that a call with these arguments needs. Raises ArgumentError.
    #[pyo3(signature = (arguments=None, /, **named))]
    fn workspace_for(
        &self,
        py: Python<'_>,
        arguments: Option<&Bound<'_, PyDict>>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<u64> {
        let arguments = self.read(py, arguments, named)?;
        let bytes = self.0.workspace_for(&arguments.described());
        bytes.map_err(|e| error::convert(py, &e))
    }

    /// Checks arguments as a call would, without a device, and gives the extents that they bind. Raises ArgumentError.
    #[pyo3(signature = (arguments=None, /, **named))]
    fn check<'py>(
        &self,
        py: Python<'py>,
        arguments: Option<&Bound<'py, PyDict>>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let arguments = self.read(py, arguments, named)?;
        let checked = self
            .0
            .check(&arguments.described())
            .map_err(|e| error::convert(py, &e))?;
        bound(py, checked)
    }

    /// Loads the code of all launches for CUDA device `device`: a capture cannot.
    #[pyo3(signature = (device=0, *, target=None))]
    fn prepare(&self, py: Python<'_>, device: usize, target: Option<&str>) -> PyResult<()> {
        target_known(py, self.0.name(), target)?;
        let device = device::open(py, device)?;
        py.detach(|| self.0.prepare(&device, target))
            .map_err(|e| error::convert(py, &e))
    }

    /// Checks the arguments and queues all launches on a stream.
    #[pyo3(signature = (arguments=None, /, *, workspace=None, stream=None, target=None, **named))]
    fn __call__(
        &self,
        py: Python<'_>,
        arguments: Option<&Bound<'_, PyDict>>,
        workspace: Option<&Bound<'_, Workspace>>,
        stream: Option<&Bound<'_, PyAny>>,
        target: Option<&str>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Vec<Launch>> {
        let raise = |error: tesserine::Error| error::convert(py, &error);
        let arguments = self.read(py, arguments, named)?;
        let check = || self.0.check(&arguments.described()).map_err(raise);
        let ordinal = match arguments.places() {
            Places::One(ordinal) => ordinal,
            Places::Unfit { argument, reason } => {
                check()?;
                target_known(py, self.0.name(), target)?;
                device::open(py, 0)?;
                return Err(self.fault(py, argument, &reason));
            }
        };
        target_known(py, self.0.name(), target)?;
        let address = match device::stream(py, stream, ordinal)? {
            Ok(address) => address,
            Err(reason) => return Err(self.fault(py, "stream", &reason)),
        };
        let device = match device::opened(ordinal) {
            Some(device) => device,
            None => {
                check()?;
                device::open(py, ordinal)?
            }
        };
        let none;
        let workspace = match workspace {
            Some(workspace) => &workspace.get().workspace,
            None => {
                // SAFETY: nothing lies in no bytes.
                none = unsafe { tesserine::Workspace::from_raw(0, 0) }.map_err(raise)?;
                &none
            }
        };
        // SAFETY: Python's code answers for its streams and tensors as it does with every library that takes their
        // addresses: `_native.pyi` says what it promises.
        let (stream, args) = unsafe {
            (
                device::borrow_stream(&device, address),
                arguments.borrowed(),
            )
        };
        let launches = py
            .detach(|| self.0.run_for(&stream, &args, workspace, target))
            .map_err(raise)?;
        Ok(launches.into_iter().map(launched).collect())
    }

    /// Runs the op on an emulated device, on tensors of the CPU, with a workspace of its own, and waits for it.
    #[pyo3(signature = (arguments=None, /, *, device="emulator", target=None, **named))]
    fn emulate(
        &self,
        py: Python<'_>,
        arguments: Option<&Bound<'_, PyDict>>,
        device: &str,
        target: Option<&str>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Vec<Launch>> {
        let arguments = self.read(py, arguments, named)?;
        let checked = self.0.check(&arguments.described());
        checked.map_err(|e| error::convert(py, &e))?;
        target_known(py, self.0.name(), target)?;
        let signature = &self.0.record().signature;
        let name = self.0.name();
        let run = |device: &tesserine::Device, stream: &_, args: &tesserine::Args<'_>| {
            let bytes = self.0.workspace_for(args)?;
            let workspace = tesserine::Workspace::new(device, bytes)?;
            self.0.run_for(stream, args, &workspace, target)
        };
        let launches = emulate::run(py, name, signature, &arguments, device, run)?;
        Ok(launches.into_iter().map(launched).collect())
    }

    fn __repr__(&self) -> String {
        format!("<Op {}: {}>", self.0.name(), self.launches().join(", "))
    }
}
