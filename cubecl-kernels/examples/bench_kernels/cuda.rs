//! What CUDA needs on a machine, looked for before CubeCL does, which panics where something is missing.

use cubecl::cuda::install::{cuda_path, include_path};
use cudarc::{driver, nvrtc};

/// Looks for the driver, a device, NVRTC, and the headers that CubeCL's kernels include.
///
/// # Errors
/// Says what is missing.
pub fn look() -> Result<(), String> {
    // SAFETY: loads NVIDIA's driver library or nothing; it may be loaded at any time, by any thread.
    if !unsafe { driver::sys::is_culib_present() } {
        return Err("no CUDA driver: libcuda.so is not where the dynamic linker looks".to_owned());
    }
    driver::result::init().map_err(|error| format!("the CUDA driver does not start: {error}"))?;
    let devices = driver::result::device::get_count().map_err(|error| format!("no CUDA devices: {error}"))?;
    if devices < 1 {
        return Err("a CUDA driver, but no device".to_owned());
    }
    // SAFETY: loads NVRTC's library or nothing; it may be loaded at any time, by any thread.
    if !unsafe { nvrtc::sys::is_culib_present() } {
        return Err("no NVRTC: put the folder of libnvrtc.so on LD_LIBRARY_PATH".to_owned());
    }
    if cuda_path().is_none() {
        return Err("no CUDA headers: set CUDA_PATH to a toolkit with include/cuda_fp16.h".to_owned());
    }
    match include_path().join("cuda_fp16.h") {
        header if header.exists() => Ok(()),
        header => Err(format!(
            "no {}: CUDA_PATH must be a toolkit that has it",
            header.display()
        )),
    }
}
