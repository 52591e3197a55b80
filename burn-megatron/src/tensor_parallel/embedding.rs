//! `VocabParallelEmbedding`: a token embedding whose vocabulary is shared out over the tensor-parallel group, also as a
//! tied output head; and `PositionEmbedding`, which every rank holds.

use burn::config::Config;
use burn::module::{Module, Param};
use burn::nn::Embedding;
use burn::tensor::{Device, Int, Tensor};
use cubecl_kernels::embedding::{TokenRange, embedding};

use super::conversion::{ConversionError, check_drawn, named};
use super::product::ColumnParallelMatmul;
use super::{VocabShard, checked, take_shard};
use crate::collectives::{ProcessGroup, show_input};
use crate::context::{ParameterScope, ParameterSpec};
use crate::mappings::reduce_from_tensor_region;
use crate::parameters::{Distribution, ParameterInit, Placement, ShardIdentity};
use crate::precision::assert_dtype;
use crate::topology::TopologyError;

/// Configuration of [`VocabParallelEmbedding`].
#[derive(Config, Debug)]
pub struct VocabParallelEmbeddingConfig {
    /// The size of the vocabulary, without padding.
    pub n_embedding: usize,
    /// The size of each embedding.
    pub d_model: usize,
    /// The rows over all ranks, padding included; the next multiple of the tensor-parallel size if not given.
    pub padded_size: Option<usize>,
    /// How the rows start; burn's default for `Embedding`, N(0, 1), if not given.
    pub init: Option<ParameterInit>,
}

/// Looks tokens up in a table of which each rank holds a range of rows.
///
/// # Reference
/// Shoeybi et al. 2019, arXiv:1909.08053, section 3.
#[derive(Module, Debug)]
pub struct VocabParallelEmbedding {
    /// `[padded_size / tp, d_model]`: this rank's rows.
    pub weight: Param<Tensor<2>>,
    shard: VocabShard,
    sequence_parallel: bool,
    identity: ShardIdentity,
    #[module(skip)]
    product: ColumnParallelMatmul,
    #[module(skip)]
    group: ProcessGroup,
}

impl VocabParallelEmbeddingConfig {
    /// Returns the configuration with the sizes of an existing embedding, and the other settings as [`new`](Self::new)
    /// has them.
    pub fn of(embedding: &Embedding) -> Self {
        let [n_embedding, d_model] = embedding.weight.lazy_shape().dims();
        Self::new(n_embedding, d_model)
    }

    /// Returns a new embedding, initialised by its global name: the same numbers in every layout, padding zero.
    ///
    /// # Errors
    /// When the tensor-parallel size does not divide `padded_size`.
    ///
    /// # Panics
    /// When `padded_size` is below `n_embedding`.
    pub fn init(&self, device: &Device, scope: &ParameterScope) -> Result<VocabParallelEmbedding, TopologyError> {
        let shard = self.shard(scope)?;
        let placement = self.placement(shard);
        let identity = scope.shard_identity(&[("weight", &placement)]);
        let weight = scope.parameter(
            "weight",
            [shard.rows(), self.d_model],
            &ParameterSpec {
                placement,
                distribution: Distribution::Sharded,
                init: self.init.unwrap_or(ParameterInit::Normal { deviation: 1.0 }),
            },
            device,
        );
        Ok(Self::layer(weight, shard, identity, scope))
    }

    /// Returns this rank's rows of an existing embedding, which every rank holds in full, with these settings.
    ///
    /// # Errors
    /// As [`init`](Self::init); when the embedding has no values yet.
    ///
    /// # Panics
    /// When the embedding is not `[n_embedding, d_model]`.
    pub fn from_embedding(
        &self,
        embedding: Embedding,
        scope: &ParameterScope,
    ) -> Result<VocabParallelEmbedding, ConversionError> {
        assert_eq!(
            embedding.weight.lazy_shape().to_vec(),
            [self.n_embedding, self.d_model],
            "the embedding's shape against the configured [n_embedding, d_model]"
        );
        let shard = self
            .shard(&scope.context().root())
            .map_err(named(scope, "vocabulary-parallel embedding"))?;
        check_drawn(&embedding, scope)?;
        let placement = self.placement(shard);
        let identity = scope.shard_identity(&[("weight", &placement)]);
        let weight = take_shard(&embedding.weight, &placement, [shard.rows(), self.d_model], scope);
        scope.declare_sharded("weight", &weight, placement);
        Ok(Self::layer(weight, shard, identity, scope))
    }

    fn shard(&self, scope: &ParameterScope) -> Result<VocabShard, TopologyError> {
        let group = scope.context().tensor_group();
        let padded = self
            .padded_size
            .unwrap_or(self.n_embedding.next_multiple_of(group.size()));
        assert!(
            padded >= self.n_embedding,
            "a padded vocabulary of {padded} rows cannot hold {} tokens",
            self.n_embedding
        );
        scope.check_tensor_divides("the padded vocabulary", padded)?;
        Ok(VocabShard::new(self.n_embedding, padded, group))
    }

    fn placement(&self, shard: VocabShard) -> Placement {
        Placement::new(
            [self.n_embedding, self.d_model],
            [shard.start(), 0],
            [shard.rows(), self.d_model],
        )
    }

    fn layer(
        weight: Param<Tensor<2>>,
        shard: VocabShard,
        identity: ShardIdentity,
        scope: &ParameterScope,
    ) -> VocabParallelEmbedding {
        VocabParallelEmbedding {
            weight,
            shard,
            sequence_parallel: scope.context().is_sequence_parallel(),
            identity,
            product: ColumnParallelMatmul::new(scope.context()),
            group: scope.context().tensor_group().clone(),
        }
    }
}

impl VocabParallelEmbedding {
    /// Returns this rank's rows of an existing embedding, which every rank holds in full, with the settings of
    /// [`VocabParallelEmbeddingConfig::of`].
    ///
    /// # Errors
    /// As [`VocabParallelEmbeddingConfig::from_embedding`].
    pub fn from_embedding(embedding: Embedding, scope: &ParameterScope) -> Result<Self, ConversionError> {
        VocabParallelEmbeddingConfig::of(&embedding).from_embedding(embedding, scope)
    }

    /// The number of tokens, without padding.
    pub fn vocab_size(&self) -> usize {
        self.shard.size()
    }

    /// The range of the vocabulary that this rank holds.
    pub fn vocab_shard(&self) -> VocabShard {
        self.shard
    }
}

impl VocabParallelEmbedding {
    /// Returns the same embedding as the head of whole activations on every tensor-parallel rank, without sequence
    /// parallelism. For inference: the parameter stays declared as it is.
    pub fn with_whole_tokens(self) -> Self {
        Self {
            product: self.product.with_whole_tokens(),
            sequence_parallel: false,
            ..self
        }
    }

    /// Looks up every token: the rank that holds its row gives it, the others give zeros, and the sum is taken.
    ///
    /// # Shapes
    /// - `tokens`: `[batch * seq]`, the same on every tensor-parallel rank, below `n_embedding`
    /// - output: `[batch * seq, d_model]`, the same on every tensor-parallel rank, also under sequence parallelism:
    ///   position embeddings are added to all tokens before the scatter
    ///
    /// # Communication
    /// Forward: one all-reduce of the output over the tensor group. Backward: none.
    ///
    /// # Panics
    /// When the collective fails.
    pub fn forward(&self, tokens: Tensor<1, Int>) -> Tensor<2> {
        let is_shared = self.group.size() > 1;
        if is_shared {
            let place = || format!("the tokens of {}, an embedding", self.identity.layer());
            show_input(place, &tokens, &self.group);
        }
        let range = TokenRange {
            first: self.shard.start(),
            count: self.shard.valid(),
        };
        let rows = checked(embedding(self.weight.val(), tokens, range));
        if is_shared {
            reduce_from_tensor_region(rows, &self.group)
        } else {
            rows
        }
    }

    /// Scores hidden states against every embedding: the tied output head.
    ///
    /// # Shapes
    /// - `hidden`: `[batch * seq, d_model]`, the same on every tensor-parallel rank; under sequence parallelism
    ///   `[batch * seq / tp, d_model]`, this rank's tokens
    /// - output: `[batch * seq, padded_size / tp]`, this rank's part of the vocabulary, for
    ///   [`vocab_parallel_cross_entropy`](super::vocab_parallel_cross_entropy)
    ///
    /// # Communication
    /// As [`ColumnParallelLinear::forward`](super::ColumnParallelLinear::forward).
    ///
    /// # Panics
    /// When a collective fails, or the hidden states are not of the embedding's type.
    pub fn logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        assert_dtype("output head", "the input", hidden.dtype(), self.weight.val().dtype());
        self.product.transposed(hidden, self.weight.val())
    }

    /// Computes each token's cross-entropy, with the logits of `chunk_tokens` tokens at most in one buffer: as
    /// [`logits`](Self::logits) and `loss`, whose result it has except for rounding.
    ///
    /// All logits are kept from the forward to the backward pass, as in one buffer. Smaller buffers fit pages of a
    /// device's memory that others use too.
    ///
    /// # Shapes
    /// - `hidden`: as of [`logits`](Self::logits)
    /// - `targets`: `[batch * seq]`, the same on every tensor-parallel rank
    /// - output: `[batch * seq]`
    ///
    /// # Communication
    /// Forward: under sequence parallelism one all-gather of the hidden states, and that of `loss` for each chunk.
    /// Backward: one all-reduce of the hidden states' gradient over the tensor group, or one reduce-scatter under
    /// sequence parallelism, after that of the weight.
    ///
    /// # Panics
    /// When `chunk_tokens` is 0, the number of targets is not that of the tokens, or both are 0. As
    /// [`logits`](Self::logits).
    pub fn losses_in_chunks(
        &self,
        hidden: Tensor<2>,
        targets: Tensor<1, Int>,
        chunk_tokens: usize,
        loss: impl Fn(Tensor<2>, Tensor<1, Int>) -> Tensor<1>,
    ) -> Tensor<1> {
        assert!(chunk_tokens > 0, "chunks of no tokens");
        let weight = self.weight.val();
        assert_dtype("output head", "the input", hidden.dtype(), weight.dtype());
        let hidden = self.product.entered(hidden);
        let tokens = hidden.dims()[0];
        assert_eq!(targets.dims(), [tokens], "a target for each token");
        let losses = (0..tokens).step_by(chunk_tokens).map(|first| {
            let count = chunk_tokens.min(tokens - first);
            let rows = hidden.clone().narrow(0, first, count);
            let logits = self.product.entered_transposed(rows, weight.clone());
            loss(logits, targets.clone().narrow(0, first, count))
        });
        Tensor::cat(losses.collect(), 0)
    }
}

/// Configuration of [`PositionEmbedding`].
#[derive(Config, Debug)]
pub struct PositionEmbeddingConfig {
    /// The longest sequence.
    pub max_seq_length: usize,
    /// The size of each embedding.
    pub d_model: usize,
    /// How the rows start.
    #[config(default = "ParameterInit::Normal { deviation: 0.02 }")]
    pub init: ParameterInit,
}

/// Learned embeddings of positions, held by every tensor-parallel rank.
#[derive(Module, Debug)]
pub struct PositionEmbedding {
    /// `[max_seq_length, d_model]`.
    pub weight: Param<Tensor<2>>,
}

impl PositionEmbeddingConfig {
    /// Returns a new embedding, initialised by its global name.
    pub fn init(&self, device: &Device, scope: &ParameterScope) -> PositionEmbedding {
        let shape = [self.max_seq_length, self.d_model];
        let spec = ParameterSpec {
            placement: Placement::whole(shape),
            distribution: Distribution::Replicated,
            init: self.init,
        };
        PositionEmbedding {
            weight: scope.parameter("weight", shape, &spec, device),
        }
    }
}

impl PositionEmbedding {
    /// Returns an existing embedding, which every rank holds in full.
    ///
    /// # Errors
    /// When the embedding has no values yet.
    pub fn from_embedding(embedding: Embedding, scope: &ParameterScope) -> Result<Self, ConversionError> {
        check_drawn(&embedding, scope)?;
        scope.context().registry().mark_converted(embedding.weight.id);
        scope.declare_replicated("weight", &embedding.weight);
        Ok(Self {
            weight: embedding.weight,
        })
    }

    /// Adds each position's embedding to the tokens at it.
    ///
    /// # Shapes
    /// - `input`: `[batch * seq, d_model]`, whole samples of `seq_length` tokens
    /// - output: as `input`
    ///
    /// # Panics
    /// When `seq_length` is above `max_seq_length` or does not divide the tokens, or the input is not of the
    /// embedding's type.
    pub fn forward(&self, input: Tensor<2>, seq_length: usize) -> Tensor<2> {
        let [tokens, d_model] = input.dims();
        let [max_seq_length, _] = self.weight.dims();
        assert!(
            seq_length <= max_seq_length && tokens.is_multiple_of(seq_length),
            "{tokens} tokens in samples of {seq_length}, with {max_seq_length} positions"
        );
        let weight = self.weight.val();
        assert_dtype("position embedding", "the input", input.dtype(), weight.dtype());
        // The gradient of a slice is a table of zeros, written to.
        let positions = match seq_length {
            all if all == max_seq_length => weight,
            some => weight.slice(0..some),
        };
        let positions = positions.unsqueeze::<3>();
        // [batch, seq, d_model] + [1, seq, d_model]
        let output = input.reshape([tokens / seq_length, seq_length, d_model]) + positions;
        output.reshape([tokens, d_model])
    }

    /// Adds the embedding of its own position to each token: of a sequence that has begun before, or of documents that
    /// are packed into samples.
    ///
    /// # Shapes
    /// - `input`: `[tokens, d_model]`
    /// - `positions`: `[tokens]`, below `max_seq_length`
    /// - output: as `input`
    ///
    /// # Panics
    /// When the input is not of the embedding's type, or there is another number of positions.
    pub fn forward_at(&self, input: Tensor<2>, positions: Tensor<1, Int>) -> Tensor<2> {
        let weight = self.weight.val();
        assert_dtype("position embedding", "the input", input.dtype(), weight.dtype());
        input + weight.select(0, positions)
    }
}
