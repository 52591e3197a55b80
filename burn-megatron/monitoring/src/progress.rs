//! [`RemainingTime`]: when a run will be over, by how long its last steps took.

use std::collections::VecDeque;
use std::time::Duration;

/// Steps that the mean is of.
const WINDOW: usize = 50;
/// The longest time that is reported; anything above is a rate that means nothing yet.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Estimates the time to the end of a run: the mean of the last 50 steps times the steps that are left.
///
/// The first step of a process is left out as soon as there is a second: it compiles kernels and fills caches.
#[derive(Clone, Debug, Default)]
pub struct RemainingTime {
    last: VecDeque<Duration>,
    sum: Duration,
    has_forgotten_first: bool,
}

impl RemainingTime {
    /// Notes how long a step took, with what came between it and the step before.
    pub fn record(&mut self, step: Duration) {
        // Sums of such times cannot overflow.
        let step = step.min(LONGEST);
        let is_second = self.last.len() == 1 && !self.has_forgotten_first;
        if is_second || self.last.len() == WINDOW {
            self.has_forgotten_first = true;
            self.sum -= self.last.pop_front().unwrap_or_default();
        }
        self.sum += step;
        self.last.push_back(step);
    }

    /// Returns the mean time of the last steps, if there was one.
    pub fn mean(&self) -> Option<Duration> {
        let count = u32::try_from(self.last.len()).ok().filter(|count| *count > 0)?;
        Some(self.sum / count)
    }

    /// Returns the time that a number of steps will take, if there was one, a hundred years at most.
    pub fn of(&self, steps: u64) -> Option<Duration> {
        let seconds = self.mean()?.as_secs_f64() * steps as f64;
        Some(Duration::try_from_secs_f64(seconds).map_or(LONGEST, |time| time.min(LONGEST)))
    }
}

/// Returns a time with the two units that say most: `45 s`, `12 min 05 s`, `3 h 07 min`, `2 d 04 h`.
pub fn readable(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {:02} s", seconds % 60),
        (0, _, _) => format!("{hours} h {:02} min", minutes % 60),
        _ => format!("{days} d {:02} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_is_known_before_the_first_step() {
        let remaining = RemainingTime::default();
        assert_eq!((remaining.mean(), remaining.of(10)), (None, None));
    }

    #[test]
    fn the_first_step_counts_only_while_it_is_the_only_one() {
        let mut remaining = RemainingTime::default();
        remaining.record(Duration::from_secs(60));
        assert_eq!(remaining.of(2), Some(Duration::from_secs(120)));
        remaining.record(Duration::from_secs(1));
        assert_eq!(remaining.of(30), Some(Duration::from_secs(30)));
        remaining.record(Duration::from_secs(3));
        assert_eq!(remaining.of(10), Some(Duration::from_secs(20)));
        assert_eq!(remaining.of(0), Some(Duration::ZERO));
    }

    #[test]
    fn times_have_two_units() {
        for (seconds, text) in [
            (0.4, "0 s"),
            (59.4, "59 s"),
            (59.6, "1 min 00 s"),
            (725.0, "12 min 05 s"),
            (3600.0, "1 h 00 min"),
            (11250.0, "3 h 07 min"),
            (187200.0, "2 d 04 h"),
        ] {
            assert_eq!(readable(Duration::from_secs_f64(seconds)), text);
        }
    }

    proptest! {
        #[test]
        fn the_mean_is_that_of_the_last_steps(millis in prop::collection::vec(0_u64..u64::MAX, 1..200)) {
            let mut remaining = RemainingTime::default();
            for millis in &millis {
                remaining.record(Duration::from_millis(*millis));
            }
            let counted = &millis[millis.len().min(2) - 1..];
            let counted = &counted[counted.len().saturating_sub(WINDOW)..];
            let capped = |millis: &u64| Duration::from_millis(*millis).min(LONGEST);
            let sum: Duration = counted.iter().map(capped).sum();
            prop_assert_eq!(remaining.mean(), Some(sum / u32::try_from(counted.len()).unwrap()));
            prop_assert!(remaining.of(u64::MAX).unwrap() <= LONGEST);
        }
    }
}
