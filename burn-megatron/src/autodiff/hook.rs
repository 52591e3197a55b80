//! Hooks: catch a parameter's gradient in the middle of a backward pass.
//!
//! burn runs a backward pass by depth, deepest first, and an identity on a leaf has depth 1, so a plain hook on a
//! parameter would fire after everything else. Here the identity has two parents: a leaf, and an *anchor*, an untracked
//! node of raised depth. The hooked parameter number `i` of its module is at depth `ANCHOR_STRIDE * i`, just below the
//! layer that uses it, so its hook fires right after that layer's own backward step. A module that uses its parameters
//! in another order than it lists them still gets correct gradients; some hooks then fire late.
//!
//! The leaf is the hook's own and not the parameter's, so that graphs share no node. burn 0.21 puts graphs that share
//! one into one table, by merging tables, and does not move every name of a table that is merged a second time: with
//! the graphs of several micro-batches under way, the backward pass of one can then find another incomplete and delete
//! it.

use std::sync::{Arc, OnceLock};

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Shape, TensorMetadata};
use cubecl_kernels::accumulate::vectors;
use cubecl_kernels::linear::destination::{self, GradientRedirect};
use cubecl_kernels::linear::retained::{self, WeightSource};

use crate::autodiff::GradientSink;

/// Depths between the anchors of neighbouring parameters. Where more operations come between two uses of parameters,
/// the hook of the second fires late, and is right all the same.
const ANCHOR_STRIDE: usize = 32;

/// Returns anchors for `count` parameters, each deeper than the one before.
pub(super) fn anchors<B: Backend, C: CheckpointStrategy>(
    count: usize,
    device: &B::Device,
) -> Vec<FloatTensor<Autodiff<B, C>>> {
    let scalar = B::float_zeros(Shape::new([1]), device, DType::F32.into());
    let mut deepest = FloatTensor::<Autodiff<B, C>>::new(scalar);
    (0..count)
        .map(|_| {
            let anchor = deepest.clone();
            for _ in 0..ANCHOR_STRIDE {
                let node = &deepest.node;
                // One deeper than its parent, registered nowhere: it is a number with a name.
                deepest = FloatTensor::<Autodiff<B, C>>::from_parents(
                    deepest.primitive.clone(),
                    std::slice::from_ref(node),
                    node.requirement,
                    node.properties.clone(),
                );
            }
            anchor
        })
        .collect()
}

/// Returns the tensor with its gradient redirected to `sink`. The graph keeps no matrix that has a source.
pub(super) fn hook<B: Backend, C: CheckpointStrategy>(
    tensor: FloatTensor<Autodiff<B, C>>,
    anchor: &FloatTensor<Autodiff<B, C>>,
    sink: Arc<dyn GradientSink<B>>,
    index: usize,
    source: Option<Arc<dyn WeightSource<B>>>,
) -> FloatTensor<Autodiff<B, C>> {
    if !tensor.is_tracked() {
        return tensor;
    }
    let dimensions = tensor.primitive.shape().num_dims();
    let own_sink = sink.clone();
    let leaf = FloatTensor::<Autodiff<B, C>>::new(tensor.primitive).require_grad();
    let redirected = Arc::new(OnceLock::new());
    let hooked = match RedirectGradient
        .prepare::<C>([leaf.node, anchor.node.clone()])
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(prep) => {
            let hook = Hook {
                sink,
                index,
                _redirected: redirected.clone(),
            };
            prep.finish(hook, leaf.primitive)
        }
        OpsKind::UnTracked(_) => unreachable!("the leaf is tracked"),
    };
    let _ = redirected.set(Redirects {
        _gradient: redirect::<B, C>(&hooked, dimensions, own_sink, index),
        _weight: source
            .filter(|_| dimensions == 2)
            .map(|source| retained::supply::<B, C>(&hooked, source)),
    });
    hooked
}

/// Redirects the gradient of a hooked matrix or vector to what takes it straight from the kernels, if anything does.
fn redirect<B: Backend, C: CheckpointStrategy>(
    hooked: &FloatTensor<Autodiff<B, C>>,
    dimensions: usize,
    sink: Arc<dyn GradientSink<B>>,
    index: usize,
) -> Option<GradientRedirect> {
    match dimensions {
        1 => Some(vectors::redirect::<B, C>(hooked, sink.vector_sink(index)?, index)),
        2 => Some(destination::redirect::<B, C>(hooked, sink.product_sink(index)?)),
        _ => None,
    }
}

/// The backward step of a hooked parameter.
#[derive(Debug)]
struct RedirectGradient;

/// What the step keeps.
#[derive(Clone, Debug)]
struct Hook<B: Backend> {
    sink: Arc<dyn GradientSink<B>>,
    index: usize,
    _redirected: Arc<OnceLock<Redirects>>,
}

/// What stands between a parameter and the graph, as long as the step may come.
#[derive(Debug)]
struct Redirects {
    /// Leads its gradients to their sink.
    _gradient: Option<GradientRedirect>,
    /// Leads products with it to its source.
    _weight: Option<GradientRedirect>,
}

impl<B: Backend> Backward<B, 2> for RedirectGradient {
    type State = Hook<B>;

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let Hook { sink, index, .. } = ops.state;
        sink.receive(index, grads.consume::<B>(&ops.node));
    }
}
