//! cuBLASLt's result codes, and how an exported function ends with one.

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use crate::coded::{self, caught};
/// Codes of `cublasStatus_t`, and why they are returned.
pub use crate::coded::{Error, Outcome};
use crate::driver::device::number_in_environment;
use crate::driver::error::tell;

pub const NOT_INITIALIZED: u32 = 1;
pub const INVALID_VALUE: u32 = 7;
pub const EXECUTION_FAILED: u32 = 13;
pub const INTERNAL_ERROR: u32 = 14;
pub const NOT_SUPPORTED: u32 = 15;
/// 13.0, as cuBLASLt counts.
const VERSION: usize = 130_000;

impl Error {
    pub fn invalid(text: impl Into<String>) -> Self {
        Self::new(INVALID_VALUE, text)
    }

    pub fn unsupported(text: impl Into<String>) -> Self {
        Self::new(NOT_SUPPORTED, text)
    }
}

/// Runs what an exported function does, and returns its code: nothing unwinds into the caller. With
/// `CUBLASLT_LOG_LEVEL` above 0, as cuBLASLt reads it, the standard error says why a call fails.
pub fn returned(call: impl FnOnce() -> Outcome) -> u32 {
    static LEVEL: OnceLock<usize> = OnceLock::new();
    let Err(error) = caught(call, INTERNAL_ERROR) else {
        return 0;
    };
    if *LEVEL.get_or_init(|| number_in_environment("CUBLASLT_LOG_LEVEL").unwrap_or(0)) > 0 {
        tell(&format!("cuBLASLt: {}", error.text));
    }
    error.code
}

/// Writes through a pointer of the caller's.
///
/// # Safety
///
/// The pointer must be null or point to a `T` that may be written.
pub unsafe fn give<T>(to: *mut T, value: T) -> Outcome {
    // SAFETY: the caller's.
    unsafe { coded::give(to, value, INVALID_VALUE) }
}

/// A code's name and what it says.
fn texts_of(code: u32) -> (&'static CStr, &'static CStr) {
    match code {
        0 => (c"CUBLAS_STATUS_SUCCESS", c"success"),
        NOT_INITIALIZED => (c"CUBLAS_STATUS_NOT_INITIALIZED", c"the library was not initialized"),
        3 => (c"CUBLAS_STATUS_ALLOC_FAILED", c"the resource allocation failed"),
        INVALID_VALUE => (
            c"CUBLAS_STATUS_INVALID_VALUE",
            c"an unsupported value or parameter was passed to the function",
        ),
        8 => (
            c"CUBLAS_STATUS_ARCH_MISMATCH",
            c"the function requires an architectural feature absent from the device",
        ),
        11 => (c"CUBLAS_STATUS_MAPPING_ERROR", c"an access to GPU memory space failed"),
        EXECUTION_FAILED => (c"CUBLAS_STATUS_EXECUTION_FAILED", c"the GPU program failed to execute"),
        INTERNAL_ERROR => (c"CUBLAS_STATUS_INTERNAL_ERROR", c"an internal operation failed"),
        NOT_SUPPORTED => (
            c"CUBLAS_STATUS_NOT_SUPPORTED",
            c"the functionality requested is not supported",
        ),
        16 => (
            c"CUBLAS_STATUS_LICENSE_ERROR",
            c"the functionality requested requires a license, which could not be checked",
        ),
        _ => (c"CUBLAS_STATUS_UNKNOWN", c"unknown status"),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtGetStatusName(code: u32) -> *const c_char {
    texts_of(code).0.as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtGetStatusString(code: u32) -> *const c_char {
    texts_of(code).1.as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtGetVersion() -> usize {
    VERSION
}
