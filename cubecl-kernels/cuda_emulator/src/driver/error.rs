//! The driver's result codes, and how an exported function ends with one.

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A code of `CUresult` other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error(pub u32);

pub type Outcome<T = ()> = Result<T, Error>;

macro_rules! errors {
    ($($name:ident $code:literal $text:literal;)*) => {
        impl Error {
            $(pub const $name: Self = Self($code);)*
        }

        /// A code's name and what it says.
        const TEXTS: &[(u32, &CStr, &CStr)] = &[
            (0, c"CUDA_SUCCESS", c"no error"),
            $((
                $code,
                // SAFETY: literals without a zero but the last byte.
                unsafe {
                    CStr::from_bytes_with_nul_unchecked(concat!("CUDA_ERROR_", stringify!($name), "\0").as_bytes())
                },
                // SAFETY: as above.
                unsafe { CStr::from_bytes_with_nul_unchecked(concat!($text, "\0").as_bytes()) },
            ),)*
        ];
    };
}

errors! {
    INVALID_VALUE 1 "invalid argument";
    OUT_OF_MEMORY 2 "out of memory";
    NOT_INITIALIZED 3 "initialization error";
    NO_DEVICE 100 "no CUDA-capable device is detected";
    INVALID_DEVICE 101 "invalid device ordinal";
    INVALID_CONTEXT 201 "invalid device context";
    INVALID_PTX 218 "a PTX JIT compilation failed";
    INVALID_HANDLE 400 "invalid resource handle";
    NOT_FOUND 500 "named symbol not found";
    NOT_READY 600 "device not ready";
    ILLEGAL_ADDRESS 700 "an illegal memory access was encountered";
    LAUNCH_FAILED 719 "unspecified launch failure";
    NOT_SUPPORTED 801 "operation not supported";
    UNKNOWN 999 "unknown error";
}

/// Runs what an exported function does, and returns its code: nothing unwinds into the caller.
pub fn returned(call: impl FnOnce() -> Outcome) -> u32 {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => error.0,
        Err(_) => Error::UNKNOWN.0,
    }
}

/// Says on the standard error what no code can.
pub fn tell(what: &str) {
    eprintln!("cuda-emulator, process {}: {what}", std::process::id());
}

/// Writes through a pointer of the caller's.
///
/// # Safety
///
/// The pointer must be null or point to a `T` that may be written.
pub unsafe fn give<T>(to: *mut T, value: T) -> Outcome {
    if to.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    // SAFETY: the caller's, and not null.
    unsafe { to.write(value) };
    Ok(())
}

fn text_of(error: u32) -> Outcome<&'static (u32, &'static CStr, &'static CStr)> {
    TEXTS.iter().find(|text| text.0 == error).ok_or(Error::INVALID_VALUE)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(error: u32, name: *mut *const std::ffi::c_char) -> u32 {
    // SAFETY: the caller's pointer.
    returned(|| unsafe { give(name, text_of(error)?.1.as_ptr()) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(error: u32, text: *mut *const std::ffi::c_char) -> u32 {
    // SAFETY: the caller's pointer.
    returned(|| unsafe { give(text, text_of(error)?.2.as_ptr()) })
}
