//! `AdamW` with hyperparameters in f64: what burn's own does in f32, so that training in f64 is f64 throughout.
//!
//! A burn `SimpleOptimizer`: works in burn's `OptimizerAdaptor` on any module.

use burn::config::Config;
use burn::module::AutodiffModule;
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{LearningRate, SimpleOptimizer};
use burn::record::Record;
use burn::tensor::{
    DType, Tensor,
    backend::{AutodiffBackend, Backend},
    ops::Device,
};
use cubecl_kernels::adamw::{AdamWStep, adamw_elements};
use cubecl_kernels::{KernelBackend, Kernels};

use super::{ElementWise, scaled};
use crate::data_parallel::BucketForm;

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
    kernels: Kernels,
    gradient_scale: f64,
}

/// What AdamW keeps of a parameter.
#[derive(Record, Clone)]
pub struct AdamWState<B: Backend, const D: usize> {
    /// Steps taken.
    pub time: usize,
    /// The running mean of gradients.
    pub moment_1: Tensor<B, D>,
    /// The running mean of squared gradients.
    pub moment_2: Tensor<B, D>,
}

impl AdamWConfig {
    /// Returns an optimizer of a module's parameters.
    pub fn init<B, M>(&self) -> OptimizerAdaptor<AdamW, M, B>
    where
        B: AutodiffBackend<InnerBackend: KernelBackend>,
        M: AutodiffModule<B>,
    {
        OptimizerAdaptor::from(self.build())
    }

    /// Returns an optimizer of tensors, of which `OptimizerAdaptor::from` makes one of a module's parameters.
    pub fn build(&self) -> AdamW {
        AdamW {
            config: self.clone(),
            kernels: Kernels::default(),
            gradient_scale: 1.0,
        }
    }
}

impl AdamW {
    /// Returns the same optimizer with the update as one fused operation, which is the default, or as several of
    /// burn's.
    pub fn with_kernels(self, kernels: Kernels) -> Self {
        Self { kernels, ..self }
    }

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

    fn fused_step<B: KernelBackend, const D: usize>(
        &self,
        learning_rate: LearningRate,
        tensor: Tensor<B, D>,
        gradient: Tensor<B, D>,
        state: Option<AdamWState<B, D>>,
    ) -> (Tensor<B, D>, AdamWState<B, D>) {
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

impl<B: KernelBackend> ElementWise<B> for AdamW {
    fn bucket_form(&self) -> Option<BucketForm<B, Self>> {
        (self.kernels == Kernels::Fused).then_some(BucketForm {
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

impl<B: KernelBackend> SimpleOptimizer<B> for AdamW {
    type State<const D: usize> = AdamWState<B, D>;

    fn step<const D: usize>(
        &self,
        learning_rate: LearningRate,
        tensor: Tensor<B, D>,
        gradient: Tensor<B, D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<B, D>, Option<Self::State<D>>) {
        let is_main = matches!(tensor.dtype(), DType::F32 | DType::F64);
        if self.kernels == Kernels::Fused && is_main {
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

    fn to_device<const D: usize>(mut state: Self::State<D>, device: &Device<B>) -> Self::State<D> {
        state.moment_1 = state.moment_1.to_device(device);
        state.moment_2 = state.moment_2.to_device(device);
        state
    }
}

#[cfg(test)]
mod tests {
    use burn::backend::Autodiff;
    use burn::nn::{Linear, LinearConfig};
    use burn::optim::{GradientsParams, Optimizer};
    use burn::tensor::Distribution;
    use burn_flex::Flex;

    use super::*;

    type B = Autodiff<Flex>;

    #[test]
    fn steps_as_burns_own_adamw() {
        let device = Default::default();
        let start: Linear<B> = LinearConfig::new(5, 7).init(&device);
        // A clone of a lazy parameter would draw other values.
        start.weight.val();
        let gradients: Vec<Tensor<Flex, 2>> = (0..5)
            .map(|_| Tensor::random([5, 7], Distribution::Normal(0.0, 1.0), &device))
            .collect();
        let run = |mut step: Box<dyn FnMut(Linear<B>, GradientsParams) -> Linear<B>>| {
            gradients.iter().fold(start.clone(), |model, gradient| {
                let mut params = GradientsParams::new();
                params.register(model.weight.id, gradient.clone());
                step(model, params)
            })
        };
        let mut ours = AdamWConfig::new().with_weight_decay(0.1).init();
        let mut theirs = burn::optim::AdamWConfig::new()
            .with_epsilon(1e-8)
            .with_weight_decay(0.1)
            .init();
        let ours = run(Box::new(move |model, params| ours.step(1e-2, model, params)));
        let theirs = run(Box::new(move |model, params| theirs.step(1e-2, model, params)));
        // burn computes the bias correction 1 - 0.999 in f32, which is off by up to 6e-5, in updates of 1e-2.
        let difference = (ours.weight.val() - theirs.weight.val()).abs().max();
        let difference = difference.into_scalar();
        assert!(difference < 5.0 * 1e-2 * 6e-5, "{difference}");
    }
}
