//! The health of a group, and bounded waiting.
//!
//! One [`GroupHealth`] per group and rank, shared by the group and its engine, holds the first cause of failure, the
//! job's failure signal, and the bound of every wait. A wait makes a [`WaitDeadline`] and asks it repeatedly whether to
//! continue.

mod device;
mod progress;

use super::call::{CallDescriptor, GroupLabel};
use super::error::CollectiveError;
use super::pending::Awaited;
use crate::flight_recorder::{FlightRecorder, GroupRecorder};
use crate::launch::{DID_NOT_COME, FailureSignal, OUT_OF_STEP, PeerFailure, Store, Suspicions, World, host_name};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::panic::Location;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

pub use device::{NotedWait, ahead_of_time};

/// Whether a group can still be used, and why not.
#[derive(Debug)]
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
        let flight_recorder = world.flight_recorder().clone();
        Self {
            recorder: flight_recorder.group(&label.name, &label.ranks),
            flight_recorder,
            label,
            failure: Some(world.failure().clone()),
            notes: Some(Arc::new(Notes::new(world))),
            timeout: world.timeout(),
            first_cause: Arc::default(),
        }
    }

    /// Returns the health of a group of one that belongs to no world.
    pub fn alone(label: GroupLabel) -> Self {
        let flight_recorder = FlightRecorder::detached();
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
        Self {
            label,
            failure: self.failure.clone(),
            notes: self.notes.clone(),
            flight_recorder: self.flight_recorder.clone(),
            recorder: self.recorder.clone(),
            timeout: self.timeout,
            first_cause: self.first_cause.clone(),
        }
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
        match LAST_LONG_WAIT.get() {
            Some(end) if end.elapsed() < usual => usual.min(NOTED_AGAIN_AFTER),
            _ => usual,
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

/// How this rank tells the others, through the store, whom it waits for.
#[derive(Debug)]
struct Notes {
    suspicions: Suspicions,
    store: Store,
    rank: usize,
    hosts: Arc<[String]>,
}

impl Notes {
    fn new(world: &World) -> Self {
        Self {
            suspicions: world.suspicions().clone(),
            store: world.store().clone(),
            rank: world.rank(),
            hosts: (0..world.world_size())
                .map(|rank| world.host_of(rank).to_string())
                .collect(),
        }
    }

    fn failure_of(&self, rank: usize, what: String) -> Option<PeerFailure> {
        let host = self.hosts.get(rank)?.clone();
        Some(PeerFailure { rank, host, what })
    }

    /// Returns whom `error` accuses, and of what; `None` if the cause is known already, or is in this rank alone.
    fn suspicion(&self, error: &CollectiveError, called_at: &Location<'_>) -> Option<PeerFailure> {
        let (me, here) = (self.rank, host_name(&self.hosts[self.rank]));
        match error {
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
                self.failure_of(*missing.first()?, what)
            }
            CollectiveError::Mismatch { rank, .. } => {
                let place = if *rank == me {
                    format!("; at {called_at}")
                } else {
                    String::new()
                };
                self.failure_of(*rank, format!("{OUT_OF_STEP}{error}{place}"))
            }
            CollectiveError::PeerLeft {
                group,
                call,
                rank,
                cause,
            } => {
                let what = format!("gave group {group} up before {call} of rank {me} at {called_at}: {cause}");
                self.failure_of(*rank, what)
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
                self.failure_of(*rank, what)
            }
            _ => None,
        }
    }

    /// Whom a wait in `call` is for: the ranks with the group indices `missing`.
    fn awaited(&self, label: &GroupLabel, call: Option<&CallDescriptor>, missing: &[usize]) -> Vec<PeerFailure> {
        let what = format!(
            "{DID_NOT_COME}{} of group {label}, where rank {} waits for it",
            label.describe_activity(call),
            self.rank
        );
        let failure_of = |&peer: &usize| self.failure_of(label.ranks[peer], what.clone());
        missing.iter().filter_map(failure_of).collect()
    }
}

/// What the other ranks can read of a wait.
#[derive(Debug)]
enum Note {
    /// It is too young.
    NotYet,
    /// Whom it waits for, by group index, and its number among this rank's waits.
    Left { number: u64, missing: Vec<usize> },
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
    /// When the last wait of this thread ended that was noted.
    static LAST_LONG_WAIT: Cell<Option<Instant>> = const { Cell::new(None) };
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
        if let (Note::Left { number, .. }, Some(notes)) = (self.note.get_mut(), &self.health.notes) {
            notes.suspicions.renew(*number);
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
        let missing = missing();
        self.leave_note(&missing);
        self.keep_note();
        Err(self.health.timed_out(self.call, &missing))
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
                    number: notes.suspicions.enter(self.since.get(), named()),
                    missing: missing.to_vec(),
                };
            }
            Note::Left {
                number,
                missing: earlier,
            } if earlier != missing => {
                notes.suspicions.move_to(*number, named());
                *earlier = missing.to_vec();
            }
            Note::Left { .. } | Note::Kept => {}
        }
    }

    fn keep_note(&self) {
        if let (Note::Left { number, .. }, Some(notes)) = (self.note.replace(Note::Kept), &self.health.notes) {
            notes.suspicions.keep(number);
        }
    }
}

impl Drop for WaitDeadline<'_> {
    fn drop(&mut self) {
        if let (Note::Left { number, .. }, Some(notes)) = (self.note.get_mut(), &self.health.notes) {
            notes.suspicions.withdraw(*number);
            LAST_LONG_WAIT.set(Some(Instant::now()));
        }
    }
}
