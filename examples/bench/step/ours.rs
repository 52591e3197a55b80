//! Our side: a process of its own that trains the bundled GPT on random tokens.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use burn_megatron::context::ParallelContext;
use burn_megatron::data::MicroBatch;
use burn_megatron::launch::World;
use burn_megatron::pipeline_parallel::{Activity, Timeline};
use burn_megatron::random::RandomStream;
use burn_megatron::training::{LearningRateConfig, Trainer, TrainerConfig, TrainingConfig};
use cubecl_kernels::Kernels;
use examples::device::{Program, TrainingBackend};
use examples::figures::median;

use super::{ModelFamily, Problem};

/// The phases of a step on one rank, as the trainer's timeline calls them.
pub const PHASES: [Activity; 4] = [
    Activity::Forward,
    Activity::Backward,
    Activity::Reduction,
    Activity::Optimizer,
];

/// The medians of a step's seconds and of those of its [`PHASES`].
pub struct StepSeconds {
    pub step: f64,
    pub phases: [f64; PHASES.len()],
}

/// Runs this program once more to train, and returns the medians of its steps.
pub fn step_seconds(problem: &Problem) -> anyhow::Result<StepSeconds> {
    let output = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .arg("--train")
        .env("RAYON_NUM_THREADS", problem.threads.to_string())
        .output()
        .context("cannot start this program once more")?;
    ensure!(
        output.status.success(),
        "training failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout)?;
    let steps = text.lines().map(serde_json::from_str);
    let steps = steps.collect::<Result<Vec<[f64; 1 + PHASES.len()]>, _>>()?;
    ensure!(
        steps.len() == problem.steps,
        "{} steps instead of {}",
        steps.len(),
        problem.steps
    );
    let of = |figure: usize| median(steps[problem.warmup..].iter().map(|step| step[figure]).collect());
    Ok(StepSeconds {
        step: of(0),
        phases: [1, 2, 3, 4].map(of),
    })
}

/// Trains on the device and prints the seconds of each step and of its phases.
pub fn train(problem: &Problem) -> anyhow::Result<()> {
    problem.device.run(problem.dtype, &World::single(), Training(problem))
}

/// The program.
struct Training<'a>(&'a Problem);

impl Program for Training<'_> {
    type Output = ();

    fn run<B: TrainingBackend>(self, device: B::Device) -> anyhow::Result<()> {
        train_on::<B>(self.0, &device)
    }
}

fn train_on<B: TrainingBackend>(problem: &Problem, device: &B::Device) -> anyhow::Result<()> {
    let kernels = if problem.no_fused_kernels {
        Kernels::Plain
    } else {
        Kernels::Fused
    };
    let context = ParallelContext::single(1).with_kernels(kernels);
    let model = match problem.model_family {
        ModelFamily::Gpt => problem.gpt().init::<B>(device, &context)?,
        ModelFamily::Llama => problem.llama().init::<B>(device, &context)?,
    };
    let training = TrainingConfig::new(
        problem.seq_length,
        problem.micro_batch_size,
        problem.micro_batch_size,
        (problem.steps * problem.micro_batch_size) as u64,
        LearningRateConfig::constant(6e-4),
    )
    .with_seed(1);
    let timeline = Timeline::default();
    let mut trainer =
        Trainer::new(vec![model], &training, TrainerConfig::new(), &context, device)?.with_timeline(&timeline);
    timeline.start(context.world_group())?;
    for step in 0..problem.steps {
        let batch = random_tokens(problem, step);
        let start = Instant::now();
        let result = trainer.step(&[batch])?;
        let seconds = start.elapsed().as_secs_f64();
        let events = timeline.take();
        let phases = PHASES.map(|phase| {
            let of_phase = events.iter().filter(|event| event.activity == phase);
            of_phase.map(|event| event.end - event.start).sum::<f64>()
        });
        println!("{}", serde_json::to_string(&[&[seconds], &phases[..]].concat())?);
        eprintln!("step {}: loss {}", step + 1, result.loss);
    }
    Ok(())
}

fn random_tokens(problem: &Problem, step: usize) -> MicroBatch {
    let (samples, seq) = (problem.micro_batch_size, problem.seq_length);
    let mut numbers = vec![0.0; samples * (seq + 1)];
    RandomStream::new(1, &format!("step {step}")).fill_uniform(0, 1.0, &mut numbers);
    let ids: Vec<i32> = numbers
        .iter()
        .map(|u| ((u + 1.0) / 2.0 * problem.vocab_size as f64) as i32)
        .collect();
    let samples_of = |range: std::ops::Range<usize>| -> Vec<i32> {
        ids.chunks_exact(seq + 1)
            .flat_map(|sample| sample[range.clone()].to_vec())
            .collect()
    };
    MicroBatch {
        tokens: samples_of(0..seq),
        targets: samples_of(1..seq + 1),
        sample_ids: (0..samples as u64)
            .map(|sample| (step * samples) as u64 + sample)
            .collect(),
        micro_batch_size: samples,
        seq_length: seq,
        ..MicroBatch::default()
    }
}
