//! A GPU, through the runtime, with kernels from a set.

use tesserine::{Args, DType, Device, DeviceTensor, KernelSet, Stream, TensorRef};

use super::{Backend, Kernels, Refusal};
use crate::{Arg, Tensor};

/// A device and where its kernels come from.
pub struct Cuda {
    device: Device,
    stream: Stream,
    kernels: Kernels,
}

impl Cuda {
    pub fn new(device: Device, kernels: Kernels) -> Result<Cuda, String> {
        Ok(Cuda {
            stream: device.stream().map_err(|e| e.to_string())?,
            device,
            kernels,
        })
    }

    /// The buffer of each tensor, guards included, in device memory.
    fn upload(&self, args: &[(&str, Arg)]) -> Result<Vec<Option<DeviceTensor>>, tesserine::Error> {
        args.iter()
            .map(|(_, arg)| match arg {
                Arg::Scalar(_) => Ok(None),
                Arg::Tensor(t) => {
                    let shape = [t.bytes.len() as i64];
                    self.device.upload(DType::U8, &shape, &t.bytes).map(Some)
                }
            })
            .collect()
    }

    fn launch(
        &self,
        set: &KernelSet,
        instance: &str,
        args: &mut [(&'static str, Arg)],
    ) -> Result<(), tesserine::Error> {
        let kernel = set.kernel(instance)?;
        let buffers = self.upload(args)?;
        let signed = |list: &[usize]| list.iter().map(|&e| e as i64).collect::<Vec<i64>>();
        let shapes: Vec<(Vec<i64>, Vec<i64>)> = args
            .iter()
            .map(|(_, arg)| match arg {
                Arg::Tensor(t) => (signed(&t.shape), signed(&t.strides)),
                Arg::Scalar(_) => Default::default(),
            })
            .collect();
        let mut passed = Args::new();
        for (((name, arg), buffer), (shape, strides)) in args.iter().zip(&buffers).zip(&shapes) {
            passed = match (arg, buffer) {
                (Arg::Tensor(t), Some(buffer)) => {
                    let address = buffer.view().pointer() + (t.offset * t.size()) as u64;
                    // SAFETY: a tensor lies within its buffer, guards on both sides; the buffer lives until it has been
                    // read back, which waits for the launch.
                    let view = unsafe { TensorRef::from_raw(address, t.dtype, shape, strides) };
                    passed.tensor(name, view)
                }
                (Arg::Scalar(value), _) => passed.float(name, *value),
                (Arg::Tensor(_), None) => unreachable!("each tensor has a buffer"),
            };
        }
        kernel.launch(&self.stream, &passed)?;
        self.stream.synchronize()?;
        for ((_, arg), buffer) in args.iter_mut().zip(&buffers) {
            if let (Arg::Tensor(Tensor { bytes, .. }), Some(buffer)) = (arg, buffer) {
                *bytes = buffer.read()?;
            }
        }
        Ok(())
    }
}

impl Backend for Cuda {
    fn name(&self) -> String {
        format!("{} ({})", self.device, self.device.info().name)
    }

    fn run(
        &mut self,
        source: &str,
        instance: &str,
        args: &mut [(&'static str, Arg)],
    ) -> Result<(), Refusal> {
        let set = self.kernels.with(source, instance)?;
        self.launch(&set, instance, args)
            .map_err(|e| Refusal::Failed(e.to_string()))
    }
}
