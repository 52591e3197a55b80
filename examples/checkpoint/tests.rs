//! What the program says of a checkpoint that is whole, of one that is not, and of paths without one.

use std::fs;

use burn::tensor::{Bytes, DType};
use burn_megatron::checkpoint::{ArrayPart, CheckpointConfig, CheckpointWriter};
use burn_megatron::collectives::ProcessGroup;
use burn_megatron::parameters::Placement;
use burn_megatron_data::programs::TokenizerArguments;
use examples::run_tokenizer::RunTokenizer;
use examples::saved_state::RunState;
use models::Objective;
use models::gpt::GptConfig;
use models::huggingface::HuggingFaceFormat as _;
use tempfile::TempDir;

use super::*;
use crate::inspect::ranks_text;

fn save(directory: &Path) {
    let options = CheckpointConfig {
        layout: serde_json::json!({ "tensor": 1 }),
        ..CheckpointConfig::new()
    };
    let mut writer = CheckpointWriter::new(ProcessGroup::single(), directory, options).unwrap();
    let part = |name: &str, shape: [usize; 2]| {
        let data = Bytes::from_elems(vec![1.5_f32; shape.iter().product()]);
        ArrayPart::whole(name, Placement::whole(shape), DType::F32, data)
    };
    let parts = vec![
        part("model.weight", [30, 20]),
        part("optimizer.moment_1.weight", [30, 20]),
    ];
    let state = serde_json::json!({ "samples": 640, "scale": 65536.0 });
    writer.save(20, parts, state).unwrap();
}

fn inspect(checkpoint: &Path, json: bool) -> anyhow::Result<String> {
    let checkpoint = checkpoint.to_owned();
    run(&Command::Inspect { checkpoint, json })
}

fn verify(checkpoint: &Path) -> anyhow::Result<String> {
    let checkpoint = checkpoint.to_owned();
    run(&Command::Verify { checkpoint })
}

fn convert(checkpoint: &Path, output: &Path, flags: &[&str]) -> anyhow::Result<String> {
    let paths = ["checkpoint", "convert"]
        .map(Path::new)
        .into_iter()
        .chain([checkpoint, output]);
    let words = paths.chain(flags.iter().map(Path::new));
    run(&Arguments::try_parse_from(words)?.command)
}

#[test]
fn a_person_reads_what_a_checkpoint_holds() {
    let folder = TempDir::new().unwrap();
    save(folder.path());
    let page = inspect(folder.path(), false).unwrap();
    for words in [
        "iteration   20\n",
        ", 1 rank\n",
        "layout      {\"tensor\":1}\n",
        "  samples  640\n",
        "  rank_00000.safetensors     4.9 KiB  xxh3 ",
        "  model.weight               F32   [30, 20]     2.3 KiB  rank 0\n",
        "  optimizer.moment_1.weight  F32   [30, 20]     2.3 KiB  rank 0\n",
        "total       2 arrays, 1200 elements; 1 file, 4.9 KiB\n",
    ] {
        assert!(page.contains(words), "{words:?} is not in\n{page}");
    }
}

#[test]
fn a_program_reads_the_same() {
    let folder = TempDir::new().unwrap();
    save(folder.path());
    let figures: serde_json::Value = serde_json::from_str(&inspect(folder.path(), true).unwrap()).unwrap();
    assert_eq!(figures["iteration"], 20);
    assert_eq!(figures["state"]["samples"], 640);
    assert_eq!(figures["arrays"][1]["name"], "optimizer.moment_1.weight");
    assert_eq!(figures["arrays"][1]["shape"], serde_json::json!([30, 20]));
    assert_eq!(figures["arrays"][0]["parts"][0]["file"], "rank_00000.safetensors");
    assert_eq!(figures["files"][0]["xxh3"].as_str().unwrap().len(), 16);
}

#[test]
fn verify_names_what_is_wrong() {
    let folder = TempDir::new().unwrap();
    save(folder.path());
    let text = verify(folder.path()).unwrap();
    assert!(
        text.ends_with("iter_0000020: whole, 2 arrays in 1 file, 4.9 KiB\n"),
        "{text}"
    );
    let shard = folder.path().join("iter_0000020/rank_00000.safetensors");
    let mut bytes = fs::read(&shard).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&shard, bytes).unwrap();
    let error = verify(folder.path()).unwrap_err().to_string();
    assert!(error.contains("rank_00000.safetensors has been altered"), "{error}");
}

#[test]
fn convert_writes_a_file_that_others_can_read() {
    let folder = TempDir::new().unwrap();
    save(&folder.path().join("sharded"));
    let output = folder.path().join("whole");
    let path = convert(&folder.path().join("sharded"), &output, &[]).unwrap();
    assert_eq!(Path::new(path.trim_end()), output.join("iter_0000020"));
    verify(&output).unwrap();
    let bytes = fs::read(output.join("iter_0000020/rank_00000.safetensors")).unwrap();
    let header = String::from_utf8_lossy(&bytes);
    assert!(
        header.contains("\"model.weight\":{\"dtype\":\"F32\",\"shape\":[30,20]"),
        "the array has its shape"
    );
    let error = convert(&folder.path().join("sharded"), &output, &[])
        .unwrap_err()
        .to_string();
    assert!(error.contains("whole/iter_0000020 is there already"), "{error}");
}

/// Saves a GPT in which each number is another, as `pretrain_gpt` saves one.
fn save_gpt(directory: &Path, config: &GptConfig) {
    let parts = config.parameters().enumerate().map(|(index, parameter)| {
        let first = 1000.0 * index as f32;
        let numbers = (0..parameter.num_elements()).map(|number| first + number as f32);
        let data = Bytes::from_elems(numbers.collect::<Vec<_>>());
        let placement = Placement::whole(parameter.logical_shape.clone());
        ArrayPart::whole(parameter.array_name(), placement, DType::F32, data)
    });
    let mut writer = CheckpointWriter::new(ProcessGroup::single(), directory, CheckpointConfig::new()).unwrap();
    let state = serde_json::json!({ "model": config, "trainer": null, "data": null });
    writer.save(7, parts.collect(), state).unwrap();
}

#[test]
fn convert_goes_to_hugging_face_and_back() {
    let folder = TempDir::new().unwrap();
    let [saved, files, back, again] = ["saved", "files", "back", "again"].map(|name| folder.path().join(name));
    let config = GptConfig::new(2, 6, 3, 5, 257);
    save_gpt(&saved, &config);
    let path = convert(&saved, &files, &["--to", "huggingface"]).unwrap();
    assert_eq!(Path::new(path.trim_end()), files);
    let path = convert(&files, &back, &["--from", "huggingface"]).unwrap();
    assert_eq!(Path::new(path.trim_end()), back.join("iter_0000000"));
    verify(&back).unwrap();
    let imported = Checkpoint::find(&back).unwrap();
    let state = ModelState::<GptConfig>::of(&imported).unwrap();
    assert_eq!((&state.model, state.imported_from.as_ref()), (&config, Some(&files)));
    let error = RunState::<GptConfig>::of(&imported).unwrap_err().to_string();
    assert!(
        error.contains("no optimizer state to continue from: give --finetune"),
        "{error}"
    );
    convert(&back, &again, &["--to", "huggingface"]).unwrap();
    for name in ["config.json", "model.safetensors"] {
        let [first, second] = [&files, &again].map(|folder| fs::read(folder.join(name)).unwrap());
        assert!(first == second, "{name}");
    }
    let parts = folder.path().join("parts");
    convert(&saved, &parts, &["--to", "huggingface", "--max-shard-size", "3kb"]).unwrap();
    assert!(!parts.join("model.safetensors").exists() && parts.join("model.safetensors.index.json").exists());
    let halves = folder.path().join("halves");
    convert(&saved, &halves, &["--to", "huggingface", "--dtype", "bf16"]).unwrap();
    let size = |folder: &Path| fs::metadata(folder.join("model.safetensors")).unwrap().len();
    assert!(size(&halves) * 10 < size(&files) * 7);
}

/// A tokenizer of words, as Hugging Face's `tokenizers` writes one.
fn tokenizer_json(words: usize) -> String {
    let vocab: serde_json::Map<_, _> = (0..words).map(|word| (format!("w{word}"), word.into())).collect();
    serde_json::json!({
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": { "type": "Whitespace" },
        "model": { "type": "WordLevel", "vocab": vocab, "unk_token": "w0" },
    })
    .to_string()
}

#[test]
fn convert_carries_the_tokenizer_in_both_directions() {
    let folder = TempDir::new().unwrap();
    let [saved, files, back, whole, again] =
        ["saved", "files", "back", "whole", "again"].map(|name| folder.path().join(name));
    save_gpt(&saved, &GptConfig::new(2, 6, 3, 5, 257));
    convert(&saved, &files, &["--to", "huggingface"]).unwrap();
    let carried = [
        ("tokenizer.json", tokenizer_json(9)),
        ("tokenizer_config.json", r#"{"model_max_length": 5}"#.to_owned()),
        // No file of this kind of tokenizer here.
        ("merges.txt", "#version: 0.2\n".to_owned()),
        ("vocab.json", String::new()),
        ("chat_template.jinja", "{{ messages }}".to_owned()),
        ("additional_chat_templates/tools.jinja", "{{ tools }}".to_owned()),
        ("generation_config.json", r#"{"eos_token_id": [7, 8]}"#.to_owned()),
    ];
    let config = fs::read_to_string(files.join("config.json")).unwrap();
    let numbered = config.replace(r#""eos_token_id": null"#, r#""eos_token_id": 7"#);
    assert!(config != numbered, "{config}");
    fs::write(files.join("config.json"), &numbered).unwrap();
    fs::create_dir(files.join("additional_chat_templates")).unwrap();
    for (name, content) in &carried {
        fs::write(files.join(name), content).unwrap();
    }
    convert(&files, &back, &["--from", "huggingface"]).unwrap();
    verify(&back).unwrap();
    let imported = Checkpoint::find(&back).unwrap();
    let stored = RunTokenizer::choose(&TokenizerArguments::default(), Some(&imported), Objective::NextToken).unwrap();
    let of_folder = RunTokenizer::of_folder(&files).unwrap().expect("a tokenizer");
    assert_eq!((stored.vocabulary_size(), stored.sha256()), (9, of_folder.sha256()));
    assert_eq!(stored.tokenizer().ends_of_text(), [7, 8]);
    convert(&back, &whole, &[]).unwrap();
    convert(&whole, &again, &["--to", "huggingface"]).unwrap();
    for (name, content) in &carried {
        assert_eq!(&fs::read_to_string(again.join(name)).unwrap(), content, "{name}");
    }
    assert_eq!(fs::read_to_string(again.join("config.json")).unwrap(), numbered);
    let [first, second] = [&files, &again].map(|folder| fs::read(folder.join("model.safetensors")).unwrap());
    assert!(first == second);
}

#[test]
fn an_export_says_which_tokens_begin_and_end_a_text() {
    let folder = TempDir::new().unwrap();
    let [saved, files, back, again] = ["saved", "files", "back", "again"].map(|name| folder.path().join(name));
    save_gpt(&saved, &GptConfig::new(2, 6, 3, 5, 257));
    convert(&saved, &files, &["--to", "huggingface"]).unwrap();
    // As a model that was trained with a tokenizer has them: no file of another program numbers its tokens.
    fs::write(files.join("tokenizer.json"), tokenizer_json(9)).unwrap();
    fs::write(
        files.join("tokenizer_config.json"),
        r#"{"eos_token": "w3", "pad_token": "w4"}"#,
    )
    .unwrap();
    let config = fs::read_to_string(files.join("config.json")).unwrap();
    let without = |field: &str| format!("  \"{field}\": null,\n");
    let config = config
        .replace(&without("bos_token_id"), "")
        .replace(&without("eos_token_id"), "");
    assert!(!config.contains("token_id"), "{config}");
    fs::write(files.join("config.json"), config).unwrap();
    convert(&files, &back, &["--from", "huggingface"]).unwrap();
    convert(&back, &again, &["--to", "huggingface"]).unwrap();
    let read = |name: &str| -> serde_json::Value {
        serde_json::from_str(&fs::read_to_string(again.join(name)).unwrap()).unwrap()
    };
    let config = read("config.json");
    let numbers = ["bos_token_id", "eos_token_id", "pad_token_id"].map(|field| config[field].clone());
    assert_eq!(numbers, [serde_json::Value::Null, 3.into(), 4.into()]);
    assert_eq!(
        read("generation_config.json"),
        serde_json::json!({"eos_token_id": 3, "pad_token_id": 4})
    );
}

#[test]
fn convert_refuses_a_tokenizer_that_does_not_fit() {
    let folder = TempDir::new().unwrap();
    let [saved, files, back] = ["saved", "files", "back"].map(|name| folder.path().join(name));
    save_gpt(&saved, &GptConfig::new(2, 6, 3, 5, 257));
    convert(&saved, &files, &["--to", "huggingface"]).unwrap();
    for (content, words) in [
        (
            tokenizer_json(258),
            "the tokenizer has 258 tokens, but the model's vocabulary has 257",
        ),
        ("{}".to_owned(), "tokenizer.json"),
    ] {
        fs::write(files.join("tokenizer.json"), content).unwrap();
        let error = convert(&files, &back, &["--from", "huggingface"]).unwrap_err();
        let text = programs::with_causes(&error);
        assert!(text.contains(words), "{text}");
        assert!(
            text.contains("without its files the parameters are imported alone"),
            "{text}"
        );
        assert!(!back.exists());
    }
}

#[test]
fn convert_refuses_what_is_no_gpt_and_flags_that_contradict() {
    let folder = TempDir::new().unwrap();
    let [saved, output] = ["saved", "output"].map(|name| folder.path().join(name));
    save(&saved);
    let error = convert(&saved, &output, &["--to", "huggingface"])
        .unwrap_err()
        .to_string();
    assert!(error.contains("is no checkpoint of this program"), "{error}");
    let both = ["--to", "huggingface", "--from", "huggingface"];
    let error = convert(&saved, &output, &both).unwrap_err().to_string();
    assert!(error.contains("cannot be used with"), "{error}");
    for flags in [["--dtype", "f16"], ["--max-shard-size", "1GB"]] {
        let error = convert(&saved, &output, &flags).unwrap_err().to_string();
        assert!(error.contains("--to"), "{error}");
    }
    assert!(!output.exists());
}

#[test]
fn causes_are_said_once() {
    let folder = TempDir::new().unwrap();
    let absent = folder.path().join("absent");
    let error = convert(&absent, &folder.path().join("output"), &["--from", "huggingface"]).unwrap_err();
    let text = programs::with_causes(&error);
    assert_eq!(text.matches("No such file").count(), 1, "{text}");
    let error = error.context("importing");
    assert_eq!(programs::with_causes(&error), format!("importing: {text}"));
}

#[test]
fn paths_without_a_checkpoint_are_named() {
    let folder = TempDir::new().unwrap();
    let nothing = folder.path().join("nothing");
    for path in [folder.path(), &nothing] {
        let error = inspect(path, false).unwrap_err().to_string();
        assert!(
            error.contains("no checkpoint in") && error.contains(path.to_str().unwrap()),
            "{error}"
        );
    }
}

#[test]
fn ranks_are_listed_in_stretches() {
    assert_eq!(ranks_text(&[]), "no rank");
    assert_eq!(ranks_text(&[3]), "rank 3");
    assert_eq!(ranks_text(&[0, 1]), "ranks 0, 1");
    assert_eq!(ranks_text(&[0, 1, 2, 3, 8]), "ranks 0 to 3, 8");
}

#[test]
fn the_command_line_is_well_formed() {
    use clap::CommandFactory;
    Arguments::command().debug_assert();
}
