//! [`Pauses`]: how a thread waits for what is mostly done at once.

use std::time::{Duration, Instant};

/// How long a thread looks again and again before it sleeps. NCCL starts a thread for each call, and CubeCL's server
/// executes what was launched before it: tens of microseconds, which a sleep, or being woken, would double.
const SHORT: Duration = Duration::from_micros(500);
/// Time between two looks after that.
const SLICE: Duration = Duration::from_micros(50);

/// The pauses between the looks of one wait.
pub(super) struct Pauses {
    begun: Instant,
}

impl Pauses {
    pub fn begin() -> Self {
        Self { begun: Instant::now() }
    }

    /// Whether the wait is still short: a pause then lets other threads run, and does not sleep.
    pub fn is_short(&self) -> bool {
        is_short(self.begun.elapsed())
    }

    /// Takes the next pause.
    pub fn take(&self) {
        if self.is_short() {
            std::thread::yield_now();
        } else {
            std::thread::sleep(SLICE);
        }
    }
}

fn is_short(waited: Duration) -> bool {
    waited < SHORT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_waits_do_not_sleep_and_long_ones_do() {
        assert!(
            [0, 40, 300]
                .into_iter()
                .all(|micros| is_short(Duration::from_micros(micros)))
        );
        assert!(
            ![500, 20_000, 10_000_000]
                .into_iter()
                .any(|micros| is_short(Duration::from_micros(micros)))
        );
    }
}
