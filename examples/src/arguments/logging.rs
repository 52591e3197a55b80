//! Flags that say what is reported of a run, and when it ends early.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use burn_megatron::training::BatchSizeSchedule;
use clap::Args;

use super::parallel::duration;

/// What is reported of the run, and how often.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Logging and validation")]
pub struct LoggingArguments {
    /// Steps between lines of output
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub log_interval: u64,
    /// Steps between validations; 0 for none but the one at the end
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub eval_interval: u64,
    /// Global batches per validation; 0 for no validation
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub eval_iters: u64,
    /// Steps between comparisons of replicated parameters over the ranks; 0 for none
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub check_weight_hash_across_dp_replicas_interval: u64,
    /// Write one JSON object per step to this file
    #[arg(long, value_name = "PATH")]
    pub log_jsonl: Option<PathBuf>,
    /// Count the elements of the gradient that are zero, and those that are not finite, for --log-jsonl
    #[arg(long)]
    pub log_num_zeros_in_grad: bool,
    /// Tell each rank's time in compute and in waiting with each line, and name the slowest
    #[arg(long)]
    pub log_stragglers: bool,
    /// Share of the median by which a rank must compute longer to be named a straggler
    #[arg(long, value_name = "X", default_value_t = 0.1)]
    pub straggler_share: f64,
    /// Draw what each rank did when, and the simulated schedule below it, as an SVG
    #[arg(long, value_name = "PATH")]
    pub timeline: Option<PathBuf>,
    /// Write what each rank did when in Chrome's trace format, for Perfetto
    #[arg(long, value_name = "PATH")]
    pub trace: Option<PathBuf>,
    /// First step of timeline and trace, and of --profile; Megatron-LM counts the steps before it
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub profile_step_start: u64,
    /// Last step of timeline and trace, and of --profile [default: profile-step-start]
    #[arg(long, value_name = "N")]
    pub profile_step_end: Option<u64>,
    /// Stop all ranks, with exit code 0, after the step in which this time since the start ends
    #[arg(long, value_name = "MINUTES")]
    pub exit_duration_in_mins: Option<f64>,
    /// Stop all ranks, with exit code 0, after the next step that is a multiple of N
    #[arg(long, value_name = "N")]
    pub exit_interval: Option<NonZeroU64>,
}

impl LoggingArguments {
    /// How long a run may take, if a person said so.
    ///
    /// # Errors
    /// When it is not a positive number of minutes, below a year.
    pub fn exit_duration(&self) -> anyhow::Result<Option<Duration>> {
        let minutes = self.exit_duration_in_mins;
        minutes
            .map(|minutes| duration("--exit-duration-in-mins", minutes))
            .transpose()
    }

    /// The steps of timeline and trace.
    pub fn profile_steps(&self) -> std::ops::Range<u64> {
        let start = self.profile_step_start;
        start..self.profile_step_end.unwrap_or(start).saturating_add(1)
    }

    pub fn wants_timeline(&self) -> bool {
        self.timeline.is_some() || self.trace.is_some()
    }

    /// Checks the values that a type does not.
    ///
    /// # Errors
    /// When a time or a share is negative or not a number, or a time is no less than a year.
    pub fn validate(&self) -> anyhow::Result<()> {
        let share = self.straggler_share;
        anyhow::ensure!(
            share.is_finite() && share >= 0.0,
            "--straggler-share must be finite and not negative, got {share}"
        );
        let (start, end) = (self.profile_step_start, self.profile_steps().end);
        anyhow::ensure!(
            start > 0 && start < end,
            "--profile-step-start must be at least 1 and at most --profile-step-end, got {start} and {}",
            end.saturating_sub(1)
        );
        self.exit_duration().map(drop)
    }

    /// Checks timeline and trace against the `num_steps` steps of the run.
    ///
    /// # Errors
    /// When a file is wanted of steps that do not come, or that are of different sizes, or both files are the same.
    pub fn validate_profile(&self, batch_sizes: &BatchSizeSchedule, num_steps: u64) -> anyhow::Result<()> {
        if !self.wants_timeline() {
            return Ok(());
        }
        let (first, last) = (self.profile_step_start, self.profile_steps().end - 1);
        anyhow::ensure!(
            last <= num_steps,
            "--timeline and --trace need --profile-step-start and --profile-step-end within the {num_steps} steps of \
             the run, got {first} and {last}"
        );
        let size = |step| batch_sizes.global_batch_size(batch_sizes.samples_of_steps(step - 1));
        anyhow::ensure!(
            size(first) == size(last),
            "--timeline and --trace need steps of one size: with --rampup-batch-size, step {first} is of {} samples \
             and step {last} of {}",
            size(first),
            size(last)
        );
        anyhow::ensure!(
            self.timeline != self.trace,
            "--timeline and --trace must be different files, got {:?} for both",
            self.timeline.as_deref().unwrap_or(std::path::Path::new(""))
        );
        Ok(())
    }
}
