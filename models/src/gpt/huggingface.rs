//! GPT-2 in Hugging Face's files: the settings of `config.json`, and which tensors a model has. Pure.
//!
//! Names are those of [`Gpt`](super::Gpt), with `transformer.` before those of all but the head; values are in the same
//! order, so that an element keeps its bits.

use serde_json::{Value, json};

use super::GptConfig;
use crate::huggingface::{Fields, HuggingFaceError, HuggingFaceFormat, Parameter};

const PREFIX: &str = "transformer.";
/// The end of a text by default; the last of GPT-2's vocabulary.
const DEFAULT_END_OF_TEXT: usize = 50256;
/// Settings of other heads than the language model's.
const OF_OTHER_HEADS: [&str; 5] = [
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
];

impl HuggingFaceFormat for GptConfig {
    const MODEL_TYPES: &'static [&'static str] = &["gpt2"];
    const EMBEDDING: &'static str = "wte.weight";
    const HEAD: &'static str = "lm_head.weight";

    /// Embeddings are tied if the file says so or says nothing of it.
    fn read_fields(_model_type: &str, fields: &mut Fields) -> Result<Self, HuggingFaceError> {
        fields.ignore(&OF_OTHER_HEADS);
        fields.expect(
            "activation_function",
            &["gelu_new", "gelu_pytorch_tanh"].map(Value::from),
        )?;
        fields.expect("scale_attn_weights", &[true.into()])?;
        fields.expect("scale_attn_by_inverse_layer_idx", &[false.into()])?;
        // The same function, but it asks for scores in f32 where the rest has 16 bits.
        fields.expect("reorder_and_upcast_attn", &[false.into()])?;
        fields.expect("add_cross_attention", &[false.into()])?;
        fields.expect("is_encoder_decoder", &[false.into()])?;
        fields.expect("pruned_heads", &[json!({})])?;

        let max_seq_length = fields.size("n_positions")?;
        fields.expect("n_ctx", &[max_seq_length.into()])?;
        let residual = fields.number("resid_pdrop", 0.1, 0.0..1.0)?;
        let embedding = fields.number("embd_pdrop", 0.1, 0.0..1.0)?;
        if embedding != residual {
            let expected =
                format!("{residual}, as resid_pdrop: there is one dropout for embeddings and outputs of layers");
            return Err(fields.refuse("embd_pdrop", &embedding.into(), &expected));
        }
        let mut config = GptConfig::new(
            fields.size("n_layer")?,
            fields.size("n_embd")?,
            fields.size("n_head")?,
            max_seq_length,
            fields.size("vocab_size")?,
        )
        .with_hidden_dropout(residual)
        .with_attention_dropout(fields.number("attn_pdrop", 0.1, 0.0..1.0)?)
        .with_norm_epsilon(fields.number("layer_norm_epsilon", 1e-5, f64::MIN_POSITIVE..1.0)?)
        .with_init_deviation(fields.number("initializer_range", 0.02, 0.0..f64::MAX)?)
        .with_tied_embeddings(fields.flag("tie_word_embeddings", true)?);
        if fields.has("n_inner") {
            config.d_hidden = Some(fields.size("n_inner")?);
        }
        Ok(config)
    }

    fn written_fields(&self, dtype: &str) -> Value {
        let mut fields = json!({
            "activation_function": "gelu_new",
            "add_cross_attention": false,
            "architectures": ["GPT2LMHeadModel"],
            "attn_pdrop": self.attention_dropout,
            "embd_pdrop": self.hidden_dropout,
            "initializer_range": self.init_deviation,
            "layer_norm_epsilon": self.norm_epsilon,
            "model_type": "gpt2",
            "n_embd": self.d_model,
            "n_head": self.n_heads,
            "n_inner": self.d_hidden,
            "n_layer": self.n_layers,
            "n_positions": self.max_seq_length,
            "reorder_and_upcast_attn": false,
            "resid_pdrop": self.hidden_dropout,
            "scale_attn_by_inverse_layer_idx": false,
            "scale_attn_weights": true,
            "tie_word_embeddings": self.tied_embeddings,
            "torch_dtype": dtype,
            "vocab_size": self.vocab_size,
        });
        // transformers' default is outside smaller vocabularies.
        if self.vocab_size <= DEFAULT_END_OF_TEXT {
            fields["bos_token_id"] = Value::Null;
            fields["eos_token_id"] = Value::Null;
        }
        fields
    }

    fn parameters(&self) -> impl Iterator<Item = Parameter> {
        let (d, hidden) = (self.d_model, self.hidden_size());
        let blocks = (0..self.n_layers).flat_map(move |layer| {
            let name = |part: &str| format!("h.{layer}.{part}");
            [
                Parameter::layer_norm(&name("ln_1"), d),
                Parameter::input_first(&name("attn.c_attn"), &[d, 3, d]),
                Parameter::input_first(&name("attn.c_proj"), &[d, d]),
                Parameter::layer_norm(&name("ln_2"), d),
                Parameter::input_first(&name("mlp.c_fc"), &[d, 1, hidden]),
                Parameter::input_first(&name("mlp.c_proj"), &[hidden, d]),
            ]
            .into_iter()
            .flatten()
        });
        let embeddings = [
            Parameter::same(Self::EMBEDDING, [self.vocab_size, d]),
            Parameter::same("wpe.weight", [self.max_seq_length, d]),
        ];
        let of_model = embeddings.into_iter().chain(blocks);
        let of_model = of_model.chain(Parameter::layer_norm("ln_f", d));
        let head = (!self.tied_embeddings).then(|| self.head());
        of_model.map(|parameter| parameter.with_file_prefix(PREFIX)).chain(head)
    }

    fn imported_name(tensor: &str) -> Option<&str> {
        let name = tensor.strip_prefix(PREFIX).unwrap_or(tensor);
        let of_block = name.strip_prefix("h.").and_then(|rest| rest.split_once('.'));
        match of_block {
            Some((layer, "attn.bias" | "attn.masked_bias")) if layer.bytes().all(|byte| byte.is_ascii_digit()) => None,
            _ => Some(name),
        }
    }

    fn untie(&mut self) {
        self.tied_embeddings = false;
    }
}

#[cfg(test)]
mod tests {
    use burn_flex::{Flex, FlexDevice};
    use burn_megatron::context::ParallelContext;

    use super::*;
    use crate::huggingface::checks;
    use crate::model_config::ModelConfig;

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

    fn parse(value: Value) -> Result<GptConfig, String> {
        checks::parse(value)
    }

    fn gpt2_with(field: &str, value: Value) -> Result<GptConfig, String> {
        let mut fields = gpt2();
        fields[field] = value;
        parse(fields)
    }

    #[test]
    fn the_published_gpt2_has_its_number_of_parameters() {
        let config = parse(gpt2()).unwrap();
        assert_eq!(config.num_parameters(), 124_439_808);
        assert!(config.tied_embeddings && config.hidden_dropout == 0.1 && config.attention_dropout == 0.1);
    }

    #[test]
    fn what_is_written_is_read_back() {
        let plain = GptConfig::new(3, 20, 4, 15, 61);
        let odd = (plain.clone().with_d_hidden(Some(36)).with_tied_embeddings(false))
            .with_hidden_dropout(0.3)
            .with_attention_dropout(0.2)
            .with_norm_epsilon(1e-3)
            .with_init_deviation(0.7);
        for config in [plain, odd, GptConfig::new(1, 8, 2, 4, 51200)] {
            assert_eq!(parse(config.written_fields("float32")), Ok(config));
        }
    }

    #[test]
    fn what_the_model_does_not_have_is_refused_by_name_and_value() {
        for (field, value, words) in [
            (
                "activation_function",
                json!("relu"),
                "\"gelu_new\" or \"gelu_pytorch_tanh\"",
            ),
            ("scale_attn_by_inverse_layer_idx", json!(true), "false"),
            ("scale_attn_weights", json!(false), "true"),
            ("reorder_and_upcast_attn", json!(true), "false"),
            ("add_cross_attention", json!(true), "false"),
            ("pruned_heads", json!({"0": [1]}), "{}"),
            ("model_type", json!("llama"), "\"gpt2\""),
            ("model_type", json!(null), "\"gpt2\""),
            ("n_ctx", json!(512), "1024"),
            ("embd_pdrop", json!(0.2), "0.1, as resid_pdrop"),
            ("attn_pdrop", json!(1.0), "to below 1e0"),
            ("layer_norm_epsilon", json!(0.0), "to below 1e0"),
            ("n_layer", json!(0), "from 1"),
            ("n_layer", json!(2.5), "from 1"),
            ("n_embd", json!(null), "from 1"),
            ("vocab_size", json!(u64::MAX), "from 1"),
            ("n_inner", json!(-3), "from 1"),
            ("tie_word_embeddings", json!("yes"), "true or false"),
            (
                "quantization_config",
                json!({"bits": 4}),
                "remove it if it changes nothing",
            ),
        ] {
            let error = gpt2_with(field, value.clone()).unwrap_err();
            let begin = format!("config.json: {field} is {value}: expected ");
            assert!(error.starts_with(&begin) && error.contains(words), "{error}");
        }
    }

    #[test]
    fn heads_that_do_not_divide_are_refused() {
        let error = gpt2_with("n_head", json!(7)).unwrap_err();
        assert!(error.contains("config.json: ") && error.contains("n_heads"), "{error}");
    }

    #[test]
    fn long_values_are_cut() {
        let error = gpt2_with("extra", json!("ä".repeat(1000))).unwrap_err();
        assert!(error.chars().count() < 300 && error.contains('…'), "{error}");
    }

    #[test]
    fn parameters_are_those_that_the_model_declares() {
        for is_tied in [true, false] {
            let config = GptConfig::new(2, 20, 4, 15, 61)
                .with_d_hidden(Some(36))
                .with_tied_embeddings(is_tied);
            let context = ParallelContext::single(1);
            let model = config.init::<Flex>(&FlexDevice, &context).unwrap();
            checks::expect_declared(&config, &model, &context);
        }
    }

    #[test]
    fn parameters_are_those_that_the_configuration_counts() {
        for is_tied in [true, false] {
            let config = GptConfig::new(3, 20, 4, 15, 61)
                .with_d_hidden(Some(36))
                .with_tied_embeddings(is_tied);
            let count: usize = config.parameters().map(|parameter| parameter.num_elements()).sum();
            assert_eq!(count, config.num_parameters());
            let has_head = config.parameters().any(|parameter| parameter.name == "lm_head.weight");
            assert_eq!(has_head, !is_tied);
        }
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
    fn names_are_found_back_with_and_without_prefix() {
        let config = GptConfig::new(2, 20, 4, 15, 61).with_tied_embeddings(false);
        for Parameter { name, tensors, .. } in config.parameters() {
            assert_eq!(GptConfig::imported_name(&name), Some(name.as_str()));
            let imported = GptConfig::imported_name(&tensors[0].file_name);
            assert_eq!(imported, Some(name.as_str()));
        }
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
