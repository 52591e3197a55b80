//! `LayerNorm`, whose parameters are declared and which can take the sum before it in; `from_layer_norm` and
//! `apply_layer_norm` for burn's own.
//!
//! A norm lies between tensor-parallel regions, so under sequence parallelism it sees this rank's tokens only, and
//! its gradients are summed over the tensor group at the end of the step. Called by models.

use burn::module::{Module, Param};
use burn::nn::{self, LayerNormConfig};
use burn::tensor::{Tensor, backend::Backend};
use cubecl_kernels::norm::{self, Addends, NormKind, NormParameters};
use cubecl_kernels::{KernelBackend, Kernels};

use super::checked;
use crate::context::ParallelContext;
use crate::precision::{assert_dtype, is_half, narrow, widen};

/// `(x − mean) / √(var + ε) · γ + β` over the last dimension.
///
/// # Reference
/// Ba et al. 2016, arXiv:1607.06450.
#[derive(Module, Debug)]
pub struct LayerNorm<B: Backend> {
    /// burn's norm, which holds the parameters: `[d_model]` each.
    pub norm: nn::LayerNorm<B>,
    epsilon: f64,
    #[module(skip)]
    kernels: Kernels,
}

/// Returns a layer norm with its weight and bias declared under the context's scope.
pub fn layer_norm<B: Backend>(config: &LayerNormConfig, device: &B::Device, context: &ParallelContext) -> LayerNorm<B> {
    LayerNorm {
        norm: from_layer_norm(config.init(device), context),
        epsilon: config.epsilon,
        kernels: context.kernels(),
    }
}

/// Returns an existing layer norm, which every rank holds in full, with its weight and bias declared under the context's
/// scope.
pub fn from_layer_norm<B: Backend>(norm: nn::LayerNorm<B>, context: &ParallelContext) -> nn::LayerNorm<B> {
    context.declare_token_wise("weight", &norm.gamma);
    if let Some(beta) = &norm.beta {
        context.declare_token_wise("bias", beta);
    }
    norm
}

impl<B: KernelBackend> LayerNorm<B> {
    /// Applies the norm.
    ///
    /// # Shapes
    /// - `input`: `[..., d_model]`
    /// - output: as `input`
    ///
    /// # Panics
    /// When the input is not of the parameters' shape and type.
    pub fn forward<const D: usize>(&self, input: Tensor<B, D>) -> Tensor<B, D> {
        match self.kernels {
            Kernels::Plain => apply_layer_norm(&self.norm, input),
            Kernels::Fused => {
                let NormParameters { weight, bias, .. } = self.parameters();
                checked(norm::layer_norm(input, weight, bias, self.epsilon))
            }
        }
    }

    /// Adds to a residual stream and applies the norm to the sum, in one operation; returns the sum and its norm.
    ///
    /// # Shapes
    /// - addends and outputs: `[tokens, d_model]`
    ///
    /// # Panics
    /// When the addends are not of the parameters' shape and type.
    pub fn forward_of_sum(&self, addends: Addends<B>) -> [Tensor<B, 2>; 2] {
        checked(norm::add_norm(addends, self.parameters()))
    }

    fn parameters(&self) -> NormParameters<B> {
        NormParameters {
            kind: NormKind::Layer,
            weight: self.norm.gamma.val(),
            bias: self.norm.beta.as_ref().map(|beta| beta.val()),
            epsilon: self.epsilon,
        }
    }
}

/// Applies burn's layer norm: its own way where input and parameters are f32 or f64.
///
/// In 16 bits, burn rounds means and variances to 16 bits when it differentiates, and the squares of f16 overflow; here
/// input and parameters are widened to f32 first, and the output narrowed.
///
/// # Shapes
/// - `input`: `[..., d_model]`
/// - output: as `input`
///
/// # Panics
/// When the input is not of the parameters' type.
pub fn apply_layer_norm<B: Backend, const D: usize>(norm: &nn::LayerNorm<B>, input: Tensor<B, D>) -> Tensor<B, D> {
    let dtype = norm.gamma.val().dtype();
    assert_dtype("layer norm", "the input", input.dtype(), dtype);
    if !is_half(dtype) {
        return norm.forward(input);
    }
    // burn keeps the epsilon to itself, so the norm is copied for it.
    let wide = |param: &Param<Tensor<B, 1>>| Param::initialized(param.id, widen(param.val()));
    let mut widened = norm.clone();
    widened.gamma = wide(&norm.gamma);
    widened.beta = norm.beta.as_ref().map(wide);
    narrow(widened.forward(widen(input)), dtype)
}
