//! Numbers out of Python objects.

use pyo3::{
    intern,
    prelude::*,
    types::{PyBool, PyFloat, PyInt},
};
use tesserine::ScalarValue;

/// The number that `value` is: an `int`, `float` or `bool`, or an object that converts itself as NumPy's scalars do.
/// The error says what it is instead. Tensors are refused, whatever their size: to read one would be to wait for it.
pub fn read(value: &Bound<'_, PyAny>) -> Result<ScalarValue, String> {
    let py = value.py();
    if let Ok(value) = value.cast_exact::<PyFloat>() {
        return Ok(ScalarValue::Float(value.value()));
    }
    if let Ok(value) = value.cast::<PyBool>() {
        return Ok(ScalarValue::Int(value.is_true() as i64));
    }
    let int = |value: &Bound<'_, PyAny>| {
        let fits = value.extract::<i64>().map(ScalarValue::Int);
        fits.map_err(|_| "is an integer of more than 64 bits".to_owned())
    };
    if value.is_instance_of::<PyInt>() {
        return int(value);
    }
    let has = |name| value.hasattr(name).unwrap_or(false);
    let type_name = || {
        let name = value.get_type().name();
        name.map_or("?".to_owned(), |name| name.to_string())
    };
    if has(intern!(py, "data_ptr")) || value.len().is_ok() {
        return Err(format!("is a {}, and a number is wanted", type_name()));
    }
    if has(intern!(py, "__index__")) {
        return int(&value
            .call_method0(intern!(py, "__index__"))
            .map_err(|e| e.to_string())?);
    }
    // NumPy's bools convert to neither; `item` gives Python's own.
    if let Ok(item) = value.call_method0(intern!(py, "item"))
        && let Ok(value) = item.cast::<PyBool>()
    {
        return Ok(ScalarValue::Int(value.is_true() as i64));
    }
    match value.extract::<f64>() {
        Ok(value) => Ok(ScalarValue::Float(value)),
        Err(_) => Err(format!("is a {}, and a number is wanted", type_name())),
    }
}
