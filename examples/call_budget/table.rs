//! What is printed: a table of calls, memory, and activations next to what others keep; the same as JSON objects.

use std::collections::BTreeSet;

use console::{Alignment, measure_text_width, pad_str};
use examples::figures::bytes;
use serde_json::json;

use crate::counts::{Class, Count, Counts};
use crate::measure::{Calls, Measured, Problem, Setting};
use crate::play::MemoryReport;

/// The width of the first column at least, and of the others.
const NAME: usize = 34;
const CELL: usize = 22;

pub fn print(measured: &Measured) {
    println!("{}", title(&measured.setting));
    if let Some(calls) = &measured.calls {
        print_calls(calls);
        print_per_layer(calls, &measured.setting);
    }
    if let Some((problem, memory)) = &measured.whole {
        print_memory(problem, memory);
    }
}

fn print_calls(calls: &Calls) {
    let parts = calls.parts.named();
    print_row("per", &parts.map(|(name, _)| name.to_owned()));
    for class in &Class::ALL {
        let totals = parts.map(|(_, counts)| counts.total(class));
        if totals.iter().any(|total| is_seen(*total)) {
            print_row(class.name, &totals.map(|total| cell(class, total)));
            for (name, counts) in named_counts(class, &parts) {
                print_row(&format!("  {name}"), &counts.map(|count| cell(class, count)));
            }
        }
    }
}

/// Prints one object per row: calls by part, kind, name and thread; sums by part and class; memory.
pub fn print_json(measured: &Measured) -> anyhow::Result<()> {
    if let Some(calls) = &measured.calls {
        print_json_calls(calls, &measured.setting);
    }
    if let Some((problem, memory)) = &measured.whole {
        println!(
            "{}",
            json!({"layers": problem.layers, "micro_batches": problem.micro_batches, "memory": memory})
        );
    }
    Ok(())
}

fn print_json_calls(calls: &Calls, setting: &Setting) {
    for (part, counts) in calls.parts.named() {
        for (key, count) in counts.iter() {
            let (kind, name, thread) = (&key.kind, &key.name, &key.thread);
            let (calls, bytes) = (rounded(count.calls), rounded(count.bytes));
            println!(
                "{}",
                json!({"per": part, "kind": kind, "name": name, "thread": thread, "calls": calls, "bytes": bytes})
            );
        }
        for class in &Class::ALL {
            let total = counts.total(class);
            println!(
                "{}",
                json!({"per": part, "class": class.name, "calls": rounded(total.calls), "bytes": rounded(total.bytes)})
            );
        }
    }
    let [kept, megatron] = others_activations(setting);
    println!(
        "{}",
        json!({
            "activation_bytes_per_layer": calls.activations_per_layer,
            "expected": kept,
            "megatron": megatron,
            "state_bytes_per_layer": calls.state_per_layer,
        })
    );
}

fn title(setting: &Setting) -> String {
    let grid = &setting.grid;
    format!(
        "rank {} of {}: tensor {} (sequence {}), pipeline {} ({} chunks), data {}; {} layers, hidden size {}, \
         {} heads, {} x {} tokens",
        setting.rank,
        grid.world_size(),
        grid.tensor_parallel_size(),
        if setting.is_sequence_parallel {
            "sharded"
        } else {
            "whole"
        },
        grid.pipeline_parallel_size(),
        setting.chunks,
        grid.data_parallel_size(),
        setting.layers,
        setting.hidden,
        setting.heads,
        setting.micro_batch,
        setting.sequence,
    )
}

fn is_seen(count: Count) -> bool {
    rounded(count.calls) != 0.0
}

/// Means of steps have a few digits.
fn rounded(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

/// Returns the names of a class's calls with their counts in each part.
fn named_counts(class: &Class, parts: &[(&str, &Counts); 4]) -> Vec<(String, [Count; 4])> {
    let of_class = parts.iter().flat_map(|(_, counts)| counts.iter());
    let names: BTreeSet<&str> = of_class
        .filter(|(key, _)| class.has(key))
        .map(|(key, _)| key.name.as_str())
        .collect();
    let counts = names.into_iter().map(|name| {
        let counts = parts.map(|(_, counts)| counts.of_name(class, name));
        (name.to_owned(), counts)
    });
    counts
        .filter(|(_, counts)| counts.iter().any(|count| is_seen(*count)))
        .collect()
}

fn cell(class: &Class, count: Count) -> String {
    if !is_seen(count) {
        return "-".to_owned();
    }
    let calls = rounded(count.calls);
    if class.moves_bytes() && count.bytes >= 1.0 {
        format!("{calls} ({})", bytes(count.bytes as u64))
    } else {
        calls.to_string()
    }
}

fn print_row(name: &str, cells: &[String]) {
    // A long name has a line of its own.
    let name = if measure_text_width(name) > NAME {
        println!("{name}");
        ""
    } else {
        name
    };
    let cells = cells
        .iter()
        .map(|cell| pad_str(cell, CELL, Alignment::Right, None).into_owned());
    println!(
        "{}{}",
        pad_str(name, NAME, Alignment::Left, None),
        cells.collect::<String>()
    );
}

fn print_per_layer(calls: &Calls, setting: &Setting) {
    let [expected, megatron] = others_activations(setting);
    println!(
        "\nactivations per layer and micro-batch: {} (16-bit elements: expected {}, Megatron-LM {})",
        bytes(calls.activations_per_layer.max(0.0) as u64),
        bytes(expected as u64),
        bytes(megatron as u64)
    );
    println!(
        "parameters, gradients and optimizer state per layer: {}",
        bytes(calls.state_per_layer.max(0.0) as u64)
    );
}

fn print_memory(problem: &Problem, memory: &MemoryReport) {
    println!(
        "with {} layers and {} micro-batches: {} in use at most ({} between steps), {} reserved at most ({:+.1} %), \
         {} pinned",
        problem.layers,
        problem.micro_batches,
        bytes(memory.peak_used),
        bytes(memory.used_between_steps),
        bytes(memory.peak_reserved),
        memory.share_unused() * 100.0,
        bytes(memory.peak_pinned),
    );
}

/// Returns the bytes that a layer keeps of a micro-batch in 16 bits, by what our backward rules keep, and by
/// Megatron-LM's formulas with attention that keeps no scores (Korthikanti et al. 2022, arXiv:2205.05198, section 4).
fn others_activations(setting: &Setting) -> [f64; 2] {
    let t = setting.grid.tensor_parallel_size() as f64;
    let tokens = (setting.sequence * setting.micro_batch) as f64;
    let sbh = tokens * setting.hidden as f64;
    if setting.is_sequence_parallel {
        let scalars = 4.0 * tokens * setting.heads as f64 / t + 16.0 * tokens / t;
        [32.0 * sbh / t + scalars, 34.0 * sbh / t]
    } else {
        [sbh * (8.0 + 24.0 / t), sbh * (10.0 + 24.0 / t)]
    }
}
