//! From the runtime's errors to the package's exceptions, which `python/tesserine/_errors.py` declares.

use pyo3::{prelude::*, sync::PyOnceLock, types::PyType};
use tesserine::{BindError, Error, SetError, select::SelectError};

/// The class of that name in `tesserine._errors`.
macro_rules! class {
    ($py:expr, $name:literal) => {{
        static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        CLASS.import($py, "tesserine._errors", $name)
    }};
}

/// An exception of `class`, or what went wrong in making it.
fn raise(class: PyResult<&Bound<'_, PyType>>, message: String) -> PyErr {
    match class.and_then(|class| class.call1((message,))) {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// An `ArgumentError`; `argument` where one argument is at fault.
pub fn argument(py: Python<'_>, kernel: &str, argument: Option<&str>, message: String) -> PyErr {
    let made = class!(py, "ArgumentError").and_then(|c| c.call1((message, kernel, argument)));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// A `SetError`.
pub fn set(py: Python<'_>, error: &SetError) -> PyErr {
    raise(class!(py, "SetError"), error.to_string())
}

/// The exception for `error`.
pub fn convert(py: Python<'_>, error: &Error) -> PyErr {
    let message = error.to_string();
    match error {
        Error::Set(error) => set(py, error),
        Error::NoKernel { .. } | Error::NoOp { .. } => raise(class!(py, "NoKernelError"), message),
        // What a launch did wrong is no argument's fault.
        Error::Step { error, .. } if matches!(**error, Error::Emulator { .. }) => {
            raise(class!(py, "DeviceError"), message)
        }
        Error::Step { op, .. } | Error::Op { op, .. } => argument(py, op, None, message),
        Error::WorkspaceDim { op, name } => argument(py, op, Some(name), message),
        Error::WorkspaceAddress { .. } => argument(py, "Workspace", Some("memory"), message),
        Error::WorkspaceSize { op, .. } | Error::WorkspaceHeld { op } => {
            argument(py, op, Some("workspace"), message)
        }
        Error::UnknownArgument { kernel, name, .. } | Error::RepeatedArgument { kernel, name } => {
            argument(py, kernel, Some(name), message)
        }
        Error::Argument { kernel, error } => argument(py, kernel, at_fault(error), message),
        Error::ScalarType { kernel, param, .. }
        | Error::OtherDevice { kernel, param, .. }
        | Error::NoMemory { kernel, param } => argument(py, kernel, Some(param), message),
        Error::Requires { kernel, .. }
        | Error::NoBody { kernel, .. }
        | Error::Grid { kernel, .. }
        | Error::GridTooLarge { kernel, .. } => argument(py, kernel, None, message),
        Error::Select(SelectError::NotCompiledFor { kernel, .. }) => {
            argument(py, kernel, Some("target"), message)
        }
        _ => raise(class!(py, "DeviceError"), message),
    }
}

/// The argument that a binding error is about; of two that overlap, the one that is stored to.
fn at_fault(error: &BindError) -> Option<&str> {
    match error {
        BindError::Count { .. } | BindError::Unbound { .. } => None,
        BindError::Overlap { written, .. } => Some(written),
        BindError::Missing { param }
        | BindError::ScalarForView { param, .. }
        | BindError::ViewForScalar { param, .. }
        | BindError::ScalarValue { param, .. }
        | BindError::DType { param, .. }
        | BindError::Rank { param, .. }
        | BindError::StrideCount { param, .. }
        | BindError::NegativeExtent { param, .. }
        | BindError::LargeExtent { param, .. }
        | BindError::Extent { param, .. }
        | BindError::Unsolvable { param, .. }
        | BindError::Formula { param, .. }
        | BindError::TooLarge { param }
        | BindError::LastStride { param, .. }
        | BindError::RepeatedStore { param, .. }
        | BindError::Address { param, .. }
        | BindError::StrideAlignment { param, .. } => Some(param),
    }
}
