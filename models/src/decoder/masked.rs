//! Parts of a model of masked tokens on its last stage, as of BERT: [`MaskedTokenHead`] around the output head, and
//! [`PairHead`].

use burn::module::Module;
use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, Int, Tensor};
use burn_megatron::collectives::ProcessGroup;
use burn_megatron::context::ParameterScope;
use burn_megatron::mappings::gather_from_tensor_region;
use burn_megatron::parameters::ParameterInit;
use burn_megatron::precision::widen;
use burn_megatron::tensor_parallel::{ReplicatedLinear, ReplicatedLinearConfig, VocabParallelBias, VocabShard};

use super::config::{DecoderConfig, MaskedTokenConfig};
use crate::layers::{MlpActivation, Norm};

/// A layer, the MLPs' activation and a norm before the output head, and a bias after it.
///
/// # Reference
/// Devlin et al. 2018, arXiv:1810.04805, section 3.1.
#[derive(Module, Debug)]
pub struct MaskedTokenHead {
    /// `d_model` to `d_model`.
    pub transform: ReplicatedLinear,
    /// After the layer.
    pub norm: Norm,
    pub bias: VocabParallelBias,
    #[module(skip)]
    activation: MlpActivation,
}

/// Tells from a pair's first token whether its second sentence follows the first.
///
/// # Reference
/// Devlin et al. 2018, arXiv:1810.04805, section 3.1; Lan et al. 2019, arXiv:1909.11942, section 3.1.
#[derive(Module, Debug)]
pub struct PairHead {
    /// `d_model` to `d_model`, then tanh.
    pub pooler: ReplicatedLinear,
    /// `d_model` to 2.
    pub pairs: ReplicatedLinear,
    sequence_parallel: bool,
    #[module(skip)]
    group: ProcessGroup,
}

impl MaskedTokenHead {
    pub(super) fn init(
        config: &DecoderConfig,
        masked: &MaskedTokenConfig,
        shard: VocabShard,
        device: &Device,
        scope: &ParameterScope,
    ) -> Self {
        let (d_model, names) = (config.d_model(), &masked.names);
        let norm_scope = scope.scope(names.transform_norm);
        Self {
            transform: layer(d_model, d_model, config.init).init(device, &scope.scope(names.transform)),
            norm: config
                .block
                .norm
                .init(d_model, config.block.norm_epsilon, device, &norm_scope),
            bias: VocabParallelBias::zeros(shard, device, &scope.scope(names.head)),
            activation: config.block.mlp.activation,
        }
    }
}

impl MaskedTokenHead {
    /// Returns the output head's input, of this rank's tokens under sequence parallelism: `[tokens, d_model]` to the
    /// same.
    pub fn transformed(&self, hidden: Tensor<2>) -> Tensor<2> {
        let transformed = self.transform.forward(hidden);
        self.norm.forward(self.activation.of_one(transformed))
    }
}

impl PairHead {
    pub(super) fn init(
        config: &DecoderConfig,
        masked: &MaskedTokenConfig,
        device: &Device,
        scope: &ParameterScope,
    ) -> Self {
        let (d_model, names) = (config.d_model(), &masked.names);
        let whole = |d_output| layer(d_model, d_output, config.init).with_is_token_wise(false);
        Self {
            pooler: whole(d_model).init(device, &scope.scope(names.pooler)),
            pairs: whole(2).init(device, &scope.scope(names.pairs)),
            sequence_parallel: scope.context().is_sequence_parallel(),
            group: scope.context().tensor_group().clone(),
        }
    }
}

impl PairHead {
    /// Scores of "follows" and "does not follow".
    ///
    /// # Shapes
    /// - `hidden`: `[batch * seq, d_model]`, this rank's rows under sequence parallelism
    /// - output: `[batch, 2]`, the same on every tensor-parallel rank
    ///
    /// # Communication
    /// Under sequence parallelism one all-gather of the hidden states over the tensor group; backward none.
    ///
    /// # Panics
    /// When the collective fails.
    pub fn scores(&self, hidden: Tensor<2>, seq_length: usize) -> Tensor<2> {
        let hidden = if self.sequence_parallel {
            gather_from_tensor_region(hidden, 0, &self.group)
        } else {
            hidden
        };
        let [tokens, d_model] = hidden.dims();
        let batch = tokens / seq_length;
        let first = hidden.reshape([batch, seq_length, d_model]).narrow(1, 0, 1);
        let first = first.reshape([batch, d_model]);
        self.pairs.forward(self.pooler.forward(first).tanh())
    }

    /// The cross-entropy of each pair's target, 1 where the second sentence does not follow, `[batch]`; in f32 where
    /// the parameters have 16 bits. Otherwise as [`scores`](Self::scores).
    pub fn losses(&self, hidden: Tensor<2>, seq_length: usize, targets: Tensor<1, Int>) -> Tensor<1> {
        let scores = widen(self.scores(hidden, seq_length));
        let [batch, _] = scores.dims();
        let of_targets = log_softmax(scores, 1).gather(1, targets.reshape([batch, 1]));
        of_targets.reshape([batch]).neg()
    }
}

/// A layer whose bias starts at zero.
fn layer(d_input: usize, d_output: usize, init: ParameterInit) -> ReplicatedLinearConfig {
    ReplicatedLinearConfig::new(d_input, d_output)
        .with_weight_init(Some(init))
        .with_bias_init(Some(ParameterInit::Zeros))
}
