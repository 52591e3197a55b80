//! Models from Hugging Face's files, odd ones of every family: fine-tuned with no flag that says what they are, whole
//! and by adapters, on one rank and on two, and exported again.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::program::{self, Ended, training_text};
use tests::python::{lacks_transformers, with_transformers};
use tests::takes_all;
use tests::trials::trial_unless;

use crate::parity::cases::from_pytorch::settings::compare_logits;

const LIMIT: Duration = Duration::from_secs(240);
/// Sizes that every family takes.
const SMALL: &str = "--num-layers 2 --hidden-size 24 --num-attention-heads 4 --seq-length 40 --init-method-std 0.2";
/// Sizes of a Llama: heads that are wider together than a token, and keys that two of them share.
const LLAMA: &str = "--num-query-groups 2 --kv-channels 8 --ffn-hidden-size 38";
/// What is exported: whole models, and what their adapters make of them.
const ONE_RANK: [&str; 2] = ["plain", "adapted"];
const TWO_RANKS: [&str; 2] = ["plain_tp2", "adapted_tp2"];
const PROMPT: &str = "fn new";
const LENGTH: &str = "30";
/// Training that says nothing of the model.
const STEPS: &str = "--micro-batch-size 1 --global-batch-size 4 --train-iters 5 --eval-iters 0 \
                     --lr-decay-style constant --dtype f64";

/// A model that flags make, and what is then another in its `config.json`.
struct Odd {
    flags: &'static str,
    changes: Value,
    /// True if it is tried by default, and not only where all trials are.
    is_sharp: bool,
}

fn all() -> Vec<Odd> {
    let odd = |flags, changes| Odd {
        flags,
        changes,
        is_sharp: false,
    };
    let sharp = |flags, changes| Odd {
        is_sharp: true,
        ..odd(flags, changes)
    };
    vec![
        odd(
            "--model-family gpt --untie-embeddings-and-output-weights --ffn-hidden-size 50",
            json!({"attn_pdrop": 0.1, "embd_pdrop": 0.2, "resid_pdrop": 0.2}),
        ),
        odd("--model-family gpt", json!({"layer_norm_epsilon": 0.002})),
        odd(
            "--model-family llama",
            json!({"rope_scaling": {"factor": 3.0, "rope_type": "linear"}}),
        ),
        // Tied, and with scaled frequencies of its own.
        odd("--model-size llama3.2-1b", json!({"rms_norm_eps": 0.002})),
        odd("--model-family llama --add-qkv-bias", json!({"rope_theta": 300.0})),
        sharp(
            "--model-family llama --qk-layernorm",
            json!({"rope_scaling": {"factor": 4.0, "rope_type": "yarn"}}),
        ),
        odd(
            "--model-family llama --window-size 5",
            json!({"attention_dropout": 0.1}),
        ),
        sharp(
            "--model-family neox --rotary-percent 0.34",
            json!({"hidden_act": "gelu_fast", "use_parallel_residual": false}),
        ),
        odd(
            "--model-family neox --rotary-percent 0.7",
            json!({"rotary_emb_base": 300.0}),
        ),
        odd(
            "--model-family bloom --num-attention-heads 6",
            json!({"seq_length": 36}),
        ),
        odd(
            "--model-family bloom --untie-embeddings-and-output-weights",
            json!({"layer_norm_epsilon": 0.002}),
        ),
        // Norms after the sublayers.
        odd(
            "--model-size bert-base --ffn-hidden-size 50",
            json!({"hidden_act": "gelu_new"}),
        ),
        odd(
            "--model-family bert --bert-no-binary-head --untie-embeddings-and-output-weights",
            json!({"hidden_dropout_prob": 0.1}),
        ),
        // Gated, with a head of its own.
        odd(
            "--model-size t5-v1.1-small --decoder-num-layers 1 --decoder-seq-length 40 --ffn-hidden-size 38",
            json!({"dropout_rate": 0.1}),
        ),
        odd(
            "--model-family t5 --decoder-num-layers 1 --decoder-seq-length 40",
            json!({"relative_attention_max_distance": 20}),
        ),
    ]
}

pub fn trials() -> Vec<Trial> {
    let mut trials = tests::trials![self => [imported_models_are_fine_tuned_as_they_are]];
    let name = "transformers_computes_what_fine_tuned_models_do";
    let compare = |odd: &Odd| fine_tune(odd, &[ONE_RANK, TWO_RANKS].concat())?.compare_with_transformers();
    let compare = move || each(all(), compare);
    trials.push(trial_unless(lacks_transformers(), name, compare));
    trials
}

fn imported_models_are_fine_tuned_as_they_are() -> anyhow::Result<()> {
    let odd = all().into_iter().filter(|odd| odd.is_sharp || takes_all());
    each(odd, |odd| fine_tune(odd, &ONE_RANK).map(drop))
}

fn each(all: impl IntoIterator<Item = Odd>, compare: impl Fn(&Odd) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let failure = |odd: Odd| Some(format!("{}: {:#}", odd.flags, compare(&odd).err()?));
    let failures: Vec<String> = all.into_iter().filter_map(failure).collect();
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

/// Exports of what was trained, and the greedy texts of each here; none of a family that continues no text.
struct FineTuned {
    folder: TempDir,
    exported: Vec<PathBuf>,
    texts: Vec<Value>,
}

impl FineTuned {
    fn compare_with_transformers(&self) -> anyhow::Result<()> {
        let exported: Vec<&OsStr> = self.exported.iter().map(AsRef::as_ref).collect();
        with_transformers(&[&["logits".as_ref()], &exported[..]].concat())?;
        compare_logits(self.folder.path())?;
        if self.texts.is_empty() {
            return Ok(());
        }
        let asked = ["generate", PROMPT, LENGTH].map(OsStr::new);
        let theirs = with_transformers(&[&asked[..], &exported[..]].concat())?;
        let theirs: Vec<Value> = serde_json::from_str(&theirs)?;
        let [ours, theirs] = [&self.texts, &theirs].map(|texts| json!(texts));
        ensure!(ours == theirs, "{ours}, and {theirs} by transformers");
        println!("{theirs}");
        Ok(())
    }
}

fn fine_tune(odd: &Odd, names: &[&str]) -> anyhow::Result<FineTuned> {
    let folder = tempfile::tempdir()?;
    let text = training_text().display().to_string();
    let run = |program: &'static str, flags: &str, more: &[&str]| -> anyhow::Result<Ended> {
        let ended = program::run(program, folder.path(), flags, more, LIMIT)?;
        ended.expect_code(0)?;
        Ok(ended)
    };
    let own = if odd.flags.contains("llama") { LLAMA } else { "" };
    let flags = format!(
        "{SMALL} {own} {} --train-iters 1 --global-batch-size 8 --eval-iters 0",
        odd.flags
    );
    run("pretrain_gpt", &format!("{flags} --save made --data-path"), &[&text])?;
    run("checkpoint", "convert made files --to huggingface", &[])?;
    let config = change(&folder.path().join("files"), &odd.changes)?;
    run("checkpoint", "convert files imported --from huggingface", &[])?;

    let train = |more: &str, log: &str| -> anyhow::Result<Vec<f64>> {
        let flags = format!("{STEPS} --load imported --finetune {more} --log-jsonl {log} --data-path");
        run("pretrain_gpt", &flags, &[&text])?;
        program::losses(&folder.path().join(log))
    };
    // Every gradient and parameter of two ranks, as on one.
    let compare = "--load imported --layouts tp2sp --dtype f64 --micro-batch-size 1 --global-batch-size 4 \
                   --train-iters 3 --output comparison --data-path";
    run("compare_sharding", compare, &[&text])?;
    let layout = "--tensor-model-parallel-size 2 --sequence-parallel";
    let [plain, adapted] = ["--lr 0.002 --save plain", "--lr 0.01 --lora-rank 2 --save adapted"];
    train(plain, "plain.jsonl")?;
    train(&format!("{plain}_tp2 {layout}"), "plain_tp2.jsonl")?;
    let one = train(adapted, "adapted.jsonl")?;
    let two = train(&format!("{adapted}_tp2 {layout}"), "adapted_tp2.jsonl")?;
    let is_same = |(one, two): (&f64, &f64)| (one - two).abs() <= 1e-10 * one.abs();
    ensure!(
        one.len() == 5 && one.iter().zip(&two).all(is_same),
        "{one:?} on one rank, {two:?} on two"
    );

    for name in names {
        let convert = format!("convert {name} {name}_files --to huggingface --max-shard-size 20KB");
        run("checkpoint", &convert, &[])?;
        let written = read(&folder.path().join(format!("{name}_files/config.json")))?;
        for key in odd
            .changes
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, _)| key.as_str())
            .chain(["vocab_size"])
        {
            let (found, expected) = (&written[key], &config[key]);
            let is_there = expected.as_object().map_or(found == expected, |expected| {
                expected.iter().all(|(key, value)| found.get(key) == Some(value))
            });
            ensure!(is_there, "{name}: {key} is {found}, and {expected} was imported");
        }
    }
    let resumed = run(
        "pretrain_gpt",
        &format!("{STEPS} --lr 0.002 --load plain --data-path"),
        &[&text],
    )?;
    let has_no_steps = resumed.stdout.contains("nothing is left to train on after step 5");
    ensure!(has_no_steps, "it does not continue without flags:\n{}", resumed.stdout);
    let has_texts = !["bert", "t5"].iter().any(|family| odd.flags.contains(family));
    let mut texts = Vec::new();
    for name in names.iter().filter(|_| has_texts) {
        let generate = |from: &str, more: &str| -> anyhow::Result<Value> {
            let flags = format!("--load {from} --out-seq-length {LENGTH} --greedy --dtype f64 --json {more} --prompt");
            let output: Value = serde_json::from_str(&run("generate_samples_gpt", &flags, &[PROMPT])?.stdout)?;
            Ok(json!([output["text"], output["tokens"]]))
        };
        let first = generate(name, "")?;
        for (from, more) in [
            ((*name).to_owned(), "--model-parallel-size 2"),
            (format!("{name}_files"), ""),
        ] {
            let found = generate(&from, more)?;
            ensure!(found == first, "{from} {more}: {found} in place of {first}");
        }
        texts.push(first);
    }
    let exported = names.iter().map(|name| folder.path().join(format!("{name}_files")));
    let exported = exported.collect();
    Ok(FineTuned {
        folder,
        exported,
        texts,
    })
}

/// Changes settings of a model's files, and gives it a tokenizer with fewer tokens than its vocabulary has rows, and
/// texts that end at capital letters. Returns the settings.
fn change(folder: &Path, changes: &Value) -> anyhow::Result<Value> {
    let path = folder.join("config.json");
    let mut config = read(&path)?;
    for (key, value) in changes.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    fs::write(path, config.to_string())?;
    let tokenizer = tokenizer();
    let tokens = tokenizer["model"]["vocab"].as_object().map_or(0, serde_json::Map::len) as u64;
    ensure!(
        config["vocab_size"].as_u64() > Some(tokens),
        "no row is without a token: {config}"
    );
    fs::write(folder.join("tokenizer.json"), tokenizer.to_string())?;
    let capitals: Vec<&Value> = ('A'..='Z')
        .map(|letter| &tokenizer["model"]["vocab"][letter.to_string()])
        .collect();
    let ends = json!({ "eos_token_id": capitals });
    fs::write(folder.join("generation_config.json"), ends.to_string())?;
    Ok(config)
}

/// Characters as tokens, and what samples of all objectives need.
fn tokenizer() -> Value {
    let special = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]", "</s>"].map(str::to_owned);
    let sentinels = (0..12).map(|number| format!("<extra_id_{number}>"));
    let special: Vec<String> = special.into_iter().chain(sentinels).collect();
    let characters = ('\n'..='\n').chain(' '..='~').map(String::from);
    let texts = special.iter().cloned().chain(characters);
    let vocabulary: serde_json::Map<_, _> = texts.enumerate().map(|(token, text)| (text, token.into())).collect();
    let added = special.iter().enumerate().map(|(token, text)| {
        json!({
            "id": token, "content": text, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            "special": true,
        })
    });
    json!({
        "version": "1.0",
        "added_tokens": added.collect::<Vec<_>>(),
        "decoder": {"type": "Fuse"},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": [], "unk_token": "[UNK]"},
    })
}

fn read(path: &Path) -> anyhow::Result<Value> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Ok(serde_json::from_str(&text)?)
}
