//! What the kernels of operations cost, by the model of [`kernel_cost`].

pub mod budget;
pub mod passes;

use anyhow::Context;
use cuda_emulator::Architecture;
use kernel_cost::gpu::Gpu;
use kernel_cost::occupancy::BlockSize;
use kernel_cost::row::{Kernel, Row};

use crate::launches::{KernelReport, function, is_ours, launches};
use crate::operations::Operation;

/// An operation's kernel on a GPU.
pub struct Measured {
    pub operation: Operation,
    /// How many kernels of this name it launched before.
    nth: usize,
    pub row: Row,
}

impl Measured {
    /// The operation and its size, and which kernel of this name it is where there are several.
    pub fn title(&self) -> String {
        let Operation { name, shape, .. } = &self.operation;
        let nth = if self.nth == 0 {
            String::new()
        } else {
            format!(", {}", self.nth + 1)
        };
        format!("{name}: {shape}{nth}")
    }
}

pub fn gpus(architecture: Architecture) -> impl Iterator<Item = Gpu> {
    Gpu::ALL
        .into_iter()
        .filter(move |gpu| gpu.target == architecture.target())
}

/// Returns what the kernels of an operation cost on the GPUs of an architecture that are asked for.
pub fn measure(
    operation: &Operation,
    architecture: Architecture,
    is_asked: impl Fn(&Gpu) -> bool,
) -> anyhow::Result<Vec<Measured>> {
    let kernels = launches(operation, architecture)?;
    let ours: Vec<&KernelReport> = kernels.iter().filter(|kernel| is_ours(kernel)).collect();
    let mut measured = Vec::new();
    for (index, kernel) in ours.iter().enumerate() {
        let nth = ours[..index]
            .iter()
            .filter(|earlier| function(earlier.path) == function(kernel.path))
            .count();
        for gpu in gpus(architecture).filter(|gpu| is_asked(gpu)) {
            measured.push(Measured {
                operation: operation.clone(),
                nth,
                row: row(kernel, &gpu)?,
            });
        }
    }
    Ok(measured)
}

pub fn row(kernel: &KernelReport, gpu: &Gpu) -> anyhow::Result<Row> {
    let listing = kernel.listing()?;
    let resources = kernel.resources;
    let described = Kernel {
        name: function(kernel.path),
        size: BlockSize {
            threads: kernel.units,
            registers: resources.registers,
            shared_memory: resources.shared_memory as u32,
        },
        spilled: resources.spilled + resources.traded,
        listing: &listing,
    };
    Row::of(&described, gpu).with_context(|| kernel.name.clone())
}
