//! The settings of `LlamaConfig`, `MistralConfig`, `Qwen2Config` and `Qwen3Config` of transformers.

use crate::huggingface::{Key, KeyTable};

/// First what is a type's own, then what they share.
pub(super) const TABLES: &[KeyTable] = &[
    KeyTable {
        model_types: &["mistral"],
        keys: MISTRAL,
    },
    KeyTable {
        model_types: &["qwen2"],
        keys: QWEN2,
    },
    KeyTable {
        model_types: &["qwen3"],
        keys: QWEN3,
    },
    KeyTable {
        model_types: &["qwen2", "qwen3"],
        keys: QWEN,
    },
    KeyTable::of_all(SHARED),
];

const MISTRAL: &[Key] = &[
    Key::honoured("intermediate_size", "14336", "36"),
    Key::honoured("max_position_embeddings", "131072", "16"),
    Key::honoured("num_key_value_heads", "8", "4"),
    Key::honoured("sliding_window", "4096", "9"),
    Key::checked("layer_types", "null", r#"["full_attention"]"#),
    // It has no biases, whatever they say.
    Key::idle("attention_bias", "false"),
    Key::idle("mlp_bias", "false"),
];

const QWEN2: &[Key] = &[
    // It has biases of queries, keys and values, and no other, whatever they say.
    Key::idle("attention_bias", "true"),
    Key::idle("mlp_bias", "false"),
];

const QWEN3: &[Key] = &[Key::honoured("head_dim", "128", "64")];

const QWEN: &[Key] = &[
    Key::honoured("vocab_size", "151936", "61"),
    Key::honoured("intermediate_size", "22016", "36"),
    Key::honoured("max_position_embeddings", "32768", "16"),
    Key::honoured("num_key_value_heads", "32", "16"),
    Key::honoured("use_sliding_window", "false", "true").with(&[("max_window_layers", "0")]),
    Key::honoured("sliding_window", "4096", "9").with(WINDOWS),
    Key::honoured("max_window_layers", "28", "0").with(&[("num_hidden_layers", "28"), ("use_sliding_window", "true")]),
    Key::honoured("layer_types", "null", r#"["full_attention"]"#).with(&[
        ("num_hidden_layers", "1"),
        ("use_sliding_window", "true"),
        ("max_window_layers", "0"),
    ]),
];

const WINDOWS: &[(&str, &str)] = &[("use_sliding_window", "true"), ("max_window_layers", "0")];

const SHARED: &[Key] = &[
    Key::honoured("vocab_size", "32000", "61"),
    Key::honoured("hidden_size", "4096", "64"),
    Key::honoured("intermediate_size", "11008", "36"),
    Key::honoured("num_hidden_layers", "32", "3"),
    Key::honoured("num_attention_heads", "32", "64"),
    Key::honoured("num_key_value_heads", "null", "8"),
    Key::honoured("head_dim", "null", "6"),
    Key::honoured("max_position_embeddings", "2048", "16"),
    Key::honoured("attention_dropout", "0.0", "0.1"),
    Key::honoured("initializer_range", "0.02", "0.5"),
    Key::honoured("rms_norm_eps", "1e-6", "1e-3"),
    Key::honoured("tie_word_embeddings", "false", "true"),
    Key::honoured("rope_theta", "10000.0", "500.0"),
    Key::honoured(
        "rope_parameters",
        "null",
        r#"{"rope_theta": 500, "rope_type": "linear", "factor": 2.0}"#,
    ),
    Key::honoured("rope_scaling", "null", r#"{"type": "linear", "factor": 2.0}"#),
    Key::only("hidden_act", &["silu", "swish"]),
    Key::only("attention_bias", &["false"]),
    Key::only("mlp_bias", &["false"]),
    Key::only("sliding_window", &["null"]),
    Key::only("use_sliding_window", &["false"]),
    Key::only("use_mrope", &["false"]),
    Key::only("partial_rotary_factor", &["1.0"]),
    Key::only("rope_interleaved", &["false"]),
    // Versions of transformers differ in which of the two they take.
    Key::only_saying(
        "original_max_position_embeddings",
        &["null"],
        "write it in rope_scaling",
    ),
    Key::checked("layer_types", "null", r#"["sliding_attention"]"#),
    Key::idle("max_window_layers", "28"),
    // It splits matmuls that are the same without it.
    Key::idle("pretraining_tp", "1"),
];
