//! The mean over phases: how blocks are shifted against one another is chance, and matters.

use serde::{Deserialize, Serialize};

use super::multiprocessor::{Multiprocessor, Policy};
use super::plan::{Step, steps};
use crate::gpu::{Gpu, SUB_PARTITIONS};
use crate::instruction::Instruction;

/// Phases that a mean is of, half of them with each [`Policy`].
pub const PHASES: usize = 32;
/// When counting begins, in paths of one instruction per cycle for each warp of a sub-partition. Blocks begin within
/// four.
const COUNTED_FROM: u64 = 6;
/// How long it takes, in the same: about twelve iterations.
const COUNTED: u64 = 24;

/// What is resident on a multiprocessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Residency {
    pub blocks: usize,
    /// Warps of each.
    pub warps: usize,
}

/// The share of time that the matrix units are busy, with its standard error.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Utilisation {
    /// The mean over phases.
    pub mean: f64,
    pub standard_error: f64,
}

/// Simulates a hot path in [`PHASES`] phases; nothing for a path without matrix instructions, or whose barriers never
/// open.
pub fn matrix_utilisation(path: &[Instruction], residency: Residency, gpu: &Gpu) -> Option<Utilisation> {
    let steps = steps(path, gpu);
    let shares: Vec<f64> = (0..PHASES).map(|phase| share(&steps, residency, phase)).collect();
    shares.iter().all(|share| *share > 0.0).then(|| mean(&shares))
}

/// Returns the share of time of the matrix units in a phase.
fn share(steps: &[Step], residency: Residency, phase: usize) -> f64 {
    let policy = if phase.is_multiple_of(2) {
        Policy::Greedy
    } else {
        Policy::RoundRobin
    };
    let starts = starts(steps.len() as u64, residency, phase as u64 / 2);
    let warps = (residency.blocks * residency.warps).div_ceil(SUB_PARTITIONS);
    let unit = (steps.len() * warps) as u64;
    let window = COUNTED_FROM * unit..(COUNTED_FROM + COUNTED) * unit;
    let busy = Multiprocessor::new(steps, policy, &starts).matrix_cycles(window.clone());
    busy / (SUB_PARTITIONS as u64 * (window.end - window.start)) as f64
}

fn mean(values: &[f64]) -> Utilisation {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Utilisation {
        mean,
        standard_error: (squares / (count - 1.0) / count).sqrt(),
    }
}

/// Returns when each block's warps begin: blocks at any time of four paths of one instruction per cycle, their warps
/// within 40 cycles.
fn starts(path: u64, residency: Residency, seed: u64) -> Vec<Vec<u64>> {
    let mut draws = Draws(seed);
    let block = |draws: &mut Draws| {
        let start = draws.below(4 * path);
        (0..residency.warps).map(|_| start + draws.below(40)).collect()
    };
    (0..residency.blocks).map(|_| block(&mut draws)).collect()
}

/// SplitMix64.
struct Draws(u64);

impl Draws {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % limit
    }
}
