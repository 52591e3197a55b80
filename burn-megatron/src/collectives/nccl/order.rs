//! Order between CubeCL's stream and NCCL's, on the GPU: neither waits on the host.
//!
//! CubeCL 0.10 gives no stream, but its server prints it; [`compute_stream`] reads it there. That takes a process with
//! one stream only, which [`cuda::choose`](crate::cuda::choose) sees to.

use std::ffi::c_void;
use std::fmt::Write;

use cubecl::cuda::CudaRuntime;
use cubecl::stream_id::StreamId;
use cudarc::driver::result::{ctx, event, stream};
use cudarc::driver::{DriverError, sys};

/// What executes a device's launches, one after another, on a thread of its own.
pub(crate) type Server = <CudaRuntime as cubecl::Runtime>::Server;

/// An event on a stream. Destroyed when dropped; CUDA keeps what waits for it.
#[derive(Debug)]
pub(super) struct Event(sys::CUevent);

// SAFETY: CUDA's events may be used by any thread.
unsafe impl Send for Event {}
// SAFETY: as above; a call that asks does not change it.
unsafe impl Sync for Event {}

impl Event {
    /// Returns an event behind all that is on the stream. The device's context is current.
    pub fn behind(stream: StreamHandle) -> Result<Self, DriverError> {
        let event = Self(event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?);
        // SAFETY: both are of the current context.
        unsafe { event::record(event.0, stream.0)? };
        Ok(event)
    }

    /// Makes what is put on a stream from now on wait for the event.
    pub fn hold_back(&self, stream: StreamHandle) -> Result<(), DriverError> {
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
pub(super) fn in_words(error: DriverError) -> String {
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
            Err(error) => Err(in_words(error)),
        }
    }

    /// Makes it this thread's.
    pub fn make_current(self) -> Result<(), String> {
        // SAFETY: CubeCL's, which lives as long as the process.
        unsafe { ctx::set_current(self.0) }.map_err(in_words)
    }

    /// Does something with it as this thread's, which may be the program's own: behind it the thread has what it had before.
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
    /// Returns a new stream, before all others when the GPU has a choice: what it carries is waited for. The device's context
    /// is current. It lives as long as the process.
    pub fn create_urgent() -> Result<Self, DriverError> {
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

/// Returns the stream that the server computes on. Called on the server's thread.
///
/// # Errors
/// When the server has several streams, or does not print them as this version of CubeCL does.
pub(super) fn compute_stream(server: &mut Server) -> Result<StreamHandle, String> {
    // Makes the stream, if nothing has been launched yet.
    let flushed = cubecl::server::ComputeServer::flush(server, StreamId::current());
    flushed.map_err(|error| format!("CubeCL cannot flush: {error:?}"))?;
    let mut text = String::new();
    write!(text, "{server:?}").map_err(|error| error.to_string())?;
    let address = parse_stream(&text)?;
    Ok(StreamHandle(address as sys::CUstream))
}

/// Returns the address of the first stream of a server's printed pool.
fn parse_stream(text: &str) -> Result<usize, String> {
    let unexpected = |what: &str| {
        format!(
            "CubeCL prints its streams in another way than version 0.10 ({what}): NCCL cannot be ordered behind them"
        )
    };
    let pool = text.find("max_streams: ").ok_or_else(|| unexpected("no max_streams"))?;
    let number: String = text[pool + "max_streams: ".len()..]
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    if number != "1" {
        return Err(format!(
            "CubeCL computes on up to {number} streams, expected 1: choose the device (cuda::choose) before the first tensor is \
             made"
        ));
    }
    let (_, stream) = text
        .split_once("Stream { sys: 0x")
        .ok_or_else(|| unexpected("no stream"))?;
    let digits: String = stream.chars().take_while(char::is_ascii_hexdigit).collect();
    usize::from_str_radix(&digits, 16).map_err(|_| unexpected("no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_read_from_what_the_server_prints() {
        let text = "CudaServer { ctx: CudaContext { .. }, streams: MultiStream { streams: StreamPool { streams: [Some(\
            StreamWrapper { stream: Stream { sys: 0x55aa10, errors: [] }, cursor: 3 }), Some(StreamWrapper { stream: Stream { \
            sys: 0x77 } })], factory: F, max_streams: 1 }, max_streams: 1 } }";
        assert_eq!(parse_stream(text), Ok(0x55_aa10));
        let error = parse_stream(&text.replace("max_streams: 1", "max_streams: 128")).expect_err("there are many");
        assert!(
            error.contains("128 streams, expected 1") && error.contains("cuda::choose"),
            "{error}"
        );
        assert!(parse_stream("CudaServer").is_err());
    }
}
