//! The health of a group, and bounded waiting.
//!
//! One [`GroupHealth`] per group and rank, shared by the group and its engine, holds the first cause of failure, the
//! job's failure signal, and the bound of every wait. A wait makes a [`WaitDeadline`] and asks it repeatedly whether to
//! continue.

mod device;
mod notes;
mod progress;

use super::call::{CallDescriptor, GroupLabel};
use super::error::CollectiveError;
use super::lanes::pending::Awaited;
use crate::flight_recorder::{FlightRecorder, GroupRecorder};
use crate::launch::{FailureSignal, World};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::panic::Location;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use notes::Notes;

pub use device::ahead_of_time;
pub use notes::NotedWait;

/// Whether a group can still be used, and why not.
#[derive(Clone, Debug)]
pub struct GroupHealth {
    /// Which group, and which rank of it this is.
    pub label: GroupLabel,
    failure: Option<FailureSignal>,
    notes: Option<Arc<Notes>>,
    /// The last calls of all groups of this rank.
    pub flight_recorder: FlightRecorder,
    /// This group's part of it.
    pub recorder: Arc<GroupRecorder>,
    /// The longest wait.
    pub timeout: Duration,
    /// Shared with the parts of the group.
    first_cause: Arc<OnceLock<String>>,
}

impl GroupHealth {
    /// Returns the health of a group of `world`.
    pub fn new(label: GroupLabel, world: &World) -> Self {
        Self {
            failure: Some(world.failure().clone()),
            notes: Some(Arc::new(Notes::new(world))),
            timeout: world.timeout(),
            ..Self::recorded(label, world.flight_recorder().clone())
        }
    }

    /// Returns the health of a group of one that belongs to no world.
    pub fn alone(label: GroupLabel) -> Self {
        Self::recorded(label, FlightRecorder::detached())
    }

    fn recorded(label: GroupLabel, flight_recorder: FlightRecorder) -> Self {
        Self {
            recorder: flight_recorder.group(&label.name, &label.ranks),
            flight_recorder,
            label,
            failure: None,
            notes: None,
            timeout: Duration::MAX,
            first_cause: Arc::default(),
        }
    }

    /// Returns the health of a part of the group, `members` by group index: it fails with the group and the group with
    /// it.
    pub fn of_part(&self, part: &str, members: Range<usize>) -> Self {
        let label = GroupLabel {
            name: format!("{}/{part}", self.label.name).into(),
            ranks: self.label.ranks[members.clone()].into(),
            rank: self.label.rank - members.start,
        };
        Self { label, ..self.clone() }
    }

    /// Makes every further call, and every call that waits now, fail with `cause`. Returns whether
    /// this is the first cause; later ones are dropped.
    pub fn poison(&self, cause: &str) -> bool {
        self.first_cause.set(cause.to_string()).is_ok()
    }

    /// Notes which rank is responsible for `error`, if the error says so, here and where the other ranks can read it.
    /// If the program ends with this error, that rank is reported as the first cause and this one as secondary.
    pub fn suspect(&self, error: &CollectiveError, called_at: &Location<'_>) {
        let (Some(failure), Some(notes)) = (&self.failure, &self.notes) else {
            return;
        };
        let Some(suspicion) = notes.suspicion(error, called_at) else {
            return;
        };
        if !failure.is_raised() {
            notes.suspicions.accuse(suspicion);
        }
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

    /// Returns a file descriptor that can be read once a rank has failed, for waits for sockets; none where there is
    /// none.
    pub fn failure_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.failure.as_ref()?.descriptor()
    }

    /// Calls `wake` once when a rank has failed, or at once if one has: for waits for what is no file.
    pub fn on_failure(&self, wake: Box<dyn Fn() + Send + Sync>) {
        if let Some(failure) = &self.failure {
            failure.on_raise(wake);
        }
    }

    /// Returns the deadline of a wait that starts now, or when somebody waits for the call that this thread performs.
    pub fn deadline<'a>(&'a self, call: Option<&'a CallDescriptor>) -> WaitDeadline<'a> {
        WaitDeadline {
            health: self,
            call,
            since: Cell::new(Instant::now()),
            awaited: AHEAD_OF_TIME.with_borrow(Clone::clone),
            noted_after: self.noted_after(),
            note: RefCell::new(Note::NotYet),
        }
    }

    /// Returns how long a wait that starts now on this thread lasts before it is noted.
    fn noted_after(&self) -> Duration {
        let usual = self.timeout / 4;
        match notes::last_long_wait() {
            Some(end) if end.elapsed() < usual => usual.min(NOTED_AGAIN_AFTER),
            _ => usual,
        }
    }

    /// Returns the error of a call that the rank with group index `peer` has not come to, and does not any more.
    pub fn peer_left(&self, call: &CallDescriptor, peer: usize, cause: String) -> CollectiveError {
        CollectiveError::PeerLeft {
            group: self.label.to_string(),
            call: self.label.describe(call),
            rank: self.label.ranks[peer],
            cause,
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

/// What the other ranks can read of a wait.
#[derive(Debug)]
enum Note {
    /// It is too young.
    NotYet,
    /// With whom it waits for, by group index.
    Left { wait: NotedWait, missing: Vec<usize> },
    /// The same, and it stays: the wait has failed.
    Kept,
}

/// The time that one wait may still take.
///
/// A wait that has used up a quarter of its time leaves a note of the ranks that it waits for, so that a rank that
/// waits for this one and gives up first does not take this one for the rank that hangs. A wait that follows it leaves
/// a note at once: the rank that has come may not have been the last one missing.
#[derive(Debug)]
pub struct WaitDeadline<'a> {
    pub(super) health: &'a GroupHealth,
    pub(super) call: Option<&'a CallDescriptor>,
    since: Cell<Instant>,
    /// Of a call that was started ahead of its time: until somebody waits for it, no time passes.
    awaited: Option<Awaited>,
    noted_after: Duration,
    note: RefCell<Note>,
}

/// How long a wait lasts before it is noted if a noted wait has just ended. Few waits are long enough to talk to the
/// store, however many there are in a call.
const NOTED_AGAIN_AFTER: Duration = Duration::from_millis(20);

thread_local! {
    /// The call that this thread performs, if it was started ahead of its time.
    static AHEAD_OF_TIME: RefCell<Option<Awaited>> = const { RefCell::new(None) };
}

/// Performs a call whose waits have all the time in the world until somebody waits for it; a failure ends them as any
/// other.
pub(crate) fn while_ahead_of_time<R>(awaited: Awaited, perform: impl FnOnce() -> R) -> R {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            AHEAD_OF_TIME.set(None);
        }
    }
    AHEAD_OF_TIME.set(Some(awaited));
    let _reset = Reset;
    perform()
}

impl WaitDeadline<'_> {
    /// Starts the time again, because something has moved.
    pub fn renew(&mut self) {
        self.since.set(Instant::now());
        if let Note::Left { wait, .. } = self.note.get_mut() {
            wait.renew();
        }
    }

    /// Returns the time left, at most `slice`: how long to sleep before the next check.
    pub fn slice(&self, slice: Duration) -> Duration {
        let left = self.health.timeout.saturating_sub(self.since.get().elapsed());
        left.min(slice)
    }

    /// Checks that the wait may continue; `missing` gives the group indices that are still waited for.
    ///
    /// # Errors
    /// As [`GroupHealth::check`], or [`CollectiveError::Timeout`].
    pub fn check(&self, missing: impl FnOnce() -> Vec<usize>) -> Result<(), CollectiveError> {
        if let Err(error) = self.health.check(self.call) {
            self.keep_note();
            return Err(error);
        }
        if self.awaited.as_ref().is_some_and(|awaited| !awaited.is_awaited()) {
            self.since.set(Instant::now());
            return Ok(());
        }
        let waited = self.since.get().elapsed();
        if waited < self.health.timeout {
            let is_noted = !matches!(*self.note.borrow(), Note::NotYet);
            if is_noted || waited > self.noted_after {
                self.leave_note(&missing());
            }
            return Ok(());
        }
        Err(self.end(&missing()))
    }

    /// Ends the wait, for which another rank has waited too long, and returns the timeout error of its call; `missing`
    /// are the group indices of the ranks still missing.
    pub fn end(&self, missing: &[usize]) -> CollectiveError {
        self.leave_note(missing);
        self.keep_note();
        self.health.timed_out(self.call, missing)
    }

    /// Lets the others read that this wait is for `missing`, unless they do.
    fn leave_note(&self, missing: &[usize]) {
        let Some(notes) = &self.health.notes else {
            return;
        };
        let named = || notes.awaited(&self.health.label, self.call, missing);
        let mut note = self.note.borrow_mut();
        match &mut *note {
            Note::NotYet => {
                *note = Note::Left {
                    wait: NotedWait::enter(notes, self.since.get(), named()),
                    missing: missing.to_vec(),
                };
            }
            Note::Left { wait, missing: earlier } if earlier != missing => {
                wait.move_to(named());
                *earlier = missing.to_vec();
            }
            Note::Left { .. } | Note::Kept => {}
        }
    }

    fn keep_note(&self) {
        if let Note::Left { wait, .. } = self.note.replace(Note::Kept) {
            wait.keep();
        }
    }
}
