//! Tensor maps: what `cuTensorMapEncodeTiled` makes of a tensor in global memory, and which bytes a bulk tensor copy moves.
//!
//! The parameters and their limits are those of the CUDA driver API ("Tensor Map Object Management"); boxes, out-of-bounds elements and
//! swizzles are those of PTX ISA §5.5 (Tensors). The 128 bytes of a map are opaque to programs, so the emulator has an encoding of its own.
//!
//! Invariants: a [`TensorMap`] kept all limits when it was made, be it from parameters or from bytes; no coordinate makes the geometry
//! panic; what the documents do not fix (im2col, interleaved layouts, types padded in shared memory) is refused.

mod encode;
mod geometry;
mod swizzle;
#[cfg(test)]
mod tests;

pub use encode::{EncodeError, Parameters};
pub use geometry::{CoordinateError, Piece};
pub use swizzle::{Swizzle, swizzle};

/// The most dimensions of a tensor.
pub const RANK_LIMIT: usize = 5;

/// The bytes of an encoded map (`CUtensorMap`), which lie at a multiple of 64.
pub const MAP_BYTES: usize = 128;

/// Enumerations of the driver, whose values have numbers.
pub trait Code: Copy + 'static {
    /// All values.
    const ALL: &'static [Self];

    /// The driver's number.
    fn code(self) -> u32;

    /// The value of that number.
    fn from_code(code: u32) -> Option<Self> {
        Self::ALL.iter().copied().find(|v| v.code() == code)
    }
}

macro_rules! codes {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $code:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$of])* $variant = $code),*
        }

        impl Code for $name {
            const ALL: &'static [$name] = &[$($name::$variant),*];

            fn code(self) -> u32 {
                self as u32
            }
        }
    };
}

codes! {
    /// `CUtensorMapDataType`.
    DataType {
        Uint8 = 0,
        Uint16 = 1,
        Uint32 = 2,
        Int32 = 3,
        Uint64 = 4,
        Int64 = 5,
        Float16 = 6,
        Float32 = 7,
        Float64 = 8,
        Bfloat16 = 9,
        /// Loads and stores of an H200 keep subnormal numbers nevertheless.
        Float32Ftz = 10,
        /// Loads round to it.
        Tfloat32 = 11,
        Tfloat32Ftz = 12,
        /// Sixteen 4-bit elements in 8 bytes, in both memories.
        Packed4Align8 = 13,
        /// Sixteen 4-bit elements in 8 bytes of global and the first 8 of 16 bytes of shared memory.
        Packed4Align16 = 14,
        /// Sixteen 6-bit elements in 12 bytes of global and the first 12 of 16 bytes of shared memory.
        Packed6Align16 = 15,
    }
}

codes! {
    /// `CUtensorMapInterleave`.
    Interleave {
        None = 0,
        B16 = 1,
        B32 = 2,
    }
}

codes! {
    /// `CUtensorMapL2promotion`: a hint.
    L2Promotion {
        None = 0,
        B64 = 1,
        B128 = 2,
        B256 = 3,
    }
}

codes! {
    /// `CUtensorMapFloatOOBfill`: what a load puts where the tensor has no element.
    OobFill {
        Zero = 0,
        /// A NaN; which one is not documented, see [`TensorMap::fill`].
        Nan = 1,
    }
}

impl DataType {
    /// Bits of an element in global memory.
    pub fn bits(self) -> u32 {
        use DataType::*;
        match self {
            Uint8 => 8,
            Uint16 | Float16 | Bfloat16 => 16,
            Uint32 | Int32 | Float32 | Float32Ftz | Tfloat32 | Tfloat32Ftz => 32,
            Uint64 | Int64 | Float64 => 64,
            Packed4Align8 | Packed4Align16 => 4,
            Packed6Align16 => 6,
        }
    }

    /// Whether it is a floating-point type, which may be filled with NaNs.
    pub fn is_float(self) -> bool {
        use DataType::*;
        matches!(
            self,
            Float16 | Float32 | Float64 | Bfloat16 | Float32Ftz | Tfloat32 | Tfloat32Ftz
        )
    }

    /// Packed types whose groups of sixteen take 16 bytes of shared memory.
    fn is_padded(self) -> bool {
        matches!(self, DataType::Packed4Align16 | DataType::Packed6Align16)
    }
}

/// A tensor in global memory and the box of it that an instruction moves. All limits of the driver hold for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMap {
    data_type: DataType,
    rank: usize,
    global_address: u64,
    /// Elements, innermost first; 1 past the rank, as are `box_dim` and `element_strides`.
    global_dim: [u64; RANK_LIMIT],
    /// Bytes from an element to the next of dimensions 1 and up; 0 past the rank.
    global_strides: [u64; RANK_LIMIT - 1],
    box_dim: [u32; RANK_LIMIT],
    /// Only every so manieth element of the box is moved; 1 for the innermost dimension.
    element_strides: [u32; RANK_LIMIT],
    interleave: Interleave,
    swizzle: Swizzle,
    l2_promotion: L2Promotion,
    oob_fill: OobFill,
}

impl TensorMap {
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    pub fn rank(&self) -> usize {
        self.rank
    }

    pub fn swizzle(&self) -> Swizzle {
        self.swizzle
    }

    pub fn global_address(&self) -> u64 {
        self.global_address
    }

    /// Elements that an instruction moves in a dimension: those of the box that the element stride leaves.
    pub fn elements(&self, dimension: usize) -> u32 {
        self.box_dim[dimension].div_ceil(self.element_strides[dimension])
    }

    /// The bytes that an instruction moves, those that are filled included: what it adds to a barrier's transactions.
    pub fn box_bytes(&self) -> u32 {
        self.row_bytes() * self.rows()
    }

    /// Bytes of a row of the box.
    pub(crate) fn row_bytes(&self) -> u32 {
        self.box_dim[0] * self.data_type.bits() / 8
    }

    /// Rows of the box: its elements in all dimensions but the innermost.
    pub(crate) fn rows(&self) -> u32 {
        (1..self.rank).map(|d| self.elements(d)).product()
    }
}
