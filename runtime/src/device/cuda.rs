//! The CUDA driver: the only place that calls it.
//!
//! Invariants: no symbol of the driver is touched before [`driver`] found the library (the bindings would panic);
//! every function used here exists since CUDA 11, so that older drivers lack none; each call is made with the device's
//! primary context current, which a [`Current`] restores.

use std::{
    env,
    ffi::{CStr, CString, c_char, c_int, c_uint, c_void},
    ptr,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use cudarc::driver::sys::{
    self, CUcontext, CUdevice_attribute_enum as Attribute, CUevent, CUfunction,
    CUfunction_attribute_enum as FunctionAttribute, CUgraph, CUgraphExec,
    CUjit_option_enum as JitOption, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue,
    CUlaunchConfig, CUmodule, CUresult, CUstream, CUstreamCaptureMode_enum as CaptureMode,
    CUstreamCaptureStatus_enum as CaptureStatus,
};
use smallvec::SmallVec;

use super::{
    DeviceInfo,
    words::{Words, ZeroedForEver},
};
use crate::{
    Capability, Error,
    tensor_map::{MapBytes, MapParameters},
};

/// Loads and initialises the driver once; the answer stands for the process.
fn driver() -> Result<(), Error> {
    static STATE: OnceLock<Result<(), Option<String>>> = OnceLock::new();
    let state = STATE.get_or_init(|| {
        // SAFETY: loading the driver's library runs its initialisers, which is what every CUDA program does.
        if !unsafe { sys::is_culib_present() } {
            return Err(None);
        }
        // SAFETY: the library is there; 0 is the only flag.
        let result = unsafe { sys::cuInit(0) };
        match result {
            CUresult::CUDA_SUCCESS => Ok(()),
            result => Err(Some(describe(result))),
        }
    });
    match state {
        Ok(()) => Ok(()),
        Err(None) => Err(Error::NoDriver),
        Err(Some(reason)) => Err(Error::DriverInit {
            reason: reason.clone(),
        }),
    }
}

/// "CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)". The library must be there.
fn describe(result: CUresult) -> String {
    let text = |get: unsafe fn(CUresult, *mut *const c_char) -> CUresult| {
        let mut text: *const c_char = ptr::null();
        // SAFETY: the call stores a pointer to a constant of the driver, or null for a code that it does not know.
        let known = unsafe { get(result, &mut text) };
        if known != CUresult::CUDA_SUCCESS || text.is_null() {
            return None;
        }
        // SAFETY: it is a C string that lives as long as the driver.
        let text = unsafe { CStr::from_ptr(text) };
        Some(text.to_string_lossy().into_owned())
    };
    let name = text(sys::cuGetErrorName).unwrap_or_else(|| format!("error {}", result as u32));
    match text(sys::cuGetErrorString) {
        Some(sentence) => format!("{name} ({sentence})"),
        None => name,
    }
}

fn checked(device: &str, call: &'static str, result: CUresult) -> Result<(), Error> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        result => Err(Error::Driver {
            device: device.to_owned(),
            call,
            reason: describe(result),
        }),
    }
}

pub(super) fn driver_version() -> Result<(u32, u32), Error> {
    driver()?;
    let mut version: c_int = 0;
    // SAFETY: the call stores an int.
    let result = unsafe { sys::cuDriverGetVersion(&mut version) };
    checked("the driver", "cuDriverGetVersion", result)?;
    let version = version.max(0) as u32;
    Ok((version / 1000, version % 1000 / 10))
}

fn device_count() -> Result<usize, Error> {
    match driver() {
        Ok(()) => {}
        // A driver on a machine whose GPUs are hidden or gone starts with this error.
        Err(Error::DriverInit { reason }) if reason.starts_with("CUDA_ERROR_NO_DEVICE") => {
            return Ok(0);
        }
        Err(error) => return Err(error),
    }
    let mut count: c_int = 0;
    // SAFETY: the call stores an int.
    let result = unsafe { sys::cuDeviceGetCount(&mut count) };
    checked("the driver", "cuDeviceGetCount", result)?;
    Ok(count.max(0) as usize)
}

pub(super) fn devices() -> Result<Vec<DeviceInfo>, Error> {
    (0..device_count()?)
        .map(|ordinal| Ok(describe_device(ordinal)?.1))
        .collect()
}

fn attribute(name: &str, device: c_int, attribute: Attribute) -> Result<u32, Error> {
    let mut value: c_int = 0;
    // SAFETY: the call stores an int; `device` came from `cuDeviceGet`.
    let result = unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device) };
    checked(name, "cuDeviceGetAttribute", result)?;
    Ok(value.max(0) as u32)
}

fn describe_device(ordinal: usize) -> Result<(c_int, DeviceInfo), Error> {
    let label = format!("cuda:{ordinal}");
    let mut device: c_int = 0;
    // SAFETY: the call stores an int; an ordinal that does not exist is an error of its own.
    checked(&label, "cuDeviceGet", unsafe {
        sys::cuDeviceGet(&mut device, ordinal as c_int)
    })?;
    let mut name = [0 as c_char; 256];
    // SAFETY: the call stores at most as many bytes as it is told, the closing zero included.
    checked(&label, "cuDeviceGetName", unsafe {
        sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int - 1, device)
    })?;
    let mut memory = 0usize;
    // SAFETY: the call stores a size.
    checked(&label, "cuDeviceTotalMem", unsafe {
        sys::cuDeviceTotalMem_v2(&mut memory, device)
    })?;
    let capability = Capability {
        major: attribute(
            &label,
            device,
            Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
        )?,
        minor: attribute(
            &label,
            device,
            Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        )?,
    };
    // SAFETY: the buffer was zeroed and its last byte was never written.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    let info = DeviceInfo {
        ordinal,
        name: name.to_string_lossy().into_owned(),
        capability,
        memory,
    };
    Ok((device, info))
}

/// A device with its primary context retained.
#[derive(Clone, Debug)]
pub struct CudaDevice(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    info: DeviceInfo,
    label: String,
    handle: c_int,
    context: CUcontext,
    driver: (u32, u32),
    multiprocessors: u32,
    shared_limit: u32,
    words: Words,
    check_facts: AtomicBool,
}

// SAFETY: a context may be current in several threads at once, and the driver's calls are thread-safe.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the context was retained once by this device, and nothing that uses it outlives the last clone.
        // Nothing can be done about a failure, which a driver that shuts down gives.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.handle) };
    }
}

/// `cuTensorMapEncodeTiled`. Drivers before 12.0 lack it: the bindings would end the process.
type EncodeTiled = unsafe extern "C" fn(
    *mut MapBytes,
    u32,
    u32,
    *mut c_void,
    *const u64,
    *const u64,
    *const u32,
    *const u32,
    u32,
    u32,
    u32,
    u32,
) -> CUresult;

/// Encodes tensor maps, with the device's context current.
pub(crate) struct CudaEncoder<'a> {
    encode: EncodeTiled,
    _current: Current,
    _device: &'a CudaDevice,
}

impl CudaEncoder<'_> {
    /// The tensor map of these parameters.
    pub(super) fn encode(&self, map: &MapParameters) -> Result<MapBytes, String> {
        let [data_type, interleave, swizzle, promotion, fill] = map.codes();
        let mut made = MapBytes([0; 128]);
        // SAFETY: the arrays have as many values as a map of five dimensions needs; the result has the size and alignment
        // of a map; the address is not read.
        let result = unsafe {
            (self.encode)(
                &mut made,
                data_type,
                map.rank as u32,
                map.global_address as *mut c_void,
                map.global_dim.as_ptr(),
                map.global_strides.as_ptr(),
                map.box_dim.as_ptr(),
                [1u32; 5].as_ptr(),
                interleave,
                swizzle,
                promotion,
                fill,
            )
        };
        match result {
            CUresult::CUDA_SUCCESS => Ok(made),
            result => Err(describe(result)),
        }
    }
}

/// Makes a context current and restores the one before when dropped.
struct Current {
    before: Option<CUcontext>,
}

impl Drop for Current {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // SAFETY: `before` was current in this thread; null is none.
            let _ = unsafe { sys::cuCtxSetCurrent(before) };
        }
    }
}

impl CudaDevice {
    pub(super) fn open(ordinal: usize) -> Result<CudaDevice, Error> {
        let count = device_count()?;
        if ordinal >= count {
            return Err(Error::NoDevice { ordinal, count });
        }
        let (handle, info) = describe_device(ordinal)?;
        let label = format!("cuda:{ordinal}");
        let get = |which| attribute(&label, handle, which);
        let multiprocessors = get(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let shared_limit = get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        let driver = driver_version()?;
        let mut context: CUcontext = ptr::null_mut();
        // SAFETY: the call stores a context, which `Inner` releases.
        checked(&label, "cuDevicePrimaryCtxRetain", unsafe {
            sys::cuDevicePrimaryCtxRetain(&mut context, handle)
        })?;
        Ok(CudaDevice(Arc::new(Inner {
            info,
            label,
            handle,
            context,
            driver,
            multiprocessors,
            shared_limit,
            words: Words::default(),
            check_facts: AtomicBool::new(env::var_os("TESS_CHECK_FACTS").is_some_and(|v| v == "1")),
        })))
    }

    pub(super) fn info(&self) -> &DeviceInfo {
        &self.0.info
    }

    pub(super) fn driver_version(&self) -> (u32, u32) {
        self.0.driver
    }

    pub(super) fn multiprocessors(&self) -> u32 {
        self.0.multiprocessors
    }

    pub(super) fn shared_limit(&self) -> u32 {
        self.0.shared_limit
    }

    pub(super) fn check_facts(&self, check: bool) {
        self.0.check_facts.store(check, Ordering::Relaxed);
    }

    pub(super) fn checks_facts(&self) -> bool {
        self.0.check_facts.load(Ordering::Relaxed)
    }

    pub(super) fn context_key(&self) -> usize {
        self.0.context as usize
    }

    /// Makes sure that the next word of state needs no allocation.
    pub(super) fn reserve_words(&self) -> Result<(), Error> {
        self.0.words.reserve(self)
    }

    fn checked(&self, call: &'static str, result: CUresult) -> Result<(), Error> {
        checked(&self.0.label, call, result)
    }

    /// What encodes tensor maps.
    pub(super) fn encoder(&self) -> Result<CudaEncoder<'_>, String> {
        static ENCODE: OnceLock<Result<EncodeTiled, String>> = OnceLock::new();
        let encode = ENCODE.get_or_init(|| {
            // SAFETY: the library was found, since there is a device, and is never unloaded; the function has had this type
            // since CUDA 12.0, whose enumerations are 32 bits wide.
            let encode = unsafe { sys::culib().get::<EncodeTiled>(b"cuTensorMapEncodeTiled\0") };
            encode.map(|encode| *encode).map_err(|e| e.to_string())
        });
        Ok(CudaEncoder {
            encode: encode.clone()?,
            _current: self.enter().map_err(|e| e.to_string())?,
            _device: self,
        })
    }

    fn enter(&self) -> Result<Current, Error> {
        let mut before: CUcontext = ptr::null_mut();
        // SAFETY: the call stores a context or null.
        self.checked("cuCtxGetCurrent", unsafe {
            sys::cuCtxGetCurrent(&mut before)
        })?;
        if before == self.0.context {
            return Ok(Current { before: None });
        }
        // SAFETY: the context is retained as long as `self` lives.
        self.checked("cuCtxSetCurrent", unsafe {
            sys::cuCtxSetCurrent(self.0.context)
        })?;
        Ok(Current {
            before: Some(before),
        })
    }

    pub(super) fn synchronize(&self) -> Result<(), Error> {
        let _current = self.enter()?;
        // SAFETY: a context is current.
        self.checked("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
    }
}

impl ZeroedForEver for CudaDevice {
    fn zeroed_for_ever(&self, bytes: usize) -> Result<u64, Error> {
        let device = self;
        let stream = CudaStream::new(device)?;
        let _current = device.enter()?;
        let mut mode = CaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the call exchanges the thread's mode for the one given. An allocation is no part of any capture.
        device.checked("cuThreadExchangeStreamCaptureMode", unsafe {
            sys::cuThreadExchangeStreamCaptureMode(&mut mode)
        })?;
        let mut pointer = 0u64;
        // SAFETY: the call stores an address.
        let result = unsafe { sys::cuMemAlloc_v2(&mut pointer, bytes) };
        let zeroed = device.checked("cuMemAlloc", result).and_then(|()| {
            // SAFETY: the memory was allocated just now.
            unsafe { stream.fill(pointer, 8, 0, bytes) }?;
            stream.synchronize()
        });
        // SAFETY: as above; this restores the mode.
        let restored = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
        zeroed?;
        device.checked("cuThreadExchangeStreamCaptureMode", restored)?;
        Ok(pointer)
    }
}

/// A stream, owned or borrowed.
#[derive(Debug)]
pub(crate) struct CudaStream {
    device: CudaDevice,
    raw: CUstream,
    owned: bool,
    /// While this object captures: the words of state that launches took.
    captured: Mutex<Option<Vec<u64>>>,
}

// SAFETY: streams may be used from any thread; the driver's calls are thread-safe.
unsafe impl Send for CudaStream {}
// SAFETY: as above.
unsafe impl Sync for CudaStream {}

impl CudaStream {
    pub(super) fn new(device: &CudaDevice) -> Result<CudaStream, Error> {
        let _current = device.enter()?;
        let mut raw: CUstream = ptr::null_mut();
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as c_uint;
        // SAFETY: the call stores a stream of the current context, which the result destroys.
        device.checked("cuStreamCreate", unsafe {
            sys::cuStreamCreate(&mut raw, flags)
        })?;
        Ok(CudaStream {
            device: device.clone(),
            raw,
            owned: true,
            captured: Mutex::default(),
        })
    }

    pub(super) fn default_of(device: &CudaDevice) -> CudaStream {
        CudaStream {
            device: device.clone(),
            raw: ptr::null_mut(),
            owned: false,
            captured: Mutex::default(),
        }
    }

    /// # Safety
    /// `raw` must be a stream of the device's primary context, or null, and stay one.
    pub(super) unsafe fn borrowed(device: &CudaDevice, raw: *mut c_void) -> CudaStream {
        CudaStream {
            device: device.clone(),
            raw: raw.cast(),
            owned: false,
            captured: Mutex::default(),
        }
    }

    pub(super) fn synchronize(&self) -> Result<(), Error> {
        let _current = self.device.enter()?;
        // SAFETY: the stream belongs to the current context.
        self.device.checked("cuStreamSynchronize", unsafe {
            sys::cuStreamSynchronize(self.raw)
        })
    }

    /// Whether launches on the stream are recorded into a graph instead of running.
    pub(super) fn is_capturing(&self) -> Result<bool, Error> {
        let _current = self.device.enter()?;
        let mut status = CaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the stream belongs to the current context, and the call stores a status.
        self.device.checked("cuStreamIsCapturing", unsafe {
            sys::cuStreamIsCapturing(self.raw, &mut status)
        })?;
        Ok(status == CaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE)
    }

    /// A number that no other stream has, nor will have once this one is gone.
    fn number(&self) -> u64 {
        // Drivers before CUDA 12 number no streams; there the handle has to do, and for the default stream of each
        // thread, which is one handle, the thread's own storage.
        type GetId = unsafe extern "C" fn(CUstream, *mut u64) -> CUresult;
        static GET_ID: OnceLock<Option<GetId>> = OnceLock::new();
        let known = GET_ID.get_or_init(|| {
            // SAFETY: the library was found, since there is a device, and is never unloaded; the function has had this type
            // since it was there.
            let get = unsafe { sys::culib().get::<GetId>(b"cuStreamGetId\0") };
            get.ok().map(|get| *get)
        });
        let mut id = 0u64;
        if let Some(get) = known
            && let Ok(_current) = self.device.enter()
            // SAFETY: the stream belongs to the current context, and the call stores a number.
            && unsafe { get(self.raw, &mut id) } == CUresult::CUDA_SUCCESS
        {
            return id;
        }
        thread_local!(static HERE: u8 = const { 0 });
        const PER_THREAD: usize = 2;
        match self.raw as usize {
            PER_THREAD => HERE.with(|here| ptr::from_ref(here) as u64) | 1 << 63,
            handle => handle as u64,
        }
    }

    /// The word of state of the launch that is queued next.
    pub(super) fn word(&self) -> Result<u64, Error> {
        let words = &self.device.0.words;
        if !self.is_capturing()? {
            return words.of_stream(&self.device, self.number());
        }
        let word = words.take(&self.device)?;
        let mut captured = self.captured.lock().unwrap_or_else(|e| e.into_inner());
        // A capture that someone else began ends where nobody here sees it, and so does the graph: the word is its for ever.
        if let Some(list) = &mut *captured {
            list.push(word);
        }
        Ok(word)
    }

    pub(super) fn begin_capture(&self) -> Result<(), Error> {
        let _current = self.device.enter()?;
        let mode = CaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream belongs to the current context; one that cannot capture is an error.
        self.device.checked("cuStreamBeginCapture", unsafe {
            sys::cuStreamBeginCapture_v2(self.raw, mode)
        })?;
        *self.captured.lock().unwrap_or_else(|e| e.into_inner()) = Some(Vec::new());
        Ok(())
    }

    pub(super) fn end_capture(&self) -> Result<CudaGraph, Error> {
        let _current = self.device.enter()?;
        let words = self
            .captured
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .take();
        let mut graph: CUgraph = ptr::null_mut();
        // SAFETY: the stream captures, and the call stores a graph, which is destroyed below.
        self.device.checked("cuStreamEndCapture", unsafe {
            sys::cuStreamEndCapture(self.raw, &mut graph)
        })?;
        let mut raw: CUgraphExec = ptr::null_mut();
        // SAFETY: the graph is whole, and the call stores what the result destroys.
        let result = unsafe { sys::cuGraphInstantiateWithFlags(&mut raw, graph, 0) };
        // SAFETY: the graph was made here; what was instantiated does not need it.
        let _ = unsafe { sys::cuGraphDestroy(graph) };
        self.device.checked("cuGraphInstantiate", result)?;
        Ok(CudaGraph {
            device: self.device.clone(),
            raw,
            words: words.unwrap_or_default(),
        })
    }

    /// Queues the filling of `count` elements of `bits` bits at `address` with the low bits of `value`.
    ///
    /// # Safety
    /// The memory must be allocated, and nothing else may use it meanwhile.
    pub(super) unsafe fn fill(
        &self,
        address: u64,
        bits: u32,
        value: u64,
        bytes: usize,
    ) -> Result<(), Error> {
        if bytes == 0 {
            return Ok(());
        }
        let _current = self.device.enter()?;
        let low = value & (u64::MAX >> (64 - bits));
        // Narrow elements are repeated in a byte; wide ones of one byte value are filled by bytes.
        let byte = (0..8 / bits.min(8)).fold(0u64, |b, i| b | low << (i * bits)) as u8;
        let whole = u64::from_le_bytes([low as u8; 8]) & (u64::MAX >> (64 - bits.max(8)));
        let half = (low as u32, (low >> 32) as u32);
        // SAFETY: the caller's promise; the stream belongs to the current context.
        let result = unsafe {
            if bits <= 8 {
                sys::cuMemsetD8Async(address, byte, bytes, self.raw)
            } else if whole == low {
                sys::cuMemsetD8Async(address, low as u8, bytes, self.raw)
            } else if bits == 16 {
                sys::cuMemsetD16Async(address, low as u16, bytes / 2, self.raw)
            } else if bits == 32 || half.0 == half.1 {
                sys::cuMemsetD32Async(address, half.0, bytes / 4, self.raw)
            } else {
                let low = sys::cuMemsetD2D32Async(address, 8, half.0, 1, bytes / 8, self.raw);
                match low {
                    CUresult::CUDA_SUCCESS => {
                        sys::cuMemsetD2D32Async(address + 4, 8, half.1, 1, bytes / 8, self.raw)
                    }
                    failed => failed,
                }
            }
        };
        self.device.checked("cuMemsetAsync", result)
    }

    /// Copies bytes at `address` once the stream's work is done, and waits for it.
    ///
    /// # Safety
    /// They must be allocated memory.
    pub(super) unsafe fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Error> {
        let _current = self.device.enter()?;
        // SAFETY: the caller's promise; the stream belongs to the current context.
        let result = unsafe {
            sys::cuMemcpyDtoHAsync_v2(into.as_mut_ptr().cast(), address, into.len(), self.raw)
        };
        // Waited for in any case: the driver may not use `into` any longer.
        let ended = self.synchronize();
        self.device.checked("cuMemcpyDtoHAsync", result)?;
        ended
    }

    pub(super) fn copy(&self, from: &CudaMemory, to: &CudaMemory) -> Result<(), Error> {
        let _current = self.device.enter()?;
        let bytes = from.bytes.min(to.bytes);
        // SAFETY: both allocations hold that many bytes.
        self.device.checked("cuMemcpyDtoDAsync", unsafe {
            sys::cuMemcpyDtoDAsync_v2(to.pointer, from.pointer, bytes, self.raw)
        })
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        if self.owned
            && let Ok(_current) = self.device.enter()
        {
            // SAFETY: the stream was created here; the driver finishes its work before it is gone.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.raw) };
        }
    }
}

/// Launches that were captured, to be run again and again.
#[derive(Debug)]
pub(crate) struct CudaGraph {
    device: CudaDevice,
    raw: CUgraphExec,
    words: Vec<u64>,
}

// SAFETY: a graph may be launched from any thread; the driver's calls are thread-safe, and launches of one graph follow
// each other.
unsafe impl Send for CudaGraph {}
// SAFETY: as above.
unsafe impl Sync for CudaGraph {}

impl CudaGraph {
    pub(super) fn launch(&self, stream: &CudaStream) -> Result<(), Error> {
        let _current = self.device.enter()?;
        // SAFETY: both are alive; that they belong to one context is checked by the driver.
        self.device.checked("cuGraphLaunch", unsafe {
            sys::cuGraphLaunch(self.raw, stream.raw)
        })
    }
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        if let Ok(_current) = self.device.enter() {
            // SAFETY: a context is current. The words of the graph's launches must not be another's before they ended.
            let ended = unsafe { sys::cuCtxSynchronize() };
            // SAFETY: the graph was instantiated here.
            let _ = unsafe { sys::cuGraphExecDestroy(self.raw) };
            if ended == CUresult::CUDA_SUCCESS {
                self.device.0.words.give_back(&self.words);
            }
        }
    }
}

/// An event that records times.
#[derive(Debug)]
pub(crate) struct CudaEvent {
    device: CudaDevice,
    raw: CUevent,
}

// SAFETY: events may be used from any thread; the driver's calls are thread-safe.
unsafe impl Send for CudaEvent {}
// SAFETY: as above.
unsafe impl Sync for CudaEvent {}

impl CudaEvent {
    pub(super) fn new(device: &CudaDevice) -> Result<CudaEvent, Error> {
        let _current = device.enter()?;
        let mut raw: CUevent = ptr::null_mut();
        // SAFETY: the call stores an event of the current context, which the result destroys.
        device.checked("cuEventCreate", unsafe { sys::cuEventCreate(&mut raw, 0) })?;
        Ok(CudaEvent {
            device: device.clone(),
            raw,
        })
    }

    pub(super) fn record(&self, stream: &CudaStream) -> Result<(), Error> {
        let _current = self.device.enter()?;
        // SAFETY: both are alive; that they belong to one context is checked by the driver.
        self.device.checked("cuEventRecord", unsafe {
            sys::cuEventRecord(self.raw, stream.raw)
        })
    }

    pub(super) fn synchronize(&self) -> Result<(), Error> {
        let _current = self.device.enter()?;
        // SAFETY: the event is alive.
        self.device.checked("cuEventSynchronize", unsafe {
            sys::cuEventSynchronize(self.raw)
        })
    }

    pub(super) fn elapsed_ms(&self, later: &CudaEvent) -> Result<f32, Error> {
        later.synchronize()?;
        let _current = self.device.enter()?;
        // The bindings for CUDA 13 name `cuEventElapsedTime_v2`, which drivers before 12.8 lack.
        type ElapsedTime = unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> CUresult;
        // SAFETY: the library was found, since there is a device; the function has had this type since CUDA 2.
        let elapsed = unsafe { sys::culib().get::<ElapsedTime>(b"cuEventElapsedTime\0") };
        let elapsed = elapsed.map_err(|error| Error::Driver {
            device: self.device.0.label.clone(),
            call: "cuEventElapsedTime",
            reason: error.to_string(),
        })?;
        let mut milliseconds = 0f32;
        // SAFETY: both events are alive, and the call stores a float. One that was never recorded is an error.
        let result = unsafe { elapsed(&mut milliseconds, self.raw, later.raw) };
        self.device.checked("cuEventElapsedTime", result)?;
        Ok(milliseconds)
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        if let Ok(_current) = self.device.enter() {
            // SAFETY: the event was created here.
            let _ = unsafe { sys::cuEventDestroy_v2(self.raw) };
        }
    }
}

/// An allocation.
#[derive(Debug)]
pub(crate) struct CudaMemory {
    device: CudaDevice,
    pointer: u64,
    bytes: usize,
}

impl CudaMemory {
    pub(super) fn new(device: &CudaDevice, bytes: usize) -> Result<CudaMemory, Error> {
        let _current = device.enter()?;
        let mut pointer = 0u64;
        // SAFETY: the call stores an address, which the result frees. The driver refuses allocations of nothing.
        device.checked("cuMemAlloc", unsafe {
            sys::cuMemAlloc_v2(&mut pointer, bytes.max(1))
        })?;
        Ok(CudaMemory {
            device: device.clone(),
            pointer,
            bytes,
        })
    }

    pub(super) fn pointer(&self) -> u64 {
        self.pointer
    }

    pub(super) fn byte_size(&self) -> usize {
        self.bytes
    }

    /// Runs a transfer of all bytes with no work before it pending, and waits for it.
    fn transfer(&self, call: &'static str, run: impl FnOnce() -> CUresult) -> Result<(), Error> {
        let _current = self.device.enter()?;
        if self.bytes == 0 {
            return Ok(());
        }
        self.device.synchronize()?;
        self.device.checked(call, run())?;
        self.device.synchronize()
    }

    /// `bytes` is as long as the allocation.
    pub(super) fn write(&self, bytes: &[u8]) -> Result<(), Error> {
        let length = self.bytes.min(bytes.len());
        // SAFETY: both sides hold that many bytes.
        self.transfer("cuMemcpyHtoD", || unsafe {
            sys::cuMemcpyHtoD_v2(self.pointer, bytes.as_ptr().cast(), length)
        })
    }

    pub(super) fn read(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0u8; self.bytes];
        // SAFETY: both sides hold that many bytes.
        self.transfer("cuMemcpyDtoH", || unsafe {
            sys::cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), self.pointer, self.bytes)
        })?;
        Ok(bytes)
    }

    pub(super) fn fill(&self, byte: u8) -> Result<(), Error> {
        // SAFETY: the allocation holds that many bytes.
        self.transfer("cuMemsetD8", || unsafe {
            sys::cuMemsetD8_v2(self.pointer, byte, self.bytes)
        })
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        if let Ok(_current) = self.device.enter() {
            // SAFETY: the address was allocated here; freeing waits for the work that may use it.
            let _ = unsafe { sys::cuMemFree_v2(self.pointer) };
        }
    }
}

/// A module that a context has loaded.
#[derive(Debug)]
pub(crate) struct CudaModule {
    device: CudaDevice,
    raw: CUmodule,
}

// SAFETY: modules may be used from any thread; the driver's calls are thread-safe.
unsafe impl Send for CudaModule {}
// SAFETY: as above.
unsafe impl Sync for CudaModule {}

/// Why the driver took no code: its error, and on further lines what its assembler said.
#[derive(Debug)]
pub(crate) struct LoadFault {
    pub(crate) report: String,
}

impl From<Error> for LoadFault {
    fn from(error: Error) -> LoadFault {
        LoadFault {
            report: error.to_string(),
        }
    }
}

/// An entry of a module, and what keeps it loaded.
#[derive(Debug)]
pub(crate) struct CudaFunction {
    module: Arc<CudaModule>,
    raw: CUfunction,
}

// SAFETY: functions may be launched from any thread; the driver's calls are thread-safe.
unsafe impl Send for CudaFunction {}
// SAFETY: as above.
unsafe impl Sync for CudaFunction {}

impl CudaModule {
    /// Loads PTX text or a cubin.
    pub(super) fn load(device: &CudaDevice, image: Vec<u8>) -> Result<CudaModule, LoadFault> {
        let _current = device.enter()?;
        // PTX is a C string; a cubin knows its own length, and a zero behind it does no harm.
        let mut image = image;
        image.push(0);
        let mut log = vec![0u8; 16 << 10];
        // The driver's assembler fills the log with what it has to say of an error; lines keep their source positions.
        let mut options = [
            JitOption::CU_JIT_ERROR_LOG_BUFFER,
            JitOption::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
            JitOption::CU_JIT_GENERATE_LINE_INFO,
        ];
        // The last byte stays zero. Sizes and flags are passed in the pointers themselves.
        let mut values: [*mut c_void; 3] = [
            log.as_mut_ptr().cast(),
            ptr::without_provenance_mut(log.len() - 1),
            ptr::without_provenance_mut(1),
        ];
        let mut raw: CUmodule = ptr::null_mut();
        // SAFETY: image and log outlive the call, there are as many options as values, and the call stores a module of
        // the current context, which the result unloads.
        let result = unsafe {
            sys::cuModuleLoadDataEx(
                &mut raw,
                image.as_ptr().cast(),
                options.len() as c_uint,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        if result != CUresult::CUDA_SUCCESS {
            let end = log.iter().position(|&b| b == 0).unwrap_or(log.len());
            let log = String::from_utf8_lossy(&log[..end]);
            let report = format!("{}\n{}", describe(result), log.trim());
            return Err(LoadFault {
                report: report.trim_end().to_owned(),
            });
        }
        Ok(CudaModule {
            device: device.clone(),
            raw,
        })
    }

    /// The entry of that name, ready for blocks with that much dynamic shared memory.
    pub(crate) fn function(
        self: &Arc<CudaModule>,
        name: &str,
        shared_bytes: u32,
        cluster: u32,
    ) -> Result<CudaFunction, LoadFault> {
        let _current = self.device.enter()?;
        let fault = |call: &str, result| LoadFault {
            report: format!("{call}: {}", describe(result)),
        };
        let c_name = CString::new(name).map_err(|_| LoadFault {
            report: "the entry's name holds a zero".to_owned(),
        })?;
        let mut raw: CUfunction = ptr::null_mut();
        // SAFETY: the module is alive, the name ends in zero, and the call stores a function.
        let result = unsafe { sys::cuModuleGetFunction(&mut raw, self.raw, c_name.as_ptr()) };
        if result != CUresult::CUDA_SUCCESS {
            return Err(fault(&format!("entry `{name}`"), result));
        }
        // What every device grants without being asked.
        const GRANTED: u32 = 48 << 10;
        if shared_bytes > GRANTED {
            let which = FunctionAttribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function is alive.
            let result = unsafe { sys::cuFuncSetAttribute(raw, which, shared_bytes as c_int) };
            if result != CUresult::CUDA_SUCCESS {
                return Err(fault("cuFuncSetAttribute", result));
            }
        }
        // What every device with clusters grants without being asked.
        const PORTABLE: u32 = 8;
        if cluster > PORTABLE {
            let which = FunctionAttribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
            // SAFETY: the function is alive.
            let result = unsafe { sys::cuFuncSetAttribute(raw, which, 1) };
            if result != CUresult::CUDA_SUCCESS {
                return Err(fault("cuFuncSetAttribute", result));
            }
        }
        Ok(CudaFunction {
            module: self.clone(),
            raw,
        })
    }
}

impl Drop for CudaModule {
    fn drop(&mut self) {
        if let Ok(_current) = self.device.enter() {
            // SAFETY: a context is current; kernels of the module may still run, and must not lose their code.
            let _ = unsafe { sys::cuCtxSynchronize() };
            // SAFETY: the module was loaded here, and every function of it holds it alive.
            let _ = unsafe { sys::cuModuleUnload(self.raw) };
        }
    }
}

/// `cuLaunchKernelEx`, which drivers before 11.8 lack. Without it launches do not overlap, which is as right.
type LaunchEx = unsafe extern "C" fn(
    *const CUlaunchConfig,
    CUfunction,
    *mut *mut c_void,
    *mut *mut c_void,
) -> CUresult;

/// The driver's, if it has it. There must be a device.
fn launch_ex() -> Option<LaunchEx> {
    static LAUNCH: OnceLock<Option<LaunchEx>> = OnceLock::new();
    *LAUNCH.get_or_init(|| {
        // SAFETY: the library was found, since there is a device, and is never unloaded; the function has had this type since it
        // was there.
        let launch = unsafe { sys::culib().get::<LaunchEx>(b"cuLaunchKernelEx\0") };
        launch.ok().map(|launch| *launch)
    })
}

impl CudaFunction {
    /// How many blocks of `threads` threads, with that much dynamic shared memory, one multiprocessor runs at once.
    pub(crate) fn blocks_per_sm(&self, threads: u32, shared_bytes: u32) -> Result<u32, Error> {
        let device = &self.module.device;
        let _current = device.enter()?;
        let mut blocks: c_int = 0;
        // SAFETY: the function is alive, and the call stores a number.
        let result = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut blocks,
                self.raw,
                threads as c_int,
                shared_bytes as usize,
            )
        };
        device.checked("cuOccupancyMaxActiveBlocksPerMultiprocessor", result)?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }

    /// Queues `blocks` blocks of `threads` threads. Each argument is eight bytes, of which the kernel reads as many as
    /// its parameter has; those that `maps` names are tensor maps.
    ///
    /// # Safety
    /// The arguments must be those that the entry takes, and the memory that they address must be what the kernel takes
    /// it for.
    pub(crate) unsafe fn launch(
        &self,
        stream: &CudaStream,
        blocks: u32,
        threads: u32,
        shared_bytes: u32,
        overlap: bool,
        arguments: &mut [u64],
        maps: &[(usize, MapBytes)],
    ) -> Result<(), Error> {
        let device = &self.module.device;
        let _current = device.enter()?;
        let pointers = arguments.iter_mut().map(|a| ptr::from_mut(a).cast());
        let mut pointers: SmallVec<[*mut c_void; 32]> = pointers.collect();
        for (i, map) in maps {
            // The driver only reads it.
            pointers[*i] = ptr::from_ref(map).cast_mut().cast();
        }
        if overlap && let Some(launch) = launch_ex() {
            let mut attribute = CUlaunchAttribute {
                id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                pad: Default::default(),
                value: CUlaunchAttributeValue {
                    programmaticStreamSerializationAllowed: 1,
                },
            };
            let config = CUlaunchConfig {
                gridDimX: blocks,
                gridDimY: 1,
                gridDimZ: 1,
                blockDimX: threads,
                blockDimY: 1,
                blockDimZ: 1,
                sharedMemBytes: shared_bytes,
                hStream: stream.raw,
                attrs: &mut attribute,
                numAttrs: 1,
            };
            // SAFETY: as below; the driver reads the attribute before it returns.
            let result =
                unsafe { launch(&config, self.raw, pointers.as_mut_ptr(), ptr::null_mut()) };
            return device.checked("cuLaunchKernelEx", result);
        }
        // SAFETY: function and stream are alive and, as the driver checks, of one context; the driver copies the
        // arguments before it returns.
        device.checked("cuLaunchKernel", unsafe {
            sys::cuLaunchKernel(
                self.raw,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                shared_bytes,
                stream.raw,
                pointers.as_mut_ptr(),
                ptr::null_mut(),
            )
        })
    }
}
