//! What is asked of compiled kernels.

use anyhow::{anyhow, ensure};
use cuda_emulator::Architecture;

use crate::launches::{KernelReport, function, is_ours, launches};
use crate::operations::Operation;
use crate::table;

/// Bytes that `ptxas` may spill of its own accord, although they fit the registers, so that one more block runs at
/// once: sixteen numbers, stored or loaded once, in kernels that do thousands of operations between.
const MOST_TRADED: u32 = 64;

/// Bytes that attention's forward pass may spill on blocks of 64 keys and heads of 128 elements, where accumulators and
/// scores alone take 192 of 255 registers: the twelve numbers that FlashAttention-2 (2.5.6, sm_80) stores or loads in
/// the loop of its kernel for the same block.
const MOST_SPILLED: u32 = 48;

/// Judges the kernels of this crate that an operation launches.
pub fn judge(operation: &Operation, architecture: Architecture) -> anyhow::Result<()> {
    let mut kernels = launches(operation, architecture)?;
    kernels.retain(is_ours);
    ensure!(!kernels.is_empty(), "no kernel of this crate was launched");
    if let Some(expected) = operation.kernels {
        let names: Vec<&str> = kernels.iter().map(|kernel| function(kernel.path)).collect();
        ensure!(names == expected, "launched {names:?}, expected {expected:?}");
    }
    table::add(operation, architecture, &kernels);
    kernels.iter().try_for_each(|kernel| {
        fits(kernel, most_spilled(operation, kernel)).map_err(|fault| anyhow!("{}: {fault}", kernel.name))
    })
}

/// Checks that a kernel fits the registers, but for `most` bytes, and uses the matrix units if its name says so.
fn fits(kernel: &KernelReport, most: u32) -> anyhow::Result<()> {
    let resources = kernel.resources;
    let (spilled, frame) = (resources.spilled, resources.stack_frame);
    ensure!(
        spilled <= most,
        "spills {spilled} bytes, more than {most}, with {} registers",
        resources.registers
    );
    ensure!(frame <= most, "keeps {frame} bytes in local memory, more than {most}");
    let traded = resources.traded;
    ensure!(
        traded <= MOST_TRADED,
        "spills {traded} bytes so that one more block runs at once, more than {MOST_TRADED}"
    );
    ensure!(
        !is_for_matrix_units(kernel) || resources.matrix_instructions > 0,
        "is named for the matrix units and has no instruction for them"
    );
    Ok(())
}

fn most_spilled(operation: &Operation, kernel: &KernelReport) -> u32 {
    let has = |part| operation.name.contains(part);
    // Ranges of keys and a bias take registers, and blocks have 32 keys; with dropout they have half the queries.
    let has_64_keys = has("dropout") || !(has("documents") || has("bias"));
    let is_largest = operation.shape.ends_with(" x 128") && has_64_keys;
    if function(kernel.path) == "attend_mma" && is_largest {
        MOST_SPILLED
    } else {
        0
    }
}

/// By its name.
fn is_for_matrix_units(kernel: &KernelReport) -> bool {
    function(kernel.path).ends_with("_mma")
}
