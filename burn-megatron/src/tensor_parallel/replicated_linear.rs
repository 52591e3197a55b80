//! `ReplicatedLinear`: a linear layer between tensor-parallel regions, which every tensor-parallel rank holds in full.

use burn::config::Config;
use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};

use super::linear_init;
use super::product::affine;
use crate::context::{ParameterScope, ParameterSpec};
use crate::parameters::{Distribution, ParameterInit, Placement};
use crate::precision::assert_dtype;

/// Configuration of [`ReplicatedLinear`].
#[derive(Config, Debug)]
pub struct ReplicatedLinearConfig {
    /// The size of each input.
    pub d_input: usize,
    /// The size of each output.
    pub d_output: usize,
    /// Whether the layer sees this rank's tokens only under sequence parallelism, so that its gradients are summed over
    /// the tensor-parallel group; otherwise every rank sees the same inputs.
    #[config(default = true)]
    pub is_token_wise: bool,
    /// How the weight starts; burn's default for `Linear` if not given.
    pub weight_init: Option<ParameterInit>,
    /// How the bias starts; as the weight if not given.
    pub bias_init: Option<ParameterInit>,
}

/// `x W + b`, the same on every tensor-parallel rank: a layer that is too small, or sees too few inputs, to be shared
/// out, such as those of a classifier.
#[derive(Module, Debug)]
pub struct ReplicatedLinear {
    /// `[d_input, d_output]`.
    pub weight: Param<Tensor<2>>,
    /// `[d_output]`.
    pub bias: Param<Tensor<1>>,
}

impl ReplicatedLinearConfig {
    /// Returns a new layer, initialised by its global name.
    pub fn init(&self, device: &Device, scope: &ParameterScope) -> ReplicatedLinear {
        let distribution = if self.is_token_wise {
            scope.token_wise_distribution()
        } else {
            Distribution::Replicated
        };
        let spec = |shape: &[usize], init: &Option<ParameterInit>| ParameterSpec {
            placement: Placement::whole(shape),
            distribution,
            init: linear_init(init, self.d_input),
        };
        let shape = [self.d_input, self.d_output];
        let bias_init = self.bias_init.or(self.weight_init);
        ReplicatedLinear {
            weight: scope.parameter("weight", shape, &spec(&shape, &self.weight_init), device),
            bias: scope.parameter("bias", [self.d_output], &spec(&[self.d_output], &bias_init), device),
        }
    }
}

impl ReplicatedLinear {
    /// Applies the layer.
    ///
    /// # Shapes
    /// - `input`: `[rows, d_input]`
    /// - output: `[rows, d_output]`
    ///
    /// # Panics
    /// When the input is not of the parameters' type.
    pub fn forward(&self, input: Tensor<2>) -> Tensor<2> {
        let weight = self.weight.val();
        assert_dtype("replicated linear", "the input", input.dtype(), weight.dtype());
        affine(input, weight, Some(self.bias.val()))
    }
}
