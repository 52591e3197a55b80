//! Errors of libraries that return a code, and keep what there is to say of it for another call or a log.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// A code other than success, and what is said of it.
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
}

/// Runs what an exported function does: a panic is an error with the code `internal`, and does not unwind into the
/// caller.
pub fn caught(call: impl FnOnce() -> Outcome, internal: u32) -> Outcome {
    let outcome = catch_unwind(AssertUnwindSafe(call));
    outcome.unwrap_or_else(|_| Err(Error::new(internal, "the emulator panicked")))
}

/// Writes through a pointer of the caller's, or fails with the code `invalid`.
///
/// # Safety
///
/// The pointer must be null or point to a `T` that may be written.
pub unsafe fn give<T>(to: *mut T, value: T, invalid: u32) -> Outcome {
    if to.is_null() {
        return Err(Error::new(invalid, "a pointer to write to is null"));
    }
    // SAFETY: the caller's, and not null.
    unsafe { to.write(value) };
    Ok(())
}
