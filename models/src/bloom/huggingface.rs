//! BLOOM in Hugging Face's files: the settings of `config.json`, and which tensors a model has. Pure.
//!
//! Files have weights as `[d_output, d_input]`; the rows of the fused projection are, head after head, those of its
//! query, key and value. Published files have no prefix before names, those that transformers writes have one.

use serde_json::{Value, json};

use super::BloomConfig;
use super::presets::TRAINED_LENGTH;
use crate::huggingface::{Fields, HuggingFaceError, HuggingFaceFormat, Parameter};

const PREFIX: &str = "transformer.";
/// Settings of Megatron-DeepSpeed's kernels, of the order of sums, and of padding.
const WITHOUT_EFFECT: [&str; 10] = [
    "attention_softmax_in_fp32",
    "bias_dropout_fusion",
    "masked_softmax_fusion",
    "offset_alibi",
    "pretraining_pp",
    "pretraining_tp",
    "skip_bias_add",
    "skip_bias_add_qkv",
    "slow_but_exact",
    "unk_token_id",
];

impl HuggingFaceFormat for BloomConfig {
    const MODEL_TYPES: &'static [&'static str] = &["bloom"];
    const EMBEDDING: &'static str = "word_embeddings.weight";
    const HEAD: &'static str = "lm_head.weight";

    /// The longest sequence is what the file says of training, `seq_length`, or 2048: there is no limit of its own.
    fn read_fields(_model_type: &str, fields: &mut Fields) -> Result<Self, HuggingFaceError> {
        fields.ignore(&WITHOUT_EFFECT);
        fields.expect("apply_residual_connection_post_layernorm", &[false.into()])?;
        fields.expect("is_encoder_decoder", &[false.into()])?;
        let [layers, heads, size] = [
            ["n_layer", "num_hidden_layers"],
            ["n_head", "num_attention_heads"],
            ["hidden_size", "n_embed"],
        ]
        .map(|names| if fields.has(names[0]) { names[0] } else { names[1] });
        let d_model = fields.size(size)?;
        fields.expect("n_inner", &[(4 * d_model).into()])?;
        let max_seq_length = fields.size_or("seq_length", TRAINED_LENGTH)?;
        let config = BloomConfig::new(
            fields.size(layers)?,
            d_model,
            fields.size(heads)?,
            max_seq_length,
            fields.size("vocab_size")?,
        )
        .with_hidden_dropout(fields.number("hidden_dropout", 0.0, 0.0..1.0)?)
        .with_attention_dropout(fields.number("attention_dropout", 0.0, 0.0..1.0)?)
        .with_norm_epsilon(fields.number("layer_norm_epsilon", 1e-5, f64::MIN_POSITIVE..1.0)?)
        .with_init_deviation(fields.number("initializer_range", 0.02, 0.0..f64::MAX)?)
        .with_tied_embeddings(fields.flag("tie_word_embeddings", true)?);
        Ok(config)
    }

    fn written_fields(&self, dtype: &str) -> Value {
        json!({
            "apply_residual_connection_post_layernorm": false,
            "architectures": ["BloomForCausalLM"],
            "attention_dropout": self.attention_dropout,
            "bos_token_id": null,
            "eos_token_id": null,
            "hidden_dropout": self.hidden_dropout,
            "hidden_size": self.d_model,
            "initializer_range": self.init_deviation,
            "layer_norm_epsilon": self.norm_epsilon,
            "model_type": "bloom",
            "n_head": self.n_heads,
            "n_layer": self.n_layers,
            "pad_token_id": null,
            "seq_length": self.max_seq_length,
            "tie_word_embeddings": self.tied_embeddings,
            "torch_dtype": dtype,
            "vocab_size": self.vocab_size,
        })
    }

    fn parameters(&self) -> impl Iterator<Item = Parameter> {
        let (d, hidden) = (self.d_model, self.hidden_size());
        let layers = (0..self.n_layers).flat_map(move |layer| {
            let name = |part: &str| format!("h.{layer}.{part}");
            [
                Parameter::layer_norm(&name("input_layernorm"), d),
                Parameter::linear(&name("self_attention.query_key_value"), &[d, 1, 3 * d]),
                Parameter::linear(&name("self_attention.dense"), &[d, d]),
                Parameter::layer_norm(&name("post_attention_layernorm"), d),
                Parameter::linear(&name("mlp.dense_h_to_4h"), &[d, 1, hidden]),
                Parameter::linear(&name("mlp.dense_4h_to_h"), &[hidden, d]),
            ]
            .into_iter()
            .flatten()
        });
        let embedding = Parameter::same(Self::EMBEDDING, [self.vocab_size, d]);
        let before = [embedding].into_iter();
        let before = before.chain(Parameter::layer_norm("word_embeddings_layernorm", d));
        let of_model = before.chain(layers).chain(Parameter::layer_norm("ln_f", d));
        let head = (!self.tied_embeddings).then(|| self.head());
        of_model.map(|parameter| parameter.with_file_prefix(PREFIX)).chain(head)
    }

    fn imported_name(tensor: &str) -> Option<&str> {
        Some(tensor.strip_prefix(PREFIX).unwrap_or(tensor))
    }

    fn untie(&mut self) {
        self.tied_embeddings = false;
    }
}

#[cfg(test)]
mod tests {
    use burn_flex::{Flex, FlexDevice};
    use burn_megatron::context::ParallelContext;

    use super::super::BloomPreset;
    use super::*;
    use crate::huggingface::checks;
    use crate::model_config::ModelConfig;

    fn parse(value: Value) -> Result<BloomConfig, String> {
        checks::parse(value)
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
        let preset = BloomPreset::named("bloom-560m").expect("a preset").config();
        assert_eq!(parse(bloom()), Ok(preset.clone()));
        let mut newer = bloom();
        let fields = newer.as_object_mut().expect("an object");
        for (older, name) in [("n_embed", "hidden_size"), ("num_attention_heads", "n_head")] {
            let value = fields.remove(older).expect("it is there");
            fields.insert(name.to_owned(), value);
        }
        fields.remove("seq_length");
        assert_eq!(parse(newer), Ok(preset));
    }

    #[test]
    fn what_is_written_is_read_back() {
        let plain = BloomConfig::new(3, 24, 4, 15, 61);
        let odd = (plain.clone().with_tied_embeddings(false))
            .with_hidden_dropout(0.3)
            .with_attention_dropout(0.2)
            .with_norm_epsilon(1e-3)
            .with_init_deviation(0.7);
        for config in [plain, odd] {
            assert_eq!(parse(config.written_fields("float32")), Ok(config));
        }
    }

    #[test]
    fn what_the_model_does_not_have_is_refused_by_name_and_value() {
        for (field, value, words) in [
            ("apply_residual_connection_post_layernorm", json!(true), "false"),
            ("n_inner", json!(1000), "4096"),
            ("n_layer", json!(0), "from 1"),
            ("n_embed", json!(null), "from 1"),
            ("layer_norm_epsilon", json!(0.0), "to below 1e0"),
            ("extra", json!(3), "remove it if it changes nothing"),
        ] {
            let mut fields = bloom();
            fields[field] = value.clone();
            let error = parse(fields).unwrap_err();
            let begin = format!("config.json: {field} is {value}: expected ");
            assert!(error.starts_with(&begin) && error.contains(words), "{error}");
        }
    }

    #[test]
    fn parameters_are_those_that_the_model_declares() {
        for is_tied in [true, false] {
            let config = BloomConfig::new(2, 18, 6, 15, 61).with_tied_embeddings(is_tied);
            let context = ParallelContext::single(1);
            let model = config.init::<Flex>(&FlexDevice, &context).unwrap();
            checks::expect_declared(&config, &model, &context);
            let in_files: usize = (config.parameters())
                .flat_map(|parameter| parameter.tensors)
                .map(|tensor| tensor.num_elements())
                .sum();
            assert_eq!(in_files, config.num_parameters());
        }
    }
}
