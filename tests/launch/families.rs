//! Families other than the bundled GPT, by the programs' flags: layouts train as one rank, and what is trained
//! generates the same text in every layout, and goes to Hugging Face's files and back.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::ensure;
use burn_megatron::checkpoint::Checkpoint;
use burn_megatron::parameters::Placement;
use tests::processes::isolate;
use tests::program::{Ended, build, end, start, training_text};
use tests::training::Training;

const LIMIT: Duration = Duration::from_secs(240);
/// Sizes that no tile divides, heads that are wider together than a token, and keys that three heads share.
const LLAMA: &str = "--model-family llama --num-layers 4 --hidden-size 30 --num-attention-heads 6 --num-query-groups 2 \
                     --kv-channels 6 --ffn-hidden-size 34 --add-qkv-bias --rotary-base 500 --seq-length 14";

fn run(program: &'static str, folder: &Path, flags: &str, more: &[&str]) -> anyhow::Result<Ended> {
    let mut command = Command::new(build(program)?);
    isolate(&mut command)
        .current_dir(folder)
        .args(flags.split_whitespace())
        .args(more)
        .env_remove("RUST_LOG");
    end(start(&mut command)?, LIMIT)
}

#[test]
fn layouts_of_llama_train_as_one_rank() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let steps = "--micro-batch-size 1 --global-batch-size 8 --train-iters 4 --hidden-dropout 0.1 \
                 --attention-dropout 0.1 --lr-decay-style constant --ddp-bucket-size 3000";
    for flags in [
        "--dtype f64 --layouts tp2,tp2sp,pp2,tp2sp-pp2-dp2",
        "--dtype f32 --layouts tp2sp,pp2v2,dp2 --use-distributed-optimizer --untie-embeddings-and-output-weights",
        "--dtype f64 --layouts tp2 --no-fused-kernels",
        "--dtype f64 --layouts pp2 --recompute-granularity full --recompute-method uniform",
    ] {
        let flags = format!("{LLAMA} {steps} {flags} --output comparison --data-path");
        let text = training_text().display().to_string();
        let ended = run("compare_sharding", folder.path(), &flags, &[&text])?;
        ended.expect_code(0)?;
        ensure!(ended.stdout.contains("llama with 4 layers"), "{}", ended.stdout);
    }
    Ok(())
}

#[test]
fn a_trained_llama_generates_and_goes_to_hugging_face_and_back() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let layout = "--tensor-model-parallel-size 2 --sequence-parallel --dtype f32";
    let training = Training::new(&folder.path().join("run"), 4, layout)?
        .with(LLAMA)
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
        ensure!(found == first, "{other}: {found:?} in place of {first:?}");
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
    let models = back.arrays().iter().filter(|array| array.name.starts_with("model."));
    let mut count = 0;
    for array in models {
        let whole = Placement::whole(array.shape.clone());
        let [first, second] = [&saved, &back].map(|from| from.read(&array.name, &whole, 0..array.num_elements()));
        ensure!(first?.bytes[..] == second?.bytes[..], "{} has other bits", array.name);
        count += 1;
    }
    ensure!(count == 2 + 4 * 7 + 1, "{count} parameters");
    Ok(())
}

#[test]
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
            "--model-family llama --num-attention-heads 4 --num-query-groups 1 --tensor-model-parallel-size 2",
            "the number of key heads",
        ),
        (
            "--model-family llama --hidden-size 30 --num-attention-heads 6",
            "the size of a head (--kv-channels) must be divisible by",
        ),
        ("--model-family llama --rotary-base 0.5", "the base"),
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
        ensure!(ended.code != Some(0), "{flags} is taken");
        ensure!(ended.stderr.contains(message), "{flags}: {}", ended.stderr);
    }
    Ok(())
}
