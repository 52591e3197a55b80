//! Files as others write them.

use safetensors::SafeTensors;

use super::*;
use crate::bert::BertConfig;

fn import<C: HuggingFaceFormat + Clone>(folder: &Path) -> (Checkpoint, C, TempDir) {
    let output = TempDir::new().unwrap();
    let model = HuggingFaceModel::<C>::open(folder).unwrap();
    let written = model.write_checkpoint(output.path(), json!(null)).unwrap();
    (Checkpoint::open(written).unwrap(), model.config().clone(), output)
}

/// The causal mask that older versions of transformers stored in every layer.
fn with_masks(mut tensors: Tensors, prefix: &str) -> Tensors {
    for layer in 0..2 {
        let mask = Made {
            dtype: Dtype::BOOL,
            shape: vec![1, 1, 5, 5],
            bytes: vec![1; 25],
        };
        tensors.insert(format!("{prefix}h.{layer}.attn.bias"), mask);
        tensors.insert(format!("{prefix}h.{layer}.attn.masked_bias"), made(&[], &[-1e4]));
    }
    tensors
}

#[test]
fn one_file_is_imported_with_and_without_prefix_and_masks() {
    for is_tied in [true, false] {
        for prefix in ["", "transformer."] {
            let config = config(is_tied);
            let folder = folder_of(&config, &with_masks(tensors(&config, prefix), prefix));
            let (checkpoint, found, _output) = import::<GptConfig>(folder.path());
            assert_eq!(found, config);
            expect_values(&checkpoint, &config);
        }
    }
}

#[test]
fn several_files_are_imported() {
    let (folder, config) = (TempDir::new().unwrap(), config(true));
    write_config(folder.path(), &config, |_| ());
    let prefix = "transformer.";
    write_sharded(folder.path(), &with_masks(tensors(&config, prefix), prefix), |_| ());
    let (checkpoint, found, _output) = import::<GptConfig>(folder.path());
    assert_eq!(found, config);
    expect_values(&checkpoint, &config);
}

#[test]
fn a_head_with_the_bits_of_the_embedding_is_tied() {
    let config = config(true);
    let mut tensors = tensors(&config, "");
    tensors.insert("lm_head.weight".into(), tensors["wte.weight"].clone());
    let (checkpoint, found, _output) = import::<GptConfig>(folder_of(&config, &tensors).path());
    assert!(found.tied_embeddings);
    expect_values(&checkpoint, &config);
}

#[test]
fn a_head_with_another_bit_is_untied() {
    let mut tensors = tensors(&config(true), "");
    let mut head = tensors["wte.weight"].clone();
    *head.bytes.last_mut().unwrap() ^= 1;
    tensors.insert("lm_head.weight".into(), head.clone());
    let (checkpoint, found, _output) = import::<GptConfig>(folder_of(&config(true), &tensors).path());
    assert_eq!(found, config(false));
    let read = checkpoint
        .read("model.lm_head.weight", &Placement::whole([13, 6]), 0..78)
        .unwrap();
    assert_eq!(read.bytes[..], head.bytes);
}

#[test]
fn a_head_that_the_configuration_unties_is_kept_though_equal() {
    let mut tensors = tensors(&config(true), "");
    tensors.insert("lm_head.weight".into(), tensors["wte.weight"].clone());
    let (checkpoint, found, _output) = import::<GptConfig>(folder_of(&config(false), &tensors).path());
    assert_eq!(found, config(false));
    assert!(checkpoint.array("model.lm_head.weight").is_some());
}

/// As `bert-base-uncased` is published.
#[test]
fn a_bert_of_older_names_is_imported_with_what_tells_pairs_apart() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/parity/fixtures/bert/bert/f32");
    let bytes = fs::read(fixture.join(MODEL_NAME)).unwrap();
    let older_name = |name: String| {
        name.replace("LayerNorm.weight", "LayerNorm.gamma")
            .replace("LayerNorm.bias", "LayerNorm.beta")
    };
    let tensor = |(name, view): (String, TensorView)| {
        let (dtype, shape, bytes) = (view.dtype(), view.shape().to_vec(), view.data().to_vec());
        (older_name(name), Made { dtype, shape, bytes })
    };
    let tensors: Tensors = SafeTensors::deserialize(&bytes)
        .unwrap()
        .tensors()
        .into_iter()
        .map(tensor)
        .collect();
    assert!(tensors.contains_key("bert.encoder.layer.1.attention.output.LayerNorm.gamma"));
    let mut fields: Value = serde_json::from_slice(&fs::read(fixture.join(CONFIG_NAME)).unwrap()).unwrap();
    fields["architectures"] = json!(["BertForMaskedLM"]);
    let older = TempDir::new().unwrap();
    fs::write(older.path().join(CONFIG_NAME), fields.to_string()).unwrap();
    write_tensors(&older.path().join(MODEL_NAME), &tensors);

    let (expected, config, _expected_output) = import::<BertConfig>(&fixture);
    let (found, found_config, _output) = import::<BertConfig>(older.path());
    assert!(config.tells_pairs && found_config == config);
    for array in expected.arrays() {
        let read = |from: &Checkpoint| {
            let whole = Placement::whole(array.shape.clone());
            from.read(&array.name, &whole, 0..array.num_elements()).unwrap().bytes
        };
        assert_eq!(read(&found)[..], read(&expected)[..], "{}", array.name);
    }

    // Without it, the file tells no pairs apart.
    let of_pairs = |name: &str| name.contains("pooler") || name.contains("seq_relationship");
    let without: Tensors = tensors.into_iter().filter(|(name, _)| !of_pairs(name)).collect();
    write_tensors(&older.path().join(MODEL_NAME), &without);
    let (_, found_config, _output) = import::<BertConfig>(older.path());
    assert!(!found_config.tells_pairs);
}

#[test]
fn checkpoints_in_the_output_are_left_alone() {
    let config = config(true);
    let folder = folder_of(&config, &tensors(&config, ""));
    let output = TempDir::new().unwrap();
    sharded_checkpoint(output.path(), &config, DType::F32);
    let model = HuggingFaceModel::<GptConfig>::open(folder.path()).unwrap();
    let error = model
        .write_checkpoint(output.path(), json!(null))
        .unwrap_err()
        .to_string();
    assert!(error.contains("iter_0000020 already"), "{error}");
    assert_eq!(names_in(output.path()), [".lock", "iter_0000020"]);
}

#[test]
fn files_cut_short_after_they_were_opened_leave_no_checkpoint() {
    let config = config(true);
    let folder = folder_of(&config, &tensors(&config, ""));
    let model = HuggingFaceModel::<GptConfig>::open(folder.path()).unwrap();
    let path = folder.path().join(MODEL_NAME);
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(file.metadata().unwrap().len() - 4).unwrap();
    let output = TempDir::new().unwrap();
    let error = model
        .write_checkpoint(output.path(), json!(null))
        .unwrap_err()
        .to_string();
    assert!(error.starts_with(&format!("cannot read {}", path.display())), "{error}");
    assert_eq!(names_in(output.path()), [".lock"]);
}
