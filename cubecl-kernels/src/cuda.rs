//! CubeCL's server on CUDA: calls of other libraries, queued between its kernel launches.

use burn_backend::StreamId;
use cubecl::cuda::{CudaDevice, CudaRuntime};
use cubecl::server::{BufferBinding, ServerError};
use cubecl_common::device::Device;
use cubecl_common::device_handle::DeviceHandle;
use cubecl_server::id::KernelId;
use cubecl_server::runtime::Runtime;
use cubecl_server::server::Server as _;
use cubecl_server::stream::{ExecuteScope, WriteScoped};
use cudarc::driver::sys::CUstream;

/// Executes a device's launches, one after another, on a thread of its own.
pub type Server = <CudaRuntime as Runtime>::Server;

/// Returns what executes the device's launches.
pub fn server(device: &CudaDevice) -> DeviceHandle<Server> {
    DeviceHandle::new(device.to_id())
}

/// Buffers of a call.
#[derive(Debug)]
pub struct CallBuffers {
    /// Those that it reads.
    pub read: Vec<BufferBinding>,
    /// Those that it writes; it may read them too.
    pub written: Vec<BufferBinding>,
}

/// Queues a call of a library after what this thread has launched, and after what other threads' streams have in its
/// buffers. `K` names the call in CubeCL's reports.
///
/// `call` runs on the server's thread, where the device's context is current. It is given the stream that this thread's
/// work goes to, and the addresses of the buffers: those that it reads, then those that it writes. If it fails, or does
/// not run because what wrote a buffer has failed, reading what it was to write reports that.
pub fn queue<K: 'static>(
    server: &DeviceHandle<Server>,
    buffers: CallBuffers,
    call: impl FnOnce(CUstream, &[u64]) -> Result<(), String> + Send + 'static,
) {
    let stream = StreamId::current();
    server.submit(move |server| {
        let CallBuffers { read, written } = buffers;
        let all: Vec<_> = read.iter().chain(&written).cloned().collect();
        let scope = ExecuteScope::launching(server, KernelId::new::<K>(), stream, all.iter(), written);
        scope.execute(|server| {
            // Kept until the call is queued: what other streams let go of is used again after it.
            let mut streams = server.write_streams().resolve(stream, all.iter())?;
            let mut addresses = Vec::with_capacity(all.len());
            for buffer in &all {
                let memory = &mut streams.get(&buffer.stream).memory_management_gpu;
                let (start, end) = (buffer.offset_start, buffer.offset_end);
                addresses.push(memory.get_resource(buffer.memory.clone(), start, end)?.ptr);
            }
            call(streams.current().sys, &addresses).map_err(|reason| ServerError::Generic {
                reason,
                backtrace: Default::default(),
            })
        });
    });
}

/// Returns why what was to write the buffers has not, in the words of CubeCL; `None` if it has, or will.
pub fn why_unwritten(server: &DeviceHandle<Server>, buffers: Vec<BufferBinding>) -> Option<String> {
    let stream = StreamId::current();
    let checked = server.submit_blocking(move |server| server.check(buffers, stream));
    checked.ok()?.err().map(|error| error.to_string())
}
