//! Ranks of this program that a subcommand starts, and what their rank 0 reports to it.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use burn_megatron::launch::Launcher;
use burn_megatron::training::StepMetrics;
use examples::json_lines::JsonLines;
use serde::de::DeserializeOwned;

/// Variable with the part of a subcommand that a rank runs.
pub const PART: &str = "BENCH_PART";
/// Where rank 0 reports.
const REPORTS: &str = "BENCH_REPORTS";

/// Returns what this process is part of, and where rank 0 reports, if it was started as such a rank.
pub fn part() -> Option<(String, PathBuf)> {
    Some((std::env::var(PART).ok()?, std::env::var_os(REPORTS)?.into()))
}

/// Starts this program again, with its own arguments, as a job of ranks that are part of `part`; returns the reports of
/// rank 0.
///
/// # Errors
/// When a rank fails, or the reports cannot be read.
pub fn launch<T: DeserializeOwned>(launcher: Launcher, part: &str) -> anyhow::Result<Vec<T>> {
    start(part, |variables| {
        let add = |launcher: Launcher, (name, value)| launcher.environment(name, value);
        Ok(variables.into_iter().fold(launcher, add).run()?.is_success())
    })
}

/// As [`launch`] with a way to start the ranks: it passes on the variables, and returns whether they succeeded.
///
/// # Errors
/// As [`launch`].
pub fn start<T: DeserializeOwned>(
    part: &str,
    ranks: impl FnOnce([(&'static str, OsString); 2]) -> anyhow::Result<bool>,
) -> anyhow::Result<Vec<T>> {
    let folder = tempfile::tempdir().context("cannot make a folder for reports")?;
    let reports = folder.path().join("reports.jsonl");
    let is_success = ranks([(PART, part.into()), (REPORTS, reports.clone().into())])?;
    ensure!(is_success, "the run of {part} failed");
    JsonLines::read(&reports)
}

/// Trains as a job of ranks that are part of `part`, and returns the metrics of the steps that count.
///
/// # Errors
/// As [`launch`]; when other than `steps` steps were counted.
pub fn train(world_size: usize, part: &str, steps: usize) -> anyhow::Result<Vec<StepMetrics>> {
    let metrics: Vec<StepMetrics> = launch(Launcher::new(world_size), part)?;
    let counted = metrics.len();
    ensure!(
        counted == steps,
        "the run of {part} made {counted} steps that count, not {steps}"
    );
    Ok(metrics)
}
