//! [`PendingHandshakes`]: connections of which it is not yet known whether they belong to the job.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::AbortHandle;

/// The connections whose handshake is not over, oldest first.
#[derive(Clone, Default)]
pub(super) struct PendingHandshakes {
    handles: Arc<Mutex<BTreeMap<u64, AbortHandle>>>,
}

impl PendingHandshakes {
    pub(super) fn add(&self, id: u64, handle: AbortHandle) {
        self.handles.lock().insert(id, handle);
    }

    /// Returns what the connection holds until its handshake is over.
    pub(super) fn hold(&self, id: u64) -> PendingHandshake {
        PendingHandshake { all: self.clone(), id }
    }

    /// Ends the oldest; returns false if there is none.
    pub(super) fn evict_oldest(&self) -> bool {
        let oldest = self.handles.lock().pop_first();
        oldest.inspect(|(_, handle)| handle.abort()).is_some()
    }
}

/// Held by a connection until its handshake is over.
pub(super) struct PendingHandshake {
    all: PendingHandshakes,
    id: u64,
}

impl Drop for PendingHandshake {
    fn drop(&mut self) {
        self.all.handles.lock().remove(&self.id);
    }
}
