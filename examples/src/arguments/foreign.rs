//! [`parse`], and flags of Megatron-LM, and of Megatron-DeepSpeed, that the programs take without having them.

use std::ffi::OsString;

use burn_megatron::launch::Environment;
use burn_megatron_data::programs::Foreign::{At, Idle, IdleValue, Means, Needs, Refused};
use burn_megatron_data::programs::{self, ForeignFlags, Parsed};
use clap::{Command, CommandFactory, FromArgMatches};

/// Parses the arguments of this program, or ends it with what is wrong.
pub fn parse<A: CommandFactory + FromArgMatches>() -> A {
    parse_from(A::command(), std::env::args_os()).0
}

/// Parses these arguments by a command, and returns them with the flags that count, for people. The process that a
/// person has started prints those without effect, or else rank 0.
pub fn parse_from<A: FromArgMatches>(command: Command, arguments: impl IntoIterator<Item = OsString>) -> (A, String) {
    let Parsed {
        arguments,
        given,
        without_effect,
    } = programs::parse_from(command, arguments, MEGATRON);
    if !without_effect.is_empty() && is_first(Environment::detect().ok().flatten().as_ref()) {
        eprintln!("without effect here: {}", without_effect.join(", "));
    }
    (arguments, given)
}

/// Returns whether this is the process that a person has started, or else rank 0.
pub fn is_first(environment: Option<&Environment>) -> bool {
    // A launcher of ours is the first itself.
    environment.is_none_or(|environment| environment.rank == 0 && !environment.store_hosted_elsewhere)
}

/// Flags of Megatron-LM's scripts, and their effect here: those that change no result have none, and those that would
/// change it and cannot be honoured say why. `--help` does not list them; a flag of a program's own is not one of them.
pub(super) const MEGATRON: ForeignFlags = &[
    // Loggers, fusions, back ends, communication, workers, and the format of checkpoints.
    ("--accumulate-allreduce-grads-in-fp32", Idle),
    ("--align-grad-reduce", Idle),
    ("--async-tensor-model-parallel-allreduce", Idle),
    ("--apply-query-key-layer-scaling", Idle),
    ("--attention-softmax-in-fp32", Idle),
    ("--auto-detect-ckpt-format", Idle),
    ("--barrier-with-L1-time", Idle),
    ("--calculate-per-token-loss", Idle),
    ("--check-for-large-grads", Idle),
    ("--check-for-nan-in-loss-and-grad", Idle),
    ("--check-for-spiky-loss", Idle),
    ("--ckpt-assume-constant-structure", Idle),
    ("--ckpt-fully-parallel-load", Idle),
    ("--ckpt-fully-parallel-save", Idle),
    ("--contigious-checkpointing", Idle),
    ("--create-attention-mask-in-dataloader", Idle),
    ("--cross-entropy-loss-fusion", Idle),
    ("--dataloader-fast-cache-load", Idle),
    ("--ddp-average-in-collective", Idle),
    ("--ddp-pad-buckets-for-high-nccl-busbw", Idle),
    ("--deepspeed-activation-checkpointing", Idle),
    ("--delay-grad-reduce", Idle),
    ("--delay-wgrad-compute", Idle),
    ("--disable-gloo-process-groups", Idle),
    ("--disable-straggler-on-startup", Idle),
    ("--disable-tp-comm-bulk-dgrad", Idle),
    ("--disable-tp-comm-bulk-wgrad", Idle),
    ("--disable-tp-comm-overlap-ag", Idle),
    ("--disable-tp-comm-overlap-rs", Idle),
    ("--distribute-saved-activations", Idle),
    ("--disable-msc", Idle),
    ("--enable-cuda-graph", Idle),
    ("--enable-experimental", Idle),
    ("--enable-gloo-process-groups", Idle),
    ("--enable-msc", Idle),
    ("--enable-one-logger", Idle),
    ("--exit-signal-handler", Idle),
    ("--external-cuda-graph", Idle),
    ("--fsdp-double-buffer", Idle),
    ("--log-batch-size-to-tensorboard", Idle),
    ("--log-device-memory-used", Idle),
    ("--log-energy", Idle),
    ("--log-learning-rate-to-tensorboard", Idle),
    ("--log-loss-scale-to-tensorboard", Idle),
    ("--log-memory-to-tensorboard", Idle),
    ("--log-params-norm", Idle),
    ("--log-progress", Idle),
    ("--log-timers-to-tensorboard", Idle),
    ("--log-validation-ppl-to-tensorboard", Idle),
    ("--log-world-size-to-tensorboard", Idle),
    ("--manual-gc", Idle),
    ("--mmap-bin-files", Idle),
    ("--no-align-grad-reduce", Idle),
    ("--no-align-param-gather", Idle),
    ("--no-async-tensor-model-parallel-allreduce", Idle),
    ("--no-barrier-with-level-1-timing", Idle),
    ("--no-bias-dropout-fusion", Idle),
    ("--no-bias-gelu-fusion", Idle),
    ("--no-bias-swiglu-fusion", Idle),
    ("--no-check-for-nan-in-loss-and-grad", Idle),
    ("--no-ckpt-fully-parallel-save", Idle),
    ("--no-create-attention-mask-in-dataloader", Idle),
    ("--no-delay-grad-reduce", Idle),
    ("--no-gradient-accumulation-fusion", Idle),
    ("--no-gradient-reduce-div-fusion", Idle),
    ("--no-load-rng", Idle),
    ("--no-log-loss-scale-to-tensorboard", Idle),
    ("--no-manual-gc-eval", Idle),
    ("--no-masked-softmax-fusion", Idle),
    ("--no-mmap-bin-files", Idle),
    ("--no-one-logger", Idle),
    ("--no-overlap-p2p-communication", Idle),
    ("--no-persist-layer-norm", Idle),
    ("--no-pipeline-parallel", Idle),
    ("--no-query-key-layer-scaling", Idle),
    ("--no-rope-fusion", Idle),
    ("--no-save-optim", Idle),
    ("--no-save-rng", Idle),
    ("--no-scatter-gather-tensors-in-pipeline", Idle),
    ("--no-use-tokenizer-model-from-checkpoint-args", Idle),
    ("--one-logger-async", Idle),
    ("--overlap-p2p-communication", Idle),
    ("--overlap-p2p-communication-warmup-flush", Idle),
    ("--overlap-param-gather-with-optimizer-step", Idle),
    ("--partition-activations", Idle),
    ("--synchronize-each-layer", Idle),
    ("--te-rng-tracker", Idle),
    ("--tp-comm-bulk-dgrad", Idle),
    ("--tp-comm-bulk-wgrad", Idle),
    ("--use-checkpoint-args", Idle),
    ("--use-checkpoint-opt-param-scheduler", Idle),
    ("--use-contiguous-buffers-in-local-ddp", Idle),
    ("--use-cpu-initialization", Idle),
    ("--use-custom-fsdp", Idle),
    ("--use-dist-ckpt", Idle),
    ("--use-flash-attn", Idle),
    ("--use-flash-attn-v2", Idle),
    ("--use-legacy-models", Idle),
    ("--use-mcore-models", Idle),
    ("--use-megatron-fsdp", Idle),
    ("--use-nccl-ub", Idle),
    ("--use-persistent-ckpt-worker", Idle),
    ("--use-pytorch-profiler", Idle),
    ("--use-ring-exchange-p2p", Idle),
    ("--use-sharp", Idle),
    ("--use-te", Idle),
    ("--use-tp-pp-dp-mapping", Idle),
    ("--attention-backend", IdleValue),
    ("--ckpt-format", IdleValue),
    ("--cross-entropy-fusion-impl", IdleValue),
    ("--cuda-graph-impl", IdleValue),
    ("--cuda-graph-warmup-steps", IdleValue),
    ("--data-impl", IdleValue),
    ("--DDP-impl", IdleValue),
    ("--ddp-num-buckets", IdleValue),
    ("--dist-ckpt-format", IdleValue),
    ("--dist-ckpt-strictness", IdleValue),
    ("--dist-ckpt-workers", IdleValue),
    ("--distributed-backend", IdleValue),
    ("--distributed-timeout-seconds-after-init", IdleValue),
    ("--empty-unused-memory-level", IdleValue),
    ("--local-rank", IdleValue),
    ("--log-memory-interval", IdleValue),
    ("--logging-level", IdleValue),
    ("--make-vocab-size-divisible-by", IdleValue),
    ("--manual-gc-interval", IdleValue),
    ("--nccl-communicator-config-path", IdleValue),
    ("--num-dataset-builder-threads", IdleValue),
    ("--num-workers", IdleValue),
    ("--one-logger-project", IdleValue),
    ("--one-logger-run-name", IdleValue),
    ("--rerun-mode", IdleValue),
    ("--straggler-ctrlr-port", IdleValue),
    ("--straggler-minmax-count", IdleValue),
    ("--tp-comm-bootstrap-backend", IdleValue),
    ("--tp-comm-overlap-cfg", IdleValue),
    ("--transformer-impl", IdleValue),
    ("--wandb-entity", IdleValue),
    ("--wandb-exp-name", IdleValue),
    ("--wandb-project", IdleValue),
    ("--wandb-save-dir", IdleValue),
    // Without effect at one value.
    (
        "--context-parallel-size",
        At("1", "samples are not shared out over ranks by their tokens"),
    ),
    (
        "--dataloader-type",
        At("single", "samples come in one order, shuffled over the epochs"),
    ),
    ("--exp-avg-dtype", At("fp32", F32S)),
    ("--exp-avg-sq-dtype", At("fp32", F32S)),
    ("--expert-model-parallel-size", At("1", "the models have no experts")),
    ("--expert-tensor-parallel-size", At("1", "the models have no experts")),
    ("--main-grads-dtype", At("fp32", F32S)),
    ("--main-params-dtype", At("fp32", F32S)),
    (
        "--mid-level-dataset-surplus",
        At("0.005", "blends have half a percent of samples more than they need"),
    ),
    (
        "--rotary-seq-len-interpolation-factor",
        At("1", "positions are not interpolated"),
    ),
    // Other names.
    ("--checkpoint-activations", Means(&["--recompute-granularity", "full"])),
    ("--cpu-optimizer", Means(&["--optimizer-cpu-offload"])),
    ("--log-straggler", Means(&["--log-stragglers"])),
    (
        "--recompute-activations",
        Means(&["--recompute-granularity", "selective"]),
    ),
    (
        "--use-rotary-position-embeddings",
        Means(&["--position-embedding-type", "rope"]),
    ),
    ("--use-torch-fsdp2", Means(&["--zero-stage", "3"])),
    // What would change the result.
    (
        "--apply-layernorm-1p",
        Refused("the weights of norms are themselves, not what is added to 1"),
    ),
    ("--fp16-lm-cross-entropy", Refused("the loss is computed in f32")),
    (
        "--fp32-residual-connection",
        Refused("the residual has the type of the parameters"),
    ),
    ("--grad-reduce-in-bf16", Refused("gradients are added up in f32")),
    (
        "--init-method-xavier-uniform",
        Refused("weights are drawn by --init-method-std"),
    ),
    ("--mock-data", Refused("samples are of text: give --data-path")),
    (
        "--no-load-optim",
        Refused("--finetune takes the parameters only, and starts from the beginning"),
    ),
    ("--no-position-embedding", Refused("give --position-embedding-type")),
    ("--num-experts", Refused("the models have no experts")),
    ("--openai-gelu", Refused("the MLP is that of --model-family")),
    ("--quick-geglu", Refused("the MLP is that of --model-family")),
    ("--skip-train", Refused("the program evaluate scores a checkpoint")),
    ("--squared-relu", Refused("the MLP is that of --model-family")),
    ("--use-precision-aware-optimizer", Refused(F32S)),
    (
        "--use-rope-scaling",
        Refused("scaled positions come with an imported checkpoint: checkpoint import, then --load"),
    ),
    // Flags of the programs that do nothing without another.
    ("--allow-data-change", Needs("--load")),
    ("--async-save", Needs("--save")),
    ("--ckpt-keep", Needs("--save")),
    ("--exit-on-missing-checkpoint", Needs("--load")),
    ("--log-num-zeros-in-grad", Needs("--log-jsonl")),
    ("--override-opt-param-scheduler", Needs("--load")),
    ("--profile-ranks", Needs("--profile")),
    ("--save-interval", Needs("--save")),
    ("--tensorboard-log-interval", Needs("--tensorboard-dir")),
    ("--tensorboard-queue-size", Needs("--tensorboard-dir")),
];

const F32S: &str = "main parameters, their gradients and the optimizer's state are f32";
