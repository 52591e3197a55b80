//! [`ModelFamily`]: what training programs know of a kind of model.

use std::collections::BTreeSet;

use burn::module::Module;
use burn::tensor::Device;
use burn_megatron::context::ParallelContext;
use burn_megatron::initialize;
use burn_megatron::pipeline_parallel::LayerLayout;
use burn_megatron::topology::TopologyError;
use burn_megatron::training::LanguageModel;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::adapting::{AdaptableStage, Adapting};
use crate::generation::GenerationStage;
use crate::huggingface::{AdapterConfig, HuggingFaceFormat};
use crate::layers::{LayerRecompute, ModelError};
use crate::model_config::ModelConfig;
use crate::scoring::ScoringStage;

/// A kind of model that the training programs train in any layout; it is implemented by its configuration.
///
/// A new decoder is a [`DecoderFamily`](crate::decoder::DecoderFamily) in a file next to [`gpt`](crate::gpt), and a
/// line in [`registry`](crate::registry).
pub trait ModelFamily:
    ModelConfig + HuggingFaceFormat + Clone + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// The family's name on the command line and in checkpoints.
    const NAME: &'static str;

    /// The well-known sizes, from the smallest to the largest; no other family has the same names.
    const PRESETS: &'static [Preset<Self>];

    /// The flags of settings that are not every family's and that this one has a choice of: asking another family for
    /// one is an error.
    const CHOICES: &'static [&'static str];

    /// A chunk of a pipeline stage; without stages, the whole model.
    type Stage: Module + LanguageModel + AdaptableStage + 'static;

    /// Returns the preset that was asked for, or else a small model of the sizes that were.
    fn base(settings: &ModelSettings) -> Self;

    /// Returns this model with what was asked for, except the preset; what was not asked for stays.
    fn with_settings(self, settings: &ModelSettings) -> Self;

    /// Returns the new model that was asked for; what was not asked for is the preset's, or small.
    fn from_settings(settings: &ModelSettings) -> Self {
        Self::base(settings).with_settings(settings)
    }

    /// Returns the same model with the usual padding of the vocabulary, which every tensor-parallel size divides and
    /// which changes no result: what is asked for when a checkpoint of another layout is loaded.
    fn with_usual_padding(self) -> Self;

    /// Returns the chunks of this rank's pipeline stage, initialised by global names: the same numbers in every layout.
    ///
    /// # Errors
    /// When a size does not divide, or `layers` is not for this model or this layout.
    fn init_stage(
        &self,
        layers: &LayerLayout,
        device: &Device,
        context: &ParallelContext,
    ) -> Result<Vec<Self::Stage>, ModelError>;

    /// Returns a rank's chunks as those of a model that scores and continues text. `None` if the family does not
    /// predict each token's successor.
    fn predicting(chunks: Vec<Self::Stage>) -> Option<Vec<impl InferenceStage + 'static>>;
}

/// A well-known size of a family.
pub struct Preset<C> {
    /// The name on the command line.
    pub name: &'static str,
    make: fn() -> C,
}

impl<C> Preset<C> {
    /// Returns the preset whose configuration is what `make` returns.
    pub const fn new(name: &'static str, make: fn() -> C) -> Self {
        Self { name, make }
    }

    /// Returns the configuration of this size.
    pub fn config(&self) -> C {
        (self.make)()
    }
}

impl<C: ModelFamily> Preset<C> {
    /// Returns the preset of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        C::PRESETS.iter().find(|preset| preset.name == name)
    }
}

/// Returns the chunks of this rank's stage with adapters, which alone are trained.
///
/// # Errors
/// When a target is no layer of the model, or one without a place for an adapter: names it.
pub fn adapt_stage<C: ModelFamily>(
    model: &C,
    chunks: Vec<C::Stage>,
    adapters: &AdapterConfig,
    device: &Device,
    context: &ParallelContext,
) -> Result<Vec<C::Stage>, ModelError> {
    let sites = adapters.sites(model)?;
    let mut adapting = Adapting {
        sites: &sites,
        config: &adapters.low_rank,
        device,
        context,
        adapted: BTreeSet::new(),
    };
    let chunks = chunks
        .into_iter()
        .map(|chunk| initialize(chunk).no_grad().adapted(&mut adapting));
    let found = chunks.collect::<Result<_, _>>()?;
    let is_whole = context.grid().pipeline_parallel_size() == 1;
    match sites
        .iter()
        .find(|site| is_whole && !adapting.adapted.contains(&site.name))
    {
        None => Ok(found),
        Some(site) => {
            let what = format!("{} has no place for an adapter in this model", site.module);
            Err(TopologyError::Setting(what).into())
        }
    }
}

/// A chunk of a pipeline stage without autodiff: it is evaluated, and generates.
pub trait InferenceStage: ScoringStage + GenerationStage {}

impl<S: ScoringStage + GenerationStage> InferenceStage for S {}

/// Settings that a person asks for, whatever the family.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSettings {
    /// The name of a well-known size; the sizes below override parts of it.
    pub preset: Option<String>,
    /// The size of the vocabulary, without padding.
    pub vocab_size: usize,
    pub n_layers: Option<usize>,
    /// The size of each token's activation.
    pub d_model: Option<usize>,
    pub n_heads: Option<usize>,
    /// The longest sequence, in tokens.
    pub max_seq_length: Option<usize>,
    pub padded_vocab_size: Option<usize>,
    /// The number of key heads, where queries share them.
    pub n_kv_heads: Option<usize>,
    pub d_head: Option<usize>,
    pub d_hidden: Option<usize>,
    /// The base of a rotary embedding's wavelengths.
    pub rotary_base: Option<f64>,
    /// True if queries, keys and values have a bias where the family leaves it open.
    pub qkv_bias: bool,
    /// True if queries and keys are normed where the family leaves it open.
    pub qk_norm: bool,
    /// How many keys a query sees at most, itself among them, where the family leaves it open.
    pub window: Option<usize>,
    /// The share of a head that rotary positions turn where the family leaves it open.
    pub rotary_percent: Option<f64>,
    pub norm_epsilon: Option<f64>,
    /// The number of the decoder's layers, where a model has two halves; those of the encoder if not given.
    pub n_decoder_layers: Option<usize>,
    /// The longest text of the decoder, in tokens, where a model has two halves.
    pub decoder_seq_length: Option<usize>,
    /// True if the model tells pairs of sentences apart, where the family leaves it open.
    pub tells_pairs: Option<bool>,
    /// True if the output head is the token embedding; as the family has it if not given.
    pub tied_embeddings: Option<bool>,
    /// The standard deviation of weights and embeddings at the start.
    pub init_deviation: Option<f64>,
    /// The probability with which an element of a hidden state becomes zero.
    pub hidden_dropout: Option<f64>,
    /// The probability with which an attention weight becomes zero.
    pub attention_dropout: Option<f64>,
    /// Which layers run again before their backward pass.
    pub layer_recompute: LayerRecompute,
    /// The most tokens whose logits are in one buffer.
    pub logit_chunk_tokens: Option<usize>,
}

#[cfg(test)]
impl ModelSettings {
    /// Returns the settings of a small model; each family takes what it has.
    pub(crate) fn small() -> Self {
        Self {
            preset: None,
            vocab_size: 61,
            n_layers: Some(4),
            d_model: Some(32),
            n_heads: Some(4),
            max_seq_length: Some(12),
            padded_vocab_size: None,
            // Several tensor-parallel ranks share them.
            n_kv_heads: Some(2),
            d_head: None,
            d_hidden: Some(44),
            rotary_base: None,
            qkv_bias: true,
            qk_norm: false,
            window: None,
            rotary_percent: None,
            norm_epsilon: None,
            n_decoder_layers: Some(4),
            decoder_seq_length: None,
            tells_pairs: Some(true),
            tied_embeddings: None,
            init_deviation: None,
            hidden_dropout: None,
            attention_dropout: None,
            layer_recompute: LayerRecompute::Nothing,
            logit_chunk_tokens: None,
        }
    }
}
