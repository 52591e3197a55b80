//! Operations that move elements, of any kind of tensor.

use burn::tensor::{Shape, Slice, SliceOps, TensorMetadata};

use super::super::ShardedTensor;
use super::super::apply::{Placed, apply};
use super::super::kind::Kind;
use super::super::rules::movement::{Assign, Concatenate, Expand, Permute, Reshape, Touch};
use crate::collectives::CollectiveBackend;

pub(super) fn reshape<B: CollectiveBackend, K: Kind<B>>(
    name: &'static str,
    tensor: ShardedTensor<B, K>,
    shape: Shape,
    run: impl FnOnce(K::Tensor, Shape) -> K::Tensor,
) -> ShardedTensor<B, K> {
    let to = shape.to_vec();
    let rule = || Box::new(Reshape { to: to.clone() }) as _;
    apply(name, tensor, rule, |tensor, placed| {
        run(tensor, placed.result_shape(0, &to))
    })
}

pub(super) fn expand<B: CollectiveBackend, K: Kind<B>>(
    name: &'static str,
    tensor: ShardedTensor<B, K>,
    shape: Shape,
    run: impl FnOnce(K::Tensor, Shape) -> K::Tensor,
) -> ShardedTensor<B, K> {
    let to = shape.to_vec();
    let rule = || Box::new(Expand { to: to.clone() }) as _;
    apply(name, tensor, rule, |tensor, placed| {
        run(tensor, placed.result_shape(0, &to))
    })
}

/// `from` names, for each dimension of the result, that of the tensor.
pub(super) fn permute<B: CollectiveBackend, K: Kind<B>>(
    name: &'static str,
    tensor: ShardedTensor<B, K>,
    from: impl FnOnce(usize) -> Permute,
    run: impl FnOnce(K::Tensor) -> K::Tensor,
) -> ShardedTensor<B, K> {
    let rank = tensor.rank();
    apply(name, tensor, || Box::new(from(rank)), |tensor, _| run(tensor))
}

/// Elements of these dimensions turned round.
pub(super) fn flip<B: CollectiveBackend, K: Kind<B>>(
    name: &'static str,
    tensor: ShardedTensor<B, K>,
    dimensions: &[usize],
    run: impl FnOnce(K::Tensor) -> K::Tensor,
) -> ShardedTensor<B, K> {
    let to = tensor.shape().to_vec();
    let dimensions = dimensions.to_vec();
    apply(
        name,
        tensor,
        || Box::new(Touch { dimensions, to }),
        |tensor, _| run(tensor),
    )
}

/// A dimension repeated.
pub(super) fn repeat<B: CollectiveBackend, K: Kind<B>>(
    name: &'static str,
    tensor: ShardedTensor<B, K>,
    dimension: usize,
    times: usize,
    run: impl FnOnce(K::Tensor) -> K::Tensor,
) -> ShardedTensor<B, K> {
    let mut to = tensor.shape().to_vec();
    to[dimension] *= times;
    let dimensions = vec![dimension];
    apply(
        name,
        tensor,
        || Box::new(Touch { dimensions, to }),
        |tensor, _| run(tensor),
    )
}

/// Windows of a dimension, as a new last dimension.
pub(super) fn unfold<B: CollectiveBackend, K: Kind<B>>(
    name: &'static str,
    tensor: ShardedTensor<B, K>,
    dimension: usize,
    size: usize,
    step: usize,
    run: impl FnOnce(K::Tensor) -> K::Tensor,
) -> ShardedTensor<B, K> {
    let mut to = tensor.shape().to_vec();
    to[dimension] = if to[dimension] < size {
        0
    } else {
        (to[dimension] - size) / step + 1
    };
    to.push(size);
    let dimensions = vec![dimension];
    apply(
        name,
        tensor,
        || Box::new(Touch { dimensions, to }),
        |tensor, _| run(tensor),
    )
}

pub(super) fn slice<B: CollectiveBackend, K: Kind<B>>(
    name: &'static str,
    tensor: ShardedTensor<B, K>,
    slices: &[Slice],
) -> ShardedTensor<B, K> {
    let shape = tensor.shape();
    let rule = || {
        let to = shape
            .clone()
            .slice(slices)
            .expect("burn has checked the slices")
            .to_vec();
        let dimensions = touched(slices, &shape);
        Box::new(Touch { dimensions, to }) as _
    };
    apply(name, tensor, rule, |tensor: K::Tensor, placed| {
        let slices = local_slices(slices, &tensor.shape(), placed);
        K::slice(tensor, &slices)
    })
}

pub(super) fn slice_assign<B: CollectiveBackend, K: Kind<B>>(
    name: &'static str,
    tensor: ShardedTensor<B, K>,
    slices: &[Slice],
    value: ShardedTensor<B, K>,
    run: impl FnOnce(K::Tensor, &[Slice], K::Tensor) -> K::Tensor,
) -> ShardedTensor<B, K> {
    let shape = tensor.shape();
    let rule = || {
        let dimensions = touched(slices, &shape);
        Box::new(Assign { dimensions }) as _
    };
    apply(name, (tensor, value), rule, |(tensor, value), placed| {
        let slices = local_slices(slices, &tensor.shape(), placed);
        run(tensor, &slices, value)
    })
}

pub(super) fn cat<B: CollectiveBackend, K: Kind<B>>(
    name: &'static str,
    tensors: Vec<ShardedTensor<B, K>>,
    dimension: usize,
) -> ShardedTensor<B, K> {
    let rule = || Box::new(Concatenate { dimension }) as _;
    apply(name, tensors, rule, |tensors, _| K::cat(tensors, dimension))
}

/// The dimensions of which slices do not take everything in order.
fn touched(slices: &[Slice], shape: &Shape) -> Vec<usize> {
    let is_whole = |dimension: &usize| {
        let (slice, length) = (&slices[*dimension], shape[*dimension]);
        slice.step == 1 && slice.to_range(length) == (0..length)
    };
    (0..slices.len()).filter(|dimension| !is_whole(dimension)).collect()
}

/// The slices of this rank's part: all that it has of a dimension that is cut.
fn local_slices(slices: &[Slice], part: &Shape, placed: &Placed) -> Vec<Slice> {
    let of_part = |(dimension, slice): (usize, &Slice)| {
        if placed.has_all(0, dimension) {
            *slice
        } else {
            (0..part[dimension]).into()
        }
    };
    slices.iter().enumerate().map(of_part).collect()
}
