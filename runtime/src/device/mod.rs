//! Devices, and what belongs to one: streams, events, memory, loaded modules.
//!
//! Everything above this module is the same for all kinds of device; a further kind is a further variant here.
//! Invariants: only `cuda.rs` calls the driver; each call runs with the device's context current and leaves the
//! thread's context as it was; only `emulator.rs` knows the emulator, and no driver is loaded for it.

mod cuda;
mod emulator;
mod words;

use std::{env, ffi::c_void, fmt, sync::Arc};

use tesserine_set::DType;

use crate::{
    Capability, DeviceTensor, Error,
    select::Traits,
    tensor_map::{MapBytes, MapParameters},
};

pub(crate) use cuda::LoadFault;
use cuda::{
    CudaDevice, CudaEncoder, CudaEvent, CudaFunction, CudaGraph, CudaMemory, CudaModule, CudaStream,
};
pub use emulator::emulators;
use emulator::{
    EmulatedDevice, EmulatedEvent, EmulatedFunction, EmulatedGraph, EmulatedMemory, EmulatedModule,
    EmulatedStream,
};

/// A device that runs kernels. Clones are the same device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Device {
    /// A GPU, through its primary context.
    Cuda(CudaDevice),
    /// PTX on the CPU.
    Emulator(EmulatedDevice),
}

/// What the driver tells of a device without a context on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The driver's number; of emulated devices, how many were made before.
    pub ordinal: usize,
    /// As the vendor names it.
    pub name: String,
    pub capability: Capability,
    /// Bytes.
    pub memory: usize,
}

/// The newest CUDA version that the driver serves, (13, 0); an error where there is no driver.
pub fn driver_version() -> Result<(u32, u32), Error> {
    cuda::driver_version()
}

/// The devices of the driver, which are none on a machine whose driver finds none.
pub fn cuda_devices() -> Result<Vec<DeviceInfo>, Error> {
    cuda::devices()
}

impl Device {
    /// CUDA device `ordinal`, in the driver's order.
    pub fn cuda(ordinal: usize) -> Result<Device, Error> {
        Ok(Device::Cuda(CudaDevice::open(ordinal)?))
    }

    /// A new emulated device of `target`, one of the ten that code is made for: `sm_90a`. It has memory of its own, work runs at
    /// once on the thread that queues it, and a launch gives its own fault. It takes PTX only, and checks facts from the start
    /// ([`Device::check_facts`]) unless `$TESS_CHECK_FACTS` is `0`.
    pub fn emulator(target: &str) -> Result<Device, Error> {
        Ok(Device::Emulator(EmulatedDevice::open(Some(target))?))
    }

    /// The device of that name: `cuda`, `cuda:1`; `emulator:sm_80` for a new emulated one, and `emulator` for `emulator:sm_90a`.
    pub fn named(name: &str) -> Result<Device, Error> {
        let unknown = || Error::UnknownDevice(name.to_owned());
        match name.split_once(':') {
            None if name == "cuda" => Device::cuda(0),
            None if name == "emulator" => Ok(Device::Emulator(EmulatedDevice::open(None)?)),
            Some(("emulator", target)) => Device::emulator(target),
            Some(("cuda", ordinal)) if ordinal.bytes().all(|b| b.is_ascii_digit()) => {
                Device::cuda(ordinal.parse().map_err(|_| unknown())?)
            }
            _ => Err(unknown()),
        }
    }

    /// The device that `$TESS_DEVICE` names, else `cuda`.
    pub fn from_env() -> Result<Device, Error> {
        match env::var("TESS_DEVICE") {
            Ok(name) => Device::named(&name),
            Err(env::VarError::NotPresent) => Device::cuda(0),
            Err(env::VarError::NotUnicode(name)) => {
                Err(Error::UnknownDevice(name.to_string_lossy().into_owned()))
            }
        }
    }

    /// Name, capability and memory.
    pub fn info(&self) -> &DeviceInfo {
        match self {
            Device::Cuda(device) => device.info(),
            Device::Emulator(device) => device.info(),
        }
    }

    /// Multiprocessors.
    pub fn multiprocessors(&self) -> u32 {
        match self {
            Device::Cuda(device) => device.multiprocessors(),
            Device::Emulator(device) => device.multiprocessors(),
        }
    }

    /// The newest CUDA version that the device's driver serves.
    pub fn driver_version(&self) -> (u32, u32) {
        match self {
            Device::Cuda(device) => device.driver_version(),
            Device::Emulator(device) => device.driver_version(),
        }
    }

    /// Whether launches on this device and its clones check what views declare of their elements, `sorted` and
    /// `distinct`, instead of trusting it. Off unless `$TESS_CHECK_FACTS` was `1` when the device was opened; on an emulated
    /// device on unless it was `0`.
    ///
    /// To find mistakes, not to run with: where a kernel or op has such views, a launch first waits for its stream and copies
    /// them to the host, the bytes between their elements included; those must be readable memory of the device as well. If a
    /// fact does not hold, nothing is launched, and the error names the kernel, the parameter, the fact and the first index at
    /// fault. In an op each launch is checked once those before it have run, so that one that is refused follows on others
    /// that were not. Work of other streams is not waited for. While a stream is captured there is nothing to check yet, and
    /// launches with such views are refused.
    pub fn check_facts(&self, check: bool) {
        match self {
            Device::Cuda(device) => device.check_facts(check),
            Device::Emulator(device) => device.check_facts(check),
        }
    }

    /// As [`Device::check_facts`] left it.
    pub fn checks_facts(&self) -> bool {
        match self {
            Device::Cuda(device) => device.checks_facts(),
            Device::Emulator(device) => device.checks_facts(),
        }
    }

    /// What the choice of code depends on.
    pub fn traits(&self) -> Traits {
        Traits {
            capability: self.info().capability,
            cuda: self.driver_version(),
            ptx_only: matches!(self, Device::Emulator(_)),
        }
    }

    /// The most bytes of dynamic shared memory that a block may ask for.
    pub(crate) fn shared_limit(&self) -> u32 {
        match self {
            Device::Cuda(device) => device.shared_limit(),
            Device::Emulator(device) => device.shared_limit(),
        }
    }

    /// What encodes tensor maps for the device.
    pub(crate) fn encoder(&self) -> Result<Encoder<'_>, String> {
        Ok(match self {
            Device::Cuda(device) => Encoder::Cuda(device.encoder()?),
            Device::Emulator(_) => Encoder::Emulator,
        })
    }

    /// Makes sure that the next word of state needs no allocation.
    pub(crate) fn reserve_words(&self) -> Result<(), Error> {
        match self {
            Device::Cuda(device) => device.reserve_words(),
            Device::Emulator(device) => device.reserve_words(),
        }
    }

    /// Tells contexts apart; one that is in use keeps its key.
    pub(crate) fn context_key(&self) -> usize {
        match self {
            Device::Cuda(device) => device.context_key(),
            Device::Emulator(device) => device.context_key(),
        }
    }

    /// A new stream, which no other waits for.
    pub fn stream(&self) -> Result<Stream, Error> {
        let kind = match self {
            Device::Cuda(device) => StreamKind::Cuda(CudaStream::new(device)?),
            Device::Emulator(device) => StreamKind::Emulator(EmulatedStream::new(device)),
        };
        Ok(Stream {
            kind,
            device: self.clone(),
        })
    }

    /// The context's default stream.
    pub fn default_stream(&self) -> Stream {
        let kind = match self {
            Device::Cuda(device) => StreamKind::Cuda(CudaStream::default_of(device)),
            Device::Emulator(device) => StreamKind::Emulator(EmulatedStream::default_of(device)),
        };
        Stream {
            kind,
            device: self.clone(),
        }
    }

    /// A `CUstream` of someone else's, such as a framework's current one.
    ///
    /// # Safety
    /// `raw` must be a stream of this device's primary context, or null, and stay one as long as the result is used.
    pub unsafe fn borrow_stream(&self, raw: *mut c_void) -> Stream {
        let kind = match self {
            // SAFETY: the caller's promise is the same.
            Device::Cuda(device) => StreamKind::Cuda(unsafe { CudaStream::borrowed(device, raw) }),
            // There is nothing to borrow: null is the only stream of others.
            Device::Emulator(device) => StreamKind::Emulator(EmulatedStream::default_of(device)),
        };
        Stream {
            kind,
            device: self.clone(),
        }
    }

    /// Waits for all work of the device.
    pub fn synchronize(&self) -> Result<(), Error> {
        match self {
            Device::Cuda(device) => device.synchronize(),
            // Whoever queued work has waited for it.
            Device::Emulator(_) => Ok(()),
        }
    }

    /// A row-major tensor of unspecified contents.
    pub fn alloc(&self, dtype: DType, shape: &[i64]) -> Result<DeviceTensor, Error> {
        DeviceTensor::new(self, dtype, shape)
    }

    /// A row-major tensor with these bytes.
    pub fn upload(&self, dtype: DType, shape: &[i64], bytes: &[u8]) -> Result<DeviceTensor, Error> {
        let tensor = self.alloc(dtype, shape)?;
        tensor.write(bytes)?;
        Ok(tensor)
    }

    /// A point in a stream's work that can be timed.
    pub fn event(&self) -> Result<Event, Error> {
        match self {
            Device::Cuda(device) => Ok(Event(EventKind::Cuda(CudaEvent::new(device)?))),
            Device::Emulator(_) => Ok(Event(EventKind::Emulator(EmulatedEvent::default()))),
        }
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        match (self, other) {
            (Device::Cuda(a), Device::Cuda(b)) => a.info().ordinal == b.info().ordinal,
            (Device::Emulator(a), Device::Emulator(b)) => a.is(b),
            _ => false,
        }
    }
}

impl Eq for Device {}

/// Encodes tensor maps, as many as wanted while it lives.
pub(crate) enum Encoder<'a> {
    Cuda(CudaEncoder<'a>),
    Emulator,
}

impl Encoder<'_> {
    /// The tensor map of these parameters; else what is wrong with them.
    pub(crate) fn encode(&self, parameters: &MapParameters) -> Result<MapBytes, String> {
        match self {
            Encoder::Cuda(encoder) => encoder.encode(parameters),
            Encoder::Emulator => parameters.emulated(),
        }
    }
}

/// `cuda:0`, `emulator:sm_90a`.
impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cuda(device) => write!(f, "cuda:{}", device.info().ordinal),
            Device::Emulator(device) => f.write_str(device.label()),
        }
    }
}

/// Work that a device does in order.
#[derive(Debug)]
pub struct Stream {
    pub(crate) kind: StreamKind,
    device: Device,
}

#[derive(Debug)]
pub(crate) enum StreamKind {
    Cuda(CudaStream),
    Emulator(EmulatedStream),
}

impl Stream {
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Waits for all work queued so far.
    pub fn synchronize(&self) -> Result<(), Error> {
        match &self.kind {
            StreamKind::Cuda(stream) => stream.synchronize(),
            StreamKind::Emulator(stream) => stream.synchronize(),
        }
    }

    /// Whether what is queued goes into a graph instead of running.
    pub fn is_capturing(&self) -> Result<bool, Error> {
        match &self.kind {
            StreamKind::Cuda(stream) => stream.is_capturing(),
            StreamKind::Emulator(stream) => Ok(stream.is_capturing()),
        }
    }

    /// Records what `queue` queues on this stream instead of running it. Kernels and ops must have run or been prepared
    /// before, since loading code is no part of a graph; what they take must live as long as the graph is launched.
    pub fn capture(
        &self,
        queue: impl FnOnce(&Stream) -> Result<(), Error>,
    ) -> Result<Graph, Error> {
        match &self.kind {
            StreamKind::Cuda(stream) => stream.begin_capture()?,
            StreamKind::Emulator(stream) => stream.begin_capture()?,
        }
        let queued = queue(self);
        // Ended in every case, so that the stream is itself again.
        let graph = match &self.kind {
            StreamKind::Cuda(stream) => stream.end_capture().map(GraphKind::Cuda),
            StreamKind::Emulator(stream) => stream.end_capture().map(GraphKind::Emulator),
        };
        queued?;
        Ok(Graph(graph?))
    }

    /// The word of state of the bare launch that is queued next.
    pub(crate) fn word(&self) -> Result<u64, Error> {
        match &self.kind {
            StreamKind::Cuda(stream) => stream.word(),
            StreamKind::Emulator(stream) => stream.word(),
        }
    }

    /// Copies `into.len()` bytes at `address` once all work queued so far is done, and waits for it.
    ///
    /// # Safety
    /// They must be allocated memory of this device.
    pub(crate) unsafe fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Error> {
        match &self.kind {
            // SAFETY: the caller's promise is the same.
            StreamKind::Cuda(stream) => unsafe { stream.read(address, into) },
            StreamKind::Emulator(stream) => stream.read(address, into),
        }
    }

    /// Queues the filling of memory with elements of `bits` bits.
    ///
    /// # Safety
    /// `bytes` at `address` must be memory of this device that nothing else uses meanwhile.
    pub(crate) unsafe fn fill(
        &self,
        address: u64,
        bits: u32,
        value: u64,
        bytes: usize,
    ) -> Result<(), Error> {
        match &self.kind {
            // SAFETY: the caller's promise is the same.
            StreamKind::Cuda(stream) => unsafe { stream.fill(address, bits, value, bytes) },
            StreamKind::Emulator(stream) => stream.fill(address, bits, value, bytes),
        }
    }

    /// Something of another kind of device was given to this stream.
    fn elsewhere(&self, call: &'static str, reason: &str) -> Error {
        Error::Driver {
            device: self.device.to_string(),
            call,
            reason: reason.to_owned(),
        }
    }

    /// Queues a copy of `from`'s bytes to `to`, which must be as long and on this stream's device.
    pub fn copy(&self, from: &DeviceTensor, to: &DeviceTensor) -> Result<(), Error> {
        if from.byte_size() != to.byte_size() {
            return Err(Error::Size {
                dtype: to.dtype(),
                shape: to.shape().to_vec(),
                expected: to.byte_size(),
                given: from.byte_size(),
            });
        }
        match (&self.kind, &from.memory, &to.memory) {
            (StreamKind::Cuda(stream), Memory::Cuda(from), Memory::Cuda(to)) => {
                stream.copy(from, to)
            }
            (StreamKind::Emulator(stream), Memory::Emulator(from), Memory::Emulator(to)) => {
                stream.copy(from, to)
            }
            _ => Err(self.elsewhere("copy", "a tensor is another device's")),
        }
    }
}

/// Launches that were captured ([`Stream::capture`]), to be run again and again. Runs of one graph follow each other.
#[derive(Debug)]
pub struct Graph(GraphKind);

#[derive(Debug)]
enum GraphKind {
    Cuda(CudaGraph),
    Emulator(EmulatedGraph),
}

impl Graph {
    /// Queues all its launches on `stream`.
    pub fn launch(&self, stream: &Stream) -> Result<(), Error> {
        match (&self.0, &stream.kind) {
            (GraphKind::Cuda(graph), StreamKind::Cuda(stream)) => graph.launch(stream),
            (GraphKind::Emulator(graph), StreamKind::Emulator(stream)) => graph.launch(stream),
            _ => Err(stream.elsewhere("graph launch", "the graph is another device's")),
        }
    }
}

/// A point in a stream's work.
#[derive(Debug)]
pub struct Event(EventKind);

#[derive(Debug)]
enum EventKind {
    Cuda(CudaEvent),
    Emulator(EmulatedEvent),
}

impl Event {
    /// Marks what `stream` holds now.
    pub fn record(&self, stream: &Stream) -> Result<(), Error> {
        match (&self.0, &stream.kind) {
            (EventKind::Cuda(event), StreamKind::Cuda(stream)) => event.record(stream),
            (EventKind::Emulator(event), StreamKind::Emulator(_)) => {
                event.record();
                Ok(())
            }
            _ => Err(stream.elsewhere("event record", "the event is another device's")),
        }
    }

    /// Waits until the work before the mark is done.
    pub fn synchronize(&self) -> Result<(), Error> {
        match &self.0 {
            EventKind::Cuda(event) => event.synchronize(),
            EventKind::Emulator(_) => Ok(()),
        }
    }

    /// Milliseconds from this mark to `later`; waits for the latter.
    pub fn elapsed_ms(&self, later: &Event) -> Result<f32, Error> {
        let failed = |reason: &str| Error::Driver {
            device: "emulator".to_owned(),
            call: "elapsed time",
            reason: reason.to_owned(),
        };
        match (&self.0, &later.0) {
            (EventKind::Cuda(from), EventKind::Cuda(to)) => from.elapsed_ms(to),
            (EventKind::Emulator(from), EventKind::Emulator(to)) => {
                let elapsed = from.elapsed_ms(to);
                elapsed.ok_or_else(|| failed("an event was never recorded"))
            }
            _ => Err(failed("the events are of two devices")),
        }
    }
}

/// Memory of a device, freed when dropped.
#[derive(Debug)]
pub(crate) enum Memory {
    Cuda(CudaMemory),
    Emulator(EmulatedMemory),
}

impl Memory {
    pub(crate) fn new(device: &Device, bytes: usize) -> Result<Memory, Error> {
        match device {
            Device::Cuda(device) => Ok(Memory::Cuda(CudaMemory::new(device, bytes)?)),
            Device::Emulator(device) => Ok(Memory::Emulator(EmulatedMemory::new(device, bytes)?)),
        }
    }

    pub(crate) fn pointer(&self) -> u64 {
        match self {
            Memory::Cuda(memory) => memory.pointer(),
            Memory::Emulator(memory) => memory.pointer(),
        }
    }

    pub(crate) fn byte_size(&self) -> usize {
        match self {
            Memory::Cuda(memory) => memory.byte_size(),
            Memory::Emulator(memory) => memory.byte_size(),
        }
    }

    pub(crate) fn write(&self, bytes: &[u8]) -> Result<(), Error> {
        match self {
            Memory::Cuda(memory) => memory.write(bytes),
            Memory::Emulator(memory) => memory.write(bytes),
        }
    }

    pub(crate) fn read(&self) -> Result<Vec<u8>, Error> {
        match self {
            Memory::Cuda(memory) => memory.read(),
            Memory::Emulator(memory) => memory.read(),
        }
    }

    pub(crate) fn fill(&self, byte: u8) -> Result<(), Error> {
        match self {
            Memory::Cuda(memory) => memory.fill(byte),
            Memory::Emulator(memory) => memory.fill(byte),
        }
    }
}

/// Tells apart what a set's modules were loaded for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModuleKey {
    /// A context of the driver.
    Context(usize),
    /// All emulated devices of a target.
    Emulated(tesserine_emulator::target::Target),
}

impl Device {
    pub(crate) fn module_key(&self) -> ModuleKey {
        match self {
            Device::Cuda(_) => ModuleKey::Context(self.context_key()),
            Device::Emulator(device) => ModuleKey::Emulated(device.target()),
        }
    }
}

/// Code that was loaded.
#[derive(Debug)]
pub(crate) enum Module {
    Cuda(Arc<CudaModule>),
    Emulator(EmulatedModule),
}

impl Module {
    /// Loads PTX text or a cubin.
    pub(crate) fn load(device: &Device, image: Vec<u8>) -> Result<Module, LoadFault> {
        Ok(match device {
            Device::Cuda(device) => Module::Cuda(Arc::new(CudaModule::load(device, image)?)),
            Device::Emulator(device) => Module::Emulator(EmulatedModule::load(device, image)?),
        })
    }

    /// The entry of that name, ready for blocks with that much dynamic shared memory, `cluster` of which run together.
    pub(crate) fn function(
        &self,
        name: &str,
        shared_bytes: u32,
        cluster: u32,
    ) -> Result<Function, LoadFault> {
        Ok(match self {
            Module::Cuda(module) => Function::Cuda(module.function(name, shared_bytes, cluster)?),
            Module::Emulator(module) => Function::Emulator(module.function(name, cluster)?),
        })
    }
}

/// An entry of a module, and what keeps it loaded.
#[derive(Debug)]
pub(crate) enum Function {
    Cuda(CudaFunction),
    Emulator(EmulatedFunction),
}

impl Function {
    /// How many blocks of `threads` threads, with that much dynamic shared memory, one multiprocessor runs at once.
    pub(crate) fn blocks_per_sm(&self, threads: u32, shared_bytes: u32) -> Result<u32, Error> {
        match self {
            Function::Cuda(function) => function.blocks_per_sm(threads, shared_bytes),
            Function::Emulator(function) => Ok(function.blocks_per_sm()),
        }
    }

    /// Queues `blocks` blocks of `threads` threads of `kernel`, a name for errors. Each argument is eight bytes, of which the
    /// kernel reads as many as its parameter has; those that `maps` names are tensor maps. `overlap`: it waits itself for the
    /// kernel before it, and may begin while that one ends.
    ///
    /// # Safety
    /// The arguments must be those that the entry takes, and the memory that they address must be what the kernel takes
    /// it for.
    pub(crate) unsafe fn launch(
        &self,
        stream: &Stream,
        kernel: &str,
        blocks: u32,
        threads: u32,
        shared_bytes: u32,
        overlap: bool,
        arguments: &mut [u64],
        maps: &[(usize, MapBytes)],
    ) -> Result<(), Error> {
        match (self, &stream.kind) {
            (Function::Cuda(function), StreamKind::Cuda(stream)) => {
                // SAFETY: the caller's promise is the same.
                unsafe {
                    function.launch(
                        stream,
                        blocks,
                        threads,
                        shared_bytes,
                        overlap,
                        arguments,
                        maps,
                    )
                }
            }
            (Function::Emulator(function), StreamKind::Emulator(stream)) => function.launch(
                stream,
                kernel,
                blocks,
                threads,
                shared_bytes,
                arguments,
                maps,
            ),
            _ => Err(stream.elsewhere("launch", "the code is another device's")),
        }
    }
}
