//! `zero_optimization`: stages, buckets, overlap and offloading.

use super::Mapping;
use crate::deepspeed::ConfigError;
use crate::deepspeed::document::Setting;

const SECTION: &str = "zero_optimization";
const STAGE: &str = "zero_optimization.stage";
const REDUCE: &str = "zero_optimization.reduce_bucket_size";
const GATHER: &str = "zero_optimization.allgather_bucket_size";
const OVERLAP: &str = "zero_optimization.overlap_comm";
const OPTIMIZER: &str = "zero_optimization.offload_optimizer";
const PARAM: &str = "zero_optimization.offload_param";
const STAGE_FLAG: &str = "--zero-stage";
const BUCKET_FLAG: &str = "--ddp-bucket-size";
const CPU_OPTIMIZER_FLAG: &str = "--optimizer-cpu-offload";
const PARAM_FLAG: &str = "--offload-param";

pub(super) fn map(mapping: &mut Mapping<'_>) -> Result<(), ConfigError> {
    let stage = map_stage(mapping)?;
    map_buckets(mapping)?;
    if let Some(overlaps) = mapping.document.bool(OVERLAP).value() {
        mapping.add("--overlap-grad-reduce", overlaps, &[OVERLAP])?;
        if stage >= 1 {
            mapping.add("--overlap-param-gather", overlaps, &[OVERLAP])?;
        }
    }
    offload_optimizer(mapping)?;
    offload_param(mapping)?;
    add_nvme_path(mapping)
}

/// Returns the stage; 0 if neither the configuration nor a flag says one.
fn map_stage(mapping: &mut Mapping<'_>) -> Result<u64, ConfigError> {
    // The form that DeepSpeed deprecates.
    if let Some(is_on) = mapping.document.bool(SECTION).value() {
        mapping.add(STAGE_FLAG, u64::from(is_on), &[SECTION])?;
        return Ok(u64::from(is_on));
    }
    let Some(stage) = mapping.document.count(STAGE).value() else {
        let given = mapping.line.value(STAGE_FLAG);
        return Ok(given.and_then(|stage| stage.parse().ok()).unwrap_or(0));
    };
    if stage > 3 {
        return Err(ConfigError::Value {
            path: STAGE.to_owned(),
            expected: "0, 1, 2 or 3".to_owned(),
            got: stage.to_string(),
        });
    }
    // That flag is stage 1 or more.
    if stage == 0
        && let Some(given) = mapping.given("--use-distributed-optimizer")
    {
        return Err(mapping.contradiction(given, &[STAGE], format!("{STAGE_FLAG} 0")));
    }
    mapping.add(STAGE_FLAG, stage, &[STAGE])?;
    Ok(stage)
}

fn map_buckets(mapping: &mut Mapping<'_>) -> Result<(), ConfigError> {
    let [reduce, gather] = [REDUCE, GATHER].map(|key| mapping.document.count(key).value());
    match (reduce, gather) {
        (Some(size), Some(same)) if size == same => mapping.add(BUCKET_FLAG, size, &[REDUCE, GATHER]),
        (Some(size), _) => {
            mapping.remark(
                GATHER,
                format!("gradients and parameters share buckets, those of {REDUCE}"),
            );
            mapping.add(BUCKET_FLAG, size, &[REDUCE])
        }
        (None, Some(size)) => mapping.add(BUCKET_FLAG, size, &[GATHER]),
        (None, None) => Ok(()),
    }
}

fn offload_optimizer(mapping: &mut Mapping<'_>) -> Result<(), ConfigError> {
    const OLD: &str = "zero_optimization.cpu_offload";
    let document = mapping.document;
    if let Some(is_on) = document.bool(OLD).value() {
        check_one(mapping, OLD, OPTIMIZER)?;
        return mapping.switch(CPU_OPTIMIZER_FLAG, is_on, OLD);
    }
    let device = format!("{OPTIMIZER}.device");
    match document.text(&device) {
        Setting::Is("cpu") => {
            mapping.switch(CPU_OPTIMIZER_FLAG, true, &device)?;
            let ratio = format!("{OPTIMIZER}.ratio");
            match document.number(&ratio).value() {
                Some(share) => mapping.add_number("--optimizer-offload-fraction", share, &[&ratio]),
                None => Ok(()),
            }
        }
        Setting::Is("nvme") => mapping.add("--offload-optimizer", "nvme", &[&device]),
        Setting::Is(_) => mapping.switch(CPU_OPTIMIZER_FLAG, false, &device),
        Setting::Absent | Setting::Auto => Ok(()),
    }
}

fn offload_param(mapping: &mut Mapping<'_>) -> Result<(), ConfigError> {
    let document = mapping.document;
    for old in [
        "zero_optimization.cpu_offload_param",
        "zero_optimization.cpu_offload_params",
    ] {
        if let Some(is_on) = document.bool(old).value() {
            check_one(mapping, old, PARAM)?;
            if is_on {
                return mapping.add(PARAM_FLAG, "cpu", &[old]);
            }
            mapping.use_key(old);
        }
    }
    let device = format!("{PARAM}.device");
    match document.text(&device) {
        Setting::Is("none") => mapping.switch(PARAM_FLAG, false, &device),
        Setting::Is(name) => mapping.add(PARAM_FLAG, name, &[&device]),
        Setting::Absent | Setting::Auto => Ok(()),
    }
}

/// Adds the folders of what is offloaded to NVMe.
fn add_nvme_path(mapping: &mut Mapping<'_>) -> Result<(), ConfigError> {
    const FLAG: &str = "--nvme-path";
    const PARAM_FLAG: &str = "--param-nvme-path";
    let document = mapping.document;
    let mut paths: Vec<(String, &str)> = vec![];
    for section in [OPTIMIZER, PARAM] {
        if document.text(&format!("{section}.device")) != Setting::Is("nvme") {
            continue;
        }
        let key = format!("{section}.nvme_path");
        match document.text(&key) {
            Setting::Is(path) => paths.push((key, path)),
            Setting::Auto => {}
            Setting::Absent if mapping.line.value(FLAG).is_some() => {}
            Setting::Absent => {
                return Err(ConfigError::Missing {
                    path: key,
                    why: format!("{section}.device is nvme; give the folder, or {FLAG}"),
                });
            }
        }
    }
    match &paths[..] {
        [(first, path), (second, other)] if path != other => {
            mapping.add(FLAG, path, &[first])?;
            mapping.add(PARAM_FLAG, other, &[second])
        }
        [(_, path), ..] => {
            let keys: Vec<&str> = paths.iter().map(|(key, _)| key.as_str()).collect();
            mapping.add(FLAG, path, &keys)
        }
        [] => Ok(()),
    }
}

/// Checks that of a deprecated key and its successor only one is there, as DeepSpeed does.
fn check_one(mapping: &Mapping<'_>, old: &str, new: &str) -> Result<(), ConfigError> {
    if mapping.document.has(new) {
        return Err(mapping.unsupported(
            old,
            format!("{new}, which replaces it, is there too: leave this one out"),
        ));
    }
    Ok(())
}
