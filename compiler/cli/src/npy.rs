//! `.npy` files: NumPy's array format, versions 1 to 3, little-endian, C order.
//!
//! Types that NumPy lacks are unsigned integers of their width (bf16 as `uint16`, fp8 as `uint8`); elements of less than a byte
//! stay packed in `uint8`, the last dimension counting bytes.

use std::{fs, path::Path};

use tesserine_set::DType;

use crate::{failure::Failure, tensor::HostTensor};

const MAGIC: &[u8] = b"\x93NUMPY";

/// NumPy's name of what stands for `dtype`.
fn descr(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "<f8",
        DType::F32 | DType::Tf32 => "<f4",
        DType::F16 => "<f2",
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::U16 | DType::Bf16 => "<u2",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::Bool => "|b1",
        DType::U8
        | DType::E4m3
        | DType::E5m2
        | DType::Ue8m0
        | DType::Ue4m3
        | DType::E2m1
        | DType::U1
        | DType::U4
        | DType::I4 => "|u1",
    }
}

/// The file's bytes for `tensor`.
pub fn encode(tensor: &HostTensor) -> Vec<u8> {
    let mut shape: Vec<i64> = tensor.shape.clone();
    if let (true, Some(last)) = (tensor.dtype.is_packed(), shape.last_mut()) {
        *last = (*last * i64::from(tensor.dtype.bits()) + 7) / 8;
    }
    let dims: Vec<String> = shape.iter().map(i64::to_string).collect();
    let dims = match dims.len() {
        1 => format!("({},)", dims[0]),
        _ => format!("({})", dims.join(", ")),
    };
    let mut header = format!(
        "{{'descr': '{}', 'fortran_order': False, 'shape': {dims}, }}",
        descr(tensor.dtype)
    );
    // The data starts at a multiple of 64 bytes.
    let length = (MAGIC.len() + 4 + header.len() + 1).next_multiple_of(64) - MAGIC.len() - 4;
    while header.len() + 1 < length {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = Vec::with_capacity(MAGIC.len() + 4 + length + tensor.data.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&[1, 0]);
    bytes.extend_from_slice(&(length as u16).to_le_bytes());
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(&tensor.data);
    bytes
}

/// Writes `tensor` to `path`.
pub fn write(path: &Path, tensor: &HostTensor) -> Result<(), Failure> {
    fs::write(path, encode(tensor)).map_err(|e| Failure::file("write", path, e))
}

/// Reads `path` as a tensor of `dtype`.
pub fn read(path: &Path, dtype: DType) -> Result<HostTensor, Failure> {
    let bytes = fs::read(path).map_err(|e| Failure::file("read", path, e))?;
    decode(&bytes, dtype).map_err(|reason| Failure::Failed(format!("{}: {reason}", path.display())))
}

/// The tensor in a file's bytes, or a sentence that says what is wrong with them.
pub fn decode(bytes: &[u8], dtype: DType) -> Result<HostTensor, String> {
    let rest = bytes
        .strip_prefix(MAGIC)
        .ok_or("the file is no .npy file (it does not begin with NumPy's magic bytes)")?;
    let cut = || "the .npy file is cut short".to_owned();
    let (length, start) = match rest {
        [1, _, a, b, ..] => (usize::from(u16::from_le_bytes([*a, *b])), 4),
        [2 | 3, _, a, b, c, d, ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, 6),
        [1..=3, ..] => return Err(cut()),
        [version, _, ..] => {
            return Err(format!(
                ".npy format version {version} is not known; versions 1 to 3 are"
            ));
        }
        _ => return Err(cut()),
    };
    let header = rest
        .get(start..)
        .and_then(|r| r.get(..length))
        .ok_or_else(cut)?;
    let data = &rest[start + length..];
    let header = std::str::from_utf8(header).map_err(|_| "the .npy header is no text")?;
    let found = field(header, "descr").ok_or("the .npy header has no `descr`")?;
    let found = found.trim_matches(['\'', '"']);
    if field(header, "fortran_order") != Some("False") {
        return Err(
            "the array is in Fortran order; save `numpy.ascontiguousarray(x)` instead".to_owned(),
        );
    }
    // One byte has no order; NumPy writes `|`, others may write `<`.
    let wanted = descr(dtype);
    let same = found == wanted || (wanted.starts_with('|') && found.get(1..) == wanted.get(1..));
    if !same {
        return Err(format!(
            "the array holds `{found}`, but {dtype} needs `{wanted}`"
        ));
    }
    let shape = field(header, "shape").ok_or("the .npy header has no `shape`")?;
    let mut shape = shape
        .trim_matches(['(', ')'])
        .split(',')
        .map(str::trim)
        .filter(|dim| !dim.is_empty())
        .map(|dim| dim.parse::<i64>().ok().filter(|d| *d >= 0))
        .collect::<Option<Vec<i64>>>()
        .ok_or_else(|| format!("the .npy shape `{shape}` is malformed"))?;
    if let (true, Some(last)) = (dtype.is_packed(), shape.last_mut()) {
        *last = last.saturating_mul(i64::from(8 / dtype.bits()));
    }
    let size = HostTensor::bytes(dtype, &shape)?;
    if data.len() != size {
        return Err(format!(
            "the .npy file has {} bytes of data, but its shape needs {size}",
            data.len()
        ));
    }
    Ok(HostTensor {
        dtype,
        shape,
        data: data.to_vec(),
    })
}

/// The text of `'name': …` in a header's dictionary, up to the comma that ends it.
fn field<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    let rest = [format!("'{name}'"), format!("\"{name}\"")]
        .iter()
        .find_map(|key| header.split_once(key.as_str()))?
        .1
        .trim_start()
        .strip_prefix(':')?
        .trim_start();
    let end = if rest.starts_with('(') {
        rest.find(')')? + 1
    } else {
        rest.find([',', '}'])?
    };
    Some(rest[..end].trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(dtype: DType, shape: &[i64]) -> HostTensor {
        let size = HostTensor::bytes(dtype, shape).unwrap();
        HostTensor {
            dtype,
            shape: shape.to_vec(),
            data: (0..size).map(|i| i as u8).collect(),
        }
    }

    #[test]
    fn every_type_comes_back() {
        for dtype in DType::ALL {
            for shape in [&[][..], &[0], &[3, 8], &[2, 3, 16]] {
                if dtype.is_packed() && shape.is_empty() {
                    continue;
                }
                let before = tensor(dtype, shape);
                let bytes = encode(&before);
                let start = bytes.len() - before.data.len();
                assert_eq!(start % 64, 0, "{dtype}: the data is not aligned");
                assert_eq!(decode(&bytes, dtype), Ok(before));
            }
        }
    }

    #[test]
    fn broken_files_are_refused() {
        let bytes = encode(&tensor(DType::F32, &[4, 4]));
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length], DType::F32).is_err(), "{length}");
        }
        let error = decode(&bytes, DType::Bf16).unwrap_err();
        assert_eq!(error, "the array holds `<f4`, but bf16 needs `<u2`");
        let text = String::from_utf8_lossy(&bytes[10..74]).replace("False", "True ");
        let mut fortran = bytes.clone();
        fortran[10..74].copy_from_slice(text.as_bytes());
        assert!(
            decode(&fortran, DType::F32)
                .unwrap_err()
                .contains("Fortran")
        );
        let text = String::from_utf8_lossy(&bytes[10..74]).replace("(4, 4)", "(4,-4)");
        let mut negative = bytes.clone();
        negative[10..74].copy_from_slice(text.as_bytes());
        assert!(
            decode(&negative, DType::F32)
                .unwrap_err()
                .contains("(4,-4)")
        );
    }
}
