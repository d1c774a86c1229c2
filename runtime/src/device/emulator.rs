//! Devices that are not there: PTX executed on the CPU, by the crate `tesserine-emulator`.
//!
//! Work runs at once, on the thread that queues it, so that a launch gives its own fault. Invariants: work of one stream never
//! overlaps; a launch that faulted has left memory as it was at the fault; every device has memory of its own, and its addresses
//! mean nothing to others; a graph keeps the code that it launches, but not the memory.

use std::{
    env,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Instant,
};

use tesserine_emulator::{
    self as machine, Launch, MemoryError, Options,
    target::{TARGETS, Target},
};

use super::{
    DeviceInfo,
    cuda::LoadFault,
    words::{Words, ZeroedForEver},
};
use crate::{Capability, Error, select, tensor_map::MapBytes};

/// The target of `emulator` without one: the first that the library was tuned for.
const DEFAULT: &str = "sm_90a";

/// Few, so that the blocks of a persistent kernel take several points of a small grid each.
const MULTIPROCESSORS: u32 = 2;

/// What a device says that it has, and grants.
const MEMORY_BYTES: usize = 16 << 30;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What these locks hold is whole at every step.
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// A device that executes PTX on the CPU, with memory of its own. Clones are the same device.
#[derive(Clone, Debug)]
pub struct EmulatedDevice(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    info: DeviceInfo,
    label: String,
    target: Target,
    memory: machine::Memory,
    /// Bytes that are allocated.
    allocated: AtomicUsize,
    /// The next stream's number; 0 is the default stream.
    streams: AtomicU64,
    /// The order of the default stream's work.
    default_order: Arc<Mutex<()>>,
    words: Words,
    check_facts: AtomicBool,
    options: Options,
}

impl EmulatedDevice {
    /// A new device of that target; `None`: of the default one.
    pub(super) fn open(target: Option<&str>) -> Result<EmulatedDevice, Error> {
        let name = target.unwrap_or(DEFAULT);
        let target =
            Target::named(name).ok_or_else(|| Error::UnknownDevice(format!("emulator:{name}")))?;
        static OPENED: AtomicUsize = AtomicUsize::new(0);
        let capability = Capability {
            major: target.sm / 10,
            minor: target.sm % 10,
        };
        Ok(EmulatedDevice(Arc::new(Inner {
            info: DeviceInfo {
                ordinal: OPENED.fetch_add(1, Ordering::Relaxed),
                name: format!("emulated {target}"),
                capability,
                memory: MEMORY_BYTES,
            },
            label: format!("emulator:{target}"),
            target,
            memory: machine::Memory::new(),
            allocated: AtomicUsize::new(0),
            streams: AtomicU64::new(1),
            default_order: Arc::default(),
            words: Words::default(),
            check_facts: AtomicBool::new(env::var_os("TESS_CHECK_FACTS").is_none_or(|v| v != "0")),
            options: Options::default(),
        })))
    }

    pub(super) fn info(&self) -> &DeviceInfo {
        &self.0.info
    }

    pub(super) fn label(&self) -> &str {
        &self.0.label
    }

    pub(super) fn target(&self) -> Target {
        self.0.target
    }

    pub(super) fn driver_version(&self) -> (u32, u32) {
        select::newest_cuda()
    }

    pub(super) fn multiprocessors(&self) -> u32 {
        MULTIPROCESSORS
    }

    pub(super) fn shared_limit(&self) -> u32 {
        self.0.target.shared_limit
    }

    pub(super) fn check_facts(&self, check: bool) {
        self.0.check_facts.store(check, Ordering::Relaxed);
    }

    pub(super) fn checks_facts(&self) -> bool {
        self.0.check_facts.load(Ordering::Relaxed)
    }

    pub(super) fn context_key(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    pub(super) fn is(&self, other: &EmulatedDevice) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(super) fn reserve_words(&self) -> Result<(), Error> {
        self.0.words.reserve(self)
    }

    fn refused(&self, error: MemoryError) -> Error {
        Error::EmulatedMemory {
            device: self.0.label.clone(),
            error,
        }
    }

    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Error> {
        if into.is_empty() {
            return Ok(());
        }
        let read = self.0.memory.read(address, into);
        read.map_err(|e| self.refused(e))
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Error> {
        if bytes.is_empty() {
            return Ok(());
        }
        let written = self.0.memory.write(address, bytes);
        written.map_err(|e| self.refused(e))
    }

    /// Does `work`, with the order of its stream held.
    fn perform(&self, work: &Work) -> Result<(), Error> {
        match work {
            Work::Launch(launch) => launch.run(self),
            Work::Fill { address, bytes } => self.write(*address, bytes),
            Work::Copy { from, to, bytes } => {
                let mut held = zeroed(*bytes).ok_or_else(|| self.too_large(*bytes))?;
                self.read(*from, &mut held)?;
                self.write(*to, &held)
            }
        }
    }

    fn too_large(&self, bytes: usize) -> Error {
        let free = MEMORY_BYTES.saturating_sub(self.0.allocated.load(Ordering::Relaxed));
        self.refused(MemoryError(format!(
            "{bytes} bytes of memory are wanted, and {free} are free"
        )))
    }
}

/// So many bytes of 0, if the host has them.
fn zeroed(bytes: usize) -> Option<Vec<u8>> {
    let mut memory = Vec::new();
    memory.try_reserve_exact(bytes).ok()?;
    memory.resize(bytes, 0);
    Some(memory)
}

impl ZeroedForEver for EmulatedDevice {
    fn zeroed_for_ever(&self, bytes: usize) -> Result<u64, Error> {
        let address = self.0.memory.allocate(bytes);
        let address = address.map_err(|e| self.refused(e))?;
        self.write(address, &vec![0; bytes])?;
        Ok(address)
    }
}

/// What a stream does, in order.
#[derive(Clone, Debug)]
enum Work {
    Launch(Recorded),
    Fill { address: u64, bytes: Arc<[u8]> },
    Copy { from: u64, to: u64, bytes: usize },
}

/// One launch of a kernel.
#[derive(Clone, Debug)]
struct Recorded {
    function: Arc<Entry>,
    kernel: String,
    blocks: u32,
    threads: u32,
    shared_bytes: u32,
    arguments: Vec<u64>,
    maps: Vec<(usize, MapBytes)>,
}

impl Recorded {
    fn run(&self, device: &EmulatedDevice) -> Result<(), Error> {
        let entry = &self.function;
        let bytes: Vec<[u8; 8]> = self.arguments.iter().map(|a| a.to_le_bytes()).collect();
        let sizes = entry.parameters.iter();
        let mut arguments: Vec<&[u8]> = bytes
            .iter()
            .zip(sizes)
            .map(|(b, &n)| &b[..n.min(b.len())])
            .collect();
        for (i, map) in &self.maps {
            if let Some(argument) = arguments.get_mut(*i) {
                *argument = &map.0;
            }
        }
        let launch = Launch {
            entry: &entry.name,
            grid: [self.blocks, 1, 1],
            block: [self.threads, 1, 1],
            cluster: [entry.cluster, 1, 1],
            shared_bytes: self.shared_bytes,
            arguments: &arguments,
        };
        let inner = &device.0;
        let ran = entry.module.launch(&inner.memory, &launch, &inner.options);
        ran.map(|_| ()).map_err(|fault| Error::Emulator {
            kernel: self.kernel.clone(),
            device: inner.label.clone(),
            fault: Box::new(fault),
        })
    }
}

/// What a stream records instead of doing it.
#[derive(Debug, Default)]
struct Capture {
    work: Vec<Work>,
    /// Words of state that its launches took.
    words: Vec<u64>,
}

/// A stream, whose work is done when it has been queued.
#[derive(Debug)]
pub(crate) struct EmulatedStream {
    device: EmulatedDevice,
    number: u64,
    order: Arc<Mutex<()>>,
    captured: Mutex<Option<Capture>>,
}

impl EmulatedStream {
    pub(super) fn new(device: &EmulatedDevice) -> EmulatedStream {
        EmulatedStream {
            device: device.clone(),
            number: device.0.streams.fetch_add(1, Ordering::Relaxed),
            order: Arc::default(),
            captured: Mutex::default(),
        }
    }

    pub(super) fn default_of(device: &EmulatedDevice) -> EmulatedStream {
        EmulatedStream {
            device: device.clone(),
            number: 0,
            order: device.0.default_order.clone(),
            captured: Mutex::default(),
        }
    }

    /// Waits for what another thread runs on it.
    pub(super) fn synchronize(&self) -> Result<(), Error> {
        if self.is_capturing() {
            return Err(self.capturing("synchronize"));
        }
        drop(locked(&self.order));
        Ok(())
    }

    pub(super) fn is_capturing(&self) -> bool {
        locked(&self.captured).is_some()
    }

    fn capturing(&self, what: &'static str) -> Error {
        self.failed(what, "the stream is being captured")
    }

    fn failed(&self, call: &'static str, reason: &str) -> Error {
        Error::Driver {
            device: self.device.0.label.clone(),
            call,
            reason: reason.to_owned(),
        }
    }

    /// Does the work, or records it.
    fn queue(&self, work: Work) -> Result<(), Error> {
        if let Some(capture) = &mut *locked(&self.captured) {
            capture.work.push(work);
            return Ok(());
        }
        let _order = locked(&self.order);
        self.device.perform(&work)
    }

    /// The word of state of the launch that is queued next.
    pub(super) fn word(&self) -> Result<u64, Error> {
        let words = &self.device.0.words;
        match &mut *locked(&self.captured) {
            None => words.of_stream(&self.device, self.number),
            Some(capture) => {
                let word = words.take(&self.device)?;
                capture.words.push(word);
                Ok(word)
            }
        }
    }

    pub(super) fn begin_capture(&self) -> Result<(), Error> {
        let mut captured = locked(&self.captured);
        if captured.is_some() {
            return Err(self.capturing("begin capture"));
        }
        *captured = Some(Capture::default());
        Ok(())
    }

    pub(super) fn end_capture(&self) -> Result<EmulatedGraph, Error> {
        match locked(&self.captured).take() {
            Some(capture) => Ok(EmulatedGraph {
                device: self.device.clone(),
                capture,
            }),
            None => Err(self.failed("end capture", "the stream is not being captured")),
        }
    }

    /// Fills memory with elements of `bits` bits, the low ones of `value`.
    pub(super) fn fill(
        &self,
        address: u64,
        bits: u32,
        value: u64,
        bytes: usize,
    ) -> Result<(), Error> {
        let low = value & (u64::MAX >> (64 - bits));
        // Narrow elements are repeated in a byte.
        let byte = (0..8 / bits.min(8)).fold(0u64, |b, i| b | low << (i * bits));
        let pattern = match bits < 8 {
            true => byte.to_le_bytes(),
            false => low.to_le_bytes(),
        };
        let pattern = &pattern[..(bits as usize).div_ceil(8)];
        let mut filled = zeroed(bytes).ok_or_else(|| self.device.too_large(bytes))?;
        for chunk in filled.chunks_mut(pattern.len()) {
            chunk.copy_from_slice(&pattern[..chunk.len()]);
        }
        self.queue(Work::Fill {
            address,
            bytes: filled.into(),
        })
    }

    pub(super) fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Error> {
        if self.is_capturing() {
            return Err(self.capturing("read"));
        }
        let _order = locked(&self.order);
        self.device.read(address, into)
    }

    pub(super) fn copy(&self, from: &EmulatedMemory, to: &EmulatedMemory) -> Result<(), Error> {
        self.queue(Work::Copy {
            from: from.address,
            to: to.address,
            bytes: from.bytes.min(to.bytes),
        })
    }
}

/// Work that was captured, to be done again and again.
#[derive(Debug)]
pub(crate) struct EmulatedGraph {
    device: EmulatedDevice,
    capture: Capture,
}

impl EmulatedGraph {
    pub(super) fn launch(&self, stream: &EmulatedStream) -> Result<(), Error> {
        if !self.device.is(&stream.device) {
            return Err(stream.failed("graph launch", "the graph is another device's"));
        }
        self.capture
            .work
            .iter()
            .try_for_each(|work| stream.queue(work.clone()))
    }
}

impl Drop for EmulatedGraph {
    fn drop(&mut self) {
        self.device.0.words.give_back(&self.capture.words);
    }
}

/// A point in a stream's work: a time, since the work before it is done.
#[derive(Debug, Default)]
pub(crate) struct EmulatedEvent(Mutex<Option<Instant>>);

impl EmulatedEvent {
    pub(super) fn record(&self) {
        *locked(&self.0) = Some(Instant::now());
    }

    /// Milliseconds of the CPU's time; `None` if one of both was never recorded.
    pub(super) fn elapsed_ms(&self, later: &EmulatedEvent) -> Option<f32> {
        let (from, to) = ((*locked(&self.0))?, (*locked(&later.0))?);
        Some(match to.checked_duration_since(from) {
            Some(duration) => duration.as_secs_f32() * 1e3,
            None => -from.duration_since(to).as_secs_f32() * 1e3,
        })
    }
}

/// An allocation.
#[derive(Debug)]
pub(crate) struct EmulatedMemory {
    device: EmulatedDevice,
    address: u64,
    bytes: usize,
}

impl EmulatedMemory {
    pub(super) fn new(device: &EmulatedDevice, bytes: usize) -> Result<EmulatedMemory, Error> {
        let allocated = &device.0.allocated;
        let taken = allocated.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|&sum| sum <= MEMORY_BYTES)
        });
        taken.map_err(|_| device.too_large(bytes))?;
        match device.0.memory.allocate(bytes) {
            Ok(address) => Ok(EmulatedMemory {
                device: device.clone(),
                address,
                bytes,
            }),
            Err(error) => {
                allocated.fetch_sub(bytes, Ordering::Relaxed);
                Err(device.refused(error))
            }
        }
    }

    pub(super) fn pointer(&self) -> u64 {
        self.address
    }

    pub(super) fn byte_size(&self) -> usize {
        self.bytes
    }

    /// `bytes` is as long as the allocation.
    pub(super) fn write(&self, bytes: &[u8]) -> Result<(), Error> {
        let length = self.bytes.min(bytes.len());
        self.device.write(self.address, &bytes[..length])
    }

    pub(super) fn read(&self) -> Result<Vec<u8>, Error> {
        let bytes = zeroed(self.bytes);
        let mut bytes = bytes.ok_or_else(|| self.device.too_large(self.bytes))?;
        self.device.read(self.address, &mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn fill(&self, byte: u8) -> Result<(), Error> {
        self.write(&vec![byte; self.bytes])
    }
}

impl Drop for EmulatedMemory {
    fn drop(&mut self) {
        let inner = &self.device.0;
        // The address was given out by this memory, and is freed once.
        let _ = inner.memory.free(self.address);
        inner.allocated.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// PTX that was parsed and decoded for a target; devices of that target share it.
#[derive(Debug)]
pub(crate) struct EmulatedModule(machine::Module);

/// An entry of a module, as it is launched.
#[derive(Debug)]
struct Entry {
    module: machine::Module,
    name: String,
    /// Bytes of each parameter.
    parameters: Vec<usize>,
    cluster: u32,
}

/// An entry of a module, and what keeps it loaded.
#[derive(Debug)]
pub(crate) struct EmulatedFunction(Arc<Entry>);

fn fault(report: impl Into<String>) -> LoadFault {
    LoadFault {
        report: report.into(),
    }
}

impl EmulatedModule {
    /// Parses PTX.
    pub(super) fn load(
        device: &EmulatedDevice,
        image: Vec<u8>,
    ) -> Result<EmulatedModule, LoadFault> {
        let text = String::from_utf8(image).map_err(|_| fault("it is no PTX text"))?;
        let module = machine::Module::load(text.trim_end_matches('\0'), device.0.target);
        module
            .map(EmulatedModule)
            .map_err(|error| fault(error.to_string()))
    }

    /// The entry of that name, for clusters of so many blocks.
    pub(super) fn function(&self, name: &str, cluster: u32) -> Result<EmulatedFunction, LoadFault> {
        let entries = self.0.entries();
        let entry = entries.into_iter().find(|e| e.name == name);
        let entry = entry.ok_or_else(|| fault(format!("it has no entry `{name}`")))?;
        let sizes = entry.parameters.iter().map(|(size, _)| *size);
        let sizes: Option<Vec<usize>> = sizes
            .map(|size| usize::try_from(size).ok().filter(|n| *n <= 8 || *n == 128))
            .collect();
        let parameters = sizes.ok_or_else(|| {
            fault(format!(
                "entry `{name}` has a parameter that is neither a word nor a tensor map"
            ))
        })?;
        Ok(EmulatedFunction(Arc::new(Entry {
            module: self.0.clone(),
            name: entry.name,
            parameters,
            cluster: cluster.max(1),
        })))
    }
}

impl EmulatedFunction {
    /// One: how many registers a thread needs nobody knows here, and few blocks take several points of a grid each.
    pub(super) fn blocks_per_sm(&self) -> u32 {
        1
    }

    /// Runs the kernel to its end or its fault. Each argument is eight bytes, of which the kernel reads as many as its parameter
    /// has.
    pub(super) fn launch(
        &self,
        stream: &EmulatedStream,
        kernel: &str,
        blocks: u32,
        threads: u32,
        shared_bytes: u32,
        arguments: &[u64],
        maps: &[(usize, MapBytes)],
    ) -> Result<(), Error> {
        stream.queue(Work::Launch(Recorded {
            function: self.0.clone(),
            kernel: kernel.to_owned(),
            blocks,
            threads,
            shared_bytes,
            arguments: arguments.to_vec(),
            maps: maps.to_vec(),
        }))
    }
}

/// The names of devices of the emulator, `emulator:sm_75` first.
pub fn emulators() -> impl Iterator<Item = String> {
    TARGETS.into_iter().map(|t| format!("emulator:{t}"))
}
