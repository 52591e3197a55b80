//! The table of compiled kernels.

use std::collections::BTreeMap;
use std::fmt::Write;

use burn::tensor::DType;
use cuda_emulator::{Architecture, Resources};
use parking_lot::Mutex;

use crate::launches::KernelReport;
use crate::operations::Operation;

/// A kernel in an operation: its name, the type, the operation's name and size, which of the operation's kernels of
/// this name it is.
type Key = (String, DTypeName, String, String, usize);
type DTypeName = String;

/// What a kernel takes, for each architecture.
type Taken = [Option<(u32, Resources)>; Architecture::ALL.len()];

static KERNELS: Mutex<BTreeMap<Key, Taken>> = Mutex::new(BTreeMap::new());

const HEAD: &str = "| kernel | type | for | threads | registers | shared memory | spilled | matrix instructions |";

pub fn add(operation: &Operation, architecture: Architecture, kernels: &[KernelReport]) {
    let mut table = KERNELS.lock();
    let place = Architecture::ALL.iter().position(|other| *other == architecture);
    let place = place.expect("all are listed");
    let mut counts = BTreeMap::<&str, usize>::new();
    for kernel in kernels {
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

/// Prints the table, if there is anything in it.
pub fn print() {
    let table = KERNELS.lock();
    if !table.is_empty() {
        println!("{}", text(&table));
    }
}

fn text(table: &BTreeMap<Key, Taken>) -> String {
    // Rows but for the sizes, which follow.
    let mut rows = BTreeMap::<(String, String, String, usize, [String; 5]), Vec<String>>::new();
    for ((kernel, dtype, operation, shape, nth), taken) in table {
        let key = (kernel.clone(), dtype.clone(), operation.clone(), *nth, columns(taken));
        rows.entry(key).or_default().push(shape.clone());
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
