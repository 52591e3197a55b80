//! Linear layers on the rows of their input as one matrix.

use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, TensorMetadata};

use super::super::apply::Placed;
use crate::collectives::CollectiveBackend;

/// The rows of a tensor's last dimension as a matrix. burn multiplies batch entry by batch entry, then sums one
/// gradient per entry; one matmul of all rows is faster. Without a mesh the bits are burn's own.
pub(super) fn rows<B: CollectiveBackend>(tensor: FloatTensor<B>, placed: &Placed) -> FloatTensor<B> {
    let shape = tensor.shape();
    let width = shape[shape.num_dims() - 1];
    if placed.is_whole() || shape.num_dims() <= 2 || width == 0 {
        return tensor;
    }
    let count = shape.num_elements() / width;
    B::float_reshape(tensor, Shape::new([count, width]))
}

/// Runs what treats every row alike on the rows as a matrix.
pub(super) fn by_rows<B: CollectiveBackend>(
    tensor: FloatTensor<B>,
    placed: &Placed,
    run: impl FnOnce(FloatTensor<B>) -> FloatTensor<B>,
) -> FloatTensor<B> {
    let mut shape = tensor.shape();
    let output = run(rows::<B>(tensor, placed));
    let (last, of_output) = (shape.num_dims() - 1, output.shape());
    if of_output.num_dims() == shape.num_dims() {
        return output;
    }
    shape[last] = of_output[1];
    B::float_reshape(output, shape)
}
