//! Tensors, and how slices of views read and write them.
//!
//! Invariants: every element that shape and strides reach lies in the data; an access outside the view reads the pad
//! and stores nothing, whatever the indices are; of an output every element knows which block stored it.

use std::collections::HashMap;

use tesserine_set::{Access, DType};

use super::{floats, order::By, value::Data, window::Window};

/// An n-d array in memory, with what has been stored to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub dtype: DType,
    pub shape: Vec<usize>,
    /// In elements, one a dimension.
    pub strides: Vec<usize>,
    /// Packed types from the low bits of each byte up, all others little-endian.
    pub data: Vec<u8>,
    /// For each element, row-major, whether a kernel has stored to it; `None` if nobody asks. A launch asks for its `out`
    /// views.
    pub written: Option<Vec<bool>>,
}

/// Why bytes, shape and strides make no tensor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    #[error("{shape} dimensions and {strides} strides")]
    Strides { shape: usize, strides: usize },
    #[error("shape {shape:?} of {dtype} needs {needed} bytes, and there are {bytes}")]
    TooShort {
        dtype: DType,
        shape: Vec<usize>,
        needed: usize,
        bytes: usize,
    },
    #[error("shape {shape:?} of {dtype} is too large")]
    TooLarge { dtype: DType, shape: Vec<usize> },
}

impl Tensor {
    /// Row-major, of `data`. Rows of packed elements begin at bytes.
    pub fn from_bytes(
        dtype: DType,
        shape: Vec<usize>,
        data: Vec<u8>,
    ) -> Result<Tensor, TensorError> {
        let strides = contiguous(dtype, &shape)?;
        Tensor::strided(dtype, shape, strides, data)
    }

    /// With strides in elements. Elements may share memory, but not in what is stored to.
    pub fn strided(
        dtype: DType,
        shape: Vec<usize>,
        strides: Vec<usize>,
        data: Vec<u8>,
    ) -> Result<Tensor, TensorError> {
        if shape.len() != strides.len() {
            return Err(TensorError::Strides {
                shape: shape.len(),
                strides: strides.len(),
            });
        }
        // Also finds a number of elements that does not fit.
        contiguous(dtype, &shape)?;
        let too_large = || TensorError::TooLarge {
            dtype,
            shape: shape.clone(),
        };
        let mut elements = usize::from(!shape.contains(&0));
        if elements != 0 {
            for (&extent, &stride) in shape.iter().zip(&strides) {
                let reach = (extent - 1).checked_mul(stride).ok_or_else(too_large)?;
                elements = elements.checked_add(reach).ok_or_else(too_large)?;
            }
        }
        let bits = elements
            .checked_mul(dtype.bits() as usize)
            .ok_or_else(too_large)?;
        let needed = bits.div_ceil(8);
        if data.len() < needed {
            return Err(TensorError::TooShort {
                dtype,
                shape,
                needed,
                bytes: data.len(),
            });
        }
        Ok(Tensor {
            dtype,
            shape,
            strides,
            data,
            written: None,
        })
    }

    /// Row-major, all bits 0. Rows of packed elements begin at bytes.
    pub fn zeros(dtype: DType, shape: Vec<usize>) -> Result<Tensor, TensorError> {
        let strides = contiguous(dtype, &shape)?;
        let elements = match shape.first() {
            _ if shape.contains(&0) => 0,
            Some(&rows) if rows > 1 => rows * strides[0],
            _ => reach(&shape, &strides),
        };
        let bytes = (elements * dtype.bits() as usize).div_ceil(8);
        Tensor::strided(dtype, shape, strides, vec![0; bytes])
    }

    /// Row-major, of floats (rounded to `dtype`), integers (wrapped) or bools (other than 0), as `dtype` is.
    pub fn from_f64(
        dtype: DType,
        shape: Vec<usize>,
        values: &[f64],
    ) -> Result<Tensor, TensorError> {
        let mut tensor = Tensor::zeros(dtype, shape)?;
        let elements = tensor.elements();
        if values.len() < elements {
            return Err(TensorError::TooShort {
                dtype,
                shape: tensor.shape,
                needed: elements,
                bytes: values.len(),
            });
        }
        for (i, &value) in values[..elements].iter().enumerate() {
            let code = if dtype.is_float() {
                floats::encode(dtype, value)
            } else if dtype.is_int() && dtype != DType::U1 {
                floats::to_int(DType::I64, value) as u64
            } else {
                u64::from(value != 0.0)
            };
            let at = tensor.place(i);
            tensor.set_code(at, code);
        }
        Ok(tensor)
    }

    /// All elements, row-major, as floats; integers of 64 bits are rounded.
    pub fn to_f64(&self) -> Vec<f64> {
        let value = |code: u64| {
            if self.dtype.is_float() {
                floats::decode(self.dtype, code)
            } else if self.dtype == DType::U64 {
                code as f64
            } else if self.dtype.is_int() {
                floats::wrap(self.dtype, code as i64) as f64
            } else {
                f64::from(code != 0)
            }
        };
        self.offsets().map(|at| value(self.code(at))).collect()
    }

    /// All elements, row-major, as codes of their type: the bits that memory holds.
    pub fn to_codes(&self) -> Vec<u64> {
        self.offsets().map(|at| self.code(at)).collect()
    }

    /// How many elements the shape has.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Where element `i`, row-major, of a tensor made here lies.
    pub(super) fn place(&self, i: usize) -> usize {
        match (self.dtype.is_packed(), &self.shape[..]) {
            (true, [_, .., last]) => {
                let row = last.next_multiple_of(8 / self.dtype.bits() as usize);
                i / last * row + i % last
            }
            _ => i,
        }
    }

    /// Where each element lies, row-major, in elements.
    fn offsets(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.elements()).map(|mut i| {
            let mut at = 0;
            for (&extent, &stride) in self.shape.iter().zip(&self.strides).rev() {
                at += i % extent * stride;
                i /= extent;
            }
            at
        })
    }

    /// The bits of the element at `at`.
    fn code(&self, at: usize) -> u64 {
        self.code_as(self.dtype, at)
    }

    /// The bits at element `at` of the memory as one of `dtype`.
    fn code_as(&self, dtype: DType, at: usize) -> u64 {
        match dtype.bits() {
            64 => u64::from_le_bytes(self.bytes(at)),
            32 => u32::from_le_bytes(self.bytes(at)).into(),
            16 => u16::from_le_bytes(self.bytes(at)).into(),
            8 => self.data[at].into(),
            bits => {
                let bit = at * bits as usize;
                u64::from(self.data[bit / 8] >> (bit % 8)) & ((1 << bits) - 1)
            }
        }
    }

    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.data[at * N..(at + 1) * N]);
        bytes
    }

    pub(super) fn set_code(&mut self, at: usize, code: u64) {
        self.set_code_as(self.dtype, at, code);
    }

    fn set_code_as(&mut self, dtype: DType, at: usize, code: u64) {
        let bits = dtype.bits() as usize;
        if bits >= 8 {
            let n = bits / 8;
            self.data[at * n..(at + 1) * n].copy_from_slice(&code.to_le_bytes()[..n]);
        } else {
            let bit = at * bits;
            let mask = ((1u8 << bits) - 1) << (bit % 8);
            let byte = &mut self.data[bit / 8];
            *byte = *byte & !mask | (code as u8) << (bit % 8) & mask;
        }
    }

    pub(super) fn read(
        &self,
        dtype: DType,
        at: usize,
        stride: usize,
        count: usize,
        out: &mut Row<'_>,
    ) {
        let places = (0..count).map(|i| at + i * stride);
        match out {
            Row::Float(out) => match dtype {
                DType::F32 | DType::Tf32 => places.zip(out.iter_mut()).for_each(|(at, x)| {
                    *x = f32::from_le_bytes(self.bytes(at)).into();
                }),
                DType::Bf16 => places.zip(out.iter_mut()).for_each(|(at, x)| {
                    let bits = u32::from(u16::from_le_bytes(self.bytes(at))) << 16;
                    *x = f32::from_bits(bits).into();
                }),
                dtype => places.zip(out.iter_mut()).for_each(|(at, x)| {
                    *x = floats::decode(dtype, self.code_as(dtype, at));
                }),
            },
            Row::Int(out) => places.zip(out.iter_mut()).for_each(|(at, x)| {
                *x = floats::wrap(dtype, self.code_as(dtype, at) as i64);
            }),
            Row::Bool(out) => places.zip(out.iter_mut()).for_each(|(at, x)| {
                *x = self.code_as(dtype, at) != 0;
            }),
        }
    }

    pub(super) fn write(
        &mut self,
        dtype: DType,
        (at, stride): (usize, usize),
        values: &Data,
        from: usize,
        count: usize,
    ) {
        match (dtype, values) {
            (DType::F32 | DType::Tf32, Data::Float(values)) => {
                for (i, &x) in values[from..from + count].iter().enumerate() {
                    let at = (at + i * stride) * 4;
                    self.data[at..at + 4].copy_from_slice(&(x as f32).to_le_bytes());
                }
            }
            (DType::Bf16, Data::Float(values)) => {
                for (i, &x) in values[from..from + count].iter().enumerate() {
                    let at = (at + i * stride) * 2;
                    // The value is one of bf16, so that its f32 ends in zeros.
                    let code = ((x as f32).to_bits() >> 16) as u16;
                    self.data[at..at + 2].copy_from_slice(&code.to_le_bytes());
                }
            }
            _ => {
                for i in 0..count {
                    self.set_code_as(dtype, at + i * stride, values.code(from + i, dtype));
                }
            }
        }
    }
}

/// From the first element past the last one.
fn reach(shape: &[usize], strides: &[usize]) -> usize {
    let last = shape.iter().zip(strides).map(|(&d, &s)| (d - 1) * s);
    last.sum::<usize>() + 1
}

/// Row-major strides, if the number of bits fits. Rows of packed elements begin at bytes.
fn contiguous(dtype: DType, shape: &[usize]) -> Result<Vec<usize>, TensorError> {
    let mut strides = vec![1usize; shape.len()];
    let mut elements = 1usize;
    for (d, &extent) in shape.iter().enumerate().rev() {
        strides[d] = elements;
        let row = match dtype.is_packed() && d + 1 == shape.len() && d > 0 {
            true => extent.next_multiple_of(8 / dtype.bits() as usize),
            false => extent,
        };
        elements = elements
            .checked_mul(row.max(1))
            .filter(|&n| n <= isize::MAX as usize / 64)
            .ok_or_else(|| TensorError::TooLarge {
                dtype,
                shape: shape.to_vec(),
            })?;
    }
    Ok(strides)
}

/// Part of a row of elements that is being read.
pub(super) enum Row<'a> {
    Float(&'a mut [f64]),
    Int(&'a mut [i64]),
    Bool(&'a mut [bool]),
}

/// An element whose value no order defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Conflict {
    /// Its number in the parameter, row-major.
    pub element: usize,
    /// One access stores to it twice; else two blocks use it.
    pub twice: bool,
}

/// A tensor while a kernel runs, with the stamp of who touched each element; 0 for nobody.
pub(super) struct Memory {
    pub tensor: Tensor,
    pub(super) writers: Vec<u32>,
    /// [`MANY`] for several blocks that know nothing of each other. Only for views that are both read and stored to.
    pub(super) readers: Vec<u32>,
    /// Who combined into an element by atomic operations.
    pub(super) combined: HashMap<usize, Vec<u32>>,
}

/// Whether some block combined into an element that `by` does not know of.
fn unseen(combined: &HashMap<usize, Vec<u32>>, element: usize, by: By<'_>) -> bool {
    let known = |stamps: &Vec<u32>| stamps.iter().all(|&s| by.sees(s));
    !combined.is_empty() && combined.get(&element).is_some_and(|s| !known(s))
}

pub(super) const MANY: u32 = u32::MAX;

impl Memory {
    pub fn new(tensor: Tensor, access: Access) -> Memory {
        let tracked = |on: bool| vec![0; if on { tensor.elements() } else { 0 }];
        Memory {
            writers: tracked(access != Access::Read),
            readers: tracked(access == Access::ReadWrite),
            combined: HashMap::new(),
            tensor,
        }
    }

    /// Reads a slice. `pad`: the one element that everything outside reads as.
    pub fn load(&mut self, window: &Window, pad: &Data, by: By<'_>) -> Result<Data, Conflict> {
        let mut data = pad.splat(window.elements());
        let mut conflict = None;
        let Memory {
            tensor,
            writers,
            readers,
            combined,
        } = self;
        window.runs(|run| {
            let range = run.tile..run.tile + run.count;
            let mut row = match &mut data {
                Data::Float(v) => Row::Float(&mut v[range]),
                Data::Int(v) => Row::Int(&mut v[range]),
                Data::Bool(v) => Row::Bool(&mut v[range]),
            };
            tensor.read(window.dtype, run.at, run.stride, run.count, &mut row);
            if readers.is_empty() {
                return;
            }
            window.elements_of(run, |element| {
                if !by.sees(writers[element]) || unseen(combined, element, by) {
                    conflict.get_or_insert(Conflict {
                        element,
                        twice: false,
                    });
                }
                let reader = &mut readers[element];
                *reader = if by.sees(*reader) { by.stamp } else { MANY };
            });
        });
        conflict.map_or(Ok(data), Err)
    }

    /// Writes a slice.
    pub fn store(&mut self, window: &Window, values: &Data, by: By<'_>) -> Result<(), Conflict> {
        let mut conflict = window.twice().map(|element| Conflict {
            element,
            twice: true,
        });
        let Memory {
            tensor,
            writers,
            readers,
            combined,
        } = self;
        window.runs(|run| {
            tensor.write(
                window.dtype,
                (run.at, run.stride),
                values,
                run.tile,
                run.count,
            );
            window.elements_of(run, |element| {
                let read = readers.get(element).is_some_and(|&r| !by.sees(r));
                if !by.sees(writers[element]) || read || unseen(combined, element, by) {
                    conflict.get_or_insert(Conflict {
                        element,
                        twice: false,
                    });
                }
                writers[element] = by.stamp;
            });
        });
        conflict.map_or(Ok(()), Err)
    }

    /// The tensor, whose `written` now also counts what was stored here.
    pub fn finish(mut self) -> Tensor {
        if let Some(written) = &mut self.tensor.written {
            for (written, &writer) in written.iter_mut().zip(&self.writers) {
                *written |= writer != 0;
            }
        }
        self.tensor
    }
}
