//! [`Timers`]: how long the parts of a step take, over all ranks, as Megatron-LM reports it.
//!
//! Names, levels and the form of the lines are those of Megatron-LM at `d98e8a64`: `megatron/core/timers.py`, and the
//! calls of `timers(…, log_level=…)` in `megatron/training/training.py`, `core/pipeline_parallel/schedules.py` and
//! `p2p_communication.py`, `core/distributed/finalize_model_grads.py` and `pretrain_gpt.py`. Unlike Megatron-LM's, a
//! timer neither synchronises the ranks nor waits for the GPU: what was launched and not waited for is in the timer in
//! which something waits.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use strum::{IntoStaticStr, VariantArray};

/// A part of a run that can be timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Timer {
    /// Model, data and optimizer are made.
    ModelAndOptimizerSetup,
    /// A checkpoint is read.
    LoadCheckpoint,
    /// A checkpoint is written, or training waits for that.
    SaveCheckpoint,
    /// A validation.
    Evaluate,
    /// All passes of a step.
    ForwardBackward,
    /// Gradients are reduced over the ranks and finalised.
    AllGradsSync,
    /// The optimizer's step, clipping included.
    Optimizer,
    /// A rank waits for its data.
    BatchGenerator,
    /// Forward passes.
    ForwardCompute,
    /// Backward passes.
    BackwardCompute,
    /// Activations come from the stage before.
    ForwardRecv,
    /// Activations leave for the next stage.
    ForwardSend,
    /// Gradients come from the next stage.
    BackwardRecv,
    /// Gradients leave for the stage before.
    BackwardSend,
}

impl Timer {
    /// All of them, in the order in which they are reported.
    pub const ALL: &'static [Timer] = Self::VARIANTS;

    /// Returns its name in lines of output, and with `-time` in TensorBoard.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The least `--timing-log-level` at which it runs: 0 once in a while, 1 once a step, 2 often in a step.
    pub fn level(self) -> u8 {
        match self {
            Timer::ModelAndOptimizerSetup | Timer::LoadCheckpoint | Timer::SaveCheckpoint | Timer::Evaluate => 0,
            Timer::ForwardBackward | Timer::AllGradsSync | Timer::Optimizer => 1,
            _ => 2,
        }
    }
}

/// What is reported of the ranks' times: `--timing-log-option`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimingOption {
    /// The longest.
    Max,
    /// The shortest and the longest.
    #[default]
    MinMax,
    /// Each rank's.
    All,
}

/// The timers of a rank. Clones share them; any thread may use them.
///
/// A timer that is not enabled costs a comparison, one that is two readings of the clock.
#[derive(Clone, Debug)]
pub struct Timers {
    level: u8,
    option: TimingOption,
    slots: Arc<[Slot; Timer::ALL.len()]>,
}

#[derive(Debug, Default)]
struct Slot {
    nanoseconds: AtomicU64,
    /// How often it runs now: only the outermost counts.
    depth: AtomicU32,
}

/// A timer that runs until this is dropped.
#[must_use = "the timer stops when this is dropped"]
#[derive(Debug)]
pub struct RunningTimer<'a> {
    /// `None` if the timer is not enabled, or runs further out.
    running: Option<Instant>,
    slot: Option<&'a Slot>,
}

impl Timers {
    /// Returns timers up to a level, of which 2 is the highest; all are at zero.
    pub fn new(level: u8, option: TimingOption) -> Self {
        Self {
            level,
            option,
            slots: Arc::default(),
        }
    }

    /// Whether a timer runs at this level.
    pub fn is_enabled(&self, timer: Timer) -> bool {
        timer.level() <= self.level
    }

    /// Starts a timer. Timers may run within each other; of one timer within itself the outer one counts.
    pub fn start(&self, timer: Timer) -> RunningTimer<'_> {
        if !self.is_enabled(timer) {
            return RunningTimer {
                running: None,
                slot: None,
            };
        }
        let slot = &self.slots[timer as usize];
        let is_outermost = slot.depth.fetch_add(1, Ordering::Relaxed) == 0;
        RunningTimer {
            running: is_outermost.then(Instant::now),
            slot: Some(slot),
        }
    }

    /// Adds a time that was measured elsewhere.
    pub fn add(&self, timer: Timer, time: Duration) {
        if self.is_enabled(timer) {
            self.slots[timer as usize].add(time);
        }
    }

    /// Takes the time of every timer in seconds, in the order of [`Timer::ALL`], and sets all to zero. What runs counts
    /// when it stops.
    pub fn take(&self) -> Vec<f64> {
        let seconds = |slot: &Slot| slot.nanoseconds.swap(0, Ordering::Relaxed) as f64 / 1e9;
        self.slots.iter().map(seconds).collect()
    }

    /// Takes the times since the last report and returns all ranks', over `num_steps` steps: a mean for each step.
    ///
    /// `gather` gets this rank's times and returns those of all ranks, one rank's after the other's. Every rank calls
    /// this, or the gathering waits.
    ///
    /// # Errors
    /// That of `gather`.
    ///
    /// # Panics
    /// When `gather` returns no whole number of ranks.
    pub fn report<E>(
        &self,
        num_steps: u64,
        gather: impl FnOnce(&[f64]) -> Result<Vec<f64>, E>,
    ) -> Result<TimerReport, E> {
        let mine = self.take();
        let all = gather(&mine)?;
        assert!(
            !all.is_empty() && all.len().is_multiple_of(mine.len()),
            "{} times of {} timers",
            all.len(),
            mine.len()
        );
        let steps = num_steps.max(1) as f64;
        let of_rank = |times: &[f64]| times.iter().map(|seconds| seconds / steps).collect();
        Ok(TimerReport {
            option: self.option,
            ranks: all.chunks_exact(mine.len()).map(of_rank).collect(),
        })
    }
}

impl Slot {
    fn add(&self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

impl Drop for RunningTimer<'_> {
    fn drop(&mut self) {
        let Some(slot) = self.slot else {
            return;
        };
        if let Some(started) = self.running {
            slot.add(started.elapsed());
        }
        slot.depth.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The times of all ranks. Its `Display` is Megatron-LM's lines, and empty if nothing ran.
#[derive(Clone, Debug, PartialEq)]
pub struct TimerReport {
    option: TimingOption,
    /// Seconds, by rank and timer.
    ranks: Vec<Vec<f64>>,
}

impl TimerReport {
    /// Returns the timers that ran, each with the seconds of the ranks on which it did, by rank.
    pub fn times(&self) -> Vec<(Timer, Vec<(usize, f64)>)> {
        let of_timer = |timer: Timer| -> Vec<(usize, f64)> {
            let seconds = self.ranks.iter().map(|times| times[timer as usize]);
            seconds.enumerate().filter(|(_, seconds)| *seconds > 0.0).collect()
        };
        let all = Timer::ALL.iter().map(|&timer| (timer, of_timer(timer)));
        all.filter(|(_, times)| !times.is_empty()).collect()
    }

    /// Returns the longest time of each timer that ran, in seconds.
    pub fn longest(&self) -> Vec<(Timer, f64)> {
        let all = self.times().into_iter();
        all.map(|(timer, times)| (timer, range(&times).1)).collect()
    }
}

/// The shortest and the longest of the ranks' times.
fn range(times: &[(usize, f64)]) -> (f64, f64) {
    times.iter().fold((f64::INFINITY, 0.0_f64), |(min, max), (_, seconds)| {
        (min.min(*seconds), max.max(*seconds))
    })
}

impl fmt::Display for TimerReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = self.times();
        if times.is_empty() {
            return Ok(());
        }
        formatter.write_str(match self.option {
            TimingOption::Max => "max time across ranks (ms):",
            TimingOption::MinMax => "(min, max) time across ranks (ms):",
            TimingOption::All => "times across ranks (ms):",
        })?;
        for (timer, of_ranks) in times {
            let (min, max) = range(&of_ranks);
            let (min, max) = (1e3 * min, 1e3 * max);
            let mut name = format!("{} ", timer.name());
            while name.len() < 48 {
                name.push('.');
            }
            match self.option {
                TimingOption::Max => write!(formatter, "\n    {name}: {max:.2}")?,
                TimingOption::MinMax => write!(formatter, "\n    {name}: ({min:.2}, {max:.2})")?,
                TimingOption::All => {
                    write!(formatter, "\n  {}:", timer.name())?;
                    for (rank, seconds) in of_ranks {
                        write!(formatter, "\n     rank {rank:2}: {:.2}", 1e3 * seconds)?;
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// The report of two ranks, of which the other one took twice as long and did not validate.
    fn report(timers: &Timers, num_steps: u64) -> TimerReport {
        let gathered = timers.report(num_steps, |mine| {
            let other = mine.iter().enumerate();
            let other = other.map(|(timer, seconds)| {
                if timer == Timer::Evaluate as usize {
                    0.0
                } else {
                    2.0 * seconds
                }
            });
            Ok::<_, Infallible>(mine.iter().copied().chain(other).collect())
        });
        let Ok(gathered) = gathered;
        gathered
    }

    fn timers(option: TimingOption) -> Timers {
        let timers = Timers::new(2, option);
        timers.add(Timer::Evaluate, Duration::from_millis(500));
        timers.add(Timer::ForwardBackward, Duration::from_millis(100));
        timers.add(Timer::ForwardBackward, Duration::from_micros(2500));
        timers
    }

    #[test]
    fn lines_are_megatrons() {
        assert_eq!(
            report(&timers(TimingOption::MinMax), 10).to_string(),
            "(min, max) time across ranks (ms):\n    \
             evaluate .......................................: (50.00, 50.00)\n    \
             forward-backward ...............................: (10.25, 20.50)"
        );
        assert_eq!(
            report(&timers(TimingOption::Max), 1).to_string(),
            "max time across ranks (ms):\n    \
             evaluate .......................................: 500.00\n    \
             forward-backward ...............................: 205.00"
        );
        assert_eq!(
            report(&timers(TimingOption::All), 1).to_string(),
            "times across ranks (ms):\n  evaluate:\n     rank  0: 500.00\n  \
             forward-backward:\n     rank  0: 102.50\n     rank  1: 205.00"
        );
    }

    #[test]
    fn a_report_begins_again_and_is_empty_if_nothing_ran() {
        let timers = timers(TimingOption::MinMax);
        let longest = report(&timers, 1).longest();
        assert_eq!(longest, [(Timer::Evaluate, 0.5), (Timer::ForwardBackward, 0.205)]);
        let empty = report(&timers, 1);
        assert!(empty.longest().is_empty() && empty.to_string().is_empty());
    }

    #[test]
    fn what_is_above_the_level_does_not_run() {
        let timers = Timers::new(1, TimingOption::MinMax);
        for &timer in Timer::ALL {
            timers.add(timer, Duration::from_secs(1));
            drop(timers.start(timer));
        }
        for (timer, seconds) in Timer::ALL.iter().zip(timers.take()) {
            assert_eq!(seconds > 0.0, timer.level() <= 1, "{timer:?}");
        }
    }

    #[test]
    fn timers_run_within_each_other_and_one_within_itself_counts_once() {
        let timers = Timers::new(2, TimingOption::MinMax);
        let started = Instant::now();
        {
            let _outer = timers.start(Timer::ForwardBackward);
            for _ in 0..3 {
                let _inner = timers.start(Timer::ForwardCompute);
                let _again = timers.clone().start(Timer::ForwardBackward).slot.is_some();
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let elapsed = started.elapsed().as_secs_f64();
        let times = timers.take();
        let (outer, inner) = (
            times[Timer::ForwardBackward as usize],
            times[Timer::ForwardCompute as usize],
        );
        assert!(
            0.015 <= inner && inner <= outer && outer <= elapsed,
            "{inner} {outer} {elapsed}"
        );
    }
}
