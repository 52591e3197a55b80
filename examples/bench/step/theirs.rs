//! PyTorch's side: a Python program that trains the same model and prints what it measured.

use anyhow::Context as _;
use clap::ValueEnum;
use serde::Deserialize;

use super::Arguments;
use crate::pytorch::Peer;

/// The last line that the program prints.
#[derive(Deserialize)]
struct Report {
    step_seconds: f64,
}

/// Returns the program that trains what we train.
///
/// # Errors
/// When a flag's value has no name.
pub fn peer(arguments: &Arguments) -> anyhow::Result<Peer<'_>> {
    let (problem, sizes) = (&arguments.problem, &arguments.problem.sizes);
    let mut flags = Vec::new();
    for (flag, value) in [
        ("--num-layers", sizes.num_layers),
        ("--hidden-size", sizes.hidden_size),
        ("--num-attention-heads", sizes.num_attention_heads),
        ("--seq-length", sizes.seq_length),
        ("--micro-batch-size", problem.micro_batch_size),
        ("--vocab-size", sizes.vocab_size),
        ("--steps", problem.steps),
        ("--warmup", problem.warmup),
        ("--threads", problem.threads),
    ] {
        flags.push(format!("{flag}={value}"));
    }
    flags.push(format!("--model-family={}", name(problem.model_family)?));
    flags.push(format!("--device={}", name(problem.device.kind)?));
    flags.push(format!("--dtype={}", name(problem.dtype)?));
    if arguments.compile {
        flags.push("--compile".to_owned());
    }
    Ok(Peer {
        python: &arguments.python,
        script: &arguments.script,
        flags,
        limit: None,
    })
}

/// Returns the median of a run's steps.
///
/// # Errors
/// Errors of [`Peer::run`].
pub fn step_seconds(peer: &Peer<'_>) -> anyhow::Result<f64> {
    Ok(peer.run::<Report>(&[])?.step_seconds)
}

/// A flag's value as it is written.
fn name(value: impl ValueEnum) -> anyhow::Result<String> {
    let value = value.to_possible_value().context("every value has a name")?;
    Ok(value.get_name().to_owned())
}
