//! PyTorch's side: a Python program that trains the same model and prints what it measured.

use std::process::Command;

use anyhow::{Context as _, ensure};

use clap::ValueEnum;

use super::Arguments;

/// Returns the median of a run's steps.
pub fn step_seconds(arguments: &Arguments) -> anyhow::Result<f64> {
    let Arguments {
        python,
        script,
        problem,
        ..
    } = arguments;
    let mut command = Command::new(python);
    command.arg(script);
    for (flag, value) in [
        ("--num-layers", problem.num_layers),
        ("--hidden-size", problem.hidden_size),
        ("--num-attention-heads", problem.num_attention_heads),
        ("--seq-length", problem.seq_length),
        ("--micro-batch-size", problem.micro_batch_size),
        ("--vocab-size", problem.vocab_size),
        ("--steps", problem.steps),
        ("--warmup", problem.warmup),
        ("--threads", problem.threads),
    ] {
        command.arg(flag).arg(value.to_string());
    }
    command.arg("--model-family").arg(name(problem.model_family)?);
    command.arg("--device").arg(name(problem.device.kind)?);
    command.arg("--dtype").arg(name(problem.dtype)?);
    if arguments.compile {
        command.arg("--compile");
    }
    let output = command.output().with_context(|| {
        format!(
            "cannot start {}: --python names an interpreter with PyTorch",
            python.display()
        )
    })?;
    ensure!(
        output.status.success(),
        "{} {} failed:\n{}",
        python.display(),
        script.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    let report: serde_json::Value = serde_json::from_str(last).context("the last line is no JSON")?;
    report["step_seconds"]
        .as_f64()
        .context("the report has no step_seconds")
}

/// A flag's value as it is written.
fn name(value: impl ValueEnum) -> anyhow::Result<String> {
    let value = value.to_possible_value().context("every value has a name")?;
    Ok(value.get_name().to_owned())
}
