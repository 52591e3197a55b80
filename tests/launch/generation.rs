//! The program `generate_samples_gpt`: the same text on any number of ranks from a checkpoint of `pretrain_gpt`, and
//! what it refuses.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use libtest_mimic::Trial;
use serde_json::Value;
use tests::program::{self, Ended};
use tests::training::Training;

const LIMIT: Duration = Duration::from_secs(120);
/// Two outputs, drawn, from each prompt; underscores and the short name of the tensor-parallel size.
const FLAGS: &str = "--dtype f64 --temperature 0.9 --top_p 0.9 --top_k=50 --out_seq_length 9 --num-samples 2 --seed 7 \
                     --json --log-probs 2 --repetition-penalty 1.1";

fn generate(folder: &Path, flags: &str, more: &[&str]) -> anyhow::Result<Ended> {
    program::run("generate_samples_gpt", folder, flags, more, LIMIT)
}

fn outputs(ended: &Ended) -> anyhow::Result<Vec<Value>> {
    ended.expect_code(0)?;
    let outputs = ended.stdout.lines().map(serde_json::from_str);
    outputs
        .collect::<Result<Vec<Value>, _>>()
        .with_context(|| ended.stdout.clone())
}

/// Trains on two tensor- and sequence-parallel ranks, and saves to `checkpoints`.
fn train(folder: &Path) -> anyhow::Result<()> {
    let flags = "--tensor-model-parallel-size 2 --sequence-parallel --dtype f64";
    let training = Training::new(&folder.join("run"), 4, flags)?.with_path("--save", &folder.join("checkpoints"));
    training.run().map(drop)
}

pub fn trials() -> Vec<Trial> {
    tests::trials![self => [
        every_layout_generates_the_same_text_from_a_checkpoint,
        a_model_in_training_writes_what_its_checkpoint_writes,
    ]]
}

fn every_layout_generates_the_same_text_from_a_checkpoint() -> anyhow::Result<()> {
    let root = tempfile::tempdir()?;
    train(root.path())?;
    fs::write(root.path().join("prompts.txt"), "fn ma\nlet é\npub\n")?;
    let prompts = ["--prompt-file", "prompts.txt"];
    let first = outputs(&generate(root.path(), FLAGS, &prompts)?)?;
    ensure!(first.len() == 6, "{first:?}");
    for output in &first {
        let count = output["tokens"].as_array().map_or(0, Vec::len);
        let is_whole = count == 9 || output["finish_reason"] == "end_of_document";
        ensure!(
            is_whole && output["top_log_probs"][0].as_array().is_some_and(|top| top.len() == 2),
            "{output}"
        );
    }
    ensure!(
        first[0]["text"] != first[1]["text"] && first[0]["prompt"] == "fn ma",
        "{first:?}"
    );
    for layout in [
        "--model-parallel-size 2",
        "--pipeline-model-parallel-size 2",
        "--model_parallel_size 2 --pipeline-model-parallel-size 2 --max-batch-size 1",
        // Two replicas, one with two of the prompts; sequence parallelism is off while they generate.
        "--model-parallel-size 2 --sequence-parallel --world-size 4",
    ] {
        let other = outputs(&generate(root.path(), &format!("{FLAGS} {layout}"), &prompts)?)?;
        for (left, right) in first.iter().zip(&other) {
            for name in ["prompt", "sample", "text", "tokens", "finish_reason"] {
                ensure!(left[name] == right[name], "{layout}: {name}: {left} {right}");
            }
        }
        ensure!(other.len() == first.len(), "{layout}: {other:?}");
    }
    // Of a repeated flag the last one counts, and text comes as text.
    let flags = "--dtype f64 --out-seq-length 3 --out-seq-length 5 --model-parallel-size 2 --greedy";
    let ended = generate(root.path(), flags, &["--prompt", "fn "])?;
    ended.expect_code(0)?;
    ensure!(
        ended.stdout.starts_with("fn ") && ended.stderr.contains("5 tokens in "),
        "{}{}",
        ended.stdout,
        ended.stderr
    );
    refuses(root.path())
}

/// The text that the last step's TensorBoard event has is that of its checkpoint, and training has the bits of one
/// without texts, while updated parameters are gathered and in stages.
fn a_model_in_training_writes_what_its_checkpoint_writes() -> anyhow::Result<()> {
    let root = tempfile::tempdir()?;
    let one_way = "--tensor-model-parallel-size 2 --sequence-parallel --world-size 4 --use-distributed-optimizer";
    for (name, layout) in [("replicas", one_way), ("stages", "--pipeline-model-parallel-size 2")] {
        let folder = root.path().join(name);
        let training = |part: &str| Training::new(&folder.join(part), 4, &format!("{layout} --dtype f64"));
        let plain = training("plain")?;
        plain.run()?;
        let events = folder.join("events");
        let writing = training("writing")?
            .with("--log-samples-interval 2 --sample-prompt fn --sample-length 9 --tensorboard-log-interval 3")
            .with_path("--tensorboard-dir", &events)
            .with_path("--save", &folder.join("checkpoints"));
        writing.run()?;
        ensure!(plain.losses()? == writing.losses()?, "{name}: other losses");

        let flags = "--dtype f64 --out-seq-length 9 --json";
        let written = outputs(&generate(&folder, flags, &["--prompt", "fn"])?)?;
        let text = written[0]["text"].as_str().context("a text")?;
        let mut bytes = Vec::new();
        for file in fs::read_dir(&events)? {
            bytes.extend(fs::read(file?.path())?);
        }
        let count = |wanted: &[u8]| bytes.windows(wanted.len()).filter(|found| *found == wanted).count();
        let shown = format!("    fn{}", text.replace('\n', "\n    "));
        ensure!(count(shown.as_bytes()) == 1, "{name}: {shown:?} is not written once");
        ensure!(count(b"sample/text_summary") == 2, "{name}: after steps 2 and 4");
    }
    Ok(())
}

/// What cannot be is refused, with what could.
fn refuses(folder: &Path) -> anyhow::Result<()> {
    for (flags, message) in [
        (
            "--out-seq-length 15 --model-parallel-size 2",
            "a prompt of 3 tokens and an output of up to 15 do not fit the model's 16 positions: ask for at most 14",
        ),
        ("--load nowhere", "--load nowhere: there is no such folder"),
        ("--load run", "--load run: there is no checkpoint, nor config.json"),
        ("--top-p 1.5", "top_p must be above 0 and at most 1, got 1.5"),
    ] {
        let ended = generate(folder, flags, &["--prompt", "abc"])?;
        ended.expect_refusal(&[message]).with_context(|| flags.to_owned())?;
    }
    let empty = tempfile::tempdir()?;
    let ended = generate(empty.path(), "", &["--prompt", "abc"])?;
    ended.expect_refusal(&["there is no checkpoint in the folder checkpoints here: give --load"])
}
