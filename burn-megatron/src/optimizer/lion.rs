//! `Lion`: steps of one size, by the sign of a mean of gradients; one tensor of state.
//!
//! A burn `Optimizer`: works in an `ElementWiseOptimizer`, or in burn's `ModuleOptimizer`, on any module.

use burn::config::Config;
use burn::optim::{LearningRate, Optimizer, RecordState};
use burn::tensor::{Device, Tensor};

use super::{ElementWise, configured, scaled};

/// Configuration of [`Lion`]; defaults are the paper's.
#[derive(Config, Debug, Copy, PartialEq)]
pub struct LionConfig {
    /// Share of the mean of gradients in the direction of a step.
    #[config(default = 0.9)]
    pub beta_1: f64,
    /// Decay of the mean of gradients.
    #[config(default = 0.99)]
    pub beta_2: f64,
    /// The share of a parameter that decays in a step of learning rate 1.
    #[config(default = 0.01)]
    pub weight_decay: f64,
}

/// Lion, with decoupled weight decay: every element moves by the learning rate.
///
/// `p ← (1 − lr·λ) p − lr · sign(β₁ m + (1 − β₁) g)`, then `m ← β₂ m + (1 − β₂) g`; m is 0 before the first step. An
/// element without gradient or mean does not move. The steps are larger than AdamW's: Chen et al. recommend a learning
/// rate three to ten times smaller, and a weight decay larger by the same factor.
///
/// Computed by burn's operations, in several passes over the elements; [`AdamW`](super::AdamW)'s update is one fused
/// pass.
///
/// # Reference
/// Chen et al. 2023, arXiv:2302.06675, algorithm 2.
#[derive(Clone, Debug)]
pub struct Lion {
    config: LionConfig,
    gradient_scale: f64,
}

/// State of Lion for a parameter.
#[derive(RecordState, Clone)]
pub struct LionState<const D: usize> {
    /// The running mean of gradients.
    pub moment_1: Tensor<D>,
}

configured!(LionConfig => Lion);

impl ElementWise for Lion {}

impl Optimizer for Lion {
    type State<const D: usize> = LionState<D>;

    fn step<const D: usize>(
        &self,
        learning_rate: LearningRate,
        tensor: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<D>, Option<Self::State<D>>) {
        let LionConfig {
            beta_1,
            beta_2,
            weight_decay,
        } = self.config;
        let gradient = scaled(gradient, self.gradient_scale);
        let (direction, moment_1) = match state {
            // A mean of zero changes no sign.
            None => (gradient.clone(), gradient.mul_scalar(1.0 - beta_2)),
            Some(LionState { moment_1 }) => (
                moment_1.clone().mul_scalar(beta_1) + gradient.clone().mul_scalar(1.0 - beta_1),
                moment_1.mul_scalar(beta_2) + gradient.mul_scalar(1.0 - beta_2),
            ),
        };
        let decayed = scaled(tensor, 1.0 - learning_rate * weight_decay);
        let moved = decayed - direction.sign().mul_scalar(learning_rate);
        (moved, Some(LionState { moment_1 }))
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &Device) -> Self::State<D> {
        LionState {
            moment_1: state.moment_1.to_device(device),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::stepped::{assert_near, run};
    use super::*;

    /// By hand, from 1 with decay 0.1 of rate 0.1: the factor 0.99. Means: 0.005, then 0.00495 − 0.02 = −0.01505, then
    /// −0.0149; directions: 0.5, then 0.0045 − 0.2 < 0, then −0.01355 < 0 without a gradient.
    #[test]
    fn steps_by_signs_as_computed_by_hand() {
        let optimizer = LionConfig::new().with_weight_decay(0.1).build();
        let expected = [0.89, 0.9811, 1.071289];
        assert_near(&run(&optimizer, 1.0, &[0.5, -2.0, 0.0]), &expected);
        // Clipping scales the mean that later signs are made of.
        let clipped = optimizer.with_gradient_scale(0.5);
        assert_near(&run(&clipped, 1.0, &[1.0, -4.0, 0.0]), &expected);
    }

    #[test]
    fn what_has_no_gradient_does_not_move() {
        let optimizer = LionConfig::new().with_weight_decay(0.0).build();
        assert_near(&run(&optimizer, 1.0, &[0.0, 0.0]), &[1.0, 1.0]);
    }
}
