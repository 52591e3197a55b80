//! [`Rhythm`]: how often ranks and launchers tell the store that they are there, and how long they may be silent.

use std::time::Duration;

use crate::launch::error::LaunchError;
use crate::launch::variables;

/// The longest silence by default.
const DEFAULT_LIMIT: Duration = Duration::from_secs(30);
/// The limits that may be set, in seconds.
const VALID_SECS: std::ops::RangeInclusive<f64> = 0.5..=86400.0;
/// Shortest limit that follows from a short timeout.
const MIN_LIMIT: Duration = Duration::from_millis(500);
/// Heartbeats in a limit, where it is short.
const BEATS: u32 = 10;
/// Longest time between two heartbeats.
const MAX_INTERVAL: Duration = Duration::from_secs(1);

/// The rhythm of one process's heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::launch) struct Rhythm {
    /// The silence after which a rank, or the store, counts as lost.
    pub(in crate::launch) limit: Duration,
    /// Time between two heartbeats: one second, or a tenth of a shorter limit.
    pub(in crate::launch) interval: Duration,
}

impl Rhythm {
    /// Returns the rhythm for a limit of `chosen`, or of BURN_MEGATRON_HEARTBEAT_LIMIT_SECS, or of 30 s.
    ///
    /// The limit is at most three quarters of `timeout`, so that a rank that waits in a collective for one that fell
    /// silent learns of it before its own time is over.
    ///
    /// # Errors
    /// The limit is no number of seconds from 0.5 to 86400.
    pub(in crate::launch) fn new(chosen: Option<Duration>, timeout: Duration) -> Result<Rhythm, LaunchError> {
        let given = match chosen {
            Some(limit) => Some(limit.as_secs_f64().to_string()),
            None => std::env::var_os(variables::HEARTBEAT_LIMIT).map(|value| value.to_string_lossy().into_owned()),
        };
        let limit = given.map_or(Ok(DEFAULT_LIMIT), |value| parse(&value))?;
        let limit = limit.min(timeout.mul_f64(0.75)).max(MIN_LIMIT);
        Ok(Rhythm {
            limit,
            interval: (limit / BEATS).min(MAX_INTERVAL),
        })
    }

    /// Returns how many heartbeats may go unanswered.
    pub(in crate::launch) fn beats(&self) -> u32 {
        (self.limit.as_secs_f64() / self.interval.as_secs_f64()).ceil() as u32
    }
}

fn parse(value: &str) -> Result<Duration, LaunchError> {
    match value.parse::<f64>() {
        Ok(secs) if VALID_SECS.contains(&secs) => Ok(Duration::from_secs_f64(secs)),
        _ => Err(LaunchError::InvalidVariable {
            name: variables::HEARTBEAT_LIMIT,
            value: value.into(),
            rule: format!(
                "must be the longest silence of a rank in seconds; valid: {} to {}",
                VALID_SECS.start(),
                VALID_SECS.end()
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_generous_and_below_the_timeout() {
        let rhythm = |chosen: Option<u64>, timeout| {
            let chosen = chosen.map(Duration::from_secs);
            let rhythm = Rhythm::new(chosen, Duration::from_secs(timeout)).unwrap();
            (rhythm.limit.as_millis(), rhythm.interval.as_millis(), rhythm.beats())
        };
        assert_eq!(rhythm(Some(30), 600), (30_000, 1000, 30));
        assert_eq!(rhythm(Some(5), 600), (5000, 500, 10));
        assert_eq!(rhythm(Some(30), 4), (3000, 300, 10));
        assert_eq!(rhythm(Some(30), 0), (500, 50, 10));
    }

    #[test]
    fn limits_that_make_no_sense_are_refused() {
        for value in ["0", "-3", "NaN", "inf", "", "5 s", "86401"] {
            let error = parse(value).unwrap_err().to_string();
            assert!(
                error.contains("BURN_MEGATRON_HEARTBEAT_LIMIT_SECS") && error.ends_with("valid: 0.5 to 86400"),
                "{error}"
            );
        }
        assert_eq!(parse("2.5").unwrap(), Duration::from_millis(2500));
    }
}
