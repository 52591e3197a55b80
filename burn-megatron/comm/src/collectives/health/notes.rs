//! [`Notes`]: how a rank lets the others know, through the store, whom it waits for and whom it holds responsible.

use std::cell::Cell;
use std::panic::Location;
use std::sync::Arc;
use std::time::Instant;

use crate::collectives::call::{CallDescriptor, GroupLabel};
use crate::collectives::error::CollectiveError;
use crate::launch::{DID_NOT_COME, OUT_OF_STEP, PeerFailure, Store, Suspicion, Suspicions, World, host_name};

thread_local! {
    /// When the last wait of this thread ended that was noted.
    static LAST_LONG_WAIT: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// When the last wait of this thread ended that was noted.
pub(super) fn last_long_wait() -> Option<Instant> {
    LAST_LONG_WAIT.get()
}

/// How this rank tells the others, through the store, whom it waits for.
#[derive(Debug)]
pub(super) struct Notes {
    pub(super) suspicions: Suspicions,
    pub(super) store: Store,
    pub(super) rank: usize,
    /// Identity of this rank's host.
    host: String,
}

impl Notes {
    pub(super) fn new(world: &World) -> Self {
        Self {
            suspicions: world.suspicions().clone(),
            store: world.store().clone(),
            rank: world.rank(),
            host: world.host().to_owned(),
        }
    }

    /// Returns a failure of this rank.
    pub(super) fn own_failure(&self, what: String) -> PeerFailure {
        PeerFailure::new(self.rank, self.host.clone(), what)
    }

    /// Returns whom `error` accuses, and of what; `None` if the cause is known already, or is in this rank alone.
    pub(super) fn suspicion(&self, error: &CollectiveError, called_at: &Location<'_>) -> Option<Suspicion> {
        let (me, here) = (self.rank, host_name(&self.host));
        let (rank, what) = match error {
            CollectiveError::Timeout {
                group,
                call,
                timeout_secs,
                missing,
            } => {
                let what = format!(
                    "{DID_NOT_COME}{call} of group {group}; rank {me} on host {here} waited {timeout_secs} s for it \
                     at {called_at}, still missing: ranks {missing:?}"
                );
                (missing.first()?, what)
            }
            CollectiveError::Mismatch { rank, .. } => {
                let place = if *rank == me {
                    format!("; at {called_at}")
                } else {
                    String::new()
                };
                (rank, format!("{OUT_OF_STEP}{error}{place}"))
            }
            CollectiveError::PeerLeft {
                group,
                call,
                rank,
                cause,
            } => {
                let what = format!("gave group {group} up before {call} of rank {me} at {called_at}: {cause}");
                (rank, what)
            }
            CollectiveError::ConnectionLost {
                group,
                call,
                rank,
                what,
            } => {
                let what = format!(
                    "its connection to rank {me} on host {here} broke in {call} of group {group} at {called_at}: {what}"
                );
                (rank, what)
            }
            _ => return None,
        };
        Some(Suspicion { rank: *rank, what })
    }

    /// Whom a wait in `call` is for: the ranks with the group indices `missing`.
    pub(super) fn awaited(
        &self,
        label: &GroupLabel,
        call: Option<&CallDescriptor>,
        missing: &[usize],
    ) -> Vec<Suspicion> {
        let what = format!(
            "{DID_NOT_COME}{} of group {label}, where rank {} waits for it",
            label.describe_activity(call),
            self.rank
        );
        let suspicion_of = |&peer: &usize| Suspicion {
            rank: label.ranks[peer],
            what: what.clone(),
        };
        missing.iter().map(suspicion_of).collect()
    }
}

/// A wait that the other ranks can read of.
#[derive(Debug)]
pub struct NotedWait {
    notes: Arc<Notes>,
    /// Among this rank's waits.
    number: u64,
    is_kept: bool,
}

impl NotedWait {
    /// Lets the others read that a wait has gone on since `since`, for the ranks `missing`.
    pub(super) fn enter(notes: &Arc<Notes>, since: Instant, missing: Vec<Suspicion>) -> Self {
        Self {
            number: notes.suspicions.enter(since, missing),
            notes: Arc::clone(notes),
            is_kept: false,
        }
    }

    /// Notes that it is for other ranks now.
    pub(super) fn move_to(&self, missing: Vec<Suspicion>) {
        self.notes.suspicions.move_to(self.number, missing);
    }

    /// Notes that something has moved.
    pub(super) fn renew(&self) {
        self.notes.suspicions.renew(self.number);
    }

    /// Lets it stay: the wait has failed.
    pub fn keep(mut self) {
        self.notes.suspicions.keep(self.number);
        self.is_kept = true;
    }
}

impl Drop for NotedWait {
    fn drop(&mut self) {
        if !self.is_kept {
            self.notes.suspicions.withdraw(self.number);
            LAST_LONG_WAIT.set(Some(Instant::now()));
        }
    }
}
