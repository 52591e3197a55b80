//! Buffers that are used again, all of one size.

use super::request::Words;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// Buffers that wait for their next use: the largest number that were in use at a time.
pub(super) struct Pool {
    words: usize,
    free: Mutex<Vec<Words>>,
}

impl Pool {
    /// Returns an empty pool of buffers of `bytes`.
    pub fn new(bytes: usize) -> Self {
        Self {
            words: bytes.div_ceil(size_of::<u64>()),
            free: Mutex::default(),
        }
    }

    /// Returns a buffer with anything in it.
    pub fn take(&self) -> Words {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        free.unwrap_or_else(|| vec![0; self.words])
    }

    /// Takes a buffer back.
    pub fn give(&self, words: Words) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(words);
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Pool({} bytes each)", self.words * size_of::<u64>())
    }
}
