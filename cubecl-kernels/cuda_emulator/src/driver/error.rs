//! The driver's result codes, and what is said on the standard error.

use std::ffi::{CStr, c_char};

use crate::exported::{Failure, Out, exported};

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
    LAUNCH_TIMEOUT 702 "the launch timed out and was terminated";
    LAUNCH_FAILED 719 "unspecified launch failure";
    NOT_SUPPORTED 801 "operation not supported";
    UNKNOWN 999 "unknown error";
}

impl Failure for Error {
    fn null() -> Self {
        Self::INVALID_VALUE
    }

    fn panicked() -> Self {
        Self::UNKNOWN
    }

    fn into_code(self) -> u32 {
        self.0
    }
}

/// Says on the standard error what no code can.
pub fn tell(what: &str) {
    eprintln!("cuda-emulator, process {}: {what}", std::process::id());
}

fn text_of(error: u32) -> Outcome<&'static (u32, &'static CStr, &'static CStr)> {
    TEXTS.iter().find(|text| text.0 == error).ok_or(Error::INVALID_VALUE)
}

exported! {
    fn cuGetErrorName(error: u32, name: Out<*const c_char>) {
        name.give(text_of(error)?.1.as_ptr())
    }

    fn cuGetErrorString(error: u32, text: Out<*const c_char>) {
        text.give(text_of(error)?.2.as_ptr())
    }
}
