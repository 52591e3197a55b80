//! Ranks of this program that a subcommand starts, and what their rank 0 reports to it.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use burn_megatron::launch::Launcher;
use burn_megatron::training::StepMetrics;
use examples::json_lines::JsonLines;
use serde::de::DeserializeOwned;

/// Variable with the part of a subcommand that a process runs.
pub const PART: &str = "BENCH_PART";
/// Variable with the file in which rank 0 reports.
const REPORTS: &str = "BENCH_REPORTS";

/// Returns the part of this process, and the file in which rank 0 reports, if it was started as such a rank.
pub fn part() -> Option<(String, PathBuf)> {
    Some((std::env::var(PART).ok()?, std::env::var_os(REPORTS)?.into()))
}

/// Starts this program again, with its own arguments, as a job of ranks that are part of `part`; returns the reports of
/// rank 0.
///
/// # Errors
/// When a rank fails, or the reports cannot be read.
pub fn launch<T: DeserializeOwned>(launcher: Launcher, part: &str) -> anyhow::Result<Vec<T>> {
    let folder = tempfile::tempdir().context("cannot make a folder for reports")?;
    let reports = folder.path().join("reports.jsonl");
    let launcher = launcher.environment(PART, part).environment(REPORTS, &reports);
    ensure!(launcher.run()?.is_success(), "the run of {part} failed");
    JsonLines::read(&reports)
}

/// Trains as a job of ranks that are part of `part`, and returns the metrics of the steps that count.
///
/// # Errors
/// Errors of [`launch`]; other than `steps` steps that were counted.
pub fn train(world_size: usize, part: &str, steps: usize) -> anyhow::Result<Vec<StepMetrics>> {
    let metrics: Vec<StepMetrics> = launch(Launcher::new(world_size), part)?;
    let counted = metrics.len();
    ensure!(
        counted == steps,
        "the run of {part} made {counted} steps that count, not {steps}"
    );
    Ok(metrics)
}
