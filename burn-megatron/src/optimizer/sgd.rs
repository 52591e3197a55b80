//! `Sgd`: gradient descent with momentum, as PyTorch's, whose state a checkpoint can hold; that of burn's `Sgd` it
//! cannot, for its fields are private.
//!
//! A burn `Optimizer`: works in an `ElementWiseOptimizer`, or in burn's `ModuleOptimizer`, on any module.

use burn::config::Config;
use burn::optim::{LearningRate, Optimizer, RecordState};
use burn::tensor::{Device, Tensor};

use super::{ElementWise, configured, scaled, with_decay};

/// Configuration of [`Sgd`]; the momentum is Megatron-LM's.
#[derive(Config, Debug, Copy, PartialEq)]
pub struct SgdConfig {
    /// Share of the momentum that is kept in each step; 0 for none, and no state.
    #[config(default = 0.9)]
    pub momentum: f64,
    /// The share of a parameter that is added to its gradient.
    #[config(default = 0.0)]
    pub weight_decay: f64,
}

/// Gradient descent with momentum, without dampening.
///
/// `d = g + λ·p`, `v ← μ·v + d`, `p ← p − lr·v`; v is d in the first step, and in every step without momentum.
///
/// # Reference
/// PyTorch's `torch.optim.SGD` with `dampening=0` and `nesterov=False`, as Megatron-LM makes it.
#[derive(Clone, Debug)]
pub struct Sgd {
    config: SgdConfig,
    gradient_scale: f64,
}

/// State of SGD for a parameter.
#[derive(RecordState, Clone)]
pub struct SgdState<const D: usize> {
    /// The momentum v; `None` if there is none.
    pub momentum: Option<Tensor<D>>,
}

configured!(SgdConfig => Sgd);

impl Sgd {
    /// Returns whether its state has a momentum.
    pub(super) fn has_momentum(&self) -> bool {
        self.config.momentum != 0.0
    }
}

impl ElementWise for Sgd {}

impl Optimizer for Sgd {
    type State<const D: usize> = SgdState<D>;

    fn step<const D: usize>(
        &self,
        learning_rate: LearningRate,
        tensor: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<D>, Option<Self::State<D>>) {
        let SgdConfig { momentum, weight_decay } = self.config;
        let gradient = scaled(gradient, self.gradient_scale);
        let gradient = with_decay(gradient, &tensor, weight_decay);
        let velocity = match state.and_then(|state| state.momentum) {
            Some(before) if self.has_momentum() => before.mul_scalar(momentum) + gradient,
            _ => gradient,
        };
        let state = SgdState {
            momentum: self.has_momentum().then(|| velocity.clone()),
        };
        (tensor - velocity.mul_scalar(learning_rate), Some(state))
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &Device) -> Self::State<D> {
        SgdState {
            momentum: state.momentum.map(|momentum| momentum.to_device(device)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::stepped::{assert_near, run};
    use super::*;

    /// By hand, with d = g + 0.1 p: 0.6, −0.156, 0.09016; v: 0.6, 0.54 − 0.156 = 0.384, 0.3456 + 0.09016 = 0.43576.
    #[test]
    fn steps_by_momentum_and_decay_as_computed_by_hand() {
        let optimizer = SgdConfig::new().with_weight_decay(0.1).build();
        let expected = [0.94, 0.9016, 0.858024];
        assert_near(&run(&optimizer, 1.0, &[0.5, -0.25, 0.0]), &expected);
        // Clipping by one half, of gradients twice as large.
        let clipped = optimizer.with_gradient_scale(0.5);
        assert_near(&run(&clipped, 1.0, &[1.0, -0.5, 0.0]), &expected);
    }

    #[test]
    fn without_momentum_there_is_no_memory_of_earlier_gradients() {
        let optimizer = SgdConfig::new().with_momentum(0.0).build();
        assert_near(&run(&optimizer, 1.0, &[0.5, -0.25, 0.0]), &[0.95, 0.975, 0.975]);
    }
}
