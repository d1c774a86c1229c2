//! All that can go wrong between a kernel set and a launch. Every message names the kernel, argument, device or
//! version that it is about.

use tesserine_set::{BindError, BrokenFact, DType, FormulaError, SetError};

use crate::select::{SelectError, Target};

/// Why a set, device, tensor or launch was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("{0}")]
    Set(#[from] SetError),
    #[error("{0}")]
    Select(#[from] SelectError),

    #[error("there is no CUDA driver here: libcuda.so.1 cannot be loaded")]
    NoDriver,
    #[error("the CUDA driver does not start: {reason}")]
    DriverInit { reason: String },
    #[error("there is no device cuda:{ordinal}; the driver has {count}")]
    NoDevice { ordinal: usize, count: usize },
    #[error("`{0}` is no device; devices are `cuda`, `cuda:N`, `emulator`, and {emulators}", emulators = list(&crate::emulators().collect::<Vec<_>>()))]
    UnknownDevice(String),
    /// A driver call failed. An error of an earlier, asynchronous launch may come up here.
    #[error("{device}: {call} failed: {reason}")]
    Driver {
        device: String,
        call: &'static str,
        reason: String,
    },

    /// Memory of an emulated device was refused.
    #[error("{device}: {error}")]
    EmulatedMemory {
        device: String,
        error: tesserine_emulator::MemoryError,
    },
    /// The emulator found something wrong with a kernel while it ran. The launch is not done.
    #[error("`{kernel}` on {device}: {fault}")]
    Emulator {
        kernel: String,
        device: String,
        fault: Box<tesserine_emulator::Fault>,
    },

    /// Bulk copies cannot reach a tensor as it lies.
    #[error("`{kernel}` copies `{param}` through a tensor map: {reason}")]
    TensorMap {
        kernel: String,
        param: String,
        reason: String,
    },

    #[error("`{op}`: {error}")]
    Op {
        op: String,
        error: tesserine_set::OpError,
    },
    /// A launch of an op was refused.
    #[error("in `{op}`: {error}")]
    Step { op: String, error: Box<Error> },
    #[error("`{op}` needs {needed} bytes of workspace on these arguments, and {given} are given")]
    WorkspaceSize { op: String, needed: u64, given: u64 },
    #[error("the workspace of `{op}` depends on `{name}`, which is not given")]
    WorkspaceDim { op: String, name: String },
    #[error(
        "the workspace belongs to a captured run with other dimensions; `{op}` needs one of its own"
    )]
    WorkspaceHeld { op: String },
    #[error("a workspace begins at a multiple of 256 bytes, and {address:#x} is none")]
    WorkspaceAddress { address: u64 },
    #[error("{bytes} bytes of workspace are more than any memory has")]
    WorkspaceTooLarge { bytes: u64 },
    #[error("{place} has no kernel `{name}`; it has {}", list(available))]
    NoKernel {
        place: String,
        name: String,
        available: Vec<String>,
    },
    /// An operator is asked for types or settings that the set has no kernel for.
    #[error(
        "{place} has no kernel `{kernel}`, which `{operator}` is on these arguments; for `{operator}` it has {}",
        list(available)
    )]
    NoInstance {
        operator: &'static str,
        kernel: String,
        place: String,
        available: Vec<String>,
    },
    #[error("{place} has no op `{name}`; it has {}", list(available))]
    NoOp {
        place: String,
        name: String,
        available: Vec<String>,
    },
    #[error("`{kernel}` has no parameter `{name}`; it takes {}", list(available))]
    UnknownArgument {
        kernel: String,
        name: String,
        available: Vec<String>,
    },
    #[error("`{name}` is passed twice to `{kernel}`")]
    RepeatedArgument { kernel: String, name: String },
    #[error("`{kernel}`: {error}")]
    Argument { kernel: String, error: BindError },
    #[error("`{kernel}` cannot run on these arguments: it needs {}", facts.join(", and "))]
    Requires { kernel: String, facts: Vec<String> },
    /// A view's elements are not as it declares ([`crate::Device::check_facts`]).
    #[error("`{kernel}`: `{param}` is {broken}")]
    Promise {
        kernel: String,
        param: String,
        broken: BrokenFact,
    },
    #[error(
        "`{kernel}`: what `{param}` is declared to be cannot be checked while its stream is captured; switch the check of facts off, or capture nothing"
    )]
    PromiseInCapture { kernel: String, param: String },
    #[error("`{kernel}`: `{param}` reaches over too many bytes to be checked here: {bytes}")]
    PromiseSize {
        kernel: String,
        param: String,
        bytes: u64,
    },
    #[error("no body of `{kernel}` for {target} fits these arguments: {}", unmet.join("; "))]
    NoBody {
        kernel: String,
        target: String,
        /// One a body: the facts that fail.
        unmet: Vec<String>,
    },
    #[error("`{kernel}`: grid axis {axis}, `{formula}`: {error}")]
    Grid {
        kernel: String,
        axis: usize,
        formula: String,
        error: FormulaError,
    },
    #[error("`{kernel}` would need more than 2147483647 blocks: {}", axes.iter().map(i64::to_string).collect::<Vec<_>>().join(" * "))]
    GridTooLarge { kernel: String, axes: Vec<i64> },
    #[error("`{kernel}`: `{param}` is a number of type {dtype}, which cannot be passed")]
    ScalarType {
        kernel: String,
        param: String,
        dtype: DType,
    },
    #[error(
        "`{kernel}` wants {wanted} bytes of shared memory for a block, and {device} grants {granted}"
    )]
    SharedMemory {
        kernel: String,
        wanted: u32,
        device: String,
        granted: u32,
    },
    #[error("{device} does not take the {code} of `{kernel}` for {target}: {report}")]
    Load {
        kernel: String,
        target: Target,
        /// `cubin` or `PTX`.
        code: &'static str,
        device: String,
        /// The driver's error, and on further lines what its assembler said.
        report: String,
    },
    #[error("`{param}` lies on {tensor}, and `{kernel}` is launched on {device}")]
    OtherDevice {
        kernel: String,
        param: String,
        tensor: String,
        device: String,
    },
    #[error("`{param}` is only a description: `{kernel}` cannot be launched on it")]
    NoMemory { kernel: String, param: String },
    #[error("a tensor of {dtype} {shape:?} is {reason}")]
    Shape {
        dtype: DType,
        shape: Vec<i64>,
        reason: &'static str,
    },
    #[error("a tensor of {dtype} {shape:?} has {expected} bytes, and {given} were passed")]
    Size {
        dtype: DType,
        shape: Vec<i64>,
        expected: usize,
        given: usize,
    },
}

/// "`a`, `b` and `c`"; a long list is cut.
fn list(names: &[String]) -> String {
    const SHOWN: usize = 12;
    let quoted: Vec<String> = names.iter().take(SHOWN).map(|n| format!("`{n}`")).collect();
    match (&quoted[..], names.len()) {
        ([], _) => "none".to_owned(),
        ([one], _) => one.clone(),
        (_, n) if n > SHOWN => format!("{} and {} more", quoted.join(", "), n - SHOWN),
        ([most @ .., last], _) => format!("{} and {last}", most.join(", ")),
    }
}
