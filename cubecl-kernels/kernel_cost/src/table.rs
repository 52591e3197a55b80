//! The tables, in Markdown.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::attention::Comparison;
use crate::gpu::SUB_PARTITIONS;
use crate::matrix::MatrixCost;
use crate::memory::MemoryCost;
use crate::row::{Cost, Row};
use crate::simulate::Utilisation;

/// A kernel's row with what it is for.
#[derive(Clone, Debug, PartialEq)]
pub struct Titled<'a> {
    /// The operation and its size.
    pub title: String,
    pub row: &'a Row,
}

const MATRIX_HEAD: &str = "\
| kernel | for | GPU | threads, blocks | registers, spilled | instructions | HMMA | per HMMA | local accesses | \
cycles: matrix / issue / FMA / ALU / special / shared memory × 4 | bound | simulated |
|---|---|---|---|---|---|---|---|---|---|---|---|
";
const MEMORY_HEAD: &str = "\
| kernel | for | threads, registers, blocks | instructions, bytes | in flight, KB | A100-40 | A100-80 | H100 |
|---|---|---|---|---|---|---|---|
";
const PASS_HEAD: &str = "\
| pass | d_head | GPU | products | simulated, useful | FlashAttention-2 | of it | with other kernels, 2048 tokens | \
grid balance |
|---|---|---|---|---|---|---|---|---|
";

/// Titles by the kernel and the columns that they share.
type Lines = BTreeMap<(String, String), Vec<String>>;

fn table(head: &str, lines: Lines) -> String {
    let mut text = head.to_string();
    for ((kernel, columns), titles) in lines {
        let _ = writeln!(text, "| {kernel} | {} | {columns} |", titles.join("; "));
    }
    text
}

/// Returns the table of kernels on matrix units; equal figures share a row.
pub fn matrix_kernels(rows: &[Titled<'_>]) -> String {
    let mut lines = Lines::new();
    for Titled { title, row } in rows {
        if let Cost::Matrix(cost) = &row.cost {
            let line = (row.kernel.clone(), matrix_columns(row, cost));
            lines.entry(line).or_default().push(title.clone());
        }
    }
    table(MATRIX_HEAD, lines)
}

/// A row of FlashAttention-2 in the same table.
pub fn peer_row(name: &str, gpu: &str, registers: u32, [threads, blocks]: [usize; 2], cost: &MatrixCost) -> String {
    let columns = columns_of_matrix(cost);
    format!("| FlashAttention-2 | {name} | {gpu} | {threads}, {blocks} | {registers}, - | {columns} |\n")
}

/// Returns the table of kernels that memory bounds; equal figures share a row.
pub fn memory_kernels(rows: &[Titled<'_>]) -> String {
    // The same kernel on several GPUs.
    let mut found = BTreeMap::<(String, String), BTreeMap<&str, (&Row, &MemoryCost)>>::new();
    for Titled { title, row } in rows {
        if let Cost::Memory(cost) = &row.cost {
            let key = (row.kernel.clone(), title.clone());
            found.entry(key).or_default().insert(row.gpu, (row, cost));
        }
    }
    let mut lines = Lines::new();
    for ((kernel, title), gpus) in found {
        lines.entry((kernel, memory_columns(&gpus))).or_default().push(title);
    }
    table(MEMORY_HEAD, lines)
}

/// Returns the table of passes next to FlashAttention-2's.
pub fn passes(comparisons: &[Comparison]) -> String {
    let mut text = PASS_HEAD.to_string();
    for comparison in comparisons {
        let Comparison {
            pass,
            d_head,
            gpu,
            products,
            ..
        } = comparison;
        let [ours, peer] = [comparison.utilisation, comparison.peer].map(percent);
        let [with, peer_with, ratio] = comparison.with_others;
        let [balance, peer_balance] = comparison.balance;
        let _ = writeln!(
            text,
            "| {pass} | {d_head} | {gpu} | {products:.1} | {ours} | {peer} | {:.2} ± {:.2} | \
             {with:.2} / {peer_with:.2} = {ratio:.2} | {balance:.2} / {peer_balance:.2} |",
            comparison.of_peer, comparison.of_peer_error,
        );
    }
    text
}

fn matrix_columns(row: &Row, cost: &MatrixCost) -> String {
    let Row {
        gpu,
        threads,
        registers,
        spilled,
        blocks_per_multiprocessor: blocks,
        ..
    } = row;
    format!(
        "{gpu} | {threads}, {blocks} | {registers}, {spilled} | {}",
        columns_of_matrix(cost)
    )
}

fn columns_of_matrix(cost: &MatrixCost) -> String {
    let pipes = &cost.pipes;
    let shared = SUB_PARTITIONS as f64 * pipes.shared_memory;
    let cycles =
        [pipes.matrix, pipes.issue, pipes.fma, pipes.alu, pipes.special, shared].map(|cycles| format!("{cycles:.0}"));
    let inner = if cost.inner_loops == 0 {
        String::new()
    } else {
        format!(" ({} inner loops)", cost.inner_loops)
    };
    format!(
        "{}{inner} | {} | {:.2} | {} | {} | {:.2} | {}",
        cost.instructions,
        cost.matrix_instructions,
        cost.instructions_per_matrix,
        cost.local_accesses,
        cycles.join(" / "),
        cost.matrix_bound,
        percent(cost.utilisation),
    )
}

fn memory_columns(gpus: &BTreeMap<&str, (&Row, &MemoryCost)>) -> String {
    let needed = |gpu: &str| {
        gpus.get(gpu)
            .map_or("-".to_string(), |(_, cost)| format!("{:.2}", cost.needed_over_given))
    };
    let all = |value: &dyn Fn(&Row, &MemoryCost) -> String| {
        let mut values: Vec<String> = gpus.values().map(|(row, cost)| value(row, cost)).collect();
        values.dedup();
        values.join(" / ")
    };
    [
        all(&|row, _| format!("{}, {}, {}", row.threads, row.registers, row.blocks_per_multiprocessor)),
        all(&|_, cost| format!("{}, {}", cost.instructions, cost.bytes)),
        all(&|_, cost| format!("{:.0}", f64::from(cost.bytes_in_flight) / 1024.0)),
        needed("A100-40"),
        needed("A100-80"),
        needed("H100"),
    ]
    .join(" | ")
}

fn percent(share: Utilisation) -> String {
    format!("{:.3} ± {:.3}", share.mean, share.standard_error)
}
