//! Global memory: allocations at addresses of the emulator's own, with unmapped gaps between them.
//!
//! Blocks run side by side, so bytes are accessed atomically and relaxed, at the width of the access where it is aligned: a kernel that
//! races gives some mix of bytes here as it does on a device, and is no undefined behaviour of this program. Accesses of different widths
//! that race are told by the checks before anything hangs on them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering},
    },
};

/// The first address, above the windows of other spaces.
const FIRST: u64 = 0x10_0000_0000;

/// Allocations begin at multiples of it, as `cuMemAlloc`'s do.
const ALIGN: u64 = 256;

/// Unmapped bytes behind each allocation.
const GAP: u64 = 4096;

/// The most bytes that the variables of a module take.
const VARIABLES: u64 = 1 << 30;

/// The global memory of a device. Addresses are never reused while it lives, so that a freed one is told from a live one.
#[derive(Debug, Default)]
pub struct Memory {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    allocations: BTreeMap<u64, Arc<Allocation>>,
    /// Where the variables of modules lie that were launched here, by the module's number.
    variables: BTreeMap<u64, Vec<u64>>,
}

/// An access of the host's that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MemoryError(pub String);

/// Bytes of global memory.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub base: u64,
    /// As asked for; accesses beyond it are refused.
    pub size: u64,
    words: Box<[AtomicU64]>,
    /// Kernels may not write it (`.const` variables).
    pub read_only: bool,
}

impl Allocation {
    fn byte(&self, offset: u64) -> &AtomicU8 {
        debug_assert!(offset < self.size);
        let start = self.words.as_ptr().cast::<AtomicU8>();
        // SAFETY: callers pass offsets below `size`, and `words` holds at least that many bytes, which are all atomics.
        unsafe { &*start.add(offset as usize) }
    }

    /// Copies bytes out; the range must lie in the allocation.
    #[inline]
    pub(crate) fn load(&self, offset: u64, into: &mut [u8]) {
        let end = offset.checked_add(into.len() as u64);
        assert!(
            end.is_some_and(|end| end <= self.size),
            "the access was checked"
        );
        let start = self.words.as_ptr().cast::<u8>();
        match into.len() {
            2 if offset.is_multiple_of(2) => {
                // SAFETY: the range lies in `words`, all of it atomics, and is aligned to its width as `words` is to 8 bytes.
                let at = unsafe { &*start.add(offset as usize).cast::<AtomicU16>() };
                into.copy_from_slice(&at.load(Ordering::Relaxed).to_le_bytes());
            }
            4 if offset.is_multiple_of(4) => {
                // SAFETY: the range lies in `words`, all of it atomics, and is aligned to its width as `words` is to 8 bytes.
                let at = unsafe { &*start.add(offset as usize).cast::<AtomicU32>() };
                into.copy_from_slice(&at.load(Ordering::Relaxed).to_le_bytes());
            }
            n if n.is_multiple_of(8) && offset.is_multiple_of(8) => {
                let first = (offset / 8) as usize;
                for (chunk, word) in into.chunks_exact_mut(8).zip(&self.words[first..]) {
                    chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
                }
            }
            _ => {
                for (i, byte) in into.iter_mut().enumerate() {
                    *byte = self.byte(offset + i as u64).load(Ordering::Relaxed);
                }
            }
        }
    }

    /// Copies bytes in; the range must lie in the allocation.
    #[inline]
    pub(crate) fn store(&self, offset: u64, from: &[u8]) {
        let end = offset.checked_add(from.len() as u64);
        assert!(
            end.is_some_and(|end| end <= self.size),
            "the access was checked"
        );
        let start = self.words.as_ptr().cast::<u8>();
        match *from {
            [a, b] if offset.is_multiple_of(2) => {
                // SAFETY: the range lies in `words`, all of it atomics, and is aligned to its width as `words` is to 8 bytes.
                let at = unsafe { &*start.add(offset as usize).cast::<AtomicU16>() };
                at.store(u16::from_le_bytes([a, b]), Ordering::Relaxed);
            }
            [a, b, c, d] if offset.is_multiple_of(4) => {
                // SAFETY: the range lies in `words`, all of it atomics, and is aligned to its width as `words` is to 8 bytes.
                let at = unsafe { &*start.add(offset as usize).cast::<AtomicU32>() };
                at.store(u32::from_le_bytes([a, b, c, d]), Ordering::Relaxed);
            }
            _ if from.len().is_multiple_of(8) && offset.is_multiple_of(8) => {
                let first = (offset / 8) as usize;
                for (chunk, word) in from.as_chunks::<8>().0.iter().zip(&self.words[first..]) {
                    word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
                }
            }
            _ => {
                for (i, byte) in from.iter().enumerate() {
                    self.byte(offset + i as u64).store(*byte, Ordering::Relaxed);
                }
            }
        }
    }

    /// Replaces up to 8 bytes inside one aligned word by what `change` makes of them, at once; gives the old ones.
    pub(crate) fn update(
        &self,
        offset: u64,
        bytes: u32,
        mut change: impl FnMut(u64) -> u64,
    ) -> u64 {
        let word = &self.words[(offset / 8) as usize];
        let shift = offset % 8 * 8;
        let mask = if bytes >= 8 {
            u64::MAX
        } else {
            ((1 << (8 * bytes)) - 1) << shift
        };
        let mut old = word.load(Ordering::SeqCst);
        loop {
            let part = (old & mask) >> shift;
            let new = old & !mask | (change(part) << shift) & mask;
            match word.compare_exchange_weak(old, new, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return part,
                Err(now) => old = now,
            }
        }
    }
}

impl Memory {
    pub fn new() -> Memory {
        Memory::default()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// `bytes` bytes at an address that is a multiple of 256; their contents are unspecified. 0 bytes get an address of their own too.
    pub fn allocate(&self, bytes: usize) -> Result<u64, MemoryError> {
        self.add(bytes, false)
    }

    fn add(&self, bytes: usize, read_only: bool) -> Result<u64, MemoryError> {
        let mut words = Vec::new();
        let count = bytes.div_ceil(8);
        if words.try_reserve_exact(count).is_err() {
            return Err(MemoryError(format!("there is no memory for {bytes} bytes")));
        }
        words.resize_with(count, || AtomicU64::new(0));
        let mut state = self.lock();
        let base = FIRST + state.next;
        state.next += (bytes as u64).next_multiple_of(ALIGN) + GAP;
        let allocation = Allocation {
            base,
            size: bytes as u64,
            words: words.into(),
            read_only,
        };
        state.allocations.insert(base, Arc::new(allocation));
        Ok(base)
    }

    /// Frees what begins at `address`.
    pub fn free(&self, address: u64) -> Result<(), MemoryError> {
        let freed = self.lock().allocations.remove(&address);
        freed
            .map(|_| ())
            .ok_or_else(|| MemoryError(format!("no allocation begins at {address:#x}")))
    }

    fn find(&self, address: u64, bytes: usize) -> Result<(Arc<Allocation>, u64), MemoryError> {
        let state = self.lock();
        let found = state.allocations.range(..=address).next_back();
        match found {
            Some((base, a)) if address - base + bytes as u64 <= a.size => {
                Ok((a.clone(), address - base))
            }
            _ => Err(MemoryError(format!(
                "{bytes} bytes at {address:#x} lie in no allocation"
            ))),
        }
    }

    /// Copies bytes to `address`, which may lie inside an allocation.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        let (allocation, offset) = self.find(address, bytes.len())?;
        // In pieces that are copied by words where they can be.
        let whole = bytes.len() / 8 * 8;
        allocation.store(offset, &bytes[..whole]);
        allocation.store(offset + whole as u64, &bytes[whole..]);
        Ok(())
    }

    /// Copies bytes from `address`.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MemoryError> {
        let (allocation, offset) = self.find(address, into.len())?;
        let whole = into.len() / 8 * 8;
        allocation.load(offset, &mut into[..whole]);
        allocation.load(offset + whole as u64, &mut into[whole..]);
        Ok(())
    }

    /// Live allocations, by address.
    pub(crate) fn allocations(&self) -> Vec<Arc<Allocation>> {
        self.lock().allocations.values().cloned().collect()
    }

    /// The addresses of a module's variables here, made with their initial bytes at the first call.
    pub(crate) fn variables(
        &self,
        module: u64,
        make: &[(u64, Option<&[u8]>, bool)],
    ) -> Result<Vec<u64>, MemoryError> {
        if let Some(addresses) = self.lock().variables.get(&module) {
            return Ok(addresses.clone());
        }
        let total = make
            .iter()
            .fold(0, |n: u64, (size, ..)| n.saturating_add(*size));
        if total > VARIABLES {
            let message = format!("{total} bytes of variables: a module has at most {VARIABLES}");
            return Err(MemoryError(message));
        }
        let mut addresses = Vec::new();
        for (size, initial, read_only) in make {
            let address = self.add(*size as usize, *read_only)?;
            if let Some(bytes) = initial {
                self.write(address, bytes)?;
            }
            addresses.push(address);
        }
        self.lock().variables.insert(module, addresses.clone());
        Ok(addresses)
    }
}
