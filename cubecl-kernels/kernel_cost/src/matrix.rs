//! The cost of kernels that the matrix units bound.

use serde::Serialize;

use crate::gpu::Gpu;
use crate::hot::HotPath;
use crate::instruction::Instruction;
use crate::pipe::{Use, atomic_bytes};
use crate::simulate::{Residency, Utilisation, matrix_utilisation};

/// What a warp issues in an iteration of the main loop, and how busy the matrix units are.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MatrixCost {
    pub instructions: usize,
    /// Matrix instructions among them.
    pub matrix_instructions: usize,
    pub instructions_per_matrix: f64,
    /// Loops of matrix instructions within, passed once: the figures mean nothing unless there are none.
    pub inner_loops: usize,
    /// Loads and stores of local memory.
    pub local_accesses: usize,
    /// Asynchronous copies of 16 bytes.
    pub copies: usize,
    /// Bytes that a thread adds to f32 sums in memory.
    pub atomic_bytes: u32,
    /// Cycles of one warp and iteration, by pipe.
    #[serde(rename = "cycles")]
    pub pipes: Use,
    /// The share of time of the matrix units if everything overlapped.
    pub matrix_bound: f64,
    /// The simulated share of time of the matrix units, the time of sums in memory left out.
    pub utilisation_without_atomics: Utilisation,
    /// The simulated share of time of the matrix units.
    pub utilisation: Utilisation,
}

/// Why a kernel has no cost of this kind.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MatrixCostError {
    #[error(
        "the simulation of {instructions} instructions got stuck with {blocks} blocks of {warps} warps: their barriers \
         never open"
    )]
    Stuck {
        instructions: usize,
        blocks: usize,
        warps: usize,
    },
}

/// Returns the cost of a path on a GPU.
///
/// # Errors
///
/// If the simulation does not end.
pub fn matrix_cost(path: &HotPath, residency: Residency, gpu: &Gpu) -> Result<MatrixCost, MatrixCostError> {
    let instructions = &path.instructions;
    let count = |is_of_kind: &dyn Fn(&Instruction) -> bool| instructions.iter().filter(|i| is_of_kind(i)).count();
    let simulate = |gpu: &Gpu| {
        matrix_utilisation(instructions, residency, gpu).ok_or(MatrixCostError::Stuck {
            instructions: instructions.len(),
            blocks: residency.blocks,
            warps: residency.warps,
        })
    };
    let atomic_bytes = instructions.iter().map(atomic_bytes).sum();
    let without = simulate(&Gpu {
        atomic_bytes_per_cycle: f64::INFINITY,
        ..*gpu
    })?;
    let matrix_instructions = count(&Instruction::is_matrix);
    let pipes = Use::of(instructions, gpu);
    Ok(MatrixCost {
        instructions: instructions.len(),
        matrix_instructions,
        instructions_per_matrix: instructions.len() as f64 / matrix_instructions as f64,
        inner_loops: path.inner_loops,
        local_accesses: count(&|i| i.is_one_of(&["LDL", "STL"])),
        copies: count(&|i| i.base() == "LDGSTS" && i.bytes() == 16),
        atomic_bytes,
        pipes,
        matrix_bound: pipes.matrix_bound(),
        utilisation_without_atomics: without,
        utilisation: if atomic_bytes == 0 { without } else { simulate(gpu)? },
    })
}
