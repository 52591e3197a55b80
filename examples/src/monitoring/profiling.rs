//! `Profiling`: the capture of some steps by Nsight Systems.

use burn_megatron_monitoring::profiler::{CudaProfiler, ProfiledSteps};

use crate::arguments::{LoggingArguments, MonitoringArguments};

/// Starts and stops the capture on this rank.
#[derive(Debug)]
pub(super) struct Profiling {
    steps: ProfiledSteps,
    profiler: CudaProfiler,
    /// The first step of this process.
    first_step: u64,
    is_on: bool,
}

impl Profiling {
    /// Returns the capture of a rank whose first step is `first_step`, if the flags ask for one.
    pub(super) fn new(
        arguments: &MonitoringArguments,
        logging: &LoggingArguments,
        rank: usize,
        first_step: u64,
    ) -> Option<Self> {
        let range = logging.profile_steps();
        let steps = ProfiledSteps {
            steps: range.start..=range.end.saturating_sub(1),
            ranks: arguments.profile_ranks(),
        };
        (arguments.profile && steps.has_rank(rank)).then(|| Self {
            steps,
            profiler: CudaProfiler::load(),
            first_step,
            is_on: false,
        })
    }

    /// Starts the capture before its first step. What goes wrong ends no training.
    pub(super) fn before_step(&mut self, step: u64) {
        if !self.steps.starts_before(step, self.first_step) {
            return;
        }
        match self.profiler.start() {
            Ok(library) => {
                self.is_on = true;
                tracing::info!(step, library, "the capture starts");
            }
            Err(error) => tracing::warn!(step, "the capture does not start: {error}"),
        }
    }

    /// Stops the capture after its last step, or that of the run.
    pub(super) fn after_step(&mut self, step: u64, is_last: bool) {
        if !self.is_on || !self.steps.ends_after(step, is_last) {
            return;
        }
        self.is_on = false;
        if let Err(error) = self.profiler.stop() {
            tracing::warn!(step, "the capture does not stop: {error}");
        }
    }
}
