//! How a matrix tile lies in a channel's slot: rows of whole 16-byte chunks, permuted so that columns lie in all banks.
//!
//! Chunk `c` of row `r` lies at place `c ^ ((r >> shift) & mask)` of its row. Any eight rows from a multiple of eight on
//! then have one chunk of a column each in different 16-byte banks, as `ldmatrix` wants them, and so have any eight
//! neighbouring chunks from a multiple of eight on, as copies fill them. Invariants: the map is a bijection between
//! (row, chunk) and places; it keeps rows where they are; a slot is aligned to [`SharedLayout::ALIGN`].

/// Bytes of a chunk, which stays whole.
pub const CHUNK: u32 = 16;

/// Banks of one chunk's width.
const BANKS: u32 = 8;

/// The layout of one tile in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SharedLayout {
    /// Rows, those included that only fill up a fragment.
    pub rows: u32,
    /// Bytes from one row to the next: whole chunks.
    pub pitch: u32,
    /// Which bits of a chunk's number the row changes: one less than a power of two, at most 7.
    pub mask: u32,
    /// By which bits of the row: those from this one on.
    pub shift: u32,
    /// Parts of the columns side by side, each of all rows: one after another in memory. 1, or `pitch` is a power of two.
    pub panels: u32,
}

impl SharedLayout {
    /// Bytes that the start of a tile is aligned to, so that banks are what the swizzle takes them for.
    pub const ALIGN: u32 = 128;

    /// Bytes that a tile is aligned to whose swizzle the hardware does by address bits.
    pub const BULK_ALIGN: u32 = 1024;

    /// Of `rows` rows of `columns` elements of `element` bytes.
    pub fn new(rows: u32, columns: u32, element: u32) -> SharedLayout {
        let pitch = (columns * element).next_multiple_of(CHUNK);
        // The chunks of a row that a power of two allows to permute; rows of fewer bytes share a line of banks.
        let chunks = 1 << (pitch / CHUNK).trailing_zeros().min(BANKS.trailing_zeros());
        SharedLayout {
            rows,
            pitch,
            mask: chunks - 1,
            shift: (BANKS / chunks).trailing_zeros(),
            panels: 1,
        }
    }

    /// As bulk copies and the products of warpgroups have it: panels of rows of `swizzle` bytes (32, 64 or 128), whose chunks are
    /// permuted in lines of 128 bytes.
    pub fn swizzled(rows: u32, columns: u32, element: u32, swizzle: u32) -> SharedLayout {
        let chunks = swizzle / CHUNK;
        SharedLayout {
            rows,
            pitch: swizzle,
            mask: chunks - 1,
            shift: (BANKS / chunks).trailing_zeros(),
            panels: (columns * element).div_ceil(swizzle),
        }
    }

    /// Whether bulk copies with a swizzle of `pitch` bytes have it so.
    pub fn is_swizzled(&self) -> bool {
        matches!(self.pitch, 32 | 64 | 128)
            && *self == SharedLayout::swizzled(self.rows, self.panels * self.pitch, 1, self.pitch)
    }

    /// The byte at which byte `at` of `row` lies.
    pub fn offset(&self, row: u32, at: u32) -> u32 {
        let (panel, at) = match self.panels {
            1 => (0, at),
            _ => (at / self.pitch, at % self.pitch),
        };
        panel * self.panel_bytes() + row * self.pitch + (at ^ (self.turn(row) * CHUNK))
    }

    /// Bytes from one panel to the next.
    pub fn panel_bytes(&self) -> u32 {
        self.rows * self.pitch
    }

    /// What the numbers of the chunks of `row` are XORed with.
    pub fn turn(&self, row: u32) -> u32 {
        (row >> self.shift) & self.mask
    }

    /// Bytes of the tile.
    pub fn bytes(&self) -> u32 {
        self.panel_bytes() * self.panels
    }
}
