//! `layer_norm`: burn's own `LayerNorm`, with its parameters declared; `apply_layer_norm`, with its statistics in f32.
//!
//! A norm lies between tensor-parallel regions, so under sequence parallelism it sees this rank's tokens only, and
//! its gradients are summed over the tensor group at the end of the step. Called by models.

use burn::module::Param;
use burn::nn::{LayerNorm, LayerNormConfig};
use burn::tensor::{Tensor, backend::Backend};

use crate::context::ParallelContext;
use crate::precision::{assert_dtype, is_half, narrow, widen};

/// Returns burn's layer norm with its weight and bias declared under the context's scope.
pub fn layer_norm<B: Backend>(config: &LayerNormConfig, device: &B::Device, context: &ParallelContext) -> LayerNorm<B> {
    from_layer_norm(config.init(device), context)
}

/// Returns an existing layer norm, which every rank holds in full, with its weight and bias declared under the context's
/// scope.
pub fn from_layer_norm<B: Backend>(norm: LayerNorm<B>, context: &ParallelContext) -> LayerNorm<B> {
    context.declare_token_wise("weight", &norm.gamma);
    if let Some(beta) = &norm.beta {
        context.declare_token_wise("bias", beta);
    }
    norm
}

/// Applies a layer norm: burn's own where input and parameters are f32 or f64.
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
pub fn apply_layer_norm<B: Backend, const D: usize>(norm: &LayerNorm<B>, input: Tensor<B, D>) -> Tensor<B, D> {
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
