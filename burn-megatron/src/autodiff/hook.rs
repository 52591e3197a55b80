//! Hooks: catch a parameter's gradient in the middle of a backward pass.
//!
//! burn runs a backward pass by depth, deepest first, and an identity on a leaf has depth 1, so a plain hook on a
//! parameter would fire after everything else. Here the identity has two parents: a leaf, and an *anchor*, an untracked
//! node of raised depth. The hooked parameter number `i` of its module is at depth `ANCHOR_STRIDE * i`, just below the
//! layer that uses it, so its hook fires right after that layer's own backward step. A module that uses its parameters
//! in another order than it lists them still gets correct gradients; some hooks then fire late.
//!
//! The leaf is the hook's own and not the parameter's, so that graphs share no node: the backward pass of one of
//! several micro-batches under way leaves the others' graphs as they are.

use std::sync::{Arc, OnceLock};

use burn::tensor::{DType, Device, Tensor};
use cubecl_kernels::accumulate::vectors;
use cubecl_kernels::linear::destination::{self, GradientRedirect};
use cubecl_kernels::linear::retained::{self, WeightSource};
use cubecl_kernels::tape::{inner, record};

use super::GradientSink;

/// Depths between the anchors of neighbouring parameters. Where more operations come between two uses of parameters,
/// the hook of the second fires late, and is right all the same.
const ANCHOR_STRIDE: usize = 32;

/// Returns anchors for `count` parameters on a device with autodiff, each deeper than the one before. Made once per
/// module.
pub fn anchors(count: usize, device: &Device) -> Vec<Tensor<1>> {
    let mut deepest = Tensor::<1>::zeros([1], (device, DType::F32));
    let next = |_| {
        let anchor = deepest.clone();
        for _ in 0..ANCHOR_STRIDE {
            // A node without a gradient, one deeper than its parent.
            let element = inner(&deepest);
            deepest = record(deepest.clone(), element, |_, _| None);
        }
        anchor
    };
    (0..count).map(next).collect()
}

/// Returns the tensor with its gradient redirected to `sink`, if it has one. Where it is a matrix that has a source,
/// products with it fetch it for their backward pass, and the graph does not keep it.
pub fn hook<const D: usize>(
    tensor: Tensor<D>,
    anchor: &Tensor<1>,
    sink: Arc<dyn GradientSink>,
    index: usize,
    source: Option<Arc<dyn WeightSource>>,
) -> Tensor<D> {
    if !tensor.is_tracked() {
        return tensor;
    }
    let value = inner(&tensor);
    let leaf = tensor.detach().require_grad();
    // Kept as long as the step may come.
    let redirected: Arc<OnceLock<Redirects>> = Arc::default();
    let (kept, receiver) = (redirected.clone(), sink.clone());
    let hooked = record((leaf, anchor.clone()), value, move |gradient, _| {
        drop(kept);
        receiver.receive(index, gradient.into_dispatch());
        (None, None)
    });
    let _ = redirected.set(Redirects {
        _gradient: redirect(&hooked, sink, index),
        _weight: source.and_then(|source| retained::supply(&matrix(&hooked)?, source)),
    });
    hooked
}

/// Redirects the gradient of a hooked matrix or vector to what takes it straight from the kernels, if anything does.
fn redirect<const D: usize>(hooked: &Tensor<D>, sink: Arc<dyn GradientSink>, index: usize) -> Option<GradientRedirect> {
    match D {
        1 => {
            let vector = Tensor::<1>::from_dispatch(hooked.clone().into_dispatch());
            vectors::redirect(&vector, sink.vector_sink(index)?, index)
        }
        _ => destination::redirect(&matrix(hooked)?, sink.product_sink(index)?),
    }
}

/// Returns the same tensor where it is a matrix.
fn matrix<const D: usize>(tensor: &Tensor<D>) -> Option<Tensor<2>> {
    (D == 2).then(|| Tensor::from_dispatch(tensor.clone().into_dispatch()))
}

/// Redirections of a parameter's gradient and of its values, as long as the step may come.
struct Redirects {
    _gradient: Option<GradientRedirect>,
    _weight: Option<GradientRedirect>,
}
