//! [`References`]: what several trials compare with, made when it is first asked for.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;

/// What is known of a key, if it has been made.
type Slot<V> = Arc<Mutex<Option<Arc<V>>>>;

/// What came of a run, or of something else that takes long, by a key that says all of it: a layout, say.
pub struct References<K, V> {
    made: LazyLock<Mutex<HashMap<K, Slot<V>>>>,
}

impl<K, V> Default for References<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V> References<K, V> {
    pub const fn new() -> Self {
        Self {
            made: LazyLock::new(Mutex::default),
        }
    }
}

impl<K: Eq + Hash, V> References<K, V> {
    /// Returns what there is for a key; makes it unless that has succeeded before. Others who ask for the same key wait
    /// for it, and those who ask for another do not.
    pub fn of(&self, key: K, make: impl FnOnce() -> anyhow::Result<V>) -> anyhow::Result<Arc<V>> {
        let slot = self.made.lock().entry(key).or_default().clone();
        let mut made = slot.lock();
        if let Some(made) = &*made {
            return Ok(made.clone());
        }
        Ok(made.insert(Arc::new(make()?)).clone())
    }
}
