//! [`TrainingBackend`]: what this crate adds to burn's graphs, to take gradients out of them and to put gradients in.

mod ends;
mod gradient_sink;
mod hook;

use std::sync::Arc;

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::FloatTensor;
use cubecl_kernels::linear::retained::WeightSource;

use crate::collectives::CollectiveBackend;

pub use ends::GradientSlot;
pub use gradient_sink::GradientSink;

/// A backend that models are trained on: [`Autodiff`] of any [`CollectiveBackend`].
pub trait TrainingBackend: AutodiffBackend<InnerBackend: CollectiveBackend> + CollectiveBackend {
    /// Returns anchors for `count` parameters, each deeper than the one before. Made once per module.
    fn anchors(count: usize, device: &Self::Device) -> Vec<FloatTensor<Self>>;

    /// Whether a gradient of the tensor is computed, be it a leaf or the output of an operation.
    fn is_tracked(tensor: &FloatTensor<Self>) -> bool;

    /// Returns the tensor with its gradient redirected to `sink`. Where it is a matrix that has a source, products with
    /// it fetch it for their backward pass, and the graph does not keep it.
    fn hook(
        tensor: FloatTensor<Self>,
        anchor: &FloatTensor<Self>,
        sink: Arc<dyn GradientSink<Self::InnerBackend>>,
        index: usize,
        source: Option<Arc<dyn WeightSource<Self::InnerBackend>>>,
    ) -> FloatTensor<Self>;

    /// Returns the start of a graph: `input`, whose gradient goes to `slot`.
    fn enter(input: FloatTensor<Self::InnerBackend>, slot: &GradientSlot<Self::InnerBackend>) -> FloatTensor<Self>;

    /// Returns the end of a graph: one element, whose backward pass begins with the gradient in `slot` as that of
    /// `output`. It does not keep `output`'s elements.
    fn leave(output: FloatTensor<Self>, slot: &GradientSlot<Self::InnerBackend>) -> FloatTensor<Self>;
}

impl<B: CollectiveBackend, C: CheckpointStrategy> TrainingBackend for Autodiff<B, C> {
    fn anchors(count: usize, device: &Self::Device) -> Vec<FloatTensor<Self>> {
        hook::anchors::<B, C>(count, device)
    }

    fn is_tracked(tensor: &FloatTensor<Self>) -> bool {
        tensor.is_tracked()
    }

    fn hook(
        tensor: FloatTensor<Self>,
        anchor: &FloatTensor<Self>,
        sink: Arc<dyn GradientSink<B>>,
        index: usize,
        source: Option<Arc<dyn WeightSource<B>>>,
    ) -> FloatTensor<Self> {
        hook::hook::<B, C>(tensor, anchor, sink, index, source)
    }

    fn enter(input: FloatTensor<B>, slot: &GradientSlot<B>) -> FloatTensor<Self> {
        ends::enter::<B, C>(input, slot)
    }

    fn leave(output: FloatTensor<Self>, slot: &GradientSlot<B>) -> FloatTensor<Self> {
        ends::leave::<B, C>(output, slot)
    }
}
