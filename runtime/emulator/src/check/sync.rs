//! What was released at each address of synchronizing accesses, for acquires of its value.
//!
//! Memory here has one order of all accesses of an address, so a read takes its value, and what was released with it, from the last write
//! (PTX ISA §8.8, Release and Acquire Patterns). A read-modify-write goes on with the release of the value that it read; a store ends it.
//!
//! Invariants: an address's token is what its present value carries, as long as values change while the lock of their entry is held.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::order::Token;

const SHARDS: usize = 64;

/// Tokens by address: of global memory, one table a launch; of shared memory, one a block, or one a cluster with offsets told apart.
#[derive(Debug)]
pub(crate) struct SyncTable {
    shards: Vec<Mutex<HashMap<u64, Token>>>,
}

/// An address's token, and its lock: change or read the value in memory while this lives.
pub(crate) struct Entry<'a> {
    shard: MutexGuard<'a, HashMap<u64, Token>>,
    address: u64,
}

impl Default for SyncTable {
    fn default() -> SyncTable {
        SyncTable::new()
    }
}

impl SyncTable {
    pub(crate) fn new() -> SyncTable {
        SyncTable {
            shards: std::iter::repeat_with(Mutex::default)
                .take(SHARDS)
                .collect(),
        }
    }

    /// Locks an address.
    pub(crate) fn lock(&self, address: u64) -> Entry<'_> {
        // Counters often lie a line apart; neighbours should not share a lock, either.
        let mixed = (address >> 2).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58;
        let shard = self.shards[mixed as usize % SHARDS].lock();
        Entry {
            shard: shard.unwrap_or_else(PoisonError::into_inner),
            address,
        }
    }
}

impl Entry<'_> {
    /// What a load of the value acquires, if anything was released with it.
    pub(crate) fn token(&self) -> Option<&Token> {
        self.shard.get(&self.address)
    }

    /// A store: what it releases takes the place of what was released before; nothing, for a relaxed store without a fence.
    pub(crate) fn store(&mut self, token: Option<Token>) {
        match token {
            Some(mut token) => {
                token.seal();
                self.shard.insert(self.address, token);
            }
            None => {
                self.shard.remove(&self.address);
            }
        }
    }

    /// A read-modify-write that releases: adds to what the value carries.
    pub(crate) fn update(&mut self, token: &Token) {
        let held = self.shard.entry(self.address).or_default();
        held.merge(token);
        held.seal();
    }
}
