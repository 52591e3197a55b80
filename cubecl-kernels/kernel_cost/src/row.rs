//! `Row`: a kernel's cost on a GPU, and a model of its time that a planner of training can read.

use serde::Serialize;

use crate::attention::REACHED_BANDWIDTH;
use crate::gpu::Gpu;
use crate::hot::{matrix_loop, memory_loop};
use crate::listing::{ListingError, parse};
use crate::matrix::{MatrixCost, MatrixCostError, matrix_cost};
use crate::memory::{MemoryCost, memory_cost};
use crate::occupancy::BlockSize;
use crate::simulate::Residency;

/// Seconds that a kernel takes to start and to end. Assumed.
pub const LAUNCH_SECONDS: f64 = 3e-6;

/// The share of the simulated utilisation that is reached. FlashAttention-2's paper (arXiv:2307.08691) reports 0.73 of
/// an A100's peak forward, for which the simulation has 0.78; backward, with the time of sums in memory, it has 0.61
/// for 0.63.
pub const REACHED_UTILISATION: f64 = 0.94;

/// What is known of a compiled kernel.
#[derive(Clone, Debug)]
pub struct Kernel<'a> {
    /// Its function's name.
    pub name: &'a str,
    pub size: BlockSize,
    /// Bytes per thread that do not fit the registers.
    pub spilled: u32,
    /// The text of `cuobjdump -sass`.
    pub listing: &'a str,
}

/// A kernel's cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its function's name.
    pub kernel: String,
    pub gpu: &'static str,
    /// Threads of a block.
    pub threads: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Shared memory of a block, in bytes.
    pub shared_memory: u32,
    /// Bytes per thread that do not fit the registers.
    pub spilled: u32,
    /// Blocks that a multiprocessor holds.
    pub blocks_per_multiprocessor: u32,
    /// What its hot path costs.
    #[serde(flatten)]
    pub cost: Cost,
    /// The model of its time.
    pub time: Time,
}

/// By what a kernel is bound.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "bound", rename_all = "snake_case")]
pub enum Cost {
    Matrix(MatrixCost),
    Memory(MemoryCost),
}

/// The time of a launch: `fixed_seconds`, and for each unit of work on the whole GPU more.
///
/// The grid fills the GPU many times over: [`crate::grid`] has the balance of those that do not.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Time {
    /// Whatever the size.
    pub fixed_seconds: f64,
    /// For each unit of work.
    pub seconds_per_unit: f64,
    pub unit: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A product of two numbers with its sum, by the matrix units.
    MultiplyAdd,
    /// A byte loaded from memory or stored there.
    Byte,
}

#[derive(Debug, thiserror::Error)]
pub enum CostError {
    /// Its listing cannot be read.
    #[error("{kernel}: {source}")]
    Listing { kernel: String, source: ListingError },
    /// Its simulation does not end.
    #[error("{kernel}: {source}")]
    Matrix { kernel: String, source: MatrixCostError },
    #[error("{kernel}: no block of {threads} threads with {registers} registers and {shared_memory} bytes fits {gpu}")]
    DoesNotFit {
        kernel: String,
        threads: u32,
        registers: u32,
        shared_memory: u32,
        gpu: &'static str,
    },
    #[error("{kernel}: neither a loop of matrix instructions nor an access to memory")]
    NoHotPath { kernel: String },
}

impl Row {
    /// Finds the hot path of a kernel's listing, which is of one function, and what it costs on a GPU.
    ///
    /// # Errors
    ///
    /// If the listing is not one, the kernel does not fit, or has nothing to measure.
    pub fn of(kernel: &Kernel<'_>, gpu: &Gpu) -> Result<Self, CostError> {
        let blocks = kernel.size.resident(gpu);
        if blocks == 0 {
            return Err(kernel.does_not_fit(gpu));
        }
        let cost = kernel.cost(blocks, gpu)?;
        Ok(Self {
            kernel: kernel.name.to_string(),
            gpu: gpu.name,
            threads: kernel.size.threads,
            registers: kernel.size.registers,
            shared_memory: kernel.size.shared_memory,
            spilled: kernel.spilled,
            blocks_per_multiprocessor: blocks,
            time: Time::of(&cost, gpu),
            cost,
        })
    }
}

impl Kernel<'_> {
    fn cost(&self, blocks: u32, gpu: &Gpu) -> Result<Cost, CostError> {
        let kernel = || self.name.to_string();
        let functions = parse(self.listing).map_err(|source| CostError::Listing {
            kernel: kernel(),
            source,
        })?;
        let instructions = &functions[0].instructions;
        if let Some(path) = matrix_loop(instructions) {
            let residency = Residency {
                blocks: blocks as usize,
                warps: self.size.warps() as usize,
            };
            let cost = matrix_cost(&path, residency, gpu);
            return cost.map(Cost::Matrix).map_err(|source| CostError::Matrix {
                kernel: kernel(),
                source,
            });
        }
        let path = memory_loop(instructions).ok_or_else(|| CostError::NoHotPath { kernel: kernel() })?;
        Ok(Cost::Memory(memory_cost(&path, blocks * self.size.threads, gpu)))
    }

    fn does_not_fit(&self, gpu: &Gpu) -> CostError {
        CostError::DoesNotFit {
            kernel: self.name.to_string(),
            threads: self.size.threads,
            registers: self.size.registers,
            shared_memory: self.size.shared_memory,
            gpu: gpu.name,
        }
    }
}

impl Time {
    fn of(cost: &Cost, gpu: &Gpu) -> Self {
        let (seconds_per_unit, unit) = match cost {
            Cost::Matrix(cost) => (
                2.0 / (gpu.matrix_flops() * REACHED_UTILISATION * cost.utilisation.mean),
                Unit::MultiplyAdd,
            ),
            Cost::Memory(cost) => (
                (1.0 / REACHED_BANDWIDTH).max(cost.needed_over_given) / gpu.memory_bytes_per_second,
                Unit::Byte,
            ),
        };
        Self {
            fixed_seconds: LAUNCH_SECONDS,
            seconds_per_unit,
            unit,
        }
    }
}
