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

/// What a thread does between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// Lets other threads run, where there are more of them than cores.
    Yield,
    Sleep,
}

impl Pauses {
    pub fn begin() -> Self {
        Self { begun: Instant::now() }
    }

    /// Returns what the next pause is.
    pub fn next(&self) -> Pause {
        Pause::after(self.begun.elapsed())
    }

    /// Takes the next pause.
    pub fn take(&self) {
        match self.next() {
            Pause::Yield => std::thread::yield_now(),
            Pause::Sleep => std::thread::sleep(SLICE),
        }
    }
}

impl Pause {
    /// What follows a wait of this length.
    fn after(waited: Duration) -> Self {
        if waited < SHORT { Self::Yield } else { Self::Sleep }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_waits_do_not_sleep_and_long_ones_do() {
        for micros in [0, 40, 300] {
            assert_eq!(Pause::after(Duration::from_micros(micros)), Pause::Yield);
        }
        for micros in [500, 20_000, 10_000_000] {
            assert_eq!(Pause::after(Duration::from_micros(micros)), Pause::Sleep);
        }
    }
}
