//! Layers whose weights are shared out over the tensor-parallel group.
//!
//! Each has a `Config` with `.init(&device, &scope)`, and behaves as burn's own layer in a group of one. Each is also
//! made from burn's own, which takes its sizes from it: `ColumnParallelLinear::from_linear(linear, &scope)`; with
//! other settings `ColumnParallelLinearConfig::of(&linear).with_gather_output(true).from_linear(linear, &scope)`. The
//! layer must have its values: [`initialize`](crate::initialize) draws them for the whole model.
//!
//! burn's composites are converted likewise, and then called as burn's: [`ParallelTransformerEncoder::from_encoder`],
//! [`ParallelTransformerDecoder::from_decoder`], [`ParallelMultiHeadAttention::from_mha`] and
//! [`ParallelPositionWiseFeedForward::from_pwff`]. The layers around them stay burn's:
//! [`ParameterScope::declare_rest_replicated`] declares them in one line.
//!
//! Inputs and outputs are of the parameters' element type; where that has 16 bits, statistics and losses are f32.
//!
//! Train with [`DistributedDataParallel`](crate::data_parallel::DistributedDataParallel), even without data-parallel
//! ranks. What it does by itself, a program with a loop of its own must do:
//!
//! - Some gradients are partial sums until [`sum_partial_gradients`](crate::data_parallel::sum_partial_gradients) adds
//!   them up: those of norms and row-parallel biases under sequence parallelism; those of norms of heads, low-rank
//!   factors, and keys and values that ranks share always.
//! - burn's `with_grad_clipping` would clip by the norm of this rank's shard of a parameter;
//!   [`clip_each_gradient`](crate::data_parallel::clip_each_gradient) clips by that of the whole.
//! - burn's own `Dropout`, in the layers around those here, may drop other elements on each rank: the wrapper refuses
//!   it.

mod attention;
mod column_cut;
mod column_linear;
mod conversion;
mod cross_entropy;
mod embedding;
mod low_rank;
mod margin;
mod norm;
mod overlap;
mod product;
mod region;
mod replicated_linear;
mod rms_norm;
mod row_linear;
mod tokens;
mod transformer;
mod vocab_bias;

pub use attention::{
    Alibi, CausalSelfAttention, CausalSelfAttentionConfig, CausalSelfAttentionNames, CrossAttention,
    CrossAttentionConfig, CrossAttentionNames, HeadOrder, MemoryTokens, MhaCache, MhaInput, MhaOutput, PageSizes,
    PagedKeyValues, PagedSequence, PagedTokens, ParallelMultiHeadAttention, QkNorms, Rotary, RotaryConfig, TensorCache,
};
pub use column_cut::ColumnGroups;
pub use column_linear::{ColumnParallelLinear, ColumnParallelLinearConfig, SharedColumns};
pub use conversion::ConversionError;
pub use cross_entropy::{VocabShard, vocab_parallel_cross_entropy};
pub use embedding::{PositionEmbedding, PositionEmbeddingConfig, VocabParallelEmbedding, VocabParallelEmbeddingConfig};
pub use low_rank::{AdaptedColumns, AdaptedFeatures, LowRankAdapter, LowRankConfig};
pub use margin::vocab_parallel_margin;
pub use norm::{LayerNorm, LayerNormConfig, apply_layer_norm};
pub use overlap::OverlapSizes;
pub use replicated_linear::{ReplicatedLinear, ReplicatedLinearConfig};
pub use rms_norm::{RmsNorm, RmsNormConfig};
pub use row_linear::{RowParallelLinear, RowParallelLinearConfig};
pub use tokens::TokenContext;
pub use transformer::{
    ParallelPositionWiseFeedForward, ParallelTransformerDecoder, ParallelTransformerDecoderLayer,
    ParallelTransformerEncoder, ParallelTransformerEncoderLayer, TransformerDecoderAutoregressiveCache,
    TransformerDecoderInput, TransformerEncoderAutoregressiveCache, TransformerEncoderInput,
};
pub use vocab_bias::VocabParallelBias;

use burn::module::Param;
use burn::tensor::Tensor;
use cubecl_kernels::KernelError;

use crate::context::ParameterScope;
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
fn take_shard<const D: usize>(
    whole: &Param<Tensor<D>>,
    placement: &Placement,
    shape: [usize; D],
    scope: &ParameterScope,
) -> Param<Tensor<D>> {
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
    let shard = Param::from_tensor(tensor).set_require_grad(trained);
    scope.context().registry().mark_converted(shard.id);
    shard
}
