//! Values computed at once: a body that grows while it runs.
//!
//! A test evaluates its statements one after another; what they compute stays, and the next statement's operations go on
//! from there. Nothing here has memory: tensors are values, which are given and taken.

use std::rc::Rc;

use cranelift_entity::{EntitySet, SecondaryMap};
use tesserine_set::DType;

use super::{
    Fault, FaultKind, Limits, Tensor, TensorError,
    tile::Machine,
    value::{Data, Value},
};
use crate::{
    ir::{OpId, ValueId, tile::TileBody},
    span::Span,
};

/// Operations that one launch, or one test by itself, may run: more would take minutes, and a loop that does not end
/// takes them all.
pub const MAX_STEPS: u64 = 200_000_000;

/// What the operations of a body have given so far.
#[derive(Debug)]
pub struct Immediate {
    values: SecondaryMap<ValueId, Value>,
    done: EntitySet<OpId>,
    steps: u64,
}

impl Default for Immediate {
    fn default() -> Immediate {
        Immediate {
            values: SecondaryMap::new(),
            done: EntitySet::new(),
            steps: MAX_STEPS,
        }
    }
}

impl Immediate {
    /// Gives `value` its elements; the operation that defines it does not run.
    pub fn set(&mut self, body: &TileBody, value: ValueId, data: Data) {
        if let Some(op) = body.defining_op(value) {
            self.done.insert(op);
        }
        self.values[value] = Value::Data(Rc::new(data));
    }

    /// The elements of a value that has been computed.
    pub fn get(&self, value: ValueId) -> Option<Rc<Data>> {
        match &self.values[value] {
            Value::Data(data) => Some(data.clone()),
            _ => None,
        }
    }

    /// Runs the operations of the root region that have not run.
    pub fn run(&mut self, body: &TileBody) -> Result<(), (FaultKind, Span)> {
        let root = &body.regions[body.root].ops;
        let fresh: Vec<OpId> = root
            .iter()
            .copied()
            .filter(|op| !self.done.contains(*op))
            .collect();
        if fresh.is_empty() {
            return Ok(());
        }
        let limits = Limits {
            steps: self.steps,
            ..Limits::default()
        };
        let mut machine = Machine::over(body, &[], limits);
        std::mem::swap(&mut machine.values, &mut self.values);
        let result = machine.run(&fresh);
        std::mem::swap(&mut machine.values, &mut self.values);
        self.steps = machine.steps();
        for op in fresh {
            self.done.insert(op);
        }
        result.map_err(|(fault, span)| {
            let kind = match fault {
                Fault::DivisionByZero => FaultKind::DivisionByZero,
                Fault::Step(step) => FaultKind::Step(step),
                Fault::Steps => FaultKind::Steps(MAX_STEPS),
                Fault::Memory(most) => FaultKind::Memory(most),
                Fault::Assert(message) => FaultKind::Assertion(message),
                // Memory is not within reach of what runs here.
                _ => FaultKind::Assertion("this reaches memory outside a kernel".into()),
            };
            (kind, span)
        })
    }
}

impl Tensor {
    /// Row-major, of the elements of a tile. Packed types take what their values are held as: `u1` a `bool`, `u4` and `i4`
    /// integers, of which the low bits count.
    pub fn from_data(dtype: DType, shape: Vec<usize>, data: &Data) -> Result<Tensor, TensorError> {
        let mut tensor = Tensor::zeros(dtype, shape)?;
        let elements = tensor.elements();
        if data.len() < elements {
            return Err(TensorError::TooShort {
                dtype,
                shape: tensor.shape,
                needed: elements,
                bytes: data.len(),
            });
        }
        for i in 0..elements {
            let at = tensor.place(i);
            tensor.set_code(at, data.code(i, dtype));
        }
        Ok(tensor)
    }

    /// The elements, row-major, as values hold them.
    pub fn to_data(&self) -> Data {
        let codes = self.to_codes().into_iter();
        if matches!(self.dtype, DType::U1 | DType::Bool) {
            return Data::Bool(codes.map(|c| c != 0).collect());
        }
        Data::from_codes(self.dtype, codes)
    }
}
