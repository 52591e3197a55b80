//! `fp16` and `bf16`: the element type and the loss scale.

use super::Mapping;
use crate::deepspeed::ConfigError;
use crate::deepspeed::document::Setting;

const HALF: &str = "fp16.enabled";
const TYPE: &str = "fp16.type";

pub(super) fn map(mapping: &mut Mapping<'_>) -> Result<(), ConfigError> {
    let document = mapping.document;
    let section = if document.has("bf16") { "bf16" } else { "bfloat16" };
    let brain = format!("{section}.enabled");
    let mut uses_brain = enable(mapping, &brain, "--bf16", "bf16")?;
    let mut uses_half = false;
    mapping.use_key(TYPE);
    match document.text(TYPE) {
        // The section means the other type, once more here: its loss scale has no effect.
        Setting::Is("bf16" | "bfloat16") if uses_brain => mapping.use_key(HALF),
        Setting::Is("bf16" | "bfloat16") => uses_brain = enable(mapping, HALF, "--bf16", "bf16")?,
        _ => uses_half = enable(mapping, HALF, "--fp16", "f16")?,
    }
    if uses_brain && uses_half {
        let why = format!("{brain} is true as well; enable one of them");
        return Err(mapping.unsupported(HALF, why));
    }
    if uses_brain {
        for key in ["bf16_master_weights_and_grads", "bf16_optimizer_states"] {
            refuse_low_precision(mapping, &format!("{section}.{key}"))?;
        }
    }
    if uses_half {
        refuse_low_precision(mapping, "fp16.fp16_master_weights_and_grads")?;
        map_loss_scale(mapping)?;
    }
    Ok(())
}

/// Returns whether a section is enabled, by its key, by the flag, or by the name of its type.
fn enable(mapping: &mut Mapping<'_>, key: &str, flag: &'static str, dtype: &str) -> Result<bool, ConfigError> {
    match mapping.document.bool(key) {
        // The flag's other name.
        Setting::Is(is_on) if mapping.line.value("--dtype") == Some(dtype) => {
            if !is_on {
                return Err(mapping.contradiction(format!("--dtype {dtype}"), &[key], format!("no {flag}")));
            }
            mapping.use_key(key);
            Ok(true)
        }
        Setting::Is(is_on) => {
            mapping.switch(flag, is_on, key)?;
            Ok(is_on)
        }
        Setting::Auto => Ok(mapping.line.value(flag).is_some() || mapping.line.value("--dtype") == Some(dtype)),
        Setting::Absent => Ok(false),
    }
}

fn refuse_low_precision(mapping: &Mapping<'_>, key: &str) -> Result<(), ConfigError> {
    if mapping.document.bool(key) == Setting::Is(true) {
        let why = "main parameters, their gradients and the optimizer's state are f32";
        return Err(mapping.unsupported(key, why));
    }
    Ok(())
}

fn map_loss_scale(mapping: &mut Mapping<'_>) -> Result<(), ConfigError> {
    const SCALE: &str = "fp16.loss_scale";
    const POWER: &str = "fp16.initial_scale_power";
    let document = mapping.document;
    let scale = document.number(SCALE);
    if let Some(scale) = scale.value() {
        if scale != 0.0 {
            return mapping.add_number("--loss-scale", scale, &[SCALE]);
        }
        // 0 is DeepSpeed's word for a dynamic scale.
        if let Some(given) = mapping.given("--loss-scale") {
            return Err(mapping.contradiction(given, &[SCALE], "a dynamic loss scale".to_owned()));
        }
        mapping.use_key(SCALE);
    }
    if scale == Setting::Auto && mapping.line.value("--loss-scale").is_some() {
        return Ok(());
    }
    if document.bool("fp16.consecutive_hysteresis") == Setting::Is(true) {
        let why = "the loss scale's hysteresis is full again when the scale has grown, and not before";
        return Err(mapping.unsupported("fp16.consecutive_hysteresis", why));
    }
    match document.count(POWER) {
        Setting::Is(power) if power > 127 => {
            return Err(ConfigError::Value {
                path: POWER.to_owned(),
                expected: "at most 127, the largest power of two in f32".to_owned(),
                got: power.to_string(),
            });
        }
        Setting::Is(power) => mapping.add_number("--initial-loss-scale", 2f64.powi(power as i32), &[POWER])?,
        Setting::Absent => mapping.default("--initial-loss-scale", 65536, POWER),
        Setting::Auto => {}
    }
    for (key, flag) in [
        ("fp16.loss_scale_window", "--loss-scale-window"),
        ("fp16.hysteresis", "--hysteresis"),
    ] {
        if let Some(count) = document.count(key).value() {
            mapping.add(flag, count, &[key])?;
        }
    }
    if let Some(scale) = document.number("fp16.min_loss_scale").value() {
        mapping.add_number("--min-loss-scale", scale, &["fp16.min_loss_scale"])?;
    }
    Ok(())
}
