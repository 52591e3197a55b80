//! [`Norm`]: the norm of a family, of either kind.

use burn::module::Module;
use burn::tensor::{Tensor, backend::Backend};
use burn_megatron::context::ParameterScope;
use burn_megatron::tensor_parallel::{LayerNorm, LayerNormConfig, RmsNorm, RmsNormConfig};
use cubecl_kernels::KernelBackend;
use cubecl_kernels::norm::Addends;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NormType {
    /// With mean and bias.
    LayerNorm,
    /// With neither.
    RmsNorm,
}

/// A norm between tensor-parallel regions.
#[derive(Module, Debug)]
pub enum Norm<B: Backend> {
    /// With mean and bias.
    Layer(LayerNorm<B>),
    /// With neither.
    Rms(RmsNorm<B>),
}

impl NormType {
    /// Returns a norm of tokens of `d_model`, declared under the context's scope.
    pub fn init<B: Backend>(self, d_model: usize, epsilon: f64, device: &B::Device, scope: &ParameterScope) -> Norm<B> {
        match self {
            Self::LayerNorm => Norm::Layer(LayerNormConfig::new(d_model).with_epsilon(epsilon).init(device, scope)),
            Self::RmsNorm => Norm::Rms(RmsNormConfig::new(d_model).with_epsilon(epsilon).init(device, scope)),
        }
    }

    pub fn num_parameters(self, d_model: usize) -> usize {
        match self {
            Self::LayerNorm => 2 * d_model,
            Self::RmsNorm => d_model,
        }
    }
}

impl<B: KernelBackend> Norm<B> {
    /// Applies the norm: see [`LayerNorm::forward`].
    pub fn forward<const D: usize>(&self, input: Tensor<B, D>) -> Tensor<B, D> {
        match self {
            Self::Layer(norm) => norm.forward(input),
            Self::Rms(norm) => norm.forward(input),
        }
    }

    /// Applies the norm to a residual stream: see [`LayerNorm::forward_of_stream`].
    pub fn forward_of_stream(&self, stream: Tensor<B, 2>) -> [Tensor<B, 2>; 2] {
        match self {
            Self::Layer(norm) => norm.forward_of_stream(stream),
            Self::Rms(norm) => norm.forward_of_stream(stream),
        }
    }

    /// Adds to a residual stream and applies the norm to the sum: see [`LayerNorm::forward_of_sum`].
    pub fn forward_of_sum(&self, addends: Addends<B>) -> [Tensor<B, 2>; 2] {
        match self {
            Self::Layer(norm) => norm.forward_of_sum(addends),
            Self::Rms(norm) => norm.forward_of_sum(addends),
        }
    }
}
