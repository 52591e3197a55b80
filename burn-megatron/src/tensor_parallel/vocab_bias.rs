//! `VocabParallelBias`: a bias of the scores of a vocabulary, shared out as these are.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};

use super::VocabShard;
use crate::context::{ParameterScope, ParameterSpec};
use crate::parameters::{Distribution, ParameterInit, Placement, ShardIdentity};
use crate::precision::assert_dtype;

/// A number for each token of the vocabulary, which is added to its score.
#[derive(Module, Debug)]
pub struct VocabParallelBias {
    /// `[padded_size / tp]`: those of this rank's tokens.
    pub bias: Param<Tensor<1>>,
    identity: ShardIdentity,
}

impl VocabParallelBias {
    /// Returns zeros for the tokens of a [shard](super::VocabParallelEmbedding::vocab_shard), declared under the
    /// context's scope as `bias`.
    pub fn zeros(shard: VocabShard, device: &Device, scope: &ParameterScope) -> Self {
        let placement = Placement::new([shard.size()], [shard.start()], [shard.rows()]);
        let identity = scope.shard_identity(&[("bias", &placement)]);
        let spec = ParameterSpec {
            placement,
            distribution: Distribution::Sharded,
            init: ParameterInit::Zeros,
        };
        Self {
            bias: scope.parameter("bias", [shard.rows()], &spec, device),
            identity,
        }
    }

    /// Adds the bias.
    ///
    /// # Shapes
    /// - `logits` and output: `[tokens, padded_size / tp]`
    ///
    /// # Panics
    /// When the logits are not of the bias's type.
    pub fn forward(&self, logits: Tensor<2>) -> Tensor<2> {
        let bias = self.bias.val();
        assert_dtype("vocabulary bias", "the logits", logits.dtype(), bias.dtype());
        logits + bias.unsqueeze()
    }
}
