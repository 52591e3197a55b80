//! [`DecoderFamily`]: a family as a table.

use std::fmt::Debug;

use burn_megatron::context::ParallelContext;
use burn_megatron::topology::TopologyError;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::config::{DecoderConfig, DecoderNames, MaskedTokenConfig, Positions, weight_inits};
use super::settings::{CommonSettings, HasCommonSettings};
use super::table::FamilyTable;
use crate::family::{ModelSettings, Preset};
use crate::huggingface::{Fields, HuggingFaceError};
use crate::layers::{BlockConfig, CausalSelfAttentionConfig, MlpConfig, ModelError};
use crate::model_config::ModelConfig;

/// A family of models that are a [`Decoder`](super::Decoder), implemented by its configuration: a table, and how its
/// own settings differ from GPT-2's. It is a [`ModelFamily`](crate::ModelFamily) by that.
pub trait DecoderFamily:
    HasCommonSettings + Clone + Debug + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// Properties that all models of the family share.
    const TABLE: FamilyTable;
    /// The well-known sizes, from the smallest to the largest.
    const PRESETS: &'static [Preset<Self>];
    /// True if the model predicts each token's successor.
    const PREDICTS_NEXT: bool = true;

    /// Returns the plain model of these settings: what is the family's own is usual.
    fn of(common: CommonSettings) -> Self;

    /// Returns this model with what was asked for of the family's own settings.
    fn with_choices(self, _settings: &ModelSettings) -> Self {
        self
    }

    /// Makes a block of GPT-2, with an MLP of four times `d_model`, this model's.
    fn shape(&self, block: &mut BlockConfig);

    /// Source of a token's position.
    fn positions(&self) -> Positions;

    /// The share of a head that is turned where positions are rotary.
    fn rotary_percent(&self) -> f64 {
        1.0
    }

    /// Returns the parts that only a model of masked tokens has.
    fn masked(&self) -> Option<MaskedTokenConfig> {
        None
    }

    /// Returns the names of the parameters.
    fn names(&self) -> DecoderNames {
        Self::TABLE.names
    }

    /// Checks the family's own settings; that its sizes are not 0 has been checked.
    ///
    /// # Errors
    /// The rule that is broken, the values, and the nearest valid ones.
    fn check(&self) -> Result<(), TopologyError> {
        Ok(())
    }

    /// The family's own [`sizes`](ModelConfig::sizes).
    fn own_sizes(&self) -> Vec<(&'static str, String)> {
        vec![("--ffn-hidden-size", self.parts(1).block.mlp.d_hidden.to_string())]
    }

    /// Takes the settings of a `config.json`: see [`ConfigKeys::read`](super::ConfigKeys::read).
    ///
    /// # Errors
    /// One asks for what the family does not have.
    fn read(model_type: &str, fields: &mut Fields) -> Result<Self, HuggingFaceError>;

    /// Returns what `config.json` has in addition to what [`FileTable::write`](super::FileTable::write) writes.
    fn written(&self) -> serde_json::Value;

    /// Returns the key of a tensor by its name without prefix: `None` if it is no parameter.
    fn key(name: &str) -> Option<&str> {
        Some(name)
    }

    /// Takes what the settings do not say from the tensors that are there.
    fn see(&mut self, _has: &dyn Fn(&str) -> bool) {}

    /// Returns what the model is made of, whose sizes have not been checked.
    fn parts(&self, tensor_parallel_size: usize) -> DecoderConfig {
        let common = self.common();
        let [init, output_init] = weight_inits(common.init_deviation, common.n_layers);
        let attention = CausalSelfAttentionConfig::new(common.d_model, common.n_heads, init, output_init)
            .with_dropout(common.attention_dropout);
        let mlp = MlpConfig::new(common.d_model, 4 * common.d_model, init, output_init);
        let mut block = BlockConfig::new(attention, mlp)
            .with_norm_epsilon(common.norm_epsilon)
            .with_hidden_dropout(common.hidden_dropout);
        self.shape(&mut block);
        DecoderConfig {
            n_layers: common.n_layers,
            vocab_size: common.vocab_size,
            padded_vocab_size: common.padded_vocab(tensor_parallel_size),
            positions: self.positions(),
            block,
            masked: self.masked(),
            tied_embeddings: common.tied_embeddings,
            init,
            layer_recompute: common.layer_recompute,
            logit_chunk_tokens: common.logit_chunk_tokens,
            names: self.names(),
        }
    }

    /// Returns what the model is made of in a layout.
    ///
    /// # Errors
    /// When a size does not divide.
    fn decoder(&self, context: &ParallelContext) -> Result<DecoderConfig, ModelError> {
        self.validate(context.config())?;
        Ok(self.parts(context.config().tensor_parallel_size))
    }
}
