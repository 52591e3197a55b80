//! `Adam`: with weight decay as a term of the gradient, as before AdamW.
//!
//! A burn `Optimizer`: works in an `ElementWiseOptimizer`, or in burn's `ModuleOptimizer`, on any module.

use burn::optim::{LearningRate, Optimizer};
use burn::tensor::{Device, Tensor};

use super::{AdamW, AdamWConfig, AdamWState, ElementWise, scaled, with_decay};
use crate::data_parallel::ElementWiseOptimizer;

/// Adam with L2 regularisation: [`AdamW`]'s update of the gradient `g + λ·p`, which the moments see.
///
/// The decay and Adam's moments are one pass each. The state is AdamW's; with a weight decay of 0 so is the update.
///
/// # Reference
/// Kingma and Ba 2015, arXiv:1412.6980, algorithm 1; PyTorch's `torch.optim.Adam`.
#[derive(Clone, Debug)]
pub struct Adam {
    adamw: AdamW,
    weight_decay: f64,
    gradient_scale: f64,
}

impl Adam {
    /// Returns an optimizer of tensors with AdamW's settings, whose weight decay is a term of the gradient.
    pub fn new(config: &AdamWConfig) -> Self {
        Self {
            adamw: config.clone().with_weight_decay(0.0).build(),
            weight_decay: config.weight_decay,
            gradient_scale: 1.0,
        }
    }

    /// Returns an optimizer of a module's parameters.
    pub fn init(self) -> ElementWiseOptimizer<Self> {
        ElementWiseOptimizer::from(self)
    }

    /// Returns the same optimizer with gradients multiplied by a number first, 1 unless this says otherwise: clipping
    /// without a pass of its own. The decay is added to what that makes.
    pub fn with_gradient_scale(self, gradient_scale: f64) -> Self {
        Self { gradient_scale, ..self }
    }
}

impl ElementWise for Adam {}

impl Optimizer for Adam {
    type State<const D: usize> = AdamWState<D>;

    fn step<const D: usize>(
        &self,
        learning_rate: LearningRate,
        tensor: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<D>, Option<Self::State<D>>) {
        let gradient = scaled(gradient, self.gradient_scale);
        let gradient = with_decay(gradient, &tensor, self.weight_decay);
        self.adamw.step(learning_rate, tensor, gradient, state)
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &Device) -> Self::State<D> {
        <AdamW as Optimizer>::to_device(state, device)
    }
}

#[cfg(test)]
mod tests {
    use super::super::stepped::{assert_near, run};
    use super::*;

    /// The first step of Adam is the learning rate, whatever the gradient's size: with a decay that outweighs it, in
    /// the decay's direction.
    #[test]
    fn the_decay_is_a_term_of_the_gradient() {
        let config = AdamWConfig::new().with_epsilon(0.0);
        let adam = Adam::new(&config.clone().with_weight_decay(0.5));
        assert_near(&run(&adam, 1.0, &[-0.25]), &[0.9]);
        let adamw = config.clone().with_weight_decay(0.5).build();
        assert_near(&run(&adamw, 1.0, &[-0.25]), &[1.05]);
        // Clipping scales the gradient, not the decay.
        assert_near(&run(&adam.with_gradient_scale(4.0), 1.0, &[-0.25]), &[1.1]);
    }

    #[test]
    fn without_decay_it_is_adamw() {
        let config = AdamWConfig::new().with_weight_decay(0.0);
        let gradients = [0.5, -0.25, 0.125];
        let adam = run(&Adam::new(&config), 1.0, &gradients);
        assert_eq!(adam, run(&config.build(), 1.0, &gradients));
    }
}
