//! Order between CubeCL's streams and NCCL's, on the GPU: none waits on the host.

use std::ffi::c_void;

use cudarc::driver::result::{ctx, event, stream};
use cudarc::driver::{DriverError, sys};

/// An event on a stream. Destroyed when dropped; CUDA keeps what waits for it.
#[derive(Debug)]
pub(super) struct Event(sys::CUevent);

// SAFETY: CUDA's events may be used by any thread.
unsafe impl Send for Event {}
// SAFETY: as above; a call that asks does not change it.
unsafe impl Sync for Event {}

impl Event {
    /// Returns an event recorded after all work queued on the stream. The device's context must be current.
    pub fn record(stream: StreamHandle) -> Result<Self, DriverError> {
        let event = Self(event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?);
        // SAFETY: both are of the current context.
        unsafe { event::record(event.0, stream.0)? };
        Ok(event)
    }

    /// Makes what is put on a stream from now on wait for the event.
    pub fn block(&self, stream: StreamHandle) -> Result<(), DriverError> {
        // SAFETY: both are of the current context.
        unsafe { stream::wait_event(stream.0, self.0, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT) }
    }

    /// Returns whether all before the event is done.
    pub fn is_done(&self) -> Result<bool, DriverError> {
        // SAFETY: the event was recorded.
        match unsafe { event::query(self.0) } {
            Ok(()) => Ok(true),
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: nothing else has it.
        let _ = unsafe { event::destroy(self.0) };
    }
}

/// An error of the driver, for a message.
pub(super) fn driver_message(error: DriverError) -> String {
    format!("the CUDA driver says {error:?}")
}

/// A device's context, which a thread that calls the driver makes its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context(sys::CUcontext);

// SAFETY: CUDA's contexts may be used by any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Returns the context of this thread.
    pub fn current() -> Result<Self, String> {
        match ctx::get_current() {
            Ok(Some(context)) => Ok(Self(context)),
            Ok(None) => Err("CubeCL's thread has no context".to_owned()),
            Err(error) => Err(driver_message(error)),
        }
    }

    /// Makes it this thread's.
    pub fn make_current(self) -> Result<(), String> {
        // SAFETY: CubeCL's, which lives as long as the process.
        unsafe { ctx::set_current(self.0) }.map_err(driver_message)
    }

    /// Runs `act` with this context current on this thread, which may be the program's own, and then restores the
    /// context that was current before.
    pub fn within<R>(self, act: impl FnOnce() -> R) -> R {
        let before = ctx::get_current().ok().flatten();
        if let Err(error) = self.make_current() {
            tracing::warn!("a thread does not get the device's context: {error}");
        }
        let result = act();
        // SAFETY: this thread had it, or none.
        let _ = unsafe { sys::cuCtxSetCurrent(before.unwrap_or(std::ptr::null_mut())) };
        result
    }
}

/// A stream of the device's context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamHandle(sys::CUstream);

// SAFETY: CUDA's streams may be used by any thread.
unsafe impl Send for StreamHandle {}
// SAFETY: as above.
unsafe impl Sync for StreamHandle {}

impl StreamHandle {
    pub fn of(stream: sys::CUstream) -> Self {
        Self(stream)
    }

    /// Returns a new stream, before all others when the GPU has a choice: what it carries is waited for. The device's
    /// context is current. It lives as long as the process.
    pub fn create_high_priority() -> Result<Self, DriverError> {
        let (mut least, mut greatest) = (0, 0);
        let mut stream = std::ptr::null_mut();
        // SAFETY: each writes what its pointers point to.
        unsafe {
            sys::cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest).result()?;
            let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
            sys::cuStreamCreateWithPriority(&raw mut stream, flags, greatest).result()?;
        }
        Ok(Self(stream))
    }

    pub fn as_raw(self) -> *mut c_void {
        self.0.cast()
    }
}
