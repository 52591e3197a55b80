//! `layer_norm`: burn's own `LayerNorm`, with its parameters declared.
//!
//! A norm lies between tensor-parallel regions, so under sequence parallelism it sees this rank's tokens only, and
//! its gradients are summed over the tensor group at the end of the step. Called by models.

use burn::nn::{LayerNorm, LayerNormConfig};
use burn::tensor::backend::Backend;

use crate::context::ParallelContext;

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
