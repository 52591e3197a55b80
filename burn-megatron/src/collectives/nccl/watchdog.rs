//! [`Watchdog`]: a thread that waits for what a group has on its way over NCCL.
//!
//! It keeps the memory of calls that nothing on the device waits for, such as sends, until the GPU is done with it. It
//! notes finished calls in the flight recorder, and watches the time, NCCL's own errors, ranks that have left the group
//! and the job's failure signal. When one of them indicates a failure, it raises the failure signal, so that every call
//! of every group fails from then on, and then aborts everything that hangs, so that the GPU continues. The results of
//! aborted calls are worthless; a program that reads one and makes no further call does not learn of it.
//!
//! # Whose fault it is
//!
//! A call counts as waiting for the others once the GPU has reached it and, if it was started ahead of its time, a
//! caller waits for it. Only the GPU knows which of the others it waits for, so a long wait leaves a note that names
//! them all; the notes of the engines for host memory name only the missing ones. The rank that does not come leaves no
//! note: the notes of all the others lead to it, and the failure signal is raised with its name.

use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use burn_megatron_comm::collectives::device::{Awaited, GroupCore, GroupHealth, Made, NotedWait};

use super::communicator::{ABORT_LIMIT, Communicator};
use super::order::{Event, driver_message};
use super::place::CallMemory;
use crate::collectives::{CallDescriptor, CollectiveError};

/// Time between two looks at what is on its way.
const SLICE: Duration = Duration::from_millis(1);
/// Time between two questions for NCCL's own errors, and for ranks that have left.
const ERROR_SLICE: Duration = Duration::from_millis(100);
/// How long after an error of NCCL's the job may take to tell which rank has failed.
const CAUSE_LIMIT: Duration = Duration::from_secs(3);
/// How long after a rank has left its part of a call may still be on its way.
const LEFT_LIMIT: Duration = Duration::from_secs(3);

/// A call on its way.
pub(super) struct Watched {
    pub call: CallDescriptor,
    pub made: Made,
    pub communicator: Arc<Communicator>,
    /// An event before the call. Until it completes, the call waits only for this rank's own GPU.
    pub launched: Event,
    /// An event after the call.
    pub done: Arc<Event>,
    /// Of a call that was started ahead of its time.
    pub awaited: Option<Awaited>,
    /// What the call reads and writes, unless the device's work waits for it.
    #[expect(dead_code, reason = "kept until the GPU is done with it")]
    pub memory: Arc<CallMemory>,
}

/// A command to the thread.
enum Command {
    Watch(Box<Watched>),
    /// Ends the thread once nothing is in flight, and at the given time at the latest.
    End(Instant),
}

/// The thread's other end.
#[derive(Debug)]
pub(super) struct Watchdog {
    commands: Option<Sender<Command>>,
    ended: Option<Receiver<()>>,
}

/// The end of the thread, which is to come.
#[derive(Debug)]
pub(super) struct Ending {
    ended: Receiver<()>,
    at: Instant,
}

impl Ending {
    /// Waits for it; no longer than NCCL may take to end what hangs.
    pub fn wait(self) {
        let limit = self.at.saturating_duration_since(Instant::now()) + ABORT_LIMIT;
        if let Err(RecvTimeoutError::Timeout) = self.ended.recv_timeout(limit) {
            tracing::warn!("NCCL does not end what hangs; it is left alone");
        }
    }
}

impl Watchdog {
    /// Starts the thread, for the calls of a group.
    ///
    /// # Errors
    /// When there can be no such thread.
    pub fn start(core: &Arc<GroupCore>) -> std::io::Result<Self> {
        let (commands, received) = mpsc::channel();
        let (ends, ended) = mpsc::channel();
        let (health, weak) = (core.health.clone(), Arc::downgrade(core));
        let name = format!("NCCL {}", health.label.name);
        let watch = move || {
            let _ends = ends;
            Watch {
                health,
                core: weak,
                pending: Vec::new(),
                looked_for_errors: Instant::now(),
                deadline: None,
            }
            .run(&received);
        };
        std::thread::Builder::new().name(name).spawn(watch)?;
        Ok(Self {
            commands: Some(commands),
            ended: Some(ended),
        })
    }

    /// Hands over a call that is on its way.
    ///
    /// # Errors
    /// The call, when the thread is ending.
    pub fn watch(&self, watched: Watched) -> Result<(), Box<Watched>> {
        let command = Command::Watch(Box::new(watched));
        let refused = match &self.commands {
            Some(commands) => commands.send(command).err().map(|error| error.0),
            None => Some(command),
        };
        match refused {
            Some(Command::Watch(watched)) => Err(watched),
            _ => Ok(()),
        }
    }

    /// Lets the thread end when nothing is on its way any more, at `deadline` at the latest.
    pub fn end(&mut self, deadline: Instant) -> Option<Ending> {
        // It may have panicked, and then has ended.
        let _ = self.commands.take()?.send(Command::End(deadline));
        Some(Ending {
            ended: self.ended.take()?,
            at: deadline,
        })
    }
}

/// The first error, and the making of the call that it is about.
type Failure = Box<(CollectiveError, Made)>;

/// The thread.
struct Watch {
    health: Arc<GroupHealth>,
    core: Weak<GroupCore>,
    pending: Vec<Queue>,
    looked_for_errors: Instant,
    deadline: Option<Instant>,
}

impl Watch {
    fn run(mut self, commands: &Receiver<Command>) {
        loop {
            self.wait_for_command(commands);
            if self.deadline.is_some() && self.is_idle() {
                return;
            }
            if self.is_over() {
                let why = "the group was dropped with calls on their way";
                tracing::warn!(group = %self.health.label, "{why}: their results are worthless");
                self.end_all(why);
                return;
            }
            if let Err(failure) = self.look() {
                // The command that the group is being dropped comes before its calls fail for that reason, which is no
                // failure of the job.
                self.drain(commands);
                if self.is_over() {
                    continue;
                }
                // Reported first: once the hanging calls are aborted, the program continues with worthless results.
                let (error, made) = *failure;
                let why = error.to_string();
                if let Some(core) = self.core.upgrade() {
                    core.fail_everything(error, &made);
                }
                self.end_all(&why);
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.pending.iter().all(|queue| queue.calls.is_empty())
    }

    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|end| Instant::now() >= end)
    }

    /// Waits for a command: until it is time for a look, or, where there is nothing to look at, as long as it takes.
    fn wait_for_command(&mut self, commands: &Receiver<Command>) {
        if self.is_idle() && self.deadline.is_none() {
            match commands.recv() {
                Ok(command) => self.apply(command),
                Err(_) => self.deadline = Some(Instant::now()),
            }
        } else {
            match commands.recv_timeout(SLICE) {
                Ok(command) => self.apply(command),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.deadline.get_or_insert_with(Instant::now);
                    std::thread::sleep(SLICE);
                }
            }
        }
        self.drain(commands);
    }

    fn drain(&mut self, commands: &Receiver<Command>) {
        while let Ok(command) = commands.try_recv() {
            self.apply(command);
        }
    }

    fn apply(&mut self, command: Command) {
        match command {
            Command::Watch(watched) => self.add(*watched),
            Command::End(deadline) => self.deadline = Some(deadline),
        }
    }

    fn add(&mut self, watched: Watched) {
        let same = |queue: &&mut Queue| Arc::ptr_eq(&queue.communicator, &watched.communicator);
        if let Some(queue) = self.pending.iter_mut().find(same) {
            if queue.calls.is_empty() {
                queue.restart_clock();
            }
            queue.calls.push_back(watched);
            return;
        }
        if let Err(error) = watched.communicator.context.make_current() {
            tracing::warn!("the watchdog does not get the device's context: {error}");
        }
        self.pending.push(Queue {
            communicator: watched.communicator.clone(),
            calls: VecDeque::from([watched]),
            since: Instant::now(),
            noted: None,
            left: None,
        });
    }

    /// Takes away what is done.
    fn look(&mut self) -> Result<(), Failure> {
        let looks_for_errors = self.looked_for_errors.elapsed() > ERROR_SLICE;
        if looks_for_errors {
            self.looked_for_errors = Instant::now();
        }
        for queue in &mut self.pending {
            queue.take_away_done(&self.health)?;
            queue.look(&self.health)?;
            if looks_for_errors {
                queue.look_for_errors(&self.health, &self.core)?;
            }
        }
        Ok(())
    }

    /// Ends all communicators with calls on their way, side by side, for the end of one may wait for what hangs in
    /// another; and forgets the calls.
    fn end_all(&mut self, why: &str) {
        std::thread::scope(|scope| {
            for queue in &self.pending {
                scope.spawn(|| queue.communicator.abort(why));
            }
        });
        // The memory is freed once the GPU no longer uses it: after the abort its streams continue.
        self.pending.clear();
    }
}

/// The calls of one communicator, in their order.
struct Queue {
    communicator: Arc<Communicator>,
    calls: VecDeque<Watched>,
    /// Since when the first waits for other ranks.
    since: Instant,
    /// What the others can read of that.
    noted: Option<NotedWait>,
    left: Option<Left>,
}

/// A rank that has left, for which the first call waits.
struct Left {
    peer: usize,
    cause: String,
    found: Instant,
}

impl Queue {
    /// Restarts the clock: the first call has changed, or does not wait for other ranks yet.
    fn restart_clock(&mut self) {
        self.since = Instant::now();
        self.noted = None;
    }

    fn take_away_done(&mut self, health: &GroupHealth) -> Result<(), Failure> {
        while let Some(first) = self.calls.front() {
            match first.done.is_done() {
                Ok(true) => {
                    health.recorder.done(first.made.number);
                    self.calls.pop_front();
                    self.left = None;
                    self.restart_clock();
                }
                Ok(false) => break,
                Err(error) => return Err(first.failed(health.device_error(&first.call, driver_message(error)))),
            }
        }
        Ok(())
    }

    /// Checks whether the first call may continue.
    fn look(&mut self, health: &GroupHealth) -> Result<(), Failure> {
        let Some(first) = self.calls.front() else {
            return Ok(());
        };
        let of_call = |error| first.failed(error);
        health.check(Some(&first.call)).map_err(of_call)?;
        let is_late_from_now = first.has_begun(health)? && first.awaited.as_ref().is_none_or(Awaited::is_awaited);
        let waited = self.since.elapsed();
        if !is_late_from_now {
            self.restart_clock();
        } else if waited > health.timeout {
            if let Some(noted) = self.noted.take() {
                noted.keep();
            }
            return Err(of_call(health.late(&first.call)));
        } else if self.noted.is_none() && waited > health.noted_on_device_after() {
            self.noted = health.note_wait(self.since, &first.call);
        }
        Ok(())
    }

    /// Looks whether NCCL has found an error, or a rank that the first call waits for has left the group.
    fn look_for_errors(&mut self, health: &GroupHealth, core: &Weak<GroupCore>) -> Result<(), Failure> {
        let Some(first) = self.calls.front() else {
            return Ok(());
        };
        let error = match self.communicator.asynchronous_error() {
            Some(error) => health.device_error(&first.call, error),
            None => {
                if self.left.is_none() && first.has_begun(health)? {
                    self.left = core.upgrade().and_then(|core| first.find_left(health, &core));
                }
                match &self.left {
                    Some(left) if left.found.elapsed() > LEFT_LIMIT => {
                        health.peer_left(&first.call, left.peer, left.cause.clone())
                    }
                    _ => return Ok(()),
                }
            }
        };
        // The job may know more: a rank that died, or the failure for which one has left.
        let known = health.failure_within(Some(&first.call), CAUSE_LIMIT);
        Err(first.failed(known.unwrap_or(error)))
    }
}

impl Watched {
    fn failed(&self, error: CollectiveError) -> Failure {
        Box::new((error, self.made.clone()))
    }

    /// Whether the GPU has come to the call.
    fn has_begun(&self, health: &GroupHealth) -> Result<bool, Failure> {
        let has_begun = self.launched.is_done();
        has_begun.map_err(|error| self.failed(health.device_error(&self.call, driver_message(error))))
    }

    fn find_left(&self, health: &GroupHealth, core: &GroupCore) -> Option<Left> {
        let peers = health.awaited_by(&self.call).into_iter();
        let mut left = peers.filter_map(|peer| Some((peer, core.engine.disconnect_reason(peer)?)));
        let (peer, cause) = left.next()?;
        Some(Left {
            peer,
            cause,
            found: Instant::now(),
        })
    }
}
