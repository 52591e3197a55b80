//! From a corpus to generated text, with the commands of Megatron-LM's guide, in a folder that has nothing but the
//! corpus; flags that come later make the model small. And what the real tensorboard package reads of a run, which is
//! ignored if no Python has it.

#[path = "../../burn-megatron/monitoring/tests/tensorboard/mod.rs"]
mod tensorboard;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use libtest_mimic::Trial;
use serde_json::Value;
use tempfile::TempDir;
use tests::processes::isolate;
use tests::program::{Ended, build, build_bin, end, start, training_text};
use tests::training::Training;
use tests::trials::trial;

const LIMIT: Duration = Duration::from_secs(300);
/// The guide's.
const PREPROCESS: &str = "--input my_corpus.txt --output-prefix my_data --vocab vocab.json --tokenizer-type \
                          GPT2BPETokenizer --dataset-impl mmap";
/// The guide's.
const PRETRAIN: &str = "--num-layers 48 --hidden-size 4096 --num-attention-heads 16 --seq-length 1024 \
     --max-position-embeddings 1024 --micro-batch-size 8 --global-batch-size 512 --train-iters 320000 --lr 0.00015 \
     --lr-decay-style cosine --vocab-file vocab.json --merge-file merges.txt --save checkpoints/ --load checkpoints/ \
     --log-interval 100 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --fp16";
/// The guide's.
const GENERATE: [&str; 11] = [
    "--model-parallel-size",
    "2",
    "--temperature",
    "1.0",
    "--top_p",
    "0.9",
    "--out-seq-length",
    "256",
    "--prompt",
    "Once upon a time",
    "--json",
];
/// What makes it small.
const SMALL: &str = "--num_layers 2 --hidden-size 32 --num-attention-heads 2 --seq-length 32 --micro-batch-size 1 \
                     --global_batch_size 4 --train-iters 3 --log-interval 1 --eval-iters 1";

pub fn trials() -> Vec<Trial> {
    let name = "the_real_tensorboard_reads_the_numbers_of_a_run";
    let python = tensorboard::python_for(name);
    let is_absent = python.is_none();
    let read_back = move || the_real_tensorboard_reads_the_numbers_of_a_run(&python.unwrap_or_default());
    let mut trials = tests::trials![self => [
        commands_of_the_guide_lead_from_a_corpus_to_text,
        what_is_missing_or_does_not_fit_is_said_before_a_step,
    ]];
    trials.push(trial(name, read_back).with_ignored_flag(is_absent));
    trials
}

struct Folder {
    directory: TempDir,
}

impl Folder {
    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn run(&self, program: &Path, flags: impl IntoIterator<Item = impl AsRef<str>>) -> anyhow::Result<Ended> {
        let mut command = Command::new(program);
        isolate(&mut command).current_dir(self.path()).env_remove("RUST_LOG");
        for flag in flags {
            command.arg(flag.as_ref());
        }
        end(start(&mut command)?, LIMIT)
    }

    fn succeed(&self, program: &Path, flags: &str) -> anyhow::Result<Ended> {
        let ended = self.run(program, flags.split_whitespace())?;
        ended.expect_code(0).with_context(|| flags.to_owned())?;
        Ok(ended)
    }
}

/// A folder that has nothing but the corpus: the sources that the other tests train on, a blank line between them.
fn folder_with_corpus() -> anyhow::Result<Folder> {
    let directory = TempDir::new()?;
    let mut paths: Vec<PathBuf> = fs::read_dir(training_text())?
        .map(|entry| Ok(entry?.path()))
        .collect::<anyhow::Result<_>>()?;
    paths.sort();
    let texts = paths.iter().filter(|path| path.is_file()).map(fs::read_to_string);
    let texts = texts.collect::<Result<Vec<_>, _>>()?;
    fs::write(directory.path().join("my_corpus.txt"), texts.join("\n\n"))?;
    Ok(Folder { directory })
}

fn commands_of_the_guide_lead_from_a_corpus_to_text() -> anyhow::Result<()> {
    let folder = folder_with_corpus()?;
    let [train_tokenizer, preprocess_data] = ["train_tokenizer", "preprocess_data"].map(build_bin);
    let preprocess_data = preprocess_data?;
    let [pretrain_gpt, generate] = ["pretrain_gpt", "generate_samples_gpt"].map(build);
    let (pretrain_gpt, generate) = (pretrain_gpt?, generate?);

    folder.succeed(
        &train_tokenizer?,
        "--type bpe --input my_corpus.txt --vocab-size 400 --output-prefix .",
    )?;
    folder.succeed(&preprocess_data, PREPROCESS)?;

    let first = folder.succeed(&pretrain_gpt, &format!("{PRETRAIN} {SMALL}"))?;
    let said = format!("{}{}", first.stdout, first.stderr);
    for words in [
        "--num-layers 2 ",
        "no --data-path: training on the data set my_data_text_document of the current folder",
        "starting from the beginning: no checkpoint in checkpoints/",
        "warning: no validation, for no document is set aside",
        "step 3",
    ] {
        ensure!(said.contains(words), "{words:?} is not in:\n{said}");
    }
    // The checkpoint has the vocabulary.
    let second = SMALL.replace("--train-iters 3", "--train-iters 5");
    let second = format!("{PRETRAIN} {second} --override-opt-param-scheduler --allow-data-change");
    let second = second.replace("--vocab-file vocab.json --merge-file merges.txt", "");
    let second = folder.succeed(&pretrain_gpt, &second)?;
    let said = format!("{}{}", second.stdout, second.stderr);
    ensure!(said.contains("continuing after step 3"), "{said}");

    let ended = folder.run(&generate, GENERATE)?;
    ended.expect_code(0)?;
    let output: Value = serde_json::from_str(ended.stdout.trim()).with_context(|| ended.stdout.clone())?;
    let tokens = output["tokens"].as_array().map_or(0, Vec::len);
    ensure!(
        output["prompt"] == "Once upon a time" && (tokens == 256 || output["finish_reason"] == "end_of_document"),
        "{output}"
    );

    // A blend of two data sets of many documents.
    for name in ["one", "two"] {
        let flags = format!("{PREPROCESS} --output-prefix {name} --split-on blank-line --append-eod");
        folder.succeed(&preprocess_data, &flags)?;
    }
    let others = "--data-path 0.3 one_text_document 0.7 two_text_document --multiple-validation-sets --split 8,2,0 \
                  --reset-position-ids --reset-attention-mask --eod-mask-loss --save other --load other \
                  --loss-scale 1024 --optimizer fused_adam --log-interval 10 --tensorboard-dir ./tb_logs/ \
                  --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1";
    let blended = folder.succeed(&pretrain_gpt, &format!("{PRETRAIN} {SMALL} {others}"))?;
    for words in [
        "step 3 | validation loss ",
        "validation loss of one_text_document ",
        "validation loss of two_text_document ",
    ] {
        ensure!(
            blended.stdout.contains(words),
            "{words:?} is not in:\n{}",
            blended.stdout
        );
    }
    let events = fs::read_dir(folder.path().join("tb_logs"))?
        .next()
        .context("no event file")??;
    let events = fs::read(events.path())?;
    let has = |tag: &[u8]| events.windows(tag.len()).any(|bytes| bytes == tag);
    for tag in ["lm loss", "loss-scale", "lm loss validation-one_text_document"] {
        ensure!(has(tag.as_bytes()), "the event file has no {tag}");
    }
    Ok(())
}

fn what_is_missing_or_does_not_fit_is_said_before_a_step() -> anyhow::Result<()> {
    let folder = folder_with_corpus()?;
    let pretrain_gpt = build("pretrain_gpt")?;
    let flags = format!("{SMALL} --data-path my_corpus.txt");
    folder.succeed(&pretrain_gpt, &format!("{flags} --save checkpoints"))?;
    fs::write(
        folder.path().join("empty.jsonl"),
        "{\"text\": \"\"}\n{\"text\": \"  \"}\n",
    )?;
    fs::create_dir(folder.path().join("sets"))?;
    folder.succeed(
        &build_bin("preprocess_data")?,
        "--input empty.jsonl --output-prefix sets/empty",
    )?;
    fs::write(folder.path().join("one_document.idx"), "")?;
    fs::write(folder.path().join("two_document.idx"), "")?;
    fs::write(folder.path().join("vocab.json"), "{}")?;
    for (flags, words) in [
        (
            SMALL.to_owned(),
            "several data sets: one_document.idx, two_document.idx; say with --data-path which to train on",
        ),
        (format!("{flags} --vocab-file vocab.json"), "merges.txt"),
        (
            format!("{flags} --load empty --exit-on-missing-checkpoint"),
            "no checkpoint in empty",
        ),
        (format!("{flags} --load empty --finetune"), "no checkpoint in empty"),
        (
            format!("{flags} --load checkpoints/iter_0000007"),
            "no checkpoint in checkpoints/iter_0000007",
        ),
        (
            format!("{flags} --load checkpoints --tokenizer-type NullTokenizer --vocab-size 300"),
            "the tokenizer of checkpoints/iter_0000003",
        ),
        (format!("{SMALL} --data-path one_document"), "one_document.bin"),
        (
            format!("{SMALL} --data-path sets/empty_text_document.bin --split 100,0,0"),
            "sets/empty_text_document, training: the documents have 2 tokens, and a sample of --seq-length ",
        ),
    ] {
        let ended = folder.run(&pretrain_gpt, flags.split_whitespace())?;
        ended.expect_refusal(&[words]).with_context(|| flags.clone())?;
    }
    expect_whole_data(&folder, &pretrain_gpt)
}

/// Training refuses a `.bin` that is cut short, and an `.idx` that leads outside it.
fn expect_whole_data(folder: &Folder, pretrain_gpt: &Path) -> anyhow::Result<()> {
    folder.succeed(
        &build_bin("preprocess_data")?,
        "--input my_corpus.txt --output-prefix cut",
    )?;
    let [bin, idx] = ["bin", "idx"].map(|kind| folder.path().join(format!("cut_text_document.{kind}")));
    let (tokens, mut index) = (fs::read(&bin)?, fs::read(&idx)?);
    let refuses = |words: &str| -> anyhow::Result<()> {
        let flags = format!("{SMALL} --data-path cut_text_document");
        let ended = folder.run(pretrain_gpt, flags.split_whitespace())?;
        ended.expect_refusal(&[words])
    };
    fs::write(&bin, &tokens[..tokens.len() - 1])?;
    refuses(&format!("expected a place in the {} bytes of", tokens.len() - 1))?;
    fs::write(&bin, &tokens)?;
    // After the header and the length of the only document, its place.
    index[38..46].copy_from_slice(&(1_i64 << 40).to_le_bytes());
    fs::write(&idx, index)?;
    refuses("is at bytes 1099511627776 to ")
}

/// The number of a line of `--log-jsonl` that has another name in TensorBoard.
const SCALARS: [(&str, &str); 11] = [
    ("learning-rate", "learning_rate"),
    ("batch-size", "global_batch_size"),
    ("lm loss", "loss"),
    ("loss-scale", "loss_scale"),
    ("grad-norm", "grad_norm"),
    ("num-zeros", "num_zeros_in_grad"),
    ("iteration-time", "step_seconds"),
    ("tokens-per-second", "tokens_per_second"),
    ("mem-max-allocated-bytes", "peak_memory_bytes"),
    ("communication-bytes", "communication_bytes"),
    ("skipped", "is_skipped"),
];
/// Those that have a second scalar, by samples.
const WITH_SAMPLES: usize = 6;

/// The scalars of a run of two ranks that continues are those of its `--log-jsonl`, each at its step, and no others.
fn the_real_tensorboard_reads_the_numbers_of_a_run(python: &Path) -> anyhow::Result<()> {
    const SAMPLES: u64 = 8;
    let folder = TempDir::new()?;
    let events = folder.path().join("events");
    let run = |name: &str, steps| -> anyhow::Result<Vec<Value>> {
        let flags = "--world-size 2 --log-num-zeros-in-grad --override-opt-param-scheduler --allow-data-change";
        let training = Training::new(&folder.path().join(name), steps, flags)?
            .with_path("--save", &folder.path().join("checkpoints"))
            .with_path("--load", &folder.path().join("checkpoints"))
            .with_path("--tensorboard-dir", &events);
        training.run()?;
        let log = fs::read_to_string(folder.path().join(name).join("log.jsonl"))?;
        Ok(log.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
    };
    let mut lines = run("first", 2)?;
    lines.extend(run("second", 3)?);
    ensure!(lines.len() == 3, "{lines:?}");
    let mut expected = BTreeMap::new();
    for line in &lines {
        let step = line["step"].as_u64().context("a step")?;
        for (place, (tag, name)) in SCALARS.into_iter().enumerate() {
            let value = match &line[name] {
                Value::Bool(value) => f64::from(u8::from(*value)),
                value => value.as_f64().with_context(|| format!("{name} in {line}"))?,
            };
            expected.insert((tag.to_owned(), step), value);
            if place < WITH_SAMPLES {
                expected.insert((format!("{tag} vs samples"), step * SAMPLES), value);
            }
        }
        expected.insert(("world-size".to_owned(), step), 2.0);
        expected.insert(("world-size vs samples".to_owned(), step * SAMPLES), 2.0);
    }
    let (read, errors) = tensorboard::read(python, &events)?;
    let scalar = |line: &str| -> Option<((String, u64), f64)> {
        let (tag, rest) = line.strip_prefix("scalar '")?.split_once("' ")?;
        let (step, value) = rest.split_once(' ')?;
        Some(((tag.to_owned(), step.parse().ok()?), value.parse().ok()?))
    };
    let found: BTreeMap<_, _> = read.lines().filter_map(scalar).collect();
    // An event has floats of 32 bits.
    let expected: BTreeMap<_, _> = (expected.into_iter())
        .map(|(place, value)| (place, f64::from(value as f32)))
        .collect();
    ensure!(
        found == expected,
        "read:\n{found:#?}\nexpected:\n{expected:#?}\n{errors}"
    );
    ensure!(read.lines().count() == 1 + expected.len(), "{read}");
    Ok(())
}
