//! [`GradientSink`]: what receives a parameter's gradient in the backward pass.

use std::sync::Arc;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use cubecl_kernels::linear::destination::WeightSink;

/// What receives a parameter's gradient in the backward pass.
pub trait GradientSink<B: Backend>: std::fmt::Debug + Send + Sync {
    /// Takes the whole gradient of parameter number `index` of the micro-batch at hand.
    fn receive(&self, index: usize, gradient: FloatTensor<B>);

    /// What adds up products that are the gradient of parameter number `index`, if anything does. Behind them,
    /// [`receive`](Self::receive) is given what of the gradient is no such product: a zero of one element where that is
    /// all.
    fn product_sink(self: Arc<Self>, _index: usize) -> Option<Arc<dyn WeightSink<B>>> {
        None
    }
}
