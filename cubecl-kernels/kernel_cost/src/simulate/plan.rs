//! `Step`: an instruction of the hot path as the multiprocessor needs it.

use super::latency::latency;
use crate::gpu::{Gpu, WARP};
use crate::instruction::{Control, Instruction};
use crate::pipe::{Pipe, atomic_bytes, wavefronts};

/// An instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) pipe: Pipe,
    /// Cycles that it holds the pipe.
    pub(super) held: f64,
    pub(super) latency: u64,
    /// In shared memory.
    pub(super) wavefronts: u32,
    /// Cycles of the L2 cache's part that adds sums.
    pub(super) atomic_cycles: f64,
    pub(super) control: Control,
    pub(super) is_barrier: bool,
    pub(super) is_copy: bool,
}

pub(super) fn steps(path: &[Instruction], gpu: &Gpu) -> Vec<Step> {
    path.iter().map(|instruction| step(instruction, gpu)).collect()
}

fn step(instruction: &Instruction, gpu: &Gpu) -> Step {
    let atomic_bytes = f64::from(atomic_bytes(instruction) * WARP);
    let mut control = instruction.control;
    control.stall = control.stall.max(1);
    if instruction.is_matrix() {
        // The next one that needs its result is ordered by stall counts.
        control.write = None;
    }
    Step {
        pipe: Pipe::of(instruction),
        held: Pipe::cycles(instruction, gpu),
        latency: latency(instruction),
        wavefronts: wavefronts(instruction),
        atomic_cycles: atomic_bytes / gpu.atomic_bytes_per_cycle,
        control,
        is_barrier: instruction.base() == "BAR",
        is_copy: instruction.base() == "LDGSTS",
    }
}
