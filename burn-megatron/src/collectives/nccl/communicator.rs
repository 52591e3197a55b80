//! [`Communicator`]: one of NCCL's, with the stream that its work goes to.
//!
//! Made by all its ranks at once, ended by [`abort`](Communicator::abort) when something hangs. NCCL's calls return
//! before they are done; [`Communicator::call`] waits for that, which is a matter of microseconds once the ranks are
//! connected, as they are at their first call.
//!
//! # Why calls do not block
//!
//! For each call of a communicator that does not block NCCL starts a thread, tens of microseconds that a blocking one
//! would save. But whether it blocks is set when it is made, for good (`config.blocking`, which every
//! `ncclGroupEnd` reads), and making it and its first call wait for the other ranks, however long. Only
//! a call that does not block can be ended then: `ncclCommAbort` first joins the thread of such a call
//! (`comm->groupJob`), and knows nothing of a caller's thread inside a blocking one, under which it frees the
//! communicator. So calls do not block, and whoever makes one looks for its end [without sleeping](Pauses) at first.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::ctas::Ctas;
use super::library::{Comm, Config, Library, Status, Stream, UniqueId};
use super::order::{Context, Event, StreamHandle};
use super::pauses::Pauses;
use crate::collectives::CollectiveError;

/// How long the end of communicators may take that hang.
pub(super) const ABORT_LIMIT: Duration = Duration::from_secs(2);

/// Why a call has not been queued.
#[derive(Debug)]
pub(super) enum Refusal {
    /// What NCCL or the driver says, or why the communicator was ended.
    Reported(String),
    /// How the wait for the other ranks ended.
    Waited(CollectiveError),
}

impl From<String> for Refusal {
    fn from(said: String) -> Self {
        Self::Reported(said)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reported(said) => formatter.write_str(said),
            Self::Waited(error) => error.fmt(formatter),
        }
    }
}

/// A communicator of NCCL.
#[derive(Debug)]
pub(crate) struct Communicator {
    library: &'static Library,
    /// Of its device. Without it NCCL, on a thread that has none, makes one on the first device.
    pub(super) context: Context,
    state: Mutex<State>,
    /// Why it is to end, which a call that waits looks at.
    ending: OnceLock<String>,
    pub(super) stream: StreamHandle,
    /// The number of its ranks.
    pub(super) size: usize,
    /// The ends of the sends that may be on their way.
    pub(super) sends: Mutex<VecDeque<Arc<Event>>>,
    /// Counted while it lives.
    _ctas: Ctas,
}

#[derive(Debug)]
enum State {
    Open(Handle),
    /// Why it was ended.
    Ended(String),
}

#[derive(Clone, Copy, Debug)]
struct Handle(Comm);

// SAFETY: NCCL's communicators may be used by any thread, one at a time: a mutex sees to that.
unsafe impl Send for Handle {}

impl Communicator {
    /// Begins to connect a communicator of `size` ranks, of which this is `rank`. Every one of them calls with the same
    /// id and number of thread blocks. `context` is the device's, and current. It is connected when
    /// [`settle`](Self::settle) has returned.
    ///
    /// # Errors
    /// What NCCL says.
    pub(super) fn begin(
        library: &'static Library,
        id: UniqueId,
        size: usize,
        rank: usize,
        (context, stream): (Context, StreamHandle),
        ctas: Ctas,
    ) -> Result<Self, Refusal> {
        let mut comm: Comm = std::ptr::null_mut();
        let mut config = Config::non_blocking(library.version, ctas.most);
        let number = |value: usize| i32::try_from(value).map_err(|_| format!("{value} ranks are too many for NCCL"));
        // SAFETY: writes the communicator, reads the configuration; both are there.
        let status = unsafe { (library.comm_init)(&raw mut comm, number(size)?, id, number(rank)?, &raw mut config) };
        if comm.is_null() || (status != Status::SUCCESS && status != Status::IN_PROGRESS) {
            return Err(library.describe(status, std::ptr::null_mut()).into());
        }
        // Aborts when it is dropped.
        Ok(Self {
            library,
            context,
            state: Mutex::new(State::Open(Handle(comm))),
            ending: OnceLock::new(),
            stream,
            size,
            sends: Mutex::default(),
            _ctas: ctas,
        })
    }

    /// Waits until the last call is done; `check_wait` is asked while the others are waited for.
    ///
    /// # Errors
    /// What NCCL says; why the communicator was ended; `check_wait`'s own.
    pub(super) fn settle(&self, check_wait: impl Fn() -> Result<(), CollectiveError>) -> Result<(), Refusal> {
        match &*self.state.lock() {
            State::Open(comm) => settle(self.library, *comm, || check_wait().map_err(Refusal::Waited)),
            State::Ended(why) => Err(why.clone().into()),
        }
    }

    /// Makes a call of NCCL's with the communicator and its stream, and waits until it has been queued.
    ///
    /// # Errors
    /// What NCCL says; why the communicator was ended; `check_wait`'s own.
    pub(super) fn call(
        &self,
        call: impl FnOnce(&Library, Comm, Stream) -> Status,
        check_wait: impl Fn() -> Result<(), CollectiveError>,
    ) -> Result<(), Refusal> {
        let state = self.state.lock();
        let comm = match &*state {
            State::Open(comm) => *comm,
            State::Ended(why) => return Err(why.clone().into()),
        };
        let check_ending = || match self.ending.get() {
            Some(why) => Err(Refusal::from(why.clone())),
            None => Ok(()),
        };
        check_ending()?;
        match call(self.library, comm.0, self.stream.as_raw()) {
            Status::SUCCESS => check_ending(),
            Status::IN_PROGRESS => settle(self.library, comm, || {
                check_ending()?;
                check_wait().map_err(Refusal::Waited)
            }),
            status => Err(self.library.describe(status, comm.0).into()),
        }
    }

    /// Returns the error that NCCL has found since, if it has; nothing while another thread is in a call.
    pub(super) fn asynchronous_error(&self) -> Option<String> {
        let state = self.state.try_lock()?;
        let State::Open(comm) = &*state else { return None };
        progress(self.library, *comm).err()
    }

    /// Aborts everything in flight, including calls that wait. Its stream continues, with whatever the buffers hold
    /// then.
    pub(super) fn abort(&self, why: &str) {
        // The first stays.
        let _ = self.ending.set(why.to_owned());
        // A call that waits looks at that; one that NCCL does not return from keeps the communicator.
        let Some(mut state) = self.state.try_lock_for(ABORT_LIMIT) else {
            tracing::warn!("a call of NCCL does not return: its communicator is left alone");
            return;
        };
        if let State::Open(comm) = &*state {
            // SAFETY: the communicator is open, and is not used again.
            let status = self.context.within(|| unsafe { (self.library.comm_abort)(comm.0) });
            self.warn_unless_ok("abort", status);
            *state = State::Ended(why.to_owned());
        }
    }

    /// Ends the communicator when nothing is on its way, with the others within the time limit, or else alone.
    pub(super) fn close(&self, limit: Duration) {
        let mut state = self.state.lock();
        if let State::Open(comm) = *state {
            let begun = Instant::now();
            let check_wait = || {
                if begun.elapsed() > limit {
                    Err(Refusal::Reported("the others do not close it".to_owned()))
                } else {
                    Ok(())
                }
            };
            // SAFETY: the communicator is open, and is not used again after its end.
            self.context.within(|| unsafe {
                let status = (self.library.comm_finalize)(comm.0);
                let is_final = match status {
                    Status::SUCCESS => true,
                    Status::IN_PROGRESS => settle(self.library, comm, check_wait).is_ok(),
                    _ => false,
                };
                if is_final {
                    self.warn_unless_ok("destroy", (self.library.comm_destroy)(comm.0))
                } else {
                    self.warn_unless_ok("abort", (self.library.comm_abort)(comm.0))
                }
            });
            *state = State::Ended("it was closed".to_owned());
        }
    }

    /// Logs that the communicator could not be ended: no caller waits for it any more.
    fn warn_unless_ok(&self, what: &str, status: Status) {
        if status != Status::SUCCESS && status != Status::IN_PROGRESS {
            let said = self.library.describe(status, std::ptr::null_mut());
            tracing::warn!("NCCL cannot {what} a communicator: {said}");
        }
    }
}

/// Returns whether the last call is done.
fn progress(library: &Library, comm: Handle) -> Result<bool, String> {
    let mut state = Status::SUCCESS;
    // SAFETY: the communicator is open; writes one number.
    let status = unsafe { (library.comm_get_async_error)(comm.0, &raw mut state) };
    match (status, state) {
        (Status::SUCCESS, Status::SUCCESS) => Ok(true),
        (Status::SUCCESS, Status::IN_PROGRESS) => Ok(false),
        (Status::SUCCESS, error) | (error, _) => Err(library.describe(error, comm.0)),
    }
}

/// Waits until the last call is done.
fn settle(library: &Library, comm: Handle, check_wait: impl Fn() -> Result<(), Refusal>) -> Result<(), Refusal> {
    let pauses = Pauses::begin();
    while !progress(library, comm)? {
        check_wait()?;
        pauses.take();
    }
    Ok(())
}

impl Drop for Communicator {
    /// One that was not closed is not waited for.
    fn drop(&mut self) {
        self.abort("it was dropped");
    }
}
