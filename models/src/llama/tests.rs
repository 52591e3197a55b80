//! Tests of Llama: published sizes, and Hugging Face's files.

use super::*;
use crate::huggingface::{HuggingFaceFormat, checks};

fn parse(value: Value) -> Result<LlamaConfig, String> {
    checks::parse(value)
}

#[test]
fn presets_have_the_published_numbers_of_parameters() {
    // As transformers counts the published files.
    let numbers = [
        494_032_768,
        596_049_920,
        1_235_814_400,
        1_543_714_304,
        1_720_574_976,
        3_212_749_824,
        4_022_468_096,
        6_738_415_616,
        7_248_023_552,
        7_615_616_512,
        8_030_261_248,
        8_030_261_248,
        8_190_735_360,
        13_015_864_320,
        14_768_307_200,
        32_762_123_264,
        68_976_648_192,
        70_553_706_496,
        70_553_706_496,
        405_853_388_800,
    ];
    checks::expect_numbers(PRESETS.iter().map(Preset::config), &numbers);
}

/// The settings of the published Llama 3.1 with 8 billion parameters.
fn llama31() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "hidden_act": "silu",
        "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
        "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
        "rope_scaling": {
            "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3"
        },
        "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "transformers_version": "4.42.3", "use_cache": true, "vocab_size": 128256
    })
}

/// Those of the published Qwen2.5 with half a billion.
fn qwen25() -> Value {
    json!({
        "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
        "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
        "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 24,
        "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2,
        "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true,
        "torch_dtype": "bfloat16", "transformers_version": "4.40.1", "use_cache": true, "use_mrope": false,
        "use_sliding_window": false, "vocab_size": 151936
    })
}

/// Those of the published Qwen3 with 0.6 billion.
fn qwen3() -> Value {
    json!({
        "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024,
        "initializer_range": 0.02, "intermediate_size": 3072, "max_position_embeddings": 40960,
        "max_window_layers": 28, "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28,
        "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
        "sliding_window": null, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
        "transformers_version": "4.51.0", "use_cache": true, "use_sliding_window": false, "vocab_size": 151936
    })
}

#[test]
fn published_settings_are_the_presets() {
    let preset = |name: &str| Preset::<LlamaConfig>::named(name).expect("a preset").config();
    assert_eq!(parse(llama31()), Ok(preset("llama3.1-8b")));
    assert_eq!(parse(qwen25()), Ok(preset("qwen2.5-0.5b")));
    assert_eq!(parse(qwen3()), Ok(preset("qwen3-0.6b")));
    let mut without_head = qwen3();
    without_head["head_dim"] = Value::Null;
    assert_eq!(parse(without_head), Ok(preset("qwen3-0.6b")));
}

#[test]
fn scaled_positions_begin_at_the_longest_sequence_unless_said() {
    for (original, expected) in [(None, 131_072), (Some(Value::Null), 131_072), (Some(json!(8192)), 8192)] {
        let mut fields = llama31();
        fields["rope_scaling"] = json!({"factor": 4.0, "type": "yarn"});
        if let Some(original) = original {
            fields["rope_scaling"]["original_max_position_embeddings"] = original;
        }
        let RotaryScaling::Yarn {
            original_max_position, ..
        } = parse(fields).expect("settings").rotary_scaling
        else {
            panic!("no YaRN");
        };
        assert_eq!(original_max_position, expected);
    }
}

#[test]
fn a_base_in_two_places_is_the_same() {
    let mut both = qwen3();
    both["rope_parameters"] = json!({"rope_theta": 1e6, "rope_type": "default"});
    assert_eq!(parse(both.clone()), parse(qwen3()));
    both["rope_parameters"]["rope_theta"] = json!(5.0);
    let error = parse(both).unwrap_err();
    assert!(
        error.contains("rope_theta is 1000000: expected 5.0, as rope_parameters"),
        "{error}"
    );
}

#[test]
fn what_no_flag_chooses_is_read_back() {
    let config = LlamaConfig::new(3, 24, 4, 2, 36, 15, 61);
    checks::expect_read_back(config.with_rotary_scaling(RotaryScaling::Linear { factor: 3.0 }));
}

#[test]
fn what_the_model_does_not_have_is_refused_by_name_and_value() {
    let others = [
        ("model_type", json!("gemma"), "\"llama\" or \"mistral\" or \"qwen2\""),
        ("rope_scaling", json!("long"), "an object"),
        ("rope_theta", json!(0.5), "a number above 1"),
        ("num_key_value_heads", json!(0), "from 1"),
        (
            "num_key_value_head",
            json!(3),
            "the nearest known name is num_key_value_heads",
        ),
    ];
    checks::expect_refused::<LlamaConfig>(&llama31(), &others);
}

#[test]
fn files_have_each_projection_by_itself() {
    let config = LlamaConfig::new(1, 20, 4, 2, 36, 15, 61).with_d_head(Some(6));
    let tensors = config.parameters().flat_map(|parameter| parameter.tensors);
    let tensors: Vec<(String, Vec<usize>)> = tensors.map(|tensor| (tensor.file_name, tensor.shape)).collect();
    let expected = [
        ("model.embed_tokens.weight", vec![61, 20]),
        ("model.layers.0.input_layernorm.weight", vec![20]),
        ("model.layers.0.self_attn.q_proj.weight", vec![24, 20]),
        ("model.layers.0.self_attn.k_proj.weight", vec![12, 20]),
        ("model.layers.0.self_attn.v_proj.weight", vec![12, 20]),
        ("model.layers.0.self_attn.o_proj.weight", vec![20, 24]),
        ("model.layers.0.post_attention_layernorm.weight", vec![20]),
        ("model.layers.0.mlp.gate_proj.weight", vec![36, 20]),
        ("model.layers.0.mlp.up_proj.weight", vec![36, 20]),
        ("model.layers.0.mlp.down_proj.weight", vec![20, 36]),
        ("model.norm.weight", vec![20]),
        ("lm_head.weight", vec![61, 20]),
    ];
    let expected: Vec<_> = expected.map(|(name, shape)| (name.to_owned(), shape)).into();
    assert_eq!(tensors, expected);
}

#[test]
fn windows_are_those_of_all_layers_or_of_none() {
    let mistral = |window: Option<Value>| {
        let mut fields = LlamaConfig::new(2, 24, 4, 2, 36, 15, 61)
            .with_window(Some(9))
            .written_fields("float32");
        let object = fields.as_object_mut().expect("an object");
        match window {
            Some(window) => object.insert("sliding_window".to_owned(), window),
            None => object.remove("sliding_window"),
        };
        parse(fields).expect("valid").window
    };
    assert_eq!(mistral(Some(json!(5))), Some(5));
    assert_eq!(mistral(Some(Value::Null)), None);
    // The default of transformers.
    assert_eq!(mistral(None), Some(4096));

    let with = |changes: &[(&str, Value)]| {
        let mut fields = qwen25();
        for (field, value) in changes {
            fields[*field] = value.clone();
        }
        parse(fields).map(|config| config.window)
    };
    let used = ("use_sliding_window", json!(true));
    let first = |count: Value| ("max_window_layers", count);
    assert_eq!(with(&[used.clone(), first(json!(0))]), Ok(Some(32768)));
    // None of the 24 layers is after the first 24, nor after 28, transformers' default.
    assert_eq!(with(std::slice::from_ref(&used)), Ok(None));
    let mut without = qwen25();
    without["use_sliding_window"] = json!(true);
    without.as_object_mut().expect("an object").remove("max_window_layers");
    assert_eq!(parse(without.clone()).map(|config| config.window), Ok(None));
    without["num_hidden_layers"] = json!(29);
    let error = parse(without).unwrap_err();
    assert!(
        error.contains("max_window_layers is 28: expected 0, or at least 29"),
        "{error}"
    );
    let error = with(&[used.clone(), first(json!(23))]).unwrap_err();
    assert!(
        error.contains("max_window_layers is 23: expected 0, or at least 24"),
        "{error}"
    );
    // A list says it of each.
    let all = json!(vec!["sliding_attention"; 24]);
    assert_eq!(with(&[used.clone(), ("layer_types", all.clone())]), Ok(Some(32768)));
    for (changes, kinds) in [
        (vec![used], json!(["full_attention", "sliding_attention"])),
        (vec![], all),
    ] {
        let error = with(&[changes, vec![("layer_types", kinds)]].concat()).unwrap_err();
        assert!(error.contains("\"full_attention\" of each of 24 layers"), "{error}");
    }
}
