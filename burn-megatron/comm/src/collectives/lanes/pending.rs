//! Handles of asynchronous calls: [`Pending`] for the caller, [`Completion`] for the thread that
//! runs the call.

use super::blocked_time::BlockedTime;
use crate::collectives::error::CollectiveError;
use parking_lot::{Condvar, Mutex};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A call that was started; [`wait`](Self::wait) gives its buffer back.
///
/// Dropping it does not stop the call, which still runs in its turn.
#[must_use = "the buffer comes back from `wait`"]
pub struct Pending<O> {
    slot: Arc<Slot<O>>,
    /// Counts the time spent in `wait`.
    blocked: Option<Arc<BlockedTime>>,
    awaited: Option<Awaited>,
}

/// Whether a thread waits for a call that was started ahead of its time, or for a later one in its lane, or has dropped
/// the handle of either.
#[derive(Clone, Debug)]
pub struct Awaited {
    /// All calls of the lane with lower tickets are waited for.
    up_to: Arc<AtomicU64>,
    ticket: u64,
}

impl Awaited {
    pub(in crate::collectives) fn new(up_to: Arc<AtomicU64>, ticket: u64) -> Self {
        Self { up_to, ticket }
    }

    /// Whether somebody waits.
    pub fn is_awaited(&self) -> bool {
        self.up_to.load(Ordering::Acquire) > self.ticket
    }

    pub(in crate::collectives) fn set(&self) {
        self.up_to.fetch_max(self.ticket + 1, Ordering::AcqRel);
    }
}

impl<O> Drop for Pending<O> {
    fn drop(&mut self) {
        if let Some(awaited) = &self.awaited {
            awaited.set();
        }
    }
}

struct Slot<O> {
    /// With the moment at which it was there.
    result: Mutex<Option<(Result<O, CollectiveError>, Instant)>>,
    completed: Condvar,
}

impl<O> Pending<O> {
    fn of(result: Option<(Result<O, CollectiveError>, Instant)>, blocked: Option<Arc<BlockedTime>>) -> Self {
        Pending {
            slot: Arc::new(Slot {
                result: Mutex::new(result),
                completed: Condvar::new(),
            }),
            blocked,
            awaited: None,
        }
    }

    /// Returns a handle whose result is already there.
    #[doc(hidden)]
    pub fn ready(result: Result<O, CollectiveError>) -> Self {
        Self::of(Some((result, Instant::now())), None)
    }

    /// Returns the handle of a call that times out only while it is waited for.
    pub(crate) fn ahead_of_its_time(mut self, awaited: Awaited) -> Self {
        self.awaited = Some(awaited);
        self
    }

    /// Returns a handle and the other end, which completes it. `abandoned` is the error when the
    /// other end is dropped without a result; `blocked` counts the time spent waiting.
    pub(crate) fn new(abandoned: CollectiveError, blocked: Arc<BlockedTime>) -> (Self, Completion<O>) {
        let pending = Self::of(None, Some(blocked));
        let completion = Completion {
            slot: pending.slot.clone(),
            abandoned: Some(abandoned),
        };
        (pending, completion)
    }

    /// Waits for the call and returns its buffer. Bounded, because every wait of the call is.
    ///
    /// # Errors
    /// The error of the call.
    pub fn wait(self) -> Result<O, CollectiveError> {
        if let Some(awaited) = &self.awaited {
            awaited.set();
        }
        let mut result = self.slot.result.lock();
        if let Some((result, _)) = result.take() {
            return result;
        }
        let started = Instant::now();
        loop {
            self.slot.completed.wait(&mut result);
            if let Some((result, _)) = result.take() {
                if let Some(blocked) = &self.blocked {
                    blocked.add(started.elapsed());
                }
                return result;
            }
        }
    }

    /// Returns whether [`wait`](Self::wait) would return at once.
    pub fn is_done(&self) -> bool {
        self.slot.result.lock().is_some()
    }

    /// Returns the moment at which the call was done, if it is.
    pub fn finished_at(&self) -> Option<Instant> {
        self.slot.result.lock().as_ref().map(|(_, finished)| *finished)
    }
}

impl<O> fmt::Debug for Pending<O> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Pending")
            .field("is_done", &self.is_done())
            .finish()
    }
}

/// The end of a [`Pending`] that gives it its result: on [`complete`](Self::complete), or an error
/// when dropped.
pub(crate) struct Completion<O> {
    slot: Arc<Slot<O>>,
    abandoned: Option<CollectiveError>,
}

impl<O> Completion<O> {
    /// Gives the handle its result.
    pub fn complete(mut self, result: Result<O, CollectiveError>) {
        self.abandoned = None;
        self.fill(result);
    }

    fn fill(&self, result: Result<O, CollectiveError>) {
        *self.slot.result.lock() = Some((result, Instant::now()));
        self.slot.completed.notify_all();
    }
}

impl<O> Drop for Completion<O> {
    fn drop(&mut self) {
        if let Some(error) = self.abandoned.take() {
            self.fill(Err(error));
        }
    }
}
