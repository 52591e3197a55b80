//! The library's handles: each is for the device that was current when it was created.

use std::ffi::c_void;
use std::sync::Arc;

use super::error::{Error, NOT_INITIALIZED, Outcome, give, returned};
use crate::driver::device::{Device, current};
use crate::driver::error::Error as DriverError;
use crate::handles::Handles;

static LIBRARIES: Handles<&'static Device> = Handles::new(7);

fn unknown() -> Error {
    Error::new(NOT_INITIALIZED, "no handle, or one that was destroyed")
}

/// Returns the device of a handle.
pub fn device_of(handle: *mut c_void) -> Outcome<&'static Device> {
    LIBRARIES.get(handle).map(|device| *device).ok_or_else(unknown)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtCreate(handle: *mut *mut c_void) -> u32 {
    returned(|| {
        let none = |error: DriverError| {
            let text = format!("no context is current that works: Cuda failure {}", error.0);
            Error::new(NOT_INITIALIZED, text)
        };
        let device = current().map_err(none)?;
        // SAFETY: the caller's pointer.
        unsafe { give(handle, LIBRARIES.insert(Arc::new(device))) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtDestroy(handle: *mut c_void) -> u32 {
    // What was put into streams is done nevertheless.
    returned(|| LIBRARIES.remove(handle).map(drop).ok_or_else(unknown))
}
