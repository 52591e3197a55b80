//! Low-rank adapters by the programs' flags: they are trained on a model's parameters, resumed, merged into the
//! weights, and go to peft's files and back; what does not fit is refused by name.

use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use burn_megatron::checkpoint::Checkpoint;
use libtest_mimic::Trial;
use tests::checkpoints::expect_same;
use tests::program::{self, Ended, training_text};
use tests::training::Training;

const LIMIT: Duration = Duration::from_secs(240);
const LLAMA: &str = "--model-family llama --num-layers 2 --hidden-size 20 --num-attention-heads 4 --num-query-groups 2 \
                     --kv-channels 6 --ffn-hidden-size 36 --seq-length 12 --dtype f32";
const ADAPTERS: &str = "--lora-rank 3 --lora-alpha 6 --lora-target q_proj,v_proj,down_proj --lora-dropout 0.1";

fn run(program: &'static str, folder: &Path, flags: &str, more: &[&str]) -> anyhow::Result<Ended> {
    program::run(program, folder, flags, more, LIMIT)
}

pub fn trials() -> Vec<Trial> {
    tests::trials![self => [
        adapters_are_trained_resumed_merged_and_go_to_peft_and_back,
        adapters_that_do_not_fit_are_refused_by_name,
    ]]
}

fn adapters_are_trained_resumed_merged_and_go_to_peft_and_back() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    Training::new(&path("first"), 2, LLAMA)?
        .with_path("--save", &path("base"))
        .run()?;
    Training::new(&path("second"), 2, LLAMA)?
        .with("--tensor-model-parallel-size 2 --sequence-parallel --finetune --lr 0.01")
        .with(ADAPTERS)
        .with_path("--load", &path("base"))
        .with_path("--save", &path("adapted"))
        .run()?;
    // Without the flags of adapters: the checkpoint has them.
    Training::new(&path("third"), 4, LLAMA)?
        .with("--pipeline-model-parallel-size 2 --lr 0.01 --override-opt-param-scheduler --allow-data-change")
        .with_path("--load", &path("adapted"))
        .with_path("--save", &path("resumed"))
        .run()?;
    let find = |name: &str| Checkpoint::find(path(name));
    let (base, adapted, resumed) = (find("base")?, find("adapted")?, find("resumed")?);
    let is_adapter = |name: &str| name.contains(".lora_");
    let of_base = |name: &str| name.starts_with("model.") && !is_adapter(name);
    ensure!(
        expect_same(&base, &adapted, of_base)? == 2 + 2 * 6 + 1,
        "other parameters"
    );
    expect_same(&base, &resumed, of_base)?;
    ensure!(
        expect_same(&adapted, &resumed, is_adapter).is_err(),
        "nothing was trained"
    );
    let factors = resumed
        .arrays()
        .iter()
        .filter(|array| array.name.starts_with("model.") && is_adapter(&array.name));
    ensure!(factors.count() == 2 * 3 * 2, "a factor is missing");

    let checkpoint = |flags: &str| run("checkpoint", folder.path(), &format!("convert {flags}"), &[])?.expect_code(0);
    checkpoint("resumed merged --to huggingface")?;
    let text = |load: &str, more: &str| -> anyhow::Result<String> {
        let flags = format!("--out-seq-length 9 --greedy --dtype f32 --load {load} {more}");
        let ended = run("generate_samples_gpt", folder.path(), &flags, &["--prompt", "fn "])?;
        ended.expect_code(0)?;
        Ok(ended.stdout)
    };
    let first = text("resumed", "")?;
    ensure!(first.starts_with("fn ") && first.len() > 4, "{first:?}");
    for (load, more) in [("resumed", "--model-parallel-size 2"), ("merged", "")] {
        let found = text(load, more)?;
        ensure!(found == first, "{load} {more}: {found:?} in place of {first:?}");
    }

    checkpoint("resumed adapter --to peft")?;
    checkpoint("base plain --to huggingface")?;
    checkpoint("plain back --from huggingface --adapter adapter")?;
    let back = find("back")?;
    let of_model = |name: &str| name.starts_with("model.");
    ensure!(expect_same(&back, &resumed, of_model)? == 15 + 12, "other arrays");
    ensure!(
        text("back", "")? == first,
        "what came back from peft's files generates another text"
    );
    Ok(())
}

fn adapters_that_do_not_fit_are_refused_by_name() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let base = folder.path().join("base");
    Training::new(&folder.path().join("first"), 1, LLAMA)?
        .with_path("--save", &base)
        .run()?;
    let text = training_text().display().to_string();
    for (flags, message) in [
        (
            "--load base --finetune --lora-rank 2 --lora-target q_proj,c_attn",
            "\"c_attn\" is no linear layer of a block of this model: expected some of q_proj, k_proj, v_proj, o_proj, \
             gate_proj, up_proj, down_proj",
        ),
        (
            "--load base --lora-rank 2",
            "has no adapters to continue with: give --finetune",
        ),
        (
            "--load absent --lora-rank 2",
            "--lora-rank needs a checkpoint in the folder of --load",
        ),
        (
            "--load base --finetune --lora-rank 0",
            "the rank of low-rank adapters must be at least 1, got 0",
        ),
    ] {
        let flags = format!("{LLAMA} --train-iters 1 {flags} --data-path");
        let ended = run("pretrain_gpt", folder.path(), &flags, &[&text])?;
        ensure!(ended.code != Some(0), "{flags} is taken");
        let said = format!("{}{}", ended.stdout, ended.stderr);
        ensure!(said.contains(message), "{flags}: {said}");
    }
    let ended = run("checkpoint", folder.path(), "convert base adapter --to peft", &[])?;
    ended.expect_refusal(&["has no low-rank adapters"])
}
