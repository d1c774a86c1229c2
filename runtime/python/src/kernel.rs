//! Kernels, their parameters and their launches, as Python sees them.

use pyo3::{prelude::*, types::PyDict};
use tesserine::{
    Checked, Code, ScalarValue, Target,
    set::{Access, Param, ParamKind, Signature},
};

use crate::{
    argument::{Arguments, Places},
    device, emulate, error,
};

/// One kernel of a set, with its element types fixed. Called with its arguments by name, it is launched.
#[pyclass(frozen, module = "tesserine")]
pub struct Kernel(pub tesserine::Kernel);

/// What a kernel takes for one argument.
#[pyclass(frozen, get_all, module = "tesserine")]
pub struct Parameter {
    /// The argument's name.
    name: String,
    /// `tensor` or `number`.
    kind: &'static str,
    /// The element type or the number's type: `bf16`.
    dtype: &'static str,
    /// The extents, each a formula over the kernel's dimensions: `["m", "2 * d"]`. Empty for numbers.
    shape: Vec<String>,
    /// What the kernel does with a tensor: `read`, `write` or `read and write`; `None` for numbers.
    access: Option<&'static str>,
    /// Whether it may be left out.
    optional: bool,
    /// The number that is taken if none is passed.
    default: Option<f64>,
}

/// What a call queued.
#[pyclass(frozen, get_all, module = "tesserine")]
pub struct Launch {
    /// Whose code it was: `sm_90a`.
    target: String,
    /// Which body of the kernel ran, counted over all its targets.
    body: usize,
    /// `cubin` or `ptx`.
    code: &'static str,
    /// Blocks; 0 if there was nothing to do.
    blocks: u32,
}

/// What a parameter is, in Python's terms.
pub fn parameter(signature: &Signature, param: &Param) -> Parameter {
    let name = param.name.clone();
    match &param.kind {
        ParamKind::View(view) => Parameter {
            name,
            kind: "tensor",
            dtype: view.dtype.name(),
            shape: view.extents.iter().map(|e| signature.show(e)).collect(),
            access: Some(match view.access {
                Access::Read => "read",
                Access::Write => "write",
                Access::ReadWrite => "read and write",
            }),
            optional: param.optional,
            default: None,
        },
        ParamKind::Scalar { dtype, default } => Parameter {
            name,
            kind: "number",
            dtype: dtype.name(),
            shape: Vec::new(),
            access: None,
            optional: param.optional || default.is_some(),
            default: *default,
        },
    }
}

/// What was queued.
pub fn launched(launch: tesserine::Launch) -> Launch {
    Launch {
        target: launch.target.to_string(),
        body: launch.body,
        code: match launch.code {
            Code::Cubin(_) => "cubin",
            Code::Ptx(_) => "ptx",
        },
        blocks: launch.blocks,
    }
}

/// Whether `target`, which a call of `owner` names, reads like one.
pub fn target_known(py: Python<'_>, owner: &str, target: Option<&str>) -> PyResult<()> {
    match target.map(str::parse::<Target>) {
        Some(Err(unknown)) => {
            let message = format!("`{owner}`: {unknown}");
            Err(error::argument(py, owner, Some("target"), message))
        }
        _ => Ok(()),
    }
}

#[pymethods]
impl Parameter {
    fn __repr__(&self) -> String {
        let mut text = self.name.clone();
        if self.optional && self.default.is_none() {
            text += "?";
        }
        text += match self.access {
            Some("write") => ": out ",
            Some("read and write") => ": mut ",
            _ => ": ",
        };
        text += self.dtype;
        if self.kind == "tensor" {
            text += &format!("[{}]", self.shape.join(", "));
        }
        if let Some(default) = self.default {
            text += &format!(" = {default}");
        }
        text
    }
}

#[pymethods]
impl Launch {
    fn __repr__(&self) -> String {
        let Launch {
            target,
            body,
            code,
            blocks,
        } = self;
        format!("<Launch of {blocks} blocks: {code} for {target}, body {body}>")
    }
}

impl Kernel {
    fn fault(&self, py: Python<'_>, argument: &str, reason: &str) -> PyErr {
        let message = format!("`{}`: `{argument}` {reason}", self.0.name());
        error::argument(py, self.0.name(), Some(argument), message)
    }

    fn target(&self, py: Python<'_>, target: Option<&str>) -> PyResult<()> {
        target_known(py, self.0.name(), target)
    }

    fn read(
        &self,
        py: Python<'_>,
        arguments: Option<&Bound<'_, PyDict>>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Arguments> {
        let signature = &self.0.instance().signature;
        Arguments::read(py, self.0.name(), signature, arguments, named)
    }

    /// Checks the arguments and queues the kernel.
    pub fn launch(
        &self,
        py: Python<'_>,
        arguments: Option<&Bound<'_, PyDict>>,
        stream: Option<&Bound<'_, PyAny>>,
        target: Option<&str>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Launch> {
        let raise = |error: tesserine::Error| error::convert(py, &error);
        let arguments = self.read(py, arguments, named)?;
        let check = || self.0.check(&arguments.described()).map_err(raise);
        let ordinal = match arguments.places() {
            Places::One(ordinal) => ordinal,
            Places::Unfit { argument, reason } => {
                // What is wrong whatever the place comes first; and where there is no driver, no tensor could do.
                check()?;
                self.target(py, target)?;
                device::open(py, 0)?;
                return Err(self.fault(py, argument, &reason));
            }
        };
        self.target(py, target)?;
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
        // SAFETY: Python's code answers for its streams and tensors as it does with every library that takes their
        // addresses: `_native.pyi` says what it promises.
        let (stream, args) = unsafe {
            (
                device::borrow_stream(&device, address),
                arguments.borrowed(),
            )
        };
        let launch = py
            .detach(|| self.0.launch_for(&stream, &args, target))
            .map_err(raise)?;
        Ok(launched(launch))
    }
}

#[pymethods]
impl Kernel {
    /// The instance's name: `rmsnorm<bf16>`.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// The file that it was compiled from, relative to the set's own source.
    #[getter]
    fn source(&self) -> &str {
        &self.0.instance().source
    }

    /// What it takes, in order.
    #[getter]
    fn parameters(&self) -> Vec<Parameter> {
        let signature = &self.0.instance().signature;
        let params = signature.params.iter();
        params.map(|p| parameter(signature, p)).collect()
    }

    /// The targets that there is code for: `["sm_80", "sm_90a"]`.
    #[getter]
    fn targets(&self) -> Vec<&str> {
        let mut targets: Vec<&str> = Vec::new();
        for body in &self.0.instance().bodies {
            if !targets.contains(&body.target.as_str()) {
                targets.push(&body.target);
            }
        }
        targets
    }

    /// Checks arguments as a call would, without a device, and gives the extents that they bind: `{"m": 128, "n": 4096}`.
    ///
    /// Raises ArgumentError.
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

    /// Loads the code for CUDA device `device`, so that the first call need not, and gives the target that it is for.
    #[pyo3(signature = (device=0, *, target=None))]
    fn prepare(&self, py: Python<'_>, device: usize, target: Option<&str>) -> PyResult<String> {
        self.target(py, target)?;
        let device = device::open(py, device)?;
        match py.detach(|| self.0.prepare(&device, target)) {
            Ok(target) => Ok(target.to_string()),
            Err(error) => Err(error::convert(py, &error)),
        }
    }

    /// Checks the arguments and queues the kernel on a stream.
    #[pyo3(signature = (arguments=None, /, *, stream=None, target=None, **named))]
    fn __call__(
        &self,
        py: Python<'_>,
        arguments: Option<&Bound<'_, PyDict>>,
        stream: Option<&Bound<'_, PyAny>>,
        target: Option<&str>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Launch> {
        self.launch(py, arguments, stream, target, named)
    }

    /// Runs the kernel on an emulated device, on tensors of the CPU, and waits for it.
    #[pyo3(signature = (arguments=None, /, *, device="emulator", target=None, **named))]
    fn emulate(
        &self,
        py: Python<'_>,
        arguments: Option<&Bound<'_, PyDict>>,
        device: &str,
        target: Option<&str>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Launch> {
        let arguments = self.read(py, arguments, named)?;
        let checked = self.0.check(&arguments.described());
        checked.map_err(|e| error::convert(py, &e))?;
        self.target(py, target)?;
        let signature = &self.0.instance().signature;
        let name = self.0.name();
        let launch = emulate::run(
            py,
            name,
            signature,
            &arguments,
            device,
            |_, stream, args| self.0.launch_for(stream, args, target),
        )?;
        Ok(launched(launch))
    }

    fn __repr__(&self) -> String {
        let parameters: Vec<String> = self.parameters().iter().map(Parameter::__repr__).collect();
        format!("{}({})", self.0.name(), parameters.join(", "))
    }
}

/// What checked arguments bind, by name: extents of dimensions and values of scalars.
pub(crate) fn bound(py: Python<'_>, checked: Checked) -> PyResult<Bound<'_, PyDict>> {
    let bound = PyDict::new(py);
    for (name, extent) in checked.dims {
        bound.set_item(name, extent)?;
    }
    for (name, value) in checked.scalars {
        match value {
            ScalarValue::Int(value) => bound.set_item(name, value)?,
            ScalarValue::Float(value) => bound.set_item(name, value)?,
        }
    }
    Ok(bound)
}
