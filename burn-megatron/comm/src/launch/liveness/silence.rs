//! [`Heartbeats`]: what the store knows of one peer's heartbeats, and how long it has listened in vain.

use std::time::{Duration, Instant};

use crate::launch::store::HeartbeatStatus;

/// Pieces of a rank's limit in which the store listens to it.
const PIECES: u32 = 10;
/// Shortest piece: a rank's limit comes from outside.
const MIN_PIECE: Duration = Duration::from_millis(20);

/// The last heartbeat of a peer, and the silence since then.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::launch) struct Heartbeats {
    last: Instant,
    limit: Duration,
    progress: String,
    /// The pieces of time in which nothing came.
    silence: Duration,
}

impl Heartbeats {
    /// Returns those of a peer that is heard at the moment `now`.
    pub(in crate::launch) fn new(now: Instant, limit: Duration, progress: String) -> Heartbeats {
        Heartbeats {
            last: now,
            limit,
            progress,
            silence: Duration::ZERO,
        }
    }

    /// Returns how long to listen before [`nothing_heard`](Self::nothing_heard).
    pub(super) fn listening_time(&self) -> Duration {
        (self.limit / PIECES).max(MIN_PIECE)
    }

    /// Counts one listening time in vain.
    pub(super) fn nothing_heard(self) -> Heartbeats {
        let silence = self.silence.saturating_add(self.listening_time());
        Heartbeats { silence, ..self }
    }

    /// Returns whether the limit is reached.
    pub(super) fn is_silent(&self) -> bool {
        self.silence >= self.limit
    }

    /// Returns what other ranks may know at the moment `now`.
    pub(super) fn status(&self, now: Instant) -> HeartbeatStatus {
        HeartbeatStatus {
            silence: now.saturating_duration_since(self.last),
            limit: self.limit,
            progress: self.progress.clone(),
        }
    }
}
