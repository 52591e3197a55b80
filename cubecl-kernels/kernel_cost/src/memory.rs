//! The cost of kernels that memory bounds.

use serde::Serialize;

use crate::gpu::{Gpu, SUB_PARTITIONS, WARP};
use crate::hot::{HotPath, is_global};
use crate::instruction::Instruction;
use crate::pipe::Use;

/// What the hot path of a kernel needs next to what memory gives.
///
/// What it loads and stores in vectors counts as traffic of memory, whether caches hold it or not: for weights of norms
/// and biases, which every row loads again, this flatters. Single numbers next to vectors are those of a row, which
/// caches hold.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryCost {
    /// Instructions of an iteration.
    pub instructions: usize,
    /// Whether they are a loop; otherwise the whole kernel.
    pub is_loop: bool,
    /// Loops within that move bytes too, passed once.
    pub inner_loops: usize,
    /// Bytes that a thread loads and stores in an iteration.
    pub bytes: u32,
    /// Cycles of one warp and iteration, by pipe.
    #[serde(rename = "cycles")]
    pub pipes: Use,
    /// Cycles that the busiest pipe needs, over those in which memory moves the bytes: above 0.7 a kernel cannot be
    /// expected to reach the bandwidth.
    pub needed_over_given: f64,
    /// Bytes that are loaded before the first of them is used, of all resident threads.
    pub bytes_in_flight: u32,
}

/// The smallest access, in bytes, that is of a vector.
const VECTOR: u32 = 8;

/// Returns the cost of a path on a GPU with this many threads resident on a multiprocessor.
pub fn memory_cost(path: &HotPath, resident_threads: u32, gpu: &Gpu) -> MemoryCost {
    let instructions = &path.instructions;
    let bytes = traffic(instructions);
    let pipes = Use::of(instructions, gpu);
    // A warp on each sub-partition: they share what the multiprocessor is given.
    let given = f64::from(SUB_PARTITIONS as u32 * bytes * WARP) / gpu.memory_bytes_per_cycle();
    let needed = pipes.busiest().max(SUB_PARTITIONS as f64 * pipes.shared_memory);
    MemoryCost {
        instructions: instructions.len(),
        is_loop: path.is_loop,
        inner_loops: path.inner_loops,
        bytes,
        pipes,
        needed_over_given: needed / given,
        bytes_in_flight: loaded_ahead(instructions) * resident_threads,
    }
}

/// Returns the bytes that a thread moves between memory and registers.
fn traffic(path: &[Instruction]) -> u32 {
    let accesses = || {
        path.iter()
            .filter(|instruction| is_global(instruction))
            .map(Instruction::bytes)
    };
    let widest = accesses().max().unwrap_or(0);
    accesses().filter(|bytes| *bytes >= VECTOR.min(widest)).sum()
}

/// Returns the most bytes of a thread that are being loaded at a time.
fn loaded_ahead(path: &[Instruction]) -> u32 {
    let mut pending = [0; 6];
    let mut most = 0;
    // Twice around: loads may be used in the next iteration.
    for instruction in path.iter().chain(path) {
        let waited = (0..6).filter(|scoreboard| instruction.control.wait >> scoreboard & 1 == 1);
        waited.for_each(|scoreboard| pending[scoreboard] = 0);
        if let ("LDG", Some(scoreboard)) = (instruction.base(), instruction.control.write) {
            pending[usize::from(scoreboard)] += instruction.bytes();
            most = most.max(pending.iter().sum());
        }
    }
    most
}
