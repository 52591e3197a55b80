//! Where what was measured goes: to people, to programs, to the budget and to the documentation.

use std::path::{Path, PathBuf};

use anyhow::Context;
use kernel_cost::attention::{Comparison, REACHED_BANDWIDTH};
use kernel_cost::budget::{Budget, Figure, of_comparison};
use kernel_cost::gpu::Gpu;
use kernel_cost::peer::Peers;
use kernel_cost::table::{Titled, matrix_kernels, memory_kernels, passes, peer_row};
use serde_json::{Value, json};

use crate::cost::Measured;
use crate::cost::budget::figures;

/// What was measured.
pub struct Tables {
    pub comparisons: Vec<Comparison>,
    pub kernels: Vec<Measured>,
}

/// What the section of the documentation begins and ends with.
const SECTION: [&str; 2] = ["<!-- kernel_cost -->\n", "<!-- /kernel_cost -->\n"];

const PREFACE: &str = "\
## What they cost

Written by

```sh
cargo run -p kernel-tests --example kernel_cost -- --write-docs
```

from the kernels' machine code, by the model in `kernel_cost`; nothing here was measured on a GPU. Each row is the hot
path of a kernel: what a warp issues in an iteration of its main loop, away from edges. `simulated` is the share of time
in which the matrix units work, the mean of 32 phases of the resident blocks with its standard error; `bound` is the
same if everything overlapped. FlashAttention-2's kernels are those that xFormers has for sm_80 (v2.5.6, bf16, causal,
even sizes), put through the same model; its 32 sums of f32 in memory per thread backward count, and the time of what
their other kernels take where it says so.

";

impl Tables {
    /// For people.
    pub fn print(&self) -> anyhow::Result<()> {
        println!("{}", self.markdown()?);
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
        let path = workspace_file("kernel_cost/data/budget.json");
        std::fs::write(&path, one_per_line(&budget)?).with_context(|| path.display().to_string())
    }

    /// Writes the section of the documentation.
    pub fn write_docs(&self) -> anyhow::Result<()> {
        let path = workspace_file("docs/compiled.md");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let section = format!("{}{PREFACE}{}{}", SECTION[0], self.markdown()?, SECTION[1]);
        let replaced = match (text.find(SECTION[0]), text.find(SECTION[1])) {
            (Some(start), Some(end)) => format!("{}{section}{}", &text[..start], &text[end + SECTION[1].len()..]),
            _ => format!("{text}\n{section}"),
        };
        std::fs::write(&path, replaced).with_context(|| path.display().to_string())
    }

    fn markdown(&self) -> anyhow::Result<String> {
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
        Ok(text + &memory_kernels(&titled))
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

/// Returns the path of a file of `cubecl-kernels`.
fn workspace_file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}
