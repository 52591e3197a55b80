//! Our side: a process of its own that trains the bundled GPT on random tokens.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use burn_megatron::context::ParallelContext;
use burn_megatron::data::MicroBatch;
use burn_megatron::random::RandomStream;
use burn_megatron::training::{LearningRateConfig, Trainer, TrainerOptions, TrainingConfig, WeightDecayConfig};
use cubecl_kernels::Kernels;
use examples::session::TrainingBackend;
use models::gpt::GptConfig;

use super::{Problem, median};

/// Runs this program once more to train, and returns the median of its steps.
pub fn step_seconds(problem: &Problem) -> anyhow::Result<f64> {
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
    let seconds = text.lines().map(str::parse).collect::<Result<Vec<f64>, _>>()?;
    ensure!(
        seconds.len() == problem.steps,
        "{} steps instead of {}",
        seconds.len(),
        problem.steps
    );
    Ok(median(seconds[problem.warmup..].to_vec()))
}

/// Trains and prints the seconds of each step.
pub fn train(problem: &Problem) -> anyhow::Result<()> {
    let kernels = match problem.no_fused_kernels {
        true => Kernels::Plain,
        false => Kernels::Fused,
    };
    let context = ParallelContext::single(1).with_kernels(kernels);
    let device = Default::default();
    let config = GptConfig::new(
        problem.num_layers,
        problem.hidden_size,
        problem.num_attention_heads,
        problem.seq_length,
        problem.vocab_size,
    );
    let model = config.init::<TrainingBackend>(&device, &context)?;
    let training = TrainingConfig {
        seq_length: problem.seq_length,
        micro_batch_size: problem.micro_batch_size,
        global_batch_size: problem.micro_batch_size,
        rampup_batch_size: None,
        train_samples: (problem.steps * problem.micro_batch_size) as u64,
        learning_rate: LearningRateConfig::constant(6e-4),
        weight_decay: WeightDecayConfig::constant(0.01),
        clip_grad: 1.0,
        adam_beta1: 0.9,
        adam_beta2: 0.999,
        adam_eps: 1e-8,
        seed: 1,
        replica_check_interval: 0,
    };
    let mut trainer = Trainer::new(vec![model], &training, TrainerOptions::default(), &context, &device)?;
    for step in 0..problem.steps {
        let batch = random_tokens(problem, step);
        let start = Instant::now();
        let result = trainer.step(&[batch])?;
        println!("{}", start.elapsed().as_secs_f64());
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
        loss_mask: None,
        sample_ids: (0..samples as u64)
            .map(|sample| (step * samples) as u64 + sample)
            .collect(),
        micro_batch_size: samples,
        seq_length: seq,
    }
}
