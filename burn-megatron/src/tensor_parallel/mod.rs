//! Layers whose weights are shared out over the tensor-parallel group.
//!
//! Each has a `Config` with `.init(&device, &context)`, a way to shard an existing burn layer, and behaves as burn's
//! own layer in a group of one. Called by models.
//!
//! Inputs and outputs are of the parameters' element type; where that has 16 bits, statistics and losses are f32: see
//! [`precision`](crate::precision).
//!
//! Under sequence parallelism the gradients of norms and row-parallel biases are partial sums until the step is
//! finished: [`DistributedDataParallel`](crate::data_parallel::DistributedDataParallel) sums them by itself; a program
//! that trains without it calls [`sum_partial_gradients`](crate::data_parallel::sum_partial_gradients). Likewise for gradient
//! clipping by the norm of a parameter, of which each rank has a part: the wrapper clips by the whole norm, a program without
//! it calls [`clip_each_gradient`](crate::data_parallel::clip_each_gradient).

mod column_linear;
mod cross_entropy;
mod embedding;
mod norm;
mod product;
mod row_linear;

pub use column_linear::{ColumnParallelLinear, ColumnParallelLinearConfig};
pub use cross_entropy::{VocabShard, plain_vocab_parallel_cross_entropy, vocab_parallel_cross_entropy};
pub use embedding::{PositionEmbedding, PositionEmbeddingConfig, VocabParallelEmbedding, VocabParallelEmbeddingConfig};
pub use norm::{LayerNorm, apply_layer_norm, from_layer_norm, layer_norm};
pub use row_linear::{RowParallelLinear, RowParallelLinearConfig};

use burn::module::Param;
use burn::tensor::{Tensor, backend::Backend};
use cubecl_kernels::KernelError;

use crate::parameters::{ParameterInit, Placement, read_host, tensor_from_host};

/// The result of an operation whose inputs are a layer's own: another shape or type is the caller's mistake.
#[track_caller]
fn checked<T>(result: Result<T, KernelError>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

/// burn's default initialisation of a linear layer's weight and bias: U(-k, k) with k = √(1 / d_input).
fn linear_init(given: &Option<ParameterInit>, d_input: usize) -> ParameterInit {
    given.unwrap_or(ParameterInit::Uniform {
        bound: (1.0 / d_input as f64).sqrt(),
    })
}

/// Returns this rank's shard of a whole parameter, as a parameter that is trained if the whole is.
///
/// # Panics
/// When the whole has not the placement's logical number of elements.
fn take_shard<B: Backend, const D: usize>(
    whole: Param<Tensor<B, D>>,
    placement: &Placement,
    shape: [usize; D],
) -> Param<Tensor<B, D>> {
    let tensor = whole.val();
    let (device, dtype, trained) = (tensor.device(), tensor.dtype(), tensor.is_require_grad());
    let values = read_host(tensor);
    assert_eq!(
        values.len(),
        placement.logical_len(),
        "a parameter of {} elements cannot be cut as {:?}",
        values.len(),
        placement.logical_shape()
    );
    let mut shard = vec![0.0; placement.local_len()];
    for run in placement.runs() {
        shard[run.local..run.local + run.length].copy_from_slice(&values[run.logical..run.logical + run.length]);
    }
    let tensor = tensor_from_host(shard, shape, dtype, &device);
    Param::from_tensor(tensor).set_require_grad(trained)
}
