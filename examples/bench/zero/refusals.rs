//! Flags of training that are refused here.

use anyhow::ensure;
use examples::arguments::{Dtype, OptimizerKind, TrainingArguments, WeightDecayStyle};
use examples::device::DeviceKind;
use models::gpt::GptConfig;

/// Checks that the flags leave to this program what it varies, and keep to what it measures.
///
/// # Errors
/// Names the first flag that does not.
pub fn check(training: &TrainingArguments) -> anyhow::Result<()> {
    training.deepspeed.check_not_given("bench zero")?;
    let (parallel, length, checkpoints) = (&training.parallel, &training.optimization, &training.checkpoints);
    let sharing = &parallel.communication;
    let strategy = sharing.data_parallel_sharding_strategy;
    let (stages, overlap) = (
        "--stages says what is shared out",
        "stages 2 and 3 run with and without",
    );
    let (layout, steps) = ("all ranks are data-parallel", "--steps says how long a run is");
    for (flag, is_given, why) in [
        ("--zero-stage", sharing.zero_stage.is_some(), stages),
        ("--data-parallel-sharding-strategy", strategy.is_some(), stages),
        ("--use-distributed-optimizer", sharing.use_distributed_optimizer, stages),
        ("--overlap-grad-reduce", !sharing.overlap_grad_reduce, overlap),
        ("--overlap-param-gather", !sharing.overlap_param_gather, overlap),
        (
            "--tensor-model-parallel-size",
            parallel.tensor_model_parallel_size != 1,
            layout,
        ),
        ("--sequence-parallel", parallel.sequence_parallel, layout),
        (
            "--pipeline-model-parallel-size",
            parallel.pipeline_model_parallel_size != 1,
            layout,
        ),
        (
            "--nnodes",
            parallel.launcher.nnodes != 1,
            "the ranks are on one machine",
        ),
        ("--train-iters", length.train_iters.is_some(), steps),
        ("--train-samples", length.train_samples.is_some(), steps),
        (
            "--rampup-batch-size",
            length.rampup_batch_size.is_some(),
            "steps are of one size",
        ),
        ("--load", checkpoints.load.is_some(), "a run begins with a new model"),
        ("--save", checkpoints.save.is_some(), "what is trained is not kept"),
        (
            "--device",
            training.device.kind != DeviceKind::Cpu,
            "the CPU is measured",
        ),
    ] {
        ensure!(!is_given, "{flag} is not for bench zero, where {why}: leave it out");
    }
    let world_size = super::world_size(training);
    ensure!(
        world_size > 1,
        "--world-size must be at least 2, got {world_size}: one rank has nothing to share out"
    );
    Ok(())
}

/// Checks that PyTorch's program trains the same.
///
/// # Errors
/// Names the first flag that it does not have.
pub fn check_comparable(training: &TrainingArguments, model: &GptConfig) -> anyhow::Result<()> {
    let (flags, data) = (&training.model, &training.data);
    for (flag, is_given) in [
        ("--dtype other than f32", training.precision.dtype() != Dtype::F32),
        ("--optimizer sgd", training.optimization.optimizer == OptimizerKind::Sgd),
        (
            "--weight-decay-incr-style",
            training.optimization.weight_decay_incr_style != WeightDecayStyle::Constant,
        ),
        ("--untie-embeddings-and-output-weights", !model.tied_embeddings),
        (
            "--ffn-hidden-size other than 4 * --hidden-size",
            model.hidden_size() != 4 * model.d_model,
        ),
        ("--norm-epsilon other than 1e-5", model.norm_epsilon != 1e-5),
        ("--hidden-dropout", flags.hidden_dropout > Some(0.0)),
        ("--attention-dropout", flags.attention_dropout > Some(0.0)),
        (
            "--recompute-granularity",
            flags.recompute.recompute_granularity.is_some(),
        ),
        ("--sft", data.sft),
        ("--log-num-zeros-in-grad", training.logging.log_num_zeros_in_grad),
    ] {
        ensure!(
            !is_given,
            "{flag} is not for --python, whose program does not have it: leave one of them out"
        );
    }
    data.check_no_marking("runs without --python, whose program does not have it")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::theirs;
    use crate::{Bench, Program};

    fn refusal(flags: &str) -> Option<String> {
        let words = ["bench", "zero"].into_iter().chain(flags.split_whitespace());
        let Bench::Zero(arguments) = Program::try_parse_from(words).expect("known flags").bench else {
            unreachable!("the subcommand is zero");
        };
        let peer = || match &arguments.python {
            Some(python) => theirs::peer(&arguments, python).map(drop),
            None => Ok(()),
        };
        let checked = super::check(&arguments.training).and_then(|()| peer());
        checked.err().map(|error| error.to_string())
    }

    #[test]
    fn flags_that_this_program_varies_are_refused_by_name() {
        assert_eq!(refusal("--num-layers 2 --world-size 4 --ddp-bucket-size 1000"), None);
        for flags in [
            "--zero-stage 2",
            "--data-parallel-sharding-strategy optim",
            "--use-distributed-optimizer",
            "--overlap-grad-reduce false",
            "--overlap-param-gather false",
            "--tensor-model-parallel-size 2",
            "--pipeline-model-parallel-size 2",
            "--train-iters 5",
            "--load a",
            "--save a",
        ] {
            let message = refusal(flags).expect("refused");
            let flag = flags.split_whitespace().next().expect("a flag");
            assert!(message.starts_with(flag), "{flags}: {message}");
        }
        let message = refusal("--world-size 1").expect("one rank");
        assert!(
            message.starts_with("--world-size must be at least 2, got 1"),
            "{message}"
        );
    }

    #[test]
    fn what_the_peer_does_not_train_is_refused_by_name() {
        let compared = |flags: &str| refusal(&format!("--python python3 {flags}"));
        assert_eq!(compared("--model-size gpt2-124m --seq-length 64"), None);
        for (flags, named) in [
            ("--model-family llama", "--model-family gpt, got llama"),
            ("--bf16", "--dtype other than f32"),
            ("--optimizer sgd", "--optimizer sgd"),
            ("--untie-embeddings-and-output-weights", "--untie-embeddings"),
            ("--ffn-hidden-size 512", "--ffn-hidden-size other"),
            ("--hidden-dropout 0.1", "--hidden-dropout"),
            ("--recompute-granularity full", "--recompute-granularity"),
            ("--reset-attention-mask", "--reset-attention-mask"),
        ] {
            assert_eq!(refusal(flags), None, "{flags}");
            let message = compared(flags).expect("refused");
            assert!(message.contains(named), "{flags}: {message}");
        }
    }
}
