//! [`FamilyTable`]: what is the same for all models of a family, and by which keys `config.json` has the settings that
//! all families have. Pure.

use serde_json::{Value, json};

use super::config::DecoderNames;
use super::settings::CommonSettings;
use crate::huggingface::{Fields, HuggingFaceError, KeyTable, SecondName};

/// Properties that all models of a family share.
#[derive(Clone, Copy, Debug)]
pub struct FamilyTable {
    /// The family's name on the command line and in checkpoints.
    pub name: &'static str,
    /// The flags of settings that are not every family's and that this one has a choice of.
    pub choices: &'static [&'static str],
    pub names: DecoderNames,
    /// How models are stored in Hugging Face's files.
    pub files: FileTable,
}

/// How the models of a family are stored.
#[derive(Clone, Copy, Debug)]
pub struct FileTable {
    /// The values of `model_type` in `config.json`.
    pub model_types: &'static [&'static str],
    /// Text before the names of all tensors except for the head's.
    pub prefix: &'static str,
    /// The name of the token embedding's weight.
    pub embedding: &'static str,
    /// The name of the weight of a head that is not tied.
    pub head: &'static str,
    /// How linear layers are stored.
    pub layers: StoredLayers,
    /// True if both norms of a block are before its linear layers.
    pub norms_first: bool,
    /// True if the layers of an MLP are named as parts of the block.
    pub mlp_in_block: bool,
    /// The names of common settings in `config.json`.
    pub keys: ConfigKeys,
    /// The settings of `config.json`, and what each does here.
    pub settings: &'static [KeyTable],
    /// Ends that names of tensors have in older files, and what these are now.
    pub older_ends: &'static [(&'static str, &'static str)],
    /// Second names of tensors.
    pub second_names: &'static [SecondName],
}

/// How a family's linear layers are stored.
#[derive(Clone, Copy, Debug)]
pub enum StoredLayers {
    /// `[d_input, d_output]`, as here.
    InputFirst,
    /// `[d_output, d_input]`.
    OutputFirst,
    /// `[d_output, d_input]`, and what is side by side here by names of its own.
    Apart {
        /// The projections of queries, keys and values.
        qkv: [&'static str; 3],
        /// The first layers of an MLP, if there are two.
        mlp: Option<[&'static str; 2]>,
    },
}

/// The names of common settings in `config.json`.
#[derive(Clone, Copy, Debug)]
pub struct ConfigKeys {
    /// The number of blocks.
    pub n_layers: &'static str,
    /// The size of each token.
    pub d_model: &'static str,
    /// The number of attention heads.
    pub n_heads: &'static str,
    /// The longest sequence.
    pub max_seq_length: &'static str,
    /// The dropout of hidden states, where the family has it.
    pub hidden_dropout: Option<&'static str>,
    /// The dropout of attention weights.
    pub attention_dropout: &'static str,
    /// The number that norms add.
    pub norm_epsilon: &'static str,
}

impl FileTable {
    /// Files of linear layers as PyTorch has them, with the most usual settings.
    pub const USUAL: Self = Self {
        model_types: &[],
        prefix: "",
        embedding: "",
        head: "lm_head.weight",
        layers: StoredLayers::OutputFirst,
        norms_first: false,
        mlp_in_block: false,
        keys: ConfigKeys::USUAL,
        settings: &[],
        older_ends: &[],
        second_names: &[],
    };

    /// Returns `config.json` with the common settings.
    pub fn write(&self, common: &CommonSettings, dtype: &str) -> Value {
        let mut fields = self.keys.write(common);
        fields["torch_dtype"] = dtype.into();
        fields
    }
}

impl ConfigKeys {
    /// The most usual names.
    pub const USUAL: Self = Self {
        n_layers: "num_hidden_layers",
        d_model: "hidden_size",
        n_heads: "num_attention_heads",
        max_seq_length: "max_position_embeddings",
        hidden_dropout: Some("hidden_dropout"),
        attention_dropout: "attention_dropout",
        norm_epsilon: "layer_norm_eps",
    };

    /// Takes the common settings.
    ///
    /// # Errors
    /// One is not what it may be.
    pub fn read(&self, fields: &mut Fields) -> Result<CommonSettings, HuggingFaceError> {
        let hidden_dropout = self
            .hidden_dropout
            .map_or(Ok(0.0), |key| fields.number(key, 0.0..1.0))?;
        Ok(CommonSettings::new(
            fields.size(self.n_layers)?,
            fields.size(self.d_model)?,
            fields.size(self.n_heads)?,
            fields.size(self.max_seq_length)?,
            fields.size("vocab_size")?,
        )
        .with_hidden_dropout(hidden_dropout)
        .with_attention_dropout(fields.number(self.attention_dropout, 0.0..1.0)?)
        .with_norm_epsilon(fields.number(self.norm_epsilon, f64::MIN_POSITIVE..1.0)?)
        .with_init_deviation(fields.number("initializer_range", 0.0..f64::MAX)?)
        .with_tied_embeddings(fields.flag("tie_word_embeddings")?))
    }

    fn write(&self, common: &CommonSettings) -> Value {
        let mut fields = json!({
            self.n_layers: common.n_layers,
            self.d_model: common.d_model,
            self.n_heads: common.n_heads,
            self.max_seq_length: common.max_seq_length,
            "vocab_size": common.vocab_size,
            self.attention_dropout: common.attention_dropout,
            self.norm_epsilon: common.norm_epsilon,
            "initializer_range": common.init_deviation,
            "tie_word_embeddings": common.tied_embeddings,
        });
        if let Some(key) = self.hidden_dropout {
            fields[key] = common.hidden_dropout.into();
        }
        fields
    }
}
