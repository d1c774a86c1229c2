//! Tensors: memory of anyone's, and memory that is owned here.

use tesserine_set::DType;

use crate::{
    Error,
    device::{Device, Memory},
};

/// Device memory that someone else keeps alive, with a type and a shape. Any strides, in elements.
#[derive(Clone, Copy, Debug)]
pub struct TensorRef<'a> {
    pub(crate) pointer: u64,
    pub(crate) dtype: DType,
    pub(crate) shape: &'a [i64],
    pub(crate) strides: &'a [i64],
    pub(crate) origin: Origin<'a>,
}

/// Whose memory a tensor is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin<'a> {
    /// Someone promised that it is memory of the device that launches.
    Borrowed,
    /// Of a [`DeviceTensor`].
    Device(&'a Device),
    /// There is none.
    Nowhere,
}

impl<'a> TensorRef<'a> {
    /// Describes memory at `pointer`, an address that the device can read.
    ///
    /// # Safety
    /// Until all launches that take this tensor have finished, every element that shape and strides reach must be
    /// allocated memory of the device that it is launched on, and no one else may use it in a way that conflicts with
    /// what the kernel does to it.
    pub unsafe fn from_raw(
        pointer: u64,
        dtype: DType,
        shape: &'a [i64],
        strides: &'a [i64],
    ) -> TensorRef<'a> {
        TensorRef {
            pointer,
            dtype,
            shape,
            strides,
            origin: Origin::Borrowed,
        }
    }

    /// A tensor of which nothing is there but its description, for [`crate::Kernel::check`]. A launch refuses it.
    pub fn described(
        address: u64,
        dtype: DType,
        shape: &'a [i64],
        strides: &'a [i64],
    ) -> TensorRef<'a> {
        TensorRef {
            pointer: address,
            dtype,
            shape,
            strides,
            origin: Origin::Nowhere,
        }
    }

    pub fn pointer(&self) -> u64 {
        self.pointer
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents.
    pub fn shape(&self) -> &'a [i64] {
        self.shape
    }

    /// Strides, in elements.
    pub fn strides(&self) -> &'a [i64] {
        self.strides
    }
}

impl<'a> From<&'a DeviceTensor> for TensorRef<'a> {
    fn from(tensor: &'a DeviceTensor) -> TensorRef<'a> {
        tensor.view()
    }
}

/// For what is stored to.
impl<'a> From<&'a mut DeviceTensor> for TensorRef<'a> {
    fn from(tensor: &'a mut DeviceTensor) -> TensorRef<'a> {
        tensor.view()
    }
}

/// The strides of a tensor whose elements lie in row-major order without gaps.
pub fn contiguous_strides(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1i64; shape.len()];
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d].saturating_mul(shape[d].max(1));
    }
    strides
}

/// A tensor in device memory of its own, row-major without gaps. Freed when dropped, after all work of the device.
#[derive(Debug)]
pub struct DeviceTensor {
    pub(crate) memory: Memory,
    device: Device,
    dtype: DType,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

/// Bytes of a row-major tensor.
fn byte_size(dtype: DType, shape: &[i64]) -> Result<usize, Error> {
    let fault = |reason| Error::Shape {
        dtype,
        shape: shape.to_vec(),
        reason,
    };
    if shape.iter().any(|&e| e < 0) {
        return Err(fault("no shape: an extent is negative"));
    }
    let bits = shape
        .iter()
        .try_fold(dtype.bits() as usize, |n, &e| n.checked_mul(e as usize));
    let bits = bits.ok_or_else(|| fault("larger than any memory"))?;
    Ok(bits.div_ceil(8))
}

impl DeviceTensor {
    pub(crate) fn new(device: &Device, dtype: DType, shape: &[i64]) -> Result<DeviceTensor, Error> {
        let bytes = byte_size(dtype, shape)?;
        Ok(DeviceTensor {
            memory: Memory::new(device, bytes)?,
            device: device.clone(),
            dtype,
            strides: contiguous_strides(shape),
            shape: shape.to_vec(),
        })
    }

    /// The tensor as a launch takes it.
    pub fn view(&self) -> TensorRef<'_> {
        TensorRef {
            pointer: self.memory.pointer(),
            dtype: self.dtype,
            shape: &self.shape,
            strides: &self.strides,
            origin: Origin::Device(&self.device),
        }
    }

    /// Elements in the order of memory, packed ones from the low bit up. Waits for all work of the device.
    pub fn write(&self, bytes: &[u8]) -> Result<(), Error> {
        if bytes.len() != self.byte_size() {
            return Err(Error::Size {
                dtype: self.dtype,
                shape: self.shape.clone(),
                expected: self.byte_size(),
                given: bytes.len(),
            });
        }
        self.memory.write(bytes)
    }

    /// The elements' bytes. Waits for all work of the device.
    pub fn read(&self) -> Result<Vec<u8>, Error> {
        self.memory.read()
    }

    /// Sets every byte. Waits for all work of the device.
    pub fn fill(&self, byte: u8) -> Result<(), Error> {
        self.memory.fill(byte)
    }

    pub fn device(&self) -> &Device {
        &self.device
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn shape(&self) -> &[i64] {
        &self.shape
    }

    pub fn byte_size(&self) -> usize {
        self.memory.byte_size()
    }
}
