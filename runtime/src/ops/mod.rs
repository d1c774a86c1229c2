//! Operators: functions over tensors that find their kernel in a set and launch it.
//!
//! A function takes the set and the tensors and gives an [`Operator`], whose methods set what has a default, and which is then
//! launched. One file a family; what they share stands here: an operator is the name of a kernel, the parameters that make an
//! instance of it, and arguments. Invariants: an operator adds nothing to what its kernel checks, and its parameters bear the
//! kernel's names, so that errors do; a launch allocates no device memory and waits for nothing.

pub mod activation;
pub mod norm;

use std::{
    fmt::{self, Write},
    marker::PhantomData,
};

use smallvec::SmallVec;
use tesserine_set::{DType, ScalarValue};

use crate::{Args, Checked, Device, Error, Kernel, KernelSet, Launch, Stream, Target, TensorRef};

/// An operator on its arguments, to be launched. `Settings` has methods for what has a default.
#[derive(Clone, Debug)]
pub struct Operator<'a, Settings = ()> {
    set: &'a KernelSet,
    kernel: &'static str,
    /// What stands between the kernel's angle brackets.
    types: SmallVec<[DType; 4]>,
    args: Args<'a>,
    settings: PhantomData<Settings>,
}

impl<'a, Settings> Operator<'a, Settings> {
    fn new(set: &'a KernelSet, kernel: &'static str) -> Operator<'a, Settings> {
        Operator {
            set,
            kernel,
            types: SmallVec::new(),
            args: Args::new(),
            settings: PhantomData,
        }
    }

    /// The next parameter of the kernel, a type.
    fn of(mut self, dtype: DType) -> Self {
        self.types.push(dtype);
        self
    }

    fn tensor(mut self, name: &'static str, tensor: impl Into<TensorRef<'a>>) -> Self {
        self.args = self.args.tensor(name, tensor.into());
        self
    }

    /// A number; the last one of a name counts.
    fn float(mut self, name: &'static str, value: f64) -> Self {
        self.args.put(name, ScalarValue::Float(value));
        self
    }

    /// The kernel's name, without spaces.
    fn name(&self) -> SmallVec<[u8; 96]> {
        let mut name = Text(SmallVec::new());
        // Writing to memory does not fail.
        let _ = name.write_str(self.kernel);
        for (i, dtype) in self.types.iter().enumerate() {
            let _ = name.write_char(if i == 0 { '<' } else { ',' });
            let _ = name.write_str(dtype.name());
        }
        if !self.types.is_empty() {
            let _ = name.write_char('>');
        }
        name.0
    }

    /// The kernel that these arguments need.
    pub fn kernel(&self) -> Result<Kernel, Error> {
        let name = self.name();
        let name = String::from_utf8_lossy(&name);
        let shared = &self.set.shared;
        match shared.index(&name) {
            Some(index) => Ok(Kernel::new(shared.clone(), index)),
            None => Err(Error::NoInstance {
                operator: self.kernel,
                kernel: name.into_owned(),
                place: format!("kernel set `{}`", self.set.manifest().name),
                available: self.available(),
            }),
        }
    }

    /// The instances that the set has of the kernel.
    fn available(&self) -> Vec<String> {
        let names = self.set.manifest().instances.iter().map(|i| &i.name);
        let of_kernel = names.filter(|n| n.split('<').next().map(str::trim) == Some(self.kernel));
        of_kernel.cloned().collect()
    }

    /// Checks the arguments as a launch would, without a device.
    pub fn check(&self) -> Result<Checked, Error> {
        self.kernel()?.check(&self.args)
    }

    /// Loads the kernel's code for a device, so that the first launch need not, and a captured one can.
    pub fn prepare(&self, device: &Device) -> Result<Target, Error> {
        self.kernel()?.prepare(device, None)
    }

    /// Checks the arguments and queues the kernel on `stream`.
    pub fn launch(&self, stream: &Stream) -> Result<Launch, Error> {
        self.kernel()?.launch(stream, &self.args)
    }
}

/// Text on the stack, unless it is long.
struct Text(SmallVec<[u8; 96]>);

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}
