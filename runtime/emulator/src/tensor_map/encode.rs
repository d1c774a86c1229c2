//! From the driver's parameters to a map, and from a map to bytes and back.

use super::{
    Code, DataType, Interleave, L2Promotion, MAP_BYTES, OobFill, RANK_LIMIT, Swizzle, TensorMap,
};

/// The parameters of `cuTensorMapEncodeTiled`, by its names. Slices are as long as the rank (the strides one shorter) or longer.
#[derive(Clone, Copy, Debug)]
pub struct Parameters<'a> {
    pub data_type: DataType,
    pub rank: u32,
    pub global_address: u64,
    /// Elements, innermost first.
    pub global_dim: &'a [u64],
    /// Bytes, of all dimensions but the innermost.
    pub global_strides: &'a [u64],
    pub box_dim: &'a [u32],
    pub element_strides: &'a [u32],
    pub interleave: Interleave,
    pub swizzle: Swizzle,
    pub l2_promotion: L2Promotion,
    pub oob_fill: OobFill,
}

/// Why there is no such map.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A limit of the driver API; the parameter by the driver's name for it.
    #[error("{parameter} {message}")]
    Invalid {
        parameter: &'static str,
        message: String,
    },
    /// Legal, but the emulator does not have it.
    #[error("not implemented in the emulator: {0}")]
    NotImplemented(String),
    /// The 128 bytes are no map.
    #[error("the 128 bytes are no tensor map that was encoded for the emulator: {0}")]
    Bytes(&'static str),
}

fn invalid<T>(parameter: &'static str, message: impl Into<String>) -> Result<T, EncodeError> {
    Err(EncodeError::Invalid {
        parameter,
        message: message.into(),
    })
}

/// The first so many of a parameter's values.
fn values<T: Copy, const N: usize>(
    parameter: &'static str,
    from: &[T],
    count: usize,
    rest: T,
) -> Result<[T; N], EncodeError> {
    if from.len() < count {
        return invalid(
            parameter,
            format!("has {} values, but the rank needs {count}", from.len()),
        );
    }
    let mut to = [rest; N];
    to[..count].copy_from_slice(&from[..count]);
    Ok(to)
}

impl TensorMap {
    /// Checks every limit of `cuTensorMapEncodeTiled` (CUDA Driver API, "Tensor Map Object Management").
    pub fn encode(parameters: &Parameters<'_>) -> Result<TensorMap, EncodeError> {
        let p = parameters;
        let data = p.data_type;
        let padded = data.is_padded();
        let rank = p.rank as usize;
        if !(1..=RANK_LIMIT).contains(&rank) {
            return invalid("tensorRank", format!("is {rank}, but must be 1 to 5"));
        }
        if p.interleave != Interleave::None && rank < 3 {
            return invalid(
                "tensorRank",
                format!("is {rank}, but interleaved tensors have at least 3 dimensions"),
            );
        }
        if padded && p.interleave != Interleave::None {
            return invalid("interleave", format!("must be NONE for {data:?}"));
        }
        let align = if padded || p.interleave == Interleave::B32 {
            32
        } else {
            16
        };
        if !p.global_address.is_multiple_of(align) {
            return invalid(
                "globalAddress",
                format!("{:#x} is not a multiple of {align}", p.global_address),
            );
        }

        let global_dim = values("globalDim", p.global_dim, rank, 1_u64)?;
        for (i, &dim) in global_dim[..rank].iter().enumerate() {
            if !(1..=1 << 32).contains(&dim) {
                return invalid("globalDim", format!("[{i}] is {dim}, not 1 to 2^32"));
            }
        }
        let group = match data {
            DataType::Packed4Align8 => 2,
            _ if padded => 128,
            _ => 1,
        };
        if !global_dim[0].is_multiple_of(group) {
            let dim = global_dim[0];
            return invalid(
                "globalDim",
                format!("[0] is {dim}, but must be a multiple of {group} for {data:?}"),
            );
        }

        let global_strides = values("globalStrides", p.global_strides, rank - 1, 0_u64)?;
        for (i, &stride) in global_strides[..rank - 1].iter().enumerate() {
            if !stride.is_multiple_of(align) {
                return invalid(
                    "globalStrides",
                    format!("[{i}] is {stride}, not a multiple of {align}"),
                );
            }
            if stride >= 1 << 40 {
                return invalid(
                    "globalStrides",
                    format!("[{i}] is {stride}, not below 2^40"),
                );
            }
        }
        // So that no address of an element wraps around.
        let outer: u128 = (1..rank)
            .map(|d| u128::from(global_dim[d] - 1) * u128::from(global_strides[d - 1]))
            .sum();
        let last = u128::from(p.global_address)
            + outer
            + u128::from(global_dim[0]) * u128::from(data.bits()) / 8;
        if last > u128::from(u64::MAX) {
            return invalid("globalDim", "and globalStrides reach past 64-bit addresses");
        }

        let box_dim = values("boxDim", p.box_dim, rank, 1_u32)?;
        for (i, &dim) in box_dim[..rank].iter().enumerate() {
            if !(1..=256).contains(&dim) {
                return invalid("boxDim", format!("[{i}] is {dim}, not 1 to 256"));
            }
        }
        if padded && box_dim[0] != 128 {
            let dim = box_dim[0];
            return invalid("boxDim", format!("[0] is {dim}, not 128, for {data:?}"));
        }
        let row_bits = box_dim[0] * data.bits();
        if p.interleave == Interleave::None && !row_bits.is_multiple_of(128) {
            return invalid(
                "boxDim",
                format!(
                    "[0] is {} elements of {} bits, not a multiple of 16 bytes",
                    box_dim[0],
                    data.bits()
                ),
            );
        }
        if let (Interleave::None, Some(span)) = (p.interleave, p.swizzle.span()) {
            let row = if padded { 128 } else { row_bits / 8 };
            if row > span {
                return invalid(
                    "boxDim",
                    format!("[0] is {row} bytes, more than the {span} of the swizzle"),
                );
            }
        }

        let mut element_strides = values("elementStrides", p.element_strides, rank, 1_u32)?;
        for (i, &stride) in element_strides[..rank].iter().enumerate() {
            if !(1..=8).contains(&stride) {
                return invalid("elementStrides", format!("[{i}] is {stride}, not 1 to 8"));
            }
        }
        if p.interleave == Interleave::None {
            // The driver ignores it.
            element_strides[0] = 1;
        }

        use Swizzle as S;
        if p.interleave == Interleave::B32 && p.swizzle != S::B32 {
            return invalid("swizzle", "must be 32B where interleave is 32B");
        }
        let swizzle_fits = match data {
            DataType::Packed6Align16 => {
                matches!(p.swizzle, S::None | S::B128 | S::B128Atom32 | S::B128Atom64)
            }
            DataType::Packed4Align16 => matches!(p.swizzle, S::None | S::B128 | S::B128Atom32),
            _ => true,
        };
        if !swizzle_fits {
            return invalid(
                "swizzle",
                format!("{:?} is not one for {data:?}", p.swizzle),
            );
        }
        if p.oob_fill == OobFill::Nan && !data.is_float() {
            return invalid(
                "oobFill",
                format!("is NaN, but {data:?} is no floating-point type"),
            );
        }

        if p.interleave != Interleave::None {
            let what = "tensor maps of interleaved layouts".to_owned();
            return Err(EncodeError::NotImplemented(what));
        }
        if padded {
            let what = format!("tensor maps of {data:?}, whose elements are padded");
            return Err(EncodeError::NotImplemented(what));
        }
        Ok(TensorMap {
            data_type: data,
            rank,
            global_address: p.global_address,
            global_dim,
            global_strides,
            box_dim,
            element_strides,
            interleave: p.interleave,
            swizzle: p.swizzle,
            l2_promotion: p.l2_promotion,
            oob_fill: p.oob_fill,
        })
    }

    /// What a kernel gets: a mark, the fields, a sum. Programs must not look into it, as into the driver's.
    pub fn to_bytes(&self) -> [u8; MAP_BYTES] {
        let mut to = Vec::with_capacity(MAP_BYTES);
        to.extend(MARK);
        let codes = [
            self.data_type.code(),
            self.rank as u32,
            self.interleave.code(),
            self.swizzle.code(),
            self.l2_promotion.code(),
            self.oob_fill.code(),
        ];
        to.extend(codes.map(|c| c as u8));
        to.extend(self.global_address.to_le_bytes());
        for dim in self.global_dim {
            // 2^32 does not fit, 0 is no dimension.
            to.extend(((dim - 1) as u32).to_le_bytes());
        }
        for stride in self.global_strides {
            to.extend(&stride.to_le_bytes()[..5]);
        }
        for dim in self.box_dim {
            to.push((dim - 1) as u8);
        }
        to.extend(self.element_strides.map(|s| s as u8));
        to.resize(MAP_BYTES - 8, 0);
        to.extend(sum(&to).to_le_bytes());
        let mut bytes = [0; MAP_BYTES];
        bytes.copy_from_slice(&to);
        bytes
    }

    /// The map of the bytes, which keeps the limits, too.
    pub fn from_bytes(bytes: &[u8; MAP_BYTES]) -> Result<TensorMap, EncodeError> {
        let mut reader = Reader { bytes, at: 0 };
        if reader.take::<8>() != MARK {
            return Err(EncodeError::Bytes("they do not start with its mark"));
        }
        let (fields, stored) = bytes.split_at(MAP_BYTES - 8);
        if sum(fields).to_le_bytes() != stored {
            return Err(EncodeError::Bytes("their sum is wrong"));
        }
        let [data_type, rank, interleave, swizzle, promotion, fill] = reader.take();
        let global_address = u64::from_le_bytes(reader.take());
        let global_dim =
            [(); RANK_LIMIT].map(|()| u64::from(u32::from_le_bytes(reader.take())) + 1);
        let global_strides = [(); RANK_LIMIT - 1].map(|()| {
            let [a, b, c, d, e] = reader.take();
            u64::from_le_bytes([a, b, c, d, e, 0, 0, 0])
        });
        let box_dim = reader.take::<RANK_LIMIT>().map(|d| u32::from(d) + 1);
        let element_strides = reader.take::<RANK_LIMIT>().map(u32::from);
        fn known<T: Code>(code: u8) -> Result<T, EncodeError> {
            T::from_code(u32::from(code)).ok_or(EncodeError::Bytes("a field has no such value"))
        }
        TensorMap::encode(&Parameters {
            data_type: known(data_type)?,
            rank: u32::from(rank),
            global_address,
            global_dim: &global_dim,
            global_strides: &global_strides,
            box_dim: &box_dim,
            element_strides: &element_strides,
            interleave: known(interleave)?,
            swizzle: known(swizzle)?,
            l2_promotion: known(promotion)?,
            oob_fill: known(fill)?,
        })
    }
}

const MARK: [u8; 8] = *b"TessMap1";

struct Reader<'a> {
    bytes: &'a [u8; MAP_BYTES],
    at: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let at = self.at;
        self.at += N;
        std::array::from_fn(|i| self.bytes[at + i])
    }
}

/// FNV-1a.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
