//! [`BlockedTime`]: how long callers have waited.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The time that callers have spent in blocking calls and in waiting for started ones.
#[derive(Debug, Default)]
pub(crate) struct BlockedTime {
    nanos: AtomicU64,
}

impl BlockedTime {
    pub fn add(&self, time: Duration) {
        self.nanos.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }
}
