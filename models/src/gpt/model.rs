//! `Gpt`: embeddings, blocks, norm, head and loss.

use burn::module::Module;
use burn::nn::{LayerNorm, LayerNormConfig};
use burn::tensor::{Int, Tensor, backend::Backend};
use burn_megatron::collectives::ProcessGroup;
use burn_megatron::context::ParallelContext;
use burn_megatron::mappings::scatter_to_tensor_region;
use burn_megatron::parameters::ParameterInit;
use burn_megatron::random::{Dropout, DropoutConfig, DropoutSite, StepCoordinates};
use burn_megatron::tensor_parallel::{
    PositionEmbedding, PositionEmbeddingConfig, VocabParallelEmbedding, VocabParallelEmbeddingConfig, layer_norm,
    vocab_parallel_cross_entropy,
};
use burn_megatron::topology::TopologyError;
use burn_megatron::training::{LanguageModel, TokenBatch};

use super::GptConfig;
use crate::common::{AttentionBackend, Block, BlockConfig, CausalSelfAttentionConfig, MlpConfig, TokenContext};

/// The number of the embedding's dropout site; its layer is the one behind the last.
const EMBEDDING_SITE: u32 = 0;

/// A GPT, one model for every layout.
///
/// Shape legend: `batch` samples of `seq` tokens; activations are `[batch * seq, d_model]`, tokens leading.
#[derive(Module, Debug)]
pub struct Gpt<B: Backend> {
    /// Token embedding, and output head where it is tied.
    pub wte: VocabParallelEmbedding<B>,
    /// Position embedding.
    pub wpe: PositionEmbedding<B>,
    /// The blocks.
    pub h: Vec<Block<B>>,
    /// The final norm.
    pub ln_f: LayerNorm<B>,
    /// The output head where it is not tied: as the embedding, a row per token of the vocabulary.
    pub lm_head: Option<VocabParallelEmbedding<B>>,
    embedding_dropout: Dropout,
    sequence_parallel: bool,
    tensor_group: ProcessGroup,
}

impl GptConfig {
    /// Returns a new GPT, this rank's part of it, initialised by global names: the same numbers in every layout.
    ///
    /// Weights and embeddings start as N(0, 0.02²), projections back to `d_model` as N(0, (0.02 / √(2L))²), biases as
    /// 0, norms as 1 and 0.
    ///
    /// # Errors
    /// When a size does not divide: see [`validate`](Self::validate).
    pub fn init<B: Backend>(&self, device: &B::Device, context: &ParallelContext) -> Result<Gpt<B>, TopologyError> {
        self.validate(context.config())?;
        let init = ParameterInit::Normal {
            deviation: self.init_deviation,
        };
        let output_init = ParameterInit::Normal {
            deviation: self.init_deviation / (2.0 * self.n_layers as f64).sqrt(),
        };
        let padded = self.padded_vocab(context.config().tensor_parallel_size);
        let block = BlockConfig::new(
            CausalSelfAttentionConfig::new(self.d_model, self.n_heads, init, output_init)
                .with_dropout(self.attention_dropout)
                .with_recompute_attention(self.recompute_attention),
            MlpConfig::new(self.d_model, self.hidden_size(), init, output_init),
        )
        .with_norm_epsilon(self.norm_epsilon)
        .with_hidden_dropout(self.hidden_dropout);
        let embedding = VocabParallelEmbeddingConfig::new(self.vocab_size, self.d_model)
            .with_padded_size(Some(padded))
            .with_init(Some(init));
        let wte = embedding.init(device, &context.scope("wte"))?;
        let wpe = PositionEmbeddingConfig::new(self.max_seq_length, self.d_model)
            .with_init(init)
            .init(device, &context.scope("wpe"));
        let h = (0..self.n_layers)
            .map(|layer| block.init(layer, device, &context.scope(format!("h.{layer}"))))
            .collect::<Result<_, _>>()?;
        let norm = LayerNormConfig::new(self.d_model).with_epsilon(self.norm_epsilon);
        let ln_f = layer_norm(&norm, device, &context.scope("ln_f"));
        let lm_head = match self.tied_embeddings {
            true => None,
            false => Some(embedding.init(device, &context.scope("lm_head"))?),
        };
        let embedding_site = DropoutSite {
            layer: self.n_layers as u32,
            number: EMBEDDING_SITE,
        };
        Ok(Gpt {
            wte,
            wpe,
            h,
            ln_f,
            lm_head,
            embedding_dropout: DropoutConfig::new(self.hidden_dropout).init(embedding_site),
            sequence_parallel: context.is_sequence_parallel(),
            tensor_group: context.tensor_group().clone(),
        })
    }
}

impl<B: AttentionBackend> Gpt<B> {
    /// Scores the vocabulary after each token.
    ///
    /// # Shapes
    /// - `tokens`: `[batch, seq]`, the same on every tensor-parallel rank
    /// - output: `[batch * seq, padded_vocab_size / tp]`, this rank's part of the vocabulary
    ///
    /// # Communication
    /// Forward: one all-reduce of `batch * seq * d_model` elements over the tensor group for the embedding, and per
    /// block as [`Block::forward`]. Backward: one more for the head, and per block as many.
    ///
    /// # Panics
    /// When `step` has not `batch * seq` tokens, the sequence is longer than the positions, or a collective fails.
    pub fn logits(&self, tokens: Tensor<B, 2, Int>, step: &StepCoordinates) -> Tensor<B, 2> {
        let [batch, seq] = tokens.dims();
        let sequence_group = self.sequence_parallel.then_some(&self.tensor_group);
        let context = TokenContext::new(step, seq, sequence_group);
        let embedded = self.wte.forward(tokens.reshape([batch * seq]));
        let embedded = self.wpe.forward(embedded, seq);
        // From here to the head: this rank's tokens only, under sequence parallelism.
        let hidden = match sequence_group {
            Some(group) => scatter_to_tensor_region(embedded, 0, group),
            None => embedded,
        };
        let mut hidden = self.embedding_dropout.forward(hidden, &context.local);
        for block in &self.h {
            hidden = block.forward(hidden, &context);
        }
        let hidden = self.ln_f.forward(hidden);
        self.lm_head.as_ref().unwrap_or(&self.wte).logits(hidden)
    }

    /// Computes the cross-entropy of each token's successor.
    ///
    /// # Shapes
    /// - `tokens`: `[batch, seq]`, the same on every tensor-parallel rank
    /// - `targets`: `[batch, seq]`, likewise
    /// - output: `[batch * seq]`, in nats, the same on every tensor-parallel rank
    ///
    /// # Communication
    /// As [`logits`](Self::logits) and [`vocab_parallel_cross_entropy`].
    ///
    /// # Panics
    /// As [`logits`](Self::logits).
    pub fn token_losses(
        &self,
        tokens: Tensor<B, 2, Int>,
        targets: Tensor<B, 2, Int>,
        step: &StepCoordinates,
    ) -> Tensor<B, 1> {
        let logits = self.logits(tokens, step);
        let targets = targets.reshape([logits.dims()[0]]);
        vocab_parallel_cross_entropy(logits, targets, self.wte.vocab_shard(), &self.tensor_group)
    }
}

impl<B: AttentionBackend> LanguageModel<B> for Gpt<B> {
    fn token_losses(&self, batch: TokenBatch<B>) -> Tensor<B, 1> {
        Gpt::token_losses(self, batch.tokens, batch.targets, &batch.step)
    }

    fn vocab_size(&self) -> usize {
        self.wte.vocab_size()
    }
}
