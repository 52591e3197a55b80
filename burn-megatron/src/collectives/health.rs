//! The health of a group, and bounded waiting.
//!
//! One [`GroupHealth`] per group and rank, shared by the group and its engine: it knows the first
//! cause of failure, the job's failure signal, and the bound of every wait. A wait makes a
//! [`Patience`] and asks it, again and again, whether to go on.

use super::call::{CallDescriptor, GroupLabel};
use super::error::CollectiveError;
use crate::launch::{FailureSignal, World};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Whether a group can still be used, and why not.
#[derive(Debug)]
pub(crate) struct GroupHealth {
    pub label: GroupLabel,
    failure: Option<FailureSignal>,
    pub timeout: Duration,
    first_cause: OnceLock<String>,
}

impl GroupHealth {
    /// Returns the health of a group of `world`.
    pub fn new(label: GroupLabel, world: &World) -> Self {
        Self {
            label,
            failure: Some(world.failure().clone()),
            timeout: world.timeout(),
            first_cause: OnceLock::new(),
        }
    }

    /// Returns the health of a group of one that belongs to no world.
    pub fn alone(label: GroupLabel) -> Self {
        Self {
            label,
            failure: None,
            timeout: Duration::MAX,
            first_cause: OnceLock::new(),
        }
    }

    /// Makes every further call, and every call that waits now, fail with `cause`. Returns whether
    /// this is the first cause; later ones are dropped.
    pub fn poison(&self, cause: &str) -> bool {
        self.first_cause.set(cause.to_string()).is_ok()
    }

    /// Checks that nothing has failed so far. Two loads: cheap enough for a spin loop.
    ///
    /// # Errors
    /// [`CollectiveError::Poisoned`] or [`CollectiveError::PeerFailed`].
    pub fn check(&self, call: Option<&CallDescriptor>) -> Result<(), CollectiveError> {
        if let Some(first) = self.first_cause.get() {
            return Err(CollectiveError::Poisoned {
                group: self.label.to_string(),
                call: self.label.describe_activity(call),
                first: first.clone(),
            });
        }
        match &self.failure {
            Some(signal) if signal.is_raised() => match signal.cause() {
                Some(failure) => Err(CollectiveError::PeerFailed {
                    group: self.label.to_string(),
                    call: self.label.describe_activity(call),
                    failure,
                }),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Returns the patience for a wait that starts now.
    pub fn patience<'a>(&'a self, call: Option<&'a CallDescriptor>) -> Patience<'a> {
        Patience {
            health: self,
            call,
            since: Instant::now(),
        }
    }

    /// Returns the timeout error of `call`, with the group indices of the ranks still missing.
    fn timed_out(&self, call: Option<&CallDescriptor>, missing: &[usize]) -> CollectiveError {
        CollectiveError::Timeout {
            group: self.label.to_string(),
            call: self.label.describe_activity(call),
            timeout_secs: self.timeout.as_secs_f64(),
            missing: missing.iter().map(|&peer| self.label.ranks[peer]).collect(),
        }
    }
}

/// How long one wait may still go on.
#[derive(Debug)]
pub(crate) struct Patience<'a> {
    pub health: &'a GroupHealth,
    pub call: Option<&'a CallDescriptor>,
    since: Instant,
}

impl Patience<'_> {
    /// Starts the time again, because something has moved.
    pub fn renew(&mut self) {
        self.since = Instant::now();
    }

    /// Returns the time left, at most `slice`: how long to sleep before the next check.
    pub fn slice(&self, slice: Duration) -> Duration {
        let left = self.health.timeout.saturating_sub(self.since.elapsed());
        left.min(slice)
    }

    /// Checks that the wait may go on; `missing` gives the group indices still waited for.
    ///
    /// # Errors
    /// As [`GroupHealth::check`], or [`CollectiveError::Timeout`].
    pub fn check(&self, missing: impl FnOnce() -> Vec<usize>) -> Result<(), CollectiveError> {
        self.health.check(self.call)?;
        if self.since.elapsed() < self.health.timeout {
            return Ok(());
        }
        Err(self.health.timed_out(self.call, &missing()))
    }
}
