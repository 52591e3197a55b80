//! Trials of what the kernels cost against the budget, and against the table that a step's projection reads.

use anyhow::Context;
use cuda_emulator::Architecture;
use kernel_cost::attention::Comparison;
use kernel_cost::budget::{Budget, Figure, of_comparison};
use kernel_cost::gpu::Gpu;
use libtest_mimic::Trial;

use crate::cost::budget::{figures, has_budget};
use crate::cost::measure;
use crate::cost::passes::{HEADS, compare};
use crate::operations::Operation;
use crate::takes_all;

/// What `kernel_cost --write-budget` wrote last.
const BUDGET: &str = include_str!("../../kernel_cost/data/budget.json");
/// What `kernel_cost --json` printed last.
const COSTS: &str = include_str!("../../kernel_cost/data/costs.jsonl");
/// By how much a utilisation may be another than in that table: it is simulated with an error of this size.
const STALE: f64 = 0.02;

/// A trial for each operation that has a budget, and for attention of each head size.
pub fn trials(operations: &[Operation]) -> Vec<Trial> {
    let of_operations = operations
        .iter()
        .filter(|operation| has_budget(operation) && (takes_all() || !operation.is_for_a_release))
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
        judge(&compared.iter().flat_map(of_comparison).collect::<Vec<_>>())?;
        Ok(compared.iter().try_for_each(is_in_table)?)
    })
}

/// Fails if a figure is not within the budget.
fn judge(figures: &[Figure]) -> anyhow::Result<()> {
    let budget: Budget = serde_json::from_str(BUDGET)?;
    let overruns = budget.overruns(figures);
    let lines: Vec<String> = overruns.iter().map(ToString::to_string).collect();
    anyhow::ensure!(
        lines.is_empty(),
        "{}\n(`cargo run -p cubecl-kernels --features cuda --example kernel_cost -- --write-budget` makes what is \
         measured the limit)",
        lines.join("\n")
    );
    Ok(())
}

/// Fails if the table has no such pass, or another utilisation for it.
fn is_in_table(measured: &Comparison) -> anyhow::Result<()> {
    let what = format!("{}, d_head {}", measured.pass, measured.d_head);
    let rewrite = "`cargo run -p cubecl-kernels --features cuda --example kernel_cost -- --json` prints \
                   kernel_cost/data/costs.jsonl";
    let passes = COSTS.lines().filter(|line| line.contains(r#""row":"pass""#));
    let rows: Vec<Comparison> = passes.map(serde_json::from_str).collect::<Result<_, _>>()?;
    let is_same = |row: &&Comparison| row.pass == measured.pass && row.d_head == measured.d_head;
    let row = rows.iter().find(is_same);
    let row = row.with_context(|| format!("the table has no {what}: {rewrite}"))?;
    let (old, new) = (row.with_others[0], measured.with_others[0]);
    anyhow::ensure!(
        (new / old - 1.0).abs() <= STALE,
        "{what}: utilisation {new:.4}, {old:.4} in the table: {rewrite}"
    );
    Ok(())
}
