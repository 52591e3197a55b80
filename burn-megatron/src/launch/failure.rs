//! The job's first failure, as one rank sees it: [`PeerFailure`] says who and what, [`FailureSignal`] tells every wait
//! loop of this process to stop waiting.
//!
//! Raised by the monitor thread of [`World`](super::World), by `collectives`, and by a rank that fails itself;
//! looked at by every loop that waits for another rank.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::LaunchError;
use super::identity::host_name;
use super::store::Store;
use super::suspicions::Suspicions;
use super::world::World;
use super::{SECONDARY_FAILURE_EXIT_CODE, lock, say};

/// Longest wait for an announcement that another thread is sending, before this process ends.
const SETTLE_LIMIT: Duration = Duration::from_secs(3);

/// How long a rank with an error looks whether another rank failed first.
///
/// A dead peer closes its connection to the store and its connections to this rank at the same moment; the store's
/// news takes one hop more.
const CAUSE_LIMIT: Duration = Duration::from_millis(300);

/// The store's counter of the ranks that are about to report an error of their own.
const REPORTERS: &str = "failure/reporters";

/// What the store says of a rank whose connection closed without a goodbye.
pub(super) const CONNECTION_LOST: &str = "is dead: its connection to the store closed without a goodbye (killed?)";

/// How the suspicion begins that a rank did not come to where another one waits for it.
pub(crate) const DID_NOT_COME: &str = "did not come to ";

/// Heartbeats that a rank may miss before it is called silent instead of late: of those that fit into its limit, a third.
const SILENT_SHARE: u32 = 3;

/// Returns what is said of a rank that was last heard so long ago.
pub(super) fn silence_text(silence: Duration) -> String {
    format!("is silent: no heartbeat for {:.1} s", silence.as_secs_f64())
}

/// Which rank failed, where, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerFailure {
    /// The rank that failed.
    pub rank: usize,
    /// Identity of its host, as [`World::host_of`] gives it.
    pub host: String,
    /// What happened, in words; where it is a state of the rank, it begins with `is `.
    pub what: String,
}

impl fmt::Display for PeerFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.what.starts_with("is ") { "" } else { "failed: " };
        write!(
            formatter,
            "rank {} on host {} {verb}{}",
            self.rank,
            host_name(&self.host),
            self.what
        )
    }
}

impl PeerFailure {
    /// What happened, as the rank itself says it where it is its own failure or it has met it too.
    pub(super) fn own_text(&self) -> &str {
        // All ranks of a mismatch have the same error; the accusation adds the place of the call.
        let text = self.what.strip_prefix(OUT_OF_STEP).unwrap_or(&self.what);
        text.rsplit_once("; at ").map_or(text, |(text, _place)| text)
    }

    /// Who failed, without the text that the rank prints itself; of a rank that cannot, what the others know of it.
    fn in_short(&self) -> String {
        let told_by_others = ACCUSATIONS.iter().any(|beginning| self.what.starts_with(beginning));
        let text = match told_by_others {
            true => self.to_string(),
            false => format!("rank {} on host {} failed", self.rank, host_name(&self.host)),
        };
        text.split(';').next().unwrap_or_default().to_owned()
    }
}

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

    /// Returns a signal that calls `announcer` with a cause that was raised in this process.
    pub(super) fn announced_by(announcer: impl Fn(&PeerFailure) + Send + Sync + 'static) -> FailureSignal {
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
        lock(&self.inner.state).cause.clone()
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
            lock(&self.inner.state).announcing = false;
            self.inner.changed.notify_all();
        }
    }

    /// Raises the signal with a cause that the store already knows.
    pub(super) fn raise_from_store(&self, cause: PeerFailure) {
        self.raise_locally(&cause, false);
    }

    /// Calls `wake` once when the signal is raised, or at once if it is raised already.
    ///
    /// `wake` runs on the thread that raises: it should only wake sleepers.
    pub fn on_raise(&self, wake: Box<dyn Fn() + Send + Sync>) {
        {
            let mut state = lock(&self.inner.state);
            if state.cause.is_none() {
                state.callbacks.push(wake);
                return;
            }
        }
        wake();
    }

    /// Waits until the signal is raised, at most for `limit`; returns the cause.
    pub fn wait_raised(&self, limit: Duration) -> Option<PeerFailure> {
        self.wait_while(limit, |state| state.cause.is_none());
        self.cause()
    }

    /// Waits, for a bounded time, until an announcement that another thread began has reached the store.
    pub(super) fn settle(&self) {
        self.wait_while(SETTLE_LIMIT, |state| state.announcing);
    }

    /// Sets the cause, wakes every sleeper, and returns true; or returns false if there is a cause already.
    fn raise_locally(&self, cause: &PeerFailure, announcing: bool) -> bool {
        let callbacks = {
            let mut state = lock(&self.inner.state);
            if state.cause.is_some() {
                return false;
            }
            state.cause = Some(cause.clone());
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
        let state = lock(&self.inner.state);
        // A poisoned lock ends the wait early, which is harmless: the caller is about to report a failure anyway.
        let _ = self
            .inner
            .changed
            .wait_timeout_while(state, limit, |state| pending(state));
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

/// Prints `error`, tells every other rank, and ends this process. Never returns.
///
/// The text of a failure is printed once, by the rank that it is a failure of: the others say that they end because of
/// that rank, and of their own error what is not that text again. Of ranks with the same error it is the first that
/// reports it. The launcher prints it if the rank itself could not.
///
/// Exits with code 1 when the error is this rank's own, and with
/// [`SECONDARY_FAILURE_EXIT_CODE`] when another rank is known to have failed first, or is held responsible for what
/// this rank met: one that did not come to a collective, say. Then the other ranks are told of that one.
pub fn report_and_exit(world: &World, error: &(dyn Error + 'static)) -> ! {
    let what = with_sources(error);
    world.flight_recorder().write_failure(&what);
    let place = format!(
        "[rank {} on host {}]",
        world.rank(),
        host_name(world.host_of(world.rank()))
    );
    let code = match cause_elsewhere(world, error, &what) {
        Some(cause) => {
            let here = match own_words(&what, &cause) {
                Some(what) => format!(" (here: {what})"),
                None => String::new(),
            };
            say(format_args!("{place} ends because {}{here}", cause.in_short()));
            SECONDARY_FAILURE_EXIT_CODE
        }
        None => {
            say(format_args!("{place} failed: {what}"));
            1
        }
    };
    world.leave();
    std::process::exit(code);
}

/// Returns the failure of another rank that this one ends because of; if there is none, tells every rank of this one's.
///
/// Ranks that compare something meet the same error at the same moment: the store counts them, and those after the
/// first end because of it.
pub(super) fn cause_elsewhere(world: &World, error: &(dyn Error + 'static), what: &str) -> Option<PeerFailure> {
    let failure = world.failure();
    let first = failure
        .wait_raised(CAUSE_LIMIT)
        .or_else(|| blame(failure, world.suspicions()))
        .or_else(|| world.lost_store(error))
        .or_else(|| match world.store().add_within(REPORTERS, 1, SETTLE_LIMIT) {
            Ok(2..) => failure.wait_raised(SETTLE_LIMIT),
            // A rank that cannot ask reports its error itself.
            Ok(_) | Err(_) => None,
        })
        .filter(|cause| cause.rank != world.rank());
    if first.is_none() {
        world.fail(what);
    }
    first
}

/// Returns [`SECONDARY_FAILURE_EXIT_CODE`] if a rank did not come to the rendezvous because of another one, as its error
/// says, and `otherwise` for any other error.
///
/// For a program whose [`join`](super::join) or [`enter`](super::enter) fails: there is no world yet to report to, and
/// the launcher shall name the rank that did not come, not the one that waited for it.
pub fn exit_code_of(error: &(dyn Error + 'static), otherwise: u8) -> ExitCode {
    let errors = std::iter::successors(Some(error), |&error| error.source());
    let mut launch_errors = errors.filter_map(|error| error.downcast_ref::<LaunchError>());
    let is_secondary = launch_errors.any(|error| {
        matches!(
            error,
            LaunchError::PeerFailed(_) | LaunchError::RendezvousTimeout { .. }
        )
    });
    ExitCode::from(match is_secondary {
        true => SECONDARY_FAILURE_EXIT_CODE as u8,
        false => otherwise,
    })
}

/// Returns who failed first, if this rank suspects another one, and tells every rank.
pub(crate) fn blame(failure: &FailureSignal, suspicions: &Suspicions) -> Option<PeerFailure> {
    let mut culprit = match suspicions.first_cause(CAUSE_LIMIT) {
        Ok(culprit) => culprit?,
        Err(known) => return Some(known),
    };
    add_condition(suspicions.store(), &mut culprit);
    failure.raise(culprit);
    failure.cause()
}

/// Says of a rank whether its heartbeats have stopped, or come although the rank itself does not.
fn add_condition(store: &Store, culprit: &mut PeerFailure) {
    let Ok(Some(pulse)) = store.pulse(culprit.rank) else {
        return;
    };
    let what = &culprit.what;
    if pulse.silence > pulse.limit / SILENT_SHARE {
        culprit.what = format!("{}; {what}", silence_text(pulse.silence));
    } else if what.starts_with(DID_NOT_COME) {
        culprit.what = format!("is late: its heartbeats arrive, {}; {what}", pulse.progress);
    }
}

/// Makes every panic of this process, on any thread, a failure of this rank that the other ranks learn of at once.
///
/// Prints `[rank r on host h] panicked: ...` once per panic, with a backtrace if `RUST_BACKTRACE` asks for one; it
/// replaces the previous hook, which would print the same again. A panic that is caught counts as a failure, too.
pub fn install_panic_hook(world: &World) {
    // The hook lives as long as the process: it must not hold the world, whose end says goodbye.
    let failure = world.failure().clone();
    let recorder = world.flight_recorder().clone();
    let rank = world.rank();
    let host = world.host_of(rank).to_string();
    std::panic::set_hook(Box::new(move |panic| {
        let message = panic.payload_as_str().unwrap_or("(no message)");
        let location = panic
            .location()
            .map(|location| format!(" at {location}"))
            .unwrap_or_default();
        say(format_args!(
            "[rank {rank} on host {}] panicked: {message}{location}",
            host_name(&host)
        ));
        let backtrace = std::backtrace::Backtrace::capture();
        if backtrace.status() == std::backtrace::BacktraceStatus::Captured {
            say(format_args!("{backtrace}"));
        }
        failure.raise(PeerFailure {
            rank,
            host: host.clone(),
            what: format!("panicked: {message}{location}"),
        });
        recorder.write_failure(&format!("panicked: {message}{location}"));
    }));
}

/// How the accusation begins that a rank's call does not fit those of the others: their own errors follow.
pub(crate) const OUT_OF_STEP: &str = "out of step: ";

/// How a failure begins that other processes tell of a rank, which may be unable to: a state, or an accusation. That calls do
/// not fit is not among them: both ranks have the error.
const ACCUSATIONS: [&str; 9] = [
    "is ",
    DID_NOT_COME,
    "gave group ",
    "its connection to ",
    "lost the store ",
    "out of reach",
    "ended without ",
    "could not be started",
    "never ",
];

/// Returns what this rank's error says that the cause does not.
fn own_words(what: &str, cause: &PeerFailure) -> Option<String> {
    // An error of a call that was stopped quotes the cause.
    let place = format!("rank {} on host {}", cause.rank, host_name(&cause.host));
    let what = what.replace(&cause.to_string(), &place);
    let text = cause.own_text();
    let is_repetition = what == place || what.contains(text) || text.contains(&what);
    (!is_repetition).then_some(what)
}

/// Returns the error and what caused it, in one line.
pub(super) fn with_sources(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        // Messages that already quote their source are not repeated.
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        source = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn failure(rank: usize) -> PeerFailure {
        PeerFailure {
            rank,
            host: "node/boot".into(),
            what: "test".into(),
        }
    }

    #[test]
    fn first_cause_wins_and_is_announced_once() {
        let announced = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&announced);
        let signal = FailureSignal::announced_by(move |cause| lock(&heard).push(cause.rank));
        assert!(!signal.is_raised());
        signal.raise(failure(2));
        signal.raise(failure(1));
        assert!(signal.is_raised());
        assert_eq!(signal.cause(), Some(failure(2)));
        assert_eq!(*lock(&announced), [2]);
    }

    #[test]
    fn cause_from_the_store_is_not_announced_to_it() {
        let signal = FailureSignal::announced_by(|_| panic!("announced"));
        signal.raise_from_store(failure(0));
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
        signal.raise(failure(0));
        signal.on_raise(count(10));
        signal.raise(failure(1));
        assert_eq!(calls.load(Ordering::Relaxed), 11);
    }

    #[test]
    fn waiting_ends_when_raised() {
        let signal = FailureSignal::detached();
        assert_eq!(signal.wait_raised(Duration::from_millis(10)), None);
        let other = signal.clone();
        let raiser = std::thread::spawn(move || other.raise(failure(3)));
        assert_eq!(signal.wait_raised(Duration::from_secs(10)), Some(failure(3)));
        raiser.join().unwrap();
    }

    #[test]
    fn text_of_a_failure_is_left_to_the_rank_that_failed() {
        let cause = |what: &str| PeerFailure {
            what: what.into(),
            ..failure(1)
        };
        let loss = cause("loss is not finite; lower the learning rate");
        assert_eq!(loss.in_short(), "rank 1 on host node failed");
        let stopped = format!("group data [0, 1]: barrier (call 2) stopped because {loss}");
        assert_eq!(
            own_words(&stopped, &loss).as_deref(),
            Some("group data [0, 1]: barrier (call 2) stopped because rank 1 on host node")
        );
        let poisoned =
            "group data [0, 1]: barrier (call 3) refused, it failed first: loss is not finite; lower the learning rate";
        assert_eq!(own_words(poisoned, &loss), None);
        assert_eq!(own_words(&loss.to_string(), &loss), None);
        let timeout = "group data [0, 1]: barrier (call 2) timed out after 2 s without progress";
        assert_eq!(own_words(timeout, &loss).as_deref(), Some(timeout));

        let mismatch = "rank 1 of group data [0, 1] called barrier (call 2) while rank 0 called send (call 2)";
        let accused = cause(&format!("{OUT_OF_STEP}{mismatch}; at src/main.rs:3:4"));
        assert_eq!(accused.in_short(), "rank 1 on host node failed");
        assert_eq!(own_words(mismatch, &accused), None);
        assert_eq!(own_words(&format!("step 3: {mismatch}"), &accused), None);

        let late = cause("is late: its heartbeats arrive, no collective yet; did not come to barrier (call 2)");
        assert_eq!(
            late.in_short(),
            "rank 1 on host node is late: its heartbeats arrive, no collective yet"
        );
        let silent = cause("is silent: no heartbeat for 6.0 s");
        let stopped = format!("group pipeline [0, 1]: recv (call 2) stopped because {silent}");
        assert_eq!(
            own_words(&stopped, &silent).as_deref(),
            Some("group pipeline [0, 1]: recv (call 2) stopped because rank 1 on host node")
        );
        let lost = cause("lost the store at node:1, which rank 1 hosts (killed?)");
        assert_eq!(lost.in_short(), lost.to_string());
    }

    #[test]
    fn message_names_rank_host_and_what() {
        assert_eq!(failure(2).to_string(), "rank 2 on host node failed: test");
        let silent = PeerFailure {
            what: silence_text(Duration::from_millis(6234)),
            ..failure(3)
        };
        assert_eq!(
            silent.to_string(),
            "rank 3 on host node is silent: no heartbeat for 6.2 s"
        );
    }
}
