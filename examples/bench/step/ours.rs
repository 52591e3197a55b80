//! Our side: a process of its own that trains the bundled GPT on random tokens.

use std::path::Path;
use std::time::Instant;

use anyhow::ensure;
use burn::tensor::Device;
use burn_megatron::context::ParallelContext;
use burn_megatron::launch::{JoinConfig, Launcher};
use burn_megatron::pipeline_parallel::{Activity, Timeline};
use burn_megatron::training::{LearningRateConfig, Trainer, TrainerConfig, TrainingConfig};
use examples::json_lines::JsonLines;
use examples::launching::run_own_rank;

use super::{ModelFamily, Problem};
use crate::ranks;
use crate::sizes::{micro_batch, random_samples};
use crate::table::Row;

/// The phases of a step on one rank, as the trainer's timeline calls them.
pub const PHASES: [Activity; 4] = [
    Activity::Forward,
    Activity::Backward,
    Activity::Reduction,
    Activity::Optimizer,
];

/// Runs this program once more to train, and returns the medians of the steps of each number of micro-batches: `step`,
/// and each of [`PHASES`].
pub fn steps(problem: &Problem) -> anyhow::Result<Vec<Row>> {
    let launcher = Launcher::new(1).environment("RAYON_NUM_THREADS", problem.threads.to_string());
    let steps: Vec<Row> = ranks::launch(launcher, "our steps")?;
    let expected = problem.steps * problem.micro_batches.len();
    ensure!(steps.len() == expected, "{} steps instead of {expected}", steps.len());
    let runs = steps.chunks_exact(problem.steps);
    Ok(runs.map(|steps| Row::median(&steps[problem.warmup..])).collect())
}

/// Trains on the device and reports the seconds of each step and of its phases.
pub fn train(problem: &Problem, log: &Path) -> anyhow::Result<()> {
    run_own_rank(ranks::PART, &JoinConfig::default(), |world| {
        let device = problem.device.start(problem.dtype, world)?.autodiff();
        let mut log = JsonLines::create(log)?;
        for count in &problem.micro_batches {
            train_on(problem, *count, &mut log, &device)?;
        }
        Ok(())
    })
}

fn train_on(problem: &Problem, count: usize, log: &mut JsonLines, device: &Device) -> anyhow::Result<()> {
    let context = ParallelContext::single(1);
    let model = match problem.model_family {
        ModelFamily::Gpt => problem.sizes.gpt().init(device, &context)?,
        ModelFamily::Llama => problem.llama().init(device, &context)?,
    };
    let (samples, seq) = (problem.micro_batch_size, problem.sizes.seq_length);
    let training = TrainingConfig::new(
        seq,
        samples,
        count * samples,
        (problem.steps * count * samples) as u64,
        LearningRateConfig::constant(6e-4),
    )
    .with_seed(1);
    let timeline = Timeline::default();
    let mut trainer =
        Trainer::new(vec![model], &training, TrainerConfig::new(), &context, device)?.with_timeline(&timeline);
    timeline.start(context.world_group())?;
    for step in 0..problem.steps {
        let batches: Vec<_> = (step * count..(step + 1) * count)
            .map(|number| {
                let tokens = random_samples(number as u64, samples, seq, problem.sizes.vocab_size);
                micro_batch(&tokens, seq, (number * samples) as u64)
            })
            .collect();
        let start = Instant::now();
        trainer.step(&batches)?;
        let mut row = Row::default().seconds("step", start.elapsed().as_secs_f64());
        let events = timeline.take();
        for phase in PHASES {
            let of_phase = events.iter().filter(|event| event.activity == phase);
            let seconds = of_phase.map(|event| event.end - event.start).sum();
            row = row.seconds(phase.name(), seconds);
        }
        log.write(&row)?;
    }
    Ok(())
}
