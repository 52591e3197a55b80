//! The CUDA driver without CubeCL: memory, streams, and the time between two events.

use std::ffi::{CString, c_void};

use anyhow::Context as _;
use cudarc::driver::DriverError;
use cudarc::driver::result::stream::StreamKind;
use cudarc::driver::result::{ctx, device, event, free_sync, function, launch_kernel, malloc_sync, memcpy_htod_sync};
use cudarc::driver::result::{module, primary_ctx, stream};
use cudarc::driver::sys::{
    CUdevice_attribute, CUevent, CUevent_flags::CU_EVENT_DEFAULT, CUfunction, CUfunction_attribute, CUstream,
};
use cudarc::nvrtc::{CompileOptions, compile_ptx_with_opts};

/// The first device, whose primary context is current on this thread: CubeCL uses the same one.
pub struct Gpu(i32);

impl Gpu {
    pub fn open() -> Result<Self, DriverError> {
        let gpu = device::get(0)?;
        // SAFETY: the driver has been started, and the context is never released.
        unsafe { ctx::set_current(primary_ctx::retain(gpu)?)? };
        Ok(Self(gpu))
    }

    pub fn attribute(&self, attribute: CUdevice_attribute) -> Result<u32, DriverError> {
        // SAFETY: the device is one.
        Ok(unsafe { device::get_attribute(self.0, attribute)? } as u32)
    }

    pub fn multiprocessors(&self) -> Result<u32, DriverError> {
        self.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
    }

    pub fn name(&self) -> Result<String, DriverError> {
        device::get_name(self.0)
    }

    /// Compiles a kernel that takes up to `shared` bytes of shared memory.
    pub fn compile(&self, source: &str, name: &str, shared: u32) -> anyhow::Result<Kernel> {
        let major = self.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = self.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let architecture = format!("--gpu-architecture=compute_{major}{minor}");
        let options = CompileOptions {
            options: vec![architecture],
            ..CompileOptions::default()
        };
        let ptx = compile_ptx_with_opts(source, options).with_context(|| format!("NVRTC refuses {name}"))?;
        let (text, name) = (CString::new(ptx.to_src())?, CString::new(name)?);
        // SAFETY: the text is PTX and ends with a zero; the module is never unloaded.
        unsafe {
            let function = module::get_function(module::load_data(text.as_ptr().cast())?, name)?;
            let most_shared = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            function::set_function_attribute(function, most_shared, shared as i32)?;
            Ok(Kernel { function, shared })
        }
    }
}

/// A kernel of a module that stays loaded.
pub struct Kernel {
    function: CUfunction,
    shared: u32,
}

impl Kernel {
    /// Queues it.
    ///
    /// # Safety
    /// The arguments are those that the kernel declares, and its memory stays until the stream is done.
    pub unsafe fn launch(
        &self,
        blocks: u32,
        threads: u32,
        stream: &Stream,
        arguments: &mut [*mut c_void],
    ) -> Result<(), DriverError> {
        // SAFETY: the caller's.
        unsafe {
            launch_kernel(
                self.function,
                (blocks, 1, 1),
                (threads, 1, 1),
                self.shared,
                stream.0,
                arguments,
            )
        }
    }
}

/// Memory of the device.
pub struct Memory {
    pub address: u64,
    bytes: usize,
}

impl Memory {
    /// Allocates bytes and writes numbers from 0.5 to 2 in magnitude, in f32 as in 16 bits, no two neighbours alike.
    pub fn random(bytes: usize) -> Result<Self, DriverError> {
        const BLOCK: usize = 1 << 20;
        // SAFETY: a context is current.
        let address = unsafe { malloc_sync(bytes)? };
        let memory = Self { address, bytes };
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        let numbers: Vec<u16> = (0..BLOCK / 2)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                ((state >> 40) as u16 & 0x80ff) | 0x3f00
            })
            .collect();
        let block: &[u8] = bytemuck::cast_slice(&numbers);
        for first in (0..bytes).step_by(BLOCK) {
            let length = BLOCK.min(bytes - first);
            // SAFETY: the block ends within the memory.
            unsafe { memcpy_htod_sync(memory.address + first as u64, &block[..length])? };
        }
        Ok(memory)
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated by `random`; waits for what uses it.
        let _ = unsafe { free_sync(self.address) };
    }
}

/// A stream that waits for no other.
pub struct Stream(pub CUstream);

impl Stream {
    pub fn new() -> Result<Self, DriverError> {
        Ok(Self(stream::create(StreamKind::NonBlocking)?))
    }

    /// A stream whose kernels come before those of other streams that have not begun.
    pub fn first() -> Result<Self, DriverError> {
        let (_, highest) = stream::get_priority_range()?;
        Ok(Self(stream::create_with_priority(StreamKind::NonBlocking, highest)?))
    }

    /// Waits on the host for all that was queued.
    pub fn wait(&self) -> Result<(), DriverError> {
        // SAFETY: the stream is open.
        unsafe { stream::synchronize(self.0) }
    }

    /// Lets what is queued from now on wait for an event.
    pub fn wait_for(&self, event: &Event) -> Result<(), DriverError> {
        let flags = cudarc::driver::sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: both are open.
        unsafe { stream::wait_event(self.0, event.0, flags) }
    }

    /// Queues an event.
    pub fn mark(&self) -> Result<Event, DriverError> {
        let event = Event(event::create(CU_EVENT_DEFAULT)?);
        // SAFETY: both are open.
        unsafe { event::record(event.0, self.0)? };
        Ok(event)
    }

    /// Returns the seconds that the device takes for what `queue` queues here.
    pub fn time(&self, queue: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
        let start = self.mark()?;
        queue()?;
        let end = self.mark()?;
        self.wait()?;
        Ok(end.since(&start)?)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: made by `new`.
        let _ = unsafe { stream::destroy(self.0) };
    }
}

pub struct Event(CUevent);

impl Event {
    /// Seconds from another event to this one, both of which have happened; below 0 if this one was first.
    pub fn since(&self, start: &Event) -> Result<f64, DriverError> {
        // SAFETY: both are open.
        Ok(f64::from(unsafe { event::elapsed(start.0, self.0)? }) / 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made by `mark`.
        let _ = unsafe { event::destroy(self.0) };
    }
}
