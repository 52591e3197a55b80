//! Flags that say what is measured of a run and where it can be watched.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use burn_megatron_monitoring::timers::TimingOption;
use clap::{Args, ValueEnum};

/// The default length of what the model in training writes, in tokens.
const SAMPLE_LENGTH: usize = 64;

/// What is measured, and where it can be watched.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Monitoring")]
pub struct MonitoringArguments {
    /// Write scalars for TensorBoard to this folder
    #[arg(long, value_name = "DIR")]
    pub tensorboard_dir: Option<PathBuf>,
    /// Steps between scalars for TensorBoard [default: 1]
    #[arg(long, value_name = "N")]
    pub tensorboard_log_interval: Option<u64>,
    /// Events for TensorBoard that may wait for the disk; one more is left out [default: 1000]
    #[arg(long, value_name = "N")]
    pub tensorboard_queue_size: Option<usize>,
    /// Steps between texts that the model in training writes, for TensorBoard [default: none are written]
    #[arg(long, value_name = "N", requires = "tensorboard_dir")]
    pub log_samples_interval: Option<u64>,
    /// The text that these continue [default: the beginning of a document]
    #[arg(long, value_name = "TEXT", requires = "log_samples_interval")]
    pub sample_prompt: Option<String>,
    /// The most tokens of each continuation [default: 64]
    #[arg(long, value_name = "N", requires = "log_samples_interval")]
    pub sample_length: Option<usize>,
    /// Report TFLOP/s per rank, and the share of the device's peak that they are (MFU)
    #[arg(long)]
    pub log_throughput: bool,
    /// The peak of a rank's device in TFLOP/s, for --log-throughput [default: that of a known GPU; of others, what a
    /// matmul reaches at the start]
    #[arg(long, value_name = "X", requires = "log_throughput")]
    pub peak_tflops: Option<f64>,
    /// Report how long the parts of a step take, with each line: 0 nothing, 1 what happens once in a step, 2 everything
    /// [default: 0]
    #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(u8).range(0..=2))]
    pub timing_log_level: Option<u8>,
    /// Which ranks' times are reported [default: minmax]
    #[arg(long, value_enum, value_name = "OPTION")]
    pub timing_log_option: Option<TimingLogOption>,
    /// Serve the last step's metrics to Prometheus at this port of rank 0's machine, as /metrics
    #[arg(long, value_name = "PORT")]
    pub prometheus_port: Option<u16>,
    /// The address that --prometheus-port listens on [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS", requires = "prometheus_port")]
    pub prometheus_address: Option<IpAddr>,
    /// Tell Nsight Systems to capture the steps from --profile-step-start to --profile-step-end, with NVTX ranges:
    /// `nsys profile --capture-range=cudaProfilerApi --capture-range-end=stop` before the command
    #[arg(long)]
    pub profile: bool,
    /// The ranks that --profile captures [default: 0]
    #[arg(long, value_name = "RANK", num_args = 1..)]
    pub profile_ranks: Option<Vec<usize>>,
}

/// Which ranks' times are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TimingLogOption {
    /// The longest.
    Max,
    /// The shortest and the longest.
    Minmax,
    /// All.
    All,
}

/// What is continued, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SamplePrompt {
    /// The beginning; if it is empty, that of a document.
    pub text: String,
    /// The most tokens of the continuation; fewer where the model has no more positions.
    pub max_tokens: usize,
}

impl MonitoringArguments {
    /// Steps between scalars for TensorBoard.
    pub fn tensorboard_log_interval(&self) -> u64 {
        self.tensorboard_log_interval.unwrap_or(1)
    }

    /// What the model in training continues after a step, if it does so.
    pub fn sample_after(&self, step: u64) -> Option<SamplePrompt> {
        let is_due = |interval: &u64| step.is_multiple_of(*interval);
        self.log_samples_interval.filter(is_due)?;
        self.sample_prompt()
    }

    /// What the model in training continues, if it does so.
    pub fn sample_prompt(&self) -> Option<SamplePrompt> {
        self.log_samples_interval?;
        Some(SamplePrompt {
            text: self.sample_prompt.clone().unwrap_or_default(),
            max_tokens: self.sample_length.unwrap_or(SAMPLE_LENGTH),
        })
    }

    /// Up to which level timers run.
    pub fn timing_log_level(&self) -> u8 {
        self.timing_log_level.unwrap_or(0)
    }

    /// Which ranks' times are reported.
    pub fn timing_option(&self) -> TimingOption {
        match self.timing_log_option {
            Some(TimingLogOption::Max) => TimingOption::Max,
            Some(TimingLogOption::All) => TimingOption::All,
            Some(TimingLogOption::Minmax) | None => TimingOption::MinMax,
        }
    }

    /// Where metrics are served.
    pub fn prometheus_address(&self) -> IpAddr {
        self.prometheus_address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// The ranks that are captured.
    pub fn profile_ranks(&self) -> Vec<usize> {
        self.profile_ranks.clone().unwrap_or_else(|| vec![0])
    }

    /// The same on every rank: without what only rank 0 writes or serves.
    pub(super) fn common(&self) -> Self {
        Self {
            tensorboard_dir: None,
            tensorboard_log_interval: None,
            tensorboard_queue_size: None,
            prometheus_port: None,
            prometheus_address: None,
            ..self.clone()
        }
    }

    /// Checks the values that a type does not, for `world_size` ranks and `num_steps` steps, of which those of `steps`
    /// are profiled.
    ///
    /// # Errors
    /// When an interval or a queue is empty, a peak is not above zero, or a captured rank or step is not there.
    pub fn validate(&self, world_size: usize, num_steps: u64, steps: std::ops::Range<u64>) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.tensorboard_log_interval != Some(0),
            "--tensorboard-log-interval must be at least 1, got 0"
        );
        anyhow::ensure!(
            !matches!(self.tensorboard_queue_size, Some(0 | 1_000_001..)),
            "--tensorboard-queue-size must be from 1 to 1000000, got {}",
            self.tensorboard_queue_size.unwrap_or_default()
        );
        for (flag, value) in [
            ("--log-samples-interval", self.log_samples_interval),
            ("--sample-length", self.sample_length.map(|length| length as u64)),
        ] {
            anyhow::ensure!(value != Some(0), "{flag} must be at least 1, got 0");
        }
        if let Some(peak) = self.peak_tflops {
            anyhow::ensure!(
                peak.is_finite() && peak > 0.0,
                "--peak-tflops must be finite and above 0, got {peak}"
            );
        }
        if let Some(rank) = self.profile_ranks().into_iter().find(|rank| *rank >= world_size) {
            anyhow::bail!("--profile-ranks must be from 0 to {}, got {rank}", world_size - 1);
        }
        anyhow::ensure!(
            !self.profile || steps.start <= num_steps,
            "--profile needs --profile-step-start within the {num_steps} steps of the run, got {}",
            steps.start
        );
        Ok(())
    }
}
