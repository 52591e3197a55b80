//! Views of a run from outside: TensorBoard, Prometheus, timers, throughput, the capture of a profiler.

mod device_peak;
mod profiling;

use std::time::{Duration, Instant};

use burn::tensor::Device;
use burn_megatron::training::StepMetrics;
use burn_megatron_monitoring::progress::RemainingTime;
use burn_megatron_monitoring::prometheus::{MetricsServer, TrainingMetrics};
use burn_megatron_monitoring::scalars::{
    RunPosition, Scalar, ScalarSelection, StepScalars, ValidationScalars, timer_scalar,
};
use burn_megatron_monitoring::tensorboard::{SummaryWriter, SummaryWriterConfig, verbatim};
use burn_megatron_monitoring::timers::TimerReport;
use models::ModelFamily;

use crate::arguments::{SamplePrompt, TrainingArguments};
use crate::session::{Session, ValidationLosses};

pub use device_peak::DevicePeak;
use profiling::Profiling;

/// Words of a step's line of output in addition to its metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepNote {
    /// The time that the steps after it will take.
    pub remaining: Option<Duration>,
    /// TFLOP/s and MFU, if asked for.
    pub throughput: Option<String>,
}

/// Measures a run on every rank; rank 0 writes and serves what comes of it.
pub struct Monitoring {
    peak: Option<DevicePeak>,
    logs_throughput: bool,
    /// Steps between reports of the timers; 0 for none.
    timing_interval: u64,
    steps_timed: u64,
    profiling: Option<Profiling>,
    remaining: RemainingTime,
    last_step: Instant,
    world_size: usize,
    num_steps: u64,
    outputs: Option<Outputs>,
}

/// Files and server of rank 0.
struct Outputs {
    writer: Option<SummaryWriter>,
    writer_interval: u64,
    server: Option<MetricsServer>,
    metrics: TrainingMetrics,
}

impl Monitoring {
    /// Prepares what the flags ask for, and measures the devices' peak if it is needed and not known.
    ///
    /// # Communication
    /// With `--log-throughput` a barrier and one all-reduce of one number over the world.
    ///
    /// # Errors
    /// When they fail; on rank 0, when the event file cannot be made or the port is taken.
    pub fn new<C: ModelFamily>(
        arguments: &TrainingArguments,
        session: &Session<C>,
        device: &Device,
    ) -> anyhow::Result<Self> {
        let (flags, logging) = (&arguments.monitoring, &arguments.logging);
        let context = session.context();
        let first_step = session.iteration() + 1;
        let outputs = match context.rank() {
            0 => Some(Outputs::new(arguments)?),
            _ => None,
        };
        let peak = if flags.log_throughput {
            DevicePeak::find(flags, arguments.precision.dtype(), context, device)?
        } else {
            None
        };
        Ok(Self {
            peak,
            logs_throughput: flags.log_throughput,
            timing_interval: match flags.timing_log_level() {
                0 => 0,
                _ => logging.log_interval.max(1),
            },
            steps_timed: 0,
            profiling: Profiling::new(flags, logging, context.rank(), first_step),
            remaining: RemainingTime::default(),
            last_step: Instant::now(),
            world_size: context.grid().world_size(),
            num_steps: session.num_steps(),
            outputs,
        })
    }

    /// Says where the run can be watched, a line each.
    pub fn lines(&self) -> Vec<String> {
        let outputs = self.outputs.iter();
        let places = outputs.flat_map(|outputs| {
            let server = outputs.server.as_ref();
            let server = server.map(|server| format!("metrics for Prometheus: http://{}/metrics", server.address()));
            let writer = outputs.writer.as_ref();
            let writer = writer.map(|writer| format!("scalars for TensorBoard: {}", writer.path().display()));
            writer.into_iter().chain(server)
        });
        places.chain(self.peak.as_ref().map(DevicePeak::to_string)).collect()
    }

    pub fn before_step(&mut self, step: u64) {
        if let Some(profiling) = &mut self.profiling {
            profiling.before_step(step);
        }
    }

    pub fn step(&mut self, metrics: &StepMetrics, session: &Session<impl ModelFamily>) -> StepNote {
        let now = Instant::now();
        self.remaining.record(now.duration_since(self.last_step));
        self.last_step = now;
        let remaining = self.remaining.of(self.num_steps.saturating_sub(metrics.step));
        let peak = self.peak.as_ref();
        let mfu_percent = peak.and_then(|peak| peak.utilisation_percent(metrics.model_flops_per_second));
        if let Some(outputs) = &mut self.outputs {
            let scalars = step_scalars(metrics, position(session), self.world_size, mfu_percent);
            let selection = ScalarSelection {
                throughput: self.logs_throughput,
            };
            outputs.step(&scalars, selection, remaining);
        }
        let throughput = self.logs_throughput.then(|| {
            let each = metrics.model_flops_per_second / 1e12 / self.world_size as f64;
            let share = mfu_percent.map_or(String::new(), |percent| format!(" | MFU {percent:.1}%"));
            format!("throughput per GPU (TFLOP/s/GPU): {each:.4}{share}")
        });
        StepNote { remaining, throughput }
    }

    pub fn validation(&mut self, losses: &ValidationLosses, session: &Session<impl ModelFamily>) {
        if let Some(outputs) = &mut self.outputs {
            let validation = ValidationScalars {
                position: position(session),
                loss: Some(losses.loss),
                of_sets: losses.of_sets.clone(),
            };
            outputs.metrics.validation(&validation);
            if let Some(writer) = &mut outputs.writer {
                writer.scalars(&validation.scalars());
            }
            outputs.publish();
        }
    }

    /// Writes the text that the model has written after a step, which rank 0 has, with the beginning that it was given.
    pub fn sample(&mut self, prompt: &SamplePrompt, continuation: Option<&str>, step: u64) {
        let writer = self.outputs.as_mut().and_then(|outputs| outputs.writer.as_mut());
        if let (Some(writer), Some(continuation)) = (writer, continuation) {
            writer.text("sample", &verbatim(&format!("{}{continuation}", prompt.text)), step);
        }
    }

    /// Ends what belongs to a step, after its validation. At an interval of steps and at the end, returns the times of
    /// the parts since the last such step.
    ///
    /// # Communication
    /// With `--timing-log-level` above 0, at these steps an all-gather of the timers over the world.
    pub fn after_step(
        &mut self,
        step: u64,
        is_last: bool,
        session: &Session<impl ModelFamily>,
    ) -> anyhow::Result<Option<String>> {
        if let Some(profiling) = &mut self.profiling {
            profiling.after_step(step, is_last);
        }
        self.steps_timed += 1;
        if self.timing_interval == 0 || !(step.is_multiple_of(self.timing_interval) || is_last) {
            return Ok(None);
        }
        let steps = std::mem::take(&mut self.steps_timed);
        let world = session.context().world_group();
        let report = session.observer().timers().report(steps, |mine| {
            let mut all = vec![0.0; mine.len() * world.size()];
            world.all_gather(mine, &mut all).map(|()| all)
        })?;
        if let Some(writer) = self.outputs.as_mut().and_then(|outputs| outputs.writer.as_mut()) {
            writer.scalars(&scalars_of_timers(&report, step));
        }
        Ok(Some(report.to_string()).filter(|text| !text.is_empty()))
    }
}

impl Outputs {
    fn new(arguments: &TrainingArguments) -> anyhow::Result<Self> {
        let flags = &arguments.monitoring;
        let usual = SummaryWriterConfig::default();
        let config = SummaryWriterConfig {
            queue_size: flags.tensorboard_queue_size.unwrap_or(usual.queue_size),
            ..usual
        };
        let writer = flags.tensorboard_dir.as_deref();
        let writer = writer.map(|folder| SummaryWriter::create(folder, config)).transpose()?;
        let server = flags.prometheus_port;
        let server = server
            .map(|port| MetricsServer::start(flags.prometheus_address(), port))
            .transpose()?;
        Ok(Self {
            writer,
            writer_interval: flags.tensorboard_log_interval(),
            server,
            metrics: TrainingMetrics::default(),
        })
    }

    fn step(&mut self, step: &StepScalars, selection: ScalarSelection, remaining: Option<Duration>) {
        if let Some(writer) = &mut self.writer
            && step.position.step.is_multiple_of(self.writer_interval)
        {
            writer.scalars(&step.scalars(selection));
        }
        self.metrics.step(step, remaining);
        self.publish();
    }

    fn publish(&self) {
        if let Some(server) = &self.server {
            server.publish(&self.metrics.text());
        }
    }
}

fn position(session: &Session<impl ModelFamily>) -> RunPosition {
    RunPosition {
        step: session.iteration(),
        consumed_samples: session.consumed_samples(),
    }
}

fn step_scalars(
    metrics: &StepMetrics,
    position: RunPosition,
    world_size: usize,
    mfu_percent: Option<f64>,
) -> StepScalars {
    StepScalars {
        position,
        learning_rate: metrics.learning_rate,
        global_batch_size: metrics.global_batch_size,
        loss: metrics.loss,
        loss_scale: metrics.loss_scale,
        grad_norm: metrics.grad_norm,
        num_zeros: metrics.num_zeros_in_grad,
        is_skipped: metrics.is_skipped,
        world_size,
        step_seconds: metrics.step_seconds,
        tokens_per_second: metrics.tokens_per_second,
        model_flops_per_second: metrics.model_flops_per_second,
        mfu_percent,
        reserved_device_bytes: metrics.peak_device_memory_bytes,
        peak_memory_bytes: metrics.peak_memory_bytes,
        communication_bytes: metrics.communication_bytes,
    }
}

fn scalars_of_timers(report: &TimerReport, step: u64) -> Vec<Scalar> {
    let longest = report.longest().into_iter();
    longest
        .map(|(timer, seconds)| timer_scalar(timer.name(), seconds, step))
        .collect()
}
