//! Learning rate over the course of training. Called by the training loop before every step.

use std::f64::consts::PI;

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
}

/// A learning-rate schedule, counted in samples: the caller multiplies iterations by the global
/// batch size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LearningRateConfig {
    /// How the rate decays behind the warm-up.
    pub decay: LearningRateDecay,
    /// Rate at sample 0 of a warm-up.
    pub init: f64,
    /// Rate at the end of the warm-up.
    pub max: f64,
    /// Rate at the end of the decay and behind it; a constant schedule does not use it.
    pub min: f64,
    /// Samples W from `init` to `max`; 0 starts at `max`.
    pub warm_up_samples: u64,
    /// Sample D, counted from the beginning of training, at which the decay ends; a constant
    /// schedule does not use it.
    pub decay_samples: u64,
}

/// A configuration that is no schedule.
#[derive(Debug, Error, Clone, Copy, PartialEq)]
pub enum ScheduleError {
    /// A rate is negative or not finite, or the rates are not in order.
    #[error(
        "learning rates must be finite with 0 <= init <= max and 0 <= min <= max, \
         got init {init}, min {min}, max {max}"
    )]
    Rates {
        /// Rate at sample 0.
        init: f64,
        /// Rate at the end.
        min: f64,
        /// Rate behind the warm-up.
        max: f64,
    },

    /// The decay ends before it begins.
    #[error(
        "the warm-up must end before the decay does: warm-up {warm_up_samples} samples, decay \
         {decay_samples} samples; the nearest valid decay is {nearest} samples",
        nearest = .warm_up_samples + 1
    )]
    DecayTooShort {
        /// Samples of the warm-up.
        warm_up_samples: u64,
        /// Samples until the end of the decay.
        decay_samples: u64,
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
    /// warm-up.
    pub fn new(config: LearningRateConfig) -> Result<Self, ScheduleError> {
        let LearningRateConfig { init, max, min, .. } = config;
        let in_order = |low: f64| (0.0..=max).contains(&low);
        if !max.is_finite() || !in_order(init) || !in_order(min) {
            return Err(ScheduleError::Rates { init, min, max });
        }
        let decays = config.decay != LearningRateDecay::Constant;
        if decays && config.decay_samples <= config.warm_up_samples {
            return Err(ScheduleError::DecayTooShort {
                warm_up_samples: config.warm_up_samples,
                decay_samples: config.decay_samples,
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
    /// - `n > D`, linear and cosine: `min`
    ///
    /// `samples` are those that moved the schedule: a skipped step does not count. It is taken
    /// before the step, so the first step of a warm-up has `init`.
    ///
    /// # Reference
    /// Megatron-LM's `OptimizerParamScheduler`. Cosine: Loshchilov and Hutter 2017,
    /// arXiv:1608.03983.
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
            LearningRateDecay::Cosine => 0.5 * (1.0 + (PI * progress()).cos()),
        };
        min + share * (max - min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn config(decay: LearningRateDecay) -> LearningRateConfig {
        LearningRateConfig {
            decay,
            init: 0.0,
            max: 1.0,
            min: 0.1,
            warm_up_samples: 10,
            decay_samples: 50,
        }
    }

    fn assert_rates(config: LearningRateConfig, expected: &[(u64, f64)]) {
        let schedule = LearningRateSchedule::new(config).unwrap();
        for &(samples, rate) in expected {
            let got = schedule.learning_rate(samples);
            // A few roundings of numbers of size 1.
            assert!((got - rate).abs() < 1e-15, "at {samples}: got {got}, expected {rate}");
        }
    }

    #[test]
    fn warm_up_is_a_line_from_init_to_max() {
        for decay in [
            LearningRateDecay::Constant,
            LearningRateDecay::Linear,
            LearningRateDecay::Cosine,
        ] {
            assert_rates(config(decay), &[(0, 0.0), (1, 0.1), (5, 0.5), (10, 1.0)]);
            let from_init = LearningRateConfig {
                init: 0.5,
                ..config(decay)
            };
            assert_rates(from_init, &[(0, 0.5), (4, 0.7), (10, 1.0)]);
        }
    }

    #[test]
    fn constant_stays_at_max() {
        let config = config(LearningRateDecay::Constant);
        assert_rates(config, &[(11, 1.0), (50, 1.0), (51, 1.0), (u64::MAX, 1.0)]);
    }

    #[test]
    fn linear_goes_down_to_min_and_stays() {
        let config = config(LearningRateDecay::Linear);
        assert_rates(
            config,
            &[(20, 0.775), (30, 0.55), (50, 0.1), (51, 0.1), (u64::MAX, 0.1)],
        );
    }

    #[test]
    fn cosine_goes_down_to_min_and_stays() {
        let config = config(LearningRateDecay::Cosine);
        // A quarter of the way: ½(1 + cos(π/4)).
        let quarter = 0.1 + 0.9 * 0.5 * (1.0 + 0.5f64.sqrt());
        assert_rates(
            config,
            &[(20, quarter), (30, 0.55), (50, 0.1), (51, 0.1), (u64::MAX, 0.1)],
        );
    }

    #[test]
    fn without_warm_up_the_first_step_has_max() {
        for decay in [LearningRateDecay::Constant, LearningRateDecay::Cosine] {
            let config = LearningRateConfig {
                warm_up_samples: 0,
                ..config(decay)
            };
            assert_rates(config, &[(0, 1.0)]);
        }
    }

    #[test]
    fn impossible_schedules_are_errors() {
        let valid = config(LearningRateDecay::Linear);
        for bad in [
            LearningRateConfig { init: 2.0, ..valid },
            LearningRateConfig { min: 2.0, ..valid },
            LearningRateConfig { min: -0.1, ..valid },
            LearningRateConfig { max: f64::NAN, ..valid },
            LearningRateConfig {
                max: f64::INFINITY,
                ..valid
            },
        ] {
            let error = LearningRateSchedule::new(bad).unwrap_err();
            assert!(matches!(error, ScheduleError::Rates { .. }), "{error}");
        }
        let short = LearningRateConfig {
            decay_samples: 10,
            ..valid
        };
        assert_eq!(
            LearningRateSchedule::new(short).unwrap_err().to_string(),
            "the warm-up must end before the decay does: warm-up 10 samples, decay 10 samples; \
             the nearest valid decay is 11 samples"
        );
        let constant = LearningRateConfig {
            decay: LearningRateDecay::Constant,
            ..short
        };
        assert!(LearningRateSchedule::new(constant).is_ok());
    }

    proptest! {
        #[test]
        fn the_rate_stays_in_bounds_and_never_rises_behind_the_warm_up(
            warm_up in 0u64..100,
            decay in 1u64..1000,
            cosine: bool,
        ) {
            let style = [LearningRateDecay::Linear, LearningRateDecay::Cosine][usize::from(cosine)];
            let schedule = LearningRateSchedule::new(LearningRateConfig {
                warm_up_samples: warm_up,
                decay_samples: warm_up + decay,
                ..config(style)
            })
            .unwrap();
            let rates: Vec<f64> = (warm_up..warm_up + decay + 2)
                .map(|samples| schedule.learning_rate(samples))
                .collect();
            prop_assert!(rates.iter().all(|rate| (0.1..=1.0).contains(rate)));
            prop_assert!(rates.windows(2).all(|pair| pair[1] <= pair[0]));
        }
    }
}
