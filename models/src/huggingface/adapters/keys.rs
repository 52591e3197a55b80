//! The settings of `LoraConfig` of peft, and what each does here.

use crate::huggingface::Key;

/// Advice for an adapter that is no plain LoRA.
pub(super) const MERGE: &str =
    "merge it into its model with peft (merge_and_unload), and import that model without --adapter";
const CONVERT: &str = "these begin as a part of the weights, which are then another model's: save the adapter with \
                       peft's path_initial_model_for_weight_conversion, or merge it (merge_and_unload) and import \
                       that model without --adapter";
const NOT_MERGED: &str = "which tokens have the adapter depends on the text here, so that it is no LoRA";

/// The settings; those of the base class, too.
pub(super) const KEYS: &[Key] = &[
    Key::checked("peft_type", "null", "LOHA"),
    Key::honoured("r", "8", "4"),
    Key::honoured("lora_alpha", "8", "16"),
    Key::honoured("lora_dropout", "0.0", "0.1"),
    Key::honoured("use_rslora", "false", "true"),
    Key::honoured("target_modules", "null", r#"["q_proj"]"#),
    Key::checked("rank_pattern", "{}", r#"{"q_proj": 4}"#),
    Key::checked("alpha_pattern", "{}", r#"{"q_proj": 4}"#),
    // These change no weights, but factors.
    Key::only_saying(
        "init_lora_weights",
        &["true", "false", "gaussian", "eva", "orthogonal", "mica"],
        CONVERT,
    ),
    Key::only_saying("alora_invocation_string", &["null"], NOT_MERGED),
    Key::only_saying("alora_invocation_tokens", &["null", "[]"], NOT_MERGED),
    Key::only_saying("arrow_config", &["null"], NOT_MERGED),
    Key::only_saying("bias", &["none"], MERGE),
    Key::only_saying("kasa_config", &["null"], MERGE),
    Key::only_saying("layer_replication", &["null", "[]"], MERGE),
    Key::only_saying("lora_bias", &["false"], MERGE),
    Key::only_saying("modules_to_save", &["null", "[]"], MERGE),
    Key::only_saying("monteclora_config", &["null"], MERGE),
    Key::only_saying("target_parameters", &["null", "[]"], MERGE),
    Key::only_saying("trainable_token_indices", &["null", "[]", "{}"], MERGE),
    Key::only_saying("use_bdlora", &["null", "false"], MERGE),
    Key::only_saying("use_dora", &["false"], MERGE),
    Key::only_saying("use_qalora", &["false"], MERGE),
    // How factors began, and how they are trained.
    Key::idle("corda_config", "null"),
    Key::idle("ensure_weight_tying", "false"),
    Key::idle("eva_config", "null"),
    Key::idle("loftq_config", "{}"),
    Key::idle("lora_ga_config", "null"),
    Key::idle("megatron_config", "null"),
    Key::idle("megatron_core", "megatron.core"),
    Key::idle("qalora_group_size", "16"),
    Key::idle("runtime_config", "null"),
    Key::idle("velora_config", "null"),
    // Which layers have adapters: the tensors say it.
    Key::elsewhere("exclude_modules"),
    Key::elsewhere("layers_pattern"),
    Key::elsewhere("layers_to_transform"),
    Key::elsewhere("auto_mapping"),
    Key::elsewhere("base_model_name_or_path"),
    // The base says it.
    Key::elsewhere("fan_in_fan_out"),
    Key::elsewhere("inference_mode"),
    Key::elsewhere("peft_version"),
    Key::elsewhere("revision"),
    Key::elsewhere("task_type"),
];
