//! [`Place`]: what a call needs of CubeCL's server, asked for on the server's own thread, in order with the launches
//! that were queued before it.

use std::ffi::c_void;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use cubecl::cuda::CudaDevice;
use cubecl::server::{BufferBinding, Handle};
use cubecl_kernels::cuda::{CallBuffers, Server, queue, server, why_unwritten};
use cudarc::driver::sys::CUstream;
use parking_lot::Mutex;

use super::order::{Context, Event, StreamHandle, driver_message};
use super::pauses::Pauses;
use crate::cuda::note_lost;

/// Time between two checks of whether a wait for CubeCL's server may continue.
const SLICE: Duration = Duration::from_millis(20);

/// The device memory of a call, of the lengths that it asks for, without gaps. While it is held, no operation
/// writes to the memory in place.
#[derive(Clone, Debug)]
pub(crate) struct Buffers {
    /// Memory that is read, and written too where `output` is none.
    pub input: Handle,
    pub output: Option<Handle>,
    /// Bytes from the beginning of one rank's part to that of the next, of an all-gather whose result has gaps.
    pub distance: Option<usize>,
}

impl Buffers {
    /// Returns what keeps the memory from being given to others, but no longer from being written in place.
    pub(super) fn reserved(self) -> [Option<BufferBinding>; 2] {
        [Some(self.input.binding()), self.output.map(Handle::binding)]
    }

    /// Returns what work that uses the result waits for.
    pub(super) fn of_result(self) -> CallBuffers {
        CallBuffers {
            read: Vec::new(),
            written: vec![self.output.unwrap_or(self.input).binding()],
        }
    }

    /// Returns what a call on them reads and what it writes.
    fn of_call(self) -> CallBuffers {
        let input = self.input.binding();
        match self.output {
            None => CallBuffers {
                read: Vec::new(),
                written: vec![input],
            },
            Some(output) => CallBuffers {
                read: vec![input],
                written: vec![output.binding()],
            },
        }
    }
}

/// The memory of a call: taken when the device's work waits for the call, and otherwise kept until the host has seen
/// its end, as that of a send.
#[derive(Debug)]
pub(super) struct CallMemory(Mutex<Option<Buffers>>);

impl CallMemory {
    pub fn new(buffers: Buffers) -> Self {
        Self(Mutex::new(Some(buffers)))
    }

    /// Returns the buffers, the first time.
    pub fn take(&self) -> Option<Buffers> {
        self.0.lock().take()
    }
}

/// The server's answer to come, and the buffers that it is for.
pub(crate) struct Prepared {
    answer: Receiver<Result<Place, String>>,
    device: CudaDevice,
    pub(super) buffers: Buffers,
}

/// Where a call takes place.
pub(super) struct Place {
    input: u64,
    output: u64,
    /// As [`Buffers::distance`].
    pub distance: Option<usize>,
    pub context: Context,
    /// An event after everything launched before the call.
    pub launched: Event,
}

impl Prepared {
    /// Asks the device's server.
    pub(super) fn ask(device: &CudaDevice, buffers: Buffers) -> Self {
        let (give, answer) = mpsc::sync_channel(1);
        let (asked, distance) = (buffers.clone().of_call(), buffers.distance);
        let server = server(device);
        queue::<Prepared>(&server, asked, move |stream, addresses| {
            // The receiver may be gone.
            let _ = give.send(Place::of(stream, addresses, distance));
            Ok(())
        });
        // Launches are queued until there are many: the other ranks wait for this one.
        server.flush_queue();
        Self {
            answer,
            device: device.clone(),
            buffers,
        }
    }

    /// Waits until all that was launched before has been handed to the GPU.
    pub(super) fn wait(&self, check_wait: &impl Fn() -> Result<(), String>) -> Result<Place, String> {
        answered(&self.answer, check_wait)?.unwrap_or_else(|| {
            let CallBuffers { mut read, written } = self.buffers.clone().of_call();
            read.extend(written);
            let why = why_unwritten(&server(&self.device), read).map(|why| note_lost(&why));
            Err(why.unwrap_or_else(|| "CubeCL has dropped it".to_owned()))
        })
    }
}

/// Returns the context of a device, once its server has come to it.
pub(super) fn context_of(device: &CudaDevice, check_wait: &impl Fn() -> Result<(), String>) -> Result<Context, String> {
    let (give, answer) = mpsc::sync_channel(1);
    let server = server(device);
    // The receiver may be gone.
    server.submit(move |_: &mut Server| drop(give.send(Context::current())));
    server.flush_queue();
    answered(&answer, check_wait)?.unwrap_or_else(|| Err("CubeCL has dropped a task".to_owned()))
}

/// Waits for what the device's server answers; `None` if it will not.
fn answered<T>(answer: &Receiver<T>, check_wait: &impl Fn() -> Result<(), String>) -> Result<Option<T>, String> {
    let pauses = Pauses::begin();
    loop {
        let pause = if pauses.is_short() { Duration::ZERO } else { SLICE };
        match answer.recv_timeout(pause) {
            Ok(answer) => return Ok(Some(answer)),
            Err(RecvTimeoutError::Timeout) => {
                std::thread::yield_now();
                check_wait()?;
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
        }
    }
}

impl Place {
    /// Called on the server's thread, with the stream that the caller's work goes to.
    fn of(stream: CUstream, addresses: &[u64], distance: Option<usize>) -> Result<Self, String> {
        let (Some(&input), Some(&output)) = (addresses.first(), addresses.last()) else {
            unreachable!("a call has a buffer")
        };
        Ok(Self {
            input,
            output,
            distance,
            context: Context::current()?,
            launched: Event::record(StreamHandle::of(stream)).map_err(driver_message)?,
        })
    }

    pub fn input(&self) -> *mut c_void {
        self.input as *mut c_void
    }

    pub fn output(&self) -> *mut c_void {
        self.output as *mut c_void
    }
}
