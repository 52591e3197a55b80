//! Times the row and element operations on the CPU, forward and backward, at the sizes of a small GPT: fused, in burn's
//! operations, and in PyTorch where `BURN_MEGATRON_PYTHON` names a Python that has it.
//!
//! The three take turns, so that what else the machine does hits all of them; prints medians and the best of all
//! samples, in microseconds. Run it with `--release`.

mod cases;
#[path = "../passes/mod.rs"]
mod passes;
mod pytorch;

use clap::Parser;
use cubecl_kernels::Kernels;

use cases::{element_cases, loss_cases, norm_cases, optimizer_cases, softmax_cases};
use pytorch::PyTorch;

/// Times the operations for the CPU.
#[derive(Clone, Debug, Parser)]
struct Args {
    /// Tokens of a micro-batch.
    #[arg(long, default_value_t = 1024)]
    rows: usize,
    /// The model's width.
    #[arg(long, default_value_t = 384)]
    d_model: usize,
    /// The width of the feed-forward layers.
    #[arg(long, default_value_t = 1536)]
    d_ff: usize,
    /// The padded vocabulary.
    #[arg(long, default_value_t = 8192)]
    vocabulary: usize,
    /// The elements that AdamW updates.
    #[arg(long, default_value_t = 12_600_000)]
    parameters: usize,
    /// Batch, heads and sequence of attention scores.
    #[arg(long, num_args = 3, default_values_t = [4, 6, 256])]
    scores: Vec<usize>,
    /// How many turns each form gets.
    #[arg(long, default_value_t = 5)]
    turns: usize,
    /// Samples of a turn.
    #[arg(long, default_value_t = 20)]
    samples: usize,
    /// Only operations whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
}

/// The median and the smallest, in microseconds.
fn summary(mut seconds: Vec<f64>) -> [f64; 2] {
    seconds.sort_by(f64::total_cmp);
    if seconds.is_empty() {
        [f64::NAN; 2]
    } else {
        [seconds[seconds.len() / 2], seconds[0]].map(|seconds| seconds * 1e6)
    }
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut torch = PyTorch::start(&args)?;
    let makers = [norm_cases, element_cases, softmax_cases, loss_cases, optimizer_cases];
    println!(
        "median (best) in microseconds, {} turns of {} samples",
        args.turns, args.samples
    );
    println!(
        "{:<28}{:>20}{:>20}{:>20}{:>10}",
        "operation", "fused", "reference", "PyTorch", "of it"
    );
    for make in makers {
        for case in make(&args) {
            if !case.name.contains(&args.only) {
                continue;
            }
            let [mut fused, mut reference, mut pytorch] = [Vec::new(), Vec::new(), Vec::new()];
            case.sample(Kernels::Fused);
            for _ in 0..args.turns {
                fused.extend((0..args.samples).map(|_| case.sample(Kernels::Fused).as_secs_f64()));
                // The reference is slow, and not what this is about.
                let few = 0..args.samples.div_ceil(4);
                reference.extend(few.map(|_| case.sample(Kernels::Plain).as_secs_f64()));
                if let Some(torch) = &mut torch {
                    pytorch.extend(torch.samples(&case, args.samples)?);
                }
            }
            let [fused, reference, pytorch] = [fused, reference, pytorch].map(summary);
            let column = |[median, best]: [f64; 2]| format!("{median:.0} ({best:.0})");
            println!(
                "{:<28}{:>20}{:>20}{:>20}{:>9.2}x",
                format!("{} {}", case.name, case.pass),
                column(fused),
                column(reference),
                column(pytorch),
                fused[0] / pytorch[0]
            );
        }
    }
    match torch {
        Some(torch) => torch.finish(),
        None => Ok(()),
    }
}
