//! Attributes of a GPU from the driver, and the GPU of this process.

use std::sync::OnceLock;

use cudarc::driver::result;
use cudarc::driver::sys::{CUdevice, CUdevice_attribute};

use super::CudaError;

static CHOSEN: OnceLock<usize> = OnceLock::new();

/// Notes the GPU of this process. It has one; in a test of many ranks the first counts.
pub(super) fn note_chosen(gpu: usize) {
    let _ = CHOSEN.set(gpu);
}

/// Returns the GPU that this process has chosen first.
pub(crate) fn chosen() -> Option<usize> {
    CHOSEN.get().copied()
}

/// Returns what the driver says of a GPU.
pub(crate) fn attributes<const N: usize>(ordinal: usize, of: [CUdevice_attribute; N]) -> Result<[i32; N], CudaError> {
    let handle = handle(ordinal)?;
    let mut values = [0; N];
    for (value, attribute) in values.iter_mut().zip(of) {
        // SAFETY: the driver has just named the device.
        let found = unsafe { result::device::get_attribute(handle, attribute) };
        *value = found.map_err(refused("cuDeviceGetAttribute"))?;
    }
    Ok(values)
}

/// Returns the driver's handle of a GPU.
pub(super) fn handle(ordinal: usize) -> Result<CUdevice, CudaError> {
    let ordinal = i32::try_from(ordinal).unwrap_or(i32::MAX);
    result::device::get(ordinal).map_err(refused("cuDeviceGet"))
}

/// Returns what makes an error of the driver one of a call.
pub(super) fn refused(call: &'static str) -> impl Fn(cudarc::driver::DriverError) -> CudaError {
    move |error| CudaError::Driver {
        call,
        error: format!("{error:?}"),
    }
}
