//! `LossScaler`: the number that the loss is multiplied by, so that small gradients do not vanish in f16.
//!
//! Pure numbers, no tensors. The trainer multiplies the loss by [`scale`](LossScaler::scale), divides the gradients by
//! it, agrees with all ranks on whether any of them is not finite, and tells that by [`update`](LossScaler::update):
//! then every rank's scaler is the same. A step with such a gradient is to be skipped.

use serde::{Deserialize, Serialize};

/// How the loss is scaled; the fields have the names and defaults of Megatron-LM's flags.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum LossScaleConfig {
    /// Always by the same number: `--loss-scale`.
    Constant {
        /// The number.
        loss_scale: f64,
    },
    /// By as large a number as the gradients allow: see [`DynamicLossScale`].
    Dynamic(DynamicLossScale),
}

/// A scale that doubles after a window of finite steps and halves where gradients are not finite.
///
/// # Reference
/// Micikevicius et al. 2018, arXiv:1710.03740, section 3.2; the rules are Megatron-LM's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DynamicLossScale {
    /// The first scale: `--initial-loss-scale`. The first steps skip, until it fits.
    pub initial_loss_scale: f64,
    /// The scale never falls below this: `--min-loss-scale`.
    pub min_loss_scale: f64,
    /// Number of finite steps in a row after which the scale doubles: `--loss-scale-window`.
    pub loss_scale_window: u32,
    /// Number of steps with a gradient that is not finite, since the scale last grew, at which the scale halves, as it
    /// does at every further one: `--hysteresis`.
    pub hysteresis: u32,
}

impl Default for DynamicLossScale {
    fn default() -> Self {
        Self {
            initial_loss_scale: 2f64.powi(32),
            min_loss_scale: 1.0,
            loss_scale_window: 1000,
            hysteresis: 2,
        }
    }
}

/// The scale of the loss, and what its next change depends on.
///
/// On a step with a gradient that is not finite, the growth tracker starts again, the hysteresis tracker goes down by
/// one, and once it is at 0 the scale halves, down to the smallest: the tracker stays at 0, so that the scale halves
/// again at every further such step. On a finite step the growth tracker goes up by one; when it reaches the window, it
/// starts again, the hysteresis tracker is full again, and the scale doubles.
///
/// Megatron-LM keeps skipping without end if gradients stay infinite at the smallest scale, DeepSpeed ends with the
/// first such step; this scaler returns an error after [`MAX_SKIPS`](Self::MAX_SKIPS) of them in a row, as it does for
/// a constant scale.
#[derive(Clone, Debug, PartialEq)]
pub struct LossScaler {
    config: LossScaleConfig,
    state: LossScalerState,
    max_skips: u32,
}

/// What a checkpoint keeps of a [`LossScaler`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossScalerState {
    /// The scale of the next step.
    pub scale: f64,
    /// Finite steps since the scale last grew or a step was skipped.
    pub growth_tracker: u32,
    /// Steps with a gradient that is not finite until the scale halves.
    pub hysteresis_tracker: u32,
    /// Steps skipped one after the other at a scale that cannot fall.
    pub skips_at_minimum: u32,
}

/// A scale that cannot be, or that cannot help.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum LossScaleError {
    #[error("{flag} must be a positive number that f32 can hold, got {value}")]
    Scale {
        /// The flag, or what else the number is.
        flag: &'static str,
        value: f64,
    },
    #[error("--initial-loss-scale ({initial}) must be at least --min-loss-scale ({min})")]
    InitialBelowMinimum { initial: f64, min: f64 },
    #[error("{flag} must be at least 1, got 0")]
    Zero { flag: &'static str },
    #[error(
        "gradients were not finite in {steps} steps in a row at a loss scale of {scale}, which cannot fall further: \
         the run has diverged, or --min-loss-scale or --loss-scale is too large"
    )]
    Exhausted { steps: u32, scale: f64 },
}

impl LossScaleConfig {
    /// Returns a scaler before its first step.
    ///
    /// # Errors
    /// When a scale is not a positive number of f32, the first one is below the smallest, or a number of steps is zero.
    pub fn init(&self) -> Result<LossScaler, LossScaleError> {
        let (scale, hysteresis_tracker) = match self {
            Self::Constant { loss_scale } => {
                check_scale("--loss-scale", *loss_scale)?;
                // The largest value: a dynamic scale that resumes from a checkpoint of this one begins with its own.
                (*loss_scale, u32::MAX)
            }
            Self::Dynamic(dynamic) => {
                dynamic.validate()?;
                (dynamic.initial_loss_scale, dynamic.hysteresis)
            }
        };
        Ok(LossScaler {
            config: *self,
            state: LossScalerState {
                scale,
                growth_tracker: 0,
                hysteresis_tracker,
                skips_at_minimum: 0,
            },
            max_skips: LossScaler::MAX_SKIPS,
        })
    }
}

impl DynamicLossScale {
    const GROWTH_FACTOR: f64 = 2.0;
    const BACKOFF_FACTOR: f64 = 0.5;

    fn validate(&self) -> Result<(), LossScaleError> {
        check_scale("--initial-loss-scale", self.initial_loss_scale)?;
        check_scale("--min-loss-scale", self.min_loss_scale)?;
        if self.initial_loss_scale < self.min_loss_scale {
            return Err(LossScaleError::InitialBelowMinimum {
                initial: self.initial_loss_scale,
                min: self.min_loss_scale,
            });
        }
        let steps = [
            ("--loss-scale-window", self.loss_scale_window),
            ("--hysteresis", self.hysteresis),
        ];
        match steps.into_iter().find(|(_, steps)| *steps == 0) {
            Some((flag, _)) => Err(LossScaleError::Zero { flag }),
            None => Ok(()),
        }
    }
}

impl LossScaler {
    /// Number of skipped steps in a row at a scale that cannot fall that are an error, unless another is set.
    pub const MAX_SKIPS: u32 = 20;

    /// Returns the same scaler with another number of skipped steps in a row that are an error.
    pub fn with_max_skips(self, max_skips: u32) -> Self {
        Self { max_skips, ..self }
    }

    /// The number that the next step's loss is multiplied by.
    pub fn scale(&self) -> f64 {
        self.state.scale
    }

    /// Takes in whether a gradient of the last step, on any rank, was not finite.
    ///
    /// # Errors
    /// When that is the last of the steps that may be skipped in a row at a scale that cannot fall.
    pub fn update(&mut self, found_inf: bool) -> Result<(), LossScaleError> {
        let scale = self.state.scale;
        if let LossScaleConfig::Dynamic(dynamic) = self.config {
            if found_inf {
                self.back_off(&dynamic)
            } else {
                self.grow(&dynamic)
            }
        }
        let cannot_fall = match self.config {
            LossScaleConfig::Constant { .. } => true,
            LossScaleConfig::Dynamic(dynamic) => scale <= dynamic.min_loss_scale,
        };
        let state = &mut self.state;
        state.skips_at_minimum = if found_inf && cannot_fall {
            state.skips_at_minimum.saturating_add(1)
        } else {
            0
        };
        if state.skips_at_minimum == 0 || state.skips_at_minimum < self.max_skips {
            Ok(())
        } else {
            Err(LossScaleError::Exhausted {
                steps: state.skips_at_minimum,
                scale,
            })
        }
    }

    /// What a checkpoint keeps.
    pub fn state(&self) -> LossScalerState {
        self.state
    }

    /// Restores the state that a checkpoint recorded.
    ///
    /// A constant scale stays what the configuration says, and so does the smallest scale of a dynamic one: the
    /// recorded scale is raised to it.
    ///
    /// # Errors
    /// When the recorded scale is not a positive number of f32.
    pub fn restore(&mut self, state: LossScalerState) -> Result<(), LossScaleError> {
        check_scale("the checkpoint's loss scale", state.scale)?;
        if let LossScaleConfig::Dynamic(dynamic) = self.config {
            self.state = LossScalerState {
                scale: state.scale.max(dynamic.min_loss_scale),
                hysteresis_tracker: state.hysteresis_tracker.min(dynamic.hysteresis),
                ..state
            };
        }
        Ok(())
    }

    fn back_off(&mut self, dynamic: &DynamicLossScale) {
        let state = &mut self.state;
        state.growth_tracker = 0;
        state.hysteresis_tracker = state.hysteresis_tracker.saturating_sub(1);
        if state.hysteresis_tracker == 0 {
            state.scale = (state.scale * DynamicLossScale::BACKOFF_FACTOR).max(dynamic.min_loss_scale);
        }
    }

    fn grow(&mut self, dynamic: &DynamicLossScale) {
        let state = &mut self.state;
        state.growth_tracker += 1;
        // Not only equal: a checkpoint of a larger window may have gone further.
        if state.growth_tracker >= dynamic.loss_scale_window {
            state.growth_tracker = 0;
            state.hysteresis_tracker = dynamic.hysteresis;
            let grown = state.scale * DynamicLossScale::GROWTH_FACTOR;
            // Beyond, the scaled loss would be infinite whatever the gradients are.
            if grown <= f64::from(f32::MAX) {
                state.scale = grown;
            }
        }
    }
}

fn check_scale(flag: &'static str, value: f64) -> Result<(), LossScaleError> {
    let range = f64::from(f32::MIN_POSITIVE)..=f64::from(f32::MAX);
    if range.contains(&value) {
        Ok(())
    } else {
        Err(LossScaleError::Scale { flag, value })
    }
}

#[cfg(test)]
mod tests;
