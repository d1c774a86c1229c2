//! Loads Tesserine kernel sets and launches their kernels.
//!
//! ```no_run
//! use tesserine::{Args, DType, Device, KernelSet};
//!
//! # fn main() -> Result<(), tesserine::Error> {
//! let set = KernelSet::open("target/sets/default.tset")?;
//! let rmsnorm = set.kernel("rmsnorm<bf16>")?;
//! let device = Device::cuda(0)?;
//! let stream = device.stream()?;
//! let x = device.alloc(DType::Bf16, &[1024, 4096])?;
//! let weight = device.alloc(DType::Bf16, &[4096])?;
//! let out = device.alloc(DType::Bf16, &[1024, 4096])?;
//! let args = Args::new()
//!     .tensor("x", x.view())
//!     .tensor("weight", weight.view())
//!     .tensor("out", out.view())
//!     .float("eps", 1e-6);
//! rmsnorm.launch(&stream, &args)?;
//! stream.synchronize()?;
//! # Ok(())
//! # }
//! ```
//!
//! - A [`KernelSet`] is a file that `tess build` wrote; [`find_sets`] knows where such files lie. A set holds code for
//!   the GPU: open only what you trust, as with a shared library.
//! - A [`Kernel`] is one instance of it. [`Kernel::check`] refuses wrong arguments with no device at hand, and
//!   [`Kernel::launch`] checks in the same way first.
//! - An operator, [`norm::rmsnorm`] and so on, finds the kernel for its tensors' types and launches it:
//!   `norm::rmsnorm(&set, &x, &weight, &mut out).eps(1e-5).launch(&stream)?`. The set is that of `kernels-dsl/ops.toml`.
//! - An [`Op`] is a sequence of launches of it with a [`Workspace`]; [`Op::run`] allocates nothing, so that
//!   [`Stream::capture`] can record it.
//! - A [`Device`] is a CUDA device, whose driver is loaded when one is asked for, so that programs start without it; or a device of
//!   the [`emulator`] ([`Device::emulator`]), which executes the same PTX on the CPU, for any target, and gives a launch that does
//!   something wrong a fault ([`Error::Emulator`]) with kernel, line and threads. Their names, as in `$TESS_DEVICE`: `cuda`,
//!   `cuda:1`, `emulator:sm_80`.
//! - Facts that a kernel's views declare of their elements, `sorted` and `distinct`, are trusted. A device whose
//!   [`Device::check_facts`] is on checks them before each launch, to find whose data is wrong. Emulated devices begin so.
//! - A [`TensorRef`] is memory of anyone's; a [`DeviceTensor`] owns its own.
//!
//! Invariants: nothing here depends on the compiler; no call needs a driver but those on devices and what they gave;
//! a launch reads no device memory, and synchronises with nothing, unless its device checks facts.

mod device;
mod error;
mod facts;
mod form;
mod launch;
mod op;
mod ops;
pub mod select;
mod sets;
mod tensor;
mod tensor_map;

pub use device::{
    Device, DeviceInfo, Event, Graph, Stream, cuda_devices, driver_version, emulators,
};
pub use error::Error;
pub use launch::{Args, Checked, Kernel, Launch};
pub use op::{Op, Workspace};
pub use ops::{Operator, activation, norm, page, quant, rope, sampling, topk};
pub use select::{Capability, Code, Target};
pub use sets::{FoundSet, KernelSet, find_sets, set_places};
pub use tensor::{DeviceTensor, TensorRef, contiguous_strides};
pub use tesserine_emulator as emulator;
pub use tesserine_set::{self as set, BindError, DType, ScalarValue, SetError};
