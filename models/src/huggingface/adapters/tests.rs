//! Tests of `adapters`: peft's names and bits, and which files and targets are refused.

use std::path::PathBuf;

use burn_megatron::checkpoint::Checkpoint;
use burn_megatron::tensor_parallel::LowRankConfig;
use safetensors::SafeTensors;
use serde_json::{Value, json};

use super::sites::AdapterFactor;
use super::*;
use crate::bert::BertConfig;
use crate::bloom::BloomConfig;
use crate::gpt::GptConfig;
use crate::huggingface::HuggingFaceFormat;
use crate::huggingface::HuggingFaceModel;
use crate::llama::LlamaConfig;
use crate::neox::NeoxConfig;
use crate::t5::T5Config;

fn fixtures(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/parity/fixtures/lora")
        .join(name)
}

fn llama() -> LlamaConfig {
    LlamaConfig::new(2, 20, 4, 2, 36, 16, 61).with_d_head(Some(6))
}

fn gpt() -> GptConfig {
    GptConfig::new(2, 20, 4, 16, 61).with_d_hidden(Some(36))
}

fn config<C: HuggingFaceFormat>(model: &C, targets: &[&str]) -> Result<AdapterConfig, String> {
    let targets = targets.iter().map(|&target| target.to_owned()).collect();
    AdapterConfig::new(LowRankConfig::new(3, 6.0), targets, model).map_err(|error| error.to_string())
}

#[test]
fn targets_are_names_of_linear_layers_or_the_attentions_projections() {
    let names = |config: AdapterConfig| config.targets.join(" ");
    assert_eq!(
        config(&llama(), &[]).map(names),
        Ok("q_proj k_proj v_proj o_proj".to_owned())
    );
    assert_eq!(config(&gpt(), &[]).map(names), Ok("c_attn attn.c_proj".to_owned()));
    let fused = Ok("query_key_value dense".to_owned());
    assert_eq!(config(&NeoxConfig::new(2, 20, 4, 16, 61), &[]).map(names), fused);
    assert_eq!(config(&BloomConfig::new(2, 20, 4, 16, 61), &[]).map(names), fused);
    assert_eq!(
        config(&BertConfig::new(2, 20, 4, 16, 61), &[]).map(names),
        Ok("query key value attention.output.dense".to_owned())
    );
    // Of both attentions; the relative bias is no linear layer.
    let t5 = T5Config::new(2, 3, 20, 4, 6, 34, 15, 15, 61);
    assert_eq!(config(&t5, &[]).map(names), Ok("q k v o".to_owned()));
    assert_eq!(
        config(&t5, &["relative_attention_bias"]),
        Err(
            "\"relative_attention_bias\" is no linear layer of a block of this model: expected some of q, k, v, o, \
             wi, wo"
                .to_owned()
        )
    );
    let sites = |targets: &[&str]| config(&gpt(), targets).unwrap().sites(&gpt()).unwrap();
    let modules = |targets: &[&str]| sites(targets).into_iter().map(|site| site.module).collect::<Vec<_>>();
    assert_eq!(modules(&["c_proj"]).len(), 4);
    assert_eq!(
        modules(&["mlp.c_proj"]),
        ["transformer.h.0.mlp.c_proj", "transformer.h.1.mlp.c_proj"]
    );
    assert_eq!(
        config(&llama(), &["q_proj", "proj"]),
        Err(
            "\"proj\" is no linear layer of a block of this model: expected some of q_proj, k_proj, v_proj, o_proj, \
             gate_proj, up_proj, down_proj"
                .to_owned()
        )
    );
}

#[test]
fn numbers_that_no_adapter_has_are_refused() {
    let message = |low_rank: LowRankConfig| {
        let error = AdapterConfig::new(low_rank, Vec::new(), &llama()).unwrap_err();
        error.to_string()
    };
    assert_eq!(
        message(LowRankConfig::new(0, 6.0)),
        "the rank of low-rank adapters must be at least 1, got 0"
    );
    assert!(message(LowRankConfig::new(3, f64::NAN)).contains("finite and above 0, got NaN"));
    assert!(message(LowRankConfig::new(3, 6.0).with_dropout(1.0)).contains("in [0, 1), got 1"));
}

#[test]
fn adapters_of_fused_projections_know_their_features() {
    let sites = config(&llama(), &["v_proj", "up_proj"])
        .unwrap()
        .sites(&llama())
        .unwrap();
    let [value, up] = [&sites[0], &sites[1]];
    let features = |site: &AdapterSite| {
        let features = site.of_layer.clone().expect("a part");
        (features.groups, features.features)
    };
    // Of each of two groups of two queries, a key and a value, of six elements each, the value.
    assert_eq!(
        (value.layer.as_str(), features(value)),
        ("layers.0.self_attn.qkv_proj", (2, 18..24))
    );
    assert_eq!(
        (up.layer.as_str(), features(up)),
        ("layers.0.mlp.gate_up_proj", (1, 36..72))
    );
    assert_eq!(value.file_shape(AdapterFactor::B, 3), [12, 3]);
    assert_eq!(value.logical_shape(AdapterFactor::B, 3), [3, 12]);
}

/// Imports a base with an adapter, and exports the adapter.
fn round_trip<C: HuggingFaceFormat>(name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let model = HuggingFaceModel::<C>::open(fixtures(name).join("base")).unwrap();
    let start = fixtures(name).join("start");
    let files = AdapterFiles::open(&start, model.config()).unwrap();
    let written = model
        .write_checkpoint_with_arrays(folder.path().join("checkpoint"), json!(null), files.arrays().unwrap())
        .unwrap();
    let checkpoint = Checkpoint::open(written).unwrap();
    let output = folder.path().join("again");
    export_adapters(&checkpoint, model.config(), files.config(), name, &output).unwrap();
    let read = |folder: &PathBuf| std::fs::read(folder.join("adapter_model.safetensors")).unwrap();
    let (first, second) = (read(&start), read(&output));
    let (first, second) = (
        SafeTensors::deserialize(&first).unwrap(),
        SafeTensors::deserialize(&second).unwrap(),
    );
    assert_eq!(first.len(), second.len());
    for (tensor_name, tensor) in first.tensors() {
        let other = second.tensor(&tensor_name).unwrap();
        assert_eq!(
            (tensor.shape(), tensor.data()),
            (other.shape(), other.data()),
            "{tensor_name}"
        );
    }
    let fields = |folder: &PathBuf| -> Value {
        serde_json::from_slice(&std::fs::read(folder.join("adapter_config.json")).unwrap()).unwrap()
    };
    let (theirs, ours) = (fields(&start), fields(&output));
    for (field, value) in ours.as_object().unwrap() {
        assert_eq!(value, &theirs[field], "{field}");
    }
}

#[test]
fn pefts_files_keep_their_bits() {
    round_trip::<LlamaConfig>("llama");
    round_trip::<GptConfig>("gpt2");
}

#[test]
fn files_of_other_models_and_settings_are_refused_by_name() {
    let message = |folder: &PathBuf, model: &LlamaConfig| AdapterFiles::open(folder, model).unwrap_err().to_string();
    let start = fixtures("llama").join("start");
    let wider = LlamaConfig::new(2, 24, 4, 2, 36, 16, 61).with_d_head(Some(6));
    let found = message(&start, &wider);
    assert!(
        found.contains("lora_B.weight") && found.contains("[20, 3]: expected [24, 3]"),
        "{found}"
    );
    let deeper = LlamaConfig::new(3, 20, 4, 2, 36, 16, 61).with_d_head(Some(6));
    let found = message(&start, &deeper);
    assert!(
        found.contains("has no tensor \"base_model.model.model.layers.2."),
        "{found}"
    );
    let found = message(&fixtures("gpt2").join("start"), &llama());
    assert!(found.contains("\"c_attn\" is no linear layer"), "{found}");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    std::fs::copy(
        start.join("adapter_model.safetensors"),
        path.join("adapter_model.safetensors"),
    )
    .unwrap();
    for (field, value, expected) in [
        ("use_dora", json!(true), "use_dora is true: expected false"),
        ("rank_pattern", json!({"q_proj": 4}), "expected {}"),
        ("peft_type", json!("LOHA"), "expected \"LORA\""),
        (
            "target_modules",
            json!("all-linear"),
            "expected a list of names of layers",
        ),
        ("r", json!(0), "must be at least 1, got 0"),
        ("r", json!(4), "has shape"),
    ] {
        let mut fields: Value =
            serde_json::from_slice(&std::fs::read(start.join("adapter_config.json")).unwrap()).unwrap();
        fields[field] = value;
        std::fs::write(path.join("adapter_config.json"), fields.to_string()).unwrap();
        let found = message(&path, &llama());
        assert!(found.contains(expected), "{field}: {found}");
    }
}
