//! Ops on the interpreter: the launches of the record, one after another, on tensors.
//!
//! Invariants: tensors come back to the caller in every case; a view that is a part of a tensor, or shows it in another order,
//! is copied out before its launch and back after it, with what has been stored to.

use indexmap::IndexMap;
use tesserine_set::{
    ArgShape, Binding, OpError, OwnedArg, ParamKind, PlacedView, ViewBase, WorkspaceLayout,
};

use super::{Arg, Args, InterpError, Report, Tensor, Unwritten, launch, unwritten, with_binding};
use crate::ir::op::Op;

/// What a run of an op did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpReport {
    /// The launches that ran, in order: the instance's name and what it did.
    pub launches: Vec<(String, Report)>,
    /// Bytes of workspace that a device would need, words of state apart.
    pub workspace: u64,
    /// Outputs of the op of which not every element has been stored.
    pub unwritten: Vec<Unwritten>,
}

/// What each launch of an op gets, and where workspaces lie.
struct Resolved {
    layout: WorkspaceLayout,
    /// The steps that run: their index, and one argument a parameter.
    steps: Vec<(usize, Vec<Option<OwnedArg>>)>,
    /// Where each parameter begins.
    addresses: Vec<u64>,
}

/// Where the workspaces begin, as far as addresses are made up: behind all tensors.
const WORKSPACE: u64 = 1 << 62;

/// Runs an op. Tensors of `out` and `mut` views change in place, also if a launch fails half-way.
pub fn run_op(op: &Op, args: &mut Args) -> Result<OpReport, InterpError> {
    run_op_with(op, args, |op, instance, args| {
        launch(&op.instances[instance].instance, args)
    })
}

/// As [`run_op`], with a launcher of the caller's: it gets the op, the index of the instance, and its arguments by name.
pub fn run_op_with(
    op: &Op,
    args: &mut Args,
    mut launcher: impl FnMut(&Op, usize, &mut Args) -> Result<Report, InterpError>,
) -> Result<OpReport, InterpError> {
    let record = &op.record;
    let signature = &record.signature;
    let mut listed = super::list(signature, args)?;
    let resolved = with_binding(signature, &listed, |binding| resolve(op, binding));
    let result = resolved.and_then(|resolved| {
        for (param, arg) in signature.params.iter().zip(&mut listed) {
            if let (ParamKind::View(view), Some(Arg::Tensor(tensor))) = (&param.kind, arg)
                && view.access == tesserine_set::Access::Write
                && tensor.written.is_none()
            {
                tensor.written = Some(vec![false; tensor.elements()]);
            }
        }
        let mut memory = Memory {
            params: &mut listed,
            addresses: &resolved.addresses,
            workspaces: workspaces(op, &resolved.layout)?,
            places: &resolved.layout,
        };
        let mut report = OpReport {
            workspace: resolved.layout.bytes,
            ..OpReport::default()
        };
        for (index, values) in &resolved.steps {
            let instance = record.steps[*index].instance as usize;
            let launched = &op.instances[instance].instance;
            let params = &launched.bodies[0].header.signature.params;
            let mut passed: Args = IndexMap::new();
            for (param, value) in params.iter().zip(values) {
                match value {
                    None => {}
                    Some(OwnedArg::Scalar(value)) => {
                        passed.insert(param.name.clone(), Arg::Scalar(*value));
                    }
                    Some(OwnedArg::View(view)) => {
                        let stored = matches!(&param.kind, ParamKind::View(v) if v.access != tesserine_set::Access::Read);
                        let tensor = memory.take(view, stored)?;
                        passed.insert(param.name.clone(), Arg::Tensor(tensor));
                    }
                }
            }
            let ran = launcher(op, instance, &mut passed);
            for (param, value) in params.iter().zip(values) {
                if let Some(OwnedArg::View(view)) = value
                    && let Some(Arg::Tensor(tensor)) = passed.shift_remove(&param.name)
                {
                    let stored = matches!(&param.kind, ParamKind::View(v) if v.access != tesserine_set::Access::Read);
                    memory.give_back(view, tensor, stored);
                }
            }
            let ran = ran.map_err(|error| InterpError::Launch {
                launch: launched.name.clone(),
                error: Box::new(error),
            })?;
            report.launches.push((launched.name.clone(), ran));
        }
        for (param, arg) in signature.params.iter().zip(memory.params.iter()) {
            if let Some(Arg::Tensor(tensor)) = arg {
                report.unwritten.extend(unwritten(&param.name, tensor));
            }
        }
        Ok(report)
    });
    super::give_back(signature, listed, args);
    result
}

fn resolve(op: &Op, binding: &Binding<'_>) -> Result<Resolved, InterpError> {
    let record = &op.record;
    if let Some(fact) = record.requires.iter().find(|f| !binding.holds(f)) {
        return Err(InterpError::OpRequirement(binding.explain(fact)));
    }
    let layout = record.layout_with(&binding.env(), 0)?;
    let mut steps = Vec::new();
    for (index, step) in record.steps.iter().enumerate() {
        let Some(args) = record.arguments(step, binding, &layout, WORKSPACE)? else {
            continue;
        };
        // Every launch is checked before the first one runs.
        let launched = &op.instances[step.instance as usize].instance;
        let shapes: Vec<Option<ArgShape<'_>>> = args
            .iter()
            .map(|arg| arg.as_ref().map(OwnedArg::shape))
            .collect();
        let signature = &launched.bodies[0].header.signature;
        signature
            .bind(&shapes)
            .map_err(|error| InterpError::Launch {
                launch: launched.name.clone(),
                error: Box::new(InterpError::Bind(error)),
            })?;
        steps.push((index, args));
    }
    let addresses = binding
        .args
        .iter()
        .map(|arg| match arg {
            Some(ArgShape::View { address, .. }) => *address,
            _ => 0,
        })
        .collect();
    Ok(Resolved {
        layout,
        steps,
        addresses,
    })
}

/// The workspaces, filled as they are declared, else with what no program should read.
fn workspaces(op: &Op, layout: &WorkspaceLayout) -> Result<Vec<Option<Tensor>>, InterpError> {
    let mut tensors = Vec::new();
    for (record, place) in op.record.workspaces.iter().zip(&layout.places) {
        let Some(place) = place else {
            tensors.push(None);
            continue;
        };
        // What a test asks for may be more than this machine has.
        const MOST: u64 = 1 << 36;
        if place.bytes > MOST {
            return Err(InterpError::Op(OpError::TooLarge {
                name: record.name.clone(),
            }));
        }
        let shape: Vec<usize> = place.shape.iter().map(|e| *e as usize).collect();
        let mut data = vec![0xFFu8; place.bytes as usize];
        if let Some(fill) = record.fill {
            let bits = record.dtype.bits() as usize;
            for at in 0..shape.iter().product() {
                set(&mut data, bits, at, fill);
            }
        }
        let tensor = Tensor::from_bytes(record.dtype, shape, data).map_err(|_| {
            InterpError::Op(OpError::TooLarge {
                name: record.name.clone(),
            })
        })?;
        tensors.push(Some(tensor));
    }
    Ok(tensors)
}

struct Memory<'m> {
    params: &'m mut [Option<Arg>],
    addresses: &'m [u64],
    workspaces: Vec<Option<Tensor>>,
    places: &'m WorkspaceLayout,
}

impl Memory<'_> {
    fn base(&mut self, base: ViewBase) -> Option<(&mut Tensor, u64)> {
        match base {
            ViewBase::Param(i) => match self.params.get_mut(i as usize)? {
                Some(Arg::Tensor(tensor)) => Some((tensor, self.addresses[i as usize])),
                _ => None,
            },
            ViewBase::Workspace(i) => {
                let place = self.places.places.get(i as usize)?.as_ref()?;
                let tensor = self.workspaces.get_mut(i as usize)?.as_mut()?;
                Some((tensor, WORKSPACE + place.offset))
            }
        }
    }

    /// The tensor of a view: the base itself where it is the whole of it and stored to, else a copy.
    fn take(&mut self, view: &PlacedView, stored: bool) -> Result<Tensor, InterpError> {
        let missing = || InterpError::Op(OpError::Malformed);
        let (tensor, address) = self.base(view.base).ok_or_else(missing)?;
        if is_whole(tensor, address, view) {
            if stored {
                let empty = Tensor {
                    dtype: tensor.dtype,
                    shape: tensor.shape.clone(),
                    strides: tensor.strides.clone(),
                    data: Vec::new(),
                    written: None,
                };
                return Ok(std::mem::replace(tensor, empty));
            }
            let mut copy = tensor.clone();
            copy.written = None;
            return Ok(copy);
        }
        let bits = view.dtype.bits() as usize;
        let places = places(view, address);
        let mut data = vec![0u8; (places.len() * bits).div_ceil(8)];
        for (to, from) in places.iter().enumerate() {
            set(&mut data, bits, to, get(&tensor.data, bits, *from));
        }
        let shape = view.shape.iter().map(|e| *e as usize).collect();
        let mut copy = Tensor::from_bytes(view.dtype, shape, data).map_err(|_| missing())?;
        if stored && let Some(written) = &tensor.written {
            let owner = owners(tensor, view.dtype.bits() as usize);
            let known = |at: &usize| owner.get(at).is_some_and(|i| written[*i]);
            copy.written = Some(places.iter().map(known).collect());
        }
        Ok(copy)
    }

    fn give_back(&mut self, view: &PlacedView, from: Tensor, stored: bool) {
        let Some((tensor, address)) = self.base(view.base).filter(|_| stored) else {
            return;
        };
        if is_whole(tensor, address, view) {
            let asked = tensor.written.is_some() || from.written.is_some();
            *tensor = from;
            if !asked {
                tensor.written = None;
            }
            return;
        }
        let bits = view.dtype.bits() as usize;
        let places = places(view, address);
        for (index, to) in places.iter().enumerate() {
            set(&mut tensor.data, bits, *to, get(&from.data, bits, index));
        }
        if let Some(written) = &from.written
            && tensor.written.is_some()
        {
            let owner = owners(tensor, bits);
            if let Some(flags) = &mut tensor.written {
                for (place, stored) in places.iter().zip(written) {
                    if let (true, Some(i)) = (*stored, owner.get(place)) {
                        flags[*i] = true;
                    }
                }
            }
        }
    }
}

/// Whether a view is a tensor as it lies.
fn is_whole(tensor: &Tensor, address: u64, view: &PlacedView) -> bool {
    let same = |a: &[usize], b: &[i64]| a.iter().map(|x| *x as i64).eq(b.iter().copied());
    view.address == address
        && view.dtype == tensor.dtype
        && same(&tensor.shape, &view.shape)
        && same(&tensor.strides, &view.strides)
}

/// Where each element of a view lies, row-major, in elements of the view from the base on.
fn places(view: &PlacedView, address: u64) -> Vec<usize> {
    let bits = u64::from(view.dtype.bits());
    let start = (view.address - address) * 8 / bits;
    let count: i64 = view.shape.iter().product();
    (0..count)
        .map(|mut i| {
            let mut at = start as i64;
            for (extent, stride) in view.shape.iter().zip(&view.strides).rev() {
                at += i % extent * stride;
                i /= extent;
            }
            at as usize
        })
        .collect()
}

/// The row-major number of the tensor's element that holds each element of `bits` bits.
fn owners(tensor: &Tensor, bits: usize) -> std::collections::HashMap<usize, usize> {
    let own = tensor.dtype.bits() as usize;
    let mut owners = std::collections::HashMap::new();
    for i in 0..tensor.elements() {
        let (mut rest, mut at) = (i, 0);
        for (&extent, &stride) in tensor.shape.iter().zip(&tensor.strides).rev() {
            at += rest % extent * stride;
            rest /= extent;
        }
        for part in at * own / bits..(at * own + own).div_ceil(bits) {
            owners.insert(part, i);
        }
    }
    owners
}

fn get(data: &[u8], bits: usize, at: usize) -> u64 {
    if bits >= 8 {
        let mut bytes = [0u8; 8];
        let n = bits / 8;
        bytes[..n].copy_from_slice(&data[at * n..(at + 1) * n]);
        return u64::from_le_bytes(bytes);
    }
    let bit = at * bits;
    u64::from(data[bit / 8] >> (bit % 8)) & ((1 << bits) - 1)
}

fn set(data: &mut [u8], bits: usize, at: usize, value: u64) {
    if bits >= 8 {
        let n = bits / 8;
        data[at * n..(at + 1) * n].copy_from_slice(&value.to_le_bytes()[..n]);
        return;
    }
    let bit = at * bits;
    let mask = ((1u8 << bits) - 1) << (bit % 8);
    let byte = &mut data[bit / 8];
    *byte = *byte & !mask | (value as u8) << (bit % 8) & mask;
}
