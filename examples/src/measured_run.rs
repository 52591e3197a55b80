//! Ranks of the jobs that `bench` measures: they train, and rank 0 writes the metrics of the steps that count.

use std::path::Path;

use burn_megatron::launch::World;
use burn_megatron::training::memory::restart_peak;
use models::ModelFamily;
use models::registry::FamilyProgram;

use crate::arguments::TrainingArguments;
use crate::json_lines::JsonLines;
use crate::launching::{connect, run_own_rank};
use crate::session::Session;

/// Steps at the start of each run that are not counted; `--train-iters` has them and those that are.
pub const WARM_UP_STEPS: usize = 3;

/// Trains as a rank of a job that `bench` has started; rank 0 writes the metrics of all steps but the first
/// [`WARM_UP_STEPS`].
///
/// # Errors
/// When the training fails, or the file cannot be written.
pub fn run_rank(training: &TrainingArguments, log: &Path) -> anyhow::Result<()> {
    let options = training.parallel.communication.join_options()?;
    run_own_rank("BENCH_PART", &options, |world| {
        let arguments = training;
        training.run(Training { arguments, log, world })
    })
}

/// The training of one rank.
struct Training<'a> {
    arguments: &'a TrainingArguments,
    log: &'a Path,
    world: &'a World,
}

impl FamilyProgram for Training<'_> {
    type Output = anyhow::Result<()>;

    fn run<C: ModelFamily>(self) -> anyhow::Result<()> {
        let Self { arguments, log, world } = self;
        let device = arguments.device.start(arguments.precision.dtype(), world)?;
        let context = connect(arguments, world)?;
        let mut session = Session::<C>::new(arguments, &context, &device)?;
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
