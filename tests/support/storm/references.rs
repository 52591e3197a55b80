//! [`References`]: undisturbed runs, made when they are first asked for.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An undisturbed run, if it has been made.
type Slot<V> = Arc<Mutex<Option<Arc<V>>>>;

/// What came of the undisturbed run of each layout.
pub struct References<K, V> {
    runs: Mutex<HashMap<K, Slot<V>>>,
}

impl<K, V> Default for References<K, V> {
    fn default() -> Self {
        Self { runs: Mutex::default() }
    }
}

impl<K: Eq + Hash, V> References<K, V> {
    /// Returns what came of the run of a layout; makes the run unless one has succeeded. Others who ask for the same
    /// layout wait for it, and those who ask for another do not.
    pub fn of(&self, layout: K, run: impl FnOnce() -> anyhow::Result<V>) -> anyhow::Result<Arc<V>> {
        let slot = lock(&self.runs).entry(layout).or_default().clone();
        let mut made = lock(&slot);
        if let Some(run) = &*made {
            return Ok(run.clone());
        }
        Ok(made.insert(Arc::new(run()?)).clone())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
