//! [`Key`]: a setting that transformers or peft knows, its default there, and what it does here.

use burn_megatron_data::names::{Effect, Values};
use serde::Serialize;

/// A setting of a `config.json` or an `adapter_config.json`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Key {
    pub name: &'static str,
    /// The default of transformers or peft: JSON, or text without quotes.
    pub default: &'static str,
    pub effect: Effect,
    /// Another value, by which tests see what it does.
    pub probe: Probe,
    /// Other settings without which it changes nothing.
    pub with: &'static [(&'static str, &'static str)],
}

/// A value of a setting that is not its default, as [`Key::default`] is written.
#[derive(Clone, Copy, Debug, Serialize)]
pub enum Probe {
    /// None: the effect says all.
    None,
    /// It makes another model.
    Changes(&'static str),
    /// It does not agree with other settings, and is refused by name.
    Refused(&'static str),
}

/// Settings of the models of some types.
#[derive(Clone, Copy, Debug)]
pub struct KeyTable {
    /// The values of `model_type`; all of the family's if there are none.
    pub model_types: &'static [&'static str],
    pub keys: &'static [Key],
}

impl KeyTable {
    /// Returns the settings of all models of a family.
    pub const fn of_all(keys: &'static [Key]) -> Self {
        Self { model_types: &[], keys }
    }
}

impl Key {
    const fn new(name: &'static str, default: &'static str, effect: Effect, probe: Probe) -> Self {
        Self {
            name,
            default,
            effect,
            probe,
            with: &[],
        }
    }

    /// Returns a setting that is part of the model: with another value, such as this one, the model is another.
    pub const fn honoured(name: &'static str, default: &'static str, other: &'static str) -> Self {
        Self::new(name, default, Effect::Read, Probe::Changes(other))
    }

    /// Returns a setting that must agree with others: this value does not.
    pub const fn checked(name: &'static str, default: &'static str, other: &'static str) -> Self {
        Self::new(name, default, Effect::Read, Probe::Refused(other))
    }

    /// Returns a setting that must have one of some values, the first of which is the default.
    pub const fn only(name: &'static str, values: Values) -> Self {
        Self::only_saying(name, values, "")
    }

    /// Returns such a setting, with advice for those who have another value.
    pub const fn only_saying(name: &'static str, values: Values, advice: &'static str) -> Self {
        Self::new(name, values[0], Effect::Only(values, advice), Probe::None)
    }

    /// Returns another name of a setting.
    pub const fn alias(name: &'static str, of: &'static str) -> Self {
        Self::new(name, "null", Effect::Means(of), Probe::None)
    }

    /// Returns a setting without effect, which is listed where it differs from its default.
    pub const fn idle(name: &'static str, default: &'static str) -> Self {
        Self::new(name, default, Effect::Idle, Probe::None)
    }

    /// Returns a setting of tokens, text generation or types of numbers, or one that others say, too.
    pub const fn elsewhere(name: &'static str) -> Self {
        Self::new(name, "null", Effect::Elsewhere, Probe::None)
    }

    /// Returns the setting as one that takes effect with others alone.
    pub const fn with(self, with: &'static [(&'static str, &'static str)]) -> Self {
        Self { with, ..self }
    }

    /// Returns whether it has a say in what the model computes.
    pub(super) fn is_effective(&self) -> bool {
        !matches!(self.effect, Effect::Idle | Effect::Elsewhere)
    }
}

/// Returns the settings of a type of models, of tables of which the first that has one holds, and those of all models.
pub fn keys_of(tables: &'static [KeyTable], model_type: &str) -> Vec<&'static Key> {
    let of_type = |table: &&KeyTable| table.model_types.is_empty() || table.model_types.contains(&model_type);
    let own = tables.iter().filter(of_type).flat_map(|table| table.keys);
    let mut found: Vec<&Key> = Vec::new();
    for key in own.chain(COMMON) {
        if found.iter().all(|known| known.name != key.name) {
            found.push(key);
        }
    }
    found
}

/// The names of GELU by tanh in transformers, whose forms differ in the digits of their constants.
pub const TANH_GELUS: [&str; 4] = ["gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_accurate"];
/// The names of GELU by the error function.
pub const ERF_GELUS: [&str; 2] = ["gelu", "gelu_python"];

/// Settings of all of transformers' models, `PretrainedConfig`'s of versions 4 and 5, and what others add to files.
const COMMON: &[Key] = &[
    Key::only("add_cross_attention", &["false"]),
    Key::only_saying("compression_config", &["null"], NO_QUANTIZATION),
    Key::only("is_encoder_decoder", &["false"]),
    Key::only("per_layer_config", &["null", "{}"]),
    Key::only("pruned_heads", &["{}"]),
    Key::only_saying("quantization_config", &["null"], NO_QUANTIZATION),
    Key::idle("_attn_implementation_autoset", "false"),
    Key::idle("_attn_implementation_internal", "null"),
    Key::idle("_commit_hash", "null"),
    Key::idle("_experts_implementation", "null"),
    Key::idle("_num_labels", "null"),
    Key::idle("attn_implementation", "null"),
    // Of code that is not transformers' own, which it asks for before it runs any.
    Key::idle("auto_map", "null"),
    Key::idle("chunk_size_feed_forward", "0"),
    Key::idle("cross_attention_hidden_size", "null"),
    Key::idle("custom_pipelines", "null"),
    Key::idle("experts_implementation", "null"),
    Key::idle("finetuning_task", "null"),
    Key::idle("gradient_checkpointing", "false"),
    Key::idle("id2label", r#"{"0":"LABEL_0","1":"LABEL_1"}"#),
    Key::idle("is_decoder", "false"),
    Key::idle("is_llama_config", "null"),
    Key::idle("label2id", r#"{"LABEL_0":0,"LABEL_1":1}"#),
    Key::idle("num_labels", "2"),
    Key::idle("output_attentions", "false"),
    Key::idle("output_hidden_states", "false"),
    Key::idle("output_past", "true"),
    Key::idle("problem_type", "null"),
    Key::idle("return_dict", "true"),
    Key::idle("task_specific_params", "null"),
    Key::idle("tf_legacy_loss", "false"),
    Key::idle("tie_encoder_decoder", "false"),
    Key::idle("torchscript", "false"),
    Key::idle("transformers.js_config", "null"),
    Key::idle("unsloth_fixed", "null"),
    Key::idle("unsloth_version", "null"),
    Key::idle("use_bfloat16", "false"),
    Key::idle("use_cache", "true"),
    Key::elsewhere("_name_or_path"),
    Key::elsewhere("architectures"),
    Key::elsewhere("bad_words_ids"),
    Key::elsewhere("begin_suppress_tokens"),
    Key::elsewhere("bos_token_id"),
    Key::elsewhere("decoder_start_token_id"),
    Key::elsewhere("diversity_penalty"),
    Key::elsewhere("do_sample"),
    Key::elsewhere("dtype"),
    Key::elsewhere("early_stopping"),
    Key::elsewhere("encoder_no_repeat_ngram_size"),
    Key::elsewhere("eos_token_id"),
    Key::elsewhere("exponential_decay_length_penalty"),
    Key::elsewhere("forced_bos_token_id"),
    Key::elsewhere("forced_eos_token_id"),
    Key::elsewhere("length_penalty"),
    Key::elsewhere("max_length"),
    Key::elsewhere("min_length"),
    Key::elsewhere("model_type"),
    Key::elsewhere("name_or_path"),
    Key::elsewhere("no_repeat_ngram_size"),
    Key::elsewhere("num_beam_groups"),
    Key::elsewhere("num_beams"),
    Key::elsewhere("num_return_sequences"),
    Key::elsewhere("output_scores"),
    Key::elsewhere("pad_token_id"),
    Key::elsewhere("prefix"),
    Key::elsewhere("remove_invalid_values"),
    Key::elsewhere("repetition_penalty"),
    Key::elsewhere("return_dict_in_generate"),
    Key::elsewhere("sep_token_id"),
    Key::elsewhere("suppress_tokens"),
    Key::elsewhere("temperature"),
    Key::elsewhere("tokenizer_class"),
    Key::elsewhere("top_k"),
    Key::elsewhere("top_p"),
    Key::elsewhere("torch_dtype"),
    Key::elsewhere("transformers_version"),
    Key::elsewhere("typical_p"),
    Key::elsewhere("unk_token_id"),
];

const NO_QUANTIZATION: &str = "load it with transformers, dequantize it, and save it in f32, bf16 or f16";
