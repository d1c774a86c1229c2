//! Operators: functions over tensors that find their kernel in a set and launch it.
//!
//! A function takes the set and the tensors and gives an [`Operator`], whose methods set what has a default, and which is then
//! launched. One file a family; what they share stands here: an operator is the name of a kernel or op, the parameters that make
//! an instance of it, and arguments. Invariants: an operator adds nothing to what its kernel checks, and its parameters bear the
//! kernel's names, so that errors do; a launch allocates no device memory and waits for nothing.

pub mod activation;
pub mod norm;
pub mod page;
pub mod quant;
pub mod rope;
pub mod sampling;
pub mod topk;

use std::{
    fmt::{self, Write},
    marker::PhantomData,
};

use smallvec::SmallVec;
use tesserine_set::DType;

use crate::{Args, Checked, Device, Error, Kernel, KernelSet, Op, Stream, TensorRef, Workspace};

/// An operator on its arguments, to be launched. `Settings` has methods for what has a default.
#[derive(Clone, Debug)]
pub struct Operator<'a, Settings = ()> {
    set: &'a KernelSet,
    kernel: &'static str,
    parameters: SmallVec<[Parameter; 6]>,
    args: Args<'a>,
    settings: PhantomData<Settings>,
}

/// What stands between a kernel's angle brackets.
#[derive(Clone, Copy, Debug)]
enum Parameter {
    Type(DType),
    /// By name; one that has its default is not here.
    Named(&'static str, Value),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    Bool(bool),
    Int(i64),
    /// A function, or a variant.
    Name(&'static str),
}

/// The kernels' named parameters, in an order in which every kernel has its own.
const NAMED: [&str; 10] = [
    "P", "A", "Q", "S", "I", "LOGITS", "GEMMA", "NEOX", "LITTLE", "STARTS",
];

/// What an operator is in its set.
enum Found {
    Kernel(Kernel),
    Op(Op),
}

impl<'a, Settings> Operator<'a, Settings> {
    fn new(set: &'a KernelSet, kernel: &'static str) -> Operator<'a, Settings> {
        Operator {
            set,
            kernel,
            parameters: SmallVec::new(),
            args: Args::new(),
            settings: PhantomData,
        }
    }

    /// The next parameter of the kernel, a type.
    fn of(mut self, dtype: DType) -> Self {
        self.parameters.push(Parameter::Type(dtype));
        self
    }

    /// A parameter of the kernel by name, unless it has its default; the last one of a name counts. The set writes them in the order
    /// of `NAMED`.
    fn with(mut self, name: &'static str, value: Value, default: Value) -> Self {
        let named = |p: &Parameter| match p {
            Parameter::Type(_) => None,
            Parameter::Named(name, _) => NAMED.iter().position(|n| n == name),
        };
        let rank = NAMED.iter().position(|n| *n == name);
        debug_assert!(rank.is_some(), "`{name}` has no place among parameters");
        self.parameters
            .retain(|p| rank.is_none() || named(p) != rank);
        if value != default {
            let behind = self.parameters.iter().position(|p| named(p) > rank);
            let at = behind.unwrap_or(self.parameters.len());
            self.parameters.insert(at, Parameter::Named(name, value));
        }
        self
    }

    fn tensor(mut self, name: &'static str, tensor: impl Into<TensorRef<'a>>) -> Self {
        self.args = self.args.tensor(name, tensor.into());
        self
    }

    /// A tensor in the place of the one of that name.
    fn replaced(mut self, name: &'static str, tensor: impl Into<TensorRef<'a>>) -> Self {
        self.args.forget(name);
        self.tensor(name, tensor)
    }

    /// A number; the last one of a name counts.
    fn float(mut self, name: &'static str, value: f64) -> Self {
        self.args.forget(name);
        self.args = self.args.float(name, value);
        self
    }

    /// An integer; the last one of a name counts.
    fn int(mut self, name: &'static str, value: i64) -> Self {
        self.args.forget(name);
        self.args = self.args.int(name, value);
        self
    }

    /// The kernel's name, without spaces.
    fn name(&self) -> SmallVec<[u8; 96]> {
        let mut name = Text(SmallVec::new());
        // Writing to memory does not fail.
        let _ = name.write_str(self.kernel);
        for (i, parameter) in self.parameters.iter().enumerate() {
            let _ = name.write_char(if i == 0 { '<' } else { ',' });
            let _ = match parameter {
                Parameter::Type(dtype) => name.write_str(dtype.name()),
                Parameter::Named(key, Value::Bool(value)) => write!(name, "{key}={value}"),
                Parameter::Named(key, Value::Int(value)) => write!(name, "{key}={value}"),
                Parameter::Named(key, Value::Name(value)) => write!(name, "{key}={value}"),
            };
        }
        if !self.parameters.is_empty() {
            let _ = name.write_char('>');
        }
        name.0
    }

    /// The kernel or op that these arguments need.
    fn found(&self) -> Result<Found, Error> {
        let name = self.name();
        let name = String::from_utf8_lossy(&name);
        let shared = &self.set.shared;
        if let Some(index) = shared.index(&name) {
            return Ok(Found::Kernel(Kernel::new(shared.clone(), index)));
        }
        if let Some(index) = shared.op_index(&name) {
            return Ok(Found::Op(Op::new(shared.clone(), index)));
        }
        Err(Error::NoInstance {
            operator: self.kernel,
            kernel: name.into_owned(),
            place: format!("kernel set `{}`", self.set.manifest().name),
            available: self.available(),
        })
    }

    /// The instances that the set has of the kernel or op.
    fn available(&self) -> Vec<String> {
        let manifest = self.set.manifest();
        let kernels = manifest.instances.iter().map(|i| &i.name);
        let names = kernels.chain(manifest.ops.iter().map(|op| &op.name));
        let of_kernel = names.filter(|n| n.split('<').next().map(str::trim) == Some(self.kernel));
        of_kernel.cloned().collect()
    }

    /// Bytes of workspace that a launch needs; 0 where it is one kernel.
    pub fn workspace_size(&self) -> Result<u64, Error> {
        match self.found()? {
            Found::Kernel(_) => Ok(0),
            Found::Op(op) => op.workspace_for(&self.args),
        }
    }

    /// Checks the arguments as a launch would, without a device.
    pub fn check(&self) -> Result<Checked, Error> {
        match self.found()? {
            Found::Kernel(kernel) => kernel.check(&self.args),
            Found::Op(op) => op.check(&self.args),
        }
    }

    /// Loads the code for a device, so that the first launch need not, and a captured one can.
    pub fn prepare(&self, device: &Device) -> Result<(), Error> {
        match self.found()? {
            Found::Kernel(kernel) => kernel.prepare(device, None).map(|_| ()),
            Found::Op(op) => op.prepare(device, None),
        }
    }

    /// Checks the arguments and queues the operator on `stream`. Returns before it has run.
    pub fn launch(&self, stream: &Stream) -> Result<(), Error> {
        self.launch_with(stream, &Workspace::none())
    }

    /// As [`Operator::launch`], with memory for what an operator of several launches keeps between them: of
    /// [`Operator::workspace_size`] bytes, for one launch at a time.
    pub fn launch_with(&self, stream: &Stream, workspace: &Workspace) -> Result<(), Error> {
        match self.found()? {
            Found::Kernel(kernel) => kernel.launch(stream, &self.args).map(|_| ()),
            Found::Op(op) => op.run(stream, &self.args, workspace).map(|_| ()),
        }
    }
}

/// What is absent: no element.
fn none<'a>(dtype: DType) -> TensorRef<'a> {
    // SAFETY: nothing lies in no bytes.
    unsafe { TensorRef::from_raw(0, dtype, &[0], &[1]) }
}

/// Text on the stack, unless it is long.
struct Text(SmallVec<[u8; 96]>);

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tesserine_set::{Manifest, SetWriter};

    use super::*;

    #[test]
    fn names_are_those_of_instances() {
        let bytes = SetWriter::new(Manifest::default()).finish().unwrap();
        let set = KernelSet::from_bytes(bytes).unwrap();
        let plain = Operator::<()>::new(&set, "packbits");
        assert_eq!(plain.name().as_slice(), b"packbits");
        let rope = plain_of(&set).with("NEOX", Value::Bool(false), Value::Bool(true));
        let rope = rope.with("P", Value::Name("Given<i64>"), Value::Name("Given"));
        let rope = rope.with("A", Value::Name("Table"), Value::Name("Table"));
        assert_eq!(
            String::from_utf8_lossy(&rope.name()),
            "rope<f16,bf16,P=Given<i64>,NEOX=false>"
        );
        // What is set again replaces, and a default leaves nothing.
        let rope = rope.with("NEOX", Value::Bool(true), Value::Bool(true));
        let rope = rope.with("A", Value::Name("Theta"), Value::Name("Table"));
        let sorted = rope.with("S", Value::Int(256), Value::Int(0));
        assert_eq!(
            String::from_utf8_lossy(&sorted.name()),
            "rope<f16,bf16,P=Given<i64>,A=Theta,S=256>"
        );
        match sorted.check() {
            Err(Error::NoInstance {
                kernel, available, ..
            }) => {
                assert_eq!(kernel, "rope<f16,bf16,P=Given<i64>,A=Theta,S=256>");
                assert!(available.is_empty());
            }
            other => panic!("{other:?}"),
        }
    }

    fn plain_of(set: &KernelSet) -> Operator<'_> {
        Operator::new(set, "rope").of(DType::F16).of(DType::Bf16)
    }
}
