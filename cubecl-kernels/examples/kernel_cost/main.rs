//! Prints what the kernels cost on an A100 and an H100, from their machine code: attention next to FlashAttention-2,
//! and for kernels that memory bounds the cycles that they need over those that memory gives.
//!
//! Needs `.ci/cuda_compiler`, no GPU.
//!
//! ```text
//! alias kernel_cost="cargo run -p cubecl-kernels --features cuda --example kernel_cost --"
//! kernel_cost                      # the kernels that have a budget
//! kernel_cost attention            # of operations with this in their title
//! kernel_cost --all --json         # all of bf16, one JSON object per row
//! kernel_cost --write-budget       # what is measured becomes the limit
//! ```
//!
//! The operations are those of the test `cuda_compile`. What was compiled before is in the user's cache.

#[path = "../../tests/cuda_compile/attention.rs"]
mod attention;
#[path = "../../tests/cuda_compile/cost/mod.rs"]
mod cost;
#[path = "../../tests/cuda_compile/emulated.rs"]
mod emulated;
#[path = "../../tests/cuda_compile/launches.rs"]
mod launches;
#[path = "../../tests/cuda_compile/operations.rs"]
mod operations;
#[path = "../../tests/cuda_compile/others.rs"]
mod others;
mod output;
#[path = "../../tests/cuda_compile/rows.rs"]
mod rows;

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::tensor::DType;
use clap::Parser;
use cuda_emulator::{Architecture, Toolkit};
use kernel_cost::attention::Comparison;

use cost::budget::has_budget;
use cost::passes::{HEADS, compare};
use cost::{Measured, measure};
use operations::Operation;
use output::Tables;

/// Print what kernels cost.
#[derive(Clone, Debug, Parser)]
struct Arguments {
    /// Only operations whose name and size have one of these in them
    titles: Vec<String>,
    /// All sizes in bf16, not only those that have a budget
    #[arg(long)]
    all: bool,
    /// Only this architecture: sm_80 or sm_90a
    #[arg(long)]
    architecture: Option<String>,
    /// One JSON object per row
    #[arg(long)]
    json: bool,
    /// Make what is measured the budget's limits
    #[arg(long, conflicts_with_all = ["titles", "all", "architecture"])]
    write_budget: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    if let Some(code) = emulated::run_again()? {
        return Ok(code);
    }
    run(&arguments)?;
    Ok(ExitCode::SUCCESS)
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    Toolkit::find().map_err(|error| anyhow::anyhow!("{error}"))?;
    let operations = arguments.operations();
    let tables = Tables {
        comparisons: comparisons(&operations)?,
        kernels: measure_all(&operations)?,
    };
    match arguments {
        Arguments { write_budget: true, .. } => tables.write_budget(),
        Arguments { json: true, .. } => tables.print_json(),
        _ => tables.print(),
    }
}

impl Arguments {
    fn is_asked(&self, title: &str) -> bool {
        self.titles.is_empty() || self.titles.iter().any(|part| title.contains(part))
    }

    fn operations(&self) -> Vec<(Operation, Architecture)> {
        let is_listed = |operation: &Operation| {
            if self.all {
                operation.dtype == DType::BF16
            } else {
                has_budget(operation)
            }
        };
        let is_asked = |operation: &Operation| self.is_asked(&format!("{} {}", operation.name, operation.shape));
        let operations = operations::all().into_iter().filter(is_listed).filter(is_asked);
        let pairs =
            operations.flat_map(|operation| Architecture::ALL.map(|architecture| (operation.clone(), architecture)));
        let named = self.architecture.as_deref();
        pairs
            .filter(|(_, architecture)| named.is_none_or(|name| name == architecture.target()))
            .collect()
    }
}

/// Returns attention's passes next to FlashAttention-2's, if attention on an A100 is among the operations.
fn comparisons(operations: &[(Operation, Architecture)]) -> anyhow::Result<Vec<Comparison>> {
    let is_attention = |(operation, architecture): &(Operation, Architecture)| {
        operation.name.starts_with("flash_attention") && *architecture == Architecture::Sm80
    };
    if !operations.iter().any(is_attention) {
        return Ok(Vec::new());
    }
    let compared = HEADS.into_iter().map(compare).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(compared.concat())
}

/// Measures operations, several at a time, and returns what they launch in their order.
fn measure_all(operations: &[(Operation, Architecture)]) -> anyhow::Result<Vec<Measured>> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((operation, architecture)) = operations.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let measured = measure(operation, *architecture, |_| true);
                    let key = (operation.name, operation.shape.clone(), *architecture as usize);
                    results.lock().expect("no thread panicked").push((key, measured));
                }
            });
        }
    });
    let mut results = results.into_inner()?;
    results.sort_by(|(a, _), (b, _)| a.cmp(b));
    let measured = results
        .into_iter()
        .map(|(_, measured)| measured)
        .collect::<anyhow::Result<Vec<_>>>()?;
    Ok(measured.into_iter().flatten().collect())
}
