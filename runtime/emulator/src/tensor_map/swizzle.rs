//! Swizzles of shared memory: how bytes of a tile change places so that columns fall into different banks.
//!
//! PTX ISA §5.5.7 (Swizzling Modes) draws the patterns; each is an exclusive or of a few bits of the shared *address* with higher bits of
//! the same address, thus its own inverse. Matrix instructions that read tiles by descriptors use the same patterns.

use super::Code;

/// `CUtensorMapSwizzle`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Swizzle {
    #[default]
    None = 0,
    /// 16-byte atoms in 32 bytes.
    B32 = 1,
    /// 16-byte atoms in 64 bytes.
    B64 = 2,
    /// 16-byte atoms in 128 bytes.
    B128 = 3,
    /// 32-byte atoms in 128 bytes. The driver refuses this and the following for an `sm_90` device.
    B128Atom32 = 4,
    /// 32-byte atoms in 128 bytes, with the halves of each 16 bytes changed over in every other row.
    B128Atom32Flip8 = 5,
    /// 64-byte atoms in 128 bytes.
    B128Atom64 = 6,
}

impl Code for Swizzle {
    const ALL: &'static [Swizzle] = &[
        Swizzle::None,
        Swizzle::B32,
        Swizzle::B64,
        Swizzle::B128,
        Swizzle::B128Atom32,
        Swizzle::B128Atom32Flip8,
        Swizzle::B128Atom64,
    ];

    fn code(self) -> u32 {
        self as u32
    }
}

impl Swizzle {
    /// The bytes within which it moves data: the most that a row of a box may have; none without a swizzle.
    pub fn span(self) -> Option<u32> {
        match self {
            Swizzle::None => None,
            Swizzle::B32 => Some(32),
            Swizzle::B64 => Some(64),
            _ => Some(128),
        }
    }

    /// The bytes that it keeps together: a power of two; `None` stands for all.
    pub fn unit(self) -> Option<u32> {
        match self {
            Swizzle::None => None,
            Swizzle::B32 | Swizzle::B64 | Swizzle::B128 => Some(16),
            Swizzle::B128Atom32 => Some(32),
            Swizzle::B128Atom32Flip8 => Some(8),
            Swizzle::B128Atom64 => Some(64),
        }
    }
}

/// Where the byte that an unswizzled tile has at a shared address lies (PTX ISA §5.5.7).
///
/// The pattern hangs on the address itself, not on an offset in the tile, so that a tile that starts in the middle of a pattern continues it.
pub fn swizzle(mode: Swizzle, address: u64) -> u64 {
    // (bits that move, the lowest of them, the lowest bit of the row)
    let by = |count: u32, at: u32, row: u32| ((address >> row) & ((1 << count) - 1)) << at;
    match mode {
        Swizzle::None => address,
        Swizzle::B32 => address ^ by(1, 4, 7),
        Swizzle::B64 => address ^ by(2, 4, 7),
        Swizzle::B128 => address ^ by(3, 4, 7),
        Swizzle::B128Atom32 => address ^ by(2, 5, 7),
        Swizzle::B128Atom32Flip8 => address ^ by(2, 5, 7) ^ by(1, 3, 7),
        Swizzle::B128Atom64 => address ^ by(1, 6, 7),
    }
}
