//! PyTorch's side: a Python program that trains the same model on the same number of ranks, and prints what it
//! measured.

use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use models::ModelFamily as _;
use models::gpt::GptConfig;
use serde::Deserialize;

use super::variant::{PEERS, Variant};
use super::{Arguments, WARM_UP_STEPS, refusals, threads_per_rank, training, world_size};
use crate::pytorch::Peer;
use crate::table::Row;

/// Time that the program may take longer than its ranks, to load PyTorch and to end.
const GRACE: Duration = Duration::from_secs(60);

/// The last line that it prints.
#[derive(Deserialize)]
struct Report {
    step_seconds: f64,
    peak_bytes: u64,
    loss: f64,
}

/// Returns the program that trains what our ranks train.
///
/// # Errors
/// When it cannot, naming the flag.
pub fn peer<'a>(arguments: &'a Arguments, python: &'a Path) -> anyhow::Result<Peer<'a>> {
    let family = arguments.training.model.family(None)?.name;
    ensure!(
        family == GptConfig::NAME,
        "--python compares --model-family {}, got {family}: leave one of them out",
        GptConfig::NAME
    );
    let stage_0 = Variant {
        stage: 0,
        overlaps: true,
    };
    let training = training(arguments, stage_0)?;
    let num_tokens = training.any_model(None)?.vocab_size();
    let model = training.model.model::<GptConfig>(None, num_tokens)?;
    refusals::check_comparable(&training, &model)?;
    let seq_length = training.sample_length(&model, None)?;
    let config = training.training_config(seq_length)?;
    let world_size = world_size(&training);
    let timeout = Duration::from_secs(arguments.peer_timeout_secs);
    let flags = [
        ("--num-layers", model.n_layers.to_string()),
        ("--hidden-size", model.d_model.to_string()),
        ("--num-attention-heads", model.n_heads.to_string()),
        ("--seq-length", seq_length.to_string()),
        ("--max-position-embeddings", model.max_seq_length.to_string()),
        ("--padded-vocab-size", model.padded_vocab(1).to_string()),
        ("--micro-batch-size", config.micro_batch_size.to_string()),
        ("--num-micro-batches", config.num_micro_batches(world_size)?.to_string()),
        ("--world-size", world_size.to_string()),
        ("--threads", threads_per_rank(world_size)?.to_string()),
        ("--steps", arguments.steps.to_string()),
        ("--warmup", WARM_UP_STEPS.to_string()),
        ("--lr", training.optimization.learning_rate.lr.to_string()),
        ("--weight-decay", config.weight_decay.start.to_string()),
        ("--adam-beta1", config.adam_beta1.to_string()),
        ("--adam-beta2", config.adam_beta2.to_string()),
        ("--adam-eps", config.adam_eps.to_string()),
        ("--clip-grad", config.clip_grad.to_string()),
        ("--timeout-secs", timeout.as_secs().to_string()),
        ("--parent", std::process::id().to_string()),
    ];
    Ok(Peer {
        python,
        script: &arguments.script,
        flags: flags.map(|(flag, value)| format!("{flag}={value}")).to_vec(),
        limit: Some(timeout + GRACE),
    })
}

/// Trains as the peer of a stage.
///
/// # Errors
/// Errors of [`Peer::run`]; a loss or a time that is no figure.
pub fn launch(peer: &Peer<'_>, stage: usize) -> anyhow::Result<Row> {
    let (mode, title) = PEERS[stage];
    Ok(Row::default()
        .text("PyTorch", title)
        .and(row(&peer.run(&[format!("--mode={mode}")])?)?))
}

fn row(report: &Report) -> anyhow::Result<Row> {
    ensure!(
        report.loss.is_finite() && report.step_seconds > 0.0,
        "expected a finite loss and a time, got {} and {} s",
        report.loss,
        report.step_seconds
    );
    Ok(Row::default()
        .seconds("step", report.step_seconds)
        .bytes("peak memory", report.peak_bytes as f64)
        .number("loss", report.loss))
}

/// Returns the medians of the peer as columns next to ours.
pub fn columns(theirs: &Row) -> Row {
    Row::default()
        .text("PyTorch", theirs.written("PyTorch"))
        .seconds("its step", theirs.value("step"))
        .bytes("its peak memory", theirs.value("peak memory"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pytorch::last_line;

    #[test]
    fn the_last_line_is_the_report() {
        let parse = |text: &str| row(&last_line(text)?);
        let figures =
            parse("a warning\n{\"step_seconds\": 0.5, \"peak_bytes\": 7, \"loss\": 5.9}\n").expect("a report");
        let values = ["step", "peak memory"].map(|figure| figures.value(figure));
        assert_eq!(values, [0.5, 7.0]);
        for text in [
            "",
            "no JSON",
            "{\"step_seconds\": 0.5}",
            "{\"step_seconds\": 0.5, \"peak_bytes\": 7, \"loss\": NaN}",
            "{\"step_seconds\": 0, \"peak_bytes\": 7, \"loss\": 1}",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
