//! Trials of what the kernels cost against the budget.

use cuda_source::Architecture;
use kernel_cost::budget::{Budget, Figure, of_comparison};
use kernel_cost::gpu::Gpu;
use libtest_mimic::Trial;

use crate::cost::budget::{figures, has_budget};
use crate::cost::measure;
use crate::cost::passes::{HEADS, compare};
use crate::operations::Operation;

/// A trial for each operation that has a budget, and for attention of each head size.
pub fn trials(operations: &[Operation]) -> Vec<Trial> {
    let of_operations = operations
        .iter()
        .filter(|operation| has_budget(operation))
        .cloned()
        .map(of_operation);
    of_operations.chain(HEADS.map(of_passes)).collect()
}

fn of_operation(operation: Operation) -> Trial {
    let title = format!("budget::{} {}", operation.name, operation.shape);
    Trial::test(title, move || {
        let measured = measure(&operation, Architecture::Sm80, |gpu| *gpu == Gpu::A100_80)?;
        Ok(judge(&figures(&measured))?)
    })
}

fn of_passes(d_head: usize) -> Trial {
    let title = format!("budget::flash_attention next to FlashAttention-2, d_head {d_head}");
    Trial::test(title, move || {
        let compared = compare(d_head)?;
        Ok(judge(&compared.iter().flat_map(of_comparison).collect::<Vec<_>>())?)
    })
}

/// Fails if a figure is not within the budget.
fn judge(figures: &[Figure]) -> anyhow::Result<()> {
    let overruns = Budget::of_this_workspace()?.overruns(figures);
    let lines: Vec<String> = overruns.iter().map(ToString::to_string).collect();
    anyhow::ensure!(
        lines.is_empty(),
        "{}\n(`cargo run -p kernel-tests --example kernel_cost -- --write-budget` makes what is measured the limit)",
        lines.join("\n")
    );
    Ok(())
}
