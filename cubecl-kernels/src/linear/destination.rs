//! Weights whose gradient is added straight to its sums, by the library that computes it, and so is neither rounded to the
//! weight's type nor written and read again.
//!
//! burn's graph knows tensors only. So what receives a weight's gradient [leads](lead) the weight's node to a sink; a product
//! with this weight finds the sink there, gives it the factors of the gradient in the backward pass, and gives the graph a zero
//! in the gradient's place.

use std::any::Any;
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use burn::backend::Autodiff;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::{Tensor, backend::Backend, ops::FloatTensor};

use super::{LinearGradients, LinearWanted, WeightOrder};
use crate::KernelBackend;
use crate::precision::zeros;

/// Where the gradient of one weight is added up.
pub trait WeightSink<B: Backend>: Debug + Send + Sync {
    /// Adds `a · b`, the weight's gradient as the weight lies.
    fn add_product(&self, a: Tensor<B, 2>, b: Tensor<B, 2>);
}

/// A weight that is led to a sink, for as long as this is kept.
#[derive(Debug)]
pub struct Lead(NodeId);

type Sinks = HashMap<NodeId, Box<dyn Any + Send>>;

/// By the node of a weight, an `Arc<dyn WeightSink<B>>`.
static SINKS: LazyLock<Mutex<Sinks>> = LazyLock::new(Mutex::default);

fn sinks() -> MutexGuard<'static, Sinks> {
    SINKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Leads products' gradients of this weight to a sink. Its node then receives zeros that have one element, and the sums of these with
/// the gradients of what else the weight is used for.
pub fn lead<B: Backend, C: CheckpointStrategy>(
    weight: &FloatTensor<Autodiff<B, C>>,
    sink: Arc<dyn WeightSink<B>>,
) -> Lead {
    let node = weight.node.id;
    sinks().insert(node, Box::new(sink));
    Lead(node)
}

impl Drop for Lead {
    fn drop(&mut self) {
        let sink = sinks().remove(&self.0);
        // Behind the lock.
        drop(sink);
    }
}

/// The sink that a weight is led to.
pub(super) fn sink_of<B: Backend, C: CheckpointStrategy>(
    weight: &FloatTensor<Autodiff<B, C>>,
) -> Option<Arc<dyn WeightSink<B>>> {
    sinks()
        .get(&weight.node.id)?
        .downcast_ref::<Arc<dyn WeightSink<B>>>()
        .cloned()
}

/// As [`KernelBackend::affine_backward`]; the weight's gradient goes to its sink, if it has one.
pub fn gradients<B: KernelBackend>(
    input: Tensor<B, 2>,
    weight: Tensor<B, 2>,
    order: WeightOrder,
    gradient: Tensor<B, 2>,
    wanted: LinearWanted,
    sink: Option<Arc<dyn WeightSink<B>>>,
) -> LinearGradients<B> {
    let is_empty = input.dims().contains(&0) || gradient.dims().contains(&0);
    let Some(sink) = sink.filter(|_| wanted.weight && !is_empty) else {
        return B::affine_backward(input, weight, order, gradient, wanted);
    };
    let others = LinearWanted {
        weight: false,
        ..wanted
    };
    let gradients = B::affine_backward(input.clone(), weight, order, gradient.clone(), others);
    let nothing = zeros([1, 1], &gradient.device(), gradient.dtype());
    match order {
        WeightOrder::InputFirst => sink.add_product(input.transpose(), gradient),
        WeightOrder::OutputFirst => sink.add_product(gradient.transpose(), input),
    }
    LinearGradients {
        weight: Some(nothing),
        ..gradients
    }
}
