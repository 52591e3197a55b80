//! [`GradientSink`]: a receiver of parameters' gradients in the backward pass.

use std::sync::Arc;

use burn::backend::DispatchTensor;
use cubecl_kernels::accumulate::vectors::VectorSink;
use cubecl_kernels::linear::destination::WeightSink;

/// Receiver of parameters' gradients in the backward pass.
pub trait GradientSink: std::fmt::Debug + Send + Sync {
    /// Takes the whole gradient of parameter number `index` of the micro-batch at hand.
    fn receive(&self, index: usize, gradient: DispatchTensor);

    /// Returns what adds up the matmuls that make up the gradient of parameter number `index`, if anything does. After
    /// them, [`receive`](Self::receive) is given the rest of the gradient: a zero of one element if there is none.
    fn product_sink(self: Arc<Self>, _index: usize) -> Option<Arc<dyn WeightSink>> {
        None
    }

    /// Returns what adds up the gradient of parameter number `index`, a vector, in the kernels that compute it, if
    /// anything does. After that, [`receive`](Self::receive) is given the rest of the gradient, as of matmuls.
    fn vector_sink(self: Arc<Self>, _index: usize) -> Option<Arc<dyn VectorSink>> {
        None
    }
}
