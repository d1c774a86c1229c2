//! Global memory: allocations at addresses of the emulator's own, with unmapped gaps between them.
//!
//! Blocks run side by side, so bytes are atomics, accessed relaxed at the width of the access: a kernel that races gives some mix of bytes
//! here as it does on a device, and is no undefined behaviour of this program.

/// The global memory of a device. Addresses are never reused while it lives, so that a freed one is told from a live one.
#[derive(Debug, Default)]
pub struct Memory {}

/// An access of the host's that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MemoryError(pub String);

impl Memory {
    pub fn new() -> Memory {
        Memory::default()
    }

    /// `bytes` bytes at an address that is a multiple of 256, zeroed or not: their contents are unspecified. 0 bytes get an address too.
    pub fn allocate(&self, bytes: usize) -> Result<u64, MemoryError> {
        let _ = bytes;
        Err(MemoryError("not built yet".into()))
    }

    /// Frees what begins at `address`.
    pub fn free(&self, address: u64) -> Result<(), MemoryError> {
        let _ = address;
        Ok(())
    }

    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        let _ = (address, bytes);
        Ok(())
    }

    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MemoryError> {
        let _ = (address, into);
        Ok(())
    }
}
