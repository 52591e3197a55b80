//! Calls operations on the device that compiles.

use std::sync::Arc;

use anyhow::anyhow;
use burn::tensor::DType;
use burn::tensor::backend::Backend as _;
use cuda_source::{Architecture, CudaSourceDevice, KernelReport, launched};

use crate::Backend;
use crate::operations::{Operation, Setting};

/// Returns the kernels that an operation launches for an architecture, burn's among them, in order.
pub fn launches(operation: &Operation, architecture: Architecture) -> anyhow::Result<Vec<Arc<KernelReport>>> {
    launches_of(operation.dtype, architecture, |setting| (operation.run)(setting))
}

/// Returns the kernels that a call launches.
pub fn launches_of(
    dtype: DType,
    architecture: Architecture,
    run: impl Fn(&Setting) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Arc<KernelReport>>> {
    launches_on(CudaSourceDevice::compiling(architecture).of_this_thread(), dtype, run)
}

/// Returns the kernels that a call launches on a device.
pub fn launches_on(
    device: CudaSourceDevice,
    dtype: DType,
    run: impl Fn(&Setting) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Arc<KernelReport>>> {
    run(&Setting { device, dtype })?;
    Backend::sync(&device).map_err(|error| anyhow!("{error:?}"))?;
    Ok(launched(device))
}

/// Whether a kernel is of this crate.
pub fn is_ours(kernel: &KernelReport) -> bool {
    kernel.path.starts_with("cubecl_kernels::")
}

/// The kernel's function: CubeCL makes a module of its name, and in it a type.
pub fn function(kernel: &KernelReport) -> &str {
    let path = kernel.path.split('<').next().unwrap_or_default();
    path.rsplit("::").nth(1).unwrap_or_default()
}
