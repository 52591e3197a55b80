//! A gradient sink that multiplies what it is given, for ranks whose shares of a batch are not equal.

use std::sync::Arc;

use burn::backend::DispatchTensor;
use burn::tensor::Tensor;

use crate::autodiff::GradientSink;

/// Returns `sink`, or one before it that multiplies every gradient by `weight`.
pub(in crate::data_parallel) fn weighted_sink(sink: Arc<dyn GradientSink>, weight: f64) -> Arc<dyn GradientSink> {
    if weight == 1.0 {
        return sink;
    }
    Arc::new(Weighted { sink, weight })
}

/// Takes no products: those would be added up without their weight.
#[derive(Debug)]
struct Weighted {
    sink: Arc<dyn GradientSink>,
    weight: f64,
}

impl GradientSink for Weighted {
    fn receive(&self, index: usize, gradient: DispatchTensor) {
        let weighted = Tensor::<1>::from_dispatch(gradient) * self.weight;
        self.sink.receive(index, weighted.into_dispatch());
    }
}
