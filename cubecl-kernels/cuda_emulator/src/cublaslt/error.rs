//! cuBLASLt's result codes, and what is said of them.

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use crate::driver::device::number_in_environment;
use crate::driver::error::{Error as DriverError, tell};
use crate::exported::Failure;

pub const NOT_INITIALIZED: u32 = 1;
pub const INVALID_VALUE: u32 = 7;
pub const EXECUTION_FAILED: u32 = 13;
pub const INTERNAL_ERROR: u32 = 14;
pub const NOT_SUPPORTED: u32 = 15;
/// 13.0, as cuBLASLt counts.
const VERSION: usize = 130_000;

/// A code of `cublasStatus_t` other than success, and why it is returned.
#[derive(Debug)]
pub struct Error {
    code: u32,
    text: String,
}

pub type Outcome<T = ()> = Result<T, Error>;

impl Error {
    pub fn new(code: u32, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { code, text }
    }

    pub fn invalid(text: impl Into<String>) -> Self {
        Self::new(INVALID_VALUE, text)
    }

    pub fn unsupported(text: impl Into<String>) -> Self {
        Self::new(NOT_SUPPORTED, text)
    }
}

impl From<DriverError> for Error {
    fn from(error: DriverError) -> Self {
        let text = format!("Cuda failure {}", error.0);
        match error {
            DriverError::INVALID_HANDLE => Self::invalid(text),
            DriverError::NOT_SUPPORTED => Self::unsupported(text),
            _ => Self::new(EXECUTION_FAILED, text),
        }
    }
}

impl Failure for Error {
    fn null() -> Self {
        Self::invalid("a pointer to write to is null")
    }

    fn panicked() -> Self {
        Self::new(INTERNAL_ERROR, "the emulator panicked")
    }

    /// With `CUBLASLT_LOG_LEVEL` above 0, as cuBLASLt reads it, the standard error says why a call fails.
    fn into_code(self) -> u32 {
        static LEVEL: OnceLock<usize> = OnceLock::new();
        if *LEVEL.get_or_init(|| number_in_environment("CUBLASLT_LOG_LEVEL").unwrap_or(0)) > 0 {
            tell(&format!("cuBLASLt: {}", self.text));
        }
        self.code
    }
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
