//! The table of compiled kernels.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

use burn::tensor::DType;
use cuda_source::{Architecture, KernelReport, Resources};

use crate::operations::Operation;

/// A kernel in an operation: its name, the type, the operation's name and size, which of the operation's kernels of
/// this name it is.
type Key = (String, DTypeName, String, String, usize);
type DTypeName = String;

/// What a kernel takes, for each architecture.
type Taken = [Option<(u32, Resources)>; Architecture::ALL.len()];

static KERNELS: Mutex<BTreeMap<Key, Taken>> = Mutex::new(BTreeMap::new());

const HEAD: &str = "| kernel | type | for | threads | registers | shared memory | spilled | matrix instructions |";

/// What stands before what kernels cost in `docs/compiled.md`.
const TITLE: &str = "# Kernels compiled for A100 and H100\n\n";

/// What stands around what kernels cost, which the example `kernel_cost` writes.
const COST: [&str; 2] = ["<!-- kernel_cost -->\n", "<!-- /kernel_cost -->\n"];

/// What stands before the table in `docs/compiled.md`.
const PREFACE: &str = "\
## What they take

Written by

```sh
CUDA_COMPILE_TABLE=$PWD/cubecl-kernels/docs/compiled.md cargo test -p kernel-tests --test cuda_compile
```

with NVRTC and `ptxas` 13.5, here for bf16; what the command prints has f32 and f16 too. Registers per thread, shared
memory in bytes, spilled bytes, and instructions for the matrix units in the PTX: on sm_80 / on sm_90a where they
differ. Where an operation launches a kernel twice, each has a row. Sizes with the same figures share a row. In
brackets: bytes that fit the registers, but that this `ptxas` spills so that more blocks run at once; with a minimum of
one block it does not.

";

/// Adds the kernels of an operation.
pub fn add(operation: &Operation, architecture: Architecture, kernels: &[impl AsRef<KernelReport>]) {
    let mut table = KERNELS.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Architecture::ALL.iter().position(|other| *other == architecture);
    let place = place.expect("all are listed");
    let mut counts = BTreeMap::<&str, usize>::new();
    for kernel in kernels.iter().map(AsRef::as_ref) {
        let count = counts.entry(&kernel.name).or_default();
        let key = (
            kernel.name.clone(),
            name(operation.dtype),
            operation.name.to_string(),
            operation.shape.clone(),
            *count,
        );
        *count += 1;
        table.entry(key).or_default()[place] = Some((kernel.units, kernel.resources));
    }
}

/// Where the table is to be written, if anywhere.
pub fn path() -> Option<OsString> {
    std::env::var_os("CUDA_COMPILE_TABLE")
}

/// Prints the table, and writes the part of bf16 where `CUDA_COMPILE_TABLE` says.
pub fn print() -> std::io::Result<()> {
    let table = KERNELS.lock().unwrap_or_else(PoisonError::into_inner);
    if table.is_empty() {
        return Ok(());
    }
    println!("{}", text(&table, |_| true));
    match path() {
        Some(path) => {
            let bf16 = name(DType::BF16);
            let cost = std::fs::read_to_string(&path)
                .ok()
                .and_then(|text| cost(&text))
                .unwrap_or_default();
            std::fs::write(
                path,
                format!("{TITLE}{cost}{PREFACE}{}", text(&table, |dtype| dtype == bf16)),
            )
        }
        None => Ok(()),
    }
}

/// Returns what a text says of kernels' costs, which stays as it is.
fn cost(text: &str) -> Option<String> {
    let [start, end] = [text.find(COST[0])?, text.find(COST[1])? + COST[1].len()];
    Some(text.get(start..end)?.to_string() + "\n")
}

fn text(table: &BTreeMap<Key, Taken>, is_shown: impl Fn(&str) -> bool) -> String {
    // Rows but for the sizes, which follow.
    let mut rows = BTreeMap::<(String, String, String, usize, [String; 5]), Vec<String>>::new();
    for ((kernel, dtype, operation, shape, nth), taken) in table {
        if is_shown(dtype) {
            let key = (kernel.clone(), dtype.clone(), operation.clone(), *nth, columns(taken));
            rows.entry(key).or_default().push(shape.clone());
        }
    }
    let mut text = format!("{HEAD}\n|---|---|---|---|---|---|---|---|\n");
    for ((kernel, dtype, operation, _, columns), shapes) in rows {
        let (shapes, columns) = (shapes.join(", "), columns.join(" | "));
        let _ = writeln!(text, "| {kernel} | {dtype} | {operation}: {shapes} | {columns} |");
    }
    text
}

/// Threads and resources; of both architectures where they differ.
fn columns(taken: &Taken) -> [String; 5] {
    let all: Vec<[String; 5]> = taken
        .iter()
        .flatten()
        .map(|(units, resources)| {
            let spilled = match resources.traded {
                0 => resources.spilled.to_string(),
                traded => format!("{} ({traded})", resources.spilled),
            };
            [
                units.to_string(),
                resources.registers.to_string(),
                resources.shared_memory.to_string(),
                spilled,
                resources.matrix_instructions.to_string(),
            ]
        })
        .collect();
    std::array::from_fn(|column| {
        let mut values: Vec<String> = all.iter().map(|row| row[column].clone()).collect();
        values.dedup();
        values.join(" / ")
    })
}

fn name(dtype: DType) -> String {
    format!("{dtype:?}").to_lowercase()
}
