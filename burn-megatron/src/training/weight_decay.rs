//! Weight decay over the course of training.

use std::f64::consts::PI;

use burn::config::Config;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How the weight decay rises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WeightDecayIncrease {
    /// It does not.
    Constant,
    /// Along a straight line.
    Linear,
    /// Along half a cosine.
    Cosine,
}

/// A weight-decay schedule, counted in samples.
#[derive(Config, Debug, Copy, PartialEq)]
pub struct WeightDecayConfig {
    /// How the decay rises.
    #[config(default = "WeightDecayIncrease::Constant")]
    pub increase: WeightDecayIncrease,
    /// The share of a parameter that decays in a step of learning rate 1, at sample 0.
    pub start: f64,
    /// The same at the end of the ramp and after it.
    pub end: f64,
    /// Samples S from `start` to `end`; a constant schedule does not use them.
    #[config(default = 0)]
    pub samples: u64,
}

impl WeightDecayConfig {
    /// Returns the schedule that always has one weight decay.
    pub fn constant(weight_decay: f64) -> Self {
        Self::new(weight_decay, weight_decay)
    }
}

/// A configuration that is no schedule.
#[derive(Debug, Error, Clone, Copy, PartialEq)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum WeightDecayError {
    #[error("weight decays must be finite with 0 <= start <= end, got start {start}, end {end}")]
    Range { start: f64, end: f64 },
    #[error("a constant weight decay must end as it starts, got start {start}, end {end}")]
    NotConstant { start: f64, end: f64 },
    #[error("the weight decay must rise over at least 1 sample, got 0")]
    NoSamples,
}

/// Gives the weight decay for every number of samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WeightDecaySchedule {
    config: WeightDecayConfig,
}

impl WeightDecaySchedule {
    /// Returns the schedule of `config`.
    ///
    /// # Errors
    /// The decays are not finite, negative or not in order, two values are given for a constant one, or a ramp has no
    /// samples.
    pub fn new(config: WeightDecayConfig) -> Result<Self, WeightDecayError> {
        let WeightDecayConfig { start, end, .. } = config;
        if !end.is_finite() || !(0.0..=end).contains(&start) {
            return Err(WeightDecayError::Range { start, end });
        }
        match config.increase {
            WeightDecayIncrease::Constant if start != end => Err(WeightDecayError::NotConstant { start, end }),
            WeightDecayIncrease::Linear | WeightDecayIncrease::Cosine if config.samples == 0 => {
                Err(WeightDecayError::NoSamples)
            }
            _ => Ok(Self { config }),
        }
    }

    /// Returns the weight decay of the step that begins after `samples` samples.
    ///
    /// With n samples and S of the ramp, `start + c·(end − start)`, where c is `n/S` (linear) or `½(1 − cos(πn/S))`
    /// (cosine) up to S and 1 after it.
    ///
    /// `samples` are those that moved the schedule, as for
    /// [`learning_rate`](super::LearningRateSchedule::learning_rate).
    ///
    /// # Reference
    /// Megatron-LM's `OptimizerParamScheduler`.
    pub fn weight_decay(&self, samples: u64) -> f64 {
        let WeightDecayConfig {
            increase,
            start,
            end,
            samples: length,
        } = self.config;
        let progress = samples as f64 / length as f64;
        let share = match increase {
            WeightDecayIncrease::Constant => return end,
            _ if samples >= length => return end,
            WeightDecayIncrease::Linear => progress,
            WeightDecayIncrease::Cosine => 0.5 * (1.0 - (PI * progress).cos()),
        };
        // The sum may be off by a rounding.
        (start + share * (end - start)).clamp(start, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn config(increase: WeightDecayIncrease) -> WeightDecayConfig {
        WeightDecayConfig {
            increase,
            start: 0.1,
            end: 0.5,
            samples: 40,
        }
    }

    fn assert_decays(config: WeightDecayConfig, expected: &[(u64, f64)]) {
        let schedule = WeightDecaySchedule::new(config).unwrap();
        for &(samples, decay) in expected {
            let got = schedule.weight_decay(samples);
            // A few roundings of numbers below 1.
            assert!((got - decay).abs() < 1e-15, "at {samples}: got {got}, expected {decay}");
        }
    }

    #[test]
    fn constant_stays() {
        let config = WeightDecayConfig::constant(0.1);
        assert_decays(config, &[(0, 0.1), (1, 0.1), (u64::MAX, 0.1)]);
    }

    #[test]
    fn linear_rises_to_the_end_and_stays() {
        let config = config(WeightDecayIncrease::Linear);
        assert_decays(
            config,
            &[(0, 0.1), (10, 0.2), (30, 0.4), (40, 0.5), (41, 0.5), (u64::MAX, 0.5)],
        );
    }

    #[test]
    fn cosine_rises_to_the_end_and_stays() {
        let config = config(WeightDecayIncrease::Cosine);
        // A quarter of the way: ½(1 + cos(π·3/4)) = ½(1 − √½).
        let quarter = 0.1 + 0.4 * 0.5 * (1.0 - 0.5f64.sqrt());
        assert_decays(
            config,
            &[
                (0, 0.1),
                (10, quarter),
                (20, 0.3),
                (40, 0.5),
                (41, 0.5),
                (u64::MAX, 0.5),
            ],
        );
    }

    #[test]
    fn impossible_schedules_are_errors() {
        let valid = config(WeightDecayIncrease::Linear);
        let error = |config| WeightDecaySchedule::new(config).unwrap_err();
        for (start, end) in [
            (0.6, 0.5),
            (-0.1, 0.5),
            (0.0, f64::NAN),
            (0.0, f64::INFINITY),
            (f64::NAN, 0.5),
        ] {
            let error = error(WeightDecayConfig { start, end, ..valid });
            assert!(
                matches!(error, WeightDecayError::Range { .. }),
                "{start} to {end}: {error}"
            );
        }
        assert_eq!(
            error(WeightDecayConfig { samples: 0, ..valid }),
            WeightDecayError::NoSamples
        );
        let constant = config(WeightDecayIncrease::Constant);
        assert_eq!(
            error(constant).to_string(),
            "a constant weight decay must end as it starts, got start 0.1, end 0.5"
        );
    }

    proptest! {
        #[test]
        fn the_decay_stays_in_bounds_and_never_falls_nor_jumps(
            start in 0.0f64..1.0,
            rise in 0.0f64..1.0,
            samples in 1u64..500,
            cosine: bool,
        ) {
            let increase = [WeightDecayIncrease::Linear, WeightDecayIncrease::Cosine][usize::from(cosine)];
            let end = start + rise;
            let schedule = WeightDecaySchedule::new(WeightDecayConfig { increase, start, end, samples }).unwrap();
            let decays: Vec<f64> = (0..samples + 2).map(|samples| schedule.weight_decay(samples)).collect();
            prop_assert_eq!((decays[0], decays[samples as usize]), (start, end));
            prop_assert!(decays.iter().all(|decay| (start..=end).contains(decay)));
            // The cosine is at its steepest in the middle: π/2 times the line's slope.
            let most = rise * PI / 2.0 / samples as f64 + 1e-12;
            prop_assert!(decays.windows(2).all(|pair| (0.0..=most).contains(&(pair[1] - pair[0]))));
        }
    }
}
