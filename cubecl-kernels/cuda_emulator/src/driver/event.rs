//! Events: what was recorded last, as a mark in a stream.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use parking_lot::Mutex;

use super::device::stream::{Mark, resolve};
use super::device::{Device, current};
use super::error::{Error, Outcome};
use crate::exported::{Out, exported};
use crate::handles::Handles;
use crate::recording;

static EVENTS: Handles<Event> = Handles::new(2);
const DISABLE_TIMING: c_uint = 2;

struct Event {
    device: &'static Device,
    has_time: bool,
    recorded: Mutex<Option<Arc<Mark>>>,
}

impl Event {
    fn of(handle: *mut c_void) -> Outcome<Arc<Self>> {
        EVENTS.get(handle).ok_or(Error::INVALID_HANDLE)
    }

    /// What was recorded last; what is recorded later does not change what a wait is for.
    fn mark(&self) -> Option<Arc<Mark>> {
        self.recorded.lock().clone()
    }
}

fn record(event: *mut c_void, stream: *mut c_void) -> Outcome {
    let (event, stream) = (Event::of(event)?, resolve(stream)?);
    recording::count("record", "event", 0);
    if !std::ptr::eq(event.device, stream.device) {
        return Err(Error::INVALID_HANDLE);
    }
    let mark = stream.mark();
    *event.recorded.lock() = Some(mark);
    Ok(())
}

/// Returns the milliseconds between two events.
fn elapsed(start: *mut c_void, end: *mut c_void) -> Outcome<f32> {
    let (start, end) = (Event::of(start)?, Event::of(end)?);
    let (Some(from), Some(to)) = (start.mark(), end.mark()) else {
        return Err(Error::INVALID_HANDLE);
    };
    if !start.has_time || !end.has_time {
        return Err(Error::INVALID_HANDLE);
    }
    let (Some(from), Some(to)) = (from.time(), to.time()) else {
        return Err(Error::NOT_READY);
    };
    let seconds = match to.checked_duration_since(from) {
        Some(elapsed) => elapsed.as_secs_f32(),
        None => -from.duration_since(to).as_secs_f32(),
    };
    Ok(seconds * 1e3)
}

exported! {
    fn cuEventCreate(event: Out<*mut c_void>, flags: c_uint) {
        let created = Event {
            device: current()?,
            has_time: flags & DISABLE_TIMING == 0,
            recorded: Mutex::default(),
        };
        event.give(EVENTS.insert(Arc::new(created)))
    }

    fn cuEventDestroy_v2(event: *mut c_void) {
        // Who waits for it holds its mark.
        EVENTS.remove(event).map(drop).ok_or(Error::INVALID_HANDLE)
    }

    fn cuEventRecord(event: *mut c_void, stream: *mut c_void) {
        record(event, stream)
    }

    fn cuEventRecordWithFlags(event: *mut c_void, stream: *mut c_void, _flags: c_uint) {
        record(event, stream)
    }

    fn cuStreamWaitEvent(stream: *mut c_void, event: *mut c_void, _flags: c_uint) {
        let (stream, event) = (resolve(stream)?, Event::of(event)?);
        recording::count("wait", "event", 0);
        if let Some(mark) = event.mark() {
            stream.wait_for(mark);
        }
        Ok(())
    }

    fn cuEventQuery(event: *mut c_void) {
        let event = Event::of(event)?;
        event.device.health()?;
        match event.mark() {
            Some(mark) if mark.time().is_none() => Err(Error::NOT_READY),
            _ => Ok(()),
        }
    }

    fn cuEventSynchronize(event: *mut c_void) {
        let event = Event::of(event)?;
        recording::count("host wait", "event", 0);
        if let Some(mark) = event.mark() {
            mark.wait(event.device);
        }
        event.device.health()
    }

    fn cuEventElapsedTime(milliseconds: Out<f32>, start: *mut c_void, end: *mut c_void) {
        milliseconds.give(elapsed(start, end)?)
    }

    fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: *mut c_void, end: *mut c_void) {
        milliseconds.give(elapsed(start, end)?)
    }
}
