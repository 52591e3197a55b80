//! The feed-forward part of a block.

use burn::config::Config;
use burn::module::Module;
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};
use burn_megatron::context::ParameterScope;
use burn_megatron::parameters::ParameterInit;
use burn_megatron::random::StepCoordinates;
use burn_megatron::tensor_parallel::{
    ColumnParallelLinear, ColumnParallelLinearConfig, RowParallelLinear, RowParallelLinearConfig,
};
use burn_megatron::topology::TopologyError;
use cubecl_kernels::bias_gelu::bias_gelu;
use cubecl_kernels::swiglu::swiglu;
use serde::{Deserialize, Serialize};

use super::{WithoutBias, gelu_erf, gelu_tanh};

#[derive(Config, Debug)]
pub struct MlpConfig {
    pub d_model: usize,
    pub d_hidden: usize,
    /// How the first layer starts.
    pub input_init: ParameterInit,
    /// How the second layer starts.
    pub output_init: ParameterInit,
    /// The activation between the layers.
    #[config(default = "MlpActivation::Gelu")]
    pub activation: MlpActivation,
    #[config(default = true)]
    pub bias: bool,
}

/// The activation between an MLP's layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MlpActivation {
    /// GELU by tanh.
    Gelu,
    Relu,
    /// GELU by the error function.
    GeluErf,
    /// `silu(gate) ∘ up`: the first layer is two, `[gate | up]`.
    SwiGlu,
    /// `gelu(gate) ∘ up`, GELU by tanh: the first layer is two, `[gate | up]`.
    GeGlu,
}

impl MlpActivation {
    /// The name that Hugging Face's files have for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gelu => "gelu_new",
            Self::Relu => "relu",
            Self::GeluErf => "gelu",
            Self::SwiGlu => "silu, gated",
            Self::GeGlu => "gated-gelu",
        }
    }

    /// How many matrices the first layer is.
    pub fn num_inputs(self) -> usize {
        match self {
            Self::Gelu | Self::GeluErf | Self::Relu => 1,
            Self::SwiGlu | Self::GeGlu => 2,
        }
    }

    /// Returns whether the first layer is two matrices, of which one gates the other.
    pub fn is_gated(self) -> bool {
        self.num_inputs() == 2
    }

    /// Applies an activation of one matrix to a layer outside the MLPs, `[tokens, features]`.
    ///
    /// # Panics
    /// When it is one of two.
    pub fn of_one(self, input: Tensor<2>) -> Tensor<2> {
        match self {
            Self::Gelu => gelu_tanh(input),
            Self::GeluErf => gelu_erf(input),
            Self::Relu => relu(input),
            Self::SwiGlu | Self::GeGlu => panic!("{self:?} is of two matrices, and this layer has one"),
        }
    }
}

/// The names of an MLP's layers in the MLP's scope.
#[derive(Clone, Copy, Debug)]
pub struct MlpNames {
    /// The first layer.
    pub input: &'static str,
    /// The second layer.
    pub output: &'static str,
}

/// `GELU(X W_1 + b_1) W_2 + b_2`, or `(silu(X W_g) ∘ (X W_u)) W_2`, or that with GELU, the hidden features shared out
/// over the tensor-parallel group.
///
/// # Reference
/// Shazeer 2020, arXiv:2002.05202, section 2.
#[derive(Module, Debug)]
pub struct Mlp {
    /// `d_model` to `d_hidden`, or to twice that.
    pub input: ColumnParallelLinear,
    /// `d_hidden` to `d_model`.
    pub output: RowParallelLinear,
    #[module(skip)]
    activation: MlpActivation,
}

impl MlpConfig {
    /// Returns the MLP; its parameters are named by `names` in the context's scope.
    ///
    /// # Errors
    /// When the tensor-parallel size does not divide `d_hidden`.
    pub fn init(&self, names: &MlpNames, device: &Device, scope: &ParameterScope) -> Result<Mlp, TopologyError> {
        let num_inputs = self.activation.num_inputs();
        Ok(Mlp {
            input: ColumnParallelLinearConfig::new(self.d_model, num_inputs * self.d_hidden)
                .with_fused(num_inputs)
                .with_bias(self.bias)
                .with_weight_init(Some(self.input_init))
                .with_bias_init(Some(ParameterInit::Zeros))
                .init(device, &scope.scope(names.input))?,
            output: RowParallelLinearConfig::new(self.d_hidden, self.d_model)
                .with_bias(self.bias)
                .with_weight_init(Some(self.output_init))
                .with_bias_init(Some(ParameterInit::Zeros))
                .init(device, &scope.scope(names.output))?,
            activation: self.activation,
        })
    }
}

impl Mlp {
    /// Returns the same MLP for whole activations on every tensor-parallel rank, without sequence parallelism. For
    /// inference: parameters stay declared as they are.
    pub fn with_whole_tokens(self) -> Self {
        Self {
            input: self.input.with_whole_tokens(),
            output: self.output.with_whole_tokens(),
            ..self
        }
    }

    /// Applies the MLP to each token; those of a step, if it is given: adapters with dropout must know it.
    ///
    /// # Shapes
    /// - `input`: `[tokens, d_model]`, the same on every tensor-parallel rank; this rank's rows under sequence
    ///   parallelism
    /// - output: as `input`
    ///
    /// # Communication
    /// That of a column-parallel and of a row-parallel layer.
    ///
    /// # Panics
    /// When a collective fails.
    pub fn forward(&self, input: Tensor<2>, step: Option<&StepCoordinates>) -> Tensor<2> {
        self.output.forward_at(self.hidden(input, step), step)
    }

    /// Applies the MLP for a sum: the last bias is returned separately and is yet to be added.
    pub(crate) fn forward_for_sum(&self, input: Tensor<2>, step: Option<&StepCoordinates>) -> WithoutBias {
        self.output.forward_without_bias_at(self.hidden(input, step), step)
    }

    /// `[tokens, d_hidden / tp]`: this rank's hidden features.
    pub(super) fn hidden(&self, input: Tensor<2>, step: Option<&StepCoordinates>) -> Tensor<2> {
        match self.activation {
            MlpActivation::SwiGlu => {
                swiglu(self.input.forward_at(input, step)).unwrap_or_else(|error| panic!("{error}"))
            }
            MlpActivation::GeGlu => {
                let [gate, up] = halves(self.input.forward_at(input, step));
                gelu_tanh(gate) * up
            }
            MlpActivation::GeluErf => gelu_erf(self.input.forward_at(input, step)),
            MlpActivation::Relu => relu(self.input.forward_at(input, step)),
            MlpActivation::Gelu => self.gelu_of_sum(input, step),
        }
    }

    /// GELU of the first layer, with its bias added in the same operation.
    fn gelu_of_sum(&self, input: Tensor<2>, step: Option<&StepCoordinates>) -> Tensor<2> {
        match self.input.forward_without_bias_at(input, step) {
            (hidden, Some(bias)) => bias_gelu(hidden, bias).unwrap_or_else(|error| panic!("{error}")),
            (hidden, None) => gelu_tanh(hidden),
        }
    }
}

/// `[tokens, 2 * features]` to `[tokens, features]` twice.
fn halves(both: Tensor<2>) -> [Tensor<2>; 2] {
    let half = both.dims()[1] / 2;
    [0, half].map(|first| both.clone().narrow(1, first, half))
}

#[cfg(test)]
mod tests {
    use burn::module::Module;
    use burn::tensor::{Distribution, activation};
    use burn_megatron::context::ParallelContext;

    use cubecl_kernels::{Kernels, set_kernels};

    use super::*;

    #[test]
    fn activations_are_their_formulas() {
        const NAMES: MlpNames = MlpNames {
            input: "first",
            output: "second",
        };
        let init = ParameterInit::Normal { deviation: 0.5 };
        let input = Tensor::<2>::random([7, 5], Distribution::Normal(0.0, 1.0), &Device::flex());
        for kernels in [Kernels::Plain, Kernels::Fused] {
            set_kernels(kernels);
            for activation in [
                MlpActivation::Gelu,
                MlpActivation::GeluErf,
                MlpActivation::Relu,
                MlpActivation::SwiGlu,
                MlpActivation::GeGlu,
            ] {
                let context = ParallelContext::single(3);
                let config = MlpConfig::new(5, 6, init, init).with_activation(activation);
                let mlp: Mlp = config.init(&NAMES, &Device::flex(), &context.root()).expect("one rank");
                let count = activation.num_inputs() * (5 * 6 + 6) + 6 * 5 + 5;
                assert_eq!(mlp.num_params(), count);
                let first = input.clone().matmul(mlp.input.weight.val());
                let expected = match activation {
                    MlpActivation::Gelu => gelu_tanh(first),
                    MlpActivation::GeluErf => activation::gelu(first),
                    MlpActivation::Relu => activation::relu(first),
                    MlpActivation::SwiGlu => {
                        let [gate, up] = halves(first);
                        activation::silu(gate) * up
                    }
                    MlpActivation::GeGlu => {
                        let [gate, up] = halves(first);
                        gelu_tanh(gate) * up
                    }
                };
                let expected = expected.matmul(mlp.output.weight.val());
                let difference = (mlp.forward(input.clone(), None) - expected)
                    .abs()
                    .max()
                    .into_scalar::<f32>();
                assert!(difference < 1e-5, "{activation:?}, {kernels:?}: {difference}");
            }
        }
    }
}
