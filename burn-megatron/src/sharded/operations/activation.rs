//! Activation functions.

use burn_backend::Scalar;
use burn_backend::ops::{ActivationOps, FloatTensorOps};

use super::super::apply::apply;
use super::super::kind::Float;
use super::super::placement::AxisPlacement::Shard;
use super::super::rules::pointwise::{Binary, NON_LINEAR};
use super::super::rules::reduce::Along;
use super::super::{Sharded, ShardedTensor};
use super::operations;
use crate::collectives::CollectiveBackend;

operations! {
    ActivationOps, RULES;

    relu(tensor: Float) -> Float = NON_LINEAR;
    leaky_relu(tensor: Float; negative_slope: Scalar) -> Float = NON_LINEAR;
    prelu(tensor: Float, alpha: Float) -> Float = Binary::Other;
    gelu(tensor: Float) -> Float = NON_LINEAR;
    sigmoid(tensor: Float) -> Float = NON_LINEAR;
    hard_sigmoid(tensor: Float; alpha: Scalar, beta: Scalar) -> Float = NON_LINEAR;
    log_sigmoid(tensor: Float) -> Float = NON_LINEAR;
    relu_backward(output: Float, grad: Float) -> Float = Binary::Other;
    gelu_backward(x: Float, grad: Float) -> Float = Binary::Other;
    sigmoid_backward(output: Float, grad: Float) -> Float = Binary::Other;
    log_sigmoid_backward(x: Float, grad: Float) -> Float = Binary::Other;

    ; written {
        softmax = "Along, or made of its parts where the dimension is cut";
        log_softmax = "Along, or made of its parts where the dimension is cut";
    }

    fn softmax(tensor: ShardedTensor<B, Float>, dim: usize) -> ShardedTensor<B, Float> {
        if !is_cut(&tensor, dim) {
            return apply("softmax", tensor, || Box::new(Along::new(dim)), |tensor, _| B::softmax(tensor, dim));
        }
        let exponentials = Self::float_exp(shifted::<B>(tensor, dim));
        let sums = Self::float_sum_dim(exponentials.clone(), dim);
        Self::float_div(exponentials, sums)
    }

    fn log_softmax(tensor: ShardedTensor<B, Float>, dim: usize) -> ShardedTensor<B, Float> {
        if !is_cut(&tensor, dim) {
            return apply("log_softmax", tensor, || Box::new(Along::new(dim)), |tensor, _| B::log_softmax(tensor, dim));
        }
        let shifted = shifted::<B>(tensor, dim);
        let sums = Self::float_sum_dim(Self::float_exp(shifted.clone()), dim);
        Self::float_sub(shifted, Self::float_log(sums))
    }
}

/// Whether the ranks of some axis have ranges of the dimension.
fn is_cut<B: CollectiveBackend>(tensor: &ShardedTensor<B, Float>, dimension: usize) -> bool {
    tensor.places().contains(&Shard(dimension))
}

/// The tensor less its largest values.
fn shifted<B: CollectiveBackend>(tensor: ShardedTensor<B, Float>, dimension: usize) -> ShardedTensor<B, Float> {
    let largest = Sharded::<B>::float_max_dim(tensor.clone(), dimension);
    Sharded::<B>::float_sub(tensor, largest)
}
