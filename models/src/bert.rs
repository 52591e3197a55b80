//! BERT: a transformer whose tokens see each other in both directions, which predicts masked tokens and tells whether
//! one sentence follows another.
//!
//! With norms before the sublayers, as Megatron-LM and transformers' `megatron-bert` have it, or after them, as the
//! original. Parameter names are those of Hugging Face's files, except for projections that are one here:
//! `attention.self.qkv`.

use burn_megatron::topology::TopologyError;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::decoder::{
    CommonSettings, ConfigKeys, DecoderFamily, DecoderNames, FamilyTable, FileTable, HasCommonSettings,
    MaskedTokenConfig, MaskedTokenNames, Positions, StoredLayers, decoder_config,
};
use crate::family::{ModelSettings, Preset};
use crate::huggingface::{ERF_GELUS, Fields, HuggingFaceError, Key, KeyTable, SecondName, TANH_GELUS};
use crate::layers::{BlockConfig, BlockNames, MlpActivation, Residual};

/// Where norms are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NormOrder {
    /// Before attention and MLP: `x + f(norm(x))`.
    Before,
    /// After the residual sums: `norm(x + f(x))`.
    After,
}

decoder_config! {
    /// Configuration of a BERT.
    pub struct BertConfig
    sizes {}
    own {
        /// The size of the MLP's hidden layer; `4 * d_model` if not given.
        pub d_hidden: Option<usize>,
        /// The number of token types: sentences of a pair.
        #[config(default = 2)]
        pub token_types: usize,
        /// Where the norms are. With [`NormOrder::Before`] there is one more after the last block, with
        /// [`NormOrder::After`] one after the embeddings.
        #[config(default = "NormOrder::Before")]
        pub order: NormOrder,
        /// What is between the MLP's layers, and after the layer before the head.
        #[config(default = "MlpActivation::GeluErf")]
        pub activation: MlpActivation,
        /// Whether the model tells if the second sentence of a pair follows the first.
        #[config(default = true)]
        pub tells_pairs: bool,
    }
    tied_embeddings = true, norm_epsilon = 1e-12
}

const TABLE: FamilyTable = FamilyTable {
    name: "bert",
    choices: &["--ffn-hidden-size", "--bert-no-binary-head"],
    names: DecoderNames {
        token_embedding: "embeddings.word_embeddings",
        position_embedding: "embeddings.position_embeddings",
        embedding_norm: Some("embeddings.LayerNorm"),
        blocks: "encoder.layer",
        block: BlockNames::of(
            ["attention.ln", "ln"],
            ["attention", "self.qkv", "output.dense"],
            ["mlp", "intermediate.dense", "output.dense"],
        ),
        norm: Some("encoder.ln"),
        head: "cls.predictions.decoder",
    },
    files: FileTable {
        model_types: &["bert", "megatron-bert"],
        prefix: "bert.",
        embedding: "embeddings.word_embeddings.weight",
        head: "cls.predictions.decoder.weight",
        layers: StoredLayers::Apart {
            qkv: ["self.query", "self.key", "self.value"],
            mlp: None,
        },
        mlp_in_block: true,
        keys: ConfigKeys {
            hidden_dropout: Some("hidden_dropout_prob"),
            attention_dropout: "attention_probs_dropout_prob",
            ..ConfigKeys::USUAL
        },
        settings: &[
            KeyTable {
                model_types: &["megatron-bert"],
                keys: MEGATRON_KEYS,
            },
            KeyTable::of_all(KEYS),
        ],
        // With a head that is not tied, transformers 5 computes with the second, and has the first without effect.
        second_names: &[SecondName {
            name: "cls.predictions.decoder.bias",
            key: "cls.predictions.bias",
            is_preferred: true,
        }],
        // Of files that were converted from TensorFlow.
        older_ends: &[
            ("LayerNorm.gamma", "LayerNorm.weight"),
            ("LayerNorm.beta", "LayerNorm.bias"),
        ],
        ..FileTable::USUAL
    },
};

const MASKED_NAMES: MaskedTokenNames = MaskedTokenNames {
    token_types: "embeddings.token_type_embeddings",
    transform: "cls.predictions.transform.dense",
    transform_norm: "cls.predictions.transform.LayerNorm",
    head: "cls.predictions",
    pooler: "pooler.dense",
    pairs: "cls.seq_relationship",
};

/// Buffers.
const NO_PARAMETERS: [&str; 2] = ["embeddings.position_ids", "embeddings.token_type_ids"];

/// Differences of `MegatronBertConfig` of transformers.
const MEGATRON_KEYS: &[Key] = &[
    Key::honoured("vocab_size", "29056", "61"),
    Key::honoured("hidden_size", "1024", "32"),
    Key::honoured("num_hidden_layers", "24", "3"),
    Key::honoured("num_attention_heads", "16", "8"),
    Key::honoured("intermediate_size", "4096", "36"),
];

/// `BertConfig` of transformers.
const KEYS: &[Key] = &[
    Key::honoured("vocab_size", "30522", "61"),
    Key::honoured("hidden_size", "768", "24"),
    Key::honoured("num_hidden_layers", "12", "3"),
    Key::honoured("num_attention_heads", "12", "6"),
    Key::honoured("intermediate_size", "3072", "36"),
    Key::honoured("hidden_act", "gelu", "gelu_new"),
    Key::honoured("hidden_dropout_prob", "0.1", "0.3"),
    Key::honoured("attention_probs_dropout_prob", "0.1", "0.3"),
    Key::honoured("max_position_embeddings", "512", "16"),
    Key::honoured("type_vocab_size", "2", "3"),
    Key::honoured("initializer_range", "0.02", "0.5"),
    Key::honoured("layer_norm_eps", "1e-12", "1e-3"),
    Key::honoured("tie_word_embeddings", "true", "false"),
    Key::only_saying(
        "is_decoder",
        &["false"],
        "tokens of a BERT see each other in both directions here",
    ),
    Key::only("position_embedding_type", &["absolute"]),
    Key::idle("classifier_dropout", "null"),
    Key::idle("directionality", "bidi"),
    Key::idle("pooler_fc_size", "768"),
    Key::idle("pooler_num_attention_heads", "12"),
    Key::idle("pooler_num_fc_layers", "3"),
    Key::idle("pooler_size_per_head", "128"),
    Key::idle("pooler_type", "first_token_transform"),
];

/// Well-known sizes, from the smallest to the largest: the two of the original, and those of arXiv:1909.08053, table 4.
const PRESETS: &[Preset<BertConfig>] = &[
    Preset::new("bert-base", || sized(NormOrder::After, [12, 768, 12, 30522])),
    Preset::new("bert-large", || sized(NormOrder::After, [24, 1024, 16, 30522])),
    Preset::new("megatron-bert-345m", || sized(NormOrder::Before, [24, 1024, 16, 29056])),
    Preset::new("megatron-bert-1.3b", || sized(NormOrder::Before, [24, 2048, 32, 29056])),
    Preset::new("megatron-bert-3.9b", || sized(NormOrder::Before, [48, 2560, 40, 29056])),
];

fn sized(order: NormOrder, [n_layers, d_model, n_heads, vocab_size]: [usize; 4]) -> BertConfig {
    BertConfig::new(n_layers, d_model, n_heads, 512, vocab_size).with_order(order)
}

impl BertConfig {
    /// The size of the MLP's hidden layer.
    pub fn hidden_size(&self) -> usize {
        self.d_hidden.unwrap_or(4 * self.d_model)
    }
}

impl DecoderFamily for BertConfig {
    const TABLE: FamilyTable = TABLE;
    const PRESETS: &'static [Preset<Self>] = PRESETS;
    const PREDICTS_NEXT: bool = false;

    fn of(common: CommonSettings) -> Self {
        Self::new(0, 0, 0, 0, 0).with_common(common)
    }

    fn with_choices(self, settings: &ModelSettings) -> Self {
        Self {
            d_hidden: settings.d_hidden.or(self.d_hidden),
            tells_pairs: settings.tells_pairs.unwrap_or(self.tells_pairs),
            ..self
        }
    }

    fn shape(&self, block: &mut BlockConfig) {
        block.attention.is_causal = false;
        block.mlp.d_hidden = self.hidden_size();
        block.mlp.activation = self.activation;
        block.residual = match self.order {
            NormOrder::Before => Residual::Sequential,
            NormOrder::After => Residual::PostNorm,
        };
    }

    fn positions(&self) -> Positions {
        Positions::Learned(self.max_seq_length)
    }

    fn masked(&self) -> Option<MaskedTokenConfig> {
        Some(MaskedTokenConfig {
            token_types: self.token_types,
            tells_pairs: self.tells_pairs,
            names: MASKED_NAMES,
        })
    }

    /// Hugging Face calls norms after a sublayer as its output's.
    fn names(&self) -> DecoderNames {
        let mut names = TABLE.names;
        match self.order {
            NormOrder::Before => names.embedding_norm = None,
            NormOrder::After => {
                names.norm = None;
                names.block.attention_norm = "attention.output.LayerNorm";
                names.block.mlp_norm = "output.LayerNorm";
            }
        }
        names
    }

    fn check(&self) -> Result<(), TopologyError> {
        match self.token_types {
            0 => Err(TopologyError::Zero { name: "token_types" }),
            _ => Ok(()),
        }
    }

    fn own_sizes(&self) -> Vec<(&'static str, String)> {
        vec![
            ("--ffn-hidden-size", self.hidden_size().to_string()),
            ("the number of token types", self.token_types.to_string()),
            (
                "the place of norms",
                match self.order {
                    NormOrder::Before => "before the sublayers".to_owned(),
                    NormOrder::After => "after the sublayers".to_owned(),
                },
            ),
            ("the MLP's activation", self.activation.name().to_owned()),
            ("--bert-no-binary-head", (!self.tells_pairs).to_string()),
        ]
    }

    /// A model `…ForMaskedLM` tells no pairs apart, unless its [tensors](Self::see) do.
    fn read(model_type: &str, fields: &mut Fields) -> Result<Self, HuggingFaceError> {
        let erf = ERF_GELUS.map(|name| (name, MlpActivation::GeluErf)).to_vec();
        let tanh = TANH_GELUS.map(|name| (name, MlpActivation::Gelu)).to_vec();
        let activation = fields.choice("hidden_act", &[erf, tanh].concat())?;
        let order = match model_type {
            "bert" => NormOrder::After,
            _ => NormOrder::Before,
        };
        let tells_pairs = !fields.architectures().iter().any(|name| name.ends_with("ForMaskedLM"));
        let common = TABLE.files.keys.read(fields)?;
        Ok(Self::of(common)
            .with_d_hidden(fields.size_unless("intermediate_size", 4 * common.d_model)?)
            .with_token_types(fields.size("type_vocab_size")?)
            .with_order(order)
            .with_activation(activation)
            .with_tells_pairs(tells_pairs))
    }

    fn written(&self) -> Value {
        let (model_type, class) = match self.order {
            NormOrder::After => ("bert", "Bert"),
            NormOrder::Before => ("megatron-bert", "MegatronBert"),
        };
        let task = if self.tells_pairs {
            "ForPreTraining"
        } else {
            "ForMaskedLM"
        };
        json!({
            "architectures": [format!("{class}{task}")],
            "hidden_act": match self.activation {
                MlpActivation::Gelu => "gelu_new",
                _ => "gelu",
            },
            "intermediate_size": self.hidden_size(),
            "model_type": model_type,
            "type_vocab_size": self.token_types,
        })
    }

    fn key(name: &str) -> Option<&str> {
        (!NO_PARAMETERS.contains(&name)).then_some(name)
    }

    /// Files that say they are of a model `…ForMaskedLM` may have what tells pairs apart, as published ones have.
    fn see(&mut self, has: &dyn Fn(&str) -> bool) {
        self.tells_pairs |= has("cls.seq_relationship.weight");
    }
}

#[cfg(test)]
mod tests {
    use burn_megatron::context::ParallelContext;

    use super::*;
    use crate::huggingface::checks;

    #[test]
    fn presets_have_the_numbers_of_parameters_that_transformers_counts() {
        let numbers = [110_106_428, 336_226_108, 334_723_458, 1_277_591_938, 3_865_326_978];
        checks::expect_numbers(PRESETS.iter().map(Preset::config), &numbers);
    }

    /// The settings of the published bert-base-uncased.
    fn bert_base() -> Value {
        json!({
            "architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1, "gradient_checkpointing": false,
            "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768, "initializer_range": 0.02,
            "intermediate_size": 3072, "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "bert",
            "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 0,
            "position_embedding_type": "absolute", "transformers_version": "4.6.0.dev0", "type_vocab_size": 2,
            "use_cache": true, "vocab_size": 30522
        })
    }

    #[test]
    fn published_settings_are_the_preset() {
        let preset = Preset::<BertConfig>::named("bert-base").expect("a preset").config();
        let dropped = preset.with_hidden_dropout(0.1).with_attention_dropout(0.1);
        assert_eq!(checks::parse(bert_base()), Ok(dropped.with_tells_pairs(false)));
    }

    #[test]
    fn what_no_flag_chooses_is_read_back_and_declared() {
        let config = BertConfig::new(2, 20, 4, 15, 61).with_order(NormOrder::After);
        let odd = config.clone().with_tells_pairs(false).with_tied_embeddings(false);
        for config in [config, odd.with_activation(MlpActivation::Gelu).with_token_types(3)] {
            let context = ParallelContext::single(1);
            let model = config.init(&burn::tensor::Device::flex(), &context).unwrap();
            checks::expect_declared(&config, &model, &context);
            checks::expect_read_back(config);
        }
    }

    #[test]
    fn what_the_model_does_not_have_is_refused_by_name_and_value() {
        let others = [
            ("hidden_act", json!("relu"), "gelu_new"),
            ("model_type", json!("roberta"), "\"bert\" or \"megatron-bert\""),
            ("type_vocab_size", json!(0), "from 1"),
        ];
        checks::expect_refused::<BertConfig>(&bert_base(), &others);
    }
}
