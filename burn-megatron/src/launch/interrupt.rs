//! [`StopFlag`]: a rank's ear for SIGINT and SIGTERM. Installed by a training program, read by its loop at each step.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::error::LaunchError;

/// Set by the first SIGINT or SIGTERM; a second one ends the process at once with exit code 130 or 143.
///
/// Signals reach ranks at different times. Ranks that must stop after the same step agree on it first, for example
/// with an all-reduce of the flag.
#[derive(Clone, Debug, Default)]
pub struct StopFlag {
    stop: Arc<AtomicBool>,
    /// The signal that came last, 0 for none.
    signal: Arc<AtomicUsize>,
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
        for signal in [SIGINT, SIGTERM] {
            // The order matters: the exit looks at the flag before this signal sets it.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop_flag.stop))
                // Before the flag: who sees the flag sees the signal, too.
                .and_then(|_| flag::register_usize(signal, Arc::clone(&stop_flag.signal), signal as usize))
                .and_then(|_| flag::register(signal, Arc::clone(&stop_flag.stop)))
                .map_err(|source| LaunchError::System {
                    action: format!("cannot install the handler of signal {signal}"),
                    source,
                })?;
        }
        Ok(stop_flag)
    }

    /// Returns whether this rank was asked to stop.
    pub fn is_set(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Returns the signal that asked this rank to stop: SIGINT or SIGTERM, or none.
    pub fn signal(&self) -> Option<i32> {
        match self.signal.load(Ordering::Relaxed) {
            0 => None,
            signal => Some(signal as i32),
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
}
