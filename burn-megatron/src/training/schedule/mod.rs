//! Learning rate over the course of training.

use std::f64::consts::PI;

use burn::config::Config;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How the learning rate comes down from its maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LearningRateDecay {
    /// It does not.
    Constant,
    /// Along a straight line.
    Linear,
    /// Along half a cosine.
    Cosine,
    /// With the inverse square root of the samples.
    InverseSquareRoot,
    /// Not at first, and then over the last samples before the end of the decay: warm-up–stable–decay (WSD).
    WarmUpStableDecay {
        /// How it comes down at last.
        style: AnnealingStyle,
        /// The samples over which it does so.
        samples: u64,
    },
}

/// How the learning rate comes down at the end of a warm-up–stable–decay schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AnnealingStyle {
    /// Along a straight line.
    Linear,
    /// Along half a cosine.
    Cosine,
    /// Exponentially, shifted so that it ends at the minimum.
    Exponential,
    /// With one minus the square root of the progress.
    MinusSquareRoot,
}

/// A learning-rate schedule, counted in samples: the caller multiplies iterations by the global
/// batch size.
#[derive(Config, Debug, Copy, PartialEq)]
pub struct LearningRateConfig {
    /// How the rate decays after the warm-up.
    #[config(default = "LearningRateDecay::Constant")]
    pub decay: LearningRateDecay,
    /// Rate at sample 0 of a warm-up.
    #[config(default = 0.0)]
    pub init: f64,
    /// Rate at the end of the warm-up.
    pub max: f64,
    /// Rate at the end of the decay and after it; a constant schedule does not use it.
    #[config(default = 0.0)]
    pub min: f64,
    /// Samples W from `init` to `max`; 0 starts at `max`.
    #[config(default = 0)]
    pub warm_up_samples: u64,
    /// Sample D, counted from the beginning of training, at which the decay ends; a constant
    /// schedule does not use it.
    #[config(default = 0)]
    pub decay_samples: u64,
}

impl LearningRateConfig {
    /// Returns the schedule that has one rate from the first step on.
    pub fn constant(rate: f64) -> Self {
        Self::new(rate)
    }
}

/// A configuration that is no schedule.
#[derive(Debug, Error, Clone, Copy, PartialEq)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ScheduleError {
    #[error(
        "learning rates must be finite with 0 <= init <= max and 0 <= min <= max, \
         got init {init}, min {min}, max {max}"
    )]
    Rates { init: f64, min: f64, max: f64 },

    #[error(
        "the warm-up must end before the decay does: warm-up {warm_up_samples} samples, decay \
         {decay_samples} samples; the nearest valid decay is {nearest} samples",
        nearest = .warm_up_samples.saturating_add(1)
    )]
    DecayTooShort { warm_up_samples: u64, decay_samples: u64 },

    #[error(
        "a warm-up-stable-decay schedule must come down over 1 to {most} samples, those between the end of the \
         warm-up, {warm_up_samples}, and that of the decay, {decay_samples}; got {samples}",
        most = .decay_samples - .warm_up_samples
    )]
    Annealing {
        warm_up_samples: u64,
        decay_samples: u64,
        samples: u64,
    },
}

/// Gives the learning rate for every number of samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LearningRateSchedule {
    config: LearningRateConfig,
}

impl LearningRateSchedule {
    /// Returns the schedule of `config`.
    ///
    /// # Errors
    /// The rates are not finite, not positive or not in order, or the decay ends within the
    /// warm-up, or that of a warm-up–stable–decay schedule begins within it.
    pub fn new(config: LearningRateConfig) -> Result<Self, ScheduleError> {
        let LearningRateConfig {
            init,
            max,
            min,
            warm_up_samples,
            decay_samples,
            ..
        } = config;
        let in_order = |low: f64| (0.0..=max).contains(&low);
        if !max.is_finite() || !in_order(init) || !in_order(min) {
            return Err(ScheduleError::Rates { init, min, max });
        }
        let decays = config.decay != LearningRateDecay::Constant;
        if decays && decay_samples <= warm_up_samples {
            return Err(ScheduleError::DecayTooShort {
                warm_up_samples,
                decay_samples,
            });
        }
        if let LearningRateDecay::WarmUpStableDecay { samples, .. } = config.decay
            && !(1..=decay_samples - warm_up_samples).contains(&samples)
        {
            return Err(ScheduleError::Annealing {
                warm_up_samples,
                decay_samples,
                samples,
            });
        }
        Ok(Self { config })
    }

    /// Returns the learning rate of the step that begins after `samples` samples.
    ///
    /// With n samples, W of warm-up and D of decay:
    ///
    /// - `n ≤ W`: `init + (max − init)·n/W`
    /// - constant: `max`
    /// - linear: `min + (max − min)·(1 − (n − W)/(D − W))`
    /// - cosine: `min + ½(1 + cos(π(n − W)/(D − W)))·(max − min)`
    /// - inverse square root: the larger of `min` and `max·√(W/n)`, where W and n are at least 1
    /// - warm-up–stable–decay over S samples, with `p = (n − (D − S))/S`: `max` while `p ≤ 0`, then
    ///   `min + c·(max − min)` with c one of `1 − p`, `½(1 + cos(πp))`, `2·2⁻ᵖ − 1`, `1 − √p`
    /// - `n > D`, all but constant: `min`, to which the inverse square root jumps
    ///
    /// `samples` are those that moved the schedule: a skipped step does not count. It is taken
    /// before the step, so the first step of a warm-up has `init`.
    ///
    /// # Reference
    /// Megatron-LM's `OptimizerParamScheduler`. Cosine: Loshchilov and Hutter 2017,
    /// arXiv:1608.03983. Inverse square root: Vaswani et al. 2017, arXiv:1706.03762.
    /// Warm-up–stable–decay: Hu et al. 2024, arXiv:2404.06395; `1 − √p`: Hägele et al. 2024,
    /// arXiv:2405.18392.
    pub fn learning_rate(&self, samples: u64) -> f64 {
        let LearningRateConfig {
            decay,
            init,
            max,
            min,
            warm_up_samples: warm_up,
            decay_samples: end,
        } = self.config;
        if warm_up > 0 && samples <= warm_up {
            return init + (max - init) * (samples as f64 / warm_up as f64);
        }
        let progress = || (samples - warm_up) as f64 / (end - warm_up) as f64;
        let share = match decay {
            LearningRateDecay::Constant => return max,
            _ if samples > end => return min,
            LearningRateDecay::Linear => 1.0 - progress(),
            LearningRateDecay::Cosine => half_cosine(progress()),
            LearningRateDecay::InverseSquareRoot => {
                let share = (warm_up.max(1) as f64 / samples.max(1) as f64).sqrt();
                return (max * share).max(min);
            }
            LearningRateDecay::WarmUpStableDecay { style, samples: length } => {
                let Some(decayed) = samples.checked_sub(end - length) else {
                    return max;
                };
                style.share(decayed as f64 / length as f64)
            }
        };
        // The sum may be off by a rounding.
        (min + share * (max - min)).clamp(min, max)
    }
}

impl AnnealingStyle {
    /// The share that is left of the way from minimum to maximum, 1 at the beginning and 0 at the end.
    fn share(self, progress: f64) -> f64 {
        match self {
            AnnealingStyle::Linear => 1.0 - progress,
            AnnealingStyle::Cosine => half_cosine(progress),
            AnnealingStyle::Exponential => 2.0 * 0.5f64.powf(progress) - 1.0,
            AnnealingStyle::MinusSquareRoot => 1.0 - progress.sqrt(),
        }
    }
}

/// `½(1 + cos(πp))`: from 1 to 0.
fn half_cosine(progress: f64) -> f64 {
    0.5 * (1.0 + (PI * progress).cos())
}

#[cfg(test)]
mod tests;
