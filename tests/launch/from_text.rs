//! From a corpus to generated text, with the commands of Megatron-LM's guide, in a folder that has nothing but the
//! corpus. Flags that come later make the model small.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tempfile::TempDir;
use tests::processes::isolate;
use tests::program::{Ended, build, build_bin, end, start, training_text};

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

#[test]
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
    let output: serde_json::Value = serde_json::from_str(ended.stdout.trim()).with_context(|| ended.stdout.clone())?;
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

#[test]
fn what_is_missing_or_does_not_fit_is_said_before_a_step() -> anyhow::Result<()> {
    let folder = folder_with_corpus()?;
    let pretrain_gpt = build("pretrain_gpt")?;
    let flags = format!("{SMALL} --data-path my_corpus.txt");
    folder.succeed(&pretrain_gpt, &format!("{flags} --save checkpoints"))?;
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
    ] {
        let ended = folder.run(&pretrain_gpt, flags.split_whitespace())?;
        ensure!(
            ended.code != Some(0) && ended.stderr.contains(words),
            "{flags}: {words:?} is not in:\n{}",
            ended.stderr
        );
    }
    Ok(())
}
