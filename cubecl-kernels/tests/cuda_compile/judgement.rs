//! What is asked of compiled kernels.

use std::sync::Arc;

use anyhow::{anyhow, ensure};
use burn::tensor::backend::Backend as _;
use cuda_source::{CudaSourceDevice, KernelReport, launched};

use crate::operations::Operation;
use crate::{Backend, table};

/// Judges the kernels of this crate that this thread launched.
pub fn judge(operation: &Operation, device: CudaSourceDevice) -> anyhow::Result<()> {
    Backend::sync(&device).map_err(|error| anyhow!("{error:?}"))?;
    let kernels: Vec<Arc<KernelReport>> = launched(device)
        .into_iter()
        .filter(|report| report.path.starts_with("cubecl_kernels::"))
        .collect();
    ensure!(!kernels.is_empty(), "no kernel of this crate was launched");
    let has_matrix_kernels = kernels.iter().any(|kernel| is_for_matrix_units(kernel));
    ensure!(
        has_matrix_kernels == operation.is_for_matrix_units(),
        "kernels for the matrix units: {has_matrix_kernels}, expected {}",
        operation.is_for_matrix_units()
    );
    for kernel in &kernels {
        table::add(operation, device.architecture, kernel);
    }
    kernels.iter().try_for_each(|kernel| {
        fits(kernel).map_err(|fault| anyhow!("{} {}: {fault}", kernel.name, kernel.specialisation))
    })
}

/// Checks that a kernel keeps everything in registers, and uses the matrix units if its name says so.
fn fits(kernel: &KernelReport) -> anyhow::Result<()> {
    let resources = kernel.resources;
    let (spilled, frame) = (resources.spilled, resources.stack_frame);
    ensure!(
        spilled == 0,
        "spills {spilled} bytes, with {} registers",
        resources.registers
    );
    ensure!(frame == 0, "keeps {frame} bytes in local memory");
    ensure!(
        !is_for_matrix_units(kernel) || resources.matrix_instructions > 0,
        "is named for the matrix units and has no instruction for them"
    );
    Ok(())
}

/// By its name.
fn is_for_matrix_units(kernel: &KernelReport) -> bool {
    kernel.name.contains("mma")
}
