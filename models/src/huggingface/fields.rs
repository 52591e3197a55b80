//! [`Fields`]: the settings of a model's `config.json`. Each is understood, known to change nothing of what the model
//! computes, or refused.

use std::path::PathBuf;

use serde_json::{Map, Value};

use super::HuggingFaceError;

/// The largest size, so that the elements of a matrix and their bytes can be counted.
const MAX_SIZE: u64 = 1 << 28;
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

/// The settings of a `config.json` that have not been read yet.
#[derive(Debug)]
pub struct Fields {
    pub(super) path: PathBuf,
    pub(super) left: Map<String, Value>,
}

impl Fields {
    /// Takes a setting. One that is null counts as one that is not there, as in transformers.
    pub(super) fn take(&mut self, field: &str) -> Option<Value> {
        self.left.remove(field).filter(|value| !value.is_null())
    }

    /// Takes a setting that is a name; `default` if it is not there or something else than text, which is then refused
    /// as unknown.
    pub fn name(&mut self, field: &str, default: &str) -> String {
        match self.left.get(field).and_then(Value::as_str).map(str::to_owned) {
            Some(name) => {
                self.left.remove(field);
                name
            }
            None => default.to_owned(),
        }
    }

    /// The names of the model's classes in transformers; none if they are not given.
    pub fn architectures(&self) -> Vec<&str> {
        let names = self.left.get("architectures").and_then(Value::as_array);
        names.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    pub fn has(&self, field: &str) -> bool {
        self.left.get(field).is_some_and(|value| !value.is_null())
    }

    /// Whether a setting is written down, be it null.
    pub fn is_given(&self, field: &str) -> bool {
        self.left.contains_key(field)
    }

    /// Drops settings of this family that change nothing of what the model computes.
    pub fn ignore(&mut self, fields: &[&str]) {
        for field in fields {
            self.left.remove(*field);
        }
    }

    /// Returns the error of a setting that the family does not have.
    pub fn refuse(&self, field: &str, value: &Value, expected: &str) -> HuggingFaceError {
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

    /// Checks that a setting is not there, or has one of `values`.
    pub fn expect(&mut self, field: &str, values: &[Value]) -> Result<(), HuggingFaceError> {
        match self.take(field) {
            Some(value) if !values.contains(&value) => {
                let texts: Vec<String> = values.iter().map(Value::to_string).collect();
                Err(self.refuse(field, &value, &texts.join(" or ")))
            }
            _ => Ok(()),
        }
    }

    /// Takes one of `values`, `default` if the setting is not there.
    pub fn one_of(&mut self, field: &str, default: Value, values: &[Value]) -> Result<Value, HuggingFaceError> {
        let value = self.left.get(field).filter(|value| !value.is_null()).cloned();
        self.expect(field, values)?;
        Ok(value.unwrap_or(default))
    }

    /// Takes a size.
    ///
    /// # Errors
    /// It is missing, no whole number, 0 or too large.
    pub fn size(&mut self, field: &str) -> Result<usize, HuggingFaceError> {
        let value = self.take(field).unwrap_or_default();
        match value.as_u64() {
            Some(size @ 1..=MAX_SIZE) => Ok(size as usize),
            _ => Err(self.refuse(field, &value, &format!("a whole number from 1 to {MAX_SIZE}"))),
        }
    }

    /// Takes a size, `default` if it is not there.
    ///
    /// # Errors
    /// It is no whole number, 0 or too large.
    pub fn size_or(&mut self, field: &str, default: usize) -> Result<usize, HuggingFaceError> {
        if self.has(field) { self.size(field) } else { Ok(default) }
    }

    /// Takes a size; `None` if it is the usual one.
    pub fn size_unless(&mut self, field: &str, usual: usize) -> Result<Option<usize>, HuggingFaceError> {
        Ok(Some(self.size(field)?).filter(|size| *size != usual))
    }

    /// Takes a number, `default` if it is not there.
    ///
    /// # Errors
    /// It is no number, or outside `range`.
    pub fn number(&mut self, field: &str, default: f64, range: std::ops::Range<f64>) -> Result<f64, HuggingFaceError> {
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

    /// Takes an object, if it is there.
    pub fn object(&mut self, field: &str) -> Result<Option<Map<String, Value>>, HuggingFaceError> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(object)),
            Some(value) => Err(self.refuse(field, &value, "an object")),
        }
    }

    /// Takes a list, if it is there.
    pub fn list(&mut self, field: &str) -> Result<Option<Vec<Value>>, HuggingFaceError> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(value) => Err(self.refuse(field, &value, "a list")),
        }
    }

    /// Puts a setting where the others are, which was found inside an object.
    pub fn put(&mut self, field: &str, value: Value) {
        self.left.insert(field.to_owned(), value);
    }

    /// Takes a flag, `default` if it is not there.
    ///
    /// # Errors
    /// It is neither true nor false.
    pub fn flag(&mut self, field: &str, default: bool) -> Result<bool, HuggingFaceError> {
        match self.take(field) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(value) => Err(self.refuse(field, &value, "true or false")),
        }
    }

    /// Checks that what has not been read changes nothing.
    pub(super) fn finish(self) -> Result<(), HuggingFaceError> {
        let changes =
            |(field, value): &(&String, &Value)| !value.is_null() && !WITHOUT_EFFECT.contains(&field.as_str());
        match self.left.iter().find(changes) {
            None => Ok(()),
            Some((field, value)) => Err(self.refuse(
                field,
                value,
                "only settings that are known here; remove it if it changes nothing of what the model computes",
            )),
        }
    }
}
