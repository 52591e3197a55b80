//! Files that are wrong: each is refused by an error that names file, tensor, and what was expected.

use super::*;

/// The error of opening a folder, which must contain these words, and the path of a file in it or its own.
fn expect_error(folder: &Path, file: &str, words: &[&str]) {
    let error = HuggingFaceModel::<GptConfig>::open(folder).unwrap_err().to_string();
    let path = match file {
        "" => folder.to_owned(),
        file => folder.join(file),
    };
    let path = path.display().to_string();
    for words in words.iter().copied().chain([path.as_str()]) {
        assert!(error.contains(words), "{words:?} is not in {error}");
    }
}

/// The error of a model whose tensors `change` has spoiled.
fn expect_refusal(change: impl FnOnce(&mut Tensors), words: &[&str]) {
    let config = config(true);
    let mut tensors = tensors(&config, "transformer.");
    change(&mut tensors);
    expect_error(folder_of(&config, &tensors).path(), MODEL_NAME, words);
}

#[test]
fn tensors_that_do_not_fit_are_named() {
    let rename = |tensors: &mut Tensors, from: &str, to: &str| {
        let tensor = tensors.remove(from).unwrap();
        tensors.insert(to.into(), tensor);
    };
    expect_refusal(
        |tensors| drop(tensors.remove("transformer.h.1.mlp.c_fc.bias")),
        &["no tensor \"h.1.mlp.c_fc.bias\"", "expected one of shape [10]"],
    );
    expect_refusal(
        |tensors| rename(tensors, "transformer.ln_f.bias", "transformer.ln_f.beta"),
        &["no tensor \"ln_f.bias\""],
    );
    expect_refusal(
        |tensors| {
            let extra = tensors["transformer.ln_f.bias"].clone();
            tensors.insert("transformer.h.2.ln_1.bias".into(), extra);
        },
        &["\"transformer.h.2.ln_1.bias\", which is none", "gpt of 2 layers"],
    );
    // As a PyTorch linear layer has it: [out, in].
    expect_refusal(
        |tensors| {
            let weight = tensors.get_mut("transformer.h.0.attn.c_attn.weight").unwrap();
            weight.shape.reverse();
        },
        &[
            "\"transformer.h.0.attn.c_attn.weight\"",
            "has shape [18, 6]: expected [6, 18]",
        ],
    );
    expect_refusal(
        |tensors| tensors.get_mut("transformer.wte.weight").unwrap().dtype = Dtype::I32,
        &["\"transformer.wte.weight\" has type I32: expected F64, F32, F16 or BF16"],
    );
    expect_refusal(
        |tensors| {
            let other = tensors["transformer.wpe.weight"].clone();
            tensors.insert("wpe.weight".into(), other);
        },
        &["\"transformer.wpe.weight\" and \"wpe.weight\" are the same parameter"],
    );
    expect_refusal(
        |tensors| drop(tensors.insert("lm_head.weight".into(), made(&[2, 3], &[0.0; 6]))),
        &["\"lm_head.weight\"", "has shape [2, 3]: expected [13, 6]"],
    );
}

#[test]
fn a_head_that_the_configuration_asks_for_must_be_there() {
    let folder = folder_of(&config(false), &tensors(&config(true), ""));
    expect_error(folder.path(), MODEL_NAME, &["no tensor \"lm_head.weight\"", "[13, 6]"]);
}

#[test]
fn a_configuration_of_more_layers_than_memory_ends_at_the_first_that_is_missing() {
    let folder = folder_of(&config(true), &tensors(&config(true), ""));
    write_config(folder.path(), &config(true), |fields| {
        fields["n_layer"] = json!(1 << 28)
    });
    expect_error(folder.path(), MODEL_NAME, &["no tensor \"h.2.ln_1.weight\""]);
}

#[test]
fn files_that_are_no_safetensors_are_named() {
    let folder = folder_of(&config(true), &tensors(&config(true), ""));
    let path = folder.path().join(MODEL_NAME);
    let whole = fs::read(&path).unwrap();
    let with_length = |length: u64| [&length.to_le_bytes(), &whole[8..]].concat();
    for (bytes, words) in [
        (whole[..whole.len() - 1].to_vec(), "by its header"),
        ([&whole[..], &[0]].concat(), "by its header"),
        (whole[..20].to_vec(), "its safetensors header should have"),
        (with_length(u64::MAX), "should have 18446744073709551615 bytes"),
        (with_length(99_000_000), "should have 99000000 bytes"),
        (with_length(7), "its safetensors header is wrong"),
        (whole[..4].to_vec(), "expected a safetensors file"),
        (Vec::new(), "expected a safetensors file"),
    ] {
        fs::write(&path, bytes).unwrap();
        expect_error(folder.path(), MODEL_NAME, &[words]);
    }
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    expect_error(folder.path(), MODEL_NAME, &["expected a file"]);
    fs::remove_dir(&path).unwrap();
    // No process will ever write to it.
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    expect_error(folder.path(), MODEL_NAME, &["expected a file"]);
}

#[test]
fn headers_that_contradict_themselves_are_refused() {
    let folder = TempDir::new().unwrap();
    write_config(folder.path(), &config(true), |_| ());
    let tensor =
        |shape: Value, offsets: [u64; 2]| json!({ "a": { "dtype": "F32", "shape": shape, "data_offsets": offsets } });
    for header in [
        tensor(json!([2]), [0, 12]),
        tensor(json!([2]), [4, 12]),
        tensor(json!([1_u64 << 40, 1_u64 << 40]), [0, 8]),
        tensor(json!([-2]), [0, 8]),
    ] {
        let text = header.to_string();
        let bytes = [&(text.len() as u64).to_le_bytes(), text.as_bytes(), &[0; 8]].concat();
        fs::write(folder.path().join(MODEL_NAME), bytes).unwrap();
        expect_error(folder.path(), MODEL_NAME, &["its safetensors header is wrong"]);
    }
}

#[test]
fn an_index_that_does_not_fit_its_files_is_refused() {
    let first = "model-00001-of-00003.safetensors";
    let spoil = |change: &dyn Fn(&mut Value), file: &str, words: &[&str]| {
        let folder = TempDir::new().unwrap();
        write_config(folder.path(), &config(true), |_| ());
        write_sharded(folder.path(), &tensors(&config(true), ""), change);
        expect_error(folder.path(), file, words);
    };
    spoil(
        &|index| index["weight_map"]["wte.weight"] = json!("../model.safetensors"),
        INDEX_NAME,
        &[
            "\"wte.weight\" is in \"../model.safetensors\"",
            "expected the name of a file",
        ],
    );
    spoil(
        &|index| index["weight_map"]["wte.weight"] = json!("absent.safetensors"),
        "absent.safetensors",
        &["cannot open"],
    );
    spoil(
        &|index| index["weight_map"]["extra.weight"] = json!(first),
        first,
        &["expected the tensor \"extra.weight\""],
    );
    spoil(
        &|index| index["weight_map"]["h.0.attn.c_attn.bias"] = json!("model-00002-of-00003.safetensors"),
        first,
        &["\"h.0.attn.c_attn.bias\", which model.safetensors.index.json says is in model-00002-of-00003"],
    );
    for value in [json!(null), json!([1]), json!({"weight_map": [1]})] {
        let words = &["expected a JSON object with \"weight_map\""];
        spoil(&|index| *index = value.clone(), INDEX_NAME, words);
    }
    // A tensor that the index does not list, in two files.
    let (folder, all) = (TempDir::new().unwrap(), tensors(&config(true), ""));
    write_config(folder.path(), &config(true), |_| ());
    write_sharded(folder.path(), &all, |index| {
        index["weight_map"]
            .as_object_mut()
            .unwrap()
            .remove("h.0.attn.c_attn.bias");
    });
    let second = "model-00002-of-00003.safetensors";
    let own = all
        .iter()
        .enumerate()
        .filter(|(index, (name, _))| index % 3 == 1 || *name == "h.0.attn.c_attn.bias");
    write_tensors(&folder.path().join(second), own.map(|(_, tensor)| tensor));
    expect_error(
        folder.path(),
        second,
        &["it has the tensor \"h.0.attn.c_attn.bias\", and so has", first],
    );
}

#[test]
fn folders_without_a_model_are_named() {
    let folder = TempDir::new().unwrap();
    expect_error(folder.path(), CONFIG_NAME, &["cannot open"]);
    write_config(folder.path(), &config(true), |_| ());
    expect_error(folder.path(), "", &["has no tensors: expected model.safetensors, or"]);
    for (name, words) in [
        ("model.gguf", "; it has model.gguf, which is not read: convert it"),
        (
            "pytorch_model.bin",
            "; it has pytorch_model.bin: load it with transformers, and save it",
        ),
    ] {
        fs::write(folder.path().join(name), "").unwrap();
        expect_error(folder.path(), "", &[words]);
    }
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 143480\n";
    fs::write(folder.path().join(MODEL_NAME), pointer).unwrap();
    expect_error(
        folder.path(),
        MODEL_NAME,
        &["a pointer of Git LFS", "run `git lfs pull`"],
    );
    fs::write(folder.path().join(CONFIG_NAME), "{").unwrap();
    expect_error(folder.path(), CONFIG_NAME, &["it is no JSON"]);
    fs::write(folder.path().join(CONFIG_NAME), "[]").unwrap();
    expect_error(folder.path(), CONFIG_NAME, &["expected a JSON object"]);
    write_config(folder.path(), &config(true), |fields| fields["n_layer"] = json!(0));
    expect_error(folder.path(), CONFIG_NAME, &["n_layer is 0"]);
}
