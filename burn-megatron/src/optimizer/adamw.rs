//! `AdamW` with hyperparameters in f64: what burn's own does in f32, so that training in f64 is f64 throughout.
//!
//! A burn `Optimizer`: works in an `ElementWiseOptimizer`, or in burn's `ModuleOptimizer`, on any module.

use burn::config::Config;
use burn::optim::{LearningRate, Optimizer, RecordState};
use burn::tensor::{DType, Device, Tensor};
use cubecl_kernels::adamw::{AdamWStep, adamw_elements};
use cubecl_kernels::{Kernels, kernels};

use super::{ElementWise, scaled};
use crate::data_parallel::{BucketForm, ElementWiseOptimizer};

/// Configuration of [`AdamW`]; defaults are Megatron-LM's.
#[derive(Config, Debug, PartialEq)]
pub struct AdamWConfig {
    /// Decay of the mean of gradients.
    #[config(default = 0.9)]
    pub beta_1: f64,
    /// Decay of the mean of squared gradients.
    #[config(default = 0.999)]
    pub beta_2: f64,
    /// Added to the root of the second moment.
    #[config(default = 1e-8)]
    pub epsilon: f64,
    /// The share of a parameter that decays in a step of learning rate 1.
    #[config(default = 0.01)]
    pub weight_decay: f64,
}

/// Adam with decoupled weight decay.
///
/// `p ← (1 − lr·λ) p − lr · (m / (1 − β₁ᵗ)) / (√(v / (1 − β₂ᵗ)) + ε)`
///
/// # Reference
/// Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2.
#[derive(Clone, Debug)]
pub struct AdamW {
    config: AdamWConfig,
    gradient_scale: f64,
}

/// State of AdamW for a parameter.
#[derive(RecordState, Clone)]
pub struct AdamWState<const D: usize> {
    /// Steps taken.
    pub time: usize,
    /// The running mean of gradients.
    pub moment_1: Tensor<D>,
    /// The running mean of squared gradients.
    pub moment_2: Tensor<D>,
}

impl AdamWConfig {
    /// Returns an optimizer of a module's parameters.
    pub fn init(&self) -> ElementWiseOptimizer<AdamW> {
        ElementWiseOptimizer::from(self.build())
    }

    /// Returns an optimizer of tensors, for `ElementWiseOptimizer::from`, or for burn's `ModuleOptimizer`.
    pub fn build(&self) -> AdamW {
        AdamW {
            config: self.clone(),
            gradient_scale: 1.0,
        }
    }
}

impl AdamW {
    /// Returns the same optimizer with gradients multiplied by a number first, 1 unless this says otherwise: clipping
    /// without a pass of its own.
    pub fn with_gradient_scale(self, gradient_scale: f64) -> Self {
        Self { gradient_scale, ..self }
    }

    /// The numbers of an update; 1 is the first.
    pub(crate) fn numbers(&self, learning_rate: LearningRate, time: u64) -> AdamWStep {
        AdamWStep {
            learning_rate,
            beta_1: self.config.beta_1,
            beta_2: self.config.beta_2,
            epsilon: self.config.epsilon,
            weight_decay: self.config.weight_decay,
            gradient_scale: self.gradient_scale,
            time,
        }
    }

    fn fused_step<const D: usize>(
        &self,
        learning_rate: LearningRate,
        tensor: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<AdamWState<D>>,
    ) -> (Tensor<D>, AdamWState<D>) {
        let (time, [moment_1, moment_2]) = match state {
            None => (1, [tensor.zeros_like(), tensor.zeros_like()]),
            Some(state) => (state.time + 1, [state.moment_1, state.moment_2]),
        };
        let step = self.numbers(learning_rate, time as u64);
        let updated = adamw_elements([tensor, moment_1, moment_2], gradient, &step);
        let [parameter, moment_1, moment_2] = updated.unwrap_or_else(|error| panic!("{error}"));
        let state = AdamWState {
            time,
            moment_1,
            moment_2,
        };
        (parameter, state)
    }
}

impl ElementWise for AdamW {
    fn bucket_form(&self) -> Option<BucketForm<Self>> {
        (kernels() == Kernels::Fused).then_some(BucketForm {
            step: Self::numbers,
            moments: |state| [state.moment_1, state.moment_2],
            state: |updates, [moment_1, moment_2]| AdamWState {
                time: updates as usize,
                moment_1,
                moment_2,
            },
        })
    }
}

impl Optimizer for AdamW {
    type State<const D: usize> = AdamWState<D>;

    fn step<const D: usize>(
        &self,
        learning_rate: LearningRate,
        tensor: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<D>, Option<Self::State<D>>) {
        let is_main = matches!(tensor.dtype(), DType::F32 | DType::F64);
        if kernels() == Kernels::Fused && is_main {
            let (tensor, state) = self.fused_step(learning_rate, tensor, gradient, state);
            return (tensor, Some(state));
        }
        let AdamWConfig {
            beta_1,
            beta_2,
            epsilon,
            weight_decay,
        } = self.config;
        let gradient = scaled(gradient, self.gradient_scale);
        let fresh_1 = gradient.clone().mul_scalar(1.0 - beta_1);
        let fresh_2 = (gradient.clone() * gradient).mul_scalar(1.0 - beta_2);
        let (time, moment_1, moment_2) = match state {
            None => (1, fresh_1, fresh_2),
            Some(state) => (
                state.time + 1,
                state.moment_1.mul_scalar(beta_1) + fresh_1,
                state.moment_2.mul_scalar(beta_2) + fresh_2,
            ),
        };
        // Steps beyond 2^31 change no power of a number below 1.
        let exponent = i32::try_from(time).unwrap_or(i32::MAX);
        let correction_1 = 1.0 - beta_1.powi(exponent);
        let correction_2 = 1.0 - beta_2.powi(exponent);
        let denominator = moment_2
            .clone()
            .sqrt()
            .div_scalar(correction_2.sqrt())
            .add_scalar(epsilon);
        let update = moment_1
            .clone()
            .mul_scalar(learning_rate / correction_1)
            .div(denominator);
        let decayed = match weight_decay {
            0.0 => tensor,
            decay => tensor.mul_scalar(1.0 - learning_rate * decay),
        };
        let state = AdamWState {
            time,
            moment_1,
            moment_2,
        };
        (decayed - update, Some(state))
    }

    fn to_device<const D: usize>(mut state: Self::State<D>, device: &Device) -> Self::State<D> {
        state.moment_1 = state.moment_1.to_device(device);
        state.moment_2 = state.moment_2.to_device(device);
        state
    }
}

#[cfg(test)]
mod tests {
    use burn::nn::{Linear, LinearConfig};
    use burn::optim::{GradientsParams, ModuleOptimizer};
    use burn::tensor::Distribution;

    use super::*;

    #[test]
    fn steps_as_burns_own_adamw() {
        let device = Device::flex();
        let start: Linear = LinearConfig::new(5, 7).init(&device.clone().autodiff());
        let gradients: Vec<Tensor<2>> = (0..5)
            .map(|_| Tensor::random([5, 7], Distribution::Normal(0.0, 1.0), &device))
            .collect();
        let run = |mut step: Box<dyn FnMut(Linear, GradientsParams) -> Linear>| {
            gradients.iter().fold(start.clone(), |model, gradient| {
                let mut params = GradientsParams::new();
                params.register(model.weight.id, gradient.clone());
                step(model, params)
            })
        };
        let mut ours = ModuleOptimizer::from(AdamWConfig::new().with_weight_decay(0.1).build());
        let mut theirs = burn::optim::AdamWConfig::new()
            .with_epsilon(1e-8)
            .with_weight_decay(0.1)
            .init();
        let ours = run(Box::new(move |model, params| ours.step(1e-2, model, params)));
        let theirs = run(Box::new(move |model, params| theirs.step(1e-2, model, params)));
        // burn computes the bias correction 1 - 0.999 in f32, which is off by up to 6e-5, in updates of 1e-2.
        let difference = (ours.weight.val() - theirs.weight.val()).abs().max();
        let difference = difference.into_scalar::<f32>();
        assert!(difference < 5.0 * 1e-2 * 6e-5, "{difference}");
    }
}
