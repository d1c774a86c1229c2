//! Element types: their names, widths and kinds. The one list that source, manifest and tensors share.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// What one element is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    F64,
    F32,
    /// f32 of which products see 10 bits of mantissa; stored in 32 bits.
    Tf32,
    F16,
    Bf16,
    /// 1-4-3, no infinities.
    E4m3,
    /// 1-5-2, IEEE-like.
    E5m2,
    /// 1-2-1, four bits, no NaN and no infinities.
    E2m1,
    /// A power of two: eight exponent bits, no sign.
    Ue8m0,
    /// e4m3 without its sign: a scale.
    Ue4m3,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bool,
    /// One bit; in memory only, packed from the low bit up.
    U1,
    U4,
    I4,
}

impl DType {
    pub const ALL: [DType; 22] = [
        DType::F64,
        DType::F32,
        DType::Tf32,
        DType::F16,
        DType::Bf16,
        DType::E4m3,
        DType::E5m2,
        DType::E2m1,
        DType::Ue8m0,
        DType::Ue4m3,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::Bool,
        DType::U1,
        DType::U4,
        DType::I4,
    ];

    /// The name that source and manifests use.
    pub fn name(self) -> &'static str {
        match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::Tf32 => "tf32",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::E4m3 => "e4m3",
            DType::E5m2 => "e5m2",
            DType::E2m1 => "e2m1",
            DType::Ue8m0 => "ue8m0",
            DType::Ue4m3 => "ue4m3",
            DType::I8 => "i8",
            DType::I16 => "i16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U8 => "u8",
            DType::U16 => "u16",
            DType::U32 => "u32",
            DType::U64 => "u64",
            DType::Bool => "bool",
            DType::U1 => "u1",
            DType::U4 => "u4",
            DType::I4 => "i4",
        }
    }

    /// Bits that one element takes in memory.
    pub fn bits(self) -> u32 {
        match self {
            DType::F64 | DType::I64 | DType::U64 => 64,
            DType::F32 | DType::Tf32 | DType::I32 | DType::U32 => 32,
            DType::F16 | DType::Bf16 | DType::I16 | DType::U16 => 16,
            DType::E4m3
            | DType::E5m2
            | DType::Ue8m0
            | DType::Ue4m3
            | DType::I8
            | DType::U8
            | DType::Bool => 8,
            DType::E2m1 | DType::U4 | DType::I4 => 4,
            DType::U1 => 1,
        }
    }

    /// A floating type, scales included.
    pub fn is_float(self) -> bool {
        matches!(
            self,
            DType::F64
                | DType::F32
                | DType::Tf32
                | DType::F16
                | DType::Bf16
                | DType::E4m3
                | DType::E5m2
                | DType::E2m1
                | DType::Ue8m0
                | DType::Ue4m3
        )
    }

    /// An integer type; `bool` is none.
    pub fn is_int(self) -> bool {
        !self.is_float() && self != DType::Bool
    }

    /// An integer type with a sign.
    pub fn is_signed(self) -> bool {
        matches!(
            self,
            DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::I4
        )
    }

    /// A type that several elements of share a byte.
    pub fn is_packed(self) -> bool {
        self.bits() < 8
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text names no element type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no element type")]
pub struct UnknownDType(pub String);

impl FromStr for DType {
    type Err = UnknownDType;

    fn from_str(text: &str) -> Result<DType, UnknownDType> {
        DType::ALL
            .into_iter()
            .find(|t| t.name() == text)
            .ok_or_else(|| UnknownDType(text.to_owned()))
    }
}
