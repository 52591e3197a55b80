//! NCCL's result codes, and what is said of the last one.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

use crate::driver::error::Error as DriverError;
use crate::exported::{Failure, Out, exported};

pub const CUDA_ERROR: u32 = 1;
pub const SYSTEM_ERROR: u32 = 2;
pub const INTERNAL_ERROR: u32 = 3;
pub const INVALID_ARGUMENT: u32 = 4;
pub const INVALID_USAGE: u32 = 5;
pub const REMOTE_ERROR: u32 = 6;
pub const IN_PROGRESS: u32 = 7;
/// 2.30.3, as NCCL counts.
const VERSION: c_int = 23003;

/// A code of `ncclResult_t` other than success, and what `ncclGetLastError` says of it.
#[derive(Clone, Debug)]
pub struct Error {
    pub code: u32,
    pub text: String,
}

pub type Outcome<T = ()> = Result<T, Error>;

impl Error {
    pub fn new(code: u32, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { code, text }
    }

    /// What a call ends with that continues after it has returned.
    pub fn in_progress() -> Self {
        Self::new(IN_PROGRESS, "")
    }
}

impl From<DriverError> for Error {
    fn from(error: DriverError) -> Self {
        Self::new(CUDA_ERROR, format!("Cuda failure {}", error.0))
    }
}

impl Failure for Error {
    fn null() -> Self {
        Self::new(INVALID_ARGUMENT, "a pointer to write to is null")
    }

    fn panicked() -> Self {
        Self::new(INTERNAL_ERROR, "the emulator panicked")
    }

    fn into_code(self) -> u32 {
        if self.code != IN_PROGRESS {
            remember(&self.text);
        }
        self.code
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

/// What the thread's next `ncclGetLastError` says.
pub fn remember(text: &str) {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    LAST.with(|last| *last.borrow_mut() = text);
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
unsafe extern "C" fn ncclGetLastError(_communicator: *mut c_void) -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

exported! {
    fn ncclGetVersion(version: Out<c_int>) {
        version.give(VERSION)
    }
}
