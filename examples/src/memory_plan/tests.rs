//! Tests of the plan: a small model by hand, models whose memory was counted on the emulator, and what the text says.

use super::*;
use crate::arguments::TrainingArguments;
use crate::arguments::tests::try_parse;

fn plan(flags: &str) -> MemoryPlan {
    let arguments: TrainingArguments = try_parse(flags).expect(flags);
    arguments.memory_plan().expect(flags)
}

/// Two layers of 64 and two heads, samples of 32 tokens, bytes as tokens: 257 of them, padded to 384.
const SMALL: &str = "--num-layers 2 --hidden-size 64 --num-attention-heads 2 --seq-length 32 --micro-batch-size 2 \
                     --global-batch-size 8 --bf16 --padded-vocab-size 384";

#[test]
fn a_small_model_needs_what_is_counted_by_hand() {
    let plan = plan(SMALL);
    let memory = plan.of_stage(0, ShardingStrategy::NoShard, 1, Counted::AsRun);
    // 12h² + 13h in each layer, the final norm, positions, tokens.
    let parameters = 2.0 * (12.0 * 64.0 * 64.0 + 13.0 * 64.0) + 128.0 + 32.0 * 64.0 + 384.0 * 64.0;
    let parts = memory.state.parts;
    assert_eq!(parts.parameters, 2.0 * parameters);
    assert_eq!((parts.main, parts.moments), (4.0 * parameters, 8.0 * parameters));
    // In buckets, 64 elements more after each vector of 64 or 192: seven in a layer, two of the final norm. The
    // embedding, tied, has a bucket of its own.
    assert_eq!(parts.gradients, 4.0 * (parameters + (2.0 * 7.0 + 2.0) * 64.0));
    // 17 sbh of each layer, and the logits.
    assert_eq!(memory.activations, 2.0 * (2.0 * 17.0 * 64.0 * 64.0 + 64.0 * 384.0));
    assert_eq!(plan.host_bytes_of_stages(), [memory.total()]);
    // One layer at a time, and the input of each.
    let recomputed = plan.of_stage(0, ShardingStrategy::NoShard, 1, Counted::FullRecomputation);
    assert_eq!(
        recomputed.activations,
        2.0 * (2.0 * 64.0 * 64.0 + 17.0 * 64.0 * 64.0 + 64.0 * 384.0)
    );
    let on_cpu = plan.of_stage(0, ShardingStrategy::NoShard, 1, Counted::Offloaded);
    assert_eq!(memory.total() - on_cpu.total(), 12.0 * parameters);
}

#[test]
fn models_that_were_counted_on_the_emulator_need_as_much() {
    // `docs/gpu.md`: the most in use of a GPU, in GiB.
    let of_1_3b = "--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --micro-batch-size 4 \
                   --global-batch-size 16 --padded-vocab-size 50304";
    let of_22b = "--num-layers 48 --hidden-size 6144 --num-attention-heads 64 --micro-batch-size 4 \
                  --global-batch-size 4 --tensor-model-parallel-size 8 --sequence-parallel --world-size 8 \
                  --padded-vocab-size 51200";
    let of_175b = "--num-layers 96 --hidden-size 12288 --num-attention-heads 96 --micro-batch-size 1 \
                   --global-batch-size 64 --tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 \
                   --sequence-parallel --world-size 64 --padded-vocab-size 51200";
    for (flags, counted) in [(of_1_3b, 34.9), (of_22b, 55.9), (of_175b, 56.7)] {
        let plan = plan(&format!("{flags} --bf16 --seq-length 2048"));
        let ours = plan.host_bytes_of_stages()[0] / f64::from(1 << 30);
        assert!((ours / counted - 1.0).abs() < 0.03, "{ours} GiB, counted {counted}");
    }
}

#[test]
fn totals_fall_with_the_stage_and_with_the_ranks() {
    for flags in [
        "",
        "--bf16",
        "--model-size gpt2-124m --bf16",
        "--model-size llama2-7b --bf16",
    ] {
        let plan = plan(&format!("{flags} --micro-batch-size 1 --global-batch-size 1"));
        let stays = |sharding, shards| {
            let memory = plan.of_stage(0, sharding, shards, Counted::AsRun);
            memory.state.parts.total()
        };
        for shards in [2, 4, 8, 64] {
            for pair in ShardingStrategy::ALL.windows(2) {
                let [before, after] = [pair[0], pair[1]].map(|sharding| stays(sharding, shards));
                assert!(after < before, "{flags}, {pair:?} on {shards}: {before}, {after}");
            }
            for sharding in &ShardingStrategy::ALL[1..] {
                let [before, after] = [shards, 2 * shards].map(|shards| stays(*sharding, shards));
                assert!(after < before, "{flags}, {sharding:?} on {shards}: {before}, {after}");
            }
        }
    }
}

#[test]
fn what_is_printed_has_every_stage_of_zero_and_marks_the_chosen() {
    let text = plan(&format!("{SMALL} --world-size 2 --zero-stage 2")).to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("gpt of ") && lines[0].ends_with(" in bf16: 2 layers of 64, samples of 32 tokens"));
    assert_eq!(
        lines[1],
        "2 ranks: tensor 1 (sequence whole), pipeline 1 (1f1b), data 2"
    );
    assert_eq!(
        lines[2],
        "8 samples per step: 2 micro-batches of 2 on each data-parallel rank"
    );
    let row = |name: &str| lines.iter().find(|line| line.starts_with(name)).copied();
    for name in [
        "  ZeRO stage 0, no_shard ",
        "  ZeRO stage 1, optim ",
        "* ZeRO stage 2, optim_grads ",
        "  ZeRO stage 3, optim_grads_params ",
        "* with --offload-optimizer cpu or nvme ",
        "* with --cpu-offloading ",
        "* with --recompute-granularity full ",
        "  ZeRO stage 0: 1 of 40 GB, 1 of 80 GB, 1 of 141 GB",
    ] {
        assert!(row(name).is_some(), "{name:?} in\n{text}");
    }
    let width = row("  ZeRO stage 0, ").expect("a row").len();
    assert_eq!(row("* ZeRO stage 2, ").expect("a row").len(), width, "{text}");

    let text = plan(&format!(
        "{SMALL} --pipeline-model-parallel-size 2 --recompute-granularity full"
    ))
    .to_string();
    assert_eq!(text.matches("not with pipeline stages").count(), 4, "{text}");
    assert!(
        text.contains("pipeline stage\n") && !text.contains("with --recompute"),
        "{text}"
    );
}

#[test]
fn adapters_alone_have_gradients_and_state() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(&format!(
        "{SMALL} --load {} --finetune --lora-rank 2",
        folder.path().display()
    ));
    let memory = plan.of_stage(0, ShardingStrategy::NoShard, 1, Counted::AsRun).state;
    assert_eq!(memory.total(), memory.parts.parameters);
}

#[test]
fn the_fewest_gpus_are_the_first_number_that_holds_the_run() {
    // What is shared out, what is not, and activations, in GB.
    let find = |shared: f64, whole: f64, activations: f64| {
        let needs = move |shards: usize| RankMemory {
            state: StateMemory {
                buffers: (whole + shared / shards as f64) * 1e9,
                ..StateMemory::default()
            },
            activations: activations * 1e9,
        };
        let sizes: Vec<usize> = (1..=64).collect();
        gpus::SIZES.map(|gigabytes| gpus::fewest(gigabytes, [4, 1], &sizes, needs))
    };
    // 32.5, 66.5 and 118.35 GB can be used by tensor-parallel ranks alone.
    assert_eq!(find(100.0, 0.0, 10.0), ["20 of 40 GB", "8 of 80 GB", "4 of 141 GB"]);
    assert_eq!(find(0.0, 32.4, 0.0), ["4 of 40 GB", "4 of 80 GB", "4 of 141 GB"]);
    let none = find(1.0, 80.0, 50.0);
    assert_eq!(none[0], "none of 40 GB (activations alone exceed it)");
    assert_eq!(none[1], "none of 80 GB (what is not shared out exceeds it)");
    assert!(none[2].starts_with("none of 141 GB"));
}

#[test]
fn communicators_take_memory() {
    let gigabytes = |axes| gpus::communicator_bytes(axes) / 1e9;
    assert_eq!(gigabytes([1, 1, 1]), 0.0);
    assert_eq!(gigabytes([2, 1, 8]), 1.0);
    // The stages at the ends have one neighbour each, unless there are two stages only.
    assert!((gigabytes([1, 2, 1]) - 0.7).abs() < 1e-9);
    assert!((gigabytes([4, 4, 2]) - 1.9).abs() < 1e-9);
}
