//! Families other than the bundled GPT, by the programs' flags: layouts train as one rank, and what is trained
//! generates the same text in every layout, and goes to Hugging Face's files and back.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use burn_megatron::checkpoint::Checkpoint;
use libtest_mimic::Trial;
use serde_json::json;
use tests::checkpoints::expect_same;
use tests::program::{self, Ended, training_text};
use tests::training::Training;

const LIMIT: Duration = Duration::from_secs(240);
/// Sizes that no tile divides, heads that are wider together than a token, and keys that three heads share.
const LLAMA: &str = "--model-family llama --num-layers 4 --hidden-size 30 --num-attention-heads 6 --num-query-groups 2 \
                     --kv-channels 6 --ffn-hidden-size 34 --add-qkv-bias --rotary-base 500 --seq-length 14";
/// With norms of queries and keys.
const QWEN3: &str = "--model-family llama --num-layers 4 --hidden-size 30 --num-attention-heads 6 --num-query-groups 2 \
                     --kv-channels 6 --ffn-hidden-size 34 --qk-layernorm --rotary-base 500 --seq-length 14";
/// Heads of 5 elements, of which 2 are turned.
const NEOX: &str = "--model-family neox --num-layers 4 --hidden-size 30 --num-attention-heads 6 --ffn-hidden-size 34 \
                    --rotary-percent 0.5 --rotary-base 500 --seq-length 14";
/// A number of heads that is no power of two; each rank has three.
const BLOOM: &str = "--model-family bloom --num-layers 4 --hidden-size 30 --num-attention-heads 6 --seq-length 14";
/// Samples of two segments.
const BERT: &str = "--model-family bert --num-layers 4 --hidden-size 30 --num-attention-heads 6 --ffn-hidden-size 34 \
                    --seq-length 40";
/// Halves of other depths, and texts of other lengths.
const T5: &str = "--model-family t5 --num-layers 3 --decoder-num-layers 1 --hidden-size 30 --num-attention-heads 6 \
                  --kv-channels 6 --ffn-hidden-size 34 --seq-length 40 --decoder-seq-length 18";
const DROPOUT: &str = "--hidden-dropout 0.1 --attention-dropout 0.1";

fn run(program: &'static str, folder: &Path, flags: &str, more: &[&str]) -> anyhow::Result<Ended> {
    program::run(program, folder, flags, more, LIMIT)
}

/// Trains in each layout as on one rank; each line is a run of its own.
fn compare(family: &str, flags: &str, lines: &[&str]) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let steps = "--micro-batch-size 1 --global-batch-size 8 --train-iters 4 --lr-decay-style constant \
                 --ddp-bucket-size 3000";
    for line in lines {
        let flags = format!("{flags} {steps} {line} --output comparison --data-path");
        let text = training_text().display().to_string();
        let ended = run("compare_sharding", folder.path(), &flags, &[&text])?;
        ended.expect_code(0)?;
        let shown = format!("{family} with 4 layers");
        ensure!(ended.stdout.contains(&shown), "{}", ended.stdout);
    }
    Ok(())
}

pub fn trials() -> Vec<Trial> {
    tests::trials![self => [
        ranks_that_share_key_heads_train_as_one_rank,
        layouts_of_llama_train_as_one_rank,
        layouts_of_normed_queries_and_keys_train_as_one_rank,
        layouts_of_neox_train_as_one_rank,
        layouts_of_bloom_train_as_one_rank,
        layouts_of_bert_train_as_one_rank,
        layouts_of_t5_train_as_one_rank,
        conversations_train_as_on_one_rank,
        layouts_of_windows_train_as_one_rank,
        what_is_trained_generates_and_goes_to_hugging_face_and_back,
        what_a_family_does_not_have_is_refused_by_flag,
    ]]
}

fn ranks_that_share_key_heads_train_as_one_rank() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let flags = "--model-family llama --num-layers 2 --hidden-size 20 --num-attention-heads 4 --num-query-groups 2 \
                 --kv-channels 6 --ffn-hidden-size 36 --add-qkv-bias --seq-length 16 --micro-batch-size 1 \
                 --global-batch-size 4 --train-iters 4 --hidden-dropout 0.1 --attention-dropout 0.1 \
                 --lr-decay-style constant --dtype f64 --layouts tp4,tp4sp --output comparison --data-path";
    let text = training_text().display().to_string();
    let ended = run("compare_sharding", folder.path(), flags, &[&text])?;
    ended.expect_code(0)?;
    Ok(())
}

fn layouts_of_llama_train_as_one_rank() -> anyhow::Result<()> {
    let dropped = format!("{LLAMA} {DROPOUT}");
    compare(
        "llama",
        &dropped,
        &[
            "--dtype f64 --layouts tp2,tp2sp,pp2,tp2sp-pp2-dp2",
            "--dtype f32 --layouts tp2sp,pp2v2,dp2 --use-distributed-optimizer --untie-embeddings-and-output-weights",
            "--dtype f64 --layouts tp2 --no-fused-kernels",
            "--dtype f64 --layouts pp2 --recompute-granularity full --recompute-method uniform",
            "--dtype f32 --layouts dp2,tp2sp-dp2 --zero-stage 3 --untie-embeddings-and-output-weights",
        ],
    )
}

fn layouts_of_normed_queries_and_keys_train_as_one_rank() -> anyhow::Result<()> {
    let dropped = format!("{QWEN3} {DROPOUT}");
    compare(
        "llama",
        &dropped,
        &[
            "--dtype f64 --layouts tp2,tp2sp,tp2sp-pp2-dp2",
            "--dtype f32 --layouts tp2,pp2v2 --use-distributed-optimizer",
            "--dtype f64 --layouts tp2 --no-fused-kernels",
        ],
    )
}

fn layouts_of_neox_train_as_one_rank() -> anyhow::Result<()> {
    let dropped = format!("{NEOX} {DROPOUT}");
    compare(
        "neox",
        &dropped,
        &[
            "--dtype f64 --layouts tp2,tp2sp,pp2,tp2sp-pp2-dp2",
            "--dtype f64 --layouts tp2 --no-fused-kernels",
        ],
    )?;
    // Without dropout both sublayers are reduced at once.
    compare(
        "neox",
        NEOX,
        &[
            "--dtype f64 --layouts tp2,tp2sp-pp2-dp2",
            "--dtype f32 --layouts pp2v2",
            "--dtype f64 --layouts tp2sp --tp-comm-overlap --tp-comm-overlap-chunks 2",
            "--dtype f64 --layouts tp2sp --no-fused-kernels",
        ],
    )
}

fn layouts_of_bloom_train_as_one_rank() -> anyhow::Result<()> {
    let dropped = format!("{BLOOM} {DROPOUT}");
    compare(
        "bloom",
        &dropped,
        &[
            "--dtype f64 --layouts tp2,tp2sp,tp2sp-pp2-dp2",
            "--dtype f32 --layouts tp2,pp2v2 --use-distributed-optimizer",
            "--dtype f64 --layouts tp2sp --no-fused-kernels",
        ],
    )
}

fn layouts_of_bert_train_as_one_rank() -> anyhow::Result<()> {
    let dropped = format!("{BERT} {DROPOUT}");
    compare(
        "bert",
        &dropped,
        &[
            "--dtype f64 --layouts tp2,tp2sp,pp2,tp2sp-pp2-dp2",
            "--dtype f32 --layouts tp2sp,pp2v2 --use-distributed-optimizer --untie-embeddings-and-output-weights",
            "--dtype f64 --layouts tp2 --no-fused-kernels --bert-no-binary-head",
            "--dtype f64 --layouts dp2 --zero-stage 3 --recompute-granularity full --recompute-method uniform",
        ],
    )?;
    // Norms after the sublayers.
    let original = dropped.replace("--model-family bert", "--model-size bert-base");
    compare(
        "bert",
        &original,
        &[
            "--dtype f64 --layouts tp2sp,pp2",
            "--dtype f64 --layouts tp2 --no-fused-kernels",
        ],
    )
}

fn layouts_of_t5_train_as_one_rank() -> anyhow::Result<()> {
    let dropped = format!("{T5} {DROPOUT}");
    compare(
        "t5",
        &dropped,
        &[
            "--dtype f64 --layouts tp2,tp2sp,pp2,pp4,tp2sp-pp2-dp2",
            "--dtype f32 --layouts tp2sp,pp2v2 --use-distributed-optimizer --untie-embeddings-and-output-weights",
            "--dtype f64 --layouts tp2,pp2 --recompute-granularity full --recompute-method uniform",
            "--dtype f64 --layouts tp2 --no-fused-kernels",
            "--dtype f64 --layouts dp2 --zero-stage 2",
            "--dtype f64 --layouts tp2sp-dp2 --zero-stage 3",
        ],
    )?;
    // T5 1.1: gated MLPs, and a head of its own.
    let gated = dropped.replace("--model-family t5", "--model-size t5-v1.1-small");
    compare("t5", &gated, &["--dtype f64 --layouts tp2sp"])
}

fn conversations_train_as_on_one_rank() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let line = |number: usize| {
        let question = format!("What is {number} and {number}?");
        let messages = json!([
            {"role": "user", "content": question},
            {"role": "assistant", "content": format!("It is {}.", 2 * number)},
        ]);
        json!({"messages": messages}).to_string()
    };
    let lines: Vec<String> = (0..60).map(line).collect();
    fs::write(folder.path().join("chats.jsonl"), lines.join("\n"))?;
    let flags = "--model-family llama --num-layers 2 --hidden-size 24 --num-attention-heads 4 --seq-length 270 --sft \
                 --micro-batch-size 1 --global-batch-size 4 --train-iters 4 --lr-decay-style constant --dtype f64 \
                 --hidden-dropout 0.1 --layouts tp2sp,pp2,dp2 --output comparison --data-path chats.jsonl";
    let ended = run("compare_sharding", folder.path(), flags, &[])?;
    ended.expect_code(0)?;
    fs::write(folder.path().join("validation.jsonl"), &lines[0])?;
    let flags = "--model-family llama --num-layers 1 --hidden-size 8 --num-attention-heads 2 --seq-length 100 --sft \
                 --micro-batch-size 1 --global-batch-size 1 --train-iters 1 --eval-interval 1 --eval-iters 1 \
                 --train-data-path chats.jsonl --valid-data-path validation.jsonl";
    let ended = run("pretrain_gpt", folder.path(), flags, &[])?;
    ended.expect_code(0)?;
    for words in ["of 61 documents, 1 for validation", "step 1 | validation loss "] {
        ensure!(ended.stdout.contains(words), "{words:?} is not in:\n{}", ended.stdout);
    }
    let refused = run("pretrain_gpt", folder.path(), "--sft", &[])?;
    refused.expect_refusal(&["--sft reads conversations"])
}

fn layouts_of_windows_train_as_one_rank() -> anyhow::Result<()> {
    let windowed = format!("{LLAMA} {DROPOUT} --window-size 4,0");
    let lines = [
        "--dtype f64 --layouts tp2sp",
        "--dtype f64 --layouts tp2 --no-fused-kernels",
    ];
    compare("llama", &windowed, &lines)
}

fn what_is_trained_generates_and_goes_to_hugging_face_and_back() -> anyhow::Result<()> {
    for (flags, count) in [
        (LLAMA, 2 + 4 * 7 + 1),
        (QWEN3, 2 + 4 * 8 + 1),
        (NEOX, 2 + 4 * 12 + 2),
        (BLOOM, 3 + 4 * 12 + 2),
    ] {
        generate_and_convert(flags, count)?;
    }
    Ok(())
}

/// Trains a model, generates in several layouts, and converts it there and back; it has this number of parameters.
fn generate_and_convert(family: &str, expected_count: usize) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let layout = "--tensor-model-parallel-size 2 --sequence-parallel --dtype f32";
    let training = Training::new(&folder.path().join("run"), 4, layout)?
        .with(family)
        .with_path("--save", &folder.path().join("checkpoints"));
    training.run()?;

    let flags = "--out-seq-length 9 --greedy --dtype f32";
    let text = |more: &str| -> anyhow::Result<String> {
        let ended = run(
            "generate_samples_gpt",
            folder.path(),
            &format!("{flags} {more}"),
            &["--prompt", "fn "],
        )?;
        ended.expect_code(0)?;
        Ok(ended.stdout)
    };
    let first = text("")?;
    ensure!(first.starts_with("fn ") && first.len() > 4, "{first:?}");
    for other in ["--model-parallel-size 2", "--pipeline-model-parallel-size 2"] {
        let found = text(other)?;
        ensure!(found == first, "{family} {other}: {found:?} in place of {first:?}");
    }

    run(
        "checkpoint",
        folder.path(),
        "convert checkpoints files --to huggingface",
        &[],
    )?
    .expect_code(0)?;
    run(
        "checkpoint",
        folder.path(),
        "convert files back --from huggingface",
        &[],
    )?
    .expect_code(0)?;
    let [saved, back] = ["checkpoints", "back"].map(|name| Checkpoint::find(folder.path().join(name)));
    let (saved, back) = (saved?, back?);
    let count = expect_same(&back, &saved, |name| name.starts_with("model."))?;
    ensure!(count == expected_count, "{family}: {count} parameters");
    Ok(())
}

fn what_a_family_does_not_have_is_refused_by_flag() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let text = training_text().display().to_string();
    for (flags, message) in [
        ("--rotary-base 500", "--model-family gpt has no --rotary-base"),
        ("--model-family gpt --num-query-groups 2", "has no --num-query-groups"),
        (
            "--model-family llama --num-attention-heads 4 --num-query-groups 3",
            "nearest valid values are 3 and 6",
        ),
        (
            "--model-family llama --hidden-size 48 --num-attention-heads 6 --num-query-groups 3 \
             --tensor-model-parallel-size 2",
            "the number of key heads and tensor_parallel_size must divide one another, got 3 and 2; valid \
             tensor_parallel_size for 3 of them and 6 query heads: 1, 3, 6",
        ),
        (
            "--model-family llama --hidden-size 30 --num-attention-heads 6",
            "the size of a head (--kv-channels) must be divisible by",
        ),
        ("--model-family llama --rotary-base 0.5", "the base"),
        (
            "--model-family neox --rotary-percent 1.5",
            "--rotary-percent must be above 0 and at most 1, got 1.5",
        ),
        (
            "--model-family llama --qk-layernorm --add-qkv-bias",
            "either norms (--qk-layernorm)",
        ),
        (
            "--model-family gpt --model-size llama3-8b",
            "--model-size must be one of",
        ),
        (
            "--model-family llama --rotary-base=-1",
            "--rotary-base must be finite and above 0",
        ),
    ] {
        let ended = run("pretrain_gpt", folder.path(), flags, &["--data-path", &text])?;
        ended.expect_refusal(&[message]).with_context(|| flags.to_owned())?;
    }
    Ok(())
}
