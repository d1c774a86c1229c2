//! Ops: sequences of launches with a workspace, run as the manifest says.
//!
//! Order of a run: arguments, facts, the workspace's layout, then each launch as if it were launched alone — bound, checked, its
//! body chosen — and only when all are known to fit is anything queued. Invariants: a run allocates no device memory and waits
//! for nothing, so that it can be captured; a run that was refused has queued nothing (but where the device checks facts, which
//! are those of what earlier launches left: there it waits, and launches before the refused one have run); what a workspace keeps from run to run
//! (counts of arrivals, words of state) is zero before each.

use std::sync::{Arc, Mutex};

use tesserine_set::{
    ArgShape, Binding, Env, OpRecord, OwnedArg, ParamKind, STATE_WORD, Term, WORKSPACE_ALIGN,
    WorkspaceLayout, has_state,
};

use crate::{
    Args, Checked, Device, Error, Kernel, Launch, Stream,
    device::Memory,
    facts,
    launch::{Queued, bound, check_places, checked, listed},
    sets::SharedSet,
};

/// One op of a kernel set. Clones share what is loaded.
#[derive(Clone, Debug)]
pub struct Op {
    set: Arc<SharedSet>,
    index: usize,
    /// One a step.
    kernels: Vec<Kernel>,
}

/// The memory that runs of an op use between their launches: one run at a time, so one for each stream that runs side by side.
/// It may serve several ops in turn.
#[derive(Debug)]
pub struct Workspace {
    address: u64,
    bytes: u64,
    /// Where the memory is, if it is known.
    device: Option<Device>,
    state: Mutex<State>,
    /// Keeps it allocated.
    _memory: Option<Memory>,
}

#[derive(Debug, Default)]
struct State {
    /// The parts that are zero, as every run leaves them.
    zero: Option<Vec<Range>>,
    /// A captured run relies on these parts.
    held: Option<Vec<Range>>,
}

/// Offset and length, in bytes.
type Range = (u64, u64);

impl Workspace {
    /// Allocates `bytes` on a device; [`Op::workspace_size`] says how many.
    pub fn new(device: &Device, bytes: u64) -> Result<Workspace, Error> {
        let size = usize::try_from(bytes).map_err(|_| Error::WorkspaceTooLarge { bytes })?;
        let memory = Memory::new(device, size)?;
        Ok(Workspace {
            address: memory.pointer(),
            bytes,
            device: Some(device.clone()),
            state: Mutex::default(),
            _memory: Some(memory),
        })
    }

    /// No memory, for ops that need none.
    pub(crate) fn none() -> Workspace {
        Workspace {
            address: 0,
            bytes: 0,
            device: None,
            state: Mutex::default(),
            _memory: None,
        }
    }

    /// Memory of someone else's: `bytes` at `address`, a multiple of 256.
    ///
    /// # Safety
    /// As long as runs, and graphs that captured runs, may use it, it must be allocated memory of the device that they run on,
    /// and nobody else may use it.
    pub unsafe fn from_raw(address: u64, bytes: u64) -> Result<Workspace, Error> {
        if !address.is_multiple_of(WORKSPACE_ALIGN) {
            return Err(Error::WorkspaceAddress { address });
        }
        Ok(Workspace {
            address,
            bytes,
            device: None,
            state: Mutex::default(),
            _memory: None,
        })
    }

    /// Bytes.
    pub fn byte_size(&self) -> u64 {
        self.bytes
    }
}

impl Op {
    pub(crate) fn new(set: Arc<SharedSet>, index: usize) -> Op {
        let steps = &set.set.manifest().ops[index].steps;
        let mut kernels: Vec<(u32, Kernel)> = Vec::new();
        for step in steps {
            let known = kernels.iter().find(|(i, _)| *i == step.instance);
            let kernel = match known {
                Some((_, kernel)) => kernel.clone(),
                None => Kernel::new(set.clone(), step.instance as usize),
            };
            kernels.push((step.instance, kernel));
        }
        Op {
            index,
            kernels: kernels.into_iter().map(|(_, kernel)| kernel).collect(),
            set,
        }
    }

    /// What the set says of it.
    pub fn record(&self) -> &OpRecord {
        &self.set.set.manifest().ops[self.index]
    }

    /// `gemm_nt_splitk<bf16>`.
    pub fn name(&self) -> &str {
        &self.record().name
    }

    /// The kernels that it launches, one a step of the record.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// Checks arguments as a run would, without a device.
    pub fn check(&self, args: &Args<'_>) -> Result<Checked, Error> {
        let record = self.record();
        let shapes = listed(&record.name, &record.signature, args)?;
        let binding = bound(&record.name, &record.signature, &record.requires, &shapes)?;
        let layout = self.layout(&binding.env())?;
        for (index, _) in record.steps.iter().enumerate() {
            self.with_step(index, &binding, &layout, 0, |_, _| Ok(()))?;
        }
        Ok(checked(&binding))
    }

    /// Bytes of workspace that a run on these arguments needs, exactly.
    pub fn workspace_for(&self, args: &Args<'_>) -> Result<u64, Error> {
        let record = self.record();
        let shapes = listed(&record.name, &record.signature, args)?;
        let binding = bound(&record.name, &record.signature, &record.requires, &shapes)?;
        Ok(self.layout(&binding.env())?.bytes)
    }

    /// Bytes of workspace that a run with these dimensions and integer scalars needs, exactly. What the workspace does not depend
    /// on, and what has a default, may be left out.
    pub fn workspace_size(&self, values: &[(&str, i64)]) -> Result<u64, Error> {
        let record = self.record();
        let signature = &record.signature;
        let mut dims = vec![None; signature.dims.len()];
        let mut scalars: Vec<Option<i64>> = signature
            .params
            .iter()
            .map(|p| match p.kind {
                ParamKind::Scalar {
                    default: Some(value),
                    ..
                } => Some(value as i64),
                _ => None,
            })
            .collect();
        for (name, value) in values {
            let dim = signature.dims.iter().position(|d| d == name);
            match (dim, signature.param(name)) {
                (Some(dim), _) => dims[dim] = Some(*value),
                (None, Some(param)) => scalars[param] = Some(*value),
                (None, None) => {
                    let scalars = signature.params.iter().filter_map(|p| match p.kind {
                        ParamKind::Scalar { dtype, .. } if !dtype.is_float() => Some(&p.name),
                        _ => None,
                    });
                    return Err(Error::UnknownArgument {
                        kernel: record.name.clone(),
                        name: (*name).to_owned(),
                        available: signature.dims.iter().chain(scalars).cloned().collect(),
                    });
                }
            }
        }
        for workspace in &record.workspaces {
            let formulas = workspace.extents.iter().chain(&workspace.when);
            for term in formulas.flat_map(|f| &f.0) {
                let missing = match *term {
                    Term::Dim(d) if dims[d as usize].is_none() => &signature.dims[d as usize],
                    Term::Scalar(p) if scalars[p as usize].is_none() => {
                        &signature.params[p as usize].name
                    }
                    _ => continue,
                };
                return Err(Error::WorkspaceDim {
                    op: record.name.clone(),
                    name: missing.clone(),
                });
            }
        }
        let dims: Vec<i64> = dims.into_iter().map(|d| d.unwrap_or(0)).collect();
        let scalars: Vec<i64> = scalars.into_iter().map(|s| s.unwrap_or(0)).collect();
        let env = Env {
            dims: &dims,
            scalars: &scalars,
            given: &vec![true; signature.params.len()],
            multiprocessors: 1,
        };
        Ok(self.layout(&env)?.bytes)
    }

    /// Loads the code of all launches for a device, so that a run need not: a capture cannot.
    pub fn prepare(&self, device: &Device, target: Option<&str>) -> Result<(), Error> {
        for kernel in &self.kernels {
            kernel
                .prepare(device, target)
                .map_err(|error| self.within(error))?;
        }
        Ok(())
    }

    /// Checks the arguments and queues all launches on `stream`.
    pub fn run(
        &self,
        stream: &Stream,
        args: &Args<'_>,
        workspace: &Workspace,
    ) -> Result<Vec<Launch>, Error> {
        self.run_for(stream, args, workspace, None)
    }

    /// As [`Op::run`], with the code of the target that is named.
    pub fn run_for(
        &self,
        stream: &Stream,
        args: &Args<'_>,
        workspace: &Workspace,
        target: Option<&str>,
    ) -> Result<Vec<Launch>, Error> {
        let record = self.record();
        let shapes = listed(&record.name, &record.signature, args)?;
        let binding = bound(&record.name, &record.signature, &record.requires, &shapes)?;
        let device = stream.device();
        check_places(&record.name, device, args)?;
        let layout = self.layout(&binding.env())?;
        self.check_workspace(workspace, device, &layout)?;

        let mut queued = Vec::with_capacity(record.steps.len());
        let mut words = 0;
        for index in 0..record.steps.len() {
            let kernel = &self.kernels[index];
            let word = has_state(kernel.instance()).then(|| {
                words += 1;
                workspace.address + layout.words + (words - 1) * STATE_WORD
            });
            let made = self.with_step(index, &binding, &layout, workspace.address, |k, b| {
                k.queued(device, target, b)
            })?;
            queued.extend(made.map(|q| (kernel, q, word)));
        }

        facts::check(&record.name, stream, &facts::promises(device, &binding))?;
        self.fill(stream, workspace, &layout)?;
        let mut launches = Vec::with_capacity(queued.len());
        for (kernel, queued, word) in &queued {
            let queued: &Queued = queued;
            let launch = kernel.queue(stream, queued, *word);
            launches.push(launch.map_err(|error| {
                // The run ends in its midst: what it counts up is not counted down again.
                workspace
                    .state
                    .lock()
                    .unwrap_or_else(|e| e.into_inner())
                    .zero = None;
                self.within(error)
            })?);
        }
        Ok(launches)
    }

    /// Binds the arguments of step `index`; `None` if it does not run.
    fn with_step<T>(
        &self,
        index: usize,
        binding: &Binding<'_>,
        layout: &WorkspaceLayout,
        memory: u64,
        f: impl FnOnce(&Kernel, &Binding<'_>) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let record = self.record();
        let step = &record.steps[index];
        let args = record
            .arguments(step, binding, layout, memory)
            .map_err(|error| self.refused(error))?;
        let Some(args) = args else { return Ok(None) };
        let kernel = &self.kernels[index];
        let shapes: Vec<Option<ArgShape<'_>>> = args
            .iter()
            .map(|arg| arg.as_ref().map(OwnedArg::shape))
            .collect();
        let instance = kernel.instance();
        let result = bound(
            &instance.name,
            &instance.signature,
            &instance.requires,
            &shapes,
        )
        .and_then(|inner| f(kernel, &inner));
        result.map(Some).map_err(|error| self.within(error))
    }

    fn layout(&self, env: &Env<'_>) -> Result<WorkspaceLayout, Error> {
        let instances = &self.set.set.manifest().instances;
        self.record()
            .layout(env, instances)
            .map_err(|error| self.refused(error))
    }

    fn refused(&self, error: tesserine_set::OpError) -> Error {
        Error::Op {
            op: self.name().to_owned(),
            error,
        }
    }

    fn within(&self, error: Error) -> Error {
        Error::Step {
            op: self.name().to_owned(),
            error: Box::new(error),
        }
    }

    fn check_workspace(
        &self,
        workspace: &Workspace,
        device: &Device,
        layout: &WorkspaceLayout,
    ) -> Result<(), Error> {
        if workspace.bytes < layout.bytes {
            return Err(Error::WorkspaceSize {
                op: self.name().to_owned(),
                needed: layout.bytes,
                given: workspace.bytes,
            });
        }
        if let Some(owner) = workspace.device.as_ref().filter(|owner| *owner != device) {
            return Err(Error::OtherDevice {
                kernel: self.name().to_owned(),
                param: "workspace".to_owned(),
                tensor: owner.to_string(),
                device: device.to_string(),
            });
        }
        let state = workspace.state.lock().unwrap_or_else(|e| e.into_inner());
        if state.held.is_some() && state.held != Some(self.kept(layout)) {
            return Err(Error::WorkspaceHeld {
                op: self.name().to_owned(),
            });
        }
        Ok(())
    }

    /// The parts that a run finds at zero and leaves so.
    fn kept(&self, layout: &WorkspaceLayout) -> Vec<Range> {
        let records = self.record().workspaces.iter().zip(&layout.places);
        let counts = records.filter_map(|(record, place)| {
            let place = place.as_ref().filter(|p| record.once && p.bytes > 0)?;
            Some((place.offset, place.bytes))
        });
        let words = u64::from(layout.word_count) * STATE_WORD;
        counts
            .chain((words > 0).then_some((layout.words, words)))
            .collect()
    }

    /// Queues what must be in the workspace before the first launch.
    fn fill(
        &self,
        stream: &Stream,
        workspace: &Workspace,
        layout: &WorkspaceLayout,
    ) -> Result<(), Error> {
        let kept = self.kept(layout);
        let mut state = workspace.state.lock().unwrap_or_else(|e| e.into_inner());
        let clean = state.zero.as_ref() == Some(&kept);
        let capturing = if layout.bytes > 0 {
            stream.is_capturing()?
        } else {
            false
        };
        if !clean {
            // Whatever fails below, nothing is known any more.
            state.zero = None;
            for (offset, bytes) in &kept {
                // SAFETY: the layout lies within the workspace, which is for one run at a time.
                unsafe { stream.fill(workspace.address + offset, 8, 0, *bytes as usize)? };
            }
        }
        for (record, place) in self.record().workspaces.iter().zip(&layout.places) {
            let (Some(place), Some(value), false) = (place, record.fill, record.once) else {
                continue;
            };
            let address = workspace.address + place.offset;
            // SAFETY: as above.
            unsafe { stream.fill(address, record.dtype.bits(), value, place.bytes as usize)? };
        }
        if capturing {
            // Nothing has run yet, and the graph relies on these parts from now on.
            if layout.bytes > 0 {
                state.held = Some(kept);
            }
        } else if layout.bytes > 0 {
            state.zero = Some(kept);
        }
        Ok(())
    }
}
