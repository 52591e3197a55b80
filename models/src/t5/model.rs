//! `T5`: a whole model, or one of the stages that it was cut into.

use std::ops::Range;

use burn::module::Module;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use burn_megatron::collectives::ProcessGroup;
use burn_megatron::mappings::scatter_to_tensor_region;
use burn_megatron::pipeline_parallel::{PipelineStage, StageOutput, forward_segments};
use burn_megatron::precision::widen;
use burn_megatron::random::Dropout;
use burn_megatron::tensor_parallel::VocabParallelEmbedding;
use burn_megatron::training::{EncoderBatch, LanguageModel, TokenBatch};

use super::decoder_block::Encoded;
use super::stream::{Stream, StreamSizes};
use super::{DecoderBlock, T5Config};
use crate::layers::{
    Block, DistanceBuckets, MemoryTokens, ModelPart, Norm, OutputHead, RelativeBias, Segment, Segmentation,
    TokenContext, drop_rows,
};

/// The dropout sites outside the blocks.
const ENCODER_EMBEDDING: usize = 0;
const DECODER_EMBEDDING: usize = 1;
const ENCODER_OUTPUT: usize = 2;
const DECODER_OUTPUT: usize = 3;

/// A T5, one for every layout: all of it, or the part that a chunk of a pipeline stage holds.
///
/// The first virtual stage has the embedding, of both texts; the last one the decoder's final norm and the head, which
/// is a copy of the embedding where it is tied. Blocks of the encoder come before those of the decoder.
///
/// Shape legend: `batch` samples of `encoder_seq` and `seq` tokens; activations are `[tokens, d_model]`, tokens
/// leading.
#[derive(Module, Debug)]
pub struct T5 {
    /// Embedding of the tokens of both texts on the first virtual stage; where it is tied, the output head on the last
    /// one, too.
    pub shared: Option<VocabParallelEmbedding>,
    /// The encoder's relative position bias, on the stage of its first block.
    pub encoder_bias: Option<RelativeBias>,
    /// The encoder's blocks that are here.
    pub encoder: Vec<Block>,
    /// The encoder's final norm, on the stage of its last block.
    pub encoder_norm: Option<Norm>,
    /// The decoder's relative position bias, on the stage of its first block.
    pub decoder_bias: Option<RelativeBias>,
    /// The decoder's blocks that are here.
    pub decoder: Vec<DecoderBlock>,
    /// The decoder's final norm, on the last virtual stage.
    pub decoder_norm: Option<Norm>,
    /// The output head where it is not tied, on the last virtual stage.
    pub head: Option<VocabParallelEmbedding>,
    pub(super) dropouts: [Dropout; 4],
    #[module(skip)]
    pub(super) part: ModelPart,
    #[module(skip)]
    pub(super) config: T5Config,
    #[module(skip)]
    pub(super) segmentation: Segmentation,
    pub(super) sequence_parallel: bool,
    #[module(skip)]
    pub(super) tensor_group: ProcessGroup,
}

/// Both texts of a micro-batch, as the blocks must know them.
struct Texts {
    encoder: TokenContext,
    decoder: TokenContext,
    memory: MemoryTokens,
}

fn encoder_batch(batch: &TokenBatch) -> &EncoderBatch {
    batch.encoder.as_ref().expect("a T5 reads a text for its encoder")
}

impl T5 {
    fn sequence_group(&self) -> Option<&ProcessGroup> {
        self.sequence_parallel.then_some(&self.tensor_group)
    }

    fn texts(&self, batch: &TokenBatch) -> Texts {
        let (encoder, group) = (encoder_batch(batch), self.sequence_group());
        let (seq, documents) = (encoder.tokens.seq_length, encoder.documents.clone());
        Texts {
            encoder: TokenContext::new(&encoder.step, seq, group).with_documents(Some(documents)),
            decoder: TokenContext::new(&batch.step, batch.seq_length, group),
            memory: MemoryTokens {
                lengths: encoder.key_lengths.clone(),
                step: encoder.step.clone(),
            },
        }
    }

    /// Returns the sizes of the stream before a block, by the block's global number.
    fn sizes(&self, layer: usize, batch: &TokenBatch) -> StreamSizes {
        let encoder = encoder_batch(batch);
        let ranks = self.sequence_group().map_or(1, ProcessGroup::size);
        let heads = self.config.n_heads / self.tensor_group.size();
        // A half's bias is there from its first block on.
        let has_bias = layer != 0 && layer != self.config.n_encoder_layers;
        StreamSizes {
            encoder: batch.micro_batch_size * encoder.tokens.seq_length / ranks,
            decoder: batch.num_tokens() / ranks,
            bias: has_bias.then_some([self.config.distance_buckets, heads]),
            d_model: self.config.d_model,
        }
    }

    fn segments(&self) -> Vec<Segment> {
        let ModelPart {
            layers,
            is_first,
            is_last,
        } = &self.part;
        self.segmentation.segments(layers.len(), *is_first, *is_last)
    }

    /// `[batch, seq]` to `[batch * seq, d_model]`: this rank's tokens only, under sequence parallelism.
    fn embed(&self, tokens: &[i32], site: usize, context: &TokenContext, device: &Device) -> Tensor<2> {
        let Some(embedding) = self.shared.as_ref().filter(|_| self.part.is_first) else {
            panic!("tokens are embedded by the first virtual stage, and this is another");
        };
        let data = TensorData::new(tokens.to_vec(), [tokens.len()]);
        let embedded = embedding.forward(Tensor::<1, Int>::from_data(data, (device, DType::I32)));
        let hidden = match self.sequence_group() {
            Some(group) => scatter_to_tensor_region(embedded, 0, group),
            None => embedded,
        };
        self.dropped(hidden, site, context)
    }

    fn dropped(&self, hidden: Tensor<2>, site: usize, context: &TokenContext) -> Tensor<2> {
        drop_rows(&self.dropouts[site], hidden, &context.local)
    }

    /// The table that attention adds to its scores; in f32 where the weights have 16 bits.
    fn table(&self, buckets: DistanceBuckets, weights: &Option<Tensor<2>>, seq: usize) -> Tensor<2> {
        let weights = weights.as_ref().expect("a half begins with its bias");
        buckets.table(widen(weights.clone()), seq, seq)
    }

    /// Runs blocks, by their numbers in the chunk.
    fn run_blocks(&self, mut stream: Stream, blocks: Range<usize>, texts: &Texts) -> Stream {
        let first = self.part.layers.start;
        let [of_encoder, of_decoder] = self.config.halves(&(first + blocks.start..first + blocks.end));
        let [first_of_encoder, first_of_decoder] = self.config.halves(&self.part.layers).map(|half| half.start);
        if !of_encoder.is_empty() {
            if of_encoder.start == 0 {
                stream.bias = self.encoder_bias.as_ref().map(|bias| bias.weight.val());
            }
            let table = self.table(self.config.buckets(true), &stream.bias, texts.encoder.seq_length);
            for layer in of_encoder.clone() {
                let (block, table) = (&self.encoder[layer - first_of_encoder], Some(table.clone()));
                stream.encoder = block.forward_with_position_bias(stream.encoder, table, &texts.encoder);
            }
            if of_encoder.end == self.config.n_encoder_layers {
                let norm = self.encoder_norm.as_ref().expect("the encoder ends here");
                stream.encoder = self.dropped(norm.forward(stream.encoder), ENCODER_OUTPUT, &texts.encoder);
                stream.bias = None;
            }
        }
        if !of_decoder.is_empty() {
            let encoded = Encoded {
                output: stream.encoder.clone(),
                tokens: texts.memory.clone(),
            };
            if of_decoder.start == 0 {
                stream.bias = self.decoder_bias.as_ref().map(|bias| bias.weight.val());
            }
            let table = self.table(self.config.buckets(false), &stream.bias, texts.decoder.seq_length);
            for layer in of_decoder {
                let block = &self.decoder[layer - first_of_decoder];
                stream.decoder = block.forward(stream.decoder, &encoded, table.clone(), &texts.decoder);
            }
        }
        stream
    }

    /// The cross-entropy of each token's target: the decoder's hidden states to `[batch * seq]`.
    fn losses(&self, hidden: Tensor<2>, batch: &TokenBatch, context: &TokenContext) -> Tensor<1> {
        let (hidden, head) = (self.head_input(hidden, context), self.output_head());
        let targets = batch.targets(&hidden.device());
        head.in_chunks(hidden, targets, |logits, targets| head.cross_entropy(logits, targets))
    }

    /// Returns the head's input: normed, and divided by `√d_model` where the model does.
    fn head_input(&self, hidden: Tensor<2>, context: &TokenContext) -> Tensor<2> {
        let norm = self.decoder_norm.as_ref().expect("the last virtual stage");
        let hidden = self.dropped(norm.forward(hidden), DECODER_OUTPUT, context);
        if self.config.scales_head {
            hidden.mul_scalar((self.config.d_model as f64).powf(-0.5))
        } else {
            hidden
        }
    }

    fn output_head(&self) -> OutputHead<'_> {
        let embedding = self.head.as_ref().or(self.shared.as_ref());
        OutputHead {
            embedding: embedding.expect("the last virtual stage has a head"),
            chunk_tokens: self.config.logit_chunk_tokens,
            group: &self.tensor_group,
        }
    }

    /// Scores the vocabulary at each of the decoder's tokens.
    ///
    /// # Shapes
    /// - output: `[batch * seq, padded_vocab_size / tp]`, this rank's part of the vocabulary
    ///
    /// # Communication
    /// That of the forward pass.
    ///
    /// # Panics
    /// When the batch has no text for the encoder, a collective fails, or this is a stage and not the whole model.
    pub fn logits(&self, batch: &TokenBatch) -> Tensor<2> {
        let texts = self.texts(batch);
        let stream = self.embedded(batch, &texts);
        let stream = self.run_blocks(stream, 0..self.part.layers.len(), &texts);
        let hidden = self.head_input(stream.decoder, &texts.decoder);
        self.output_head().embedding.logits(hidden)
    }

    /// Both texts, embedded.
    fn embedded(&self, batch: &TokenBatch, texts: &Texts) -> Stream {
        let embedding = self.shared.as_ref().expect("the first virtual stage embeds");
        let device = embedding.weight.lazy_device();
        Stream {
            encoder: self.embed(
                &encoder_batch(batch).tokens.tokens,
                ENCODER_EMBEDDING,
                &texts.encoder,
                &device,
            ),
            decoder: self.embed(batch.host_tokens(), DECODER_EMBEDDING, &texts.decoder, &device),
            bias: None,
        }
    }
}

impl PipelineStage<2> for T5 {
    type MicroBatch = TokenBatch;

    fn input_shape(&self, batch: &TokenBatch) -> [usize; 2] {
        [self.sizes(self.part.layers.start, batch).rows(), self.config.d_model]
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
        let segment = &self.segments()[segment];
        let texts = self.texts(batch);
        let first = self.part.layers.start + segment.blocks.start;
        let stream = match input {
            Some(rows) => self.sizes(first, batch).split(rows),
            None => self.embedded(batch, &texts),
        };
        let stream = self.run_blocks(stream, segment.blocks.clone(), &texts);
        if segment.has_head {
            StageOutput::Losses(self.losses(stream.decoder, batch, &texts.decoder))
        } else {
            StageOutput::Activation(stream.join())
        }
    }
}

impl LanguageModel for T5 {
    fn vocab_size(&self) -> usize {
        self.config.vocab_size
    }
}
