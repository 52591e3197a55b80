//! Counts what one rank asks of its GPU in a training step, without a GPU: kernels, products, copies, waits and
//! collectives, per layer and micro-batch and outside, and the memory that it takes.
//!
//! ```text
//! cargo run --release --example call_budget --features call-budget -- --bf16 --tensor-model-parallel-size 2 \
//!     --sequence-parallel --world-size 4 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048
//! ```
//!
//! The flags are those of `pretrain_gpt`, and what runs is its training step on burn's CUDA backend, with the
//! vocabulary of GPT-2 unless `--padded-vocab-size` says otherwise. The libraries under it, the driver, NVRTC, NCCL and
//! cuBLASLt, are `cuda-emulator`'s, which counts calls and computes nothing, and this process plays one rank of the
//! layout ([`World::fake`](burn_megatron::launch::World::fake)): a stage of any size runs without a GPU. Its losses
//! mean nothing, and nothing is known of its speed.
//!
//! Steps with more layers and with more micro-batches are recorded in processes of their own. Counts are sums over
//! layers and micro-batches, so their differences are what each layer and each micro-batch costs; a count below zero is
//! of what the first micro-batch does in another way. A last process has all the layers that `--num-layers` or
//! `--model-size` asks for, and measures the memory of the whole stage.
//!
//! With `--budget FILE` the program fails if a count exceeds that of the file, or the memory its limits.

mod budget;
mod counts;
mod measure;
mod play;
mod projection;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use examples::arguments::TrainingArguments;
use examples::device::DeviceKind;
use examples::launching::{exit_code, show_warnings};

use measure::Problem;

/// Count what one rank asks of its GPU in a training step, without a GPU.
#[derive(Parser, Clone)]
struct Arguments {
    /// The rank that is played
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    rank: usize,
    /// The GPU's memory
    #[arg(long, value_name = "GIB", default_value_t = 80)]
    gpu_memory: u64,
    /// Leave out the process with all layers, which measures memory
    #[arg(long)]
    no_memory: bool,
    /// Measure memory only, and count no calls
    #[arg(long, conflicts_with = "no_memory")]
    only_memory: bool,
    /// Project the time of a step on A100-80, with its parts, and the model FLOPs utilisation: from what is counted and
    /// what `kernel_cost` says of the kernels. Play the last rank of a pipeline, which has the head
    #[arg(long, conflicts_with = "only_memory")]
    projection: bool,
    /// Print one JSON object per row
    #[arg(long)]
    json: bool,
    /// Fail if a count exceeds that of this file, or the memory its limits
    #[arg(long, value_name = "FILE")]
    budget: Option<PathBuf>,
    #[command(flatten)]
    training: TrainingArguments,
    /// Record steps of this problem, set for the processes that this program starts
    #[arg(long, hide = true, value_name = "JSON")]
    play: Option<Problem>,
}

fn main() -> ExitCode {
    show_warnings();
    let mut arguments = Arguments::parse();
    arguments.training.device.kind = DeviceKind::Cuda;
    exit_code(run(&arguments), 1)
}

fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if let Some(problem) = &arguments.play {
        let report = play::play(&arguments.training, arguments.rank, problem)?;
        println!("{}", serde_json::to_string(&report)?);
        return Ok(ExitCode::SUCCESS);
    }
    let measured = measure::measure(arguments)?;
    if arguments.json {
        table::print_json(&measured)?;
    } else {
        table::print(&measured);
    }
    if let (true, Some(calls)) = (arguments.projection, &measured.calls) {
        projection::check(&arguments.training, &measured.setting.grid)?;
        let projections = projection::project(&measured.setting, &calls.parts)?;
        if arguments.json {
            projections.iter().for_each(|of| println!("{}", of.to_json()));
        } else {
            projection::print(&projections);
        }
    }
    match &arguments.budget {
        Some(path) => budget::check(path, &measured),
        None => Ok(ExitCode::SUCCESS),
    }
}
