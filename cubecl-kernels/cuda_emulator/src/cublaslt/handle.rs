//! The library's handles: each is for the device that was current when it was created.

use std::ffi::c_void;
use std::sync::Arc;

use super::error::{Error, NOT_INITIALIZED, Outcome};
use crate::driver::device::{Device, current};
use crate::exported::{Out, exported};
use crate::handles::Handles;

static LIBRARIES: Handles<&'static Device> = Handles::new(7);

fn unknown() -> Error {
    Error::new(NOT_INITIALIZED, "no handle, or one that was destroyed")
}

pub fn device_of(handle: *mut c_void) -> Outcome<&'static Device> {
    LIBRARIES.get(handle).map(|device| *device).ok_or_else(unknown)
}

fn current_device() -> Outcome<&'static Device> {
    current().map_err(|error| {
        let text = format!("no context is current that works: Cuda failure {}", error.0);
        Error::new(NOT_INITIALIZED, text)
    })
}

exported! {
    fn cublasLtCreate(handle: Out<*mut c_void>) {
        handle.give(LIBRARIES.insert(Arc::new(current_device()?)))
    }

    fn cublasLtDestroy(handle: *mut c_void) {
        // What was put into streams is done nevertheless.
        LIBRARIES.remove(handle).map(drop).ok_or_else(unknown)
    }
}
