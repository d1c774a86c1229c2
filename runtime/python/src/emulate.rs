//! Launches on emulated devices: tensors of the CPU are copied to the device, and back if the kernel stores to them.
//!
//! Invariants: nothing is copied before all arguments have been checked; a launch that faults leaves the tensors as they were; of a
//! tensor with gaps, the bytes in between are copied, and written back as they were; tensors that share bytes, or lie in each other's
//! gaps, share them on the device too.

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

/// Where a tensor's bytes are on the host.
#[derive(Clone, Copy)]
struct Span {
    low: u64,
    bytes: u64,
    /// From the lowest byte to element 0.
    first: u64,
    stored: bool,
}

fn span(tensor: &Tensor, stored: bool) -> Result<Span, String> {
    if !tensor.is_on_host() && !tensor.shape.contains(&0) {
        return Err("does not lie on the CPU, whose tensors the emulator takes".to_owned());
    }
    if stored && tensor.read_only {
        return Err("is stored to, and the array is read-only".to_owned());
    }
    let span = byte_span(tensor.dtype, &tensor.shape, &tensor.strides);
    let (low, high) = span.ok_or("is larger than any memory")?;
    Ok(Span {
        low: tensor.pointer.wrapping_add_signed(low),
        bytes: high.abs_diff(low),
        first: low.unsigned_abs(),
        stored,
    })
}

/// Bytes on both sides.
struct Region {
    low: u64,
    bytes: u64,
    stored: bool,
    device: DeviceTensor,
}

impl Region {
    fn host(&self) -> *mut u8 {
        ptr::with_exposed_provenance_mut(self.low as usize)
    }
}

/// The spans' bytes on the device: spans that overlap are of one region.
fn copied(spans: &[Span], device: &Device) -> Result<Vec<Region>, String> {
    let mut sorted: Vec<Span> = spans.iter().copied().filter(|s| s.bytes > 0).collect();
    sorted.sort_by_key(|s| s.low);
    let mut merged: Vec<Span> = Vec::new();
    for span in sorted {
        match merged.last_mut() {
            Some(last) if span.low < last.low + last.bytes => {
                last.bytes = last.bytes.max(span.low + span.bytes - last.low);
                last.stored |= span.stored;
            }
            _ => merged.push(span),
        }
    }
    let region = |span: Span| {
        let extent = i64::try_from(span.bytes).map_err(|_| "is larger than any memory")?;
        let host: *const u8 = ptr::with_exposed_provenance(span.low as usize);
        // SAFETY: Python's objects say that their elements lie there, and keep them as long as the call lasts; bytes between two
        // elements of an array are of the same array.
        let held = unsafe { std::slice::from_raw_parts(host, extent as usize) };
        let memory = device.upload(DType::U8, &[extent], held);
        Ok(Region {
            low: span.low,
            bytes: span.bytes,
            stored: span.stored,
            device: memory.map_err(|e| format!("cannot be copied: {e}"))?,
        })
    };
    merged.into_iter().map(region).collect()
}

/// The address on the device of a tensor's element 0.
fn address(span: &Span, regions: &[Region]) -> u64 {
    let holds = |r: &&Region| r.low <= span.low && span.low + span.bytes <= r.low + r.bytes;
    match regions.iter().find(holds).filter(|_| span.bytes > 0) {
        Some(region) => region.device.view().pointer() + (span.low - region.low) + span.first,
        // Nothing is there, and nothing is reached.
        None => 1 << 8,
    }
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
    let mut spans = Vec::new();
    let fault = |name: &str, reason: String| {
        let message = format!("`{owner}`: `{name}` {reason}");
        error::argument(py, owner, Some(name), message)
    };
    let mut first = "";
    for (name, tensor) in arguments.tensors() {
        let kind = signature.param(name).map(|i| &signature.params[i].kind);
        let stored = matches!(kind, Some(ParamKind::View(view)) if view.access != Access::Read);
        spans.push(span(tensor, stored).map_err(|reason| fault(name, reason))?);
        first = if first.is_empty() { name } else { first };
    }
    let regions = copied(&spans, &device).map_err(|reason| fault(first, reason))?;
    let addresses: Vec<u64> = spans.iter().map(|s| address(s, &regions)).collect();
    // SAFETY: every tensor is a copy of all that its elements reach, which lives until the end of this function.
    let args = unsafe { arguments.at(&addresses) };
    let done = py.detach(|| {
        let stream = device.stream()?;
        let done = launch(&device, &stream, &args)?;
        stream.synchronize()?;
        Ok(done)
    });
    let done = done.map_err(raise)?;
    for region in regions.iter().filter(|r| r.stored) {
        let bytes = region.device.read().map_err(raise)?;
        // SAFETY: as above; an array that is stored to is writable, and the interpreter is held.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), region.host(), bytes.len()) };
    }
    Ok(done)
}
