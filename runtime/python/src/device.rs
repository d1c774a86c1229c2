//! Devices and streams, as Python names them.

use std::{ffi::c_void, ptr, sync::Mutex};

use pyo3::{intern, prelude::*, sync::PyOnceLock, types::PyInt};
use tesserine::Device;

use crate::error;

/// A CUDA device, as the driver describes it.
#[pyclass(frozen, get_all, module = "tesserine")]
pub struct CudaDevice {
    /// The number in `cuda:N`.
    ordinal: usize,
    /// As the vendor names it.
    name: String,
    /// `(9, 0)`.
    capability: (u32, u32),
    /// Bytes.
    memory: usize,
}

#[pymethods]
impl CudaDevice {
    fn __repr__(&self) -> String {
        format!("<cuda:{} {}>", self.ordinal, self.name)
    }
}

/// cuda_devices()
/// --
///
/// The devices of the driver. Raises DeviceError where there is no driver.
#[pyfunction]
pub fn cuda_devices(py: Python<'_>) -> PyResult<Vec<CudaDevice>> {
    let devices = py.detach(tesserine::cuda_devices);
    let devices = devices.map_err(|e| error::convert(py, &e))?;
    let device = |d: tesserine::DeviceInfo| CudaDevice {
        ordinal: d.ordinal,
        name: d.name,
        capability: (d.capability.major, d.capability.minor),
        memory: d.memory,
    };
    Ok(devices.into_iter().map(device).collect())
}

/// driver_version()
/// --
///
/// The newest CUDA version that the driver serves, (13, 0). Raises DeviceError where there is no driver.
#[pyfunction]
pub fn driver_version(py: Python<'_>) -> PyResult<(u32, u32)> {
    py.detach(tesserine::driver_version)
        .map_err(|e| error::convert(py, &e))
}

/// The devices that were opened, which stay so until the process ends.
static OPEN: Mutex<Vec<(usize, Device)>> = Mutex::new(Vec::new());

/// Device `ordinal`, if it was opened.
pub fn opened(ordinal: usize) -> Option<Device> {
    let open = OPEN.lock().unwrap_or_else(|e| e.into_inner());
    let device = open.iter().find(|(o, _)| *o == ordinal);
    device.map(|(_, device)| device.clone())
}

/// Opens device `ordinal`, if it is not open.
pub fn open(py: Python<'_>, ordinal: usize) -> PyResult<Device> {
    if let Some(device) = opened(ordinal) {
        return Ok(device);
    }
    // No lock is held while the driver starts, for which the interpreter is released.
    let device = py
        .detach(|| Device::cuda(ordinal))
        .map_err(|e| error::convert(py, &e))?;
    let mut open = OPEN.lock().unwrap_or_else(|e| e.into_inner());
    open.push((ordinal, device.clone()));
    Ok(device)
}

/// The address of the `CUstream` that a launch on device `ordinal` is queued on: what `stream` stands for; without it
/// torch's current stream, if torch runs on CUDA here, else the default stream.
pub fn stream(
    py: Python<'_>,
    stream: Option<&Bound<'_, PyAny>>,
    ordinal: usize,
) -> PyResult<Result<usize, String>> {
    let Some(stream) = stream else {
        return torch_stream(py, ordinal).map(Ok);
    };
    if stream.is_instance_of::<PyInt>() {
        return Ok(stream.extract().map_err(|_| "is no address".to_owned()));
    }
    for name in [intern!(py, "cuda_stream"), intern!(py, "ptr")] {
        if let Some(address) = stream.getattr_opt(name)? {
            return address.extract().map(Ok);
        }
    }
    if let Some(protocol) = stream.getattr_opt(intern!(py, "__cuda_stream__"))? {
        let (_version, address): (u64, usize) = protocol.call0()?.extract()?;
        return Ok(Ok(address));
    }
    Ok(Err(format!(
        "is of type {}, and a stream is wanted: an address, or an object with `cuda_stream`, `ptr` or `__cuda_stream__`",
        stream.get_type().name()?
    )))
}

/// Torch's current stream, or the default one where torch has not started CUDA.
fn torch_stream(py: Python<'_>, ordinal: usize) -> PyResult<usize> {
    // What Triton and torch's own compiler ask: the public function makes a stream object each time.
    static CURRENT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    if let Some(current) = CURRENT.get(py) {
        return current.call1(py, (ordinal,))?.extract(py);
    }
    let modules = py
        .import(intern!(py, "sys"))?
        .getattr(intern!(py, "modules"))?;
    let Ok(torch) = modules.get_item(intern!(py, "torch")) else {
        return Ok(0);
    };
    // A module that is being imported, or that is called torch and is another, has no such attribute.
    let Some(cuda) = torch.getattr_opt(intern!(py, "cuda"))? else {
        return Ok(0);
    };
    if !cuda
        .call_method0(intern!(py, "is_initialized"))?
        .is_truthy()?
    {
        return Ok(0);
    }
    if let Ok(current) = torch
        .getattr(intern!(py, "_C"))
        .and_then(|c| c.getattr(intern!(py, "_cuda_getCurrentRawStream")))
    {
        let current = CURRENT.get_or_init(py, || current.unbind());
        return current.call1(py, (ordinal,))?.extract(py);
    }
    cuda.call_method1(intern!(py, "current_stream"), (ordinal,))?
        .getattr(intern!(py, "cuda_stream"))?
        .extract()
}

/// The stream at `address`.
///
/// # Safety
/// As [`Device::borrow_stream`].
pub unsafe fn borrow_stream(device: &Device, address: usize) -> tesserine::Stream {
    let raw: *mut c_void = ptr::with_exposed_provenance_mut(address);
    // SAFETY: the caller's promise is the same.
    unsafe { device.borrow_stream(raw) }
}
