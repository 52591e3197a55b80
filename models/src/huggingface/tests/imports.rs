//! Files as others write them.

use safetensors::SafeTensors;

use super::*;
use crate::bert::BertConfig;
use crate::llama::LlamaConfig;
use crate::t5::T5Config;

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

/// A mask in no index, one in the index alone, a parameter in no index, a tied head in the index alone; no metadata.
#[test]
fn several_files_are_imported_as_they_are_published() {
    let (folder, config) = (TempDir::new().unwrap(), config(true));
    write_config(folder.path(), &config, |_| ());
    write_sharded(folder.path(), &with_masks(tensors(&config, ""), ""), |index| {
        let map = index["weight_map"].as_object_mut().unwrap();
        for unlisted in ["h.0.attn.bias", "h.1.mlp.c_fc.bias"] {
            map.remove(unlisted).unwrap();
        }
        for absent in ["h.7.attn.bias", "lm_head.weight"] {
            map.insert(absent.to_owned(), map["wte.weight"].clone());
        }
        index.as_object_mut().unwrap().remove("metadata");
    });
    let (checkpoint, found, _output) = import::<GptConfig>(folder.path());
    assert_eq!(found, config);
    expect_values(&checkpoint, &config);
}

/// Tensors of a model with the parameters' own values, by the names in files.
fn tensors_of<C: HuggingFaceFormat>(config: &C) -> Tensors {
    let tensors = config.parameters().flat_map(|parameter| parameter.tensors);
    let made = tensors.map(|tensor| {
        let mut numbers = vec![0.0; tensor.num_elements()];
        RandomStream::new(7, &tensor.key).fill_normal(0, 1.0, &mut numbers);
        // What 16 bits hold.
        let numbers: Vec<f32> = numbers
            .into_iter()
            .map(|number| (number * 8.0).round() as f32 / 8.0)
            .collect();
        (tensor.file_name, made(&tensor.shape, &numbers))
    });
    made.collect()
}

fn folder_with<C: HuggingFaceFormat>(config: &C, tensors: &Tensors) -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(
        folder.path().join(CONFIG_NAME),
        config.written_fields("float32").to_string(),
    )
    .unwrap();
    write_tensors(&folder.path().join(MODEL_NAME), tensors);
    folder
}

fn array_of(checkpoint: &Checkpoint, name: &str) -> (DType, Vec<u8>) {
    let array = checkpoint.array(name).expect(name);
    let whole = Placement::whole(array.shape.clone());
    let read = checkpoint.read(name, &whole, 0..array.num_elements()).unwrap();
    (read.dtype, read.bytes.to_vec())
}

#[test]
fn parts_of_different_types_become_a_parameter_of_the_type_that_holds_them() {
    let config = LlamaConfig::new(1, 8, 2, 1, 6, 5, 13);
    let whole = tensors_of(&config);
    let (expected, _, _expected_output) = import::<LlamaConfig>(folder_with(&config, &whole).path());
    let narrowed = |name: &str, dtype: Dtype| {
        let tensor = &whole[name];
        let bits = |number: &f32| match dtype {
            Dtype::BF16 => half::bf16::from_f32(*number).to_bits(),
            _ => half::f16::from_f32(*number).to_bits(),
        };
        let numbers: Vec<u16> = bytemuck::cast_slice::<u8, f32>(&tensor.bytes)
            .iter()
            .map(bits)
            .collect();
        (
            name.to_owned(),
            Made {
                dtype,
                shape: tensor.shape.clone(),
                bytes: bytemuck::cast_slice(&numbers).to_vec(),
            },
        )
    };
    let [query, key, value] = ["q", "k", "v"].map(|of| format!("model.layers.0.self_attn.{of}_proj.weight"));
    let array = "model.layers.0.self_attn.qkv_proj.weight";
    for (changed, dtype) in [
        (vec![(&key, Dtype::BF16), (&value, Dtype::F16)], DType::F32),
        (
            vec![(&query, Dtype::BF16), (&key, Dtype::BF16), (&value, Dtype::F16)],
            DType::F32,
        ),
        (
            vec![(&query, Dtype::BF16), (&key, Dtype::BF16), (&value, Dtype::BF16)],
            DType::BF16,
        ),
    ] {
        let mut mixed = whole.clone();
        mixed.extend(changed.into_iter().map(|(name, dtype)| narrowed(name, dtype)));
        let (found, _, _output) = import::<LlamaConfig>(folder_with(&config, &mixed).path());
        let (found_type, bytes) = array_of(&found, array);
        assert_eq!(found_type, dtype);
        if dtype == DType::F32 {
            assert_eq!(bytes, array_of(&expected, array).1);
        }
    }
}

#[test]
fn an_embedding_under_other_names_is_the_same_or_refused() {
    let config = T5Config::new(1, 1, 8, 2, 4, 6, 512, 512, 13);
    let whole = tensors_of(&config);
    let shared = whole["shared.weight"].clone();
    let [encoder, decoder] = ["encoder", "decoder"].map(|of| format!("{of}.embed_tokens.weight"));
    let mut twice = whole.clone();
    twice.extend([&encoder, &decoder].map(|name| (name.clone(), shared.clone())));
    let (expected, _, _expected_output) = import::<T5Config>(folder_with(&config, &whole).path());
    let mut other = twice.clone();
    other.remove("shared.weight");
    for tensors in [&twice, &other] {
        let (found, _, _output) = import::<T5Config>(folder_with(&config, tensors).path());
        let name = "model.shared.weight";
        assert_eq!(array_of(&found, name), array_of(&expected, name));
    }
    for name in [&encoder, &decoder] {
        let mut different = twice.clone();
        *different.get_mut(name).unwrap().bytes.last_mut().unwrap() ^= 1;
        let folder = folder_with(&config, &different);
        let error = HuggingFaceModel::<T5Config>::open(folder.path())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(&format!("{name:?} differ: expected the same")),
            "{error}"
        );
    }
}

/// With a head of its own, transformers 5 computes with the bias that is the head's.
#[test]
fn an_untied_berts_bias_is_its_heads_and_written_twice() {
    let config = BertConfig::new(1, 8, 2, 5, 13).with_tied_embeddings(false);
    let mut whole = tensors_of(&config);
    let [first, second] = ["bias", "decoder.bias"].map(|of| format!("cls.predictions.{of}"));
    assert_eq!(whole[&first].bytes, whole[&second].bytes);
    *whole.get_mut(&first).unwrap() = made(&[13], &[0.0; 13]);
    let (checkpoint, found, output) = import::<BertConfig>(folder_with(&config, &whole).path());
    assert_eq!(found, config);
    let array = array_of(&checkpoint, "model.cls.predictions.bias");
    assert_eq!(array, (DType::F32, whole[&second].bytes.clone()));
    let files = output.path().join("files");
    export(&checkpoint, &config, &files, &ExportConfig::default()).unwrap();
    let bytes = fs::read(files.join(MODEL_NAME)).unwrap();
    let written = SafeTensors::deserialize(&bytes).unwrap();
    for name in [&first, &second] {
        assert_eq!(written.tensor(name).unwrap().data(), array.1, "{name}");
    }
    // transformers 4 has it once.
    whole.remove(&second);
    let (once, _, _once_output) = import::<BertConfig>(folder_with(&config, &whole).path());
    assert_eq!(array_of(&once, "model.cls.predictions.bias").1, whole[&first].bytes);
}

#[test]
fn settings_without_effect_and_other_heads_are_listed_and_numbers_as_python_writes_them_are_read() {
    let config = config(true);
    let mut tensors = tensors(&config, "");
    tensors.insert("lm_head.weight".into(), made(&[13, 6], &[0.5; 78]));
    let folder = folder_of(&config, &tensors);
    write_config(folder.path(), &config, |fields| {
        fields["unsloth_fixed"] = json!(true);
        fields["num_labels"] = json!(2);
        fields["summary_type"] = json!("mean");
        fields["n_routers"] = json!("NUMBER");
        fields["layer_norm_epsilon"] = json!("EPSILON");
        fields["text"] = json!("\\\"NaN, Infinity");
        fields["bos_token_id"] = json!(5);
    });
    let path = folder.path().join(CONFIG_NAME);
    let text = fs::read_to_string(&path).unwrap();
    let text = text.replace("\"NUMBER\"", "[-Infinity, NaN]");
    fs::write(&path, text.replace("\"EPSILON\"", "1e-5")).unwrap();
    let model = HuggingFaceModel::<GptConfig>::open(folder.path()).unwrap();
    let name = path.display();
    let unknown = |field: &str, nearest: &str| {
        format!("{name}: {field} is not known, and has no effect: the nearest known name is {nearest}")
    };
    let head = folder.path().join(MODEL_NAME);
    let expected = [
        unknown("n_routers", "n_layer"),
        unknown("text", "n_embd"),
        format!("{name}: without effect here: summary_type, unsloth_fixed"),
        format!(
            "{}: lm_head.weight differs from the token embedding: imported as a head of its own, though config.json \
             says they are tied",
            head.display()
        ),
    ];
    assert_eq!(model.remarks(), expected);
    fs::write(&path, text.replace("\"EPSILON\"", "NaN")).unwrap();
    let error = HuggingFaceModel::<GptConfig>::open(folder.path())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("layer_norm_epsilon is \"NaN\": expected a number"),
        "{error}"
    );
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
