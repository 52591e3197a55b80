//! Our side: a job of ranks that train with a variant, and what they measure.

use std::path::Path;

use examples::figures::median;
use examples::measured_run;

use super::variant::Variant;
use super::{Arguments, Figures, world_size};

/// Runs a variant as a job of ranks, and returns what they measured.
pub fn launch(arguments: &Arguments, variant: Variant, folder: &Path) -> anyhow::Result<Figures> {
    let flag = format!("--worker-variant={}", variant.flag());
    let counted = measured_run::launch(world_size(&arguments.training), &flag, arguments.steps, folder)?;
    let last = &counted[counted.len() - 1];
    Ok(Figures {
        step_seconds: median(counted.iter().map(|metrics| metrics.step_seconds).collect()),
        peak_bytes: last.peak_memory_bytes,
        sent_bytes: Some(last.communication_bytes),
        loss: last.loss,
    })
}
