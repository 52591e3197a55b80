//! The table of compiled kernels.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

use cuda_source::{Architecture, KernelReport};

use crate::operations::Operation;

/// A row: the kernel first, so that rows sort by it.
type Row = [String; 9];

const HEAD: [&str; 9] = [
    "kernel",
    "type",
    "for",
    "architecture",
    "threads",
    "registers",
    "shared memory",
    "spilled",
    "matrix instructions",
];

static ROWS: Mutex<BTreeSet<Row>> = Mutex::new(BTreeSet::new());

/// Adds a kernel, once however often it was launched.
pub fn add(operation: &Operation, architecture: Architecture, kernel: &KernelReport) {
    let resources = kernel.resources;
    let row = [
        kernel.name.clone(),
        format!("{:?}", operation.dtype).to_lowercase(),
        format!("{} {}", operation.name, operation.shape),
        architecture.to_string(),
        kernel.units.to_string(),
        resources.registers.to_string(),
        resources.shared_memory.to_string(),
        resources.spilled.to_string(),
        resources.matrix_instructions.to_string(),
    ];
    ROWS.lock().unwrap_or_else(PoisonError::into_inner).insert(row);
}

/// Prints the table, and writes it where `CUDA_COMPILE_TABLE` says.
pub fn print() -> std::io::Result<()> {
    let rows = ROWS.lock().unwrap_or_else(PoisonError::into_inner);
    if rows.is_empty() {
        return Ok(());
    }
    let mut text = String::new();
    let mut line = |cells: &[&str]| {
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    };
    line(&HEAD);
    line(&HEAD.map(|_| "---"));
    for row in rows.iter() {
        line(&row.each_ref().map(String::as_str));
    }
    println!("{text}");
    match std::env::var_os("CUDA_COMPILE_TABLE") {
        Some(path) => std::fs::write(path, text),
        None => Ok(()),
    }
}
