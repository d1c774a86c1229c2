//! Launches on emulated devices: tensors of the CPU are copied to the device, and back if the kernel stores to them.
//!
//! Invariants: nothing is copied before all arguments have been checked; a launch that faults leaves the tensors as they were; of a
//! tensor with gaps, the bytes in between are copied, and written back as they were.

use std::{ptr, sync::Mutex};

use pyo3::prelude::*;
use tesserine::{
    Args, DType, Device, DeviceTensor, Stream,
    set::{Access, ParamKind, Signature, byte_span},
};

use crate::{argument::Arguments, error, tensor::Tensor};

/// The emulated device of that name. Each is made once, so that code is loaded once; they stay until the process ends.
fn device(py: Python<'_>, owner: &str, name: &str) -> PyResult<Device> {
    static OPEN: Mutex<Vec<(String, Device)>> = Mutex::new(Vec::new());
    if name != "emulator" && !name.starts_with("emulator:") {
        let message = format!(
            "`{owner}`: `device` is `{name}`, and kernels are emulated on `emulator:sm_90a` and its like"
        );
        return Err(error::argument(py, owner, Some("device"), message));
    }
    let mut open = OPEN.lock().unwrap_or_else(|e| e.into_inner());
    if let Some((_, device)) = open.iter().find(|(n, _)| n == name) {
        return Ok(device.clone());
    }
    let device = Device::named(name).map_err(|e| error::convert(py, &e))?;
    open.push((name.to_owned(), device.clone()));
    Ok(device)
}

/// A tensor's bytes, on both sides.
struct Copied {
    /// Of the lowest byte.
    host: *mut u8,
    bytes: usize,
    stored: bool,
    device: DeviceTensor,
    /// Of element 0, on the device.
    address: u64,
}

fn copied(tensor: &Tensor, stored: bool, device: &Device) -> Result<Copied, String> {
    if !tensor.is_on_host() && !tensor.shape.contains(&0) {
        return Err("does not lie on the CPU, whose tensors the emulator takes".to_owned());
    }
    if stored && tensor.read_only {
        return Err("is stored to, and the array is read-only".to_owned());
    }
    let span = byte_span(tensor.dtype, &tensor.shape, &tensor.strides);
    let (low, high) = span.ok_or("is larger than any memory")?;
    let bytes = high.abs_diff(low);
    let extent = i64::try_from(bytes).map_err(|_| "is larger than any memory")?;
    let first = tensor.pointer.wrapping_add_signed(low);
    let host: *mut u8 = ptr::with_exposed_provenance_mut(first as usize);
    let held: &[u8] = if bytes == 0 {
        &[]
    } else {
        // SAFETY: Python's object says that its elements lie there, and keeps them as long as the call lasts; bytes between two
        // of them are of the same array.
        unsafe { std::slice::from_raw_parts(host, extent as usize) }
    };
    let memory = device.upload(DType::U8, &[extent], held);
    let memory = memory.map_err(|e| format!("cannot be copied: {e}"))?;
    Ok(Copied {
        host,
        bytes: extent as usize,
        stored,
        address: memory.view().pointer().wrapping_add_signed(-low),
        device: memory,
    })
}

/// Runs `launch` on the device called `name`, with the arguments there.
pub fn run<T: Send>(
    py: Python<'_>,
    owner: &str,
    signature: &Signature,
    arguments: &Arguments,
    name: &str,
    launch: impl FnOnce(&Device, &Stream, &Args<'_>) -> Result<T, tesserine::Error> + Send,
) -> PyResult<T> {
    let raise = |error: tesserine::Error| error::convert(py, &error);
    let device = device(py, owner, name)?;
    let mut tensors = Vec::new();
    for (name, tensor) in arguments.tensors() {
        let kind = signature.param(name).map(|i| &signature.params[i].kind);
        let stored = matches!(kind, Some(ParamKind::View(view)) if view.access != Access::Read);
        tensors.push(copied(tensor, stored, &device).map_err(|reason| {
            let message = format!("`{owner}`: `{name}` {reason}");
            error::argument(py, owner, Some(name), message)
        })?);
    }
    let addresses: Vec<u64> = tensors.iter().map(|t| t.address).collect();
    // SAFETY: every tensor is a copy of all that its elements reach, which lives until the end of this function.
    let args = unsafe { arguments.at(&addresses) };
    let done = py.detach(|| {
        let stream = device.stream()?;
        let done = launch(&device, &stream, &args)?;
        stream.synchronize()?;
        Ok(done)
    });
    let done = done.map_err(raise)?;
    for tensor in tensors.iter().filter(|t| t.stored && t.bytes > 0) {
        let bytes = tensor.device.read().map_err(raise)?;
        // SAFETY: as above; the array is writable, and the interpreter is held.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), tensor.host, tensor.bytes) };
    }
    Ok(done)
}
