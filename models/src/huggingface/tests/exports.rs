//! What an export writes, and what it leaves when it fails.

use half::bf16;
use safetensors::SafeTensors;

use super::*;
use crate::model_config::ModelConfig;

fn of_type(dtype: ExportType) -> ExportConfig {
    ExportConfig {
        dtype,
        ..ExportConfig::default()
    }
}

/// A checkpoint in a folder of its own, of f32.
fn saved(is_tied: bool) -> (TempDir, GptConfig, Checkpoint) {
    let (folder, config) = (TempDir::new().unwrap(), config(is_tied));
    let checkpoint = sharded_checkpoint(&folder.path().join("saved"), &config, DType::F32);
    (folder, config, checkpoint)
}

/// The error of an export that leaves nothing.
fn refusal(folder: &TempDir, checkpoint: &Checkpoint, config: &GptConfig, options: &ExportConfig) -> String {
    let error = export(checkpoint, config, folder.path().join("files"), options).unwrap_err();
    assert_eq!(names_in(folder.path()), ["saved"]);
    error.to_string()
}

#[test]
fn a_sharded_checkpoint_exported_and_imported_has_the_same_bits() {
    for is_tied in [true, false] {
        let (folder, config, checkpoint) = saved(is_tied);
        let [files, back] = ["deep/er/files", "back"].map(|name| folder.path().join(name));
        export(&checkpoint, &config, &files, &ExportConfig::default()).unwrap();
        let model = HuggingFaceModel::<GptConfig>::open(&files).unwrap();
        assert_eq!(model.config(), &config);
        let written = model.write_checkpoint(&back, json!({ "of": "a program" })).unwrap();
        let imported = Checkpoint::open(written).unwrap();
        imported.verify().unwrap();
        assert_eq!(
            (imported.iteration(), &imported.state()["of"]),
            (0, &json!("a program"))
        );
        expect_values(&imported, &config);
    }
}

#[test]
fn files_have_the_names_shapes_and_order_of_gpt2() {
    let (folder, config) = (TempDir::new().unwrap(), config(false));
    let checkpoint = sharded_checkpoint(&folder.path().join("saved"), &config, DType::F64);
    let files = folder.path().join("files");
    export(&checkpoint, &config, &files, &ExportConfig::default()).unwrap();
    assert_eq!(names_in(&files), [CONFIG_NAME, MODEL_NAME]);
    let bytes = fs::read(files.join(MODEL_NAME)).unwrap();
    let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    assert_eq!(metadata.metadata().as_ref().unwrap()["format"], "pt");
    let read = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(read.len(), 2 + 2 * 12 + 2 + 1);
    for (name, expected) in tensors(&config, "transformer.") {
        let found = read.tensor(&name).unwrap();
        assert_eq!(
            (found.dtype(), found.shape()),
            (Dtype::F32, &expected.shape[..]),
            "{name}"
        );
        assert_eq!(found.data(), expected.bytes, "{name}");
    }
    // The second value column of the third row: [3, 6, 6] as [3, 18].
    let weight = config
        .parameters()
        .find(|parameter| parameter.name == "h.1.attn.c_attn.weight");
    let of_logical = values(&weight.unwrap())[2 * 18 + 2 * 6 + 1];
    let file = read.tensor("transformer.h.1.attn.c_attn.weight").unwrap();
    let of_file = bytemuck::pod_read_unaligned::<f32>(&file.data()[4 * (2 * 18 + 13)..][..4]);
    assert_eq!(of_file, of_logical);
}

#[test]
fn several_files_and_their_index_have_every_tensor_once() {
    for is_tied in [true, false] {
        let (folder, config, checkpoint) = saved(is_tied);
        let files = folder.path().join("files");
        // The token embedding alone has more: 13 rows of 6 elements.
        let options = ExportConfig {
            max_shard_bytes: 300,
            ..ExportConfig::default()
        };
        export(&checkpoint, &config, &files, &options).unwrap();
        let index: Value = serde_json::from_slice(&fs::read(files.join(INDEX_NAME)).unwrap()).unwrap();
        let map = index["weight_map"].as_object().unwrap();
        let expected = tensors(&config, "transformer.");
        assert_eq!(map.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        let names: Vec<String> = names_in(&files)
            .into_iter()
            .filter(|name| name.starts_with("model-"))
            .collect();
        let mut seen = 0;
        for (number, name) in names.iter().enumerate() {
            assert_eq!(
                *name,
                format!("model-{:05}-of-{:05}.safetensors", number + 1, names.len())
            );
            let bytes = fs::read(files.join(name)).unwrap();
            let read = SafeTensors::deserialize(&bytes).unwrap();
            let sizes: Vec<usize> = read.tensors().iter().map(|(_, view)| view.data().len()).collect();
            assert!(
                sizes.len() == 1 || sizes.iter().sum::<usize>() <= 300,
                "{name}: {sizes:?}"
            );
            for (tensor, view) in read.tensors() {
                assert_eq!(
                    (view.data(), map[&tensor].as_str()),
                    (&expected[&tensor].bytes[..], Some(name.as_str()))
                );
                seen += view.data().len();
            }
        }
        assert_eq!(names_in(&files).len(), names.len() + 2);
        assert_eq!(
            (index["metadata"]["total_size"].as_u64(), seen),
            (Some(seen as u64), 4 * config.num_parameters())
        );

        let model = HuggingFaceModel::<GptConfig>::open(&files).unwrap();
        let written = model.write_checkpoint(folder.path().join("back"), json!(null)).unwrap();
        expect_values(&Checkpoint::open(written).unwrap(), &config);
    }
}

#[test]
fn sixteen_bits_are_the_rounded_values() {
    let (folder, config, checkpoint) = saved(true);
    let files = folder.path().join("files");
    export(&checkpoint, &config, &files, &of_type(ExportType::Bf16)).unwrap();
    let bytes = fs::read(files.join(MODEL_NAME)).unwrap();
    let read = SafeTensors::deserialize(&bytes).unwrap();
    for parameter in config.parameters() {
        let found = read.tensor(&format!("transformer.{}", parameter.name)).unwrap();
        let expected: Vec<bf16> = values(&parameter).into_iter().map(bf16::from_f32).collect();
        assert_eq!(found.dtype(), Dtype::BF16);
        assert_eq!(
            found.data(),
            bytemuck::cast_slice::<bf16, u8>(&expected),
            "{}",
            parameter.name
        );
    }
    let config = fs::read_to_string(files.join(CONFIG_NAME)).unwrap();
    assert!(config.contains("\"torch_dtype\": \"bfloat16\""), "{config}");
    // Imported, they stay what they are.
    let back = HuggingFaceModel::<GptConfig>::open(&files).unwrap();
    let written = back.write_checkpoint(folder.path().join("back"), json!(null)).unwrap();
    let imported = Checkpoint::open(written).unwrap();
    assert!(imported.arrays().iter().all(|array| array.dtype == DType::BF16));
}

#[test]
fn a_number_that_f16_cannot_hold_is_named_and_nothing_is_left() {
    let (folder, config) = (TempDir::new().unwrap(), config(true));
    let mut all: Vec<ArrayPart> = config
        .parameters()
        .flat_map(|parameter| parts(&parameter, DType::F32))
        .collect();
    let bias = all.iter_mut().find(|part| part.name == "model.h.1.ln_2.bias").unwrap();
    bias.data[..4].copy_from_slice(&1e5_f32.to_le_bytes());
    let checkpoint = save(&folder.path().join("saved"), all);
    let error = refusal(&folder, &checkpoint, &config, &of_type(ExportType::F16));
    let expected = "\"h.1.ln_2.bias\" has 1e5, which is infinite as float16";
    assert!(error.contains(expected), "{error}");
    export(
        &checkpoint,
        &config,
        folder.path().join("files"),
        &ExportConfig::default(),
    )
    .unwrap();
}

#[test]
fn what_is_there_already_is_left_alone() {
    let (folder, config, checkpoint) = saved(true);
    let [file, full, empty] = ["file", "full", "empty"].map(|name| folder.path().join(name));
    fs::write(&file, "mine").unwrap();
    fs::create_dir(&full).unwrap();
    fs::write(full.join(CONFIG_NAME), "mine").unwrap();
    fs::create_dir(&empty).unwrap();
    for output in [&file, &full] {
        let error = export(&checkpoint, &config, output, &ExportConfig::default())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(output.to_str().unwrap()) && error.contains("is there already"),
            "{error}"
        );
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    assert_eq!(fs::read_to_string(full.join(CONFIG_NAME)).unwrap(), "mine");
    assert_eq!(names_in(&full), [CONFIG_NAME]);
    export(&checkpoint, &config, &empty, &ExportConfig::default()).unwrap();
    assert_eq!(names_in(folder.path()), ["empty", "file", "full", "saved"]);
    let error = export(&checkpoint, &config, "/", &ExportConfig::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("ends in a name"), "{error}");
}

#[test]
fn a_checkpoint_of_another_model_is_refused_by_name_and_shape() {
    let (folder, _, checkpoint) = saved(true);
    for (other, words) in [
        (
            config(false),
            "has no tensor \"model.lm_head.weight\": expected one of shape [13, 6]",
        ),
        (config(true).with_d_hidden(Some(12)), "\"model.h.0.mlp.c_fc.weight\" of"),
        (
            GptConfig::new(3, 6, 3, 5, 13).with_d_hidden(Some(10)),
            "has no tensor \"model.h.2.ln_1.weight\": expected one of shape [6]",
        ),
        (
            GptConfig::new(1, 6, 3, 5, 13).with_d_hidden(Some(10)),
            "which is none of this model's: its configuration is of a gpt of 1 layers",
        ),
        (GptConfig::new(2, 6, 4, 5, 13).with_d_hidden(Some(10)), "n_heads"),
    ] {
        let error = refusal(&folder, &checkpoint, &other, &ExportConfig::default());
        assert!(
            error.contains(words) && error.contains(checkpoint.path().to_str().unwrap()),
            "{words:?} is not in {error}"
        );
    }
}

#[test]
fn an_altered_checkpoint_leaves_no_export() {
    let (folder, config, checkpoint) = saved(true);
    let shard = checkpoint.path().join(&checkpoint.files()[0].name);
    let mut bytes = fs::read(&shard).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&shard, bytes).unwrap();
    let checkpoint = Checkpoint::open(checkpoint.path()).unwrap();
    let error = refusal(&folder, &checkpoint, &config, &ExportConfig::default());
    assert!(error.contains("has been altered"), "{error}");
}
