//! `scheduler`: the learning rate over the steps.

use super::Mapping;
use crate::deepspeed::ConfigError;
use crate::deepspeed::document::{Document, Setting};

const SECTION: &str = "scheduler";
const TYPE: &str = "scheduler.type";
const TOTAL: &str = "scheduler.params.total_num_steps";
const MAX_RATE: &str = "scheduler.params.warmup_max_lr";
const MIN_RATE: &str = "scheduler.params.warmup_min_lr";
const CYCLE_MAX_RATE: &str = "scheduler.params.cycle_max_lr";
/// DeepSpeed's default of `warmup_max_lr` where it decays.
const DECAYING_MAX_RATE: f64 = 0.001;
/// DeepSpeed's default of `warmup_num_steps`.
const WARM_UP_STEPS: u64 = 1000;
/// DeepSpeed's default of `cos_min_ratio`.
const COSINE_MIN_RATIO: f64 = 0.0001;
/// DeepSpeed's default of `cycle_first_step_size`.
const CYCLE_STEPS: u64 = 2000;

/// Returns the key whose value, or default, is the highest learning rate in place of the optimizer's own.
pub(super) fn peak(document: &Document) -> Option<&'static str> {
    match document.text(TYPE) {
        Setting::Is("WarmupLR") => document.number(MAX_RATE).value().map(|_| MAX_RATE),
        Setting::Is("WarmupDecayLR") => (document.number(MAX_RATE) != Setting::Auto).then_some(MAX_RATE),
        Setting::Is("OneCycle") => Some(CYCLE_MAX_RATE),
        _ => None,
    }
}

pub(super) fn map(mapping: &mut Mapping<'_>) -> Result<(), ConfigError> {
    match mapping.document.text(TYPE) {
        Setting::Is("WarmupLR") => map_warm_up(mapping, "constant"),
        Setting::Is("WarmupDecayLR") => map_warm_up(mapping, "linear"),
        Setting::Is("WarmupCosineLR") => map_cosine(mapping),
        Setting::Is("OneCycle") => map_cycle(mapping),
        Setting::Is(_) => {
            let why = "the learning rate cannot rise without end here; WarmupLR, WarmupDecayLR, WarmupCosineLR and \
                       OneCycle can be expressed";
            Err(mapping.unsupported(TYPE, why))
        }
        Setting::Absent if mapping.document.has(SECTION) => Err(ConfigError::Missing {
            path: TYPE.to_owned(),
            why: format!("{SECTION} needs it; valid are WarmupLR, WarmupDecayLR, WarmupCosineLR and OneCycle"),
        }),
        Setting::Absent | Setting::Auto => Ok(()),
    }
}

/// A rise to a rate that stays, or that falls along a line to where the rise began.
fn map_warm_up(mapping: &mut Mapping<'_>, style: &'static str) -> Result<(), ConfigError> {
    let decays = style != "constant";
    add_style(mapping, style)?;
    match mapping.document.number(MAX_RATE) {
        Setting::Is(rate) => mapping.add_number("--lr", rate, &[MAX_RATE])?,
        Setting::Absent if decays => mapping.default("--lr", DECAYING_MAX_RATE, MAX_RATE),
        Setting::Absent | Setting::Auto => {}
    }
    let flags: &[&'static str] = if decays {
        &["--lr-warmup-init", "--min-lr"]
    } else {
        &["--lr-warmup-init"]
    };
    match mapping.document.number(MIN_RATE) {
        Setting::Is(rate) => {
            for flag in flags {
                mapping.add_number(flag, rate, &[MIN_RATE])?;
            }
        }
        Setting::Absent => flags.iter().for_each(|flag| mapping.default(flag, 0, MIN_RATE)),
        Setting::Auto => {}
    }
    add_warm_up(mapping)?;
    if decays {
        add_total(mapping)?;
    }
    mapping.note(format!(
        "DeepSpeed's {} has each rate one step later: its first two steps have the rate of the first one here",
        mapping.shown(TYPE)
    ));
    Ok(())
}

/// A rise, then half a cosine; both ends are shares of the optimizer's own rate.
fn map_cosine(mapping: &mut Mapping<'_>) -> Result<(), ConfigError> {
    const LOW: &str = "scheduler.params.warmup_min_ratio";
    const END: &str = "scheduler.params.cos_min_ratio";
    add_style(mapping, "cosine")?;
    let document = mapping.document;
    let given = mapping.line.value("--lr").and_then(|rate| rate.parse().ok());
    let rate: Option<f64> = document.number("optimizer.params.lr").value().or(given);
    for (key, flag, default) in [(LOW, "--lr-warmup-init", 0.0), (END, "--min-lr", COSINE_MIN_RATIO)] {
        let ratio = match document.number(key) {
            Setting::Is(ratio) => Some(ratio),
            Setting::Absent => None,
            Setting::Auto => continue,
        };
        let low = match (ratio.unwrap_or(default), rate) {
            (0.0, _) => 0.0,
            (ratio, Some(rate)) => ratio * rate,
            (_, None) if ratio.is_none() && mapping.line.value(flag).is_some() => continue,
            (ratio, None) => {
                return Err(ConfigError::Missing {
                    path: "optimizer.params.lr".to_owned(),
                    why: format!("{key} is a share of it, {ratio}; give it, or --lr"),
                });
            }
        };
        match ratio {
            Some(_) => mapping.add_number(flag, low, &[key])?,
            None => mapping.default(flag, low, key),
        }
    }
    add_warm_up(mapping)?;
    add_total(mapping)?;
    mapping.note("DeepSpeed's warm-up before a cosine has each rate one step later");
    Ok(())
}

/// One rise and one fall along lines, with the momentum as it is and without a further decay.
fn map_cycle(mapping: &mut Mapping<'_>) -> Result<(), ConfigError> {
    const MOMENTUM: &str = "scheduler.params.cycle_momentum";
    const LOW: &str = "scheduler.params.cycle_min_lr";
    const RISE: &str = "scheduler.params.cycle_first_step_size";
    const FALL: &str = "scheduler.params.cycle_second_step_size";
    const DECAY_STEPS: &str = "scheduler.params.decay_step_size";
    const DECAY_RATE: &str = "scheduler.params.decay_lr_rate";
    let document = mapping.document;
    match document.bool(MOMENTUM) {
        Setting::Is(false) => mapping.use_key(MOMENTUM),
        Setting::Is(true) | Setting::Absent => {
            let why = "the momentum stays as it is here, and DeepSpeed cycles it by default; give false";
            return Err(mapping.unsupported(MOMENTUM, why));
        }
        Setting::Auto => {}
    }
    for key in [
        "scheduler.params.cycle_first_stair_count",
        "scheduler.params.cycle_second_stair_count",
    ] {
        if document.count(key).value().is_some_and(|count| count > 0) {
            return Err(mapping.unsupported(key, "the learning rate has no stairs here; give 0 or leave it out"));
        }
    }
    let decays = |value: Option<f64>| value.is_some_and(|value| value != 0.0);
    if decays(document.number(DECAY_RATE).value()) && decays(document.number(DECAY_STEPS).value()) {
        let why = "after the cycle the learning rate stays; give 0 or leave it out";
        return Err(mapping.unsupported(DECAY_RATE, why));
    }
    add_style(mapping, "linear")?;
    for (key, flags) in [
        (CYCLE_MAX_RATE, &["--lr"][..]),
        (LOW, &["--lr-warmup-init", "--min-lr"][..]),
    ] {
        match document.number(key) {
            Setting::Is(rate) => {
                for flag in flags {
                    mapping.add_number(flag, rate, &[key])?;
                }
            }
            Setting::Absent => {
                return Err(ConfigError::Missing {
                    path: key.to_owned(),
                    why: "OneCycle has no default for it".to_owned(),
                });
            }
            Setting::Auto => {}
        }
    }
    let [rise, fall] = [RISE, FALL].map(|key| document.count(key));
    match rise {
        Setting::Is(steps) => mapping.add("--lr-warmup-iters", steps, &[RISE])?,
        Setting::Absent => mapping.default("--lr-warmup-iters", CYCLE_STEPS, RISE),
        Setting::Auto => return Ok(()),
    }
    let rise_steps = rise.value().unwrap_or(CYCLE_STEPS);
    let total = |fall: u64| rise_steps.saturating_add(fall);
    match fall {
        Setting::Is(steps) => mapping.add("--lr-decay-iters", total(steps), &[RISE, FALL]),
        Setting::Absent if rise == Setting::Absent => {
            mapping.default("--lr-decay-iters", total(rise_steps), FALL);
            Ok(())
        }
        Setting::Absent => mapping.add("--lr-decay-iters", total(rise_steps), &[RISE]),
        Setting::Auto => Ok(()),
    }
}

fn add_style(mapping: &mut Mapping<'_>, style: &'static str) -> Result<(), ConfigError> {
    mapping.add("--lr-decay-style", style, &[TYPE])
}

/// Adds the length of a warm-up along a line.
fn add_warm_up(mapping: &mut Mapping<'_>) -> Result<(), ConfigError> {
    const STEPS: &str = "scheduler.params.warmup_num_steps";
    const SHAPE: &str = "scheduler.params.warmup_type";
    const FLAG: &str = "--lr-warmup-iters";
    let steps = mapping.document.count(STEPS);
    match (mapping.document.text(SHAPE), steps) {
        (Setting::Is("linear"), _) => mapping.use_key(SHAPE),
        // With both left to the flags, the warm-up is that of the flags.
        (Setting::Auto, _) | (Setting::Absent, Setting::Auto) => {}
        (Setting::Is(_) | Setting::Absent, _) => {
            let why = "the learning rate rises along a line here, and DeepSpeed's default is log; give linear";
            return Err(mapping.unsupported(SHAPE, why));
        }
    }
    match steps {
        // DeepSpeed's least.
        Setting::Is(steps) => mapping.add(FLAG, steps.max(2), &[STEPS]),
        Setting::Absent => {
            mapping.default(FLAG, WARM_UP_STEPS, STEPS);
            Ok(())
        }
        Setting::Auto => Ok(()),
    }
}

/// Adds the step at which the decay ends.
fn add_total(mapping: &mut Mapping<'_>) -> Result<(), ConfigError> {
    match mapping.document.count(TOTAL) {
        Setting::Is(steps) => mapping.add("--lr-decay-iters", steps, &[TOTAL]),
        Setting::Absent if mapping.line.value("--lr-decay-iters").is_some() => Ok(()),
        Setting::Absent => Err(ConfigError::Missing {
            path: TOTAL.to_owned(),
            why: format!("{} ends there; give it, or --lr-decay-iters", mapping.shown(TYPE)),
        }),
        Setting::Auto => Ok(()),
    }
}
