//! Where what was measured goes: to people, to programs and to the budget.

use std::path::Path;

use anyhow::Context;
use kernel_cost::attention::{Comparison, REACHED_BANDWIDTH};
use kernel_cost::budget::{Budget, Figure, of_comparison};
use kernel_cost::gpu::Gpu;
use kernel_cost::peer::Peers;
use kernel_cost::table::{Titled, matrix_kernels, memory_kernels, passes, peer_row};
use serde_json::{Value, json};

use crate::cost::Measured;
use crate::cost::budget::figures;

pub struct Tables {
    pub comparisons: Vec<Comparison>,
    pub kernels: Vec<Measured>,
}

impl Tables {
    /// For people.
    pub fn print(&self) -> anyhow::Result<()> {
        let titled: Vec<Titled<'_>> = self
            .kernels
            .iter()
            .filter(|measured| measured.row.gpu != Gpu::A100_40.name || is_memory(measured))
            .map(|measured| Titled {
                title: measured.title(),
                row: &measured.row,
            })
            .collect();
        let mut text = String::new();
        if !self.comparisons.is_empty() {
            text += "Attention next to FlashAttention-2; ours / theirs, and ours over theirs:\n\n";
            text += &format!(
                "{}\nIts kernels:\n\n{}",
                passes(&self.comparisons),
                matrix_kernels(&titled)
            );
            for peer in Peers::flash_attention_2()?.kernels {
                let gpu = Gpu::A100_80;
                let sizes = [peer.warps * 32, peer.blocks];
                text += &peer_row(&peer.name, gpu.name, peer.registers, sizes, &peer.cost(&gpu)?);
            }
            text += "\n";
        }
        text += "Kernels that memory bounds; cycles that the busiest pipe needs over those that memory takes:\n\n";
        println!("{text}{}", memory_kernels(&titled));
        Ok(())
    }

    /// For programs: what is assumed, then an object per row.
    pub fn print_json(&self) -> anyhow::Result<()> {
        println!("{}", assumptions());
        for comparison in &self.comparisons {
            println!("{}", with("row", "pass".into(), serde_json::to_value(comparison)?));
        }
        for measured in &self.kernels {
            let row = with("row", "kernel".into(), serde_json::to_value(&measured.row)?);
            let dtype = format!("{:?}", measured.operation.dtype).to_lowercase();
            let row = with("dtype", dtype.into(), row);
            println!("{}", with("operation", measured.title().into(), row));
        }
        Ok(())
    }

    /// Writes the budget; the goals are those of the figures.
    pub fn write_budget(&self) -> anyhow::Result<()> {
        let of_passes = self.comparisons.iter().flat_map(of_comparison);
        let budget = Budget {
            limits: of_passes.chain(figures(&self.kernels)).collect(),
        };
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernel_cost/data/budget.json");
        std::fs::write(&path, one_per_line(&budget)?).with_context(|| path.display().to_string())
    }
}

fn is_memory(measured: &Measured) -> bool {
    matches!(measured.row.cost, kernel_cost::row::Cost::Memory(_))
}

/// What the rows' times are made of.
fn assumptions() -> Value {
    json!({
        "row": "assumptions",
        "time": "a launch takes fixed_seconds + seconds_per_unit * units, if its grid fills the GPU many times",
        "multiply_add": "of the products that a kernel computes, masked ones included; causal attention computes \
            half of all pairs and its blocks' edges",
        "byte": "of all that the kernel loads and stores once",
        "reached_bandwidth": REACHED_BANDWIDTH,
        "source": "simulated from machine code; nothing was measured on a GPU",
        "gpus": Gpu::ALL,
    })
}

fn with(key: &str, value: Value, row: Value) -> Value {
    let mut fields = serde_json::Map::from_iter([(key.to_string(), value)]);
    if let Value::Object(others) = row {
        fields.extend(others);
    }
    Value::Object(fields)
}

/// Returns the limits as JSON, each in a line.
fn one_per_line(budget: &Budget) -> serde_json::Result<String> {
    let line = |figure: &Figure| serde_json::to_string(figure);
    let lines = budget.limits.iter().map(line).collect::<Result<Vec<_>, _>>()?;
    Ok(format!("[\n{}\n]\n", lines.join(",\n")))
}
