//! Kernels: arguments, checks, the choice of a body, launches.
//!
//! Order of a launch: names of arguments, binding (see `tesserine_set`), facts that the kernel requires, the body whose
//! facts hold, its grid, its arguments; only then is the device asked for anything. A grid without blocks launches
//! nothing. Invariants: a launch that was refused has queued nothing; code is loaded once a context (of the emulator, once a target) and kept as long as
//! its set is open; a launch whose code is loaded allocates no device memory, and waits for nothing unless its device checks
//! facts.

use std::sync::{Arc, RwLock};

use smallvec::{SmallVec, smallvec};
use tesserine_set::{
    AbiArg, ArgShape, BindError, Binding, BodyRecord, DType, Env, Fact, Instance, ModuleKind,
    ParamKind, ScalarValue, Short, Signature, has_state,
};

use crate::{
    Device, Error, Stream, TensorRef,
    device::{Function, LoadFault, Module},
    facts::{self, Promise},
    form::{Form, Forms},
    select::{self, Choice, Code, SelectError, Target},
    sets::SharedSet,
    tensor::Origin,
    tensor_map::{Encoded, MapArguments, MapParameters, WantedMaps},
};

/// Arguments by name. A variant's fields go by dotted names, `epi.bias`.
#[derive(Clone, Debug, Default)]
pub struct Args<'a> {
    list: Vec<(&'a str, Arg<'a>)>,
}

#[derive(Clone, Copy, Debug)]
enum Arg<'a> {
    Tensor(TensorRef<'a>),
    Scalar(ScalarValue),
}

impl<'a> Args<'a> {
    pub fn new() -> Args<'a> {
        // Most launches have no more.
        const FEW: usize = 8;
        Args {
            list: Vec::with_capacity(FEW),
        }
    }

    /// Forgets what was passed under that name.
    pub(crate) fn forget(&mut self, name: &str) {
        self.list.retain(|(n, _)| *n != name);
    }

    /// A tensor.
    pub fn tensor(mut self, name: &'a str, tensor: TensorRef<'a>) -> Args<'a> {
        self.list.push((name, Arg::Tensor(tensor)));
        self
    }

    /// A number.
    pub fn scalar(mut self, name: &'a str, value: ScalarValue) -> Args<'a> {
        self.list.push((name, Arg::Scalar(value)));
        self
    }

    /// A floating number, rounded to the parameter's type.
    pub fn float(self, name: &'a str, value: f64) -> Args<'a> {
        self.scalar(name, ScalarValue::Float(value))
    }

    /// An integer; floats take it too.
    pub fn int(self, name: &'a str, value: i64) -> Args<'a> {
        self.scalar(name, ScalarValue::Int(value))
    }

    /// A truth value.
    pub fn bool(self, name: &'a str, value: bool) -> Args<'a> {
        self.int(name, value as i64)
    }
}

/// One instance of a kernel set. All kernels of one instance share what is loaded.
#[derive(Clone, Debug)]
pub struct Kernel {
    set: Arc<SharedSet>,
    index: usize,
    ready: Loaded,
}

/// An instance's code, context by context.
pub(crate) type Loaded = Arc<RwLock<Vec<Arc<Ready>>>>;

/// An instance's code in one context: bodies in the order in which they are tried, and their loaded entries.
#[derive(Debug)]
pub(crate) struct Ready {
    context: usize,
    /// The target that the caller named, if any.
    wanted: Option<String>,
    target: Target,
    bodies: Vec<ReadyBody>,
    /// Of its last launches.
    forms: Forms,
    /// Keeps the context, which is the key above.
    _device: Device,
}

#[derive(Debug)]
struct ReadyBody {
    body: usize,
    code: Code,
    function: Function,
    /// For a persistent body: as many blocks as the device runs at once.
    resident: Option<u32>,
    /// Tensor maps of its last launches.
    maps: Encoded,
}

/// Arguments that passed every check that needs no device.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// The signature's dimensions with their extents, in its order.
    pub dims: Vec<(String, i64)>,
    /// Scalar parameters with their values, defaults included.
    pub scalars: Vec<(String, ScalarValue)>,
}

/// Arguments, eight bytes each.
pub(crate) type Words = SmallVec<[u64; 32]>;

/// A launch whose arguments have been checked, but for its tensor maps.
#[derive(Debug)]
pub(crate) struct Decided {
    ready: Arc<Ready>,
    /// Of the body, in `ready`.
    pub(crate) position: usize,
    pub(crate) blocks: u32,
    pub(crate) arguments: Words,
    pub(crate) wanted: WantedMaps,
}

impl Decided {
    /// The body's index in `Instance::bodies`.
    pub(crate) fn body(&self) -> usize {
        self.ready.bodies[self.position].body
    }
}

/// A launch whose arguments have been checked.
#[derive(Debug)]
pub(crate) struct Queued {
    ready: Arc<Ready>,
    /// Of the body, in `ready`.
    position: usize,
    blocks: u32,
    arguments: Words,
    /// Tensor maps, by the arguments that they are.
    maps: MapArguments,
    /// What is to be checked of elements first; nothing unless the device checks facts.
    promises: Vec<Promise>,
}

/// What a launch queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Whose code it was.
    pub target: Target,
    /// Index in `Instance::bodies`.
    pub body: usize,
    pub code: Code,
    /// Blocks; 0 if nothing was queued.
    pub blocks: u32,
}

impl Kernel {
    pub(crate) fn new(set: Arc<SharedSet>, index: usize) -> Kernel {
        let ready = set.loaded[index].clone();
        Kernel { set, index, ready }
    }

    /// What the set says of it.
    pub fn instance(&self) -> &Instance {
        &self.set.set.manifest().instances[self.index]
    }

    /// `rmsnorm<bf16>`.
    pub fn name(&self) -> &str {
        &self.instance().name
    }

    /// Checks arguments as a launch would, without a device.
    pub fn check(&self, args: &Args<'_>) -> Result<Checked, Error> {
        let shapes = self.shapes(args)?;
        Ok(checked(&self.bind(&shapes)?))
    }

    /// The body of `target` that these arguments would run, as an index in `Instance::bodies`; without a device, as on one of a
    /// single multiprocessor.
    pub fn body_for(&self, target: &str, args: &Args<'_>) -> Result<usize, Error> {
        let target: Target = target.parse().map_err(SelectError::from)?;
        let shapes = self.shapes(args)?;
        let binding = self.bind(&shapes)?;
        let name = target.to_string();
        let bodies = self.instance().bodies.iter().enumerate();
        let bodies: Vec<usize> = bodies
            .filter(|(_, b)| b.target == name)
            .map(|(i, _)| i)
            .collect();
        if bodies.is_empty() {
            let mut available: Vec<String> = Vec::new();
            for body in &self.instance().bodies {
                if !available.contains(&body.target) {
                    available.push(body.target.clone());
                }
            }
            return Err(Error::Select(SelectError::NotCompiledFor {
                kernel: self.name().to_owned(),
                target,
                available,
            }));
        }
        self.fitting(target, bodies.iter().copied(), &binding, 1)
            .map(|position| bodies[position])
    }

    /// Loads the code for a device, of target `target` or of the best, so that the first launch need not.
    pub fn prepare(&self, device: &Device, target: Option<&str>) -> Result<Target, Error> {
        Ok(self.ready(device, target)?.target)
    }

    /// Checks the arguments and queues the kernel on `stream`. Returns before it has run: what it stores is there when
    /// the stream has been waited for.
    pub fn launch(&self, stream: &Stream, args: &Args<'_>) -> Result<Launch, Error> {
        self.launch_for(stream, args, None)
    }

    /// As [`Kernel::launch`], with the code of the target that is named: a device also runs the code of older ones.
    pub fn launch_for(
        &self,
        stream: &Stream,
        args: &Args<'_>,
        target: Option<&str>,
    ) -> Result<Launch, Error> {
        let shapes = self.shapes(args)?;
        let device = stream.device();
        // What is to be checked of elements is checked each time.
        let known = match device.checks_facts() && facts::promised(&self.instance().signature) {
            true => None,
            false => self.loaded(device, target),
        };
        if let Some(ready) = known
            && let Some(form) = ready.forms.find(&shapes)
        {
            check_places(self.name(), device, args)?;
            let decided = Decided {
                ready,
                position: form.position,
                blocks: form.blocks,
                arguments: form.arguments(&shapes),
                wanted: form.maps(&shapes),
            };
            return self.queue(stream, &self.encoded(device, decided)?, None);
        }
        let binding = self.bind(&shapes)?;
        check_places(self.name(), device, args)?;
        let decided = self.decided(device, target, &binding)?;
        if let Some(form) = Form::of(self.instance(), &shapes, &decided) {
            decided.ready.forms.keep(form);
        }
        let mut queued = self.encoded(device, decided)?;
        queued.promises = facts::promises(device, &binding);
        self.queue(stream, &queued, None)
    }

    /// What a launch on bound arguments is.
    fn decided(
        &self,
        device: &Device,
        target: Option<&str>,
        binding: &Binding<'_>,
    ) -> Result<Decided, Error> {
        let ready = self.ready(device, target)?;
        let bodies = ready.bodies.iter().map(|b| b.body);
        let multiprocessors = device.multiprocessors();
        let position = self.fitting(ready.target, bodies, binding, multiprocessors)?;
        let chosen = &ready.bodies[position];
        let record = &self.instance().bodies[chosen.body];
        let blocks = launched(self.blocks(record, binding)?, chosen.resident);
        let mut arguments = Words::new();
        let mut wanted = WantedMaps::new();
        for (i, arg) in record.abi.iter().enumerate() {
            arguments.push(self.argument(arg, binding)?);
            if let AbiArg::TensorMap { map } = *arg
                && blocks > 0
            {
                let map = &record.tensor_maps[map as usize];
                let param = map.param as usize;
                let name = &self.instance().signature.params[param].name;
                let parameters =
                    MapParameters::of(self.name(), name, map, binding.args[param].as_ref())?;
                wanted.push((i, parameters));
            }
        }
        Ok(Decided {
            ready,
            position,
            blocks,
            arguments,
            wanted,
        })
    }

    /// What a launch on bound arguments queues.
    pub(crate) fn queued(
        &self,
        device: &Device,
        target: Option<&str>,
        binding: &Binding<'_>,
    ) -> Result<Queued, Error> {
        let decided = self.decided(device, target, binding)?;
        let mut queued = self.encoded(device, decided)?;
        queued.promises = facts::promises(device, binding);
        Ok(queued)
    }

    /// A launch that is decided, with its tensor maps.
    fn encoded(&self, device: &Device, decided: Decided) -> Result<Queued, Error> {
        let Decided {
            ready,
            position,
            blocks,
            arguments,
            wanted,
        } = decided;
        let chosen = &ready.bodies[position];
        let maps = chosen.maps.get(device, &wanted);
        let maps = maps.map_err(|(argument, reason)| {
            let record = &self.instance().bodies[chosen.body];
            let param = match record.abi[argument] {
                AbiArg::TensorMap { map } => record.tensor_maps[map as usize].param as usize,
                _ => 0,
            };
            Error::TensorMap {
                kernel: self.name().to_owned(),
                param: self.instance().signature.params[param].name.clone(),
                reason,
            }
        })?;
        Ok(Queued {
            ready,
            position,
            blocks,
            arguments,
            maps,
            promises: Vec::new(),
        })
    }

    /// Queues it. `word`: its word of state, where it is not the stream's.
    pub(crate) fn queue(
        &self,
        stream: &Stream,
        queued: &Queued,
        word: Option<u64>,
    ) -> Result<Launch, Error> {
        facts::check(self.name(), stream, &queued.promises)?;
        let chosen = &queued.ready.bodies[queued.position];
        let record = &self.instance().bodies[chosen.body];
        if queued.blocks > 0 {
            let mut arguments = Words::from_slice(&queued.arguments);
            if let Some(at) = record.abi.iter().position(|a| *a == AbiArg::Counter) {
                arguments[at] = match word {
                    Some(word) => word,
                    None => stream.word()?,
                };
            }
            // SAFETY: the manifest says what the entry takes, and the set's hashes say that the two belong together;
            // tensors are described by who owns them, in `TensorRef::from_raw` under a promise.
            unsafe {
                chosen.function.launch(
                    stream,
                    self.name(),
                    queued.blocks,
                    record.threads,
                    record.shared_bytes,
                    record.overlap,
                    &mut arguments,
                    &queued.maps,
                )?;
            }
        }
        Ok(Launch {
            target: queued.ready.target,
            body: chosen.body,
            code: chosen.code,
            blocks: queued.blocks,
        })
    }

    /// The arguments in the signature's order.
    fn shapes<'a>(&self, args: &Args<'a>) -> Result<Short<Option<ArgShape<'a>>>, Error> {
        listed(self.name(), &self.instance().signature, args)
    }

    /// Binds, and checks what the kernel requires of every launch.
    fn bind<'a>(&'a self, shapes: &'a [Option<ArgShape<'a>>]) -> Result<Binding<'a>, Error> {
        let instance = self.instance();
        bound(
            &instance.name,
            &instance.signature,
            &instance.requires,
            shapes,
        )
    }

    /// The position among `bodies` of the first whose facts hold, or of the cheapest where that one has a cost.
    fn fitting(
        &self,
        target: Target,
        mut bodies: impl Iterator<Item = usize> + Clone,
        binding: &Binding<'_>,
        multiprocessors: u32,
    ) -> Result<usize, Error> {
        let records = &self.instance().bodies;
        let fits = |body: usize| records[body].facts.iter().all(|fact| binding.holds(fact));
        let mut all = bodies.clone();
        let first = bodies.position(fits).ok_or_else(|| Error::NoBody {
            kernel: self.name().to_owned(),
            target: target.to_string(),
            unmet: all
                .clone()
                .map(|b| failing(binding, &records[b].facts).join(", "))
                .collect(),
        })?;
        let env = Env {
            multiprocessors,
            ..binding.env()
        };
        // What cannot be computed is not taken.
        let cost = |body: usize| {
            let cost = records[body].cost.as_ref()?;
            Some(cost.eval(&env).unwrap_or(i64::MAX))
        };
        let Some(mut least) = all.nth(first).and_then(cost) else {
            return Ok(first);
        };
        let mut best = first;
        for (position, body) in bodies.enumerate() {
            if let Some(cost) = cost(body)
                && cost < least
                && fits(body)
            {
                (best, least) = (first + 1 + position, cost);
            }
        }
        Ok(best)
    }

    /// The product of the grid's axes; 0 if one is empty.
    fn blocks(&self, record: &BodyRecord, binding: &Binding<'_>) -> Result<u32, Error> {
        let mut axes = Short::<i64>::new();
        for (axis, formula) in record.grid.iter().enumerate() {
            let extent = formula.eval(&binding.env()).map_err(|error| Error::Grid {
                kernel: self.name().to_owned(),
                axis,
                formula: self.instance().signature.show(formula),
                error,
            })?;
            axes.push(extent);
        }
        if axes.iter().any(|&extent| extent <= 0) {
            return Ok(0);
        }
        let product = axes
            .iter()
            .try_fold(1i64, |n, &extent| n.checked_mul(extent));
        match product.filter(|&n| n <= i32::MAX as i64) {
            Some(blocks) => Ok(blocks as u32),
            None => Err(Error::GridTooLarge {
                kernel: self.name().to_owned(),
                axes: axes.to_vec(),
            }),
        }
    }

    /// An argument's bytes, as the low ones of eight.
    fn argument(&self, arg: &AbiArg, binding: &Binding<'_>) -> Result<u64, Error> {
        let view = |param: u32| binding.args[param as usize].as_ref();
        Ok(match *arg {
            AbiArg::Pointer { param } => match view(param) {
                Some(ArgShape::View { address, .. }) => *address,
                _ => 0,
            },
            AbiArg::Stride { param, dim } => match view(param) {
                Some(ArgShape::View { strides, .. }) => strides[dim as usize] as u64,
                _ => 0,
            },
            AbiArg::Dim { dim } => binding.dims[dim as usize] as u64,
            // The launch fills it in.
            AbiArg::Counter | AbiArg::TensorMap { .. } => 0,
            AbiArg::Scalar { param } => {
                let param = param as usize;
                let declared = &self.instance().signature.params[param];
                // One that is optional and was left out is never read.
                let value = binding.values[param].unwrap_or(ScalarValue::Int(0));
                let bits = match declared.kind {
                    ParamKind::Scalar { dtype, .. } => scalar_bits(dtype, value),
                    ParamKind::View(_) => None,
                };
                bits.ok_or_else(|| Error::ScalarType {
                    kernel: self.name().to_owned(),
                    param: declared.name.clone(),
                    dtype: match &declared.kind {
                        ParamKind::Scalar { dtype, .. } => *dtype,
                        ParamKind::View(view) => view.dtype,
                    },
                })?
            }
        })
    }

    /// The code for a device, if it is loaded.
    fn loaded(&self, device: &Device, wanted: Option<&str>) -> Option<Arc<Ready>> {
        // A panic elsewhere cannot leave the list half-written.
        let list = self.ready.read().unwrap_or_else(|e| e.into_inner());
        find_ready(&list, device.context_key(), wanted)
    }

    fn ready(&self, device: &Device, wanted: Option<&str>) -> Result<Arc<Ready>, Error> {
        if let Some(ready) = self.loaded(device, wanted) {
            return Ok(ready);
        }
        let choice = select::select(self.instance(), &device.traits(), wanted)?;
        if has_state(self.instance()) {
            // A launch that is captured cannot wait for memory.
            device.reserve_words()?;
        }
        let ready = Arc::new(self.load(device, wanted, &choice)?);
        let mut list = self.ready.write().unwrap_or_else(|e| e.into_inner());
        if let Some(earlier) = find_ready(&list, device.context_key(), wanted) {
            return Ok(earlier);
        }
        list.push(ready.clone());
        Ok(ready)
    }

    fn load(&self, device: &Device, wanted: Option<&str>, choice: &Choice) -> Result<Ready, Error> {
        let mut bodies = Vec::with_capacity(choice.candidates.len());
        for candidate in &choice.candidates {
            let record = &self.instance().bodies[candidate.body];
            if record.shared_bytes > device.shared_limit() {
                return Err(Error::SharedMemory {
                    kernel: self.name().to_owned(),
                    wanted: record.shared_bytes,
                    device: device.to_string(),
                    granted: device.shared_limit(),
                });
            }
            let attempts = [Some(candidate.code), candidate.fallback];
            let mut first_error = None;
            let mut loaded = None;
            for code in attempts.into_iter().flatten() {
                match self.function(device, record, code)? {
                    Ok(function) => {
                        loaded = Some((code, function));
                        break;
                    }
                    Err(fault) => first_error = first_error.or(Some((code, fault))),
                }
            }
            match (loaded, first_error) {
                (Some((code, function)), _) => {
                    let resident = resident(device, record, &function)?;
                    bodies.push(ReadyBody {
                        body: candidate.body,
                        code,
                        function,
                        resident,
                        maps: Encoded::default(),
                    });
                }
                (None, Some((code, fault))) => {
                    return Err(Error::Load {
                        kernel: self.name().to_owned(),
                        target: choice.target,
                        code: match code {
                            Code::Cubin(_) => "cubin",
                            Code::Ptx(_) => "PTX",
                        },
                        device: device.to_string(),
                        report: fault.report,
                    });
                }
                (None, None) => unreachable!("a candidate has code"),
            }
        }
        Ok(Ready {
            context: device.context_key(),
            wanted: wanted.map(str::to_owned),
            target: choice.target,
            bodies,
            forms: Forms::default(),
            _device: device.clone(),
        })
    }

    /// The entry of a body; the inner error is the driver's, after which other code may do.
    fn function(
        &self,
        device: &Device,
        record: &BodyRecord,
        code: Code,
    ) -> Result<Result<Function, LoadFault>, Error> {
        let (Code::Cubin(index) | Code::Ptx(index)) = code;
        let key = device.module_key();
        let mut modules = self.set.modules.lock().unwrap_or_else(|e| e.into_inner());
        let known = modules.iter().find(|(k, i, _)| *k == key && *i == index);
        let module = match known {
            Some((_, _, module)) => module.clone(),
            None => {
                debug_assert_eq!(
                    self.set.set.modules()[index as usize].kind,
                    match code {
                        Code::Cubin(_) => ModuleKind::Cubin,
                        Code::Ptx(_) => ModuleKind::Ptx,
                    }
                );
                let image = self.set.set.module(index)?;
                let module = match Module::load(device, image) {
                    Ok(module) => Arc::new(module),
                    Err(fault) => return Ok(Err(fault)),
                };
                modules.push((key, index, module.clone()));
                module
            }
        };
        drop(modules);
        Ok(module.function(&record.entry, record.shared_bytes, record.cluster))
    }
}

fn find_ready(list: &[Arc<Ready>], context: usize, wanted: Option<&str>) -> Option<Arc<Ready>> {
    let mut list = list.iter();
    list.find(|r| r.context == context && r.wanted.as_deref() == wanted)
        .cloned()
}

/// `args` in the order of a signature's parameters.
pub(crate) fn listed<'a>(
    kernel: &str,
    signature: &Signature,
    args: &Args<'a>,
) -> Result<Short<Option<ArgShape<'a>>>, Error> {
    let mut shapes: Short<Option<ArgShape<'a>>> = smallvec![None; signature.params.len()];
    for (name, arg) in &args.list {
        let Some(index) = signature.param(name) else {
            return Err(Error::UnknownArgument {
                kernel: kernel.to_owned(),
                name: (*name).to_owned(),
                available: signature.params.iter().map(|p| p.name.clone()).collect(),
            });
        };
        if shapes[index].is_some() {
            return Err(Error::RepeatedArgument {
                kernel: kernel.to_owned(),
                name: (*name).to_owned(),
            });
        }
        shapes[index] = Some(match arg {
            Arg::Scalar(value) => ArgShape::Scalar(*value),
            Arg::Tensor(tensor) => ArgShape::View {
                dtype: tensor.dtype,
                shape: tensor.shape,
                strides: tensor.strides,
                address: tensor.pointer,
            },
        });
    }
    Ok(shapes)
}

/// Binds arguments, and checks what is required of them all.
pub(crate) fn bound<'a>(
    kernel: &str,
    signature: &'a Signature,
    requires: &[Fact],
    shapes: &'a [Option<ArgShape<'a>>],
) -> Result<Binding<'a>, Error> {
    let refused = |error: BindError| Error::Argument {
        kernel: kernel.to_owned(),
        error,
    };
    let binding = signature.bind(shapes).map_err(refused)?;
    if !requires.iter().all(|fact| binding.holds(fact)) {
        return Err(Error::Requires {
            kernel: kernel.to_owned(),
            facts: failing(&binding, requires),
        });
    }
    Ok(binding)
}

/// What a binding says of dimensions and scalars.
pub(crate) fn checked(binding: &Binding<'_>) -> Checked {
    let signature = binding.signature;
    let dims = signature
        .dims
        .iter()
        .cloned()
        .zip(binding.dims.iter().copied());
    let named = signature
        .params
        .iter()
        .map(|p| p.name.clone())
        .zip(&binding.values);
    Checked {
        dims: dims.collect(),
        scalars: named.filter_map(|(n, v)| Some((n, (*v)?))).collect(),
    }
}

/// Whether all tensors are memory of the device.
pub(crate) fn check_places(kernel: &str, device: &Device, args: &Args<'_>) -> Result<(), Error> {
    for (name, arg) in &args.list {
        let Arg::Tensor(tensor) = arg else { continue };
        match tensor.origin {
            Origin::Borrowed => {}
            Origin::Device(owner) if owner == device => {}
            Origin::Device(owner) => {
                return Err(Error::OtherDevice {
                    kernel: kernel.to_owned(),
                    param: (*name).to_owned(),
                    tensor: owner.to_string(),
                    device: device.to_string(),
                });
            }
            Origin::Nowhere => {
                return Err(Error::NoMemory {
                    kernel: kernel.to_owned(),
                    param: (*name).to_owned(),
                });
            }
        }
    }
    Ok(())
}

/// How many blocks of a persistent body the device runs at once: at least one.
fn resident(
    device: &Device,
    record: &BodyRecord,
    function: &Function,
) -> Result<Option<u32>, Error> {
    let Some(persistent) = record.persistent else {
        return Ok(None);
    };
    let each = match persistent.blocks_per_sm {
        Some(blocks) => blocks,
        None => function.blocks_per_sm(record.threads, record.shared_bytes)?,
    };
    // Whole clusters only.
    let cluster = record.cluster.max(1);
    let blocks = device.multiprocessors().saturating_mul(each);
    Ok(Some((blocks / cluster).max(1) * cluster))
}

/// The blocks to launch for a grid of `points`: one each, or no more than `resident`, which then share them.
fn launched(points: u32, resident: Option<u32>) -> u32 {
    resident.map_or(points, |resident| points.min(resident))
}

/// The facts that do not hold, in words.
fn failing(binding: &Binding<'_>, facts: &[Fact]) -> Vec<String> {
    let failing = facts.iter().filter(|fact| !binding.holds(fact));
    failing.map(|fact| binding.explain(fact)).collect()
}

/// A scalar as the kernel takes it, in the low bytes: floats in their own type, integers in 64 bits, bools in one byte.
/// `None` for types that no parameter has.
fn scalar_bits(dtype: DType, value: ScalarValue) -> Option<u64> {
    let float = value.as_f64();
    Some(match dtype {
        DType::F64 => float.to_bits(),
        DType::F32 | DType::Tf32 => (float as f32).to_bits() as u64,
        DType::F16 => half::f16::from_f64(float).to_bits() as u64,
        DType::Bf16 => half::bf16::from_f64(float).to_bits() as u64,
        dtype if dtype.is_float() => return None,
        _ => value.as_i64() as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn persistent_blocks_share_the_grid() {
        assert_eq!(launched(1000, None), 1000);
        assert_eq!(launched(1000, Some(264)), 264);
        assert_eq!(launched(3, Some(264)), 3);
        assert_eq!(launched(0, Some(264)), 0);
    }

    #[test]
    fn scalars_are_passed_in_their_own_type() {
        let float = |dtype, value| scalar_bits(dtype, ScalarValue::Float(value));
        assert_eq!(float(DType::F64, 1.5), Some(1.5f64.to_bits()));
        assert_eq!(float(DType::F32, 1e-6), Some(1e-6f32.to_bits() as u64));
        assert_eq!(float(DType::F16, 1.0), Some(0x3c00));
        assert_eq!(float(DType::Bf16, -2.0), Some(0xc000));
        assert_eq!(float(DType::E4m3, 1.0), None);
        assert_eq!(
            scalar_bits(DType::F32, ScalarValue::Int(2)),
            float(DType::F32, 2.0)
        );
        assert_eq!(
            scalar_bits(DType::I32, ScalarValue::Int(-1)),
            Some(u64::MAX)
        );
        assert_eq!(scalar_bits(DType::Bool, ScalarValue::Int(1)), Some(1));
    }
}
