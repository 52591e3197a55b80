//! What all clones of a group share: the engine, the order of calls, the first failure.
//!
//! `process_group` checks and types the calls; here they get their place in a [`Lane`], run, and
//! poison the group when they fail.

use super::call::{CallDescriptor, Operation};
use super::device_engine::DeviceEngine;
use super::engines::engine::Engine;
use super::error::CollectiveError;
use super::health::{GroupHealth, while_ahead_of_time};
use super::lanes::blocked_time::BlockedTime;
use super::lanes::lane::Lane;
use super::lanes::owner::{Intrusion, LaneOwner};
use super::lanes::pending::Pending;
use crate::flight_recorder::{CallNote, GroupRecorder};
use crate::launch::EndsWithWorld;
use std::ops::Deref;
use std::panic::Location;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long the drop of a group waits for calls that were started and not waited for.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);
/// How long it then waits for a call that was asked to stop.
const STOP_LIMIT: Duration = Duration::from_secs(1);

/// A call in the flight recorder, and who made it.
#[derive(Clone, Debug)]
pub struct Made {
    /// Its number in the flight recorder.
    pub number: u64,
    at: &'static Location<'static>,
    note: Option<Arc<str>>,
}

/// The engine of a group and the calls on their way to it.
#[derive(Debug)]
pub struct GroupCore {
    /// Whether the group can still be used.
    pub health: Arc<GroupHealth>,
    /// What moves the bytes of host memory.
    pub engine: Arc<dyn Engine>,
    /// What takes calls on the memory of a device, once there is one.
    pub device: OnceLock<Box<dyn DeviceEngine>>,
    pub(super) blocked: Arc<BlockedTime>,
    collectives: Arc<Lane>,
    /// By group index of the receiver, once there is a call.
    sends: Vec<OnceLock<Arc<Lane>>>,
    /// By group index of the sender, once there is a call.
    receives: Vec<OnceLock<Arc<Lane>>>,
}

impl GroupCore {
    /// Returns the core of a group without calls, whose collectives are this thread's.
    pub fn new(health: Arc<GroupHealth>, engine: Arc<dyn Engine>) -> Self {
        let lanes = || health.label.ranks.iter().map(|_| OnceLock::new()).collect();
        Self {
            collectives: Lane::new(LaneOwner::this_thread()),
            sends: lanes(),
            receives: lanes(),
            blocked: Arc::default(),
            device: OnceLock::new(),
            health,
            engine,
        }
    }

    /// Runs a call on this thread, after the calls of its lane made before it. `note` is what the caller calls it.
    #[track_caller]
    pub fn run<R>(
        &self,
        call: CallDescriptor,
        note: Option<&Arc<str>>,
        operate: impl FnOnce(&dyn Engine, &CallDescriptor) -> Result<R, CollectiveError>,
    ) -> Result<R, CollectiveError> {
        let started = Instant::now();
        let result = self.queue(call, note, until_done(&*self.health.recorder, operate));
        self.blocked.add(started.elapsed());
        result
    }

    /// Starts a call on the lane's thread; in a group of one runs it at once.
    #[track_caller]
    pub fn start<O: Send + 'static>(
        self: &Arc<Self>,
        call: CallDescriptor,
        note: Option<&Arc<str>>,
        operate: impl FnOnce(&dyn Engine, &CallDescriptor) -> Result<O, CollectiveError> + Send + 'static,
    ) -> Pending<O> {
        if self.health.label.size() == 1 {
            return Pending::ready(self.run(call, note, operate));
        }
        self.queue_start(call, note, until_done(self.health.recorder.clone(), operate))
    }

    /// Queues a call on the device, in its place among the calls of its lane. `queue` gets the call with its number,
    /// and says to the flight recorder itself when it is done.
    #[track_caller]
    pub fn queue<R>(
        &self,
        call: CallDescriptor,
        note: Option<&Arc<str>>,
        queue: impl FnOnce(&dyn Engine, CallDescriptor, &Made) -> Result<R, CollectiveError>,
    ) -> Result<R, CollectiveError> {
        let made = self.record(&call, note, Location::caller());
        self.admit(&call, &made)?;
        let lane = self.lane(&call);
        lane.run(|ticket| self.perform(ticket, call, made, queue))
    }

    /// As [`queue`](Self::queue), on the lane's thread: it may wait until another rank is ready too.
    #[track_caller]
    pub fn queue_start<R: Send + 'static>(
        self: &Arc<Self>,
        call: CallDescriptor,
        note: Option<&Arc<str>>,
        queue: impl FnOnce(&dyn Engine, CallDescriptor, &Made) -> Result<R, CollectiveError> + Send + 'static,
    ) -> Pending<R> {
        let made = self.record(&call, note, Location::caller());
        if let Err(error) = self.admit(&call, &made) {
            return Pending::ready(Err(error));
        }
        let label = &self.health.label;
        let abandoned = CollectiveError::Poisoned {
            group: label.to_string(),
            call: label.describe(&call),
            first: "the communication thread panicked".to_string(),
        };
        let (pending, completion) = Pending::new(abandoned, self.blocked.clone());
        // A receive may be started long before its message is needed, and is late only when somebody waits for it.
        let is_ahead = call.operation == Operation::Recv;
        let lane = self.lane(&call).clone();
        let (core, own_lane) = (self.clone(), lane.clone());
        let performed = made.clone();
        let job = move |ticket| {
            let awaited = own_lane.awaited(ticket);
            let perform = || core.perform(ticket, call, performed, queue);
            completion.complete(if is_ahead {
                while_ahead_of_time(awaited, perform)
            } else {
                perform()
            });
        };
        let thread_name = format!("collectives {}", label.name);
        match lane.submit(&thread_name, Box::new(job)) {
            Ok(ticket) => {
                self.health.recorder.numbered(made.number, ticket);
                if is_ahead {
                    pending.ahead_of_its_time(lane.awaited(ticket))
                } else {
                    pending
                }
            }
            Err(source) => {
                let error = CollectiveError::Setup {
                    group: label.to_string(),
                    what: "start the communication thread".to_string(),
                    source,
                };
                Pending::ready(Err(self.fail(error, &made)))
            }
        }
    }

    /// Poisons the group with `error`, and raises the job's failure signal with its first cause: what this rank has
    /// computed since may be worthless, so that no call of any group may use it.
    pub fn fail_everything(&self, error: CollectiveError, made: &Made) {
        let error = self.fail(error, made);
        self.health.raise(&error);
    }

    /// Refuses every further call on this rank, and lets the others know, unless the group has failed.
    pub fn give_up(&self, cause: &str) {
        if self.health.poison(cause) {
            self.engine.leave(cause);
        }
    }

    /// Ends the group on this rank: lets started calls finish, for a bounded time, then stops them.
    pub fn shut_down(&self) {
        let limit = DRAIN_LIMIT.min(self.health.timeout);
        // A panic is no time to wait for others.
        let limit = if std::thread::panicking() {
            Duration::ZERO
        } else {
            limit
        };
        let deadline = Instant::now() + limit;
        let finished = self.lanes().all(|lane| lane.drain(deadline));
        if let Some(device) = self.device.get() {
            device.stop(deadline);
        }
        // Ends what lanes wait for, on the device too.
        let is_first = self.health.poison("it was dropped on this rank");
        if let Some(device) = self.device.get() {
            device.close();
        }
        if is_first {
            let progress = self.health.flight_recorder.progress();
            let progress = progress.map_or(String::new(), |progress| {
                format!(", when that rank had made {progress}")
            });
            self.engine.leave(&format!("it was dropped there{progress}"));
        }
        if !finished {
            let deadline = Instant::now() + STOP_LIMIT;
            self.lanes().for_each(|lane| _ = lane.drain(deadline));
        }
        self.lanes().for_each(|lane| lane.close());
    }

    fn lanes(&self) -> impl Iterator<Item = &Arc<Lane>> {
        let transfers = self.sends.iter().chain(&self.receives);
        std::iter::once(&self.collectives).chain(transfers.filter_map(OnceLock::get))
    }

    fn lane(&self, call: &CallDescriptor) -> &Arc<Lane> {
        let transfers = match (call.operation, call.peer) {
            (Operation::Send, Some(peer)) => &self.sends[peer],
            (Operation::Recv, Some(peer)) => &self.receives[peer],
            _ => return &self.collectives,
        };
        transfers.get_or_init(|| Lane::new(LaneOwner::first_caller()))
    }

    /// Lets the calls that are this thread's be those of the next thread that makes one.
    pub fn hand_over(&self) {
        self.lanes().for_each(|lane| lane.owner.hand_over());
    }

    /// Checks that this thread may make a call. In a group of one there is nothing that another thread could mix up.
    fn admit(&self, call: &CallDescriptor, made: &Made) -> Result<(), CollectiveError> {
        if self.health.label.size() == 1 {
            return Ok(());
        }
        self.lane(call).owner.admit(call, made.at).map_err(|intrusion| {
            let failed_before = self.health.check(Some(call)).err();
            let error = failed_before.unwrap_or_else(|| self.refused(call, made, intrusion));
            self.fail(error, made)
        })
    }

    /// Returns the error of a call that another thread than the owner of its lane has made.
    fn refused(&self, call: &CallDescriptor, made: &Made, intrusion: Intrusion) -> CollectiveError {
        let label = &self.health.label;
        let owner_did = match (&intrusion.last_call, intrusion.owner_has_ended) {
            (None, _) => "connected the group and has not handed them over".to_string(),
            (Some(last), false) => format!("last called {} at {}", label.describe_kind(&last.call), last.at),
            (Some(last), true) => format!(
                "last called {} at {} and has ended without handing them over",
                label.describe_kind(&last.call),
                last.at
            ),
        };
        CollectiveError::OtherThread {
            group: label.to_string(),
            thread: format!("{} of rank {}", intrusion.thread, label.ranks[label.rank]).into(),
            call: format!("{} at {}", label.describe_kind(call), made.at),
            calls: match (call.operation, call.peer) {
                (Operation::Send, Some(peer)) => format!("sends to rank {}", label.ranks[peer]),
                (Operation::Recv, Some(peer)) => format!("receives from rank {}", label.ranks[peer]),
                _ => "collectives".to_string(),
            }
            .into(),
            owner: format!("{}, which {owner_did}", intrusion.owner).into(),
        }
    }

    /// Lets a call be done or queued, in its turn; `perform` gets it with its number, and notes when it is done.
    fn perform<R>(
        &self,
        ticket: u64,
        call: CallDescriptor,
        made: Made,
        perform: impl FnOnce(&dyn Engine, CallDescriptor, &Made) -> Result<R, CollectiveError>,
    ) -> Result<R, CollectiveError> {
        let call = CallDescriptor {
            sequence: ticket,
            ..call
        };
        let _guard = PanicGuard { core: self };
        let recorder = &self.health.recorder;
        if let Err(error) = self.health.check(Some(&call)) {
            recorder.numbered(made.number, ticket);
            return Err(self.fail(error, &made));
        }
        recorder.started(made.number, ticket);
        perform(&*self.engine, call, &made).map_err(|error| self.fail(error, &made))
    }

    /// Poisons the group with `error`, unless it is already.
    fn fail(&self, error: CollectiveError, made: &Made) -> CollectiveError {
        let error = match &made.note {
            Some(note) => error.noted(note),
            None => error,
        };
        let error = self.health.with_progress(error, made.note.as_deref());
        let cause = error.to_string();
        self.health.recorder.failed(made.number, &cause);
        if self.health.poison(&cause) {
            self.engine.leave(&cause);
            self.health.suspect(&error, made.at);
            self.health.flight_recorder.write_failure(&cause);
        }
        error
    }

    /// Enters a call into the flight recorder.
    fn record(&self, call: &CallDescriptor, note: Option<&Arc<str>>, at: &'static Location<'static>) -> Made {
        let described = CallNote {
            operation: call.operation.name(),
            reduce_op: call.reduce_op.map(|op| op.name()),
            element_type: call.element_type.name(),
            length: call.length,
            peer: call.peer.map(|peer| self.health.label.ranks[peer]),
        };
        let number = self.health.recorder.queued(described, at, note.cloned());
        Made {
            number,
            at,
            note: note.cloned(),
        }
    }
}

impl EndsWithWorld for GroupCore {
    fn end(&self) {
        self.shut_down();
    }
}

/// Carries a call out, then notes that it is done.
fn until_done<R>(
    recorder: impl Deref<Target = GroupRecorder>,
    operate: impl FnOnce(&dyn Engine, &CallDescriptor) -> Result<R, CollectiveError>,
) -> impl FnOnce(&dyn Engine, CallDescriptor, &Made) -> Result<R, CollectiveError> {
    move |engine: &dyn Engine, call: CallDescriptor, made: &Made| {
        let result = operate(engine, &call)?;
        recorder.done(made.number);
        Ok(result)
    }
}

/// Poisons the group when a call panics: the engine is then between two states.
struct PanicGuard<'a> {
    core: &'a GroupCore,
}

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() && self.core.health.poison("a call panicked on this rank") {
            self.core.engine.leave("a call panicked there");
        }
    }
}
