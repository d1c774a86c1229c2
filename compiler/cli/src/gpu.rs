//! `tess run` on a device: a kernel or op of a set, once.

use tesserine::{Args, Device, Kernel, KernelSet, Op, Stream, Workspace};
use tesserine_set::{Access, Signature};

use crate::{arguments::Argument, failure::Failure, tensor::HostTensor};

/// What outputs are filled with before the first and the second launch.
pub const CANARIES: [u8; 2] = [0xA5, 0x5A];

/// What a kernel left.
#[derive(Debug)]
pub struct Left {
    /// In the order of the parameters: what the kernel writes.
    pub outputs: Vec<Written>,
    /// Whose code ran.
    pub target: String,
}

/// A tensor after the run.
#[derive(Debug)]
pub struct Written {
    pub name: String,
    pub tensor: HostTensor,
    /// Elements that the kernel did not write; of a `mut view` that is no error, so they are not counted.
    pub unwritten: usize,
}

/// What is run.
pub enum Code {
    Kernel(Kernel),
    Op(Op),
}

impl Code {
    /// The kernel or op of that name.
    pub fn find(set: &KernelSet, name: &str) -> Result<Code, Failure> {
        if set.has_op(name) {
            return Ok(Code::Op(set.op(name).map_err(failed)?));
        }
        Ok(Code::Kernel(set.kernel(name).map_err(failed)?))
    }

    pub fn signature(&self) -> &Signature {
        match self {
            Code::Kernel(kernel) => &kernel.instance().signature,
            Code::Op(op) => &op.record().signature,
        }
    }

    /// Whether what it leaves depends on the order of blocks.
    pub fn is_unordered(&self) -> bool {
        match self {
            Code::Kernel(kernel) => kernel.instance().unordered,
            Code::Op(op) => op.kernels().iter().any(|k| k.instance().unordered),
        }
    }

    /// Runs it and waits; whose code it was.
    pub fn run(
        &self,
        device: &Device,
        stream: &Stream,
        args: &Args<'_>,
        target: Option<&str>,
    ) -> Result<String, tesserine::Error> {
        match self {
            Code::Kernel(kernel) => {
                let launch = kernel.launch_for(stream, args, target)?;
                stream.synchronize()?;
                Ok(launch.target.to_string())
            }
            Code::Op(op) => {
                let workspace = Workspace::new(device, op.workspace_for(args)?)?;
                let launches = op.run_for(stream, args, &workspace, target)?;
                stream.synchronize()?;
                let mut targets: Vec<String> =
                    launches.iter().map(|l| l.target.to_string()).collect();
                targets.dedup();
                Ok(match targets.is_empty() {
                    true => target.unwrap_or("no launch").to_owned(),
                    false => targets.join(", "),
                })
            }
        }
    }
}

/// The errors of the runtime are sentences that name the argument.
pub fn failed(error: tesserine::Error) -> Failure {
    Failure::Failed(error.to_string())
}

/// Runs `code`. Elements that still hold the canary are looked at in a second launch with another one: what holds both
/// was not written.
pub fn launch(
    device: &Device,
    code: &Code,
    target: Option<&str>,
    arguments: &[Option<Argument>],
) -> Result<Left, Failure> {
    let mut left = launch_once(device, code, target, arguments, CANARIES[0])?;
    let suspects: Vec<Vec<usize>> = left
        .outputs
        .iter()
        .map(|(written, access)| match access {
            Access::Write => holding(&written.tensor, CANARIES[0]),
            Access::Read | Access::ReadWrite => Vec::new(),
        })
        .collect();
    if suspects.iter().any(|list| !list.is_empty()) {
        let second = launch_once(device, code, target, arguments, CANARIES[1])?;
        for ((list, first), second) in suspects.iter().zip(&mut left.outputs).zip(&second.outputs) {
            first.0.unwritten = list
                .iter()
                .filter(|&&index| holds(&second.0.tensor, index, CANARIES[1]))
                .count();
        }
    }
    Ok(Left {
        outputs: left
            .outputs
            .into_iter()
            .map(|(written, _)| written)
            .collect(),
        target: left.target,
    })
}

struct Once {
    outputs: Vec<(Written, Access)>,
    target: String,
}

fn launch_once(
    device: &Device,
    code: &Code,
    target: Option<&str>,
    arguments: &[Option<Argument>],
    canary: u8,
) -> Result<Once, Failure> {
    let params = &code.signature().params;
    let mut memory = Vec::new();
    for argument in arguments {
        memory.push(match argument {
            Some(Argument::Tensor { tensor, access }) => {
                let allocated = device.alloc(tensor.dtype, &tensor.shape).map_err(failed)?;
                match access {
                    Access::Write => allocated.fill(canary).map_err(failed)?,
                    Access::Read | Access::ReadWrite => {
                        allocated.write(&tensor.data).map_err(failed)?
                    }
                }
                Some(allocated)
            }
            _ => None,
        });
    }
    let mut args = Args::new();
    for ((param, argument), memory) in params.iter().zip(arguments).zip(&memory) {
        args = match (argument, memory) {
            (Some(Argument::Scalar(value)), _) => args.scalar(&param.name, *value),
            (Some(Argument::Tensor { .. }), Some(memory)) => {
                args.tensor(&param.name, memory.view())
            }
            _ => args,
        };
    }
    let stream = device.default_stream();
    let target = code.run(device, &stream, &args, target).map_err(failed)?;
    let mut outputs = Vec::new();
    for ((param, argument), memory) in params.iter().zip(arguments).zip(&memory) {
        if let (Some(Argument::Tensor { tensor, access }), Some(memory)) = (argument, memory)
            && *access != Access::Read
        {
            outputs.push((
                Written {
                    name: param.name.clone(),
                    tensor: HostTensor {
                        dtype: tensor.dtype,
                        shape: tensor.shape.clone(),
                        data: memory.read().map_err(failed)?,
                    },
                    unwritten: 0,
                },
                *access,
            ));
        }
    }
    Ok(Once { outputs, target })
}

/// Whether element `index` is what a memory of `canary` bytes holds.
fn holds(tensor: &HostTensor, index: usize, canary: u8) -> bool {
    let width = tensor.dtype.bits();
    let word = u64::from_le_bytes([canary; 8]);
    if width >= 8 {
        return tensor.bits(index) == word & (u64::MAX >> (64 - width));
    }
    let shift = index as u32 % (8 / width) * width;
    tensor.bits(index) == u64::from(canary >> shift) & ((1 << width) - 1)
}

fn holding(tensor: &HostTensor, canary: u8) -> Vec<usize> {
    (0..tensor.len())
        .filter(|&index| holds(tensor, index, canary))
        .collect()
}

#[cfg(test)]
mod tests {
    use tesserine_set::DType;

    use super::*;

    #[test]
    fn canaries_are_seen_in_every_width() {
        for dtype in DType::ALL {
            let mut tensor = HostTensor::filled(dtype, &[16], CANARIES[0]).unwrap();
            assert_eq!(holding(&tensor, CANARIES[0]).len(), 16, "{dtype}");
            tensor.data[0] = !CANARIES[0];
            let per_byte = (8 / dtype.bits().min(8)) as usize;
            assert_eq!(
                holding(&tensor, CANARIES[0]).len(),
                16 - per_byte,
                "{dtype}"
            );
        }
    }
}
