//! Tensors on the host, and how the command line says what is in them.
//!
//! ```text
//! randn:bf16[256,128]       normal numbers, mean 0 and variance 1
//! uniform:f32[64]@7         floats in [0, 1), integers in 0..100 (or what the type holds), bools; with seed 7
//! zeros:i32[8]              arange:f16[4,4]: 0, 1, 2, … in memory order
//! @file.npy                 an array from a file
//! 0.5   1e-6   -3   inf     a scalar
//! ```
//!
//! Without a seed, each parameter's numbers come from its name, so that two tensors of one launch differ; with a seed, from it alone.

use std::path::{Path, PathBuf};

use rayon::prelude::*;
use tesserine_compiler::interp::floats;
use tesserine_set::DType;

use crate::{failure::Failure, npy, philox::Stream};

/// A tensor without gaps in host memory; elements of less than a byte are packed from the low bits up.
#[derive(Clone, Debug, PartialEq)]
pub struct HostTensor {
    pub dtype: DType,
    pub shape: Vec<i64>,
    pub data: Vec<u8>,
}

impl HostTensor {
    /// Bytes that a tensor takes, or why there can be none of this size.
    pub fn bytes(dtype: DType, shape: &[i64]) -> Result<usize, String> {
        let written = || {
            let dims: Vec<String> = shape.iter().map(i64::to_string).collect();
            format!("{dtype}[{}]", dims.join(","))
        };
        let elements = shape
            .iter()
            .try_fold(1u64, |n, &dim| n.checked_mul(u64::try_from(dim).ok()?));
        let bits = elements.and_then(|n| n.checked_mul(u64::from(dtype.bits())));
        match bits {
            Some(bits) if bits.div_ceil(8) <= 1 << 40 => {
                let whole_rows = shape.len() < 2
                    || shape.last().is_none_or(|&last| {
                        (last as u64 * u64::from(dtype.bits())).is_multiple_of(8)
                    });
                if whole_rows || !dtype.is_packed() {
                    Ok(bits.div_ceil(8) as usize)
                } else {
                    Err(format!(
                        "a row of {} is no whole number of bytes",
                        written()
                    ))
                }
            }
            _ => Err(format!("{} is too large", written())),
        }
    }

    /// A tensor with every byte `fill`.
    pub fn filled(dtype: DType, shape: &[i64], fill: u8) -> Result<HostTensor, String> {
        let size = HostTensor::bytes(dtype, shape)?;
        let mut data = Vec::new();
        data.try_reserve_exact(size)
            .map_err(|_| format!("there is no memory for {size} bytes"))?;
        data.resize(size, fill);
        Ok(HostTensor {
            dtype,
            shape: shape.to_vec(),
            data,
        })
    }

    /// How many elements it has.
    pub fn len(&self) -> usize {
        self.shape.iter().product::<i64>() as usize
    }

    /// The bits of element `index`, in memory order.
    pub fn bits(&self, index: usize) -> u64 {
        let bits = self.dtype.bits() as usize;
        if bits < 8 {
            let per_byte = 8 / bits;
            let byte = self.data[index / per_byte];
            return u64::from(byte >> (index % per_byte * bits)) & ((1 << bits) - 1);
        }
        let size = bits / 8;
        let mut word = [0; 8];
        word[..size].copy_from_slice(&self.data[index * size..(index + 1) * size]);
        u64::from_le_bytes(word)
    }

    /// The value of element `index`; integers beyond 2⁵³ are rounded.
    pub fn value(&self, index: usize) -> f64 {
        value_of(self.dtype, self.bits(index))
    }

    /// The position of element `index`, one number a dimension.
    pub fn position(&self, mut index: usize) -> Vec<i64> {
        let mut position = vec![0; self.shape.len()];
        for (axis, &extent) in self.shape.iter().enumerate().rev() {
            position[axis] = index as i64 % extent.max(1);
            index /= extent.max(1) as usize;
        }
        position
    }
}

/// The value that `bits` stand for.
fn value_of(dtype: DType, bits: u64) -> f64 {
    if dtype.is_float() {
        return floats::decode(dtype, bits);
    }
    if dtype.is_signed() {
        let shift = 64 - dtype.bits();
        return ((bits << shift) as i64 >> shift) as f64;
    }
    bits as f64
}

/// How a tensor is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    Randn,
    Uniform,
    Zeros,
    Arange,
}

/// A tensor's type and shape: `bf16[256,128]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    pub dtype: DType,
    pub dims: Vec<i64>,
}

/// What the command line passes for a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Int(i64),
    Float(f64),
    Generated {
        fill: Fill,
        shape: Shape,
        seed: Option<u64>,
    },
    File(PathBuf),
}

/// `NAME=…`, split.
pub fn split_name(text: &str) -> Result<(&str, &str), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim(), value.trim())),
        _ => Err(format!("`{text}` is not of the form NAME=VALUE")),
    }
}

/// Reads `bf16[256,128]`.
pub fn parse_shape(text: &str) -> Result<Shape, String> {
    let form = || format!("`{text}` is not of the form DTYPE[DIMS], as in `bf16[256,128]`");
    let (dtype, rest) = text.split_once('[').ok_or_else(form)?;
    let dims = rest.strip_suffix(']').ok_or_else(form)?;
    let dtype: DType = dtype
        .trim()
        .parse()
        .map_err(|e: tesserine_set::UnknownDType| format!("{e}, in `{text}`"))?;
    let mut list = Vec::new();
    if !dims.trim().is_empty() {
        for dim in dims.split(',') {
            let value = dim.trim().replace('_', "");
            let value = value.parse().ok().filter(|value: &i64| *value >= 0);
            list.push(value.ok_or_else(|| {
                format!("`{}` is no size of a dimension, in `{text}`", dim.trim())
            })?);
        }
    }
    if list.len() > 8 {
        return Err(format!("`{text}` has more than 8 dimensions"));
    }
    HostTensor::bytes(dtype, &list)?;
    Ok(Shape { dtype, dims: list })
}

/// Reads what stands behind `--arg NAME=`.
pub fn parse_value(text: &str) -> Result<Value, String> {
    if let Some(path) = text.strip_prefix('@') {
        if path.is_empty() {
            return Err("`@` needs a file's name".to_owned());
        }
        return Ok(Value::File(PathBuf::from(path)));
    }
    if let Some((fill, rest)) = text.split_once(':') {
        let fill = match fill {
            "randn" => Fill::Randn,
            "uniform" => Fill::Uniform,
            "zeros" => Fill::Zeros,
            "arange" => Fill::Arange,
            _ => {
                return Err(format!(
                    "`{fill}` fills no tensor; `randn`, `uniform`, `zeros` and `arange` do"
                ));
            }
        };
        let (shape, seed) = match rest.split_once('@') {
            None => (rest, None),
            Some((shape, seed)) => {
                let number = seed
                    .parse()
                    .map_err(|_| format!("the seed `{seed}` is no number, in `{text}`"))?;
                (shape, Some(number))
            }
        };
        let shape = parse_shape(shape)?;
        if fill == Fill::Randn && !shape.dtype.is_float() {
            return Err(format!(
                "`randn` makes floating-point numbers and {} holds none; use `uniform`, `arange` or `zeros`",
                shape.dtype
            ));
        }
        return Ok(Value::Generated { fill, shape, seed });
    }
    let digits = text.replace('_', "");
    match text {
        "true" => return Ok(Value::Int(1)),
        "false" => return Ok(Value::Int(0)),
        _ => {}
    }
    if let Ok(value) = digits.parse() {
        return Ok(Value::Int(value));
    }
    match digits.parse::<f64>() {
        // Infinity has its name; digits that overflow are a slip.
        Ok(value) if value.is_infinite() && digits.contains(|c: char| c.is_ascii_digit()) => {
            Err(format!("`{text}` is too large a number"))
        }
        Ok(value) => Ok(Value::Float(value)),
        Err(_) => Err(format!(
            "`{text}` is neither a number, nor a tensor as in `randn:bf16[256,128]`, nor a file as in `@x.npy`"
        )),
    }
}

/// Makes the tensor of parameter `name`, whose element type is `dtype`.
pub fn make(name: &str, dtype: DType, value: &Value) -> Result<HostTensor, Failure> {
    match value {
        Value::File(path) => read_file(path, dtype),
        Value::Generated { fill, shape, seed } => {
            let seed = seed.unwrap_or_else(|| seed_of(name));
            generate(*fill, shape, seed)
                .map_err(|reason| Failure::Failed(format!("`{name}`: {reason}")))
        }
        Value::Int(_) | Value::Float(_) => Err(Failure::Usage(format!(
            "`{name}` is a tensor of {dtype}: pass one as in `--arg {name}=randn:{dtype}[256,128]`"
        ))),
    }
}

fn read_file(path: &Path, dtype: DType) -> Result<HostTensor, Failure> {
    npy::read(path, dtype)
}

/// FNV-1a of a parameter's name.
fn seed_of(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A tensor filled as asked.
pub fn generate(fill: Fill, shape: &Shape, seed: u64) -> Result<HostTensor, String> {
    let mut tensor = HostTensor::filled(shape.dtype, &shape.dims, 0)?;
    let (dtype, stream) = (shape.dtype, Stream { seed });
    let bits = |index: u64| -> u64 {
        match fill {
            Fill::Zeros if dtype == DType::Ue8m0 => 0,
            Fill::Zeros => 0,
            Fill::Randn => floats::encode(dtype, stream.normal(index)),
            Fill::Arange if dtype.is_float() => floats::encode(dtype, index as f64),
            Fill::Arange if dtype == DType::Bool => index & 1,
            Fill::Arange => index,
            Fill::Uniform if dtype.is_float() => floats::encode(dtype, stream.uniform(index)),
            Fill::Uniform => {
                let limit = match dtype {
                    DType::Bool | DType::U1 => 2,
                    DType::U4 => 16,
                    DType::I4 => 8,
                    _ => 100,
                };
                stream.below(index, limit)
            }
        }
    };
    if fill == Fill::Zeros {
        return Ok(tensor);
    }
    // Chunks of whole bytes and whole elements.
    const CHUNK: usize = 1 << 16;
    let width = dtype.bits() as usize;
    tensor
        .data
        .par_chunks_mut(CHUNK)
        .enumerate()
        .for_each(|(chunk, bytes)| {
            let first = (chunk * CHUNK * 8 / width) as u64;
            if width < 8 {
                let per_byte = 8 / width;
                let mask = (1u64 << width) - 1;
                for (at, byte) in bytes.iter_mut().enumerate() {
                    for part in 0..per_byte {
                        let index = first + (at * per_byte + part) as u64;
                        *byte |= ((bits(index) & mask) << (part * width)) as u8;
                    }
                }
            } else {
                let size = width / 8;
                for (at, element) in bytes.chunks_exact_mut(size).enumerate() {
                    let word = bits(first + at as u64).to_le_bytes();
                    element.copy_from_slice(&word[..size]);
                }
            }
        });
    Ok(tensor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read() {
        assert_eq!(parse_value("0.5"), Ok(Value::Float(0.5)));
        assert_eq!(parse_value("1e-6"), Ok(Value::Float(1e-6)));
        assert_eq!(parse_value("-1_000"), Ok(Value::Int(-1000)));
        assert_eq!(parse_value("inf"), Ok(Value::Float(f64::INFINITY)));
        assert_eq!(parse_value("true"), Ok(Value::Int(1)));
        assert_eq!(parse_value("@a/b.npy"), Ok(Value::File("a/b.npy".into())));
        assert_eq!(
            parse_value("randn:bf16[256, 128]@7"),
            Ok(Value::Generated {
                fill: Fill::Randn,
                shape: Shape {
                    dtype: DType::Bf16,
                    dims: vec![256, 128]
                },
                seed: Some(7)
            })
        );
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("randn:bf17[4]", "`bf17` is no element type"),
            ("rand:f32[4]", "`rand` fills no tensor"),
            ("randn:f32[4", "not of the form DTYPE[DIMS]"),
            ("randn:f32[4,x]", "`x` is no size"),
            ("randn:f32[-4]", "`-4` is no size"),
            ("randn:i32[4]", "use `uniform`"),
            ("zeros:f32[4]@x", "the seed `x` is no number"),
            ("zeros:f32[9999999999,9999999999]", "too large"),
            ("zeros:e2m1[4,3]", "whole number of bytes"),
            ("hello", "neither a number"),
            ("@", "needs a file's name"),
        ] {
            let error = parse_value(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(split_name("x").unwrap_err().contains("NAME=VALUE"));
        assert_eq!(split_name("x=1"), Ok(("x", "1")));
    }

    #[test]
    fn seeds_and_names_choose_the_numbers() {
        let value = |seed| Value::Generated {
            fill: Fill::Randn,
            shape: parse_shape("f32[100]").unwrap(),
            seed,
        };
        let make = |name: &str, seed| make(name, DType::F32, &value(seed)).unwrap();
        assert_eq!(make("x", None), make("x", None));
        assert_ne!(make("x", None), make("y", None));
        assert_eq!(make("x", Some(3)), make("y", Some(3)));
        assert_ne!(make("x", Some(3)), make("x", Some(4)));
    }

    #[test]
    fn chunks_do_not_show() {
        // The last element of a large tensor is what its index alone says.
        for dtype in [DType::F32, DType::E2m1, DType::U1, DType::I64] {
            let shape = Shape {
                dtype,
                dims: vec![1 << 20],
            };
            let tensor = generate(Fill::Arange, &shape, 0).unwrap();
            let last = tensor.len() - 1;
            let expected = if dtype.is_float() {
                floats::encode(dtype, last as f64)
            } else {
                last as u64 & (u64::MAX >> (64 - dtype.bits()))
            };
            assert_eq!(tensor.bits(last), expected, "{dtype}");
        }
    }

    #[test]
    fn positions_follow_the_shape() {
        let tensor = HostTensor::filled(DType::F32, &[2, 3, 4], 0).unwrap();
        assert_eq!(tensor.position(23), [1, 2, 3]);
        assert_eq!(tensor.position(4), [0, 1, 0]);
    }
}
