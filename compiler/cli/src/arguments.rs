//! `--arg` and `--out` against a kernel's signature.

use tesserine_set::{Access, DType, ParamKind, ScalarValue, Signature};

use crate::{
    args::Run,
    failure::Failure,
    tensor::{self, HostTensor, Shape, Value},
};

/// What the command line passes, by parameter; still without a signature.
#[derive(Debug)]
pub struct Given {
    args: Vec<(String, Value)>,
    outs: Vec<(String, Shape)>,
}

/// What is passed for one parameter.
#[derive(Clone, Debug)]
pub enum Argument {
    Tensor { tensor: HostTensor, access: Access },
    Scalar(ScalarValue),
}

impl Given {
    /// Reads the options; each parameter may be named once.
    pub fn parse(args: &Run) -> Result<Given, Failure> {
        let mut given = Given {
            args: Vec::new(),
            outs: Vec::new(),
        };
        let mut names: Vec<String> = Vec::new();
        let mut once = |name: &str| {
            if names.iter().any(|n| n == name) {
                return Err(Failure::Usage(format!("`{name}` is given twice")));
            }
            names.push(name.to_owned());
            Ok(())
        };
        for text in &args.args {
            let (name, value) = tensor::split_name(text)
                .map_err(|reason| Failure::Usage(format!("--arg: {reason}")))?;
            once(name)?;
            let value = tensor::parse_value(value)
                .map_err(|reason| Failure::Usage(format!("--arg {name}: {reason}")))?;
            given.args.push((name.to_owned(), value));
        }
        for text in &args.outs {
            let (name, shape) = tensor::split_name(text)
                .map_err(|reason| Failure::Usage(format!("--out: {reason}")))?;
            once(name)?;
            let shape = tensor::parse_shape(shape)
                .map_err(|reason| Failure::Usage(format!("--out {name}: {reason}")))?;
            given.outs.push((name.to_owned(), shape));
        }
        Ok(given)
    }

    /// The arguments in the order of the parameters; `None` for those left out, of which a launch says whether it may be so.
    /// What the kernel only writes is filled with `canary`.
    pub fn bind(
        &self,
        signature: &Signature,
        kernel: &str,
        canary: u8,
    ) -> Result<Vec<Option<Argument>>, Failure> {
        let named = self.args.iter().map(|(name, _)| name);
        for name in named.chain(self.outs.iter().map(|(name, _)| name)) {
            if signature.param(name).is_none() {
                let known: Vec<String> = signature
                    .params
                    .iter()
                    .map(|p| format!("`{}`", p.name))
                    .collect();
                return Err(Failure::Usage(format!(
                    "`{kernel}` has no parameter `{name}`; it has {}",
                    known.join(", ")
                )));
            }
        }
        let mut bound = Vec::with_capacity(signature.params.len());
        for param in &signature.params {
            let name = &param.name;
            let arg = self.args.iter().find(|(n, _)| n == name).map(|(_, v)| v);
            let out = self.outs.iter().find(|(n, _)| n == name).map(|(_, s)| s);
            bound.push(match (&param.kind, arg, out) {
                (ParamKind::View(view), Some(_), _) if view.access == Access::Write => {
                    return Err(Failure::Usage(format!(
                        "`{name}` is written only: give its shape, as in `--out {name}={}[256,64]`",
                        view.dtype
                    )));
                }
                (ParamKind::View(view), Some(value), _) => Some(Argument::Tensor {
                    tensor: tensor::make(name, view.dtype, value)?,
                    access: view.access,
                }),
                (ParamKind::View(view), None, Some(shape)) if view.access == Access::Write => {
                    let tensor = HostTensor::filled(shape.dtype, &shape.dims, canary)
                        .map_err(|reason| Failure::Failed(format!("`{name}`: {reason}")))?;
                    Some(Argument::Tensor {
                        tensor,
                        access: view.access,
                    })
                }
                (_, None, Some(_)) => {
                    return Err(Failure::Usage(format!(
                        "`{name}` is not a view that the kernel only writes: pass it with --arg"
                    )));
                }
                (ParamKind::Scalar { dtype, .. }, Some(value), _) => {
                    Some(Argument::Scalar(scalar(name, *dtype, value)?))
                }
                (_, None, None) => None,
            });
        }
        Ok(bound)
    }
}

fn scalar(name: &str, dtype: DType, value: &Value) -> Result<ScalarValue, Failure> {
    match value {
        Value::Int(value) => Ok(ScalarValue::Int(*value)),
        Value::Float(value) if dtype.is_float() => Ok(ScalarValue::Float(*value)),
        Value::Float(value) => Err(Failure::Usage(format!(
            "`{name}` is a scalar of {dtype}, and {value} is no integer"
        ))),
        Value::Generated { .. } | Value::File(_) => Err(Failure::Usage(format!(
            "`{name}` is a scalar of {dtype}: pass a number, as in `--arg {name}={}`",
            if dtype.is_float() { "0.5" } else { "1" }
        ))),
    }
}
