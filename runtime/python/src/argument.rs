//! A launch's arguments, from what Python passed to what the runtime takes.

use pyo3::{prelude::*, types::PyDict};
use tesserine::{
    Args, DType, ScalarValue, TensorRef,
    set::{ParamKind, Signature},
};

use crate::{
    error, scalar,
    tensor::{Place, Tensor},
};

/// Arguments by name, in the order in which they were passed. What was passed as `None` is left out.
pub struct Arguments {
    list: Vec<(String, Value)>,
}

enum Value {
    Tensor(Tensor),
    Scalar(ScalarValue),
}

/// Where a launch's tensors lie.
pub enum Places<'a> {
    /// All on one device; on 0 if there is no tensor.
    One(usize),
    /// The first argument that no launch can take, and why.
    Unfit { argument: &'a str, reason: String },
}

impl Arguments {
    /// Reads what was passed to the kernel or op `owner`: `mapping`, a dict or none, and `named`.
    pub fn read(
        py: Python<'_>,
        owner: &str,
        signature: &Signature,
        mapping: Option<&Bound<'_, PyDict>>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Arguments> {
        let mut list = Vec::with_capacity(signature.params.len());
        for (name, value) in [mapping, named].into_iter().flatten().flatten() {
            if value.is_none() {
                continue;
            }
            let name: String = name.extract()?;
            let read = read_one(signature, &name, &value).map_err(|reason| {
                let message = format!("`{owner}`: `{name}` {reason}");
                error::argument(py, owner, Some(&name), message)
            })?;
            list.push((name, read));
        }
        Ok(Arguments { list })
    }

    /// The arguments, with nothing known of who owns their memory: for checks.
    pub fn described(&self) -> Args<'_> {
        self.args(|t| TensorRef::described(t.pointer, t.dtype, &t.shape, &t.strides))
    }

    /// The arguments as a launch takes them.
    ///
    /// # Safety
    /// What [`TensorRef::from_raw`] says must hold of every tensor.
    pub unsafe fn borrowed(&self) -> Args<'_> {
        // SAFETY: the caller's promise is the same.
        self.args(|t| unsafe { TensorRef::from_raw(t.pointer, t.dtype, &t.shape, &t.strides) })
    }

    /// The tensors, in the order in which they were passed.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.list.iter().filter_map(|(name, value)| match value {
            Value::Tensor(tensor) => Some((name.as_str(), tensor)),
            Value::Scalar(_) => None,
        })
    }

    /// The arguments with the tensors at other addresses, in the order of [`Arguments::tensors`].
    ///
    /// # Safety
    /// What [`TensorRef::from_raw`] says must hold of every tensor there.
    pub unsafe fn at<'a>(&'a self, addresses: &[u64]) -> Args<'a> {
        let mut addresses = addresses.iter();
        self.args(|t| {
            let address = addresses.next().copied().unwrap_or(t.pointer);
            // SAFETY: the caller's promise is the same.
            unsafe { TensorRef::from_raw(address, t.dtype, &t.shape, &t.strides) }
        })
    }

    fn args<'a>(&'a self, mut tensor: impl FnMut(&'a Tensor) -> TensorRef<'a>) -> Args<'a> {
        self.list
            .iter()
            .fold(Args::new(), |args, (name, value)| match value {
                Value::Tensor(t) => args.tensor(name, tensor(t)),
                Value::Scalar(s) => args.scalar(name, *s),
            })
    }

    /// Where the tensors lie. Empty ones lie anywhere.
    pub fn places(&self) -> Places<'_> {
        let mut found: Option<(usize, &str)> = None;
        for (name, value) in &self.list {
            let Value::Tensor(tensor) = value else {
                continue;
            };
            if tensor.shape.contains(&0) {
                continue;
            }
            let unfit = |reason| Places::Unfit {
                argument: name,
                reason,
            };
            match (&tensor.place, found) {
                (Place::Elsewhere(place), _) => {
                    return unfit(format!("lies on {place}, and kernels run on a CUDA device"));
                }
                (Place::Untold, _) => {
                    return unfit("does not say on which device it lies".to_owned());
                }
                (Place::Cuda(here), Some((there, other))) if *here != there => {
                    return unfit(format!(
                        "lies on cuda:{here}, and `{other}` on cuda:{there}"
                    ));
                }
                (Place::Cuda(here), _) => found = found.or(Some((*here, name))),
            }
        }
        Places::One(found.map_or(0, |(ordinal, _)| ordinal))
    }
}

fn read_one(signature: &Signature, name: &str, value: &Bound<'_, PyAny>) -> Result<Value, String> {
    let Some(index) = signature.param(name) else {
        // The check that follows says that there is no such parameter.
        return Ok(Value::Scalar(ScalarValue::Int(0)));
    };
    match &signature.params[index].kind {
        ParamKind::View(view) => read_tensor(value, view.dtype).map(Value::Tensor),
        ParamKind::Scalar { dtype, .. } => {
            let number = scalar::read(value)?;
            Ok(Value::Scalar(match number {
                // An integer that is passed for a float may be too large for exact conversion, as in Python.
                ScalarValue::Int(value) if dtype.is_float() => ScalarValue::Float(value as f64),
                number => number,
            }))
        }
    }
}

fn read_tensor(value: &Bound<'_, PyAny>, wanted: DType) -> Result<Tensor, String> {
    Tensor::read(value)?.suit(wanted)
}
