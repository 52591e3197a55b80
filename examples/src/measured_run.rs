//! Runs that benchmarks measure: a job of ranks that train, and the metrics of the steps that count.

use std::ffi::OsString;
use std::path::Path;

use anyhow::ensure;
use burn_megatron::launch::{Launcher, World};
use burn_megatron::training::StepMetrics;
use burn_megatron::training::memory::restart_peak;
use models::ModelFamily;

use crate::arguments::TrainingArguments;
use crate::device::TrainingBackend;
use crate::json_lines::JsonLines;
use crate::launching::{connect, run_own_rank};
use crate::session::Session;
use crate::training_program::TrainingProgram;

/// Steps at the start of each run that are not counted; `--train-iters` has them and those that are.
pub const WARM_UP_STEPS: usize = 3;

/// Starts this program again as a job of ranks, with its own flags, those of `variant`, and `--worker-log`; returns the
/// metrics of the steps that count, all but the first [`WARM_UP_STEPS`].
///
/// # Errors
/// When a rank fails, or the job has not made `steps` steps that count.
pub fn launch(world_size: usize, variant: &str, steps: usize, folder: &Path) -> anyhow::Result<Vec<StepMetrics>> {
    let log = folder.join("metrics.jsonl");
    let mut flags: Vec<OsString> = std::env::args_os().skip(1).collect();
    flags.extend([variant.into(), "--worker-log".into(), log.clone().into()]);
    let summary = Launcher::new(world_size).arguments(flags).run()?;
    ensure!(summary.is_success(), "the run with {variant} failed");
    let metrics: Vec<StepMetrics> = JsonLines::read(&log)?;
    ensure!(
        metrics.len() == steps,
        "the run with {variant} made {} steps that count, not {steps}",
        metrics.len()
    );
    Ok(metrics)
}

/// Trains as a rank of such a job; rank 0 writes the metrics.
pub fn run_rank(training: &TrainingArguments, log: &Path) -> anyhow::Result<()> {
    let options = training.parallel.communication.join_options()?;
    run_own_rank("--worker-log", &options, |world| {
        let arguments = training;
        training.run(world, Training { arguments, log, world })
    })
}

/// The training of one rank.
struct Training<'a> {
    arguments: &'a TrainingArguments,
    log: &'a Path,
    world: &'a World,
}

impl TrainingProgram for Training<'_> {
    type Output = ();

    fn run<B: TrainingBackend, C: ModelFamily>(self, device: B::Device) -> anyhow::Result<()> {
        let Self { arguments, log, world } = self;
        let context = connect(arguments, world)?;
        let mut session = Session::<B, C>::new(arguments, &context, &device)?;
        let mut log = match world.rank() {
            0 => Some(JsonLines::create(log)?),
            _ => None,
        };
        for step in 0..session.num_steps() as usize {
            if step == WARM_UP_STEPS {
                restart_peak();
            }
            let metrics = session.step()?;
            if let Some(log) = log.as_mut().filter(|_| step >= WARM_UP_STEPS) {
                log.write(&metrics)?;
            }
        }
        Ok(())
    }
}
