//! Measures the training step of the bundled GPT, or of a Llama, against the same model in PyTorch, in turn, on the CPU
//! or on one GPU.
//!
//! ```text
//! cargo run --release --example bench -- step --python PATH
//! cargo run --release --example bench --features cuda -- step --python PATH --device cuda --dtype bf16 --compile \
//!     --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 \
//!     --vocab-size 51200 --peak-tflops 989
//! ```
//!
//! Both sides have the same sizes and threads, random tokens, AdamW and clipping, and main parameters in f32. In bf16
//! ours also holds parameters in bf16, and PyTorch casts its parameters as it needs them. With `--micro-batches`, both
//! add up the gradients of that many passes, and clip and update once. Machines drift, so a step is compared with the
//! other side's of the same round; medians are printed. `--by-operation` measures the parts of our step on the CPU one
//! by one instead.

mod operations;
mod ours;
mod theirs;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::ensure;
use burn_megatron::topology::ParallelConfig;
use burn_megatron::training::memory::keep_freed_memory;
use clap::{Args, ValueEnum};
use examples::arguments::{DeviceArguments, Dtype};
use examples::device::DeviceKind;
use models::ModelConfig;
use models::llama::LlamaConfig;

use crate::measure::{count, in_turn, ratio, seconds};
use crate::ranks;
use crate::sizes::Sizes;
use crate::table::{Row, table};
use theirs::{Attention, Outcome};

/// Measure a training step against PyTorch's.
#[derive(Args)]
pub struct Arguments {
    /// An interpreter with PyTorch
    #[arg(long, value_name = "PATH", default_value = "python3")]
    python: PathBuf,
    /// The program that trains in PyTorch: takes the flags below and prints JSON with step_seconds
    #[arg(long, value_name = "PATH", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/bench/step/gpt_pytorch.py"))]
    script: PathBuf,
    /// How often each side is measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = count())]
    rounds: usize,
    /// Let PyTorch compile its model
    #[arg(long)]
    compile: bool,
    /// How PyTorch computes attention, each measured by itself; those after the first with the first number of
    /// micro-batches only
    #[arg(
        long,
        value_enum,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "default"
    )]
    attention: Vec<Attention>,
    /// End PyTorch after this time since the start, and say what was not run
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    deadline: Option<Duration>,
    /// What the device does at best in this type: say which share of it the model's operations take
    #[arg(long, value_name = "TFLOP/s")]
    peak_tflops: Option<f64>,
    /// Leave PyTorch out
    #[arg(long)]
    alone: bool,
    /// Measure the parts of our step, each by itself
    #[arg(long)]
    by_operation: bool,
    #[command(flatten)]
    problem: Problem,
}

/// The kinds of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ModelFamily {
    /// The bundled GPT
    Gpt,
    /// Rotary positions, RMS norms, a gated MLP of 8/3 the size of a token, a key head for each two heads
    Llama,
}

/// Problem of both sides.
#[derive(Args, Clone, Debug)]
struct Problem {
    /// The kind of model
    #[arg(long, value_enum, value_name = "NAME", default_value_t = ModelFamily::Gpt)]
    model_family: ModelFamily,
    #[command(flatten)]
    sizes: Sizes,
    /// Samples per micro-batch
    #[arg(long, value_name = "N", default_value_t = 4)]
    micro_batch_size: usize,
    /// Micro-batches per step, each number measured by itself
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1", value_parser = count())]
    micro_batches: Vec<usize>,
    /// Steps of each run
    #[arg(long, value_name = "N", default_value_t = 12)]
    steps: usize,
    /// Steps at the start of each run that are not counted
    #[arg(long, value_name = "N", default_value_t = 4)]
    warmup: usize,
    /// Threads of each side
    #[arg(long, value_name = "N", default_value_t = 2)]
    threads: usize,
    #[command(flatten)]
    device: DeviceArguments,
    /// Element type of our parameters, and of both sides' arithmetic: f32 or bf16
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = Dtype::F32)]
    dtype: Dtype,
}

impl Problem {
    /// The model's operations in a step of micro-batches, forward and backward.
    fn flops(&self, micro_batches: usize) -> f64 {
        let (seq, samples) = (self.sizes.seq_length, micro_batches * self.micro_batch_size);
        match self.model_family {
            ModelFamily::Gpt => self.sizes.gpt().flops_per_iteration(seq, samples),
            ModelFamily::Llama => self.llama().flops_per_iteration(seq, samples),
        }
    }

    fn llama(&self) -> LlamaConfig {
        let sizes = &self.sizes;
        LlamaConfig::new(
            sizes.num_layers,
            sizes.hidden_size,
            sizes.num_attention_heads,
            sizes.num_attention_heads / 2,
            (8 * sizes.hidden_size).div_ceil(3).next_multiple_of(64),
            sizes.seq_length,
            sizes.vocab_size,
        )
        .with_tied_embeddings(true)
    }
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    keep_freed_memory();
    let problem = &arguments.problem;
    if let Some((_, log)) = ranks::part() {
        return ours::train(problem, &log);
    }
    let (steps, warmup) = (problem.steps, problem.warmup);
    ensure!(
        steps > warmup,
        "--steps must be more than --warmup, got {steps} and {warmup}"
    );
    ensure!(
        matches!(problem.dtype, Dtype::F32 | Dtype::Bf16),
        "--dtype must be f32 or bf16"
    );
    problem.device.validate(problem.dtype)?;
    if problem.model_family == ModelFamily::Llama {
        problem.llama().validate(&ParallelConfig::new())?;
        ensure!(
            !arguments.by_operation,
            "--by-operation measures the parts of the bundled GPT"
        );
    }
    if arguments.by_operation {
        ensure!(
            problem.device.kind == DeviceKind::Cpu && problem.dtype == Dtype::F32,
            "--by-operation measures the CPU, in f32"
        );
        return operations::measure(problem);
    }
    ensure!(
        arguments.alone || matches!(problem.device.kind, DeviceKind::Cpu | DeviceKind::Cuda),
        "PyTorch is measured on the processor and on CUDA: measure --alone"
    );
    compare(arguments)
}

/// Runs both sides in turn, or ours alone, and prints the medians.
fn compare(arguments: &Arguments) -> anyhow::Result<()> {
    let problem = &arguments.problem;
    let deadline = arguments.deadline.map(|limit| Instant::now() + limit);
    let peer = (!arguments.alone).then(|| theirs::peer(arguments)).transpose()?;
    let attentions: &[Attention] = if peer.is_some() { &arguments.attention } else { &[] };
    let (mut left_out, mut failed) = (Vec::new(), false);
    let measured = in_turn(arguments.rounds, 1 + attentions.len(), |round, side| {
        let numbers = &problem.micro_batches[..if side > 1 { 1 } else { problem.micro_batches.len() }];
        let row = match &peer {
            Some(peer) if side > 0 => {
                let attention = attentions[side - 1];
                let name = theirs::name(attention)?;
                match theirs::steps(peer, attention, numbers, deadline) {
                    Ok(Outcome::Measured(ran, rows)) => row_of(&their_name(&name, &ran), numbers, &rows),
                    Ok(Outcome::NotRun(why)) => {
                        left_out.push(format!("not run: PyTorch, {name} attention: {why}"));
                        Row::default()
                    }
                    Err(error) => {
                        failed = true;
                        left_out.push(format!("failed: PyTorch, {name} attention: {error:#}"));
                        Row::default()
                    }
                }
            }
            _ => row_of("ours", numbers, &ours::steps(problem)?),
        };
        // Printed at once, as PyTorch may take long to compile.
        println!("round {round}: {row}");
        Ok(row)
    })?;
    let mut rows = Vec::new();
    for number in &problem.micro_batches {
        let figure = step_of(*number);
        for own in &measured {
            let median = Row::median(own);
            let step = median.value(&figure);
            if step.is_nan() {
                continue;
            }
            let rate = problem.flops(*number) / step / 1e12;
            let row = Row::default()
                .text("side", median.written("side"))
                .number("micro-batches", *number as f64)
                .seconds("step", step)
                .number("model TFLOP/s", rate)
                .percent("of the peak", 1e2 * rate / arguments.peak_tflops.unwrap_or(f64::NAN));
            rows.push(row.number("ours to it", ratio(&measured[0], own, &figure)));
        }
    }
    println!(
        "medians of {} rounds on {} threads; attention not halved",
        arguments.rounds, problem.threads
    );
    println!("{}", table(&rows));
    for line in left_out {
        println!("{line}");
    }
    ensure!(!failed, "PyTorch failed");
    Ok(())
}

/// A side's seconds by number of micro-batches.
fn row_of(side: &str, micro_batches: &[usize], rows: &[Row]) -> Row {
    let steps = micro_batches.iter().zip(rows);
    steps.fold(Row::default().text("side", side), |row, (number, own)| {
        row.seconds(&step_of(*number), own.value("step"))
    })
}

/// The figure of a step of this number of micro-batches.
fn step_of(micro_batches: usize) -> String {
    match micro_batches {
        1 => "step".to_owned(),
        _ => format!("step of {micro_batches}"),
    }
}

/// PyTorch's side by the attention that was asked for and the one that ran.
fn their_name(asked: &str, ran: &str) -> String {
    if ran.starts_with(asked) {
        format!("PyTorch ({ran})")
    } else {
        format!("PyTorch ({asked}: {ran})")
    }
}
