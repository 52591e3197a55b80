//! How a rank that fails ends: who is responsible, what is printed, and the exit code.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use parking_lot::Mutex;

use super::error::LaunchError;
use super::host::host_name;
use super::liveness::{CAUSE_LIMIT, FailureSignal, SETTLE_LIMIT, blame};
use super::peer_failure::PeerFailure;
use super::world::World;
use super::{SECONDARY_FAILURE_EXIT_CODE, log_stderr};
use crate::flight_recorder::FlightRecorder;

/// The store's counter of the ranks that are about to report an error of their own.
const REPORTERS: &str = "failure/reporters";

/// Prints `error`, tells every other rank, and ends this process. Never returns.
///
/// The text of a failure is printed once, by the rank that it is a failure of: the others say that they end because of
/// that rank, and of their own error what is not that text again. Of ranks with the same error it is the first that
/// reports it. The launcher prints it if the rank itself could not.
///
/// Exits with code 1 when the error is this rank's own. Exits with [`SECONDARY_FAILURE_EXIT_CODE`] when another rank is
/// known to have failed first, or is held responsible for what this rank met, say because it did not come to a
/// collective; the other ranks then learn of that rank.
pub fn report_and_exit(world: &World, error: &(dyn Error + 'static)) -> ! {
    let what = with_sources(error);
    world.flight_recorder().write_failure(&what);
    let place = format!("[rank {} on host {}]", world.rank(), host_name(world.host()));
    let code = match cause_elsewhere(world, error, &what) {
        Some(cause) => {
            let here = match own_words(&what, &cause) {
                Some(what) => format!(" (here: {what})"),
                None => String::new(),
            };
            log_stderr(format_args!("{place} ends because {}{here}", cause.in_short()));
            SECONDARY_FAILURE_EXIT_CODE
        }
        None => {
            log_stderr(format_args!("{place} failed: {what}"));
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

/// Returns [`SECONDARY_FAILURE_EXIT_CODE`] if a rank did not come to the rendezvous because of another one, as its
/// error says, and `otherwise` for any other error.
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
    ExitCode::from(if is_secondary {
        SECONDARY_FAILURE_EXIT_CODE as u8
    } else {
        otherwise
    })
}

/// Makes every panic of this process, on any thread, a failure of this rank that the other ranks learn of at once.
///
/// Prints `[rank r on host h] panicked: ...` once per panic, with a backtrace if `RUST_BACKTRACE` asks for one; it
/// replaces the previous hook, which would print the same again. A panic that is caught counts as a failure, too.
/// Call it before a hook is installed that shall stay, such as that of burn-megatron's `cuda::choose`.
pub fn install_panic_hook(world: &World) {
    let reporter = Arc::new(Reporter::of(world));
    *REPORTER.lock() = Some(reporter.clone());
    std::panic::set_hook(Box::new(move |panic| {
        let message = panic.payload_as_str().unwrap_or("(no message)");
        let location = panic
            .location()
            .map(|location| format!(" at {location}"))
            .unwrap_or_default();
        reporter.print(&format!("panicked: {message}{location}"));
        let backtrace = std::backtrace::Backtrace::capture();
        if backtrace.status() == std::backtrace::BacktraceStatus::Captured {
            log_stderr(format_args!("{backtrace}"));
        }
        reporter.tell(&format!("panicked: {message}{location}"));
    }));
}

/// Reports a failure of this process that no error will bring to [`report_and_exit`], such as one on a thread of a
/// library that catches it.
///
/// Prints `[rank r on host h] failed: ...`, tells the other ranks and writes the flight record, if
/// [`install_panic_hook`] has said which rank this is; prints `error: ...` otherwise. Returns when the other ranks can
/// learn of it, or after a few seconds, so that the process may end.
pub fn report_failure(what: &str) {
    let reporter = REPORTER.lock().clone();
    match reporter {
        None => log_stderr(format_args!("error: {what}")),
        Some(reporter) => {
            reporter.print(&format!("failed: {what}"));
            reporter.tell(what);
        }
    }
}

/// Reports what no error carries; there once [`install_panic_hook`] has been called.
static REPORTER: Mutex<Option<Arc<Reporter>>> = Mutex::new(None);

/// This rank, for what happens outside its program's own functions.
///
/// It lives as long as the process: it must not hold the world, whose end says goodbye.
struct Reporter {
    failure: FailureSignal,
    recorder: FlightRecorder,
    rank: usize,
    host: String,
}

impl Reporter {
    fn of(world: &World) -> Self {
        Self {
            failure: world.failure().clone(),
            recorder: world.flight_recorder().clone(),
            rank: world.rank(),
            host: world.host().to_owned(),
        }
    }

    fn print(&self, what: &str) {
        log_stderr(format_args!(
            "[rank {} on host {}] {what}",
            self.rank,
            host_name(&self.host)
        ));
    }

    /// Tells the other ranks, and writes the flight record.
    fn tell(&self, what: &str) {
        self.failure.raise(PeerFailure::new(self.rank, self.host.clone(), what));
        // Another thread may be telling the store already.
        self.failure.settle();
        self.recorder.write_failure(what);
    }
}

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
    use super::*;
    use crate::launch::peer_failure::OUT_OF_STEP;

    #[test]
    fn text_of_a_failure_is_left_to_the_rank_that_failed() {
        let cause = |what: &str| PeerFailure {
            what: what.into(),
            ..PeerFailure::example(1)
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
}
