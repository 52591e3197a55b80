//! NCCL's result codes, and how an exported function ends with one.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};

use crate::coded::{self, caught};
/// Codes of `ncclResult_t`, and what `ncclGetLastError` says of them.
pub use crate::coded::{Error, Outcome};

pub const CUDA_ERROR: u32 = 1;
pub const SYSTEM_ERROR: u32 = 2;
pub const INTERNAL_ERROR: u32 = 3;
pub const INVALID_ARGUMENT: u32 = 4;
pub const INVALID_USAGE: u32 = 5;
pub const REMOTE_ERROR: u32 = 6;
pub const IN_PROGRESS: u32 = 7;
/// 2.22.3, as NCCL counts.
const VERSION: c_int = 22203;

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

/// Runs what an exported function does, and returns its code: nothing unwinds into the caller.
pub fn returned(call: impl FnOnce() -> Outcome) -> u32 {
    let Err(error) = caught(call, INTERNAL_ERROR) else {
        return 0;
    };
    if error.code != IN_PROGRESS {
        remember(&error.text);
    }
    error.code
}

/// What the thread's next `ncclGetLastError` says.
pub fn remember(text: &str) {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    LAST.with(|last| *last.borrow_mut() = text);
}

/// Writes through a pointer of the caller's.
///
/// # Safety
///
/// The pointer must be null or point to a `T` that may be written.
pub unsafe fn give<T>(to: *mut T, value: T) -> Outcome {
    // SAFETY: the caller's.
    unsafe { coded::give(to, value, INVALID_ARGUMENT) }
}

fn text_of(code: u32) -> &'static CStr {
    match code {
        0 => c"no error",
        CUDA_ERROR => c"unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        SYSTEM_ERROR => c"unhandled system error (run with NCCL_DEBUG=INFO for details)",
        INTERNAL_ERROR => c"internal error - please report this issue to the NCCL developers",
        INVALID_ARGUMENT => c"invalid argument (run with NCCL_DEBUG=WARN for details)",
        INVALID_USAGE => c"invalid usage (run with NCCL_DEBUG=WARN for details)",
        REMOTE_ERROR => c"remote process exited or there was a network error",
        IN_PROGRESS => c"NCCL operation in progress",
        _ => c"unknown result code",
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetErrorString(code: u32) -> *const c_char {
    text_of(code).as_ptr()
}

/// The text lives until the thread's next error.
#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetLastError(_communicator: *mut std::ffi::c_void) -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> u32 {
    // SAFETY: the caller's pointer.
    returned(|| unsafe { give(version, VERSION) })
}
