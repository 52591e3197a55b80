//! Tests of `adapters`: peft's names and bits, and which files and targets are refused.

use std::path::{Path, PathBuf};

use burn::tensor::{DType, TensorData};
use burn_megatron::checkpoint::Checkpoint;
use burn_megatron::tensor_parallel::LowRankConfig;
use safetensors::SafeTensors;
use serde_json::{Map, Value, json};

use super::sites::AdapterFactor;
use super::*;
use crate::bert::BertConfig;
use crate::bloom::BloomConfig;
use crate::gpt::GptConfig;
use crate::huggingface::{Fields, HuggingFaceError, HuggingFaceFormat, HuggingFaceModel, checks};
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
        ("use_dora", json!(true), "use_dora is true: expected false: merge it"),
        (
            "rank_pattern",
            json!({"q_proj": 4}),
            "expected 3 of each, as r: merge it",
        ),
        (
            "init_lora_weights",
            json!("pissa_niter_4"),
            "path_initial_model_for_weight_conversion",
        ),
        ("modules_to_save", json!(["lm_head"]), "expected null or []: merge it"),
        ("peft_type", json!("LOHA"), "expected \"LORA\""),
        ("use_rslorra", json!(true), "the nearest known name is use_rslora"),
        ("target_modules", json!([1]), "expected names of layers"),
        ("r", json!(0), "r is 0: expected a whole number from 1"),
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

#[test]
fn each_setting_is_honoured_refused_or_listed() {
    let keys: Vec<_> = super::keys::KEYS.iter().collect();
    checks::expect_table(&keys, "", |mut object: Map<String, Value>| {
        object.entry("peft_type").or_insert("LORA".into());
        let read = || {
            let mut fields = Fields::new(Path::new("adapter_config.json"), object, keys.clone())?;
            let read = (
                super::peft::read_low_rank(&mut fields)?,
                super::peft::read_targets(&mut fields)?,
            );
            Ok((read, fields.finish()?))
        };
        read().map_err(|error: HuggingFaceError| error.to_string())
    });
}

#[test]
fn targets_that_are_no_list_are_those_that_the_tensors_have_and_rank_stabilized_scales_are_kept() {
    let start = fixtures("llama").join("start");
    let folder = tempfile::tempdir().unwrap();
    let copied = folder.path().join("adapter_model.safetensors");
    std::fs::copy(start.join("adapter_model.safetensors"), copied).unwrap();
    let open = |changes: Value| {
        let path = folder.path().join("adapter_config.json");
        let text = std::fs::read(start.join("adapter_config.json")).unwrap();
        let mut fields: Value = serde_json::from_slice(&text).unwrap();
        fields
            .as_object_mut()
            .unwrap()
            .extend(changes.as_object().unwrap().clone());
        std::fs::write(path, fields.to_string()).unwrap();
        AdapterFiles::open(folder.path(), &llama())
    };
    let listed = open(json!({})).unwrap();
    for targets in [json!("all-linear"), json!(".*(q|v|o|up|down)_proj"), Value::Null] {
        let found = open(json!({"target_modules": targets})).unwrap();
        assert_eq!(
            found.config().targets.join(" "),
            "q_proj v_proj o_proj up_proj down_proj"
        );
        assert_eq!(found.sites, listed.sites);
    }
    // All of two layers.
    assert_eq!(
        open(json!({"layers_to_transform": [0, 1]})).unwrap().sites,
        listed.sites
    );
    let found = open(json!({"use_rslora": true, "eva_config": {"rho": 2.0}, "r": 3, "lora_alpha": 6})).unwrap();
    // 6 / √3.
    assert!((found.config().low_rank.scale() - 3.464_101_615_137_754_6).abs() < 1e-15);
    assert!(
        found.remarks()[0].ends_with("without effect here: eva_config"),
        "{:?}",
        found.remarks()
    );
}

#[test]
fn adapters_of_some_layers_have_them_as_targets() {
    let sites = config(&llama(), &["q_proj", "v_proj"])
        .unwrap()
        .sites(&llama())
        .unwrap();
    let has = |site: &AdapterSite| sites.contains(site) && site.module != "model.layers.1.self_attn.v_proj";
    let targets = AdapterConfig::targets_of(&llama(), has);
    assert_eq!(targets, ["q_proj", "0.self_attn.v_proj"]);
}

/// What adapters add to a weight of 16 bits is not rounded to 16 bits before it is to the type of the export.
#[test]
fn a_weight_of_sixteen_bits_is_merged_in_f64() {
    let folder = tempfile::tempdir().unwrap();
    let model = HuggingFaceModel::<LlamaConfig>::open(fixtures("llama").join("base")).unwrap();
    let files = AdapterFiles::open(fixtures("llama").join("trained"), model.config()).unwrap();
    let written = model.write_checkpoint_with_arrays(folder.path(), json!(null), files.arrays().unwrap());
    let checkpoint = Checkpoint::open(written.unwrap()).unwrap();
    let down = "layers.0.mlp.down_proj.weight";
    let parameter = model
        .config()
        .parameters()
        .find(|parameter| parameter.name == down)
        .unwrap();
    let sites = files.config().sites(model.config()).unwrap();
    let factors = (files.config().low_rank.rank, files.config().low_rank.scale());
    let merged = |weight: TensorData| -> Vec<f64> {
        let merged = add_adapters(weight, &parameter, &sites, factors, &checkpoint).unwrap();
        assert_eq!(merged.dtype(), DType::F64);
        merged.iter().collect()
    };
    let count = parameter.num_elements();
    let base =
        TensorData::new((0..count).map(|index| index as f32 / 7.0).collect(), [count]).convert_dtype(DType::BF16);
    let added = merged(TensorData::zeros::<f64, _>([count]));
    assert!(added.iter().all(|added| *added != 0.0));
    let expected: Vec<f64> = base
        .iter::<f64>()
        .zip(added)
        .map(|(base, added)| base + added)
        .collect();
    assert_eq!(merged(base), expected);
}
