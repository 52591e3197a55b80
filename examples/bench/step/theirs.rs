//! PyTorch's side: a Python program that trains the same model and prints what it measured.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use serde::Deserialize;

use super::Arguments;
use crate::pytorch::Peer;
use crate::table::Row;

/// PyTorch's implementations of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Attention {
    /// Chosen by PyTorch
    Default,
    /// FlashAttention-2
    Flash,
    /// cuDNN's
    Cudnn,
}

/// The last line that the program prints.
#[derive(Deserialize)]
#[serde(untagged)]
enum Report {
    /// Medians by number of micro-batches, and the attention that ran.
    Steps { attention: String, step_seconds: Vec<f64> },
    /// Why it has no such attention.
    Unavailable { unavailable: String },
}

/// End of a run.
pub enum Outcome {
    /// The name of the attention that ran, and a row for each number of micro-batches.
    Measured(String, Vec<Row>),
    /// Why it was not run.
    NotRun(String),
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

/// Returns the medians of a run's steps with these numbers of micro-batches. One that takes longer than `deadline` is
/// ended.
///
/// # Errors
/// Errors of [`Peer::run`]; other than a median for each number.
pub fn steps(
    peer: &Peer<'_>,
    attention: Attention,
    micro_batches: &[usize],
    deadline: Option<Instant>,
) -> anyhow::Result<Outcome> {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    if left.is_some_and(|left| left.is_zero()) {
        return Ok(Outcome::NotRun("no time is left".to_owned()));
    }
    let numbers: Vec<String> = micro_batches.iter().map(usize::to_string).collect();
    let flags = [
        format!("--micro-batches={}", numbers.join(",")),
        format!("--attention={}", name(attention)?),
    ];
    let peer = Peer {
        flags: peer.flags.clone(),
        limit: left,
        ..*peer
    };
    match peer.run(&flags) {
        Ok(Report::Unavailable { unavailable }) => Ok(Outcome::NotRun(unavailable)),
        Ok(Report::Steps {
            attention,
            step_seconds,
        }) => {
            let (found, expected) = (step_seconds.len(), micro_batches.len());
            ensure!(
                found == expected,
                "{found} medians of {expected} numbers of micro-batches"
            );
            let rows = step_seconds
                .into_iter()
                .map(|seconds| Row::default().seconds("step", seconds));
            Ok(Outcome::Measured(attention, rows.collect()))
        }
        Err(error) if deadline.is_some_and(|deadline| deadline <= Instant::now()) => {
            Ok(Outcome::NotRun(format!("no time was left: {error:#}")))
        }
        Err(error) => Err(error),
    }
}

/// A flag's value as it is written.
pub fn name(value: impl ValueEnum) -> anyhow::Result<String> {
    let value = value.to_possible_value().context("every value has a name")?;
    Ok(value.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pytorch::last_line;

    #[test]
    fn missing_attention_is_no_failure() {
        let steps = r#"{"attention": "flash", "step_seconds": [0.5, 2.0]}"#;
        let Ok(Report::Steps {
            attention,
            step_seconds,
        }) = last_line(steps)
        else {
            panic!("{steps} is a report");
        };
        assert_eq!((attention.as_str(), &step_seconds[..]), ("flash", &[0.5, 2.0][..]));
        let found = last_line(r#"{"unavailable": "No available kernel."}"#).expect("a report");
        assert!(matches!(found, Report::Unavailable { unavailable } if unavailable == "No available kernel."));
        assert!(last_line::<Report>(r#"{"step_seconds": [0.5]}"#).is_err());
    }
}
