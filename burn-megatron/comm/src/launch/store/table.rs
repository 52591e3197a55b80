//! [`Table`]: the keys and values themselves, with their limits. Knows nothing of sockets, threads or ranks.
//!
//! Held by the server's state, and by the in-process store of a world of one.

use std::collections::HashMap;
use std::sync::Arc;

use super::protocol::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

/// Largest sum of all keys and values of a store, in bytes.
pub const MAX_STORE_BYTES: usize = 1 << 30;
/// What an entry costs in addition to its key and value: bounds the number of empty ones.
const ENTRY_BYTES: usize = 64;

/// A limit or a rule that a request breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::launch) enum TableError {
    #[error("the key has {bytes} bytes; a key has at most {MAX_KEY_BYTES}")]
    KeyTooLong { bytes: usize },
    #[error("the value of key {key:?} has {bytes} bytes; a value has at most {MAX_VALUE_BYTES}")]
    ValueTooLong { key: String, bytes: usize },
    #[error("key {key:?} would bring the store to {bytes} bytes; it holds at most {limit}: delete keys no longer used")]
    Full { key: String, bytes: usize, limit: usize },
    #[error("key {key:?} holds a value of {bytes} bytes, not a counter")]
    NotACounter { key: String, bytes: usize },
    #[error("counter {key:?} would overflow: {value} + {delta}")]
    CounterOverflow { key: String, value: i64, delta: i64 },
}

/// Keys and values.
#[derive(Debug)]
pub(in crate::launch) struct Table {
    entries: HashMap<String, Arc<[u8]>>,
    bytes: usize,
    limit: usize,
}

impl Table {
    /// Returns an empty table of at most `limit` bytes.
    pub(in crate::launch) fn new(limit: usize) -> Table {
        Table {
            entries: HashMap::new(),
            bytes: 0,
            limit,
        }
    }

    pub(in crate::launch) fn value(&self, key: &str) -> Option<Arc<[u8]>> {
        self.entries.get(key).cloned()
    }

    /// Sets a key, new or not.
    pub(in crate::launch) fn set(&mut self, key: &str, value: Arc<[u8]>) -> Result<(), TableError> {
        check_entry(key, &value)?;
        let replaced = self.entries.get(key).map_or(0, |old| entry_bytes(key, old));
        let bytes = self.bytes - replaced + entry_bytes(key, &value);
        if bytes > self.limit {
            return Err(TableError::Full {
                key: key.into(),
                bytes,
                limit: self.limit,
            });
        }
        self.entries.insert(key.into(), value);
        self.bytes = bytes;
        Ok(())
    }

    /// Adds to a counter, which begins at 0; returns its new value. A counter's value is an `i64`, little endian.
    pub(in crate::launch) fn add(&mut self, key: &str, delta: i64) -> Result<i64, TableError> {
        let value = match self.entries.get(key) {
            None => 0,
            Some(bytes) => i64::from_le_bytes(bytes[..].try_into().map_err(|_| TableError::NotACounter {
                key: key.into(),
                bytes: bytes.len(),
            })?),
        };
        let overflow = || TableError::CounterOverflow {
            key: key.into(),
            value,
            delta,
        };
        let sum = value.checked_add(delta).ok_or_else(overflow)?;
        self.set(key, Arc::new(sum.to_le_bytes()))?;
        Ok(sum)
    }

    /// Removes a key, if it exists.
    pub(in crate::launch) fn delete(&mut self, key: &str) {
        if let Some(value) = self.entries.remove(key) {
            self.bytes -= entry_bytes(key, &value);
        }
    }
}

/// Checks an entry's own limits; a client does so before it sends anything.
pub(in crate::launch) fn check_entry(key: &str, value: &[u8]) -> Result<(), TableError> {
    if key.len() > MAX_KEY_BYTES {
        return Err(TableError::KeyTooLong { bytes: key.len() });
    }
    if value.len() > MAX_VALUE_BYTES {
        return Err(TableError::ValueTooLong {
            key: key.into(),
            bytes: value.len(),
        });
    }
    Ok(())
}

fn entry_bytes(key: &str, value: &[u8]) -> usize {
    ENTRY_BYTES + key.len() + value.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_replaces_and_delete_removes() {
        let mut table = Table::new(1000);
        table.set("a", Arc::from(*b"one")).unwrap();
        table.set("a", Arc::from(*b"three")).unwrap();
        assert_eq!(table.value("a").as_deref(), Some(&b"three"[..]));
        assert_eq!(table.bytes, ENTRY_BYTES + 1 + 5);
        table.delete("a");
        table.delete("a");
        assert_eq!((table.value("a"), table.bytes), (None, 0));
    }

    #[test]
    fn counters_begin_at_zero_and_do_not_wrap() {
        let mut table = Table::new(1000);
        assert_eq!(table.add("n", 5), Ok(5));
        assert_eq!(table.add("n", -7), Ok(-2));
        assert_eq!(table.value("n").as_deref(), Some(&(-2_i64).to_le_bytes()[..]));
        let overflow = TableError::CounterOverflow {
            key: "n".into(),
            value: -2,
            delta: i64::MIN,
        };
        assert_eq!(table.add("n", i64::MIN), Err(overflow));
        table.set("text", Arc::from(*b"abc")).unwrap();
        assert_eq!(
            table.add("text", 1),
            Err(TableError::NotACounter {
                key: "text".into(),
                bytes: 3
            })
        );
    }

    #[test]
    fn limits_hold_and_name_their_values() {
        let mut table = Table::new(200);
        table.set("a", Arc::from([0; 100])).unwrap();
        let full = table.set("b", Arc::from([0; 100])).unwrap_err();
        assert_eq!(
            full,
            TableError::Full {
                key: "b".into(),
                bytes: 330,
                limit: 200
            }
        );
        table.set("a", Arc::from([0; 120])).unwrap(); // what is replaced does not count
        let long = "k".repeat(MAX_KEY_BYTES + 1);
        assert_eq!(
            table.add(&long, 1),
            Err(TableError::KeyTooLong {
                bytes: MAX_KEY_BYTES + 1
            })
        );
        assert!(check_entry("a", &vec![0; MAX_VALUE_BYTES + 1]).is_err());
    }
}
