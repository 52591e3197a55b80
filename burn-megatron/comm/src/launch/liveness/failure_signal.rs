//! [`FailureSignal`]: tells every wait loop of this process to stop waiting.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::event::{EventfdFlags, eventfd};

use super::states::accuse;
use crate::launch::peer_failure::PeerFailure;
use crate::launch::store::Store;

/// Longest wait for an announcement that another thread is sending, before this process ends.
pub(in crate::launch) const SETTLE_LIMIT: Duration = Duration::from_secs(3);

type Callback = Box<dyn Fn() + Send + Sync>;
type Announcer = Box<dyn Fn(&PeerFailure) + Send + Sync>;

/// Raised once, when some rank is known to have failed. Clones share one state.
#[derive(Clone, Default)]
pub struct FailureSignal {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    raised: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
    /// Tells the store of a failure that was raised here. Absent in a world of one.
    announcer: OnceLock<Announcer>,
    /// Can be read once the signal is raised. None inside where the system gives none.
    descriptor: OnceLock<Option<Arc<OwnedFd>>>,
}

#[derive(Default)]
struct State {
    cause: Option<PeerFailure>,
    callbacks: Vec<Callback>,
    announcing: bool,
}

impl FailureSignal {
    /// Returns a signal that no store knows of: for a world of one, and for tests.
    pub fn detached() -> FailureSignal {
        FailureSignal::default()
    }

    /// Returns a signal that tells `store` of a cause that was raised in this process.
    pub(in crate::launch) fn announced_to(store: &Store) -> FailureSignal {
        let store = store.clone();
        FailureSignal::announced_by(move |cause| {
            if let Err(error) = store.fail(cause) {
                tracing::debug!(%error, "could not tell the store of a failure");
            }
        })
    }

    fn announced_by(announcer: impl Fn(&PeerFailure) + Send + Sync + 'static) -> FailureSignal {
        let signal = FailureSignal::default();
        let set = signal.inner.announcer.set(Box::new(announcer));
        assert!(set.is_ok(), "the announcer of a new signal was already set");
        signal
    }

    /// Returns whether some rank has failed. One atomic load, cheap enough for a spin loop.
    pub fn is_raised(&self) -> bool {
        self.inner.raised.load(Ordering::Acquire)
    }

    /// Returns the first failure known to this process.
    pub fn cause(&self) -> Option<PeerFailure> {
        self.inner.state.lock().cause.clone()
    }

    /// Raises the signal, unless it is raised already: the first cause wins.
    ///
    /// Wakes this process's sleepers, then tells the store, so that every other rank learns of it. Returns when the
    /// store has heard it, or after two seconds.
    pub fn raise(&self, cause: PeerFailure) {
        let announcer = self.inner.announcer.get();
        if !self.raise_locally(&cause, announcer.is_some()) {
            return;
        }
        if let Some(announce) = announcer {
            announce(&cause);
            self.inner.state.lock().announcing = false;
            self.inner.changed.notify_all();
        }
    }

    /// Raises the signal with a cause that the store already knows.
    pub(in crate::launch) fn raise_from_store(&self, cause: PeerFailure) {
        self.raise_locally(&cause, false);
    }

    /// Calls `wake` once when the signal is raised, or at once if it is raised already.
    ///
    /// `wake` runs on the thread that raises: it should only wake sleepers.
    pub fn on_raise(&self, wake: Box<dyn Fn() + Send + Sync>) {
        {
            let mut state = self.inner.state.lock();
            if state.cause.is_none() {
                state.callbacks.push(wake);
                return;
            }
        }
        wake();
    }

    /// Returns a file descriptor that can be read, and is not, once the signal is raised: for waits for sockets. None
    /// where the system gives none.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        let made = self.inner.descriptor.get_or_init(|| {
            let made = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?);
            let raised = Arc::clone(&made);
            self.on_raise(Box::new(move || {
                let _ = rustix::io::write(&*raised, &1_u64.to_ne_bytes());
            }));
            Some(made)
        });
        made.as_ref().map(|made| made.as_fd())
    }

    /// Waits until the signal is raised, at most for `limit`; returns the cause.
    pub fn wait_raised(&self, limit: Duration) -> Option<PeerFailure> {
        self.wait_while(limit, |state| state.cause.is_none());
        self.cause()
    }

    /// Waits, for a bounded time, until an announcement that another thread began has reached the store.
    pub(in crate::launch) fn settle(&self) {
        self.wait_while(SETTLE_LIMIT, |state| state.announcing);
    }

    /// Sets the cause, wakes every sleeper, and returns true; or returns false if there is a cause already.
    fn raise_locally(&self, cause: &PeerFailure, announcing: bool) -> bool {
        let callbacks = {
            let mut state = self.inner.state.lock();
            if !accuse(&mut state.cause, cause) {
                return false;
            }
            state.announcing = announcing;
            self.inner.raised.store(true, Ordering::Release);
            std::mem::take(&mut state.callbacks)
        };
        self.inner.changed.notify_all();
        // Outside the lock: a callback may ask for the cause.
        for wake in callbacks {
            wake();
        }
        true
    }

    fn wait_while(&self, limit: Duration, mut pending: impl FnMut(&State) -> bool) {
        let mut state = self.inner.state.lock();
        self.inner
            .changed
            .wait_while_for(&mut state, |state| pending(state), limit);
    }
}

impl fmt::Debug for FailureSignal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("FailureSignal")
            .field("cause", &self.cause())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn first_cause_wins_and_is_announced_once() {
        let announced = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&announced);
        let signal = FailureSignal::announced_by(move |cause| heard.lock().push(cause.rank));
        assert!(!signal.is_raised());
        signal.raise(PeerFailure::example(2));
        signal.raise(PeerFailure::example(1));
        assert!(signal.is_raised());
        assert_eq!(signal.cause(), Some(PeerFailure::example(2)));
        assert_eq!(*announced.lock(), [2]);
    }

    #[test]
    fn cause_from_the_store_is_not_announced_to_it() {
        let signal = FailureSignal::announced_by(|_| panic!("announced"));
        signal.raise_from_store(PeerFailure::example(0));
        assert!(signal.is_raised());
    }

    #[test]
    fn callbacks_run_once_whether_early_or_late() {
        let calls = Arc::new(AtomicUsize::new(0));
        let signal = FailureSignal::detached();
        let count = |by: usize| {
            let calls = Arc::clone(&calls);
            Box::new(move || {
                calls.fetch_add(by, Ordering::Relaxed);
            })
        };
        signal.on_raise(count(1));
        assert_eq!(calls.load(Ordering::Relaxed), 0);
        signal.raise(PeerFailure::example(0));
        signal.on_raise(count(10));
        signal.raise(PeerFailure::example(1));
        assert_eq!(calls.load(Ordering::Relaxed), 11);
    }

    #[test]
    fn the_descriptor_can_be_read_once_the_signal_is_raised() {
        for is_early in [true, false] {
            let signal = FailureSignal::detached();
            let can_be_read = || {
                let mut count = [0; 8];
                rustix::io::read(signal.descriptor().unwrap(), &mut count).is_ok()
            };
            assert!(!is_early || !can_be_read());
            signal.raise(PeerFailure::example(0));
            assert!(can_be_read());
        }
    }

    #[test]
    fn waiting_ends_when_raised() {
        let signal = FailureSignal::detached();
        assert_eq!(signal.wait_raised(Duration::from_millis(10)), None);
        let other = signal.clone();
        let raiser = std::thread::spawn(move || other.raise(PeerFailure::example(3)));
        assert_eq!(
            signal.wait_raised(Duration::from_secs(10)),
            Some(PeerFailure::example(3))
        );
        raiser.join().unwrap();
    }
}
