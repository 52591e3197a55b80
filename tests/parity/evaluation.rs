//! The program `evaluate`: the figures of transformers for an imported GPT-2, the same in every layout; a checkpoint of
//! `pretrain_gpt`; and what it refuses. `gpt2_evaluation.py` has made the fixture.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use libtest_mimic::Trial;
use serde::Deserialize;
use serde_json::Value;
use tests::program::{self, Ended};
use tests::training::Training;

const LIMIT: Duration = Duration::from_secs(120);
/// Of numbers that are all computed in f64.
const ROUNDING: f64 = 1e-12;
/// Of transformers, also in f64, which sums in another order.
const TRANSFORMERS: f64 = 1e-10;
const LAYOUTS: [&str; 5] = [
    "--model-parallel-size 2",
    "--model-parallel-size 2 --sequence-parallel --micro-batch-size 2",
    "--pipeline-model-parallel-size 2 --micro-batch-size 1",
    "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2",
    "--world-size 2 --micro-batch-size 3",
];

/// What transformers has computed, as `gpt2_evaluation.py` wrote it.
#[derive(Deserialize)]
struct Case {
    flags: String,
    num_truncated: usize,
    figures: Value,
}

fn fixtures() -> PathBuf {
    tests::folder().join("parity/fixtures")
}

fn evaluate(folder: &Path, flags: &str) -> anyhow::Result<Ended> {
    program::run("evaluate", folder, flags, &[], LIMIT)
}

/// The object that a run prints.
fn report(folder: &Path, flags: &str) -> anyhow::Result<Value> {
    let ended = evaluate(folder, &format!("{flags} --json"))?;
    ended.expect_code(0).with_context(|| flags.to_owned())?;
    serde_json::from_str(&ended.stdout).with_context(|| ended.stdout.clone())
}

/// The report of a task on the small GPT-2.
fn of_gpt2(flags: &str) -> anyhow::Result<Value> {
    let flags = format!("{flags} --load . --tokenizer-type NullTokenizer --vocab-size 199");
    report(&fixtures().join("gpt2_evaluation"), &flags)
}

fn cases() -> anyhow::Result<Vec<Case>> {
    let path = fixtures().join("gpt2_evaluation/figures.json");
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

/// Fails unless both have the same figures, and numbers as close as asked.
fn expect_figures(what: &str, found: &Value, expected: &Value, tolerance: f64) -> anyhow::Result<()> {
    let families = |value: &Value| {
        value
            .as_object()
            .map(|object| object.keys().cloned().collect::<Vec<_>>())
    };
    ensure!(families(found) == families(expected), "{what}: {found} and {expected}");
    for (family, expected) in expected.as_object().context("families")? {
        let found = &found[family];
        ensure!(families(found) == families(expected), "{what}: {found} and {expected}");
        for (name, expected) in expected.as_object().context("figures")? {
            let (found, expected) = (found[name].as_f64(), expected.as_f64());
            let (found, expected) = found.zip(expected).context("figures are numbers")?;
            ensure!(
                (found - expected).abs() <= tolerance * expected.abs(),
                "{what}: {family}, {name}: {found} instead of {expected}"
            );
        }
    }
    Ok(())
}

pub fn trials() -> Vec<Trial> {
    tests::trials![self => [
        wikitext_of_a_gpt2_is_that_of_transformers,
        lambada_of_a_gpt2_is_that_of_transformers,
        multiple_choice_of_a_gpt2_is_that_of_transformers,
        figures_are_the_same_in_every_layout,
        a_checkpoint_of_bytes_is_evaluated_and_what_cannot_be_is_refused,
    ]]
}

fn wikitext_of_a_gpt2_is_that_of_transformers() -> anyhow::Result<()> {
    compare_with_transformers("wikitext")?;
    let case = &cases()?[0];
    let found = of_gpt2(&case.flags)?;
    expect_figures("f32", &found["figures"], &case.figures, 1e-5)
}

fn lambada_of_a_gpt2_is_that_of_transformers() -> anyhow::Result<()> {
    compare_with_transformers("lambada")
}

fn multiple_choice_of_a_gpt2_is_that_of_transformers() -> anyhow::Result<()> {
    compare_with_transformers("multiple-choice")
}

/// Compares all cases of a task.
fn compare_with_transformers(task: &str) -> anyhow::Result<()> {
    let cases = cases()?.into_iter();
    let cases: Vec<Case> = cases
        .filter(|case| case.flags.contains(&format!("--task {task} ")))
        .collect();
    ensure!(!cases.is_empty(), "no case of {task}");
    for case in cases {
        let found = of_gpt2(&format!("{} --dtype f64", case.flags))?;
        expect_figures(&case.flags, &found["figures"], &case.figures, TRANSFORMERS)?;
        ensure!(found["num_truncated"] == case.num_truncated, "{found}");
        ensure!(found["iteration"].is_null(), "{found}");
    }
    Ok(())
}

fn figures_are_the_same_in_every_layout() -> anyhow::Result<()> {
    // Windows of several sizes, tokens and words, several choices.
    for case in cases()?.iter().skip(1).step_by(2) {
        let flags = format!("{} --dtype f64", case.flags);
        let expected = of_gpt2(&flags)?;
        for layout in LAYOUTS {
            let found = of_gpt2(&format!("{flags} {layout}"))?;
            let what = format!("{}, {layout}", case.flags);
            expect_figures(&what, &found["figures"], &expected["figures"], ROUNDING)?;
            ensure!(found["data_sha256"] == expected["data_sha256"], "{found}");
        }
    }
    Ok(())
}

fn a_checkpoint_of_bytes_is_evaluated_and_what_cannot_be_is_refused() -> anyhow::Result<()> {
    let root = tempfile::tempdir()?;
    let folder = root.path();
    let flags = "--tensor-model-parallel-size 2 --sequence-parallel --dtype f64";
    let training = Training::new(&folder.join("run"), 4, flags)?.with_path("--save", &folder.join("checkpoints"));
    training.run()?;
    fs::write(
        folder.join("wiki.txt"),
        " = Birds = \n \n A bird sings , and flies @-@ away .\n = Fish = \n Fish do not .\n",
    )?;
    fs::write(
        folder.join("lambada.jsonl"),
        "{\"text\": \"He looked far out to the sea\"}\n",
    )?;
    fs::write(folder.join("bad.jsonl"), "{\"text\": \"A good line\"}\n{\"text\": 1}\n")?;
    fs::write(folder.join("empty.txt"), "")?;

    let found = report(folder, "--task wikitext --data wiki.txt --dtype f64")?;
    ensure!(
        found["iteration"] == 4 && found["figures"]["lm_eval"]["num_pages"] == 2,
        "{found}"
    );
    // Words go by four positions too many.
    let passages = evaluate(folder, "--task lambada --data lambada.jsonl --strict_lambada")?;
    passages.expect_code(0)?;
    ensure!(
        passages.stdout.contains("Megatron-LM           avg_accuracy")
            && passages
                .stdout
                .contains("1 of 1 were longer than the 16 tokens that the model sees"),
        "{}",
        passages.stdout
    );
    for (flags, message) in [
        (
            "--task lambada --data bad.jsonl",
            "bad.jsonl:2: \"text\" is a number, and a text is wanted",
        ),
        (
            "--task lambada --data bad.jsonl --model-parallel-size 2",
            "bad.jsonl:2: \"text\" is a number",
        ),
        ("--task wikitext --data empty.txt", "--data empty.txt is empty"),
        ("--task wikitext --data nowhere.txt", "--data nowhere.txt: No such file"),
        (
            "--task wikitext --data wiki.txt --seq-length 17",
            "--seq-length 17: the model has 16 positions",
        ),
        (
            "--task wikitext --data wiki.txt --overlapping-eval 17",
            "--overlapping-eval 17 would skip tokens",
        ),
        (
            "--task wikitext --data wiki.txt --strict-lambada",
            "--strict-lambada is for --task lambada",
        ),
        (
            "--task wikitext --data wiki.txt --load nowhere",
            "--load nowhere: there is no such folder",
        ),
        (
            "--task wikitext --data wiki.txt --load checkpoints --tokenizer-type NullTokenizer --vocab-size 999",
            "the vocabularies differ",
        ),
    ] {
        let ended = evaluate(folder, flags)?;
        ended.expect_refusal(&[message]).with_context(|| flags.to_owned())?;
    }
    let gpt2 = fixtures().join("gpt2_evaluation");
    let flags = "--task wikitext --data wiki.txt --tokenizer-type NullTokenizer --vocab-size 200 --load";
    let ended = evaluate(folder, &format!("{flags} {}", gpt2.display()))?;
    ended.expect_refusal(&["the model's vocabulary has 200"])?;
    let wiki = folder.join("wiki.txt");
    let empty = tempfile::tempdir()?;
    let ended = evaluate(empty.path(), &format!("--task wikitext --data {}", wiki.display()))?;
    ended.expect_refusal(&["there is no checkpoint in the folder checkpoints here: give --load"])
}
