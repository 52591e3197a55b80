//! What is known of the kernels that were launched, for tests to judge.

use std::collections::HashMap;
use std::sync::Arc;

use cubecl_common::device::Device;
use cubecl_common::stream_id::StreamId;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::toolkit::ToolkitError;
use crate::{Architecture, CudaSourceDevice, Toolkit};

/// A kernel in one of its specialisations, compiled.
#[derive(Clone, Debug)]
pub struct KernelReport {
    /// The path of the kernel's type, with its type parameters: `cubecl_kernels::norm::kernel::…`.
    pub path: String,
    /// The kernel's function.
    pub name: String,
    /// The compile-time arguments, as they print.
    pub specialisation: String,
    /// Threads per block.
    pub units: u32,
    /// Blocks of the launch.
    pub grid: [u32; 3],
    /// The GPU that it is compiled for.
    pub architecture: Architecture,
    /// The CUDA C++ source, the same for equal kernels.
    pub source: Arc<str>,
    /// What it takes of the GPU.
    pub resources: Resources,
}

impl KernelReport {
    /// Returns what `cuobjdump -sass` prints of the kernel.
    pub fn listing(&self) -> Result<String, ToolkitError> {
        let toolkit = Toolkit::find().map_err(|error| ToolkitError::Missing {
            what: error.to_string(),
        })?;
        toolkit.listing(&self.source, self.architecture)
    }
}

/// What a compiled kernel takes of the GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Registers per thread.
    pub registers: u32,
    /// Shared memory per block in bytes, static and dynamic.
    pub shared_memory: usize,
    /// Bytes per thread that do not fit the registers, stored and loaded.
    pub spilled: u32,
    /// Bytes per thread that do, and that `ptxas` spills all the same so that more blocks run at once.
    pub traded: u32,
    /// Bytes per thread of local memory, spilled or not, without what is traded.
    pub stack_frame: u32,
    /// Instructions of the matrix units (`mma` and `wmma`) in the PTX.
    pub matrix_instructions: usize,
}

/// What was launched on a device by a thread.
type Launched = HashMap<(u16, StreamId), Vec<Arc<KernelReport>>>;

/// A runtime is reached by type and device only, so its launches are kept in a static.
static LAUNCHED: Mutex<Option<Launched>> = Mutex::new(None);

/// Notes a launch.
pub fn record(device: CudaSourceDevice, stream: StreamId, report: Arc<KernelReport>) {
    let mut launched = LAUNCHED.lock();
    let key = (device.to_id().index_id, stream);
    launched.get_or_insert_default().entry(key).or_default().push(report);
}

/// Returns the kernels that this thread launched on a device since it last asked, in order.
///
/// Launches are queued: synchronise the device first.
pub fn launched(device: CudaSourceDevice) -> Vec<Arc<KernelReport>> {
    let mut launched = LAUNCHED.lock();
    let key = (device.to_id().index_id, StreamId::current());
    launched.get_or_insert_default().remove(&key).unwrap_or_default()
}
