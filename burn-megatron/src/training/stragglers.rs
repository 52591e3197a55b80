//! [`StragglerReport`]: which rank the others wait for.
//!
//! Ranks that train together take the same time; what differs is how they spend it. The slowest rank computes
//! longest and waits least.

use std::fmt;
use std::time::Duration;

use super::spread::Spread;
use crate::collectives::{CollectiveError, ProcessGroup};

/// Ranks whose times are printed; of more ranks those that wait least.
const SHOWN: usize = 10;

/// How one rank spent its time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RankTime {
    /// Time outside blocking collectives.
    pub compute: Duration,
    /// Time in blocking collectives, and in waiting for those that were started: see
    /// [`ProcessGroup::time_blocked`].
    pub waiting: Duration,
}

/// How all ranks spent their time. Its `Display` is one line: of many ranks how their times are distributed, and those
/// of the ten that wait least.
#[derive(Clone, Debug, PartialEq)]
pub struct StragglerReport {
    ranks: Vec<RankTime>,
    share: f64,
}

impl StragglerReport {
    /// Returns a report of the ranks' times, by rank. A rank is slow when it computes longer than the median by more
    /// than `share` of it.
    ///
    /// # Panics
    /// There is no rank.
    pub fn new(ranks: Vec<RankTime>, share: f64) -> Self {
        assert!(!ranks.is_empty(), "a report of {} ranks", ranks.len());
        Self { ranks, share }
    }

    /// Returns the report of all ranks of `group`, the same on each.
    ///
    /// # Communication
    /// One all-gather of two numbers over `group`.
    ///
    /// # Errors
    /// As [`ProcessGroup::all_gather`].
    pub fn gather(mine: RankTime, share: f64, group: &ProcessGroup) -> Result<Self, CollectiveError> {
        let mut seconds = vec![0.0; 2 * group.size()];
        group.all_gather(&[mine.compute.as_secs_f64(), mine.waiting.as_secs_f64()], &mut seconds)?;
        let (pairs, _) = seconds.as_chunks::<2>();
        let ranks = pairs.iter().map(|&[compute, waiting]| RankTime {
            compute: Duration::from_secs_f64(compute),
            waiting: Duration::from_secs_f64(waiting),
        });
        Ok(Self::new(ranks.collect(), share))
    }

    /// Returns each rank's time, by rank.
    pub fn ranks(&self) -> &[RankTime] {
        &self.ranks
    }

    /// Returns the rank that waits least, if it is slow.
    pub fn slowest(&self) -> Option<usize> {
        let (rank, time) = self.ranks.iter().enumerate().min_by_key(|(_, time)| time.waiting)?;
        let limit = self.spread(|time| time.compute).median() * (1.0 + self.share);
        (time.compute.as_secs_f64() > limit).then_some(rank)
    }

    /// The seconds of all ranks.
    fn spread(&self, time: impl Fn(&RankTime) -> Duration) -> Spread {
        Spread::new(self.ranks.iter().map(|rank| time(rank).as_secs_f64()))
    }

    /// The ranks that are printed.
    fn shown(&self) -> Vec<(usize, &RankTime)> {
        let mut ranks: Vec<(usize, &RankTime)> = self.ranks.iter().enumerate().collect();
        if ranks.len() > SHOWN {
            ranks.sort_by_key(|(_, time)| time.waiting);
            ranks.truncate(SHOWN);
        }
        ranks
    }
}

impl fmt::Display for StragglerReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("seconds in compute + waiting:")?;
        if self.ranks.len() > SHOWN {
            let compute = self.spread(|time| time.compute).text(2);
            let waiting = self.spread(|time| time.waiting).text(2);
            write!(formatter, " {} ranks {compute} + {waiting}, least:", self.ranks.len())?;
        }
        for (rank, time) in self.shown() {
            let (compute, waiting) = (time.compute.as_secs_f64(), time.waiting.as_secs_f64());
            write!(formatter, " rank {rank} {compute:.2} + {waiting:.2}")?;
        }
        let Some(slowest) = self.slowest() else {
            return write!(formatter, " | no straggler");
        };
        let (slow, median) = (
            self.ranks[slowest].compute.as_secs_f64(),
            self.spread(|time| time.compute).median(),
        );
        let above = 100.0 * (slow / median - 1.0);
        write!(
            formatter,
            " | straggler: rank {slowest}, {above:.0}% slower than the median"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(times: &[(u64, u64)], share: f64) -> StragglerReport {
        let ranks = times.iter().map(|&(compute, waiting)| RankTime {
            compute: Duration::from_millis(compute),
            waiting: Duration::from_millis(waiting),
        });
        StragglerReport::new(ranks.collect(), share)
    }

    #[test]
    fn the_rank_that_waits_least_is_named_when_it_is_slow_enough() {
        let times = [(1000, 510), (1500, 10), (990, 520)];
        assert_eq!(report(&times, 0.2).slowest(), Some(1));
        assert_eq!(report(&times, 0.5).slowest(), None, "exactly at the limit");
        assert_eq!(report(&[(1000, 100), (1400, 5)], 0.1).slowest(), Some(1));
        assert_eq!(report(&[(1000, 0)], 0.0).slowest(), None);
        assert_eq!(
            report(&times, 0.2).to_string(),
            "seconds in compute + waiting: rank 0 1.00 + 0.51 rank 1 1.50 + 0.01 rank 2 0.99 + 0.52 | straggler: rank \
             1, 50% slower than the median"
        );
    }

    #[test]
    fn of_many_ranks_those_that_wait_least_are_named() {
        let mut times = [(1000, 510); 4096];
        times[700] = (1500, 10);
        let text = report(&times, 0.2).to_string();
        let start = "seconds in compute + waiting: 4096 ranks 1.00 to 1.50, median 1.00 |█          ▁| + 0.01 to 0.51, \
                     median 0.51 |▁          █|, least: rank 700 1.50 + 0.01 rank 0 1.00 + 0.51 ";
        assert!(text.starts_with(start), "{text}");
        assert!(
            text.ends_with(" rank 8 1.00 + 0.51 | straggler: rank 700, 50% slower than the median"),
            "{text}"
        );
    }
}
