//! Words of state: eight bytes each, zero when a launch begins, and left at zero by it.
//!
//! Invariants: two streams never share a word, nor do a stream and a captured launch; a word that a capture took is used by
//! nothing else as long as its graph may run; words are never freed before their context is, and what takes one neither
//! allocates (but for the first of many) nor waits for work of the caller's.

use std::{collections::HashMap, sync::Mutex};

use crate::Error;

/// Words of one allocation.
const CHUNK: usize = 8192;
const WORD: usize = tesserine_set::STATE_WORD as usize;

/// A device that words lie on.
pub(super) trait ZeroedForEver {
    /// The address of so many bytes of 0 that live as long as the context. May be called while this thread captures.
    fn zeroed_for_ever(&self, bytes: usize) -> Result<u64, Error>;
}

/// The words of one context.
#[derive(Debug, Default)]
pub(super) struct Words(Mutex<Pool>);

#[derive(Debug, Default)]
struct Pool {
    free: Vec<u64>,
    /// By the stream's number, which no other stream ever has.
    streams: HashMap<u64, u64>,
}

impl Words {
    /// The word of a stream's launches, which follow each other.
    pub(super) fn of_stream(&self, device: &impl ZeroedForEver, stream: u64) -> Result<u64, Error> {
        let mut pool = self.0.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(word) = pool.streams.get(&stream) {
            return Ok(*word);
        }
        let word = pool.take(device)?;
        pool.streams.insert(stream, word);
        Ok(word)
    }

    /// A word that nobody has.
    pub(super) fn take(&self, device: &impl ZeroedForEver) -> Result<u64, Error> {
        let mut pool = self.0.lock().unwrap_or_else(|e| e.into_inner());
        pool.take(device)
    }

    /// Words that no launch uses any more.
    pub(super) fn give_back(&self, words: &[u64]) {
        let mut pool = self.0.lock().unwrap_or_else(|e| e.into_inner());
        pool.free.extend(words);
    }

    /// Makes sure that the next word needs no allocation.
    pub(super) fn reserve(&self, device: &impl ZeroedForEver) -> Result<(), Error> {
        let mut pool = self.0.lock().unwrap_or_else(|e| e.into_inner());
        pool.fill(device)
    }
}

impl Pool {
    fn take(&mut self, device: &impl ZeroedForEver) -> Result<u64, Error> {
        self.fill(device)?;
        Ok(self.free.pop().expect("a pool that was filled has a word"))
    }

    fn fill(&mut self, device: &impl ZeroedForEver) -> Result<(), Error> {
        if !self.free.is_empty() {
            return Ok(());
        }
        let first = device.zeroed_for_ever(CHUNK * WORD)?;
        let words = (0..CHUNK).rev().map(|i| first + (i * WORD) as u64);
        self.free.extend(words);
        Ok(())
    }
}
