//! BLOOM: decoder-only transformers whose scores fall with distance (ALiBi), and whose embeddings are normed.
//!
//! Parameter names are those of Hugging Face's BLOOM (`word_embeddings.weight`,
//! `h.0.self_attention.query_key_value.weight`, …). The fused projection is, head after head, its query, key and value.
//! Published files have no prefix before names, those that transformers writes have one.

use serde_json::{Value, json};

use crate::decoder::{
    CommonSettings, ConfigKeys, DecoderFamily, DecoderNames, FamilyTable, FileTable, HasCommonSettings, Positions,
    decoder_config,
};
use crate::family::Preset;
use crate::huggingface::{Fields, HuggingFaceError, Key, KeyTable};
use crate::layers::{BlockConfig, BlockNames, HeadOrder};

decoder_config! {
    /// Configuration of a BLOOM. The longest sequence is that of training, since no parameter depends on it.
    pub struct BloomConfig
    sizes {}
    own {}
    tied_embeddings = true, norm_epsilon = 1e-5
}

const TABLE: FamilyTable = FamilyTable {
    name: "bloom",
    choices: &[],
    names: DecoderNames {
        token_embedding: "word_embeddings",
        embedding_norm: Some("word_embeddings_layernorm"),
        blocks: "h",
        block: BlockNames::of(
            ["input_layernorm", "post_attention_layernorm"],
            ["self_attention", "query_key_value", "dense"],
            ["mlp", "dense_h_to_4h", "dense_4h_to_h"],
        ),
        norm: Some("ln_f"),
        ..DecoderNames::USUAL
    },
    files: FileTable {
        model_types: &["bloom"],
        prefix: "transformer.",
        embedding: "word_embeddings.weight",
        keys: ConfigKeys {
            n_layers: "n_layer",
            n_heads: "n_head",
            max_seq_length: "seq_length",
            norm_epsilon: "layer_norm_epsilon",
            ..ConfigKeys::USUAL
        },
        settings: &[KeyTable::of_all(KEYS)],
        ..FileTable::USUAL
    },
};

/// `BloomConfig` of transformers.
const KEYS: &[Key] = &[
    Key::honoured("vocab_size", "250880", "61"),
    Key::honoured("hidden_size", "64", "32"),
    Key::honoured("n_layer", "2", "3"),
    Key::honoured("n_head", "8", "4"),
    // Of the files alone: transformers has no limit.
    Key::honoured("seq_length", "2048", "16"),
    Key::honoured("hidden_dropout", "0.0", "0.1"),
    Key::honoured("attention_dropout", "0.0", "0.1"),
    Key::honoured("layer_norm_epsilon", "1e-5", "1e-3"),
    Key::honoured("initializer_range", "0.02", "0.5"),
    Key::honoured("tie_word_embeddings", "true", "false"),
    Key::alias("n_embed", "hidden_size"),
    Key::alias("num_attention_heads", "n_head"),
    Key::alias("num_hidden_layers", "n_layer"),
    Key::only("apply_residual_connection_post_layernorm", &["false"]),
    // Where matmuls are cut as in the training, it leaves out biases.
    Key::checked("slow_but_exact", "false", "true").with(&[("pretraining_tp", "2")]),
    Key::idle("pretraining_tp", "1"),
    // Of Megatron-DeepSpeed's kernels, of the order of sums, and of padding.
    Key::idle("attention_softmax_in_fp32", "true"),
    Key::idle("bias_dropout_fusion", "true"),
    Key::idle("masked_softmax_fusion", "true"),
    Key::idle("n_inner", "null"),
    Key::idle("offset_alibi", "100"),
    Key::idle("pretraining_pp", "1"),
    Key::idle("skip_bias_add", "true"),
    Key::idle("skip_bias_add_qkv", "false"),
];

/// The tokens of a sample that the published models were trained with.
const TRAINED_LENGTH: usize = 2048;

/// Well-known sizes, from the smallest to the largest.
const PRESETS: &[Preset<BloomConfig>] = &[
    Preset::new("bloom-560m", || sized([24, 1024, 16])),
    Preset::new("bloom-1b1", || sized([24, 1536, 16])),
    Preset::new("bloom-1b7", || sized([24, 2048, 16])),
    Preset::new("bloom-3b", || sized([30, 2560, 32])),
    Preset::new("bloom-7b1", || sized([30, 4096, 32])),
    Preset::new("bloom-176b", || sized([70, 14336, 112])),
];

fn sized([n_layers, d_model, n_heads]: [usize; 3]) -> BloomConfig {
    BloomConfig::new(n_layers, d_model, n_heads, TRAINED_LENGTH, 250_880)
}

impl DecoderFamily for BloomConfig {
    const TABLE: FamilyTable = TABLE;
    const PRESETS: &'static [Preset<Self>] = PRESETS;

    fn of(common: CommonSettings) -> Self {
        Self::new(0, 0, 0, 0, 0).with_common(common)
    }

    fn shape(&self, block: &mut BlockConfig) {
        // Each head's query, key and value are next to each other.
        block.attention.order = HeadOrder::Groups;
    }

    fn positions(&self) -> Positions {
        Positions::Alibi
    }

    /// The longest sequence is what the file says of training, `seq_length`, or 2048: there is no limit of its own.
    fn read(_model_type: &str, fields: &mut Fields) -> Result<Self, HuggingFaceError> {
        if fields.look("pretraining_tp").is_some_and(|parts| *parts != 1) {
            let said = "pretraining_tp is not 1: biases would be left out";
            fields.agree("slow_but_exact", &false.into(), said)?;
        }
        Ok(Self::of(TABLE.files.keys.read(fields)?))
    }

    fn written(&self) -> Value {
        json!({
            "architectures": ["BloomForCausalLM"],
            "bos_token_id": null,
            "eos_token_id": null,
            "model_type": "bloom",
            "pad_token_id": null,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::huggingface::checks;

    #[test]
    fn presets_have_the_published_numbers_of_parameters() {
        // The model cards'.
        let numbers = [
            559_214_592,
            1_065_314_304,
            1_722_408_960,
            3_002_557_440,
            7_069_016_064,
            176_247_271_424,
        ];
        checks::expect_numbers(PRESETS.iter().map(Preset::config), &numbers);
    }

    /// The settings of the published BLOOM with 560 million parameters.
    fn bloom() -> Value {
        json!({
            "apply_residual_connection_post_layernorm": false, "architectures": ["BloomForCausalLM"],
            "attention_dropout": 0.0, "attention_softmax_in_fp32": true, "bias_dropout_fusion": true,
            "bos_token_id": 1, "eos_token_id": 2, "hidden_dropout": 0.0, "initializer_range": 0.02,
            "layer_norm_epsilon": 1e-05, "masked_softmax_fusion": true, "model_type": "bloom", "n_embed": 1024,
            "n_inner": null, "n_layer": 24, "num_attention_heads": 16, "offset_alibi": 100, "pad_token_id": 3,
            "pretraining_tp": 1, "seq_length": 2048, "skip_bias_add": true, "skip_bias_add_qkv": false,
            "transformers_version": "4.20.0", "unk_token_id": 0, "use_cache": true, "vocab_size": 250880
        })
    }

    #[test]
    fn published_settings_are_the_presets() {
        let preset = Preset::<BloomConfig>::named("bloom-560m").expect("a preset").config();
        assert_eq!(checks::parse(bloom()), Ok(preset.clone()));
        let mut newer = bloom();
        let fields = newer.as_object_mut().expect("an object");
        for (older, name) in [("n_embed", "hidden_size"), ("num_attention_heads", "n_head")] {
            let value = fields.remove(older).expect("it is there");
            fields.insert(name.to_owned(), value);
        }
        fields.remove("seq_length");
        assert_eq!(checks::parse(newer), Ok(preset));
    }

    #[test]
    fn what_the_model_does_not_have_is_refused_by_name_and_value() {
        let others = [
            ("n_layer", json!(0), "from 1"),
            ("n_embed", json!(0), "from 1"),
            ("slow_but_exact", json!(true), "false, as pretraining_tp is not 1"),
            ("layer_norm_epsilon", json!(0.0), "and below 1"),
        ];
        let mut cut = bloom();
        cut["pretraining_tp"] = json!(4);
        checks::expect_refused::<BloomConfig>(&cut, &others);
        let mut both = bloom();
        both["n_head"] = json!(8);
        let error = checks::parse::<BloomConfig>(both).unwrap_err();
        assert!(
            error.contains("num_attention_heads is 16: expected 8, as n_head"),
            "{error}"
        );
    }
}
