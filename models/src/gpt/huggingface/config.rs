//! `config.json`: a GPT's sizes in Hugging Face's words. Every setting is understood, known to change nothing of what
//! the model computes, or refused.

use std::path::{Path, PathBuf};

use burn_megatron::topology::ParallelConfig;
use serde_json::{Map, Value, json};

use super::HuggingFaceError;
use super::files::read_json;
use crate::gpt::GptConfig;

/// The largest file. That of GPT-2 has 700 bytes.
const MAX_CONFIG_BYTES: u64 = 4 << 20;
/// The largest size, so that the elements of a matrix and their bytes can be counted.
const MAX_SIZE: u64 = 1 << 28;
/// The end of a text by default; the last of GPT-2's vocabulary.
const DEFAULT_END_OF_TEXT: usize = 50256;
/// The characters of a value that are shown.
const SHOWN_CHARACTERS: usize = 80;

/// Settings that leave what the model computes alone: of the tokenizer, of generation, of other heads, of the library.
const WITHOUT_EFFECT: &[&str] = &[
    "_attn_implementation_autoset",
    "_name_or_path",
    "_num_labels",
    "architectures",
    "attn_implementation",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "id2label",
    "is_decoder",
    "label2id",
    "length_penalty",
    "max_length",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "output_scores",
    "pad_token_id",
    "prefix",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "typical_p",
    "use_bfloat16",
    "use_cache",
];

/// Reads `config.json`. Embeddings are tied if it says so or says nothing of it.
///
/// # Errors
/// It cannot be read, or asks for what this crate's GPT does not have: names the setting, its value, and what it may
/// be.
pub(super) fn read_config(path: &Path) -> Result<GptConfig, HuggingFaceError> {
    match read_json(path, MAX_CONFIG_BYTES)? {
        Value::Object(fields) => parse_config(path, fields),
        _ => Err(HuggingFaceError::broken(path, "expected a JSON object")),
    }
}

fn parse_config(path: &Path, fields: Map<String, Value>) -> Result<GptConfig, HuggingFaceError> {
    let mut fields = Fields {
        path: path.to_owned(),
        left: fields,
    };
    let model_type = fields.take("model_type").unwrap_or_default();
    if model_type != "gpt2" {
        return Err(fields.refuse("model_type", &model_type, "\"gpt2\""));
    }
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
        let expected = format!("{residual}, as resid_pdrop: there is one dropout for embeddings and outputs of layers");
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
    if fields.left.get("n_inner").is_some_and(|value| !value.is_null()) {
        config.d_hidden = Some(fields.size("n_inner")?);
    }
    fields.finish()?;
    let is_valid = config.validate(&ParallelConfig::default());
    is_valid.map_err(|error| HuggingFaceError::broken(path, error.to_string()))?;
    Ok(config)
}

/// The settings of a file that have not been looked at.
struct Fields {
    path: PathBuf,
    left: Map<String, Value>,
}

impl Fields {
    /// A setting that is null counts as one that is not there, as in transformers.
    fn take(&mut self, field: &str) -> Option<Value> {
        self.left.remove(field).filter(|value| !value.is_null())
    }

    fn refuse(&self, field: &str, value: &Value, expected: &str) -> HuggingFaceError {
        let text = value.to_string();
        let mut shown: String = text.chars().take(SHOWN_CHARACTERS).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        HuggingFaceError::Field {
            path: self.path.clone(),
            field: field.to_owned(),
            value: shown,
            expected: expected.to_owned(),
        }
    }

    /// Checks that a setting is not there, or has one of the values that it may have.
    fn expect(&mut self, field: &str, values: &[Value]) -> Result<(), HuggingFaceError> {
        match self.take(field) {
            Some(value) if !values.contains(&value) => {
                let texts: Vec<String> = values.iter().map(Value::to_string).collect();
                Err(self.refuse(field, &value, &texts.join(" or ")))
            }
            _ => Ok(()),
        }
    }

    fn size(&mut self, field: &str) -> Result<usize, HuggingFaceError> {
        let value = self.take(field).unwrap_or_default();
        match value.as_u64() {
            Some(size @ 1..=MAX_SIZE) => Ok(size as usize),
            _ => Err(self.refuse(field, &value, &format!("a whole number from 1 to {MAX_SIZE}"))),
        }
    }

    fn number(&mut self, field: &str, default: f64, range: std::ops::Range<f64>) -> Result<f64, HuggingFaceError> {
        let Some(value) = self.take(field) else {
            return Ok(default);
        };
        match value.as_f64() {
            Some(number) if range.contains(&number) => Ok(number),
            _ => {
                let expected = format!("a number from {:e} to below {:e}", range.start, range.end);
                Err(self.refuse(field, &value, &expected))
            }
        }
    }

    fn flag(&mut self, field: &str, default: bool) -> Result<bool, HuggingFaceError> {
        match self.take(field) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(value) => Err(self.refuse(field, &value, "true or false")),
        }
    }

    /// Checks that what has not been looked at changes nothing.
    fn finish(self) -> Result<(), HuggingFaceError> {
        let changes =
            |(field, value): &(&String, &Value)| !value.is_null() && !WITHOUT_EFFECT.contains(&field.as_str());
        match self.left.iter().find(changes) {
            None => Ok(()),
            Some((field, value)) => Err(self.refuse(
                field,
                value,
                "only settings of GPT-2 that are known here; remove it if it changes nothing of what the model \
                 computes",
            )),
        }
    }
}

/// Returns `config.json` of a model whose tensors are stored as `dtype`, in PyTorch's words.
pub(super) fn written_config(config: &GptConfig, dtype: &str) -> Value {
    let mut fields = json!({
        "activation_function": "gelu_new",
        "add_cross_attention": false,
        "architectures": ["GPT2LMHeadModel"],
        "attn_pdrop": config.attention_dropout,
        "embd_pdrop": config.hidden_dropout,
        "initializer_range": config.init_deviation,
        "layer_norm_epsilon": config.norm_epsilon,
        "model_type": "gpt2",
        "n_embd": config.d_model,
        "n_head": config.n_heads,
        "n_inner": config.d_hidden,
        "n_layer": config.n_layers,
        "n_positions": config.max_seq_length,
        "reorder_and_upcast_attn": false,
        "resid_pdrop": config.hidden_dropout,
        "scale_attn_by_inverse_layer_idx": false,
        "scale_attn_weights": true,
        "tie_word_embeddings": config.tied_embeddings,
        "torch_dtype": dtype,
        "vocab_size": config.vocab_size,
    });
    // transformers' default is outside smaller vocabularies.
    if config.vocab_size <= DEFAULT_END_OF_TEXT {
        fields["bos_token_id"] = Value::Null;
        fields["eos_token_id"] = Value::Null;
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let Value::Object(fields) = value else {
            panic!("an object")
        };
        parse_config(Path::new("config.json"), fields).map_err(|error| error.to_string())
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
            assert_eq!(parse(written_config(&config, "float32")), Ok(config));
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
}
