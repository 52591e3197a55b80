//! A gradient sink that multiplies what it is given, for ranks whose shares of a batch are not equal.

use std::sync::Arc;

use burn::tensor::{backend::Backend, ops::FloatTensor};
use cubecl_kernels::tape::{float, primitive};

use crate::autodiff::GradientSink;

/// Returns `sink`, or one before it that multiplies every gradient by `weight`.
pub(in crate::data_parallel) fn weighted_sink<B: Backend>(
    sink: Arc<dyn GradientSink<B>>,
    weight: f64,
) -> Arc<dyn GradientSink<B>> {
    if weight == 1.0 {
        return sink;
    }
    Arc::new(Weighted { sink, weight })
}

/// Takes no products: those would be added up without their weight.
#[derive(Debug)]
struct Weighted<B: Backend> {
    sink: Arc<dyn GradientSink<B>>,
    weight: f64,
}

impl<B: Backend> GradientSink<B> for Weighted<B> {
    fn receive(&self, index: usize, gradient: FloatTensor<B>) {
        self.sink
            .receive(index, primitive(float::<B, 1>(gradient) * self.weight));
    }
}
