//! [`StopFlag`]: a rank's ear for SIGINT and SIGTERM. Installed by a training program, read by its loop at each step.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level;

use super::error::LaunchError;

/// Signals that come within this time are one request: a supervisor that asks every process of a job reaches each rank
/// twice, itself and through the launcher.
const ONE_REQUEST: Duration = Duration::from_secs(1);

/// Set by the first SIGINT or SIGTERM; one that comes a second or more after it ends the process at once with exit code
/// 130 or 143.
///
/// Signals reach ranks at different times. Ranks that must stop after the same step agree on it first, for example
/// with an all-reduce of the flag.
#[derive(Clone, Debug, Default)]
pub struct StopFlag {
    stop: Arc<AtomicBool>,
    /// The signal that came last, 0 for none.
    signal: Arc<AtomicI32>,
    /// When the first signal came, in milliseconds since [`install`](Self::install), from 1; 0 for not yet.
    first_millis: Arc<AtomicU64>,
}

impl StopFlag {
    /// Returns a flag that no signal sets: for tests, and for programs with another reason to stop.
    pub fn new() -> StopFlag {
        StopFlag::default()
    }

    /// Returns a flag that SIGINT and SIGTERM set from now on.
    ///
    /// # Errors
    /// The operating system refuses the signal handler.
    pub fn install() -> Result<StopFlag, LaunchError> {
        let stop_flag = StopFlag::new();
        let installed = Instant::now();
        for signal in [SIGINT, SIGTERM] {
            let flag = stop_flag.clone();
            let action = move || flag.hear(signal, installed.elapsed());
            // SAFETY: the action runs in a signal handler. It reads the clock, changes atomic numbers and may call
            // _exit: all of it is async-signal-safe, and it can neither allocate, lock nor panic.
            let registered = unsafe { low_level::register(signal, action) };
            registered.map_err(|source| LaunchError::System {
                action: format!("cannot install the handler of signal {signal}"),
                source,
            })?;
        }
        Ok(stop_flag)
    }

    /// Takes note of a signal, so long after the handlers were installed.
    fn hear(&self, signal: i32, time: Duration) {
        let millis = (time.as_millis() as u64).saturating_add(1);
        let before = self
            .first_millis
            .compare_exchange(0, millis, Ordering::Relaxed, Ordering::Relaxed);
        if before.is_err_and(|first| millis.saturating_sub(first) >= ONE_REQUEST.as_millis() as u64) {
            low_level::exit(128 + signal);
        }
        // Before the flag: who sees the flag sees the signal, too.
        self.signal.store(signal, Ordering::Relaxed);
        self.stop.store(true, Ordering::Release);
    }

    /// Returns whether this rank was asked to stop.
    pub fn is_set(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Returns the signal that asked this rank to stop: SIGINT or SIGTERM, or none.
    pub fn signal(&self) -> Option<i32> {
        match self.signal.load(Ordering::Relaxed) {
            0 => None,
            signal => Some(signal),
        }
    }

    /// Asks this rank to stop, as a signal would.
    pub fn set(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_one_flag() {
        let flag = StopFlag::new();
        let clone = flag.clone();
        assert!(!clone.is_set());
        flag.set();
        assert!(clone.is_set());
        assert_eq!(clone.signal(), None);
    }

    #[test]
    fn signals_of_one_request_only_ask() {
        let flag = StopFlag::new();
        flag.hear(SIGTERM, Duration::ZERO);
        // Another would end this process.
        flag.hear(SIGTERM, ONE_REQUEST - Duration::from_millis(1));
        assert!(flag.is_set());
        assert_eq!(flag.signal(), Some(SIGTERM));
    }
}
