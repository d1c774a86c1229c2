//! How a kernel set lies in a file. Writer and reader share this page; all numbers are little-endian.
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | [`MAGIC`] |
//! | 4 | [`FORMAT_VERSION`] |
//! | 4 | number of modules |
//! | 8 | length of the manifest, in bytes |
//! | 32 | SHA-256 of the preceding three numbers, the manifest and the module table |
//! | … | the manifest: JSON |
//! | 64 a module | the module table: kind (4), zero (4), offset in the file (8), compressed length (8), length (8), SHA-256 of the module (32) |
//! | … | the modules, deflate-compressed, one after the other and nothing between or behind them |
//!
//! Invariants: the hash covers all of what decides where anything lies; every module's text has a hash of its own,
//! checked when it is read; no length is trusted before it was compared with what is there.

use std::fmt;

use sha2::{Digest, Sha256};

/// The first bytes of a kernel set. The last four tell of line-end conversion and of truncation at a zero.
pub const MAGIC: [u8; 8] = *b"TSET\r\n\0\n";

/// The version of the format that this crate writes, and the newest that it reads. What an older reader would launch wrongly, since
/// it passes over what it does not know, is a new version: 2 has tensor maps among a body's arguments, and bodies whose launches may
/// overlap.
pub const FORMAT_VERSION: u32 = 2;

/// The oldest version that this crate reads.
pub(crate) const OLDEST_VERSION: u32 = 1;

/// Bytes before the manifest.
pub(crate) const PREFIX: usize = 8 + 4 + 4 + 8 + 32;
/// Bytes of an entry in the module table.
pub(crate) const ENTRY: usize = 4 + 4 + 8 + 8 + 8 + 32;
/// No manifest is longer.
pub(crate) const MAX_MANIFEST: u64 = 64 << 20;
/// No module is longer, decompressed.
pub(crate) const MAX_MODULE: u64 = 256 << 20;
/// No set holds more modules.
pub(crate) const MAX_MODULES: u32 = 1 << 16;

/// The most bytes that `compressed` bytes of deflate can become: two bits give up to 258.
pub(crate) fn inflation_limit(compressed: u64) -> u64 {
    compressed.saturating_mul(1032)
}

/// SHA-256.
pub(crate) type Hash = [u8; 32];

/// The hash in the prefix: of version, counts, manifest and table.
pub(crate) fn header_hash(numbers: &[u8], manifest: &[u8], table: &[u8]) -> Hash {
    let mut hasher = Sha256::new();
    hasher.update(numbers);
    hasher.update(manifest);
    hasher.update(table);
    hasher.finalize().into()
}

/// The hash of a module, decompressed.
pub(crate) fn module_hash(bytes: &[u8]) -> Hash {
    Sha256::digest(bytes).into()
}

/// What a module is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModuleKind {
    /// PTX text: UTF-8 without zeros.
    Ptx,
    /// An assembled object for one SM.
    Cubin,
}

impl ModuleKind {
    pub(crate) fn code(self) -> u32 {
        match self {
            ModuleKind::Ptx => 1,
            ModuleKind::Cubin => 2,
        }
    }

    pub(crate) fn from_code(code: u32) -> Option<ModuleKind> {
        [ModuleKind::Ptx, ModuleKind::Cubin]
            .into_iter()
            .find(|k| k.code() == code)
    }
}

impl fmt::Display for ModuleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ModuleKind::Ptx => "ptx",
            ModuleKind::Cubin => "cubin",
        })
    }
}

/// One row of the module table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleEntry {
    pub kind: ModuleKind,
    /// Where its compressed bytes begin in the file.
    pub(crate) offset: u64,
    /// Bytes in the file.
    pub compressed: u64,
    /// Bytes when decompressed.
    pub length: u64,
    /// SHA-256 of the decompressed module.
    pub hash: [u8; 32],
}
