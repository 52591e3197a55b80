//! `Decoder`: embeddings, blocks, norm, head and loss; a whole model, or one of the stages that it was cut into.

use std::ops::Range;

use burn::module::Module;
use burn::tensor::{Device, Int, Tensor};
use burn_megatron::collectives::ProcessGroup;
use burn_megatron::context::{ParallelContext, ParameterScope};
use burn_megatron::mappings::scatter_to_tensor_region;
use burn_megatron::pipeline_parallel::{LayerLayout, PipelineStage, StageOutput, forward_segments};
use burn_megatron::random::{Dropout, DropoutConfig, DropoutSite, StepCoordinates};
use burn_megatron::tensor_parallel::{
    PositionEmbedding, PositionEmbeddingConfig, VocabParallelEmbedding, VocabParallelEmbeddingConfig,
    vocab_parallel_margin,
};
use burn_megatron::training::{LanguageModel, TokenBatch};

use super::config::{DecoderConfig, Positions};
use super::masked::{MaskedTokenHead, PairHead};
use crate::layers::{
    Alibi, Block, ModelError, ModelPart, Norm, OutputHead, Rotary, Segment, Segmentation, TokenContext, drop_rows,
    validate_head_size,
};

/// The number of the embedding's dropout site; its layer is the one after the last.
const EMBEDDING_SITE: u32 = 0;

/// A decoder-only model, one for every layout: all of it, or the part that a chunk of a pipeline stage holds.
///
/// The first virtual stage has the embeddings, the last one the final norm and the head; a tied head is a copy of the
/// token embedding there. Blocks are named by their global numbers.
///
/// Shape legend: `batch` samples of `seq` tokens; activations are `[batch * seq, d_model]`, tokens leading.
#[derive(Module, Debug)]
pub struct Decoder {
    /// Token embedding on the first virtual stage; where it is tied, the output head on the last one, too.
    pub token_embedding: Option<VocabParallelEmbedding>,
    /// Position embedding, on the first virtual stage, where it is learned.
    pub position_embedding: Option<PositionEmbedding>,
    /// Embedding of token types, on the first virtual stage, where the model has them.
    pub token_types: Option<PositionEmbedding>,
    /// The norm of the embeddings, on the first virtual stage, where there is one.
    pub embedding_norm: Option<Norm>,
    /// The blocks that are here.
    pub blocks: Vec<Block>,
    /// The final norm, on the last virtual stage, where the model has one.
    pub norm: Option<Norm>,
    /// Layers around the output head of a model of masked tokens, on the last virtual stage.
    pub masked: Option<MaskedTokenHead>,
    /// The head that tells pairs of sentences apart, on the last virtual stage, if the model has one.
    pub pairs: Option<PairHead>,
    /// The output head where it is not tied, on the last virtual stage: as the embedding, a row per token of the
    /// vocabulary.
    pub head: Option<VocabParallelEmbedding>,
    is_first: bool,
    is_last: bool,
    embedding_dropout: Dropout,
    #[module(skip)]
    segmentation: Segmentation,
    #[module(skip)]
    logit_chunk_tokens: Option<usize>,
    vocab_size: usize,
    d_model: usize,
    sequence_parallel: bool,
    #[module(skip)]
    tensor_group: ProcessGroup,
}

impl DecoderConfig {
    /// Returns a new, whole model, this tensor rank's part of it, initialised by global names: the same numbers in
    /// every layout. Its parameters are named in `scope`.
    ///
    /// # Errors
    /// When a size does not divide, fused attention does not compute with the heads, or the layout has pipeline stages.
    pub fn init_in(&self, device: &Device, scope: &ParameterScope) -> Result<Decoder, ModelError> {
        let part = ModelPart::whole(self.n_layers, scope.context())?;
        self.validate_heads()?;
        self.init_part(&part, device, scope)
    }

    /// Returns the chunks of this rank's pipeline stage, initialised likewise.
    ///
    /// # Errors
    /// As [`init_in`](Self::init_in); when `layers` is not for this model or this layout.
    pub fn init_stage(
        &self,
        layers: &LayerLayout,
        device: &Device,
        context: &ParallelContext,
    ) -> Result<Vec<Decoder>, ModelError> {
        self.validate_heads()?;
        let parts = ModelPart::of_stage(self.n_layers, layers, context)?;
        let scope = context.root();
        parts.iter().map(|part| self.init_part(part, device, &scope)).collect()
    }

    fn validate_heads(&self) -> Result<(), ModelError> {
        let attention = &self.block.attention;
        let d_head = attention.d_head.unwrap_or(attention.d_model / attention.n_heads);
        validate_head_size(d_head)
    }

    fn init_part(&self, part: &ModelPart, device: &Device, scope: &ParameterScope) -> Result<Decoder, ModelError> {
        let (names, d_model) = (&self.names, self.d_model());
        let embedding = VocabParallelEmbeddingConfig::new(self.vocab_size, d_model)
            .with_padded_size(Some(self.padded_vocab_size))
            .with_init(Some(self.init));
        let has_embedding = part.is_first || (part.is_last && self.tied_embeddings);
        let token_embedding = has_embedding
            .then(|| embedding.init(device, &scope.scope(names.token_embedding)))
            .transpose()?;
        if let (Some(embedding), true) = (&token_embedding, self.tied_embeddings) {
            scope.context().declare_tied(&embedding.weight);
        }
        let position_embedding = match self.positions {
            Positions::Learned(count) if part.is_first => Some(
                PositionEmbeddingConfig::new(count, d_model)
                    .with_init(self.init)
                    .init(device, &scope.scope(names.position_embedding)),
            ),
            _ => None,
        };
        let masked = self.masked.as_ref();
        let token_types = masked.filter(|_| part.is_first).map(|masked| {
            PositionEmbeddingConfig::new(masked.token_types, d_model)
                .with_init(self.init)
                .init(device, &scope.scope(masked.names.token_types))
        });
        let norm = |name: &str| {
            let scope = scope.scope(name);
            self.block.norm.init(d_model, self.block.norm_epsilon, device, &scope)
        };
        // Of all layers, which share what they have on the device.
        let rotary = match &self.positions {
            Positions::Rotary(config) => Some(Rotary::new(config.clone())),
            _ => None,
        };
        let alibi = match self.positions {
            Positions::Alibi => Some(Alibi::new(self.block.attention.n_heads, scope.context())?),
            _ => None,
        };
        let block = |layer: usize| {
            let scope = scope.scope(format!("{}.{layer}", names.blocks));
            let block = self.block.init(layer, &names.block, device, &scope)?;
            Ok::<_, ModelError>(match (&rotary, &alibi) {
                (Some(rotary), _) => block.with_rotary(rotary.clone()),
                (None, Some(alibi)) => block.with_alibi(alibi.clone()),
                (None, None) => block,
            })
        };
        let head = (part.is_last && !self.tied_embeddings)
            .then(|| embedding.init(device, &scope.scope(names.head)))
            .transpose()?;
        let masked = masked.filter(|_| part.is_last);
        let masked_head = masked.map(|masked| {
            let head = head.as_ref().or(token_embedding.as_ref());
            let shard = head.expect("the last virtual stage has a head").vocab_shard();
            MaskedTokenHead::init(self, masked, shard, device, scope)
        });
        let pairs = masked
            .filter(|masked| masked.tells_pairs)
            .map(|masked| PairHead::init(self, masked, device, scope));
        let embedding_site = DropoutSite {
            layer: self.n_layers as u32,
            number: EMBEDDING_SITE,
        };
        Ok(Decoder {
            is_first: part.is_first,
            is_last: part.is_last,
            token_types,
            embedding_norm: names.embedding_norm.filter(|_| part.is_first).map(norm),
            blocks: part.layers.clone().map(block).collect::<Result<_, _>>()?,
            norm: names.norm.filter(|_| part.is_last).map(norm),
            masked: masked_head,
            pairs,
            token_embedding,
            position_embedding,
            head,
            embedding_dropout: DropoutConfig::new(self.block.hidden_dropout).init(embedding_site),
            segmentation: Segmentation::new(self.layer_recompute, scope.context()),
            logit_chunk_tokens: self.logit_chunk_tokens,
            vocab_size: self.vocab_size,
            d_model,
            sequence_parallel: scope.context().is_sequence_parallel(),
            tensor_group: scope.context().tensor_group().clone(),
        })
    }
}

impl Decoder {
    /// The same model, or stage, for whole activations on every tensor-parallel rank. For inference.
    pub(super) fn without_sequence_parallelism(self) -> Self {
        Self {
            token_embedding: self.token_embedding.map(VocabParallelEmbedding::with_whole_tokens),
            blocks: self.blocks.into_iter().map(Block::with_whole_tokens).collect(),
            head: self.head.map(VocabParallelEmbedding::with_whole_tokens),
            sequence_parallel: false,
            ..self
        }
    }

    /// Scores the vocabulary after each token.
    ///
    /// # Shapes
    /// - `tokens`: `[batch, seq]`, the same on every tensor-parallel rank
    /// - output: `[batch * seq, padded_vocab_size / tp]`, this rank's part of the vocabulary
    ///
    /// # Communication
    /// Forward: one all-reduce of `batch * seq * d_model` elements over the tensor group for the embedding, and that of
    /// [`Block::forward`] per block. Backward: one more for the head, and that of [`Block::forward`] per block.
    ///
    /// # Panics
    /// When `step` has not `batch * seq` tokens, the sequence is longer than the positions, a collective fails, or this
    /// is a stage and not the whole model.
    pub fn logits(&self, tokens: Tensor<2, Int>, step: &StepCoordinates) -> Tensor<2> {
        self.scores(self.hidden_states(tokens, step))
    }

    /// Scores as [`logits`](Self::logits) does, a micro-batch with its token types, positions and documents.
    pub fn logits_of(&self, batch: &TokenBatch) -> Tensor<2> {
        let (hidden, _) = self.run_segment(&self.whole_segment(), None, batch);
        self.scores(hidden)
    }

    /// Scores the vocabulary after the last block, `[tokens, padded_vocab_size / tp]`.
    pub(super) fn scores(&self, hidden: Tensor<2>) -> Tensor<2> {
        let hidden = self.head_input(self.normalized(hidden));
        self.with_head_bias(self.output_head().embedding.logits(hidden))
    }

    /// Computes the cross-entropy of each token's successor.
    ///
    /// # Shapes
    /// - `tokens`: `[batch, seq]`, the same on every tensor-parallel rank
    /// - `targets`: `[batch, seq]`, likewise
    /// - output: `[batch * seq]`, in nats, the same on every tensor-parallel rank; f32 where the parameters have 16
    ///   bits
    ///
    /// # Communication
    /// As [`logits`](Self::logits) and
    /// [`vocab_parallel_cross_entropy`](burn_megatron::tensor_parallel::vocab_parallel_cross_entropy).
    ///
    /// # Panics
    /// As [`logits`](Self::logits).
    pub fn token_losses(&self, tokens: Tensor<2, Int>, targets: Tensor<2, Int>, step: &StepCoordinates) -> Tensor<1> {
        self.losses(self.normalized(self.hidden_states(tokens, step)), targets)
    }

    fn hidden_states(&self, tokens: Tensor<2, Int>, step: &StepCoordinates) -> Tensor<2> {
        let context = self.token_context(step, tokens.dims()[1]);
        let hidden = self.embed(tokens, None, None, &context);
        self.run_blocks(0..self.blocks.len(), hidden, &context)
    }

    fn token_context(&self, step: &StepCoordinates, seq: usize) -> TokenContext {
        TokenContext::new(step, seq, self.sequence_group())
    }

    fn sequence_group(&self) -> Option<&ProcessGroup> {
        self.sequence_parallel.then_some(&self.tensor_group)
    }

    /// `[batch, seq]` to `[batch * seq, d_model]`: this rank's tokens only, under sequence parallelism. Positions are
    /// `[batch * seq]`, or the tokens' places in their samples; token types `[batch * seq]`, or all 0.
    fn embed(
        &self,
        tokens: Tensor<2, Int>,
        positions: Option<Tensor<1, Int>>,
        token_types: Option<Tensor<1, Int>>,
        context: &TokenContext,
    ) -> Tensor<2> {
        let Some(embedding) = self.token_embedding.as_ref().filter(|_| self.is_first) else {
            panic!("tokens are embedded by the first virtual stage, and this is another");
        };
        let [batch, seq] = tokens.dims();
        let embedded = embedding.forward(tokens.reshape([batch * seq]));
        let embedded = match (&self.position_embedding, positions) {
            (Some(embedding), Some(positions)) => embedding.forward_at(embedded, positions),
            (Some(embedding), None) => embedding.forward(embedded, seq),
            (None, _) => embedded,
        };
        let embedded = match &self.token_types {
            Some(embedding) => {
                let types = token_types.unwrap_or_else(|| Tensor::zeros([batch * seq], &embedded.device()));
                embedding.forward_at(embedded, types)
            }
            None => embedded,
        };
        let hidden = match self.sequence_group() {
            Some(group) => scatter_to_tensor_region(embedded, 0, group),
            None => embedded,
        };
        drop_rows(&self.embedding_dropout, self.normed_embedding(hidden), &context.local)
    }

    /// The embeddings of tokens, `[tokens, d_model]`, as the first block or their dropout takes them.
    pub(super) fn normed_embedding(&self, embedded: Tensor<2>) -> Tensor<2> {
        match &self.embedding_norm {
            Some(norm) => norm.forward(embedded),
            None => embedded,
        }
    }

    fn run_blocks(&self, blocks: Range<usize>, hidden: Tensor<2>, context: &TokenContext) -> Tensor<2> {
        self.blocks[blocks]
            .iter()
            .fold(hidden, |hidden, block| block.forward(hidden, context))
    }

    /// `[batch * seq, d_model]`, of this rank's tokens under sequence parallelism, as the head reads it.
    pub(super) fn normalized(&self, hidden: Tensor<2>) -> Tensor<2> {
        assert!(
            self.is_last,
            "the vocabulary is scored by the last virtual stage, and this is another"
        );
        match &self.norm {
            Some(norm) => norm.forward(hidden),
            None => hidden,
        }
    }

    fn head_input(&self, hidden: Tensor<2>) -> Tensor<2> {
        match &self.masked {
            Some(head) => head.transformed(hidden),
            None => hidden,
        }
    }

    fn with_head_bias(&self, logits: Tensor<2>) -> Tensor<2> {
        match &self.masked {
            Some(head) => head.bias.forward(logits),
            None => logits,
        }
    }

    /// The cross-entropy of each token's target: normalized `[batch * seq, d_model]` to `[batch * seq]`.
    fn losses(&self, hidden: Tensor<2>, targets: Tensor<2, Int>) -> Tensor<1> {
        self.head_in_chunks(hidden, targets, |head, logits, targets| {
            head.cross_entropy(logits, targets)
        })
    }

    /// The losses of all tokens, and after them those of pairs whose order is to be learnt.
    fn all_losses(&self, hidden: Tensor<2>, targets: Tensor<2, Int>, batch: &TokenBatch) -> Tensor<1> {
        let hidden = self.normalized(hidden);
        let of_pairs = self.pairs.as_ref().zip(batch.pair_targets(&hidden.device()));
        let of_pairs = of_pairs.map(|(head, targets)| head.losses(hidden.clone(), batch.seq_length, targets));
        let of_tokens = self.losses(hidden, targets);
        match of_pairs {
            Some(of_pairs) => Tensor::cat(vec![of_tokens, of_pairs], 0),
            None => of_tokens,
        }
    }

    /// The cross-entropy of each token's target, and its margin: normalized `[batch * seq, d_model]` to
    /// `[batch * seq * 2]`.
    pub(super) fn losses_and_margins(&self, hidden: Tensor<2>, targets: Tensor<2, Int>) -> Tensor<1> {
        self.head_in_chunks(hidden, targets, |head, logits, targets| {
            let losses = head.cross_entropy(logits.clone(), targets.clone());
            let margins = vocab_parallel_margin(logits, targets, head.embedding.vocab_shard(), head.group);
            let [tokens] = losses.dims();
            // [tokens, 2]
            let both = Tensor::stack::<2>(vec![losses, margins], 1);
            both.reshape([2 * tokens])
        })
    }

    /// Applies a function to the logits and targets of all tokens, token after token.
    fn head_in_chunks(
        &self,
        hidden: Tensor<2>,
        targets: Tensor<2, Int>,
        of_logits: impl Fn(&OutputHead, Tensor<2>, Tensor<1, Int>) -> Tensor<1>,
    ) -> Tensor<1> {
        let head = self.output_head();
        head.in_chunks(self.head_input(hidden), targets, |logits, targets| {
            of_logits(&head, self.with_head_bias(logits), targets)
        })
    }

    fn output_head(&self) -> OutputHead<'_> {
        let embedding = self.head.as_ref().or(self.token_embedding.as_ref());
        OutputHead {
            embedding: embedding.expect("the last virtual stage has a head"),
            chunk_tokens: self.logit_chunk_tokens,
            group: &self.tensor_group,
        }
    }

    /// The whole of it, without recomputation.
    pub(super) fn whole_segment(&self) -> Segment {
        Segment {
            has_embedding: self.is_first,
            blocks: 0..self.blocks.len(),
            has_head: self.is_last,
            is_recomputed: false,
        }
    }

    fn segments(&self) -> Vec<Segment> {
        self.segmentation
            .segments(self.blocks.len(), self.is_first, self.is_last)
    }

    /// The hidden states after a segment; with the targets after the last one of the model, which the head comes after.
    pub(super) fn run_segment(
        &self,
        segment: &Segment,
        input: Option<Tensor<2>>,
        batch: &TokenBatch,
    ) -> (Tensor<2>, Option<Tensor<2, Int>>) {
        // Asked of one parameter, which need not be here yet.
        let device = match (&input, &self.token_embedding) {
            (Some(input), _) => input.device(),
            (None, Some(embedding)) => embedding.weight.lazy_device(),
            (None, None) => panic!("what is not the first segment of the model has an input"),
        };
        let context = self.token_context(&batch.step, batch.seq_length);
        let context = context
            .with_documents(batch.documents.clone())
            .with_positions(batch.host_positions());
        let (tokens, targets) = match (segment.has_embedding, segment.has_head) {
            (true, true) => {
                let [tokens, targets] = batch.tokens_and_targets(&device);
                (Some(tokens), Some(targets))
            }
            (is_first, is_last) => (
                is_first.then(|| batch.tokens(&device)),
                is_last.then(|| batch.targets(&device)),
            ),
        };
        let hidden = match tokens {
            Some(tokens) => {
                // Where they are not the tokens' places in their samples.
                let positions = self.position_embedding.as_ref().and(batch.positions(&device));
                let token_types = self.token_types.as_ref().and(batch.token_types(&device));
                self.embed(tokens, positions, token_types, &context)
            }
            None => input.expect("what is not the first segment of the model has an input"),
        };
        (self.run_blocks(segment.blocks.clone(), hidden, &context), targets)
    }
}

impl PipelineStage<2> for Decoder {
    type MicroBatch = TokenBatch;

    fn input_shape(&self, batch: &TokenBatch) -> [usize; 2] {
        let tokens = match self.sequence_group() {
            Some(group) => batch.num_tokens() / group.size(),
            None => batch.num_tokens(),
        };
        [tokens, self.d_model]
    }

    fn forward(&self, input: Option<Tensor<2>>, batch: &TokenBatch) -> StageOutput<2> {
        forward_segments(self, input, batch)
    }

    fn num_segments(&self) -> usize {
        self.segments().len()
    }

    fn is_recomputed(&self, segment: usize) -> bool {
        self.segments()[segment].is_recomputed
    }

    fn is_offloaded(&self, segment: usize) -> bool {
        self.segmentation.is_offloaded(&self.segments()[segment])
    }

    fn forward_segment(&self, segment: usize, input: Option<Tensor<2>>, batch: &TokenBatch) -> StageOutput<2> {
        let (hidden, targets) = self.run_segment(&self.segments()[segment], input, batch);
        match targets {
            Some(targets) => StageOutput::Losses(self.all_losses(hidden, targets, batch)),
            None => StageOutput::Activation(hidden),
        }
    }
}

impl LanguageModel for Decoder {
    fn vocab_size(&self) -> usize {
        self.vocab_size
    }
}
