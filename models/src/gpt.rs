//! GPT-2/3: a decoder-only transformer with learned positions.
//!
//! Parameter names are those of Hugging Face's GPT-2 (`wte.weight`, `h.0.attn.c_attn.weight`, …), with `transformer.`
//! before those of all but the head in files; values are in the same order, so that an element keeps its bits.

use serde_json::{Value, json};

use crate::decoder::{
    CommonSettings, ConfigKeys, Decoder, DecoderFamily, DecoderNames, FamilyTable, FileTable, HasCommonSettings,
    Positions, StoredLayers, decoder_config,
};
use crate::family::{ModelSettings, Preset};
use crate::huggingface::{Fields, HuggingFaceError, Key, KeyTable, TANH_GELUS};
use crate::layers::{BlockConfig, BlockNames};

decoder_config! {
    /// Configuration of [`Gpt`].
    pub struct GptConfig
    sizes {}
    own {
        /// The size of the MLP's hidden layer; `4 * d_model` if not given.
        pub d_hidden: Option<usize>,
    }
    tied_embeddings = true, norm_epsilon = 1e-5
}

/// A GPT, or a stage of one.
pub type Gpt = Decoder;

/// A well-known size: GPT-2's four, and those of the table in arXiv:2104.04473.
pub type GptPreset = Preset<GptConfig>;

const TABLE: FamilyTable = FamilyTable {
    name: "gpt",
    choices: &["--ffn-hidden-size"],
    names: DecoderNames {
        token_embedding: "wte",
        position_embedding: "wpe",
        blocks: "h",
        block: BlockNames::of(
            ["ln_1", "ln_2"],
            ["attn", "c_attn", "c_proj"],
            ["mlp", "c_fc", "c_proj"],
        ),
        norm: Some("ln_f"),
        ..DecoderNames::USUAL
    },
    files: FileTable {
        model_types: &["gpt2"],
        prefix: "transformer.",
        embedding: "wte.weight",
        layers: StoredLayers::InputFirst,
        keys: ConfigKeys {
            n_layers: "n_layer",
            d_model: "n_embd",
            n_heads: "n_head",
            max_seq_length: "n_positions",
            hidden_dropout: Some("resid_pdrop"),
            attention_dropout: "attn_pdrop",
            norm_epsilon: "layer_norm_epsilon",
        },
        settings: &[KeyTable::of_all(KEYS)],
        ..FileTable::USUAL
    },
};

/// `GPT2Config` of transformers.
const KEYS: &[Key] = &[
    Key::honoured("vocab_size", "50257", "61"),
    Key::honoured("n_positions", "1024", "16"),
    Key::honoured("n_embd", "768", "24"),
    Key::honoured("n_layer", "12", "3"),
    Key::honoured("n_head", "12", "6"),
    Key::honoured("n_inner", "null", "36"),
    Key::honoured("resid_pdrop", "0.1", "0.3").with(&[("embd_pdrop", "0.3")]),
    // There is one dropout for embeddings and outputs of layers.
    Key::checked("embd_pdrop", "0.1", "0.3"),
    Key::honoured("attn_pdrop", "0.1", "0.3"),
    Key::honoured("layer_norm_epsilon", "1e-5", "1e-3"),
    Key::honoured("initializer_range", "0.02", "0.5"),
    Key::honoured("tie_word_embeddings", "true", "false"),
    Key::alias("hidden_size", "n_embd"),
    Key::alias("max_position_embeddings", "n_positions"),
    Key::alias("num_attention_heads", "n_head"),
    Key::alias("num_hidden_layers", "n_layer"),
    Key::only("activation_function", &TANH_GELUS),
    Key::only("scale_attn_weights", &["true"]),
    Key::only("scale_attn_by_inverse_layer_idx", &["false"]),
    // The same function, but it asks for scores in f32 where the rest has 16 bits.
    Key::only("reorder_and_upcast_attn", &["false"]),
    // Of transformers before version 4.
    Key::idle("n_ctx", "1024"),
    // Of other heads than the language model's.
    Key::idle("summary_activation", "null"),
    Key::idle("summary_first_dropout", "0.1"),
    Key::idle("summary_proj_to_labels", "true"),
    Key::idle("summary_type", "cls_index"),
    Key::idle("summary_use_proj", "true"),
];

/// The end of a text by default; the last of GPT-2's vocabulary.
const DEFAULT_END_OF_TEXT: usize = 50256;

impl GptPreset {
    /// All presets, from the smallest to the largest.
    pub const ALL: [Self; 14] = [
        Self::new("gpt2-124m", || gpt2([12, 768, 12])),
        Self::new("gpt2-355m", || gpt2([24, 1024, 16])),
        Self::new("gpt2-774m", || gpt2([36, 1280, 20])),
        Self::new("gpt2-1.5b", || gpt2([48, 1600, 25])),
        Self::new("gpt3-1.7b", || gpt3([24, 2304, 24])),
        Self::new("gpt3-3.6b", || gpt3([30, 3072, 32])),
        Self::new("gpt3-7.5b", || gpt3([36, 4096, 32])),
        Self::new("gpt3-18.4b", || gpt3([40, 6144, 48])),
        Self::new("gpt3-39.1b", || gpt3([48, 8192, 64])),
        Self::new("gpt3-76.1b", || gpt3([60, 10240, 80])),
        Self::new("gpt3-145.6b", || gpt3([80, 12288, 96])),
        Self::new("gpt3-310.1b", || gpt3([96, 16384, 128])),
        Self::new("gpt3-529.6b", || gpt3([105, 20480, 128])),
        Self::new("gpt3-1008.0b", || gpt3([128, 25600, 160])),
    ];
}

fn gpt2([n_layers, d_model, n_heads]: [usize; 3]) -> GptConfig {
    GptConfig::new(n_layers, d_model, n_heads, 1024, 50257)
}

fn gpt3([n_layers, d_model, n_heads]: [usize; 3]) -> GptConfig {
    GptConfig::new(n_layers, d_model, n_heads, 2048, 51200)
}

impl GptConfig {
    /// The size of the MLP's hidden layer.
    pub fn hidden_size(&self) -> usize {
        self.d_hidden.unwrap_or(4 * self.d_model)
    }
}

impl DecoderFamily for GptConfig {
    const TABLE: FamilyTable = TABLE;
    const PRESETS: &'static [GptPreset] = &GptPreset::ALL;

    fn of(common: CommonSettings) -> Self {
        Self::new(0, 0, 0, 0, 0).with_common(common)
    }

    fn with_choices(self, settings: &ModelSettings) -> Self {
        let d_hidden = settings.d_hidden.or(self.d_hidden);
        self.with_d_hidden(d_hidden)
    }

    fn shape(&self, block: &mut BlockConfig) {
        block.mlp.d_hidden = self.hidden_size();
    }

    fn positions(&self) -> Positions {
        Positions::Learned(self.max_seq_length)
    }

    fn read(_model_type: &str, fields: &mut Fields) -> Result<Self, HuggingFaceError> {
        let common = TABLE.files.keys.read(fields)?;
        fields.agree(
            "embd_pdrop",
            &common.hidden_dropout.into(),
            "resid_pdrop: there is one dropout for both",
        )?;
        Ok(Self::of(common).with_d_hidden(fields.optional_size("n_inner")?))
    }

    fn written(&self) -> Value {
        let mut fields = json!({
            "activation_function": "gelu_new",
            "architectures": ["GPT2LMHeadModel"],
            "embd_pdrop": self.hidden_dropout,
            "model_type": "gpt2",
            "n_inner": self.d_hidden,
        });
        // transformers' default is outside smaller vocabularies.
        if self.vocab_size <= DEFAULT_END_OF_TEXT {
            fields["bos_token_id"] = Value::Null;
            fields["eos_token_id"] = Value::Null;
        }
        fields
    }

    /// Masks are no parameters.
    fn key(name: &str) -> Option<&str> {
        let of_block = name.strip_prefix("h.").and_then(|rest| rest.split_once('.'));
        match of_block {
            Some((layer, "attn.bias" | "attn.masked_bias")) if layer.bytes().all(|byte| byte.is_ascii_digit()) => None,
            _ => Some(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use burn_megatron::topology::ParallelConfig;
    use burn_megatron::training::flops::GptSize;

    use super::*;
    use crate::huggingface::{HuggingFaceFormat, checks};
    use crate::model_config::ModelConfig;

    #[test]
    fn presets_have_the_published_sizes() {
        // In billions, to the last digit that the paper's table or GPT-2's model card gives.
        let published = [
            0.124, 0.355, 0.774, 1.558, 1.7, 3.6, 7.5, 18.4, 39.1, 76.1, 145.6, 310.1, 529.6, 1008.0,
        ];
        for (preset, billions) in GptPreset::ALL.iter().zip(published) {
            let counted = preset.config().num_parameters() as f64 / 1e9;
            let digit = if billions < 1.6 { 5e-4 } else { 5.1e-2 };
            assert!((counted - billions).abs() <= digit, "{}: {counted}", preset.name);
        }
    }

    #[test]
    fn heads_that_do_not_divide_are_refused_with_neighbours() {
        let parallel = ParallelConfig {
            tensor_parallel_size: 4,
            ..ParallelConfig::default()
        };
        let message = GptConfig::new(2, 60, 6, 8, 11)
            .validate(&parallel)
            .expect_err("6 heads over 4 ranks")
            .to_string();
        assert!(message.contains("nearest valid values are 4 and 8"), "{message}");
    }

    #[test]
    fn flops_are_those_of_the_papers_formula() {
        for preset in GptPreset::ALL {
            let config = preset.config();
            let size = GptSize {
                n_layers: config.n_layers as u64,
                d_model: config.d_model as u64,
                vocabulary_size: config.vocab_size as u64,
                seq_length: config.max_seq_length as u64,
            };
            let (ours, papers) = (
                config.flops_per_iteration(config.max_seq_length, 12),
                size.model_flops_per_iteration(12),
            );
            assert!((ours / papers - 1.0).abs() < 1e-14, "{}: {ours}, {papers}", preset.name);
        }
    }

    /// The settings of the published GPT-2, those of text generation shortened.
    fn gpt2() -> Value {
        json!({
            "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
            "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
            "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12,
            "n_layer": 12,
            "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": null, "summary_first_dropout": 0.1,
            "summary_proj_to_labels": true, "summary_type": "cls_index", "summary_use_proj": true,
            "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}}, "vocab_size": 50257
        })
    }

    fn gpt2_with(field: &str, value: Value) -> Result<GptConfig, String> {
        let mut fields = gpt2();
        fields[field] = value;
        checks::parse(fields)
    }

    #[test]
    fn published_settings_are_the_preset() {
        let preset = GptPreset::named("gpt2-124m").expect("a preset").config();
        assert_eq!((preset.num_parameters(), preset.padded_vocab(1)), (124_439_808, 50304));
        let dropped = preset.with_hidden_dropout(0.1).with_attention_dropout(0.1);
        assert_eq!(checks::parse(gpt2()), Ok(dropped));
    }

    #[test]
    fn what_the_model_does_not_have_is_refused_by_name_and_value() {
        let others = [
            ("n_head", json!(true), "from 1"),
            ("model_type", json!("llama"), "\"gpt2\""),
            ("model_type", json!(null), "\"gpt2\""),
            ("embd_pdrop", json!(0.2), "0.1, as resid_pdrop"),
            ("attn_pdrop", json!(1.0), "and below 1"),
            ("layer_norm_epsilon", json!(0.0), "and below 1"),
            ("n_layer", json!(0), "from 1"),
            ("n_layer", json!(2.5), "from 1"),
            ("n_embd", json!(null), "from 1"),
            ("vocab_size", json!(u64::MAX), "from 1"),
            ("n_inner", json!(-3), "from 1"),
            ("tie_word_embeddings", json!("yes"), "true or false"),
            ("layer_norm_epsilon", json!("1e-5"), "a number above 0 and below 1"),
        ];
        checks::expect_refused::<GptConfig>(&gpt2(), &others);
    }

    #[test]
    fn null_is_false_as_in_python() {
        let error = gpt2_with("scale_attn_weights", Value::Null).unwrap_err();
        assert!(error.contains("scale_attn_weights is false: expected true"), "{error}");
        assert!(
            !gpt2_with("tie_word_embeddings", Value::Null)
                .expect("valid")
                .tied_embeddings
        );
    }

    #[test]
    fn heads_that_do_not_divide_are_refused() {
        let error = gpt2_with("n_head", json!(7)).unwrap_err();
        assert!(error.contains("config.json: ") && error.contains("n_heads"), "{error}");
    }

    #[test]
    fn long_values_are_cut() {
        let error = gpt2_with("n_embd", json!("ä".repeat(1000))).unwrap_err();
        assert!(error.chars().count() < 300 && error.contains('…'), "{error}");
    }

    #[test]
    fn queries_keys_and_values_are_columns_in_files() {
        let config = GptConfig::new(1, 20, 4, 15, 61);
        let shape = |name: &str| {
            let parameter = config.parameters().find(|parameter| parameter.name == name).unwrap();
            (parameter.logical_shape.clone(), parameter.tensors[0].shape.clone())
        };
        assert_eq!(shape("h.0.attn.c_attn.weight"), (vec![20, 3, 20], vec![20, 60]));
        assert_eq!(shape("h.0.attn.c_attn.bias"), (vec![3, 20], vec![60]));
        assert_eq!(shape("h.0.mlp.c_fc.weight"), (vec![20, 1, 80], vec![20, 80]));
    }

    #[test]
    fn the_head_alone_has_no_prefix_in_files() {
        let config = GptConfig::new(2, 20, 4, 15, 61).with_tied_embeddings(false);
        let file_name = |name: &str| {
            let parameter = config.parameters().find(|parameter| parameter.name == name);
            parameter.expect(name).tensors[0].file_name.clone()
        };
        assert_eq!(file_name("h.1.ln_1.bias"), "transformer.h.1.ln_1.bias");
        assert_eq!(file_name("lm_head.weight"), "lm_head.weight");
    }

    #[test]
    fn masks_are_no_parameters_and_all_else_is() {
        for mask in ["h.0.attn.bias", "transformer.h.11.attn.masked_bias"] {
            assert_eq!(GptConfig::imported_name(mask), None, "{mask}");
        }
        for name in ["h.x.attn.bias", "h.0.attn.c_attn.bias", "attn.bias", "h.0.mlp.bias"] {
            assert_eq!(GptConfig::imported_name(name), Some(name));
        }
    }
}
