//! What is no section of its own: activation checkpointing, timers, and how gradients are divided.

use super::Mapping;
use crate::deepspeed::ConfigError;
use crate::deepspeed::document::Setting;

pub(super) fn map(mapping: &mut Mapping<'_>) -> Result<(), ConfigError> {
    map_timers(mapping)?;
    map_activations(mapping)?;
    check_division(mapping)
}

/// All timers, as DeepSpeed's, or none.
fn map_timers(mapping: &mut Mapping<'_>) -> Result<(), ConfigError> {
    const KEY: &str = "wall_clock_breakdown";
    match mapping.document.bool(KEY).value() {
        Some(is_on) => mapping.add("--timing-log-level", if is_on { 2 } else { 0 }, &[KEY]),
        None => Ok(()),
    }
}

fn map_activations(mapping: &mut Mapping<'_>) -> Result<(), ConfigError> {
    const CPU: &str = "activation_checkpointing.cpu_checkpointing";
    let is_on_cpu = mapping.document.bool(CPU).value();
    if let Some(is_on) = is_on_cpu {
        mapping.switch("--cpu-offloading", is_on, CPU)?;
    }
    if is_on_cpu == Some(true) && mapping.line.value("--recompute-granularity") != Some("full") {
        mapping.note(format!(
            "{CPU} moves all that layers keep; with --recompute-granularity full their inputs alone, as DeepSpeed does"
        ));
    }
    mapping.remark(
        "activation_checkpointing.partition_activations",
        match mapping.line.value("--sequence-parallel") {
            Some(_) => "--sequence-parallel shards activations over the tensor-parallel ranks",
            None => "it is --sequence-parallel that shards activations over the tensor-parallel ranks",
        },
    );
    mapping.remark(
        "activation_checkpointing.number_checkpoints",
        "it sizes a buffer of DeepSpeed's; what is recomputed is said by --recompute-granularity",
    );
    Ok(())
}

/// DeepSpeed divides gradients by the number of ranks before or after they are added up: the same, up to rounding. The
/// factor by which it divides before, and multiplies after, is for the second way.
fn check_division(mapping: &mut Mapping<'_>) -> Result<(), ConfigError> {
    const BEFORE: &str = "prescale_gradients";
    const FACTOR: &str = "gradient_predivide_factor";
    let factor = mapping.document.number(FACTOR).value().unwrap_or(1.0);
    if mapping.document.bool(BEFORE) == Setting::Is(true) && factor != 1.0 {
        let why = format!("{FACTOR} {factor} is for gradients that are divided after they are added up; leave out one");
        return Err(mapping.unsupported(BEFORE, why));
    }
    Ok(())
}
