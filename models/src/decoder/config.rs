//! [`DecoderConfig`]: the parts of a decoder-only model.

use burn_megatron::parameters::ParameterInit;

use crate::layers::{BlockConfig, BlockNames, CausalSelfAttentionNames, LayerRecompute, MlpNames, RotaryConfig};

/// Parts and sizes of a decoder-only model; the sizes are valid, as its family has checked.
#[derive(Debug)]
pub struct DecoderConfig {
    pub n_layers: usize,
    /// The size of the vocabulary, without padding.
    pub vocab_size: usize,
    pub padded_vocab_size: usize,
    /// How the model knows where a token is.
    pub positions: Positions,
    /// The blocks, each of which has the same parts.
    pub block: BlockConfig,
    /// Parts that only a model of masked tokens has.
    pub masked: Option<MaskedTokenConfig>,
    /// True if the output head is the token embedding.
    pub tied_embeddings: bool,
    /// How embeddings and the head start.
    pub init: ParameterInit,
    /// Which blocks run again before their backward pass.
    pub layer_recompute: LayerRecompute,
    /// The most tokens whose logits are in one buffer; those of 1 GiB if not given.
    pub logit_chunk_tokens: Option<usize>,
    pub names: DecoderNames,
}

/// Parts of a model that predicts masked tokens, as BERT: token types, a layer and a norm before the output head, and a
/// bias after it.
#[derive(Clone, Copy, Debug)]
pub struct MaskedTokenConfig {
    /// The number of token types, which are embedded.
    pub token_types: usize,
    /// True if the model tells if the second sentence of a pair follows the first.
    pub tells_pairs: bool,
    pub names: MaskedTokenNames,
}

/// The names of what [`MaskedTokenConfig`] adds.
#[derive(Clone, Copy, Debug)]
pub struct MaskedTokenNames {
    pub token_types: &'static str,
    /// The layer before the head.
    pub transform: &'static str,
    pub transform_norm: &'static str,
    /// The scope of the head's bias.
    pub head: &'static str,
    /// The layer of the first token of a pair.
    pub pooler: &'static str,
    /// The layer that tells pairs apart.
    pub pairs: &'static str,
}

/// How a model knows where a token is in its sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Positions {
    /// An embedding of each position up to this number is added to that of the token.
    Learned(usize),
    /// Scores fall with the distance between query and key.
    Alibi,
    /// Queries and keys are turned.
    Rotary(RotaryConfig),
}

/// The names of a model's parameters.
#[derive(Clone, Copy, Debug)]
pub struct DecoderNames {
    pub token_embedding: &'static str,
    /// The position embedding, where it is learned.
    pub position_embedding: &'static str,
    /// The norm of the embeddings before the first block, where there is one.
    pub embedding_norm: Option<&'static str>,
    /// The blocks, each with a dot and its number after this.
    pub blocks: &'static str,
    pub block: BlockNames,
    /// The norm after the last block, where there is one.
    pub norm: Option<&'static str>,
    /// The output head where it is not tied.
    pub head: &'static str,
}

impl DecoderNames {
    /// Names with no positions, no norm of embeddings, and `lm_head`.
    pub const USUAL: Self = Self {
        token_embedding: "",
        position_embedding: "",
        embedding_norm: None,
        blocks: "",
        block: BlockNames::of(["", ""], ["", "", ""], ["", "", ""]),
        norm: None,
        head: "lm_head",
    };
}

impl BlockNames {
    /// Returns the names of the norms of attention and MLP; of the attention and its projections, the fused one and
    /// that back; of the MLP and its two layers.
    pub const fn of(
        [attention_norm, mlp_norm]: [&'static str; 2],
        [attention, qkv, projection]: [&'static str; 3],
        [mlp, input, output]: [&'static str; 3],
    ) -> Self {
        Self {
            attention_norm,
            attention,
            attention_layers: CausalSelfAttentionNames {
                qkv,
                output: projection,
            },
            mlp_norm,
            mlp,
            mlp_layers: MlpNames { input, output },
        }
    }
}

impl DecoderConfig {
    pub fn d_model(&self) -> usize {
        self.block.attention.d_model
    }
}

/// How weights of a model of `n_layers` start, and how projections back to `d_model` do: as N(0, σ²), and as
/// N(0, (σ / √(2L))²).
///
/// # Reference
/// Radford et al. 2019, "Language models are unsupervised multitask learners", section 2.3.
pub fn weight_inits(deviation: f64, n_layers: usize) -> [ParameterInit; 2] {
    let output_deviation = deviation / (2.0 * n_layers as f64).sqrt();
    [deviation, output_deviation].map(|deviation| ParameterInit::Normal { deviation })
}
