//! The interpreter: runs tile IR on the CPU, as the language defines it.
//!
//! It is the meaning that compiled code is compared with. Floats round exactly as their types do, sums are added up in
//! f64 and rounded once, reads outside a view give the pad. It also finds what no compiled kernel tells: elements of an
//! output that were not stored, divisions by zero, assertions and promises that do not hold, blocks that race.
//!
//! Invariants: blocks run one after another in row-major order of the grid, so that a run is deterministic; no argument,
//! however wrong, makes it panic, if the kernel passes the verifier; tensors come back to the caller in every case.

mod atomics;
mod cluster;
mod elementwise;
pub mod floats;
mod immediate;
mod memory;
mod op;
mod order;
mod roles;
mod tile;
mod tiles;
mod value;
mod window;

use std::{collections::HashMap, fmt};

use indexmap::IndexMap;
use tesserine_set::{
    Access, ArgShape, BindError, Binding, FormulaError, OpError, ParamKind, ScalarValue, Signature,
};

pub(crate) use elementwise::floored_rem;
pub use immediate::{Immediate, MAX_STEPS};
pub use memory::{Tensor, TensorError};
pub use op::{OpReport, run_op, run_op_with};
pub use value::Data;

use crate::{
    diagnostics::{Code, Diagnostic, codes},
    ir::tile::{ChannelId, Instance, Kernel, OpKind},
    span::Span,
};
use memory::Memory;
use order::Order;
use tile::Machine;

/// What is passed for one parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    Tensor(Tensor),
    Scalar(ScalarValue),
}

impl From<Tensor> for Arg {
    fn from(tensor: Tensor) -> Arg {
        Arg::Tensor(tensor)
    }
}

impl From<i64> for Arg {
    fn from(value: i64) -> Arg {
        Arg::Scalar(ScalarValue::Int(value))
    }
}

impl From<f64> for Arg {
    fn from(value: f64) -> Arg {
        Arg::Scalar(ScalarValue::Float(value))
    }
}

/// Arguments by parameter name; what has a default or is optional may be left out.
pub type Args = IndexMap<String, Arg>;

/// What a run may take before it is stopped with an error (E0814), and the order of roles in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Operations of all blocks.
    pub steps: u64,
    /// Elements that they compute, of products the multiplications.
    pub elements: u64,
    /// Bytes of the tiles that a block holds at once, as the interpreter keeps them: 8 an element, `bool` 1.
    pub bytes: u64,
    /// Says in which order the roles of a block run; no value depends on it.
    pub seed: u64,
}

impl Default for Limits {
    /// [`MAX_STEPS`], any number of elements, 8 GiB of tiles.
    fn default() -> Limits {
        Limits {
            steps: MAX_STEPS,
            elements: u64::MAX,
            bytes: 8 << 30,
            seed: 0,
        }
    }
}

/// What a launch did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Index of the body that ran.
    pub body: usize,
    pub blocks: u32,
    /// Outputs of which not every element has been stored, this launch and earlier ones counted.
    pub unwritten: Vec<Unwritten>,
}

/// An output with elements that nobody stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwritten {
    pub param: String,
    /// How many elements.
    pub count: usize,
    pub of: usize,
    /// Where the first of them is.
    pub first: Vec<usize>,
}

impl fmt::Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unwritten {
            param,
            count,
            of,
            first,
        } = self;
        write!(
            f,
            "{count} of {of} elements of `{param}` were not written, the first at {first:?}"
        )
    }
}

impl Unwritten {
    /// As an error of the kernel, whose name is at `span`.
    pub fn diagnostic(&self, span: Span) -> Diagnostic {
        Diagnostic::error(codes::E0804, span, self.to_string())
    }
}

/// Why a launch failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum InterpError {
    #[error("the kernel has no parameter `{0}`")]
    UnknownArgument(String),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("the kernel does not serve these arguments: {0}")]
    Requirement(String),
    #[error("the op does not serve these arguments: {0}")]
    OpRequirement(String),
    /// An op cannot run on its arguments.
    #[error(transparent)]
    Op(#[from] OpError),
    /// A launch of an op failed.
    #[error("`{launch}`: {error}")]
    Launch {
        launch: String,
        error: Box<InterpError>,
    },
    #[error("no body of the kernel serves these arguments: {0}")]
    NoBody(String),
    /// `sorted` or `distinct` data that is not.
    #[error("`{param}` is declared `{fact}`, but rows {first} and {second} are not so")]
    Promise {
        param: String,
        fact: &'static str,
        first: usize,
        second: usize,
    },
    #[error("the extent of axis `{axis}`: {error}")]
    Extent { axis: String, error: FormulaError },
    #[error("the grid has more than 2^31 blocks")]
    Grid,
    /// Something in a block.
    #[error("{kind}{}", Block(block))]
    Fault {
        kind: FaultKind,
        /// Names and indices of the grid's axes.
        block: Vec<(String, i64)>,
        /// The operation's source.
        span: Span,
    },
}

/// What a block did wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultKind {
    #[error("an integer is divided by zero")]
    DivisionByZero,
    #[error(
        "the blocks of a cluster go different ways around an operation that all of them must reach"
    )]
    Apart,
    #[error("{}", if .0.is_empty() { "an assertion does not hold" } else { .0 })]
    Assertion(String),
    #[error("a loop has step {0}, and a step must be positive")]
    Step(i64),
    #[error("element {index:?} of `{param}` is stored to twice at once")]
    Twice { param: String, index: Vec<usize> },
    #[error("the rows of `{param}` hold no whole number of the elements as which it is seen")]
    Misfit { param: String },
    #[error("two blocks use element {index:?} of `{param}`, and at least one stores to it")]
    Race { param: String, index: Vec<usize> },
    #[error(
        "{} blocks arrive at element {index:?} of `{param}` than the count that they name",
        if *.more { "more" } else { "fewer" }
    )]
    Count {
        param: String,
        index: Vec<usize>,
        more: bool,
    },
    #[error("`{param}` was not given, and is used")]
    Absent { param: String },
    #[error("it runs too long: {0} operations")]
    Steps(u64),
    #[error("it takes too long: {0} elements computed")]
    Elements(u64),
    #[error("the tiles that are held at once here take more than {} MiB", .0 >> 20)]
    Memory(u64),
    #[error(
        "a slot of `{0}` is given back or handed on that the role does not hold, or a part of one does not fit"
    )]
    Slot(String),
    #[error("no role can go on: {0}")]
    Stuck(String),
    #[error(
        "slots of `{0}` are left when the roles end: not all that read them have given them back"
    )]
    Left(String),
}

/// A fault in terms of the machine: parameters and elements by number.
#[derive(Clone, Debug)]
enum Fault {
    Apart,
    DivisionByZero,
    Assert(String),
    Step(i64),
    Race(usize, usize),
    Twice(usize, usize),
    /// Parameter, element, and whether there are too many arrivals.
    Count(usize, usize, bool),
    Misfit(usize),
    Absent(usize),
    Steps,
    Elements(u64),
    Memory(u64),
    /// A slot that is not held, or a part that is put twice or lies outside.
    Slot(ChannelId),
    /// Every role waits: which for what.
    Stuck(String),
    /// Slots that have been put, and are not free when the roles end.
    Left(ChannelId),
}

impl Fault {
    fn of_conflict(param: usize, conflict: memory::Conflict) -> Fault {
        if conflict.twice {
            Fault::Twice(param, conflict.element)
        } else {
            Fault::Race(param, conflict.element)
        }
    }
}

/// ", in block (i = 3, j = 0)", or nothing where the grid has no axes.
struct Block<'a>(&'a [(String, i64)]);

impl fmt::Display for Block<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, index)) in self.0.iter().enumerate() {
            let before = if i == 0 { ", in block (" } else { ", " };
            write!(f, "{before}{name} = {index}")?;
        }
        f.write_str(if self.0.is_empty() { "" } else { ")" })
    }
}

impl InterpError {
    /// As a diagnostic; `kernel` is where the kernel's name stands, for what is wrong with the launch as a whole.
    pub fn diagnostic(&self, kernel: Span) -> Diagnostic {
        if let InterpError::Launch { launch, error } = self {
            return error
                .diagnostic(kernel)
                .note(format!("in the launch of `{launch}`"));
        }
        let (code, span): (Code, Span) = match self {
            InterpError::Fault { kind, span, .. } => {
                let code = match kind {
                    FaultKind::Assertion(_) => codes::E0801,
                    FaultKind::DivisionByZero | FaultKind::Step(_) => codes::E0802,
                    FaultKind::Apart => codes::E0410,
                    FaultKind::Race { .. } => codes::E0805,
                    FaultKind::Count { .. } => codes::E0808,
                    FaultKind::Twice { .. } => codes::E0807,
                    FaultKind::Slot(_) | FaultKind::Stuck(_) | FaultKind::Left(_) => codes::E0705,
                    FaultKind::Absent { .. } | FaultKind::Misfit { .. } => codes::E0806,
                    FaultKind::Steps(_) | FaultKind::Elements(_) | FaultKind::Memory(_) => {
                        codes::E0814
                    }
                };
                (code, *span)
            }
            InterpError::Promise { .. } => (codes::E0803, kernel),
            _ => (codes::E0806, kernel),
        };
        let mut diagnostic = match self {
            InterpError::Fault { kind, .. } => Diagnostic::error(code, span, kind.to_string()),
            error => Diagnostic::error(code, span, error.to_string()),
        };
        if let InterpError::Fault { block, .. } = self {
            let text = Block(block).to_string();
            if let Some(text) = text.strip_prefix(", ") {
                diagnostic = diagnostic.note(text);
            }
        }
        diagnostic
    }
}

/// Runs the first body of `instance` whose facts hold.
///
/// Tensors of `out` and `mut` views change in place, also if the launch fails half-way. `written` of each `out` tensor is
/// kept up; it starts as all `false` if it is `None`.
pub fn launch(instance: &Instance, args: &mut Args) -> Result<Report, InterpError> {
    launch_within(instance, args, Limits::default())
}

/// As [`launch`], within `limits`.
pub fn launch_within(
    instance: &Instance,
    args: &mut Args,
    limits: Limits,
) -> Result<Report, InterpError> {
    let Some(first) = instance.bodies.first() else {
        return Err(InterpError::NoBody("it has none".into()));
    };
    let signature = &first.header.signature;
    let mut listed = list(signature, args)?;
    let result = choose(instance, signature, &listed)
        .and_then(|body| run_listed(&instance.bodies[body], body, &mut listed, limits));
    give_back(signature, listed, args);
    result
}

/// Runs `kernel`, whatever other bodies its instance has, if its facts hold.
pub fn run(kernel: &Kernel, args: &mut Args) -> Result<Report, InterpError> {
    let signature = &kernel.header.signature;
    let mut listed = list(signature, args)?;
    let result = with_binding(signature, &listed, |binding| {
        let facts = kernel.header.requires.iter().chain(&kernel.header.facts);
        for fact in facts {
            if !binding.holds(fact) {
                return Err(InterpError::Requirement(binding.explain(fact)));
            }
        }
        Ok(())
    })
    .and_then(|()| run_listed(kernel, 0, &mut listed, Limits::default()));
    give_back(signature, listed, args);
    result
}

/// The arguments in the order of the parameters, taken out of `args`.
fn list(signature: &Signature, args: &mut Args) -> Result<Vec<Option<Arg>>, InterpError> {
    if let Some(name) = args.keys().find(|name| signature.param(name).is_none()) {
        return Err(InterpError::UnknownArgument(name.clone()));
    }
    // An empty tensor keeps the place, so that the order of `args` stays.
    let taken = |name: &str| {
        args.get_mut(name)
            .map(|arg| std::mem::replace(arg, Arg::Scalar(ScalarValue::Int(0))))
    };
    let names = signature.params.iter().map(|p| p.name.as_str());
    Ok(names.map(taken).collect())
}

fn give_back(signature: &Signature, listed: Vec<Option<Arg>>, args: &mut Args) {
    for (param, arg) in signature.params.iter().zip(listed) {
        if let Some(arg) = arg {
            args.insert(param.name.clone(), arg);
        }
    }
}

/// Binds the arguments. Tensors have no addresses: they get aligned ones, far enough apart.
fn with_binding<R>(
    signature: &Signature,
    listed: &[Option<Arg>],
    f: impl FnOnce(&Binding<'_>) -> Result<R, InterpError>,
) -> Result<R, InterpError> {
    let as_i64 = |list: &[usize]| -> Vec<i64> { list.iter().map(|&x| x as i64).collect() };
    let shapes: Vec<(Vec<i64>, Vec<i64>)> = listed
        .iter()
        .map(|arg| match arg {
            Some(Arg::Tensor(t)) => (as_i64(&t.shape), as_i64(&t.strides)),
            _ => (Vec::new(), Vec::new()),
        })
        .collect();
    let mut next = 1u64 << 20;
    let bound: Vec<Option<ArgShape<'_>>> = listed
        .iter()
        .zip(&shapes)
        .map(|(arg, (shape, strides))| match arg {
            Some(Arg::Tensor(tensor)) => {
                let address = next;
                next += (tensor.data.len() as u64).next_multiple_of(1 << 12) + (1 << 12);
                Some(ArgShape::View {
                    dtype: tensor.dtype,
                    shape,
                    strides,
                    address,
                })
            }
            Some(Arg::Scalar(value)) => Some(ArgShape::Scalar(*value)),
            None => None,
        })
        .collect();
    let binding = signature.bind(&bound)?;
    f(&binding)
}

/// The index of the first body that serves the arguments.
fn choose(
    instance: &Instance,
    signature: &Signature,
    listed: &[Option<Arg>],
) -> Result<usize, InterpError> {
    with_binding(signature, listed, |binding| {
        let mut reasons = Vec::new();
        for (i, body) in instance.bodies.iter().enumerate() {
            let header = &body.header;
            if let Some(fact) = header.requires.iter().find(|f| !binding.holds(f)) {
                return Err(InterpError::Requirement(binding.explain(fact)));
            }
            match header.facts.iter().find(|f| !binding.holds(f)) {
                None => return Ok(i),
                Some(fact) => reasons.push(binding.explain(fact)),
            }
        }
        Err(InterpError::NoBody(reasons.join("; ")))
    })
}

/// Runs all blocks of a body whose facts hold.
fn run_listed(
    kernel: &Kernel,
    index: usize,
    listed: &mut [Option<Arg>],
    limits: Limits,
) -> Result<Report, InterpError> {
    let header = &kernel.header;
    let signature = &header.signature;
    let (dims, extents, values) = with_binding(signature, listed, |binding| {
        let mut extents = Vec::new();
        for axis in &header.axes {
            let extent = axis.extent.eval(&binding.env()).map_err(|error| {
                let axis = axis.name.clone();
                InterpError::Extent { axis, error }
            })?;
            extents.push(extent.max(0));
        }
        Ok((binding.dims.to_vec(), extents, binding.values.to_vec()))
    })?;
    let blocks = extents
        .iter()
        .try_fold(1i64, |n, &e| n.checked_mul(e))
        .filter(|&n| n <= i64::from(i32::MAX));
    // An empty axis makes an empty grid, whatever the others are.
    let blocks = if extents.contains(&0) {
        0
    } else {
        blocks.ok_or(InterpError::Grid)? as u32
    };
    for (param, arg) in signature.params.iter().zip(&*listed) {
        if let (ParamKind::View(view), Some(Arg::Tensor(tensor))) = (&param.kind, arg) {
            promises(&param.name, view.facts.sorted, view.facts.distinct, tensor)?;
        }
    }

    let mut memories = Vec::new();
    let mut scalars = Vec::new();
    for ((param, arg), value) in signature.params.iter().zip(&mut *listed).zip(values) {
        let (mut memory, mut scalar) = (None, None);
        match &param.kind {
            ParamKind::View(view) => {
                if let Some(Arg::Tensor(_)) = arg
                    && let Some(Arg::Tensor(mut tensor)) = arg.take()
                {
                    if view.access == Access::Write && tensor.written.is_none() {
                        tensor.written = Some(vec![false; tensor.elements()]);
                    }
                    memory = Some(Memory::new(tensor, view.access));
                }
            }
            ParamKind::Scalar { dtype, .. } => {
                scalar = value.map(|value| tile::scalar(*dtype, value));
            }
        }
        memories.push(memory);
        scalars.push(scalar);
    }

    let mut machine = Machine::new(kernel, &dims, memories, scalars, limits);
    let arrives = |op: &crate::ir::Op<OpKind>| matches!(op.kind, OpKind::Arrive { .. });
    machine.rings.seed = limits.seed;
    machine.order = Order::new(blocks, kernel.body.ops.values().any(arrives));
    let mut stop = None;
    if blocks > 0 {
        // Clusters in row-major order of their places in the grid, the blocks of one together.
        let inner: Vec<bool> = header.axes.iter().map(|a| a.cluster).collect();
        let number = |at: &[i64]| at.iter().zip(&extents).fold(0, |n, (i, e)| n * e + i) as u32;
        for place in points(&extents, |d| !inner[d]) {
            let ranks = points(&extents, |d| inner[d]).map(|rank| {
                let at: Vec<i64> = place.iter().zip(&rank).map(|(p, r)| p + r).collect();
                (number(&at), at)
            });
            if let Err(found) = machine.cluster(&ranks.collect::<Vec<_>>()) {
                stop = Some(found);
                break;
            }
        }
    }
    if stop.is_none()
        && let Some(((param, element), span)) = machine.order.unfinished()
    {
        stop = Some((Fault::Count(param, element, false), span));
    }
    let at = std::mem::take(&mut machine.indices);

    let mut unwritten = Vec::new();
    let memories = std::mem::take(&mut machine.memories);
    for ((param, memory), arg) in signature.params.iter().zip(memories).zip(&mut *listed) {
        let Some(memory) = memory else { continue };
        let tensor = memory.finish();
        unwritten.extend(self::unwritten(&param.name, &tensor));
        *arg = Some(Arg::Tensor(tensor));
    }
    match stop {
        Some((fault, span)) => {
            let name = |p: usize| signature.params[p].name.clone();
            let channel = |c: ChannelId| kernel.channels[c].name.clone();
            let index = |p: usize, element: usize| match &listed[p] {
                Some(Arg::Tensor(tensor)) => unravel(element, &tensor.shape),
                _ => Vec::new(),
            };
            let kind = match fault {
                Fault::DivisionByZero => FaultKind::DivisionByZero,
                Fault::Apart => FaultKind::Apart,
                Fault::Assert(message) => FaultKind::Assertion(message),
                Fault::Step(step) => FaultKind::Step(step),
                Fault::Race(p, element) => FaultKind::Race {
                    param: name(p),
                    index: index(p, element),
                },
                Fault::Twice(p, element) => FaultKind::Twice {
                    param: name(p),
                    index: index(p, element),
                },
                Fault::Count(p, element, more) => FaultKind::Count {
                    param: name(p),
                    index: index(p, element),
                    more,
                },
                Fault::Misfit(p) => FaultKind::Misfit { param: name(p) },
                Fault::Absent(p) => FaultKind::Absent { param: name(p) },
                Fault::Steps => FaultKind::Steps(limits.steps),
                Fault::Elements(most) => FaultKind::Elements(most),
                Fault::Memory(most) => FaultKind::Memory(most),
                Fault::Slot(c) => FaultKind::Slot(channel(c)),
                Fault::Stuck(who) => FaultKind::Stuck(who),
                Fault::Left(c) => FaultKind::Left(channel(c)),
            };
            let names = header.axes.iter().map(|a| a.name.clone());
            Err(InterpError::Fault {
                kind,
                block: names.zip(at).collect(),
                span,
            })
        }
        None => Ok(Report {
            body: index,
            blocks,
            unwritten,
        }),
    }
}

/// The points of a grid, row-major over the axes that `walked` names; the others stay at 0. No extent is 0.
fn points(extents: &[i64], walked: impl Fn(usize) -> bool) -> impl Iterator<Item = Vec<i64>> {
    let extents: Vec<i64> = (0..extents.len())
        .map(|d| if walked(d) { extents[d] } else { 1 })
        .collect();
    let mut next = Some(vec![0; extents.len()]);
    std::iter::from_fn(move || {
        let point = next.clone()?;
        let mut at = point.clone();
        next = None;
        for d in (0..at.len()).rev() {
            at[d] += 1;
            if at[d] < extents[d] {
                next = Some(at);
                break;
            }
            at[d] = 0;
        }
        Some(point)
    })
}

/// The elements of an output that nobody stored.
fn unwritten(param: &str, tensor: &Tensor) -> Option<Unwritten> {
    let written = tensor.written.as_ref()?;
    let first = written.iter().position(|&w| !w)?;
    Some(Unwritten {
        param: param.to_owned(),
        count: written.iter().filter(|&&w| !w).count(),
        of: written.len(),
        first: unravel(first, &tensor.shape),
    })
}

/// The index of element `number` in row-major order.
fn unravel(mut number: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (i, &extent) in index.iter_mut().zip(shape).rev() {
        *i = number % extent;
        number /= extent;
    }
    index
}

/// Checks what is promised about a tensor's contents. `sorted` is of one dimension, `distinct` of the rows of the first.
fn promises(param: &str, sorted: bool, distinct: bool, tensor: &Tensor) -> Result<(), InterpError> {
    let broken = |fact, first, second| InterpError::Promise {
        param: param.to_owned(),
        fact,
        first,
        second,
    };
    if sorted {
        let values = tensor.to_f64();
        if let Some(i) = values.windows(2).position(|w| w[0] > w[1]) {
            return Err(broken("sorted", i, i + 1));
        }
    }
    if distinct && let Some(&rows) = tensor.shape.first() {
        let codes = tensor.to_codes();
        let width = codes.len() / rows.max(1);
        let row = |i: usize| &codes[i * width..(i + 1) * width];
        let mut seen: HashMap<&[u64], usize> = HashMap::new();
        for i in 0..rows {
            if let Some(first) = seen.insert(row(i), i) {
                return Err(broken("distinct", first, i));
            }
        }
    }
    Ok(())
}
