//! What blocks do to memory that they share: arrivals and atomic operations.
//!
//! Blocks come in the order in which they run; the old values that atomic operations give follow it.

use super::{
    Fault, elementwise,
    memory::{Conflict, MANY, Memory, Row},
    order::By,
    tile::Machine,
    value::Data,
    window::Window,
};
use crate::{
    ir::{
        ValueId,
        tile::{AtomicOp, BinaryOp, Index},
    },
    span::Span,
};

impl Machine<'_> {
    /// Counts this block in; whether it is the last of those that the counter is for.
    pub(super) fn arrive(
        &mut self,
        operands: &[ValueId],
        indices: &[Index],
        span: Span,
    ) -> Result<Data, Fault> {
        let (param, window) = self.window(operands, indices, 1)?;
        let n = self.int(operands[operands.len() - 1]);
        let block = self.block;
        let memory = self.memories[param].as_mut().ok_or(Fault::Absent(param))?;
        let mut place = None;
        window.runs(|run| {
            window.elements_of(run, |element| place = Some((run.at, element)));
        });
        // Outside of the view nobody is counted.
        let Some((at, element)) = place else {
            return Ok(Data::Bool(vec![false]));
        };
        let by = self.order.by(block);
        if !by.sees(memory.writers[element]) || !by.sees(memory.readers[element]) {
            return Err(Fault::Race(param, element));
        }
        let count = memory.one(&window, at);
        let Data::Int(count) = count else {
            return Err(Fault::Absent(param));
        };
        let count = count[0] + 1;
        let last = count == n;
        let left = Data::Int(vec![if last { 0 } else { count }]);
        memory.put(&window, at, &left);
        if !self.order.arrive((param, element), (block, span), last) {
            return Err(Fault::Count(param, element, true));
        }
        Ok(Data::Bool(vec![last]))
    }

    /// Combines into each element of a slice; gives what was there, 0 outside.
    pub(super) fn atomic(
        &mut self,
        op: AtomicOp,
        operands: &[ValueId],
        indices: &[Index],
    ) -> Result<Data, Fault> {
        let values = if op == AtomicOp::Cas { 2 } else { 1 };
        let (param, window) = self.window(operands, indices, values)?;
        let x = self.data(operands[operands.len() - 1]).clone();
        let expected = (values == 2).then(|| self.data(operands[operands.len() - 2]).clone());
        let by = self.order.by(self.block);
        let memory = self.memories[param].as_mut().ok_or(Fault::Absent(param))?;
        memory
            .combine(&window, op, (&x, expected.as_deref()), by)
            .map_err(|c| Fault::of_conflict(param, c))
    }
}

impl Memory {
    /// The element at `at`.
    fn one(&self, window: &Window, at: usize) -> Data {
        let dtype = window.dtype;
        if dtype.is_float() {
            let mut x = [0.0];
            self.tensor.read(dtype, at, 1, 1, &mut Row::Float(&mut x));
            Data::Float(x.to_vec())
        } else {
            let mut x = [0];
            self.tensor.read(dtype, at, 1, 1, &mut Row::Int(&mut x));
            Data::Int(x.to_vec())
        }
    }

    fn put(&mut self, window: &Window, at: usize, value: &Data) {
        self.tensor.write(window.dtype, (at, 1), value, 0, 1);
    }

    fn combine(
        &mut self,
        window: &Window,
        op: AtomicOp,
        (x, expected): (&Data, Option<&Data>),
        by: By<'_>,
    ) -> Result<Data, Conflict> {
        let zero = if window.dtype.is_float() {
            Data::Float(vec![0.0])
        } else {
            Data::Int(vec![0])
        };
        let mut old = zero.splat(window.elements());
        let mut places = Vec::new();
        let mut conflict = None;
        window.runs(|run| {
            places.extend((0..run.count).map(|i| (run.tile + i, run.at + i * run.stride)));
            window.elements_of(run, |element| {
                let read = self.readers.get(element).is_some_and(|&r| !by.sees(r));
                if !by.sees(self.writers[element]) || read {
                    conflict.get_or_insert(Conflict {
                        element,
                        twice: false,
                    });
                }
                let stamps = self.combined.entry(element).or_default();
                if stamps.last() != Some(&by.stamp) {
                    stamps.push(by.stamp);
                }
                debug_assert_ne!(by.stamp, MANY);
            });
        });
        for (i, at) in places {
            let was = self.one(window, at);
            let new = x.gather(i, &[], &[]);
            let binary = match op {
                AtomicOp::Add => BinaryOp::Add,
                AtomicOp::Max => BinaryOp::Max,
                AtomicOp::Min => BinaryOp::Min,
                AtomicOp::And => BinaryOp::And,
                AtomicOp::Or => BinaryOp::Or,
                AtomicOp::Xor => BinaryOp::Xor,
                AtomicOp::Cas => {
                    if expected.is_none_or(|e| e.gather(i, &[], &[]) == was) {
                        self.put(window, at, &new);
                    }
                    old.set(i, &was);
                    continue;
                }
            };
            // None of these divides.
            if let Ok(new) = elementwise::binary(binary, window.dtype, &was, &new) {
                self.put(window, at, &new);
            }
            old.set(i, &was);
        }
        conflict.map_or(Ok(old), Err)
    }
}
