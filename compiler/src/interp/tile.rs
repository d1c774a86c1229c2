//! Running the body of a tile kernel, block after block.

use std::{io::Write, rc::Rc};

use cranelift_entity::{EntitySet, SecondaryMap};
use tesserine_set::DType;

use super::{
    Fault, Limits,
    cluster::{self, Resident, exchanges},
    elementwise,
    floats::wrap,
    memory::Memory,
    order::Order,
    roles::Rings,
    tiles,
    value::{Data, Value, row_major},
    window::{Start, Window},
};
use crate::{
    ir::{
        Op, OpId, RegionId, ValueId,
        tile::{ClusterOp, Constant, Index, Kernel, OpKind, RoleOp, TileBody, Type},
    },
    span::Span,
};

/// One kernel on one launch's arguments.
pub(super) struct Machine<'k> {
    pub body: &'k TileBody,
    dims: &'k [i64],
    /// By parameter: the memory of a view that was given.
    pub memories: Vec<Option<Memory>>,
    /// By parameter: the value of a scalar.
    scalars: Vec<Option<Rc<Data>>>,
    pub values: SecondaryMap<ValueId, Value>,
    /// The block that runs: its indices, and its number in row-major order.
    pub indices: Vec<i64>,
    pub block: u32,
    /// The blocks of the cluster that runs, but that the one at hand is in its place here.
    pub residents: Vec<Resident>,
    /// Operations that the blocks of a cluster run together.
    pub exchanges: EntitySet<OpId>,
    /// What happens before what between the blocks.
    pub order: Order,
    /// What passes between roles.
    pub rings: Rings<'k>,
    limits: Limits,
    /// Of `limits`, what has been used.
    steps: u64,
    elements: u64,
    bytes: u64,
}

/// What is wrong in a block, and in which operation.
pub(super) type Stop = (Fault, Span);

impl<'k> Machine<'k> {
    pub fn new(
        kernel: &'k Kernel,
        dims: &'k [i64],
        memories: Vec<Option<Memory>>,
        scalars: Vec<Option<Data>>,
        limits: Limits,
    ) -> Machine<'k> {
        Machine {
            memories,
            scalars: scalars.into_iter().map(|s| s.map(Rc::new)).collect(),
            rings: Rings::of(&kernel.channels, &kernel.body),
            ..Machine::over(&kernel.body, dims, limits)
        }
    }

    /// For operations that reach no memory.
    pub fn over(body: &'k TileBody, dims: &'k [i64], limits: Limits) -> Machine<'k> {
        Machine {
            body,
            dims,
            memories: Vec::new(),
            scalars: Vec::new(),
            values: SecondaryMap::with_capacity(body.values.len()),
            indices: Vec::new(),
            block: 0,
            order: Order::default(),
            residents: Vec::new(),
            exchanges: exchanges(body),
            rings: Rings::default(),
            limits,
            steps: 0,
            elements: 0,
            bytes: 0,
        }
    }

    /// The operations that may still run.
    pub fn steps(&self) -> u64 {
        self.limits.steps.saturating_sub(self.steps)
    }

    /// Runs one block.
    pub fn block(&mut self, number: u32, indices: &[i64]) -> Result<(), Stop> {
        self.block = number;
        self.indices = indices.to_vec();
        self.region(self.body.root)
    }

    pub fn data(&self, value: ValueId) -> &Rc<Data> {
        match &self.values[value] {
            Value::Data(data) => data,
            _ => panic!("{value} is no scalar or tile that has been computed"),
        }
    }

    pub fn int(&self, value: ValueId) -> i64 {
        match **self.data(value) {
            Data::Int(ref v) => v[0],
            _ => panic!("{value} is no integer"),
        }
    }

    pub fn bool(&self, value: ValueId) -> bool {
        match **self.data(value) {
            Data::Bool(ref v) => v[0],
            _ => panic!("{value} is no bool"),
        }
    }

    pub fn set(&mut self, value: ValueId, data: Data) {
        self.put(value, Value::Data(Rc::new(data)));
    }

    pub fn put(&mut self, value: ValueId, new: Value) {
        let bytes = |value: &Value| match value {
            Value::Data(data) => data.bytes(),
            _ => 0,
        };
        self.bytes += bytes(&new);
        let old = std::mem::replace(&mut self.values[value], new);
        // What was there from before does not count.
        self.bytes = self.bytes.saturating_sub(bytes(&old));
    }

    /// Takes the work of an operation, and sees whether there is room for its results.
    pub fn take(&mut self, op: &Op<OpKind>) -> Result<(), Fault> {
        let body = self.body;
        let elements = |v: ValueId| -> u64 {
            match body.ty(v) {
                Type::View(_) => 0,
                ty => ty.shape().iter().map(|&d| u64::from(d)).product(),
            }
        };
        let results: u64 = op.results.iter().map(|&v| elements(v)).sum();
        let work = match op.kind {
            OpKind::Dot | OpKind::Role(RoleOp::Mma) => {
                let inner = body.ty(op.operands[0]).shape().last();
                results.saturating_mul(inner.copied().unwrap_or(1).into())
            }
            _ if results == 0 => op.operands.iter().map(|&v| elements(v)).sum(),
            _ => results,
        };
        self.steps += 1;
        if self.steps > self.limits.steps {
            return Err(Fault::Steps);
        }
        self.elements = self.elements.saturating_add(work);
        if self.elements > self.limits.elements {
            return Err(Fault::Elements(self.limits.elements));
        }
        if self.bytes.saturating_add(results.saturating_mul(8)) > self.limits.bytes {
            return Err(Fault::Memory(self.limits.bytes));
        }
        Ok(())
    }

    /// Copies `from` to `to`, all read before the first is written.
    pub fn pass(&mut self, from: &[ValueId], to: &[ValueId]) {
        let values: Vec<Value> = from.iter().map(|&v| self.values[v].clone()).collect();
        for (&to, value) in to.iter().zip(values) {
            self.put(to, value);
        }
    }

    /// What the terminator of `region` yields.
    pub fn yields(&self, region: RegionId) -> &'k [ValueId] {
        let last = self.body.regions[region].ops.last();
        last.map_or(&[], |&op| &self.body.ops[op].operands)
    }

    pub fn region(&mut self, region: RegionId) -> Result<(), Stop> {
        let body = self.body;
        self.run(&body.regions[region].ops)
    }

    /// Runs operations of one region.
    pub fn run(&mut self, ops: &[crate::ir::OpId]) -> Result<(), Stop> {
        let body = self.body;
        for &op in ops {
            self.op(op).map_err(|stop| match stop {
                Inner::Here(fault) => (fault, body.ops[op].span),
                Inner::Nested(stop) => stop,
            })?;
        }
        Ok(())
    }

    /// The optional scalar parameter that one of `operands` is and that was not given.
    pub fn absent(&self, operands: &[ValueId]) -> Option<usize> {
        let unset = |v: &&ValueId| matches!(self.values[**v], Value::Unset);
        let &value = operands.iter().find(unset)?;
        match self.body.ops[self.body.defining_op(value)?].kind {
            OpKind::Param(index) => Some(index as usize),
            _ => None,
        }
    }

    fn op(&mut self, op: crate::ir::OpId) -> Result<(), Inner> {
        let body = self.body;
        let op = &body.ops[op];
        self.take(op)?;
        if let Some(param) = self.absent(&op.operands) {
            return Err(Fault::Absent(param).into());
        }
        let operands = &op.operands;
        let elem = |v: ValueId| body.ty(v).elem();
        let shape = |v: ValueId| body.ty(v).shape();
        let result = match &op.kind {
            OpKind::Constant(constant) => match *constant {
                Constant::Int(value, _) => Data::Int(vec![value]),
                Constant::Float(value, _) => Data::Float(vec![value]),
                Constant::Bool(value) => Data::Bool(vec![value]),
                // What shows where a program does depend on it.
                Constant::Any(ty) if ty.is_float() => Data::Float(vec![f64::NAN]),
                Constant::Any(ty) if ty.is_int() => {
                    Data::Int(vec![wrap(ty, 0xa5a5_a5a5_a5a5_a5a5_u64 as i64)])
                }
                Constant::Any(_) => Data::Bool(vec![true]),
            },
            OpKind::Param(index) => {
                let index = *index as usize;
                self.values[op.results[0]] = match &self.scalars[index] {
                    Some(scalar) => Value::Data(scalar.clone()),
                    None if matches!(body.ty(op.results[0]), Type::View(_)) => Value::View(index),
                    // An optional scalar: whether it is used decides whether that is wrong.
                    None => Value::Unset,
                };
                return Ok(());
            }
            OpKind::Dim(index) => Data::Int(vec![self.dims[*index as usize]]),
            OpKind::GridIndex(index) => Data::Int(vec![self.indices[*index as usize]]),
            OpKind::Unary(unary) => {
                elementwise::unary(*unary, elem(operands[0]), self.data(operands[0]))
            }
            OpKind::Binary(binary) => {
                let (a, b) = (self.data(operands[0]), self.data(operands[1]));
                elementwise::binary(*binary, elem(operands[0]), a, b)
                    .map_err(|_| Fault::DivisionByZero)?
            }
            OpKind::Compare(compare) => {
                let (a, b) = (self.data(operands[0]), self.data(operands[1]));
                elementwise::compare(*compare, elem(operands[0]), a, b)
            }
            OpKind::Fma => {
                let [a, b, c] = [0, 1, 2].map(|i| self.data(operands[i]));
                elementwise::fma(elem(operands[0]), a, b, c)
            }
            OpKind::Select => {
                let [c, a, b] = [0, 1, 2].map(|i| self.data(operands[i]));
                elementwise::select(c, a, b)
            }
            OpKind::Cast => elementwise::cast(
                elem(operands[0]),
                elem(op.results[0]),
                self.data(operands[0]),
            ),
            OpKind::Bitcast => elementwise::bitcast(
                elem(operands[0]),
                elem(op.results[0]),
                self.data(operands[0]),
            ),
            OpKind::Broadcast => {
                let (from, to) = (shape(operands[0]), shape(op.results[0]));
                let mut strides = vec![0; to.len()];
                let lead = to.len() - from.len();
                for (d, stride) in row_major(from).into_iter().enumerate() {
                    if from[d] != 1 {
                        strides[lead + d] = stride;
                    }
                }
                self.data(operands[0]).gather(0, to, &strides)
            }
            OpKind::Reshape => {
                self.pass(&operands[..1], &op.results);
                return Ok(());
            }
            OpKind::Permute(perm) => {
                let from = row_major(shape(operands[0]));
                let strides: Vec<usize> = perm.iter().map(|&p| from[p as usize]).collect();
                self.data(operands[0])
                    .gather(0, shape(op.results[0]), &strides)
            }
            OpKind::Slice(offsets) => {
                let strides = row_major(shape(operands[0]));
                let base = strides.iter().zip(offsets).map(|(s, &o)| s * o as usize);
                self.data(operands[0])
                    .gather(base.sum(), shape(op.results[0]), &strides)
            }
            OpKind::Iota => {
                let count: u32 = shape(op.results[0]).iter().product();
                let elem = elem(op.results[0]);
                Data::Int((0..i64::from(count)).map(|i| wrap(elem, i)).collect())
            }
            OpKind::Reduce { op: reduce, axis } => {
                let shape = shape(operands[0]);
                let extent = |dims: &[u32]| dims.iter().map(|&d| d as usize).product();
                let (axis, inner) = match axis {
                    Some(axis) => {
                        let axis = *axis as usize;
                        (shape[axis] as usize, extent(&shape[axis + 1..]))
                    }
                    None => (extent(shape), 1),
                };
                let result = elem(op.results[0]);
                let data = self.data(operands[0]);
                elementwise::reduce(*reduce, elem(operands[0]), result, data, axis, inner)
            }
            OpKind::Dot => {
                let [a, b, acc] = [0, 1, 2].map(|i| &**self.data(operands[i]));
                let inner = shape(operands[1]);
                let inner = [2, 1].map(|d| inner[inner.len() - d] as usize);
                elementwise::dot(elem(operands[2]), a, b, acc, inner)
            }
            OpKind::ClusterReduce { op: how, .. } => match how {
                // A cluster of one block.
                ClusterOp::Before => {
                    cluster::combine(*how, elem(operands[0]), self.data(operands[0]).len(), &[])?
                }
                _ => (**self.data(operands[0])).clone(),
            },
            OpKind::Scan { op: scan, axis } => {
                let shape = shape(operands[0]);
                let axis = *axis as usize;
                let inner = shape[axis + 1..].iter().map(|&d| d as usize).product();
                let (from, to) = (elem(operands[0]), elem(op.results[0]));
                let data = self.data(operands[0]);
                tiles::scan(*scan, from, to, data, shape[axis] as usize, inner)
            }
            OpKind::Sort { descending } => {
                let row = shape(operands[0]).last().map_or(1, |&n| n as usize);
                let keys = self.data(operands[0]);
                let places = tiles::sorted_places(elem(operands[0]), keys, row, *descending);
                for (&value, &result) in operands.iter().zip(&op.results) {
                    let sorted = self.data(value).pick(&places);
                    self.set(result, sorted);
                }
                return Ok(());
            }
            OpKind::TopK { k } => {
                let row = shape(operands[0]).last().map_or(1, |&n| n as usize);
                let data = self.data(operands[0]);
                let (values, places) = tiles::topk(elem(operands[0]), data, row, *k as usize);
                self.set(op.results[1], places);
                values
            }
            OpKind::Histogram { n } => {
                tiles::histogram(elem(operands[0]), self.data(operands[0]), *n as usize)
            }
            OpKind::Occurrence => tiles::occurrence(self.data(operands[0])),
            OpKind::Take { axis } => {
                let axis = *axis as usize;
                let extent = shape(operands[0])[axis];
                let (x, index) = (self.data(operands[0]), self.data(operands[1]));
                tiles::take(x, index, shape(operands[1]), axis, extent)
            }
            OpKind::Concat { axis } => {
                let (a, b) = (self.data(operands[0]), self.data(operands[1]));
                let shapes = [shape(operands[0]), shape(operands[1])];
                tiles::concat(a, b, shapes, *axis as usize)
            }
            OpKind::Ptx { .. } => {
                self.pass(&operands[operands.len() - 1..], &op.results);
                return Ok(());
            }
            OpKind::Debug { label } => {
                let ty = body.ty(operands[0]);
                let text = self.data(operands[0]).show(ty.elem(), ty.shape());
                // Nobody is there to be told that nobody reads.
                let _ = writeln!(
                    std::io::stderr(),
                    "{label} = {text}, in block {:?}",
                    self.indices
                );
                return Ok(());
            }
            OpKind::Role(kind) => return self.role_op(op, kind),
            OpKind::Atomic {
                op: atomic,
                indices,
            } => self.atomic(*atomic, operands, indices)?,
            OpKind::Arrive { indices } => self.arrive(operands, indices, op.span)?,
            OpKind::ViewBitcast => {
                self.pass(&operands[..1], &op.results);
                return Ok(());
            }
            OpKind::Load { indices, .. } => {
                let (param, window) = self.window(operands, indices, 1)?;
                let pad = self.data(operands[operands.len() - 1]).clone();
                let by = self.order.by(self.block);
                let memory = self.memories[param].as_mut().ok_or(Fault::Absent(param))?;
                memory
                    .load(&window, &pad, by)
                    .map_err(|c| Fault::of_conflict(param, c))?
            }
            OpKind::Store { indices, .. } => {
                let (param, window) = self.window(operands, indices, 1)?;
                let data = self.data(operands[operands.len() - 1]).clone();
                let by = self.order.by(self.block);
                let memory = self.memories[param].as_mut().ok_or(Fault::Absent(param))?;
                memory
                    .store(&window, &data, by)
                    .map_err(|c| Fault::of_conflict(param, c))?;
                return Ok(());
            }
            OpKind::If => {
                let taken = op.regions[usize::from(!self.bool(operands[0]))];
                self.region(taken)?;
                self.pass(self.yields(taken), &op.results);
                return Ok(());
            }
            OpKind::For { rev, .. } => {
                let [lo, hi, step] = [0, 1, 2].map(|i| i128::from(self.int(operands[i])));
                if step <= 0 {
                    return Err(Fault::Step(step as i64).into());
                }
                let region = op.regions[0];
                let args = &body.regions[region].args;
                self.pass(&operands[3..], &args[1..]);
                let trips = ((hi - lo + step - 1) / step).max(0);
                for trip in 0..trips {
                    let trip = if *rev { trips - 1 - trip } else { trip };
                    self.set(args[0], Data::Int(vec![(lo + trip * step) as i64]));
                    self.region(region)?;
                    self.pass(self.yields(region), &args[1..]);
                }
                self.pass(&args[1..], &op.results);
                return Ok(());
            }
            OpKind::While => {
                let [cond, step] = [op.regions[0], op.regions[1]];
                let (cond_args, step_args) = (&body.regions[cond].args, &body.regions[step].args);
                self.pass(operands, cond_args);
                loop {
                    self.region(cond)?;
                    if !self.bool(self.yields(cond)[0]) {
                        break;
                    }
                    self.pass(cond_args, step_args);
                    self.region(step)?;
                    self.pass(self.yields(step), cond_args);
                }
                self.pass(cond_args, &op.results);
                return Ok(());
            }
            OpKind::Yield | OpKind::Return => return Ok(()),
            OpKind::Assert { message } => {
                if !self.bool(operands[0]) {
                    return Err(Fault::Assert(message.clone()).into());
                }
                return Ok(());
            }
        };
        self.set(op.results[0], result);
        Ok(())
    }

    /// The parameter that an access goes to, and the slice; `values` operands follow the indices.
    pub fn window(
        &self,
        operands: &[ValueId],
        indices: &[Index],
        values: usize,
    ) -> Result<(usize, Window), Fault> {
        let view = operands[0];
        let param = match self.values[view] {
            Value::View(param) => param,
            _ => panic!("{view} is no view"),
        };
        let memory = self.memories[param].as_ref().ok_or(Fault::Absent(param))?;
        let starts = operands[1..operands.len() - values].iter().map(|&v| {
            let tile = matches!(self.body.ty(v), Type::Tile(_));
            match &**self.data(v) {
                Data::Int(elements) if tile => Start::Tile(elements),
                Data::Int(elements) => Start::At(elements[0]),
                _ => panic!("{v} is no index"),
            }
        });
        let elem = self.body.ty(view).elem();
        let window = Window::new(&memory.tensor, elem, indices, starts);
        Ok((param, window.map_err(|_| Fault::Misfit(param))?))
    }
}

/// Where a fault is: in the operation at hand, or in one of its regions.
pub(super) enum Inner {
    Here(Fault),
    Nested(Stop),
}

impl From<Fault> for Inner {
    fn from(fault: Fault) -> Inner {
        Inner::Here(fault)
    }
}

impl From<Stop> for Inner {
    fn from(stop: Stop) -> Inner {
        Inner::Nested(stop)
    }
}

/// The value that a scalar parameter of type `dtype` has; `None` for a type that is no scalar's.
pub(super) fn scalar(dtype: DType, value: tesserine_set::ScalarValue) -> Data {
    if dtype.is_float() {
        let value = match value {
            tesserine_set::ScalarValue::Int(value) => super::floats::from_int(dtype, value.into()),
            tesserine_set::ScalarValue::Float(value) => super::floats::round_to(dtype, value),
        };
        Data::Float(vec![value])
    } else if dtype.is_int() && dtype != DType::U1 {
        Data::Int(vec![wrap(dtype, value.as_i64())])
    } else {
        Data::Bool(vec![value.as_i64() != 0])
    }
}
