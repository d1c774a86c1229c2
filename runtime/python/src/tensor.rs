//! Tensors out of Python objects: where their elements lie, of what type they are, and in what shape.
//!
//! An object is read by the first of these that it has: `data_ptr()`, `shape`, `stride()` and `dtype` (torch, and
//! whatever imitates it); `__cuda_array_interface__` (CuPy, Numba); `__array_interface__` (NumPy); `__dlpack__` (JAX and
//! others). Invariants: nothing is copied; an exporter is never asked to synchronise; what keeps an export alive is held
//! as long as the [`Tensor`].

use std::{
    ffi::{CStr, c_void},
    sync::Mutex,
};

use pyo3::{
    intern,
    prelude::*,
    types::{PyCapsule, PyDict, PyString, PyTuple},
};
use tesserine::DType;

/// A tensor that a Python object described. The object's owner keeps its memory.
#[derive(Debug)]
pub struct Tensor {
    /// Of element 0.
    pub pointer: u64,
    pub dtype: DType,
    /// Extents, in elements.
    pub shape: Vec<i64>,
    /// In elements.
    pub strides: Vec<i64>,
    pub place: Place,
    /// Whether its owner forbids to write to it.
    pub read_only: bool,
    /// The library has no narrow floats and passes them as integers of their width.
    plain_types: bool,
    _export: Option<Py<PyAny>>,
}

/// Whose memory a tensor is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Cuda(usize),
    /// Somewhere else, in the exporter's words.
    Elsewhere(String),
    Untold,
}

/// A type of elements as a library names it, and how many of ours one of its elements holds.
#[derive(Clone, Copy, Debug)]
struct Element {
    dtype: DType,
    count: i64,
}

/// Types by the names that torch and NumPy give them, and by our own.
fn named(name: &str) -> Option<Element> {
    let name = name.rsplit('.').next().unwrap_or(name);
    let dtype = match name {
        "float64" => DType::F64,
        "float32" => DType::F32,
        "float16" => DType::F16,
        "bfloat16" => DType::Bf16,
        "float8_e4m3fn" => DType::E4m3,
        "float8_e5m2" => DType::E5m2,
        "float8_e8m0fnu" => DType::Ue8m0,
        "float4_e2m1fn_x2" => {
            return Some(Element {
                dtype: DType::E2m1,
                count: 2,
            });
        }
        "int8" => DType::I8,
        "int16" => DType::I16,
        "int32" => DType::I32,
        "int64" => DType::I64,
        "uint8" => DType::U8,
        "uint16" => DType::U16,
        "uint32" => DType::U32,
        "uint64" => DType::U64,
        other => other.parse().ok()?,
    };
    Some(Element { dtype, count: 1 })
}

/// The type that `dtype`, an object or a name of it, stands for.
fn element(dtype: &Bound<'_, PyAny>) -> Result<Element, String> {
    // Libraries have one object a type, which lives as long as they do; their names take longer to make than a lookup.
    static KNOWN: Mutex<Vec<(Py<PyAny>, Element)>> = Mutex::new(Vec::new());
    const MOST: usize = 64;
    {
        let known = KNOWN.lock().unwrap_or_else(|e| e.into_inner());
        if let Some((_, element)) = known.iter().find(|(k, _)| k.is(dtype)) {
            return Ok(*element);
        }
    }
    // NumPy's types print as codes (`<f4`), and have names.
    let text = match dtype.getattr_opt(intern!(dtype.py(), "name")) {
        Ok(Some(name)) => name.to_string(),
        _ => dtype.to_string(),
    };
    let element =
        named(&text).ok_or_else(|| format!("has elements of {text}, which no kernel takes"))?;
    let mut known = KNOWN.lock().unwrap_or_else(|e| e.into_inner());
    if known.len() < MOST {
        known.push((dtype.clone().unbind(), element));
    }
    Ok(element)
}

/// What a Python error means for the reading of a tensor.
fn unreadable(error: PyErr) -> String {
    format!("cannot be read as a tensor: {error}")
}

impl Tensor {
    /// Whether it is memory of the CPU.
    pub fn is_on_host(&self) -> bool {
        matches!(&self.place, Place::Elsewhere(place) if place.starts_with("the CPU"))
    }

    /// Reads `value`. The error completes a sentence that starts with the argument's name.
    pub fn read<'py>(value: &Bound<'py, PyAny>) -> Result<Tensor, String> {
        let py = value.py();
        let get = |name: &Bound<'py, PyString>| value.getattr_opt(name).map_err(unreadable);
        if let Some(data_ptr) = get(intern!(py, "data_ptr"))? {
            return Tensor::of_torch(value, &data_ptr);
        }
        if let Some(interface) = get(intern!(py, "__cuda_array_interface__"))? {
            let mut tensor = Tensor::of_interface(value, &interface)?;
            tensor.place = match dlpack_place(value)? {
                // The interface names no device; CuPy's arrays do.
                Place::Untold => match numbered_device(value) {
                    Some(ordinal) => Place::Cuda(ordinal),
                    None => Place::Cuda(0),
                },
                place => place,
            };
            return Ok(tensor);
        }
        if let Some(interface) = get(intern!(py, "__array_interface__"))? {
            let mut tensor = Tensor::of_interface(value, &interface)?;
            tensor.place = Place::Elsewhere("the CPU".to_owned());
            tensor.plain_types = true;
            return Ok(tensor);
        }
        if get(intern!(py, "__dlpack__"))?.is_some() {
            return Tensor::of_dlpack(value);
        }
        let name = value.get_type().name().map_err(unreadable)?;
        Err(format!(
            "is of type {name}, and a tensor is wanted: an object with `__dlpack__`, or with `data_ptr()`, `shape`, `stride()` and `dtype`"
        ))
    }

    fn of_torch<'py>(
        value: &Bound<'py, PyAny>,
        data_ptr: &Bound<'py, PyAny>,
    ) -> Result<Tensor, String> {
        let py = value.py();
        let attribute = |name: &Bound<'py, PyString>| value.getattr(name).map_err(unreadable);
        let shape = integers(&attribute(intern!(py, "shape"))?)?;
        let stride = attribute(intern!(py, "stride"))?;
        let strides = match stride.is_callable() {
            true => integers(&stride.call0().map_err(unreadable)?)?,
            false => integers(&stride)?,
        };
        let element = element(&attribute(intern!(py, "dtype"))?)?;
        let pointer = match data_ptr.is_callable() {
            true => data_ptr.call0().and_then(|p| p.extract()),
            false => data_ptr.extract(),
        };
        let tensor = Tensor {
            pointer: pointer.map_err(unreadable)?,
            dtype: element.dtype,
            shape,
            strides,
            place: torch_place(value)?,
            read_only: false,
            plain_types: false,
            _export: None,
        };
        tensor.spread(element.count)
    }

    /// Reads NumPy's array interface, or CUDA's, which has the same fields.
    fn of_interface(
        value: &Bound<'_, PyAny>,
        interface: &Bound<'_, PyAny>,
    ) -> Result<Tensor, String> {
        let interface = interface
            .cast::<PyDict>()
            .map_err(|e| unreadable(e.into()))?;
        let field = |name: &str| {
            let field = interface.get_item(name).map_err(unreadable)?;
            Ok::<_, String>(field.filter(|f| !f.is_none()))
        };
        let required = |name: &str| {
            field(name)?.ok_or_else(|| {
                format!("cannot be read as a tensor: its array interface has no `{name}`")
            })
        };
        let shape = integers(&required("shape")?)?;
        let code = required("typestr")?.to_string();
        if code.starts_with('>') {
            return Err(format!(
                "has elements of `{code}`, whose bytes are in the wrong order"
            ));
        }
        let element = match value.getattr_opt(intern!(value.py(), "dtype")) {
            Ok(Some(dtype)) => element(&dtype)?,
            _ => typestr(&code)?,
        };
        let (pointer, read_only): (u64, bool) = required("data")?.extract().map_err(unreadable)?;
        let bytes = (element.dtype.bits() / 8).max(1) as i64;
        let strides = match field("strides")? {
            None => tesserine::contiguous_strides(&shape),
            Some(strides) => {
                let strides = integers(&strides)?;
                if let Some(stride) = strides.iter().find(|&s| s % bytes != 0) {
                    return Err(format!(
                        "has a stride of {stride} bytes, which is no number of elements"
                    ));
                }
                strides.iter().map(|s| s / bytes).collect()
            }
        };
        Ok(Tensor {
            pointer,
            dtype: element.dtype,
            shape,
            strides,
            place: Place::Untold,
            read_only,
            plain_types: false,
            _export: None,
        })
    }

    /// Reads an export of DLPack. The capsule is not consumed: it frees the export when it goes.
    fn of_dlpack(value: &Bound<'_, PyAny>) -> Result<Tensor, String> {
        let py = value.py();
        let place = dlpack_place(value)?;
        let export = match place {
            // -1: the producer is not to make any stream wait.
            Place::Cuda(_) => {
                let options = PyDict::new(py);
                options.set_item("stream", -1).map_err(unreadable)?;
                value.call_method(intern!(py, "__dlpack__"), (), Some(&options))
            }
            _ => value.call_method0(intern!(py, "__dlpack__")),
        };
        let export = export.map_err(unreadable)?;
        let capsule = export
            .cast::<PyCapsule>()
            .map_err(|e| unreadable(e.into()))?;
        let pointer = capsule
            .pointer_checked(Some(DLTENSOR))
            .map_err(unreadable)?
            .cast::<DlTensor>();
        // SAFETY: a capsule of this name holds a `DLManagedTensor`, which begins with a `DLTensor` and lives as long as
        // the capsule, since no one consumes it.
        let tensor = unsafe { pointer.as_ref() };
        let unsupported = |what: String| format!("has elements of {what}, which no kernel takes");
        let dtype = match (tensor.code, tensor.bits, tensor.lanes) {
            (0, 8, 1) => DType::I8,
            (0, 16, 1) => DType::I16,
            (0, 32, 1) => DType::I32,
            (0, 64, 1) => DType::I64,
            (1, 8, 1) => DType::U8,
            (1, 16, 1) => DType::U16,
            (1, 32, 1) => DType::U32,
            (1, 64, 1) => DType::U64,
            (2, 16, 1) => DType::F16,
            (2, 32, 1) => DType::F32,
            (2, 64, 1) => DType::F64,
            (4, 16, 1) => DType::Bf16,
            (6, 8, 1) => DType::Bool,
            (10, 8, 1) => DType::E4m3,
            (12, 8, 1) => DType::E5m2,
            (14, 8, 1) => DType::Ue8m0,
            (code, bits, lanes) => {
                return Err(unsupported(format!(
                    "DLPack type {code} with {bits} bits and {lanes} lanes"
                )));
            }
        };
        let rank = usize::try_from(tensor.ndim).map_err(|_| "has a negative rank".to_owned())?;
        // SAFETY: the format has `ndim` extents at `shape`; none for a rank of 0, whose pointer may be null.
        let shape = unsafe { copied(tensor.shape, rank) };
        let strides = match tensor.strides.is_null() {
            true => tesserine::contiguous_strides(&shape),
            // SAFETY: and as many strides at `strides`, where that is not null.
            false => unsafe { copied(tensor.strides, rank) },
        };
        Ok(Tensor {
            pointer: (tensor.data as u64).wrapping_add(tensor.byte_offset),
            dtype,
            shape,
            strides,
            place,
            read_only: false,
            plain_types: false,
            _export: Some(export.unbind()),
        })
    }

    /// The same memory for a parameter with elements of `wanted`, where a library has no such type and passes bytes for
    /// it; else the tensor as it is.
    pub fn suit(mut self, wanted: DType) -> Result<Tensor, String> {
        use DType::*;
        let alike = match (self.dtype, wanted) {
            (U8, E4m3 | E5m2 | Ue8m0 | Ue4m3) | (E4m3, Ue4m3) | (F32, Tf32) | (Bool, U8) => true,
            (U16, Bf16) => self.plain_types,
            (U8, wanted) if wanted.is_packed() => {
                self.dtype = wanted;
                return self.spread(8 / wanted.bits() as i64);
            }
            _ => false,
        };
        if alike {
            self.dtype = wanted;
        }
        Ok(self)
    }

    /// Counts in elements of which each one so far holds `count`, along the last dimension.
    fn spread(mut self, count: i64) -> Result<Tensor, String> {
        if count == 1 {
            return Ok(self);
        }
        let (Some(last), Some((stride, others))) =
            (self.shape.last_mut(), self.strides.split_last_mut())
        else {
            return Err("is a single element, and packed ones are wanted".to_owned());
        };
        if *stride != 1 && *last > 1 {
            return Err(format!(
                "has stride {stride} in its last dimension, along which elements are packed"
            ));
        }
        for number in others.iter_mut().chain([last]) {
            *number = number
                .checked_mul(count)
                .ok_or_else(|| "reaches outside the address space".to_owned())?;
        }
        Ok(self)
    }
}

/// # Safety
/// There must be `count` numbers at `numbers`, unless `count` is 0.
unsafe fn copied(numbers: *const i64, count: usize) -> Vec<i64> {
    match count {
        0 => Vec::new(),
        // SAFETY: the caller's promise.
        _ => unsafe { std::slice::from_raw_parts(numbers, count) }.to_vec(),
    }
}

fn integers(values: &Bound<'_, PyAny>) -> Result<Vec<i64>, String> {
    if let Ok(tuple) = values.cast::<PyTuple>() {
        let numbers = tuple.iter_borrowed().map(|n| n.extract::<i64>());
        return numbers.collect::<PyResult<_>>().map_err(unreadable);
    }
    values.extract().map_err(unreadable)
}

/// The type of an array interface's code, `<f4`.
fn typestr(code: &str) -> Result<Element, String> {
    let name = match code.trim_start_matches(['<', '|', '=']) {
        "f8" => "float64",
        "f4" => "float32",
        "f2" => "float16",
        "i1" => "int8",
        "i2" => "int16",
        "i4" => "int32",
        "i8" => "int64",
        "u1" => "uint8",
        "u2" => "uint16",
        "u4" => "uint32",
        "u8" => "uint64",
        "b1" => "bool",
        _ => return Err(format!("has elements of `{code}`, which no kernel takes")),
    };
    named(name).ok_or_else(|| format!("has elements of `{code}`, which no kernel takes"))
}

/// The place of an object with torch's attributes.
fn torch_place(value: &Bound<'_, PyAny>) -> Result<Place, String> {
    let py = value.py();
    let Some(device) = value
        .getattr_opt(intern!(py, "device"))
        .map_err(unreadable)?
    else {
        return dlpack_place(value);
    };
    let Some(kind) = device
        .getattr_opt(intern!(py, "type"))
        .map_err(unreadable)?
    else {
        return Ok(from_name(&device.to_string()));
    };
    let kind = kind.to_string();
    if kind != "cuda" {
        return Ok(elsewhere(&kind));
    }
    let index = device.getattr(intern!(py, "index")).map_err(unreadable)?;
    match index.is_none() {
        true => Ok(Place::Cuda(0)),
        false => Ok(Place::Cuda(index.extract().map_err(unreadable)?)),
    }
}

/// `cuda:1`, `cpu`.
fn from_name(name: &str) -> Place {
    match name.split_once(':') {
        None if name == "cuda" => Place::Cuda(0),
        Some(("cuda", ordinal)) => match ordinal.parse() {
            Ok(ordinal) => Place::Cuda(ordinal),
            Err(_) => elsewhere(name),
        },
        _ => elsewhere(name),
    }
}

fn elsewhere(name: &str) -> Place {
    Place::Elsewhere(match name {
        "cpu" => "the CPU".to_owned(),
        name => format!("device `{name}`"),
    })
}

/// `device.id`, as CuPy has it.
fn numbered_device(value: &Bound<'_, PyAny>) -> Option<usize> {
    let device = value.getattr("device").ok()?;
    device.getattr("id").ok()?.extract().ok()
}

/// The place that `__dlpack_device__` tells.
fn dlpack_place(value: &Bound<'_, PyAny>) -> Result<Place, String> {
    let Some(method) = value
        .getattr_opt(intern!(value.py(), "__dlpack_device__"))
        .map_err(unreadable)?
    else {
        return Ok(Place::Untold);
    };
    let place = method.call0().map_err(unreadable)?;
    let (kind, ordinal): (i64, i64) = (
        place
            .get_item(0)
            .and_then(|k| k.extract())
            .map_err(unreadable)?,
        place
            .get_item(1)
            .and_then(|k| k.extract())
            .map_err(unreadable)?,
    );
    Ok(match kind {
        // CUDA, and memory that CUDA moves.
        2 | 13 => Place::Cuda(ordinal.max(0) as usize),
        1 => Place::Elsewhere("the CPU".to_owned()),
        3 => Place::Elsewhere("the CPU (pinned)".to_owned()),
        kind => Place::Elsewhere(format!("a device of DLPack's kind {kind}")),
    })
}

/// The name of a capsule that no one has consumed.
const DLTENSOR: &CStr = c"dltensor";

/// DLPack's tensor (its ABI before versions, which every exporter gives unless asked for another).
#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device_kind: i32,
    device_ordinal: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}
