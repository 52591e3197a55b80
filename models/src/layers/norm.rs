//! [`Norm`]: the norm of a family, of either kind.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use burn_megatron::context::ParameterScope;
use burn_megatron::tensor_parallel::{LayerNorm, LayerNormConfig, RmsNorm, RmsNormConfig};
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
pub enum Norm {
    /// With mean and bias.
    Layer(LayerNorm),
    /// With neither.
    Rms(RmsNorm),
}

impl NormType {
    /// Returns a norm of tokens of `d_model`, declared under the context's scope.
    pub fn init(self, d_model: usize, epsilon: f64, device: &Device, scope: &ParameterScope) -> Norm {
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

impl Norm {
    /// Applies the norm: see [`LayerNorm::forward`].
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        match self {
            Self::Layer(norm) => norm.forward(input),
            Self::Rms(norm) => norm.forward(input),
        }
    }

    /// Applies the norm to a residual stream: see [`LayerNorm::forward_of_stream`].
    pub fn forward_of_stream(&self, stream: Tensor<2>) -> [Tensor<2>; 2] {
        match self {
            Self::Layer(norm) => norm.forward_of_stream(stream),
            Self::Rms(norm) => norm.forward_of_stream(stream),
        }
    }

    /// Adds to a residual stream and applies the norm to the sum: see [`LayerNorm::forward_of_sum`].
    pub fn forward_of_sum(&self, addends: Addends) -> [Tensor<2>; 2] {
        match self {
            Self::Layer(norm) => norm.forward_of_sum(addends),
            Self::Rms(norm) => norm.forward_of_sum(addends),
        }
    }
}
